// Reports of `brim train` that tests call: the memory of a run and its loading.
#ifndef BRIM_CLI_TRAIN_H_
#define BRIM_CLI_TRAIN_H_

#include "cli/job/cli_job.h"

//---------------------------------- the memory of a run ----------------------------------

// Reports the GPU memory of a run: planned, measured, explained when it runs out. Does nothing on a CPU.
typedef struct brim_cli_memory {
  brim_cli *cli;
  brim_cli_job *job;
  brim_setting setting;
  brim_plan plan;  // plan of the setting
  bool started;    // the run has been built
  int ticks;       // calls of brim_cli_memory_tick
} brim_cli_memory;

// Call before a run. Returns BRIM_EOOM with the message of brim_fit_explain if plan and known overhead
// do not fit beside other processes. Checks GPU memory only: the run itself checks host memory.
brim_status brim_cli_memory_check_plan(brim_cli_memory *memory, const brim_setting *setting,
                                       const brim_plan *plan);
// Call when the run has been built.
void brim_cli_memory_started(brim_cli_memory *memory, const brim_plan *plan);
// Call during progress: after the first steps measures, reports and remembers the memory once.
void brim_cli_memory_tick(brim_cli_memory *memory);
// Measures and remembers again, between steps or at the end.
void brim_cli_memory_measure(brim_cli_memory *memory);
// Returns the failure of a run; gives BRIM_EOOM the message of brim_fit_explain.
brim_status brim_cli_memory_failed(brim_cli_memory *memory, brim_status status);
// {"planned", "overhead", "real"} in bytes; NULL on a CPU or when out of memory.
json_t *brim_cli_memory_json(const brim_cli_memory *memory);
// "planned 4.0 GiB + overhead 0.6 GiB = 4.6 GiB on the device"; false before it is measured.
bool brim_cli_memory_text(const brim_cli_memory *memory, char *out, size_t size);
// The overhead in bytes that earlier runs of this setting measured; NaN = unknown.
double brim_cli_memory_known_overhead(const brim_cli_memory *memory);

//---------------------------------- loading ----------------------------------

// Writes "read 12 us, random_crop 3 us per sample in one thread"; false if no threads loaded samples.
bool brim_cli_loading_text(const brim_run_loading *loading, brim_str *out);
// "3 samples could not be read and were skipped, in 6 reads; the first: ..."; false if there were none.
bool brim_cli_broken_text(const brim_run_loading *loading, brim_str *out);
// {"samples", "cache", "locked_bytes", "read_ms", "transforms_ms": {...}, "broken", "broken_reads",
// "first_broken"}; NULL when out of memory.
json_t *brim_cli_loading_json(const brim_run_loading *loading);
// The place of the samples: GPU, host memory or a mapped file; false if there is nothing to report.
bool brim_cli_cache_text(const brim_work_info *info, char *out, size_t size);

#endif  // BRIM_CLI_TRAIN_H_
