// The summary of a profile on a terminal: what and where, the table, timelines, gaps, transforms, findings, and what
// measuring cost. The first part is shared with the page (ui_profile_page.c). Nothing is computed here that the record
// does not have.

#include "ui/ui_profile.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "ui/ui_int.h"
#include "ui/ui_profile_int.h"
#include "ui/ui_report_int.h"

//------------------------------------ words, orders and sums ------------------------------------
// Words, orders and sums of a profile that its views share.

//---------------------------------- figures ----------------------------------

void brim_ui_profile_ms(double value, char out[32]) {
  if (isnan(value) || value <= 0 || value >= 0.0995) {
    brim_ui_ms(value, out);
  } else if (value < 0.0005) {
    snprintf(out, 32, "<0.001");
  } else {
    snprintf(out, 32, "%.3f", brim_shown(value));
  }
}

void brim_ui_profile_bytes(double bytes, char out[32]) {
  if (bytes >= 0 && bytes < 0x1p63) {
    brim_format_bytes((uint64_t)bytes, out);
  } else {
    snprintf(out, 32, "-");
  }
}

void brim_ui_profile_count(double count, char out[32]) {
  if (!isnan(count) && fabs(count - round(count)) < 0.005) {
    brim_format_count(round(count), out);
  } else {
    brim_ui_number(count, out);
  }
}

static void put_percent(double share, bool whole, char out[32]) {
  const double percent = brim_shown(share * 100);
  if (isnan(percent)) {
    snprintf(out, 32, "-");
  } else if (percent > 0 && percent < 0.05) {
    snprintf(out, 32, "<0.1 %%");
  } else {
    snprintf(out, 32, whole && fabs(percent) >= 9.95 ? "%.0f %%" : "%.1f %%", percent);
  }
}

void brim_ui_profile_percent(double share, char out[32]) { put_percent(share, true, out); }

void brim_ui_profile_of_ceiling(const brim_profile_row *row, char out[64]) {
  char percent[32];
  put_percent(row->ceiling_share, true, percent);
  if (isnan(row->ceiling_share)) {  // in a cache: no ceiling was met
    snprintf(out, 64, "%s", row->ceiling[0] ? row->ceiling : "-");
  } else {
    snprintf(out, 64, "%s%s%s", percent, row->ceiling[0] ? " " : "", row->ceiling);
  }
}

void brim_ui_profile_part(double share, char out[32]) { put_percent(share, false, out); }

// "2.46 ms ± 0.018 (median and MAD, untraced)"
static void profile_step(const brim_profile *profile, char out[128]) {
  char step[32], spread[32];
  brim_ui_profile_ms(profile->step_ms, step);
  brim_ui_profile_ms(profile->step_mad_ms, spread);
  if (isnan(profile->step_mad_ms)) {
    snprintf(out, 128, brim_tr("%s ms (median, untraced)"), step);
  } else {
    snprintf(out, 128, brim_tr("%s ms ± %s (median and MAD, untraced)"), step, spread);
  }
}

void brim_ui_profile_rate(const brim_profile *profile, char out[96]) {
  const brim_result *r = &profile->result;
  char number[32];
  out[0] = '\0';
  if (!(r->samples_per_s > 0)) return;
  brim_ui_number(r->samples_per_s, number);
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
  // of a step that is mostly other work they say nothing
  return known >= 0.5 * profile->step_ms ? fmin(sum / profile->step_ms, 1) : NAN;
}

//---------------------------------- words ----------------------------------

const char *brim_ui_profile_title(brim_profile_list list) {
  static const char *const titles[BRIM_PROFILE_LIST_COUNT] = {
      [BRIM_PROFILE_KERNELS] = BRIM_N_("Kernels"),       [BRIM_PROFILE_OPS] = BRIM_N_("Ops"),
      [BRIM_PROFILE_LAYERS] = BRIM_N_("Layers"),         [BRIM_PROFILE_PHASES] = BRIM_N_("Phases"),
      [BRIM_PROFILE_TRANSFORMS] = BRIM_N_("Transforms"),
  };
  return brim_tr(titles[list]);
}

const char *brim_ui_profile_column(brim_profile_list list) {
  static const char *const names[BRIM_PROFILE_LIST_COUNT] = {
      [BRIM_PROFILE_KERNELS] = BRIM_N_("Kernel"),       [BRIM_PROFILE_OPS] = BRIM_N_("Op"),
      [BRIM_PROFILE_LAYERS] = BRIM_N_("Layer"),         [BRIM_PROFILE_PHASES] = BRIM_N_("Phase"),
      [BRIM_PROFILE_TRANSFORMS] = BRIM_N_("Transform"),
  };
  return brim_tr(names[list]);
}

const char *brim_ui_profile_cause(brim_gap_cause cause) {
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

int brim_ui_profile_phase(const char *key) {
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    if (strcmp(key, brim_phase_key((brim_phase)i)) == 0) return i;
  }
  return -1;
}

// "GPU idle: the step waited for data"
static const char *gap_name(const char *key, char out[224]) {
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (strcmp(key, brim_gap_key((brim_gap_cause)i)) != 0) continue;
    snprintf(out, 224, brim_tr("GPU idle: %s"), brim_ui_profile_cause((brim_gap_cause)i));
    return out;
  }
  return brim_tr("GPU idle");
}

const char *brim_ui_profile_name(const brim_profile_row *row, brim_profile_list list,
                                 char out[224]) {
  const int phase = brim_ui_profile_phase(row->name);
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

const char *brim_ui_profile_source(const brim_profile *profile) {
  if (strcmp(profile->source, "cupti") == 0) return brim_tr("the GPU's own records (CUPTI)");
  if (strcmp(profile->source, "events") == 0) {
    return brim_tr("events of the GPU around each op, scaled to the step");
  }
  if (strcmp(profile->source, "clock") == 0) {
    return brim_tr("the CPU's clock around each op, scaled to the step");
  }
  return profile->source;
}

void brim_ui_profile_cost(const brim_profile *profile, brim_str *out) {
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
  // less than steps vary among themselves is no difference
  const bool slower = profile->extra_ms > fmax(0, profile->step_mad_ms);
  if (!isnan(profile->extra_ms)) {
    brim_ui_profile_ms(profile->extra_ms, text);
    brim_str_append(out, " ");
    if (slower) {
      brim_str_printf(out, brim_tr("A traced step took %s ms longer."), text);
    } else {
      brim_str_append(out, brim_tr("Traced steps were not measurably slower."));
    }
  }
  if (slower && !isnan(profile->run_percent)) {
    brim_ui_profile_percent(fmax(profile->run_percent, 0) / 100, text);
    brim_str_append(out, " ");
    brim_str_printf(out, brim_tr("In a run of 1,000 steps the window costs %s."), text);
  }
}

void brim_ui_profile_transfer(const brim_profile *profile, brim_str *out) {
  char all[32], exposed[32], bytes[32];
  if (!(profile->h2d_ms > 0)) return;
  brim_ui_profile_ms(profile->h2d_ms, all);
  brim_ui_profile_ms(profile->h2d_exposed_ms, exposed);
  brim_ui_profile_bytes(profile->h2d_bytes, bytes);
  brim_str_printf(
      out, brim_tr("Host to device: %s in %s ms per step, %s ms of it exposed (no kernel ran)."),
      bytes, all, exposed);
  if (!(profile->h2d_pageable_bytes > 0)) return;
  brim_ui_profile_bytes(profile->h2d_pageable_bytes, bytes);
  brim_str_append_char(out, ' ');
  brim_str_printf(out, brim_tr("%s came from pageable memory."), bytes);
}

// What ranks exchange, and how much of it computing hides; nothing of one rank.
static void profile_exchange(const brim_profile *profile, brim_str *out) {
  char all[32], exposed[32], hidden[32];
  if (profile->ranks < 2 || isnan(profile->exchange_ms)) return;
  brim_ui_profile_ms(profile->exchange_ms, all);
  brim_ui_profile_ms(profile->exchange_exposed_ms, exposed);
  brim_str_printf(out, brim_tr("%d ranks exchange for %s ms per step (%s)"), profile->ranks, all,
                  profile->exchange_by);
  if (isnan(profile->exchange_exposed_ms)) {
    brim_str_append(out, brim_tr("; what of it the step waits for is unknown."));
    return;
  }
  double share = 1 - profile->exchange_exposed_ms / profile->exchange_ms;
  brim_ui_profile_percent(fmax(share, 0), hidden);
  brim_str_printf(out, brim_tr("; the step waits for %s ms of it, computing hides %s."), exposed,
                  hidden);
}

//---------------------------------- orders ----------------------------------

brim_profile_list brim_ui_profile_finest(const brim_profile *profile) {
  static const brim_profile_list order[] = {BRIM_PROFILE_KERNELS, BRIM_PROFILE_OPS,
                                            BRIM_PROFILE_LAYERS, BRIM_PROFILE_PHASES};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    if (profile->lists[order[i]].count > 0) return order[i];
  }
  return BRIM_PROFILE_PHASES;
}

double brim_ui_profile_time(const brim_profile_row *row, brim_profile_list list) {
  if (list == BRIM_PROFILE_TRANSFORMS || isnan(row->ms)) return row->total_ms;
  return row->ms;
}

typedef struct keyed {
  double key;
  const char *name;
  size_t index;
} keyed;

// Smallest key first, unknown ones last.
static int by_key(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (isnan(x->key) != isnan(y->key)) return isnan(x->key) ? 1 : -1;
  if (x->key < y->key || x->key > y->key) return x->key < y->key ? -1 : 1;
  const int words = x->name ? strcmp(x->name, y->name) : 0;
  return words ? words : (x->index > y->index) - (x->index < y->index);
}

static size_t *sorted(keyed *keys, size_t count) {
  size_t *order = brim_calloc(count + 1, sizeof *order);
  if (order) {
    qsort(keys, count, sizeof *keys, by_key);
    for (size_t i = 0; i < count; i++) order[i] = keys[i].index;
  }
  brim_free(keys);
  return order;
}

size_t *brim_ui_profile_order(const brim_profile *profile, brim_profile_list list,
                              brim_ui_profile_sort sort) {
  const brim_profile_rows *rows = &profile->lists[list];
  keyed *keys = brim_calloc(rows->count + 1, sizeof *keys);
  if (!keys) return NULL;
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[i];
    const double values[BRIM_UI_PROFILE_SORTS] = {
        [BRIM_UI_PROFILE_TIME] = -brim_ui_profile_time(row, list),
        [BRIM_UI_PROFILE_COUNT_OF] = -row->count,
        [BRIM_UI_PROFILE_SHARE] = -row->share,
        [BRIM_UI_PROFILE_CEILING] = row->ceiling_share,
        [BRIM_UI_PROFILE_NAME] = 0,
    };
    keys[i] = (keyed){values[sort], sort == BRIM_UI_PROFILE_NAME ? row->name : NULL, i};
  }
  return sorted(keys, rows->count);
}

size_t *brim_ui_profile_in_step(const brim_profile *profile) {
  const brim_profile_rows *rows = &profile->lists[BRIM_PROFILE_PHASES];
  keyed *keys = brim_calloc(rows->count + 1, sizeof *keys);
  if (!keys) return NULL;
  for (size_t i = 0; i < rows->count; i++) {
    const int phase = brim_ui_profile_phase(rows->items[i].name);
    keys[i] = (keyed){phase < 0 ? BRIM_PHASE_COUNT : phase, NULL, i};
  }
  return sorted(keys, rows->count);
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

// Rows of the plan besides the arena. The record tells how many bytes they have: names that do not add
// up to that are not shown.
static size_t fixed_rows(const brim_profile *profile, brim_ui_owner *out, size_t most) {
  static const char *const arenas[][2] = {{"activations", ""}, {"activations", "workspace"}};
  const brim_plan *plan = &profile->result.plan;
  for (size_t way = 0; way < 2; way++) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < plan->row_count && n < most; i++) {
      const brim_plan_row *row = &plan->rows[i];
      const bool arena =
          strcmp(row->name, arenas[way][0]) == 0 || strcmp(row->name, arenas[way][1]) == 0;
      if (arena || row->place != BRIM_PLACE_DEVICE) continue;
      out[n++] =
          (brim_ui_owner){brim_tr(row->name), brim_tr("whole run"), (double)row->bytes, true};
      sum += (double)row->bytes;
    }
    if (fabs(sum - profile->memory.fixed_bytes) < 1) return n;
  }
  if (!(profile->memory.fixed_bytes > 0) || most == 0) return 0;
  out[0] = (brim_ui_owner){brim_tr("parameters and state"), brim_tr("whole run"),
                           profile->memory.fixed_bytes, true};
  return 1;
}

static int by_bytes(const void *a, const void *b) {
  const brim_ui_owner *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

size_t brim_ui_profile_owners(const brim_profile *profile, int point,
                              brim_ui_owner out[BRIM_UI_OWNERS], double *rest) {
  const brim_profile_memory *memory = &profile->memory;
  size_t n = fixed_rows(profile, out, BRIM_UI_OWNERS / 2), alive[BRIM_UI_OWNERS];
  *rest = 0;
  const size_t room = BRIM_UI_OWNERS - n;
  const size_t all = brim_profile_alive(profile, point, alive, room);
  const size_t got = all < room ? all : room;
  double shown = 0;
  for (size_t i = 0; i < got; i++) {
    const brim_profile_block *block = &memory->blocks[alive[i]];
    out[n++] = (brim_ui_owner){block->name, kind_text(block->kind), block->bytes, false};
    shown += block->bytes;
  }
  if (all > got && point >= 0 && (size_t)point < memory->point_count) {
    *rest = fmax(memory->points[point].bytes - shown, 0);
  }
  qsort(out, n, sizeof *out, by_bytes);
  return n;
}

//------------------------------------------- terminal -------------------------------------------

enum { MAX_BAR = 60, MIN_BAR = 10, CHART_ROWS = 5, SHOWN_OWNERS = 8, SHOWN_GAPS = 5 };

static void title(const brim_term *term, const char *text, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_BOLD, text);
  brim_str_append_char(out, '\n');
}

static void sentence(const brim_term *term, const char *text, brim_str *out) {
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, text, 2);
  brim_str_append_char(out, '\n');
}

//---------------------------------- what and where ----------------------------------

static void put_head(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char step[128], rate[96], what[192], text[256];
  brim_ui_heading(out, term, brim_tr("PROFILE"));
  brim_ui_put_line(term, brim_tr("What"), brim_ui_description(r->description, what), out);
  brim_ui_put_line(term, brim_tr("Where"), r->device, out);
  brim_str setting;
  brim_str_init(&setting);
  brim_ui_setting(r, &setting);
  if (setting.len > 0) brim_ui_put_line(term, brim_tr("Setting"), setting.data, out);
  brim_str_deinit(&setting);
  profile_step(p, step);
  brim_ui_profile_rate(p, rate);
  snprintf(text, sizeof text, "%s%s%s", step, rate[0] ? ", " : "", rate);
  brim_ui_put_line(term, brim_tr("Step"), text, out);
  const double reach = brim_ui_profile_reach(p);
  if (!isnan(reach)) {
    brim_ui_profile_percent(reach, rate);
    brim_ui_profile_ms(reach * p->step_ms, step);
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
  brim_ui_put_line(term, brim_tr("Measured by"), brim_ui_profile_source(p), out);
  if (p->note[0]) {
    char note[sizeof p->note];
    brim_words_text(p->note, note, sizeof note);
    sentence(term, note, out);
  }
}

//---------------------------------- the table ----------------------------------

// Which columns a list asks for besides its name and figures.
typedef struct shown {
  bool op, layer, phase, count, ceiling;
} shown;

static shown columns_of(const brim_profile_rows *rows, brim_profile_list list) {
  shown s = {0};
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[i];
    s.op |= row->op[0] && list == BRIM_PROFILE_KERNELS;
    s.layer |= row->layer[0] && list < BRIM_PROFILE_LAYERS;
    s.phase |= row->phase[0] && list < BRIM_PROFILE_LAYERS;  // a layer is in several
    s.count |= row->count > 0;
    s.ceiling |= row->ceiling[0] != '\0';
  }
  return s;
}

static void add_row(brim_ui_table *table, const brim_profile_row *row, brim_profile_list list,
                    shown s) {
  char text[64], percent[32], name[224];
  const int phase = brim_ui_profile_phase(row->phase);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", brim_ui_profile_name(row, list, name));
  if (s.op) brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->op);
  if (s.layer) brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->layer);
  if (s.phase) {
    brim_ui_table_add(table, BRIM_UI_DIM, "%s",
                      phase < 0 ? row->phase : brim_tr(brim_phase_label((brim_phase)phase)));
  }
  if (s.count) {
    brim_ui_profile_count(row->count, text);
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  }
  brim_ui_profile_ms(brim_ui_profile_time(row, list), text);
  brim_ui_table_add(table, BRIM_UI_BOLD, "%s", text);
  brim_ui_profile_percent(row->share, percent);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", percent);
  if (!s.ceiling) return;
  brim_ui_profile_of_ceiling(row, text);
  brim_ui_table_add(table, row->ceiling_share < 0.3 ? BRIM_UI_WARN : BRIM_UI_PLAIN, "%s", text);
}

static size_t make_columns(brim_profile_list list, shown s, brim_ui_column out[8]) {
  size_t n = 0;
  const bool beside = list == BRIM_PROFILE_TRANSFORMS;
  out[n++] = (brim_ui_column){brim_ui_profile_column(list), NULL, BRIM_UI_LEFT, 0, 16};
  if (s.op) out[n++] = (brim_ui_column){brim_tr("Op"), NULL, BRIM_UI_LEFT, 5, 8};
  if (s.layer) out[n++] = (brim_ui_column){brim_tr("Layer"), NULL, BRIM_UI_LEFT, 4, 8};
  if (s.phase) out[n++] = (brim_ui_column){brim_tr("Phase"), NULL, BRIM_UI_LEFT, 6, 0};
  if (s.count) out[n++] = (brim_ui_column){brim_tr("Calls"), NULL, BRIM_UI_RIGHT, 3, 0};
  out[n++] = (brim_ui_column){brim_tr("ms/step"), "ms", BRIM_UI_RIGHT, 0, 0};
  out[n++] = (brim_ui_column){beside ? brim_tr("Of transforms") : brim_tr("Of step"), NULL,
                              BRIM_UI_RIGHT, 1, 0};
  if (s.ceiling) {
    out[n++] = (brim_ui_column){brim_tr("Of ceiling"), brim_tr("Ceil"), BRIM_UI_RIGHT, 2, 0};
  }
  return n;
}

// "27 more: 1.2 ms, 4.1 %"
static void put_rest(const brim_term *term, const brim_profile_rows *rows, const size_t *order,
                     size_t first, brim_profile_list list, brim_str *out) {
  double ms = 0, share = 0;
  char text[32], percent[32], line[160];
  if (first >= rows->count) return;
  for (size_t i = first; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    const double time = brim_ui_profile_time(row, list);
    if (time > 0) ms += time;
    if (row->share > 0) share += row->share;
  }
  brim_ui_profile_ms(ms, text);
  brim_ui_profile_percent(share, percent);
  snprintf(line, sizeof line, brim_tr("%zu more: %s ms, %s (--limit %zu shows all)"),
           rows->count - first, text, percent, rows->count);
  brim_ui_styled(out, term, BRIM_UI_DIM, line);
  brim_str_append_char(out, '\n');
}

static brim_status put_rows(const brim_term *term, const brim_profile *p, const size_t *order,
                            const brim_ui_profile_options *options, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[options->by];
  const size_t most = options->limit && options->limit < rows->count ? options->limit : rows->count;
  const shown s = columns_of(rows, options->by);
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
  size_t *order = brim_ui_profile_order(p, options->by, options->sort);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  brim_str_init(&head);
  brim_str_printf(&head, "%s, %s", brim_ui_profile_title(options->by),
                  brim_tr(words[options->sort]));
  if (!isnan(sum) && options->by != BRIM_PROFILE_TRANSFORMS) {
    brim_ui_profile_percent(sum / 100, percent);
    brim_str_printf(&head, brim_tr("; together %s of the step"), percent);
  }
  title(term, head.data, out);
  brim_status status = brim_str_status(&head);
  brim_str_deinit(&head);
  if (!status) status = put_rows(term, p, order, options, out);
  brim_free(order);
  return status;
}

//---------------------------------- phases ----------------------------------

static int bar_width(const brim_term *term, int beside) {
  const int room = (term->width > 0 ? term->width : 80) - beside;
  return room < MIN_BAR ? MIN_BAR : room > MAX_BAR ? MAX_BAR : room;
}

static void put_times(brim_str *out, const char *text, int n) {
  for (int i = 0; i < n; i++) brim_str_append(out, text);
}

static int label_width(const brim_profile *p) {
  const brim_profile_rows *rows = &p->lists[BRIM_PROFILE_PHASES];
  char name[224];
  int widest = 0;
  for (size_t i = 0; i < rows->count; i++) {
    const int w = brim_utf8_width(brim_ui_profile_name(&rows->items[i], BRIM_PROFILE_PHASES, name));
    if (w > widest) widest = w;
  }
  return widest;
}

// Dots before and after a bar of whole columns; what is too short for one is a thin mark.
static void put_bar(const brim_term *term, double from, double to, int width, brim_str *out) {
  const int begin = (int)lround(fmin(from, 1) * width), end = (int)lround(fmin(to, 1) * width);
  const bool thin = end == begin;
  const int at = thin && begin == width ? begin - 1 : begin;
  put_times(out, term->unicode ? "·" : ".", at);
  if (thin) {
    brim_str_append(out, term->unicode ? "▏" : "|");
  } else {
    put_times(out, term->unicode ? "█" : "#", end - begin);
  }
  put_times(out, term->unicode ? "·" : ".", width - at - (thin ? 1 : end - begin));
}

// Each phase where it begins and ends within the step, as if one followed the other.
static brim_status put_phases(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[BRIM_PROFILE_PHASES];
  const int names = label_width(p), width = bar_width(term, names + 25);
  double at = 0;
  if (rows->count == 0 || !(p->step_ms > 0)) return BRIM_OK;
  size_t *order = brim_ui_profile_in_step(p);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  title(term, brim_tr("Phases of a step"), out);
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    char ms[32], percent[32], text[224];
    const char *name = brim_ui_profile_name(row, BRIM_PROFILE_PHASES, text);
    if (!(row->ms > 0)) continue;
    brim_str_printf(out, "  %s", name);
    brim_str_repeat(out, ' ', (size_t)(names - brim_utf8_width(name) + 2));
    put_bar(term, at / p->step_ms, (at + row->ms) / p->step_ms, width, out);
    at += row->ms;
    brim_ui_profile_ms(row->ms, ms);
    brim_ui_profile_part(row->share, percent);
    brim_str_printf(out, "  %7s ms  %7s\n", ms, percent);
  }
  brim_free(order);
  return brim_str_status(out);
}

//---------------------------------- memory ----------------------------------

// The most of the points that fall into one column.
static double column_bytes(const brim_profile_memory *m, int column, int width) {
  const size_t from = m->point_count * (size_t)column / (size_t)width;
  size_t to = m->point_count * (size_t)(column + 1) / (size_t)width;
  double most = 0;
  if (to <= from) to = from + 1;
  for (size_t i = from; i < to && i < m->point_count; i++) most = fmax(most, m->points[i].bytes);
  return most;
}

// One row of the chart, from the top: a column's part in it, in eighths where the terminal has them.
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

// "fwd          bwd              opt": below the chart, where each phase begins.
static void put_chart_phases(const brim_profile_memory *m, int width, int indent, brim_str *out) {
  const char *last = "";
  int used = 0;
  brim_str_repeat(out, ' ', (size_t)indent);
  for (int c = 0; c < width; c++) {
    const brim_profile_point *point = &m->points[m->point_count * (size_t)c / (size_t)width];
    if (strcmp(point->phase, last) == 0) continue;
    last = point->phase;
    const int phase = brim_ui_profile_phase(point->phase);
    if (phase < 0 || c < used) continue;
    const char *label = brim_tr(brim_phase_label((brim_phase)phase));
    brim_str_repeat(out, ' ', (size_t)(c - used));
    brim_str_printf(out, "%s ", label);
    used = c + brim_utf8_width(label) + 1;
  }
  brim_str_append_char(out, '\n');
}

static void put_owners(const brim_term *term, const brim_profile *p, brim_str *out) {
  brim_ui_owner owners[BRIM_UI_OWNERS];
  double rest = 0;
  char bytes[32];
  const size_t count = brim_ui_profile_owners(p, p->memory.peak, owners, &rest);
  for (size_t i = 0; i < count; i++) {
    if (i >= SHOWN_OWNERS) {
      rest += owners[i].bytes;
      continue;
    }
    brim_ui_profile_bytes(owners[i].bytes, bytes);
    brim_str_printf(out, "    %10s  %s", bytes, owners[i].name);
    brim_str_printf(out, " (%s)\n", owners[i].kind);
  }
  if (!(rest > 0)) return;
  brim_ui_profile_bytes(rest, bytes);
  brim_str_printf(out, "    %10s  %s\n", bytes, brim_tr("all others"));
  (void)term;
}

static void put_memory(const brim_term *term, const brim_profile *p, brim_str *out) {
  const brim_profile_memory *m = &p->memory;
  char peak[32], fixed[32], line[384];
  if (m->point_count == 0 || !(m->peak_bytes > 0)) return;
  const int width = bar_width(term, 14);
  title(term, brim_tr("Memory during a step"), out);
  brim_ui_profile_bytes(m->peak_bytes, peak);
  for (int row = 0; row < CHART_ROWS; row++) {
    brim_str_printf(out, "  %10s  ", row == 0 ? peak : row == CHART_ROWS - 1 ? "0" : "");
    put_chart_row(term, m, row, width, out);
  }
  put_chart_phases(m, width, 14, out);
  if (m->peak < 0 || (size_t)m->peak >= m->point_count) return;
  const brim_profile_point *at = &m->points[m->peak];
  brim_ui_profile_bytes(m->fixed_bytes, fixed);
  snprintf(line, sizeof line,
           brim_tr("Peak at %s%s%s: %s of activations and workspace, besides %s that stay for the "
                   "whole run."),
           at->op, at->layer[0] ? " " : "", at->layer, peak, fixed);
  sentence(term, line, out);
  put_owners(term, p, out);
}

//---------------------------------- the GPU ----------------------------------

static void put_causes(const brim_profile *p, brim_str *out) {
  char ms[32], count[32];
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (!(p->cause_ms[i] > 0)) continue;
    brim_ui_profile_ms(p->cause_ms[i], ms);
    brim_ui_profile_count(p->cause_count[i], count);
    brim_str_printf(out, "  %8s ms  %s", ms, brim_ui_profile_cause((brim_gap_cause)i));
    if (p->cause_count[i] > 0) brim_str_printf(out, brim_tr(" (%s per step)"), count);
    brim_str_append_char(out, '\n');
  }
}

static void put_longest(const brim_term *term, const brim_profile *p, brim_str *out) {
  if (p->gap_count == 0) return;
  brim_str_printf(out, "  %s\n", brim_tr("Longest:"));
  for (size_t i = 0; i < p->gap_count && i < SHOWN_GAPS; i++) {
    const brim_profile_gap *gap = &p->gaps[i];
    char ms[32], line[320];
    brim_ui_profile_ms(gap->ms, ms);
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
  if (line.len > 0) sentence(term, line.data, out);
  if (brim_str_status(&line) && !out->status) out->status = line.status;
  brim_str_deinit(&line);
}

static void put_gpu(const brim_term *term, const brim_profile *p, brim_str *out) {
  char ms[32], percent[32], head[160];
  if (p->has_gaps) {
    brim_ui_profile_ms(p->gap_ms, ms);
    brim_ui_profile_percent(p->gap_ms / p->step_ms, percent);
    snprintf(head, sizeof head, brim_tr("GPU idle: %s ms of each step (%s)"), ms, percent);
    title(term, head, out);
    put_causes(p, out);
    put_longest(term, p, out);
  } else if (brim_result_has_gpu(&p->result)) {
    title(term, brim_tr("GPU idle: not seen, because there are no records of the GPU"), out);
  }
  put_line(term, p, brim_ui_profile_transfer, out);
  put_line(term, p, profile_exchange, out);
}

//---------------------------------- transforms ----------------------------------

static void loading_text(const brim_profile *p, char *line, size_t size) {
  char io[32], work[32];
  const int n = p->workers;
  brim_ui_profile_ms(p->worker_io_ms, io);
  brim_ui_profile_ms(p->worker_transform_ms, work);
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
  brim_ui_profile_options own = *options;
  own.by = BRIM_PROFILE_TRANSFORMS;
  if (options->by != BRIM_PROFILE_TRANSFORMS) {
    own.sort = BRIM_UI_PROFILE_TIME;
    BRIM_TRY(put_table(term, p, &own, out));
  }
  if (isnan(p->worker_io_ms)) return BRIM_OK;
  loading_text(p, line, sizeof line);
  if (p->lists[BRIM_PROFILE_TRANSFORMS].count == 0) brim_str_append_char(out, '\n');
  sentence(term, line, out);
  return BRIM_OK;
}

//---------------------------------- all ----------------------------------

static void put_findings(const brim_term *term, const brim_profile *p, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("FINDINGS"));
  brim_ui_bench_findings(term, &p->result, NULL, out);
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
  put_findings(term, profile, out);
  brim_str cost;
  brim_str_init(&cost);
  brim_ui_profile_cost(profile, &cost);
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, term, cost.data, 0);
  brim_str_append_char(out, '\n');
  brim_status status = brim_str_status(&cost);
  brim_str_deinit(&cost);
  return status ? status : brim_str_status(out);
}
