// Words, orders and sums of a profile that its views share.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui/ui_profile_int.h"
#include "ui/ui_report_int.h"

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

void brim_ui_profile_step(const brim_profile *profile, char out[128]) {
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

void brim_ui_profile_exchange(const brim_profile *profile, brim_str *out) {
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
