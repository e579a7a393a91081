// A sweep: every combination of the axes, one trial each, in order, last axis fastest; then those
// that contend again, in turns.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

enum { MAX_CONTENDERS = 8, MAX_REPEATS = 9 };

typedef struct sweep {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_sweep_options *options;
  size_t total, index;
  brim_trial_options trial;
  int repeat;    // 0 = the first round
  size_t known;  // results that took no time
  brim_time start;
  char title[160];
} sweep;

// Repeats of one contender; those that did not run are not among them.
typedef struct contender {
  size_t index;  // of its result
  brim_result runs[MAX_REPEATS];
  size_t count;
  bool failed;
} contender;

static brim_setting grid_setting(const brim_work *work, const brim_sweep_axis *axes,
                                 size_t axis_count, size_t index) {
  brim_setting setting = brim_work_setting(work);
  for (size_t a = axis_count; a > 0; a--) {
    const brim_sweep_axis *axis = &axes[a - 1];
    setting.value[axis->knob] = axis->values[index % axis->count];
    index /= axis->count;
  }
  return setting;
}

static size_t grid_size(const brim_sweep_axis *axes, size_t axis_count) {
  size_t size = 1;
  for (size_t a = 0; a < axis_count; a++) size *= axes[a].count;
  return size;
}

// Combinations that make no sense are not counted.
brim_setting brim_sweep_setting(const brim_work *work, const brim_sweep_axis *axes,
                                size_t axis_count, size_t index) {
  const brim_workload_table *table = work->table;
  if (!table->sensible) return grid_setting(work, axes, axis_count, index);
  size_t size = grid_size(axes, axis_count), seen = 0;
  for (size_t i = 0; i < size; i++) {
    brim_setting setting = grid_setting(work, axes, axis_count, i);
    if (table->sensible(work->state, &setting) && seen++ == index) return setting;
  }
  return grid_setting(work, axes, axis_count, 0);
}

size_t brim_sweep_count(const brim_work *work, const brim_sweep_axis *axes, size_t axis_count) {
  size_t size = grid_size(axes, axis_count), count = 0;
  if (!work->table->sensible) return size;
  for (size_t i = 0; i < size; i++) {
    brim_setting setting = grid_setting(work, axes, axis_count, i);
    count += work->table->sensible(work->state, &setting);
  }
  return count;
}

static brim_setting setting_at(const sweep *s, size_t index) {
  return brim_sweep_setting(s->work, s->options->axes, s->options->axis_count, index);
}

static void make_title(sweep *s, const brim_setting *setting) {
  int n = s->repeat ? snprintf(s->title, sizeof s->title, "repeat %d/%d", s->repeat,
                               s->options->repeats - 1)
                    : snprintf(s->title, sizeof s->title, "trial %zu/%zu", s->index + 1, s->total);
  for (size_t a = 0; a < s->options->axis_count; a++) {
    const brim_knob *knob = &s->work->knobs[s->options->axes[a].knob];
    char value[32];
    if (n < 0 || (size_t)n >= sizeof s->title) return;
    brim_knob_format(knob, setting->value[s->options->axes[a].knob], value);
    n += snprintf(s->title + n, sizeof s->title - (size_t)n, " %s=%s", knob->name, value);
  }
}

static void show(sweep *s, int step, int steps) {
  if (!s->options->on_progress) return;
  brim_progress p;
  memset(&p, 0, sizeof p);
  double share = steps > 0 ? (double)step / (double)steps : 0;
  double done = (double)s->index + share;
  p.title = s->title;
  p.done = (int64_t)s->index;
  p.total = (int64_t)s->total;
  p.elapsed_s = (double)brim_time_since_ns(s->start, brim_clock_now()) * 1e-9;
  double timed = s->repeat ? done : done - (double)s->known;
  p.eta_s = timed > 0 ? p.elapsed_s / timed * ((double)s->total - done) : (double)NAN;
  p.rate = p.loss = p.accuracy = (double)NAN;
  p.unit = "trials";
  s->options->on_progress(s->options->ctx, &p);
}

static void on_step(void *ctx, int step, int total) { show((sweep *)ctx, step, total); }

// What the plan of the first setting that makes no sense says of it.
static brim_status why_left_out(const sweep *s) {
  const brim_sweep_options *o = s->options;
  size_t size = grid_size(o->axes, o->axis_count);
  for (size_t i = 0; i < size; i++) {
    brim_setting setting = grid_setting(s->work, o->axes, o->axis_count, i);
    brim_plan plan;
    if (s->work->table->sensible && s->work->table->sensible(s->work->state, &setting)) continue;
    return s->work->table->plan(s->work->state, &setting, &plan);
  }
  return BRIM_OK;
}

static brim_status check_axes(const sweep *s, size_t *total) {
  *total = 1;
  for (size_t a = 0; a < s->options->axis_count; a++) {
    const brim_sweep_axis *axis = &s->options->axes[a];
    if (axis->count == 0 || axis->knob < 0 || (size_t)axis->knob >= s->work->knob_count) {
      return brim_fail(BRIM_EINVAL, "a sweep axis has no values");
    }
    const brim_knob *knob = &s->work->knobs[axis->knob];
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
  size_t all = *total;
  *total = brim_sweep_count(s->work, s->options->axes, s->options->axis_count);
  if (*total == 0) {
    // none goes together: the first of them is told why
    brim_status status = why_left_out(s);
    return status ? status : brim_fail(BRIM_EINVAL, "none of the settings to try makes sense");
  }
  if (*total < all && why_left_out(s)) {
    brim_log_warn("tune", "%zu of %zu combinations are left out; the first: %s", all - *total, all,
                  brim_status_detail());
    brim_status_clear();
  }
  return BRIM_OK;
}

// Nothing runs any more on a device that crashed; what comes next gets a new one.
static brim_status recover(sweep *s, const brim_result *r) {
  if (r->failure != BRIM_FAILURE_CRASH || !s->options->reopen) return BRIM_OK;
  return s->options->reopen(s->options->ctx, &s->work, &s->device);
}

static brim_status first_round(sweep *s, brim_result *results, size_t *count) {
  const brim_sweep_options *o = s->options;
  for (s->index = 0; s->index < s->total; s->index++) {
    brim_setting setting = setting_at(s, s->index);
    brim_result *r = &results[s->index];
    if (o->known && o->known(o->ctx, &setting, r)) {
      *count = s->index + 1;
      s->known++;
      continue;
    }
    make_title(s, &setting);
    show(s, 0, 1);
    brim_status status =
        o->plan_only ? brim_trial_plan(s->work, s->config, s->device, &setting, &s->trial, r)
                     : brim_trial_run(s->work, s->config, s->device, &setting, &s->trial, r);
    *count = s->index + 1;
    BRIM_TRY(status);
    r->repeats = 1;
    brim_diagnose(results, *count, s->index);
    if (o->on_result) o->on_result(o->ctx, r);
    BRIM_TRY(recover(s, r));
  }
  return BRIM_OK;
}

//---------------------------------- repeats ----------------------------------

static brim_status repeat_one(sweep *s, contender *c) {
  brim_setting setting = setting_at(s, c->index);
  brim_result *r = &c->runs[c->count];
  make_title(s, &setting);
  show(s, 0, 1);
  brim_status status = brim_trial_run(s->work, s->config, s->device, &setting, &s->trial, r);
  if (status || r->failure) {
    c->failed = c->failed || !status;
    if (!status) status = recover(s, r);
    brim_result_deinit(r);
    return status;
  }
  c->count++;
  return BRIM_OK;
}

// What ran once and then not any more is not to be relied on.
static void settle(sweep *s, contender *c, brim_result *results) {
  brim_result *r = &results[c->index];
  if (c->count > 1) {
    brim_tune_settle(c->runs, c->count, r);
  } else {
    *r = c->runs[0];
  }
  if (c->failed) r->stable = false;
  if (c->failed && r->repeats < 2) r->repeats = 2;  // tried again, if in vain
  if (s->options->on_settled) s->options->on_settled(s->options->ctx, r);
}

static brim_status repeat_all(sweep *s, contender *all, size_t n, int repeats) {
  s->total = (size_t)(repeats - 1) * n;
  s->start = brim_clock_now();
  s->index = 0;
  for (s->repeat = 1; s->repeat < repeats; s->repeat++) {
    for (size_t i = 0; i < n; i++, s->index++) BRIM_TRY(repeat_one(s, &all[i]));
  }
  return BRIM_OK;
}

static brim_status repeat(sweep *s, brim_result *results, const size_t *at, size_t n, int repeats) {
  contender *all = (contender *)brim_calloc(n, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", n);
  for (size_t i = 0; i < n; i++) {
    all[i].index = at[i];
    all[i].runs[all[i].count++] = results[at[i]];
  }
  brim_status status = repeat_all(s, all, n, repeats);
  for (size_t i = 0; i < n; i++) settle(s, &all[i], results);
  brim_free(all);
  return status;
}

// Repeating may show that the first was lucky: then others contend that did not before.
static brim_status repeat_contenders(sweep *s, brim_result *results, size_t count) {
  int repeats = s->options->repeats < MAX_REPEATS ? s->options->repeats : MAX_REPEATS;
  size_t left = MAX_CONTENDERS, at[MAX_CONTENDERS];
  if (repeats < 2 || s->options->plan_only || count < 2) return BRIM_OK;
  for (int pass = 0; pass < 3 && left > 0; pass++) {
    size_t n = brim_tune_contenders(results, count, at, left);
    if (n == 0) return BRIM_OK;
    BRIM_TRY(repeat(s, results, at, n, repeats));
    left -= n;
  }
  // What is recommended in the end was measured more than once, also where all others fell out.
  for (int more = 0; more < MAX_CONTENDERS; more++) {
    brim_recommendation picks;
    brim_recommend(results, count, &picks);
    if (picks.recommended < 0 || results[picks.recommended].repeats > 1) break;
    at[0] = (size_t)picks.recommended;
    BRIM_TRY(repeat(s, results, at, 1, repeats));
  }
  return BRIM_OK;
}

brim_status brim_sweep_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_sweep_options *options, brim_result **out, size_t *count) {
  sweep s = {.work = work, .config = config, .device = device, .options = options};
  *out = NULL;
  *count = 0;
  BRIM_TRY(check_axes(&s, &s.total));
  brim_result *results = (brim_result *)brim_calloc(s.total, sizeof *results);
  if (!results) return brim_fail(BRIM_ENOMEM, "out of memory for %zu results", s.total);
  s.trial = options->trial;
  s.trial.on_step = on_step;
  s.trial.ctx = &s;
  s.start = brim_clock_now();
  brim_status status = first_round(&s, results, count);
  if (!status) status = repeat_contenders(&s, results, *count);
  for (size_t i = 0; i < *count; i++) brim_diagnose(results, *count, i);  // now with all evidence
  *out = results;
  return status;
}
