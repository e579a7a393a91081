// What a policy search measures, as rows: returns, lengths and ends of episodes and what else the
// environment measures of them, beside those of a policy that does nothing, and the last update.
#include <math.h>
#include <string.h>

#include "workload/ars/ars_int.h"

//---------------------------------- returns ----------------------------------

void brim_returns_add(brim_ars_returns *sum, const brim_ars_returns *part) {
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

double brim_returns_spread(const brim_ars_returns *r) {
  if (r->count < 2) return (double)NAN;
  double n = (double)r->count, square = r->sum_sq - r->sum * (r->sum / n);
  return sqrt(fmax(square, 0) / (n - 1));
}

double brim_returns_error(const brim_ars_returns *r) {
  return brim_returns_spread(r) / sqrt((double)r->count);  // NaN of fewer than two
}

double brim_returns_ended(const brim_ars_returns *r) {
  return r->episodes > 0 ? (double)r->ended / (double)r->episodes : (double)NAN;
}

double brim_returns_length(const brim_ars_returns *r) {
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

// One list: the figures' names are the environment's.
const brim_work_sums brim_ars_sum_rows = {
    .count = BRIM_ARS_SUMS, .packed = "returns", .least = BRIM_ARS_SUMS_0_1};

void brim_returns_values(const brim_ars_returns *r, double values[BRIM_METRIC_MAX]) {
  bool any = r->episodes > 0;
  values[BRIM_ARS_RETURN] = brim_returns_mean(r);
  values[BRIM_ARS_SPREAD] = brim_returns_spread(r);
  values[BRIM_ARS_ERROR] = brim_returns_error(r);
  values[BRIM_ARS_ENDED] = any ? (double)r->ended : (double)NAN;
  values[BRIM_ARS_ENDED_RATE] = brim_returns_ended(r);
  values[BRIM_ARS_LENGTH] = brim_returns_length(r);
  values[BRIM_ARS_EPISODES] = any ? (double)r->episodes : (double)NAN;
  values[BRIM_ARS_DIVERGED] = any ? (double)r->diverged : (double)NAN;
  for (int f = 0; f < BRIM_ENV_MAX_FIGURES; f++) {
    values[BRIM_ARS_ROWS + f] =
        r->figure[f][1] > 0 ? r->figure[f][0] / r->figure[f][1] : (double)NAN;
  }
}

//---------------------------------- rows ----------------------------------

enum {
  STEPS = BRIM_METRIC_AT(BRIM_METRIC_STEPS),
  TRAIN = BRIM_METRIC_AT(BRIM_METRIC_TRAIN),
  EVAL = BRIM_METRIC_AT(BRIM_METRIC_EVAL),
  ZERO = BRIM_METRIC_AT(BRIM_METRIC_BASELINE),
  ALL = STEPS | TRAIN | EVAL | ZERO,
  LINE_STEPS = BRIM_METRIC_AT(BRIM_METRIC_LINE_STEPS),
  LINE_TRAIN = BRIM_METRIC_AT(BRIM_METRIC_LINE_TRAIN),
  LINE_EVAL = BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL),
  LINE_PROGRESS = BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS),
  LINE_SUMMARY = BRIM_METRIC_AT(BRIM_METRIC_LINE_SUMMARY),
  LINE_TABLE = BRIM_METRIC_AT(BRIM_METRIC_LINE_TABLE),
};

// Names of a row that the logs have for training, evaluation and the zero policy.
#define LOGGED(key_, inner, figure_)                                                              \
  {                                                                                               \
    [BRIM_METRIC_STEPS] = {.event = "directions." inner},                                         \
    [BRIM_METRIC_TRAIN] = {.event = "directions." inner},                                         \
    [BRIM_METRIC_EVAL] = {.event = "return." inner, .figure = figure_},                           \
    [BRIM_METRIC_BASELINE] = {"zero_" key_, "zero_" key_, "zero_policy." inner, "zero_" figure_}, \
  }
// Of one that they have for evaluations alone.
#define EVALUATED(column_, inner, figure_)                                    \
  {                                                                           \
    [BRIM_METRIC_STEPS] = {"", "", "directions." inner, ""},                  \
    [BRIM_METRIC_TRAIN] = {"", "", "directions." inner, ""},                  \
    [BRIM_METRIC_EVAL] = {column_, column_, "return." inner, figure_},        \
    [BRIM_METRIC_BASELINE] = {"", "", "zero_policy." inner, "zero_" figure_}, \
  }
// Of one that `brim eval` alone has.
#define REPORTED(figure_, zero_figure)                  \
  {                                                     \
    [BRIM_METRIC_EVAL] = {"", "", "", figure_},         \
    [BRIM_METRIC_BASELINE] = {"", "", "", zero_figure}, \
  }
// Of the last update.
#define UPDATE_ROW(key_)                                                                       \
  {                                                                                            \
    .key = key_, .label = "", .flags = BRIM_METRIC_NO_CSV, .stages = STEPS | TRAIN, .names = { \
      [BRIM_METRIC_STEPS] = {.event = ""},                                                     \
      [BRIM_METRIC_TRAIN] = {key_, key_, key_, ""}                                             \
    }                                                                                          \
  }

static const brim_metric rows[BRIM_ARS_ROWS] = {
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
                        .stages = EVAL | ZERO,
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

const brim_metric_set brim_ars_set = {.rows = rows,
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

// The two rows of episodes that were terminated, which have other names in every environment.
static void take_ended(brim_ars_rows *r, const brim_env_ended *e) {
  brim_metric *count = &r->rows[BRIM_ARS_ENDED], *rate = &r->rows[BRIM_ARS_ENDED_RATE];
  brim_work_env_label_ended(e, count, rate);
  if (strcmp(e->key, rate->key) == 0) return;  // as in the table
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
  row->stages = EVAL | ZERO;
  row->lines = LINE_TABLE;
  row->flags |= BRIM_METRIC_NO_CSV;
  row->names[BRIM_METRIC_EVAL].event = name_of(r, "return.", row->key);
  row->names[BRIM_METRIC_BASELINE] = (brim_metric_names){
      "", "", name_of(r, "zero_policy.", row->key), name_of(r, "zero_", row->key)};
}

void brim_ars_rows_init(brim_ars_rows *r, const brim_env_row *env) {
  memset(r, 0, sizeof *r);
  memcpy(r->rows, rows, sizeof rows);
  r->set = brim_ars_set;
  r->set.rows = r->rows;
  r->env = env;
  take_ended(r, &env->ended);
  for (size_t f = 0; f < env->figure_count; f++) add_figure(r, &env->figures[f]);
}

//---------------------------------- lines ----------------------------------

// A search has directions instead of data, and the zero policy to be better than.
size_t brim_ars_start_lines(void *work, brim_work_line *out, size_t most) {
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
           brim_returns_mean(zero), brim_returns_spread(zero), brim_tr(s->row->ended.label),
           brim_shown(100 * brim_returns_ended(zero)), (long long)zero->episodes);
  return 2;
}

// What the environment has to say. And numbers that diverged, of the policy or of the zero policy.
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
