// A machine and twelve settings whose true speeds are known, for the truth test of recommendations: the race chooses
// visits and results, the timings are simulated here.
//
// Seeds: 1 to 99,999 were used to choose the race's constants; an earlier choice was also checked with those from
// 500,000 and 600,000 on. The record in benchmarks/results uses seeds from 700,000 and from 800,000 on, run once after
// the constants were chosen. The test uses seeds from 900,000 on.
#ifndef BRIM_TESTS_TUNE_TRUTH_H_
#define BRIM_TESTS_TUNE_TRUTH_H_

#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

enum { TRUTH_SETTINGS = 12, TRUTH_SAMPLES = 10, TRUTH_WARMUP = 6, TRUTH_TIME = 4000 };
#define TRUTH_BUILDING_SEED 1u
#define TRUTH_RECORD_SEED 700000u
#define TRUTH_TEST_SEED 900000u

typedef struct truth {
  uint64_t state;
  double noise;                 // standard deviation of the logarithm of one timed sample
  double rate[TRUTH_SETTINGS];  // logarithms
  double slow[TRUTH_TIME];      // the machine's slowness at each sample: logarithm of the factor
  size_t now;
} truth;

// Counts of a number of simulated sweeps.
typedef struct truth_score {
  int sweeps, right, beaten;   // right: the pick is within 3 % of the best
  int ratios, ratios_covered;  // every setting against the recommended one
  int gains, gains_covered;    // the recommended one against the config's own
  int rates, rates_covered;    // every setting, as the table shows it
  int gaps, gaps_certain;      // at least 20 % behind the recommended one
  int provisional;
  double visits, seconds;  // means; seconds in passes
} truth_score;

static inline double truth_uniform(truth *t) {
  uint64_t z = (t->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static inline double truth_normal(truth *t) {
  double radius = sqrt(-2 * log(truth_uniform(t)));
  return radius * cos(6.283185307179586 * truth_uniform(t));
}

static inline double truth_between(truth *t, double low, double high) {
  return low + (high - low) * truth_uniform(t);
}

static inline double truth_log_between(truth *t, double low, double high) {
  return exp(truth_between(t, log(low), log(high)));
}

// The machine's speed drifts (a wave of 8 to 80 trials, and a random walk), and for a tenth of the time everything is
// 1.3 to 3 times slower.
static inline void truth_machine(truth *t) {
  double wave = t->noise * truth_between(t, 0.19, 0.75), walk = 0.5 * t->noise / sqrt(1300.0),
         at = 0;
  double period = truth_log_between(t, 300, 3000), phase = truth_between(t, 0, 6.283185307179586);
  for (size_t i = 0; i < TRUTH_TIME; i++) {
    at += walk * truth_normal(t);
    t->slow[i] = at + wave * sin(6.283185307179586 * (double)i / period + phase);
  }
  // mean burst of 5 to 150 samples; share of the time
  const double length = 145 / log(30), share = 0.10;
  for (size_t i = 0; i < TRUTH_TIME;) {
    i += (size_t)(-log(truth_uniform(t)) * length * (1 - share) / share);
    size_t end = i + (size_t)truth_log_between(t, 5, 150);
    double factor = log(truth_between(t, 1.3, 3));
    for (; i < end && i < TRUTH_TIME; i++) t->slow[i] += factor;
  }
}

// Rates with a factor of 4 from best to worst, the second 5 to 10 % behind, in any order.
static inline void truth_init(truth *t, uint64_t seed, double noise) {
  memset(t, 0, sizeof *t);
  t->state = seed * 0x9e3779b97f4a7c15u;
  t->noise = noise;
  const int last = TRUTH_SETTINGS - 1;
  t->rate[1] = log(1 - truth_between(t, 0.05, 0.10));
  t->rate[last] = -log(4);
  for (int i = 2; i < last; i++) t->rate[i] = truth_between(t, t->rate[last], t->rate[1]);
  for (int i = last; i > 0; i--) {
    int other = (int)(truth_uniform(t) * (i + 1));
    double kept = t->rate[i];
    t->rate[i] = t->rate[other];
    t->rate[other] = kept;
  }
  truth_machine(t);
}

// The result that a trial of a few steps would give.
static inline brim_status truth_visit(truth *t, size_t setting, brim_result_visit *out) {
  enum { samples = TRUTH_SAMPLES };
  double ms[samples];
  brim_trial_location at;
  t->now += TRUTH_WARMUP;
  for (int i = 0; i < samples; i++, t->now++) {
    ms[i] = exp(t->slow[t->now % TRUTH_TIME] - t->rate[setting] + t->noise * truth_normal(t));
  }
  BRIM_TRY(brim_trial_locate(ms, (size_t)samples, &at));
  out->log_se = at.log_se;
  out->samples_per_s = exp(-at.log_time);
  out->samples = samples;
  out->seconds = TRUTH_WARMUP + samples;
  return BRIM_OK;
}

static inline int truth_ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The logarithm of the machine's usual speed during the sweep.
static inline double truth_typical(const truth *t) {
  double sorted[TRUTH_TIME];
  memcpy(sorted, t->slow, t->now * sizeof *sorted);
  qsort(sorted, t->now, sizeof *sorted, truth_ascending);
  return sorted[t->now / 2];
}

static inline bool truth_covers(brim_interval i, double log_truth) {
  return i.low <= exp(log_truth) && exp(log_truth) <= i.high;
}

static inline void truth_measure(const truth *t, brim_race *race, uint64_t seed, truth_score *s) {
  size_t pick = (size_t)brim_race_best(race), own = (size_t)(seed % TRUTH_SETTINGS);
  double typical = truth_typical(t), best = 0;
  for (size_t i = 0; i < TRUTH_SETTINGS; i++) best = fmax(best, exp(t->rate[i]));
  s->right += exp(t->rate[pick]) >= 0.97 * best;
  bool open = false;
  for (size_t i = 0; i < TRUTH_SETTINGS; i++) {
    double gap = t->rate[pick] - t->rate[i];
    s->rates++;
    s->rates_covered += truth_covers(brim_race_rate(race, i), t->rate[i] - typical);
    if (i == pick) continue;
    brim_interval ratio = brim_race_ratio(race, pick, i);
    s->ratios++;
    s->ratios_covered += truth_covers(ratio, gap);
    s->beaten += ratio.high < 1;
    open = open || ratio.low < 1;
    s->gaps += gap >= log(1.2);
    s->gaps_certain += gap >= log(1.2) && ratio.low > 1;
    if (i != own) continue;
    s->gains++;
    s->gains_covered += truth_covers(ratio, gap);
  }
  s->provisional += open;
}

static inline brim_status truth_sweep(uint64_t seed, double noise, truth_score *s) {
  truth t;
  brim_race *race;
  double seconds = 0;
  truth_init(&t, seed, noise);
  BRIM_TRY(brim_race_create(TRUTH_SETTINGS, 3, &race));
  brim_status status = BRIM_OK;
  for (int64_t next; !status && (next = brim_race_next(race)) >= 0;) {
    brim_result_visit visit;
    status = truth_visit(&t, (size_t)next, &visit);
    if (!status) status = brim_race_add(race, (size_t)next, &visit);
    if (!status) seconds += visit.seconds;
    if (!status) s->visits++;
  }
  s->sweeps++;
  s->seconds += seconds / (TRUTH_SETTINGS * (TRUTH_WARMUP + 30.0));
  if (!status) truth_measure(&t, race, seed, s);
  brim_race_destroy(race);
  return status;
}

#endif  // BRIM_TESTS_TUNE_TRUTH_H_
