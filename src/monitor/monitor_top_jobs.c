// brim's running jobs in the live view.
#include <stdio.h>

#include "monitor/monitor_top_int.h"

static brim_status add_job(void *ctx, const brim_job *job) {
  brim_top_view *view = (brim_top_view *)ctx;
  brim_job *more = brim_top_view_add_job(view);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory");
  *more = *job;
  return BRIM_OK;
}

brim_status brim_top_jobs_read(brim_top_view *view) {
  size_t more = 0;
  char text[160];
  BRIM_TRY(brim_jobs_each(brim_clock_wall_s(), add_job, view, &more));
  if (more == 0) return BRIM_OK;
  snprintf(text, sizeof text, brim_tr("brim jobs that are not shown: %zu"), more);
  return brim_top_view_note(view, text);
}
