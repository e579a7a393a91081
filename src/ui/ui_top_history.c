// The last readings of a machine, for sparklines.
#include <math.h>
#include <string.h>

#include "ui/ui_top_int.h"

void brim_ui_top_history_init(brim_ui_top_history *history) { memset(history, 0, sizeof *history); }

void brim_ui_top_history_deinit(brim_ui_top_history *history) {
  brim_free(history->values);
  brim_ui_top_history_init(history);
}

static float *ring_at(const brim_ui_top_history *history, size_t gpu, brim_ui_top_trace trace) {
  size_t row = gpu * BRIM_UI_TOP_TRACE_COUNT + (size_t)trace;
  return history->values + row * BRIM_UI_TOP_SAMPLES;
}

const float *brim_ui_top_ring(const brim_ui_top_history *history, size_t gpu,
                              brim_ui_top_trace trace) {
  return history && gpu < history->gpus ? ring_at(history, gpu, trace) : NULL;
}

static brim_status start_anew(brim_ui_top_history *history, const brim_top_view *view) {
  brim_ui_top_history_deinit(history);
  if (view->gpu_count == 0) return BRIM_OK;
  size_t each = (size_t)BRIM_UI_TOP_TRACE_COUNT * BRIM_UI_TOP_SAMPLES;
  history->values = brim_calloc(view->gpu_count * each, sizeof *history->values);
  if (!history->values) return brim_fail(BRIM_ENOMEM, "out of memory");
  history->gpus = view->gpu_count;
  memcpy(history->first, view->gpus[0].uuid, sizeof history->first);
  return BRIM_OK;
}

static double host_memory(const brim_top_host *host) {
  return host->memory_total > 0 ? 100 * host->memory_used / host->memory_total : NAN;
}

brim_status brim_ui_top_history_add(brim_ui_top_history *history, const brim_top_view *view) {
  bool same = history->gpus == view->gpu_count &&
              (view->gpu_count == 0 || strcmp(history->first, view->gpus[0].uuid) == 0);
  if (!same) BRIM_TRY(start_anew(history, view));
  size_t at = history->next;
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_top_gpu *gpu = &view->gpus[i];
    const double now[BRIM_UI_TOP_TRACE_COUNT] = {
        [BRIM_UI_TOP_KERNELS] = gpu->gpu_percent,
        [BRIM_UI_TOP_SM] = gpu->sm_percent,
        [BRIM_UI_TOP_OCCUPANCY] = gpu->occupancy_percent,
        [BRIM_UI_TOP_TENSOR] = gpu->tensor_percent,
        [BRIM_UI_TOP_DRAM] = gpu->dram_percent,
        [BRIM_UI_TOP_OFU] = gpu->ofu_percent,
        [BRIM_UI_TOP_MEMORY] = brim_top_memory_percent(gpu),
        [BRIM_UI_TOP_POWER] = brim_top_power_percent(gpu),
    };
    for (int t = 0; t < BRIM_UI_TOP_TRACE_COUNT; t++) {
      ring_at(history, i, (brim_ui_top_trace)t)[at] = (float)now[t];
    }
  }
  history->host[0][at] = (float)view->host.cpu_percent;
  history->host[1][at] = (float)host_memory(&view->host);
  history->next = (at + 1) % BRIM_UI_TOP_SAMPLES;
  if (history->count < BRIM_UI_TOP_SAMPLES) history->count++;
  return BRIM_OK;
}
