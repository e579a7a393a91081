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

// The metrics of the workload, by the keys of its logs and of checkpoint.best.
enum { BRIM_SESSION_METRICS = 40 };
typedef struct brim_session_metrics {
  int64_t samples;                         // that the values are means over
  size_t count;                            // of metrics
  const char *keys[BRIM_SESSION_METRICS];  // they live as long as the session
  double values[BRIM_SESSION_METRICS];     // shares are 0..1; NaN = unknown
} brim_session_metrics;

// The value of a key; NaN if it is unknown or the workload has no such metric.
BRIM_API double brim_session_value(const brim_session_metrics *metrics, const char *key);

// plugins: extra shared objects to load (NULL-terminated), or NULL. BRIM_EINVAL if the config names a plug-in that is not
// listed here: a plug-in is code, so the caller must agree.
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
// Measures the current setting over `steps` steps (0 = 10) and appends one brim.result/1 line to `path`. Restores the
// state.
BRIM_API brim_status brim_session_measure(brim_session *session, int steps, const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_SESSION_H_
