// Small texts that several views share: numbers, settings, values of a metric, lines of a label and a value.

#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"
#include "ui/ui_sweep_int.h"

void brim_ui_number(double value, char out[32]) { brim_format_figure(value, out); }

void brim_ui_ms(double value, char out[32]) {
  value = brim_shown(value);
  if (isnan(value)) {
    snprintf(out, 32, "-");
  } else if (fabs(value) >= 99.95) {
    snprintf(out, 32, "%.0f", value);
  } else if (fabs(value) >= 9.995) {
    snprintf(out, 32, "%.1f", value);
  } else {
    snprintf(out, 32, "%.2f", value);
  }
}

const char *brim_ui_failure_class(brim_failure failure) {
  static const char *const texts[BRIM_FAILURE_COUNT] = {
      [BRIM_FAILURE_NONE] = BRIM_N_("ok"),
      [BRIM_FAILURE_OOM_PLANNED] = BRIM_N_("OOM (planned)"),
      [BRIM_FAILURE_OOM_DEVICE] = BRIM_N_("OOM"),
      [BRIM_FAILURE_OOM_HOST] = BRIM_N_("OOM (host)"),
      [BRIM_FAILURE_SHARED_MEMORY] = BRIM_N_("no shared memory"),
      [BRIM_FAILURE_BAD_CONFIG] = BRIM_N_("bad config"),
      [BRIM_FAILURE_UNSUPPORTED] = BRIM_N_("unsupported"),
      [BRIM_FAILURE_CRASH] = BRIM_N_("crashed"),
      [BRIM_FAILURE_INTERRUPTED] = BRIM_N_("stopped"),
      [BRIM_FAILURE_NAN] = BRIM_N_("NaN"),
      [BRIM_FAILURE_DATA] = BRIM_N_("bad data"),
      [BRIM_FAILURE_KILLED] = BRIM_N_("killed"),
      [BRIM_FAILURE_HUNG] = BRIM_N_("hung"),
      [BRIM_FAILURE_INFRASTRUCTURE] = BRIM_N_("machine failed"),
      [BRIM_FAILURE_OTHER] = BRIM_N_("failed"),
  };
  if ((unsigned)failure >= BRIM_FAILURE_COUNT) return brim_tr("failed");
  return brim_tr(texts[failure]);
}

const char *brim_ui_failure_text(const brim_result *result) {
  if (result->failure == BRIM_FAILURE_NONE && result->throttled) return brim_tr("throttled");
  if (result->failure == BRIM_FAILURE_NONE && result->steps > 0 && !result->stable) {
    return brim_result_one_sample(result) ? brim_tr("one sample") : brim_tr("unstable");
  }
  return brim_ui_failure_class(result->failure);
}

const char *brim_ui_description(const char *english, char out[192]) {
  static const char on[] = " on ", of[] = " samples of ", most[] = "up to ";
  char model[64], count[32];
  if (!english) return "";
  const char *first = strstr(english, on);
  const char *second = first ? strstr(first, of) : NULL;
  if (!second || first - english >= (ptrdiff_t)sizeof model) return english;
  const char *number = first + strlen(on), *shape = second + strlen(of);
  if (second < number || second - number >= (ptrdiff_t)sizeof count) return english;
  snprintf(model, sizeof model, "%.*s", (int)(first - english), english);
  snprintf(count, sizeof count, "%.*s", (int)(second - number), number);
  bool varies = brim_str_starts(shape, most);
  if (varies) shape += strlen(most);
  snprintf(out, 192,
           varies ? brim_tr("%s on %s samples of up to %s") : brim_tr("%s on %s samples of %s"),
           model, count, shape);
  return out;
}

void brim_ui_setting(const brim_result *result, brim_str *out) {
  for (size_t i = 0; i < result->knob_count; i++) {
    brim_str_printf(out, "%s%s=%s", i ? " " : "", result->knobs[i].name, result->knobs[i].value);
  }
}

bool brim_ui_interval_tells(double low, double high) { return high <= 100 * low; }

//-------------------------------------- values of a metric --------------------------------------
// Values of a metric as people read them: with their deviation, as an interval, as a difference. The
// metric says whether they are percentages; metric NULL: plain numbers.

static bool is_percent(const brim_sweep_metric *metric) {
  return metric && metric->format == BRIM_METRIC_PERCENT;
}

static int percent_digits(const brim_sweep_metric *metric) {
  return metric->digits ? metric->digits : 2;
}

// Decimals that show two digits of `std`; -1 = a number of that size has none that are readable.
static int decimals_of(double size, double std) {
  if (!isfinite(std)) return -1;
  const double place = std > 0 ? floor(log10(std)) : -3;
  if (!(fabs(size) < 1e6) || place < -6 || place >= 6) return -1;
  return place < 1 ? 1 - (int)place : 0;
}

void brim_ui_value(const brim_sweep_metric *metric, double value, char out[32]) {
  brim_ui_sweep_value(metric, isfinite(value) ? value : (double)NAN, out);
  if (!out[0]) snprintf(out, 32, BRIM_UI_DASH);
}

void brim_ui_value_spread(const brim_sweep_metric *metric, double mean, double std, char out[80]) {
  char number[32];
  if (!isfinite(mean) || !isfinite(std)) {
    brim_ui_value(metric, mean, number);
    snprintf(out, 80, "%s", number);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f %%", digits, brim_shown(mean * 100), digits,
             brim_shown(std * 100));
  } else if (decimals_of(mean, std) >= 0) {
    const int digits = decimals_of(mean, std);
    snprintf(out, 80, "%.*f \xc2\xb1 %.*f", digits, brim_shown(mean), digits, brim_shown(std));
  } else {
    brim_ui_value(metric, mean, number);
    snprintf(out, 80, "%s \xc2\xb1 %.2g", number, brim_shown(std));
  }
}

void brim_ui_value_range(const brim_sweep_metric *metric, const double bounds[2], double std,
                         char out[80]) {
  const double size = fmax(fabs(bounds[0]), fabs(bounds[1]));
  if (!isfinite(bounds[0]) || !isfinite(bounds[1])) {
    snprintf(out, 80, BRIM_UI_DASH);
  } else if (is_percent(metric)) {
    const int digits = percent_digits(metric);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f %%", digits, brim_shown(bounds[0] * 100), digits,
             brim_shown(bounds[1] * 100));
  } else if (decimals_of(size, std) >= 0) {
    const int digits = decimals_of(size, std);
    snprintf(out, 80, "%.*f \xe2\x80\x93 %.*f", digits, brim_shown(bounds[0]), digits,
             brim_shown(bounds[1]));
  } else {
    snprintf(out, 80, "%.4g \xe2\x80\x93 %.4g", brim_shown(bounds[0]), brim_shown(bounds[1]));
  }
}

static void put_signed(const brim_sweep_metric *metric, double value, char out[32]) {
  if (is_percent(metric)) {
    snprintf(out, 32, "%+.*f", percent_digits(metric), brim_shown(value * 100));
  } else {
    snprintf(out, 32, "%+.3g", brim_shown(value));
  }
}

void brim_ui_value_difference(const brim_sweep_metric *metric, double mean, const double bounds[2],
                              char out[112]) {
  char middle[32], low[32], high[32], text[104];
  if (!isfinite(mean)) {
    snprintf(out, 112, "-");
    return;
  }
  put_signed(metric, mean, middle);
  if (isfinite(bounds[0])) {
    put_signed(metric, bounds[0], low);
    put_signed(metric, bounds[1], high);
    snprintf(text, sizeof text, "%s [%s, %s]", middle, low, high);
  } else {
    snprintf(text, sizeof text, "%s", middle);
  }
  snprintf(out, 112, is_percent(metric) ? brim_tr("%s pp") : "%s", text);
}

//-------------------------------------------- knobs --------------------------------------------
// Knobs in tables and reports: their names for people come from the rows of the workload.

static const char *text_of(const char *text, const char *name) {
  return brim_tr(text ? text : name);
}

const char *brim_ui_knob_label(const brim_result *of, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return text_of(row ? row->heading : NULL, name);
}

const char *brim_ui_knob_short_label(const brim_result *of, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return text_of(row ? row->narrow : NULL, name);
}

bool brim_ui_knob_is(const brim_result *of, const char *name, brim_knob_role role) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return row && row->role == role;
}

bool brim_ui_knob_shown(const brim_result *results, size_t count, const char *name) {
  const brim_knob_row *row = count > 0 ? brim_result_knob_row(&results[0], name) : NULL;
  return (row && row->always) || brim_result_knob_varies(results, count, name);
}

void brim_ui_put_knobs(const brim_term *term, const brim_result *results, size_t count,
                       const brim_result *result, brim_str *out) {
  for (size_t i = 0; i < result->knob_count; i++) {
    const char *name = result->knobs[i].name;
    if (!brim_ui_knob_shown(results, count, name)) continue;
    const brim_knob_row *row = brim_result_knob_row(result, name);
    brim_ui_put_line(term, row && row->label ? brim_tr(row->label) : name, result->knobs[i].value,
                     out);
  }
}

const char *brim_ui_rate_unit(const brim_result *results, size_t count, char out[64]) {
  snprintf(out, 64, "%s/s",
           count > 0 ? brim_tr(brim_result_unit(&results[0])) : brim_tr("samples"));
  return out;
}

const char *brim_ui_rate_heading(const brim_result *results, size_t count, char out[64]) {
  brim_ui_rate_unit(results, count, out);
  if (out[0] >= 'a' && out[0] <= 'z') out[0] = (char)(out[0] - 'a' + 'A');
  return out;
}

//-------------------------------------------- lines --------------------------------------------
// Lines of a label and a value, and those that several summaries share.

void brim_ui_put_line(const brim_term *term, const char *label, const char *value, brim_str *out) {
  int width = brim_utf8_width(label) + 1;
  brim_str_printf(out, "  %s:", label);
  int gap = width < 18 ? 18 - width : 1;
  brim_str_repeat(out, ' ', (size_t)gap);
  brim_str text;
  brim_str_init(&text);
  brim_ui_fit(&text, term, value, 2 + width + gap);
  brim_ui_styled(out, term, BRIM_UI_BOLD, text.data);
  brim_str_append_char(out, '\n');
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

void brim_ui_put_memory(const brim_term *term, const brim_result *result, brim_str *out) {
  char bytes[32], text[128];
  double memory = brim_result_memory(result);
  brim_format_bytes((uint64_t)memory, bytes);
  double share = memory / result->free_bytes * 100;
  if (isnan(share) || isinf(share)) {
    snprintf(text, sizeof text, "%s", bytes);
  } else if (share < 0.1) {
    snprintf(text, sizeof text, brim_tr("%s (under 0.1 %% of what is free)"), bytes);
  } else {
    snprintf(text, sizeof text, brim_tr("%s (%.1f %% of what is free)"), bytes, brim_shown(share));
  }
  brim_ui_put_line(term, brim_tr("Memory planned"), text, out);
}

void brim_ui_put_rate(const brim_term *term, const brim_result *result, brim_str *out) {
  char rate[32], low[32], high[32], text[128];
  brim_ui_number(result->samples_per_s, rate);
  brim_ui_number(result->samples_per_s_low, low);
  brim_ui_number(result->samples_per_s_high, high);
  if (result->repeats == 1) {
    snprintf(text, sizeof text, brim_tr("%s %s/s (measured once)"), rate,
             brim_tr(brim_result_unit(result)));
  } else if (!brim_ui_interval_tells(result->samples_per_s_low, result->samples_per_s_high)) {
    snprintf(text, sizeof text, "%s %s/s", rate, brim_tr(brim_result_unit(result)));
  } else {
    snprintf(text, sizeof text, brim_tr("%s %s/s (95 %%: %s to %s)"), rate,
             brim_tr(brim_result_unit(result)), low, high);
  }
  brim_ui_put_line(term, brim_tr("Throughput"), text, out);
}

//------------------------------------- tables of a workload -------------------------------------
// Tables that a workload makes itself, below those of a sweep.

static brim_status put_view(const brim_term *term, const brim_view *v, brim_str *out) {
  brim_ui_column columns[BRIM_VIEW_COLUMNS];
  brim_ui_table table;
  for (size_t i = 0; i < v->column_count; i++) {
    const brim_view_column *c = &v->columns[i];
    columns[i] = (brim_ui_column){.header = c->heading,
                                  .align = c->left ? BRIM_UI_LEFT : BRIM_UI_RIGHT,
                                  .priority = c->drop,
                                  .min_width = c->least};
  }
  brim_ui_table_init(&table, columns, v->column_count);
  for (size_t r = 0; r < v->row_count; r++) {
    brim_ui_style style = (int)r == v->marked ? BRIM_UI_BEST : BRIM_UI_PLAIN;
    for (size_t c = 0; c < v->column_count; c++) {
      brim_ui_table_add(&table, style, "%s", v->cells[r][c]);
    }
  }
  brim_ui_heading(out, term, v->title);
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  if (!v->note[0]) {
    brim_str_append_char(out, '\n');
    return status;
  }
  if (v->whole_note) {
    brim_str_append(out, v->note);
  } else {
    brim_ui_wrap(out, term, v->note, 0);
  }
  brim_str_append(out, "\n\n");
  return status;
}

brim_status brim_ui_views(const brim_term *term, const brim_view *views, size_t count,
                          brim_str *out) {
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count; i++) BRIM_TRY(put_view(term, &views[i], out));
  return brim_str_status(out);
}

//------------------------------------ last lines of a bench ------------------------------------
// The last lines of a bench: the learning-rate note and the checklist before training.

static void put_check(const brim_term *term, const brim_advice_check *c, brim_str *out) {
  const char *mark = c->done ? (term->unicode ? "✓" : "x") : " ";
  brim_str_append(out, "  [");
  brim_ui_styled(out, term, BRIM_UI_GOOD, mark);
  brim_str_append(out, "] ");
  brim_ui_wrap(out, term, c->text, 6);
  brim_str_append_char(out, '\n');
}

static void put_note(const brim_term *term, const char *text, brim_str *out) {
  if (!text[0]) return;
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

void brim_ui_advice(const brim_term *term, const brim_advice *advice, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("BEFORE TRAINING"));
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < advice->check_count; i++) put_check(term, &advice->checks[i], out);
  if (advice->learning_rate[0] || advice->accumulation[0]) brim_str_append_char(out, '\n');
  put_note(term, advice->learning_rate, out);
  put_note(term, advice->accumulation, out);
}
