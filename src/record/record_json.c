// A result to JSON and back, by one table of fields: a row gives the section, the key, the kind and
// the place in the struct. What does not fit a row (phases, knobs, plan rows) has a
// function each way; lists of findings and transforms are in record_json_lists.c. The format is specified in record.h.
#include "record/record_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/plugin.h"

typedef enum field_kind {
  FIELD_NUMBER,
  FIELD_INT,
  FIELD_U64,
  FIELD_BOOL,
  FIELD_TEXT,
  FIELD_WORDS  // base_words.h
} field_kind;

typedef struct field {
  const char *section, *key;
  field_kind kind;
  size_t offset, size;
} field;

#define FIELD(section, key, kind, member) \
  { section, key, kind, offsetof(brim_result, member), sizeof(((brim_result *)0)->member) }

// Rows of one section stand together; sections are written in this order.
static const field fields[] = {
    FIELD("what", "workload", FIELD_TEXT, workload),
    FIELD("what", "unit", FIELD_TEXT, unit),
    FIELD("what", "seed", FIELD_U64, seed),
    FIELD("what", "description", FIELD_TEXT, description),
    FIELD("where", "device", FIELD_TEXT, device),
    FIELD("where", "device_id", FIELD_TEXT, device_id),
    FIELD("where", "library", FIELD_TEXT, library),
    FIELD("where", "backend", FIELD_TEXT, backend),
    FIELD("where", "cpu", FIELD_TEXT, cpu),
    FIELD("where", "cores", FIELD_INT, cores),
    FIELD("where", "threads", FIELD_INT, threads),
    FIELD("where", "host", FIELD_TEXT, host),
    FIELD("where", "os", FIELD_TEXT, os),
    FIELD("where", "memory_bytes", FIELD_NUMBER, total_bytes),
    FIELD("worker", "io_ms", FIELD_NUMBER, worker_io_ms),
    FIELD("worker", "transform_ms", FIELD_NUMBER, worker_transform_ms),
    FIELD("throughput", "samples_per_s", FIELD_NUMBER, samples_per_s),
    FIELD("throughput", "ci_low", FIELD_NUMBER, samples_per_s_low),
    FIELD("throughput", "ci_high", FIELD_NUMBER, samples_per_s_high),
    FIELD("throughput", "epoch_s", FIELD_NUMBER, epoch_s),
    FIELD("memory", "planned_device", FIELD_U64, plan.bytes[BRIM_PLACE_DEVICE]),
    FIELD("memory", "planned_host", FIELD_U64, plan.bytes[BRIM_PLACE_HOST]),
    FIELD("memory", "overhead", FIELD_NUMBER, overhead_bytes),
    FIELD("memory", "real", FIELD_NUMBER, real_bytes),
    FIELD("memory", "counted", FIELD_NUMBER, counted_bytes),
    FIELD("memory", "peak_rss", FIELD_NUMBER, peak_rss_bytes),
    FIELD("memory", "free_before", FIELD_NUMBER, free_bytes),
    FIELD("plan", "flops_per_step", FIELD_NUMBER, plan.flops_per_step),
    FIELD("plan", "bytes_per_step", FIELD_NUMBER, plan.bytes_per_step),
    FIELD("plan", "samples_per_step", FIELD_NUMBER, plan.samples_per_step),
    FIELD("plan", "parameter_count", FIELD_U64, plan.parameter_count),
    FIELD("plan", "segments", FIELD_INT, plan.segments),
    FIELD("plan", "recomputed", FIELD_INT, plan.recomputed),
    FIELD("utilisation", "gpu_percent", FIELD_NUMBER, gpu_percent),
    FIELD("utilisation", "sm_percent", FIELD_NUMBER, sm_percent),
    FIELD("utilisation", "occupancy_percent", FIELD_NUMBER, occupancy_percent),
    FIELD("utilisation", "tensor_percent", FIELD_NUMBER, tensor_percent),
    FIELD("utilisation", "dram_percent", FIELD_NUMBER, dram_percent),
    FIELD("utilisation", "power_w", FIELD_NUMBER, power_w),
    FIELD("utilisation", "power_limit_w", FIELD_NUMBER, power_limit_w),
    FIELD("utilisation", "clock_mhz", FIELD_NUMBER, clock_mhz),
    FIELD("utilisation", "clock_max_mhz", FIELD_NUMBER, clock_max_mhz),
    FIELD("utilisation", "temperature_c", FIELD_NUMBER, temperature_c),
    FIELD("utilisation", "throttle", FIELD_TEXT, throttle),
    FIELD("utilisation", "cpu_percent", FIELD_NUMBER, cpu_percent),
    FIELD("utilisation", "others_cpu_percent", FIELD_NUMBER, others_cpu_percent),
    FIELD("energy", "j_per_sample", FIELD_NUMBER, joules_per_sample),
    FIELD("ceilings", "data_samples_per_s", FIELD_NUMBER, data_samples_per_s),
    FIELD("ceilings", "compute_samples_per_s", FIELD_NUMBER, compute_samples_per_s),
    FIELD("trace", "gpu_busy_ms", FIELD_NUMBER, gpu_busy_ms),
    FIELD("trace", "gpu_kernel_ms", FIELD_NUMBER, gpu_kernel_ms),
    FIELD("trace", "gpu_copy_ms", FIELD_NUMBER, gpu_copy_ms),
    FIELD("trace", "kernels", FIELD_NUMBER, kernels),
    FIELD("trial", "warmup_steps", FIELD_INT, warmup_steps),
    FIELD("trial", "steps", FIELD_INT, steps),
    FIELD("trial", "repeats", FIELD_INT, repeats),
    FIELD("trial", "stable", FIELD_BOOL, stable),
    FIELD("trial", "throttled", FIELD_BOOL, throttled),
    FIELD("trial", "seconds", FIELD_NUMBER, seconds),
    FIELD("quota", "cpus", FIELD_NUMBER, quota_cpus),
    FIELD("quota", "cores", FIELD_NUMBER, quota_cores),
    FIELD("quota", "cpu_ms", FIELD_NUMBER, quota_cpu_ms),
    FIELD("quota", "throttled_ms", FIELD_NUMBER, quota_throttled_ms),
    FIELD("checkpoint", "ms", FIELD_NUMBER, checkpoint_ms),
    FIELD("checkpoint", "every_steps", FIELD_NUMBER, checkpoint_steps),
    FIELD("sharing", "lost_percent", FIELD_NUMBER, shared_percent),
    FIELD("sharing", "processes", FIELD_WORDS, shared_with),
#define X(name) FIELD("machine", #name, FIELD_NUMBER, ceilings.name),
    BRIM_MACHINE_MAP(X)
#undef X
        FIELD("machine", "load", FIELD_NUMBER, ceilings.load),
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

typedef struct summary_field {
  const char *key;
  size_t offset;
} summary_field;

#define SUMMARY(key, member) \
  { key, offsetof(brim_stats_summary, member) }
static const summary_field summary_fields[] = {
    SUMMARY("median_ms", median), SUMMARY("mad_ms", mad),         SUMMARY("p05_ms", p05),
    SUMMARY("p95_ms", p95),       SUMMARY("p99_ms", p99),         SUMMARY("mean_ms", mean),
    SUMMARY("stddev_ms", stddev), SUMMARY("min_ms", min),         SUMMARY("max_ms", max),
    SUMMARY("ci_low_ms", ci_low), SUMMARY("ci_high_ms", ci_high),
};
enum { SUMMARY_COUNT = sizeof summary_fields / sizeof summary_fields[0] };

static const char *const place_names[BRIM_PLACE_COUNT] = {"device", "host"};

//---------------------------------- to JSON ----------------------------------

static json_t *u64_value(uint64_t number) {
  if (number <= (uint64_t)INT64_MAX) return json_integer((json_int_t)number);
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  return json_string(text);
}

static json_t *field_value(const field *f, const brim_result *result) {
  const char *at = (const char *)result + f->offset;
  switch (f->kind) {
    case FIELD_NUMBER:
      return brim_json_number(*(const double *)(const void *)at);
    case FIELD_INT:
      return json_integer(*(const int *)(const void *)at);
    case FIELD_U64:
      return u64_value(*(const uint64_t *)(const void *)at);
    case FIELD_BOOL:
      return json_boolean(*(const bool *)(const void *)at);
    case FIELD_TEXT:
    case FIELD_WORDS:
      return brim_record_text(at);
  }
  return NULL;
}

// The section's object, made when it is not there yet.
static brim_status section_of(json_t *root, const char *name, json_t **out) {
  *out = json_object_get(root, name);
  if (*out) return BRIM_OK;
  BRIM_TRY(brim_json_put(root, name, json_object()));
  *out = json_object_get(root, name);
  return BRIM_OK;
}

static brim_status put_summary(json_t *object, const char *key, const brim_stats_summary *summary) {
  BRIM_TRY(brim_json_put(object, key, json_object()));
  json_t *out = json_object_get(object, key);
  for (size_t i = 0; i < SUMMARY_COUNT; i++) {
    const char *at = (const char *)summary + summary_fields[i].offset;
    double number = *(const double *)(const void *)at;
    BRIM_TRY(brim_json_put(out, summary_fields[i].key, brim_json_number(number)));
  }
  return brim_json_put(out, "n", u64_value(summary->n));
}

static brim_status put_known(json_t *object, const char *key, double number) {
  return isnan(number) ? BRIM_OK : brim_json_put(object, key, brim_json_number(number));
}

static brim_status put_phase(json_t *phases, const brim_result *result, int phase) {
  const char *key = brim_phase_key((brim_phase)phase);
  BRIM_TRY(put_summary(phases, key, &result->phase_ms[phase]));
  json_t *out = json_object_get(phases, key);
  BRIM_TRY(put_known(out, "gpu_busy_ms", result->phase_busy_ms[phase]));
  return put_known(out, "on_gpu_ms", result->phase_moved_ms[phase]);
}

static brim_status put_setting(json_t *what, const brim_result *result) {
  BRIM_TRY(brim_json_put(what, "setting", json_object()));
  json_t *setting = json_object_get(what, "setting");
  for (size_t i = 0; i < result->knob_count; i++) {
    const brim_result_knob *knob = &result->knobs[i];
    json_t *value =
        isnan(knob->number) ? brim_record_text(knob->value) : brim_json_number(knob->number);
    if (strcmp(knob->value, "true") == 0 || strcmp(knob->value, "false") == 0) {
      json_decref(value);
      value = json_boolean(knob->value[0] == 't');
    }
    BRIM_TRY(brim_json_put(setting, knob->name, value));
  }
  return BRIM_OK;
}

static brim_status put_plan_rows(json_t *plan, const brim_plan *from) {
  BRIM_TRY(brim_json_put(plan, "rows", json_array()));
  json_t *rows = json_object_get(plan, "rows");
  for (size_t i = 0; i < from->row_count; i++) {
    const brim_plan_row *row = &from->rows[i];
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(rows, item));
    BRIM_TRY(brim_json_put(item, "name", brim_record_text(row->name)));
    BRIM_TRY(brim_json_put(item, "place", json_string(place_names[row->place])));
    BRIM_TRY(brim_json_put(item, "bytes", u64_value(row->bytes)));
  }
  return BRIM_OK;
}

static brim_status put_failure(json_t *root, const brim_result *result) {
  if (result->failure == BRIM_FAILURE_NONE) return brim_json_put(root, "failure", json_null());
  BRIM_TRY(brim_json_put(root, "failure", json_object()));
  json_t *out = json_object_get(root, "failure");
  BRIM_TRY(brim_json_put(out, "class", json_string(brim_failure_name(result->failure))));
  BRIM_TRY(brim_json_put(out, "status",
                         result->failure_status
                             ? json_string(brim_status_name(result->failure_status))
                             : json_null()));
  return brim_json_put(out, "message", brim_record_text(result->message));
}

static brim_status put_rates(json_t *root, const brim_result *result) {
  if (result->rate_count == 0) return BRIM_OK;
  BRIM_TRY(brim_json_put(root, "rates", json_array()));
  json_t *list = json_object_get(root, "rates");
  for (size_t i = 0; i < result->rate_count; i++) {
    const brim_result_rate *rate = &result->rates[i];
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "unit", brim_record_text(rate->unit)));
    BRIM_TRY(brim_json_put(item, "per_sample", brim_json_number(rate->per_sample)));
    BRIM_TRY(
        brim_json_put(item, "per_s", brim_json_number(rate->per_sample * result->samples_per_s)));
  }
  return BRIM_OK;
}

static brim_status put_head(json_t *root, const brim_result *result) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_RESULT_SCHEMA)));
  BRIM_TRY(brim_json_put(root, "kind", brim_record_text(result->kind[0] ? result->kind : "trial")));
  json_t *when = json_null();
  if (!isnan(result->when_s)) {
    char text[32];
    brim_clock_iso8601(result->when_s, text);
    when = json_string(text);
  }
  BRIM_TRY(brim_json_put(root, "when", when));
  BRIM_TRY(brim_json_put(root, "when_s", brim_json_number(result->when_s)));
  BRIM_TRY(brim_json_put(root, "brim", json_object()));
  json_t *brim = json_object_get(root, "brim");
  const char *version = result->version[0] ? result->version : BRIM_VERSION;
  BRIM_TRY(brim_json_put(brim, "version", brim_record_text(version)));
  return brim_json_put(brim, "abi", json_integer(BRIM_PLUGIN_ABI));
}

static brim_status fill(json_t *root, const brim_result *result) {
  json_t *section = NULL;
  BRIM_TRY(put_head(root, result));
  for (size_t i = 0; i < FIELD_COUNT; i++) {
    // The order in the file is that of record.h: phases and total stand before worker.
    if (strcmp(fields[i].section, "worker") == 0 && !json_object_get(root, "phases")) {
      BRIM_TRY(section_of(root, "phases", &section));
      for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
        if (result->phase_used[p]) BRIM_TRY(put_phase(section, result, p));
      }
      BRIM_TRY(put_summary(root, "total", &result->total_ms));
    }
    BRIM_TRY(section_of(root, fields[i].section, &section));
    if (fields[i].kind == FIELD_WORDS) {
      const char *words = (const char *)result + fields[i].offset;
      BRIM_TRY(brim_record_put_words(section, fields[i].key, words));
      continue;
    }
    BRIM_TRY(brim_json_put(section, fields[i].key, field_value(&fields[i], result)));
  }
  BRIM_TRY(section_of(root, "what", &section));
  BRIM_TRY(
      brim_json_put(section, "config", result->config ? json_incref(result->config) : json_null()));
  BRIM_TRY(put_setting(section, result));
  BRIM_TRY(section_of(root, "where", &section));
  BRIM_TRY(brim_json_put(section, "clock", json_string(brim_clock_name())));
  BRIM_TRY(section_of(root, "plan", &section));
  BRIM_TRY(put_plan_rows(section, &result->plan));
  BRIM_TRY(put_failure(root, result));
  BRIM_TRY(put_rates(root, result));
  BRIM_TRY(section_of(root, "worker", &section));
  BRIM_TRY(brim_record_put_stages(section, result));
  BRIM_TRY(section_of(root, "trial", &section));
  BRIM_TRY(brim_record_put_visits(section, result));
  return brim_record_put_findings(root, result);
}

brim_status brim_result_to_json(const brim_result *result, json_t **out) {
  brim_json_setup();
  *out = NULL;
  json_t *root = json_object();
  if (!root) return brim_fail(BRIM_ENOMEM, "out of memory while writing a result");
  brim_status status = fill(root, result);
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

static brim_status bad(const reader *r, const char *section, const char *key, const char *want) {
  return brim_fail_at(BRIM_EPARSE, r->name, r->line, 0, "%s.%s should be %s", section, key, want);
}

static brim_status read_number(const reader *r, const char *section, const char *key,
                               const json_t *value, double *out) {
  if (!value) return BRIM_OK;
  if (json_is_null(value)) {
    *out = NAN;
  } else if (json_is_number(value)) {
    *out = json_number_value(value);
  } else {
    return bad(r, section, key, "a number or null");
  }
  return BRIM_OK;
}

static brim_status read_u64(const reader *r, const char *section, const char *key,
                            const json_t *value, uint64_t *out) {
  if (!value || json_is_null(value)) return BRIM_OK;
  if (json_is_integer(value) && json_integer_value(value) >= 0) {
    *out = (uint64_t)json_integer_value(value);
    return BRIM_OK;
  }
  const char *text = json_string_value(value);
  if (!text || !brim_record_parse_u64(text, out)) {
    return bad(r, section, key, "a whole number from 0 up");
  }
  return BRIM_OK;
}

static brim_status read_text(const reader *r, const char *section, const char *key,
                             const json_t *value, char *out, size_t size) {
  if (!value || json_is_null(value)) return BRIM_OK;
  const char *text = json_string_value(value);
  if (!text) return bad(r, section, key, "a string");
  brim_record_copy(out, size, text);
  return BRIM_OK;
}

static brim_status read_field(const reader *r, const field *f, const json_t *value,
                              brim_result *out) {
  void *at = (char *)out + f->offset;
  switch (f->kind) {
    case FIELD_NUMBER:
      return read_number(r, f->section, f->key, value, (double *)at);
    case FIELD_INT: {
      if (!value || json_is_null(value)) return BRIM_OK;
      json_int_t number = json_integer_value(value);
      if (!json_is_integer(value) || number < INT32_MIN || number > INT32_MAX) {
        return bad(r, f->section, f->key, "a whole number of at most 32 bits");
      }
      *(int *)at = (int)number;
      return BRIM_OK;
    }
    case FIELD_U64:
      return read_u64(r, f->section, f->key, value, (uint64_t *)at);
    case FIELD_BOOL:
      if (!value || json_is_null(value)) return BRIM_OK;
      if (!json_is_boolean(value)) return bad(r, f->section, f->key, "true or false");
      *(bool *)at = json_is_true(value);
      return BRIM_OK;
    case FIELD_TEXT:
    case FIELD_WORDS:
      return read_text(r, f->section, f->key, value, (char *)at, f->size);
  }
  return BRIM_OK;
}

static brim_status read_summary(const reader *r, const char *key, const json_t *value,
                                brim_stats_summary *out) {
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_object(value)) return bad(r, "phases", key, "an object");
  for (size_t i = 0; i < SUMMARY_COUNT; i++) {
    void *at = (char *)out + summary_fields[i].offset;
    const char *name = summary_fields[i].key;
    BRIM_TRY(read_number(r, key, name, json_object_get(value, name), (double *)at));
  }
  uint64_t n = 0;
  BRIM_TRY(read_u64(r, key, "n", json_object_get(value, "n"), &n));
  out->n = (size_t)n;
  return BRIM_OK;
}

static brim_status read_phases(const reader *r, const json_t *root, brim_result *out) {
  const json_t *phases = json_object_get(root, "phases");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    const char *key = brim_phase_key((brim_phase)p);
    const json_t *value = json_object_get(phases, key);
    out->phase_used[p] = value && !json_is_null(value);
    BRIM_TRY(read_summary(r, key, value, &out->phase_ms[p]));
    BRIM_TRY(read_number(r, key, "gpu_busy_ms", json_object_get(value, "gpu_busy_ms"),
                         &out->phase_busy_ms[p]));
    BRIM_TRY(read_number(r, key, "on_gpu_ms", json_object_get(value, "on_gpu_ms"),
                         &out->phase_moved_ms[p]));
  }
  return read_summary(r, "total", json_object_get(root, "total"), &out->total_ms);
}

static brim_status read_setting(const reader *r, const json_t *what, brim_result *out) {
  json_t *setting = json_object_get(what, "setting");
  const char *name;
  json_t *value;
  json_object_foreach(setting, name, value) {
    if (out->knob_count == BRIM_RESULT_MAX_KNOBS) {
      return brim_fail_at(BRIM_ELIMIT, r->name, r->line, 0, "what.setting has more than %d knobs",
                          BRIM_RESULT_MAX_KNOBS);
    }
    brim_result_knob *knob = &out->knobs[out->knob_count++];
    brim_record_copy(knob->name, sizeof knob->name, name);
    knob->number = NAN;
    if (json_is_boolean(value)) {
      brim_record_copy(knob->value, sizeof knob->value, json_is_true(value) ? "true" : "false");
      knob->number = json_is_true(value) ? 1 : 0;
    } else if (json_is_number(value)) {
      knob->number = json_number_value(value);
      brim_format_f64(knob->number, knob->value);
    } else if (json_is_string(value)) {
      brim_record_copy(knob->value, sizeof knob->value, json_string_value(value));
    } else {
      return bad(r, "what.setting", name, "a number, a string, true or false");
    }
  }
  return BRIM_OK;
}

static brim_status read_plan_rows(const reader *r, const json_t *root, brim_result *out) {
  json_t *rows = json_object_get(json_object_get(root, "plan"), "rows");
  if (!rows || json_is_null(rows)) return BRIM_OK;
  if (!json_is_array(rows)) return bad(r, "plan", "rows", "a list");
  if (json_array_size(rows) > BRIM_PLAN_MAX_ROWS) {
    return brim_fail_at(BRIM_ELIMIT, r->name, r->line, 0, "plan.rows has more than %d rows",
                        BRIM_PLAN_MAX_ROWS);
  }
  out->names = json_incref(rows);
  size_t index;
  json_t *item;
  json_array_foreach(rows, index, item) {
    brim_plan_row *row = &out->plan.rows[index];
    row->name = json_string_value(json_object_get(item, "name"));
    if (!row->name) return bad(r, "plan.rows", "name", "a string");
    const char *place = json_string_value(json_object_get(item, "place"));
    row->place = BRIM_PLACE_COUNT;
    for (int p = 0; place && p < BRIM_PLACE_COUNT; p++) {
      if (strcmp(place, place_names[p]) == 0) row->place = (brim_place)p;
    }
    if (row->place == BRIM_PLACE_COUNT) {
      return bad(r, "plan.rows", "place", "\"device\" or \"host\"");
    }
    BRIM_TRY(read_u64(r, "plan.rows", "bytes", json_object_get(item, "bytes"), &row->bytes));
    out->plan.row_count = index + 1;
  }
  return BRIM_OK;
}

brim_status brim_record_status(const char *name) {
  static const brim_status all[] = {
#define X(id, value, text) BRIM_##id,
      BRIM_STATUS_MAP(X)
#undef X
  };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (strcmp(name, brim_status_name(all[i])) == 0) return all[i];
  }
  return BRIM_OK;
}

static brim_status read_failure(const reader *r, const json_t *root, brim_result *out) {
  const json_t *failure = json_object_get(root, "failure");
  if (!failure || json_is_null(failure)) return BRIM_OK;
  if (!json_is_object(failure)) return bad(r, "result", "failure", "an object or null");
  const char *name = json_string_value(json_object_get(failure, "class"));
  if (!name) return bad(r, "failure", "class", "a string");
  out->failure = brim_failure_of(name);
  const char *status = json_string_value(json_object_get(failure, "status"));
  if (status) out->failure_status = brim_record_status(status);
  return read_text(r, "failure", "message", json_object_get(failure, "message"), out->message,
                   sizeof out->message);
}

static brim_status read_rates(const reader *r, const json_t *root, brim_result *out) {
  json_t *list = json_object_get(root, "rates");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return bad(r, "result", "rates", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_RATES) break;
    brim_result_rate *rate = &out->rates[index];
    if (!json_is_object(item)) return bad(r, "rates", "item", "an object");
    rate->per_sample = NAN;
    BRIM_TRY(read_text(r, "rates", "unit", json_object_get(item, "unit"), rate->unit,
                       sizeof rate->unit));
    BRIM_TRY(read_number(r, "rates", "per_sample", json_object_get(item, "per_sample"),
                         &rate->per_sample));
    out->rate_count = index + 1;
  }
  return BRIM_OK;
}

static brim_status read_all(const reader *r, const json_t *root, brim_result *out) {
  BRIM_TRY(brim_record_check_schema(root, r->name, r->line));
  const json_t *brim = json_object_get(root, "brim");
  BRIM_TRY(
      read_text(r, "result", "kind", json_object_get(root, "kind"), out->kind, sizeof out->kind));
  if (strcmp(out->kind, "trial") == 0) out->kind[0] = '\0';
  BRIM_TRY(read_text(r, "brim", "version", json_object_get(brim, "version"), out->version,
                     sizeof out->version));
  BRIM_TRY(read_number(r, "result", "when_s", json_object_get(root, "when_s"), &out->when_s));
  for (size_t i = 0; i < FIELD_COUNT; i++) {
    const json_t *section = json_object_get(root, fields[i].section);
    if (section && !json_is_object(section)) {
      return bad(r, "result", fields[i].section, "an object");
    }
    BRIM_TRY(read_field(r, &fields[i], json_object_get(section, fields[i].key), out));
    if (fields[i].kind == FIELD_WORDS) {
      char *at = (char *)out + fields[i].offset;
      brim_record_read_words(section, fields[i].key, at, fields[i].size);
    }
  }
  BRIM_TRY(read_phases(r, root, out));
  const json_t *what = json_object_get(root, "what");
  json_t *config = json_object_get(what, "config");
  if (config && !json_is_null(config)) out->config = json_incref(config);
  BRIM_TRY(read_setting(r, what, out));
  BRIM_TRY(read_plan_rows(r, root, out));
  BRIM_TRY(read_failure(r, root, out));
  BRIM_TRY(read_rates(r, root, out));
  BRIM_TRY(brim_record_read_stages(root, r->name, r->line, out));
  BRIM_TRY(brim_record_read_visits(root, r->name, r->line, out));
  return brim_record_read_findings(root, r->name, r->line, out);
}

brim_status brim_result_from_json(const json_t *value, const char *name, int line,
                                  brim_result *out) {
  reader r = {name, line};
  brim_result_init(out);
  brim_status status = read_all(&r, value, out);
  if (status) {
    brim_result_deinit(out);
    brim_result_init(out);
  }
  return status;
}
