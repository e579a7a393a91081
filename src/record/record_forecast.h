// The forecast of a grid of experiments, shown before anything runs: the memory that each needs on each kind of
// device, and its time if that is known. `brim sweep --dry-run` makes the forecast, ui draws it.
#ifndef BRIM_RECORD_FORECAST_H_
#define BRIM_RECORD_FORECAST_H_

#include "record/record.h"

enum { BRIM_FORECAST_DEVICES = 8 };

// A group of devices of the same kind.
typedef struct brim_forecast_device {
  char spec[64];   // the device that was examined: "cuda:0"
  char name[128];  // "NVIDIA H200"
  int64_t count;   // number of devices of this kind that experiments may use
  double total;    // bytes of its memory; NaN = unknown
} brim_forecast_device;

// The need of one experiment on one kind of device. NaN = unknown.
typedef struct brim_forecast_need {
  double bytes;  // planned bytes, plus the overhead if it is known
  // NONE = it fits; OOM_PLANNED = it needs more memory than the device has; any other = it cannot run on this
  // device.
  brim_failure failure;
  bool adapts;          // with OOM_PLANNED: training can still run, because it reduces its memory
  const char *message;  // the text of the failure
  double run_s;         // seconds of a whole run
  bool measured;        // run_s comes from a few measured steps, not from a finished run
} brim_forecast_need;

typedef struct brim_forecast_row {
  const char *id, *label;
  const char *state;  // name of its state in the store; NULL = it is new
  double steps;
  const brim_forecast_need *needs;  // one need per device
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
  size_t fresh, known, done;  // experiments not in the store, in the store, and done
  size_t to_run;              // experiments that are not done and can run
  size_t adapt;               // those of `to_run` that fit only because training reduces its memory
  size_t stuck;               // experiments that cannot run on any device
  double most_bytes;          // bytes of the largest experiment that fits; NaN = unknown
  double run_s;               // summed over the experiments to run whose time is known
  size_t timeless;            // experiments to run whose time is unknown
  double wall_s;              // run_s divided by the slots; NaN if any time is unknown
} brim_forecast_sums;

void brim_forecast_sum(const brim_forecast *forecast, brim_forecast_sums *out);
// True if the experiment can run on the device, perhaps with less memory.
bool brim_forecast_runs(const brim_forecast_need *need);
// The need of a row on its best device: the fastest of those that can run it; NULL = none.
const brim_forecast_need *brim_forecast_best(const brim_forecast *forecast,
                                             const brim_forecast_row *row);

#endif  // BRIM_RECORD_FORECAST_H_
