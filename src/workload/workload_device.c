// What a config and a checkpoint say about the device: which one, how it is opened, and which
// algorithms it chose when the checkpoint was written.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workload/workload_int.h"

brim_status brim_work_device_spec(const brim_config *config, const char **out) {
  const char *const *devices = NULL;
  size_t count = 0;
  BRIM_TRY(brim_config_get_strings(config, "device", &devices, &count));
  if (count > 1) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "device names %zu devices, but this command uses one; name one (device=%s); "
                     "`brim train` runs one rank on each, `brim bench` measures scaling",
                     count, devices[0]);
  }
  return brim_work_device_at(config, 0, out);
}

size_t brim_work_device_count(const brim_config *config) {
  const char *const *devices = NULL;
  size_t count = 0;
  if (brim_config_get_strings(config, "device", &devices, &count)) brim_status_clear();
  return count > 1 ? count : 1;
}

brim_status brim_work_device_at(const brim_config *config, size_t index, const char **out) {
  const char *const *devices = NULL;
  size_t count = 0;
  const char *backend = brim_config_string(config, "backend");
  BRIM_TRY(brim_config_get_strings(config, "device", &devices, &count));
  const char *device = index < count ? devices[index] : NULL;
  *out = device ? device : "auto";
  // device cuda:1 with backend cuda is more exact than the backend's name alone
  bool named = backend && strcmp(backend, "auto") != 0;
  if (named && !(device && brim_str_starts(device, backend))) *out = backend;
  return BRIM_OK;
}

// The standard has relative paths ignored.
void brim_work_cache_folder(char *out, size_t size) {
  const char *base = getenv("XDG_CACHE_HOME"), *below = "brim";
  if (!base || base[0] != '/') {
    base = getenv("HOME");
    below = ".cache/brim";
  }
  out[0] = 0;
  if (!base || base[0] != '/') return;
  int n = snprintf(out, size, "%s/%s", base, below);
  if (n < 0 || (size_t)n >= size) out[0] = 0;
}

brim_status brim_work_device_options(const brim_config *config, brim_device_options *out) {
  memset(out, 0, sizeof *out);
  out->threads = (int)brim_config_int(config, "threads");
  out->workspace_cap = (uint64_t)brim_config_int(config, "gpu.workspace_limit");
  out->nondeterministic = !brim_config_bool(config, "training.deterministic");
  out->measure_algorithms = brim_config_bool(config, "gpu.cudnn_benchmark");
  brim_work_cache_folder(out->cache_folder, sizeof out->cache_folder);
  return BRIM_OK;
}

//---------------------------------- algorithms ----------------------------------

// Only GPUs are told apart by name: there a choice is one of a model. CPU backends choose by shape.
static const char *device_name(const brim_device *device) {
  return device->info.kind == BRIM_DEVICE_GPU ? device->info.name : NULL;
}

brim_status brim_work_put_i64(json_t *meta, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return brim_json_put(meta, key, json_string(text));
}

brim_status brim_work_put_device(brim_device *device, bool algorithms, json_t *meta) {
  const char *name = device_name(device);
  BRIM_TRY(brim_json_put(meta, "brim.backend", json_string(device->backend->name)));
  BRIM_TRY(brim_json_put(meta, "brim.library", json_string(device->info.library)));
  if (name) BRIM_TRY(brim_json_put(meta, "brim.device", json_string(name)));
  if (!algorithms) return BRIM_OK;
  char *text = NULL;
  BRIM_TRY(brim_device_algorithms(device, &text));
  brim_status status = BRIM_OK;
  if (text && text[0]) status = brim_json_put(meta, "brim.algorithms", json_string(text));
  brim_free(text);
  return status;
}

static bool same_text(const json_t *meta, const char *key, const char *now) {
  const char *was = json_string_value(json_object_get(meta, key));
  return was && now ? strcmp(was, now) == 0 : !was && !now;
}

brim_status brim_work_metadata(const char *path, json_t **out) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  *out = json_deep_copy(brim_safetensors_metadata(file));
  brim_safetensors_close(file);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
}

brim_status brim_work_take_algorithms(brim_work *work, const char *path) {
  brim_device *device = work->context.device;
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  const json_t *meta = brim_safetensors_metadata(file);
  const char *text = json_string_value(json_object_get(meta, "brim.algorithms"));
  // Another device or library has other algorithms under the same names.
  bool ours = same_text(meta, "brim.backend", device->backend->name) &&
              same_text(meta, "brim.library", device->info.library) &&
              same_text(meta, "brim.device", device_name(device));
  if (text && ours && brim_device_set_algorithms(device, text)) {
    // A choice of speed: without it training continues, with a warning that its bits differ.
    brim_log_warn("workload",
                  "%s: cannot restore its choice of algorithms (%s): the run continues, but is no "
                  "longer bit-identical",
                  path, brim_status_detail());
  }
  brim_safetensors_close(file);
  return BRIM_OK;
}
