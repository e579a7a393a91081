// The mappo workload's config: environment, networks, how it learns, its knobs, and what a setting comes to. What does
// not go together is refused here, with the values that would.

#include "workload/mappo/mappo_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

//-------------------------------------------- knobs --------------------------------------------
// The knobs of multi-agent PPO: their words, the values a sweep tries, and their values in a config.

//---------------------------------- words ----------------------------------

static const brim_knob_check envs_check = {
    .recommended = BRIM_N_("environments: %s"),
    .none = BRIM_N_("environments: several numbers were tried, none is recommended"),
    .one = BRIM_N_("environments: only one number was tried; --num-envs 256 1024 4096"),
    .ended = BRIM_N_("environments: the sweep ended with one number alone measured")};

static const brim_knob_row words[] = {
    {.name = "num_envs",
     .label = BRIM_N_("Environments"),
     .heading = BRIM_N_("Envs"),
     .narrow = BRIM_N_("Envs"),
     .always = true,
     .check = &envs_check},
    {.name = "rollout_steps",
     .label = BRIM_N_("Rollout steps"),
     .heading = BRIM_N_("Steps"),
     .narrow = BRIM_N_("Steps"),
     .always = true},
    {.name = "episodes_per_batch",
     .label = BRIM_N_("Episodes per batch"),
     .heading = BRIM_N_("Episodes"),
     .narrow = BRIM_N_("Eps"),
     .always = true},
    {.name = "minibatches",
     .label = BRIM_N_("Minibatches"),
     .heading = BRIM_N_("Minib"),
     .narrow = BRIM_N_("Mb")},
    {.name = "batch_size",
     .label = BRIM_N_("Batch size"),
     .heading = BRIM_N_("Batch"),
     .narrow = BRIM_N_("Batch")},
    {.name = "precision",
     .label = BRIM_N_("Precision"),
     .heading = BRIM_N_("Precision"),
     .narrow = BRIM_N_("Prec"),
     .role = BRIM_ROLE_PRECISION,
     .always = true,
     .overhead = true},
    {.name = "collect_on",
     .label = BRIM_N_("Environments run on"),
     .heading = BRIM_N_("Collect on"),
     .narrow = BRIM_N_("Coll"),
     .always = true,
     .overhead = true},
    {.name = "num_workers",
     .label = BRIM_N_("Workers"),
     .heading = BRIM_N_("Workers"),
     .narrow = BRIM_N_("Work")},
    BRIM_THREADS_KNOB_ROW,
};
const brim_knob_set brim_mappo_knob_set = {
    .rows = words, .count = sizeof words / sizeof *words, .iterates = true};

//---------------------------------- axes ----------------------------------

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", NULL};
static const char *const collect_choices[] = {"cpu", "gpu", NULL};

// Where the config gives the episodes of an iteration, more environments than it has steps would make another.
static size_t envs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {256, 1024, 4096, 16384}, cpu[] = {8, 32, 128};
  const brim_mappo *w = (const brim_mappo *)work;
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t count = sweep->gpu ? 4 : 3;
  const int64_t steps = w->knobs[BRIM_MAPPO_STEPS].value * w->shape.episode_length;
  while (w->by_episodes && count > 0 && from[count - 1] > steps) count--;
  return brim_knob_with_own(w->knobs[BRIM_MAPPO_ENVS].value, from, count, INT64_MAX, values);
}

// Minibatches change learning as much as speed: one other size says what a larger one gains, and where
// trying is slow, the config's own alone.
static size_t batch_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t counts[] = {4}, samples[] = {4096};
  const brim_mappo *w = (const brim_mappo *)work;
  const int64_t own = w->knobs[BRIM_MAPPO_BATCH].value;
  if (!sweep->gpu) return 0;
  return brim_knob_with_own(own, w->by_samples ? samples : counts, 1, INT64_MAX, values);
}

static size_t collect_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_mappo *w = (const brim_mappo *)work;
  values[0] = w->knobs[BRIM_MAPPO_COLLECT].value;
  values[1] = 1 - values[0];
  return sweep->gpu ? 2 : 0;
}

static bool on_cpu_matters(void *work, const brim_setting *setting) {
  const brim_mappo *w = (const brim_mappo *)work;
  return w->context.device->info.kind != BRIM_DEVICE_GPU ||
         setting->value[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_CPU;
}

static bool collect_matters(void *work, const brim_setting *setting) {
  (void)setting;
  return ((const brim_mappo *)work)->context.device->info.kind == BRIM_DEVICE_GPU;
}

static const brim_knob envs_knob = {.name = "num_envs",
                                    .key = "mappo.num_envs",
                                    .kind = BRIM_KNOB_INT,
                                    .min = 1,
                                    .max = 1 << 20,
                                    .changes_learning = true,
                                    .multiplies = true,
                                    .list = "benchmark.num_envs_options",
                                    .option = "--num-envs",
                                    .axis = envs_axis};
static const brim_knob steps_knob = {.name = "rollout_steps",
                                     .key = "mappo.rollout_steps",
                                     .kind = BRIM_KNOB_INT,
                                     .min = 1,
                                     .max = 1 << 20,
                                     .changes_learning = true,
                                     .multiplies = true,
                                     .list = "benchmark.rollout_steps_options",
                                     .option = "--rollout-steps"};
static const brim_knob episodes_knob = {.name = "episodes_per_batch",
                                        .key = "mappo.episodes_per_batch",
                                        .kind = BRIM_KNOB_INT,
                                        .min = 1,
                                        .max = 1 << 20,
                                        .changes_learning = true,
                                        .multiplies = true};
static const brim_knob minibatches_knob = {.name = "minibatches",
                                           .key = "mappo.minibatches",
                                           .kind = BRIM_KNOB_INT,
                                           .min = 1,
                                           .max = 1 << 20,
                                           .changes_learning = true,
                                           .list = "benchmark.minibatches_options",
                                           .option = "--minibatches",
                                           .axis = batch_axis,
                                           .order = 1};
static const brim_knob samples_knob = {.name = "batch_size",
                                       .key = "data.batch_size",
                                       .kind = BRIM_KNOB_INT,
                                       .min = 1,
                                       .max = 1 << 28,
                                       .changes_learning = true,
                                       .list = "benchmark.batch_sizes",
                                       .option = "--batch-sizes",
                                       .axis = batch_axis,
                                       .order = 1};
static const brim_knob precision_knob = {.name = "precision",
                                         .key = "training.precision",
                                         .kind = BRIM_KNOB_CHOICE,
                                         .max = BRIM_PRECISION_COUNT - 1,
                                         .choices = precision_choices,
                                         .list = "benchmark.precisions"};
static const brim_knob collect_knob = {.name = "collect_on",
                                       .key = "mappo.collect_on",
                                       .kind = BRIM_KNOB_CHOICE,
                                       .max = BRIM_MAPPO_ON_GPU,
                                       .choices = collect_choices,
                                       .matters = collect_matters,
                                       .axis = collect_axis,
                                       .order = 2};
// -1: on a CPU as many as compute, beside a GPU all cores.
static const brim_knob workers_knob = {.name = "num_workers",
                                       .key = "data.num_workers",
                                       .kind = BRIM_KNOB_INT,
                                       .min = -1,
                                       .max = 1024,
                                       .matters = on_cpu_matters,
                                       .list = "benchmark.num_workers_options"};

// A file or the command line has it, be it the default.
static bool is_given(const brim_config *config, const char *key) {
  return brim_config_is_set(config, key) &&
         brim_config_layer_of(config, key) > BRIM_CONFIG_FROM_PRESET;
}

static int64_t number_of(const brim_config *config, const char *key, int64_t usual) {
  int64_t value;
  if (brim_config_get_int(config, key, &value) == BRIM_OK) return value;
  brim_status_clear();
  return usual;
}

// Where the config leaves the number of environments open. On a GPU 1,024 fill an H200 with the 10 agents
// of uav, and need few enough samples to learn in seconds; on two CPU cores 32 learn the same in minutes.
// With fewer episodes than that in an iteration some environments would not finish one.
enum { USUAL_ENVS_GPU = 1024, USUAL_ENVS_CPU = 32 };

static int64_t usual_envs(const brim_config *config, bool on_gpu) {
  const int64_t usual = on_gpu ? USUAL_ENVS_GPU : USUAL_ENVS_CPU;
  if (brim_config_is_set(config, "mappo.rollout_steps")) return usual;
  const int64_t episodes = number_of(config, "mappo.episodes_per_batch", usual);
  return episodes < usual ? episodes : usual;
}

// Threads that step environments for a num_workers of `asked` (-1: as many as compute, beside a GPU all
// cores), with so many threads that compute (0: the device's).
static int32_t brim_mappo_workers(const brim_mappo *w, int64_t asked, int64_t threads) {
  const brim_device *device = w->context.device;
  if (asked >= 0) return asked > 0 ? (int32_t)asked : 1;
  if (!device->info.host_memory) return brim_cpu_count();
  if (threads > 0 && device->backend->set_threads) return (int32_t)threads;
  return device->info.threads > 0 ? device->info.threads : brim_cpu_count();
}

// num_workers x episodes_per_worker environments, where the second is given.
static int64_t envs_of(const brim_mappo *w, bool on_gpu) {
  const brim_config *config = w->config;
  const int64_t each = brim_config_int(config, "mappo.episodes_per_worker");
  const int64_t asked =
      is_given(config, "data.num_workers") ? brim_config_int(config, "data.num_workers") : -1;
  const int64_t workers = brim_mappo_workers(w, asked, 0);
  const int64_t envs = number_of(config, "mappo.num_envs", usual_envs(config, on_gpu));
  if (each <= 0) return envs;
  if (!brim_config_is_set(config, "mappo.num_envs")) return each * workers;
  if (envs != each * workers) {
    brim_log_warn("workload",
                  "mappo.num_envs is %" PRId64 ", so num_workers %" PRId64
                  " x episodes_per_worker %" PRId64 " has no effect on the number of environments",
                  envs, workers, each);
  }
  return envs;
}

static brim_status collect_of(const brim_mappo *w, int64_t *out) {
  const char *text = brim_config_string(w->config, "mappo.collect_on");
  const bool gpu = w->context.device->info.kind == BRIM_DEVICE_GPU;
  *out = gpu && !(text && strcmp(text, "cpu") == 0) ? BRIM_MAPPO_ON_GPU : BRIM_MAPPO_ON_CPU;
  if (gpu || w->context.evaluates || !text || strcmp(text, "gpu") != 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "mappo.collect_on is gpu, but the device is %s; use device=cuda or "
                   "mappo.collect_on=cpu",
                   w->context.device->backend->name);
}

// Of the config, in the order of the table.
static brim_status make_knobs(brim_mappo *w) {
  const brim_config *c = w->config;
  brim_precision precision = BRIM_PRECISION_FP32;
  int64_t collect = 0;
  BRIM_TRY(collect_of(w, &collect));
  BRIM_TRY(brim_work_precision(c, w->context.device, &precision));
  w->by_episodes = brim_config_is_set(c, "mappo.episodes_per_batch") &&
                   !brim_config_is_set(c, "mappo.rollout_steps");
  w->by_samples = is_given(c, "data.batch_size") && !is_given(c, "mappo.minibatches");
  w->knobs[BRIM_MAPPO_ENVS] = envs_knob;
  w->knobs[BRIM_MAPPO_ENVS].multiplies =
      !w->by_episodes;  // else more of them make fewer steps each
  w->knobs[BRIM_MAPPO_STEPS] = w->by_episodes ? episodes_knob : steps_knob;
  w->knobs[BRIM_MAPPO_BATCH] = w->by_samples ? samples_knob : minibatches_knob;
  w->knobs[BRIM_MAPPO_PRECISION] = precision_knob;
  w->knobs[BRIM_MAPPO_COLLECT] = collect_knob;
  w->knobs[BRIM_MAPPO_WORKERS] = workers_knob;
  w->knobs[BRIM_MAPPO_THREADS] = brim_work_threads_knob(c, w->context.device);
  const int64_t values[BRIM_MAPPO_THREADS] = {envs_of(w, collect == BRIM_MAPPO_ON_GPU),
                                              number_of(c, w->knobs[BRIM_MAPPO_STEPS].key, 128),
                                              number_of(c, w->knobs[BRIM_MAPPO_BATCH].key, 4),
                                              precision,
                                              collect,
                                              brim_config_int(c, "data.num_workers")};
  for (int i = 0; i < BRIM_MAPPO_THREADS; i++) w->knobs[i].value = values[i];
  return BRIM_OK;
}

// A run that continues has as many environments as before, on whatever device, unless the config
// names another number: as many as were chosen, of which memory may have left fewer (brim.adapted). A rollout
// that memory kept from being fused is not fused: the same bits follow.
void brim_mappo_keep_choices(brim_mappo *w, const json_t *metadata) {
  const char *text = json_string_value(json_object_get(metadata, "brim.policy"));
  json_t *policy = NULL;
  if (!text) return;
  if (brim_json_parse(text, strlen(text), "brim.policy", &policy)) {
    brim_status_clear();
    return;
  }
  const json_t *chosen = json_object_get(policy, "chosen_envs");
  const json_int_t envs = json_integer_value(chosen ? chosen : json_object_get(policy, "num_envs"));
  const bool open = !brim_config_is_set(w->config, "mappo.num_envs");
  if (open && envs >= envs_knob.min && envs <= envs_knob.max) {
    w->knobs[BRIM_MAPPO_ENVS].value = envs;
  }
  w->general_rollout = json_is_true(json_object_get(policy, "general_rollout"));
  json_decref(policy);
}

//-------------------------------------------- config --------------------------------------------

enum { MOST_ROWS = 1 << 30, MOST_UPDATES = 1 << 20 };

//---------------------------------- settings ----------------------------------

// The divisors of n below and above x, as far as there are.
static void around(int64_t n, int64_t x, int64_t *below, int64_t *above) {
  *below = x > n ? n : x < 1 ? 1 : x;
  while (n % *below != 0) --*below;
  *above = x > n ? n : x < 1 ? 1 : x;
  while (n % *above != 0) ++*above;
}

static brim_status refuse_minibatches(const brim_mappo_sizes *s, int64_t count, int64_t rows) {
  int64_t below, above;
  around(rows, count, &below, &above);
  if (count > rows) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.minibatches is %" PRId64 ", more than the %" PRId64
                     " environment steps of a rollout (%d environments x %d steps)",
                     count, rows, s->envs, s->steps);
  }
  return brim_fail(BRIM_EINVAL,
                   "mappo.minibatches is %" PRId64 ", which does not divide the %" PRId64
                   " environment steps of a rollout (%d environments x %d steps); use %" PRId64
                   " or %" PRId64,
                   count, rows, s->envs, s->steps, below, above);
}

int64_t brim_mappo_batch(int64_t rows, double steps) {
  int64_t below, above;
  around(rows, (int64_t)steps, &below, &above);
  const double down = steps / (double)below, up = (double)above / steps;
  return down <= up || up < 1 ? below : above;
}

// data.batch_size counts agent samples. A minibatch has whole environment steps, and all have the same
// number: the nearest that divides a rollout, by factor.
static brim_status batch_of_samples(const brim_mappo *w, int64_t samples, int64_t rows,
                                    brim_mappo_sizes *s) {
  int64_t wanted = samples / w->z.agents, below, above;
  if (wanted < 1) {
    return brim_fail(BRIM_EINVAL,
                     "data.batch_size is %" PRId64
                     ", less than the %d agents of an environment "
                     "step; use %d or more",
                     samples, w->z.agents, w->z.agents);
  }
  around(rows, wanted, &below, &above);
  const double exact = (double)samples / w->z.agents;
  const double down = exact / (double)below, up = (double)above / exact;
  s->batch = (int32_t)brim_mappo_batch(rows, exact);
  if (fmin(down, up) > 2 && below < rows) {
    return brim_fail(BRIM_EINVAL,
                     "data.batch_size is %" PRId64
                     ", but a rollout of %d environments x %d steps divides only into minibatches "
                     "of %" PRId64 " or %" PRId64
                     " agent samples; choose another mappo.rollout_steps",
                     samples, s->envs, s->steps, below * w->z.agents, above * w->z.agents);
  }
  s->minibatches = (int32_t)(rows / s->batch);
  return BRIM_OK;
}

static brim_status take_batch(const brim_mappo *w, int64_t value, brim_mappo_sizes *s) {
  const int64_t rows = (int64_t)s->envs * s->steps;
  if (rows * w->z.agents > MOST_ROWS) {
    return brim_fail(
        BRIM_EINVAL,
        "a rollout of %d environments x %d steps x %d agents has more than %d samples; "
        "lower mappo.num_envs or mappo.rollout_steps",
        s->envs, s->steps, w->z.agents, MOST_ROWS);
  }
  if (w->by_samples) {
    BRIM_TRY(batch_of_samples(w, value, rows, s));
  } else {
    if (value > rows || rows % value != 0) return refuse_minibatches(s, value, rows);
    s->minibatches = (int32_t)value;
    s->batch = (int32_t)(rows / value);
  }
  const int64_t updates = (int64_t)s->minibatches * w->how.epochs;
  if (updates > MOST_UPDATES) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.update_epochs %d x minibatches %d make %" PRId64
                     " updates of an iteration, more than %d; lower one of them",
                     w->how.epochs, s->minibatches, updates, MOST_UPDATES);
  }
  s->updates = (int32_t)updates;
  return BRIM_OK;
}

brim_status brim_mappo_apply(const brim_mappo *w, const brim_setting *setting,
                             brim_mappo_sizes *out) {
  const int64_t *v = setting->value;
  const bool gpu = w->context.device->info.kind == BRIM_DEVICE_GPU;
  memset(out, 0, sizeof *out);
  out->envs = (int32_t)v[BRIM_MAPPO_ENVS];
  int64_t steps = v[BRIM_MAPPO_STEPS];
  if (w->by_episodes) steps = (steps * w->shape.episode_length + out->envs - 1) / out->envs;
  if (steps > 1 << 24) {
    return brim_fail(BRIM_EINVAL, "a rollout of %" PRId64 " steps is too long; the most is %d",
                     steps, 1 << 24);
  }
  out->steps = (int32_t)steps;
  out->precision = (brim_precision)v[BRIM_MAPPO_PRECISION];
  out->on_host = gpu && v[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_CPU;
  out->threads = (int32_t)v[BRIM_MAPPO_THREADS];
  out->workers = brim_mappo_workers(w, v[BRIM_MAPPO_WORKERS], v[BRIM_MAPPO_THREADS]);
  return take_batch(w, v[BRIM_MAPPO_BATCH], out);
}

// Minibatches of a given number divide a rollout of the environments that brim chose, where that is possible.
static void fit_envs(brim_mappo *w) {
  int64_t *envs = &w->knobs[BRIM_MAPPO_ENVS].value;
  const int64_t minibatches = w->knobs[BRIM_MAPPO_BATCH].value;
  brim_setting setting = {{0}};
  brim_mappo_sizes sizes;
  for (int i = 0; i < BRIM_MAPPO_KNOBS; i++) setting.value[i] = w->knobs[i].value;
  if (w->by_samples || *envs < minibatches || !brim_mappo_apply(w, &setting, &sizes)) return;
  brim_status_clear();
  *envs -= *envs % minibatches;
}

brim_status brim_mappo_choose(brim_mappo *w) {
  BRIM_TRY(make_knobs(w));
  const bool given = brim_config_is_set(w->config, "mappo.num_envs") ||
                     brim_config_int(w->config, "mappo.episodes_per_worker") > 0;
  if (!given) fit_envs(w);
  return BRIM_OK;
}

int64_t brim_mappo_epochs(const brim_mappo *w) {
  return (w->how.iterations + w->how.interval - 1) / w->how.interval;
}

int64_t brim_mappo_epoch_of(const brim_mappo *w, int64_t step) {
  return step == w->how.iterations ? brim_mappo_epochs(w) : step / w->how.interval;
}

//---------------------------------- environment and networks ----------------------------------

static brim_status read_env(brim_mappo *w) {
  const brim_work_env_usual usual = {.workload = "mappo", .env = "uav"};
  brim_work_env env;
  BRIM_TRY(brim_work_env_read(w->config, w->context.registry, &usual, &env));
  w->z = env.row->sizes(env.values.bytes);
  if (w->z.kind != BRIM_ENV_DISCRETE) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "env is %s, whose actions are continuous, but mappo needs discrete actions; "
                     "use workload=ars",
                     env.row->name);
  }
  if (!env.row->collect) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "env is %s, which has no collector, so mappo cannot use it; build its "
                     "plug-in with brim_env_row.collect",
                     env.row->name);
  }
  w->rewards = brim_env_rewards(&w->z);
  w->shape = (brim_collect_shape){.row = env.row,
                                  .env = env.values,
                                  .episode_length = env.row->length(0, env.values.bytes),
                                  .seed = (uint64_t)brim_config_int(w->config, "seed")};
  // settings are divided by sizes of the environment, which a plug-in may have wrong
  brim_collect_shape one = w->shape;
  brim_collect_layout at;
  one.num_envs = one.steps = 1;
  return brim_collect_cpu()->layout(&one, &at);
}

static void add_arg(brim_mappo_model *m, const char *name, brim_value value) {
  m->args[m->component.arg_count].name = name;
  m->args[m->component.arg_count++].value = value;
}

static brim_value int_value(int64_t x) {
  return (brim_value){.kind = BRIM_VALUE_INT, .integer = x, .number = (double)x};
}

static brim_value word_value(const char *x) {
  return (brim_value){.kind = BRIM_VALUE_STRING, .string = x};
}

static brim_value float_value(double x) {
  return (brim_value){.kind = BRIM_VALUE_FLOAT, .number = x};
}

// actor_critic: orthogonal weights; the last layer of the policy starts small, so that all actions are
// about equally likely at first.
static void make_pair(const brim_component *c, bool critic, brim_mappo_model *m) {
  add_arg(m, "depth", int_value(brim_component_int(c, "depth", 2)));
  add_arg(m, "hidden", int_value(brim_component_int(c, "hidden", 256)));
  add_arg(m, "activation", word_value(brim_component_string(c, "activation", "tanh")));
  add_arg(m, "init", word_value("orthogonal"));
  add_arg(m, "gain", float_value(sqrt(2)));
  add_arg(m, "last_gain", float_value(critic ? 1 : 0.01));
}

// One network as an mlp.
static void make_model(const brim_component *model, bool critic, brim_mappo_model *m) {
  static const brim_component usual = {.name = "actor_critic"};
  const brim_component *c = model ? model : &usual;
  m->component = (brim_component){
      .name = "mlp", .args = m->args, .file = c->file, .line = c->line, .col = c->col};
  if (strcmp(c->name, "actor_critic") == 0) {
    make_pair(c, critic, m);
    return;
  }
  for (size_t i = 0; i < c->arg_count && i < BRIM_MAPPO_MODEL_ARGS; i++) {
    add_arg(m, c->args[i].name, c->args[i].value);
  }
}

static brim_status read_models(brim_mappo *w) {
  const brim_component *model = brim_config_component(w->config, "model", NULL);
  const char *name = model ? model->name : "actor_critic";
  char at[160];
  if (strcmp(name, "actor_critic") != 0 && strcmp(name, "mlp") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%smodel is %s, but mappo needs actor_critic(depth=2, hidden=256) or "
                     "mlp(depth=2, hidden=256), which it builds for the actor and for the critic",
                     brim_work_place(model, at), name);
  }
  if (model && brim_component_bool(model, "shared", false)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%sactor and critic of mappo have different inputs and cannot share layers; "
                     "omit shared",
                     brim_work_place(model, at));
  }
  if (model && brim_component_float(model, "dropout", 0) > 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%sdropout would make the policy that is trained another than the one that "
                     "acted; omit dropout",
                     brim_work_place(model, at));
  }
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    make_model(model, i == BRIM_MAPPO_CRITIC, &w->models[i]);
  }
  return BRIM_OK;
}

//---------------------------------- learning ----------------------------------

static brim_status read_how(brim_mappo *w) {
  const brim_config *c = w->config;
  brim_mappo_how *h = &w->how;
  const char *actions = brim_config_string(c, "mappo.eval_actions");
  *h = (brim_mappo_how){.epochs = (int32_t)brim_config_int(c, "mappo.update_epochs"),
                        .gamma = (float)brim_config_float(c, "mappo.gamma"),
                        .lambda = (float)brim_config_float(c, "mappo.gae_lambda"),
                        .clip = (float)brim_config_float(c, "mappo.clip"),
                        .value_clip = (float)brim_config_float(c, "mappo.value_clip"),
                        .value_coef = (float)brim_config_float(c, "mappo.value_coef"),
                        .entropy = (float)brim_config_float(c, "mappo.entropy_coef"),
                        .huber = (float)brim_config_float(c, "mappo.huber"),
                        .value_norm = brim_config_bool(c, "mappo.value_norm"),
                        .normalize = brim_config_bool(c, "mappo.normalize_advantages"),
                        .best = actions && strcmp(actions, "best") == 0,
                        .iterations = brim_config_int(c, "mappo.iterations"),
                        .interval = brim_config_int(c, "mappo.eval_interval"),
                        .episodes = brim_config_int(c, "mappo.eval_episodes"),
                        .seed = (uint64_t)brim_config_int(c, "seed")};
  if (h->interval > h->iterations) h->interval = h->iterations;
  if (!(h->clip > 0) && !w->context.evaluates) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.clip is 0, so no update could change the policy; 0.2 is a usual value");
  }
  w->clip_norm = brim_config_float(c, "training.clip_norm");
  w->weights = brim_work_weights(c);
  BRIM_TRY(brim_work_read_optimizer(c, &w->optimizer));
  const brim_component *scheduler = brim_config_component(c, "scheduler", NULL);
  const brim_work_warmup warmup = brim_work_warmup_of(c, h->interval);
  return brim_schedule_init(&w->schedule, scheduler, w->optimizer.lr, warmup.steps, h->iterations);
}

// Keys that other workloads have for what mappo has its own for, or nothing.
static void warn_of_others(const brim_config *config) {
  static const char *const keys[][2] = {{"training.epochs", "mappo.iterations"},
                                        {"training.ema_decay", NULL},
                                        {"training.gradient_accumulation_steps", NULL},
                                        {"data.path", NULL},
                                        {"data.cache", NULL},
                                        {"loss", NULL}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!brim_config_is_asked(config, keys[i][0])) continue;
    const char *origin = brim_config_origin(config, keys[i][0]);
    if (keys[i][1]) {
      brim_log_warn("workload", "%s (%s) has no effect on workload mappo; use %s", keys[i][0],
                    origin, keys[i][1]);
    } else {
      brim_log_warn("workload", "%s (%s) has no effect on workload mappo", keys[i][0], origin);
    }
  }
}

static void warn_of_both(const brim_config *config) {
  static const char *const keys[][2] = {{"mappo.rollout_steps", "mappo.episodes_per_batch"},
                                        {"mappo.minibatches", "data.batch_size"}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *other = keys[i][1];
    if (!brim_config_is_set(config, keys[i][0]) || !brim_config_is_asked(config, other)) continue;
    brim_log_warn("workload", "%s (%s) has no effect, because %s is set", other,
                  brim_config_origin(config, other), keys[i][0]);
  }
}

//---------------------------------- tables ----------------------------------

// Kernels that not every device has.
static brim_status find_fused_tables(brim_mappo *w) {
  const brim_registry *registry = w->context.registry;
  char name[128];
  snprintf(name, sizeof name, BRIM_FUSED_ROLLOUT_EXTENSION "%s", w->shape.row->name);
  w->fused = (const brim_fused_table *)brim_registry_extension(registry, BRIM_FUSED_EXTENSION);
  w->fused_rollout = (const brim_fused_rollout_table *)brim_registry_extension(registry, name);
  const bool old = (w->fused && w->fused->abi != BRIM_FUSED_ABI) ||
                   (w->fused_rollout && w->fused_rollout->abi != BRIM_FUSED_ABI);
  if (!old) return BRIM_OK;
  return brim_fail(BRIM_EABI,
                   "backend %s has another version of the tables of mappo; build both together",
                   w->context.device->backend->name);
}

static brim_status find_gpu_tables(brim_mappo *w) {
  const brim_registry *registry = w->context.registry;
  const char *backend = w->context.device->backend->name;
  char name[128];
  snprintf(name, sizeof name, BRIM_COLLECT_EXTENSION "%s", w->shape.row->name);
  w->collect = (const brim_collect_table *)brim_registry_extension(registry, name);
  w->ppo = (const brim_ppo_table *)brim_registry_extension(registry, BRIM_PPO_EXTENSION);
  if (!w->collect || !w->ppo) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "backend %s cannot run environments for mappo (%s); use device=cpu", backend,
                     w->collect ? BRIM_PPO_EXTENSION : name);
  }
  if (w->collect->abi == BRIM_COLLECT_ABI && w->ppo->abi == BRIM_PPO_ABI) {
    return find_fused_tables(w);
  }
  return brim_fail(BRIM_EABI,
                   "backend %s has another version of the tables of mappo; build both together",
                   backend);
}

// The device's own, or this program's where the device is the host.
static brim_status find_tables(brim_mappo *w) {
  brim_device *device = w->context.device;
  w->where.stream = device->stream;
  w->where.threads = device->info.threads;
  if (device->info.kind == BRIM_DEVICE_GPU) return find_gpu_tables(w);
  w->collect = brim_collect_cpu();
  w->ppo = brim_ppo_cpu();
  return brim_work_env_threads(device, &w->where);
}

static void describe(brim_mappo *w) {
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  char env[64];
  w->shape.row->describe(w->shape.env.bytes, env, sizeof env);
  const long long depth = (long long)brim_component_int(c, "depth", 0);
  const long long hidden = (long long)brim_component_int(c, "hidden", 0);
  snprintf(w->description, sizeof w->description,
           "actor %d-%lldx%lld-%d, critic %d-%lldx%lld-%d, %s, episodes of %d", w->z.obs, hidden,
           depth, w->z.act, w->layout.critic, hidden, depth, w->rewards, env,
           w->shape.episode_length);
}

brim_status brim_mappo_setup(brim_mappo *w) {
  BRIM_TRY(read_env(w));
  BRIM_TRY(read_models(w));
  BRIM_TRY(read_how(w));
  BRIM_TRY(brim_mappo_choose(w));
  warn_of_others(w->config);
  warn_of_both(w->config);
  BRIM_TRY(find_tables(w));
  w->eval = w->shape;
  w->eval.num_envs = w->how.episodes > 0 ? (int32_t)w->how.episodes : 1;
  w->eval.steps = w->eval.once = 1;
  w->eval.stream = BRIM_MAPPO_STREAM_EVAL;
  brim_mappo_rows_init(&w->rows, w->shape.row);
  brim_setting setting = {{0}};
  for (int i = 0; i < BRIM_MAPPO_KNOBS; i++) setting.value[i] = w->knobs[i].value;
  BRIM_TRY(brim_mappo_apply(w, &setting, &w->sizes));
  w->shape.num_envs = w->sizes.envs;
  w->shape.steps = w->sizes.steps;
  BRIM_TRY(w->collect->layout(&w->shape, &w->layout));
  describe(w);
  return BRIM_OK;
}
