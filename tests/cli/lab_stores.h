// Stores for tests of commands: experiments with known results, made without training.
#ifndef BRIM_TESTS_LAB_STORES_H_
#define BRIM_TESTS_LAB_STORES_H_

#include "lab/store/lab_store.h"
#include "test.h"

typedef struct lab_result {
  const char *rate;
  int seed;
  double value;  // NaN: the experiment fails
} lab_result;

static inline void lab_store_run(brim_store *store, const char *id, const lab_result *row) {
  char claim[64];
  snprintf(claim, sizeof claim, "claim-%s", id);
  const brim_store_request request = {.worker = "w1",
                                      .claim_id = claim,
                                      .host = "node-1",
                                      .exp = id,
                                      .free_gpus = 8,
                                      .free_bytes = -1};
  brim_store_claimed claimed;
  assert_ok(brim_store_claim(store, &request, &claimed));
  assert_non_null(claimed.exp);
  brim_store_exp_free(claimed.exp);
  assert_ok(brim_store_start(store, &claimed.ref, 4711, -1));
  const bool failed = row->value != row->value;
  const brim_store_metric rows[] = {{"val_accuracy", 10, 0.1},
                                    {"val_accuracy", 20, failed ? 0.1 : row->value + 0.02},
                                    {"val_accuracy", 30, failed ? 0.1 : row->value}};
  assert_ok(brim_store_metrics(store, &claimed.ref, 1, rows, 3));
  const brim_store_result result = {.outcome = failed ? BRIM_ATTEMPT_ERROR : BRIM_ATTEMPT_OK,
                                    .failure = failed ? BRIM_FAILURE_NAN : BRIM_FAILURE_NONE,
                                    .exit_code = failed,
                                    .message = failed ? "the loss is nan" : "",
                                    .last_lines = failed ? "epoch 3\nloss nan" : ""};
  assert_ok(brim_store_finish(store, &claimed.ref, &result, NULL));
}

// Makes a store in a new folder with one experiment for each row.
static inline void lab_store_make(const char *folder, const lab_result *rows, size_t count) {
  brim_store *store = NULL;
  const brim_store_options options = {.grace_ms = -1};
  assert_ok(brim_store_open(folder, &options, &store));
  for (size_t i = 0; i < count; i++) {
    char id[BRIM_EXP_ID], label[96], config[200];
    snprintf(id, sizeof id, "%08x%024d", (unsigned)i + 1, 0);
    snprintf(label, sizeof label, "training.learning_rate=%s seed=%d", rows[i].rate, rows[i].seed);
    snprintf(config, sizeof config,
             "workload: supervised\nseed: %d\ntraining.learning_rate: %s\nmodel: mlp(depth=2)\n",
             rows[i].seed, rows[i].rate);
    const brim_store_point point = {.id = id,
                                    .idx = (int64_t)i,
                                    .label = label,
                                    .config = config,
                                    .metric_key = "val_accuracy",
                                    .gpus = 1,
                                    .epochs = 10};
    char grid[32];
    snprintf(grid, sizeof grid, "g%zu", i);
    brim_store_submitted out;
    assert_ok(brim_store_submit(store, &(brim_store_grid){grid, "rates", "lr", "0.1.0"}, &point, 1,
                                &out));
    lab_store_run(store, id, &rows[i]);
  }
  brim_store_close(store);
}

#endif  // BRIM_TESTS_LAB_STORES_H_
