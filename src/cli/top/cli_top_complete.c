// What a reading of the machine gets besides: brim's running jobs, and what each GPU was measured to
// reach at best.
#include <math.h>
#include <string.h>

#include "cli/top/cli_top.h"

static brim_status add_job(void *ctx, const brim_job *job) {
  brim_top_view *view = ctx;
  brim_job *more = brim_top_view_add_job(view);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory");
  *more = *job;
  return BRIM_OK;
}

brim_status brim_cli_top_complete(brim_top_view *view) {
  return brim_jobs_each(brim_clock_wall_s(), add_job, view);
}
