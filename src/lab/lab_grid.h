// A grid as experiments: every point of a config with its id, label, stored config and what the
// queue needs to know. Expanding happens once, at submit; the store keeps what came out.
//
// The id of a point is the first half of the SHA-256 of its identity (config.h): keys that change
// the experiment, without those at their defaults, those of other workloads, and those that only
// say where it runs and what it leaves (device, gpus, output_dir, log.*, tags, priority, ...).
#ifndef BRIM_LAB_GRID_H_
#define BRIM_LAB_GRID_H_

#include <signal.h>

#include "base/base.h"
#include "config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_LAB_ID = 33 };  // 32 lower-case hex digits and the NUL

typedef struct brim_lab_point {
  char id[BRIM_LAB_ID];
  char group[BRIM_LAB_ID];  // the same for points that differ in the seed alone
  char cost[BRIM_LAB_ID];   // the same for points that need the same memory and time
  int64_t idx;              // place in the grid; one behind a duplicate keeps its own
  int64_t seed;
  const char *label;       // only the axes: "lr=0.1 batch_size=64"
  const char *config;      // YAML that `brim train` reads; loads back to the same id
  const char *tags;        // "a,b" or ""
  const char *metric_key;  // by `describe`, as log.jsonl names it; "" = none
  int64_t priority, gpus, tries;
  int64_t epochs, steps;  // of a whole run, by `describe`; 0 = unknown
} brim_lab_point;

// What the caller knows about workloads; the lab knows none.
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

// All points of a config, which may be a single one. *out is for brim_lab_grid_free, also after a
// failure. options may be NULL.
brim_status brim_lab_grid_expand(const brim_config *config, const brim_lab_grid_options *options,
                                 brim_lab_grid *out);
void brim_lab_grid_free(brim_lab_grid *grid);  // zeros are fine

// The points as a store takes them, without what they need of memory; brim_free. They point into the grid.
struct brim_store_point;
brim_status brim_lab_grid_points(const brim_lab_grid *grid, struct brim_store_point **out);

// The text that a store keeps of one experiment, with its group and its cost in the first lines.
brim_status brim_lab_config_text(const brim_config *config,
                                 const char hashes[BRIM_CONFIG_IDENTITY_COUNT][BRIM_LAB_ID],
                                 brim_str *out);
// The group and the cost that a stored config names in its first lines; "" when it names none.
void brim_lab_config_group(const char *config, char out[BRIM_LAB_ID]);
void brim_lab_config_cost(const char *config, char out[BRIM_LAB_ID]);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_GRID_H_
