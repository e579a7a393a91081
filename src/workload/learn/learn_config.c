// Reading the config of a network that learns from a data set: loss, negatives, knobs and their sweeps,
// input, loader; and laying a setting over it.

#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

//--------------------------------------------- loss ---------------------------------------------

static brim_status check_views(const brim_component *loss, int32_t views) {
  bool pairs = strcmp(loss->name, "ntxent") == 0;
  if (pairs && views != 2) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "loss ntxent compares two views of each sample, but transform makes %d; "
                        "write transform: views | random_resized_crop(size=96) | ...",
                        (int)views);
  }
  if (!pairs && views > 1) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "transform makes %d views of each sample, but loss %s takes one; use loss "
                        "ntxent, or remove views",
                        (int)views, loss->name);
  }
  return BRIM_OK;
}

// Arguments of losses that a key sets too. config_resolve.c handles losses that the config names.
static const struct {
  const char *loss, *argument, *key;
} loss_keys[] = {{"ntxent", "temperature", "contrastive.temperature"},
                 {"cross_entropy", "label_smoothing", "training.label_smoothing"}};

void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out) {
  memset(out, 0, sizeof *out);
  out->loss.name = name;
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 || !brim_config_is_set(config, loss_keys[i].key)) {
      continue;
    }
    double number = brim_config_float(config, loss_keys[i].key);
    out->argument = (brim_argument){.name = loss_keys[i].argument,
                                    .value = {.kind = BRIM_VALUE_FLOAT, .number = number}};
    out->loss.args = &out->argument;
    out->loss.arg_count = 1;
  }
}

static const brim_component *usual_loss(const brim_config *config, const brim_source *source,
                                        int32_t views, brim_usual *usual) {
  const brim_source_info *info = &source->info;
  const char *name = views == 2               ? "ntxent"
                     : info->classes > 0      ? "cross_entropy"
                     : source->binary_targets ? "bce"
                                              : "mse";
  if (views != 2 && info->classes == 0 && source->binary_targets) {
    brim_log_info(
        "workload",
        "all targets are 0 or 1, %lld per sample: brim trains %lld independent labels with "
        "loss=bce; loss=mse makes it a regression",
        (long long)info->target_dim, (long long)info->target_dim);
  }
  brim_usual_loss(config, name, usual);
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 && brim_config_is_asked(config, loss_keys[i].key)) {
      brim_log_warn("workload", "'%s' has no effect on '%s'", loss_keys[i].key, name);
    }
  }
  return &usual->loss;
}

// simclr outputs projections, which predict nothing: it needs two views.
static brim_status check_model(const brim_config *config, int32_t views) {
  const brim_component *model = brim_config_component(config, "model", NULL);
  if (views > 1 || !model || strcmp(model->name, "simclr") != 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, model->file, model->line, model->col,
                      "model simclr trains on two views without labels; write workload: "
                      "contrastive and transform: views | random_resized_crop(size=96) | ...; to "
                      "train on labels, use its backbone as the model");
}

bool brim_work_is_multi_label(const brim_component *loss) {
  return loss && strcmp(loss->name, "bce") == 0;
}

brim_status brim_learn_choose_loss(brim_learn *w) {
  const brim_config *config = w->data.config;
  const brim_source *source = w->data.train.source;
  const int32_t views = w->spec.views;
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  if (!loss) loss = usual_loss(config, source, views, &w->usual);
  w->spec.loss = loss;
  BRIM_TRY(check_views(loss, views));
  BRIM_TRY(check_model(config, views));
  if (views > 1 || source->info.classes > 0 || source->info.target_dim > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                      "the training set has no %s, which loss %s needs; use a labelled split, or "
                      "loss ntxent with transform: views | ...",
                      strcmp(loss->name, "cross_entropy") == 0 ? "labels" : "targets", loss->name);
}

//-------------------------------------------- knobs --------------------------------------------

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

//--------------------------------------- values of knobs ---------------------------------------
// The values that a sweep tries if the user names none: powers of two that fit, a few numbers of workers,
// mixed precision if it works. With `all`, a few values of every knob that makes a difference here.

enum { MAX_BATCHES = 10, BATCHES_OF_ALL = 3, STEP_OF_ALL = 3 };
_Static_assert((int)MAX_BATCHES <= (int)BRIM_KNOB_AXIS, "all default batches fit an axis");

//---------------------------------- plans ----------------------------------

static bool has_plan(const brim_knob_sweep *sweep, int knob, int64_t value, brim_plan *plan) {
  const brim_work *work = sweep->work;
  brim_setting setting = brim_work_setting(work);
  setting.value[knob] = value;
  bool fine = !work->table->plan(work->state, &setting, plan);
  brim_status_clear();
  return fine;
}

// True if a batch has a plan that fits in free memory.
static bool batch_fits(const brim_knob_sweep *sweep, int64_t batch) {
  brim_device *device = sweep->work->context.device;
  brim_plan plan;
  uint64_t free_bytes = 0, total_bytes = 0;
  if (!has_plan(sweep, BRIM_LEARN_BATCH, batch, &plan)) return false;
  if (sweep->card_bytes > 0) {
    return (double)plan.bytes[BRIM_PLACE_DEVICE] < 0.9 * sweep->card_bytes;
  }
  if (brim_device_memory(device, &free_bytes, &total_bytes)) return false;
  uint64_t need = plan.bytes[BRIM_PLACE_DEVICE];
  if (device->info.host_memory) need += plan.bytes[BRIM_PLACE_HOST];
  return (double)need < 0.9 * (double)free_bytes;
}

// Two values of a knob, if both have a plan.
static size_t two_of(const brim_knob_sweep *sweep, int knob, int64_t a, int64_t b,
                     int64_t *values) {
  brim_plan plan;
  if (!has_plan(sweep, knob, a, &plan) || !has_plan(sweep, knob, b, &plan)) return 0;
  values[0] = a;
  values[1] = b;
  return 2;
}

//---------------------------------- axes ----------------------------------

static size_t batches_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  size_t count = 0;
  brim_work_info info;
  memset(&info, 0, sizeof info);
  sweep->work->table->info(state, &info);
  int64_t all = info.samples_per_epoch, top = sweep->gpu ? 32768 : 4096;
  int64_t least = sweep->gpu ? 64 : 32;
  for (int64_t batch = least; batch <= top && count < MAX_BATCHES; batch *= 2) {
    if ((all > 0 && batch > all) || !batch_fits(sweep, batch)) break;
    values[count++] = batch;
  }
  // a set smaller than every batch is one batch
  if (count == 0 && all > 0 && all < least) values[count++] = all;
  brim_status_clear();  // a plan that does not exist was an answer, not an error
  if (count == 0 || !sweep->all) return count;
  // everything else varies too, so take few: the largest, 1/8 and 1/64 of it
  size_t n = (count - 1) / STEP_OF_ALL + 1;
  if (n > BATCHES_OF_ALL) n = BATCHES_OF_ALL;
  for (size_t i = 0; i < n; i++) values[i] = values[count - 1 - (n - 1 - i) * STEP_OF_ALL];
  return n;
}

static size_t workers_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t cpu[] = {0, 1, 2}, gpu[] = {2, 4, 8, 16};
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t max = sweep->gpu ? 4 : 3, count = 0;
  int64_t cores = brim_cpu_count();
  (void)state;
  for (; count < max && from[count] <= cores; count++) values[count] = from[count];
  if (count == 0) values[count++] = from[0];
  if (!sweep->all || count <= 2) return count;
  values[1] = values[count - 1];  // the ends of them
  return 2;
}

static int64_t precision_of(const brim_knob_sweep *sweep, const char *name) {
  const char *const *choices = sweep->work->knobs[BRIM_LEARN_PRECISION].choices;
  int64_t i = 0;
  while (choices[i] && strcmp(choices[i], name) != 0) i++;
  return i;
}

static size_t precisions_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_mixed_precision")) return 0;
  values[0] = precision_of(sweep, "fp32");
  values[1] = precision_of(sweep, "bf16");
  brim_setting setting = brim_work_setting(sweep->work);
  setting.value[BRIM_LEARN_PRECISION] = values[1];
  brim_plan plan;
  if (!sweep->work->table->plan(state, &setting, &plan)) return 2;
  if (sweep->note) {
    snprintf(sweep->note, sweep->note_size, brim_tr("no mixed precision: %s\n"),
             brim_status_detail());
  }
  brim_status_clear();
  return 0;
}

static size_t pinned_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_pin_memory")) return 0;
  if (sweep->work->context.device->info.host_memory) {
    brim_log_info("bench", "pinned memory makes no difference on this device; not swept");
    return 0;
  }
  values[0] = 1;
  values[1] = 0;
  return 2;
}

static size_t compiled_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all || !brim_device_has_graphs(sweep->work->context.device)) return 0;
  return two_of(sweep, BRIM_LEARN_COMPILE, 1, 0, values);
}

// Only for models that have something to recompute.
static size_t checkpointed_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  brim_plan plan;
  (void)state;
  if (!sweep->all) return 0;
  bool planned = has_plan(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_ALL, &plan);
  if (!planned || plan.recomputed <= 0) return 0;
  return two_of(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_ALL, values);
}

static size_t cached_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  bool host = sweep->work->context.device->info.host_memory;
  return two_of(sweep, BRIM_LEARN_CACHE, BRIM_CACHE_NONE, host ? BRIM_CACHE_RAM : BRIM_CACHE_GPU,
                values);
}

static size_t prefetches_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 2;
  values[1] = 4;
  return 2;
}

static size_t accumulations_axis(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 1;
  values[1] = 4;
  return 2;
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
                          .axis = batches_axis,
                          .order = 8},
    [BRIM_LEARN_WORKERS] = {.name = "num_workers",
                            .key = "data.num_workers",
                            .kind = BRIM_KNOB_INT,
                            .min = 0,
                            .max = 1024,
                            .list = "benchmark.num_workers_options",
                            .option = "--num-workers",
                            .axis = workers_axis,
                            .order = 7},
    [BRIM_LEARN_PRECISION] = {.name = "precision",
                              .key = "training.precision",
                              .kind = BRIM_KNOB_CHOICE,
                              .min = 0,
                              .max = BRIM_PRECISION_COUNT - 1,
                              .choices = precision_choices,
                              .list = "benchmark.precisions",
                              .option = "--precisions",
                              .axis = precisions_axis},
    [BRIM_LEARN_PIN] = {.name = "pin_memory",
                        .key = "data.pin_memory",
                        .kind = BRIM_KNOB_BOOL,
                        .min = 0,
                        .max = 1,
                        .axis = pinned_axis,
                        .order = 1},
    [BRIM_LEARN_PREFETCH] = {.name = "prefetch",
                             .key = "data.prefetch_factor",
                             .kind = BRIM_KNOB_INT,
                             .min = 1,
                             .max = 1024,
                             .list = "benchmark.prefetch_options",
                             .axis = prefetches_axis,
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
                                 .axis = accumulations_axis,
                                 .order = 6},
    [BRIM_LEARN_COMPILE] = {.name = "compile",
                            .key = "training.compile",
                            .kind = BRIM_KNOB_BOOL,
                            .min = 0,
                            .max = 1,
                            .option = "--compile",
                            .axis = compiled_axis,
                            .order = 2},
    [BRIM_LEARN_CHECKPOINTING] = {.name = "checkpointing",
                                  .key = "training.checkpointing",
                                  .kind = BRIM_KNOB_CHOICE,
                                  .min = BRIM_RECOMPUTE_NONE,
                                  .max = BRIM_RECOMPUTE_ALL,
                                  .choices = checkpointing_choices,
                                  .option = "--checkpointing",
                                  .axis = checkpointed_axis,
                                  .order = 3},
    [BRIM_LEARN_CACHE] = {.name = "cache",
                          .key = "data.cache",
                          .kind = BRIM_KNOB_CHOICE,
                          .min = BRIM_CACHE_NONE,
                          .max = BRIM_CACHE_AUTO,
                          .choices = brim_cache_choices,
                          .fills = BRIM_CACHE_RAM,
                          .option = "--cache",
                          .axis = cached_axis,
                          .order = 4},
};

// True if workers load the samples: not if they are on the device or read by it.
static bool loader_matters(void *work, const brim_setting *setting) {
  brim_learn *w = (brim_learn *)work;
  brim_work_caching caching;
  if (w->device->info.host_memory) return true;
  // the choice of auto and none depends on the memory that the network leaves
  bool planned = setting->value[BRIM_LEARN_CACHE] != BRIM_CACHE_GPU;
  brim_status status = brim_learn_cache_of(w, setting, planned, &caching);
  brim_status_clear();
  return status || !brim_cache_needs_no_workers(caching.train);
}

static bool pin_matters(void *work, const brim_setting *setting) {
  return !((const brim_learn *)work)->device->info.host_memory && loader_matters(work, setting);
}

static bool prefetch_matters(void *work, const brim_setting *setting) {
  return setting->value[BRIM_LEARN_WORKERS] > 0 && loader_matters(work, setting);
}

static brim_status read_knobs(brim_learn *w) {
  const brim_config *config = w->data.config;
  brim_knob *out = w->knobs;
  brim_precision precision = BRIM_PRECISION_FP32;
  BRIM_TRY(brim_work_precision(config, w->device, &precision));
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
  out[BRIM_LEARN_THREADS] = brim_work_threads_knob(config, w->device);
  out[BRIM_LEARN_WORKERS].matters = loader_matters;
  out[BRIM_LEARN_PIN].matters = pin_matters;
  out[BRIM_LEARN_PREFETCH].matters = prefetch_matters;
  w->batching = (brim_batching){.batch = out[BRIM_LEARN_BATCH].value,
                                .accumulation = out[BRIM_LEARN_ACCUMULATION].value};
  return BRIM_OK;
}

//-------------------------------------------- config --------------------------------------------

//---------------------------------- input ----------------------------------

// Scale and shift of a channel: x / 255 for bytes, then (x - mean) / std if the source suggests them.
void brim_learn_input_of(const brim_source_info *info, brim_net_spec *spec) {
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

// A projection is as wide as its model says and is compared to other projections: it has no targets.
void brim_learn_set_input(brim_learn *w) {
  const brim_source_info *info = brim_work_set_info(&w->data.train);
  const bool pairs = w->spec.views > 1;
  brim_learn_input_of(info, &w->spec);
  brim_work_set_eval_size(&w->data, &w->spec);
  w->spec.classes = pairs ? 0 : info->classes;
  w->spec.target_dim = pairs ? 1 : info->target_dim;
}

//---------------------------------- words ----------------------------------

// `patch: auto` takes a divisor of the length, up to 32. A length without a good divisor, such as a prime,
// makes a token of every few values, and the cost of attention grows with the square of the tokens.
static void warn_of_short_tokens(const brim_net_spec *spec, const brim_source_info *info) {
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

// "mlp on 60,000 samples of 28x28 u8"
static void describe(const brim_net_spec *spec, const brim_source_info *info, char *out,
                     size_t size) {
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

void brim_learn_read_spec(brim_learn *w) {
  static const brim_component mlp = {.name = "mlp"};
  const brim_config *config = w->data.config;
  const brim_component *model = brim_config_component(config, "model", NULL);
  brim_net_spec *spec = &w->spec;
  spec->seed = (uint64_t)brim_config_int(config, "seed");
  spec->clip_norm = brim_config_float(config, "training.clip_norm");
  spec->ema_decay = brim_config_float(config, "training.ema_decay");
  spec->local_norm = !brim_config_bool(config, "training.sync_batchnorm");
  spec->memory_limit = (uint64_t)brim_config_int(config, "gpu.memory_limit");
  spec->eval_batch = brim_config_int(config, "data.eval_batch_size");
  spec->model = model ? model : &mlp;
}

static void read_loader(brim_learn *w) {
  static const char persistent[] = "data.persistent_workers";
  const brim_config *config = w->data.config;
  const char *on_error = brim_config_string(config, "data.on_error");
  w->loader = (brim_loader_options){
      .shuffle = brim_config_bool(config, "data.shuffle"),
      .drop_last = w->spec.views > 1 || brim_config_bool(config, "data.drop_last"),
      .seed = w->spec.seed,
      .world = 1,
      .limit = (uint64_t)brim_config_int(config, "data.limit"),
      .skip_broken = on_error && strcmp(on_error, "skip") == 0,
  };
  // Threads that ended with an epoch would only have to be started again. A preset's word for them is not the
  // user's.
  if (!brim_config_is_set(config, persistent) || brim_config_bool(config, persistent)) return;
  if (brim_config_layer_of(config, persistent) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload",
                "%s: false has no effect; loader threads always stay alive between epochs",
                persistent);
}

brim_status brim_learn_read_rest(brim_learn *w) {
  const brim_config *config = w->data.config;
  warn_of_short_tokens(&w->spec, brim_work_set_info(&w->data.train));
  BRIM_TRY(brim_work_read_optimizer(config, &w->optimizer));
  w->spec.optimizer = &w->optimizer.component;
  BRIM_TRY(read_knobs(w));
  read_loader(w);
  BRIM_TRY(brim_work_data_measure(&w->data));
  w->counts = w->spec.classes > 0 || brim_work_is_multi_label(w->spec.loss);
  w->weights = brim_work_weights(config);
  w->recalibrate_batches = brim_config_int(config, "training.ema_batches");
  describe(&w->spec, &w->data.train.source->info, w->description, sizeof w->description);
  return BRIM_OK;
}
