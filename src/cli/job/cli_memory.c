// A run's GPU memory as it is reported: foreseen, measured after the first steps, explained when it
// ran out. What is measured and how is in src/measure.
#include "cli/job/cli_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Progress is drawn at most ten times a second: by the third time modules are loaded and the step
// is recorded as a graph.
enum { WARM_TICKS = 3 };

static bool idle(const brim_cli_memory *m) { return m->job->memory.uuid[0] == '\0'; }

uint64_t brim_cli_memory_limit(const brim_cli_job *job) {
  uint64_t limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit");
  if (job->device->info.kind != BRIM_DEVICE_GPU) return limit;
  double share = brim_config_float(job->config, "gpu.memory_fraction");
  uint64_t part = (uint64_t)((double)job->device->info.total_bytes * share);
  return limit && limit < part ? limit : part;
}

brim_machine_options brim_cli_machine_options(const brim_cli *cli, const brim_cli_job *job) {
  return (brim_machine_options){.memory_limit = brim_cli_memory_limit(job),
                                .folder = job->options.cache_folder,
                                .driver = job->memory.driver,
                                .memory = &job->memory,
                                .stop = cli->stop};
}

static brim_fit fit_of(brim_cli_memory *m) {
  const brim_cli_job *job = m->job;
  return (brim_fit){.work = job->work,
                    .config = job->config,
                    .setting = &m->setting,
                    .plan = &m->plan,
                    .limit = (uint64_t)brim_config_int(job->config, "gpu.memory_limit"),
                    .watch = &job->memory};
}

brim_status brim_cli_memory_check_plan(brim_cli_memory *memory, const brim_setting *setting,
                                       const brim_plan *plan) {
  memory->setting = *setting;
  if (idle(memory)) return BRIM_OK;
  memory->plan = *plan;
  brim_fit fit = fit_of(memory);
  return brim_fit_check(&fit);
}

void brim_cli_memory_started(brim_cli_memory *memory, const brim_plan *plan) {
  memory->plan = *plan;
  memory->started = true;
  if (!idle(memory)) memory->job->memory.held = plan->bytes[BRIM_PLACE_DEVICE];
}

void brim_cli_memory_measure(brim_cli_memory *memory) {
  const brim_cli_job *job = memory->job;
  if (idle(memory) || !memory->started) return;
  brim_memory_watch_measure(&memory->job->memory, job->device, &memory->plan);
  brim_memory_watch_remember(&job->memory, job->work, job->config, &memory->setting);
}

static void tell(brim_cli_memory *memory) {
  char text[128];
  if (memory->cli->json) {
    json_t *fields = brim_cli_memory_json(memory);
    // Memory that cannot be reported is no reason to stop the run.
    if (fields && brim_cli_event(memory->cli, "memory", fields)) brim_status_clear();
    return;
  }
  if (brim_cli_memory_text(memory, text, sizeof text)) {
    brim_cli_note(memory->cli, brim_tr("  memory     %s\n"), text);
  }
}

void brim_cli_memory_tick(brim_cli_memory *memory) {
  if (idle(memory) || memory->ticks >= WARM_TICKS || ++memory->ticks < WARM_TICKS) return;
  brim_cli_memory_measure(memory);
  tell(memory);
}

brim_status brim_cli_memory_failed(brim_cli_memory *memory, brim_status status) {
  if (status != BRIM_EOOM || idle(memory)) return status;
  brim_fit fit = fit_of(memory);
  return brim_fit_explain(&fit, true);
}

json_t *brim_cli_memory_json(const brim_cli_memory *memory) {
  const brim_memory_watch *w = &memory->job->memory;
  if (idle(memory)) return NULL;
  json_t *f = json_object();
  brim_status s =
      brim_json_put(f, "planned", brim_json_number((double)memory->plan.bytes[BRIM_PLACE_DEVICE]));
  if (!s) s = brim_json_put(f, "overhead", brim_json_number(w->overhead));
  if (!s) s = brim_json_put(f, "real", brim_json_number(w->real));
  if (!s) return f;
  json_decref(f);
  brim_status_clear();
  return NULL;
}

bool brim_cli_memory_text(const brim_cli_memory *memory, char *out, size_t size) {
  const brim_memory_watch *w = &memory->job->memory;
  char planned[32], overhead[32], real[32];
  if (idle(memory) || isnan(w->overhead)) return false;
  brim_format_bytes(memory->plan.bytes[BRIM_PLACE_DEVICE], planned);
  brim_format_bytes((uint64_t)w->overhead, overhead);
  brim_format_bytes((uint64_t)w->real, real);
  snprintf(out, size, brim_tr("planned %s + overhead %s = %s on the device"), planned, overhead,
           real);
  return true;
}

double brim_cli_memory_known(const brim_cli_memory *memory) {
  const brim_cli_job *job = memory->job;
  return brim_memory_watch_known(&job->memory, job->work, job->config, &memory->setting).total;
}
