// The queue of the store, on SQLite and on PostgreSQL alike: submitting, claiming, fences, leases and
// retries.
#include "store_test.h"

#include <math.h>

// --- submitting

static void test_submit_adds_only_what_is_missing(void **state) {
  (void)state;
  brim_store_point points[3];
  char ids[3][BRIM_EXP_ID];
  for (int i = 0; i < 3; i++) {
    points[i] = (brim_store_point){.id = lab_id(i + 1, ids[i]), .idx = i, .config = "lr: 1"};
  }
  brim_store_grid g = {"g1", "first", "lr: [1, 2]", "0.1"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &g, points, 2, &out));
  assert_int_equal(out.added, 2);
  assert_int_equal(out.existing, 0);

  brim_store_ref ref = lab_run(store, 1);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);

  // A later edit of the file changes nothing that was submitted.
  points[0].config = "lr: 7";
  points[0].priority = 9;
  assert_ok(brim_store_submit(store, &g, points, 3, &out));
  assert_int_equal(out.added, 1);
  assert_int_equal(out.existing, 2);
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->state, BRIM_EXP_DONE);
  assert_string_equal(exp->config, "lr: 1");
  assert_int_equal(exp->priority, 0);
  brim_store_exp_free(exp);
}

// Plans may arrive after the points: they fill in only unknown values.
static void test_submit_fills_in_needs(void **state) {
  (void)state;
  brim_store_point points[3];
  char ids[3][BRIM_EXP_ID];
  brim_store_submitted out;
  brim_store_grid g = {.id = "g1"};
  for (int i = 0; i < 3; i++) {
    points[i] = (brim_store_point){.id = lab_id(i + 1, ids[i]), .idx = i, .config = "lr: 1"};
  }
  points[1].need_bytes = 100;
  assert_ok(brim_store_submit(store, &g, points, 3, &out));
  points[0].need_bytes = 7000000000;
  points[1].need_bytes = 200;
  assert_ok(brim_store_submit(store, &g, points, 3, &out));
  assert_int_equal(out.existing, 3);
  static const int64_t expected[] = {7000000000, 100, 0};
  for (int i = 0; i < 3; i++) {
    brim_store_exp *exp = stored(i + 1);
    assert_int_equal(exp->need_bytes, expected[i]);
    brim_store_exp_free(exp);
  }
}

static void test_submit_twice_in_one_list(void **state) {
  (void)state;
  char id[BRIM_EXP_ID];
  lab_id(5, id);
  brim_store_point points[2] = {{.id = id, .idx = 0, .config = "a"},
                                {.id = id, .idx = 1, .config = "a"}};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, points, 2, &out));
  assert_int_equal(out.added, 1);
  assert_int_equal(out.existing, 1);
}

static void test_grids_share_experiments(void **state) {
  (void)state;
  lab_submit(store, "g1", 1, 3);
  lab_submit(store, "g2", 3, 2);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, 4);
  assert_ok(brim_store_count(store, "g1", &counts));
  assert_int_equal(counts.total, 3);
  assert_ok(brim_store_count(store, "g2", &counts));
  assert_int_equal(counts.total, 2);
  assert_ok(brim_store_count(store, "none", &counts));
  assert_int_equal(counts.total, 0);
}

static void test_submit_is_all_or_nothing(void **state) {
  (void)state;
  char id[BRIM_EXP_ID];
  lab_id(1, id);
  brim_store_submitted out;
  static const brim_store_point bad[] = {
      {.id = "1234", .config = "a"},
      {.id = "0000000000000000000000000000000G", .config = "a"},
      {.id = "00000000000000000000000000000002", .config = NULL},
      {.id = "00000000000000000000000000000002", .config = "\xff"},
      {.id = "00000000000000000000000000000002", .config = "a", .gpus = -1},
      {.id = "00000000000000000000000000000002", .config = "a", .tries = -1},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brim_store_point points[2] = {{.id = id, .config = "a"}, bad[i]};
    assert_status(brim_store_submit(store, &(brim_store_grid){.id = "g"}, points, 2, &out),
                  BRIM_EINVAL);
  }
  brim_store_point good = {.id = id, .config = "a"};
  assert_status(brim_store_submit(store, &(brim_store_grid){.id = "G 1"}, &good, 1, &out),
                BRIM_EINVAL);
  assert_status(brim_store_submit(store, &(brim_store_grid){.id = NULL}, &good, 1, &out),
                BRIM_EINVAL);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, 0);
}

// --- claiming

static brim_store_ref claim_any(const char *claim_id, int64_t gpus, int64_t bytes,
                                const char *grid) {
  brim_store_request r = {
      .worker = "w1", .claim_id = claim_id, .grid = grid, .free_gpus = gpus, .free_bytes = bytes};
  brim_store_claimed c;
  assert_ok(brim_store_claim(store, &r, &c));
  assert_true((c.exp != NULL) == (c.ref.exp[0] != '\0'));
  brim_store_exp_free(c.exp);
  return c.ref;
}

static void submit_one(const char *grid, int n, int64_t priority, int64_t gpus, int64_t bytes) {
  char id[BRIM_EXP_ID];
  brim_store_point p = {.id = lab_id(n, id),
                        .idx = n,
                        .config = "a",
                        .priority = priority,
                        .gpus = gpus,
                        .need_bytes = bytes};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = grid}, &p, 1, &out));
}

static void assert_claimed(const brim_store_ref *ref, int n) {
  char id[BRIM_EXP_ID];
  assert_string_equal(ref->exp, lab_id(n, id));
}

static void test_claim_order(void **state) {
  (void)state;
  submit_one("g", 3, 0, 0, 0);
  submit_one("g", 2, 0, 0, 0);  // the same time: by index
  lab_clock_ms++;
  submit_one("g", 1, 0, 0, 0);  // later
  submit_one("g", 4, 5, 0, 0);  // more urgent
  static const int expected[] = {4, 2, 3, 1};
  for (int i = 0; i < 4; i++) {
    char claim_id[16];
    snprintf(claim_id, sizeof claim_id, "order%d", i);
    brim_store_ref ref = claim_any(claim_id, 0, -1, NULL);
    assert_claimed(&ref, expected[i]);
    assert_int_equal(ref.attempt, 1);
  }
  brim_store_ref none = claim_any("order4", 0, -1, NULL);
  assert_string_equal(none.exp, "");
}

static void test_claim_fits_resources(void **state) {
  (void)state;
  submit_one("g", 1, 9, 4, 0);
  submit_one("g", 2, 8, 1, 2000);
  submit_one("h", 3, 7, 1, 1000);
  brim_store_ref ref = claim_any("r1", 1, 1500, NULL);
  assert_claimed(&ref, 3);
  ref = claim_any("r2", 0, -1, NULL);
  assert_string_equal(ref.exp, "");
  ref = claim_any("r3", 3, 2000, NULL);
  assert_claimed(&ref, 2);
  ref = claim_any("r4", 8, -1, "h");
  assert_string_equal(ref.exp, "");
  ref = claim_any("r5", 8, -1, "g");
  assert_claimed(&ref, 1);
}

static void test_repeated_claim_gets_the_same_attempt(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2);
  brim_store_ref a = claim_any("same", 8, -1, NULL), b = claim_any("same", 8, -1, NULL);
  assert_memory_equal(&a, &b, sizeof a);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_LEASED);
  assert_int_equal(lab_state(store, 2), BRIM_EXP_QUEUED);
  // Replaced in between: the claim still returns the old attempt, which then learns that it is stale.
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  brim_store_ref other = lab_claim(store, 1);
  assert_int_equal(other.fence, a.fence + 1);
  b = claim_any("same", 8, -1, NULL);
  assert_memory_equal(&a, &b, sizeof a);
  assert_status(brim_store_start(store, &b, 1, -1), BRIM_ESTATE);
}

static void test_claim_refuses_bad_requests(void **state) {
  (void)state;
  static const brim_store_request bad[] = {
      {.worker = NULL, .claim_id = "c"},
      {.worker = "", .claim_id = "c"},
      {.worker = "w", .claim_id = NULL},
      {.worker = "w", .claim_id = ""},
      {.worker = "w", .claim_id = "c", .exp = "12"},
      {.worker = "w\xff", .claim_id = "c"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brim_store_claimed c;
    assert_status(brim_store_claim(store, &bad[i], &c), BRIM_EINVAL);
    assert_null(c.exp);
  }
}

// --- fences

static void test_stale_attempts_change_nothing(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref old = lab_run(store, 1);
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  brim_store_ref new = lab_run(store, 1);
  assert_int_equal(new.attempt, old.attempt + 1);
  assert_int_equal(new.fence, old.fence + 1);

  brim_store_exp *before = stored(1);
  brim_store_beat_reply reply;
  brim_store_metric row = {"loss", 1, 0.5};
  brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
  brim_store_ref forged = {.attempt = old.attempt, .fence = new.fence};
  memcpy(forged.exp, old.exp, sizeof forged.exp);
  brim_store_ref refs[] = {old, forged};
  for (int i = 0; i < 2; i++) {
    lab_clock_ms += 10;
    assert_status(brim_store_start(store, &refs[i], 1, -1), BRIM_ESTATE);
    assert_status(brim_store_beat(store, &refs[i], NULL, &reply), BRIM_ESTATE);
    assert_status(brim_store_metrics(store, &refs[i], 1, &row, 1), BRIM_ESTATE);
    assert_status(brim_store_log(store, &refs[i], "stdout", 10), BRIM_ESTATE);
    assert_status(brim_store_checkpoint(store, &refs[i], 10), BRIM_ESTATE);
    assert_status(brim_store_finish(store, &refs[i], &ok, NULL), BRIM_ESTATE);
  }
  brim_store_exp *after = stored(1);
  assert_int_equal(after->state, BRIM_EXP_RUNNING);
  assert_int_equal(after->lease_until, before->lease_until);
  assert_int_equal(after->ckpt_step, -1);
  assert_true(isnan(after->metric));
  brim_store_exp_free(before);
  brim_store_exp_free(after);

  brim_store_ref none = {.attempt = 9, .fence = 9};
  memcpy(none.exp, new.exp, sizeof none.exp);
  assert_status(brim_store_beat(store, &none, NULL, &reply), BRIM_ENOENT);
  lab_id(77, none.exp);
  assert_status(brim_store_beat(store, &none, NULL, &reply), BRIM_ENOENT);
  assert_ok(brim_store_beat(store, &new, NULL, &reply));
}

// Both the attempt's number and the fence have to match the experiment.
static void test_half_of_a_reference_is_not_enough(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_beat_reply reply;
  brim_store_ref first = lab_run(store, 1);
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  brim_store_ref second = lab_run(store, 1), forged = second;
  forged.fence = first.fence;
  assert_status(brim_store_beat(store, &forged, NULL, &reply), BRIM_ESTATE);
  forged.fence = second.fence + 1;
  assert_status(brim_store_beat(store, &forged, NULL, &reply), BRIM_ESTATE);
  // Both leases have ended, but only the second worker can come back.
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  forged = first;
  forged.fence = second.fence;
  assert_status(brim_store_beat(store, &forged, NULL, &reply), BRIM_ESTATE);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_QUEUED);
  assert_ok(brim_store_beat(store, &second, NULL, &reply));
}

// --- leases

static void test_beats_keep_the_lease(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_claim(store, 1);
  brim_store_beat_reply reply;
  int64_t expired;
  for (int i = 0; i < 5; i++) {
    lab_clock_ms += LAB_LEASE_MS - 1;
    assert_ok(brim_store_reap(store, &expired));
    assert_int_equal(expired, 0);
    brim_store_progress p = {.step = i, .steps = 50, .epoch = -1, .epochs = -1};
    assert_ok(brim_store_beat(store, &ref, &p, &reply));
    assert_int_equal(reply.lease_ms, LAB_LEASE_MS);
    assert_int_equal(reply.want, BRIM_WANT_RUN);
    if (i == 2) assert_ok(brim_store_start(store, &ref, 11, -1));
  }
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->step, 4);
  assert_int_equal(exp->steps, 50);
  assert_int_equal(exp->epoch, -1);
  assert_int_equal(exp->epochs, 10);
  brim_store_exp_free(exp);
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 1);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_QUEUED);
}

static void test_attempt_is_adopted_again(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 4);
  brim_store_ref refs[4];
  for (int i = 0; i < 4; i++) refs[i] = lab_run(store, i + 1);
  lab_clock_ms += LAB_LEASE_MS;
  int64_t expired;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 4);
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->infra_left, LAB_INFRA - 1);
  assert_string_equal(exp->failure, "infrastructure");
  assert_string_equal(exp->worker, "");
  brim_store_exp_free(exp);

  brim_store_beat_reply reply;
  assert_ok(brim_store_beat(store, &refs[0], NULL, &reply));
  exp = stored(1);
  assert_int_equal(exp->state, BRIM_EXP_RUNNING);
  assert_int_equal(exp->infra_left, LAB_INFRA);
  assert_int_equal(exp->lease_until, lab_clock_ms + LAB_LEASE_MS);
  assert_string_equal(exp->worker, "w1");
  assert_string_equal(exp->failure, "none");
  brim_store_exp_free(exp);
  // A result also counts after the lease has ended: the work is done.
  assert_int_equal(lab_finish(store, &refs[1], BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  // But not if the user decided otherwise in between.
  char id[BRIM_EXP_ID];
  assert_ok(brim_store_want(store, lab_id(3, id), BRIM_WANT_CANCEL));
  assert_status(brim_store_beat(store, &refs[2], NULL, &reply), BRIM_ESTATE);
  assert_ok(brim_store_want(store, lab_id(4, id), BRIM_WANT_PAUSE));
  assert_status(brim_store_beat(store, &refs[3], NULL, &reply), BRIM_ESTATE);
}

static void test_grace_after_opening(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  lab_run(store, 1);
  brim_store_close(store);
  lab_clock_ms += 10 * LAB_LEASE_MS;
  brim_store_options options = lab_options(&place);
  options.grace_ms = 0;  // the lease ends
  store = NULL;
  assert_ok(brim_store_open(place.place, &options, &store));
  int64_t expired;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 0);
  lab_clock_ms += LAB_LEASE_MS - 1;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 0);
  lab_clock_ms += 1;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 1);
}

static void test_reap_many(void **state) {
  (void)state;
  enum { COUNT = 150 };
  lab_submit(store, "g", 1, COUNT);
  for (int i = 1; i <= COUNT; i++) lab_claim(store, i);
  lab_clock_ms += LAB_LEASE_MS;
  int64_t expired;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, COUNT);
}

// --- retries

static void test_failures_that_count(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  for (int i = 0; i < 2; i++) {
    brim_store_ref ref = lab_run(store, 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH),
                     BRIM_EXP_QUEUED);
    brim_store_exp *exp = stored(1);
    assert_int_equal(exp->tries_left, 1 - i);
    assert_int_equal(exp->infra_left, LAB_INFRA);
    assert_int_equal(exp->not_before, lab_clock_ms + (LAB_BACKOFF_MS << i));
    assert_string_equal(exp->failure, "crash");
    assert_string_equal(exp->reason, "why");
    assert_string_equal(exp->last_lines, "last");
    lab_clock_ms = exp->not_before - 1;
    brim_store_exp_free(exp);
    char claim_id[16];
    snprintf(claim_id, sizeof claim_id, "early%d", i);
    brim_store_ref none = claim_any(claim_id, 8, -1, NULL);
    assert_string_equal(none.exp, "");
    lab_clock_ms++;
  }
  brim_store_ref ref = lab_run(store, 1);
  assert_int_equal(ref.attempt, 3);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_HUNG), BRIM_EXP_FAILED);
}

static void test_failures_that_come_again(void **state) {
  (void)state;
  static const brim_failure never[] = {BRIM_FAILURE_OOM_PLANNED, BRIM_FAILURE_OOM_DEVICE,
                                       BRIM_FAILURE_OOM_HOST,    BRIM_FAILURE_NAN,
                                       BRIM_FAILURE_DATA,        BRIM_FAILURE_BAD_CONFIG,
                                       BRIM_FAILURE_UNSUPPORTED, BRIM_FAILURE_SHARED_MEMORY};
  enum { COUNT = sizeof never / sizeof *never };
  lab_submit(store, "g", 1, COUNT);
  for (int i = 0; i < COUNT; i++) {
    brim_store_ref ref = lab_run(store, i + 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, never[i]), BRIM_EXP_FAILED);
    brim_store_exp *exp = stored(i + 1);
    assert_string_equal(exp->failure, brim_failure_name(never[i]));
    assert_int_equal(exp->tries_left, 2);
    brim_store_exp_free(exp);
  }
}

static void test_infrastructure_is_free_but_bounded(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  for (int i = 0; i < LAB_INFRA; i++) {
    brim_store_ref ref = lab_run(store, 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_ERROR,
                                i % 2 ? BRIM_FAILURE_KILLED : BRIM_FAILURE_INFRASTRUCTURE),
                     BRIM_EXP_QUEUED);
    brim_store_exp *exp = stored(1);
    assert_int_equal(exp->tries_left, 2);
    assert_int_equal(exp->infra_left, LAB_INFRA - 1 - i);
    lab_clock_ms = exp->not_before;
    brim_store_exp_free(exp);
  }
  // A new checkpoint is progress: all retries are available again. An old one is no progress.
  brim_store_ref ref = lab_run(store, 1);
  assert_ok(brim_store_checkpoint(store, &ref, 10));
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->infra_left, LAB_INFRA);
  assert_int_equal(exp->ckpt_step, 10);
  brim_store_exp_free(exp);
  for (int i = 0; i < LAB_INFRA; i++) {
    lab_clock_ms += LAB_LEASE_MS;
    assert_ok(brim_store_reap(store, NULL));
    assert_int_equal(lab_state(store, 1), BRIM_EXP_QUEUED);
    ref = lab_run(store, 1);
    assert_ok(brim_store_checkpoint(store, &ref, 10));
  }
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  exp = stored(1);
  assert_int_equal(exp->state, BRIM_EXP_FAILED);
  assert_string_equal(exp->failure, "infrastructure");
  assert_non_null(strstr(exp->reason, "without a new checkpoint"));
  assert_int_equal(exp->tries_left, 2);
  brim_store_exp_free(exp);
  // Its last worker learns that.
  brim_store_beat_reply reply;
  assert_status(brim_store_beat(store, &ref, NULL, &reply), BRIM_ESTATE);
}

static void test_clean_stop_costs_nothing(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  for (int i = 0; i < 2 * LAB_INFRA; i++) {
    brim_store_ref ref = lab_run(store, 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE),
                     BRIM_EXP_QUEUED);
  }
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->tries_left, 2);
  assert_int_equal(exp->infra_left, LAB_INFRA);
  assert_int_equal(exp->not_before, 0);
  brim_store_exp_free(exp);
}

// Pauses and waits before a retry do not count as running time.
static void test_time_is_that_of_attempts(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->ran_ms, 0);
  assert_int_equal(exp->since, 0);
  brim_store_exp_free(exp);
  brim_store_ref ref = lab_run(store, 1);
  lab_clock_ms += 30;
  lab_finish(store, &ref, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE);
  lab_clock_ms += 5000;
  ref = lab_claim(store, 1);  // some time passes before this one starts
  lab_clock_ms += 4;
  exp = stored(1);
  assert_int_equal(exp->since, lab_clock_ms - 4);
  brim_store_exp_free(exp);
  assert_ok(brim_store_start(store, &ref, 1, -1));
  lab_clock_ms += 10;
  exp = stored(1);
  assert_int_equal(exp->ran_ms, 30);
  assert_int_equal(exp->since, lab_clock_ms - 10);
  assert_int_equal(brim_store_exp_ran_ms(exp, lab_clock_ms), 40);
  assert_int_equal(brim_store_exp_ran_ms(exp, 1), 30);
  brim_store_exp_free(exp);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  exp = stored(1);
  assert_int_equal(exp->ran_ms, 40);
  assert_int_equal(exp->since, 0);
  assert_int_equal(brim_store_exp_ran_ms(exp, lab_clock_ms + 77), 40);
  assert_true(exp->ended - exp->started > 5000);
  brim_store_exp_free(exp);
}

static void test_finish_may_be_repeated(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_result error = {BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH, 139, "segfault", "", NULL};
  brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
  brim_exp_state became;
  assert_ok(brim_store_finish(store, &ref, &error, &became));
  assert_ok(brim_store_finish(store, &ref, &error, &became));
  assert_int_equal(became, BRIM_EXP_QUEUED);
  brim_store_exp *exp = stored(1);
  assert_int_equal(exp->tries_left, 1);
  lab_clock_ms = exp->not_before;
  brim_store_exp_free(exp);
  assert_status(brim_store_finish(store, &ref, &ok, &became), BRIM_ESTATE);
  // Also after the next attempt has begun.
  brim_store_ref next = lab_run(store, 1);
  assert_ok(brim_store_finish(store, &ref, &error, &became));
  assert_int_equal(became, BRIM_EXP_RUNNING);
  assert_ok(brim_store_finish(store, &next, &ok, &became));
  assert_ok(brim_store_finish(store, &next, &ok, &became));
  assert_int_equal(became, BRIM_EXP_DONE);
  assert_status(brim_store_finish(store, &next, &error, NULL), BRIM_ESTATE);
}

static void test_finish_refuses_contradictions(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  static const brim_store_result bad[] = {
      {.outcome = BRIM_ATTEMPT_OPEN},
      {.outcome = BRIM_ATTEMPT_EXPIRED, .failure = BRIM_FAILURE_INFRASTRUCTURE},
      {.outcome = BRIM_ATTEMPT_COUNT},
      {.outcome = BRIM_ATTEMPT_ERROR},
      {.outcome = BRIM_ATTEMPT_OK, .failure = BRIM_FAILURE_NAN},
      {.outcome = BRIM_ATTEMPT_ERROR, .failure = BRIM_FAILURE_COUNT},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_status(brim_store_finish(store, &ref, &bad[i], NULL), BRIM_EINVAL);
  }
  assert_int_equal(lab_state(store, 1), BRIM_EXP_RUNNING);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_submit_adds_only_what_is_missing),
      TEST(test_submit_fills_in_needs),
      TEST(test_submit_twice_in_one_list),
      TEST(test_grids_share_experiments),
      TEST(test_submit_is_all_or_nothing),
      TEST(test_claim_order),
      TEST(test_claim_fits_resources),
      TEST(test_repeated_claim_gets_the_same_attempt),
      TEST(test_claim_refuses_bad_requests),
      TEST(test_stale_attempts_change_nothing),
      TEST(test_half_of_a_reference_is_not_enough),
      TEST(test_beats_keep_the_lease),
      TEST(test_attempt_is_adopted_again),
      TEST(test_grace_after_opening),
      TEST(test_reap_many),
      TEST(test_failures_that_count),
      TEST(test_failures_that_come_again),
      TEST(test_infrastructure_is_free_but_bounded),
      TEST(test_clean_stop_costs_nothing),
      TEST(test_time_is_that_of_attempts),
      TEST(test_finish_may_be_repeated),
      TEST(test_finish_refuses_contradictions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
