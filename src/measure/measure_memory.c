// The memory of a GPU from before it is opened until a setting runs: what the work really takes,
// what of that was planned, and the cache of the rest. Whether a setting fits is in measure_fit.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "measure/measure_int.h"

#define MOST_BYTES 1e15                            // a file may say anything
static const double agreement = 64.0 * (1 << 20);  // two figures of one thing may differ by this

//---------------------------------- reading ----------------------------------

// What NVML says; unknown where it does not.
static brim_memory_reading read_monitor(const brim_memory_watch *w) {
  brim_memory_reading r = {(double)NAN, (double)NAN};
  brim_gpu_memory memory;
  brim_gpu_process *list = NULL;
  size_t count = 0;
  if (!w->monitor) return r;
  if (!brim_gpu_read_memory(w->monitor, w->uuid, &memory)) r.free = memory.free;
  if (!brim_gpu_read_processes(w->monitor, w->uuid, &list, &count)) {
    r.own = 0;
    for (size_t i = 0; i < count; i++) {
      if (list[i].self) r.own += list[i].bytes;
    }
  }
  brim_free(list);
  brim_status_clear();  // not knowing is an answer
  return r;
}

static brim_memory_reading read_now(const brim_memory_watch *w, brim_device *device) {
  brim_memory_reading r = read_monitor(w);
  if (!w->by_device) return r;
  uint64_t free_bytes = 0, total_bytes = 0;
  r.free = (double)NAN;
  if (!brim_device_memory(device, &free_bytes, &total_bytes)) {
    r.free = (double)free_bytes;
  } else {
    brim_status_clear();
  }
  return r;
}

// What this process has taken since `before`. The GPU's free memory tells it to the byte while no
// other process allocates or frees; the driver's figure for this process tells it always, where
// there is one (in a container there may be none). So: the first where the second does not
// contradict it.
static double taken(const brim_memory_reading *before, const brim_memory_reading *now) {
  double lost = before->free - now->free;
  double own = now->own - (isnan(before->own) ? 0 : before->own);
  bool own_known = now->own > 0;
  if (!isnan(lost) && (!own_known || fabs(lost - own) <= agreement)) return lost;
  return own_known ? own : (double)NAN;
}

static double not_below_0(double bytes) { return isnan(bytes) ? bytes : fmax(bytes, 0); }

void brim_memory_watch_init(brim_memory_watch *watch, brim_gpu_monitor *monitor, const char *uuid,
                            const char *folder) {
  memset(watch, 0, sizeof *watch);
  watch->monitor = monitor;
  snprintf(watch->uuid, sizeof watch->uuid, "%s", uuid);
  if (strlen(folder) < sizeof watch->folder) {
    snprintf(watch->folder, sizeof watch->folder, "%s", folder);
  }
  watch->before = (brim_memory_reading){(double)NAN, (double)NAN};
  watch->at_open = watch->overhead = watch->real = (double)NAN;
  if (!watch->uuid[0]) return;
  if (monitor) brim_gpu_driver(monitor, watch->driver, sizeof watch->driver);
  watch->before = read_monitor(watch);
  watch->by_device = isnan(watch->before.free);
}

void brim_memory_watch_opened(brim_memory_watch *watch, brim_device *device) {
  if (!watch->uuid[0]) return;
  // a backend that cannot tell before opening says that all is free
  if (watch->by_device && device->free_at_open < device->info.total_bytes) {
    watch->before.free = (double)device->free_at_open;
  }
  brim_memory_reading now = read_now(watch, device);
  watch->at_open = not_below_0(taken(&watch->before, &now));
}

void brim_memory_watch_measure(brim_memory_watch *watch, brim_device *device,
                               const brim_plan *plan) {
  if (!watch->uuid[0]) return;
  brim_memory_reading now = read_now(watch, device);
  double real = taken(&watch->before, &now);
  watch->overhead = not_below_0(real - (double)plan->bytes[BRIM_PLACE_DEVICE]);
  watch->real = isnan(real) ? real : watch->overhead + (double)plan->bytes[BRIM_PLACE_DEVICE];
}

//---------------------------------- the cache ----------------------------------

static brim_cache_file cache_in(const char *folder) {
  return (brim_cache_file){folder, "overhead.json", "brim.overhead/1"};
}

brim_status brim_overhead_load(const char *folder, const char *key, brim_overhead *out) {
  brim_cache_file file = cache_in(folder);
  json_t *entry = NULL;
  *out = (brim_overhead){(double)NAN, (double)NAN};
  BRIM_TRY(brim_cache_find(&file, key, &entry));
  *out = (brim_overhead){brim_cache_number(entry, "at_open", MOST_BYTES),
                         brim_cache_number(entry, "total", MOST_BYTES)};
  json_decref(entry);
  return BRIM_OK;
}

brim_status brim_overhead_store(const char *folder, const char *key,
                                const brim_overhead *overhead) {
  brim_cache_file file = cache_in(folder);
  brim_json_setup();
  json_t *entry = json_object();
  brim_status status = brim_json_put(entry, "at_open", brim_json_number(overhead->at_open));
  if (!status) status = brim_json_put(entry, "total", brim_json_number(overhead->total));
  if (!status) return brim_cache_store(&file, key, entry);
  json_decref(entry);
  return status;
}

//---------------------------------- what it is kept by ----------------------------------

static void put_value(brim_str *out, const brim_value *value) {
  char number[32];
  switch (value->kind) {
    case BRIM_VALUE_BOOL:
      brim_str_append(out, value->boolean ? "true" : "false");
      return;
    case BRIM_VALUE_INT:
    case BRIM_VALUE_FLOAT:
      brim_format_f64(value->number, number);
      brim_str_append(out, number);
      return;
    default:
      brim_str_append(out, value->string ? value->string : "?");
  }
}

// "NVIDIA H200 | 580.65 | CUDA 13.0, cuDNN 9.12 | resnet18(width=64) | precision=bf16 compile=true"
static void put_key(const brim_memory_watch *w, const brim_work *work, const brim_config *config,
                    const brim_setting *setting, brim_str *out) {
  const brim_device_info *info = &work->context.device->info;
  const brim_component *model = config ? brim_config_component(config, "model", NULL) : NULL;
  brim_str_printf(out, "%s | %s | %s | %s | %s(", info->name, w->driver, info->library,
                  work->table->name, model ? model->name : "?");
  for (size_t i = 0; model && i < model->arg_count; i++) {
    brim_str_printf(out, "%s%s=", i ? ", " : "", model->args[i].name);
    put_value(out, &model->args[i].value);
  }
  brim_str_append(out, ") |");
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob_row *row = brim_knob_find(work->table->knob_set, work->knobs[i].name);
    char text[32];
    if (!row || !row->overhead) continue;
    brim_knob_format(&work->knobs[i], setting->value[i], text);
    brim_str_printf(out, " %s=%s", row->name, text);
  }
}

brim_overhead brim_memory_watch_known(const brim_memory_watch *watch, const brim_work *work,
                                      const brim_config *config, const brim_setting *setting) {
  brim_overhead known = {(double)NAN, (double)NAN};
  if (!watch || !watch->uuid[0] || !watch->folder[0]) return known;
  brim_str key;
  brim_str_init(&key);
  put_key(watch, work, config, setting, &key);
  brim_status status = brim_str_status(&key);
  if (!status) status = brim_overhead_load(watch->folder, key.data, &known);
  brim_str_deinit(&key);
  if (status) {
    brim_log_debug("measure", "the overhead is unknown: %s", brim_status_detail());
    brim_status_clear();
  }
  return known;
}

void brim_memory_watch_remember(const brim_memory_watch *watch, const brim_work *work,
                                const brim_config *config, const brim_setting *setting) {
  if (!watch || !watch->uuid[0] || !watch->folder[0] || isnan(watch->overhead)) return;
  const brim_overhead now = {watch->at_open, watch->overhead};
  brim_str key;
  brim_str_init(&key);
  put_key(watch, work, config, setting, &key);
  brim_status status = brim_str_status(&key);
  if (!status) status = brim_overhead_store(watch->folder, key.data, &now);
  brim_str_deinit(&key);
  if (status) {
    brim_log_debug("measure", "cannot store the overhead: %s", brim_status_detail());
    brim_status_clear();
  }
}
