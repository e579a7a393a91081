// Which settings a sweep has: every combination of its axes that makes sense, each that differs from the
// others in something once, and the config's own.
#include <inttypes.h>
#include <string.h>

#include "tune/tune_int.h"

typedef struct grid {
  const brim_work *work;
  const brim_sweep_axis *axes;
  size_t axis_count;
  int64_t set_samples;  // 0 = unknown, or nothing is loaded
  int batch, accumulation;
} grid;

static grid grid_of(const brim_work *work, const brim_sweep_axis *axes, size_t axis_count) {
  brim_work_info info;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  return (grid){.work = work,
                .axes = axes,
                .axis_count = axis_count,
                .set_samples = info.set_samples,
                .batch = brim_work_knob_as(work, BRIM_ROLE_BATCH),
                .accumulation = brim_work_knob_as(work, BRIM_ROLE_ACCUMULATION)};
}

static brim_setting setting_at(const grid *g, size_t index) {
  brim_setting setting = brim_work_setting(g->work);
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
  return g->work->table->sensible(g->work->state, s);
}

// The value that stands for all of an axis where they are the same: the config's own, else the first.
static int64_t one_value(const grid *g, const brim_sweep_axis *axis) {
  int64_t own = g->work->knobs[axis->knob].value;
  for (size_t i = 0; i < axis->count; i++) {
    if (axis->values[i] == own) return own;
  }
  return axis->values[0];
}

static bool matters(const grid *g, int knob, const brim_setting *s) {
  const brim_knob *row = &g->work->knobs[knob];
  return !row->matters || row->matters(g->work->state, s);
}

// Does another setting of the grid stand for it?
static bool is_double(const grid *g, const brim_setting *s) {
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count < 2 || s->value[axis->knob] == one_value(g, axis)) continue;
    if (!matters(g, axis->knob, s)) return true;
  }
  return false;
}

// Equal in every knob that matters.
static bool is_same(const grid *g, const brim_setting *a, const brim_setting *b) {
  for (size_t k = 0; k < g->work->knob_count; k++) {
    if (a->value[k] != b->value[k] && (matters(g, (int)k, a) || matters(g, (int)k, b)))
      return false;
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
  brim_plan plan;
  if (!is_filled(g, s)) return why_not_filled(g, s);
  return g->work->table->plan(g->work->state, s, &plan);
}

static brim_status check_axes(const grid *g, size_t *total) {
  *total = 1;
  for (size_t a = 0; a < g->axis_count; a++) {
    const brim_sweep_axis *axis = &g->axes[a];
    if (axis->count == 0 || axis->knob < 0 || (size_t)axis->knob >= g->work->knob_count) {
      return brim_fail(BRIM_EINVAL, "a sweep axis has no values");
    }
    const brim_knob *knob = &g->work->knobs[axis->knob];
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
  brim_setting own = brim_work_setting(g->work);
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

brim_status brim_sweep_settings_make(const brim_work *work, const brim_sweep_axis *axes,
                                     size_t axis_count, bool own, brim_sweep_settings *out) {
  grid g = grid_of(work, axes, axis_count);
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
