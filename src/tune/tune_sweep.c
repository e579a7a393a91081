// A sweep: every combination of the axes, one trial each, in order, last axis fastest.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tune/tune.h"

typedef struct sweep {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_sweep_options *options;
  size_t total, index;
  brim_time start;
  char title[160];
} sweep;

static brim_setting setting_at(const sweep *s, size_t index) {
  brim_setting setting = brim_work_setting(s->work);
  for (size_t a = s->options->axis_count; a > 0; a--) {
    const brim_sweep_axis *axis = &s->options->axes[a - 1];
    setting.value[axis->knob] = axis->values[index % axis->count];
    index /= axis->count;
  }
  return setting;
}

static void make_title(sweep *s, const brim_setting *setting) {
  int n = snprintf(s->title, sizeof s->title, "trial %zu/%zu", s->index + 1, s->total);
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
  p.eta_s = done > 0 ? p.elapsed_s / done * ((double)s->total - done) : (double)NAN;
  p.rate = p.loss = p.accuracy = (double)NAN;
  p.unit = "trials";
  s->options->on_progress(s->options->ctx, &p);
}

static void on_step(void *ctx, int step, int total) { show((sweep *)ctx, step, total); }

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
  brim_trial_options trial = options->trial;
  trial.on_step = on_step;
  trial.ctx = &s;
  s.start = brim_clock_now();
  brim_status status = BRIM_OK;
  for (s.index = 0; s.index < s.total && !status; s.index++) {
    brim_setting setting = setting_at(&s, s.index);
    make_title(&s, &setting);
    show(&s, 0, 1);
    brim_result *r = &results[s.index];
    status = options->plan_only ? brim_trial_plan(work, config, device, &setting, &trial, r)
                                : brim_trial_run(work, config, device, &setting, &trial, r);
    *count = s.index + 1;
    if (status) break;
    brim_diagnose(r);
    if (options->on_result) options->on_result(options->ctx, r);
  }
  *out = results;
  return status;
}
