// Rollouts and the ARS update on the CPU (brim_rollout_table). Threads share the parts of the environments; the
// environment's own loop runs a part (brim_env_row.run). Sums are doubles in one order, so the number of threads
// changes no bit of the results.
#include "rl/rl_rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rl/rl_int.h"

static brim_status refuse(const brim_rollout_shape *shape) {
  const char *problem = brim_rollout_problem(shape);
  return problem ? brim_fail(BRIM_EINVAL, "%s", brim_tr(problem)) : BRIM_OK;
}

static brim_status layout(const brim_rollout_shape *shape, brim_rollout_layout *out) {
  BRIM_TRY(refuse(shape));
  brim_rollout_layout_of(shape, out);
  return BRIM_OK;
}

static brim_status init(const brim_rollout_where *where, const brim_rollout_shape *shape,
                        void *block) {
  (void)where;
  brim_rollout_layout at;
  BRIM_TRY(layout(shape, &at));
  memset(block, 0, at.bytes);
  char *base = block;
  float *theta = (float *)(void *)(base + at.theta);
  float *normal = (float *)(void *)(base + at.normal);
  const brim_rollout_net net = brim_rollout_policy_of(shape);
  for (int j = 0; j < net.obs; j++) normal[net.obs + j] = 1.0f;
  if (!shape->hidden) return BRIM_OK;
  const uint64_t key = brim_rng_key(shape->seed, BRIM_RNG_INIT);
  const int32_t params = brim_rollout_params(net);
  for (int32_t p = 0; p < params; p++) {
    float four[4];
    brim_rollout_delta(key, 0, 0, p / 4, four);
    theta[p] = four[p % 4] * brim_rollout_init_scale(net, p);
  }
  return BRIM_OK;
}

void brim_rollout_build_policy(const brim_rollout_shape *shape, const float *theta,
                               int64_t iteration, int32_t dir, float scale, float *packed) {
  const uint64_t key = brim_rng_key(shape->seed, BRIM_RNG_DELTA);
  const brim_rollout_net net = brim_rollout_policy_of(shape);
  const int32_t params = brim_rollout_params(net);
  memset(packed, 0, (size_t)brim_rollout_packed(net) * sizeof *packed);
  for (int32_t p = 0; p < params; p += 4) {
    float delta[4] = {0};
    if (scale != 0.0f) brim_rollout_delta(key, iteration, dir, p / 4, delta);
    for (int j = 0; j < 4 && p + j < params; j++) {
      packed[brim_rollout_pack(net, p + j)] = brim_fmaf(scale, delta[j], theta[p + j]);
    }
  }
}

//---------------------------------- rollouts ----------------------------------

typedef struct run_work {
  const brim_rollout_shape *shape;
  const brim_rollout_job *job;
  brim_env_run_fn fn;
  const float *theta, *normal;
  float *policies;    // a packed policy for each thread
  size_t policy;      // floats of one packed policy
  int32_t obs;        // numbers of an observation
  const void *parts;  // brim_rollout_found[dirs][2][parts]
} run_work;

static void run_parts(void *ctx, int64_t begin, int64_t end, int thread) {
  const run_work *w = ctx;
  const brim_rollout_shape *s = w->shape;
  const int32_t half = s->num_envs / 2, parts = brim_rollout_parts(half);
  float *policy = w->policies + (size_t)thread * w->policy;
  int64_t built = -1;
  for (int64_t i = begin; i < end; i++) {
    int64_t pair = i / parts;
    int32_t dir = w->job->first_dir + (int32_t)(pair / 2),
            first = (int32_t)(i % parts) * BRIM_ROLLOUT_PART;
    float noise = pair % 2 ? -w->job->noise_std : w->job->noise_std;
    if (built != pair) {
      brim_rollout_build_policy(s, w->theta, w->job->iteration, dir, noise, policy);
    }
    built = pair;
    brim_rollout_work work = {
        .env = s->env.bytes,
        .hidden = s->hidden,
        .steps = s->episode_length,
        .filter = s->filter,
        .once = s->once,
        .policy = policy,
        .normal = w->normal,
        .ids = brim_env_training(s->seed, w->job->iteration, dir, first),
        .envs = half - first < BRIM_ROLLOUT_PART ? half - first : BRIM_ROLLOUT_PART,
        .found = brim_rollout_found_at(w->parts, w->obs, i)};
    w->fn(&work);
  }
}

static void add_found(brim_rollout_found *sum, const brim_rollout_found *part, int32_t obs) {
  double *to = brim_rollout_found_stats(sum);
  const double *from = brim_rollout_found_stats(part);
  sum->reward += part->reward;
  sum->reward_sq += part->reward_sq;
  sum->steps += part->steps;
  sum->terminated += part->terminated;
  sum->truncated += part->truncated;
  sum->diverged += part->diverged;
  for (int j = 0; j < 2 * obs; j++) to[j] += from[j];
}

static void gather(const run_work *w, char *base, const brim_rollout_layout *at) {
  const int32_t half = w->shape->num_envs / 2, parts = brim_rollout_parts(half);
  const void *found = base + at->scratch + brim_rollout_scratch_of(w->shape).found;
  brim_rollout_tally *tally = (brim_rollout_tally *)(void *)(base + at->tally);
  float *returns = (float *)(void *)(base + at->returns);
  for (int32_t pair = 0; pair < 2 * w->job->dirs; pair++) {
    int64_t to = 2 * (int64_t)w->job->first_dir + pair;
    brim_rollout_found *sum = brim_rollout_found_at(found, w->obs, to);
    memset(sum, 0, brim_rollout_found_bytes(w->obs));
    for (int32_t p = 0; p < parts; p++) {
      add_found(sum, brim_rollout_found_at(w->parts, w->obs, (int64_t)pair * parts + p), w->obs);
    }
    tally[to] = (brim_rollout_tally){.reward = sum->reward,
                                     .reward_sq = sum->reward_sq,
                                     .envs = half,
                                     .steps = sum->steps,
                                     .terminated = sum->terminated,
                                     .truncated = sum->truncated,
                                     .diverged = sum->diverged};
    returns[to] = brim_rollout_return(sum->reward, sum->steps, w->job->shift, half);
  }
}

static brim_status run(const brim_rollout_where *where, const brim_rollout_shape *shape,
                       void *block, const brim_rollout_job *job) {
  brim_rollout_layout at;
  BRIM_TRY(layout(shape, &at));
  if (job->first_dir < 0 || job->dirs < 1 || job->dirs > shape->dir_chunk ||
      job->first_dir > shape->num_dirs - job->dirs) {
    return brim_fail(BRIM_EINVAL, "directions %d to %d are not a chunk of %d of %d", job->first_dir,
                     job->first_dir + job->dirs - 1, shape->dir_chunk, shape->num_dirs);
  }
  char *base = block;
  brim_pool *pool;
  BRIM_TRY(brim_rl_pool(where, &pool));
  const brim_rollout_net net = brim_rollout_policy_of(shape);
  run_work w = {.shape = shape,
                .job = job,
                .fn = shape->row->run(),
                .theta = (const float *)(const void *)(base + at.theta),
                .normal = (const float *)(const void *)(base + at.normal),
                .policy = (size_t)brim_rollout_packed(net),
                .obs = net.obs,
                .parts = base + at.scratch + brim_rollout_scratch_of(shape).part};
  w.policies = brim_alloc(w.policy * (size_t)brim_pool_threads(pool) * sizeof *w.policies);
  if (w.policies) {
    int64_t items = 2 * (int64_t)job->dirs * brim_rollout_parts(shape->num_envs / 2);
    brim_pool_run(pool, items, run_parts, &w);
    gather(&w, base, &at);
    brim_free(w.policies);
  }
  brim_rl_pool_done(where, pool);
  return w.policies ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the policies of a rollout");
}

//---------------------------------- evaluation ----------------------------------

typedef struct eval_work {
  const brim_rollout_shape *shape;
  const brim_rollout_eval *eval;
  brim_env_run_fn fn;
  const float *policy, *normal;
  brim_rollout_episode *episodes;
  float *figures;
  int32_t figure_count;
} eval_work;

static brim_rollout_work eval_part(const eval_work *w, int32_t first) {
  const brim_rollout_shape *s = w->shape;
  brim_rollout_work work = {.env = s->env.bytes,
                            .hidden = s->hidden,
                            .steps = s->episode_length,
                            .policy = w->eval->zero ? NULL : w->policy,
                            .normal = w->normal,
                            .ids = brim_env_held_out(s->seed, w->eval->stream, first),
                            .envs = 1};
  return work;
}

static void eval_parts(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const eval_work *w = ctx;
  for (int64_t i = begin; i < end; i++) {
    int32_t first = (int32_t)i * BRIM_ROLLOUT_PART, left = w->eval->episodes - first;
    brim_rollout_work work = eval_part(w, first);
    work.envs = left < BRIM_ROLLOUT_PART ? left : BRIM_ROLLOUT_PART;
    work.episodes = w->episodes + first;
    work.figures = w->figures + (size_t)first * (size_t)w->figure_count;
    w->fn(&work);
  }
}

static brim_status evaluate(const brim_rollout_where *where, const brim_rollout_shape *shape,
                            void *block, const brim_rollout_eval *eval) {
  brim_rollout_layout at;
  BRIM_TRY(layout(shape, &at));
  if (eval->episodes < 1 || eval->episodes > shape->eval_episodes) {
    return brim_fail(BRIM_EINVAL, "an evaluation of %d episodes, but there is room for %d",
                     eval->episodes, shape->eval_episodes);
  }
  char *base = block;
  float *policy =
      brim_alloc((size_t)brim_rollout_packed(brim_rollout_policy_of(shape)) * sizeof *policy);
  if (!policy) return brim_fail(BRIM_ENOMEM, "no memory for the policies of a rollout");
  brim_rollout_build_policy(shape, (const float *)(const void *)(base + at.theta), 0, 0, 0.0f,
                            policy);
  eval_work w = {.shape = shape,
                 .eval = eval,
                 .fn = shape->row->run(),
                 .policy = policy,
                 .normal = (const float *)(const void *)(base + at.normal),
                 .episodes = (brim_rollout_episode *)(void *)(base + at.episodes),
                 .figures = (float *)(void *)(base + at.figures),
                 .figure_count = brim_rollout_sizes_of(shape).figures};
  brim_pool *pool;
  brim_status status = brim_rl_pool(where, &pool);
  if (!status) {
    brim_pool_run(pool, brim_rollout_parts(eval->episodes), eval_parts, &w);
    brim_rl_pool_done(where, pool);
  }
  brim_free(policy);
  return status;
}

brim_status brim_rollout_trace(const brim_rollout_shape *shape, const float *theta,
                               const float *normal, const brim_rollout_eval *eval, int32_t episode,
                               brim_rollout_record *out) {
  BRIM_TRY(refuse(shape));
  if (episode < 0 || episode >= BRIM_ENV_MAX_ENVS || out->capacity < 1) {
    return brim_fail(BRIM_EINVAL, "episode %d cannot be traced into %lld states", episode,
                     (long long)out->capacity);
  }
  float *policy =
      brim_alloc((size_t)brim_rollout_packed(brim_rollout_policy_of(shape)) * sizeof *policy);
  if (!policy) return brim_fail(BRIM_ENOMEM, "no memory for the policies of a rollout");
  brim_rollout_build_policy(shape, theta, 0, 0, 0.0f, policy);
  brim_rollout_episode end = {0};
  float figures[BRIM_ENV_MAX_FIGURES];
  brim_rollout_frames trace = {
      .capacity = out->capacity, .frames = out->frames, .reward = out->reward};
  eval_work w = {.shape = shape, .eval = eval, .policy = policy, .normal = normal};
  brim_rollout_work work = eval_part(&w, episode);
  work.episodes = &end;
  work.figures = figures;
  work.trace = &trace;
  shape->row->run()(&work);
  brim_free(policy);
  out->states = trace.states;
  out->outcome = end.outcome;
  return BRIM_OK;
}

//---------------------------------- the update ----------------------------------

typedef struct candidate {
  float best;  // max(r+, r-)
  int32_t dir;
} candidate;

static int by_best(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->best != y->best) return x->best > y->best ? -1 : 1;
  return x->dir < y->dir ? -1 : x->dir > y->dir;
}

// Lists the directions with two finite returns, best first.
static int32_t rank(const brim_rollout_shape *shape, const float (*returns)[2], candidate *out) {
  int32_t n = 0;
  for (int32_t d = 0; d < shape->num_dirs; d++) {
    if (!isfinite(returns[d][0]) || !isfinite(returns[d][1])) continue;
    out[n].best = returns[d][0] > returns[d][1] ? returns[d][0] : returns[d][1];
    out[n].dir = d;
    n++;
  }
  qsort(out, (size_t)n, sizeof *out, by_best);
  return n;
}

static double deviation(const float (*returns)[2], const candidate *kept, int32_t used,
                        double *mean) {
  double sum = 0, square = 0;
  for (int32_t i = 0; i < used; i++) {
    sum += (double)returns[kept[i].dir][0] + (double)returns[kept[i].dir][1];
  }
  *mean = sum / (2.0 * used);
  for (int32_t i = 0; i < used; i++) {
    for (int s = 0; s < 2; s++) {
      double d = (double)returns[kept[i].dir][s] - *mean;
      square += d * d;
    }
  }
  return sqrt(square / (2.0 * used));
}

//---------------------------------- theta ----------------------------------

typedef struct step_work {
  const brim_rollout_shape *shape;
  int64_t iteration;
  const candidate *kept;
  const float (*returns)[2];
  int32_t used;
  double scale;
  float *theta;
  double *change;  // change of each number of theta
} step_work;

static void step_quads(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const step_work *w = ctx;
  const uint64_t key = brim_rng_key(w->shape->seed, BRIM_RNG_DELTA);
  const int32_t params = brim_rollout_params(brim_rollout_policy_of(w->shape));
  for (int32_t quad = (int32_t)begin; quad < (int32_t)end; quad++) {
    double sum[4] = {0};
    for (int32_t i = 0; i < w->used; i++) {
      float delta[4];
      const float *r = w->returns[w->kept[i].dir];
      brim_rollout_delta(key, w->iteration, w->kept[i].dir, quad, delta);
      for (int j = 0; j < 4; j++) sum[j] += ((double)r[0] - (double)r[1]) * (double)delta[j];
    }
    for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
      float *theta = &w->theta[4 * quad + j];
      float before = *theta;
      *theta = (float)((double)before + w->scale * sum[j]);
      w->change[4 * quad + j] = (double)*theta - (double)before;
    }
  }
}

static brim_status step(const brim_rollout_where *where, step_work *w, brim_rollout_update *out) {
  int32_t params = brim_rollout_params(brim_rollout_policy_of(w->shape));
  w->change = brim_alloc((size_t)params * sizeof *w->change);
  if (!w->change) return brim_fail(BRIM_ENOMEM, "no memory for a step of %d parameters", params);
  brim_pool *pool;
  brim_status status = brim_rl_pool(where, &pool);
  if (!status) {
    brim_pool_run(pool, (params + 3) / 4, step_quads, w);
    brim_rl_pool_done(where, pool);
    double change = 0, theta = 0;
    for (int32_t p = 0; p < params; p++) {
      change += w->change[p] * w->change[p];
      theta += (double)w->theta[p] * (double)w->theta[p];
    }
    out->step_norm = sqrt(change);
    out->theta_norm = sqrt(theta);
  }
  brim_free(w->change);
  return status;
}

//---------------------------------- filter ----------------------------------

static void take_in(const brim_rollout_shape *shape, const void *found, double *filter,
                    float *normal) {
  const brim_env_sizes z = brim_rollout_sizes_of(shape);
  double *mean = filter + 1, *m2 = mean + z.obs, steps = 0;
  for (int32_t d = 0; d < 2 * shape->num_dirs; d++) {
    steps += (double)brim_rollout_found_at(found, z.obs, d)->steps;
  }
  if (!(steps > 0)) return;
  const double count = steps * z.agents;
  for (int j = 0; j < z.obs; j++) {
    brim_rollout_seen s = {.had = filter[0], .count = count, .shift = (double)normal[j]};
    for (int32_t d = 0; d < 2 * shape->num_dirs; d++) {
      const double *stats = brim_rollout_found_stats(brim_rollout_found_at(found, z.obs, d));
      s.sum += stats[j];
      s.square += stats[z.obs + j];
    }
    brim_rollout_filter_merge(s, &mean[j], &m2[j]);
  }
  filter[0] += count;
  for (int j = 0; j < z.obs; j++) {
    normal[j] = (float)mean[j];
    normal[z.obs + j] = brim_rollout_inverse_std(filter[0], m2[j]);
  }
}

static brim_status update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block, int64_t iteration, int32_t top, float step_size) {
  BRIM_TRY(refuse(shape));
  if (top < 0 || top > shape->num_dirs) {
    return brim_fail(BRIM_EINVAL, "the best %d of %d directions cannot be kept", top,
                     shape->num_dirs);
  }
  char *base = block;
  brim_rollout_layout at;
  brim_rollout_layout_of(shape, &at);
  const float(*returns)[2] = (const float(*)[2])(void *)(base + at.returns);
  brim_rollout_update *out = (brim_rollout_update *)(void *)(base + at.update);
  *out = (brim_rollout_update){.sigma = NAN, .step_norm = 0, .skipped = 1};
  candidate *kept = brim_alloc((size_t)shape->num_dirs * sizeof *kept);
  if (!kept) return brim_fail(BRIM_ENOMEM, "no memory to rank %d directions", shape->num_dirs);
  int32_t used = rank(shape, returns, kept);
  if (top > 0 && used > top) used = top;
  float *theta = (float *)(void *)(base + at.theta);
  brim_status status = BRIM_OK;
  double mean = 0;
  if (used) out->sigma = deviation(returns, kept, used, &mean);
  out->used = used;
  if (used && brim_rollout_sigma_usable(out->sigma, mean)) {
    step_work w = {.shape = shape,
                   .iteration = iteration,
                   .kept = kept,
                   .returns = returns,
                   .used = used,
                   .scale = (double)step_size / (used * out->sigma),
                   .theta = theta};
    status = step(where, &w, out);
    out->skipped = 0;
  } else {
    double square = 0;
    for (size_t p = 0; p < at.params; p++) square += (double)theta[p] * (double)theta[p];
    out->theta_norm = sqrt(square);
  }
  brim_free(kept);
  if (!status && shape->filter) {
    take_in(shape, base + at.scratch + brim_rollout_scratch_of(shape).found,
            (double *)(void *)(base + at.filter), (float *)(void *)(base + at.normal));
  }
  return status;
}

const brim_rollout_table *brim_rollout_cpu(void) {
  static const brim_rollout_table table = {
      .abi = BRIM_ROLLOUT_ABI,
      .layout = layout,
      .init = init,
      .run = run,
      .update = update,
      .evaluate = evaluate,
  };
  return &table;
}
