// Adding rows to a plan; each room adds the rows of its parts.
#ifndef BRIM_RECORD_PLAN_H_
#define BRIM_RECORD_PLAN_H_

#include "brim/plan.h"

// Adds bytes to the row of this name and place, and makes the row if needed. `name` is static text; 0 bytes add
// nothing.
brim_status brim_plan_add(brim_plan *plan, brim_place place, const char *name, uint64_t bytes);

#endif  // BRIM_RECORD_PLAN_H_
