// The bench summary: the table of settings, the three picks, the findings.
#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/record_findings.h"

bool brim_ui_any_gpu(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (brim_result_has_gpu(&results[i])) return true;
  }
  return false;
}

//---------------------------------- columns ----------------------------------

double brim_ui_phase_ms(const brim_result *result, int phase) {
  const bool known = !isnan(result->phase_ms[phase].median);
  return known ? brim_result_phase_ms(result, (brim_phase)phase) : (double)NAN;
}

static void add_column(brim_ui_bench_column *out, size_t *n, brim_ui_what what, int index,
                       int priority, const char *header) {
  if (*n == BRIM_UI_MAX_COLUMNS) return;
  brim_ui_bench_column *c = &out[(*n)++];
  *c = (brim_ui_bench_column){.what = what, .index = index, .priority = priority};
  snprintf(c->header, sizeof c->header, "%s", header);
  // "Fwd(ms)" is "Fwd" when space is short.
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

size_t brim_ui_bench_columns(const brim_result *results, size_t count, brim_ui_bench_column *out) {
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
    // Without a knob that was swept the rows look alike; the picks show one that was not.
    bool needed = brim_result_knob_varies(results, count, name) ||
                  brim_ui_knob_is(&results[0], name, BRIM_ROLE_BATCH);
    add_column(out, &n, BRIM_UI_WHAT_KNOB, (int)k, needed ? 0 : 4,
               brim_ui_knob_label(&results[0], name));
    snprintf(out[n - 1].short_header, sizeof out->short_header, "%s",
             brim_ui_knob_short_label(&results[0], name));
  }
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (!phase_seen(results, count, p)) continue;
    char header[48];
    snprintf(header, sizeof header, "%s(ms)", brim_tr(brim_phase_label((brim_phase)p)));
    add_column(out, &n, BRIM_UI_WHAT_PHASE, p, phase_priority[p], header);
  }
  add_column(out, &n, BRIM_UI_WHAT_TOTAL, 0, 1, brim_tr("Total(ms)"));
  char rate[64];
  add_column(out, &n, BRIM_UI_WHAT_RATE, 0, 0, brim_ui_rate_heading(results, count, rate));
  add_column(out, &n, BRIM_UI_WHAT_UTILISATION, 0, 4,
             brim_ui_any_gpu(results, count) ? "GPU%" : "CPU%");
  add_column(out, &n, BRIM_UI_WHAT_MEMORY, 0, 2, brim_tr("Mem"));
  add_column(out, &n, BRIM_UI_WHAT_STATUS, 0, 0, brim_tr("Status"));
  return n;
}

void brim_ui_bench_cell(const brim_ui_bench_column *column, const brim_result *result,
                        const brim_result *first, char out[64]) {
  char text[32] = "";
  bool ran = result->failure == BRIM_FAILURE_NONE;
  switch (column->what) {
    case BRIM_UI_WHAT_KNOB: {
      const brim_result_knob *knob =
          brim_result_knob_find(result, first->knobs[column->index].name);
      snprintf(out, 64, "%s", knob ? knob->value : "-");
      return;
    }
    case BRIM_UI_WHAT_PHASE:
      if (ran) brim_ui_ms(brim_ui_phase_ms(result, column->index), text);
      break;
    case BRIM_UI_WHAT_TOTAL:
      if (ran) brim_ui_ms(result->total_ms.median, text);
      break;
    case BRIM_UI_WHAT_RATE:
      if (ran) brim_ui_number(result->samples_per_s, text);
      break;
    case BRIM_UI_WHAT_UTILISATION: {
      double share = brim_result_has_gpu(result) ? result->gpu_percent : result->cpu_percent;
      if (ran && isnan(share)) snprintf(text, sizeof text, "-");
      if (ran && !isnan(share)) snprintf(text, sizeof text, "%.0f", brim_shown(share));
      break;
    }
    case BRIM_UI_WHAT_MEMORY:
      brim_format_bytes((uint64_t)brim_result_memory(result), text);
      break;
    case BRIM_UI_WHAT_STATUS:
      snprintf(out, 64, "%s", brim_ui_failure_text(result));
      return;
    case BRIM_UI_WHAT_COUNT:
      break;
  }
  snprintf(out, 64, "%s", text);
}

//---------------------------------- table ----------------------------------

static brim_ui_style row_style(const brim_result *result, bool recommended, brim_ui_what what) {
  if (recommended) return BRIM_UI_BEST;
  if (what == BRIM_UI_WHAT_STATUS) {
    if (result->failure == BRIM_FAILURE_OOM_PLANNED) return BRIM_UI_WARN;
    if (result->failure != BRIM_FAILURE_NONE) return BRIM_UI_BAD;
    bool fine = (result->stable && !result->throttled) || result->steps == 0;
    return fine ? BRIM_UI_GOOD : BRIM_UI_WARN;
  }
  return result->failure == BRIM_FAILURE_NONE ? BRIM_UI_PLAIN : BRIM_UI_DIM;
}

void brim_ui_note_left_out(const brim_term *term, int left_out, brim_str *out) {
  if (left_out == 0) return;
  char note[128];
  snprintf(note, sizeof note,
           left_out == 1 ? brim_tr("%d column left out: a wider terminal or --json shows it")
                         : brim_tr("%d columns left out: a wider terminal or --json shows them"),
           left_out);
  brim_str text;
  brim_str_init(&text);
  brim_ui_wrap(&text, term, note, 0);
  brim_ui_styled(out, term, BRIM_UI_DIM, text.data);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

brim_status brim_ui_bench_table(const brim_term *term, const brim_result *results, size_t count,
                                brim_ui_picks picks, brim_str *out) {
  brim_ui_bench_column bench[BRIM_UI_MAX_COLUMNS];
  brim_ui_column columns[BRIM_UI_MAX_COLUMNS];
  size_t n = brim_ui_bench_columns(results, count, bench);
  if (n == 0) return BRIM_OK;
  // the star behind the status is the last to go
  int status_width = 8;
  if (picks.recommended >= 0 && (size_t)picks.recommended < count) {
    int with_star = brim_utf8_width(brim_ui_failure_text(&results[picks.recommended])) + 2;
    if (with_star > status_width) status_width = with_star;
  }
  for (size_t i = 0; i < n; i++) {
    bool status = bench[i].what == BRIM_UI_WHAT_STATUS;
    columns[i] = (brim_ui_column){.header = bench[i].header,
                                  .short_header = bench[i].short_header,
                                  .align = status ? BRIM_UI_LEFT : BRIM_UI_RIGHT,
                                  .priority = bench[i].priority,
                                  .min_width = status ? status_width : 0};
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n);
  for (size_t i = 0; i < n; i++) {  // the one without the other would pass for all of computing
    bool half = bench[i].what == BRIM_UI_WHAT_PHASE &&
                (bench[i].index == BRIM_PHASE_FORWARD || bench[i].index == BRIM_PHASE_BACKWARD);
    if (half) table.together |= (uint64_t)1 << i;
  }
  for (size_t r = 0; r < count; r++) {
    bool best = (int)r == picks.recommended;
    for (size_t i = 0; i < n; i++) {
      char text[64];
      brim_ui_bench_cell(&bench[i], &results[r], &results[0], text);
      bool mark = best && bench[i].what == BRIM_UI_WHAT_STATUS;
      brim_ui_table_add(&table, row_style(&results[r], best, bench[i].what), "%s%s", text,
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

//---------------------------------- picks ----------------------------------

typedef struct bench_view {
  const brim_term *term;
  const brim_result *results;
  size_t count;
  const brim_ui_decision *decision;
} bench_view;

static void put_knobs(const bench_view *view, const brim_result *result, brim_str *out) {
  brim_ui_put_knobs(view->term, view->results, view->count, result, out);
}

static void put_title(const brim_term *term, const char *title, brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_BOLD, title);
  brim_str_append_char(out, '\n');
}

// The ladder from "a kernel ran" to what the units did, as far as it is known.
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

// Which of the two halves bounds the job, and how near the whole is to it.
static void put_ceilings(const brim_term *term, const brim_result *result, brim_str *out) {
  char data[32], compute[32], rate[64], text[256];
  double low = fmin(result->data_samples_per_s, result->compute_samples_per_s);
  if (isnan(result->data_samples_per_s) || isnan(result->compute_samples_per_s) || !(low > 0)) {
    return;
  }
  brim_ui_number(result->data_samples_per_s, data);
  brim_ui_number(result->compute_samples_per_s, compute);
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

// "31 % of bf16 matrix products"; nothing where the share is unknown.
static void put_share(double share, const char *of, brim_str *out) {
  if (isnan(share)) return;
  if (out->len) brim_str_append(out, ", ");
  if (100 * share < 1) {
    brim_str_printf(out, brim_tr("under 1 %% of %s"), of);
  } else {
    brim_str_printf(out, brim_tr("%.0f %% of %s"), brim_shown(100 * share), of);
  }
}

static void put_of_machine(const brim_term *term, const brim_result *result, brim_str *out) {
  const char *precision;
  const double product = brim_result_product_share(result, &precision);
  char products[64];
  brim_str text;
  brim_str_init(&text);
  snprintf(products, sizeof products, brim_tr("%s matrix products"), precision);
  put_share(product, products, &text);
  put_share(brim_result_memory_share(result), brim_tr("memory bandwidth"), &text);
  if (text.len) {
    // what a step must compute and move: caches and fused ops may do with less, others need more
    brim_str_append(&text, brim_tr(", by the plan"));
    brim_ui_add_others(result, &text);
    brim_ui_put_line(term, brim_tr("Of the machine"), text.data, out);
  } else if (brim_machine_doubtful(&result->ceilings)) {
    char why[256];
    brim_ui_doubtful(result, why);
    brim_ui_put_line(term, brim_tr("Of the machine"), why, out);
  }
  brim_str_deinit(&text);
}

// By its own records, in a run apart; the ceiling of computing is the host's clock on the same.
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

static void put_recommended(const bench_view *view, int index, brim_str *out) {
  const brim_term *term = view->term;
  const brim_result *result = &view->results[index];
  char number[32];
  brim_ui_recommended_title(term, view->decision, index, out);
  put_knobs(view, result, out);
  brim_ui_put_rate(term, result, out);
  brim_ui_put_memory(term, result, out);
  put_utilisation(term, result, out);
  put_ceilings(term, result, out);
  put_of_machine(term, result, out);
  put_trace(term, result, out);
  put_energy(term, result, out);
  if (!isnan(result->epoch_s)) {
    brim_format_duration(result->epoch_s, number);
    brim_ui_put_line(term, brim_tr("One epoch"), number, out);
  }
  if (view->decision) brim_ui_decision_lines(term, view->decision, index, out);
}

void brim_ui_count_stable(const brim_result *results, size_t count, size_t *ran, size_t *stable) {
  *ran = *stable = 0;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i])) continue;
    ++*ran;
    if (results[i].stable) ++*stable;
  }
}

// Not steady, because it is unknown: of what ran and is not called stable, is this all?
static bool only_one_sample(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (brim_result_ran(r) && !r->stable && !brim_result_one_sample(r)) return false;
  }
  return true;
}

const char *brim_ui_why_nothing(const brim_result *results, size_t count) {
  size_t ran, stable;
  brim_ui_count_stable(results, count, &ran, &stable);
  if (ran == 0) return brim_tr("No setting ran, so there is nothing to recommend.");
  return brim_tr("No setting is recommended.");
}

static void put_paragraph(const brim_term *term, const char *text, brim_str *out) {
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

void brim_ui_bench_picks(const brim_term *term, const brim_result *results, size_t count,
                         brim_ui_picks picks, const brim_ui_decision *decision, brim_str *out) {
  const bench_view all = {term, results, count, decision}, *view = &all;
  if (picks.highest < 0 || (size_t)picks.highest >= count) {
    put_paragraph(term, brim_ui_why_nothing(results, count), out);
    return;
  }
  put_title(term, brim_tr("Highest throughput"), out);
  put_knobs(view, &results[picks.highest], out);
  brim_ui_put_rate(term, &results[picks.highest], out);
  brim_ui_put_memory(term, &results[picks.highest], out);
  if (picks.efficient >= 0 && (size_t)picks.efficient < count) {
    const brim_result *result = &results[picks.efficient];
    char number[32], text[96];
    brim_str_append_char(out, '\n');
    const char *unit = brim_tr(brim_result_unit(result));
    snprintf(text, sizeof text, brim_tr("Best efficiency (%s/s per GB)"), unit);
    put_title(term, text, out);
    put_knobs(view, result, out);
    brim_ui_number(result->samples_per_s / (brim_result_memory(result) / 1e9), number);
    snprintf(text, sizeof text, "%s %s/s/GB", number, unit);
    brim_ui_put_line(term, brim_tr("Efficiency"), text, out);
  }
  brim_str_append_char(out, '\n');
  if (picks.recommended >= 0 && (size_t)picks.recommended < count) {
    put_recommended(view, picks.recommended, out);
  } else {
    put_paragraph(term, brim_ui_why_nothing(results, count), out);
  }
}

//---------------------------------- findings ----------------------------------

static bool mostly_unstable(const brim_result *results, size_t count, char out[256]) {
  size_t ran, stable;
  brim_ui_count_stable(results, count, &ran, &stable);
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

// Of the recommended setting and, where it is another one, of the fastest.
static void put_findings(const brim_term *term, const brim_result *results, size_t count,
                         brim_ui_picks picks, brim_str *out) {
  bool recommended = picks.recommended >= 0 && (size_t)picks.recommended < count;
  bool highest =
      picks.highest != picks.recommended && brim_ui_has_findings(results, count, picks.highest);
  if (!recommended && !highest) return;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("FINDINGS"));
  brim_str_append_char(out, '\n');
  if (recommended) {
    put_title(term, brim_tr("Recommended for training"), out);
    brim_ui_bench_findings(term, &results[picks.recommended], NULL, -1, out);
  }
  if (highest) {
    put_title(term, brim_tr("Highest throughput"), out);
    brim_ui_bench_findings(term, &results[picks.highest], NULL, -1, out);
  }
}

// Plans that do not fit differ in their bytes, which the table has: one of them is explained.
static bool both_too_large(const brim_result *a, const brim_result *b) {
  return a->failure == BRIM_FAILURE_OOM_PLANNED && b->failure == BRIM_FAILURE_OOM_PLANNED;
}

void brim_ui_reason(const brim_term *term, const brim_result *results, size_t index,
                    brim_str *out) {
  const brim_result *r = &results[index];
  if (r->failure == BRIM_FAILURE_NONE || !r->message[0]) return;
  for (size_t k = 0; k < index; k++) {
    if (strcmp(results[k].message, r->message) == 0) return;  // each message once
    if (both_too_large(&results[k], r)) return;
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_append(out, "  ");
  brim_str_printf(&text, "%s: %s", brim_ui_failure_text(r), r->message);
  brim_ui_wrap(out, term, text.data, 4);
  brim_str_append_char(out, '\n');
  brim_str_deinit(&text);
}

brim_status brim_ui_bench_summary(const brim_term *term, const brim_result *results, size_t count,
                                  brim_ui_picks picks, brim_str *out) {
  put_doubts(term, results, count, out);
  brim_ui_heading(out, term, brim_tr("BENCHMARK SUMMARY"));
  brim_str_append_char(out, '\n');
  BRIM_TRY(brim_ui_bench_table(term, results, count, picks, out));
  size_t too_large = 0;
  for (size_t i = 0; i < count; i++) {
    brim_ui_reason(term, results, i, out);
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
                          brim_ui_picks picks, const brim_ui_decision *decision, brim_str *out) {
  BRIM_TRY(brim_ui_bench_summary(term, results, count, picks, out));
  brim_ui_bench_picks(term, results, count, picks, decision, out);
  put_findings(term, results, count, picks, out);
  return brim_str_status(out);
}

// "batch 4096, workers 4, bf16": knobs on one line, those that the table shows.
static void put_setting(const brim_result *results, size_t count, const brim_result *r,
                        brim_str *out) {
  bool first = true;
  for (size_t i = 0; i < r->knob_count; i++) {
    const char *name = r->knobs[i].name;
    if (!brim_ui_knob_shown(results, count, name)) continue;
    brim_str_append(out, first ? "" : ", ");
    first = false;
    if (brim_ui_knob_is(r, name, BRIM_ROLE_PRECISION)) {  // its values say what it is
      brim_str_append(out, r->knobs[i].value);
    } else {
      brim_str_printf(out, "%s %s", brim_ui_knob_label(r, name), r->knobs[i].value);
    }
  }
}

// The three picks, a line each; the recommended one in full follows.
static void put_pick_lines(const brim_term *term, const brim_result *results, size_t count,
                           brim_ui_picks picks, const brim_ui_decision *decision, brim_str *out) {
  bool keeps = decision && brim_ui_keeps(decision, picks.recommended);
  const struct {
    const char *label;
    int index;
    bool by_memory;
  } lines[] = {
      {brim_tr("Highest throughput"), picks.highest, false},
      {brim_tr("Best efficiency"), picks.efficient, true},
      {keeps ? brim_tr("Keep your setting") : brim_tr("Recommended"), picks.recommended, false}};
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
    brim_ui_number(value, number);
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
                                brim_ui_picks picks, const brim_ui_decision *decision,
                                brim_str *out) {
  BRIM_TRY(brim_ui_bench_summary(term, results, count, picks, out));
  if (picks.recommended < 0 || (size_t)picks.recommended >= count) {
    brim_ui_wrap(out, term, brim_ui_why_nothing(results, count), 0);
    brim_str_append_char(out, '\n');
    return brim_str_status(out);
  }
  const brim_result *pick = &results[picks.recommended];
  put_pick_lines(term, results, count, picks, decision, out);
  brim_str_append_char(out, '\n');
  brim_ui_recommended_title(term, decision, picks.recommended, out);
  brim_ui_put_knobs(term, results, count, pick, out);
  brim_ui_put_rate(term, pick, out);
  brim_ui_put_memory(term, pick, out);
  brim_ui_decision_lines(term, decision, picks.recommended, out);
  return brim_str_status(out);
}
