// Files that executors could not send in time (attempt-N.files): a worker sends them later, in a thread.
#ifndef BRIM_LAB_LATE_H_
#define BRIM_LAB_LATE_H_

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_lab_link;
typedef struct brim_lab_late brim_lab_late;

// Those of the experiments in FOLDER/exp. The link leads to a server, and outlives it; its connection is
// not used.
brim_status brim_lab_late_open(const struct brim_lab_link *link, const char *folder,
                               brim_lab_late **out);
// An executor has ended in this folder of an experiment.
void brim_lab_late_look(brim_lab_late *late, const char *folder);
void brim_lab_late_close(brim_lab_late *late);  // NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_LATE_H_
