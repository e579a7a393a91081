// Two sets of bench records side by side (`brim compare`). Groups of experiments are compared in ui_sweep.c.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/bench/ui_bench_int.h"

//------------------------------------------- records -------------------------------------------
// Half the width of the 95 % interval of the logarithm of the throughput; NaN = unknown.
static double log_half_width(const brim_result *r) {
  bool known = r->samples_per_s_low > 0 && r->samples_per_s_high >= r->samples_per_s_low;
  return known ? 0.5 * log(r->samples_per_s_high / r->samples_per_s_low) : (double)NAN;
}

static brim_ui_verdict decide(brim_interval ratio) {
  if (isnan(ratio.low) || isnan(ratio.high)) return BRIM_UI_VERDICT_UNKNOWN;
  return ratio.low > 1    ? BRIM_UI_VERDICT_FASTER
         : ratio.high < 1 ? BRIM_UI_VERDICT_SLOWER
                          : BRIM_UI_VERDICT_OPEN;
}

void brim_ui_compare_pair(const brim_result *a, const brim_result *b, brim_ui_pair *out) {
  *out = (brim_ui_pair){.a = a, .b = b, .ratio = {(double)NAN, (double)NAN, (double)NAN}};
  if (!brim_result_ran(a) || !brim_result_ran(b)) {
    out->verdict = brim_result_ran(a)   ? BRIM_UI_VERDICT_B_FAILED
                   : brim_result_ran(b) ? BRIM_UI_VERDICT_A_FAILED
                                        : BRIM_UI_VERDICT_BOTH_FAILED;
    return;
  }
  out->ratio.value = b->samples_per_s / a->samples_per_s;
  double half = hypot(log_half_width(a), log_half_width(b));
  if (isnan(half)) return;
  out->ratio.low = out->ratio.value * exp(-half);
  out->ratio.high = out->ratio.value * exp(half);
  bool once = a->repeats < 2 || b->repeats < 2;
  out->verdict = once ? BRIM_UI_VERDICT_ONCE : decide(out->ratio);
}

bool brim_ui_verdict_certain(brim_ui_verdict verdict) {
  return verdict == BRIM_UI_VERDICT_FASTER || verdict == BRIM_UI_VERDICT_SLOWER;
}

static bool is_certain(brim_ui_verdict verdict) {
  return brim_ui_verdict_certain(verdict) || verdict == BRIM_UI_VERDICT_OPEN;
}

// The half width of the mean is the mean of the half widths. Averaging does not narrow the interval, because settings
// of one sweep share the state of the machine and may have common errors.
size_t brim_ui_compare_overall(const brim_ui_pair *pairs, size_t count, brim_ui_pair *out) {
  double sum = 0, half = 0;
  size_t n = 0;
  bool certain = false, once = false;
  for (size_t i = 0; i < count; i++) certain = certain || is_certain(pairs[i].verdict);
  for (size_t i = 0; i < count; i++) {
    const brim_ui_pair *p = &pairs[i];
    if (isnan(p->ratio.value) || (certain && !is_certain(p->verdict))) continue;
    once = once || p->verdict == BRIM_UI_VERDICT_ONCE;
    sum += log(p->ratio.value);
    half += 0.5 * log(p->ratio.high / p->ratio.low);  // NaN if one interval is unknown
    n++;
  }
  double mean = n ? exp(sum / (double)n) : (double)NAN, factor = n ? exp(half / (double)n) : 1;
  *out = (brim_ui_pair){.ratio = {mean, mean / factor, mean * factor}};
  out->verdict = decide(out->ratio);
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

// Returns the text of a verdict in the line of counts, and its style.
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

// Returns the text of a verdict in a narrow table; the line below the table has the full text.
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

// Writes by how many percent B is at least faster or slower, rounded down so that the statement stays certain.
static void least_text(const brim_ui_pair *p, char out[16]) {
  double least =
      100 * (p->verdict == BRIM_UI_VERDICT_FASTER ? p->ratio.low - 1 : 1 - p->ratio.high);
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
  brim_format_figure(r->samples_per_s, number);
  double half = log_half_width(r);
  if (isnan(half)) {
    snprintf(out, 64, "%s", number);
  } else {
    snprintf(out, 64, "%s %s %.1f %%", number, term->unicode ? "±" : "+-", brim_shown(100 * half));
  }
}

static void ratio_text(brim_interval ratio, char out[64]) {
  if (isnan(ratio.value)) {
    snprintf(out, 64, "-");
  } else if (isnan(ratio.low) || isnan(ratio.high)) {
    snprintf(out, 64, "%.3f", brim_shown(ratio.value));
  } else {
    snprintf(out, 64, "%.3f [%.3f, %.3f]", brim_shown(ratio.value), brim_shown(ratio.low),
             brim_shown(ratio.high));
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

// True if a knob has different values in the pairs. Only such knobs are columns.
static bool knob_varies(const brim_ui_pair *pairs, size_t count, const char *name) {
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

// "256", or "fp32 -> bf16" if the two sides differ.
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
  ratio_text(pair->ratio, text);
  brim_ui_table_add(table, style, "%s", text);
  memory_text(pair->a, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  memory_text(pair->b, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// Puts the table. On a narrow terminal memory is left out first, then the two rates, then the ratio; the verdict always
// stays. If columns were left out, a second try uses short verdicts.
static brim_status put_table(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                             brim_str *out) {
  brim_ui_column columns[BRIM_RESULT_MAX_KNOBS + 6];
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t n = 0;
  for (size_t k = 0; k < pairs[0].a->knob_count; k++) {
    const char *name = pairs[0].a->knobs[k].name;
    if (!knob_varies(pairs, count, name)) continue;
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
  const brim_ui_column fixed[] = {
      {rates[0], NULL, BRIM_UI_RIGHT, 2, 0},
      {rates[1], NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B/A [95 %]"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("A memory"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("B memory"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("Verdict"), NULL, BRIM_UI_LEFT, 0, 0},
  };
  memcpy(columns + n, fixed, sizeof fixed);
  int left_out = 1;
  brim_status status = BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  for (int tries = 0; tries < 2 && left_out > 0 && !status; tries++) {
    brim_ui_table table;
    brim_str_clear(&text);
    brim_ui_table_init(&table, columns, n + sizeof fixed / sizeof *fixed);
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
  brim_ui_pair overall;
  char factor[64], least[16], line[256];
  size_t n = brim_ui_compare_overall(pairs, count, &overall);
  brim_ui_factor(overall.ratio, factor);
  if (n == 0) {
    snprintf(line, sizeof line, "%s", brim_tr("Provisional: no setting ran in both"));
  } else if (brim_ui_verdict_certain(overall.verdict)) {
    least_text(&overall, least);
    snprintf(line, sizeof line,
             overall.verdict == BRIM_UI_VERDICT_FASTER
                 ? brim_tr("Certain: B is faster by at least %s %% (%s; settings: %zu)")
                 : brim_tr("Certain: B is slower by at least %s %% (%s; settings: %zu)"),
             least, factor, n);
  } else {
    const char *text =
        overall.verdict == BRIM_UI_VERDICT_OPEN
            ? brim_tr("Provisional: A and B cannot be told apart (%s; settings: %zu)")
        : overall.verdict == BRIM_UI_VERDICT_ONCE
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
  // Put differences in front of the verdicts, which they may explain.
  if (sides->differences && sides->differences[0]) {
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
