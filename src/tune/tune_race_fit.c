// Estimates of a race: the logarithm of a visit's rate is that of its setting, plus the state of the
// machine at that time, plus noise with heavy tails:
//     x = a[setting] + b[block] + e,   e ~ t(4) of scale sqrt(se^2 + tau^2)
// A block is a few visits in a row; b is a random walk from block to block, so that settings are
// compared through their neighbours in time: what is slow for minutes cancels. tau is the disturbance
// between visits that their own samples do not show, by moments. A visit that a burst hit gets little
// weight. The constants were chosen on the truth test's seeds for building.
#include <math.h>
#include <string.h>

#include "tune/tune_race_int.h"

enum { BLOCK_VISITS = 3, MOST_BLOCKS = 64, ITERATIONS = 25 };
#define NU 4.0
#define WALK 2.0       // variance of a step of the walk over that of a visit
#define ANCHOR 1e-3    // the walk's level belongs to the settings
#define MOST_TAU2 4.0  // a factor of e^2
// Weights of t(4) promise more than they hold, by sqrt((NU + 3) / (NU + 1)), and the pick is the best of
// several; by the truth test.
#define OPTIMISM 1.32

void brim_race_fit_free(brim_race *race) {
  brim_free(race->fit.b);
  brim_free(race->fit.inverse);
  brim_free(race->fit.share);
  memset(&race->fit, 0, sizeof race->fit);
}

static brim_status make_room(brim_race *race, size_t blocks) {
  race_fit *f = &race->fit;
  brim_race_fit_free(race);
  f->b = (double *)brim_calloc(blocks, sizeof *f->b);
  f->inverse = (double *)brim_calloc(blocks * blocks, sizeof *f->inverse);
  f->share = (double *)brim_calloc(race->settings * blocks, sizeof *f->share);
  if (!f->b || !f->inverse || !f->share) {
    brim_race_fit_free(race);
    return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", race->visits);
  }
  f->blocks = blocks;
  return BRIM_OK;
}

// Symmetric and positive definite, in place, by Gauss and Jordan.
static void invert(double *m, size_t n) {
  for (size_t k = 0; k < n; k++) {
    double pivot = 1 / m[k * n + k];
    m[k * n + k] = 1;
    for (size_t j = 0; j < n; j++) m[k * n + j] *= pivot;
    for (size_t i = 0; i < n; i++) {
      double factor = m[i * n + k];
      if (i == k || factor == 0) continue;
      m[i * n + k] = 0;
      for (size_t j = 0; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
    }
  }
}

// Information of the blocks with the settings eliminated, and the walk's own.
static void fill(brim_race *race, double walk) {
  race_fit *f = &race->fit;
  size_t n = f->blocks;
  memset(f->inverse, 0, n * n * sizeof *f->inverse);
  for (size_t i = 0; i < race->settings; i++) {
    const double *share = f->share + i * n;
    double w = race->runner[i].w;
    for (size_t r = 0; r < n && w > 0; r++) {
      if (share[r] == 0) continue;
      f->inverse[r * n + r] += share[r];
      for (size_t s = 0; s < n; s++) f->inverse[r * n + s] -= share[r] * share[s] / w;
    }
  }
  for (size_t r = 0; r < n; r++) {
    f->inverse[r * n + r] += ANCHOR / walk;
    if (r + 1 == n) break;
    f->inverse[r * n + r] += 1 / walk;
    f->inverse[(r + 1) * n + r + 1] += 1 / walk;
    f->inverse[r * n + r + 1] -= 1 / walk;
    f->inverse[(r + 1) * n + r] -= 1 / walk;
  }
}

// Weighted least squares. Returns the parameters that the blocks took.
static double solve(brim_race *race, double walk) {
  race_fit *f = &race->fit;
  size_t n = f->blocks;
  double right[MOST_BLOCKS] = {0}, own[MOST_BLOCKS], taken = 0;
  memset(f->share, 0, race->settings * n * sizeof *f->share);
  for (size_t i = 0; i < race->settings; i++) race->runner[i].a = race->runner[i].w = 0;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    double w = v->weight / v->var;
    race->runner[v->setting].w += w;
    race->runner[v->setting].a += w * v->x;  // divided below
    f->share[v->setting * n + v->block] += w;
    right[v->block] += w * v->x;
  }
  for (size_t i = 0; i < race->settings; i++) {
    const runner *r = &race->runner[i];
    for (size_t s = 0; s < n && r->w > 0; s++) right[s] -= f->share[i * n + s] * r->a / r->w;
  }
  fill(race, walk);
  for (size_t r = 0; r < n; r++)
    own[r] = f->inverse[r * n + r] - (ANCHOR + (r > 0) + (r + 1 < n)) / walk;
  invert(f->inverse, n);
  for (size_t r = 0; r < n; r++) {
    f->b[r] = 0;
    for (size_t s = 0; s < n; s++) f->b[r] += f->inverse[r * n + s] * right[s];
    taken += fmin(1, fmax(0, f->inverse[r * n + r] * own[r]));
  }
  for (size_t i = 0; i < race->settings; i++) {
    runner *r = &race->runner[i];
    for (size_t s = 0; s < n; s++) r->a -= f->share[i * n + s] * f->b[s];
    r->a = r->w > 0 ? r->a / r->w : (double)NAN;
  }
  return taken;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Blocks hold as many visits each, but for one.
static double median_block(const race_fit *f) {
  double v[MOST_BLOCKS];
  memcpy(v, f->b, f->blocks * sizeof *v);
  qsort(v, f->blocks, sizeof *v, ascending);
  size_t n = f->blocks;
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// New weights; returns the mean weighted square of the residuals over what it should be.
static double weigh(brim_race *race, double df) {
  double sum = 0;
  for (size_t k = 0; k < race->visits; k++) {
    entry *v = &race->visit[k];
    double e = v->x - race->runner[v->setting].a - race->fit.b[v->block], z2 = e * e / v->var;
    v->weight = (NU + 1) / (NU + z2);
    sum += v->weight * z2;
  }
  return sum / df;
}

// The spread of ten samples is itself known badly, and to believe it would be to believe those visits
// most whose samples agree by chance: a setting's visits share theirs, as if it had COMMON more visits
// of the usual spread.
#define COMMON 3.0
static void pool_errors(brim_race *race, double *own) {
  for (size_t k = 0; k < race->visits; k++) {
    own[k] = race->visit[k].se * sqrt(race->visit[k].samples);
  }
  qsort(own, race->visits, sizeof *own, ascending);
  double usual = own[race->visits / 2], usual2 = usual * usual;
  for (size_t i = 0; i < race->settings; i++) race->runner[i].var = COMMON * usual2;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    race->runner[v->setting].var += v->se * v->se * v->samples;
  }
  for (size_t i = 0; i < race->settings; i++) {
    race->runner[i].var /= COMMON + (double)race->runner[i].visits;
  }
}

static void iterate(brim_race *race, double settings) {
  double tau2 = 1e-4, visits = (double)race->visits;
  for (int i = 0; i < ITERATIONS; i++) {
    double mean = 0;
    for (size_t k = 0; k < race->visits; k++) {
      entry *v = &race->visit[k];
      v->var = race->runner[v->setting].var / v->samples + tau2;
      mean += v->var / visits;
    }
    double taken = solve(race, WALK * mean);
    race->fit.df = fmax(1, visits - settings - taken);
    double change = 0.7 * (weigh(race, race->fit.df) - 1) * mean;
    double next = fmin(MOST_TAU2, fmax(0, tau2 + change));
    if (i > 5 && fabs(next - tau2) < 1e-3 * mean) break;
    tau2 = next;
  }
}

// The disturbance between visits is common to all settings, and some suffer more of it than others: threads
// that wait for each other at every small op, on a busy machine. Where a setting's own visits scatter more
// than the fit expects, its error grows.
static void find_scatter(brim_race *race) {
  for (size_t i = 0; i < race->settings; i++) race->runner[i].scatter = COMMON;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    double e = v->x - race->runner[v->setting].a - race->fit.b[v->block];
    race->runner[v->setting].scatter += v->weight * e * e / v->var;
  }
  for (size_t i = 0; i < race->settings; i++) {
    runner *r = &race->runner[i];
    r->scatter = fmax(1, r->scatter / (COMMON + fmax(1, (double)r->visits - 1)));
  }
}

brim_status brim_race_fit(brim_race *race) {
  if (race->fitted || race->visits == 0) return BRIM_OK;
  size_t blocks = (race->visits + BLOCK_VISITS - 1) / BLOCK_VISITS;
  if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
  BRIM_TRY(make_room(race, blocks));
  double *own = (double *)brim_alloc(race->visits * sizeof *own);
  if (!own) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", race->visits);
  pool_errors(race, own);
  brim_free(own);
  double settings = 0;
  for (size_t i = 0; i < race->settings; i++) settings += race->runner[i].visits > 0;
  for (size_t k = 0; k < race->visits; k++) {
    race->visit[k].block = k * blocks / race->visits;
    race->visit[k].weight = 1;
  }
  iterate(race, settings);
  find_scatter(race);
  race->fit.df += race->earlier;
  race->fit.typical = median_block(&race->fit);
  race->fitted = true;
  return BRIM_OK;
}

//---------------------------------- intervals ----------------------------------

// c' inverse c
static double quadratic(const race_fit *f, const double *c) {
  double sum = 0;
  for (size_t r = 0; r < f->blocks; r++) {
    for (size_t s = 0; s < f->blocks; s++) sum += c[r] * f->inverse[r * f->blocks + s] * c[s];
  }
  return sum;
}

double brim_race_se(const brim_race *race, size_t a, size_t b) {
  const race_fit *f = &race->fit;
  const runner *x = &race->runner[a], *y = &race->runner[b];
  double c[MOST_BLOCKS];
  for (size_t r = 0; r < f->blocks; r++) {
    c[r] = f->share[a * f->blocks + r] / x->w - f->share[b * f->blocks + r] / y->w;
  }
  return OPTIMISM * sqrt(x->scatter / x->w + y->scatter / y->w + quadratic(f, c));
}

static brim_interval around(double log_value, double half) {
  return (brim_interval){exp(log_value), exp(log_value - half), exp(log_value + half)};
}

static const brim_interval unknown = {(double)NAN, (double)NAN, (double)NAN};

static bool known(brim_race *race, size_t i) {
  return i < race->settings && race->runner[i].visits > 0 && !race->runner[i].failed &&
         !brim_race_fit(race);
}

brim_interval brim_race_ratio(brim_race *race, size_t a, size_t b) {
  if (!known(race, a) || !known(race, b)) return unknown;
  if (a == b) return (brim_interval){1, 1, 1};
  double half = brim_stats_t95(race->fit.df) * brim_race_se(race, a, b);
  return around(race->runner[a].a - race->runner[b].a, half);
}

brim_interval brim_race_rate(brim_race *race, size_t setting) {
  if (!known(race, setting)) return unknown;
  const race_fit *f = &race->fit;
  const runner *r = &race->runner[setting];
  double c[MOST_BLOCKS];
  for (size_t s = 0; s < f->blocks; s++) {
    c[s] = 1.0 / (double)f->blocks - f->share[setting * f->blocks + s] / r->w;
  }
  double se = OPTIMISM * sqrt(r->scatter / r->w + quadratic(f, c));
  return around(r->a + f->typical, brim_stats_t95(f->df) * se);
}
