// The reference model of the store.
#include "lab_model.h"

#include <math.h>

void model_init(model *m, int64_t now) {
  memset(m, 0, sizeof *m);
  m->now = now;
}

int model_submit(model *m, unsigned set) {
  int added = 0;
  for (int i = 0; i < MODEL_EXPS; i++) {
    model_exp *e = &m->exps[i];
    if (!(set >> i & 1) || e->there) continue;
    *e = (model_exp){.there = true,
                     .created = m->now,
                     .gpus = i % 3,
                     .tries_left = MODEL_TRIES,
                     .infra_left = LAB_INFRA,
                     .ckpt_step = -1,
                     .step = -1,
                     .metric = (double)NAN};
    for (int s = 0; s < MODEL_STEPS; s++) e->values[s] = (double)NAN;
    added++;
  }
  return added;
}

static bool before(const model_exp *a, const model_exp *b) {
  if (a->priority != b->priority) return a->priority > b->priority;
  return a->created < b->created;  // equal: the lower index, which the search finds first
}

int model_claim(model *m, const char *claim_id, int64_t free_gpus) {
  for (int i = 0; i < m->attempt_count; i++) {
    if (strcmp(m->attempts[i].claim_id, claim_id) == 0) return i;
  }
  int best = -1;
  for (int i = 0; i < MODEL_EXPS && !m->drain; i++) {
    const model_exp *e = &m->exps[i];
    if (!e->there || e->state != BRIM_EXP_QUEUED || e->not_before > m->now) continue;
    if (e->gpus > free_gpus) continue;
    if (best < 0 || before(e, &m->exps[best])) best = i;
  }
  if (best < 0) return -1;
  model_exp *e = &m->exps[best];
  e->state = BRIM_EXP_LEASED;
  e->fence++;
  e->attempt++;
  e->lease_until = m->now + LAB_LEASE_MS;
  assert_true(m->attempt_count < MODEL_ATTEMPTS);
  model_attempt *a = &m->attempts[m->attempt_count];
  *a = (model_attempt){.exp = best, .n = e->attempt, .fence = e->fence, .from_step = e->ckpt_step};
  snprintf(a->claim_id, sizeof a->claim_id, "%s", claim_id);
  return m->attempt_count++;
}

static bool is_live(const model_exp *e) {
  return e->state == BRIM_EXP_LEASED || e->state == BRIM_EXP_RUNNING;
}

// NULL: the attempt may not write. Otherwise its experiment, adopted again if its lease had ended.
static model_exp *writable(model *m, int index, int64_t fence) {
  model_attempt *a = &m->attempts[index];
  model_exp *e = &m->exps[a->exp];
  if (e->attempt != a->n || e->fence != fence || a->fence != fence) return NULL;
  if (is_live(e)) return e;
  if (e->state != BRIM_EXP_QUEUED || a->outcome != BRIM_ATTEMPT_EXPIRED) return NULL;
  a->outcome = BRIM_ATTEMPT_OPEN;
  a->failure = BRIM_FAILURE_NONE;
  e->state = BRIM_EXP_RUNNING;
  e->lease_until = m->now + LAB_LEASE_MS;
  e->not_before = 0;
  if (e->infra_left < LAB_INFRA) e->infra_left++;
  return e;
}

brim_status model_start(model *m, int a, int64_t fence, int64_t from_step) {
  model_exp *e = writable(m, a, fence);
  if (!e) return BRIM_ESTATE;
  e->state = BRIM_EXP_RUNNING;
  e->lease_until = m->now + LAB_LEASE_MS;
  if (from_step >= 0) m->attempts[a].from_step = from_step;
  return BRIM_OK;
}

brim_status model_beat(model *m, int a, int64_t fence, int64_t step, brim_exp_want *want) {
  model_exp *e = writable(m, a, fence);
  if (!e) return BRIM_ESTATE;
  e->lease_until = m->now + LAB_LEASE_MS;
  if (step >= 0) e->step = step;
  *want = e->want;
  return BRIM_OK;
}

brim_status model_metric(model *m, int a, int64_t fence, int64_t seq, int64_t step, double value) {
  model_exp *e = writable(m, a, fence);
  if (!e) return BRIM_ESTATE;
  if (seq <= m->attempts[a].seq) return BRIM_OK;
  m->attempts[a].seq = seq;
  e->values[step] = e->metric = value;
  e->by[step] = m->attempts[a].n;
  return BRIM_OK;
}

brim_status model_log(model *m, int a, int64_t fence, int64_t size) {
  if (!writable(m, a, fence)) return BRIM_ESTATE;
  if (size > m->attempts[a].log) m->attempts[a].log = size;
  return BRIM_OK;
}

brim_status model_checkpoint(model *m, int a, int64_t fence, int64_t step) {
  model_exp *e = writable(m, a, fence);
  if (!e) return BRIM_ESTATE;
  if (step > e->ckpt_step) {
    e->ckpt_step = step;
    e->infra_left = LAB_INFRA;
  }
  return BRIM_OK;
}

static void leave(model_exp *e, brim_exp_state to) {
  e->state = to;
  e->want = BRIM_WANT_RUN;
  e->lease_until = 0;
  e->not_before = 0;
}

static void queue_or_pause(model_exp *e) {
  leave(e, e->want == BRIM_WANT_PAUSE ? BRIM_EXP_PAUSED : BRIM_EXP_QUEUED);
}

static void fail_by_machine(model *m, model_exp *e, bool wait) {
  if (e->infra_left == 0) {
    leave(e, BRIM_EXP_FAILED);
    return;
  }
  int64_t used = LAB_INFRA - e->infra_left;
  e->infra_left--;
  queue_or_pause(e);
  if (wait) e->not_before = m->now + (LAB_BACKOFF_MS << used);
}

static void end_with_error(model *m, model_exp *e, brim_failure failure) {
  switch (failure) {
    case BRIM_FAILURE_KILLED:
    case BRIM_FAILURE_INTERRUPTED:
    case BRIM_FAILURE_INFRASTRUCTURE:
      fail_by_machine(m, e, true);
      return;
    case BRIM_FAILURE_CRASH:
    case BRIM_FAILURE_HUNG:
    case BRIM_FAILURE_OTHER:
      if (e->tries_left > 0) {
        int64_t used = MODEL_TRIES - e->tries_left;
        e->tries_left--;
        queue_or_pause(e);
        e->not_before = m->now + (LAB_BACKOFF_MS << used);
        return;
      }
      break;
    default:
      break;
  }
  leave(e, BRIM_EXP_FAILED);
}

brim_status model_finish(model *m, int index, int64_t fence, const brim_store_result *r,
                         brim_exp_state *became) {
  model_attempt *a = &m->attempts[index];
  model_exp *e = &m->exps[a->exp];
  *became = e->state;
  if (a->fence == fence && a->outcome == r->outcome && a->failure == r->failure &&
      a->exit_code == r->exit_code) {
    return BRIM_OK;
  }
  if (!writable(m, index, fence)) return BRIM_ESTATE;
  a->outcome = r->outcome;
  a->failure = r->failure;
  a->exit_code = r->exit_code;
  if (r->outcome == BRIM_ATTEMPT_OK) {
    leave(e, BRIM_EXP_DONE);
    for (int s = 0; s < MODEL_STEPS; s++) {
      if (s > a->from_step && e->by[s] < a->n) e->values[s] = (double)NAN;
    }
  } else if (e->want == BRIM_WANT_CANCEL) {
    leave(e, BRIM_EXP_CANCELLED);
  } else if (r->outcome == BRIM_ATTEMPT_STOPPED) {
    queue_or_pause(e);
  } else {
    end_with_error(m, e, r->failure);
  }
  *became = e->state;
  return BRIM_OK;
}

int model_reap(model *m) {
  int count = 0;
  for (int i = 0; i < m->attempt_count; i++) {
    model_attempt *a = &m->attempts[i];
    model_exp *e = &m->exps[a->exp];
    if (a->n != e->attempt || !is_live(e) || e->lease_until > m->now) continue;
    a->outcome = BRIM_ATTEMPT_EXPIRED;
    a->failure = BRIM_FAILURE_INFRASTRUCTURE;
    a->exit_code = 0;
    if (e->want == BRIM_WANT_CANCEL) {
      leave(e, BRIM_EXP_CANCELLED);
    } else {
      fail_by_machine(m, e, false);
    }
    count++;
  }
  return count;
}

brim_status model_want(model *m, int index, brim_exp_want want) {
  static const brim_exp_state to[] = {BRIM_EXP_QUEUED, BRIM_EXP_PAUSED, BRIM_EXP_CANCELLED};
  model_exp *e = &m->exps[index];
  if (!e->there) return BRIM_ENOENT;
  if (is_live(e)) {
    if (e->want == BRIM_WANT_CANCEL && want != BRIM_WANT_CANCEL) return BRIM_ESTATE;
    e->want = want;
    return BRIM_OK;
  }
  if (e->state == to[want]) return BRIM_OK;
  if (e->state != BRIM_EXP_QUEUED && e->state != BRIM_EXP_PAUSED) return BRIM_ESTATE;
  leave(e, to[want]);
  return BRIM_OK;
}

static void again(model_exp *e) {
  leave(e, BRIM_EXP_QUEUED);
  e->tries_left = MODEL_TRIES;
  e->infra_left = LAB_INFRA;
}

brim_status model_retry(model *m, int index) {
  model_exp *e = &m->exps[index];
  if (!e->there) return BRIM_ENOENT;
  if (e->state == BRIM_EXP_QUEUED) return BRIM_OK;
  if (is_live(e) || e->state == BRIM_EXP_DONE) return BRIM_ESTATE;
  again(e);
  return BRIM_OK;
}

int model_retry_failed(model *m) {
  int count = 0;
  for (int i = 0; i < MODEL_EXPS; i++) {
    if (!m->exps[i].there || m->exps[i].state != BRIM_EXP_FAILED) continue;
    again(&m->exps[i]);
    count++;
  }
  return count;
}

brim_status model_priority(model *m, int index, int64_t priority) {
  if (!m->exps[index].there) return BRIM_ENOENT;
  m->exps[index].priority = priority;
  return BRIM_OK;
}
