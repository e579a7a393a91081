// Inside the workload room: what workloads that train a network on data read from the config: input,
// optimiser, precision, knobs, and what a setting makes of them. Functions take what they need; a
// workload keeps its own state.
#ifndef BRIM_WORKLOAD_LEARN_H_
#define BRIM_WORKLOAD_LEARN_H_

#include "data/data.h"
#include "engine/engine.h"
#include "workload/workload.h"
#include "workload/workload_data.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#define BRIM_LEARN_MAX_ARGS 16

// The config's optimiser, with training.* keys laid over it: `component` points to `args`.
typedef struct brim_learn_optimizer {
  brim_component component;
  brim_argument args[BRIM_LEARN_MAX_ARGS];
  double lr;
} brim_learn_optimizer;

// Micro-batches: the config's, and what too little memory made of them.
typedef struct brim_batching {
  int64_t batch, accumulation;  // the config's
  bool allow_smaller;           // smaller ones, and more of them, stand for the config's
  bool small_eval;              // evaluation batches are no larger than training's
} brim_batching;

// A setting laid over the config.
typedef struct brim_applied {
  brim_net_spec spec;
  brim_loader_options train, eval;
  int64_t batch;  // samples of a micro-batch on all ranks; spec has this rank's
} brim_applied;

// What it is laid over.
typedef struct brim_learn_base {
  const brim_net_spec *spec;
  const brim_loader_options *loader;
  const brim_batching *batching;
  const brim_work_data *data;
  int64_t most_eval;  // samples that evaluation has at once, at most; 0 = those of its set
} brim_learn_base;

// Does the value of a knob make a difference? (brim_knob.matters)
typedef bool (*brim_matters_fn)(void *work, const brim_setting *setting);
typedef struct brim_learn_matters {
  brim_matters_fn workers, pin, prefetch;
} brim_learn_matters;

// Where a setting keeps its samples. `planned`: what the network needs counts, and is planned first.
typedef brim_status (*brim_cache_of)(void *work, const brim_setting *setting, bool planned,
                                     brim_work_caching *out);
// With the data set on the device (or read by it) no worker loads anything.
bool brim_learn_loader_matters(const brim_device *device, const brim_setting *setting,
                               brim_cache_of cache_of, void *work);

// The network's input for samples like these: shape, type, scale and shift.
void brim_learn_set_input(const brim_source_info *info, brim_net_spec *spec);
// What the config says of any network, apart from its parts.
void brim_learn_set_spec(const brim_config *config, brim_net_spec *spec);
brim_status brim_learn_set_optimizer(const brim_config *config, brim_learn_optimizer *out);
// The loader's options without the setting's part.
void brim_learn_set_loader(const brim_config *config, uint64_t seed, brim_loader_options *out);
brim_status brim_learn_set_knobs(const brim_config *config, brim_device *device,
                                 const brim_learn_matters *matters,
                                 brim_knob knobs[BRIM_LEARN_KNOBS]);
extern const brim_knob_set brim_learn_knob_set;
// The threads that compute on a CPU: a knob of every workload, with its words.
brim_knob brim_learn_threads_knob(const brim_config *config, const brim_device *device);
#define BRIM_THREADS_KNOB_ROW                                                      \
  {                                                                                \
    .name = "threads", .label = BRIM_N_("Threads"), .heading = BRIM_N_("Threads"), \
    .narrow = BRIM_N_("Thr"), .role = BRIM_ROLE_THREADS                            \
  }
// The values that a sweep tries of each (brim_knob.axis); workload_learn.c.
typedef size_t brim_learn_axis(void *state, const brim_knob_sweep *sweep, int64_t *values);
brim_learn_axis brim_learn_batches, brim_learn_workers, brim_learn_precisions, brim_learn_pinned,
    brim_learn_prefetches, brim_learn_accumulations, brim_learn_compiled, brim_learn_checkpointed,
    brim_learn_cached, brim_learn_threads;
brim_batching brim_learn_batching(const brim_knob knobs[BRIM_LEARN_KNOBS]);
// "mlp on 60,000 samples of 28x28 u8"
void brim_learn_describe(const brim_net_spec *spec, const brim_source_info *info, char out[160]);
// Warns where `patch: auto` of a transformer can only make tokens of few samples.
void brim_learn_warn_short_tokens(const brim_net_spec *spec, const brim_source_info *info);
// training.weights; NULL = from the seed.
const char *brim_learn_weights(const brim_config *config);

// Has too little memory made smaller micro-batches of the config's, and more of them?
bool brim_batching_is_smaller(const brim_batching *batching, const brim_net_spec *spec);
// Gives up evaluation batches larger than training's; false where they are not, or there is no set.
bool brim_batching_free_optional(brim_batching *batching, const brim_work_data *data,
                                 const brim_applied *a);
void brim_learn_apply(const brim_learn_base *base, const brim_setting *setting, brim_applied *out);
// training.precision and training.use_amp on this device.
brim_status brim_learn_precision(const brim_config *config, brim_device *device,
                                 brim_precision *out);
// The types of a precision that the device lacks, in the words of the config.
brim_status brim_learn_check_precision(brim_device *device, const brim_net_spec *spec);
// The learning-rate schedule over all steps of a run with so many in an epoch.
brim_status brim_learn_schedule(const brim_config *config, double lr, int64_t per_epoch,
                                brim_schedule *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_WORKLOAD_LEARN_H_
