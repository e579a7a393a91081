// What becomes of an experiment when an attempt ends: plain rules over plain values.
#include "lab/store/lab_store_int.h"

static int64_t back_off(int64_t first, int64_t used) {
  enum { DOUBLINGS = 6 };
  return first << (used < 0 ? 0 : used < DOUBLINGS ? used : DOUBLINGS);
}

// A requeue goes where the user wants the experiment.
static brim_store_next requeue(const brim_store_case *c, brim_store_next next, const char *kind) {
  next.state = c->want == BRIM_WANT_PAUSE ? BRIM_EXP_PAUSED : BRIM_EXP_QUEUED;
  next.kind = c->want == BRIM_WANT_PAUSE ? "paused" : kind;
  return next;
}

static brim_store_next after_infra(const brim_store_case *c, brim_store_next next,
                                   const brim_store_options *o) {
  if (c->infra_left <= 0) {
    next.state = BRIM_EXP_FAILED;
    next.poison = true;
    next.kind = "failed";
    return next;
  }
  // A lease that ended says nothing about the experiment; a failure seen may come again at once.
  if (c->outcome == BRIM_ATTEMPT_ERROR) {
    next.wait_ms = back_off(o->backoff_ms, o->infra_tries - c->infra_left);
  }
  next.infra_left = c->infra_left - 1;
  return requeue(c, next, c->outcome == BRIM_ATTEMPT_EXPIRED ? "expired" : "requeued");
}

brim_store_next brim_store_after(const brim_store_case *c, const brim_store_options *options) {
  brim_store_next next = {
      .state = BRIM_EXP_FAILED,
      .tries_left = c->tries_left,
      .infra_left = c->infra_left,
      .kind = "failed",
  };
  if (c->outcome == BRIM_ATTEMPT_OK) {
    next.state = BRIM_EXP_DONE;
    next.kind = "done";
    return next;
  }
  if (c->want == BRIM_WANT_CANCEL) {
    next.state = BRIM_EXP_CANCELLED;
    next.kind = "cancelled";
    return next;
  }
  if (c->outcome == BRIM_ATTEMPT_STOPPED) return requeue(c, next, "requeued");
  if (c->outcome == BRIM_ATTEMPT_EXPIRED) return after_infra(c, next, options);
  if (c->others) return requeue(c, next, "requeued");
  brim_failure_retry retry = brim_failure_retry_of(c->failure);
  if (retry == BRIM_RETRY_FREE) return after_infra(c, next, options);
  if (retry == BRIM_RETRY_COUNTED && c->tries_left > 0) {
    next.tries_left = c->tries_left - 1;
    next.wait_ms = back_off(options->backoff_ms, c->tries - c->tries_left);
    return requeue(c, next, "retry");
  }
  return next;
}
