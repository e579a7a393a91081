// A session: a workload on a device, for C programs. Open a config, plan, step, measure, evaluate,
// save. Not thread-safe; one session per thread.
#ifndef BRIM_SESSION_H_
#define BRIM_SESSION_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/config.h"
#include "brim/plan.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_session brim_session;

typedef struct brim_session_step_result {
  int64_t step;     // optimiser steps made
  int64_t epoch;    // from 0
  int64_t samples;  // of this step
  bool epoch_end;
  double lr;
} brim_session_step_result;

typedef struct brim_session_metrics {
  double loss;      // mean; NaN when unknown
  double accuracy;  // 0..1; NaN when not classifying
  int64_t samples;
} brim_session_metrics;

// plugins: extra shared objects to load (NULL-terminated), or NULL. Those that the config names are
// loaded only when they are listed here: a plug-in is code. Else BRIM_EINVAL.
BRIM_API brim_status brim_session_open(const brim_config *config, const char *const *plugins,
                                       brim_session **out);
BRIM_API void brim_session_close(brim_session *session);
BRIM_API const char *brim_session_device(const brim_session *session);  // "cpu: Neoverse-V1 ..."
BRIM_API brim_status brim_session_plan(brim_session *session, brim_plan *out);
BRIM_API brim_status brim_session_step(brim_session *session, brim_session_step_result *out);
// Means over the steps since the last call.
BRIM_API brim_status brim_session_metrics_read(brim_session *session, brim_session_metrics *out);
BRIM_API brim_status brim_session_evaluate(brim_session *session, brim_session_metrics *out);
BRIM_API brim_status brim_session_save(brim_session *session, const char *path);
BRIM_API brim_status brim_session_load(brim_session *session, const char *path);
// Measure the present setting over `steps` steps (0 = 10) and append one brim.result/1 line to
// `path`; state is restored.
BRIM_API brim_status brim_session_measure(brim_session *session, int steps, const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_SESSION_H_
