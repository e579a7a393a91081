// Line charts of the report as inline SVG. Colour and dashes together name a line, so that it is recognised on paper and
// by people who see fewer colours. Every point carries its text, which a browser shows without a script.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/bench/ui_bench_int.h"
#include "ui/pages/ui_pages.h"

// Small, because a phone shows the drawing a third smaller and its letters must stay readable.
enum { WIDTH = 560, HEIGHT = 294, LEFT = 70, RIGHT = 18, TOP = 22, BOTTOM = 48, MAX_TICKS = 12 };

typedef struct scale {
  double x_min, x_max, y_min, y_max, y_step;
  bool log_y;
} scale;

static double x_at(const scale *s, double x) {
  double span = log2(s->x_max) - log2(s->x_min);
  double f = span > 0 ? (log2(x) - log2(s->x_min)) / span : 0.5;
  return LEFT + 14 + f * (WIDTH - LEFT - RIGHT - 28);
}

static double y_at(const scale *s, double y) {
  double f = s->log_y ? log2(y / s->y_min) / log2(s->y_max / s->y_min) : y / s->y_max;
  return HEIGHT - BOTTOM - fmin(fmax(f, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

// The least of 1, 2, 2.5, 5 times a power of ten that is not below value.
static double nice_step(double value) {
  double power = pow(10, floor(log10(value)));
  double f = value / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 2.5 ? 2.5 : f <= 5 ? 5 : 10) * power;
}

static void make_log(scale *s) {
  double low = floor(log2(s->y_min)), high = ceil(log2(s->y_max * 1.02));
  if (high - low < 2) high = low + 2;
  s->y_min = exp2(low);
  s->y_max = exp2(high);
  s->y_step = ceil((high - low) / 6);  // in powers of two
}

static scale make_scale(const brim_ui_chart *chart) {
  scale s = {.x_min = INFINITY, .y_min = INFINITY, .log_y = chart->bytes};
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    s.x_min = fmin(s.x_min, p->x);
    s.x_max = fmax(s.x_max, p->x);
    if (!(p->y > 0)) continue;
    s.y_min = fmin(s.y_min, p->y);
    s.y_max = fmax(s.y_max, fmax(p->y, p->high));
  }
  for (size_t i = 0; i < 2; i++) {
    const brim_ui_rule *rule = &chart->rules[i];
    if (rule->label && rule->y > 0 && !rule->away) s.y_max = fmax(s.y_max, rule->y);
  }
  if (!(s.y_max > 0)) s.y_max = 1;
  if (!(s.y_min < s.y_max)) s.y_min = s.y_max / 2;
  if (chart->percent) s.y_max = fmax(100, s.y_max);
  if (s.log_y) {
    make_log(&s);
  } else {
    s.y_step = nice_step(s.y_max / 5);
    s.y_max = ceil(s.y_max / s.y_step - 1e-9) * s.y_step;
  }
  return s;
}

static void value_text(const brim_ui_chart *chart, double y, char out[32]) {
  if (chart->bytes) {
    brim_ui_bytes_text(y, out);
  } else if (chart->percent) {
    snprintf(out, 32, "%.0f %%", brim_shown(y));
  } else if (y == 0) {
    snprintf(out, 32, "0");
  } else {
    brim_format_count(y, out);
  }
}

static void tick_text(const brim_ui_chart *chart, double y, char out[32]) {
  value_text(chart, y, out);
  char *zero = strstr(out, ".0 ");  // "64 MiB", "1.5 M"
  char *zeros = strstr(out, ".00 ");
  if (zeros) {
    memmove(zeros, zeros + 3, strlen(zeros + 3) + 1);
  } else if (zero) {
    memmove(zero, zero + 2, strlen(zero + 2) + 1);
  }
}

//---------------------------------- axes ----------------------------------

static void put_y_axis(const brim_ui_chart *chart, const scale *s, brim_str *out) {
  for (int i = 0; i <= MAX_TICKS; i++) {
    double value = s->log_y ? s->y_min * exp2(s->y_step * i) : s->y_step * i;
    if (value > s->y_max * 1.0001) break;
    char text[32];
    double y = y_at(s, value);
    tick_text(chart, value, text);
    brim_str_printf(out,
                    "<path class=\"%s\" d=\"M%d %.1fH%d\" />"
                    "<text text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                    i == 0 ? "axis" : "grid", LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, text);
  }
}

static size_t distinct_x(const brim_ui_chart *chart, double *seen, size_t max) {
  size_t n = 0;
  for (size_t i = 0; i < chart->count && n < max; i++) {  // points come by x
    if (n == 0 || seen[n - 1] != chart->points[i].x) seen[n++] = chart->points[i].x;
  }
  return n;
}

static double x_text(double x, char out[32]) {
  snprintf(out, 32, x == floor(x) ? "%.0f" : "%g", x);
  return (double)strlen(out);
}

// Labels on the x axis. They must not touch, and the last one is always there. Labels that would touch on a phone, where
// letters are larger, get class m.
static void put_x_axis(const brim_ui_chart *chart, const scale *s, brim_str *out) {
  double seen[BRIM_UI_MAX_VALUES], end = -1000, phone_end = -1000;
  char text[32];
  size_t n = distinct_x(chart, seen, BRIM_UI_MAX_VALUES);
  double last = x_at(s, seen[n - 1]), last_width = x_text(seen[n - 1], text);
  for (size_t i = 0; i < n; i++) {
    double x = x_at(s, seen[i]), width = x_text(seen[i], text);
    bool is_last = i + 1 == n;
    // Half the width of a letter is 3.6 on a screen and 5.6 on a phone.
    double half = 3.6 * width, phone_half = 5.6 * width;
    if (x - half < end + 5) continue;
    if (!is_last && x + half + 5 > last - 3.6 * last_width) continue;
    bool phone = x - phone_half >= phone_end + 9 &&
                 (is_last || x + phone_half + 9 <= last - 5.6 * last_width);
    end = x + half;
    if (phone) phone_end = x + phone_half;
    brim_str_printf(out, "<text%s text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                    phone ? "" : " class=\"m\"", x, HEIGHT - BOTTOM + 18, text);
  }
  if (!chart->set->x) return;
  brim_str_printf(out, "<text class=\"unit\" text-anchor=\"end\" x=\"%d\" y=\"%d\">", WIDTH - RIGHT,
                  HEIGHT - 6);
  brim_ui_escape_html(out, brim_ui_knob_label(chart->set->shown, chart->set->x));
  brim_str_append(out, "</text>\n");
}

static void put_rule(const scale *s, const brim_ui_rule *rule, brim_str *out) {
  if (!rule->label || !(rule->y > 0) || rule->away) return;
  double y = y_at(s, rule->y);
  brim_str_printf(out,
                  "<path class=\"rule\" d=\"M%d %.1fH%d\" />"
                  "<text class=\"rule\" x=\"%d\" y=\"%.1f\">",
                  LEFT, y, WIDTH - RIGHT, LEFT + 6, rule->below ? y + 14 : y - 5);
  brim_ui_escape_html(out, rule->label);
  brim_str_append(out, "</text>\n");
}

//---------------------------------- points ----------------------------------

// The text of a point, which a browser shows under the pointer.
static void put_text(const brim_ui_chart *chart, const brim_ui_point *p, brim_str *out) {
  char name[BRIM_UI_SETTING_NAME], value[32], low[32], high[32];
  const brim_result *r = p->result;
  brim_ui_setting_name(chart->set, r, name);
  brim_str_append(out, "<title>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "\n");
  if (p->mark) {
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, r->message[0] ? ": " : "");
    brim_ui_escape_html(out, r->message);
  } else {
    value_text(chart, p->y, value);
    // In a chart of percentages the colour tells what is measured.
    if (chart->percent && chart->colours) {
      brim_ui_escape_html(out, chart->colours[p->colour]);
      brim_str_append(out, ": ");
    }
    brim_ui_escape_html(out, value);
    if (!chart->bytes && !chart->percent) brim_str_printf(out, " %s", chart->y_label);
    if (brim_ui_interval_tells(p->low, p->high)) {
      value_text(chart, p->low, low);
      value_text(chart, p->high, high);
      brim_str_printf(out, brim_tr(" (95 %%: %s to %s)"), low, high);
    }
    if (strcmp(brim_ui_failure_text(r), brim_tr("ok")) != 0) {
      brim_str_append(out, ", ");
      brim_ui_escape_html(out, brim_ui_failure_text(r));
    }
  }
  brim_str_append(out, "</title>");
}

// The shape of a point, one for each kind of dashes.
static void put_shape(int dash, double x, double y, brim_str *out) {
  switch (dash % BRIM_UI_DASHES) {
    case 0:
      brim_str_printf(out, "M%.1f %.1fm-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0", x, y);
      return;
    case 1:
      brim_str_printf(out, "M%.1f %.1fm-3.3-3.3h6.6v6.6h-6.6z", x, y);
      return;
    case 2:
      brim_str_printf(out, "M%.1f %.1fm0-4.4l4.2 7.6h-8.4z", x, y);
      return;
    default:
      brim_str_printf(out, "M%.1f %.1fm0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z", x, y);
  }
}

static void put_point(const brim_ui_chart *chart, const scale *s, const brim_ui_point *p,
                      brim_str *out) {
  double x = x_at(s, p->x), y = y_at(s, p->y);
  if (isfinite(p->low) && isfinite(p->high)) {
    double low = y_at(s, fmax(p->low, 0)), high = y_at(s, p->high);
    brim_str_printf(out, "<path class=\"ci\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6\" />", x,
                    low, high, x - 3, low, x - 3, high);
  }
  // Hollow points were unsteady. Planned memory does not depend on times.
  bool hollow = !chart->bytes && !p->result->stable && p->result->steps > 0;
  brim_str_printf(out, "<path class=\"pt%s\" d=\"", hollow ? " hollow" : "");
  put_shape(p->dash, x, y, out);
  brim_str_append(out, "\">");
  put_text(chart, p, out);
  brim_str_append(out, "</path>\n");
}

// A cross. Crosses without a value are stacked above the x axis.
static void put_mark(const brim_ui_chart *chart, const scale *s, size_t index, brim_str *out) {
  const brim_ui_point *p = &chart->points[index];
  int below = 0;
  for (size_t i = 0; i < index; i++) {
    if (chart->points[i].mark && chart->points[i].x == p->x) below++;
  }
  double y = isnan(p->y) ? HEIGHT - BOTTOM - 9 - 11.0 * below : y_at(s, p->y);
  brim_str_printf(out, "<path class=\"oom\" d=\"M%.1f %.1fm-4-4l8 8m0-8l-8 8\">", x_at(s, p->x), y);
  put_text(chart, p, out);
  brim_str_append(out, "</path>\n");
}

static void put_line(const brim_ui_chart *chart, const scale *s, int colour, int dash,
                     brim_str *out) {
  bool any = false, started = false;
  for (size_t i = 0; i < chart->count && !any; i++) {
    any = chart->points[i].colour == colour && chart->points[i].dash == dash;
  }
  if (!any) return;
  brim_str_printf(out, "<g class=\"s c%d d%d\"><path class=\"l\" d=\"", colour, dash);
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    if (p->colour != colour || p->dash != dash || p->mark) continue;
    brim_str_printf(out, "%c%.1f %.1f", started ? 'L' : 'M', x_at(s, p->x), y_at(s, p->y));
    started = true;
  }
  if (!started) brim_str_append(out, "M0 0");  // crosses only
  brim_str_append(out, "\" />\n");
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    if (p->colour != colour || p->dash != dash) continue;
    if (p->mark) {
      put_mark(chart, s, i, out);
    } else {
      put_point(chart, s, p, out);
    }
  }
  brim_str_append(out, "</g>\n");
}

//---------------------------------- legend ----------------------------------

// An entry for a line. `dash` -1: any dashes; `colour` -1: any colour.
static void put_sample(int colour, int dash, const char *name, brim_str *out) {
  char kind[16];
  snprintf(kind, sizeof kind, colour >= 0 ? "c%d" : "d%d", colour >= 0 ? colour : dash);
  brim_str_printf(out, "<li data-s=\"%s\" class=\"%s", kind, kind);
  if (colour >= 0 && dash >= 0) brim_str_printf(out, " d%d", dash);
  brim_str_append(out,
                  "\"><svg viewBox=\"0 0 28 12\" width=\"28\" height=\"12\" aria-hidden=\"true\">"
                  "<path class=\"l\" d=\"M0 6H28\" />");
  if (dash >= 0) {
    brim_str_append(out, "<path class=\"pt\" d=\"");
    put_shape(dash, 14, 6, out);
    brim_str_append(out, "\" />");
  }
  brim_str_append(out, "</svg>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</li>");
}

static void put_symbol(const char *d, const char *kind, const char *name, brim_str *out) {
  brim_str_printf(out,
                  "<li><svg viewBox=\"0 0 16 12\" width=\"16\" height=\"12\" aria-hidden=\"true\">"
                  "<path class=\"%s\" d=\"%s\" /></svg>",
                  kind, d);
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</li>");
}

static void put_legend(const brim_ui_chart *chart, brim_str *out) {
  bool marks = false, picked = false;
  const char *hollow = NULL;
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    marks = marks || p->mark;
    bool unsteady = !p->mark && !p->result->stable && p->result->steps > 0;
    if (unsteady && !hollow) hollow = brim_ui_failure_text(p->result);
    picked = picked || (chart->set->picks.recommended >= 0 && p->result == chart->set->shown);
  }
  brim_str_append(out, "<ul class=\"legend\">");
  for (size_t i = 0; chart->colours && i < chart->colour_count; i++) {
    // In the ladder each colour has one line; elsewhere it has lines of all kinds of dashes.
    put_sample((int)i, chart->percent ? (int)(i % BRIM_UI_DASHES) : -1, chart->colours[i], out);
  }
  for (size_t i = 0; chart->dashes && i < chart->dash_count; i++) {
    put_sample(-1, (int)i, chart->dashes[i], out);
  }
  if (picked && !chart->percent) {
    put_symbol("M8 6m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "pick", brim_tr("recommended"), out);
  }
  if (hollow && !chart->percent && !chart->bytes) {
    put_symbol("M8 6m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0", "pt hollow", hollow, out);
  }
  if (marks) put_symbol("M8 6m-4-4l8 8m0-8l-8 8", "oom", brim_tr("out of memory"), out);
  brim_str_append(out, "</ul>\n");
}

static void put_pick(const brim_ui_chart *chart, const scale *s, brim_str *out) {
  if (chart->percent || chart->set->picks.recommended < 0) return;
  for (size_t i = 0; i < chart->count; i++) {
    const brim_ui_point *p = &chart->points[i];
    if (p->result != chart->set->shown || p->mark) continue;
    brim_str_printf(out, "<circle class=\"pick\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\" />\n",
                    x_at(s, p->x), y_at(s, p->y));
    return;
  }
}

// The unit and the labels of rules that are out of range. They are above the drawing, where long texts can wrap.
static void put_units(const brim_ui_chart *chart, brim_str *out) {
  brim_str_append(out, "<p class=\"units\">");
  brim_ui_put(out, "span", chart->y_label);
  for (size_t i = 0; i < 2; i++) {
    const brim_ui_rule *rule = &chart->rules[i];
    if (!rule->label || !(rule->y > 0) || !rule->away) continue;
    brim_str_append(out, " <span class=\"warn\">");
    brim_ui_escape_html(out, rule->label);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>\n");
}

void brim_ui_chart_svg(const brim_ui_chart *chart, brim_str *out) {
  if (chart->count == 0) return;
  scale s = make_scale(chart);
  brim_str_append(out, "<figure class=\"chart\"><figcaption>");
  brim_ui_escape_html(out, chart->title);
  brim_str_append(out, "</figcaption>\n");
  put_units(chart, out);
  brim_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"", WIDTH, HEIGHT);
  brim_ui_put_attribute(out, "aria-label", chart->title);
  brim_str_append(out, ">\n");
  put_y_axis(chart, &s, out);
  put_x_axis(chart, &s, out);
  for (size_t i = 0; i < 2; i++) put_rule(&s, &chart->rules[i], out);
  for (int c = 0; c < BRIM_UI_COLOURS; c++) {
    for (int d = 0; d < BRIM_UI_DASHES; d++) put_line(chart, &s, c, d, out);
  }
  put_pick(chart, &s, out);
  brim_str_append(out, "</svg>\n");
  put_legend(chart, out);
  if (chart->note) {
    brim_ui_put_class(out, "p", "note", chart->note);
    brim_str_append_char(out, '\n');
  }
  brim_str_append(out, "</figure>\n");
}
