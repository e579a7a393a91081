// Inside the commands: a run's GPU memory as it is reported. On a device that is the host all of it
// stays silent.
#ifndef BRIM_CLI_MEMORY_H_
#define BRIM_CLI_MEMORY_H_

#include "cli/job/cli_job.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cli_memory {
  brim_cli *cli;
  brim_cli_job *job;
  brim_setting setting;
  brim_plan plan;  // of the setting, once it stands
  bool started;    // it stands
  int ticks;       // signs of progress so far
} brim_cli_memory;

// Device bytes that a plan may take, by gpu.memory_limit and gpu.memory_fraction; 0 = no limit.
uint64_t brim_cli_memory_limit(const brim_cli_job *job);
// How the ceilings of the job's device are measured and remembered.
brim_machine_options brim_cli_machine_options(const brim_cli *cli, const brim_cli_job *job);
// Before a run: does it fit beside what others hold, with the overhead that is known from earlier?
// BRIM_EOOM as brim_fit_explain. On the host the run asks itself.
brim_status brim_cli_memory_check_plan(brim_cli_memory *memory, const brim_setting *setting,
                                       const brim_plan *plan);
// The run has been built.
void brim_cli_memory_started(brim_cli_memory *memory, const brim_plan *plan);
// Some steps were made: after the first few it is measured, told once and remembered.
void brim_cli_memory_tick(brim_cli_memory *memory);
// At a quiet point, or at the end: measured and remembered again.
void brim_cli_memory_measure(brim_cli_memory *memory);
// What the run failed with; BRIM_EOOM gets the message of brim_fit_explain.
brim_status brim_cli_memory_failed(brim_cli_memory *memory, brim_status status);
// {"planned", "overhead", "real"}, bytes; NULL with a device that is the host or without memory.
json_t *brim_cli_memory_json(const brim_cli_memory *memory);
// "planned 4.0 GiB + overhead 0.6 GiB = 4.6 GiB"; false when it was not measured.
bool brim_cli_memory_text(const brim_cli_memory *memory, char *out, size_t size);
// The overhead known from earlier runs of this setting; NaN = none.
double brim_cli_memory_known(const brim_cli_memory *memory);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_MEMORY_H_
