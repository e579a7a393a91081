// The replay page shows recorded episodes. Outcomes and curves are in the page as text and drawings; only playing needs
// the scripts (web/replay).

#include "ui/pages/ui_pages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "web/web.h"

//-------------------------------------------- scales --------------------------------------------
// Lines are SVG that stretches with the page. Labels are HTML, so that letters keep their size on a phone.

typedef struct scale {
  double low, high, step;  // y axis: its ends, and the distance of its ticks
  int64_t last;            // step at the right edge; at least 1
  double dt;               // length of a step on the x axis
  bool whole;              // the x axis has no fractions
} scale;

// The least of 1, 2, 5 times a power of ten that is not below value.
static double nice_step(double value) {
  double power = pow(10, floor(log10(value)));
  double f = value / power;
  return (f <= 1.0001 ? 1 : f <= 2.0001 ? 2 : f <= 5.0001 ? 5 : 10) * power;
}

// Fits the y axis around values from low to high, at least `least` apart, with round ticks.
static void scale_fit(scale *s, double low, double high, double least) {
  if (high - low < least) high = low + least;
  s->step = nice_step((high - low) / 4);
  s->low = floor(low / s->step + 1e-6) * s->step;
  s->high = ceil(high / s->step - 1e-6) * s->step;
}

// SVG x of a step: 0 (left) to 1000.
static double scale_x(const scale *s, int64_t step) {
  return (double)step / (double)s->last * 1000;
}

// SVG y of a value: 0 (top) to 100.
static double scale_y(const scale *s, double value) {
  return (s->high - value) / (s->high - s->low) * 100;
}

static int64_t tick_count(const scale *s) { return llround((s->high - s->low) / s->step); }

// Opens the <svg> and draws a rule for each tick. The caller draws the rest and closes it.
static void put_grid(const scale *s, brim_str *out) {
  brim_str_append(out,
                  "<svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" "
                  "aria-hidden=\"true\">");
  for (int64_t k = 0; k <= tick_count(s); k++) {
    brim_str_printf(out, "<path class=\"rule\" d=\"M0 %.1fH1000\" />",
                    scale_y(s, s->low + (double)k * s->step));
  }
}

// The label of tick k and its value; returns its length. From ten million on, labels are short: the margin is narrow.
static int tick_text(const scale *s, int64_t k, double *v, char out[32]) {
  int digits = s->step >= 0.9999 ? 0 : (int)fmin(ceil(-log10(s->step) - 1e-6), 6);
  *v = s->low + (double)k * s->step;
  if (fabs(*v) < s->step / 2) *v = 0;
  if (fmax(fabs(s->low), fabs(s->high)) >= 1e7) return snprintf(out, 32, "%.4g", *v);
  return snprintf(out, 32, "%.*f", digits, *v);
}

static void put_ticks(const scale *s, brim_str *out) {
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
    brim_str_printf(out, "<span style=\"top:%.1f%%\">%s</span>", scale_y(s, v), text);
  }
  brim_str_append(out, "</div>\n");
}

// The x axis; `unit` follows its first number.
static void put_axis(const scale *s, const char *unit, brim_str *out) {
  double end = (double)s->last * s->dt, step = nice_step(fmax(end / 4, s->whole ? 1 : 0));
  int digits = step >= 0.9999 ? 0 : (int)ceil(-log10(step) - 1e-6);
  brim_str_append(out, "<div class=\"axis\">");
  for (int k = 0; (double)k * step <= end * 1.0001; k++) {
    double t = (double)k * step;
    // A centred label at the right edge would hang over it.
    brim_str_printf(out, "<span%s style=\"left:%.1f%%\">%.*f%s</span>",
                    t > end * 0.96 ? " class=\"e\"" : "", t / end * 100, digits, t,
                    k == 0 ? unit : "");
  }
  brim_str_append(out, "</div>");
}

//------------------------------------ curves of the episodes ------------------------------------
// The curves are complete without the script, which only moves a cursor over them.

enum { MAX_POINTS = 1500 };  // of a line; more cannot be told apart

// The attribute that assigns an element to an episode, where there are several.
static void put_episode(const brim_ui_replay_options *options, size_t episode, brim_str *out) {
  if (options->episode_count > 1) brim_str_printf(out, " data-e=\"%zu\"", episode);
}

static double value_at(const brim_scene_curve *c, const brim_trajectory *t, int64_t i) {
  if (c->reward) return (double)t->reward[i];
  const float *frame = brim_trajectory_frame(t, i);
  return c->value ? c->value(frame) : (double)frame[c->column];
}

// The number of values of a curve. A reward belongs to the frame after its step, so the first frame has
// none.
static int64_t value_count(const brim_scene_curve *c, const brim_trajectory *t) {
  return c->reward ? t->frames - 1 : t->frames;
}

static int64_t frame_of(const brim_scene_curve *c, int64_t i) { return c->reward ? i + 1 : i; }

static void make_scale(const brim_scene_curve *c, const brim_trajectory *list, size_t count,
                       scale *s) {
  double low = INFINITY, high = -INFINITY;
  *s = (scale){.last = 1, .dt = list[0].dt, .whole = list[0].scene->rate > 0};
  for (size_t k = 0; k < count; k++) {
    // The penalty of a fall would flatten all values before it: leave it out of the scale. It is drawn at the edge.
    bool ended = c->reward && list[k].end == BRIM_SCENE_ENDED && list[k].frames > 2;
    for (int64_t i = 0; i < value_count(c, &list[k]) - ended; i++) {
      double v = value_at(c, &list[k], i);
      if (isnan(v)) continue;
      low = fmin(low, v);
      high = fmax(high, v);
    }
    if (list[k].frames - 1 > s->last) s->last = list[k].frames - 1;
  }
  if (!(low <= high)) low = 0, high = 1;
  if (c->from_zero) low = fmin(low, 0);
  scale_fit(s, low, high, 1e-3);
}

static void put_point(const scale *s, int64_t i, double v, bool *begun, brim_str *out) {
  if (isnan(v)) {
    *begun = false;
    return;
  }
  double y = fmin(fmax(scale_y(s, v), 0), 100);
  brim_str_printf(out, "%c%.1f %.1f", *begun ? 'L' : 'M', scale_x(s, i), y);
  *begun = true;
}

// A line with too many points keeps the lowest and the highest value of each stretch, so that an event of a single step
// stays visible.
static void put_line(const brim_scene_curve *c, const scale *s, const brim_trajectory *t,
                     size_t which, brim_str *out) {
  int64_t n = value_count(c, t),
          stretch = n > MAX_POINTS ? (2 * n + MAX_POINTS - 1) / MAX_POINTS : 1;
  bool begun = false;
  brim_str_printf(out, "<path class=\"l c%zu\" d=\"", which);
  for (int64_t from = 0; from < n; from += stretch) {
    int64_t to = from + stretch < n ? from + stretch : n, low = from, high = from;
    for (int64_t i = from; i < to; i++) {
      if (value_at(c, t, i) < value_at(c, t, low)) low = i;
      if (value_at(c, t, i) > value_at(c, t, high)) high = i;
    }
    int64_t first = low < high ? low : high, second = low < high ? high : low;
    put_point(s, frame_of(c, first), value_at(c, t, first), &begun, out);
    if (second != first) put_point(s, frame_of(c, second), value_at(c, t, second), &begun, out);
  }
  brim_str_append(out, "\" />");
}

static bool within(const scale *s, double y) { return y > s->low && y < s->high; }

static void put_rule(const scale *s, double y, const char *kind, brim_str *out) {
  if (!within(s, y)) return;
  brim_str_printf(out, "<path class=\"%s\" d=\"M0 %.1fH1000\" />", kind, scale_y(s, y));
}

// Marks the events. All trajectories meet the same events, so the longest one has all of them.
static void put_marks(const scale *s, const brim_trajectory *list, size_t count, brim_str *out) {
  const brim_trajectory *longest = &list[0];
  const brim_scene *scene = list[0].scene;
  for (size_t k = 1; k < count; k++) {
    longest = list[k].frames > longest->frames ? &list[k] : longest;
  }
  for (size_t part = 0; part < scene->part_count; part++) {
    if (scene->parts[part].when != BRIM_SCENE_EVENTS) continue;
    for (int64_t i = 0; i < longest->frames; i++) {
      if (!brim_scene_event(scene, part, brim_trajectory_frame(longest, i))) continue;
      brim_str_printf(out, "<path class=\"mark\" d=\"M%.1f 0V100\" />", scale_x(s, i));
    }
  }
}

static void put_plot(const brim_scene_curve *c, const scale *s, const brim_trajectory *list,
                     size_t count, brim_str *out) {
  brim_str_append(out, "<div class=\"plot\">");
  put_grid(s, out);
  put_marks(s, list, count, out);
  for (int k = 0; k < c->limit_count; k++) put_rule(s, c->limits[k], "limit", out);
  for (size_t k = count; k-- > 0;) put_line(c, s, &list[k], k, out);
  brim_str_append(out, "</svg><i class=\"now\"></i></div>\n");
}

static void put_curve(const brim_scene_curve *c, const brim_ui_replay_options *o, size_t episode,
                      const brim_trajectory *list, size_t count, brim_str *out) {
  scale s;
  make_scale(c, list, count, &s);
  brim_str_printf(out, "<figure class=\"curve\" data-key=\"%s\" data-digits=\"%d\"", c->key,
                  c->digits);
  put_episode(o, episode, out);
  brim_str_append(out, "><figcaption>");
  brim_ui_put(out, "b", brim_tr(c->title));
  for (size_t k = 0; k < count; k++) {
    brim_str_printf(out, "<span class=\"read c%zu\">", k);
    brim_ui_escape_html(out, list[k].label);
    brim_str_append(out, " <output></output></span>");
  }
  brim_str_append(out, "</figcaption>\n<div class=\"area\">");
  put_ticks(&s, out);
  put_plot(c, &s, list, count, out);
  put_axis(&s, list[0].scene->rate > 0 ? "" : " s", out);
  brim_str_append(out, "</div></figure>\n");
}

// <li class="kind"><i></i>text</li>: an entry of a legend.
static void put_entry(brim_str *out, const char *kind, const char *text) {
  brim_str_printf(out, "<li class=\"%s\"><i></i>", kind);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</li>");
}

static void put_mark_legend(size_t part, const brim_trajectory *list, size_t count, brim_str *out) {
  const brim_scene *scene = list[0].scene;
  bool met = false;
  for (size_t k = 0; k < count; k++) {
    for (int64_t i = 0; i < list[k].frames && !met; i++) {
      met = brim_scene_event(scene, part, brim_trajectory_frame(&list[k], i));
    }
  }
  if (met) put_entry(out, "p", brim_tr(scene->parts[part].label));
}

// True if a limit of the curve is drawn: most limits are outside the scale while all goes well.
static bool shows_limit(const brim_scene_curve *c, const brim_trajectory *list, size_t count) {
  scale s;
  make_scale(c, list, count, &s);
  for (int k = 0; k < c->limit_count; k++) {
    if (within(&s, c->limits[k])) return true;
  }
  return false;
}

static void put_legend(const brim_trajectory *list, size_t count, size_t per_episode,
                       brim_str *out) {
  const brim_scene *scene = list[0].scene;
  bool limits = false;
  brim_str_append(out, "<ul class=\"legend\">");
  for (size_t k = 0; k < per_episode; k++) {
    char kind[24];
    snprintf(kind, sizeof kind, "c%zu", k);
    put_entry(out, kind, list[k].label);
  }
  for (size_t i = 0; i < scene->part_count; i++) {
    if (scene->parts[i].when == BRIM_SCENE_EVENTS) put_mark_legend(i, list, count, out);
  }
  for (size_t i = 0; i < scene->curve_count; i++) {
    for (size_t k = 0; k < count; k += per_episode) {
      limits |= shows_limit(&scene->curves[i], list + k, per_episode);
    }
  }
  if (limits && scene->limit_text) put_entry(out, "f", brim_tr(scene->limit_text));
  brim_str_append(out, "</ul>\n");
}

static void put_curves(const brim_ui_replay_options *options, const brim_trajectory *list,
                       size_t count, brim_str *out) {
  const brim_scene *scene = list[0].scene;
  const size_t per_episode = options->episode_count > 1 ? count / options->episode_count : count;
  if (scene->curve_count == 0) return;
  brim_ui_put_section(out, "curves",
                      scene->rate > 0 ? brim_tr("Over the steps") : brim_tr("Over time"), NULL);
  put_legend(list, count, per_episode, out);
  brim_str_printf(out, "<div class=\"curves\" data-n=\"%zu\">\n", per_episode);
  for (size_t k = 0; k < count; k += per_episode) {
    for (size_t i = 0; i < scene->curve_count; i++) {
      put_curve(&scene->curves[i], options, k / per_episode, list + k, per_episode, out);
    }
  }
  brim_str_append(out, "</div>\n</section>\n");
}

//-------------------------------------- curves of training --------------------------------------
// The curves of the run that saved the replayed checkpoint: one figure for each metric of its
// evaluations. The page shows the value at the checkpoint; the script adds the value under the cursor.

static bool is_percent(const brim_curve *c) { return c->row->format == BRIM_METRIC_PERCENT; }

// The value on the y axis.
static double drawn(const brim_curve *c, double value) {
  return is_percent(c) ? 100 * value : value;
}

static bool has_baseline(const brim_ui_replay_options *o, const brim_curve *c) {
  return o->training_baseline && !isnan(c->baseline);
}

// The step at the right edge, common to all figures.
static int64_t last_of(const brim_curves *all) {
  int64_t last = all->marked > 1 ? all->marked : 1;
  for (size_t k = 0; k < all->count; k++) {
    const brim_curve *c = &all->list[k];
    if (c->points[c->count - 1].step > last) last = c->points[c->count - 1].step;
  }
  return last;
}

static scale training_scale(const brim_ui_replay_options *o, const brim_curve *c) {
  scale s = {.last = last_of(o->training), .dt = 1, .whole = true};
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
  scale_fit(&s, low, high, size > 0 ? size * 1e-2 : 1);
  return s;
}

// The point at the checkpoint's step (*marked), else the last one.
static size_t point_of(const brim_curves *all, const brim_curve *c, bool *marked) {
  for (size_t i = 0; i < c->count; i++) {
    *marked = c->points[i].step == all->marked;
    if (*marked) return i;
  }
  return c->count - 1;
}

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

static void put_training_curve(const brim_ui_replay_options *o, const brim_curve *c,
                               brim_str *out) {
  const scale s = training_scale(o, c);
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
  put_ticks(&s, out);
  brim_str_append(out, "<div class=\"plot\" role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", label);
  brim_str_append_char(out, '>');
  put_grid(&s, out);
  if (has_baseline(o, c)) {
    brim_str_printf(out, "<path class=\"base\" d=\"M0 %.1fH1000\" />",
                    scale_y(&s, drawn(c, c->baseline)));
  }
  if (o->training->marked >= 0) {
    brim_str_printf(out, "<path class=\"here\" d=\"M%.1f 0V100\" />",
                    scale_x(&s, o->training->marked));
  }
  brim_str_append(out, "<path class=\"l c0\" d=\"");
  for (size_t i = 0; i < c->count; i++) {
    brim_str_printf(out, "%c%.1f %.1f", i > 0 ? 'L' : 'M', scale_x(&s, c->points[i].step),
                    scale_y(&s, drawn(c, c->points[i].value)));
  }
  if (c->count == 1) brim_str_append(out, "h0");  // a single point would be invisible
  brim_str_append(out, "\" />");
  brim_str_append(out, "</svg>");
  if (marked) {
    brim_str_printf(out, "<i class=\"dot\" style=\"left:%.2f%%;top:%.1f%%\"></i>",
                    scale_x(&s, p->step) / 10, scale_y(&s, drawn(c, p->value)));
  }
  brim_str_append(out, "<i class=\"now\"></i></div>\n");
  put_axis(&s, "", out);
  brim_str_append(out, "</div></figure>\n");
}

static void put_training_legend(const brim_ui_replay_options *o, brim_str *out) {
  const brim_curves *all = o->training;
  char text[192], step[96];
  bool baseline = false;
  for (size_t i = 0; i < all->count; i++) baseline |= has_baseline(o, &all->list[i]);
  brim_str_append(out, "<ul class=\"legend\">");
  put_entry(out, "c0", all->training ? brim_tr("training") : brim_tr("evaluation"));
  if (baseline) put_entry(out, "base", brim_tr(o->training_baseline));
  if (all->marked >= 0) {
    step_text(o, all->marked, step);
    snprintf(text, sizeof text, brim_tr("this checkpoint: %s"), step);
    put_entry(out, "here", text);
  }
  brim_str_append(out, "</ul>\n");
}

static void put_training(const brim_ui_replay_options *o, brim_str *out) {
  char hint[256];
  if (!o->training || o->training->count == 0) return;
  snprintf(hint, sizeof hint,
           o->training->training
               ? brim_tr("Values of training, since the log has no evaluations; x axis: %s")
               : brim_tr("Evaluations of the run; x axis: %s"),
           step_name(o));
  brim_ui_put_section(out, "training", brim_tr("Training"), hint);
  put_training_legend(o, out);
  brim_str_append(out, "<div class=\"curves\">\n");
  for (size_t i = 0; i < o->training->count; i++) put_training_curve(o, &o->training->list[i], out);
  brim_str_append(out, "</div>\n</section>\n");
}

// Steps, and values as texts, for the script.
static brim_status fill_training_curve(const brim_ui_replay_options *o, const brim_curve *c,
                                       json_t *to) {
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

static brim_status fill_training(const brim_ui_replay_options *o, json_t *root) {
  if (!o->training || o->training->count == 0) return BRIM_OK;
  json_t *training = NULL, *curves = NULL;
  BRIM_TRY(brim_json_put(root, "training", training = json_object()));
  BRIM_TRY(brim_json_put(training, "step", json_string(step_name(o))));
  BRIM_TRY(brim_json_put(training, "last", json_integer(last_of(o->training))));
  BRIM_TRY(brim_json_put(training, "curves", curves = json_array()));
  for (size_t i = 0; i < o->training->count; i++) {
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(curves, one));
    BRIM_TRY(fill_training_curve(o, &o->training->list[i], one));
  }
  return BRIM_OK;
}

//--------------------------------------------- page ---------------------------------------------

//---------------------------------- views and figures ----------------------------------

static void put_stat(const char *name, const char *value, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put_pair(out, name, value);
  brim_str_append(out, "</div>");
}

static void put_stats(const brim_ui_replay_options *o, const brim_trajectory *t, brim_str *out) {
  brim_scene_line figures[BRIM_SCENE_MAX_LINES];
  char text[96];
  brim_str_append(out, "<dl class=\"stats\">");
  snprintf(text, sizeof text, "%.1f", brim_trajectory_sum(t));
  put_stat(o->score, t->frames > 1 ? text : BRIM_UI_DASH, out);
  snprintf(text, sizeof text, "%lld", (long long)t->frames - 1);
  put_stat(brim_tr("steps"), text, out);
  memset(figures, 0, sizeof figures);
  const brim_scene_episode episode = brim_trajectory_episode(t);
  size_t count = t->scene->figures ? t->scene->figures(&episode, figures) : 0;
  for (size_t i = 0; i < count; i++) put_stat(brim_tr(figures[i].label), figures[i].text, out);
  brim_str_append(out, "</dl>");
}

// One trajectory: number `which` of those side by side.
static void put_view(const brim_ui_replay_options *o, const brim_trajectory *t, size_t which,
                     size_t episode_index, brim_str *out) {
  char text[96], label[288], name[160];
  snprintf(name, sizeof name, "%s", t->label);
  if (o->episode_count > 1) {
    snprintf(name, sizeof name, brim_tr("%.64s, episode %.64s"), t->label,
             o->episodes[episode_index]);
  }
  const brim_scene_episode episode = brim_trajectory_episode(t);
  t->scene->outcome(&episode, text, sizeof text);
  brim_str_printf(out, "<figure class=\"view c%zu %s %s\"", which, t->scene->ends[t->end],
                  t->scene->plain[t->end]  ? "plain"
                  : t->scene->good[t->end] ? "good"
                                           : "bad");
  put_episode(o, episode_index, out);
  brim_str_append(out, "><div class=\"frame\"><canvas tabindex=\"0\"");
  snprintf(label, sizeof label, "%s: %s", name, text);
  brim_str_append(out, " role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", label);
  brim_str_append(out, "></canvas><span class=\"badge\" hidden=\"hidden\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div><figcaption>");
  brim_ui_put(out, "h2", name);
  brim_ui_put_class(out, "p", "outcome", text);
  put_stats(o, t, out);
  brim_str_append(out, "</figcaption></figure>\n");
}

//---------------------------------- controls ----------------------------------

static void put_button(const char *id, const char *pressed, const char *text, brim_str *out) {
  brim_str_printf(out, "<button type=\"button\" id=\"%s\"", id);
  if (pressed) brim_str_printf(out, " aria-pressed=\"%s\"", pressed);
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button>\n");
}

// A slider over the list of speeds in replay.js. Starts at the fourth entry, normal speed.
static void put_speeds(brim_str *out) {
  brim_str_append(out, "<label class=\"speed\">");
  brim_ui_escape_html(out, brim_tr("Speed"));
  brim_str_append(out,
                  " <input type=\"range\" id=\"speed\" min=\"0\" max=\"6\" value=\"3\" "
                  "aria-valuetext=\"1\xc3\x97\" /><output>1\xc3\x97</output></label>\n");
}

static void put_episodes(const brim_ui_replay_options *o, brim_str *out) {
  if (o->episode_count < 2) return;
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, brim_tr("Episode"));
  brim_str_append(out, " <select id=\"episode\">");
  for (size_t i = 0; i < o->episode_count; i++) {
    brim_str_printf(out, "<option value=\"%zu\">", i);
    brim_ui_escape_html(out, o->episodes[i]);
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>\n");
}

static void put_choice(const brim_trajectory *list, size_t count, brim_str *out) {
  if (count < 2) return;
  brim_str_append(out,
                  "<span class=\"seg\" id=\"show\" role=\"group\"><button type=\"button\" "
                  "data-v=\"both\" aria-pressed=\"true\">");
  brim_ui_escape_html(out, count > 2 ? brim_tr("all") : brim_tr("both"));
  brim_str_append(out, "</button>");
  for (size_t i = 0; i < count; i++) {
    brim_str_printf(out, "<button type=\"button\" data-v=\"%zu\" aria-pressed=\"false\">", i);
    brim_ui_escape_html(out, list[i].label);
    brim_str_append(out, "</button>");
  }
  brim_str_append(out, "</span>\n");
}

static void put_controls(const brim_ui_replay_options *o, const brim_trajectory *list, size_t count,
                         brim_str *out) {
  const brim_scene *scene = list[0].scene;
  brim_str_append(out, "<div class=\"controls play\">\n");
  put_button("play", "false", brim_tr("Play"), out);
  brim_str_append(out,
                  "<span class=\"track\"><input type=\"range\" id=\"seek\" min=\"0\" value=\"0\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("time"));
  brim_str_append(out,
                  " /></span>\n<span id=\"clock\"></span><span id=\"step\"></span>\n"
                  "</div>\n<div class=\"controls\">\n");
  put_speeds(out);
  put_episodes(o, out);
  put_choice(list, count, out);
  if (scene->camera) {
    put_button("follow", "true", brim_tr("Follow"), out);
    put_button("reset", NULL, brim_tr("Reset the camera"), out);
  }
  brim_str_append(out, "</div>\n<p class=\"hint keys\">");
  brim_ui_escape_html(
      out, scene->hint ? brim_tr(scene->hint)
                       : brim_tr("Space plays, comma and full stop move one step, [ and ] change "
                                 "the speed, Home and End go to the beginning and the end."));
  brim_str_append(out, "</p>\n<p class=\"still\">");
  brim_ui_escape_html(out, brim_tr("Playing needs JavaScript; the curves do not."));
  brim_str_append(out, "</p>\n");
}

//---------------------------------- data ----------------------------------

static brim_status fill_parts(json_t *scene, const brim_scene *s) {
  static const char *const when[] = {"every", "first", "events"};
  json_t *parts, *numbers;
  BRIM_TRY(brim_json_put(scene, "parts", parts = json_array()));
  BRIM_TRY(brim_json_put(scene, "numbers", numbers = json_object()));
  for (size_t i = 0; i < s->part_count; i++) {
    const brim_scene_part *part = &s->parts[i];
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(parts, one));
    BRIM_TRY(brim_json_put(one, "key", json_string(part->key)));
    BRIM_TRY(brim_json_put(one, "columns", json_integer(part->columns)));
    BRIM_TRY(brim_json_put(one, "when", json_string(when[part->when])));
    if (part->scale > 0) BRIM_TRY(brim_json_put(one, "scale", brim_json_number(part->scale)));
  }
  for (size_t i = 0; i < s->number_count; i++) {
    BRIM_TRY(brim_json_put(numbers, s->numbers[i].key, brim_json_number(s->numbers[i].value)));
  }
  return BRIM_OK;
}

// The values that the cursor reads from a curve: a column of the frames, or texts of its own.
static brim_status fill_curve(json_t *to, const brim_scene_curve *line, const brim_trajectory *list,
                              size_t count) {
  int32_t within = 0;
  json_t *values = NULL;
  BRIM_TRY(brim_json_put(to, "key", json_string(line->key)));
  if (line->reward) return BRIM_OK;
  if (!line->value) {
    const brim_scene *scene = list[0].scene;
    size_t part = brim_scene_part_of(scene, line->column, &within);
    BRIM_TRY(brim_json_put(to, "part", json_string(scene->parts[part].key)));
    return brim_json_put(to, "column", json_integer(within));
  }
  BRIM_TRY(brim_json_put(to, "values", values = json_array()));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    brim_str text;
    brim_str_init(&text);
    status = brim_trajectory_curve(&list[i], line, &text);
    if (!status) status = brim_json_push(values, json_string(text.data));
    brim_str_deinit(&text);
  }
  return status;
}

static brim_status fill_scene(json_t *root, const brim_trajectory *list, size_t count) {
  const brim_scene *s = list[0].scene;
  json_t *scene = json_object(), *curves = NULL;
  BRIM_TRY(brim_json_put(root, "scene", scene));
  BRIM_TRY(fill_parts(scene, s));
  if (s->rate > 0) BRIM_TRY(brim_json_put(scene, "rate", brim_json_number(s->rate)));
  BRIM_TRY(brim_json_put(root, "curves", curves = json_array()));
  for (size_t i = 0; i < s->curve_count; i++) {
    json_t *one = json_object();
    BRIM_TRY(brim_json_push(curves, one));
    BRIM_TRY(fill_curve(one, &s->curves[i], list, count));
  }
  return BRIM_OK;
}

static brim_status fill_data(json_t *root, const brim_ui_replay_options *o,
                             const brim_trajectory *list, size_t count) {
  json_t *text = json_object(), *replays = NULL;
  BRIM_TRY(brim_json_put(root, "text", text));
  BRIM_TRY(brim_json_put(text, "play", json_string(brim_tr("Play"))));
  BRIM_TRY(brim_json_put(text, "pause", json_string(brim_tr("Pause"))));
  BRIM_TRY(brim_json_put(text, "step", json_string(brim_tr("step"))));
  BRIM_TRY(fill_scene(root, list, count));
  BRIM_TRY(fill_training(o, root));
  if (o->episode_count > 1) {
    BRIM_TRY(brim_json_put(root, "choices", json_integer((json_int_t)o->episode_count)));
  }
  BRIM_TRY(brim_json_put(root, "replays", replays = json_array()));
  for (size_t i = 0; i < count; i++) {
    json_t *one = NULL;
    BRIM_TRY(brim_trajectory_to_json(&list[i], &one));
    BRIM_TRY(brim_json_push(replays, one));
  }
  return BRIM_OK;
}

//---------------------------------- page ----------------------------------

static void put_facts(const brim_ui_replay_options *o, brim_str *out) {
  if (o->fact_count == 0 && !o->command) return;
  brim_ui_put_section(out, "facts", brim_tr("What is replayed"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  for (size_t i = 0; i < o->fact_count; i++) {
    brim_ui_put_pair(out, o->facts[i].name, o->facts[i].value);
  }
  brim_str_append(out, "</dl>\n");
  if (o->command) {
    brim_str_append(out, "<pre tabindex=\"0\"><code>");
    brim_ui_escape_html(out, o->command);
    brim_str_append(out, "</code></pre>\n");
  }
  brim_str_append(out, "</section>\n");
}

// The script that draws a kind of scene (web/replay/scene_KIND.js) names the numbers and parts it needs in a line
// "// needs ...". A scene that lacks one is refused, because the script would then draw and report nothing.
static brim_status check_needs(const brim_scene *scene, const char *script) {
  static const char line[] = "\n// needs ", number[] = "numbers.", part[] = "parts.";
  const char *at = strstr(script, line);
  char word[64];
  int used = 0;
  for (at = at ? at + strlen(line) : "\n"; *at != '\n'; at += used) {
    bool has = false;
    if (sscanf(at, "%63[^ \n]%n", word, &used) != 1) break;
    used += at[used] == ' ';
    const bool wants_number = brim_str_starts(word, number);
    const char *key = word + strlen(wants_number ? number : part);
    for (size_t i = 0; wants_number && i < scene->number_count; i++) {
      has |= strcmp(scene->numbers[i].key, key) == 0;
    }
    for (size_t i = 0; !wants_number && i < scene->part_count; i++) {
      has |= strcmp(scene->parts[i].key, key) == 0;
    }
    if (has) continue;
    return wants_number
               ? brim_fail(BRIM_EUNSUPPORTED,
                           "the picture for scenes of kind %s needs the number '%s', which this "
                           "scene does not have",
                           scene->kind, key)
               : brim_fail(BRIM_EUNSUPPORTED,
                           "the picture for scenes of kind %s needs the part '%s', which this "
                           "scene does not have",
                           scene->kind, key);
  }
  return BRIM_OK;
}

brim_status brim_ui_replay(const brim_ui_replay_options *options, const brim_trajectory *list,
                           size_t count, brim_str *out) {
  const size_t episodes = options->episode_count > 1 ? options->episode_count : 1;
  const size_t per_episode = count / episodes;
  if (per_episode < 1 || per_episode > BRIM_UI_MAX_REPLAYS || count % episodes != 0) {
    return brim_fail(BRIM_EINVAL, "a replay page shows 1 to %d trajectories, not %zu",
                     BRIM_UI_MAX_REPLAYS, count);
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].frames > 0) continue;
    return brim_fail(BRIM_EINVAL, "there is no state in the trajectory '%s'", list[i].label);
  }
  char picture[96];
  snprintf(picture, sizeof picture, "replay/scene_%.64s.js", list[0].scene->kind);
  const brim_web_asset *script = brim_web_find(picture);
  if (!script) {
    return brim_fail(BRIM_EUNSUPPORTED, "brim has no picture for scenes of kind %s",
                     list[0].scene->kind);
  }
  BRIM_TRY(check_needs(list[0].scene, (const char *)script->data));
  static const char *const styles[] = {"replay/replay.css", NULL};
  brim_ui_put_head(options->title, styles, out);
  brim_str_append(out, "<body>\n<header><p class=\"brand\">brim render</p>");
  brim_ui_put(out, "h1", options->title);
  if (options->about) brim_ui_put_class(out, "p", "sub", options->about);
  brim_str_printf(out, "</header>\n<main>\n<div id=\"stage\" data-n=\"%zu\">\n", per_episode);
  for (size_t i = 0; i < count; i++) {
    put_view(options, &list[i], i % per_episode, i / per_episode, out);
  }
  brim_str_append(out, "</div>\n");
  put_controls(options, list, per_episode, out);
  put_curves(options, list, count, out);
  put_training(options, out);
  put_facts(options, out);
  brim_str_printf(out, "</main>\n<footer>brim %s</footer>\n", BRIM_VERSION);
  brim_json_setup();
  json_t *data = json_object();
  brim_status status = data ? fill_data(data, options, list, count) : BRIM_OK;
  if (status) {
    json_decref(data);
    return status;
  }
  BRIM_TRY(brim_ui_put_data("data", data, out));
  brim_ui_put_scripts((const char *[]){picture, "replay/replay.js", NULL}, out);
  brim_str_append(out, "</body>\n</html>\n");
  return brim_str_status(out);
}
