// Scales of the replay page's curves. Their lines are SVG that stretches with the page; their labels
// are HTML, so that letters keep their size on a phone.
#include <math.h>
#include <stdio.h>

#include "ui/ui_replay_int.h"

// The next of 1, 2, 5 times a power of ten at or above value.
static double nice_step(double value) {
  double power = pow(10, floor(log10(value)));
  double f = value / power;
  return (f <= 1.0001 ? 1 : f <= 2.0001 ? 2 : f <= 5.0001 ? 5 : 10) * power;
}

void brim_ui_scale_fit(brim_ui_scale *s, double low, double high, double least) {
  if (high - low < least) high = low + least;
  s->step = nice_step((high - low) / 4);
  s->low = floor(low / s->step + 1e-6) * s->step;
  s->high = ceil(high / s->step - 1e-6) * s->step;
}

double brim_ui_scale_x(const brim_ui_scale *s, int64_t step) {
  return (double)step / (double)s->last * 1000;
}

double brim_ui_scale_y(const brim_ui_scale *s, double value) {
  return (s->high - value) / (s->high - s->low) * 100;
}

static int64_t tick_count(const brim_ui_scale *s) { return llround((s->high - s->low) / s->step); }

void brim_ui_put_grid(const brim_ui_scale *s, brim_str *out) {
  brim_str_append(out,
                  "<svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" "
                  "aria-hidden=\"true\">");
  for (int64_t k = 0; k <= tick_count(s); k++) {
    brim_str_printf(out, "<path class=\"rule\" d=\"M0 %.1fH1000\" />",
                    brim_ui_scale_y(s, s->low + (double)k * s->step));
  }
}

// Millions have too many digits for the margin.
static int tick_text(const brim_ui_scale *s, int64_t k, double *v, char out[32]) {
  int digits = s->step >= 0.9999 ? 0 : (int)fmin(ceil(-log10(s->step) - 1e-6), 6);
  *v = s->low + (double)k * s->step;
  if (fabs(*v) < s->step / 2) *v = 0;
  if (fmax(fabs(s->low), fabs(s->high)) >= 1e7) return snprintf(out, 32, "%.4g", *v);
  return snprintf(out, 32, "%.*f", digits, *v);
}

void brim_ui_put_ticks(const brim_ui_scale *s, brim_str *out) {
  char text[32];
  double v;
  int widest = 0;
  for (int64_t k = 0; k <= tick_count(s); k++) {
    int n = tick_text(s, k, &v, text);
    widest = n > widest ? n : widest;
  }
  brim_str_printf(out, "<div class=\"ticks\" style=\"--w:%.1fem\">", 0.65 * widest);
  for (int64_t k = 0; k <= tick_count(s); k++) {
    tick_text(s, k, &v, text);
    brim_str_printf(out, "<span style=\"top:%.1f%%\">%s</span>", brim_ui_scale_y(s, v), text);
  }
  brim_str_append(out, "</div>\n");
}

void brim_ui_put_axis(const brim_ui_scale *s, const char *unit, brim_str *out) {
  double end = (double)s->last * s->dt, step = nice_step(fmax(end / 4, s->whole ? 1 : 0));
  int digits = step >= 0.9999 ? 0 : (int)ceil(-log10(step) - 1e-6);
  brim_str_append(out, "<div class=\"axis\">");
  for (int k = 0; (double)k * step <= end * 1.0001; k++) {
    double t = (double)k * step;
    // The last one would stand over the edge.
    brim_str_printf(out, "<span%s style=\"left:%.1f%%\">%.*f%s</span>",
                    t > end * 0.96 ? " class=\"e\"" : "", t / end * 100, digits, t,
                    k == 0 ? unit : "");
  }
  brim_str_append(out, "</div>");
}
