// Inside the workload room: the tables of the workloads, config keys that several of them read, and metadata
// that their checkpoints share.
#ifndef BRIM_WORKLOAD_INT_H_
#define BRIM_WORKLOAD_INT_H_

#include "engine/engine.h"
#include "workload/workload.h"

extern const brim_workload_table brim_workload_supervised;
extern const brim_workload_table brim_workload_contrastive;
extern const brim_workload_table brim_workload_ars;
extern const brim_workload_table brim_workload_mappo;

//---------------------------------- config (workload_config.c) ----------------------------------

#define BRIM_WORK_MAX_ARGS 16

// The config's optimizer, with training.* keys laid over it: `component` points to `args`.
typedef struct brim_work_optimizer {
  brim_component component;
  brim_argument args[BRIM_WORK_MAX_ARGS];
  double lr;
} brim_work_optimizer;
brim_status brim_work_read_optimizer(const brim_config *config, brim_work_optimizer *out);

// training.weights, the file of first weights; NULL = start from the seed.
const char *brim_work_weights(const brim_config *config);
// The precision that training.precision and training.use_amp give on a device.
brim_status brim_work_precision(const brim_config *config, brim_device *device,
                                brim_precision *out);
// Refuses a precision that the device lacks.
brim_status brim_work_check_precision(brim_device *device, const brim_net_spec *spec);

// The knob `threads` (the CPU's computing threads), which every workload has, and its row of words.
brim_knob brim_work_threads_knob(const brim_config *config, const brim_device *device);
#define BRIM_THREADS_KNOB_ROW                                                      \
  {                                                                                \
    .name = "threads", .label = BRIM_N_("Threads"), .heading = BRIM_N_("Threads"), \
    .narrow = BRIM_N_("Thr"), .role = BRIM_ROLE_THREADS                            \
  }

//---------------------------------- checkpoints (workload_config.c) ----------------------------------

// Puts device, library and, if training may resume from the file, the chosen algorithms into a checkpoint's
// metadata.
brim_status brim_work_put_device(brim_device *device, bool algorithms, json_t *meta);
// Puts a number into a checkpoint's metadata, as a string.
brim_status brim_work_put_i64(json_t *meta, const char *key, int64_t value);
// Reads a count, 0 to 2^53 - 1; BRIM_EPARSE names the file.
brim_status brim_work_get_count(const json_t *meta, const char *path, const char *key,
                                int64_t *out);
// Warns that a continued run is no longer bit-identical if the file has another value of `key` than this run.
void brim_work_warn_if_other(const json_t *meta, const char *path, const char *key,
                             const char *now);
// Like brim_json_get_numbers, but returns 0 if a number is not finite.
size_t brim_work_get_numbers(const json_t *metadata, const char *key, double *out, size_t most);

//---------------------------------- metrics and troubles (workload.c) ----------------------------------

// Clears a trouble and sets its kind and count; returns it.
brim_work_trouble *brim_work_trouble_begin(brim_work_trouble *t, int kind, int64_t count);
// Clears metrics and sets their rows: values are unknown, counts are 0.
void brim_work_metrics_clear(const brim_metric_set *set, brim_work_metrics *out);

#endif  // BRIM_WORKLOAD_INT_H_
