// Inside the eval command: what was determined, and how it is shown and written.
#ifndef BRIM_CLI_EVAL_H_
#define BRIM_CLI_EVAL_H_

#include "cli/trained/cli_trained.h"
#include "workload/learn/learn_scores.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cli_eval {
  brim_cli_trained *c;
  brim_scores *scores;  // NULL: the workload evaluated itself into `figures`
  brim_scores_summary summary;
  brim_trained_result result;
  json_t *figures;                   // numbers by name
  const brim_workload_table *table;  // whose rows they are of
  brim_work_metrics metrics;
  double probe[BRIM_METRIC_MAX];  // NaN = none
} brim_cli_eval;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_EVAL_H_
