// The records of scaling: a result, and beside it what each device did. The format is in record.h.
#include <math.h>
#include <string.h>

#include "record/record_int.h"

void brim_scaling_init(brim_scaling *scaling) {
  memset(scaling, 0, sizeof *scaling);
  brim_result_init(&scaling->result);
  memcpy(scaling->result.kind, "scaling", sizeof "scaling");
  scaling->each = scaling->one = scaling->efficiency = NAN;
  scaling->effective_batch = scaling->lost_ms = NAN;
  for (size_t i = 0; i < BRIM_SCALING_MAX; i++) {
    brim_scaling_replica *r = &scaling->replicas[i];
    r->samples_per_s = r->step_ms = r->rows = NAN;
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) r->phase_ms[p] = NAN;
  }
}

void brim_scaling_deinit(brim_scaling *scaling) { brim_result_deinit(&scaling->result); }

//---------------------------------- to JSON ----------------------------------

static brim_status put_replica(json_t *list, const brim_scaling_replica *r) {
  json_t *out = json_object();
  BRIM_TRY(brim_json_push(list, out));
  BRIM_TRY(brim_json_put(out, "device", brim_record_text(r->spec)));
  BRIM_TRY(brim_json_put(out, "name", brim_record_text(r->device)));
  BRIM_TRY(brim_json_put(out, "device_id", brim_record_text(r->device_id)));
  BRIM_TRY(brim_json_put(out, "samples_per_s", brim_json_number(r->samples_per_s)));
  BRIM_TRY(brim_json_put(out, "samples_per_step", brim_json_number(r->rows)));
  BRIM_TRY(brim_json_put(out, "step_ms", brim_json_number(r->step_ms)));
  BRIM_TRY(brim_json_put(out, "stable", json_boolean(r->stable)));
  BRIM_TRY(brim_json_put(out, "phases", json_object()));
  json_t *phases = json_object_get(out, "phases");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (isnan(r->phase_ms[p])) continue;
    BRIM_TRY(
        brim_json_put(phases, brim_phase_key((brim_phase)p), brim_json_number(r->phase_ms[p])));
  }
  if (r->failure == BRIM_FAILURE_NONE) return brim_json_put(out, "failure", json_null());
  BRIM_TRY(brim_json_put(out, "failure", json_object()));
  json_t *failure = json_object_get(out, "failure");
  BRIM_TRY(brim_json_put(failure, "class", json_string(brim_failure_name(r->failure))));
  BRIM_TRY(brim_json_put(
      failure, "status",
      r->failure_status ? json_string(brim_status_name(r->failure_status)) : json_null()));
  return brim_json_put(failure, "message", brim_record_text(r->message));
}

static brim_status put_lost(json_t *section, const brim_scaling *s) {
  if (!s->lost_to[0]) return brim_json_put(section, "lost", json_null());
  BRIM_TRY(brim_json_put(section, "lost", json_object()));
  json_t *lost = json_object_get(section, "lost");
  BRIM_TRY(brim_json_put(lost, "to", json_string(s->lost_to)));
  return brim_json_put(lost, "ms", brim_json_number(s->lost_ms));
}

static brim_status fill(json_t *root, const brim_scaling *s) {
  BRIM_TRY(brim_json_put(root, "scaling", json_object()));
  json_t *out = json_object_get(root, "scaling");
  BRIM_TRY(brim_json_put(out, "devices", json_integer(s->devices)));
  BRIM_TRY(brim_json_put(out, "ran", json_integer(s->ran)));
  BRIM_TRY(brim_json_put(out, "samples_per_s_each", brim_json_number(s->each)));
  BRIM_TRY(brim_json_put(out, "one_samples_per_s", brim_json_number(s->one)));
  BRIM_TRY(brim_json_put(out, "efficiency", brim_json_number(s->efficiency)));
  BRIM_TRY(brim_json_put(out, "effective_batch", brim_json_number(s->effective_batch)));
  BRIM_TRY(brim_json_put(out, "gradient_exchange", json_false()));
  BRIM_TRY(put_lost(out, s));
  BRIM_TRY(brim_json_put(out, "replicas", json_array()));
  json_t *list = json_object_get(out, "replicas");
  for (int i = 0; i < s->devices && i < BRIM_SCALING_MAX; i++) {
    BRIM_TRY(put_replica(list, &s->replicas[i]));
  }
  return BRIM_OK;
}

brim_status brim_scaling_to_json(const brim_scaling *scaling, json_t **out) {
  json_t *root = NULL;
  *out = NULL;
  BRIM_TRY(brim_result_to_json(&scaling->result, &root));
  brim_status status = fill(root, scaling);
  if (status) {
    json_decref(root);
    return status;
  }
  *out = root;
  return BRIM_OK;
}

//---------------------------------- from JSON ----------------------------------

typedef struct reader {
  const char *name;
  int line;
} reader;

static brim_status bad(const reader *r, const char *key, const char *wanted) {
  return brim_fail_at(BRIM_EPARSE, r->name, r->line, 0, "scaling.%s must be %s", key, wanted);
}

static brim_status read_number(const reader *r, const json_t *from, const char *key, double *out) {
  const json_t *value = json_object_get(from, key);
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_number(value)) return bad(r, key, "a number");
  *out = json_number_value(value);
  return BRIM_OK;
}

static brim_status read_text(const reader *r, const json_t *from, const char *key, char *out,
                             size_t size) {
  const json_t *value = json_object_get(from, key);
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_string(value)) return bad(r, key, "a string");
  brim_record_copy(out, size, json_string_value(value));
  return BRIM_OK;
}

static brim_status read_replica(const reader *r, const json_t *from, brim_scaling_replica *out) {
  if (!json_is_object(from)) return bad(r, "replicas", "objects");
  BRIM_TRY(read_text(r, from, "device", out->spec, sizeof out->spec));
  BRIM_TRY(read_text(r, from, "name", out->device, sizeof out->device));
  BRIM_TRY(read_text(r, from, "device_id", out->device_id, sizeof out->device_id));
  BRIM_TRY(read_number(r, from, "samples_per_s", &out->samples_per_s));
  BRIM_TRY(read_number(r, from, "samples_per_step", &out->rows));
  BRIM_TRY(read_number(r, from, "step_ms", &out->step_ms));
  out->stable = json_is_true(json_object_get(from, "stable"));
  const json_t *phases = json_object_get(from, "phases");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    BRIM_TRY(read_number(r, phases, brim_phase_key((brim_phase)p), &out->phase_ms[p]));
  }
  const json_t *failure = json_object_get(from, "failure");
  if (!failure || json_is_null(failure)) return BRIM_OK;
  const char *name = json_string_value(json_object_get(failure, "class"));
  if (!name) return bad(r, "replicas.failure.class", "a string");
  const char *status = json_string_value(json_object_get(failure, "status"));
  out->failure = brim_failure_of(name);
  out->failure_status = status ? brim_record_status(status) : BRIM_OK;
  return read_text(r, failure, "message", out->message, sizeof out->message);
}

static brim_status read_counts(const reader *r, const json_t *from, brim_scaling *out) {
  double devices = NAN, ran = NAN;
  BRIM_TRY(read_number(r, from, "devices", &devices));
  BRIM_TRY(read_number(r, from, "ran", &ran));
  if (!(devices >= 1 && devices <= BRIM_SCALING_MAX)) return bad(r, "devices", "1 to 32");
  if (!(ran >= 0 && ran <= devices)) return bad(r, "ran", "0 to devices");
  out->devices = (int)devices;
  out->ran = (int)ran;
  return BRIM_OK;
}

static brim_status read_all(const reader *r, const json_t *root, brim_scaling *out) {
  const json_t *from = json_object_get(root, "scaling");
  if (strcmp(out->result.kind, "scaling") != 0 || !json_is_object(from)) {
    return brim_fail_at(BRIM_EPARSE, r->name, r->line, 0, "not a record of scaling");
  }
  BRIM_TRY(read_counts(r, from, out));
  BRIM_TRY(read_number(r, from, "samples_per_s_each", &out->each));
  BRIM_TRY(read_number(r, from, "one_samples_per_s", &out->one));
  BRIM_TRY(read_number(r, from, "efficiency", &out->efficiency));
  BRIM_TRY(read_number(r, from, "effective_batch", &out->effective_batch));
  const json_t *lost = json_object_get(from, "lost");
  BRIM_TRY(read_text(r, lost, "to", out->lost_to, sizeof out->lost_to));
  BRIM_TRY(read_number(r, lost, "ms", &out->lost_ms));
  const json_t *list = json_object_get(from, "replicas");
  if ((int)json_array_size(list) != out->devices) return bad(r, "replicas", "one for each device");
  for (int i = 0; i < out->devices; i++) {
    BRIM_TRY(read_replica(r, json_array_get(list, (size_t)i), &out->replicas[i]));
  }
  return BRIM_OK;
}

brim_status brim_scaling_from_json(const json_t *value, const char *name, int line,
                                   brim_scaling *out) {
  reader r = {name, line};
  brim_scaling_init(out);
  brim_status status = brim_result_from_json(value, name, line, &out->result);
  if (!status) status = read_all(&r, value, out);
  if (status) {
    brim_scaling_deinit(out);
    brim_scaling_init(out);
  }
  return status;
}
