// A result as plain data: its start values, its names, and the few things computed from it.
// JSON is in record_json.c.
#include "record/record.h"

#include <math.h>
#include <string.h>

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

static void summary_unknown(brim_stats_summary *s) {
  s->n = 0;
  s->min = s->max = s->mean = s->stddev = NAN;
  s->median = s->mad = s->p05 = s->p95 = s->p99 = NAN;
  s->ci_low = s->ci_high = NAN;
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

void brim_result_init(brim_result *result) {
  memset(result, 0, sizeof *result);
  result->when_s = NAN;
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    summary_unknown(&result->phase_ms[i]);
    result->phase_busy_ms[i] = result->phase_moved_ms[i] = NAN;
  }
  summary_unknown(&result->total_ms);
  result->worker_io_ms = result->worker_transform_ms = NAN;
  result->quota_cpus = result->quota_cores = result->quota_cpu_ms = result->quota_throttled_ms =
      NAN;
  result->checkpoint_ms = result->checkpoint_steps = result->shared_percent = NAN;
  result->samples_per_s = result->samples_per_s_low = result->samples_per_s_high = NAN;
  result->epoch_s = result->seconds = NAN;
  result->overhead_bytes = result->counted_bytes = result->peak_rss_bytes = NAN;
  result->free_bytes = result->total_bytes = result->real_bytes = NAN;
  double *const unknown[] = {&result->gpu_percent,
                             &result->sm_percent,
                             &result->occupancy_percent,
                             &result->tensor_percent,
                             &result->dram_percent,
                             &result->cpu_percent,
                             &result->others_cpu_percent,
                             &result->power_w,
                             &result->power_limit_w,
                             &result->clock_mhz,
                             &result->clock_max_mhz,
                             &result->temperature_c,
                             &result->joules_per_sample,
                             &result->data_samples_per_s,
                             &result->compute_samples_per_s,
                             &result->gpu_busy_ms,
                             &result->gpu_kernel_ms,
                             &result->gpu_copy_ms,
                             &result->kernels};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) *unknown[i] = NAN;
  brim_machine_ceilings_init(&result->ceilings);
  result->plan.flops_per_step = result->plan.bytes_per_step = NAN;
  result->plan.samples_per_step = NAN;
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
  // records of before the unit was in them
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

// Below this share others are the usual background of a machine; with more than SPARE of the CPU left
// over, they took nothing from the setting.
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
