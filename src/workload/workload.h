// Workloads: nouns that can be stepped. Every command works on this table, none on one workload.
// Here engine, data and env meet. Callers: run, measure, the public API.
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

// Values index-aligned with the workload's knobs.
typedef struct brim_setting {
  int64_t value[BRIM_KNOB_MAX];
} brim_setting;

struct brim_knob_sweep;

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
  // The knob changes the learning, not only its speed: used only if the user asks for its values.
  bool changes_learning;
  bool multiplies;  // the time of a step grows with it
  int64_t fills;  // with this value the first epoch fills a cache, and others are faster; 0 = none
  const char *list;  // config key with the values of a sweep; NULL = none
  // The option of bench, with its dashes ("--batch-sizes"): sets `list`, or without a list has the values
  // itself, as words. NULL = none.
  const char *option;
  // Writes the values that a sweep tries if `list` is empty, at most BRIM_KNOB_AXIS; returns how many. NULL
  // or 0: only the config's own.
  size_t (*axis)(void *work, const struct brim_knob_sweep *sweep, int64_t *values);
  int order;  // where there is `axis`: of its axes the one with the lowest is chosen first
} brim_knob;

#define BRIM_KNOB_AXIS 16
// The default values of a knob may depend on these.
typedef struct brim_knob_sweep {
  const struct brim_work *work;
  const brim_config *config;
  bool gpu;           // of the device, or of the card
  bool all;           // every knob is to be tried, a few values each
  double card_bytes;  // memory of a card that is not here and that is planned for; 0 = none
  brim_setting most;  // the largest values so far: of the axes chosen before, else the config's own
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
  // If info.interval_unit is set: how many of that unit the run has made, before this step and after it.
  int64_t counted_before, counted;
} brim_step_info;

// Sums of training that can be added up: of two readings, of a checkpoint and what followed it.
#define BRIM_WORK_MAX_SUMS 32
typedef struct brim_work_sums {
  // Their names, in checkpoints "brim.epoch_NAME" and "brim.log_NAME".
  const char *names[BRIM_WORK_MAX_SUMS];
  size_t count;
  const char
      *packed;   // all in one list of this name instead, left out while all are 0; NULL = not so
  size_t least;  // that such a list may have, from an older version, the rest being 0; 0 = `count`
} brim_work_sums;

// Figures since the last read, or of an evaluation.
typedef struct brim_work_metrics {
  const brim_metric_set *set;        // the workload's rows
  double values[BRIM_METRIC_MAX];    // by row; NaN = unknown
  double baseline[BRIM_METRIC_MAX];  // of the baseline, beside those of an evaluation
  double sums[BRIM_WORK_MAX_SUMS];   // of training: what `figures` makes values of
  int64_t samples;                   // that they are of
  int64_t bad;                       // of them, that gave nothing finite
  int64_t skipped;                   // steps without effect, since opening
  bool searching;                    // skipped steps are part of how it works, and mean nothing yet
} brim_work_metrics;

// The throughput in another unit.
#define BRIM_WORK_MAX_RATES 4
typedef struct brim_work_rate {
  const char *unit;   // a message: "agent-samples/s trained"
  double per_sample;  // of it, for each sample
  int row;            // the metric row that has it, from 1: of an epoch, of logged steps; 0 = none
} brim_work_rate;

typedef struct brim_work_info {
  const char *unit;                           // "samples"
  brim_work_rate rates[BRIM_WORK_MAX_RATES];  // shown beside the throughput; none = it says it all
  size_t rate_count;
  // A message: what checkpoint.interval counts, "episodes"; NULL = steps.
  const char *interval_unit;
  int64_t set_samples;        // the training set's, whatever the setting
  int64_t samples_per_epoch;  // of them, at the present setting
  int64_t steps_per_epoch;    // at the present setting
  int64_t epochs;             // of a whole run, where the workload says it; 0 = training.epochs
  int64_t steps;              // likewise: the last epoch may be shorter; 0 = of whole epochs
  // Only whole ones of so many samples are trained on (data.drop_last): smaller micro-batches have to
  // divide it, or an epoch would be another; 0 = there is no such number.
  int64_t whole;
  // An epoch has whole ones of so many samples, the rest of the set is left out; 0 = it has all.
  int64_t multiple;
  int64_t batch,
      accumulation;         // of it: samples of a micro-batch, micro-batches of a step; 0 = none
  const char *accumulates;  // how, where there is a choice: "exact", "plain"; NULL = none
  int64_t eval_samples;     // 0 = nothing to evaluate on
  int64_t eval_batch;       // of it: samples that are evaluated at once; 0 = none
  int64_t eval_size[2];     // height and width of its images where training has others; else 0
  int64_t classes;
  const char *loss;      // that the targets are taken for: "cross_entropy"; NULL = there are none
  int64_t target_dim;    // numbers or labels of a sample, without classes; 0 = none
  double learning_rate;  // the schedule's highest; NaN = there is none
  bool adaptive;         // an optimiser of Adam's kind
  // Where the present setting keeps training samples: none, ram, gpu; mapped: the GPU reads them out
  // of the file, of which locked_bytes (evaluation's too) are page-locked.
  const char *cache;
  bool takes_work;  // the CPU decodes or transforms each training sample
  uint64_t locked_bytes;
  const char
      *not_mapped;  // why the GPU does not read a mapped file; NULL = it does, or there is none
  const char *description;  // "mlp, 1.2 M parameters, 60,000 x 28x28 u8"
  // The parts that fused kernels compute at the present setting: "rollout and update", "update", "no"; NULL =
  // the workload has no fused kernels.
  const char *fused;
  bool watches_gpu;  // how busy the GPU is tells something: it is sampled while training
  bool reads_often;  // reading the figures waits for nothing: they are read after every step
  // Steps without effect in a row after which a run is lost, if they are an epoch at least; 0 = an epoch
  // of which no step had an effect.
  int64_t idle_limit;
  // The baseline, after `baseline` was called: in evaluations, and by the measure of training.
  bool has_baseline;
  int64_t baseline_samples;
  double baseline[BRIM_METRIC_MAX], training_baseline[BRIM_METRIC_MAX];
} brim_work_info;

// Loading since the setting was built, over all threads.
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

//---------------------------------- diagnoses ----------------------------------

// Troubles that a workload watches for while it trains: counted, reported when they happen (at the 1st, 2nd,
// 4th, 8th, ... time) and in log.jsonl as {"event": "anomaly"}.
#define BRIM_WORK_MAX_TROUBLES 8
typedef struct brim_work_trouble_row {
  const char *name;        // "loss_exploded"
  const char *label;       // a message: of its line in the summary, "warning"
  const char *one, *many;  // messages with %lld times and %lld, the first step with it
  bool always;             // each time is another one: reported every time
} brim_work_trouble_row;

typedef struct brim_work_trouble {
  int kind;          // row
  int64_t count;     // samples, steps, or 1
  bool silent;       // part of how it works: counted, not reported
  char text[1536];   // what happened and what to change (base_words.h)
  char advice[768];  // what to change alone (base_words.h), for the log; "" = it is left out there
  struct {
    const char *key;
    double value;
  } fields[2];  // beside it in the log
  size_t field_count;
} brim_work_trouble;

// When a diagnosis looks.
typedef struct brim_work_moment {
  int64_t epoch, step;  // epoch from 1
  double lr;
  const brim_work_metrics *metrics;  // since the last reading, or of an evaluation
  bool evaluated;                    // of an evaluation
  const double *train;  // of an evaluation: the figures of training in the epoch before it
} brim_work_moment;

typedef struct brim_work_diagnosis {
  const brim_work_trouble_row *rows;
  size_t count;  // at most BRIM_WORK_MAX_TROUBLES
  // Writes the troubles of this moment; returns how many.
  size_t (*take)(void *work, const brim_work_moment *at,
                 brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]);
  // At the end of a run: what to change (base_words.h), by how often each was met; leaves "" where nothing
  // is.
  void (*advice)(void *work, const int64_t *counts, double lr, char *out, size_t size);
  // The error of an epoch after which there is nothing to continue with: why, and what to try.
  brim_status (*lost)(void *work, int64_t epoch, double lr);
  // Puts the readings so far into a checkpoint, and takes them back, so that a resumed run reports what an
  // uninterrupted one does. `times` by row: the readings with that trouble. `skipped`: steps skipped before.
  brim_status (*put)(void *work, const int64_t *times, json_t *metadata);
  void (*get)(void *work, const json_t *metadata, int64_t skipped, int64_t *times);
} brim_work_diagnosis;

typedef struct brim_work_context {
  const brim_registry *registry;
  brim_device *device;
  // Of the ranks that the device is one of, for everything besides its exchanges; NULL = there is one. A
  // workload without `ranks` is opened by one rank alone.
  brim_comm *comm;
  // `use` follows and no training: what only a training needs is neither planned nor checked.
  bool evaluates;
} brim_work_context;

// A checkpoint in memory (`background->hold`).
typedef struct brim_work_held {
  void *state;
  brim_status (*write)(void *state, const char *path);
  void (*free)(void *state);
} brim_work_held;

struct brim_safetensors;

// Options that a command has for this workload, each of which sets a config key, and help.
typedef struct brim_work_options {
  const char *command;      // "train", "bench", "eval"
  const brim_option *rows;  // NULL = none
  const char *about;        // a message, paragraphs behind those of the command; NULL = none
  const char *examples;     // likewise: "comment\ncommand\n" pairs
  // One of them whose whole number has to be from `least` to `most`; NULL = none.
  const char *bounded;
  int least, most;
} brim_work_options;

// The page of `brim help NAME`. A part that begins with two blanks stands as it is, any other is a
// message and becomes a paragraph; the config keys of the workload follow.
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
// Abilities that not every workload has. A workload points to a table for each of its abilities; the others
// are NULL. In a table every member is set.

// Loading data: the two halves of a step on their own, to learn which one limits it. Both advance in the
// data.
typedef struct brim_work_loading_table {
  // Takes the batches of one step and computes nothing.
  brim_status (*load_only)(void *work, brim_step_info *out);
  // Makes `steps` steps on what was loaded before, uploading nothing; `ns` is their time alone, until
  // the device is done. The weights are no longer those of a training.
  brim_status (*compute_only)(void *work, int steps, int64_t *ns, brim_step_info *out);
  void (*stats)(void *work, brim_work_loading *out);
} brim_work_loading_table;

struct brim_workload_table;

// Several train at once, each on its part of the data: one training of all where the device is one of
// several ranks, else each its own.
typedef struct brim_work_ranks_table {
  // Before `configure`, and from then on: this is rank `rank` of `world`. Each reads its own part of
  // every epoch and counts on its part of the host's memory. (0, 1) is one alone, as a workload is
  // opened.
  void (*share)(void *work, int rank, int world);
  // Gives back what `configure` built; the next is `configure`, maybe as another rank.
  void (*drop)(void *work);
  // On all ranks before the first one saves: what a checkpoint of this step needs of each.
  brim_status (*give)(void *work, bool weights_only);
  // For commands that decide by the clock what to do next. On the first rank, until `false`: configure, step,
  // metrics, snapshot, restore and the calls of `loading` are made by the others too, which follow.
  void (*lead)(void *work, bool on);
  // On the others: until the first rank ends it.
  brim_status (*follow)(void *work, const struct brim_workload_table *table);
} brim_work_ranks_table;

// Evaluation.
typedef struct brim_work_evaluation_table {
  // BRIM_ESTATE where the config or the data give nothing to evaluate on.
  brim_status (*evaluate)(void *work, brim_work_metrics *out);
  // To evaluate a checkpoint, after `configure`: its weights alone, with `averaged` the averaged ones
  // where it has some. Where training stood, and what else is in it, is left alone.
  brim_status (*use)(void *work, const char *path, bool averaged);
} brim_work_evaluation_table;

// Learning features: one more, expensive evaluation at the end.
typedef struct brim_work_features_table {
  const char *event;  // its name in log.jsonl: {"event": "probe"}
  // A linear classifier on frozen features (metric "probe"). BRIM_EUNSUPPORTED where the config or the
  // data do not ask for it. Training could continue after it.
  brim_status (*probe)(void *work, brim_work_metrics *out);
} brim_work_features_table;

// Learning a policy in an environment.
typedef struct brim_work_policy_table {
  // Evaluates the baseline once, before training begins; `info` and `evaluate` report it. `brim eval` does
  // not call this: its `evaluate` computes the baseline if needed.
  brim_status (*baseline)(void *work);
  bool
      networks;  // it trains networks by an optimizer: the keys of optimizers and batches are its own
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
  double dt;         // seconds of a step; 1 where the environment has no time
  int64_t steps;     // of an episode, at most
  uint64_t seed;     // of its episodes
  char title[96];    // "quadruped, stand"
  char trained[64];  // how long: "400 iterations", translated
  // The metrics that runs of this config log, valid while the replay is open; NULL = metric_set of the table.
  // And a message, the word for a step of a log: "iteration"; NULL = "step".
  const brim_metric_set *metrics;
  const char *step;
  brim_scene_line facts[BRIM_SCENE_MAX_LINES];  // what is replayed
  size_t fact_count;
  // The actors: first the trained policy, then baselines that begin in the same state.
  brim_work_actor actors[BRIM_WORK_MAX_ACTORS];
  size_t actor_count;
} brim_work_replay_info;

// An episode, in the caller's memory.
typedef struct brim_work_recording {
  int64_t capacity;    // in states
  float *frames;       // (capacity, brim_scene_width)
  float *reward;       // (capacity) of the step from each state; the last has none
  int64_t states;      // out: how many there are
  brim_scene_end end;  // out
} brim_work_recording;

typedef struct brim_work_replay_table {
  const char *score;  // the metric that the sum of an episode's rewards is, by key
  // The policy of a checkpoint in the environment of a config. `registry` has those of plug-ins.
  brim_status (*open)(const brim_registry *registry, const brim_config *config, const char *path,
                      void **out);
  void (*close)(void *replay);
  void (*info)(void *replay, brim_work_replay_info *out);
  // More members of the event of --json, such as the task.
  brim_status (*fields)(void *replay, json_t *event);
  // Held-out episode number `episode`, from 0, cut off after `steps`: the one that `brim eval` counts.
  // `actor` of those of `info`.
  brim_status (*record)(void *replay, size_t actor, int32_t episode, int64_t steps,
                        brim_work_recording *out);
} brim_work_replay_table;

// Out of memory: smaller micro-batches, and more of them, make the same step (run_train.c).
typedef struct brim_work_batches_table {
  // Before `plan`, when the caller takes smaller micro-batches than the config asks for where memory is
  // or was short: such a setting stands for the config's.
  void (*allow_smaller)(void *work);
  // Gives up what changes no result, before micro-batches get smaller: the same setting needs less
  // memory afterwards. False when nothing is left to be given up.
  bool (*free_optional)(void *work, const brim_setting *setting);
} brim_work_batches_table;

// Out of memory: the workload knows itself what to make smaller.
typedef struct brim_work_shrink_table {
  // The next setting that needs less memory, which is larger in nothing; false when there is none.
  bool (*shrink)(void *work, brim_setting *setting);
  // Before that: gives up memory that only makes the same setting faster. False when there is none to give
  // up; NULL = never.
  bool (*free_optional)(void *work, const brim_setting *setting);
} brim_work_shrink_table;

// Saving takes long enough to be worth a thread.
typedef struct brim_work_background_table {
  // Copies what `save` would write now, for another thread to write while training continues. Freed before
  // `configure` and `close`.
  brim_status (*hold)(void *work, const json_t *extra, bool weights_only, brim_work_held *out);
} brim_work_background_table;

// Some settings follow from the run where the config leaves them open.
typedef struct brim_work_settings_table {
  // Before the settings of a checkpoint (`was`, by key) are compared with those of the config: those
  // that the config leaves open get the values that they came to.
  void (*resolve)(void *work, const json_t *metadata, json_t *was, json_t *now);
} brim_work_settings_table;

// Text besides rows. Without this table the start of a run shows the data.
typedef struct brim_work_text_table {
  // Writes lines for the start of a run; returns how many.
  size_t (*start_lines)(void *work, brim_work_line *out, size_t most);
  // Sentences below the figures of an evaluation.
  void (*eval_notes)(const brim_work_metrics *metrics, brim_str *out);
} brim_work_text_table;

struct brim_findings;
// A sweep over its settings shows more than times and memory.
typedef struct brim_work_findings_table {
  // Adds the findings about a result (record_findings.h), the most important first.
  void (*find)(const struct brim_findings *of);
} brim_work_findings_table;

struct brim_result;
struct brim_view;
// Tables of its own below those of a sweep.
typedef struct brim_work_views_table {
  bool
      brief;  // they belong in the short form of a sweep too, with the findings of the config's own setting
  // `own` is the config's setting, NULL = unknown; `whole`: also what is there for every sweep. Returns
  // how many.
  size_t (*make)(const struct brim_result *results, size_t count, const brim_setting *own,
                 bool whole, struct brim_view *out);
  // May be NULL. The configs' own settings of two sweeps side by side; returns how many.
  size_t (*compare)(const struct brim_result *a, size_t a_count, const struct brim_result *b,
                    size_t b_count, struct brim_view *out);
} brim_work_views_table;

//---------------------------------- shipped configs ----------------------------------

// The config that suits an environment: `brim train WORKLOAD env=ENV`.
typedef struct brim_work_shipped {
  const char *env, *config;
} brim_work_shipped;

// The start of a run.
typedef struct brim_work_start {
  const char *config;  // a shipped one; NULL = the workload's defaults
  char name[64];       // of a run without one: ENV-WORKLOAD
} brim_work_start;

//---------------------------------- brim init ----------------------------------

// Images to begin with.
typedef struct brim_work_images {
  int64_t height, width;  // of a crop
  bool colour, gpu;       // three channels; a GPU trains
} brim_work_images;

// Their values in a config of `brim init`.
typedef struct brim_work_beginning {
  char model[96], loss[64], optimizer[96], train[320];  // train: the transform
  int64_t epochs;
  const char *why;  // a message: the comment beside the model
} brim_work_beginning;

//---------------------------------- the table ----------------------------------

typedef struct brim_workload_table {
  const char *name;
  // The number of multiprocessors changes no bit: no library chooses algorithms for it.
  bool any_part;
  bool has_targets;  // its outputs are compared with targets: any labelled data can evaluate it
  // Suits images without targets, and says how to begin with them; NULL = it does not.
  void (*begin)(const brim_work_images *images, brim_work_beginning *out);
  const char
      *model;  // the component that it trains where the config names none; NULL = no component
  const char *makes;  // a message: what it trains, "an ars policy"; NULL = a checkpoint of NAME
  const char *length_key;  // the config key that says how long a run is; NULL = training.epochs
  const char
      *without_eval;  // KEY=VALUE of a run without evaluations; NULL = training.eval_interval=0
  const char
      *config;  // the shipped config that its name stands for: `brim train NAME`; NULL = none
  // Shipped configs by environment, for workloads that learn in one; NULL = none.
  const brim_work_shipped *shipped;
  size_t shipped_count;
  const brim_work_options *options;
  size_t option_count;
  const brim_work_topic *topic;        // NULL = none
  const brim_config_section *section;  // its config keys and components; NULL = none
  // Korean for the messages of a workload that main registers.
  const brim_msg_pair *korean;
  size_t korean_count;
  const brim_knob_set *knob_set;  // names of the knobs for people, and their roles; may be NULL
  const brim_metric_set *metric_set;
  // May be NULL: `metric_set`. Where a config decides what else is measured: its rows, which begin with
  // those, as long as the workload is open.
  const brim_metric_set *(*metric_set_of)(void *work);
  // May be NULL: yes. Can a run of this config have values of a row, before its data are known?
  bool (*measures)(const brim_config *config, const char *metric_key);
  const brim_work_sums *sums;
  const brim_work_diagnosis *diagnosis;  // may be NULL: nothing is watched for
  // Opens sources and knows its knobs; allocates nothing that depends on a setting.
  brim_status (*open)(const brim_work_context *context, const brim_config *config, void **work);
  void (*close)(void *work);
  size_t (*knobs)(void *work, const brim_knob **out);
  // Do the values of a setting go together? A sweep leaves out those that do not.
  bool (*sensible)(void *work, const brim_setting *setting);
  brim_status (*plan)(void *work, const brim_setting *setting, brim_plan *out);
  // Before `plan` and `configure`, when the weights of a checkpoint follow: what training would start
  // from is not read. Where `load` follows, `metadata` is the checkpoint's, and its run's choices are
  // not made again; NULL where `use` does.
  void (*resuming)(void *work, const json_t *metadata);
  // (Re)build for a setting: net and loader. Weights start from the seed, or from the file the
  // config names (training.weights); cursor at 0.
  brim_status (*configure)(void *work, const brim_setting *setting);
  void (*info)(void *work, brim_work_info *out);
  brim_status (*step)(void *work, const brim_spans *spans, brim_step_info *out);
  // From then on (until NULL is given) `step`, `evaluate` and `probe` may end with BRIM_EINTERRUPTED
  // when *stop is not 0, and the state is the one before.
  void (*stops)(void *work, const volatile sig_atomic_t *stop);
  brim_status (*metrics)(void *work, bool reset, brim_work_metrics *out);
  // The values that sums stand for; those of the last step alone are left as they are.
  void (*figures)(void *work, const double *sums, double values[BRIM_METRIC_MAX]);
  // Position, weights, optimiser; `extra` (object of strings, may be NULL) goes along in the file.
  brim_status (*save)(void *work, const char *path, const json_t *extra, bool weights_only);
  brim_status (*load)(void *work, const char *path, json_t **extra);
  // May be NULL. Is a checkpoint that does not name its workload one of this?
  bool (*owns)(const struct brim_safetensors *file);
  // Remember and restore the state, so that a trial leaves no trace.
  brim_status (*snapshot)(void *work);
  brim_status (*restore)(void *work);
  // Abilities; NULL = it has not.
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

// NULL with a detail when unknown.
const brim_workload_table *brim_workload_find(const char *name);
// All there are, one by one; NULL after the last.
const brim_workload_table *brim_workload_at(size_t index);
// Registers a program's own workload with its keys and messages. Call it from main, before the first config
// is loaded and before threads start.
brim_status brim_workload_register(const brim_workload_table *table);

// The start of a run whose override (`key=value` of the command line) names an environment: the shipped
// config of that environment, or defaults and a name after both. False = no override names one.
bool brim_workload_start(const brim_workload_table *table, const char *override,
                         brim_work_start *out);

// A workload object: table and state together.
typedef struct brim_work {
  const brim_workload_table *table;
  void *state;
  const brim_knob *knobs;
  size_t knob_count;
  const brim_metric_set *metrics;  // what it measures
  brim_work_context context;
} brim_work;

// The device spec for brim_device_open, from the keys `device` and `backend`; BRIM_EUNSUPPORTED for a list of
// devices.
brim_status brim_work_device_spec(const brim_config *config, const char **out);
// The device specs of a list, one by one; without a list there is one device.
size_t brim_work_device_count(const brim_config *config);
brim_status brim_work_device_at(const brim_config *config, size_t index, const char **out);
// How it is opened: threads, workspace limit, determinism, choice of algorithms and where choices
// are remembered ($XDG_CACHE_HOME/brim or ~/.cache/brim).
brim_status brim_work_device_options(const brim_config *config, brim_device_options *out);
// The folder of remembered choices and ceilings: $XDG_CACHE_HOME/brim, else ~/.cache/brim; "" if neither is
// set or the path is too long.
void brim_work_cache_folder(char *out, size_t size);
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
// `evaluation`'s members; BRIM_ESTATE of a workload without.
brim_status brim_work_evaluate(const brim_work *work, brim_work_metrics *out);
brim_status brim_work_use(const brim_work *work, const char *path, bool averaged);
// Before `configure`, when training continues from a checkpoint: the device takes over the
// algorithms chosen when it was written, so that none is chosen again. Those of another device are
// left alone; a text that does not fit is a warning. Fails only when the file cannot be read.
brim_status brim_work_take_algorithms(brim_work *work, const char *path);
// Checks that a plan fits in free memory, or in `limit` bytes if that is less (0 = no limit). If the device
// is the host, host and device bytes count together. BRIM_EOOM names the bytes needed, the bytes free, and
// the largest batch_size that fits and that the data fills.
brim_status brim_work_check_fit(const brim_work *work, const brim_setting *setting,
                                const brim_plan *plan, uint64_t limit);
// The same check without searching for a batch_size that fits.
bool brim_work_fits(const brim_work *work, const brim_plan *plan, uint64_t limit);
// The metadata of a checkpoint; a new reference.
brim_status brim_work_metadata(const char *path, json_t **out);
// The largest batch_size below the setting's own whose plan needs at most `limit` bytes and of which a
// step, with what it accumulates, is no more than the training set, found by bisection over plans; 0
// when none does or there is no such knob. *set_samples (may be NULL) gets the size of the set where
// that, not memory, is what ends it; else 0.
int64_t brim_work_largest_batch(const brim_work *work, const brim_setting *setting, uint64_t limit,
                                int64_t *set_samples);
// "dir_chunk 64 -> 8 would fit", or that nothing would.
void brim_work_shrink_text(const brim_work *work, const brim_setting *setting, uint64_t limit,
                           char *out, size_t size);
// The differences of two settings: "dir_chunk 64 -> 16, num_envs 1024 -> 512"
void brim_work_setting_change(const brim_work *work, const brim_setting *was,
                              const brim_setting *now, char *out, size_t size);
// "batch_size 512 is the largest that fits", and why it is no larger where that is the set's size.
void brim_work_batch_text(int64_t batch, int64_t set_samples, char out[160]);
// The config's own values as a setting.
brim_setting brim_work_setting(const brim_work *work);
// Index of a knob by name or config key; -1 when it has none.
int brim_work_knob(const brim_work *work, const char *name);
// The same by role.
int brim_work_knob_as(const brim_work *work, brim_knob_role role);
// The value of the knob in a role; `fallback` when there is none.
int64_t brim_work_value_as(const brim_work *work, const brim_setting *setting, brim_knob_role role,
                           int64_t fallback);
// Value of a knob as text ("256", "true", "bf16").
void brim_knob_format(const brim_knob *knob, int64_t value, char out[32]);
// For an axis: `from` (ascending) with the config's own value in its place, each once and none above
// `most`; `most` itself where all are. Returns how many.
size_t brim_knob_with_own(int64_t own, const int64_t *from, size_t count, int64_t most,
                          int64_t *values);

#endif  // BRIM_WORKLOAD_H_
