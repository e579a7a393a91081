// A profile for people: the summary of `brim profile` on a terminal, and its page. Pure functions of
// record/record_profile.h. Callers: src/cli/profile.
#ifndef BRIM_UI_PROFILE_H_
#define BRIM_UI_PROFILE_H_

#include "record/record_profile.h"
#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_ui_profile_sort {
  BRIM_UI_PROFILE_TIME,      // most ms first
  BRIM_UI_PROFILE_COUNT_OF,  // most calls first
  BRIM_UI_PROFILE_SHARE,
  BRIM_UI_PROFILE_CEILING,  // furthest below its ceiling first; unknown last
  BRIM_UI_PROFILE_NAME,
  BRIM_UI_PROFILE_SORTS
} brim_ui_profile_sort;

typedef struct brim_ui_profile_options {
  brim_profile_list by;
  brim_ui_profile_sort sort;
  size_t limit;  // rows of a table; 0 = all
} brim_ui_profile_options;

// The finest list that the profile has.
brim_profile_list brim_ui_profile_finest(const brim_profile *profile);
// How much of what the machine can do at best the step reaches: of ops with a known ceiling, weighted by
// their time; the rest counts as 0. NaN = no ceiling is known.
double brim_ui_profile_reach(const brim_profile *profile);

// What and where, the table, timelines of phases and memory, why the GPU was idle, transforms, findings,
// and what measuring cost.
brim_status brim_ui_profile(const brim_term *term, const brim_profile *profile,
                            const brim_ui_profile_options *options, brim_str *out);

// One self-contained HTML page of the same. command: the command line; NULL = left out.
brim_status brim_ui_profile_page(const brim_profile *profile, const char *command, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_PROFILE_H_
