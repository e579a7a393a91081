// Stores for tests, and the invariants of every store at any time.
#include "lab_test.h"

#include <sys/stat.h>
#include <unistd.h>

#define CLOCK_START_MS 1000000000000

static bool postgres;
int64_t lab_clock_ms = CLOCK_START_MS;
int lab_infra = LAB_INFRA;

void lab_choose(int argc, char **argv) {
  postgres = argc > 1 && strcmp(argv[1], "postgres") == 0;
  if (postgres && !getenv("BRIM_TEST_POSTGRES")) {
    BRIM_SKIP_ALL("no PostgreSQL server is given (tests/lab/with_postgres starts one)");
  }
}

bool lab_is_postgres(void) { return postgres; }

void lab_new_place(lab_place *out) {
  static int count;
  count++;
  memset(out, 0, sizeof *out);
  if (postgres) {
    snprintf(out->place, sizeof out->place, "%s", getenv("BRIM_TEST_POSTGRES"));
    snprintf(out->schema, sizeof out->schema, "t%ld_%d", (long)getpid(), count);
    return;
  }
  // An earlier run of the program may have left stores.
  if (count == 1 && system("rm -rf stores") != 0) fail_msg("cannot remove old stores");
  snprintf(out->place, sizeof out->place, "stores/%d", count);
  snprintf(out->schema, sizeof out->schema, "brim");
}

static int64_t test_clock(void *ctx) {
  (void)ctx;
  return lab_clock_ms;
}

brim_store_options lab_options(const lab_place *place) {
  return (brim_store_options){.lease_ms = LAB_LEASE_MS,
                              .grace_ms = -1,
                              .backoff_ms = LAB_BACKOFF_MS,
                              .infra_tries = LAB_INFRA,
                              .schema = place->schema,
                              .clock = test_clock};
}

brim_store *lab_open(const lab_place *place) {
  brim_store_options options = lab_options(place);
  brim_store *store = NULL;
  assert_ok(brim_store_open(place->place, &options, &store));
  return store;
}

brim_store *lab_fresh(lab_place *out) {
  lab_clock_ms = CLOCK_START_MS;
  lab_new_place(out);
  return lab_open(out);
}

char *lab_file(const lab_place *place, const char *suffix, char out[600]) {
  snprintf(out, 600, "%s/" BRIM_STORE_FILE "%s", place->place, suffix);
  return out;
}

int lab_count(const char *where, const char *schema) {
  brim_store_options o = {.readonly = true, .schema = schema};
  brim_store *store = NULL;
  brim_store_counts counts;
  assert_ok(brim_store_open(where, &o, &store));
  assert_ok(brim_store_count(store, NULL, &counts));
  brim_store_close(store);
  return (int)counts.total;
}

const char *lab_id(int n, char out[BRIM_EXP_ID]) {
  snprintf(out, BRIM_EXP_ID, "%032x", (unsigned)n);
  return out;
}

void lab_submit(brim_store *store, const char *grid, int from, int count) {
  brim_store_point *points = calloc((size_t)count, sizeof *points);
  char(*ids)[BRIM_EXP_ID] = calloc((size_t)count, sizeof *ids);
  assert_non_null(points);
  assert_non_null(ids);
  for (int i = 0; i < count; i++) {
    points[i] = (brim_store_point){.id = lab_id(from + i, ids[i]),
                                   .idx = i,
                                   .label = "lr=0.1",
                                   .config = "{\"lr\": 0.1}",
                                   .metric_key = "loss",
                                   .gpus = 1,
                                   .need_bytes = 1000,
                                   .tries = 2,
                                   .steps = 100,
                                   .epochs = 10};
  }
  brim_store_grid g = {grid, "name", "lr: [0.1]", "test"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &g, points, (size_t)count, &out));
  assert_int_equal(out.added + out.existing, count);
  free(ids);
  free(points);
}

brim_store_ref lab_claim(brim_store *store, int n) {
  static int claims;
  char id[BRIM_EXP_ID], claim_id[64];
  snprintf(claim_id, sizeof claim_id, "c-%ld-%d", (long)getpid(), ++claims);
  brim_store_request request = {
      .worker = "w1", .claim_id = claim_id, .exp = lab_id(n, id), .free_gpus = 8, .free_bytes = -1};
  brim_store_claimed claimed;
  assert_ok(brim_store_claim(store, &request, &claimed));
  assert_non_null(claimed.exp);
  assert_string_equal(claimed.ref.exp, id);
  assert_string_equal(claimed.exp->id, id);
  brim_store_exp_free(claimed.exp);
  return claimed.ref;
}

brim_store_ref lab_run(brim_store *store, int n) {
  brim_store_ref ref = lab_claim(store, n);
  assert_ok(brim_store_start(store, &ref, 4711, -1));
  return ref;
}

brim_exp_state lab_state(brim_store *store, int n) {
  char id[BRIM_EXP_ID];
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, lab_id(n, id), &exp));
  brim_exp_state state = exp->state;
  brim_store_exp_free(exp);
  return state;
}

brim_exp_state lab_finish(brim_store *store, const brim_store_ref *ref,
                          brim_attempt_outcome outcome, brim_failure failure) {
  brim_store_result result = {outcome, failure, outcome == BRIM_ATTEMPT_OK ? 0 : 1,
                              "why",   "last",  NULL};
  brim_exp_state state = BRIM_EXP_STATE_COUNT;
  assert_ok(brim_store_finish(store, ref, &result, &state));
  return state;
}

enum { MAX_CHECKED = 4096 };

typedef struct check {
  brim_store_exp exps[MAX_CHECKED];
  char ids[MAX_CHECKED][BRIM_EXP_ID];
  int count;
  int open, ok;  // attempts of one experiment
  int64_t n, last_fence;
  brim_attempt_outcome last;
  int64_t seq;
} check;

static brim_status collect(void *ctx, const brim_store_exp *exp) {
  check *c = ctx;
  assert_true(c->count < MAX_CHECKED);
  snprintf(c->ids[c->count], BRIM_EXP_ID, "%s", exp->id);
  c->exps[c->count++] = *exp;  // only its numbers, because the texts end with the call
  return BRIM_OK;
}

static brim_status check_attempt(void *ctx, const brim_store_attempt *a) {
  check *c = ctx;
  assert_int_equal(a->n, ++c->n);
  assert_true(a->fence > c->last_fence);
  c->last_fence = a->fence;
  c->last = a->outcome;
  c->open += a->outcome == BRIM_ATTEMPT_OPEN;
  c->ok += a->outcome == BRIM_ATTEMPT_OK;
  assert_true((a->outcome == BRIM_ATTEMPT_OPEN) == (a->ended == 0));
  return BRIM_OK;
}

static brim_status check_event(void *ctx, const brim_store_event *event) {
  check *c = ctx;
  assert_int_equal(event->seq, ++c->seq);
  return BRIM_OK;
}

static void check_exp(brim_store *store, check *c, int i) {
  const brim_store_exp *e = &c->exps[i];
  c->open = c->ok = 0;
  c->n = c->last_fence = 0;
  c->last = BRIM_ATTEMPT_COUNT;
  assert_ok(brim_store_attempts(store, c->ids[i], check_attempt, c));
  bool live = e->state == BRIM_EXP_LEASED || e->state == BRIM_EXP_RUNNING;
  bool ended =
      e->state == BRIM_EXP_DONE || e->state == BRIM_EXP_FAILED || e->state == BRIM_EXP_CANCELLED;
  assert_int_equal(c->n, e->attempt);
  assert_int_equal(c->last_fence, e->fence);
  assert_int_equal(c->open, live);
  if (live) assert_int_equal(c->last, BRIM_ATTEMPT_OPEN);
  assert_int_equal(c->ok, e->state == BRIM_EXP_DONE);
  assert_true(live == (e->lease_until > 0));
  assert_true(ended == (e->ended > 0));
  assert_true(live || e->want == BRIM_WANT_RUN);
  assert_in_range(e->tries_left, 0, e->tries);
  assert_in_range(e->infra_left, 0, lab_infra);
}

void lab_check(brim_store *store) {
  check *c = calloc(1, sizeof *c);
  assert_non_null(c);
  assert_ok(brim_store_list(store, NULL, collect, c));
  for (int i = 0; i < c->count; i++) check_exp(store, c, i);
  assert_ok(brim_store_events(store, 0, 0, check_event, c));
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, c->count);
  free(c);
}
