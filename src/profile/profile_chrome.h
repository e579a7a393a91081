// A trace as a file in the Chrome trace format (object form), for Perfetto, chrome://tracing and
// Holistic Trace Analysis. Written whole or not at all; compressed where the name ends in ".gz".
//
// {"schemaVersion", "displayTimeUnit": "ms", "baseTimeNanoseconds", "distributedInfo": {"rank": 0},
//  "deviceProperties": [{"id", "name"}], "traceEvents": [...]}
// ts and dur are microseconds with three digits behind the point, since the trace began. A GPU is a
// process (pid = its number) and a stream a track of it (tid = its number). The host is the process
// BRIM_CHROME_HOST; its tracks are threads, 0 = that of the steps. What overlaps on a track without
// nesting goes to a track of its own: tid + n * BRIM_CHROME_LANE.
// Categories: kernel, gpu_memcpy, gpu_memset; cuda_runtime and cuda_driver (calls, by their names),
// cuda_sync, cpu_op (ops and transforms), user_annotation (phases; steps as ProfilerStep#N).
// A flow "ac2g" leads from a call or op to the first work of a GPU with its correlation.
#ifndef BRIM_PROFILE_CHROME_H_
#define BRIM_PROFILE_CHROME_H_

#include "profile/profile_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_CHROME_HOST = 1000, BRIM_CHROME_LANE = 100000 };

// `memory` may be NULL: with it, ops of the host that are its points are counters of bytes in use.
brim_status brim_chrome_write(const brim_trace *trace, const brim_profile_memory *memory,
                              const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_CHROME_H_
