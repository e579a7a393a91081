// The man page, from the same tables as the help: docs/brim.1 is `brim help --man`, and a test
// compares the two.
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

// Escapes text as roff: backslashes, dashes, and control characters at the start of a line.
static void roff_n(const char *text, size_t n, brim_str *out) {
  bool line_start = out->len == 0 || out->data[out->len - 1] == '\n';
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (line_start && (c == '.' || c == '\'')) brim_str_append(out, "\\&");
    if (c == '\\') {
      brim_str_append(out, "\\e");
    } else if (c == '-') {
      brim_str_append(out, "\\-");
    } else {
      brim_str_append_char(out, c);
    }
    line_start = c == '\n';
  }
}

static void roff(const char *text, brim_str *out) { roff_n(text, strlen(text), out); }

static void put_value(const brim_option *o, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  bool dots = o->multiple && !o->optional;  // the dots are not in italics
  if (dots) {
    brim_str_append(&text, brim_option_metavar(o));
  } else {
    brim_option_value_text(o, &text);
  }
  brim_str_append(out, " \\fI");
  roff(text.data ? text.data : "", out);
  brim_str_append(out, dots ? "\\fR..." : "\\fR");
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

static void put_option(const brim_option *o, brim_str *out) {
  brim_str_append(out, ".TP\n");
  if (o->short_name) brim_str_printf(out, "\\fB\\-%c\\fR, ", o->short_name);
  brim_str_append(out, "\\fB\\-\\-");
  if (o->negatable) roff("[no-]", out);
  roff(o->name, out);
  brim_str_append(out, "\\fR");
  bool flag = o->kind == BRIM_OPTION_FLAG;
  if (!flag || o->choices) put_value(o, out);
  brim_str_append_char(out, '\n');
  if (o->help) roff(brim_tr(o->help), out);
  if (o->choices && !flag) {
    roff(brim_tr("; one of"), out);
    for (const char *const *c = o->choices; *c; c++) {
      brim_str_append(out, c == o->choices ? " " : ", ");
      roff(*c, out);
    }
  }
  if (o->default_text) {
    brim_str_append(out, brim_tr(" (default "));
    roff(strchr(o->default_text, ' ') ? brim_tr(o->default_text) : o->default_text, out);
    brim_str_append_char(out, ')');
  }
  brim_str_append(out, ".\n");
  if (o->key) {
    brim_str_append(out, brim_tr("Sets the key "));
    brim_str_append(out, "\\fB");
    roff(o->key, out);
    brim_str_append(out, "\\fR.\n");
  }
  if (o->aliases && o->aliases[0]) {
    brim_str_append(out, brim_tr("Also"));
    for (const char *const *a = o->aliases; *a; a++) {
      brim_str_append(out, " \\fB");
      roff(strlen(*a) == 1 ? "-" : "--", out);
      roff(*a, out);
      brim_str_append(out, "\\fR");
    }
    brim_str_append(out, ".\n");
  }
}

static void put_options(const brim_option *table, brim_str *out) {
  for (const brim_option *o = table; o->name; o++) put_option(o, out);
}

static void put_lines(const char *text, const char *before, brim_str *out) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_append(out, before);
    roff_n(text, n, out);
    brim_str_append_char(out, '\n');
    text += n + (text[n] == '\n');
  }
}

static void put_examples(const char *text, brim_str *out) {
  bool comment = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_append(out, comment ? ".PP\n" : ".RS\n.nf\n");
    roff_n(text, n, out);
    brim_str_append(out, comment ? ":\n" : "\n.fi\n.RE\n");
    comment = !comment;
    text += n + (text[n] == '\n');
  }
}

static void put_command(const brim_cli_command *command, brim_str *out) {
  const char *text = command->usage;
  brim_str_printf(out, ".SS brim %s\n", command->name);
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_printf(out, ".br\n\\fBbrim %s\\fR ", command->name);
    roff_n(text, n, out);
    brim_str_append_char(out, '\n');
    text += n + (text[n] == '\n');
  }
  brim_str about;
  brim_str_init(&about);
  brim_cli_command_about(command, &about);
  put_lines(about.data ? about.data : "", ".PP\n", out);
  if (!out->status) out->status = about.status;
  brim_str_deinit(&about);
  const brim_option *tables[BRIM_CLI_MAX_TABLES];
  brim_cli_option_tables(command, tables);
  for (size_t i = 0; tables[i]; i++) put_options(tables[i], out);
}

static void put_topic(const char *name, const char *heading, brim_str *out) {
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    const brim_cli_topic topic = brim_cli_topic_at(i);
    if (strcmp(topic.name, name) != 0) continue;
    brim_str text;
    brim_str_init(&text);
    brim_cli_topic_write(&topic, 72, &text);
    brim_str_printf(out, ".SH %s\n.nf\n", heading);
    roff(text.data, out);
    brim_str_append(out, ".fi\n");
    if (brim_str_status(&text) && !out->status) out->status = text.status;
    brim_str_deinit(&text);
  }
}

static void put_heading(const char *text, brim_str *out) { brim_str_printf(out, ".SH %s\n", text); }

brim_status brim_cli_man(const brim_cli_command *const *commands, brim_str *out) {
  brim_str_append(out, ".\\\" Made by `brim help --man`; do not edit.\n");
  brim_str_printf(out, ".TH BRIM 1 \"\" \"brim %s\" \"User Commands\"\n", BRIM_VERSION);
  put_heading(brim_tr("NAME"), out);
  brim_str_append(out, "brim \\- ");
  roff(brim_tr("find the fastest training settings and train with them"), out);
  brim_str_append_char(out, '\n');
  put_heading(brim_tr("SYNOPSIS"), out);
  brim_str_append(out, "\\fBbrim\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n");
  put_heading(brim_tr("DESCRIPTION"), out);
  roff(brim_tr("brim shows why training is slow, finds the fastest settings that fit in memory, "
               "and trains with them. It runs on NVIDIA GPUs and on CPUs.\n"),
       out);
  put_heading(brim_tr("COMMANDS"), out);
  for (const brim_cli_command *const *c = commands; *c; c++) put_command(*c, out);
  put_heading(brim_tr("GLOBAL OPTIONS"), out);
  put_options(brim_cli_global_options(), out);
  put_topic("config", brim_tr("CONFIGURATION"), out);
  put_topic("components", brim_tr("COMPONENTS"), out);
  put_topic("checkpoints", brim_tr("FILES"), out);
  put_topic("exit-codes", brim_tr("EXIT STATUS"), out);
  put_topic("environment", brim_tr("ENVIRONMENT"), out);
  put_heading(brim_tr("EXAMPLES"), out);
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str text;
    brim_str_init(&text);
    brim_cli_command_examples(*c, &text);
    put_examples(text.data ? text.data : "", out);
    if (!out->status) out->status = text.status;
    brim_str_deinit(&text);
  }
  return brim_str_status(out);
}
