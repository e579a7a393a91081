// Is this machine fit to train? Checks are rows {key, group, label, why, function}. A check reads files
// below a root folder, environment variables through a given function and NVML through the monitor, and
// adds lines to a report: good, warn or bad, or unknown with the reason. Nothing fails, nothing is
// changed and nothing is guessed. What one job asks of the machine comes on top (doctor_config.c).
// Callers: the doctor command.
#ifndef BRIM_DOCTOR_H_
#define BRIM_DOCTOR_H_

#include "measure/measure.h"
#include "monitor/monitor.h"
#include "record/record_doctor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of the file system that has a path.
typedef struct brim_doctor_space {
  double total, free;  // free: for this user
} brim_doctor_space;

// Passes over the files of a path, each from where the last one ended.
enum { BRIM_DOCTOR_PASSES = 5 };
typedef struct brim_doctor_reading {
  double rates[BRIM_DOCTOR_PASSES];  // bytes/s, rising
  int passes, files;                 // 0 passes = too little to measure
  double bytes;                      // of all passes
  double stored;                     // share of all that came from storage; NaN = not known
} brim_doctor_reading;

//---------------------------------- GPUs ----------------------------------

typedef struct brim_doctor_gpu {
  brim_gpu_listed listed;
  int index;      // in the order of the PCI bus, slices counted with their GPU
  char name[64];  // "GPU 0"; "GPU 0 slice 1" of one in MIG mode
  brim_gpu_setup setup;
  brim_gpu_memory memory;       // NaN = the driver does not tell
  brim_gpu_process *processes;  // owned
  size_t process_count;
  bool processes_known;
} brim_doctor_gpu;

// All that NVML says.
typedef struct brim_doctor_gpus {
  bool opened;      // NVML could be opened
  char why[256];    // why there are no GPUs; ""
  char driver[96];  // its version; "" = not told
  int cuda;         // the newest that the driver runs: 13000; 0 = not told
  double seconds;   // that all of it took
  brim_doctor_gpu *list;
  size_t count;
} brim_doctor_gpus;

// A thread that asks NVML: a driver that hangs must not keep the other checks from being shown. `open`
// may be NULL: this machine's NVML.
typedef struct brim_doctor_survey brim_doctor_survey;
brim_status brim_doctor_survey_start(brim_status (*open)(void *ctx, brim_gpu_monitor **out),
                                     void *ctx, brim_doctor_survey **out);
// NULL = it is not done after so many seconds. What it returns lives as long as the survey.
const brim_doctor_gpus *brim_doctor_survey_wait(brim_doctor_survey *survey, double seconds);
// The monitor of one that is done becomes the caller's; NULL = there is none.
brim_gpu_monitor *brim_doctor_survey_take(brim_doctor_survey *survey);
// One that is not done is left to its thread, until the process ends.
void brim_doctor_survey_free(brim_doctor_survey *survey);

//---------------------------------- the machine ----------------------------------

// What is examined.
typedef struct brim_doctor_machine {
  const char *root;  // in front of /proc, /sys, /etc, /dev, /usr ...; "" = this machine
  const char *(*env)(void *ctx, const char *name);                     // NULL = not set
  bool (*space)(void *ctx, const char *path, brim_doctor_space *out);  // false = not known
  void *ctx;
  brim_status (*speed)(const struct brim_doctor_machine *machine, brim_doctor_reading *out);
  const brim_doctor_gpus *gpus;  // NULL = NVML has not answered for `waited_s`
  double waited_s;
  const brim_registry *registry;  // for the plug-ins; NULL = not asked
  const char *data;               // a path of this machine (not below root); NULL = none
  const char *output;             // folder that runs write to, there or not; NULL = none
  bool quick;                     // nothing is measured
  const volatile sig_atomic_t *stop;
} brim_doctor_machine;

// The real machine: its files, environment and file systems. What is opened is left to the caller.
brim_doctor_machine brim_doctor_this_machine(void);
// Reads `data` of the machine; BRIM_ENOMEM alone is a failure.
brim_status brim_doctor_read_passes(const brim_doctor_machine *machine, brim_doctor_reading *out);
// All rows. BRIM_ENOMEM alone is a failure.
brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out);

//---------------------------------- ceilings ----------------------------------

// Lines about what was measured on a device. `reason`: why nothing was; NULL = it was measured. `facts`
// (may be NULL) have the PCIe link that copies are compared with.
void brim_doctor_ceilings(const brim_machine_ceilings *ceilings, const brim_device_info *device,
                          const brim_gpu_setup *facts, const char *reason, brim_doctor_report *out);

//---------------------------------- a config ----------------------------------

// What a config asks of this machine.
typedef struct brim_doctor_job {
  const brim_doctor_machine *machine;
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_result *plan;  // of the config's own setting (brim_trial_plan)
  const char *what;         // its description, translated; "" = the workload's name
  const char *words;        // what follows "brim train" or "brim bench": the config and overrides
  const char *records;      // where bench writes results.jsonl; NULL = nowhere
} brim_doctor_job;
void brim_doctor_config(const brim_doctor_job *job, brim_doctor_report *out);
// Where the config or its data cannot be opened: one line that says why. `words` as above.
void brim_doctor_config_failed(const char *message, const char *words, brim_doctor_report *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DOCTOR_H_
