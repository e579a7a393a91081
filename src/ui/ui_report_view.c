// What the report looks at: which knobs span the charts, how settings are named, and the metrics.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

//---------------------------------- view ----------------------------------

bool brim_ui_any_ran(const brim_ui_view *view) {
  for (size_t i = 0; i < view->count; i++) {
    if (brim_result_ran(&view->results[i])) return true;
  }
  return false;
}

const char *brim_ui_knob_value(const brim_result *result, const char *knob) {
  const brim_result_knob *k = knob ? brim_result_knob_find(result, knob) : NULL;
  return k ? k->value : "";
}

void brim_ui_knob_text(const brim_result *of, const char *knob, const char *value, char out[80]) {
  if (!value[0]) value = BRIM_UI_DASH;
  if (brim_ui_knob_is(of, knob, BRIM_ROLE_PRECISION)) {  // its values say what it is
    snprintf(out, 80, "%s", value);
  } else {
    snprintf(out, 80, "%s %s", brim_ui_knob_label(of, knob), value);
  }
}

// An axis needs numbers above 0: it is logarithmic.
static bool has_numbers(const brim_ui_view *view, const char *knob) {
  for (size_t i = 0; i < view->count; i++) {
    const brim_result_knob *k = brim_result_knob_find(&view->results[i], knob);
    if (!k || !(k->number > 0)) return false;
  }
  return view->count > 0;
}

static const char *pick_x(const brim_ui_view *view) {
  if (view->count == 0) return NULL;
  const brim_result *first = &view->results[0];
  const brim_result_knob *batch = brim_result_knob_as(first, BRIM_ROLE_BATCH);
  if (batch && has_numbers(view, batch->name)) return batch->name;
  for (size_t k = 0; k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (brim_result_knob_varies(view->results, view->count, name) && has_numbers(view, name)) {
      return name;
    }
  }
  return NULL;
}

// The knob of that role where it was swept, else the first other one that was.
static const char *pick_line(const brim_ui_view *view, brim_knob_role preferred,
                             const char *taken) {
  const brim_result *first = view->count ? &view->results[0] : NULL;
  const char *other = NULL;
  for (size_t k = 0; first && k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (!brim_result_knob_varies(view->results, view->count, name)) continue;
    if ((view->x && strcmp(name, view->x) == 0) || (taken && strcmp(name, taken) == 0)) continue;
    if (brim_ui_knob_is(first, name, preferred)) return name;
    if (!other && !brim_ui_knob_is(first, name, BRIM_ROLE_PRECISION)) other = name;
  }
  return other;
}

static int within(int index, size_t count) {
  return index >= 0 && (size_t)index < count ? index : -1;
}

void brim_ui_view_init(brim_ui_view *view, brim_ui_picks picks, const brim_result *results,
                       size_t count) {
  *view =
      (brim_ui_view){.results = results, .count = count, .gpu = brim_ui_any_gpu(results, count)};
  view->picks = (brim_ui_picks){within(picks.highest, count), within(picks.efficient, count),
                                within(picks.recommended, count)};
  view->x = pick_x(view);
  view->colour = pick_line(view, BRIM_ROLE_WORKERS, NULL);
  view->dash = pick_line(view, BRIM_ROLE_PRECISION, view->colour);
  int shown = view->picks.recommended >= 0 ? view->picks.recommended : view->picks.highest;
  view->shown = count == 0 ? NULL : &results[shown >= 0 ? shown : 0];
}

size_t brim_ui_knob_values(const brim_ui_view *view, const char *knob, const char **out) {
  double numbers[BRIM_UI_MAX_VALUES];
  size_t n = 0;
  for (size_t i = 0; i < view->count; i++) {
    const brim_result_knob *k = brim_result_knob_find(&view->results[i], knob);
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

static void name_knobs(const brim_ui_view *view, const brim_result *r, const char *skip, bool all,
                       char out[BRIM_UI_GROUP_NAME]) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < r->knob_count; i++) {
    const brim_result_knob *knob = &r->knobs[i];
    char text[80];
    if (skip && strcmp(knob->name, skip) == 0) continue;
    if (!all && !brim_result_knob_varies(view->results, view->count, knob->name)) continue;
    brim_ui_knob_text(r, knob->name, knob->value, text);
    int n = snprintf(out + used, BRIM_UI_GROUP_NAME - used, "%s%s", used ? ", " : "", text);
    if (n < 0 || used + (size_t)n >= BRIM_UI_GROUP_NAME) return;  // cut, as long as it can be
    used += (size_t)n;
  }
}

void brim_ui_group_name(const brim_ui_view *view, const brim_result *result,
                        char out[BRIM_UI_GROUP_NAME]) {
  name_knobs(view, result, view->x ? view->x : "", false, out);
}

void brim_ui_setting_name(const brim_ui_view *view, const brim_result *result,
                          char out[BRIM_UI_GROUP_NAME]) {
  name_knobs(view, result, NULL, false, out);
  if (!out[0]) name_knobs(view, result, NULL, true, out);
}

//---------------------------------- metrics ----------------------------------

static double get_total(const brim_result *r) { return r->total_ms.median; }
static double get_rate(const brim_result *r) { return r->samples_per_s; }
static double get_spread(const brim_result *r) {
  return (r->samples_per_s_high - r->samples_per_s_low) / 2 / r->samples_per_s * 100;
}
static double get_epoch(const brim_result *r) { return r->epoch_s; }
// GB = 1e9 here as in the terminal; sizes are GiB = 2^30 and say so.
static double get_efficiency(const brim_result *r) {
  double memory = brim_result_memory(r);
  return memory > 0 ? r->samples_per_s / (memory / 1e9) : NAN;
}
static double get_tflops(const brim_result *r) {
  return r->plan.flops_per_step / r->total_ms.median / 1e9;
}
static double get_worker_io(const brim_result *r) { return r->worker_io_ms; }
static double get_worker_transform(const brim_result *r) { return r->worker_transform_ms; }
static double get_busy(const brim_result *r) { return r->gpu_busy_ms; }
static double get_kernels(const brim_result *r) { return r->kernels; }
static double get_gpu(const brim_result *r) { return r->gpu_percent; }
static double get_sm(const brim_result *r) { return r->sm_percent; }
static double get_occupancy(const brim_result *r) { return r->occupancy_percent; }
static double get_tensor(const brim_result *r) { return r->tensor_percent; }
static double get_dram(const brim_result *r) { return r->dram_percent; }
static double get_power(const brim_result *r) { return r->power_w; }
static double get_energy(const brim_result *r) { return r->joules_per_sample * 1e3; }
static double get_clock(const brim_result *r) { return r->clock_mhz; }
static double get_temperature(const brim_result *r) { return r->temperature_c; }
static double get_cpu(const brim_result *r) { return r->cpu_percent; }
static double get_planned(const brim_result *r) {
  double bytes = brim_result_memory(r);
  return bytes > 0 ? bytes : NAN;  // a setting that could not be planned has no rows
}
static double get_real(const brim_result *r) { return r->real_bytes; }
static double get_host(const brim_result *r) {
  double bytes = (double)r->plan.bytes[BRIM_PLACE_HOST];
  return brim_result_has_gpu(r) && bytes > 0 ? bytes : NAN;
}
static double get_rss(const brim_result *r) { return r->peak_rss_bytes; }
static double get_data(const brim_result *r) { return r->data_samples_per_s; }
static double get_compute(const brim_result *r) { return r->compute_samples_per_s; }
static double get_steps(const brim_result *r) { return r->steps > 0 ? (double)r->steps : NAN; }
static double get_seconds(const brim_result *r) { return r->seconds; }

#define MS BRIM_UI_UNIT_MS
#define NUMBER BRIM_UI_UNIT_NUMBER
#define WHOLE BRIM_UI_UNIT_WHOLE
#define BYTES BRIM_UI_UNIT_BYTES
#define SECONDS BRIM_UI_UNIT_SECONDS
#define PHASE(id, key, header, label) \
  { key, header, label, MS, BRIM_PHASE_##id, NULL, false, false }

// In the order of seed guide 002's table, with what it does not have in between and after.
static const brim_ui_metric metrics[] = {
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
    {"total", BRIM_N_("Total ms"), BRIM_N_("Time per step"), MS, -1, get_total, false, false},
    {"rate", BRIM_N_("Samples/s"), BRIM_N_("Throughput"), NUMBER, -1, get_rate, false, false},
    {"spread", BRIM_N_("± %"), BRIM_N_("Half of the 95 % interval"), NUMBER, -1, get_spread, false,
     true},
    {"gpu", BRIM_N_("GPU %"), BRIM_N_("GPU busy"), WHOLE, -1, get_gpu, false, false},
    {"sm", BRIM_N_("SM %"), BRIM_N_("SMs active"), WHOLE, -1, get_sm, false, false},
    {"occupancy", BRIM_N_("Occup. %"), BRIM_N_("Occupancy"), WHOLE, -1, get_occupancy, false,
     false},
    {"tensor", BRIM_N_("Tensor %"), BRIM_N_("Tensor cores"), WHOLE, -1, get_tensor, false, false},
    {"dram", BRIM_N_("DRAM %"), BRIM_N_("Device memory"), WHOLE, -1, get_dram, false, false},
    {"power", BRIM_N_("Power W"), BRIM_N_("Power"), WHOLE, -1, get_power, false, false},
    {"cpu", BRIM_N_("CPU %"), BRIM_N_("CPU"), WHOLE, -1, get_cpu, false, false},
    {"memory", BRIM_N_("Mem"), BRIM_N_("Memory planned"), BYTES, -1, get_planned, true, false},
    {"real", BRIM_N_("Mem real"), BRIM_N_("Memory with overhead"), BYTES, -1, get_real, false,
     false},
    {"host", BRIM_N_("Host mem"), BRIM_N_("Host memory planned"), BYTES, -1, get_host, true, true},
    {"rss", BRIM_N_("Peak RSS"), BRIM_N_("Peak RSS"), BYTES, -1, get_rss, false, false},
    {"efficiency", BRIM_N_("S/s/GB"), BRIM_N_("Samples/s per GB"), NUMBER, -1, get_efficiency,
     false, false},
    {"epoch", BRIM_N_("Epoch"), BRIM_N_("One epoch"), SECONDS, -1, get_epoch, false, false},
    {"worker_io", BRIM_N_("Wkr I/O ms"), BRIM_N_("A worker's reading per batch"), MS, -1,
     get_worker_io, false, true},
    {"worker_transform", BRIM_N_("Wkr tr. ms"), BRIM_N_("A worker's transforms per batch"), MS, -1,
     get_worker_transform, false, true},
    {"data", BRIM_N_("Data only"), BRIM_N_("Samples/s of the loader alone"), NUMBER, -1, get_data,
     false, true},
    {"device", BRIM_N_("Compute only"), BRIM_N_("Samples/s of the device alone"), NUMBER, -1,
     get_compute, false, true},
    {"tflops", BRIM_N_("TFLOP/s"), BRIM_N_("Useful arithmetic"), NUMBER, -1, get_tflops, false,
     true},
    {"energy", BRIM_N_("mJ/sample"), BRIM_N_("Energy per sample"), NUMBER, -1, get_energy, false,
     false},
    {"busy", BRIM_N_("Busy ms"), BRIM_N_("Device busy per step, traced"), MS, -1, get_busy, false,
     true},
    {"kernels", BRIM_N_("Kernels"), BRIM_N_("Kernels per step, traced"), WHOLE, -1, get_kernels,
     false, true},
    {"clock", BRIM_N_("MHz"), BRIM_N_("SM clock"), WHOLE, -1, get_clock, false, true},
    {"temperature", BRIM_N_("°C"), BRIM_N_("Temperature"), WHOLE, -1, get_temperature, false, true},
    {"steps", BRIM_N_("Steps"), BRIM_N_("Steps measured"), WHOLE, -1, get_steps, false, true},
    {"seconds", BRIM_N_("Took"), BRIM_N_("Time the trial took"), SECONDS, -1, get_seconds, false,
     true},
};

const brim_ui_metric *brim_ui_metrics(size_t *count) {
  *count = sizeof metrics / sizeof metrics[0];
  return metrics;
}

const brim_ui_metric *brim_ui_metric_find(const char *key) {
  for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
    if (strcmp(metrics[i].key, key) == 0) return &metrics[i];
  }
  return NULL;
}

const char *brim_ui_phase_name(int phase) {
  for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
    if (metrics[i].phase == phase) return brim_tr(metrics[i].label);
  }
  return brim_tr(brim_phase_label((brim_phase)phase));
}

double brim_ui_metric_value(const brim_ui_metric *metric, const brim_result *result) {
  bool ran = result->failure == BRIM_FAILURE_NONE;
  if (!ran && !metric->planned) return NAN;
  if (metric->phase >= 0) {
    return result->phase_used[metric->phase] ? brim_ui_phase_ms(result, metric->phase) : NAN;
  }
  double value = metric->get(result);
  return isfinite(value) ? value : NAN;
}

// The four phases of every step are columns even when they are 0; another only with time in it.
bool brim_ui_metric_known(const brim_ui_view *view, const brim_ui_metric *metric) {
  double least = metric->phase >= 0 && metric->phase != BRIM_PHASE_IO ? 0.005 : -INFINITY;
  for (size_t i = 0; i < view->count; i++) {
    if (brim_ui_metric_value(metric, &view->results[i]) >= least) return true;
  }
  return false;
}

void brim_ui_metric_text(const brim_ui_metric *metric, double value, char out[32]) {
  if (isnan(value)) {
    snprintf(out, 32, "%s", BRIM_UI_DASH);
    return;
  }
  switch (metric->unit) {
    case BRIM_UI_UNIT_MS:
      brim_ui_ms(value, out);
      return;
    case BRIM_UI_UNIT_WHOLE:
      if (fabs(value) >= 999.5) {
        brim_format_count(value, out);
      } else {
        snprintf(out, 32, "%.0f", brim_shown(value));
      }
      return;
    case BRIM_UI_UNIT_BYTES:
      brim_ui_bytes_text(value, out);
      return;
    case BRIM_UI_UNIT_SECONDS:
      brim_format_duration(value, out);
      return;
    case BRIM_UI_UNIT_NUMBER:
    case BRIM_UI_UNIT_COUNT:
      break;
  }
  brim_ui_number(value, out);
}

void brim_ui_bytes_text(double bytes, char out[32]) {
  if (bytes >= 0 && bytes < 1e18) {
    brim_format_bytes((uint64_t)bytes, out);
  } else {
    snprintf(out, 32, "%s", BRIM_UI_DASH);
  }
}

//---------------------------------- ladder ----------------------------------

static double limit_percent(const brim_result *r) {
  (void)r;
  return 100;
}
static double limit_power(const brim_result *r) { return r->power_limit_w; }
static double limit_memory(const brim_result *r) {
  return brim_result_has_gpu(r) ? NAN : r->total_bytes;  // else it is the GPU's
}

// From 'something ran' down to how well it used the device.
static const brim_ui_rung gpu_rungs[] = {
    {"gpu", " %", limit_percent},       {"sm", " %", limit_percent},
    {"occupancy", " %", limit_percent}, {"tensor", " %", limit_percent},
    {"dram", " %", limit_percent},      {"power", " W", limit_power},
};
static const brim_ui_rung cpu_rungs[] = {
    {"cpu", " %", limit_percent},
    {"rss", "", limit_memory},
};

size_t brim_ui_rungs(const brim_ui_view *view, const brim_ui_rung **out) {
  const brim_ui_rung *rungs = view->gpu ? gpu_rungs : cpu_rungs;
  size_t all = view->gpu ? sizeof gpu_rungs / sizeof *rungs : sizeof cpu_rungs / sizeof *rungs;
  size_t n = 0;
  for (size_t i = 0; i < all; i++) {
    if (brim_ui_metric_known(view, brim_ui_metric_find(rungs[i].key))) out[n++] = &rungs[i];
  }
  return n;
}

double brim_ui_rung_share(const brim_ui_rung *rung, const brim_result *result) {
  double value = brim_ui_metric_value(brim_ui_metric_find(rung->key), result);
  double share = value / rung->limit(result) * 100;
  return isfinite(share) ? share : NAN;
}
