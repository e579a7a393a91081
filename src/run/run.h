// The training loop (epochs, evaluation, checkpoints, logs, resume), and the ranks of a training on several
// devices. Nothing is printed here: progress goes out by callback. Callers: the train command and libbrim.
#ifndef BRIM_RUN_H_
#define BRIM_RUN_H_

#include <signal.h>

#include "backend/backend_comm.h"
#include "record/record.h"
#include "workload/workload.h"

// Loading times per sample, summed over all threads, in an epoch or the whole run.
typedef struct brim_run_loading {
  int64_t samples;        // 0 = unknown
  const char *cache;      // "none", "ram", "gpu", "mapped"; NULL = unknown
  uint64_t locked_bytes;  // of mapped files that this process locked in memory
  double read_ms;
  size_t stage_count;
  const char *stage[BRIM_WORK_MAX_STAGES];  // transforms by name
  double stage_ms[BRIM_WORK_MAX_STAGES];
  int64_t broken;        // unreadable samples, which are left out
  int64_t broken_reads;  // reads of such samples, over all epochs
  char first_broken[256];
} brim_run_loading;

// Figures of one log interval (log.interval steps).
typedef struct brim_run_steps {
  int64_t epoch, step;  // epoch from 1
  const brim_metric_set *metrics;
  double values[BRIM_METRIC_MAX];  // by row of `metrics`: those of stage BRIM_METRIC_STEPS
  double lr;
  double data_s, compute_s;  // per step: waiting for data, and the rest
  bool loads;                // the workload loads data
  double samples_per_s;
} brim_run_steps;

typedef struct brim_epoch_report {
  int64_t epoch;  // from 1
  int64_t epochs;
  const brim_metric_set *metrics;
  double train[BRIM_METRIC_MAX];
  bool evaluated;                    // after this epoch
  double eval[BRIM_METRIC_MAX];      // NaN if not evaluated
  double baseline[BRIM_METRIC_MAX];  // of the baseline in the same evaluation
  bool eval_not_finite;              // the evaluation gave no finite value
  double lr;
  double seconds;       // training only
  double eval_seconds;  // NaN if not evaluated
  double wall_seconds;  // since this process began the run
  double samples_per_s;
  bool best;  // best so far
  brim_run_loading loading;
  // Share of the training time in which a kernel ran, and in which SMs had a warp (brim_run_options.usage).
  bool watches_gpu;                // the workload wants these columns
  double gpu_percent, sm_percent;  // NaN = unknown
} brim_epoch_report;

struct brim_job;

// The files of a run, all under output_dir:
//   config.yaml          resolved config
//   last.safetensors     the newest full checkpoint
//   step-NNNNNNNN.safetensors  the checkpoint.keep - 1 checkpoints before it, named by step. A save also removes
//                        files of later steps than its own, which a resumed run has discarded.
//   best.safetensors     full checkpoint of the best epoch by checkpoint.best
//   model.safetensors    weights at the end: averaged, if training.ema_decay is set
//   log.csv, log.jsonl   one row per epoch / per log interval; past log.rotate bytes log.1.csv, ...
//   events.out.tfevents.*.brim   the same for TensorBoard, with log.tensorboard
typedef struct brim_run_options {
  const char *output_dir;
  // Continue from the newest whole checkpoint: last.safetensors, else the newest by step, else the best. A damaged
  // one is skipped with a warning.
  bool resume;
  const char *resume_path;            // continue from this file instead; it must exist
  const volatile sig_atomic_t *stop;  // non-zero: finish the step, save, return BRIM_EINTERRUPTED
  // Stop at this optimiser step, counted from the start of training, and write last and model; 0 = no limit.
  int64_t max_steps;
  // The command that trains, to be published for `brim top` (record_job.h); NULL = publish nothing.
  const char *publish;
  // A further check of a plan that fits into free memory and gpu.memory_limit: BRIM_EOOM refuses it. May be NULL.
  brim_status (*check)(void *ctx, const brim_setting *setting, const brim_plan *plan);
  // May be NULL. Called with NULLs to start measuring how busy the GPU is, then with pointers to read it.
  void (*usage)(void *ctx, double *gpu_percent, double *sm_percent);
  void (*on_start)(void *ctx, const brim_work_info *info, const brim_plan *plan,
                   int64_t start_step);
  void (*on_progress)(void *ctx, const brim_progress *progress);
  void (*on_epoch)(void *ctx, const brim_epoch_report *report);
  void (*on_steps)(void *ctx, const brim_run_steps *steps);
  // A checkpoint of this step is on the disk as last.safetensors.
  void (*on_checkpoint)(void *ctx, int64_t step);
  // The published job has changed, for example its findings. Never called without `publish`.
  void (*on_published)(void *ctx, const struct brim_job *job);
  void *ctx;
} brim_run_options;

typedef struct brim_run_result {
  int64_t steps, epochs;             // in all, including those before a resume
  int64_t steps_run;                 // by this call; 0 = nothing was left to do
  const brim_metric_set *metrics;    // valid until the workload is closed
  double train[BRIM_METRIC_MAX];     // last epoch, or the begun one (see `partial`)
  double eval[BRIM_METRIC_MAX];      // last evaluation by this process
  int64_t eval_samples;              // of that evaluation; 0 = none
  double baseline[BRIM_METRIC_MAX];  // the baseline in the same episodes
  int64_t baseline_samples;          // 0 = no baseline
  double probe[BRIM_METRIC_MAX];     // evaluation of features at the end; NaN = none
  // Metrics of the best epoch; only those that checkpoint.best can choose by are set.
  double best[BRIM_METRIC_MAX];
  // True if the best epoch was chosen by training metrics. `best` is NaN then, if the run also evaluates.
  bool best_by_training;
  int64_t best_epoch;             // from 1; 0 = none
  double seconds, samples_per_s;  // of this process's training
  int ranks;                      // 0 = no ranks
  char exchange_by[16];           // "shm", "mpi", "nccl"
  double exchange_ms;             // per step; NaN = unknown
  double exchange_exposed_ms;     // per step: what steps waited for
  double wall_seconds;            // with start, evaluations and checkpoints
  int64_t skipped_steps, bad_samples;
  int64_t lost_steps;                    // skipped, but not to find the fp16 loss scale
  const brim_work_diagnosis *diagnosis;  // describes `anomalies` and `first_anomaly`; NULL = none
  int64_t anomalies[BRIM_WORK_MAX_TROUBLES];      // counts in this process
  int64_t first_anomaly[BRIM_WORK_MAX_TROUBLES];  // step; 0 = none
  char advice[768];    // how to avoid the anomalies (base_words.h); "" = nothing
  double lr;           // of the last step
  bool stopped_early;  // by training.early_stopping_patience, now or before a resume
  bool interrupted;
  bool partial;        // max_steps ended the run within an epoch; `train` is of that part
  bool not_evaluated;  // max_steps ended the run before its first evaluation
  // Why a run failed, if the status does not tell. diverged: an epoch gave no finite value. folder_failed: output_dir
  // is full, not writable, or used by another process.
  bool diverged, folder_failed;
  brim_run_loading loading;
  const char *unit;                           // of samples_per_s: "samples", "env steps"
  brim_work_rate rates[BRIM_WORK_MAX_RATES];  // samples_per_s in other units
  size_t rate_count;
  char checkpoint[512];  // the last one written
} brim_run_result;

// The workload must be open and not configured yet.
brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out);
// True if training would fit after adapting to free memory (gpu.on_oom). The workload is open; do not train it
// afterwards.
bool brim_run_adapts(const brim_work *work, const brim_config *config);

//---------------------------------- which rank ----------------------------------
// Several processes train together, one per device. The train command starts and opens them; the loop exchanges
// gradients through `comm`.

typedef enum brim_ranks_origin {
  BRIM_RANKS_ALONE,  // one process, no ranks
  BRIM_RANKS_BRIM,   // brim's own launcher, on this machine
  BRIM_RANKS_MPI,    // mpirun or srun
  BRIM_RANKS_ORIGIN_COUNT
} brim_ranks_origin;

typedef struct brim_ranks_place {
  brim_ranks_origin origin;
  int rank, size, local_rank, local_size;  // -1 = the launcher does not say
  char name[64];                           // shared memory of brim's launcher
} brim_ranks_place;

// Environment variables that brim's launcher sets for its children.
#define BRIM_RANKS_ENV_RANK "BRIM_RANK"
#define BRIM_RANKS_ENV_SIZE "BRIM_RANKS"
#define BRIM_RANKS_ENV_NAME "BRIM_RANKS_NAME"

// Reads the environment of brim's launcher, Open MPI, PMI (MPICH, Intel MPI) or Slurm. A launch
// with one process counts as no ranks (BRIM_RANKS_ALONE). `get`: getenv, or a replacement in tests. BRIM_EINVAL if
// the variables contradict each other.
brim_status brim_ranks_find(char *(*get)(const char *name), brim_ranks_place *out);

//---------------------------------- ranks ----------------------------------

typedef struct brim_ranks_options {
  // Called by the thread that watches the other ranks, if this process still runs BRIM_RANKS_GRACE_NS after another
  // rank failed. It should end the process. May be NULL.
  void (*on_stuck)(void *ctx, const char *why);
  void *ctx;
  int64_t silence_ns;  // a rank that is silent for longer has failed; 0 = BRIM_RANKS_SILENCE_NS
  bool over_tcp;       // for tests: use TCP within one machine too
} brim_ranks_options;

#define BRIM_RANKS_SILENCE_NS (5 * (int64_t)1000000000)
#define BRIM_RANKS_GRACE_NS (3 * (int64_t)1000000000)   // until on_stuck
#define BRIM_RANKS_OPEN_NS (120 * (int64_t)1000000000)  // until all ranks have connected

typedef struct brim_ranks {
  brim_ranks_origin origin;
  int rank, size, local_rank, local_size;
  int cpu_ranks;           // ranks on this machine that share this one's cores, itself included
  brim_comm *comm;         // between all ranks
  brim_comm *device_comm;  // the same ranks, for the device's thread; NULL = not attached
  char name[64];           // of the shared memory
  struct brim_ranks_watch *watch;
} brim_ranks;

// Waits until all ranks have come. *out is NULL for a process without ranks; the functions below take NULL for
// that.
brim_status brim_ranks_open(const brim_ranks_place *place, const brim_ranks_options *options,
                            brim_ranks **out);
// Leaves the other ranks. After a failure call brim_ranks_fail first.
void brim_ranks_close(brim_ranks *ranks);

// Ends all ranks because this one failed, with the status detail as the reason. Returns when rank 0 has it:
// BRIM_ERANK if another rank failed first, which the detail then names; else `status`. Call it from the thread
// that trains.
brim_status brim_ranks_fail(brim_ranks *ranks, brim_status status);
// True for the one rank that prints the reason of a failure. Call it after brim_ranks_fail.
bool brim_ranks_reports(const brim_ranks *ranks);

static inline int brim_ranks_rank(const brim_ranks *ranks) { return ranks ? ranks->rank : 0; }
static inline int brim_ranks_size(const brim_ranks *ranks) { return ranks ? ranks->size : 1; }
static inline brim_comm *brim_ranks_comm(const brim_ranks *ranks) {
  return ranks ? ranks->comm : NULL;
}
// Connects the device with those of the other ranks: by NCCL if each rank has its own GPU, else through the host,
// and `why` tells the reason. Call it before a workload is opened on the device. The ranks must outlive it.
brim_status brim_ranks_attach(brim_ranks *ranks, brim_device *device, char why[256]);

// This rank's share of `threads`: ranks on one machine share its cores.
int brim_ranks_threads(const brim_ranks *ranks, int threads);
// The device of this rank: its entry of a list; or "cuda:<local rank>" for "cuda" and "auto", modulo the `gpus`
// visible ones; else the one device named.
void brim_ranks_device(const brim_ranks *ranks, const char *const *devices, size_t count, int gpus,
                       char *out, size_t size);

#endif  // BRIM_RUN_H_
