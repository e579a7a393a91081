// Results: names, figures computed from them, JSON, scaling, .jsonl files, and the public reader. record.h
// specifies the format.

#include "record/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "brim/plugin.h"
#include "brim/record.h"
#include "record/record_fields.h"

//-------------------------------------------- values --------------------------------------------

const char *brim_failure_name(brim_failure failure) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_FAILURE_MAP(X)
#undef X
  };
  return (unsigned)failure < BRIM_FAILURE_COUNT ? names[failure] : "other";
}

brim_failure brim_failure_of(const char *name) {
  for (int i = 0; i < BRIM_FAILURE_COUNT; i++) {
    if (strcmp(name, brim_failure_name((brim_failure)i)) == 0) return (brim_failure)i;
  }
  return BRIM_FAILURE_OTHER;
}

brim_failure_retry brim_failure_retry_of(brim_failure failure) {
  switch (failure) {
    case BRIM_FAILURE_CRASH:
    case BRIM_FAILURE_HUNG:
    case BRIM_FAILURE_OTHER:
      return BRIM_RETRY_COUNTED;
    case BRIM_FAILURE_KILLED:
    case BRIM_FAILURE_INTERRUPTED:
    case BRIM_FAILURE_INFRASTRUCTURE:
      return BRIM_RETRY_FREE;
    default:
      return BRIM_RETRY_NEVER;
  }
}

void brim_machine_ceilings_init(brim_machine_ceilings *ceilings) {
#define X(name) ceilings->name = NAN;
  BRIM_MACHINE_MAP(X)
#undef X
  ceilings->load = NAN;
}

double brim_machine_flops(const brim_machine_ceilings *ceilings, const char *precision) {
  const struct {
    const char *name;
    double flops;
  } rows[] = {{"fp32", ceilings->gemm_fp32_flops},
              {"tf32", ceilings->gemm_tf32_flops},
              {"bf16", ceilings->gemm_bf16_flops},
              {"fp16", ceilings->gemm_fp16_flops}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, precision) == 0) return rows[i].flops;
  }
  return NAN;
}

void brim_result_deinit(brim_result *result) {
  json_decref(result->config);
  json_decref(result->names);
  result->config = NULL;
  result->names = NULL;
  result->plan.row_count = 0;
}

const brim_result_knob *brim_result_knob_find(const brim_result *result, const char *name) {
  for (size_t i = 0; i < result->knob_count; i++) {
    if (strcmp(result->knobs[i].name, name) == 0) return &result->knobs[i];
  }
  return NULL;
}

const char *brim_result_unit(const brim_result *result) {
  if (result->unit[0]) return result->unit;
  // records of an older brim have no unit
  return result->phase_used[BRIM_PHASE_ENV] ? BRIM_N_("env steps") : BRIM_N_("samples");
}

bool brim_result_has_gpu(const brim_result *result) {
  // backend.h: a device's id is a UUID, and "" for CPUs.
  return result->device_id[0] != '\0';
}

double brim_result_memory(const brim_result *result) {
  double bytes = (double)result->plan.bytes[BRIM_PLACE_DEVICE];
  if (!brim_result_has_gpu(result)) bytes += (double)result->plan.bytes[BRIM_PLACE_HOST];
  return bytes;
}

double brim_result_knob_number(const brim_result *result, const char *name, double fallback) {
  const brim_result_knob *knob = brim_result_knob_find(result, name);
  return knob && !isnan(knob->number) ? knob->number : fallback;
}

const brim_knob_row *brim_result_knob_row(const brim_result *result, const char *name) {
  return result ? brim_knob_find(result->knob_set, name) : NULL;
}

const brim_result_knob *brim_result_knob_as(const brim_result *result, brim_knob_role role) {
  const brim_knob_row *row = brim_knob_find_as(result->knob_set, role);
  return row ? brim_result_knob_find(result, row->name) : NULL;
}

double brim_result_number_as(const brim_result *result, brim_knob_role role, double fallback) {
  const brim_result_knob *knob = brim_result_knob_as(result, role);
  return knob && !isnan(knob->number) ? knob->number : fallback;
}

const char *brim_result_text_as(const brim_result *result, brim_knob_role role) {
  const brim_result_knob *knob = brim_result_knob_as(result, role);
  return knob ? knob->value : "";
}

bool brim_result_knob_varies(const brim_result *results, size_t count, const char *name) {
  const brim_result_knob *first = count ? brim_result_knob_find(&results[0], name) : NULL;
  for (size_t i = 1; i < count; i++) {
    const brim_result_knob *knob = brim_result_knob_find(&results[i], name);
    if (!first != !knob) return true;
    if (first && knob && strcmp(first->value, knob->value) != 0) return true;
  }
  return false;
}

bool brim_result_ran(const brim_result *result) {
  return result->failure == BRIM_FAILURE_NONE && result->samples_per_s > 0;
}

bool brim_result_is_oom(const brim_result *result) {
  return result->failure == BRIM_FAILURE_OOM_PLANNED ||
         result->failure == BRIM_FAILURE_OOM_DEVICE || result->failure == BRIM_FAILURE_OOM_HOST;
}

bool brim_result_one_sample(const brim_result *result) {
  return brim_result_ran(result) && isnan(result->samples_per_s_low) && isnan(result->total_ms.mad);
}

// Other programs' share of the CPU up to OTHERS_SHARE is usual background. If more than SPARE of the CPU was idle,
// other programs did not slow the setting.
#define OTHERS_SHARE 0.10
#define SPARE 0.25

double brim_result_log_load(const brim_result *result) {
  double others = result->others_cpu_percent / 100, own = result->cpu_percent / 100;
  if (!(others > OTHERS_SHARE) || brim_result_has_gpu(result)) return 0;
  if (others + own < 1 - SPARE) return 0;
  return -log(1 - fmin(others, 0.9));
}

double brim_results_others(const brim_result *results, size_t count) {
  double sum = 0, n = 0;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i]) || isnan(results[i].others_cpu_percent)) continue;
    sum += results[i].others_cpu_percent;
    n++;
  }
  return n > 0 ? sum / n : (double)NAN;
}

bool brim_results_were_disturbed(const brim_result *results, size_t count) {
  return brim_results_others(results, count) > 100 * OTHERS_SHARE;
}

bool brim_result_trusted(const brim_result *result) { return result->stable && !result->throttled; }

void brim_recommendation_init(brim_recommendation *r) {
  const brim_interval unknown = {NAN, NAN, NAN};
  *r = (brim_recommendation){.highest = -1,
                             .efficient = -1,
                             .recommended = -1,
                             .now = -1,
                             .beside = -1,
                             .gain = unknown,
                             .more = unknown};
}

bool brim_recommendation_keeps(const brim_recommendation *r) {
  return r->now >= 0 && r->now == r->recommended;
}

//---------------------------------------- lists in JSON ----------------------------------------
// Writes and reads the lists of a result: findings, transforms, visits.

static brim_status put_number(json_t *object, const char *key, double number) {
  return isnan(number) ? BRIM_OK : brim_json_put(object, key, brim_json_number(number));
}

static brim_status parse_error(const char *name, int line, const char *key, const char *want) {
  return brim_fail_at(BRIM_EPARSE, name, line, 0, "%s.%s should be %s", "result", key, want);
}

// Checks that an item of a list is an object.
static brim_status check_item(const json_t *item, const char *name, int line, const char *list) {
  return json_is_object(item) ? BRIM_OK : parse_error(name, line, list, "a list of objects");
}

static brim_status read_text(const json_t *item, const char *key, const char *name, int line,
                             char *out, size_t size) {
  const json_t *value = json_object_get(item, key);
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_string(value)) return parse_error(name, line, key, "a string");
  brim_record_copy(out, size, json_string_value(value));
  return BRIM_OK;
}

static brim_status read_number(const json_t *item, const char *key, const char *name, int line,
                               double *out) {
  const json_t *value = json_object_get(item, key);
  *out = (double)NAN;
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_number(value)) return parse_error(name, line, key, "a number or null");
  *out = json_number_value(value);
  return BRIM_OK;
}

//---------------------------------- findings ----------------------------------

static brim_status put_change(json_t *item, const brim_finding *f) {
  if (!f->key[0]) return BRIM_OK;
  BRIM_TRY(brim_json_put(item, "change", json_object()));
  json_t *change = json_object_get(item, "change");
  BRIM_TRY(brim_json_put(change, "key", brim_record_text(f->key)));
  return brim_json_put(change, "value", brim_record_text(f->value));
}

brim_status brim_record_put_words(json_t *item, const char *key, const char *words) {
  char words_key[32];
  brim_str english;
  brim_str_init(&english);
  brim_words_read_in(NULL, words, &english);
  brim_status status = brim_str_status(&english);
  if (!status) status = brim_json_put(item, key, brim_record_text(english.data));
  brim_str_deinit(&english);
  if (status || !brim_words_are(words)) return status;
  snprintf(words_key, sizeof words_key, "%s_words", key);
  return brim_json_put(item, words_key, brim_record_text(words));
}

void brim_record_read_words(const json_t *item, const char *key, char *text, size_t size) {
  char words_key[32];
  brim_str english;
  snprintf(words_key, sizeof words_key, "%s_words", key);
  const char *words = json_string_value(json_object_get(item, words_key));
  if (!words || strlen(words) >= size) return;
  brim_str_init(&english);
  brim_words_read_in(NULL, words, &english);
  if (strncmp(english.data, text, size - 1) == 0) brim_record_copy(text, size, words);
  brim_str_deinit(&english);
}

brim_status brim_record_put_finding(json_t *item, const brim_finding *f) {
  BRIM_TRY(brim_json_put(item, "code", brim_record_text(f->code)));
  BRIM_TRY(brim_json_put(item, "cost_ms", brim_json_number(f->cost_ms)));
  BRIM_TRY(put_number(item, "predicted_ms", f->predicted_ms));
  BRIM_TRY(brim_record_put_words(item, "text", f->text));
  BRIM_TRY(brim_record_put_words(item, "remedy", f->remedy));
  if (f->note) BRIM_TRY(brim_json_put(item, "note", json_true()));
  BRIM_TRY(put_change(item, f));
  return f->measured ? brim_json_put(item, "measured", json_true()) : BRIM_OK;
}

static brim_status put_findings(json_t *root, const brim_result *result) {
  BRIM_TRY(brim_json_put(root, "findings", json_array()));
  json_t *list = json_object_get(root, "findings");
  for (size_t i = 0; i < result->finding_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_record_put_finding(item, &result->findings[i]));
  }
  return BRIM_OK;
}

brim_status brim_record_read_finding(const json_t *item, const char *name, int line,
                                     brim_finding *f) {
  const json_t *change = json_object_get(item, "change");
  BRIM_TRY(check_item(item, name, line, "findings"));
  BRIM_TRY(read_text(item, "code", name, line, f->code, sizeof f->code));
  BRIM_TRY(read_number(item, "cost_ms", name, line, &f->cost_ms));
  BRIM_TRY(read_number(item, "predicted_ms", name, line, &f->predicted_ms));
  BRIM_TRY(read_text(item, "text", name, line, f->text, sizeof f->text));
  BRIM_TRY(read_text(item, "remedy", name, line, f->remedy, sizeof f->remedy));
  brim_record_read_words(item, "text", f->text, sizeof f->text);
  brim_record_read_words(item, "remedy", f->remedy, sizeof f->remedy);
  f->note = json_is_true(json_object_get(item, "note"));
  f->measured = json_is_true(json_object_get(item, "measured"));
  BRIM_TRY(read_text(change, "key", name, line, f->key, sizeof f->key));
  return read_text(change, "value", name, line, f->value, sizeof f->value);
}

static brim_status read_findings(const json_t *root, const char *name, int line, brim_result *out) {
  json_t *list = json_object_get(root, "findings");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return parse_error(name, line, "findings", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    // no room for more; the most expensive findings come first
    if (index == BRIM_RESULT_MAX_FINDINGS) break;
    BRIM_TRY(brim_record_read_finding(item, name, line, &out->findings[index]));
    out->finding_count = index + 1;
  }
  return BRIM_OK;
}

//---------------------------------- transforms ----------------------------------

static brim_status put_stages(json_t *worker, const brim_result *result) {
  if (result->stage_count == 0) return BRIM_OK;
  BRIM_TRY(brim_json_put(worker, "stages", json_array()));
  json_t *list = json_object_get(worker, "stages");
  for (size_t i = 0; i < result->stage_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "name", brim_record_text(result->stages[i].name)));
    BRIM_TRY(brim_json_put(item, "ms", brim_json_number(result->stages[i].ms)));
  }
  return BRIM_OK;
}

static brim_status read_stages(const json_t *root, const char *name, int line, brim_result *out) {
  json_t *list = json_object_get(json_object_get(root, "worker"), "stages");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return parse_error(name, line, "worker.stages", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_STAGES) break;
    brim_result_stage *stage = &out->stages[index];
    BRIM_TRY(check_item(item, name, line, "worker.stages"));
    BRIM_TRY(read_text(item, "name", name, line, stage->name, sizeof stage->name));
    BRIM_TRY(read_number(item, "ms", name, line, &stage->ms));
    out->stage_count = index + 1;
  }
  return BRIM_OK;
}

//---------------------------------- visits ----------------------------------

static const brim_field visit_fields[] = {
#define X(name) BRIM_FIELD_(brim_result_visit, #name, NUMBER, name),
    X(samples_per_s) X(log_se) X(samples) X(seconds) X(others_cpu_percent)
#undef X
};
enum { VISIT_FIELDS = sizeof visit_fields / sizeof *visit_fields };

static brim_status put_visits(json_t *trial, const brim_result *result) {
  if (result->visit_count == 0) return BRIM_OK;
  BRIM_TRY(brim_json_put(trial, "visits", json_array()));
  json_t *list = json_object_get(trial, "visits");
  for (size_t i = 0; i < result->visit_count; i++) {
    const brim_result_visit *visit = &result->visits[i];
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "at", json_integer(visit->at)));
    for (size_t k = 0; k < VISIT_FIELDS; k++) {
      BRIM_TRY(brim_field_put(&visit_fields[k], visit, item));
    }
  }
  return BRIM_OK;
}

static brim_status read_visits(const json_t *root, const char *name, int line, brim_result *out) {
  json_t *list = json_object_get(json_object_get(root, "trial"), "visits");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return parse_error(name, line, "trial.visits", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_VISITS) break;
    brim_result_visit *visit = &out->visits[index];
    BRIM_TRY(check_item(item, name, line, "trial.visits"));
    const json_t *at = json_object_get(item, "at");
    if (!json_is_integer(at)) return parse_error(name, line, "trial.visits.at", "a whole number");
    visit->at = json_integer_value(at);
    for (size_t k = 0; k < VISIT_FIELDS; k++) {
      void *member = (char *)visit + visit_fields[k].offset;
      BRIM_TRY(read_number(item, visit_fields[k].key, name, line, (double *)member));
    }
    out->visit_count = index + 1;
  }
  return BRIM_OK;
}

//--------------------------------------------- JSON ---------------------------------------------
// One table of fields gives start values, writing and reading. Phases, knobs, plan rows and lists do not fit a row
// and have functions of their own. record.h specifies the format.

#define FIELD(section_, key_, kind_, member)                      \
  {                                                               \
    .section = section_, .key = key_, .kind = BRIM_FIELD_##kind_, \
    BRIM_FIELD_PLACE(brim_result, member)                         \
  }

// Rows of one section stand together; sections are written in this order.
static const brim_field fields[] = {
    FIELD("what", "workload", CHARS, workload),
    FIELD("what", "unit", CHARS, unit),
    FIELD("what", "seed", U64, seed),
    FIELD("what", "description", CHARS, description),
    FIELD("where", "device", CHARS, device),
    FIELD("where", "device_id", CHARS, device_id),
    FIELD("where", "library", CHARS, library),
    FIELD("where", "backend", CHARS, backend),
    FIELD("where", "cpu", CHARS, cpu),
    FIELD("where", "cores", I32, cores),
    FIELD("where", "threads", I32, threads),
    FIELD("where", "host", CHARS, host),
    FIELD("where", "os", CHARS, os),
    FIELD("where", "memory_bytes", NUMBER, total_bytes),
    FIELD("worker", "io_ms", NUMBER, worker_io_ms),
    FIELD("worker", "transform_ms", NUMBER, worker_transform_ms),
    FIELD("throughput", "samples_per_s", NUMBER, samples_per_s),
    FIELD("throughput", "ci_low", NUMBER, samples_per_s_low),
    FIELD("throughput", "ci_high", NUMBER, samples_per_s_high),
    FIELD("throughput", "epoch_s", NUMBER, epoch_s),
    FIELD("memory", "planned_device", U64, plan.bytes[BRIM_PLACE_DEVICE]),
    FIELD("memory", "planned_host", U64, plan.bytes[BRIM_PLACE_HOST]),
    FIELD("memory", "overhead", NUMBER, overhead_bytes),
    FIELD("memory", "real", NUMBER, real_bytes),
    FIELD("memory", "counted", NUMBER, counted_bytes),
    FIELD("memory", "peak_rss", NUMBER, peak_rss_bytes),
    FIELD("memory", "free_before", NUMBER, free_bytes),
    FIELD("plan", "flops_per_step", NUMBER, plan.flops_per_step),
    FIELD("plan", "bytes_per_step", NUMBER, plan.bytes_per_step),
    FIELD("plan", "samples_per_step", NUMBER, plan.samples_per_step),
    FIELD("plan", "parameter_count", U64, plan.parameter_count),
    FIELD("plan", "segments", I32, plan.segments),
    FIELD("plan", "recomputed", I32, plan.recomputed),
    FIELD("utilisation", "gpu_percent", NUMBER, gpu_percent),
    FIELD("utilisation", "sm_percent", NUMBER, sm_percent),
    FIELD("utilisation", "occupancy_percent", NUMBER, occupancy_percent),
    FIELD("utilisation", "tensor_percent", NUMBER, tensor_percent),
    FIELD("utilisation", "dram_percent", NUMBER, dram_percent),
    FIELD("utilisation", "power_w", NUMBER, power_w),
    FIELD("utilisation", "power_limit_w", NUMBER, power_limit_w),
    FIELD("utilisation", "clock_mhz", NUMBER, clock_mhz),
    FIELD("utilisation", "clock_max_mhz", NUMBER, clock_max_mhz),
    FIELD("utilisation", "temperature_c", NUMBER, temperature_c),
    FIELD("utilisation", "throttle", CHARS, throttle),
    FIELD("utilisation", "cpu_percent", NUMBER, cpu_percent),
    FIELD("utilisation", "others_cpu_percent", NUMBER, others_cpu_percent),
    FIELD("energy", "j_per_sample", NUMBER, joules_per_sample),
    FIELD("ceilings", "data_samples_per_s", NUMBER, data_samples_per_s),
    FIELD("ceilings", "compute_samples_per_s", NUMBER, compute_samples_per_s),
    FIELD("trace", "gpu_busy_ms", NUMBER, gpu_busy_ms),
    FIELD("trace", "gpu_kernel_ms", NUMBER, gpu_kernel_ms),
    FIELD("trace", "gpu_copy_ms", NUMBER, gpu_copy_ms),
    FIELD("trace", "kernels", NUMBER, kernels),
    FIELD("trial", "warmup_steps", I32, warmup_steps),
    FIELD("trial", "steps", I32, steps),
    FIELD("trial", "repeats", I32, repeats),
    FIELD("trial", "stable", BOOL, stable),
    FIELD("trial", "throttled", BOOL, throttled),
    FIELD("trial", "seconds", NUMBER, seconds),
    FIELD("quota", "cpus", NUMBER, quota_cpus),
    FIELD("quota", "cores", NUMBER, quota_cores),
    FIELD("quota", "cpu_ms", NUMBER, quota_cpu_ms),
    FIELD("quota", "throttled_ms", NUMBER, quota_throttled_ms),
    FIELD("checkpoint", "ms", NUMBER, checkpoint_ms),
    FIELD("checkpoint", "every_steps", NUMBER, checkpoint_steps),
    FIELD("sharing", "lost_percent", NUMBER, shared_percent),
    FIELD("sharing", "processes", WORDS, shared_with),
#define X(name) FIELD("machine", #name, NUMBER, ceilings.name),
    BRIM_MACHINE_MAP(X)
#undef X
        FIELD("machine", "load", NUMBER, ceilings.load),
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };
static const brim_fields all_fields = {.rows = fields, .count = FIELD_COUNT};

static const brim_field summary_fields[] = {
#define X(key_, member) BRIM_FIELD_(brim_stats_summary, key_, NUMBER, member),
    X("median_ms", median) X("mad_ms", mad) X("p05_ms", p05) X("p95_ms", p95) X("p99_ms", p99)
        X("mean_ms", mean) X("stddev_ms", stddev) X("min_ms", min) X("max_ms", max)
            X("ci_low_ms", ci_low) X("ci_high_ms", ci_high)
#undef X
};
enum { SUMMARY_COUNT = sizeof summary_fields / sizeof summary_fields[0] };

static const char *const place_names[BRIM_PLACE_COUNT] = {"device", "host"};
static const brim_field row_bytes = BRIM_FIELD_(brim_plan_row, "bytes", U64, bytes);

static void summary_unknown(brim_stats_summary *summary) {
  const brim_fields of = {.rows = summary_fields, .count = SUMMARY_COUNT};
  summary->n = 0;
  brim_fields_init(&of, summary);
}

void brim_result_init(brim_result *result) {
  memset(result, 0, sizeof *result);
  brim_fields_init(&all_fields, result);
  result->when_s = NAN;
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    summary_unknown(&result->phase_ms[i]);
    result->phase_busy_ms[i] = result->phase_moved_ms[i] = NAN;
  }
  summary_unknown(&result->total_ms);
}

//---------------------------------- to JSON ----------------------------------

// Finds the section's object, or makes it.
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
    BRIM_TRY(brim_field_put(&summary_fields[i], summary, out));
  }
  return brim_json_put(out, "n", json_integer((json_int_t)summary->n));
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
    BRIM_TRY(brim_field_put(&row_bytes, row, item));
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
    // in the file, phases and total come before worker
    if (strcmp(fields[i].section, "worker") == 0 && !json_object_get(root, "phases")) {
      BRIM_TRY(section_of(root, "phases", &section));
      for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
        if (result->phase_used[p]) BRIM_TRY(put_phase(section, result, p));
      }
      BRIM_TRY(put_summary(root, "total", &result->total_ms));
    }
    BRIM_TRY(section_of(root, fields[i].section, &section));
    BRIM_TRY(brim_field_put(&fields[i], result, section));
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
  BRIM_TRY(put_stages(section, result));
  BRIM_TRY(section_of(root, "trial", &section));
  BRIM_TRY(put_visits(section, result));
  return put_findings(root, result);
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

static brim_status json_bad(const reader *r, const char *section, const char *key,
                            const char *want) {
  return brim_fail_at(BRIM_EPARSE, r->name, r->line, 0, "%s.%s should be %s", section, key, want);
}

static brim_status json_read_number(const reader *r, const char *section, const char *key,
                                    const json_t *value, double *out) {
  if (!value) return BRIM_OK;
  if (json_is_null(value)) {
    *out = NAN;
  } else if (json_is_number(value)) {
    *out = json_number_value(value);
  } else {
    return json_bad(r, section, key, "a number or null");
  }
  return BRIM_OK;
}

static brim_status json_read_text(const reader *r, const char *section, const char *key,
                                  const json_t *value, char *out, size_t size) {
  if (!value || json_is_null(value)) return BRIM_OK;
  const char *text = json_string_value(value);
  if (!text) return json_bad(r, section, key, "a string");
  brim_record_copy(out, size, text);
  return BRIM_OK;
}

// Reads one row of an object. A missing key stays unknown.
static brim_status read_field(const reader *r, const char *section, const brim_field *f,
                              const json_t *object, void *out) {
  const json_t *value = json_object_get(object, f->key);
  if (!value || (json_is_null(value) && f->kind != BRIM_FIELD_NUMBER)) return BRIM_OK;
  const char *want = brim_field_get(f, value, out);
  if (want) return json_bad(r, section, f->key, want);
  brim_field_get_words(f, object, out);
  return BRIM_OK;
}

static brim_status read_summary(const reader *r, const char *key, const json_t *value,
                                brim_stats_summary *out) {
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_object(value)) return json_bad(r, "phases", key, "an object");
  for (size_t i = 0; i < SUMMARY_COUNT; i++) {
    BRIM_TRY(read_field(r, key, &summary_fields[i], value, out));
  }
  static const brim_field count = {.key = "n", .kind = BRIM_FIELD_U64, .size = sizeof(uint64_t)};
  uint64_t n = 0;
  BRIM_TRY(read_field(r, key, &count, value, &n));
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
    BRIM_TRY(json_read_number(r, key, "gpu_busy_ms", json_object_get(value, "gpu_busy_ms"),
                              &out->phase_busy_ms[p]));
    BRIM_TRY(json_read_number(r, key, "on_gpu_ms", json_object_get(value, "on_gpu_ms"),
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
      return json_bad(r, "what.setting", name, "a number, a string, true or false");
    }
  }
  return BRIM_OK;
}

static brim_status read_plan_rows(const reader *r, const json_t *root, brim_result *out) {
  json_t *rows = json_object_get(json_object_get(root, "plan"), "rows");
  if (!rows || json_is_null(rows)) return BRIM_OK;
  if (!json_is_array(rows)) return json_bad(r, "plan", "rows", "a list");
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
    if (!row->name) return json_bad(r, "plan.rows", "name", "a string");
    const char *place = json_string_value(json_object_get(item, "place"));
    row->place = BRIM_PLACE_COUNT;
    for (int p = 0; place && p < BRIM_PLACE_COUNT; p++) {
      if (strcmp(place, place_names[p]) == 0) row->place = (brim_place)p;
    }
    if (row->place == BRIM_PLACE_COUNT) {
      return json_bad(r, "plan.rows", "place", "\"device\" or \"host\"");
    }
    BRIM_TRY(read_field(r, "plan.rows", &row_bytes, item, row));
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
  if (!json_is_object(failure)) return json_bad(r, "result", "failure", "an object or null");
  const char *name = json_string_value(json_object_get(failure, "class"));
  if (!name) return json_bad(r, "failure", "class", "a string");
  out->failure = brim_failure_of(name);
  const char *status = json_string_value(json_object_get(failure, "status"));
  if (status) out->failure_status = brim_record_status(status);
  return json_read_text(r, "failure", "message", json_object_get(failure, "message"), out->message,
                        sizeof out->message);
}

static brim_status read_rates(const reader *r, const json_t *root, brim_result *out) {
  json_t *list = json_object_get(root, "rates");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return json_bad(r, "result", "rates", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_RATES) break;
    brim_result_rate *rate = &out->rates[index];
    if (!json_is_object(item)) return json_bad(r, "rates", "item", "an object");
    rate->per_sample = NAN;
    BRIM_TRY(json_read_text(r, "rates", "unit", json_object_get(item, "unit"), rate->unit,
                            sizeof rate->unit));
    BRIM_TRY(json_read_number(r, "rates", "per_sample", json_object_get(item, "per_sample"),
                              &rate->per_sample));
    out->rate_count = index + 1;
  }
  return BRIM_OK;
}

static brim_status read_all(const reader *r, const json_t *root, brim_result *out) {
  BRIM_TRY(brim_record_check_schema(root, r->name, r->line));
  const json_t *brim = json_object_get(root, "brim");
  BRIM_TRY(json_read_text(r, "result", "kind", json_object_get(root, "kind"), out->kind,
                          sizeof out->kind));
  if (strcmp(out->kind, "trial") == 0) out->kind[0] = '\0';
  BRIM_TRY(json_read_text(r, "brim", "version", json_object_get(brim, "version"), out->version,
                          sizeof out->version));
  BRIM_TRY(json_read_number(r, "result", "when_s", json_object_get(root, "when_s"), &out->when_s));
  for (size_t i = 0; i < FIELD_COUNT; i++) {
    const json_t *section = json_object_get(root, fields[i].section);
    if (section && !json_is_object(section)) {
      return json_bad(r, "result", fields[i].section, "an object");
    }
    BRIM_TRY(read_field(r, fields[i].section, &fields[i], section, out));
  }
  BRIM_TRY(read_phases(r, root, out));
  const json_t *what = json_object_get(root, "what");
  json_t *config = json_object_get(what, "config");
  if (config && !json_is_null(config)) out->config = json_incref(config);
  BRIM_TRY(read_setting(r, what, out));
  BRIM_TRY(read_plan_rows(r, root, out));
  BRIM_TRY(read_failure(r, root, out));
  BRIM_TRY(read_rates(r, root, out));
  BRIM_TRY(read_stages(root, r->name, r->line, out));
  BRIM_TRY(read_visits(root, r->name, r->line, out));
  return read_findings(root, r->name, r->line, out);
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

//------------------------------------------- scaling -------------------------------------------
// Scaling records: a result plus the figures of each device.

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

static brim_status scaling_put_failure(json_t *to, brim_failure class, brim_status status,
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
  return scaling_put_failure(out, r->failure, r->failure_status, r->message);
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
  return scaling_put_failure(out, e->failure, e->failure_status, e->message);
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

static brim_status scaling_fill(json_t *root, const brim_scaling *s) {
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
  brim_status status = scaling_fill(root, scaling);
  if (status) {
    json_decref(root);
    return status;
  }
  *out = root;
  return BRIM_OK;
}

//-------------------------------------------- files --------------------------------------------
// .jsonl files of results are written whole or not at all; read errors name file and line.

static bool is_blank(const char *text, size_t size) {
  size_t blank = 0;
  while (blank < size && strchr(" \t\r", text[blank]) && text[blank]) blank++;
  return blank == size;
}

static brim_status one_line(const char *text, size_t size, const char *path, int line,
                            brim_record_line_fn fn, void *ctx) {
  if (is_blank(text, size)) return BRIM_OK;
  json_t *value = NULL;
  brim_status status = brim_json_parse(text, size, "json", &value);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    char why[512];
    brim_record_copy(why, sizeof why, brim_status_detail());
    return brim_fail_at(status, path, line, 0, "%s", why);
  }
  status = fn(ctx, value, path, line);
  json_decref(value);
  return status;
}

// True if the text is an incomplete or damaged JSON value.
static bool is_torn(const char *text, size_t size) {
  json_t *value = NULL;
  if (is_blank(text, size)) return false;
  brim_status status = brim_json_parse(text, size, "json", &value);
  json_decref(value);
  if (status) brim_status_clear();
  return status == BRIM_EPARSE;
}

brim_status brim_record_each_line(const char *path, brim_record_line_fn fn, void *ctx, bool *torn) {
  char *text = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(path, BRIM_RECORD_MAX_BYTES, &text, &size));
  brim_status status = BRIM_OK;
  int line = 1;
  if (torn) {
    size_t whole = size;
    while (whole > 0 && text[whole - 1] != '\n') whole--;
    *torn = is_torn(text + whole, size - whole);
    if (*torn) size = whole;
  }
  for (size_t at = 0; at < size && !status; line++) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - (text + at)) : size - at;
    status = one_line(text + at, length, path, line, fn, ctx);
    at += length + 1;
  }
  brim_free(text);
  return status;
}

brim_status brim_results_write(const char *path, const brim_result *results, size_t count) {
  brim_fs_writer *writer = NULL;
  BRIM_TRY(brim_fs_writer_open(path, &writer));
  for (size_t i = 0; i < count; i++) {
    json_t *value = NULL;
    char *text = NULL;
    brim_status status = brim_result_to_json(&results[i], &value);
    if (!status) status = brim_json_dump(value, 0, &text);
    if (!status) status = brim_fs_writer_write(writer, text, strlen(text));
    if (!status) status = brim_fs_writer_write(writer, "\n", 1);
    brim_free(text);
    json_decref(value);
    if (status) {
      brim_fs_writer_abort(writer);
      return status;
    }
  }
  return brim_fs_writer_commit(writer);
}

typedef struct results_list {
  brim_result *items;
  size_t count, cap;
} results_list;

static brim_status add_result(void *ctx, json_t *value, const char *name, int line) {
  results_list *list = ctx;
  if (list->count == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 16;
    brim_result *items = brim_realloc(list->items, cap * sizeof *items);
    if (!items) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
    list->items = items;
    list->cap = cap;
  }
  BRIM_TRY(brim_result_from_json(value, name, line, &list->items[list->count]));
  list->count++;
  return BRIM_OK;
}

brim_status brim_results_read(const char *path, brim_result **out, size_t *count, bool *torn) {
  results_list list = {0};
  *out = NULL;
  *count = 0;
  if (torn) *torn = false;
  brim_status status = brim_record_each_line(path, add_result, &list, torn);
  if (status) {
    for (size_t i = 0; i < list.count; i++) brim_result_deinit(&list.items[i]);
    brim_free(list.items);
    return status;
  }
  *out = list.items;
  *count = list.count;
  return BRIM_OK;
}

//---------------------------------------- public reader ----------------------------------------
// The public reader of include/brim/record.h: records as JSON, read by dotted path.

struct brim_records {
  json_t *list;
};

static brim_status add_record(void *ctx, json_t *value, const char *name, int line) {
  brim_records *records = ctx;
  BRIM_TRY(brim_record_check_schema(value, name, line));
  return brim_json_push(records->list, json_incref(value));
}

brim_status brim_records_open(const char *path, brim_records **out) {
  if (!out) return brim_fail(BRIM_EINVAL, "brim_records_open: out is NULL");
  *out = NULL;
  if (!path) return brim_fail(BRIM_EINVAL, "brim_records_open: path is NULL");
  brim_json_setup();
  brim_records *records = brim_calloc(1, sizeof *records);
  if (!records) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  records->list = json_array();
  brim_status status =
      records->list ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  if (!status) status = brim_record_each_line(path, add_record, records, NULL);
  if (status) {
    brim_records_close(records);
    return status;
  }
  *out = records;
  return BRIM_OK;
}

void brim_records_close(brim_records *records) {
  if (!records) return;
  json_decref(records->list);
  brim_free(records);
}

size_t brim_records_count(const brim_records *records) {
  return records ? json_array_size(records->list) : 0;
}

// Returns NULL if a part of the path is missing.
static json_t *find(const brim_records *records, size_t index, const char *path) {
  json_t *at = records ? json_array_get(records->list, index) : NULL;
  while (at && path && *path) {
    size_t n = strcspn(path, ".");
    char key[64];
    if (n == 0 || n >= sizeof key) return NULL;
    memcpy(key, path, n);
    key[n] = '\0';
    at = json_object_get(at, key);
    path += n;
    if (*path == '.') path++;
  }
  return at;
}

static brim_status missing(size_t index, const char *path) {
  return brim_fail(BRIM_ENOENT, "record %zu has no '%s'", index, path ? path : "");
}

brim_status brim_records_number(const brim_records *records, size_t index, const char *path,
                                double *out) {
  const json_t *value = find(records, index, path);
  if (!value) return missing(index, path);
  if (json_is_null(value)) {
    *out = NAN;
  } else if (json_is_number(value)) {
    *out = json_number_value(value);
  } else if (json_is_boolean(value)) {
    *out = json_is_true(value) ? 1 : 0;
  } else {
    return brim_fail(BRIM_EINVAL, "record %zu: '%s' is not a number", index, path);
  }
  return BRIM_OK;
}

brim_status brim_records_string(const brim_records *records, size_t index, const char *path,
                                const char **out) {
  const json_t *value = find(records, index, path);
  if (!value) return missing(index, path);
  if (!json_is_string(value)) {
    return brim_fail(BRIM_EINVAL, "record %zu: '%s' is not a string", index, path);
  }
  *out = json_string_value(value);
  return BRIM_OK;
}
