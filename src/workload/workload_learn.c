// What workloads that train a network on data read from the config, and what a setting makes of it.
#include "workload/workload_learn.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_cache.h"

//---------------------------------- input ----------------------------------

// x / 255 for bytes, then (x - mean) / std where the source suggests it: one multiply-add a
// channel.
void brim_learn_set_input(const brim_source_info *info, brim_net_spec *spec) {
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

void brim_learn_set_spec(const brim_config *config, brim_net_spec *spec) {
  static const brim_component mlp = {.name = "mlp"};
  const brim_component *model = brim_config_component(config, "model", NULL);
  spec->seed = (uint64_t)brim_config_int(config, "seed");
  spec->clip_norm = brim_config_float(config, "training.clip_norm");
  spec->ema_decay = brim_config_float(config, "training.ema_decay");
  spec->local_norm = !brim_config_bool(config, "training.sync_batchnorm");
  spec->memory_limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  spec->eval_batch = brim_config_int(config, "data.eval_batch_size");
  spec->model = model ? model : &mlp;
}

const char *brim_learn_weights(const brim_config *config) {
  const char *weights = brim_config_string(config, "training.weights");
  return weights && weights[0] ? weights : NULL;
}

//---------------------------------- optimiser ----------------------------------

static void set_argument(brim_learn_optimizer *o, const char *name, brim_value value) {
  brim_component *c = &o->component;
  for (size_t i = 0; i < c->arg_count; i++) {
    if (strcmp(o->args[i].name, name) == 0) {
      o->args[i].value = value;
      return;
    }
  }
  if (c->arg_count == BRIM_LEARN_MAX_ARGS) return;
  o->args[c->arg_count].name = name;
  o->args[c->arg_count].value = value;
  c->arg_count++;
}

static brim_value float_value(double number) {
  brim_value value = {.kind = BRIM_VALUE_FLOAT, .number = number};
  return value;
}

// training.* keys that are set win over the component's arguments.
brim_status brim_learn_set_optimizer(const brim_config *config, brim_learn_optimizer *o) {
  const brim_component *given = brim_config_component(config, "optimizer", NULL);
  if (!given) return brim_fail(BRIM_EINVAL, "the config has no optimizer");
  if (given->arg_count > BRIM_LEARN_MAX_ARGS - 3) {
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

//---------------------------------- words ----------------------------------

// `patch: auto` takes a divisor of the length, up to 32: of a long signal whose length has no good one,
// such as a prime, every token is a sample or few, and attention grows with the square of their number.
void brim_learn_warn_short_tokens(const brim_net_spec *spec, const brim_source_info *info) {
  enum { LONG = 128, MOST_TOKEN = 32, LEAST_TOKEN = 8 };
  int64_t length = info->dim[0], patch = 1;
  if (strcmp(spec->model->name, "transformer") != 0 || info->rank > 2 || length < LONG) return;
  if (brim_component_int(spec->model, "patch", 0) > 0) return;
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

void brim_learn_describe(const brim_net_spec *spec, const brim_source_info *info, char out[160]) {
  const size_t size = 160;
  char count[32];
  brim_format_count((double)info->count, count);
  int n = snprintf(out, size, "%s on %s samples of %s", spec->model->name, count,
                   info->varies ? "up to " : "");
  for (int i = 0; i < info->rank && n > 0 && (size_t)n < size; i++) {
    n += snprintf(out + n, size - (size_t)n, "%s%" PRId64, i ? "x" : "", info->dim[i]);
  }
  if (n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, " %s", info->type == BRIM_SAMPLE_U8 ? "u8" : "f32");
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

void brim_learn_set_loader(const brim_config *config, uint64_t seed, brim_loader_options *out) {
  const char *on_error = brim_config_string(config, "data.on_error");
  memset(out, 0, sizeof *out);
  out->shuffle = brim_config_bool(config, "data.shuffle");
  out->drop_last = brim_config_bool(config, "data.drop_last");
  out->seed = seed;
  out->rank = 0;
  out->world = 1;
  out->limit = (uint64_t)brim_config_int(config, "data.limit");
  out->skip_broken = on_error && strcmp(on_error, "skip") == 0;
  say_threads_stay(config);
}

//---------------------------------- a setting ----------------------------------

bool brim_batching_is_smaller(const brim_batching *batching, const brim_net_spec *spec) {
  return batching->allow_smaller && spec->batch < batching->batch &&
         spec->accumulation > batching->accumulation;
}

// What is evaluated at once changes no result; what is trained on at once may.
bool brim_batching_free_optional(brim_batching *batching, const brim_work_data *data,
                                 const brim_applied *a) {
  const brim_net_spec *spec = &a->spec;
  if (batching->small_eval || !data->eval.source || spec->eval_batch <= spec->batch) return false;
  batching->small_eval = true;
  brim_log_warn("workload",
                "out of memory: evaluation uses batches of %" PRId64
                " samples like training, not the %" PRId64 " of data.eval_batch_size",
                spec->batch, spec->eval_batch);
  return true;
}

// Samples that are evaluated at once, where the config names a number: never more than there are, since a
// plan is held to what it says.
static int64_t evaluated_at_once(const brim_learn_base *base, int64_t asked, int64_t batch) {
  const brim_source *source = base->data->eval.source;
  int64_t most = source ? (int64_t)source->info.count : batch;
  if (base->most_eval > most) most = base->most_eval;
  return asked > most ? most : asked;
}

static void apply_net(const brim_learn_base *base, const brim_setting *setting,
                      brim_net_spec *spec) {
  *spec = *base->spec;
  spec->batch = setting->value[BRIM_LEARN_BATCH];
  spec->accumulation = setting->value[BRIM_LEARN_ACCUMULATION];
  spec->precision = (brim_precision)setting->value[BRIM_LEARN_PRECISION];
  spec->eager = setting->value[BRIM_LEARN_COMPILE] == 0;
  spec->recompute = (brim_recompute)setting->value[BRIM_LEARN_CHECKPOINTING];
  spec->eval_batch =
      spec->eval_batch > 0 ? evaluated_at_once(base, spec->eval_batch, spec->batch) : spec->batch;
  // its size changes no result: under a limit it must not be what does not fit
  bool tight = spec->memory_limit > 0 || brim_batching_is_smaller(base->batching, spec) ||
               base->batching->small_eval;  // (there was too little memory)
  if (tight && spec->eval_batch > spec->batch) spec->eval_batch = spec->batch;
}

void brim_learn_apply(const brim_learn_base *base, const brim_setting *setting, brim_applied *out) {
  const brim_work_set *evaluated = &base->data->eval;
  brim_loader_options *train = &out->train, *eval = &out->eval;
  const brim_device *device = base->data->context.device;
  int ranks = brim_device_ranks(device);
  apply_net(base, setting, &out->spec);
  out->batch = out->spec.batch;
  if (ranks > 1) out->spec.batch = out->batch < ranks ? 1 : out->batch / ranks;
  *train = *base->loader;
  if (ranks > 1) {
    train->rank = brim_device_rank(device);
    train->world = ranks;
  }
  train->transforms = base->data->train.transforms;
  train->batch = out->spec.batch;
  train->num_workers = (int)setting->value[BRIM_LEARN_WORKERS];
  train->prefetch_factor = (int)setting->value[BRIM_LEARN_PREFETCH];
  train->pin_memory = setting->value[BRIM_LEARN_PIN] != 0;
  // Evaluation reads in order: what has only to be copied inline, what takes work with workers of its
  // own, while those of training rest behind a full ring. They share each batch: few are enough.
  *eval = *train;
  eval->batch = out->spec.eval_batch;
  bool work = evaluated->source && (evaluated->source->info.costly || evaluated->transforms);
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
  eval->transforms = evaluated->transforms;
}

// The engine's schedules count optimiser steps; people count epochs: step(every=30) is 30 epochs.
static brim_component in_steps(const brim_component *scheduler, int64_t per_epoch,
                               brim_argument args[BRIM_LEARN_MAX_ARGS]) {
  brim_component c = *scheduler;
  if (c.arg_count > BRIM_LEARN_MAX_ARGS) c.arg_count = BRIM_LEARN_MAX_ARGS;
  for (size_t i = 0; i < c.arg_count; i++) {
    args[i] = scheduler->args[i];
    if (strcmp(args[i].name, "every") != 0) continue;
    args[i].value.integer *= per_epoch;
    args[i].value.number *= (double)per_epoch;
  }
  c.args = args;
  return c;
}

brim_work_warmup brim_work_warmup_of(const brim_config *config, int64_t steps_per_epoch) {
  // also where the scheduler's own argument is found
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

brim_status brim_learn_schedule(const brim_config *config, double lr, int64_t per_epoch,
                                brim_schedule *out) {
  int64_t total = per_epoch * brim_config_int(config, "training.epochs");
  brim_work_warmup warmup = brim_work_warmup_of(config, per_epoch);
  const brim_component *scheduler = brim_config_component(config, "scheduler", NULL);
  brim_argument args[BRIM_LEARN_MAX_ARGS];
  brim_component steps;
  if (scheduler) {
    steps = in_steps(scheduler, per_epoch, args);
    scheduler = &steps;
  }
  return brim_schedule_init(out, scheduler, lr, warmup.steps, total);
}
