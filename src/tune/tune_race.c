// The race: rounds, elimination, budget. The statistics are tune_race_fit.c's.
#include "tune/tune_race.h"

#include <math.h>
#include <string.h>

#include "tune/tune_race_int.h"

// Visited on while its estimate is less than so many standard errors behind the best: measuring goes
// where the order is open. The race ends when all are STOP behind. By the truth test.
#define CONTEND 0.3
#define STOP 2.7
// Visits of one setting that differ by so many standard errors disagree.
#define DISAGREE 2.0
// Slower by this factor after one visit: no usual disturbance explains that, one visit will do.
#define FAR_BEHIND 5.0
// A setting that is surely within this share of the best need not be told apart from it.
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

brim_status brim_race_add(brim_race *race, size_t setting, const brim_race_visit *visit) {
  if (race->visits == race->capacity) {
    size_t capacity = race->capacity ? 2 * race->capacity : 64;
    entry *grown = (entry *)brim_realloc(race->visit, capacity * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", capacity);
    race->visit = grown;
    race->capacity = capacity;
  }
  runner *r = &race->runner[setting];
  // an unknown spread is taken for a large one
  double se = visit->log_se >= 0 ? fmax(visit->log_se, MIN_SE) : UNKNOWN_SE;
  race->visit[race->visits++] = (entry){
      .setting = setting, .x = visit->log_rate, .samples = fmax(1, visit->samples), .se = se};
  if (r->visits++ == 0) race->first_seconds += visit->seconds;
  double stands_for = fmax(1, visit->visits);
  r->seen += stands_for;
  r->seconds += visit->seconds;
  race->seconds += stands_for * visit->seconds;
  race->earlier += stands_for - 1;
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

// Its best visit, as if the others had been disturbed.
static double luckiest(const brim_race *race, size_t i) {
  double most = -INFINITY;
  for (size_t k = 0; k < race->visits; k++) {
    const entry *v = &race->visit[k];
    if (v->setting == i) most = fmax(most, v->x - race->fit.b[v->block]);
  }
  return most;
}

// Two visits that tell two things: one of them was disturbed, and a third says which.
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
  if (race->round == 1 && r->seen < 2) return r->a > top->a - log(FAR_BEHIND);
  double se = brim_race_se(race, i, best), behind = top->a - r->a;
  if (torn(race, i)) return true;
  if (behind + 2 * se < CLOSE_ENOUGH) return false;
  return behind < CONTEND * se || (r->visits <= 2 && luckiest(race, i) > top->a);
}

// The one that is least surely behind; -1 when all are. After one visit each nothing is sure.
static int64_t last_doubt(brim_race *race, size_t best) {
  int64_t worst = -1;
  double most = -INFINITY;
  for (size_t i = 0; i < race->settings; i++) {
    if (!running(race, i) || i == best) continue;
    double se = brim_race_se(race, i, best), behind = race->runner[best].a - race->runner[i].a;
    double doubt = STOP * se - behind;
    bool seen_once = race->round == 1 && (race->runner[i].seen < 2 || race->runner[best].seen < 2);
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

int64_t brim_race_next(brim_race *race) {
  for (;;) {
    while (race->at < race->queued && race->runner[race->queue[race->at]].failed) race->at++;
    if (race->at == race->queued) {
      if (race->over) return -1;
      plan_round(race);
      race->over = race->queued == 0;
      if (race->over) return -1;
      continue;
    }
    size_t next = race->queue[race->at];
    if (race->round > 0 && !affordable(race, next)) {
      race->over = true;
      race->at = race->queued;
      return -1;
    }
    race->at++;
    return (int64_t)next;
  }
}
