// NVIDIA's Multi-Process Service for one GPU: several experiments compute on it at the same time
// instead of taking turns. The control daemon runs in a folder of its own, so that it is nothing to
// other users. It lives as long as one process holds the descriptor of brim_lab_mps_fd: the sweep
// and the executors that inherited it. Killed at any moment, no daemon stays.
#ifndef BRIM_LAB_PLACE_MPS_H_
#define BRIM_LAB_PLACE_MPS_H_

#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_lab_mps brim_lab_mps;

typedef enum brim_lab_mps_state {
  BRIM_LAB_MPS_STARTING,
  BRIM_LAB_MPS_READY,
  BRIM_LAB_MPS_FAILED,  // it ended, or did not answer in 10 s
  BRIM_LAB_MPS_STATE_COUNT
} brim_lab_mps_state;

// Its folder is made inside `parent` (0700), and removed at the end. BRIM_EUNSUPPORTED: the program is
// not here, or the folder's name is too long for a socket.
brim_status brim_lab_mps_start(const char *program, const char *parent, const char *uuid,
                               int64_t now_ms, brim_lab_mps **out);
brim_lab_mps_state brim_lab_mps_update(brim_lab_mps *mps, int64_t now_ms);
const char *brim_lab_mps_pipe(const brim_lab_mps *mps);   // CUDA_MPS_PIPE_DIRECTORY
const char *brim_lab_mps_error(const brim_lab_mps *mps);  // the last line it printed; "" = none
int64_t brim_lab_mps_pid(const brim_lab_mps *mps);  // the daemon and its server descend from it
int brim_lab_mps_fd(const brim_lab_mps *mps);       // for executors
// Lets go: the daemon ends when the last executor has. Does not wait.
void brim_lab_mps_stop(brim_lab_mps *mps);  // NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLACE_MPS_H_
