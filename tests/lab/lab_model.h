// The store as a few arrays and plain ifs: the reference for test_lab_model. Written from the contract in lab_store.h,
// not from its code.
#ifndef BRIM_TESTS_LAB_MODEL_H_
#define BRIM_TESTS_LAB_MODEL_H_

#include "lab_test.h"

enum { MODEL_EXPS = 6, MODEL_ATTEMPTS = 512, MODEL_STEPS = 12 };

typedef struct model_attempt {
  int exp;
  int64_t n, fence;
  char claim_id[32];
  brim_attempt_outcome outcome;
  brim_failure failure;
  int64_t exit_code, seq, from_step, log;
} model_attempt;

typedef struct model_exp {
  bool there;
  brim_exp_state state;
  brim_exp_want want;
  int64_t created, priority, gpus;
  int64_t fence, attempt, tries_left, infra_left, not_before, lease_until, ckpt_step, step;
  double metric;               // last reported
  double values[MODEL_STEPS];  // NaN: none
  int64_t by[MODEL_STEPS];     // the attempt that wrote it
} model_exp;

typedef struct model {
  int64_t now;
  bool drain;
  model_exp exps[MODEL_EXPS];
  model_attempt attempts[MODEL_ATTEMPTS];
  int attempt_count;
} model;

enum { MODEL_TRIES = 2 };

void model_init(model *m, int64_t now);
int model_submit(model *m, unsigned set);  // returns how many are new
// -1: nothing; otherwise the index of the attempt, a new one or that of an earlier claim.
int model_claim(model *m, const char *claim_id, int64_t free_gpus);
brim_status model_start(model *m, int a, int64_t fence, int64_t from_step);
brim_status model_beat(model *m, int a, int64_t fence, int64_t step, brim_exp_want *want);
brim_status model_metric(model *m, int a, int64_t fence, int64_t seq, int64_t step, double value);
brim_status model_log(model *m, int a, int64_t fence, int64_t size);
brim_status model_checkpoint(model *m, int a, int64_t fence, int64_t step);
brim_status model_finish(model *m, int a, int64_t fence, const brim_store_result *r,
                         brim_exp_state *became);
int model_reap(model *m);
brim_status model_want(model *m, int e, brim_exp_want want);
brim_status model_retry(model *m, int e);
int model_retry_failed(model *m);
brim_status model_priority(model *m, int e, int64_t priority);

#endif  // BRIM_TESTS_LAB_MODEL_H_
