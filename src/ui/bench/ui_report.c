// The HTML report of a bench: light or dark by the reader's preference, and fit for paper. The page is complete without
// its script; the script (web/report/report.js) sorts the table, redraws the heat map and shows values under the
// pointer.

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "ui/bench/ui_bench_int.h"
#include "ui/pages/ui_pages.h"

//------------------------------------- settings and metrics -------------------------------------

static bool any_ran(const brim_ui_result_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    if (brim_result_ran(&set->results[i])) return true;
  }
  return false;
}

static const char *knob_value(const brim_result *result, const char *knob) {
  const brim_result_knob *k = knob ? brim_result_knob_find(result, knob) : NULL;
  return k ? k->value : "";
}

// "Workers 4", or the value alone if it needs no label ("bf16").
static void knob_text(const brim_result *result, const char *knob, const char *value,
                      char out[80]) {
  if (!value[0]) value = BRIM_UI_DASH;
  if (brim_ui_knob_is(result, knob, BRIM_ROLE_PRECISION)) {  // its values need no label
    snprintf(out, 80, "%s", value);
  } else {
    snprintf(out, 80, "%s %s", brim_ui_knob_label(result, knob), value);
  }
}

// True if a knob can be an axis: axes are logarithmic, so every value is a number above 0.
static bool has_numbers(const brim_ui_result_set *set, const char *knob) {
  for (size_t i = 0; i < set->count; i++) {
    const brim_result_knob *k = brim_result_knob_find(&set->results[i], knob);
    if (!k || !(k->number > 0)) return false;
  }
  return set->count > 0;
}

static const char *pick_x(const brim_ui_result_set *set) {
  if (set->count == 0) return NULL;
  const brim_result *first = &set->results[0];
  const brim_result_knob *batch = brim_result_knob_as(first, BRIM_ROLE_BATCH);
  if (batch && has_numbers(set, batch->name)) return batch->name;
  for (size_t k = 0; k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (brim_result_knob_varies(set->results, set->count, name) && has_numbers(set, name)) {
      return name;
    }
  }
  return NULL;
}

// Chooses a knob whose values become lines: the swept knob of this role, else the first swept knob that is no
// precision. Skips x and `taken_knob`. NULL = none.
static const char *pick_line(const brim_ui_result_set *set, brim_knob_role role,
                             const char *taken_knob) {
  const brim_result *first = set->count ? &set->results[0] : NULL;
  const char *other = NULL;
  for (size_t k = 0; first && k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (!brim_result_knob_varies(set->results, set->count, name)) continue;
    if ((set->x && strcmp(name, set->x) == 0) || (taken_knob && strcmp(name, taken_knob) == 0))
      continue;
    if (brim_ui_knob_is(first, name, role)) return name;
    if (!other && !brim_ui_knob_is(first, name, BRIM_ROLE_PRECISION)) other = name;
  }
  return other;
}

static int index_or_none(int index, size_t count) {
  return index >= 0 && (size_t)index < count ? index : -1;
}

static void set_init(brim_ui_result_set *set, const brim_recommendation *picks,
                     const brim_result *results, size_t count) {
  *set = (brim_ui_result_set){
      .results = results, .count = count, .gpu = brim_ui_any_gpu(results, count)};
  set->picks = *picks;
  set->picks.highest = index_or_none(picks->highest, count);
  set->picks.efficient = index_or_none(picks->efficient, count);
  set->picks.recommended = index_or_none(picks->recommended, count);
  set->x = pick_x(set);
  set->colour = pick_line(set, BRIM_ROLE_WORKERS, NULL);
  set->dash = pick_line(set, BRIM_ROLE_PRECISION, set->colour);
  int shown = set->picks.recommended >= 0 ? set->picks.recommended : set->picks.highest;
  set->shown = count == 0 ? NULL : &results[shown >= 0 ? shown : 0];
}

// Lists the values of a knob: numbers in order, then words in order of appearance. Returns their number, at
// most BRIM_UI_MAX_VALUES.
static size_t knob_values(const brim_ui_result_set *set, const char *knob, const char **out) {
  double numbers[BRIM_UI_MAX_VALUES];
  size_t n = 0;
  for (size_t i = 0; i < set->count; i++) {
    const brim_result_knob *k = brim_result_knob_find(&set->results[i], knob);
    const char *value = k ? k->value : "";
    double number = k && !isnan(k->number) ? k->number : INFINITY;
    size_t at = 0;
    while (at < n && strcmp(out[at], value) != 0) at++;
    if (at < n || n == BRIM_UI_MAX_VALUES) continue;
    for (at = n++; at > 0 && numbers[at - 1] > number; at--) {
      numbers[at] = numbers[at - 1];
      out[at] = out[at - 1];
    }
    numbers[at] = number;
    out[at] = value;
  }
  return n;
}

static void name_knobs(const brim_ui_result_set *set, const brim_result *r, const char *skip,
                       bool all_knobs, char out[BRIM_UI_SETTING_NAME]) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < r->knob_count; i++) {
    const brim_result_knob *knob = &r->knobs[i];
    char text[80];
    if (skip && strcmp(knob->name, skip) == 0) continue;
    if (!all_knobs && !brim_result_knob_varies(set->results, set->count, knob->name)) continue;
    knob_text(r, knob->name, knob->value, text);
    int n = snprintf(out + used, BRIM_UI_SETTING_NAME - used, "%s%s", used ? ", " : "", text);
    if (n < 0 || used + (size_t)n >= BRIM_UI_SETTING_NAME) return;  // too long: cut
    used += (size_t)n;
  }
}

// "Workers 4, bf16": the swept knobs except x.
static void group_name(const brim_ui_result_set *set, const brim_result *result,
                       char out[BRIM_UI_SETTING_NAME]) {
  name_knobs(set, result, set->x ? set->x : "", false, out);
}

// "Batch 256, Workers 4, bf16": the swept knobs, or every knob if none was swept.
static void setting_name(const brim_ui_result_set *set, const brim_result *result,
                         char out[BRIM_UI_SETTING_NAME]) {
  name_knobs(set, result, NULL, false, out);
  if (!out[0]) name_knobs(set, result, NULL, true, out);
}

//---------------------------------- metrics ----------------------------------

typedef enum metric_unit {
  UNIT_MS,
  UNIT_NUMBER,
  UNIT_WHOLE,  // no digits after the point
  UNIT_BYTES,
  UNIT_SECONDS
} metric_unit;

// A figure of a setting, as the table, the heat map and the ladder show it. Its value is a phase, a member of
// brim_result, or computed.
typedef struct report_metric {
  const char *key;     // value of data-key in the page
  const char *header;  // heading of its column
  const char *label;   // full name
  metric_unit unit;
  int phase;      // -1 = not a phase
  size_t member;  // offset in brim_result, if compute is NULL and phase is -1
  double (*compute)(const brim_result *result);
  bool planned;  // known even for settings that did not run
  bool extra;    // left out on paper, where there is less room
} report_metric;

static double spread_percent(const brim_result *r) {
  return (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s * 100;
}
// Samples/s per GB of 1e9 bytes, as on the terminal. Sizes of memory are shown in GiB of 2^30 bytes.
static double efficiency(const brim_result *r) {
  double memory = brim_result_memory(r);
  return memory > 0 ? r->samples_per_s / (memory / 1e9) : NAN;
}
static double tflops(const brim_result *r) {
  return r->plan.flops_per_step / r->total_ms.median / 1e9;
}
static double energy_mj(const brim_result *r) { return r->joules_per_sample * 1e3; }
static double planned_bytes(const brim_result *r) {
  double bytes = brim_result_memory(r);
  return bytes > 0 ? bytes : NAN;  // 0: the setting has no plan
}
static double host_bytes(const brim_result *r) {
  double bytes = (double)r->plan.bytes[BRIM_PLACE_HOST];
  return brim_result_has_gpu(r) && bytes > 0 ? bytes : NAN;
}
static double measured_steps(const brim_result *r) { return r->steps > 0 ? (double)r->steps : NAN; }

#define PHASE(id, key, header, label) \
  { key, header, label, UNIT_MS, BRIM_PHASE_##id, 0, NULL, false, false }
#define MEMBER(key, header, label, unit, member, extra) \
  { key, header, label, UNIT_##unit, -1, offsetof(brim_result, member), NULL, false, extra }
#define COMPUTED(key, header, label, unit, compute, planned, extra) \
  { key, header, label, UNIT_##unit, -1, 0, compute, planned, extra }

// In the order of the columns.
static const report_metric metrics[] = {
    PHASE(IO, "io", BRIM_N_("I/O ms"), BRIM_N_("Waited I/O")),
    PHASE(TRANSFORM, "transform", BRIM_N_("Transf. ms"), BRIM_N_("Transforms")),
    PHASE(H2D, "h2d", BRIM_N_("H2D ms"), BRIM_N_("Exposed H2D")),
    PHASE(COMPUTE, "compute", BRIM_N_("Compute ms"), BRIM_N_("Compute")),
    PHASE(FORWARD, "forward", BRIM_N_("Fwd ms"), BRIM_N_("Forward")),
    PHASE(BACKWARD, "backward", BRIM_N_("Bwd ms"), BRIM_N_("Backward")),
    PHASE(OPTIMIZER, "optimizer", BRIM_N_("Opt ms"), BRIM_N_("Optimizer")),
    PHASE(ENV, "env", BRIM_N_("Env ms"), BRIM_N_("Environment")),
    PHASE(ACT, "act", BRIM_N_("Act ms"), BRIM_N_("Acting")),
    PHASE(UPDATE, "update", BRIM_N_("Update ms"), BRIM_N_("Update")),
    PHASE(OTHER, "other", BRIM_N_("Other ms"), BRIM_N_("Other")),
    MEMBER("total", BRIM_N_("Total ms"), BRIM_N_("Time per step"), MS, total_ms.median, false),
    MEMBER("rate", BRIM_N_("Samples/s"), BRIM_N_("Throughput"), NUMBER, samples_per_s, false),
    COMPUTED("spread", BRIM_N_("± %"), BRIM_N_("Half of the 95 % interval"), NUMBER, spread_percent,
             false, true),
    MEMBER("gpu", BRIM_N_("GPU %"), BRIM_N_("GPU busy"), WHOLE, gpu_percent, false),
    MEMBER("sm", BRIM_N_("SM %"), BRIM_N_("SMs active"), WHOLE, sm_percent, false),
    MEMBER("occupancy", BRIM_N_("Occup. %"), BRIM_N_("Occupancy"), WHOLE, occupancy_percent, false),
    MEMBER("tensor", BRIM_N_("Tensor %"), BRIM_N_("Tensor cores"), WHOLE, tensor_percent, false),
    MEMBER("dram", BRIM_N_("DRAM %"), BRIM_N_("Device memory"), WHOLE, dram_percent, false),
    MEMBER("power", BRIM_N_("Power W"), BRIM_N_("Power"), WHOLE, power_w, false),
    MEMBER("cpu", BRIM_N_("CPU %"), BRIM_N_("CPU"), WHOLE, cpu_percent, false),
    COMPUTED("memory", BRIM_N_("Mem"), BRIM_N_("Memory planned"), BYTES, planned_bytes, true,
             false),
    MEMBER("real", BRIM_N_("Mem real"), BRIM_N_("Memory with overhead"), BYTES, real_bytes, false),
    COMPUTED("host", BRIM_N_("Host mem"), BRIM_N_("Host memory planned"), BYTES, host_bytes, true,
             true),
    MEMBER("rss", BRIM_N_("Peak RSS"), BRIM_N_("Peak RSS"), BYTES, peak_rss_bytes, false),
    COMPUTED("efficiency", BRIM_N_("S/s/GB"), BRIM_N_("Samples/s per GB"), NUMBER, efficiency,
             false, false),
    MEMBER("epoch", BRIM_N_("Epoch"), BRIM_N_("One epoch"), SECONDS, epoch_s, false),
    MEMBER("worker_io", BRIM_N_("Wkr I/O ms"), BRIM_N_("A worker's reading per batch"), MS,
           worker_io_ms, true),
    MEMBER("worker_transform", BRIM_N_("Wkr tr. ms"), BRIM_N_("A worker's transforms per batch"),
           MS, worker_transform_ms, true),
    MEMBER("data", BRIM_N_("Data only"), BRIM_N_("Samples/s of the loader alone"), NUMBER,
           data_samples_per_s, true),
    MEMBER("device", BRIM_N_("Compute only"), BRIM_N_("Samples/s of the device alone"), NUMBER,
           compute_samples_per_s, true),
    COMPUTED("tflops", BRIM_N_("TFLOP/s"), BRIM_N_("Useful arithmetic"), NUMBER, tflops, false,
             true),
    COMPUTED("energy", BRIM_N_("mJ/sample"), BRIM_N_("Energy per sample"), NUMBER, energy_mj, false,
             false),
    MEMBER("busy", BRIM_N_("Busy ms"), BRIM_N_("Device busy per step, traced"), MS, gpu_busy_ms,
           true),
    MEMBER("kernels", BRIM_N_("Kernels"), BRIM_N_("Kernels per step, traced"), WHOLE, kernels,
           true),
    MEMBER("clock", BRIM_N_("MHz"), BRIM_N_("SM clock"), WHOLE, clock_mhz, true),
    MEMBER("temperature", BRIM_N_("°C"), BRIM_N_("Temperature"), WHOLE, temperature_c, true),
    COMPUTED("steps", BRIM_N_("Steps"), BRIM_N_("Steps measured"), WHOLE, measured_steps, false,
             true),
    MEMBER("seconds", BRIM_N_("Took"), BRIM_N_("Time the trial took"), SECONDS, seconds, true),
};

enum { METRIC_COUNT = sizeof metrics / sizeof metrics[0] };

static const report_metric *metric_find(const char *key) {
  for (size_t i = 0; i < METRIC_COUNT; i++) {
    if (strcmp(metrics[i].key, key) == 0) return &metrics[i];
  }
  return NULL;
}

const char *brim_ui_phase_name(int phase) {
  for (size_t i = 0; i < METRIC_COUNT; i++) {
    if (metrics[i].phase == phase) return brim_tr(metrics[i].label);
  }
  return brim_tr(brim_phase_label((brim_phase)phase));
}

// NaN = unknown.
static double metric_value(const report_metric *metric, const brim_result *result) {
  bool ran = result->failure == BRIM_FAILURE_NONE;
  if (!ran && !metric->planned) return NAN;
  if (metric->phase >= 0) {
    return result->phase_used[metric->phase] ? brim_ui_phase_ms(result, metric->phase) : NAN;
  }
  const char *member = (const char *)result + metric->member;
  double value = metric->compute ? metric->compute(result) : *(const double *)(const void *)member;
  return isfinite(value) ? value : NAN;
}

// True if a metric has a column: some setting has a value of the metric. Waited I/O is shown even if it is 0; another
// phase is shown only if it takes time in some setting.
static bool metric_known(const brim_ui_result_set *set, const report_metric *metric) {
  double least = metric->phase >= 0 && metric->phase != BRIM_PHASE_IO ? 0.005 : -INFINITY;
  for (size_t i = 0; i < set->count; i++) {
    if (metric_value(metric, &set->results[i]) >= least) return true;
  }
  return false;
}

// Bytes, or a dash when unknown.
static void bytes_text(double bytes, char out[32]) {
  if (bytes >= 0 && bytes < 1e18) {
    brim_format_bytes((uint64_t)bytes, out);
  } else {
    snprintf(out, 32, "%s", BRIM_UI_DASH);
  }
}

static void metric_text(const report_metric *metric, double value, char out[32]) {
  if (isnan(value)) {
    snprintf(out, 32, "%s", BRIM_UI_DASH);
    return;
  }
  switch (metric->unit) {
    case UNIT_MS:
      brim_ui_ms(value, out);
      return;
    case UNIT_WHOLE:
      if (fabs(value) >= 999.5) {
        brim_format_count(value, out);
      } else {
        snprintf(out, 32, "%.0f", brim_shown(value));
      }
      return;
    case UNIT_BYTES:
      bytes_text(value, out);
      return;
    case UNIT_SECONDS:
      brim_format_duration(value, out);
      return;
    case UNIT_NUMBER:
      break;
  }
  brim_format_figure(value, out);
}

//---------------------------------- ladder ----------------------------------

// A rung of the ladder of utilisation: a metric that is drawn as a share of its limit.
typedef struct ladder_rung {
  const char *key;
  const char *unit;                            // after the number: " %", " W", ""
  double (*limit)(const brim_result *result);  // NaN = unknown
} ladder_rung;

enum { MAX_RUNGS = 8 };

static double limit_percent(const brim_result *r) {
  (void)r;
  return 100;
}
static double limit_power(const brim_result *r) { return r->power_limit_w; }
static double limit_memory(const brim_result *r) {
  // With a GPU, total_bytes is the memory of the GPU.
  return brim_result_has_gpu(r) ? NAN : r->total_bytes;
}

// The order goes from "a kernel ran" down to how well the kernels used the device.
static const ladder_rung gpu_rungs[] = {
    {"gpu", " %", limit_percent},       {"sm", " %", limit_percent},
    {"occupancy", " %", limit_percent}, {"tensor", " %", limit_percent},
    {"dram", " %", limit_percent},      {"power", " W", limit_power},
};
static const ladder_rung cpu_rungs[] = {
    {"cpu", " %", limit_percent},
    {"rss", "", limit_memory},
};

// Lists the rungs that have a value in some result. Returns their number.
static size_t list_rungs(const brim_ui_result_set *set, const ladder_rung **out) {
  const ladder_rung *rungs = set->gpu ? gpu_rungs : cpu_rungs;
  size_t rung_count =
      set->gpu ? sizeof gpu_rungs / sizeof *rungs : sizeof cpu_rungs / sizeof *rungs;
  size_t n = 0;
  for (size_t i = 0; i < rung_count; i++) {
    if (metric_known(set, metric_find(rungs[i].key))) out[n++] = &rungs[i];
  }
  return n;
}

// The value of a rung in percent of its limit; NaN = unknown.
static double rung_share(const ladder_rung *rung, const brim_result *result) {
  double value = metric_value(metric_find(rung->key), result);
  double share = value / rung->limit(result) * 100;
  return isfinite(share) ? share : NAN;
}

//--------------------------------- recommendation and findings ---------------------------------

static void put_stat(const char *name, const char *value, const char *detail, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put(out, "dt", name);
  brim_ui_put(out, "dd", value);
  if (detail[0]) brim_ui_put(out, "small", detail);
  brim_str_append(out, "</div>\n");
}

static void put_rate_stat(const brim_result *r, brim_str *out) {
  char text[96], detail[96] = "", low[32], high[32];
  brim_format_figure(r->samples_per_s, low);
  snprintf(text, sizeof text, "%s %s/s", low, brim_tr(brim_result_unit(r)));
  if (r->repeats == 1) {
    snprintf(detail, sizeof detail, "%s", brim_tr("measured once"));
  } else if (brim_ui_interval_tells(r->samples_per_s_low, r->samples_per_s_high)) {
    brim_format_figure(r->samples_per_s_low, low);
    brim_format_figure(r->samples_per_s_high, high);
    snprintf(detail, sizeof detail, brim_tr("95 %%: %s to %s"), low, high);
  }
  put_stat(brim_tr("Throughput"), text, detail, out);
}

static void put_memory_stat(const brim_result *r, brim_str *out) {
  char text[32], detail[96] = "";
  double share = brim_result_memory(r) / r->free_bytes * 100;
  bytes_text(brim_result_memory(r), text);
  if (share < 0.1) {
    snprintf(detail, sizeof detail, "%s", brim_tr("under 0.1 % of what is free"));
  } else if (isfinite(share)) {
    snprintf(detail, sizeof detail, brim_tr("%.1f %% of what is free"), brim_shown(share));
  }
  put_stat(brim_tr("Memory planned"), text, detail, out);
}

static void put_stats(const brim_result *r, brim_str *out) {
  char text[64], number[32];
  brim_str_append(out, "<dl class=\"stats\">\n");
  put_rate_stat(r, out);
  brim_ui_ms(r->total_ms.median, number);
  snprintf(text, sizeof text, "%s ms", number);
  if (!isnan(r->total_ms.median)) put_stat(brim_tr("Time per step"), text, "", out);
  put_memory_stat(r, out);
  if (!isnan(r->epoch_s)) {
    brim_format_duration(r->epoch_s, text);
    put_stat(brim_tr("One epoch"), text, "", out);
  }
  bool gpu = brim_result_has_gpu(r);
  double share = gpu ? r->gpu_percent : r->cpu_percent;
  if (!isnan(share)) {
    snprintf(text, sizeof text, "%.0f %%", brim_shown(share));
    put_stat(gpu ? brim_tr("GPU used") : brim_tr("CPU used"), text, "", out);
  }
  if (r->joules_per_sample > 0) {
    brim_format_figure(r->joules_per_sample * 1e3, number);
    snprintf(text, sizeof text, "%s mJ", number);
    put_stat(brim_tr("Energy per sample"), text, "", out);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_setting(const brim_ui_result_set *set, const brim_result *r, brim_str *out) {
  brim_str_append(out, "<p class=\"setting\">");
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_ui_knob_shown(set->results, set->count, r->knobs[i].name)) continue;
    brim_str_append(out, "<span>");
    brim_ui_escape_html(out, brim_ui_knob_label(r, r->knobs[i].name));
    brim_str_append(out, " <b>");
    brim_ui_escape_html(out, r->knobs[i].value);
    brim_str_append(out, "</b></span> ");
  }
  brim_str_append(out, "</p>\n");
}

// Compares another pick with the recommended one.
static void put_difference(const brim_result *r, const brim_result *recommended, brim_str *out) {
  char text[128];
  double rate = (r->samples_per_s / recommended->samples_per_s - 1) * 100;
  double memory = brim_result_memory(r) / brim_result_memory(recommended);
  if (!isfinite(rate) || !isfinite(memory)) return;
  snprintf(text, sizeof text,
           brim_tr("%+.1f %% throughput, %.2f times the memory of the recommended setting"),
           brim_shown(rate), brim_shown(memory));
  brim_ui_put(out, "p", text);
}

static void put_card(const brim_ui_result_set *set, const char *title, int index, bool efficiency,
                     brim_str *out) {
  if (index < 0) return;
  const brim_result *r = &set->results[index];
  int best = set->picks.recommended;
  char number[32], text[96];
  brim_str_append(out, "<div class=\"card\">");
  brim_ui_put(out, "h3", title);
  put_setting(set, r, out);
  if (efficiency) {
    brim_format_figure(r->samples_per_s / (brim_result_memory(r) / 1e9), number);
    snprintf(text, sizeof text, "%s %s/s/GB", number, brim_tr(brim_result_unit(r)));
  } else {
    brim_format_figure(r->samples_per_s, number);
    snprintf(text, sizeof text, "%s %s/s", number, brim_tr(brim_result_unit(r)));
  }
  brim_str_append(out, "<p class=\"figure\">");
  brim_ui_escape_html(out, text);
  // Warn if the setting was unsteady or throttled: the fastest setting may be.
  if (!r->stable || r->throttled) {
    brim_str_append(out, ", <span class=\"warn\">");
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>");
  if (index == best) {
    brim_ui_put(out, "p", brim_tr("This is the recommended setting."));
  } else if (best >= 0) {
    put_difference(r, &set->results[best], out);
  }
  brim_str_append(out, "</div>\n");
}

// Puts the predicted and the achieved throughput, and how long the verifying training ran.
static void put_verified(const brim_verification *v, const char *unit, brim_str *out) {
  char predicted[32], achieved[32], time[32], cap[32], steps[32];
  brim_format_figure(v->predicted.value, predicted);
  brim_format_figure(v->achieved, achieved);
  brim_format_figure((double)v->steps, steps);
  brim_format_duration(v->seconds, time);
  brim_format_duration(v->cap_s, cap);
  brim_str_append(out, "<p class=\"verified\"><b>");
  brim_ui_escape_html(out, brim_tr("Verified in training"));
  brim_str_append(out, "</b> ");
  brim_str_printf(out, brim_tr("predicted %s %s/s, achieved %s: %.1f %%"), predicted, brim_tr(unit),
                  achieved, brim_shown(100 * v->achieved / v->predicted.value));
  brim_str_append(out, " <small>");
  if (v->epochs == 0) {
    brim_str_printf(out,
                    brim_tr("over %s, a part of an epoch (%s steps): --verify-seconds ended it "
                            "after %s"),
                    time, steps, cap);
  } else {
    brim_str_printf(out,
                    v->epochs == 1 ? brim_tr("over %s of %" PRId64 " epoch (%s steps)")
                                   : brim_tr("over %s of %" PRId64 " short epochs (%s steps)"),
                    time, v->epochs, steps);
  }
  brim_str_append(out, "</small>");
  char comment[320];
  brim_ui_verified_comment(v, comment);
  if (comment[0]) {
    brim_str_append(out, "<br /><span>");
    brim_ui_escape_html(out, comment);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>\n");
}

// Puts what the terminal shows too: the gain over the config's own setting, the reason, and a faster setting that
// changes learning.
static void put_decision(const brim_recommendation *d, brim_str *out) {
  char factor[64], label[96], text[320];
  if (d->now < 0 && !d->reason[0] && d->beside < 0) return;
  brim_str_append(out, "<dl class=\"decision\">\n");
  if (d->now >= 0) {
    snprintf(label, sizeof label, "%s \xe2\x86\x92 %s", brim_tr("Now"), brim_tr("recommended"));
    brim_ui_factor(d->gain, factor);
    brim_ui_put_pair(out, label, brim_recommendation_keeps(d) ? brim_ui_own_text(d) : factor);
  }
  brim_ui_put_pair(out, brim_tr("Why"), d->reason);
  if (d->beside >= 0) {
    brim_ui_factor(d->more, factor);
    snprintf(text, sizeof text, "%s, %s", factor, d->beside_text);
    brim_ui_put_pair(out, brim_tr("Faster still"), text);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_hero(const brim_ui_result_set *set, const brim_ui_report_options *options,
                     brim_str *out) {
  const brim_result *r = &set->results[set->picks.recommended];
  bool provisional = set->picks.provisional;
  brim_str_printf(out, "<div class=\"hero%s\"><h2>", provisional ? " provisional" : "");
  brim_ui_escape_html(out, brim_ui_pick_title(&set->picks));
  if (provisional) {
    brim_str_append(out, " <span class=\"warn\">");
    brim_ui_escape_html(out, brim_tr("(provisional: another may be faster)"));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</h2>");
  put_setting(set, r, out);
  put_decision(&set->picks, out);
  put_stats(r, out);
  if (options->verified) put_verified(options->verified, brim_result_unit(r), out);
  brim_str_append(out, "</div>\n");
}

static void report_picks(const brim_ui_result_set *set, const brim_ui_report_options *options,
                         brim_str *out) {
  char doubts[BRIM_UI_DOUBTS][256];
  size_t doubtful = brim_ui_doubts(set->results, set->count, doubts);
  brim_str_append(out, "<section id=\"best\">");
  for (size_t i = 0; i < doubtful; i++) {
    brim_ui_put_class(out, "p", "warn", doubts[i]);
    brim_str_append_char(out, '\n');
  }
  if (set->picks.recommended >= 0) {
    put_hero(set, options, out);
  } else {
    brim_ui_put(out, "h2", brim_tr("Optimal configuration"));
    brim_ui_put(out, "p", brim_ui_why_nothing(set->results, set->count));
    const char *message = set->count && !any_ran(set) ? set->results[0].message : "";
    if (message[0]) {
      brim_ui_put_class(out, "p", "bad", message);
      brim_str_append_char(out, '\n');
    }
  }
  brim_str_append(out, "<div class=\"cards\">\n");
  put_card(set, brim_tr("Highest throughput"), set->picks.highest, false, out);
  put_card(set, brim_tr("Best efficiency"), set->picks.efficient, true, out);
  brim_str_append(out, "</div>\n</section>\n");
}

//---------------------------------- findings ----------------------------------

static void put_finding(const brim_result *r, const brim_finding *f, brim_str *out) {
  char cost[32];
  brim_str_append(out, "<li><span class=\"price\">");
  brim_ui_ms(f->cost_ms, cost);
  if (isnan(f->cost_ms)) {
    brim_str_append(out, BRIM_UI_DASH);
  } else {
    brim_str_append(out, "<b>");
    brim_str_printf(out, brim_tr("%s ms"), cost);
    brim_str_append(out, "</b> ");
    const bool iterates = r->knob_set && r->knob_set->iterates;
    brim_ui_escape_html(out, iterates ? brim_tr("per iteration") : brim_tr("per step"));
    // A price above the step's time is not a share of it.
    double share = f->cost_ms / r->total_ms.median * 100;
    if (share < 100) brim_str_printf(out, ", %.0f %%", brim_shown(share));
    brim_ui_escape_html(out, brim_ui_estimated(f));
  }
  brim_str_append(out, "</span><div>");
  brim_ui_put_finding_text(f, out);
  brim_str_append(out, "</div></li>\n");
}

// Puts the findings of one setting under a title.
static void put_list(const char *title, const brim_result *r, const brim_recommendation *beside,
                     brim_str *out) {
  char healthy[256];
  brim_ui_put(out, "h3", title);
  if (brim_ui_healthy_beside(r, beside, healthy)) brim_ui_put(out, "p", healthy);
  if (r->finding_count == 0) return;
  brim_str_append(out, "\n<ul class=\"findings\">\n");
  for (size_t i = 0; i < r->finding_count; i++) put_finding(r, &r->findings[i], out);
  brim_str_append(out, "</ul>\n");
  if (brim_ui_prices_overlap(r)) brim_ui_put(out, "p", brim_tr(BRIM_UI_PRICES_OVERLAP));
}

// Puts the findings of the recommended setting, then of the fastest and of the config's own setting if they differ from
// it.
static void report_findings(const brim_ui_result_set *set, const brim_result *own, brim_str *out) {
  const brim_recommendation picks = set->picks;
  size_t throttled = 0;
  for (size_t i = 0; i < set->count; i++) {
    throttled += brim_result_ran(&set->results[i]) && set->results[i].throttled;
  }
  bool recommended = brim_ui_has_findings(set->results, set->count, picks.recommended);
  bool highest = picks.highest != picks.recommended &&
                 brim_ui_has_findings(set->results, set->count, picks.highest);
  if (own && (!brim_result_ran(own) || own == &set->results[0] + picks.recommended ||
              (highest && own == &set->results[0] + picks.highest))) {
    own = NULL;
  }
  if (picks.highest < 0 && !throttled) return;
  brim_ui_put_section(out, "findings", brim_tr("Findings"),
                      recommended || highest || own
                          ? brim_tr("What costs time, how much per step, and what would help.")
                          : NULL);
  if (throttled) {
    brim_str_append(out, "<p class=\"warn\">");
    brim_str_printf(out,
                    throttled == 1
                        ? brim_tr("The clock fell while brim measured %zu setting: its figure may "
                                  "be too low.")
                        : brim_tr("The clock fell while brim measured %zu settings: their figures "
                                  "may be too low."),
                    throttled);
    brim_str_append(out, "</p>\n");
  }
  if (picks.recommended >= 0) {
    put_list(brim_tr("Recommended for training"), &set->results[picks.recommended], NULL, out);
  }
  if (highest) {
    put_list(brim_tr("Highest throughput"), &set->results[picks.highest], NULL, out);
  }
  if (own) put_list(brim_tr("The config's own setting"), own, &set->picks, out);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- before training ----------------------------------

static void report_advice(const brim_advice *advice, brim_str *out) {
  if (advice->check_count == 0 && !advice->learning_rate[0] && !advice->accumulation[0]) return;
  brim_ui_put_section(out, "before", brim_tr("Before training"), NULL);
  brim_str_append(out, "<ul class=\"checks\">\n");
  for (size_t i = 0; i < advice->check_count; i++) {
    bool done = advice->checks[i].done;
    brim_str_printf(out, "<li class=\"%s\"><span>", done ? "done" : "open");
    brim_ui_escape_html(out, done ? brim_tr("done") : brim_tr("to do"));
    brim_str_append(out, "</span> ");
    brim_ui_escape_html(out, advice->checks[i].text);
    brim_str_append(out, "</li>\n");
  }
  brim_str_append(out, "</ul>\n");
  if (advice->learning_rate[0]) brim_ui_put(out, "p", advice->learning_rate);
  if (advice->accumulation[0]) brim_ui_put(out, "p", advice->accumulation);
  brim_str_append(out, "</section>\n");
}

//------------------------------------ drawing a line chart -----------------------------------
// Inline SVG. A line has a colour and a kind of dashes, so that readers recognise it on paper and without seeing
// colours. Every point carries its text, which a browser shows without a script.

enum { COLOURS = 8, DASHES = 4 };

typedef struct chart_point {
  double x, y;
  double low, high;  // 95 % interval; NaN = none is drawn
  int colour, dash;  // colour and dashes of its line
  bool oom;          // did not fit in memory: a cross; y NaN = just above the x axis
  const brim_result *result;
} chart_point;

typedef struct chart_rule {
  double y;  // NaN = none
  const char *label;
  bool below;      // the label is below the line
  bool far_above;  // far above the points: only the label is shown, above the drawing
} chart_rule;

// A line chart as inline SVG. x is logarithmic; y starts at 0, or is logarithmic for bytes.
typedef struct line_chart {
  const brim_ui_result_set *set;
  const char *title;
  const char *y_label;        // with its unit
  bool bytes;                 // y in bytes
  bool percent;               // y in percent
  const chart_point *points;  // sorted by x
  size_t count;
  const char *const *colours;  // names of the colours, for the legend; NULL = one colour
  size_t colour_count;
  const char *const *dashes;
  size_t dash_count;
  chart_rule rules[2];
  const char *note;  // text below the chart; NULL = none
} line_chart;

// Keep the drawing small: a phone shrinks it by a third, and its letters must stay readable.
enum { WIDTH = 560, HEIGHT = 294, LEFT = 70, RIGHT = 18, TOP = 22, BOTTOM = 48, MAX_TICKS = 12 };

typedef struct scale {
  double x_min, x_max, y_min, y_max, y_step;
  bool log_y;
} scale;

static double x_at(const scale *s, double x) {
  double span = log2(s->x_max) - log2(s->x_min);
  double f = span > 0 ? (log2(x) - log2(s->x_min)) / span : 0.5;
  return LEFT + 14 + f * (WIDTH - LEFT - RIGHT - 28);
}

static double y_at(const scale *s, double y) {
  double f = s->log_y ? log2(y / s->y_min) / log2(s->y_max / s->y_min) : y / s->y_max;
  return HEIGHT - BOTTOM - fmin(fmax(f, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

// The smallest number of the form 1, 2, 2.5 or 5 times a power of ten that is not below value.
static double nice_step(double value) {
  double power = pow(10, floor(log10(value)));
  double f = value / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 2.5 ? 2.5 : f <= 5 ? 5 : 10) * power;
}

static void make_log(scale *s) {
  double low = floor(log2(s->y_min)), high = ceil(log2(s->y_max * 1.02));
  if (high - low < 2) high = low + 2;
  s->y_min = exp2(low);
  s->y_max = exp2(high);
  s->y_step = ceil((high - low) / 6);  // distance of ticks, as an exponent of 2
}

static scale make_scale(const line_chart *chart) {
  scale s = {.x_min = INFINITY, .y_min = INFINITY, .log_y = chart->bytes};
  for (size_t i = 0; i < chart->count; i++) {
    const chart_point *p = &chart->points[i];
    s.x_min = fmin(s.x_min, p->x);
    s.x_max = fmax(s.x_max, p->x);
    if (!(p->y > 0)) continue;
    s.y_min = fmin(s.y_min, p->y);
    s.y_max = fmax(s.y_max, fmax(p->y, p->high));
  }
  for (size_t i = 0; i < 2; i++) {
    const chart_rule *rule = &chart->rules[i];
    if (rule->label && rule->y > 0 && !rule->far_above) s.y_max = fmax(s.y_max, rule->y);
  }
  if (!(s.y_max > 0)) s.y_max = 1;
  if (!(s.y_min < s.y_max)) s.y_min = s.y_max / 2;
  if (chart->percent) s.y_max = fmax(100, s.y_max);
  if (s.log_y) {
    make_log(&s);
  } else {
    s.y_step = nice_step(s.y_max / 5);
    s.y_max = ceil(s.y_max / s.y_step - 1e-9) * s.y_step;
  }
  return s;
}

static void value_text(const line_chart *chart, double y, char out[32]) {
  if (chart->bytes) {
    bytes_text(y, out);
  } else if (chart->percent) {
    snprintf(out, 32, "%.0f %%", brim_shown(y));
  } else if (y == 0) {
    snprintf(out, 32, "0");
  } else {
    brim_format_count(y, out);
  }
}

static void tick_text(const line_chart *chart, double y, char out[32]) {
  value_text(chart, y, out);
  char *zero = strstr(out, ".0 ");  // "64.0 MiB" becomes "64 MiB"
  char *zeros = strstr(out, ".00 ");
  if (zeros) {
    memmove(zeros, zeros + 3, strlen(zeros + 3) + 1);
  } else if (zero) {
    memmove(zero, zero + 2, strlen(zero + 2) + 1);
  }
}

//---------------------------------- axes ----------------------------------

static void put_y_axis(const line_chart *chart, const scale *s, brim_str *out) {
  for (int i = 0; i <= MAX_TICKS; i++) {
    double value = s->log_y ? s->y_min * exp2(s->y_step * i) : s->y_step * i;
    if (value > s->y_max * 1.0001) break;
    char text[32];
    double y = y_at(s, value);
    tick_text(chart, value, text);
    brim_str_printf(out,
                    "<path class=\"%s\" d=\"M%d %.1fH%d\" />"
                    "<text text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                    i == 0 ? "axis" : "grid", LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, text);
  }
}

static size_t distinct_x(const line_chart *chart, double *seen, size_t max) {
  size_t n = 0;
  for (size_t i = 0; i < chart->count && n < max; i++) {  // points are sorted by x
    if (n == 0 || seen[n - 1] != chart->points[i].x) seen[n++] = chart->points[i].x;
  }
  return n;
}

static double x_text(double x, char out[32]) {
  snprintf(out, 32, x == floor(x) ? "%.0f" : "%g", x);
  return (double)strlen(out);
}

// Puts labels on the x axis. Labels that would touch a neighbour are left out; the last label always stays. Labels that
// would touch only on a phone, where letters are larger, get class m.
static void put_x_axis(const line_chart *chart, const scale *s, brim_str *out) {
  double seen[BRIM_UI_MAX_VALUES], end = -1000, phone_end = -1000;
  char text[32];
  size_t n = distinct_x(chart, seen, BRIM_UI_MAX_VALUES);
  double last = x_at(s, seen[n - 1]), last_width = x_text(seen[n - 1], text);
  for (size_t i = 0; i < n; i++) {
    double x = x_at(s, seen[i]), width = x_text(seen[i], text);
    bool is_last = i + 1 == n;
    // Half the width of a letter is 3.6 on a screen and 5.6 on a phone.
    double half = 3.6 * width, phone_half = 5.6 * width;
    if (x - half < end + 5) continue;
    if (!is_last && x + half + 5 > last - 3.6 * last_width) continue;
    bool phone = x - phone_half >= phone_end + 9 &&
                 (is_last || x + phone_half + 9 <= last - 5.6 * last_width);
    end = x + half;
    if (phone) phone_end = x + phone_half;
    brim_str_printf(out, "<text%s text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                    phone ? "" : " class=\"m\"", x, HEIGHT - BOTTOM + 18, text);
  }
  if (!chart->set->x) return;
  brim_str_printf(out, "<text class=\"unit\" text-anchor=\"end\" x=\"%d\" y=\"%d\">", WIDTH - RIGHT,
                  HEIGHT - 6);
  brim_ui_escape_html(out, brim_ui_knob_label(chart->set->shown, chart->set->x));
  brim_str_append(out, "</text>\n");
}

static void put_rule(const scale *s, const chart_rule *rule, brim_str *out) {
  if (!rule->label || !(rule->y > 0) || rule->far_above) return;
  double y = y_at(s, rule->y);
  brim_str_printf(out,
                  "<path class=\"rule\" d=\"M%d %.1fH%d\" />"
                  "<text class=\"rule\" x=\"%d\" y=\"%.1f\">",
                  LEFT, y, WIDTH - RIGHT, LEFT + 6, rule->below ? y + 14 : y - 5);
  brim_ui_escape_html(out, rule->label);
  brim_str_append(out, "</text>\n");
}

//---------------------------------- points ----------------------------------

// Puts the text of a point, which a browser shows under the pointer.
static void put_text(const line_chart *chart, const chart_point *p, brim_str *out) {
  char name[BRIM_UI_SETTING_NAME], value[32], low[32], high[32];
  const brim_result *r = p->result;
  setting_name(chart->set, r, name);
  brim_str_append(out, "<title>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "\n");
  if (p->oom) {
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, r->message[0] ? ": " : "");
    brim_ui_escape_html(out, r->message);
  } else {
    value_text(chart, p->y, value);
    // In a chart of percentages each colour is another metric: name it.
    if (chart->percent && chart->colours) {
      brim_ui_escape_html(out, chart->colours[p->colour]);
      brim_str_append(out, ": ");
    }
    brim_ui_escape_html(out, value);
    if (!chart->bytes && !chart->percent) brim_str_printf(out, " %s", chart->y_label);
    if (brim_ui_interval_tells(p->low, p->high)) {
      value_text(chart, p->low, low);
      value_text(chart, p->high, high);
      brim_str_printf(out, brim_tr(" (95 %%: %s to %s)"), low, high);
    }
    if (strcmp(brim_ui_failure_text(r), brim_tr("ok")) != 0) {
      brim_str_append(out, ", ");
      brim_ui_escape_html(out, brim_ui_failure_text(r));
    }
  }
  brim_str_append(out, "</title>");
}

// Puts the shape of a point. Each kind of dashes has its own shape.
static void put_shape(int dash, double x, double y, brim_str *out) {
  switch (dash % DASHES) {
    case 0:
      brim_str_printf(out, "M%.1f %.1fm-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0", x, y);
      return;
    case 1:
      brim_str_printf(out, "M%.1f %.1fm-3.3-3.3h6.6v6.6h-6.6z", x, y);
      return;
    case 2:
      brim_str_printf(out, "M%.1f %.1fm0-4.4l4.2 7.6h-8.4z", x, y);
      return;
    default:
      brim_str_printf(out, "M%.1f %.1fm0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z", x, y);
  }
}

static void put_point(const line_chart *chart, const scale *s, const chart_point *p,
                      brim_str *out) {
  double x = x_at(s, p->x), y = y_at(s, p->y);
  if (isfinite(p->low) && isfinite(p->high)) {
    double low = y_at(s, fmax(p->low, 0)), high = y_at(s, p->high);
    brim_str_printf(out, "<path class=\"ci\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6\" />", x,
                    low, high, x - 3, low, x - 3, high);
  }
  // Draw a result with unsteady times hollow, but not in a chart of memory: memory does not depend on
  // times.
  bool hollow = !chart->bytes && !p->result->stable && p->result->steps > 0;
  brim_str_printf(out, "<path class=\"pt%s\" d=\"", hollow ? " hollow" : "");
  put_shape(p->dash, x, y, out);
  brim_str_append(out, "\">");
  put_text(chart, p, out);
  brim_str_append(out, "</path>\n");
}

// Draws a cross for a setting that did not fit in memory. Crosses without a value are stacked above the
// x axis.
static void put_cross(const line_chart *chart, const scale *s, size_t index, brim_str *out) {
  const chart_point *p = &chart->points[index];
  int below = 0;
  for (size_t i = 0; i < index; i++) {
    if (chart->points[i].oom && chart->points[i].x == p->x) below++;
  }
  double y = isnan(p->y) ? HEIGHT - BOTTOM - 9 - 11.0 * below : y_at(s, p->y);
  brim_str_printf(out, "<path class=\"oom\" d=\"M%.1f %.1fm-4-4l8 8m0-8l-8 8\">", x_at(s, p->x), y);
  put_text(chart, p, out);
  brim_str_append(out, "</path>\n");
}

static void put_line(const line_chart *chart, const scale *s, int colour, int dash, brim_str *out) {
  bool any = false, started = false;
  for (size_t i = 0; i < chart->count && !any; i++) {
    any = chart->points[i].colour == colour && chart->points[i].dash == dash;
  }
  if (!any) return;
  brim_str_printf(out, "<g class=\"s c%d d%d\"><path class=\"l\" d=\"", colour, dash);
  for (size_t i = 0; i < chart->count; i++) {
    const chart_point *p = &chart->points[i];
    if (p->colour != colour || p->dash != dash || p->oom) continue;
    brim_str_printf(out, "%c%.1f %.1f", started ? 'L' : 'M', x_at(s, p->x), y_at(s, p->y));
    started = true;
  }
  if (!started) brim_str_append(out, "M0 0");  // crosses only
  brim_str_append(out, "\" />\n");
  for (size_t i = 0; i < chart->count; i++) {
    const chart_point *p = &chart->points[i];
    if (p->colour != colour || p->dash != dash) continue;
    if (p->oom) {
      put_cross(chart, s, i, out);
    } else {
      put_point(chart, s, p, out);
    }
  }
  brim_str_append(out, "</g>\n");
}

//---------------------------------- legend ----------------------------------

// Puts an entry of the legend. `dash` -1: the lines of this colour; `colour` -1: the lines with these dashes.
static void put_sample(int colour, int dash, const char *name, brim_str *out) {
  char kind[16];
  snprintf(kind, sizeof kind, colour >= 0 ? "c%d" : "d%d", colour >= 0 ? colour : dash);
  brim_str_printf(out, "<li data-s=\"%s\" class=\"%s", kind, kind);
  if (colour >= 0 && dash >= 0) brim_str_printf(out, " d%d", dash);
  brim_str_append(out,
                  "\"><svg viewBox=\"0 0 28 12\" width=\"28\" height=\"12\" aria-hidden=\"true\">"
                  "<path class=\"l\" d=\"M0 6H28\" />");
  if (dash >= 0) {
    brim_str_append(out, "<path class=\"pt\" d=\"");
    put_shape(dash, 14, 6, out);
    brim_str_append(out, "\" />");
  }
  brim_str_append(out, "</svg>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</li>");
}

static void put_symbol(const char *d, const char *kind, const char *name, brim_str *out) {
  brim_str_printf(out,
                  "<li><svg viewBox=\"0 0 16 12\" width=\"16\" height=\"12\" aria-hidden=\"true\">"
                  "<path class=\"%s\" d=\"%s\" /></svg>",
                  kind, d);
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</li>");
}

static void put_legend(const line_chart *chart, brim_str *out) {
  bool marks = false, picked = false;
  const char *hollow = NULL;
  for (size_t i = 0; i < chart->count; i++) {
    const chart_point *p = &chart->points[i];
    marks = marks || p->oom;
    bool unsteady = !p->oom && !p->result->stable && p->result->steps > 0;
    if (unsteady && !hollow) hollow = brim_ui_failure_text(p->result);
    picked = picked || (chart->set->picks.recommended >= 0 && p->result == chart->set->shown);
  }
  brim_str_append(out, "<ul class=\"legend\">");
  for (size_t i = 0; chart->colours && i < chart->colour_count; i++) {
    // In a chart of percentages each colour has one line. In other charts it has a line for each kind of dashes.
    put_sample((int)i, chart->percent ? (int)(i % DASHES) : -1, chart->colours[i], out);
  }
  for (size_t i = 0; chart->dashes && i < chart->dash_count; i++) {
    put_sample(-1, (int)i, chart->dashes[i], out);
  }
  if (picked && !chart->percent) {
    put_symbol("M8 6m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "pick", brim_tr("recommended"), out);
  }
  if (hollow && !chart->percent && !chart->bytes) {
    put_symbol("M8 6m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0", "pt hollow", hollow, out);
  }
  if (marks) put_symbol("M8 6m-4-4l8 8m0-8l-8 8", "oom", brim_tr("out of memory"), out);
  brim_str_append(out, "</ul>\n");
}

static void put_pick(const line_chart *chart, const scale *s, brim_str *out) {
  if (chart->percent || chart->set->picks.recommended < 0) return;
  for (size_t i = 0; i < chart->count; i++) {
    const chart_point *p = &chart->points[i];
    if (p->result != chart->set->shown || p->oom) continue;
    brim_str_printf(out, "<circle class=\"pick\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\" />\n",
                    x_at(s, p->x), y_at(s, p->y));
    return;
  }
}

// Puts the unit and the labels of rules that are out of range above the drawing, where long texts can wrap.
static void put_units(const line_chart *chart, brim_str *out) {
  brim_str_append(out, "<p class=\"units\">");
  brim_ui_put(out, "span", chart->y_label);
  for (size_t i = 0; i < 2; i++) {
    const chart_rule *rule = &chart->rules[i];
    if (!rule->label || !(rule->y > 0) || !rule->far_above) continue;
    brim_str_append(out, " <span class=\"warn\">");
    brim_ui_escape_html(out, rule->label);
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>\n");
}

static void chart_svg(const line_chart *chart, brim_str *out) {
  if (chart->count == 0) return;
  scale s = make_scale(chart);
  brim_str_append(out, "<figure class=\"chart\"><figcaption>");
  brim_ui_escape_html(out, chart->title);
  brim_str_append(out, "</figcaption>\n");
  put_units(chart, out);
  brim_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"", WIDTH, HEIGHT);
  brim_ui_put_attribute(out, "aria-label", chart->title);
  brim_str_append(out, ">\n");
  put_y_axis(chart, &s, out);
  put_x_axis(chart, &s, out);
  for (size_t i = 0; i < 2; i++) put_rule(&s, &chart->rules[i], out);
  for (int c = 0; c < COLOURS; c++) {
    for (int d = 0; d < DASHES; d++) put_line(chart, &s, c, d, out);
  }
  put_pick(chart, &s, out);
  brim_str_append(out, "</svg>\n");
  put_legend(chart, out);
  if (chart->note) {
    brim_ui_put_class(out, "p", "note", chart->note);
    brim_str_append_char(out, '\n');
  }
  brim_str_append(out, "</figure>\n");
}

//----------------------------------------- line charts -----------------------------------------
// Throughput, memory and utilisation over a knob x, the batch size if it has numbers. In the first two charts a line is
// a value of the colour knob and of the dash knob, usually workers and precision; of settings that differ only in other
// knobs is_preferred draws one.

enum { NEUTRAL = 4 };  // the grey among the colours

typedef struct lines {
  const brim_ui_result_set *set;
  const char *colour_values[BRIM_UI_MAX_VALUES], *dash_values[BRIM_UI_MAX_VALUES];
  size_t colours, dashes;  // number of values that are drawn; 0 = the knob was not swept
  char names[COLOURS + DASHES][80];
  const char *colour_names[COLOURS], *dash_names[DASHES];
  chart_point *points;  // one per result at most
  size_t count, left_out;
  char note[320];
} lines;

static size_t name_values(const brim_result *result, const char *knob, const char **values,
                          size_t n, size_t max, char (*names)[80], const char **out) {
  if (n > max) n = max;
  for (size_t i = 0; i < n; i++) {
    knob_text(result, knob, values[i], names[i]);
    out[i] = names[i];
  }
  return n;
}

static int index_of(const char *const *values, size_t count, const char *value) {
  if (count == 0) return 0;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(values[i], value) == 0) return (int)i;
  }
  return -1;
}

// True if `a` is drawn instead of `b`, which has the same line and x. The setting shown in detail comes first if it is
// the recommended one, then the faster setting; if neither ran, the setting that needs less memory.
static bool is_preferred(const brim_ui_result_set *set, const brim_result *a,
                         const brim_result *b) {
  if (set->picks.recommended >= 0 && (a == set->shown || b == set->shown)) {
    return a == set->shown;
  }
  if (brim_result_ran(a) != brim_result_ran(b)) return brim_result_ran(a);
  return brim_result_ran(a) ? a->samples_per_s > b->samples_per_s
                            : brim_result_memory(a) < brim_result_memory(b);
}

static void insert_by_x(chart_point *points, size_t *n, chart_point p) {
  size_t k = (*n)++;
  for (; k > 0 && points[k - 1].x > p.x; k--) points[k] = points[k - 1];
  points[k] = p;
}

static void collect_one(lines *l, const brim_result *r) {
  const brim_ui_result_set *set = l->set;
  const brim_result_knob *x = brim_result_knob_find(r, set->x);
  int colour = index_of(l->colour_values, l->colours, knob_value(r, set->colour));
  int dash = index_of(l->dash_values, l->dashes, knob_value(r, set->dash));
  if (!brim_result_ran(r) && !brim_result_is_oom(r)) return;
  if (colour < 0 || dash < 0) {
    l->left_out++;
    return;
  }
  for (size_t i = 0; i < l->count; i++) {
    chart_point *p = &l->points[i];
    if (p->x != x->number || p->colour != colour || p->dash != dash) continue;
    if (is_preferred(set, r, p->result)) p->result = r;
    return;
  }
  insert_by_x(l->points, &l->count,
              (chart_point){.x = x->number, .colour = colour, .dash = dash, .result = r});
}

// "At each point: the fastest over Pinned, Prefetch." and how many settings are not drawn.
static void make_note(lines *l) {
  const brim_ui_result_set *set = l->set;
  const brim_result *first = &set->results[0];
  char knobs[200] = "", left[128] = "";
  size_t used = 0;
  for (size_t k = 0; k < first->knob_count && used < 160; k++) {
    const char *name = first->knobs[k].name;
    if (!brim_result_knob_varies(set->results, set->count, name)) continue;
    if (strcmp(name, set->x) == 0 || (set->colour && strcmp(name, set->colour) == 0) ||
        (set->dash && strcmp(name, set->dash) == 0)) {
      continue;
    }
    int n = snprintf(knobs + used, sizeof knobs - used, "%s%s", used ? ", " : "",
                     brim_ui_knob_label(first, name));
    if (n > 0) used += (size_t)n;
  }
  if (l->left_out) {
    snprintf(left, sizeof left, brim_tr(" %zu settings are in the table only."), l->left_out);
  }
  l->note[0] = '\0';
  if (used) {
    snprintf(l->note, sizeof l->note, brim_tr("At each point: the fastest over %s."), knobs);
  }
  snprintf(l->note + strlen(l->note), sizeof l->note - strlen(l->note), "%s", left);
}

static brim_status lines_init(lines *l, const brim_ui_result_set *set) {
  *l = (lines){.set = set};
  l->points = brim_calloc(set->count + 1, sizeof *l->points);
  if (!l->points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  if (set->colour) {
    l->colours = knob_values(set, set->colour, l->colour_values);
    l->colours = name_values(set->shown, set->colour, l->colour_values, l->colours, COLOURS,
                             l->names, l->colour_names);
  }
  if (set->dash) {
    l->dashes = knob_values(set, set->dash, l->dash_values);
    l->dashes = name_values(set->shown, set->dash, l->dash_values, l->dashes, DASHES,
                            l->names + COLOURS, l->dash_names);
  }
  for (size_t i = 0; i < set->count; i++) collect_one(l, &set->results[i]);
  make_note(l);
  return BRIM_OK;
}

static line_chart base_chart(const lines *l) {
  return (line_chart){.set = l->set,
                      .points = l->points,
                      .count = l->count,
                      .colours = l->colours ? l->colour_names : NULL,
                      .colour_count = l->colours,
                      .dashes = l->dashes ? l->dash_names : NULL,
                      .dash_count = l->dashes,
                      .note = l->note[0] ? l->note : NULL};
}

static void put_rate(lines *l, brim_str *out) {
  for (size_t i = 0; i < l->count; i++) {
    chart_point *p = &l->points[i];
    p->oom = !brim_result_ran(p->result);
    p->y = p->oom ? NAN : p->result->samples_per_s;
    p->low = p->oom ? NAN : p->result->samples_per_s_low;
    p->high = p->oom ? NAN : p->result->samples_per_s_high;
  }
  line_chart chart = base_chart(l);
  chart.title = brim_tr("Throughput, with 95 % intervals");
  char rate[64];
  chart.y_label = brim_ui_rate_unit(l->count > 0 ? l->points[0].result : NULL, l->count > 0, rate);
  chart_svg(&chart, out);
}

// The free memory of the device; NaN = unknown.
static double free_bytes(const brim_ui_result_set *set) {
  if (set->shown->free_bytes > 0) return set->shown->free_bytes;
  for (size_t i = 0; i < set->count; i++) {
    if (set->results[i].free_bytes > 0) return set->results[i].free_bytes;
  }
  return NAN;
}

// True if all colours need the same memory, within 1 %. Workers seldom change the memory of a GPU, and lines on top of
// each other would hide all but one.
static bool colours_agree(const lines *l) {
  for (size_t i = 0; i < l->count; i++) {
    for (size_t k = 0; k < i; k++) {
      const chart_point *a = &l->points[i], *b = &l->points[k];
      if (a->x != b->x || a->dash != b->dash) continue;
      double x = brim_result_memory(a->result), y = brim_result_memory(b->result);
      if (fabs(x - y) > 0.01 * fmax(x, y)) return false;
    }
  }
  return true;
}

// Merges the lines of all colours into grey ones.
static void merge_colours(lines *l) {
  size_t n = 0;
  for (size_t i = 0; i < l->count; i++) {
    chart_point p = l->points[i];
    size_t k = 0;
    p.colour = NEUTRAL;
    while (k < n && (l->points[k].x != p.x || l->points[k].dash != p.dash)) k++;
    if (k == n) {
      l->points[n++] = p;
    } else if (is_preferred(l->set, p.result, l->points[k].result)) {
      l->points[k] = p;
    }
  }
  l->count = n;
}

typedef struct rule_texts {
  char free_now[96], limit[64];
} rule_texts;

// Adds rules at the free memory and at 80 % of it. If they are far above all points, only a label names them: a scale
// up to the rules would flatten the lines.
static void put_rules(line_chart *chart, double free_now, double most, rule_texts *texts) {
  char bytes[32], limit[32];
  brim_format_bytes((uint64_t)free_now, bytes);
  brim_format_bytes((uint64_t)(0.8 * free_now), limit);
  if (free_now > 64 * most) {
    snprintf(texts->free_now, sizeof texts->free_now, brim_tr("far above: free %s, 80 %% of it %s"),
             bytes, limit);
    chart->rules[0] = (chart_rule){free_now, texts->free_now, false, true};
    return;
  }
  snprintf(texts->free_now, sizeof texts->free_now, brim_tr("free: %s"), bytes);
  snprintf(texts->limit, sizeof texts->limit, brim_tr("80 %% of it: %s"), limit);
  chart->rules[0] = (chart_rule){free_now, texts->free_now, false, false};
  chart->rules[1] = (chart_rule){0.8 * free_now, texts->limit, true, false};
}

static void put_memory(lines *l, brim_str *out) {
  double free_now = free_bytes(l->set), most = 0;
  bool cut = false;
  rule_texts texts;
  bool same_for_all_colours = l->colours > 1 && colours_agree(l);
  if (same_for_all_colours) merge_colours(l);
  for (size_t i = 0; i < l->count; i++) {
    chart_point *p = &l->points[i];
    double memory = brim_result_memory(p->result);
    p->oom = !brim_result_ran(p->result);
    p->low = p->high = NAN;
    p->y = memory > 0 ? memory : NAN;
    // A point far above the free memory would flatten the lines. Draw it lower; its text has the true value.
    if (p->oom && p->y > 4 * free_now) {
      p->y = 4 * free_now;
      cut = true;
    }
    most = fmax(most, p->y);
  }
  line_chart chart = base_chart(l);
  chart.title = brim_tr("Memory planned");
  chart.y_label = brim_tr("memory, log scale");
  chart.bytes = true;
  if (same_for_all_colours) {
    chart.colours = NULL;
    snprintf(l->note, sizeof l->note, brim_tr("Same for every value of %s."),
             brim_ui_knob_label(l->set->shown, l->set->colour));
    chart.note = l->note;
  }
  if (cut) {
    size_t used = strlen(l->note);
    snprintf(l->note + used, sizeof l->note - used, "%s%s", used ? " " : "",
             brim_tr("Crosses at four times the free memory mean that much or more."));
    chart.note = l->note;
  }
  if (free_now > 0) put_rules(&chart, free_now, most, &texts);
  chart_svg(&chart, out);
}

static brim_status put_line_charts(const brim_ui_result_set *set, brim_str *out) {
  lines l;
  if (!set->x) return BRIM_OK;
  BRIM_TRY(lines_init(&l, set));
  brim_str_append(out, "<div class=\"charts\">\n");
  put_rate(&l, out);
  put_memory(&l, out);
  brim_str_append(out, "</div>\n");
  brim_free(l.points);
  return brim_str_status(out);
}

static double most_share(const brim_ui_result_set *set, const ladder_rung *rung) {
  double most = 0;
  for (size_t i = 0; i < set->count; i++) {
    most = fmax(most, rung_share(rung, &set->results[i]));
  }
  return most;
}

// Puts a chart with a line for each rung, over the settings that differ only in x from the setting shown in detail.
static brim_status put_ladder_chart(const brim_ui_result_set *set, brim_str *out) {
  const ladder_rung *rungs[MAX_RUNGS];
  const char *names[MAX_RUNGS];
  char group[BRIM_UI_SETTING_NAME], name[BRIM_UI_SETTING_NAME], title[BRIM_UI_SETTING_NAME + 64];
  if (!set->x || !brim_result_knob_varies(set->results, set->count, set->x)) return BRIM_OK;
  size_t n = list_rungs(set, rungs), count = 0;
  chart_point *points = brim_calloc(set->count * n + 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  group_name(set, set->shown, group);
  for (size_t k = 0; k < n;) {
    if (most_share(set, rungs[k]) >= 1) {
      k++;
    } else {
      rungs[k] = rungs[--n];  // below 1 % everywhere, flat on the axis: left out of the chart
    }
  }
  for (size_t k = 0; k < n; k++) {
    names[k] = brim_tr(metric_find(rungs[k]->key)->label);
    for (size_t i = 0; i < set->count; i++) {
      const brim_result *r = &set->results[i];
      double share = rung_share(rungs[k], r);
      group_name(set, r, name);
      if (isnan(share) || strcmp(name, group) != 0) continue;
      insert_by_x(points, &count,
                  (chart_point){.x = brim_result_knob_find(r, set->x)->number,
                                .y = share,
                                .low = NAN,
                                .high = NAN,
                                .colour = (int)k,
                                .dash = (int)(k % DASHES),
                                .result = r});
    }
  }
  snprintf(title, sizeof title, "%s%s%s", brim_tr("Utilisation"), group[0] ? ": " : "", group);
  line_chart chart = {.set = set,
                      .title = title,
                      .y_label = brim_tr("% of the available"),
                      .percent = true,
                      .points = points,
                      .count = count,
                      .colours = names,
                      .colour_count = n};
  chart_svg(&chart, out);
  brim_free(points);
  return brim_str_status(out);
}

//--------------------------------------------- bars ---------------------------------------------
// Bars show where the time of a step goes, the ladder of utilisation, the ceilings, and the plan of a setting. They are
// plain HTML with widths in style attributes, so that text keeps its size on a phone and on paper.

enum { MAX_STACK_ROWS = 400 };  // keeps the file small; the table has all settings

//---------------------------------- phases ----------------------------------

static bool phase_known(const brim_ui_result_set *set, int phase) {
  for (size_t i = 0; i < METRIC_COUNT; i++) {
    if (metrics[i].phase == phase) return metric_known(set, &metrics[i]);
  }
  return false;
}

static void put_phase_legend(const brim_ui_result_set *set, brim_str *out) {
  brim_str_append(out, "<ul class=\"legend\">");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (!phase_known(set, p)) continue;
    brim_str_printf(out, "<li data-p=\"%d\"><i class=\"sw p%d\"></i>", p, p);
    brim_ui_escape_html(out, brim_ui_phase_name(p));
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul>\n");
}

static void put_stack_row(const brim_ui_result_set *set, const brim_result *r, const char *label,
                          brim_str *out) {
  bool ran = r->failure == BRIM_FAILURE_NONE && r->total_ms.median > 0;
  char text[32];
  brim_str_printf(out, "<div class=\"sr%s\"", r == set->shown ? " on" : "");
  if (ran) brim_str_printf(out, " style=\"--t:%.4g\"", r->total_ms.median);
  brim_str_append(out, "><span class=\"sx\">");
  brim_ui_escape_html(out, label);
  brim_str_append(out, "</span><span class=\"sb\">");
  if (ran) {
    brim_str_append(out, "<b>");
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
      double ms = r->phase_used[p] ? brim_ui_phase_ms(r, p) : NAN;
      // Leave out a phase below a thousandth of the step: no screen shows it.
      if (!(ms > r->total_ms.median * 0.001)) continue;
      brim_str_printf(out, "<i class=\"p%d\" style=\"--v:%.4g\"></i>", p, ms);
    }
    brim_str_append(out, "</b>");
    brim_ui_ms(r->total_ms.median, text);
  } else {
    brim_ui_put(out, "em", brim_ui_failure_text(r));
    snprintf(text, sizeof text, "%s", BRIM_UI_DASH);
  }
  brim_str_printf(out, "</span><span class=\"sv\">%s</span></div>\n", text);
}

typedef struct group_list {
  const brim_ui_result_set *set;
  char (*names)[BRIM_UI_SETTING_NAME];  // name of the group of each result
  bool single;                          // x was not swept: all settings are one group
} group_list;

static bool first_of_group(const group_list *g, size_t index) {
  for (size_t i = 0; i < index; i++) {
    if (strcmp(g->names[i], g->names[index]) == 0) return false;
  }
  return true;
}

static size_t put_group(const group_list *g, size_t first, size_t number, brim_str *out) {
  const brim_ui_result_set *set = g->set;
  double longest = 0;
  size_t rows = 0;
  for (size_t i = 0; i < set->count; i++) {
    if (strcmp(g->names[i], g->names[first]) != 0) continue;
    longest = fmax(longest, set->results[i].total_ms.median);
    rows++;
  }
  brim_str_printf(out, "<div class=\"sg\" data-g=\"%zu\" style=\"--max:%.4g\"%s>\n", number,
                  longest > 0 ? longest : 1, number ? " hidden=\"hidden\"" : "");
  // This heading is for a page without the script; with the script the select shows the name.
  if (g->names[first][0]) {
    brim_ui_put_class(out, "h3", "still", g->names[first]);
    brim_str_append_char(out, '\n');
  }
  for (size_t i = 0; i < set->count; i++) {
    char label[BRIM_UI_SETTING_NAME];
    if (strcmp(g->names[i], g->names[first]) != 0) continue;
    if (g->single) {
      setting_name(set, &set->results[i], label);
    } else {
      snprintf(label, sizeof label, "%s", knob_value(&set->results[i], set->x));
    }
    put_stack_row(set, &set->results[i], label, out);
  }
  brim_str_append(out, "</div>\n");
  return rows;
}

// Puts every group (`names_only`: its name as an option) until MAX_STACK_ROWS is reached. The group of the setting
// shown in detail comes first. Returns the number of groups.
static size_t put_groups(const group_list *g, bool names_only, brim_str *out) {
  size_t number = 0, rows = 0, shown = (size_t)(g->set->shown - g->set->results);
  for (size_t pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < g->set->count; i++) {
      bool of_shown = strcmp(g->names[i], g->names[shown]) == 0;
      if (!first_of_group(g, i) || of_shown != (pass == 0)) continue;
      if (rows >= MAX_STACK_ROWS) continue;
      for (size_t k = 0; names_only && k < g->set->count; k++) {
        rows += strcmp(g->names[k], g->names[i]) == 0;
      }
      if (names_only) {
        brim_str_printf(out, "<option value=\"%zu\">", number);
        brim_ui_escape_html(out, g->names[i]);
        brim_str_append(out, "</option>");
      } else {
        rows += put_group(g, i, number, out);
      }
      number++;
    }
  }
  return number;
}

static void put_stack_tools(const group_list *g, brim_str *out) {
  brim_str names;
  brim_str_init(&names);
  size_t groups = put_groups(g, true, &names);
  brim_str_append(out, "<div class=\"tools js\">");
  if (groups > 1) {
    brim_str_append(out, "<label>");
    brim_ui_escape_html(out, brim_tr("Settings"));
    brim_str_append(out, " <select id=\"stack-group\">");
    brim_str_append(out, names.data);
    brim_str_append(out, "</select></label>");
  }
  brim_str_append(out, "<span class=\"seg\" id=\"stack-scale\">");
  brim_str_append(out, "<button type=\"button\" data-v=\"ms\" aria-pressed=\"true\">");
  brim_ui_escape_html(out, brim_tr("ms per step"));
  brim_str_append(out, "</button><button type=\"button\" data-v=\"share\" aria-pressed=\"false\">");
  brim_ui_escape_html(out, brim_tr("share of the step"));
  brim_str_append(out, "</button></span></div>\n");
  if (brim_str_status(&names)) out->status = names.status;
  brim_str_deinit(&names);
}

static brim_status put_phases(const brim_ui_result_set *set, brim_str *out) {
  group_list g = {.set = set};
  bool any = false;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) any = any || phase_known(set, p);
  if (!any) return BRIM_OK;
  g.single = !set->x || !brim_result_knob_varies(set->results, set->count, set->x);
  g.names = brim_calloc(set->count, sizeof *g.names);
  if (!g.names) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  for (size_t i = 0; !g.single && i < set->count; i++) {
    group_name(set, &set->results[i], g.names[i]);
  }
  brim_ui_put_section(out, "phases", brim_tr("Where a step's time goes"),
                      brim_tr("Milliseconds per step. The step waits for waited I/O and exposed "
                              "H2D; they exclude time that overlaps with computing."));
  put_stack_tools(&g, out);
  put_phase_legend(set, out);
  brim_str_printf(out, "<div class=\"stack%s\" id=\"stack\">\n<div class=\"sr sh\"><span>",
                  g.single ? " wide" : "");
  if (set->x && !g.single) brim_ui_escape_html(out, brim_ui_knob_label(set->shown, set->x));
  brim_str_append(out, "</span><span></span><span class=\"sv\">ms</span></div>\n");
  put_groups(&g, false, out);
  brim_str_append(out, "</div>\n</section>\n");
  brim_free(g.names);
  return brim_str_status(out);
}

//---------------------------------- ladder ----------------------------------

// <div class="bar"> with a name, a track filled to `share` percent and a text.
static void put_bar(const char *name, double share, const char *text, const char *kind,
                    const char *attributes, brim_str *out) {
  brim_str_printf(out, "<div class=\"bar %s\"%s><span>", kind, attributes);
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</span><b>");
  if (share > 0) brim_str_printf(out, "<i style=\"--v:%.4g\"></i>", fmin(share, 100));
  brim_str_append(out, "</b><span class=\"v\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div>\n");
}

static void put_rung(const ladder_rung *rung, const brim_result *r, brim_str *out) {
  const report_metric *metric = metric_find(rung->key);
  double value = metric_value(metric, r), limit = rung->limit(r);
  char number[32], unit[48], text[96], attributes[160];
  metric_text(metric, value, number);
  snprintf(unit, sizeof unit, "%s", rung->unit);
  if (unit[0] && isfinite(limit) && limit != 100) {  // " W of 700 W"
    snprintf(unit, sizeof unit, brim_tr("%s of %.0f%s"), rung->unit, limit, rung->unit);
  }
  snprintf(text, sizeof text, "%s%s", number, isnan(value) ? "" : unit);
  snprintf(attributes, sizeof attributes, " data-key=\"%s\" data-unit=\"%s\" data-max=\"%.6g\"",
           rung->key, unit, isfinite(limit) ? limit : 0);
  put_bar(brim_tr(metric->label), rung_share(rung, r), text, "rung", attributes, out);
}

static void put_ladder_choice(const brim_ui_result_set *set, brim_str *out) {
  char name[BRIM_UI_SETTING_NAME];
  brim_str_append(out, "<div class=\"tools js\"><label>");
  brim_ui_escape_html(out, brim_tr("Setting"));
  brim_str_append(out, " <select id=\"ladder-row\">");
  for (size_t i = 0; i < set->count; i++) {
    const brim_result *r = &set->results[i];
    if (!brim_result_ran(r)) continue;
    setting_name(set, r, name);
    brim_str_printf(out, "<option value=\"%zu\"%s>", i,
                    r == set->shown ? " selected=\"selected\"" : "");
    brim_ui_escape_html(out, name);
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label></div>\n");
}

static void put_ladder(const brim_ui_result_set *set, brim_str *out) {
  const ladder_rung *rungs[MAX_RUNGS];
  char name[BRIM_UI_SETTING_NAME];
  size_t n = list_rungs(set, rungs);
  if (n == 0) return;
  setting_name(set, set->shown, name);
  brim_str_append(out, "<figure class=\"panel\" id=\"ladder\"><figcaption>");
  brim_ui_escape_html(out, brim_tr("Utilisation ladder"));
  brim_str_append(out, "</figcaption>\n<p class=\"note still\">");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</p>\n");
  put_ladder_choice(set, out);
  for (size_t i = 0; i < n; i++) put_rung(rungs[i], set->shown, out);
  if (set->gpu) {
    brim_ui_put(out, "p",
                brim_tr("From the top: share of time a kernel ran; share of SMs with work; "
                        "occupied warps per SM; tensor cores; device memory. A large drop from one "
                        "bar to the next shows where the device idles."));
  }
  brim_str_append(out, "</figure>\n");
}

//---------------------------------- ceilings ----------------------------------

static void put_ceiling(const char *name, double rate, double most, const char *kind,
                        brim_str *out) {
  char number[32], text[64];
  if (isnan(rate)) return;
  brim_format_figure(rate, number);
  snprintf(text, sizeof text, "%s", number);
  put_bar(name, rate / most * 100, text, kind, "", out);
}

// Puts the job's share of the slower stage. Above 100 % the stage alone was slower than both together: warn instead.
static void put_ceiling_share(const brim_result *r, brim_str *out) {
  double data = r->data_samples_per_s, device = r->compute_samples_per_s;
  double lower = fmin(data, device), share = r->samples_per_s / lower * 100;
  const char *stage = lower == device ? brim_tr("computing") : brim_tr("loading");
  char text[160];
  if (!isfinite(share)) return;
  if (share > 100) {
    snprintf(text, sizeof text,
             brim_tr("%s alone was slower than both together: other programs used the machine when "
                     "brim measured it."),
             stage);
    brim_ui_put_class(out, "p", "warn", text);
    return;
  }
  snprintf(text, sizeof text,
           isnan(data) || isnan(device) ? brim_tr("%.0f %% of %s alone.")
                                        : brim_tr("%.0f %% of the slower stage (%s)."),
           brim_shown(share), stage);
  brim_ui_put(out, "p", text);
}

static void put_ceilings(const brim_ui_result_set *set, brim_str *out) {
  const brim_result *r = set->shown;
  double data = r->data_samples_per_s, device = r->compute_samples_per_s, now = r->samples_per_s;
  char name[BRIM_UI_SETTING_NAME], rate[64], title[128];
  if (!(data > 0) && !(device > 0)) return;
  double most = fmax(fmax(data, device), now);
  setting_name(set, r, name);
  brim_str_append(out, "<figure class=\"panel\" id=\"ceilings\"><figcaption>");
  snprintf(title, sizeof title, brim_tr("Ceilings of this job, %s"), brim_ui_rate_unit(r, 1, rate));
  brim_ui_escape_html(out, title);
  brim_str_append(out, "</figcaption>\n<p class=\"note\">");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</p>\n");
  put_ceiling(brim_tr("Data alone"), data, most, "data", out);
  put_ceiling(brim_tr("Device alone"), device, most, "device", out);
  put_ceiling(brim_tr("Together"), now, most, "now", out);
  put_ceiling_share(r, out);
  brim_str_append(out, "</figure>\n");
}

//---------------------------------- plan ----------------------------------

static void put_plan_row(const char *name, const char *place, double bytes, double whole,
                         const char *kind, brim_str *out) {
  char text[32];
  bytes_text(bytes, text);
  brim_str_printf(out, "<tr class=\"%s\">", kind);
  brim_ui_put(out, "th", name);
  brim_ui_put(out, "td", place);
  brim_ui_put(out, "td", text);
  brim_str_append(out, "<td class=\"part\">");
  if (bytes >= 0 && whole > 0) {
    brim_str_printf(out, "<b><i style=\"--v:%.3g\"></i></b>", fmin(bytes / whole * 100, 100));
  }
  brim_str_append(out, "</td></tr>\n");
}

static void put_facts(const brim_result *r, brim_str *out) {
  char text[64], number[32];
  brim_str_append(out, "<dl class=\"facts\">\n");
  if (r->plan.parameter_count) {
    brim_format_count((double)r->plan.parameter_count, number);
    brim_ui_put(out, "dt", brim_tr("Parameters"));
    brim_ui_put(out, "dd", number);
  }
  if (r->plan.flops_per_step > 0) {
    brim_format_count(r->plan.flops_per_step, number);
    snprintf(text, sizeof text, "%s FLOP", number);
    brim_ui_put(out, "dt", brim_tr("Arithmetic per step"));
    brim_ui_put(out, "dd", text);
  }
  if (r->plan.bytes_per_step > 0) {
    bytes_text(r->plan.bytes_per_step, text);
    brim_ui_put(out, "dt", brim_tr("Memory traffic per step, at least"));
    brim_ui_put(out, "dd", text);
  }
  if (r->plan.recomputed > 0) {
    snprintf(text, sizeof text, brim_tr("%d of %d"), r->plan.recomputed, r->plan.segments);
    brim_ui_put(out, "dt", brim_tr("Blocks recomputed"));
    brim_ui_put(out, "dd", text);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_plan(const brim_ui_result_set *set, brim_str *out) {
  const brim_result *r = set->shown;
  const char *places[BRIM_PLACE_COUNT] = {brim_tr("device"), brim_tr("host")};
  char name[BRIM_UI_SETTING_NAME];
  double whole = (double)r->plan.bytes[BRIM_PLACE_DEVICE] + (double)r->plan.bytes[BRIM_PLACE_HOST];
  if (r->plan.row_count == 0) return;
  setting_name(set, r, name);
  brim_ui_put_section(out, "plan", brim_tr("Memory plan"), name);
  brim_str_append(out, "<div class=\"two\"><table class=\"plan\">\n<tbody>\n");
  for (size_t i = 0; i < r->plan.row_count; i++) {
    const brim_plan_row *row = &r->plan.rows[i];
    put_plan_row(brim_tr(row->name), places[row->place], (double)row->bytes, whole, "", out);
  }
  for (int i = 0; i < BRIM_PLACE_COUNT; i++) {
    if (r->plan.bytes[i] == 0) continue;
    put_plan_row(brim_tr("planned"), places[i], (double)r->plan.bytes[i], whole, "sum", out);
  }
  if (brim_result_has_gpu(r)) {
    put_plan_row(brim_tr("overhead (CUDA context, libraries)"), places[BRIM_PLACE_DEVICE],
                 r->overhead_bytes, NAN, "more", out);
    put_plan_row(brim_tr("in all"), places[BRIM_PLACE_DEVICE], r->real_bytes, NAN, "more", out);
  }
  put_plan_row(brim_tr("process at its peak"), places[BRIM_PLACE_HOST], r->peak_rss_bytes, NAN,
               "more", out);
  put_plan_row(brim_tr("free at the start"),
               places[brim_result_has_gpu(r) ? BRIM_PLACE_DEVICE : BRIM_PLACE_HOST], r->free_bytes,
               NAN, "more", out);
  brim_str_append(out, "</tbody></table>\n");
  put_facts(r, out);
  brim_str_append(out, "</div>\n</section>\n");
}

//------------------------------------------- heat map -------------------------------------------
// A heat map shows one metric over two knobs; a cell has the best value over the other knobs. The page has one map,
// over x and the knob that changes throughput most; the script draws further maps from the table.

// The metrics that the map can show. `least`: a cell shows the smallest value over the other knobs, else the largest.
static const struct heat_metric {
  const char *key;
  bool least;
} heat_metrics[] = {
    {"rate", false}, {"total", true},  {"io", true},          {"memory", true},
    {"gpu", false},  {"sm", false},    {"tensor", false},     {"dram", false},
    {"cpu", false},  {"power", false}, {"efficiency", false}, {"energy", true},
};

static size_t swept_knobs(const brim_ui_result_set *set, const char **out) {
  const brim_result *first = &set->results[0];
  size_t n = 0;
  for (size_t k = 0; k < first->knob_count; k++) {
    if (!brim_result_knob_varies(set->results, set->count, first->knobs[k].name)) continue;
    out[n++] = first->knobs[k].name;
  }
  return n;
}

// The knob, other than x, that changes throughput most: its values differ most in their best throughput.
static const char *strongest_knob(const brim_ui_result_set *set, const char *const *knobs,
                                  size_t count) {
  const char *best = NULL;
  double most = -1;
  for (size_t k = 0; k < count; k++) {
    const char *values[BRIM_UI_MAX_VALUES];
    double low = INFINITY, high = 0;
    if (set->x && strcmp(knobs[k], set->x) == 0) continue;
    size_t n = knob_values(set, knobs[k], values);
    for (size_t v = 0; v < n; v++) {
      double rate = 0;
      for (size_t i = 0; i < set->count; i++) {
        const brim_result *r = &set->results[i];
        if (brim_result_ran(r) && strcmp(knob_value(r, knobs[k]), values[v]) == 0) {
          rate = fmax(rate, r->samples_per_s);
        }
      }
      low = fmin(low, rate);
      high = fmax(high, rate);
    }
    double gain = high > 0 ? (high - low) / high : 0;
    if (gain > most) {
      most = gain;
      best = knobs[k];
    }
  }
  return best;
}

typedef struct cell {
  double rate;
  bool oom, recommended;  // oom: a setting did not fit; recommended: the cell has this setting
} cell;

static cell cell_of(const brim_ui_result_set *set, const char *row_knob, const char *row,
                    const char *column_knob, const char *column) {
  cell c = {.rate = NAN};
  for (size_t i = 0; i < set->count; i++) {
    const brim_result *r = &set->results[i];
    if (strcmp(knob_value(r, row_knob), row) != 0 ||
        strcmp(knob_value(r, column_knob), column) != 0) {
      continue;
    }
    c.recommended = c.recommended || (int)i == set->picks.recommended;
    c.oom = c.oom || brim_result_is_oom(r);
    if (brim_result_ran(r)) c.rate = fmax(c.rate, r->samples_per_s);  // fmax ignores NaN
  }
  return c;
}

static void put_cell(cell c, double low, double high, brim_str *out) {
  char text[32];
  if (isnan(c.rate)) {
    brim_ui_put_class(out, "td", "none", c.oom ? "OOM" : BRIM_UI_DASH);
    return;
  }
  double q = high > low ? (c.rate - low) / (high - low) * 100 : 100;
  brim_format_figure(c.rate, text);
  // The cell of the recommended setting has its own colour, another cell with the highest rate a different one.
  const char *mark = c.recommended ? " class=\"best\"" : c.rate == high ? " class=\"top\"" : "";
  brim_str_printf(out, "<td%s style=\"--q:%.0f\">%s</td>", mark, q, text);
}

static void put_map(const brim_ui_result_set *set, const char *row_knob, const char *column_knob,
                    brim_str *out) {
  const char *rows[BRIM_UI_MAX_VALUES], *columns[BRIM_UI_MAX_VALUES];
  size_t nr = knob_values(set, row_knob, rows);
  size_t nc = knob_values(set, column_knob, columns);
  double low = INFINITY, high = 0;
  for (size_t i = 0; i < nr * nc; i++) {
    cell c = cell_of(set, row_knob, rows[i / nc], column_knob, columns[i % nc]);
    low = fmin(low, c.rate);
    high = fmax(high, c.rate);
  }
  brim_str_append(out, "<table class=\"heat\" id=\"heat-map\"><thead><tr><th class=\"corner\">");
  brim_ui_escape_html(out, brim_ui_knob_label(set->shown, row_knob));
  brim_str_append(out, " \\ ");
  brim_ui_escape_html(out, brim_ui_knob_label(set->shown, column_knob));
  brim_str_append(out, "</th>");
  for (size_t k = 0; k < nc; k++) brim_ui_put(out, "th", columns[k]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < nr; i++) {
    brim_str_append(out, "<tr>");
    brim_ui_put(out, "th", rows[i]);
    for (size_t k = 0; k < nc; k++) {
      put_cell(cell_of(set, row_knob, rows[i], column_knob, columns[k]), low, high, out);
    }
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table>");
}

static void put_choice(const brim_result *first, const char *id, const char *label,
                       const char *const *knobs, size_t count, const char *chosen, brim_str *out) {
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, label);
  brim_str_printf(out, " <select id=\"%s\">", id);
  for (size_t i = 0; i < count; i++) {
    brim_str_append(out, "<option");
    brim_ui_put_attribute(out, "value", knobs[i]);
    brim_str_append(out, strcmp(knobs[i], chosen) == 0 ? " selected=\"selected\">" : ">");
    brim_ui_escape_html(out, brim_ui_knob_label(first, knobs[i]));
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>");
}

static void put_metric_choice(const brim_ui_result_set *set, brim_str *out) {
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, brim_tr("Shown"));
  brim_str_append(out, " <select id=\"heat-metric\">");
  for (size_t i = 0; i < sizeof heat_metrics / sizeof heat_metrics[0]; i++) {
    const report_metric *metric = metric_find(heat_metrics[i].key);
    if (!metric_known(set, metric)) continue;
    brim_str_printf(out, "<option value=\"%s\"%s>", metric->key,
                    heat_metrics[i].least ? " data-least=\"1\"" : "");
    brim_ui_escape_html(out, brim_tr(metric->label));
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>");
}

static void put_heat(const brim_ui_result_set *set, brim_str *out) {
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t n = swept_knobs(set, knobs);
  if (n < 2 || !any_ran(set)) return;
  const char *column = strongest_knob(set, knobs, n);
  const char *row =
      set->x && brim_result_knob_varies(set->results, set->count, set->x) ? set->x : knobs[0];
  if (strcmp(row, column) == 0) row = knobs[strcmp(knobs[0], column) == 0 ? 1 : 0];
  brim_ui_put_section(out, "map", brim_tr("Two knobs at a time"),
                      n > 2 ? brim_tr("Each cell shows the best value over all other knobs; a "
                                      "stronger colour means a higher value.")
                            : brim_tr("A stronger colour means a higher value."));
  brim_str_append(out, "<p class=\"note still\">");
  char rate[64];
  brim_ui_escape_html(out, brim_ui_rate_unit(set->results, set->count, rate));
  brim_str_append(out, "</p>\n");
  brim_str_append(out, "<div class=\"tools js\">");
  put_choice(set->shown, "heat-row", brim_tr("Rows"), knobs, n, row, out);
  put_choice(set->shown, "heat-column", brim_tr("Columns"), knobs, n, column, out);
  put_metric_choice(set, out);
  brim_str_append(out, "</div>\n<div class=\"scroll\">");
  put_map(set, row, column, out);
  brim_str_append(out, "</div>\n</section>\n");
}

//-------------------------------------------- table --------------------------------------------
// The table of all settings: every knob worth showing, every metric that any setting has. The script reads the numbers
// from this table: from a cell's data-v, or from its text if there is no data-v.

static const char *status_class(const brim_result *r) {
  if (r->failure == BRIM_FAILURE_NONE) {
    return (r->stable || r->steps == 0) && !r->throttled ? "ok" : "warn";
  }
  return r->failure == BRIM_FAILURE_OOM_PLANNED ? "warn" : "bad";
}

static void put_header(const char *attribute, const char *key, const char *text, const char *hint,
                       brim_str *out) {
  brim_str_append(out, "<th");
  brim_ui_put_attribute(out, attribute, key);
  if (hint) brim_ui_put_attribute(out, "title", hint);
  brim_str_append(out, "><button type=\"button\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button></th>");
}

typedef struct columns {
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t knob_count;
  const report_metric *metrics[METRIC_COUNT];
  size_t metric_count;
  const brim_result *first;
} columns;

static void choose_columns(const brim_ui_result_set *set, columns *c) {
  const brim_result *first = &set->results[0];
  *c = (columns){.first = first};
  for (size_t k = 0; k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (brim_ui_knob_shown(set->results, set->count, name)) c->knobs[c->knob_count++] = name;
  }
  for (size_t i = 0; i < METRIC_COUNT; i++) {
    if (metric_known(set, &metrics[i])) c->metrics[c->metric_count++] = &metrics[i];
  }
}

static void put_head(const columns *c, brim_str *out) {
  // The status comes right after the knobs, so that readers see it without scrolling.
  brim_str_printf(out, "<colgroup><col span=\"%zu\" />", c->knob_count + 1);
  for (size_t i = 0; i < c->metric_count; i++) {
    brim_str_append(out, c->metrics[i]->extra ? "<col class=\"x\" />" : "<col />");
  }
  brim_str_append(out, "</colgroup>\n<thead><tr>");
  for (size_t k = 0; k < c->knob_count; k++) {
    put_header("data-knob", c->knobs[k], brim_ui_knob_label(c->first, c->knobs[k]), NULL, out);
  }
  put_header("data-key", "status", brim_tr("Status"), NULL, out);
  for (size_t i = 0; i < c->metric_count; i++) {
    const report_metric *m = c->metrics[i];
    char rate[64];
    const char *header = brim_tr(m->header);
    if (strcmp(m->key, "rate") == 0) header = brim_ui_rate_heading(c->first, 1, rate);
    put_header("data-key", m->key, header, brim_tr(m->label), out);
  }
  brim_str_append(out, "</tr></thead>\n");
}

static void put_metric(const report_metric *metric, const brim_result *r, brim_str *out) {
  double value = metric_value(metric, r);
  char text[32];
  metric_text(metric, value, text);
  // The script can read "12,345" and "36.4", but not "1.5 GiB" and "1.23 M".
  bool plain = strspn(text, "0123456789.,-") == strlen(text);
  if (isnan(value) || plain) {
    brim_str_printf(out, "<td>%s</td>", text);
  } else {
    brim_str_printf(out, "<td data-v=\"%.7g\">%s</td>", value, text);
  }
}

static void put_status(const brim_result *r, bool best, brim_str *out) {
  brim_str_printf(out, "<td class=\"status %s\"", status_class(r));
  if (r->message[0]) {
    brim_ui_put_attribute(out, "title", r->message);
  } else if (r->throttle[0]) {
    char words[160] = "", reason[160];
    brim_words_put_list(words, sizeof words, r->throttle);
    brim_words_text(words, reason, sizeof reason);
    brim_ui_put_attribute(out, "title", reason);
  }
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, brim_ui_failure_text(r));
  if (best) {
    brim_str_append(out, " <strong class=\"tag\">");
    brim_ui_escape_html(out, brim_tr("recommended"));
    brim_str_append(out, "</strong>");
  }
  brim_str_append(out, "</td>");
}

static void put_row(const brim_ui_result_set *set, const columns *c, size_t index, brim_str *out) {
  const brim_result *r = &set->results[index];
  bool best = (int)index == set->picks.recommended;
  const char *kind = best ? " class=\"best\"" : r->failure ? " class=\"failed\"" : "";
  brim_str_printf(out, "<tr id=\"r%zu\"%s>", index, kind);
  for (size_t k = 0; k < c->knob_count; k++) {
    const char *value = knob_value(r, c->knobs[k]);
    brim_ui_put(out, "td", value[0] ? value : BRIM_UI_DASH);
  }
  put_status(r, best, out);
  for (size_t i = 0; i < c->metric_count; i++) put_metric(c->metrics[i], r, out);
  brim_str_append(out, "</tr>\n");
}

static bool same_failure(const brim_result *a, const brim_result *b) {
  return a->failure == b->failure && strcmp(a->message, b->message) == 0;
}

// "Batch 8192, fp32 and 5 more: OOM (planned) ..."
static void put_reason(const brim_ui_result_set *set, size_t index, brim_str *out) {
  const brim_result *r = &set->results[index];
  char name[BRIM_UI_SETTING_NAME];
  size_t more = 0;
  for (size_t k = 0; k < index; k++) {
    if (same_failure(&set->results[k], r)) return;  // reported before
  }
  for (size_t k = index + 1; k < set->count; k++) more += same_failure(&set->results[k], r);
  setting_name(set, r, name);
  brim_str_append(out, "<li><span>");
  brim_ui_escape_html(out, name);
  if (more) brim_str_printf(out, brim_tr(" and %zu more"), more);
  brim_str_printf(out, "</span> <span class=\"%s\">", status_class(r));
  brim_ui_escape_html(out, brim_ui_failure_text(r));
  brim_str_append(out, "</span> ");
  brim_ui_escape_html(out, r->message);
  brim_str_append(out, "</li>\n");
}

// Puts why settings have no numbers, each reason once.
static void put_failures(const brim_ui_result_set *set, brim_str *out) {
  size_t failed = 0;
  for (size_t i = 0; i < set->count; i++) failed += set->results[i].failure != BRIM_FAILURE_NONE;
  if (failed == 0) return;
  brim_str_append(out, "<details open=\"open\"><summary>");
  brim_str_printf(
      out, failed == 1 ? brim_tr("%zu setting did not run") : brim_tr("%zu settings did not run"),
      failed);
  brim_str_append(out, "</summary>\n<ul class=\"why\">\n");
  for (size_t i = 0; i < set->count; i++) {
    if (set->results[i].failure != BRIM_FAILURE_NONE) put_reason(set, i, out);
  }
  brim_str_append(out, "</ul></details>\n");
}

static void report_table(const brim_ui_result_set *set, brim_str *out) {
  columns c;
  choose_columns(set, &c);
  brim_ui_put_section(
      out, "settings", brim_tr("All settings"),
      brim_tr("Times are per step; phases add up to the total. A dash marks an unknown value."));
  brim_ui_put_class(out, "div", "tools js", brim_tr("Click a heading to sort."));
  brim_str_append_char(out, '\n');
  brim_str_append(out, "<div class=\"scroll tall\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("All settings"));
  brim_str_append(out, "><table class=\"all\" id=\"all\">\n");
  put_head(&c, out);
  brim_str_append(out, "<tbody>\n");
  for (size_t i = 0; i < set->count; i++) put_row(set, &c, i, out);
  brim_str_append(out, "</tbody></table></div>\n");
  put_failures(set, out);
  brim_str_append(out, "</section>\n");
}

//------------------------------------- tables of a workload -------------------------------------

static void put_view_cell(const brim_view_column *column, bool head, const char *text,
                          brim_str *out) {
  brim_str_append(out, head ? "<th" : "<td");
  if (column->left) brim_str_append(out, " class=\"text\"");
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, head ? "</th>" : "</td>");
}

static void put_table(const brim_view *v, brim_str *out) {
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", v->title);
  brim_str_append(out, "><table class=\"own\"><thead><tr>");
  for (size_t c = 0; c < v->column_count; c++) {
    put_view_cell(&v->columns[c], true, v->columns[c].heading, out);
  }
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t r = 0; r < v->row_count; r++) {
    brim_str_append(out, (int)r == v->marked ? "<tr class=\"best\">" : "<tr>");
    for (size_t c = 0; c < v->column_count; c++) {
      put_view_cell(&v->columns[c], false, v->cells[r][c], out);
    }
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table></div>\n");
}

static void report_views(const brim_ui_report_options *options, brim_str *out) {
  if (options->view_count == 0) return;
  brim_ui_put_section(out, "tables", brim_tr("Tables of the workload"), NULL);
  for (size_t i = 0; i < options->view_count; i++) {
    const brim_view *v = &options->views[i];
    brim_ui_put(out, "h3", v->title);
    brim_str_append_char(out, '\n');
    put_table(v, out);
    if (v->note[0]) brim_ui_put(out, "p", v->note);
  }
  brim_str_append(out, "</section>\n");
}

//--------------------------------------------- page ---------------------------------------------

static brim_status put_charts(const brim_ui_result_set *set, brim_str *out) {
  if (!set->x || !any_ran(set)) return BRIM_OK;
  brim_ui_put_section(out, "charts", brim_tr("Throughput and memory"), NULL);
  BRIM_TRY(put_line_charts(set, out));
  brim_str_append(out, "</section>\n");
  return BRIM_OK;
}

static brim_status put_utilisation(const brim_ui_result_set *set, brim_str *out) {
  const ladder_rung *rungs[MAX_RUNGS];
  const brim_result *r = set->shown;
  bool ceilings = r->data_samples_per_s > 0 || r->compute_samples_per_s > 0;
  if (list_rungs(set, rungs) == 0 && !ceilings) return BRIM_OK;
  brim_ui_put_section(out, "use", brim_tr("How well the machine is used"), NULL);
  brim_str_append(out, "<div class=\"charts\">\n<div class=\"column\">\n");
  put_ladder(set, out);
  put_ceilings(set, out);
  brim_str_append(out, "</div>\n");
  BRIM_TRY(put_ladder_chart(set, out));
  brim_str_append(out, "</div>\n</section>\n");
  return BRIM_OK;
}

//---------------------------------- machine ----------------------------------

// Puts the machine's measured ceilings. Units are powers of ten, as in data sheets.
static void put_machine_ceilings(const brim_machine_ceilings *c, brim_str *out) {
  const struct {
    const char *name;
    double value, unit;
    const char *unit_name;
  } rows[] = {
      {"fp32", c->gemm_fp32_flops, 1e12, "TFLOP/s"},
      {"tf32", c->gemm_tf32_flops, 1e12, "TFLOP/s"},
      {"bf16", c->gemm_bf16_flops, 1e12, "TFLOP/s"},
      {"fp16", c->gemm_fp16_flops, 1e12, "TFLOP/s"},
      {brim_tr("copies in its memory"), c->copy_bytes_per_s, 1e9, "GB/s"},
      {brim_tr("from pinned memory"), c->h2d_pinned_bytes_per_s, 1e9, "GB/s"},
      {brim_tr("from pageable memory"), c->h2d_pageable_bytes_per_s, 1e9, "GB/s"},
  };
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char number[32];
    if (!(rows[i].value > 0) || used > 180) continue;
    brim_format_figure(rows[i].value / rows[i].unit, number);
    int n = snprintf(text + used, sizeof text - used, "%s%s %s %s", used ? ", " : "", rows[i].name,
                     number, rows[i].unit_name);
    if (n > 0) used += (size_t)n;
  }
  brim_ui_put_pair(out, brim_tr("At best, measured"), text);
}

static void put_machine(const brim_result *r, const char *command, brim_str *out) {
  char text[64] = "";
  brim_ui_put_section(out, "machine", brim_tr("Machine"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  brim_ui_put_pair(out, brim_tr("Device"), r->device);
  brim_ui_put_pair(out, brim_tr("Backend"), r->backend);
  brim_ui_put_pair(out, brim_tr("Library"), r->library);
  brim_ui_put_pair(out, brim_tr("Device id"), r->device_id);
  brim_ui_put_pair(out, brim_tr("CPU"), r->cpu);
  if (r->cores > 0) snprintf(text, sizeof text, brim_tr("%d, %d used"), r->cores, r->threads);
  brim_ui_put_pair(out, brim_tr("Cores"), text);
  text[0] = '\0';
  if (r->total_bytes > 0) bytes_text(r->total_bytes, text);
  brim_ui_put_pair(out, brim_tr("Memory"), text);
  text[0] = '\0';
  if (r->free_bytes > 0) bytes_text(r->free_bytes, text);
  brim_ui_put_pair(out, brim_tr("Free at the start"), text);
  text[0] = '\0';
  if (r->power_limit_w > 0) snprintf(text, sizeof text, "%.0f W", r->power_limit_w);
  brim_ui_put_pair(out, brim_tr("Power limit"), text);
  text[0] = '\0';
  if (r->clock_max_mhz > 0) snprintf(text, sizeof text, "%.0f MHz", r->clock_max_mhz);
  brim_ui_put_pair(out, brim_tr("Highest clock"), text);
  put_machine_ceilings(&r->ceilings, out);
  brim_ui_put_pair(out, brim_tr("Host"), r->host);
  brim_ui_put_pair(out, brim_tr("System"), r->os);
  brim_ui_put_pair(out, brim_tr("Workload"), r->workload);
  brim_ui_put_pair(out, brim_tr("Task"), r->description);
  brim_str_append(out, "</dl>\n");
  brim_ui_put_command(out, command);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

static void put_page_header(const brim_ui_result_set *set, const char *title, brim_str *out) {
  brim_str_append(out, "<header>");
  if (set->shown && strcmp(title, "brim bench") != 0) {
    brim_str_append(out, "<p class=\"brand\">brim bench</p>");
  }
  brim_ui_put(out, "h1", title);
  if (set->shown) {
    const brim_result *r = set->shown;
    double begun = set->results[0].when_s;
    brim_str_append(out, "<p class=\"sub\">");
    if (r->device[0]) {
      brim_ui_put(out, "span", r->device);
      brim_str_append(out, " ");
    }
    brim_str_append(out, "<span>");
    brim_str_printf(out, set->count == 1 ? brim_tr("%zu setting") : brim_tr("%zu settings"),
                    set->count);
    brim_str_append(out, "</span>");
    if (!isnan(begun)) {
      char when[32];
      brim_clock_iso8601(begun, when);  // 2026-11-15T02:20:29Z
      if (strlen(when) >= 19) when[10] = ' ', when[19] = '\0';
      brim_str_append(out, " <span>");
      brim_str_printf(out, brim_tr("begun %s UTC"), when);
      brim_str_append(out, "</span>");
    }
    brim_str_append(out, "</p>");
  }
  brim_str_append(out, "</header>\n");
}

static brim_status put_body(const brim_ui_result_set *set, const brim_ui_report_options *options,
                            brim_str *out) {
  report_picks(set, options, out);
  if (set->count == 0) return BRIM_OK;
  report_findings(set, options->own, out);
  if (options->advice) report_advice(options->advice, out);
  BRIM_TRY(put_charts(set, out));
  BRIM_TRY(put_phases(set, out));
  BRIM_TRY(put_utilisation(set, out));
  brim_ui_report_scaling(options, out);
  report_views(options, out);
  put_heat(set, out);
  report_table(set, out);
  put_plan(set, out);
  put_machine(set->shown, options->command, out);
  return BRIM_OK;
}

brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out) {
  brim_ui_result_set set;
  brim_str body;
  brim_str_init(&body);
  set_init(&set, options->picks, results, count);
  char description[192];
  const char *title = options->title ? options->title
                      : set.shown && set.shown->description[0]
                          ? brim_ui_description(set.shown->description, description)
                          : "brim bench";
  brim_status status = put_body(&set, options, &body);
  if (!status) status = brim_str_status(&body);
  static const char *const styles[] = {"report/report.css", NULL};
  const brim_ui_link links[] = {
      {"findings", brim_tr("Findings")},     {"before", brim_tr("Before training")},
      {"charts", brim_tr("Charts")},         {"phases", brim_tr("Time")},
      {"use", brim_tr("Utilisation")},       {"scaling", brim_tr("Scaling")},
      {"tables", brim_tr("Tables")},         {"map", brim_tr("Two knobs")},
      {"settings", brim_tr("All settings")}, {"plan", brim_tr("Memory plan")},
      {"machine", brim_tr("Machine")},
  };
  brim_ui_put_head(title, styles, out);
  brim_str_append(out, "<body>\n");
  put_page_header(&set, title, out);
  if (count > 0) brim_ui_put_nav(&body, links, sizeof links / sizeof *links, out);
  brim_str_append(out, "<main>\n");
  brim_str_append_n(out, body.data, body.len);
  brim_str_printf(out,
                  "</main>\n<footer>brim %s</footer>\n<div id=\"tip\" hidden=\"hidden\"></div>\n",
                  BRIM_VERSION);
  brim_ui_put_scripts((const char *[]){"report/report.js", NULL}, out);
  brim_str_append(out, "</body>\n</html>\n");
  brim_str_deinit(&body);
  return status ? status : brim_str_status(out);
}
