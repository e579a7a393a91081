// The device memory that experiments will need, for grids that put several on one GPU. Plans are made
// once for each kind of GPU that the grid may use, and the largest counts.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"
#include "lab/lab_grid.h"
#include "lab/lab_plan.h"
#include "lab/store/lab_store.h"

enum { MOST_KINDS = 8 };

typedef struct gpu_kinds {
  char names[MOST_KINDS][sizeof((brim_gpu_listed *)0)->name];
  char devices[MOST_KINDS][BRIM_CLI_GPU_SPEC];
  const char *list[MOST_KINDS];
  size_t count;
} gpu_kinds;

// One GPU of each name. Those of CUDA_VISIBLE_DEVICES are the child's, in its order.
static void list_kinds(brim_gpu_monitor *monitor, gpu_kinds *out) {
  brim_gpu_listed *gpus = NULL;
  size_t count = 0;
  out->count = 0;
  if (brim_gpu_list(monitor, &gpus, &count)) brim_status_clear();
  for (size_t i = 0; i < count && out->count < MOST_KINDS; i++) {
    bool seen = false;
    for (size_t k = 0; k < out->count; k++) seen |= strcmp(out->names[k], gpus[i].name) == 0;
    if (seen) continue;
    memcpy(out->names[out->count], gpus[i].name, sizeof gpus[i].name);
    brim_cli_sweep_gpu_spec(gpus, count, i, out->devices[out->count]);
    out->list[out->count] = out->devices[out->count];
    out->count++;
  }
  brim_free(gpus);
}

// What a context and libraries take where no run has measured it: over twice the most that was seen on an
// H200. An experiment that runs counts with what it really uses.
static const double OVERHEAD = 2.0 * 1024 * 1024 * 1024;

// 0 = unknown on one of them, or it does not fit: then it runs alone, and adapts or fails there.
static int64_t need_of(const brim_lab_forecast *forecast, size_t point, size_t kinds) {
  double most = 0;
  for (size_t k = 0; k < kinds; k++) {
    const brim_lab_plan *plan = brim_lab_forecast_of(forecast, point, k);
    double bytes = plan->planned_device + (isnan(plan->overhead) ? OVERHEAD : plan->overhead);
    if (isnan(bytes) || plan->failure != BRIM_FAILURE_NONE) return 0;
    most = fmax(most, bytes);
  }
  return (int64_t)ceil(most);
}

brim_status brim_cli_sweep_needs(const brim_cli_sweep_job *j, struct brim_store_point *points) {
  gpu_kinds kinds;
  brim_lab_forecast forecast = {0};
  if (j->grid->per_gpu == 1 || !j->monitor) return BRIM_OK;
  list_kinds(j->monitor, &kinds);
  if (kinds.count == 0) return BRIM_OK;
  brim_cli_sweep_words words;
  BRIM_TRY(brim_cli_sweep_planner(j, &words));
  const brim_lab_plan_options how = {.command = words.list, .stop = j->cli->stop};
  brim_status status = brim_lab_forecast_make(j->grid, kinds.list, kinds.count, &how, &forecast);
  brim_free(words.program);
  if (status == BRIM_EINTERRUPTED || status == BRIM_ENOMEM) return status;
  if (status) {
    brim_log_warn("sweep", "cannot plan the memory of the experiments, so each has a GPU alone: %s",
                  brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  for (size_t i = 0; i < j->grid->count; i++) {
    points[i].need_bytes = need_of(&forecast, i, kinds.count);
  }
  brim_lab_forecast_free(&forecast);
  return BRIM_OK;
}
