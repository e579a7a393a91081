// Using a trained network: reading its checkpoint, opening data for it, computing its outputs.

#include "workload/learn/learn_trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/learn/learn.h"

//------------------------------------------ checkpoint ------------------------------------------
// The metadata of a checkpoint (learn_trained.h): network and settings.

enum { MAX_CLASS_NAMES = 100000 };

static const char *const task_names[BRIM_TASK_COUNT] = {
    [BRIM_TASK_CLASSES] = "classes",
    [BRIM_TASK_VALUES] = "values",
    [BRIM_TASK_LABELS] = "labels",
    [BRIM_TASK_EMBEDDING] = "embedding",
};

const char *brim_task_name(brim_task task) {
  return (unsigned)task < BRIM_TASK_COUNT ? task_names[task] : "?";
}

//---------------------------------- writing ----------------------------------

static brim_status put_list(json_t *object, const char *key, int count, const float *values) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(object, key, list));
  for (int i = 0; i < count; i++) {
    BRIM_TRY(brim_json_push(list, brim_json_number((double)values[i])));
  }
  return BRIM_OK;
}

static brim_status put_shape(json_t *object, const char *key, int rank, const int64_t *dim) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(object, key, list));
  for (int i = 0; i < rank; i++) BRIM_TRY(brim_json_push(list, json_integer(dim[i])));
  return BRIM_OK;
}

static brim_status fill_network(const brim_net_spec *s, brim_task task, int64_t outputs,
                                const char *const *class_names, json_t *root) {
  json_t *input = json_object();
  BRIM_TRY(brim_json_put(root, "input", input));
  BRIM_TRY(brim_json_put(input, "type", json_string(s->input_dtype == BRIM_U8 ? "u8" : "f32")));
  BRIM_TRY(put_shape(input, "shape", s->input_rank, s->input_dim));
  if (s->eval_dim[0] > 0) {
    BRIM_TRY(put_shape(input, "eval_shape", s->input_rank, s->eval_dim));
  }
  BRIM_TRY(put_list(input, "scale", s->channels, s->scale));
  BRIM_TRY(put_list(input, "shift", s->channels, s->shift));
  BRIM_TRY(brim_json_put(root, "task", json_string(brim_task_name(task))));
  BRIM_TRY(brim_json_put(root, "outputs", json_integer(outputs)));
  if (task != BRIM_TASK_CLASSES || !class_names || outputs > MAX_CLASS_NAMES) return BRIM_OK;
  json_t *names = json_array();
  BRIM_TRY(brim_json_put(root, "class_names", names));
  for (int64_t i = 0; i < outputs; i++) {
    json_t *name = json_string(class_names[i]);  // NULL if a folder's name is not UTF-8
    BRIM_TRY(brim_json_push(names, name ? name : json_sprintf("class %lld", (long long)i)));
  }
  return BRIM_OK;
}

brim_status brim_trained_put_network(const brim_net_spec *spec, brim_task task, int64_t outputs,
                                     const char *const *class_names, json_t *meta) {
  char *text = NULL;
  brim_json_setup();
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while saving");
  brim_status status = fill_network(spec, task, outputs, class_names, root);
  if (!status) status = brim_json_dump(root, 0, &text);
  if (!status) status = brim_json_put(meta, "brim.network", json_string(text));
  brim_free(text);
  json_decref(root);
  return status;
}

//---------------------------------- reading ----------------------------------

static brim_status fail_network(const brim_trained *t, const char *what) {
  return brim_fail(BRIM_EPARSE, "%s: __metadata__: brim.network has no valid '%s'", t->path, what);
}

static bool read_reals(const json_t *list, int32_t *count, float out[4]) {
  size_t n = json_array_size(list);
  if (n < 1 || n > 4) return false;
  for (size_t i = 0; i < n; i++) {
    const json_t *item = json_array_get(list, i);
    if (!json_is_number(item) || !isfinite(json_number_value(item))) return false;
    out[i] = (float)json_number_value(item);
  }
  *count = (int32_t)n;
  return true;
}

static bool read_shape(const json_t *shape, int32_t *rank, int64_t dim[4], int64_t *values) {
  size_t n = json_array_size(shape);
  if (n < 1 || n > 4) return false;
  *values = 1;
  for (size_t i = 0; i < n; i++) {
    dim[i] = json_integer_value(json_array_get(shape, i));
    if (dim[i] < 1 || __builtin_mul_overflow(*values, dim[i], values)) return false;
    if (*values > (1 << 30)) return false;
  }
  *rank = (int32_t)n;
  return true;
}

static brim_status read_input(brim_trained *t, const json_t *input) {
  const char *type = json_string_value(json_object_get(input, "type"));
  const json_t *eval_shape = json_object_get(input, "eval_shape");
  int32_t shifts = 0, other = 0;
  int64_t values = 0, others = 0;
  if (!type || (strcmp(type, "u8") != 0 && strcmp(type, "f32") != 0)) {
    return fail_network(t, "input.type");
  }
  t->input_dtype = strcmp(type, "u8") == 0 ? BRIM_U8 : BRIM_F32;
  if (!read_shape(json_object_get(input, "shape"), &t->input_rank, t->input_dim, &values)) {
    return fail_network(t, "input.shape");
  }
  if (eval_shape && (!read_shape(eval_shape, &other, t->eval_dim, &others) || other != 3 ||
                     t->input_rank != 3 || t->eval_dim[2] != t->input_dim[2])) {
    return fail_network(t, "input.eval_shape");
  }
  if (!read_reals(json_object_get(input, "scale"), &t->channels, t->scale) ||
      !read_reals(json_object_get(input, "shift"), &shifts, t->shift) || shifts != t->channels ||
      values % t->channels != 0) {
    return fail_network(t, "input.scale");
  }
  return BRIM_OK;
}

static brim_status read_class_names(brim_trained *t, const json_t *list) {
  if (!list) return BRIM_OK;
  if (!json_is_array(list) || (int64_t)json_array_size(list) != t->outputs) {
    return fail_network(t, "class_names");
  }
  const char **names = brim_arena_calloc(t->arena, (size_t)t->outputs, sizeof *names);
  if (!names) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", t->path);
  for (size_t i = 0; i < (size_t)t->outputs; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name) return fail_network(t, "class_names");
    names[i] = brim_arena_strdup(t->arena, name);
    if (!names[i]) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", t->path);
  }
  t->class_names = names;
  return BRIM_OK;
}

static brim_status read_network(brim_trained *t, const char *text) {
  json_t *root = NULL;
  BRIM_TRY(brim_json_parse(text, strlen(text), t->path, &root));
  brim_status status = read_input(t, json_object_get(root, "input"));
  const char *task = json_string_value(json_object_get(root, "task"));
  int found = 0;
  while (found < BRIM_TASK_COUNT && (!task || strcmp(task, task_names[found]) != 0)) found++;
  t->outputs = json_integer_value(json_object_get(root, "outputs"));
  if (!status && found == BRIM_TASK_COUNT) status = fail_network(t, "task");
  if (!status && (t->outputs < 1 || t->outputs > 1 << 24)) status = fail_network(t, "outputs");
  t->task = (brim_task)found;
  if (!status) status = read_class_names(t, json_object_get(root, "class_names"));
  json_decref(root);
  t->has_network = !status;
  return status;
}

static int64_t number_in(const json_t *meta, const char *key) {
  int64_t value = 0;
  const char *text = json_string_value(json_object_get(meta, key));
  return text && brim_parse_i64(text, &value) && value >= 0 ? value : -1;
}

static brim_status read_metadata(brim_trained *t) {
  const json_t *meta = brim_safetensors_metadata(t->file);
  const char *format = json_string_value(json_object_get(meta, "brim.format"));
  if (format && strcmp(format, "brim.checkpoint/1") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s has format %s; this version of brim reads brim.checkpoint/1", t->path,
                     format);
  }
  const char *workload = json_string_value(json_object_get(meta, "brim.workload"));
  t->unnamed = !workload;
  t->workload = brim_arena_strdup(t->arena, workload ? workload : "supervised");
  if (!t->workload) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", t->path);
  t->step = number_in(meta, "brim.step");
  t->epoch = number_in(meta, "brim.epoch");
  const char *settings = json_string_value(json_object_get(meta, "brim.settings"));
  if (settings) BRIM_TRY(brim_json_parse(settings, strlen(settings), t->path, &t->settings));
  for (size_t i = 0; i < brim_safetensors_count(t->file) && !t->has_ema; i++) {
    t->has_ema = brim_str_starts(brim_safetensors_at(t->file, i)->name, BRIM_TRAINED_EMA);
  }
  const char *network = json_string_value(json_object_get(meta, "brim.network"));
  return network ? read_network(t, network) : BRIM_OK;
}

static brim_status open_file(brim_trained *t) {
  BRIM_TRY(brim_safetensors_open(t->path, &t->file));
  return brim_safetensors_verify(t->file);
}

// Finds the checkpoint in a folder that a message can name: `first`, else the last by name; "" = none.
static brim_status name_checkpoint(const char *folder, const char *first, char *out, size_t size) {
  char **names = NULL;
  size_t count = 0;
  out[0] = '\0';
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count; i++) {
    if (!brim_str_ends(names[i], ".safetensors")) continue;
    snprintf(out, size, "%s", names[i]);
    if (strcmp(names[i], first) == 0) break;
  }
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

brim_status brim_trained_refuse_folder(const char *path, const char *first) {
  char name[256];
  if (!brim_fs_is_dir(path)) return BRIM_OK;
  BRIM_TRY(name_checkpoint(path, first, name, sizeof name));
  if (name[0]) {
    return brim_fail(BRIM_EINVAL, "%s is a folder; name the checkpoint in it, such as %s/%s", path,
                     path, name);
  }
  return brim_fail(BRIM_EINVAL,
                   "%s is a folder without a checkpoint: brim looked for %s and other files "
                   "*.safetensors in it",
                   path, first);
}

brim_status brim_trained_open(const char *path, brim_trained **out) {
  *out = NULL;
  BRIM_TRY(brim_trained_refuse_folder(path, "best.safetensors"));
  brim_trained *t = brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  t->path = brim_strdup(path);
  brim_status status =
      t->path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  if (!status) status = brim_arena_create(0, &t->arena);
  if (!status) status = open_file(t);
  if (!status) status = read_metadata(t);
  if (status) {
    brim_trained_close(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

void brim_trained_close(brim_trained *t) {
  if (!t) return;
  json_decref(t->settings);
  brim_safetensors_close(t->file);
  brim_arena_destroy(t->arena);
  brim_free(t->path);
  brim_free(t);
}

//---------------------------------- the config ----------------------------------

// Puts "data.batch_size" as {"data": {"batch_size": ...}}.
static brim_status put_dotted(json_t *root, const char *key, json_t *value) {
  char part[64];
  json_t *at = root;
  for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
    size_t n = (size_t)(dot - key);
    if (n >= sizeof part) return BRIM_OK;
    memcpy(part, key, n);
    part[n] = 0;
    if (!json_object_get(at, part)) BRIM_TRY(brim_json_put(at, part, json_object()));
    at = json_object_get(at, part);
  }
  return brim_json_put(at, key, json_incref(value));
}

// Writes the settings as JSON, which is YAML, without keys of later versions.
brim_status brim_trained_config_text(const brim_trained *t, brim_str *out) {
  if (!t->settings) {
    return brim_fail(BRIM_EINVAL,
                     "%s does not contain the config of its run; give it with --config (runs keep "
                     "it as config.yaml)",
                     t->path);
  }
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", t->path);
  brim_status status = BRIM_OK;
  const char *key;
  json_t *value;
  json_object_foreach(t->settings, key, value) {
    if (!status && !json_is_null(value) && brim_config_key_find(key)) {
      status = put_dotted(root, key, value);
    }
  }
  char *text = NULL;
  if (!status) status = brim_json_dump(root, 0, &text);
  if (!status) brim_str_append(out, text);
  if (!status) status = brim_str_status(out);
  brim_free(text);
  json_decref(root);
  return status;
}

brim_status brim_trained_spec(const brim_trained *t, const brim_config *config,
                              brim_net_spec *out) {
  static const brim_component mlp = {.name = "mlp"};
  memset(out, 0, sizeof *out);
  if (!t->has_network) {
    return brim_fail(BRIM_EINVAL,
                     "%s was written by an earlier version and lacks its input shape; give its "
                     "training data with --data-path",
                     t->path);
  }
  const brim_component *model = brim_config_component(config, "model", NULL);
  out->model = model ? model : &mlp;
  out->input_dtype = t->input_dtype;
  out->input_rank = t->input_rank;
  memcpy(out->input_dim, t->input_dim, sizeof out->input_dim);
  memcpy(out->eval_dim, t->eval_dim, sizeof out->eval_dim);
  out->channels = t->channels;
  memcpy(out->scale, t->scale, sizeof out->scale);
  memcpy(out->shift, t->shift, sizeof out->shift);
  out->classes = t->task == BRIM_TASK_CLASSES ? t->outputs : 0;
  out->target_dim = t->task == BRIM_TASK_CLASSES ? 0 : t->outputs;
  return BRIM_OK;
}

//--------------------------------------------- data ---------------------------------------------
// Data for a trained network: chooses the set, makes its transforms, and checks that it suits the network.
// learn_data.c does the same for training.

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
  bool foreign;  // the files at the path are of another kind than the config says
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

// Reads images as grey for a network of one channel.
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

// Fails: a checkpoint does not know where data are, so the user has to give a path.
static brim_status ask_for_path(const opening *o) {
  if (o->t->has_network) {
    return brim_fail(BRIM_EINVAL, "no data; give --data-path PATH");
  }
  return brim_fail(BRIM_EINVAL,
                   "%s lacks the input and output shapes of its network (an earlier version or "
                   "another program wrote it); give its training data with --data-path PATH",
                   o->t->path);
}

// Decides if the files at the path or the config describe the data.
static brim_status choose_kind(opening *o) {
  const brim_component *said = brim_config_component(o->config, "dataset", "train"), *found = NULL;
  bool asked = brim_config_layer_of(o->config, "dataset") == BRIM_CONFIG_FROM_OVERRIDE;
  if (!o->path && !said) return ask_for_path(o);
  if (!o->path || asked || (said && !o->want->path_given)) return BRIM_OK;
  brim_status status = guess(o, &found);
  if (status && said && status != BRIM_ENOENT) return BRIM_OK;  // try the component
  if (status) return status;
  o->foreign = said && !same_kind(said->name, found->name);
  return BRIM_OK;
}

// Allows or forbids reading external files. Only the command line can allow it: the checkpoint's config may come
// from another source.
static brim_status choose_external(const opening *o, const brim_component **component) {
  bool said = brim_config_layer_of(o->config, "data.allow_external") == BRIM_CONFIG_FROM_OVERRIDE;
  if (said && brim_config_bool(o->config, "data.allow_external"))
    return brim_work_allow_external(o->t->arena, component);
  if (brim_config_layer_of(o->config, "dataset") == BRIM_CONFIG_FROM_OVERRIDE) return BRIM_OK;
  return without(o, component, "allow_external");
}

// The component of a slot ("train", "val", "test"), or of the files at the path.
static brim_status component_of(const opening *o, const char *slot, const brim_component **out) {
  *out = o->foreign ? NULL : brim_config_component(o->config, "dataset", slot);
  if (!*out) *out = o->foreign ? NULL : brim_config_component(o->config, "dataset", NULL);
  if (!*out) BRIM_TRY(guess(o, out));
  if (o->want->path_given) BRIM_TRY(without(o, out, "path"));
  static const char *const parts[] = {"part", "indices", "fold", "limit", "split"};
  bool own = has_slot(o, slot) || strcmp(slot, "train") == 0;
  // a component that serves all sets chooses a part for training: drop that choice
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

// For prediction: opens the whole of the first split that exists.
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
    // report the reason for the split that most sets have
    if (i == 2) snprintf(first, sizeof first, "%s", brim_status_detail());
  }
  brim_status_set_detail(first);
  return status;
}

// Opens the set that training evaluates on.
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

// The rank without trailing ones: (28, 28) and (28, 28, 1) have the same bytes.
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

// True for images that can be resized for the network.
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

// If transform.val ends in another image size than training's, uses that size as the network's input.
static void use_eval_size(opening *o) {
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
    // a network of two views is used on one view, without transforms
    status = brim_transforms_create(pipeline, d->source, o->seed, random, &d->transforms);
    if (!status && brim_transforms_views(d->transforms) > 1) {
      brim_transforms_destroy(d->transforms);
      d->transforms = NULL;
    }
  }
  if (!status) use_eval_size(o);
  bool fits = !status && (!o->t->has_network || same_shape(o->t, info_of(d)));
  if (fits || status == BRIM_ENOMEM) return status;
  if (!can_resize(o->t, info)) {
    // a message about the samples is clearer than one of a transform
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

// Maps labels by class names if network and data have them: other data may number the classes differently, or
// have only some of them.
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

// Takes the input of a checkpoint without brim.network from the data, as training did.
static brim_status data_fill_network(const opening *o) {
  brim_trained *t = o->t;
  const brim_source_info *info = info_of(o->out);
  brim_net_spec spec;
  memset(&spec, 0, sizeof spec);
  brim_learn_input_of(info, &spec);
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

// Adds advice to the failure of a source that needs a path.
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
  // the share of the training set that is kept for validation is called val
  if (d->share_from > 0) snprintf(d->split, sizeof d->split, "val");
  if (!o->t->has_network) BRIM_TRY(data_fill_network(o));
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

//------------------------------------------- outputs -------------------------------------------

typedef struct running {
  const brim_trained *t;
  const brim_trained_data *data;
  const brim_trained_how *how;
  brim_net *net;
  brim_loader *loader;
  int64_t batch, width;
  float *outputs;   // (batch, width)
  int32_t *label;   // (batch), for the network's loss
  float *target;    // (batch, width), for values; 0 without targets
  uint64_t *index;  // (batch)
  int32_t *kept_label;
  float *kept_target;
  int64_t left;
  uint64_t next;  // the first sample that was not handed out yet
  int64_t rows;
} running;

static brim_status create_net(running *r, brim_device *device, const brim_config *config) {
  static const brim_component sgd = {.name = "sgd"};  // needs no memory; nothing is trained
  brim_net_spec spec;
  BRIM_TRY(brim_trained_spec(r->t, config, &spec));
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  bool classes = r->t->task == BRIM_TASK_CLASSES;
  // projections are not compared here: any loss over numbers serves
  brim_usual usual;
  bool labels = r->t->task == BRIM_TASK_LABELS;
  brim_usual_loss(config, classes ? "cross_entropy" : labels ? "bce" : "mse", &usual);
  spec.loss = !loss || r->t->task == BRIM_TASK_EMBEDDING ? &usual.loss : loss;
  spec.optimizer = &sgd;
  spec.batch = 1;  // training never runs and should take little memory
  spec.eval_batch = r->batch;
  spec.accumulation = 1;
  spec.precision = r->how->precision;
  // with neighbours the network outputs its features; no neighbours are searched
  if (r->how->features) {
    spec.neighbours = (brim_neighbours){.bank = 1, .classes = 1, .k = 1, .temperature = 1};
  }
  BRIM_TRY(brim_net_create(device, &spec, &r->net));
  r->width = brim_net_output_width(r->net);
  return brim_net_load_weights(r->net, r->t->path,
                               r->how->ema && r->t->has_ema ? BRIM_TRAINED_EMA : NULL);
}

static brim_status create_loader(running *r, brim_device *device) {
  brim_loader_options options = {.batch = r->batch,
                                 .num_workers = r->how->num_workers,
                                 .prefetch_factor = 2,
                                 .world = 1,
                                 .once = true,
                                 .skip_broken = r->how->skip_broken,
                                 .transforms = r->data->transforms};
  return brim_loader_create(device, r->data->source, &options, &r->loader);
}

static brim_status make_room(running *r) {
  size_t rows = (size_t)r->batch, width = (size_t)r->t->outputs;
  r->outputs = brim_calloc(rows * (size_t)r->width, sizeof *r->outputs);
  r->label = brim_calloc(rows, sizeof *r->label);
  r->kept_label = brim_calloc(rows, sizeof *r->kept_label);
  r->index = brim_calloc(rows, sizeof *r->index);
  if (r->t->task != BRIM_TASK_CLASSES) {
    r->target = brim_calloc(rows * width, sizeof *r->target);
    r->kept_target = brim_calloc(rows * width, sizeof *r->kept_target);
  }
  bool good = r->outputs && r->label && r->kept_label && r->index;
  if (r->t->task != BRIM_TASK_CLASSES) good = good && r->target && r->kept_target;
  return good ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the outputs");
}

// Sets what the network's loss compares with: the targets, or 0 without targets.
static void set_targets(running *r, const brim_loaded *loaded) {
  size_t width = (size_t)r->t->outputs;
  if (!r->data->labelled || !loaded->target) return;
  if (r->t->task != BRIM_TASK_CLASSES) {
    memcpy(r->target, loaded->target, (size_t)loaded->rows * width * sizeof *r->target);
    return;
  }
  const int32_t *from = (const int32_t *)loaded->target;
  for (int64_t i = 0; i < loaded->rows; i++) {
    r->label[i] = r->data->label_map ? r->data->label_map[from[i]] : from[i];
  }
}

// Drops rows of samples that were already handed out: with skip_broken, such a sample takes the place of one that
// cannot be read. Returns the number of rows that remain.
static int64_t keep_new(running *r, const brim_loaded *loaded) {
  size_t width = (size_t)r->t->outputs, own = (size_t)r->width;
  int64_t kept = 0;
  for (int64_t i = 0; i < loaded->rows; i++) {
    if (loaded->index[i] < r->next) continue;
    r->next = loaded->index[i] + 1;
    r->index[kept] = loaded->index[i];
    r->kept_label[kept] = r->label[i];
    if (kept != i) {
      memcpy(r->outputs + (size_t)kept * own, r->outputs + (size_t)i * own,
             own * sizeof *r->outputs);
    }
    if (r->target) {
      memcpy(r->kept_target + (size_t)kept * width, r->target + (size_t)i * width,
             width * sizeof *r->target);
    }
    kept++;
  }
  return kept;
}

// Replaces labels of classes that the network does not know by a valid label. The loss is not reported then.
static void hide_unknown(int32_t *label, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    if (label[i] < 0) label[i] = 0;
  }
}

static brim_status one_batch(running *r, brim_trained_fn fn, void *ctx) {
  const brim_loaded *loaded = NULL;
  BRIM_TRY(brim_loader_next(r->loader, &loaded));
  set_targets(r, loaded);
  int32_t *fed = r->label;
  int64_t rows = loaded->rows;
  memcpy(r->kept_label, r->label, (size_t)rows * sizeof *r->label);
  hide_unknown(fed, rows);
  brim_batch batch = {.input = loaded->input, .rows = rows};
  bool labels = r->how->features || r->t->task == BRIM_TASK_CLASSES;
  batch.target = labels ? (const void *)fed : r->target;
  brim_status status = brim_net_evaluate(r->net, &batch, NULL);
  if (!status) status = brim_net_outputs(r->net, r->outputs, rows);
  memcpy(r->label, r->kept_label, (size_t)rows * sizeof *r->label);
  int64_t kept = status ? 0 : keep_new(r, loaded);
  r->left -= rows;
  brim_loader_release(r->loader, loaded);
  if (status || kept == 0) return status;
  bool classes = r->t->task == BRIM_TASK_CLASSES, labelled = r->data->labelled;
  brim_trained_rows out = {
      .rows = kept, .width = r->width, .index = r->index, .outputs = r->outputs};
  if (labelled && classes) out.label = r->kept_label;
  if (labelled && !classes) out.target = r->kept_target;
  r->rows += kept;
  return fn(ctx, &out);
}

static brim_status run_all(running *r, const volatile sig_atomic_t *stop, brim_trained_fn fn,
                           void *ctx, brim_trained_result *out) {
  double loss = 0, rows = 0, bad = 0;
  r->left = brim_loader_samples(r->loader);
  BRIM_TRY(brim_loader_seek(r->loader, 0, 0));
  int64_t unread = 0;
  brim_net_metrics sums;
  while (r->left > 0) {
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    int64_t before = r->left;
    BRIM_TRY(one_batch(r, fn, ctx));
    unread += before - r->left;
    if (r->left > 0 && unread < 1 << 20) continue;  // the device counts in f32: exact below 2^24
    BRIM_TRY(brim_net_read_metrics(r->net, true, &sums));
    loss += sums.loss_sum;
    rows += sums.rows;
    bad += sums.bad_rows;
    unread = 0;
  }
  brim_loader_stats stats;
  brim_loader_get_stats(r->loader, &stats);
  out->rows = r->rows;
  out->broken = (int64_t)stats.broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", stats.first_broken);
  // the sum counts replacements of broken samples twice, and unknown classes as other classes
  bool known = r->data->labelled && !r->how->features && rows > 0 && bad == 0 && stats.broken == 0;
  for (int64_t i = 0; r->data->label_map && i < r->data->source->info.classes; i++) {
    known = known && r->data->label_map[i] >= 0;
  }
  if (known) out->loss = loss / rows;
  return BRIM_OK;
}

brim_status brim_trained_run(const brim_trained *t, const brim_trained_data *data,
                             const brim_trained_how *how, brim_trained_fn fn, void *ctx,
                             brim_trained_result *out) {
  running r = {.t = t, .data = data, .how = how, .batch = how->batch};
  memset(out, 0, sizeof *out);
  out->loss = (double)NAN;
  uint64_t count = data->source->info.count;
  if (r.batch > 1 && (uint64_t)r.batch > count) r.batch = (int64_t)count;
  brim_status status = create_net(&r, how->device, how->config);
  if (!status) status = create_loader(&r, how->device);
  if (!status) status = make_room(&r);
  out->began = !status;
  if (!status) status = run_all(&r, how->stop, fn, ctx, out);
  brim_loader_destroy(r.loader);
  brim_net_destroy(r.net);
  brim_free(r.outputs);
  brim_free(r.label);
  brim_free(r.kept_label);
  brim_free(r.target);
  brim_free(r.kept_target);
  brim_free(r.index);
  return status;
}
