// A record of scaling as brim writes it, read back for tests: missing values stay unknown.
#ifndef BRIM_TESTS_SCALING_READ_H_
#define BRIM_TESTS_SCALING_READ_H_

#include <math.h>

#include "record/record_int.h"
#include "test.h"

static inline double scaling_number(const json_t *from, const char *key) {
  const json_t *value = json_object_get(from, key);
  if (!value || json_is_null(value)) return (double)NAN;
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static inline void scaling_text(const json_t *from, const char *key, char *out, size_t size) {
  const json_t *value = json_object_get(from, key);
  if (!value || json_is_null(value)) return;
  assert_true(json_is_string(value));
  assert_true(json_string_length(value) < size);
  memcpy(out, json_string_value(value), json_string_length(value) + 1);
}

static inline void scaling_replica_read(const json_t *from, brim_scaling_replica *out) {
  scaling_text(from, "device", out->spec, sizeof out->spec);
  scaling_text(from, "name", out->device, sizeof out->device);
  scaling_text(from, "device_id", out->device_id, sizeof out->device_id);
  out->samples_per_s = scaling_number(from, "samples_per_s");
  out->rows = scaling_number(from, "samples_per_step");
  out->step_ms = scaling_number(from, "step_ms");
  out->stable = json_is_true(json_object_get(from, "stable"));
  const json_t *phases = json_object_get(from, "phases"),
               *failure = json_object_get(from, "failure");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    out->phase_ms[p] = scaling_number(phases, brim_phase_key((brim_phase)p));
  }
  if (!failure || json_is_null(failure)) return;
  out->failure = brim_failure_of(json_string_value(json_object_get(failure, "class")));
  out->failure_status = brim_record_status(json_string_value(json_object_get(failure, "status")));
  scaling_text(failure, "message", out->message, sizeof out->message);
}

static inline void scaling_failure_read(const json_t *from, brim_scaling_exchange *out) {
  const json_t *failure = json_object_get(from, "failure");
  if (!failure || json_is_null(failure)) return;
  out->failure = brim_failure_of(json_string_value(json_object_get(failure, "class")));
  out->failure_status = brim_record_status(json_string_value(json_object_get(failure, "status")));
  scaling_text(failure, "message", out->message, sizeof out->message);
}

static inline void scaling_exchange_read(const json_t *from, brim_scaling_exchange *out) {
  if (!from || json_is_null(from)) return;
  scaling_text(from, "by", out->by, sizeof out->by);
  out->gradient_bytes = scaling_number(from, "gradient_bytes");
  out->sums = (int)scaling_number(from, "sums");
  out->calls = (int)scaling_number(from, "calls");
  out->call_bytes = scaling_number(from, "call_bytes");
  out->small_bytes = scaling_number(from, "small_bytes");
  out->small_ms = scaling_number(from, "small_ms");
  out->bucket_bytes = scaling_number(from, "bucket_bytes");
  out->bucket_ms = scaling_number(from, "bucket_ms");
  out->samples_per_s = scaling_number(from, "samples_per_s");
  out->efficiency = scaling_number(from, "efficiency");
  out->step_ms = scaling_number(from, "step_ms");
  out->busy_ms = scaling_number(from, "busy_ms");
  out->waited_ms = scaling_number(from, "waited_ms");
  out->stable = json_is_true(json_object_get(from, "stable"));
  scaling_failure_read(from, out);
}

static inline void scaling_forecast_read(const json_t *from, brim_scaling_forecast *out) {
  if (!from || json_is_null(from)) return;
  out->ranks = (int64_t)scaling_number(from, "ranks");
  out->samples_per_s = scaling_number(from, "samples_per_s");
  out->efficiency = scaling_number(from, "efficiency");
  out->step_ms = scaling_number(from, "step_ms");
  out->exchange_ms = scaling_number(from, "exchange_ms");
  out->waited_ms = scaling_number(from, "waited_ms");
  out->beyond = json_is_true(json_object_get(from, "beyond"));
  out->network = json_is_true(json_object_get(from, "network"));
}

static inline void scaling_read(const json_t *root, brim_scaling *out) {
  brim_scaling_init(out);
  assert_ok(brim_result_from_json(root, "a record", 1, &out->result));
  assert_string_equal(out->result.kind, "scaling");
  const json_t *from = json_object_get(root, "scaling"), *list = json_object_get(from, "replicas");
  out->devices = (int)scaling_number(from, "devices");
  out->ran = (int)scaling_number(from, "ran");
  out->each = scaling_number(from, "samples_per_s_each");
  out->one = scaling_number(from, "one_samples_per_s");
  out->efficiency = scaling_number(from, "efficiency");
  out->effective_batch = scaling_number(from, "effective_batch");
  const json_t *lost = json_object_get(from, "lost");
  scaling_text(lost, "to", out->lost_to, sizeof out->lost_to);
  out->lost_ms = scaling_number(lost, "ms");
  assert_int_equal(json_array_size(list), out->devices);
  for (int i = 0; i < out->devices; i++) {
    scaling_replica_read(json_array_get(list, (size_t)i), &out->replicas[i]);
  }
  scaling_exchange_read(json_object_get(from, "exchange"), &out->exchange);
  scaling_forecast_read(json_object_get(from, "predicted"), &out->predicted);
  const json_t *further = json_object_get(from, "further");
  out->further_count = (int)json_array_size(further);
  assert_true(out->further_count <= BRIM_SCALING_FURTHER);
  for (int i = 0; i < out->further_count; i++) {
    scaling_forecast_read(json_array_get(further, (size_t)i), &out->further[i]);
  }
}

#endif  // BRIM_TESTS_SCALING_READ_H_
