// Tables of the page of a store as they stand without a script: groups over seeds, experiments, the
// settings that differ and those that all experiments share. The script makes the first two again, with
// all rows.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/ui_lab_int.h"

enum { MAX_VALUES = 24 };

static void put_cell(const char *kind, const char *text, brim_str *out) {
  brim_str_append(out, "<td");
  if (kind) brim_ui_put_attribute(out, "class", kind);
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</td>");
}

static void put_heads(const brim_lab_set *set, bool over, brim_str *out) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over && !over) continue;
    brim_str_append(out, "<th");
    brim_ui_put_attribute(out, "title", set->keys[i].name);
    brim_str_append_char(out, '>');
    brim_ui_escape_html(out, brim_ui_lab_short(set, i));
    brim_str_append(out, "</th>");
  }
}

static void put_values(const brim_lab_set *set, const brim_lab_exp *e, bool over, brim_str *out) {
  for (size_t i = 0; i < set->key_count; i++) {
    if (set->keys[i].over && !over) continue;
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

//---------------------------------- order ----------------------------------

// Rows by their results, the best first; without a direction as they were submitted.
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

//---------------------------------- groups ----------------------------------

static void put_group(const brim_ui_lab_options *o, const brim_lab_set *set,
                      const brim_lab_group *g, brim_str *out) {
  const brim_lab_stats *stats = brim_lab_group_stats(g, o->result);
  const brim_sweep_metric *display = brim_lab_display(set, g->metric_key);
  char text[80];
  brim_str_append(out, "<tr>");
  put_values(set, &set->exps[g->list[0]], false, out);
  brim_ui_value_spread(display, stats->mean, stats->stddev, text);
  put_cell(NULL, text, out);
  snprintf(text, sizeof text, "%zu / %zu", stats->n, g->count);
  put_cell(stats->n < g->count ? "partial" : NULL, text, out);
  brim_ui_value(display, stats->least, text);
  put_cell(NULL, text, out);
  brim_ui_value(display, stats->most, text);
  put_cell(NULL, text, out);
  brim_str_append(out, "</tr>\n");
}

static bool has_repeats(const brim_lab_set *set) {
  for (size_t i = 0; i < set->group_count; i++) {
    if (set->groups[i].count > 1) return true;
  }
  return false;
}

static brim_status put_groups(const brim_ui_lab_options *o, const brim_lab_set *set,
                              brim_str *out) {
  if (!has_repeats(set)) return BRIM_OK;
  ranked *order = brim_calloc(set->group_count + 1, sizeof *order);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory for a page");
  const brim_metric_better better = brim_lab_better(set, brim_ui_lab_metric(set));
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
  brim_ui_put(out, "th", brim_ui_lab_label(set, brim_ui_lab_metric(set)));
  brim_ui_put(out, "th", brim_tr("results"));
  brim_ui_put(out, "th", brim_tr("lowest"));
  brim_ui_put(out, "th", brim_tr("highest"));
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < set->group_count && i < BRIM_UI_LAB_ROWS; i++) {
    put_group(o, set, &set->groups[order[i].index], out);
  }
  close_table(set->group_count, out);
  brim_free(order);
  return BRIM_OK;
}

//---------------------------------- experiments ----------------------------------

static void put_experiment(const brim_ui_lab_options *o, const brim_lab_set *set,
                           const brim_lab_exp *e, brim_str *out) {
  const brim_sweep_state state = brim_ui_lab_state(e);
  const brim_sweep_metric *display = brim_lab_display(set, e->metric_key);
  char text[64], kind[32];
  brim_str_append(out, "<tr>");
  snprintf(kind, sizeof kind, "s-%s", brim_sweep_state_name(state));
  put_cell(kind, brim_ui_lab_state_text(state), out);
  put_values(set, e, true, out);
  brim_ui_value(display, e->last, text);
  put_cell(NULL, text, out);
  brim_ui_value(display, e->best, text);
  put_cell(NULL, text, out);
  if (e->epoch >= 0 && e->epochs > 0) {
    snprintf(text, sizeof text, "%lld / %lld", (long long)e->epoch, (long long)e->epochs);
  } else {
    snprintf(text, sizeof text, BRIM_UI_DASH);
  }
  put_cell(NULL, text, out);
  const double seconds = brim_ui_lab_seconds(e, o->now_s);
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
  const brim_metric_better better = brim_lab_better(set, brim_ui_lab_metric(set));
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
  snprintf(head, sizeof head, brim_tr("%.60s, last"),
           brim_ui_lab_label(set, brim_ui_lab_metric(set)));
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

brim_status brim_ui_lab_tables(const brim_ui_lab_options *options, const brim_lab_set *set,
                               brim_str *out) {
  BRIM_TRY(put_groups(options, set, out));
  return put_experiments(options, set, out);
}

//---------------------------------- settings ----------------------------------

// A value of a setting and how many experiments have it.
typedef struct counted {
  const char *value;
  size_t count;
} counted;

static size_t count_values(const brim_lab_set *set, size_t key, counted *list) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) {
    const char *value = set->exps[i].values[key];
    size_t at = 0;
    while (at < count && list[at].value != value) at++;  // texts are kept once
    if (at == MAX_VALUES) continue;
    if (at == count) list[count++] = (counted){value, 0};
    list[at].count++;
  }
  return count;
}

static void put_key(const brim_lab_set *set, size_t key, brim_str *out) {
  counted list[MAX_VALUES];
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

void brim_ui_lab_settings(const brim_lab_set *set, brim_str *out) {
  if (set->key_count == 0 && set->common_count == 0) return;
  brim_ui_put_section(out, "settings", brim_tr("Settings"),
                      set->key_count > 0 ? brim_tr("Settings in which the experiments differ, and "
                                                   "how many have each value.")
                                         : NULL);
  if (set->key_count > 0) {
    brim_str_append(out, "<table class=\"differ\"><tbody>\n");
    for (size_t i = 0; i < set->key_count; i++) put_key(set, i, out);
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
