// What supervised training measures, as rows.
#include "workload/supervised/supervised_int.h"
#include "workload/workload_net_rows.h"

static const brim_metric supervised_rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(EVAL, LINE_EVAL),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(EVAL, LINE_EVAL),
    GRADIENT_ROWS,
};
const brim_metric_set brim_supervised_set = {
    supervised_rows, sizeof supervised_rows / sizeof *supervised_rows, NULL, NULL, NULL, NULL};
