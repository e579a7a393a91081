// `brim sweep execute`, started by the sweep and not by people.
#include "cli/sweep/cli_sweep.h"

brim_status brim_cli_sweep_execute(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "execute");
}
