// What multi-agent PPO measures, as rows: returns and figures of episodes beside those of random actions and
// of the environment's rules, the losses, and the rates of an iteration.
#include <math.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

//---------------------------------- values ----------------------------------

static double ratio(double sum, double count) { return count > 0 ? sum / count : (double)NAN; }

static double spread(const brim_collect_tally *t) {
  const double n = (double)t->episodes;
  if (t->episodes < 2) return (double)NAN;
  return sqrt(fmax(t->reward_sq - t->reward * (t->reward / n), 0) / (n - 1));
}

// Where it is bad to be terminated, what diverged is as bad.
static double ended(const brim_mappo_rows *rows, const brim_collect_tally *t) {
  const bool bad = rows->env->ended.better == BRIM_BETTER_LOWER;
  return (double)(t->terminated + (bad ? t->diverged : 0));
}

void brim_mappo_values(const brim_mappo_rows *rows, const brim_collect_tally *t,
                       double values[BRIM_METRIC_MAX]) {
  const double n = (double)t->episodes;
  const bool any = t->episodes > 0;
  values[BRIM_MAPPO_RETURN] = ratio(t->reward, n);
  values[BRIM_MAPPO_SPREAD] = spread(t);
  values[BRIM_MAPPO_ERROR] = spread(t) / sqrt(n);  // NaN of fewer than two
  values[BRIM_MAPPO_ENDED] = any ? ended(rows, t) : (double)NAN;
  values[BRIM_MAPPO_ENDED_RATE] = ratio(ended(rows, t), n);
  values[BRIM_MAPPO_DIVERGED] = any ? (double)t->diverged : (double)NAN;
  values[BRIM_MAPPO_LENGTH] = ratio(t->length, n);
  values[BRIM_MAPPO_EPISODES] = any ? n : (double)NAN;
  for (size_t f = 0; f < rows->figures; f++) {
    values[BRIM_MAPPO_ROWS + f] = ratio(t->figures[f][0], t->figures[f][1]);
  }
}

void brim_mappo_rule_values(const brim_mappo *w, double values[BRIM_METRIC_MAX]) {
  const brim_mappo_rows *r = &w->rows;
  for (size_t rule = 0; rule < r->rules; rule++) {
    double own[BRIM_METRIC_MAX];
    brim_metric_unknown(own);
    brim_mappo_values(r, &w->baseline[1 + rule], own);
    values[r->rule_at[rule]] = own[BRIM_MAPPO_RETURN];
    for (size_t f = 0; f < r->figures; f++) {
      values[r->rule_at[rule] + 1 + f] = own[BRIM_MAPPO_ROWS + f];
    }
  }
}

void brim_mappo_pack(const brim_collect_tally *t, double sums[BRIM_MAPPO_SUMS]) {
  sums[BRIM_MAPPO_SUM_EPISODES] = (double)t->episodes;
  sums[BRIM_MAPPO_SUM_TERMINATED] = (double)t->terminated;
  sums[BRIM_MAPPO_SUM_TRUNCATED] = (double)t->truncated;
  sums[BRIM_MAPPO_SUM_DIVERGED] = (double)t->diverged;
  sums[BRIM_MAPPO_SUM_REWARD] = t->reward;
  sums[BRIM_MAPPO_SUM_REWARD_SQ] = t->reward_sq;
  sums[BRIM_MAPPO_SUM_LENGTH] = t->length;
  memcpy(sums + BRIM_MAPPO_SUM_FIGURES, t->figures, sizeof t->figures);
}

static brim_collect_tally unpack(const double *sums) {
  brim_collect_tally t = {.episodes = (int64_t)sums[BRIM_MAPPO_SUM_EPISODES],
                          .terminated = (int64_t)sums[BRIM_MAPPO_SUM_TERMINATED],
                          .truncated = (int64_t)sums[BRIM_MAPPO_SUM_TRUNCATED],
                          .diverged = (int64_t)sums[BRIM_MAPPO_SUM_DIVERGED],
                          .reward = sums[BRIM_MAPPO_SUM_REWARD],
                          .reward_sq = sums[BRIM_MAPPO_SUM_REWARD_SQ],
                          .length = sums[BRIM_MAPPO_SUM_LENGTH]};
  memcpy(t.figures, sums + BRIM_MAPPO_SUM_FIGURES, sizeof t.figures);
  return t;
}

void brim_mappo_figures(void *work, const double *sums, double values[BRIM_METRIC_MAX]) {
  const brim_mappo *w = (const brim_mappo *)work;
  const brim_collect_tally t = unpack(sums);
  const double rows = sums[BRIM_MAPPO_SUM_ROWS];
  brim_mappo_values(&w->rows, &t, values);
  values[BRIM_MAPPO_POLICY_LOSS] = ratio(sums[BRIM_MAPPO_SUM_POLICY_LOSS], rows);
  values[BRIM_MAPPO_ENTROPY] = ratio(sums[BRIM_MAPPO_SUM_ENTROPY], rows);
  values[BRIM_MAPPO_KL] = ratio(sums[BRIM_MAPPO_SUM_KL], rows);
  values[BRIM_MAPPO_CLIPPED] = ratio(sums[BRIM_MAPPO_SUM_CLIPPED], rows);
  values[BRIM_MAPPO_VALUE_LOSS] =
      ratio(sums[BRIM_MAPPO_SUM_VALUE_LOSS], sums[BRIM_MAPPO_SUM_VALUES]);
  values[BRIM_MAPPO_EXPLAINED] =
      ratio(sums[BRIM_MAPPO_SUM_EXPLAINED], sums[BRIM_MAPPO_SUM_EXPLAINED_COUNT]);
}

_Static_assert((int)BRIM_MAPPO_SUMS <= (int)BRIM_WORK_MAX_SUMS, "the sums fit");

const brim_work_sums brim_mappo_sum_rows = {
    .names = {"rows",       "policy_loss",     "entropy",    "kl",
              "clipped",    "values",          "value_loss", "bad",
              "explained",  "explained_count", "steps",      "episodes",
              "terminated", "truncated",       "diverged",   "reward",
              "reward_sq",  "length",          "figure_0",   "figure_0_count",
              "figure_1",   "figure_1_count",  "figure_2",   "figure_2_count",
              "figure_3",   "figure_3_count",  "figure_4",   "figure_4_count",
              "figure_5",   "figure_5_count"},
    .count = BRIM_MAPPO_SUMS,
    .packed = "mappo"};

//---------------------------------- rows ----------------------------------

enum {
  STEPS = BRIM_METRIC_AT(BRIM_METRIC_STEPS),
  TRAIN = BRIM_METRIC_AT(BRIM_METRIC_TRAIN),
  EVAL = BRIM_METRIC_AT(BRIM_METRIC_EVAL),
  RANDOM = BRIM_METRIC_AT(BRIM_METRIC_BASELINE),
  ALL = STEPS | TRAIN | EVAL | RANDOM,
  LINE_STEPS = BRIM_METRIC_AT(BRIM_METRIC_LINE_STEPS),
  LINE_TRAIN = BRIM_METRIC_AT(BRIM_METRIC_LINE_TRAIN),
  LINE_EVAL = BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL),
  LINE_PROGRESS = BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS),
  LINE_SUMMARY = BRIM_METRIC_AT(BRIM_METRIC_LINE_SUMMARY),
  LINE_TABLE = BRIM_METRIC_AT(BRIM_METRIC_LINE_TABLE),
};

// Of training alone.
#define LEARNED(key_, label_, lines_, flags_)                                            \
  {                                                                                      \
    .key = key_, .label = label_, .digits = 3, .flags = flags_, .stages = STEPS | TRAIN, \
    .lines = lines_, .join = BRIM_METRIC_COMMA,                                          \
  }
// The throughput in another unit.
#define RATE(key_, unit_, lines_)                                            \
  {                                                                          \
    .key = key_, .label = "", .unit = unit_, .format = BRIM_METRIC_LARGE,    \
    .flags = BRIM_METRIC_OPTIONAL, .stages = STEPS | TRAIN, .lines = lines_, \
    .join = BRIM_METRIC_COMMA,                                               \
  }

static const brim_metric rows[BRIM_MAPPO_ROWS] = {
    [BRIM_MAPPO_RETURN] = {.key = "return",
                           .label = BRIM_N_("return"),
                           .train_label = BRIM_N_("training return"),
                           .better = BRIM_BETTER_HIGHER,
                           .stages = ALL,
                           .lines = LINE_STEPS | LINE_TRAIN | LINE_EVAL | LINE_PROGRESS |
                                    LINE_SUMMARY | LINE_TABLE,
                           .beside = LINE_EVAL | LINE_PROGRESS,
                           .rank = 1},
    [BRIM_MAPPO_SPREAD] = {.key = "spread",
                           .label = BRIM_N_("spread"),
                           .digits = 3,
                           .join = BRIM_METRIC_SPREAD,
                           .stages = ALL,
                           .lines = LINE_EVAL | LINE_SUMMARY | LINE_TABLE},
    [BRIM_MAPPO_ENDED] = {.key = "fell",
                          .label = BRIM_N_("falls"),
                          .format = BRIM_METRIC_WHOLE,
                          .flags = BRIM_METRIC_NO_CSV,
                          .stages = EVAL | RANDOM,
                          .lines = LINE_TABLE},
    [BRIM_MAPPO_ENDED_RATE] = {.key = "falls",
                               .label = BRIM_N_("falls"),
                               .table_label = BRIM_N_("fall rate"),
                               .better = BRIM_BETTER_LOWER,
                               .format = BRIM_METRIC_PERCENT,
                               .digits = 1,
                               .join = BRIM_METRIC_COMMA,
                               .stages = ALL,
                               .lines = LINE_EVAL | LINE_SUMMARY | LINE_TABLE,
                               .beside = LINE_EVAL},
    [BRIM_MAPPO_DIVERGED] = {.key = "diverged",
                             .label = BRIM_N_("diverged"),
                             .format = BRIM_METRIC_WHOLE,
                             .join = BRIM_METRIC_COMMA,
                             .flags = BRIM_METRIC_POSITIVE | BRIM_METRIC_NO_CSV,
                             .stages = ALL,
                             .lines = LINE_STEPS | LINE_EVAL | LINE_SUMMARY},
    [BRIM_MAPPO_LENGTH] = {.key = "length",
                           .label = BRIM_N_("mean length"),
                           .stages = ALL,
                           .lines = LINE_TABLE},
    [BRIM_MAPPO_EPISODES] = {.key = "episodes",
                             .label = BRIM_N_("episodes"),
                             .format = BRIM_METRIC_WHOLE,
                             .stages = ALL},
    [BRIM_MAPPO_ERROR] = {.key = "return_error", .label = ""},
    [BRIM_MAPPO_POLICY_LOSS] = LEARNED("policy_loss", BRIM_N_("policy loss"), LINE_STEPS, 0),
    [BRIM_MAPPO_VALUE_LOSS] = LEARNED("value_loss", BRIM_N_("value loss"), LINE_STEPS, 0),
    [BRIM_MAPPO_ENTROPY] =
        LEARNED("policy_entropy", BRIM_N_("entropy"), LINE_STEPS | LINE_TRAIN, 0),
    [BRIM_MAPPO_KL] = LEARNED("approx_kl", BRIM_N_("KL"), LINE_STEPS | LINE_TRAIN, 0),
    [BRIM_MAPPO_CLIPPED] = {.key = "clipped_share",
                            .label = BRIM_N_("clipped"),
                            .format = BRIM_METRIC_PERCENT,
                            .digits = 1,
                            .join = BRIM_METRIC_COMMA,
                            .stages = STEPS | TRAIN,
                            .lines = LINE_STEPS},
    [BRIM_MAPPO_EXPLAINED] =
        LEARNED("explained_variance", BRIM_N_("explained variance"), LINE_STEPS, 0),
    [BRIM_MAPPO_ACTOR_NORM] = LEARNED("actor_grad_norm", "", 0, BRIM_METRIC_NO_CSV),
    [BRIM_MAPPO_CRITIC_NORM] = LEARNED("critic_grad_norm", "", 0, BRIM_METRIC_NO_CSV),
    [BRIM_MAPPO_COLLECTED] = RATE("collected_per_s", BRIM_N_("agent-steps/s collected"), 0),
    [BRIM_MAPPO_TRAINED] = RATE("trained_per_s", BRIM_N_("agent-samples/s trained"), LINE_STEPS),
    [BRIM_MAPPO_STEPPED] = RATE("env_steps_per_s", BRIM_N_("environment steps/s"), LINE_STEPS),
};

const brim_metric_set brim_mappo_set = {.rows = rows,
                                        .count = BRIM_MAPPO_ROWS,
                                        .baseline_label = BRIM_N_("random"),
                                        .baseline_short = BRIM_N_("of random actions"),
                                        .subject = BRIM_N_("this policy"),
                                        .summary = BRIM_N_(" in %lld held-out episodes")};

//---------------------------------- the environment's ----------------------------------

_Static_assert((int)BRIM_MAPPO_ROWS + (int)BRIM_ENV_MAX_FIGURES +
                       (int)BRIM_MAPPO_MAX_RULES * (1 + (int)BRIM_ENV_MAX_FIGURES) <=
                   (int)BRIM_METRIC_MAX,
               "the environment's figures and those of its rules fit behind the workload's rows");

static const char *name_of(brim_mappo_rows *r, const char *before, const char *key) {
  return brim_work_env_name(r->names[r->name_count++], before, key);
}

// The two rows of episodes that were terminated, which have other names in every environment.
static void take_ended(brim_mappo_rows *r, const brim_env_ended *e) {
  brim_metric *count = &r->rows[BRIM_MAPPO_ENDED], *rate = &r->rows[BRIM_MAPPO_ENDED_RATE];
  brim_work_env_label_ended(e, count, rate);
  rate->key = e->key;
  count->key = strcmp(e->count, e->key) == 0 ? name_of(r, "count_", e->count) : e->count;
}

static void add_figure(brim_mappo_rows *r, const brim_metric *from) {
  brim_metric *row = &r->rows[r->set.count++];
  *row = *from;
  memset(row->names, 0, sizeof row->names);
  row->stages = ALL;
  row->lines |= LINE_STEPS | LINE_EVAL | LINE_TABLE;
  row->join = BRIM_METRIC_COMMA;
  row->beside |= LINE_EVAL;
}

// What a rule of the environment comes to in the same episodes: in log.jsonl and in `brim eval --json`.
static void add_rule(brim_mappo_rows *r, const char *rule) {
  char before[BRIM_METRIC_NAME];
  snprintf(before, sizeof before, "%s_", rule);
  r->rule_at[r->rules++] = r->set.count;
  for (size_t i = 0; i <= r->figures; i++) {
    const brim_metric *of = i == 0 ? &rows[BRIM_MAPPO_RETURN] : &r->env->figures[i - 1];
    brim_metric *row = &r->rows[r->set.count++];
    *row = (brim_metric){.key = name_of(r, before, of->key),
                         .label = of->label,
                         .format = of->format,
                         .digits = of->digits,
                         .unit = of->unit,
                         .stages = EVAL,
                         .flags = BRIM_METRIC_OPTIONAL | BRIM_METRIC_NO_CSV};
    row->names[BRIM_METRIC_EVAL] = (brim_metric_names){NULL, "", "", NULL};
  }
}

void brim_mappo_rows_init(brim_mappo_rows *r, const brim_env_row *env) {
  memset(r, 0, sizeof *r);
  memcpy(r->rows, rows, sizeof rows);
  r->set = brim_mappo_set;
  r->set.rows = r->rows;
  r->env = env;
  r->figures = env->figure_count;
  take_ended(r, &env->ended);
  for (size_t f = 0; f < env->figure_count; f++) add_figure(r, &env->figures[f]);
  for (size_t i = 0; env->rules && env->rules[i] && i < BRIM_MAPPO_MAX_RULES; i++) {
    add_rule(r, env->rules[i]);
  }
}

void brim_mappo_rows_beside_rule(brim_mappo_rows *r) {
  if (r->rules == 0) return;
  snprintf(r->beside, sizeof r->beside, brim_tr("%.40s rule"), r->env->rules[0]);
  r->set.baseline_label = r->beside;
  for (size_t i = 0; i <= r->figures; i++) {
    brim_metric *row = &r->rows[i == 0 ? BRIM_MAPPO_RETURN : BRIM_MAPPO_ROWS + i - 1];
    row->names[BRIM_METRIC_BASELINE].column = name_of(r, "eval_", r->rows[r->rule_at[0] + i].key);
  }
}

const brim_metric_set *brim_mappo_metric_set(void *work) { return &((brim_mappo *)work)->rows.set; }

//---------------------------------- lines ----------------------------------

// "return 12.3, coverage 41.2 %" of a tally.
static void figures_text(const brim_mappo_rows *r, const brim_collect_tally *t, char *out,
                         size_t size) {
  double values[BRIM_METRIC_MAX];
  char number[32];
  brim_metric_unknown(values);
  brim_mappo_values(r, t, values);
  brim_metric_format_value(&r->rows[BRIM_MAPPO_RETURN], values[BRIM_MAPPO_RETURN], number);
  int n = snprintf(out, size, "%s %s", brim_tr("return"), number);
  for (size_t f = 0; f < r->figures && n > 0 && (size_t)n < size; f++) {
    const brim_metric *row = &r->rows[BRIM_MAPPO_ROWS + f];
    if (isnan(values[BRIM_MAPPO_ROWS + f])) continue;  // of another task
    brim_metric_format_value(row, values[BRIM_MAPPO_ROWS + f], number);
    n += snprintf(out + n, size - (size_t)n, ", %s %s", brim_tr(row->label), number);
  }
}

static void baseline_line(const brim_mappo *w, size_t rule, brim_work_line *out) {
  const char *name = rule == 0 ? brim_tr("random") : w->rows.env->rules[rule - 1];
  char text[200];
  figures_text(&w->rows, &w->baseline[rule], text, sizeof text);
  out->label = BRIM_N_("baseline");
  snprintf(out->text, sizeof out->text, "%s: %s", name, text);
}

size_t brim_mappo_start_lines(void *work, brim_work_line *out, size_t most) {
  const brim_mappo *w = (const brim_mappo *)work;
  const brim_mappo_sizes *s = &w->sizes;
  char count[32], batch[32];
  size_t n = 0;
  if (most < 4 + BRIM_MAPPO_MAX_RULES) return 0;
  brim_format_count((double)s->envs * s->steps * w->z.agents, count);
  brim_format_count((double)s->batch * w->z.agents, batch);
  out[n].label = BRIM_N_("iteration");
  snprintf(
      out[n].text, sizeof out[n].text,
      brim_tr("environments %d x steps %d x agents %d = %s agent-steps; epochs %d x minibatches %d "
              "of %s agent samples"),
      s->envs, s->steps, w->z.agents, count, w->how.epochs, s->minibatches, batch);
  n++;
  if (brim_mappo_fused_line(w, &out[n])) n++;
  const long long interval = (long long)brim_config_int(w->config, "checkpoint.interval");
  if (interval > 0) {
    out[n].label = BRIM_N_("checkpoint");
    snprintf(out[n].text, sizeof out[n].text, brim_tr("every %lld episodes, and after each epoch"),
             interval);
    n++;
  }
  if (!w->has_baseline) return n;
  for (size_t rule = 0; rule <= w->rows.rules; rule++) baseline_line(w, rule, &out[n++]);
  return n;
}

// What the environment has to say, and its rules in the same episodes.
void brim_mappo_eval_notes(const brim_work_metrics *metrics, brim_str *out) {
  const brim_mappo_rows *r = (const brim_mappo_rows *)(const void *)metrics->set;
  const double *v = metrics->values;
  char number[32];
  if (r->env->notes) r->env->notes(v + BRIM_MAPPO_ROWS, (int64_t)v[BRIM_MAPPO_EPISODES], out);
  for (size_t rule = 0; rule < r->rules; rule++) {
    brim_str_printf(out, "\n%s: ", r->env->rules[rule]);
    for (size_t i = 0; i <= r->figures; i++) {
      const size_t at = r->rule_at[rule] + i;
      if (isnan(v[at])) continue;
      brim_metric_format_value(&r->rows[at], v[at], number);
      brim_str_printf(out, "%s%s %s", i ? ", " : "", brim_tr(r->rows[at].label), number);
    }
    brim_str_append_char(out, '\n');
  }
}
