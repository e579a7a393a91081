// Every call through a link gives the same as a call of the store: in this process, and through the socket of another.
#include "lab_served.h"

#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/wire/lab_wire_link.h"

static lab_place place;
static lab_served served;
static char folder[600];
static bool through_socket;

static int set_up(void) {
  lab_clock_ms = 1000000000000;
  lab_new_place(&place);
  snprintf(folder, sizeof folder, "%s", place.place);
  if (lab_is_postgres()) snprintf(folder, sizeof folder, "folders/%s", place.schema);
  return 0;
}

static int setup_local(void **state) {
  (void)state;
  through_socket = false;
  return set_up();
}

static int setup_socket(void **state) {
  (void)state;
  through_socket = true;
  return set_up();
}

static int teardown(void **state) {
  (void)state;
  if (served.pid) lab_serve_end(&served, SIGTERM);
  return 0;
}

// A link to the place. This process must not have its store open.
static brim_lab_link *open_link(void) {
  brim_store_options o = lab_options(&place);
  brim_lab_link_options options = {.store = &o, .timeout_ms = 60000};
  brim_lab_link *link = NULL;
  if (through_socket && !served.pid) lab_serve(&place, folder, NULL, &served);
  const char *where = through_socket ? folder : place.place;
  assert_ok(brim_lab_link_open(where, &options, &link));
  assert_int_equal(brim_lab_link_to_sweep(link), through_socket);
  return link;
}

// Opens the store itself again, after closing everything that uses it.
static brim_store *direct(brim_lab_link *link) {
  brim_lab_link_close(link);
  if (served.pid) lab_serve_end(&served, SIGTERM);
  return lab_open(&place);
}

static brim_status keep_exp(void *ctx, const brim_store_exp *e) {
  brim_str_printf(ctx, "%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%d|%d|", e->id, e->grid, e->label, e->config,
                  e->tags, e->worker, e->metric_key, e->failure, e->reason, e->last_lines,
                  (int)e->state, (int)e->want);
  const int64_t n[] = {e->idx,     e->priority, e->gpus,       e->need_bytes, e->fence,
                       e->attempt, e->tries,    e->tries_left, e->infra_left, e->not_before,
                       e->step,    e->steps,    e->epoch,      e->epochs,     e->ckpt_step,
                       e->created, e->started,  e->ended,      e->lease_until};
  for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
    brim_str_printf(ctx, "%lld,", (long long)n[i]);
  }
  brim_str_printf(ctx, "%a\n", e->metric);
  return BRIM_OK;
}

static brim_status keep_attempt(void *ctx, const brim_store_attempt *a) {
  brim_str_printf(ctx, "%s|%s|%s|%s|%s|%s|%s|%d|", a->exp, a->claim_id, a->worker, a->host,
                  a->devices, a->failure, a->message, (int)a->outcome);
  brim_str_printf(ctx, "%lld %lld %lld %lld %lld %lld %lld %lld\n", (long long)a->n,
                  (long long)a->fence, (long long)a->pid, (long long)a->from_step,
                  (long long)a->exit_code, (long long)a->claimed, (long long)a->started,
                  (long long)a->ended);
  return BRIM_OK;
}

static brim_status keep_metric(void *ctx, const brim_store_metric *m, int64_t attempt) {
  brim_str_printf(ctx, "%s %lld %a %lld\n", m->key, (long long)m->step, m->value,
                  (long long)attempt);
  return BRIM_OK;
}

static brim_status keep_event(void *ctx, const brim_store_event *e) {
  brim_str_printf(ctx, "%lld %lld %s %s %s\n", (long long)e->seq, (long long)e->t, e->exp, e->kind,
                  e->text);
  return BRIM_OK;
}

static brim_status keep_grid(void *ctx, const brim_store_grid_row *g) {
  brim_str_printf(ctx, "%s %s %s %s %lld %lld\n", g->grid.id, g->grid.name, g->grid.text,
                  g->grid.version, (long long)g->created, (long long)g->points);
  return BRIM_OK;
}

static brim_status keep_worker(void *ctx, const brim_store_worker *w) {
  brim_str_printf(ctx, "%s %s %s %s %lld %d\n", w->id, w->host, w->gpus, w->version,
                  (long long)w->last_seen, w->drain);
  return BRIM_OK;
}

static brim_status keep_line(void *ctx, const char *line) {
  brim_str_printf(ctx, "%s\n", line);
  return BRIM_OK;
}

// Ten experiments in all states, with unusual values in every field.
static void fill(void) {
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 10);
  brim_store_ref ref = lab_run(store, 1);
  const brim_store_metric rows[] = {{"loss", 1, 0.1},
                                    {"loss", 2, (double)NAN},
                                    {"loss", 3, (double)INFINITY},
                                    {"loss", 4, -(double)INFINITY},
                                    {"loss", 5, 4.9406564584124654e-324},
                                    {"\xEC\xA0\x95\xED\x99\x95\xEB\x8F\x84 \"a\\b\"", 7, -0.0},
                                    {"x", 0, 1.7976931348623157e308}};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, sizeof rows / sizeof *rows));
  assert_ok(brim_store_checkpoint(store, &ref, 50));
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  ref = lab_run(store, 2);
  const brim_store_result bad = {.outcome = BRIM_ATTEMPT_ERROR,
                                 .failure = BRIM_FAILURE_NAN,
                                 .exit_code = 1,
                                 .message = "loss is \"nan\"\nat step 3",
                                 .last_lines = "\xff\xfe broken \xEA\xB0 text\n\ttab"};
  assert_ok(brim_store_finish(store, &ref, &bad, NULL));
  lab_run(store, 3);
  char id[BRIM_EXP_ID];
  assert_ok(brim_store_want(store, lab_id(3, id), BRIM_WANT_PAUSE));
  assert_ok(brim_store_want(store, lab_id(4, id), BRIM_WANT_CANCEL));
  assert_ok(brim_store_want(store, lab_id(5, id), BRIM_WANT_PAUSE));
  assert_ok(brim_store_set_priority(store, lab_id(6, id), -7));
  const brim_store_worker worker = {.id = "w1", .host = "h", .gpus = "[]", .version = "1"};
  assert_ok(brim_store_worker_seen(store, &worker));
  assert_ok(brim_store_drain(store, "w1", true));
  brim_store_close(store);
}

static void read_link(brim_lab_link *link, brim_str *out) {
  const brim_store_filter texts = {.texts = true};
  const brim_store_filter some = {.grid = "g",
                                  .states = 1U << BRIM_EXP_QUEUED | 1U << BRIM_EXP_PAUSED,
                                  .order = BRIM_STORE_BY_QUEUE,
                                  .limit = 4,
                                  .offset = 1};
  brim_store_counts counts;
  char id[BRIM_EXP_ID];
  assert_ok(brim_lab_list(link, &texts, keep_exp, out));
  assert_ok(brim_lab_list(link, &some, keep_exp, out));
  assert_ok(brim_lab_list(link, NULL, keep_exp, out));
  for (int i = 1; i <= 3; i++) {
    brim_store_exp *exp = NULL;
    assert_ok(brim_lab_get(link, lab_id(i, id), &exp));
    keep_exp(out, exp);
    brim_store_exp_free(exp);
    assert_ok(brim_lab_attempts(link, id, keep_attempt, out));
    assert_ok(brim_lab_read_metrics(link, id, NULL, 0, keep_metric, out));
    assert_ok(brim_lab_read_metrics(link, id, "loss", 0, keep_metric, out));
  }
  assert_ok(brim_lab_events(link, 0, 0, keep_event, out));
  assert_ok(brim_lab_events(link, 3, 2, keep_event, out));
  assert_ok(brim_lab_grids(link, keep_grid, out));
  assert_ok(brim_lab_workers(link, keep_worker, out));
  assert_ok(brim_lab_export(link, NULL, keep_line, out));
  assert_ok(brim_lab_count(link, "g", &counts));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    brim_str_printf(out, "%lld ", (long long)counts.states[i]);
  }
  brim_str_printf(out, "%lld\n", (long long)counts.total);
  assert_ok(brim_str_status(out));
}

static void read_store(brim_store *store, brim_str *out) {
  const brim_store_filter texts = {.texts = true};
  const brim_store_filter some = {.grid = "g",
                                  .states = 1U << BRIM_EXP_QUEUED | 1U << BRIM_EXP_PAUSED,
                                  .order = BRIM_STORE_BY_QUEUE,
                                  .limit = 4,
                                  .offset = 1};
  brim_store_counts counts;
  char id[BRIM_EXP_ID];
  assert_ok(brim_store_list(store, &texts, keep_exp, out));
  assert_ok(brim_store_list(store, &some, keep_exp, out));
  assert_ok(brim_store_list(store, NULL, keep_exp, out));
  for (int i = 1; i <= 3; i++) {
    brim_store_exp *exp = NULL;
    assert_ok(brim_store_get(store, lab_id(i, id), &exp));
    keep_exp(out, exp);
    brim_store_exp_free(exp);
    assert_ok(brim_store_attempts(store, id, keep_attempt, out));
    assert_ok(brim_store_read_metrics(store, id, NULL, keep_metric, out));
    assert_ok(brim_store_read_metrics(store, id, "loss", keep_metric, out));
  }
  assert_ok(brim_store_events(store, 0, 0, keep_event, out));
  assert_ok(brim_store_events(store, 3, 2, keep_event, out));
  assert_ok(brim_store_grids(store, keep_grid, out));
  assert_ok(brim_store_workers(store, keep_worker, out));
  assert_ok(brim_store_export(store, NULL, keep_line, out));
  assert_ok(brim_store_count(store, "g", &counts));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    brim_str_printf(out, "%lld ", (long long)counts.states[i]);
  }
  brim_str_printf(out, "%lld\n", (long long)counts.total);
}

static void test_reads_are_the_store_s(void **state) {
  (void)state;
  fill();
  brim_str wanted, got;
  brim_str_init(&wanted);
  brim_str_init(&got);
  brim_lab_link *link = open_link();
  read_link(link, &got);
  brim_store *store = direct(link);
  read_store(store, &wanted);
  assert_true(wanted.len > 5000);
  assert_string_equal(got.data, wanted.data);
  brim_store_close(store);
  brim_str_deinit(&got);
  brim_str_deinit(&wanted);
}

// The calls of an executor, from the start to the result.
static void test_an_attempt(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_claim(store, 1);
  brim_store_close(store);

  brim_lab_link *link = open_link();
  assert_ok(brim_lab_start(link, &ref, 77, -1));
  brim_store_beat_reply reply;
  const brim_store_progress progress = {.step = 5, .steps = -1, .epoch = 1, .epochs = -1};
  assert_ok(brim_lab_beat(link, &ref, &progress, &reply));
  assert_int_equal(reply.lease_ms, LAB_LEASE_MS);
  assert_int_equal(reply.want, BRIM_WANT_RUN);
  assert_ok(brim_lab_want(link, "00000000000000000000000000000001", BRIM_WANT_PAUSE));
  assert_ok(brim_lab_beat(link, &ref, NULL, &reply));
  assert_int_equal(reply.want, BRIM_WANT_PAUSE);
  const brim_store_metric rows[] = {{"loss", 1, 0.5}, {"loss", 2, (double)NAN}};
  assert_ok(brim_lab_metrics(link, &ref, 1, rows, 2));
  assert_ok(brim_lab_metrics(link, &ref, 1, rows, 2));
  assert_ok(brim_lab_metrics(link, &ref, 2, NULL, 0));
  assert_ok(brim_lab_log(link, &ref, "out", 123));
  assert_ok(brim_lab_checkpoint(link, &ref, 4));
  int64_t size = 0;
  assert_ok(brim_lab_log_size(link, ref.exp, ref.attempt, "out", &size));
  assert_int_equal(size, 123);
  brim_exp_state became = BRIM_EXP_QUEUED;
  const brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
  assert_ok(brim_lab_finish(link, &ref, &ok, &became));
  assert_int_equal(became, BRIM_EXP_DONE);
  assert_ok(brim_lab_finish(link, &ref, &ok, NULL));
  // Stale writes and wrong arguments come back as the store's own failures.
  brim_store_ref stale = ref;
  stale.fence++;
  assert_status(brim_lab_beat(link, &stale, NULL, &reply), BRIM_ESTATE);
  assert_true(strlen(brim_status_detail()) > 10);
  stale = ref;
  stale.exp[0] = 'f';
  assert_status(brim_lab_checkpoint(link, &stale, 1), BRIM_ENOENT);
  assert_status(brim_lab_metrics(link, &ref, 0, rows, 1), BRIM_EINVAL);
  const brim_store_result open = {.outcome = BRIM_ATTEMPT_OPEN};
  assert_status(brim_lab_finish(link, &ref, &open, NULL), BRIM_EINVAL);

  store = direct(link);
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, ref.exp, &exp));
  assert_int_equal(exp->state, BRIM_EXP_DONE);
  assert_int_equal(exp->step, 5);
  assert_int_equal(exp->ckpt_step, 4);
  brim_store_exp_free(exp);
  lab_check(store);
  brim_store_close(store);
}

static void test_what_users_ask(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 0x10, 2);
  for (int i = 0x10; i < 0x12; i++) {
    brim_store_ref ref = lab_run(store, i);
    lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
  }
  brim_store_close(store);
  brim_lab_link *link = open_link();
  char id[BRIM_EXP_ID], found[BRIM_EXP_ID];
  lab_id(0x11, id);
  assert_ok(brim_lab_find(link, id, found));
  assert_string_equal(found, id);
  assert_status(brim_lab_find(link, "000000000000000000000000000000", found), BRIM_EINVAL);
  assert_status(brim_lab_find(link, "f", found), BRIM_ENOENT);
  assert_ok(brim_lab_retry(link, id));
  int64_t count = 0;
  assert_ok(brim_lab_retry_failed(link, "g", &count));
  assert_int_equal(count, 1);
  assert_ok(brim_lab_retry_failed(link, NULL, NULL));
  assert_ok(brim_lab_set_priority(link, id, 9));
  assert_status(brim_lab_want(link, id, BRIM_WANT_COUNT), BRIM_EINVAL);
  assert_ok(brim_lab_want(link, id, BRIM_WANT_CANCEL));
  assert_ok(brim_lab_want(link, id, BRIM_WANT_CANCEL));
  assert_status(brim_lab_want(link, id, BRIM_WANT_PAUSE), BRIM_ESTATE);

  store = direct(link);
  assert_int_equal(lab_state(store, 0x10), BRIM_EXP_QUEUED);
  assert_int_equal(lab_state(store, 0x11), BRIM_EXP_CANCELLED);
  lab_check(store);
  brim_store_close(store);
}

// A change of many experiments leaves out those whose state does not allow it, and no others.
static void test_changing_many(void **state) {
  (void)state;
  enum { MANY = 450 };
  static char ids[MANY][BRIM_EXP_ID];
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, MANY);
  for (int i = 0; i < MANY; i++) lab_id(i + 1, ids[i]);
  brim_store_ref ref = lab_run(store, 1);
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  ref = lab_run(store, 2);
  brim_store_close(store);
  brim_lab_link *link = open_link();
  const char(*all)[BRIM_EXP_ID] = (const char(*)[BRIM_EXP_ID])ids;
  int64_t count = 0;
  assert_ok(brim_lab_want_each(link, all, MANY, BRIM_WANT_CANCEL, &count));
  assert_int_equal(count, MANY - 1);  // one of them is done
  assert_ok(brim_lab_want_each(link, all, MANY, BRIM_WANT_CANCEL, &count));
  assert_int_equal(count, MANY - 1);  // repeating it is fine
  brim_store_beat_reply reply;
  assert_ok(brim_lab_beat(link, &ref, NULL, &reply));
  assert_int_equal(reply.want, BRIM_WANT_CANCEL);
  assert_ok(brim_lab_retry_each(link, all + 10, MANY - 10, &count));
  assert_int_equal(count, MANY - 10);
  assert_ok(brim_lab_retry_each(link, all, 0, &count));
  assert_int_equal(count, 0);
  assert_ok(brim_lab_want_each(link, all, MANY, BRIM_WANT_PAUSE, NULL));
  char unknown[2][BRIM_EXP_ID];
  lab_id(11, unknown[0]);
  lab_id(9999, unknown[1]);
  assert_status(
      brim_lab_want_each(link, (const char(*)[BRIM_EXP_ID])unknown, 2, BRIM_WANT_RUN, &count),
      BRIM_ENOENT);
  assert_status(brim_lab_want_each(link, all, 1, BRIM_WANT_COUNT, &count), BRIM_EINVAL);
  store = direct(link);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_DONE);
  assert_int_equal(lab_state(store, 2), BRIM_EXP_RUNNING);
  assert_int_equal(lab_state(store, 3), BRIM_EXP_CANCELLED);
  // all or none of one portion of experiments
  assert_int_equal(lab_state(store, 11), BRIM_EXP_PAUSED);
  assert_int_equal(lab_state(store, MANY), BRIM_EXP_PAUSED);
  assert_status(brim_store_want_each(store, all, BRIM_STORE_EACH + 1, BRIM_WANT_RUN, NULL),
                BRIM_EINVAL);
  lab_check(store);
  brim_store_close(store);
}

static void test_submitting(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 1);
  brim_store_close(store);
  brim_lab_link *link = open_link();
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  const brim_store_point points[] = {{.id = id, .config = "{}"},
                                     {.id = "0123456789abcdef0123456789abcdef",
                                      .idx = 1,
                                      .label = "a=1",
                                      .config = "{\"a\": 1}",
                                      .tags = "x,y",
                                      .priority = 3,
                                      .gpus = 2,
                                      .need_bytes = 5,
                                      .tries = 1,
                                      .steps = 10,
                                      .epochs = 2}};
  brim_store_submitted out;
  const brim_store_grid grid = {.id = "h", .name = "n", .text = "a: [1]", .version = "v"};
  assert_ok(brim_lab_submit(link, &grid, points, 2, &out));
  assert_int_equal(out.added, 1);
  assert_int_equal(out.existing, 1);
  const brim_store_point wrong = {.id = "x", .config = "{}"};
  assert_status(brim_lab_submit(link, &grid, &wrong, 1, &out), BRIM_EINVAL);

  store = direct(link);
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, points[1].id, &exp));
  assert_string_equal(exp->label, "a=1");
  assert_string_equal(exp->tags, "x,y");
  assert_int_equal(exp->gpus, 2);
  assert_int_equal(exp->priority, 3);
  assert_int_equal(exp->epochs, 2);
  brim_store_exp_free(exp);
  lab_check(store);
  brim_store_close(store);
}

static brim_status count_metric(void *ctx, const brim_store_metric *m, int64_t attempt) {
  (void)attempt;
  int64_t *seen = ctx;
  seen[0]++;
  seen[1] = m->step;
  return BRIM_OK;
}

// Long replies come in pieces, and curves can be thinned.
static void test_long_replies(void **state) {
  (void)state;
  enum { ROWS = 20000 };
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 1500);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_metric *rows = calloc(ROWS, sizeof *rows);
  assert_non_null(rows);
  for (int i = 0; i < ROWS; i++) rows[i] = (brim_store_metric){"loss", i, i * 0.1};
  assert_ok(brim_store_metrics(store, &ref, 1, rows, ROWS));
  free(rows);
  brim_store_close(store);
  brim_lab_link *link = open_link();
  int64_t seen[2] = {0};
  assert_ok(brim_lab_read_metrics(link, ref.exp, NULL, 0, count_metric, seen));
  assert_int_equal(seen[0], ROWS);
  memset(seen, 0, sizeof seen);
  assert_ok(brim_lab_read_metrics(link, ref.exp, "loss", 100, count_metric, seen));
  assert_int_equal(seen[0], 100);
  assert_int_equal(seen[1], ROWS - 1);
  brim_str got, wanted;
  brim_str_init(&got);
  brim_str_init(&wanted);
  assert_ok(brim_lab_list(link, &(brim_store_filter){.texts = true}, keep_exp, &got));
  assert_ok(brim_lab_events(link, 0, 0, keep_event, &got));
  store = direct(link);
  assert_ok(brim_store_list(store, &(brim_store_filter){.texts = true}, keep_exp, &wanted));
  assert_ok(brim_store_events(store, 0, 0, keep_event, &wanted));
  assert_string_equal(got.data, wanted.data);
  brim_str_deinit(&got);
  brim_str_deinit(&wanted);
  brim_store_close(store);
}

static brim_status stop_at_once(void *ctx, const brim_store_exp *exp) {
  (void)exp;
  ++*(int *)ctx;
  return BRIM_EINTERRUPTED;
}

// A reader that stops early leaves the link usable.
static void test_stopping_a_reply(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 1000);
  brim_store_close(store);
  brim_lab_link *link = open_link();
  int calls = 0;
  assert_status(brim_lab_list(link, NULL, stop_at_once, &calls), BRIM_EINTERRUPTED);
  assert_int_equal(calls, 1);
  brim_store_counts counts;
  assert_ok(brim_lab_count(link, NULL, &counts));
  assert_int_equal(counts.total, 1000);
  brim_lab_link_close(link);
}

// --- finding the sweep

static void test_executors_never_open_sqlite(void **state) {
  (void)state;
  brim_store_close(lab_open(&place));
  const brim_lab_link_options options = {.sweep_only = true};
  brim_lab_link *link = NULL;
  assert_status(brim_lab_link_open(folder, &options, &link), BRIM_EIO);
  assert_null(link);
  assert_false(brim_lab_sweep_runs(folder, NULL));
}

static void test_a_sweep_that_restarts(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_claim(store, 1);
  brim_store_close(store);
  lab_serve(&place, folder, NULL, &served);
  int64_t pid = 0;
  assert_true(brim_lab_sweep_runs(folder, &pid));
  assert_int_equal(pid, served.pid);
  const brim_lab_link_options options = {.sweep_only = true, .timeout_ms = 60000};
  brim_lab_link *link = NULL;
  assert_ok(brim_lab_link_open(folder, &options, &link));
  assert_ok(brim_lab_start(link, &ref, 77, -1));
  for (int i = 0; i < 2; i++) {
    lab_serve_end(&served, i ? SIGTERM : SIGKILL);
    assert_false(brim_lab_sweep_runs(folder, NULL));
    brim_store_beat_reply reply;
    assert_status(brim_lab_beat(link, &ref, NULL, &reply), BRIM_EIO);
    assert_status(brim_lab_beat(link, &ref, NULL, &reply), BRIM_EIO);
    lab_serve(&place, folder, NULL, &served);
    assert_ok(brim_lab_beat(link, &ref, NULL, &reply));
  }
  brim_lab_link_close(link);
}

// When the sweep has ended, a command's link opens the store; when one has begun, it finds that sweep.
static void test_a_command_goes_where_the_store_is(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 2);
  brim_store_close(store);
  lab_serve(&place, folder, NULL, &served);
  brim_lab_link *link = open_link();
  brim_store_counts counts;
  assert_ok(brim_lab_count(link, NULL, &counts));
  assert_true(brim_lab_link_to_sweep(link));
  lab_serve_end(&served, SIGKILL);
  assert_status(brim_lab_count(link, NULL, &counts), BRIM_EIO);
  brim_status status = brim_lab_count(link, NULL, &counts);
  if (lab_is_postgres()) {
    assert_status(status, BRIM_ENOENT);  // the folder of a PostgreSQL sweep has no store
  } else {
    assert_ok(status);
    assert_false(brim_lab_link_to_sweep(link));
  }
  brim_lab_link_close(link);
}

static void test_places_without_a_store(void **state) {
  (void)state;
  brim_lab_link *link = NULL;
  const brim_lab_link_options options = {.readonly = true};
  assert_status(brim_lab_link_open("nowhere", &options, &link), BRIM_ENOENT);
  assert_status(brim_lab_link_open("nowhere", NULL, &link), BRIM_ENOENT);
  assert_false(brim_fs_exists("nowhere"));  // a link never makes a store
}

// A file that is not a sweep.json, or that names no socket, does not count as a running sweep.
static void test_other_sweep_files(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "{",
                                      "[]",
                                      "{\"socket\": 7}",
                                      "{\"socket\": \"\", \"pid\": 1}",
                                      "{\"socket\": \"/nowhere/x.sock\", \"pid\": 1}",
                                      "{\"socket\": \"/dev/null\"}"};
  char file[700], long_path[400];
  assert_ok(brim_fs_mkdirs(folder));
  snprintf(file, sizeof file, "%s/" BRIM_LAB_SWEEP_FILE, folder);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_ok(brim_fs_write(file, texts[i], strlen(texts[i])));
    assert_false(brim_lab_sweep_runs(folder, NULL));
  }
  memset(long_path, 'x', sizeof long_path);
  int n = snprintf(long_path, sizeof long_path, "{\"socket\": \"%0300d\"}", 1);
  assert_ok(brim_fs_write(file, long_path, (size_t)n));
  assert_false(brim_lab_sweep_runs(folder, NULL));
  assert_ok(brim_fs_remove(file));
  assert_int_equal(mkdir(file, 0700), 0);
  assert_false(brim_lab_sweep_runs(folder, NULL));
}

#define BOTH(name)                                              \
  cmocka_unit_test_setup_teardown(name, setup_local, teardown), \
      cmocka_unit_test_setup_teardown(name, setup_socket, teardown)
#define SOCKET(name) cmocka_unit_test_setup_teardown(name, setup_socket, teardown)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  test_filter();
  const struct CMUnitTest tests[] = {
      BOTH(test_reads_are_the_store_s),
      BOTH(test_an_attempt),
      BOTH(test_what_users_ask),
      BOTH(test_changing_many),
      BOTH(test_submitting),
      BOTH(test_long_replies),
      BOTH(test_stopping_a_reply),
      SOCKET(test_executors_never_open_sqlite),
      SOCKET(test_a_sweep_that_restarts),
      SOCKET(test_a_command_goes_where_the_store_is),
      SOCKET(test_places_without_a_store),
      SOCKET(test_other_sweep_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
