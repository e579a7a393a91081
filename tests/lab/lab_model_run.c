// Calls on a store, or on a server of it, and on its model. See lab_model_run.h.
#include "lab_model_run.h"

#include <math.h>

#include "lab/pool/lab_pool.h"
#include "lab/wire/lab_wire_link.h"
#include "lab_model.h"

int (*model_below)(int n);
bool model_over_http;

static lab_place place;
static brim_store *store;
static brim_lab_pool *pool;
static brim_lab_link *served;  // link to the server; NULL: call the store directly
static model m;
static char last_call[160];

static int below(int n) { return model_below(n); }

// Makes a call of the store, or the same through the server.
#define VIA(name, ...) \
  (served ? brim_lab_##name(served, __VA_ARGS__) : brim_store_##name(store, __VA_ARGS__))

#define CALL(...) snprintf(last_call, sizeof last_call, __VA_ARGS__)

static void expect(bool same, const char *what) {
  if (!same) fail_msg("%s differs after: %s (%s)", what, last_call, brim_status_detail());
}

// --- comparing

typedef struct compared {
  int exp;
  int attempts;
  int metrics;
} compared;

static brim_status same_attempt(void *ctx, const brim_store_attempt *a) {
  compared *c = ctx;
  for (int i = 0; i < m.attempt_count; i++) {
    const model_attempt *b = &m.attempts[i];
    if (b->exp != c->exp || b->n != a->n) continue;
    expect(a->fence == b->fence && strcmp(a->claim_id, b->claim_id) == 0, "an attempt");
    expect(a->outcome == b->outcome, "an outcome");
    expect(strcmp(a->failure, brim_failure_name(b->failure)) == 0, "a class of failure");
    expect(a->from_step == b->from_step, "the first step");
    c->attempts++;
  }
  return BRIM_OK;
}

static brim_status same_metric(void *ctx, const brim_store_metric *row, int64_t attempt) {
  compared *c = ctx;
  const model_exp *e = &m.exps[c->exp];
  expect(row->step >= 0 && row->step < MODEL_STEPS && e->values[row->step] == row->value &&
             e->by[row->step] == attempt,
         "a metric");
  c->metrics++;
  return BRIM_OK;
}

static brim_status same_exp(void *ctx, const brim_store_exp *a) {
  int *count = ctx;
  int i = (int)strtol(a->id + 24, NULL, 16) - 1;
  assert_in_range(i, 0, MODEL_EXPS - 1);
  const model_exp *b = &m.exps[i];
  expect(b->there, "the list");
  expect(a->state == b->state, "a state");
  expect(a->want == b->want, "a want");
  expect(a->fence == b->fence && a->attempt == b->attempt, "a fence");
  expect(a->tries_left == b->tries_left && a->infra_left == b->infra_left, "retries left");
  expect(a->not_before == b->not_before, "a back-off");
  expect(a->lease_until == b->lease_until, "a lease");
  expect(a->ckpt_step == b->ckpt_step && a->step == b->step, "progress");
  expect(a->priority == b->priority && a->created == b->created, "an order");
  expect(isnan(a->metric) ? isnan(b->metric) != 0 : a->metric == b->metric, "the metric shown");
  ++*count;
  return BRIM_OK;
}

void model_compare(void) {
  int count = 0, there = 0;
  static const brim_store_filter all = {0};
  assert_ok(VIA(list, &all, same_exp, &count));
  for (int i = 0; i < MODEL_EXPS; i++) there += m.exps[i].there;
  expect(count == there, "the number of experiments");
}

void model_compare_all(void) {
  model_compare();
  for (int i = 0; i < MODEL_EXPS; i++) {
    if (!m.exps[i].there) continue;
    char id[BRIM_EXP_ID];
    compared c = {.exp = i};
    lab_id(i + 1, id);
    assert_ok(VIA(attempts, id, same_attempt, &c));
    expect(c.attempts == m.exps[i].attempt, "the number of attempts");
    assert_ok(served ? brim_lab_read_metrics(served, id, NULL, 0, same_metric, &c)
                     : brim_store_read_metrics(store, id, NULL, same_metric, &c));
    int values = 0;
    for (int s = 0; s < MODEL_STEPS; s++) values += !isnan(m.exps[i].values[s]);
    expect(c.metrics == values, "the number of metrics");
  }
  for (int i = 0; i < m.attempt_count; i++) {
    char id[BRIM_EXP_ID];
    int64_t size;
    assert_ok(brim_store_log_size(store, lab_id(m.attempts[i].exp + 1, id), m.attempts[i].n, "out",
                                  &size));
    expect(size == m.attempts[i].log, "a log's size");
  }
  lab_check(store);
}

// --- calls

static void do_submit(void) {
  unsigned set = (unsigned)below(1 << MODEL_EXPS);
  brim_store_point points[MODEL_EXPS];
  char ids[MODEL_EXPS][BRIM_EXP_ID];
  size_t count = 0;
  for (int i = 0; i < MODEL_EXPS; i++) {
    if (!(set >> i & 1)) continue;
    points[count] = (brim_store_point){.id = lab_id(i + 1, ids[count]),
                                       .idx = i,
                                       .config = "a",
                                       .gpus = i % 3,
                                       .tries = MODEL_TRIES,
                                       .metric_key = "v"};
    count++;
  }
  CALL("submit %x", set);
  brim_store_submitted out;
  // into the store directly, because a server refuses ids that do not match their configs
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, points, count, &out));
  expect(out.added == model_submit(&m, set), "the number added");
}

static void do_claim(void) {
  char claim_id[32];
  int64_t gpus = below(4);
  if (m.attempt_count > 0 && below(5) == 0) {  // a repeated claim
    snprintf(claim_id, sizeof claim_id, "%s", m.attempts[below(m.attempt_count)].claim_id);
  } else {
    snprintf(claim_id, sizeof claim_id, "c%d-%d", m.attempt_count, below(1 << 30));
  }
  CALL("claim %s, %d GPUs", claim_id, (int)gpus);
  brim_store_claimed c;
  assert_ok(VIA(claim,
                &(brim_store_request){
                    .worker = "w", .claim_id = claim_id, .free_gpus = gpus, .free_bytes = -1},
                &c));
  int a = model_claim(&m, claim_id, gpus);
  expect((c.exp != NULL) == (a >= 0), "whether something is claimed");
  if (a >= 0) {
    char id[BRIM_EXP_ID];
    lab_id(m.attempts[a].exp + 1, id);
    expect(strcmp(c.ref.exp, id) == 0 && c.ref.attempt == m.attempts[a].n &&
               c.ref.fence == m.attempts[a].fence,
           "the attempt claimed");
  }
  brim_store_exp_free(c.exp);
}

// Chooses mostly one of the last attempts, sometimes any; sometimes with another one's fence.
static int pick_attempt(brim_store_ref *ref) {
  int a = below(3) ? m.attempt_count - 1 - below(m.attempt_count < 6 ? m.attempt_count : 6)
                   : below(m.attempt_count);
  lab_id(m.attempts[a].exp + 1, ref->exp);
  ref->attempt = m.attempts[a].n;
  ref->fence = m.attempts[a].fence + (below(12) == 0 ? below(3) - 1 : 0);
  return a;
}

static void do_finish(int a, const brim_store_ref *ref) {
  static const brim_failure failures[] = {BRIM_FAILURE_CRASH,  BRIM_FAILURE_NAN,
                                          BRIM_FAILURE_KILLED, BRIM_FAILURE_INFRASTRUCTURE,
                                          BRIM_FAILURE_HUNG,   BRIM_FAILURE_OOM_DEVICE};
  static const brim_attempt_outcome outcomes[] = {BRIM_ATTEMPT_OK, BRIM_ATTEMPT_ERROR,
                                                  BRIM_ATTEMPT_ERROR, BRIM_ATTEMPT_STOPPED};
  brim_store_result r = {.outcome = outcomes[below(4)], .exit_code = below(2)};
  if (r.outcome == BRIM_ATTEMPT_ERROR) r.failure = failures[below(6)];
  brim_exp_state x = BRIM_EXP_QUEUED, y = BRIM_EXP_QUEUED;
  CALL("finish %s %d, fence %d, %s %s", ref->exp + 28, (int)ref->attempt, (int)ref->fence,
       brim_attempt_outcome_name(r.outcome), brim_failure_name(r.failure));
  brim_status s = VIA(finish, ref, &r, &x), t = model_finish(&m, a, ref->fence, &r, &y);
  expect(s == t, "the status");
  if (!s) expect(x == y, "the new state");
}

static void do_write(void) {
  if (m.attempt_count == 0) return;
  brim_store_ref ref;
  int a = pick_attempt(&ref), kind = below(6);
  int64_t value = below(MODEL_STEPS), seq = m.attempts[a].seq + below(3);
  brim_status s = BRIM_OK, t = BRIM_OK;
  CALL("write %d of %s %d, fence %d, %d", kind, ref.exp + 28, (int)ref.attempt, (int)ref.fence,
       (int)value);
  if (kind == 0) {
    int64_t from = below(4) ? -1 : value;
    s = VIA(start, &ref, 1, from);
    t = model_start(&m, a, ref.fence, from);
  } else if (kind == 1) {
    brim_store_progress p = {below(3) ? value : -1, -1, -1, -1};
    brim_store_beat_reply reply;
    brim_exp_want want = BRIM_WANT_RUN;
    s = VIA(beat, &ref, &p, &reply);
    t = model_beat(&m, a, ref.fence, p.step, &want);
    if (!s && !t) expect(reply.want == want, "what is wanted");
  } else if (kind == 2) {
    brim_store_metric row = {"v", value, (double)below(1000) / 7};
    if (seq == 0) seq = 1;
    s = VIA(metrics, &ref, seq, &row, 1);
    t = model_metric(&m, a, ref.fence, seq, value, row.value);
  } else if (kind == 3) {
    s = VIA(log, &ref, "out", value);
    t = model_log(&m, a, ref.fence, value);
  } else if (kind == 4) {
    s = VIA(checkpoint, &ref, value);
    t = model_checkpoint(&m, a, ref.fence, value);
  } else {
    do_finish(a, &ref);
  }
  expect(s == t, "the status");
}

static void do_control(void) {
  char id[BRIM_EXP_ID];
  int e = below(MODEL_EXPS), kind = below(8);
  lab_id(e + 1, id);
  CALL("control %d of %s", kind, id + 28);
  if (kind < 3) {
    expect(VIA(want, id, (brim_exp_want)kind) == model_want(&m, e, (brim_exp_want)kind),
           "the status");
  } else if (kind < 6) {
    expect(VIA(retry, id) == model_retry(&m, e), "the status");
  } else if (kind == 6) {
    int64_t count;
    assert_ok(VIA(retry_failed, below(2) ? "g" : NULL, &count));
    expect(count == model_retry_failed(&m), "the number retried");
  } else {
    int64_t p = below(3) - 1;
    expect(VIA(set_priority, id, p) == model_priority(&m, e, p), "the status");
  }
}

static void do_time(void) {
  static const int64_t jumps[] = {1, LAB_BACKOFF_MS, LAB_LEASE_MS / 2, LAB_LEASE_MS,
                                  10 * LAB_LEASE_MS};
  int64_t jump = jumps[below(5)];
  lab_clock_ms += jump;
  m.now = lab_clock_ms;
  CALL("%d ms later", (int)jump);
}

static void do_reap(void) {
  int64_t expired;
  CALL("reap");
  assert_ok(brim_store_reap(store, &expired));
  expect(expired == model_reap(&m), "the number of ended leases");
}

static void do_drain(void) {
  m.drain = !m.drain && below(3) == 0;
  CALL("drain %d", m.drain);
  assert_ok(brim_store_worker_seen(store, &(brim_store_worker){.id = "w"}));
  assert_ok(brim_store_drain(store, "w", m.drain));
}

static void open_all(void) {
  char url[64];
  store = lab_open(&place);
  if (!model_over_http) return;
  const brim_lab_pool_options how = {.store = store, .version = "1"};
  brim_status status = brim_lab_pool_open(&how, &pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  assert_ok(brim_lab_link_open(url, NULL, &served));
}

static void close_all(void) {
  brim_lab_link_close(served);
  brim_lab_pool_close(pool);
  brim_store_close(store);
  served = NULL;
  pool = NULL;
  store = NULL;
}

static void do_reopen(void) {
  CALL("reopen");
  close_all();
  open_all();
}

void model_step(void) {
  int kind = below(100);
  if (kind < 4) {
    do_submit();
  } else if (kind < 24) {
    do_claim();
  } else if (kind < 70) {
    do_write();
  } else if (kind < 82) {
    do_control();
  } else if (kind < 91) {
    do_time();
  } else if (kind < 97) {
    do_reap();
  } else if (kind < 99) {
    do_drain();
  } else {
    do_reopen();
  }
}

void model_begin(const lab_place *at) {
  lab_clock_ms = 1000000000000;
  place = *at;
  open_all();
  model_init(&m, lab_clock_ms);
}

bool model_full(void) { return m.attempt_count >= MODEL_ATTEMPTS - 1; }

void model_end(void) { close_all(); }
