// What a result is of: workload, device, machine, setting, config.
#include <math.h>
#include <string.h>

#include "measure/measure_int.h"

static void copy_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
}

brim_status brim_trial_identify(brim_work *work, const brim_config *config, brim_device *device,
                                const brim_setting *setting, brim_result *out) {
  brim_result *r = out;
  brim_result_init(r);
  r->when_s = brim_clock_wall_s();
  copy_text(r->workload, sizeof r->workload, work->table->name);
  copy_text(r->device, sizeof r->device, device->info.name);
  copy_text(r->device_id, sizeof r->device_id, device->info.id);
  copy_text(r->library, sizeof r->library, device->info.library);
  copy_text(r->backend, sizeof r->backend, device->backend->name);
  r->threads = device->info.threads;
  if (device->backend->set_threads) {  // the setting decides
    r->threads = (int)brim_work_value_as(work, setting, BRIM_ROLE_THREADS, r->threads);
  }
  brim_host_info host;
  BRIM_TRY(brim_host_get_info(&host));
  copy_text(r->host, sizeof r->host, host.hostname);
  copy_text(r->os, sizeof r->os, host.os);
  copy_text(r->cpu, sizeof r->cpu, host.cpu);
  r->cores = host.cores;
  brim_work_info info;
  work->table->info(work->state, &info);
  copy_text(r->description, sizeof r->description, info.description);
  copy_text(r->unit, sizeof r->unit, info.unit);
  for (size_t i = 0; i < info.rate_count && i < BRIM_RESULT_MAX_RATES; i++) {
    copy_text(r->rates[i].unit, sizeof r->rates[i].unit, info.rates[i].unit);
    r->rates[i].per_sample = info.rates[i].per_sample;
    r->rate_count = i + 1;
  }
  r->knob_set = work->table->knob_set;
  for (size_t i = 0; i < work->knob_count && i < BRIM_RESULT_MAX_KNOBS; i++) {
    const brim_knob *knob = &work->knobs[i];
    brim_result_knob *k = &r->knobs[r->knob_count++];
    copy_text(k->name, sizeof k->name, knob->name);
    brim_knob_format(knob, setting->value[i], k->value);
    k->number = knob->kind == BRIM_KNOB_INT ? (double)setting->value[i] : (double)NAN;
  }
  if (config) {
    r->seed = (uint64_t)brim_config_int(config, "seed");
    BRIM_TRY(brim_config_to_json(config, &r->config));
  }
  return BRIM_OK;
}

static bool has_knobs(const brim_knob_set *set, const brim_result *r) {
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_knob_find(set, r->knobs[i].name)) return false;
  }
  return set != NULL;
}

// A record of a workload that is not here is read by the rows of one with the same knobs.
static const brim_knob_set *set_of(const brim_result *r) {
  const brim_workload_table *table;
  for (size_t k = 0; (table = brim_workload_at(k)); k++) {
    if (strcmp(table->name, r->workload) == 0) return table->knob_set;
  }
  for (size_t k = 0; (table = brim_workload_at(k)); k++) {
    if (has_knobs(table->knob_set, r)) return table->knob_set;
  }
  return NULL;
}

void brim_result_know(brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) results[i].knob_set = set_of(&results[i]);
}
