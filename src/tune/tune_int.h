// Inside the tune room: sweeps, races, prices and scaling, from which sessions are built.
#ifndef BRIM_TUNE_INT_H_
#define BRIM_TUNE_INT_H_

#include <stdlib.h>

#include "tune/tune.h"

// An interval wider than this factor is meaningless: treat it as unknown.
#define BRIM_TUNE_WIDEST 100.0

// Rows of a step. The time of a step grows with its rows.
double brim_subject_rows(const brim_subject *subject, const brim_setting *setting);
// The least number of steps that `warm` makes: more than a visit of a few samples.
enum { BRIM_SUBJECT_WARM_STEPS = 16 };

//---------------------------------- races (tune_sweep.c) ----------------------------------

// Decides which setting to measure next, and estimates rates from the visits. Settings race in rounds until they
// separate or the budget ends. A race measures nothing itself.

// `passes` is the budget; 0 = 3. A pass pays for BRIM_RACE_PASS_VISITS visits to every setting. With 6 steps of
// warm-up and 10 samples a visit, that costs as much as one visit of 30 samples to each.
#define BRIM_RACE_PASS_VISITS 2.25
brim_status brim_race_create(size_t settings, double passes, brim_race **out);

// The setting to visit next; -1 when the race is over. Ask, visit, then add or fail. Every setting is visited once, in
// order; then, in the opposite order, all that are not far behind; then the contenders, in rounds of alternating order.
int64_t brim_race_next(brim_race *race);
brim_status brim_race_add(brim_race *race, size_t setting, const brim_result_visit *visit);
// Ends the first round; settings without a visit take no part. For callers that choose the first visits themselves,
// or add visits from records.
void brim_race_start_rounds(brim_race *race);
// Notes that the setting does not run: it is not visited again and does not count.
void brim_race_fail(brim_race *race, size_t setting);

// Intervals from the visits so far; NaN for settings without visits, or that failed.
// Samples/s of a setting in the machine's typical state during the race.
brim_interval brim_race_rate(brim_race *race, size_t setting);
// Samples/s of a run after the race. This interval is wider: the machine may be in any of its states during the race.
brim_interval brim_race_later(brim_race *race, size_t setting);
// Rate of `a` over rate of `b`. Disturbances of both cancel.
brim_interval brim_race_ratio(brim_race *race, size_t a, size_t b);
// The setting with the highest estimated rate; -1 = none ran.
int64_t brim_race_best(brim_race *race);

//---------------------------------- sweeps (tune_sweep.c) ----------------------------------

// Makes all combinations of the axes, the last axis changing fastest. It leaves out values that do not go together,
// steps of more samples than the data set has, and settings that differ from another only in knobs without effect.
// With `own` the subject's present setting comes first if it is no combination.
brim_status brim_sweep_settings_make(const brim_subject *subject, const brim_sweep_axis *axes,
                                     size_t axis_count, bool own, brim_sweep_settings *out);
void brim_sweep_settings_free(brim_sweep_settings *settings);

// The next setting of a large grid to visit for the first time.
typedef struct brim_climb {
  const brim_subject *subject;
  const brim_sweep_settings *settings;
  const brim_sweep_axis *axes;
  size_t axis_count;
  const double *rate;  // (settings) NaN = not visited; 0 = did not run, or takes too long
} brim_climb;
int64_t brim_climb_next(const brim_climb *climb);  // -1 = enough were visited

typedef struct brim_sweep_options {
  const brim_sweep_axis *axes;  // titles name their knobs
  size_t axis_count;
  const brim_sweep_settings *settings;  // NULL = all combinations of the axes
  brim_trial_options trial;             // the sweep sets on_step and visit
  bool plan_only;
  // A grid of more settings than this is climbed: only a part of it is measured. 0 = measure every setting.
  size_t climb_above;
  // After this many seconds no setting is begun; 0 = no limit. The present setting is measured first.
  double budget_s;
  // The budget in passes. Below 2 every setting is measured once.
  int repeats;
  brim_race **race;  // gets the race, which the caller destroys; may be NULL
  // Moves out the result of a setting that was measured before; false = measure it. May be NULL.
  bool (*known)(void *ctx, const brim_setting *setting, brim_result *out);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_result *result);  // the first measurement of a setting
  void (*on_final)(void *ctx, const brim_result *result);   // the result of several measurements
  void (*on_first)(void *ctx, const brim_result *results, size_t count);  // once, in a long sweep
  size_t *setting_of;              // (settings) gets the setting of each result; may be NULL
  bool *budget_ended;              // may be NULL
  const brim_host_provider *host;  // source of the CPU's use; NULL = this machine
  void *ctx;
} brim_sweep_options;

// Results in the order of the settings; settings without a result are left out. A result has the rate and interval of
// all visits, and the other figures of the visit nearest to that rate. *out is an array from brim_alloc (deinit each,
// brim_free); after BRIM_EINTERRUPTED it holds what was measured.
brim_status brim_sweep_run(brim_subject *subject, const brim_sweep_options *options,
                           brim_result **out, size_t *count);

// Predicts the seconds of a visit to a setting of `at` rows, from the rows and seconds of `n` other settings. NaN if
// `n` is 0, or if `at` is more than BRIM_SWEEP_FARTHEST times the most rows.
#define BRIM_SWEEP_FARTHEST 4.0
double brim_sweep_predict(const double *rows, const double *seconds, size_t n, double at);
// The most seconds that a sweep takes from now on. Its first round took `spent` so far and takes `ahead` more.
double brim_sweep_seconds(double spent, double ahead, double passes);

//---------------------------------- prices (tune_findings.c) ----------------------------------

// Like brim_diagnose. With `probing` findings ask for settings that would price them (record_findings.h).
void brim_diagnose_with(brim_result *results, size_t count, size_t index, bool probing);

typedef struct brim_remedy_options {
  const brim_setting *setting;  // of results[index]
  brim_trial_options trial;     // on_step, visit and ceilings are not used
  double seconds;               // time limit for all remedies; 0 = 25
  const char *folder;           // for test checkpoints; NULL = measure none
  // Gets the rate of the best larger batch over the rate of the setting; NaN = none ran. May be NULL.
  double *larger;
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void *ctx;
} brim_remedy_options;

// Like brim_diagnose, with measured prices: each remedy without a result runs for a moment, beside the setting
// itself. Any of these settings may be configured afterwards. After BRIM_EINTERRUPTED the findings have the prices
// measured so far.
brim_status brim_remedies_measure(brim_subject *subject, const brim_remedy_options *options,
                                  brim_result *results, size_t count, size_t index);
// Logarithm of how much faster the changed setting was, by pairs of visits; 0 if their spread leaves it open.
double brim_remedy_gain(const brim_result_visit *own, const brim_result_visit *changed,
                        size_t pairs);
// Predicts the seconds of a step with `more` times the samples. A full device needs time in proportion; a GPU that is
// not full takes more samples at the same time. A CPU is always full.
double brim_remedy_step_s(const brim_result *own, bool gpu, double more);

//---------------------------------- scaling (tune_scaling.c) ----------------------------------

typedef struct brim_scale_options {
  brim_replica *replicas;  // in the order in which they join; at most BRIM_SCALING_MAX
  size_t replica_count;
  const brim_setting *settings;
  size_t setting_count;
  // The backward pass's share of a step for each setting, 0..1; NaN = unknown. If NULL, and on CPUs, it is measured
  // here.
  const double *backward_share;
  int64_t ranks;                 // predict up to this number at least; 0 = the user named none
  int64_t node;                  // ranks of one machine; 0 = all
  brim_scaling_options measure;  // without on_wait
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_scaling *scaling);
  void *ctx;
} brim_scale_options;

// Numbers of devices to measure: 1, 2, 4, ... below k, and k. Returns how many (at most 6).
size_t brim_scale_counts(size_t k, size_t out[8]);
// Runs every setting on each number of devices, without and with the exchange of gradients, and predicts the exchange.
// *out is an array from brim_alloc (brim_scaling_deinit each, brim_free); after BRIM_EINTERRUPTED it holds what was
// measured. Afterwards the workloads are still configured as ranks.
brim_status brim_scale(const brim_scale_options *options, brim_scaling **out, size_t *count);
// Sets what `s` loses against one device alone at the same setting: `one`, efficiency, lost_to, lost_ms, and
// exchange.efficiency.
void brim_scale_compare(brim_scaling *s, const brim_scaling *one);

// The input of a prediction: a step of one device alone, and an exchange between `measured` ranks.
typedef struct brim_scale_model {
  double step_ms, rows;  // of a step
  double hidden_ms;      // the part of the step in which gradients can be summed; NaN = unknown
  brim_scaling_exchange exchange;
  int measured;
  int64_t node;  // ranks of one machine; 0 = all
} brim_scale_model;
void brim_scale_predict(const brim_scale_model *model, int64_t ranks, brim_scaling_forecast *out);
// Numbers of ranks to predict beyond the measured ones: powers of 2 up to 8 or to `asked`. Returns how many.
size_t brim_scale_further(int64_t measured, int64_t asked, int64_t out[BRIM_SCALING_FURTHER]);

//---------------------------------- sessions (tune_session.c) ----------------------------------

// Fills in what `brim top` shows of a session: the setting being measured, and its result.
void brim_tuning_job_progress(brim_job *job, const brim_progress *progress);
void brim_tuning_job_result(brim_job *job, const brim_result *result);

#endif  // BRIM_TUNE_INT_H_
