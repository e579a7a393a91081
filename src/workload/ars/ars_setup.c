// The ars workload's config: the environment (workload_env.c), the policy and the search as one shape of
// rollouts, and what does not go together.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workload/ars/ars_int.h"

// linear_policy, or mlp_policy(hidden=256): one hidden layer of relu. The linear and mlp of other
// workloads are none: most of their arguments would have no effect here.
static brim_status read_policy(const brim_config *config, int32_t *hidden) {
  const brim_component *model = brim_config_component(config, "model", NULL);
  const char *name = model ? model->name : "linear_policy";
  char at[160];
  *hidden = 0;
  if (strcmp(name, "linear_policy") == 0) return BRIM_OK;
  if (strcmp(name, "mlp_policy") != 0) {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%smodel is %s, but ars needs a policy: linear_policy or mlp_policy(hidden=256)",
        brim_work_place(model, at), name);
  }
  int64_t depth = brim_component_int(model, "depth", 1);
  const char *activation = brim_component_string(model, "activation", "relu");
  if (depth != 1 || strcmp(activation, "relu") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%sthe policy %s has one hidden layer with relu; omit depth and activation, "
                     "or set depth=1, activation=relu",
                     brim_work_place(model, at), name);
  }
  *hidden = (int32_t)brim_component_int(model, "hidden", 256);
  return BRIM_OK;
}

// What has to fit together, whatever memory there is.
static brim_status check_shape(const brim_rollout_shape *s) {
  if (s->num_envs % 2 != 0) {
    return brim_fail(BRIM_EINVAL,
                     "ars.num_envs is %d, expected an even number: half of the environments run "
                     "plus, half run minus; use %d",
                     s->num_envs, s->num_envs + 1);
  }
  if (s->dir_chunk > s->num_dirs) {
    return brim_fail(BRIM_EINVAL,
                     "ars.dir_chunk is %d, more than the %d directions of ars.num_dirs; take "
                     "dir_chunk=%d to have them all at once, or less to use less memory",
                     s->dir_chunk, s->num_dirs, s->num_dirs);
  }
  return BRIM_OK;
}

// The stage of the environment's curriculum, from 0.
static int32_t stage_of(const brim_config *config) {
  const char *name = brim_config_string(config, "ars.phase");
  return name && strcmp(name, "phase2") == 0;
}

// A default, or a preset's, is no wish for more than there are; nor is a default that a file
// has because brim wrote all values into it.
static bool asks_for_chunk(const brim_config *config, int32_t chunk) {
  static const char key[] = "ars.dir_chunk";
  const brim_config_layer layer = brim_config_layer_of(config, key);
  const char *usual = brim_config_key_find(key)->default_text;
  if (layer == BRIM_CONFIG_FROM_FILE) return chunk != strtol(usual, NULL, 10);
  return layer > BRIM_CONFIG_FROM_PRESET;
}

brim_status brim_ars_shape(const brim_config *config, const brim_registry *registry,
                           brim_rollout_shape *out) {
  const int32_t stage = stage_of(config);
  memset(out, 0, sizeof *out);
  const brim_work_env_usual usual = {.workload = "ars", .env = "quadruped", .stage = stage};
  brim_work_env env;
  BRIM_TRY(brim_work_env_read(config, registry, &usual, &env));
  out->row = env.row;
  out->env = env.values;
  BRIM_TRY(read_policy(config, &out->hidden));
  out->num_envs = (int32_t)brim_config_int(config, "ars.num_envs");
  out->num_dirs = (int32_t)brim_config_int(config, "ars.num_dirs");
  out->dir_chunk = (int32_t)brim_config_int(config, "ars.dir_chunk");
  if (out->dir_chunk > out->num_dirs) {
    if (asks_for_chunk(config, out->dir_chunk)) {
      brim_log_warn(
          "workload",
          "ars.dir_chunk is %d, more than the %d directions of ars.num_dirs: brim runs all "
          "of them at once",
          out->dir_chunk, out->num_dirs);
    }
    out->dir_chunk = out->num_dirs;
  }
  // 0: unset, or null
  int32_t length = (int32_t)brim_config_int(config, "ars.episode_length");
  out->episode_length = length != 0 ? length : out->row->length(stage, out->env.bytes);
  const char *version = brim_config_string(config, "ars.version");
  out->filter = !version || strcmp(version, "v1") != 0;
  int64_t episodes = brim_config_int(config, "ars.eval_episodes");
  out->eval_episodes = episodes > 0 ? (int32_t)episodes : 1;
  bool restart;
  if (brim_config_get_bool(config, "ars.restart", &restart)) restart = !out->row->once;  // as above
  out->once = !restart;
  // a later phase that starts from an earlier one's policy shall not meet its random numbers again
  out->seed = (uint64_t)brim_config_int(config, "seed") + (uint64_t)stage * 0x9E3779B97F4A7C15u;
  return check_shape(out);
}

brim_status brim_ars_apply(const brim_ars *w, const brim_setting *setting,
                           brim_rollout_shape *out) {
  *out = w->shape;
  out->num_envs = (int32_t)setting->value[BRIM_ARS_ENVS];
  out->num_dirs = (int32_t)setting->value[BRIM_ARS_DIRS];
  out->dir_chunk = (int32_t)setting->value[BRIM_ARS_CHUNK];
  return check_shape(out);
}

int64_t brim_ars_epochs(const brim_ars *w) {
  return (w->iterations + w->interval - 1) / w->interval;
}

int64_t brim_ars_epoch_of(const brim_ars *w, int64_t step) {
  return step == w->iterations ? brim_ars_epochs(w) : step / w->interval;
}

// The device's own rollouts: its plug-in's, or this program's where the device is the host.
static brim_status find_table(brim_ars *w) {
  brim_device *device = w->context.device;
  w->where.stream = device->stream;
  w->where.threads = device->info.threads;
  if (device->info.kind != BRIM_DEVICE_GPU) {
    w->table = brim_rollout_cpu();
    // One for all chunks: starting threads costs more than a small one.
    return brim_work_env_threads(device, &w->where);
  }
  char name[128];
  snprintf(name, sizeof name, BRIM_ROLLOUT_EXTENSION "%s", w->shape.row->name);
  w->table = (const brim_rollout_table *)brim_registry_extension(w->context.registry, name);
  if (!w->table) {
    return brim_fail(BRIM_EUNSUPPORTED, "backend %s cannot run environments (%s); use device=cpu",
                     device->backend->name, name);
  }
  if (w->table->abi != BRIM_ROLLOUT_ABI) {
    return brim_fail(
        BRIM_EABI,
        "backend %s has rollout version %u, but this program needs %d; build both together",
        device->backend->name, w->table->abi, BRIM_ROLLOUT_ABI);
  }
  return BRIM_OK;
}

//---------------------------------- knobs ----------------------------------

// Seed guide 000's own values, before and after, and what lies between and beyond; the config's own is
// always among them, so that a recommendation can be compared with it.
static size_t envs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {128, 256, 1024, 4096}, cpu[] = {16, 64};
  const brim_ars *w = (const brim_ars *)work;
  return brim_knob_with_own(w->knobs[BRIM_ARS_ENVS].value, sweep->gpu ? gpu : cpu,
                            sweep->gpu ? 4 : 2, INT64_MAX, values);
}

// None that has fewer directions than the search keeps. They change what is learned most: where trying
// is slow, the config's own alone.
static size_t dirs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_ars *w = (const brim_ars *)work;
  int64_t from[] = {16, 64}, top = brim_config_int(w->config, "ars.top_dirs");
  size_t count = sweep->gpu ? 2 : 0;
  for (size_t i = 0; i < count; i++) {
    if (from[i] < top) from[i] = top;
  }
  return brim_knob_with_own(w->knobs[BRIM_ARS_DIRS].value, from, count, INT64_MAX, values);
}

// None that is larger than all numbers of directions, which are the axis before.
static size_t chunks_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {8, 16, 64}, cpu[] = {4, 16};
  const brim_ars *w = (const brim_ars *)work;
  return brim_knob_with_own(w->knobs[BRIM_ARS_CHUNK].value, sweep->gpu ? gpu : cpu,
                            sweep->gpu ? 3 : 2, sweep->most.value[BRIM_ARS_DIRS], values);
}

static const brim_knob_check chunk_check = {
    .recommended = BRIM_N_("directions at once: %s"),
    .none = BRIM_N_("directions at once: several were tried, none is recommended"),
    .one = BRIM_N_("directions at once: only one number was tried; --dir-chunk 8 64"),
    .ended = BRIM_N_("directions at once: the sweep ended with one number alone measured")};

static const brim_knob_row words[] = {
    [BRIM_ARS_ENVS] = {.name = "num_envs",
                       .label = BRIM_N_("Environments"),
                       .heading = BRIM_N_("Envs"),
                       .narrow = BRIM_N_("Envs"),
                       .always = true},
    [BRIM_ARS_DIRS] = {.name = "num_dirs",
                       .label = BRIM_N_("Directions"),
                       .heading = BRIM_N_("Dirs"),
                       .narrow = BRIM_N_("Dirs"),
                       .always = true},
    [BRIM_ARS_CHUNK] = {.name = "dir_chunk",
                        .label = BRIM_N_("Dirs at once"),
                        .heading = BRIM_N_("Chunk"),
                        .narrow = BRIM_N_("Chunk"),
                        .always = true,
                        .check = &chunk_check},
    [BRIM_ARS_THREADS] = BRIM_THREADS_KNOB_ROW,
};

// Physics has no choice of precision.
const brim_knob_set brim_ars_knob_set = {
    .rows = words,
    .count = sizeof words / sizeof *words,
    .less_memory = BRIM_N_("a smaller dir_chunk, which changes no result")};

static void make_knobs(brim_ars *w) {
  const brim_rollout_shape *s = &w->shape;
  w->knobs[BRIM_ARS_ENVS] = (brim_knob){.name = "num_envs",
                                        .key = "ars.num_envs",
                                        .kind = BRIM_KNOB_INT,
                                        .min = 2,
                                        .max = 1 << 24,
                                        .changes_learning = true,
                                        .multiplies = true,
                                        .list = "benchmark.num_envs_options",
                                        .option = "--num-envs",
                                        .axis = envs_axis,
                                        .order = 2,
                                        .value = s->num_envs};
  w->knobs[BRIM_ARS_DIRS] = (brim_knob){.name = "num_dirs",
                                        .key = "ars.num_dirs",
                                        .kind = BRIM_KNOB_INT,
                                        .min = 1,
                                        .max = 1 << 20,
                                        .changes_learning = true,
                                        .multiplies = true,
                                        .list = "benchmark.num_dirs_options",
                                        .option = "--num-dirs",
                                        .axis = dirs_axis,
                                        .value = s->num_dirs};
  w->knobs[BRIM_ARS_CHUNK] = (brim_knob){.name = "dir_chunk",
                                         .key = "ars.dir_chunk",
                                         .kind = BRIM_KNOB_INT,
                                         .min = 1,
                                         .max = 1 << 20,
                                         .list = "benchmark.dir_chunk_options",
                                         .option = "--dir-chunk",
                                         .axis = chunks_axis,
                                         .order = 1,
                                         .value = s->dir_chunk};
  w->knobs[BRIM_ARS_THREADS] = brim_learn_threads_knob(w->config, w->context.device);
}

// Keys that other workloads have for what ars has its own for, or nothing.
static void warn_of_others(const brim_config *config) {
  static const char *const keys[][2] = {{"training.epochs", "ars.iterations"},
                                        {"training.learning_rate", "ars.step_size"},
                                        {"data.batch_size", "ars.num_envs"},
                                        {"benchmark.batch_sizes", "benchmark.num_envs_options"},
                                        {"benchmark.num_workers_options", NULL},
                                        {"benchmark.precisions", NULL},
                                        {"training.precision", NULL},
                                        {"data.num_workers", NULL},
                                        {"data.cache", NULL},
                                        {"data.path", NULL}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!brim_config_is_asked(config, keys[i][0])) continue;
    const char *origin = brim_config_origin(config, keys[i][0]);
    if (keys[i][1]) {
      brim_log_warn("workload", "%s (%s) has no effect on workload ars; use %s", keys[i][0], origin,
                    keys[i][1]);
    } else {
      brim_log_warn("workload", "%s (%s) has no effect on workload ars", keys[i][0], origin);
    }
  }
}

bool brim_ars_all_equal(const brim_rollout_shape *shape) {
  return shape->row->once && !shape->once;
}

static void describe(brim_ars *w) {
  const brim_rollout_shape *s = &w->shape;
  const brim_env_sizes z = s->row->sizes(s->env.bytes);
  char policy[64] = "linear policy", env[64];
  if (s->hidden > 0) {
    snprintf(policy, sizeof policy, "policy %d-%d-%d", z.obs, s->hidden, z.act);
  }
  s->row->describe(s->env.bytes, env, sizeof env);
  snprintf(w->description, sizeof w->description, "%s, %s, episodes of %d", policy, env,
           s->episode_length);
}

brim_status brim_ars_setup(brim_ars *w) {
  const brim_config *config = w->config;
  BRIM_TRY(brim_ars_shape(config, w->context.registry, &w->shape));
  w->noise_std = brim_config_float(config, "ars.noise_std");
  w->step_size = brim_config_float(config, "ars.step_size");
  w->shift = brim_config_float(config, "ars.shift");
  w->top = (int32_t)brim_config_int(config, "ars.top_dirs");
  if (w->top > w->shape.num_dirs) {
    brim_log_warn("workload",
                  "ars.top_dirs is %d and ars.num_dirs %d: every update uses all %d directions",
                  w->top, w->shape.num_dirs, w->shape.num_dirs);
  }
  w->iterations = brim_config_int(config, "ars.iterations");
  w->interval = brim_config_int(config, "ars.eval_interval");
  if (w->interval > w->iterations) w->interval = w->iterations;
  w->episodes = brim_config_int(config, "ars.eval_episodes");
  w->weights = brim_config_string(config, "training.weights");
  if (w->weights && !w->weights[0]) w->weights = NULL;
  if (!(w->noise_std > 0)) {
    return brim_fail(
        BRIM_EINVAL,
        "ars.noise_std is %g: without noise all directions are equal; 0.03 is a usual value",
        w->noise_std);
  }
  warn_of_others(config);
  if (w->shift != 0 && !w->shape.once) {
    brim_log_warn("workload",
                  "ars.shift is %g but has no effect: every environment makes episode_length "
                  "steps, so it cancels out; it matters only with ars.restart=false",
                  w->shift);
  }
  if (brim_ars_all_equal(&w->shape)) {
    brim_log_warn("workload",
                  "ars.restart is true, but %s rewards every step alike: all returns will be "
                  "equal; set ars.restart=false",
                  w->shape.row->name);
  }
  brim_ars_rows_init(&w->rows, w->shape.row);
  BRIM_TRY(find_table(w));
  make_knobs(w);
  describe(w);
  return BRIM_OK;
}
