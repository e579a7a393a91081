// Checkpoints for use: what __metadata__ says of the network and of its settings.
#include "workload/workload_trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
    json_t *name = json_string(class_names[i]);  // NULL for a folder whose name is no UTF-8
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

// The checkpoint in a folder to name in a message: `first`, else the last by name; "" = there is none.
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

// "data.batch_size" into {"data": {"batch_size": ...}}.
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

// JSON is YAML. A key that this version does not know (of a later one) is left out.
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
