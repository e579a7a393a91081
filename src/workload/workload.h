// Workloads: kinds of training, each with a state that can be stepped. Every command works on
// brim_workload_table and on no workload in particular. Workloads join engine, data and env. Callers: run,
// measure, the public API.
#ifndef BRIM_WORKLOAD_H_
#define BRIM_WORKLOAD_H_

#include <signal.h>

#include "backend/backend_exchange.h"
#include "brim/plan.h"
#include "config/config_rows.h"
#include "record/record_knob.h"
#include "record/record_metric.h"
#include "record/record_scene.h"

#define BRIM_KNOB_MAX 16

typedef enum brim_knob_kind { BRIM_KNOB_INT, BRIM_KNOB_BOOL, BRIM_KNOB_CHOICE } brim_knob_kind;

// A setting: one value per knob, in the order of the workload's knobs.
typedef struct brim_setting {
  int64_t value[BRIM_KNOB_MAX];
} brim_setting;

struct brim_knob_sweep;

// A number or choice that changes speed or memory, but not the task.
typedef struct brim_knob {
  const char *name;  // "batch_size"
  const char *key;   // config key it stands for: "data.batch_size"
  brim_knob_kind kind;
  int64_t min, max;
  const char *const *choices;  // CHOICE: NULL-terminated; values are indices
  int64_t value;               // from the config
  // (NULL = always true) True if the value makes a difference, given the other values in `setting`. A sweep
  // measures only one of several settings that differ only in knobs that do not matter.
  bool (*matters)(void *work, const brim_setting *setting);
  // The knob changes the learning, not only its speed: used only if the user asks for its values.
  bool changes_learning;
  bool multiplies;  // the time of a step grows with the value
  int64_t
      fills;  // value with which the first epoch fills a cache and later epochs are faster; 0 = none
  const char *list;  // config key with the values of a sweep; NULL = none
  // The option of bench, with its dashes ("--batch-sizes"): it sets the key `list`; if `list` is NULL, the
  // values are the option's words. NULL = no option.
  const char *option;
  // Writes the values that a sweep tries if `list` is empty, at most BRIM_KNOB_AXIS; returns their number.
  // NULL, or 0 values: the sweep tries only the config's own value.
  size_t (*axis)(void *work, const struct brim_knob_sweep *sweep, int64_t *values);
  int order;  // axes are chosen in ascending order of this number
} brim_knob;

#define BRIM_KNOB_AXIS 16
// What the values on an axis may depend on.
typedef struct brim_knob_sweep {
  const struct brim_work *work;
  const brim_config *config;
  bool gpu;           // the device, or the card that is planned for, is a GPU
  bool all;           // the sweep tries a few values of every knob
  double card_bytes;  // memory of a card that is planned for but not in this machine; 0 = none
  brim_setting most;  // the largest value on each axis chosen before; else the config's own value
  char *note;         // translated: why values are left out, with its newline; NULL = not asked for
  size_t note_size;
} brim_knob_sweep;

typedef struct brim_step_info {
  int64_t samples;  // valid rows of this step
  int64_t epoch;    // from 0
  int64_t step;     // optimiser steps made so far
  bool epoch_end;   // this step finished its epoch
  double lr;
  int64_t worker_io_ns, worker_transform_ns;  // the workers' own time for this step's batches
  // If info.interval_unit is set: the run's count of that unit, before and after this step.
  int64_t counted_before, counted;
} brim_step_info;

// Sums of training. Two readings can be added up, and so can a checkpoint's sums and later ones.
#define BRIM_WORK_MAX_SUMS 32
typedef struct brim_work_sums {
  // Names of the sums; a checkpoint has them as "brim.epoch_NAME" and "brim.log_NAME".
  const char *names[BRIM_WORK_MAX_SUMS];
  size_t count;
  // If set, a checkpoint has all sums in one list of this name, which is left out while all are 0.
  const char *packed;
  // Shortest valid list: an older version may have written fewer sums, and the others are 0. 0 = `count`.
  size_t least;
} brim_work_sums;

// Metrics of training since the last read, or of an evaluation.
typedef struct brim_work_metrics {
  const brim_metric_set *set;        // the workload's rows
  double values[BRIM_METRIC_MAX];    // by row; NaN = unknown
  double baseline[BRIM_METRIC_MAX];  // evaluation: the baseline's values
  double sums[BRIM_WORK_MAX_SUMS];   // training: the sums from which `figures` computes values
  int64_t samples;                   // samples measured
  int64_t bad;                       // samples without a finite result
  int64_t skipped;                   // steps without effect since opening
  bool searching;  // skipped steps are normal for now: fp16 looks for its loss scale
} brim_work_metrics;

// The throughput in another unit.
#define BRIM_WORK_MAX_RATES 4
typedef struct brim_work_rate {
  const char *unit;   // a message: "agent-samples/s trained"
  double per_sample;  // units for each sample
  int row;            // metric row of this rate, counted from 1; 0 = none
} brim_work_rate;

typedef struct brim_work_info {
  const char *unit;                           // "samples"
  brim_work_rate rates[BRIM_WORK_MAX_RATES];  // more units to show the throughput in
  size_t rate_count;
  // A message: the unit of checkpoint.interval, "episodes"; NULL = steps.
  const char *interval_unit;
  int64_t set_samples;        // samples of the training set
  int64_t samples_per_epoch;  // samples of an epoch at the present setting
  int64_t steps_per_epoch;    // steps of an epoch at the present setting
  int64_t epochs;             // epochs of a run, if the workload decides them; 0 = training.epochs
  int64_t steps;              // steps of a run, if its last epoch may be shorter; 0 = whole epochs
  // data.drop_last: an epoch consists of whole batches of this many samples. A smaller micro-batch must
  // divide this number, or the epoch would have other samples; 0 = no such limit.
  int64_t whole;
  // The samples of an epoch are a multiple of this number, and the rest is left out; 0 = all samples.
  int64_t multiple;
  int64_t batch, accumulation;  // samples of a micro-batch; micro-batches of a step; 0 = none
  const char *accumulates;  // the kind of accumulation: "exact", "plain"; NULL = there is no choice
  int64_t eval_samples;     // samples of the evaluation set; 0 = nothing to evaluate on
  int64_t eval_batch;       // samples that are evaluated at once; 0 = none
  int64_t
      eval_size[2];  // height and width of evaluation images if they differ from training's; else 0
  int64_t classes;
  const char *loss;    // the loss, which says what targets mean: "cross_entropy"; NULL = no targets
  int64_t target_dim;  // numbers or labels in the target of a sample without classes; 0 = none
  double learning_rate;  // the highest of the schedule; NaN = there is none
  bool adaptive;         // the optimiser is of Adam's kind
  // Where the present setting keeps training samples: none, ram, gpu, or mapped, which means that the GPU
  // reads them from the file.
  const char *cache;
  bool takes_work;        // the CPU decodes or transforms each training sample
  uint64_t locked_bytes;  // page-locked bytes of mapped files, those of evaluation included
  const char
      *not_mapped;  // why the GPU does not read a mapped file; NULL = it does, or there is none
  const char *description;  // "mlp, 1.2 M parameters, 60,000 x 28x28 u8"
  // The parts that fused kernels compute at the present setting: "rollout and update", "update", "no"; NULL =
  // the workload has no fused kernels.
  const char *fused;
  bool watches_gpu;  // the utilization of the GPU is worth sampling while training
  bool reads_often;  // reading metrics costs nothing: they are read after every step
  // A run is lost after this many steps in a row without effect, and at least an epoch of them; 0 = after an
  // epoch without any effect.
  int64_t idle_limit;
  // The baseline's metrics, once `baseline` was called: as in evaluations, and as training measures them.
  bool has_baseline;
  int64_t baseline_samples;
  double baseline[BRIM_METRIC_MAX], training_baseline[BRIM_METRIC_MAX];
} brim_work_info;

// Statistics of loading since the setting was built, summed over all threads.
#define BRIM_WORK_MAX_STAGES 16
typedef struct brim_work_loading {
  const char *cache;      // as in brim_work_info; NULL = nothing is known
  uint64_t locked_bytes;  // as in brim_work_info
  int64_t samples;        // samples trained on
  int64_t read_ns;        // time of reading and decoding samples
  size_t stage_count;
  const char *stage[BRIM_WORK_MAX_STAGES];  // transforms by name
  int64_t stage_ns[BRIM_WORK_MAX_STAGES];
  int64_t broken;        // samples left out under data.on_error=skip, those of evaluation included
  int64_t broken_reads;  // number of times that a broken sample was due and was left out
  char first_broken[256];  // the error of the first broken sample
} brim_work_loading;

//---------------------------------- diagnoses ----------------------------------

// Troubles that a workload watches for while it trains. They are counted, and the 1st, 2nd, 4th, 8th, ... of a
// kind is reported and written to log.jsonl as {"event": "anomaly"}.
#define BRIM_WORK_MAX_TROUBLES 8
typedef struct brim_work_trouble_row {
  const char *name;        // "loss_exploded"
  const char *label;       // a message: the label of its line in the summary, "warning"
  const char *one, *many;  // messages with %lld, the number of times, and %lld, the first step
  bool always;             // report every occurrence: each is a trouble of its own
} brim_work_trouble_row;

typedef struct brim_work_trouble {
  int kind;          // index into brim_work_diagnosis.rows
  int64_t count;     // samples, steps, or 1
  bool silent;       // the trouble is expected: count it but do not report it
  char text[1536];   // what happened and what to change (base_words.h)
  char advice[768];  // only what to change (base_words.h), for the log; "" = the log has no advice
  struct {
    const char *key;
    double value;
  } fields[2];  // more members of the log's event
  size_t field_count;
} brim_work_trouble;

// The metrics at which a diagnosis looks, and when they were read.
typedef struct brim_work_moment {
  int64_t epoch, step;  // epoch from 1
  double lr;
  const brim_work_metrics *metrics;  // training since the last reading, or an evaluation
  bool evaluated;                    // `metrics` is an evaluation
  const double *train;               // for an evaluation: training's values in the epoch before it
} brim_work_moment;

typedef struct brim_work_diagnosis {
  const brim_work_trouble_row *rows;
  size_t count;  // at most BRIM_WORK_MAX_TROUBLES
  // Writes the troubles of this moment; returns their number.
  size_t (*take)(void *work, const brim_work_moment *at,
                 brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]);
  // At the end of a run: writes what to change (base_words.h); `counts` has the number of each trouble.
  // Leaves "" if there is nothing to change.
  void (*advice)(void *work, const int64_t *counts, double lr, char *out, size_t size);
  // Returns the error that ends a run after an epoch that left nothing to continue with: why, and what to try.
  brim_status (*lost)(void *work, int64_t epoch, double lr);
  // Write the readings so far to a checkpoint, and read them back, so that a resumed run reports what an
  // uninterrupted one does. times[row]: number of readings with that trouble. `skipped`: steps skipped before.
  brim_status (*put)(void *work, const int64_t *times, json_t *metadata);
  void (*get)(void *work, const json_t *metadata, int64_t skipped, int64_t *times);
} brim_work_diagnosis;

typedef struct brim_work_context {
  const brim_registry *registry;
  brim_device *device;
  // Communication of the ranks, for everything except the device's own exchanges; NULL = a single rank. Only
  // a workload with `ranks` is opened on several ranks.
  brim_comm *comm;
  // No training follows, only `use`: do not plan or check what only training needs.
  bool evaluates;
} brim_work_context;

// A checkpoint in memory (`background->hold`).
typedef struct brim_work_held {
  void *state;
  brim_status (*write)(void *state, const char *path);
  void (*free)(void *state);
} brim_work_held;

struct brim_safetensors;

// Options that a command has for this workload, and their help. Each option sets a config key.
typedef struct brim_work_options {
  const char *command;      // "train", "bench", "eval"
  const brim_option *rows;  // NULL = none
  const char *about;        // a message: paragraphs after those of the command; NULL = none
  const char *examples;     // a message: "comment\ncommand\n" pairs; NULL = none
  // Name of the option whose whole number must be from `least` to `most`; NULL = none.
  const char *bounded;
  int least, most;
} brim_work_options;

// The page of `brim help NAME`. A part that begins with two blanks is printed as it is; any other part is a
// message and becomes a paragraph. The config keys of the workload follow.
typedef struct brim_work_topic {
  const char *summary;  // a message
  const char *const *parts;
  size_t count;
} brim_work_topic;

// A line about a workload.
typedef struct brim_work_line {
  const char *label;  // a message
  char text[256];     // translated
} brim_work_line;

//---------------------------------- abilities ----------------------------------
// Abilities that not every workload has. A workload points to a table for each of its abilities; the other
// pointers are NULL. Every member of a table is set unless its comment says otherwise.

// Loading data: runs the two halves of a step separately, to learn which one limits it. Both move the
// position in the data.
typedef struct brim_work_loading_table {
  // Loads the batches of one step and computes nothing.
  brim_status (*load_only)(void *work, brim_step_info *out);
  // Makes `steps` steps on data loaded before, without uploads; `ns` is their time until the device is done.
  // The weights are useless for training afterwards.
  brim_status (*compute_only)(void *work, int steps, int64_t *ns, brim_step_info *out);
  void (*stats)(void *work, brim_work_loading *out);
} brim_work_loading_table;

struct brim_workload_table;

// Ranks: several processes train at once, each on its part of the data. They train one network together if the
// device is one of several ranks, else each trains its own.
typedef struct brim_work_ranks_table {
  // Sets the rank for all later calls of `configure`. Each rank reads its own part of every epoch and may use
  // its part of the host's memory. A workload is opened as (0, 1), a single rank.
  void (*share)(void *work, int rank, int world);
  // Frees everything that `configure` built. `configure` must follow, maybe as another rank.
  void (*drop)(void *work);
  // Called on all ranks before the first one saves: collects the part of the checkpoint that each rank has.
  brim_status (*give)(void *work, bool weights_only);
  // For commands that decide by the clock what to do next. Called on the first rank: from `true` until
  // `false` the other ranks repeat its calls of configure, step, metrics, snapshot, restore and `loading`.
  void (*lead)(void *work, bool on);
  // Called on the other ranks: repeats the first rank's calls until that rank ends it.
  brim_status (*follow)(void *work, const struct brim_workload_table *table);
} brim_work_ranks_table;

// Evaluation.
typedef struct brim_work_evaluation_table {
  // BRIM_ESTATE if there is nothing to evaluate on.
  brim_status (*evaluate)(void *work, brim_work_metrics *out);
  // Called after `configure`, to evaluate a checkpoint: loads only its weights, with `averaged` the averaged
  // weights if the checkpoint has them. The position in training does not change.
  brim_status (*use)(void *work, const char *path, bool averaged);
} brim_work_evaluation_table;

// Learning features: one more, expensive evaluation at the end.
typedef struct brim_work_features_table {
  const char *event;  // its name in log.jsonl: {"event": "probe"}
  // Trains a linear classifier on frozen features (metric "probe"). BRIM_EUNSUPPORTED if the config does not
  // ask for it or the data do not allow it. Training could continue afterwards.
  brim_status (*probe)(void *work, brim_work_metrics *out);
} brim_work_features_table;

// Learning a policy in an environment.
typedef struct brim_work_policy_table {
  // Evaluates the baseline once, before training begins; `info` and `evaluate` report it. `brim eval` does
  // not call this: its `evaluate` computes the baseline if needed.
  brim_status (*baseline)(void *work);
  bool
      networks;  // the workload trains networks with an optimizer, so keys of optimizers and batches apply
} brim_work_policy_table;

// Replays: records episodes on the CPU for `brim render`. workload_env.h has what workloads with an
// environment share.
#define BRIM_WORK_MAX_ACTORS 4
typedef struct brim_work_actor {
  const char *name;  // in --json: "trained"
  char label[64];    // translated: "Policy"
} brim_work_actor;

typedef struct brim_work_replay_info {
  brim_scene scene;
  double dt;         // seconds of a step; 1 if the environment has no time
  int64_t steps;     // most steps of an episode
  uint64_t seed;     // seed of the episodes
  char title[96];    // "quadruped, stand"
  char trained[64];  // length of the training: "400 iterations", translated
  // The metrics that runs of this config log, valid while the replay is open; NULL = metric_set of the table.
  // Then a message, the word for a step in a log: "iteration"; NULL = "step".
  const brim_metric_set *metrics;
  const char *step;
  brim_scene_line facts[BRIM_SCENE_MAX_LINES];  // lines that describe the replay
  size_t fact_count;
  // The actors: first the trained policy, then baselines that begin in the same state.
  brim_work_actor actors[BRIM_WORK_MAX_ACTORS];
  size_t actor_count;
} brim_work_replay_info;

// A recorded episode, in the caller's memory.
typedef struct brim_work_recording {
  int64_t capacity;    // number of states that fit
  float *frames;       // (capacity, brim_scene_width)
  float *reward;       // (capacity): reward of the step from each state; none for the last state
  int64_t states;      // out: number of states
  brim_scene_end end;  // out
} brim_work_recording;

typedef struct brim_work_replay_table {
  const char *score;  // key of the metric that equals the sum of an episode's rewards
  // Opens the policy of a checkpoint in the environment of a config. `registry` has the environments of
  // plug-ins.
  brim_status (*open)(const brim_registry *registry, const brim_config *config, const char *path,
                      void **out);
  void (*close)(void *replay);
  void (*info)(void *replay, brim_work_replay_info *out);
  // Adds members to the event of --json, such as the task.
  brim_status (*fields)(void *replay, json_t *event);
  // Records held-out episode number `episode`, from 0, cut off after `steps`: the same episode as in
  // `brim eval`. `actor` is an index into info.actors.
  brim_status (*record)(void *replay, size_t actor, int32_t episode, int64_t steps,
                        brim_work_recording *out);
} brim_work_replay_table;

// Out of memory: more and smaller micro-batches make the same step (run_train.c).
typedef struct brim_work_batches_table {
  // Called before `plan`, if the caller may use smaller micro-batches than the config asks for when memory is
  // short: a setting with smaller micro-batches then counts as the config's.
  void (*allow_smaller)(void *work);
  // Called before micro-batches get smaller: gives up memory that changes no result, so that the same setting
  // needs less. False if nothing is left to give up.
  bool (*free_optional)(void *work, const brim_setting *setting);
} brim_work_batches_table;

// Out of memory: the workload chooses what to make smaller.
typedef struct brim_work_shrink_table {
  // Changes the setting to the next one that needs less memory; no value grows. False if there is none.
  bool (*shrink)(void *work, brim_setting *setting);
  // (NULL = nothing to give up) Called before `shrink`: gives up memory that only makes the same setting
  // faster. False if nothing is left to give up.
  bool (*free_optional)(void *work, const brim_setting *setting);
} brim_work_shrink_table;

// For workloads whose saving takes long enough to be worth a thread.
typedef struct brim_work_background_table {
  // Copies the content that `save` would write now; another thread can write it while training continues. The
  // caller frees the copy before `configure` and `close`.
  brim_status (*hold)(void *work, const json_t *extra, bool weights_only, brim_work_held *out);
} brim_work_background_table;

// For workloads that choose some settings themselves if the config leaves them open.
typedef struct brim_work_settings_table {
  // Called before the settings of a checkpoint (`was`, by key) are compared with the config's (`now`): fills in
  // the values that the workload chose for settings that were left open.
  void (*resolve)(void *work, const json_t *metadata, json_t *was, json_t *now);
} brim_work_settings_table;

// Text besides the rows of metrics. Without this table the start of a run shows the data.
typedef struct brim_work_text_table {
  // Writes lines for the start of a run; returns their number.
  size_t (*start_lines)(void *work, brim_work_line *out, size_t most);
  // Appends sentences that are printed below the metrics of an evaluation.
  void (*eval_notes)(const brim_work_metrics *metrics, brim_str *out);
} brim_work_text_table;

struct brim_findings;
// Findings: a sweep reports more than times and memory.
typedef struct brim_work_findings_table {
  // Adds the findings about a result (record_findings.h), the most important first.
  void (*find)(const struct brim_findings *of);
} brim_work_findings_table;

struct brim_result;
struct brim_view;
// Views: the workload's own tables below those of a sweep.
typedef struct brim_work_views_table {
  bool
      brief;  // the short form of a sweep shows them too, with the findings of the config's own setting
  // Makes the views. `own` is the config's setting, NULL = unknown; `whole`: include the views that every
  // sweep has. Returns their number.
  size_t (*make)(const struct brim_result *results, size_t count, const brim_setting *own,
                 bool whole, struct brim_view *out);
  // (NULL = none) Makes views of the configs' own settings of two sweeps, side by side; returns their number.
  size_t (*compare)(const struct brim_result *a, size_t a_count, const struct brim_result *b,
                    size_t b_count, struct brim_view *out);
} brim_work_views_table;

//---------------------------------- shipped configs ----------------------------------

// The config that suits an environment: `brim train WORKLOAD env=ENV`.
typedef struct brim_work_shipped {
  const char *env, *config;
} brim_work_shipped;

// The config and the name that a run starts with.
typedef struct brim_work_start {
  const char *config;  // a shipped config; NULL = the workload's defaults
  char name[64];       // default name of the run: ENV-WORKLOAD
} brim_work_start;

//---------------------------------- brim init ----------------------------------

// The images for which `brim init` writes a config.
typedef struct brim_work_images {
  int64_t height, width;  // size of a crop
  bool colour, gpu;       // three channels; a GPU trains
} brim_work_images;

// The values that `brim init` writes into the config for these images.
typedef struct brim_work_beginning {
  char model[96], loss[64], optimizer[96], train[320];  // train: the transform
  int64_t epochs;
  const char *why;  // a message: the comment beside the model
} brim_work_beginning;

//---------------------------------- the table ----------------------------------

typedef struct brim_workload_table {
  const char *name;
  // Results have the same bits on a part of a GPU's multiprocessors (MPS) as on all of them, because no
  // library chooses algorithms by their number.
  bool any_part;
  bool has_targets;  // outputs are compared with targets, so any labelled data can evaluate them
  // Writes the start of a config for images without targets; NULL = the workload does not suit them.
  void (*begin)(const brim_work_images *images, brim_work_beginning *out);
  const char *model;  // the default model component; NULL = the workload has no model component
  const char
      *makes;  // a message: what the workload trains, "an ars policy"; NULL = a checkpoint of NAME
  const char *length_key;  // the config key for the length of a run; NULL = training.epochs
  const char
      *without_eval;   // KEY=VALUE that turns evaluations off; NULL = training.eval_interval=0
  const char *config;  // the shipped config that `brim train NAME` uses; NULL = none
  // Shipped configs by environment; NULL = none.
  const brim_work_shipped *shipped;
  size_t shipped_count;
  const brim_work_options *options;
  size_t option_count;
  const brim_work_topic *topic;        // NULL = none
  const brim_config_section *section;  // the workload's config keys and components; NULL = none
  // Korean translations of the messages of a workload that main registers.
  const brim_msg_pair *korean;
  size_t korean_count;
  const brim_knob_set *knob_set;  // names of the knobs for people, and their roles; may be NULL
  const brim_metric_set *metric_set;
  // (NULL = `metric_set`) For workloads whose config adds metrics: all rows, beginning with those of
  // `metric_set`, valid while the workload is open.
  const brim_metric_set *(*metric_set_of)(void *work);
  // (NULL = always true) True if a run of this config may have values for a row, as far as is known without
  // opening the data.
  bool (*measures)(const brim_config *config, const char *metric_key);
  const brim_work_sums *sums;
  const brim_work_diagnosis *diagnosis;  // may be NULL: nothing is watched for
  // Opens the sources and makes the knobs; allocates nothing that depends on a setting.
  brim_status (*open)(const brim_work_context *context, const brim_config *config, void **work);
  void (*close)(void *work);
  size_t (*knobs)(void *work, const brim_knob **out);
  // False if the values of a setting contradict each other: a sweep leaves the setting out.
  bool (*sensible)(void *work, const brim_setting *setting);
  brim_status (*plan)(void *work, const brim_setting *setting, brim_plan *out);
  // Called before `plan` and `configure` if the weights of a checkpoint follow: the file of first weights is
  // then not read. If `load` follows, `metadata` is the checkpoint's, and the workload keeps the choices of
  // its run. If `use` follows, `metadata` is NULL.
  void (*resuming)(void *work, const json_t *metadata);
  // Builds, or rebuilds, everything for a setting. Weights start from the seed, or from the file that the
  // config names (training.weights); the position is 0.
  brim_status (*configure)(void *work, const brim_setting *setting);
  void (*info)(void *work, brim_work_info *out);
  brim_status (*step)(void *work, const brim_spans *spans, brim_step_info *out);
  // Sets the stop flag; NULL removes it. `step`, `evaluate` and `probe` may end with BRIM_EINTERRUPTED when
  // *stop is not 0; the state is then the one before the call.
  void (*stops)(void *work, const volatile sig_atomic_t *stop);
  brim_status (*metrics)(void *work, bool reset, brim_work_metrics *out);
  // Computes the values of the rows from sums. Does not change rows that describe only the last step.
  void (*figures)(void *work, const double *sums, double values[BRIM_METRIC_MAX]);
  // Saves position, weights and optimiser; `extra` (object of strings, may be NULL) becomes metadata.
  brim_status (*save)(void *work, const char *path, const json_t *extra, bool weights_only);
  brim_status (*load)(void *work, const char *path, json_t **extra);
  // (NULL = never) True if a checkpoint that does not name its workload is one of this workload.
  bool (*owns)(const struct brim_safetensors *file);
  // Save and restore the state in memory, so that a trial leaves no trace.
  brim_status (*snapshot)(void *work);
  brim_status (*restore)(void *work);
  // Abilities; NULL = the workload lacks this ability.
  const brim_work_loading_table *loading;
  const brim_work_ranks_table *ranks;
  const brim_work_evaluation_table *evaluation;
  const brim_work_features_table *features;
  const brim_work_policy_table *policy;
  const brim_work_replay_table *replay;
  const brim_work_batches_table *batches;
  const brim_work_shrink_table *shrinking;
  const brim_work_background_table *background;
  const brim_work_settings_table *settings;
  const brim_work_text_table *text;
  const brim_work_findings_table *findings;
  const brim_work_views_table *views;
} brim_workload_table;

// The workload of a name; NULL, with a status detail, if it is unknown.
const brim_workload_table *brim_workload_find(const char *name);
// The workloads one by one; NULL after the last.
const brim_workload_table *brim_workload_at(size_t index);
// Registers a program's own workload with its keys and messages. Call it from main, before the first config
// is loaded and before threads start.
brim_status brim_workload_register(const brim_workload_table *table);

// Finds a config and a default name for a run whose override (`key=value` of the command line) names an
// environment. Starts nothing. False if the override names no environment.
bool brim_workload_start(const brim_workload_table *table, const char *override,
                         brim_work_start *out);

// A workload object: table and state together.
typedef struct brim_work {
  const brim_workload_table *table;
  void *state;
  const brim_knob *knobs;
  size_t knob_count;
  const brim_metric_set *metrics;  // the rows of metrics
  brim_work_context context;
} brim_work;

// The device spec for brim_device_open, from the keys `device` and `backend`; BRIM_EUNSUPPORTED for a list of
// devices.
brim_status brim_work_device_spec(const brim_config *config, const char **out);
// The device specs of a list, one by one. A config without a list has one device.
size_t brim_work_device_count(const brim_config *config);
brim_status brim_work_device_at(const brim_config *config, size_t index, const char **out);
// Reads the options for brim_device_open: threads, workspace limit, determinism, choice of algorithms and the
// file that remembers choices (in brim_work_cache_folder).
brim_status brim_work_device_options(const brim_config *config, brim_device_options *out);
// The folder of remembered choices and ceilings: $XDG_CACHE_HOME/brim, else ~/.cache/brim; "" if neither is
// set or the path is too long.
void brim_work_cache_folder(char *out, size_t size);
// The warm-up: steps in which the learning rate rises. A number given in epochs suits a run of usual length:
// if it would take half of the run or more, the warm-up takes a fifth. A number given in steps is kept.
typedef struct brim_work_warmup {
  int64_t steps, asked;  // steps of the warm-up; steps that the config asks for
  const char *key;       // the config key that gave `asked`
} brim_work_warmup;
brim_work_warmup brim_work_warmup_of(const brim_config *config, int64_t steps_per_epoch);
// BRIM_EINVAL for a config with axes, which is a grid of experiments; the message names the axes.
brim_status brim_work_refuse_grid(const brim_config *config);

brim_status brim_work_open(const brim_work_context *context, const brim_config *config,
                           brim_work **out);
void brim_work_close(brim_work *work);
// Call the members of `evaluation`; BRIM_ESTATE if the workload has none.
brim_status brim_work_evaluate(const brim_work *work, brim_work_metrics *out);
brim_status brim_work_use(const brim_work *work, const char *path, bool averaged);
// Called before `configure`, when training continues from a checkpoint: gives the device the algorithms that
// the checkpoint's run chose, so that none is chosen again. Ignores algorithms of another device; warns if
// the text does not fit. Fails only if the file cannot be read.
brim_status brim_work_take_algorithms(brim_work *work, const char *path);
// Checks that a plan fits in free memory, or in `limit` bytes if that is less (0 = no limit). If the device
// is the host, host and device bytes count together. BRIM_EOOM names the bytes needed, the bytes free, and
// the largest batch_size that fits and that the data fills.
brim_status brim_work_check_fit(const brim_work *work, const brim_setting *setting,
                                const brim_plan *plan, uint64_t limit);
// The same check without searching for a batch_size that fits.
bool brim_work_fits(const brim_work *work, const brim_plan *plan, uint64_t limit);
// Reads the metadata of a checkpoint; *out is a new reference.
brim_status brim_work_metadata(const char *path, json_t **out);
// Finds, by bisection over plans, the largest batch_size below the setting's own with a plan of at most
// `limit` bytes and a step (all micro-batches together) of at most the training set; 0 if there is none, or
// no such knob. *set_samples (may be NULL) gets the size of the set if that is the limit, not memory; else 0.
int64_t brim_work_largest_batch(const brim_work *work, const brim_setting *setting, uint64_t limit,
                                int64_t *set_samples);
// Writes "dir_chunk 64 -> 8 would fit", or that no setting would.
void brim_work_shrink_text(const brim_work *work, const brim_setting *setting, uint64_t limit,
                           char *out, size_t size);
// The differences of two settings: "dir_chunk 64 -> 16, num_envs 1024 -> 512"
void brim_work_setting_change(const brim_work *work, const brim_setting *was,
                              const brim_setting *now, char *out, size_t size);
// Writes "batch_size 512 is the largest that fits", with the reason if the size of the set is the limit.
void brim_work_batch_text(int64_t batch, int64_t set_samples, char out[160]);
// The config's own values as a setting.
brim_setting brim_work_setting(const brim_work *work);
// Index of a knob by name or config key; -1 = the workload has no such knob.
int brim_work_knob(const brim_work *work, const char *name);
// Index of a knob by role; -1 = the workload has no such knob.
int brim_work_knob_as(const brim_work *work, brim_knob_role role);
// The value of the knob with a role; `fallback` if there is none.
int64_t brim_work_value_as(const brim_work *work, const brim_setting *setting, brim_knob_role role,
                           int64_t fallback);
// Value of a knob as text ("256", "true", "bf16").
void brim_knob_format(const brim_knob *knob, int64_t value, char out[32]);
// Makes an axis: the values in `from` (ascending) and the config's own, sorted, without repeats and without
// values above `most`; if all are above, `most` itself. Returns the number of values.
size_t brim_knob_with_own(int64_t own, const int64_t *from, size_t count, int64_t most,
                          int64_t *values);

#endif  // BRIM_WORKLOAD_H_
