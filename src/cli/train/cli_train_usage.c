// How busy the GPU is while a workload trains that asks for it: where a step is one kernel, being busy
// and being full are two things. Without an answer the figures stay unknown.
#include "cli/train/cli_train.h"

void brim_cli_training_sampler(brim_cli_training *t, const brim_work_info *info) {
  brim_cli_job *job = t->job;
  if (!info->watches_gpu || !job->monitor || !job->memory.uuid[0]) return;
  if (brim_gpu_sampler_start(job->monitor, job->memory.uuid, 0.1, &t->sampler)) {
    brim_log_info("train", "cannot measure utilisation: %s", brim_status_detail());
    brim_status_clear();
  }
}

void brim_cli_training_usage(void *ctx, double *gpu_percent, double *sm_percent) {
  brim_cli_training *t = ctx;
  brim_gpu_usage u;
  if (!t->sampler) return;
  if (!gpu_percent) {
    brim_gpu_sampler_mark(t->sampler);
    return;
  }
  brim_gpu_sampler_read(t->sampler, &u);
  *gpu_percent = u.gpu_percent;
  *sm_percent = u.sm_percent;
}

void brim_cli_training_end(brim_cli_training *t) {
  brim_gpu_sampler_stop(t->sampler);
  t->sampler = NULL;
}
