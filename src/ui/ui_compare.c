// Two sides by side: sets of bench records, and groups of experiments.

#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_lab_int.h"

//------------------------------------------- records -------------------------------------------
// Two sets of records side by side: ratio with its interval, verdict, one line over all. A difference is
// certain when the 95 % interval of the ratio excludes 1, as in a sweep. The caller pairs the records.

// Half the width of the 95 % interval of the logarithm; NaN = unknown.
static double log_half_width(const brim_result *r) {
  bool known = r->samples_per_s_low > 0 && r->samples_per_s_high >= r->samples_per_s_low;
  return known ? 0.5 * log(r->samples_per_s_high / r->samples_per_s_low) : (double)NAN;
}

static brim_ui_verdict decide(double low, double high) {
  if (isnan(low) || isnan(high)) return BRIM_UI_VERDICT_UNKNOWN;
  return low > 1    ? BRIM_UI_VERDICT_FASTER
         : high < 1 ? BRIM_UI_VERDICT_SLOWER
                    : BRIM_UI_VERDICT_OPEN;
}

void brim_ui_compare_pair(const brim_result *a, const brim_result *b, brim_ui_pair *out) {
  *out =
      (brim_ui_pair){.a = a, .b = b, .ratio = (double)NAN, .low = (double)NAN, .high = (double)NAN};
  if (!brim_result_ran(a) || !brim_result_ran(b)) {
    out->verdict = brim_result_ran(a)   ? BRIM_UI_VERDICT_B_FAILED
                   : brim_result_ran(b) ? BRIM_UI_VERDICT_A_FAILED
                                        : BRIM_UI_VERDICT_BOTH_FAILED;
    return;
  }
  out->ratio = b->samples_per_s / a->samples_per_s;
  double half = hypot(log_half_width(a), log_half_width(b));
  if (isnan(half)) return;
  out->low = out->ratio * exp(-half);
  out->high = out->ratio * exp(half);
  bool once = a->repeats < 2 || b->repeats < 2;
  out->verdict = once ? BRIM_UI_VERDICT_ONCE : decide(out->low, out->high);
}

bool brim_ui_verdict_certain(brim_ui_verdict verdict) {
  return verdict == BRIM_UI_VERDICT_FASTER || verdict == BRIM_UI_VERDICT_SLOWER;
}

static bool is_certain(brim_ui_verdict verdict) {
  return brim_ui_verdict_certain(verdict) || verdict == BRIM_UI_VERDICT_OPEN;
}

// The half width of the mean is the mean of the half widths. Settings of one sweep share the state of the
// machine, so their errors may go the same way: averaging need not narrow the interval.
size_t brim_ui_compare_overall(const brim_ui_pair *pairs, size_t count, brim_ui_pair *out) {
  double sum = 0, half = 0;
  size_t n = 0;
  bool certain = false, once = false;
  for (size_t i = 0; i < count; i++) certain = certain || is_certain(pairs[i].verdict);
  for (size_t i = 0; i < count; i++) {
    const brim_ui_pair *p = &pairs[i];
    if (isnan(p->ratio) || (certain && !is_certain(p->verdict))) continue;
    once = once || p->verdict == BRIM_UI_VERDICT_ONCE;
    sum += log(p->ratio);
    half += 0.5 * log(p->high / p->low);  // one unknown interval makes the mean's unknown
    n++;
  }
  double mean = n ? exp(sum / (double)n) : (double)NAN, factor = n ? exp(half / (double)n) : 1;
  *out = (brim_ui_pair){.ratio = mean, .low = mean / factor, .high = mean * factor};
  out->verdict = decide(out->low, out->high);
  if (once && out->verdict != BRIM_UI_VERDICT_UNKNOWN) out->verdict = BRIM_UI_VERDICT_ONCE;
  return n;
}

const char *brim_ui_verdict_name(brim_ui_verdict verdict) {
  static const char *const names[BRIM_UI_VERDICT_COUNT] = {
      [BRIM_UI_VERDICT_UNKNOWN] = "unknown",   [BRIM_UI_VERDICT_ONCE] = "once",
      [BRIM_UI_VERDICT_FASTER] = "faster",     [BRIM_UI_VERDICT_SLOWER] = "slower",
      [BRIM_UI_VERDICT_OPEN] = "open",         [BRIM_UI_VERDICT_A_FAILED] = "a_failed",
      [BRIM_UI_VERDICT_B_FAILED] = "b_failed", [BRIM_UI_VERDICT_BOTH_FAILED] = "both_failed"};
  return (unsigned)verdict < BRIM_UI_VERDICT_COUNT ? names[verdict] : "unknown";
}

// For the line of counts; without the "certain" or "provisional" that a pair's text begins with.
static const char *verdict_text(brim_ui_verdict verdict, brim_ui_style *style) {
  static const struct {
    const char *text;
    brim_ui_style style;
  } rows[BRIM_UI_VERDICT_COUNT] = {
      [BRIM_UI_VERDICT_UNKNOWN] = {BRIM_N_("no interval"), BRIM_UI_WARN},
      [BRIM_UI_VERDICT_ONCE] = {BRIM_N_("measured once"), BRIM_UI_WARN},
      [BRIM_UI_VERDICT_FASTER] = {BRIM_N_("certainly faster"), BRIM_UI_GOOD},
      [BRIM_UI_VERDICT_SLOWER] = {BRIM_N_("certainly slower"), BRIM_UI_BAD},
      [BRIM_UI_VERDICT_OPEN] = {BRIM_N_("cannot be told apart"), BRIM_UI_DIM},
      [BRIM_UI_VERDICT_A_FAILED] = {BRIM_N_("only B ran"), BRIM_UI_GOOD},
      [BRIM_UI_VERDICT_B_FAILED] = {BRIM_N_("B did not run"), BRIM_UI_BAD},
      [BRIM_UI_VERDICT_BOTH_FAILED] = {BRIM_N_("neither ran"), BRIM_UI_DIM}};
  *style = rows[verdict].style;
  return brim_tr(rows[verdict].text);
}

// The same where there is no room; the line below the table has it in full.
static const char *verdict_word(brim_ui_verdict verdict) {
  static const char *const words[BRIM_UI_VERDICT_COUNT] = {
      [BRIM_UI_VERDICT_UNKNOWN] = BRIM_N_("no interval"),
      [BRIM_UI_VERDICT_ONCE] = BRIM_N_("once"),
      [BRIM_UI_VERDICT_FASTER] = BRIM_N_("B faster"),
      [BRIM_UI_VERDICT_SLOWER] = BRIM_N_("B slower"),
      [BRIM_UI_VERDICT_OPEN] = BRIM_N_("undecided"),
      [BRIM_UI_VERDICT_A_FAILED] = BRIM_N_("only B ran"),
      [BRIM_UI_VERDICT_B_FAILED] = BRIM_N_("B failed"),
      [BRIM_UI_VERDICT_BOTH_FAILED] = BRIM_N_("neither ran")};
  return brim_tr(words[verdict]);
}

// By how many percent B is certainly faster or slower, rounded down: what is printed stays certain.
static void least_text(const brim_ui_pair *p, char out[16]) {
  double least = 100 * (p->verdict == BRIM_UI_VERDICT_FASTER ? p->low - 1 : 1 - p->high);
  int digits = least >= 10 ? 0 : least >= 0.1 ? 1 : 3;
  double unit = pow(10, digits);
  snprintf(out, 16, "%.*f", digits, floor(brim_shown(least * unit)) / unit);
}

// "certain: faster by at least 18 %"
static void pair_text(const brim_ui_pair *p, brim_ui_style *style, char out[96]) {
  char least[16];
  const char *text = verdict_text(p->verdict, style);
  switch (p->verdict) {
    case BRIM_UI_VERDICT_FASTER:
      least_text(p, least);
      snprintf(out, 96, brim_tr("certain: faster by at least %s %%"), least);
      return;
    case BRIM_UI_VERDICT_SLOWER:
      least_text(p, least);
      snprintf(out, 96, brim_tr("certain: slower by at least %s %%"), least);
      return;
    case BRIM_UI_VERDICT_UNKNOWN:
    case BRIM_UI_VERDICT_ONCE:
      snprintf(out, 96, brim_tr("provisional: %s"), text);
      return;
    default:
      snprintf(out, 96, "%s", text);
  }
}

// "12,345 ± 1.2 %"
static void rate_text(const brim_term *term, const brim_result *r, char out[64]) {
  char number[32];
  if (!brim_result_ran(r)) {
    snprintf(out, 64, "%s", brim_ui_failure_text(r));
    return;
  }
  brim_ui_number(r->samples_per_s, number);
  double half = log_half_width(r);
  if (isnan(half)) {
    snprintf(out, 64, "%s", number);
  } else {
    snprintf(out, 64, "%s %s %.1f %%", number, term->unicode ? "±" : "+-", brim_shown(100 * half));
  }
}

static void ratio_text(double ratio, double low, double high, char out[64]) {
  if (isnan(ratio)) {
    snprintf(out, 64, "-");
  } else if (isnan(low) || isnan(high)) {
    snprintf(out, 64, "%.3f", brim_shown(ratio));
  } else {
    snprintf(out, 64, "%.3f [%.3f, %.3f]", brim_shown(ratio), brim_shown(low), brim_shown(high));
  }
}

static void memory_text(const brim_result *r, char out[32]) {
  double bytes = brim_result_memory(r);
  if (bytes > 0) {
    brim_format_bytes((uint64_t)bytes, out);
  } else {
    snprintf(out, 32, "-");
  }
}

// A knob is shown where its value is not the same everywhere.
static bool varies(const brim_ui_pair *pairs, size_t count, const char *name) {
  const brim_result_knob *first = brim_result_knob_find(pairs[0].a, name);
  for (size_t i = 0; i < count; i++) {
    const brim_result *both[] = {pairs[i].a, pairs[i].b};
    for (size_t k = 0; k < 2; k++) {
      const brim_result_knob *knob = brim_result_knob_find(both[k], name);
      if (!knob || !first || strcmp(knob->value, first->value) != 0) return true;
    }
  }
  return false;
}

// "256", or "fp32 -> bf16" where the two differ in it.
static void knob_text(const brim_ui_pair *pair, const char *name, char out[80]) {
  const brim_result_knob *a = brim_result_knob_find(pair->a, name);
  const brim_result_knob *b = brim_result_knob_find(pair->b, name);
  const char *left = a ? a->value : "-", *right = b ? b->value : "-";
  if (strcmp(left, right) == 0) {
    snprintf(out, 80, "%s", left);
  } else {
    snprintf(out, 80, "%s -> %s", left, right);
  }
}

static void fill_row(brim_ui_table *table, const brim_term *term, const brim_ui_pair *pair,
                     const char *const *knobs, size_t knob_count, bool short_verdict) {
  char text[80], verdict[96];
  brim_ui_style style;
  for (size_t k = 0; k < knob_count; k++) {
    knob_text(pair, knobs[k], text);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  }
  rate_text(term, pair->a, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  rate_text(term, pair->b, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  pair_text(pair, &style, verdict);
  if (short_verdict) snprintf(verdict, sizeof verdict, "%s", verdict_word(pair->verdict));
  ratio_text(pair->ratio, pair->low, pair->high, text);
  brim_ui_table_add(table, style, "%s", text);
  memory_text(pair->a, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  memory_text(pair->b, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// What was determined stays longest; then the ratio, then what it is made of.
static brim_status put_table(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                             brim_str *out) {
  brim_ui_column columns[BRIM_RESULT_MAX_KNOBS + 6];
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t n = 0;
  for (size_t k = 0; k < pairs[0].a->knob_count; k++) {
    const char *name = pairs[0].a->knobs[k].name;
    if (!varies(pairs, count, name)) continue;
    columns[n] =
        (brim_ui_column){.header = brim_ui_knob_label(pairs[0].a, name), .align = BRIM_UI_RIGHT};
    knobs[n++] = name;
  }
  char rates[2][64];
  for (int side = 0; side < 2; side++) {
    const brim_result *result = side ? pairs[0].b : pairs[0].a;
    snprintf(rates[side], sizeof rates[side], "%c %s/s", "AB"[side],
             brim_tr(brim_result_unit(result)));
  }
  const brim_ui_column rest[] = {
      {rates[0], NULL, BRIM_UI_RIGHT, 2, 0},
      {rates[1], NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B/A [95 %]"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("A memory"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("B memory"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("Verdict"), NULL, BRIM_UI_LEFT, 0, 0},
  };
  memcpy(columns + n, rest, sizeof rest);
  int left_out = 1;
  brim_status status = BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  for (int tries = 0; tries < 2 && left_out > 0 && !status; tries++) {
    brim_ui_table table;
    brim_str_clear(&text);
    brim_ui_table_init(&table, columns, n + sizeof rest / sizeof *rest);
    for (size_t i = 0; i < count; i++) fill_row(&table, term, &pairs[i], knobs, n, tries > 0);
    status = brim_ui_table_render(&table, term, &text, &left_out);
    brim_ui_table_deinit(&table);
  }
  if (!status) status = brim_str_status(&text);
  if (!status) brim_str_append_n(out, text.data, text.len);
  brim_str_deinit(&text);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_counts(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                       brim_str *out) {
  int column = 2;
  char number[32];
  brim_str_append(out, "  ");
  for (int v = 0; v < BRIM_UI_VERDICT_COUNT; v++) {
    size_t n = 0;
    brim_ui_style style;
    for (size_t i = 0; i < count; i++) n += pairs[i].verdict == (brim_ui_verdict)v;
    if (n == 0) continue;
    const char *text = verdict_text((brim_ui_verdict)v, &style);
    snprintf(number, sizeof number, ": %zu", n);
    int width = brim_utf8_width(text) + brim_utf8_width(number);
    bool any = column > 2, room = term->width <= 0 || column + 3 + width <= term->width;
    if (any) brim_str_append(out, room ? ", " : ",\n  ");
    column = !any ? 2 : room ? column + 2 : 2;
    brim_ui_styled(out, term, style, text);
    brim_str_append(out, number);
    column += width;
  }
  brim_str_append_char(out, '\n');
}

// "Certain: B is faster by at least 3 % (x1.05 [1.03, 1.07]; settings: 4)"
static void put_overall(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                        brim_str *out) {
  brim_ui_pair all;
  char factor[64], least[16], line[256];
  size_t n = brim_ui_compare_overall(pairs, count, &all);
  brim_ui_factor((brim_interval){all.ratio, all.low, all.high}, factor);
  if (n == 0) {
    snprintf(line, sizeof line, "%s", brim_tr("Provisional: no setting ran in both"));
  } else if (brim_ui_verdict_certain(all.verdict)) {
    least_text(&all, least);
    snprintf(line, sizeof line,
             all.verdict == BRIM_UI_VERDICT_FASTER
                 ? brim_tr("Certain: B is faster by at least %s %% (%s; settings: %zu)")
                 : brim_tr("Certain: B is slower by at least %s %% (%s; settings: %zu)"),
             least, factor, n);
  } else {
    const char *text =
        all.verdict == BRIM_UI_VERDICT_OPEN
            ? brim_tr("Provisional: A and B cannot be told apart (%s; settings: %zu)")
        : all.verdict == BRIM_UI_VERDICT_ONCE
            ? brim_tr("Provisional: measured only once (%s; settings: %zu)")
            : brim_tr("Provisional: the records have no intervals (%s; settings: %zu)");
    snprintf(line, sizeof line, text, factor, n);
  }
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_compare(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                            const brim_ui_sides *sides, brim_str *out) {
  brim_str_printf(out, "A  %s\nB  %s\n\n", sides->a, sides->b);
  if (sides->differences && sides->differences[0]) {  // before any verdict, which they may explain
    brim_str_append(out, sides->differences);
    brim_str_append_char(out, '\n');
  }
  if (count == 0) return brim_str_status(out);
  BRIM_TRY(put_table(term, pairs, count, out));
  brim_str_append_char(out, '\n');
  put_counts(term, pairs, count, out);
  put_overall(term, pairs, count, out);
  return brim_str_status(out);
}

//----------------------------------------- experiments -----------------------------------------
// Groups of experiments of two sides as a table: mean and deviation of both, the difference with its
// interval, whether it is certain, and one line over all points.

static const char *compare_verdict_text(brim_lab_verdict verdict, brim_ui_style *style) {
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
static bool compare_varies(const brim_lab_comparison *c, sides_of sets, const char *key) {
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
    if (!key->over && compare_varies(c, sets, key->name)) keys[count++] = i;
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
  const char *verdict = compare_verdict_text(m->verdict, &style);
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
static brim_status compare_put_table(const brim_term *term, const brim_lab_comparison *c,
                                     sides_of sets, brim_str *out) {
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

static void compare_put_counts(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  const char *separator = "  ";
  for (int v = 0; v < BRIM_LAB_VERDICT_COUNT; v++) {
    size_t n = 0;
    brim_ui_style style;
    for (size_t i = 0; i < c->count; i++) n += c->matches[i].verdict == (brim_lab_verdict)v;
    if (n == 0) continue;
    const char *text = compare_verdict_text((brim_lab_verdict)v, &style);
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

static void compare_put_overall(const brim_term *term, const brim_lab_comparison *c, sides_of sets,
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
  BRIM_TRY(compare_put_table(term, comparison, sets, out));
  brim_str_append_char(out, '\n');
  compare_put_counts(term, comparison, out);
  if (!comparison->several) compare_put_overall(term, comparison, sets, out);
  put_caution(term, comparison, out);
  return brim_str_status(out);
}
