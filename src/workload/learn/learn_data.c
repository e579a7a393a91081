// The training set and the evaluation set: their components, opening them, their transforms, and warnings
// about their values.

#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

//------------------------------------------ components ------------------------------------------

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the data");
}

brim_status brim_work_with_argument(brim_arena *arena, const brim_component **component,
                                    const char *name, const brim_value *value) {
  const brim_component *from = *component;
  brim_component *c = brim_arena_calloc(arena, 1, sizeof *c);
  brim_argument *args = brim_arena_calloc(arena, from->arg_count + 1, sizeof *args);
  if (!c || !args) return no_memory();
  *c = *from;
  c->args = args;
  c->arg_count = 0;
  for (size_t i = 0; i < from->arg_count; i++) {
    if (strcmp(from->args[i].name, name) != 0) args[c->arg_count++] = from->args[i];
  }
  if (value) args[c->arg_count++] = (brim_argument){.name = name, .value = *value};
  *component = c;
  return BRIM_OK;
}

// Gives data.inputs or data.targets to a component of hdf5 or numpy that has none of its own.
static brim_status add_names(const brim_config *config, brim_arena *arena, const char *key,
                             const char *argument, const brim_component **component) {
  const char *const *names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_config_get_strings(config, key, &names, &count));
  if (count == 0 || brim_component_arg(*component, argument)) return BRIM_OK;
  if (strcmp((*component)->name, "hdf5") != 0 && strcmp((*component)->name, "numpy") != 0) {
    brim_log_warn("workload", "%s has no effect on '%s'; it applies to hdf5 and numpy", key,
                  (*component)->name);
    return BRIM_OK;
  }
  brim_value *items = brim_arena_calloc(arena, count, sizeof *items);
  if (!items) return no_memory();
  for (size_t i = 0; i < count; i++) {
    items[i] = (brim_value){.kind = BRIM_VALUE_STRING, .string = names[i]};
  }
  brim_value list = {.kind = BRIM_VALUE_LIST, .items = items, .count = count};
  return brim_work_with_argument(arena, component, argument, &list);
}

brim_status brim_work_allow_external(brim_arena *arena, const brim_component **component) {
  const brim_value yes = {.kind = BRIM_VALUE_BOOL, .boolean = true};
  if (strcmp((*component)->name, "hdf5") != 0) return BRIM_OK;
  return brim_work_with_argument(arena, component, "allow_external", &yes);
}

brim_status brim_work_add_names(const brim_config *config, brim_arena *arena,
                                const brim_component **component, bool targets) {
  BRIM_TRY(add_names(config, arena, "data.inputs", "inputs", component));
  return targets ? add_names(config, arena, "data.targets", "targets", component) : BRIM_OK;
}

const brim_pipeline *brim_work_eval_pipeline(const brim_config *config, bool *random) {
  static const char *const slots[] = {"val", "test"};
  // A slot that is not set returns the plain pipeline, or without one the slot train.
  const brim_pipeline *plain = brim_config_pipeline(config, "transform", NULL);
  const brim_pipeline *found = NULL;
  *random = true;
  for (size_t i = 0; i < 2; i++) {
    found = brim_config_pipeline(config, "transform", slots[i]);
    if (found && found != plain) return found;
  }
  *random = false;
  return found;
}

// A transform.val may end in another image size: random crops enlarge, so a network trained with them does
// better on larger images.
bool brim_work_any_size(const brim_config *config) {
  bool given = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(config, &given);
  return given && pipeline && pipeline->count > 0;
}

//--------------------------------------------- sets ---------------------------------------------

brim_status brim_work_data_init(brim_work_data *d, const brim_work_context *context,
                                const brim_config *config) {
  memset(d, 0, sizeof *d);
  d->context = *context;
  d->config = config;
  d->seed = (uint64_t)brim_config_int(config, "seed");
  return brim_arena_create(0, &d->arena);
}

static void close_set(brim_work_set *set) {
  brim_resident_destroy(set->resident);
  brim_transforms_destroy(set->transforms);
  brim_source_close(set->source);
}

void brim_work_data_deinit(brim_work_data *d) {
  close_set(&d->train);
  close_set(&d->eval);
  brim_arena_destroy(d->arena);
}

//---------------------------------- components ----------------------------------

static brim_status data_no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the data");
}

static const brim_component *slot_or_plain(const brim_config *config, const char *key,
                                           const char *slot) {
  const brim_component *c = brim_config_component(config, key, slot);
  return c ? c : brim_config_component(config, key, NULL);
}

static brim_status complete(const brim_work_data *d, const brim_component **component) {
  if (brim_config_bool(d->config, "data.allow_external"))
    BRIM_TRY(brim_work_allow_external(d->arena, component));
  return brim_work_add_names(d->config, d->arena, component, true);
}

// The training set's component: the config's, or one for the files at data.path.
static brim_status train_component(const brim_work_data *d, const brim_component **out) {
  const char *path = brim_config_string(d->config, "data.path");
  const brim_component *train = slot_or_plain(d->config, "dataset", "train");
  if (!train && !path) {
    return brim_fail(BRIM_EINVAL,
                     "no data; give --data-path PATH, or a dataset such as 'dataset: "
                     "synthetic(samples=10000)' in the config");
  }
  if (!train) {
    brim_component *guess = brim_arena_calloc(d->arena, 1, sizeof *guess);
    if (!guess) return data_no_memory();
    BRIM_TRY(brim_source_open_failed(brim_source_guess(path, guess)));
    train = guess;
  }
  *out = train;
  return complete(d, out);
}

//---------------------------------- sources ----------------------------------

brim_status brim_work_open_source(const brim_work_data *d, const brim_component *component,
                                  const char *split, brim_source **out) {
  const char *path = brim_config_string(d->config, "data.path");
  brim_status status = brim_source_open(d->context.registry, component, path, split, d->seed, out);
  if (status == BRIM_ENOENT && path && !brim_component_arg(component, "path") &&
      !brim_fs_exists(path)) {
    return brim_fail(status,
                     "%s: no such file or folder; give the data with --data-path PATH (data.path)",
                     path);
  }
  return brim_source_open_failed(status);
}

static bool has_slot(const brim_config *config, const char *slot) {
  const brim_component *c = brim_config_component(config, "dataset", slot);
  return c && c != brim_config_component(config, "dataset", NULL);
}

double brim_work_val_fraction(const brim_config *config) {
  return has_slot(config, "val") ? 0 : brim_config_float(config, "data.val_fraction");
}

// Restricts a source to one of the two parts that data.val_fraction makes.
static brim_status take_share(const brim_work_data *d, brim_source *source, double share,
                              bool evaluation) {
  brim_status status = evaluation ? brim_source_take(source, 1 - share, 1, d->seed)
                                  : brim_source_take(source, 0, 1 - share, d->seed);
  if (status != BRIM_EINVAL) return status;
  return brim_fail_context(status,
                           evaluation
                               ? BRIM_N_("data.val_fraction %g leaves nothing to evaluate on")
                               : BRIM_N_("data.val_fraction %g leaves nothing to train on"),
                           share);
}

static const char *train_split(const brim_work_data *d) {
  return brim_component_string(d->component, "split", "train");
}

static brim_status limit_train(const brim_work_data *d) {
  if (d->share > 0) BRIM_TRY(take_share(d, d->train.source, d->share, false));
  uint64_t limit = (uint64_t)brim_config_int(d->config, "data.limit");
  return brim_source_limit(d->train.source, limit, d->seed);
}

brim_status brim_work_data_open_train(brim_work_data *d) {
  BRIM_TRY(train_component(d, &d->component));
  return brim_work_open_source(d, d->component, train_split(d), &d->train.source);
}

// Opens the rest of the training set for evaluation.
static brim_status open_share(brim_work_data *d) {
  bool before = brim_log_hush(true);  // already logged for the training set
  brim_status status = brim_work_open_source(d, d->component, train_split(d), &d->eval.source);
  brim_log_hush(before);
  return status ? status : take_share(d, d->eval.source, d->share, true);
}

// Opens dataset.val or dataset.test; *own is false if the config has neither.
static brim_status open_own(brim_work_data *d, bool *own) {
  const brim_config *config = d->config;
  const char *slot = has_slot(config, "val") ? "val" : "test";
  *own = has_slot(config, slot);
  if (!*own) return BRIM_OK;
  const brim_component *eval = brim_config_component(config, "dataset", slot);
  const char *said = brim_component_string(eval, "split", NULL);
  BRIM_TRY(complete(d, &eval));
  brim_status status = brim_work_open_source(d, eval, said ? said : slot, &d->eval.source);
  if (status != BRIM_ENOENT || said) return status;
  return brim_fail_context(
      status,
      "dataset.%s reads the split '%s'; add split=train to read a part of the training records",
      slot, slot);
}

// Opens the val split of a component that serves both sets, without its arguments that choose a part: they are
// for training.
static brim_status open_val_split(brim_work_data *d, bool *missing) {
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  size_t count = sizeof parts / sizeof *parts;
  if (!d->any_split) count--;
  const brim_component *eval = d->component;
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_work_with_argument(d->arena, &eval, parts[i], NULL));
  }
  brim_status status = brim_work_open_source(d, eval, "val", &d->eval.source);
  if (status != BRIM_ENOENT) return status;
  d->eval.source = NULL;
  *missing = true;
  return BRIM_OK;
}

static brim_status open_eval(brim_work_data *d, bool *missing) {
  bool own = false;
  *missing = false;
  if (d->share > 0) return open_share(d);
  BRIM_TRY(open_own(d, &own));
  return own ? BRIM_OK : open_val_split(d, missing);
}

void brim_work_warn_no_eval(void) {
  if (strstr(brim_status_detail(), "data.val_fraction")) {  // the source has said what to do
    brim_log_warn("workload", "no evaluation: %s", brim_status_detail());
  } else {
    brim_log_warn("workload",
                  "no evaluation: %s; data.val_fraction=0.1 holds out a tenth of the training set",
                  brim_status_detail());
  }
  brim_status_clear();
}

static brim_status open_both(brim_work_data *d, bool evaluated) {
  bool missing = false;
  BRIM_TRY(brim_work_open_source(d, d->component, train_split(d), &d->train.source));
  BRIM_TRY(limit_train(d));
  return evaluated ? open_eval(d, &missing) : BRIM_OK;
}

brim_status brim_work_data_reopen(brim_work_data *d) {
  brim_source *train = d->train.source, *eval = d->eval.source;
  d->train.source = d->eval.source = NULL;
  bool before = brim_log_hush(true);  // messages were logged when the sets were first opened
  brim_status status = open_both(d, eval != NULL);
  brim_log_hush(before);
  brim_source_close(status ? d->train.source : train);
  brim_source_close(status ? d->eval.source : eval);
  if (status) {  // keep the old sources: a workload always has its sources
    d->train.source = train;
    d->eval.source = eval;
  }
  return status;
}

brim_status brim_work_data_check_readable(const brim_work_data *d, uint64_t limit) {
  BRIM_TRY(brim_source_check_readable(d->train.source, limit));
  return d->eval.source ? brim_source_check_readable(d->eval.source, 0) : BRIM_OK;
}

//---------------------------------- transforms ----------------------------------

// Images of different sizes need transforms: without stages, brim_transforms_create reports that.
brim_status brim_work_make_transforms(const brim_pipeline *pipeline, const brim_source *source,
                                      uint64_t seed, bool random, brim_transforms **out) {
  static const brim_pipeline none = {.count = 0};
  if (!pipeline) pipeline = &none;
  if (!source || (pipeline->count == 0 && !source->info.varies)) return BRIM_OK;
  brim_transforms *made = NULL;
  BRIM_TRY(brim_transforms_create(pipeline, source, seed, random, &made));
  // normalize alone is no stage, but changes the network's scale and shift
  bool plain = memcmp(brim_transforms_info(made), &source->info, sizeof source->info) == 0;
  if (plain && brim_transforms_count(made) == 0 && brim_transforms_views(made) == 1) {
    brim_transforms_destroy(made);
    return BRIM_OK;
  }
  *out = made;
  return BRIM_OK;
}

static bool is_random(const brim_component *stage) {
  return brim_str_starts(stage->name, "random_") || strcmp(stage->name, "color_jitter") == 0 ||
         strcmp(stage->name, "gaussian_blur") == 0;
}

// Explains a failure of images that only transform.train, or a random crop, brings to one size.
static brim_status explain_eval(const brim_work_data *d, const brim_pipeline *pipeline, bool random,
                                brim_status status) {
  size_t first = 0;
  while (pipeline && first < pipeline->count && !strcmp(pipeline->items[first].name, "views")) {
    first++;
  }
  bool none = (!pipeline || pipeline->count == 0) && d->train.transforms;
  bool draws = pipeline && first < pipeline->count && is_random(&pipeline->items[first]);
  if (!d->eval.source->info.varies || !(none || (draws && !random))) return status;
  const brim_source_info *info = brim_work_set_info(&d->train);
  return brim_fail_context(
      status,
      "evaluation skips random transforms; set transform.val, such as resize(size=(%" PRId64
      ", %" PRId64 "))",
      info->dim[0], info->dim[1]);
}

// If only a path is given, advises `brim init`, which writes transforms that bring images to one size.
static brim_status name_init(const brim_work_data *d, brim_status status) {
  const brim_pipeline *pipeline = brim_config_pipeline(d->config, "transform", "train");
  const char *path = brim_config_string(d->config, "data.path");
  if (status != BRIM_EINVAL || (pipeline && pipeline->count) || !path) return status;
  char detail[512];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  return brim_fail(status, "%s; 'brim init %s' writes a config that does", detail, path);
}

const brim_source_info *brim_work_set_info(const brim_work_set *set) {
  return set->transforms ? brim_transforms_info(set->transforms) : &set->source->info;
}

void brim_work_set_eval_size(const brim_work_data *d, brim_net_spec *spec) {
  memset(spec->eval_dim, 0, sizeof spec->eval_dim);
  if (!d->eval.source || spec->input_rank != 3) return;
  const int64_t *dim = brim_work_set_info(&d->eval)->dim;
  if (memcmp(dim, spec->input_dim, 3 * sizeof *dim) == 0) return;
  memcpy(spec->eval_dim, dim, 3 * sizeof *dim);
  // larger images help after random crops; smaller images are usually a mistake
  if (dim[0] >= spec->input_dim[0] && dim[1] >= spec->input_dim[1]) return;
  brim_log_warn("workload",
                "evaluation images are %" PRId64 " x %" PRId64 ", smaller than the %" PRId64
                " x %" PRId64 " of training; set their size with transform.val",
                dim[0], dim[1], spec->input_dim[0], spec->input_dim[1]);
}

brim_status brim_work_data_check(const brim_work_data *d) {
  static const char transformed[] =
      " once transformed; give transform.train and transform.val that end in the same shape";
  if (!d->eval.source) return BRIM_OK;
  const brim_source *train = d->train.source, *eval = d->eval.source;
  const brim_source_info *a = &train->info, *b = &eval->info;
  bool same = a->rank == b->rank && a->type == b->type;
  for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
  return brim_source_match(train, brim_work_set_info(&d->train), eval, brim_work_set_info(&d->eval),
                           brim_work_any_size(d->config), same ? transformed : "");
}

//---------------------------------- a look at the values ----------------------------------

typedef struct value_range {
  double low, high, count, sum, squares;
} value_range;

static void range_add(value_range *r, double v) {
  r->low = v < r->low ? v : r->low;
  r->high = v > r->high ? v : r->high;
  r->sum += v;
  r->squares += v * v;
  r->count++;
}

// True if values are beyond those of a byte, so far from a network's first outputs; then also returns their mean
// and deviation.
static bool range_is_large(const value_range *r, double *mean, double *std) {
  if (!(r->count > 0) || fmax(fabs(r->low), fabs(r->high)) <= 255) return false;
  *mean = r->sum / r->count;
  *std = sqrt(fmax(r->squares / r->count - *mean * *mean, 0));
  if (!(*std > 0)) *std = 1;
  return true;
}

typedef struct value_look {
  uint64_t rows, bad_inputs,
      bad_targets;                     // samples read, and those with values that are not finite
  uint64_t first_input, first_target;  // the first samples with such values
  int64_t target_value;
  value_range input, target;  // range of the finite values
} value_look;

static void look_at_sample(value_look *l, uint64_t index, const float *input, size_t n) {
  double before = l->input.count;
  for (size_t i = 0; i < n; i++) {
    if (isfinite(input[i])) range_add(&l->input, (double)input[i]);
  }
  if (l->input.count - before < (double)n) {
    l->first_input = l->bad_inputs++ == 0 || index < l->first_input ? index : l->first_input;
  }
}

// Reads samples spread over the set, in an order without a period: the whole set if it is small, else as many
// samples as take a moment. Skips samples that cannot be read: the loader reports them.
static brim_status look_at_samples(brim_source *source, value_look *l) {
  enum { LEAST = 32, MOST = 4096 };
  const int64_t moment_ns = 50000000;
  const brim_source_info *info = &source->info;
  uint64_t step = (uint64_t)((double)info->count * 0.6180339887) | 1, at = 0;
  for (uint64_t a = step, b = info->count; b; step++, a = step, b = info->count) {
    while (b) {
      uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) break;  // coprime: every sample once
  }
  bool floats = info->type == BRIM_SAMPLE_F32, values = info->classes == 0 && info->target_dim > 0;
  void *input = brim_alloc(source->input_bytes);
  float *target = brim_alloc(source->target_bytes + sizeof *target);
  brim_status status = input && target ? BRIM_OK : data_no_memory();
  brim_time start = brim_clock_now();
  for (uint64_t i = 0; i < info->count && i < MOST && !status;
       i++, at = (at + step) % info->count) {
    if (i >= LEAST && brim_time_since_ns(start, brim_clock_now()) > moment_ns) break;
    status = brim_source_read(source, at, 1, input, target, NULL, NULL);
    if (status) {
      if (status != BRIM_ENOMEM) status = BRIM_OK;
      brim_status_clear();
      continue;
    }
    l->rows++;
    if (floats) look_at_sample(l, at, input, source->input_bytes / sizeof(float));
    bool bad = false;
    for (int64_t k = 0; k < info->target_dim && values; k++) {
      if (isfinite(target[k])) {
        range_add(&l->target, (double)target[k]);
      } else if (!bad) {
        bad = true;
        if (l->bad_targets++ == 0 || at < l->first_target) {
          l->first_target = at;
          l->target_value = k;
        }
      }
    }
  }
  brim_free(target);
  brim_free(input);
  return status;
}

// Warns, before training begins, of values with which it cannot work.
static brim_status look_at_values(const brim_work_data *d) {
  brim_source *source = d->train.source;
  const brim_source_info *info = &source->info;
  bool floats = info->type == BRIM_SAMPLE_F32, values = info->classes == 0 && info->target_dim > 0;
  if (info->varies || info->count == 0 || !(floats || values)) return BRIM_OK;
  const value_range none = {.low = INFINITY, .high = -INFINITY};
  value_look l = {.input = none, .target = none};
  BRIM_TRY(look_at_samples(source, &l));
  const char *path = brim_config_string(d->config, "data.path");
  char name[320];
  if (!path || !path[0]) path = "PATH";
  if (l.bad_inputs) {
    bool fills = strcmp(source->table->name, "hdf5") == 0;
    brim_source_describe(source, l.first_input, name, sizeof name);
    brim_log_warn("data",
                  fills ? "%" PRIu64 " of %" PRIu64
                          " samples checked hold NaN or infinite inputs, the first %s; `brim data "
                          "verify %s` lists them, --dataset 'hdf5(nan=0)' reads them as 0"
                        : "%" PRIu64 " of %" PRIu64
                          " samples checked hold NaN or infinite inputs, the first %s; `brim data "
                          "verify %s` lists them",
                  l.bad_inputs, l.rows, name, path);
  }
  if (l.bad_targets) {
    brim_source_describe_target(source, l.first_target, l.target_value, name, sizeof name);
    if (!name[0]) brim_source_describe(source, l.first_target, name, sizeof name);
    brim_log_warn(
        "data",
        "%" PRIu64 " of %" PRIu64
        " samples checked hold NaN or infinite targets, the first %s; `brim data verify %s` "
        "lists them, indices=FILE leaves them out",
        l.bad_targets, l.rows, name, path);
  }
  double mean, std;
  bool plain = brim_work_set_info(&d->train)->channels == 0;
  if (plain && range_is_large(&l.input, &mean, &std)) {
    brim_log_warn("data",
                  "inputs range from %.4g to %.4g and are not normalised; transform: "
                  "normalize(mean=%.4g, std=%.4g) scales them",
                  l.input.low, l.input.high, mean, std);
  }
  // Outputs begin near 0; an optimizer that moves weights by its learning rate takes very long to large
  // targets.
  if (range_is_large(&l.target, &mean, &std)) {
    if (info->target_dim == 1) {
      brim_log_warn(
          "data",
          "targets range from %.4g to %.4g, far from what a network begins with: training "
          "may not reach them; store (y - %.4g) / %.4g instead",
          l.target.low, l.target.high, mean, std);
    } else {
      brim_log_warn(
          "data",
          "targets range from %.4g to %.4g, far from what a network begins with: training "
          "may not reach them; subtract each target's mean and divide by its deviation",
          l.target.low, l.target.high);
    }
  }
  return BRIM_OK;
}

//---------------------------------- taking it ----------------------------------

int32_t brim_work_views(const brim_config *config) {
  const brim_pipeline *pipeline = brim_config_pipeline(config, "transform", "train");
  for (size_t i = 0; pipeline && i < pipeline->count; i++) {
    const brim_component *stage = &pipeline->items[i];
    if (strcmp(stage->name, "views") == 0) return (int32_t)brim_component_int(stage, "views", 2);
  }
  return 1;
}

brim_status brim_work_data_take_train(brim_work_data *d, double share) {
  const brim_pipeline *pipeline = brim_config_pipeline(d->config, "transform", "train");
  d->share = share;
  BRIM_TRY(brim_source_class_names(d->arena, d->train.source, d->component,
                                   brim_config_string(d->config, "data.path"), train_split(d),
                                   &d->class_names));
  BRIM_TRY(limit_train(d));
  BRIM_TRY(name_init(d, brim_work_make_transforms(pipeline, d->train.source, d->seed, true,
                                                  &d->train.transforms)));
  return look_at_values(d);
}

brim_status brim_work_data_open_eval(brim_work_data *d, bool any_split, bool *missing) {
  bool random = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(d->config, &random);
  d->any_split = any_split;
  BRIM_TRY(open_eval(d, missing));
  brim_status status =
      brim_work_make_transforms(pipeline, d->eval.source, d->seed, random, &d->eval.transforms);
  return status ? explain_eval(d, pipeline, random, status) : BRIM_OK;
}
