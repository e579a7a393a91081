// The environment of a config or a checkpoint: its row, and its values by the row's arguments. No function
// here knows which environment it is.
#include "workload/workload_env.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *brim_work_place(const brim_component *c, char out[160]) {
  out[0] = 0;
  if (c->file) snprintf(out, 160, "%s:%d:%d: ", c->file, c->line, c->col);
  return out;
}

brim_status brim_work_env_threads(const brim_device *device, brim_rollout_where *where) {
  if (where->pool && where->threads == device->info.threads) return BRIM_OK;
  brim_pool_destroy(where->pool);
  where->pool = NULL;
  where->threads = device->info.threads;
  return brim_pool_create(where->threads, &where->pool);
}

//---------------------------------- the row ----------------------------------

static brim_status refuse_env(const brim_component *env, const char *workload) {
  char at[160], names[256] = "";
  size_t used = 0;
  const brim_env_row *row;
  for (size_t i = 0; (row = brim_env_at(i)) && used + strlen(row->name) + 3 < sizeof names; i++) {
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", row->name);
  }
  return brim_fail(BRIM_EUNSUPPORTED, "%senv is %s, but %s has only the environments %s",
                   brim_work_place(env, at), env->name, workload, names);
}

// plugin:NAME is the extension "env/NAME" of a plug-in.
static brim_status find_row(const brim_component *env, const brim_registry *registry,
                            const char *workload, const brim_env_row **out) {
  static const char prefix[] = "plugin:";
  char at[160], name[128];
  *out = brim_env_find(env->name);
  if (*out) return BRIM_OK;
  if (!brim_str_starts(env->name, prefix)) return refuse_env(env, workload);
  snprintf(name, sizeof name, BRIM_ENV_EXTENSION "%s", env->name + sizeof prefix - 1);
  if (registry) *out = (const brim_env_row *)brim_registry_extension(registry, name);
  if (!*out) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%senv is %s, but no plug-in has such an environment (%s); load it with "
                     "--plugin FILE.so",
                     brim_work_place(env, at), env->name, name);
  }
  return brim_env_check_row(*out, env->name);
}

//---------------------------------- components ----------------------------------

enum { MOST_ENVS = 8, MOST_ARGS = 64 };  // MOST_ARGS: of all environments together

static brim_config_arg component_arg(const brim_env_arg *arg) {
  static const brim_config_arg_type types[] = {[BRIM_ENV_ARG_INT] = BRIM_CONFIG_ARG_INT,
                                               [BRIM_ENV_ARG_FLOAT] = BRIM_CONFIG_ARG_FLOAT,
                                               [BRIM_ENV_ARG_CHOICE] = BRIM_CONFIG_ARG_CHOICE};
  return (brim_config_arg){.name = arg->name,
                           .type = types[arg->type],
                           .default_text = arg->default_text,
                           .min = arg->min,
                           .max = arg->max,
                           .choices = arg->choices,
                           .meaning = arg->meaning,
                           .alias = arg->alias};
}

brim_status brim_work_env_register(void) {
  // Written before threads start, read only afterwards.
  static brim_config_component_row rows[MOST_ENVS];
  static brim_config_arg args[MOST_ARGS];
  size_t count = 0, used = 0;
  const brim_env_row *row;
  for (; (row = brim_env_at(count)); count++) {
    if (count == MOST_ENVS || row->arg_count > MOST_ARGS - used) {
      return brim_fail(BRIM_EINVAL, "too many environments for %s, or too many arguments",
                       row->name);
    }
    rows[count] = (brim_config_component_row){.category = "env",
                                              .name = row->name,
                                              .meaning = row->meaning,
                                              .args = &args[used],
                                              .arg_count = row->arg_count};
    for (size_t i = 0; i < row->arg_count; i++) args[used++] = component_arg(&row->args[i]);
  }
  return brim_config_add_components(rows, count);
}

//---------------------------------- values ----------------------------------

enum { MAX_SUGGESTIONS = 32 };  // argument names that are compared with a misspelled one

// The name a config has for an argument: its own, or the alias.
static brim_status name_used(const brim_component *env, const brim_env_arg *arg,
                             const char **name) {
  char at[160];
  *name = arg->name;
  if (!arg->alias || !brim_component_arg(env, arg->alias)) return BRIM_OK;
  *name = arg->alias;
  if (!brim_component_arg(env, arg->name)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s%s: %s and %s are the same argument; specify it once",
                   brim_work_place(env, at), env->name, arg->name, arg->alias);
}

static const brim_env_arg *find_arg(const brim_env_row *row, const char *name) {
  for (size_t i = 0; i < row->arg_count; i++) {
    const brim_env_arg *arg = &row->args[i];
    if (strcmp(arg->name, name) == 0 || (arg->alias && strcmp(arg->alias, name) == 0)) return arg;
  }
  return NULL;
}

static brim_status unknown_arg(const brim_component *env, const brim_env_row *row,
                               const char *name) {
  const char *names[MAX_SUGGESTIONS + 1];
  size_t count = 0;
  for (; count < row->arg_count && count < MAX_SUGGESTIONS; count++)
    names[count] = row->args[count].name;
  names[count] = NULL;
  const char *near = brim_nearest(name, names);
  if (near) {
    return brim_fail_at(BRIM_EINVAL, env->file, env->line, env->col,
                        "%s has no argument '%.80s'; did you mean '%s'?", env->name, name, near);
  }
  return brim_fail_at(BRIM_EINVAL, env->file, env->line, env->col, "%s has no argument '%.80s'",
                      env->name, name);
}

// 1e3 is a whole number too.
static bool fits(const brim_env_arg *arg, const brim_value *v) {
  const bool number = v->kind == BRIM_VALUE_INT || v->kind == BRIM_VALUE_FLOAT;
  if (arg->type == BRIM_ENV_ARG_CHOICE) {
    return v->kind != BRIM_VALUE_LIST && v->kind != BRIM_VALUE_COMPONENT && v->string;
  }
  if (arg->type == BRIM_ENV_ARG_FLOAT) return number && isfinite(v->number);
  return number && v->number == floor(v->number) && v->number >= INT32_MIN &&
         v->number <= INT32_MAX;
}

static bool is_bounded(const brim_env_arg *arg) {
  return arg->type != BRIM_ENV_ARG_CHOICE && (arg->min != 0 || arg->max != 0);
}

// The config has checked the arguments of brim's own environments. Those of a plug-in's are known here
// alone.
static brim_status check_args(const brim_component *env, const brim_env_row *row) {
  static const char *const types[] = {
      [BRIM_ENV_ARG_INT] = "int", [BRIM_ENV_ARG_FLOAT] = "float", [BRIM_ENV_ARG_CHOICE] = "word"};
  for (size_t i = 0; i < env->arg_count; i++) {
    const char *name = env->args[i].name ? env->args[i].name : "";
    const brim_env_arg *arg = find_arg(row, name);
    if (!arg) return unknown_arg(env, row, name);
    const brim_value *v = &env->args[i].value;
    if (!fits(arg, v)) {
      return brim_fail_at(BRIM_EINVAL, env->file, env->line, env->col, "%s: '%s' expects %s",
                          env->name, name, types[arg->type]);
    }
    if (!is_bounded(arg) || (v->number >= arg->min && v->number <= arg->max)) continue;
    return brim_fail_at(BRIM_EINVAL, env->file, env->line, env->col,
                        "%s: '%s' must be between %g and %g", env->name, name, arg->min, arg->max);
  }
  return BRIM_OK;
}

static brim_status read_choice(const brim_component *env, const brim_env_arg *arg, const char *name,
                               int32_t *value) {
  char at[160], default_word[64];
  brim_env_choice_name(arg->choices, *value, default_word, sizeof default_word);
  const brim_value *given = brim_component_arg(env, name);
  // `string` also holds the text of a value that parses as a number or as `true`
  const char *word = given ? given->string : default_word;
  int32_t index = brim_env_choice(arg->choices, word);
  if (index < 0) {
    return brim_fail(BRIM_EINVAL, "%s%s: %s is '%s', expected one of %s", brim_work_place(env, at),
                     env->name, name, word, arg->choices);
  }
  *value = index;
  return BRIM_OK;
}

static brim_status read_arg(const brim_component *env, const brim_env_arg *arg, void *values) {
  void *at = (char *)values + arg->offset;
  const char *name;
  int32_t whole;
  float number;
  brim_status status = BRIM_OK;
  BRIM_TRY(name_used(env, arg, &name));
  if (arg->type == BRIM_ENV_ARG_FLOAT) {
    memcpy(&number, at, sizeof number);
    number = (float)brim_component_float(env, name, (double)number);
    memcpy(at, &number, sizeof number);
    return BRIM_OK;
  }
  memcpy(&whole, at, sizeof whole);
  if (arg->type == BRIM_ENV_ARG_INT) {
    whole = (int32_t)brim_component_float(env, name, whole);
  } else {
    status = read_choice(env, arg, name, &whole);
  }
  memcpy(at, &whole, sizeof whole);
  return status;
}

static brim_status read_args(const brim_component *env, const brim_env_row *row, bool task,
                             void *values) {
  for (size_t i = 0; i < row->arg_count; i++) {
    if ((row->args[i].task != 0) == task) BRIM_TRY(read_arg(env, &row->args[i], values));
  }
  return BRIM_OK;
}

brim_status brim_work_env_read(const brim_config *config, const brim_registry *registry,
                               const brim_work_env_usual *defaults, brim_work_env *out) {
  const brim_component *env = brim_config_component(config, "env", NULL);
  const brim_component instead = {.name = defaults->env};
  char at[160];
  memset(out, 0, sizeof *out);
  if (!env) env = &instead;
  BRIM_TRY(find_row(env, registry, defaults->workload, &out->row));
  BRIM_TRY(check_args(env, out->row));
  void *values = out->values.bytes;
  BRIM_TRY(read_args(env, out->row, true, values));
  out->row->defaults(defaults->stage, values);
  BRIM_TRY(read_args(env, out->row, false, values));
  brim_work_place(env, at);
  // before `problem`: messages of `check` can contain the wrong values
  if (out->row->check) BRIM_TRY(out->row->check(values, at));
  const char *problem = out->row->problem(values);
  return problem ? brim_fail(BRIM_EINVAL, "%s%s: %s", at, env->name, brim_tr(problem)) : BRIM_OK;
}

//---------------------------------- checkpoints ----------------------------------

static json_t *json_of(const brim_env_arg *arg, const void *values) {
  const void *at = (const char *)values + arg->offset;
  char word[64];
  float number;
  int32_t whole;
  if (arg->type == BRIM_ENV_ARG_FLOAT) {
    memcpy(&number, at, sizeof number);
    return brim_json_number((double)number);
  }
  memcpy(&whole, at, sizeof whole);
  if (arg->type == BRIM_ENV_ARG_INT) return json_integer(whole);
  return json_string(brim_env_choice_name(arg->choices, whole, word, sizeof word));
}

static brim_status put_env(const brim_env_row *row, const void *values, json_t *object) {
  BRIM_TRY(brim_json_put(object, "name", json_string(row->name)));
  for (size_t i = 0; i < row->arg_count; i++) {
    BRIM_TRY(brim_json_put(object, row->args[i].name, json_of(&row->args[i], values)));
  }
  return BRIM_OK;
}

static brim_status put_text(json_t *meta, const char *key, const json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) status = brim_json_put(meta, key, json_string(text));
  brim_free(text);
  return status;
}

brim_status brim_work_env_put(const brim_env_row *row, const void *values, json_t *policy,
                              json_t *meta) {
  json_t *env = json_object();
  brim_status status = env && policy ? put_env(row, values, env)
                                     : brim_fail(BRIM_ENOMEM, "out of memory while saving");
  if (!status) status = put_text(meta, "brim.env", env);
  if (!status) status = put_text(meta, "brim.policy", policy);
  json_decref(env);
  json_decref(policy);
  return status;
}

// Returns of different tasks are not comparable: best.safetensors and the log would mix them.
static brim_status check_task(const void *values, const char *path, const brim_env_arg *arg,
                              const json_t *env) {
  json_t *current_json = json_of(arg, values);
  const char *saved_task = json_string_value(json_object_get(env, arg->name));
  const char *current_task = json_string_value(current_json);
  brim_status status = BRIM_OK;
  if (saved_task && current_task && strcmp(saved_task, current_task) != 0) {
    status = brim_fail(BRIM_EINVAL,
                       "%s: its task is %s, but this run's task is %s, so returns are not "
                       "comparable; start from its policy with --weights and another --output-dir",
                       path, saved_task, current_task);
  }
  json_decref(current_json);
  return status;
}

brim_status brim_work_env_check(const brim_env_row *row, const void *values, const char *path,
                                const char *text, bool task) {
  json_t *env = NULL;
  if (!text) return BRIM_OK;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &env));
  const char *name = json_string_value(json_object_get(env, "name"));
  brim_status status = BRIM_OK;
  if (name && strcmp(name, row->name) != 0) {
    status = brim_fail(BRIM_EINVAL,
                       "%s: its environment is %s, but this run uses %s; set env=... as in its "
                       "training",
                       path, name, row->name);
  }
  for (size_t i = 0; task && !status && i < row->arg_count; i++) {
    if (row->args[i].task) status = check_task(values, path, &row->args[i], env);
  }
  json_decref(env);
  return status;
}

bool brim_work_env_same(const brim_env_row *row, const void *values, const char *text) {
  json_t *own = json_object(), *read = NULL, *saved = NULL;
  char *dump = NULL;
  if (!text) {
    json_decref(own);
    return true;
  }
  // as a file has it: numbers may be rounded
  bool same = own && put_env(row, values, own) == BRIM_OK &&
              brim_json_dump(own, 0, &dump) == BRIM_OK &&
              brim_json_parse(dump, strlen(dump), "brim.env", &read) == BRIM_OK &&
              brim_json_parse(text, strlen(text), "brim.env", &saved) == BRIM_OK;
  if (!same) brim_status_clear();
  same = same && json_equal(read, saved);
  json_decref(own);
  json_decref(read);
  json_decref(saved);
  brim_free(dump);
  return same;
}

void brim_work_env_label_ended(const brim_env_ended *ended, brim_metric *count, brim_metric *rate) {
  count->label = rate->label = ended->label;
  rate->table_label = ended->rate_label;
  rate->better = ended->better;
}

const char *brim_work_env_name(char out[BRIM_METRIC_NAME], const char *prefix, const char *key) {
  snprintf(out, BRIM_METRIC_NAME, "%s%s", prefix, key);
  return out;
}

//---------------------------------- replays ----------------------------------

// The word of an argument that decides what is rewarded; false where it is no such argument.
static bool task_word(const brim_env_arg *arg, const void *values, char out[64]) {
  int32_t index;
  if (!arg->task || arg->type != BRIM_ENV_ARG_CHOICE) return false;
  memcpy(&index, (const char *)values + arg->offset, sizeof index);
  brim_env_choice_name(arg->choices, index, out, 64);
  return true;
}

brim_scene_line *brim_work_replay_fact(brim_work_replay_info *info, const char *label) {
  size_t at = info->fact_count;
  if (at < BRIM_SCENE_MAX_LINES) info->fact_count++;
  brim_scene_line *line = &info->facts[at < BRIM_SCENE_MAX_LINES ? at : at - 1];
  line->label = label;
  return line;
}

void brim_work_replay_actor(brim_work_replay_info *info, const char *name, const char *label) {
  if (info->actor_count == BRIM_WORK_MAX_ACTORS) return;
  brim_work_actor *actor = &info->actors[info->actor_count++];
  actor->name = name;
  snprintf(actor->label, sizeof actor->label, "%s", label);
}

static void put_environment(const brim_env_row *row, const void *values,
                            brim_work_replay_info *out) {
  char word[64];
  brim_scene_line *fact = brim_work_replay_fact(out, BRIM_N_("Environment"));
  snprintf(out->title, sizeof out->title, "%.31s", row->name);
  snprintf(fact->text, sizeof fact->text, "%.31s", row->name);
  for (size_t i = 0; i < row->arg_count; i++) {
    if (!task_word(&row->args[i], values, word)) continue;
    snprintf(out->title, sizeof out->title, "%.31s, %.60s", row->name, word);
    snprintf(fact->text, sizeof fact->text, brim_tr("%.31s, task %.60s"), row->name, word);
  }
}

brim_status brim_work_replay_env(const brim_env_row *row, const void *values,
                                 brim_work_replay_info *out) {
  memset(out, 0, sizeof *out);
  if (!row->scene) {
    return brim_fail(BRIM_EUNSUPPORTED, "brim render has no drawing of environment %s", row->name);
  }
  row->scene(values, &out->scene);
  BRIM_TRY(brim_scene_check(&out->scene, row->sizes(values).frame, row->name));
  // as it was given: 0.05, not the nearest float
  double seconds = round(row->seconds(values) * 1e7) / 1e7;
  out->dt = seconds > 0 ? seconds : 1;
  if (!(seconds > 0) && !(out->scene.rate > 0)) out->scene.rate = 10;
  put_environment(row, values, out);
  if (row->facts) out->fact_count += row->facts(values, out->facts + out->fact_count);
  return BRIM_OK;
}

brim_status brim_work_replay_open(const brim_work_replay_from *from, size_t bytes,
                                  brim_status (*read)(const brim_work_replay_from *from,
                                                      void *state),
                                  void (*close)(void *state), void **out) {
  void *state = brim_calloc(1, bytes);
  if (!state) return brim_fail(BRIM_ENOMEM, "out of memory for a replay");
  brim_status status = read(from, state);
  if (status) {
    close(state);
    return status;
  }
  *out = state;
  return BRIM_OK;
}

brim_status brim_work_replay_task(const brim_env_row *row, const void *values, json_t *event) {
  char word[64];
  for (size_t i = 0; i < row->arg_count; i++) {
    if (!task_word(&row->args[i], values, word)) continue;
    BRIM_TRY(brim_json_put(event, row->args[i].name, json_string(word)));
  }
  return BRIM_OK;
}

void brim_work_replay_trained(brim_work_replay_info *info, int64_t iterations) {
  info->step = BRIM_N_("iteration");
  snprintf(info->trained, sizeof info->trained,
           iterations == 1 ? brim_tr("%lld iteration") : brim_tr("%lld iterations"),
           (long long)iterations);
  brim_scene_line *fact = brim_work_replay_fact(info, BRIM_N_("Trained"));
  snprintf(fact->text, sizeof fact->text, "%s", info->trained);
}

brim_scene_end brim_work_replay_end(int32_t end) {
  if (end == BRIM_ENV_TERMINATED) return BRIM_SCENE_ENDED;
  return end == BRIM_ENV_DIVERGED ? BRIM_SCENE_DIVERGED : BRIM_SCENE_LASTED;
}
