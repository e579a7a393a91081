// Changes of several callers in one transaction: in the store, and in simultaneous requests to a server.
#include "store_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/http/lab_http_client.h"
#include "lab/pool/lab_pool.h"

static brim_status add_value(void *ctx, const brim_store_metric *row, int64_t attempt) {
  (void)attempt;
  *(double *)ctx += row->value;
  return BRIM_OK;
}

static double sum_of(const brim_store_ref *ref) {
  double sum = 0;
  assert_ok(brim_store_read_metrics(store, ref->exp, NULL, add_value, &sum));
  return sum;
}

static brim_status log_value(const brim_store_ref *ref, int64_t seq, double value) {
  const brim_store_metric row = {"loss", seq, value};
  return brim_store_metrics(store, ref, seq, &row, 1);
}

static brim_status count_event(void *ctx, const brim_store_event *e) {
  int64_t *last = ctx;
  assert_true(e->seq > *last);
  *last = e->seq;
  return BRIM_OK;
}

// A refused change leaves nothing, and the others of its group stay.
static void test_one_fails(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 3);
  brim_store_ref first = lab_run(store, 1), second = lab_run(store, 2), stale = second;
  brim_store_beat_reply reply;
  stale.fence--;
  assert_ok(brim_store_group_begin(store));
  assert_ok(log_value(&first, 1, 1));
  assert_status(log_value(&stale, 1, 10), BRIM_ESTATE);
  const brim_store_metric wrong[] = {{"loss", 5, 100}, {"", 6, 100}};
  assert_status(brim_store_metrics(store, &first, 2, wrong, 2), BRIM_EINVAL);
  brim_store_ref third = lab_run(store, 3);
  assert_ok(brim_store_beat(store, &second, NULL, &reply));
  assert_int_equal(lab_finish(store, &third, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  assert_status(
      brim_store_finish(store, &stale, &(brim_store_result){.outcome = BRIM_ATTEMPT_OK}, NULL),
      BRIM_ESTATE);
  assert_true(sum_of(&first) == 1);  // the group sees its own changes
  assert_ok(brim_store_group_end(store));
  brim_store_close(store);
  store = lab_open(&place);
  assert_true(sum_of(&first) == 1 && sum_of(&second) == 0);
  assert_int_equal(lab_state(store, 2), BRIM_EXP_RUNNING);
  assert_int_equal(lab_state(store, 3), BRIM_EXP_DONE);
  int64_t last = 0;
  assert_ok(brim_store_events(store, 0, 0, count_event, &last));
  assert_true(last >= 8);
  assert_ok(log_value(&first, 2, 1));  // a call outside of a group
  assert_true(sum_of(&first) == 2);
}

// A call that fails halfway: memory runs out after its first statements.
static void test_one_is_undone(void **state) {
  (void)state;
  int failed = 0;
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1), other = lab_claim(store, 2);
  for (uint64_t n = 1;; n++) {
    assert_ok(brim_store_group_begin(store));
    assert_ok(log_value(&ref, (int64_t)n, 1));
    uint64_t before = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_store_start(store, &other, 7, -1);
    bool injected = brim_alloc_failures() > before;
    brim_alloc_fail_nth(0, 0);
    assert_int_equal(lab_state(store, 2), status ? BRIM_EXP_LEASED : BRIM_EXP_RUNNING);
    assert_ok(brim_store_group_end(store));
    assert_true(sum_of(&ref) == (double)n);
    if (status) assert_int_equal(lab_state(store, 2), BRIM_EXP_LEASED);
    failed += injected && status;
    if (!injected || !status) break;
  }
  assert_true(failed > 0);
  assert_int_equal(lab_state(store, 2), BRIM_EXP_RUNNING);
}

static void wait_for(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

// A process that dies before the end of a group has changed nothing; after the end, everything.
static void test_killed(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  for (int ends = 0; ends < 2; ends++) {
    brim_store_close(store);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      store = lab_open(&place);
      bool good = !brim_store_group_begin(store) && !log_value(&ref, 1, 1) &&
                  !log_value(&ref, 2, 1) && (!ends || !brim_store_group_end(store));
      _exit(good ? 0 : 1);
    }
    wait_for(child);
    store = lab_open(&place);
    double expected = ends || lab_is_postgres() ? 2 : 0;
    assert_true(sum_of(&ref) == expected);
    lab_check(store);
  }
}

enum { BIG = 3000 };

static brim_status submit_much(void) {
  static char config[8192], ids[BIG][BRIM_EXP_ID];
  static brim_store_point points[BIG];
  brim_store_submitted out;
  memset(config, 'x', sizeof config - 1);
  for (int i = 0; i < BIG; i++) {
    points[i] = (brim_store_point){.id = lab_id(1000 + i, ids[i]), .config = config};
  }
  return brim_store_submit(store, &(brim_store_grid){.id = "big"}, points, BIG, &out);
}

static void fill_disk(const brim_store_ref *ref) {
  signal(SIGXFSZ, SIG_IGN);
  store = lab_open(&place);
  struct rlimit limit, all;
  getrlimit(RLIMIT_FSIZE, &all);
  limit = all;
  limit.rlim_cur = 1 << 20;
  if (brim_store_group_begin(store) || log_value(ref, 1, 1)) _exit(2);
  setrlimit(RLIMIT_FSIZE, &limit);
  if (submit_much() != BRIM_EIO) _exit(3);
  // the message must be about the full disk, not some I/O error
  if (!strstr(brim_status_detail(), "disk is full")) _exit(9);
  // the database has rolled the whole transaction back: later calls must not begin another one
  if (log_value(ref, 2, 1) != BRIM_EIO) _exit(4);
  setrlimit(RLIMIT_FSIZE, &all);
  if (brim_store_group_end(store) != BRIM_EIO) _exit(5);
  if (sum_of(ref) != 0) _exit(6);
  if (brim_store_group_begin(store) || log_value(ref, 1, 1) || brim_store_group_end(store))
    _exit(7);
  if (sum_of(ref) != 1) _exit(8);
  brim_store_close(store);
  _exit(0);
}

static void test_disk_runs_full(void **state) {
  (void)state;
  if (lab_is_postgres()) return;
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_close(store);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) fill_disk(&ref);
  wait_for(child);
  store = lab_open(&place);
  assert_true(sum_of(&ref) == 1);
}

//---------------------------------- other handles ----------------------------------

static int64_t log_bytes(void) {
  char path[600];
  struct stat st;
  return stat(lab_file(&place, "-wal", path), &st) == 0 ? (int64_t)st.st_size : 0;
}

static void write_some(const brim_store_ref *ref, int64_t *seq) {
  for (int i = 0; i < 20; i++) assert_ok(log_value(ref, ++*seq, 1));
}

// The log restarts after it was copied while a reader is open; it is not copied earlier.
static void test_log(void **state) {
  (void)state;
  if (lab_is_postgres()) return;
  brim_store *keeper, *reader;
  int64_t seq = 0, pages = 0, before = 0;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  assert_ok(brim_store_open_reader(store, &reader));
  assert_ok(brim_store_open_reader(store, &keeper));
  assert_ok(brim_store_keep_log(store));
  // SQLite alone would have copied it at 4 MiB
  while (log_bytes() < 6 << 20) write_some(&ref, &seq);
  assert_ok(brim_store_move_log(keeper, &pages));
  assert_true(pages > 1000);
  before = log_bytes();
  for (int i = 0; i < 5; i++) {
    brim_exp_state seen = lab_state(reader, 1);
    assert_int_equal(seen, BRIM_EXP_RUNNING);
    write_some(&ref, &seq);
    assert_ok(brim_store_move_log(keeper, &pages));
    assert_true(pages > 0 && pages < 1000);
  }
  assert_int_equal(log_bytes(), before);
  brim_store_close(keeper);
  brim_store_close(reader);
  assert_true(sum_of(&ref) == (double)seq);
}

// A reader sees committed changes at once, and nothing of a group before its end; it cannot write.
static void test_reader(void **state) {
  (void)state;
  brim_store *reader;
  lab_submit(store, "g", 1, 2);
  assert_ok(brim_store_open_reader(store, &reader));
  assert_int_equal(lab_state(reader, 1), BRIM_EXP_QUEUED);
  brim_store_ref ref = lab_claim(store, 1);
  assert_int_equal(lab_state(reader, 1), BRIM_EXP_LEASED);
  assert_ok(brim_store_group_begin(store));
  assert_ok(brim_store_start(store, &ref, 7, -1));
  assert_int_equal(lab_state(reader, 1), lab_is_postgres() ? BRIM_EXP_RUNNING : BRIM_EXP_LEASED);
  assert_ok(brim_store_group_end(store));
  assert_int_equal(lab_state(reader, 1), BRIM_EXP_RUNNING);
  assert_status(brim_store_start(reader, &ref, 8, -1), BRIM_ESTATE);
  int64_t here = 0, there = 0;
  assert_ok(brim_store_now(store, &here));
  assert_ok(brim_store_now(reader, &there));
  assert_int_equal(here, there);
  brim_store_close(reader);
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
}

//---------------------------------- over HTTP ----------------------------------

enum { CLIENTS = 8, ROUNDS = 25 };

typedef struct sender {
  pthread_t thread;
  brim_store_ref ref;
  int port, bad, refused;
} sender;

static int send_batch(brim_http_client *c, const sender *s, int seq, int64_t fence) {
  char path[160], body[200];
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  snprintf(path, sizeof path, "/v1/attempts/%s/1/metrics", s->ref.exp);
  snprintf(body, sizeof body, "{\"fence\":%lld,\"seq\":%d,\"rows\":[[\"loss\",%d,1]]}",
           (long long)fence, seq, seq);
  const brim_http_call how = {
      .method = "POST", .path = path, .body = body, .body_size = strlen(body)};
  int status = brim_http_client_call(c, &how, &answer) ? -1 : answer.status;
  if (status == 409 && !strstr(answer.body.data, "stale")) status = -1;
  brim_http_answer_deinit(&answer);
  return status;
}

// Every third batch has the fence of another attempt.
static void *send_batches(void *arg) {
  sender *s = arg;
  char url[64];
  brim_http_client *c = NULL;
  snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
  const brim_http_client_options how = {.url = url, .insecure = true};
  if (brim_http_client_open(&how, &c)) s->bad++;
  for (int i = 1; c && i <= ROUNDS; i++) {
    bool stale = i % 3 == 0;
    int status = send_batch(c, s, i, s->ref.fence - stale);
    s->bad += status != (stale ? 409 : 200);
    s->refused += status == 409;
  }
  brim_http_client_close(c);
  return NULL;
}

// Reads while others write.
static void *look(void *arg) {
  sender *s = arg;
  char url[64];
  brim_http_client *c = NULL;
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
  const brim_http_client_options how = {.url = url, .insecure = true};
  if (brim_http_client_open(&how, &c)) s->bad++;
  for (int i = 0; c && i < ROUNDS; i++) {
    const brim_http_call call = {.method = "GET", .path = i % 2 ? "/v1/counts" : "/v1/exps"};
    s->bad += brim_http_client_call(c, &call, &answer) || answer.status != 200;
  }
  brim_http_client_close(c);
  brim_http_answer_deinit(&answer);
  return NULL;
}

static void test_requests_at_once(void **state) {
  (void)state;
  brim_lab_pool *pool = NULL;
  sender senders[CLIENTS] = {0};
  const brim_lab_pool_options options = {.store = store, .version = "9.9"};
  lab_submit(store, "g", 1, CLIENTS);
  for (int i = 0; i < CLIENTS; i++) senders[i].ref = lab_run(store, i + 1);
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) skip();
  assert_ok(status);
  for (int i = 0; i < CLIENTS; i++) {
    senders[i].port = brim_lab_pool_port(pool);
    assert_int_equal(pthread_create(&senders[i].thread, NULL, send_batches, &senders[i]), 0);
  }
  sender looker = {.port = brim_lab_pool_port(pool)};
  assert_int_equal(pthread_create(&looker.thread, NULL, look, &looker), 0);
  for (int i = 0; i < ROUNDS; i++) assert_ok(brim_lab_pool_tend(pool));
  for (int i = 0; i < CLIENTS; i++) pthread_join(senders[i].thread, NULL);
  pthread_join(looker.thread, NULL);
  brim_lab_pool_close(pool);
  assert_int_equal(looker.bad, 0);
  for (int i = 0; i < CLIENTS; i++) {
    assert_int_equal(senders[i].bad, 0);
    assert_int_equal(senders[i].refused, ROUNDS / 3);
    assert_true(sum_of(&senders[i].ref) == ROUNDS - ROUNDS / 3);
  }
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_one_fails),        TEST(test_one_is_undone), TEST(test_killed),
      TEST(test_disk_runs_full),   TEST(test_log),           TEST(test_reader),
      TEST(test_requests_at_once),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
