// Inside the replay page: its two files.
#ifndef BRIM_UI_REPLAY_INT_H_
#define BRIM_UI_REPLAY_INT_H_

#include "ui/ui_report_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// The section with the curves of the scene (ui_replay_curves.c).
brim_status brim_ui_replay_curves(const brim_trajectory *list, size_t count, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_REPLAY_INT_H_
