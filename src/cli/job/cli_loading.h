// Inside the commands: what is reported of loading, by train and bench alike.
#ifndef BRIM_CLI_LOADING_H_
#define BRIM_CLI_LOADING_H_

#include "cli/job/cli_job.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

// "read 0.012 ms, random_crop 0.003 ms per sample"; false when nothing was loaded by threads.
bool brim_cli_loading_text(const brim_run_loading *loading, brim_str *out);
// "3 samples could not be read and were skipped, in 6 reads; the first: ..."; false when there were
// none.
bool brim_cli_broken_text(const brim_run_loading *loading, brim_str *out);
// {"samples", "cache", "locked_bytes", "read_ms", "transforms_ms": {...}, "broken", "broken_reads",
// "first_broken"}; NULL without memory.
json_t *brim_cli_loading_json(const brim_run_loading *loading);
// Where samples are kept or how they come, for a person; false where nothing is to be reported.
bool brim_cli_cache_text(const brim_work_info *info, char *out, size_t size);
// Why copies from pageable memory are slower; NULL where none are made: on a device that is the host.
const char *brim_cli_pageable_text(const brim_device *device);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_LOADING_H_
