// Slurm's commands: what they print, running them, arrays, submitting (lab_slurm.h).

#include "lab/slurm/lab_slurm.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base_text.h"

//-------------------------------------------- output --------------------------------------------
// Reads the output of Slurm's commands with suspicion: any line may be cut, or come from another program.

brim_slurm_state brim_slurm_state_of(const char *word) {
  static const struct {
    const char *name;
    brim_slurm_state state;
  } known[] = {
      {"PENDING", BRIM_SLURM_WAITING},       {"REQUEUED", BRIM_SLURM_WAITING},
      {"REQUEUE_HOLD", BRIM_SLURM_WAITING},  {"REQUEUE_FED", BRIM_SLURM_WAITING},
      {"SPECIAL_EXIT", BRIM_SLURM_WAITING},  {"RESV_DEL_HOLD", BRIM_SLURM_WAITING},
      {"CONFIGURING", BRIM_SLURM_RUNNING},   {"RUNNING", BRIM_SLURM_RUNNING},
      {"COMPLETING", BRIM_SLURM_RUNNING},    {"SUSPENDED", BRIM_SLURM_RUNNING},
      {"STOPPED", BRIM_SLURM_RUNNING},       {"SIGNALING", BRIM_SLURM_RUNNING},
      {"STAGE_OUT", BRIM_SLURM_RUNNING},     {"RESIZING", BRIM_SLURM_RUNNING},
      {"COMPLETED", BRIM_SLURM_DONE},        {"FAILED", BRIM_SLURM_FAILED},
      {"REVOKED", BRIM_SLURM_FAILED},        {"CANCELLED", BRIM_SLURM_CANCELLED},
      {"TIMEOUT", BRIM_SLURM_TIMEOUT},       {"DEADLINE", BRIM_SLURM_TIMEOUT},
      {"PREEMPTED", BRIM_SLURM_PREEMPTED},   {"NODE_FAIL", BRIM_SLURM_NODE_FAILED},
      {"BOOT_FAIL", BRIM_SLURM_NODE_FAILED}, {"OUT_OF_MEMORY", BRIM_SLURM_NO_MEMORY},
  };
  size_t n = strcspn(word, " +\n");
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strlen(known[i].name) == n && memcmp(known[i].name, word, n) == 0) return known[i].state;
  }
  return BRIM_SLURM_UNKNOWN;
}

//---------------------------------- rows ----------------------------------

enum { FIELDS = 6, LONGEST_LINE = 4096 };

// Splits the line at '|' in place. The last field takes the rest of the line.
static size_t split(char *line, char *fields[FIELDS]) {
  size_t n = 0;
  for (char *at = line; at && n < FIELDS; n++) {
    fields[n] = at;
    at = n + 1 < FIELDS ? strchr(at, '|') : NULL;
    if (at) *at++ = '\0';
  }
  return n;
}

static bool is_number(const char *text, size_t most) {
  size_t n = strspn(text, "0123456789");
  return n > 0 && n < most && text[n] == '\0';
}

// Replaces characters that are not printable ASCII by '?'.
static void copy_printable(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text);
  for (char *at = out; *at; at++) {
    if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e) *at = '?';
  }
}

// LINE_SKIPPED: a job without an array, or elements that have not started.
typedef enum line_kind { LINE_ROW, LINE_SKIPPED, LINE_BAD } line_kind;

// squeue: job|index|state|node|name|reason. sacct: job_index|name|state|exit code|node.
static line_kind read_line(char *line, bool account, brim_slurm_row *row) {
  char *f[FIELDS] = {0};
  size_t n = split(line, f);
  if (n != (account ? 5u : 6u)) return LINE_BAD;
  char *index = account ? strchr(f[0], '_') : f[1];
  if (account && index) *index++ = '\0';
  if (!is_number(f[0], BRIM_SLURM_JOB)) return LINE_BAD;
  if (!index || strcmp(index, "N/A") == 0 || index[0] == '[') return LINE_SKIPPED;
  if (!is_number(index, 12)) return LINE_BAD;
  *row = (brim_slurm_row){.index = strtoll(index, NULL, 10)};
  row->state = brim_slurm_state_of(f[2]);
  if (row->state == BRIM_SLURM_UNKNOWN) return LINE_BAD;
  copy_printable(row->job, sizeof row->job, f[0]);
  copy_printable(row->name, sizeof row->name, f[account ? 1 : 4]);
  copy_printable(row->word, sizeof row->word, f[2]);
  row->word[strcspn(row->word, " +")] = '\0';
  copy_printable(row->node, sizeof row->node, f[account ? 4 : 3]);
  copy_printable(row->reason, sizeof row->reason, f[account ? 3 : 5]);
  return LINE_ROW;
}

size_t brim_slurm_rows(const char *text, bool account, brim_slurm_row_fn fn, void *ctx) {
  size_t bad = 0;
  while (*text) {
    char line[LONGEST_LINE];
    size_t n = strcspn(text, "\n");
    bool whole = text[n] == '\n';  // an answer that was cut has a last line without its end
    snprintf(line, sizeof line, "%.*s", (int)(n < LONGEST_LINE ? n : LONGEST_LINE - 1), text);
    text += n + whole;
    if (line[strspn(line, " \t\r")] == '\0') continue;
    brim_slurm_row row;
    line_kind kind = whole && n < LONGEST_LINE ? read_line(line, account, &row) : LINE_BAD;
    if (kind == LINE_ROW) fn(ctx, &row);
    if (kind == LINE_BAD) bad++;
  }
  return bad;
}

//---------------------------------- single values ----------------------------------

bool brim_slurm_job_of(const char *text, char out[BRIM_SLURM_JOB]) {
  text += strspn(text, " \t\r\n");
  size_t n = strspn(text, "0123456789");
  char end = text[n];
  out[0] = '\0';
  if (n == 0 || n >= BRIM_SLURM_JOB || (end && end != ';' && end != '\n' && end != '\r')) {
    return false;
  }
  snprintf(out, BRIM_SLURM_JOB, "%.*s", (int)n, text);
  return true;
}

int64_t brim_slurm_config_value(const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *line = text; line && *line;) {
    const char *at = line + strspn(line, " \t");
    if (strncmp(at, key, n) == 0) {
      at += n;
      at += strspn(at, " \t");
      if (*at == '=') return strtoll(at + 1, NULL, 10);
    }
    line = strchr(line, '\n');
    if (line) line++;
  }
  return 0;
}

enum { MOST_NODES = 1 << 24 };  // in a line of sinfo

int64_t brim_slurm_nodes_of(const char *text, char name[BRIM_SLURM_NODE]) {
  int64_t total = 0;
  name[0] = '\0';
  for (const char *line = text; line && *line;) {
    char *end;
    long long count = strtoll(line, &end, 10);
    if (count > 0 && count <= MOST_NODES && *end == '|') {
      total += count;
      snprintf(name, BRIM_SLURM_NODE, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
    }
    line = strchr(line, '\n');
    if (line) line++;
  }
  if (total != 1) name[0] = '\0';
  return total;
}

bool brim_slurm_has_mpi(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = text; (at = strstr(at, name)) != NULL; at += n) {
    bool before = at == text || isspace((unsigned char)at[-1]) || at[-1] == ',';
    bool behind = !at[n] || isspace((unsigned char)at[n]) || at[n] == ',';
    if (before && behind) return true;
  }
  return false;
}

// minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds]
int64_t brim_slurm_seconds(const char *text) {
  long long part[4] = {0};
  int n = 0;
  bool days = false;
  if (!text || !isdigit((unsigned char)text[0])) return -1;
  for (const char *at = text;; at++) {
    char *end;
    if (!isdigit((unsigned char)*at) || n == 4) return -1;
    part[n++] = strtoll(at, &end, 10);
    if (part[n - 1] > 1000000) return -1;
    at = end;
    if (*at == '\0') break;
    if (*at == '-' && n == 1) {
      days = true;
    } else if (*at != ':') {
      return -1;
    }
  }
  if (days) return part[0] * 86400 + part[1] * 3600 + part[2] * 60 + part[3];
  if (n == 1) return part[0] * 60;
  if (n == 2) return part[0] * 60 + part[1];
  return n == 3 ? part[0] * 3600 + part[1] * 60 + part[2] : -1;
}

//------------------------------------------- commands -------------------------------------------
// Slurm's commands as child processes: no shell, a limit on time and on output, an environment in which
// they print what they are asked for.

enum { MOST_OUT = 64 << 20, MOST_ERR = 16 << 10, GRACE_MS = 1000, MOST_ENV = 32 };

//---------------------------------- words ----------------------------------

static bool grow(brim_slurm_words *w) {
  if (w->count + 1 < w->cap) return true;
  size_t cap = w->cap ? 2 * w->cap : 32;
  char **more = brim_realloc(w->list, cap * sizeof *more);
  if (!more) return false;
  w->list = more;
  w->cap = cap;
  return true;
}

void brim_slurm_word(brim_slurm_words *w, const char *fmt, ...) {
  brim_str text;
  va_list args;
  if (w->failed || !grow(w)) {
    w->failed = true;
    return;
  }
  brim_str_init(&text);
  va_start(args, fmt);
  brim_str_vprintf(&text, fmt, args);
  va_end(args);
  char *word = brim_str_status(&text) ? NULL : brim_str_take(&text);
  brim_str_deinit(&text);
  w->failed = !word;
  if (!word) return;
  w->list[w->count++] = word;
  w->list[w->count] = NULL;
}

void brim_slurm_words_deinit(brim_slurm_words *w) {
  for (size_t i = 0; i < w->count; i++) brim_free(w->list[i]);
  brim_free(w->list);
  *w = (brim_slurm_words){0};
}

//---------------------------------- running ----------------------------------

static brim_status on_data(void *ctx, brim_child_stream stream, const char *data, size_t size) {
  brim_slurm_command *c = ctx;
  bool out = stream == BRIM_CHILD_OUT;
  brim_str *to = out ? &c->out : &c->err;
  size_t most = out ? MOST_OUT : MOST_ERR, room = most - to->len;
  if (size > room) {
    c->flooded = c->flooded || out;
    size = room;
  }
  brim_str_append_n(to, data, size);
  return BRIM_OK;
}

// Sets English texts, and removes the user's variables that change what squeue and sacct list (a
// name without "=" is removed).
static const char *const env_changes[] = {
    "LC_ALL=C",        "SQUEUE_ACCOUNT",   "SQUEUE_ALL",   "SQUEUE_FEDERATION", "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",  "SQUEUE_LICENSES",  "SQUEUE_LOCAL", "SQUEUE_NAMES",      "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY", "SQUEUE_QOS",       "SQUEUE_SORT",  "SQUEUE_STATES",     "SQUEUE_USERS",
    "SACCT_FORMAT",    "SLURM_TIME_FORMAT"};

brim_status brim_slurm_start(brim_slurm_command *c, brim_slurm_words *words, const char *const *env,
                             int64_t timeout_ms) {
  const char *all[MOST_ENV];
  size_t n = 0;
  *c = (brim_slurm_command){.until_ms = brim_clock_ms() + timeout_ms, .exit_code = -1};
  brim_str_init(&c->out);
  brim_str_init(&c->err);
  for (size_t i = 0; i < sizeof env_changes / sizeof env_changes[0]; i++) all[n++] = env_changes[i];
  while (env && *env && n < MOST_ENV - 1) all[n++] = *env++;
  all[n] = NULL;
  const brim_child_options how = {.argv = (const char *const *)words->list,
                                  .env_change = all,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_PIPE,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_data = on_data,
                                  .ctx = c};
  brim_status status = words->failed || words->count == 0
                           ? brim_fail(BRIM_ENOMEM, "out of memory for a command of Slurm")
                           : brim_child_start(&how, &c->child);
  brim_slurm_words_deinit(words);
  return status;
}

brim_status brim_slurm_poll(brim_slurm_command *c, bool *ended) {
  *ended = true;
  if (!c->child) return BRIM_OK;
  brim_status status = brim_child_poll(c->child, ended);
  if (status == BRIM_ECHILD) {
    brim_status_clear();
    status = BRIM_OK;
  }
  if (!status && !*ended && (c->flooded || brim_clock_ms() >= c->until_ms)) {
    c->timed_out = !c->flooded;
    (void)brim_child_stop(c->child, 0);
    status = brim_child_wait(c->child, GRACE_MS, ended);
    if (status == BRIM_ECHILD) status = BRIM_OK;
    *ended = true;  // what hangs in the kernel is left behind
  }
  if (!*ended) return status;
  const brim_child_result *result = brim_child_get_result(c->child);
  bool known = !c->timed_out && !c->flooded && result && !result->lost && !result->signal;
  if (known) c->exit_code = result->exit_code;
  brim_child_close(c->child);
  c->child = NULL;
  if (!status) status = brim_str_status(&c->out);
  return status;
}

void brim_slurm_close(brim_slurm_command *c) {
  if (c->child) brim_child_close(c->child);
  brim_str_deinit(&c->out);
  brim_str_deinit(&c->err);
  *c = (brim_slurm_command){0};
}

brim_status brim_slurm_run(brim_slurm_words *words, int64_t timeout_ms, brim_slurm_command *out) {
  bool ended = false;
  brim_status status = brim_slurm_start(out, words, NULL, timeout_ms);
  while (!status && !ended) {
    brim_child_wait_any(&out->child, 1, 100);
    status = brim_slurm_poll(out, &ended);
  }
  return status;
}

bool brim_slurm_good(const brim_slurm_command *c) {
  return c->exit_code == 0 && !c->timed_out && !c->flooded;
}

void brim_slurm_why(const brim_slurm_command *c, char *out, size_t size) {
  size_t end = c->err.len;
  while (end > 0 && (c->err.data[end - 1] == '\n' || c->err.data[end - 1] == '\r')) end--;
  size_t at = end;
  while (at > 0 && c->err.data[at - 1] != '\n') at--;
  if (c->timed_out) {
    snprintf(out, size, "%s", brim_tr("no answer in time"));
  } else if (c->flooded) {
    snprintf(out, size, "%s", brim_tr("its answer is too long"));
  } else if (end > at) {
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)(end - at < sizeof line ? end - at : sizeof line - 1),
             c->err.data + at);
    brim_text_plain(line, out, size);
  } else {
    snprintf(out, size, brim_tr("exit code %d"), c->exit_code);
  }
}

//-------------------------------------------- arrays --------------------------------------------
// The files of arrays (lab_slurm.h).

enum { MOST_BYTES = 64 << 20 };

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm");
}

// FOLDER/slurm/NAME + end; NULL = out of memory.
static char *path_of(const char *folder, const char *name, const char *end) {
  brim_str path;
  brim_str_init(&path);
  brim_str_printf(&path, "%s/" BRIM_SLURM_FOLDER "/%s%s", folder, name, end);
  char *out = brim_str_status(&path) ? NULL : brim_str_take(&path);
  brim_str_deinit(&path);
  return out;
}

static brim_status to_json(const brim_slurm_array *a, json_t *o) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(o, "name", json_string(a->name)));
  BRIM_TRY(brim_json_put(o, "job", json_string(a->job)));
  BRIM_TRY(brim_json_put(o, "submitted", json_integer(a->submitted_s)));
  BRIM_TRY(brim_json_put(o, "stop", json_boolean(a->stop)));
  BRIM_TRY(brim_json_put(o, "gpus", json_integer(a->gpus)));
  BRIM_TRY(brim_json_put(o, "nodes", json_integer(a->nodes)));
  BRIM_TRY(brim_json_put(o, "exps", list));
  for (size_t i = 0; i < a->count; i++) {
    BRIM_TRY(brim_json_push(list, json_pack("[sIb]", a->exps[i].id, (json_int_t)a->exps[i].attempt,
                                            (int)a->exps[i].over)));
  }
  return BRIM_OK;
}

brim_status brim_slurm_array_write(const char *folder, const brim_slurm_array *a) {
  json_t *o = json_object();
  char *text = NULL, *path = path_of(folder, a->name, ".json");
  brim_status status = o && path ? to_json(a, o) : no_memory();
  if (!status) status = brim_json_dump(o, 0, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

static bool is_id(const char *text) {
  return text && strlen(text) == BRIM_SLURM_EXP - 1 &&
         strspn(text, "0123456789abcdef") == BRIM_SLURM_EXP - 1;
}

// True for a name that a sweep gives its arrays: "brim-", then letters, digits and "-". squeue and
// scancel act on every job with the name, so a name from a damaged or foreign file must not match
// other jobs.
static bool is_name(const char *text) {
  static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
  return text && brim_str_starts(text, "brim-") && strlen(text) < BRIM_SLURM_NAME &&
         text[strspn(text, letters)] == '\0';
}

static brim_status from_json(const json_t *o, const char *path, brim_slurm_array *out) {
  const char *name = json_string_value(json_object_get(o, "name"));
  const char *job = json_string_value(json_object_get(o, "job"));
  const json_t *list = json_object_get(o, "exps");
  size_t count = json_array_size(list);
  bool good = is_name(name) && job && strlen(job) < BRIM_SLURM_JOB;
  if (!good || count == 0) return brim_fail(BRIM_EPARSE, "%s is no array of Slurm", path);
  snprintf(out->name, sizeof out->name, "%s", name);
  snprintf(out->job, sizeof out->job, "%s", job);
  out->submitted_s = json_integer_value(json_object_get(o, "submitted"));
  out->stop = json_is_true(json_object_get(o, "stop"));
  out->gpus = json_integer_value(json_object_get(o, "gpus"));
  out->nodes = json_integer_value(json_object_get(o, "nodes"));
  out->exps = brim_calloc(count, sizeof *out->exps);
  if (!out->exps) return no_memory();
  out->count = count;
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(list, i);
    const char *id = json_string_value(json_array_get(item, 0));
    if (!is_id(id)) return brim_fail(BRIM_EPARSE, "%s has an experiment without an id", path);
    memcpy(out->exps[i].id, id, BRIM_SLURM_EXP);
    out->exps[i].attempt = json_integer_value(json_array_get(item, 1));
    out->exps[i].over = json_is_true(json_array_get(item, 2));
  }
  return BRIM_OK;
}

brim_status brim_slurm_array_read(const char *folder, const char *name, brim_slurm_array *out) {
  char *text = NULL, *path = path_of(folder, name, ".json");
  size_t size = 0;
  json_t *o = NULL;
  *out = (brim_slurm_array){0};
  if (!path) return no_memory();
  brim_status status =
      brim_fs_exists(path) ? BRIM_OK : brim_fail(BRIM_ENOENT, "there is no %s", path);
  if (!status) status = brim_fs_read(path, MOST_BYTES, &text, &size);
  if (!status) status = brim_json_parse(text, size, path, &o);
  if (!status) status = from_json(o, path, out);
  if (!status && strcmp(out->name, name) != 0) {
    status = brim_fail(BRIM_EPARSE, "%s is of another array, %s", path, out->name);
  }
  if (status) brim_slurm_array_deinit(out);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

void brim_slurm_array_remove(const char *folder, const char *name) {
  static const char *const ends[] = {".sh", ".json"};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    char *path = path_of(folder, name, ends[i]);
    if (path && brim_fs_remove(path)) brim_status_clear();
    brim_free(path);
  }
}

void brim_slurm_array_deinit(brim_slurm_array *a) {
  brim_free(a->exps);
  *a = (brim_slurm_array){0};
}

brim_status brim_slurm_array_names(const char *folder, char ***names, size_t *count) {
  char *path = brim_fs_join(folder, BRIM_SLURM_FOLDER);
  *names = NULL;
  *count = 0;
  if (!path) return no_memory();
  brim_status status = brim_fs_is_dir(path) ? brim_fs_list(path, names, count) : BRIM_OK;
  brim_free(path);
  if (status) return status;
  size_t kept = 0;
  for (size_t i = 0; i < *count; i++) {
    char *name = (*names)[i];
    size_t n = strlen(name);
    if (brim_str_ends(name, ".json") && n < BRIM_SLURM_NAME + 5) {
      name[n - 5] = '\0';
      (*names)[i] = (*names)[kept];
      (*names)[kept++] = name;
    }
  }
  for (size_t i = kept; i < *count; i++) brim_free((*names)[i]);
  *count = kept;
  return BRIM_OK;
}

//------------------------------------------ submitting ------------------------------------------
// Command lines for Slurm.

// A training has this long to save before the time limit, or a quarter of a shorter limit.
enum { LEAD_S = 120 };

brim_status brim_slurm_script(const char *const *words, brim_str *out) {
  brim_str_append(out, "#!/bin/sh\n# One element of an array that brim sweep submitted.\nexec");
  for (; *words; words++) {
    brim_str_append(out, " '");
    for (const char *at = *words; *at; at++) {
      if (*at == '\'') {
        brim_str_append(out, "'\\''");
      } else {
        brim_str_append_char(out, *at);
      }
    }
    brim_str_append_char(out, '\'');
  }
  brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

// '%' has a meaning in --output.
static void append_path(brim_str *out, const char *path) {
  for (; *path; path++) {
    if (*path == '%') brim_str_append_char(out, '%');
    brim_str_append_char(out, *path);
  }
}

static void ask_option(brim_slurm_words *w, const char *name, const char *value) {
  if (value && value[0]) brim_slurm_word(w, "--%s=%s", name, value);
}

// Asks for one task per rank, spread over the nodes, and for its GPUs.
static void ask_ranks(const brim_slurm_array *a, const brim_slurm_ask *ask, bool no_gpu,
                      brim_slurm_words *w) {
  int64_t nodes = a->nodes > 1 ? a->nodes : 1, ranks = a->gpus > 1 ? a->gpus : 1;
  if (ranks < nodes) ranks = nodes;
  if (ranks > 1) {
    brim_slurm_word(w, "--nodes=%lld", (long long)nodes);
    brim_slurm_word(w, "--ntasks=%lld", (long long)ranks);
  }
  if (ask->gres && ask->gres[0]) {
    brim_slurm_word(w, "--gres=%s", ask->gres);
  } else if (ranks > 1 && !no_gpu) {
    brim_slurm_word(w, "--gres=gpu:%lld", (long long)((ranks + nodes - 1) / nodes));
  }
}

void brim_slurm_words_sbatch(const brim_slurm_array *a, const brim_slurm_ask *ask,
                             const char *folder, bool no_gpu, brim_slurm_words *w) {
  int64_t limit = brim_slurm_seconds(ask->time);
  long long lead = limit > 0 && limit / 4 < LEAD_S ? (long long)(limit / 4) : LEAD_S;
  brim_str path;
  brim_str_init(&path);
  append_path(&path, folder);
  brim_slurm_word(w, "sbatch");
  brim_slurm_word(w, "--parsable");
  brim_slurm_word(w, "--job-name=%s", a->name);
  if (ask->at_once > 0) {
    brim_slurm_word(w, "--array=0-%zu%%%lld", a->count - 1, (long long)ask->at_once);
  } else {
    brim_slurm_word(w, "--array=0-%zu", a->count - 1);
  }
  brim_slurm_word(w, "--requeue");
  brim_slurm_word(w, "--signal=B:USR2@%lld", lead > 0 ? lead : 1);
  brim_slurm_word(w, "--open-mode=append");
  brim_slurm_word(w, "--output=%s/" BRIM_SLURM_FOLDER "/%s_%%a.log",
                  brim_str_status(&path) ? "." : path.data, a->name);
  brim_str_deinit(&path);
  ask_option(w, "partition", ask->partition);
  ask_option(w, "account", ask->account);
  ask_option(w, "time", ask->time);
  ask_option(w, "mem", ask->memory);
  if (ask->cpus > 0) brim_slurm_word(w, "--cpus-per-task=%lld", (long long)ask->cpus);
  ask_ranks(a, ask, no_gpu, w);
  for (const char *const *more = ask->extra; more && *more; more++) brim_slurm_word(w, "%s", *more);
  brim_slurm_word(w, "%s/" BRIM_SLURM_FOLDER "/%s.sh", folder, a->name);
}

void brim_slurm_words_squeue(const char *const *names, size_t count, brim_slurm_words *w) {
  brim_str list;
  brim_str_init(&list);
  for (size_t i = 0; i < count; i++) brim_str_printf(&list, "%s%s", i ? "," : "", names[i]);
  brim_slurm_word(w, "squeue");
  brim_slurm_word(w, "--noheader");
  brim_slurm_word(w, "--array");
  brim_slurm_word(w, "--states=all");
  brim_slurm_word(w, "--format=%%F|%%K|%%T|%%N|%%j|%%r");
  brim_slurm_word(w, "--name=%s", brim_str_status(&list) || count == 0 ? "" : list.data);
  brim_str_deinit(&list);
}

void brim_slurm_words_sacct(const brim_slurm_array *a, brim_slurm_words *w) {
  char when[32] = "";
  time_t since = (time_t)(a->submitted_s > 60 ? a->submitted_s - 60 : 0);  // clocks differ a little
  struct tm local;
  if (localtime_r(&since, &local)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &local);
  brim_slurm_word(w, "sacct");
  brim_slurm_word(w, "--noheader");
  brim_slurm_word(w, "--parsable2");
  brim_slurm_word(w, "--allocations");
  brim_slurm_word(w, "--array");
  brim_slurm_word(w, "--name=%s", a->name);
  brim_slurm_word(w, "--starttime=%s", when);
  brim_slurm_word(w, "--format=JobID,JobName%%64,State,ExitCode,NodeList");
}
