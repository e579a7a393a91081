// A profile as a person sees it: the summary on a terminal, and the page. Figures come from the record; only sums,
// shares and rates of them are computed here. The page is complete without its script; the script
// (web/profile/profile.js) sorts and searches the tables and shows what is in memory at the op under the pointer.

#include "ui/profile/ui_profile.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "ui/bench/ui_bench.h"
#include "ui/pages/ui_pages.h"

//------------------------------------ words, orders and sums ------------------------------------

enum { MAX_OWNERS = 32 };

// A part of memory at a point of the step: a block, or a row of the plan. Texts belong to the profile or are
// translated.
typedef struct owner {
  const char *name;
  const char *kind;  // translated: "parameters and state", "activation", ...
  double bytes;
  bool fixed;  // allocated for the whole run
} owner;

// Milliseconds, small ones too: "12.3", "0.52", "0.004", "<0.001"; "-" when unknown.
static void ms_text(double value, char out[32]) {
  if (isnan(value) || value <= 0 || value >= 0.0995) {
    brim_ui_ms(value, out);
  } else if (value < 0.0005) {
    snprintf(out, 32, "<0.001");
  } else {
    snprintf(out, 32, "%.3f", brim_shown(value));
  }
}

// Bytes; "-" when unknown.
static void bytes_text(double bytes, char out[32]) {
  if (bytes >= 0 && bytes < 0x1p63) {
    brim_format_bytes((uint64_t)bytes, out);
  } else {
    snprintf(out, 32, "-");
  }
}

// "20", or "0.5" if the count is not whole; "-" when unknown.
static void count_text(double count, char out[32]) {
  if (!isnan(count) && fabs(count - round(count)) < 0.005) {
    brim_format_count(round(count), out);
  } else {
    brim_format_figure(count, out);
  }
}

// "34 %", "0.4 %"; "-" when unknown. share: 0 to 1. `tenths`: always print a tenth, for parts that a reader adds up.
static void share_text(double share, bool tenths, char out[32]) {
  const double percent = brim_shown(share * 100);
  if (isnan(percent)) {
    snprintf(out, 32, "-");
  } else if (percent > 0 && percent < 0.05) {
    snprintf(out, 32, "<0.1 %%");
  } else {
    snprintf(out, 32, !tenths && fabs(percent) >= 9.95 ? "%.0f %%" : "%.1f %%", percent);
  }
}

static void percent_text(double share, char out[32]) { share_text(share, false, out); }

// The share of its ceiling that a row reaches: "31 % bf16", "in cache".
static void ceiling_text(const brim_profile_row *row, char out[64]) {
  char percent[32];
  percent_text(row->ceiling_share, percent);
  if (isnan(row->ceiling_share)) {  // data in a cache has no ceiling
    snprintf(out, 64, "%s", row->ceiling[0] ? row->ceiling : "-");
  } else {
    snprintf(out, 64, "%s%s%s", percent, row->ceiling[0] ? " " : "", row->ceiling);
  }
}

// "2.46 ms ± 0.018 (median and MAD, untraced)"
static void step_text(const brim_profile *profile, char out[128]) {
  char step[32], spread[32];
  ms_text(profile->step_ms, step);
  ms_text(profile->step_mad_ms, spread);
  if (isnan(profile->step_mad_ms)) {
    snprintf(out, 128, brim_tr("%s ms (median, untraced)"), step);
  } else {
    snprintf(out, 128, brim_tr("%s ms ± %s (median and MAD, untraced)"), step, spread);
  }
}

// "41,000 samples/s"; "" when unknown.
static void rate_text(const brim_profile *profile, char out[96]) {
  const brim_result *r = &profile->result;
  char number[32];
  out[0] = '\0';
  if (!(r->samples_per_s > 0)) return;
  brim_format_figure(r->samples_per_s, number);
  snprintf(out, 96, "%s %s/s", number, brim_tr(brim_result_unit(r)));
}

double brim_ui_profile_reach(const brim_profile *profile) {
  const brim_profile_rows *rows = &profile->lists[BRIM_PROFILE_OPS];
  double sum = 0, known = 0;
  if (!(profile->step_ms > 0)) return NAN;
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[i];
    const bool cached = strcmp(row->ceiling, "in cache") == 0;
    if (!(row->ceiling_share >= 0 || cached) || !(row->ms > 0)) continue;
    sum += cached ? row->ms : row->ms * row->ceiling_share;
    known += row->ms;
  }
  // The share is unknown if ops with a known ceiling cover less than half of the step.
  return known >= 0.5 * profile->step_ms ? fmin(sum / profile->step_ms, 1) : NAN;
}

static const char *list_title(brim_profile_list list) {
  static const char *const titles[BRIM_PROFILE_LIST_COUNT] = {
      [BRIM_PROFILE_KERNELS] = BRIM_N_("Kernels"),       [BRIM_PROFILE_OPS] = BRIM_N_("Ops"),
      [BRIM_PROFILE_LAYERS] = BRIM_N_("Layers"),         [BRIM_PROFILE_PHASES] = BRIM_N_("Phases"),
      [BRIM_PROFILE_TRANSFORMS] = BRIM_N_("Transforms"),
  };
  return brim_tr(titles[list]);
}

static const char *list_column(brim_profile_list list) {
  static const char *const names[BRIM_PROFILE_LIST_COUNT] = {
      [BRIM_PROFILE_KERNELS] = BRIM_N_("Kernel"),       [BRIM_PROFILE_OPS] = BRIM_N_("Op"),
      [BRIM_PROFILE_LAYERS] = BRIM_N_("Layer"),         [BRIM_PROFILE_PHASES] = BRIM_N_("Phase"),
      [BRIM_PROFILE_TRANSFORMS] = BRIM_N_("Transform"),
  };
  return brim_tr(names[list]);
}

static const char *cause_text(brim_gap_cause cause) {
  static const char *const causes[BRIM_GAP_COUNT] = {
      [BRIM_GAP_HOST] = BRIM_N_("the CPU had not enqueued the next kernel"),
      [BRIM_GAP_SYNC] = BRIM_N_("the CPU waited for the GPU, then enqueued more"),
      [BRIM_GAP_INPUT] = BRIM_N_("the step waited for data"),
      [BRIM_GAP_LAUNCH] = BRIM_N_("pauses between kernels that are enqueued"),
      [BRIM_GAP_DEPENDENCY] = BRIM_N_("a kernel waited for work on another stream"),
      [BRIM_GAP_TRANSFER] = BRIM_N_("only a copy ran"),
      [BRIM_GAP_UNKNOWN] = BRIM_N_("cause not seen"),
  };
  return (unsigned)cause < BRIM_GAP_COUNT ? brim_tr(causes[cause]) : "-";
}

// The phase that has this key; -1 = none.
static int phase_of(const char *key) {
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    if (strcmp(key, brim_phase_key((brim_phase)i)) == 0) return i;
  }
  return -1;
}

// "GPU idle: the step waited for data"
static const char *gap_name(const char *key, char out[224]) {
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (strcmp(key, brim_gap_key((brim_gap_cause)i)) != 0) continue;
    snprintf(out, 224, brim_tr("GPU idle: %s"), cause_text((brim_gap_cause)i));
    return out;
  }
  return brim_tr("GPU idle");
}

// The name of a row as readers see it: phases, gaps and other work get translated names.
static const char *row_name(const brim_profile_row *row, brim_profile_list list, char out[224]) {
  const int phase = phase_of(row->name);
  const char *name = phase >= 0 ? brim_ui_phase_name(phase) : row->name;
  if (strcmp(row->kind, "gap") == 0) return gap_name(row->name, out);
  if (list == BRIM_PROFILE_PHASES) return name;
  if (strcmp(row->kind, "host") == 0) {
    snprintf(out, 224, brim_tr("%s, outside ops"), name);
    return out;
  }
  if (strcmp(row->kind, "other") == 0 && strcmp(row->name, "other") == 0) {
    return brim_tr("other work");
  }
  return row->name;
}

// Says where the figures come from.
static const char *source_text(const brim_profile *profile) {
  if (strcmp(profile->source, "cupti") == 0) return brim_tr("the GPU's own records (CUPTI)");
  if (strcmp(profile->source, "events") == 0) {
    return brim_tr("events of the GPU around each op, scaled to the step");
  }
  if (strcmp(profile->source, "clock") == 0) {
    return brim_tr("the CPU's clock around each op, scaled to the step");
  }
  return profile->source;
}

// "Measuring took 8.2 s: ..."
static void cost_text(const brim_profile *profile, brim_str *out) {
  char text[32];
  brim_format_duration(profile->seconds, text);
  brim_str_printf(out, brim_tr("Measuring took %s"), isnan(profile->seconds) ? "-" : text);
  if (profile->attach_s > 0) {
    brim_format_duration(profile->attach_s, text);
    brim_str_printf(out, brim_tr(", attaching the tracer %s"), text);
  }
  if (profile->window_s > 0) {
    brim_format_duration(profile->window_s, text);
    brim_str_printf(out, brim_tr(", %d traced steps %s"), profile->traced_steps, text);
  }
  brim_str_append(out, ".");
  // Ignore differences below the spread between steps.
  const bool slower = profile->extra_ms > fmax(0, profile->step_mad_ms);
  if (!isnan(profile->extra_ms)) {
    ms_text(profile->extra_ms, text);
    brim_str_append(out, " ");
    if (slower) {
      brim_str_printf(out, brim_tr("A traced step took %s ms longer."), text);
    } else {
      brim_str_append(out, brim_tr("Traced steps were not measurably slower."));
    }
  }
  if (slower && !isnan(profile->run_percent)) {
    percent_text(fmax(profile->run_percent, 0) / 100, text);
    brim_str_append(out, " ");
    brim_str_printf(out, brim_tr("In a run of 1,000 steps the window costs %s."), text);
  }
}

// "Host to device: 1.5 MiB in 0.90 ms per step, ..."; nothing if nothing was copied.
static void transfer_text(const brim_profile *profile, brim_str *out) {
  char time[32], exposed[32], bytes[32];
  if (!(profile->h2d_ms > 0)) return;
  ms_text(profile->h2d_ms, time);
  ms_text(profile->h2d_exposed_ms, exposed);
  bytes_text(profile->h2d_bytes, bytes);
  brim_str_printf(
      out, brim_tr("Host to device: %s in %s ms per step, %s ms of it exposed (no kernel ran)."),
      bytes, time, exposed);
  if (!(profile->h2d_pageable_bytes > 0)) return;
  bytes_text(profile->h2d_pageable_bytes, bytes);
  brim_str_append_char(out, ' ');
  brim_str_printf(out, brim_tr("%s came from pageable memory."), bytes);
}

// Appends how long ranks exchange gradients and what share of that time computing hides; nothing for one rank.
static void exchange_text(const brim_profile *profile, brim_str *out) {
  char time[32], exposed[32], hidden[32];
  if (profile->ranks < 2 || isnan(profile->exchange_ms)) return;
  ms_text(profile->exchange_ms, time);
  ms_text(profile->exchange_exposed_ms, exposed);
  brim_str_printf(out, brim_tr("%d ranks exchange for %s ms per step (%s)"), profile->ranks, time,
                  profile->exchange_by);
  if (isnan(profile->exchange_exposed_ms)) {
    brim_str_append(out, brim_tr("; what of it the step waits for is unknown."));
    return;
  }
  double share = 1 - profile->exchange_exposed_ms / profile->exchange_ms;
  percent_text(fmax(share, 0), hidden);
  brim_str_printf(out, brim_tr("; the step waits for %s ms of it, computing hides %s."), exposed,
                  hidden);
}

brim_profile_list brim_ui_profile_finest(const brim_profile *profile) {
  static const brim_profile_list order[] = {BRIM_PROFILE_KERNELS, BRIM_PROFILE_OPS,
                                            BRIM_PROFILE_LAYERS, BRIM_PROFILE_PHASES};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    if (profile->lists[order[i]].count > 0) return order[i];
  }
  return BRIM_PROFILE_PHASES;
}

// Milliseconds of a row per step. For transforms, which run beside the step, and for rows whose part of the step is
// unknown: the row's own time.
static double time_of(const brim_profile_row *row, brim_profile_list list) {
  if (list == BRIM_PROFILE_TRANSFORMS || isnan(row->ms)) return row->total_ms;
  return row->ms;
}

typedef struct sort_key {
  double key;
  const char *name;
  size_t index;
} sort_key;

// Sorts the smallest key first and unknown keys last.
static int by_key(const void *a, const void *b) {
  const sort_key *x = a, *y = b;
  if (isnan(x->key) != isnan(y->key)) return isnan(x->key) ? 1 : -1;
  if (x->key < y->key || x->key > y->key) return x->key < y->key ? -1 : 1;
  const int words = x->name ? strcmp(x->name, y->name) : 0;
  return words ? words : (x->index > y->index) - (x->index < y->index);
}

static size_t *sort_indices(sort_key *keys, size_t count) {
  size_t *order = brim_calloc(count + 1, sizeof *order);
  if (order) {
    qsort(keys, count, sizeof *keys, by_key);
    for (size_t i = 0; i < count; i++) order[i] = keys[i].index;
  }
  brim_free(keys);
  return order;
}

// Returns the indices of a list's rows, sorted; release them by brim_free. NULL if memory ran out.
static size_t *make_order(const brim_profile *profile, brim_profile_list list,
                          brim_ui_profile_sort sort) {
  const brim_profile_rows *rows = &profile->lists[list];
  sort_key *keys = brim_calloc(rows->count + 1, sizeof *keys);
  if (!keys) return NULL;
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[i];
    const double values[BRIM_UI_PROFILE_SORTS] = {
        [BRIM_UI_PROFILE_TIME] = -time_of(row, list),
        [BRIM_UI_PROFILE_COUNT_OF] = -row->count,
        [BRIM_UI_PROFILE_SHARE] = -row->share,
        [BRIM_UI_PROFILE_CEILING] = row->ceiling_share,
        [BRIM_UI_PROFILE_NAME] = 0,
    };
    keys[i] = (sort_key){values[sort], sort == BRIM_UI_PROFILE_NAME ? row->name : NULL, i};
  }
  return sort_indices(keys, rows->count);
}

// Returns the indices of the rows of BRIM_PROFILE_PHASES in the order of a step; rows that are no phase come last.
static size_t *make_step_order(const brim_profile *profile) {
  const brim_profile_rows *rows = &profile->lists[BRIM_PROFILE_PHASES];
  sort_key *keys = brim_calloc(rows->count + 1, sizeof *keys);
  if (!keys) return NULL;
  for (size_t i = 0; i < rows->count; i++) {
    const int phase = phase_of(rows->items[i].name);
    keys[i] = (sort_key){phase < 0 ? BRIM_PHASE_COUNT : phase, NULL, i};
  }
  return sort_indices(keys, rows->count);
}

//---------------------------------- memory ----------------------------------

static const char *kind_text(const char *kind) {
  static const char *const known[][2] = {
      {"activation", BRIM_N_("activation")},
      {"gradient", BRIM_N_("gradient")},
      {"statistic", BRIM_N_("statistic")},
      {"workspace", BRIM_N_("workspace")},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(kind, known[i][0]) == 0) return brim_tr(known[i][1]);
  }
  return kind;
}

// Lists the rows of the plan outside the arena, which holds activations and possibly workspace. The record has the sum
// of these rows; if no variant of the arena gives that sum, one row stands for all. Returns the number of rows.
static size_t fixed_rows(const brim_profile *profile, owner *out, size_t most) {
  static const char *const arenas[][2] = {{"activations", ""}, {"activations", "workspace"}};
  const brim_plan *plan = &profile->result.plan;
  for (size_t variant = 0; variant < 2; variant++) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < plan->row_count && n < most; i++) {
      const brim_plan_row *row = &plan->rows[i];
      const bool arena =
          strcmp(row->name, arenas[variant][0]) == 0 || strcmp(row->name, arenas[variant][1]) == 0;
      if (arena || row->place != BRIM_PLACE_DEVICE) continue;
      out[n++] = (owner){brim_tr(row->name), brim_tr("whole run"), (double)row->bytes, true};
      sum += (double)row->bytes;
    }
    if (fabs(sum - profile->memory.fixed_bytes) < 1) return n;
  }
  if (!(profile->memory.fixed_bytes > 0) || most == 0) return 0;
  out[0] = (owner){brim_tr("parameters and state"), brim_tr("whole run"),
                   profile->memory.fixed_bytes, true};
  return 1;
}

static int by_bytes(const void *a, const void *b) {
  const owner *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

// Lists the owners of memory at a point, the largest first: rows kept for the whole run, and blocks alive at the point.
// Returns their number; *rest: bytes of the blocks that found no room in the list.
static size_t list_owners(const brim_profile *profile, int point, owner out[MAX_OWNERS],
                          double *rest) {
  const brim_profile_memory *memory = &profile->memory;
  size_t n = fixed_rows(profile, out, MAX_OWNERS / 2), alive[MAX_OWNERS];
  *rest = 0;
  const size_t room = MAX_OWNERS - n;
  const size_t alive_count = brim_profile_alive(profile, point, alive, room);
  const size_t listed = alive_count < room ? alive_count : room;
  double shown = 0;
  for (size_t i = 0; i < listed; i++) {
    const brim_profile_block *block = &memory->blocks[alive[i]];
    out[n++] = (owner){block->name, kind_text(block->kind), block->bytes, false};
    shown += block->bytes;
  }
  if (alive_count > listed && point >= 0 && (size_t)point < memory->point_count) {
    *rest = fmax(memory->points[point].bytes - shown, 0);
  }
  qsort(out, n, sizeof *out, by_bytes);
  return n;
}

//------------------------------------------- terminal -------------------------------------------

enum { MAX_BAR = 60, MIN_BAR = 10, CHART_ROWS = 5, SHOWN_OWNERS = 8, SHOWN_GAPS = 5 };

static void put_title(const brim_term *term, const char *text, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_BOLD, text);
  brim_str_append_char(out, '\n');
}

static void put_sentence(const brim_term *term, const char *text, brim_str *out) {
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, text, 2);
  brim_str_append_char(out, '\n');
}

//---------------------------------- head ----------------------------------

static void put_head(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char step[128], rate[96], description[192], text[256];
  brim_ui_heading(out, term, brim_tr("PROFILE"));
  brim_ui_put_line(term, brim_tr("What"), brim_ui_description(r->description, description), out);
  brim_ui_put_line(term, brim_tr("Where"), r->device, out);
  brim_str setting;
  brim_str_init(&setting);
  brim_ui_setting(r, &setting);
  if (setting.len > 0) brim_ui_put_line(term, brim_tr("Setting"), setting.data, out);
  brim_str_deinit(&setting);
  step_text(p, step);
  rate_text(p, rate);
  snprintf(text, sizeof text, "%s%s%s", step, rate[0] ? ", " : "", rate);
  brim_ui_put_line(term, brim_tr("Step"), text, out);
  const double reach = brim_ui_profile_reach(p);
  if (!isnan(reach)) {
    percent_text(reach, rate);
    ms_text(reach * p->step_ms, step);
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line,
                    brim_tr("%s: at this machine's measured ceilings the ops would take %s ms"),
                    rate, step);
    brim_ui_add_others(r, &line);
    brim_ui_put_line(term, brim_tr("Ceiling"), line.data, out);
    brim_str_deinit(&line);
  } else if (brim_machine_doubtful(&r->ceilings)) {
    brim_ui_doubtful(r, text);
    brim_ui_put_line(term, brim_tr("Ceiling"), text, out);
  }
  brim_ui_put_line(term, brim_tr("Measured by"), source_text(p), out);
  if (p->note[0]) {
    char note[sizeof p->note];
    brim_words_text(p->note, note, sizeof note);
    put_sentence(term, note, out);
  }
}

//---------------------------------- the table ----------------------------------

// The optional columns that a list has.
typedef struct optional_columns {
  bool op, layer, phase, count, ceiling;
} optional_columns;

static optional_columns columns_of(const brim_profile_rows *rows, brim_profile_list list) {
  optional_columns s = {0};
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[i];
    s.op |= row->op[0] && list == BRIM_PROFILE_KERNELS;
    s.layer |= row->layer[0] && list < BRIM_PROFILE_LAYERS;
    s.phase |= row->phase[0] && list < BRIM_PROFILE_LAYERS;  // a layer runs in several phases
    s.count |= row->count > 0;
    s.ceiling |= row->ceiling[0] != '\0';
  }
  return s;
}

static void add_row(brim_ui_table *table, const brim_profile_row *row, brim_profile_list list,
                    optional_columns s) {
  char text[64], percent[32], name[224];
  const int phase = phase_of(row->phase);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", row_name(row, list, name));
  if (s.op) brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->op);
  if (s.layer) brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->layer);
  if (s.phase) {
    brim_ui_table_add(table, BRIM_UI_DIM, "%s",
                      phase < 0 ? row->phase : brim_tr(brim_phase_label((brim_phase)phase)));
  }
  if (s.count) {
    count_text(row->count, text);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  }
  ms_text(time_of(row, list), text);
  brim_ui_table_add(table, BRIM_UI_BOLD, "%s", text);
  percent_text(row->share, percent);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", percent);
  if (!s.ceiling) return;
  ceiling_text(row, text);
  brim_ui_table_add(table, row->ceiling_share < 0.3 ? BRIM_UI_WARN : BRIM_UI_PLAIN, "%s", text);
}

static size_t make_columns(brim_profile_list list, optional_columns s, brim_ui_column out[8]) {
  size_t n = 0;
  const bool is_transforms = list == BRIM_PROFILE_TRANSFORMS;
  out[n++] = (brim_ui_column){list_column(list), NULL, BRIM_UI_LEFT, 0, 16};
  if (s.op) out[n++] = (brim_ui_column){brim_tr("Op"), NULL, BRIM_UI_LEFT, 5, 8};
  if (s.layer) out[n++] = (brim_ui_column){brim_tr("Layer"), NULL, BRIM_UI_LEFT, 4, 8};
  if (s.phase) out[n++] = (brim_ui_column){brim_tr("Phase"), NULL, BRIM_UI_LEFT, 6, 0};
  if (s.count) out[n++] = (brim_ui_column){brim_tr("Calls"), NULL, BRIM_UI_RIGHT, 3, 0};
  out[n++] = (brim_ui_column){brim_tr("ms/step"), "ms", BRIM_UI_RIGHT, 0, 0};
  out[n++] = (brim_ui_column){is_transforms ? brim_tr("Of transforms") : brim_tr("Of step"), NULL,
                              BRIM_UI_RIGHT, 1, 0};
  if (s.ceiling) {
    out[n++] = (brim_ui_column){brim_tr("Of ceiling"), brim_tr("Ceil"), BRIM_UI_RIGHT, 2, 0};
  }
  return n;
}

// Puts "27 more: 1.2 ms, 4.1 %" for the rows from `first` on.
static void put_rest(const brim_term *term, const brim_profile_rows *rows, const size_t *order,
                     size_t first, brim_profile_list list, brim_str *out) {
  double ms = 0, share = 0;
  char text[32], percent[32], line[160];
  if (first >= rows->count) return;
  for (size_t i = first; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    const double time = time_of(row, list);
    if (time > 0) ms += time;
    if (row->share > 0) share += row->share;
  }
  ms_text(ms, text);
  percent_text(share, percent);
  snprintf(line, sizeof line, brim_tr("%zu more: %s ms, %s (--limit %zu shows all)"),
           rows->count - first, text, percent, rows->count);
  brim_ui_styled(out, term, BRIM_UI_DIM, line);
  brim_str_append_char(out, '\n');
}

static brim_status put_rows(const brim_term *term, const brim_profile *p, const size_t *order,
                            const brim_ui_profile_options *options, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[options->by];
  const size_t most = options->limit && options->limit < rows->count ? options->limit : rows->count;
  const optional_columns s = columns_of(rows, options->by);
  brim_ui_column columns[8];
  brim_ui_table table;
  brim_ui_table_init(&table, columns, make_columns(options->by, s, columns));
  for (size_t i = 0; i < most; i++) add_row(&table, &rows->items[order[i]], options->by, s);
  int left_out = 0;
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  if (!status) put_rest(term, rows, order, most, options->by, out);
  if (!status) brim_ui_note_left_out(term, left_out, out);
  return status;
}

static brim_status put_table(const brim_term *term, const brim_profile *p,
                             const brim_ui_profile_options *options, brim_str *out) {
  static const char *const words[BRIM_UI_PROFILE_SORTS] = {
      BRIM_N_("by time"), BRIM_N_("by calls"), BRIM_N_("by share"),
      BRIM_N_("furthest below the ceiling first"), BRIM_N_("by name")};
  const double sum = brim_profile_sum_percent(p, options->by);
  char percent[32];
  brim_str head;
  if (p->lists[options->by].count == 0) return BRIM_OK;
  size_t *order = make_order(p, options->by, options->sort);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  brim_str_init(&head);
  brim_str_printf(&head, "%s, %s", list_title(options->by), brim_tr(words[options->sort]));
  if (!isnan(sum) && options->by != BRIM_PROFILE_TRANSFORMS) {
    percent_text(sum / 100, percent);
    brim_str_printf(&head, brim_tr("; together %s of the step"), percent);
  }
  put_title(term, head.data, out);
  brim_status status = brim_str_status(&head);
  brim_str_deinit(&head);
  if (!status) status = put_rows(term, p, order, options, out);
  brim_free(order);
  return status;
}

//---------------------------------- phases ----------------------------------

static int bar_width(const brim_term *term, int taken_columns) {
  const int room = (term->width > 0 ? term->width : 80) - taken_columns;
  return room < MIN_BAR ? MIN_BAR : room > MAX_BAR ? MAX_BAR : room;
}

static void put_repeated(brim_str *out, const char *text, int n) {
  for (int i = 0; i < n; i++) brim_str_append(out, text);
}

static int label_width(const brim_profile *p) {
  const brim_profile_rows *rows = &p->lists[BRIM_PROFILE_PHASES];
  char name[224];
  int widest = 0;
  for (size_t i = 0; i < rows->count; i++) {
    const int w = brim_utf8_width(row_name(&rows->items[i], BRIM_PROFILE_PHASES, name));
    if (w > widest) widest = w;
  }
  return widest;
}

// Puts a bar between dots, in whole characters. A part shorter than a character becomes a thin mark.
static void put_bar(const brim_term *term, double from, double to, int width, brim_str *out) {
  const int begin = (int)lround(fmin(from, 1) * width), end = (int)lround(fmin(to, 1) * width);
  const bool thin = end == begin;
  const int at = thin && begin == width ? begin - 1 : begin;
  put_repeated(out, term->unicode ? "·" : ".", at);
  if (thin) {
    brim_str_append(out, term->unicode ? "▏" : "|");
  } else {
    put_repeated(out, term->unicode ? "█" : "#", end - begin);
  }
  put_repeated(out, term->unicode ? "·" : ".", width - at - (thin ? 1 : end - begin));
}

// Puts a line for each phase with its place in the step, drawn as if phases followed each other.
static brim_status put_phases(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[BRIM_PROFILE_PHASES];
  const int names = label_width(p), width = bar_width(term, names + 25);
  double at = 0;
  if (rows->count == 0 || !(p->step_ms > 0)) return BRIM_OK;
  size_t *order = make_step_order(p);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  put_title(term, brim_tr("Phases of a step"), out);
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    char ms[32], percent[32], text[224];
    const char *name = row_name(row, BRIM_PROFILE_PHASES, text);
    if (!(row->ms > 0)) continue;
    brim_str_printf(out, "  %s", name);
    brim_str_repeat(out, ' ', (size_t)(names - brim_utf8_width(name) + 2));
    put_bar(term, at / p->step_ms, (at + row->ms) / p->step_ms, width, out);
    at += row->ms;
    ms_text(row->ms, ms);
    share_text(row->share, true, percent);
    brim_str_printf(out, "  %7s ms  %7s\n", ms, percent);
  }
  brim_free(order);
  return brim_str_status(out);
}

//---------------------------------- memory ----------------------------------

// The most bytes at the points that one column of the chart covers.
static double column_bytes(const brim_profile_memory *m, int column, int width) {
  const size_t from = m->point_count * (size_t)column / (size_t)width;
  size_t to = m->point_count * (size_t)(column + 1) / (size_t)width;
  double most = 0;
  if (to <= from) to = from + 1;
  for (size_t i = from; i < to && i < m->point_count; i++) most = fmax(most, m->points[i].bytes);
  return most;
}

// Puts row `row` of the chart, counted from the top; in eighths of a character if the terminal has Unicode.
static void put_chart_row(const brim_term *term, const brim_profile_memory *m, int row, int width,
                          brim_str *out) {
  static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  for (int c = 0; c < width; c++) {
    const double full = column_bytes(m, c, width) / m->peak_bytes * CHART_ROWS;
    const double part = fmin(fmax(full - (CHART_ROWS - 1 - row), 0), 1);
    if (term->unicode) {
      brim_str_append(out, eighths[(int)lround(part * 8)]);
    } else {
      brim_str_append_char(out, part >= 0.5 ? '#' : ' ');
    }
  }
  brim_str_append_char(out, '\n');
}

// Puts the line below the chart that names each phase where it begins: "fwd          bwd              opt".
static void put_chart_phases(const brim_profile_memory *m, int width, int indent, brim_str *out) {
  const char *last = "";
  int used = 0;
  brim_str_repeat(out, ' ', (size_t)indent);
  for (int c = 0; c < width; c++) {
    const brim_profile_point *point = &m->points[m->point_count * (size_t)c / (size_t)width];
    if (strcmp(point->phase, last) == 0) continue;
    last = point->phase;
    const int phase = phase_of(point->phase);
    if (phase < 0 || c < used) continue;
    const char *label = brim_tr(brim_phase_label((brim_phase)phase));
    brim_str_repeat(out, ' ', (size_t)(c - used));
    brim_str_printf(out, "%s ", label);
    used = c + brim_utf8_width(label) + 1;
  }
  brim_str_append_char(out, '\n');
}

static void put_owners(const brim_term *term, const brim_profile *p, brim_str *out) {
  owner owners[MAX_OWNERS];
  double rest = 0;
  char bytes[32];
  const size_t count = list_owners(p, p->memory.peak, owners, &rest);
  for (size_t i = 0; i < count; i++) {
    if (i >= SHOWN_OWNERS) {
      rest += owners[i].bytes;
      continue;
    }
    bytes_text(owners[i].bytes, bytes);
    brim_str_printf(out, "    %10s  %s", bytes, owners[i].name);
    brim_str_printf(out, " (%s)\n", owners[i].kind);
  }
  if (!(rest > 0)) return;
  bytes_text(rest, bytes);
  brim_str_printf(out, "    %10s  %s\n", bytes, brim_tr("all others"));
  (void)term;
}

static void put_memory(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_profile_memory *m = &p->memory;
  char peak[32], fixed[32], line[384];
  if (m->point_count == 0 || !(m->peak_bytes > 0)) return;
  const int width = bar_width(term, 14);
  put_title(term, brim_tr("Memory during a step"), out);
  bytes_text(m->peak_bytes, peak);
  for (int row = 0; row < CHART_ROWS; row++) {
    brim_str_printf(out, "  %10s  ", row == 0 ? peak : row == CHART_ROWS - 1 ? "0" : "");
    put_chart_row(term, m, row, width, out);
  }
  put_chart_phases(m, width, 14, out);
  if (m->peak < 0 || (size_t)m->peak >= m->point_count) return;
  const brim_profile_point *at = &m->points[m->peak];
  bytes_text(m->fixed_bytes, fixed);
  snprintf(line, sizeof line,
           brim_tr("Peak at %s%s%s: %s of activations and workspace, besides %s that stay for the "
                   "whole run."),
           at->op, at->layer[0] ? " " : "", at->layer, peak, fixed);
  put_sentence(term, line, out);
  put_owners(term, p, out);
}

//---------------------------------- the GPU ----------------------------------

static void put_causes(const brim_profile *p, brim_str *out) {
  char ms[32], count[32];
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (!(p->cause_ms[i] > 0)) continue;
    ms_text(p->cause_ms[i], ms);
    count_text(p->cause_count[i], count);
    brim_str_printf(out, "  %8s ms  %s", ms, cause_text((brim_gap_cause)i));
    if (p->cause_count[i] > 0) brim_str_printf(out, brim_tr(" (%s per step)"), count);
    brim_str_append_char(out, '\n');
  }
}

static void put_longest_gaps(const brim_term *term, const brim_profile *p, brim_str *out) {
  if (p->gap_count == 0) return;
  brim_str_printf(out, "  %s\n", brim_tr("Longest:"));
  for (size_t i = 0; i < p->gap_count && i < SHOWN_GAPS; i++) {
    const brim_profile_gap *gap = &p->gaps[i];
    char ms[32], line[320];
    ms_text(gap->ms, ms);
    snprintf(line, sizeof line, brim_tr("%s ms in step %d, after %s, before %s"), ms,
             gap->step < INT_MAX ? gap->step + 1 : gap->step, gap->before[0] ? gap->before : "-",
             gap->after[0] ? gap->after : "-");
    brim_str_append(out, "    ");
    brim_ui_clip(out, term, line, term->width > 8 ? term->width - 4 : 0);
    brim_str_append_char(out, '\n');
  }
}

static void put_line(const brim_term *term, const brim_profile *p,
                     void (*text)(const brim_profile *profile, brim_str *out), brim_str *out) {
  brim_str line;
  brim_str_init(&line);
  text(p, &line);
  if (line.len > 0) put_sentence(term, line.data, out);
  if (brim_str_status(&line) && !out->status) out->status = line.status;
  brim_str_deinit(&line);
}

static void put_gpu(const brim_term *term, const brim_profile *p, brim_str *out) {
  char ms[32], percent[32], head[160];
  if (p->has_gaps) {
    ms_text(p->gap_ms, ms);
    percent_text(p->gap_ms / p->step_ms, percent);
    snprintf(head, sizeof head, brim_tr("GPU idle: %s ms of each step (%s)"), ms, percent);
    put_title(term, head, out);
    put_causes(p, out);
    put_longest_gaps(term, p, out);
  } else if (brim_result_has_gpu(&p->result)) {
    put_title(term, brim_tr("GPU idle: not seen, because there are no records of the GPU"), out);
  }
  put_line(term, p, transfer_text, out);
  put_line(term, p, exchange_text, out);
}

//---------------------------------- transforms ----------------------------------

static void loading_text(const brim_profile *p, char *line, size_t size) {
  char io[32], work[32];
  const int n = p->workers;
  ms_text(p->worker_io_ms, io);
  ms_text(p->worker_transform_ms, work);
  if (isnan(p->worker_transform_ms) && n > 1) {
    snprintf(line, size, brim_tr("%d loader workers read for %s ms per step, added up."), n, io);
  } else if (isnan(p->worker_transform_ms)) {
    snprintf(line, size,
             n == 1 ? brim_tr("One loader worker reads for %s ms per step.")
                    : brim_tr("Without loader workers, the step itself reads for %s ms."),
             io);
  } else if (n > 1) {
    snprintf(
        line, size,
        brim_tr("%d loader workers read for %s ms per step, added up, and transform for %s ms."), n,
        io, work);
  } else {
    snprintf(line, size,
             n == 1
                 ? brim_tr("One loader worker reads for %s ms per step and transforms for %s ms.")
                 : brim_tr("Without loader workers, the step itself reads for %s ms and transforms "
                           "for %s ms."),
             io, work);
  }
}

static brim_status put_transforms(const brim_term *term, const brim_profile *p,
                                  const brim_ui_profile_options *options, brim_str *out) {
  char line[256];
  brim_ui_profile_options by_transform = *options;
  by_transform.by = BRIM_PROFILE_TRANSFORMS;
  if (options->by != BRIM_PROFILE_TRANSFORMS) {
    by_transform.sort = BRIM_UI_PROFILE_TIME;
    BRIM_TRY(put_table(term, p, &by_transform, out));
  }
  if (isnan(p->worker_io_ms)) return BRIM_OK;
  loading_text(p, line, sizeof line);
  if (p->lists[BRIM_PROFILE_TRANSFORMS].count == 0) brim_str_append_char(out, '\n');
  put_sentence(term, line, out);
  return BRIM_OK;
}

brim_status brim_ui_profile(const brim_term *term, const brim_profile *profile,
                            const brim_ui_profile_options *options, brim_str *out) {
  put_head(term, profile, out);
  BRIM_TRY(put_table(term, profile, options, out));
  if (options->by != BRIM_PROFILE_PHASES || options->sort != BRIM_UI_PROFILE_NAME) {
    BRIM_TRY(put_phases(term, profile, out));
  }
  put_memory(term, profile, out);
  put_gpu(term, profile, out);
  BRIM_TRY(put_transforms(term, profile, options, out));
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("FINDINGS"));
  brim_ui_bench_findings(term, &profile->result, NULL, out);
  brim_str cost;
  brim_str_init(&cost);
  cost_text(profile, &cost);
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, term, cost.data, 0);
  brim_str_append_char(out, '\n');
  brim_status status = brim_str_status(&cost);
  brim_str_deinit(&cost);
  return status ? status : brim_str_status(out);
}

//-------------------------------------------- page --------------------------------------------

enum { PAGE_OWNERS = 14, MAX_BLOCKS = 6000, WIDE = 1000, HIGH = 320 };

//---------------------------------- tables ----------------------------------

static void put_head_cell(brim_str *out, const char *key, const char *text) {
  brim_str_printf(out, "<th data-key=\"%s\"><button type=\"button\">", key);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button></th>");
}

// Puts a cell with a text. data-v has the full number, by which the script sorts.
static void put_number_cell(brim_str *out, double value, const char *text) {
  if (isnan(value)) {
    brim_str_append(out, "<td>" BRIM_UI_DASH "</td>");
    return;
  }
  brim_str_printf(out, "<td data-v=\"%.9g\">", value);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</td>");
}

static void put_share_cell(brim_str *out, double share) {
  char percent[32];
  if (isnan(share)) {
    brim_str_append(out, "<td>" BRIM_UI_DASH "</td>");
    return;
  }
  percent_text(share, percent);
  brim_str_printf(out, "<td class=\"share\" data-v=\"%.9g\" style=\"--v:%.4g\">", share,
                  fmin(fmax(share, 0), 1) * 100);
  brim_ui_escape_html(out, percent);
  brim_str_append(out, "</td>");
}

static const char *phase_text(const char *key) {
  const int phase = phase_of(key);
  return phase < 0 ? key : brim_ui_phase_name(phase);
}

// Puts a row's rates of computing and of moving data, over its own time.
static void put_rate_cells(const brim_profile_row *row, brim_str *out) {
  char text[32];
  const bool timed = row->total_ms > 0;
  const double gflops = timed && row->flops > 0 ? row->flops / row->total_ms / 1e6 : (double)NAN;
  const double gbytes = timed && row->bytes > 0 ? row->bytes / row->total_ms / 1e6 : (double)NAN;
  brim_format_figure(gflops, text);
  put_number_cell(out, gflops, text);
  brim_format_figure(gbytes, text);
  put_number_cell(out, gbytes, text);
}

// Figures come right after the name, since a phone shows only the first columns.
static void put_table_row(const brim_profile_row *row, brim_profile_list list, brim_str *out) {
  char text[32], ceiling[64], name[224];
  const double ms = time_of(row, list);
  brim_str_append(out, "<tr><td class=\"text long\">");
  brim_ui_escape_html(out, row_name(row, list, name));
  brim_str_append(out, "</td>");
  ms_text(ms, text);
  put_number_cell(out, ms, text);
  put_share_cell(out, row->share);
  if (list < BRIM_PROFILE_PHASES) {
    ceiling_text(row, ceiling);
    put_number_cell(out, row->ceiling_share, ceiling);
  }
  count_text(row->count, text);
  put_number_cell(out, row->count, text);
  if (list == BRIM_PROFILE_KERNELS) brim_ui_put_class(out, "td", "text", row->op);
  if (list < BRIM_PROFILE_LAYERS) brim_ui_put_class(out, "td", "text", row->layer);
  if (list < BRIM_PROFILE_LAYERS) brim_ui_put_class(out, "td", "text", phase_text(row->phase));
  if (list < BRIM_PROFILE_PHASES) put_rate_cells(row, out);
  brim_str_append(out, "</tr>\n");
}

static void put_table_head(brim_profile_list list, brim_str *out) {
  brim_str_append(out, "<thead><tr>");
  put_head_cell(out, "name", list_column(list));
  put_head_cell(out, "time", brim_tr("ms/step"));
  put_head_cell(out, "share",
                list == BRIM_PROFILE_TRANSFORMS ? brim_tr("Of transforms") : brim_tr("Of step"));
  if (list < BRIM_PROFILE_PHASES) put_head_cell(out, "ceiling", brim_tr("Of ceiling"));
  put_head_cell(out, "count", brim_tr("Calls"));
  if (list == BRIM_PROFILE_KERNELS) put_head_cell(out, "op", brim_tr("Op"));
  if (list < BRIM_PROFILE_LAYERS) put_head_cell(out, "layer", brim_tr("Layer"));
  if (list < BRIM_PROFILE_LAYERS) put_head_cell(out, "phase", brim_tr("Phase"));
  if (list < BRIM_PROFILE_PHASES) {
    put_head_cell(out, "flops", "GFLOP/s");
    put_head_cell(out, "bytes", "GB/s");
  }
  brim_str_append(out, "</tr></thead>\n");
}

static brim_status page_table(const brim_profile *p, brim_profile_list list, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[list];
  size_t *order = make_order(p, list, BRIM_UI_PROFILE_TIME);
  const double sum = brim_profile_sum_percent(p, list);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  brim_str_printf(out, "<div class=\"list\" data-list=\"%s\"><h3>", brim_profile_list_key(list));
  brim_ui_escape_html(out, list_title(list));
  brim_str_append(out, "</h3><div class=\"scroll tall\" tabindex=\"0\"><table class=\"all\">");
  put_table_head(list, out);
  brim_str_append(out, "<tbody>\n");
  for (size_t i = 0; i < rows->count; i++) put_table_row(&rows->items[order[i]], list, out);
  brim_str_append(out, "</tbody></table></div>");
  if (list == BRIM_PROFILE_TRANSFORMS) {
    brim_ui_put_class(out, "p", "note",
                      brim_tr("Transforms run in the loader's workers, beside the step."));
  } else if (!isnan(sum)) {
    char percent[32], line[128];
    percent_text(sum / 100, percent);
    snprintf(line, sizeof line, brim_tr("The rows add up to %s of the step."), percent);
    brim_ui_put_class(out, "p", "note", line);
  }
  brim_str_append(out, "</div>\n");
  brim_free(order);
  return BRIM_OK;
}

static brim_status page_tables(const brim_profile *profile, brim_str *out) {
  bool any = false;
  brim_ui_put_section(out, "tables", brim_tr("Where the time goes"), NULL);
  brim_str_append(out, "<div class=\"tools js\"><span class=\"seg\" id=\"lists\">");
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    if (profile->lists[i].count == 0) continue;
    brim_str_printf(out, "<button type=\"button\" data-list=\"%s\" aria-pressed=\"%s\">",
                    brim_profile_list_key((brim_profile_list)i), any ? "false" : "true");
    brim_ui_escape_html(out, list_title((brim_profile_list)i));
    brim_str_append(out, "</button>");
    any = true;
  }
  brim_str_append(out, "</span><input type=\"search\" id=\"search\"");
  brim_ui_put_attribute(out, "placeholder", brim_tr("Search names"));
  brim_ui_put_attribute(out, "aria-label", brim_tr("Search names"));
  brim_str_append(out, " /></div>\n");
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    if (profile->lists[i].count > 0) BRIM_TRY(page_table(profile, (brim_profile_list)i, out));
  }
  brim_str_append(out, "</section>\n");
  return BRIM_OK;
}

//---------------------------------- phases ----------------------------------

static int colour_of(const brim_profile_row *row) {
  const int phase = phase_of(row->name);
  return phase < 0 ? BRIM_PHASE_OTHER : phase;
}

static void put_phase(const brim_profile *p, const brim_profile_row *row, double at,
                      brim_str *out) {
  char ms[32], percent[32], text[80], name[224];
  ms_text(row->ms, ms);
  share_text(row->share, true, percent);
  snprintf(text, sizeof text, "%s ms, %s", ms, percent);
  brim_str_append(out, "<div class=\"bar phase\"><span>");
  brim_ui_escape_html(out, row_name(row, BRIM_PROFILE_PHASES, name));
  brim_str_printf(out, "</span><b class=\"p%d\"><i style=\"margin-left:%.4g%%;--v:%.4g\"></i></b>",
                  colour_of(row), fmin(at / p->step_ms * 100, 99.5),
                  fmin(row->ms / p->step_ms * 100, 100));
  brim_ui_put_class(out, "span", "v", text);
  brim_str_append(out, "</div>\n");
}

static void page_phases(const brim_profile *profile, brim_str *out) {
  const brim_profile_rows *rows = &profile->lists[BRIM_PROFILE_PHASES];
  size_t *order = make_step_order(profile);
  double at = 0;
  if (!order || rows->count == 0 || !(profile->step_ms > 0)) {
    if (!order && !out->status) out->status = BRIM_ENOMEM;
    brim_free(order);
    return;
  }
  brim_ui_put_section(out, "phases", brim_tr("Phases of a step"),
                      brim_tr("In the order of a step. What ran at the same time counts once."));
  brim_str_append(out, "<div class=\"panel\">\n");
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    if (!(row->ms > 0)) continue;
    put_phase(profile, row, at, out);
    at += row->ms;
  }
  brim_str_append(out, "</div></section>\n");
  brim_free(order);
}

//---------------------------------- memory ----------------------------------

static double x_of(const brim_profile_memory *m, int point) {
  return (double)point / (double)m->point_count * WIDE;
}

// Draws the bytes in use over the ops of a step as an area with stairs.
static void put_area(const brim_profile_memory *m, double most, brim_str *out) {
  brim_str_printf(out, "<path class=\"area\" d=\"M0 %d", HIGH);
  for (size_t i = 0; i < m->point_count; i++) {
    const double y = HIGH - fmin(m->points[i].bytes / most, 1) * HIGH;
    brim_str_printf(out, "L%.2f %.2fH%.2f", x_of(m, (int)i), y, x_of(m, (int)i + 1));
  }
  brim_str_printf(out, "V%dZ\"/>\n", HIGH);
}

static int kind_colour(const char *kind) {
  static const char *const kinds[] = {"activation", "gradient", "statistic", "workspace"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(kind, kinds[i]) == 0) return i;
  }
  return 4;
}

static void put_blocks(const brim_profile_memory *m, double most, brim_str *out) {
  for (size_t i = 0; i < m->block_count && i < MAX_BLOCKS; i++) {
    const brim_profile_block *b = &m->blocks[i];
    if (!(b->offset >= 0) || !(b->bytes >= 0)) continue;
    if (b->first < 0 || b->last < b->first || (size_t)b->last >= m->point_count) continue;
    const double top = HIGH - fmin((b->offset + b->bytes) / most, 1) * HIGH;
    brim_str_printf(out,
                    "<rect class=\"k%d\" data-b=\"%zu\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                    "height=\"%.2f\"/>\n",
                    kind_colour(b->kind), i, x_of(m, b->first), top,
                    x_of(m, b->last + 1) - x_of(m, b->first), b->bytes / most * HIGH);
  }
}

// Puts a strip along the x axis that shows the phases of the ops.
static void put_phase_strip(const brim_profile_memory *m, brim_str *out) {
  brim_str_append(out, "<div class=\"strip\" aria-hidden=\"true\">");
  for (size_t i = 0; i < m->point_count;) {
    size_t end = i + 1;
    while (end < m->point_count && strcmp(m->points[end].phase, m->points[i].phase) == 0) end++;
    const int phase = phase_of(m->points[i].phase);
    brim_str_printf(out, "<span class=\"p%d\" style=\"flex-grow:%zu\">",
                    phase < 0 ? BRIM_PHASE_OTHER : phase, end - i);
    if ((end - i) * 12 >= m->point_count) brim_ui_escape_html(out, phase_text(m->points[i].phase));
    brim_str_append(out, "</span>");
    i = end;
  }
  brim_str_append(out, "</div>\n");
}

static void put_chart(const brim_profile_memory *m, brim_str *out) {
  char bytes[32], top[64];
  const double most = m->arena_bytes >= m->peak_bytes ? m->arena_bytes : m->peak_bytes;
  bytes_text(most, bytes);
  snprintf(top, sizeof top, brim_tr("arena: %s"), bytes);
  brim_str_append(out, "<figure class=\"chart\"><div class=\"units\"><span>");
  brim_ui_escape_html(out, top);
  brim_str_append(out, "</span><span>");
  brim_ui_escape_html(out, brim_tr("ops of a step, in order"));
  brim_str_printf(out,
                  "</span></div>\n<svg id=\"memory-chart\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\" role=\"img\"",
                  WIDE, HIGH);
  brim_ui_put_attribute(out, "aria-label", brim_tr("Memory during a step"));
  brim_str_append_char(out, '>');
  put_area(m, most, out);
  put_blocks(m, most, out);
  if (m->peak >= 0 && (size_t)m->peak < m->point_count) {
    brim_str_printf(out, "<path class=\"peak\" d=\"M%.2f 0V%d\"/>",
                    x_of(m, m->peak) + .5 * WIDE / (double)m->point_count, HIGH);
  }
  brim_str_append(out, "<path class=\"cursor\" id=\"memory-cursor\" d=\"\"/></svg>\n");
  put_phase_strip(m, out);
  const char *const kinds[] = {brim_tr("activation"), brim_tr("gradient"), brim_tr("statistic"),
                               brim_tr("workspace")};
  brim_str_append(out, "<ul class=\"legend\">");
  for (int i = 0; i < 4; i++) {
    brim_str_printf(out, "<li><span class=\"sw k%d\"></span>", i);
    brim_ui_escape_html(out, kinds[i]);
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul></figure>\n");
}

static void put_owner_row(const owner *o, double whole, brim_str *out) {
  char bytes[32];
  bytes_text(o->bytes, bytes);
  brim_str_append(out, "<tr><th>");
  brim_ui_escape_html(out, o->name);
  brim_str_append(out, "</th>");
  brim_ui_put(out, "td", o->kind);
  brim_ui_put(out, "td", bytes);
  brim_str_printf(out, "<td class=\"part\"><b><i style=\"--v:%.4g\"></i></b></td></tr>\n",
                  fmin(o->bytes / whole * 100, 100));
}

static void page_owners(const brim_profile *p, brim_str *out) {
  const brim_profile_memory *m = &p->memory;
  owner owners[MAX_OWNERS];
  double rest = 0;
  const size_t count = list_owners(p, m->peak, owners, &rest);
  const double fixed = m->fixed_bytes > 0 ? m->fixed_bytes : 0;
  const double whole = m->peak_bytes + fixed;
  brim_str_append(out, "<table class=\"plan owners\"><tbody>\n");
  for (size_t i = 0; i < count; i++) {
    if (i < PAGE_OWNERS) {
      put_owner_row(&owners[i], whole, out);
    } else {
      rest += owners[i].bytes;
    }
  }
  if (rest > 0) {
    put_owner_row(&(owner){brim_tr("all others"), "", rest, false}, whole, out);
  }
  brim_str_append(out, "</tbody></table>\n");
}

// Puts data for the script: points as [op, layer, bytes], blocks as [name, kind, bytes, first, last].
static void put_data(const brim_profile_memory *m, brim_str *out) {
  json_t *root = json_object(), *points = json_array(), *blocks = json_array();
  brim_status status = brim_json_put(root, "points", points);
  if (status) {
    json_decref(blocks);
  } else {
    status = brim_json_put(root, "blocks", blocks);
  }
  for (size_t i = 0; i < m->point_count && !status; i++) {
    const brim_profile_point *p = &m->points[i];
    status =
        brim_json_push(points, json_pack("[sso]", p->op, p->layer, brim_json_number(p->bytes)));
  }
  for (size_t i = 0; i < m->block_count && i < MAX_BLOCKS && !status; i++) {
    const brim_profile_block *b = &m->blocks[i];
    status = brim_json_push(blocks, json_pack("[ssoii]", b->name, brim_tr(b->kind),
                                              brim_json_number(b->bytes), b->first, b->last));
  }
  if (status) {
    json_decref(root);
  } else {
    status = brim_ui_put_data("memory-data", root, out);
  }
  if (status && !out->status) out->status = status;
}

static void page_memory(const brim_profile *profile, brim_str *out) {
  const brim_profile_memory *m = &profile->memory;
  char peak[32], fixed[32], line[384];
  if (m->point_count == 0 || !(m->peak_bytes > 0)) return;
  bytes_text(m->peak_bytes, peak);
  bytes_text(m->fixed_bytes, fixed);
  const bool has_peak = m->peak >= 0 && (size_t)m->peak < m->point_count;
  snprintf(line, sizeof line,
           brim_tr("Peak at %s%s%s: %s of activations and workspace, besides %s that stay for the "
                   "whole run."),
           has_peak ? m->points[m->peak].op : "-",
           has_peak && m->points[m->peak].layer[0] ? " " : "",
           has_peak ? m->points[m->peak].layer : "", peak, fixed);
  brim_ui_put_section(out, "memory", brim_tr("Memory during a step"), line);
  put_chart(m, out);
  brim_str_append(out, "<div class=\"two\"><div>");
  brim_ui_put(out, "h3", brim_tr("Owners at the peak"));
  page_owners(profile, out);
  brim_str_append(out, "</div><div id=\"memory-at\" class=\"js-only\">");
  brim_ui_put(out, "h3", brim_tr("At the op under the pointer"));
  brim_str_append(out, "<p class=\"note\" id=\"memory-op\">");
  brim_ui_escape_html(out, brim_tr("Point at the drawing, or tap it."));
  brim_str_append(out,
                  "</p><table class=\"plan owners\"><tbody id=\"memory-owners\"></tbody></table>"
                  "</div></div>\n");
  put_data(m, out);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- header ----------------------------------

static void put_span(brim_str *out, const char *text) {
  if (!text[0]) return;
  brim_ui_put(out, "span", text);
  brim_str_append_char(out, ' ');
}

static void put_header(const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char when[32], line[64] = "", description[192];
  brim_str_append(out, "<header><p class=\"brand\">brim profile</p>");
  const char *title = brim_ui_description(r->description, description);
  brim_ui_put(out, "h1", title[0] ? title : r->workload);
  brim_str_append(out, "<p class=\"sub\">");
  put_span(out, r->device);
  brim_str setting;
  brim_str_init(&setting);
  brim_ui_setting(r, &setting);
  put_span(out, setting.data);
  brim_str_deinit(&setting);
  if (!isnan(r->when_s)) {
    brim_clock_iso8601(r->when_s, when);  // 2026-11-15T02:20:29Z
    if (strlen(when) >= 19) when[10] = ' ', when[19] = '\0';
    snprintf(line, sizeof line, brim_tr("begun %s UTC"), when);
  }
  put_span(out, line);
  brim_str_append(out, "</p></header>\n");
}

//---------------------------------- the step ----------------------------------

static void put_stat(brim_str *out, const char *name, const char *value, const char *small) {
  brim_str_append(out, "<div><dt>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</dt><dd>");
  brim_ui_escape_html(out, value);
  if (small[0]) {
    brim_str_append(out, " ");
    brim_ui_put(out, "small", small);
  }
  brim_str_append(out, "</dd></div>\n");
}

static void put_ms_stat(brim_str *out, const char *name, double ms, double step) {
  char number[32], text[48], percent[32];
  if (isnan(ms)) return;
  ms_text(ms, number);
  snprintf(text, sizeof text, "%s ms", number);
  percent_text(ms / step, percent);
  put_stat(out, name, text, percent);
}

static void put_step(const brim_profile *p, brim_str *out) {
  char number[32], spread[64] = "", text[48], rate[96];
  brim_str_append(out, "<section id=\"step\"><div class=\"hero\">");
  brim_str_append(out, "<dl class=\"stats\">\n");
  ms_text(p->step_ms, number);
  snprintf(text, sizeof text, "%s ms", number);
  if (!isnan(p->step_mad_ms)) {
    ms_text(p->step_mad_ms, number);
    snprintf(spread, sizeof spread, brim_tr("± %s (median and MAD)"), number);
  }
  put_stat(out, brim_tr("Step"), text, spread);
  rate_text(p, rate);
  if (rate[0]) put_stat(out, brim_tr("Throughput"), rate, "");
  const double reach = brim_ui_profile_reach(p);
  if (!isnan(reach)) {
    percent_text(reach, number);
    put_stat(out, brim_tr("Of this machine's ceiling"), number, "");
  }
  if (p->has_gaps) put_ms_stat(out, brim_tr("GPU idle"), p->gap_ms, p->step_ms);
  if (p->h2d_ms > 0) {
    put_ms_stat(out, brim_tr("Exposed copies to the GPU"), p->h2d_exposed_ms, p->step_ms);
  }
  if (p->ranks > 1 && !isnan(p->exchange_exposed_ms)) {
    put_ms_stat(out, brim_tr("Exposed exchange between ranks"), p->exchange_exposed_ms, p->step_ms);
  }
  brim_str_append(out, "</dl>\n<p class=\"note\">");
  char line[192];
  snprintf(line, sizeof line, brim_tr("Measured by %s."), source_text(p));
  brim_ui_escape_html(out, line);
  if (p->note[0]) {
    char note[sizeof p->note];
    brim_words_text(p->note, note, sizeof note);
    brim_str_append_char(out, ' ');
    brim_ui_escape_html(out, note);
  }
  brim_str_append(out, "</p></div></section>\n");
}

//---------------------------------- findings ----------------------------------

static void put_finding(const brim_finding *f, double step, brim_str *out) {
  char cost[32], price[64], percent[32];
  brim_str_append(out, "<li><span class=\"price\">");
  if (!isnan(f->cost_ms)) {
    ms_text(f->cost_ms, cost);
    percent_text(f->cost_ms / step, percent);
    snprintf(price, sizeof price, brim_tr("%s ms per step"), cost);
    brim_ui_put(out, "b", price);
    // A price above the step's time is not a share of it.
    if (f->cost_ms < step) brim_str_printf(out, " (%s)", percent);
    brim_ui_escape_html(out, brim_ui_estimated(f));
  }
  brim_str_append(out, "</span><div>");
  brim_ui_put_finding_text(f, out);
  brim_str_append(out, "</div></li>\n");
}

static void page_findings(const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char healthy[256];
  const bool fine = brim_ui_healthy(r, healthy);
  brim_ui_put_section(
      out, "findings", brim_tr("Findings"),
      fine ? NULL : brim_tr("What costs time, how much per step, and what would help."));
  if (fine) {
    brim_ui_put_class(out, "p", "ok", healthy);
    brim_str_append_char(out, '\n');
  }
  brim_str_append(out, "<ul class=\"findings\">\n");
  for (size_t i = 0; i < r->finding_count; i++) put_finding(&r->findings[i], p->step_ms, out);
  brim_str_append(out, "</ul>");
  if (brim_ui_prices_overlap(r)) brim_ui_put(out, "p", brim_tr(BRIM_UI_PRICES_OVERLAP));
  brim_str_append(out, "</section>\n");
}

//---------------------------------- idle ----------------------------------

static void put_cause(const brim_profile *p, int cause, brim_str *out) {
  char ms[32], count[32], text[96];
  ms_text(p->cause_ms[cause], ms);
  count_text(p->cause_count[cause], count);
  snprintf(text, sizeof text, p->cause_count[cause] > 0 ? brim_tr("%s ms, %s per step") : "%s ms",
           ms, count);
  brim_str_append(out, "<div class=\"bar wide\"><span>");
  brim_ui_escape_html(out, cause_text((brim_gap_cause)cause));
  brim_str_printf(out, "</span><b><i style=\"--v:%.4g\"></i></b><span class=\"v\">",
                  fmin(p->cause_ms[cause] / p->gap_ms * 100, 100));
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div>\n");
}

static void put_gap(const brim_profile_gap *gap, brim_str *out) {
  char text[32];
  brim_str_append(out, "<tr>");
  ms_text(gap->ms, text);
  brim_ui_put(out, "td", text);
  if (gap->step >= 0 && gap->step < INT_MAX) {
    brim_str_printf(out, "<td>%d</td>", gap->step + 1);
  } else {
    brim_str_append(out, "<td>-</td>");
  }
  brim_str_append(out, "<td class=\"text\">");
  brim_ui_escape_html(out, cause_text(gap->cause));
  brim_str_append(out, "</td><td class=\"text long\">");
  brim_ui_escape_html(out, gap->before[0] ? gap->before : BRIM_UI_DASH);
  brim_str_append(out, "</td><td class=\"text long\">");
  brim_ui_escape_html(out, gap->after[0] ? gap->after : BRIM_UI_DASH);
  brim_str_append(out, "</td></tr>\n");
}

static void put_idle(const brim_profile *p, brim_str *out) {
  char ms[32], percent[32], line[160];
  if (!p->has_gaps) return;
  ms_text(p->gap_ms, ms);
  percent_text(p->gap_ms / p->step_ms, percent);
  snprintf(line, sizeof line, brim_tr("The GPU had nothing to do for %s ms of each step (%s)."), ms,
           percent);
  brim_ui_put_section(out, "idle", brim_tr("Why the GPU was idle"), line);
  brim_str_append(out, "<div class=\"panel\">\n");
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (p->cause_ms[i] > 0) put_cause(p, i, out);
  }
  brim_str transfer;
  brim_str_init(&transfer);
  transfer_text(p, &transfer);
  if (transfer.len > 0) brim_ui_put(out, "p", transfer.data);
  if (brim_str_status(&transfer) && !out->status) out->status = transfer.status;
  brim_str_deinit(&transfer);
  brim_str_append(out, "</div>\n");
  if (p->gap_count > 0) {
    brim_ui_put(out, "h3", brim_tr("Longest gaps"));
    brim_str_append(out, "<div class=\"scroll\"><table class=\"own gaps\"><thead><tr>");
    brim_ui_put(out, "th", "ms");
    brim_ui_put(out, "th", brim_tr("Step"));
    const char *const heads[] = {brim_tr("Cause"), brim_tr("After"), brim_tr("Before")};
    for (size_t i = 0; i < 3; i++) {
      brim_ui_put_class(out, "th", "text", heads[i]);
    }
    brim_str_append(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < p->gap_count; i++) put_gap(&p->gaps[i], out);
    brim_str_append(out, "</tbody></table></div>\n");
  }
  brim_str_append(out, "</section>\n");
}

//---------------------------------- machine ----------------------------------

static void put_machine(const brim_profile *p, const char *command, brim_str *out) {
  const brim_result *r = &p->result;
  char text[64] = "";
  brim_ui_put_section(out, "machine", brim_tr("Machine"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  brim_ui_put_pair(out, brim_tr("Device"), r->device);
  brim_ui_put_pair(out, brim_tr("Backend"), r->backend);
  brim_ui_put_pair(out, brim_tr("Library"), r->library);
  brim_ui_put_pair(out, brim_tr("CPU"), r->cpu);
  if (r->cores > 0) snprintf(text, sizeof text, brim_tr("%d, %d used"), r->cores, r->threads);
  brim_ui_put_pair(out, brim_tr("Cores"), text);
  brim_ui_put_pair(out, brim_tr("Host"), r->host);
  brim_ui_put_pair(out, brim_tr("System"), r->os);
  brim_ui_put_pair(out, brim_tr("Workload"), r->workload);
  brim_str_append(out, "</dl>\n");
  brim_ui_put_command(out, command);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

static void put_footer(const brim_profile *p, brim_str *out) {
  brim_str cost;
  brim_str_init(&cost);
  cost_text(p, &cost);
  brim_str_append(out, "<footer>");
  brim_ui_escape_html(out, cost.data);
  brim_str_append(out, "</footer>\n<div id=\"tip\" hidden></div>\n");
  if (brim_str_status(&cost) && !out->status) out->status = cost.status;
  brim_str_deinit(&cost);
}

brim_status brim_ui_profile_page(const brim_profile *profile, const char *command, brim_str *out) {
  static const char *const styles[] = {"report/report.css", "profile/profile.css", NULL};
  const brim_ui_link links[] = {
      {"findings", brim_tr("Findings")}, {"tables", brim_tr("Tables")},
      {"phases", brim_tr("Time")},       {"memory", brim_tr("Memory")},
      {"idle", brim_tr("GPU idle")},     {"machine", brim_tr("Machine")},
  };
  brim_str body;
  brim_str_init(&body);
  page_findings(profile, &body);
  brim_status status = page_tables(profile, &body);
  if (!status) {
    page_phases(profile, &body);
    page_memory(profile, &body);
    put_idle(profile, &body);
    put_machine(profile, command, &body);
    status = brim_str_status(&body);
  }
  if (!status) {
    brim_ui_put_head("brim profile", styles, out);
    brim_str_append(out, "<body>\n");
    put_header(profile, out);
    brim_ui_put_nav(&body, links, sizeof links / sizeof *links, out);
    put_step(profile, out);
    brim_str_append_n(out, body.data, body.len);
    put_footer(profile, out);
    brim_ui_put_scripts((const char *[]){"profile/profile.js", NULL}, out);
    brim_str_append(out, "</body>\n</html>\n");
    status = brim_str_status(out);
  }
  brim_str_deinit(&body);
  return status;
}
