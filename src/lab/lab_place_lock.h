// The lock of a GPU between sweeps of one machine, whatever store or user they have:
// FOLDER/brim-gpu-UUID.lock, which anyone may open and no one removes. The kernel holds it (flock)
// as long as one process has the descriptor, so it outlives the sweep in the executors that
// inherited it. Inside, for people and for a sweep that starts again: "brim-gpu PID UID STORE\n".
#ifndef BRIM_LAB_PLACE_LOCK_H_
#define BRIM_LAB_PLACE_LOCK_H_

#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_lab_place_holder {
  int64_t pid;  // 0 = unknown
  char user[64];
  char store[512];
} brim_lab_place_holder;

// Takes it without waiting. BRIM_EEXIST: another process has it, *holder by what it wrote. The
// caller closes *fd; the lock ends with the last descriptor of it.
brim_status brim_lab_place_lock(const char *folder, const char *uuid, const char *store, int *fd,
                                brim_lab_place_holder *holder);
// Whether it could be taken now.
brim_status brim_lab_place_lock_probe(const char *folder, const char *uuid,
                                      brim_lab_place_holder *holder);

// Makes the file look used, so that what removes old files from the folder leaves it there.
void brim_lab_place_lock_touch(int fd);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLACE_LOCK_H_
