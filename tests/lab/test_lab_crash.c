// kill -9 at random moments of processes that write to a store: it opens again, every rule holds, and no acknowledged
// change is lost. On PostgreSQL several processes write at once.
// BRIM_TEST_SEED repeats the choices, not the moments.
#include "lab_test.h"

#include "lab/store/lab_store_int.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXPS = 40 };

static lab_place place;
static uint64_t rng;

static uint32_t random_bits(void) {  // xorshift64*
  rng ^= rng >> 12;
  rng ^= rng << 25;
  rng ^= rng >> 27;
  return (uint32_t)((rng * 2685821657736338717u) >> 32);
}

static int below(int n) { return (int)(random_bits() % (uint32_t)n); }

// A writer's report after a call returned: experiment, and its new step or result.
typedef struct ack {
  int exp;
  int64_t attempt;
  int64_t step;  // -1: done
} ack;

static void say(int fd, int exp, int64_t attempt, int64_t step) {
  ack a = {exp, attempt, step};
  if (fd >= 0 && write(fd, &a, sizeof a) != (ssize_t)sizeof a) _exit(3);
}

static brim_store *open_patiently(void) {
  brim_store *store = NULL;
  brim_store_options o = lab_options(&place);
  o.infra_tries = lab_infra;
  for (int i = 0; i < 500; i++) {
    if (brim_store_open(place.place, &o, &store) == BRIM_OK) return store;
    brim_clock_sleep_ns(5000000);
  }
  fprintf(stderr, "cannot open: %s\n", brim_status_detail());
  _exit(2);
}

// Runs one experiment to its end, or abandons it at some step.
static bool work(brim_store *store, int fd) {
  char claim_id[64];
  snprintf(claim_id, sizeof claim_id, "%ld-%u", (long)getpid(), random_bits());
  brim_store_claimed c;
  brim_store_request r = {.worker = "w", .claim_id = claim_id, .free_gpus = 8, .free_bytes = -1};
  if (brim_store_claim(store, &r, &c)) return true;
  if (!c.exp) return false;
  int exp = (int)strtol(c.ref.exp + 24, NULL, 16);
  int64_t from = c.exp->ckpt_step + 1;
  brim_store_exp_free(c.exp);
  if (brim_store_start(store, &c.ref, getpid(), -1)) return true;
  for (int64_t step = from; step < 5; step++) {
    // The value is a function of the step, like that of a training that resumes exactly.
    brim_store_metric rows[2] = {{"loss", step, (double)(exp * 100 + step)},
                                 {"acc", step, (double)step}};
    brim_store_beat_reply reply;
    if (brim_store_beat(store, &c.ref, NULL, &reply)) return true;
    if (brim_store_metrics(store, &c.ref, step + 1, rows, 2)) return true;
    if (brim_store_checkpoint(store, &c.ref, step)) return true;
    say(fd, exp, c.ref.attempt, step);
  }
  brim_store_result result = {.outcome = BRIM_ATTEMPT_OK};
  if (brim_store_finish(store, &c.ref, &result, NULL)) return true;
  say(fd, exp, c.ref.attempt, -1);
  return true;
}

static pid_t start_writer(int fds[2]) {
  assert_int_equal(pipe(fds), 0);
  fflush(stdout);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) {
    close(fds[1]);
    return child;
  }
  close(fds[0]);
  rng ^= (uint64_t)getpid() * 0x9E3779B97F4A7C15u;
  brim_store *store = open_patiently();
  for (;;) {
    if (!work(store, fds[1]) && brim_store_reap(store, NULL)) _exit(4);
  }
}

// Must survive each crash: the largest acknowledged step and the result of every experiment.
static int64_t acked_step[EXPS + 1];
static bool acked_done[EXPS + 1];

static void collect(int fd) {
  ack a;
  while (read(fd, &a, sizeof a) == (ssize_t)sizeof a) {
    if (a.step < 0) {
      assert_false(acked_done[a.exp]);  // one result, from one attempt
      acked_done[a.exp] = true;
    } else if (a.step > acked_step[a.exp]) {
      acked_step[a.exp] = a.step;
    }
  }
  close(fd);
}

typedef struct values {
  int exp, count;
  int64_t next;
} values;

static brim_status check_value(void *ctx, const brim_store_metric *m, int64_t attempt) {
  values *v = ctx;
  (void)attempt;
  assert_true(m->value == (double)(v->exp * 100 + m->step));
  assert_int_equal(m->step, v->next++);
  v->count++;
  return BRIM_OK;
}

// PostgreSQL's processes outlive the clients they served, and may still commit for a moment.
static void wait_for_servers(brim_store *store) {
  int64_t others = lab_is_postgres();
  for (int waited = 0; others > 0; waited++) {
    brim_db_rows rows;
    bool there = false;
    assert_true(waited < 12000);
    assert_ok(brim_db_query(store->db,
                            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client "
                            "backend' AND pid <> pg_backend_pid()",
                            BRIM_DB_NO_ARGS, &rows));
    assert_ok(brim_db_next(&rows, &there));
    others = brim_db_get_int(&rows, 0);
    brim_db_done(&rows);
    if (others > 0) brim_clock_sleep_ns(5000000);
  }
}

static int check(void) {
  brim_store *store = open_patiently();
  wait_for_servers(store);
  lab_check(store);
  int done = 0;
  for (int i = 1; i <= EXPS; i++) {
    char id[BRIM_EXP_ID];
    brim_store_exp *exp = NULL;
    assert_ok(brim_store_get(store, lab_id(i, id), &exp));
    if (acked_done[i]) assert_int_equal(exp->state, BRIM_EXP_DONE);
    assert_true(exp->ckpt_step >= acked_step[i]);
    values v = {.exp = i};
    assert_ok(brim_store_read_metrics(store, id, "loss", check_value, &v));
    assert_true(v.count > exp->ckpt_step);
    if (exp->state == BRIM_EXP_DONE) assert_int_equal(v.count, 5);
    done += exp->state == BRIM_EXP_DONE;
    brim_store_exp_free(exp);
  }
  brim_store_close(store);
  return done;
}

static void start_store(void) {
  for (int i = 0; i <= EXPS; i++) {
    acked_step[i] = -1;
    acked_done[i] = false;
  }
  lab_new_place(&place);
  brim_store *store = open_patiently();
  lab_submit(store, "g", 1, EXPS);
  brim_store_close(store);
}

// The rest runs without kills: every experiment has exactly one result.
static void finish_rest(void) {
  brim_store *store = open_patiently();
  assert_ok(brim_store_reap(store, NULL));
  while (work(store, -1)) {
  }
  brim_store_close(store);
  assert_int_equal(check(), EXPS);
}

static void kill_round(int writers) {
  pid_t children[4];
  int fds[4][2];
  for (int i = 0; i < writers; i++) children[i] = start_writer(fds[i]);
  brim_clock_sleep_ns((int64_t)(1 + below(150)) * 1000000);
  for (int i = 0; i < writers; i++) {
    int status;
    assert_int_equal(kill(children[i], SIGKILL), 0);
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_true(WIFSIGNALED(status));
  }
  for (int i = 0; i < writers; i++) collect(fds[i][0]);
}

static void test_killed_writers_lose_nothing(void **state) {
  (void)state;
  const char *given = getenv("BRIM_TEST_SEED");
  rng = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2 + 1;
  printf("seed %llu\n", (unsigned long long)rng);
  lab_infra = 1000;
  int writers = lab_is_postgres() ? 4 : 1, rounds = test_is_full() ? 100 : 30, done = 0;
  start_store();
  for (int round = 0; round < rounds; round++) {
    if (done == EXPS) start_store();
    kill_round(writers);
    done = check();
    lab_clock_ms += LAB_LEASE_MS;  // leases of killed writers end
  }
  printf("%d kills, then %d of %d done\n", rounds * writers, done, EXPS);
  finish_rest();
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed_writers_lose_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
