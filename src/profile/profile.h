// Where the time of a step went: spans that add up nanoseconds per phase. The trace writers and the
// CUPTI session come beside this later. Who calls: run, measure.
#ifndef BRIM_PROFILE_H_
#define BRIM_PROFILE_H_

#include "record/record.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_PHASE_TIMER_DEPTH 8

// Sums host time per phase. Of nested spans only the innermost counts, so the phases never add up
// to more than the wall clock. One thread only: that of the step.
typedef struct brim_phase_timer {
  int64_t ns[BRIM_PHASE_COUNT];
  bool used[BRIM_PHASE_COUNT];
  struct {
    brim_phase phase;
    int64_t start_ns;
  } stack[BRIM_PHASE_TIMER_DEPTH];
  int depth;
  brim_spans spans;  // hand &timer.spans down
} brim_phase_timer;

void brim_phase_timer_init(brim_phase_timer *timer);
void brim_phase_timer_reset(brim_phase_timer *timer);  // zero the sums; open spans go on
int64_t brim_phase_timer_sum(const brim_phase_timer *timer);
// Shares of `total_ns`; what no span covered is BRIM_PHASE_OTHER.
void brim_phase_timer_shares(const brim_phase_timer *timer, int64_t total_ns,
                             double share[BRIM_PHASE_COUNT]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_H_
