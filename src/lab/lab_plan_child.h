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

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLAN_CHILD_H_
