// Uses a trained network from its checkpoint: reads its settings, its input and its outputs, and computes
// outputs on any data that suits it. Without an optimiser and without a training set. Callers: eval, predict,
// export.
//
// A checkpoint describes itself in __metadata__: brim.settings (run_train.c) has the settings of its
// training, brim.network the input and the outputs of the network, as one JSON text:
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
  "precision"                    // name of the precision of outputs, in reports and files
#define BRIM_TRAINED_EMA "ema."  // prefix of the names of averaged weights

typedef enum brim_task {
  BRIM_TASK_CLASSES,    // outputs are logits
  BRIM_TASK_VALUES,     // outputs are numbers; targets are numbers
  BRIM_TASK_LABELS,     // outputs are logits, one per label; targets are 0 or 1
  BRIM_TASK_EMBEDDING,  // outputs are projections; there is no target
  BRIM_TASK_COUNT
} brim_task;
const char *brim_task_name(brim_task task);  // "classes"

// Puts brim.network into the metadata of a checkpoint. `class_names` NULL = there are none.
brim_status brim_trained_put_network(const brim_net_spec *spec, brim_task task, int64_t outputs,
                                     const char *const *class_names, json_t *meta);

//---------------------------------- the checkpoint ----------------------------------

typedef struct brim_trained {
  char *path;
  brim_safetensors *file;
  brim_arena *arena;
  json_t *settings;  // brim.settings with dotted keys; NULL = the file has none
  const char *workload;
  bool unnamed;         // the file does not name its workload: `workload` is a guess
  int64_t step, epoch;  // -1 = unknown
  bool has_ema;
  // The members below are those of brim.network. has_network false: an earlier version or another program wrote
  // the file, and the data decide these members.
  bool has_network;
  brim_task task;
  int64_t outputs;
  const char *const *class_names;  // NULL = none
  brim_dtype input_dtype;
  int32_t input_rank;
  int64_t input_dim[4];
  int64_t eval_dim[4];  // shape of evaluation images, if it differs from input_dim; else 0
  int32_t channels;
  float scale[4], shift[4];
} brim_trained;

// The shape of a sample for use: that of evaluation.
const int64_t *brim_trained_dim(const brim_trained *t);
// Opens a checkpoint and checks everything it reads. BRIM_EPARSE or BRIM_EINVAL: the message says what is wrong
// and what to give instead.
brim_status brim_trained_open(const char *path, brim_trained **out);
// BRIM_EINVAL if `path` is a folder: the message names `first` in it, else another checkpoint in it, else the
// file that was expected.
brim_status brim_trained_refuse_folder(const char *path, const char *first);
void brim_trained_close(brim_trained *t);  // NULL is fine
// Writes the settings as the text of a config, for brim_config_load. BRIM_EINVAL if the file has none.
brim_status brim_trained_config_text(const brim_trained *t, brim_str *out);
// Makes the spec of the network: input, outputs and model. The model points into `config`.
brim_status brim_trained_spec(const brim_trained *t, const brim_config *config, brim_net_spec *out);

//---------------------------------- data ----------------------------------

typedef struct brim_trained_data {
  brim_source *source;
  brim_transforms *transforms;  // NULL = none
  const brim_component *component;
  char split[16];
  double share_from, share_to;  // the part of the split; 0 and 1 = the whole split
  bool resized;    // images are resized for the network although the config does not ask for it
  bool greyed;     // images are read as grey although the config does not ask for it
  bool fell_back;  // there is neither val nor test: the set is all of train
  const char *const *class_names;  // names of the data's labels; NULL = none
  int32_t *label_map;  // the network's label for each label of the data; NULL = equal, or no labels
  bool labelled;       // the data have targets of the kind that the network predicts
} brim_trained_data;

typedef struct brim_trained_want {
  const char
      *split;    // NULL: the set that training evaluates on; with `any` test, else val, else train
  bool targets;  // labels or numbers are needed: their absence is an error
  bool any;      // for prediction: every sample of the split, whatever part the config trains on
  bool path_given;  // data.path was given for this call: the files there decide the kind of data
} brim_trained_want;

// Opens the set and its transforms. If !t->has_network, fills in t's input and outputs from the set. `config` is
// made of brim_trained_config_text and overrides; `config` and t must outlive the data.
brim_status brim_trained_data_open(brim_trained *t, const brim_registry *registry,
                                   const brim_config *config, const brim_trained_want *want,
                                   brim_trained_data *out);
void brim_trained_data_close(brim_trained_data *data);

//---------------------------------- outputs ----------------------------------

typedef struct brim_trained_how {
  brim_device *device;
  const brim_config *config;
  const volatile sig_atomic_t
      *stop;  // ends the run between batches with BRIM_EINTERRUPTED; may be NULL
  int64_t batch;
  int num_workers;
  bool skip_broken;  // true: leave out samples that cannot be read; false: fail
  bool ema;          // use averaged weights if the file has them
  bool features;     // return the input of the last layer or projection in place of the outputs
  brim_precision precision;
} brim_trained_how;

// Rows of outputs, in the order of the data. Each sample comes once; samples that cannot be read are left out.
typedef struct brim_trained_rows {
  int64_t rows, width;
  const uint64_t *index;  // sample numbers, ascending
  const float *outputs;   // (rows, width)
  const int32_t *label;   // (rows), the network's labels; NULL = none
  const float *target;    // (rows, the network's outputs); NULL = none
} brim_trained_rows;
typedef brim_status (*brim_trained_fn)(void *ctx, const brim_trained_rows *rows);

typedef struct brim_trained_result {
  bool began;   // the weights were loaded: a later failure is not the checkpoint's fault
  double loss;  // mean of the loss the network was trained with; NaN without targets
  int64_t rows;
  int64_t broken;  // samples left out
  char first_broken[256];
} brim_trained_result;

// Makes the network, loads the weights, and hands out the outputs for all samples.
brim_status brim_trained_run(const brim_trained *t, const brim_trained_data *data,
                             const brim_trained_how *how, brim_trained_fn fn, void *ctx,
                             brim_trained_result *out);

#endif  // BRIM_LEARN_TRAINED_H_
