// Experiments of a store for people: the page that `brim report` writes, and the tables of
// `brim compare`. Pure functions of record/record_lab.h. Callers: src/cli/lab.
#ifndef BRIM_UI_LAB_H_
#define BRIM_UI_LAB_H_

#include "record/record_lab.h"
#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_ui_lab_options {
  const char *title;
  const char *place;       // the store or the file; NULL = left out
  const char *command;     // the command line; NULL = left out
  brim_lab_result result;  // which value of an experiment counts
  double now_s;            // when the page was made, since 1970; 0 = left out
} brim_ui_lab_options;

// One self-contained HTML page: best setting, states, failures, parallel coordinates, curves, groups,
// experiments, settings. Curves of some metrics are left out where there are very many.
brim_status brim_ui_lab_report(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out);

typedef struct brim_ui_lab_sides {
  brim_ui_sides names;
  const brim_lab_set *a, *b;  // the same where groups of one are compared
  const char *metric;         // a line that names what is compared
} brim_ui_lab_sides;

// The two sides, what else they differ in, a table of the matches, how many of each verdict, and one line
// over all.
brim_status brim_ui_lab_compare(const brim_term *term, const brim_lab_comparison *comparison,
                                const brim_ui_lab_sides *sides, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_LAB_H_
