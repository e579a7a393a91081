// The part of `brim top` that its test calls.
#ifndef BRIM_CLI_TOP_H_
#define BRIM_CLI_TOP_H_

#include "cli/cli.h"
#include "record/record_top.h"

// The best measured matrix product in percent of the card's peak at its highest clock; NaN = unknown.
double brim_cli_top_share(const brim_top_gpu *gpu, const brim_machine_ceilings *ceilings);

#endif  // BRIM_CLI_TOP_H_
