// The knobs of multi-agent PPO: their words, the values a sweep tries, and their values in a config.
#include <inttypes.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

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

int32_t brim_mappo_workers(const brim_mappo *w, int64_t asked, int64_t threads) {
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
brim_status brim_mappo_make_knobs(brim_mappo *w) {
  const brim_config *c = w->config;
  brim_precision precision = BRIM_PRECISION_FP32;
  int64_t collect = 0;
  BRIM_TRY(collect_of(w, &collect));
  BRIM_TRY(brim_learn_precision(c, w->context.device, &precision));
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
  w->knobs[BRIM_MAPPO_THREADS] = brim_learn_threads_knob(c, w->context.device);
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
