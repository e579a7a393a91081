// Ranks of `brim train` and `brim profile`: processes that share one training.
#ifndef BRIM_CLI_RANKS_H_
#define BRIM_CLI_RANKS_H_

#include "cli/job/cli_job.h"

// This process as one of several ranks; NULL = it trains alone.
typedef struct brim_cli_ranks brim_cli_ranks;

// Call before reading the config, so that only one rank reports its mistakes. From here on all ranks but the first
// print only failures.
brim_status brim_cli_ranks_open(brim_cli *cli, brim_cli_ranks **out);
brim_ranks *brim_cli_ranks_get(const brim_cli_ranks *r);
// Handles a failure of this rank or of another rank: only one rank prints it.
brim_status brim_cli_ranks_failed(brim_cli *cli, brim_cli_ranks *r, brim_status status);
// Call after closing the workload and the device, which exchange data with other ranks.
void brim_cli_ranks_close(brim_cli_ranks *r);

// The number of ranks that the keys ranks, gpus and device ask for.
brim_status brim_cli_ranks_wanted(const brim_cli_job *job, int *out);
// Starts `count` processes of this command line and waits for them. If a rank failed, the status maps to its exit code.
brim_status brim_cli_ranks_launch(brim_cli *cli, int count);

#endif  // BRIM_CLI_RANKS_H_
