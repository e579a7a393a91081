// Adds rows to a plan. include/brim/plan.h says what a plan means.
#include "record/record_plan.h"

#include <string.h>

#include "base/base_status.h"

brim_status brim_plan_add(brim_plan *plan, brim_place place, const char *name, uint64_t bytes) {
  if (bytes == 0) return BRIM_OK;
  size_t i = 0;
  while (i < plan->row_count &&
         (plan->rows[i].place != place || strcmp(plan->rows[i].name, name) != 0)) {
    i++;
  }
  if (i == BRIM_PLAN_MAX_ROWS) {
    return brim_fail(BRIM_ELIMIT, "the plan has no row left for %s", name);
  }
  if (i == plan->row_count) {
    plan->rows[plan->row_count++] = (brim_plan_row){.name = name, .place = place};
  }
  plan->rows[i].bytes += bytes;
  plan->bytes[place] += bytes;
  return BRIM_OK;
}
