// Is this machine fit to train? Checks are rows {key, group, label, why, function}. A check reads files
// below a root folder, environment variables through a given function and NVML through the monitor, and
// adds lines to a report: good, warn or bad, or unknown with the reason. Nothing fails, nothing is
// changed and nothing is guessed. What one job asks of the machine comes on top (doctor_config.c).
// Callers: the doctor command.
#ifndef BRIM_DOCTOR_H_
#define BRIM_DOCTOR_H_

#include "measure/measure.h"
#include "record/record_doctor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of the file system that has a path.
typedef struct brim_doctor_space {
  double total, free;  // free: for this user
} brim_doctor_space;

// What is examined.
typedef struct brim_doctor_machine {
  const char *root;  // in front of /proc, /sys, /etc, /dev, /usr ...; "" = this machine
  const char *(*env)(void *ctx, const char *name);                     // NULL = not set
  bool (*space)(void *ctx, const char *path, brim_doctor_space *out);  // false = not known
  void *ctx;
  brim_gpu_monitor *monitor;      // NULL = NVML could not be opened
  const char *no_monitor;         // why not
  const brim_registry *registry;  // for the plug-ins; NULL = not asked
  const char *data;               // a path of this machine (not below root); NULL = none
  const char *output;             // folder that runs write to; NULL = none
  bool quick;                     // nothing is measured
  const volatile sig_atomic_t *stop;
} brim_doctor_machine;

// The real machine: its files, environment and file systems. What is opened is left to the caller.
brim_doctor_machine brim_doctor_this_machine(void);
// All rows. BRIM_ENOMEM alone is a failure.
brim_status brim_doctor_examine(const brim_doctor_machine *machine, brim_doctor_report *out);

//---------------------------------- ceilings ----------------------------------

// Lines about what was measured on a device. `reason`: why nothing was; NULL = it was measured. `facts`
// (may be NULL) have the PCIe link that copies are compared with.
struct brim_gpu_setup;
void brim_doctor_ceilings(const brim_machine_ceilings *ceilings, const brim_device_info *device,
                          const struct brim_gpu_setup *facts, const char *reason,
                          brim_doctor_report *out);

//---------------------------------- a config ----------------------------------

// What a config asks of this machine.
typedef struct brim_doctor_job {
  const brim_doctor_machine *machine;
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_result *plan;  // of the config's own setting (brim_trial_plan)
  const char *name;         // as commands to type call it
  const char *records;      // results.jsonl of an earlier bench; NULL = none
} brim_doctor_job;
void brim_doctor_config(const brim_doctor_job *job, brim_doctor_report *out);
// Where the config or its data cannot be opened: one line that says why.
void brim_doctor_config_failed(const char *message, brim_doctor_report *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DOCTOR_H_
