// What is remembered of a machine's ceilings (measure_machine.c measures them). One that was measured while
// other programs used the machine is too low: it is measured again until the machine is quiet, and the
// larger of both stays.
#include <math.h>
#include <string.h>

#include "measure/measure_int.h"
#include "record/record_findings.h"

#define MOST_RATE 1e18  // a file may say anything

//---------------------------------- the cache ----------------------------------

static brim_cache_file cache_in(const char *folder) {
  return (brim_cache_file){folder, "ceilings.json", "brim.ceilings/1"};
}

// "NVIDIA H200 GPU-0123 | 580.65 | CUDA 13.0, cuDNN 9.12 | cuda | brim 0.1.0"
static void put_key(const brim_device *device, const char *driver, brim_str *out) {
  const brim_device_info *info = &device->info;
  brim_str_printf(out, "%s%s%s | %s | %s | %s | ", info->name, info->id[0] ? " " : "", info->id,
                  driver, info->library, device->backend->name);
  if (info->kind == BRIM_DEVICE_CPU) brim_str_printf(out, "%d threads | ", (int)info->threads);
  brim_str_append(out, "brim " BRIM_VERSION);
}

// An older brim did not write it: the machine may have been busy.
static double load_of(const json_t *entry) {
  return json_object_get(entry, "load") ? brim_cache_number(entry, "load", 1.0001) : 1;
}

static double rate_of(const json_t *entry, const char *name) {
  double rate = brim_cache_number(entry, name, MOST_RATE);
  return rate > 0 ? rate : (double)NAN;
}

brim_status brim_machine_ceilings_load(const char *folder, const char *key,
                                       brim_machine_ceilings *out) {
  brim_cache_file file = cache_in(folder);
  json_t *entry = NULL;
  brim_machine_ceilings_init(out);
  BRIM_TRY(brim_cache_find(&file, key, &entry));
#define X(name) out->name = rate_of(entry, #name);
  BRIM_MACHINE_MAP(X)
#undef X
  if (entry) out->load = load_of(entry);
  json_decref(entry);
  return BRIM_OK;
}

static double larger(double a, double b) { return isnan(a) || b > a ? b : a; }

// The best of both, at the load of the quieter one.
static void merge(brim_machine_ceilings *to, const brim_machine_ceilings *other) {
#define X(name) to->name = larger(to->name, other->name);
  BRIM_MACHINE_MAP(X)
#undef X
  to->load = fmin(to->load, other->load);
}

brim_status brim_machine_ceilings_of_gpu(const char *folder, const char *uuid,
                                         brim_machine_ceilings *out) {
  brim_cache_file file = cache_in(folder);
  json_t *entries = NULL, *entry;
  const char *key;
  char part[96];
  brim_machine_ceilings_init(out);
  int n = snprintf(part, sizeof part, " %s | ", uuid);
  if (!folder[0] || !uuid[0] || n >= (int)sizeof part) return BRIM_OK;
  BRIM_TRY(brim_cache_entries(&file, &entries));
  json_object_foreach(entries, key, entry) {
    if (!strstr(key, part)) continue;
#define X(name) out->name = larger(out->name, rate_of(entry, #name));
    BRIM_MACHINE_MAP(X)
#undef X
  }
  json_decref(entries);
  return BRIM_OK;
}

brim_status brim_machine_ceilings_store(const char *folder, const char *key,
                                        const brim_machine_ceilings *ceilings) {
  brim_cache_file file = cache_in(folder);
  brim_json_setup();
  json_t *entry = json_object();
  brim_status status = BRIM_OK;
#define X(name) \
  if (!status) status = brim_json_put(entry, #name, brim_json_number(ceilings->name));
  BRIM_MACHINE_MAP(X)
#undef X
  if (!status) status = brim_json_put(entry, "load", brim_json_number(ceilings->load));
  if (!status) return brim_cache_store(&file, key, entry);
  json_decref(entry);
  return status;
}

// Every device copies, multiplies and starts ops: without one of them a measurement failed, or an older
// brim made it.
static bool known(const brim_machine_ceilings *c) {
  return !isnan(c->copy_bytes_per_s) && !isnan(c->gemm_fp32_flops) && !isnan(c->launches_per_s);
}

static brim_status remember(brim_status status, const char *what) {
  if (!status) return BRIM_OK;
  brim_log_debug("measure", "the machine's ceilings could not be %s: %s", what,
                 brim_status_detail());
  brim_status_clear();
  return status;
}

bool brim_machine_was_busy(const brim_machine_ceilings *c) { return brim_machine_doubtful(c); }

brim_status brim_machine_get(brim_device *device, const brim_machine_sizes *sizes,
                             const brim_machine_options *options, brim_machine_ceilings *out) {
  const char *folder = options->folder ? options->folder : "";
  bool cut = false, keep = folder[0] != '\0';
  brim_status status = BRIM_OK;
  brim_machine_ceilings old;
  brim_str key;
  brim_str_init(&key);
  put_key(device, options->driver ? options->driver : "", &key);
  brim_machine_ceilings_init(out);
  if (keep && remember(brim_str_status(&key), "remembered")) keep = false;
  if (keep) remember(brim_machine_ceilings_load(folder, key.data, out), "known");
  if (!known(out) || brim_machine_was_busy(out)) {
    old = *out;
    status = brim_machine_measure(device, sizes, options, out, &cut);
    bool better = known(&old);
    if (better && cut) out->load = old.load;
    if (better) merge(out, &old);
    // what was measured with little memory, beside others or in part is measured again the next time
    if (!status && keep && !cut && known(out)) {
      remember(brim_machine_ceilings_store(folder, key.data, out), "remembered");
    }
  }
  brim_str_deinit(&key);
  return status;
}

void brim_machine_ceilings_doubt(const brim_device *device, const brim_machine_options *options) {
  const char *folder = options->folder ? options->folder : "";
  brim_machine_ceilings doubted;
  brim_str key;
  brim_str_init(&key);
  put_key(device, options->driver ? options->driver : "", &key);
  brim_status status = brim_str_status(&key);
  if (!status && folder[0]) {
    status = brim_machine_ceilings_load(folder, key.data, &doubted);
    doubted.load = 1;
    if (!status && known(&doubted)) {
      status = brim_machine_ceilings_store(folder, key.data, &doubted);
    }
  }
  remember(status, "doubted");
  brim_str_deinit(&key);
}

// No step computes faster than the machine: if one did, the machine was busy when it was measured.
bool brim_machine_exceeded(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    const brim_result_knob *precision = brim_result_knob_as(r, BRIM_ROLE_PRECISION);
    if (r->failure != BRIM_FAILURE_NONE || !precision) continue;
    double rate = r->plan.flops_per_step / (r->total_ms.median * 1e-3);
    if (rate > brim_machine_flops(&r->ceilings, precision->value)) return true;
  }
  return false;
}

brim_status brim_machine_ceilings_get(brim_device *device, const brim_machine_options *options,
                                      brim_machine_ceilings *out) {
  brim_machine_sizes sizes = brim_machine_sizes_of(device);
  return brim_machine_get(device, &sizes, options, out);
}

bool brim_machine_ceilings_raise(brim_device *device, const brim_machine_options *options,
                                 brim_result *results, size_t count, brim_machine_ceilings *known) {
  brim_machine_ceilings again;
  if (!brim_machine_exceeded(results, count) || (options->stop && *options->stop)) return false;
  brim_log_info("measure",
                "a step was faster than the machine's ceilings: they are measured again");
  brim_machine_ceilings_doubt(device, options);
  if (brim_machine_ceilings_get(device, options, &again)) {
    brim_status_clear();
    return false;
  }
  merge(&again, known);
  *known = again;
  for (size_t i = 0; i < count; i++) results[i].ceilings = again;
  return true;
}
