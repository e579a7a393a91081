// Opening and closing the workload: for its table and for replays.
#include "workload/mappo/mappo_int.h"

void brim_mappo_close(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w) return;
  brim_mappo_drop(w);
  brim_mappo_copy_free(w);
  brim_pool_destroy(w->where.pool);
  brim_free(w);
}

brim_status brim_mappo_open(const brim_work_context *context, const brim_config *config,
                            void **work) {
  brim_mappo *w = (brim_mappo *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = brim_mappo_setup(w);
  if (status) {
    brim_mappo_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}
