// A sweep: its settings, the race that decides which is visited next, and the measuring. In the end one visit becomes
// the result of its setting, with the rate and the interval from all visits.

#include "tune/tune_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

//-------------------------------------------- race ----------------------------------------------
// The race of settings: rounds, elimination, budget, and the fit behind its intervals.

#define MIN_SE 1e-4     // smallest standard error that clocks allow
#define UNKNOWN_SE 0.2  // assumed standard error of a visit that reports none

typedef struct race_visit {
  size_t setting, block;
  double x, se, samples;  // x: log(samples_per_s)
  double weight;          // 1 = usual; near 0 = disturbed
  double var;             // of x: sampling error and disturbance (tau^2)
} race_visit;

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
  race_visit *visit;
  size_t visits, capacity;
  size_t *queue;  // settings to visit in this round
  size_t queued, at, round;
  double seconds, first_seconds;
  bool over, fitted;
  race_fit fit;
};

//--------------------------------------------- fit ---------------------------------------------
// Estimates of a race. The logarithm of a visit's rate is that of its setting, plus the state of the machine at that
// time, plus noise with heavy tails:
//     x = a[setting] + b[block] + e,   e ~ t(4) of scale sqrt(se^2 + tau^2)
// A block is a few visits in a row. b is a random walk from block to block: settings are compared through their
// neighbours in time, and minutes of slowness cancel. tau is the disturbance between visits that their own samples do
// not show; it is estimated by moments. A visit hit by a burst gets little weight. The constants were chosen by the
// truth test (tests/tune).

enum { BLOCK_VISITS = 3, MOST_BLOCKS = 64, ITERATIONS = 25 };
#define NU 4.0
#define WALK 2.0       // variance of a step of the walk over that of a visit
#define ANCHOR 1e-3    // holds the walk's level near 0: levels belong to the settings
#define MOST_TAU2 4.0  // a factor of e^2
// Standard errors are multiplied by this. Errors from t(4) weights are too small by
// sqrt((NU + 3) / (NU + 1)), and the winner of several settings is partly lucky. The value was chosen
// with the truth test.
#define SE_FACTOR 1.32

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

// Inverts a symmetric, positive definite matrix in place, by Gauss-Jordan elimination.
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

// Fills f->inverse with the information matrix of the blocks: the visits' part, with the settings
// eliminated, plus the random walk's.
static void fill_information(brim_race *race, double walk) {
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

// Solves the weighted least squares. Returns the degrees of freedom that the blocks use.
static double solve(brim_race *race, double walk) {
  race_fit *f = &race->fit;
  size_t n = f->blocks;
  double right[MOST_BLOCKS] = {0}, visit_information[MOST_BLOCKS], used_df = 0;
  memset(f->share, 0, race->settings * n * sizeof *f->share);
  for (size_t i = 0; i < race->settings; i++) race->runner[i].a = race->runner[i].w = 0;
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
    double w = v->weight / v->var;
    race->runner[v->setting].w += w;
    race->runner[v->setting].a += w * v->x;  // a sum here, divided below
    f->share[v->setting * n + v->block] += w;
    right[v->block] += w * v->x;
  }
  for (size_t i = 0; i < race->settings; i++) {
    const runner *r = &race->runner[i];
    for (size_t s = 0; s < n && r->w > 0; s++) right[s] -= f->share[i * n + s] * r->a / r->w;
  }
  fill_information(race, walk);
  for (size_t r = 0; r < n; r++)
    visit_information[r] = f->inverse[r * n + r] - (ANCHOR + (r > 0) + (r + 1 < n)) / walk;
  invert(f->inverse, n);
  for (size_t r = 0; r < n; r++) {
    f->b[r] = 0;
    for (size_t s = 0; s < n; s++) f->b[r] += f->inverse[r * n + s] * right[s];
    used_df += fmin(1, fmax(0, f->inverse[r * n + r] * visit_information[r]));
  }
  for (size_t i = 0; i < race->settings; i++) {
    runner *r = &race->runner[i];
    for (size_t s = 0; s < n; s++) r->a -= f->share[i * n + s] * f->b[s];
    r->a = r->w > 0 ? r->a / r->w : (double)NAN;
  }
  return used_df;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The plain median is enough: the sizes of blocks differ by at most one visit.
static double median_block(const race_fit *f) {
  double v[MOST_BLOCKS];
  memcpy(v, f->b, f->blocks * sizeof *v);
  qsort(v, f->blocks, sizeof *v, ascending);
  size_t n = f->blocks;
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// Sets new weights. Returns the weighted squares of the residuals over the degrees of freedom; 1 = tau fits.
static double weigh(brim_race *race, double df) {
  double sum = 0;
  for (size_t k = 0; k < race->visits; k++) {
    race_visit *v = &race->visit[k];
    double e = v->x - race->runner[v->setting].a - race->fit.b[v->block], z2 = e * e / v->var;
    v->weight = (NU + 1) / (NU + z2);
    sum += v->weight * z2;
  }
  return sum / df;
}

// The spread of ten samples is uncertain: visits whose samples agree by chance would weigh most. So the visits of a
// setting pool their spread, together with PRIOR_VISITS imagined visits of the usual spread.
#define PRIOR_VISITS 3.0
static void pool_errors(brim_race *race, double *own) {
  for (size_t k = 0; k < race->visits; k++) {
    own[k] = race->visit[k].se * sqrt(race->visit[k].samples);
  }
  qsort(own, race->visits, sizeof *own, ascending);
  double usual = own[race->visits / 2], usual2 = usual * usual;
  for (size_t i = 0; i < race->settings; i++) race->runner[i].var = PRIOR_VISITS * usual2;
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
    race->runner[v->setting].var += v->se * v->se * v->samples;
  }
  for (size_t i = 0; i < race->settings; i++) {
    race->runner[i].var /= PRIOR_VISITS + (double)race->runner[i].visits;
  }
}

static void iterate(brim_race *race, double settings) {
  double tau2 = 1e-4, visits = (double)race->visits;
  for (int i = 0; i < ITERATIONS; i++) {
    double mean = 0;
    for (size_t k = 0; k < race->visits; k++) {
      race_visit *v = &race->visit[k];
      v->var = race->runner[v->setting].var / v->samples + tau2;
      mean += v->var / visits;
    }
    double used_df = solve(race, WALK * mean);
    race->fit.df = fmax(1, visits - settings - used_df);
    double change = 0.7 * (weigh(race, race->fit.df) - 1) * mean;
    double next = fmin(MOST_TAU2, fmax(0, tau2 + change));
    if (i > 5 && fabs(next - tau2) < 1e-3 * mean) break;
    tau2 = next;
  }
}

// Some settings suffer more from disturbances than others, such as threads that wait for each other at every small op.
// If a setting's visits scatter more than the fit expects, its error grows.
static void find_scatter(brim_race *race) {
  for (size_t i = 0; i < race->settings; i++) race->runner[i].scatter = PRIOR_VISITS;
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
    double e = v->x - race->runner[v->setting].a - race->fit.b[v->block];
    race->runner[v->setting].scatter += v->weight * e * e / v->var;
  }
  for (size_t i = 0; i < race->settings; i++) {
    runner *r = &race->runner[i];
    r->scatter = fmax(1, r->scatter / (PRIOR_VISITS + fmax(1, (double)r->visits - 1)));
  }
}

// Updates the estimates if there are new visits.
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

// Returns c' * inverse * c.
static double quadratic(const race_fit *f, const double *c) {
  double sum = 0;
  for (size_t r = 0; r < f->blocks; r++) {
    for (size_t s = 0; s < f->blocks; s++) sum += c[r] * f->inverse[r * f->blocks + s] * c[s];
  }
  return sum;
}

// Standard error of the difference between the log rates of two settings. Call it after a fit.
static double brim_race_se(const brim_race *race, size_t a, size_t b) {
  const race_fit *f = &race->fit;
  const runner *x = &race->runner[a], *y = &race->runner[b];
  double c[MOST_BLOCKS];
  for (size_t r = 0; r < f->blocks; r++) {
    c[r] = f->share[a * f->blocks + r] / x->w - f->share[b * f->blocks + r] / y->w;
  }
  return SE_FACTOR * sqrt(x->scatter / x->w + y->scatter / y->w + quadratic(f, c));
}

static brim_interval interval_around(double log_value, double half) {
  return (brim_interval){exp(log_value), exp(log_value - half), exp(log_value + half)};
}

static const brim_interval unknown = {(double)NAN, (double)NAN, (double)NAN};

static bool has_estimate(brim_race *race, size_t i) {
  return i < race->settings && race->runner[i].visits > 0 && !race->runner[i].failed &&
         !brim_race_fit(race);
}

brim_interval brim_race_ratio(brim_race *race, size_t a, size_t b) {
  if (!has_estimate(race, a) || !has_estimate(race, b)) return unknown;
  if (a == b) return (brim_interval){1, 1, 1};
  double half = brim_stats_t95(race->fit.df) * brim_race_se(race, a, b);
  return interval_around(race->runner[a].a - race->runner[b].a, half);
}

// Standard error of the log rate of a setting in the machine's typical state.
static double rate_se(const brim_race *race, size_t setting) {
  const race_fit *f = &race->fit;
  const runner *r = &race->runner[setting];
  double c[MOST_BLOCKS];
  for (size_t s = 0; s < f->blocks; s++) {
    c[s] = 1.0 / (double)f->blocks - f->share[setting * f->blocks + s] / r->w;
  }
  return SE_FACTOR * sqrt(r->scatter / r->w + quadratic(f, c));
}

brim_interval brim_race_rate(brim_race *race, size_t setting) {
  if (!has_estimate(race, setting)) return unknown;
  const race_fit *f = &race->fit;
  double half = brim_stats_t95(f->df) * rate_se(race, setting);
  return interval_around(race->runner[setting].a + f->typical, half);
}

brim_interval brim_race_later(brim_race *race, size_t setting) {
  if (!has_estimate(race, setting)) return unknown;
  const race_fit *f = &race->fit;
  double var = 0, visits = 0;
  for (size_t s = 0; s < f->blocks; s++) var += (f->b[s] - f->typical) * (f->b[s] - f->typical);
  var /= fmax(1, (double)f->blocks - 1);
  // add the scatter of the setting's own visits
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
    if (v->setting == setting) visits += v->weight;
  }
  var += race->runner[setting].scatter * visits / race->runner[setting].w;
  double half = brim_stats_t95(f->df) * sqrt(pow(rate_se(race, setting), 2) + var);
  return interval_around(race->runner[setting].a + f->typical, half);
}

//-------------------------------------------- rounds --------------------------------------------

// A setting is visited again while its estimate is less than CONTEND standard errors behind the best. The race ends
// when all are STOP standard errors behind. Both constants were chosen by the truth test.
#define CONTEND 0.3
#define STOP 2.7
// Two visits of one setting disagree if they differ by this many standard errors.
#define DISAGREE 2.0
// No usual disturbance makes a setting slower by this factor: one visit is enough.
#define FAR_BEHIND 5.0
// A setting whose log rate is surely this near to the best need not be told apart from it.
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
    race_visit *grown = (race_visit *)brim_realloc(race->visit, capacity * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", capacity);
    race->visit = grown;
    race->capacity = capacity;
  }
  runner *r = &race->runner[setting];
  // treat an unknown spread as a large spread
  double se = visit->log_se >= 0 ? fmax(visit->log_se, MIN_SE) : UNKNOWN_SE;
  race->visit[race->visits++] = (race_visit){.setting = setting,
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

static bool is_running(const brim_race *race, size_t i) {
  return race->runner[i].visits > 0 && !race->runner[i].failed;
}

int64_t brim_race_best(brim_race *race) {
  int64_t best = -1;
  if (brim_race_fit(race)) return -1;
  for (size_t i = 0; i < race->settings; i++) {
    if (!is_running(race, i)) continue;
    if (best < 0 || race->runner[i].a > race->runner[best].a) best = (int64_t)i;
  }
  return best;
}

// The rate of the best visit. It is the setting's rate if all other visits were disturbed.
static double best_visit(const brim_race *race, size_t i) {
  double most = -INFINITY;
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
    if (v->setting == i) most = fmax(most, v->x - race->fit.b[v->block]);
  }
  return most;
}

// True if the setting has two visits that disagree: one was disturbed, and a third visit shows which.
static bool visits_disagree(const brim_race *race, size_t i) {
  double low = INFINITY, high = -INFINITY, scale = 0;
  if (race->runner[i].visits != 2) return false;
  for (size_t k = 0; k < race->visits; k++) {
    const race_visit *v = &race->visit[k];
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
  if (!is_running(race, i)) return false;
  if (i == best) return true;
  if (race->round == 1 && r->visits < 2) return r->a > top->a - log(FAR_BEHIND);
  double se = brim_race_se(race, i, best), behind = top->a - r->a;
  if (visits_disagree(race, i)) return true;
  if (behind + 2 * se < CLOSE_ENOUGH) return false;
  return behind < CONTEND * se || (r->visits <= 2 && best_visit(race, i) > top->a);
}

// The setting that is least surely behind the best; -1 if all are surely behind. After one visit each, nothing is sure.
static int64_t last_doubt(brim_race *race, size_t best) {
  int64_t worst = -1;
  double most = -INFINITY;
  for (size_t i = 0; i < race->settings; i++) {
    if (!is_running(race, i) || i == best) continue;
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

// Seconds that the budget leaves.
static double race_seconds_left(const brim_race *race) {
  double budget = race->passes * BRIM_RACE_PASS_VISITS * race->first_seconds;
  return fmax(0, budget - race->seconds);
}

static bool has_seconds_for(const brim_race *race, size_t setting) {
  const runner *r = &race->runner[setting];
  double cost = r->seconds / (double)r->visits;
  return cost <= race_seconds_left(race) * (1 + 1e-9);
}

// True if the setting can be visited now: it has not failed and the budget allows it. The first round
// ignores the budget.
static bool is_next(const brim_race *race, size_t setting) {
  return !race->runner[setting].failed && (race->round == 0 || has_seconds_for(race, setting));
}

// The race ends when no visit of a newly planned round can be afforded. That follows from the visits alone, so a race
// read from records ends at the same point.
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

//------------------------------------------- settings -------------------------------------------
// Makes the settings of a sweep: every sensible combination of its axes, without settings that are the same in
// effect, and the config's own setting.

typedef struct grid {
  const brim_subject *subject;
  const brim_sweep_axis *axes;
  size_t axis_count;
  int64_t set_samples;  // 0 = unknown, or there is no data set
  int batch, accumulation;
} grid;

static grid grid_of(const brim_subject *subject, const brim_sweep_axis *axes, size_t axis_count) {
  brim_subject_facts facts = {0};
  if (subject->table->facts) subject->table->facts(subject->state, &facts);
  return (grid){.subject = subject,
                .axes = axes,
                .axis_count = axis_count,
                .set_samples = facts.set_samples,
                .batch = brim_subject_knob_as(subject, BRIM_ROLE_BATCH),
                .accumulation = brim_subject_knob_as(subject, BRIM_ROLE_ACCUMULATION)};
}

static brim_setting setting_at(const grid *g, size_t index) {
  brim_setting setting = brim_subject_setting(g->subject);
  for (size_t a = g->axis_count; a > 0; a--) {
    const brim_sweep_axis *axis = &g->axes[a - 1];
    setting.value[axis->knob] = axis->values[index % axis->count];
    index /= axis->count;
  }
  return setting;
}

static int64_t step_rows(const grid *g, const brim_setting *s) {
  if (g->batch < 0) return 0;
  return s->value[g->batch] * (g->accumulation < 0 ? 1 : s->value[g->accumulation]);
}

static bool is_filled(const grid *g, const brim_setting *s) {
  return g->set_samples <= 0 || step_rows(g, s) <= g->set_samples;
}

static bool is_sensible(const grid *g, const brim_setting *s) {
  const brim_subject_table *table = g->subject->table;
  return !table->sensible || table->sensible(g->subject->state, s);
}

// The value that represents an axis whose knob makes no difference: the config's own if the axis has it, else the
// first.
static int64_t one_value(const grid *g, const brim_sweep_axis *axis) {
  int64_t own = g->subject->knobs[axis->knob].value;
  for (size_t i = 0; i < axis->count; i++) {
    if (axis->values[i] == own) return own;
  }
  return axis->values[0];
}

// True if another setting of the grid is the same in effect and represents this one.
static bool is_double(const grid *g, const brim_setting *s) {
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count < 2 || s->value[axis->knob] == one_value(g, axis)) continue;
    if (!brim_subject_knob_matters(g->subject, (size_t)axis->knob, s)) return true;
  }
  return false;
}

// True if two settings are equal in every knob that matters.
static bool is_same(const grid *g, const brim_setting *a, const brim_setting *b) {
  for (size_t k = 0; k < g->subject->knob_count; k++) {
    if (a->value[k] == b->value[k]) continue;
    if (brim_subject_knob_matters(g->subject, k, a) ||
        brim_subject_knob_matters(g->subject, k, b)) {
      return false;
    }
  }
  return true;
}

//---------------------------------- settings left out ----------------------------------

static brim_status why_not_filled(const grid *g, const brim_setting *s) {
  int64_t steps = g->accumulation < 0 ? 1 : s->value[g->accumulation];
  if (steps > 1) {
    return brim_fail(BRIM_EINVAL,
                     "the set has %" PRId64
                     " samples, fewer than one step of %.0f x %.0f accumulated; not run",
                     g->set_samples, (double)s->value[g->batch], (double)steps);
  }
  return brim_fail(BRIM_EINVAL,
                   "the set has %" PRId64 " samples, fewer than one batch of %.0f; not run",
                   g->set_samples, (double)s->value[g->batch]);
}

// Fails with the reason why a setting is left out.
static brim_status why_left_out(const grid *g, const brim_setting *s) {
  const brim_subject *subject = g->subject;
  if (!is_filled(g, s)) return why_not_filled(g, s);
  return subject->table->refuse ? subject->table->refuse(subject->state, s) : BRIM_OK;
}

static brim_status check_axes(const grid *g, size_t *total) {
  *total = 1;
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count == 0 || axis->knob < 0 || (size_t)axis->knob >= g->subject->knob_count) {
      return brim_fail(BRIM_EINVAL, "a sweep axis has no values");
    }
    const brim_knob *knob = &g->subject->knobs[axis->knob];
    for (size_t i = 0; i < axis->count; i++) {
      if (axis->values[i] < knob->min || axis->values[i] > knob->max) {
        return brim_fail(BRIM_EINVAL, "%s %" PRId64 " is outside %" PRId64 "..%" PRId64, knob->name,
                         axis->values[i], knob->min, knob->max);
      }
    }
    if (axis->count > BRIM_CONFIG_MAX_GRID / *total) {
      return brim_fail(BRIM_ELIMIT, "the sweep has more than %d settings", BRIM_CONFIG_MAX_GRID);
    }
    *total *= axis->count;
  }
  return BRIM_OK;
}

static brim_status collect(const grid *g, size_t size, brim_sweep_settings *out) {
  size_t left_out = 0;
  brim_setting first;
  memset(&first, 0, sizeof first);
  for (size_t i = 0; i < size; i++) {
    brim_setting s = setting_at(g, i);
    if (!is_sensible(g, &s) || !is_filled(g, &s)) {
      if (left_out++ == 0) first = s;
    } else if (!is_double(g, &s)) {
      out->setting[out->count++] = s;
    }
  }
  if (left_out == 0) return BRIM_OK;
  brim_status status = why_left_out(g, &first);
  if (out->count == 0) {
    return status ? status : brim_fail(BRIM_EINVAL, "none of the settings to try makes sense");
  }
  if (status) {
    brim_log_warn("tune", "%zu of %zu combinations are left out; the first: %s", left_out, size,
                  brim_status_detail());
    brim_status_clear();
  }
  return BRIM_OK;
}

// Puts the config's own setting in front, so that an interrupted sweep has measured it.
static void add_own(const grid *g, brim_sweep_settings *out) {
  brim_setting own = brim_subject_setting(g->subject);
  for (size_t i = 0; i < out->count; i++) {
    if (is_same(g, &own, &out->setting[i])) {
      out->own = (int)i;
      return;
    }
  }
  if (!is_sensible(g, &own) || !is_filled(g, &own)) return;
  memmove(out->setting + 1, out->setting, out->count * sizeof *out->setting);
  out->setting[0] = own;
  out->count++;
  out->own = 0;
  out->own_added = true;
}

brim_status brim_sweep_settings_make(const brim_subject *subject, const brim_sweep_axis *axes,
                                     size_t axis_count, bool own, brim_sweep_settings *out) {
  grid g = grid_of(subject, axes, axis_count);
  size_t size = 0;
  *out = (brim_sweep_settings){.own = -1};
  BRIM_TRY(check_axes(&g, &size));
  out->setting = (brim_setting *)brim_calloc(size + 1, sizeof *out->setting);
  if (!out->setting) return brim_fail(BRIM_ENOMEM, "out of memory for %zu settings", size);
  brim_status status = collect(&g, size, out);
  if (!status && own) add_own(&g, out);
  if (status) brim_sweep_settings_free(out);
  return status;
}

void brim_sweep_settings_free(brim_sweep_settings *settings) {
  brim_free(settings->setting);
  *settings = (brim_sweep_settings){.own = -1};
}

//----------------------------------------- large grids -----------------------------------------
// Chooses the setting of a large grid to visit next for the first time. A large grid is not measured whole: brim
// climbs from the config's own setting to neighbours of the best settings so far, until no neighbour is left. The
// choice depends only on the rates measured so far, so a resumed sweep continues where it was.

// Visit the neighbours of up to TOP settings. Each must have NEAR times the best rate.
enum { TOP = 3 };
#define NEAR 0.95
// Do not climb to still larger batches if the last step up gained less than this factor.
#define CLIMBS 1.03

static bool is_number(const brim_knob *knob) { return knob->kind == BRIM_KNOB_INT; }

static double distance(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  double sum = 0;
  for (size_t k = 0; k < c->subject->knob_count; k++) {
    double x = (double)a->value[k], y = (double)b->value[k];
    if (x == y) continue;
    sum += is_number(&c->subject->knobs[k]) ? fabs(log((x + 1) / (y + 1))) : 0.1;
  }
  return sum;
}

// The unvisited setting that is nearest to `from`; -1 = none.
static int64_t nearest(const brim_climb *c, const brim_setting *from) {
  int64_t best = -1;
  double least = (double)INFINITY;
  for (size_t i = 0; i < c->settings->count; i++) {
    double far = distance(c, from, &c->settings->setting[i]);
    if (!isnan(c->rate[i]) || far >= least) continue;
    least = far;
    best = (int64_t)i;
  }
  return best;
}

// The only knob in which `b` differs from `a`, not counting knobs that make no difference for `b`. -1 = no such knob,
// or several.
static int only_difference(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  int knob = -1;
  for (size_t k = 0; k < c->subject->knob_count; k++) {
    if (a->value[k] == b->value[k] || !brim_subject_knob_matters(c->subject, k, b)) continue;
    if (knob >= 0) return -1;
    knob = (int)k;
  }
  return knob;
}

// The next setting from `from` along a knob, up or down; -1 = none. A knob with choices has no order: its next value
// is any value that was not visited.
static int64_t neighbour(const brim_climb *c, size_t from, int knob, bool up) {
  const brim_setting *at = &c->settings->setting[from];
  const bool number = is_number(&c->subject->knobs[knob]);
  int64_t best = -1;
  for (size_t i = 0; i < c->settings->count; i++) {
    const brim_setting *s = &c->settings->setting[i];
    if (only_difference(c, at, s) != knob) continue;
    int64_t value = s->value[knob];
    if (!number) {
      if (up && isnan(c->rate[i])) return (int64_t)i;
      continue;
    }
    if ((value > at->value[knob]) != up) continue;
    if (best < 0 || (value < c->settings->setting[best].value[knob]) == up) best = (int64_t)i;
  }
  return best;
}

// True if climbing along this knob is worth it. For a knob that multiplies the work of a step the last step up must
// have gained CLIMBS.
static bool climbs(const brim_climb *c, size_t from, int knob) {
  if (!c->subject->knobs[knob].multiplies) return true;
  int64_t below = neighbour(c, from, knob, false);
  return below < 0 || !(c->rate[below] > 0) || c->rate[from] >= CLIMBS * c->rate[below];
}

static int64_t unvisited_neighbour(const brim_climb *c, size_t from) {
  for (size_t a = 0; a < c->axis_count; a++) {
    int knob = c->axes[a].knob;
    for (int up = 1; up >= 0; up--) {
      if (up && !climbs(c, from, knob)) continue;
      int64_t next = neighbour(c, from, knob, up);
      if (next >= 0 && isnan(c->rate[next])) return next;
    }
  }
  return -1;
}

int64_t brim_climb_next(const brim_climb *c) {
  const brim_sweep_settings *s = c->settings;
  size_t top[TOP], n = 0;
  bool on_grid = false;
  if (s->own >= 0 && isnan(c->rate[s->own])) return s->own;
  for (size_t i = 0; i < s->count; i++) {
    if (!(c->rate[i] > 0)) continue;
    on_grid = on_grid || (int)i != s->own || !s->own_added;
    size_t at = n < TOP ? n++ : TOP;
    while (at > 0 && c->rate[top[at - 1]] < c->rate[i]) {
      if (at < TOP) top[at] = top[at - 1];
      at--;
    }
    if (at < TOP) top[at] = i;
  }
  // no setting of the grid ran yet: begin with the setting nearest to the config's own
  if (!on_grid) return nearest(c, s->own >= 0 ? &s->setting[s->own] : &s->setting[0]);
  for (size_t k = 0; k < n && c->rate[top[k]] >= NEAR * c->rate[top[0]]; k++) {
    int64_t next = unvisited_neighbour(c, top[k]);
    if (next >= 0) return next;
  }
  return -1;
}

//-------------------------------------------- sweep --------------------------------------------
// Every setting is visited once, then the race chooses. The end of a sweep is a function of its records.

// The visits to one setting.
typedef struct setting_runs {
  // (count) The result of the record, if there is one, then one for each visit. One is kept in the end.
  brim_result *visit;
  // (race_visit_count) All visits as the race has them, visits of the record included.
  brim_result_visit *race_visits;
  size_t count, race_visit_count;
  double seconds;  // cost of the last visit
  bool known;      // the first result is from a record
  bool failed;     // it ran at first and failed later
} setting_runs;

typedef struct sweep {
  brim_subject *subject;
  const brim_sweep_options *options;
  const brim_sweep_settings *settings;
  brim_race *race;
  setting_runs *runs;    // (settings)
  brim_result *results;  // in the order of their first visits
  size_t *setting_of;    // (results)
  size_t count;          // results
  double *rate;          // (settings) of first visits; NaN = not visited, 0 = did not run
  size_t at;             // index of the setting being measured
  size_t number;         // its number for people, from 1
  size_t repeats;        // visits beyond the first round
  int64_t visits;        // all visits, those of records included
  double first_s;        // cost of the first round
  bool climbing, budget_ended, shown_first;
  brim_trial_options trial;
  brim_result_visit visit;  // of the trial that runs
  brim_time start;
  brim_host_sample host;      // the last reading of the host's counters
  double others_cpu_percent;  // other programs' share of the CPU since the reading before
  char title[160];
} sweep;

//---------------------------------- progress ----------------------------------

static double rows(const sweep *s, size_t setting) {
  return brim_subject_rows(s->subject, &s->settings->setting[setting]);
}

double brim_sweep_predict(const double *x, const double *seconds, size_t n, double at) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0, least = INFINITY, most = 0;
  for (size_t i = 0; i < n; i++) {
    sx += x[i];
    sy += seconds[i];
    sxx += x[i] * x[i];
    sxy += x[i] * seconds[i];
    least = fmin(least, seconds[i]);
    most = fmax(most, x[i]);
  }
  // A setting far larger than all measured ones is not predicted.
  if (n == 0 || at > BRIM_SWEEP_FARTHEST * most) return (double)NAN;
  double count = (double)n, spread = sxx - sx * sx / count;
  // Only one size was measured: assume that time grows in proportion, which rather overestimates.
  if (!(spread > 1e-9 * sxx)) return sy / count * fmax(1, at * count / sx);
  double slope = fmax(0, (sxy - sx * sy / count) / spread);
  return fmax(least, sy / count + slope * (at - sx / count));
}

double brim_sweep_seconds(double spent, double ahead, double passes) {
  double budget = passes > 1 ? passes * BRIM_RACE_PASS_VISITS : 1;
  return ahead + (budget - 1) * (spent + ahead);
}

static double elapsed_s(const sweep *s) {
  return (double)brim_time_since_ns(s->start, brim_clock_now()) * 1e-9;
}

static double budget_left(const sweep *s) {
  return s->options->budget_s > 0 ? fmax(0, s->options->budget_s - elapsed_s(s)) : INFINITY;
}

// An upper bound for the seconds left: the budget is a multiple of the first round's cost, and a race may end
// earlier. NaN as long as the measured settings do not predict the others. `share` of the present visit is done.
static double seconds_left(const sweep *s, double share) {
  size_t total = s->settings->count, n = 0;
  double x[64], y[64], ahead = 0, left = (double)NAN;
  if (s->repeats > 0) {
    left = race_seconds_left(s->race);
  } else if (!s->climbing) {
    for (size_t i = 0; i < s->count && n < 64; i++) {
      size_t setting = s->setting_of[i];
      if (s->runs[setting].count == 0) continue;
      x[n] = rows(s, setting);
      y[n++] = s->runs[setting].seconds;
    }
    double now = brim_sweep_predict(x, y, n, rows(s, s->at));
    for (size_t i = 0; i < total; i++) {
      if (isnan(s->rate[i])) ahead += brim_sweep_predict(x, y, n, rows(s, i));
    }
    double passes = s->race && total > 1 ? s->options->repeats : 1;
    left = brim_sweep_seconds(s->first_s, ahead, passes) - share * now;
  }
  double budget = budget_left(s);
  if (isfinite(budget)) left = isnan(left) ? budget : fmin(left, budget);
  return left < 0 ? 0 : left;
}

static void on_step(void *ctx, int step, int steps) {
  sweep *s = ctx;
  if (!s->options->on_progress) return;
  brim_progress p;
  memset(&p, 0, sizeof p);
  p.title = s->title;
  p.done = s->repeats > 0 ? -1 : (int64_t)s->number - 1;  // the number of repeats is unknown
  p.total = (int64_t)(s->repeats > 0 ? 0 : s->settings->count);
  p.elapsed_s = elapsed_s(s);
  p.eta_s = seconds_left(s, (double)step / (double)steps);
  p.rate = (double)NAN;
  p.unit = "trials";
  s->options->on_progress(s->options->ctx, &p);
}

//---------------------------------- measuring ----------------------------------

// A visit with a throttled clock is not dropped, but gets a larger error.
#define THROTTLED_SE 0.1
// The assumed number of samples of a visit that does not report it.
#define USUAL_SAMPLES 10.0

// Treats an error as unknown if its interval would be wider than BRIM_TUNE_WIDEST.
static double usable_se(double se) {
  return se <= log(BRIM_TUNE_WIDEST) / (2 * 1.96) ? se : (double)NAN;
}

// The visit that the last trial made, with its place in the sweep.
static brim_result_visit take_visit(const sweep *s, const brim_result *r) {
  brim_result_visit v = s->visit;
  if (!(v.samples > 0)) {  // the subject does not report its samples
    v.samples_per_s = r->samples_per_s;
    v.log_se = (double)NAN;
    v.samples = USUAL_SAMPLES;
    v.seconds = fmax(r->seconds, 1e-3);
  }
  v.log_se = usable_se(v.log_se);
  if (r->throttled) v.log_se = hypot(v.log_se >= 0 ? v.log_se : 0, THROTTLED_SE);
  v.at = s->visits;
  v.others_cpu_percent = s->others_cpu_percent;
  return v;
}

// Makes visits for a record without visits: one for each measurement, with the record's rate, and with errors that
// give the record's interval.
static size_t visits_by_interval(const brim_result *r, brim_result_visit *out) {
  size_t n = r->repeats > 1 ? (size_t)r->repeats : 1;
  if (n > BRIM_RESULT_MAX_VISITS) n = BRIM_RESULT_MAX_VISITS;
  double se = log(r->samples_per_s_high / r->samples_per_s_low) / (2 * 1.96);
  for (size_t i = 0; i < n; i++) {
    out[i] = (brim_result_visit){.at = (int64_t)i,
                                 .samples_per_s = r->samples_per_s,
                                 .log_se = usable_se(se) * sqrt((double)n),
                                 .samples = USUAL_SAMPLES,
                                 .seconds = fmax(r->seconds, 1e-3),
                                 .others_cpu_percent = r->others_cpu_percent};
  }
  return n;
}

static brim_status grow(setting_runs *runs, size_t more) {
  size_t visits = runs->race_visit_count + more;
  brim_result *visit =
      (brim_result *)brim_realloc(runs->visit, (runs->count + 1) * sizeof *runs->visit);
  if (visit) runs->visit = visit;
  brim_result_visit *race_visits =
      visit ? (brim_result_visit *)brim_realloc(runs->race_visits, visits * sizeof *race_visits)
            : NULL;
  if (!race_visits) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", visits);
  runs->race_visits = race_visits;
  return BRIM_OK;
}

static brim_status add_visit(sweep *s, const brim_result *r) {
  setting_runs *runs = &s->runs[s->at];
  const brim_result_visit v = take_visit(s, r);
  BRIM_TRY(grow(runs, 1));
  s->visits++;
  if (runs->count == 0) s->first_s += v.seconds;
  runs->visit[runs->count++] = *r;
  runs->race_visits[runs->race_visit_count++] = v;
  runs->seconds = v.seconds;
  return brim_race_add(s->race, s->at, &v);
}

// The kernel counts in hundredths of a second: a share of a shorter time is meaningless.
#define LEAST_SECONDS 0.2

// Runs one trial at the setting `s->at`, with its title in the progress.
static brim_status run_trial(sweep *s, const brim_trial_options *how, brim_result *r) {
  const brim_subject *subject = s->subject;
  const brim_setting *setting = &s->settings->setting[s->at];
  size_t count = s->settings->count;
  int n = s->repeats > 0
              ? snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu, measurement %zu:"),
                         s->number, count, s->runs[s->at].count + 1)
              : snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu:"), s->number, count);
  for (size_t a = 0; a < s->options->axis_count && n >= 0 && (size_t)n < sizeof s->title; a++) {
    const int knob = s->options->axes[a].knob;
    char value[32];
    brim_knob_format(&subject->knobs[knob], setting->value[knob], value);
    n += snprintf(s->title + n, sizeof s->title - (size_t)n, " %s=%s", subject->knobs[knob].name,
                  value);
  }
  s->visit.samples = 0;
  on_step(s, 0, 1);
  BRIM_TRY((s->options->plan_only ? subject->table->plan : subject->table->run)(subject->state,
                                                                                setting, how, r));
  // Read how much CPU other programs used during the trial.
  const brim_host_provider system = brim_host_provider_system("");
  brim_host_sample now;
  brim_host_sample_clear(&now);
  if (brim_host_read_sample(s->options->host ? s->options->host : &system, &now)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_host_usage usage = brim_host_usage_between(&s->host, &now);
  if (usage.seconds < LEAST_SECONDS) return BRIM_OK;
  if (usage.others_cpu_percent >= 0) s->others_cpu_percent = usage.others_cpu_percent;
  s->host = now;
  return BRIM_OK;
}

// Reopens a device that crashed, since nothing runs on it any more.
static brim_status recover(sweep *s, const brim_result *r) {
  if (r->failure != BRIM_FAILURE_CRASH || !s->subject->table->recover) return BRIM_OK;
  return s->subject->table->recover(s->subject);
}

// Visits a setting for the first time. The caller gets the result at once.
static brim_status first_visit(sweep *s) {
  const brim_sweep_options *o = s->options;
  brim_result *r = &s->results[s->count];
  s->number = s->climbing ? s->count + 1 : s->at + 1;
  s->setting_of[s->count++] = s->at;
  BRIM_TRY(run_trial(s, &s->trial, r));
  r->repeats = 1;
  s->rate[s->at] = brim_result_ran(r) ? r->samples_per_s : 0;
  if (s->race && brim_result_ran(r)) {
    r->others_cpu_percent = s->others_cpu_percent;
    r->visits[0] = take_visit(s, r);
    r->visit_count = 1;
  }
  brim_diagnose(s->results, s->count, s->count - 1);
  if (o->on_result) o->on_result(o->ctx, r);
  if (!brim_result_ran(r)) {
    if (s->race) brim_race_fail(s->race, s->at);
    return recover(s, r);
  }
  return s->race ? add_visit(s, r) : BRIM_OK;
}

// Time limit of a further visit on a GPU. The first steps are slow there: graphs are recorded and kernels loaded.
#define REPEAT_SECONDS 8.0
enum { REPEAT_LEAST = 3, REPEAT_WARMUP = 6 };

// Visits a setting again, for a shorter time than at first: many short visits are better than few long ones. A
// setting that ran before and fails now is unreliable.
static brim_status next_visit(sweep *s) {
  brim_result r;
  brim_trial_options how = s->trial;
  const bool host = s->subject->host;
  // measure the ceilings of loader and device twice: the machine may have been disturbed the first time
  how.ceilings = how.ceilings && s->runs[s->at].count < 2;
  how.max_seconds = fmin(how.max_seconds, host ? how.max_seconds / 2 : REPEAT_SECONDS);
  if (how.min_steps == 0) how.min_steps = REPEAT_LEAST;
  if (how.max_warmup == 0 && host) how.max_warmup = REPEAT_WARMUP;
  s->repeats++;
  s->number = s->at + 1;
  brim_result_init(&r);
  brim_status status = run_trial(s, &how, &r);
  if (!status && !brim_result_ran(&r)) {
    brim_race_fail(s->race, s->at);
    s->runs[s->at].failed = true;
    status = recover(s, &r);
    brim_result_deinit(&r);
    return status;
  }
  if (!status) status = add_visit(s, &r);
  if (status) brim_result_deinit(&r);
  return status;
}

//---------------------------------- records ----------------------------------

typedef struct placed_visit {
  brim_result_visit visit;
  size_t setting;
} placed_visit;

static int by_place(const void *a, const void *b) {
  const placed_visit *x = a, *y = b;
  return (x->visit.at > y->visit.at) - (x->visit.at < y->visit.at);
}

// True if the setting failed after it ran: then it has more measurements than visits.
static bool failed_later(const brim_result *r) {
  return r->visit_count > 0 && (size_t)r->repeats > r->visit_count;
}

// Adds the visits of results in the order in which they were made. Result i belongs to setting `of[i]` of the race,
// or to setting i if `of` is NULL.
static brim_status add_records(brim_race *race, const brim_result *results, size_t count,
                               const size_t *of) {
  size_t n = 0;
  placed_visit *all = brim_calloc(count * BRIM_RESULT_MAX_VISITS + 1, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", count);
  for (size_t i = 0; i < count; i++) {
    brim_result_visit made[BRIM_RESULT_MAX_VISITS];
    const brim_result *r = &results[i];
    const brim_result_visit *visits = r->visit_count ? r->visits : made;
    if (!brim_result_ran(r)) continue;
    size_t total = r->visit_count ? r->visit_count : visits_by_interval(r, made);
    for (size_t k = 0; k < total; k++) {
      if (visits[k].samples_per_s > 0) all[n++] = (placed_visit){visits[k], of ? of[i] : i};
    }
  }
  qsort(all, n, sizeof *all, by_place);
  brim_status status = BRIM_OK;
  for (size_t k = 0; k < n && !status; k++) {
    status = brim_race_add(race, all[k].setting, &all[k].visit);
  }
  for (size_t i = 0; i < count; i++) {
    if (brim_result_ran(&results[i]) && !failed_later(&results[i])) continue;
    brim_race_fail(race, of ? of[i] : i);
  }
  brim_free(all);
  return status;
}

brim_status brim_race_of_results(const brim_result *results, size_t count, double passes,
                                 brim_race **out) {
  BRIM_TRY(brim_race_create(count, passes, out));
  brim_status status = add_records(*out, results, count, NULL);
  if (!status) return BRIM_OK;
  brim_race_destroy(*out);
  *out = NULL;
  return status;
}

// Takes over the results of a resumed sweep's records: their settings need no first visit.
static brim_status take_known(sweep *s) {
  const brim_sweep_options *o = s->options;
  for (size_t i = 0; i < s->settings->count && o->known; i++) {
    brim_result *r = &s->results[s->count];
    if (!o->known(o->ctx, &s->settings->setting[i], r)) continue;
    setting_runs *runs = &s->runs[i];
    s->setting_of[s->count++] = i;
    s->rate[i] = brim_result_ran(r) ? r->samples_per_s : 0;
    if (!s->race || !brim_result_ran(r)) continue;
    runs->known = true;
    runs->failed = failed_later(r);
    size_t visits = r->visit_count;
    BRIM_TRY(grow(runs, visits ? visits : BRIM_RESULT_MAX_VISITS));
    if (visits) {
      memcpy(runs->race_visits, r->visits, visits * sizeof *runs->race_visits);
    } else {
      visits = visits_by_interval(r, runs->race_visits);
    }
    runs->visit[runs->count++] = *r;
    runs->race_visit_count = visits;
    runs->seconds = runs->race_visits[visits - 1].seconds;
    s->first_s += runs->race_visits[0].seconds;
    for (size_t k = 0; k < visits; k++) {
      if (runs->race_visits[k].at >= s->visits) s->visits = runs->race_visits[k].at + 1;
    }
  }
  return s->race ? add_records(s->race, s->results, s->count, s->setting_of) : BRIM_OK;
}

//---------------------------------- the order ----------------------------------

// The fewest steps that give a figure.
enum { LEAST_STEPS = 5 };

// True if a first visit to the setting could end within the budget, at the best throughput so far.
static bool affordable(const sweep *s, size_t setting) {
  double best = 0;
  for (size_t i = 0; i < s->settings->count; i++) best = fmax(best, s->rate[i]);
  return !(best > 0) || LEAST_STEPS * rows(s, setting) / best <= budget_left(s);
}

// The setting to visit next for the first time; -1 = there is none.
static int64_t next_first(sweep *s) {
  const brim_climb climb = {.subject = s->subject,
                            .settings = s->settings,
                            .axes = s->options->axes,
                            .axis_count = s->options->axis_count,
                            .rate = s->rate};
  if (s->climbing) return brim_climb_next(&climb);
  bool limited = s->options->budget_s > 0;
  if (limited && s->settings->own >= 0 && isnan(s->rate[s->settings->own])) return s->settings->own;
  for (size_t i = 0; i < s->settings->count; i++) {
    if (isnan(s->rate[i])) return (int64_t)i;
  }
  return -1;
}

// Shows the first table while the sweep continues, if the sweep takes longer than this.
#define FIRST_TABLE_SECONDS 15.0
static void show_first(sweep *s) {
  size_t ran = 0;
  if (s->shown_first || !s->options->on_first || elapsed_s(s) < FIRST_TABLE_SECONDS) return;
  for (size_t i = 0; i < s->count; i++) ran += brim_result_ran(&s->results[i]);
  if (ran < 2) return;
  s->shown_first = true;
  s->options->on_first(s->options->ctx, s->results, s->count);
}

// Runs the first round, then the race, until it is over or the budget ends.
static brim_status run_all(sweep *s) {
  BRIM_TRY(take_known(s));
  for (int64_t next; (next = next_first(s)) >= 0;) {
    s->at = (size_t)next;
    if (s->count > 0 && !(budget_left(s) > 0)) {
      s->budget_ended = true;
      break;
    }
    if (s->count > 0 && !affordable(s, s->at)) {
      s->budget_ended = true;
      s->rate[s->at] = 0;  // do not visit it: the visit would end after the budget
      continue;
    }
    show_first(s);
    BRIM_TRY(first_visit(s));
  }
  bool once = s->options->repeats < 2 || s->options->plan_only || s->settings->count < 2;
  if (once || s->budget_ended) return BRIM_OK;
  brim_race_start_rounds(s->race);
  for (int64_t next; (next = brim_race_next(s->race)) >= 0;) {
    s->at = (size_t)next;
    if (s->runs[s->at].race_visit_count == BRIM_RESULT_MAX_VISITS) break;
    if (!(budget_left(s) > s->runs[s->at].seconds)) {
      s->budget_ended = true;
      break;
    }
    show_first(s);
    BRIM_TRY(next_visit(s));
  }
  return BRIM_OK;
}

//---------------------------------- results ----------------------------------

// The best ceiling of the visits. It is unknown if the setting itself was faster: then a disturbance lowered the
// ceiling.
static double ceiling_of(const setting_runs *runs, bool data, double rate) {
  double best = (double)NAN;
  for (size_t i = 0; i < runs->count; i++) {
    const brim_result *r = &runs->visit[i];
    best = fmax(best, data ? r->data_samples_per_s : r->compute_samples_per_s);
  }
  return best >= rate ? best : (double)NAN;
}

// Makes one result of all visits of a setting, from the visit nearest to their rate. take_rate follows when all
// settings have a result.
static void join_visits(sweep *s, size_t setting, bool once, brim_result *out) {
  setting_runs *runs = &s->runs[setting];
  if (runs->count == 1 && (runs->known || once)) return;  // keep the result as it is
  const double rate = brim_race_rate(s->race, setting).value;
  size_t pick = 0;
  for (size_t i = 1; i < runs->count && rate > 0; i++) {
    double x = fabs(log(runs->visit[i].samples_per_s / rate));
    if (x < fabs(log(runs->visit[pick].samples_per_s / rate))) pick = i;
  }
  *out = runs->visit[pick];
  out->visit_count = runs->race_visit_count < BRIM_RESULT_MAX_VISITS ? runs->race_visit_count
                                                                     : BRIM_RESULT_MAX_VISITS;
  memcpy(out->visits, runs->race_visits, out->visit_count * sizeof *out->visits);
  out->repeats = (int)(out->visit_count + runs->failed);
  double others = 0, seconds = 0;
  for (size_t i = 0; i < out->visit_count; i++) {
    const brim_result_visit *v = &out->visits[i];
    if (isnan(v->others_cpu_percent)) continue;
    others += v->seconds * v->others_cpu_percent;
    seconds += v->seconds;
  }
  out->others_cpu_percent = seconds > 0 ? others / seconds : (double)NAN;
  for (size_t i = 0; i < runs->count; i++) {
    out->throttled = out->throttled || runs->visit[i].throttled;
  }
  out->data_samples_per_s = ceiling_of(runs, true, rate > 0 ? rate : 0);
  out->compute_samples_per_s = ceiling_of(runs, false, rate > 0 ? rate : 0);
  for (size_t i = 0; i < runs->count; i++) {
    if (i != pick) brim_result_deinit(&runs->visit[i]);
  }
}

static void scale(brim_stats_summary *times, double by) {
  double *const all[] = {&times->min,    &times->max,    &times->mean,   &times->stddev,
                         &times->median, &times->mad,    &times->p05,    &times->p95,
                         &times->p99,    &times->ci_low, &times->ci_high};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= by;
}

// Gives a result the rate of all its visits. Its times are scaled to that rate, so that step, phases and rate agree.
// The interval allows for other programs, which may take less or more of the CPU later.
static void take_rate(brim_result *r, brim_interval rate) {
  double factor = r->samples_per_s / rate.value, load = exp(brim_result_log_load(r));
  scale(&r->total_ms, factor);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) scale(&r->phase_ms[p], factor);
  r->epoch_s *= factor;
  r->samples_per_s = rate.value;
  r->stable = rate.high - rate.low <= 0.25 * rate.value;
  rate.low /= load;
  rate.high *= load;
  bool wide = !(rate.high <= BRIM_TUNE_WIDEST * rate.low);
  r->samples_per_s_low = wide ? (double)NAN : rate.low;
  r->samples_per_s_high = wide ? (double)NAN : rate.high;
}

// Sorts the results by setting, and gives each the rate of a race that is made from the records.
static brim_status conclude(sweep *s) {
  bool once = s->options->repeats < 2 || s->settings->count < 2;
  for (size_t i = 1; i < s->count; i++) {
    for (size_t k = i; k > 0 && s->setting_of[k - 1] > s->setting_of[k]; k--) {
      brim_result kept = s->results[k];
      size_t of = s->setting_of[k];
      s->results[k] = s->results[k - 1];
      s->setting_of[k] = s->setting_of[k - 1];
      s->results[k - 1] = kept;
      s->setting_of[k - 1] = of;
    }
  }
  for (size_t i = 0; i < s->count; i++) {
    if (s->runs[s->setting_of[i]].count > 0) join_visits(s, s->setting_of[i], once, &s->results[i]);
  }
  brim_race_destroy(s->race);
  BRIM_TRY(brim_race_of_results(s->results, s->count, s->options->repeats, &s->race));
  for (size_t i = 0; i < s->count; i++) {
    brim_result *r = &s->results[i];
    const setting_runs *runs = &s->runs[s->setting_of[i]];
    brim_interval rate = brim_race_rate(s->race, i);
    if (!brim_result_ran(r)) continue;
    if (!(rate.value > 0)) {
      r->stable = false;  // the setting ran at first and failed later
    } else if (r->visit_count > 0 && (!once || r->visit_count > 1)) {
      take_rate(r, rate);
    }
    if (s->options->on_final && runs->count > 1) s->options->on_final(s->options->ctx, r);
  }
  return BRIM_OK;
}

static brim_status init(sweep *s) {
  const brim_sweep_options *o = s->options;
  size_t total = s->settings->count;
  s->results = brim_calloc(total + 1, sizeof *s->results);
  s->runs = brim_calloc(total + 1, sizeof *s->runs);
  s->rate = brim_calloc(total + 1, sizeof *s->rate);
  s->setting_of = brim_calloc(total + 1, sizeof *s->setting_of);
  if (!s->results || !s->runs || !s->rate || !s->setting_of) {
    return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", total);
  }
  if (!o->plan_only) BRIM_TRY(brim_race_create(total, o->repeats, &s->race));
  for (size_t i = 0; i < total; i++) s->rate[i] = (double)NAN;
  s->climbing = !o->plan_only && o->climb_above > 0 && total > o->climb_above;
  s->trial = o->trial;
  s->trial.on_step = on_step;
  s->trial.visit = &s->visit;
  s->trial.ctx = s;
  s->start = brim_clock_now();
  s->others_cpu_percent = (double)NAN;
  const brim_host_provider system = brim_host_provider_system("");
  brim_host_sample_clear(&s->host);
  if (brim_host_read_sample(o->host ? o->host : &system, &s->host)) brim_status_clear();
  return BRIM_OK;
}

brim_status brim_sweep_run(brim_subject *subject, const brim_sweep_options *options,
                           brim_result **out, size_t *count) {
  sweep s = {.subject = subject, .options = options, .settings = options->settings};
  brim_sweep_settings made = {.own = -1};
  *out = NULL;
  *count = 0;
  if (options->race) *options->race = NULL;
  if (!s.settings) {
    BRIM_TRY(brim_sweep_settings_make(subject, options->axes, options->axis_count, false, &made));
    s.settings = &made;
  }
  brim_status status = init(&s);
  if (status) {
    brim_free(s.results);
  } else {
    // Return the status that ended the sweep, but conclude from the results in any case.
    status = run_all(&s);
    char detail[1024];
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
    const brim_status concluded = s.race ? conclude(&s) : BRIM_OK;
    if (status) {
      brim_status_set_detail(detail);
    } else {
      status = concluded;
    }
    // diagnose again with all results as evidence
    for (size_t i = 0; i < s.count; i++) brim_diagnose(s.results, s.count, i);
    if (options->setting_of) {
      memcpy(options->setting_of, s.setting_of, s.count * sizeof *s.setting_of);
    }
    if (options->budget_ended) *options->budget_ended = s.budget_ended;
    *out = s.results;
    *count = s.count;
  }
  for (size_t i = 0; s.runs && i < s.settings->count; i++) {
    brim_free(s.runs[i].visit);
    brim_free(s.runs[i].race_visits);
  }
  brim_free(s.runs);
  brim_free(s.rate);
  brim_free(s.setting_of);
  brim_sweep_settings_free(&made);
  if (options->race) {
    *options->race = s.race;
  } else {
    brim_race_destroy(s.race);
  }
  return status;
}
