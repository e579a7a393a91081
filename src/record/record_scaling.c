// The records of scaling: a result, and beside it what each device did. The format is in record.h.
#include <math.h>
#include <string.h>

#include "record/record_int.h"

static void init_forecast(brim_scaling_forecast *f) {
  f->samples_per_s = f->efficiency = f->step_ms = f->exchange_ms = f->waited_ms = NAN;
}

static void init_exchange(brim_scaling_exchange *e) {
  e->gradient_bytes = e->call_bytes = NAN;
  e->small_bytes = e->small_ms = e->bucket_bytes = e->bucket_ms = NAN;
  e->samples_per_s = e->efficiency = e->step_ms = e->busy_ms = e->waited_ms = NAN;
}

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
  init_exchange(&scaling->exchange);
  init_forecast(&scaling->predicted);
  for (size_t i = 0; i < BRIM_SCALING_FURTHER; i++) init_forecast(&scaling->further[i]);
}

double brim_scaling_error(const brim_scaling *scaling) {
  return scaling->predicted.samples_per_s / scaling->exchange.samples_per_s - 1;
}

void brim_scaling_deinit(brim_scaling *scaling) { brim_result_deinit(&scaling->result); }

//---------------------------------- to JSON ----------------------------------

static brim_status put_failure(json_t *to, brim_failure class, brim_status status,
                               const char *message) {
  if (class == BRIM_FAILURE_NONE) return brim_json_put(to, "failure", json_null());
  BRIM_TRY(brim_json_put(to, "failure", json_object()));
  json_t *failure = json_object_get(to, "failure");
  BRIM_TRY(brim_json_put(failure, "class", json_string(brim_failure_name(class))));
  BRIM_TRY(brim_json_put(failure, "status",
                         status ? json_string(brim_status_name(status)) : json_null()));
  return brim_json_put(failure, "message", brim_record_text(message));
}

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
  return put_failure(out, r->failure, r->failure_status, r->message);
}

static brim_status put_lost(json_t *section, const brim_scaling *s) {
  if (!s->lost_to[0]) return brim_json_put(section, "lost", json_null());
  BRIM_TRY(brim_json_put(section, "lost", json_object()));
  json_t *lost = json_object_get(section, "lost");
  BRIM_TRY(brim_json_put(lost, "to", json_string(s->lost_to)));
  return brim_json_put(lost, "ms", brim_json_number(s->lost_ms));
}

typedef struct number {
  const char *key;
  double value;
} number;

static brim_status put_numbers(json_t *to, const number *numbers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_json_put(to, numbers[i].key, brim_json_number(numbers[i].value)));
  }
  return BRIM_OK;
}

static brim_status put_exchange(json_t *section, const brim_scaling_exchange *e) {
  const number numbers[] = {{"gradient_bytes", e->gradient_bytes},
                            {"call_bytes", e->call_bytes},
                            {"small_bytes", e->small_bytes},
                            {"small_ms", e->small_ms},
                            {"bucket_bytes", e->bucket_bytes},
                            {"bucket_ms", e->bucket_ms},
                            {"samples_per_s", e->samples_per_s},
                            {"efficiency", e->efficiency},
                            {"step_ms", e->step_ms},
                            {"busy_ms", e->busy_ms},
                            {"waited_ms", e->waited_ms}};
  BRIM_TRY(brim_json_put(section, "gradient_exchange", json_boolean(e->samples_per_s > 0)));
  if (!e->by[0] && !e->failure) return brim_json_put(section, "exchange", json_null());
  BRIM_TRY(brim_json_put(section, "exchange", json_object()));
  json_t *out = json_object_get(section, "exchange");
  BRIM_TRY(brim_json_put(out, "by", brim_record_text(e->by)));
  BRIM_TRY(brim_json_put(out, "sums", json_integer(e->sums)));
  BRIM_TRY(brim_json_put(out, "calls", json_integer(e->calls)));
  BRIM_TRY(put_numbers(out, numbers, sizeof numbers / sizeof *numbers));
  BRIM_TRY(brim_json_put(out, "stable", json_boolean(e->stable)));
  return put_failure(out, e->failure, e->failure_status, e->message);
}

static brim_status fill_forecast(json_t *out, const brim_scaling_forecast *f) {
  const number numbers[] = {{"samples_per_s", f->samples_per_s},
                            {"efficiency", f->efficiency},
                            {"step_ms", f->step_ms},
                            {"exchange_ms", f->exchange_ms},
                            {"waited_ms", f->waited_ms}};
  BRIM_TRY(brim_json_put(out, "ranks", json_integer(f->ranks)));
  BRIM_TRY(put_numbers(out, numbers, sizeof numbers / sizeof *numbers));
  BRIM_TRY(brim_json_put(out, "beyond", json_boolean(f->beyond)));
  return brim_json_put(out, "network", json_boolean(f->network));
}

static brim_status put_forecasts(json_t *section, const brim_scaling *s) {
  if (s->predicted.ranks == 0) {
    BRIM_TRY(brim_json_put(section, "predicted", json_null()));
  } else {
    BRIM_TRY(brim_json_put(section, "predicted", json_object()));
    json_t *out = json_object_get(section, "predicted");
    BRIM_TRY(fill_forecast(out, &s->predicted));
    BRIM_TRY(brim_json_put(out, "error", brim_json_number(brim_scaling_error(s))));
  }
  BRIM_TRY(brim_json_put(section, "further", json_array()));
  json_t *list = json_object_get(section, "further");
  for (int i = 0; i < s->further_count && i < BRIM_SCALING_FURTHER; i++) {
    json_t *out = json_object();
    BRIM_TRY(brim_json_push(list, out));
    BRIM_TRY(fill_forecast(out, &s->further[i]));
  }
  return BRIM_OK;
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
  BRIM_TRY(put_lost(out, s));
  BRIM_TRY(brim_json_put(out, "replicas", json_array()));
  json_t *list = json_object_get(out, "replicas");
  for (int i = 0; i < s->devices && i < BRIM_SCALING_MAX; i++) {
    BRIM_TRY(put_replica(list, &s->replicas[i]));
  }
  BRIM_TRY(put_exchange(out, &s->exchange));
  return put_forecasts(out, s);
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
