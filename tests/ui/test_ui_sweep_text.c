// A sweep as plain text: the status, messages and the summary.
#include <math.h>

#include "sweep_screen.h"

//---------------------------------- plain text ----------------------------------

static void test_status(void **unused) {
  (void)unused;
  brim_sweep_view view;
  brim_term plain = {0};
  brim_str out;
  brim_str_init(&out);
  sweep_view_fill(&view, 600, 2);
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "mnist-grid  runs/mnist-grid\n178 of 600 done  8 running  "));
  assert_non_null(strstr(out.data,
                         "52.1 experiments/h  ETA 4 h 10 min  process 4711, running for "
                         "2:13:24\n"));
  assert_non_null(strstr(out.data, "GPU 3 is held by pid 71 (alice)"));
  assert_null(strchr(out.data, '\033'));
  // Order of the parts: running, best results, failures, queue.
  const char *runs = strstr(out.data, "  running "), *best = strstr(out.data, "91.40 %");
  const char *worse = strstr(out.data, "90.20 %"), *failed = strstr(out.data, "  failed  ");
  assert_true(runs && best && worse && failed && runs < best && best < worse && worse < failed);
  assert_true(failed < strstr(out.data, "  queued  "));
  view.counts[BRIM_SWEEP_QUEUED] += 577;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "\n577 more; --all lists every experiment\n"));
  view.counts[BRIM_SWEEP_QUEUED] -= 577;
  brim_str_clear(&out);
  view.pid = 0;
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_int_equal(count_lines(out.data), 3 + 1 + 2 + 1 + 2 + 600);
  assert_null(strstr(out.data, "--all"));
  // Every row begins with the id that cancel, pause, retry and log accept.
  for (size_t i = 0; i < view.row_count; i++) {
    char id[16];
    snprintf(id, sizeof id, "\n%.12s ", view.rows[i].id);
    assert_non_null(strstr(out.data, id));
  }
  assert_non_null(strstr(out.data, "no sweep is running on this store\n"));
  // A column without a text is left out.
  assert_non_null(strstr(out.data, "  ETA"));
  for (size_t i = 0; i < view.row_count; i++) view.rows[i].eta_s = NAN;
  view.eta_s = NAN;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_status(&view, &plain, NULL, &out));
  assert_null(strstr(out.data, "ETA"));
  view.eta_s = 15000;
  brim_str_clear(&out);
  brim_ui_sweep_line(&view, &plain, &out);
  assert_string_equal(out.data,
                      "178 of 600 done  8 running  356 queued  22 failed  23 paused  13 cancelled  "
                      "52.1 experiments/h  ETA 4 h 10 min");
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_status_fits_a_terminal(void **unused) {
  (void)unused;
  char line[FRAME_LINE];
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  sweep_view_fill(&view, 60, 4);
  for (int language = 0; language < 2; language++) {
    korean(language);
    brim_term term = screen_term(80, false);
    brim_str_clear(&out);
    assert_ok(brim_ui_sweep_status(&view, &term, NULL, &out));
    for (int i = 0; i < count_lines(out.data); i++) {
      assert_true(brim_utf8_width(line_of(out.data, i, line)) <= 80);
    }
    assert_non_null(strstr(out.data, "0.1  128        65    1"));
    // The reason of a failure stays longer than its progress when space is short.
    assert_non_null(strstr(out.data, brim_tr("Note")));
    assert_null(strstr(out.data, brim_tr("Epoch")));
    // The result is the last column to go.
    assert_non_null(strstr(out.data, "91.40 %"));
  }
  korean(false);
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_messages(void **unused) {
  (void)unused;
  brim_term plain = {0}, narrow = screen_term(40, false);
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  brim_sweep_view_init(&view);
  brim_sweep_view_say(&view, BRIM_SWEEP_ERROR, NAN, NULL, "it failed\033[2J\nbadly");
  brim_ui_sweep_message(&view.messages[0], &plain, &out);
  assert_string_equal(out.data, "it failed?[2J badly");
  brim_str_clear(&out);
  view.messages[0].when_s = SWEEP_NOW;
  snprintf(view.messages[0].text, 400, "%0200d", 7);
  brim_ui_sweep_message(&view.messages[0], &narrow, &out);
  assert_int_equal(brim_utf8_width(out.data), 40);
  assert_true(out.data[2] == ':' && out.data[5] == ':');
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

//---------------------------------- summary ----------------------------------

static void put_result(brim_sweep_view *view, int i, const char *group, double value,
                       brim_sweep_state state) {
  char id[33], label[64];
  brim_sweep_row row;
  brim_sweep_row_init(&row);
  snprintf(id, sizeof id, "%032d", i);
  snprintf(label, sizeof label, "%s seed=%d", group, i);
  row.id = id;
  row.label = label;
  row.group = row.point = group;
  row.metric_key = "eval_score";
  row.idx = i;
  row.state = state;
  row.metric = value;
  assert_ok(brim_sweep_view_put(view, &row));
}

static void start_summary(brim_sweep_view *view) {
  brim_sweep_view_init(view);
  snprintf(view->title, sizeof view->title, "night");
  view->metric_count = 1;
  view->metrics[0] = (brim_sweep_metric){
      .key = "eval_score", .label = "score", .better = BRIM_BETTER_HIGHER, .digits = 4};
}

static void test_summary_of_seeds(void **unused) {
  (void)unused;
  brim_term plain = {.unicode = true};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  put_result(&view, 0, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 1, "lr=2", 4, BRIM_SWEEP_DONE);
  put_result(&view, 2, "lr=1", 3, BRIM_SWEEP_DONE);
  put_result(&view, 3, "lr=2", 5, BRIM_SWEEP_DONE);
  put_result(&view, 4, "lr=2", 9, BRIM_SWEEP_DONE);
  put_result(&view, 5, "lr=2", 100, BRIM_SWEEP_FAILED);  // without a result
  put_result(&view, 6, "lr=3", INFINITY, BRIM_SWEEP_DONE);
  put_result(&view, 7, "lr=4", 2, BRIM_SWEEP_QUEUED);
  brim_sweep_view_count(&view);
  brim_ui_sweep_summary_options options = {
      .retry = "brim sweep rerun-failed", .resume = "brim sweep g.yaml", .report = "brim report x"};
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  // (4 + 5 + 9) / 3 = 6, sqrt((4 + 1 + 9) / 2) = 2.646; 2 and sqrt(2)
  assert_non_null(strstr(out.data, "6.0 ± 2.6  lr=2  3 of 4 seeds\n"));
  assert_non_null(strstr(out.data, "2.0 ± 1.4  lr=1  2 seeds\n"));
  // A group with a missing result does not rank above a complete one.
  assert_true(strstr(out.data, "lr=2  3 of") > strstr(out.data, "lr=1  2 seeds"));
  assert_non_null(strstr(out.data,
                         "Last score of each run\n           9  lr=2 seed=4  000000000000\n"
                         "           5  lr=2 seed=3  000000000000\n"));
  assert_null(strstr(out.data, "inf"));
  assert_null(strstr(out.data, "100"));
  assert_non_null(strstr(out.data, "continue: brim sweep g.yaml\n"));
  assert_non_null(strstr(out.data, "report: brim report x\n"));
  // A metric that is better when lower reverses the order.
  view.metrics[0].better = BRIM_BETTER_LOWER;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_true(strstr(out.data, "lr=2  3 of") > strstr(out.data, "lr=1  2 seeds"));
  assert_non_null(strstr(out.data, "Last score of each run\n           1  lr=1 seed=0"));
  view.metrics[0].better = BRIM_BETTER_NEITHER;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_null(strstr(out.data, "Last score of"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A grid whose only axis is the seed: its group has the grid's name.
static void test_summary_of_seeds_alone(void **unused) {
  (void)unused;
  brim_term plain = {.unicode = true};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  view.metrics[0].format = BRIM_METRIC_PERCENT;
  view.metrics[0].digits = 1;
  for (int i = 0; i < 2; i++) {
    char id[33], label[32];
    brim_sweep_row row;
    brim_sweep_row_init(&row);
    snprintf(id, sizeof id, "%032d", i);
    snprintf(label, sizeof label, "seed=%d", i);
    row.id = id;
    row.label = label;
    row.group = "g";
    row.metric_key = "eval_score";
    row.state = BRIM_SWEEP_DONE;
    row.metric = 0.8 + 0.1 * i;
    assert_ok(brim_sweep_view_put(&view, &row));
  }
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "85.0 ± 7.1 %  night  2 seeds\n"));
  assert_null(strstr(out.data, "seed=0  2 seeds"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// A grid without axes: its experiment has no label.
static void test_summary_without_labels(void **unused) {
  (void)unused;
  brim_term plain = {.width = 80};
  brim_sweep_view view;
  brim_str out;
  brim_sweep_row row;
  brim_str_init(&out);
  start_summary(&view);
  brim_sweep_row_init(&row);
  row.id = "00000000000000000000000000000001";
  row.state = BRIM_SWEEP_FAILED;
  row.failure = BRIM_FAILURE_DATA;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, "  bad data  1  night  000000000000\n"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

// Last and best values are never in the same list.
static void test_best_values_need_all(void **unused) {
  (void)unused;
  brim_term plain = {0};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  put_result(&view, 0, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 1, "lr=2", 2, BRIM_SWEEP_DONE);
  brim_sweep_row row = view.rows[0];
  row.best = 10;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_sweep_view_count(&view);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_null(strstr(out.data, " 10  "));
  row = view.rows[1];
  row.best = 3;
  assert_ok(brim_sweep_view_put(&view, &row));
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, NULL, &out));
  assert_non_null(strstr(out.data, " 10  lr=1"));
  assert_null(strstr(out.data, "seeds"));  // one seed each
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

static void test_summary_of_failures(void **unused) {
  (void)unused;
  brim_term plain = {0};
  brim_sweep_view view;
  brim_str out;
  brim_str_init(&out);
  start_summary(&view);
  static const struct {
    brim_failure failure;
    double ended;
    const char *message;
  } rows[] = {
      {BRIM_FAILURE_CRASH, 50, "crashed later"},  {BRIM_FAILURE_CRASH, 20, "crashed first"},
      {BRIM_FAILURE_CRASH, NAN, "crashed once"},  {BRIM_FAILURE_OOM_DEVICE, 10, "no room"},
      {BRIM_FAILURE_CRASH, 30, "crashed second"},
  };
  for (int i = 0; i < 5; i++) {
    put_result(&view, i, "lr=1", NAN, BRIM_SWEEP_FAILED);
    brim_sweep_row row = view.rows[i];
    row.failure = rows[i].failure;
    row.ended_s = rows[i].ended;
    row.message = rows[i].message;
    assert_ok(brim_sweep_view_put(&view, &row));
  }
  brim_sweep_view_count(&view);
  brim_ui_sweep_summary_options options = {.retry = "brim sweep rerun-failed --store a",
                                           .resume = "brim sweep g.yaml"};
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data,
                         "  crashed  4  lr=1 seed=1  000000000000\n    crashed first\n"
                         "  OOM  1  lr=1 seed=3  000000000000\n    no room\n"
                         "  fix the cause, then retry them: brim sweep rerun-failed --store a\n"));
  assert_null(strstr(out.data, "continue"));
  assert_null(strstr(out.data, "attempt"));
  // a crash may not happen again
  brim_sweep_row oom = view.rows[3];
  oom.failure = BRIM_FAILURE_CRASH;
  assert_ok(brim_sweep_view_put(&view, &oom));
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data, "  retry them: brim sweep rerun-failed --store a\n"));
  // The morning after: when the sweep ended, what was repeated, what failed.
  sweep_view_gpus(&view, 6);
  put_result(&view, 7, "lr=1", 1, BRIM_SWEEP_DONE);
  put_result(&view, 8, "lr=1", 1, BRIM_SWEEP_DONE);
  brim_sweep_row row = view.rows[5];
  row.attempt = 3;
  assert_ok(brim_sweep_view_put(&view, &row));
  view.now_s = SWEEP_NOW;
  view.started_s = SWEEP_NOW - 65;
  brim_str_clear(&out);
  assert_ok(brim_ui_sweep_summary(&view, &plain, &options, &out));
  assert_non_null(strstr(out.data, "in 1:05  ended at "));
  assert_non_null(strstr(out.data,
                         "\n1 of the done ones took more than one attempt\n"
                         "GPU 5 is out of service: three experiments failed in a row: "
                         "crashed\n"));
  brim_sweep_view_deinit(&view);
  brim_str_deinit(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status),
      cmocka_unit_test(test_status_fits_a_terminal),
      cmocka_unit_test(test_messages),
      cmocka_unit_test(test_summary_of_seeds),
      cmocka_unit_test(test_summary_of_seeds_alone),
      cmocka_unit_test(test_summary_without_labels),
      cmocka_unit_test(test_best_values_need_all),
      cmocka_unit_test(test_summary_of_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
