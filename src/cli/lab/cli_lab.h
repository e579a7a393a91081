// `brim compare` of stores, and the option rows that it shares with `brim report`.
#ifndef BRIM_CLI_LAB_H_
#define BRIM_CLI_LAB_H_

#include "cli/cli.h"

// Option rows: --over (settings that repeat an experiment) and --value (which value of the metric counts).
extern const char *const brim_cli_lab_values[];
#define BRIM_CLI_LAB_OPTIONS                                                              \
  {.name = "over",                                                                        \
   .kind = BRIM_OPTION_STRING,                                                            \
   .metavar = "KEY",                                                                      \
   .help = BRIM_N_("setting that repeats an experiment, repeatable: groups are over it"), \
   .default_text = "seed"},                                                               \
  {                                                                                       \
    .name = "value", .kind = BRIM_OPTION_ENUM,                                            \
    .help = BRIM_N_("which value of a metric is an experiment's result"),                 \
    .choices = brim_cli_lab_values, .default_text = "best"                                \
  }

// Runs `brim compare` of two stores, or of one store with --by.
brim_status brim_cli_lab_compare(brim_cli *cli);

#endif  // BRIM_CLI_LAB_H_
