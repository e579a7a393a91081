// What a sweep looks like at one moment: its experiments, its GPUs, what they achieve. The sweep fills
// it from its store, `status` gets it over the socket, ui draws it. It holds no handle and no clock.
//
// brim.sweep/1, one JSON object:
//   schema "brim.sweep/1" | title | store | pid (null = no sweep runs) | now_s, started_s (since 1970)
//   stopping (bool) | notice | counts {queued, leased, running, done, failed, cancelled, paused}
//   done_per_h | steps_per_s | eta_s
//   metrics  [{key, label, better ("higher", "lower", "neither"), format, digits}]
//   gpus     [{name, model, id, state, why, running, slots, memory_used, memory_total (bytes),
//             gpu_percent, power_w, temperature_c, steps_per_s}]
//   messages [{seq, when_s, level ("info", "warn", "error"), exp, text}]
//   rows     [{id, label, group, point, tags, grid, devices, host, metric_key, message, waiting, owed, state, want,
//             failure, idx, priority, gpus, attempt, tries_left, step, steps, epoch, epochs, metric,
//             best, steps_per_s, eta_s, created_s, started_s, ended_s, ran_s, since_s}]
// Unknown is null, never 0; a row leaves out what is unknown or empty. Reading: unknown keys are
// skipped, missing keys stay unknown, a value of the wrong kind is BRIM_EPARSE with its key.
#ifndef BRIM_RECORD_SWEEP_H_
#define BRIM_RECORD_SWEEP_H_

#include "record/record.h"

#define BRIM_SWEEP_SCHEMA "brim.sweep/1"

// In the order and by the names of the store (lab_store.h), which a test compares.
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
// Whether nothing more happens to it without a user: done, failed, cancelled.
bool brim_sweep_state_ended(brim_sweep_state state);

// What the user asked of an experiment that is under way, and that has not happened yet.
typedef enum brim_sweep_want {
  BRIM_SWEEP_WANT_RUN,
  BRIM_SWEEP_WANT_PAUSE,
  BRIM_SWEEP_WANT_CANCEL,
  BRIM_SWEEP_WANT_COUNT
} brim_sweep_want;

// One experiment. Set it up with brim_sweep_row_init: texts "", counts 0, steps and epochs -1, values
// NaN.
typedef struct brim_sweep_row {
  const char *id;          // 32 hex digits
  const char *label;       // "lr=0.1 batch_size=64 seed=2"
  const char *group;       // the same for all seeds of a point; "" = it has no seeds
  const char *point;       // the label without the seed
  const char *tags;        // "a,b"
  const char *grid;        // the name of the grid it was submitted with first; "" = unknown
  const char *devices;     // where it runs or ran: "GPU 0", "GPU 0+1", "cpu"
  const char *host;        // "" = this machine
  const char *metric_key;  // of brim_sweep_view.metrics
  const char *message;     // why it failed
  const char *waiting;     // why it waits, in the user's language: "needs 2 GPUs, 1 is free"
  const char *owed;        // files that its worker still has to send: "weights,best"
  brim_sweep_state state;
  brim_sweep_want want;
  brim_failure failure;
  int64_t idx, priority, gpus, attempt, tries_left;
  int64_t step, steps, epoch, epochs;
  double metric, best;  // the last value, and the best so far
  double steps_per_s, eta_s;
  double created_s, started_s, ended_s;  // since 1970
  double ran_s;                          // of attempts that ended, together; NaN = none began
  double since_s;                        // when the running attempt began, since 1970
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
  char why[256];           // why it takes no experiment, in the user's language
  int64_t running, slots;  // slots 0: as many as pay
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
  char exp[33];    // the experiment it is about; "" = the sweep
  char text[400];  // one line in the user's language
} brim_sweep_message;

enum { BRIM_SWEEP_METRICS = 8, BRIM_SWEEP_GPUS = 64, BRIM_SWEEP_MESSAGES = 64 };

// Plain data but for the rows, which it owns.
typedef struct brim_sweep_view {
  char title[128];  // name of the grid
  char store[512];  // without a password
  char notice
      [512];  // about the whole sweep, in the user's language: "the first 3 experiments failed ..."
  int64_t pid;  // of the sweep; 0 = none runs
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
  brim_sweep_row *rows;  // as they were put
  size_t row_count;
  // Of record_sweep.c: places in `rows` by id.
  size_t row_cap, slot_count;
  uint32_t *slots;
} brim_sweep_view;

void brim_sweep_view_init(brim_sweep_view *view);
void brim_sweep_view_deinit(brim_sweep_view *view);
// Forgets the rows alone.
void brim_sweep_view_clear_rows(brim_sweep_view *view);

// Adds a row, or replaces the one of the same id. Texts are copied.
brim_status brim_sweep_view_put(brim_sweep_view *view, const brim_sweep_row *row);
// NULL when there is none. Valid until the next put.
const brim_sweep_row *brim_sweep_view_find(const brim_sweep_view *view, const char *id);
// counts from the states of all rows.
void brim_sweep_view_count(brim_sweep_view *view);
int64_t brim_sweep_view_total(const brim_sweep_view *view);
// A message; the oldest goes where there are BRIM_SWEEP_MESSAGES. `exp` may be NULL. What is too long
// is cut.
void brim_sweep_view_say(brim_sweep_view *view, brim_sweep_level level, double when_s,
                         const char *exp, const char *text);
// By its key; NULL when it is not declared.
const brim_sweep_metric *brim_sweep_view_metric(const brim_sweep_view *view, const char *key);
// `key` as a metric of the view, by its name in logs, in TensorBoard or in events of `set`'s
// workload. False: no row has it.
bool brim_sweep_metric_of(const brim_metric_set *set, const char *key, brim_sweep_metric *out);

// Without `rows` the object has none, for callers that send them one by one.
brim_status brim_sweep_view_to_json(const brim_sweep_view *view, bool rows, json_t **out);
brim_status brim_sweep_row_to_json(const brim_sweep_row *row, json_t **out);
// `out` is initialised; what the object has replaces it, rows are put. After a failure it holds what
// was read until then.
brim_status brim_sweep_view_from_json(const json_t *json, brim_sweep_view *out);
brim_status brim_sweep_view_put_json(brim_sweep_view *view, const json_t *row);

#endif  // BRIM_RECORD_SWEEP_H_
