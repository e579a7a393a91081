// What contrastive training measures, as rows: a network's training, and how well features tell classes
// apart.
#include "workload/contrastive/contrastive_int.h"
#include "workload/workload_net_rows.h"

static const brim_metric contrastive_rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(0, 0),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(0, 0),
    GRADIENT_ROWS,
    // features have no loss of their own: the column is empty
    [BRIM_CONTRASTIVE_EVAL_LOSS] = {.key = "eval_loss",
                                    .label = "",
                                    .stages = EVAL,
                                    .names = {[BRIM_METRIC_EVAL] = {.column = "eval_loss",
                                                                    .tag = "",
                                                                    .event = "val_loss",
                                                                    .figure = ""}}},
    [BRIM_CONTRASTIVE_KNN] = {.key = "knn",
                              .label = BRIM_N_("knn"),
                              .better = BRIM_BETTER_HIGHER,
                              .format = BRIM_METRIC_PERCENT,
                              .stages = EVAL,
                              .lines = LINE_EVAL,
                              .rank = 1,
                              .best = "accuracy",
                              .names = {[BRIM_METRIC_EVAL] = {"knn", "knn", "knn",
                                                              "knn_accuracy"}}},
    [BRIM_CONTRASTIVE_PROBE] = {.key = "probe",
                                .label = BRIM_N_("probe"),
                                .about = BRIM_N_("linear classifier on the features"),
                                .better = BRIM_BETTER_HIGHER,
                                .format = BRIM_METRIC_PERCENT,
                                .stages = PROBE,
                                .names = {[BRIM_METRIC_PROBE] = {"probe", "", "probe",
                                                                 "probe_accuracy"}}},
    [BRIM_CONTRASTIVE_PROBE_LOSS] = {.key = "probe_loss",
                                     .label = "",
                                     .stages = PROBE,
                                     .names = {[BRIM_METRIC_PROBE] = {"loss", "", "", ""}}},
};
const brim_metric_set brim_contrastive_set = {
    contrastive_rows, sizeof contrastive_rows / sizeof *contrastive_rows, NULL, NULL, NULL, NULL};
