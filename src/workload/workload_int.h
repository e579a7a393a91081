// Inside the workload room: the tables, and the state of the supervised workload, which its files share
// (supervised/ reads the config, steps and saves; workload_data.c opens sources, workload_cache.c
// decides where samples are kept).
#ifndef BRIM_WORKLOAD_INT_H_
#define BRIM_WORKLOAD_INT_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"
#include "workload/workload_watch.h"

extern const brim_workload_table brim_workload_supervised;
// Two views of each sample: the supervised workload's state and steps, evaluated by neighbours.
extern const brim_workload_table brim_workload_contrastive;
// Augmented random search over rollouts of an environment (ars_int.h).
extern const brim_workload_table brim_workload_ars;

// What they measure (supervised_rows.c, contrastive_rows.c): the rows of a network's training, and of features.
enum {
  BRIM_CONTRASTIVE_EVAL_LOSS = BRIM_NET_ROWS,
  BRIM_CONTRASTIVE_KNN,
  BRIM_CONTRASTIVE_PROBE,
  BRIM_CONTRASTIVE_PROBE_LOSS,
};
extern const brim_metric_set brim_supervised_set, brim_contrastive_set;

// Knobs of the supervised workload, in table order.
enum {
  BRIM_SUPERVISED_BATCH,
  BRIM_SUPERVISED_WORKERS,
  BRIM_SUPERVISED_PRECISION,
  BRIM_SUPERVISED_PIN,
  BRIM_SUPERVISED_PREFETCH,
  BRIM_SUPERVISED_ACCUMULATION,
  BRIM_SUPERVISED_COMPILE,
  BRIM_SUPERVISED_CHECKPOINTING,
  BRIM_SUPERVISED_CACHE,
  BRIM_SUPERVISED_KNOBS
};

#define BRIM_SUPERVISED_MAX_ARGS 16

// data.cache's words, in this order.
typedef enum brim_cache {
  BRIM_CACHE_NONE,
  BRIM_CACHE_RAM,
  BRIM_CACHE_GPU,
  BRIM_CACHE_AUTO,
  BRIM_CACHE_MAPPED,  // no word of data.cache: the GPU reads the mapped file, where none or auto lead
  BRIM_CACHE_COUNT
} brim_cache;
extern const char *const brim_cache_choices[];             // NULL-terminated
const char *brim_supervised_cache_name(brim_cache cache);  // "mapped"

// Where the samples of each set are kept under one setting; never AUTO.
typedef struct brim_supervised_caching {
  brim_cache train, eval;
  char why
      [256];  // the GPU does not read the training set's mapped file; "" = it does, or there is none
} brim_supervised_caching;

// What may become of a set whose samples lie in a mapped file.
typedef struct brim_supervised_mapped {
  uint64_t bytes;  // to be page-locked; 0 = the GPU does not read it
  char why[256];   // "" = there is no such file, or nothing speaks against it
} brim_supervised_mapped;

// What the contrastive workload has besides (contrastive.c, contrastive_probe.c).
typedef struct brim_contrastive {
  bool on;
  brim_source *bank_source;  // labelled, where the training set is not; NULL = the training set
  brim_transforms *bank_transforms;
  brim_loader *bank_loader;
  int64_t classes, probe_epochs;
  brim_neighbours neighbours;  // bank 0 = nothing is evaluated
  // contrastive.accumulation, and what `auto` found: by how much exact costs more, once planned
  enum { BRIM_ACCUMULATION_PLAIN, BRIM_ACCUMULATION_EXACT, BRIM_ACCUMULATION_AUTO } accumulation;
  double exact_cost;    // NaN = not planned yet; infinite = it cannot be
  char why_plain[256];  // why it cannot be
  // by the checkpoint that is gone on from: `auto` decides nothing anew
  enum { BRIM_DECIDED_NOT, BRIM_DECIDED_PLAIN, BRIM_DECIDED_EXACT } decided;
  bool said;
  int64_t warned;  // the smaller micro-batch of which it was said that its negatives are fewer
} brim_contrastive;

// A loss that the config does not name, with what its keys say of it: `loss` points to `argument`.
typedef struct brim_usual {
  brim_component loss;
  brim_argument argument;
} brim_usual;
void brim_usual_loss(const brim_config *config, const char *name, brim_usual *out);

typedef struct brim_supervised {
  brim_work_context context;
  const brim_config *config;                            // borrowed; outlives the workload
  brim_arena *arena;                                    // what was made of the config's components
  brim_source *train_source, *eval_source;              // eval_source NULL = nothing to evaluate on
  brim_transforms *train_transforms, *eval_transforms;  // NULL = samples as they are
  brim_resident *train_resident, *eval_resident;  // kept over settings that use them; NULL = none
  brim_contrastive contrastive;
  brim_net_watch watch;
  bool said_bad_eval;     // that evaluation samples gave no finite loss
  brim_usual usual;       // the loss, where the config has none
  int32_t views;          // of a training sample; 2 for ntxent
  uint64_t device_bytes;  // what was free when the workload was opened, so that every setting is
  uint64_t host_bytes;    // measured by the same; of the host's each rank has its part (`share`)
  brim_supervised_mapped train_mapped, eval_mapped;
  bool said_why;    // the GPU does not read a mapped file
  bool adapts;      // smaller micro-batches than the config's are made of them, for lack of memory
  bool small_eval;  // likewise evaluation batches are no larger than training's
  brim_knob knobs[BRIM_SUPERVISED_KNOBS];
  brim_net_spec spec;        // without the setting's part
  brim_component optimizer;  // the config's, with training.* keys laid over it
  brim_argument optimizer_args[BRIM_SUPERVISED_MAX_ARGS];
  brim_loader_options loader;  // likewise without the setting's part
  double base_lr;
  const char *weights;  // file to start from, borrowed from the config; NULL = from the seed
  bool said_anew;       // that the last layer is not in it, once
  char description[160];
  const char *const *class_names;  // of the training set's labels; NULL = it has none

  // what was planned last, so that configuring it decides nothing anew
  brim_setting planned;
  brim_supervised_caching planned_caching;
  bool has_planned;

  // of the present setting
  brim_supervised_caching caching;
  brim_net *net;
  brim_loader *train_loader, *eval_loader;
  brim_schedule schedule;
  int64_t batch, eval_batch, accumulation, epoch_samples;
  bool exact;  // the loss is that of all micro-batches of a step
  brim_precision precision;

  // position
  int64_t step, epoch, position;      // position: samples of this epoch already used
  const volatile sig_atomic_t *stop;  // NULL = nobody asks
  bool built, rebuilt;                // a setting stood before; another stood before this one
  int64_t saved_step, saved_epoch, saved_position;
  brim_net_metrics saved_carried;
  brim_net_sums saved_sums;
  brim_net_metrics carried;  // training sums set aside while evaluating
  // Batches that the average takes its batch norm statistics from (training.ema_batches), and the step
  // whose average has them; -1 = none has.
  int64_t settle_batches, settled;
  brim_loader_stats settle_reading;  // by the training set's loader, for that alone
} brim_supervised;

// Whether the device multiplies matrices of this type.
bool brim_supervised_device_has(brim_device *device, brim_dtype dtype);
// Fill in everything that does not depend on a setting.
brim_status brim_supervised_setup(brim_supervised *w);
// Opens the sources and makes their transforms; sets views and the loss. Open again, the sources
// are as at first: nothing is kept of them.
brim_status brim_supervised_open_data(brim_supervised *w);
brim_status brim_supervised_reopen_sources(brim_supervised *w);
// A copy of a component with one argument more, or, where `value` is NULL, without those of this
// name; and one with data.inputs (and data.targets) where it is hdf5 and has none of its own.
brim_status brim_supervised_with_argument(brim_arena *arena, const brim_component **component,
                                          const char *name, const brim_value *value);
// One of hdf5 that may read data in other files.
brim_status brim_supervised_allow_external(brim_arena *arena, const brim_component **component);
brim_status brim_supervised_add_names(const brim_config *config, brim_arena *arena,
                                      const brim_component **component, bool targets);
// What evaluation does to its samples: transform.val, else transform.test, each as it stands; else,
// of a pipeline given for all, what does not draw. NULL = nothing.
const brim_pipeline *brim_supervised_eval_pipeline(const brim_config *config, bool *random);
// The network's input for samples like these: shape, type, scale and shift.
void brim_supervised_set_input(const brim_source_info *info, brim_net_spec *spec);
// The shape of the samples that reach the network.
const brim_source_info *brim_supervised_train_info(const brim_supervised *w);
// Whether evaluation may have images of another size than training, and which then.
bool brim_supervised_any_size(const brim_config *config);
void brim_supervised_set_eval(const brim_supervised *w, brim_net_spec *spec);
// The default of data.num_workers: between a quarter and half of the cores.
int64_t brim_supervised_default_workers(void);

// Finds out whether the GPU can read the sources' mapped files.
void brim_supervised_probe_mapped(brim_supervised *w);
// Device bytes that data.cache=gpu takes for certain, before anything else is planned.
uint64_t brim_supervised_asked_bytes(const brim_supervised *w, const brim_setting *setting);
// Where samples are kept under a setting whose network is planned in `plan`; an error says why what
// was asked for cannot be.
brim_status brim_supervised_choose_cache(const brim_supervised *w, const brim_setting *setting,
                                         const brim_plan *plan, brim_supervised_caching *out);
// The network alone under a setting, before any data.
brim_status brim_supervised_plan_net(brim_supervised *w, const brim_setting *setting,
                                     brim_plan *out);
// Rows of the loaders and of what is kept.
brim_status brim_supervised_plan_data(const brim_supervised *w,
                                      const brim_supervised_caching *caching,
                                      const brim_loader_options *train,
                                      const brim_loader_options *eval, brim_plan *plan);
// Make it so: sources kept in memory, resident sets made or given back.
brim_status brim_supervised_keep(brim_supervised *w, const brim_supervised_caching *caching);

// contrastive.c
// The keys of `contrastive`; after the sources are open.
brim_status brim_contrastive_setup(brim_supervised *w);
// The labelled set whose features vote, and its transforms (once eval_source is there).
brim_status brim_contrastive_open_bank(brim_supervised *w, const brim_component *train);
brim_source *brim_contrastive_bank(const brim_supervised *w);
// Whether the loss of a step is taken over all its micro-batches; planned where `auto` has to know.
brim_status brim_contrastive_choose(brim_supervised *w, brim_net_spec *spec);
bool brim_contrastive_sensible(void *work, const brim_setting *setting);
// What a sample's negatives are, once; where too little memory made them fewer, a warning.
void brim_contrastive_tell(brim_supervised *w, const brim_net_spec *spec);
// The same choice to and from a checkpoint.
brim_status brim_contrastive_put_choice(const brim_supervised *w, json_t *metadata);
void brim_contrastive_take_choice(void *work, const json_t *metadata);
brim_status brim_contrastive_plan_bank(const brim_supervised *w,
                                       const brim_supervised_caching *caching,
                                       const brim_loader_options *train,
                                       const brim_loader_options *eval, brim_plan *plan);
brim_status brim_contrastive_make_loader(brim_supervised *w, const brim_loader_options *train,
                                         const brim_loader_options *eval);
brim_status brim_contrastive_judge(brim_supervised *w);
// What its evaluation found.
void brim_contrastive_figures(const brim_net_metrics *sums, brim_work_metrics *out);
void brim_contrastive_close(brim_supervised *w);
// Every batch of a loader once, in order.
typedef brim_status (*brim_batch_fn)(void *ctx, const brim_batch *batch, int64_t first);
brim_status brim_contrastive_each(const brim_supervised *w, brim_loader *loader, brim_batch_fn fn,
                                  void *ctx);
// BRIM_EINTERRUPTED when a stop was asked for; between the batches of what is not a step.
brim_status brim_supervised_go_on(const brim_supervised *w);
// The averaged weights get batch norm statistics of their own, once a step, before they are judged or
// left as the model. Nothing where there is no average, or none of a network with batch norm. `stops`:
// BRIM_EINTERRUPTED as above.
brim_status brim_supervised_settle(brim_supervised *w, bool stops);
brim_status brim_contrastive_probe(void *work, brim_work_metrics *out);  // contrastive_probe.c

// A pipeline for a source; NULL where there is nothing to do (workload_data.c).
brim_status brim_supervised_make_transforms(const brim_supervised *w, const brim_pipeline *pipeline,
                                            const brim_source *source, bool random,
                                            brim_transforms **out);
brim_status brim_supervised_open_source(const brim_supervised *w, const brim_component *component,
                                        const char *split, brim_source **out);

// Checkpoints (supervised_save.c); the table's members.
brim_status brim_supervised_save(void *work, const char *path, const json_t *extra,
                                 bool weights_only);
brim_status brim_supervised_hold(void *work, const json_t *extra, bool weights_only,
                                 brim_work_held *out);
brim_status brim_supervised_load(void *work, const char *path, json_t **extra);
brim_status brim_supervised_use(void *work, const char *path, bool averaged);

// brim_work_info.whole
int64_t brim_supervised_whole(const brim_supervised *w);
// Has too little memory made smaller micro-batches of the config's, and more of them?
bool brim_supervised_adapted(const brim_supervised *w, const brim_net_spec *spec);
// Spec, loader options and eval loader options of a setting.
void brim_supervised_apply(const brim_supervised *w, const brim_setting *setting,
                           brim_net_spec *spec, brim_loader_options *train,
                           brim_loader_options *eval);
// Optimiser steps of one epoch, and the learning-rate schedule over all of them.
brim_status brim_supervised_schedule(brim_supervised *w);

// Device, library and, where training shall go on from it, the chosen algorithms into a checkpoint's
// metadata.
brim_status brim_work_put_device(brim_device *device, bool algorithms, json_t *meta);
// A checkpoint's metadata are strings.
brim_status brim_work_put_i64(json_t *meta, const char *key, int64_t value);

#endif  // BRIM_WORKLOAD_INT_H_
