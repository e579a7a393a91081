// The logs of a run: log.csv for spreadsheets, log.jsonl for programs.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "run/run_int.h"

static const char csv_header[] =
    "epoch,step,lr,train_loss,train_accuracy,eval_loss,eval_accuracy,seconds,samples_per_s\n";
static const char csv_header_knn[] =
    "epoch,step,lr,train_loss,train_accuracy,eval_loss,knn,seconds,samples_per_s\n";

static const char csv_header_policy[] =
    "epoch,step,lr,train_return,train_spread,train_falls,eval_return,eval_spread,eval_falls,"
    "zero_return,zero_spread,zero_falls,gpu_percent,sm_percent,seconds,samples_per_s\n";

// step of a CSV row (second field) or of a JSON line ("step":N); -1 for the header
static int64_t line_step(const char *line, bool csv) {
  const char *at = csv ? strchr(line, ',') : strstr(line, "\"step\":");
  if (!at) return -1;
  at += csv ? 1 : 7;
  return *at >= '0' && *at <= '9' ? (int64_t)strtoll(at, NULL, 10) : -1;
}

//---------------------------------- files ----------------------------------

// "FOLDER/log.csv", "FOLDER/log.3.csv"; for brim_free, NULL = out of memory
static char *file_path(const brim_run_file *f, int number) {
  char name[48];
  if (number > 0) {
    snprintf(name, sizeof name, "log.%d.%s", number, f->ext);
  } else {
    snprintf(name, sizeof name, "log.%s", f->ext);
  }
  return brim_fs_join(f->folder, name);
}

static brim_status no_memory(const brim_run_file *f) {
  return brim_fail(BRIM_ENOMEM, "out of memory while opening the logs in %s", f->folder);
}

// The report of an epoch; of a CSV file every row is one.
static bool is_epoch(const char *line, bool csv) {
  return csv || strstr(line, "\"event\":\"epoch\"");
}

// Rows under a header that was lost.
static brim_status write_named(const char *path, const char *header, const char *rows,
                               size_t size) {
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text, header);
  brim_str_append_n(&text, rows, size);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_fs_write(path, text.data, text.len);
  brim_str_deinit(&text);
  return status;
}

// Drops rows after start_step, with `ended` also the epoch's of that step; *left is what remains
// besides the header.
static brim_status drop_after(const brim_run_file *f, const char *path, int64_t start_step,
                              bool ended, size_t *left) {
  bool csv = f->header[0] != 0;
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  // of a CSV file everything that is no row goes, but for its header
  bool named = csv && size > 0 && brim_str_starts(text, f->header);
  size_t kept = 0;
  *left = 0;
  for (size_t at = 0; at < size;) {
    char *end = memchr(text + at, '\n', size - at);
    if (!end) break;  // a torn last line is dropped too
    size_t length = (size_t)(end - (text + at)) + 1;
    *end = 0;
    int64_t step = line_step(text + at, csv);
    bool again = ended && step == start_step && is_epoch(text + at, csv);
    *end = '\n';
    bool other = csv && step < 0 && !(named && at == 0);
    if (step <= start_step && !again && !other) {
      memmove(text + kept, text + at, length);
      kept += length;
      if (!csv || step >= 0) *left += length;
    }
    at += length;
  }
  brim_status status = BRIM_OK;
  if (csv && !named) {
    status = write_named(path, f->header, text, kept);
  } else if (kept != size) {
    status = brim_fs_write(path, text, kept);
  }
  brim_free(text);
  return status;
}

static brim_status begin_file(const brim_run_file *f, const char *path) {
  if (!f->header[0] || brim_fs_exists(path)) return BRIM_OK;
  return brim_fs_write(path, f->header, strlen(f->header));
}

// The last of the files is gone on with; those of which nothing is left go.
static brim_status open_files(brim_run_file *f, int64_t start_step, bool ended) {
  for (int n = 0;; n++) {
    char *path = file_path(f, n);
    if (!path) return no_memory(f);
    bool there = brim_fs_exists(path);
    size_t left = 0;
    brim_status status = BRIM_OK;
    if (there) status = drop_after(f, path, start_step, ended, &left);
    if (!status && n == 0) status = begin_file(f, path);
    if (!status && n > 0 && there && left == 0) status = brim_fs_remove(path);
    if (left > 0) f->number = n;
    brim_free(path);
    if (status || (!there && n > 0)) return status;
  }
}

static brim_status append_row(brim_run_log *log, brim_run_file *f, const char *line) {
  char *path = file_path(f, f->number);
  if (!path) return no_memory(f);
  uint64_t size = 0;
  // a file with its header alone takes a row however long: rows are never left out
  bool some = log->rotate > 0 && brim_fs_exists(path) && brim_fs_size(path, &size) == BRIM_OK &&
              size > strlen(f->header);
  brim_status status;
  if (some && size + strlen(line) + 1 > log->rotate) {
    brim_free(path);
    path = file_path(f, ++f->number);
    if (!path) return no_memory(f);
  }
  status = begin_file(f, path);  // a new one, or one that somebody removed
  if (!status) status = brim_fs_append_line(path, line);
  brim_free(path);
  return status;
}

// Rows in order, from the oldest that waits; stops at the first that cannot be written.
static brim_status write_waiting(brim_run_log *log, brim_run_file *f) {
  brim_status status = BRIM_OK;
  size_t at = 0;
  while (!status && at < f->waiting.len) {
    char *line = f->waiting.data + at, *end = strchr(line, '\n');
    *end = '\0';
    status = append_row(log, f, line);
    *end = '\n';
    if (!status) at = (size_t)(end - f->waiting.data) + 1;
  }
  if (at > 0) memmove(f->waiting.data, f->waiting.data + at, f->waiting.len - at + 1);
  f->waiting.len -= at;
  return status;
}

// Room for one more row: the oldest go where too many wait.
static void make_room(brim_run_file *f) {
  enum { MOST_BYTES = 4 << 20 };
  while (f->waiting.len > MOST_BYTES) {
    size_t n = strcspn(f->waiting.data, "\n") + 1;
    memmove(f->waiting.data, f->waiting.data + n, f->waiting.len - n + 1);
    f->waiting.len -= n;
    f->lost++;
  }
}

static brim_status append(brim_run_log *log, brim_run_file *f, const char *line) {
  make_room(f);
  brim_str_append(&f->waiting, line);
  brim_str_append_char(&f->waiting, '\n');
  BRIM_TRY(brim_str_status(&f->waiting));
  brim_status status = write_waiting(log, f);
  if (status == BRIM_ENOMEM) return status;
  if (status && !f->failing) {
    brim_log_warn("run", "%s; the run continues, and brim writes the rows when it can",
                  brim_status_detail());
  } else if (!status && f->failing) {
    brim_log_warn("run", "log.%s is writable again and complete", f->ext);
  }
  f->failing = status != BRIM_OK;
  brim_status_clear();
  return BRIM_OK;
}

// The last try for what waits.
static void close_file(brim_run_log *log, brim_run_file *f) {
  if (!f->ext) return;
  brim_status status = f->waiting.len > 0 ? write_waiting(log, f) : BRIM_OK;
  int64_t rows = f->lost;
  for (size_t i = 0; i < f->waiting.len; i++) rows += f->waiting.data[i] == '\n';
  if (rows > 0) {
    brim_log_warn("run", "%" PRId64 " rows of log.%s are lost: %s", rows, f->ext,
                  status ? brim_status_detail() : brim_tr("too many waited"));
  }
  brim_str_deinit(&f->waiting);
}

static void identify(const char *folder, uint64_t id[2]) {
  struct stat st = {0};
  (void)!stat(folder, &st);
  id[0] = (uint64_t)st.st_dev;
  id[1] = (uint64_t)st.st_ino;
}

// A folder that was removed, before anything is written to it. Whoever made it again: an event file
// that is still open went with the old one.
static void keep_folder(brim_run_log *log) {
  uint64_t now[2];
  brim_run_folder_restore(log->folder);
  identify(log->folder, now);
  if (!log->events || memcmp(now, log->folder_id, sizeof now) == 0) return;
  memcpy(log->folder_id, now, sizeof now);
  brim_tensorboard_close(log->events);
  log->events = NULL;
  if (brim_tensorboard_open(log->folder, INT64_MAX, log->rotate, &log->events)) {
    brim_log_warn("run", "no more event files for TensorBoard: %s", brim_status_detail());
    brim_status_clear();
  }
}

brim_status brim_run_log_open(brim_run_log *log, const brim_config *config, const char *folder,
                              int64_t start_step, bool ended) {
  brim_status status = BRIM_OK;
  memset(log, 0, sizeof *log);
  log->folder = folder;
  identify(folder, log->folder_id);
  log->rotate = (uint64_t)brim_config_int(config, "log.rotate");
  if (brim_config_bool(config, "log.csv")) {
    const char *workload = brim_config_string(config, "workload");
    bool knn = workload && strcmp(workload, "contrastive") == 0;
    bool policy = workload && strcmp(workload, "ars") == 0;
    log->csv = (brim_run_file){.folder = folder,
                               .ext = "csv",
                               .header = knn      ? csv_header_knn
                                         : policy ? csv_header_policy
                                                  : csv_header};
    brim_str_init(&log->csv.waiting);
    status = open_files(&log->csv, start_step, ended);
  }
  if (!status && brim_config_bool(config, "log.jsonl")) {
    log->jsonl = (brim_run_file){.folder = folder, .ext = "jsonl", .header = ""};
    brim_str_init(&log->jsonl.waiting);
    status = open_files(&log->jsonl, start_step, ended);
  }
  if (!status && brim_config_bool(config, "log.tensorboard")) {
    status = brim_tensorboard_open(folder, start_step, log->rotate, &log->events);
  }
  if (status) brim_run_log_close(log);
  return status;
}

void brim_run_log_close(brim_run_log *log) {
  if (log->csv.waiting.len > 0 || log->jsonl.waiting.len > 0) keep_folder(log);
  close_file(log, &log->csv);
  close_file(log, &log->jsonl);
  brim_tensorboard_close(log->events);
  memset(log, 0, sizeof *log);
}

//---------------------------------- rows ----------------------------------

typedef struct field {
  const char *key;
  double value;
} field;

// Returns of a policy: in training, in an evaluation (NaN without one), and of doing nothing.
enum { POLICY_FIELDS = 9 };
static size_t policy_fields(const brim_epoch_report *r, field out[POLICY_FIELDS]) {
  const brim_work_returns *const of[] = {&r->returns, &r->eval_returns, &r->baseline};
  static const char *const keys[] = {"train_return", "train_spread", "train_falls",
                                     "eval_return",  "eval_spread",  "eval_falls",
                                     "zero_return",  "zero_spread",  "zero_falls"};
  for (size_t i = 0; i < 3; i++) {
    out[3 * i] = (field){keys[3 * i], brim_returns_mean(of[i])};
    out[3 * i + 1] = (field){keys[3 * i + 1], brim_returns_spread(of[i])};
    out[3 * i + 2] = (field){keys[3 * i + 2], brim_returns_falls(of[i])};
  }
  return POLICY_FIELDS;
}

// NaN is an empty field
static void csv_number(brim_str *s, double value) {
  if (!isnan(value)) brim_str_printf(s, "%.9g", value);
  brim_str_append_char(s, ',');
}

static brim_status append_json(brim_run_log *log, json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) status = append(log, &log->jsonl, text);
  brim_free(text);
  return status;
}

static brim_status epoch_csv(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  brim_str row;
  brim_str_init(&row);
  brim_str_printf(&row, "%" PRId64 ",%" PRId64 ",", r->epoch, step);
  const double values[] = {r->lr,           r->train_loss,    r->train_accuracy,
                           r->eval_loss,    r->eval_accuracy, r->seconds,
                           r->samples_per_s};
  field returns[POLICY_FIELDS];
  size_t count = r->policy ? policy_fields(r, returns) : sizeof values / sizeof *values;
  if (r->policy) csv_number(&row, r->lr);
  for (size_t i = 0; i < count; i++) csv_number(&row, r->policy ? returns[i].value : values[i]);
  if (r->policy) csv_number(&row, r->gpu_percent);
  if (r->policy) csv_number(&row, r->sm_percent);
  if (r->policy) csv_number(&row, r->seconds);
  if (r->policy) csv_number(&row, r->samples_per_s);
  if (row.len > 0) row.data[row.len - 1] = 0;  // the last comma
  brim_status status = brim_str_status(&row);
  if (!status) status = append(log, &log->csv, row.data);
  brim_str_deinit(&row);
  return status;
}

// {"samples": 60000, "cache": "none", "read_ms": 0.01, "transforms_ms": {"random_crop": 0.02},
// "broken": 0, "broken_reads": 0}, and "locked_bytes" where cache is "mapped"; the same transform
// twice in a pipeline is one sum. Times are per sample.
static brim_status put_loading(json_t *event, const brim_run_loading *l) {
  if (!l || l->samples <= 0) return BRIM_OK;
  json_t *o = json_object(), *stages = json_object();
  brim_status status = brim_json_put(o, "samples", json_integer(l->samples));
  if (!status && l->cache) status = brim_json_put(o, "cache", json_string(l->cache));
  if (!status && l->locked_bytes > 0) {
    status = brim_json_put(o, "locked_bytes", json_integer((json_int_t)l->locked_bytes));
  }
  if (!status) status = brim_json_put(o, "read_ms", brim_json_number(l->read_ms));
  for (size_t i = 0; !status && i < l->stage_count; i++) {
    double sum = l->stage_ms[i] + json_number_value(json_object_get(stages, l->stage[i]));
    status = brim_json_put(stages, l->stage[i], brim_json_number(sum));
  }
  if (!status) status = brim_json_put(o, "transforms_ms", json_incref(stages));
  if (!status) status = brim_json_put(o, "broken", json_integer(l->broken));
  if (!status) status = brim_json_put(o, "broken_reads", json_integer(l->broken_reads));
  if (!status) status = brim_json_put(event, "loader", json_incref(o));
  json_decref(stages);
  json_decref(o);
  return status;
}

static brim_status append_event(brim_run_log *log, const char *event, const field *fields,
                                size_t count, const brim_run_loading *loading) {
  brim_json_setup();
  json_t *o = json_object();
  if (!o) return brim_fail(BRIM_ENOMEM, "out of memory while logging");
  brim_status status = brim_json_put(o, "event", json_string(event));
  for (size_t i = 0; !status && i < count; i++) {
    status = brim_json_put(o, fields[i].key, brim_json_number(fields[i].value));
  }
  if (!status) status = put_loading(o, loading);
  if (!status) status = append_json(log, o);
  json_decref(o);
  return status;
}

// Scalars of a step that are known; a loss that is none is news and goes along.
static brim_status put_scalars(brim_run_log *log, int64_t step, const field *fields, size_t count) {
  if (!log->events) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    bool loss = strstr(fields[i].key, "loss") && !strstr(fields[i].key, "scale");
    if (isnan(fields[i].value) && !loss) continue;
    BRIM_TRY(brim_tensorboard_scalar(log->events, fields[i].key, step, fields[i].value));
  }
  brim_status status = brim_tensorboard_flush(log->events);
  if (status == BRIM_ENOMEM) return status;
  if (status && !log->events_failing) {
    brim_log_warn("run", "%s; the run continues, and brim writes the events when it can",
                  brim_status_detail());
  }
  log->events_failing = status != BRIM_OK;
  brim_status_clear();
  return BRIM_OK;
}

// An epoch of a policy: returns instead of losses and accuracies.
static brim_status policy_epoch(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  enum { MOST = POLICY_FIELDS + 13 };
  field scalars[MOST],
      fields[MOST] = {{"epoch", (double)r->epoch}, {"step", (double)step}, {"lr", r->lr}};
  size_t n = policy_fields(r, scalars), m = 3 + policy_fields(r, fields + 3);
  const field both[] = {{"eval_length", brim_returns_length(&r->eval_returns)},
                        {"eval_speed", brim_returns_speed(&r->eval_returns)},
                        {"update_norm", r->update_norm},
                        {"policy_norm", r->policy_norm},
                        {"sigma", r->sigma},
                        {"gpu_percent", r->gpu_percent},
                        {"sm_percent", r->sm_percent}};
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) scalars[n++] = fields[m++] = both[i];
  scalars[n++] = (field){"epoch_samples_per_s", r->samples_per_s};
  BRIM_TRY(put_scalars(log, step, scalars, n));
  if (!log->jsonl.ext) return BRIM_OK;
  fields[m++] = (field){"diverged", (double)(r->returns.diverged + r->eval_returns.diverged)};
  fields[m++] = (field){"seconds", r->seconds};
  fields[m++] = (field){"samples_per_s", r->samples_per_s};
  return append_event(log, "epoch", fields, m, NULL);
}

static brim_status policy_steps(brim_run_log *log, const brim_run_steps *s) {
  const field fields[] = {{"epoch", (double)s->epoch},
                          {"step", (double)s->step},
                          {"lr", s->lr},
                          {"return", brim_returns_mean(&s->returns)},
                          {"spread", brim_returns_spread(&s->returns)},
                          {"falls", brim_returns_falls(&s->returns)},
                          {"update_norm", s->update_norm},
                          {"policy_norm", s->policy_norm},
                          {"sigma", s->sigma},
                          {"compute_s", s->compute_s},
                          {"samples_per_s", s->samples_per_s}};
  size_t count = sizeof fields / sizeof *fields;
  // epoch and step are where a scalar stands
  BRIM_TRY(put_scalars(log, s->step, fields + 2, count - 2));
  return log->jsonl.ext ? append_event(log, "steps", fields, count, NULL) : BRIM_OK;
}

brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  bool knn = r->metric && strcmp(r->metric, "knn") == 0;
  keep_folder(log);
  if (log->csv.ext) BRIM_TRY(epoch_csv(log, r, step));
  if (r->policy) return policy_epoch(log, r, step);
  // the interval's scalars have the plain names: a step has each of them once
  const field scalars[] = {{"epoch_loss", r->train_loss},
                           {"epoch_accuracy", r->train_accuracy},
                           {"epoch_samples_per_s", r->samples_per_s},
                           {knn ? "knn" : "val_accuracy", r->eval_accuracy},
                           {"val_loss", r->eval_loss}};
  size_t count = sizeof scalars / sizeof *scalars;
  BRIM_TRY(put_scalars(log, step, scalars, r->evaluated && !r->no_loss ? count : count - 1));
  if (!log->jsonl.ext) return BRIM_OK;
  const field fields[] = {{"epoch", (double)r->epoch},
                          {"step", (double)step},
                          {"lr", r->lr},
                          {"train_loss", r->train_loss},
                          {"train_accuracy", r->train_accuracy},
                          {"eval_loss", r->eval_loss},
                          {knn ? "knn" : "eval_accuracy", r->eval_accuracy},
                          {"seconds", r->seconds},
                          {"samples_per_s", r->samples_per_s},
                          {"eval_s", r->eval_seconds},
                          {"wall_s", r->wall_seconds}};
  return append_event(log, "epoch", fields, sizeof fields / sizeof *fields, &r->loading);
}

brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *s) {
  keep_folder(log);
  if (s->policy) return policy_steps(log, s);
  const field scalars[] = {{"loss", s->loss},
                           {"accuracy", s->accuracy},
                           {"lr", s->lr},
                           {"samples_per_s", s->samples_per_s},
                           {"grad_norm", s->grad_norm},
                           {"loss_scale", s->loss_scale}};
  BRIM_TRY(put_scalars(log, s->step, scalars, sizeof scalars / sizeof *scalars));
  if (!log->jsonl.ext) return BRIM_OK;
  const field fields[] = {{"epoch", (double)s->epoch},
                          {"step", (double)s->step},
                          {"loss", s->loss},
                          {"accuracy", s->accuracy},
                          {"lr", s->lr},
                          {"grad_norm", s->grad_norm},
                          {"data_s", s->data_s},
                          {"compute_s", s->compute_s},
                          {"samples_per_s", s->samples_per_s},
                          {"loss_scale", s->loss_scale}};
  size_t count = sizeof fields / sizeof *fields;
  if (isnan(s->loss_scale)) count--;  // only fp16 has one
  return append_event(log, "steps", fields, count, NULL);
}

brim_status brim_run_log_event(brim_run_log *log, const char *event, int64_t epoch, int64_t step,
                               json_t *fields) {
  if (!log->jsonl.ext) {
    json_decref(fields);
    return BRIM_OK;
  }
  keep_folder(log);
  brim_json_setup();
  json_t *o = json_object();
  brim_status status = brim_json_put(o, "event", json_string(event));
  if (!status) status = brim_json_put(o, "epoch", json_integer(epoch));
  if (!status) status = brim_json_put(o, "step", json_integer(step));
  const char *key;
  json_t *value;
  json_object_foreach(fields, key, value) {
    if (!status) status = brim_json_put(o, key, json_incref(value));
  }
  if (!status) status = append_json(log, o);
  json_decref(fields);
  json_decref(o);
  return status;
}
