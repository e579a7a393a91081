// A sweep: the race says which setting is next, here it is measured. In the end one visit to each setting
// stands for it, with the rate and the interval that follow from all of them.
#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

// Visits of one setting, the first that could be measured first.
typedef struct setting_runs {
  brim_result *visit;
  double *log_rate;
  size_t count;
  double seconds;  // of the last
} setting_runs;

typedef struct sweep {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_sweep_options *options;
  const brim_sweep_settings *settings;
  brim_race *race;
  setting_runs *runs;
  size_t at;       // the setting that is measured
  size_t started;  // of the first round
  size_t repeats;  // visits beyond it
  double first_s;  // that the first round has cost
  bool complete;   // so far every setting is known from records of several visits
  brim_trial_options trial;
  brim_trial_location location;
  brim_time start;
  char title[160];
} sweep;

//---------------------------------- progress ----------------------------------

static void make_title(sweep *s) {
  const brim_setting *setting = &s->settings->setting[s->at];
  size_t number = s->at + 1, count = s->settings->count;
  int n = s->repeats > 0
              ? snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu, measurement %zu:"),
                         number, count, s->runs[s->at].count + 1)
              : snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu:"), number, count);
  for (size_t a = 0; a < s->options->axis_count; a++) {
    const brim_knob *knob = &s->work->knobs[s->options->axes[a].knob];
    char value[32];
    if (n < 0 || (size_t)n >= sizeof s->title) return;
    brim_knob_format(knob, setting->value[s->options->axes[a].knob], value);
    n += snprintf(s->title + n, sizeof s->title - (size_t)n, " %s=%s", knob->name, value);
  }
}

// Rows that a step of a setting has: what its time grows with.
static double rows(const sweep *s, size_t index) {
  double product = 1;
  for (size_t i = 0; i < s->work->knob_count; i++) {
    if (!s->work->knobs[i].multiplies) continue;
    product *= (double)fmax(1, (double)s->settings->setting[index].value[i]);
  }
  return product;
}

double brim_sweep_predict(const double *x, const double *seconds, size_t n, double at) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0, least = INFINITY;
  for (size_t i = 0; i < n; i++) {
    sx += x[i];
    sy += seconds[i];
    sxx += x[i] * x[i];
    sxy += x[i] * seconds[i];
    least = fmin(least, seconds[i]);
  }
  if (n == 0) return (double)NAN;
  double count = (double)n, spread = sxx - sx * sx / count;
  // of one size alone: in proportion, which is too much rather than too little
  if (!(spread > 1e-9 * sxx)) return sy / count * fmax(1, at * count / sx);
  double slope = fmax(0, (sxy - sx * sy / count) / spread);
  return fmax(least, sy / count + slope * (at - sx / count));
}

double brim_sweep_seconds(double spent, double ahead, double passes) {
  double budget = passes > 1 ? passes * BRIM_RACE_PASS_VISITS : 1;
  return ahead + (budget - 1) * (spent + ahead);
}

// At most: the budget is a multiple of what the first round costs, and a race may end before it.
static double seconds_left(const sweep *s, double share) {
  size_t total = s->settings->count, n = 0;
  double x[64], y[64], ahead = 0;
  if (s->repeats > 0) return brim_race_seconds_left(s->race);
  for (size_t i = 0; i < s->started && n < 64; i++) {
    if (s->runs[i].count == 0) continue;
    x[n] = rows(s, i);
    y[n++] = s->runs[i].seconds;
  }
  double now = brim_sweep_predict(x, y, n, rows(s, s->at));
  for (size_t i = s->at; i < total; i++) ahead += brim_sweep_predict(x, y, n, rows(s, i));
  double passes = s->race && total > 1 ? s->options->repeats : 1;
  double left = brim_sweep_seconds(s->first_s, ahead, passes) - share * now;
  return left < 0 ? 0 : left;  // unknown stays unknown
}

static void show(sweep *s, int step, int steps) {
  if (!s->options->on_progress) return;
  brim_progress p;
  memset(&p, 0, sizeof p);
  p.title = s->title;
  p.done = s->repeats > 0 ? -1 : (int64_t)s->at;  // how many repeats it takes is not known
  p.total = (int64_t)(s->repeats > 0 ? 0 : s->settings->count);
  p.elapsed_s = (double)brim_time_since_ns(s->start, brim_clock_now()) * 1e-9;
  p.eta_s = seconds_left(s, steps > 0 ? (double)step / (double)steps : 0);
  p.rate = (double)NAN;
  p.unit = "trials";
  s->options->on_progress(s->options->ctx, &p);
}

static void on_step(void *ctx, int step, int total) { show((sweep *)ctx, step, total); }

//---------------------------------- measuring ----------------------------------

// A clock that was held down makes a visit less believable, not useless.
#define THROTTLED_SE 0.1

// What a result says of itself, as a visit of a race. `at`: where its samples lie; NULL = by its
// interval, as of a result that was read from a record.
static brim_race_visit visit_of(const brim_result *r, const brim_trial_location *at) {
  brim_race_visit v = {.log_rate = log(r->samples_per_s), .seconds = fmax(r->seconds, 1e-3)};
  v.samples = at ? at->samples : 10.0 * (r->repeats > 1 ? r->repeats : 1);
  v.visits = at ? 1 : r->repeats;
  v.log_se = log(r->samples_per_s_high / r->samples_per_s_low) / (2 * 1.96);
  if (!(v.log_se <= log(BRIM_TUNE_WIDEST) / (2 * 1.96))) v.log_se = (double)NAN;
  if (at && at->samples > 0) {
    // a step's rows are in samples_per_s, its time in the location
    v.log_rate += log(r->total_ms.median) - at->log_time;
    v.log_se = at->log_se;
  }
  if (r->throttled) v.log_se = hypot(v.log_se >= 0 ? v.log_se : 0, THROTTLED_SE);
  return v;
}

static brim_status keep_visit(setting_runs *runs, const brim_result *r, double log_rate) {
  size_t n = runs->count + 1;
  brim_result *visit = (brim_result *)brim_realloc(runs->visit, n * sizeof *visit);
  if (visit) runs->visit = visit;
  double *rates = visit ? (double *)brim_realloc(runs->log_rate, n * sizeof *rates) : NULL;
  if (rates) runs->log_rate = rates;
  if (!rates) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", n);
  runs->visit[runs->count] = *r;
  runs->log_rate[runs->count] = log_rate;
  runs->count = n;
  return BRIM_OK;
}

// Nothing runs any more on a device that crashed; what comes next gets a new one.
static brim_status recover(sweep *s, const brim_result *r) {
  if (r->failure != BRIM_FAILURE_CRASH || !s->options->reopen) return BRIM_OK;
  return s->options->reopen(s->options->ctx, &s->work, &s->device);
}

static brim_status add_visit(sweep *s, const brim_result *r, const brim_trial_location *at) {
  brim_race_visit v = visit_of(r, at);
  setting_runs *runs = &s->runs[s->at];
  BRIM_TRY(brim_race_add(s->race, s->at, &v));
  if (runs->count == 0) s->first_s += v.seconds;
  runs->seconds = v.seconds;
  return keep_visit(runs, r, v.log_rate);
}

// The first visit; its result goes to the caller at once.
static brim_status first_visit(sweep *s, brim_result *results, size_t *count) {
  const brim_sweep_options *o = s->options;
  const brim_setting *setting = &s->settings->setting[s->at];
  brim_result *r = &results[s->at];
  bool known = o->known && o->known(o->ctx, setting, r);
  s->started = s->at + 1;
  s->location = (brim_trial_location){(double)NAN, (double)NAN, 0};
  if (!known) {
    make_title(s);
    show(s, 0, 1);
    brim_status status = o->plan_only
                             ? brim_trial_plan(s->work, s->config, s->device, setting, &s->trial, r)
                             : brim_trial_run(s->work, s->config, s->device, setting, &s->trial, r);
    *count = s->at + 1;
    BRIM_TRY(status);
    r->repeats = 1;
    brim_diagnose(results, *count, s->at);
    if (o->on_result) o->on_result(o->ctx, r);
  }
  *count = s->at + 1;
  if (!brim_result_ran(r)) {
    if (s->race) brim_race_fail(s->race, s->at);
    return known ? BRIM_OK : recover(s, r);
  }
  if (!known || r->repeats < 2) s->complete = false;
  return s->race ? add_visit(s, r, known ? NULL : &s->location) : BRIM_OK;
}

// A device that is not the host starts slowly after it was built: graphs are recorded, kernels loaded.
#define REPEAT_SECONDS 8.0
enum { REPEAT_LEAST = 3, REPEAT_WARMUP = 6 };

// Shorter than the first visit, which took its time: a few samples now are worth more than many later.
static brim_trial_options repeated(const sweep *s) {
  brim_trial_options how = s->trial;
  bool host = s->device->info.host_memory;
  double most = host ? how.max_seconds / 2 : REPEAT_SECONDS;
  // what the loader and the device reach alone is asked twice: once may have been a bad moment
  how.ceilings = how.ceilings && s->runs[s->at].count < 2;
  if (how.max_seconds > most) how.max_seconds = most;
  if (how.min_steps == 0) how.min_steps = REPEAT_LEAST;
  if (how.max_warmup == 0 && host) how.max_warmup = REPEAT_WARMUP;
  return how;
}

// What ran before and now does not is not to be relied on.
static brim_status next_visit(sweep *s) {
  brim_result r;
  brim_trial_options how = repeated(s);
  s->repeats++;
  s->location = (brim_trial_location){(double)NAN, (double)NAN, 0};
  make_title(s);
  show(s, 0, 1);
  brim_status status =
      brim_trial_run(s->work, s->config, s->device, &s->settings->setting[s->at], &how, &r);
  if (status || !brim_result_ran(&r)) {
    if (!status) brim_race_fail(s->race, s->at);
    if (!status) status = recover(s, &r);
    brim_result_deinit(&r);
    return status;
  }
  status = add_visit(s, &r, &s->location);
  if (status) brim_result_deinit(&r);
  return status;
}

static brim_status run_race(sweep *s, brim_result *results, size_t *count) {
  bool once = s->options->repeats < 2 || s->options->plan_only || s->settings->count < 2;
  for (int64_t next; (next = brim_race_next(s->race)) >= 0;) {
    s->at = (size_t)next;
    bool first = s->at >= s->started;
    if (!first && (once || s->complete)) break;
    BRIM_TRY(first ? first_visit(s, results, count) : next_visit(s));
  }
  return BRIM_OK;
}

static brim_status run_plans(sweep *s, brim_result *results, size_t *count) {
  for (s->at = 0; s->at < s->settings->count; s->at++) BRIM_TRY(first_visit(s, results, count));
  return BRIM_OK;
}

//---------------------------------- in the end ----------------------------------

// The visit that is nearest to what all of them say.
static size_t nearest(const setting_runs *runs, double log_rate) {
  size_t best = 0;
  for (size_t i = 1; i < runs->count; i++) {
    if (fabs(runs->log_rate[i] - log_rate) < fabs(runs->log_rate[best] - log_rate)) best = i;
  }
  return best;
}

// A ceiling is the best of what was reached; one below the setting itself was measured in a bad moment.
static double ceiling_of(const setting_runs *runs, bool data, double rate) {
  double best = (double)NAN;
  for (size_t i = 0; i < runs->count; i++) {
    const brim_result *r = &runs->visit[i];
    best = fmax(best, data ? r->data_samples_per_s : r->compute_samples_per_s);
  }
  return best >= rate ? best : (double)NAN;
}

static void scale(brim_stats_summary *times, double by) {
  double *const all[] = {&times->min,    &times->max,    &times->mean,   &times->stddev,
                         &times->median, &times->mad,    &times->p05,    &times->p95,
                         &times->p99,    &times->ci_low, &times->ci_high};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= by;
}

// One visit's times, as long as the rate of all visits says: a step and what it is divided into then agree
// with the rate beside them.
static void take_rate(brim_result *r, brim_interval rate) {
  double by = r->samples_per_s / rate.value;
  scale(&r->total_ms, by);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) scale(&r->phase_ms[p], by);
  r->epoch_s *= by;
  r->samples_per_s = rate.value;
  bool wide = !(rate.high <= BRIM_TUNE_WIDEST * rate.low);
  r->samples_per_s_low = wide ? (double)NAN : rate.low;
  r->samples_per_s_high = wide ? (double)NAN : rate.high;
  r->stable = rate.high - rate.low <= 0.25 * rate.value;
}

static void finish_setting(sweep *s, size_t index, brim_result *out) {
  setting_runs *runs = &s->runs[index];
  brim_interval rate = brim_race_rate(s->race, index);
  bool failed = !(rate.value > 0);  // it ran, and then did not
  if (runs->count < 2 && !failed && (s->options->repeats < 2 || s->complete)) return;
  size_t pick = failed ? 0 : nearest(runs, log(rate.value));
  int earlier = runs->visit[0].repeats;  // more than 1: of a record
  *out = runs->visit[pick];
  out->repeats = (int)runs->count + failed + (earlier > 1 ? earlier - 1 : 0);
  if (failed) {
    out->stable = false;
  } else {
    take_rate(out, rate);
  }
  for (size_t i = 0; i < runs->count; i++) {
    out->throttled = out->throttled || runs->visit[i].throttled;
  }
  out->data_samples_per_s = ceiling_of(runs, true, out->samples_per_s);
  out->compute_samples_per_s = ceiling_of(runs, false, out->samples_per_s);
  for (size_t i = 0; i < runs->count; i++) {
    if (i != pick) brim_result_deinit(&runs->visit[i]);
  }
  if (s->options->on_final && runs->count > 1) s->options->on_final(s->options->ctx, out);
}

static void finish_settings(sweep *s, brim_result *results, size_t count) {
  for (size_t i = 0; i < s->settings->count; i++) {
    if (i < count && s->runs[i].count > 0) finish_setting(s, i, &results[i]);
    brim_free(s->runs[i].visit);
    brim_free(s->runs[i].log_rate);
  }
}

static brim_status run_all(sweep *s, brim_result **out, size_t *count) {
  size_t total = s->settings->count;
  brim_result *results = (brim_result *)brim_calloc(total, sizeof *results);
  s->runs = (setting_runs *)brim_calloc(total, sizeof *s->runs);
  brim_status status = BRIM_OK;
  if (!results || !s->runs) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for %zu results", total);
  }
  if (!status && !s->options->plan_only) {
    status = brim_race_create(total, s->options->repeats, &s->race);
  }
  if (status) {
    brim_free(results);
    brim_free(s->runs);
    return status;
  }
  s->trial = s->options->trial;
  s->trial.on_step = on_step;
  s->trial.location = &s->location;
  s->trial.ctx = s;
  s->start = brim_clock_now();
  status = s->race ? run_race(s, results, count) : run_plans(s, results, count);
  if (s->race) finish_settings(s, results, *count);
  brim_free(s->runs);
  for (size_t i = 0; i < *count; i++) brim_diagnose(results, *count, i);  // now with all evidence
  *out = results;
  return status;
}

brim_status brim_sweep_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_sweep_options *options, brim_result **out, size_t *count) {
  sweep s = {.work = work,
             .config = config,
             .device = device,
             .options = options,
             .settings = options->settings,
             .complete = true};
  brim_sweep_settings made = {.own = -1};
  *out = NULL;
  *count = 0;
  if (options->race) *options->race = NULL;
  if (!s.settings) {
    BRIM_TRY(brim_sweep_settings_make(work, options->axes, options->axis_count, false, &made));
    s.settings = &made;
  }
  brim_status status = run_all(&s, out, count);
  brim_sweep_settings_free(&made);
  if (options->race) {
    *options->race = s.race;
  } else {
    brim_race_destroy(s.race);
  }
  return status;
}
