// Which folders a walk has been in, by device and inode: links can lead to one folder by many ways, as
// many as 2 to the power of their number.
#include <string.h>

#include "base/base.h"
#include "data/image/data_folder.h"

// Of a slot; 0 is free, which no inode is.
static size_t place_of(const brim_folder_seen *seen, uint64_t dev, uint64_t ino) {
  uint64_t h = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(h >> 20) & (seen->room - 1);
  while (seen->slots[at].ino && (seen->slots[at].ino != ino || seen->slots[at].dev != dev)) {
    at = (at + 1) & (seen->room - 1);
  }
  return at;
}

static brim_status grow(brim_folder_seen *seen) {
  brim_folder_seen larger = {.room = seen->room ? 2 * seen->room : 64, .count = seen->count};
  larger.slots = brim_calloc(larger.room, sizeof *larger.slots);
  if (!larger.slots) {
    return brim_fail(BRIM_ENOMEM, "folder: out of memory for the names of files");
  }
  for (size_t i = 0; i < seen->room; i++) {
    if (!seen->slots[i].ino) continue;
    larger.slots[place_of(&larger, seen->slots[i].dev, seen->slots[i].ino)] = seen->slots[i];
  }
  brim_free(seen->slots);
  *seen = larger;
  return BRIM_OK;
}

brim_status brim_folder_seen_add(brim_folder_seen *seen, uint64_t dev, uint64_t ino, bool *was) {
  *was = false;
  if (ino == 0) return BRIM_OK;
  if (2 * (seen->count + 1) > seen->room) BRIM_TRY(grow(seen));
  size_t at = place_of(seen, dev, ino);
  *was = seen->slots[at].ino != 0;
  if (*was) return BRIM_OK;
  seen->slots[at].dev = dev;
  seen->slots[at].ino = ino;
  seen->count++;
  return BRIM_OK;
}

void brim_folder_seen_clear(brim_folder_seen *seen) {
  if (seen->count) memset(seen->slots, 0, seen->room * sizeof *seen->slots);
  seen->count = 0;
}

void brim_folder_seen_deinit(brim_folder_seen *seen) {
  brim_free(seen->slots);
  *seen = (brim_folder_seen){0};
}
