// Inside the replay page: its two files.
#ifndef BRIM_UI_REPLAY_INT_H_
#define BRIM_UI_REPLAY_INT_H_

#include "ui/ui_report_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// The attribute that says which episode an element is of, where there are several
// (ui_replay_curves.c).
void brim_ui_replay_of(const brim_ui_replay_options *options, size_t episode, brim_str *out);
// The section with the curves of the scene (ui_replay_curves.c).
brim_status brim_ui_replay_curves(const brim_ui_replay_options *options,
                                  const brim_trajectory *list, size_t count, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_REPLAY_INT_H_
