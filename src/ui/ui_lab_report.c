// The page of a store: one HTML file that needs no network and no other file. The best setting,
// failures, the first rows of the tables and the settings stand in it without a script; the script
// (web/lab/lab.js) filters and draws. This file is the frame and the summary; ui_lab_tables.c
// has the tables, ui_lab_data.c the data.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_lab_int.h"

enum { MAX_CAUSES = 64 };

//---------------------------------- header ----------------------------------

static void put_when(const char *text, double when_s, brim_str *out) {
  char when[32], line[96];
  brim_clock_iso8601(when_s, when);  // 2026-11-15T02:20:29Z
  if (strlen(when) >= 19) when[10] = ' ', when[16] = '\0';
  snprintf(line, sizeof line, text, when);
  brim_str_append_char(out, ' ');
  brim_ui_put(out, "span", line);
}

static double first_start(const brim_lab_set *set) {
  double first = 0;
  for (size_t i = 0; i < set->count; i++) {
    const double start = (double)set->exps[i].started / 1e3;
    if (start > 0 && (first <= 0 || start < first)) first = start;
  }
  return first;
}

static void put_header(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  char line[96];
  brim_str_append(out, "<header><p class=\"brand\">brim report</p>");
  brim_ui_put(out, "h1", o->title);
  brim_str_append(out, "<p class=\"sub\">");
  if (o->place) brim_ui_put(out, "span", o->place);
  snprintf(line, sizeof line,
           set->count == 1 ? brim_tr("%zu experiment") : brim_tr("%zu experiments"), set->count);
  brim_str_append_char(out, ' ');
  brim_ui_put(out, "span", line);
  const double start = first_start(set);
  if (start > 0) put_when(brim_tr("begun %s UTC"), start, out);
  if (o->now_s > 0) put_when(brim_tr("as of %s UTC"), o->now_s, out);
  brim_str_append(out, "</p></header>\n");
}

// A bar of all experiments by their states, and the counts.
static void put_states(const brim_lab_set *set, brim_str *out) {
  size_t counts[BRIM_SWEEP_STATE_COUNT] = {0};
  for (size_t i = 0; i < set->count; i++) counts[brim_ui_lab_state(&set->exps[i])]++;
  brim_str_append(out, "<div class=\"states\"><div class=\"bar-all\" aria-hidden=\"true\">");
  static const brim_sweep_state order[] = {
      BRIM_SWEEP_DONE,   BRIM_SWEEP_FAILED, BRIM_SWEEP_RUNNING,  BRIM_SWEEP_LEASED,
      BRIM_SWEEP_QUEUED, BRIM_SWEEP_PAUSED, BRIM_SWEEP_CANCELLED};
  const size_t states = sizeof order / sizeof *order;
  for (size_t i = 0; i < states; i++) {
    if (counts[order[i]] == 0) continue;
    brim_str_printf(out, "<i class=\"s-%s\" style=\"flex-grow: %zu\"></i>",
                    brim_sweep_state_name(order[i]), counts[order[i]]);
  }
  brim_str_append(out, "</div><ul>");
  for (size_t i = 0; i < states; i++) {
    if (counts[order[i]] == 0) continue;
    brim_str_printf(out, "<li class=\"s-%s\"><i></i><b>%zu</b> ", brim_sweep_state_name(order[i]),
                    counts[order[i]]);
    brim_ui_escape_html(out, brim_ui_lab_state_text(order[i]));
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul></div>\n");
}

//---------------------------------- the best setting ----------------------------------

static void put_setting(const brim_lab_set *set, const brim_lab_exp *exp, brim_str *out) {
  bool any = false;
  brim_str_append(out, "<p class=\"setting\">");
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over || !exp->values[i]) continue;
    any = true;
    brim_str_append(out, "<span>");
    brim_ui_escape_html(out, brim_ui_lab_short(set, i));
    brim_str_append_char(out, ' ');
    brim_ui_put(out, "b", exp->values[i]);
    brim_str_append(out, "</span> ");
  }
  if (!any) brim_ui_escape_html(out, brim_tr("all experiments have the same settings"));
  brim_str_append(out, "</p>");
}

// How many other settings may be as good: what is not certainly worse.
static void put_rivals(const brim_ui_lab_options *o, const brim_lab_set *set, size_t best,
                       brim_str *out) {
  const brim_lab_group *g = &set->groups[best];
  const brim_metric_better better = brim_lab_better(set, g->metric_key);
  const brim_lab_stats *own = brim_lab_group_stats(g, o->result);
  size_t open = 0, others = 0, once = 0;
  for (size_t i = 0; i < set->group_count; i++) {
    const brim_lab_stats *other = brim_lab_group_stats(&set->groups[i], o->result);
    if (i == best || other->n == 0 || strcmp(set->groups[i].metric_key, g->metric_key) != 0)
      continue;
    brim_lab_difference difference;
    const brim_lab_verdict verdict = brim_lab_differ(own, other, better, &difference);
    others++;
    open += verdict != BRIM_LAB_WORSE;
    once += verdict == BRIM_LAB_ONCE;
  }
  if (others == 0) return;
  char line[256];
  if (own->n < 2 || once == others) {
    snprintf(line, sizeof line, "%s",
             brim_tr("One result per setting does not show how far repetitions differ. Use several "
                     "seeds (seeds: 5) to compare settings."));
  } else if (open == 0) {
    snprintf(line, sizeof line,
             others == 1 ? brim_tr("Certainly better than the %zu other setting (95 %%).")
                         : brim_tr("Certainly better than each of the %zu other settings (95 %%)."),
             others);
  } else {
    snprintf(line, sizeof line,
             brim_tr("%zu of %zu other settings cannot be told apart from it with this many "
                     "seeds (95 %%)."),
             open, others);
  }
  brim_str_append(out, "<p class=\"note\">");
  brim_ui_escape_html(out, line);
  brim_str_append(out, "</p>");
}

static const char *result_text(const brim_ui_lab_options *o) {
  return o->result == BRIM_LAB_BEST ? brim_tr("best value of a run")
                                    : brim_tr("last value of a run");
}

static void put_best(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  const size_t best = brim_ui_lab_best(set, o->result);
  char text[80], line[128];
  if (best == set->group_count) return;
  const brim_lab_group *g = &set->groups[best];
  const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
  const brim_lab_stats *stats = brim_lab_group_stats(g, o->result);
  brim_str_append(out, "<section id=\"best\"><div class=\"hero\">");
  brim_ui_put(out, "h2", brim_tr("Best setting"));
  put_setting(set, &set->exps[g->list[0]], out);
  brim_str_append(out, "<dl class=\"stats\"><div>");
  brim_ui_value_spread(display, stats->mean, stats->stddev, text);
  snprintf(line, sizeof line, "%.60s, %s", brim_ui_lab_label(set, g->metric_key), result_text(o));
  brim_ui_put_pair(out, line, text);
  brim_str_append(out, "</div>");
  if (stats->n > 1) {
    const double bounds[2] = {stats->low, stats->high};
    brim_ui_value_range(display, bounds, stats->stddev, text);
    brim_str_append(out, "<div>");
    brim_ui_put_pair(out, brim_tr("mean, 95 % interval"), text);
    brim_str_append(out, "</div>");
  }
  snprintf(line, sizeof line, brim_tr("%zu of %zu"), stats->n, g->count);
  brim_str_append(out, "<div>");
  brim_ui_put_pair(out, brim_tr("results"), line);
  brim_str_append(out, "</div>");
  if (stats->n > 1) {
    const bool lower = brim_lab_better(set, g->metric_key) == BRIM_BETTER_LOWER;
    brim_ui_value(display, lower ? stats->least : stats->most, text);
    brim_str_append(out, "<div>");
    brim_ui_put_pair(out, brim_tr("best of them"), text);
    brim_str_append(out, "</div>");
  }
  brim_str_append(out, "</dl>");
  put_rivals(o, set, best, out);
  brim_str_append(out, "</div></section>\n");
}

//---------------------------------- failures ----------------------------------

// Experiments that failed for the same reason.
typedef struct cause {
  brim_failure failure;
  const brim_lab_exp *first;
  size_t count;
} cause;

static size_t find_causes(const brim_lab_set *set, cause *list, size_t *left_out) {
  size_t count = 0;
  *left_out = 0;
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_exp *e = &set->exps[i];
    if (brim_ui_lab_state(e) != BRIM_SWEEP_FAILED) continue;
    const brim_failure failure = brim_failure_of(e->failure);
    size_t at = 0;
    while (at < count &&
           (list[at].failure != failure || strcmp(list[at].first->reason, e->reason) != 0)) {
      at++;
    }
    if (at == MAX_CAUSES) {
      ++*left_out;
      continue;
    }
    if (at == count) list[count++] = (cause){failure, e, 0};
    list[at].count++;
  }
  return count;
}

static size_t failed_of_class(const cause *list, size_t count, int failure) {
  size_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (list[i].failure == (brim_failure)failure) sum += list[i].count;
  }
  return sum;
}

// An experiment of a grid without axes has no label.
static const char *name_of(const brim_ui_lab_options *o, const brim_lab_exp *e) {
  return e->label[0] ? e->label : o->title;
}

static void put_cause(const brim_ui_lab_options *o, const cause *c, brim_str *out) {
  char line[96];
  brim_str_append(out, "<li><p><b>");
  snprintf(line, sizeof line, "%zu \xc3\x97", c->count);
  brim_ui_escape_html(out, line);
  brim_str_append(out, "</b> ");
  brim_ui_escape_html(out, c->first->reason[0] ? c->first->reason : brim_tr("no message"));
  brim_str_append(out, "</p><p class=\"note\">");
  brim_ui_escape_html(out, c->count == 1 ? brim_tr("experiment") : brim_tr("the first of them"));
  brim_str_printf(out, " <a href=\"#exp=%.12s\"><code>%.12s</code></a> ", c->first->id,
                  c->first->id);
  brim_ui_escape_html(out, name_of(o, c->first));
  brim_str_append(out, "</p>");
  if (c->first->last_lines[0]) {
    brim_str_append(out, "<details><summary>");
    brim_ui_escape_html(out, brim_tr("its last lines"));
    brim_str_append(out, "</summary><pre tabindex=\"0\">");
    brim_ui_escape_html(out, c->first->last_lines);
    brim_str_append(out, "</pre></details>");
  }
  brim_str_append(out, "</li>\n");
}

static void put_failures(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  cause list[MAX_CAUSES];
  size_t left_out = 0;
  const size_t count = find_causes(set, list, &left_out);
  if (count == 0) return;
  brim_ui_put_section(out, "failures", brim_tr("Failures"), NULL);
  for (int failure = 0; failure < BRIM_FAILURE_COUNT; failure++) {
    const size_t all = failed_of_class(list, count, failure);
    if (all == 0) continue;
    brim_str_append(out, "<div class=\"cause\"><h3>");
    brim_ui_escape_html(out, brim_ui_failure_class((brim_failure)failure));
    brim_str_printf(out, " <small>%zu</small></h3><ul>", all);
    for (size_t i = 0; i < count; i++) {
      if (list[i].failure == (brim_failure)failure) put_cause(o, &list[i], out);
    }
    brim_str_append(out, "</ul></div>\n");
  }
  if (left_out > 0) {
    brim_str_append(out, "<p class=\"note\">");
    brim_str_printf(out, brim_tr("experiments that failed for other reasons: %zu"), left_out);
    brim_str_append(out, "</p>");
  }
  if (o->place) {
    brim_str_append(out, "<p class=\"note\">");
    brim_ui_escape_html(out, brim_tr("Once the cause is removed, run them again:"));
    brim_str_append(out, " <code>brim sweep rerun-failed ");
    brim_ui_escape_html(out, o->place);
    brim_str_append(out, "</code></p>");
  }
  brim_str_append(out, "</section>\n");
}

//---------------------------------- what the script draws ----------------------------------

static void put_still(brim_str *out) {
  brim_str_append(out, "<p class=\"still note\">");
  brim_ui_escape_html(out, brim_tr("This drawing needs JavaScript."));
  brim_str_append(out, "</p>");
}

static void put_filters(brim_str *out) {
  brim_str_append(out, "<div id=\"filters\" class=\"tools js\" role=\"search\">");
  brim_str_append(out, "<input type=\"search\" id=\"search\"");
  brim_ui_put_attribute(out, "placeholder", brim_tr("search settings, ids, tags"));
  brim_ui_put_attribute(out, "aria-label", brim_tr("search settings, ids, tags"));
  brim_str_append(out, " /><span id=\"by-state\" class=\"seg\" role=\"group\"></span>");
  brim_str_append(
      out, "<span id=\"by-value\"></span><button type=\"button\" id=\"clear\" hidden=\"hidden\">");
  brim_ui_escape_html(out, brim_tr("Clear filters"));
  brim_str_append(out, "</button><output id=\"shown\" aria-live=\"polite\"></output></div>\n");
}

static void put_drawings(const brim_lab_set *set, brim_str *out) {
  size_t settings = 0, curves = 0;
  for (size_t i = 0; i < set->key_count; i++) settings += !set->keys[i].over;
  for (size_t i = 0; i < set->metric_count; i++) curves += set->metrics[i].count;
  if (settings > 0) {
    brim_ui_put_section(out, "coordinates", brim_tr("Settings and results"),
                        brim_tr("Each line is an experiment. Drag along an axis to keep a range "
                                "of it; click the axis to drop the range."));
    brim_str_append(out, "<div class=\"panel scroll-x\"><canvas id=\"axes\" role=\"img\"");
    brim_ui_put_attribute(out, "aria-label", brim_tr("Settings and results"));
    brim_str_append(out, "></canvas></div><div class=\"legend-bar js\" id=\"axes-legend\"></div>");
    put_still(out);
    brim_str_append(out, "</section>\n");
  }
  if (curves == 0) return;
  brim_ui_put_section(out, "curves", brim_tr("Curves"), NULL);
  brim_str_append(out,
                  "<div id=\"curve-tools\" class=\"tools js\"></div>"
                  "<div class=\"panel\"><canvas id=\"plot\" role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Curves"));
  brim_str_append(out, "></canvas></div><ul class=\"legend js\" id=\"curve-legend\"></ul>");
  put_still(out);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

static void put_about(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  if (set->grid_count == 0 && !o->command) return;
  brim_ui_put_section(out, "about", brim_tr("Source"), NULL);
  if (set->grid_count > 0) {
    brim_str_append(out, "<dl class=\"facts\">\n");
    for (size_t i = 0; i < set->grid_count; i++) {
      const brim_lab_grid_row *g = &set->grids[i];
      char when[32], line[192];
      brim_clock_iso8601((double)g->created / 1e3, when);
      if (strlen(when) >= 19) when[10] = ' ', when[16] = '\0';
      snprintf(line, sizeof line, brim_tr("%lld experiments, submitted %s UTC by brim %.40s"),
               (long long)g->points, when, g->version);
      brim_ui_put_pair(out, g->name[0] ? g->name : g->id, line);
    }
    brim_str_append(out, "</dl>\n");
  }
  if (o->command) {
    brim_ui_put(out, "h3", brim_tr("Command line"));
    brim_str_append(out, "<pre tabindex=\"0\"><code>");
    brim_ui_escape_html(out, o->command);
    brim_str_append(out, "</code></pre>\n");
  }
  brim_str_append(out, "</section>\n");
}

static void put_nav(const brim_str *body, brim_str *out) {
  const char *const links[][2] = {
      {"failures", brim_tr("Failures")},
      {"coordinates", brim_tr("Settings and results")},
      {"curves", brim_tr("Curves")},
      {"groups", brim_tr("Groups")},
      {"experiments", brim_tr("Experiments")},
      {"settings", brim_tr("Settings")},
      {"about", brim_tr("Source")},
  };
  brim_str_append(out, "<nav>");
  for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
    char section[48];
    snprintf(section, sizeof section, "<section id=\"%s\">", links[i][0]);
    if (!strstr(body->data, section)) continue;
    brim_str_printf(out, "<a href=\"#%s\">", links[i][0]);
    brim_ui_escape_html(out, links[i][1]);
    brim_str_append(out, "</a>");
  }
  brim_str_append(out, "</nav>\n");
}

static brim_status put_body(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  put_states(set, out);
  if (set->count == 0) {
    brim_ui_put(out, "p", brim_tr("There is no experiment in this store yet."));
    return BRIM_OK;
  }
  put_best(o, set, out);
  put_failures(o, set, out);
  put_filters(out);
  put_drawings(set, out);
  BRIM_TRY(brim_ui_lab_tables(o, set, out));
  brim_ui_lab_settings(set, out);
  put_about(o, set, out);
  return brim_str_status(out);
}

brim_status brim_ui_lab_report(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out) {
  static const char *const styles[] = {"report/report.css", "lab/lab.css", NULL};
  brim_str body;
  brim_str_init(&body);
  brim_status status = put_body(options, set, &body);
  if (!status) status = brim_str_status(&body);
  brim_ui_put_head(options->title, styles, out);
  brim_str_append(out, "<body>\n");
  put_header(options, set, out);
  if (!status && set->count > 0) put_nav(&body, out);
  brim_str_append(out, "<main>\n");
  if (!status) brim_str_append_n(out, body.data, body.len);
  brim_str_printf(out,
                  "</main>\n<footer>brim %s</footer>\n<div id=\"tip\" hidden=\"hidden\"></div>\n",
                  BRIM_VERSION);
  if (!status) status = brim_ui_lab_data(options, set, out);
  brim_ui_put_asset("script", "lab/lab_plot.js", out);
  brim_ui_put_asset("script", "lab/lab.js", out);
  brim_str_append(out, "</body>\n</html>\n");
  brim_str_deinit(&body);
  return status ? status : brim_str_status(out);
}
