// The built-in catalogues: every message of the list is there, every pair takes the same arguments, the table is in the
// order that the search needs; and the language that a locale selects.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "test.h"

enum { MAX_ARGS = 16 };

// The conversions of a format by argument: args[n] is "lld" for the nth. Returns how many, -1 if only some of them use
// positions, or positions repeat or have a gap. `percents` counts "%%".
static int conversions(const char *text, char args[MAX_ARGS][16], int *percents) {
  int count = 0, placed = 0;
  bool used[MAX_ARGS] = {false};
  *percents = 0;
  for (const char *p = text; (p = strchr(p, '%')); p++) {
    const char *q = p + 1;
    if (*q == '%') {
      (*percents)++;
      p = q;
      continue;
    }
    int at = count;
    char *end;
    long n = strtol(q, &end, 10);
    if (end != q && *end == '$') {
      at = (int)n - 1;
      placed++;
      q = end + 1;
    }
    const char *start = q;
    q += strspn(q, "-+#0'");
    q += strspn(q, "0123456789*");
    if (*q == '.') q += 1 + strspn(q + 1, "0123456789*");
    q += strspn(q, "hlzjtL");
    if (!*q || !strchr("diouxXeEfFgGaAcsp", *q)) continue;  // a single percent sign
    if (at < 0 || at >= MAX_ARGS || used[at] || q - start > 14) return -1;
    used[at] = true;
    memcpy(args[at], start, (size_t)(q - start + 1));
    args[at][q - start + 1] = '\0';
    count++;
    p = q;
  }
  if (placed && placed != count) return -1;
  for (int i = 0; i < count; i++) {
    if (!used[i]) return -1;
  }
  return count;
}

static void every_pair_takes_the_same_arguments(void **state) {
  (void)state;
  const brim_msg_catalogue *ko = brim_msg_catalogue_of("ko");
  assert_non_null(ko);
  for (int i = 0; i < ko->count; i++) {
    const char *english = ko->pairs[i].english, *korean = ko->pairs[i].translated;
    char a[MAX_ARGS][16], b[MAX_ARGS][16];
    int percents_a, percents_b;
    int n = conversions(english, a, &percents_a), k = conversions(korean, b, &percents_b);
    if (n < 0 || n != k) fail_msg("%d and %d conversions:\n%s\n%s", n, k, english, korean);
    for (int c = 0; c < n; c++) {
      if (strcmp(a[c], b[c]) != 0) fail_msg("%%%s and %%%s:\n%s\n%s", a[c], b[c], english, korean);
    }
    if (!percents_a && n == 0 && percents_b) fail_msg("not a format: %s", korean);
    assert_true(brim_utf8_valid(korean, strlen(korean)));
    assert_true(korean[0] != '\0');
  }
}

static void the_table_is_sorted(void **state) {
  (void)state;
  const brim_msg_catalogue *ko = brim_msg_catalogue_of("ko");
  for (int i = 1; i < ko->count; i++) {
    if (strcmp(ko->pairs[i - 1].english, ko->pairs[i].english) >= 0) {
      fail_msg("out of order: %s", ko->pairs[i].english);
    }
  }
}

static void a_language_is_chosen(void **state) {
  (void)state;
  assert_true(brim_msg_set_language("ko"));
  assert_string_equal(brim_tr("warning"), "경고");
  assert_string_equal(brim_tr("en"), "ko");
  brim_fail(BRIM_EIO, "cannot open %s: %s", "a", brim_errno_text(2));
  assert_string_equal(brim_status_detail(), "a: 열 수 없습니다: 그런 파일이나 폴더가 없음");
  assert_false(brim_msg_set_language("tlh"));
  assert_string_equal(brim_tr("warning"), "경고");
  assert_true(brim_msg_set_language("en"));
  assert_string_equal(brim_tr("warning"), "warning");
}

// Arguments in another order appear at their own places.
static void arguments_may_change_places(void **state) {
  (void)state;
  assert_true(brim_msg_set_language("ko"));
  char text[128];
  snprintf(text, sizeof text, brim_tr("%s in %s"), "one", "two");
  assert_string_equal(text, "two의 one");
  assert_true(brim_msg_set_language("en"));
}

static void locales(void **state) {
  (void)state;
  static const struct {
    const char *all, *messages, *lang, *expected;
  } cases[] = {
      {NULL, NULL, NULL, "en"},
      {NULL, NULL, "ko_KR.UTF-8", "ko"},
      {"", "", "ko_KR.utf8", "ko"},
      {NULL, "ko", "en_US.UTF-8", "ko"},
      {"C.UTF-8", "ko_KR.UTF-8", "ko_KR.UTF-8", "en"},
      {"ko_KR.UTF-8", "en_US.UTF-8", NULL, "ko"},
      {NULL, NULL, "ko_KR", "ko"},
      {NULL, NULL, "ko_KR.UTF-8@x", "ko"},
      {NULL, NULL, "ko@x", "ko"},
      {NULL, NULL, "ko_KR.eucKR", "en"},
      {NULL, NULL, "kok_IN.UTF-8", "en"},
      {NULL, NULL, "POSIX", "en"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_string_equal(brim_msg_language_of(cases[i].all, cases[i].messages, cases[i].lang),
                        cases[i].expected);
  }
}

static void split_sequences_are_cut_off(void **state) {
  (void)state;
  char text[] = "a한글한";
  text[8] = '\0';  // two, and the first byte of a third
  assert_false(brim_utf8_valid(text, strlen(text)));
  brim_utf8_trim(text);
  assert_string_equal(text, "a한글");
  char whole[] = "한";
  brim_utf8_trim(whole);
  assert_string_equal(whole, "한");
  char empty[] = "";
  brim_utf8_trim(empty);
  assert_string_equal(empty, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pair_takes_the_same_arguments),
      cmocka_unit_test(the_table_is_sorted),
      cmocka_unit_test(a_language_is_chosen),
      cmocka_unit_test(arguments_may_change_places),
      cmocka_unit_test(locales),
      cmocka_unit_test(split_sequences_are_cut_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
