// Inside `brim top`: what the command is asked for, and the files it writes.
#ifndef BRIM_CLI_TOP_H_
#define BRIM_CLI_TOP_H_

#include "cli/cli.h"
#include "record/record_top.h"

#ifdef __cplusplus
extern "C" {
#endif

// A file that grows by what is read: --record (JSON lines) or --csv.
typedef struct brim_cli_top_file {
  const char *path;  // NULL = none; "-" = the standard output
  bool csv;
  int fd;  // -1 = not open
  bool started;
  bool torn;  // the last line of an earlier run was cut off
} brim_cli_top_file;

// What was remembered of the GPUs, read once.
enum { BRIM_CLI_TOP_GPUS = 64 };
typedef struct brim_cli_top_ceilings {
  size_t count;
  char uuid[BRIM_CLI_TOP_GPUS][64];
  double percent[BRIM_CLI_TOP_GPUS];  // NaN = nothing is known
} brim_cli_top_ceilings;
// The best matrix product as a share of the card's peak at its highest clock, in percent; NaN = unknown.
double brim_cli_top_share(const brim_top_gpu *gpu, const brim_machine_ceilings *ceilings);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TOP_H_
