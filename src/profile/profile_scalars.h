// A trace as scalars by step, in TensorBoard event files: profile/step_ms, profile/phase_ms/PHASE and, of
// a GPU, profile/gpu_busy_ms (time in which anything ran), profile/kernels, profile/h2d_ms,
// profile/d2h_ms. Steps count from 1. Callers: the profile command.
#ifndef BRIM_PROFILE_SCALARS_H_
#define BRIM_PROFILE_SCALARS_H_

#include "profile/profile_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

// The folder is made. What an earlier trace left in it is replaced.
brim_status brim_scalars_write(const brim_trace *trace, const char *folder);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_SCALARS_H_
