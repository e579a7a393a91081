// Augmented random search: one step is one iteration, which rolls out all directions, chunk by chunk, and
// then updates the policy once. Keys, findings and views are in ars_rows.c.

#include "workload/ars/ars.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_words.h"
#include "workload/ars/ars_int.h"
#include "workload/workload_rows.h"

// True if all rollouts have the same number of steps and every step has the same reward: nothing
// can be learned.
static bool all_equal(const brim_rollout_shape *shape) { return shape->row->once && !shape->once; }

//------------------------------------------- metrics -------------------------------------------
// Metrics: returns, lengths and ends of episodes and the environment's own figures, each also for the zero
// policy, and the norms of the last update.

//---------------------------------- returns ----------------------------------

static void returns_add(brim_ars_returns *sum, const brim_ars_returns *part) {
  sum->count += part->count;
  sum->sum += part->sum;
  sum->sum_sq += part->sum_sq;
  sum->episodes += part->episodes;
  sum->ended += part->ended;
  sum->diverged += part->diverged;
  sum->steps += part->steps;
  for (int f = 0; f < BRIM_ENV_MAX_FIGURES; f++) {
    for (int k = 0; k < 2; k++) sum->figure[f][k] += part->figure[f][k];
  }
}

double brim_returns_mean(const brim_ars_returns *r) {
  return r->count > 0 ? r->sum / (double)r->count : (double)NAN;
}

// standard deviation
static double returns_spread(const brim_ars_returns *r) {
  if (r->count < 2) return (double)NAN;
  double n = (double)r->count, square = r->sum_sq - r->sum * (r->sum / n);
  return sqrt(fmax(square, 0) / (n - 1));
}

double brim_returns_error(const brim_ars_returns *r) {
  return returns_spread(r) / sqrt((double)r->count);  // NaN for fewer than two returns
}

// share of the episodes, 0..1
static double returns_ended(const brim_ars_returns *r) {
  return r->episodes > 0 ? (double)r->ended / (double)r->episodes : (double)NAN;
}

// environment steps of an episode
static double returns_length(const brim_ars_returns *r) {
  return r->episodes > 0 ? (double)r->steps / (double)r->episodes : (double)NAN;
}

void brim_returns_pack(const brim_ars_returns *r, double out[BRIM_ARS_SUMS]) {
  const double values[] = {(double)r->count,    r->sum,           r->sum_sq,
                           (double)r->episodes, (double)r->ended, (double)r->diverged,
                           (double)r->steps};
  _Static_assert(sizeof values + sizeof r->figure == BRIM_ARS_SUMS * sizeof *out, "all of them");
  memcpy(out, values, sizeof values);
  memcpy(out + sizeof values / sizeof *values, r->figure, sizeof r->figure);
}

brim_ars_returns brim_returns_unpack(const double v[BRIM_ARS_SUMS]) {
  brim_ars_returns r = {.count = (int64_t)v[0],
                        .sum = v[1],
                        .sum_sq = v[2],
                        .episodes = (int64_t)v[3],
                        .ended = (int64_t)v[4],
                        .diverged = (int64_t)v[5],
                        .steps = (int64_t)v[6]};
  memcpy(r.figure, v + 7, sizeof r.figure);
  return r;
}

// The sums are one list without names: the environment names its figures.
static const brim_work_sums sum_rows = {
    .count = BRIM_ARS_SUMS, .packed = "returns", .least = BRIM_ARS_SUMS_0_1};

void brim_returns_values(const brim_ars_returns *r, double values[BRIM_METRIC_MAX]) {
  bool any = r->episodes > 0;
  values[BRIM_ARS_RETURN] = brim_returns_mean(r);
  values[BRIM_ARS_SPREAD] = returns_spread(r);
  values[BRIM_ARS_ERROR] = brim_returns_error(r);
  values[BRIM_ARS_ENDED] = any ? (double)r->ended : (double)NAN;
  values[BRIM_ARS_ENDED_RATE] = returns_ended(r);
  values[BRIM_ARS_LENGTH] = returns_length(r);
  values[BRIM_ARS_EPISODES] = any ? (double)r->episodes : (double)NAN;
  values[BRIM_ARS_DIVERGED] = any ? (double)r->diverged : (double)NAN;
  for (int f = 0; f < BRIM_ENV_MAX_FIGURES; f++) {
    values[BRIM_ARS_ROWS + f] =
        r->figure[f][1] > 0 ? r->figure[f][0] / r->figure[f][1] : (double)NAN;
  }
}

//---------------------------------- rows ----------------------------------

// Names of a row in the logs of training, evaluation and the zero policy.
#define LOGGED(key_, inner, figure_)                                                              \
  {                                                                                               \
    [BRIM_METRIC_STEPS] = {.event = "directions." inner},                                         \
    [BRIM_METRIC_TRAIN] = {.event = "directions." inner},                                         \
    [BRIM_METRIC_EVAL] = {.event = "return." inner, .figure = figure_},                           \
    [BRIM_METRIC_BASELINE] = {"zero_" key_, "zero_" key_, "zero_policy." inner, "zero_" figure_}, \
  }
// Names of a row that is logged for evaluations only.
#define EVALUATED(column_, inner, figure_)                                    \
  {                                                                           \
    [BRIM_METRIC_STEPS] = {"", "", "directions." inner, ""},                  \
    [BRIM_METRIC_TRAIN] = {"", "", "directions." inner, ""},                  \
    [BRIM_METRIC_EVAL] = {column_, column_, "return." inner, figure_},        \
    [BRIM_METRIC_BASELINE] = {"", "", "zero_policy." inner, "zero_" figure_}, \
  }
// Names of a row that only `brim eval` reports.
#define REPORTED(figure_, zero_figure)                  \
  {                                                     \
    [BRIM_METRIC_EVAL] = {"", "", "", figure_},         \
    [BRIM_METRIC_BASELINE] = {"", "", "", zero_figure}, \
  }
// A row of the last update.
#define UPDATE_ROW(key_)                                                                       \
  {                                                                                            \
    .key = key_, .label = "", .flags = BRIM_METRIC_NO_CSV, .stages = STEPS | TRAIN, .names = { \
      [BRIM_METRIC_STEPS] = {.event = ""},                                                     \
      [BRIM_METRIC_TRAIN] = {key_, key_, key_, ""}                                             \
    }                                                                                          \
  }

static const brim_metric metric_rows[BRIM_ARS_ROWS] = {
    [BRIM_ARS_RETURN] = {.key = "return",
                         .label = BRIM_N_("return"),
                         .train_label = BRIM_N_("directions"),
                         .better = BRIM_BETTER_HIGHER,
                         .stages = ALL,
                         .lines = LINE_STEPS | LINE_TRAIN | LINE_EVAL | LINE_PROGRESS |
                                  LINE_SUMMARY | LINE_TABLE,
                         .beside = LINE_EVAL | LINE_PROGRESS,
                         .rank = 1,
                         .best = "accuracy",
                         .names = LOGGED("return", "mean", "return")},
    [BRIM_ARS_SPREAD] = {.key = "spread",
                         .label = BRIM_N_("spread"),
                         .digits = 3,
                         .join = BRIM_METRIC_SPREAD,
                         .stages = ALL,
                         .lines =
                             LINE_STEPS | LINE_EVAL | LINE_PROGRESS | LINE_SUMMARY | LINE_TABLE,
                         .names = LOGGED("spread", "spread", "return_spread")},
    [BRIM_ARS_ENDED] = {.key = "fell",
                        .label = BRIM_N_("falls"),
                        .format = BRIM_METRIC_WHOLE,
                        .stages = EVAL | BASELINE,
                        .lines = LINE_TABLE,
                        .names = REPORTED("falls", "zero_falls")},
    [BRIM_ARS_ENDED_RATE] = {.key = "falls",
                             .label = BRIM_N_("falls"),
                             .table_label = BRIM_N_("fall rate"),
                             .better = BRIM_BETTER_LOWER,
                             .format = BRIM_METRIC_PERCENT,
                             .digits = 1,
                             .join = BRIM_METRIC_COMMA,
                             .stages = ALL,
                             .lines =
                                 LINE_STEPS | LINE_EVAL | LINE_PROGRESS | LINE_SUMMARY | LINE_TABLE,
                             .beside = LINE_EVAL,
                             .names = LOGGED("falls", "falls", "fall_rate")},
    [BRIM_ARS_DIVERGED] =
        {.key = "diverged",
         .label = BRIM_N_("diverged"),
         .format = BRIM_METRIC_WHOLE,
         .join = BRIM_METRIC_COMMA,
         .flags = BRIM_METRIC_POSITIVE | BRIM_METRIC_NO_CSV,
         .stages = ALL,
         .lines = LINE_STEPS | LINE_EVAL | LINE_SUMMARY,
         .names = {[BRIM_METRIC_STEPS] = {"", "", "directions.diverged", ""},
                   [BRIM_METRIC_TRAIN] = {"diverged", "", "directions.diverged", ""},
                   [BRIM_METRIC_EVAL] = {.tag = "", .event = "return.diverged"},
                   [BRIM_METRIC_BASELINE] = {"", "", "zero_policy.diverged", "zero_diverged"}}},
    [BRIM_ARS_LENGTH] = {.key = "length",
                         .label = BRIM_N_("mean length"),
                         .flags = BRIM_METRIC_NO_CSV,
                         .stages = ALL,
                         .lines = LINE_TABLE,
                         .names = EVALUATED("eval_length", "length", "mean_length")},
    [BRIM_ARS_EPISODES] = {.key = "episodes",
                           .label = BRIM_N_("episodes"),
                           .format = BRIM_METRIC_WHOLE,
                           .stages = ALL,
                           .names = {[BRIM_METRIC_STEPS] = {"", "", "directions.episodes", ""},
                                     [BRIM_METRIC_TRAIN] = {"", "", "directions.episodes", ""},
                                     [BRIM_METRIC_EVAL] = {"", "", "return.episodes", "episodes"},
                                     [BRIM_METRIC_BASELINE] = {"", "", "zero_policy.episodes",
                                                               ""}}},
    [BRIM_ARS_ERROR] = {.key = "return_error", .label = ""},
    [BRIM_ARS_UPDATE_NORM] = UPDATE_ROW("update_norm"),
    [BRIM_ARS_POLICY_NORM] = UPDATE_ROW("policy_norm"),
    [BRIM_ARS_SIGMA] = UPDATE_ROW("sigma"),
};

// Metrics that every environment has. brim_ars_rows_init appends the figures of one environment.
static const brim_metric_set usual_metrics = {.rows = metric_rows,
                                              .count = BRIM_ARS_ROWS,
                                              .baseline_label = BRIM_N_("zero policy"),
                                              .baseline_short = BRIM_N_("of the zero policy"),
                                              .subject = BRIM_N_("this policy"),
                                              .summary = BRIM_N_(" in %lld held-out episodes")};

//---------------------------------- the environment's ----------------------------------

_Static_assert((int)BRIM_ARS_ROWS + (int)BRIM_ENV_MAX_FIGURES <= (int)BRIM_METRIC_MAX,
               "an environment's figures fit behind the workload's own rows");

static const char *name_of(brim_ars_rows *r, const char *before, const char *key) {
  return brim_work_env_name(r->names[r->name_count++], before, key);
}

// Names the two rows of terminated episodes, as the environment calls them.
static void name_ended_rows(brim_ars_rows *r, const brim_env_ended *e) {
  brim_metric *count = &r->rows[BRIM_ARS_ENDED], *rate = &r->rows[BRIM_ARS_ENDED_RATE];
  brim_work_env_label_ended(e, count, rate);
  if (strcmp(e->key, rate->key) == 0) return;  // the table has these names already
  count->key = "ended";
  rate->key = e->key;
  const char *zero = name_of(r, "zero_", e->key), *trained = name_of(r, "directions.", e->key);
  count->names[BRIM_METRIC_EVAL].figure = e->count;
  count->names[BRIM_METRIC_BASELINE].figure = name_of(r, "zero_", e->count);
  rate->names[BRIM_METRIC_STEPS].event = rate->names[BRIM_METRIC_TRAIN].event = trained;
  rate->names[BRIM_METRIC_EVAL].event = name_of(r, "return.", e->key);
  rate->names[BRIM_METRIC_EVAL].figure = e->rate;
  rate->names[BRIM_METRIC_BASELINE] = (brim_metric_names){
      zero, zero, name_of(r, "zero_policy.", e->key), name_of(r, "zero_", e->rate)};
}

static void add_figure(brim_ars_rows *r, const brim_metric *from) {
  brim_metric *row = &r->rows[r->set.count++];
  *row = *from;
  if (row->stages) return;
  row->stages = EVAL | BASELINE;
  row->lines = LINE_TABLE;
  row->flags |= BRIM_METRIC_NO_CSV;
  row->names[BRIM_METRIC_EVAL].event = name_of(r, "return.", row->key);
  row->names[BRIM_METRIC_BASELINE] = (brim_metric_names){
      "", "", name_of(r, "zero_policy.", row->key), name_of(r, "zero_", row->key)};
}

void brim_ars_rows_init(brim_ars_rows *r, const brim_env_row *env) {
  memset(r, 0, sizeof *r);
  memcpy(r->rows, metric_rows, sizeof metric_rows);
  r->set = usual_metrics;
  r->set.rows = r->rows;
  r->env = env;
  name_ended_rows(r, &env->ended);
  for (size_t f = 0; f < env->figure_count; f++) add_figure(r, &env->figures[f]);
}

//---------------------------------- lines ----------------------------------

// Start lines: the size of the search (in place of data), and the return of the zero policy as baseline.
static size_t ars_start_lines(void *work, brim_work_line *out, size_t most) {
  const brim_ars *w = (const brim_ars *)work;
  const brim_rollout_shape *s = &w->shape;
  char count[32];
  if (most < 2) return 0;
  brim_format_count((double)s->num_envs * (double)s->num_dirs * (double)s->episode_length, count);
  out[0].label = BRIM_N_("search");
  snprintf(out[0].text, sizeof out[0].text,
           w->iterations == 1 ? brim_tr("%lld iteration of %s env steps, evaluated every %lld")
                              : brim_tr("%lld iterations of %s env steps, evaluated every %lld"),
           (long long)w->iterations, count, (long long)w->interval);
  const brim_ars_returns *zero = &w->baseline;
  if (!w->has_baseline || zero->episodes == 0) return 1;
  out[1].label = BRIM_N_("baseline");
  snprintf(out[1].text, sizeof out[1].text,
           brim_tr("zero policy: return %.4g +- %.3g, %s %.1f %% of %lld held-out episodes"),
           brim_returns_mean(zero), returns_spread(zero), brim_tr(s->row->ended.label),
           brim_shown(100 * returns_ended(zero)), (long long)zero->episodes);
  return 2;
}

// Appends the environment's notes, and a note if episodes of the policy or of the zero policy diverged.
void brim_ars_eval_notes(const brim_work_metrics *metrics, brim_str *out) {
  const double *v = metrics->values, *zero = metrics->baseline;
  const brim_ars_rows *r = (const brim_ars_rows *)(const void *)metrics->set;  // its first member
  if (r->env->notes) r->env->notes(v + BRIM_ARS_ROWS, (int64_t)v[BRIM_ARS_EPISODES], out);
  if (!(v[BRIM_ARS_DIVERGED] > 0 || zero[BRIM_ARS_DIVERGED] > 0)) return;
  brim_str_append_char(out, '\n');
  const double diverged = v[BRIM_ARS_DIVERGED], still = zero[BRIM_ARS_DIVERGED];
  if (r->env->ended.better == BRIM_BETTER_LOWER) {
    brim_str_printf(out,
                    brim_tr("diverged %.0f (zero policy %.0f): the simulation overflowed in these "
                            "episodes; they count as %s\n"),
                    diverged, still, brim_tr(r->env->ended.label));
  } else {
    brim_str_printf(out,
                    brim_tr("diverged %.0f (zero policy %.0f): the simulation overflowed in these "
                            "episodes\n"),
                    diverged, still);
  }
}

//-------------------------------------------- config --------------------------------------------
// The ars workload's config: the environment, the policy and the search become one brim_rollout_shape.
// Values that contradict each other are refused.

// Reads linear_policy, or mlp_policy(hidden=256), which has one hidden layer with relu. Refuses linear and
// mlp of other workloads: most of their arguments would have no effect here.
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

// Checks values that contradict each other.
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

// True if the user chose the chunk. A default or a preset is not the user's choice, nor is a file's value
// that equals the default: brim may have written that file with all values.
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
  // 0 = unset or null
  int32_t length = (int32_t)brim_config_int(config, "ars.episode_length");
  out->episode_length = length != 0 ? length : out->row->length(stage, out->env.bytes);
  const char *version = brim_config_string(config, "ars.version");
  out->filter = !version || strcmp(version, "v1") != 0;
  int64_t episodes = brim_config_int(config, "ars.eval_episodes");
  out->eval_episodes = episodes > 0 ? (int32_t)episodes : 1;
  bool restart;
  if (brim_config_get_bool(config, "ars.restart", &restart))
    restart = !out->row->once;  // unset or null
  out->once = !restart;
  // phase2 starts from the policy of phase1 and must not repeat its random numbers
  out->seed = (uint64_t)brim_config_int(config, "seed") + (uint64_t)stage * 0x9E3779B97F4A7C15u;
  return check_shape(out);
}

// Copies the run's shape with the values of a setting; BRIM_EINVAL if they contradict each other.
static brim_status shape_with_setting(const brim_ars *w, const brim_setting *setting,
                                      brim_rollout_shape *out) {
  *out = w->shape;
  out->num_envs = (int32_t)setting->value[BRIM_ARS_ENVS];
  out->num_dirs = (int32_t)setting->value[BRIM_ARS_DIRS];
  out->dir_chunk = (int32_t)setting->value[BRIM_ARS_CHUNK];
  return check_shape(out);
}

static int64_t ars_epochs(const brim_ars *w) {
  return (w->iterations + w->interval - 1) / w->interval;
}

// Number of epochs completed after `step` iterations.
static int64_t epoch_of(const brim_ars *w, int64_t step) {
  return step == w->iterations ? ars_epochs(w) : step / w->interval;
}

// Finds the rollouts for the device: the plug-in has those of a GPU, this program those of the CPU.
static brim_status find_table(brim_ars *w) {
  brim_device *device = w->context.device;
  w->where.stream = device->stream;
  w->where.threads = device->info.threads;
  if (device->info.kind != BRIM_DEVICE_GPU) {
    w->table = brim_rollout_cpu();
    // One pool for all chunks: starting threads costs more than a small chunk.
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

// Numbers of environments to try: the before and after values of seed guide 000, values between and above
// them, and always the config's own, so that a recommendation can be compared with it.
static size_t envs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {128, 256, 1024, 4096}, cpu[] = {16, 64};
  const brim_ars *w = (const brim_ars *)work;
  return brim_knob_with_own(w->knobs[BRIM_ARS_ENVS].value, sweep->gpu ? gpu : cpu,
                            sweep->gpu ? 4 : 2, INT64_MAX, values);
}

// Numbers of directions to try: never fewer than ars.top_dirs. On a CPU, where trials are slow, only the
// config's own number, because directions change the learning most.
static size_t dirs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_ars *w = (const brim_ars *)work;
  int64_t from[] = {16, 64}, top = brim_config_int(w->config, "ars.top_dirs");
  size_t count = sweep->gpu ? 2 : 0;
  for (size_t i = 0; i < count; i++) {
    if (from[i] < top) from[i] = top;
  }
  return brim_knob_with_own(w->knobs[BRIM_ARS_DIRS].value, from, count, INT64_MAX, values);
}

// Chunks to try: never larger than the largest number of directions on the axis before.
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

// There is no knob for precision: physics runs in one precision.
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
  w->knobs[BRIM_ARS_THREADS] = brim_work_threads_knob(w->config, w->context.device);
}

// Warns of keys of other workloads, and names the key of ars that replaces them.
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

static brim_status setup(brim_ars *w) {
  const brim_config *config = w->config;
  BRIM_TRY(brim_ars_shape(config, w->context.registry, &w->shape));
  w->noise_std = brim_config_float(config, "ars.noise_std");
  w->step_size = brim_config_float(config, "ars.step_size");
  w->shift = brim_config_float(config, "ars.shift");
  w->top_directions = (int32_t)brim_config_int(config, "ars.top_dirs");
  if (w->top_directions > w->shape.num_dirs) {
    brim_log_warn("workload",
                  "ars.top_dirs is %d and ars.num_dirs %d: every update uses all %d directions",
                  w->top_directions, w->shape.num_dirs, w->shape.num_dirs);
  }
  w->iterations = brim_config_int(config, "ars.iterations");
  w->interval = brim_config_int(config, "ars.eval_interval");
  if (w->interval > w->iterations) w->interval = w->iterations;
  w->episodes = brim_config_int(config, "ars.eval_episodes");
  w->weights_path = brim_config_string(config, "training.weights");
  if (w->weights_path && !w->weights_path[0]) w->weights_path = NULL;
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
  if (all_equal(&w->shape)) {
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

//----------------------------------------- checkpoints -----------------------------------------
// Checkpoints of ars: the policy and the statistics of its observations are named tensors, and the metadata
// holds the position in training (format: ars.h). Loading restores exactly that position.

enum { MAX_TENSORS = 9 };

// A tensor of a checkpoint, with the address of its values in memory.
typedef struct part {
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[2];
  void *data;
} part;

static void add_part(part *parts, size_t *n, part one) { parts[(*n)++] = one; }

static size_t policy_parts(const brim_rollout_shape *s, float *theta, part *out) {
  const brim_env_sizes z = s->row->sizes(s->env.bytes);
  const int64_t obs = z.obs, act = z.act, h = s->hidden;
  size_t n = 0;
  if (h == 0) {
    add_part(out, &n, (part){"policy.weight", BRIM_F32, 2, {act, obs}, theta});
    return n;
  }
  add_part(out, &n, (part){"policy.0.weight", BRIM_F32, 2, {h, obs}, theta});
  theta += h * obs;
  add_part(out, &n, (part){"policy.0.bias", BRIM_F32, 1, {h, 0}, theta});
  theta += h;
  add_part(out, &n, (part){"policy.2.weight", BRIM_F32, 2, {act, h}, theta});
  theta += h * act;
  add_part(out, &n, (part){"policy.2.bias", BRIM_F32, 1, {act, 0}, theta});
  return n;
}

static size_t all_parts(const brim_rollout_shape *s, const brim_ars_state *at, part *out) {
  const int64_t obs = s->row->sizes(s->env.bytes).obs;
  size_t n = policy_parts(s, at->theta, out);
  add_part(out, &n, (part){"normal.mean", BRIM_F32, 1, {obs, 0}, at->normal});
  add_part(out, &n, (part){"normal.rstd", BRIM_F32, 1, {obs, 0}, at->normal + obs});
  add_part(out, &n, (part){"filter.count", BRIM_F64, 1, {1, 0}, at->filter});
  add_part(out, &n, (part){"filter.mean", BRIM_F64, 1, {obs, 0}, at->filter + 1});
  add_part(out, &n, (part){"filter.m2", BRIM_F64, 1, {obs, 0}, at->filter + 1 + obs});
  return n;
}

static int64_t count_of(const part *p) { return p->rank == 2 ? p->dim[0] * p->dim[1] : p->dim[0]; }

static size_t params_of(const brim_rollout_shape *s) {
  part parts[MAX_TENSORS];
  size_t n = policy_parts(s, NULL, parts), params = 0;
  for (size_t i = 0; i < n; i++) params += (size_t)count_of(&parts[i]);
  return params;
}

// Allocates theta, normal and filter as one block, the doubles first for alignment.
static brim_status state_init(const brim_rollout_shape *shape, brim_ars_state *out) {
  const size_t obs = (size_t)shape->row->sizes(shape->env.bytes).obs, params = params_of(shape);
  const size_t filter = 1 + 2 * obs;
  out->filter = (double *)brim_calloc(
      1, filter * sizeof *out->filter + (params + 2 * obs) * sizeof *out->theta);
  if (!out->filter) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the policy");
  out->theta = (float *)(void *)(out->filter + filter);
  out->normal = out->theta + params;
  return BRIM_OK;
}

void brim_ars_state_deinit(brim_ars_state *state) {
  brim_free(state->filter);
  memset(state, 0, sizeof *state);
}

//---------------------------------- the device ----------------------------------

static size_t theta_bytes(const brim_ars *w) { return w->layout.params * sizeof(float); }

static size_t normal_bytes(const brim_ars *w) {
  return 2 * (size_t)w->shape.row->sizes(w->shape.env.bytes).obs * sizeof(float);
}

static size_t filter_bytes(const brim_ars *w) {
  return (1 + 2 * (size_t)w->shape.row->sizes(w->shape.env.bytes).obs) * sizeof(double);
}

brim_status brim_ars_fetch(brim_ars *w, brim_ars_state *out) {
  brim_device *device = w->context.device;
  const char *block = (const char *)w->block;
  if (!out->theta) BRIM_TRY(state_init(&w->shape, out));
  BRIM_TRY(
      brim_device_copy(device, out->theta, block + w->layout.theta, theta_bytes(w), BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(device, out->normal, block + w->layout.normal, normal_bytes(w),
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(device, out->filter, block + w->layout.filter, filter_bytes(w),
                            BRIM_COPY_D2H));
  return brim_device_sync(device);
}

static brim_status upload_state(brim_ars *w, const brim_ars_state *from) {
  brim_device *device = w->context.device;
  char *block = (char *)w->block;
  BRIM_TRY(brim_device_copy(device, block + w->layout.theta, from->theta, theta_bytes(w),
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_device_copy(device, block + w->layout.normal, from->normal, normal_bytes(w),
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_device_copy(device, block + w->layout.filter, from->filter, filter_bytes(w),
                            BRIM_COPY_H2D));
  return brim_device_sync(device);
}

//---------------------------------- metadata ----------------------------------

static const char *env_text(const json_t *meta) {
  return json_string_value(json_object_get(meta, "brim.env"));
}

static brim_status put_policy(const brim_rollout_shape *s, json_t *meta) {
  const brim_env_sizes z = s->row->sizes(s->env.bytes);
  json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:b, s:i, s:i, s:i}", "kind",
                        s->hidden ? "mlp" : "linear", "observations", z.obs, "hidden", s->hidden,
                        "actions", z.act, "filter", s->filter, "num_envs", s->num_envs, "num_dirs",
                        s->num_dirs, "episode_length", s->episode_length);
  return brim_work_env_put(s->row, s->env.bytes, o, meta);
}

// The sums since the metrics were last read. With them a resumed epoch reports what an uninterrupted one
// does.
enum { SUMS = 10 };
static brim_status put_sums(const brim_ars *w, json_t *meta) {
  const brim_ars_returns *r = &w->sums.returns;
  const brim_rollout_update *u = &w->sums.update;
  const double values[SUMS] = {
      (double)r->count,    r->sum,           r->sum_sq, (double)r->episodes, (double)r->ended,
      (double)r->diverged, (double)r->steps, u->sigma,  u->step_norm,        u->theta_norm};
  brim_status status = brim_json_put_numbers(meta, "brim.sums", values, SUMS);
  return status ? status : brim_work_put_i64(meta, "brim.skipped_steps", w->sums.skipped_updates);
}

// If the checkpoint has no valid sums, they start from zero: only reports depend on them.
static void load_sums(brim_ars *w, const json_t *meta) {
  double v[SUMS] = {0};
  memset(&w->sums, 0, sizeof w->sums);
  bool sound = brim_json_get_numbers(meta, "brim.sums", v, SUMS) == SUMS;
  for (int i = 0; i < SUMS; i++) sound = sound && fabs(v[i]) <= 9e15;
  if (sound) {
    double returns[BRIM_ARS_SUMS] = {0};  // the figures stay 0: only evaluations have them
    memcpy(returns, v, 7 * sizeof *v);
    w->sums.returns = brim_returns_unpack(returns);
    w->sums.update = (brim_rollout_update){.sigma = v[7], .step_norm = v[8], .theta_norm = v[9]};
  }
  const char *skipped = json_string_value(json_object_get(meta, "brim.skipped_steps"));
  int64_t count = 0;
  if (skipped && brim_parse_i64(skipped, &count) && count > 0) w->sums.skipped_updates = count;
}

//---------------------------------- writing ----------------------------------

static brim_status fill_metadata(const brim_ars *w, bool weights_only, json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string("ars")));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.iteration", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", epoch_of(w, w->step)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", brim_config_int(w->config, "seed")));
  BRIM_TRY(put_policy(&w->shape, meta));
  if (!weights_only) BRIM_TRY(put_sums(w, meta));
  BRIM_TRY(brim_json_put(meta, BRIM_SAFETENSORS_SUM, json_string("")));
  return brim_work_put_device(w->context.device, false, meta);
}

static brim_status write_file(brim_ars *w, const char *path, const json_t *meta) {
  part parts[MAX_TENSORS];
  brim_safetensors_entry entries[MAX_TENSORS];
  brim_ars_state *s = &w->state;
  BRIM_TRY(brim_ars_fetch(w, s));
  size_t n = all_parts(&w->shape, s, parts);
  memset(entries, 0, sizeof entries);
  for (size_t i = 0; i < n; i++) {
    brim_safetensors_entry *e = &entries[i];
    e->name = parts[i].name;
    e->dtype = parts[i].dtype;
    e->rank = parts[i].rank;
    memcpy(e->dim, parts[i].dim, sizeof parts[i].dim);
    e->data = parts[i].data;
    e->bytes = (size_t)count_of(&parts[i]) * brim_dtype_size(parts[i].dtype);
  }
  return brim_safetensors_write(path, entries, n, meta);
}

static brim_status ars_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  brim_ars *w = (brim_ars *)work;
  brim_json_setup();
  json_t *meta = json_object();
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  brim_status status = fill_metadata(w, weights_only, meta);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!status) status = write_file(w, path, meta);
  json_decref(meta);
  return status;
}

//---------------------------------- reading ----------------------------------

static brim_status check_finite(const char *path, const part *p) {
  for (int64_t i = 0; i < count_of(p); i++) {
    double value =
        p->dtype == BRIM_F64 ? ((const double *)p->data)[i] : (double)((const float *)p->data)[i];
    if (isfinite(value)) continue;
    return brim_fail(
        BRIM_EINVAL,
        "%s: value %" PRId64
        " of %s is %s, so the policy gives no actions; resume from an earlier checkpoint "
        "(best.safetensors, step-*.safetensors) with a smaller ars.step_size",
        path, i, p->name, isnan(value) ? "NaN" : "infinite");
  }
  return BRIM_OK;
}

static brim_status no_tensor(const char *path, const char *name) {
  return brim_fail(BRIM_EPARSE, "%s: no valid tensor '%s'; is it a checkpoint of workload ars?",
                   path, name);
}

// Explains why the policy's tensor `name` does not fit: the file has another kind of policy, or one for other
// observations or actions.
static brim_status refuse_shape(const char *path, const brim_safetensors *file,
                                const brim_rollout_shape *shape, const char *name) {
  const brim_env_sizes z = shape->row->sizes(shape->env.bytes);
  const brim_safetensors_entry *in = brim_safetensors_find(file, "policy.0.weight");
  const brim_safetensors_entry *linear = brim_safetensors_find(file, "policy.weight");
  const bool mlp = in && in->rank == 2;
  const int64_t hidden = mlp ? in->dim[0] : 0;
  char has[64] = "none that brim knows", wants[64] = "linear_policy";
  if (!mlp) in = linear;
  if ((mlp || linear) && hidden == shape->hidden) {
    const brim_safetensors_entry *out =
        mlp ? brim_safetensors_find(file, "policy.2.weight") : linear;
    if (in->rank != 2 || !out || out->rank != 2) return no_tensor(path, name);
    if (in->dim[1] == z.obs && out->dim[0] == z.act) return no_tensor(path, name);
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy has %lld observations and %lld actions, but this run's "
                     "environment has %d and %d; set env=... as in its training",
                     path, (long long)in->dim[1], (long long)out->dim[0], z.obs, z.act);
  }
  if (mlp) snprintf(has, sizeof has, "mlp_policy(hidden=%" PRId64 ")", hidden);
  if (!mlp && linear) snprintf(has, sizeof has, "linear_policy");
  if (shape->hidden) snprintf(wants, sizeof wants, "mlp_policy(hidden=%d)", shape->hidden);
  return brim_fail(BRIM_EINVAL,
                   "%s: its policy is %s, but this run uses %s; set model=... as in its training",
                   path, has, wants);
}

static brim_status read_part(const char *path, const brim_safetensors *file,
                             const brim_rollout_shape *shape, const part *p) {
  const brim_safetensors_entry *e = brim_safetensors_find(file, p->name);
  bool of_policy = brim_str_starts(p->name, "policy.");
  bool fits = e && e->dtype == p->dtype && e->rank == p->rank && e->dim[0] == p->dim[0] &&
              (p->rank == 1 || e->dim[1] == p->dim[1]);
  if (!fits && of_policy) return refuse_shape(path, file, shape, p->name);
  if (!e && brim_str_starts(p->name, "filter.")) return BRIM_OK;  // other programs write no filter
  if (!fits) return no_tensor(path, p->name);
  memcpy(p->data, e->data, e->bytes);
  return check_finite(path, p);
}

static const double most_seen = 9007199254740992.0;  // 2^53: a double counts one by one up to here

static brim_status read_tensors(const char *path, const brim_safetensors *file,
                                const brim_rollout_shape *shape, const brim_ars_state *to) {
  part parts[MAX_TENSORS];
  const int32_t obs = shape->row->sizes(shape->env.bytes).obs;
  size_t n = all_parts(shape, to, parts);
  for (size_t i = 0; i < n; i++) BRIM_TRY(read_part(path, file, shape, &parts[i]));
  for (int i = 0; i < obs; i++) {
    if (to->filter[0] >= 0 && to->filter[0] <= most_seen && to->filter[1 + obs + i] >= 0) {
      continue;
    }
    return brim_fail(BRIM_EPARSE,
                     "%s: invalid statistics in filter.*: negative, or from an impossible number "
                     "of observations",
                     path);
  }
  return BRIM_OK;
}

// *out: 1 = the policy was trained on normalised observations (v2), 0 = on plain ones (v1), -1 = the file
// does not say.
static brim_status read_filtered(const char *path, const json_t *meta, int *out) {
  const char *text = json_string_value(json_object_get(meta, "brim.policy"));
  json_t *policy = NULL;
  *out = -1;
  if (!text) return BRIM_OK;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &policy));
  const json_t *filter = json_object_get(policy, "filter");
  if (json_is_boolean(filter)) *out = json_is_true(filter);
  json_decref(policy);
  return BRIM_OK;
}

static brim_status read_file(const char *path, const brim_safetensors *file,
                             const brim_rollout_shape *shape, brim_ars_policy *out) {
  const json_t *meta = brim_safetensors_metadata(file);
  const char *workload = json_string_value(json_object_get(meta, "brim.workload"));
  if (workload && strcmp(workload, "ars") != 0) {
    return brim_fail(BRIM_EINVAL, "%s is a checkpoint of workload %s, not of ars", path, workload);
  }
  const char *text = json_string_value(json_object_get(meta, "brim.iteration"));
  // the iteration is part of the key of every random number and has 32 bits there
  bool valid = text && brim_parse_i64(text, &out->iteration) && out->iteration >= 0 &&
               out->iteration < (int64_t)1 << 32;
  if (text && !valid) {
    return brim_fail(BRIM_EPARSE,
                     "%s: brim.iteration is %s, expected 0 to 4294967295: the file is damaged; "
                     "resume from another checkpoint",
                     path, text);
  }
  if (!text) out->iteration = 0;
  BRIM_TRY(read_filtered(path, meta, &out->filtered));
  BRIM_TRY(brim_work_env_check(shape->row, shape->env.bytes, path, env_text(meta), false));
  brim_ars_state s = {0};
  BRIM_TRY(state_init(shape, &s));
  out->theta = s.theta;
  out->normal = s.normal;
  out->filter = s.filter;
  out->params = params_of(shape);
  return read_tensors(path, file, shape, &s);
}

static brim_status save_read_policy(const char *path, const brim_rollout_shape *shape,
                                    brim_ars_policy *out, json_t **meta) {
  brim_safetensors *file = NULL;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = read_file(path, file, shape, out);
  if (!status && meta) {
    *meta = json_deep_copy(brim_safetensors_metadata(file));
    if (!*meta) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
    if (*meta) (void)json_object_del(*meta, BRIM_SAFETENSORS_SUM);  // belongs to this file only
  }
  brim_safetensors_close(file);
  if (status) brim_ars_policy_deinit(out);
  return status;
}

brim_status brim_ars_policy_read(const char *path, const brim_rollout_shape *shape,
                                 brim_ars_policy *out) {
  return save_read_policy(path, shape, out, NULL);
}

void brim_ars_policy_deinit(brim_ars_policy *policy) {
  brim_ars_state state = {policy->theta, policy->normal, policy->filter};
  brim_ars_state_deinit(&state);
  memset(policy, 0, sizeof *policy);
}

// Refuses a policy without observation statistics for training with ars.version=v2. Training normalises
// by its own statistics from the second iteration on, so the policy would suddenly see other observations
// than those it was trained on.
static brim_status check_statistics(const char *path, const brim_ars_policy *p) {
  if (p->filtered == 1 || (p->filtered < 0 && p->filter[0] > 0)) return BRIM_OK;
  if (p->filtered == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy was trained on plain observations (ars.version=v1), but this "
                     "run uses v2; set ars.version=v1",
                     path);
  }
  return brim_fail(
      BRIM_EINVAL,
      "%s: no observation statistics (filter.count, filter.mean, filter.m2), which ars.version=v2 "
      "needs; use ars.version=v1 if the policy was trained on plain observations",
      path);
}

// Refuses a policy trained on normalised observations if the run uses plain ones (v1), and for training
// also the reverse.
static brim_status check_version(const brim_ars *w, const char *path, const brim_ars_policy *p,
                                 bool train) {
  if (w->shape.filter) return train ? check_statistics(path, p) : BRIM_OK;
  const int32_t obs = w->shape.row->sizes(w->shape.env.bytes).obs;
  for (int i = 0; i < obs; i++) {
    if (p->normal[i] == 0 && p->normal[obs + i] == 1) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s: its policy was trained on normalized observations (ars.version=v2), but "
                     "this run uses v1; set ars.version=v2",
                     path);
  }
  return BRIM_OK;
}

static brim_status take_policy(brim_ars *w, const char *path, brim_ars_policy *p, bool train) {
  BRIM_TRY(check_version(w, path, p, train));
  const brim_ars_state s = {p->theta, p->normal, p->filter};
  return upload_state(w, &s);
}

// Copies the policy of a file to the device; the position in training does not change. `train`: training
// starts from the policy.
static brim_status start_from_policy(brim_ars *w, const char *path, bool train) {
  brim_ars_policy p;
  BRIM_TRY(save_read_policy(path, &w->shape, &p, NULL));
  brim_status status = take_policy(w, path, &p, train);
  brim_ars_policy_deinit(&p);
  return status;
}

// Warns if the continued run cannot be bit-identical. The run itself compares the settings.
static void warn_if_different(const brim_ars *w, const json_t *meta, const char *path) {
  const brim_device *device = w->context.device;
  brim_work_warn_if_other(meta, path, "brim.backend", device->backend->name);
  if (device->info.kind != BRIM_DEVICE_GPU) return;
  brim_work_warn_if_other(meta, path, "brim.device", device->info.name);
}

static brim_status ars_load(void *work, const char *path, json_t **extra) {
  brim_ars *w = (brim_ars *)work;
  brim_ars_policy p;
  json_t *meta = NULL;
  BRIM_TRY(save_read_policy(path, &w->shape, &p, &meta));
  brim_status status = BRIM_OK;
  if (!json_object_get(meta, "brim.sums")) {
    status = brim_fail(BRIM_EPARSE,
                       "%s holds only a policy, so brim cannot resume from it; start from it with "
                       "--weights, or resume from last.safetensors",
                       path);
  }
  if (!status)
    status = brim_work_env_check(w->shape.row, w->shape.env.bytes, path, env_text(meta), true);
  if (!status) status = take_policy(w, path, &p, true);
  if (!status) {
    w->step = p.iteration;
    load_sums(w, meta);
    warn_if_different(w, meta, path);
    // the run's ars.eval_interval may differ from the file's, and so does the epoch then
    status = brim_work_put_i64(meta, "brim.epoch", epoch_of(w, w->step));
  }
  brim_ars_policy_deinit(&p);
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

static brim_status ars_use(void *work, const char *path, bool averaged) {
  brim_ars *w = (brim_ars *)work;
  (void)averaged;  // ars keeps no averaged weights
  w->held_out = true;
  w->has_baseline = false;
  return start_from_policy(w, path, false);
}

//---------------------------------- settings ----------------------------------

static bool unset(const json_t *value) { return !value || json_is_null(value); }

static void resolve(json_t *of, const char *key, json_t *value) {
  if (value && unset(json_object_get(of, key))) (void)json_object_set(of, key, value);
}

// Fills in ars.episode_length and ars.restart where they are not set, with the values that the phase and the
// environment gave them, so that the settings of checkpoint and run can be compared.
static void ars_resolve(void *work, const json_t *metadata, json_t *was, json_t *now) {
  const brim_ars *w = (const brim_ars *)work;
  const char *text = json_string_value(json_object_get(metadata, "brim.policy"));
  json_t *policy = NULL, *length = json_integer(w->shape.episode_length);
  if (text && brim_json_parse(text, strlen(text), "brim.policy", &policy) == BRIM_OK) {
    resolve(was, "ars.episode_length", json_object_get(policy, "episode_length"));
    resolve(now, "ars.episode_length", length);
  }
  json_t *restart = json_boolean(!w->shape.row->once);
  resolve(was, "ars.restart", restart);
  resolve(now, "ars.restart", restart);
  json_decref(restart);
  json_decref(policy);
  json_decref(length);
}

static bool ars_owns(const brim_safetensors *file) {
  return brim_safetensors_find(file, "policy.weight") ||
         brim_safetensors_find(file, "policy.0.weight");
}

//------------------------------------------- replays -------------------------------------------
// Replays: episodes of a checkpoint's policy, recorded one by one on the CPU. They have the same bits as the
// episodes of an evaluation on the CPU.

typedef struct replay {
  brim_rollout_shape shape;
  brim_ars_policy policy;
  brim_ars_rows rows;
} replay;

enum { TRAINED, ZERO };  // actors, in the order of info_of

static void close_replay(void *state) {
  replay *r = (replay *)state;
  if (r) brim_ars_policy_deinit(&r->policy);
  brim_free(r);
}

static brim_status read_replay(const brim_work_replay_from *from, void *state) {
  replay *r = (replay *)state;
  brim_work_replay_info info;
  BRIM_TRY(brim_ars_shape(from->config, from->registry, &r->shape));
  BRIM_TRY(brim_work_replay_env(r->shape.row, r->shape.env.bytes, &info));
  brim_ars_rows_init(&r->rows, r->shape.row);
  return brim_ars_policy_read(from->path, &r->shape, &r->policy);
}

static brim_status open_replay(const brim_registry *registry, const brim_config *config,
                               const char *path, void **out) {
  const brim_work_replay_from from = {registry, config, path};
  return brim_work_replay_open(&from, sizeof(replay), read_replay, close_replay, out);
}

static void info_of(void *state, brim_work_replay_info *out) {
  const replay *r = (const replay *)state;
  const brim_env_sizes sizes = r->shape.row->sizes(r->shape.env.bytes);
  (void)brim_work_replay_env(r->shape.row, r->shape.env.bytes, out);  // succeeded in read_replay
  out->steps = r->shape.episode_length;
  out->seed = r->shape.seed;
  out->metrics = &r->rows.set;
  brim_scene_line *policy = brim_work_replay_fact(out, BRIM_N_("Policy"));
  if (r->shape.hidden > 0) {
    snprintf(policy->text, sizeof policy->text, brim_tr("one hidden layer: %d-%d-%d"), sizes.obs,
             r->shape.hidden, sizes.act);
  } else {
    snprintf(policy->text, sizeof policy->text, brim_tr("linear, %d x %d"), sizes.act, sizes.obs);
  }
  brim_work_replay_trained(out, r->policy.iteration);
  brim_work_replay_actor(out, "trained", brim_tr("Policy"));
  brim_work_replay_actor(out, "zero", brim_tr("Zero policy"));
}

static brim_status put_fields(void *state, json_t *event) {
  const replay *r = (const replay *)state;
  BRIM_TRY(brim_work_replay_task(r->shape.row, r->shape.env.bytes, event));
  return brim_json_put(event, "iteration", json_integer(r->policy.iteration));
}

static brim_status record_one(void *state, size_t actor, int32_t episode, int64_t steps,
                              brim_work_recording *out) {
  const replay *r = (const replay *)state;
  brim_rollout_shape shape = r->shape;
  const brim_rollout_eval eval = {
      .episodes = episode + 1, .zero = actor == ZERO, .stream = BRIM_ARS_STREAM_HELD_OUT};
  brim_rollout_record record = {
      .capacity = out->capacity, .frames = out->frames, .reward = out->reward};
  shape.episode_length = (int32_t)steps;
  BRIM_TRY(brim_rollout_trace(&shape, r->policy.theta, r->policy.normal, &eval, episode, &record));
  out->states = record.states;
  out->end = brim_work_replay_end(record.outcome);
  return BRIM_OK;
}

static const brim_work_replay_table replay_table = {
    .score = "return",
    .open = open_replay,
    .close = close_replay,
    .info = info_of,
    .fields = put_fields,
    .record = record_one,
};

//-------------------------------------------- watch --------------------------------------------
// Troubles: a return that collapses, updates that change nothing, episodes that diverge. Evaluations reveal
// a collapse, since their episodes are always the same: the mean return is far below the best so far, or
// stays below that of the zero policy.

// A collapse needs two low evaluations among the last three: one bad draw of directions is no collapse, and
// one lucky mean hides none. Low is four standard errors below the best, with more than half of the best's
// gain over the zero policy lost, or four standard errors below the zero policy without a rise. A collapse
// is over after two evaluations in a row that are neither.
enum { OF_LAST = 3, TOO_MANY = 2, ERRORS = 4, RISE_ERRORS = 2, FINE = 2 };
static const double most_lost = 0.5;

//---------------------------------- collapsing ----------------------------------

// The standard error of a difference; an unknown error counts as 0.
static double difference_error(double x, double y) {
  return sqrt((isnan(x) ? 0 : x * x) + (isnan(y) ? 0 : y * y));
}

// True if an evaluation is above the mean of the earlier ones by more than chance, or above each of at
// least two. A run that begins below the zero policy is still learning then.
static bool rises(const brim_ars_collapse *c, double now, double error) {
  double sum = 0, most = c->before[0];
  if (c->count == 0) return true;  // nothing to compare the first evaluation with
  for (int i = 0; i < c->count; i++) {
    sum += c->before[i];
    most = fmax(most, c->before[i]);
  }
  return now - sum / c->count > RISE_ERRORS * error || (c->count > 1 && now > most);
}

static void remember(brim_ars_collapse *c, double now, bool low, bool fine) {
  memmove(c->before + 1, c->before, (BRIM_ARS_BEFORE - 1) * sizeof *c->before);
  c->before[0] = now;
  if (c->count < BRIM_ARS_BEFORE) c->count++;
  c->low_bits = (c->low_bits << 1 | low) & ((1u << OF_LAST) - 1);
  c->fine = !fine ? 0 : c->fine < FINE ? c->fine + 1 : FINE;
}

bool brim_ars_collapse_take(brim_ars_collapse *c, const brim_ars_returns *returns, double zero,
                            double zero_error) {
  double now = brim_returns_mean(returns), best = brim_returns_mean(&c->best);
  if (isnan(now)) return false;
  double gained = isnan(zero) ? (double)NAN : best - zero;
  bool below_best = best - now > ERRORS * difference_error(brim_returns_error(&c->best),
                                                           brim_returns_error(returns)) &&
                    (isnan(gained) || best - now > most_lost * gained);
  // without a gain only a return below the zero policy is a loss
  if (gained <= 0) below_best = false;
  double error = difference_error(zero_error, brim_returns_error(returns));
  c->below_zero_policy = zero - now > ERRORS * error;
  bool low = below_best || (c->below_zero_policy && !rises(c, now, error));
  remember(c, now, low, !below_best && !c->below_zero_policy);
  if (isnan(best) || now > best) c->best = *returns;
  if (c->fine == FINE) c->reported = false;
  unsigned lows = 0;
  for (unsigned bits = c->low_bits; bits; bits >>= 1) lows += bits & 1;
  if (c->reported || !low || lows < TOO_MANY) return false;
  c->reported = true;
  return true;
}

// Writes the three remedies of seed guide 000, each with the figure that speaks for or against it.
void brim_ars_collapse_advice(const double *train, const brim_config *config,
                              const brim_rollout_shape *shape, char *out, size_t size) {
  double step = brim_config_float(config, "ars.step_size");
  double noise = brim_config_float(config, "ars.noise_std");
  double mean = train[BRIM_ARS_RETURN], sigma = train[BRIM_ARS_SIGMA];
  double update = train[BRIM_ARS_UPDATE_NORM];
  // an unchanged policy of zeros would give 0 / 0
  double moved = update > 0 ? 100 * update / train[BRIM_ARS_POLICY_NORM] : 0;
  double scatter = 100 * sigma / fabs(mean);
  char label[64] = "";
  out[0] = '\0';
  brim_words_put(label, sizeof label, shape->row->ended.label);
  brim_words_add(out, size,
                 BRIM_N_("try a smaller ars.step_size (now %g; the last update was %.3g %% of the "
                         "policy), "),
                 step, moved);
  // equal returns of all directions carry no information; widely scattered returns lead away from the policy
  brim_words_add(out, size,
                 scatter < 1 ? BRIM_N_("a larger ars.noise_std (now %g; returns of the directions "
                                       "deviate by %.3g, %.3g %% of their mean), ")
                             : BRIM_N_("a smaller ars.noise_std (now %g; returns of the directions "
                                       "deviate by %.3g, %.3g %% of their mean), "),
                 noise, sigma, scatter);
  brim_words_add(
      out, size,
      BRIM_N_("or a shorter ars.episode_length (now %lld; %s in %.3g %% of the episodes, which are "
              "%.4g steps long on average)"),
      (long long)shape->episode_length, label, 100 * train[BRIM_ARS_ENDED_RATE],
      train[BRIM_ARS_LENGTH]);
}

//---------------------------------- diagnoses ----------------------------------

enum { COLLAPSED, SKIPPED, DIVERGED, TROUBLES };

static const brim_work_trouble_row troubles[TROUBLES] = {
    [COLLAPSED] = {.name = "return_collapsed",
                   .label = BRIM_N_("warning"),
                   .one = BRIM_N_("%lld time the return collapsed, by step %lld"),
                   .many = BRIM_N_("%lld times the return collapsed, first by step %lld"),
                   .always = true},
    [SKIPPED] = {.name = "update_skipped",
                 .label = BRIM_N_("warning"),
                 .one = BRIM_N_("%lld update did not change the policy, by step %lld"),
                 .many = BRIM_N_("%lld updates did not change the policy, from step %lld on")},
    [DIVERGED] = {.name = "episode_diverged",
                  .label = BRIM_N_("warning"),
                  .one = BRIM_N_("%lld episode diverged, by step %lld"),
                  .many = BRIM_N_("%lld episodes diverged, from step %lld on")},
};

static size_t take_evaluation(brim_ars *w, const brim_work_moment *at, brim_work_trouble *t) {
  const brim_work_metrics *eval = at->metrics;
  const brim_ars_returns returns = brim_returns_unpack(eval->sums);
  double best = brim_returns_mean(&w->collapse.best), zero = eval->baseline[BRIM_ARS_RETURN];
  double now = brim_returns_mean(&returns);
  if (!brim_ars_collapse_take(&w->collapse, &returns, zero, eval->baseline[BRIM_ARS_ERROR])) {
    return 0;
  }
  brim_work_trouble_begin(t, COLLAPSED, 1);
  brim_ars_collapse_advice(at->train, w->config, &w->shape, t->advice, sizeof t->advice);
  snprintf(w->collapse_advice, sizeof w->collapse_advice, "%s", t->advice);
  bool below = w->collapse.below_zero_policy;
  double was = below ? zero : best;
  brim_words_add(t->text, sizeof t->text,
                 below ? BRIM_N_("the return collapsed to %.4g by step %" PRId64
                                 ", below the zero policy's %.4g: %s")
                       : BRIM_N_("the return collapsed to %.4g by step %" PRId64
                                 ", from %.4g at its best: %s"),
                 now, at->step, was, t->advice);
  t->fields[0].key = "value";
  t->fields[0].value = now;
  t->fields[1].key = below ? "baseline" : "best";
  t->fields[1].value = was;
  t->field_count = isnan(was) ? 0 : 2;
  return 1;
}

// Troubles of training: updates without effect and episodes that diverged.
static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  brim_ars *w = (brim_ars *)work;
  const brim_work_metrics *m = at->metrics;
  size_t n = 0;
  if (at->evaluated) return take_evaluation(w, at, out);
  if (m->skipped > w->reported_skipped) {
    brim_work_trouble *t =
        brim_work_trouble_begin(&out[n++], SKIPPED, m->skipped - w->reported_skipped);
    w->reported_skipped = m->skipped;
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("%" PRId64 " updates did not change the policy by step %" PRId64
                           ": no return was finite, or all returns were equal"),
                   t->count, at->step);
  }
  int64_t diverged = brim_returns_unpack(m->sums).diverged;
  if (diverged == 0) return n;
  brim_work_trouble *t = brim_work_trouble_begin(&out[n++], DIVERGED, diverged);
  const brim_env_ended *ended = &w->shape.row->ended;
  char label[64] = "";
  brim_words_put(label, sizeof label, ended->label);
  if (ended->better == BRIM_BETTER_LOWER) {
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("%" PRId64 " episodes diverged by step %" PRId64
                           ": the simulation overflowed; they count as %s"),
                   t->count, at->step, label);
  } else {
    brim_words_add(
        t->text, sizeof t->text,
        BRIM_N_("%" PRId64 " episodes diverged by step %" PRId64 ": the simulation overflowed"),
        t->count, at->step);
  }
  return n;
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  (void)counts, (void)lr;
  snprintf(out, size, "%s", ((brim_ars *)work)->collapse_advice);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  const brim_rollout_shape *shape = &((const brim_ars *)work)->shape;
  if (all_equal(shape)) {
    return brim_fail(BRIM_ESTATE,
                     "lost in epoch %" PRId64
                     ": all returns are equal, since %s rewards every step alike; set "
                     "ars.restart=false, so that a rollout ends with its episode",
                     epoch, shape->row->name);
  }
  return brim_fail(BRIM_ESTATE,
                   "lost in epoch %" PRId64
                   ": the returns are not finite or all equal; try a smaller ars.step_size (now "
                   "%g) or another ars.noise_std, from an earlier checkpoint",
                   epoch, lr);
}

//---------------------------------- in a checkpoint ----------------------------------

// The list brim.watch_returns: how often each trouble occurred, which of the last evaluations were low, how
// many were fine since, whether the collapse was reported, the number of earlier means, these means, and the
// best returns.
enum {
  BEFORE_SUMS = TROUBLES + 4 + BRIM_ARS_BEFORE,
  NUMBERS = BEFORE_SUMS + BRIM_ARS_SUMS,
  NUMBERS_0_1 = BEFORE_SUMS + BRIM_ARS_SUMS_0_1,
  SKIPPED_NUMBERS =
      9  // brim.watch: skipped updates, then zeros for the readings of a network (learn_watch.c)
};

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  const brim_ars *w = (const brim_ars *)work;
  const brim_ars_collapse *c = &w->collapse;
  double v[NUMBERS];
  const double skipped[SKIPPED_NUMBERS] = {(double)w->reported_skipped};
  size_t n = 0;
  BRIM_TRY(brim_json_put_numbers(metadata, "brim.watch", skipped, SKIPPED_NUMBERS));
  if (c->best.count == 0) return BRIM_OK;
  for (int i = 0; i < TROUBLES; i++) v[n++] = (double)times[i];
  v[n++] = (double)c->low_bits;
  v[n++] = (double)c->fine;
  v[n++] = (double)c->reported;
  v[n++] = (double)c->count;
  for (int i = 0; i < BRIM_ARS_BEFORE; i++) v[n++] = c->before[i];
  brim_returns_pack(&c->best, v + n);
  return brim_json_put_numbers(metadata, "brim.watch_returns", v, NUMBERS);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_ars *w = (brim_ars *)work;
  double v[NUMBERS] = {0}, was[SKIPPED_NUMBERS];
  size_t n = 0;
  w->reported_skipped = skipped;
  if (brim_work_get_numbers(metadata, "brim.watch", was, SKIPPED_NUMBERS) == SKIPPED_NUMBERS &&
      was[0] >= 0 && was[0] < 9e15) {
    w->reported_skipped = (int64_t)was[0];
  }
  if (brim_work_get_numbers(metadata, "brim.watch_returns", v, NUMBERS) < NUMBERS_0_1) return;
  for (int i = 0; i < TROUBLES; i++, n++) {
    times[i] = v[n] >= 0 && v[n] < 9e15 ? (int64_t)v[n] : 0;
  }
  brim_ars_collapse *c = &w->collapse;
  c->low_bits = v[n] >= 0 && v[n] < 1 << OF_LAST ? (unsigned)v[n] : 0;
  c->fine = v[n + 1] > 0 && v[n + 1] <= FINE ? (int)v[n + 1] : 0;
  c->reported = v[n + 2] > 0;
  c->count = v[n + 3] > 0 && v[n + 3] <= BRIM_ARS_BEFORE ? (int)v[n + 3] : 0;
  n += 4;
  for (int i = 0; i < BRIM_ARS_BEFORE; i++) c->before[i] = v[n++];
  c->best = brim_returns_unpack(v + n);
}

static const brim_work_diagnosis diagnosis = {.rows = troubles,
                                              .count = TROUBLES,
                                              .take = watch_take,
                                              .advice = watch_advice,
                                              .lost = watch_lost,
                                              .put = watch_put,
                                              .get = watch_get};

//------------------------------------------- workload -------------------------------------------
// The workload: an epoch is ars.eval_interval iterations, a run has ars.iterations. No data is loaded, and
// the device rolls out without the host.

//---------------------------------- building ----------------------------------

static void drop_setting(brim_ars *w) {
  brim_device *device = w->context.device;
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->block);
  brim_device_free(device, BRIM_BUFFER_HOST, w->tally);
  brim_device_free(device, BRIM_BUFFER_HOST, w->evaluated);
  brim_device_free(device, BRIM_BUFFER_HOST, w->update);
  w->block = NULL;
  w->tally = NULL;
  w->evaluated = NULL;
  w->update = NULL;
}

static void ars_close(void *work) {
  brim_ars *w = (brim_ars *)work;
  if (!w) return;
  drop_setting(w);
  brim_pool_destroy(w->where.pool);
  brim_ars_state_deinit(&w->state);
  brim_ars_state_deinit(&w->saved_state);
  brim_free(w);
}

static brim_status ars_open(const brim_work_context *context, const brim_config *config,
                            void **work) {
  brim_ars *w = (brim_ars *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = setup(w);
  brim_rollout_layout layout;
  if (!status) status = w->table->layout(&w->shape, &layout);
  if (status) {
    ars_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

static size_t ars_knobs(void *work, const brim_knob **out) {
  *out = ((brim_ars *)work)->knobs;
  return BRIM_ARS_KNOBS;
}

static size_t tally_bytes(const brim_rollout_shape *s) {
  return (size_t)s->num_dirs * 2 * sizeof(brim_rollout_tally);
}

// Bytes of the episodes and, right behind them, their figures.
static size_t episodes_bytes(const brim_rollout_shape *s) {
  const size_t figures = (size_t)s->row->sizes(s->env.bytes).figures;
  return (size_t)s->eval_episodes * (sizeof(brim_rollout_episode) + figures * sizeof(float));
}

static void add_row(brim_plan *plan, const char *name, brim_place place, uint64_t bytes) {
  if (bytes == 0 || plan->row_count == BRIM_PLAN_MAX_ROWS) return;
  plan->rows[plan->row_count++] = (brim_plan_row){name, place, bytes};
  plan->bytes[place] += bytes;
}

static double steps_of(const brim_rollout_shape *s) {
  return (double)s->num_envs * (double)s->num_dirs * (double)s->episode_length;
}

// A count as int64_t, capped at INT64_MAX.
static int64_t capped_int64(double count) { return count < 9.2e18 ? (int64_t)count : INT64_MAX; }

static brim_status ars_plan(void *work, const brim_setting *setting, brim_plan *out) {
  brim_ars *w = (brim_ars *)work;
  brim_rollout_shape shape;
  brim_rollout_layout layout;
  memset(out, 0, sizeof *out);
  BRIM_TRY(shape_with_setting(w, setting, &shape));
  BRIM_TRY(w->table->layout(&shape, &layout));
  uint64_t policy = layout.params * sizeof(float);
  add_row(out, "parameters", BRIM_PLACE_DEVICE, policy);
  add_row(out, "rollouts", BRIM_PLACE_DEVICE, layout.scratch_bytes);
  add_row(out, "returns", BRIM_PLACE_DEVICE, layout.bytes - policy - layout.scratch_bytes);
  add_row(out, "returns", BRIM_PLACE_HOST,
          tally_bytes(&shape) + episodes_bytes(&shape) + sizeof(brim_rollout_update));
  const double env = shape.row->flops(shape.env.bytes);
  const double agents = shape.row->sizes(shape.env.bytes).agents;
  out->samples_per_step = steps_of(&shape);
  out->flops_per_step = out->samples_per_step * (env + 2 * agents * (double)layout.params);
  out->bytes_per_step = (double)NAN;  // states stay on the chip: memory traffic does not matter
  out->parameter_count = layout.params;
  return BRIM_OK;
}

static brim_status make_buffers(brim_ars *w) {
  brim_device *device = w->context.device;
  void *tally = NULL, *evaluated = NULL, *update = NULL;
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, w->layout.bytes, &w->block));
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_HOST, tally_bytes(&w->shape), &tally));
  w->tally = (brim_rollout_tally *)tally;
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_HOST, episodes_bytes(&w->shape), &evaluated));
  w->evaluated = (brim_rollout_episode *)evaluated;
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_HOST, sizeof(brim_rollout_update), &update));
  w->update = (brim_rollout_update *)update;
  return BRIM_OK;
}

static brim_status ars_configure(void *work, const brim_setting *setting) {
  brim_ars *w = (brim_ars *)work;
  brim_device *device = w->context.device;
  drop_setting(w);
  brim_rollout_shape shape;
  BRIM_TRY(shape_with_setting(w, setting, &shape));
  BRIM_TRY(brim_device_set_threads(device, (int)setting->value[BRIM_ARS_THREADS]));
  if (w->where.pool) BRIM_TRY(brim_work_env_threads(device, &w->where));
  BRIM_TRY(w->table->layout(&shape, &w->layout));
  w->shape = shape;
  brim_status status = make_buffers(w);
  if (!status) status = w->table->init(&w->where, &w->shape, w->block);
  if (!status) status = brim_device_sync(device);
  w->step = 0;
  memset(&w->sums, 0, sizeof w->sums);
  if (!status && w->weights_path) status = start_from_policy(w, w->weights_path, true);
  if (status) drop_setting(w);
  return status;
}

static void ars_resuming(void *work, const json_t *metadata) {
  (void)metadata;
  ((brim_ars *)work)->weights_path = NULL;
}

// Halves the chunk first, since chunks change no result, and then the environments, to an even number.
static bool ars_shrink(void *work, brim_setting *setting) {
  (void)work;
  int64_t *chunk = &setting->value[BRIM_ARS_CHUNK], *envs = &setting->value[BRIM_ARS_ENVS];
  if (*chunk > 1) {
    *chunk /= 2;
    return true;
  }
  if (*envs <= 2) return false;
  *envs = *envs / 4 * 2;
  return true;
}

static bool ars_sensible(void *work, const brim_setting *setting) {
  brim_rollout_shape shape;
  bool fine = shape_with_setting((brim_ars *)work, setting, &shape) == BRIM_OK;
  if (!fine) brim_status_clear();
  return fine;
}

// Updates without effect in a row that are not yet reported.
enum { FEW_UPDATES = 5 };

static void ars_info(void *work, brim_work_info *out) {
  brim_ars *w = (brim_ars *)work;
  memset(out, 0, sizeof *out);
  out->unit = "env steps";
  out->samples_per_epoch = capped_int64(steps_of(&w->shape) * (double)w->interval);
  out->set_samples = out->samples_per_epoch;
  out->steps_per_epoch = w->interval;
  out->epochs = ars_epochs(w);
  out->steps = w->iterations;
  out->eval_samples = w->episodes;
  out->learning_rate = w->step_size;
  out->description = w->description;
  out->watches_gpu = true;
  out->reads_often = true;
  out->idle_limit = FEW_UPDATES;
  out->has_baseline = w->has_baseline && w->baseline.episodes > 0;
  out->baseline_samples = w->baseline.episodes;
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->training_baseline);
  brim_returns_values(&w->baseline, out->baseline);
  brim_returns_values(&w->training_baseline, out->training_baseline);
}

//---------------------------------- stepping ----------------------------------

static brim_status read_back(brim_ars *w, void *to, size_t offset, size_t bytes) {
  return brim_device_copy(w->context.device, to, (const char *)w->block + offset, bytes,
                          BRIM_COPY_D2H);
}

// Directions of one call: a whole chunk. On a CPU, where a chunk can take minutes, fewer, so that a stop
// takes effect within a fraction of a second. The split changes no bit of the result.
static int32_t dirs_of_a_call(const brim_ars *w) {
  enum { STEPS_OF_A_THREAD = 65536 };
  const brim_rollout_shape *s = &w->shape;
  if (!w->context.device->info.host_memory) return s->dir_chunk;
  int64_t each = (int64_t)s->num_envs * s->episode_length;
  int64_t dirs = STEPS_OF_A_THREAD * (int64_t)(w->where.threads > 0 ? w->where.threads : 1) / each;
  return dirs < 1 ? 1 : dirs < s->dir_chunk ? (int32_t)dirs : s->dir_chunk;
}

static brim_status roll_out(brim_ars *w) {
  const int32_t most = dirs_of_a_call(w);
  brim_rollout_job job = {
      .iteration = w->step, .noise_std = (float)w->noise_std, .shift = (float)w->shift};
  for (int32_t first = 0; first < w->shape.num_dirs; first += most) {
    // stopping here is safe: rollouts change nothing before the update
    if (first > 0 && w->stop && *w->stop) {
      return brim_fail(BRIM_EINTERRUPTED, "interrupted in iteration %" PRId64, w->step + 1);
    }
    int32_t left = w->shape.num_dirs - first;
    job.first_dir = first;
    job.dirs = left < most ? left : most;
    BRIM_TRY(w->table->run(&w->where, &w->shape, w->block, &job));
  }
  return BRIM_OK;
}

// Terminated episodes, plus diverged ones in environments where termination is bad.
static int64_t ended_early(const brim_ars *w, int64_t terminated, int64_t diverged) {
  return terminated + (w->shape.row->ended.better == BRIM_BETTER_LOWER ? diverged : 0);
}

// Sums the returns of the first `dirs` directions. A return is the mean reward over the environments of one
// sign of a direction.
static brim_ars_returns returns_of(const brim_ars *w, int32_t dirs) {
  brim_ars_returns r = {0};
  for (int32_t i = 0; i < dirs * 2; i++) {
    const brim_rollout_tally *t = &w->tally[i];
    r.steps += t->steps;
    r.ended += ended_early(w, t->terminated, t->diverged);
    r.diverged += t->diverged;
    // every environment begins one episode, and with restarts another after each that ended early
    r.episodes += t->envs + (w->shape.once ? 0 : t->terminated + t->diverged);
    double mean = t->envs > 0 ? t->reward / (double)t->envs : (double)NAN;
    if (!isfinite(mean)) continue;
    r.count++;
    r.sum += mean;
    r.sum_sq += mean * mean;
  }
  return r;
}

// True if the directions that the update kept all have the highest possible return: equal returns are no
// trouble then. With restarts a rollout has no highest return.
static bool is_solved(const brim_ars *w) {
  const brim_rollout_shape *s = &w->shape;
  const double best = s->row->best(s->env.bytes, s->episode_length);
  if (!s->once || !isfinite(best) || w->update->used == 0) return false;
  // the caller has found equal returns of all kept directions, so one direction at the bound decides
  for (int32_t i = 0; i < s->num_dirs * 2; i++) {
    if (w->tally[i].reward >= best * (double)w->tally[i].envs) return true;
  }
  return false;
}

// Adds an iteration to the sums since the last read. Returns its environment steps.
static int64_t add_iteration(brim_ars *w) {
  brim_ars_returns r = returns_of(w, w->shape.num_dirs);
  returns_add(&w->sums.returns, &r);
  w->sums.update = *w->update;
  w->sums.skipped_updates += w->update->skipped && !is_solved(w);
  return r.steps;
}

static brim_status iterate(brim_ars *w, const brim_spans *spans) {
  brim_device *device = w->context.device;
  brim_span_begin(spans, BRIM_PHASE_ENV, "rollout");
  brim_status status = roll_out(w);
  // wait here, so that a measured span holds the time of its rollouts
  if (!status && spans) status = brim_device_sync(device);
  brim_span_end(spans, BRIM_PHASE_ENV, "rollout");
  if (status) return status;
  brim_span_begin(spans, BRIM_PHASE_UPDATE, "update");
  const int32_t top = w->top_directions < w->shape.num_dirs ? w->top_directions : w->shape.num_dirs;
  status = w->table->update(&w->where, &w->shape, w->block, w->step, top, (float)w->step_size);
  if (!status) status = read_back(w, w->tally, w->layout.tally, tally_bytes(&w->shape));
  if (!status) status = read_back(w, w->update, w->layout.update, sizeof *w->update);
  if (!status) status = brim_device_sync(device);
  brim_span_end(spans, BRIM_PHASE_UPDATE, "update");
  return status;
}

static void ars_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_ars *)work)->stop = stop;
}

static brim_status ars_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_ars *w = (brim_ars *)work;
  memset(out, 0, sizeof *out);
  BRIM_TRY(iterate(w, spans));
  out->samples = add_iteration(w);
  out->epoch = epoch_of(w, w->step);
  w->step++;
  out->step = w->step;
  out->lr = w->step_size;
  out->epoch_end = w->step % w->interval == 0 || w->step == w->iterations;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

static const brim_metric_set *ars_metric_set(void *work) { return &((brim_ars *)work)->rows.set; }

static void ars_figures(void *work, const double *sums, double *values) {
  (void)work;
  const brim_ars_returns r = brim_returns_unpack(sums);
  brim_returns_values(&r, values);
}

static brim_status ars_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_ars *w = (brim_ars *)work;
  brim_work_metrics_clear(&w->rows.set, out);
  brim_returns_pack(&w->sums.returns, out->sums);
  brim_returns_values(&w->sums.returns, out->values);
  out->samples = w->sums.returns.steps;
  out->skipped = w->sums.skipped_updates;
  out->values[BRIM_ARS_UPDATE_NORM] = w->sums.update.step_norm;
  out->values[BRIM_ARS_POLICY_NORM] = w->sums.update.theta_norm;
  out->values[BRIM_ARS_SIGMA] = w->sums.update.sigma;
  if (reset) memset(&w->sums.returns, 0, sizeof w->sums.returns);
  return BRIM_OK;
}

static void add_episode(const brim_ars *w, const brim_rollout_episode *e, brim_ars_returns *r) {
  r->episodes++;
  r->steps += e->length;
  r->ended += ended_early(w, e->outcome == BRIM_ENV_TERMINATED, e->outcome == BRIM_ENV_DIVERGED);
  r->diverged += e->outcome == BRIM_ENV_DIVERGED;
  // The reward of a diverged episode counts too: leaving it out would make the policy look better.
  if (!isfinite((double)e->reward)) return;
  r->count++;
  r->sum += (double)e->reward;
  r->sum_sq += (double)e->reward * (double)e->reward;
}

// Adds the environment's own figures of all episodes.
static void add_figures(const brim_ars *w, brim_ars_returns *r) {
  const brim_rollout_shape *s = &w->shape;
  const size_t each = (size_t)s->row->sizes(s->env.bytes).figures;
  const float *raw = (const float *)(const void *)(w->evaluated + s->eval_episodes);
  for (int64_t i = 0; s->row->count && i < w->episodes; i++) {
    s->row->count(s->env.bytes, s->episode_length, &w->evaluated[i], raw + (size_t)i * each,
                  r->figure);
  }
}

static brim_status evaluate(brim_ars *w, bool zero, brim_ars_returns *out) {
  const brim_rollout_eval how = {
      .episodes = (int32_t)w->episodes,
      .zero = zero,
      .stream = w->held_out ? BRIM_ARS_STREAM_HELD_OUT : BRIM_ARS_STREAM_TRAINING,
  };
  memset(out, 0, sizeof *out);
  BRIM_TRY(w->table->evaluate(&w->where, &w->shape, w->block, &how));
  BRIM_TRY(read_back(w, w->evaluated, w->layout.episodes, episodes_bytes(&w->shape)));
  BRIM_TRY(brim_device_sync(w->context.device));
  for (int64_t i = 0; i < w->episodes; i++) add_episode(w, &w->evaluated[i], out);
  add_figures(w, out);
  return BRIM_OK;
}

static brim_status evaluate_baseline(brim_ars *w) {
  if (w->has_baseline) return BRIM_OK;
  BRIM_TRY(evaluate(w, true, &w->baseline));
  w->has_baseline = true;
  return BRIM_OK;
}

// Rolls out directions with the zero policy. Overwrites the policy on the device with zeros.
static brim_status roll_out_zero(brim_ars *w, int32_t dirs) {
  size_t bytes = w->layout.params * sizeof(float);
  float *zero = (float *)brim_calloc(w->layout.params, sizeof *zero);
  if (!zero) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the policy");
  brim_status status = brim_device_copy(w->context.device, (char *)w->block + w->layout.theta, zero,
                                        bytes, BRIM_COPY_H2D);
  brim_rollout_job job = {.dirs = dirs, .shift = (float)w->shift};
  if (!status) status = w->table->run(&w->where, &w->shape, w->block, &job);
  if (!status) status = read_back(w, w->tally, w->layout.tally, tally_bytes(&w->shape));
  if (!status) status = brim_device_sync(w->context.device);
  brim_free(zero);
  return status;
}

// Measures the zero policy the way training measures returns: with the environments, length and restarts of
// the first directions of the first iteration, but without noise. Progress lines compare with it.
static brim_status training_baseline(brim_ars *w) {
  int64_t dirs = (w->episodes + w->shape.num_envs - 1) / w->shape.num_envs;
  if (dirs > w->shape.dir_chunk) dirs = w->shape.dir_chunk;
  brim_ars_state kept = {0};
  brim_status status = brim_ars_fetch(w, &kept);
  if (!status) status = roll_out_zero(w, (int32_t)dirs);
  if (!status) w->training_baseline = returns_of(w, (int32_t)dirs);
  brim_status back = kept.theta ? upload_state(w, &kept) : BRIM_OK;
  brim_ars_state_deinit(&kept);
  return status ? status : back;
}

static brim_status ars_baseline(void *work) {
  brim_ars *w = (brim_ars *)work;
  if (w->episodes == 0) return BRIM_OK;
  BRIM_TRY(evaluate_baseline(w));
  return w->training_baseline.steps > 0 ? BRIM_OK : training_baseline(w);
}

static brim_status ars_evaluate(void *work, brim_work_metrics *out) {
  brim_ars *w = (brim_ars *)work;
  if (w->episodes == 0) {
    return brim_fail(BRIM_ESTATE,
                     "nothing to evaluate: ars.eval_episodes is 0; set it to the number of "
                     "held-out episodes, such as 100");
  }
  BRIM_TRY(evaluate_baseline(w));
  brim_ars_returns returns;
  brim_work_metrics_clear(&w->rows.set, out);
  BRIM_TRY(evaluate(w, false, &returns));
  brim_returns_pack(&returns, out->sums);
  brim_returns_values(&returns, out->values);
  brim_returns_values(&w->baseline, out->baseline);
  out->samples = returns.episodes;
  out->bad = returns.diverged;
  return BRIM_OK;
}

//---------------------------------- state ----------------------------------

static brim_status ars_snapshot(void *work) {
  brim_ars *w = (brim_ars *)work;
  BRIM_TRY(brim_ars_fetch(w, &w->saved_state));
  w->saved_step = w->step;
  w->saved_sums = w->sums;
  return BRIM_OK;
}

static brim_status ars_restore(void *work) {
  brim_ars *w = (brim_ars *)work;
  BRIM_TRY(upload_state(w, &w->saved_state));
  w->step = w->saved_step;
  w->sums = w->saved_sums;
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {.evaluate = ars_evaluate, .use = ars_use};
static const brim_work_policy_table policy = {.baseline = ars_baseline};
static const brim_work_shrink_table shrinking = {.shrink = ars_shrink};

static const brim_work_settings_table settings = {.resolve = ars_resolve};
static const brim_work_text_table text = {.start_lines = ars_start_lines,
                                          .eval_notes = brim_ars_eval_notes};

static const brim_work_shipped shipped[] = {{"quadruped", "quadruped-stand.yaml"},
                                            {"cartpole", "cartpole.yaml"}};

const brim_workload_table brim_workload_ars = {
    .name = "ars",
    .any_part = true,
    .model = "linear_policy",
    .makes = BRIM_N_("an ars policy"),
    .options = brim_ars_options,
    .option_count = BRIM_ARS_OPTIONS,
    .topic = &brim_ars_topic,
    .section = &brim_ars_section,
    .length_key = "ars.iterations",
    .without_eval = "ars.eval_episodes=0",
    .config = "quadruped-stand.yaml",
    .shipped = shipped,
    .shipped_count = sizeof shipped / sizeof *shipped,
    .knob_set = &brim_ars_knob_set,
    .metric_set = &usual_metrics,
    .metric_set_of = ars_metric_set,
    .sums = &sum_rows,
    .diagnosis = &diagnosis,
    .open = ars_open,
    .close = ars_close,
    .knobs = ars_knobs,
    .sensible = ars_sensible,
    .plan = ars_plan,
    .resuming = ars_resuming,
    .configure = ars_configure,
    .info = ars_info,
    .step = ars_step,
    .stops = ars_stops,
    .metrics = ars_metrics,
    .figures = ars_figures,
    .save = ars_save,
    .load = ars_load,
    .owns = ars_owns,
    .snapshot = ars_snapshot,
    .restore = ars_restore,
    .settings = &settings,
    .text = &text,
    .evaluation = &evaluation,
    .policy = &policy,
    .replay = &replay_table,
    .shrinking = &shrinking,
    .findings = &brim_ars_findings,
    .views = &brim_ars_views,
};
