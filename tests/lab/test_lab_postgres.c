// Behaviour of PostgreSQL alone: several processes at once, connections that break, a server that crashes, a process
// that stops inside a transaction.
#include "store_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/store/lab_store_int.h"

// Ends every connection except that of `but`.
static void break_connections(brim_store *but) {
  assert_ok(brim_db_script(but->db,
                           "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE pid<>pg_backend_pid() AND application_name='brim'"));
}

static void test_lost_connections_are_opened_again(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 3);
  brim_store_ref ref = lab_run(store, 1);
  brim_store *other = lab_open(&place);
  for (int i = 0; i < 3; i++) {
    break_connections(other);
    brim_store_beat_reply reply;
    assert_ok(brim_store_beat(store, &ref, NULL, &reply));
    break_connections(other);
    brim_store_counts counts;
    assert_ok(brim_store_count(store, "g", &counts));
    assert_int_equal(counts.total, 3);
  }
  break_connections(other);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  brim_store_close(other);
}

// A connection breaks in the middle of a list: no row comes twice.
typedef struct breaking {
  brim_store *other;
  int count;
  char last[BRIM_EXP_ID];
} breaking;

static brim_status break_at_second(void *ctx, const brim_store_exp *exp) {
  breaking *b = ctx;
  assert_true(strcmp(exp->id, b->last) > 0);
  snprintf(b->last, sizeof b->last, "%s", exp->id);
  if (++b->count == 2) break_connections(b->other);
  return BRIM_OK;
}

static void test_lists_that_break_are_reported(void **state) {
  (void)state;
  enum { COUNT = 3000 };
  lab_submit(store, "g", 1, COUNT);
  breaking b = {.other = lab_open(&place)};
  brim_status status =
      brim_store_list(store, &(brim_store_filter){.texts = true}, break_at_second, &b);
  // Rows that had already arrived are kept; an incomplete list is never taken for a complete one.
  assert_true(status == BRIM_EIO || (status == BRIM_OK && b.count == COUNT));
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, COUNT);
  brim_store_close(b.other);
}

static void test_server_crashes_and_comes_back(void **state) {
  (void)state;
  const char *restart = getenv("BRIM_TEST_POSTGRES_RESTART");
  if (!restart) BRIM_SKIP("tests/lab/with_postgres is needed to restart the server");
  brim_store_options o = lab_options(&place);
  o.grace_ms = LAB_LEASE_MS;
  brim_store_close(store);
  assert_ok(brim_store_open(place.place, &o, &store));
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  lab_clock_ms += 10 * LAB_LEASE_MS;
  assert_int_equal(system(restart), 0);
  // While the server was away no worker could beat, so no lease ends at once.
  int64_t expired = -1;
  brim_status status = BRIM_EIO;
  for (int i = 0; i < 600 && status == BRIM_EIO; i++) {
    status = brim_store_reap(store, &expired);
    if (status) brim_clock_sleep_ns(50000000);
  }
  assert_ok(status);
  assert_int_equal(expired, 0);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
}

// A stopped process holds locks on rows: claims and reaping skip these rows, and other calls wait only until the server
// ends its session.
static void test_stopped_process_blocks_nobody(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 3);
  brim_store_ref second = lab_run(store, 2);
  lab_clock_ms += LAB_LEASE_MS / 2;
  brim_store_ref third = lab_run(store, 3);
  brim_store *stopped = lab_open(&place);
  assert_ok(brim_db_begin(stopped->db, true));
  assert_ok(brim_db_exec(stopped->db, "UPDATE exp SET idx=idx WHERE idx<2", BRIM_DB_NO_ARGS, NULL));

  brim_store_request r = {.worker = "w2", .claim_id = "x", .free_gpus = 8, .free_bytes = -1};
  brim_store_claimed c;
  assert_ok(brim_store_claim(store, &r, &c));  // experiment 1 is locked
  assert_null(c.exp);
  lab_clock_ms += LAB_LEASE_MS;
  int64_t expired;
  assert_ok(brim_store_reap(store, &expired));  // and so is experiment 2
  assert_int_equal(expired, 1);
  assert_int_equal(lab_state(store, 3), BRIM_EXP_QUEUED);
  (void)third;
  // This call waits, and succeeds.
  assert_int_equal(lab_finish(store, &second, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  // The process that was stopped continues in a new session.
  brim_db_rollback(stopped->db);
  assert_int_equal(lab_state(stopped, 2), BRIM_EXP_DONE);
  brim_store_close(stopped);
}

enum { WORKERS = 6, EXPS = 60 };

// Claims with ids that all workers share: each id is the same attempt for all of them.
static void claim_all(int worker) {
  brim_store *own = NULL;
  brim_store_options o = lab_options(&place);
  if (brim_store_open(place.place, &o, &own)) _exit(2);
  for (int i = 0; i < EXPS; i++) {
    char claim_id[32];
    snprintf(claim_id, sizeof claim_id, "shared-%d", (i + worker) % EXPS);
    brim_store_request r = {.worker = "w", .claim_id = claim_id, .free_gpus = 8, .free_bytes = -1};
    brim_store_claimed c;
    // All queued experiments may be locked for a moment by claims that will be rolled back.
    do {
      if (brim_store_claim(own, &r, &c)) {
        fprintf(stderr, "claim: %s\n", brim_status_detail());
        _exit(3);
      }
    } while (!c.exp);
    if (c.ref.attempt != 1) _exit(5);
    brim_store_exp_free(c.exp);
  }
  brim_store_close(own);
  _exit(0);
}

static void finish_own(int worker) {
  brim_store *own = NULL;
  brim_store_options o = lab_options(&place);
  if (brim_store_open(place.place, &o, &own)) _exit(2);
  for (int i = 0;; i++) {
    char claim_id[32];
    snprintf(claim_id, sizeof claim_id, "own-%d-%d", worker, i);
    brim_store_request r = {.worker = "w", .claim_id = claim_id, .free_gpus = 8, .free_bytes = -1};
    brim_store_claimed c;
    if (brim_store_claim(own, &r, &c)) {
      fprintf(stderr, "claim: %s\n", brim_status_detail());
      _exit(3);
    }
    if (!c.exp) break;
    brim_store_exp_free(c.exp);
    brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
    if (c.ref.attempt != 1 || brim_store_start(own, &c.ref, 1, -1) ||
        brim_store_finish(own, &c.ref, &ok, NULL)) {
      fprintf(stderr, "attempt %d: %s\n", (int)c.ref.attempt, brim_status_detail());
      _exit(5);
    }
  }
  brim_store_close(own);
  _exit(0);
}

static void run_workers(void (*fn)(int)) {
  pid_t children[WORKERS];
  fflush(stdout);
  for (int i = 0; i < WORKERS; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) fn(i);
  }
  for (int i = 0; i < WORKERS; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
}

static void test_same_claims_at_once(void **state) {
  (void)state;
  lab_submit(store, "g", 1, EXPS);
  run_workers(claim_all);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.states[BRIM_EXP_LEASED], EXPS);
}

static void test_workers_share_a_queue(void **state) {
  (void)state;
  lab_submit(store, "g", 1, EXPS);
  run_workers(finish_own);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.states[BRIM_EXP_DONE], EXPS);
}

static void submit_overlapping(int worker) {
  brim_store *own = NULL;
  brim_store_options o = lab_options(&place);
  if (brim_store_open(place.place, &o, &own)) _exit(2);
  char grid[16];
  snprintf(grid, sizeof grid, "g%d", worker);
  brim_store_point points[EXPS];
  char ids[EXPS][BRIM_EXP_ID];
  // half of the lists are reversed: deadlocks, unless the store sorts the rows
  for (int i = 0; i < EXPS; i++) {
    int n = worker % 2 ? EXPS - i : i + 1;
    points[i] = (brim_store_point){.id = lab_id(n, ids[i]), .idx = i, .config = "a"};
  }
  brim_store_submitted out;
  if (brim_store_submit(own, &(brim_store_grid){.id = grid}, points, EXPS, &out)) {
    fprintf(stderr, "submit: %s\n", brim_status_detail());
    _exit(3);
  }
  brim_store_close(own);
  _exit(0);
}

static void test_overlapping_grids_at_once(void **state) {
  (void)state;
  run_workers(submit_overlapping);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, EXPS);
  for (int i = 0; i < WORKERS; i++) {
    char grid[16];
    snprintf(grid, sizeof grid, "g%d", i);
    assert_ok(brim_store_count(store, grid, &counts));
    assert_int_equal(counts.total, EXPS);
  }
}

static lab_place fresh;

static void open_fresh(int worker) {
  (void)worker;
  brim_store *own = NULL;
  brim_store_options o = lab_options(&fresh);
  if (brim_store_open(fresh.place, &o, &own)) {
    fprintf(stderr, "open: %s\n", brim_status_detail());
    _exit(2);
  }
  brim_store_close(own);
  _exit(0);
}

static void test_created_by_several_at_once(void **state) {
  (void)state;
  lab_new_place(&fresh);
  run_workers(open_fresh);
  brim_store *own = lab_open(&fresh);
  lab_submit(own, "g", 1, 1);
  lab_check(own);
  brim_store_close(own);
}

// One process reads events while others write: it sees each event, in order.
typedef struct following {
  int64_t last;
  int count;
} following;

static brim_status follow(void *ctx, const brim_store_event *e) {
  following *f = ctx;
  assert_int_equal(e->seq, f->last + 1);
  f->last = e->seq;
  f->count++;
  return BRIM_OK;
}

static void test_events_have_no_holes_while_others_write(void **state) {
  (void)state;
  lab_submit(store, "g", 1, EXPS);
  following f = {0};
  fflush(stdout);
  pid_t children[3];
  for (int i = 0; i < 3; i++) {
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0) finish_own(i);
  }
  for (int i = 0; i < 3;) {
    assert_ok(brim_store_events(store, f.last, 0, follow, &f));
    int status;
    pid_t ended = waitpid(children[i], &status, WNOHANG);
    assert_true(ended >= 0);
    if (ended == 0) continue;
    assert_int_equal(status, 0);
    i++;
  }
  assert_ok(brim_store_events(store, f.last, 0, follow, &f));
  assert_int_equal(f.count, 1 + 3 * EXPS);  // submitted; claimed, started, done
}

int main(void) {
  char *arguments[] = {"", "postgres"};
  lab_choose(2, arguments);
  const struct CMUnitTest tests[] = {
      TEST(test_lost_connections_are_opened_again),
      TEST(test_lists_that_break_are_reported),
      TEST(test_server_crashes_and_comes_back),
      TEST(test_stopped_process_blocks_nobody),
      TEST(test_same_claims_at_once),
      TEST(test_workers_share_a_queue),
      TEST(test_overlapping_grids_at_once),
      TEST(test_created_by_several_at_once),
      TEST(test_events_have_no_holes_while_others_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
