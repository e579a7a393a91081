// Placement: decides on which GPUs or CPU slot each experiment runs, with one lock per GPU. It opens no
// GPU: it reads NVML (src/monitor) and /proc. The sweep calls it from one thread:
//
//   brim_lab_place_tick(place, now)            every brim_lab_place_wait_ms, and after an end
//   while (!brim_lab_place_choose(place, now, queue, n, &i, &slot) && i < n) {
//     claim queue[i].exp in the store; start an executor with slot.fds, slot.devices
//     brim_lab_place_started(place, exp, pid)  or _ended(..., BRIM_LAB_PLACE_UNUSED, ...)
//   }
//   brim_lab_place_progress(...)               what executors report; packing reads it
//   brim_lab_place_ended(...)                  when the executor has ended
//
// A GPU is free if no process computes on it, no other sweep holds its lock, and it is in service.
// After its last experiment has ended, it stays closed until the driver reports that its memory was
// returned. A GPU goes out of service if memory does not come back, if three experiments in a row fail
// and the GPU may be the cause, or if the driver no longer finds it. Times are ms of a clock that never
// jumps.
//
// No call waits. Every decision is a function of the calls, their times and the readings.
#ifndef BRIM_LAB_PLACE_H_
#define BRIM_LAB_PLACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "monitor/monitor.h"
#include "record/record.h"

enum {
  BRIM_LAB_PLACE_GPUS = 64,          // GPUs of one machine, including slices
  BRIM_LAB_PLACE_K = 16,             // GPUs of one experiment
  BRIM_LAB_PLACE_FDS = 17,           // descriptors of an executor: locks and MPS
  BRIM_LAB_PLACE_UUID = 64,          // bytes of a UUID with its NUL
  BRIM_LAB_PLACE_DEVICES = 16 * 64,  // bytes of a list of UUIDs
  BRIM_LAB_PLACE_PATH = 96,          // bytes of the folder of MPS's sockets
  BRIM_LAB_PLACE_PACKED = 48,        // experiments on one GPU
  BRIM_LAB_PLACE_TEXT = 256          // bytes of a reason
};
// Value of per_gpu: as many experiments as fit and raise the joint throughput.
enum { BRIM_LAB_PLACE_AUTO = -1 };

typedef struct brim_lab_place brim_lab_place;

// 0 and NULL select the defaults, which stand in parentheses.
typedef struct brim_lab_place_options {
  const char *store;          // the store's place; lock files name it
  const char *devices;        // devices to use: "auto", "cpu", "cuda", "0,1", "cuda:1", "GPU-12ab"
  const char *visible;        // CUDA_VISIBLE_DEVICES of the sweep; NULL = all GPUs
  int cores;                  // cores to share between experiments (1)
  int jobs;                   // experiments at once on the CPU (1)
  int per_gpu;                // most experiments on one GPU (1), or BRIM_LAB_PLACE_AUTO
  bool share;                 // use GPUs on which other processes compute, too
  bool no_mps;                // several experiments on a GPU take turns without MPS
  brim_gpu_monitor *monitor;  // borrowed; NULL: there are no GPUs
  const char *lock_dir;       // ("/tmp")
  const char *run_dir;        // for MPS's sockets and logs ("/tmp"); a short name on a local disk
  const char *mps_program;    // ("nvidia-cuda-mps-control")
  const char *root;           // folder in front of /proc, for tests ("")
  int64_t return_ms;          // time limit for the return of memory (60 s)
  int64_t warmup_ms;          // time after a change until packing begins a window (5 s)
  int64_t window_ms;          // time over which packing measures joint throughput (20 s)
} brim_lab_place_options;

// BRIM_EDEVICE: this machine has no such device. BRIM_EINVAL: options.devices names no device.
brim_status brim_lab_place_open(const brim_lab_place_options *options, brim_lab_place **out);
// Releases locks and stops MPS; executors that still run keep the locks that they inherited.
void brim_lab_place_close(brim_lab_place *place);  // NULL is fine

// Reads the machine if a reading is due, and acts on it.
brim_status brim_lab_place_tick(brim_lab_place *place, int64_t now_ms);
int64_t brim_lab_place_wait_ms(const brim_lab_place *place,
                               int64_t now_ms);  // until the next tick is due

// --- starting

// A queued experiment.
typedef struct brim_lab_place_want {
  const char *exp;     // id
  const char *device;  // devices to use, as in options.devices; NULL or "" = all allowed ones
  int64_t gpus;        // how many at once; below 2: one GPU or one CPU slot
  double need_bytes;   // planned memory on each GPU, with overhead; 0 or NaN = unknown
  // Experiments of one kind take the same time for a step on the same GPU. All experiments of kind 0
  // count as alike.
  uint64_t kind;
} brim_lab_place_want;

// The place of an executor.
typedef struct brim_lab_place_slot {
  char devices[BRIM_LAB_PLACE_DEVICES];  // "cpu", or CUDA_VISIBLE_DEVICES: "GPU-..,GPU-.."
  bool cpu;
  int threads;
  int fds[BRIM_LAB_PLACE_FDS];  // for the executor, which keeps them open until it ends
  size_t fd_count;
  char mps_pipe[BRIM_LAB_PLACE_PATH];  // CUDA_MPS_PIPE_DIRECTORY; "" = without MPS
  int mps_percent;                     // its equal share of the multiprocessors; 0 = all of them
} brim_lab_place_slot;

// Chooses the first experiment of the queue that can start now, and gives it *slot; *chosen is
// `count` if none can. An experiment that waits for several GPUs reserves them against later ones.
brim_status brim_lab_place_choose(brim_lab_place *place, int64_t now_ms,
                                  const brim_lab_place_want *wants, size_t count, size_t *chosen,
                                  brim_lab_place_slot *slot);
// Notes the executor's process. BRIM_ENOENT: the experiment has no slot.
brim_status brim_lab_place_started(brim_lab_place *place, const char *exp, int64_t pid);
// Takes over an executor of an earlier sweep that still runs. devices: the devices of its slot.
brim_status brim_lab_place_adopt(brim_lab_place *place, int64_t now_ms,
                                 const brim_lab_place_want *want, const char *devices, int64_t pid);
void brim_lab_place_progress(brim_lab_place *place, int64_t now_ms, const char *exp, int64_t step);

typedef enum brim_lab_place_end {
  BRIM_LAB_PLACE_UNUSED,   // no executor was started
  BRIM_LAB_PLACE_OK,       // done
  BRIM_LAB_PLACE_STOPPED,  // stopped by the user or the sweep
  BRIM_LAB_PLACE_FAILED,   // failed with `failure`
  BRIM_LAB_PLACE_END_COUNT
} brim_lab_place_end;
void brim_lab_place_ended(brim_lab_place *place, int64_t now_ms, const char *exp,
                          brim_lab_place_end end, brim_failure failure);

// True if no device of the sweep can ever run the experiment: it needs more GPUs or more memory than
// there are. *out (may be NULL): the reason, as from brim_lab_place_why.
bool brim_lab_place_never(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                          size_t size);

// Returns an experiment to stop cleanly and queue again, because its GPU is slower with so many at
// once. NULL: none.
const char *brim_lab_place_excess(brim_lab_place *place, int64_t now_ms);

// --- views

// Explains why an experiment waits since the last brim_lab_place_choose, in the user's language: "needs
// 2 GPUs, 1 is free", "GPU 3 is held by pid 71 python train.py (alice)".
void brim_lab_place_why(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                        size_t size);

#define BRIM_LAB_PLACE_STATE_MAP(X)  \
  X(FREE, "free")                    \
  X(BUSY, "busy")                    \
  X(RETURNING, "returning memory")   \
  X(FOREIGN, "used by others")       \
  X(LOCKED, "held by another sweep") \
  X(OUT, "out of service")

typedef enum brim_lab_place_state {
#define X(id, text) BRIM_LAB_PLACE_##id,
  BRIM_LAB_PLACE_STATE_MAP(X)
#undef X
      BRIM_LAB_PLACE_STATE_COUNT
} brim_lab_place_state;

typedef struct brim_lab_place_gpu {
  int index;  // number that `device:` settings use
  char uuid[BRIM_LAB_PLACE_UUID], name[64];
  brim_lab_place_state state;
  char reason[BRIM_LAB_PLACE_TEXT];  // reason for FOREIGN, LOCKED and OUT
  double total_bytes, free_bytes;    // NaN = unknown
  int jobs, limit;                   // experiments on it, and the most allowed at once
  bool mps, measuring;               // measuring: packing is still changing the limit
  double gain;   // joint throughput relative to a single experiment; NaN = unknown
  int failures;  // failed experiments in a row that count against it
} brim_lab_place_gpu;

// The number of GPUs that the sweep may use.
size_t brim_lab_place_count(const brim_lab_place *place);
void brim_lab_place_get(const brim_lab_place *place, size_t i,
                        brim_lab_place_gpu *out);  // i below the count
// Counts the CPU slots and the taken ones.
void brim_lab_place_cpu(const brim_lab_place *place, int *slots, int *taken);
// Takes GPUs back into service: `device` names them as in options.devices. BRIM_EDEVICE: no such GPU
// here.
brim_status brim_lab_place_restore(brim_lab_place *place, const char *device);

#endif  // BRIM_LAB_PLACE_H_
