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
