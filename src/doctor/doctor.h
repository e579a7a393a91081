// Checks whether this machine is fit to train, and whether a config fits the machine. A check is a row {key, group, label,
// why, function}. It reads files below a root folder, environment variables and NVML, and adds lines to a report: good,
// warn, bad, or unknown with the reason. Checks change nothing and guess nothing. Caller: the doctor command.
#ifndef BRIM_DOCTOR_H_
#define BRIM_DOCTOR_H_

#include "measure/measure.h"
#include "monitor/monitor.h"
#include "record/record_doctor.h"

// Bytes of a file system.
typedef struct brim_doctor_space {
  double total, free;  // free: for this user
} brim_doctor_space;

// Read speed of the files below a path. Each pass continues where the last one ended.
enum { BRIM_DOCTOR_PASSES = 5 };
typedef struct brim_doctor_reading {
  double rates[BRIM_DOCTOR_PASSES];  // bytes/s, rising
  int passes, files;                 // 0 passes = too little to measure
  double bytes;                      // of all passes
  double stored;                     // share that came from storage, not cache; NaN = unknown
} brim_doctor_reading;

//---------------------------------- GPUs ----------------------------------

typedef struct brim_doctor_gpu {
  brim_gpu_listed listed;
  int index;      // in PCI order; slices have their GPU's
  char name[64];  // "GPU 0"; "GPU 0 slice 1" in MIG mode
  brim_gpu_setup setup;
  brim_gpu_memory memory;       // NaN = unknown
  brim_gpu_process *processes;  // owned
  size_t process_count;
  bool processes_known;
} brim_doctor_gpu;

// The GPUs and the driver, as NVML reports them.
typedef struct brim_doctor_gpus {
  bool opened;              // NVML was opened
  char no_gpu_reason[256];  // why there are no GPUs, or ""
  char driver[96];          // version; "" = unknown
  int cuda;                 // newest version that the driver runs: 13000; 0 = unknown
  double seconds;           // time that NVML took
  brim_doctor_gpu *list;
  size_t count;
} brim_doctor_gpus;

// Asks NVML in a thread, so that a driver that hangs does not block the other checks. `open` NULL = this machine's NVML.
typedef struct brim_doctor_survey brim_doctor_survey;
brim_status brim_doctor_survey_start(brim_status (*open)(void *ctx, brim_gpu_monitor **out),
                                     void *ctx, brim_doctor_survey **out);
// NULL = not done after so many seconds. The result lives as long as the survey.
const brim_doctor_gpus *brim_doctor_survey_wait(brim_doctor_survey *survey, double seconds);
// Gives the monitor of a finished survey to the caller; NULL = none.
brim_gpu_monitor *brim_doctor_survey_take(brim_doctor_survey *survey);
// Leaves an unfinished survey to its thread.
void brim_doctor_survey_free(brim_doctor_survey *survey);

//---------------------------------- the machine ----------------------------------

// The machine to examine.
typedef struct brim_doctor_machine {
  const char *root;  // put in front of /proc, /sys, /etc, /dev, /usr; "" = this machine
  const char *(*env)(void *ctx, const char *name);                     // NULL = not set
  bool (*space)(void *ctx, const char *path, brim_doctor_space *out);  // false = unknown
  void *ctx;
  // Measures how fast `data` is read: brim_doctor_read_passes.
  brim_status (*read_speed)(const struct brim_doctor_machine *machine, brim_doctor_reading *out);
  const brim_doctor_gpus *gpus;  // NULL = NVML has not answered within `waited_s`
  double waited_s;
  const brim_registry *registry;  // for the plug-ins; NULL = do not check them
  const char *data;               // a real path (not below root); NULL = none
  const char *output;             // folder that runs write to, existing or not; NULL = none
  bool quick;                     // measure nothing
  const volatile sig_atomic_t *stop;
} brim_doctor_machine;

// This machine. The caller adds gpus, registry and paths.
brim_doctor_machine brim_doctor_this_machine(void);
// Reads machine->data. Fails only with BRIM_ENOMEM.
brim_status brim_doctor_read_passes(const brim_doctor_machine *machine, brim_doctor_reading *out);
// Runs all checks. Fails only with BRIM_ENOMEM.
brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out);

//---------------------------------- ceilings ----------------------------------

// Adds lines about the measured ceilings of a device. `reason`: why nothing was measured, or NULL.
// `gpu_setup` (may be NULL): the PCIe link that copies are compared with.
void brim_doctor_ceilings(const brim_machine_ceilings *ceilings, const brim_device_info *device,
                          const brim_gpu_setup *gpu_setup, const char *reason,
                          brim_doctor_report *out);

//---------------------------------- a config ----------------------------------

// A config to check on this machine.
typedef struct brim_doctor_job {
  const brim_doctor_machine *machine;
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_result *plan;  // of the config's own setting (brim_trial_plan)
  const char *description;  // of the config's workload, translated; "" = use the workload's name
  const char *words;        // words after "brim train" or "brim bench": config and overrides
  const char *records;      // where bench writes results.jsonl; NULL = nowhere
} brim_doctor_job;
void brim_doctor_config(const brim_doctor_job *job, brim_doctor_report *out);
// Adds one line with the reason why the config or its data cannot be opened.
void brim_doctor_config_failed(const char *message, const char *words, brim_doctor_report *out);

#endif  // BRIM_DOCTOR_H_
