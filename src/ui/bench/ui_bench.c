// A bench on a terminal: the table of settings, the recommendation, findings, memory plans, tables of the workload, and
// the checklist before training. ui_report.c shows the same as a page.

#include "ui/bench/ui_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "ui/bench/ui_bench_int.h"
#include "ui/pages/ui_pages.h"

//-------------------------------------------- texts --------------------------------------------

const char *brim_ui_failure_text(const brim_result *result) {
  if (result->failure == BRIM_FAILURE_NONE && result->throttled) return brim_tr("throttled");
  if (result->failure == BRIM_FAILURE_NONE && result->steps > 0 && !result->stable) {
    return brim_result_one_sample(result) ? brim_tr("one sample") : brim_tr("unstable");
  }
  return brim_ui_failure_class(result->failure);
}

const char *brim_ui_description(const char *english, char out[192]) {
  static const char on[] = " on ", result[] = " samples of ", most[] = "up to ";
  char model[64], count[32];
  if (!english) return "";
  const char *first = strstr(english, on);
  const char *second = first ? strstr(first, result) : NULL;
  if (!second || first - english >= (ptrdiff_t)sizeof model) return english;
  const char *number = first + strlen(on), *shape = second + strlen(result);
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

static const char *text_of(const char *text, const char *name) {
  return brim_tr(text ? text : name);
}

const char *brim_ui_knob_label(const brim_result *result, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(result, name);
  return text_of(row ? row->heading : NULL, name);
}

static const char *short_label(const brim_result *result, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(result, name);
  return text_of(row ? row->narrow : NULL, name);
}

bool brim_ui_knob_is(const brim_result *result, const char *name, brim_knob_role role) {
  const brim_knob_row *row = brim_result_knob_row(result, name);
  return row && row->role == role;
}

bool brim_ui_knob_shown(const brim_result *results, size_t count, const char *name) {
  const brim_knob_row *row = count > 0 ? brim_result_knob_row(&results[0], name) : NULL;
  return (row && row->always) || brim_result_knob_varies(results, count, name);
}

static void put_knob_lines(const brim_term *term, const brim_result *results, size_t count,
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

static void put_memory_line(const brim_term *term, const brim_result *result, brim_str *out) {
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

static void put_rate_line(const brim_term *term, const brim_result *result, brim_str *out) {
  char rate[32], low[32], high[32], text[128];
  brim_format_figure(result->samples_per_s, rate);
  brim_format_figure(result->samples_per_s_low, low);
  brim_format_figure(result->samples_per_s_high, high);
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

//-------------------------------------------- table --------------------------------------------

typedef enum column_kind {
  COLUMN_KNOB,   // index: into the knobs of the first result
  COLUMN_PHASE,  // index: brim_phase
  COLUMN_TOTAL,
  COLUMN_RATE,
  COLUMN_UTILISATION,
  COLUMN_MEMORY,
  COLUMN_STATUS
} column_kind;

typedef struct bench_column {
  column_kind kind;
  int index;
  char header[48];
  char short_header[32];
  int priority;
} bench_column;

bool brim_ui_any_gpu(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (brim_result_has_gpu(&results[i])) return true;
  }
  return false;
}

double brim_ui_phase_ms(const brim_result *result, int phase) {
  const bool known = !isnan(result->phase_ms[phase].median);
  return known ? brim_result_phase_ms(result, (brim_phase)phase) : (double)NAN;
}

static void add_column(bench_column *out, size_t *n, column_kind kind, int index, int priority,
                       const char *header) {
  if (*n == BRIM_UI_MAX_COLUMNS) return;
  bench_column *c = &out[(*n)++];
  *c = (bench_column){.kind = kind, .index = index, .priority = priority};
  snprintf(c->header, sizeof c->header, "%s", header);
  // "Fwd(ms)" becomes "Fwd" when space is short.
  snprintf(c->short_header, sizeof c->short_header, "%.*s", (int)strcspn(header, "("), header);
}

static bool phase_seen(const brim_result *results, size_t count, int phase) {
  for (size_t i = 0; i < count; i++) {
    if (!results[i].phase_used[phase]) continue;
    if (phase == BRIM_PHASE_IO || phase == BRIM_PHASE_FORWARD || phase == BRIM_PHASE_BACKWARD ||
        phase == BRIM_PHASE_OPTIMIZER || brim_ui_phase_ms(&results[i], phase) >= 0.005) {
      return true;
    }
  }
  return false;
}

// Chooses the columns for these results. Returns the number of columns, at most BRIM_UI_MAX_COLUMNS.
static size_t make_columns(const brim_result *results, size_t count, bench_column *out) {
  static const int phase_priority[BRIM_PHASE_COUNT] = {
      [BRIM_PHASE_IO] = 3,        [BRIM_PHASE_FORWARD] = 3, [BRIM_PHASE_BACKWARD] = 3,
      [BRIM_PHASE_OPTIMIZER] = 5, [BRIM_PHASE_H2D] = 6,     [BRIM_PHASE_TRANSFORM] = 6,
      [BRIM_PHASE_ENV] = 4,       [BRIM_PHASE_ACT] = 4,     [BRIM_PHASE_UPDATE] = 4,
      [BRIM_PHASE_OTHER] = 7,     [BRIM_PHASE_COMPUTE] = 4,
  };
  size_t n = 0;
  if (count == 0) return 0;
  for (size_t k = 0; k < results[0].knob_count; k++) {
    const char *name = results[0].knobs[k].name;
    bool shown = brim_ui_knob_shown(results, count, name);
    if (!shown || n + BRIM_PHASE_COUNT + 5 >= BRIM_UI_MAX_COLUMNS) continue;
    // Rows differ only in swept knobs. The recommendation shows the other knobs, so their columns may be left out.
    bool needed = brim_result_knob_varies(results, count, name) ||
                  brim_ui_knob_is(&results[0], name, BRIM_ROLE_BATCH);
    add_column(out, &n, COLUMN_KNOB, (int)k, needed ? 0 : 4, brim_ui_knob_label(&results[0], name));
    snprintf(out[n - 1].short_header, sizeof out->short_header, "%s",
             short_label(&results[0], name));
  }
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (!phase_seen(results, count, p)) continue;
    char header[48];
    snprintf(header, sizeof header, "%s(ms)", brim_tr(brim_phase_label((brim_phase)p)));
    add_column(out, &n, COLUMN_PHASE, p, phase_priority[p], header);
  }
  add_column(out, &n, COLUMN_TOTAL, 0, 1, brim_tr("Total(ms)"));
  char rate[64];
  add_column(out, &n, COLUMN_RATE, 0, 0, brim_ui_rate_heading(results, count, rate));
  add_column(out, &n, COLUMN_UTILISATION, 0, 4, brim_ui_any_gpu(results, count) ? "GPU%" : "CPU%");
  add_column(out, &n, COLUMN_MEMORY, 0, 2, brim_tr("Mem"));
  add_column(out, &n, COLUMN_STATUS, 0, 0, brim_tr("Status"));
  return n;
}

static void cell_text(const bench_column *column, const brim_result *result,
                      const brim_result *first, char out[64]) {
  char text[32] = "";
  bool ran = result->failure == BRIM_FAILURE_NONE;
  switch (column->kind) {
    case COLUMN_KNOB: {
      const brim_result_knob *knob =
          brim_result_knob_find(result, first->knobs[column->index].name);
      snprintf(out, 64, "%s", knob ? knob->value : "-");
      return;
    }
    case COLUMN_PHASE:
      if (ran) brim_ui_ms(brim_ui_phase_ms(result, column->index), text);
      break;
    case COLUMN_TOTAL:
      if (ran) brim_ui_ms(result->total_ms.median, text);
      break;
    case COLUMN_RATE:
      if (ran) brim_format_figure(result->samples_per_s, text);
      break;
    case COLUMN_UTILISATION: {
      double share = brim_result_has_gpu(result) ? result->gpu_percent : result->cpu_percent;
      if (ran && isnan(share)) snprintf(text, sizeof text, "-");
      if (ran && !isnan(share)) snprintf(text, sizeof text, "%.0f", brim_shown(share));
      break;
    }
    case COLUMN_MEMORY:
      brim_format_bytes((uint64_t)brim_result_memory(result), text);
      break;
    case COLUMN_STATUS:
      snprintf(out, 64, "%s", brim_ui_failure_text(result));
      return;
  }
  snprintf(out, 64, "%s", text);
}

static brim_ui_style row_style(const brim_result *result, bool recommended, column_kind kind) {
  if (recommended) return BRIM_UI_BEST;
  if (kind == COLUMN_STATUS) {
    if (result->failure == BRIM_FAILURE_OOM_PLANNED) return BRIM_UI_WARN;
    if (result->failure != BRIM_FAILURE_NONE) return BRIM_UI_BAD;
    bool fine = (result->stable && !result->throttled) || result->steps == 0;
    return fine ? BRIM_UI_GOOD : BRIM_UI_WARN;
  }
  return result->failure == BRIM_FAILURE_NONE ? BRIM_UI_PLAIN : BRIM_UI_DIM;
}

brim_status brim_ui_bench_table(const brim_term *term, const brim_result *results, size_t count,
                                int recommended, brim_str *out) {
  bench_column bench[BRIM_UI_MAX_COLUMNS];
  brim_ui_column columns[BRIM_UI_MAX_COLUMNS];
  size_t n = make_columns(results, count, bench);
  if (n == 0) return BRIM_OK;
  // Make the status column wide enough for the star of the recommended setting.
  int status_width = 8;
  if (recommended >= 0 && (size_t)recommended < count) {
    int with_star = brim_utf8_width(brim_ui_failure_text(&results[recommended])) + 2;
    if (with_star > status_width) status_width = with_star;
  }
  for (size_t i = 0; i < n; i++) {
    bool status = bench[i].kind == COLUMN_STATUS;
    columns[i] = (brim_ui_column){.header = bench[i].header,
                                  .short_header = bench[i].short_header,
                                  .align = status ? BRIM_UI_LEFT : BRIM_UI_RIGHT,
                                  .priority = bench[i].priority,
                                  .min_width = status ? status_width : 0};
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n);
  // Leave out forward and backward together: one alone would look like all of computing.
  for (size_t i = 0; i < n; i++) {
    bool is_half = bench[i].kind == COLUMN_PHASE &&
                   (bench[i].index == BRIM_PHASE_FORWARD || bench[i].index == BRIM_PHASE_BACKWARD);
    if (is_half) table.together |= (uint64_t)1 << i;
  }
  for (size_t r = 0; r < count; r++) {
    bool best = (int)r == recommended;
    for (size_t i = 0; i < n; i++) {
      char text[64];
      cell_text(&bench[i], &results[r], &results[0], text);
      bool mark = best && bench[i].kind == COLUMN_STATUS;
      brim_ui_table_add(&table, row_style(&results[r], best, bench[i].kind), "%s%s", text,
                        !mark           ? ""
                        : term->unicode ? " ★"
                                        : " *");
    }
  }
  int left_out = 0;
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_note_left_out(term, left_out, out);
  brim_ui_table_deinit(&table);
  return status ? status : brim_str_status(out);
}

//---------------------------------------- recommendation ----------------------------------------

void brim_ui_factor(brim_interval f, char out[64]) {
  out[0] = '\0';
  if (isnan(f.value)) return;
  if (!brim_ui_interval_tells(f.low, f.high)) {
    snprintf(out, 64, "x%.2f", brim_shown(f.value));
    return;
  }
  const double width = f.high - f.low;
  int n = width >= 0.5 ? 1 : width >= 0.02 ? 2 : 3;  // the digits that the interval supports
  snprintf(out, 64, "x%.*f [%.*f, %.*f]", n, brim_shown(f.value), n, brim_shown(f.low), n,
           brim_shown(f.high));
}

const char *brim_ui_own_text(const brim_recommendation *d) {
  return d->own_is_fastest && !d->provisional
             ? brim_tr("keep your setting: it is already the fastest")
             : brim_tr("keep your setting: no other is certainly faster");
}

const char *brim_ui_pick_title(const brim_recommendation *d) {
  return brim_recommendation_keeps(d) ? brim_tr("Keep your setting")
                                      : brim_tr("Recommended for training");
}

// "Recommended for training" or "Keep your setting", marked if it is provisional.
static void recommended_title(const brim_term *term, const brim_recommendation *d, brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_BOLD, brim_ui_pick_title(d));
  if (d->provisional) {
    brim_str_append_char(out, ' ');
    brim_ui_styled(out, term, BRIM_UI_WARN, brim_tr("(provisional: another may be faster)"));
  }
  brim_str_append_char(out, '\n');
}

// Puts "Now → recommended: x1.4 [1.3, 1.5]", the reason, and a faster setting that changes learning.
static void decision_lines(const brim_term *term, const brim_recommendation *d, brim_str *out) {
  char factor[64], text[320];
  if (d->now >= 0) {
    brim_ui_factor(d->gain, factor);
    snprintf(text, sizeof text, "%s %s %s", brim_tr("Now"), term->unicode ? "→" : "->",
             brim_tr("recommended"));
    brim_ui_put_line(term, text, brim_recommendation_keeps(d) ? brim_ui_own_text(d) : factor, out);
  }
  if (d->reason[0]) brim_ui_put_line(term, brim_tr("Why"), d->reason, out);
  if (d->beside >= 0) {
    brim_ui_factor(d->more, factor);
    snprintf(text, sizeof text, "%s, %s", factor, d->beside_text);
    brim_ui_put_line(term, brim_tr("Faster still"), text, out);
  }
}

// If the CPU use of other programs changed by this many percentage points, it explains the different speed.
#define OTHER_LOAD_POINTS 10

void brim_ui_verified_comment(const brim_verification *v, char out[320]) {
  char low[32], high[32];
  out[0] = '\0';
  if (!(v->achieved > 0) || !(v->predicted.value > 0)) return;
  if (!(v->predicted.low > 0) || !brim_ui_interval_tells(v->predicted.low, v->predicted.high)) {
    snprintf(out, 320, "%s", brim_tr("the sweep was too unsteady to predict a range"));
    return;
  }
  brim_format_figure(v->predicted.low, low);
  brim_format_figure(v->predicted.high, high);
  if (v->achieved >= v->predicted.low && v->achieved <= v->predicted.high) {
    snprintf(out, 320, brim_tr("within the %s to %s that were expected"), low, high);
  } else if (fabs(v->others_now - v->others_then) >= OTHER_LOAD_POINTS) {
    snprintf(out, 320,
             brim_tr("outside the %s to %s that were expected: other programs used %.0f %% of the "
                     "CPU during the sweep and %.0f %% now"),
             low, high, v->others_then, v->others_now);
  } else {
    snprintf(out, 320,
             v->achieved > v->predicted.high
                 ? brim_tr("above the %s to %s that were expected: the machine was slower during "
                           "the sweep; measure again with more --repeats")
                 : brim_tr("below the %s to %s that were expected: the machine is slower now, or "
                           "training has costs that the sweep does not; see brim profile"),
             low, high);
  }
}

//------------------------------------------- findings -------------------------------------------

void brim_ui_add_others(const brim_result *r, brim_str *out) {
  if (brim_result_has_gpu(r) || !brim_results_were_disturbed(r, 1)) return;
  brim_str_printf(out, brim_tr(", while other programs had %.0f %% of the CPU"),
                  brim_shown(r->others_cpu_percent));
}

void brim_ui_doubtful(const brim_result *r, char out[256]) {
  snprintf(out, 256,
           brim_tr("unknown: other programs had %.0f %% of the machine when brim measured what it "
                   "can do"),
           brim_shown(100 * r->ceilings.load));
}

// "98 % of the slower stage (computing)". False if the share is unknown, or above 100 %: then the ceiling is wrong.
static bool put_stage_share(const brim_result *r, char *out, size_t size) {
  bool loading;
  double share = 100 * brim_result_ceiling_share(r, &loading);
  if (!(share <= 100)) return false;
  snprintf(out, size, brim_tr("%.0f %% of the slower stage (%s)"), brim_shown(share),
           loading ? brim_tr("loading") : brim_tr("computing"));
  return true;
}

static bool put_product_share(const brim_result *r, char *out, size_t size) {
  const char *precision;
  double share = 100 * brim_result_product_share(r, &precision);
  if (!(share <= 100)) return false;
  if (share < 1) {
    snprintf(out, size, brim_tr("under 1 %% of this machine's %s matrix products"), precision);
  } else {
    snprintf(out, size, brim_tr("%.0f %% of this machine's %s matrix products"), brim_shown(share),
             precision);
  }
  return true;
}

bool brim_ui_healthy(const brim_result *result, char out[256]) {
  char stage[96], products[96];
  brim_str others;
  if (!brim_result_ran(result) || brim_result_worth_fixing(result)) return false;
  bool has_stage = put_stage_share(result, stage, sizeof stage);
  bool has_products = put_product_share(result, products, sizeof products);
  if (has_stage && has_products) {
    snprintf(out, 256, brim_tr("nothing worth fixing: %s, %s"), stage, products);
  } else if (has_stage || has_products) {
    snprintf(out, 256, brim_tr("nothing worth fixing: %s"), has_stage ? stage : products);
  } else {
    snprintf(out, 256, "%s",
             brim_tr("nothing worth fixing; brim has no ceiling to compare it with"));
  }
  brim_str_init(&others);
  if (has_stage || has_products) brim_ui_add_others(result, &others);
  if (others.len) snprintf(out + strlen(out), 256 - strlen(out), "%s", others.data);
  brim_str_deinit(&others);
  return true;
}

bool brim_ui_healthy_beside(const brim_result *result, const brim_recommendation *d,
                            char out[256]) {
  char factor[64];
  if (!brim_ui_healthy(result, out)) return false;
  if (!d || d->now < 0 || brim_recommendation_keeps(d) || !(d->gain.low > 1)) return true;
  brim_ui_factor(d->gain, factor);
  snprintf(out, 256, brim_tr("no single cost stands out; the recommended setting gains %s"),
           factor);
  return true;
}

const char *brim_ui_estimated(const brim_finding *f) {
  return f->measured ? "" : brim_tr(", estimated");
}

static void put_finding(const brim_term *term, const brim_result *r, const brim_finding *f,
                        brim_str *out) {
  char cost[32], price[64] = "";
  if (!isnan(f->cost_ms)) {
    brim_ui_ms(f->cost_ms, cost);
    const bool iterates = r->knob_set && r->knob_set->iterates;
    snprintf(price, sizeof price,
             iterates ? brim_tr(" (%s ms per iteration%s)") : brim_tr(" (%s ms per step%s)"), cost,
             brim_ui_estimated(f));
  }
  brim_str text, remedy;
  brim_str_init(&text);
  brim_str_init(&remedy);
  brim_words_read(f->text, &text);
  brim_words_read(f->remedy, &remedy);
  brim_str_append(&text, price);
  brim_ui_styled(out, term, BRIM_UI_WARN, term->unicode ? "• " : "* ");
  brim_ui_wrap(out, term, text.data, 2);
  if (remedy.len > 0) {
    brim_str_append(out, "\n  ");
    brim_str_append(out, term->unicode ? "→ " : "> ");
    brim_ui_wrap(out, term, remedy.data, 4);
  }
  brim_str_append_char(out, '\n');
  if (text.status || remedy.status) out->status = BRIM_ENOMEM;
  brim_str_deinit(&remedy);
  brim_str_deinit(&text);
}

void brim_ui_put_finding_text(const brim_finding *f, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  brim_words_read(f->text, &text);
  brim_ui_put(out, "p", text.data);
  brim_str_clear(&text);
  brim_words_read(f->remedy, &text);
  if (text.len > 0) {
    brim_ui_put_class(out, "p", "remedy", text.data);
  }
  if (text.status) out->status = text.status;
  brim_str_deinit(&text);
}

bool brim_ui_prices_overlap(const brim_result *result) {
  size_t priced = 0;
  for (size_t i = 0; i < result->finding_count; i++) {
    priced += !result->findings[i].note && !isnan(result->findings[i].cost_ms);
  }
  return priced > 1;
}

void brim_ui_bench_findings(const brim_term *term, const brim_result *result,
                            const brim_recommendation *beside, brim_str *out) {
  char healthy[256];
  if (brim_ui_healthy_beside(result, beside, healthy)) {
    brim_ui_styled(out, term, BRIM_UI_GOOD, term->unicode ? "• " : "* ");
    brim_ui_wrap(out, term, healthy, 2);
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < result->finding_count; i++) {
    put_finding(term, result, &result->findings[i], out);
  }
  if (brim_ui_prices_overlap(result)) {
    brim_ui_wrap(out, term, brim_tr(BRIM_UI_PRICES_OVERLAP), 0);
    brim_str_append_char(out, '\n');
  }
}

//-------------------------------------------- summary -------------------------------------------

static void put_title(const brim_term *term, const char *title, brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_BOLD, title);
  brim_str_append_char(out, '\n');
}

// Puts the utilisation that is known: of a GPU from "a kernel ran" down to the use of its units, else of the CPU.
static void put_utilisation(const brim_term *term, const brim_result *result, brim_str *out) {
  const struct {
    const char *name;
    double percent;
  } rungs[] = {{BRIM_N_("busy"), result->gpu_percent},
               {BRIM_N_("SMs"), result->sm_percent},
               {BRIM_N_("tensor cores"), result->tensor_percent},
               {BRIM_N_("memory bandwidth"), result->dram_percent}};
  brim_str text;
  brim_str_init(&text);
  bool gpu = brim_result_has_gpu(result);
  for (size_t i = 0; i < 4 && gpu; i++) {
    if (isnan(rungs[i].percent)) continue;
    brim_str_printf(&text, "%s%s %.0f %%", text.len ? ", " : "", brim_tr(rungs[i].name),
                    brim_shown(rungs[i].percent));
  }
  if (!gpu && !isnan(result->cpu_percent))
    brim_str_printf(&text, "%.0f %%", brim_shown(result->cpu_percent));
  if (text.len) {
    brim_ui_put_line(term, gpu ? brim_tr("GPU used") : brim_tr("CPU used"), text.data, out);
  }
  brim_str_deinit(&text);
}

// Puts the rates of loading alone and of computing alone, and the job's share of the slower one.
static void put_ceilings(const brim_term *term, const brim_result *result, brim_str *out) {
  char data[32], compute[32], rate[64], text[256];
  double low = fmin(result->data_samples_per_s, result->compute_samples_per_s);
  if (isnan(result->data_samples_per_s) || isnan(result->compute_samples_per_s) || !(low > 0)) {
    return;
  }
  brim_format_figure(result->data_samples_per_s, data);
  brim_format_figure(result->compute_samples_per_s, compute);
  double share = 100 * result->samples_per_s / low;
  const char *stage = result->data_samples_per_s < result->compute_samples_per_s
                          ? brim_tr("loading")
                          : brim_tr("computing");
  snprintf(text, sizeof text,
           share > 100 ? brim_tr("data alone %s, computing alone %s %s: too low, measured while "
                                 "other programs used the machine")
                       : brim_tr("data alone %s, computing alone %s %s: %.0f %% of the slower "
                                 "stage (%s)"),
           data, compute, brim_ui_rate_unit(result, 1, rate), brim_shown(share), stage);
  brim_ui_put_line(term, brim_tr("Ceilings"), text, out);
}

// "31 % of bf16 matrix products"; nothing if the share is unknown.
static void put_share(double share, const char *of, brim_str *out) {
  if (isnan(share)) return;
  if (out->len) brim_str_append(out, ", ");
  if (100 * share < 1) {
    brim_str_printf(out, brim_tr("under 1 %% of %s"), of);
  } else {
    brim_str_printf(out, brim_tr("%.0f %% of %s"), brim_shown(100 * share), of);
  }
}

static void put_machine_share(const brim_term *term, const brim_result *result, brim_str *out) {
  const char *precision;
  const double product = brim_result_product_share(result, &precision);
  char products[64];
  brim_str text;
  brim_str_init(&text);
  snprintf(products, sizeof products, brim_tr("%s matrix products"), precision);
  put_share(product, products, &text);
  put_share(brim_result_memory_share(result), brim_tr("memory bandwidth"), &text);
  if (text.len) {
    // The shares count the arithmetic and bytes of the plan. Caches and fused ops may move less than that; other ops
    // may need more.
    brim_str_append(&text, brim_tr(", by the plan"));
    brim_ui_add_others(result, &text);
    brim_ui_put_line(term, brim_tr("Of the machine"), text.data, out);
  } else if (brim_machine_doubtful(&result->ceilings)) {
    char reason[256];
    brim_ui_doubtful(result, reason);
    brim_ui_put_line(term, brim_tr("Of the machine"), reason, out);
  }
  brim_str_deinit(&text);
}

// Puts what the GPU recorded in a separate traced run.
static void put_trace(const brim_term *term, const brim_result *result, brim_str *out) {
  char busy[32], copies[32], text[128];
  if (isnan(result->gpu_busy_ms)) return;
  brim_ui_ms(result->gpu_busy_ms, busy);
  brim_ui_ms(result->gpu_copy_ms, copies);
  snprintf(text, sizeof text, brim_tr("%s ms busy per step, %s ms of copies, %.0f kernels (CUPTI)"),
           busy, copies, result->kernels);
  brim_ui_put_line(term, brim_tr("GPU time"), text, out);
}

static void put_energy(const brim_term *term, const brim_result *result, brim_str *out) {
  char text[96];
  if (isnan(result->power_w)) return;
  int n = isnan(result->power_limit_w) ? snprintf(text, sizeof text, "%.0f W", result->power_w)
                                       : snprintf(text, sizeof text, brim_tr("%.0f of %.0f W"),
                                                  result->power_w, result->power_limit_w);
  if (n > 0 && !isnan(result->joules_per_sample)) {
    snprintf(text + n, sizeof text - (size_t)n, brim_tr(", %.3g J per sample"),
             result->joules_per_sample);
  }
  brim_ui_put_line(term, brim_tr("Power"), text, out);
}

static void put_recommended(const brim_term *term, const brim_result *results, size_t count,
                            const brim_recommendation *picks, brim_str *out) {
  const brim_result *result = &results[picks->recommended];
  char number[32];
  recommended_title(term, picks, out);
  put_knob_lines(term, results, count, result, out);
  put_rate_line(term, result, out);
  put_memory_line(term, result, out);
  put_utilisation(term, result, out);
  put_ceilings(term, result, out);
  put_machine_share(term, result, out);
  put_trace(term, result, out);
  put_energy(term, result, out);
  if (!isnan(result->epoch_s)) {
    brim_format_duration(result->epoch_s, number);
    brim_ui_put_line(term, brim_tr("One epoch"), number, out);
  }
  decision_lines(term, picks, out);
}

// Counts the settings that ran and the settings that ran with steady times.
static void count_stable(const brim_result *results, size_t count, size_t *ran, size_t *stable) {
  *ran = *stable = 0;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i])) continue;
    ++*ran;
    if (results[i].stable) ++*stable;
  }
}

// True if every unstable setting was measured by one sample only, so that its steadiness is unknown.
static bool only_one_sample(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (brim_result_ran(r) && !r->stable && !brim_result_one_sample(r)) return false;
  }
  return true;
}

const char *brim_ui_why_nothing(const brim_result *results, size_t count) {
  size_t ran, stable;
  count_stable(results, count, &ran, &stable);
  if (ran == 0) return brim_tr("No setting ran, so there is nothing to recommend.");
  return brim_tr("No setting is recommended.");
}

static void put_paragraph(const brim_term *term, const char *text, brim_str *out) {
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

static void bench_picks(const brim_term *term, const brim_result *results, size_t count,
                        const brim_recommendation *picks, brim_str *out) {
  if (picks->highest < 0 || (size_t)picks->highest >= count) {
    put_paragraph(term, brim_ui_why_nothing(results, count), out);
    return;
  }
  put_title(term, brim_tr("Highest throughput"), out);
  put_knob_lines(term, results, count, &results[picks->highest], out);
  put_rate_line(term, &results[picks->highest], out);
  put_memory_line(term, &results[picks->highest], out);
  if (picks->efficient >= 0 && (size_t)picks->efficient < count) {
    const brim_result *result = &results[picks->efficient];
    char number[32], text[96];
    brim_str_append_char(out, '\n');
    const char *unit = brim_tr(brim_result_unit(result));
    snprintf(text, sizeof text, brim_tr("Best efficiency (%s/s per GB)"), unit);
    put_title(term, text, out);
    put_knob_lines(term, results, count, result, out);
    brim_format_figure(result->samples_per_s / (brim_result_memory(result) / 1e9), number);
    snprintf(text, sizeof text, "%s %s/s/GB", number, unit);
    brim_ui_put_line(term, brim_tr("Efficiency"), text, out);
  }
  brim_str_append_char(out, '\n');
  if (picks->recommended >= 0 && (size_t)picks->recommended < count) {
    put_recommended(term, results, count, picks, out);
  } else {
    put_paragraph(term, brim_ui_why_nothing(results, count), out);
  }
}

static bool mostly_unstable(const brim_result *results, size_t count, char out[256]) {
  size_t ran, stable;
  count_stable(results, count, &ran, &stable);
  if (2 * (ran - stable) <= ran) return false;
  if (only_one_sample(results, count)) {
    snprintf(out, 256,
             brim_tr("%zu of %zu settings were measured by one sample: take more --steps, or "
                     "--repeats 2 and more"),
             ran - stable, ran);
    return true;
  }
  snprintf(out, 256,
           brim_tr("%zu of %zu settings were unstable: measure again with more --steps, or while "
                   "nothing else uses the machine"),
           ran - stable, ran);
  return true;
}

size_t brim_ui_doubts(const brim_result *results, size_t count, char out[BRIM_UI_DOUBTS][256]) {
  size_t n = 0;
  if (brim_results_were_disturbed(results, count)) {
    snprintf(out[n++], 256,
             brim_tr("other programs used %.0f %% of the CPU during the sweep: on a quiet machine "
                     "the figures are higher, and their order may be another"),
             brim_results_others(results, count));
  }
  if (mostly_unstable(results, count, out[n])) n++;
  return n;
}

static void put_doubts(const brim_term *term, const brim_result *results, size_t count,
                       brim_str *out) {
  char doubts[BRIM_UI_DOUBTS][256];
  size_t n = brim_ui_doubts(results, count, doubts);
  for (size_t i = 0; i < n; i++) {
    brim_ui_styled(out, term, BRIM_UI_WARN, term->unicode ? "• " : "* ");
    brim_ui_wrap(out, term, doubts[i], 2);
    brim_str_append_char(out, '\n');
  }
  if (n > 0) brim_str_append_char(out, '\n');
}

bool brim_ui_has_findings(const brim_result *results, size_t count, int index) {
  return index >= 0 && (size_t)index < count && results[index].finding_count > 0;
}

// Puts the findings of the recommended setting, and of the fastest setting if it is a different one.
static void put_findings(const brim_term *term, const brim_result *results, size_t count,
                         const brim_recommendation *picks, brim_str *out) {
  bool recommended = picks->recommended >= 0 && (size_t)picks->recommended < count;
  bool highest =
      picks->highest != picks->recommended && brim_ui_has_findings(results, count, picks->highest);
  if (!recommended && !highest) return;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("FINDINGS"));
  brim_str_append_char(out, '\n');
  if (recommended) {
    put_title(term, brim_tr("Recommended for training"), out);
    brim_ui_bench_findings(term, &results[picks->recommended], NULL, out);
  }
  if (highest) {
    put_title(term, brim_tr("Highest throughput"), out);
    brim_ui_bench_findings(term, &results[picks->highest], NULL, out);
  }
}

// Puts a line below a table that says why setting `index` failed. Puts nothing if the setting did not fail, or if the
// line of an earlier setting explains the failure.
static void put_reason(const brim_term *term, const brim_result *results, size_t index,
                       brim_str *out) {
  const brim_result *r = &results[index];
  if (r->failure == BRIM_FAILURE_NONE || !r->message[0]) return;
  for (size_t k = 0; k < index; k++) {
    if (strcmp(results[k].message, r->message) == 0) return;  // each message once
    // Explain only the first plan that does not fit. The table has the bytes of every plan.
    if (results[k].failure == BRIM_FAILURE_OOM_PLANNED && r->failure == BRIM_FAILURE_OOM_PLANNED) {
      return;
    }
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_append(out, "  ");
  brim_str_printf(&text, "%s: %s", brim_ui_failure_text(r), r->message);
  brim_ui_wrap(out, term, text.data, 4);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

// Puts doubts about the figures, the table, why settings did not run, and the heading of the configuration.
static brim_status bench_summary(const brim_term *term, const brim_result *results, size_t count,
                                 int recommended, brim_str *out) {
  put_doubts(term, results, count, out);
  brim_ui_heading(out, term, brim_tr("BENCHMARK SUMMARY"));
  brim_str_append_char(out, '\n');
  BRIM_TRY(brim_ui_bench_table(term, results, count, recommended, out));
  size_t too_large = 0;
  for (size_t i = 0; i < count; i++) {
    put_reason(term, results, i, out);
    too_large += results[i].failure == BRIM_FAILURE_OOM_PLANNED;
  }
  if (too_large > 1) {
    brim_str_printf(out, brim_tr("  %zu settings do not fit in all; the table has their bytes\n"),
                    too_large);
  }
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("OPTIMAL CONFIGURATION"));
  brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

brim_status brim_ui_bench(const brim_term *term, const brim_result *results, size_t count,
                          const brim_recommendation *picks, brim_str *out) {
  BRIM_TRY(bench_summary(term, results, count, picks->recommended, out));
  bench_picks(term, results, count, picks, out);
  put_findings(term, results, count, picks, out);
  return brim_str_status(out);
}

// "batch 4096, workers 4, bf16": the knobs of the table on one line.
static void put_setting(const brim_result *results, size_t count, const brim_result *r,
                        brim_str *out) {
  bool first = true;
  for (size_t i = 0; i < r->knob_count; i++) {
    const char *name = r->knobs[i].name;
    if (!brim_ui_knob_shown(results, count, name)) continue;
    brim_str_append(out, first ? "" : ", ");
    first = false;
    if (brim_ui_knob_is(r, name, BRIM_ROLE_PRECISION)) {  // its values need no label
      brim_str_append(out, r->knobs[i].value);
    } else {
      brim_str_printf(out, "%s %s", brim_ui_knob_label(r, name), r->knobs[i].value);
    }
  }
}

// Puts one line for each of the three picks: fastest, most efficient, recommended.
static void put_pick_lines(const brim_term *term, const brim_result *results, size_t count,
                           const brim_recommendation *picks, brim_str *out) {
  bool keeps = brim_recommendation_keeps(picks);
  const struct {
    const char *label;
    int index;
    bool by_memory;
  } lines[] = {
      {brim_tr("Highest throughput"), picks->highest, false},
      {brim_tr("Best efficiency"), picks->efficient, true},
      {keeps ? brim_tr("Keep your setting") : brim_tr("Recommended"), picks->recommended, false}};
  int width = 0;
  for (size_t i = 0; i < 3; i++) {
    if (brim_utf8_width(lines[i].label) > width) width = brim_utf8_width(lines[i].label);
  }
  for (size_t i = 0; i < 3; i++) {
    if (lines[i].index < 0 || (size_t)lines[i].index >= count) continue;
    const brim_result *r = &results[lines[i].index];
    double value = r->samples_per_s;
    if (lines[i].by_memory) value /= brim_result_memory(r) / 1e9;
    char number[32];
    brim_str text;
    brim_str_init(&text);
    put_setting(results, count, r, &text);
    brim_format_figure(value, number);
    brim_str_printf(&text, lines[i].by_memory ? ": %s %s/s/GB" : ": %s %s/s", number,
                    brim_tr(brim_result_unit(r)));
    brim_str_printf(out, "  %s", lines[i].label);
    brim_str_repeat(out, ' ', (size_t)(width - brim_utf8_width(lines[i].label)) + 2);
    brim_ui_fit(out, term, text.data, width + 4);
    brim_str_append_char(out, '\n');
    if (brim_str_status(&text) && !out->status) out->status = text.status;
    brim_str_deinit(&text);
  }
}

brim_status brim_ui_bench_short(const brim_term *term, const brim_result *results, size_t count,
                                const brim_recommendation *picks, brim_str *out) {
  BRIM_TRY(bench_summary(term, results, count, picks->recommended, out));
  if (picks->recommended < 0 || (size_t)picks->recommended >= count) {
    brim_ui_wrap(out, term, brim_ui_why_nothing(results, count), 0);
    brim_str_append_char(out, '\n');
    return brim_str_status(out);
  }
  const brim_result *pick = &results[picks->recommended];
  put_pick_lines(term, results, count, picks, out);
  brim_str_append_char(out, '\n');
  recommended_title(term, picks, out);
  put_knob_lines(term, results, count, pick, out);
  put_rate_line(term, pick, out);
  put_memory_line(term, pick, out);
  decision_lines(term, picks, out);
  return brim_str_status(out);
}

//-------------------------------------------- plans --------------------------------------------
// The planned memory of settings that were not run.

static void add_bytes(brim_ui_table *table, brim_ui_style style, double bytes) {
  char text[32];
  if (isnan(bytes)) {
    brim_ui_table_add(table, style, "-");
    return;
  }
  brim_format_bytes((uint64_t)bytes, text);
  brim_ui_table_add(table, style, "%s", text);
}

static void add_share(brim_ui_table *table, brim_ui_style style, double part, double whole) {
  if (isnan(part) || !(whole > 0)) {
    brim_ui_table_add(table, style, "-");
  } else {
    brim_ui_table_add(table, style, "%.1f", brim_shown(part / whole * 100));
  }
}

// Sum of the rows of a plan whose name is `name`; NaN if no row has this name.
static double row_bytes(const brim_plan *plan, const char *name) {
  double sum = 0;
  bool found = false;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, name) != 0) continue;
    sum += (double)plan->rows[i].bytes;
    found = true;
  }
  return found ? sum : NAN;
}

// The names of the plans' rows, which become columns, in order of appearance.
static size_t plan_names(const brim_result *results, size_t count, const char **names, size_t max) {
  size_t n = 0;
  for (size_t r = 0; r < count; r++) {
    const brim_plan *plan = &results[r].plan;
    for (size_t i = 0; i < plan->row_count && n < max; i++) {
      bool known = false;
      for (size_t k = 0; k < n; k++) known = known || strcmp(names[k], plan->rows[i].name) == 0;
      if (!known) names[n++] = plan->rows[i].name;
    }
  }
  return n;
}

enum { MAX_NAMES = 16, MAX_KNOBS = 8 };

// A table of plans: the knobs and the plan rows that vary are its columns.
typedef struct plan_view {
  const brim_result *results;
  size_t count;
  const char *knobs[MAX_KNOBS];
  size_t knob_count;
  const char *names[MAX_NAMES];
  size_t name_count;
  uint64_t limit;   // 0 = none
  bool recomputed;  // some setting recomputes blocks: a column counts the recomputed blocks
} plan_view;

// The first setting that has a plan; the last one if none has.
static size_t first_plan(const brim_result *results, size_t count) {
  size_t i = 0;
  while (i + 1 < count && results[i].plan.row_count == 0) i++;
  return i;
}

static bool name_varies(const brim_result *results, size_t count, const char *name) {
  size_t base = first_plan(results, count);
  double first = row_bytes(&results[base].plan, name);
  for (size_t i = base + 1; i < count; i++) {
    if (results[i].plan.row_count == 0) continue;
    double bytes = row_bytes(&results[i].plan, name);
    if (isnan(first) != isnan(bytes) || (!isnan(first) && first != bytes)) return true;
  }
  return false;
}

// Adds a value that all settings share to the line above the table: "Workers 0, parameters 4 MiB".
static void put_constant(const char *label, const char *value, brim_str *line) {
  brim_str_printf(line, "%s%s %s", line->len ? ", " : "", label, value);
}

static brim_status make_view(const brim_term *term, plan_view *v, brim_str *out) {
  const char *names[MAX_NAMES];
  bool several = v->count > 1;  // for a single setting every value is a column
  brim_str line;
  brim_str_init(&line);
  for (size_t k = 0; k < v->results[0].knob_count; k++) {
    const brim_result_knob *knob = &v->results[0].knobs[k];
    if (!brim_ui_knob_shown(v->results, v->count, knob->name)) continue;
    bool varies = brim_result_knob_varies(v->results, v->count, knob->name);
    if (several && !varies) {
      put_constant(brim_ui_knob_label(v->results, knob->name), knob->value, &line);
    } else if (v->knob_count < MAX_KNOBS) {
      v->knobs[v->knob_count++] = knob->name;
    }
  }
  size_t n = plan_names(v->results, v->count, names, MAX_NAMES);
  for (size_t i = 0; i < n; i++) {
    if (!several || name_varies(v->results, v->count, names[i])) {
      v->names[v->name_count++] = names[i];
      continue;
    }
    char bytes[32];
    const brim_plan *plan = &v->results[first_plan(v->results, v->count)].plan;
    brim_format_bytes((uint64_t)row_bytes(plan, names[i]), bytes);
    put_constant(brim_tr(names[i]), bytes, &line);
  }
  if (line.len) {
    brim_str text;
    brim_str_init(&text);
    brim_str_printf(&text, brim_tr("Same for all: %s"), line.data);
    brim_ui_wrap(out, term, text.data, 2);
    brim_str_append(out, "\n\n");
    if (brim_str_status(&text)) line.status = text.status;
    brim_str_deinit(&text);
  }
  brim_status status = brim_str_status(&line);
  brim_str_deinit(&line);
  return status;
}

static size_t sweep_columns(const plan_view *v, brim_ui_column *columns) {
  size_t n = 0;
  for (size_t k = 0; k < v->knob_count; k++) {
    columns[n++] = (brim_ui_column){.header = brim_ui_knob_label(v->results, v->knobs[k]),
                                    .short_header = short_label(v->results, v->knobs[k]),
                                    .align = BRIM_UI_RIGHT};
  }
  for (size_t i = 0; i < v->name_count; i++) {
    // The last rows of the plan are left out first. Activations stay longest: they decide the batch size.
    bool activations = strcmp(v->names[i], "activations") == 0;
    columns[n++] = (brim_ui_column){.header = brim_tr(v->names[i]),
                                    .align = BRIM_UI_RIGHT,
                                    .priority = activations ? 1 : 4 + (int)i};
  }
  if (v->recomputed) {
    columns[n++] =
        (brim_ui_column){.header = brim_tr("Recomputed"), .align = BRIM_UI_RIGHT, .priority = 3};
  }
  columns[n++] =
      (brim_ui_column){.header = brim_tr("Device"), .align = BRIM_UI_RIGHT, .priority = 3};
  columns[n++] = (brim_ui_column){.header = brim_tr("Host"), .align = BRIM_UI_RIGHT, .priority = 3};
  columns[n++] = (brim_ui_column){.header = brim_tr("Total"), .align = BRIM_UI_RIGHT};
  columns[n++] = (brim_ui_column){.header = v->limit ? brim_tr("% of limit") : brim_tr("% of free"),
                                  .short_header = "%",
                                  .align = BRIM_UI_RIGHT,
                                  .priority = 2};
  columns[n++] = (brim_ui_column){.header = brim_tr("Status"), .min_width = 6};
  return n;
}

static void add_plan_row(const plan_view *v, const brim_result *result, brim_ui_table *table) {
  bool fits = result->failure == BRIM_FAILURE_NONE;
  brim_ui_style style = fits ? BRIM_UI_PLAIN : BRIM_UI_DIM;
  bool planned = result->plan.row_count > 0;
  double device = planned ? (double)result->plan.bytes[BRIM_PLACE_DEVICE] : (double)NAN;
  double host = planned ? (double)result->plan.bytes[BRIM_PLACE_HOST] : (double)NAN;
  for (size_t k = 0; k < v->knob_count; k++) {
    const brim_result_knob *knob = brim_result_knob_find(result, v->knobs[k]);
    brim_ui_table_add(table, style, "%s", knob ? knob->value : "-");
  }
  for (size_t i = 0; i < v->name_count; i++) {
    add_bytes(table, style, row_bytes(&result->plan, v->names[i]));
  }
  if (v->recomputed && result->plan.segments > 0) {
    brim_ui_table_add(table, style, brim_tr("%d of %d"), (int)result->plan.recomputed,
                      (int)result->plan.segments);
  } else if (v->recomputed) {
    brim_ui_table_add(table, style, "-");
  }
  double whole = result->free_bytes;
  if (v->limit && (double)v->limit < whole) whole = (double)v->limit;
  add_bytes(table, style, device);
  add_bytes(table, style, host);
  add_bytes(table, style, device + host);
  add_share(table, style, brim_result_memory(result), whole);
  brim_ui_table_add(table, fits ? BRIM_UI_GOOD : BRIM_UI_WARN, "%s",
                    fits ? brim_tr("fits") : brim_ui_failure_text(result));
}

brim_status brim_ui_plan_sweep(const brim_term *term, const brim_result *results, size_t count,
                               uint64_t limit, brim_str *out) {
  brim_ui_column columns[BRIM_UI_MAX_COLUMNS];
  plan_view v = {.results = results, .count = count, .limit = limit};
  if (count == 0) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    v.recomputed = v.recomputed || results[i].plan.recomputed > 0;
  }
  BRIM_TRY(make_view(term, &v, out));
  size_t n = sweep_columns(&v, columns);
  int left_out = 0;
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n);
  for (size_t r = 0; r < count; r++) add_plan_row(&v, &results[r], &table);
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_note_left_out(term, left_out, out);
  brim_ui_table_deinit(&table);
  // Plans that are too large need no line: the table shows them.
  for (size_t i = 0; i < count; i++) {
    if (results[i].failure != BRIM_FAILURE_OOM_PLANNED) put_reason(term, results, i, out);
  }
  return status ? status : brim_str_status(out);
}

//------------------------------------- tables of a workload -------------------------------------

static brim_status put_workload_table(const brim_term *term, const brim_view *v, brim_str *out) {
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

brim_status brim_ui_workload_tables(const brim_term *term, const brim_view *views, size_t count,
                                    brim_str *out) {
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count; i++) BRIM_TRY(put_workload_table(term, &views[i], out));
  return brim_str_status(out);
}

//---------------------------------------- before training ----------------------------------------

static void put_check(const brim_term *term, const brim_advice_check *c, brim_str *out) {
  const char *mark = c->done ? (term->unicode ? "✓" : "x") : " ";
  brim_str_append(out, "  [");
  brim_ui_styled(out, term, BRIM_UI_GOOD, mark);
  brim_str_append(out, "] ");
  brim_ui_wrap(out, term, c->text, 6);
  brim_str_append_char(out, '\n');
}

void brim_ui_advice(const brim_term *term, const brim_advice *advice, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("BEFORE TRAINING"));
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < advice->check_count; i++) put_check(term, &advice->checks[i], out);
  if (advice->learning_rate[0] || advice->accumulation[0]) brim_str_append_char(out, '\n');
  if (advice->learning_rate[0]) put_paragraph(term, advice->learning_rate, out);
  if (advice->accumulation[0]) put_paragraph(term, advice->accumulation, out);
}
