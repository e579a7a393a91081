// The supervised workload's data: which sets are opened for training and for evaluation, what is
// done to their samples, and whether that suits the loss. Where samples are kept is in
// workload_cache.c.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload_int.h"

//---------------------------------- components ----------------------------------

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the data");
}

static const brim_component *slot_or_plain(const brim_config *config, const char *key,
                                           const char *slot) {
  const brim_component *c = brim_config_component(config, key, slot);
  return c ? c : brim_config_component(config, key, NULL);
}

brim_status brim_supervised_with_argument(brim_arena *arena, const brim_component **component,
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

// data.inputs and data.targets are the HDF5 component's where it has none of its own.
static brim_status add_names(const brim_config *config, brim_arena *arena, const char *key,
                             const char *argument, const brim_component **component) {
  const char *const *names = NULL;
  size_t count = 0;
  BRIM_TRY(brim_config_get_strings(config, key, &names, &count));
  if (count == 0 || brim_component_arg(*component, argument)) return BRIM_OK;
  if (strcmp((*component)->name, "hdf5") != 0) {
    brim_log_warn("workload", "%s has no effect on '%s'; it applies to hdf5 only", key,
                  (*component)->name);
    return BRIM_OK;
  }
  brim_value *items = brim_arena_calloc(arena, count, sizeof *items);
  if (!items) return no_memory();
  for (size_t i = 0; i < count; i++) {
    items[i] = (brim_value){.kind = BRIM_VALUE_STRING, .string = names[i]};
  }
  brim_value list = {.kind = BRIM_VALUE_LIST, .items = items, .count = count};
  return brim_supervised_with_argument(arena, component, argument, &list);
}

brim_status brim_supervised_allow_external(brim_arena *arena, const brim_component **component) {
  const brim_value yes = {.kind = BRIM_VALUE_BOOL, .boolean = true};
  if (strcmp((*component)->name, "hdf5") != 0) return BRIM_OK;
  return brim_supervised_with_argument(arena, component, "allow_external", &yes);
}

brim_status brim_supervised_add_names(const brim_config *config, brim_arena *arena,
                                      const brim_component **component, bool targets) {
  BRIM_TRY(add_names(config, arena, "data.inputs", "inputs", component));
  return targets ? add_names(config, arena, "data.targets", "targets", component) : BRIM_OK;
}

static brim_status complete(const brim_supervised *w, const brim_component **component) {
  if (brim_config_bool(w->config, "data.allow_external"))
    BRIM_TRY(brim_supervised_allow_external(w->arena, component));
  return brim_supervised_add_names(w->config, w->arena, component, true);
}

// The training set's component: as written, or by what lies at data.path.
static brim_status train_component(const brim_supervised *w, const brim_component **out) {
  const char *path = brim_config_string(w->config, "data.path");
  const brim_component *train = slot_or_plain(w->config, "dataset", "train");
  if (!train && !path) {
    return brim_fail(BRIM_EINVAL,
                     "no data; give --data-path PATH, or a dataset such as 'dataset: "
                     "synthetic(samples=10000)' in the config");
  }
  if (!train) {
    brim_component *guess = brim_arena_calloc(w->arena, 1, sizeof *guess);
    if (!guess) return no_memory();
    BRIM_TRY(brim_source_open_failed(brim_source_guess(path, guess)));
    train = guess;
  }
  *out = train;
  return complete(w, out);
}

//---------------------------------- sources ----------------------------------

brim_status brim_supervised_open_source(const brim_supervised *w, const brim_component *component,
                                        const char *split, brim_source **out) {
  const char *path = brim_config_string(w->config, "data.path");
  brim_status status =
      brim_source_open(w->context.registry, component, path, split, w->spec.seed, out);
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

// Contrastive training judges features by their labels, and this set has none.
static bool judges_nothing(const brim_supervised *w) {
  return w->contrastive.on && w->train_source->info.classes <= 0;
}

// The share of the training set that is kept for validation; 0 where a set of its own was named, or
// where it could not be judged. The training set is open.
static double val_fraction(const brim_supervised *w) {
  double share = brim_config_float(w->config, "data.val_fraction");
  return has_slot(w->config, "val") || judges_nothing(w) ? 0 : share;
}

// One of the two parts that data.val_fraction makes.
static brim_status take_share(const brim_supervised *w, brim_source *source, double share,
                              bool evaluation) {
  brim_status status = evaluation ? brim_source_take(source, 1 - share, 1, w->spec.seed)
                                  : brim_source_take(source, 0, 1 - share, w->spec.seed);
  if (status != BRIM_EINVAL) return status;
  return brim_fail_context(status,
                           evaluation
                               ? BRIM_N_("data.val_fraction %g leaves nothing to evaluate on")
                               : BRIM_N_("data.val_fraction %g leaves nothing to train on"),
                           share);
}

static brim_status open_train(brim_supervised *w, const brim_component *train) {
  const char *split = brim_component_string(train, "split", "train");
  BRIM_TRY(brim_supervised_open_source(w, train, split, &w->train_source));
  double share = w->views > 1 && !w->contrastive.on ? 0 : val_fraction(w);
  if (judges_nothing(w) && brim_config_float(w->config, "data.val_fraction") > 0) {
    brim_log_warn(
        "workload",
        "data.val_fraction has no effect: evaluation needs labels, and the training set has none");
  }
  BRIM_TRY(brim_source_class_names(w->arena, w->train_source, train,
                                   brim_config_string(w->config, "data.path"), split,
                                   &w->class_names));
  if (share > 0) BRIM_TRY(take_share(w, w->train_source, share, false));
  uint64_t limit = (uint64_t)brim_config_int(w->config, "data.limit");
  return brim_source_limit(w->train_source, limit, w->spec.seed);
}

// The rest of the training set.
static brim_status open_share(brim_supervised *w, const brim_component *train, double share) {
  const char *split = brim_component_string(train, "split", "train");
  bool before = brim_log_hush(true);  // the training set said it
  brim_status status = brim_supervised_open_source(w, train, split, &w->eval_source);
  brim_log_hush(before);
  return status ? status : take_share(w, w->eval_source, share, true);
}

// The evaluation set: dataset.val, else a share of the training set where one is asked for, else
// dataset.test, else the val or test split of the plain component. Which split a source is asked for
// is the component's own `split` where it has one.
static brim_status open_eval(brim_supervised *w, const brim_component *train) {
  const brim_config *config = w->config;
  double share = val_fraction(w);
  if (share > 0) return open_share(w, train, share);
  const brim_component *eval = NULL;
  const char *split = "val";
  bool own = has_slot(config, "val");
  if (own) {
    eval = brim_config_component(config, "dataset", "val");
  } else if (has_slot(config, "test")) {
    own = true;
    eval = brim_config_component(config, "dataset", "test");
    split = "test";
  }
  if (own) {
    const char *said = brim_component_string(eval, "split", NULL);
    BRIM_TRY(complete(w, &eval));
    brim_status status = brim_supervised_open_source(w, eval, said ? said : split, &w->eval_source);
    if (status != BRIM_ENOENT || said) return status;
    return brim_fail_context(
        status,
        "dataset.%s reads the split '%s'; add split=train to read a part of the training records",
        split, split);
  }
  // one component for both: what it says of a part was for training
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  size_t count = sizeof parts / sizeof *parts;
  if (!w->contrastive.on) count--;  // what is learned from without labels is judged with some
  eval = train;
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_supervised_with_argument(w->arena, &eval, parts[i], NULL));
  }
  brim_status status = brim_supervised_open_source(w, eval, split, &w->eval_source);
  if (status != BRIM_ENOENT) return status;
  if (judges_nothing(w)) {
    brim_log_warn("workload",
                  "no evaluation: contrastive training evaluates features with labels, and the "
                  "data has none; set dataset.val or dataset.test to a labelled set");
    brim_status_clear();
  } else if (strstr(brim_status_detail(), "data.val_fraction")) {  // the source said what to do
    brim_log_warn("workload", "no evaluation: %s", brim_status_detail());
  } else {
    brim_log_warn("workload",
                  "no evaluation: %s; data.val_fraction=0.1 holds out a tenth of the training set",
                  brim_status_detail());
  }
  w->eval_source = NULL;
  return BRIM_OK;
}

static brim_status open_both(brim_supervised *w, bool evaluated) {
  const brim_component *train = NULL;
  BRIM_TRY(train_component(w, &train));
  BRIM_TRY(open_train(w, train));
  return evaluated ? open_eval(w, train) : BRIM_OK;
}

brim_status brim_supervised_reopen_sources(brim_supervised *w) {
  brim_source *train = w->train_source, *eval = w->eval_source;
  w->train_source = w->eval_source = NULL;
  bool before = brim_log_hush(true);  // said when they were opened first
  brim_status status = open_both(w, eval != NULL);
  brim_log_hush(before);
  brim_source_close(status ? w->train_source : train);
  brim_source_close(status ? w->eval_source : eval);
  if (status) {  // as it was: a workload always has its sources
    w->train_source = train;
    w->eval_source = eval;
  }
  return status;
}

//---------------------------------- transforms ----------------------------------

const brim_pipeline *brim_supervised_eval_pipeline(const brim_config *config, bool *random) {
  static const char *const slots[] = {"val", "test"};
  // A slot that was not given answers with the plain pipeline; without one that is the slot train.
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

// Where images vary there have to be some: an empty pipeline says so.
brim_status brim_supervised_make_transforms(const brim_supervised *w, const brim_pipeline *pipeline,
                                            const brim_source *source, bool random,
                                            brim_transforms **out) {
  static const brim_pipeline none = {.count = 0};
  if (!pipeline) pipeline = &none;
  if (!source || (pipeline->count == 0 && !source->info.varies)) return BRIM_OK;
  brim_transforms *made = NULL;
  BRIM_TRY(brim_transforms_create(pipeline, source, w->spec.seed, random, &made));
  // normalize alone is no stage, and yet changes what the network's input does
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

// Images whose size only a random crop or transform.train makes one have none left in evaluation.
static brim_status explain_eval(const brim_supervised *w, const brim_pipeline *pipeline,
                                bool random, brim_status status) {
  size_t first = 0;
  while (pipeline && first < pipeline->count && !strcmp(pipeline->items[first].name, "views")) {
    first++;
  }
  bool none = (!pipeline || pipeline->count == 0) && w->train_transforms;
  bool draws = pipeline && first < pipeline->count && is_random(&pipeline->items[first]);
  if (!w->eval_source->info.varies || !(none || (draws && !random))) return status;
  const brim_source_info *info = brim_supervised_train_info(w);
  return brim_fail_context(
      status,
      "evaluation skips random transforms; set transform.val, such as resize(size=(%" PRId64
      ", %" PRId64 "))",
      info->dim[0], info->dim[1]);
}

// A path alone does not say how images become one size; init does.
static brim_status name_init(const brim_supervised *w, brim_status status) {
  const brim_pipeline *pipeline = brim_config_pipeline(w->config, "transform", "train");
  const char *path = brim_config_string(w->config, "data.path");
  if (status != BRIM_EINVAL || (pipeline && pipeline->count) || !path) return status;
  char detail[512];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  return brim_fail(status, "%s; 'brim init %s' writes a config that does", detail, path);
}

const brim_source_info *brim_supervised_train_info(const brim_supervised *w) {
  return w->train_transforms ? brim_transforms_info(w->train_transforms) : &w->train_source->info;
}

static const brim_source_info *eval_info(const brim_supervised *w) {
  return w->eval_transforms ? brim_transforms_info(w->eval_transforms) : &w->eval_source->info;
}

// A transform.val that ends in images of another size is taken at its word: a network that has seen
// random crops, which enlarge, does better on larger images.
bool brim_supervised_any_size(const brim_config *config) {
  bool given = false;
  const brim_pipeline *pipeline = brim_supervised_eval_pipeline(config, &given);
  return given && pipeline && pipeline->count > 0;
}

void brim_supervised_set_eval(const brim_supervised *w, brim_net_spec *spec) {
  memset(spec->eval_dim, 0, sizeof spec->eval_dim);
  if (!w->eval_source || spec->input_rank != 3) return;
  const int64_t *dim = eval_info(w)->dim;
  if (memcmp(dim, spec->input_dim, 3 * sizeof *dim) == 0) return;
  memcpy(spec->eval_dim, dim, 3 * sizeof *dim);
  // larger ones help after random crops; smaller ones are nobody's wish
  if (dim[0] >= spec->input_dim[0] && dim[1] >= spec->input_dim[1]) return;
  brim_log_warn("workload",
                "evaluation images are %" PRId64 " x %" PRId64 ", smaller than the %" PRId64
                " x %" PRId64 " of training; set their size with transform.val",
                dim[0], dim[1], spec->input_dim[0], spec->input_dim[1]);
}

static brim_status check_sources(const brim_supervised *w) {
  static const char transformed[] =
      " once transformed; give transform.train and transform.val that end in the same shape";
  if (!w->eval_source) return BRIM_OK;
  const brim_source *train = w->train_source, *eval = w->eval_source;
  const brim_source_info *a = &train->info, *b = &eval->info;
  bool same = a->rank == b->rank && a->type == b->type;
  for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
  return brim_source_match(train, brim_supervised_train_info(w), eval, eval_info(w),
                           brim_supervised_any_size(w->config), same ? transformed : "");
}

//---------------------------------- loss ----------------------------------

static brim_status check_views(const brim_component *loss, int32_t views) {
  bool contrastive = strcmp(loss->name, "ntxent") == 0;
  if (contrastive && views != 2) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "loss ntxent compares two views of each sample, but transform makes %d; "
                        "write transform: views | random_resized_crop(size=96) | ...",
                        (int)views);
  }
  if (!contrastive && views > 1) {
    return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                        "transform makes %d views of each sample, but loss %s takes one; use loss "
                        "ntxent, or remove views",
                        (int)views, loss->name);
  }
  return BRIM_OK;
}

// Of a loss the argument that a key gives too, as config_links.c has it for one that is written down.
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

static const brim_component *usual_loss(brim_supervised *w) {
  bool classes = w->train_source->info.classes > 0;
  const char *name = w->views == 2 ? "ntxent" : classes ? "cross_entropy" : "mse";
  brim_usual_loss(w->config, name, &w->usual);
  for (int i = 0; i < 2; i++) {
    if (strcmp(loss_keys[i].loss, name) != 0 && brim_config_is_set(w->config, loss_keys[i].key)) {
      brim_log_warn("workload", "'%s' has no effect on '%s'", loss_keys[i].key, name);
    }
  }
  return &w->usual.loss;
}

// A projection is compared, it predicts nothing.
static brim_status check_model(const brim_supervised *w) {
  const brim_component *model = brim_config_component(w->config, "model", NULL);
  if (w->views > 1 || !model || strcmp(model->name, "simclr") != 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, model->file, model->line, model->col,
                      "model simclr trains on two views without labels; write workload: "
                      "contrastive and transform: views | random_resized_crop(size=96) | ...; to "
                      "train on labels, use its backbone as the model");
}

// The loss that was given, or the one for such targets; and whether there are targets for it.
static brim_status set_loss(brim_supervised *w) {
  const brim_source_info *info = &w->train_source->info;
  const brim_component *loss = brim_config_component(w->config, "loss", NULL);
  if (w->contrastive.on && w->views != 2) {
    return brim_fail(BRIM_EINVAL,
                     "workload contrastive compares two views of each sample, but transform makes "
                     "%d; write transform: views | random_resized_crop(size=96) | ...",
                     (int)w->views);
  }
  if (!loss) loss = usual_loss(w);
  w->spec.loss = loss;
  BRIM_TRY(check_views(loss, w->views));
  BRIM_TRY(check_model(w));
  if (w->views > 1 || info->classes > 0 || info->target_dim > 0) return BRIM_OK;
  return brim_fail_at(BRIM_EINVAL, loss->file, loss->line, loss->col,
                      "the training set has no %s, which loss %s needs; use a labelled split, or "
                      "loss ntxent with transform: views | ...",
                      strcmp(loss->name, "cross_entropy") == 0 ? "labels" : "targets", loss->name);
}

static int32_t views_of(const brim_pipeline *pipeline) {
  for (size_t i = 0; pipeline && i < pipeline->count; i++) {
    const brim_component *stage = &pipeline->items[i];
    if (strcmp(stage->name, "views") == 0) return (int32_t)brim_component_int(stage, "views", 2);
  }
  return 1;
}

brim_status brim_supervised_open_data(brim_supervised *w) {
  const brim_component *train = NULL;
  const brim_pipeline *pipeline = brim_config_pipeline(w->config, "transform", "train");
  BRIM_TRY(train_component(w, &train));
  w->views = views_of(pipeline);  // before the set is opened: contrastive training keeps none back
  BRIM_TRY(open_train(w, train));
  BRIM_TRY(name_init(w, brim_supervised_make_transforms(w, pipeline, w->train_source, true,
                                                        &w->train_transforms)));
  if (w->train_transforms) w->views = brim_transforms_views(w->train_transforms);
  BRIM_TRY(set_loss(w));
  if (w->views > 1 && !w->contrastive.on) return BRIM_OK;
  BRIM_TRY(open_eval(w, train));
  bool random = false;
  pipeline = brim_supervised_eval_pipeline(w->config, &random);
  brim_status status =
      brim_supervised_make_transforms(w, pipeline, w->eval_source, random, &w->eval_transforms);
  if (status) return explain_eval(w, pipeline, random, status);
  return w->contrastive.on ? brim_contrastive_open_bank(w, train) : check_sources(w);
}
