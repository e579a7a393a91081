// A grid as experiments: every point of a config with its id, label, stored config and data for the
// queue; and the forecast of what they need. A grid is expanded once, when it is submitted; the
// store keeps the result.
//
// The id of a point is the first half of the SHA-256 of its identity (config.h): keys that change
// the experiment, without those at their defaults, those of other workloads, and those that only
// say where it runs and which files it leaves (device, gpus, output_dir, log.*, tags, priority,
// ...).
#ifndef BRIM_LAB_GRID_H_
#define BRIM_LAB_GRID_H_

#include <signal.h>

#include "base/base.h"
#include "config/config.h"
#include "record/record.h"

enum { BRIM_LAB_ID = 33 };  // 32 lower-case hex digits and the NUL

typedef struct brim_lab_point {
  char id[BRIM_LAB_ID];
  char group[BRIM_LAB_ID];    // the same for points that differ in the seed alone
  char cost_id[BRIM_LAB_ID];  // the same for points that need the same memory and time
  int64_t idx;                // place in the grid, duplicates counted
  int64_t seed;
  const char *label;       // only the axes: "lr=0.1 batch_size=64"
  const char *config;      // YAML that `brim train` reads; loads back to the same id
  const char *tags;        // "a,b" or ""
  const char *metric_key;  // by `describe`, as log.jsonl names it; "" = none
  int64_t priority, gpus, tries;
  int64_t epochs, steps;  // of a whole run, by `describe`; 0 = unknown
} brim_lab_point;

// Knowledge of the caller about workloads; the lab has none.
typedef struct brim_lab_grid_options {
  const char *name;  // of the grid where the config has no `name`; NULL = "sweep"
  // NULL, or sets metric_key (which is copied), epochs and steps of a point.
  brim_status (*describe)(void *ctx, const brim_config *point, brim_lab_point *out);
  void *ctx;
  const volatile sig_atomic_t *stop;  // may be NULL; set: BRIM_EINTERRUPTED before the next point
} brim_lab_grid_options;

typedef struct brim_lab_grid {
  char id[BRIM_LAB_ID];  // of the name and the points in their order: the same grid has the same id
  const char *name;
  brim_lab_point *points;
  size_t count;
  size_t duplicates;           // points that are left out because an earlier one has their id
  const char *const *devices;  // key `device`: where experiments may run, never an axis
  size_t device_count;         // at least 1
  int64_t per_gpu;             // experiments on one GPU at once; 0 = auto
  const char *store;           // key `store`; NULL = not given
  const char *const *notes;    // translated sentences for the user
  size_t note_count;
  brim_arena *arena;
} brim_lab_grid;

// Expands a config into its points; one point if it has no axes. *out is for brim_lab_grid_free,
// also after a failure. options may be NULL.
brim_status brim_lab_grid_expand(const brim_config *config, const brim_lab_grid_options *options,
                                 brim_lab_grid *out);
void brim_lab_grid_free(brim_lab_grid *grid);  // zeros are fine

// The points as a store takes them, without their memory needs; for brim_free. They point into the grid.
struct brim_store_point;
brim_status brim_lab_grid_points(const brim_lab_grid *grid, struct brim_store_point **out);

// The text that a store keeps of one experiment: the lines "# group" and "# cost" (record_lab.h),
// then the YAML.
brim_status brim_lab_config_text(const brim_config *config,
                                 const char hashes[BRIM_CONFIG_IDENTITY_COUNT][BRIM_LAB_ID],
                                 brim_str *out);
//-------------------------------- plans (lab_grid_plan.c) --------------------------------
// The needs of experiments before any of them runs: memory by exact plans, the number of steps, and
// the time if it is known. A child (`brim sweep plan`) makes the plans, so that the process that
// asks never opens a GPU.
//
// The child reads one JSON object a line and answers with one a line, in the same order:
//   {"id": COST, "config": YAML, "device": "cuda:0", "measure": false}
// A child sees only the device that a UUID ("GPU-..", "MIG-..") names, as "cuda:0".
//   {"id": COST, "device": "cuda:0", "name": "NVIDIA H200", "planned_device": bytes,
//    "planned_host": bytes, "overhead": bytes, "free": bytes, "total": bytes,
//    "samples_per_step": n, "steps": n, "epochs": n, "evaluates": true, "adapts": true,
//    "step_s": seconds, "start_s": seconds, "failure": "none", "message": ""}
// Unknown numbers are null. "adapts": it does not fit, but a training adapts and runs.
//
// The time comes from a finished run of the same cost on this host, or from steps that the child
// measured; else it is unknown.

struct brim_lab_link;

// Unknown is NaN.
typedef struct brim_lab_plan {
  char id[BRIM_LAB_ID];                 // cost of the points it is for
  char device[64];                      // as it was asked for
  char name[128];                       // of the device
  double planned_device, planned_host;  // bytes brim asks for
  double overhead;                      // what the driver and libraries take besides
  double free, total;                   // of the device, when it was planned
  double samples_per_step, steps, epochs;
  bool evaluates;  // there is data to evaluate on
  bool adapts;     // it does not fit, but training takes smaller micro-batches or less at once
  double step_s;   // measured
  double start_s;  // measured: time to open device and data, build the network and warm up
  double run_s;    // of a whole run: by results, else by start_s + steps * step_s
  bool run_known;  // run_s is of a finished run
  brim_failure failure;  // OOM_PLANNED: it does not fit now; others: it cannot run at all
  char message[1024];
} brim_lab_plan;

typedef struct brim_lab_plan_options {
  const char *const *command;  // required: {"/usr/bin/brim", "sweep", "plan", NULL}
  bool measure;                // a few steps of each; takes seconds
  // Ends a child that does not answer for this long; the plan that it worked on fails as HUNG. 0 =
  // 120 s, or 600 s with `measure`.
  int64_t limit_ms;
  const volatile sig_atomic_t *stop;                      // may be NULL
  void (*on_plan)(void *ctx, size_t done, size_t total);  // may be NULL
  void *ctx;
} brim_lab_plan_options;

// The plans of a grid: one for each cost and device.
typedef struct brim_lab_forecast {
  brim_lab_plan *plans;  // (costs, devices)
  size_t costs, devices;
  size_t *cost_of;  // by point: a row of `plans`
  size_t points;
} brim_lab_forecast;

// BRIM_EINTERRUPTED when stopped. A point that cannot be planned is no failure: its plan has the class
// and the message. A child that crashes is started again behind what it crashed on.
brim_status brim_lab_forecast_make(const brim_lab_grid *grid, const char *const *devices,
                                   size_t device_count, const brim_lab_plan_options *options,
                                   brim_lab_forecast *out);
// Adds the times of runs on this host that a store knows.
brim_status brim_lab_forecast_times(brim_lab_forecast *forecast, struct brim_lab_link *link);
const brim_lab_plan *brim_lab_forecast_of(const brim_lab_forecast *forecast, size_t point,
                                          size_t device);
void brim_lab_forecast_free(brim_lab_forecast *forecast);  // zeros are fine

// A line of the child.
brim_status brim_lab_plan_to_json(const brim_lab_plan *plan, json_t **out);
brim_status brim_lab_plan_from_json(const json_t *value, brim_lab_plan *out);
void brim_lab_plan_init(brim_lab_plan *plan);  // unknowns NaN

#endif  // BRIM_LAB_GRID_H_
