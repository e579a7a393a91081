// A map from ids to positions (lab_wire_ids.h): open addressing over the FNV-1a hash of an id.
#include "lab/wire/lab_wire_ids.h"

#include <string.h>

brim_status brim_lab_ids_init(brim_lab_ids *set, size_t most) {
  size_t slots = 16;
  while (slots < most * 2) slots *= 2;
  set->mask = slots - 1;
  set->ids = brim_calloc(slots, sizeof *set->ids);
  set->values = brim_calloc(slots, sizeof *set->values);
  if (set->ids && set->values) return BRIM_OK;
  brim_lab_ids_deinit(set);
  return brim_fail(BRIM_ENOMEM, "out of memory for %zu ids", most);
}

void brim_lab_ids_deinit(brim_lab_ids *set) {
  brim_free(set->ids);
  brim_free(set->values);
  memset(set, 0, sizeof *set);
}

static size_t slot_of(const brim_lab_ids *set, const char *id) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char *p = id; *p; p++) hash = (hash ^ (unsigned char)*p) * 0x100000001B3u;
  size_t at = (size_t)(hash ^ hash >> 32) & set->mask;
  while (set->ids[at] && strcmp(set->ids[at], id) != 0) at = (at + 1) & set->mask;
  return at;
}

bool brim_lab_ids_find(const brim_lab_ids *set, const char *id, size_t *value) {
  const size_t at = slot_of(set, id);
  if (!set->ids[at]) return false;
  *value = set->values[at];
  return true;
}

void brim_lab_ids_add(brim_lab_ids *set, const char *id, size_t value) {
  const size_t at = slot_of(set, id);
  set->ids[at] = id;
  set->values[at] = value;
}
