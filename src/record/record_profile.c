// Profiles: start values, lists, JSON, and the memory part alone.

#include "record/record_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_fields.h"

//-------------------------------------------- values --------------------------------------------

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

//---------------------------------- fields ----------------------------------

// Fields that stand in one JSON object of the profile; key NULL = the profile itself.
typedef struct section {
  const char *key;
  const brim_field *fields;
  size_t count;
} section;

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define FIELD(type, key_, kind_, member) BRIM_FIELD_(type, key_, kind_, member)

#define ROW brim_profile_row
static const brim_field row_fields[] = {
    FIELD(ROW, "name", CHARS, name),
    FIELD(ROW, "kind", CHARS, kind),
    FIELD(ROW, "op", CHARS, op),
    FIELD(ROW, "layer", CHARS, layer),
    FIELD(ROW, "phase", CHARS, phase),
    FIELD(ROW, "count", NUMBER, count),
    FIELD(ROW, "ms", NUMBER, ms),
    FIELD(ROW, "total_ms", NUMBER, total_ms),
    FIELD(ROW, "share", NUMBER, share),
    FIELD(ROW, "flops", NUMBER, flops),
    FIELD(ROW, "bytes", NUMBER, bytes),
    FIELD(ROW, "ceiling", CHARS, ceiling),
    FIELD(ROW, "ceiling_share", NUMBER, ceiling_share),
};

#define GAP brim_profile_gap
static const char *cause_name(int cause) { return brim_gap_key((brim_gap_cause)cause); }

#define CAUSE                                                                                  \
  {                                                                                            \
    .key = "cause", .kind = BRIM_FIELD_NAME, BRIM_FIELD_PLACE(GAP, cause), .name = cause_name, \
    .names = BRIM_GAP_COUNT, .want = "a cause of a gap"                                        \
  }
static const brim_field gap_fields[] = {
    CAUSE,
    FIELD(GAP, "ms", NUMBER, ms),
    FIELD(GAP, "step", I32, step),
    FIELD(GAP, "at_ms", NUMBER, at_ms),
    FIELD(GAP, "before", CHARS, before),
    FIELD(GAP, "after", CHARS, after),
};

#define POINT brim_profile_point
static const brim_field point_fields[] = {
    FIELD(POINT, "op", CHARS, op),
    FIELD(POINT, "layer", CHARS, layer),
    FIELD(POINT, "phase", CHARS, phase),
    FIELD(POINT, "bytes", NUMBER, bytes),
};

#define BLOCK brim_profile_block
static const brim_field block_fields[] = {
    FIELD(BLOCK, "name", CHARS, name),    FIELD(BLOCK, "kind", CHARS, kind),
    FIELD(BLOCK, "bytes", NUMBER, bytes), FIELD(BLOCK, "offset", NUMBER, offset),
    FIELD(BLOCK, "first", I32, first),    FIELD(BLOCK, "last", I32, last),
};

#define ALL brim_profile
static const brim_field top_fields[] = {
    FIELD(ALL, "source", CHARS, source),
    FIELD(ALL, "note", WORDS, note),
};
static const brim_field step_fields[] = {
    FIELD(ALL, "ms", NUMBER, step_ms),
    FIELD(ALL, "mad_ms", NUMBER, step_mad_ms),
    FIELD(ALL, "traced_ms", NUMBER, traced_ms),
    FIELD(ALL, "traced_steps", I32, traced_steps),
};
static const brim_field transfer_fields[] = {
    FIELD(ALL, "ms", NUMBER, h2d_ms),
    FIELD(ALL, "exposed_ms", NUMBER, h2d_exposed_ms),
    FIELD(ALL, "bytes", NUMBER, h2d_bytes),
    FIELD(ALL, "pageable_bytes", NUMBER, h2d_pageable_bytes),
};
static const brim_field exchange_fields[] = {
    FIELD(ALL, "ranks", I32, ranks),
    FIELD(ALL, "by", CHARS, exchange_by),
    FIELD(ALL, "ms", NUMBER, exchange_ms),
    FIELD(ALL, "exposed_ms", NUMBER, exchange_exposed_ms),
    FIELD(ALL, "bytes", NUMBER, exchange_bytes),
};
static const brim_field worker_fields[] = {
    FIELD(ALL, "count", I32, workers),
    FIELD(ALL, "io_ms", NUMBER, worker_io_ms),
    FIELD(ALL, "transform_ms", NUMBER, worker_transform_ms),
};
static const brim_field memory_fields[] = {
    FIELD(ALL, "arena_bytes", NUMBER, memory.arena_bytes),
    FIELD(ALL, "fixed_bytes", NUMBER, memory.fixed_bytes),
    FIELD(ALL, "peak_bytes", NUMBER, memory.peak_bytes),
    FIELD(ALL, "peak", I32, memory.peak),
};
static const brim_field cost_fields[] = {
    FIELD(ALL, "seconds", NUMBER, seconds),         FIELD(ALL, "attach_s", NUMBER, attach_s),
    FIELD(ALL, "window_s", NUMBER, window_s),       FIELD(ALL, "extra_ms", NUMBER, extra_ms),
    FIELD(ALL, "run_percent", NUMBER, run_percent),
};
static const section sections[] = {
    {NULL, top_fields, COUNT(top_fields)},
    {"step", step_fields, COUNT(step_fields)},
    {"transfer", transfer_fields, COUNT(transfer_fields)},
    {"exchange", exchange_fields, COUNT(exchange_fields)},
    {"workers", worker_fields, COUNT(worker_fields)},
    {"memory", memory_fields, COUNT(memory_fields)},
    {"cost", cost_fields, COUNT(cost_fields)},
};

void brim_profile_init(brim_profile *profile) {
  memset(profile, 0, sizeof *profile);
  brim_result_init(&profile->result);
  profile->gap_ms = NAN;
  for (size_t i = 0; i < COUNT(sections); i++) {
    const brim_fields of = {.rows = sections[i].fields, .count = sections[i].count};
    brim_fields_init(&of, profile);
  }
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

static double known_or_zero(double value) { return isnan(value) ? 0 : value; }

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
    bool in_workers = l == BRIM_PROFILE_TRANSFORMS;  // transforms run in workers, beside the step
    double sum = 0, total = 0;
    for (size_t i = 0; i < rows->count; i++) {
      sum += known_or_zero(rows->items[i].ms);
      total += known_or_zero(rows->items[i].total_ms);
    }
    profile->sum_ms[l] = rows->count && !in_workers ? sum : NAN;
    for (size_t i = 0; i < rows->count; i++) {
      brim_profile_row *row = &rows->items[i];
      double part = in_workers ? row->total_ms : row->ms,
             whole = in_workers ? total : profile->step_ms;
      row->share = whole > 0 ? part / whole : NAN;
    }
    if (rows->count > 1) {
      qsort(rows->items, rows->count, sizeof *rows->items, in_workers ? by_total : by_ms);
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
    // keep the largest `most` blocks so far, sorted
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

//--------------------------------------------- JSON ---------------------------------------------
// The format is specified in record_profile.h.

//---------------------------------- to JSON ----------------------------------

static brim_status put_fields(json_t *object, const section *of, const void *from) {
  for (size_t i = 0; i < of->count; i++) BRIM_TRY(brim_field_put(&of->fields[i], from, object));
  return BRIM_OK;
}

static brim_status put_list(json_t *object, const char *key, const section *of, const void *items,
                            size_t count, size_t size) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(object, key, list));
  for (size_t i = 0; i < count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(put_fields(item, of, (const char *)items + i * size));
  }
  return BRIM_OK;
}

static const section row_section = {"row", row_fields, COUNT(row_fields)};
static const section gap_section = {"gaps.longest", gap_fields, COUNT(gap_fields)};
static const section point_section = {"memory.points", point_fields, COUNT(point_fields)};
static const section block_section = {"memory.blocks", block_fields, COUNT(block_fields)};

static brim_status put_gaps(json_t *root, const brim_profile *p) {
  if (!p->has_gaps) return brim_json_put(root, "gaps", json_null());
  json_t *gaps = json_object(), *causes = json_array();
  BRIM_TRY(brim_json_put(root, "gaps", gaps));
  BRIM_TRY(brim_json_put(gaps, "ms", brim_json_number(p->gap_ms)));
  double share = p->step_ms > 0 ? p->gap_ms / p->step_ms : NAN;
  BRIM_TRY(brim_json_put(gaps, "share", brim_json_number(share)));
  BRIM_TRY(brim_json_put(gaps, "causes", causes));
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(causes, item));
    BRIM_TRY(brim_json_put(item, "cause", json_string(brim_gap_key((brim_gap_cause)i))));
    BRIM_TRY(brim_json_put(item, "ms", brim_json_number(p->cause_ms[i])));
    BRIM_TRY(brim_json_put(item, "count", brim_json_number(p->cause_count[i])));
  }
  return put_list(gaps, "longest", &gap_section, p->gaps, p->gap_count, sizeof *p->gaps);
}

static brim_status put_sums(json_t *root, const brim_profile *p) {
  json_t *sums = json_array();
  BRIM_TRY(brim_json_put(root, "sums", sums));
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    if (isnan(p->sum_ms[i])) continue;
    brim_profile_list list = (brim_profile_list)i;
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(sums, item));
    BRIM_TRY(brim_json_put(item, "list", json_string(brim_profile_list_key(list))));
    BRIM_TRY(brim_json_put(item, "ms", brim_json_number(p->sum_ms[i])));
    BRIM_TRY(brim_json_put(item, "percent", brim_json_number(brim_profile_sum_percent(p, list))));
  }
  return BRIM_OK;
}

static brim_status put_sections(json_t *root, const brim_profile *p) {
  for (size_t i = 0; i < COUNT(sections); i++) {
    json_t *object = root;
    if (sections[i].key) {
      object = json_object();
      BRIM_TRY(brim_json_put(root, sections[i].key, object));
    }
    BRIM_TRY(put_fields(object, &sections[i], p));
  }
  const brim_profile_memory *m = &p->memory;
  json_t *memory = json_object_get(root, "memory");
  BRIM_TRY(
      put_list(memory, "points", &point_section, m->points, m->point_count, sizeof *m->points));
  return put_list(memory, "blocks", &block_section, m->blocks, m->block_count, sizeof *m->blocks);
}

static brim_status fill(json_t *root, const brim_profile *p) {
  json_t *result = NULL;
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_PROFILE_SCHEMA)));
  BRIM_TRY(brim_result_to_json(&p->result, &result));
  BRIM_TRY(brim_json_put(root, "result", result));
  BRIM_TRY(put_sections(root, p));
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    const brim_profile_rows *rows = &p->lists[i];
    BRIM_TRY(put_list(root, brim_profile_list_key((brim_profile_list)i), &row_section, rows->items,
                      rows->count, sizeof *rows->items));
  }
  BRIM_TRY(put_gaps(root, p));
  return put_sums(root, p);
}

brim_status brim_profile_to_json(const brim_profile *profile, json_t **out) {
  brim_json_setup();
  *out = NULL;
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while writing a profile");
  brim_status status = fill(root, profile);
  if (status) {
    json_decref(root);
    return status;
  }
  *out = root;
  return BRIM_OK;
}

//---------------------------------- from JSON ----------------------------------

static brim_status parse_error(const char *name, const char *where, const char *key,
                               const char *want) {
  return brim_fail(BRIM_EPARSE, "%s: %s.%s should be %s", name, where, key, want);
}

static brim_status read_fields(const char *name, const section *of, const json_t *object,
                               void *to) {
  const char *where = of->key ? of->key : "profile";
  if (object && !json_is_null(object) && !json_is_object(object)) {
    return parse_error(name, "profile", where, "an object");
  }
  for (size_t i = 0; i < of->count; i++) {
    const brim_field *f = &of->fields[i];
    const json_t *value = json_object_get(object, f->key);
    const char *want = value ? brim_field_get(f, value, to) : NULL;
    if (want) return parse_error(name, where, f->key, want);
    brim_field_get_words(f, object, to);
  }
  return BRIM_OK;
}

static brim_status list_of(const char *name, const json_t *object, const char *key,
                           const json_t **out) {
  *out = json_object_get(object, key);
  if (json_is_null(*out)) *out = NULL;
  return !*out || json_is_array(*out) ? BRIM_OK : parse_error(name, "profile", key, "a list");
}

static brim_status read_rows(const char *name, const json_t *root, brim_profile_list list,
                             brim_profile *out) {
  const json_t *items;
  BRIM_TRY(list_of(name, root, brim_profile_list_key(list), &items));
  for (size_t i = 0; i < json_array_size(items); i++) {
    brim_profile_row *row = brim_profile_add(out, list);
    if (!row) return brim_fail(BRIM_ENOMEM, "out of memory while reading a profile");
    BRIM_TRY(read_fields(name, &row_section, json_array_get(items, i), row));
  }
  return BRIM_OK;
}

static brim_status read_memory(const char *name, const json_t *root, brim_profile_memory *out) {
  const json_t *memory = json_object_get(root, "memory"), *points, *blocks;
  BRIM_TRY(list_of(name, memory, "points", &points));
  BRIM_TRY(list_of(name, memory, "blocks", &blocks));
  size_t point_count = json_array_size(points), block_count = json_array_size(blocks);
  if (point_count) out->points = brim_calloc(point_count, sizeof *out->points);
  if (block_count) out->blocks = brim_calloc(block_count, sizeof *out->blocks);
  if ((point_count && !out->points) || (block_count && !out->blocks)) {
    return brim_fail(BRIM_ENOMEM, "out of memory while reading a profile");
  }
  out->point_count = point_count;
  out->block_count = block_count;
  for (size_t i = 0; i < point_count; i++) {
    BRIM_TRY(read_fields(name, &point_section, json_array_get(points, i), &out->points[i]));
  }
  for (size_t i = 0; i < block_count; i++) {
    BRIM_TRY(read_fields(name, &block_section, json_array_get(blocks, i), &out->blocks[i]));
  }
  return BRIM_OK;
}

static brim_status read_gaps(const char *name, const json_t *root, brim_profile *out) {
  const json_t *gaps = json_object_get(root, "gaps"), *causes, *longest;
  if (!gaps || json_is_null(gaps)) return BRIM_OK;
  if (!json_is_object(gaps)) return parse_error(name, "profile", "gaps", "an object or null");
  static const brim_field whole[] = {FIELD(ALL, "ms", NUMBER, gap_ms)};
  static const section whole_section = {"gaps", whole, COUNT(whole)};
  out->has_gaps = true;
  BRIM_TRY(read_fields(name, &whole_section, gaps, out));
  BRIM_TRY(list_of(name, gaps, "causes", &causes));
  for (size_t i = 0; i < json_array_size(causes); i++) {
    const json_t *item = json_array_get(causes, i);
    brim_profile_gap of;
    if (brim_field_get(&gap_fields[0], json_object_get(item, "cause"), &of))
      continue;  // a cause that only a later brim knows
    const brim_field number = {.kind = BRIM_FIELD_NUMBER, .size = sizeof(double)};
    const json_t *ms = json_object_get(item, "ms"), *n = json_object_get(item, "count");
    const char *want = ms ? brim_field_get(&number, ms, &out->cause_ms[of.cause]) : NULL;
    if (!want && n) want = brim_field_get(&number, n, &out->cause_count[of.cause]);
    if (want) return parse_error(name, "gaps", "causes", want);
  }
  BRIM_TRY(list_of(name, gaps, "longest", &longest));
  for (size_t i = 0; i < json_array_size(longest) && i < BRIM_PROFILE_MAX_GAPS; i++) {
    brim_profile_gap *gap = &out->gaps[out->gap_count++];
    *gap = (brim_profile_gap){.cause = BRIM_GAP_UNKNOWN, .ms = NAN, .step = -1, .at_ms = NAN};
    BRIM_TRY(read_fields(name, &gap_section, json_array_get(longest, i), gap));
  }
  return BRIM_OK;
}

static brim_status read_sums(const char *name, const json_t *root, brim_profile *out) {
  const json_t *sums;
  BRIM_TRY(list_of(name, root, "sums", &sums));
  for (size_t i = 0; i < json_array_size(sums); i++) {
    const json_t *item = json_array_get(sums, i), *ms = json_object_get(item, "ms");
    const char *list = json_string_value(json_object_get(item, "list"));
    for (int l = 0; list && l < BRIM_PROFILE_LIST_COUNT; l++) {
      if (strcmp(list, brim_profile_list_key((brim_profile_list)l)) != 0) continue;
      if (!json_is_number(ms)) return parse_error(name, "sums", "ms", "a number");
      out->sum_ms[l] = json_number_value(ms);
    }
  }
  return BRIM_OK;
}

static brim_status read_all(const char *name, const json_t *root, brim_profile *out) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  if (!schema || strcmp(schema, BRIM_PROFILE_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "%s is not a profile (schema %s)", name, BRIM_PROFILE_SCHEMA);
  }
  brim_result_deinit(&out->result);
  BRIM_TRY(brim_result_from_json(json_object_get(root, "result"), name, 1, &out->result));
  for (size_t i = 0; i < COUNT(sections); i++) {
    const json_t *object = sections[i].key ? json_object_get(root, sections[i].key) : root;
    BRIM_TRY(read_fields(name, &sections[i], object, out));
  }
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    BRIM_TRY(read_rows(name, root, (brim_profile_list)i, out));
  }
  BRIM_TRY(read_memory(name, root, &out->memory));
  BRIM_TRY(read_gaps(name, root, out));
  return read_sums(name, root, out);
}

brim_status brim_profile_from_json(const json_t *value, const char *name, brim_profile *out) {
  brim_profile_init(out);
  brim_status status = read_all(name, value, out);
  if (status) {
    brim_profile_deinit(out);
    brim_profile_init(out);
  }
  return status;
}

//-------------------------------------------- memory --------------------------------------------
// Writes the memory part of a profile to a file of its own.

static brim_status put_text(json_t *object, const char *key, const char *text) {
  return brim_json_put(object, key, text[0] ? json_string(text) : json_null());
}

static brim_status put_number(json_t *object, const char *key, double value) {
  return brim_json_put(object, key, brim_json_number(value));
}

// Adds a new object to a list; the list owns *out.
static brim_status push_object(json_t *list, json_t **out) {
  *out = json_object();
  return brim_json_push(list, *out);
}

static brim_status snapshot_put_list(json_t *object, const char *key, json_t **out) {
  *out = json_array();
  return brim_json_put(object, key, *out);
}

static brim_status put_what(json_t *object, const brim_result *r) {
  char when[32] = "";
  json_t *setting = json_object();
  if (!isnan(r->when_s)) brim_clock_iso8601(r->when_s, when);
  brim_status status = brim_json_put(object, "setting", setting);
  if (status) return status;
  BRIM_TRY(put_text(object, "when", when));
  BRIM_TRY(put_text(object, "workload", r->workload));
  BRIM_TRY(put_text(object, "description", r->description));
  BRIM_TRY(put_text(object, "device", r->device));
  for (size_t i = 0; i < r->knob_count; i++) {
    BRIM_TRY(put_text(setting, r->knobs[i].name, r->knobs[i].value));
  }
  return BRIM_OK;
}

static brim_status put_plan(json_t *object, const brim_plan *plan) {
  json_t *list = NULL, *row = NULL;
  BRIM_TRY(snapshot_put_list(object, "plan", &list));
  for (size_t i = 0; i < plan->row_count; i++) {
    BRIM_TRY(push_object(list, &row));
    BRIM_TRY(put_text(row, "name", plan->rows[i].name));
    BRIM_TRY(put_text(row, "place", plan->rows[i].place == BRIM_PLACE_DEVICE ? "device" : "host"));
    BRIM_TRY(put_number(row, "bytes", (double)plan->rows[i].bytes));
  }
  return BRIM_OK;
}

static brim_status put_owners(json_t *op, const brim_profile *profile, int point, size_t *alive) {
  json_t *list = NULL;
  BRIM_TRY(snapshot_put_list(op, "owners", &list));
  const size_t count = brim_profile_alive(profile, point, alive, profile->memory.block_count);
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_json_push(list, json_integer((json_int_t)alive[i])));
  }
  return BRIM_OK;
}

static brim_status put_ops(json_t *object, const brim_profile *profile, size_t *alive) {
  const brim_profile_memory *m = &profile->memory;
  json_t *list = NULL, *op = NULL;
  BRIM_TRY(snapshot_put_list(object, "ops", &list));
  for (size_t i = 0; i < m->point_count; i++) {
    BRIM_TRY(push_object(list, &op));
    BRIM_TRY(put_text(op, "op", m->points[i].op));
    BRIM_TRY(put_text(op, "layer", m->points[i].layer));
    BRIM_TRY(put_text(op, "phase", m->points[i].phase));
    BRIM_TRY(put_number(op, "bytes", m->points[i].bytes));
    BRIM_TRY(put_owners(op, profile, (int)i, alive));
  }
  return BRIM_OK;
}

static brim_status put_blocks(json_t *object, const brim_profile_memory *m) {
  json_t *list = NULL, *block = NULL;
  BRIM_TRY(snapshot_put_list(object, "blocks", &list));
  for (size_t i = 0; i < m->block_count; i++) {
    const brim_profile_block *b = &m->blocks[i];
    BRIM_TRY(push_object(list, &block));
    BRIM_TRY(put_text(block, "name", b->name));
    BRIM_TRY(put_text(block, "kind", b->kind));
    BRIM_TRY(put_number(block, "bytes", b->bytes));
    BRIM_TRY(put_number(block, "offset", b->offset));
    BRIM_TRY(brim_json_put(block, "first", json_integer(b->first)));
    BRIM_TRY(brim_json_put(block, "last", json_integer(b->last)));
  }
  return BRIM_OK;
}

static brim_status put_all(json_t *object, const brim_profile *profile, size_t *alive) {
  const brim_profile_memory *m = &profile->memory;
  BRIM_TRY(put_text(object, "schema", BRIM_SNAPSHOT_SCHEMA));
  BRIM_TRY(put_what(object, &profile->result));
  BRIM_TRY(put_plan(object, &profile->result.plan));
  BRIM_TRY(put_number(object, "overhead_bytes", profile->result.overhead_bytes));
  BRIM_TRY(put_number(object, "arena_bytes", m->arena_bytes));
  BRIM_TRY(put_number(object, "fixed_bytes", m->fixed_bytes));
  BRIM_TRY(put_number(object, "peak_bytes", m->peak_bytes));
  BRIM_TRY(brim_json_put(object, "peak", m->peak < 0 ? json_null() : json_integer(m->peak)));
  BRIM_TRY(put_ops(object, profile, alive));
  return put_blocks(object, m);
}

brim_status brim_snapshot_to_json(const brim_profile *profile, json_t **out) {
  brim_json_setup();
  *out = NULL;
  json_t *object = json_object();
  size_t *alive = brim_calloc(profile->memory.block_count + 1, sizeof *alive);
  brim_status status = object && alive ? put_all(object, profile, alive)
                                       : brim_fail(BRIM_ENOMEM, "out of memory for a snapshot");
  brim_free(alive);
  if (status) {
    json_decref(object);
    return status;
  }
  *out = object;
  return BRIM_OK;
}
