// What the supervised workload reads from the config: network, optimiser, knobs. Sources, transforms
// and the loss they ask for are in workload_data.c.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_int.h"

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", NULL};
// training.checkpointing's words in the order of brim_recompute: none, auto, all
static const char *const checkpointing_choices[] = {"false", "auto", "true", NULL};
const char *const brim_cache_choices[] = {"none", "ram", "gpu", "auto", NULL};

//---------------------------------- input ----------------------------------

// x / 255 for bytes, then (x - mean) / std where the source suggests it: one multiply-add a
// channel.
void brim_supervised_set_input(const brim_source_info *info, brim_net_spec *spec) {
  spec->input_dtype = info->type == BRIM_SAMPLE_U8 ? BRIM_U8 : BRIM_F32;
  spec->input_rank = info->rank;
  for (int i = 0; i < info->rank; i++) spec->input_dim[i] = info->dim[i];
  float unit = info->type == BRIM_SAMPLE_U8 ? 1.0f / 255.0f : 1.0f;
  spec->channels = info->channels > 0 ? info->channels : 1;
  for (int c = 0; c < spec->channels; c++) {
    float mean = info->channels > 0 ? info->mean[c] : 0.0f;
    float std = info->channels > 0 && info->std[c] > 0 ? info->std[c] : 1.0f;
    spec->scale[c] = unit / std;
    spec->shift[c] = -mean / std;
  }
}

static void set_input(brim_supervised *w) {
  const brim_source_info *info = brim_supervised_train_info(w);
  brim_supervised_set_input(info, &w->spec);
  brim_supervised_set_eval(w, &w->spec);
  w->spec.views = w->views;
  // a projection is as wide as its model says, and is compared to other projections
  w->spec.classes = w->views > 1 ? 0 : info->classes;
  w->spec.target_dim = w->views > 1 ? 1 : info->target_dim;
}

//---------------------------------- optimiser ----------------------------------

static void set_argument(brim_supervised *w, const char *name, brim_value value) {
  brim_component *c = &w->optimizer;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (strcmp(w->optimizer_args[i].name, name) == 0) {
      w->optimizer_args[i].value = value;
      return;
    }
  }
  if (c->arg_count == BRIM_SUPERVISED_MAX_ARGS) return;
  w->optimizer_args[c->arg_count].name = name;
  w->optimizer_args[c->arg_count].value = value;
  c->arg_count++;
}

static brim_value float_value(double number) {
  brim_value value = {.kind = BRIM_VALUE_FLOAT, .number = number};
  return value;
}

// training.* keys that are set win over the component's arguments.
static brim_status set_optimizer(brim_supervised *w) {
  const brim_config *config = w->config;
  const brim_component *given = brim_config_component(config, "optimizer", NULL);
  if (!given) return brim_fail(BRIM_EINVAL, "the config has no optimizer");
  if (given->arg_count > BRIM_SUPERVISED_MAX_ARGS - 3) {
    return brim_fail(BRIM_EINVAL, "optimizer %s has too many arguments", given->name);
  }
  w->optimizer = *given;
  w->optimizer.args = w->optimizer_args;
  for (size_t i = 0; i < given->arg_count; i++) w->optimizer_args[i] = given->args[i];
  bool is_sgd = strcmp(given->name, "sgd") == 0;
  w->base_lr = brim_component_float(given, "lr", is_sgd ? 0.05 : 1e-3);
  if (brim_config_is_set(config, "training.learning_rate")) {
    w->base_lr = brim_config_float(config, "training.learning_rate");
  }
  if (brim_config_is_set(config, "training.weight_decay")) {
    set_argument(w, "weight_decay",
                 float_value(brim_config_float(config, "training.weight_decay")));
  }
  if (is_sgd && brim_config_is_set(config, "training.momentum")) {
    set_argument(w, "momentum", float_value(brim_config_float(config, "training.momentum")));
  }
  if (is_sgd && brim_config_is_set(config, "training.nesterov")) {
    brim_value value = {.kind = BRIM_VALUE_BOOL,
                        .boolean = brim_config_bool(config, "training.nesterov")};
    set_argument(w, "nesterov", value);
  }
  return BRIM_OK;
}

//---------------------------------- precision ----------------------------------

bool brim_supervised_device_has(brim_device *device, brim_dtype dtype) {
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
  return (device->info.fast_types & 1u << dtype) && brim_supervised_device_has(device, dtype);
}

// An explicit precision is taken as it is. use_amp (mixed_precision, ...) and auto mean bf16 or,
// failing that, fp16 where the device has fast instructions for it. Emulated, 16 bits are 2 to 4
// times slower than fp32.
static brim_status choose_precision(brim_supervised *w, brim_precision *out) {
  brim_device *device = w->context.device;
  const char *text = brim_config_string(w->config, "training.precision");
  if (text && strcmp(text, "auto") != 0) {
    if (brim_precision_parse(text, out)) return BRIM_OK;
    return brim_fail(BRIM_EINVAL, "training.precision '%s' is not one of fp32, tf32, bf16, fp16",
                     text);
  }
  *out = BRIM_PRECISION_FP32;
  if (!brim_config_bool(w->config, "training.use_amp")) return BRIM_OK;
  if (is_fast(device, BRIM_BF16)) {
    *out = BRIM_PRECISION_BF16;
  } else if (is_fast(device, BRIM_F16)) {
    *out = BRIM_PRECISION_FP16;
  } else if (device->info.kind == BRIM_DEVICE_GPU) {
    brim_log_warn("workload", "precision: fp32, because this GPU has no fast 16-bit arithmetic");
  } else if (strcmp(device->backend->name, "ref") == 0) {
    brim_log_warn("workload", "precision: fp32, because the ref backend only emulates 16 bits");
  } else {
    brim_log_warn("workload", "precision: fp32, because this CPU has no bf16 instructions");
  }
  return BRIM_OK;
}

//---------------------------------- knobs ----------------------------------

// Three eighths of the cores: in the middle between a quarter and half.
int64_t brim_supervised_default_workers(void) {
  int64_t cores = brim_cpu_count(), half = cores / 2;
  int64_t workers = (3 * cores + 7) / 8;
  if (workers > half) workers = half;
  return workers > 1 ? workers : 1;
}

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

// With the data set on the device (or read by it) no worker loads anything.
static bool loader_matters(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_supervised_caching caching;
  brim_plan plan;
  if (w->context.device->info.host_memory) return true;
  memset(&plan, 0, sizeof plan);
  // auto and none look at what the rest of the plan leaves
  bool asked = setting->value[BRIM_SUPERVISED_CACHE] == BRIM_CACHE_GPU;
  brim_status status = asked ? BRIM_OK : brim_supervised_plan_net(w, setting, &plan);
  if (!status) status = brim_supervised_choose_cache(w, setting, &plan, &caching);
  brim_status_clear();
  if (status) return true;
  return caching.train != BRIM_CACHE_GPU && caching.train != BRIM_CACHE_MAPPED;
}

static bool pin_matters(void *work, const brim_setting *setting) {
  const brim_supervised *w = (const brim_supervised *)work;
  return !w->context.device->info.host_memory && loader_matters(work, setting);
}

static bool prefetch_matters(void *work, const brim_setting *setting) {
  return setting->value[BRIM_SUPERVISED_WORKERS] > 0 && loader_matters(work, setting);
}

static brim_status set_knobs(brim_supervised *w) {
  const brim_config *config = w->config;
  brim_precision precision = BRIM_PRECISION_FP32;
  BRIM_TRY(choose_precision(w, &precision));
  int64_t workers = brim_config_int(config, "data.num_workers");
  if (workers < 0) workers = brim_supervised_default_workers();  // -1: chosen here
  const brim_knob knobs[BRIM_SUPERVISED_KNOBS] = {
      [BRIM_SUPERVISED_BATCH] = {.name = "batch_size",
                                 .key = "data.batch_size",
                                 .kind = BRIM_KNOB_INT,
                                 .min = 1,
                                 .max = 1 << 28,
                                 .changes_learning = true,
                                 .value = brim_config_int(config, "data.batch_size")},
      [BRIM_SUPERVISED_WORKERS] = {.name = "num_workers",
                                   .key = "data.num_workers",
                                   .kind = BRIM_KNOB_INT,
                                   .min = 0,
                                   .max = 1024,
                                   .matters = loader_matters,
                                   .value = workers},
      [BRIM_SUPERVISED_PRECISION] = {.name = "precision",
                                     .key = "training.precision",
                                     .kind = BRIM_KNOB_CHOICE,
                                     .min = 0,
                                     .max = BRIM_PRECISION_COUNT - 1,
                                     .choices = precision_choices,
                                     .value = precision},
      [BRIM_SUPERVISED_PIN] = {.name = "pin_memory",
                               .key = "data.pin_memory",
                               .kind = BRIM_KNOB_BOOL,
                               .min = 0,
                               .max = 1,
                               .matters = pin_matters,
                               .value = brim_config_bool(config, "data.pin_memory")},
      [BRIM_SUPERVISED_PREFETCH] = {.name = "prefetch",
                                    .key = "data.prefetch_factor",
                                    .kind = BRIM_KNOB_INT,
                                    .min = 1,
                                    .max = 1024,
                                    .matters = prefetch_matters,
                                    .value = brim_config_int(config, "data.prefetch_factor")},
      [BRIM_SUPERVISED_ACCUMULATION] = {.name = "accumulation",
                                        .key = "training.gradient_accumulation_steps",
                                        .kind = BRIM_KNOB_INT,
                                        .min = 1,
                                        .max = 65536,
                                        .changes_learning = true,
                                        .value = brim_config_int(
                                            config, "training.gradient_accumulation_steps")},
      [BRIM_SUPERVISED_COMPILE] = {.name = "compile",
                                   .key = "training.compile",
                                   .kind = BRIM_KNOB_BOOL,
                                   .min = 0,
                                   .max = 1,
                                   .value = brim_config_bool(config, "training.compile")},
      [BRIM_SUPERVISED_CHECKPOINTING] = {.name = "checkpointing",
                                         .key = "training.checkpointing",
                                         .kind = BRIM_KNOB_CHOICE,
                                         .min = BRIM_RECOMPUTE_NONE,
                                         .max = BRIM_RECOMPUTE_ALL,
                                         .choices = checkpointing_choices,
                                         .value = checkpointing(config)},
      [BRIM_SUPERVISED_CACHE] = {.name = "cache",
                                 .key = "data.cache",
                                 .kind = BRIM_KNOB_CHOICE,
                                 .min = BRIM_CACHE_NONE,
                                 .max = BRIM_CACHE_AUTO,
                                 .choices = brim_cache_choices,
                                 .value = cache(config)},
  };
  memcpy(w->knobs, knobs, sizeof knobs);
  return BRIM_OK;
}

static void describe(brim_supervised *w) {
  const brim_source_info *info = &w->train_source->info;
  char count[32];
  brim_format_count((double)info->count, count);
  int n = snprintf(w->description, sizeof w->description, "%s on %s samples of %s",
                   w->spec.model->name, count, info->varies ? "up to " : "");
  for (int i = 0; i < info->rank && n > 0 && (size_t)n < sizeof w->description; i++) {
    n += snprintf(w->description + n, sizeof w->description - (size_t)n, "%s%" PRId64, i ? "x" : "",
                  info->dim[i]);
  }
  if (n > 0 && (size_t)n < sizeof w->description) {
    snprintf(w->description + n, sizeof w->description - (size_t)n, " %s",
             info->type == BRIM_SAMPLE_U8 ? "u8" : "f32");
  }
}

// Threads that end with an epoch would only have to be started again.
static void say_threads_stay(const brim_config *config) {
  const char *key = "data.persistent_workers";
  if (!brim_config_is_set(config, key) || brim_config_bool(config, key)) return;
  if (brim_config_layer_of(config, key) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload",
                "%s: false has no effect; loader threads always stay alive between epochs", key);
}

static brim_status set_loader(brim_supervised *w) {
  const brim_config *config = w->config;
  w->loader.shuffle = brim_config_bool(config, "data.shuffle");
  w->loader.drop_last = w->views > 1 || brim_config_bool(config, "data.drop_last");
  w->loader.seed = w->spec.seed;
  w->loader.rank = 0;
  w->loader.world = 1;
  w->loader.limit = (uint64_t)brim_config_int(config, "data.limit");
  const char *on_error = brim_config_string(config, "data.on_error");
  w->loader.skip_broken = on_error && strcmp(on_error, "skip") == 0;
  say_threads_stay(config);
  uint64_t total = 0;
  brim_machine_free_memory("", &w->host_bytes, &total);
  BRIM_TRY(brim_device_memory(w->context.device, &w->device_bytes, &total));
  brim_supervised_probe_mapped(w);
  return BRIM_OK;
}

// Allowed, and seldom meant.
static void warn_of_projection(const brim_supervised *w) {
  const char *name = w->spec.model->name;
  if (!w->contrastive.on || strcmp(name, "simclr") == 0) return;
  bool convolutions = brim_str_starts(name, "resnet") || brim_str_starts(name, "wideresnet");
  brim_log_warn("workload",
                "model %s has no projection head, which makes its features worse; use model: "
                "simclr(backbone=%s)",
                name, convolutions ? name : "resnet18");
}

// `patch: auto` takes a divisor of the length, up to 32: of a long signal whose length has no good one,
// such as a prime, every token is a sample or few, and attention grows with the square of their number.
static void warn_of_short_tokens(const brim_supervised *w) {
  enum { LONG = 128, MOST_TOKEN = 32, LEAST_TOKEN = 8 };
  const brim_source_info *info = brim_supervised_train_info(w);
  int64_t length = info->dim[0], patch = 1;
  if (strcmp(w->spec.model->name, "transformer") != 0 || info->rank > 2 || length < LONG) return;
  if (brim_component_int(w->spec.model, "patch", 0) > 0) return;
  for (int64_t d = 2; d <= MOST_TOKEN; d++) patch = length % d == 0 ? d : patch;
  if (patch >= LEAST_TOKEN) return;
  long long cut = (long long)(length - length % MOST_TOKEN);
  if (info->rank == 2) {
    brim_log_warn("workload",
                  "transformer: a length of %lld makes %lld tokens, which trains slowly; cut the "
                  "signals, for train and val: transform: center_crop(size=(%lld, %lld))",
                  (long long)length, (long long)(length / patch), cut, (long long)info->dim[1]);
  } else {
    brim_log_warn("workload",
                  "transformer: a length of %lld makes %lld tokens, which trains slowly; store "
                  "signals of %lld values",
                  (long long)length, (long long)(length / patch), cut);
  }
}

brim_status brim_supervised_setup(brim_supervised *w) {
  static const brim_component mlp = {.name = "mlp"};
  const brim_config *config = w->config;
  BRIM_TRY(brim_arena_create(0, &w->arena));
  w->spec.seed = (uint64_t)brim_config_int(config, "seed");
  w->spec.clip_norm = brim_config_float(config, "training.clip_norm");
  w->spec.ema_decay = brim_config_float(config, "training.ema_decay");
  w->settle_batches = brim_config_int(config, "training.ema_batches");
  w->spec.memory_limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  w->weights = brim_config_string(config, "training.weights");
  if (w->weights && !w->weights[0]) w->weights = NULL;
  BRIM_TRY(brim_supervised_open_data(w));
  BRIM_TRY(brim_contrastive_setup(w));
  set_input(w);
  const brim_component *model = brim_config_component(config, "model", NULL);
  w->spec.model = model ? model : &mlp;
  warn_of_projection(w);
  warn_of_short_tokens(w);
  BRIM_TRY(set_optimizer(w));
  w->spec.optimizer = &w->optimizer;
  BRIM_TRY(set_knobs(w));
  w->spec.eval_batch = brim_config_int(config, "data.eval_batch_size");
  BRIM_TRY(set_loader(w));
  describe(w);
  return BRIM_OK;
}

int64_t brim_supervised_whole(const brim_supervised *w) {
  return w->loader.drop_last && !w->contrastive.on ? w->knobs[BRIM_SUPERVISED_BATCH].value : 0;
}

bool brim_supervised_adapted(const brim_supervised *w, const brim_net_spec *spec) {
  return w->adapts && spec->batch < w->knobs[BRIM_SUPERVISED_BATCH].value &&
         spec->accumulation > w->knobs[BRIM_SUPERVISED_ACCUMULATION].value;
}

// Samples that are evaluated at once, where the config names a number: never more than there are, since a
// plan is held to what it says. Of contrastive training the bank's count too.
static int64_t evaluated_at_once(const brim_supervised *w, int64_t asked, int64_t batch) {
  int64_t most = w->eval_source ? (int64_t)w->eval_source->info.count : batch;
  if (w->contrastive.neighbours.bank > most) most = w->contrastive.neighbours.bank;
  return asked > most ? most : asked;
}

void brim_supervised_apply(const brim_supervised *w, const brim_setting *setting,
                           brim_net_spec *spec, brim_loader_options *train,
                           brim_loader_options *eval) {
  *spec = w->spec;
  spec->batch = setting->value[BRIM_SUPERVISED_BATCH];
  spec->accumulation = setting->value[BRIM_SUPERVISED_ACCUMULATION];
  spec->precision = (brim_precision)setting->value[BRIM_SUPERVISED_PRECISION];
  spec->eager = setting->value[BRIM_SUPERVISED_COMPILE] == 0;
  spec->recompute = (brim_recompute)setting->value[BRIM_SUPERVISED_CHECKPOINTING];
  spec->neighbours = w->contrastive.neighbours;
  spec->eval_batch =
      spec->eval_batch > 0 ? evaluated_at_once(w, spec->eval_batch, spec->batch) : spec->batch;
  // its size changes no result: under a limit it must not be what does not fit
  bool adapted = brim_supervised_adapted(w, spec);
  bool tight = spec->memory_limit > 0 || adapted || w->small_eval;  // (there was too little memory)
  if (tight && spec->eval_batch > spec->batch) spec->eval_batch = spec->batch;
  *train = w->loader;
  // whole steps, whatever they are made of: all their samples are each other's negatives
  if (w->contrastive.on) train->multiple = spec->batch * spec->accumulation;
  // what drop_last leaves out is asked for by the batch size in the config, whatever fits of it
  int64_t whole = brim_supervised_whole(w);
  if (adapted && whole > 0 && whole % spec->batch == 0) train->multiple = whole;
  train->transforms = w->train_transforms;
  train->batch = spec->batch;
  train->num_workers = (int)setting->value[BRIM_SUPERVISED_WORKERS];
  train->prefetch_factor = (int)setting->value[BRIM_SUPERVISED_PREFETCH];
  train->pin_memory = setting->value[BRIM_SUPERVISED_PIN] != 0;
  // Evaluation reads in order: what has only to be copied inline, what takes work with workers of its
  // own, while those of training rest behind a full ring. They share each batch: few are enough.
  *eval = *train;
  eval->batch = spec->eval_batch;
  bool work = w->eval_source && (w->eval_source->info.costly || w->eval_transforms);
  if (!work) eval->num_workers = 0;
  eval->prefetch_factor = 1;
  eval->most_slots = 4;
  eval->shuffle = false;
  eval->once = true;
  eval->drop_last = false;
  eval->limit = 0;
  eval->multiple = 0;
  eval->rank = 0;  // what is evaluated is not shared out among ranks
  eval->world = 1;
  eval->transforms = w->eval_transforms;
}

// The engine's schedules count optimiser steps; people count epochs: step(every=30) is 30 epochs.
static brim_component in_steps(const brim_component *scheduler, int64_t per_epoch,
                               brim_argument args[BRIM_SUPERVISED_MAX_ARGS]) {
  brim_component c = *scheduler;
  if (c.arg_count > BRIM_SUPERVISED_MAX_ARGS) c.arg_count = BRIM_SUPERVISED_MAX_ARGS;
  for (size_t i = 0; i < c.arg_count; i++) {
    args[i] = scheduler->args[i];
    if (strcmp(args[i].name, "every") != 0) continue;
    args[i].value.integer *= per_epoch;
    args[i].value.number *= (double)per_epoch;
  }
  c.args = args;
  return c;
}

brim_status brim_supervised_schedule(brim_supervised *w) {
  const brim_config *config = w->config;
  int64_t per_step = w->batch * w->accumulation;
  int64_t per_epoch = (w->epoch_samples + per_step - 1) / per_step;
  int64_t total = per_epoch * brim_config_int(config, "training.epochs");
  brim_work_warmup warmup = brim_work_warmup_of(config, per_epoch);
  const brim_component *scheduler = brim_config_component(config, "scheduler", NULL);
  brim_argument args[BRIM_SUPERVISED_MAX_ARGS];
  brim_component steps;
  if (scheduler) {
    steps = in_steps(scheduler, per_epoch, args);
    scheduler = &steps;
  }
  return brim_schedule_init(&w->schedule, scheduler, w->base_lr, warmup.steps, total);
}
