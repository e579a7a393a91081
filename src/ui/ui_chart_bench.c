// Which points the report's line charts have: throughput, memory and utilisation against the batch
// size. A line is a worker count and a precision; of settings that differ in other knobs only, the
// fastest is drawn. How they are drawn is in ui_chart.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

enum { NEUTRAL = 4 };  // the grey of the colours

typedef struct lines {
  const brim_ui_view *view;
  const char *colour_values[BRIM_UI_MAX_VALUES], *dash_values[BRIM_UI_MAX_VALUES];
  size_t colours, dashes;  // drawn; 0 = the knob was not swept
  char names[BRIM_UI_COLOURS + BRIM_UI_DASHES][80];
  const char *colour_names[BRIM_UI_COLOURS], *dash_names[BRIM_UI_DASHES];
  brim_ui_point *points;  // one per result at most
  size_t count, left_out;
  char note[320];
} lines;

static size_t name_values(const brim_result *of, const char *knob, const char **values, size_t n,
                          size_t max, char (*names)[80], const char **out) {
  if (n > max) n = max;
  for (size_t i = 0; i < n; i++) {
    brim_ui_knob_text(of, knob, values[i], names[i]);
    out[i] = names[i];
  }
  return n;
}

static int index_of(const char *const *values, size_t count, const char *value) {
  if (count == 0) return 0;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(values[i], value) == 0) return (int)i;
  }
  return -1;
}

// Is `a` to be drawn rather than `b` of the same line and x?
static bool preferred(const brim_ui_view *view, const brim_result *a, const brim_result *b) {
  if (view->picks.recommended >= 0 && (a == view->shown || b == view->shown)) {
    return a == view->shown;
  }
  if (brim_result_ran(a) != brim_result_ran(b)) return brim_result_ran(a);
  return brim_result_ran(a) ? a->samples_per_s > b->samples_per_s
                            : brim_result_memory(a) < brim_result_memory(b);
}

static void insert_by_x(brim_ui_point *points, size_t *n, brim_ui_point p) {
  size_t k = (*n)++;
  for (; k > 0 && points[k - 1].x > p.x; k--) points[k] = points[k - 1];
  points[k] = p;
}

static void collect_one(lines *l, const brim_result *r) {
  const brim_ui_view *view = l->view;
  const brim_result_knob *x = brim_result_knob_find(r, view->x);
  int colour = index_of(l->colour_values, l->colours, brim_ui_knob_value(r, view->colour));
  int dash = index_of(l->dash_values, l->dashes, brim_ui_knob_value(r, view->dash));
  if (!brim_result_ran(r) && !brim_result_is_oom(r)) return;
  if (colour < 0 || dash < 0) {
    l->left_out++;
    return;
  }
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    if (p->x != x->number || p->colour != colour || p->dash != dash) continue;
    if (preferred(view, r, p->result)) p->result = r;
    return;
  }
  insert_by_x(l->points, &l->count,
              (brim_ui_point){.x = x->number, .colour = colour, .dash = dash, .result = r});
}

// "At each point the fastest of Pinned, Prefetch is drawn."
static void make_note(lines *l) {
  const brim_ui_view *view = l->view;
  const brim_result *first = &view->results[0];
  char knobs[200] = "", left[128] = "";
  size_t used = 0;
  for (size_t k = 0; k < first->knob_count && used < 160; k++) {
    const char *name = first->knobs[k].name;
    if (!brim_result_knob_varies(view->results, view->count, name)) continue;
    if (strcmp(name, view->x) == 0 || (view->colour && strcmp(name, view->colour) == 0) ||
        (view->dash && strcmp(name, view->dash) == 0)) {
      continue;
    }
    int n = snprintf(knobs + used, sizeof knobs - used, "%s%s", used ? ", " : "",
                     brim_ui_knob_label(first, name));
    if (n > 0) used += (size_t)n;
  }
  if (l->left_out) {
    snprintf(left, sizeof left, brim_tr(" %zu settings are in the table only."), l->left_out);
  }
  l->note[0] = '\0';
  if (used) {
    snprintf(l->note, sizeof l->note, brim_tr("At each point: the fastest over %s."), knobs);
  }
  snprintf(l->note + strlen(l->note), sizeof l->note - strlen(l->note), "%s", left);
}

static brim_status lines_init(lines *l, const brim_ui_view *view) {
  *l = (lines){.view = view};
  l->points = brim_calloc(view->count + 1, sizeof *l->points);
  if (!l->points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  if (view->colour) {
    l->colours = brim_ui_knob_values(view, view->colour, l->colour_values);
    l->colours = name_values(view->shown, view->colour, l->colour_values, l->colours,
                             BRIM_UI_COLOURS, l->names, l->colour_names);
  }
  if (view->dash) {
    l->dashes = brim_ui_knob_values(view, view->dash, l->dash_values);
    l->dashes = name_values(view->shown, view->dash, l->dash_values, l->dashes, BRIM_UI_DASHES,
                            l->names + BRIM_UI_COLOURS, l->dash_names);
  }
  for (size_t i = 0; i < view->count; i++) collect_one(l, &view->results[i]);
  make_note(l);
  return BRIM_OK;
}

static brim_ui_chart base_chart(const lines *l) {
  return (brim_ui_chart){.view = l->view,
                         .points = l->points,
                         .count = l->count,
                         .colours = l->colours ? l->colour_names : NULL,
                         .colour_count = l->colours,
                         .dashes = l->dashes ? l->dash_names : NULL,
                         .dash_count = l->dashes,
                         .note = l->note[0] ? l->note : NULL};
}

//---------------------------------- throughput ----------------------------------

static void put_rate(lines *l, brim_str *out) {
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    p->mark = !brim_result_ran(p->result);
    p->y = p->mark ? NAN : p->result->samples_per_s;
    p->low = p->mark ? NAN : p->result->samples_per_s_low;
    p->high = p->mark ? NAN : p->result->samples_per_s_high;
  }
  brim_ui_chart chart = base_chart(l);
  chart.title = brim_tr("Throughput, with 95 % intervals");
  char rate[64];
  chart.y_label = brim_ui_rate_unit(l->count > 0 ? l->points[0].result : NULL, l->count > 0, rate);
  brim_ui_chart_svg(&chart, out);
}

//---------------------------------- memory ----------------------------------

static double free_bytes(const brim_ui_view *view) {
  if (view->shown->free_bytes > 0) return view->shown->free_bytes;
  for (size_t i = 0; i < view->count; i++) {
    if (view->results[i].free_bytes > 0) return view->results[i].free_bytes;
  }
  return NAN;
}

// Workers seldom change the memory of a GPU: lines over each other would hide all but one.
static bool colours_agree(const lines *l) {
  for (size_t i = 0; i < l->count; i++) {
    for (size_t k = 0; k < i; k++) {
      const brim_ui_point *a = &l->points[i], *b = &l->points[k];
      if (a->x != b->x || a->dash != b->dash) continue;
      double x = brim_result_memory(a->result), y = brim_result_memory(b->result);
      if (fabs(x - y) > 0.01 * fmax(x, y)) return false;
    }
  }
  return true;
}

static void merge_colours(lines *l) {
  size_t n = 0;
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point p = l->points[i];
    size_t k = 0;
    p.colour = NEUTRAL;
    while (k < n && (l->points[k].x != p.x || l->points[k].dash != p.dash)) k++;
    if (k == n) {
      l->points[n++] = p;
    } else if (preferred(l->view, p.result, l->points[k].result)) {
      l->points[k] = p;
    }
  }
  l->count = n;
}

typedef struct rule_texts {
  char free_now[96], limit[64];
} rule_texts;

// The free memory and 80 % of it; in words alone where it is far above all that is drawn, so that the
// lines would flatten the others.
static void put_rules(brim_ui_chart *chart, double free_now, double most, rule_texts *texts) {
  char bytes[32], limit[32];
  brim_format_bytes((uint64_t)free_now, bytes);
  brim_format_bytes((uint64_t)(0.8 * free_now), limit);
  if (free_now > 64 * most) {
    snprintf(texts->free_now, sizeof texts->free_now, brim_tr("far above: free %s, 80 %% of it %s"),
             bytes, limit);
    chart->rules[0] = (brim_ui_rule){free_now, texts->free_now, false, true};
    return;
  }
  snprintf(texts->free_now, sizeof texts->free_now, brim_tr("free: %s"), bytes);
  snprintf(texts->limit, sizeof texts->limit, brim_tr("80 %% of it: %s"), limit);
  chart->rules[0] = (brim_ui_rule){free_now, texts->free_now, false, false};
  chart->rules[1] = (brim_ui_rule){0.8 * free_now, texts->limit, true, false};
}

static void put_memory(lines *l, brim_str *out) {
  double free_now = free_bytes(l->view), most = 0;
  bool cut = false;
  rule_texts texts;
  bool one = l->colours > 1 && colours_agree(l);
  if (one) merge_colours(l);
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    double memory = brim_result_memory(p->result);
    p->mark = !brim_result_ran(p->result);
    p->low = p->high = NAN;
    p->y = memory > 0 ? memory : NAN;
    // What is far beyond would flatten all the others: its text says how much it is.
    if (p->mark && p->y > 4 * free_now) {
      p->y = 4 * free_now;
      cut = true;
    }
    most = fmax(most, p->y);
  }
  brim_ui_chart chart = base_chart(l);
  chart.title = brim_tr("Memory planned");
  chart.y_label = brim_tr("memory, log scale");
  chart.bytes = true;
  if (one) {
    chart.colours = NULL;
    snprintf(l->note, sizeof l->note, brim_tr("Same for every value of %s."),
             brim_ui_knob_label(l->view->shown, l->view->colour));
    chart.note = l->note;
  }
  if (cut) {
    size_t used = strlen(l->note);
    snprintf(l->note + used, sizeof l->note - used, "%s%s", used ? " " : "",
             brim_tr("Crosses at four times the free memory mean that much or more."));
    chart.note = l->note;
  }
  if (free_now > 0) put_rules(&chart, free_now, most, &texts);
  brim_ui_chart_svg(&chart, out);
}

brim_status brim_ui_report_charts(const brim_ui_view *view, brim_str *out) {
  lines l;
  if (!view->x) return BRIM_OK;
  BRIM_TRY(lines_init(&l, view));
  brim_str_append(out, "<div class=\"charts\">\n");
  put_rate(&l, out);
  put_memory(&l, out);
  brim_str_append(out, "</div>\n");
  brim_free(l.points);
  return brim_str_status(out);
}

//---------------------------------- utilisation ----------------------------------

static double most_share(const brim_ui_view *view, const brim_ui_rung *rung) {
  double most = 0;
  for (size_t i = 0; i < view->count; i++) {
    most = fmax(most, brim_ui_rung_share(rung, &view->results[i]));
  }
  return most;
}

// The rungs of the settings that differ from the shown one in x alone.
brim_status brim_ui_report_ladder_chart(const brim_ui_view *view, brim_str *out) {
  const brim_ui_rung *rungs[BRIM_UI_MAX_RUNGS];
  const char *names[BRIM_UI_MAX_RUNGS];
  char group[BRIM_UI_GROUP_NAME], name[BRIM_UI_GROUP_NAME], title[BRIM_UI_GROUP_NAME + 64];
  if (!view->x || !brim_result_knob_varies(view->results, view->count, view->x)) return BRIM_OK;
  size_t n = brim_ui_rungs(view, rungs), count = 0;
  brim_ui_point *points = brim_calloc(view->count * n + 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  brim_ui_group_name(view, view->shown, group);
  for (size_t k = 0; k < n;) {
    if (most_share(view, rungs[k]) >= 1) {
      k++;
    } else {
      rungs[k] = rungs[--n];  // flat on the axis: the table has it
    }
  }
  for (size_t k = 0; k < n; k++) {
    names[k] = brim_tr(brim_ui_metric_find(rungs[k]->key)->label);
    for (size_t i = 0; i < view->count; i++) {
      const brim_result *r = &view->results[i];
      double share = brim_ui_rung_share(rungs[k], r);
      brim_ui_group_name(view, r, name);
      if (isnan(share) || strcmp(name, group) != 0) continue;
      insert_by_x(points, &count,
                  (brim_ui_point){.x = brim_result_knob_find(r, view->x)->number,
                                  .y = share,
                                  .low = NAN,
                                  .high = NAN,
                                  .colour = (int)k,
                                  .dash = (int)(k % BRIM_UI_DASHES),
                                  .result = r});
    }
  }
  snprintf(title, sizeof title, "%s%s%s", brim_tr("Utilisation"), group[0] ? ": " : "", group);
  brim_ui_chart chart = {.view = view,
                         .title = title,
                         .y_label = brim_tr("% of the available"),
                         .percent = true,
                         .points = points,
                         .count = count,
                         .colours = names,
                         .colour_count = n};
  brim_ui_chart_svg(&chart, out);
  brim_free(points);
  return brim_str_status(out);
}
