// Steps of the polynomial workload: points of a cubic, drawn by seed and step, and one gradient.
#include "workload/poly/poly.h"

#include <math.h>
#include <string.h>

#include "hd/hd_philox.h"
#include "workload/poly/poly_rows.h"

static double target(double x) { return 1 - 2 * x + 3 * x * x * x; }

static double value_at(const poly *p, double x) {
  double y = 0;
  for (int64_t k = p->degree; k >= 0; k--) y = y * x + p->now.c[k];
  return y;
}

static brim_status poly_open(const brim_work_context *context, const brim_config *config,
                             void **work) {
  (void)context;
  poly *p = (poly *)brim_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  p->config = config;
  p->degree = brim_config_int(config, "poly.degree");
  p->points = brim_config_int(config, "poly.fit_points");
  p->slice = brim_config_int(config, "poly.fit_slice");
  p->iterations = brim_config_int(config, "poly.iterations");
  p->interval = brim_config_int(config, "poly.interval");
  p->grid = brim_config_int(config, "poly.grid");
  p->rate = brim_config_float(config, "poly.rate");
  p->seed = brim_config_int(config, "seed");
  p->lowest = (double)NAN;
  snprintf(p->description, sizeof p->description, "polynomial of degree %d", (int)p->degree);
  poly_make_knobs(p);
  *work = p;
  return BRIM_OK;
}

static void poly_close(void *work) { brim_free(work); }

static size_t poly_knobs(void *work, const brim_knob **out) {
  *out = ((poly *)work)->knobs;
  return POLY_KNOBS;
}

static bool poly_sensible(void *work, const brim_setting *setting) {
  (void)work;
  return setting->value[POLY_SLICE] <= setting->value[POLY_POINTS];
}

static brim_status poly_plan(void *work, const brim_setting *setting, brim_plan *out) {
  const poly *p = (const poly *)work;
  memset(out, 0, sizeof *out);
  uint64_t bytes = (uint64_t)(p->degree + 1) * sizeof(double);
  out->rows[out->row_count++] = (brim_plan_row){"parameters", BRIM_PLACE_HOST, bytes};
  out->bytes[BRIM_PLACE_HOST] = bytes;
  out->parameter_count = (uint64_t)(p->degree + 1);
  out->samples_per_step = (double)setting->value[POLY_POINTS];
  out->flops_per_step = out->samples_per_step * 4 * (double)(p->degree + 1);
  out->bytes_per_step = (double)NAN;
  return BRIM_OK;
}

static void poly_resuming(void *work, const json_t *metadata) { (void)work, (void)metadata; }

static brim_status poly_configure(void *work, const brim_setting *setting) {
  poly *p = (poly *)work;
  memset(&p->now, 0, sizeof p->now);
  p->points = setting->value[POLY_POINTS];
  p->slice = setting->value[POLY_SLICE];
  return BRIM_OK;
}

static void poly_info(void *work, brim_work_info *out) {
  const poly *p = (const poly *)work;
  memset(out, 0, sizeof *out);
  out->unit = "points";
  out->set_samples = out->samples_per_epoch = p->points * p->interval;
  out->steps_per_epoch = p->interval;
  out->epochs = (p->iterations + p->interval - 1) / p->interval;
  out->steps = p->iterations;
  out->eval_samples = p->grid;
  out->learning_rate = p->rate;
  out->description = p->description;
  out->reads_often = true;
}

static void poly_stops(void *work, const volatile sig_atomic_t *stop) {
  ((poly *)work)->stop = stop;
}

// Adds the sums of a slice in the order of its points, so that the size of a slice changes no bit.
static void add_slice(poly *p, int64_t first, int64_t last, double *gradient, double *squares) {
  uint64_t key = brim_rng_key((uint64_t)p->seed, 7);
  for (int64_t i = first; i < last; i++) {
    brim_philox4 bits = brim_philox(key, (uint64_t)p->now.step, (uint64_t)i);
    double x = 2 * (double)brim_rng_uniform(bits.v[0]) - 1, power = 1;
    double off = value_at(p, x) - target(x);
    *squares += off * off;
    for (int64_t k = 0; k <= p->degree; k++, power *= x) gradient[k] += 2 * off * power;
  }
}

static brim_status poly_step(void *work, const brim_spans *spans, brim_step_info *out) {
  poly *p = (poly *)work;
  double gradient[POLY_TERMS] = {0}, squares = 0, length = 0;
  memset(out, 0, sizeof *out);
  if (p->stop && *p->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  brim_span_begin(spans, BRIM_PHASE_COMPUTE, "fit");
  for (int64_t first = 0; first < p->points; first += p->slice) {
    int64_t last = first + p->slice < p->points ? first + p->slice : p->points;
    add_slice(p, first, last, gradient, &squares);
  }
  for (int64_t k = 0; k <= p->degree; k++) {
    p->now.c[k] -= p->rate * gradient[k] / (double)p->points;
    length += gradient[k] * gradient[k];
  }
  brim_span_end(spans, BRIM_PHASE_COMPUTE, "fit");
  p->now.slope = sqrt(length) / (double)p->points;
  p->now.sums[POLY_SUM_SQUARES] += squares;
  p->now.sums[POLY_SUM_POINTS] += (double)p->points;
  out->samples = p->points;
  out->epoch = p->now.step / p->interval;
  out->step = ++p->now.step;
  out->lr = p->rate;
  out->epoch_end = p->now.step % p->interval == 0 || p->now.step == p->iterations;
  return BRIM_OK;
}

static void no_figures(brim_work_metrics *out) {
  memset(out, 0, sizeof *out);
  out->set = &poly_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
}

static void poly_figures(void *work, const double *sums, double *values) {
  (void)work;
  double points = sums[POLY_SUM_POINTS];
  values[POLY_MISFIT] = points > 0 ? sums[POLY_SUM_SQUARES] / points : (double)NAN;
}

static brim_status poly_metrics(void *work, bool reset, brim_work_metrics *out) {
  poly *p = (poly *)work;
  no_figures(out);
  memcpy(out->sums, p->now.sums, sizeof p->now.sums);
  poly_figures(p, out->sums, out->values);
  out->values[POLY_SLOPE] = p->now.slope;
  out->samples = (int64_t)p->now.sums[POLY_SUM_POINTS];
  if (reset) memset(p->now.sums, 0, sizeof p->now.sums);
  return BRIM_OK;
}

static brim_status poly_evaluate(void *work, brim_work_metrics *out) {
  poly *p = (poly *)work;
  double squares = 0, farthest = 0;
  if (p->grid == 0) return brim_fail(BRIM_ESTATE, "nothing to evaluate: poly.grid is 0");
  no_figures(out);
  for (int64_t i = 0; i < p->grid; i++) {
    double x = p->grid > 1 ? 2 * (double)i / (double)(p->grid - 1) - 1 : 0;
    double off = value_at(p, x) - target(x);
    squares += off * off;
    farthest = fmax(farthest, fabs(off));
  }
  out->values[POLY_MISFIT] = squares / (double)p->grid;
  out->values[POLY_FARTHEST] = farthest;
  out->samples = p->grid;
  return BRIM_OK;
}

static brim_status poly_snapshot(void *work) {
  poly *p = (poly *)work;
  p->kept = p->now;
  return BRIM_OK;
}

static brim_status poly_restore(void *work) {
  poly *p = (poly *)work;
  p->now = p->kept;
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {poly_evaluate, poly_use};

static const brim_work_text_table text = {.start_lines = poly_start_lines,
                                          .eval_notes = poly_eval_notes};

const brim_workload_table poly_workload = {
    .name = "poly",
    .length_key = "poly.iterations",
    .without_eval = "poly.grid=0",
    .options = &poly_options,
    .option_count = 1,
    .section = &poly_section,
    .korean = poly_korean,
    .korean_count = POLY_KOREAN,
    .knob_set = &poly_knob_set,
    .metric_set = &poly_set,
    .sums = &poly_sums,
    .diagnosis = &poly_diagnosis,
    .open = poly_open,
    .close = poly_close,
    .knobs = poly_knobs,
    .sensible = poly_sensible,
    .plan = poly_plan,
    .resuming = poly_resuming,
    .configure = poly_configure,
    .info = poly_info,
    .step = poly_step,
    .stops = poly_stops,
    .metrics = poly_metrics,
    .figures = poly_figures,
    .save = poly_save,
    .load = poly_load,
    .snapshot = poly_snapshot,
    .restore = poly_restore,
    .text = &text,
    .evaluation = &evaluation,
};
