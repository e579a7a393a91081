// A sweep: its settings, which is visited next, and the measuring. In the end one visit to each setting stands for it,
// with the rate and the interval that follow from all of them.

#include "tune/tune_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

//------------------------------------------- settings -------------------------------------------
// Which settings a sweep has: every combination of its axes that makes sense, each that differs from the
// others in something once, and the config's own.

typedef struct grid {
  const brim_subject *subject;
  const brim_sweep_axis *axes;
  size_t axis_count;
  int64_t set_samples;  // 0 = unknown, or nothing is loaded
  int batch, accumulation;
} grid;

static grid grid_of(const brim_subject *subject, const brim_sweep_axis *axes, size_t axis_count) {
  brim_subject_facts facts = {0};
  if (subject->table->facts) subject->table->facts(subject->state, &facts);
  return (grid){.subject = subject,
                .axes = axes,
                .axis_count = axis_count,
                .set_samples = facts.set_samples,
                .batch = brim_subject_knob_as(subject, BRIM_ROLE_BATCH),
                .accumulation = brim_subject_knob_as(subject, BRIM_ROLE_ACCUMULATION)};
}

static brim_setting setting_at(const grid *g, size_t index) {
  brim_setting setting = brim_subject_setting(g->subject);
  for (size_t a = g->axis_count; a > 0; a--) {
    const brim_sweep_axis *axis = &g->axes[a - 1];
    setting.value[axis->knob] = axis->values[index % axis->count];
    index /= axis->count;
  }
  return setting;
}

static int64_t step_rows(const grid *g, const brim_setting *s) {
  if (g->batch < 0) return 0;
  return s->value[g->batch] * (g->accumulation < 0 ? 1 : s->value[g->accumulation]);
}

static bool is_filled(const grid *g, const brim_setting *s) {
  return g->set_samples <= 0 || step_rows(g, s) <= g->set_samples;
}

static bool is_sensible(const grid *g, const brim_setting *s) {
  const brim_subject_table *table = g->subject->table;
  return !table->sensible || table->sensible(g->subject->state, s);
}

// The value that stands for all of an axis where they are the same: the config's own, else the first.
static int64_t one_value(const grid *g, const brim_sweep_axis *axis) {
  int64_t own = g->subject->knobs[axis->knob].value;
  for (size_t i = 0; i < axis->count; i++) {
    if (axis->values[i] == own) return own;
  }
  return axis->values[0];
}

// Does another setting of the grid stand for it?
static bool is_double(const grid *g, const brim_setting *s) {
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count < 2 || s->value[axis->knob] == one_value(g, axis)) continue;
    if (!brim_subject_knob_matters(g->subject, (size_t)axis->knob, s)) return true;
  }
  return false;
}

// Equal in every knob that matters.
static bool is_same(const grid *g, const brim_setting *a, const brim_setting *b) {
  for (size_t k = 0; k < g->subject->knob_count; k++) {
    if (a->value[k] == b->value[k]) continue;
    if (brim_subject_knob_matters(g->subject, k, a) ||
        brim_subject_knob_matters(g->subject, k, b)) {
      return false;
    }
  }
  return true;
}

//---------------------------------- what is left out ----------------------------------

static brim_status why_not_filled(const grid *g, const brim_setting *s) {
  int64_t steps = g->accumulation < 0 ? 1 : s->value[g->accumulation];
  if (steps > 1) {
    return brim_fail(BRIM_EINVAL,
                     "the set has %" PRId64
                     " samples, fewer than one step of %.0f x %.0f accumulated; not run",
                     g->set_samples, (double)s->value[g->batch], (double)steps);
  }
  return brim_fail(BRIM_EINVAL,
                   "the set has %" PRId64 " samples, fewer than one batch of %.0f; not run",
                   g->set_samples, (double)s->value[g->batch]);
}

// Fails with what keeps the first such setting from being run.
static brim_status why_left_out(const grid *g, const brim_setting *s) {
  const brim_subject *subject = g->subject;
  if (!is_filled(g, s)) return why_not_filled(g, s);
  return subject->table->refuse ? subject->table->refuse(subject->state, s) : BRIM_OK;
}

static brim_status check_axes(const grid *g, size_t *total) {
  *total = 1;
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count == 0 || axis->knob < 0 || (size_t)axis->knob >= g->subject->knob_count) {
      return brim_fail(BRIM_EINVAL, "a sweep axis has no values");
    }
    const brim_knob *knob = &g->subject->knobs[axis->knob];
    for (size_t i = 0; i < axis->count; i++) {
      if (axis->values[i] < knob->min || axis->values[i] > knob->max) {
        return brim_fail(BRIM_EINVAL, "%s %" PRId64 " is outside %" PRId64 "..%" PRId64, knob->name,
                         axis->values[i], knob->min, knob->max);
      }
    }
    if (axis->count > BRIM_CONFIG_MAX_GRID / *total) {
      return brim_fail(BRIM_ELIMIT, "the sweep has more than %d settings", BRIM_CONFIG_MAX_GRID);
    }
    *total *= axis->count;
  }
  return BRIM_OK;
}

static brim_status collect(const grid *g, size_t size, brim_sweep_settings *out) {
  size_t left_out = 0;
  brim_setting first;
  memset(&first, 0, sizeof first);
  for (size_t i = 0; i < size; i++) {
    brim_setting s = setting_at(g, i);
    if (!is_sensible(g, &s) || !is_filled(g, &s)) {
      if (left_out++ == 0) first = s;
    } else if (!is_double(g, &s)) {
      out->setting[out->count++] = s;
    }
  }
  if (left_out == 0) return BRIM_OK;
  brim_status status = why_left_out(g, &first);
  if (out->count == 0) {
    return status ? status : brim_fail(BRIM_EINVAL, "none of the settings to try makes sense");
  }
  if (status) {
    brim_log_warn("tune", "%zu of %zu combinations are left out; the first: %s", left_out, size,
                  brim_status_detail());
    brim_status_clear();
  }
  return BRIM_OK;
}

// In front, so that an interrupted sweep has it.
static void add_own(const grid *g, brim_sweep_settings *out) {
  brim_setting own = brim_subject_setting(g->subject);
  for (size_t i = 0; i < out->count; i++) {
    if (is_same(g, &own, &out->setting[i])) {
      out->own = (int)i;
      return;
    }
  }
  if (!is_sensible(g, &own) || !is_filled(g, &own)) return;
  memmove(out->setting + 1, out->setting, out->count * sizeof *out->setting);
  out->setting[0] = own;
  out->count++;
  out->own = 0;
  out->own_added = true;
}

brim_status brim_sweep_settings_make(const brim_subject *subject, const brim_sweep_axis *axes,
                                     size_t axis_count, bool own, brim_sweep_settings *out) {
  grid g = grid_of(subject, axes, axis_count);
  size_t size = 0;
  *out = (brim_sweep_settings){.own = -1};
  BRIM_TRY(check_axes(&g, &size));
  out->setting = (brim_setting *)brim_calloc(size + 1, sizeof *out->setting);
  if (!out->setting) return brim_fail(BRIM_ENOMEM, "out of memory for %zu settings", size);
  brim_status status = collect(&g, size, out);
  if (!status && own) add_own(&g, out);
  if (status) brim_sweep_settings_free(out);
  return status;
}

void brim_sweep_settings_free(brim_sweep_settings *settings) {
  brim_free(settings->setting);
  *settings = (brim_sweep_settings){.own = -1};
}

//----------------------------------------- large grids -----------------------------------------
// Which setting of a large grid a sweep visits next for the first time. A grid of a hundred settings is not
// measured whole: brim climbs from the config's own setting to neighbours of the best ones so far, until none
// is left. A pure function of what was measured: a resumed sweep continues where it was.

// Neighbours of so many of the best settings are visited, where these are within NEAR of the best.
enum { TOP = 3 };
#define NEAR 0.95
// A larger batch that gains less than this over the next smaller one is not climbed on from.
#define CLIMBS 1.03

static bool is_number(const brim_knob *knob) { return knob->kind == BRIM_KNOB_INT; }

static double distance(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  double sum = 0;
  for (size_t k = 0; k < c->subject->knob_count; k++) {
    double x = (double)a->value[k], y = (double)b->value[k];
    if (x == y) continue;
    sum += is_number(&c->subject->knobs[k]) ? fabs(log((x + 1) / (y + 1))) : 0.1;
  }
  return sum;
}

// The unvisited setting that is nearest to `from`; -1 = none.
static int64_t nearest(const brim_climb *c, const brim_setting *from) {
  int64_t best = -1;
  double least = (double)INFINITY;
  for (size_t i = 0; i < c->settings->count; i++) {
    double far = distance(c, from, &c->settings->setting[i]);
    if (!isnan(c->rate[i]) || far >= least) continue;
    least = far;
    best = (int64_t)i;
  }
  return best;
}

// The one knob in which `b` differs from `a`, besides those that make no difference there; -1 where there is
// none, or there are several.
static int only_difference(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  int knob = -1;
  for (size_t k = 0; k < c->subject->knob_count; k++) {
    if (a->value[k] == b->value[k] || !brim_subject_knob_matters(c->subject, k, b)) continue;
    if (knob >= 0) return -1;
    knob = (int)k;
  }
  return knob;
}

// The next setting from `from` along a knob, up or down; -1 = there is none. A choice has no order: its next
// value is any that was not visited.
static int64_t beside(const brim_climb *c, size_t from, int knob, bool up) {
  const brim_setting *at = &c->settings->setting[from];
  const bool number = is_number(&c->subject->knobs[knob]);
  int64_t best = -1;
  for (size_t i = 0; i < c->settings->count; i++) {
    const brim_setting *s = &c->settings->setting[i];
    if (only_difference(c, at, s) != knob) continue;
    int64_t value = s->value[knob];
    if (!number) {
      if (up && isnan(c->rate[i])) return (int64_t)i;
      continue;
    }
    if ((value > at->value[knob]) != up) continue;
    if (best < 0 || (value < c->settings->setting[best].value[knob]) == up) best = (int64_t)i;
  }
  return best;
}

// Is more of a knob that multiplies a step's work still faster here?
static bool climbs(const brim_climb *c, size_t from, int knob) {
  if (!c->subject->knobs[knob].multiplies) return true;
  int64_t below = beside(c, from, knob, false);
  return below < 0 || !(c->rate[below] > 0) || c->rate[from] >= CLIMBS * c->rate[below];
}

static int64_t beside_of(const brim_climb *c, size_t from) {
  for (size_t a = 0; a < c->axis_count; a++) {
    int knob = c->axes[a].knob;
    for (int up = 1; up >= 0; up--) {
      if (up && !climbs(c, from, knob)) continue;
      int64_t next = beside(c, from, knob, up);
      if (next >= 0 && isnan(c->rate[next])) return next;
    }
  }
  return -1;
}

int64_t brim_climb_next(const brim_climb *c) {
  const brim_sweep_settings *s = c->settings;
  size_t top[TOP], n = 0;
  bool on_grid = false;
  if (s->own >= 0 && isnan(c->rate[s->own])) return s->own;
  for (size_t i = 0; i < s->count; i++) {
    if (!(c->rate[i] > 0)) continue;
    on_grid = on_grid || (int)i != s->own || !s->own_added;
    size_t at = n < TOP ? n++ : TOP;
    while (at > 0 && c->rate[top[at - 1]] < c->rate[i]) {
      if (at < TOP) top[at] = top[at - 1];
      at--;
    }
    if (at < TOP) top[at] = i;
  }
  // none ran, or only one that is no combination of the values: its neighbourhood is the grid
  if (!on_grid) return nearest(c, s->own >= 0 ? &s->setting[s->own] : &s->setting[0]);
  for (size_t k = 0; k < n && c->rate[top[k]] >= NEAR * c->rate[top[0]]; k++) {
    int64_t next = beside_of(c, top[k]);
    if (next >= 0) return next;
  }
  return -1;
}

//-------------------------------------------- sweep --------------------------------------------
// Every setting is visited once, then the race chooses. The end of a sweep is a function of its records.

// The visits to one setting.
typedef struct setting_runs {
  brim_result *visit;       // a result for each measured visit; in the end one stands for all
  brim_result_visit *what;  // what the race knows of them
  size_t count, told;       // of `visit` and `what`; a record brings more of the latter
  double seconds;           // cost of the last visit
  bool known;               // from a record
  bool failed;              // it ran, and later did not
} setting_runs;

typedef struct sweep {
  brim_subject *subject;
  const brim_sweep_options *options;
  const brim_sweep_settings *settings;
  brim_race *race;
  setting_runs *runs;    // (settings)
  brim_result *results;  // in the order of their first visits
  size_t *setting_of;    // (results)
  size_t count;          // results
  double *rate;          // (settings) of first visits; NaN = not visited, 0 = it did not run
  size_t at;             // the setting that is measured
  size_t number;         // its number for people, from 1
  size_t repeats;        // visits beyond the first round
  int64_t visits;        // all of them
  double first_s;        // cost of the first round
  bool climbing, budget_ended, shown_first;
  brim_trial_options trial;
  brim_result_visit visit;  // of the trial that runs
  brim_time start;
  brim_host_sample host;      // the last reading of the host's counters
  double others_cpu_percent;  // other programs' share of the CPU since the reading before
  char title[160];
} sweep;

//---------------------------------- progress ----------------------------------

static double rows(const sweep *s, size_t setting) {
  return brim_subject_rows(s->subject, &s->settings->setting[setting]);
}

double brim_sweep_predict(const double *x, const double *seconds, size_t n, double at) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0, least = INFINITY, most = 0;
  for (size_t i = 0; i < n; i++) {
    sx += x[i];
    sy += seconds[i];
    sxx += x[i] * x[i];
    sxy += x[i] * seconds[i];
    least = fmin(least, seconds[i]);
    most = fmax(most, x[i]);
  }
  // A setting far larger than all measured ones is not predicted.
  if (n == 0 || at > BRIM_SWEEP_FARTHEST * most) return (double)NAN;
  double count = (double)n, spread = sxx - sx * sx / count;
  // Measured at one size alone: assume proportion, which is too much rather than too little.
  if (!(spread > 1e-9 * sxx)) return sy / count * fmax(1, at * count / sx);
  double slope = fmax(0, (sxy - sx * sy / count) / spread);
  return fmax(least, sy / count + slope * (at - sx / count));
}

double brim_sweep_seconds(double spent, double ahead, double passes) {
  double budget = passes > 1 ? passes * BRIM_RACE_PASS_VISITS : 1;
  return ahead + (budget - 1) * (spent + ahead);
}

static double elapsed_s(const sweep *s) {
  return (double)brim_time_since_ns(s->start, brim_clock_now()) * 1e-9;
}

static double budget_left(const sweep *s) {
  return s->options->budget_s > 0 ? fmax(0, s->options->budget_s - elapsed_s(s)) : INFINITY;
}

// An upper bound: the budget is a multiple of the first round's cost, and a race may end before it. NaN as long
// as the measured settings do not predict the others. `share`: done of the present visit.
static double seconds_left(const sweep *s, double share) {
  size_t total = s->settings->count, n = 0;
  double x[64], y[64], ahead = 0, left = (double)NAN;
  if (s->repeats > 0) {
    left = brim_race_seconds_left(s->race);
  } else if (!s->climbing) {
    for (size_t i = 0; i < s->count && n < 64; i++) {
      size_t setting = s->setting_of[i];
      if (s->runs[setting].count == 0) continue;
      x[n] = rows(s, setting);
      y[n++] = s->runs[setting].seconds;
    }
    double now = brim_sweep_predict(x, y, n, rows(s, s->at));
    for (size_t i = 0; i < total; i++) {
      if (isnan(s->rate[i])) ahead += brim_sweep_predict(x, y, n, rows(s, i));
    }
    double passes = s->race && total > 1 ? s->options->repeats : 1;
    left = brim_sweep_seconds(s->first_s, ahead, passes) - share * now;
  }
  double budget = budget_left(s);
  if (isfinite(budget)) left = isnan(left) ? budget : fmin(left, budget);
  return left < 0 ? 0 : left;
}

static void on_step(void *ctx, int step, int steps) {
  sweep *s = ctx;
  if (!s->options->on_progress) return;
  brim_progress p;
  memset(&p, 0, sizeof p);
  p.title = s->title;
  p.done = s->repeats > 0 ? -1 : (int64_t)s->number - 1;  // the number of repeats is not known
  p.total = (int64_t)(s->repeats > 0 ? 0 : s->settings->count);
  p.elapsed_s = elapsed_s(s);
  p.eta_s = seconds_left(s, (double)step / (double)steps);
  p.rate = (double)NAN;
  p.unit = "trials";
  s->options->on_progress(s->options->ctx, &p);
}

//---------------------------------- measuring ----------------------------------

// A visit with a throttled clock is believed less, not dropped.
#define THROTTLED_SE 0.1
// Samples of a visit that says nothing of them.
#define USUAL_SAMPLES 10.0

// An error so large that its interval says nothing is no error that is known.
static double usable_se(double se) {
  return se <= log(BRIM_TUNE_WIDEST) / (2 * 1.96) ? se : (double)NAN;
}

// The visit that the last trial made, with its place in the sweep.
static brim_result_visit take_visit(const sweep *s, const brim_result *r) {
  brim_result_visit v = s->visit;
  if (!(v.samples > 0)) {  // the subject says nothing of its samples
    v.samples_per_s = r->samples_per_s;
    v.log_se = (double)NAN;
    v.samples = USUAL_SAMPLES;
    v.seconds = fmax(r->seconds, 1e-3);
  }
  v.log_se = usable_se(v.log_se);
  if (r->throttled) v.log_se = hypot(v.log_se >= 0 ? v.log_se : 0, THROTTLED_SE);
  v.at = s->visits;
  v.others_cpu_percent = s->others_cpu_percent;
  return v;
}

// Visits of a record that has none: as many as it was measured, each at its rate, with errors that give its
// interval.
static size_t visits_by_interval(const brim_result *r, brim_result_visit *out) {
  size_t n = r->repeats > 1 ? (size_t)r->repeats : 1;
  if (n > BRIM_RESULT_MAX_VISITS) n = BRIM_RESULT_MAX_VISITS;
  double se = log(r->samples_per_s_high / r->samples_per_s_low) / (2 * 1.96);
  for (size_t i = 0; i < n; i++) {
    out[i] = (brim_result_visit){.at = (int64_t)i,
                                 .samples_per_s = r->samples_per_s,
                                 .log_se = usable_se(se) * sqrt((double)n),
                                 .samples = USUAL_SAMPLES,
                                 .seconds = fmax(r->seconds, 1e-3),
                                 .others_cpu_percent = r->others_cpu_percent};
  }
  return n;
}

static brim_status grow(setting_runs *runs, size_t more) {
  size_t told = runs->told + more;
  brim_result *visit =
      (brim_result *)brim_realloc(runs->visit, (runs->count + 1) * sizeof *runs->visit);
  if (visit) runs->visit = visit;
  brim_result_visit *what =
      visit ? (brim_result_visit *)brim_realloc(runs->what, told * sizeof *what) : NULL;
  if (!what) return brim_fail(BRIM_ENOMEM, "out of memory for %zu visits", told);
  runs->what = what;
  return BRIM_OK;
}

static brim_status add_visit(sweep *s, const brim_result *r) {
  setting_runs *runs = &s->runs[s->at];
  const brim_result_visit v = take_visit(s, r);
  BRIM_TRY(grow(runs, 1));
  s->visits++;
  if (runs->count == 0) s->first_s += v.seconds;
  runs->visit[runs->count++] = *r;
  runs->what[runs->told++] = v;
  runs->seconds = v.seconds;
  return brim_race_add(s->race, s->at, &v);
}

// The kernel counts in hundredths of a second: the share over a shorter time says nothing.
#define LEAST_SECONDS 0.2

// One trial at the setting `s->at`, under its title.
static brim_status run_trial(sweep *s, const brim_trial_options *how, brim_result *r) {
  const brim_subject *subject = s->subject;
  const brim_setting *setting = &s->settings->setting[s->at];
  size_t count = s->settings->count;
  int n = s->repeats > 0
              ? snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu, measurement %zu:"),
                         s->number, count, s->runs[s->at].count + 1)
              : snprintf(s->title, sizeof s->title, brim_tr("setting %zu/%zu:"), s->number, count);
  for (size_t a = 0; a < s->options->axis_count && n >= 0 && (size_t)n < sizeof s->title; a++) {
    const int knob = s->options->axes[a].knob;
    char value[32];
    brim_knob_format(&subject->knobs[knob], setting->value[knob], value);
    n += snprintf(s->title + n, sizeof s->title - (size_t)n, " %s=%s", subject->knobs[knob].name,
                  value);
  }
  s->visit.samples = 0;
  on_step(s, 0, 1);
  BRIM_TRY((s->options->plan_only ? subject->table->plan : subject->table->run)(subject->state,
                                                                                setting, how, r));
  // What other programs had of the CPU meanwhile.
  const brim_host_provider system = brim_host_provider_system("");
  brim_host_sample now;
  brim_host_sample_clear(&now);
  if (brim_host_read_sample(s->options->host ? s->options->host : &system, &now)) {
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_host_usage usage = brim_host_usage_between(&s->host, &now);
  if (usage.seconds < LEAST_SECONDS) return BRIM_OK;
  if (usage.others_cpu_percent >= 0) s->others_cpu_percent = usage.others_cpu_percent;
  s->host = now;
  return BRIM_OK;
}

// Nothing runs any more on a device that crashed: the next setting gets a new one.
static brim_status recover(sweep *s, const brim_result *r) {
  if (r->failure != BRIM_FAILURE_CRASH || !s->subject->table->recover) return BRIM_OK;
  return s->subject->table->recover(s->subject);
}

// The first visit to a setting; its result goes to the caller at once.
static brim_status first_visit(sweep *s) {
  const brim_sweep_options *o = s->options;
  brim_result *r = &s->results[s->count];
  s->number = s->climbing ? s->count + 1 : s->at + 1;
  s->setting_of[s->count++] = s->at;
  BRIM_TRY(run_trial(s, &s->trial, r));
  r->repeats = 1;
  s->rate[s->at] = brim_result_ran(r) ? r->samples_per_s : 0;
  if (s->race && brim_result_ran(r)) {
    r->others_cpu_percent = s->others_cpu_percent;
    r->visits[0] = take_visit(s, r);
    r->visit_count = 1;
  }
  brim_diagnose(s->results, s->count, s->count - 1);
  if (o->on_result) o->on_result(o->ctx, r);
  if (!brim_result_ran(r)) {
    if (s->race) brim_race_fail(s->race, s->at);
    return recover(s, r);
  }
  return s->race ? add_visit(s, r) : BRIM_OK;
}

// A device that is not the host starts slowly after it was built: graphs are recorded, kernels loaded.
#define REPEAT_SECONDS 8.0
enum { REPEAT_LEAST = 3, REPEAT_WARMUP = 6 };

// A further visit, shorter than the first: a few samples now are worth more than many later. A setting that ran
// and now does not is unreliable.
static brim_status next_visit(sweep *s) {
  brim_result r;
  brim_trial_options how = s->trial;
  const bool host = s->subject->host;
  // the ceilings of loader and device are asked twice: once may have been a bad moment
  how.ceilings = how.ceilings && s->runs[s->at].count < 2;
  how.max_seconds = fmin(how.max_seconds, host ? how.max_seconds / 2 : REPEAT_SECONDS);
  if (how.min_steps == 0) how.min_steps = REPEAT_LEAST;
  if (how.max_warmup == 0 && host) how.max_warmup = REPEAT_WARMUP;
  s->repeats++;
  s->number = s->at + 1;
  brim_result_init(&r);
  brim_status status = run_trial(s, &how, &r);
  if (!status && !brim_result_ran(&r)) {
    brim_race_fail(s->race, s->at);
    s->runs[s->at].failed = true;
    status = recover(s, &r);
    brim_result_deinit(&r);
    return status;
  }
  if (!status) status = add_visit(s, &r);
  if (status) brim_result_deinit(&r);
  return status;
}

//---------------------------------- records ----------------------------------

typedef struct placed_visit {
  brim_result_visit visit;
  size_t setting;
} placed_visit;

static int by_place(const void *a, const void *b) {
  const placed_visit *x = a, *y = b;
  return (x->visit.at > y->visit.at) - (x->visit.at < y->visit.at);
}

// A setting that failed after it ran was measured once more than it has visits.
static bool failed_later(const brim_result *r) {
  return r->visit_count > 0 && (size_t)r->repeats > r->visit_count;
}

// Adds the visits of results in the order in which they were made. Result i is setting `of[i]` of the race; NULL:
// setting i.
static brim_status add_records(brim_race *race, const brim_result *results, size_t count,
                               const size_t *of) {
  size_t n = 0;
  placed_visit *all = brim_calloc(count * BRIM_RESULT_MAX_VISITS + 1, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", count);
  for (size_t i = 0; i < count; i++) {
    brim_result_visit made[BRIM_RESULT_MAX_VISITS];
    const brim_result *r = &results[i];
    const brim_result_visit *visits = r->visit_count ? r->visits : made;
    if (!brim_result_ran(r)) continue;
    size_t total = r->visit_count ? r->visit_count : visits_by_interval(r, made);
    for (size_t k = 0; k < total; k++) {
      if (visits[k].samples_per_s > 0) all[n++] = (placed_visit){visits[k], of ? of[i] : i};
    }
  }
  qsort(all, n, sizeof *all, by_place);
  brim_status status = BRIM_OK;
  for (size_t k = 0; k < n && !status; k++) {
    status = brim_race_add(race, all[k].setting, &all[k].visit);
  }
  for (size_t i = 0; i < count; i++) {
    if (brim_result_ran(&results[i]) && !failed_later(&results[i])) continue;
    brim_race_fail(race, of ? of[i] : i);
  }
  brim_free(all);
  return status;
}

brim_status brim_race_of_results(const brim_result *results, size_t count, double passes,
                                 brim_race **out) {
  BRIM_TRY(brim_race_create(count, passes, out));
  brim_status status = add_records(*out, results, count, NULL);
  if (!status) return BRIM_OK;
  brim_race_destroy(*out);
  *out = NULL;
  return status;
}

// Settings of a resumed sweep that records know are not visited for the first time again.
static brim_status take_known(sweep *s) {
  const brim_sweep_options *o = s->options;
  for (size_t i = 0; i < s->settings->count && o->known; i++) {
    brim_result *r = &s->results[s->count];
    if (!o->known(o->ctx, &s->settings->setting[i], r)) continue;
    setting_runs *runs = &s->runs[i];
    s->setting_of[s->count++] = i;
    s->rate[i] = brim_result_ran(r) ? r->samples_per_s : 0;
    if (!s->race || !brim_result_ran(r)) continue;
    runs->known = true;
    runs->failed = failed_later(r);
    size_t visits = r->visit_count;
    BRIM_TRY(grow(runs, visits ? visits : BRIM_RESULT_MAX_VISITS));
    if (visits) {
      memcpy(runs->what, r->visits, visits * sizeof *runs->what);
    } else {
      visits = visits_by_interval(r, runs->what);
    }
    runs->visit[runs->count++] = *r;
    runs->told = visits;
    runs->seconds = runs->what[visits - 1].seconds;
    s->first_s += runs->what[0].seconds;
    for (size_t k = 0; k < visits; k++) {
      if (runs->what[k].at >= s->visits) s->visits = runs->what[k].at + 1;
    }
  }
  return s->race ? add_records(s->race, s->results, s->count, s->setting_of) : BRIM_OK;
}

//---------------------------------- the order ----------------------------------

// The fewest steps that give a figure.
enum { LEAST_STEPS = 5 };

// Could a first visit to the setting end within the budget, at the best throughput so far?
static bool affordable(const sweep *s, size_t setting) {
  double best = 0;
  for (size_t i = 0; i < s->settings->count; i++) best = fmax(best, s->rate[i]);
  return !(best > 0) || LEAST_STEPS * rows(s, setting) / best <= budget_left(s);
}

// The setting to visit next for the first time; -1 = there is none.
static int64_t next_first(sweep *s) {
  const brim_climb climb = {.subject = s->subject,
                            .settings = s->settings,
                            .axes = s->options->axes,
                            .axis_count = s->options->axis_count,
                            .rate = s->rate};
  if (s->climbing) return brim_climb_next(&climb);
  bool limited = s->options->budget_s > 0;
  if (limited && s->settings->own >= 0 && isnan(s->rate[s->settings->own])) return s->settings->own;
  for (size_t i = 0; i < s->settings->count; i++) {
    if (isnan(s->rate[i])) return (int64_t)i;
  }
  return -1;
}

// The first table, while the sweep continues.
#define FIRST_TABLE_SECONDS 15.0
static void show_first(sweep *s) {
  size_t ran = 0;
  if (s->shown_first || !s->options->on_first || elapsed_s(s) < FIRST_TABLE_SECONDS) return;
  for (size_t i = 0; i < s->count; i++) ran += brim_result_ran(&s->results[i]);
  if (ran < 2) return;
  s->shown_first = true;
  s->options->on_first(s->options->ctx, s->results, s->count);
}

// The first round, then the race, until it is over or the budget ends.
static brim_status run_all(sweep *s) {
  BRIM_TRY(take_known(s));
  for (int64_t next; (next = next_first(s)) >= 0;) {
    s->at = (size_t)next;
    if (s->count > 0 && !(budget_left(s) > 0)) {
      s->budget_ended = true;
      break;
    }
    if (s->count > 0 && !affordable(s, s->at)) {
      s->budget_ended = true;
      s->rate[s->at] = 0;  // not begun: it would end after the budget
      continue;
    }
    show_first(s);
    BRIM_TRY(first_visit(s));
  }
  bool once = s->options->repeats < 2 || s->options->plan_only || s->settings->count < 2;
  if (once || s->budget_ended) return BRIM_OK;
  brim_race_start_rounds(s->race);
  for (int64_t next; (next = brim_race_next(s->race)) >= 0;) {
    s->at = (size_t)next;
    if (s->runs[s->at].told == BRIM_RESULT_MAX_VISITS) break;
    if (!(budget_left(s) > s->runs[s->at].seconds)) {
      s->budget_ended = true;
      break;
    }
    show_first(s);
    BRIM_TRY(next_visit(s));
  }
  return BRIM_OK;
}

//---------------------------------- in the end ----------------------------------

// The best ceiling of the visits; unknown where the setting itself was faster: it was measured in a bad moment.
static double ceiling_of(const setting_runs *runs, bool data, double rate) {
  double best = (double)NAN;
  for (size_t i = 0; i < runs->count; i++) {
    const brim_result *r = &runs->visit[i];
    best = fmax(best, data ? r->data_samples_per_s : r->compute_samples_per_s);
  }
  return best >= rate ? best : (double)NAN;
}

// One result for all visits of a setting: that of the visit nearest to their rate. take_rate follows when all
// settings have theirs.
static void join_visits(sweep *s, size_t setting, bool once, brim_result *out) {
  setting_runs *runs = &s->runs[setting];
  if (runs->count == 1 && (runs->known || once)) return;  // as its record has it
  const double rate = brim_race_rate(s->race, setting).value;
  size_t pick = 0;
  for (size_t i = 1; i < runs->count && rate > 0; i++) {
    double x = fabs(log(runs->visit[i].samples_per_s / rate));
    if (x < fabs(log(runs->visit[pick].samples_per_s / rate))) pick = i;
  }
  *out = runs->visit[pick];
  out->visit_count = runs->told < BRIM_RESULT_MAX_VISITS ? runs->told : BRIM_RESULT_MAX_VISITS;
  memcpy(out->visits, runs->what, out->visit_count * sizeof *out->visits);
  out->repeats = (int)(out->visit_count + runs->failed);
  double others = 0, seconds = 0;
  for (size_t i = 0; i < out->visit_count; i++) {
    const brim_result_visit *v = &out->visits[i];
    if (isnan(v->others_cpu_percent)) continue;
    others += v->seconds * v->others_cpu_percent;
    seconds += v->seconds;
  }
  out->others_cpu_percent = seconds > 0 ? others / seconds : (double)NAN;
  for (size_t i = 0; i < runs->count; i++) {
    out->throttled = out->throttled || runs->visit[i].throttled;
  }
  out->data_samples_per_s = ceiling_of(runs, true, rate > 0 ? rate : 0);
  out->compute_samples_per_s = ceiling_of(runs, false, rate > 0 ? rate : 0);
  for (size_t i = 0; i < runs->count; i++) {
    if (i != pick) brim_result_deinit(&runs->visit[i]);
  }
}

static void scale(brim_stats_summary *times, double by) {
  double *const all[] = {&times->min,    &times->max,    &times->mean,   &times->stddev,
                         &times->median, &times->mad,    &times->p05,    &times->p95,
                         &times->p99,    &times->ci_low, &times->ci_high};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= by;
}

// Gives a result the rate of all its visits. Its times are scaled to it, so that a step and its phases agree
// with the rate beside them. The interval allows for other programs: they may come back, or take more.
static void take_rate(brim_result *r, brim_interval rate) {
  double by = r->samples_per_s / rate.value, load = exp(brim_result_log_load(r));
  scale(&r->total_ms, by);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) scale(&r->phase_ms[p], by);
  r->epoch_s *= by;
  r->samples_per_s = rate.value;
  r->stable = rate.high - rate.low <= 0.25 * rate.value;
  rate.low /= load;
  rate.high *= load;
  bool wide = !(rate.high <= BRIM_TUNE_WIDEST * rate.low);
  r->samples_per_s_low = wide ? (double)NAN : rate.low;
  r->samples_per_s_high = wide ? (double)NAN : rate.high;
}

// The results in the order of the settings, each with the rate of a race that is made from the records.
static brim_status conclude(sweep *s) {
  bool once = s->options->repeats < 2 || s->settings->count < 2;
  for (size_t i = 1; i < s->count; i++) {
    for (size_t k = i; k > 0 && s->setting_of[k - 1] > s->setting_of[k]; k--) {
      brim_result kept = s->results[k];
      size_t of = s->setting_of[k];
      s->results[k] = s->results[k - 1];
      s->setting_of[k] = s->setting_of[k - 1];
      s->results[k - 1] = kept;
      s->setting_of[k - 1] = of;
    }
  }
  for (size_t i = 0; i < s->count; i++) {
    if (s->runs[s->setting_of[i]].count > 0) join_visits(s, s->setting_of[i], once, &s->results[i]);
  }
  brim_race_destroy(s->race);
  BRIM_TRY(brim_race_of_results(s->results, s->count, s->options->repeats, &s->race));
  for (size_t i = 0; i < s->count; i++) {
    brim_result *r = &s->results[i];
    const setting_runs *runs = &s->runs[s->setting_of[i]];
    brim_interval rate = brim_race_rate(s->race, i);
    if (!brim_result_ran(r)) continue;
    if (!(rate.value > 0)) {
      r->stable = false;  // it ran, and then did not
    } else if (r->visit_count > 0 && (!once || r->visit_count > 1)) {
      take_rate(r, rate);
    }
    if (s->options->on_final && runs->count > 1) s->options->on_final(s->options->ctx, r);
  }
  return BRIM_OK;
}

static brim_status init(sweep *s) {
  const brim_sweep_options *o = s->options;
  size_t total = s->settings->count;
  s->results = brim_calloc(total + 1, sizeof *s->results);
  s->runs = brim_calloc(total + 1, sizeof *s->runs);
  s->rate = brim_calloc(total + 1, sizeof *s->rate);
  s->setting_of = brim_calloc(total + 1, sizeof *s->setting_of);
  if (!s->results || !s->runs || !s->rate || !s->setting_of) {
    return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", total);
  }
  if (!o->plan_only) BRIM_TRY(brim_race_create(total, o->repeats, &s->race));
  for (size_t i = 0; i < total; i++) s->rate[i] = (double)NAN;
  s->climbing = !o->plan_only && o->climb_above > 0 && total > o->climb_above;
  s->trial = o->trial;
  s->trial.on_step = on_step;
  s->trial.visit = &s->visit;
  s->trial.ctx = s;
  s->start = brim_clock_now();
  s->others_cpu_percent = (double)NAN;
  const brim_host_provider system = brim_host_provider_system("");
  brim_host_sample_clear(&s->host);
  if (brim_host_read_sample(o->host ? o->host : &system, &s->host)) brim_status_clear();
  return BRIM_OK;
}

brim_status brim_sweep_run(brim_subject *subject, const brim_sweep_options *options,
                           brim_result **out, size_t *count) {
  sweep s = {.subject = subject, .options = options, .settings = options->settings};
  brim_sweep_settings made = {.own = -1};
  *out = NULL;
  *count = 0;
  if (options->race) *options->race = NULL;
  if (!s.settings) {
    BRIM_TRY(brim_sweep_settings_make(subject, options->axes, options->axis_count, false, &made));
    s.settings = &made;
  }
  brim_status status = init(&s);
  if (status) {
    brim_free(s.results);
  } else {
    // What ended the sweep is returned; what was measured is concluded from all the same.
    status = run_all(&s);
    char detail[1024];
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
    const brim_status concluded = s.race ? conclude(&s) : BRIM_OK;
    if (status) {
      brim_status_set_detail(detail);
    } else {
      status = concluded;
    }
    for (size_t i = 0; i < s.count; i++) brim_diagnose(s.results, s.count, i);  // all evidence
    if (options->setting_of) {
      memcpy(options->setting_of, s.setting_of, s.count * sizeof *s.setting_of);
    }
    if (options->budget_ended) *options->budget_ended = s.budget_ended;
    *out = s.results;
    *count = s.count;
  }
  for (size_t i = 0; s.runs && i < s.settings->count; i++) {
    brim_free(s.runs[i].visit);
    brim_free(s.runs[i].what);
  }
  brim_free(s.runs);
  brim_free(s.rate);
  brim_free(s.setting_of);
  brim_sweep_settings_free(&made);
  if (options->race) {
    *options->race = s.race;
  } else {
    brim_race_destroy(s.race);
  }
  return status;
}
