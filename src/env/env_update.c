// The update of ARS on the CPU: which directions are kept, theta's step, the filter. Sums are taken
// in double and in one order, whatever the number of threads.
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "env/env_ars.h"
#include "env/env_int.h"

typedef struct candidate {
  float best;  // max(r+, r-)
  int32_t dir;
} candidate;

static int by_best(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->best != y->best) return x->best > y->best ? -1 : 1;
  return x->dir < y->dir ? -1 : x->dir > y->dir;
}

// Directions with two finite returns, best first.
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
  double *change;  // of each number of theta
} step_work;

static void step_quads(void *ctx, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const step_work *w = ctx;
  const uint64_t key = brim_rng_key(w->shape->seed, BRIM_RNG_DELTA);
  const int32_t params = brim_env_params(brim_env_policy_of(w->shape));
  for (int32_t quad = (int32_t)begin; quad < (int32_t)end; quad++) {
    double sum[4] = {0};
    for (int32_t i = 0; i < w->used; i++) {
      float delta[4];
      const float *r = w->returns[w->kept[i].dir];
      brim_env_delta(key, w->iteration, w->kept[i].dir, quad, delta);
      for (int j = 0; j < 4; j++) sum[j] += ((double)r[0] - (double)r[1]) * (double)delta[j];
    }
    for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
      float *theta = &w->theta[4 * quad + j];
      float was = *theta;
      *theta = (float)((double)was + w->scale * sum[j]);
      w->change[4 * quad + j] = (double)*theta - (double)was;
    }
  }
}

static brim_status step(const brim_rollout_where *where, step_work *w, brim_rollout_update *out) {
  int32_t params = brim_env_params(brim_env_policy_of(w->shape));
  w->change = brim_alloc((size_t)params * sizeof *w->change);
  if (!w->change) return brim_fail(BRIM_ENOMEM, "no memory for a step of %d parameters", params);
  brim_pool *pool;
  brim_status status = brim_env_pool(where, &pool);
  if (!status) {
    brim_pool_run(pool, (params + 3) / 4, step_quads, w);
    brim_env_pool_done(where, pool);
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
  const brim_env_sizes z = brim_env_sizes_of(shape);
  double *mean = filter + 1, *m2 = mean + z.obs, steps = 0;
  for (int32_t d = 0; d < 2 * shape->num_dirs; d++) {
    steps += (double)brim_env_found_at(found, z.obs, d)->steps;
  }
  if (!(steps > 0)) return;
  const double count = steps * z.agents;
  for (int j = 0; j < z.obs; j++) {
    brim_env_seen s = {.had = filter[0], .count = count, .shift = (double)normal[j]};
    for (int32_t d = 0; d < 2 * shape->num_dirs; d++) {
      const double *stats = brim_env_stats(brim_env_found_at(found, z.obs, d));
      s.sum += stats[j];
      s.square += stats[z.obs + j];
    }
    brim_env_filter_merge(s, &mean[j], &m2[j]);
  }
  filter[0] += count;
  for (int j = 0; j < z.obs; j++) {
    normal[j] = (float)mean[j];
    normal[z.obs + j] = brim_env_inverse_std(filter[0], m2[j]);
  }
}

brim_status brim_env_update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                            void *block, int64_t iteration, int32_t top, float step_size) {
  if (top < 0 || top > shape->num_dirs) {
    return brim_fail(BRIM_EINVAL, "the best %d of %d directions cannot be kept", top,
                     shape->num_dirs);
  }
  char *base = block;
  brim_rollout_layout at;
  brim_env_layout(shape, &at);
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
  if (used && brim_env_sigma_usable(out->sigma, mean)) {
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
    take_in(shape, base + at.scratch + brim_env_scratch_of(shape).found,
            (double *)(void *)(base + at.filter), (float *)(void *)(base + at.normal));
  }
  return status;
}
