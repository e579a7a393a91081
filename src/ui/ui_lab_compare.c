// Groups of experiments of two sides as a table: mean and deviation of both, the difference with its
// interval, whether it is certain, and one line over all points.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_lab_int.h"

static const char *verdict_text(brim_lab_verdict verdict, brim_ui_style *style) {
  static const struct {
    const char *text;
    brim_ui_style style;
  } rows[BRIM_LAB_VERDICT_COUNT] = {
      [BRIM_LAB_UNKNOWN] = {BRIM_N_("certainly different"), BRIM_UI_WARN},
      [BRIM_LAB_ONCE] = {BRIM_N_("one result, no interval"), BRIM_UI_WARN},
      [BRIM_LAB_BETTER] = {BRIM_N_("certainly better"), BRIM_UI_GOOD},
      [BRIM_LAB_WORSE] = {BRIM_N_("certainly worse"), BRIM_UI_BAD},
      [BRIM_LAB_OPEN] = {BRIM_N_("cannot be told apart"), BRIM_UI_DIM},
      [BRIM_LAB_A_MISSING] = {BRIM_N_("only B has a result"), BRIM_UI_WARN},
      [BRIM_LAB_B_MISSING] = {BRIM_N_("B has no result"), BRIM_UI_WARN},
      [BRIM_LAB_BOTH_MISSING] = {BRIM_N_("neither has a result"), BRIM_UI_DIM}};
  *style = rows[verdict].style;
  return brim_tr(rows[verdict].text);
}

static bool is_narrow(const brim_term *term) { return term->width > 0 && term->width < 100; }

// "0.912 ± 0.013 (5)": mean, deviation, results.
static void side_text(const brim_term *term, const brim_sweep_metric *display,
                      const brim_lab_stats *stats, char out[112]) {
  char spread[80];
  if (stats->n == 0) {
    snprintf(out, 112, "-");
    return;
  }
  brim_ui_value_spread(display, stats->mean, stats->stddev, spread);
  char *sign = strstr(spread, "\xc2\xb1"), *unit = strstr(spread, " %");
  if (sign && !term->unicode) memcpy(sign, "+-", 2);
  if (unit && is_narrow(term)) *unit = '\0';  // the heading has it
  snprintf(out, 112, "%s (%zu)", spread, stats->n);
}

static void difference_text(const brim_sweep_metric *display, const brim_lab_difference *d,
                            char out[112]) {
  const double bounds[2] = {d->low, d->high};
  brim_ui_value_difference(display, d->mean, bounds, out);
}

//---------------------------------- settings as columns ----------------------------------

enum { MAX_KEYS = 12 };

typedef struct sides_of {
  const brim_lab_set *a, *b;
} sides_of;

static const char *value_of(const brim_lab_set *set, const brim_lab_group *g, const char *key) {
  const char *value = brim_lab_value(set, &set->exps[g->list[0]], key);
  return value ? value : "-";
}

// Does a setting tell matches apart, or the two sides of one?
static bool varies(const brim_lab_comparison *c, sides_of sets, const char *key) {
  const char *first = value_of(sets.b, c->matches[0].b, key);
  for (size_t i = 0; i < c->count; i++) {
    const brim_lab_match *m = &c->matches[i];
    if (strcmp(value_of(sets.b, m->b, key), first) != 0) return true;
    if (strcmp(value_of(sets.a, m->a, key), first) != 0) return true;
  }
  return false;
}

static size_t find_keys(const brim_lab_comparison *c, sides_of sets, size_t keys[MAX_KEYS]) {
  size_t count = 0;
  for (size_t i = 0; i < sets.b->key_count && count < MAX_KEYS && c->count > 0; i++) {
    const brim_lab_key *key = &sets.b->keys[i];
    if (!key->over && varies(c, sets, key->name)) keys[count++] = i;
  }
  return count;
}

// "0.1", or "fp32 -> bf16" where the two sides differ in it.
static void add_setting(brim_ui_table *table, const brim_lab_match *m, sides_of sets,
                        const char *key) {
  const char *a = value_of(sets.a, m->a, key), *b = value_of(sets.b, m->b, key);
  if (strcmp(a, b) == 0) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", b);
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s -> %s", a, b);
  }
}

//---------------------------------- the table ----------------------------------

static void add_row(brim_ui_table *table, const brim_term *term, const brim_lab_match *m,
                    sides_of sets) {
  char text[112];
  brim_ui_style style;
  const brim_sweep_metric *display = brim_lab_display(sets.b, m->metric_key);
  const char *verdict = verdict_text(m->verdict, &style);
  side_text(term, display, &m->a_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  side_text(term, display, &m->b_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  difference_text(display, &m->difference, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// The difference stays longest, then what it is made of: the verdict is also its colour, and counted
// below.
static brim_status put_table(const brim_term *term, const brim_lab_comparison *c, sides_of sets,
                             brim_str *out) {
  brim_ui_column columns[MAX_KEYS + 4];
  size_t keys[MAX_KEYS];
  const size_t count = find_keys(c, sets, keys);
  for (size_t i = 0; i < count; i++) {
    columns[i] = (brim_ui_column){
        .header = brim_ui_lab_short(sets.b, keys[i]), .align = BRIM_UI_RIGHT, .min_width = 12};
  }
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  const brim_sweep_metric *display = brim_lab_display(sets.b, key);
  const bool unit = display && display->format == BRIM_METRIC_PERCENT && is_narrow(term);
  const brim_ui_column rest[] = {
      {unit ? "A, %" : "A", NULL, BRIM_UI_RIGHT, 2, 0},
      {unit ? "B, %" : "B", NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B - A [95 %]"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("Verdict"), NULL, BRIM_UI_LEFT, 3, 0},
  };
  memcpy(columns + count, rest, sizeof rest);
  brim_ui_table table;
  int left_out = 0;
  brim_ui_table_init(&table, columns, count + sizeof rest / sizeof *rest);
  for (size_t i = 0; i < c->count; i++) {
    for (size_t k = 0; k < count; k++) {
      add_setting(&table, &c->matches[i], sets, sets.b->keys[keys[k]].name);
    }
    add_row(&table, term, &c->matches[i], sets);
  }
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_counts(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  const char *separator = "  ";
  for (int v = 0; v < BRIM_LAB_VERDICT_COUNT; v++) {
    size_t n = 0;
    brim_ui_style style;
    for (size_t i = 0; i < c->count; i++) n += c->matches[i].verdict == (brim_lab_verdict)v;
    if (n == 0) continue;
    const char *text = verdict_text((brim_lab_verdict)v, &style);
    brim_str_append(out, separator);
    brim_ui_styled(out, term, style, text);
    brim_str_printf(out, ": %zu", n);
    separator = ",\n  ";
  }
  brim_str_append_char(out, '\n');
}

static const char *overall_text(brim_lab_verdict verdict) {
  switch (verdict) {
    case BRIM_LAB_BETTER:
      return brim_tr("Certain: B is better on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_WORSE:
      return brim_tr("Certain: B is worse on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_UNKNOWN:
      return brim_tr("Certain: B differs on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_OPEN:
      return brim_tr("Provisional: A and B cannot be told apart on average (%s; settings: %zu)");
    case BRIM_LAB_ONCE:
      return brim_tr("Provisional: a single setting has results in both (%s; settings: %zu)");
    default:
      return NULL;
  }
}

static void put_overall(const brim_term *term, const brim_lab_comparison *c, sides_of sets,
                        brim_str *out) {
  char difference[112], line[320];
  const char *text = overall_text(c->verdict);
  const brim_lab_difference d = {c->overall.mean, c->overall.low, c->overall.high};
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  difference_text(brim_lab_display(sets.b, key), &d, difference);
  if (text) {
    snprintf(line, sizeof line, text, difference, c->overall.n);
  } else {
    snprintf(line, sizeof line, "%s", brim_tr("Provisional: no setting has results in both"));
  }
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

// Of many intervals of 95 % some miss by chance.
static void put_caution(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  size_t intervals = 0;
  for (size_t i = 0; i < c->count; i++) intervals += isnan(c->matches[i].difference.low) ? 0u : 1u;
  if (intervals < 20) return;
  char line[160];
  snprintf(line, sizeof line,
           brim_tr("Of %zu intervals of 95 %%, about %zu exclude 0 by chance alone."), intervals,
           (intervals + 10) / 20);
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_lab_compare(const brim_term *term, const brim_lab_comparison *comparison,
                                const brim_ui_lab_sides *sides, brim_str *out) {
  brim_str_printf(out, "A  %s\nB  %s\n\n", sides->names.a, sides->names.b);
  if (sides->names.differences && sides->names.differences[0]) {
    brim_str_append(out, sides->names.differences);  // before any verdict, which they may explain
    brim_str_append_char(out, '\n');
  }
  brim_str_printf(out, "%s\n\n", sides->metric);
  const sides_of sets = {sides->a, sides->b};
  BRIM_TRY(put_table(term, comparison, sets, out));
  brim_str_append_char(out, '\n');
  put_counts(term, comparison, out);
  if (!comparison->several) put_overall(term, comparison, sets, out);
  put_caution(term, comparison, out);
  return brim_str_status(out);
}
