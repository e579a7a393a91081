// A map from ids of experiments to positions in a list.
#ifndef BRIM_LAB_WIRE_IDS_H_
#define BRIM_LAB_WIRE_IDS_H_

#include "base/base.h"

typedef struct brim_lab_ids {
  const char **ids;  // borrowed from the callers of brim_lab_ids_add
  size_t *values;
  size_t mask;
} brim_lab_ids;

// Makes room for `most` ids.
brim_status brim_lab_ids_init(brim_lab_ids *set, size_t most);
void brim_lab_ids_deinit(brim_lab_ids *set);  // zeros are fine
// Finds the position of an id; false: the map does not have it.
bool brim_lab_ids_find(const brim_lab_ids *set, const char *id, size_t *value);
// Adds an id that the map does not have. `id` is borrowed.
void brim_lab_ids_add(brim_lab_ids *set, const char *id, size_t value);

#endif  // BRIM_LAB_WIRE_IDS_H_
