// Multi-agent PPO: one step is one iteration, a rollout of all environments and the updates of actor and
// critic on it. An epoch is mappo.eval_interval iterations, mappo.iterations are the run.
#include "workload/mappo/mappo.h"

#include <math.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

//---------------------------------- building ----------------------------------

static size_t mappo_knobs(void *work, const brim_knob **out) {
  *out = ((brim_mappo *)work)->knobs;
  return BRIM_MAPPO_KNOBS;
}

static bool mappo_sensible(void *work, const brim_setting *setting) {
  brim_mappo_sizes sizes;
  const bool fine = brim_mappo_apply((const brim_mappo *)work, setting, &sizes) == BRIM_OK;
  if (!fine) brim_status_clear();
  return fine;
}

static void mappo_resuming(void *work, const json_t *metadata) {
  brim_mappo *w = (brim_mappo *)work;
  w->weights = NULL;
  if (metadata) brim_mappo_keep_choices(w, metadata);
}

static brim_status mappo_configure(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  brim_mappo_drop(w);
  brim_mappo_copy_free(w);
  BRIM_TRY(brim_mappo_apply(w, setting, &w->sizes));
  memset(&w->now, 0, sizeof w->now);
  brim_status status = brim_mappo_build(w);
  if (!status && w->weights) status = brim_mappo_start_from(w, w->weights);
  if (status) brim_mappo_drop(w);
  return status;
}

// Fewer environments, as long as minibatches divide them.
static bool mappo_shrink(void *work, brim_setting *setting) {
  int64_t *envs = &setting->value[BRIM_MAPPO_ENVS];
  while (*envs > 1) {
    *envs /= 2;
    if (mappo_sensible(work, setting)) return true;
  }
  return false;
}

// Gives up what the networks saw in a fused rollout. Rollouts get slower, and as many steps are learned from.
static bool mappo_free_optional(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  brim_plan with, without;
  char bytes[32];
  if (w->general_rollout || brim_mappo_plan(work, setting, &with)) {
    brim_status_clear();
    return false;
  }
  w->general_rollout = true;
  const bool less = brim_mappo_plan(work, setting, &without) == BRIM_OK &&
                    without.bytes[BRIM_PLACE_DEVICE] < with.bytes[BRIM_PLACE_DEVICE];
  if (!less) {
    w->general_rollout = false;
    brim_status_clear();
    return false;
  }
  brim_format_bytes(with.bytes[BRIM_PLACE_DEVICE] - without.bytes[BRIM_PLACE_DEVICE], bytes);
  brim_log_warn("workload", "out of memory: brim stops fusing rollouts, which saves %s", bytes);
  return true;
}

// Iterations without effect, one after the other, that are nothing yet.
enum { FEW_ITERATIONS = 5 };

static int64_t samples_of(const brim_mappo *w) {
  return (int64_t)w->sizes.envs * w->sizes.steps * w->z.agents;
}

// Agent-steps are what a step's samples count. Episodes are those of full length.
static void set_rates(const brim_mappo *w, brim_work_info *out) {
  const double agents = w->z.agents, length = w->shape.episode_length;
  out->rates[BRIM_MAPPO_RATE_COLLECTED] =
      (brim_work_rate){BRIM_N_("agent-steps/s collected"), 1, 1 + BRIM_MAPPO_COLLECTED};
  out->rates[BRIM_MAPPO_RATE_TRAINED] =
      (brim_work_rate){BRIM_N_("agent-samples/s trained"), w->how.epochs, 1 + BRIM_MAPPO_TRAINED};
  out->rates[BRIM_MAPPO_RATE_STEPPED] =
      (brim_work_rate){BRIM_N_("environment steps/s"), 1 / agents, 1 + BRIM_MAPPO_STEPPED};
  out->rates[BRIM_MAPPO_RATE_EPISODES] =
      (brim_work_rate){BRIM_N_("full-length episodes/s"), 1 / (agents * length), 0};
  out->rate_count = BRIM_MAPPO_RATES;
}

static void mappo_info(void *work, brim_work_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  out->unit = BRIM_N_("agent steps");
  out->interval_unit = BRIM_N_("episodes");
  set_rates(w, out);
  out->samples_per_epoch = samples_of(w) * w->how.interval;
  out->set_samples = out->samples_per_epoch;
  out->steps_per_epoch = w->how.interval;
  out->epochs = brim_mappo_epochs(w);
  out->steps = w->how.iterations;
  out->eval_samples = w->how.episodes;
  out->eval_batch = w->how.episodes;
  out->learning_rate = w->optimizer.lr;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
  out->fused = brim_mappo_fused_text(w);
  out->watches_gpu = true;
  out->reads_often = true;
  out->idle_limit = FEW_ITERATIONS;
  out->has_baseline = w->has_baseline;
  out->baseline_samples = w->baseline[0].episodes;
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->training_baseline);
  if (!w->has_baseline) return;
  brim_mappo_values(&w->rows, &w->baseline[0], out->baseline);
  brim_mappo_values(&w->rows, &w->baseline[0], out->training_baseline);
}

//---------------------------------- stepping ----------------------------------

static void add_losses(brim_mappo *w) {
  static const int from[][2] = {{BRIM_MAPPO_SUM_ROWS, BRIM_PPO_ROWS},
                                {BRIM_MAPPO_SUM_POLICY_LOSS, BRIM_PPO_POLICY_LOSS},
                                {BRIM_MAPPO_SUM_ENTROPY, BRIM_PPO_ENTROPY},
                                {BRIM_MAPPO_SUM_KL, BRIM_PPO_KL},
                                {BRIM_MAPPO_SUM_CLIPPED, BRIM_PPO_CLIPPED},
                                {BRIM_MAPPO_SUM_VALUES, BRIM_PPO_VALUES},
                                {BRIM_MAPPO_SUM_VALUE_LOSS, BRIM_PPO_VALUE_LOSS}};
  const brim_mappo_report *r = w->report;
  double *sums = w->now.sums;
  for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
    sums[from[i][0]] += r->metrics[from[i][1]];
  }
  sums[BRIM_MAPPO_SUM_BAD] +=
      r->metrics[BRIM_PPO_BAD] + r->metrics[BRIM_PPO_BAD_VALUES] + (double)r->bad;
  sums[BRIM_MAPPO_SUM_STEPS] += (double)w->sizes.envs * w->sizes.steps;
  if (!isfinite(r->moments.explained)) return;
  sums[BRIM_MAPPO_SUM_EXPLAINED] += r->moments.explained;
  sums[BRIM_MAPPO_SUM_EXPLAINED_COUNT] += 1;
}

static void add_episodes(brim_mappo *w) {
  double packed[BRIM_MAPPO_SUMS] = {0};
  brim_mappo_pack(w->tally, packed);
  for (int i = BRIM_MAPPO_SUM_EPISODES; i < BRIM_MAPPO_SUMS; i++) w->now.sums[i] += packed[i];
  w->now.episodes += w->tally->episodes;
}

// Gradient norms of the last update, and updates without effect.
static brim_status read_nets(brim_mappo *w) {
  int64_t skipped = 0;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net_metrics m;
    BRIM_TRY(brim_net_read_metrics(brim_mappo_net(w, i), true, &m));
    w->now.norms[i] = m.grad_norm;
    skipped += (int64_t)m.skipped_steps;
  }
  // the actor and the critic of an update each count
  const int64_t all = (int64_t)BRIM_MAPPO_NETS * w->sizes.updates;
  if (skipped - w->now.skipped >= all) w->now.idle++;
  w->now.skipped = skipped;
  return BRIM_OK;
}

static void mappo_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_mappo *)work)->stop = stop;
}

static brim_status mappo_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_mappo_iterate(w, spans));
  BRIM_TRY(read_nets(w));
  add_losses(w);
  out->counted_before = w->now.episodes;
  add_episodes(w);
  out->counted = w->now.episodes;
  out->samples = samples_of(w);
  out->epoch = brim_mappo_epoch_of(w, w->now.step);
  w->now.step++;
  w->now.updates += w->sizes.updates;
  out->step = w->now.step;
  out->lr = brim_schedule_lr(&w->schedule, w->now.step);
  out->epoch_end = w->now.step % w->how.interval == 0 || w->now.step == w->how.iterations;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

static bool searching(const brim_mappo *w) {
  return w->sizes.precision == BRIM_PRECISION_FP16 && w->now.step < FEW_ITERATIONS;
}

static brim_status mappo_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  out->set = &w->rows.set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  memcpy(out->sums, w->now.sums, sizeof w->now.sums);
  brim_mappo_figures(w, w->now.sums, out->values);
  out->values[BRIM_MAPPO_ACTOR_NORM] = w->now.norms[BRIM_MAPPO_ACTOR];
  out->values[BRIM_MAPPO_CRITIC_NORM] = w->now.norms[BRIM_MAPPO_CRITIC];
  out->samples = (int64_t)w->now.sums[BRIM_MAPPO_SUM_STEPS] * w->z.agents;
  out->bad = (int64_t)w->now.sums[BRIM_MAPPO_SUM_BAD];
  out->skipped = w->now.idle;
  out->searching = searching(w);
  if (!reset) return BRIM_OK;
  memset(w->now.sums, 0, sizeof w->now.sums);
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {.evaluate = brim_mappo_evaluate,
                                                      .use = brim_mappo_use};
static const brim_work_policy_table policy = {.baseline = brim_mappo_baseline, .networks = true};
static const brim_work_shrink_table shrinking = {.shrink = mappo_shrink,
                                                 .free_optional = mappo_free_optional};
static const brim_work_settings_table settings = {.resolve = brim_mappo_resolve};
static const brim_work_text_table text = {.start_lines = brim_mappo_start_lines,
                                          .eval_notes = brim_mappo_eval_notes};

static const brim_work_shipped shipped[] = {{"uav", "uav.yaml"},
                                            {"cartpole", "cartpole-mappo.yaml"}};

const brim_workload_table brim_workload_mappo = {
    .name = "mappo",
    .model = "actor_critic",
    .makes = BRIM_N_("a mappo policy"),
    .options = brim_mappo_options,
    .option_count = BRIM_MAPPO_OPTIONS,
    .topic = &brim_mappo_topic,
    .section = &brim_mappo_section,
    .length_key = "mappo.iterations",
    .without_eval = "mappo.eval_episodes=0",
    .config = "uav.yaml",
    .shipped = shipped,
    .shipped_count = sizeof shipped / sizeof *shipped,
    .knob_set = &brim_mappo_knob_set,
    .metric_set = &brim_mappo_set,
    .metric_set_of = brim_mappo_metric_set,
    .sums = &brim_mappo_sum_rows,
    .diagnosis = &brim_mappo_diagnosis,
    .open = brim_mappo_open,
    .close = brim_mappo_close,
    .knobs = mappo_knobs,
    .sensible = mappo_sensible,
    .plan = brim_mappo_plan,
    .resuming = mappo_resuming,
    .configure = mappo_configure,
    .info = mappo_info,
    .step = mappo_step,
    .stops = mappo_stops,
    .metrics = mappo_metrics,
    .figures = brim_mappo_figures,
    .save = brim_mappo_save,
    .load = brim_mappo_load,
    .owns = brim_mappo_owns,
    .snapshot = brim_mappo_snapshot,
    .restore = brim_mappo_restore,
    .settings = &settings,
    .text = &text,
    .evaluation = &evaluation,
    .policy = &policy,
    .findings = &brim_mappo_findings,
    .views = &brim_mappo_views,
    .replay = &brim_mappo_replay,
    .shrinking = &shrinking,
};
