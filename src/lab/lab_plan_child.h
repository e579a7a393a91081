// The planning child, as lab_plan.c uses it: questions go in, plans come out.
#ifndef BRIM_LAB_PLAN_CHILD_H_
#define BRIM_LAB_PLAN_CHILD_H_

#include "lab/lab_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_lab_plan_job {
  const char *id, *config, *device;
  brim_lab_plan *out;  // has id and device
} brim_lab_plan_job;

// All of them in their order. What a child crashes or hangs on has that class; several children in a
// row that answer nothing are BRIM_ECHILD.
brim_status brim_lab_plan_child_run(const brim_lab_plan_options *options,
                                    const brim_lab_plan_job *jobs, size_t count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLAN_CHILD_H_
