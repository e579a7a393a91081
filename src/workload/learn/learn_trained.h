// A trained network out of its checkpoint, for use: what it was trained with, what it takes and
// outputs, and its outputs on any data that suits it. No optimiser, no training set. Callers: eval,
// predict, export.
//
// A checkpoint says what it is in __metadata__: brim.settings (run_train.c) is what it was trained
// with, brim.network what the network takes and outputs, as one JSON text:
//   {"input": {"type": "u8", "shape": [32, 32, 3], "scale": [...], "shift": [...]},
//    "task": "classes" | "values" | "embedding", "outputs": 10, "class_names": ["cat", ...]}
// where an input value of channel c becomes value * scale[c] + shift[c]; class_names may be absent.
#ifndef BRIM_LEARN_TRAINED_H_
#define BRIM_LEARN_TRAINED_H_

#include <signal.h>

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"

#define BRIM_TRAINED_PRECISION \
  "precision"                    // how outputs are computed, in what is shown and written
#define BRIM_TRAINED_EMA "ema."  // in front of the names of averaged weights

typedef enum brim_task {
  BRIM_TASK_CLASSES,    // outputs are logits
  BRIM_TASK_VALUES,     // outputs are numbers to be compared with the targets
  BRIM_TASK_LABELS,     // outputs are logits of labels that are there or not; targets are 0 or 1
  BRIM_TASK_EMBEDDING,  // outputs are projections; there is no target
  BRIM_TASK_COUNT
} brim_task;
const char *brim_task_name(brim_task task);  // "classes"

// Into the metadata of a checkpoint, when it is saved. `class_names` NULL = there are none.
brim_status brim_trained_put_network(const brim_net_spec *spec, brim_task task, int64_t outputs,
                                     const char *const *class_names, json_t *meta);

//---------------------------------- the checkpoint ----------------------------------

typedef struct brim_trained {
  char *path;
  brim_safetensors *file;
  brim_arena *arena;
  json_t *settings;  // of brim.settings, dotted keys; NULL = the file has none
  const char *workload;
  bool unnamed;         // the file does not name it: `workload` is a guess
  int64_t step, epoch;  // -1 = not said
  bool has_ema;
  // What brim.network says; has_network false: a checkpoint of an earlier version, or weights of
  // another program, and the data have to say it.
  bool has_network;
  brim_task task;
  int64_t outputs;
  const char *const *class_names;  // NULL = none
  brim_dtype input_dtype;
  int32_t input_rank;
  int64_t input_dim[4];
  int64_t eval_dim[4];  // of images it was evaluated on, where they have another size; else 0
  int32_t channels;
  float scale[4], shift[4];
} brim_trained;

// One sample as the network is used on: of the size it was evaluated on.
const int64_t *brim_trained_dim(const brim_trained *t);
// Everything in the file is checked that is read here. BRIM_EPARSE, BRIM_EINVAL: what is wrong, and
// what to give instead.
brim_status brim_trained_open(const char *path, brim_trained **out);
// BRIM_EINVAL where `path` is a folder: names `first` in it, else another checkpoint in it, else says what
// was looked for.
brim_status brim_trained_refuse_folder(const char *path, const char *first);
void brim_trained_close(brim_trained *t);  // NULL is fine
// The settings as the text of a config, for brim_config_load. BRIM_EINVAL where there are none.
brim_status brim_trained_config_text(const brim_trained *t, brim_str *out);
// The spec of the network: input, outputs and model, which stays the config's.
brim_status brim_trained_spec(const brim_trained *t, const brim_config *config, brim_net_spec *out);

//---------------------------------- data ----------------------------------

typedef struct brim_trained_data {
  brim_source *source;
  brim_transforms *transforms;  // NULL = none
  const brim_component *component;
  char split[16];
  double share_from, share_to;  // of the split; 0 and 1 = all of it
  bool resized;    // images are brought to the network's size, which the config did not say
  bool greyed;     // images are read as grey, which the config did not say
  bool fell_back;  // neither val nor test is there: all of train
  const char *const *class_names;  // of the data's own labels; NULL = none
  int32_t *label_map;  // the network's label of each of the data's; NULL = the same, or no labels
  bool labelled;       // targets are there and are what the network is trained to say
} brim_trained_data;

typedef struct brim_trained_want {
  const char
      *split;       // NULL: the set that training evaluates on; in `any` test, else val, else train
  bool targets;     // labels or numbers are needed: their absence is an error
  bool any;         // for prediction: every sample of the split, whatever part the config trains on
  bool path_given;  // data.path was given for this call: what lies there says what it is
} brim_trained_want;

// Opens the set and its transforms; where t has no network, the set says what it takes (t is filled
// in). `config` is that of brim_trained_config_text with overrides; it must outlive the data, as t.
brim_status brim_trained_data_open(brim_trained *t, const brim_registry *registry,
                                   const brim_config *config, const brim_trained_want *want,
                                   brim_trained_data *out);
void brim_trained_data_close(brim_trained_data *data);

//---------------------------------- outputs ----------------------------------

typedef struct brim_trained_how {
  brim_device *device;
  const brim_config *config;
  const volatile sig_atomic_t *stop;  // ends it between batches with BRIM_EINTERRUPTED; may be NULL
  int64_t batch;
  int num_workers;
  bool skip_broken;  // samples that cannot be read are left out; else they end it
  bool ema;          // averaged weights where there are some
  bool features;     // what comes before the last layer or the projection, instead of the outputs
  brim_precision precision;
} brim_trained_how;

// Rows in the order of the data; each sample once, those that cannot be read not at all.
typedef struct brim_trained_rows {
  int64_t rows, width;
  const uint64_t *index;  // sample numbers, ascending
  const float *outputs;   // (rows, width)
  const int32_t *label;   // the network's labels; NULL without
  const float *target;    // (rows, the network's outputs); NULL without
} brim_trained_rows;
typedef brim_status (*brim_trained_fn)(void *ctx, const brim_trained_rows *rows);

typedef struct brim_trained_result {
  bool began;   // the network has its weights: what fails from here on is no wrong checkpoint
  double loss;  // mean of the loss the network was trained with; NaN without targets
  int64_t rows;
  int64_t broken;  // left out
  char first_broken[256];
} brim_trained_result;

// Makes the network, loads the weights, and hands out the outputs for all samples.
brim_status brim_trained_run(const brim_trained *t, const brim_trained_data *data,
                             const brim_trained_how *how, brim_trained_fn fn, void *ctx,
                             brim_trained_result *out);

#endif  // BRIM_LEARN_TRAINED_H_
