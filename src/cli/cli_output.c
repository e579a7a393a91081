// Output of the commands: results to stdout, everything else to stderr, JSON lines with --json, errors with a
// hint, exit codes; and the checks of output files before a command writes them.
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_text.h"
#include "lab/store/lab_store.h"

enum { EVENT_INTERVAL_NS = 1000000000 };

int brim_cli_exit_code(brim_status status) {
  switch (status) {
    case BRIM_OK:
      return BRIM_CLI_EXIT_OK;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_ELIMIT:
    case BRIM_EEXIST:
    case BRIM_EABI:
      return BRIM_CLI_EXIT_USAGE;
    case BRIM_EUNSUPPORTED:
    case BRIM_EDEVICE:
      return BRIM_CLI_EXIT_DEVICE;
    case BRIM_ENOMEM:
    case BRIM_EOOM:
      return BRIM_CLI_EXIT_MEMORY;
    case BRIM_EINTERRUPTED:
      return BRIM_CLI_EXIT_INTERRUPTED;
    case BRIM_ERANK:
      return BRIM_CLI_EXIT_RANK;
    case BRIM_EIO:
    case BRIM_ESTATE:
    case BRIM_EEND:
    case BRIM_ECHILD:
    case BRIM_EINTERNAL:
      break;
  }
  return BRIM_CLI_EXIT_FAILED;
}

int brim_cli_exit_of(const brim_cli *cli, brim_status status) {
  int code = brim_cli_exit_code(status);
  if (cli->requeue && code == BRIM_CLI_EXIT_INTERRUPTED) return BRIM_CLI_EXIT_REQUEUE;
  return cli->running && code == BRIM_CLI_EXIT_USAGE ? BRIM_CLI_EXIT_FAILED : code;
}

static void clear_progress(brim_cli *cli) {
  brim_str text;
  brim_str_init(&text);
  brim_ui_progress_clear(&cli->progress, &cli->err, &text);
  if (text.len) fputs(text.data, stderr);
  brim_str_deinit(&text);
}

// A failed write, to a reader that went away or a full disk, decides the exit code when the command ends.
void brim_cli_put_bytes(brim_cli *cli, const char *data, size_t size) {
  clear_progress(cli);
  errno = 0;
  bool good = fwrite(data, 1, size, stdout) == size;
  if (fflush(stdout) != 0) good = false;
  if (!good && !cli->write_errno) cli->write_errno = errno ? errno : EIO;
}

void brim_cli_print(brim_cli *cli, const brim_str *text) {
  brim_str plain;
  brim_str_init(&plain);
  bool is_plain = brim_text_is_plain(text->data, text->len);
  if (!is_plain) brim_ui_plain(&plain, &cli->out, text->data, text->len);
  if (!brim_str_status(&plain)) {
    const brim_str *shown = is_plain ? text : &plain;
    brim_cli_put_bytes(cli, shown->data, shown->len);
  } else if (!cli->write_errno) {
    cli->write_errno = ENOMEM;
  }
  brim_str_deinit(&plain);
}

brim_status brim_cli_finish_text(brim_cli *cli, brim_str *text, brim_status status) {
  if (!status) status = brim_str_status(text);
  if (!status) brim_cli_print(cli, text);
  brim_str_deinit(text);
  return status;
}

void brim_cli_row(const brim_term *term, const char *label, const char *value, brim_str *out) {
  int width = brim_utf8_width(label);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, label);
  brim_str_repeat(out, ' ', width < 11 ? (size_t)(11 - width) : 1);
  brim_ui_clip(out, term, value, term->width > 30 ? term->width - 14 : 0);
  brim_str_append_char(out, '\n');
}

static void log_to_stderr(const brim_cli *cli, brim_log_level level) {
  bool log_json = brim_option_flag(&cli->parse, "log-json", false);
  brim_log_set_sink(log_json ? brim_log_sink_json : brim_log_sink_human, stderr, level);
}

void brim_cli_log(const brim_cli *cli) {
  log_to_stderr(cli, cli->verbose ? BRIM_LOG_DEBUG : cli->quiet ? BRIM_LOG_ERROR : BRIM_LOG_WARN);
}

void brim_cli_log_errors(const brim_cli *cli) { log_to_stderr(cli, BRIM_LOG_ERROR); }

void brim_cli_note(brim_cli *cli, const char *fmt, ...) {
  if (cli->quiet || cli->json) return;
  clear_progress(cli);
  va_list args;
  va_start(args, fmt);
  brim_str text, plain;
  brim_str_init(&text);
  brim_str_init(&plain);
  brim_str_vprintf(&text, fmt, args);
  if (brim_str_status(&text) == BRIM_OK) {
    brim_ui_plain(&plain, &cli->err, text.data, text.len);
    if (brim_str_status(&plain) == BRIM_OK) fputs(plain.data, stderr);
  }
  brim_str_deinit(&plain);
  brim_str_deinit(&text);
  va_end(args);
}

static brim_status put_number(json_t *object, const char *key, double value) {
  return brim_json_put(object, key, brim_json_number(value));
}

// Puts "return.mean" as {"return": {"mean": value}}.
static brim_status put_nested(json_t *object, char *name, json_t *value) {
  char *point = strchr(name, '.');
  if (!point) return brim_json_put(object, name, value);
  *point = '\0';
  json_t *inner = json_object_get(object, name);
  if (!json_is_object(inner)) {
    BRIM_TRY(brim_json_put(object, name, json_object()));
    inner = json_object_get(object, name);
  }
  return put_nested(inner, point + 1, value);
}

brim_status brim_cli_put_metrics(json_t *object, const brim_metric_set *metrics,
                                 brim_metric_stage stage, const double *values) {
  for (size_t i = 0; i < metrics->count; i++) {
    const brim_metric *row = &metrics->rows[i];
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(row, stage, BRIM_METRIC_EVENT, name)) continue;
    if (values && (row->flags & BRIM_METRIC_OPTIONAL) && isnan(values[i])) continue;
    char *point = strchr(name, '.');
    if (!values && point) *point = '\0';  // put the whole group as null
    json_t *value = !values ? json_null()
                    : row->format == BRIM_METRIC_WHOLE && !isnan(values[i])
                        ? json_integer((json_int_t)values[i])
                        : brim_json_number(values[i]);
    BRIM_TRY(put_nested(object, name, value));
  }
  return BRIM_OK;
}

static brim_status progress_event(brim_cli *cli, const brim_progress *p) {
  json_t *fields = json_object();
  if (!fields) return BRIM_ENOMEM;
  brim_status status = brim_json_put(fields, "title", json_string(p->title ? p->title : ""));
  if (!status)
    status = brim_json_put(fields, "done", p->done < 0 ? json_null() : json_integer(p->done));
  if (!status) status = brim_json_put(fields, "total", json_integer(p->total));
  if (!status && cli->channel && p->epoch > 0) {
    status = brim_json_put(fields, "epoch", json_integer(p->epoch));
    if (!status) status = brim_json_put(fields, "epochs", json_integer(p->epochs));
    if (!status && p->done >= 0 && p->total > 0) {
      status = brim_json_put(fields, "step", json_integer((p->epoch - 1) * p->total + p->done));
    }
  }
  if (!status) status = put_number(fields, "elapsed_s", p->elapsed_s);
  if (!status) status = put_number(fields, "eta_s", p->eta_s);
  if (!status) status = put_number(fields, "rate", p->rate);
  if (!status && p->metrics) {
    status = brim_cli_put_metrics(fields, p->metrics, BRIM_METRIC_TRAIN, p->values);
  }
  json_t *shares = NULL;
  if (!status) status = brim_json_put(fields, "phases", json_object());
  if (!status) shares = json_object_get(fields, "phases");
  for (int i = 0; i < BRIM_PHASE_COUNT && !status; i++) {
    if (!(p->phase_share[i] > 0)) continue;
    status = put_number(shares, brim_phase_key((brim_phase)i), p->phase_share[i]);
  }
  return brim_cli_finish_event(cli, "progress", fields, status);
}

void brim_cli_progress(brim_cli *cli, const brim_progress *progress) {
  if (cli->quiet) return;
  brim_time now = brim_clock_now();
  if (cli->json) {
    if (cli->last_event.ns && brim_time_since_ns(cli->last_event, now) < EVENT_INTERVAL_NS) return;
    cli->last_event = now;
    // A failure to report progress does not stop the run.
    if (progress_event(cli, progress)) brim_status_clear();
    return;
  }
  brim_str text;
  brim_str_init(&text);
  brim_ui_progress_update(&cli->progress, &cli->err, progress, now, &text);
  if (text.len) {
    fputs(text.data, stderr);
    fflush(stderr);
  }
  brim_str_deinit(&text);
}

brim_status brim_cli_json(brim_cli *cli, json_t *value) {
  if (!value) return brim_fail(BRIM_ENOMEM, "out of memory while writing JSON");
  char *text = NULL;
  brim_status status = brim_json_dump(value, 0, &text);
  json_decref(value);
  if (status) return status;
  brim_str line;
  brim_str_init(&line);
  brim_str_printf(&line, "%s\n", text);
  brim_free(text);
  status = brim_str_status(&line);
  if (!status) brim_cli_print(cli, &line);  // one write: lines of several processes stay whole
  brim_str_deinit(&line);
  return status;
}

brim_status brim_cli_put_names(json_t *object, const char *key, const char *const *names) {
  BRIM_TRY(brim_json_put(object, key, json_array()));
  json_t *list = json_object_get(object, key);
  for (; names && *names; names++) BRIM_TRY(brim_json_push(list, json_string(*names)));
  return BRIM_OK;
}

brim_status brim_cli_finish_json(brim_cli *cli, json_t *value, brim_status status) {
  if (!status) return brim_cli_json(cli, value);
  json_decref(value);
  return status;
}

brim_status brim_cli_finish_event(brim_cli *cli, const char *name, json_t *fields,
                                  brim_status status) {
  if (!status) return brim_cli_event(cli, name, fields);
  json_decref(fields);
  return status;
}

brim_status brim_cli_event(brim_cli *cli, const char *name, json_t *fields) {
  brim_json_setup();
  json_t *event = json_object();
  brim_status status = brim_json_put(event, "event", json_string(name));
  if (!status) status = put_number(event, "t", brim_clock_wall_s());
  const char *key;
  json_t *value;
  json_object_foreach(fields, key, value) {
    if (!status) status = brim_json_put(event, key, json_incref(value));
  }
  json_decref(fields);
  return brim_cli_finish_json(cli, event, status);
}

//---------------------------------- errors ----------------------------------

brim_status brim_cli_usage(brim_cli *cli, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_tr(fmt), args);
  va_end(args);
  brim_utf8_trim(text);
  cli->usage_error = true;
  brim_status_set_detail(text);
  return BRIM_EINVAL;
}

static bool was_typed(const brim_cli *cli, const char *name) {
  size_t n = strlen(name);
  for (int i = 1; i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++) {
    const char *word = cli->argv[i];
    if (!brim_str_starts(word, "--") || strncmp(word + 2, name, n) != 0) continue;
    if (word[2 + n] == '\0' || word[2 + n] == '=') return true;
  }
  return false;
}

const char *brim_cli_typed(const brim_cli *cli, const char *key, char out[64]) {
  for (size_t i = cli->parse.count; i > 0; i--) {
    const brim_option *option = cli->parse.items[i - 1].option;
    if (!option->key || strcmp(option->key, key) != 0) continue;
    const char *name = option->name;
    for (const char *const *a = option->aliases; a && *a; a++) {
      if (was_typed(cli, *a)) name = *a;
    }
    snprintf(out, 64, "--%s", name);
    return out;
  }
  return NULL;
}

// Does the message end with the error of a full disk? Such a message does not say what to do.
static bool no_room(const char *detail) {
  static const int errors[] = {ENOSPC, EDQUOT, EFBIG};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (brim_str_ends(detail, brim_errno_text(errors[i]))) return true;
  }
  return false;
}

// Gives only hints that help. BRIM_EUNSUPPORTED gets none, since another device may not help. A data set too large to
// open gets none, since it has no plan.
void brim_cli_hint(const brim_cli *cli, brim_status status, const char *detail, char *out,
                   size_t size) {
  out[0] = '\0';
  if (cli->usage_error && cli->command) {
    snprintf(out, size, brim_tr("run brim %s --help for usage"), cli->command->name);
  } else if (cli->usage_error) {
    snprintf(out, size, "%s", brim_tr("run brim help for usage"));
  } else if (status == BRIM_EDEVICE) {
    snprintf(out, size, "%s", brim_tr("run brim version to list the devices and plug-ins"));
  } else if (status == BRIM_EOOM || (status == BRIM_ENOMEM && cli->opened)) {
    snprintf(out, size, "%s", brim_tr("run brim bench --plan to see the memory of each setting"));
  } else if (no_room(detail)) {
    snprintf(out, size, "%s", brim_tr("free some disk space, or write to another place"));
  } else if (brim_str_ends(detail, brim_errno_text(EROFS))) {
    snprintf(out, size, "%s", brim_tr("the file system is read-only; write to another place"));
  }
}

static void error_event(brim_cli *cli, brim_status status, const char *detail, const char *advice) {
  json_t *fields = json_object();
  brim_status put_status = brim_json_put(fields, "status", json_string(brim_status_name(status)));
  if (!put_status)
    put_status = brim_json_put(fields, "exit_code", json_integer(brim_cli_exit_of(cli, status)));
  char plain[4096];
  brim_text_plain(detail, plain, sizeof plain);
  json_t *text = json_string(brim_utf8_valid(detail, strlen(detail)) ? detail : plain);
  if (!text) text = json_string(brim_status_text(status));
  if (!put_status) {
    put_status = brim_json_put(fields, "message", text);
  } else {
    json_decref(text);
  }
  if (!put_status)
    put_status = brim_json_put(fields, "hint", advice[0] ? json_string(advice) : json_null());
  if (!put_status && cli->failure != BRIM_FAILURE_NONE) {
    put_status = brim_json_put(fields, "class", json_string(brim_failure_name(cli->failure)));
  }
  put_status = brim_cli_finish_event(cli, "error", fields, put_status);
  (void)put_status;  // a failure to report an error cannot be reported
}

static void print_line(const brim_cli *cli, brim_ui_style style, const char *label,
                       const char *text) {
  char plain[4096];
  brim_str line;
  brim_str_init(&line);
  brim_text_plain(text, plain, sizeof plain);
  brim_ui_styled(&line, &cli->err, style, label);
  fprintf(stderr, "brim: %s%s%s\n", line.len ? line.data : label, *label ? " " : "", plain);
  brim_str_deinit(&line);
}

void brim_cli_error(brim_cli *cli, brim_status status) {
  char detail[2048], advice[256];
  const char *text = brim_status_detail();
  brim_str shown;
  brim_str_init(&shown);
  if (!*text) text = brim_status_text(status);
  brim_store_put_shown(&shown, text);
  snprintf(detail, sizeof detail, "%s", brim_str_status(&shown) ? text : shown.data);
  brim_str_deinit(&shown);
  (void)brim_store_star_passwords(detail);  // if the call above ran out of memory
  brim_utf8_trim(detail);
  brim_cli_hint(cli, status, detail, advice, sizeof advice);
  clear_progress(cli);
  bool interrupted = status == BRIM_EINTERRUPTED;  // the user interrupted: not an error
  print_line(cli, BRIM_UI_BAD, interrupted ? "" : brim_tr("error:"), detail);
  if (advice[0]) print_line(cli, BRIM_UI_DIM, brim_tr("hint:"), advice);
  if (cli->json) error_event(cli, status, detail, advice);
}

void brim_cli_word_text(const char *word, brim_str *out) {
  bool plain = *word && !strpbrk(word, " \t\n'\"\\$`*?[]{}()<>|&;#~!");
  if (!plain) brim_str_append_char(out, '\'');
  for (; *word; word++) {
    brim_str_append(out, *word == '\'' ? "'\\''" : (char[]){*word, '\0'});
  }
  if (!plain) brim_str_append_char(out, '\'');
}

void brim_cli_command_text(const brim_cli *cli, brim_str *out) {
  for (int i = 0; i < cli->argc; i++) {
    brim_str word;
    brim_str_init(&word);
    brim_store_put_shown(&word, i == 0 ? "brim" : cli->argv[i]);
    if (i) brim_str_append_char(out, ' ');
    brim_cli_word_text(brim_str_status(&word) ? "..." : word.data, out);
    brim_str_deinit(&word);
  }
}

//---------------------------------- outputs ----------------------------------

// The target of a symbolic link, for brim_free; NULL if the path is no symbolic link.
static char *link_target(const char *path) {
  char to[PATH_MAX];
  ssize_t n = readlink(path, to, sizeof to - 1);
  if (n <= 0) return NULL;
  to[n] = '\0';
  if (to[0] == '/') return brim_strdup(to);
  char *folder = brim_fs_dirname(path), *joined = folder ? brim_fs_join(folder, to) : NULL;
  brim_free(folder);
  return joined;
}

// Do two paths name one file, whether it exists or not? "r" and "./r" do, and so does a link to an r that does
// not exist yet.
static bool same_target(const char *a, const char *b) {
  enum { MOST_LINKS = 40 };  // as many as Linux follows
  if (strcmp(a, b) == 0 || brim_fs_same(a, b)) return true;
  if (brim_fs_exists(a) || brim_fs_exists(b)) return false;
  char *ends[2] = {brim_strdup(a), brim_strdup(b)}, *folders[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    char *next;
    for (int k = 0; k < MOST_LINKS && ends[i] && (next = link_target(ends[i])); k++) {
      brim_free(ends[i]);
      ends[i] = next;
    }
    if (ends[i]) folders[i] = brim_fs_dirname(ends[i]);
  }
  bool same = ends[0] && ends[1] && brim_fs_same(folders[0], folders[1]) &&
              strcmp(brim_fs_basename(ends[0]), brim_fs_basename(ends[1])) == 0;
  for (int i = 0; i < 2; i++) {
    brim_free(ends[i]);
    brim_free(folders[i]);
  }
  return same;
}

bool brim_cli_is_below(const char *folder, const char *path) {
  char *a = brim_fs_is_dir(folder) ? realpath(folder, NULL) : NULL;
  char *b = a ? realpath(path, NULL) : NULL;
  size_t n = b ? strlen(a) : 0;
  bool below = b && strncmp(a, b, n) == 0 && (b[n] == '/' || (n > 0 && a[n - 1] == '/'));
  free(a);
  free(b);
  return below;
}

brim_status brim_cli_check_replace(const brim_cli *cli, const char *path, const char *mark) {
  struct stat st;
  char start[4096];
  if (strcmp(path, "-") == 0 || brim_option_flag(&cli->parse, "force", false)) return BRIM_OK;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (mark && st.st_size == 0)) return BRIM_OK;
  FILE *file = mark ? fopen(path, "rbe") : NULL;
  size_t size = file ? fread(start, 1, sizeof start - 1, file) : 0;
  if (file) fclose(file);
  start[size] = '\0';
  if (mark && strstr(start, mark)) return BRIM_OK;
  return brim_fail(BRIM_EEXIST, "%s already exists; --force replaces it", path);
}

brim_status brim_cli_check_outputs(brim_cli *cli, const char *const *read, size_t read_count,
                                   const char *const *written, size_t written_count) {
  for (size_t i = 0; i < written_count; i++) {
    const char *path = written[i];
    for (size_t k = 0; k < read_count && path; k++) {
      if (!read[k] || !same_target(read[k], path)) continue;
      return brim_cli_usage(cli, BRIM_N_("%s is read by this command; name another file"), path);
    }
    for (size_t k = 0; k < i && path; k++) {
      if (!written[k] || !same_target(written[k], path)) continue;
      return brim_cli_usage(cli, BRIM_N_("two outputs are named %s"), path);
    }
  }
  return BRIM_OK;
}

// ---- files of an earlier run

// The ending of the name with its dot: ".json.gz" for trace.json.gz.
static const char *ending_of(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.'), *end = name + strlen(name);
  if (!dot) return end;
  if (strcmp(dot, ".gz") != 0) return dot;
  for (const char *p = dot; p > name; p--) {
    if (p[-1] == '.') return p - 1;
  }
  return dot;
}

// Makes "runs/bench/results-1.jsonl" of "runs/bench/results.jsonl" and 1.
static brim_status numbered_name(const char *path, int number, brim_str *out) {
  const char *ending = ending_of(path);
  brim_str_append_n(out, path, (size_t)(ending - path));
  brim_str_printf(out, "-%d%s", number, ending);
  return brim_str_status(out);
}

// Does a file of this name exist, or will this run write one?
static bool is_taken(const char *name, const char *const *outputs, size_t output_count) {
  bool taken = brim_fs_exists(name);
  for (size_t i = 0; i < output_count && !taken; i++) {
    taken = outputs[i] && same_target(name, outputs[i]);
  }
  return taken;
}

// The first number that is free for every file, so that the files of one run get one number.
static brim_status free_number(const char *const *paths, size_t count, const char *const *outputs,
                               size_t output_count, int *out) {
  for (int number = 1;; number++) {
    bool taken = false;
    for (size_t i = 0; i < count; i++) {
      brim_str name;
      brim_str_init(&name);
      brim_status status = paths[i] ? numbered_name(paths[i], number, &name) : BRIM_OK;
      if (!status && paths[i]) taken = taken || is_taken(name.data, outputs, output_count);
      brim_str_deinit(&name);
      if (status) return status;
    }
    *out = number;
    if (!taken) return BRIM_OK;
  }
}

static brim_status copy_file(const char *from, const char *to) {
  char *data = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(from, 0, &data, &size));
  brim_status status = brim_fs_write(to, data, size);
  brim_free(data);
  return status;
}

// Renames one file, or copies it if it is `input`: the command may read runs/bench/best.yaml until its end.
static brim_status keep_one(const char *path, int number, const char *input, char **kept) {
  brim_str name;
  brim_str_init(&name);
  brim_status status = numbered_name(path, number, &name);
  bool copied = input && brim_fs_same(path, input);
  if (!status && copied) status = copy_file(path, name.data);
  if (!status && !copied && rename(path, name.data) != 0) {
    status = brim_fail(BRIM_EINVAL, "cannot keep the earlier %s as %s: %s", path, name.data,
                       brim_errno_text(errno));
  }
  if (!status && !*kept) {
    *kept = brim_strdup(name.data);
    if (!*kept) status = brim_fail(BRIM_ENOMEM, "out of memory for the name of %s", path);
  }
  brim_str_deinit(&name);
  return status;
}

brim_status brim_cli_keep_earlier(const char *const *paths, size_t count,
                                  const char *const *outputs, size_t output_count,
                                  const char *input, char **kept) {
  int number;
  *kept = NULL;
  brim_status status = free_number(paths, count, outputs, output_count, &number);
  for (size_t i = 0; i < count && !status; i++) {
    struct stat st;
    if (!paths[i] || stat(paths[i], &st) != 0 || !S_ISREG(st.st_mode)) continue;
    status = keep_one(paths[i], number, input, kept);
  }
  if (status) {
    brim_free(*kept);
    *kept = NULL;
  }
  return status;
}
