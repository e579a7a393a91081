// Which setting of a large grid a sweep visits next for the first time. A grid of a hundred settings is not
// measured whole: brim climbs from the config's own setting to neighbours of the best ones so far, until none
// is left. A pure function of what was measured: a sweep that is resumed goes on where it was.
#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

// Neighbours of so many of the best settings are visited, where these are within NEAR of the best.
enum { TOP = 3 };
#define NEAR 0.95
// A larger batch that gains less than this over the next smaller one is not climbed on from.
#define CLIMBS 1.03

static bool is_number(const brim_knob *knob) { return knob->kind == BRIM_KNOB_INT; }

static double distance(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  double sum = 0;
  for (size_t k = 0; k < c->work->knob_count; k++) {
    double x = (double)a->value[k], y = (double)b->value[k];
    if (x == y) continue;
    sum += is_number(&c->work->knobs[k]) ? fabs(log((x + 1) / (y + 1))) : 0.1;
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

static bool matters(const brim_climb *c, size_t knob, const brim_setting *s) {
  const brim_knob *row = &c->work->knobs[knob];
  return !row->matters || row->matters(c->work->state, s);
}

// The one knob in which `b` differs from `a`, besides those that make no difference there; -1 where there is
// none, or there are several.
static int only_difference(const brim_climb *c, const brim_setting *a, const brim_setting *b) {
  int knob = -1;
  for (size_t k = 0; k < c->work->knob_count; k++) {
    if (a->value[k] == b->value[k] || !matters(c, k, b)) continue;
    if (knob >= 0) return -1;
    knob = (int)k;
  }
  return knob;
}

// The next setting from `from` along a knob, up or down; -1 = there is none. A choice has no order: its next
// value is any that was not visited.
static int64_t beside(const brim_climb *c, size_t from, int knob, bool up) {
  const brim_setting *at = &c->settings->setting[from];
  const bool number = is_number(&c->work->knobs[knob]);
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
  if (!c->work->knobs[knob].multiplies) return true;
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
