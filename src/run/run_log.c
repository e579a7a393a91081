// The logs of a run: log.csv for spreadsheets, log.jsonl for programs.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/run_int.h"

static const char csv_header[] =
    "epoch,step,lr,train_loss,train_accuracy,eval_loss,eval_accuracy,seconds,samples_per_s\n";

// step of a CSV row (second field) or of a JSON line ("step":N); -1 for the header
static int64_t line_step(const char *line, bool csv) {
  const char *at = csv ? strchr(line, ',') : strstr(line, "\"step\":");
  if (!at) return -1;
  return (int64_t)strtoll(at + (csv ? 1 : 7), NULL, 10);
}

static brim_status drop_after(const char *path, bool csv, int64_t start_step) {
  if (!brim_fs_exists(path))
    return csv ? brim_fs_write(path, csv_header, sizeof csv_header - 1) : BRIM_OK;
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, 0, &text, &size));
  size_t kept = 0;
  for (size_t at = 0; at < size;) {
    char *end = memchr(text + at, '\n', size - at);
    if (!end) break;  // a torn last line is dropped too
    size_t length = (size_t)(end - (text + at)) + 1;
    *end = 0;
    bool keep = line_step(text + at, csv) <= start_step;
    *end = '\n';
    if (keep) {
      memmove(text + kept, text + at, length);
      kept += length;
    }
    at += length;
  }
  brim_status status = kept == size ? BRIM_OK : brim_fs_write(path, text, kept);
  brim_free(text);
  return status;
}

static brim_status open_one(const char *folder, const char *name, bool csv, int64_t start_step,
                            char **path) {
  *path = brim_fs_join(folder, name);
  if (!*path) return brim_fail(BRIM_ENOMEM, "out of memory while opening the logs in %s", folder);
  return drop_after(*path, csv, start_step);
}

brim_status brim_run_log_open(brim_run_log *log, const brim_config *config, const char *folder,
                              int64_t start_step) {
  brim_status status = BRIM_OK;
  log->csv_path = log->jsonl_path = NULL;
  if (brim_config_bool(config, "log.csv")) {
    status = open_one(folder, "log.csv", true, start_step, &log->csv_path);
  }
  if (!status && brim_config_bool(config, "log.jsonl")) {
    status = open_one(folder, "log.jsonl", false, start_step, &log->jsonl_path);
  }
  if (status) brim_run_log_close(log);
  return status;
}

void brim_run_log_close(brim_run_log *log) {
  brim_free(log->csv_path);
  brim_free(log->jsonl_path);
  log->csv_path = log->jsonl_path = NULL;
}

// NaN is an empty field
static void csv_number(brim_str *s, double value) {
  if (!isnan(value)) brim_str_printf(s, "%.9g", value);
  brim_str_append_char(s, ',');
}

static brim_status append_json(const char *path, json_t *object) {
  char *text = NULL;
  brim_status status = brim_json_dump(object, 0, &text);
  if (!status) status = brim_fs_append_line(path, text);
  brim_free(text);
  return status;
}

static brim_status epoch_csv(const char *path, const brim_epoch_report *r, int64_t step) {
  brim_str row;
  brim_str_init(&row);
  brim_str_printf(&row, "%" PRId64 ",%" PRId64 ",", r->epoch, step);
  const double values[] = {r->lr,           r->train_loss,    r->train_accuracy,
                           r->eval_loss,    r->eval_accuracy, r->seconds,
                           r->samples_per_s};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) csv_number(&row, values[i]);
  if (row.len > 0) row.data[row.len - 1] = 0;  // the last comma
  brim_status status = brim_str_status(&row);
  if (!status) status = brim_fs_append_line(path, row.data);
  brim_str_deinit(&row);
  return status;
}

typedef struct field {
  const char *key;
  double value;
} field;

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

static brim_status append_event(const char *path, const char *event, const field *fields,
                                size_t count, const brim_run_loading *loading) {
  brim_json_setup();
  json_t *o = json_object();
  if (!o) return brim_fail(BRIM_ENOMEM, "out of memory while logging");
  brim_status status = brim_json_put(o, "event", json_string(event));
  for (size_t i = 0; !status && i < count; i++) {
    status = brim_json_put(o, fields[i].key, brim_json_number(fields[i].value));
  }
  if (!status) status = put_loading(o, loading);
  if (!status) status = append_json(path, o);
  json_decref(o);
  return status;
}

brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *r, int64_t step) {
  if (log->csv_path) BRIM_TRY(epoch_csv(log->csv_path, r, step));
  if (!log->jsonl_path) return BRIM_OK;
  const field fields[] = {{"epoch", (double)r->epoch},
                          {"step", (double)step},
                          {"lr", r->lr},
                          {"train_loss", r->train_loss},
                          {"train_accuracy", r->train_accuracy},
                          {"eval_loss", r->eval_loss},
                          {"eval_accuracy", r->eval_accuracy},
                          {"seconds", r->seconds},
                          {"samples_per_s", r->samples_per_s}};
  return append_event(log->jsonl_path, "epoch", fields, sizeof fields / sizeof *fields,
                      &r->loading);
}

brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *s) {
  if (!log->jsonl_path) return BRIM_OK;
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
  return append_event(log->jsonl_path, "steps", fields, count, NULL);
}
