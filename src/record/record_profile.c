// A profile as plain data: its start values, its lists, and the few things computed from it. JSON is
// in record_profile_json.c.
#include "record/record_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *brim_profile_list_key(brim_profile_list list) {
  static const char *const keys[] = {
#define X(id, key) key,
      BRIM_PROFILE_LIST_MAP(X)
#undef X
  };
  return keys[list];
}

const char *brim_gap_key(brim_gap_cause cause) {
  static const char *const keys[] = {
#define X(id, key) key,
      BRIM_GAP_MAP(X)
#undef X
  };
  return keys[cause];
}

void brim_profile_init(brim_profile *profile) {
  memset(profile, 0, sizeof *profile);
  brim_result_init(&profile->result);
  double *const unknown[] = {
      &profile->step_ms,
      &profile->step_mad_ms,
      &profile->traced_ms,
      &profile->gap_ms,
      &profile->h2d_ms,
      &profile->h2d_exposed_ms,
      &profile->h2d_bytes,
      &profile->h2d_pageable_bytes,
      &profile->exchange_ms,
      &profile->exchange_exposed_ms,
      &profile->exchange_bytes,
      &profile->worker_io_ms,
      &profile->worker_transform_ms,
      &profile->seconds,
      &profile->attach_s,
      &profile->window_s,
      &profile->extra_ms,
      &profile->run_percent,
      &profile->memory.arena_bytes,
      &profile->memory.fixed_bytes,
      &profile->memory.peak_bytes,
  };
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) *unknown[i] = NAN;
  for (int i = 0; i < BRIM_GAP_COUNT; i++) profile->cause_ms[i] = profile->cause_count[i] = NAN;
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) profile->sum_ms[i] = NAN;
  profile->memory.peak = -1;
}

void brim_profile_deinit(brim_profile *profile) {
  brim_result_deinit(&profile->result);
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    brim_free(profile->lists[i].items);
    profile->lists[i] = (brim_profile_rows){0};
  }
  brim_free(profile->memory.points);
  brim_free(profile->memory.blocks);
  profile->memory = (brim_profile_memory){.peak = -1};
}

brim_profile_row *brim_profile_add(brim_profile *profile, brim_profile_list list) {
  brim_profile_rows *rows = &profile->lists[list];
  if (rows->count == rows->capacity) {
    size_t capacity = rows->capacity ? 2 * rows->capacity : 32;
    brim_profile_row *grown =
        (brim_profile_row *)brim_realloc(rows->items, capacity * sizeof *grown);
    if (!grown) return NULL;
    rows->items = grown;
    rows->capacity = capacity;
  }
  brim_profile_row *row = &rows->items[rows->count++];
  *row = (brim_profile_row){.count = NAN,
                            .ms = NAN,
                            .total_ms = NAN,
                            .share = NAN,
                            .flops = NAN,
                            .bytes = NAN,
                            .ceiling_share = NAN};
  return row;
}

//---------------------------------- sums and order ----------------------------------

static double known(double value) { return isnan(value) ? 0 : value; }

static int descending(double a, double b) {
  a = isnan(a) ? -1 : a;
  b = isnan(b) ? -1 : b;
  return (a < b) - (a > b);
}

static int by_ms(const void *a, const void *b) {
  const brim_profile_row *x = (const brim_profile_row *)a, *y = (const brim_profile_row *)b;
  int order = descending(x->ms, y->ms);
  return order ? order : strcmp(x->name, y->name);
}

static int by_total(const void *a, const void *b) {
  const brim_profile_row *x = (const brim_profile_row *)a, *y = (const brim_profile_row *)b;
  int order = descending(x->total_ms, y->total_ms);
  return order ? order : strcmp(x->name, y->name);
}

void brim_profile_finish(brim_profile *profile) {
  for (int l = 0; l < BRIM_PROFILE_LIST_COUNT; l++) {
    brim_profile_rows *rows = &profile->lists[l];
    bool beside = l == BRIM_PROFILE_TRANSFORMS;  // the step, in workers
    double sum = 0, total = 0;
    for (size_t i = 0; i < rows->count; i++) {
      sum += known(rows->items[i].ms);
      total += known(rows->items[i].total_ms);
    }
    profile->sum_ms[l] = rows->count && !beside ? sum : NAN;
    for (size_t i = 0; i < rows->count; i++) {
      brim_profile_row *row = &rows->items[i];
      double part = beside ? row->total_ms : row->ms, whole = beside ? total : profile->step_ms;
      row->share = whole > 0 ? part / whole : NAN;
    }
    if (rows->count > 1) {
      qsort(rows->items, rows->count, sizeof *rows->items, beside ? by_total : by_ms);
    }
  }
}

double brim_profile_sum_percent(const brim_profile *profile, brim_profile_list list) {
  return profile->step_ms > 0 ? 100 * profile->sum_ms[list] / profile->step_ms : NAN;
}

size_t brim_profile_alive(const brim_profile *profile, int point, size_t *out, size_t most) {
  const brim_profile_memory *m = &profile->memory;
  size_t count = 0;
  for (size_t i = 0; i < m->block_count; i++) {
    if (point < m->blocks[i].first || point > m->blocks[i].last) continue;
    count++;
    // the largest `most` so far stay in order
    size_t at = count < most ? count : most;
    if (at == 0) continue;
    if (count > most && m->blocks[out[most - 1]].bytes >= m->blocks[i].bytes) continue;
    for (at--; at > 0 && m->blocks[out[at - 1]].bytes < m->blocks[i].bytes; at--) {
      out[at] = out[at - 1];
    }
    out[at] = i;
  }
  return count;
}
