// Which setting to measure next, and what follows from what was measured: settings race in rounds until
// they separate or the budget ends. It measures nothing itself: a sweep (tune_sweep.c) does, and the
// truth test (tests/tune) with made-up timings.
#ifndef BRIM_TUNE_RACE_H_
#define BRIM_TUNE_RACE_H_

#include "measure/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_race brim_race;

// `passes`: the budget; 0 = 3. A pass is worth BRIM_RACE_PASS_VISITS visits to every setting: with 6
// steps of warm-up and 10 samples a visit, that is 30 samples of each in one piece.
#define BRIM_RACE_PASS_VISITS 2.25
brim_status brim_race_create(size_t settings, double passes, brim_race **out);
void brim_race_destroy(brim_race *race);

// The setting to visit next; -1 when the race is over. Ask, visit, then add or fail. Every setting is
// visited once, in order; then, in the opposite order, all that are not far behind; then those that
// contend, in rounds whose order alternates.
int64_t brim_race_next(brim_race *race);
brim_status brim_race_add(brim_race *race, size_t setting, const brim_result_visit *visit);
// The first round is over. Settings without a visit take no part. For a caller that chooses the first
// visits itself, and for one that adds those of records.
void brim_race_start_rounds(brim_race *race);
// The setting does not run: it is not visited again, and counts no more.
void brim_race_fail(brim_race *race, size_t setting);

// After visits were added. Settings without visits, or that failed, give NaN.
// Samples/s of a setting while the machine was as it mostly was during the race.
brim_interval brim_race_rate(brim_race *race, size_t setting);
// The same of a run after the race: the machine will be in one of the states that it was in, and none knows in
// which. Wider than the rate's own interval.
brim_interval brim_race_later(brim_race *race, size_t setting);
// Rate of `a` over rate of `b`. What disturbed both alike cancels.
brim_interval brim_race_ratio(brim_race *race, size_t a, size_t b);
// The highest rate by estimate; -1 = none ran.
int64_t brim_race_best(brim_race *race);
// How many settings the next round has; 0 = the race is over. Seconds that the budget leaves.
double brim_race_seconds_left(const brim_race *race);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_TUNE_RACE_H_
