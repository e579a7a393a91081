// The training loop: epochs, evaluation, early stopping, resume, and the reports of a run.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "run/run_int.h"

typedef brim_run_loop loop;

static void epoch_values(const loop *l, double values[BRIM_METRIC_MAX]);

//---------------------------------- published findings ----------------------------------
// The findings of a running job, for `brim top`: problems that the workload reports, and waiting for data.

static const double WAITS = 0.1;  // report waiting for data above this share of a step

// The finding with this code, or a new one. A full list drops its oldest.
static brim_finding *finding_of(brim_job *job, const char *code) {
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) == 0) return &job->findings[i];
  }
  if (job->finding_count == BRIM_JOB_FINDINGS) {
    memmove(job->findings, job->findings + 1, (BRIM_JOB_FINDINGS - 1) * sizeof *job->findings);
    job->finding_count--;
  }
  return &job->findings[job->finding_count++];
}

// Replaces the finding with the same code. `job` may be NULL; `text` as base_words.h stores it.
static void publish_finding(brim_job *job, const char *code, const char *text) {
  if (!job) return;
  brim_finding *f = finding_of(job, code);
  memset(f, 0, sizeof *f);
  f->cost_ms = f->predicted_ms = (double)NAN;
  snprintf(f->code, sizeof f->code, "%.31s", code);
  snprintf(f->text, sizeof f->text, "%s", text);
  brim_utf8_trim(f->text);
}

// Publishes or removes the finding that steps wait for data.
static void publish_waits(loop *l, const brim_run_steps *s) {
  static const char code[] = "io_wait";
  brim_job *job = &l->job;
  double step_s = s->data_s + s->compute_s;
  if (!l->publisher || !s->loads || !(step_s > 0)) return;
  if (s->data_s > WAITS * step_s) {
    char text[256] = "";
    brim_words_add(text, sizeof text, BRIM_N_("waiting for data takes %.0f %% of a step"),
                   brim_shown(100 * s->data_s / step_s));
    publish_finding(job, code, text);
    brim_finding *f = finding_of(job, code);
    f->cost_ms = s->data_s * 1e3;
    brim_words_put(f->remedy, sizeof f->remedy, BRIM_N_("run brim bench to find its remedy"));
    return;
  }
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) != 0) continue;
    size_t after = job->finding_count - i - 1;
    memmove(job->findings + i, job->findings + i + 1, after * sizeof *job->findings);
    job->finding_count--;
    return;
  }
}

//---------------------------------- problems ----------------------------------
// Problems that the workload finds while it trains: counted, warned about, logged and published.

static brim_status log_trouble(brim_run_watch *w, const brim_work_trouble *t,
                               const brim_work_moment *at) {
  const char *name = w->work->table->diagnosis->rows[t->kind].name;
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "kind", json_string(name));
  if (!s) s = brim_json_put(f, "count", json_integer(t->count));
  for (size_t i = 0; !s && i < t->field_count; i++) {
    s = brim_json_put(f, t->fields[i].key, brim_json_number(t->fields[i].value));
  }
  char advice[sizeof t->advice];
  brim_words_text(t->advice, advice, sizeof advice);
  if (!s && advice[0]) s = brim_json_put(f, "advice", json_string(advice));
  if (!s) s = brim_json_put(f, "lr", brim_json_number(at->lr));
  if (!s) return brim_run_log_event(w->log, "anomaly", at->epoch, at->step, f);
  json_decref(f);
  return s;
}

static brim_status report_trouble(brim_run_watch *w, const brim_work_trouble *t,
                                  const brim_work_moment *at, bool unlogged) {
  brim_run_result *r = w->result;
  if (!r->first_anomaly[t->kind]) r->first_anomaly[t->kind] = at->step;
  r->anomalies[t->kind] += t->count;
  int64_t times = ++w->times[t->kind];
  // warn the 1st, 2nd, 4th, 8th, ... time
  bool warns = (times & (times - 1)) == 0 || w->work->table->diagnosis->rows[t->kind].always;
  char text[sizeof t->text];
  brim_words_text(t->text, text, sizeof text);
  if (!t->silent && warns) brim_log_text(BRIM_LOG_WARN, "run", text);
  if (!t->silent) publish_finding(w->job, w->work->table->diagnosis->rows[t->kind].name, t->text);
  return unlogged ? BRIM_OK : log_trouble(w, t, at);
}

// Asks the workload for new problems. `unlogged`: do not log them, a resumed run will.
static brim_status check_trouble(brim_run_watch *w, const brim_work_moment *at, bool unlogged) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  brim_work_trouble troubles[BRIM_WORK_MAX_TROUBLES];
  if (!d) return BRIM_OK;
  size_t n = d->take(w->work->state, at, troubles);
  for (size_t i = 0; i < n; i++) BRIM_TRY(report_trouble(w, &troubles[i], at, unlogged));
  return BRIM_OK;
}

//---------------------------------- loading ----------------------------------
// Loading times per sample, for logs, the summary and the warning about slow transforms.

enum { FEW_SAMPLES = 8 };  // with fewer, one cold call would dominate the mean

_Static_assert(BRIM_WORK_MAX_STAGES <= 32, "bits of brim_run_loader.warned");

static bool loading_now(const brim_work *work, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (!work->table->loading) return false;
  work->table->loading->stats(work->state, out);
  return true;
}

static void loading_between(const brim_work_loading *from, const brim_work_loading *to,
                            brim_run_loading *out) {
  memset(out, 0, sizeof *out);
  out->broken = to->broken;
  out->broken_reads = to->broken_reads;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", to->first_broken);
  out->cache = to->cache;
  out->locked_bytes = to->locked_bytes;
  out->samples = to->samples - from->samples;
  out->stage_count = to->stage_count;
  for (size_t i = 0; i < to->stage_count; i++) out->stage[i] = to->stage[i];
  if (out->samples <= 0) return;
  double each = 1e-6 / (double)out->samples;
  out->read_ms = (double)(to->read_ns - from->read_ns) * each;
  for (size_t i = 0; i < to->stage_count; i++) {
    out->stage_ms[i] = (double)(to->stage_ns[i] - from->stage_ns[i]) * each;
  }
}

static void warn_slow(brim_run_loader *loader, const brim_run_loading *loading) {
  if (loading->samples < FEW_SAMPLES) return;
  for (size_t i = 0; i < loading->stage_count; i++) {
    uint32_t bit = (uint32_t)1 << i;
    if (loading->stage_ms[i] <= loader->slow_ms || (loader->warned & bit)) continue;
    loader->warned |= bit;
    brim_log_warn("run",
                  "transform %s takes %.3g ms per sample (limit data.slow_transform_ms %g); move "
                  "it after the stage that shrinks the image, raise data.num_workers, or run it on "
                  "the GPU with data.cache=gpu",
                  loading->stage[i], loading->stage_ms[i], loader->slow_ms);
  }
}

// Loading since the epoch began; starts the next one. Warns once about each slow transform.
static void loader_epoch(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now;
  memset(out, 0, sizeof *out);
  if (!loading_now(work, &now)) return;
  loading_between(&loader->before, &now, out);
  loader->before = now;
  warn_slow(loader, out);
}

// Loading since the setting was built.
static void loader_all(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now, none;
  memset(out, 0, sizeof *out);
  memset(&none, 0, sizeof none);
  if (!loading_now(work, &now)) return;
  loading_between(&none, &now, out);
  warn_slow(loader, out);
}

//---------------------------------- published progress ----------------------------------
// Phase, epoch, step and throughput of a running job, for `brim top` (monitor.h). A step costs one look at
// the clock, and twice a second a copy. Nothing here can fail a run.

enum { PERIOD_NS = 500000000 };

// The config's name, else the folder's.
static const char *name_of(const loop *l) {
  const char *name = brim_config_string(l->config, "name");
  return name && name[0] ? name : brim_fs_basename(l->options->output_dir);
}

static void publish_start(loop *l) {
  brim_job *job = &l->job;
  if (!l->options->publish) return;
  brim_job_init(job);
  snprintf(job->command, sizeof job->command, "%.15s", l->options->publish);
  snprintf(job->workload, sizeof job->workload, "%.31s", l->work->table->name);
  snprintf(job->name, sizeof job->name, "%.63s", name_of(l));
  snprintf(job->folder, sizeof job->folder, "%.255s", l->options->output_dir);
  brim_utf8_trim(job->name);
  brim_utf8_trim(job->folder);
  const brim_device *device = l->work->context.device;
  if (device) {
    brim_device_spec_text(device, job->device, sizeof job->device);
    snprintf(job->device_id, sizeof job->device_id, "%.63s", device->info.id);
  }
  if (l->info.unit) snprintf(job->unit, sizeof job->unit, "%.23s", l->info.unit);
  job->phase = BRIM_JOB_START;
  l->publisher = brim_job_publisher_start(job);
  l->publish_time = brim_clock_now();
  l->watch.job = job;
}

// Publishes the first metric that has a value while training. Between epochs it keeps its last value.
static void put_metric(const loop *l, brim_job *job) {
  double values[BRIM_METRIC_MAX];
  const brim_metric_set *set = l->work->metrics;
  epoch_values(l, values);
  for (size_t i = 0; i < set->count; i++) {
    if (!(set->rows[i].stages & BRIM_METRIC_AT(BRIM_METRIC_STEPS))) continue;
    if (!isfinite(values[i]) && strcmp(set->rows[i].key, job->metric_key) == 0) return;
    if (!isfinite(values[i])) continue;
    snprintf(job->metric_key, sizeof job->metric_key, "%s", set->rows[i].key);
    job->metric = values[i];
    return;
  }
}

static void put_place(const loop *l, brim_job *job) {
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  if (l->limit > 0 && l->limit < last) last = l->limit;
  job->epoch = l->epoch + 1 < l->epochs ? l->epoch + 1 : l->epochs;
  job->epochs = l->epochs;
  job->step = l->step;
  job->steps = last > 0 ? last : -1;
}

static void publish(loop *l) {
  brim_job_publisher_set(l->publisher, &l->job);
  if (l->options->on_published) l->options->on_published(l->options->ctx, &l->job);
}

static void publish_phase(loop *l, brim_job_phase phase) {
  if (!l->publisher) return;
  l->job.phase = phase;
  put_place(l, &l->job);
  publish(l);
}

// Called after each step; publishes at most twice a second.
static void publish_step(loop *l) {
  if (!l->publisher) return;
  brim_time now = brim_clock_now();
  int64_t ns = brim_time_since_ns(l->publish_time, now);
  if (ns < PERIOD_NS) return;
  brim_job *job = &l->job;
  double seconds = l->train_seconds - l->publish_seconds;  // evaluations do not count
  int64_t steps = l->step - l->publish_step;
  if (steps <= 0 || !(seconds > 0)) return;
  put_place(l, job);
  put_metric(l, job);
  job->phase = BRIM_JOB_TRAIN;
  job->samples_per_s = (double)(l->train_samples - l->publish_samples) / seconds;
  double step_s = (double)ns * 1e-9 / (double)steps;
  job->eta_s = job->steps >= l->step ? step_s * (double)(job->steps - l->step) : (double)NAN;
  publish(l);
  l->publish_time = now;
  l->publish_seconds = l->train_seconds;
  l->publish_samples = l->train_samples;
  l->publish_step = l->step;
}

//---------------------------------- the best epoch ----------------------------------
// Which epoch is best, by checkpoint.best, and early stopping by the same metric. Checkpoints store both, so that
// a resumed run chooses as the uninterrupted one does.

// The row with this key or name in checkpoints; -1 if none. Prefers a row measured in `stage`. In the training
// stage no other will do.
static int row_of(const brim_metric_set *set, const char *name, brim_metric_stage stage) {
  int found = -1;
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    if (strcmp(row->key, name) != 0 && strcmp(brim_metric_best_name(row), name) != 0) continue;
    if (row->stages & BRIM_METRIC_AT(stage)) return (int)i;
    if (found < 0 && stage != BRIM_METRIC_TRAIN) found = (int)i;
  }
  return found;
}

static bool others_have(const char *name, brim_metric_stage stage) {
  const brim_workload_table *table;
  for (size_t i = 0; (table = brim_workload_at(i)); i++) {
    if (row_of(table->metric_set, name, stage) >= 0) return true;
  }
  return false;
}

static brim_status no_metric(const brim_metric_set *set, const char *name) {
  brim_str keys;
  brim_str_init(&keys);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0) continue;
    brim_str_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", row->key);
    bool eval = row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL);
    bool train = row->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN);
    if (eval && train) brim_str_printf(&keys, ", val_%s", row->key);
    if (train) brim_str_printf(&keys, ", train_%s", row->key);
  }
  brim_status status = brim_fail(BRIM_EINVAL, "checkpoint.best is '%s', expected one of %s", name,
                                 keys.data ? keys.data : "");
  brim_str_deinit(&keys);
  return status;
}

static brim_status best_init(brim_run_best *best, const brim_config *config,
                             const brim_metric_set *metrics) {
  memset(best, 0, sizeof *best);
  brim_metric_unknown(best->values);
  best->metrics = metrics;
  best->by = best->row = -1;
  best->reference = (double)NAN;
  best->patience = brim_config_int(config, "training.early_stopping_patience");
  best->delta = brim_config_float(config, "training.early_stopping_delta");
  const char *name = brim_config_string(config, "checkpoint.best");
  if (!name || !name[0]) return BRIM_OK;
  const char *key = name;
  best->training = brim_str_starts(name, "train_");
  if (best->training) key += 6;
  if (brim_str_starts(name, "val_")) key += 4;
  if (brim_str_starts(name, "eval_")) key += 5;
  brim_metric_stage stage = best->training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  best->by = row_of(metrics, key, stage);
  if (best->by >= 0) return BRIM_OK;
  if (!others_have(key, stage)) return no_metric(metrics, name);
  best->wanted = name;
  return BRIM_OK;
}

// Before training: falls back to training metrics, with a warning, if checkpoint.best needs an evaluation and
// there is none.
static void best_start(brim_run_best *best, bool evaluates) {
  const brim_metric_set *set = best->metrics;
  if (evaluates || best->by < 0) return;
  const brim_metric *asked = &set->rows[best->by];
  if (asked->stages & BRIM_METRIC_AT(BRIM_METRIC_TRAIN)) return;
  best->by = -1;
  brim_log_warn("run",
                "checkpoint.best is %s, but this run has nothing to evaluate it on; brim uses the "
                "training metrics",
                asked->key);
}

//---------------------------------- epochs ----------------------------------

// The row that decides by default: the highest rank with a known value.
static int by_rank(const brim_metric_set *set, brim_metric_stage stage, const double *values) {
  int row = brim_metric_deciding(set, stage, values, false);
  for (size_t i = 0; row < 0 && i < set->count; i++) {
    const brim_metric *r = &set->rows[i];
    bool must = r->rank > 0 && (r->flags & BRIM_METRIC_FINITE);
    if (must && (r->stages & BRIM_METRIC_AT(stage))) row = (int)i;
  }
  return row >= 0 ? row : brim_metric_deciding(set, stage, values, true);
}

// The row's name in checkpoint.best: "accuracy", "train_loss".
static void name_row(const brim_run_best *best, int row, char out[BRIM_METRIC_NAME]) {
  snprintf(out, BRIM_METRIC_NAME, "%s%s", best->training ? "train_" : "",
           brim_metric_best_name(&best->metrics->rows[row]));
}

static void warn_another_row(brim_run_best *best, const char *asked, int row) {
  if (!best->warned && row >= 0) {
    char used[BRIM_METRIC_NAME];
    name_row(best, row, used);
    brim_log_warn("run", "checkpoint.best is %s, which this run does not have; brim uses %s", asked,
                  used);
  }
  best->warned = true;
}

// The row that decides (-1 = none), and the values it belongs to.
static int deciding_row(brim_run_best *best, const brim_epoch_report *r, brim_metric_stage stage,
                        const double **values) {
  const brim_metric_set *set = best->metrics;
  const brim_metric *asked = best->by >= 0 ? &set->rows[best->by] : NULL;
  if (asked && !(asked->stages & BRIM_METRIC_AT(stage))) {
    if (!best->warned) {
      brim_log_warn(
          "run", "checkpoint.best is %s, but this evaluation has none; brim uses the training %s",
          asked->key, asked->key);
    }
    best->warned = true;
    *values = r->train;
    return best->by;
  }
  if (asked && (!isnan((*values)[best->by]) || (asked->flags & BRIM_METRIC_FINITE))) {
    return best->by;
  }
  int row = by_rank(set, stage, *values);
  if (best->wanted) warn_another_row(best, best->wanted, row);
  if (asked) warn_another_row(best, asked->key, row);
  return row;
}

// False if the deciding value, or any value that must be finite, is not: the network diverged.
static bool is_finite(const brim_run_best *best, const double *values, brim_metric_stage stage,
                      int row) {
  if (!isfinite(values[row])) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *m = &best->metrics->rows[i];
    if (!(m->flags & BRIM_METRIC_FINITE) || !(m->stages & BRIM_METRIC_AT(stage))) continue;
    if (!isfinite(values[i])) return false;
  }
  return true;
}

// True if this epoch is the best so far. With an evaluation set (`evaluates`) only evaluated epochs can be best;
// without one the training metrics decide.
static bool best_take(brim_run_best *best, const brim_epoch_report *r, bool evaluates) {
  bool training = best->training || !evaluates;
  if (!training && !r->evaluated) return false;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  const double *values = training ? r->train : r->eval;
  int row = deciding_row(best, r, stage, &values);
  best->row = row;
  if (row < 0) return false;
  bool finite = is_finite(best, values, stage, row) && (training || !r->dead);
  bool lower = best->metrics->rows[row].better == BRIM_BETTER_LOWER;
  double value = lower ? -values[row] : values[row];
  if (best->patience > 0) {
    bool improved = finite && (isnan(best->reference) || value > best->reference + best->delta);
    best->waited = improved ? 0 : best->waited + 1;
    if (improved) best->reference = value;
  }
  if (!finite) return false;
  double so_far = lower ? -best->values[row] : best->values[row];
  if (!isnan(so_far) && !(value > so_far)) return false;
  for (size_t i = 0; i < best->metrics->count; i++) {
    if (best->metrics->rows[i].rank > 0) best->values[i] = training ? r->train[i] : r->eval[i];
  }
  best->values[row] = values[row];
  best->epoch = r->epoch;
  return true;
}

static bool best_stops(const brim_run_best *best) {
  return best->patience > 0 && best->waited >= best->patience;
}

// True if this run selects by another metric than the checkpoint's row `was`, so that values cannot be compared.
static bool uses_another_row(const brim_run_best *best, int was, bool training) {
  if (was < 0 || training != best->training) return true;
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int now =
      best->by >= 0 ? best->by : brim_metric_deciding(best->metrics, stage, best->values, true);
  if (now < 0 || now == was) return false;
  const brim_metric *rows = best->metrics->rows;
  if (strcmp(brim_metric_best_name(&rows[now]), brim_metric_best_name(&rows[was])) == 0)
    return false;
  // a checkpoint without a value of `now` fell back to `was`, as this run does
  return rows[was].rank < rows[now].rank || !isnan(best->values[now]);
}

static brim_status best_put(const brim_run_best *best, json_t *metadata) {
  if (best->row >= 0 && (best->epoch > 0 || best->waited > 0)) {
    char name[BRIM_METRIC_NAME];
    name_row(best, best->row, name);
    BRIM_TRY(brim_json_put(metadata, "brim.best_by", json_string(name)));
  }
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    // two rows may share a name: store the known value
    if (isnan(best->values[i]) && json_object_get(metadata, key)) continue;
    BRIM_TRY(brim_run_put_double(metadata, key, best->values[i]));
  }
  BRIM_TRY(brim_run_put_double(metadata, "brim.best_epoch", (double)best->epoch));
  if (best->patience == 0) return BRIM_OK;
  BRIM_TRY(brim_run_put_double(metadata, "brim.stop_reference", best->reference));
  return brim_run_put_double(metadata, "brim.stop_waited", (double)best->waited);
}

static void best_get(brim_run_best *best, const json_t *metadata) {
  double epoch = 0, waited = 0;
  for (size_t i = 0; i < best->metrics->count; i++) {
    const brim_metric *row = &best->metrics->rows[i];
    char key[BRIM_METRIC_NAME + 16];
    if (row->rank == 0) continue;
    snprintf(key, sizeof key, "brim.best_%s", brim_metric_best_name(row));
    brim_run_get_double(metadata, key, &best->values[i]);
  }
  brim_run_get_double(metadata, "brim.best_epoch", &epoch);
  best->epoch = (int64_t)epoch;
  const char *was = json_string_value(json_object_get(metadata, "brim.best_by"));
  bool training = was && brim_str_starts(was, "train_");
  brim_metric_stage stage = training ? BRIM_METRIC_TRAIN : BRIM_METRIC_EVAL;
  int row = was ? row_of(best->metrics, training ? was + 6 : was, stage) : -1;
  if (was && uses_another_row(best, row, training)) {
    brim_log_warn(
        "run",
        "the best epoch so far was selected by %s; brim now uses another metric and starts over",
        was);
    brim_metric_unknown(best->values);
    best->epoch = 0;
    return;
  }
  best->row = row;
  if (best->patience == 0) return;
  brim_run_get_double(metadata, "brim.stop_reference", &best->reference);
  brim_run_get_double(metadata, "brim.stop_waited", &waited);
  best->waited = waited > 0 ? (int64_t)waited : 0;
}

//---------------------------------- position ----------------------------------
// Where a run stands, in the metadata of its checkpoints.

// Stores sums of the epoch or the log interval: one key each ("brim.epoch_loss"), or one list.
static brim_status put_sums(const brim_work *work, const char *of, const double *sums,
                            json_t *extra) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  bool any = false;
  for (size_t i = 0; i < rows->count; i++) {
    any = any || sums[i] != 0;
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    if (!rows->packed) BRIM_TRY(brim_run_put_double(extra, key, sums[i]));
  }
  if (!rows->packed || !any) return BRIM_OK;
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  return brim_json_put_numbers(extra, key, sums, rows->count);
}

// Sums that the checkpoint lacks start at 0: only reports depend on them.
static void get_sums(const brim_work *work, const char *of, const json_t *extra, double *sums) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  for (size_t i = 0; !rows->packed && i < rows->count; i++) {
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    brim_run_get_double(extra, key, &sums[i]);
  }
  if (!rows->packed) return;
  double read[BRIM_WORK_MAX_SUMS] = {0};
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  const size_t n = brim_json_get_numbers(extra, key, read, rows->count);
  if (n != rows->count && (rows->least == 0 || n < rows->least)) return;
  for (size_t i = 0; i < rows->count; i++) {
    if (!isfinite(read[i])) return;
  }
  memcpy(sums, read, rows->count * sizeof *sums);
}

brim_status brim_run_position_put(const loop *l, json_t *extra) {
  BRIM_TRY(best_put(&l->best, extra));
  BRIM_TRY(brim_run_adapt_put(&l->adapt, l->work, extra));
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  if (d && d->put) BRIM_TRY(d->put(l->work->state, l->watch.times, extra));
  BRIM_TRY(put_sums(l->work, "epoch", l->sums, extra));
  BRIM_TRY(put_sums(l->work, "log", l->log_sums, extra));
  BRIM_TRY(brim_run_put_double(extra, "brim.log_bad", (double)l->log_bad));
  BRIM_TRY(brim_run_put_double(extra, "brim.epoch_skipped", l->epoch_skipped));
  if (l->info.idle_limit > 0) {
    BRIM_TRY(brim_run_put_double(extra, "brim.updated", (double)l->updated));
  }
  // `ended`: the workload is at the next epoch already, and the report still needs the learning rate
  return l->ended ? brim_run_put_double(extra, "brim.ended_lr", l->last_lr) : BRIM_OK;
}

static brim_status resume(loop *l, const char *path) {
  json_t *extra = NULL;
  BRIM_TRY(l->work->table->load(l->work->state, path, &extra));
  double step = 0, epoch = 0, skipped = 0;
  best_get(&l->best, extra);
  brim_run_get_double(extra, "brim.step", &step);
  brim_run_get_double(extra, "brim.epoch", &epoch);
  brim_run_get_double(extra, "brim.skipped_steps", &skipped);
  double bad = 0;
  bool same_epoch = !json_object_get(extra, "brim.new_epoch");
  if (same_epoch) {
    get_sums(l->work, "epoch", extra, l->sums);
    get_sums(l->work, "log", extra, l->log_sums);
    brim_run_get_double(extra, "brim.log_bad", &bad);
    brim_run_get_double(extra, "brim.epoch_skipped", &l->epoch_skipped);
  }
  l->log_bad = (int64_t)bad;
  brim_run_compare_settings(l->config, l->work, extra, path);
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  if (d && d->get) d->get(l->work->state, extra, (int64_t)skipped, l->watch.times);
  l->step = (int64_t)step;
  double updated = step;
  brim_run_get_double(extra, "brim.updated", &updated);
  l->updated = updated >= 0 && updated <= step ? (int64_t)updated : l->step;
  if (l->info.idle_limit > 0) l->result->skipped_steps = (int64_t)skipped;
  l->ended = same_epoch && epoch >= 1 && json_object_get(extra, "brim.ended_lr");
  brim_run_get_double(extra, "brim.ended_lr", &l->last_lr);
  l->epoch = (int64_t)epoch - l->ended;
  if (brim_fs_same(path, l->files.last)) l->files.last_step = l->step;
  json_decref(extra);
  brim_log_info("run", "resumed from %s at step %" PRId64, path, l->step);
  return BRIM_OK;
}

//---------------------------------- reports ----------------------------------
// Progress, the figures of a log interval, and the report of an epoch.

static void restart_clock(loop *l) {
  l->log_start = brim_clock_now();
  l->log_samples = l->log_steps = 0;
}

static void restart_interval(loop *l) {
  restart_clock(l);
  l->log_bad = 0;
  memset(l->log_sums, 0, sizeof l->log_sums);
}

// Adds the time since `start` to the training time of epoch and run; returns it.
static int64_t count_time(loop *l, brim_time start) {
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  l->epoch_ns += ns;
  l->train_seconds += (double)ns * 1e-9;
  return ns;
}

// Adds the sums since the last call to those of the epoch and the interval. Call it at fixed steps (every tenth,
// each log interval, the end of an epoch), never by the clock: the grouping changes roundings, and equal runs
// must report equal figures. Steps are only enqueued, so this waits for the device and counts that as training.
static brim_status take_metrics(loop *l) {
  brim_work_metrics m;
  brim_time start = brim_clock_now();
  BRIM_TRY(l->work->table->metrics(l->work->state, true, &m));
  int64_t ns = count_time(l, start);
  if (l->timer.used[BRIM_PHASE_COMPUTE]) l->timer.ns[BRIM_PHASE_COMPUTE] += ns;
  const size_t count = l->work->table->sums->count;
  for (size_t i = 0; i < count; i++) l->sums[i] += m.sums[i];
  for (size_t i = 0; i < count; i++) l->log_sums[i] += m.sums[i];
  memcpy(l->last, m.values, sizeof l->last);
  l->log_bad += m.bad;
  // without samples no step was made
  if (m.samples > 0 && m.skipped == l->result->skipped_steps) l->updated = l->step;
  l->searching = m.searching;
  l->result->bad_samples += m.bad;
  if (!m.searching && m.skipped > l->result->skipped_steps) {
    l->result->lost_steps += m.skipped - l->result->skipped_steps;
  }
  l->result->skipped_steps = m.skipped;
  const brim_work_moment at = {
      .epoch = l->epoch + 1, .step = l->step, .lr = l->last_lr, .metrics = &m};
  return check_trouble(&l->watch, &at, l->result->partial);
}

// Metrics from sums; NaN where there is none.
static void values_of(const loop *l, const double *sums, double *values) {
  memcpy(values, l->last, sizeof l->last);
  l->work->table->figures(l->work->state, sums, values);
}

static void epoch_values(const loop *l, double values[BRIM_METRIC_MAX]) {
  values_of(l, l->sums, values);
}

// Metrics that are the throughput in another unit.
static void put_rates(const loop *l, double samples_per_s, double *values) {
  for (size_t i = 0; i < l->info.rate_count; i++) {
    const brim_work_rate *rate = &l->info.rates[i];
    if (rate->row > 0) values[rate->row - 1] = samples_per_s * rate->per_sample;
  }
}

static void show_progress(loop *l, bool force) {
  if (!l->options->on_progress || l->progress_steps == 0) return;
  int64_t ns = brim_time_since_ns(l->progress_start, brim_clock_now());
  if (!force && ns < 100000000) return;
  char title[64];
  snprintf(title, sizeof title, "epoch %" PRId64 "/%" PRId64, l->epoch + 1, l->epochs);
  brim_progress p;
  memset(&p, 0, sizeof p);
  int64_t in_epoch = l->step - l->epoch * l->info.steps_per_epoch;
  p.title = title;
  p.epoch = l->epoch + 1;
  p.epochs = l->epochs;
  p.done = in_epoch;
  p.total = l->info.steps_per_epoch;
  p.elapsed_s = (double)brim_time_since_ns(l->epoch_start, brim_clock_now()) * 1e-9;
  p.rate = ns > 0 ? (double)l->progress_samples / ((double)ns * 1e-9) : (double)NAN;
  double step_s = (double)ns * 1e-9 / (double)l->progress_steps;
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  p.eta_s = step_s * (double)(last - l->step);
  p.unit = l->info.unit;
  double values[BRIM_METRIC_MAX];
  epoch_values(l, values);
  p.metrics = l->work->metrics;
  p.values = values;
  p.baseline = l->info.has_baseline ? l->info.training_baseline : NULL;
  brim_phase_timer_shares(&l->timer, ns, p.phase_share);
  l->options->on_progress(l->options->ctx, &p);
  brim_phase_timer_reset(&l->timer);
  l->progress_start = brim_clock_now();
  l->progress_samples = l->progress_steps = 0;
}

// Reports a log interval to the log and the callback. `data_ns`: time that steps waited for data.
static brim_status report_steps(loop *l, int64_t data_ns) {
  BRIM_TRY(take_metrics(l));
  double seconds = (double)brim_time_since_ns(l->log_start, brim_clock_now()) * 1e-9;
  brim_run_steps s;
  memset(&s, 0, sizeof s);
  s.metrics = l->work->metrics;
  values_of(l, l->log_sums, s.values);
  s.loads = l->work->table->loading != NULL;
  s.epoch = l->epoch + 1;
  s.step = l->step;
  s.lr = l->last_lr;
  s.data_s = (double)data_ns * 1e-9 / (double)l->log_steps;
  s.compute_s = seconds / (double)l->log_steps - s.data_s;
  s.samples_per_s = seconds > 0 ? (double)l->log_samples / seconds : (double)NAN;
  put_rates(l, s.samples_per_s, s.values);
  restart_interval(l);
  if (l->options->on_steps) l->options->on_steps(l->options->ctx, &s);
  publish_waits(l, &s);
  return brim_run_log_steps(&l->log, &s);
}

// Fills in the training part of an epoch's report.
static void fill_report(const loop *l, brim_epoch_report *r) {
  memset(r, 0, sizeof *r);
  r->epoch = l->epoch + 1;
  r->epochs = l->epochs;
  r->metrics = l->work->metrics;
  epoch_values(l, r->train);
  brim_metric_unknown(r->eval);
  memcpy(r->baseline, l->info.baseline, sizeof r->baseline);
  if (!l->info.has_baseline) brim_metric_unknown(r->baseline);
  r->watches_gpu = l->info.watches_gpu;
  r->gpu_percent = r->sm_percent = (double)NAN;
  const brim_run_options *o = l->options;
  if (o->usage) o->usage(o->ctx, &r->gpu_percent, &r->sm_percent);
  r->lr = l->last_lr;
  // unknown if another process made the steps
  bool made = l->epoch_samples > 0 && l->epoch_ns > 0;
  r->seconds = made ? (double)l->epoch_ns * 1e-9 : (double)NAN;
  r->samples_per_s = made ? (double)l->epoch_samples / r->seconds : (double)NAN;
  put_rates(l, r->samples_per_s, r->train);
}

// The error for an epoch that left nothing to continue from.
static brim_status fail_lost(const loop *l, int64_t epoch) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  l->result->diverged = true;
  if (d && d->lost) return d->lost(l->work->state, epoch, l->last_lr);
  return brim_fail(BRIM_ESTATE, "training diverged in epoch %" PRId64, epoch);
}

//---------------------------------- ranks ----------------------------------
// Ranks have their own clocks, files and signals. Every rank calls these at the same place; the first one decides.
// With one rank they change nothing.

static brim_status sync_stop(loop *l) {
  const volatile sig_atomic_t *stop = l->options->stop;
  int64_t any = stop && *stop;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_all_reduce(l->comm, &any, 1, BRIM_I64));
  l->any_rank_stop = any > 0;
  return BRIM_OK;
}

static bool stopped(const loop *l) {
  const volatile sig_atomic_t *stop = l->comm ? &l->any_rank_stop : l->options->stop;
  return stop && *stop;
}

static brim_status follow_first(const loop *l, bool *decision) {
  unsigned char first = *decision;
  if (!l->comm) return BRIM_OK;
  BRIM_TRY(brim_comm_broadcast(l->comm, &first, 1, 0));
  *decision = first != 0;
  return BRIM_OK;
}

// An evaluation may round differently on other machines; all must choose the same best epoch.
static brim_status follow_first_metrics(const loop *l, brim_work_metrics *m) {
  const brim_metric_set *set = m->set;
  if (!l->comm) return BRIM_OK;
  brim_status status = brim_comm_broadcast(l->comm, m, sizeof *m, 0);
  m->set = set;
  return status;
}

static brim_status follow_first_path(const loop *l, char **path) {
  char text[4096] = "";
  if (!l->comm) return BRIM_OK;
  if (*path && strlen(*path) >= sizeof text) {
    return brim_fail(BRIM_EINVAL, "the path of the checkpoint is longer than %zu bytes",
                     sizeof text - 1);
  }
  if (*path) strcpy(text, *path);
  BRIM_TRY(brim_comm_broadcast(l->comm, text, sizeof text, 0));
  brim_free(*path);
  *path = text[0] ? brim_strdup(text) : NULL;
  if (text[0] && !*path) return brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
  return BRIM_OK;
}

//---------------------------------- out of memory ----------------------------------

// No smaller setting is left. Roll back to the setting of the last checkpoint and log that.
static brim_status nothing_fits(loop *l, const char *why) {
  if (l->adapting) {
    l->adapt = l->before_adapting;
    l->adapting = false;
    brim_run_adapt reported = l->adapt;  // log it, but do not remember it
    BRIM_TRY(brim_run_adapt_note(&reported, l->work, &l->log, l->epoch + 1, l->step));
  }
  if (l->ended) {  // end_epoch adds what is saved
    return brim_fail(
        BRIM_EOOM,
        l->adapt.shrinks ? "%s; nothing smaller fits" : "%s; no smaller micro-batch fits", why);
  }
  return brim_fail(BRIM_EOOM,
                   l->adapt.shrinks
                       ? "%s; nothing smaller fits; saved to %s, continue with --resume"
                       : "%s; no smaller micro-batch fits; saved to %s, continue with --resume",
                   why, l->files.last);
}

// Recovers from out-of-memory: save, rebuild with a smaller setting, reload. The caller repeats the interrupted
// step. The next checkpoint, which is written once that has worked, stores the smaller setting. With ranks this
// is no use, since one rank cannot change alone.
static brim_status adapt(loop *l, brim_status status) {
  if (status != BRIM_EOOM || !l->adapt.frees_optional || l->comm) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  const brim_setting was = l->adapt.setting;
  bool saved = l->adapting && l->files.last_step == l->step;
  if (!saved) {
    BRIM_TRY(brim_run_save(l, false, true, true));
    l->before_adapting = l->adapt;
    l->adapting = false;
  }
  l->torn = true;
  status = brim_run_adapt_rebuild(&l->adapt, l->work, l->step);
  if (status == BRIM_EOOM) return nothing_fits(l, why);
  BRIM_TRY(status);
  bool changed =
      memcmp(&was, &l->adapt.setting, sizeof was) != 0;  // else only optional memory was freed
  l->adapting = l->adapting || changed;
  BRIM_TRY(l->work->table->load(l->work->state, l->files.last, NULL));
  l->torn = false;
  l->work->table->info(l->work->state, &l->info);
  memset(&l->loader.before, 0, sizeof l->loader.before);  // the new loader starts at 0
  if (!changed) return BRIM_OK;
  return brim_run_adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step);
}

//---------------------------------- the end of an epoch ----------------------------------

static brim_status evaluate(loop *l, brim_work_metrics *out) {
  brim_status status = brim_work_evaluate(l->work, out);
  while (status == BRIM_EOOM) {
    BRIM_TRY(adapt(l, status));
    status = brim_work_evaluate(l->work, out);
  }
  return status ? status : follow_first_metrics(l, out);
}

// True if this process trained or evaluated anything.
static bool has_continued(const loop *l) { return l->step > l->first_step || l->caught_up; }

// Evaluates the learned features at the end, if the workload can. Runs before the model is written: the model
// marks a finished run, so an interrupted probe is repeated on resume.
static brim_status probe(loop *l) {
  brim_work_metrics m;
  const brim_work_features_table *features = l->work->table->features;
  if (!features) return BRIM_OK;
  brim_status status = features->probe(l->work->state, &m);
  if (status == BRIM_EUNSUPPORTED) {
    brim_status_clear();
    return BRIM_OK;
  }
  // with ranks, the others would wait for the metrics of one that skips
  if (!l->comm && (status == BRIM_EOOM || status == BRIM_ENOMEM)) {
    brim_log_warn("run", "no evaluation at the end: %s; run brim eval when memory is free",
                  brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  BRIM_TRY(follow_first_metrics(l, &m));
  memcpy(l->result->probe, m.values, sizeof l->result->probe);
  const brim_metric_set *set = l->work->metrics;
  json_t *f = json_object();
  brim_status s = BRIM_OK;
  for (size_t i = 0; !s && i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    if (!brim_metric_name(&set->rows[i], BRIM_METRIC_PROBE, BRIM_METRIC_COLUMN, name)) continue;
    s = brim_json_put(f, name, brim_json_number(m.values[i]));
  }
  if (!s) return brim_run_log_event(&l->log, features->event, l->epoch, l->step, f);
  json_decref(f);
  return s;
}

// True after every eval_interval-th epoch and the last one.
static bool evaluates(const loop *l) {
  if (l->info.eval_samples <= 0) return false;
  int64_t epoch = l->epoch + 1;
  return epoch == l->epochs || (l->eval_interval > 0 && epoch % l->eval_interval == 0);
}

// True if all evaluation metrics that must be finite are.
static bool all_finite(const brim_metric_set *set, const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool must =
        (row->flags & BRIM_METRIC_FINITE) && (row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL));
    if (must && !isfinite(values[i])) return false;
  }
  return true;
}

// Evaluates an epoch and fills in its report.
static brim_status evaluate_epoch(loop *l, brim_epoch_report *r) {
  brim_work_metrics eval;
  BRIM_TRY(evaluate(l, &eval));
  memcpy(r->eval, eval.values, sizeof r->eval);
  memcpy(l->result->eval, eval.values, sizeof r->eval);
  l->result->eval_samples = eval.samples;
  if (l->info.has_baseline) {
    memcpy(r->baseline, eval.baseline, sizeof r->baseline);
    memcpy(l->result->baseline, eval.baseline, sizeof r->baseline);
  }
  r->dead =
      (eval.samples > 0 && eval.bad >= eval.samples) || !all_finite(l->work->metrics, eval.values);
  const brim_work_moment at = {.epoch = r->epoch,
                               .step = l->step,
                               .lr = l->last_lr,
                               .metrics = &eval,
                               .evaluated = true,
                               .train = r->train};
  return check_trouble(&l->watch, &at, false);
}

// True if steps no longer change the weights: all of the epoch, and at least idle_limit steps where short epochs
// may have idle steps.
static bool is_idle(const loop *l) {
  if (l->info.idle_limit > 0) {
    int64_t idle = l->step - l->updated;
    return idle >= l->info.idle_limit && idle >= l->info.steps_per_epoch;
  }
  return (double)l->result->skipped_steps - l->epoch_skipped >= (double)l->info.steps_per_epoch;
}

static brim_status finish_epoch(loop *l) {
  BRIM_TRY(take_metrics(l));
  show_progress(l, true);
  brim_epoch_report r;
  fill_report(l, &r);
  r.evaluated = evaluates(l);
  l->ended = true;
  r.eval_seconds = (double)NAN;
  if (r.evaluated) {
    brim_time start = brim_clock_now();
    publish_phase(l, BRIM_JOB_EVALUATE);
    BRIM_TRY(evaluate_epoch(l, &r));
    l->evaluated = true;
    r.eval_seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  }
  loader_epoch(&l->loader, l->work, &r.loading);
  r.best = best_take(&l->best, &r, l->info.eval_samples > 0);
  memcpy(l->result->train, r.train, sizeof r.train);
  // a lost epoch must not replace a good checkpoint; steps skipped to find the loss scale do not count as lost
  bool lost = r.dead || (!l->searching && is_idle(l));
  l->epoch++;
  l->ended = false;
  l->epoch_ns = l->epoch_samples = 0;
  memset(l->sums, 0, sizeof l->sums);
  l->epoch_skipped = (double)l->result->skipped_steps;
  restart_interval(l);
  r.wall_seconds = (double)brim_time_since_ns(l->began, brim_clock_now()) * 1e-9;
  // log before saving: resume drops rows after the checkpoint, but cannot add missing ones
  BRIM_TRY(brim_run_log_epoch(&l->log, &r, l->step));
  BRIM_TRY(brim_run_save_poll(l));
  // replace a checkpoint that was written before this evaluation
  bool not_evaluated = l->files.last_step == l->step;
  bool due = r.best || not_evaluated || l->adapting || l->save_due || !brim_run_save_postponed(l);
  BRIM_TRY(follow_first(l, &due));
  if (r.best || due) publish_phase(l, BRIM_JOB_CHECKPOINT);
  BRIM_TRY(brim_run_save(l, r.best, !lost && due, false));
  l->adapting = false;
  if (l->options->on_epoch) l->options->on_epoch(l->options->ctx, &r);
  publish_phase(l, BRIM_JOB_TRAIN);
  publish_step(l);
  if (lost) return fail_lost(l, r.epoch);
  restart_clock(l);  // evaluation and checkpoint do not count
  l->epoch_start = l->progress_start = l->log_start;
  brim_phase_timer_reset(&l->timer);
  if (l->options->usage) l->options->usage(l->options->ctx, NULL, NULL);
  return BRIM_OK;
}

//---------------------------------- the loop ----------------------------------
// Checkpoints are written at the end of an epoch (brim_run_save_postponed: not of every short one), every
// checkpoint.interval steps, and on a stop. Training continues from each bit for bit.

enum { METRIC_STEPS = 10 };  // read the device's sums every so many steps

static bool done(const loop *l) { return l->epoch >= l->epochs || best_stops(&l->best); }

// True if this step reached a multiple of checkpoint.interval.
static bool reaches_interval(const loop *l, const brim_step_info *step) {
  if (l->interval <= 0) return false;
  if (!l->info.interval_unit) return step->step % l->interval == 0;
  return step->counted / l->interval != step->counted_before / l->interval;
}

static brim_status one_step(loop *l, int64_t *data_ns, bool *epoch_end) {
  brim_step_info step;
  brim_time start = brim_clock_now();
  int64_t io_before = l->timer.ns[BRIM_PHASE_IO];
  brim_status status = l->work->table->step(l->work->state, &l->timer.spans, &step);
  while (status == BRIM_EOOM) {
    BRIM_TRY(adapt(l, status));
    status = l->work->table->step(l->work->state, &l->timer.spans, &step);
  }
  BRIM_TRY(status);
  count_time(l, start);
  *data_ns += l->timer.ns[BRIM_PHASE_IO] - io_before;
  l->step = step.step;
  l->save_due = reaches_interval(l, &step);
  l->last_lr = step.lr;
  l->epoch_samples += step.samples;
  l->train_samples += step.samples;
  l->log_samples += step.samples;
  l->progress_samples += step.samples;
  l->log_steps++;
  l->progress_steps++;
  *epoch_end = step.epoch_end;
  return sync_stop(l);
}

// Makes sure that last.safetensors holds this step.
static brim_status save_here(loop *l) {
  BRIM_TRY(brim_run_save_wait(l));
  if (l->torn || (l->files.last_step == l->step && !l->adapting)) return BRIM_OK;
  BRIM_TRY(brim_run_save(l, false, true, true));
  l->adapting = false;
  return BRIM_OK;
}

// Saves after a failure, whose detail goes to `why`. False if saving failed too; the detail is then restored.
static bool saved_after(loop *l, char *why, size_t size) {
  snprintf(why, size, "%s", brim_status_detail());
  if (save_here(l) == BRIM_OK) return true;
  brim_status_set_detail(why);
  return false;
}

// Ends at --max-steps: writes the model, and reports the metrics of the begun epoch. They are read after the
// checkpoint is written, so that the resumed run rounds as if they had not been read.
static brim_status finish_early(loop *l, bool within_epoch) {
  l->result->not_evaluated = l->info.eval_samples > 0 && !l->evaluated &&
                             (l->best.epoch == 0 || (l->best.training && l->first_step == 0));
  if (within_epoch) {
    brim_run_result *r = l->result;
    r->partial = true;
    BRIM_TRY(take_metrics(l));
    epoch_values(l, r->train);
  }
  return brim_run_save_model(l);
}

// training.early_stopping_patience ended the run, now or before a resume.
static brim_status report_early_stop(loop *l) {
  l->result->stopped_early = true;
  if (!has_continued(l)) return BRIM_OK;  // reported before the resume
  json_t *f = json_object();
  brim_status s = brim_json_put(f, "patience", json_integer(l->best.patience));
  if (!s) s = brim_json_put(f, "delta", brim_json_number(l->best.delta));
  if (!s) s = brim_json_put(f, "best_epoch", json_integer(l->best.epoch));
  if (!s) return brim_run_log_event(&l->log, "early_stop", l->epoch, l->step, f);
  json_decref(f);
  return s;
}

static brim_status interrupted(loop *l) {
  BRIM_TRY(save_here(l));
  l->result->interrupted = true;
  return brim_fail(BRIM_EINTERRUPTED,
                   "interrupted at step %" PRId64 "; saved to %s, continue with --resume", l->step,
                   l->files.last);
}

// Finishes an epoch. If its evaluation is stopped or fails, the epoch is saved, and a resumed run evaluates it.
// After a device error nothing can be saved.
static brim_status end_epoch(loop *l) {
  brim_status status = finish_epoch(l);
  if (status == BRIM_OK) return BRIM_OK;
  if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
  if (!l->ended || status == BRIM_EDEVICE || l->comm) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume begins with its evaluation",
                   why, l->step);
}

// All epochs are made: write the model. A run that was over before keeps its model, since this time's settings
// are not those it was trained with.
static brim_status finish(loop *l) {
  BRIM_TRY(brim_run_save_wait(l));
  bool unfinished = has_continued(l) || !brim_run_files_model_at(&l->files, l->step);
  BRIM_TRY(follow_first(l, &unfinished));
  if (unfinished) {
    brim_status status = probe(l);
    if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
    BRIM_TRY(status);
    return brim_run_save_model(l);
  }
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", l->files.model);
  return BRIM_OK;
}

// A step failed, mostly because data cannot be read: save what was learned. That is impossible after a device
// error or out of memory.
static brim_status step_failed(loop *l, brim_status status) {
  // with ranks, saving needs all of them, and the others are within a step
  bool kept = status != BRIM_EDEVICE && status != BRIM_EOOM && status != BRIM_ENOMEM && !l->comm;
  if (!kept || !has_continued(l)) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume continues from there", why,
                   l->step);
}

// Fails a run in which most steps had no effect, so that no sweep ranks it. The model stays. Policies have a
// limit of their own (is_idle).
static brim_status check_learned(const loop *l) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  brim_run_result *r = l->result;
  if (l->info.idle_limit > 0 || 2 * r->lost_steps <= l->step) return BRIM_OK;
  char words[sizeof r->advice] = "", advice[sizeof r->advice];
  if (d && d->advice) d->advice(l->work->state, r->anomalies, l->last_lr, words, sizeof words);
  brim_words_text(words, advice, sizeof advice);
  r->diverged = true;
  return brim_fail(BRIM_ESTATE,
                   "%" PRId64 " of %" PRId64
                   " steps had no effect, because losses or gradients were not finite%s%s",
                   r->lost_steps, l->step, advice[0] ? ": " : "", advice);
}

static brim_status train(loop *l) {
  int64_t data_ns = 0;
  int64_t limit = l->limit;
  l->epoch_start = l->progress_start = brim_clock_now();
  restart_clock(l);
  if (l->ended && !done(l)) {
    BRIM_TRY(end_epoch(l));
    l->caught_up = true;
    if (!done(l) && limit > 0 && l->step >= limit) {
      BRIM_TRY(finish_early(l, false));
      return check_learned(l);
    }
  }
  while (!done(l) && (limit == 0 || l->step < limit)) {
    bool epoch_end = false;
    brim_status status = one_step(l, &data_ns, &epoch_end);
    if (status == BRIM_EINTERRUPTED && stopped(l)) return interrupted(l);
    if (status) return step_failed(l, status);
    if (l->log_interval > 0 && l->step % l->log_interval == 0) {
      BRIM_TRY(report_steps(l, data_ns));
      data_ns = 0;
    } else if (l->info.reads_often || l->step % METRIC_STEPS == 0) {
      BRIM_TRY(take_metrics(l));
    }
    if (epoch_end) {
      BRIM_TRY(end_epoch(l));
      data_ns = 0;
    } else {
      show_progress(l, false);
      publish_step(l);
      brim_time start = brim_clock_now();
      bool due = l->adapting || l->save_due;
      BRIM_TRY(due ? brim_run_save(l, false, true, false) : brim_run_save_poll(l));
      l->adapting = false;
      int64_t saving_ns =
          brim_time_since_ns(start, brim_clock_now());  // counts as neither interval
      l->log_start.ns += saving_ns;
      l->progress_start.ns += saving_ns;
    }
    bool enough = limit > 0 && l->step >= limit;
    if (stopped(l) && !done(l)) return interrupted(l);
    if (enough && !done(l)) {
      BRIM_TRY(save_here(l));
      BRIM_TRY(finish_early(l, !epoch_end));
      return check_learned(l);
    }
  }
  if (!done(l)) return BRIM_OK;
  if (has_continued(l)) BRIM_TRY(save_here(l));
  if (best_stops(&l->best)) BRIM_TRY(report_early_stop(l));
  BRIM_TRY(finish(l));
  return check_learned(l);
}

// Notes a failure to write to the folder in the result.
static brim_status in_folder(loop *l, brim_status status) {
  if (status && status != BRIM_ENOMEM) l->result->folder_failed = true;
  return status;
}

// Adds a hint to the error of a folder that cannot be created or written.
static brim_status not_writable(loop *l, brim_status status) {
  if (in_folder(l, status) == BRIM_OK || status == BRIM_ENOMEM) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(brim_fs_refused(status),
                   "%s; choose a folder that can be written to with --output-dir", why);
}

static brim_status lock_folder(loop *l, bool own) {
  const char *folder = l->options->output_dir;
  brim_status status = brim_fs_lock_folder(folder, &l->lock);
  if (status == BRIM_EEXIST) {
    l->result->folder_failed = true;
    char why[1024];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    return brim_fail(status, "%s; wait for it, or choose another folder with --output-dir", why);
  }
  BRIM_TRY(not_writable(l, status));
  if (l->lock && own) brim_fs_remove_stale(folder);
  return BRIM_OK;
}

// Finds folders in the way of checkpoints before training, not after.
static brim_status check_places(const loop *l) {
  const char *const places[] = {l->files.last, l->files.best, l->files.model};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    if (!brim_fs_is_dir(places[i])) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s is a folder, but brim needs the name for a checkpoint; remove it, or "
                     "choose another folder with --output-dir",
                     places[i]);
  }
  return BRIM_OK;
}

// Warns when the learning rate is still rising at the end of the run. --max-steps does not count as the end.
static void warn_warmup(const brim_config *config, int64_t steps_per_epoch) {
  brim_work_warmup warmup = brim_work_warmup_of(config, steps_per_epoch);
  int64_t total = steps_per_epoch * brim_config_int(config, "training.epochs");
  int64_t most = brim_config_int(config, "training.steps");
  if (most > 0 && most < total) total = most;
  if (total <= 0) return;
  if (warmup.steps >= total) {
    brim_log_warn("run",
                  "the learning rate is still rising at the end of the run: warm-up takes %" PRId64
                  " steps, the run has %" PRId64 "; lower %s, or train longer",
                  warmup.steps, total, warmup.key);
  } else if (warmup.steps < warmup.asked) {
    brim_log_warn("run",
                  "%s asks for %" PRId64
                  " steps of warm-up, half of the run or more; the run is "
                  "short, so brim takes %" PRId64,
                  warmup.key, warmup.asked, warmup.steps);
  }
}

// Warns about settings that are allowed but seldom meant.
static void warn_settings(loop *l, const brim_setting *setting, const char *from) {
  best_start(&l->best, l->info.eval_samples > 0);
  const char *weights = brim_config_string(l->config, "training.weights");
  if (from && weights && weights[0]) {
    brim_log_warn("run", "resuming from %s: brim uses its weights, not those of %s", from, weights);
  }
  int knob = brim_work_knob_as(l->work, BRIM_ROLE_BATCH);
  int64_t batch = knob < 0 ? 0 : setting->value[knob];
  if (batch > l->info.samples_per_epoch) {
    brim_log_warn("run",
                  "batch_size is %" PRId64 ", but the data has %" PRId64
                  " samples; every step computes %" PRId64 " rows to train on %" PRId64
                  "; set data.batch_size=%" PRId64,
                  batch, l->info.samples_per_epoch, batch, l->info.samples_per_epoch,
                  l->info.samples_per_epoch);
  } else if (l->adapt.effective > l->info.samples_per_epoch) {
    brim_log_warn("run",
                  "a step of %" PRId64 " samples is larger than the epoch of %" PRId64
                  "; every step uses all of them",
                  l->adapt.effective, l->info.samples_per_epoch);
  }
  if (l->best.patience > 0 && l->eval_interval == 0 && l->info.eval_samples > 0 && l->epochs > 1 &&
      !l->best.training) {
    brim_log_warn("run",
                  "training.early_stopping_patience has no effect: with training.eval_interval: 0 "
                  "there is only one evaluation, at the end");
  }
  // a workload with its own number of epochs has its own schedule too
  if (l->info.epochs == 0) warn_warmup(l->config, l->info.steps_per_epoch);
}

static brim_status build(loop *l, const char *from) {
  if (from) BRIM_TRY(brim_work_take_algorithms(l->work, from));
  BRIM_TRY(brim_run_adapt_build(&l->adapt, l->work, 0));
  const brim_work_policy_table *policy = l->work->table->policy;
  if (policy) BRIM_TRY(policy->baseline(l->work->state));
  l->work->table->info(l->work->state, &l->info);
  if (l->info.epochs > 0) l->epochs = l->info.epochs;
  if (l->info.has_baseline) {
    memcpy(l->result->baseline, l->info.baseline, sizeof l->info.baseline);
    l->result->baseline_samples = l->info.baseline_samples;
  }
  l->result->unit = l->info.unit;
  memcpy(l->result->rates, l->info.rates, sizeof l->info.rates);
  l->result->rate_count = l->info.rate_count;
  warn_settings(l, &l->adapt.setting, from);
  if (from) BRIM_TRY(resume(l, from));
  return brim_run_ranks_verify(l);
}

// Prepares a rank other than the first, which has no folder and no logs.
static brim_status prepare_rank(loop *l, uint64_t limit, brim_plan *plan) {
  char *from = NULL;
  brim_status status = follow_first_path(l, &from);
  if (!status && from) status = brim_run_adapt_take(&l->adapt, l->work, from);
  if (!status) status = brim_run_adapt_plan(&l->adapt, l->work, l->options, limit, plan);
  if (!status) status = build(l, from);
  brim_free(from);
  l->first_step = l->step;
  if (!status && l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, plan, l->step);
  }
  return status;
}

static brim_status check_ranks(const loop *l) {
  if (!l->comm || l->work->table->ranks) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "workload %s trains on one rank only; start one brim train for each GPU, or "
                   "brim sweep over seeds",
                   l->work->table->name);
}

static brim_status prepare(loop *l) {
  brim_plan plan;
  uint64_t limit = (uint64_t)brim_config_int(l->config, "gpu.memory_limit");
  BRIM_TRY(check_ranks(l));
  brim_run_adapt_init(&l->adapt, l->work, l->config);
  l->watch = (brim_run_watch){.work = l->work, .log = &l->log, .result = l->result};
  if (!brim_run_writes(l)) return prepare_rank(l, limit, &plan);
  // Lock first, so that no other run writes while this one reads the checkpoint. Create a missing folder only
  // after everything that may fail without it.
  bool there = brim_fs_is_dir(l->options->output_dir);
  bool own = false;
  if (there)
    BRIM_TRY(brim_run_folder_check(l->config, l->options->output_dir, l->options->resume, &own));
  if (there) BRIM_TRY(lock_folder(l, own));
  BRIM_TRY(check_places(l));
  char *from = NULL;
  brim_status built = BRIM_OK;
  if (l->options->resume_path) {
    from = brim_strdup(l->options->resume_path);
    if (!from) built = brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
  } else if (l->options->resume) {
    built = brim_run_files_newest(&l->files, &from);
  }
  if (!built) built = follow_first_path(l, &from);
  if (!built && !from && l->options->resume) {
    brim_log_warn("run", "%s holds no checkpoint to resume from, so training starts at step 0",
                  l->options->output_dir);
  }
  if (!built && from) built = brim_run_adapt_take(&l->adapt, l->work, from);
  brim_setting took = l->adapt.setting;
  if (!built) built = brim_run_adapt_plan(&l->adapt, l->work, l->options, limit, &plan);
  brim_setting planned = l->adapt.setting;
  if (!built) built = build(l, from);
  brim_free(from);
  BRIM_TRY(built);
  bool met = memcmp(&planned, &l->adapt.setting, sizeof planned) != 0;
  if (met) BRIM_TRY(l->work->table->plan(l->work->state, &l->adapt.setting, &plan));
  bool adapted = memcmp(&took, &l->adapt.setting, sizeof took) != 0;
  BRIM_TRY(not_writable(l, brim_fs_mkdirs(l->options->output_dir)));
  if (!there) BRIM_TRY(lock_folder(l, false));
  l->first_step = l->step;
  bool more = !done(l) && (!l->limit || l->step < l->limit);
  const char *folder = l->options->output_dir;
  if (more) BRIM_TRY(in_folder(l, brim_run_write_config(l->config, l->work, folder)));
  BRIM_TRY(in_folder(l, brim_run_log_open(&l->log, l->config, l->work->metrics, l->info.watches_gpu,
                                          folder, l->step, l->ended)));
  if (adapted) BRIM_TRY(brim_run_adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step));
  publish_start(l);
  if (l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, &plan, l->step);
  }
  return BRIM_OK;
}

//---------------------------------- the result ----------------------------------

static void clear_result(const brim_work *work, brim_run_result *out) {
  memset(out, 0, sizeof *out);
  out->metrics = work->metrics;
  out->diagnosis = work->table->diagnosis;
  brim_metric_unknown(out->train);
  brim_metric_unknown(out->eval);
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->probe);
  brim_metric_unknown(out->best);
  out->unit = "samples";
}

// Leaves out->best unknown if training metrics chose the best epoch although there are evaluations.
static void put_best(const loop *l, brim_run_result *out) {
  bool evaluates = l->info.eval_samples > 0;
  out->best_by_training = l->best.training || !evaluates;
  out->best_epoch = l->best.epoch;
  if (!(l->best.training && evaluates)) memcpy(out->best, l->best.values, sizeof out->best);
}

// Exchange times per step of this process.
static void put_exchange(const loop *l, brim_run_result *out) {
  const brim_device *device = l->work->context.device;
  brim_comm_stats stats;
  out->exchange_ms = out->exchange_exposed_ms = (double)NAN;
  if (!l->comm) return;
  out->ranks = brim_comm_size(l->comm);
  snprintf(out->exchange_by, sizeof out->exchange_by, "%s", brim_device_exchange(device));
  if (out->steps_run <= 0 || !brim_device_exchange_stats(device, &stats)) return;
  out->exchange_ms = (double)stats.busy_ns * 1e-6 / (double)out->steps_run;
  // the host does not wait for a GPU's exchange
  if (!device->info.host_memory) return;
  out->exchange_exposed_ms = (double)stats.waited_ns * 1e-6 / (double)out->steps_run;
  // waking a waiting thread is part of the exchange
  out->exchange_ms = fmax(out->exchange_ms, out->exchange_exposed_ms);
}

// Waits for the checkpoint that is being written, before the run returns with `status`.
static brim_status finish_saving(loop *l, brim_status status) {
  if (!status) return brim_run_save_wait(l);
  if (!l->saver.busy) return status;
  char why[4096];  // keep the detail of what ended the run
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (brim_run_save_wait(l)) brim_log_text(BRIM_LOG_WARN, "run", brim_status_detail());
  brim_status_set_detail(why);
  return status;
}

brim_status brim_run_train(brim_work *work, const brim_config *config,
                           const brim_run_options *options, brim_run_result *out) {
  loop l;
  memset(&l, 0, sizeof l);
  clear_result(work, out);
  l.began = brim_clock_now();
  l.work = work;
  l.comm = work->context.comm;
  l.config = config;
  l.options = options;
  l.result = out;
  l.epochs = brim_config_int(config, "training.epochs");
  l.interval = brim_config_int(config, "checkpoint.interval");
  l.log_interval = brim_config_int(config, "log.interval");
  l.eval_interval = brim_config_int(config, "training.eval_interval");
  brim_metric_unknown(l.last);
  l.limit = brim_config_int(config, "training.steps");
  if (options->max_steps > 0 && (l.limit == 0 || options->max_steps < l.limit)) {
    l.limit = options->max_steps;
  }
  brim_phase_timer_init(&l.timer);
  l.loader.slow_ms = brim_config_float(config, "data.slow_transform_ms");
  brim_status status = best_init(&l.best, config, work->metrics);
  if (!status) status = brim_run_files_init(&l.files, config, options->output_dir);
  work->table->stops(work->state, l.comm ? &l.any_rank_stop : options->stop);
  if (!status) status = prepare(&l);
  // preparing can take long, and writes nothing
  if (status == BRIM_EINTERRUPTED) {
    status = brim_fail(status, "interrupted before training began; nothing was written");
  }
  bool prepared = !status;
  if (!status) status = train(&l);
  status = finish_saving(&l, status);
  brim_job_publisher_stop(l.publisher);
  l.publisher = NULL;
  work->table->stops(work->state, NULL);
  if (prepared && brim_run_writes(&l)) brim_run_files_separate(&l.files);
  if (prepared) loader_all(&l.loader, work, &out->loading);
  out->steps = l.step;
  out->steps_run = prepared ? l.step - l.first_step : 0;
  out->epochs = l.epoch;
  put_best(&l, out);
  put_exchange(&l, out);
  out->lr = l.last_lr;
  out->seconds = l.train_seconds;
  out->wall_seconds = (double)brim_time_since_ns(l.began, brim_clock_now()) * 1e-9;
  out->samples_per_s =
      l.train_seconds > 0 ? (double)l.train_samples / l.train_seconds : (double)NAN;
  const brim_work_diagnosis *d = work->table->diagnosis;
  if (d && d->advice)
    d->advice(work->state, out->anomalies, out->lr, out->advice, sizeof out->advice);
  brim_run_log_close(&l.log);
  brim_fs_unlock(l.lock);
  brim_run_files_deinit(&l.files);
  return status;
}
