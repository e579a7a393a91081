// Inside `brim train`: ranks. cli_train.c opens them before anything else.
#ifndef BRIM_CLI_TRAIN_RANKS_H_
#define BRIM_CLI_TRAIN_RANKS_H_

#include "cli/job/cli_job.h"

#ifdef __cplusplus
extern "C" {
#endif

// This process among its ranks; NULL = alone.
typedef struct brim_cli_ranks brim_cli_ranks;

// Before the config is read, so that its mistakes are reported once. Ranks beyond the first print nothing
// from here on, but failures.
brim_status brim_cli_ranks_open(brim_cli *cli, brim_cli_ranks **out);
brim_ranks *brim_cli_ranks_get(const brim_cli_ranks *r);
// A failure of this rank or of another one: prints it here, or leaves that to the rank that does.
brim_status brim_cli_ranks_failed(brim_cli *cli, brim_cli_ranks *r, brim_status status);
// Behind everything that exchanges: the device, the workload.
void brim_cli_ranks_close(brim_cli_ranks *r);

// How many ranks the keys ranks, gpus and device ask for.
brim_status brim_cli_ranks_wanted(const brim_cli_job *job, int *out);
// Starts that many processes of this command line and waits for them (cli_train.c). The status has
// the exit code of the rank that failed.
brim_status brim_cli_ranks_launch(brim_cli *cli, int count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_TRAIN_RANKS_H_
