// Made-up curves of a run for the tests of the replay page: a score with a baseline, where the checkpoint is one point,
// a share without a baseline, and a row with texts that a page has to escape.
#ifndef BRIM_TESTS_REPLAY_TRAINING_H_
#define BRIM_TESTS_REPLAY_TRAINING_H_

#include <math.h>

#include "record/record_curves.h"

enum { TRAINING_EVALUATIONS = 5, TRAINING_CURVES = 3 };

static const brim_metric training_rows[TRAINING_CURVES] = {
    {.key = "score", .label = "score"},
    {.key = "share", .label = "share", .format = BRIM_METRIC_PERCENT, .digits = 1},
    {.key = "a\"b<", .label = "l<i>", .unit = "u&v"},
};
static brim_curve_point training_points[TRAINING_CURVES][TRAINING_EVALUATIONS] = {
    {{10, -2}, {20, 0.5}, {30, 7.5}, {40, 3}, {50, 4}},
    {{10, 0.1}, {20, 0.2}, {30, 0.3}, {40, 0.25}, {50, 0.5}},
    {{20, 3}},
};
static brim_curve training_list[TRAINING_CURVES] = {
    {&training_rows[0], training_points[0], TRAINING_EVALUATIONS, 1.25},
    {&training_rows[1], training_points[1], TRAINING_EVALUATIONS, (double)NAN},
    {&training_rows[2], training_points[2], 1, (double)NAN},
};
static const brim_curves training_curves = {
    .list = training_list, .count = TRAINING_CURVES, .marked = 30};

#endif  // BRIM_TESTS_REPLAY_TRAINING_H_
