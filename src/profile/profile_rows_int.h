// Inside the profile room: rows of a list by what they are of.
#ifndef BRIM_PROFILE_ROWS_INT_H_
#define BRIM_PROFILE_ROWS_INT_H_

#include "profile/profile_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a row is of. `op`, `layer` and `phase` are shown where all that is added agrees.
typedef struct brim_row_key {
  const char *name, *kind;
  const char *op, *layer;  // NULL = none
  brim_phase phase;        // BRIM_PHASE_COUNT = none
} brim_row_key;

// What is added to it, of all steps together.
typedef struct brim_row_sum {
  double count, ns, total_ns;
  double flops, bytes;  // NaN = unknown
} brim_row_sum;

// Adds to the row of a list, which is made when it is not there.
brim_status brim_rows_add(brim_profile *out, brim_profile_list list, const brim_row_key *key,
                          const brim_row_sum *sum);
bool brim_rows_have(const brim_profile *profile, brim_profile_list list, const brim_row_key *key);
// Sums of so many steps, in ns, become ms per step.
void brim_rows_per_step(brim_profile *out, brim_profile_list list, double steps);

static inline const char *brim_phase_text(brim_phase phase) {
  return phase < BRIM_PHASE_COUNT ? brim_phase_key(phase) : "";
}

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_ROWS_INT_H_
