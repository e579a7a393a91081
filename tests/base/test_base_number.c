// Numbers from and to text, also in a locale with a decimal comma.
#include <float.h>
#include <locale.h>
#include <math.h>

#include "base/base_str.h"
#include "hd/hd_philox.h"
#include "record/record_metric.h"
#include "test.h"

static void i64(const char *text, int64_t expected) {
  int64_t value = -77;
  if (!brim_parse_i64(text, &value)) fail_msg("'%s' was refused", text);
  assert_int_equal(value, expected);
}

static void not_i64(const char *text) {
  int64_t value;
  if (brim_parse_i64(text, &value)) fail_msg("'%s' was read", text);
}

static void integers(void **state) {
  (void)state;
  i64("0", 0);
  i64("-0", 0);
  i64("+12", 12);
  i64("-12", -12);
  i64("007", 7);
  i64("0x10", 16);
  i64("0xfF", 255);
  i64("0o17", 15);
  i64("9223372036854775807", INT64_MAX);
  i64("-9223372036854775808", INT64_MIN);
  i64("0x7fffffffffffffff", INT64_MAX);
  const char *bad[] = {"",
                       "-",
                       "+",
                       "1.0",
                       "1e3",
                       "12x",
                       " 12",
                       "12 ",
                       "0x",
                       "0o8",
                       "-0x10",
                       "0xg",
                       "--1",
                       "1_0",
                       "9223372036854775808",
                       "-9223372036854775809",
                       "99999999999999999999",
                       "0x8000000000000000"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) not_i64(bad[i]);
  int64_t value;
  assert_false(brim_parse_i64(NULL, &value));
}

static void f64(const char *text, double expected) {
  double value = -77;
  if (!brim_parse_f64(text, &value)) fail_msg("'%s' was refused", text);
  if (value != expected) fail_msg("'%s' gave %.17g", text, value);
}

static void floats(void **state) {
  (void)state;
  f64("1e-4", 1e-4);
  f64(".5", 0.5);
  f64("5.", 5);
  f64("-2.5E+3", -2500);
  f64("+1", 1);
  f64("0.1", 0.1);
  f64("1e-400", 0);
  f64("5e-324", 5e-324);
  f64(".inf", INFINITY);
  f64("-.inf", -INFINITY);
  f64("+.INF", INFINITY);
  double value = 0;
  assert_true(brim_parse_f64(".nan", &value) && isnan(value));
  assert_true(brim_parse_f64(".NaN", &value) && isnan(value));
  const char *bad[] = {"",    "-",   ".",     "e5",    "1e",   "1e+",   "1x",
                       " 1",  "1 ",  "inf",   "nan",   "0x10", "1e999", "-1e999",
                       "1,5", "..5", "-.nan", "1.2.3", "1e5.5"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (brim_parse_f64(bad[i], &value)) fail_msg("'%s' was read", bad[i]);
  }
}

static void booleans(void **state) {
  (void)state;
  bool b = false;
  assert_true(brim_parse_bool("True", &b) && b);
  assert_true(brim_parse_bool("off", &b) && !b);
  assert_true(brim_parse_bool("YES", &b) && b);
  assert_true(brim_parse_bool("no", &b) && !b);
  assert_false(brim_parse_bool("1", &b));
  assert_false(brim_parse_bool("", &b));
  assert_false(brim_parse_bool("truer", &b));
}

static void bytes(const char *text, uint64_t expected) {
  uint64_t value = 77;
  if (!brim_parse_bytes(text, &value)) fail_msg("'%s' was refused", text);
  assert_int_equal(value, expected);
}

static void byte_sizes(void **state) {
  (void)state;
  bytes("1024", 1024);
  bytes("0", 0);
  bytes("10B", 10);
  bytes("12GB", 12000000000u);
  bytes("12 GiB", 12884901888u);
  bytes("512 MiB", 536870912u);
  bytes("1.5G", 1610612736u);
  bytes("64k", 65536);
  bytes("64kb", 64000);
  bytes("2Ti", 2199023255552u);
  bytes(".5K", 512);
  bytes("18446744073709551615", UINT64_MAX);
  const char *bad[] = {"",       "G",    "-1",    "1X", "1GG", "1 G B", "18446744073709551616",
                       "16384P", "1e30", "12GBs", " 1", "0x10"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t value;
    if (brim_parse_bytes(bad[i], &value)) fail_msg("'%s' was read", bad[i]);
  }
}

static void shown(double value, const char *expected) {
  char text[32];
  brim_format_f64(value, text);
  assert_string_equal(text, expected);
}

static void shortest_floats(void **state) {
  (void)state;
  shown(0.1, "0.1");
  shown(1e-4, "0.0001");
  shown(1e-5, "1e-05");
  shown(3, "3");
  shown(-0.0, "-0");
  shown(1.0 / 3, "0.3333333333333333");
  shown(0.1 + 0.2, "0.30000000000000004");
  shown(1e300, "1e+300");
  shown((double)NAN, ".nan");
  shown((double)-INFINITY, "-.inf");
}

static void every_float_reads_back(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 20000; i++) {
    brim_philox4 r = brim_philox(brim_rng_key(5, BRIM_RNG_TEST), 0, i);
    double value, back;
    uint64_t bits = (uint64_t)r.v[0] << 32 | r.v[1];
    memcpy(&value, &bits, sizeof value);
    if (isnan(value)) continue;
    char text[32];
    brim_format_f64(value, text);
    assert_true(brim_parse_f64(text, &back));
    assert_true(back == value);
  }
}

static void sizes_for_people(void **state) {
  (void)state;
  const struct {
    uint64_t bytes;
    const char *text;
  } rows[] = {{0, "0 B"},
              {1023, "1023 B"},
              {1024, "1.0 KiB"},
              {1610612736, "1.5 GiB"},
              {1048575, "1.0 MiB"},
              {12884901888u, "12.0 GiB"},
              {UINT64_MAX, "16.0 EiB"}};
  char text[32];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_format_bytes(rows[i].bytes, text);
    assert_string_equal(text, rows[i].text);
  }
}

static void counts_for_people(void **state) {
  (void)state;
  const struct {
    double value;
    const char *text;
  } rows[] = {{0, "0"},
              {5, "5"},
              {1.234, "1.23"},
              {-1.5, "-1.5"},
              {99.96, "100"},
              {999.4, "999"},
              {999.6, "1,000"},
              {12345, "12,345"},
              {-12345, "-12,345"},
              {999999, "999,999"},
              {1230000, "1.23 M"},
              {4.5e9, "4.50 G"},
              {7e13, "70.00 T"},
              {-0.001, "0"},
              {NAN, "-"},
              {1e18, "1e+18"}};
  char text[32];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_format_count(rows[i].value, text);
    assert_string_equal(text, rows[i].text);
  }
}

static void durations(void **state) {
  (void)state;
  const struct {
    double seconds;
    const char *text;
  } rows[] = {{0, "0 s"},
              {1.2e-3, "1.2 ms"},
              {3, "3 s"},
              {125, "2 min 05 s"},
              {3720, "1 h 02 min"},
              {0.9999, "1 s"},
              {59.99, "1 min 00 s"},
              {3599.9, "1 h 00 min"},
              {42e-9, "42 ns"},
              {123.4e-6, "123 us"},
              {999.7e-6, "1 ms"},
              {-2, "-2 s"},
              {NAN, "-"},
              {12.34, "12.3 s"},
              {360000, "100 h 00 min"}};
  char text[32];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_format_duration(rows[i].seconds, text);
    assert_string_equal(text, rows[i].text);
  }
}

static void locale_does_not_matter(void **state) {
  (void)state;
  const char *names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "ru_RU.UTF-8"};
  bool set = false;
  for (size_t i = 0; i < 4 && !set; i++) set = setlocale(LC_ALL, names[i]) != NULL;
  if (!set) BRIM_SKIP("no locale with a decimal comma is installed");
  f64("1.5", 1.5);
  shown(1.5, "1.5");
  char text[32];
  brim_format_bytes(1536, text);
  assert_string_equal(text, "1.5 KiB");
  setlocale(LC_ALL, "C");
}

// Values look the same in brim's texts as on its pages (tests/web/test_functions.js has the same list).
static void shown_values(void **state) {
  (void)state;
  FILE *file = fopen(BRIM_SOURCE_DIR "/tests/web/rounding.txt", "r");
  char line[128], kind[16], number[48], wanted[32], text[32];
  int count = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    double value;
    if (line[0] == '#') continue;
    assert_int_equal(sscanf(line, "%15s %47s %31[^\n]", kind, number, wanted), 3);
    assert_true(brim_parse_f64(number, &value));
    brim_metric row = {.format = BRIM_METRIC_NUMBER};
    if (strcmp(kind, "bytes") == 0) {
      brim_format_bytes((uint64_t)value, text);
    } else if (strcmp(kind, "ms") == 0) {
      brim_format_figure(value, text);
    } else {
      if (kind[0] == 'p') row.format = BRIM_METRIC_PERCENT;
      if (strcmp(kind, "percent1") == 0) row.digits = 1;
      brim_metric_format_value(&row, value, text);
    }
    if (strcmp(text, wanted) != 0) fail_msg("%s %s: %s, not %s", kind, number, text, wanted);
    count++;
  }
  fclose(file);
  assert_true(count > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shown_values),
      cmocka_unit_test(integers),
      cmocka_unit_test(floats),
      cmocka_unit_test(booleans),
      cmocka_unit_test(byte_sizes),
      cmocka_unit_test(shortest_floats),
      cmocka_unit_test(every_float_reads_back),
      cmocka_unit_test(sizes_for_people),
      cmocka_unit_test(counts_for_people),
      cmocka_unit_test(durations),
      cmocka_unit_test(locale_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
