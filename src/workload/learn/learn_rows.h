// Inside the workload room: the metric rows of a network's training, which several workloads begin
// their own with.
#ifndef BRIM_LEARN_ROWS_H_
#define BRIM_LEARN_ROWS_H_

#include "workload/learn/learn.h"
#include "workload/workload_rows.h"

enum { LINES = LINE_STEPS | LINE_TRAIN | LINE_PROGRESS };

// The rows of a network's training; `stages_` and `lines_` are added to the stages and lines of training.
#define LOSS_ROW(stages_, lines_)                                                           \
  {                                                                                         \
    .key = "loss", .label = BRIM_N_("loss"), .eval_label = BRIM_N_("val loss"),             \
    .better = BRIM_BETTER_LOWER, .format = BRIM_METRIC_STEADY, .flags = BRIM_METRIC_FINITE, \
    .stages = STEPS | TRAIN | (stages_), .lines = LINES | (lines_), .rank = 2, .names = {   \
      [BRIM_METRIC_TRAIN] = {.tag = "epoch_loss"},                                          \
      [BRIM_METRIC_EVAL] = {.tag = "val_loss", .event = "val_loss"}                         \
    }                                                                                       \
  }
#define ACCURACY_ROW(stages_, lines_)                                                              \
  {                                                                                                \
    .key = "accuracy", .label = BRIM_N_("acc"), .eval_label = BRIM_N_("val acc"),                  \
    .table_label = BRIM_N_("accuracy"), .better = BRIM_BETTER_HIGHER,                              \
    .format = BRIM_METRIC_PERCENT, .stages = STEPS | TRAIN | (stages_), .lines = LINES | (lines_), \
    .rank = 1, .names = {                                                                          \
      [BRIM_METRIC_TRAIN] = {.tag = "epoch_accuracy"},                                             \
      [BRIM_METRIC_EVAL] = {.tag = "val_accuracy", .event = "val_accuracy"}                        \
    }                                                                                              \
  }
#define GRADIENT_ROWS                                                        \
  [BRIM_NET_GRAD_NORM] = {.key = "grad_norm", .label = "", .stages = STEPS}, \
  [BRIM_NET_GRAD_NORM_MAX] = {.key = "grad_norm_max", .label = ""},          \
  [BRIM_NET_LOSS_SCALE] = {.key = "loss_scale",                              \
                           .label = "",                                      \
                           .flags = BRIM_METRIC_OPTIONAL,                    \
                           .stages = STEPS,                                  \
                           .names = {[BRIM_METRIC_STEPS] = {.event = ""}}}

#endif  // BRIM_LEARN_ROWS_H_
