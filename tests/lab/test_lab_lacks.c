// Workers that lack something an experiment needs, on SQLite and on PostgreSQL alike: other workers get the experiment.
#include "store_test.h"

static void see(const char *worker) {
  assert_ok(brim_store_worker_seen(
      store, &(brim_store_worker){.id = worker, .host = "h", .gpus = "1", .version = "0.1"}));
}

// The experiment that the worker gets; 0: none.
static int claim(const char *worker, brim_store_ref *ref) {
  static int claims;
  char claim_id[64], id[BRIM_EXP_ID];
  snprintf(claim_id, sizeof claim_id, "lacks-%d", ++claims);
  brim_store_claimed c;
  assert_ok(brim_store_claim(
      store,
      &(brim_store_request){
          .worker = worker, .claim_id = claim_id, .free_gpus = 1, .free_bytes = -1},
      &c));
  *ref = c.ref;
  brim_store_exp_free(c.exp);
  for (int n = 1; n <= 100 && c.ref.exp[0]; n++) {
    if (strcmp(lab_id(n, id), c.ref.exp) == 0) return n;
  }
  assert_string_equal(c.ref.exp, "");
  return 0;
}

// Claims experiment n and fails with this class; returns the experiment's new state. Asserts that the claim gets n.
static brim_exp_state end_in(const char *worker, int n, brim_failure failure) {
  brim_store_ref ref;
  assert_int_equal(claim(worker, &ref), n);
  assert_ok(brim_store_start(store, &ref, 4711, -1));
  return lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, failure);
}

static void test_another_worker_gets_it(void **state) {
  (void)state;
  static const brim_failure lacks[] = {BRIM_FAILURE_DATA, BRIM_FAILURE_UNSUPPORTED};
  see("a");
  see("b");
  for (int i = 0; i < 2; i++) {
    brim_store_ref ref;
    lab_submit(store, i ? "h" : "g", i + 1, 1);
    assert_int_equal(end_in("a", i + 1, lacks[i]), BRIM_EXP_QUEUED);
    brim_store_exp *exp = NULL;
    char id[BRIM_EXP_ID];
    assert_ok(brim_store_get(store, lab_id(i + 1, id), &exp));
    assert_int_equal(exp->tries_left, 2);  // no try was used up
    assert_int_equal(exp->not_before, 0);
    assert_string_equal(exp->reason, "why");
    brim_store_exp_free(exp);
    assert_int_equal(claim("a", &ref), 0);
    assert_int_equal(claim("b", &ref), i + 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  }
}

static void test_it_fails_when_all_lack_it(void **state) {
  (void)state;
  see("a");
  see("b");
  see("c");
  // a draining worker claims nothing, so the experiment cannot wait for it
  assert_ok(brim_store_drain(store, "c", true));
  lab_submit(store, "g", 1, 2);
  assert_int_equal(end_in("a", 1, BRIM_FAILURE_DATA), BRIM_EXP_QUEUED);
  assert_int_equal(end_in("b", 1, BRIM_FAILURE_DATA), BRIM_EXP_FAILED);
  // Other failures belong to the experiment.
  assert_int_equal(end_in("a", 2, BRIM_FAILURE_NAN), BRIM_EXP_FAILED);
}

static void test_one_worker_alone_fails_it(void **state) {
  (void)state;
  brim_store_ref ref;
  see("a");
  see("b");
  lab_submit(store, "g", 1, 1);
  assert_int_equal(end_in("a", 1, BRIM_FAILURE_DATA), BRIM_EXP_QUEUED);
  assert_int_equal(claim("a", &ref), 0);
  for (int i = 0; i < 3; i++) {  // b disappears; a stays
    lab_clock_ms += BRIM_WORKER_GONE_MS / 2;
    see("a");
  }
  assert_int_equal(end_in("a", 1, BRIM_FAILURE_DATA), BRIM_EXP_FAILED);
}

// An experiment stops waiting for a worker at once when that worker leaves, and waits for it again when it is back.
static void test_one_that_left_is_no_hope(void **state) {
  (void)state;
  brim_store_ref ref;
  see("a");
  see("b");
  lab_submit(store, "g", 1, 1);
  assert_int_equal(end_in("a", 1, BRIM_FAILURE_DATA), BRIM_EXP_QUEUED);
  assert_int_equal(claim("a", &ref), 0);
  const brim_store_worker b = {.id = "b", .host = "h", .gpus = "", .version = "", .left = true};
  assert_ok(brim_store_worker_seen(store, &b));
  assert_int_equal(claim("a", &ref), 1);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE),
                   BRIM_EXP_QUEUED);
  see("b");
  assert_int_equal(claim("a", &ref), 0);
}

static void test_a_pause_and_a_cancel_count(void **state) {
  (void)state;
  static const struct {
    brim_exp_want want;
    brim_exp_state becomes;
  } cases[] = {{BRIM_WANT_PAUSE, BRIM_EXP_PAUSED}, {BRIM_WANT_CANCEL, BRIM_EXP_CANCELLED}};
  see("a");
  see("b");
  for (int i = 0; i < 2; i++) {
    brim_store_ref ref;
    lab_submit(store, "g", i + 1, 1);
    assert_int_equal(claim("a", &ref), i + 1);
    assert_ok(brim_store_want(store, ref.exp, cases[i].want));
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_DATA),
                     cases[i].becomes);
  }
}

typedef struct counting {
  const char *worker;
  bool grids;
  int64_t count;
} counting;

static brim_status count_lack(void *ctx, const brim_store_lack *lack) {
  counting *c = ctx;
  c->count += strcmp(lack->worker, c->worker) == 0 && lack->grid == c->grids;
  return BRIM_OK;
}

static int64_t lacking(const char *worker, bool grids) {
  counting c = {worker, grids, 0};
  assert_ok(brim_store_lacks(store, 0, count_lack, &c));
  return c.count;
}

static void test_three_of_a_grid_are_enough(void **state) {
  (void)state;
  brim_store_ref ref;
  see("a");
  see("b");
  lab_submit(store, "g", 1, 10);
  for (int n = 1; n <= 3; n++) {
    assert_int_equal(lacking("a", true), 0);
    assert_int_equal(end_in("a", n, BRIM_FAILURE_DATA), BRIM_EXP_QUEUED);
  }
  assert_int_equal(lacking("a", true), 1);
  assert_int_equal(lacking("a", false), 3);
  assert_int_equal(lacking("b", true), 0);
  assert_int_equal(claim("a", &ref), 0);  // and 4 to 10
  lab_submit(store, "other", 11, 1);
  assert_int_equal(claim("a", &ref), 11);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  assert_int_equal(claim("b", &ref), 1);
}

static void test_when_it_is_forgotten(void **state) {
  (void)state;
  char id[BRIM_EXP_ID];
  brim_store_ref ref;
  for (int how = 0; how < 4; how++) {
    see("a");
    see("b");
    lab_submit(store, "g", 1, 4);
    for (int n = 1; n <= 3; n++)
      assert_int_equal(end_in("a", n, BRIM_FAILURE_DATA), BRIM_EXP_QUEUED);
    assert_int_equal(claim("a", &ref), 0);
    if (how == 0) {
      assert_ok(brim_store_retry(store, lab_id(1, id)));
    } else if (how == 1) {
      assert_ok(brim_store_drain(store, "a", true));
      assert_ok(brim_store_drain(store, "a", false));
    } else if (how == 2) {
      assert_ok(brim_store_retry_failed(store, "g", NULL));
    } else {
      lab_clock_ms += BRIM_WORKER_GONE_MS + 1;
      see("b");
      see("a");
    }
    assert_int_equal(claim("a", &ref), 1);
    assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE),
                     BRIM_EXP_QUEUED);
    assert_ok(brim_store_drain(store, "a", false));
  }
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      TEST(test_another_worker_gets_it),    TEST(test_it_fails_when_all_lack_it),
      TEST(test_one_worker_alone_fails_it), TEST(test_a_pause_and_a_cancel_count),
      TEST(test_one_that_left_is_no_hope),  TEST(test_three_of_a_grid_are_enough),
      TEST(test_when_it_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
