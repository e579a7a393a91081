// Inside the race: its state, and the fit behind its intervals.
#ifndef BRIM_TUNE_RACE_INT_H_
#define BRIM_TUNE_RACE_INT_H_

#include <stdlib.h>

#include "tune/tune_race.h"

// No clock is better than that, and a visit of one sample tells little.
#define MIN_SE 1e-4
#define UNKNOWN_SE 0.2

typedef struct entry {
  size_t setting, block;
  double x, se, samples;  // as brim_race_visit
  double weight;          // 1 = as the others; near 0 = disturbed
  double var;
} entry;

typedef struct runner {
  size_t visits;
  double seen;  // visits, with those that a record stands for
  double seconds;
  bool failed;
  double a;        // logarithm of its rate, but for the machine's state
  double scatter;  // variance of its visits over what the fit expects of all; 1 and more
  double w;        // information about it
  double var;      // of one sample, as its visits have it
} runner;

typedef struct race_fit {
  size_t blocks;
  double *b;        // (blocks) the machine's state: positive = faster
  double *inverse;  // (blocks, blocks) covariance of b, settings eliminated
  double *share;    // (settings, blocks) information that a block has about a setting
  double typical;   // median of b over visits
  double df;        // degrees of freedom that are left
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
  double earlier;  // visits of records beyond one each: degrees of freedom they had
  bool over, fitted;
  race_fit fit;
};

// Brings the estimates up to date; nothing to do when they are.
brim_status brim_race_fit(brim_race *race);
void brim_race_fit_free(brim_race *race);
// Standard error of a's log rate less b's; after a fit.
double brim_race_se(const brim_race *race, size_t a, size_t b);

#endif  // BRIM_TUNE_RACE_INT_H_
