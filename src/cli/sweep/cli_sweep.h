// Inside the sweep command: one function per word.
#ifndef BRIM_CLI_SWEEP_H_
#define BRIM_CLI_SWEEP_H_

#include "cli/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

// positional[0] is the word itself; `run` has the grid as positional[0] instead.
brim_status brim_cli_sweep_run(brim_cli *cli);           // brim sweep GRID
brim_status brim_cli_sweep_status(brim_cli *cli);        // status [PLACE]
brim_status brim_cli_sweep_cancel(brim_cli *cli);        // cancel ID...
brim_status brim_cli_sweep_pause(brim_cli *cli);         // pause ID...
brim_status brim_cli_sweep_resume(brim_cli *cli);        // resume ID...
brim_status brim_cli_sweep_retry(brim_cli *cli);         // retry ID...
brim_status brim_cli_sweep_rerun_failed(brim_cli *cli);  // rerun-failed [PLACE]
brim_status brim_cli_sweep_priority(brim_cli *cli);      // priority ID N
brim_status brim_cli_sweep_export(brim_cli *cli);        // export [PLACE]
brim_status brim_cli_sweep_log(brim_cli *cli);           // log ID
brim_status brim_cli_sweep_move(brim_cli *cli);          // move FROM TO
brim_status brim_cli_sweep_stop(brim_cli *cli);          // stop [PLACE]
brim_status brim_cli_sweep_chaos(brim_cli *cli);         // chaos
// Started by the sweep, not by people; they take no options of their own.
brim_status brim_cli_sweep_execute(brim_cli *cli);
brim_status brim_cli_sweep_plan(brim_cli *cli);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_SWEEP_H_
