// Workloads: nouns that can be stepped. Every command works on this table, none on one workload.
// Here engine, data and env meet. Who calls: run, measure, the public API.
#ifndef BRIM_WORKLOAD_H_
#define BRIM_WORKLOAD_H_

#include <signal.h>

#include "backend/backend.h"
#include "brim/plan.h"
#include "config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_KNOB_MAX 16

typedef enum brim_knob_kind { BRIM_KNOB_INT, BRIM_KNOB_BOOL, BRIM_KNOB_CHOICE } brim_knob_kind;

// Values index-aligned with the workload's knobs.
typedef struct brim_setting {
  int64_t value[BRIM_KNOB_MAX];
} brim_setting;

// A setting that changes speed, not the task.
typedef struct brim_knob {
  const char *name;  // "batch_size"
  const char *key;   // config key it stands for: "data.batch_size"
  brim_knob_kind kind;
  int64_t min, max;
  const char *const *choices;  // CHOICE: NULL-terminated; values are indices
  int64_t value;               // from the config
  // May be NULL: it always does. Does its value make a difference, the others being as in `setting`? A
  // sweep measures settings that differ in nothing else once.
  bool (*matters)(void *work, const brim_setting *setting);
  // It changes what is learned, not only how fast: applied only where the user asked for its values.
  bool changes_learning;
} brim_knob;

typedef struct brim_step_info {
  int64_t samples;  // valid rows of this step
  int64_t epoch;    // from 0
  int64_t step;     // optimiser steps made so far
  bool epoch_end;   // this step finished its epoch
  double lr;
  int64_t worker_io_ns, worker_transform_ns;  // the workers' own time for this step's batches
} brim_step_info;

// What episodes of a policy gave, as sums that can be added up; brim_returns_* make figures of them.
typedef struct brim_work_returns {
  int64_t count;       // returns: of a direction's sign in training, of episodes in an evaluation
  double sum, sum_sq;  // of them; 0 returns = nothing is known
  // Of an evaluation: all. Of training: those that began, since one that is under way when a rollout
  // ends did not fall (and an environment that fell before can reach no cut-off any more).
  int64_t episodes;
  int64_t falls;             // of them that fell or diverged
  int64_t diverged;          // of those, that diverged
  int64_t steps;             // environment steps, of all of them
  double distance, seconds;  // forward, of the episodes of an evaluation; 0 s = not known
  // Of an evaluation where going forward is the task: episodes that lasted walk_seconds, all there are,
  // without a fall and at BRIM_WALK_SPEED or more on average. 0 s = it is not, and nothing is known.
  int64_t walked;
  double walk_seconds;
} brim_work_returns;

#define BRIM_WALK_SPEED 1.0  // m/s from which on it counts as walking

void brim_returns_add(brim_work_returns *sum, const brim_work_returns *part);
// NaN where it is not known.
double brim_returns_mean(const brim_work_returns *r);
double brim_returns_spread(const brim_work_returns *r);  // standard deviation
double brim_returns_error(const brim_work_returns *r);   // of the mean
double brim_returns_falls(const brim_work_returns *r);   // share of the episodes, 0..1
double brim_returns_length(const brim_work_returns *r);  // environment steps of an episode
double brim_returns_speed(const brim_work_returns *r);   // metres forward per second
double brim_returns_walked(const brim_work_returns *r);  // episodes

// Means since the last read; NaN where there is nothing.
typedef struct brim_work_metrics {
  double loss;
  double accuracy;  // 0..1; NaN when not classifying
  // What `accuracy` is: "accuracy", "knn" (of features, by their neighbours), "return" (the mean of the
  // episodes of an evaluation, of any size; higher is better all the same).
  const char *metric;
  bool no_loss;          // there is none to be had, so NaN is no sign of trouble
  double grad_norm;      // of the last step
  double grad_norm_max;  // of the steps since the last read that were not skipped
  int64_t samples;
  int64_t bad;        // samples with a non-finite loss
  int64_t skipped;    // optimiser steps skipped, since opening
  double loss_scale;  // of fp16, after the last step; NaN where losses are not scaled
  // Of a policy; all 0 where there is none.
  brim_work_returns returns;
  brim_work_returns
      baseline;  // beside those of an evaluation: of doing nothing, in the same episodes
  // Of the last update of a policy: its length, the policy's after it, the deviation of the returns
  // that were kept. All 0 where there was none.
  double update_norm, policy_norm, sigma;
} brim_work_metrics;

typedef struct brim_work_info {
  const char *unit;           // "samples"
  int64_t set_samples;        // the training set's, whatever the setting
  int64_t samples_per_epoch;  // of them, at the present setting
  int64_t steps_per_epoch;    // at the present setting
  int64_t epochs;             // of a whole run, where the workload says it; 0 = training.epochs
  int64_t steps;              // likewise: the last epoch may be shorter; 0 = of whole epochs
  // Only whole ones of so many samples are trained on (data.drop_last): smaller micro-batches have to
  // divide it, or an epoch would be another; 0 = there is no such number.
  int64_t whole;
  int64_t batch,
      accumulation;         // of it: samples of a micro-batch, micro-batches of a step; 0 = none
  const char *accumulates;  // how, where there is a choice: "exact", "plain"; NULL = none
  int64_t eval_samples;     // 0 = nothing to evaluate on
  int64_t eval_batch;       // of it: samples that are evaluated at once; 0 = none
  int64_t eval_size[2];     // height and width of its images where training has others; else 0
  int64_t classes;
  double learning_rate;  // the schedule's highest; NaN = there is none
  bool adaptive;         // an optimiser of Adam's kind
  // Where the present setting keeps training samples: none, ram, gpu; mapped: the GPU reads them out
  // of the file, of which locked_bytes (evaluation's too) are page-locked.
  const char *cache;
  uint64_t locked_bytes;
  const char
      *not_mapped;  // why the GPU does not read a mapped file; NULL = it does, or there is none
  const char *description;  // "mlp, 1.2 M parameters, 60,000 x 28x28 u8"
  bool policy;              // what is trained acts in an environment: returns, no loss
  int64_t episode_length;   // of its episodes, at most
  // Of doing nothing, once `baseline` was called: in the episodes of evaluations, and under the
  // measure of training (length, restarts, mean over environments).
  brim_work_returns baseline, training_baseline;
  const char *metric;  // brim_work_metrics.metric of evaluations, known before one; NULL = not so
} brim_work_info;

// What loading did since the setting was built, over all its threads.
#define BRIM_WORK_MAX_STAGES 16
typedef struct brim_work_loading {
  const char *cache;      // as in brim_work_info; NULL = nothing is known
  uint64_t locked_bytes;  // likewise
  int64_t samples;        // trained on
  int64_t read_ns;        // reading and decoding them
  size_t stage_count;
  const char *stage[BRIM_WORK_MAX_STAGES];  // transforms by name
  int64_t stage_ns[BRIM_WORK_MAX_STAGES];
  int64_t broken;          // samples left out under data.on_error=skip, evaluation's too
  int64_t broken_reads;    // how often the turn of one of them came
  char first_broken[256];  // what was wrong with the first
} brim_work_loading;

typedef struct brim_work_context {
  const brim_registry *registry;
  brim_device *device;
} brim_work_context;

// A checkpoint in memory (`hold`).
typedef struct brim_work_held {
  void *state;
  brim_status (*write)(void *state, const char *path);
  void (*free)(void *state);
} brim_work_held;

typedef struct brim_workload_table {
  const char *name;
  // Opens sources and knows its knobs; allocates nothing that depends on a setting.
  brim_status (*open)(const brim_work_context *context, const brim_config *config, void **work);
  void (*close)(void *work);
  size_t (*knobs)(void *work, const brim_knob **out);
  brim_status (*plan)(void *work, const brim_setting *setting, brim_plan *out);
  // (Re)build for a setting: net and loader. Weights start from the seed, or from the file the
  // config names (training.weights); cursor at 0.
  brim_status (*configure)(void *work, const brim_setting *setting);
  // May be NULL. Said before `configure` when `load` follows: what training would start from is then
  // not read.
  void (*resuming)(void *work);
  // May be NULL. Said before `plan` when `load` follows: what was decided in the run that wrote this
  // metadata is not decided anew.
  void (*decided)(void *work, const json_t *metadata);
  // May be NULL: there is nothing to share. Said before `configure`, and from then on: this is rank
  // `rank` of `world` that train at once on this machine. Each reads its own part of every epoch and
  // counts on its part of the host's memory. (0, 1) is one alone, as a workload is opened.
  void (*share)(void *work, int rank, int world);
  void (*info)(void *work, brim_work_info *out);
  brim_status (*step)(void *work, const brim_spans *spans, brim_step_info *out);
  // May be NULL: nothing takes long. From then on (until NULL is said) `step`, `evaluate` and `probe` may
  // end with BRIM_EINTERRUPTED when *stop is not 0, and the state is the one before.
  void (*stops)(void *work, const volatile sig_atomic_t *stop);
  // May be NULL. Said before `plan` by who takes smaller micro-batches, and more of them, than the config
  // asks for where memory is or was short: such a setting stands for the config's, and was not asked for.
  void (*adapts)(void *work);
  // May be NULL: there is nothing. Gives up what changes no result, before micro-batches get smaller: the
  // same setting needs less memory afterwards. False when nothing is left to be given up.
  bool (*spare)(void *work, const brim_setting *setting);
  // May be NULL: memory is saved by smaller micro-batches and more of them (run_adapt.c). Else the next
  // setting that needs less memory, which is larger in nothing; false when there is none.
  bool (*shrink)(void *work, brim_setting *setting);
  // May be NULL: all are. Do the values of a setting go together? A sweep leaves out those that do not.
  bool (*sensible)(void *work, const brim_setting *setting);
  // The two halves of a step, to learn which of them bounds it; both move on in the data, and neither
  // may be NULL alone. Both NULL: nothing is loaded. `load_only` takes the batches of one step and
  // computes nothing. `compute_only` makes `steps` steps on what was loaded before, uploading nothing;
  // `ns` is their time alone, until the device is done. The weights are no longer those of a training.
  brim_status (*load_only)(void *work, brim_step_info *out);
  brim_status (*compute_only)(void *work, int steps, int64_t *ns, brim_step_info *out);
  brim_status (*metrics)(void *work, bool reset, brim_work_metrics *out);
  brim_status (*evaluate)(void *work, brim_work_metrics *out);
  // May be NULL: there is none. What doing nothing gives is found out, once, before training begins;
  // `info` and `evaluate` tell it.
  brim_status (*baseline)(void *work);
  // May be NULL: there is nothing. What was learned judged once more at the end, at a price: a linear
  // classifier on frozen features (metric "probe"). BRIM_EUNSUPPORTED where the config or the data do
  // not ask for it. Training could go on after it.
  brim_status (*probe)(void *work, brim_work_metrics *out);
  // Position, weights, optimiser; `extra` (object of strings, may be NULL) goes along in the file.
  brim_status (*save)(void *work, const char *path, const json_t *extra, bool weights_only);
  // May be NULL: `save` is short. What `save` would write now, to be written by another thread while
  // training goes on; to be freed before `configure` and `close`.
  brim_status (*hold)(void *work, const json_t *extra, bool weights_only, brim_work_held *out);
  brim_status (*load)(void *work, const char *path, json_t **extra);
  // To judge a checkpoint, after `configure`: its weights alone, with `averaged` the
  // averaged ones where it has some. Where training stood, and what else is in it, is left alone.
  brim_status (*use)(void *work, const char *path, bool averaged);
  // Remember and restore the state, so that a trial leaves no trace.
  brim_status (*snapshot)(void *work);
  brim_status (*restore)(void *work);
  // May be NULL: nothing is loaded.
  void (*loader_stats)(void *work, brim_work_loading *out);
} brim_workload_table;

// "supervised", "contrastive", "ars"; later mappo, command. NULL with a detail when unknown.
const brim_workload_table *brim_workload_find(const char *name);

// A workload object: table and state together.
typedef struct brim_work {
  const brim_workload_table *table;
  void *state;
  const brim_knob *knobs;
  size_t knob_count;
  brim_work_context context;
} brim_work;

// What every caller that opens a workload from a config needs first. The device spec for
// brim_device_open from the keys `device` and `backend`; BRIM_EUNSUPPORTED for a list of devices.
brim_status brim_work_device_spec(const brim_config *config, const char **out);
// The same of a list, one by one, for who can use it; without a list there is one device.
size_t brim_work_device_count(const brim_config *config);
brim_status brim_work_device_at(const brim_config *config, size_t index, const char **out);
// How it is opened: threads, workspace limit, determinism, choice of algorithms and where choices
// are remembered ($XDG_CACHE_HOME/brim or ~/.cache/brim).
brim_status brim_work_device_options(const brim_config *config, brim_device_options *out);
// Steps in which the learning rate rises. Given in epochs they are for a run of usual length: where they
// would take half of the epochs or more, they take a fifth. Given in steps they stay.
typedef struct brim_work_warmup {
  int64_t steps, asked;
  const char *key;  // that says so
} brim_work_warmup;
brim_work_warmup brim_work_warmup_of(const brim_config *config, int64_t steps_per_epoch);
// A config with axes is many workloads: BRIM_EINVAL names the axes.
brim_status brim_work_refuse_grid(const brim_config *config);

brim_status brim_work_open(const brim_work_context *context, const brim_config *config,
                           brim_work **out);
void brim_work_close(brim_work *work);
// Before `configure`, when training goes on from a checkpoint: the device takes over the algorithms
// chosen when it was written, so that none is chosen anew. Those of another device are left alone;
// a text that does not fit is a warning. Fails only when the file cannot be read.
brim_status brim_work_take_algorithms(brim_work *work, const char *path);
// Does a plan fit into what is free, or into `limit` bytes when that is less (0 = no limit)? On a
// device that is the host, host and device bytes count together. BRIM_EOOM says what is needed,
// what is there, and the largest batch_size that fits and that the data fills.
brim_status brim_work_check_fit(const brim_work *work, const brim_setting *setting,
                                const brim_plan *plan, uint64_t limit);
// The same answer alone, without looking for what would fit.
bool brim_work_fits(const brim_work *work, const brim_plan *plan, uint64_t limit);
// The metadata of a checkpoint; a new reference.
brim_status brim_work_metadata(const char *path, json_t **out);
// The largest batch_size below the setting's own whose plan needs at most `limit` bytes and of which a
// step, with what it accumulates, is no more than the training set, found by bisection over plans; 0
// when none does or there is no such knob. *set_samples (may be NULL) gets the size of the set where
// that, not memory, is what ends it; else 0.
int64_t brim_work_largest_batch(const brim_work *work, const brim_setting *setting, uint64_t limit,
                                int64_t *set_samples);
// The first setting along the workload's `shrink` that needs at most `limit` bytes; false when none does.
bool brim_work_shrink_to(const brim_work *work, brim_setting *setting, uint64_t limit);
// "dir_chunk 64 -> 8 would fit", or that nothing would.
void brim_work_shrink_text(const brim_work *work, const brim_setting *setting, uint64_t limit,
                           char *out, size_t size);
// What is another in `now`: "dir_chunk 64 -> 16, num_envs 1024 -> 512"
void brim_work_setting_change(const brim_work *work, const brim_setting *was,
                              const brim_setting *now, char *out, size_t size);
// "batch_size 512 is the largest that fits", and why it is no larger where that is the set's size.
void brim_work_batch_text(int64_t batch, int64_t set_samples, char out[160]);
// The config's own values as a setting.
brim_setting brim_work_setting(const brim_work *work);
// Index of a knob by name or config key; -1 when it has none.
int brim_work_knob(const brim_work *work, const char *name);
// Value of a knob as text ("256", "true", "bf16").
void brim_knob_format(const brim_knob *knob, int64_t value, char out[32]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_H_
