// Inside the replay page: what its files share.
#ifndef BRIM_UI_REPLAY_INT_H_
#define BRIM_UI_REPLAY_INT_H_

#include "ui/ui_report_int.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- scales (ui_replay_scale.c) ----------------------------------

typedef struct brim_ui_scale {
  double low, high, step;  // of the values
  int64_t last;            // step at the right edge; at least 1
  double dt;               // that a step counts on the x axis
  bool whole;              // no fractions there
} brim_ui_scale;

// Round numbers around values from low to high, which are `least` apart at least.
void brim_ui_scale_fit(brim_ui_scale *s, double low, double high, double least);
double brim_ui_scale_x(const brim_ui_scale *s, int64_t step);  // 0..1000 from the left
double brim_ui_scale_y(const brim_ui_scale *s, double value);  // 0..100 from the top
// <svg> with a rule for each tick; what is drawn and </svg> follow.
void brim_ui_put_grid(const brim_ui_scale *s, brim_str *out);
void brim_ui_put_ticks(const brim_ui_scale *s, brim_str *out);
// `unit` stands behind the first number.
void brim_ui_put_axis(const brim_ui_scale *s, const char *unit, brim_str *out);

//---------------------------------- parts ----------------------------------

// The attribute that says which episode an element is of, where there are several
// (ui_replay_curves.c).
void brim_ui_replay_of(const brim_ui_replay_options *options, size_t episode, brim_str *out);
// The section with the curves of the scene (ui_replay_curves.c).
brim_status brim_ui_replay_curves(const brim_ui_replay_options *options,
                                  const brim_trajectory *list, size_t count, brim_str *out);
// The section with the curves of the run, and its data for the script under "training"
// (ui_replay_training.c).
void brim_ui_replay_training(const brim_ui_replay_options *options, brim_str *out);
brim_status brim_ui_replay_training_data(const brim_ui_replay_options *options, json_t *root);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_REPLAY_INT_H_
