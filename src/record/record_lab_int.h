// Inside the record room: how experiments are kept while they are read (record_lab.c), before
// keys and groups are found (record_lab.c).
#ifndef BRIM_RECORD_LAB_INT_H_
#define BRIM_RECORD_LAB_INT_H_

#include "record/record_lab.h"

// Texts that are kept once each, numbered as they come.
typedef struct brim_lab_texts {
  const char **list;
  size_t count, capacity;
  uint32_t *slots;  // number + 1; 0 = free
  size_t slot_count;
} brim_lab_texts;

#define BRIM_LAB_NONE UINT32_MAX

// A setting: numbers of name and value.
typedef struct brim_lab_setting {
  uint32_t name, value;
  bool axis;  // from the label
} brim_lab_setting;

// What is kept of an experiment besides brim_lab_exp.
typedef struct brim_lab_raw {
  brim_lab_setting *settings;  // of the config, then of the label
  size_t count;
} brim_lab_raw;

struct brim_lab_reader {
  brim_lab_options options;
  brim_arena *arena;
  brim_lab_texts names, values, ids;
  brim_lab_raw *raws;  // (set.count)
  size_t capacity;
  brim_lab_grid_row *grids;
  size_t grid_capacity;
  size_t points;  // of all curves
  brim_lab_metric metrics[BRIM_LAB_METRICS];
  brim_lab_set set;
};

// At most `most` (>= 4) of a curve's points: the first, the last, and the lowest and the highest of
// equal stretches between. Returns how many.
size_t brim_lab_thin(brim_curve_point *points, size_t count, size_t most);

#endif  // BRIM_RECORD_LAB_INT_H_
