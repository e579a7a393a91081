// `brim sweep status`, `export` and `log`.
#include "cli/sweep/cli_sweep.h"

brim_status brim_cli_sweep_status(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "status");
}

brim_status brim_cli_sweep_export(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "export");
}

brim_status brim_cli_sweep_log(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "log");
}
