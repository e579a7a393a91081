// Runs a child process to its end, without a shell: output captured, time limit, own process group.
// base_child.h has children that run beside the caller.
#ifndef BRIM_BASE_PROCESS_H_
#define BRIM_BASE_PROCESS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_process_options {
  const char *const *argv;  // NULL-terminated; argv[0] is searched in the child's PATH
  const char *const *env;   // NULL = inherit
  const char *cwd;          // NULL = inherit
  int64_t timeout_ms;       // 0 = none; past it SIGTERM, then SIGKILL after 2 s, to the group
  size_t max_output;        // bytes of stdout+stderr kept (the end); 0 = 64 KiB
  bool capture;             // false = child writes to our stdout/stderr
  // Asked a few times a second when set; true ends the child like a timeout does (the run then
  // gives BRIM_EINTERRUPTED, with the result filled in). The child has its own group, so Ctrl-C
  // reaches it only through this.
  bool (*cancelled)(void *ctx);
  void *cancel_ctx;
} brim_process_options;

typedef struct brim_process_result {
  int exit_code;  // -1 when killed by a signal
  int signal;     // 0 when it exited
  bool timed_out;
  char *output;  // captured, NUL-terminated, brim_free; NULL when not captured
  size_t output_size;
  int64_t elapsed_ns;
} brim_process_result;

// Run to the end. BRIM_OK means it ran, whatever its exit code; BRIM_ENOENT when it is not there.
brim_status brim_process_run(const brim_process_options *options, brim_process_result *result);
void brim_process_result_deinit(brim_process_result *result);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_PROCESS_H_
