// The curves of the run that a replayed checkpoint is of: a figure for each metric of evaluations. They
// are whole without a script, which shows the values of other points.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_replay_int.h"

static bool is_percent(const brim_curve *c) { return c->row->format == BRIM_METRIC_PERCENT; }

// As the y axis counts.
static double drawn(const brim_curve *c, double value) {
  return is_percent(c) ? 100 * value : value;
}

static bool has_baseline(const brim_ui_replay_options *o, const brim_curve *c) {
  return o->training_baseline && !isnan(c->baseline);
}

// The right edge: all figures have one x axis.
static int64_t last_of(const brim_curves *all) {
  int64_t last = all->marked > 1 ? all->marked : 1;
  for (size_t k = 0; k < all->count; k++) {
    const brim_curve *c = &all->list[k];
    if (c->points[c->count - 1].step > last) last = c->points[c->count - 1].step;
  }
  return last;
}

static brim_ui_scale scale_of(const brim_ui_replay_options *o, const brim_curve *c) {
  brim_ui_scale s = {.last = last_of(o->training), .dt = 1, .whole = true};
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < c->count; i++) {
    low = fmin(low, drawn(c, c->points[i].value));
    high = fmax(high, drawn(c, c->points[i].value));
  }
  if (has_baseline(o, c)) {
    low = fmin(low, drawn(c, c->baseline));
    high = fmax(high, drawn(c, c->baseline));
  }
  const double size = fmax(fabs(low), fabs(high));
  brim_ui_scale_fit(&s, low, high, size > 0 ? size * 1e-2 : 1);
  return s;
}

// The point of the checkpoint, else the last one.
static size_t point_of(const brim_curves *all, const brim_curve *c, bool *marked) {
  for (size_t i = 0; i < c->count; i++) {
    *marked = c->points[i].step == all->marked;
    if (*marked) return i;
  }
  return c->count - 1;
}

//---------------------------------- texts ----------------------------------

static void title_of(const brim_curve *c, char out[128]) {
  const char *label = brim_metric_label(c->row, BRIM_METRIC_LINE_EVAL);
  const char *unit = is_percent(c) ? "%" : c->row->unit ? brim_tr(c->row->unit) : NULL;
  if (!label[0]) label = brim_metric_label(c->row, BRIM_METRIC_LINE_TABLE), unit = NULL;
  if (!label[0]) label = c->row->unit ? brim_tr(c->row->unit) : c->row->key;
  snprintf(out, 128, "%.80s", label);
  if (unit) snprintf(out, 128, "%.80s (%.40s)", label, unit);
}

static const char *step_name(const brim_ui_replay_options *o) {
  return brim_tr(o->training_step ? o->training_step : BRIM_N_("step"));
}

static void step_text(const brim_ui_replay_options *o, int64_t step, char out[96]) {
  snprintf(out, 96, "%.60s %lld", step_name(o), (long long)step);
}

//---------------------------------- a figure ----------------------------------

static void put_caption(const brim_ui_replay_options *o, const brim_curve *c, const char *title,
                        size_t at, brim_str *out) {
  char step[96], value[32];
  brim_str_append(out, "<figcaption>");
  brim_ui_put(out, "b", title);
  step_text(o, c->points[at].step, step);
  brim_metric_format_value(c->row, c->points[at].value, value);
  brim_str_append(out, "<span class=\"read c0\">");
  brim_ui_put(out, "span", step);
  brim_str_append_char(out, ' ');
  brim_ui_put(out, "output", value);
  brim_str_append(out, "</span>");
  if (has_baseline(o, c)) {
    brim_metric_format_value(c->row, c->baseline, value);
    brim_str_append(out, "<span class=\"read base\">");
    brim_ui_escape_html(out, brim_tr(o->training_baseline));
    brim_str_append_char(out, ' ');
    brim_ui_put(out, "b", value);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</figcaption>\n");
}

static void put_lines(const brim_ui_replay_options *o, const brim_ui_scale *s, const brim_curve *c,
                      brim_str *out) {
  if (has_baseline(o, c)) {
    brim_str_printf(out, "<path class=\"base\" d=\"M0 %.1fH1000\" />",
                    brim_ui_scale_y(s, drawn(c, c->baseline)));
  }
  if (o->training->marked >= 0) {
    brim_str_printf(out, "<path class=\"here\" d=\"M%.1f 0V100\" />",
                    brim_ui_scale_x(s, o->training->marked));
  }
  brim_str_append(out, "<path class=\"l c0\" d=\"");
  for (size_t i = 0; i < c->count; i++) {
    brim_str_printf(out, "%c%.1f %.1f", i > 0 ? 'L' : 'M', brim_ui_scale_x(s, c->points[i].step),
                    brim_ui_scale_y(s, drawn(c, c->points[i].value)));
  }
  if (c->count == 1) brim_str_append(out, "h0");  // else nothing would be seen of it
  brim_str_append(out, "\" />");
}

static void put_curve(const brim_ui_replay_options *o, const brim_curve *c, brim_str *out) {
  const brim_ui_scale s = scale_of(o, c);
  char title[128], step[96], value[32], label[320];
  bool marked = false;
  const size_t at = point_of(o->training, c, &marked);
  const brim_curve_point *p = &c->points[at];
  title_of(c, title);
  step_text(o, p->step, step);
  brim_metric_format_value(c->row, p->value, value);
  snprintf(label, sizeof label, "%s: %s, %s", title, step, value);
  brim_str_append(out, "<figure class=\"curve\"");
  brim_ui_put_attribute(out, "data-key", c->row->key);
  brim_str_append_char(out, '>');
  put_caption(o, c, title, at, out);
  brim_str_append(out, "<div class=\"area\">");
  brim_ui_put_ticks(&s, out);
  brim_str_append(out, "<div class=\"plot\" role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", label);
  brim_str_append_char(out, '>');
  brim_ui_put_grid(&s, out);
  put_lines(o, &s, c, out);
  brim_str_append(out, "</svg>");
  if (marked) {
    brim_str_printf(out, "<i class=\"dot\" style=\"left:%.2f%%;top:%.1f%%\"></i>",
                    brim_ui_scale_x(&s, p->step) / 10, brim_ui_scale_y(&s, drawn(c, p->value)));
  }
  brim_str_append(out, "<i class=\"now\"></i></div>\n");
  brim_ui_put_axis(&s, "", out);
  brim_str_append(out, "</div></figure>\n");
}

//---------------------------------- the section ----------------------------------

static void put_entry(const char *kind, const char *text, brim_str *out) {
  brim_str_printf(out, "<li class=\"%s\"><i></i>", kind);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</li>");
}

static void put_legend(const brim_ui_replay_options *o, brim_str *out) {
  const brim_curves *all = o->training;
  char text[192], step[96];
  bool baseline = false;
  for (size_t i = 0; i < all->count; i++) baseline |= has_baseline(o, &all->list[i]);
  brim_str_append(out, "<ul class=\"legend\">");
  put_entry("c0", all->training ? brim_tr("training") : brim_tr("evaluation"), out);
  if (baseline) put_entry("base", brim_tr(o->training_baseline), out);
  if (all->marked >= 0) {
    step_text(o, all->marked, step);
    snprintf(text, sizeof text, brim_tr("this checkpoint: %s"), step);
    put_entry("here", text, out);
  }
  brim_str_append(out, "</ul>\n");
}

void brim_ui_replay_training(const brim_ui_replay_options *o, brim_str *out) {
  char hint[256];
  if (!o->training || o->training->count == 0) return;
  snprintf(hint, sizeof hint,
           o->training->training
               ? brim_tr("Values of training, since the log has no evaluations; x axis: %s")
               : brim_tr("Evaluations of the run; x axis: %s"),
           step_name(o));
  brim_ui_put_section(out, "training", brim_tr("Training"), hint);
  put_legend(o, out);
  brim_str_append(out, "<div class=\"curves\">\n");
  for (size_t i = 0; i < o->training->count; i++) put_curve(o, &o->training->list[i], out);
  brim_str_append(out, "</div>\n</section>\n");
}

//---------------------------------- data ----------------------------------

// Steps, and the values as texts.
static brim_status fill_curve(const brim_ui_replay_options *o, const brim_curve *c, json_t *to) {
  json_t *steps = NULL, *values = NULL;
  char text[32];
  bool marked;
  BRIM_TRY(brim_json_put(to, "steps", steps = json_array()));
  BRIM_TRY(brim_json_put(to, "values", values = json_array()));
  BRIM_TRY(brim_json_put(to, "at", json_integer((json_int_t)point_of(o->training, c, &marked))));
  for (size_t i = 0; i < c->count; i++) {
    brim_metric_format_value(c->row, c->points[i].value, text);
    BRIM_TRY(brim_json_push(steps, json_integer(c->points[i].step)));
    BRIM_TRY(brim_json_push(values, json_string(text)));
  }
  return BRIM_OK;
}

brim_status brim_ui_replay_training_data(const brim_ui_replay_options *o, json_t *root) {
  if (!o->training || o->training->count == 0) return BRIM_OK;
  json_t *training = NULL, *curves = NULL;
  BRIM_TRY(brim_json_put(root, "training", training = json_object()));
  BRIM_TRY(brim_json_put(training, "step", json_string(step_name(o))));
  BRIM_TRY(brim_json_put(training, "last", json_integer(last_of(o->training))));
  BRIM_TRY(brim_json_put(training, "curves", curves = json_array()));
  for (size_t i = 0; i < o->training->count; i++) {
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(curves, one));
    BRIM_TRY(fill_curve(o, &o->training->list[i], one));
  }
  return BRIM_OK;
}
