// The dry run of a sweep: the sums of a forecast, and its table in wide and narrow terminals.
#include <math.h>

#include "base/base.h"
#include "test.h"
#include "ui/sweep/ui_sweep.h"

#define GB 1073741824.0

static const brim_forecast_need fits = {.bytes = 2 * GB, .message = "", .run_s = 3600},
                                small = {.bytes = GB, .message = "", .run_s = 60},
                                adapts = {.bytes = 90 * GB,
                                          .failure = BRIM_FAILURE_OOM_PLANNED,
                                          .adapts = true,
                                          .message = "needs 90 GiB",
                                          .run_s = NAN},
                                large = {.bytes = 90 * GB,
                                         .failure = BRIM_FAILURE_OOM_PLANNED,
                                         .message = "needs 90 GiB",
                                         .run_s = NAN},
                                wrong = {.bytes = NAN,
                                         .failure = BRIM_FAILURE_BAD_CONFIG,
                                         .message = "no such file",
                                         .run_s = NAN};

static void sums(void **state) {
  (void)state;
  const brim_forecast_need needs[][2] = {{fits, small},  {fits, large},  {large, adapts},
                                         {large, large}, {wrong, wrong}, {fits, fits}};
  brim_forecast_row rows[6];
  for (size_t i = 0; i < 6; i++) {
    rows[i] = (brim_forecast_row){.id = "0123456789abcdef", .label = "lr=1", .needs = needs[i]};
  }
  rows[1].state = "running";
  rows[5].state = "done";
  const brim_forecast f = {.device_count = 2, .rows = rows, .row_count = 6, .slots = 3};
  brim_forecast_sums s;
  brim_forecast_sum(&f, &s);
  assert_int_equal(s.fresh, 4);
  assert_int_equal(s.known, 2);
  assert_int_equal(s.done, 1);
  assert_int_equal(s.to_run, 3);
  assert_int_equal(s.adapt, 1);
  assert_int_equal(s.stuck, 2);
  assert_int_equal(s.timeless, 1);
  assert_true(s.most_bytes == 2 * GB);
  assert_true(s.run_s == 3660 && isnan(s.wall_s));
  assert_ptr_equal(brim_forecast_best(&f, &rows[0]), &needs[0][1]);  // the faster one
  assert_ptr_equal(brim_forecast_best(&f, &rows[1]), &needs[1][0]);  // the one that fits
  assert_null(brim_forecast_best(&f, &rows[3]));
  const brim_forecast two = {.device_count = 2, .rows = rows, .row_count = 2, .slots = 3};
  brim_forecast_sum(&two, &s);
  assert_true(s.wall_s == 1220);
  const brim_forecast none = {.device_count = 2, .slots = 0};
  brim_forecast_sum(&none, &s);
  assert_true(isnan(s.most_bytes) && s.wall_s == 0);
}

static void show(const brim_forecast *f, int width, brim_str *out) {
  const brim_term term = {.width = width};
  brim_str_init(out);
  assert_ok(brim_ui_forecast(&term, f, out));
}

static void has(const brim_str *text, const char *words) {
  if (!strstr(text->data, words)) fail_msg("no '%s' in:\n%s", words, text->data);
}

static void one_kind_of_device(void **state) {
  (void)state;
  const brim_forecast_need needs[] = {fits, large, adapts, large, wrong};
  static const char *const labels[] = {"lr=0.1", "lr=0.2", "lr=0.3", "lr=0.4", ""};
  brim_forecast_row rows[5];
  for (size_t i = 0; i < 5; i++) {
    rows[i] = (brim_forecast_row){.id = "0123456789abcdef0123456789abcdef",
                                  .label = labels[i],
                                  .steps = i == 4 ? (double)NAN : 12345,
                                  .needs = &needs[i]};
  }
  const brim_forecast f = {.device_count = 1,
                           .devices = {{"cuda:0", "NVIDIA H200", 4, 140 * GB}},
                           .rows = rows,
                           .row_count = 5,
                           .slots = 4};
  brim_str text;
  show(&f, 100, &text);
  has(&text, "0123456789ab  lr=0.1");
  has(&text, "2.0 GiB  12,345  1 h 00 min  new");
  has(&text, "90.0 GiB (too large)");
  has(&text, "90.0 GiB (adapts)");
  has(&text, "on NVIDIA H200 (experiments: 3, first: 0123456789ab): needs 90 GiB");
  has(&text, "(experiments: 1, first: 0123456789ab): no such file");
  has(&text, "4 x NVIDIA H200, 140.0 GiB");
  has(&text, "up to 2.0 GiB");
  has(&text, "cannot run   3\n");
  has(&text, "adapts       1, ");
  has(&text, "unknown for 1 of 2 experiments");
  has(&text, "nothing was submitted");
  brim_str_deinit(&text);
  for (int width = 20; width <= 200; width += 13) {
    show(&f, width, &text);
    char *save = NULL;
    for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
      const bool of_table = strstr(line, "GiB") && !strstr(line, "H200") && !strstr(line, "memory");
      if (of_table && brim_utf8_width(line) > width) fail_msg("%d columns: %s", width, line);
    }
    brim_str_deinit(&text);
  }
}

static void several_kinds(void **state) {
  (void)state;
  const brim_forecast_need needs[] = {small, large};
  const brim_forecast_row row = {
      .id = "0123456789abcdef", .label = "", .state = "queued", .steps = 1, .needs = needs};
  const brim_forecast f = {
      .device_count = 2,
      .devices = {{"cuda:0", "NVIDIA H200", 2, 140 * GB}, {"cuda:2", "NVIDIA A2", 1, 16 * GB}},
      .rows = &row,
      .row_count = 1,
      .slots = 1};
  brim_str text;
  show(&f, 0, &text);
  has(&text, "NVIDIA H200             NVIDIA A2");
  has(&text, "    1.0 GiB  90.0 GiB (too large)");
  has(&text, "2 x NVIDIA H200");
  has(&text, "1 x NVIDIA A2");
  has(&text, "about 1 min 00 s, one experiment after the other");
  has(&text, "queued");
  brim_str_deinit(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums),
      cmocka_unit_test(one_kind_of_device),
      cmocka_unit_test(several_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
