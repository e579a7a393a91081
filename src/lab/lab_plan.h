// What experiments will need, before any of them runs: memory by exact plans, the number of steps, and
// the time where it is known. Plans are made by a child (`brim sweep plan`), so that the process that
// asks never opens a GPU.
//
// The child reads one JSON object a line and answers with one a line, in the same order:
//   {"id": COST, "config": YAML, "device": "cuda:0", "measure": false}
// A device by its UUID ("GPU-..", "MIG-..") is the only one that its child sees: "cuda:0" there.
//   {"id": COST, "device": "cuda:0", "name": "NVIDIA H200", "planned_device": bytes,
//    "planned_host": bytes, "overhead": bytes, "free": bytes, "total": bytes,
//    "samples_per_step": n, "steps": n, "epochs": n, "evaluates": true, "adapts": true,
//    "step_s": seconds, "start_s": seconds, "failure": "none", "message": ""}
// Unknown numbers are null. "adapts": it does not fit, but a training adapts and runs.
//
// Time is never guessed: it comes from a finished run of the same cost on this host, or from steps that
// the child measured, else it is unknown.
#ifndef BRIM_LAB_PLAN_H_
#define BRIM_LAB_PLAN_H_

#include <signal.h>

#include "lab/lab_grid.h"
#include "record/record.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  double start_s;  // measured: device, data and network until steps run at their pace
  double run_s;    // of a whole run: by results, else by start_s + steps * step_s
  bool run_known;  // run_s is of a finished run
  brim_failure failure;  // OOM_PLANNED: it does not fit now; others: it cannot run at all
  char message[1024];
} brim_lab_plan;

typedef struct brim_lab_plan_options {
  const char *const *command;  // required: {"/usr/bin/brim", "sweep", "plan", NULL}
  bool measure;                // a few steps of each; takes seconds
  // Without an answer for so long the child is ended, and what it worked on is HUNG (120 s; with
  // `measure` 600 s).
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
// Times of runs that a store knows, on this host.
brim_status brim_lab_forecast_times(brim_lab_forecast *forecast, struct brim_lab_link *link);
const brim_lab_plan *brim_lab_forecast_of(const brim_lab_forecast *forecast, size_t point,
                                          size_t device);
void brim_lab_forecast_free(brim_lab_forecast *forecast);  // zeros are fine

// A line of the child, for both sides.
brim_status brim_lab_plan_to_json(const brim_lab_plan *plan, json_t **out);
brim_status brim_lab_plan_from_json(const json_t *value, brim_lab_plan *out);
void brim_lab_plan_init(brim_lab_plan *plan);  // unknowns NaN

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLAN_H_
