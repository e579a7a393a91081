// Options of a command: its own rows, and those that workloads have for it.
#include <string.h>

#include "cli/cli.h"
#include "workload/workload.h"

void brim_cli_option_tables(const brim_cli_command *command,
                            const brim_option *out[BRIM_CLI_MAX_TABLES]) {
  static const brim_option none[] = {{0}};
  const brim_workload_table *table;
  size_t n = 0;
  out[n++] = command ? command->options : none;
  for (size_t i = 0; command && (table = brim_workload_at(i)); i++) {
    for (size_t k = 0; k < table->option_count && n + 1 < BRIM_CLI_MAX_TABLES; k++) {
      if (strcmp(table->options[k].command, command->name) == 0) out[n++] = table->options[k].rows;
    }
  }
  out[n] = NULL;
}
