// Inside the sweep: its state, and the parts of a turn.
#ifndef BRIM_LAB_SWEEP_INT_H_
#define BRIM_LAB_SWEEP_INT_H_

#include "base/base.h"
#include "base/base_child.h"
#include "lab/lab_late.h"
#include "lab/place/lab_place.h"
#include "lab/lab_sweep.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_link.h"
#include "lab/wire/lab_wire_server.h"
#include "monitor/monitor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_LAB_TAIL = 1024,   // bytes of an executor's last lines
  BRIM_LAB_WINDOW = 256,  // queued experiments that a round of placing looks at
  BRIM_LAB_DIRTY = 64,    // experiments that changed since the view was made; more: all
  BRIM_LAB_SAME = 3       // first experiments that have to fail the same way
};

// An executor.
typedef struct brim_lab_runner {
  brim_store_ref ref;
  brim_child *child;  // NULL: an earlier sweep started it
  int64_t pid;
  char *folder;
  char *devices;     // as its slot had them: "cpu", "GPU-..,GPU-.."; NULL = unknown
  bool asked;        // to stop
  int64_t asked_ms;  // when
  bool killed;
  bool stale;  // its attempt had been replaced or ended at the last look
  bool gone;   // its process has ended
  int64_t next_look_ms;
  int64_t step, steps;
  int64_t step_ms;  // when `step` was seen
  double steps_per_s;
  char tail[BRIM_LAB_TAIL];
} brim_lab_runner;

// The last readings of a GPU; NaN = unknown.
typedef struct brim_lab_gpu_reader {
  char uuid[BRIM_LAB_PLACE_UUID];
  brim_gpu_sampler *sampler;  // NULL: it cannot be read
  double gpu_percent, power_w, power_limit_w, temperature_c;
} brim_lab_gpu_reader;

// The first experiments that failed, as long as all of them did so the same way.
typedef struct brim_lab_same {
  bool off;  // an experiment was done, or failed otherwise
  size_t count;
  char exps[BRIM_LAB_SAME][BRIM_EXP_ID];
  brim_failure failure;
  char message[512];
} brim_lab_same;

// Takes note of how an experiment ended. True: the first BRIM_LAB_SAME failed the same way. `folder`
// is the experiment's own, which is left out where the message names it.
bool brim_lab_same_add(brim_lab_same *same, const char *exp, const char *folder,
                       brim_failure failure, const char *message);
void brim_lab_same_done(brim_lab_same *same);

// The name of a worker by its machine and the path of its folder, which another folder does not share. id: of
// its token, "" = none; a server tells workers by it.
enum { BRIM_LAB_WORKER_NAME = 64 };
void brim_lab_worker_name(const char *id, const char *host, const char *path,
                          char out[BRIM_LAB_WORKER_NAME]);

// Experiments run as elements of Slurm's arrays in place of executors of this machine.
typedef struct brim_lab_slurm brim_lab_slurm;

struct brim_lab_sweep {
  brim_lab_sweep_options options;  // texts are below
  char *place, *folder, *title, *program, *version, *devices, *lock_dir;
  char **words;  // options.words points here
  char worker[BRIM_LAB_WORKER_NAME], host[65];
  brim_store *store;  // NULL: a worker's experiments are with a server
  brim_lab_ops own, ops;
  brim_lab_link *source;  // its own calls: over `own`, or a worker's to its server
  brim_lab_link *link;    // for others: over `ops`, so that the sweep hears of what they change
  brim_lab_late *late;    // NULL: files stay where they are
  brim_lab_server *server;
  brim_lab_place *placing;
  brim_lab_slurm *slurm;  // NULL: experiments run on this machine
  brim_lab_runner **runners;
  size_t count, cap;
  struct pollfd *fds;
  size_t fd_cap;
  bool stopping;
  brim_lab_end end;
  brim_lab_same same;
  brim_store_counts counts;
  int64_t count_ms, last_ms, reap_ms, seen_ms, progress_ms, replay_ms, trouble_ms, trouble_wait,
      told_ms, give_up_ms, place_ms;
  int64_t stale_ms;  // when executors are looked after that a server gave up
  int64_t lease_ms;  // of the server; 0 = not known yet
  char claim[BRIM_EXP_ID], claim_exp[BRIM_EXP_ID];  // a claim without a reply; "" = none
  bool counted;                                     // `counts` is of now
  bool left;                                        // queued experiments may start later
  int64_t paused;    // experiments that were paused before this sweep, and still are
  bool told_paused;  // that it waits for paused ones
  brim_lab_place_state gpu_states[BRIM_LAB_PLACE_GPUS];  // as messages reported them
  bool look;                                             // something changed: count and place again
  // The view (lab_sweep_view.c).
  brim_sweep_view view;
  bool has_rows, all_dirty;
  char dirty[BRIM_LAB_DIRTY][BRIM_EXP_ID];
  size_t dirty_count;
  int64_t rows_ms;
  size_t detail_at;
  // Readings of GPUs (lab_sweep.c).
  brim_lab_gpu_reader readers[BRIM_LAB_PLACE_GPUS];
  size_t reader_count;
  int64_t gpus_ms, looked_ms;    // when they were read, when a view was made
  brim_host_sample host_sample;  // of the last status (lab_sweep.c)
  bool host_read;
  int64_t ended;  // experiments that this sweep saw end, and what they took
  double ended_s;
  double first_s;
};

int64_t brim_lab_now_ms(void);  // of a clock that never jumps

// BRIM_EIO becomes a message and a pause; other failures stay.
brim_status brim_lab_tolerate(brim_lab_sweep *sweep, brim_status status);
void brim_lab_say(brim_lab_sweep *sweep, brim_sweep_level level, const char *exp, const char *fmt,
                  ...) BRIM_PRINTF(4, 5);
// At most `size` bytes of a text with its NUL; what is cut ends behind a word, with "...".
void brim_lab_shorten(const char *text, char *out, size_t size);
// Rows of what runs and of the next in the queue, with what only the sweep knows: devices, time
// left, why they wait.
brim_status brim_lab_sweep_active(brim_lab_sweep *sweep, json_t *list);
void brim_lab_dirty(brim_lab_sweep *sweep, const char *exp);  // "": all
brim_lab_runner *brim_lab_runner_find(brim_lab_sweep *sweep, const char *exp);

//---------------------------------- GPUs ----------------------------------

// When that is due.
void brim_lab_gpus_read(brim_lab_sweep *sweep, int64_t now_ms);
// What is known about a place that has its name and id.
void brim_lab_gpus_fill(brim_lab_sweep *sweep, brim_sweep_gpu *out);
brim_sweep_gpu_state brim_lab_gpu_state(brim_lab_place_state state);  // for views
void brim_lab_gpus_close(brim_lab_sweep *sweep);
// How an attempt ended, for people, placement and the rule about first failures.
brim_status brim_lab_take_note(brim_lab_sweep *sweep, int64_t attempt, const char *folder,
                               const brim_store_exp *exp);

//---------------------------------- Slurm (lab_sweep_slurm.c) ----------------------------------

// Asks Slurm for its limits and reads the arrays that an earlier sweep of the folder submitted.
brim_status brim_lab_slurm_open(brim_lab_sweep *sweep, brim_lab_slurm **out);
void brim_lab_slurm_close(brim_lab_slurm *slurm);  // elements continue; NULL is fine
brim_status brim_lab_slurm_turn(brim_lab_sweep *sweep, int64_t now_ms);
// Nothing of this sweep is in Slurm's queue any more, or it cannot be waited for.
bool brim_lab_slurm_idle(const brim_lab_sweep *sweep);
// The command that runs now, to poll for.
size_t brim_lab_slurm_fds(const brim_lab_slurm *slurm, struct pollfd fds[BRIM_CHILD_FDS],
                          int *limit_ms);
// What Slurm says about an experiment; "" = nothing.
void brim_lab_slurm_why(const brim_lab_slurm *slurm, const char *exp, char *out, size_t size);
void brim_lab_slurm_count(const brim_lab_slurm *slurm, int64_t *running, int64_t *waiting);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_SWEEP_INT_H_
