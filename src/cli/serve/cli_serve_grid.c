// What the server has to know to expand a grid as `brim sweep` does: workloads, and the GPUs of this machine.
#include "cli/serve/cli_serve.h"

#include <stdio.h>
#include <string.h>

#include "cli/sweep/cli_sweep.h"

static brim_status describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  brim_cli_serve_grids *g = (brim_cli_serve_grids *)ctx;
  g->names.count = 0;  // the grid copies the name
  return brim_cli_sweep_describe(&g->names, point, out);
}

static brim_status needs(void *ctx, const brim_lab_grid *grid, brim_store_point *points) {
  brim_cli_serve_grids *g = (brim_cli_serve_grids *)ctx;
  union {
    const brim_lab_grid *in;
    brim_lab_grid *out;
  } same = {grid};  // it is only read
  const brim_cli_sweep_job job = {.cli = g->cli, .grid = same.out, .monitor = g->monitor};
  return brim_cli_sweep_needs(&job, points);
}

static bool find_metric(void *ctx, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  return brim_cli_sweep_metric(key, out);
}

void brim_cli_serve_grids_open(brim_cli *cli, brim_cli_serve_grids *out) {
  memset(out, 0, sizeof *out);
  out->cli = cli;
  if (brim_gpu_monitor_open(&out->monitor)) brim_status_clear();
  brim_cli_sweep_facts(out->monitor, out->gpu, &out->facts);
  // A machine that runs no experiments does not know what they need elsewhere.
  bool runs = !brim_option_flag(&cli->parse, "server-only", false);
  out->maker = (brim_lab_grid_maker){.facts = &out->facts,
                                     .describe = describe,
                                     .needs = runs ? needs : NULL,
                                     .metric = find_metric,
                                     .stop = cli->stop,
                                     .ctx = out};
}

void brim_cli_serve_grids_close(brim_cli_serve_grids *grids) {
  brim_gpu_monitor_close(grids->monitor);
}
