// What the script of a store's page shows, as one JSON value: columns over all experiments, values
// by their number in a list of each setting, curves by their number in a list of steps.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/ui_lab_int.h"

//---------------------------------- JSON ----------------------------------

// Safe inside a script element: a '<' could end it.
static void put_text(brim_str *out, const char *text) {
  brim_str_append_char(out, '"');
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p == '"' || *p == '\\') {
      brim_str_append_char(out, '\\');
      brim_str_append_char(out, (char)*p);
    } else if (*p < 0x20 || *p == 0x7f || *p == '<') {
      brim_str_printf(out, "\\u%04x", *p);
    } else {
      brim_str_append_char(out, (char)*p);
    }
  }
  brim_str_append_char(out, '"');
}

static void put_number(brim_str *out, double value) {
  if (isfinite(value)) {
    brim_str_printf(out, "%.6g", value);
  } else {
    brim_str_append(out, "null");
  }
}

static void comma(brim_str *out, size_t index) {
  if (index > 0) brim_str_append_char(out, ',');
}

static void put_texts(brim_str *out, const char *const *texts, size_t count) {
  brim_str_append_char(out, '[');
  for (size_t i = 0; i < count; i++) {
    comma(out, i);
    put_text(out, texts[i]);
  }
  brim_str_append_char(out, ']');
}

//---------------------------------- texts of the page ----------------------------------

static void put_words(brim_str *out) {
  const char *const words[][2] = {
      {"all", brim_tr("all")},
      {"state", brim_tr("state")},
      {"last", brim_tr("last")},
      {"best", brim_tr("best")},
      {"epoch", brim_tr("epoch")},
      {"step", brim_tr("step")},
      {"time", brim_tr("time")},
      {"failure", brim_tr("failure")},
      {"attempt", brim_tr("attempt")},
      {"attempts", brim_tr("attempts")},
      {"results", brim_tr("results")},
      {"lowest", brim_tr("lowest")},
      {"highest", brim_tr("highest")},
      {"shown", brim_tr("{0} of {1} experiments")},
      {"metric", brim_tr("Metric")},
      {"colour", brim_tr("Colour")},
      {"group", brim_tr("group")},
      {"result", brim_tr("result")},
      {"logarithmic", brim_tr("logarithmic")},
      {"mean", brim_tr("mean of each group")},
      {"close", brim_tr("Close")},
      {"lines", brim_tr("last lines")},
      {"settings", brim_tr("settings")},
      {"host", brim_tr("machine")},
      {"devices", brim_tr("device")},
      {"outcome", brim_tr("outcome")},
      {"from", brim_tr("from step")},
      {"message", brim_tr("message")},
      {"unset", brim_tr("not set")},
      {"none", brim_tr("No experiment passes the filters.")},
      {"noCurves", brim_tr("No experiment that is shown has values of this metric.")},
      {"log", brim_tr("log")},
      {"atStep", brim_tr("at step {0}")},
      {"tags", brim_tr("tags")},
      {"steps", brim_tr("steps")},
      {"epochs", brim_tr("epochs")},
      {"along", brim_tr("Over")},
      {"band", brim_tr("The band is one standard deviation wide on each side.")},
  };
  brim_str_append(out, "\"text\":{");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    comma(out, i);
    brim_str_printf(out, "\"%s\":", words[i][0]);
    put_text(out, words[i][1]);
  }
  brim_str_append(out, "},\n");
}

static void put_names(brim_str *out) {
  const char *const outcomes[][2] = {{"open", brim_tr("running")},
                                     {"ok", brim_tr("done")},
                                     {"error", brim_tr("failed")},
                                     {"stopped", brim_tr("stopped")},
                                     {"expired", brim_tr("lease expired")}};
  brim_str_append(out, "\"states\":[");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    comma(out, (size_t)i);
    brim_str_printf(out, "[\"%s\",", brim_sweep_state_name((brim_sweep_state)i));
    put_text(out, brim_ui_lab_state_text((brim_sweep_state)i));
    brim_str_append_char(out, ']');
  }
  brim_str_append(out, "],\n\"failures\":[");
  for (int i = 0; i < BRIM_FAILURE_COUNT; i++) {
    comma(out, (size_t)i);
    put_text(out, i == BRIM_FAILURE_NONE ? "" : brim_ui_failure_class((brim_failure)i));
  }
  brim_str_append(out, "],\n\"outcomes\":{");
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    comma(out, i);
    brim_str_printf(out, "\"%s\":", outcomes[i][0]);
    put_text(out, outcomes[i][1]);
  }
  brim_str_append(out, "},\n");
}

//---------------------------------- settings ----------------------------------

typedef struct sorting {
  const char *text;
  double number;
} sorting;

static int by_value(const void *a, const void *b) {
  const sorting *x = a, *y = b;
  if (x->number != y->number && !isnan(x->number) && !isnan(y->number)) {
    return x->number < y->number ? -1 : 1;
  }
  return strcmp(x->text, y->text);
}

// The different values of a setting in order, and the number of each experiment's; -1 = none.
static brim_status put_key(const brim_lab_set *set, size_t key, int32_t *numbers, brim_str *out) {
  const brim_lab_key *k = &set->keys[key];
  sorting *list = brim_calloc(set->count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  size_t count = 0, kept = 0;
  for (size_t i = 0; i < set->count; i++) {
    const char *text = set->exps[i].values[key];
    double number = (double)NAN;
    if (!text) continue;
    if (k->number) (void)!brim_parse_f64(text, &number);
    list[count++] = (sorting){text, number};
  }
  if (count > 0) qsort(list, count, sizeof *list, by_value);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || strcmp(list[i].text, list[kept - 1].text) != 0) list[kept++] = list[i];
  }
  for (size_t i = 0; i < set->count; i++) {
    sorting own = {set->exps[i].values[key], (double)NAN};
    numbers[i] = -1;
    if (!own.text) continue;
    if (k->number) (void)!brim_parse_f64(own.text, &own.number);
    const sorting *at = bsearch(&own, list, kept, sizeof *list, by_value);
    if (at) numbers[i] = (int32_t)(at - list);
  }
  brim_str_append(out, "{\"name\":");
  put_text(out, k->name);
  brim_str_append(out, ",\"short\":");
  put_text(out, brim_ui_lab_short(set, key));
  brim_str_printf(out, ",\"number\":%s,\"over\":%s,\"values\":[", k->number ? "true" : "false",
                  k->over ? "true" : "false");
  for (size_t i = 0; i < kept; i++) {
    comma(out, i);
    put_text(out, list[i].text);
  }
  brim_str_append(out, "],\"of\":[");
  for (size_t i = 0; i < set->count; i++) {
    comma(out, i);
    brim_str_printf(out, "%d", numbers[i]);
  }
  brim_str_append(out, "]}");
  brim_free(list);
  return BRIM_OK;
}

static brim_status put_keys(const brim_lab_set *set, brim_str *out) {
  int32_t *numbers = brim_calloc(set->count + 1, sizeof *numbers);
  brim_status status = numbers ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a page");
  brim_str_append(out, "\"keys\":[");
  for (size_t i = 0; i < set->key_count && !status; i++) {
    comma(out, i);
    status = put_key(set, i, numbers, out);
  }
  brim_str_append(out, "],\n");
  brim_free(numbers);
  return status;
}

//---------------------------------- experiments ----------------------------------

typedef double (*number_fn)(const brim_lab_exp *exp, double now_s);

static double state_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return brim_ui_lab_state(e);
}
static double group_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return (double)e->group;
}
static double failure_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return brim_failure_of(e->failure);
}
static double last_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return e->last;
}
static double best_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return e->best;
}
static double best_step_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return (double)e->best_step;
}
static double epoch_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return (double)e->epoch;
}
static double epochs_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return (double)e->epochs;
}
static double attempts_of(const brim_lab_exp *e, double now_s) {
  (void)now_s;
  return (double)(e->attempt_count + e->attempts_left_out);
}

// The column that counts, where it is neither of the two: no direction is better.
static const char *result_name(const brim_ui_lab_options *o, const brim_lab_set *set) {
  const bool directed = brim_lab_better(set, brim_ui_lab_metric(set)) != BRIM_BETTER_NEITHER;
  return o->result == BRIM_LAB_BEST && directed ? "best" : "last";
}

static void put_columns(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  static const struct {
    const char *name;
    number_fn get;
  } columns[] = {{"state", state_of},       {"group", group_of},
                 {"failure", failure_of},   {"last", last_of},
                 {"best", best_of},         {"bestStep", best_step_of},
                 {"epoch", epoch_of},       {"epochs", epochs_of},
                 {"attempts", attempts_of}, {"seconds", brim_ui_lab_seconds}};
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
    brim_str_printf(out, "\"%s\":[", columns[c].name);
    for (size_t i = 0; i < set->count; i++) {
      comma(out, i);
      put_number(out, columns[c].get(&set->exps[i], o->now_s));
    }
    brim_str_append(out, "],\n");
  }
  brim_str_append(out, "\"id\":[");
  for (size_t i = 0; i < set->count; i++) {
    char id[13];
    snprintf(id, sizeof id, "%.12s", set->exps[i].id);
    comma(out, i);
    put_text(out, id);
  }
  brim_str_append(out, "],\n\"tags\":[");
  for (size_t i = 0; i < set->count; i++) {
    comma(out, i);
    put_text(out, set->exps[i].tags);
  }
  brim_str_append(out, "],\n");
}

static void put_attempt(const brim_lab_attempt *a, brim_str *out) {
  const char *const texts[] = {a->outcome, a->host[0] ? a->host : a->worker, a->devices,
                               a->message};
  brim_str_printf(out, "[%lld,%lld,%d,", (long long)a->n, (long long)a->from_step,
                  (int)brim_failure_of(a->failure));
  const double seconds =
      a->started > 0 && a->ended > 0 ? (double)(a->ended - a->started) / 1e3 : (double)NAN;
  put_number(out, seconds);
  brim_str_append_char(out, ',');
  put_texts(out, texts, 4);
  brim_str_append_char(out, ']');
}

// Attempts, reasons and last lines by the number of the experiment.
static void put_details(const brim_lab_set *set, brim_str *out) {
  size_t attempts = 0, bytes = 0, any = 0;
  brim_str_append(out, "\"details\":{");
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_exp *e = &set->exps[i];
    const bool room = attempts + e->attempt_count <= BRIM_UI_LAB_ATTEMPTS;
    if (e->attempt_count == 0 && !e->reason[0]) continue;
    comma(out, any++);
    brim_str_printf(out, "\"%zu\":{\"attempts\":[", i);
    for (size_t k = 0; k < e->attempt_count && room; k++) {
      comma(out, k);
      put_attempt(&e->attempts[k], out);
      attempts++;
    }
    brim_str_append_char(out, ']');
    if (e->reason[0]) {
      brim_str_append(out, ",\"reason\":");
      put_text(out, e->reason);
    }
    bytes += strlen(e->last_lines);
    if (e->last_lines[0] && bytes < BRIM_UI_LAB_LINES) {
      brim_str_append(out, ",\"lines\":");
      put_text(out, e->last_lines);
    }
    brim_str_append_char(out, '}');
  }
  brim_str_append(out, "},\n");
}

static void put_groups(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  brim_str_append(out, "\"groups\":[");
  for (size_t i = 0; i < set->group_count; i++) {
    const brim_lab_group *g = &set->groups[i];
    const brim_lab_stats *s = brim_lab_group_stats(g, o->result);
    char text[80];
    brim_ui_value_spread(brim_lab_display(set, g->metric_key), s->mean, s->stddev, text);
    comma(out, i);
    brim_str_printf(out, "[%zu,%zu,", g->list[0], g->count);
    brim_str_printf(out, "%zu,", s->n);
    const double numbers[] = {s->mean, s->stddev, s->least, s->most};
    for (size_t k = 0; k < 4; k++) {
      put_number(out, numbers[k]);
      brim_str_append_char(out, ',');
    }
    put_text(out, text);
    brim_str_append_char(out, ']');
  }
  const size_t best = brim_ui_lab_best(set, o->result);
  brim_str_printf(out, "],\n\"bestGroup\":%lld,\n",
                  best < set->group_count ? (long long)best : -1LL);
}

//---------------------------------- curves ----------------------------------

static const brim_lab_curve *curve_of(const brim_lab_exp *e, size_t metric) {
  for (size_t i = 0; i < e->curve_count; i++) {
    if (e->curves[i].metric == metric) return &e->curves[i];
  }
  return NULL;
}

static bool same_steps(const brim_lab_curve *a, const brim_lab_curve *b) {
  if (!a || a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++) {
    if (a->points[i].step != b->points[i].step) return false;
  }
  return true;
}

// ,"label":"val acc","percent":2: decimals of a percentage; -1 = a plain number.
static void put_display(const brim_lab_set *set, const char *key, brim_str *out) {
  const brim_sweep_metric *display = brim_lab_display(set, key);
  const bool percent = display && display->format == BRIM_METRIC_PERCENT;
  brim_str_append(out, ",\"label\":");
  put_text(out, brim_ui_lab_label(set, key));
  brim_str_printf(out, ",\"percent\":%d", !percent ? -1 : display->digits ? display->digits : 2);
}

// Lists of steps go to `steps`; most curves have those of the curve before.
static void put_metric(const brim_lab_set *set, size_t metric, size_t *lists, brim_str *steps,
                       brim_str *out) {
  const brim_lab_curve *before = NULL;
  size_t any = 0;
  brim_str_append(out, "{\"key\":");
  put_text(out, set->metrics[metric].key);
  put_display(set, set->metrics[metric].key, out);
  brim_str_printf(out, ",\"better\":%d,\"curves\":[", (int)set->metrics[metric].better);
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_curve *c = curve_of(&set->exps[i], metric);
    if (!c) continue;
    if (!same_steps(before, c)) {
      comma(steps, *lists);
      brim_str_append_char(steps, '[');
      for (size_t k = 0; k < c->count; k++) {
        comma(steps, k);
        brim_str_printf(steps, "%lld", (long long)c->points[k].step);
      }
      brim_str_append_char(steps, ']');
      ++*lists;
    }
    before = c;
    comma(out, any++);
    brim_str_printf(out, "[%zu,%zu", i, *lists - 1);
    for (size_t k = 0; k < c->count; k++) {
      brim_str_append_char(out, ',');
      put_number(out, c->points[k].value);
    }
    brim_str_append_char(out, ']');
  }
  brim_str_append(out, "]}");
}

static size_t points_of(const brim_lab_set *set, size_t metric) {
  size_t points = 0;
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_curve *c = curve_of(&set->exps[i], metric);
    if (c) points += c->count;
  }
  return points;
}

static brim_status put_curves(const brim_lab_set *set, brim_str *out) {
  brim_str steps;
  size_t lists = 0, points = 0, any = 0;
  brim_str_init(&steps);
  brim_str_append(out, "\"metrics\":[");
  for (size_t i = 0; i < set->metric_count; i++) {
    const size_t own = points_of(set, i);
    if (own == 0 || (any > 0 && points + own > BRIM_UI_LAB_POINTS)) continue;
    points += own;
    comma(out, any++);
    put_metric(set, i, &lists, &steps, out);
  }
  brim_str_append(out, "],\n\"steps\":[");
  brim_str_append_n(out, steps.data, steps.len);
  brim_str_append(out, "],\n");
  brim_status status = brim_str_status(&steps);
  brim_str_deinit(&steps);
  return status;
}

//---------------------------------- all of it ----------------------------------

brim_status brim_ui_lab_data(const brim_ui_lab_options *options, const brim_lab_set *set,
                             brim_str *out) {
  const char *metric = brim_ui_lab_metric(set);
  brim_str_append(out, "<script type=\"application/json\" id=\"data\">{\n");
  put_words(out);
  put_names(out);
  brim_status status = put_keys(set, out);
  put_columns(options, set, out);
  put_details(set, out);
  put_groups(options, set, out);
  if (!status) status = put_curves(set, out);
  brim_str_printf(out, "\"count\":%zu,\"result\":\"%s\",\"better\":%d,\"metric\":", set->count,
                  result_name(options, set), (int)brim_lab_better(set, metric));
  put_text(out, metric);
  put_display(set, metric, out);
  brim_str_append(out, ",\"place\":");
  put_text(out, options->place ? options->place : "");
  brim_str_append(out, "}</script>\n");
  return status ? status : brim_str_status(out);
}
