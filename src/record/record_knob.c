// Finding knob rows by name and by role.
#include "record/record_knob.h"

#include <string.h>

const brim_knob_row *brim_knob_find(const brim_knob_set *set, const char *name) {
  for (size_t i = 0; set && i < set->count; i++) {
    if (strcmp(set->rows[i].name, name) == 0) return &set->rows[i];
  }
  return NULL;
}

const brim_knob_row *brim_knob_find_as(const brim_knob_set *set, brim_knob_role role) {
  for (size_t i = 0; set && role != BRIM_ROLE_NONE && i < set->count; i++) {
    if (set->rows[i].role == role) return &set->rows[i];
  }
  return NULL;
}
