// Inside the serve command.
#ifndef BRIM_CLI_SERVE_H_
#define BRIM_CLI_SERVE_H_

#include "cli/cli.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/pool/lab_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- cli_serve_grid.c

typedef struct brim_cli_serve_grids {
  brim_cli *cli;
  brim_gpu_monitor *monitor;  // NULL without NVML
  char gpu[96];
  brim_config_facts facts;
  brim_cli_metric_names names;
  brim_lab_grid_maker maker;
} brim_cli_serve_grids;

void brim_cli_serve_grids_open(brim_cli *cli, brim_cli_serve_grids *out);
void brim_cli_serve_grids_close(brim_cli_serve_grids *grids);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_SERVE_H_
