// The race of settings: rounds, elimination, budget, and the fit behind its intervals.

#include "tune/tune_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// No clock is better than that, and a visit of one sample tells little.
#define MIN_SE 1e-4
#define UNKNOWN_SE 0.2

typedef struct entry {
  size_t setting, block;
  double x, se, samples;  // x: log(samples_per_s)
  double weight;          // 1 = as the others; near 0 = disturbed
  double var;
} entry;

typedef struct runner {
  size_t visits;
  double seconds;
  bool failed;
  double a;        // logarithm of its rate in the machine's typical state
  double scatter;  // variance of its visits over the fit's expectation; at least 1
  double w;        // information about `a`
  double var;      // variance of one sample
} runner;

typedef struct race_fit {
  size_t blocks;
  double *b;        // (blocks) the machine's state: positive = faster
  double *inverse;  // (blocks, blocks) covariance of b, settings eliminated
  double *share;    // (settings, blocks) information of a block about a setting
  double typical;   // median of b over visits
  double df;        // remaining degrees of freedom
} race_fit;

struct brim_race {
  size_t settings;
  double passes;
  struct runner *runner;
  entry *visit;
  size_t visits, capacity;
  size_t *queue;  // settings of this round
  size_t queued, at, round;
  double seconds, first_seconds;
  bool over, fitted;
  race_fit fit;
};

//--------------------------------------------- fit ---------------------------------------------
// Estimates of a race: the logarithm of a visit's rate is that of its setting, plus the state of the
// machine at that time, plus noise with heavy tails:
//     x = a[setting] + b[block] + e,   e ~ t(4) of scale sqrt(se^2 + tau^2)
// A block is a few visits in a row. b is a random walk from block to block: settings are compared through their neighbours
// in time, and minutes of slowness cancel. tau, by moments, is the disturbance between visits that their own samples do not
// show. A visit hit by a burst gets little weight. The constants were chosen by the truth test (tests/tune).

enum { BLOCK_VISITS = 3, MOST_BLOCKS = 64, ITERATIONS = 25 };
#define NU 4.0
#define WALK 2.0       // variance of a step of the walk over that of a visit
#define ANCHOR 1e-3    // holds the walk's level near 0: it belongs to the settings
#define MOST_TAU2 4.0  // a factor of e^2
// Errors by the weights of t(4) are too small by sqrt((NU + 3) / (NU + 1)), and the pick is the best of several. By the
// truth test.
#define OPTIMISM 1.32

static void brim_race_fit_free(brim_race *race) {
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

// Information about the blocks, settings eliminated, and that of the walk.
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

// Weighted least squares. Returns the degrees of freedom that the blocks used.
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

// Blocks are equally large, but for one.
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

// The spread of ten samples is uncertain: visits whose samples agree by chance would weigh most. So the visits of a setting
// pool their spread, together with COMMON visits of the usual spread.
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

// Some settings suffer more from disturbances than others, such as threads that wait for each other at every small op.
// If a setting's visits scatter more than the fit expects, its error grows.
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

// Updates the estimates after new visits.
static brim_status brim_race_fit(brim_race *race) {
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

// Standard error of a's log rate less b's; after a fit.
static double brim_race_se(const brim_race *race, size_t a, size_t b) {
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

// Standard error of the logarithm of a rate while the machine was as it mostly was.
static double rate_se(const brim_race *race, size_t setting) {
  const race_fit *f = &race->fit;
  const runner *r = &race->runner[setting];
  double c[MOST_BLOCKS];
  for (size_t s = 0; s < f->blocks; s++) {
    c[s] = 1.0 / (double)f->blocks - f->share[setting * f->blocks + s] / r->w;
  }
  return OPTIMISM * sqrt(r->scatter / r->w + quadratic(f, c));
}

brim_interval brim_race_rate(brim_race *race, size_t setting) {
  if (!known(race, setting)) return unknown;
  const race_fit *f = &race->fit;
  double half = brim_stats_t95(f->df) * rate_se(race, setting);
  return around(race->runner[setting].a + f->typical, half);
}

brim_interval brim_race_later(brim_race *race, size_t setting) {
  if (!known(race, setting)) return unknown;
  const race_fit *f = &race->fit;
  double var = 0, visits = 0;
  for (size_t s = 0; s < f->blocks; s++) var += (f->b[s] - f->typical) * (f->b[s] - f->typical);
  var /= fmax(1, (double)f->blocks - 1);
  // and the scatter of the setting's own visits
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    if (v->setting == setting) visits += v->weight;
  }
  var += race->runner[setting].scatter * visits / race->runner[setting].w;
  double half = brim_stats_t95(f->df) * sqrt(pow(rate_se(race, setting), 2) + var);
  return around(race->runner[setting].a + f->typical, half);
}

//-------------------------------------------- rounds --------------------------------------------

// A setting is visited again while its estimate is less than CONTEND standard errors behind the best. The race ends when
// all are STOP behind. By the truth test.
#define CONTEND 0.3
#define STOP 2.7
// Visits of one setting that differ by so many standard errors disagree.
#define DISAGREE 2.0
// No usual disturbance explains a factor this large: one visit is enough.
#define FAR_BEHIND 5.0
// A setting surely this near to the best need not be told apart from it.
#define CLOSE_ENOUGH 0.02

brim_status brim_race_create(size_t settings, double passes, brim_race **out) {
  brim_race *r = (brim_race *)brim_calloc(1, sizeof *r);
  *out = NULL;
  if (!r) return brim_fail(BRIM_ENOMEM, "out of memory for %zu settings", settings);
  r->settings = settings;
  r->passes = passes > 0 ? passes : 3;
  r->runner = (runner *)brim_calloc(settings + 1, sizeof *r->runner);
  r->queue = (size_t *)brim_calloc(settings + 1, sizeof *r->queue);
  if (!r->runner || !r->queue) {
    brim_race_destroy(r);
    return brim_fail(BRIM_ENOMEM, "out of memory for %zu settings", settings);
  }
  for (size_t i = 0; i < settings; i++) r->queue[i] = i;
  r->queued = settings;
  *out = r;
  return BRIM_OK;
}

void brim_race_destroy(brim_race *race) {
  if (!race) return;
  brim_free(race->runner);
  brim_free(race->queue);
  brim_free(race->visit);
  brim_race_fit_free(race);
  brim_free(race);
}

brim_status brim_race_add(brim_race *race, size_t setting, const brim_result_visit *visit) {
  if (race->visits == race->capacity) {
    size_t capacity = race->capacity ? 2 * race->capacity : 64;
    entry *grown = (entry *)brim_realloc(race->visit, capacity * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", capacity);
    race->visit = grown;
    race->capacity = capacity;
  }
  runner *r = &race->runner[setting];
  // an unknown spread counts as a large one
  double se = visit->log_se >= 0 ? fmax(visit->log_se, MIN_SE) : UNKNOWN_SE;
  race->visit[race->visits++] = (entry){.setting = setting,
                                        .x = log(visit->samples_per_s),
                                        .samples = fmax(1, visit->samples),
                                        .se = se};
  if (r->visits++ == 0) race->first_seconds += visit->seconds;
  r->seconds += visit->seconds;
  race->seconds += visit->seconds;
  race->fitted = false;
  return BRIM_OK;
}

void brim_race_start_rounds(brim_race *race) {
  size_t most = 0;
  for (size_t i = 0; i < race->settings; i++) {
    if (race->runner[i].visits > most) most = race->runner[i].visits;
  }
  race->queued = race->at = 0;
  race->round = most > 1;
}

void brim_race_fail(brim_race *race, size_t setting) {
  race->runner[setting].failed = true;
  race->fitted = false;
}

static bool running(const brim_race *race, size_t i) {
  return race->runner[i].visits > 0 && !race->runner[i].failed;
}

int64_t brim_race_best(brim_race *race) {
  int64_t best = -1;
  if (brim_race_fit(race)) return -1;
  for (size_t i = 0; i < race->settings; i++) {
    if (!running(race, i)) continue;
    if (best < 0 || race->runner[i].a > race->runner[best].a) best = (int64_t)i;
  }
  return best;
}

// The best visit, as if all others had been disturbed.
static double luckiest(const brim_race *race, size_t i) {
  double most = -INFINITY;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    if (v->setting == i) most = fmax(most, v->x - race->fit.b[v->block]);
  }
  return most;
}

// Do its two visits disagree? One was disturbed, and a third visit tells which.
static bool torn(const brim_race *race, size_t i) {
  double low = INFINITY, high = -INFINITY, scale = 0;
  if (race->runner[i].visits != 2) return false;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    if (v->setting != i) continue;
    double x = v->x - race->fit.b[v->block];
    low = fmin(low, x);
    high = fmax(high, x);
    scale += v->var;
  }
  return high - low > DISAGREE * sqrt(scale);
}

static bool contends(brim_race *race, size_t i, size_t best) {
  const runner *r = &race->runner[i], *top = &race->runner[best];
  if (!running(race, i)) return false;
  if (i == best) return true;
  if (race->round == 1 && r->visits < 2) return r->a > top->a - log(FAR_BEHIND);
  double se = brim_race_se(race, i, best), behind = top->a - r->a;
  if (torn(race, i)) return true;
  if (behind + 2 * se < CLOSE_ENOUGH) return false;
  return behind < CONTEND * se || (r->visits <= 2 && luckiest(race, i) > top->a);
}

// The setting that is least surely behind the best; -1 if all are surely behind. After one visit each, nothing is sure.
static int64_t last_doubt(brim_race *race, size_t best) {
  int64_t worst = -1;
  double most = -INFINITY;
  for (size_t i = 0; i < race->settings; i++) {
    if (!running(race, i) || i == best) continue;
    double se = brim_race_se(race, i, best), behind = race->runner[best].a - race->runner[i].a;
    double doubt = STOP * se - behind;
    bool seen_once =
        race->round == 1 && (race->runner[i].visits < 2 || race->runner[best].visits < 2);
    if (behind + 2 * se < CLOSE_ENOUGH || doubt <= most || (doubt <= 0 && !seen_once)) continue;
    most = doubt;
    worst = (int64_t)i;
  }
  return worst;
}

static void plan_round(brim_race *race) {
  int64_t best = brim_race_best(race);
  race->queued = race->at = 0;
  race->round++;
  if (best < 0) return;
  size_t n = 0;
  for (size_t i = 0; i < race->settings; i++) {
    if (contends(race, i, (size_t)best)) race->queue[n++] = i;
  }
  if (n == 1) {
    int64_t other = last_doubt(race, (size_t)best);
    if (other < 0) return;
    race->queue[n++] = (size_t)other;
    if (other < best) {
      race->queue[0] = (size_t)other;
      race->queue[1] = (size_t)best;
    }
  }
  if (n < 2) return;
  for (size_t k = 0; race->round % 2 && k < n / 2; k++) {
    size_t kept = race->queue[k];
    race->queue[k] = race->queue[n - 1 - k];
    race->queue[n - 1 - k] = kept;
  }
  race->queued = n;
}

double brim_race_seconds_left(const brim_race *race) {
  double budget = race->passes * BRIM_RACE_PASS_VISITS * race->first_seconds;
  return fmax(0, budget - race->seconds);
}

static bool affordable(const brim_race *race, size_t setting) {
  const runner *r = &race->runner[setting];
  double cost = r->seconds / (double)r->visits;
  return cost <= brim_race_seconds_left(race) * (1 + 1e-9);
}

// Can it be visited now? The first round is free.
static bool is_next(const brim_race *race, size_t setting) {
  return !race->runner[setting].failed && (race->round == 0 || affordable(race, setting));
}

// The race ends when no visit of a newly planned round can be afforded. That follows from the visits alone, so a race read
// from records ends at the same point.
int64_t brim_race_next(brim_race *race) {
  while (!race->over) {
    while (race->at < race->queued && !is_next(race, race->queue[race->at])) race->at++;
    if (race->at < race->queued) return (int64_t)race->queue[race->at++];
    plan_round(race);
    race->over = true;
    for (size_t k = 0; k < race->queued && race->over; k++) {
      race->over = !is_next(race, race->queue[k]);
    }
  }
  return -1;
}
