// Two sets of records side by side: ratio with its interval, verdict, mean. Which records belong
// together is the caller's business.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

// Half the width of the 95 % interval of the logarithm; NaN = unknown.
static double log_half_width(const brim_result *r) {
  bool known = r->samples_per_s_low > 0 && r->samples_per_s_high >= r->samples_per_s_low;
  return known ? 0.5 * log(r->samples_per_s_high / r->samples_per_s_low) : (double)NAN;
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
  bool judged = brim_result_trusted(a) && brim_result_trusted(b);
  out->verdict = !judged         ? BRIM_UI_VERDICT_UNSTABLE
                 : out->low > 1  ? BRIM_UI_VERDICT_FASTER
                 : out->high < 1 ? BRIM_UI_VERDICT_SLOWER
                                 : BRIM_UI_VERDICT_SAME;
}

size_t brim_ui_compare_mean(const brim_ui_pair *pairs, size_t count, double *ratio, double *low,
                            double *high) {
  double sum = 0, square = 0;
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (isnan(pairs[i].ratio) || pairs[i].verdict == BRIM_UI_VERDICT_UNSTABLE) continue;
    double half = 0.5 * log(pairs[i].high / pairs[i].low);
    sum += log(pairs[i].ratio);
    square += half * half;  // one unknown interval makes the mean's unknown
    n++;
  }
  double half = n ? sqrt(square) / (double)n : (double)NAN;
  *ratio = n ? exp(sum / (double)n) : (double)NAN;
  *low = *ratio * exp(-half);
  *high = *ratio * exp(half);
  return n;
}

const char *brim_ui_verdict_name(brim_ui_verdict verdict) {
  static const char *const names[BRIM_UI_VERDICT_COUNT] = {
      [BRIM_UI_VERDICT_UNKNOWN] = "unknown",   [BRIM_UI_VERDICT_FASTER] = "faster",
      [BRIM_UI_VERDICT_SLOWER] = "slower",     [BRIM_UI_VERDICT_SAME] = "same",
      [BRIM_UI_VERDICT_UNSTABLE] = "unstable", [BRIM_UI_VERDICT_A_FAILED] = "a_failed",
      [BRIM_UI_VERDICT_B_FAILED] = "b_failed", [BRIM_UI_VERDICT_BOTH_FAILED] = "both_failed"};
  return (unsigned)verdict < BRIM_UI_VERDICT_COUNT ? names[verdict] : "unknown";
}

static const char *verdict_text(brim_ui_verdict verdict, brim_ui_style *style) {
  *style = BRIM_UI_PLAIN;
  switch (verdict) {
    case BRIM_UI_VERDICT_FASTER:
      *style = BRIM_UI_GOOD;
      return brim_tr("B is faster");
    case BRIM_UI_VERDICT_SLOWER:
      *style = BRIM_UI_BAD;
      return brim_tr("B is slower");
    case BRIM_UI_VERDICT_SAME:
      *style = BRIM_UI_DIM;
      return brim_tr("no difference beyond noise");
    case BRIM_UI_VERDICT_UNSTABLE:
      *style = BRIM_UI_WARN;
      return brim_tr("unstable");
    case BRIM_UI_VERDICT_A_FAILED:
      *style = BRIM_UI_GOOD;
      return brim_tr("only B ran");
    case BRIM_UI_VERDICT_B_FAILED:
      *style = BRIM_UI_BAD;
      return brim_tr("B did not run");
    case BRIM_UI_VERDICT_BOTH_FAILED:
      *style = BRIM_UI_DIM;
      return brim_tr("neither ran");
    default:
      *style = BRIM_UI_WARN;
      return brim_tr("no interval to compare");
  }
}

// The same where there is no room; the line below the table has it in full.
static const char *verdict_word(brim_ui_verdict verdict) {
  static const char *const words[BRIM_UI_VERDICT_COUNT] = {
      [BRIM_UI_VERDICT_UNKNOWN] = BRIM_N_("no interval"),
      [BRIM_UI_VERDICT_FASTER] = BRIM_N_("B faster"),
      [BRIM_UI_VERDICT_SLOWER] = BRIM_N_("B slower"),
      [BRIM_UI_VERDICT_SAME] = BRIM_N_("same"),
      [BRIM_UI_VERDICT_UNSTABLE] = BRIM_N_("unstable"),
      [BRIM_UI_VERDICT_A_FAILED] = BRIM_N_("only B ran"),
      [BRIM_UI_VERDICT_B_FAILED] = BRIM_N_("B failed"),
      [BRIM_UI_VERDICT_BOTH_FAILED] = BRIM_N_("neither ran")};
  return brim_tr(words[verdict]);
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
    snprintf(out, 64, "%s %s %.1f %%", number, term->unicode ? "±" : "+-", 100 * half);
  }
}

static void ratio_text(double ratio, double low, double high, char out[64]) {
  if (isnan(ratio)) {
    snprintf(out, 64, "-");
  } else if (isnan(low) || isnan(high)) {
    snprintf(out, 64, "%.3f", ratio);
  } else {
    snprintf(out, 64, "%.3f [%.3f, %.3f]", ratio, low, high);
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
  char text[80];
  brim_ui_style style;
  for (size_t k = 0; k < knob_count; k++) {
    knob_text(pair, knobs[k], text);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  }
  rate_text(term, pair->a, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  rate_text(term, pair->b, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  const char *verdict = verdict_text(pair->verdict, &style);
  if (short_verdict) verdict = verdict_word(pair->verdict);
  ratio_text(pair->ratio, pair->low, pair->high, text);
  brim_ui_table_add(table, style, "%s", text);
  memory_text(pair->a, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  memory_text(pair->b, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// What was found out stays longest; then the ratio, then what it is made of.
static brim_status put_table(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                             brim_str *out) {
  brim_ui_column columns[BRIM_RESULT_MAX_KNOBS + 6];
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t n = 0;
  for (size_t k = 0; k < pairs[0].a->knob_count; k++) {
    const char *name = pairs[0].a->knobs[k].name;
    if (!varies(pairs, count, name)) continue;
    columns[n] = (brim_ui_column){.header = brim_ui_knob_label(name), .align = BRIM_UI_RIGHT};
    knobs[n++] = name;
  }
  const brim_ui_column rest[] = {
      {brim_tr("A samples/s"), NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B samples/s"), NULL, BRIM_UI_RIGHT, 2, 0},
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

brim_status brim_ui_compare(const brim_term *term, const brim_ui_pair *pairs, size_t count,
                            const char *a, const char *b, brim_str *out) {
  double ratio, low, high;
  char text[64];
  brim_str_printf(out, "A  %s\nB  %s\n\n", a, b);
  if (count == 0) return brim_str_status(out);
  BRIM_TRY(put_table(term, pairs, count, out));
  size_t n = brim_ui_compare_mean(pairs, count, &ratio, &low, &high);
  brim_str_append_char(out, '\n');
  put_counts(term, pairs, count, out);
  if (n > 1) {
    ratio_text(ratio, low, high, text);
    char line[192];
    snprintf(line, sizeof line, brim_tr("geometric mean of %zu settings, B/A: %s"), n, text);
    brim_str_append(out, "  ");
    brim_ui_fit(out, term, line, 2);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out);
}
