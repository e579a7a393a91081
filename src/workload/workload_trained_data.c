// The data a trained network is used on: which set is meant, what is done to its samples, and whether
// it suits the network. What training would do with the same config is in workload_data.c.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload_learn.h"
#include "workload/workload_source.h"
#include "workload/workload_trained.h"

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the data");
}

typedef struct opening {
  brim_trained *t;
  const brim_registry *registry;
  const brim_config *config;
  const brim_trained_want *want;
  brim_trained_data *out;
  const char *path;
  bool foreign;  // what lies at the path is of another kind than what the config says
  uint64_t seed;
} opening;

//---------------------------------- the component ----------------------------------

static brim_status without(const opening *o, const brim_component **component, const char *name) {
  return brim_work_with_argument(o->t->arena, component, name, NULL);
}

static bool has_slot(const opening *o, const char *slot) {
  const brim_component *c = brim_config_component(o->config, "dataset", slot);
  return !o->foreign && c && c != brim_config_component(o->config, "dataset", NULL);
}

static bool same_kind(const char *a, const char *b) {
  if (strcmp(a, "mnist") == 0) a = "idx";
  if (strcmp(b, "mnist") == 0) b = "idx";
  return strcmp(a, b) == 0;
}

static brim_status guess(const opening *o, const brim_component **out) {
  brim_component *c = brim_arena_calloc(o->t->arena, 1, sizeof *c);
  if (!c) return no_memory();
  *out = c;
  if (brim_source_is_image(o->path)) {
    c->name = "folder";
    return BRIM_OK;
  }
  return brim_source_open_failed(brim_source_guess(o->path, c));
}

// Grey images for a network of one channel.
static brim_status match_color(const opening *o, const brim_component **component) {
  const brim_trained *t = o->t;
  bool grey = t->has_network && t->input_dtype == BRIM_U8 &&
              (t->input_rank == 2 || (t->input_rank == 3 && t->input_dim[2] == 1));
  if (!grey || strcmp((*component)->name, "folder") != 0) return BRIM_OK;
  if (brim_component_arg(*component, "color")) return BRIM_OK;
  const brim_value gray = {.kind = BRIM_VALUE_STRING, .string = "gray"};
  o->out->greyed = true;
  return brim_work_with_argument(o->t->arena, component, "color", &gray);
}

// A checkpoint does not say where data lie: its user does.
static brim_status ask_for_path(const opening *o) {
  if (o->t->has_network) {
    return brim_fail(BRIM_EINVAL, "no data; give --data-path PATH");
  }
  return brim_fail(BRIM_EINVAL,
                   "%s lacks the input and output shapes of its network (an earlier version or "
                   "another program wrote it); give its training data with --data-path PATH",
                   o->t->path);
}

// Decides once whether the path or the config says what the data are.
static brim_status choose_kind(opening *o) {
  const brim_component *said = brim_config_component(o->config, "dataset", "train"), *found = NULL;
  bool asked = brim_config_layer_of(o->config, "dataset") == BRIM_CONFIG_FROM_OVERRIDE;
  if (!o->path && !said) return ask_for_path(o);
  if (!o->path || asked || (said && !o->want->path_given)) return BRIM_OK;
  brim_status status = guess(o, &found);
  if (status && said && status != BRIM_ENOENT) return BRIM_OK;  // the component may know better
  if (status) return status;
  o->foreign = said && !same_kind(said->name, found->name);
  return BRIM_OK;
}

// Consent to read other files is the user's, given on the command line: the checkpoint brings a
// config of its own, and may come from elsewhere.
static brim_status choose_external(const opening *o, const brim_component **component) {
  bool said = brim_config_layer_of(o->config, "data.allow_external") == BRIM_CONFIG_FROM_OVERRIDE;
  if (said && brim_config_bool(o->config, "data.allow_external"))
    return brim_work_allow_external(o->t->arena, component);
  if (brim_config_layer_of(o->config, "dataset") == BRIM_CONFIG_FROM_OVERRIDE) return BRIM_OK;
  return without(o, component, "allow_external");
}

// The component of a slot ("train", "val", "test"), or what was found at the path.
static brim_status component_of(const opening *o, const char *slot, const brim_component **out) {
  *out = o->foreign ? NULL : brim_config_component(o->config, "dataset", slot);
  if (!*out) *out = o->foreign ? NULL : brim_config_component(o->config, "dataset", NULL);
  if (!*out) BRIM_TRY(guess(o, out));
  if (o->want->path_given) BRIM_TRY(without(o, out, "path"));
  static const char *const parts[] = {"part", "indices", "fold", "limit", "split"};
  bool own = has_slot(o, slot) || strcmp(slot, "train") == 0;
  // one component for all sets: what it says of a part was for training
  size_t dropped = o->want->any ? 5 : own ? 0 : 3;
  for (size_t i = 0; i < dropped; i++) BRIM_TRY(without(o, out, parts[i]));
  BRIM_TRY(match_color(o, out));
  BRIM_TRY(choose_external(o, out));
  if (o->foreign) return BRIM_OK;
  return brim_work_add_names(o->config, o->t->arena, out, !o->want->any);
}

//---------------------------------- the set ----------------------------------

static brim_status open_source(opening *o, const char *slot, const char *split) {
  const brim_component *component = NULL;
  BRIM_TRY(component_of(o, slot, &component));
  const char *said = brim_component_string(component, "split", NULL);
  if (said && !o->want->any && !o->want->split) split = said;
  o->out->component = component;
  snprintf(o->out->split, sizeof o->out->split, "%s", split);
  return brim_source_open_failed(
      brim_source_open(o->registry, component, o->path, split, o->seed, &o->out->source));
}

static double val_fraction(const opening *o) {
  if (o->foreign || has_slot(o, "val")) return 0;
  return brim_config_float(o->config, "data.val_fraction");
}

static brim_status take(opening *o, double from, double to) {
  o->out->share_from = from;
  o->out->share_to = to;
  if (from <= 0 && to >= 1) return BRIM_OK;
  return brim_source_take(o->out->source, from, to, o->seed);
}

// For prediction: the first of these that is there, all of it.
static brim_status open_any(opening *o) {
  static const char *const splits[] = {"test", "val", "train", "unlabeled"};
  brim_status status = BRIM_OK;
  if (o->want->split) {
    BRIM_TRY(open_source(o, o->want->split, o->want->split));
    return take(o, 0, 1);
  }
  char first[1024] = "";
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    bool before = brim_log_hush(true);
    status = open_source(o, splits[i], splits[i]);
    brim_log_hush(before);
    if (!status) return take(o, 0, 1);
    if (status != BRIM_ENOENT) return status;
    // of the split that most sets have, the reason says most
    if (i == 2) snprintf(first, sizeof first, "%s", brim_status_detail());
  }
  brim_status_set_detail(first);
  return status;
}

// What training evaluates on.
static brim_status open_val(opening *o) {
  double share = val_fraction(o);
  if (share > 0) {
    BRIM_TRY(open_source(o, "train", "train"));
    return take(o, 1 - share, 1);
  }
  bool test = !has_slot(o, "val") && has_slot(o, "test");
  brim_status status = open_source(o, test ? "test" : "val", test ? "test" : "val");
  if (!status && o->out->source->val_is_test) {
    snprintf(o->out->split, sizeof o->out->split, "test");
  }
  if (!status) return take(o, 0, 1);
  if (status != BRIM_ENOENT || o->want->split) return status;
  BRIM_TRY(open_source(o, "train", "train"));
  o->out->fell_back = true;
  return take(o, 0, 1);
}

static brim_status open_set(opening *o) {
  const char *split = o->want->split;
  if (o->want->any) return open_any(o);
  if (!split || strcmp(split, "val") == 0) return open_val(o);
  BRIM_TRY(open_source(o, split, split));
  bool train = strcmp(split, "train") == 0;
  return take(o, 0, train ? 1 - val_fraction(o) : 1);
}

//---------------------------------- shape ----------------------------------

static const brim_source_info *info_of(const brim_trained_data *d) {
  return d->transforms ? brim_transforms_info(d->transforms) : &d->source->info;
}

// (28, 28) and (28, 28, 1) are the same bytes.
static int bare_rank(int rank, const int64_t *dim) {
  return rank > 1 && dim[rank - 1] == 1 ? rank - 1 : rank;
}

const int64_t *brim_trained_dim(const brim_trained *t) {
  return t->eval_dim[0] > 0 ? t->eval_dim : t->input_dim;
}

static bool same_shape(const brim_trained *t, const brim_source_info *info) {
  const int64_t *dim = brim_trained_dim(t);
  int a = bare_rank(t->input_rank, dim), b = bare_rank(info->rank, info->dim);
  bool same = a == b && !info->varies;
  for (int i = 0; same && i < a; i++) same = dim[i] == info->dim[i];
  return same;
}

static void shape_text(int rank, const int64_t *dim, char *out, size_t size) {
  size_t n = (size_t)snprintf(out, size, "(");
  for (int i = 0; i < rank && n < size; i++) {
    n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i ? ", " : "", dim[i]);
  }
  if (n < size) snprintf(out + n, size - n, ")");
}

static brim_status check_shape(const opening *o) {
  const brim_trained *t = o->t;
  const brim_source_info *info = info_of(o->out);
  bool bytes = info->type == BRIM_SAMPLE_U8;
  if (same_shape(t, info) && bytes == (t->input_dtype == BRIM_U8)) return BRIM_OK;
  char have[256], want[96], made[96];
  const brim_source_info *source = &o->out->source->info;
  shape_text(info->rank, info->dim, made, sizeof made);
  snprintf(have, sizeof have, "%s", made);
  bool changed = info->rank != source->rank ||
                 memcmp(info->dim, source->dim, (size_t)info->rank * sizeof info->dim[0]) != 0;
  if (changed) {
    shape_text(source->rank, source->dim, want, sizeof want);
    snprintf(have, sizeof have, brim_tr("%s, transformed to %s"), want, made);
  }
  shape_text(t->input_rank, brim_trained_dim(t), want, sizeof want);
  return brim_fail(BRIM_EINVAL,
                   "the samples are %s of %s%s, but %s takes %s of %s; give data like its training "
                   "data, or transform the samples with transform.val=...",
                   bytes ? brim_tr("bytes") : brim_tr("floats"),
                   source->varies ? brim_tr("up to ") : "", have, t->path,
                   t->input_dtype == BRIM_U8 ? brim_tr("bytes") : brim_tr("floats"), want);
}

// Images that can be brought to the network's size.
static bool can_resize(const brim_trained *t, const brim_source_info *info) {
  int64_t channels = t->input_rank == 3 ? t->input_dim[2] : t->input_rank == 2 ? 1 : 0;
  return t->has_network && t->input_dtype == BRIM_U8 && info->type == BRIM_SAMPLE_U8 &&
         channels > 0 && info->rank == 3 && info->dim[2] == channels;
}

static brim_status make_resize(opening *o) {
  brim_trained *t = o->t;
  const int64_t *dim = brim_trained_dim(t);
  brim_value *size = brim_arena_calloc(t->arena, 2, sizeof *size);
  brim_argument *args = brim_arena_calloc(t->arena, 1, sizeof *args);
  brim_component *stage = brim_arena_calloc(t->arena, 1, sizeof *stage);
  if (!size || !args || !stage) return no_memory();
  for (int i = 0; i < 2; i++) {
    size[i] = (brim_value){.kind = BRIM_VALUE_INT, .integer = dim[i], .number = (double)dim[i]};
  }
  args[0].name = "size";
  args[0].value = (brim_value){.kind = BRIM_VALUE_LIST, .tuple = true, .items = size, .count = 2};
  *stage = (brim_component){.name = "resize", .args = args, .arg_count = 1};
  const brim_pipeline pipeline = {.items = stage, .count = 1};
  o->out->resized = true;
  return brim_transforms_create(&pipeline, o->out->source, o->seed, false, &o->out->transforms);
}

// A transform.val that brings images to another size than training's asks for that size.
static void take_size(opening *o) {
  brim_trained *t = o->t;
  const brim_trained_data *d = o->out;
  if (!d->transforms || !t->has_network || t->input_rank != 3) return;
  const brim_source_info *from = &d->source->info, *info = brim_transforms_info(d->transforms);
  bool sized = info->rank == 3 && !info->varies && info->dim[2] == t->input_dim[2] &&
               (from->varies || memcmp(from->dim, info->dim, 2 * sizeof info->dim[0]) != 0);
  if (!sized || !brim_work_any_size(o->config)) return;
  bool same = memcmp(info->dim, t->input_dim, 2 * sizeof info->dim[0]) == 0;
  for (int i = 0; i < 3; i++) t->eval_dim[i] = same ? 0 : info->dim[i];
}

static brim_status make_transforms(opening *o) {
  bool random = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(o->config, &random);
  static const brim_pipeline none = {.count = 0};
  brim_trained_data *d = o->out;
  const brim_source_info *info = &d->source->info;
  if (!pipeline) pipeline = &none;
  brim_status status = BRIM_OK;
  if (pipeline->count > 0 || info->varies) {
    // a network of two views is used on one, as it stands
    status = brim_transforms_create(pipeline, d->source, o->seed, random, &d->transforms);
    if (!status && brim_transforms_views(d->transforms) > 1) {
      brim_transforms_destroy(d->transforms);
      d->transforms = NULL;
    }
  }
  if (!status) take_size(o);
  bool fits = !status && (!o->t->has_network || same_shape(o->t, info_of(d)));
  if (fits || status == BRIM_ENOMEM) return status;
  if (!can_resize(o->t, info)) {
    // what is wrong with these samples says more than what a transform makes of it
    if (status && o->t->has_network && !same_shape(o->t, info)) return check_shape(o);
    return status;
  }
  brim_transforms_destroy(d->transforms);
  d->transforms = NULL;
  if (!info->varies && same_shape(o->t, info)) return BRIM_OK;
  return make_resize(o);
}

//---------------------------------- targets ----------------------------------

static int find_name(const brim_trained *t, const char *name) {
  for (int64_t i = 0; i < t->outputs; i++) {
    if (strcmp(t->class_names[i], name) == 0) return (int)i;
  }
  return -1;
}

// Labels by the names of the classes where both sides have some: another set may number them
// otherwise, or have a few of them only.
static brim_status map_labels(opening *o) {
  const brim_trained *t = o->t;
  brim_trained_data *d = o->out;
  int64_t classes = d->source->info.classes;
  bool same = classes == t->outputs;
  int32_t *map = brim_calloc((size_t)classes, sizeof *map);
  if (!map) return no_memory();
  d->label_map = map;
  for (int64_t i = 0; i < classes; i++) {
    map[i] = (int32_t)find_name(t, d->class_names[i]);
    same = same && map[i] == i;
    if (map[i] >= 0 || !o->want->targets) continue;
    return brim_fail(BRIM_EINVAL,
                     "class '%s' of the data is not among the %" PRId64
                     " classes of %s (%s%s%s, ...)",
                     d->class_names[i], t->outputs, t->path, t->class_names[0],
                     t->outputs > 1 ? ", " : "", t->outputs > 1 ? t->class_names[1] : "");
  }
  if (!same) return BRIM_OK;
  brim_free(map);
  d->label_map = NULL;
  return BRIM_OK;
}

static brim_status check_classes(opening *o) {
  const brim_trained *t = o->t;
  brim_trained_data *d = o->out;
  int64_t classes = d->source->info.classes;
  if (classes == 0) {
    if (!o->want->targets) return BRIM_OK;
    return brim_fail(BRIM_EINVAL,
                     d->source->info.target_dim > 0
                         ? "%s predicts classes, but the targets are numbers; give data with "
                           "labels, or use hdf5(classes=N) if they are class numbers"
                         : "the data has no labels to evaluate %s; brim predict needs none",
                     t->path);
  }
  if (t->class_names && d->class_names) {
    d->labelled = true;
    return map_labels(o);
  }
  d->labelled = classes <= t->outputs;
  if (d->labelled || !o->want->targets) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "the data has %" PRId64 " classes, but %s knows %" PRId64
                   "; give data with the labels it was trained on",
                   classes, t->path, t->outputs);
}

static brim_status check_targets(opening *o) {
  const brim_trained *t = o->t;
  const brim_source_info *info = &o->out->source->info;
  if (t->task == BRIM_TASK_CLASSES) return check_classes(o);
  if (t->task == BRIM_TASK_EMBEDDING) return BRIM_OK;
  o->out->labelled = info->classes == 0 && info->target_dim == t->outputs;
  if (o->out->labelled || !o->want->targets) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s predicts %" PRId64 " numbers per sample, but the data has %" PRId64
                   " targets; give data with the targets it was trained on",
                   t->path, t->outputs, info->classes > 0 ? 0 : info->target_dim);
}

// A checkpoint that does not say what it takes: the data do, as they did in training.
static brim_status fill_network(const opening *o) {
  brim_trained *t = o->t;
  const brim_source_info *info = info_of(o->out);
  brim_net_spec spec;
  memset(&spec, 0, sizeof spec);
  brim_learn_set_input(info, &spec);
  if (info->classes == 0 && info->target_dim == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s was written by an earlier version and lacks its output shape, and this "
                     "data has no labels; train one more epoch with --resume to update it",
                     t->path);
  }
  t->task = info->classes > 0 ? BRIM_TASK_CLASSES : BRIM_TASK_VALUES;
  t->outputs = info->classes > 0 ? info->classes : info->target_dim;
  t->input_dtype = spec.input_dtype;
  t->input_rank = spec.input_rank;
  memcpy(t->input_dim, spec.input_dim, sizeof t->input_dim);
  t->channels = spec.channels;
  memcpy(t->scale, spec.scale, sizeof t->scale);
  memcpy(t->shift, spec.shift, sizeof t->shift);
  t->class_names = o->out->class_names;
  t->has_network = true;
  return BRIM_OK;
}

// A source that needs to know where its files lie.
static brim_status name_path(const opening *o, brim_status status) {
  bool path = status == BRIM_EINVAL && !o->path && strstr(brim_status_detail(), "data.path");
  return path ? ask_for_path(o) : status;
}

static brim_status open_all(opening *o) {
  brim_trained_data *d = o->out;
  BRIM_TRY(choose_kind(o));
  BRIM_TRY(name_path(o, open_set(o)));
  BRIM_TRY(make_transforms(o));
  BRIM_TRY(brim_source_class_names(o->t->arena, d->source, d->component, o->path, d->split,
                                   &d->class_names));
  // what is reported: the share that training keeps for validation is no part of what it trains on
  if (d->share_from > 0) snprintf(d->split, sizeof d->split, "val");
  if (!o->t->has_network) BRIM_TRY(fill_network(o));
  BRIM_TRY(check_shape(o));
  return check_targets(o);
}

brim_status brim_trained_data_open(brim_trained *t, const brim_registry *registry,
                                   const brim_config *config, const brim_trained_want *want,
                                   brim_trained_data *out) {
  memset(out, 0, sizeof *out);
  opening o = {.t = t,
               .registry = registry,
               .config = config,
               .want = want,
               .out = out,
               .path = brim_config_string(config, "data.path"),
               .seed = (uint64_t)brim_config_int(config, "seed")};
  brim_status status = open_all(&o);
  if (status) brim_trained_data_close(out);
  return status;
}

void brim_trained_data_close(brim_trained_data *data) {
  brim_transforms_destroy(data->transforms);
  brim_source_close(data->source);
  brim_free(data->label_map);
  memset(data, 0, sizeof *data);
}
