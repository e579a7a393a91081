// `brim help`: the overview, one command, one topic, or everything as JSON or as a man page. All of
// it is generated from the command and option tables.
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const brim_option options[] = {
    {.name = "man", .help = BRIM_N_("print the man page as roff")},
    {0},
};

static brim_term plain_term(int width) { return (brim_term){.width = width}; }

// Paragraphs, one per line of `text`, each wrapped.
static void paragraphs(const char *text, int indent, int width, brim_str *out) {
  brim_term term = plain_term(width);
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str line;
    brim_str_init(&line);
    brim_str_append_n(&line, text, n);
    brim_str_repeat(out, ' ', (size_t)indent);
    brim_ui_wrap(out, &term, line.data, indent);
    brim_str_append_char(out, '\n');
    if (brim_str_status(&line) && !out->status) out->status = line.status;
    brim_str_deinit(&line);
    text += n + (text[n] == '\n');
    if (*text) brim_str_append_char(out, '\n');
  }
}

static void usage(const brim_cli_command *command, int width, brim_str *out) {
  const char *text = command->usage;
  const char *head = brim_tr("Usage:");
  brim_term term = plain_term(width);
  int indent = brim_utf8_width(head) + 1;
  bool first = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, "brim %s %.*s", command->name, (int)n, text);
    if (first) {
      brim_str_printf(out, "%s ", head);
    } else {
      brim_str_repeat(out, ' ', (size_t)indent);
    }
    brim_ui_wrap(out, &term, line.data, indent);
    brim_str_append_char(out, '\n');
    if (brim_str_status(&line) && !out->status) out->status = line.status;
    brim_str_deinit(&line);
    first = false;
    text += n + (text[n] == '\n');
  }
}

// "comment\ncommand\n" pairs.
static void examples(const char *text, brim_str *out) {
  bool comment = true;
  while (*text) {
    size_t n = strcspn(text, "\n");
    brim_str_printf(out, comment ? "  # %.*s\n" : "  %.*s\n", (int)n, text);
    comment = !comment;
    text += n + (text[n] == '\n');
  }
}

void brim_cli_help_command(const brim_cli_command *command, int width, brim_str *out) {
  const brim_option *tables[BRIM_CLI_MAX_TABLES + 1];
  size_t n = 0;
  brim_cli_option_tables(command, tables);
  while (tables[n]) n++;
  tables[n++] = brim_cli_global_options();
  tables[n] = NULL;
  brim_str about, shown;
  brim_str_init(&about);
  brim_str_init(&shown);
  brim_cli_command_about(command, &about);
  brim_cli_command_examples(command, &shown);
  usage(command, width, out);
  brim_str_append_char(out, '\n');
  paragraphs(about.data ? about.data : "", 0, width, out);
  brim_str_append_char(out, '\n');
  brim_option_help(tables, width, out);
  if (shown.len > 0) {
    brim_str_printf(out, "\n%s\n", brim_tr("Examples:"));
    examples(shown.data, out);
  }
  if (!out->status) out->status = about.status ? about.status : shown.status;
  brim_str_deinit(&about);
  brim_str_deinit(&shown);
}

void brim_cli_help_overview(const brim_cli_command *const *commands, int width, brim_str *out) {
  brim_term term = plain_term(width);
  const brim_option *tables[] = {brim_cli_global_options(), NULL};
  brim_ui_wrap(out, &term,
               brim_tr("brim makes training fast: it shows why training is slow, finds the fastest "
                       "settings that fit in memory, and trains with them."),
               0);
  brim_str_printf(out, "\n\n%s brim COMMAND [OPTIONS]\n\n%s\n", brim_tr("Usage:"),
                  brim_tr("Commands:"));
  for (const brim_cli_command *const *c = commands; *c; c++) {
    brim_str_printf(out, "  %-14s%s\n", (*c)->name, brim_tr((*c)->summary));
  }
  brim_str_printf(out, "\n%s\n", brim_tr("Topics (brim help TOPIC):"));
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    const brim_cli_topic topic = brim_cli_topic_at(i);
    brim_str_printf(out, "  %-14s%s\n", topic.name, brim_tr(topic.summary));
  }
  brim_str_append_char(out, '\n');
  brim_option_help(tables, width, out);
  brim_str_printf(out, "\n%s\n", brim_tr("brim COMMAND --help describes one command."));
}

//---------------------------------- JSON ----------------------------------

static brim_status put_text(json_t *object, const char *key, const char *text) {
  return brim_json_put(object, key, text ? json_string(brim_tr(text)) : json_null());
}

// Names are for programs: they are the same in every language.
static brim_status put_name(json_t *object, const char *key, const char *name) {
  return brim_json_put(object, key, name ? json_string(name) : json_null());
}

static brim_status put_names(json_t *object, const char *key, const char *const *names) {
  BRIM_TRY(brim_json_put(object, key, json_array()));
  json_t *list = json_object_get(object, key);
  for (; names && *names; names++) BRIM_TRY(brim_json_push(list, json_string(*names)));
  return BRIM_OK;
}

static brim_status put_options(json_t *list, const brim_option *table) {
  static const char *const kinds[BRIM_OPTION_KIND_COUNT] = {"flag",  "string", "int",
                                                            "float", "bytes",  "enum"};
  for (const brim_option *o = table; o->name; o++) {
    json_t *item = json_object();
    char letter[2] = {o->short_name, '\0'};
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_name(item, "name", o->name));
    BRIM_TRY(put_name(item, "short", o->short_name ? letter : NULL));
    BRIM_TRY(put_name(item, "kind", kinds[o->kind]));
    BRIM_TRY(brim_json_put(item, "multiple", json_boolean(o->multiple)));
    BRIM_TRY(put_text(item, "help", o->help));
    BRIM_TRY(put_name(item, "key", o->key));
    BRIM_TRY(put_name(item, "default", o->default_text));
    BRIM_TRY(put_names(item, "aliases", o->aliases));
    BRIM_TRY(put_names(item, "choices", o->choices));
  }
  return BRIM_OK;
}

static brim_status fill_json(const brim_cli_command *const *commands, json_t *root) {
  BRIM_TRY(put_name(root, "version", BRIM_VERSION));
  BRIM_TRY(brim_json_put(root, "commands", json_array()));
  json_t *list = json_object_get(root, "commands");
  for (const brim_cli_command *const *c = commands; *c; c++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_name(item, "name", (*c)->name));
    BRIM_TRY(put_text(item, "summary", (*c)->summary));
    const brim_option *tables[BRIM_CLI_MAX_TABLES];
    brim_cli_option_tables(*c, tables);
    BRIM_TRY(brim_json_put(item, "options", json_array()));
    for (size_t i = 0; tables[i]; i++) {
      BRIM_TRY(put_options(json_object_get(item, "options"), tables[i]));
    }
  }
  BRIM_TRY(brim_json_put(root, "options", json_array()));
  return put_options(json_object_get(root, "options"), brim_cli_global_options());
}

brim_status brim_cli_help_json(brim_cli *cli) {
  json_t *root = json_object();
  brim_status status = fill_json(cli->commands, root);
  if (status) {
    json_decref(root);
    return status;
  }
  return brim_cli_json(cli, root);
}

//---------------------------------- the command ----------------------------------

static brim_status unknown(brim_cli *cli, const char *word) {
  const char *names[64];
  size_t n = 0;
  for (const brim_cli_command *const *c = cli->commands; *c && n < 31; c++) {
    names[n++] = (*c)->name;
  }
  for (size_t i = 0; i < brim_cli_topic_count() && n < 63; i++) {
    names[n++] = brim_cli_topic_at(i).name;
  }
  names[n] = NULL;
  const char *near = brim_nearest(word, names);
  // the start of a name says more than its distance: exit-codes for exit
  for (size_t i = 0; !near && *word && i < n; i++) {
    if (brim_str_starts(names[i], word)) near = names[i];
  }
  if (near) {
    return brim_cli_usage(cli, BRIM_N_("no command or topic '%.100s'; did you mean '%s'?"), word,
                          near);
  }
  return brim_cli_usage(cli, BRIM_N_("no command or topic '%.100s'; brim help lists them all"),
                        word);
}

static brim_status write_help(brim_cli *cli, const char *word, int width, brim_str *out) {
  if (!word) {
    brim_cli_help_overview(cli->commands, width, out);
    return BRIM_OK;
  }
  // A word may be both: `config` is a command and a topic.
  const brim_cli_command *command = brim_cli_command_find(cli->commands, word);
  brim_cli_topic topic = {.name = NULL};
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    if (strcmp(brim_cli_topic_at(i).name, word) == 0) topic = brim_cli_topic_at(i);
  }
  if (!command && !topic.name) return unknown(cli, word);
  if (command) brim_cli_help_command(command, width, out);
  if (command && topic.name) brim_str_append_char(out, '\n');
  if (topic.name) brim_cli_topic_write(&topic, width, out);
  return BRIM_OK;
}

static brim_status run(brim_cli *cli) {
  if (cli->parse.positional_count > 1) {
    return brim_cli_usage(cli, BRIM_N_("help takes one command or topic"));
  }
  if (cli->json) return brim_cli_help_json(cli);
  int width = cli->out.width ? cli->out.width : 80;
  if (width > 100) width = 100;
  brim_str text;
  brim_str_init(&text);
  const char *word = cli->parse.positional_count ? cli->parse.positional[0] : NULL;
  brim_status status = brim_option_flag(&cli->parse, "man", false)
                           ? brim_cli_man(cli->commands, &text)
                           : write_help(cli, word, width, &text);
  if (!status) status = brim_str_status(&text);
  if (!status) brim_cli_print(cli, &text);
  brim_str_deinit(&text);
  return status;
}

const brim_cli_command brim_cli_help = {
    .name = "help",
    .summary = BRIM_N_("explain a command or a topic"),
    .usage = "[COMMAND|TOPIC] [--man] [--json]",
    .about = BRIM_N_(
        "Explains a command or a topic. --json prints every command and option as one JSON value."),
    .examples = "",
    .options = options,
    .run = run,
};
