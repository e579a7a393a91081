// Augmented random search: one step is one iteration, the rollouts of all directions, chunk by chunk,
// and one update of the policy over them. Nothing is loaded, and the host is not asked between. An epoch
// is ars.eval_interval iterations, ars.iterations are the run.
#include "workload/ars/ars.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/ars/ars_int.h"

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
  brim_ars_state_deinit(&w->remembered);
  brim_free(w);
}

static brim_status ars_open(const brim_work_context *context, const brim_config *config,
                            void **work) {
  brim_ars *w = (brim_ars *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = brim_ars_setup(w);
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

// Episodes and, right behind them, their figures.
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

// A count that a double may hold and an int64_t not: the largest then.
static int64_t whole(double count) { return count < 9.2e18 ? (int64_t)count : INT64_MAX; }

static brim_status ars_plan(void *work, const brim_setting *setting, brim_plan *out) {
  brim_ars *w = (brim_ars *)work;
  brim_rollout_shape shape;
  brim_rollout_layout layout;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_ars_apply(w, setting, &shape));
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
  out->bytes_per_step = (double)NAN;  // states stay on the chip: what moves is not worth counting
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
  BRIM_TRY(brim_ars_apply(w, setting, &shape));
  BRIM_TRY(brim_device_set_threads(device, (int)setting->value[BRIM_ARS_THREADS]));
  if (w->where.pool) BRIM_TRY(brim_work_env_threads(device, &w->where));
  BRIM_TRY(w->table->layout(&shape, &w->layout));
  w->shape = shape;
  brim_status status = make_buffers(w);
  if (!status) status = w->table->init(&w->where, &w->shape, w->block);
  if (!status) status = brim_device_sync(device);
  w->step = 0;
  memset(&w->sums, 0, sizeof w->sums);
  if (!status && w->weights) status = brim_ars_start_from(w, w->weights);
  if (status) drop_setting(w);
  return status;
}

static void ars_resuming(void *work, const json_t *metadata) {
  (void)metadata;
  ((brim_ars *)work)->weights = NULL;
}

// Chunks first: they change no result. Then environments, of which an even number stays.
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
  bool fine = brim_ars_apply((brim_ars *)work, setting, &shape) == BRIM_OK;
  if (!fine) brim_status_clear();
  return fine;
}

// Updates without effect, one after the other, that are nothing yet.
enum { FEW_UPDATES = 5 };

static void ars_info(void *work, brim_work_info *out) {
  brim_ars *w = (brim_ars *)work;
  memset(out, 0, sizeof *out);
  out->unit = "env steps";
  out->samples_per_epoch = whole(steps_of(&w->shape) * (double)w->interval);
  out->set_samples = out->samples_per_epoch;
  out->steps_per_epoch = w->interval;
  out->epochs = brim_ars_epochs(w);
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

// Directions of one call: those that are there at once. On a CPU, where that can take minutes, so many
// that a stop is heard in a fraction of a second; which go together changes no bit.
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
    // what was rolled out so far changed nothing yet
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

// Episodes that were terminated. Where that is bad, what diverged is as bad.
static int64_t ended_early(const brim_ars *w, int64_t terminated, int64_t diverged) {
  return terminated + (w->shape.row->ended.better == BRIM_BETTER_LOWER ? diverged : 0);
}

// The returns of the first `dirs` directions: a return is the mean over the environments of one sign
// of a direction.
static brim_ars_returns returns_of(const brim_ars *w, int32_t dirs) {
  brim_ars_returns r = {0};
  for (int32_t i = 0; i < dirs * 2; i++) {
    const brim_rollout_tally *t = &w->tally[i];
    r.steps += t->steps;
    r.ended += ended_early(w, t->terminated, t->diverged);
    r.diverged += t->diverged;
    // every environment begins one, and another after each that ended early
    r.episodes += t->envs + (w->shape.once ? 0 : t->terminated + t->diverged);
    double mean = t->envs > 0 ? t->reward / (double)t->envs : (double)NAN;
    if (!isfinite(mean)) continue;
    r.count++;
    r.sum += mean;
    r.sum_sq += mean * mean;
  }
  return r;
}

// The directions an update keeps all had the highest return there is: that they are equal is no trouble
// then. With restarts a rollout has no such bound.
static bool is_solved(const brim_ars *w) {
  const brim_rollout_shape *s = &w->shape;
  const double best = s->row->best(s->env.bytes, s->episode_length);
  if (!s->once || !isfinite(best) || w->update->used == 0) return false;
  // the kept ones are equal, and the best direction is among them
  for (int32_t i = 0; i < s->num_dirs * 2; i++) {
    if (w->tally[i].reward >= best * (double)w->tally[i].envs) return true;
  }
  return false;
}

// The sums of an iteration to those since the last read.
static int64_t add_iteration(brim_ars *w) {
  brim_ars_returns r = returns_of(w, w->shape.num_dirs);
  brim_returns_add(&w->sums.returns, &r);
  w->sums.update = *w->update;
  w->sums.skipped += w->update->skipped && !is_solved(w);
  return r.steps;
}

static brim_status iterate(brim_ars *w, const brim_spans *spans) {
  brim_device *device = w->context.device;
  brim_span_begin(spans, BRIM_PHASE_ENV, "rollout");
  brim_status status = roll_out(w);
  // a measurement needs the time of the rollouts in them, not where the host waits next
  if (!status && spans) status = brim_device_sync(device);
  brim_span_end(spans, BRIM_PHASE_ENV, "rollout");
  if (status) return status;
  brim_span_begin(spans, BRIM_PHASE_UPDATE, "update");
  const int32_t top = w->top < w->shape.num_dirs ? w->top : w->shape.num_dirs;
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
  out->epoch = brim_ars_epoch_of(w, w->step);
  w->step++;
  out->step = w->step;
  out->lr = w->step_size;
  out->epoch_end = w->step % w->interval == 0 || w->step == w->iterations;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

static const brim_metric_set *ars_metric_set(void *work) { return &((brim_ars *)work)->rows.set; }

static void no_figures(const brim_ars *w, brim_work_metrics *out) {
  memset(out, 0, sizeof *out);
  out->set = &w->rows.set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
}

static void ars_figures(void *work, const double *sums, double *values) {
  (void)work;
  const brim_ars_returns r = brim_returns_unpack(sums);
  brim_returns_values(&r, values);
}

static brim_status ars_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_ars *w = (brim_ars *)work;
  no_figures(w, out);
  brim_returns_pack(&w->sums.returns, out->sums);
  brim_returns_values(&w->sums.returns, out->values);
  out->samples = w->sums.returns.steps;
  out->skipped = w->sums.skipped;
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
  // A policy must not look better for what diverged: its reward counts.
  if (!isfinite((double)e->reward)) return;
  r->count++;
  r->sum += (double)e->reward;
  r->sum_sq += (double)e->reward * (double)e->reward;
}

// The environment's own figures of all episodes.
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

// The policy is all zeros on the device meanwhile.
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

// The zero policy under the measure of training: the environments, length and restarts of the first
// directions of the first iteration, without noise. Progress is reported beside it.
static brim_status training_baseline(brim_ars *w) {
  int64_t dirs = (w->episodes + w->shape.num_envs - 1) / w->shape.num_envs;
  if (dirs > w->shape.dir_chunk) dirs = w->shape.dir_chunk;
  brim_ars_state kept = {0};
  brim_status status = brim_ars_fetch(w, &kept);
  if (!status) status = roll_out_zero(w, (int32_t)dirs);
  if (!status) w->training_baseline = returns_of(w, (int32_t)dirs);
  brim_status back = kept.theta ? brim_ars_put(w, &kept) : BRIM_OK;
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
  no_figures(w, out);
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
  BRIM_TRY(brim_ars_fetch(w, &w->remembered));
  w->saved_step = w->step;
  w->saved_sums = w->sums;
  return BRIM_OK;
}

static brim_status ars_restore(void *work) {
  brim_ars *w = (brim_ars *)work;
  BRIM_TRY(brim_ars_put(w, &w->remembered));
  w->step = w->saved_step;
  w->sums = w->saved_sums;
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {.evaluate = ars_evaluate,
                                                      .use = brim_ars_use};
static const brim_work_policy_table policy = {.baseline = ars_baseline};
static const brim_work_shrink_table shrinking = {.shrink = ars_shrink};

static const brim_work_settings_table settings = {.resolve = brim_ars_resolve};
static const brim_work_text_table text = {.start_lines = brim_ars_start_lines,
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
    .metric_set = &brim_ars_set,
    .metric_set_of = ars_metric_set,
    .sums = &brim_ars_sum_rows,
    .diagnosis = &brim_ars_diagnosis,
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
    .save = brim_ars_save,
    .load = brim_ars_load,
    .owns = brim_ars_owns,
    .snapshot = ars_snapshot,
    .restore = ars_restore,
    .settings = &settings,
    .text = &text,
    .evaluation = &evaluation,
    .policy = &policy,
    .replay = &brim_ars_replay,
    .shrinking = &shrinking,
    .findings = &brim_ars_findings,
    .views = &brim_ars_views,
};
