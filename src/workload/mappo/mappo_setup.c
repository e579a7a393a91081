// The config of the workload mappo: environment, networks, learning, knobs, and the sizes and memory of a
// setting. Values that contradict each other are refused here, with values that would fit.

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

// If the config gives the episodes of an iteration, more environments than its steps would change that
// number.
static size_t envs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {256, 1024, 4096, 16384}, cpu[] = {8, 32, 128};
  const brim_mappo *w = (const brim_mappo *)work;
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t count = sweep->gpu ? 4 : 3;
  const int64_t steps = w->knobs[BRIM_MAPPO_STEPS].value * w->shape.episode_length;
  while (w->by_episodes && count > 0 && from[count - 1] > steps) count--;
  return brim_knob_with_own(w->knobs[BRIM_MAPPO_ENVS].value, from, count, INT64_MAX, values);
}

// Minibatches change learning as much as speed: one larger size shows its gain. On a CPU, where trials are
// slow, only the config's own.
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

// The number of environments if the config leaves it open. 1,024 with the 10 agents of uav fill an H200 and
// still learn in seconds; 32 learn the same in minutes on two CPU cores. Never more than the episodes of an
// iteration: some environments would not finish one.
enum { USUAL_ENVS_GPU = 1024, USUAL_ENVS_CPU = 32 };

static int64_t usual_envs(const brim_config *config, bool on_gpu) {
  const int64_t usual = on_gpu ? USUAL_ENVS_GPU : USUAL_ENVS_CPU;
  if (brim_config_is_set(config, "mappo.rollout_steps")) return usual;
  const int64_t episodes = number_of(config, "mappo.episodes_per_batch", usual);
  return episodes < usual ? episodes : usual;
}

// Threads that step environments for a num_workers of `asked` (-1: as many as compute, beside a GPU all
// cores), with so many threads that compute (0: the device's).
static int32_t worker_count(const brim_mappo *w, int64_t asked, int64_t threads) {
  const brim_device *device = w->context.device;
  if (asked >= 0) return asked > 0 ? (int32_t)asked : 1;
  if (!device->info.host_memory) return brim_cpu_count();
  if (threads > 0 && device->backend->set_threads) return (int32_t)threads;
  return device->info.threads > 0 ? device->info.threads : brim_cpu_count();
}

// num_workers x episodes_per_worker environments, if the second is set.
static int64_t envs_of(const brim_mappo *w, bool on_gpu) {
  const brim_config *config = w->config;
  const int64_t each = brim_config_int(config, "mappo.episodes_per_worker");
  const int64_t asked =
      is_given(config, "data.num_workers") ? brim_config_int(config, "data.num_workers") : -1;
  const int64_t workers = worker_count(w, asked, 0);
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

// Knobs with the values of the config, in table order.
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

// A resumed run has the environments that the first run chose, on any device, unless the config names another
// number. (Too little memory may have left fewer: brim.adapted.) A rollout that was not fused for lack of
// memory stays so, which keeps the bits.
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

// data.batch_size counts agent samples. All minibatches have the same number of whole environment steps: of
// the divisors of a rollout, the nearest by factor.
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
  out->workers = worker_count(w, v[BRIM_MAPPO_WORKERS], v[BRIM_MAPPO_THREADS]);
  return take_batch(w, v[BRIM_MAPPO_BATCH], out);
}

// Adjusts the number of environments that brim chose, so that the minibatches divide a rollout, if possible.
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

// actor_critic has orthogonal weights. The policy's last layer starts small, so that all actions are about
// equally likely at first.
static void make_pair(const brim_component *c, bool critic, brim_mappo_model *m) {
  add_arg(m, "depth", int_value(brim_component_int(c, "depth", 2)));
  add_arg(m, "hidden", int_value(brim_component_int(c, "hidden", 256)));
  add_arg(m, "activation", word_value(brim_component_string(c, "activation", "tanh")));
  add_arg(m, "init", word_value("orthogonal"));
  add_arg(m, "gain", float_value(sqrt(2)));
  add_arg(m, "last_gain", float_value(critic ? 1 : 0.01));
}

// Makes the mlp of one network.
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

// Warns of keys of other workloads, and names the key of mappo that replaces them.
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

// Finds the device's tables, or this program's if the device is the host.
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

//------------------------------------------- memory -------------------------------------------
// The memory of an iteration: actor and critic as one group, the rollout, and what lies between them. Planned
// and built from the same numbers.

typedef brim_mappo_needs needs;

static bool is_half(brim_precision p) {
  return p == BRIM_PRECISION_BF16 || p == BRIM_PRECISION_FP16;
}

static brim_dtype activations(brim_precision p) {
  return p == BRIM_PRECISION_BF16 ? BRIM_BF16 : p == BRIM_PRECISION_FP16 ? BRIM_F16 : BRIM_F32;
}

// The critic sees every state once, in parts whose input stays small.
static brim_mappo_chunks chunks_of(const brim_mappo *w, const brim_collect_layout *layout,
                                   int32_t envs) {
  const int64_t room = w->context.device->info.host_memory ? 16 << 20 : 512 << 20;
  brim_mappo_chunks c = {.rows = (int64_t)layout->slots * envs};
  int64_t most = room / ((int64_t)layout->critic * 4);
  if (most < 256) most = 256;
  const int64_t parts = (c.rows + most - 1) / most;
  c.each = (c.rows + parts - 1) / parts;
  return c;
}

// Rows of inputs end at a multiple of 8 numbers, behind which `look` writes zeros: matrix products of a GPU
// need rows that are aligned.
static int64_t padded(int64_t numbers) { return (numbers + 7) & ~(int64_t)7; }

static void make_spec(const brim_mappo *w, const brim_mappo_sizes *s, int net, const needs *n,
                      brim_net_spec *out) {
  const bool critic = net == BRIM_MAPPO_CRITIC;
  const int64_t agents = critic ? 1 : w->z.agents;
  memset(out, 0, sizeof *out);
  out->name = critic ? "critic" : "actor";
  out->model = &w->models[net].component;
  out->optimizer = &w->optimizer.component;
  out->external_loss = true;
  out->input_in_place = true;
  out->enqueued_steps = s->updates < BRIM_GROUP_STATES ? s->updates : BRIM_GROUP_STATES;
  out->input_dtype = is_half(s->precision) ? activations(s->precision) : BRIM_F32;
  out->input_rank = 1;
  out->input_dim[0] = padded(critic ? n->layout.critic : w->z.obs);
  out->channels = 1;
  out->scale[0] = 1.0f;
  out->target_dim = critic ? w->rewards : w->z.act;
  out->batch = (int64_t)s->batch * agents;
  out->eval_batch = critic ? n->chunks.each : (int64_t)s->envs * agents;
  out->accumulation = 1;
  out->precision = s->precision;
  out->clip_norm = w->clip_norm;
  out->eager = !brim_config_bool(w->config, "training.compile");
  // seeds of networks are exact as doubles
  out->seed = (w->how.seed + (critic ? 0x9E3779B97F4A7u : 0)) & (((uint64_t)1 << 53) - 1);
}

static size_t place(size_t *end, size_t bytes) {
  const size_t at = *end;
  *end += (bytes + 255) & ~(size_t)255;
  return at;
}

static void make_places(const brim_mappo *w, const brim_mappo_sizes *s, size_t scratch, needs *n) {
  brim_mappo_places *p = &n->places;
  const size_t steps = (size_t)s->envs * (size_t)s->steps, rewards = (size_t)w->rewards;
  const size_t looked = (size_t)(s->envs > s->batch ? s->envs : s->batch);
  size_t end = 0;
  p->mask = place(&end, looked * (size_t)w->z.agents * sizeof(uint64_t));
  p->values = place(&end, (size_t)n->chunks.rows * rewards * sizeof(float));
  p->adv = place(&end, steps * rewards * sizeof(float));
  p->ret = place(&end, steps * rewards * sizeof(float));
  p->old = place(&end, steps * rewards * sizeof(float));
  p->rows = place(&end, (size_t)s->batch * sizeof(int32_t));
  p->scratch = place(&end, scratch);
  p->backup =
      place(&end, n->layout.saved[0].bytes + n->layout.saved[1].bytes + sizeof(brim_ppo_norm));
  p->report = place(&end, sizeof(brim_mappo_report));
  p->bytes = end;
}

static brim_status make_needs(const brim_mappo *w, const brim_mappo_sizes *s, needs *n) {
  size_t scratch = 0;
  memset(n, 0, sizeof *n);
  n->shape = w->shape;
  n->shape.num_envs = s->envs;
  n->shape.steps = s->steps;
  BRIM_TRY(w->collect->layout(&n->shape, &n->layout));
  BRIM_TRY(w->collect->layout(&w->eval, &n->eval));
  n->chunks = chunks_of(w, &n->layout, s->envs);
  n->learn = (brim_ppo_shape){.steps = s->steps,
                              .envs = s->envs,
                              .agents = w->z.agents,
                              .act = w->z.act,
                              .rewards = w->rewards,
                              .finals = n->layout.finals,
                              .batch = s->batch};
  BRIM_TRY(w->ppo->scratch(&n->learn, &scratch));
  make_places(w, s, scratch, n);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) make_spec(w, s, i, n, &n->spec[i]);
  BRIM_TRY(brim_mappo_fused_choose(w, s, n));
  if (!s->on_host) return BRIM_OK;
  const size_t rows = (size_t)s->envs * (size_t)w->z.agents;
  const size_t each = brim_dtype_size(activations(s->precision));
  n->host_input = rows * (size_t)n->spec[0].input_dim[0] * brim_dtype_size(n->spec[0].input_dtype);
  n->host_output = rows * (size_t)w->z.act * each;
  n->host_mask = rows * sizeof(uint64_t);
  return BRIM_OK;
}

//---------------------------------- plan ----------------------------------

static void add_row(brim_plan *plan, const char *name, brim_place where, uint64_t bytes) {
  if (bytes == 0 || plan->row_count == BRIM_PLAN_MAX_ROWS) return;
  plan->rows[plan->row_count++] = (brim_plan_row){name, where, bytes};
  plan->bytes[where] += bytes;
}

static size_t bytes_of_row(const brim_plan *plan, const char *name) {
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, name) == 0) return (size_t)plan->rows[i].bytes;
  }
  return 0;
}

static size_t report_bytes(void) { return sizeof(brim_mappo_report) + sizeof(brim_collect_tally); }

// Forward is a third of forward and backward. `flops` are those of one update of both networks.
static double iteration_flops(const brim_mappo *w, const brim_mappo_sizes *s, double flops) {
  const double steps = (double)s->envs * s->steps;
  return flops * s->updates + flops / 3 * s->minibatches +
         steps * w->shape.row->flops(w->shape.env.bytes);
}

static brim_status plan(const brim_mappo *w, const brim_setting *setting, brim_plan *out) {
  brim_mappo_sizes s;
  needs n;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_mappo_apply(w, setting, &s));
  BRIM_TRY(make_needs(w, &s, &n));
  BRIM_TRY(brim_work_check_precision(w->context.device, &n.spec[0]));
  BRIM_TRY(brim_group_plan(w->context.device, n.spec, BRIM_MAPPO_NETS, out));
  brim_mappo_fused_place(&n.fusing, bytes_of_row(out, BRIM_PLAN_ACTIVATIONS));
  add_row(out, "rollouts", BRIM_PLACE_DEVICE, n.layout.bytes);
  add_row(out, "returns", BRIM_PLACE_DEVICE, n.places.bytes);
  add_row(out, BRIM_N_("fused kernels"), BRIM_PLACE_DEVICE, n.fusing.bytes);
  add_row(out, "evaluation", BRIM_PLACE_DEVICE, n.eval.bytes);
  add_row(out, "returns", BRIM_PLACE_HOST, report_bytes());
  if (s.on_host) {
    add_row(out, "rollouts", BRIM_PLACE_HOST,
            n.layout.bytes + n.host_input + n.host_output + n.host_mask);
  }
  out->flops_per_step = iteration_flops(w, &s, out->flops_per_step);
  out->bytes_per_step = (double)NAN;
  out->samples_per_step = (double)s.envs * s.steps * w->z.agents;
  return BRIM_OK;
}

// Workspaces depend on the number of threads; the present setting keeps its own.
brim_status brim_mappo_plan(void *work, const brim_setting *setting, brim_plan *out) {
  const brim_mappo *w = (const brim_mappo *)work;
  brim_device *device = w->context.device;
  const int before = device->info.threads;
  BRIM_TRY(brim_device_set_threads(device, (int)setting->value[BRIM_MAPPO_THREADS]));
  const brim_status status = plan(w, setting, out);
  return brim_device_set_threads(device, before) ? BRIM_EDEVICE : status;
}

//---------------------------------- building ----------------------------------

brim_net *brim_mappo_net(const brim_mappo *w, int index) {
  return brim_group_net(w->group, (int32_t)index);
}

static void drop_probe(brim_mappo *w) {
  brim_mappo_probe *p = &w->probe;
  for (int i = 0; i < BRIM_MAPPO_PIECES; i++) brim_record_destroy(p->records[i]);
  for (int i = 0; i < BRIM_MAPPO_MARKS; i++) brim_event_destroy(w->context.device, p->marks[i]);
  *p = (brim_mappo_probe){0};
}

void brim_mappo_drop(brim_mappo *w) {
  brim_device *device = w->context.device;
  for (size_t i = 0; i < w->record_count; i++) brim_record_destroy(w->records[i]);
  brim_free(w->records);
  drop_probe(w);
  brim_mappo_fused_drop(w);
  brim_record_destroy(w->whole);
  brim_record_destroy(w->rollout);
  brim_record_destroy(w->act);
  brim_record_destroy(w->eval_record);
  brim_group_destroy(w->group);
  brim_free(w->states);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->block);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->eval_block);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->memory);
  brim_device_free(device, BRIM_BUFFER_HOST, w->report);
  brim_device_free(device, BRIM_BUFFER_HOST, w->tally);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_block);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_input);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_output);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_mask);
  if (w->host.pool != w->where.pool) brim_pool_destroy(w->host.pool);
  memset(&w->host, 0, sizeof w->host);
  w->records = NULL;
  w->record_count = 0;
  w->whole = w->rollout = w->act = w->eval_record = NULL;
  w->group = NULL;
  w->states = NULL;
  w->block = w->eval_block = w->memory = w->host_block = NULL;
  w->report = NULL;
  w->tally = NULL;
  w->host_input = w->host_output = NULL;
  w->host_mask = NULL;
}

static brim_status make_buffer(brim_mappo *w, brim_buffer_kind kind, size_t bytes, void **out) {
  *out = NULL;
  return bytes > 0 ? brim_device_alloc(w->context.device, kind, bytes, out) : BRIM_OK;
}

static brim_status make_buffers(brim_mappo *w, const needs *n) {
  void *at[5];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->layout.bytes, &at[0]));
  w->block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->eval.bytes, &at[0]));
  w->eval_block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->places.bytes, &at[0]));
  w->memory = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, sizeof *w->report, &at[0]));
  w->report = (brim_mappo_report *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, sizeof *w->tally, &at[0]));
  w->tally = (brim_collect_tally *)at[0];
  memset(w->report, 0, sizeof *w->report);
  if (!w->sizes.on_host) return BRIM_OK;
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->layout.bytes, &at[0]));
  w->host_block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_input, &w->host_input));
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_output, &w->host_output));
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_mask, &at[0]));
  w->host_mask = (uint64_t *)at[0];
  return BRIM_OK;
}

// Makes the threads that step environments: the config's workers, or the device's own threads on a CPU with
// as many.
static brim_status make_pool(brim_mappo *w) {
  if (w->where.pool) BRIM_TRY(brim_work_env_threads(w->context.device, &w->where));
  w->host = w->where;
  w->host.stream = NULL;
  if (w->where.pool && w->sizes.workers == w->where.threads) return BRIM_OK;
  w->host.threads = w->sizes.workers;
  w->host.pool = NULL;
  return brim_pool_create(w->sizes.workers, &w->host.pool);
}

// As many records as it takes to have at most BRIM_GROUP_STATES optimizer steps in each.
static brim_status make_records(brim_mappo *w) {
  brim_device *device = w->context.device;
  const size_t parts = ((size_t)w->sizes.updates + BRIM_GROUP_STATES - 1) / BRIM_GROUP_STATES;
  w->records = (brim_record **)brim_calloc(parts, sizeof *w->records);
  w->states = (brim_group_state *)brim_calloc((size_t)w->sizes.updates * BRIM_MAPPO_NETS,
                                              sizeof *w->states);
  if (!w->records || !w->states) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the states of %d updates", w->sizes.updates);
  }
  for (size_t i = 0; i < parts; i++) {
    BRIM_TRY(brim_record_create(device, w->group, &w->records[i]));
    w->record_count = i + 1;
  }
  BRIM_TRY(brim_record_create(device, w->group, &w->whole));
  BRIM_TRY(brim_record_create(device, w->group, &w->rollout));
  BRIM_TRY(brim_record_create(device, w->group, &w->act));
  return brim_record_create(device, w->group, &w->eval_record);
}

static brim_status find_tensors(brim_mappo *w) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net *net = brim_mappo_net(w, i);
    BRIM_TRY(brim_net_external_loss(net, &w->external[i]));
    BRIM_TRY(brim_net_input(net, false, &w->inputs[i][0]));
    BRIM_TRY(brim_net_input(net, true, &w->inputs[i][1]));
    BRIM_TRY(brim_net_output_tensor(net, &w->outputs[i]));
  }
  return BRIM_OK;
}

brim_status brim_mappo_build(brim_mappo *w) {
  brim_device *device = w->context.device;
  needs n;
  BRIM_TRY(brim_device_set_threads(device, w->sizes.threads));
  BRIM_TRY(make_needs(w, &w->sizes, &n));
  w->shape = n.shape;
  w->layout = n.layout;
  w->eval_layout = n.eval;
  w->places = n.places;
  w->chunks = n.chunks;
  w->learn = n.learn;
  w->fusing = n.fusing;
  BRIM_TRY(make_pool(w));
  BRIM_TRY(brim_group_create(device, n.spec, BRIM_MAPPO_NETS, &w->group));
  BRIM_TRY(make_buffers(w, &n));
  BRIM_TRY(make_records(w));
  BRIM_TRY(find_tensors(w));
  BRIM_TRY(brim_mappo_fused_build(w));
  BRIM_TRY(brim_device_fill(device, w->memory, 0, w->places.bytes));
  if (w->sizes.on_host) {
    BRIM_TRY(brim_collect_cpu()->reset(&w->host, &w->shape, w->host_block));
    BRIM_TRY(brim_device_copy(device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
  } else {
    BRIM_TRY(w->collect->reset(&w->where, &w->shape, w->block));
  }
  return brim_device_sync(device);
}
