// What a grid of experiments will need, as it is shown before anything runs: memory on each kind of
// device, and the time where it is known. Made by `brim sweep --dry-run`, drawn by ui.
#ifndef BRIM_RECORD_FORECAST_H_
#define BRIM_RECORD_FORECAST_H_

#include "record/record.h"

enum { BRIM_FORECAST_DEVICES = 8 };

// Devices of one kind.
typedef struct brim_forecast_device {
  char spec[64];   // the one that was asked: "cuda:0"
  char name[128];  // "NVIDIA H200"
  int64_t count;   // of this kind that experiments may use
  double total;    // bytes of its memory; NaN = unknown
} brim_forecast_device;

// What an experiment needs on a device. Unknown is NaN.
typedef struct brim_forecast_need {
  double bytes;          // planned, and the overhead where it is known
  brim_failure failure;  // OOM_PLANNED: it does not fit; others: it cannot run there
  bool adapts;           // of OOM_PLANNED: training takes less memory, and runs
  const char *message;   // of the failure
  double run_s;          // of a whole run
  bool measured;         // by steps that were measured, not by a finished run
} brim_forecast_need;

typedef struct brim_forecast_row {
  const char *id, *label;
  const char *state;  // in the store, by name; NULL = it is new
  double steps;
  const brim_forecast_need *needs;  // by device
} brim_forecast_row;

typedef struct brim_forecast {
  const char *name, *store;
  brim_forecast_device devices[BRIM_FORECAST_DEVICES];
  size_t device_count;
  const brim_forecast_row *rows;
  size_t row_count;
  int64_t slots;  // experiments that run at the same time
} brim_forecast;

typedef struct brim_forecast_sums {
  size_t fresh, known, done;  // not in the store; in it; of these, done
  size_t to_run;              // not done, and can run
  size_t adapt;               // of these, with less memory than planned
  size_t stuck;               // cannot run on any device
  double most_bytes;          // of one that fits; NaN = unknown
  double run_s;               // of all that are to run and whose time is known
  size_t timeless;            // that are to run, and whose time is unknown
  double wall_s;              // run_s over the slots; NaN where a time is unknown
} brim_forecast_sums;

void brim_forecast_sum(const brim_forecast *forecast, brim_forecast_sums *out);
// Can it run there, perhaps with less memory?
bool brim_forecast_runs(const brim_forecast_need *need);
// The need on the device that is the best for a row: one it runs on, with the lowest time; NULL = none.
const brim_forecast_need *brim_forecast_best(const brim_forecast *forecast,
                                             const brim_forecast_row *row);

#endif  // BRIM_RECORD_FORECAST_H_
