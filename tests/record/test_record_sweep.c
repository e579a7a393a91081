// The view of a sweep: rows by id, counts, messages, and the same after JSON.
#include "record/record_sweep.h"

#include <math.h>

#include "lab/store/lab_store.h"
#include "test.h"

static brim_sweep_row sample_row(const char *id, brim_sweep_state state) {
  brim_sweep_row row;
  brim_sweep_row_init(&row);
  row.id = id;
  row.label = "lr=0.1 batch_size=64 seed=2";
  row.state = state;
  return row;
}

// Names and order equal the store's, so that callers may cast.
static void test_states_are_the_stores(void **state) {
  (void)state;
  assert_int_equal(BRIM_SWEEP_STATE_COUNT, BRIM_EXP_STATE_COUNT);
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    brim_sweep_state read = BRIM_SWEEP_STATE_COUNT;
    assert_string_equal(brim_sweep_state_name((brim_sweep_state)i),
                        brim_exp_state_name((brim_exp_state)i));
    assert_true(brim_sweep_state_of(brim_sweep_state_name((brim_sweep_state)i), &read));
    assert_int_equal(read, i);
  }
  brim_sweep_state untouched = BRIM_SWEEP_DONE;
  assert_false(brim_sweep_state_of("asleep", &untouched));
  assert_int_equal(untouched, BRIM_SWEEP_DONE);
  assert_int_equal(BRIM_SWEEP_WANT_RUN, BRIM_WANT_RUN);
  assert_int_equal(BRIM_SWEEP_WANT_PAUSE, BRIM_WANT_PAUSE);
  assert_int_equal(BRIM_SWEEP_WANT_CANCEL, BRIM_WANT_CANCEL);
  assert_true(brim_sweep_state_ended(BRIM_SWEEP_FAILED));
  assert_false(brim_sweep_state_ended(BRIM_SWEEP_PAUSED));
}

static void test_rows_are_kept_by_id(void **state) {
  (void)state;
  enum { MANY = 5000 };
  brim_sweep_view view;
  brim_sweep_view_init(&view);
  assert_null(brim_sweep_view_find(&view, "a"));
  char id[33];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MANY; i++) {
      snprintf(id, sizeof id, "%032x", (unsigned)i * 7919u);
      brim_sweep_row row = sample_row(id, round ? BRIM_SWEEP_DONE : BRIM_SWEEP_QUEUED);
      row.idx = i;
      row.label = round ? "second" : "first";
      assert_ok(brim_sweep_view_put(&view, &row));
    }
    assert_int_equal(view.row_count, MANY);
  }
  for (int i = 0; i < MANY; i++) {
    snprintf(id, sizeof id, "%032x", (unsigned)i * 7919u);
    const brim_sweep_row *found = brim_sweep_view_find(&view, id);
    assert_non_null(found);
    assert_int_equal(found->idx, i);
    assert_string_equal(found->label, "second");
    assert_string_equal(found->waiting, "");
  }
  brim_sweep_view_count(&view);
  assert_int_equal(view.counts[BRIM_SWEEP_DONE], MANY);
  assert_int_equal(view.counts[BRIM_SWEEP_QUEUED], 0);
  assert_int_equal(brim_sweep_view_total(&view), MANY);
  // A row of the view itself may be put again.
  brim_sweep_row own = view.rows[17];
  own.state = BRIM_SWEEP_FAILED;
  assert_ok(brim_sweep_view_put(&view, &own));
  assert_int_equal(view.rows[17].state, BRIM_SWEEP_FAILED);
  assert_string_equal(view.rows[17].label, "second");
  brim_sweep_view_clear_rows(&view);
  assert_int_equal(view.row_count, 0);
  assert_null(brim_sweep_view_find(&view, id));
  brim_sweep_row none = sample_row("", BRIM_SWEEP_QUEUED);
  assert_status(brim_sweep_view_put(&view, &none), BRIM_EINVAL);
  brim_sweep_view_deinit(&view);
}

static void test_the_oldest_message_goes(void **state) {
  (void)state;
  brim_sweep_view view;
  brim_sweep_view_init(&view);
  for (int i = 0; i < BRIM_SWEEP_MESSAGES + 5; i++) {
    char text[32];
    snprintf(text, sizeof text, "message %d", i);
    brim_sweep_view_say(&view, BRIM_SWEEP_WARN, i, NULL, text);
  }
  assert_int_equal(view.message_count, BRIM_SWEEP_MESSAGES);
  assert_string_equal(view.messages[0].text, "message 5");
  assert_int_equal(view.messages[0].seq, 6);
  assert_int_equal(view.messages[BRIM_SWEEP_MESSAGES - 1].seq, BRIM_SWEEP_MESSAGES + 5);
  char longer[600];  // Hangul, cut at a character boundary
  for (size_t i = 0; i + 3 < sizeof longer; i += 3) memcpy(longer + i, "가", 4);
  brim_sweep_view_say(&view, BRIM_SWEEP_INFO, 0, "abc", longer);
  const brim_sweep_message *last = &view.messages[BRIM_SWEEP_MESSAGES - 1];
  assert_int_equal(strlen(last->text) % 3, 0);
  assert_true(brim_utf8_valid(last->text, strlen(last->text)));
  assert_string_equal(last->exp, "abc");
  brim_sweep_view_deinit(&view);
}

static void fill(brim_sweep_view *view) {
  brim_sweep_view_init(view);
  strcpy(view->title, "격자 grid");
  strcpy(view->store, "runs/grid");
  view->pid = 4711;
  view->stopping = true;
  view->now_s = 1763370000.5;
  view->eta_s = 3600;
  view->counts[BRIM_SWEEP_FAILED] = 2;
  view->metric_count = 1;
  view->metrics[0] = (brim_sweep_metric){.key = "eval_q",
                                         .label = "q",
                                         .better = BRIM_BETTER_LOWER,
                                         .format = BRIM_METRIC_PERCENT,
                                         .digits = 1};
  view->gpu_count = 1;
  brim_sweep_gpu_init(&view->gpus[0]);
  strcpy(view->gpus[0].name, "GPU 0");
  strcpy(view->gpus[0].why, "held by pid 71");
  view->gpus[0].state = BRIM_SWEEP_GPU_FOREIGN;
  view->gpus[0].memory_total = 8e9;
  brim_sweep_view_say(view, BRIM_SWEEP_ERROR, 12.5, "ab", "it failed");
  brim_sweep_row row = sample_row("00112233445566778899aabbccddeeff", BRIM_SWEEP_FAILED);
  row.failure = BRIM_FAILURE_NAN;
  row.want = BRIM_SWEEP_WANT_PAUSE;
  row.message = "loss is not finite \"at step 7\"";
  row.priority = -3;
  row.step = 0;
  row.steps = 100;
  row.metric = 0.25;
  row.idx = 9;
  assert_ok(brim_sweep_view_put(view, &row));
  row = sample_row("ff", BRIM_SWEEP_QUEUED);
  row.waiting = "GPU 3 is held by pid 71 (alice)";
  assert_ok(brim_sweep_view_put(view, &row));
}

static void test_json_both_ways(void **state) {
  (void)state;
  brim_sweep_view view, back;
  json_t *json = NULL, *again = NULL;
  char *first = NULL, *second = NULL;
  fill(&view);
  assert_ok(brim_sweep_view_to_json(&view, true, &json));
  assert_ok(brim_json_dump(json, 0, &first));
  brim_sweep_view_init(&back);
  assert_ok(brim_sweep_view_from_json(json, &back));
  assert_ok(brim_sweep_view_to_json(&back, true, &again));
  assert_ok(brim_json_dump(again, 0, &second));
  assert_string_equal(first, second);
  assert_string_equal(back.title, "격자 grid");
  assert_true(back.stopping);
  assert_true(isnan(back.done_per_h));
  assert_int_equal(back.counts[BRIM_SWEEP_FAILED], 2);
  assert_int_equal(back.metrics[0].better, BRIM_BETTER_LOWER);
  assert_int_equal(back.metrics[0].format, BRIM_METRIC_PERCENT);
  assert_int_equal(back.metrics[0].digits, 1);
  assert_int_equal(back.gpus[0].state, BRIM_SWEEP_GPU_FOREIGN);
  assert_true(isnan(back.gpus[0].memory_used));
  assert_int_equal(back.messages[0].level, BRIM_SWEEP_ERROR);
  const brim_sweep_row *row = brim_sweep_view_find(&back, "00112233445566778899aabbccddeeff");
  assert_non_null(row);
  assert_int_equal(row->failure, BRIM_FAILURE_NAN);
  assert_int_equal(row->want, BRIM_SWEEP_WANT_PAUSE);
  assert_int_equal(row->state, BRIM_SWEEP_FAILED);
  assert_int_equal(row->priority, -3);
  assert_int_equal(row->step, 0);
  assert_int_equal(row->epoch, -1);
  assert_true(row->metric == 0.25 && isnan(row->best));
  assert_string_equal(row->message, "loss is not finite \"at step 7\"");
  // Rows are small, because a queue of thousands goes over a socket.
  json_t *lean = NULL;
  assert_ok(brim_sweep_row_to_json(brim_sweep_view_find(&back, "ff"), &lean));
  assert_int_equal(json_object_size(lean), 4);  // id, label, waiting, idx
  json_decref(lean);
  json_decref(json);
  json_decref(again);
  brim_free(first);
  brim_free(second);
  brim_sweep_view_deinit(&view);
  brim_sweep_view_deinit(&back);
}

static brim_status read_text(const char *text) {
  brim_sweep_view view;
  json_t *json = NULL;
  brim_sweep_view_init(&view);
  assert_ok(brim_json_parse(text, strlen(text), "test", &json));
  brim_status status = brim_sweep_view_from_json(json, &view);
  json_decref(json);
  brim_sweep_view_deinit(&view);
  return status;
}

#define SCHEMA "\"schema\": \"brim.sweep/1\""

static void test_bad_json(void **state) {
  (void)state;
  assert_status(read_text("[]"), BRIM_EPARSE);
  assert_status(read_text("{}"), BRIM_EPARSE);
  assert_status(read_text("{\"schema\": \"brim.sweep/9\"}"), BRIM_EPARSE);
  assert_ok(read_text("{" SCHEMA "}"));
  assert_ok(read_text("{" SCHEMA ", \"later\": {\"a\": 1}, \"title\": null, \"rows\": null}"));
  assert_status(read_text("{" SCHEMA ", \"title\": 5}"), BRIM_EPARSE);
  assert_status(read_text("{" SCHEMA ", \"rows\": {}}"), BRIM_EPARSE);
  assert_status(read_text("{" SCHEMA ", \"rows\": [7]}"), BRIM_EPARSE);
  assert_status(read_text("{" SCHEMA ", \"rows\": [{\"label\": \"no id\"}]}"), BRIM_EINVAL);
  assert_status(read_text("{" SCHEMA ", \"counts\": {\"done\": \"x\"}}"), BRIM_EPARSE);
  assert_status(read_text("{" SCHEMA ", \"gpus\": [{\"running\": 1.5}]}"), BRIM_EPARSE);
  assert_status(read_text("{" SCHEMA ", \"stopping\": 1}"), BRIM_EPARSE);
}

static void test_names_of_a_later_brim(void **state) {
  (void)state;
  brim_sweep_view view;
  json_t *json = NULL;
  const char text[] = "{\"id\": \"a\", \"state\": \"asleep\", \"failure\": \"tired\"}";
  brim_sweep_view_init(&view);
  assert_ok(brim_json_parse(text, strlen(text), "test", &json));
  assert_ok(brim_sweep_view_put_json(&view, json));
  assert_int_equal(view.rows[0].failure, BRIM_FAILURE_OTHER);
  assert_int_equal(view.rows[0].state, BRIM_SWEEP_QUEUED);
  json_decref(json);
  brim_sweep_view_deinit(&view);
}

static void test_metrics_of_a_workload(void **state) {
  (void)state;
  static const brim_metric rows[] = {
      {.key = "q",
       .label = "quality",
       .eval_label = "val quality",
       .better = BRIM_BETTER_HIGHER,
       .format = BRIM_METRIC_PERCENT,
       .digits = 1,
       .stages = BRIM_METRIC_AT(BRIM_METRIC_TRAIN) | BRIM_METRIC_AT(BRIM_METRIC_EVAL)},
  };
  const brim_metric_set set = {.rows = rows, .count = 1};
  brim_sweep_metric metric;
  assert_true(brim_sweep_metric_of(&set, "eval_q", &metric));
  assert_string_equal(metric.label, "val quality");
  assert_int_equal(metric.better, BRIM_BETTER_HIGHER);
  assert_int_equal(metric.digits, 1);
  assert_true(brim_sweep_metric_of(&set, "train_q", &metric));
  assert_string_equal(metric.label, "quality");
  assert_false(brim_sweep_metric_of(&set, "eval_p", &metric));
  brim_sweep_view view;
  brim_sweep_view_init(&view);
  view.metrics[view.metric_count++] = metric;
  assert_non_null(brim_sweep_view_metric(&view, "train_q"));
  assert_null(brim_sweep_view_metric(&view, "eval_q"));
  brim_sweep_view_deinit(&view);
}

static void test_out_of_memory(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 40; n++) {
    brim_sweep_view view;
    brim_sweep_view_init(&view);
    brim_alloc_fail_nth(n, 0);
    brim_status status = BRIM_OK;
    for (int i = 0; i < 200 && !status; i++) {
      char id[33];
      snprintf(id, sizeof id, "%032d", i % 150);
      brim_sweep_row row = sample_row(id, BRIM_SWEEP_QUEUED);
      status = brim_sweep_view_put(&view, &row);
    }
    brim_alloc_fail_nth(0, 0);
    assert_status(status, BRIM_ENOMEM);
    for (size_t i = 0; i < view.row_count; i++) {
      assert_ptr_equal(brim_sweep_view_find(&view, view.rows[i].id), &view.rows[i]);
    }
    brim_sweep_view_deinit(&view);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_states_are_the_stores),
      cmocka_unit_test(test_rows_are_kept_by_id),
      cmocka_unit_test(test_the_oldest_message_goes),
      cmocka_unit_test(test_json_both_ways),
      cmocka_unit_test(test_bad_json),
      cmocka_unit_test(test_names_of_a_later_brim),
      cmocka_unit_test(test_metrics_of_a_workload),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
