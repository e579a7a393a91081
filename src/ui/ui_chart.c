// Line charts as inline SVG for the report: throughput and memory against batch size.
#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Small on purpose: on a phone the letters are still read (see the style in ui_report.c).
enum { WIDTH = 480, HEIGHT = 270, LEFT = 88, RIGHT = 12, TOP = 14, BOTTOM = 48, MAX_TICKS = 16 };

typedef struct scale {
  double x_min, x_max, y_max, y_step;
} scale;

static double x_at(const scale *s, double x) {
  double span = log2(s->x_max) - log2(s->x_min);
  double f = span > 0 ? (log2(x) - log2(s->x_min)) / span : 0.5;
  return LEFT + 10 + f * (WIDTH - LEFT - RIGHT - 20);
}

static double y_at(const scale *s, double y) {
  return HEIGHT - BOTTOM - y / s->y_max * (HEIGHT - TOP - BOTTOM);
}

// The next of 1, 2, 5 times a power of `base` at or above value (base 1024 for bytes: powers of 2).
static double nice_step(double value, bool bytes) {
  if (bytes) return pow(2, ceil(log2(value)));
  double power = pow(10, floor(log10(value)));
  double f = value / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power;
}

static scale make_scale(const brim_ui_chart *chart) {
  scale s = {.x_min = INFINITY, .x_max = 0, .y_max = 0};
  for (size_t i = 0; i < chart->count; i++) {
    s.x_min = fmin(s.x_min, chart->points[i].x);
    s.x_max = fmax(s.x_max, chart->points[i].x);
    s.y_max = fmax(s.y_max, fmax(chart->points[i].y, chart->points[i].high));
  }
  if (!(s.y_max > 0)) s.y_max = 1;
  s.y_step = nice_step(s.y_max / 5, chart->bytes);
  s.y_max = ceil(s.y_max / s.y_step - 1e-9) * s.y_step;
  return s;
}

static void value_text(const brim_ui_chart *chart, double y, char out[32]) {
  if (chart->bytes) {
    brim_format_bytes((uint64_t)y, out);
  } else if (y == 0) {
    snprintf(out, 32, "0");
  } else {
    brim_format_count(y, out);
  }
}

static void put_y_axis(const brim_ui_chart *chart, const scale *s, brim_str *out) {
  for (int i = 0; i <= MAX_TICKS && s->y_step * i <= s->y_max * 1.0001; i++) {
    char text[32];
    double y = y_at(s, s->y_step * i);
    value_text(chart, s->y_step * i, text);
    brim_str_printf(out,
                    "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" />"
                    "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                    LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, text);
  }
}

static void put_x_axis(const brim_ui_chart *chart, const scale *s, brim_str *out) {
  double seen[64];
  size_t n = 0;
  for (size_t i = 0; i < chart->count && n < 64; i++) {
    bool known = false;
    for (size_t k = 0; k < n; k++) known = known || seen[k] == chart->points[i].x;
    if (!known) seen[n++] = chart->points[i].x;
  }
  for (size_t i = 1; i < n; i++) {  // few: insertion sort
    double x = seen[i];
    size_t k = i;
    for (; k > 0 && seen[k - 1] > x; k--) seen[k] = seen[k - 1];
    seen[k] = x;
  }
  double last = -1000;
  for (size_t i = 0; i < n; i++) {
    double x = x_at(s, seen[i]);
    if (x - last < 56) continue;  // labels must not touch
    last = x;
    char text[32];
    brim_format_count(seen[i], text);
    brim_str_printf(out,
                    "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                    x, HEIGHT - BOTTOM + 18, text);
  }
}

// A 95 % interval as a vertical line with ends.
static void put_whisker(const scale *s, const brim_ui_point *p, brim_str *out) {
  if (!isfinite(p->low) || !isfinite(p->high)) return;
  double x = x_at(s, p->x), low = y_at(s, fmax(p->low, 0)), high = y_at(s, p->high);
  brim_str_printf(out,
                  "<path class=\"ci\" d=\"M%.1f %.1fV%.1fM%.1f %.1fH%.1fM%.1f %.1fH%.1f\" />\n", x,
                  low, high, x - 4, low, x + 4, x - 4, high, x + 4);
}

static void put_series(const brim_ui_chart *chart, const scale *s, int series, brim_str *out) {
  bool first = true;
  brim_str_printf(out, "<g class=\"s%d\"><polyline points=\"", series);
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    if (p->series != series) continue;
    brim_str_printf(out, "%s%.1f,%.1f", first ? "" : " ", x_at(s, p->x), y_at(s, p->y));
    first = false;
  }
  brim_str_append(out, "\" />\n");
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    if (p->series != series) continue;
    char text[32];
    value_text(chart, p->y, text);
    put_whisker(s, p, out);
    brim_str_printf(out, "<circle%s cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
                    p->hollow ? " class=\"hollow\"" : "", x_at(s, p->x), y_at(s, p->y));
    brim_ui_escape_html(out, chart->series[series]);
    brim_str_append(out, chart->series[series][0] ? ", " : "");
    brim_ui_escape_html(out, chart->x_label);
    brim_str_printf(out, " %.0f: %s%s</title></circle>\n", p->x, text,
                    p->hollow ? brim_tr(" (unstable)") : "");
  }
  brim_str_append(out, "</g>\n");
}

void brim_ui_chart_svg(const brim_ui_chart *chart, brim_str *out) {
  if (chart->count == 0) return;
  scale s = make_scale(chart);
  brim_str_append(out, "<figure><figcaption>");
  brim_ui_escape_html(out, chart->title);
  brim_str_printf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                  WIDTH, HEIGHT);
  brim_ui_escape_html(out, chart->title);
  brim_str_append(out, "\">\n");
  put_y_axis(chart, &s, out);
  put_x_axis(chart, &s, out);
  brim_str_printf(out, "<text class=\"label\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
  brim_ui_escape_html(out, chart->x_label);
  brim_str_printf(out,
                  "</text>\n<text class=\"label y\" text-anchor=\"middle\" "
                  "transform=\"translate(14 %d) rotate(-90)\">",
                  (TOP + HEIGHT - BOTTOM) / 2);
  brim_ui_escape_html(out, chart->y_label);
  brim_str_append(out, "</text>\n");
  for (size_t i = 0; i < chart->series_count; i++) put_series(chart, &s, (int)i, out);
  brim_str_append(out, "</svg>\n");
  if (chart->series_count > 1) {
    brim_str_append(out, "<ul class=\"legend\">");
    for (size_t i = 0; i < chart->series_count; i++) {
      brim_str_printf(out, "<li class=\"s%zu\"><i></i>", i);
      brim_ui_escape_html(out, chart->series[i]);
      brim_str_append(out, "</li>");
    }
    brim_str_append(out, "</ul>\n");
  }
  brim_str_append(out, "</figure>\n");
}

//---------------------------------- from results ----------------------------------

// "2 workers, bf16": the knobs other than batch_size that vary.
static void series_name(const brim_result *results, size_t count, const brim_result *r,
                        char out[96]) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < r->knob_count && used < 90; i++) {
    const brim_result_knob *knob = &r->knobs[i];
    if (strcmp(knob->name, "batch_size") == 0) continue;
    if (!brim_ui_knob_varies(results, count, knob->name)) continue;
    int n = snprintf(out + used, 96 - used, "%s%s %s", used ? ", " : "",
                     brim_ui_knob_label(knob->name), knob->value);
    if (n > 0) used += (size_t)n;
  }
}

typedef struct charts {
  char names[BRIM_UI_MAX_SERIES][96];
  const char *series[BRIM_UI_MAX_SERIES];
  size_t series_count;
  brim_ui_point *rate, *memory;
  size_t rate_count, memory_count;
} charts;

static int series_of(charts *c, const char *name) {
  for (size_t i = 0; i < c->series_count; i++) {
    if (strcmp(c->names[i], name) == 0) return (int)i;
  }
  if (c->series_count == BRIM_UI_MAX_SERIES) return -1;
  snprintf(c->names[c->series_count], sizeof c->names[0], "%s", name);
  c->series[c->series_count] = c->names[c->series_count];
  return (int)c->series_count++;
}

static void insert_by_x(brim_ui_point *points, size_t *n, brim_ui_point p) {
  size_t k = (*n)++;
  for (; k > 0 && points[k - 1].x > p.x; k--) points[k] = points[k - 1];
  points[k] = p;
}

static void collect(charts *c, const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    const brim_result_knob *batch = brim_result_knob_find(r, "batch_size");
    if (!batch || !(batch->number >= 1)) continue;
    char name[96];
    series_name(results, count, r, name);
    int series = series_of(c, name);
    if (series < 0) continue;
    bool ran = r->failure == BRIM_FAILURE_NONE;
    double memory = brim_result_memory(r);
    // What does not fit would flatten all the others.
    if (ran && memory > 0) {
      insert_by_x(c->memory, &c->memory_count,
                  (brim_ui_point){batch->number, memory, series, false, NAN, NAN});
    }
    if (ran && r->samples_per_s > 0) {
      insert_by_x(
          c->rate, &c->rate_count,
          (brim_ui_point){batch->number, r->samples_per_s, series, !r->stable && r->steps > 0,
                          r->samples_per_s_low, r->samples_per_s_high});
    }
  }
}

brim_status brim_ui_bench_charts(const brim_result *results, size_t count, brim_str *out) {
  charts c = {0};
  c.rate = brim_calloc(count + 1, sizeof *c.rate);
  c.memory = brim_calloc(count + 1, sizeof *c.memory);
  if (!c.rate || !c.memory) {
    brim_free(c.rate);
    brim_free(c.memory);
    return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  }
  collect(&c, results, count);
  brim_ui_chart_svg(
      &(brim_ui_chart){.title = brim_tr("Samples/s by batch size, with 95 % intervals"),
                       .x_label = brim_tr("batch size"),
                       .y_label = brim_tr("samples/s"),
                       .points = c.rate,
                       .count = c.rate_count,
                       .series = c.series,
                       .series_count = c.series_count},
      out);
  brim_ui_chart_svg(&(brim_ui_chart){.title = brim_tr("Planned memory by batch size"),
                                     .x_label = brim_tr("batch size"),
                                     .y_label = brim_tr("memory"),
                                     .points = c.memory,
                                     .count = c.memory_count,
                                     .series = c.series,
                                     .series_count = c.series_count,
                                     .bytes = true},
                    out);
  brim_free(c.rate);
  brim_free(c.memory);
  return brim_str_status(out);
}
