// Contents of a store besides the queue, on SQLite and on PostgreSQL alike: metrics, logs, lists, events, texts of any
// kind, export.
#include "store_test.h"

#include <math.h>

// --- metrics

typedef struct series {
  struct {
    char key[32];
    int64_t step, attempt;
    double value;
  } rows[600];
  int count;
} series;

static brim_status put_row(void *ctx, const brim_store_metric *m, int64_t attempt) {
  series *s = ctx;
  assert_true(s->count < 600);
  snprintf(s->rows[s->count].key, 32, "%s", m->key);
  s->rows[s->count].step = m->step;
  s->rows[s->count].value = m->value;
  s->rows[s->count++].attempt = attempt;
  return BRIM_OK;
}

static const series *read_series(const char *exp, const char *key) {
  static series s;
  s.count = 0;
  assert_ok(brim_store_read_metrics(store, exp, key, put_row, &s));
  return &s;
}

static void test_metrics_by_key_and_step(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  const double tiny = 4.9406564584124654e-324, third = 1.0 / 3;
  brim_store_metric rows[] = {
      {"loss", 2, 0.5},
      {"loss", 1, 1.5},
      {"acc", 1, third},
      {"z", 0, (double)NAN},
      {"z", 1, (double)INFINITY},
      {"z", 2, -(double)INFINITY},
      {"z", 3, tiny},
      {"z", 4, 1.7976931348623157e308},
      {"loss", 2, 0.25},
  };
  assert_ok(brim_store_metrics(store, &ref, 1, rows, sizeof rows / sizeof *rows));
  const series *s = read_series(ref.exp, NULL);
  assert_int_equal(s->count, 8);
  assert_string_equal(s->rows[0].key, "acc");
  assert_true(s->rows[0].value == third);
  assert_string_equal(s->rows[1].key, "loss");
  assert_int_equal(s->rows[1].step, 1);
  assert_true(s->rows[2].value == 0.25);  // the last value of a batch
  assert_true(isnan(s->rows[3].value));
  assert_true(s->rows[4].value == (double)INFINITY);
  assert_true(s->rows[5].value == -(double)INFINITY);
  assert_true(s->rows[6].value == tiny);
  assert_true(s->rows[7].value == 1.7976931348623157e308);
  brim_store_exp *exp = stored(1);
  assert_true(exp->metric == 0.25);
  brim_store_exp_free(exp);
  s = read_series(ref.exp, "loss");
  assert_int_equal(s->count, 2);
  char id[BRIM_EXP_ID];
  assert_int_equal(read_series(lab_id(2, id), NULL)->count, 0);
}

static void test_batches_may_be_repeated(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_metric first = {"loss", 1, 1}, second = {"loss", 1, 2};
  assert_ok(brim_store_metrics(store, &ref, 1, &first, 1));
  assert_ok(brim_store_metrics(store, &ref, 2, &second, 1));
  assert_ok(brim_store_metrics(store, &ref, 1, &first, 1));  // a late write is ignored
  assert_true(read_series(ref.exp, "loss")->rows[0].value == 2);
  assert_ok(brim_store_metrics(store, &ref, 3, NULL, 0));
  assert_status(brim_store_metrics(store, &ref, 0, &first, 1), BRIM_EINVAL);
  brim_store_metric bad = {"", 1, 1};
  assert_status(brim_store_metrics(store, &ref, 4, &bad, 1), BRIM_EINVAL);
}

static void test_large_batches(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_metric rows[500];
  for (int i = 0; i < 500; i++) rows[i] = (brim_store_metric){i % 2 ? "a" : "b", i / 2, i};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, 500));
  const series *s = read_series(ref.exp, NULL);
  assert_int_equal(s->count, 500);
  for (int i = 0; i < 250; i++) {
    assert_int_equal(s->rows[i].step, i);
    assert_true(s->rows[i].value == 2 * i + 1);
    assert_true(s->rows[250 + i].value == 2 * i);
  }
}

// A killed attempt logged steps after its last checkpoint. If the next attempt never reaches them, they do not belong
// to the result.
static void test_discarded_steps_leave_the_result(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_metric rows[10];
  for (int i = 0; i < 10; i++) rows[i] = (brim_store_metric){"loss", i, 100 + i};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, 10));
  assert_ok(brim_store_checkpoint(store, &ref, 4));
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));

  brim_store_ref next = lab_run(store, 1);
  assert_int_equal(read_series(ref.exp, "loss")->count, 10);  // still shown while the attempt runs
  for (int i = 5; i < 8; i++) rows[i] = (brim_store_metric){"loss", i, 200 + i};
  assert_ok(brim_store_metrics(store, &next, 1, rows + 5, 3));
  lab_finish(store, &next, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  const series *s = read_series(ref.exp, "loss");
  assert_int_equal(s->count, 8);
  for (int i = 0; i < 8; i++) {
    assert_int_equal(s->rows[i].step, i);
    assert_true(s->rows[i].value == (i < 5 ? 100 : 200) + i);
    assert_int_equal(s->rows[i].attempt, i < 5 ? 1 : 2);
  }
}

// --- logs

static void test_log_sizes_only_grow(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  int64_t size;
  assert_ok(brim_store_log_size(store, ref.exp, 1, "stdout", &size));
  assert_int_equal(size, 0);
  assert_ok(brim_store_log(store, &ref, "stdout", 100));
  assert_ok(brim_store_log(store, &ref, "stderr", 7));
  assert_ok(brim_store_log(store, &ref, "stdout", 50));
  assert_ok(brim_store_log_size(store, ref.exp, 1, "stdout", &size));
  assert_int_equal(size, 100);
  assert_ok(brim_store_log(store, &ref, "stdout", INT64_C(5000000000)));
  assert_ok(brim_store_log_size(store, ref.exp, 1, "stdout", &size));
  assert_int_equal(size, INT64_C(5000000000));
  assert_ok(brim_store_log_size(store, ref.exp, 1, "stderr", &size));
  assert_int_equal(size, 7);
  assert_status(brim_store_log(store, &ref, "", 1), BRIM_EINVAL);
  assert_status(brim_store_log(store, &ref, "stdout", -1), BRIM_EINVAL);
}

// --- lists

typedef struct names {
  int ids[64];
  int count, stop_after;
  char config[64];
} names;

static brim_status put_name(void *ctx, const brim_store_exp *exp) {
  names *n = ctx;
  assert_true(n->count < 64);
  n->ids[n->count++] = (int)strtol(exp->id + 24, NULL, 16);
  snprintf(n->config, sizeof n->config, "%s", exp->config);
  return n->stop_after && n->count == n->stop_after ? BRIM_EINTERRUPTED : BRIM_OK;
}

static void assert_list(const brim_store_filter *f, const char *expected) {
  names n = {0};
  char text[256] = "";
  assert_ok(brim_store_list(store, f, put_name, &n));
  for (int i = 0; i < n.count; i++) {
    snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %d" : "%d", n.ids[i]);
  }
  assert_string_equal(text, expected);
}

static void test_lists(void **state) {
  (void)state;
  static const struct {
    const char *tags;
    int64_t priority;
    double metric;
  } rows[] = {{"a", 0, 3}, {"b,ab", 5, 1}, {"a,b", 1, NAN}, {NULL, 0, 2}, {"A", 0, NAN}};
  for (int i = 0; i < 5; i++) {
    char id[BRIM_EXP_ID];
    brim_store_point p = {.id = lab_id(5 - i, id),  // the index decides the order
                          .idx = i,
                          .config = "{\"x\": 1}",
                          .tags = rows[i].tags,
                          .priority = rows[i].priority,
                          .metric_key = "m"};
    brim_store_submitted out;
    assert_ok(brim_store_submit(store, &(brim_store_grid){.id = i < 3 ? "g" : "h"}, &p, 1, &out));
    brim_store_ref ref = lab_run(store, 5 - i);
    brim_store_metric m = {"m", 1, rows[i].metric};
    if (!isnan(rows[i].metric)) assert_ok(brim_store_metrics(store, &ref, 1, &m, 1));
    if (i == 0) lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
    if (i == 1) lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  }
  assert_list(NULL, "5 4 3 2 1");
  assert_list(&(brim_store_filter){.grid = "g"}, "5 4 3");
  assert_list(&(brim_store_filter){.grid = "x"}, "");
  assert_list(&(brim_store_filter){.states = 1u << BRIM_EXP_DONE}, "4");
  assert_list(&(brim_store_filter){.states = 1u << BRIM_EXP_RUNNING | 1u << BRIM_EXP_FAILED},
              "5 3 2 1");
  assert_list(&(brim_store_filter){.states = 1u << 30}, "");
  assert_list(&(brim_store_filter){.tag = "a"}, "5 3");
  assert_list(&(brim_store_filter){.tag = "b"}, "4 3");
  assert_list(&(brim_store_filter){.tag = "A"}, "1");
  assert_list(&(brim_store_filter){.tag = "%"}, "");
  assert_list(&(brim_store_filter){.failure = "nan"}, "5");
  assert_list(&(brim_store_filter){.order = BRIM_STORE_BY_QUEUE}, "4 3 5 2 1");
  assert_list(&(brim_store_filter){.order = BRIM_STORE_BY_METRIC_LOWEST}, "4 2 5 3 1");
  assert_list(&(brim_store_filter){.order = BRIM_STORE_BY_METRIC_HIGHEST}, "5 2 4 3 1");
  assert_list(&(brim_store_filter){.limit = 2}, "5 4");
  assert_list(&(brim_store_filter){.limit = 2, .offset = 3}, "2 1");
  assert_list(&(brim_store_filter){.offset = 4}, "1");
  names n = {0};
  assert_status(brim_store_list(store, &(brim_store_filter){.limit = -1}, put_name, &n),
                BRIM_EINVAL);
}

static void expect_shown(int n, const char *key, double value) {
  char id[BRIM_EXP_ID];
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, lab_id(n, id), &exp));
  assert_string_equal(exp->metric_key, key);
  if (isnan(value)) assert_true(isnan(exp->metric));
  if (!isnan(value)) assert_true(exp->metric == value);
  brim_store_exp_free(exp);
}

// A regression has no accuracy: its result is the best-ranked metric that it has.
static void test_the_metric_is_what_was_recorded(void **state) {
  (void)state;
  static const char names_by_rank[] = "acc acc loss train_loss";
  char id[BRIM_EXP_ID];
  brim_store_submitted out;
  for (int i = 1; i <= 3; i++) {
    brim_store_point p = {
        .id = lab_id(i, id), .idx = i, .config = "a", .metric_key = names_by_rank};
    assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, &p, 1, &out));
  }
  expect_shown(1, "acc", (double)NAN);
  brim_store_ref ref = lab_run(store, 1);
  const brim_store_metric regression[] = {{"loss", 5, 2}, {"train_loss", 5, 3}, {"loss", 9, 1}};
  assert_ok(brim_store_metrics(store, &ref, 1, regression, 3));
  expect_shown(1, "loss", 1);
  const brim_store_metric more[] = {{"train_loss", 10, 0.5}};
  assert_ok(brim_store_metrics(store, &ref, 2, more, 1));
  expect_shown(1, "loss", 1);
  // a training metric comes first, the evaluation later
  ref = lab_run(store, 2);
  const brim_store_metric training[] = {{"train_loss", 1, 3}, {"other", 1, 4}};
  assert_ok(brim_store_metrics(store, &ref, 1, training, 2));
  expect_shown(2, "train_loss", 3);
  const brim_store_metric both[] = {{"train_loss", 2, 2}, {"loss", 2, 4}, {"acc", 2, 0.5}};
  assert_ok(brim_store_metrics(store, &ref, 2, both, 3));
  expect_shown(2, "acc", 0.5);
  ref = lab_run(store, 3);
  const brim_store_metric unknown[] = {{"other", 1, 3}};
  assert_ok(brim_store_metrics(store, &ref, 1, unknown, 1));
  expect_shown(3, "acc", (double)NAN);
}

static void test_list_texts_and_stop(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 40);
  names n = {0};
  assert_ok(brim_store_list(store, &(brim_store_filter){.limit = 1}, put_name, &n));
  assert_string_equal(n.config, "");
  n = (names){0};
  assert_ok(brim_store_list(store, &(brim_store_filter){.texts = true}, put_name, &n));
  assert_string_equal(n.config, "{\"lr\": 0.1}");
  // A callback that stops early ends the list, and the store continues to work.
  n = (names){.stop_after = 3};
  assert_status(brim_store_list(store, NULL, put_name, &n), BRIM_EINTERRUPTED);
  assert_int_equal(n.count, 3);
  lab_run(store, 7);
}

static void test_find_by_beginning(void **state) {
  (void)state;
  static const char *const ids[] = {"abc00000000000000000000000000001",
                                    "abd00000000000000000000000000001",
                                    "abd00000000000000000000000000002"};
  for (int i = 0; i < 3; i++) {
    brim_store_point p = {.id = ids[i], .idx = i, .config = "a"};
    brim_store_submitted out;
    assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, &p, 1, &out));
  }
  char id[BRIM_EXP_ID];
  assert_ok(brim_store_find(store, "abc", id));
  assert_string_equal(id, ids[0]);
  assert_ok(brim_store_find(store, ids[2], id));
  assert_string_equal(id, ids[2]);
  assert_status(brim_store_find(store, "ab", id), BRIM_EINVAL);
  assert_status(brim_store_find(store, "abd", id), BRIM_EINVAL);
  assert_status(brim_store_find(store, "b", id), BRIM_ENOENT);
  assert_status(brim_store_find(store, "", id), BRIM_EINVAL);
  assert_status(brim_store_find(store, "ab_", id), BRIM_EINVAL);
}

// --- texts

static void test_texts_come_back_as_they_were(void **state) {
  (void)state;
  static const char nasty[] =
      "it's \"quoted\"; DROP TABLE exp; -- ?1 $1 @INT %s \\ \n\t 학습률 \U0001F680";
  char id[BRIM_EXP_ID];
  brim_store_point p = {.id = lab_id(1, id), .label = nasty, .config = nasty, .metric_key = "m"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g", .name = nasty, .text = nasty},
                              &p, 1, &out));
  brim_store_ref ref = lab_run(store, 1);
  brim_store_result r = {BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN, 1, nasty, nasty, NULL};
  assert_ok(brim_store_finish(store, &ref, &r, NULL));
  brim_store_exp *exp = stored(1);
  assert_string_equal(exp->label, nasty);
  assert_string_equal(exp->config, nasty);
  assert_string_equal(exp->reason, nasty);
  assert_string_equal(exp->last_lines, nasty);
  brim_store_exp_free(exp);
}

static void test_bytes_that_are_no_text_are_replaced(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_result r = {BRIM_ATTEMPT_ERROR,
                         BRIM_FAILURE_NAN,
                         1,
                         "a\xff\xfe"
                         "b\xe2\x82",
                         "\x80\xed\xa0\x80 ok",
                         NULL};
  assert_ok(brim_store_finish(store, &ref, &r, NULL));
  brim_store_exp *exp = stored(1);
  assert_string_equal(exp->reason,
                      "a\uFFFD\uFFFD"
                      "b\uFFFD\uFFFD");
  assert_string_equal(exp->last_lines, "\uFFFD\uFFFD\uFFFD\uFFFD ok");
  brim_store_exp_free(exp);
}

// --- events

typedef struct seen {
  int64_t last;
  char kinds[512];
  int count;
} seen;

static brim_status put_event(void *ctx, const brim_store_event *e) {
  seen *s = ctx;
  assert_true(e->seq > s->last);
  s->last = e->seq;
  s->count++;
  snprintf(s->kinds + strlen(s->kinds), sizeof s->kinds - strlen(s->kinds), "%s ", e->kind);
  return BRIM_OK;
}

static void test_events_tell_what_happened(void **state) {
  (void)state;
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_beat_reply reply;
  assert_ok(brim_store_beat(store, &ref, NULL, &reply));  // causes no event
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  assert_ok(brim_store_beat(store, &ref, NULL, &reply));
  assert_ok(brim_store_want(store, id, BRIM_WANT_PAUSE));
  lab_finish(store, &ref, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE);
  seen s = {0};
  assert_ok(brim_store_events(store, 0, 0, put_event, &s));
  assert_string_equal(s.kinds, "submitted claimed started expired adopted pause wanted paused ");
  // Reading continues where the last reading ended.
  int64_t last = s.last;
  assert_ok(brim_store_want(store, id, BRIM_WANT_RUN));
  assert_ok(brim_store_want(store, id, BRIM_WANT_RUN));  // already so: no event
  ref = lab_run(store, 1);
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  s = (seen){.last = last};
  assert_ok(brim_store_events(store, last, 0, put_event, &s));
  assert_string_equal(s.kinds, "queued claimed started done ");
  s = (seen){.last = last};
  assert_ok(brim_store_events(store, last, 2, put_event, &s));
  assert_string_equal(s.kinds, "queued claimed ");
}

// A failing call leaves no event, and event numbers have no holes (lab_check).
static void test_refused_calls_leave_no_event(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  seen before = {0}, after = {0};
  assert_ok(brim_store_events(store, 0, 0, put_event, &before));
  assert_status(brim_store_retry(store, ref.exp), BRIM_ESTATE);
  assert_status(brim_store_start(store, &ref, 1, -1), BRIM_ESTATE);
  assert_status(brim_store_set_priority(store, "00000000000000000000000000000099", 1), BRIM_ENOENT);
  assert_ok(brim_store_events(store, 0, 0, put_event, &after));
  assert_int_equal(before.count, after.count);
}

// --- workers, grids, export

static brim_status put_worker(void *ctx, const brim_store_worker *w) {
  snprintf(ctx, 256, "%s %s %s %s %lld %d", w->id, w->host, w->gpus, w->version,
           (long long)w->last_seen, w->drain);
  return BRIM_OK;
}

static brim_status put_grid(void *ctx, const brim_store_grid_row *g) {
  char *out = ctx;
  snprintf(out + strlen(out), 256 - strlen(out), "%s:%s:%lld ", g->grid.id, g->grid.text,
           (long long)g->points);
  return BRIM_OK;
}

static void test_workers_and_grids(void **state) {
  (void)state;
  char text[256] = "";
  brim_store_worker w = {.id = "host-1", .host = "host", .gpus = "0,1", .version = "0.1"};
  assert_ok(brim_store_worker_seen(store, &w));
  lab_clock_ms += 5;
  w.gpus = "0";
  assert_ok(brim_store_worker_seen(store, &w));
  assert_ok(brim_store_drain(store, "host-1", true));
  assert_ok(brim_store_workers(store, put_worker, text));
  assert_string_equal(text, "host-1 host 0 0.1 1000000000005 1");
  lab_submit(store, "g", 1, 3);
  lab_submit(store, "h", 3, 3);
  text[0] = '\0';
  assert_ok(brim_store_grids(store, put_grid, text));
  assert_string_equal(text, "g:lr: [0.1]:3 h:lr: [0.1]:3 ");
}

static brim_status put_line(void *ctx, const char *line) {
  json_t *all = ctx, *value = NULL;
  assert_null(strchr(line, '\n'));
  assert_ok(brim_json_parse(line, strlen(line), "line", &value));
  return brim_json_push(all, value);
}

static void test_export(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 3);
  brim_store_ref ref = lab_run(store, 2);
  brim_store_metric rows[] = {{"loss", 0, 0.5}, {"loss", 1, (double)NAN}};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, 2));
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  brim_json_setup();
  json_t *all = json_array();
  assert_ok(brim_store_export(store, NULL, put_line, all));
  assert_int_equal(json_array_size(all), 3);
  json_t *o = json_array_get(all, 1);
  assert_string_equal(json_string_value(json_object_get(o, "id")), ref.exp);
  assert_string_equal(json_string_value(json_object_get(o, "state")), "done");
  assert_true(json_real_value(json_object_get(json_object_get(o, "config"), "lr")) == 0.1);
  json_t *loss = json_object_get(json_object_get(o, "metrics"), "loss");
  assert_int_equal(json_array_size(loss), 2);
  assert_true(json_real_value(json_array_get(json_array_get(loss, 0), 1)) == 0.5);
  assert_true(json_is_null(json_array_get(json_array_get(loss, 1), 1)));
  json_t *attempts = json_object_get(o, "attempts");
  assert_int_equal(json_array_size(attempts), 1);
  assert_string_equal(json_string_value(json_object_get(json_array_get(attempts, 0), "outcome")),
                      "ok");
  json_array_clear(all);
  assert_ok(brim_store_export(store, &(brim_store_filter){.states = 1u << BRIM_EXP_QUEUED},
                              put_line, all));
  assert_int_equal(json_array_size(all), 2);
  json_decref(all);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_metrics_by_key_and_step),
      TEST(test_batches_may_be_repeated),
      TEST(test_large_batches),
      TEST(test_discarded_steps_leave_the_result),
      TEST(test_log_sizes_only_grow),
      TEST(test_lists),
      TEST(test_the_metric_is_what_was_recorded),
      TEST(test_list_texts_and_stop),
      TEST(test_find_by_beginning),
      TEST(test_texts_come_back_as_they_were),
      TEST(test_bytes_that_are_no_text_are_replaced),
      TEST(test_events_tell_what_happened),
      TEST(test_refused_calls_leave_no_event),
      TEST(test_workers_and_grids),
      TEST(test_export),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
