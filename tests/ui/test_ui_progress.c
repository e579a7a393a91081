// Progress lines as exact text, and the times at which they are drawn.
#include <math.h>

#include "test.h"
#include "ui/term/ui_term.h"

enum {
  LINE = BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS),
};
static const brim_metric rows[] = {
    {.key = "loss", .label = "loss", .format = BRIM_METRIC_STEADY, .lines = LINE},
    {.key = "accuracy", .label = "acc", .format = BRIM_METRIC_PERCENT, .lines = LINE},
};
static const brim_metric_set metrics = {.rows = rows, .count = 2};
static double values[BRIM_METRIC_MAX];

static brim_progress sample(void) {
  values[0] = 0.31234;
  values[1] = 0.909;
  brim_progress p = {.title = "epoch 2/10",
                     .done = 145,
                     .total = 234,
                     .elapsed_s = 6,
                     .eta_s = 3.7,
                     .rate = 12345,
                     .unit = "samples",
                     .metrics = &metrics,
                     .values = values};
  p.phase_share[BRIM_PHASE_IO] = 0.03;
  p.phase_share[BRIM_PHASE_FORWARD] = 0.31;
  p.phase_share[BRIM_PHASE_BACKWARD] = 0.58;
  p.phase_share[BRIM_PHASE_OPTIMIZER] = 0.08;
  p.phase_share[BRIM_PHASE_OTHER] = 0.001;
  return p;
}

static void line_is(const brim_term *term, const brim_progress *p, const char *expected) {
  brim_str out;
  brim_str_init(&out);
  brim_ui_progress_line(p, term, &out);
  assert_string_equal(out.data, expected);
  brim_str_deinit(&out);
}

static void test_plain(void **state) {
  (void)state;
  brim_term term = {0};
  brim_progress p = sample();
  line_is(&term, &p,
          "epoch 2/10   61 %  145/234  12,345 samples/s  ETA 3 s  loss 0.3123  acc 90.9 %  "
          "io 3% fwd 31% bwd 58% opt 8%");
  values[0] = values[1] = p.eta_s = p.rate = NAN;
  memset(p.phase_share, 0, sizeof p.phase_share);
  line_is(&term, &p, "epoch 2/10   61 %  145/234");
  p.done = 29;  // 100 x 0.29 is 28.999999999999996
  p.total = 100;
  line_is(&term, &p, "epoch 2/10   29 %  29/100");
  p.done = 145;
  p.total = 0;
  line_is(&term, &p, "epoch 2/10  145 steps");
  p.done = -1;  // without a count
  line_is(&term, &p, "epoch 2/10");
}

static void test_terminal(void **state) {
  (void)state;
  brim_term wide = {.tty = true, .redraw = true, .width = 160, .unicode = true};
  brim_progress p = sample();
  line_is(&wide, &p,
          "epoch 2/10  ━━━━━━━━━━━━━━━━━━────────────   61 %  145/234  12,345 samples/s   "
          "ETA 3 s   loss 0.3123  acc 90.9 %  io 3% fwd 31% bwd 58% opt 8%");
  wide.unicode = false;
  line_is(&wide, &p,
          "epoch 2/10  [#################...........]   61 %  145/234  12,345 samples/s   "
          "ETA 3 s   loss 0.3123  acc 90.9 %  io 3% fwd 31% bwd 58% opt 8%");
  wide.width = 100;
  line_is(&wide, &p,
          "epoch 2/10  [###...]   61 %  12,345 samples/s   ETA 3 s   loss 0.3123  "
          "io 3% fwd 31% bwd 58% opt 8%");
  wide.width = 40;
  line_is(&wide, &p, "epoch 2/10   61 %  loss 0.3123");
}

// Never wider than the terminal, whatever the width: a line that wraps cannot be redrawn.
static void test_every_width(void **state) {
  (void)state;
  brim_progress p = sample();
  p.title = "시험 3/12 batch_size=256";
  for (int unicode = 0; unicode < 2; unicode++) {
    for (int width = 20; width <= 220; width++) {
      brim_term term = {
          .tty = true, .redraw = true, .width = width, .unicode = unicode, .colour = true};
      brim_str out;
      brim_str_init(&out);
      brim_ui_progress_line(&p, &term, &out);
      assert_true(brim_utf8_width(out.data) < width);
      brim_str_deinit(&out);
    }
  }
}

static size_t update(brim_ui_progress *s, const brim_term *term, int64_t ms, brim_str *out) {
  brim_progress p = sample();
  brim_str_clear(out);
  brim_ui_progress_update(s, term, &p, (brim_time){1000000000 + ms * 1000000}, out);
  return out->len;
}

static void test_when_on_a_terminal(void **state) {
  (void)state;
  brim_term term = {.tty = true, .redraw = true, .width = 80};
  brim_ui_progress s;
  brim_str out;
  brim_str_init(&out);
  brim_ui_progress_init(&s);
  assert_true(update(&s, &term, 0, &out) > 0);
  assert_int_equal(strncmp(out.data, "\r\033[2K", 5), 0);
  assert_null(strchr(out.data, '\n'));
  assert_int_equal(update(&s, &term, 50, &out), 0);
  assert_true(update(&s, &term, 120, &out) > 0);
  brim_str_clear(&out);
  brim_ui_progress_clear(&s, &term, &out);
  assert_string_equal(out.data, "\r\033[2K");
  brim_str_clear(&out);
  brim_ui_progress_clear(&s, &term, &out);  // the line is already cleared
  assert_int_equal(out.len, 0);
  brim_str_deinit(&out);
}

static void test_when_elsewhere(void **state) {
  (void)state;
  brim_term term = {0};
  brim_ui_progress s;
  brim_str out;
  brim_str_init(&out);
  brim_ui_progress_init(&s);
  assert_int_equal(update(&s, &term, 0, &out), 0);
  assert_int_equal(update(&s, &term, 9000, &out), 0);
  assert_true(update(&s, &term, 10001, &out) > 0);
  assert_int_equal(out.data[out.len - 1], '\n');
  assert_null(strchr(out.data, '\033'));
  assert_int_equal(update(&s, &term, 15000, &out), 0);
  assert_int_equal(update(&s, &term, 25000, &out), 0);  // the line would not change
  brim_progress p = sample();
  p.title = "another stage";
  brim_str_clear(&out);
  brim_ui_progress_update(&s, &term, &p, (brim_time){41000000000}, &out);
  assert_int_equal(strncmp(out.data, "another stage", 13), 0);
  brim_str_deinit(&out);
}

// The line must not move while its figures change: same parts, same columns.
static void test_the_line_stands_still(void **state) {
  (void)state;
  brim_term term = {.tty = true, .redraw = true, .width = 110, .unicode = false};
  static const double rates[] = {912, 9123, 12345, 123456};  // 123,456 samples/s is the widest
  static const double losses[] = {2.301, 0.3123, 0.05481, 0.0237};
  size_t column = 0;
  for (size_t i = 0; i < 4; i++) {
    brim_progress p = sample();
    p.rate = rates[i];
    values[0] = losses[i];
    p.done = i + 1 < 4 ? 9 : 145;
    brim_str out;
    brim_str_init(&out);
    brim_ui_progress_line(&p, &term, &out);
    const char *at = strstr(out.data, "loss");
    assert_non_null(at);
    if (i == 0) column = (size_t)(at - out.data);
    assert_int_equal(at - out.data, column);
    brim_str_deinit(&out);
  }
}

// Progress of a training in the user's language; its internal title is not shown.
static void test_language(void **state) {
  (void)state;
  const brim_term term = {.width = 200};
  brim_progress p = sample();
  brim_str out;
  brim_str_init(&out);
  p.epoch = 2;
  p.epochs = 10;
  assert_true(brim_msg_set_language("ko"));
  brim_ui_progress_line(&p, &term, &out);
  assert_true(brim_msg_set_language("en"));
  assert_null(strstr(out.data, "epoch"));
  assert_null(strstr(out.data, "samples"));
  brim_str_deinit(&out);
}

// A long line breaks between its parts, and only on a terminal.
static void test_parts(void **state) {
  (void)state;
  static const char line[] = "\033[1mepoch 1/3\033[0m  loss 1.5  val acc 20.50 %  best";
  brim_term term = {.tty = true, .width = 30};
  brim_str out;
  brim_str_init(&out);
  brim_ui_wrap_parts(&out, &term, line, 2);
  assert_string_equal(out.data, "\033[1mepoch 1/3\033[0m  loss 1.5\n  val acc 20.50 %  best");
  brim_str_clear(&out);
  term.tty = false;
  brim_ui_wrap_parts(&out, &term, line, 2);
  assert_string_equal(out.data, line);
  brim_str_deinit(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),
      cmocka_unit_test(test_terminal),
      cmocka_unit_test(test_language),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_the_line_stands_still),
      cmocka_unit_test(test_every_width),
      cmocka_unit_test(test_when_on_a_terminal),
      cmocka_unit_test(test_when_elsewhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
