// The curves of a replay over time. The lines are SVG that stretches with the page;
// their labels are HTML, so that letters keep their size on a phone. They are whole without a
// script, which only moves the cursor over them.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_replay_int.h"

enum { MAX_POINTS = 1500 };  // of a line: more are not told apart

void brim_ui_replay_of(const brim_ui_replay_options *options, size_t episode, brim_str *out) {
  if (options->episode_count > 1) brim_str_printf(out, " data-e=\"%zu\"", episode);
}

typedef brim_scene_curve curve;
typedef brim_ui_scale scale;

static double value_at(const curve *c, const brim_trajectory *t, int64_t i) {
  if (c->reward) return (double)t->reward[i];
  const float *frame = brim_trajectory_frame(t, i);
  return c->value ? c->value(frame) : (double)frame[c->column];
}

// There is no reward of the last frame.
static int64_t values_of(const curve *c, const brim_trajectory *t) {
  return c->reward ? t->frames - 1 : t->frames;
}

//---------------------------------- scales ----------------------------------

static void make_scale(const curve *c, const brim_trajectory *list, size_t count, scale *s) {
  double low = INFINITY, high = -INFINITY;
  *s = (scale){.last = 1, .dt = list[0].dt, .whole = list[0].scene->rate > 0};
  for (size_t k = 0; k < count; k++) {
    // What a fall costs would leave no room for all that came before it: it goes to the edge.
    bool ended = c->reward && list[k].end == BRIM_SCENE_ENDED && list[k].frames > 2;
    for (int64_t i = 0; i < values_of(c, &list[k]) - ended; i++) {
      double v = value_at(c, &list[k], i);
      if (isnan(v)) continue;
      low = fmin(low, v);
      high = fmax(high, v);
    }
    if (list[k].frames - 1 > s->last) s->last = list[k].frames - 1;
  }
  if (!(low <= high)) low = 0, high = 1;
  if (c->from_zero) low = fmin(low, 0);
  brim_ui_scale_fit(s, low, high, 1e-3);
}

//---------------------------------- lines ----------------------------------

static void put_point(const scale *s, int64_t i, double v, bool *begun, brim_str *out) {
  if (isnan(v)) {
    *begun = false;
    return;
  }
  double y = fmin(fmax(brim_ui_scale_y(s, v), 0), 100);
  brim_str_printf(out, "%c%.1f %.1f", *begun ? 'L' : 'M', brim_ui_scale_x(s, i), y);
  *begun = true;
}

// A line of more points than a page needs keeps the lowest and the highest of each stretch: what
// happened in one step alone is still seen.
static void put_line(const curve *c, const scale *s, const brim_trajectory *t, size_t which,
                     brim_str *out) {
  int64_t n = values_of(c, t), stretch = n > MAX_POINTS ? (2 * n + MAX_POINTS - 1) / MAX_POINTS : 1;
  bool begun = false;
  brim_str_printf(out, "<path class=\"l c%zu\" d=\"", which);
  for (int64_t from = 0; from < n; from += stretch) {
    int64_t to = from + stretch < n ? from + stretch : n, low = from, high = from;
    for (int64_t i = from; i < to; i++) {
      if (value_at(c, t, i) < value_at(c, t, low)) low = i;
      if (value_at(c, t, i) > value_at(c, t, high)) high = i;
    }
    int64_t first = low < high ? low : high, second = low < high ? high : low;
    put_point(s, first, value_at(c, t, first), &begun, out);
    if (second != first) put_point(s, second, value_at(c, t, second), &begun, out);
  }
  brim_str_append(out, "\" />");
}

static bool within(const scale *s, double y) { return y > s->low && y < s->high; }

static void put_rule(const scale *s, double y, const char *kind, brim_str *out) {
  if (!within(s, y)) return;
  brim_str_printf(out, "<path class=\"%s\" d=\"M0 %.1fH1000\" />", kind, brim_ui_scale_y(s, y));
}

// Whatever acts meets the same events for as long as it continues: the longest one has all of them.
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
      brim_str_printf(out, "<path class=\"mark\" d=\"M%.1f 0V100\" />", brim_ui_scale_x(s, i));
    }
  }
}

static void put_plot(const curve *c, const scale *s, const brim_trajectory *list, size_t count,
                     brim_str *out) {
  brim_str_append(out, "<div class=\"plot\">");
  brim_ui_put_grid(s, out);
  put_marks(s, list, count, out);
  for (int k = 0; k < c->limit_count; k++) put_rule(s, c->limits[k], "limit", out);
  for (size_t k = count; k-- > 0;) put_line(c, s, &list[k], k, out);
  brim_str_append(out, "</svg><i class=\"now\"></i></div>\n");
}

//---------------------------------- labels ----------------------------------

static void put_curve(const curve *c, const brim_ui_replay_options *o, size_t episode,
                      const brim_trajectory *list, size_t count, brim_str *out) {
  scale s;
  make_scale(c, list, count, &s);
  brim_str_printf(out, "<figure class=\"curve\" data-key=\"%s\" data-digits=\"%d\"", c->key,
                  c->digits);
  brim_ui_replay_of(o, episode, out);
  brim_str_append(out, "><figcaption>");
  brim_ui_put(out, "b", brim_tr(c->title));
  for (size_t k = 0; k < count; k++) {
    brim_str_printf(out, "<span class=\"read c%zu\">", k);
    brim_ui_escape_html(out, list[k].label);
    brim_str_append(out, " <output></output></span>");
  }
  brim_str_append(out, "</figcaption>\n<div class=\"area\">");
  brim_ui_put_ticks(&s, out);
  put_plot(c, &s, list, count, out);
  brim_ui_put_axis(&s, list[0].scene->rate > 0 ? "" : " s", out);
  brim_str_append(out, "</div></figure>\n");
}

static void put_mark_legend(size_t part, const brim_trajectory *list, size_t count, brim_str *out) {
  const brim_scene *scene = list[0].scene;
  bool met = false;
  for (size_t k = 0; k < count; k++) {
    for (int64_t i = 0; i < list[k].frames && !met; i++) {
      met = brim_scene_event(scene, part, brim_trajectory_frame(&list[k], i));
    }
  }
  if (!met) return;
  brim_str_append(out, "<li class=\"p\"><i></i>");
  brim_ui_escape_html(out, brim_tr(scene->parts[part].label));
  brim_str_append(out, "</li>");
}

// Whether a limit of a curve is drawn: most are out of its scale while all goes well.
static bool shows_limit(const curve *c, const brim_trajectory *list, size_t count) {
  scale s;
  make_scale(c, list, count, &s);
  for (int k = 0; k < c->limit_count; k++) {
    if (within(&s, c->limits[k])) return true;
  }
  return false;
}

static void put_legend(const brim_trajectory *list, size_t count, size_t beside, brim_str *out) {
  const brim_scene *scene = list[0].scene;
  bool limits = false;
  brim_str_append(out, "<ul class=\"legend\">");
  for (size_t k = 0; k < beside; k++) {
    brim_str_printf(out, "<li class=\"c%zu\"><i></i>", k);
    brim_ui_escape_html(out, list[k].label);
    brim_str_append(out, "</li>");
  }
  for (size_t i = 0; i < scene->part_count; i++) {
    if (scene->parts[i].when == BRIM_SCENE_EVENTS) put_mark_legend(i, list, count, out);
  }
  for (size_t i = 0; i < scene->curve_count; i++) {
    for (size_t k = 0; k < count; k += beside) {
      limits |= shows_limit(&scene->curves[i], list + k, beside);
    }
  }
  if (limits && scene->limit_text) {
    brim_str_append(out, "<li class=\"f\"><i></i>");
    brim_ui_escape_html(out, brim_tr(scene->limit_text));
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul>\n");
}

brim_status brim_ui_replay_curves(const brim_ui_replay_options *options,
                                  const brim_trajectory *list, size_t count, brim_str *out) {
  const brim_scene *scene = list[0].scene;
  const size_t beside = options->episode_count > 1 ? count / options->episode_count : count;
  if (scene->curve_count == 0) return BRIM_OK;
  brim_ui_put_section(out, "curves",
                      scene->rate > 0 ? brim_tr("Over the steps") : brim_tr("Over time"), NULL);
  put_legend(list, count, beside, out);
  brim_str_printf(out, "<div class=\"curves\" data-n=\"%zu\">\n", beside);
  for (size_t k = 0; k < count; k += beside) {
    for (size_t i = 0; i < scene->curve_count; i++) {
      put_curve(&scene->curves[i], options, k / beside, list + k, beside, out);
    }
  }
  brim_str_append(out, "</div>\n</section>\n");
  return brim_str_status(out);
}
