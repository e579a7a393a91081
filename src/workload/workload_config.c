// Config keys that all workloads read (device, threads, precision, optimizer, warm-up), and metadata that all
// their checkpoints have.
#include "workload/workload_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  // device cuda:1 says more than backend cuda
  bool named = backend && strcmp(backend, "auto") != 0;
  if (named && !(device && brim_str_starts(device, backend))) *out = backend;
  return BRIM_OK;
}

// Ignores relative paths, as the XDG standard requires.
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

//---------------------------------- threads ----------------------------------

// Numbers of threads that a sweep tries: one, half of the cores, all. A number that the user gave is not varied.
static size_t threads_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_device *device = sweep->work->context.device;
  const int64_t all = device->info.threads;
  (void)state;
  if (sweep->gpu || !device->backend->set_threads || all < 2 ||
      brim_config_int(sweep->config, "threads") > 0) {
    return 0;
  }
  size_t count = 0;
  values[count++] = 1;
  if (all > 2 && !sweep->all) values[count++] = all / 2;
  values[count++] = all;
  return count;
}

brim_knob brim_work_threads_knob(const brim_config *config, const brim_device *device) {
  const bool sets = device->info.kind == BRIM_DEVICE_CPU && device->backend->set_threads;
  return (brim_knob){.name = "threads",
                     .key = "threads",
                     .kind = BRIM_KNOB_INT,
                     .max = 4096,
                     .list = "benchmark.threads_options",
                     .axis = threads_axis,
                     .order = 9,
                     .value = sets ? device->info.threads : brim_config_int(config, "threads")};
}

//---------------------------------- precision ----------------------------------

static bool device_has(brim_device *device, brim_dtype dtype) {
  brim_op_call call;
  memset(&call, 0, sizeof call);
  const int64_t x[] = {32, 32};
  call.op = BRIM_OP_LINEAR;
  call.in_count = 2;
  call.out_count = 1;
  call.in[0] = brim_tensor_make(NULL, dtype, 2, x);
  call.in[1] = brim_tensor_make(NULL, dtype, 2, x);
  call.out[0] = brim_tensor_make(NULL, dtype, 2, x);
  return brim_device_supports(device, &call) == BRIM_OK;
}

static bool is_fast(brim_device *device, brim_dtype dtype) {
  return (device->info.fast_types & 1u << dtype) && device_has(device, dtype);
}

// The precision of a run. An explicit precision is kept. use_amp (mixed_precision, ...) and auto mean bf16, else
// fp16, if the device has fast instructions for it: emulated 16 bits are 2 to 4 times slower than fp32.
brim_status brim_work_precision(const brim_config *config, brim_device *device,
                                brim_precision *out) {
  const char *text = brim_config_string(config, "training.precision");
  if (text && strcmp(text, "auto") != 0) {
    if (brim_precision_parse(text, out)) return BRIM_OK;
    return brim_fail(BRIM_EINVAL, "training.precision '%s' is not one of fp32, tf32, bf16, fp16",
                     text);
  }
  *out = BRIM_PRECISION_FP32;
  if (!brim_config_bool(config, "training.use_amp")) return BRIM_OK;
  if (is_fast(device, BRIM_BF16)) {
    *out = BRIM_PRECISION_BF16;
  } else if (is_fast(device, BRIM_F16)) {
    *out = BRIM_PRECISION_FP16;
  } else if (device->info.kind == BRIM_DEVICE_GPU) {
    brim_log_warn("workload", "precision: fp32, because this GPU has no fast 16-bit arithmetic");
  } else if (strcmp(device->backend->name, "ref") == 0) {
    brim_log_warn("workload", "precision: fp32, because the ref backend only emulates 16 bits");
  } else {
    brim_log_warn("workload", "precision: fp32, because this CPU has no fast bf16 instructions");
  }
  return BRIM_OK;
}

brim_status brim_work_check_precision(brim_device *device, const brim_net_spec *spec) {
  if (spec->precision != BRIM_PRECISION_FP16 || device_has(device, BRIM_F16)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "precision fp16 is not supported on %s; use bf16 or fp32",
                   device->backend->name);
}

//---------------------------------- optimizer ----------------------------------

const char *brim_work_weights(const brim_config *config) {
  const char *weights = brim_config_string(config, "training.weights");
  return weights && weights[0] ? weights : NULL;
}

static void set_argument(brim_work_optimizer *o, const char *name, brim_value value) {
  brim_component *c = &o->component;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (strcmp(o->args[i].name, name) == 0) {
      o->args[i].value = value;
      return;
    }
  }
  if (c->arg_count == BRIM_WORK_MAX_ARGS) return;
  o->args[c->arg_count].name = name;
  o->args[c->arg_count].value = value;
  c->arg_count++;
}

static brim_value float_value(double number) {
  brim_value value = {.kind = BRIM_VALUE_FLOAT, .number = number};
  return value;
}

// Reads the optimizer. Keys of training.* that are set win over the component's arguments.
brim_status brim_work_read_optimizer(const brim_config *config, brim_work_optimizer *o) {
  const brim_component *given = brim_config_component(config, "optimizer", NULL);
  if (!given) return brim_fail(BRIM_EINVAL, "the config has no optimizer");
  if (given->arg_count > BRIM_WORK_MAX_ARGS - 3) {
    return brim_fail(BRIM_EINVAL, "optimizer %s has too many arguments", given->name);
  }
  o->component = *given;
  o->component.args = o->args;
  for (size_t i = 0; i < given->arg_count; i++) o->args[i] = given->args[i];
  bool is_sgd = strcmp(given->name, "sgd") == 0;
  o->lr = brim_component_float(given, "lr", is_sgd ? 0.05 : 1e-3);
  if (brim_config_is_set(config, "training.learning_rate")) {
    o->lr = brim_config_float(config, "training.learning_rate");
  }
  if (brim_config_is_set(config, "training.weight_decay")) {
    set_argument(o, "weight_decay",
                 float_value(brim_config_float(config, "training.weight_decay")));
  }
  if (is_sgd && brim_config_is_set(config, "training.momentum")) {
    set_argument(o, "momentum", float_value(brim_config_float(config, "training.momentum")));
  }
  if (is_sgd && brim_config_is_set(config, "training.nesterov")) {
    brim_value value = {.kind = BRIM_VALUE_BOOL,
                        .boolean = brim_config_bool(config, "training.nesterov")};
    set_argument(o, "nesterov", value);
  }
  return BRIM_OK;
}

brim_work_warmup brim_work_warmup_of(const brim_config *config, int64_t steps_per_epoch) {
  // the config also copies the scheduler's own argument to this key
  brim_work_warmup out = {.key = "training.warmup_steps"};
  out.steps = out.asked = brim_config_int(config, out.key);
  if (out.asked > 0) return out;
  out.key = "training.warmup_epochs";
  double epochs = brim_config_float(config, out.key);
  int64_t total = steps_per_epoch * brim_config_int(config, "training.epochs");
  out.steps = out.asked = (int64_t)llround(epochs * (double)steps_per_epoch);
  if (total > 0 && 2 * out.asked >= total) out.steps = total / 5;
  return out;
}

//---------------------------------- checkpoints ----------------------------------

// The device's name for choices of algorithms: a GPU's model, since choices differ between models. NULL for CPUs,
// whose backends choose by shape.
static const char *device_name(const brim_device *device) {
  return device->info.kind == BRIM_DEVICE_GPU ? device->info.name : NULL;
}

brim_status brim_work_put_i64(json_t *meta, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return brim_json_put(meta, key, json_string(text));
}

size_t brim_work_get_numbers(const json_t *metadata, const char *key, double *out, size_t most) {
  size_t n = brim_json_get_numbers(metadata, key, out, most);
  for (size_t i = 0; i < n; i++) {
    if (!isfinite(out[i])) return 0;
  }
  return n;
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

brim_status brim_work_get_count(const json_t *meta, const char *path, const char *key,
                                int64_t *out) {
  const char *text = json_string_value(json_object_get(meta, key));
  if (text && brim_parse_i64(text, out) && *out >= 0 && *out < (int64_t)1 << 53) return BRIM_OK;
  return brim_fail(BRIM_EPARSE,
                   "%s: __metadata__ has no valid '%s'; is it a checkpoint of brim train?", path,
                   key);
}

void brim_work_warn_if_other(const json_t *meta, const char *path, const char *key,
                             const char *now) {
  const char *saved = json_string_value(json_object_get(meta, key));
  if (!saved || strcmp(saved, now) == 0) return;
  brim_log_warn("workload",
                "%s was written with %s %s, this run uses %s: the run continues, but is no "
                "longer bit-identical",
                path, key + strlen("brim."), saved, now);
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
    // The choice matters only for speed: continue, but warn that bits differ.
    brim_log_warn("workload",
                  "%s: cannot restore its choice of algorithms (%s): the run continues, but is no "
                  "longer bit-identical",
                  path, brim_status_detail());
  }
  brim_safetensors_close(file);
  return BRIM_OK;
}
