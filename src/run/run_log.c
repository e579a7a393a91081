// The logs of a run: log.csv for spreadsheets, log.jsonl for programs.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "run/run_int.h"

// The step of a CSV row (second field) or of a JSON line ("step":N); -1 for the header.
static int64_t line_step(const char *line, bool csv) {
  const char *at = csv ? strchr(line, ',') : strstr(line, "\"step\":");
  if (!at) return -1;
  at += csv ? 1 : 7;
  return *at >= '0' && *at <= '9' ? (int64_t)strtoll(at, NULL, 10) : -1;
}

//---------------------------------- files ----------------------------------

// "FOLDER/log.csv", "FOLDER/log.3.csv"; for brim_free. NULL = out of memory.
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

// Drops rows after start_step, and with `ended` the epoch row of that step too. Sets *left to the
// bytes that remain besides the header.
static brim_status drop_after(const brim_run_file *f, const char *path, int64_t start_step,
                              bool ended, size_t *left) {
  bool csv = f->header[0] != 0;
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  // in a CSV file drop everything that is neither a row nor the header
  bool named = csv && size > 0 && brim_str_starts(text, f->header);
  size_t kept = 0;
  *left = 0;
  for (size_t at = 0; at < size;) {
    char *end = memchr(text + at, '\n', size - at);
    if (!end) break;  // drop a torn last line
    size_t length = (size_t)(end - (text + at)) + 1;
    *end = 0;
    int64_t step = line_step(text + at, csv);
    bool epoch = csv || strstr(text + at, "\"event\":\"epoch\"");
    bool reported_again = ended && step == start_step && epoch;
    *end = '\n';
    bool no_row = csv && step < 0 && !(named && at == 0);
    if (step <= start_step && !reported_again && !no_row) {
      memmove(text + kept, text + at, length);
      kept += length;
      if (!csv || step >= 0) *left += length;
    }
    at += length;
  }
  brim_status status = BRIM_OK;
  if (csv && !named) {
    brim_str whole;  // the file with its lost header
    brim_str_init(&whole);
    brim_str_append(&whole, f->header);
    brim_str_append_n(&whole, text, kept);
    status = brim_str_status(&whole);
    if (!status) status = brim_fs_write(path, whole.data, whole.len);
    brim_str_deinit(&whole);
  } else if (kept != size) {
    status = brim_fs_write(path, text, kept);
  }
  brim_free(text);
  return status;
}

// Removes a symbolic link, which would send rows elsewhere.
static void drop_link(const char *path) {
  struct stat st;
  if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) (void)unlink(path);
}

static brim_status begin_file(const brim_run_file *f, const char *path) {
  drop_link(path);
  if (!f->header[0] || brim_fs_exists(path)) return BRIM_OK;
  return brim_fs_write(path, f->header, strlen(f->header));
}

// Continues the last file that has rows, and removes later files that are empty now.
static brim_status open_files(brim_run_file *f, int64_t start_step, bool ended) {
  for (int n = 0;; n++) {
    char *path = file_path(f, n);
    if (!path) return no_memory(f);
    drop_link(path);
    bool exists = brim_fs_exists(path);
    size_t left = 0;
    brim_status status = BRIM_OK;
    if (exists) status = drop_after(f, path, start_step, ended, &left);
    if (!status && n == 0) status = begin_file(f, path);
    if (!status && n > 0 && exists && left == 0) status = brim_fs_remove(path);
    if (left > 0) f->number = n;
    brim_free(path);
    if (status || (!exists && n > 0)) return status;
  }
}

static brim_status append_row(brim_run_log *log, brim_run_file *f, const char *line) {
  char *path = file_path(f, f->number);
  if (!path) return no_memory(f);
  uint64_t size = 0;
  // a file with only its header takes a row of any length, so that no row is left out
  bool has_rows = log->rotate > 0 && brim_fs_exists(path) && brim_fs_size(path, &size) == BRIM_OK &&
                  size > strlen(f->header);
  brim_status status;
  if (has_rows && size + strlen(line) + 1 > log->rotate) {
    brim_free(path);
    path = file_path(f, ++f->number);
    if (!path) return no_memory(f);
  }
  status = begin_file(f, path);  // the file is new, or was removed
  if (!status) status = brim_fs_append_line(path, line);
  brim_free(path);
  return status;
}

// Writes waiting rows, the oldest first. Stops at the first row that cannot be written.
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

static brim_status append(brim_run_log *log, brim_run_file *f, const char *line) {
  enum { MOST_BYTES = 4 << 20 };
  while (f->waiting.len > MOST_BYTES) {  // drop the oldest rows
    size_t n = strcspn(f->waiting.data, "\n") + 1;
    memmove(f->waiting.data, f->waiting.data + n, f->waiting.len - n + 1);
    f->waiting.len -= n;
    f->lost++;
  }
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

// Tries once more to write waiting rows, and reports lost rows.
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

// Restores a removed folder before a write. The open event file went with the old folder, so open a new one.
static void keep_folder(brim_run_log *log) {
  uint64_t now[2];
  if (!log->folder) return;  // only the first rank has logs
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

// Stages of an epoch's row, in column order.
static const brim_metric_stage epoch_stages[] = {BRIM_METRIC_TRAIN, BRIM_METRIC_EVAL,
                                                 BRIM_METRIC_BASELINE};
enum { EPOCH_STAGES = 3 };

static brim_status make_header(const brim_metric_set *metrics, bool watches_gpu, char *out,
                               size_t size) {
  size_t n = (size_t)snprintf(out, size, "epoch,step,lr,");
  for (size_t k = 0; k < EPOCH_STAGES; k++) {
    for (size_t i = 0; i < metrics->count && n < size; i++) {
      const brim_metric *row = &metrics->rows[i];
      char name[BRIM_METRIC_NAME];
      if (row->flags & BRIM_METRIC_NO_CSV) continue;
      if (!brim_metric_name(row, epoch_stages[k], BRIM_METRIC_COLUMN, name)) continue;
      n += (size_t)snprintf(out + n, size - n, "%s,", name);
    }
  }
  if (n < size) {
    n += (size_t)snprintf(out + n, size - n, "%sseconds,samples_per_s\n",
                          watches_gpu ? "gpu_percent,sm_percent," : "");
  }
  return n < size ? BRIM_OK : brim_fail(BRIM_EINVAL, "too many columns for log.csv");
}

brim_status brim_run_log_open(brim_run_log *log, const brim_config *config,
                              const brim_metric_set *metrics, bool watches_gpu, const char *folder,
                              int64_t start_step, bool ended) {
  brim_status status = BRIM_OK;
  memset(log, 0, sizeof *log);
  log->folder = folder;
  identify(folder, log->folder_id);
  log->rotate = (uint64_t)brim_config_int(config, "log.rotate");
  if (brim_config_bool(config, "log.csv")) {
    BRIM_TRY(make_header(metrics, watches_gpu, log->header, sizeof log->header));
    log->csv = (brim_run_file){.folder = folder, .ext = "csv", .header = log->header};
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

// The fields of a row, in order.
enum { MOST_FIELDS = 3 * BRIM_METRIC_MAX + 16 };
typedef struct field {
  char key[BRIM_METRIC_NAME];
  double value;
  const brim_metric *row;  // NULL = the field is no metric
} field;
typedef struct row_fields {
  field all[MOST_FIELDS];
  size_t count;
} row_fields;

static void put(row_fields *f, const char *key, double value) {
  if (f->count == MOST_FIELDS) return;
  field *to = &f->all[f->count++];
  snprintf(to->key, sizeof to->key, "%s", key);
  to->value = value;
  to->row = NULL;
}

// Adds the metrics of a stage under their names in this kind of file.
static void put_rows(row_fields *f, const brim_metric_set *set, brim_metric_stage stage,
                     brim_metric_file file, const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(&set->rows[i], stage, file, name)) continue;
    put(f, name, values[i]);
    f->all[f->count - 1].row = &set->rows[i];
  }
}

static const double *values_of(const brim_epoch_report *r, brim_metric_stage stage) {
  return stage == BRIM_METRIC_TRAIN ? r->train : stage == BRIM_METRIC_EVAL ? r->eval : r->baseline;
}

// Writes a number; NaN is an empty field.
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
  csv_number(&row, r->lr);
  for (size_t k = 0; k < EPOCH_STAGES; k++) {
    for (size_t i = 0; i < r->metrics->count; i++) {
      const brim_metric *m = &r->metrics->rows[i];
      char name[BRIM_METRIC_NAME];
      if (m->flags & BRIM_METRIC_NO_CSV) continue;
      if (!brim_metric_name(m, epoch_stages[k], BRIM_METRIC_COLUMN, name)) continue;
      csv_number(&row, values_of(r, epoch_stages[k])[i]);
    }
  }
  if (r->watches_gpu) csv_number(&row, r->gpu_percent);
  if (r->watches_gpu) csv_number(&row, r->sm_percent);
  csv_number(&row, r->seconds);
  csv_number(&row, r->samples_per_s);
  if (row.len > 0) row.data[row.len - 1] = 0;  // the last comma
  brim_status status = brim_str_status(&row);
  if (!status) status = append(log, &log->csv, row.data);
  brim_str_deinit(&row);
  return status;
}

// {"samples": 60000, "cache": "none", "read_ms": 0.01, "transforms_ms": {"random_crop": 0.02},
// "broken": 0, "broken_reads": 0}; with cache "mapped" also "locked_bytes". Times are per sample. A transform
// that a pipeline uses twice has one sum.
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

static brim_status append_event(brim_run_log *log, const char *event, const row_fields *f,
                                const brim_run_loading *loading) {
  brim_json_setup();
  json_t *o = json_object();
  if (!o) return brim_fail(BRIM_ENOMEM, "out of memory while logging");
  brim_status status = brim_json_put(o, "event", json_string(event));
  for (size_t i = 0; !status && i < f->count; i++) {
    const field *at = &f->all[i];
    if (at->row && (at->row->flags & BRIM_METRIC_OPTIONAL) && isnan(at->value)) continue;
    status = brim_json_put(o, at->key, brim_json_number(at->value));
  }
  if (!status) status = put_loading(o, loading);
  if (!status) status = append_json(log, o);
  json_decref(o);
  return status;
}

// Writes the known scalars of a step. NaN is written for metrics that must be finite.
static brim_status put_scalars(brim_run_log *log, int64_t step, const row_fields *f) {
  if (!log->events) return BRIM_OK;
  for (size_t i = 0; i < f->count; i++) {
    const field *at = &f->all[i];
    bool must_be_finite = at->row && (at->row->flags & BRIM_METRIC_FINITE);
    if (isnan(at->value) && !must_be_finite) continue;
    BRIM_TRY(brim_tensorboard_scalar(log->events, at->key, step, at->value));
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

// Writes the scalars of an epoch. Their names differ from the names of a log interval, so that a step has each scalar
// once.
static brim_status epoch_scalars(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  row_fields f = {.count = 0};
  put_rows(&f, r->metrics, BRIM_METRIC_TRAIN, BRIM_METRIC_TAG, r->train);
  if (r->evaluated) put_rows(&f, r->metrics, BRIM_METRIC_EVAL, BRIM_METRIC_TAG, r->eval);
  put_rows(&f, r->metrics, BRIM_METRIC_BASELINE, BRIM_METRIC_TAG, r->baseline);
  put(&f, "gpu_percent", r->gpu_percent);
  put(&f, "sm_percent", r->sm_percent);
  put(&f, "epoch_samples_per_s", r->samples_per_s);
  return put_scalars(log, step, &f);
}

brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  keep_folder(log);
  if (log->csv.ext) BRIM_TRY(epoch_csv(log, r, step));
  BRIM_TRY(epoch_scalars(log, r, step));
  if (!log->jsonl.ext) return BRIM_OK;
  row_fields f = {.count = 0};
  put(&f, "epoch", (double)r->epoch);
  put(&f, "step", (double)step);
  put(&f, "lr", r->lr);
  for (size_t k = 0; k < EPOCH_STAGES; k++) {
    put_rows(&f, r->metrics, epoch_stages[k], BRIM_METRIC_COLUMN, values_of(r, epoch_stages[k]));
  }
  if (r->watches_gpu) put(&f, "gpu_percent", r->gpu_percent);
  if (r->watches_gpu) put(&f, "sm_percent", r->sm_percent);
  put(&f, "seconds", r->seconds);
  put(&f, "samples_per_s", r->samples_per_s);
  put(&f, "eval_s", r->eval_seconds);
  put(&f, "wall_s", r->wall_seconds);
  return append_event(log, "epoch", &f, &r->loading);
}

brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *s) {
  keep_folder(log);
  row_fields f = {.count = 0};
  put(&f, "lr", s->lr);
  put_rows(&f, s->metrics, BRIM_METRIC_STEPS, BRIM_METRIC_TAG, s->values);
  if (!s->loads) put(&f, "compute_s", s->compute_s);
  put(&f, "samples_per_s", s->samples_per_s);
  BRIM_TRY(put_scalars(log, s->step, &f));
  if (!log->jsonl.ext) return BRIM_OK;
  f.count = 0;
  put(&f, "epoch", (double)s->epoch);
  put(&f, "step", (double)s->step);
  put(&f, "lr", s->lr);
  put_rows(&f, s->metrics, BRIM_METRIC_STEPS, BRIM_METRIC_COLUMN, s->values);
  if (s->loads) put(&f, "data_s", s->data_s);
  put(&f, "compute_s", s->compute_s);
  put(&f, "samples_per_s", s->samples_per_s);
  return append_event(log, "steps", &f, NULL);
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
