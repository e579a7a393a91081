// What workloads that train a network on data read from the config: knobs, loss, negatives, and what a setting makes
// of them.

#include "workload/workload_learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload_cache.h"
#include "workload/workload_loss.h"
#include "workload/workload_pairs.h"

//--------------------------------------------- loss ---------------------------------------------
// The loss of a network that learns from data: the one the config names, or the one for such targets.

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

// Of a loss the argument that a key gives too, as config_resolve.c has it for one that is written down.
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

// A projection is compared, it predicts nothing.
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

brim_status brim_work_choose_loss(const brim_config *config, const brim_source *source,
                                  int32_t views, brim_usual *usual, const brim_component **out) {
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  if (!loss) loss = usual_loss(config, source, views, usual);
  *out = loss;
  BRIM_TRY(check_views(loss, views));
  BRIM_TRY(check_model(config, views));
  if (views > 1 || source->info.classes > 0 || source->info.target_dim > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                      "the training set has no %s, which loss %s needs; use a labelled split, or "
                      "loss ntxent with transform: views | ...",
                      strcmp(loss->name, "cross_entropy") == 0 ? "labels" : "targets", loss->name);
}

//-------------------------------------- negatives of pairs --------------------------------------
// Negatives of pairs over several micro-batches: what they are, what it costs, what is chosen.

// Exact accumulation is taken on its own where it costs less than this: one forward pass more is a
// third.
static const double worth_it = 0.40;

void brim_pairs_read(const brim_config *config, brim_pairs *c) {
  const char *text = brim_config_string(config, "contrastive.accumulation");
  memset(c, 0, sizeof *c);
  c->exact_cost = (double)NAN;
  c->accumulation = BRIM_ACCUMULATION_AUTO;
  if (text && strcmp(text, "plain") == 0) c->accumulation = BRIM_ACCUMULATION_PLAIN;
  if (text && strcmp(text, "exact") == 0) c->accumulation = BRIM_ACCUMULATION_EXACT;
}

void brim_pairs_report(brim_pairs *c, const brim_batching *batching, const brim_net_spec *spec) {
  if (spec->views != 2 || spec->accumulation < 2) return;
  long long all = (long long)(spec->batch * spec->accumulation);
  double percent = 100 * c->exact_cost;
  if (!spec->full_batch_negatives && brim_batching_is_smaller(batching, spec)) {
    if (c->warned != spec->batch) {
      brim_log_warn("workload",
                    "negatives now come from the smaller micro-batch of %lld; to keep all %lld, "
                    "set contrastive.accumulation: exact",
                    (long long)spec->batch, all);
    }
    c->warned = spec->batch;
    return;
  }
  if (c->said) return;
  c->said = true;
  if (spec->full_batch_negatives) {
    brim_log_info(
        "workload",
        "accumulation: exact, each of %lld samples has all others as negatives; computing "
        "each micro-batch twice costs %.0f %% more",
        all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isfinite(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld; those of all "
                  "%lld would cost %.0f %% more (contrastive.accumulation: exact)",
                  (long long)spec->batch, all, percent);
  } else if (c->accumulation == BRIM_ACCUMULATION_AUTO && isinf(percent)) {
    brim_log_warn("workload",
                  "accumulation: plain, negatives are those of a micro-batch of %lld, not of all "
                  "%lld; exact is not possible here: %s",
                  (long long)spec->batch, all, c->why_plain);
  } else {
    brim_log_info(
        "workload",
        "accumulation: plain, negatives are those of a micro-batch of %lld, not of all %lld",
        (long long)spec->batch, all);
  }
}

// By planned FLOPs, once: the share of one forward pass hardly depends on the setting.
static brim_status plan_cost(brim_pairs *c, brim_device *device, const brim_net_spec *spec) {
  brim_plan plain, exact;
  brim_net_spec s = *spec;
  if (!isnan(c->exact_cost)) return BRIM_OK;
  memset(&plain, 0, sizeof plain);
  memset(&exact, 0, sizeof exact);
  s.full_batch_negatives = false;
  BRIM_TRY(brim_net_plan(device, &s, &plain));
  s.full_batch_negatives = true;
  brim_status status = brim_net_plan(device, &s, &exact);
  bool possible = status == BRIM_OK;
  // an error only where the config asks for exact
  bool memory = status == BRIM_ENOMEM || status == BRIM_EOOM;  // another time it could be
  if (memory || (!possible && c->accumulation != BRIM_ACCUMULATION_AUTO)) return status;
  if (!possible) {
    snprintf(c->why_plain, sizeof c->why_plain, "%s", brim_status_detail());
    brim_utf8_trim(c->why_plain);
    brim_status_clear();
  }
  c->exact_cost = possible ? exact.flops_per_step / plain.flops_per_step - 1 : (double)INFINITY;
  return BRIM_OK;
}

// By the config, or by the checkpoint that training resumes from.
static bool is_chosen(const brim_pairs *c) {
  return c->accumulation != BRIM_ACCUMULATION_AUTO || c->chosen != BRIM_CHOSEN_NOT;
}

// Plain accumulation of this would learn nothing, or, where too little memory made micro-batches of what
// was asked for as one batch, something else: no price is too high then.
static bool must_be_exact(const brim_pairs *c, const brim_batching *batching,
                          const brim_net_spec *spec) {
  bool asked = batching->accumulation > 1;
  if (spec->batch == 1) return true;
  if (c->chosen == BRIM_CHOSEN_PLAIN) return false;
  return !asked && brim_batching_is_smaller(batching, spec);
}

// One sample alone is compared with nothing, unless it is with those of its whole step.
bool brim_pairs_sensible(const brim_pairs *c, int64_t batch, int64_t accumulation) {
  if (batch > 1) return true;
  bool plain = c->accumulation == BRIM_ACCUMULATION_PLAIN;
  bool impossible = isinf(c->exact_cost);
  return accumulation > 1 && !plain && !impossible;
}

static brim_status check_negatives(const brim_net_spec *spec) {
  if (spec->batch > 1 || spec->full_batch_negatives) return BRIM_OK;
  if (spec->accumulation < 2) {
    return brim_fail(BRIM_EINVAL,
                     "a step of one sample has no negatives, so contrastive training cannot learn; "
                     "set data.batch_size to 2 or more");
  }
  return brim_fail(BRIM_EINVAL,
                   "micro-batches of one sample have no negatives, so contrastive training cannot "
                   "learn; set data.batch_size to 2 or more, or contrastive.accumulation: exact");
}

brim_status brim_pairs_choose(brim_pairs *c, brim_device *device, const brim_batching *batching,
                              brim_net_spec *spec) {
  spec->full_batch_negatives = false;
  if (spec->views != 2) return BRIM_OK;
  if (spec->accumulation < 2) return check_negatives(spec);
  bool exact = c->accumulation == BRIM_ACCUMULATION_EXACT;
  bool automatic = c->accumulation == BRIM_ACCUMULATION_AUTO;
  bool must = automatic && must_be_exact(c, batching, spec);
  if (automatic) exact = must || c->chosen != BRIM_CHOSEN_PLAIN;
  if (exact) BRIM_TRY(plan_cost(c, device, spec));
  bool possible = isfinite(c->exact_cost), worth = c->exact_cost < worth_it;
  spec->full_batch_negatives = exact && (must ? possible : is_chosen(c) || worth);
  return check_negatives(spec);
}

const char *brim_pairs_choice(const brim_pairs *c, int64_t accumulation, bool exact) {
  if (c->accumulation != BRIM_ACCUMULATION_AUTO) return NULL;
  if (accumulation > 1) return exact ? "exact" : "plain";
  return c->chosen == BRIM_CHOSEN_EXACT ? "exact" : c->chosen == BRIM_CHOSEN_PLAIN ? "plain" : NULL;
}

void brim_pairs_take_choice(brim_pairs *c, const json_t *metadata) {
  const char *text = json_string_value(json_object_get(metadata, "brim.accumulates"));
  if (text && strcmp(text, "exact") == 0) c->chosen = BRIM_CHOSEN_EXACT;
  if (text && strcmp(text, "plain") == 0) c->chosen = BRIM_CHOSEN_PLAIN;
}

// As wide as the head's last layer.
int64_t brim_pairs_width(const brim_net *net) {
  int64_t width = brim_net_output_width(net);
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    if (brim_str_starts(p->name, "projector.") && p->rank == 2) width = p->dim[0];
  }
  return width;
}

//-------------------------------------------- knobs --------------------------------------------
// The knobs of workloads that train a network on data: their rows, and their values in a config.

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

//--------------------------------------- values of knobs ---------------------------------------
// Which values of its knobs a sweep tries for a workload that trains a network on data, where the user
// names none: powers of two that the plan allows, few workers, mixed precision where it works. With
// `all`, a few values of every knob that makes a difference here.

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

// Does a batch's plan exist and fit in what is free?
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

// Two values of a knob, where both have a plan.
static size_t two_of(const brim_knob_sweep *sweep, int knob, int64_t a, int64_t b,
                     int64_t *values) {
  brim_plan plan;
  if (!has_plan(sweep, knob, a, &plan) || !has_plan(sweep, knob, b, &plan)) return 0;
  values[0] = a;
  values[1] = b;
  return 2;
}

//---------------------------------- axes ----------------------------------

size_t brim_learn_batches(void *state, const brim_knob_sweep *sweep, int64_t *values) {
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
  // a set that fills none of them is one batch
  if (count == 0 && all > 0 && all < least) values[count++] = all;
  brim_status_clear();  // a plan that does not exist was an answer, not an error
  if (count == 0 || !sweep->all) return count;
  // with everything else varied a few have to do: the largest, 1/8 and 1/64 of it
  size_t n = (count - 1) / STEP_OF_ALL + 1;
  if (n > BATCHES_OF_ALL) n = BATCHES_OF_ALL;
  for (size_t i = 0; i < n; i++) values[i] = values[count - 1 - (n - 1 - i) * STEP_OF_ALL];
  return n;
}

size_t brim_learn_workers(void *state, const brim_knob_sweep *sweep, int64_t *values) {
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

size_t brim_learn_precisions(void *state, const brim_knob_sweep *sweep, int64_t *values) {
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

size_t brim_learn_pinned(void *state, const brim_knob_sweep *sweep, int64_t *values) {
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

size_t brim_learn_compiled(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all || !brim_device_has_graphs(sweep->work->context.device)) return 0;
  return two_of(sweep, BRIM_LEARN_COMPILE, 1, 0, values);
}

// Of a model that has something to recompute.
size_t brim_learn_checkpointed(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  brim_plan plan;
  (void)state;
  if (!sweep->all) return 0;
  bool planned = has_plan(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_ALL, &plan);
  if (!planned || plan.recomputed <= 0) return 0;
  return two_of(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_ALL, values);
}

size_t brim_learn_cached(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  bool host = sweep->work->context.device->info.host_memory;
  return two_of(sweep, BRIM_LEARN_CACHE, BRIM_CACHE_NONE, host ? BRIM_CACHE_RAM : BRIM_CACHE_GPU,
                values);
}

// One, half and all; a number that the user gave stays.
size_t brim_learn_threads(void *state, const brim_knob_sweep *sweep, int64_t *values) {
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

size_t brim_learn_prefetches(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 2;
  values[1] = 4;
  return 2;
}

size_t brim_learn_accumulations(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 1;
  values[1] = 4;
  return 2;
}

//-------------------------------------------- config --------------------------------------------
// What workloads that train a network on data read from the config, and what a setting makes of it.

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
