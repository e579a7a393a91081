// The training loop, and what a run tells of itself on the way.

#include "base/base_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run/run_int.h"
#include "run/run_loop.h"

static void publish_trouble(brim_job *job, const char *code, const char *text);
static void epoch_values(const brim_run_loop *l, double values[BRIM_METRIC_MAX]);

//-------------------------------------- trouble in numbers --------------------------------------
// What the workload finds wrong while it trains, as a run counts, reports and logs it.

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

static brim_status meet(brim_run_watch *w, const brim_work_trouble *t, const brim_work_moment *at,
                        bool unlogged) {
  brim_run_result *r = w->result;
  if (!r->first_anomaly[t->kind]) r->first_anomaly[t->kind] = at->step;
  r->anomalies[t->kind] += t->count;
  int64_t times = ++w->times[t->kind];
  // the 1st, 2nd, 4th, 8th, ... time
  bool said = (times & (times - 1)) == 0 || w->work->table->diagnosis->rows[t->kind].always;
  char text[sizeof t->text];
  brim_words_text(t->text, text, sizeof text);
  if (!t->silent && said) brim_log_text(BRIM_LOG_WARN, "run", text);
  if (!t->silent) publish_trouble(w->job, w->work->table->diagnosis->rows[t->kind].name, t->text);
  return unlogged ? BRIM_OK : log_trouble(w, t, at);
}

// What the workload finds wrong now: counted, reported and logged. `unlogged`: a resumed run reads it
// again.
static brim_status watch_take(brim_run_watch *w, const brim_work_moment *at, bool unlogged) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  brim_work_trouble troubles[BRIM_WORK_MAX_TROUBLES];
  if (!d) return BRIM_OK;
  size_t n = d->take(w->work->state, at, troubles);
  for (size_t i = 0; i < n; i++) BRIM_TRY(meet(w, &troubles[i], at, unlogged));
  return BRIM_OK;
}

brim_status brim_run_watch_put(const brim_run_watch *w, json_t *metadata) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  return d && d->put ? d->put(w->work->state, w->times, metadata) : BRIM_OK;
}

void brim_run_watch_get(brim_run_watch *w, const json_t *metadata, int64_t skipped) {
  const brim_work_diagnosis *d = w->work->table->diagnosis;
  if (d && d->get) d->get(w->work->state, metadata, skipped, w->times);
}

//-------------------------------------------- loader --------------------------------------------
// What the loader did during a run, per sample: for the logs, the summary and the warning about slow
// transforms.

enum { FEW_SAMPLES = 8 };  // below, one cold call would decide

_Static_assert(BRIM_WORK_MAX_STAGES <= 32, "bits of brim_run_loader.said");

static void loader_init(brim_run_loader *loader, const brim_config *config) {
  memset(loader, 0, sizeof *loader);
  loader->slow_ms = brim_config_float(config, "data.slow_transform_ms");
}

static bool take(const brim_work *work, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (!work->table->loading) return false;
  work->table->loading->stats(work->state, out);
  return true;
}

static void per_sample(const brim_work_loading *from, const brim_work_loading *to,
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

static void warn_of_slow(brim_run_loader *loader, const brim_run_loading *loading) {
  if (loading->samples < FEW_SAMPLES) return;
  for (size_t i = 0; i < loading->stage_count; i++) {
    uint32_t bit = (uint32_t)1 << i;
    if (loading->stage_ms[i] <= loader->slow_ms || (loader->said & bit)) continue;
    loader->said |= bit;
    brim_log_warn("run",
                  "transform %s takes %.3g ms per sample (limit data.slow_transform_ms %g); move "
                  "it after the stage that shrinks the image, raise data.num_workers, or run it on "
                  "the GPU with data.cache=gpu",
                  loading->stage[i], loading->stage_ms[i], loader->slow_ms);
  }
}

// Since the epoch began; the next begins now. Says (once each) which transforms are slow.
static void loader_epoch(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now;
  memset(out, 0, sizeof *out);
  if (!take(work, &now)) return;
  per_sample(&loader->before, &now, out);
  loader->before = now;
  warn_of_slow(loader, out);
}

// Since the setting was built.
static void loader_all(brim_run_loader *loader, const brim_work *work, brim_run_loading *out) {
  brim_work_loading now, none;
  memset(out, 0, sizeof *out);
  memset(&none, 0, sizeof none);
  if (!take(work, &now)) return;
  per_sample(&none, &now, out);
  warn_of_slow(loader, out);
}

//-------------------------------------- published findings --------------------------------------
// Findings that a run publishes while it runs: what its workload reports, and waiting for data.

static const double WAITS = 0.1;  // of a step: what is reported as waiting for data

// The one of this code, or a new one; the oldest goes where there is no room.
static brim_finding *slot_of(brim_job *job, const char *code) {
  for (size_t i = 0; i < job->finding_count; i++) {
    if (strcmp(job->findings[i].code, code) == 0) return &job->findings[i];
  }
  if (job->finding_count == BRIM_JOB_FINDINGS) {
    memmove(job->findings, job->findings + 1, (BRIM_JOB_FINDINGS - 1) * sizeof *job->findings);
    job->finding_count--;
  }
  return &job->findings[job->finding_count++];
}

// A finding of the job (NULL is fine; text: base_words.h), in place of an earlier one of the same code (run_train.c).
static void publish_trouble(brim_job *job, const char *code, const char *text) {
  if (!job) return;
  brim_finding *f = slot_of(job, code);
  memset(f, 0, sizeof *f);
  f->cost_ms = f->predicted_ms = (double)NAN;
  snprintf(f->code, sizeof f->code, "%.31s", code);
  snprintf(f->text, sizeof f->text, "%s", text);
  brim_utf8_trim(f->text);
}

// Whether steps wait for data, by the figures of an interval.
static void publish_waits(brim_run_loop *l, const brim_run_steps *s) {
  static const char code[] = "io_wait";
  brim_job *job = &l->job;
  double step_s = s->data_s + s->compute_s;
  if (!l->publisher || !s->loads || !(step_s > 0)) return;
  if (s->data_s > WAITS * step_s) {
    char text[256] = "";
    brim_words_add(text, sizeof text, BRIM_N_("waiting for data takes %.0f %% of a step"),
                   brim_shown(100 * s->data_s / step_s));
    publish_trouble(job, code, text);
    brim_finding *f = slot_of(job, code);
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

//-------------------------------------- published progress --------------------------------------
// What a run publishes while it runs (monitor_job.h): phase, epoch, step, throughput.
// It costs a step one look at the clock; twice a second a copy. Nothing here can fail a run.

enum { PERIOD_NS = 500000000 };

// A setting's name, or that of the folder.
static const char *name_of(const brim_run_loop *l) {
  const char *name = brim_config_string(l->config, "name");
  return name && name[0] ? name : brim_fs_basename(l->options->output_dir);
}

static void publish_start(brim_run_loop *l) {
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

static void publish_stop(brim_run_loop *l) {
  brim_job_publisher_stop(l->publisher);
  l->publisher = NULL;
}

// The first row that has a value while it trains. One that was shown keeps its last value where an epoch
// has none yet.
static void put_metric(const brim_run_loop *l, brim_job *job) {
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

static void put_place(const brim_run_loop *l, brim_job *job) {
  int64_t last = l->info.steps > 0 ? l->info.steps : l->epochs * l->info.steps_per_epoch;
  if (l->limit > 0 && l->limit < last) last = l->limit;
  job->epoch = l->epoch + 1 < l->epochs ? l->epoch + 1 : l->epochs;
  job->epochs = l->epochs;
  job->step = l->step;
  job->steps = last > 0 ? last : -1;
}

static void publish_phase(brim_run_loop *l, brim_job_phase phase) {
  if (!l->publisher) return;
  l->job.phase = phase;
  put_place(l, &l->job);
  brim_job_publisher_set(l->publisher, &l->job);
}

// After a step; most of the time nothing.
static void brim_run_publish_step(brim_run_loop *l) {
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
  brim_job_publisher_set(l->publisher, job);
  l->publish_time = now;
  l->publish_seconds = l->train_seconds;
  l->publish_samples = l->train_samples;
  l->publish_step = l->step;
}

//------------------------------------------- reports -------------------------------------------
// What a run tells of itself on the way: progress, the figures of an interval, an epoch's report.

static void restart_clock(brim_run_loop *l) {
  l->log_start = brim_clock_now();
  l->log_samples = l->log_steps = 0;
}

static void restart_interval(brim_run_loop *l) {
  restart_clock(l);
  l->log_bad = 0;
  memset(l->log_sums, 0, sizeof l->log_sums);
}

// Since `start` training continued: to the epoch's time and the run's; returns it.
static int64_t count_time(brim_run_loop *l, brim_time start) {
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  l->epoch_ns += ns;
  l->train_seconds += (double)ns * 1e-9;
  return ns;
}

// Add the sums since last time to the epoch's and the interval's. When this happens is a function
// of the step alone (every tenth, every log interval, the epoch's end), never of the clock: it
// moves roundings, and two equal runs shall report equal figures.
// Steps are only enqueued: what the device has left of them is waited for here, and is their time.
static brim_status take_metrics(brim_run_loop *l) {
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
  // a read that finds nothing is no step
  if (m.samples > 0 && m.skipped == l->result->skipped_steps) l->updated = l->step;
  l->searching = m.searching;
  l->result->bad_samples += m.bad;
  if (!m.searching && m.skipped > l->result->skipped_steps) {
    l->result->lost_steps += m.skipped - l->result->skipped_steps;
  }
  l->result->skipped_steps = m.skipped;
  const brim_work_moment at = {
      .epoch = l->epoch + 1, .step = l->step, .lr = l->last_lr, .metrics = &m};
  return watch_take(&l->watch, &at, l->result->partial);
}

static void values_of(const brim_run_loop *l, const double *sums, double *values) {
  memcpy(values, l->last, sizeof l->last);
  l->work->table->figures(l->work->state, sums, values);
}

// Of the epoch so far; NaN where there is none.
static void epoch_values(const brim_run_loop *l, double values[BRIM_METRIC_MAX]) {
  values_of(l, l->sums, values);
}

// Rows that are the throughput in other units: of the same time as it.
static void put_rates(const brim_run_loop *l, double samples_per_s, double *values) {
  for (size_t i = 0; i < l->info.rate_count; i++) {
    const brim_work_rate *rate = &l->info.rates[i];
    if (rate->row > 0) values[rate->row - 1] = samples_per_s * rate->per_sample;
  }
}

static void show_progress(brim_run_loop *l, bool force) {
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

// The interval's figures to the log and to the callbacks; `data_ns` of it were waited for data.
static brim_status tell_steps(brim_run_loop *l, int64_t data_ns) {
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

// What training itself has to say in an epoch's report.
static void fill_report(const brim_run_loop *l, brim_epoch_report *r) {
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
  // of an epoch whose steps another process made is unknown
  bool made = l->epoch_samples > 0 && l->epoch_ns > 0;
  r->seconds = made ? (double)l->epoch_ns * 1e-9 : (double)NAN;
  r->samples_per_s = made ? (double)l->epoch_samples / r->seconds : (double)NAN;
  put_rates(l, r->samples_per_s, r->train);
}

// The error of an epoch after which there is nothing to continue with.
static brim_status tell_lost(const brim_run_loop *l, int64_t epoch) {
  const brim_work_diagnosis *d = l->work->table->diagnosis;
  l->result->diverged = true;
  if (d && d->lost) return d->lost(l->work->state, epoch, l->last_lr);
  return brim_fail(BRIM_ESTATE, "training diverged in epoch %" PRId64, epoch);
}

//--------------------------------------------- loop ---------------------------------------------
// The training loop. Checkpoints are written at the end of an epoch (of short ones not of every: see
// brim_run_files_young), every checkpoint.interval steps and on a stop; each is whole, and training from
// it continues as if nothing had happened.

enum { METRIC_STEPS = 10 };  // the device's sums are read every so many steps

typedef brim_run_loop loop;

//---------------------------------- reports ----------------------------------

// Since `start` nothing was computed: not the interval's time, nor the progress line's.
static void leave_out(loop *l, brim_time start) {
  int64_t ns = brim_time_since_ns(start, brim_clock_now());
  l->log_start.ns += ns;
  l->progress_start.ns += ns;
}

//---------------------------------- out of memory ----------------------------------

// Nothing smaller is left. The checkpoint is of before: what did not help is not continued, which
// the log's last word says.
static brim_status nothing_fits(loop *l, const char *why) {
  if (l->adapting) {
    l->adapt = l->before_adapting;
    l->adapting = false;
    brim_run_adapt reported = l->adapt;  // noted in the log, not to be remembered
    BRIM_TRY(brim_run_adapt_note(&reported, l->work, &l->log, l->epoch + 1, l->step));
  }
  if (l->ended) {  // the end of the epoch reports what is saved
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

// Another process took what this run still needed: the state to the last checkpoint, everything
// built again with smaller micro-batches, the state back. What a step had begun is begun again. The
// next checkpoint, which is made when that has worked, continues with them.
static brim_status adapt(loop *l, brim_status status) {
  if (status != BRIM_EOOM || !l->adapt.frees_optional || l->comm) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  const brim_setting was = l->adapt.setting;
  bool there = l->adapting && l->files.last_step == l->step;
  if (!there) {
    BRIM_TRY(brim_run_save_now(l));
    l->before_adapting = l->adapt;
    l->adapting = false;
  }
  l->torn = true;
  status = brim_run_adapt_rebuild(&l->adapt, l->work, l->step);
  if (status == BRIM_EOOM) return nothing_fits(l, why);
  BRIM_TRY(status);
  bool changed = memcmp(&was, &l->adapt.setting, sizeof was) != 0;  // else nothing of the step did
  l->adapting = l->adapting || changed;
  BRIM_TRY(l->work->table->load(l->work->state, l->files.last, NULL));
  l->torn = false;
  l->work->table->info(l->work->state, &l->info);
  memset(&l->loader.before, 0, sizeof l->loader.before);  // another loader, which begins at 0
  if (!changed) return BRIM_OK;
  return brim_run_adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step);
}

static brim_status evaluate(loop *l, brim_work_metrics *out) {
  brim_status status = brim_work_evaluate(l->work, out);
  while (status == BRIM_EOOM) {
    BRIM_TRY(adapt(l, status));
    status = brim_work_evaluate(l->work, out);
  }
  return status ? status : brim_run_decide_metrics(l, out);
}

// Did this process train or evaluate anything?
static bool has_continued(const loop *l) { return l->step > l->first_step || l->caught_up; }

// Evaluates once more what was learned, where the workload can; it costs the run nothing but time. Before
// the model is written, which says that nothing is left to do: a run that ends here makes it up.
static brim_status probe(loop *l) {
  brim_work_metrics m;
  const brim_work_features_table *features = l->work->table->features;
  if (!features) return BRIM_OK;
  brim_status status = features->probe(l->work->state, &m);
  if (status == BRIM_EUNSUPPORTED) {
    brim_status_clear();
    return BRIM_OK;
  }
  // one rank cannot do without alone: the others would wait for its figures
  if (!l->comm && (status == BRIM_EOOM || status == BRIM_ENOMEM)) {
    brim_log_warn("run", "no evaluation at the end: %s; run brim eval when memory is free",
                  brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  BRIM_TRY(status);
  BRIM_TRY(brim_run_decide_metrics(l, &m));
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

// After every eval_interval'th epoch and after the last one.
static bool evaluates(const loop *l) {
  if (l->info.eval_samples <= 0) return false;
  int64_t epoch = l->epoch + 1;
  return epoch == l->epochs || (l->eval_interval > 0 && epoch % l->eval_interval == 0);
}

// Those rows of an evaluation that have to be.
static bool all_finite(const brim_metric_set *set, const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    bool must =
        (row->flags & BRIM_METRIC_FINITE) && (row->stages & BRIM_METRIC_AT(BRIM_METRIC_EVAL));
    if (must && !isfinite(values[i])) return false;
  }
  return true;
}

// The evaluation of an epoch, into its report.
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
  return watch_take(&l->watch, &at, false);
}

// Nothing changes what is trained any more. Of a few steps it is nothing to have no effect where epochs
// may be that short.
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
  r.best = brim_run_best_take(&l->best, &r, l->info.eval_samples > 0);
  memcpy(l->result->train, r.train, sizeof r.train);
  // what nothing finite comes out of must not replace a good checkpoint
  // while steps are skipped to find something out there is something left to find
  bool lost = r.dead || (!l->searching && is_idle(l));
  l->epoch++;
  l->ended = false;
  l->epoch_ns = l->epoch_samples = 0;
  memset(l->sums, 0, sizeof l->sums);
  l->epoch_skipped = (double)l->result->skipped_steps;
  restart_interval(l);
  r.wall_seconds = (double)brim_time_since_ns(l->began, brim_clock_now()) * 1e-9;
  // the log first: rows after a checkpoint are dropped on resuming, missing ones stay missing
  BRIM_TRY(brim_run_log_epoch(&l->log, &r, l->step));
  BRIM_TRY(brim_run_save_poll(l));
  // one that was written while evaluating is of an epoch that ended without
  bool not_evaluated = l->files.last_step == l->step;
  bool due = r.best || not_evaluated || l->adapting || l->save_due || !brim_run_save_postponed(l);
  BRIM_TRY(brim_run_decide(l, &due));
  if (r.best || due) publish_phase(l, BRIM_JOB_CHECKPOINT);
  BRIM_TRY(brim_run_save(l, r.best, !lost && due));
  l->adapting = false;
  if (l->options->on_epoch) l->options->on_epoch(l->options->ctx, &r);
  publish_phase(l, BRIM_JOB_TRAIN);
  brim_run_publish_step(l);
  if (lost) return tell_lost(l, r.epoch);
  restart_clock(l);  // the evaluation and the checkpoint are behind
  l->epoch_start = l->progress_start = l->log_start;
  brim_phase_timer_reset(&l->timer);
  if (l->options->usage) l->options->usage(l->options->ctx, NULL, NULL);
  return BRIM_OK;
}

//---------------------------------- the loop ----------------------------------

static bool done(const loop *l) { return l->epoch >= l->epochs || brim_run_best_stops(&l->best); }

// Did this step reach a multiple of checkpoint.interval?
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
  return brim_run_agree_stop(l);
}

// The newest checkpoint is of this step, and whole.
static brim_status save_here(loop *l) {
  BRIM_TRY(brim_run_save_wait(l));
  if (l->torn || (l->files.last_step == l->step && !l->adapting)) return BRIM_OK;
  BRIM_TRY(brim_run_save_now(l));
  l->adapting = false;
  return BRIM_OK;
}

// The state, after something failed, whose words go to `why`. False: saving failed as well, and they are
// the status's own again.
static bool saved_after(loop *l, char *why, size_t size) {
  snprintf(why, size, "%s", brim_status_detail());
  if (save_here(l) == BRIM_OK) return true;
  brim_status_set_detail(why);
  return false;
}

// --max-steps before the last epoch's end: the model as it is, and of an epoch that was begun the
// figures so far. They are read after the checkpoint, so that continuing from it rounds as if
// nothing had been read.
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

// training.early_stopping_patience ended it, now or when it last ran.
static brim_status tell_stopped(loop *l) {
  l->result->stopped_early = true;
  if (!has_continued(l)) return BRIM_OK;  // it was reported then
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

// The end of an epoch, a long time where much is evaluated. Where the evaluation is stopped or fails the
// epoch itself is kept, and evaluated when the run resumes; of a device that failed nothing can be read.
static brim_status end_epoch(loop *l) {
  brim_status status = finish_epoch(l);
  if (status == BRIM_OK) return BRIM_OK;
  if (status == BRIM_EINTERRUPTED && brim_run_stopped(l)) return interrupted(l);
  if (!l->ended || status == BRIM_EDEVICE || l->comm) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume begins with its evaluation",
                   why, l->step);
}

// All epochs are made. A run that was over already leaves its model as it is: whatever settings it was
// started with this time, they are not what the model was trained with.
static brim_status finish(loop *l) {
  BRIM_TRY(brim_run_save_wait(l));
  bool unfinished = has_continued(l) || !brim_run_files_model_at(&l->files, l->step);
  BRIM_TRY(brim_run_decide(l, &unfinished));
  if (unfinished) {
    brim_status status = probe(l);
    if (status == BRIM_EINTERRUPTED && brim_run_stopped(l)) return interrupted(l);
    BRIM_TRY(status);
    return brim_run_save_model(l);
  }
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", l->files.model);
  return BRIM_OK;
}

// Data that cannot be read, mostly: what was learned until then is worth keeping. Of a device that failed
// nothing can be read, and without memory nothing is built up for writing.
static brim_status step_failed(loop *l, brim_status status) {
  // a checkpoint is made by all ranks, and the others are in the middle of a step
  bool kept = status != BRIM_EDEVICE && status != BRIM_EOOM && status != BRIM_ENOMEM && !l->comm;
  if (!kept || !has_continued(l)) return status;
  char why[1024];
  if (!saved_after(l, why, sizeof why)) return status;
  return brim_fail(status, "%s; step %" PRId64 " is saved, --resume continues from there", why,
                   l->step);
}

// A training most of whose steps had no effect has not learned what was asked: it is not done, and no
// sweep ranks it. The model stays as it was written. Policies have a limit of their own (is_idle).
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
    if (status == BRIM_EINTERRUPTED && brim_run_stopped(l)) return interrupted(l);
    if (status) return step_failed(l, status);
    if (l->log_interval > 0 && l->step % l->log_interval == 0) {
      BRIM_TRY(tell_steps(l, data_ns));
      data_ns = 0;
    } else if (l->info.reads_often || l->step % METRIC_STEPS == 0) {
      BRIM_TRY(take_metrics(l));
    }
    if (epoch_end) {
      BRIM_TRY(end_epoch(l));
      data_ns = 0;
    } else {
      show_progress(l, false);
      brim_run_publish_step(l);
      brim_time start = brim_clock_now();
      bool due = l->adapting || l->save_due;
      BRIM_TRY(due ? brim_run_save(l, false, true) : brim_run_save_poll(l));
      l->adapting = false;
      leave_out(l, start);
    }
    bool enough = limit > 0 && l->step >= limit;
    if (brim_run_stopped(l) && !done(l)) return interrupted(l);
    if (enough && !done(l)) {
      BRIM_TRY(save_here(l));
      BRIM_TRY(finish_early(l, !epoch_end));
      return check_learned(l);
    }
  }
  if (!done(l)) return BRIM_OK;
  if (has_continued(l)) BRIM_TRY(save_here(l));
  if (brim_run_best_stops(&l->best)) BRIM_TRY(tell_stopped(l));
  BRIM_TRY(finish(l));
  return check_learned(l);
}

// The result of writing to the folder.
static brim_status in_folder(loop *l, brim_status status) {
  if (status && status != BRIM_ENOMEM) l->result->folder_failed = true;
  return status;
}

// A folder that cannot be made or written to.
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

// What stands where a checkpoint will go would be found when the work is done.
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

// What is allowed, and seldom meant.
static void warn_of_settings(loop *l, const brim_setting *setting, const char *from) {
  brim_run_best_start(&l->best, l->info.eval_samples > 0);
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
  // epochs and schedule of the config are this workload's, where it has none of its own
  if (l->info.epochs == 0) brim_run_warn_warmup(l->config, l->info.steps_per_epoch);
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
  warn_of_settings(l, &l->adapt.setting, from);
  if (from) BRIM_TRY(brim_run_resume(l, from));
  return brim_run_check_same(l);
}

// What another rank than the first does of that: it has no folder and no logs.
static brim_status prepare_rank(loop *l, uint64_t limit, brim_plan *plan) {
  char *from = NULL;
  brim_status status = brim_run_decide_path(l, &from);
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
  // The lock comes first, so that no other run moves on while this one reads its checkpoint; a folder
  // that is not there yet is made only after a bad checkpoint had its chance to be refused.
  bool there = brim_fs_is_dir(l->options->output_dir);
  bool own = false;
  if (there)
    BRIM_TRY(brim_run_folder_check(l->config, l->options->output_dir, l->options->resume, &own));
  if (there) BRIM_TRY(lock_folder(l, own));
  BRIM_TRY(check_places(l));
  char *from = NULL;
  brim_status built = brim_run_resume_path(l, &from);
  if (!built) built = brim_run_decide_path(l, &from);
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
  const brim_run_columns columns = {l->work->metrics, l->info.watches_gpu};
  BRIM_TRY(
      in_folder(l, brim_run_log_open(&l->log, l->config, &columns, folder, l->step, l->ended)));
  if (adapted) BRIM_TRY(brim_run_adapt_note(&l->adapt, l->work, &l->log, l->epoch + 1, l->step));
  publish_start(l);
  if (l->options->on_start) {
    l->options->on_start(l->options->ctx, &l->info, &plan, l->step);
  }
  return BRIM_OK;
}

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

// Figures of training choose the best, they do not evaluate it: they are no peers of the evaluation's.
static void tell_best(const loop *l, brim_run_result *out) {
  bool evaluates = l->info.eval_samples > 0;
  out->best_by_training = l->best.training || !evaluates;
  out->best_epoch = l->best.epoch;
  if (!(l->best.training && evaluates)) memcpy(out->best, l->best.values, sizeof out->best);
}

// What the ranks exchanged, by the steps of this process.
static void tell_exchange(const loop *l, brim_run_result *out) {
  const brim_device *device = l->work->context.device;
  brim_comm_stats stats;
  out->exchange_ms = out->exchange_exposed_ms = (double)NAN;
  if (!l->comm) return;
  out->ranks = brim_comm_size(l->comm);
  snprintf(out->exchange_by, sizeof out->exchange_by, "%s", brim_device_exchange(device));
  if (out->steps_run <= 0 || !brim_device_exchange_stats(device, &stats)) return;
  out->exchange_ms = (double)stats.busy_ns * 1e-6 / (double)out->steps_run;
  // a GPU is not waited for by the thread that asks
  if (!device->info.host_memory) return;
  out->exchange_exposed_ms = (double)stats.waited_ns * 1e-6 / (double)out->steps_run;
  // until a thread that waited runs again is part of an exchange
  out->exchange_ms = fmax(out->exchange_ms, out->exchange_exposed_ms);
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
  loader_init(&l.loader, config);
  brim_status status = brim_run_best_init(&l.best, config, work->metrics);
  if (!status) status = brim_run_files_init(&l.files, config, options->output_dir);
  work->table->stops(work->state, l.comm ? &l.agreed_stop : options->stop);
  if (!status) status = prepare(&l);
  // Planning, preparing and the baseline's episodes can take long; none of them writes anything.
  if (status == BRIM_EINTERRUPTED) {
    status = brim_fail(status, "interrupted before training began; nothing was written");
  }
  bool prepared = !status;
  if (!status) status = train(&l);
  status = brim_run_save_end(&l, status);
  publish_stop(&l);
  work->table->stops(work->state, NULL);
  if (prepared && brim_run_writes(&l)) brim_run_files_separate(&l.files);
  if (prepared) loader_all(&l.loader, work, &out->loading);
  out->steps = l.step;
  out->steps_run = prepared ? l.step - l.first_step : 0;
  out->epochs = l.epoch;
  tell_best(&l, out);
  tell_exchange(&l, out);
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
