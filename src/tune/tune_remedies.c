// Prices of findings, measured: each remedy that is a knob runs for a moment beside the setting itself. A
// setting and its remedy alternate (A B B A), so that a machine that gets slower or faster meanwhile
// favours neither. What was measured is evidence for the findings and is forgotten afterwards.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "tune/tune_int.h"

enum { MOST_PROBES = 8, LEAST_SAMPLES = 4, HOST_WARMUP = 6 };
// Steps of a visit beside its samples, however long they take.
enum { LEAST_WARMUP = 3 };
// A cache is filled by an epoch, or by as many steps as a visit of a few samples makes and more.
enum { CACHE_WARMUP = 2, CACHE_STEPS = 16 };
#define FILL_SECONDS 5.0
#define DEFAULT_SECONDS 25.0
#define VISIT_SECONDS 2.5
// A first pair that shows less than this needs no second one: the remedy is not reported anyway.
#define HOPELESS 0.01
// Of a GPU that a step fills, where nothing shows it.
#define UNKNOWN_PART 0.25

typedef struct remedies {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_remedy_options *options;
  brim_result *all;            // the sweep's results as they are, then what is measured here
  size_t count, index, known;  // known: those of the sweep
  bool cached;                 // visits are as short as what fills a cache lasts
  bool no_time[MOST_PROBES];   // by probe: it would take longer than what is left of the budget
  brim_str unmeasured;         // their names
  brim_time start;
} remedies;

//---------------------------------- settings ----------------------------------

// False where the text is no value of the knob.
static bool parse_value(const brim_knob *knob, const char *text, int64_t *out) {
  char *end;
  switch (knob->kind) {
    case BRIM_KNOB_INT:
      *out = strtoll(text, &end, 10);
      return end != text && !*end;
    case BRIM_KNOB_BOOL:
      *out = strcmp(text, "true") == 0;
      return true;
    case BRIM_KNOB_CHOICE:
      break;
  }
  for (*out = 0; knob->choices[*out]; (*out)++) {
    if (strcmp(knob->choices[*out], text) == 0) return true;
  }
  return false;
}

// Would the setting with one knob changed be another one, and one that can run?
static bool change_setting(const remedies *m, const brim_finding *f, brim_setting *out) {
  int at = brim_work_knob(m->work, f->try_knob);
  if (at < 0) return false;
  const brim_knob *knob = &m->work->knobs[at];
  *out = *m->options->setting;
  if (!parse_value(knob, f->try_value, &out->value[at])) return false;
  if (out->value[at] < knob->min || out->value[at] > knob->max) return false;
  if (knob->matters && !knob->matters(m->work->state, m->options->setting)) return false;
  return m->work->table->sensible(m->work->state, out);
}

//---------------------------------- measuring ----------------------------------

static double spent_s(const remedies *m) {
  return (double)brim_time_since_ns(m->start, brim_clock_now()) * 1e-9;
}

static double budget_s(const remedies *m) {
  return m->options->seconds > 0 ? m->options->seconds : DEFAULT_SECONDS;
}

static double left_s(const remedies *m) { return budget_s(m) - spent_s(m); }

static double rows_of(const brim_work *work, const brim_setting *setting) {
  double product = 1;
  for (size_t i = 0; i < work->knob_count; i++) {
    if (work->knobs[i].multiplies) product *= fmax(1, (double)setting->value[i]);
  }
  return product;
}

double brim_remedy_step_s(const brim_result *own, bool gpu, double more) {
  double part = gpu ? own->sm_percent * own->occupancy_percent * 1e-4 : 1;
  if (isnan(part)) part = UNKNOWN_PART;
  return own->total_ms.median * 1e-3 * fmax(1, more * fmin(1, part));
}

static double step_s(const remedies *m, const brim_setting *setting) {
  double more = rows_of(m->work, setting) / rows_of(m->work, m->options->setting);
  return brim_remedy_step_s(&m->all[m->index], !m->device->info.host_memory, more);
}

// Seconds that a visit to each takes at least: its steps are as few as give a figure.
static double pair_s(const remedies *m, const brim_setting *changed) {
  int steps = LEAST_SAMPLES, most = m->options->trial.steps;
  if (most > 0 && most < steps) steps = most;
  return (steps + LEAST_WARMUP) * (step_s(m, m->options->setting) + step_s(m, changed));
}

// What is measured later is not measured at all where it does not fit.
static void leave_out(remedies *m, const char *name, const char *value) {
  brim_str_printf(&m->unmeasured, "%s%s%s%s", m->unmeasured.len ? ", " : "", name,
                  value[0] ? "=" : "", value);
}

static brim_trial_options brief(const remedies *m, brim_trial_location *at) {
  brim_trial_options how = m->options->trial;
  how.ceilings = false;
  how.configured = false;
  how.on_step = NULL;
  how.location = at;
  how.min_steps = LEAST_SAMPLES;
  if (how.steps > 0 && how.steps < how.min_steps) how.min_steps = how.steps;
  if (m->device->info.host_memory && how.max_warmup == 0) how.max_warmup = HOST_WARMUP;
  how.max_seconds = fmax(1e-3, fmin(VISIT_SECONDS, left_s(m) / 2));
  if (m->cached) {
    how.steps = LEAST_SAMPLES;
    how.max_warmup = CACHE_WARMUP;
  }
  return how;
}

// The logarithm of its rate and the error of that to *seen; NaN where it did not run.
static brim_status visit(remedies *m, const brim_setting *setting, brim_result *out,
                         brim_race_visit *seen) {
  brim_trial_location at = {(double)NAN, (double)NAN, 0};
  brim_trial_options how = brief(m, &at);
  *seen = (brim_race_visit){.log_rate = (double)NAN, .log_se = (double)NAN};
  brim_status status = brim_trial_run(m->work, m->config, m->device, setting, &how, out);
  if (!status && out->failure == BRIM_FAILURE_CRASH && m->options->reopen) {
    status = m->options->reopen(m->options->ctx, &m->work, &m->device);
  }
  if (status || !brim_result_ran(out)) return status;
  seen->log_rate = log(out->samples_per_s);
  seen->log_se = at.log_se;
  if (at.samples > 0) seen->log_rate += log(out->total_ms.median) - at.log_time;
  return BRIM_OK;
}

static brim_status visit_once(remedies *m, const brim_setting *setting, brim_race_visit *seen) {
  brim_result r;
  brim_status status = visit(m, setting, &r, seen);
  brim_result_deinit(&r);
  return status;
}

// The samples of the visits that follow are read into memory: what a setting that keeps them is worth from
// the second epoch on. Every visit has the same samples. A setting that does not stand fails again in its
// visit.
static brim_status fill_cache(remedies *m, const brim_setting *changed) {
  brim_work_info info;
  brim_step_info step;
  brim_time start = brim_clock_now();
  m->cached = true;
  brim_status status = m->work->table->configure(m->work->state, changed);
  memset(&info, 0, sizeof info);
  if (!status) m->work->table->info(m->work->state, &info);
  int64_t epoch = info.steps_per_epoch > 0 ? info.steps_per_epoch : INT64_MAX;
  for (int64_t i = 0; !status && i < epoch; i++) {
    double seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    if (i >= CACHE_STEPS && seconds > fmin(FILL_SECONDS, left_s(m) / 2)) break;
    if (m->options->trial.stop && *m->options->trial.stop) {
      return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    }
    status = m->work->table->step(m->work->state, NULL, &step);
  }
  if (!status) status = brim_device_sync(m->device);
  if (status == BRIM_EINTERRUPTED || status == BRIM_EDEVICE) return status;
  brim_status_clear();
  return BRIM_OK;
}

static bool fills_cache(const remedies *m, const brim_finding *f, const brim_setting *changed) {
  int at = brim_work_knob(m->work, f->try_knob);
  return m->work->knobs[at].fills != 0 && changed->value[at] == m->work->knobs[at].fills;
}

double brim_remedy_gain(const brim_race_visit *own, const brim_race_visit *changed, size_t pairs) {
  double sum = 0, low = (double)INFINITY, high = -(double)INFINITY, squares = 0;
  for (size_t i = 0; i < pairs; i++) {
    double gain = changed[i].log_rate - own[i].log_rate;
    sum += gain;
    low = fmin(low, gain);
    high = fmax(high, gain);
    if (own[i].log_se >= 0) squares += own[i].log_se * own[i].log_se;
    if (changed[i].log_se >= 0) squares += changed[i].log_se * changed[i].log_se;
  }
  double mean = sum / (double)pairs;
  double error = fmax(sqrt(squares) / (double)pairs, (high - low) / 2);
  return mean > 0 && mean < 1.96 * error ? 0 : mean;
}

// `out` gets the changed setting's result, at the rate that it has beside results[index].
static brim_status compare(remedies *m, const brim_setting *changed, bool fills, brim_result *out) {
  const brim_setting *own = m->options->setting;
  brim_race_visit a[2], b[2];
  size_t pairs = 1;
  m->cached = false;
  BRIM_TRY(visit_once(m, own, &a[0]));
  if (fills) BRIM_TRY(fill_cache(m, changed));
  BRIM_TRY(visit(m, changed, out, &b[0]));
  if (isnan(b[0].log_rate)) return BRIM_OK;
  if (b[0].log_rate - a[0].log_rate > HOPELESS && pair_s(m, changed) <= left_s(m)) {
    BRIM_TRY(visit_once(m, changed, &b[1]));
    m->cached = false;
    BRIM_TRY(visit_once(m, own, &a[1]));
    if (!isnan(a[1].log_rate) && !isnan(b[1].log_rate)) pairs = 2;
  }
  double gain = brim_remedy_gain(a, b, pairs);
  if (isnan(gain)) return BRIM_OK;
  out->samples_per_s = m->all[m->index].samples_per_s * exp(gain);
  out->samples_per_s_low = out->samples_per_s_high = (double)NAN;  // pairs have told them apart
  return BRIM_OK;
}

// A setting that is not to be run, so that it is not asked for again.
static void refuse(const remedies *m, const brim_finding *f, brim_result *out) {
  const brim_result *own = &m->all[m->index];
  brim_result_init(out);
  memcpy(out->knobs, own->knobs, sizeof out->knobs);
  out->knob_count = own->knob_count;
  out->failure = BRIM_FAILURE_UNSUPPORTED;
  for (size_t i = 0; i < out->knob_count; i++) {
    if (strcmp(out->knobs[i].name, f->try_knob) != 0) continue;
    snprintf(out->knobs[i].value, sizeof out->knobs[i].value, "%s", f->try_value);
  }
}

static void show(const remedies *m, const brim_finding *f) {
  if (!m->options->on_progress) return;
  char title[128];
  brim_progress p;
  memset(&p, 0, sizeof p);
  snprintf(title, sizeof title, brim_tr("what would help: %s=%s"), f->try_knob, f->try_value);
  p.title = title;
  p.done = -1;
  p.elapsed_s = spent_s(m);
  p.eta_s = fmax(0, budget_s(m) - p.elapsed_s);  // at most
  p.rate = (double)NAN;
  p.unit = "trials";
  m->options->on_progress(m->options->ctx, &p);
}

static const brim_finding *next_try(const brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    if (r->findings[i].try_knob[0]) return &r->findings[i];
  }
  return NULL;
}

static brim_status probe(remedies *m, const brim_finding *f, brim_result *out) {
  brim_setting changed;
  brim_result_init(out);
  if (!change_setting(m, f, &changed)) {
    refuse(m, f, out);
    return BRIM_OK;
  }
  bool fills = fills_cache(m, f, &changed);
  double seconds = pair_s(m, &changed) + (fills ? CACHE_STEPS * step_s(m, &changed) : 0);
  if (seconds > left_s(m)) {
    refuse(m, f, out);
    m->no_time[m->count - m->known] = true;
    leave_out(m, f->try_knob, f->try_value);
    return BRIM_OK;
  }
  show(m, f);
  return compare(m, &changed, fills, out);
}

static brim_status measure_all(remedies *m) {
  for (int i = 0; i < MOST_PROBES; i++) {
    brim_diagnose_with(m->all, m->count, m->index, true);
    const brim_finding *f = next_try(&m->all[m->index]);
    if (!f) break;
    brim_status status = probe(m, f, &m->all[m->count]);
    m->count++;
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

// What there was no time for is as unknown as before.
static void forget_unmeasured(remedies *m) {
  size_t kept = m->known;
  for (size_t i = m->known; i < m->count; i++) {
    if (m->no_time[i - m->known]) {
      brim_result_deinit(&m->all[i]);
    } else {
      m->all[kept++] = m->all[i];
    }
  }
  m->count = kept;
}

static void note_unmeasured(const remedies *m, brim_result *r) {
  brim_finding *f = m->unmeasured.len ? brim_finding_add(r, "not_priced", (double)NAN) : NULL;
  if (!f) return;
  f->note = true;
  brim_words_add(
      f->text, sizeof f->text,
      BRIM_N_("not measured, because it would take longer than the %.0f s for prices: %.300s"),
      budget_s(m), m->unmeasured.data);
}

// Seconds that the steps beside checkpoints take at least (measure_checkpoint.c).
static double checkpoint_s(const remedies *m) {
  double gap = fmin(50, (double)brim_config_int(m->config, "checkpoint.interval"));
  return (12 + 2 * gap) * step_s(m, m->options->setting);
}

// What costs a step time beside its phases: checkpoints, other processes. What cannot be measured stays
// unknown.
static brim_status measure_beside(remedies *m) {
  brim_result *r = &m->all[m->index];
  const brim_remedy_options *o = m->options;
  bool saves = o->folder && m->config && brim_config_int(m->config, "checkpoint.interval") > 0;
  if (saves && checkpoint_s(m) > left_s(m)) {
    leave_out(m, "checkpoint.interval", "");
    saves = false;
  }
  if (m->device->info.host_memory && !saves) return BRIM_OK;
  brim_status status = m->work->table->configure(m->work->state, o->setting);
  if (!status) status = brim_sharing_measure(m->device, o->trial.memory, r);
  if (!status && saves) {
    status = brim_checkpoint_measure(m->work, m->config, m->device, o->folder, r);
  }
  if (!status || status == BRIM_EDEVICE || status == BRIM_ENOMEM) return status;
  brim_log_warn("tune", "what checkpoints and other processes cost was not measured: %s",
                brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------- the findings ----------------------------------

static void name_keys(const brim_work *work, brim_result *r) {
  for (size_t i = 0; i < r->finding_count; i++) {
    brim_finding *f = &r->findings[i];
    int at = f->knob[0] ? brim_work_knob(work, f->knob) : -1;
    if (at >= 0) snprintf(f->key, sizeof f->key, "%s", work->knobs[at].key);
  }
}

static double larger_batch(const remedies *m, size_t from) {
  const brim_result *own = &m->all[m->index];
  double best = (double)NAN;
  for (size_t i = from; i < m->count; i++) {
    const brim_result *r = &m->all[i];
    if (!brim_result_ran(r)) continue;
    if (!(brim_result_number_as(r, BRIM_ROLE_BATCH, 0) >
          brim_result_number_as(own, BRIM_ROLE_BATCH, 0))) {
      continue;
    }
    best = fmax(best, r->samples_per_s / own->samples_per_s);
  }
  return best;
}

brim_status brim_remedies_measure(brim_work *work, const brim_config *config, brim_device *device,
                                  const brim_remedy_options *options, brim_result *results,
                                  size_t count, size_t index) {
  if (options->larger) *options->larger = (double)NAN;
  if (!brim_result_ran(&results[index])) return BRIM_OK;
  remedies m = {.work = work,
                .config = config,
                .device = device,
                .options = options,
                .count = count,
                .index = index,
                .known = count,
                .start = brim_clock_now()};
  m.all = (brim_result *)brim_calloc(count + MOST_PROBES, sizeof *m.all);
  if (!m.all) return brim_fail(BRIM_ENOMEM, "out of memory for the prices of findings");
  memcpy(m.all, results, count * sizeof *m.all);
  brim_str_init(&m.unmeasured);
  brim_status status = measure_beside(&m);
  if (!status) status = measure_all(&m);
  forget_unmeasured(&m);
  brim_diagnose(m.all, m.count, index);
  note_unmeasured(&m, &m.all[index]);
  results[index] = m.all[index];  // findings, and what was measured beside the steps
  name_keys(m.work, &results[index]);
  if (options->larger) *options->larger = larger_batch(&m, count);
  for (size_t i = count; i < m.count; i++) brim_result_deinit(&m.all[i]);
  brim_free(m.all);
  brim_str_deinit(&m.unmeasured);
  return status;
}
