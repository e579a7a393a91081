// The knobs of workloads that train a network on data: their rows, and their values in a config.
#include <string.h>

#include "workload/workload_cache.h"
#include "workload/workload_learn.h"

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", NULL};
// training.checkpointing's words in the order of brim_recompute: none, auto, all
static const char *const checkpointing_choices[] = {"false", "auto", "true", NULL};

//---------------------------------- words ----------------------------------

static const brim_knob_check batch_check = {
    .recommended = BRIM_N_("batch size: %s"),
    .none = BRIM_N_("batch size: several were tried, none is recommended"),
    .one = BRIM_N_("batch size: only one was tried; --batch-sizes 128 256 512 ..."),
    .ended = BRIM_N_("batch size: the sweep ended with one alone measured")};

static const brim_knob_check workers_check = {
    .recommended = BRIM_N_("workers: %s"),
    .none = BRIM_N_("workers: several were tried, none is recommended"),
    .one = BRIM_N_("workers: only one number was tried; --num-workers 0 2 4 8"),
    .ended = BRIM_N_("workers: the sweep ended with one number alone measured")};

static const brim_knob_row words[BRIM_LEARN_KNOBS] = {
    [BRIM_LEARN_BATCH] = {.name = "batch_size",
                          .label = BRIM_N_("Batch size"),
                          .heading = BRIM_N_("Batch"),
                          .narrow = BRIM_N_("Batch"),
                          .role = BRIM_ROLE_BATCH,
                          .always = true,
                          .check = &batch_check},
    [BRIM_LEARN_WORKERS] = {.name = "num_workers",
                            .label = BRIM_N_("Workers"),
                            .heading = BRIM_N_("Workers"),
                            .narrow = BRIM_N_("Work"),
                            .role = BRIM_ROLE_WORKERS,
                            .always = true,
                            .check = &workers_check},
    [BRIM_LEARN_PRECISION] = {.name = "precision",
                              .label = BRIM_N_("Precision"),
                              .heading = BRIM_N_("Precision"),
                              .narrow = BRIM_N_("Prec"),
                              .role = BRIM_ROLE_PRECISION,
                              .always = true,
                              .overhead = true},
    [BRIM_LEARN_PIN] = {.name = "pin_memory",
                        .label = BRIM_N_("Pinned memory"),
                        .heading = BRIM_N_("Pinned"),
                        .narrow = BRIM_N_("Pin"),
                        .role = BRIM_ROLE_PINNED},
    [BRIM_LEARN_PREFETCH] = {.name = "prefetch",
                             .label = BRIM_N_("Prefetch"),
                             .heading = BRIM_N_("Prefetch"),
                             .narrow = BRIM_N_("Pre"),
                             .role = BRIM_ROLE_PREFETCH},
    [BRIM_LEARN_ACCUMULATION] = {.name = "accumulation",
                                 .label = BRIM_N_("Accumulation"),
                                 .heading = BRIM_N_("Accum"),
                                 .narrow = BRIM_N_("Acc"),
                                 .role = BRIM_ROLE_ACCUMULATION},
    [BRIM_LEARN_COMPILE] = {.name = "compile",
                            .label = BRIM_N_("Compile"),
                            .heading = BRIM_N_("Compile"),
                            .narrow = BRIM_N_("Comp"),
                            .role = BRIM_ROLE_GRAPH,
                            .overhead = true},
    [BRIM_LEARN_CHECKPOINTING] = {.name = "checkpointing",
                                  .label = BRIM_N_("Checkpointing"),
                                  .heading = BRIM_N_("Ckpt"),
                                  .narrow = BRIM_N_("Ckpt"),
                                  .role = BRIM_ROLE_RECOMPUTE,
                                  .overhead = true},
    [BRIM_LEARN_CACHE] = {.name = "cache",
                          .label = BRIM_N_("Data set kept in"),
                          .heading = BRIM_N_("Cache"),
                          .narrow = BRIM_N_("Cache")},
    [BRIM_LEARN_THREADS] = BRIM_THREADS_KNOB_ROW,
};

const brim_knob_set brim_learn_knob_set = {
    .rows = words,
    .count = BRIM_LEARN_KNOBS,
    .less_memory =
        BRIM_N_("a smaller batch_size with gradient_accumulation_steps, or checkpointing=true")};

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

// An explicit precision is taken as it is. use_amp (mixed_precision, ...) and auto mean bf16 or,
// failing that, fp16 where the device has fast instructions for it. Emulated, 16 bits are 2 to 4
// times slower than fp32.
brim_status brim_learn_precision(const brim_config *config, brim_device *device,
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

brim_status brim_learn_check_precision(brim_device *device, const brim_net_spec *spec) {
  if (spec->precision != BRIM_PRECISION_FP16 || device_has(device, BRIM_F16)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "precision fp16 is not supported on %s; use bf16 or fp32",
                   device->backend->name);
}

//---------------------------------- knobs ----------------------------------

static int64_t cache(const brim_config *config) {
  const char *text = brim_config_string(config, "data.cache");
  for (int64_t i = 0; text && brim_cache_choices[i]; i++) {
    if (strcmp(brim_cache_choices[i], text) == 0) return i;
  }
  return BRIM_CACHE_AUTO;
}

static int64_t checkpointing(const brim_config *config) {
  const char *text = brim_config_string(config, "training.checkpointing");
  for (int64_t i = 0; text && checkpointing_choices[i]; i++) {
    if (strcmp(checkpointing_choices[i], text) == 0) return i;
  }
  return BRIM_RECOMPUTE_AUTO;
}

static const brim_knob rows[BRIM_LEARN_KNOBS] = {
    [BRIM_LEARN_BATCH] = {.name = "batch_size",
                          .key = "data.batch_size",
                          .kind = BRIM_KNOB_INT,
                          .min = 1,
                          .max = 1 << 28,
                          .changes_learning = true,
                          .multiplies = true,
                          .list = "benchmark.batch_sizes",
                          .option = "--batch-sizes",
                          .axis = brim_learn_batches,
                          .order = 8},
    [BRIM_LEARN_WORKERS] = {.name = "num_workers",
                            .key = "data.num_workers",
                            .kind = BRIM_KNOB_INT,
                            .min = 0,
                            .max = 1024,
                            .list = "benchmark.num_workers_options",
                            .option = "--num-workers",
                            .axis = brim_learn_workers,
                            .order = 7},
    [BRIM_LEARN_PRECISION] = {.name = "precision",
                              .key = "training.precision",
                              .kind = BRIM_KNOB_CHOICE,
                              .min = 0,
                              .max = BRIM_PRECISION_COUNT - 1,
                              .choices = precision_choices,
                              .list = "benchmark.precisions",
                              .option = "--precisions",
                              .axis = brim_learn_precisions},
    [BRIM_LEARN_PIN] = {.name = "pin_memory",
                        .key = "data.pin_memory",
                        .kind = BRIM_KNOB_BOOL,
                        .min = 0,
                        .max = 1,
                        .axis = brim_learn_pinned,
                        .order = 1},
    [BRIM_LEARN_PREFETCH] = {.name = "prefetch",
                             .key = "data.prefetch_factor",
                             .kind = BRIM_KNOB_INT,
                             .min = 1,
                             .max = 1024,
                             .list = "benchmark.prefetch_options",
                             .axis = brim_learn_prefetches,
                             .order = 5},
    [BRIM_LEARN_ACCUMULATION] = {.name = "accumulation",
                                 .key = "training.gradient_accumulation_steps",
                                 .kind = BRIM_KNOB_INT,
                                 .min = 1,
                                 .max = 65536,
                                 .changes_learning = true,
                                 .multiplies = true,
                                 .list = "benchmark.accumulation_options",
                                 .option = "--batch-sizes",
                                 .axis = brim_learn_accumulations,
                                 .order = 6},
    [BRIM_LEARN_COMPILE] = {.name = "compile",
                            .key = "training.compile",
                            .kind = BRIM_KNOB_BOOL,
                            .min = 0,
                            .max = 1,
                            .option = "--compile",
                            .axis = brim_learn_compiled,
                            .order = 2},
    [BRIM_LEARN_CHECKPOINTING] = {.name = "checkpointing",
                                  .key = "training.checkpointing",
                                  .kind = BRIM_KNOB_CHOICE,
                                  .min = BRIM_RECOMPUTE_NONE,
                                  .max = BRIM_RECOMPUTE_ALL,
                                  .choices = checkpointing_choices,
                                  .option = "--checkpointing",
                                  .axis = brim_learn_checkpointed,
                                  .order = 3},
    [BRIM_LEARN_CACHE] = {.name = "cache",
                          .key = "data.cache",
                          .kind = BRIM_KNOB_CHOICE,
                          .min = BRIM_CACHE_NONE,
                          .max = BRIM_CACHE_AUTO,
                          .choices = brim_cache_choices,
                          .fills = BRIM_CACHE_RAM,
                          .option = "--cache",
                          .axis = brim_learn_cached,
                          .order = 4},
};

brim_knob brim_learn_threads_knob(const brim_config *config, const brim_device *device) {
  const bool sets = device->info.kind == BRIM_DEVICE_CPU && device->backend->set_threads;
  return (brim_knob){.name = "threads",
                     .key = "threads",
                     .kind = BRIM_KNOB_INT,
                     .max = 4096,
                     .list = "benchmark.threads_options",
                     .axis = brim_learn_threads,
                     .order = 9,
                     .value = sets ? device->info.threads : brim_config_int(config, "threads")};
}

brim_status brim_learn_set_knobs(const brim_config *config, brim_device *device,
                                 const brim_learn_matters *matters,
                                 brim_knob out[BRIM_LEARN_KNOBS]) {
  brim_precision precision = BRIM_PRECISION_FP32;
  BRIM_TRY(brim_learn_precision(config, device, &precision));
  int64_t workers = brim_config_int(config, "data.num_workers");
  if (workers < 0) workers = brim_work_default_workers();  // -1: chosen here
  memcpy(out, rows, sizeof rows);
  out[BRIM_LEARN_BATCH].value = brim_config_int(config, "data.batch_size");
  out[BRIM_LEARN_WORKERS].value = workers;
  out[BRIM_LEARN_PRECISION].value = precision;
  out[BRIM_LEARN_PIN].value = brim_config_bool(config, "data.pin_memory");
  out[BRIM_LEARN_PREFETCH].value = brim_config_int(config, "data.prefetch_factor");
  out[BRIM_LEARN_ACCUMULATION].value =
      brim_config_int(config, "training.gradient_accumulation_steps");
  out[BRIM_LEARN_COMPILE].value = brim_config_bool(config, "training.compile");
  out[BRIM_LEARN_CHECKPOINTING].value = checkpointing(config);
  out[BRIM_LEARN_CACHE].value = cache(config);
  out[BRIM_LEARN_THREADS] = brim_learn_threads_knob(config, device);
  out[BRIM_LEARN_WORKERS].matters = matters->workers;
  out[BRIM_LEARN_PIN].matters = matters->pin;
  out[BRIM_LEARN_PREFETCH].matters = matters->prefetch;
  return BRIM_OK;
}

brim_batching brim_learn_batching(const brim_knob knobs[BRIM_LEARN_KNOBS]) {
  return (brim_batching){.batch = knobs[BRIM_LEARN_BATCH].value,
                         .accumulation = knobs[BRIM_LEARN_ACCUMULATION].value};
}

bool brim_learn_loader_matters(const brim_device *device, const brim_setting *setting,
                               brim_cache_of cache_of, void *work) {
  brim_work_caching caching;
  if (device->info.host_memory) return true;
  // auto and none look at what the rest of the plan leaves
  bool planned = setting->value[BRIM_LEARN_CACHE] != BRIM_CACHE_GPU;
  brim_status status = cache_of(work, setting, planned, &caching);
  brim_status_clear();
  return status || !brim_cache_needs_no_workers(caching.train);
}
