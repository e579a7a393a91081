// Inside the views of a profile: words and orders that terminal and page share.
#ifndef BRIM_UI_PROFILE_INT_H_
#define BRIM_UI_PROFILE_INT_H_

#include "ui/ui_profile.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_UI_OWNERS = 32 };

// What lies in memory while an op runs; texts are of the profile, or translated.
typedef struct brim_ui_owner {
  const char *name;
  const char *kind;  // translated: "parameters and state", "activation", ...
  double bytes;
  bool fixed;  // there for the whole run
} brim_ui_owner;

// Milliseconds, also small ones: "12.3", "0.52", "0.004", "<0.001"; "-" when unknown.
void brim_ui_profile_ms(double value, char out[32]);
// Bytes, "-" when unknown.
void brim_ui_profile_bytes(double bytes, char out[32]);
// "20", "0.5": whole where it is; "-" when unknown.
void brim_ui_profile_count(double count, char out[32]);
// "34 %", "0.4 %"; "-" when unknown. share: of 1.
void brim_ui_profile_percent(double share, char out[32]);
void brim_ui_profile_of_ceiling(const brim_profile_row *row,
                                char out[64]);  // "31 % bf16", "in cache"
// The same with a tenth always: parts that a reader adds up.
void brim_ui_profile_part(double share, char out[32]);
const char *brim_ui_profile_title(brim_profile_list list);   // "Kernels"
const char *brim_ui_profile_column(brim_profile_list list);  // "Kernel"
const char *brim_ui_profile_cause(brim_gap_cause cause);
// A row's name for people: phases by their names, gaps and the like in words.
const char *brim_ui_profile_name(const brim_profile_row *row, brim_profile_list list,
                                 char out[224]);
// The phase of a key; -1 = none.
int brim_ui_profile_phase(const char *key);
// Its ms; of transforms, which run beside the step, all the time they took.
double brim_ui_profile_time(const brim_profile_row *row, brim_profile_list list);
// Indices of a list's rows in an order, for brim_free; NULL without memory.
size_t *brim_ui_profile_order(const brim_profile *profile, brim_profile_list list,
                              brim_ui_profile_sort sort);
// Rows of PHASES as a step has them: by phase, then the rest.
size_t *brim_ui_profile_in_step(const brim_profile *profile);
// Owners of memory at a point, the largest first: what is there all the time and what is alive. Returns
// how many; *rest: bytes of those that found no room.
size_t brim_ui_profile_owners(const brim_profile *profile, int point,
                              brim_ui_owner out[BRIM_UI_OWNERS], double *rest);
// Where the figures come from, in a sentence.
const char *brim_ui_profile_source(const brim_profile *profile);
// "Measuring took 8.2 s: ..."
void brim_ui_profile_cost(const brim_profile *profile, brim_str *out);
// "Host to device: 1.5 MiB in 0.90 ms per step, ..."; nothing where none was copied.
void brim_ui_profile_transfer(const brim_profile *profile, brim_str *out);
// "41,000 samples/s"; "" when unknown.
void brim_ui_profile_rate(const brim_profile *profile, char out[96]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_PROFILE_INT_H_
