// Inside the record room: the experiments while they are read (record_lab.c), before keys and groups are found.
#ifndef BRIM_RECORD_LAB_INT_H_
#define BRIM_RECORD_LAB_INT_H_

#include "record/record_lab.h"

// A set of texts: each is stored once and has a number, in the order of arrival.
typedef struct brim_lab_texts {
  const char **list;
  size_t count, capacity;
  uint32_t *slots;  // hash table of number + 1; 0 = free
  size_t slot_count;
} brim_lab_texts;

#define BRIM_LAB_NONE UINT32_MAX

// A setting: the numbers of its name and of its value.
typedef struct brim_lab_setting {
  uint32_t name, value;
  bool axis;  // true if it comes from the label
} brim_lab_setting;

// The settings of an experiment, which brim_lab_exp does not keep.
typedef struct brim_lab_raw {
  brim_lab_setting *settings;  // settings of the config, then of the label
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
  size_t points;  // points of all curves
  brim_lab_metric metrics[BRIM_LAB_METRICS];
  brim_lab_set set;
};

// Keeps at most `most` (>= 4) of a curve's points: the first, the last, and the lowest and the highest of each
// stretch between them. Returns the number kept.
size_t brim_lab_thin(brim_curve_point *points, size_t count, size_t most);

#endif  // BRIM_RECORD_LAB_INT_H_
