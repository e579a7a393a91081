// Sweeps and what follows from them: which settings to try, findings, the recommendation.
// Who calls: the bench command.
#ifndef BRIM_TUNE_H_
#define BRIM_TUNE_H_

#include "measure/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_sweep_axis {
  int knob;  // index into the workload's knobs
  const int64_t *values;
  size_t count;
} brim_sweep_axis;

typedef struct brim_sweep_options {
  const brim_sweep_axis *axes;  // last fastest
  size_t axis_count;
  brim_trial_options trial;  // its on_step is not used; see on_progress
  bool plan_only;
  // How often the settings among which the recommendation is decided are measured in all; the others
  // once. The middle repeat stands in the results, with an interval that holds all of them; repeats
  // that differ make it unstable. 0 = 1.
  int repeats;
  // May be NULL. After a setting that crashed the device: opens it and the workload anew, so that the
  // sweep can go on. Where it fails the sweep ends with that.
  brim_status (*reopen)(void *ctx, brim_work **work, brim_device **device);
  // May be NULL. The result of a setting that was measured before, for the sweep to keep; false when
  // it has to be measured.
  bool (*known)(void *ctx, const brim_setting *setting, brim_result *out);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_result *result);
  void (*on_settled)(void *ctx, const brim_result *result);  // of a setting that was repeated
  void *ctx;
} brim_sweep_options;

// Every combination in turn. *out is an array from brim_alloc (deinit each, brim_free), also when
// BRIM_EINTERRUPTED: then it holds what was done.
brim_status brim_sweep_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_sweep_options *options, brim_result **out, size_t *count);

// How many combinations there are, without those that do not go together.
size_t brim_sweep_count(const brim_work *work, const brim_sweep_axis *axes, size_t axis_count);
// The setting of results[index].
brim_setting brim_sweep_setting(const brim_work *work, const brim_sweep_axis *axes,
                                size_t axis_count, size_t index);

// Indices into the results; -1 = none. Rules:
//   highest     most samples/s
//   efficient   most samples/s per GB among those with >= 90 % of the highest
//   recommended smallest memory among those within 3 % of the best whose planned memory is under
//               80 % of what is free; ties to fewer workers; never an unstable or throttled trial
typedef struct brim_recommendation {
  int highest, efficient, recommended;
} brim_recommendation;
void brim_recommend(const brim_result *results, size_t count, brim_recommendation *out);

// Findings of results[index] (waited I/O, small batch, ...), written into it. The others are the
// evidence: a remedy that was measured has its price from there.
void brim_diagnose(brim_result *results, size_t count, size_t index);

//---------------------------------- several devices ----------------------------------

typedef struct brim_scale_options {
  brim_replica *replicas;  // in the order in which they join; at most BRIM_SCALING_MAX
  size_t replica_count;
  const brim_setting *settings;  // each is measured in turn
  size_t setting_count;
  brim_scaling_options measure;  // its on_wait is not used; see on_progress
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_result)(void *ctx, const brim_scaling *scaling);
  void *ctx;
} brim_scale_options;

// How many at once: 1, 2, 4, ... below k, and k. Returns how many there are (at most 6).
size_t brim_scale_counts(size_t k, size_t out[8]);
// Every setting on so many devices each. *out is an array from brim_alloc (brim_scaling_deinit each,
// brim_free), also when BRIM_EINTERRUPTED: then it holds what was done. Workloads are left as ranks of
// several.
brim_status brim_scale(const brim_scale_options *options, brim_scaling **out, size_t *count);
// What `s` lost against one device alone (of the same setting): one, efficiency, lost_to, lost_ms.
void brim_scale_compare(brim_scaling *s, const brim_scaling *one);

//---------------------------------- advice ----------------------------------

// What the user had before the sweep.
typedef struct brim_advice_facts {
  double batch, accumulation;  // of the config
  double learning_rate;        // NaN = unknown
  bool adaptive;               // an optimiser of Adam's kind
} brim_advice_facts;
// Texts are in the user's language. `recommended` as brim_recommendation has it.
void brim_advise(const brim_result *results, size_t count, int recommended,
                 const brim_advice_facts *facts, brim_advice *out);
// What an effective batch of `now` samples means for the learning rate; "" where it stays as it was.
void brim_advise_batch(const brim_advice_facts *facts, double now, char out[256]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_TUNE_H_
