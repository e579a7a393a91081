// What commands about finished sweeps share: reading the experiments of a place with what the
// workloads know about their metrics. Callers: report, compare.
#ifndef BRIM_CLI_LAB_H_
#define BRIM_CLI_LAB_H_

#include "cli/cli.h"
#include "lab/wire/lab_wire_records.h"
#include "record/record_lab.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of options: which settings are repetitions, and which value of an experiment counts.
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

typedef struct brim_cli_lab {
  brim_lab_reader *reader;
  const brim_lab_set *set;
  char *place;  // for people: without a password
} brim_cli_lab;

brim_lab_result brim_cli_lab_result(const brim_cli *cli);
// The experiments of a place, with the options of the command.
brim_status brim_cli_lab_read(const brim_cli *cli, const char *place, brim_cli_lab *out);
void brim_cli_lab_deinit(brim_cli_lab *lab);  // zeros are fine

// `brim compare` where a word names experiments: two stores, or one with --by.
bool brim_cli_lab_is_compared(const brim_cli *cli);
brim_status brim_cli_lab_compare(brim_cli *cli);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_LAB_H_
