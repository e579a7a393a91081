// What a reading of the machine gets besides: what each GPU was measured to reach at best.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/top/cli_top.h"
#include "measure/measure.h"
#include "workload/workload.h"

//---------------------------------- ceilings ----------------------------------

// Tensor pipes multiply bf16 and fp16 twice as fast as tf32, on every card of the table.
// The maker's figure stands for a clock that cards run above: the peak is that of the highest clock, as
// for OFU.
double brim_cli_top_share(const brim_top_gpu *gpu, const brim_machine_ceilings *ceilings) {
  const brim_gpu_facts *facts = brim_gpu_facts_find(gpu->name);
  if (!facts || !(facts->tf32_tflops > 0) || !(gpu->clock_max_mhz > 0)) return (double)NAN;
  const double peak = facts->tf32_tflops * 1e12 * gpu->clock_max_mhz / facts->tensor_mhz;
  const double shares[] = {ceilings->gemm_tf32_flops / peak, ceilings->gemm_bf16_flops / (2 * peak),
                           ceilings->gemm_fp16_flops / (2 * peak)};
  double best = (double)NAN;
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    if (isnan(best) || shares[i] > best) best = shares[i];
  }
  return 100 * best;
}

static double read_share(const brim_top_gpu *gpu) {
  char folder[512];
  brim_machine_ceilings ceilings;
  brim_work_cache_folder(folder, sizeof folder);
  if (brim_machine_ceilings_of_gpu(folder, gpu->uuid, &ceilings)) brim_status_clear();
  return brim_cli_top_share(gpu, &ceilings);
}

static double share_of(const brim_top_gpu *gpu, brim_cli_top_ceilings *known) {
  for (size_t i = 0; i < known->count; i++) {
    if (strcmp(known->uuid[i], gpu->uuid) == 0) return known->percent[i];
  }
  if (known->count == BRIM_CLI_TOP_GPUS) return (double)NAN;
  memcpy(known->uuid[known->count], gpu->uuid, sizeof gpu->uuid);
  known->percent[known->count] = read_share(gpu);
  return known->percent[known->count++];
}

void brim_cli_top_complete(brim_top_view *view, brim_cli_top_ceilings *ceilings) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    view->gpus[i].ceiling_percent = share_of(&view->gpus[i], ceilings);
  }
}
