// The command line: what a command is, and what commands share (context, output, events, errors).
// One folder per family of commands; main.c only calls brim_cli_main. Callers: main.c and the
// tests.
#ifndef BRIM_CLI_H_
#define BRIM_CLI_H_

#include <signal.h>

#include "base/base.h"
#include "ui/bench/ui_bench.h"

#ifdef __cplusplus
extern "C" {
#endif

// Exit codes. X(id, code, meaning); the help topic, the man page and the mapping read this table.
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

// The one mapping from a status to an exit code.
int brim_cli_exit_code(brim_status status);

typedef struct brim_cli brim_cli;

// The same for one invocation: what a run that has begun meets is no bad input, whatever the status.
int brim_cli_exit_of(const brim_cli *cli, brim_status status);

// What Ctrl-C does to a command.
typedef enum brim_cli_interrupt {
  BRIM_CLI_ENDS,          // ends the process
  BRIM_CLI_STOPS,         // `stop` is set, and heard before long
  BRIM_CLI_SAVES,         // the same, and what is left can be continued
  BRIM_CLI_SAVES_ALWAYS,  // the same, and further signals change nothing
  BRIM_CLI_SERVES,        // the same of a server, whose workers are other processes
  BRIM_CLI_SERVES_HERE,   // and of one with a worker of its own
  BRIM_CLI_INTERRUPT_COUNT
} brim_cli_interrupt;

// Texts are catalogue messages. `options` ends with a row whose name is NULL.
typedef struct brim_cli_command {
  const char *name;
  const char *summary;   // one line
  const char *usage;     // what follows "brim NAME"; several forms on several lines
  const char *about;     // paragraphs, wrapped when printed
  const char *examples;  // "comment\ncommand\n" pairs
  const brim_option *options;
  brim_status (*run)(brim_cli *cli);
  brim_cli_interrupt interrupt;
} brim_cli_command;

// One invocation.
struct brim_cli {
  const brim_cli_command *command;
  const brim_cli_command *const *commands;  // all, NULL behind the last: for help and completion
  brim_option_parse parse;
  int argc;  // the whole command line, for records
  const char *const *argv;
  bool json, quiet, verbose;
  bool channel;        // an executor reads the events: those of record_channel.h too
  brim_term out, err;  // stdout, stderr
  const volatile sig_atomic_t
      *stop;  // set by the first SIGINT, SIGTERM, SIGHUP or SIGUSR2; not if it ENDS
  brim_ui_progress progress;
  brim_time last_event;  // of "progress"
  bool usage_error;      // the mistake is on the command line: point to --help
  bool error_reported;   // the failure that is returned was printed already
  bool opened;           // device and data are open: what is asked of them now can be planned
  bool requeue;          // it was interrupted, and the system that started it is to start it again
  bool running;          // files are written and steps made: what fails now failed while running
  brim_failure failure;  // of the error event; NONE = it has no class
  int write_errno;       // of the first write to stdout that failed
};

// The whole program; argv[0] is the program's name. Returns the exit code.
int brim_cli_main(int argc, const char *const *argv);
// The words, with the passwords of stores overwritten in argv itself, which other users can see.
const char *const *brim_cli_hide_passwords(int argc, char **argv);

// NULL-terminated.
const brim_cli_command *const *brim_cli_commands(void);
const brim_cli_command *brim_cli_command_find(const brim_cli_command *const *commands,
                                              const char *name);
const brim_option *brim_cli_global_options(void);

//---------------------------------- output ----------------------------------

// Write to stdout (results) and stderr (everything else); a progress line is taken off first.
void brim_cli_print(brim_cli *cli, const brim_str *text);
// Bytes of a file whose place is the standard output, as they are.
void brim_cli_put_bytes(brim_cli *cli, const char *data, size_t size);
void brim_cli_note(brim_cli *cli, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_cli_progress(brim_cli *cli, const brim_progress *progress);
// One JSON line on stdout: {"event": name, ...fields}. Consumes `fields` (NULL = none).
brim_status brim_cli_event(brim_cli *cli, const char *name, json_t *fields);
// The rows of a stage under their names in events; `values` NULL = nothing is known of it.
brim_status brim_cli_put_metrics(json_t *object, const brim_metric_set *metrics,
                                 brim_metric_stage stage, const double *values);
// One JSON value on a line of its own; consumes it.
brim_status brim_cli_json(brim_cli *cli, json_t *value);
// What to do about a failure; "" where the message says it, or nothing can be done.
void brim_cli_hint(const brim_cli *cli, brim_status status, const char *detail, char *out,
                   size_t size);
// "brim: error: ..." with a hint, and an "error" event with --json.
void brim_cli_error(brim_cli *cli, brim_status status);
// An option as it was typed ("--batch-size", also where that is an alias); NULL when it was not.
const char *brim_cli_typed(const brim_cli *cli, const char *key, char out[64]);
// The command line as one could type it again.
void brim_cli_command_text(const brim_cli *cli, brim_str *out);
// One word of a command, in quotes where a shell would read it otherwise.
void brim_cli_word_text(const char *word, brim_str *out);
// A mistake on the command line; sets the hint to --help.
brim_status brim_cli_usage(brim_cli *cli, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Do two paths name one file, be it there already or not?
bool brim_cli_same_target(const char *a, const char *b);
// Refuses an output that names a file which the command reads, or another output, before anything is
// written. NULL entries are none.
brim_status brim_cli_check_outputs(brim_cli *cli, const char *const *read, size_t read_count,
                                   const char *const *written, size_t written_count);

// May a command write this file? BRIM_EEXIST where a file is there and --force is not, unless its beginning
// has `mark`: brim wrote it for the same purpose. mark NULL: every file needs --force. "-" and devices are
// always fine.
brim_status brim_cli_check_replace(const brim_cli *cli, const char *path, const char *mark);
// What every page of brim has in its head.
#define BRIM_CLI_PAGE_MARK "form-action 'none'\" />\n<link rel=\"icon\" href=\"data:,\" />"

// Sends the log to stderr, as the options ask for it; again, for a command that took it elsewhere.
void brim_cli_log(const brim_cli *cli);

//---------------------------------- signals ----------------------------------

// First SIGINT, SIGTERM or SIGHUP sets *stop; a second one, a second or more later, ends the process
// at once. SIGPIPE and SIGXFSZ are ignored, and SIGHUP where the caller ignores it (nohup).
// `how` says what they are answered with.
const volatile sig_atomic_t *brim_cli_signals(bool announce, brim_cli_interrupt how);
// For a command that does several things: what they are answered with from now on. Not ENDS.
void brim_cli_interrupt_set(brim_cli_interrupt how);

//---------------------------------- help ----------------------------------

void brim_cli_help_command(const brim_cli_command *command, int width, brim_str *out);
void brim_cli_help_overview(const brim_cli_command *const *commands, int width, brim_str *out);
brim_status brim_cli_man(const brim_cli_command *const *commands, brim_str *out);
brim_status brim_cli_help_json(brim_cli *cli);  // every command and option, one JSON value

typedef struct brim_cli_topic {
  const char *name, *summary;
  void (*write)(int width, brim_str *out);
  const struct brim_work_topic *page;  // of a workload, instead of `write`; NULL = none
} brim_cli_topic;

// Those of the program, and those of the workloads among them.
size_t brim_cli_topic_count(void);
brim_cli_topic brim_cli_topic_at(size_t index);
void brim_cli_topic_write(const brim_cli_topic *topic, int width, brim_str *out);

// The option tables of a command, NULL-terminated: its own, and those that workloads have for it.
enum { BRIM_CLI_MAX_TABLES = 16 };
void brim_cli_option_tables(const brim_cli_command *command,
                            const brim_option *out[BRIM_CLI_MAX_TABLES]);
// Its paragraphs and examples, translated, in the same order.
void brim_cli_command_about(const brim_cli_command *command, brim_str *out);
void brim_cli_command_examples(const brim_cli_command *command, brim_str *out);

extern const brim_cli_command brim_cli_train, brim_cli_bench, brim_cli_compare,
    brim_cli_data_command, brim_cli_config, brim_cli_version, brim_cli_help, brim_cli_completion,
    brim_cli_init, brim_cli_eval_command, brim_cli_predict, brim_cli_export, brim_cli_render,
    brim_cli_sweep, brim_cli_serve, brim_cli_worker, brim_cli_report, brim_cli_profile,
    brim_cli_top, brim_cli_doctor;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CLI_H_
