// The page of a store (`brim report STORE`). The best setting, failures, the first rows of the tables and the settings
// are in the page without a script; the script (web/lab/lab.js) filters and draws.

#include "ui/sweep/ui_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/pages/ui_pages.h"
#include "ui/sweep/ui_sweep_int.h"

//-------------------------------------- numbers and names --------------------------------------

// The state of an experiment; QUEUED for a name of a state that this version of brim does not know.
static brim_sweep_state lab_state(const brim_lab_exp *exp) {
  brim_sweep_state state = BRIM_SWEEP_QUEUED;
  return brim_sweep_state_of(exp->state, &state) ? state : BRIM_SWEEP_QUEUED;
}

const char *brim_ui_lab_short(const brim_lab_set *set, size_t key) {
  const char *name = set->keys[key].name, *dot = strrchr(name, '.');
  const char *last = dot ? dot + 1 : name;
  for (size_t i = 0; i < set->key_count; i++) {
    const char *other = set->keys[i].name, *end = strrchr(other, '.');
    if (i != key && strcmp(end ? end + 1 : other, last) == 0) return name;
  }
  return last;
}

// Seconds that the attempts of an experiment ran; a running attempt counts until `now_s`. NaN if no attempt ran.
static double lab_seconds(const brim_lab_exp *exp, double now_s) {
  const double ran = (double)exp->ran_ms / 1e3;
  if (exp->since > 0 && now_s > 0) return ran + fmax(0, now_s - (double)exp->since / 1e3);
  return exp->ran_ms > 0 ? ran : (double)NAN;
}

// The label of a metric ("val acc"), or its key if no workload declares it.
static const char *lab_label(const brim_lab_set *set, const char *metric_key) {
  const brim_sweep_metric *display = brim_lab_display(set, metric_key);
  return display ? brim_ui_value_label(display) : metric_key;
}

// The key of the deciding metric: the first of the set if some experiment is ranked by it, else the first experiment's.
// "" if there is no experiment.
static const char *lab_metric(const brim_lab_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    if (set->metric_count > 0 && strcmp(set->exps[i].metric_key, set->metrics[0].key) == 0) {
      return set->metrics[0].key;
    }
  }
  return set->count > 0 ? set->exps[0].metric_key : "";
}

// The group that ranks first by the deciding metric; group_count if no group has a result or no direction is better.
static size_t lab_best(const brim_lab_set *set, brim_lab_result result) {
  const char *key = lab_metric(set);
  const brim_metric_better better = brim_lab_better(set, key);
  size_t best = set->group_count;
  for (size_t i = 0; i < set->group_count && better != BRIM_BETTER_NEITHER; i++) {
    const brim_lab_rank rank = brim_lab_group_rank(&set->groups[i], result);
    if (rank.results == 0 || strcmp(set->groups[i].metric_key, key) != 0) continue;
    if (best < set->group_count) {
      const brim_lab_rank first = brim_lab_group_rank(&set->groups[best], result);
      if (brim_lab_rank_order(&rank, &first, better) >= 0) continue;
    }
    best = i;
  }
  return best;
}

//-------------------------------------- data of the script --------------------------------------
// One JSON object for the script: columns over all experiments. A setting is an index into the list of its values; a
// curve names its steps by an index into a list of step lists. The object is written as text, since a JSON tree of a
// million numbers would take too much memory.

// Puts a JSON string that is safe inside a script element: an unescaped '<' could end the element.
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

static void put_comma(brim_str *out, size_t index) {
  if (index > 0) brim_str_append_char(out, ',');
}

static void put_texts(brim_str *out, const char *const *texts, size_t count) {
  brim_str_append_char(out, '[');
  for (size_t i = 0; i < count; i++) {
    put_comma(out, i);
    put_text(out, texts[i]);
  }
  brim_str_append_char(out, ']');
}

// Puts the texts that the script shows, in the page's language.
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
    put_comma(out, i);
    brim_str_printf(out, "\"%s\":", words[i][0]);
    put_text(out, words[i][1]);
  }
  brim_str_append(out, "},\n");
}

// Puts the names of states, failures and outcomes.
static void put_names(brim_str *out) {
  const char *const outcomes[][2] = {{"open", brim_tr("running")},
                                     {"ok", brim_tr("done")},
                                     {"error", brim_tr("failed")},
                                     {"stopped", brim_tr("stopped")},
                                     {"expired", brim_tr("lease expired")}};
  brim_str_append(out, "\"states\":[");
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    put_comma(out, (size_t)i);
    brim_str_printf(out, "[\"%s\",", brim_sweep_state_name((brim_sweep_state)i));
    put_text(out, brim_ui_sweep_state_name((brim_sweep_state)i));
    brim_str_append_char(out, ']');
  }
  brim_str_append(out, "],\n\"failures\":[");
  for (int i = 0; i < BRIM_FAILURE_COUNT; i++) {
    put_comma(out, (size_t)i);
    put_text(out, i == BRIM_FAILURE_NONE ? "" : brim_ui_failure_class((brim_failure)i));
  }
  brim_str_append(out, "],\n\"outcomes\":{");
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    put_comma(out, i);
    brim_str_printf(out, "\"%s\":", outcomes[i][0]);
    put_text(out, outcomes[i][1]);
  }
  brim_str_append(out, "},\n");
}

typedef struct sort_value {
  const char *text;
  double number;
} sort_value;

static int by_value(const void *a, const void *b) {
  const sort_value *x = a, *y = b;
  if (x->number != y->number && !isnan(x->number) && !isnan(y->number)) {
    return x->number < y->number ? -1 : 1;
  }
  return strcmp(x->text, y->text);
}

// Puts a setting: its distinct values in order, and for each experiment the index of its value; -1 = not set.
static brim_status put_key(const brim_lab_set *set, size_t key, int32_t *numbers, brim_str *out) {
  const brim_lab_key *k = &set->keys[key];
  sort_value *list = brim_calloc(set->count + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  size_t count = 0, distinct = 0;
  for (size_t i = 0; i < set->count; i++) {
    const char *text = set->exps[i].values[key];
    double number = (double)NAN;
    if (!text) continue;
    if (k->number) (void)!brim_parse_f64(text, &number);
    list[count++] = (sort_value){text, number};
  }
  if (count > 0) qsort(list, count, sizeof *list, by_value);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || strcmp(list[i].text, list[distinct - 1].text) != 0) list[distinct++] = list[i];
  }
  for (size_t i = 0; i < set->count; i++) {
    sort_value wanted = {set->exps[i].values[key], (double)NAN};
    numbers[i] = -1;
    if (!wanted.text) continue;
    if (k->number) (void)!brim_parse_f64(wanted.text, &wanted.number);
    const sort_value *match = bsearch(&wanted, list, distinct, sizeof *list, by_value);
    if (match) numbers[i] = (int32_t)(match - list);
  }
  brim_str_append(out, "{\"name\":");
  put_text(out, k->name);
  brim_str_append(out, ",\"short\":");
  put_text(out, brim_ui_lab_short(set, key));
  brim_str_printf(out, ",\"number\":%s,\"over\":%s,\"values\":[", k->number ? "true" : "false",
                  k->over ? "true" : "false");
  for (size_t i = 0; i < distinct; i++) {
    put_comma(out, i);
    put_text(out, list[i].text);
  }
  brim_str_append(out, "],\"of\":[");
  for (size_t i = 0; i < set->count; i++) {
    put_comma(out, i);
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
    put_comma(out, i);
    status = put_key(set, i, numbers, out);
  }
  brim_str_append(out, "],\n");
  brim_free(numbers);
  return status;
}

enum {
  COLUMN_STATE,
  COLUMN_GROUP,
  COLUMN_FAILURE,
  COLUMN_LAST,
  COLUMN_BEST,
  COLUMN_BEST_STEP,
  COLUMN_EPOCH,
  COLUMN_EPOCHS,
  COLUMN_ATTEMPTS,
  COLUMN_SECONDS,
  COLUMN_COUNT
};

static double column_value(const brim_lab_exp *e, int column, double now_s) {
  switch (column) {
    case COLUMN_STATE:
      return lab_state(e);
    case COLUMN_GROUP:
      return (double)e->group;
    case COLUMN_FAILURE:
      return brim_failure_of(e->failure);
    case COLUMN_LAST:
      return e->last;
    case COLUMN_BEST:
      return e->best;
    case COLUMN_BEST_STEP:
      return (double)e->best_step;
    case COLUMN_EPOCH:
      return (double)e->epoch;
    case COLUMN_EPOCHS:
      return (double)e->epochs;
    case COLUMN_ATTEMPTS:
      return (double)(e->attempt_count + e->attempts_left_out);
    default:
      return lab_seconds(e, now_s);
  }
}

static void put_columns(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  static const char *const names[COLUMN_COUNT] = {"state",    "group",    "failure", "last",
                                                  "best",     "bestStep", "epoch",   "epochs",
                                                  "attempts", "seconds"};
  for (int c = 0; c < COLUMN_COUNT; c++) {
    brim_str_printf(out, "\"%s\":[", names[c]);
    for (size_t i = 0; i < set->count; i++) {
      put_comma(out, i);
      put_number(out, column_value(&set->exps[i], c, o->now_s));
    }
    brim_str_append(out, "],\n");
  }
  brim_str_append(out, "\"id\":[");
  for (size_t i = 0; i < set->count; i++) {
    char id[13];
    snprintf(id, sizeof id, "%.12s", set->exps[i].id);
    put_comma(out, i);
    put_text(out, id);
  }
  brim_str_append(out, "],\n\"tags\":[");
  for (size_t i = 0; i < set->count; i++) {
    put_comma(out, i);
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

// Puts attempts, reason and last lines of each experiment that has an attempt or a reason, by the experiment's index.
static void put_details(const brim_lab_set *set, brim_str *out) {
  size_t attempts = 0, bytes = 0, written = 0;
  brim_str_append(out, "\"details\":{");
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_exp *e = &set->exps[i];
    const bool room = attempts + e->attempt_count <= BRIM_UI_LAB_ATTEMPTS;
    if (e->attempt_count == 0 && !e->reason[0]) continue;
    put_comma(out, written++);
    brim_str_printf(out, "\"%zu\":{\"attempts\":[", i);
    for (size_t k = 0; k < e->attempt_count && room; k++) {
      put_comma(out, k);
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
    put_comma(out, i);
    brim_str_printf(out, "[%zu,%zu,", g->members[0], g->count);
    brim_str_printf(out, "%zu,", s->n);
    const double numbers[] = {s->mean, s->stddev, s->least, s->most};
    for (size_t k = 0; k < 4; k++) {
      put_number(out, numbers[k]);
      brim_str_append_char(out, ',');
    }
    put_text(out, text);
    brim_str_append_char(out, ']');
  }
  const size_t best = lab_best(set, o->result);
  brim_str_printf(out, "],\n\"bestGroup\":%lld,\n",
                  best < set->group_count ? (long long)best : -1LL);
}

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

// Puts ,"label":"val acc","percent":2. "percent" is the number of decimals of a percentage; -1 = a plain number.
static void put_display(const brim_lab_set *set, const char *key, brim_str *out) {
  const brim_sweep_metric *display = brim_lab_display(set, key);
  const bool percent = display && display->format == BRIM_METRIC_PERCENT;
  brim_str_append(out, ",\"label\":");
  put_text(out, lab_label(set, key));
  brim_str_printf(out, ",\"percent\":%d", !percent ? -1 : display->digits ? display->digits : 2);
}

// Puts the curves of a metric. Lists of steps go to `steps`; a curve with the same steps as the previous one shares its
// list.
static void put_metric(const brim_lab_set *set, size_t metric, size_t *lists, brim_str *steps,
                       brim_str *out) {
  const brim_lab_curve *previous = NULL;
  size_t written = 0;
  brim_str_append(out, "{\"key\":");
  put_text(out, set->metrics[metric].key);
  put_display(set, set->metrics[metric].key, out);
  brim_str_printf(out, ",\"better\":%d,\"curves\":[", (int)set->metrics[metric].better);
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_curve *c = curve_of(&set->exps[i], metric);
    if (!c) continue;
    if (!same_steps(previous, c)) {
      put_comma(steps, *lists);
      brim_str_append_char(steps, '[');
      for (size_t k = 0; k < c->count; k++) {
        put_comma(steps, k);
        brim_str_printf(steps, "%lld", (long long)c->points[k].step);
      }
      brim_str_append_char(steps, ']');
      ++*lists;
    }
    previous = c;
    put_comma(out, written++);
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
  size_t lists = 0, points = 0, written = 0;
  brim_str_init(&steps);
  brim_str_append(out, "\"metrics\":[");
  for (size_t i = 0; i < set->metric_count; i++) {
    const size_t metric_points = points_of(set, i);
    if (metric_points == 0 || (written > 0 && points + metric_points > BRIM_UI_LAB_POINTS))
      continue;
    points += metric_points;
    put_comma(out, written++);
    put_metric(set, i, &lists, &steps, out);
  }
  brim_str_append(out, "],\n\"steps\":[");
  brim_str_append_n(out, steps.data, steps.len);
  brim_str_append(out, "],\n");
  brim_status status = brim_str_status(&steps);
  brim_str_deinit(&steps);
  return status;
}

static brim_status put_data(const brim_ui_lab_options *options, const brim_lab_set *set,
                            brim_str *out) {
  const char *metric = lab_metric(set);
  brim_str_append(out, "<script type=\"application/json\" id=\"data\">{\n");
  put_words(out);
  put_names(out);
  brim_status status = put_keys(set, out);
  put_columns(options, set, out);
  put_details(set, out);
  put_groups(options, set, out);
  if (!status) status = put_curves(set, out);
  const brim_metric_better better = brim_lab_better(set, metric);
  const bool best = options->result == BRIM_LAB_BEST && better != BRIM_BETTER_NEITHER;
  brim_str_printf(out, "\"count\":%zu,\"result\":\"%s\",\"better\":%d,\"metric\":", set->count,
                  best ? "best" : "last", (int)better);
  put_text(out, metric);
  put_display(set, metric, out);
  brim_str_append(out, ",\"place\":");
  put_text(out, options->place ? options->place : "");
  brim_str_append(out, "}</script>\n");
  return status ? status : brim_str_status(out);
}

//-------------------------------------------- tables --------------------------------------------
// The tables that the page has without the script: groups over seeds, experiments, settings that differ, settings that
// all experiments share. The script builds the first two tables again, with all rows.

enum { MAX_VALUES = 24 };

static void put_cell(const char *kind, const char *text, brim_str *out) {
  brim_str_append(out, "<td");
  if (kind) brim_ui_put_attribute(out, "class", kind);
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</td>");
}

static void put_heads(const brim_lab_set *set, bool repetitions, brim_str *out) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over && !repetitions) continue;
    brim_str_append(out, "<th");
    brim_ui_put_attribute(out, "title", set->keys[i].name);
    brim_str_append_char(out, '>');
    brim_ui_escape_html(out, brim_ui_lab_short(set, i));
    brim_str_append(out, "</th>");
  }
}

static void put_values(const brim_lab_set *set, const brim_lab_exp *e, bool repetitions,
                       brim_str *out) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over && !repetitions) continue;
    put_cell(NULL, e->values[i] ? e->values[i] : BRIM_UI_DASH, out);
  }
}

static void open_table(const char *id, brim_str *out) {
  brim_str_printf(out,
                  "<div class=\"scroll\" id=\"%s-table\" tabindex=\"0\"><table class=\"all\">"
                  "<thead><tr>",
                  id);
}

static void close_table(size_t rows, brim_str *out) {
  brim_str_append(out, "</tbody></table></div>");
  if (rows > BRIM_UI_LAB_ROWS) {
    brim_str_append(out, "<p class=\"still note\">");
    brim_str_printf(out, brim_tr("The first %d of %zu; all of them need JavaScript."),
                    BRIM_UI_LAB_ROWS, rows);
    brim_str_append(out, "</p>");
  }
  brim_str_append(out, "\n</section>\n");
}

// A row to sort by its result: the best first, rows without a result last. Equal rows, or rows of a metric without a
// better direction, keep the order of submission.
typedef struct ranked {
  size_t index;
  brim_lab_rank rank;
  brim_metric_better better;
} ranked;

static int by_result(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  const int order = brim_lab_rank_order(&x->rank, &y->rank, x->better);
  return order ? order : (x->index > y->index) - (x->index < y->index);
}

static void put_group_row(const brim_ui_lab_options *o, const brim_lab_set *set,
                          const brim_lab_group *g, brim_str *out) {
  const brim_lab_stats *stats = brim_lab_group_stats(g, o->result);
  const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
  char text[80];
  brim_str_append(out, "<tr>");
  put_values(set, &set->exps[g->members[0]], false, out);
  brim_ui_value_spread(display, stats->mean, stats->stddev, text);
  put_cell(NULL, text, out);
  snprintf(text, sizeof text, "%zu / %zu", stats->n, g->count);
  put_cell(stats->n < g->count ? "partial" : NULL, text, out);
  brim_ui_value_or_dash(display, stats->least, text);
  put_cell(NULL, text, out);
  brim_ui_value_or_dash(display, stats->most, text);
  put_cell(NULL, text, out);
  brim_str_append(out, "</tr>\n");
}

static brim_status put_group_table(const brim_ui_lab_options *o, const brim_lab_set *set,
                                   brim_str *out) {
  bool repeats = false;
  for (size_t i = 0; i < set->group_count; i++) repeats |= set->groups[i].count > 1;
  if (!repeats) return BRIM_OK;
  ranked *order = brim_calloc(set->group_count + 1, sizeof *order);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  const brim_metric_better better = brim_lab_better(set, lab_metric(set));
  for (size_t i = 0; i < set->group_count; i++) {
    order[i] = (ranked){i, brim_lab_group_rank(&set->groups[i], o->result), better};
  }
  qsort(order, set->group_count, sizeof *order, by_result);
  brim_ui_put_section(out, "groups", brim_tr("Groups"),
                      brim_tr("Experiments that differ only in their repetition (the seed) are "
                              "one group: mean \xc2\xb1 standard deviation of those that are "
                              "done."));
  open_table("groups", out);
  put_heads(set, false, out);
  brim_ui_put(out, "th", lab_label(set, lab_metric(set)));
  brim_ui_put(out, "th", brim_tr("results"));
  brim_ui_put(out, "th", brim_tr("lowest"));
  brim_ui_put(out, "th", brim_tr("highest"));
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < set->group_count && i < BRIM_UI_LAB_ROWS; i++) {
    put_group_row(o, set, &set->groups[order[i].index], out);
  }
  close_table(set->group_count, out);
  brim_free(order);
  return BRIM_OK;
}

static void put_experiment(const brim_ui_lab_options *o, const brim_lab_set *set,
                           const brim_lab_exp *e, brim_str *out) {
  const brim_sweep_state state = lab_state(e);
  const brim_sweep_metric *display = brim_lab_display(set, e->metric_key);
  char text[64], kind[32];
  brim_str_append(out, "<tr>");
  snprintf(kind, sizeof kind, "s-%s", brim_sweep_state_name(state));
  put_cell(kind, brim_ui_sweep_state_name(state), out);
  put_values(set, e, true, out);
  brim_ui_value_or_dash(display, e->last, text);
  put_cell(NULL, text, out);
  brim_ui_value_or_dash(display, e->best, text);
  put_cell(NULL, text, out);
  if (e->epoch >= 0 && e->epochs > 0) {
    snprintf(text, sizeof text, "%lld / %lld", (long long)e->epoch, (long long)e->epochs);
  } else {
    snprintf(text, sizeof text, BRIM_UI_DASH);
  }
  put_cell(NULL, text, out);
  const double seconds = lab_seconds(e, o->now_s);
  if (isnan(seconds)) {
    snprintf(text, sizeof text, BRIM_UI_DASH);
  } else {
    brim_format_duration(seconds, text);
  }
  put_cell(NULL, text, out);
  put_cell("status",
           state == BRIM_SWEEP_FAILED ? brim_ui_failure_class(brim_failure_of(e->failure)) : "",
           out);
  brim_str_append(out, "</tr>\n");
}

static brim_status put_experiments(const brim_ui_lab_options *o, const brim_lab_set *set,
                                   brim_str *out) {
  ranked *order = brim_calloc(set->count + 1, sizeof *order);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  const brim_metric_better better = brim_lab_better(set, lab_metric(set));
  for (size_t i = 0; i < set->count; i++) {
    const brim_lab_exp *e = &set->exps[i];
    order[i] = (ranked){i, {brim_lab_exp_result(e, o->result), e->done, 1}, better};
  }
  qsort(order, set->count, sizeof *order, by_result);
  brim_ui_put_section(out, "experiments", brim_tr("Experiments"), NULL);
  open_table("experiments", out);
  brim_ui_put(out, "th", brim_tr("state"));
  put_heads(set, true, out);
  char head[96];
  snprintf(head, sizeof head, brim_tr("%.60s, last"), lab_label(set, lab_metric(set)));
  brim_ui_put(out, "th", head);
  brim_ui_put(out, "th", brim_tr("best"));
  brim_ui_put(out, "th", brim_tr("epoch"));
  brim_ui_put(out, "th", brim_tr("time"));
  brim_ui_put(out, "th", brim_tr("failure"));
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < set->count && i < BRIM_UI_LAB_ROWS; i++) {
    put_experiment(o, set, &set->exps[order[i].index], out);
  }
  brim_free(order);
  close_table(set->count, out);
  brim_str_append(out,
                  "<aside id=\"detail\" class=\"panel\" hidden=\"hidden\" tabindex=\"-1\">"
                  "</aside>\n");
  return BRIM_OK;
}

// A value of a setting, and the number of experiments that have it.
typedef struct value_count {
  const char *value;
  size_t count;
} value_count;

// Lists the first MAX_VALUES distinct values of a setting. Returns their number.
static size_t count_values(const brim_lab_set *set, size_t key, value_count *list) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) {
    const char *value = set->exps[i].values[key];
    size_t at = 0;
    while (at < count && list[at].value != value) at++;  // equal texts have one address
    if (at == MAX_VALUES) continue;
    if (at == count) list[count++] = (value_count){value, 0};
    list[at].count++;
  }
  return count;
}

static void put_setting_row(const brim_lab_set *set, size_t key, brim_str *out) {
  value_count list[MAX_VALUES];
  const size_t count = count_values(set, key, list);
  brim_str_append(out, "<tr><th scope=\"row\">");
  brim_ui_escape_html(out, set->keys[key].name);
  brim_str_append(out, "</th><td>");
  for (size_t i = 0; i < count; i++) {
    brim_str_append(out, "<span class=\"value\">");
    brim_ui_put(out, "b", list[i].value ? list[i].value : brim_tr("not set"));
    brim_str_printf(out, " \xc3\x97%zu</span> ", list[i].count);
  }
  if (set->keys[key].distinct > MAX_VALUES) {
    brim_str_append(out, "<span class=\"value\">");
    brim_str_printf(out, brim_tr("and %zu other values"), set->keys[key].distinct - MAX_VALUES);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</td></tr>\n");
}

static void put_settings(const brim_lab_set *set, brim_str *out) {
  if (set->key_count == 0 && set->common_count == 0) return;
  brim_ui_put_section(out, "settings", brim_tr("Settings"),
                      set->key_count > 0 ? brim_tr("Settings in which the experiments differ, and "
                                                   "how many have each value.")
                                         : NULL);
  if (set->key_count > 0) {
    brim_str_append(out, "<table class=\"differ\"><tbody>\n");
    for (size_t i = 0; i < set->key_count; i++) put_setting_row(set, i, out);
    brim_str_append(out, "</tbody></table>\n");
  }
  if (set->keys_left_out > 0) {
    brim_str_append(out, "<p class=\"note\">");
    brim_str_printf(out, brim_tr("settings that are left out: %zu"), set->keys_left_out);
    brim_str_append(out, "</p>");
  }
  if (set->common_count > 0) {
    brim_str_append(out, "<details><summary>");
    brim_str_printf(out, brim_tr("%zu settings that all experiments share"), set->common_count);
    brim_str_append(out, "</summary><dl class=\"facts\">\n");
    for (size_t i = 0; i < set->common_count; i++) {
      brim_ui_put_pair(out, set->common[i].name, set->common[i].value);
    }
    brim_str_append(out, "</dl></details>\n");
  }
  brim_str_append(out, "</section>\n");
}

//--------------------------------------------- page ---------------------------------------------

enum { MAX_CAUSES = 64 };

static void put_when(const char *text, double when_s, brim_str *out) {
  char when[32], line[96];
  brim_clock_iso8601(when_s, when);  // 2026-11-15T02:20:29Z
  if (strlen(when) >= 19) when[10] = ' ', when[16] = '\0';
  snprintf(line, sizeof line, text, when);
  brim_str_append_char(out, ' ');
  brim_ui_put(out, "span", line);
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
  double start = 0;  // when the first experiment began
  for (size_t i = 0; i < set->count; i++) {
    const double began = (double)set->exps[i].started / 1e3;
    if (began > 0 && (start <= 0 || began < start)) start = began;
  }
  if (start > 0) put_when(brim_tr("begun %s UTC"), start, out);
  if (o->now_s > 0) put_when(brim_tr("as of %s UTC"), o->now_s, out);
  brim_str_append(out, "</p></header>\n");
}

// Puts a bar that divides all experiments by state, and the count of each state.
static void put_states(const brim_lab_set *set, brim_str *out) {
  size_t counts[BRIM_SWEEP_STATE_COUNT] = {0};
  for (size_t i = 0; i < set->count; i++) counts[lab_state(&set->exps[i])]++;
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
    brim_ui_escape_html(out, brim_ui_sweep_state_name(order[i]));
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul></div>\n");
}

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

// Says how many other settings are not certainly worse than the best, or that one result per setting cannot tell.
static void put_rivals(const brim_ui_lab_options *o, const brim_lab_set *set, size_t best,
                       brim_str *out) {
  const brim_lab_group *g = &set->groups[best];
  const brim_metric_better better = brim_lab_better(set, g->metric_key);
  const brim_lab_stats *own = brim_lab_group_stats(g, o->result);
  size_t not_worse = 0, other_count = 0, single_count = 0;
  for (size_t i = 0; i < set->group_count; i++) {
    const brim_lab_stats *other = brim_lab_group_stats(&set->groups[i], o->result);
    if (i == best || other->n == 0 || strcmp(set->groups[i].metric_key, g->metric_key) != 0)
      continue;
    brim_lab_difference difference;
    const brim_lab_verdict verdict = brim_lab_differ(own, other, better, &difference);
    other_count++;
    not_worse += verdict != BRIM_LAB_WORSE;
    single_count += verdict == BRIM_LAB_ONCE;
  }
  if (other_count == 0) return;
  char line[256];
  if (own->n < 2 || single_count == other_count) {
    snprintf(line, sizeof line, "%s",
             brim_tr("One result per setting does not show how far repetitions differ. Use several "
                     "seeds (seeds: 5) to compare settings."));
  } else if (not_worse == 0) {
    snprintf(line, sizeof line,
             other_count == 1
                 ? brim_tr("Certainly better than the %zu other setting (95 %%).")
                 : brim_tr("Certainly better than each of the %zu other settings (95 %%)."),
             other_count);
  } else {
    snprintf(line, sizeof line,
             brim_tr("%zu of %zu other settings cannot be told apart from it with this many "
                     "seeds (95 %%)."),
             not_worse, other_count);
  }
  brim_ui_put_class(out, "p", "note", line);
}

static void put_best(const brim_ui_lab_options *o, const brim_lab_set *set, brim_str *out) {
  const size_t best = lab_best(set, o->result);
  char text[80], line[128];
  if (best == set->group_count) return;
  const brim_lab_group *g = &set->groups[best];
  const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
  const brim_lab_stats *stats = brim_lab_group_stats(g, o->result);
  brim_str_append(out, "<section id=\"best\"><div class=\"hero\">");
  brim_ui_put(out, "h2", brim_tr("Best setting"));
  put_setting(set, &set->exps[g->members[0]], out);
  brim_str_append(out, "<dl class=\"stats\"><div>");
  brim_ui_value_spread(display, stats->mean, stats->stddev, text);
  snprintf(
      line, sizeof line, "%.60s, %s", lab_label(set, g->metric_key),
      o->result == BRIM_LAB_BEST ? brim_tr("best value of a run") : brim_tr("last value of a run"));
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
    brim_ui_value_or_dash(display, lower ? stats->least : stats->most, text);
    brim_str_append(out, "<div>");
    brim_ui_put_pair(out, brim_tr("best of them"), text);
    brim_str_append(out, "</div>");
  }
  brim_str_append(out, "</dl>");
  put_rivals(o, set, best, out);
  brim_str_append(out, "</div></section>\n");
}

// Experiments that failed with the same class and reason.
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
    if (lab_state(e) != BRIM_SWEEP_FAILED) continue;
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
  // Experiments of a grid without axes have no label.
  brim_ui_escape_html(out, c->first->label[0] ? c->first->label : o->title);
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
    size_t failed = 0;
    for (size_t i = 0; i < count; i++) {
      if (list[i].failure == (brim_failure)failure) failed += list[i].count;
    }
    if (failed == 0) continue;
    brim_str_append(out, "<div class=\"cause\"><h3>");
    brim_ui_escape_html(out, brim_ui_failure_class((brim_failure)failure));
    brim_str_printf(out, " <small>%zu</small></h3><ul>", failed);
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

// Puts a note in place of a drawing, for pages without the script.
static void put_placeholder(brim_str *out) {
  brim_ui_put_class(out, "p", "still note", brim_tr("This drawing needs JavaScript."));
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
    put_placeholder(out);
    brim_str_append(out, "</section>\n");
  }
  if (curves == 0) return;
  brim_ui_put_section(out, "curves", brim_tr("Curves"), NULL);
  brim_str_append(out,
                  "<div id=\"curve-tools\" class=\"tools js\"></div>"
                  "<div class=\"panel\"><canvas id=\"plot\" role=\"img\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Curves"));
  brim_str_append(out, "></canvas></div><ul class=\"legend js\" id=\"curve-legend\"></ul>");
  put_placeholder(out);
  brim_str_append(out, "</section>\n");
}

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
  BRIM_TRY(put_group_table(o, set, out));
  BRIM_TRY(put_experiments(o, set, out));
  put_settings(set, out);
  put_about(o, set, out);
  return brim_str_status(out);
}

brim_status brim_ui_lab_report(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out) {
  static const char *const styles[] = {"report/report.css", "lab/lab.css", NULL};
  const brim_ui_link links[] = {
      {"failures", brim_tr("Failures")},
      {"coordinates", brim_tr("Settings and results")},
      {"curves", brim_tr("Curves")},
      {"groups", brim_tr("Groups")},
      {"experiments", brim_tr("Experiments")},
      {"settings", brim_tr("Settings")},
      {"about", brim_tr("Source")},
  };
  brim_str body;
  brim_str_init(&body);
  brim_status status = put_body(options, set, &body);
  if (!status) status = brim_str_status(&body);
  brim_ui_put_head(options->title, styles, out);
  brim_str_append(out, "<body>\n");
  put_header(options, set, out);
  if (!status && set->count > 0) {
    brim_ui_put_nav(&body, links, sizeof links / sizeof *links, out);
  }
  brim_str_append(out, "<main>\n");
  if (!status) brim_str_append_n(out, body.data, body.len);
  brim_str_printf(out,
                  "</main>\n<footer>brim %s</footer>\n<div id=\"tip\" hidden=\"hidden\"></div>\n",
                  BRIM_VERSION);
  if (!status) status = put_data(options, set, out);
  brim_ui_put_scripts((const char *[]){"lab/lab_plot.js", "lab/lab.js", NULL}, out);
  brim_str_append(out, "</body>\n</html>\n");
  brim_str_deinit(&body);
  return status ? status : brim_str_status(out);
}
