// The state of a sweep at one moment: its experiments, its GPUs, its throughput. The sweep fills it from its store,
// `status` gets it over the socket, ui draws it. It holds no handle and no clock.
#ifndef BRIM_RECORD_SWEEP_H_
#define BRIM_RECORD_SWEEP_H_

#include "record/record.h"

#define BRIM_SWEEP_SCHEMA "brim.sweep/1"

// The order and names of the store (lab_store.h); a test compares them.
#define BRIM_SWEEP_STATE_MAP(X) \
  X(QUEUED, "queued")           \
  X(LEASED, "leased")           \
  X(RUNNING, "running")         \
  X(DONE, "done")               \
  X(FAILED, "failed")           \
  X(CANCELLED, "cancelled")     \
  X(PAUSED, "paused")

typedef enum brim_sweep_state {
#define X(id, name) BRIM_SWEEP_##id,
  BRIM_SWEEP_STATE_MAP(X)
#undef X
      BRIM_SWEEP_STATE_COUNT
} brim_sweep_state;

const char *brim_sweep_state_name(brim_sweep_state state);
bool brim_sweep_state_of(const char *name, brim_sweep_state *out);
// True if the experiment changes no more without a user: done, failed, cancelled.
bool brim_sweep_state_ended(brim_sweep_state state);

// A request of the user that a running experiment has not followed yet.
typedef enum brim_sweep_want {
  BRIM_SWEEP_WANT_RUN,
  BRIM_SWEEP_WANT_PAUSE,
  BRIM_SWEEP_WANT_CANCEL,
  BRIM_SWEEP_WANT_COUNT
} brim_sweep_want;

// One experiment. brim_sweep_row_init sets texts "", counts 0, steps and epochs -1, values NaN.
typedef struct brim_sweep_row {
  const char *id;          // 32 hex digits
  const char *label;       // "lr=0.1 batch_size=64 seed=2"
  const char *group;       // the same text for all seeds of a point; "" = it has no seeds
  const char *point;       // the label without the seed
  const char *tags;        // "a,b"
  const char *grid;        // name of the first grid it was submitted with; "" = unknown
  const char *devices;     // devices of the running or last attempt: "GPU 0", "GPU 0+1", "cpu"
  const char *host;        // host of that attempt; "" = this machine
  const char *metric_key;  // key of one of brim_sweep_view.metrics
  const char *message;     // reason of the failure
  const char *waiting;     // reason of the wait, in the user's language: "needs 2 GPUs, 1 is free"
  const char *owed;        // files that its worker still has to upload: "weights,best"
  brim_sweep_state state;
  brim_sweep_want want;
  brim_failure failure;
  int64_t idx, priority, gpus, attempt, tries_left;
  int64_t step, steps, epoch, epochs;
  double metric, best;  // the last value, and the best so far
  double steps_per_s, eta_s;
  double created_s, started_s, ended_s;  // seconds since 1970
  double ran_s;                          // seconds of all attempts that ended; NaN = none began
  double since_s;                        // start of the running attempt, seconds since 1970
} brim_sweep_row;

void brim_sweep_row_init(brim_sweep_row *row);

// A metric that rows show, as the workload declares it (record_metric.h).
typedef struct brim_sweep_metric {
  char key[BRIM_METRIC_NAME];
  char label[64];  // a message: "acc"
  brim_metric_better better;
  brim_metric_format format;
  int digits;
} brim_sweep_metric;

#define BRIM_SWEEP_GPU_STATE_MAP(X) \
  X(FREE, "free")                   \
  X(BUSY, "busy")                   \
  X(FOREIGN, "foreign")             \
  X(RELEASING, "releasing")         \
  X(OUT, "out_of_service")

typedef enum brim_sweep_gpu_state {
#define X(id, name) BRIM_SWEEP_GPU_##id,
  BRIM_SWEEP_GPU_STATE_MAP(X)
#undef X
      BRIM_SWEEP_GPU_STATE_COUNT
} brim_sweep_gpu_state;

const char *brim_sweep_gpu_state_name(brim_sweep_gpu_state state);

// A place where experiments run: a GPU, or the CPU's slots. brim_sweep_gpu_init: NaN and "".
typedef struct brim_sweep_gpu {
  char name[32];   // "GPU 0", "cpu"
  char model[96];  // "NVIDIA H200"
  char id[64];     // UUID
  brim_sweep_gpu_state state;
  char why[256];           // reason why it takes no experiment, in the user's language
  int64_t running, slots;  // slots 0: as many experiments as pay off
  double memory_used, memory_total;
  double gpu_percent, power_w, temperature_c, steps_per_s;
} brim_sweep_gpu;

void brim_sweep_gpu_init(brim_sweep_gpu *gpu);

typedef enum brim_sweep_level {
  BRIM_SWEEP_INFO,
  BRIM_SWEEP_WARN,
  BRIM_SWEEP_ERROR,
  BRIM_SWEEP_LEVEL_COUNT
} brim_sweep_level;

typedef struct brim_sweep_message {
  int64_t seq;  // counts from 1, never repeats
  double when_s;
  brim_sweep_level level;
  char exp[33];    // experiment that the message is about; "" = the sweep
  char text[400];  // one line in the user's language
} brim_sweep_message;

enum { BRIM_SWEEP_METRICS = 8, BRIM_SWEEP_GPUS = 64, BRIM_SWEEP_MESSAGES = 64 };

// Plain data, except that it owns its rows.
typedef struct brim_sweep_view {
  char title[128];  // name of the grid
  char store[512];  // store address without its password
  char notice
      [512];  // about the whole sweep, in the user's language: "the first 3 experiments failed ..."
  int64_t pid;  // process of the sweep; 0 = no sweep runs
  bool stopping;
  double now_s, started_s;
  int64_t counts[BRIM_SWEEP_STATE_COUNT];
  double done_per_h, steps_per_s, eta_s;
  brim_sweep_metric metrics[BRIM_SWEEP_METRICS];
  size_t metric_count;
  brim_sweep_gpu gpus[BRIM_SWEEP_GPUS];
  size_t gpu_count;
  brim_sweep_message messages[BRIM_SWEEP_MESSAGES];  // the oldest first
  size_t message_count;
  brim_sweep_row *rows;  // in the order of the first put
  size_t row_count;
  // Used by record_sweep.c: row indices by id.
  size_t row_cap, slot_count;
  uint32_t *slots;
} brim_sweep_view;

void brim_sweep_view_init(brim_sweep_view *view);
void brim_sweep_view_deinit(brim_sweep_view *view);
// Removes all rows and keeps the rest.
void brim_sweep_view_clear_rows(brim_sweep_view *view);

// Adds a row, or replaces the one of the same id. Texts are copied.
brim_status brim_sweep_view_put(brim_sweep_view *view, const brim_sweep_row *row);
// Returns NULL if there is no such row. Valid until the next put.
const brim_sweep_row *brim_sweep_view_find(const brim_sweep_view *view, const char *id);
// Fills counts from the states of all rows.
void brim_sweep_view_count(brim_sweep_view *view);
int64_t brim_sweep_view_total(const brim_sweep_view *view);
// Adds a message; the oldest is dropped when there are BRIM_SWEEP_MESSAGES. `exp` may be NULL. A long text is cut.
void brim_sweep_view_say(brim_sweep_view *view, brim_sweep_level level, double when_s,
                         const char *exp, const char *text);
// Finds a metric by its key; NULL = not declared.
const brim_sweep_metric *brim_sweep_view_metric(const brim_sweep_view *view, const char *key);
// Makes a metric of the view from the row of `set` whose name in logs, TensorBoard or events is `key`. False if no
// row has that name.
bool brim_sweep_metric_of(const brim_metric_set *set, const char *key, brim_sweep_metric *out);

// With `rows` false the object has no rows, for callers that send them one by one.
brim_status brim_sweep_view_to_json(const brim_sweep_view *view, bool rows, json_t **out);
brim_status brim_sweep_row_to_json(const brim_sweep_row *row, json_t **out);
// `out` must be initialised. Values of the object replace those of `out`; rows are put. After a failure `out` has
// the values read before it.
brim_status brim_sweep_view_from_json(const json_t *json, brim_sweep_view *out);
brim_status brim_sweep_view_put_json(brim_sweep_view *view, const json_t *row);

#endif  // BRIM_RECORD_SWEEP_H_
