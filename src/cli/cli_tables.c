// Options and help of a command: its own, and those that workloads have for it.
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
      const brim_work_options *o = &table->options[k];
      if (o->rows && strcmp(o->command, command->name) == 0) out[n++] = o->rows;
    }
  }
  out[n] = NULL;
}

// Texts of workloads behind the command's own, each on lines of its own.
static void put_texts(const brim_cli_command *command, bool examples, brim_str *out) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    for (size_t k = 0; k < table->option_count; k++) {
      const brim_work_options *o = &table->options[k];
      const char *text = examples ? o->examples : o->about;
      if (!text || strcmp(o->command, command->name) != 0) continue;
      if (out->len > 0 && out->data[out->len - 1] != '\n') brim_str_append_char(out, '\n');
      brim_str_append(out, brim_tr(text));
    }
  }
}

void brim_cli_command_about(const brim_cli_command *command, brim_str *out) {
  brim_str_append(out, brim_tr(command->about));
  put_texts(command, false, out);
}

void brim_cli_command_examples(const brim_cli_command *command, brim_str *out) {
  if (command->examples[0]) brim_str_append(out, brim_tr(command->examples));
  put_texts(command, true, out);
}
