// Watches the memory of a GPU from before it is opened until a setting runs, and checks whether a setting fits beside
// other processes.

#include "measure/measure_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "measure/measure.h"

//-------------------------------------------- memory --------------------------------------------
// Watches the memory that the work takes, compares it with the plan, and remembers the overhead.

#define MOST_BYTES 1e15                            // larger values in a file are damaged
static const double agreement = 64.0 * (1 << 20);  // two figures of one memory may differ by this

//---------------------------------- reading ----------------------------------

// Reads NVML's figures; unknown without NVML.
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
  brim_status_clear();  // the figures stay unknown
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

// Memory that this process took since `before`. The GPU's free memory gives it to the byte unless another process
// allocates or frees; the driver's figure for this process is always right but may be missing, as in containers. Use
// free memory unless the driver's figure contradicts it.
static double memory_taken(const brim_memory_reading *before, const brim_memory_reading *now) {
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
  // ignore the figure of a backend that reports all memory as free, since it cannot know
  if (watch->by_device && device->free_at_open < device->info.total_bytes) {
    watch->before.free = (double)device->free_at_open;
  }
  brim_memory_reading now = read_now(watch, device);
  watch->at_open = not_below_0(memory_taken(&watch->before, &now));
}

void brim_memory_watch_measure(brim_memory_watch *watch, brim_device *device,
                               const brim_plan *plan) {
  if (!watch->uuid[0]) return;
  brim_memory_reading now = read_now(watch, device);
  double real = memory_taken(&watch->before, &now);
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

//---------------------------------- keys of the cache ----------------------------------

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

//--------------------------------------------- fit ---------------------------------------------
// Checks whether a setting fits. If not, the message names the processes that hold the memory, and settings that fit.
// On a device that is the host brim_work_check_fit decides.

enum { HOLDERS_NAMED = 3, UNSEEN_BYTES = 256 << 20 };

// Bytes that the advice leaves free if no overhead is remembered. Models took 9 to 34 MiB on an H200 (modules,
// handles, recorded graphs, rounding of allocations).
enum { UNKNOWN_LATER = 48 << 20 };

typedef struct room {
  uint64_t needed, free_bytes, total_bytes;
  uint64_t later;      // overhead that the setting has yet to allocate
  uint64_t available;  // bytes for the plan
  bool limited;        // the given limit is below the free memory
  bool unknown;        // no overhead is remembered or measured
} room;

// Finds the memory that a setting would have after the present setting is freed.
static brim_status find_room(const brim_fit *fit, room *out) {
  const brim_memory_watch *w = fit->watch;
  memset(out, 0, sizeof *out);
  out->needed = fit->plan->bytes[BRIM_PLACE_DEVICE];
  BRIM_TRY(brim_device_memory(fit->work->context.device, &out->free_bytes, &out->total_bytes));
  brim_overhead known = brim_memory_watch_known(w, fit->work, fit->config, fit->setting);
  double present = isnan(w->overhead) ? w->at_open : fmax(w->overhead, w->at_open);
  double later = known.total - present;
  out->unknown = isnan(known.total) && isnan(w->overhead);
  if (later > 0) out->later = (uint64_t)later;
  out->free_bytes += w->held;
  out->available = out->free_bytes > out->later ? out->free_bytes - out->later : 0;
  if (fit->limit > 0 && fit->limit < out->available) {
    out->available = fit->limit;
    out->limited = true;
  }
  return BRIM_OK;
}

static bool watched(const brim_fit *fit) { return fit->watch && fit->watch->uuid[0]; }

brim_status brim_fit_check(const brim_fit *fit) {
  if (!watched(fit)) {
    return brim_work_check_fit(fit->work, fit->setting, fit->plan, fit->limit);
  }
  room r;
  BRIM_TRY(find_room(fit, &r));
  return r.needed <= r.available ? BRIM_OK : brim_fit_explain(fit, false);
}

//---------------------------------- the message ----------------------------------

// The config key of the limit, for the message; NULL if the caller set it.
static const char *limit_key(const brim_fit *fit, const room *r) {
  if (!fit->config) return NULL;
  if (fit->limit == (uint64_t)brim_config_int(fit->config, "gpu.memory_limit")) {
    return "gpu.memory_limit";
  }
  double share = brim_config_float(fit->config, "gpu.memory_fraction");
  bool by_share = fit->limit == (uint64_t)((double)r->total_bytes * share);
  return by_share ? "gpu.memory_fraction" : NULL;
}

static void put_limit(const brim_fit *fit, const room *r, brim_str *out) {
  char need[32], limit[32];
  const char *key = limit_key(fit, r);
  brim_format_bytes(r->needed, need);
  brim_format_bytes(r->available, limit);
  if (key) {
    brim_str_printf(out, brim_tr("this setting needs %s of GPU memory, above the %s limit of %s"),
                    need, key, limit);
  } else {
    brim_str_printf(out, brim_tr("this setting needs %s of GPU memory, above the limit of %s"),
                    need, limit);
  }
}

static void put_need(const brim_fit *fit, const room *r, brim_str *out) {
  char need[32], have[32], total[32], later[32];
  brim_format_bytes(r->needed, need);
  brim_format_bytes(r->free_bytes, have);
  brim_format_bytes(r->total_bytes, total);
  brim_format_bytes(r->later, later);
  if (r->limited) {
    put_limit(fit, r, out);
    return;
  }
  brim_str_printf(out, brim_tr("this setting needs %s of GPU memory, but %s of %s are free"), need,
                  have, total);
  if (r->later >= r->free_bytes && r->later > 0) {
    brim_str_printf(out, brim_tr(", too little for the %s that CUDA and its libraries still need"),
                    later);
  } else if (r->later > 0) {
    brim_str_printf(out, brim_tr(", of which CUDA and its libraries need %s"), later);
  }
}

// Memory used by processes that are not visible, such as those of other containers or users.
static double unseen_bytes(const brim_fit *fit, const brim_gpu_process *list, size_t count) {
  const brim_memory_watch *w = fit->watch;
  brim_gpu_memory memory;
  if (brim_gpu_read_memory(w->monitor, w->uuid, &memory)) return 0;
  double rest = memory.used;
  bool self = false;
  for (size_t i = 0; i < count; i++) {
    if (isnan(list[i].bytes)) return 0;
    rest -= list[i].bytes;
    self = self || list[i].self;
  }
  if (!self) {
    double present = isnan(w->overhead) ? w->at_open : w->overhead;
    rest -= (double)w->held + (isnan(present) ? 0 : present);
  }
  return rest > UNSEEN_BYTES ? rest : 0;
}

static void put_holder(const brim_gpu_process *p, brim_str *out) {
  char holder[256], bytes[32];
  brim_gpu_process_text(p, holder, sizeof holder);
  if (isnan(p->bytes)) {
    brim_str_printf(out, brim_tr("; %s also uses memory (amount unknown)"), holder);
    return;
  }
  brim_format_bytes((uint64_t)p->bytes, bytes);
  brim_str_printf(out, brim_tr("; %s uses %s"), holder, bytes);
}

// Lists the largest holders, and this process in any case. True if another process holds memory.
static bool put_holders(const brim_fit *fit, brim_str *out) {
  brim_gpu_process *list = NULL;
  size_t count = 0, named = 0;
  if (!fit->watch->monitor) return false;
  if (brim_gpu_read_processes(fit->watch->monitor, fit->watch->uuid, &list, &count)) count = 0;
  for (size_t i = 0; i < count && named < HOLDERS_NAMED; i++) {
    if (list[i].self) continue;
    put_holder(&list[i], out);
    named++;
  }
  double unseen = unseen_bytes(fit, list, count);
  if (unseen > 0) {
    char bytes[32];
    brim_format_bytes((uint64_t)unseen, bytes);
    brim_str_printf(out, brim_tr("; processes that brim cannot see use %s"), bytes);
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].self) put_holder(&list[i], out);
  }
  brim_free(list);
  brim_status_clear();
  return named > 0 || unseen > 0;
}

// Advises checkpointing only if the model has blocks that are not recomputed already.
static bool could_checkpoint(const brim_fit *fit) {
  return brim_work_knob_as(fit->work, BRIM_ROLE_RECOMPUTE) >= 0 &&
         fit->plan->recomputed < fit->plan->segments;
}

static void put_advice(const brim_fit *fit, uint64_t limit, bool others, brim_str *out) {
  int64_t set = 0, batch = brim_work_largest_batch(fit->work, fit->setting, limit, &set);
  if (fit->work->table->shrinking) {
    char text[320];
    brim_work_shrink_text(fit->work, fit->setting, limit, text, sizeof text);
    brim_str_printf(out, "; %s", text);
    if (others) brim_str_append(out, brim_tr(", or wait until the other processes end"));
    return;
  }
  if (batch > 0 && set > 0) {
    char text[160];
    brim_work_batch_text(batch, set, text);
    brim_str_printf(out, "; %s", text);
    return;  // the data set limits the batch, not memory
  }
  if (batch > 0) {
    brim_str_printf(out, brim_tr("; batch_size %lld is the largest that fits now"),
                    (long long)batch);
    brim_str_append(
        out,
        brim_tr("; use it with more gradient_accumulation_steps for the same effective batch"));
  } else {
    brim_str_append(out, brim_tr("; no batch_size fits now; use a smaller model"));
  }
  if (could_checkpoint(fit)) {
    brim_str_append(out, brim_tr(", or training.checkpointing=true"));
  }
  if (others) brim_str_append(out, brim_tr(", or wait until the other processes end"));
}

brim_status brim_fit_explain(const brim_fit *fit, bool refused) {
  char said[512] = "";
  room r;
  if (refused) snprintf(said, sizeof said, "%s", brim_status_detail());
  if (!watched(fit)) {
    // no GPU is watched: brim_work_check_fit has the message
    brim_status status = brim_work_check_fit(fit->work, fit->setting, fit->plan, fit->limit);
    if (refused || status != BRIM_EOOM) brim_status_set_detail(said);
    return BRIM_EOOM;
  }
  brim_str text;
  brim_str_init(&text);
  if (said[0]) brim_str_printf(&text, "%s; ", said);
  brim_status status = find_room(fit, &r);
  if (!status) {
    put_need(fit, &r, &text);
    bool others = !r.limited && put_holders(fit, &text);
    // refused although it should fit: free memory is fragmented, or was taken meanwhile
    uint64_t limit = r.available;
    if (refused && r.needed <= limit) limit = r.needed - r.needed / 8;
    if (r.unknown) limit -= limit / 16 < UNKNOWN_LATER ? limit / 16 : UNKNOWN_LATER;
    put_advice(fit, limit, others, &text);
    status = brim_str_status(&text);
  }
  if (!status) {
    brim_status_set_detail(text.data);
  } else if (refused) {
    brim_status_set_detail(said);
  } else {
    status = brim_fail(BRIM_EOOM, "this setting needs more GPU memory than is free");
  }
  brim_str_deinit(&text);
  return BRIM_EOOM;
}

brim_status brim_fit_explain_open(const brim_memory_watch *watch) {
  char said[512];
  snprintf(said, sizeof said, "%s", brim_status_detail());
  if (!watch->monitor || !watch->uuid[0]) return brim_fail(BRIM_EOOM, "%s", said);
  brim_str text;
  brim_str_init(&text);
  brim_gpu_memory memory;
  if (!brim_gpu_read_memory(watch->monitor, watch->uuid, &memory)) {
    char have[32], total[32];
    brim_format_bytes((uint64_t)memory.free, have);
    brim_format_bytes((uint64_t)memory.total, total);
    brim_str_printf(&text, brim_tr("; %s of %s are free, too little for CUDA itself"), have, total);
  }
  const brim_fit fit = {.watch = watch};
  if (put_holders(&fit, &text))
    brim_str_append(&text, brim_tr("; wait until the other processes end"));
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_fail(BRIM_EOOM, "%s%s", said, text.data);
  brim_str_deinit(&text);
  return status;
}
