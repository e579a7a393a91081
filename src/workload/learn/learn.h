// Training a network on a data set: what the workloads supervised and contrastive share. One state,
// brim_learn, has the data, the network's spec without the values of a setting, the knobs, and, once a
// setting is configured, the network with its loaders and its position in the data. learn.c reads the config,
// plans settings, builds them, steps, measures, saves and resumes; learn_data.c opens the sets. A workload
// (learn_supervised.c, learn_contrastive.c) adds a brim_learn_kind, its rows, keys and evaluation.
#ifndef BRIM_LEARN_LEARN_H_
#define BRIM_LEARN_LEARN_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload_int.h"

//---------------------------------- data sets (learn_data.c) ----------------------------------

// The words of data.cache, in this order.
typedef enum brim_cache {
  BRIM_CACHE_NONE,
  BRIM_CACHE_RAM,
  BRIM_CACHE_GPU,
  BRIM_CACHE_AUTO,
  BRIM_CACHE_MAPPED,  // not a word of data.cache: the GPU reads the mapped file itself (from none or auto)
  BRIM_CACHE_COUNT
} brim_cache;

extern const char *const brim_cache_choices[];  // NULL-terminated
// The plan's row of samples that are kept in host memory.
#define BRIM_CACHE_ROW BRIM_N_("dataset cache")
// True for GPU and MAPPED: no worker loads the samples.
bool brim_cache_needs_no_workers(brim_cache cache);
// The default of data.num_workers: between a quarter and half of the cores.
int64_t brim_work_default_workers(void);

// Where the samples of each set are kept under one setting; never AUTO.
typedef struct brim_work_caching {
  brim_cache train, eval;
  // Why the GPU does not read the training set's mapped file; "" = it does, or there is no such file.
  char why[256];
} brim_work_caching;

// Tells if the device can read a set's mapped file.
typedef struct brim_work_mapped {
  uint64_t bytes;  // bytes of the file to page-lock; 0 = the GPU cannot read the file
  char why[256];   // why it cannot; "" = it can, or there is no such file
} brim_work_mapped;

typedef struct brim_work_set {
  brim_source *source;          // NULL = the set does not exist
  brim_transforms *transforms;  // NULL = samples are not transformed
  brim_resident
      *resident;  // samples on the device, kept for the next setting that uses them; NULL = none
  brim_work_mapped mapped;
} brim_work_set;

typedef struct brim_work_data {
  brim_work_context context;
  const brim_config *config;       // borrowed; outlives the data
  brim_arena *arena;               // owns copies of the config's components
  uint64_t seed;                   // seed of shares and transforms
  brim_work_set train, eval;       // eval without a source = nothing to evaluate on
  const char *const *class_names;  // names of the training set's labels; NULL = none

  // Arguments with which the sets were opened, for brim_work_data_reopen:
  const brim_component *component;
  double share;    // the share of the training set that evaluation uses
  bool any_split;  // as in brim_work_data_open_eval

  // Free memory when the workload was opened. Every setting is compared with the same numbers. Ranks divide
  // the host's memory among them.
  uint64_t device_bytes, host_bytes;
  brim_work_caching caching;  // the present setting's
  // The decision of the last plan, and its setting: configuring the same setting does not decide again.
  brim_work_caching planned;
  brim_setting planned_for;
  bool has_planned;
  bool reported_why;  // caching.why was reported
} brim_work_data;

brim_status brim_work_data_init(brim_work_data *d, const brim_work_context *context,
                                const brim_config *config);
void brim_work_data_deinit(brim_work_data *d);

// The next functions open the data, in this order. First, open the whole training set.
brim_status brim_work_data_open_train(brim_work_data *d);
// data.val_fraction, or 0 if the config names a validation set.
double brim_work_val_fraction(const brim_config *config);
// Second, keep the training set without `share`, up to data.limit, and make its transforms.
brim_status brim_work_data_take_train(brim_work_data *d, double share);
// Third, open the evaluation set and make its transforms: dataset.val, else `share` of the training set, else
// dataset.test, else the val split of the component for all sets. `any_split`: use that split even if the
// component names another one for training. If the split is missing, there is no evaluation set, *missing is
// true, and the status detail says why.
brim_status brim_work_data_open_eval(brim_work_data *d, bool any_split, bool *missing);
// Warns of a missing evaluation set and clears the detail.
void brim_work_warn_no_eval(void);
// Opens both sets again, without the samples that were kept in memory.
brim_status brim_work_data_reopen(brim_work_data *d);
// Checks that the samples and targets of both sets have the same shape.
brim_status brim_work_data_check(const brim_work_data *d);
// Fails before a run begins if samples are known to be broken. `limit` as in data.limit.
brim_status brim_work_data_check_readable(const brim_work_data *d, uint64_t limit);

// The number of views that the stages of the training pipeline make of a sample.
int32_t brim_work_views(const brim_config *config);
// The shape of the samples that reach the network.
const brim_source_info *brim_work_set_info(const brim_work_set *set);
// Sets spec->eval_dim if evaluation images differ in size from training images; warns if they are smaller.
void brim_work_set_eval_size(const brim_work_data *d, brim_net_spec *spec);
// Opens a source at the config's data.path.
brim_status brim_work_open_source(const brim_work_data *d, const brim_component *component,
                                  const char *split, brim_source **out);
// Makes the transforms of a source; NULL if there is nothing to do.
brim_status brim_work_make_transforms(const brim_pipeline *pipeline, const brim_source *source,
                                      uint64_t seed, bool random, brim_transforms **out);

// Components and pipelines of a config; learn_trained.c uses these too.

// Copies a component with one argument more, or, with `value` NULL, without the arguments of that name.
brim_status brim_work_with_argument(brim_arena *arena, const brim_component **component,
                                    const char *name, const brim_value *value);
// Copies a component of hdf5 that may read data in other files.
brim_status brim_work_allow_external(brim_arena *arena, const brim_component **component);
// Copies a component of hdf5 or numpy and adds data.inputs (and data.targets), unless it has its own.
brim_status brim_work_add_names(const brim_config *config, brim_arena *arena,
                                const brim_component **component, bool targets);
// The pipeline of evaluation: transform.val, else transform.test, as written; else the stages without
// randomness of a pipeline given for all. NULL = nothing. *random: all stages are used, random ones too.
const brim_pipeline *brim_work_eval_pipeline(const brim_config *config, bool *random);
// True if evaluation may have images of another size than training.
bool brim_work_any_size(const brim_config *config);

//---------------------------------- metrics and troubles (learn_watch.c) ----------------------------------
// The watch reports losses and gradients that are not finite or that suddenly grow many times over. It checks
// every reading of the device's sums and asks nothing else of the device.

// The first rows of metrics of both workloads, and their sums.
enum {
  BRIM_NET_LOSS,
  BRIM_NET_ACCURACY,
  BRIM_NET_GRAD_NORM,
  BRIM_NET_GRAD_NORM_MAX,
  BRIM_NET_LOSS_SCALE,
  BRIM_NET_ROWS
};
enum { BRIM_NET_SUM_LOSS, BRIM_NET_SUM_CORRECT, BRIM_NET_SUM_ROWS, BRIM_NET_SUMS };
extern const brim_work_sums brim_net_work_sums;

enum {
  BRIM_TROUBLE_LOSS_NOT_FINITE,
  BRIM_TROUBLE_GRADIENT_NOT_FINITE,
  BRIM_TROUBLE_LOSS_EXPLODED,
  BRIM_TROUBLE_GRADIENT_EXPLODED,
  BRIM_NET_TROUBLES
};

// The last readings of a figure, for their median.
enum { BRIM_WATCH_WINDOW = 64 };
typedef struct brim_watch_window {
  double values[BRIM_WATCH_WINDOW];
  int64_t count;  // number of all readings so far
  double first;
} brim_watch_window;

typedef struct brim_net_watch {
  bool looked;    // the training set was searched for values that are not finite
  char odd[320];  // the first sample with such values: "x.h5[5]: the input holds ..."; "" = none
  uint64_t odd_count, odd_of;  // samples with such values; samples searched
  brim_watch_window loss, norm;
  int64_t skipped;  // skipped steps at the last reading
  bool scaled;      // fp16: skipped steps are expected, since they set the loss scale
} brim_net_watch;

//---------------------------------- the state ----------------------------------

// Knobs, in table order.
enum {
  BRIM_LEARN_BATCH,
  BRIM_LEARN_WORKERS,
  BRIM_LEARN_PRECISION,
  BRIM_LEARN_PIN,
  BRIM_LEARN_PREFETCH,
  BRIM_LEARN_ACCUMULATION,
  BRIM_LEARN_COMPILE,
  BRIM_LEARN_CHECKPOINTING,
  BRIM_LEARN_CACHE,
  BRIM_LEARN_THREADS,
  BRIM_LEARN_KNOBS
};
extern const brim_knob_set brim_learn_knob_set;

// Micro-batches of the config, and how they may shrink if memory runs out.
typedef struct brim_batching {
  int64_t batch, accumulation;  // the config's values
  bool allow_smaller;           // the config's micro-batches may be split into smaller ones
  bool small_eval;              // evaluation batches are no larger than training's
} brim_batching;

// The config with the values of a setting.
typedef struct brim_applied {
  brim_net_spec spec;
  brim_loader_options train, eval;
  int64_t batch;  // samples of a micro-batch on all ranks; spec has this rank's
} brim_applied;

// Chooses the negatives of a loss that compares samples (ntxent) under gradient accumulation: the samples of the
// micro-batch (plain), or of the whole step (exact), which computes each micro-batch twice.
typedef struct brim_pairs {
  // contrastive.accumulation
  enum { BRIM_ACCUMULATION_PLAIN, BRIM_ACCUMULATION_EXACT, BRIM_ACCUMULATION_AUTO } accumulation;
  double
      exact_cost;  // extra cost of exact as a share; NaN = not planned yet, infinite = impossible
  char why_plain[256];  // why exact is impossible
  // the choice in the checkpoint that training resumes from; `auto` keeps it
  enum { BRIM_CHOSEN_NOT, BRIM_CHOSEN_PLAIN, BRIM_CHOSEN_EXACT } chosen;
  bool reported;
  int64_t warned;  // size of the micro-batch for which fewer negatives were last warned of
} brim_pairs;

// The loss for a config that names none: `loss` points to `argument`.
typedef struct brim_usual {
  brim_component loss;
  brim_argument argument;
} brim_usual;

struct brim_learn;

// The part in which a workload differs from the others. Optional members may be NULL.
typedef struct brim_learn_kind {
  const char *name;                   // name of the workload, also in checkpoints
  const brim_metric_set *metric_set;  // begins with the rows BRIM_NET_*
  // Opens the sets, chooses the loss and calls brim_learn_set_input.
  brim_status (*open)(struct brim_learn *w);
  // Sets out->train.multiple: the samples of an epoch of the loader are a multiple of it.
  void (*apply)(const struct brim_learn *w, brim_applied *out);
  // Fills in the members of `info` that only the workload knows.
  void (*info)(const struct brim_learn *w, brim_work_info *out);
  // (optional) A third set beside those of training and evaluation: `plan` adds its rows, `check_readable` checks it,
  // `build` makes its loader.
  brim_status (*plan)(const struct brim_learn *w, const brim_work_caching *caching,
                      const brim_applied *a, brim_plan *plan);
  brim_status (*check_readable)(const struct brim_learn *w);
  brim_status (*build)(struct brim_learn *w, const brim_applied *a);
  void (*drop)(struct brim_learn *w);   // undoes `build`
  void (*close)(struct brim_learn *w);  // undoes `open`
} brim_learn_kind;

// The state that both workloads share; it is the first member of each workload's state.
typedef struct brim_learn {
  const brim_learn_kind *kind;
  brim_device *device;
  brim_comm *comm;  // NULL = one rank
  int rank, ranks;
  bool leads, follows;                // rank 0 leads: it broadcasts calls; the others repeat them
  const volatile sig_atomic_t *stop;  // NULL = never stop

  // From the config:
  brim_work_data data;
  brim_net_spec spec;  // without the values of a setting
  brim_usual usual;
  brim_work_optimizer optimizer;
  brim_loader_options loader;  // without the values of a setting
  brim_knob knobs[BRIM_LEARN_KNOBS];
  brim_batching batching;
  brim_pairs pairs;
  brim_net_watch watch;
  bool counts;  // outputs are right or wrong, so there is an accuracy
  const char
      *weights;  // file of first weights, borrowed from the config; NULL = start from the seed
  bool reported_reinit;  // a message has said that the file lacks the last layer
  int64_t
      recalibrate_batches;  // training.ema_batches: batches for the average's batch-norm statistics
  char description[160];

  // The present setting:
  brim_net *net;
  brim_loader *train_loader, *eval_loader;  // eval_loader NULL = nothing to evaluate on
  brim_schedule schedule;
  // batch and epoch_samples are totals of all ranks; eval_batch is this rank's. accumulation: micro-batches per step,
  // the same on every rank.
  int64_t batch, eval_batch, accumulation, epoch_samples;
  bool exact;  // the loss compares the samples of all micro-batches of a step
  brim_precision precision;
  bool mapped_rows;     // the device reads untransformed samples from a mapped file
  bool built, rebuilt;  // a setting was built; another setting was built before it

  // Position:
  int64_t step, epoch, position;  // position: samples of this epoch already used
  brim_net_metrics carried;       // training sums set aside while evaluating
  struct {
    int64_t step, epoch, position;
    brim_net_metrics carried;
    brim_net_sums sums;
  } saved;        // the snapshot
  double *given;  // sums of all ranks at `given_step`, one rank after the other
  int64_t given_step;
  int64_t recalibrated;  // the step at which the average's statistics were recalibrated; -1 = never
  brim_loader_stats recalibrate_reading;  // the training loader's work for recalibration
  // With several ranks: samples that any rank left out of training, as of the last metrics.
  int64_t left_out, left_out_reads;
  char first_left_out[256];
} brim_learn;

//---------------------------------- learn.c ----------------------------------

// brim_workload_table.open of a kind whose state has `size` bytes.
brim_status brim_learn_open(const brim_learn_kind *kind, size_t size,
                            const brim_work_context *context, const brim_config *config,
                            void **work);
// Members of the brim_workload_table of every kind.
void brim_learn_close(void *work);
size_t brim_learn_knobs(void *work, const brim_knob **out);
bool brim_learn_sensible(void *work, const brim_setting *setting);
brim_status brim_learn_plan(void *work, const brim_setting *setting, brim_plan *out);
void brim_learn_resuming(void *work, const json_t *metadata);
brim_status brim_learn_configure(void *work, const brim_setting *setting);
void brim_learn_info(void *work, brim_work_info *out);
extern const brim_work_batches_table brim_learn_batches;
// True if the config's micro-batches were split into smaller ones for lack of memory.
bool brim_batching_is_smaller(const brim_batching *batching, const brim_net_spec *spec);

brim_status brim_learn_step(void *work, const brim_spans *spans, brim_step_info *out);
void brim_learn_stops(void *work, const volatile sig_atomic_t *stop);
brim_status brim_learn_metrics(void *work, bool reset, brim_work_metrics *out);
void brim_learn_figures(void *work, const double *sums, double *values);
brim_status brim_learn_snapshot(void *work);
brim_status brim_learn_restore(void *work);
extern const brim_work_loading_table brim_learn_loading;
extern const brim_work_ranks_table brim_learn_ranks;

// Computes means from sums. A loss that is not finite is not in the sum. Training then reports an unknown mean,
// because the mean of the other losses would look healthy; an evaluation (`evaluated`) reports that mean.
void brim_learn_means(const brim_learn *w, const brim_net_metrics *sum, bool evaluated,
                      brim_work_metrics *out);
// Runs `pass` over the evaluation data and returns its sums; training's sums do not change. BRIM_ESTATE without
// evaluation data.
brim_status brim_learn_evaluate(brim_learn *w, brim_status (*pass)(brim_learn *w),
                                brim_net_metrics *sums);
// Calls `fn` for every batch of a loader once, in order.
typedef brim_status (*brim_batch_fn)(void *ctx, const brim_batch *batch, int64_t first);
brim_status brim_learn_each(const brim_learn *w, brim_loader *loader, brim_batch_fn fn, void *ctx);
// BRIM_EINTERRUPTED if a stop was requested. Called between batches outside of steps.
brim_status brim_learn_check_stop(const brim_learn *w);
brim_status brim_learn_save(void *work, const char *path, const json_t *extra, bool weights_only);
brim_status brim_learn_load(void *work, const char *path, json_t **extra);
brim_status brim_learn_use(void *work, const char *path, bool averaged);
extern const brim_work_background_table brim_learn_background;

// Sets the network's input for the samples of a source: shape, type, scale and shift.
void brim_learn_input_of(const brim_source_info *info, brim_net_spec *spec);
// Sets input, classes and targets of w->spec from the opened sets.
void brim_learn_set_input(brim_learn *w);
// The usual loss for a config that names none, with the arguments that keys set.
void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out);
// Sets w->spec.loss: the config's, or the usual one for the targets and views. BRIM_EINVAL if it does not
// suit views, model or targets.
brim_status brim_learn_choose_loss(brim_learn *w);

//---------------------------------- learn_findings.c, learn_watch.c ----------------------------------

extern const brim_work_diagnosis brim_learn_diagnosis;
extern const brim_work_findings_table brim_learn_findings;

#endif  // BRIM_LEARN_LEARN_H_
