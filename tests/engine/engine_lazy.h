// A device that is as late as it is allowed to be: ref's ops behind three streams that run only when a caller waits for
// them, with events and recorded graphs, and memory the engine may not touch. Code that works here works on a GPU,
// whatever its timing.
#ifndef BRIM_TESTS_ENGINE_LAZY_H_
#define BRIM_TESTS_ENGINE_LAZY_H_

#include "backend/backend.h"

typedef struct lazy_counters {
  int ops;       // enqueued one by one
  int captures;  // recordings that ended well
  int refused;   // recordings that failed
  int launches;
  int graphs;   // alive
  int events;   // alive
  int waiting;  // items enqueued but not run
} lazy_counters;

// refuse_capture: 0 = never, 1 = begin fails, 2 = an op cannot be recorded, 3 = end fails; 4, 5, 6 = the end, the
// beginning, an op of it is BRIM_EOOM until lazy_allow_capture; 7 = the end of the second one fails.
brim_device *lazy_open(int refuse_capture);
void lazy_allow_capture(brim_device *device);
// The n-th op from now on (1 is the next) that is not recorded fails with BRIM_EOOM, once.
void lazy_fail_op(brim_device *device, int n);
void lazy_without_streams(brim_device *device);  // no stream can be created from now on
void lazy_close(brim_device *device);
const lazy_counters *lazy_count(const brim_device *device);

#endif  // BRIM_TESTS_ENGINE_LAZY_H_
