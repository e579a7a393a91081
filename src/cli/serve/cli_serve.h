// Inside the serve command.
#ifndef BRIM_CLI_SERVE_H_
#define BRIM_CLI_SERVE_H_

#include "cli/cli.h"
#include "cli/sweep/cli_sweep.h"
#include "lab/http/lab_http_pin.h"
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

// --- cli_serve_control.c: files that only their owner reads

// BRIM_ENOENT: it is not there. BRIM_EINVAL: others could have read or written it. brim_free.
brim_status brim_cli_read_private(const char *path, char **out);
brim_status brim_cli_write_private(const char *path, const char *text);

// How the owner's commands reach a server: serve.json in the folder of its store.
typedef struct brim_cli_control {
  char url[320], pin[BRIM_HTTP_PIN], token[BRIM_TOKEN];
} brim_cli_control;
brim_status brim_cli_control_write(const char *folder, const brim_cli_control *control);
brim_status brim_cli_control_read(const char *folder, brim_cli_control *out);
void brim_cli_control_remove(const char *folder);

// --- cli_serve_token.c: brim serve token ...

brim_status brim_cli_serve_token(brim_cli *cli, const char *place);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_SERVE_H_
