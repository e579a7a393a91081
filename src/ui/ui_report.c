// The HTML report of a bench: one page that needs no network and no other file; light or dark by the reader's
// preference, and fit for paper. Everything is there without a script; the script (web/report/report.js) sorts the
// table, redraws the heat map and shows values under the pointer. ui_report_charts.c has the charts.

#include "ui/ui_report_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"

//------------------------------------- settings and metrics -------------------------------------
// What the report looks at: which knobs span the charts, how settings are named, and the metrics.

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

static void view_init(brim_ui_view *view, const brim_recommendation *picks,
                      const brim_result *results, size_t count) {
  *view =
      (brim_ui_view){.results = results, .count = count, .gpu = brim_ui_any_gpu(results, count)};
  view->picks = *picks;
  view->picks.highest = within(picks->highest, count);
  view->picks.efficient = within(picks->efficient, count);
  view->picks.recommended = within(picks->recommended, count);
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

//--------------------------------- recommendation and findings ---------------------------------
// The top of the report: the recommendation with the two other picks, the findings with their prices,
// and what is left to do before training.

//---------------------------------- recommendation ----------------------------------

static void put_stat(const char *name, const char *value, const char *more, brim_str *out) {
  brim_str_append(out, "<div>");
  brim_ui_put(out, "dt", name);
  brim_ui_put(out, "dd", value);
  if (more[0]) brim_ui_put(out, "small", more);
  brim_str_append(out, "</div>\n");
}

static void put_rate_stat(const brim_result *r, brim_str *out) {
  char text[96], more[96] = "", low[32], high[32];
  brim_ui_number(r->samples_per_s, low);
  snprintf(text, sizeof text, "%s %s/s", low, brim_tr(brim_result_unit(r)));
  if (r->repeats == 1) {
    snprintf(more, sizeof more, "%s", brim_tr("measured once"));
  } else if (brim_ui_interval_tells(r->samples_per_s_low, r->samples_per_s_high)) {
    brim_ui_number(r->samples_per_s_low, low);
    brim_ui_number(r->samples_per_s_high, high);
    snprintf(more, sizeof more, brim_tr("95 %%: %s to %s"), low, high);
  }
  put_stat(brim_tr("Throughput"), text, more, out);
}

static void put_memory_stat(const brim_result *r, brim_str *out) {
  char text[32], more[96] = "";
  double share = brim_result_memory(r) / r->free_bytes * 100;
  brim_ui_bytes_text(brim_result_memory(r), text);
  if (share < 0.1) {
    snprintf(more, sizeof more, "%s", brim_tr("under 0.1 % of what is free"));
  } else if (isfinite(share)) {
    snprintf(more, sizeof more, brim_tr("%.1f %% of what is free"), brim_shown(share));
  }
  put_stat(brim_tr("Memory planned"), text, more, out);
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
    brim_ui_number(r->joules_per_sample * 1e3, number);
    snprintf(text, sizeof text, "%s mJ", number);
    put_stat(brim_tr("Energy per sample"), text, "", out);
  }
  brim_str_append(out, "</dl>\n");
}

static void put_setting(const brim_ui_view *view, const brim_result *r, brim_str *out) {
  brim_str_append(out, "<p class=\"setting\">");
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_ui_knob_shown(view->results, view->count, r->knobs[i].name)) continue;
    brim_str_append(out, "<span>");
    brim_ui_escape_html(out, brim_ui_knob_label(r, r->knobs[i].name));
    brim_str_append(out, " <b>");
    brim_ui_escape_html(out, r->knobs[i].value);
    brim_str_append(out, "</b></span> ");
  }
  brim_str_append(out, "</p>\n");
}

// How another pick stands to the recommended one.
static void put_against(const brim_result *r, const brim_result *recommended, brim_str *out) {
  char text[128];
  double rate = (r->samples_per_s / recommended->samples_per_s - 1) * 100;
  double memory = brim_result_memory(r) / brim_result_memory(recommended);
  if (!isfinite(rate) || !isfinite(memory)) return;
  snprintf(text, sizeof text,
           brim_tr("%+.1f %% throughput, %.2f times the memory of the recommended setting"),
           brim_shown(rate), brim_shown(memory));
  brim_ui_put(out, "p", text);
}

static void put_card(const brim_ui_view *view, const char *title, int index, bool efficiency,
                     brim_str *out) {
  if (index < 0) return;
  const brim_result *r = &view->results[index];
  int best = view->picks.recommended;
  char number[32], text[96];
  brim_str_append(out, "<div class=\"card\">");
  brim_ui_put(out, "h3", title);
  put_setting(view, r, out);
  if (efficiency) {
    brim_ui_number(r->samples_per_s / (brim_result_memory(r) / 1e9), number);
    snprintf(text, sizeof text, "%s %s/s/GB", number, brim_tr(brim_result_unit(r)));
  } else {
    brim_ui_number(r->samples_per_s, number);
    snprintf(text, sizeof text, "%s %s/s", number, brim_tr(brim_result_unit(r)));
  }
  brim_str_append(out, "<p class=\"figure\">");
  brim_ui_escape_html(out, text);
  // The fastest may be one that is not to be trusted.
  if (!r->stable || r->throttled) {
    brim_str_append(out, ", <span class=\"warn\">");
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</p>");
  if (index == best) {
    brim_ui_put(out, "p", brim_tr("This is the recommended setting."));
  } else if (best >= 0) {
    put_against(r, &view->results[best], out);
  }
  brim_str_append(out, "</div>\n");
}

// Predicted against achieved, and over how much.
static void put_verified(const brim_verification *v, const char *unit, brim_str *out) {
  char predicted[32], achieved[32], time[32], cap[32], steps[32];
  brim_ui_number(v->predicted.value, predicted);
  brim_ui_number(v->achieved, achieved);
  brim_ui_number((double)v->steps, steps);
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

// What the recommended setting gains over the config's own, why it is recommended, and what is faster but
// changes learning: the lines of the terminal.
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

static void put_hero(const brim_ui_view *view, const brim_ui_report_options *options,
                     brim_str *out) {
  const brim_result *r = &view->results[view->picks.recommended];
  bool provisional = view->picks.provisional;
  brim_str_printf(out, "<div class=\"hero%s\"><h2>", provisional ? " provisional" : "");
  brim_ui_escape_html(out, brim_ui_pick_title(&view->picks));
  if (provisional) {
    brim_str_append(out, " <span class=\"warn\">");
    brim_ui_escape_html(out, brim_tr("(provisional: another may be faster)"));
    brim_str_append(out, "</span>");
  }
  brim_str_append(out, "</h2>");
  put_setting(view, r, out);
  put_decision(&view->picks, out);
  put_stats(r, out);
  if (options->verified) put_verified(options->verified, brim_result_unit(r), out);
  brim_str_append(out, "</div>\n");
}

static void report_picks(const brim_ui_view *view, const brim_ui_report_options *options,
                         brim_str *out) {
  char doubts[BRIM_UI_DOUBTS][256];
  size_t doubtful = brim_ui_doubts(view->results, view->count, doubts);
  brim_str_append(out, "<section id=\"best\">");
  for (size_t i = 0; i < doubtful; i++) {
    brim_str_append(out, "<p class=\"warn\">");
    brim_ui_escape_html(out, doubts[i]);
    brim_str_append(out, "</p>\n");
  }
  if (view->picks.recommended >= 0) {
    put_hero(view, options, out);
  } else {
    brim_ui_put(out, "h2", brim_tr("Optimal configuration"));
    brim_ui_put(out, "p", brim_ui_why_nothing(view->results, view->count));
    const char *message = view->count && !brim_ui_any_ran(view) ? view->results[0].message : "";
    if (message[0]) {
      brim_str_append(out, "<p class=\"bad\">");
      brim_ui_escape_html(out, message);
      brim_str_append(out, "</p>\n");
    }
  }
  brim_str_append(out, "<div class=\"cards\">\n");
  put_card(view, brim_tr("Highest throughput"), view->picks.highest, false, out);
  put_card(view, brim_tr("Best efficiency"), view->picks.efficient, true, out);
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
    double share = f->cost_ms / r->total_ms.median * 100;  // beyond it: not within the step
    if (share < 100) brim_str_printf(out, ", %.0f %%", brim_shown(share));
    brim_ui_escape_html(out, brim_ui_estimated(f));
  }
  brim_str_append(out, "</span><div>");
  brim_ui_put_finding_text(f, out);
  brim_str_append(out, "</div></li>\n");
}

// What there is to say of one setting, under its name.
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

static size_t count_throttled(const brim_ui_view *view) {
  size_t n = 0;
  for (size_t i = 0; i < view->count; i++) {
    n += brim_result_ran(&view->results[i]) && view->results[i].throttled;
  }
  return n;
}

// Of the recommended setting and, where they are others, of the fastest and of the config's own.
static void report_findings(const brim_ui_view *view, const brim_result *own, brim_str *out) {
  const brim_recommendation picks = view->picks;
  size_t throttled = count_throttled(view);
  bool recommended = brim_ui_has_findings(view->results, view->count, picks.recommended);
  bool highest = picks.highest != picks.recommended &&
                 brim_ui_has_findings(view->results, view->count, picks.highest);
  if (own && (!brim_result_ran(own) || own == &view->results[0] + picks.recommended ||
              (highest && own == &view->results[0] + picks.highest))) {
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
    put_list(brim_tr("Recommended for training"), &view->results[picks.recommended], NULL, out);
  }
  if (highest) {
    put_list(brim_tr("Highest throughput"), &view->results[picks.highest], NULL, out);
  }
  if (own) put_list(brim_tr("The config's own setting"), own, &view->picks, out);
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

//-------------------------------------------- table --------------------------------------------
// The table of all settings: every knob that is worth showing, every metric that any setting knows.
// It is also where the page's script takes its numbers from: a cell's data-v where its text is not
// the number itself.

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
  const brim_ui_metric *metrics[64];
  size_t metric_count;
  const brim_result *first;
} columns;

static void choose_columns(const brim_ui_view *view, columns *c) {
  const brim_result *first = &view->results[0];
  size_t n;
  const brim_ui_metric *all = brim_ui_metrics(&n);
  *c = (columns){.first = first};
  for (size_t k = 0; k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (brim_ui_knob_shown(view->results, view->count, name)) c->knobs[c->knob_count++] = name;
  }
  for (size_t i = 0; i < n && c->metric_count < 64; i++) {
    if (brim_ui_metric_known(view, &all[i])) c->metrics[c->metric_count++] = &all[i];
  }
}

static void put_head(const columns *c, brim_str *out) {
  // the status stands where it is seen without scrolling
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
    const brim_ui_metric *m = c->metrics[i];
    char rate[64];
    const char *header = brim_tr(m->header);
    if (strcmp(m->key, "rate") == 0) header = brim_ui_rate_heading(c->first, 1, rate);
    put_header("data-key", m->key, header, brim_tr(m->label), out);
  }
  brim_str_append(out, "</tr></thead>\n");
}

static void put_metric(const brim_ui_metric *metric, const brim_result *r, brim_str *out) {
  double value = brim_ui_metric_value(metric, r);
  char text[32];
  brim_ui_metric_text(metric, value, text);
  // "1.5 GiB" and "1.23 M" are not read back by a script; "12,345" and "36.4" are.
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
    char words[160] = "", why[160];
    brim_words_put_list(words, sizeof words, r->throttle);
    brim_words_text(words, why, sizeof why);
    brim_ui_put_attribute(out, "title", why);
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

static void put_row(const brim_ui_view *view, const columns *c, size_t index, brim_str *out) {
  const brim_result *r = &view->results[index];
  bool best = (int)index == view->picks.recommended;
  const char *kind = best ? " class=\"best\"" : r->failure ? " class=\"failed\"" : "";
  brim_str_printf(out, "<tr id=\"r%zu\"%s>", index, kind);
  for (size_t k = 0; k < c->knob_count; k++) {
    const char *value = brim_ui_knob_value(r, c->knobs[k]);
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
static void put_reason(const brim_ui_view *view, size_t index, brim_str *out) {
  const brim_result *r = &view->results[index];
  char name[BRIM_UI_GROUP_NAME];
  size_t more = 0;
  for (size_t k = 0; k < index; k++) {
    if (same_failure(&view->results[k], r)) return;  // said already
  }
  for (size_t k = index + 1; k < view->count; k++) more += same_failure(&view->results[k], r);
  brim_ui_setting_name(view, r, name);
  brim_str_append(out, "<li><span>");
  brim_ui_escape_html(out, name);
  if (more) brim_str_printf(out, brim_tr(" and %zu more"), more);
  brim_str_printf(out, "</span> <span class=\"%s\">", status_class(r));
  brim_ui_escape_html(out, brim_ui_failure_text(r));
  brim_str_append(out, "</span> ");
  brim_ui_escape_html(out, r->message);
  brim_str_append(out, "</li>\n");
}

// Why settings have no numbers, each reason once.
static void put_failures(const brim_ui_view *view, brim_str *out) {
  size_t failed = 0;
  for (size_t i = 0; i < view->count; i++) failed += view->results[i].failure != BRIM_FAILURE_NONE;
  if (failed == 0) return;
  brim_str_append(out, "<details open=\"open\"><summary>");
  brim_str_printf(
      out, failed == 1 ? brim_tr("%zu setting did not run") : brim_tr("%zu settings did not run"),
      failed);
  brim_str_append(out, "</summary>\n<ul class=\"why\">\n");
  for (size_t i = 0; i < view->count; i++) {
    if (view->results[i].failure != BRIM_FAILURE_NONE) put_reason(view, i, out);
  }
  brim_str_append(out, "</ul></details>\n");
}

static void report_table(const brim_ui_view *view, brim_str *out) {
  columns c;
  choose_columns(view, &c);
  brim_ui_put_section(
      out, "settings", brim_tr("All settings"),
      brim_tr("Times are per step; phases add up to the total. A dash marks an unknown value."));
  brim_str_append(out, "<div class=\"tools js\">");
  brim_ui_escape_html(out, brim_tr("Click a heading to sort."));
  brim_str_append(out, "</div>\n");
  brim_str_append(out, "<div class=\"scroll tall\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("All settings"));
  brim_str_append(out, "><table class=\"all\" id=\"all\">\n");
  put_head(&c, out);
  brim_str_append(out, "<tbody>\n");
  for (size_t i = 0; i < view->count; i++) put_row(view, &c, i, out);
  brim_str_append(out, "</tbody></table></div>\n");
  put_failures(view, out);
  brim_str_append(out, "</section>\n");
}

//------------------------------------- tables of a workload -------------------------------------
// The report's part that the workload makes: its own tables, as below those of the terminal.

static void put_cell(const brim_view_column *column, bool head, const char *text, brim_str *out) {
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
    put_cell(&v->columns[c], true, v->columns[c].heading, out);
  }
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t r = 0; r < v->row_count; r++) {
    brim_str_append(out, (int)r == v->marked ? "<tr class=\"best\">" : "<tr>");
    for (size_t c = 0; c < v->column_count; c++) {
      put_cell(&v->columns[c], false, v->cells[r][c], out);
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

//---------------------------------- charts ----------------------------------

static brim_status put_charts(const brim_ui_view *view, brim_str *out) {
  if (!view->x || !brim_ui_any_ran(view)) return BRIM_OK;
  brim_ui_put_section(out, "charts", brim_tr("Throughput and memory"), NULL);
  BRIM_TRY(brim_ui_report_charts(view, out));
  brim_str_append(out, "</section>\n");
  return BRIM_OK;
}

static brim_status put_utilisation(const brim_ui_view *view, brim_str *out) {
  const brim_ui_rung *rungs[BRIM_UI_MAX_RUNGS];
  const brim_result *r = view->shown;
  bool ceilings = r->data_samples_per_s > 0 || r->compute_samples_per_s > 0;
  if (brim_ui_rungs(view, rungs) == 0 && !ceilings) return BRIM_OK;
  brim_ui_put_section(out, "use", brim_tr("How well the machine is used"), NULL);
  brim_str_append(out, "<div class=\"charts\">\n<div class=\"column\">\n");
  brim_ui_report_ladder(view, out);
  brim_ui_report_ceilings(view, out);
  brim_str_append(out, "</div>\n");
  BRIM_TRY(brim_ui_report_ladder_chart(view, out));
  brim_str_append(out, "</div>\n</section>\n");
  return BRIM_OK;
}

//---------------------------------- machine ----------------------------------

// What the machine can do at best, in the units its makers use: powers of ten.
static void put_best(const brim_machine_ceilings *c, brim_str *out) {
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
    brim_ui_number(rows[i].value / rows[i].unit, number);
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
  if (r->total_bytes > 0) brim_ui_bytes_text(r->total_bytes, text);
  brim_ui_put_pair(out, brim_tr("Memory"), text);
  text[0] = '\0';
  if (r->free_bytes > 0) brim_ui_bytes_text(r->free_bytes, text);
  brim_ui_put_pair(out, brim_tr("Free at the start"), text);
  text[0] = '\0';
  if (r->power_limit_w > 0) snprintf(text, sizeof text, "%.0f W", r->power_limit_w);
  brim_ui_put_pair(out, brim_tr("Power limit"), text);
  text[0] = '\0';
  if (r->clock_max_mhz > 0) snprintf(text, sizeof text, "%.0f MHz", r->clock_max_mhz);
  brim_ui_put_pair(out, brim_tr("Highest clock"), text);
  put_best(&r->ceilings, out);
  brim_ui_put_pair(out, brim_tr("Host"), r->host);
  brim_ui_put_pair(out, brim_tr("System"), r->os);
  brim_ui_put_pair(out, brim_tr("Workload"), r->workload);
  brim_ui_put_pair(out, brim_tr("Task"), r->description);
  brim_str_append(out, "</dl>\n");
  brim_ui_put_command(out, command);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

// Links to the sections that the page has.
static void put_nav(const brim_str *body, brim_str *out) {
  const char *const links[][2] = {
      {"findings", brim_tr("Findings")},     {"before", brim_tr("Before training")},
      {"charts", brim_tr("Charts")},         {"phases", brim_tr("Time")},
      {"use", brim_tr("Utilisation")},       {"scaling", brim_tr("Scaling")},
      {"tables", brim_tr("Tables")},         {"map", brim_tr("Two knobs")},
      {"settings", brim_tr("All settings")}, {"plan", brim_tr("Memory plan")},
      {"machine", brim_tr("Machine")},
  };
  brim_str_append(out, "<nav>");
  for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
    char section[48];
    snprintf(section, sizeof section, "<section id=\"%s\">", links[i][0]);
    if (!strstr(body->data, section)) continue;
    brim_str_printf(out, "<a href=\"#%s\">", links[i][0]);
    brim_ui_escape_html(out, links[i][1]);
    brim_str_append(out, "</a>");
  }
  brim_str_append(out, "</nav>\n");
}

static void report_put_header(const brim_ui_view *view, const char *title, brim_str *out) {
  brim_str_append(out, "<header>");
  if (view->shown && strcmp(title, "brim bench") != 0) {
    brim_str_append(out, "<p class=\"brand\">brim bench</p>");
  }
  brim_ui_put(out, "h1", title);
  if (view->shown) {
    const brim_result *r = view->shown;
    double begun = view->results[0].when_s;
    brim_str_append(out, "<p class=\"sub\">");
    if (r->device[0]) {
      brim_str_append(out, "<span>");
      brim_ui_escape_html(out, r->device);
      brim_str_append(out, "</span> ");
    }
    brim_str_append(out, "<span>");
    brim_str_printf(out, view->count == 1 ? brim_tr("%zu setting") : brim_tr("%zu settings"),
                    view->count);
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

static brim_status put_body(const brim_ui_view *view, const brim_ui_report_options *options,
                            brim_str *out) {
  report_picks(view, options, out);
  if (view->count == 0) return BRIM_OK;
  report_findings(view, options->own, out);
  if (options->advice) report_advice(options->advice, out);
  BRIM_TRY(put_charts(view, out));
  BRIM_TRY(brim_ui_report_phases(view, out));
  BRIM_TRY(put_utilisation(view, out));
  brim_ui_report_scaling(options, out);
  report_views(options, out);
  brim_ui_report_heat(view, out);
  report_table(view, out);
  brim_ui_report_plan(view, out);
  put_machine(view->shown, options->command, out);
  return BRIM_OK;
}

brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out) {
  brim_ui_view view;
  brim_str body;
  brim_str_init(&body);
  view_init(&view, options->picks, results, count);
  char what[192];
  const char *title = options->title ? options->title
                      : view.shown && view.shown->description[0]
                          ? brim_ui_description(view.shown->description, what)
                          : "brim bench";
  brim_status status = put_body(&view, options, &body);
  if (!status) status = brim_str_status(&body);
  static const char *const styles[] = {"report/report.css", NULL};
  brim_ui_put_head(title, styles, out);
  brim_str_append(out, "<body>\n");
  report_put_header(&view, title, out);
  if (count > 0) put_nav(&body, out);
  brim_str_append(out, "<main>\n");
  brim_str_append_n(out, body.data, body.len);
  brim_str_printf(out,
                  "</main>\n<footer>brim %s</footer>\n<div id=\"tip\" hidden=\"hidden\"></div>\n",
                  BRIM_VERSION);
  brim_ui_put_asset("script", "report/report.js", out);
  brim_str_append(out, "</body>\n</html>\n");
  brim_str_deinit(&body);
  return status ? status : brim_str_status(out);
}
