// Declarations of the polynomial workload: metrics, knobs, keys, a diagnosis, and their Korean texts.
#include <math.h>
#include <string.h>

#include "workload/poly/poly_rows.h"

enum {
  STEPS = BRIM_METRIC_AT(BRIM_METRIC_STEPS),
  TRAIN = BRIM_METRIC_AT(BRIM_METRIC_TRAIN),
  EVAL = BRIM_METRIC_AT(BRIM_METRIC_EVAL),
  LINES = BRIM_METRIC_AT(BRIM_METRIC_LINE_STEPS) | BRIM_METRIC_AT(BRIM_METRIC_LINE_TRAIN) |
          BRIM_METRIC_AT(BRIM_METRIC_LINE_PROGRESS)
};

static const brim_metric rows[POLY_ROWS] = {
    [POLY_MISFIT] = {.key = "misfit",
                     .label = "misfit",
                     .eval_label = "held-out misfit",
                     .better = BRIM_BETTER_LOWER,
                     .format = BRIM_METRIC_STEADY,
                     .flags = BRIM_METRIC_FINITE,
                     .stages = STEPS | TRAIN | EVAL,
                     .lines = LINES | BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL),
                     .rank = 1},
    [POLY_FARTHEST] = {.key = "farthest",
                       .label = "farthest point",
                       .better = BRIM_BETTER_LOWER,
                       .join = BRIM_METRIC_COMMA,
                       .stages = EVAL,
                       .lines = BRIM_METRIC_AT(BRIM_METRIC_LINE_EVAL)},
    [POLY_SLOPE] = {.key = "slope", .label = "", .stages = STEPS},
};
const brim_metric_set poly_set = {.rows = rows, .count = POLY_ROWS};
const brim_work_sums poly_sums = {.names = {"squares", "points"}, .count = POLY_SUMS};

//---------------------------------- knobs and keys ----------------------------------

static size_t points_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  (void)work, (void)sweep;
  values[0] = 256, values[1] = 2048;
  return 2;
}

// A slice is never larger than the number of points.
static size_t slice_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  (void)work;
  values[0] = 16, values[1] = sweep->most.value[POLY_POINTS];
  return 2;
}

static bool slice_matters(void *work, const brim_setting *setting) {
  (void)work;
  return setting->value[POLY_SLICE] < setting->value[POLY_POINTS];
}

static const brim_knob_row words[POLY_KNOBS] = {
    [POLY_POINTS] = {.name = "fit_points",
                     .label = "Points of a step",
                     .heading = "Points",
                     .narrow = "Pts",
                     .always = true},
    [POLY_SLICE] = {.name = "fit_slice",
                    .label = "Points summed together",
                    .heading = "Slice",
                    .narrow = "Slice"},
};
const brim_knob_set poly_knob_set = {.rows = words, .count = POLY_KNOBS};

void poly_make_knobs(poly *p) {
  p->knobs[POLY_POINTS] = (brim_knob){.name = "fit_points",
                                      .key = "poly.fit_points",
                                      .min = 1,
                                      .max = 1 << 20,
                                      .value = p->points,
                                      .changes_learning = true,
                                      .multiplies = true,
                                      .list = "poly.fit_points_options",
                                      .axis = points_axis};
  p->knobs[POLY_SLICE] = (brim_knob){.name = "fit_slice",
                                     .key = "poly.fit_slice",
                                     .min = 1,
                                     .max = 1 << 20,
                                     .value = p->slice,
                                     .matters = slice_matters,
                                     .list = "poly.fit_slice_options",
                                     .axis = slice_axis,
                                     .order = 1};
}

enum { OWN = BRIM_CONFIG_SAVED_OWN, SWEPT = BRIM_CONFIG_SWEPT };

static const brim_config_row keys[] = {
    BRIM_KEY_INT("poly.degree", "3", 1, POLY_TERMS - 1, BRIM_KEY_NO_NAMES, OWN,
                 "degree of the polynomial"),
    BRIM_KEY_INT("poly.fit_points", "64", 1, 1 << 20, BRIM_KEY_NO_NAMES, OWN, "points of a step"),
    BRIM_KEY_INT("poly.fit_slice", "64", 1, 1 << 20, BRIM_KEY_NO_NAMES, OWN,
                 "points summed together"),
    BRIM_KEY_INTS("poly.fit_points_options", NULL, 1, 1 << 20, BRIM_KEY_NO_NAMES, SWEPT,
                  "values of fit_points to try"),
    BRIM_KEY_INTS("poly.fit_slice_options", NULL, 1, 1 << 20, BRIM_KEY_NO_NAMES, SWEPT,
                  "values of fit_slice to try"),
    BRIM_KEY_FLOAT("poly.rate", "0.3", 0, 100, BRIM_KEY_NO_NAMES, OWN,
                   "length of a step along the gradient"),
    BRIM_KEY_INT("poly.iterations", "20", 1, 1e9, BRIM_KEY_NO_NAMES, OWN, "steps of a run"),
    BRIM_KEY_INT("poly.interval", "5", 1, 1e9, BRIM_KEY_NO_NAMES, OWN, "steps between evaluations"),
    BRIM_KEY_INT("poly.grid", "101", 0, 1e6, BRIM_KEY_NO_NAMES, OWN,
                 "points of an evaluation (0 = none)"),
};
const brim_config_section poly_section = {.keys = keys, .key_count = sizeof keys / sizeof *keys};

//---------------------------------- lines ----------------------------------

size_t poly_start_lines(void *work, brim_work_line *out, size_t most) {
  const poly *p = (const poly *)work;
  if (most < 1) return 0;
  out[0].label = "curve";
  snprintf(out[0].text, sizeof out[0].text, brim_tr("%lld steps of %lld points"),
           (long long)p->iterations, (long long)p->points);
  return 1;
}

void poly_eval_notes(const brim_work_metrics *metrics, brim_str *out) {
  if (!(metrics->values[POLY_FARTHEST] < 0.5)) return;
  brim_str_append(out, brim_tr("\nthe curve stays within half a unit of every point\n"));
}

//---------------------------------- diagnosis ----------------------------------

static const brim_work_trouble_row troubles[] = {
    {.name = "misfit_rose",
     .label = "warning",
     .one = "%lld time the misfit rose, by step %lld",
     .many = "%lld times the misfit rose, first by step %lld"}};

static size_t take(void *work, const brim_work_moment *at,
                   brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  poly *p = (poly *)work;
  if (!at->evaluated) return 0;
  double now = at->metrics->values[POLY_MISFIT], lowest = p->lowest;
  if (isnan(lowest) || now < lowest) p->lowest = now;
  if (isnan(lowest) || now <= 2 * lowest) return 0;
  memset(out, 0, sizeof *out);
  out->count = 1;
  snprintf(out->text, sizeof out->text,
           brim_tr("the misfit rose to %.4g by step %lld from %.4g: %s"), now, (long long)at->step,
           lowest, brim_tr("try a smaller poly.rate"));
  out->fields[0].key = "value";
  out->fields[0].value = now;
  out->field_count = 1;
  return 1;
}

static void advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  (void)work, (void)lr;
  if (counts[0] > 0) snprintf(out, size, "%s", brim_tr("try a smaller poly.rate"));
}

static brim_status lost(void *work, int64_t epoch, double lr) {
  (void)work;
  return brim_fail(BRIM_ESTATE, "the curve left the plane in epoch %lld; poly.rate is %g",
                   (long long)epoch, lr);
}

static brim_status put(void *work, const int64_t *times, json_t *metadata) {
  const poly *p = (const poly *)work;
  const double numbers[] = {(double)times[0], isnan(p->lowest) ? -1 : p->lowest};
  return brim_json_put_numbers(metadata, "poly.watch", numbers, 2);
}

static void get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  poly *p = (poly *)work;
  double numbers[2];
  (void)skipped;
  if (brim_json_get_numbers(metadata, "poly.watch", numbers, 2) != 2) return;
  times[0] = (int64_t)numbers[0];
  p->lowest = numbers[1] < 0 ? (double)NAN : numbers[1];
}

const brim_work_diagnosis poly_diagnosis = {troubles, 1, take, advice, lost, put, get};

//---------------------------------- help ----------------------------------

static const brim_option options[] = {
    {.name = "degree",
     .kind = BRIM_OPTION_INT,
     .help = "degree of the polynomial",
     .key = "poly.degree"},
    {0},
};

const brim_work_options poly_options = {
    .command = "eval",
    .rows = options,
    .about = "A curve is compared with points of a grid.",
    .examples = "a curve\nbrim eval curve.safetensors --degree 3\n",
};

//---------------------------------- Korean ----------------------------------

const brim_msg_pair poly_korean[POLY_KOREAN] = {
    {"misfit", "어긋남"},
    {"held-out misfit", "검증 어긋남"},
    {"farthest point", "최대 거리"},
    {"points", "점"},
    {"Points", "적합 점"},
    {"Points of a step", "스텝당 적합 점"},
    {"Slice", "적합 조각"},
    {"curve", "곡선"},
    {"%lld steps of %lld points", "점 %2$lld개씩 %1$lld스텝"},
    {"\nthe curve stays within half a unit of every point\n",
     "\n곡선이 모든 점에서 0.5 안에 있습니다\n"},
    {"%lld time the misfit rose, by step %lld", "어긋남이 %lld번 커졌습니다, 스텝 %lld까지"},
    {"%lld times the misfit rose, first by step %lld",
     "어긋남이 %lld번 커졌습니다, 처음은 스텝 %lld"},
    {"the misfit rose to %.4g by step %lld from %.4g: %s",
     "어긋남이 %.4g(으)로 커졌습니다(스텝 %lld, 이전 %.4g): %s"},
    {"try a smaller poly.rate", "poly.rate를 줄여 보십시오"},
    {"degree of the polynomial", "다항식의 차수"},
    {"A curve is compared with points of a grid.", "곡선을 격자의 점과 비교합니다."},
    {"a curve\nbrim eval curve.safetensors --degree 3\n",
     "곡선\nbrim eval curve.safetensors --degree 3\n"},
};
