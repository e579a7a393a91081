// The state of the ars workload, shared by ars.c (config, training, evaluation, checkpoints, replay)
// and ars_rows.c (metrics, knobs, options, advice).
#ifndef BRIM_ARS_INT_H_
#define BRIM_ARS_INT_H_

#include "workload/ars/ars.h"
#include "workload/workload_env.h"
#include "workload/workload_int.h"

// Knobs, in table order.
enum { BRIM_ARS_ENVS, BRIM_ARS_DIRS, BRIM_ARS_CHUNK, BRIM_ARS_THREADS, BRIM_ARS_KNOBS };

// Sums since the metrics were last read, except `skipped_updates`.
typedef struct brim_ars_sums {
  brim_ars_returns returns;
  brim_rollout_update update;  // the last
  int64_t skipped_updates;     // since the run began
} brim_ars_sums;

extern const brim_knob_set brim_ars_knob_set;
extern const brim_work_findings_table brim_ars_findings;
extern const brim_work_views_table brim_ars_views;

enum { BRIM_ARS_NAMES = 8 + 3 * BRIM_ENV_MAX_FIGURES };
typedef struct brim_ars_rows {
  // Describes `rows`. Stays the first member: a pointer to it is cast to brim_ars_rows.
  brim_metric_set set;
  brim_metric rows[BRIM_ARS_ROWS + BRIM_ENV_MAX_FIGURES];
  char names[BRIM_ARS_NAMES][BRIM_METRIC_NAME];  // of rows, if made at run time
  size_t name_count;
  const brim_env_row *env;
} brim_ars_rows;

void brim_ars_rows_init(brim_ars_rows *rows, const brim_env_row *env);

// ars_rows.c
enum { BRIM_ARS_OPTIONS = 3 };
extern const brim_work_options brim_ars_options[BRIM_ARS_OPTIONS];
extern const brim_config_section brim_ars_section;
extern const brim_work_topic brim_ars_topic;

void brim_ars_eval_notes(const brim_work_metrics *metrics, brim_str *out);

// A return that collapses.
enum { BRIM_ARS_BEFORE = 4 };  // evaluations a new one is compared with
typedef struct brim_ars_collapse {
  brim_ars_returns best;           // of the evaluations so far
  double before[BRIM_ARS_BEFORE];  // means of the last ones, the newest first
  int count;                       // entries of `before` that are set
  bool below_zero_policy;          // the last evaluation was below the policy of zeros
  unsigned low_bits;  // bit k: the evaluation k before the last was too low (bit 0 = the last)
  int fine;           // evaluations in a row that were all right
  bool reported;      // this collapse was reported; reset after enough good evaluations
} brim_ars_collapse;

// The state of training besides its position, on the host, for checkpoints and trials.
typedef struct brim_ars_state {
  float *theta;    // (params)
  float *normal;   // (2, obs)
  double *filter;  // (1 + 2 obs); all lie in one block, this first
} brim_ars_state;
void brim_ars_state_deinit(brim_ars_state *state);

typedef struct brim_ars {
  brim_work_context context;
  const brim_config *config;  // borrowed; outlives the workload
  const brim_rollout_table *table;
  brim_rollout_where where;
  brim_knob knobs[BRIM_ARS_KNOBS];
  brim_ars_rows rows;
  brim_rollout_shape shape;  // of the present setting, or of the config's
  double noise_std, step_size, shift;
  const volatile sig_atomic_t *stop;  // NULL = never asked to stop
  int32_t top_directions;             // the best directions that an update uses
  int64_t iterations, interval;       // of a run; of an epoch
  int64_t episodes;                   // of an evaluation; 0 = none
  const char *weights_path;           // initial weights; NULL = a new policy
  bool held_out;                      // evaluate with episodes that training does not evaluate with
  char description[160];

  // of the present setting
  brim_rollout_layout layout;
  void *block;                // the device's
  brim_rollout_tally *tally;  // (num_dirs, 2), the host's
  brim_rollout_episode
      *evaluated;               // (episodes), the host's; figures right behind, as on the device
  brim_rollout_update *update;  // the host's
  brim_ars_state state, saved_state;  // saved_state: for trials; theta NULL until needed

  // position
  int64_t step, saved_step;
  brim_ars_sums sums, saved_sums;
  bool has_baseline;
  int64_t reported_skipped;  // skipped updates that were reported
  brim_ars_collapse collapse;
  char collapse_advice[768];  // about the last collapse; "" = there was none
  brim_ars_returns baseline, training_baseline;
} brim_ars;

// Adds an evaluation. `zero` and `zero_error`: mean return of the policy of zeros, and its standard
// error. True once per collapse, when the return has collapsed.
bool brim_ars_collapse_take(brim_ars_collapse *collapse, const brim_ars_returns *returns,
                            double zero, double zero_error);
// Advises what to change, from the figures of training before the collapse.
void brim_ars_collapse_advice(const double *train, const brim_config *config,
                              const brim_rollout_shape *shape, char *out, size_t size);

// Copies policy and filter from the device.
brim_status brim_ars_fetch(brim_ars *w, brim_ars_state *out);

#endif  // BRIM_ARS_INT_H_
