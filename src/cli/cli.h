// The command line: the type of a command, and what all commands share: context, output, events, errors, signals,
// help. One folder per family of commands; main.c only calls brim_cli_main.
#ifndef BRIM_CLI_H_
#define BRIM_CLI_H_

#include <signal.h>

#include "base/base.h"
#include "ui/bench/ui_bench.h"

// Exit codes. X(id, code, meaning): the source of the help topic, the man page and brim_cli_exit_code.
#define BRIM_CLI_EXIT_MAP(X)                                                                     \
  X(OK, 0, BRIM_N_("done"))                                                                      \
  X(FAILED, 1, BRIM_N_("failed while running: files, data, a crashed program"))                  \
  X(USAGE, 2,                                                                                    \
    BRIM_N_("invalid input or usage: options, config, files that are missing, malformed or not " \
            "readable, places that cannot be written to; nothing was written"))                  \
  X(DEVICE, 3, BRIM_N_("the requested device, backend or precision is missing or unsupported"))  \
  X(MEMORY, 4, BRIM_N_("out of memory, on the host or on the device"))                           \
  X(RANK, 5, BRIM_N_("another rank of this training failed, and its message gives the reason"))  \
  X(REQUEUE, 75, BRIM_N_("an element of a Slurm array saved and is to run again"))               \
  X(INTERRUPTED, 130,                                                                            \
    BRIM_N_("interrupted once (Ctrl-C, SIGTERM, SIGHUP): the step was finished, the state saved"))

typedef enum brim_cli_exit {
#define X(id, code, meaning) BRIM_CLI_EXIT_##id = (code),
  BRIM_CLI_EXIT_MAP(X)
#undef X
} brim_cli_exit;

// The exit code of a status.
int brim_cli_exit_code(brim_status status);

typedef struct brim_cli brim_cli;

// The exit code of an invocation. Once the run has begun, bad input (2) becomes a failure (1). An interrupted Slurm
// task that will run again ends with 75.
int brim_cli_exit_of(const brim_cli *cli, brim_status status);

// The effect of Ctrl-C.
typedef enum brim_cli_interrupt {
  BRIM_CLI_ENDS,          // ends the process
  BRIM_CLI_STOPS,         // sets `stop`; the command stops soon
  BRIM_CLI_SAVES,         // sets `stop`; the command saves, and can be continued
  BRIM_CLI_SAVES_ALWAYS,  // as BRIM_CLI_SAVES, but ignores further signals
  BRIM_CLI_SERVES,        // stops a server that started no worker
  BRIM_CLI_SERVES_HERE,   // stops a server and the worker that it started
  BRIM_CLI_INTERRUPT_COUNT
} brim_cli_interrupt;

// brim_tr translates the texts when they are printed. `options` ends with a row whose name is NULL.
typedef struct brim_cli_command {
  const char *name;
  const char *summary;   // one line
  const char *usage;     // the words after "brim NAME"; one line per form
  const char *about;     // one line per paragraph, wrapped when printed
  const char *examples;  // "comment\ncommand\n" pairs
  const brim_option *options;
  brim_status (*run)(brim_cli *cli);
  brim_cli_interrupt interrupt;
} brim_cli_command;

// One invocation.
struct brim_cli {
  const brim_cli_command *command;
  const brim_cli_command *const
      *commands;  // all commands, NULL-terminated: for help and completion
  brim_option_parse parse;
  int argc;  // the whole command line, for records
  const char *const *argv;
  bool json, quiet, verbose;
  bool channel;        // an executor reads the events: also send those of record_channel.h
  brim_term out, err;  // stdout, stderr
  const volatile sig_atomic_t
      *stop;  // set by the first SIGINT, SIGTERM, SIGHUP or SIGUSR2, except for BRIM_CLI_ENDS
  brim_ui_progress progress;
  brim_time last_event;  // when the last "progress" event was printed
  bool usage_error;      // the mistake is on the command line: the hint points to --help
  bool error_reported;   // the failure that the command returns has been printed
  bool opened;           // device and data are open, so `brim bench --plan` can help
  bool requeue;          // interrupted, and Slurm will run it again
  bool running;          // the run has begun: a failure is no longer bad input
  brim_failure failure;  // the class in the error event; NONE = no class
  int write_errno;       // errno of the first failed write to stdout; 0 = none failed
};

// Runs the whole program; argv[0] is the program's name. Returns the exit code.
int brim_cli_main(int argc, const char *const *argv);
// Returns a copy of the words. Overwrites passwords of stores in argv itself, which other users can see.
const char *const *brim_cli_hide_passwords(int argc, char **argv);

// All commands, NULL-terminated.
const brim_cli_command *const *brim_cli_commands(void);
const brim_cli_command *brim_cli_command_find(const brim_cli_command *const *commands,
                                              const char *name);
const brim_option *brim_cli_global_options(void);

//---------------------------------- output ----------------------------------

// brim_cli_print prints results to stdout. brim_cli_note prints everything else to stderr, and nothing with --quiet or
// --json. Both remove the progress line first.
void brim_cli_print(brim_cli *cli, const brim_str *text);
// Writes bytes to stdout unchanged: an output file named "-".
void brim_cli_put_bytes(brim_cli *cli, const char *data, size_t size);
void brim_cli_note(brim_cli *cli, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Prints `text` if it and `status` are good, and deinitialises it.
brim_status brim_cli_finish_text(brim_cli *cli, brim_str *text, brim_status status);
// Appends "  label      value", as in the banner of train. Clips the value to the terminal.
void brim_cli_row(const brim_term *term, const char *label, const char *value, brim_str *out);
void brim_cli_progress(brim_cli *cli, const brim_progress *progress);
// Prints one JSON line on stdout: {"event": name, ...fields}. Consumes `fields` (NULL = none).
brim_status brim_cli_event(brim_cli *cli, const char *name, json_t *fields);
// Puts the metrics of a stage into `object` under their names in events; `values` NULL = all are null.
brim_status brim_cli_put_metrics(json_t *object, const brim_metric_set *metrics,
                                 brim_metric_stage stage, const double *values);
brim_status brim_cli_put_names(json_t *object, const char *key, const char *const *names);
// Prints one JSON value on a line of its own; consumes it.
brim_status brim_cli_json(brim_cli *cli, json_t *value);
// Like brim_cli_json, for a value that was built in steps: frees it and returns `status` if a step failed.
brim_status brim_cli_finish_json(brim_cli *cli, json_t *value, brim_status status);
brim_status brim_cli_finish_event(brim_cli *cli, const char *name, json_t *fields,
                                  brim_status status);
// Writes what the user can do about a failure; "" if the message says it, or nothing helps.
void brim_cli_hint(const brim_cli *cli, brim_status status, const char *detail, char *out,
                   size_t size);
// Prints "brim: error: ..." with a hint, and with --json also an "error" event.
void brim_cli_error(brim_cli *cli, brim_status status);
// The option that sets `key`, by the name or alias that was typed ("--batch-size"); NULL if none was.
const char *brim_cli_typed(const brim_cli *cli, const char *key, char out[64]);
// The command line as text that can be typed again, with passwords of stores hidden.
void brim_cli_command_text(const brim_cli *cli, brim_str *out);
// One word of a command, in quotes if a shell needs them.
void brim_cli_word_text(const char *word, brim_str *out);
// Fails with a mistake on the command line; the hint points to --help.
brim_status brim_cli_usage(brim_cli *cli, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Does the path exist in the folder, or below it?
bool brim_cli_is_below(const char *folder, const char *path);
// Refuses an output that names a file the command reads, or another output, before anything is written. Skips
// NULL entries.
brim_status brim_cli_check_outputs(brim_cli *cli, const char *const *read, size_t read_count,
                                   const char *const *written, size_t written_count);

// May the command write this file? BRIM_EEXIST if the file exists without --force, unless it is empty or has `mark`
// in its first 4 KiB: then brim wrote it for the same purpose. mark NULL: every existing file needs --force. "-" and
// devices are always fine.
brim_status brim_cli_check_replace(const brim_cli *cli, const char *path, const char *mark);
// The `mark` of HTML pages that brim wrote: text in the head of each.
#define BRIM_CLI_PAGE_MARK "form-action 'none'\" />\n<link rel=\"icon\" href=\"data:,\" />"

// Keeps regular files of an earlier run: results.jsonl becomes results-1.jsonl, with the first number that no
// file and none of this run's `outputs` has. All `paths` get the same number. `input` (NULL = none) is copied
// instead of renamed: the command still reads it. NULL entries are skipped. *kept: the first new name, for
// brim_free; NULL if there was nothing to keep.
brim_status brim_cli_keep_earlier(const char *const *paths, size_t count,
                                  const char *const *outputs, size_t output_count,
                                  const char *input, char **kept);

// An action of a command such as `brim data`.
typedef struct brim_cli_verb {
  const char *name;
  brim_status (*run)(brim_cli *cli);
} brim_cli_verb;
// Runs the action that the first word names; `verbs` ends with a NULL name. `missing` is the message if there is no
// word. `unknown` formats two texts: the unknown word and the nearest name.
brim_status brim_cli_run_verb(brim_cli *cli, const brim_cli_verb *verbs, const char *missing,
                              const char *unknown);

// Sends the log to stderr at the level that the options ask for; also restores it after a change.
void brim_cli_log(const brim_cli *cli);
// Logs only errors until brim_cli_log is called.
void brim_cli_log_errors(const brim_cli *cli);

//---------------------------------- signals ----------------------------------

// Installs the handlers. The first SIGINT, SIGTERM, SIGHUP or SIGUSR2 sets *stop; another one, a second or more
// later, ends the process. Ignores SIGPIPE, SIGXFSZ, and SIGHUP if the caller does (nohup). `how` chooses the
// messages.
const volatile sig_atomic_t *brim_cli_signals(bool announce, brim_cli_interrupt how);
// Changes `how` for a command with several actions. `how` must not be BRIM_CLI_ENDS.
void brim_cli_interrupt_set(brim_cli_interrupt how);

//---------------------------------- help ----------------------------------

// Prints the help of the command, or the overview if there is none. With --json: every command and option.
brim_status brim_cli_show_help(brim_cli *cli);

typedef struct brim_cli_topic {
  const char *name, *summary;
  void (*write)(int width, brim_str *out);
  const struct brim_work_topic *page;  // the page of a workload, instead of `write`; NULL = none
} brim_cli_topic;

// Topics of brim help: the topics of the program and of all workloads.
size_t brim_cli_topic_count(void);
brim_cli_topic brim_cli_topic_at(size_t index);
void brim_cli_topic_write(const brim_cli_topic *topic, int width, brim_str *out);

// The option tables of a command, NULL-terminated: its own table and the tables that workloads add.
enum { BRIM_CLI_MAX_TABLES = 16 };
void brim_cli_option_tables(const brim_cli_command *command,
                            const brim_option *out[BRIM_CLI_MAX_TABLES]);
extern const brim_cli_command brim_cli_train, brim_cli_bench, brim_cli_compare,
    brim_cli_data_command, brim_cli_config, brim_cli_version, brim_cli_help, brim_cli_completion,
    brim_cli_init, brim_cli_eval_command, brim_cli_predict, brim_cli_export, brim_cli_render,
    brim_cli_sweep, brim_cli_serve, brim_cli_worker, brim_cli_report, brim_cli_profile,
    brim_cli_top, brim_cli_doctor;

#endif  // BRIM_CLI_H_
