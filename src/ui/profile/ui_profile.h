// A profile as a person sees it: the summary of `brim profile` on a terminal, and its page. Pure functions of
// record_profile.h. Callers: src/cli/profile.
#ifndef BRIM_UI_PROFILE_H_
#define BRIM_UI_PROFILE_H_

#include "record/record_profile.h"
#include "ui/term/ui_term.h"

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

// The most detailed list that the profile has.
brim_profile_list brim_ui_profile_finest(const brim_profile *profile);
// The share of the machine's measured ceilings that the step reaches, 0 to 1: a mean over the ops, weighted by time.
// Data in a cache counts as 1, time without a known ceiling as 0. NaN = less than half of the step has a known ceiling.
double brim_ui_profile_reach(const brim_profile *profile);

// The summary: setting and device, the table, timelines of phases and memory, causes of GPU idle time, transforms,
// findings, and the cost of measuring.
brim_status brim_ui_profile(const brim_term *term, const brim_profile *profile,
                            const brim_ui_profile_options *options, brim_str *out);

// One self-contained HTML page with the same content. command: the command line; NULL = left out.
brim_status brim_ui_profile_page(const brim_profile *profile, const char *command, brim_str *out);

#endif  // BRIM_UI_PROFILE_H_
