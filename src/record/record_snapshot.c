// The memory part of a profile with what is needed to read it alone.
#include "record/record_snapshot.h"

#include <math.h>

static brim_status put_text(json_t *object, const char *key, const char *text) {
  return brim_json_put(object, key, text[0] ? json_string(text) : json_null());
}

static brim_status put_number(json_t *object, const char *key, double value) {
  return brim_json_put(object, key, brim_json_number(value));
}

// Adds a new object to a list; *out is the list's.
static brim_status push_object(json_t *list, json_t **out) {
  *out = json_object();
  return brim_json_push(list, *out);
}

static brim_status put_list(json_t *object, const char *key, json_t **out) {
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
  BRIM_TRY(put_list(object, "plan", &list));
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
  BRIM_TRY(put_list(op, "owners", &list));
  const size_t count = brim_profile_alive(profile, point, alive, profile->memory.block_count);
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_json_push(list, json_integer((json_int_t)alive[i])));
  }
  return BRIM_OK;
}

static brim_status put_ops(json_t *object, const brim_profile *profile, size_t *alive) {
  const brim_profile_memory *m = &profile->memory;
  json_t *list = NULL, *op = NULL;
  BRIM_TRY(put_list(object, "ops", &list));
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
  BRIM_TRY(put_list(object, "blocks", &list));
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
