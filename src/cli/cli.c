// Dispatch: the command table, finding the command on the command line, and the steps before and after it runs.

#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_thread.h"
#include "data/data.h"
#include "lab/store/lab_store.h"
#include "workload/workload.h"

//------------------------------------- options -------------------------------------

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

static const char *const colour_choices[] = {"auto", "always", "never", NULL};
static const char *const lang_choices[] = {"en", "ko", NULL};
static const char *const colour_aliases[] = {"colour", NULL};

static const brim_option global_options[] = {
    {.name = "help",
     .short_name = 'h',
     .help = BRIM_N_("show this help"),
     .group = BRIM_N_("Global options")},
    {.name = "version", .help = BRIM_N_("show the version"), .group = BRIM_N_("Global options")},
    {.name = "json",
     .help = BRIM_N_("print JSON lines on stdout and nothing else"),
     .group = BRIM_N_("Global options")},
    {.name = "quiet",
     .short_name = 'q',
     .help = BRIM_N_("print only the final result and errors"),
     .group = BRIM_N_("Global options")},
    {.name = "verbose",
     .short_name = 'v',
     .help = BRIM_N_("log each action to stderr"),
     .group = BRIM_N_("Global options")},
    {.name = "color",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "WHEN",
     .help = BRIM_N_("use colour in the output"),
     .default_text = "auto",
     .choices = colour_choices,
     .aliases = colour_aliases,
     .group = BRIM_N_("Global options")},
    {.name = "log-json",
     .help = BRIM_N_("log to stderr as JSON lines"),
     .group = BRIM_N_("Global options")},
    {.name = "plugin",
     .kind = BRIM_OPTION_STRING,
     .metavar = "SO",
     .help = BRIM_N_("load this plug-in as well (may be repeated)"),
     .group = BRIM_N_("Global options")},
    {.name = "allow-plugins",
     .help = BRIM_N_("load the plug-ins that the config names: they run as part of brim"),
     .group = BRIM_N_("Global options")},
    {.name = "lang",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "LANG",
     .help = BRIM_N_("language of messages (default: from LC_ALL, LC_MESSAGES or LANG)"),
     .choices = lang_choices,
     .group = BRIM_N_("Global options")},
    {0},
};

const brim_option *brim_cli_global_options(void) { return global_options; }

const brim_cli_command *brim_cli_command_find(const brim_cli_command *const *commands,
                                              const char *name) {
  for (const brim_cli_command *const *c = commands; *c; c++) {
    if (strcmp((*c)->name, name) == 0) return *c;
  }
  return NULL;
}

//------------------------------------------- dispatch -------------------------------------------

const brim_cli_command *const *brim_cli_commands(void) {
  static const brim_cli_command *const commands[] = {
      &brim_cli_init,       &brim_cli_train,   &brim_cli_eval_command,
      &brim_cli_predict,    &brim_cli_export,  &brim_cli_render,
      &brim_cli_bench,      &brim_cli_profile, &brim_cli_sweep,
      &brim_cli_serve,      &brim_cli_worker,  &brim_cli_report,
      &brim_cli_compare,    &brim_cli_top,     &brim_cli_data_command,
      &brim_cli_config,     &brim_cli_doctor,  &brim_cli_version,
      &brim_cli_completion, &brim_cli_help,    NULL};
  return commands;
}

//---------------------------------- finding the command ----------------------------------

// Compares option names as base_option does: '_' and '-' are the same.
static bool same_name(const char *a, const char *b) {
  for (; *a && *b; a++, b++) {
    if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_'))) return false;
  }
  return *a == *b;
}

// Does the word "--NAME" name the option, by its name or an alias?
static bool is_option(const brim_option *o, const char *word) {
  bool same = same_name(o->name, word + 2);
  for (const char *const *a = o->aliases; a && *a; a++) same = same || same_name(*a, word + 2);
  return same;
}

// Is the word a global option that takes the next word as its value? Global options may come before the command.
static bool takes_next(const char *word) {
  if (word[0] != '-' || word[1] != '-' || strchr(word, '=')) return false;
  for (const brim_option *o = brim_cli_global_options(); o->name; o++) {
    if (is_option(o, word)) return o->kind != BRIM_OPTION_FLAG;
  }
  return false;
}

// Index of the command's name; 0 if there is none.
static int find_command(int argc, const char *const *argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--") == 0) return 0;
    if (argv[i][0] != '-') return i;
    if (takes_next(argv[i])) i++;
  }
  return 0;
}

// Checks that options of workloads lie within their bounds.
static brim_status check_bounds(brim_cli *cli) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    for (size_t k = 0; k < table->option_count; k++) {
      const brim_work_options *o = &table->options[k];
      if (!o->bounded || strcmp(o->command, cli->command->name) != 0) continue;
      int64_t value = brim_option_int(&cli->parse, o->bounded, o->least);
      if (value >= o->least && value <= o->most) continue;
      return brim_cli_usage(cli, BRIM_N_("--%s must be from %d to %d"), o->bounded, o->least,
                            o->most);
    }
  }
  return BRIM_OK;
}

// Is the word an option of the command that takes several values?
static bool takes_several(const brim_cli_command *command, const char *word) {
  if (!command || word[0] != '-' || word[1] != '-' || strchr(word, '=')) return false;
  const brim_option *tables[BRIM_CLI_MAX_TABLES];
  brim_cli_option_tables(command, tables);
  for (size_t i = 0; tables[i]; i++) {
    for (const brim_option *o = tables[i]; o->name; o++) {
      if (is_option(o, word)) return o->multiple;
    }
  }
  return false;
}

// Is the word an override or a config file? Then it is no value of a list.
static bool stands_alone(const char *word) {
  return word[0] != '-' &&
         (strchr(word, '=') || brim_str_ends(word, ".yaml") || brim_str_ends(word, ".yml"));
}

typedef struct word_list {
  const char **words, **front;  // front: words to put first. Each array has room for all words
  size_t count, front_count;
  char *text, *free_text;  // copies of words that were split
} word_list;

// Adds "64,128" as two words. Adds a word of nothing but commas unchanged: the parser reports it.
static void add_values(word_list *list, const char *word) {
  size_t before = list->count;
  for (const char *p = word; *p;) {
    size_t n = strcspn(p, ",");
    if (n > 0) {
      list->words[list->count++] = list->free_text;
      memcpy(list->free_text, p, n);
      list->free_text[n] = '\0';
      list->free_text += n + 1;
    }
    p += n + (p[n] == ',');
  }
  if (list->count == before) list->words[list->count++] = word;
}

// Adds --batch-sizes=64,128 as --batch-sizes 64 128; false if the word is something else.
static bool add_joined(const brim_cli_command *command, word_list *list, const char *word) {
  const char *equals = strchr(word, '=');
  if (word[0] != '-' || !equals || !strchr(equals, ',')) return false;
  size_t n = (size_t)(equals - word);
  memcpy(list->free_text, word, n);
  list->free_text[n] = '\0';
  if (!takes_several(command, list->free_text)) return false;
  list->words[list->count++] = list->free_text;
  list->free_text += n + 1;
  add_values(list, equals + 1);
  return true;
}

// Gathers the words without the program and the command. In `--batch-sizes 64 128 x.yaml key=value` the last two words
// are no values of the list: they move to the front, where no option can take them.
static void gather_words(const brim_cli *cli, int command, word_list *list) {
  bool several = false;
  for (int i = 1; i < cli->argc; i++) {
    const char *word = cli->argv[i];
    if (i == command) continue;
    if (strcmp(word, "--") == 0) {
      while (i < cli->argc) list->words[list->count++] = cli->argv[i++];
      break;
    }
    if (several && stands_alone(word)) {
      list->front[list->front_count++] = word;
      continue;
    }
    if (several && word[0] != '-') {
      add_values(list, word);
      continue;
    }
    if (word[0] == '-') several = takes_several(cli->command, word);
    if (add_joined(cli->command, list, word)) {
      several = true;
      continue;
    }
    list->words[list->count++] = word;
  }
  memmove(list->words + list->front_count, list->words, list->count * sizeof *list->words);
  memcpy(list->words, list->front, list->front_count * sizeof *list->words);
  list->count += list->front_count;
}

// Allocates room: a comma or '=' makes at most one more word.
static brim_status word_list_init(word_list *list, int argc, const char *const *argv) {
  size_t bytes = 1, words = (size_t)argc + 1;
  for (int i = 1; i < argc; i++) {
    bytes += strlen(argv[i]) + 2;
    for (const char *c = argv[i]; *c; c++) words += *c == ',' || *c == '=';
  }
  *list = (word_list){0};
  list->words = brim_calloc(2 * words, sizeof *list->words);
  list->text = list->free_text = brim_alloc(bytes);
  if (list->words) list->front = list->words + words;
  if (list->words && list->text) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory while reading the command line");
}

static void word_list_deinit(word_list *list) {
  brim_free(list->words);
  brim_free(list->text);
}

brim_status brim_cli_run_verb(brim_cli *cli, const brim_cli_verb *verbs, const char *missing,
                              const char *unknown) {
  const char *names[16];
  size_t n = 0;
  const char *word = cli->parse.positional_count ? cli->parse.positional[0] : NULL;
  if (!word) return brim_cli_usage(cli, "%s", brim_tr(missing));
  for (; verbs[n].name; n++) {
    if (strcmp(verbs[n].name, word) == 0) return verbs[n].run(cli);
    names[n] = verbs[n].name;
  }
  names[n] = NULL;
  const char *near = brim_nearest(word, names);
  return brim_cli_usage(cli, unknown, word, near ? near : names[0]);
}

static brim_status unknown_command(brim_cli *cli, const char *word) {
  const char *names[32];
  size_t n = 0;
  for (const brim_cli_command *const *c = cli->commands; *c && n < 31; c++) {
    names[n++] = (*c)->name;
  }
  names[n] = NULL;
  const char *near = brim_nearest(word, names);
  if (near) {
    return brim_cli_usage(cli, BRIM_N_("unknown command '%.100s'; did you mean '%s'?"), word, near);
  }
  return brim_cli_usage(cli, BRIM_N_("unknown command '%.100s'; brim help lists them all"), word);
}

//---------------------------------- before and after ----------------------------------

static void setup_terminals(brim_cli *cli, const char *when) {
  brim_ui_colour colour = strcmp(when, "always") == 0  ? BRIM_UI_COLOUR_ALWAYS
                          : strcmp(when, "never") == 0 ? BRIM_UI_COLOUR_NEVER
                                                       : BRIM_UI_COLOUR_AUTO;
  brim_term_detect(STDOUT_FILENO, colour, &cli->out);
  brim_term_detect(STDERR_FILENO, colour, &cli->err);
}

static void setup_output(brim_cli *cli) {
  setup_terminals(cli, brim_option_string(&cli->parse, "color", "auto"));
  cli->json = brim_option_flag(&cli->parse, "json", false);
  cli->quiet = brim_option_flag(&cli->parse, "quiet", false);
  cli->verbose = brim_option_flag(&cli->parse, "verbose", false);
  brim_cli_log(cli);
}

static brim_status show_version(brim_cli *cli) {
  if (cli->json) return brim_cli_version.run(cli);
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "brim %s\n", BRIM_VERSION);
  return brim_cli_finish_text(cli, &text, BRIM_OK);
}

// Makes the words after "--" positional arguments, even those with a dash. The parser has room for all words.
static void take_rest(brim_option_parse *parse) {
  for (size_t i = 0; i < parse->rest_count; i++) {
    parse->positional[parse->positional_count++] = parse->rest[i];
  }
  parse->rest_count = 0;
}

static brim_status parse_and_run(brim_cli *cli, const char **words, size_t count) {
  const brim_option *tables[BRIM_CLI_MAX_TABLES + 1];
  size_t n = 0;
  brim_cli_option_tables(cli->command, tables);
  while (tables[n]) n++;
  tables[n++] = brim_cli_global_options();
  tables[n] = NULL;
  brim_status status = brim_option_parse_args(tables, (int)count, words, &cli->parse);
  if (status) {
    cli->usage_error = status == BRIM_EINVAL;
    for (size_t i = 0; i < count; i++) cli->json = cli->json || !strcmp(words[i], "--json");
    return status;
  }
  take_rest(&cli->parse);
  setup_output(cli);
  const bool help = brim_option_flag(&cli->parse, "help", false);
  if (!help && brim_option_flag(&cli->parse, "version", false)) return show_version(cli);
  if (help || !cli->command) return brim_cli_show_help(cli);
  BRIM_TRY(check_bounds(cli));
  static const volatile sig_atomic_t never;
  brim_cli_interrupt interrupt = cli->command->interrupt;
  cli->stop =
      interrupt == BRIM_CLI_ENDS ? &never : brim_cli_signals(!cli->quiet && !cli->json, interrupt);
  brim_stop_watch(cli->stop);
  return cli->command->run(cli);
}

static brim_status find_and_run(brim_cli *cli, word_list *list) {
  int at = find_command(cli->argc, cli->argv);
  if (at) cli->command = brim_cli_command_find(cli->commands, cli->argv[at]);
  gather_words(cli, at, list);
  if (!at || cli->command) return parse_and_run(cli, list->words, list->count);
  brim_status status = unknown_command(cli, cli->argv[at]);
  for (size_t i = 0; i < list->count; i++) cli->json |= strcmp(list->words[i], "--json") == 0;
  return status;
}

static brim_status dispatch(brim_cli *cli) {
  word_list list;
  brim_status status = word_list_init(&list, cli->argc, cli->argv);
  if (!status) status = find_and_run(cli, &list);
  if (status && !cli->error_reported) brim_cli_error(cli, status);
  brim_option_parse_deinit(&cli->parse);
  word_list_deinit(&list);
  return status;
}

// Sets the language before parsing, so that errors in the command line are translated too. The parser reports an
// unknown language.
static void setup_language(int argc, const char *const *argv) {
  const char *name = brim_msg_language_of(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG"));
  brim_msg_set_language(name);
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strncmp(argv[i], "--lang=", 7) == 0) {
      brim_msg_set_language(argv[i] + 7);
    } else if (strcmp(argv[i], "--lang") == 0 && i + 1 < argc) {
      brim_msg_set_language(argv[++i]);
    }
  }
}

// Reads --color before parsing, so that it also applies to errors in the command line. The last --color counts, as in
// the parser.
static const char *typed_colour(int argc, const char *const *argv) {
  static const char *const names[] = {"--color", "--colour"};
  const char *when = "auto";
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
      size_t n = strlen(names[k]);
      if (strncmp(argv[i], names[k], n) != 0) continue;
      if (argv[i][n] == '=') when = argv[i] + n + 1;
      if (argv[i][n] == '\0' && i + 1 < argc) when = argv[i + 1];
    }
  }
  return when;
}

// For tests: BRIM_ALLOC_FAIL=n makes allocation n fail, "n+" every allocation from n on.
static void setup_alloc_failures(void) {
  const char *text = getenv("BRIM_ALLOC_FAIL");
  if (!text || !*text) return;
  char *end;
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (errno || end == text) return;
  brim_alloc_fail_nth(n, *end == '+');
}

// Opens /dev/null for standard files that the caller has closed (>&-): else the next file opened would take their
// number and get the output. Opens stdin only for writing and the others only for reading: using them still fails.
static void reserve_standard_files(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

const char *const *brim_cli_hide_passwords(int argc, char **argv) {
  static const char **words;  // never freed: the words are used until the end
  words = brim_calloc((size_t)argc + 1, sizeof *words);
  if (!words) return (const char *const *)argv;
  for (int i = 0; i < argc; i++) {
    char *own = brim_strdup(argv[i]);
    bool hidden = own && brim_store_star_passwords(argv[i]);
    words[i] = hidden ? own : argv[i];
    if (!hidden) brim_free(own);
  }
  return words;
}

int brim_cli_main(int argc, const char *const *argv) {
  reserve_standard_files();
  setup_alloc_failures();
  setup_language(argc, argv);
  brim_json_own_memory();
  brim_data_leave_hdf5_open();
  brim_status_clear();
  brim_cli cli = {.commands = brim_cli_commands(), .argc = argc, .argv = argv};
  brim_ui_progress_init(&cli.progress);
  setup_terminals(&cli, typed_colour(argc, argv));
  signal(SIGPIPE, SIG_IGN);
  // If the caller ignored SIGCHLD, the kernel would reap our children: their results would be lost, and their
  // numbers might belong to other processes when we signal them.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit becomes a failed write, which is cleaned up
  brim_status status = dispatch(&cli);
  int code = brim_cli_exit_of(&cli, status);
  if (cli.write_errno) {
    // Do not report a reader that went away (| head).
    if (cli.write_errno != EPIPE) {
      fprintf(stderr, "brim: %s ", brim_tr("error:"));
      fprintf(stderr, brim_tr("cannot write to standard output: %s"),
              brim_errno_text(cli.write_errno));
      fputc('\n', stderr);
    }
    if (code == 0) code = BRIM_CLI_EXIT_FAILED;
  }
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  return code;
}
