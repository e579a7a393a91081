// `brim sweep cancel`, `pause`, `resume`, `retry`, `rerun-failed`, `priority`, `move` and `stop`.
#include "cli/sweep/cli_sweep.h"

brim_status brim_cli_sweep_cancel(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "cancel");
}

brim_status brim_cli_sweep_pause(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "pause");
}

brim_status brim_cli_sweep_resume(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "resume");
}

brim_status brim_cli_sweep_retry(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "retry");
}

brim_status brim_cli_sweep_rerun_failed(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "rerun_failed");
}

brim_status brim_cli_sweep_priority(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "priority");
}

brim_status brim_cli_sweep_move(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "move");
}

brim_status brim_cli_sweep_stop(brim_cli *cli) {
  return brim_cli_usage(cli, BRIM_N_("this version has no sweep %s"), "stop");
}
