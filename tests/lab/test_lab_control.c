// User requests to experiments, on SQLite and on PostgreSQL alike: pause, cancel, run, retry, drain.
#include "store_test.h"

// Brings experiment 1 into a state.
static brim_store_ref reach(brim_exp_state to) {
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = {0};
  switch (to) {
    case BRIM_EXP_LEASED:
      return lab_claim(store, 1);
    case BRIM_EXP_RUNNING:
      return lab_run(store, 1);
    case BRIM_EXP_DONE:
      ref = lab_run(store, 1);
      lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
      break;
    case BRIM_EXP_FAILED:
      ref = lab_run(store, 1);
      lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
      break;
    case BRIM_EXP_CANCELLED:
      assert_ok(brim_store_want(store, id, BRIM_WANT_CANCEL));
      break;
    case BRIM_EXP_PAUSED:
      assert_ok(brim_store_want(store, id, BRIM_WANT_PAUSE));
      break;
    default:
      break;
  }
  assert_int_equal(lab_state(store, 1), to);
  return ref;
}

// State before, call (0 to 2: a want, 3: retry) -> state after, or -1: refused.
//    run pause cancel retry
static void test_wants_in_every_state(void **state) {
  enum {
    RETRY = 3,
    NO = -1,
    Q = BRIM_EXP_QUEUED,
    L = BRIM_EXP_LEASED,
    R = BRIM_EXP_RUNNING,
    D = BRIM_EXP_DONE,
    F = BRIM_EXP_FAILED,
    C = BRIM_EXP_CANCELLED,
    P = BRIM_EXP_PAUSED
  };
  static const int expected[BRIM_EXP_STATE_COUNT][4] = {
      //    run pause cancel retry
      [Q] = {Q, P, C, Q},    [L] = {L, L, L, NO},  [R] = {R, R, R, NO}, [D] = {NO, NO, NO, NO},
      [F] = {NO, NO, NO, Q}, [C] = {NO, NO, C, Q}, [P] = {Q, P, C, Q},
  };
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  for (int from = 0; from < BRIM_EXP_STATE_COUNT; from++) {
    for (int call = 0; call <= RETRY; call++) {
      teardown(state);
      setup(state);
      reach((brim_exp_state)from);
      brim_status status = call == RETRY ? brim_store_retry(store, id)
                                         : brim_store_want(store, id, (brim_exp_want)call);
      int want = expected[from][call];
      if ((status == BRIM_ESTATE) != (want == NO) || (want != NO && status) ||
          (int)lab_state(store, 1) != (want == NO ? from : want)) {
        fail_msg("from %s, call %d: status %d, state %s", brim_exp_state_name((brim_exp_state)from),
                 call, status, brim_exp_state_name(lab_state(store, 1)));
      }
      lab_check(store);
    }
  }
}

// Waiting for another attempt does not count as an experiment's time.
static void test_cancelled_after_a_failure(void **state) {
  (void)state;
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  lab_clock_ms += 5000;
  lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_QUEUED);
  const int64_t failed = lab_clock_ms;
  lab_clock_ms += 3600000;
  assert_ok(brim_store_want(store, id, BRIM_WANT_CANCEL));
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->ended, failed);
  brim_store_exp_free(exp);
  assert_ok(brim_store_want(store, lab_id(2, id), BRIM_WANT_CANCEL));  // it never ran
  exp = stored(2);
  assert_int_equal(exp->ended, lab_clock_ms);
  brim_store_exp_free(exp);
}

static void test_live_experiments_are_asked(void **state) {
  (void)state;
  static const struct {
    brim_exp_want want;
    brim_attempt_outcome outcome;
    brim_failure failure;
    brim_exp_state became;
  } rows[] = {
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE, BRIM_EXP_PAUSED},
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH, BRIM_EXP_PAUSED},
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN, BRIM_EXP_FAILED},
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE, BRIM_EXP_DONE},
      {BRIM_WANT_CANCEL, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE, BRIM_EXP_CANCELLED},
      {BRIM_WANT_CANCEL, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_KILLED, BRIM_EXP_CANCELLED},
      {BRIM_WANT_CANCEL, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE, BRIM_EXP_DONE},
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_EXPIRED, BRIM_FAILURE_NONE, BRIM_EXP_PAUSED},
      {BRIM_WANT_CANCEL, BRIM_ATTEMPT_EXPIRED, BRIM_FAILURE_NONE, BRIM_EXP_CANCELLED},
  };
  enum { COUNT = sizeof rows / sizeof *rows };
  lab_submit(store, "g", 1, COUNT);
  for (int i = 0; i < COUNT; i++) {
    char id[BRIM_EXP_ID];
    brim_store_beat_reply reply;
    brim_store_ref ref = lab_run(store, i + 1);
    assert_ok(brim_store_want(store, lab_id(i + 1, id), rows[i].want));
    assert_ok(brim_store_beat(store, &ref, NULL, &reply));
    assert_int_equal(reply.want, rows[i].want);
    if (rows[i].outcome == BRIM_ATTEMPT_EXPIRED) {
      lab_clock_ms += LAB_LEASE_MS;
      assert_ok(brim_store_reap(store, NULL));
    } else {
      lab_finish(store, &ref, rows[i].outcome, rows[i].failure);
    }
    assert_int_equal(lab_state(store, i + 1), rows[i].became);
  }
}

static void test_pause_can_be_taken_back(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  brim_store_beat_reply reply;
  assert_ok(brim_store_want(store, id, BRIM_WANT_PAUSE));
  assert_ok(brim_store_want(store, id, BRIM_WANT_RUN));
  assert_ok(brim_store_beat(store, &ref, NULL, &reply));
  assert_int_equal(reply.want, BRIM_WANT_RUN);
  assert_ok(brim_store_want(store, id, BRIM_WANT_CANCEL));
  assert_status(brim_store_want(store, id, BRIM_WANT_RUN), BRIM_ESTATE);
  assert_status(brim_store_want(store, id, BRIM_WANT_PAUSE), BRIM_ESTATE);
  lab_id(9, id);
  assert_status(brim_store_want(store, id, BRIM_WANT_RUN), BRIM_ENOENT);
  assert_status(brim_store_retry(store, id), BRIM_ENOENT);
  assert_status(brim_store_set_priority(store, id, 1), BRIM_ENOENT);
}

static void test_retry_gives_all_retries_back(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 3);
  lab_submit(store, "g2", 3, 2);
  for (int i = 1; i <= 4; i++) {
    brim_store_ref ref = lab_run(store, i);
    lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
    lab_clock_ms += LAB_BACKOFF_MS;
    ref = lab_run(store, i);
    lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
  }
  int64_t count;
  assert_ok(brim_store_retry_failed(store, "g2", &count));
  assert_int_equal(count, 2);
  brim_store_exp *exp = stored(3);
  assert_int_equal(exp->state, BRIM_EXP_QUEUED);
  assert_int_equal(exp->tries_left, 2);
  assert_int_equal(exp->attempt, 2);
  assert_string_equal(exp->failure, "none");
  assert_string_equal(exp->reason, "");
  brim_store_exp_free(exp);
  assert_ok(brim_store_retry_failed(store, NULL, &count));
  assert_int_equal(count, 2);
  assert_ok(brim_store_retry_failed(store, NULL, &count));
  assert_int_equal(count, 0);
}

static brim_store_ref claim(const char *claim_id) {
  brim_store_request r = {.worker = "w1", .claim_id = claim_id, .free_gpus = 8, .free_bytes = -1};
  brim_store_claimed c;
  assert_ok(brim_store_claim(store, &r, &c));
  brim_store_exp_free(c.exp);
  return c.ref;
}

static void test_draining_workers_get_nothing(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_worker w = {.id = "w1", .host = "h", .gpus = "2", .version = "0.1"};
  assert_status(brim_store_drain(store, "w1", true), BRIM_ENOENT);
  assert_ok(brim_store_worker_seen(store, &w));
  assert_ok(brim_store_drain(store, "w1", true));
  assert_ok(brim_store_worker_seen(store, &w));  // the wish stays
  brim_store_ref ref = claim("d1");
  assert_string_equal(ref.exp, "");
  assert_ok(brim_store_drain(store, "w1", false));
  ref = claim("d2");
  char id[BRIM_EXP_ID];
  assert_string_equal(ref.exp, lab_id(1, id));
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_wants_in_every_state),         TEST(test_cancelled_after_a_failure),
      TEST(test_live_experiments_are_asked),   TEST(test_pause_can_be_taken_back),
      TEST(test_retry_gives_all_retries_back), TEST(test_draining_workers_get_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
