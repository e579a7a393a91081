// Watches for losses and gradients that go wrong, and advises what to change.
#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "data/source/data_verify.h"

const brim_work_sums brim_net_work_sums = {.names = {[BRIM_NET_SUM_LOSS] = "loss",
                                                     [BRIM_NET_SUM_CORRECT] = "correct",
                                                     [BRIM_NET_SUM_ROWS] = "rows"},
                                           .count = BRIM_NET_SUMS};

static const brim_work_trouble_row troubles[BRIM_NET_TROUBLES] = {
    [BRIM_TROUBLE_LOSS_NOT_FINITE] =
        {.name = "loss_not_finite",
         .label = BRIM_N_("warning"),
         .one = BRIM_N_("%lld sample gave a loss that is not a number, by step %lld"),
         .many = BRIM_N_("%lld samples gave a loss that is not a number, from step %lld on")},
    [BRIM_TROUBLE_GRADIENT_NOT_FINITE] =
        {.name = "gradient_not_finite",
         .label = BRIM_N_("skipped"),
         .one = BRIM_N_("%lld step whose gradients were not finite, by step %lld"),
         .many = BRIM_N_("%lld steps whose gradients were not finite, from step %lld on")},
    [BRIM_TROUBLE_LOSS_EXPLODED] =
        {.name = "loss_exploded",
         .label = BRIM_N_("warning"),
         .one = BRIM_N_("%lld time the loss was many times its median, by step %lld"),
         .many = BRIM_N_("%lld times the loss was many times its median, first by step %lld")},
    [BRIM_TROUBLE_GRADIENT_EXPLODED] =
        {.name = "gradient_exploded",
         .label = BRIM_N_("warning"),
         .one = BRIM_N_("%lld time the gradient norm was many times its median, by step %lld"),
         .many =
             BRIM_N_("%lld times the gradient norm was many times its median, first by step %lld")},
};

// FEW: readings that a median needs. A loss that doubles may come from a hard batch; a loss of LOSS_TIMES the
// median, and above the first loss, has exploded. Norms scatter more, and early norms are the largest.
enum { FEW = 8, LOSS_TIMES = 10, NORM_TIMES = 30 };

static bool is_half(const brim_config *config) {
  const char *precision = brim_config_string(config, "training.precision");
  return precision && strcmp(precision, "fp16") == 0;
}

// data.path for the text of advice; "PATH" if it is not set.
static const char *data_path(const brim_config *config) {
  const char *path = brim_config_string(config, "data.path");
  return path && *path ? path : "PATH";
}

typedef struct patience {
  brim_time since;
} patience;

static bool is_patient(void *ctx, uint64_t done, uint64_t total) {
  enum { MOST_S = 2 };
  const patience *p = (const patience *)ctx;
  (void)done, (void)total;
  return brim_time_since_ns(p->since, brim_clock_now()) < (int64_t)MOST_S * 1000000000;
}

// Searches the training set, for at most 2 s, for values that are not finite, if its type can hold such values.
// Only advice depends on the result, so a failure is ignored.
static void look_for_odd(brim_learn *w) {
  if (w->watch.looked) return;
  w->watch.looked = true;
  brim_source *source = w->data.train.source;
  const brim_source_info *info = &source->info;
  if (info->type != BRIM_SAMPLE_F32 && info->target_dim == 0) return;
  patience p = {brim_clock_now()};
  brim_survey_options options = {.limit = 1, .tick = is_patient, .ctx = &p};
  brim_survey survey;
  brim_pool *pool = NULL;
  brim_status status = brim_pool_create(1, &pool);
  options.pool = pool;
  if (!status) status = brim_survey_run(source, &options, &survey);
  if (!status) {
    if (survey.odd_kept > 0) snprintf(w->watch.odd, sizeof w->watch.odd, "%s", survey.odd[0].text);
    w->watch.odd_count = survey.odd_count;
    w->watch.odd_of = survey.good;
    brim_survey_deinit(&survey);
  }
  if (status) brim_status_clear();
  brim_pool_destroy(pool);
}

static void advice_on(int kind, const brim_learn *w, double lr, char *out, size_t size) {
  const brim_config *config = w->data.config;
  bool clips = brim_config_float(config, "training.clip_norm") > 0;
  bool finite = kind == BRIM_TROUBLE_LOSS_EXPLODED || kind == BRIM_TROUBLE_GRADIENT_EXPLODED;
  // Values in the data that are not finite are the cause: no learning rate helps.
  if (!finite && w->watch.odd[0]) {
    brim_words_add(
        out, size,
        BRIM_N_("%llu of the %llu samples read hold values that are not finite, the first: %s; "
                "`brim data verify %.200s` lists them"),
        (unsigned long long)w->watch.odd_count, (unsigned long long)w->watch.odd_of, w->watch.odd,
        data_path(config));
    return;
  }
  brim_words_add(out, size, BRIM_N_("try a lower learning rate (now %g)"), lr);
  brim_words_put(
      out, size,
      clips ? BRIM_N_(" or a smaller training.clip_norm") : BRIM_N_(" or training.clip_norm=1"));
  if (is_half(config)) brim_words_put(out, size, BRIM_N_(", or precision bf16"));
  if (!finite) {
    brim_words_add(out, size, BRIM_N_("; `brim data verify %.200s` finds NaN in the data"),
                   data_path(config));
  }
}

static void advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  const brim_learn *w = (const brim_learn *)work;
  for (int i = 0; i < BRIM_NET_TROUBLES; i++) {
    if (counts[i] == 0) continue;
    // fp16 finds its loss scale by skipping steps: skipped steps alone need no change
    if (i == BRIM_TROUBLE_GRADIENT_NOT_FINITE && w->watch.scaled) continue;
    advice_on(i, w, lr, out, size);
    return;
  }
}

static brim_status lost(void *work, int64_t epoch, double lr) {
  brim_learn *w = (brim_learn *)work;
  const brim_config *config = w->data.config;
  look_for_odd(w);
  if (w->watch.odd[0]) {
    char words[768] = "", advice[768];
    advice_on(BRIM_TROUBLE_LOSS_NOT_FINITE, w, lr, words, sizeof words);
    brim_words_text(words, advice, sizeof advice);
    return brim_fail(BRIM_ESTATE,
                     "diverged in epoch %" PRId64 ": losses or gradients are no longer finite: %s",
                     epoch, advice);
  }
  return brim_fail(BRIM_ESTATE,
                   "diverged in epoch %" PRId64
                   ": losses or gradients are no longer finite; look for NaN in the data with "
                   "`brim data verify %.200s`, or try a lower learning rate (now %g) or "
                   "training.clip_norm from an earlier checkpoint",
                   epoch, data_path(config), lr);
}

//---------------------------------- readings ----------------------------------

// Number of readings in a window, given the number of all readings.
static size_t window_length(int64_t count) {
  return count < BRIM_WATCH_WINDOW ? (size_t)count : BRIM_WATCH_WINDOW;
}

// The ratio of `value` to the running median, NaN with too few readings; then adds `value` to the window.
static double times_median(brim_watch_window *w, double value) {
  double median = (double)NAN;
  if (!isfinite(value)) return (double)NAN;
  size_t n = window_length(w->count);
  if (w->count == 0) w->first = value;
  if (n >= FEW && brim_stats_median(w->values, n, &median)) {
    brim_status_clear();  // out of memory: this reading is not checked
    median = (double)NAN;
  }
  w->values[w->count++ % BRIM_WATCH_WINDOW] = value;
  return median > 0 ? value / median : (double)NAN;
}

static void tell_not_finite(const brim_learn *w, const brim_work_moment *at, brim_work_trouble *t) {
  char advice[768] = "";
  advice_on(t->kind, w, at->lr, advice, sizeof advice);
  brim_words_add(
      t->text, sizeof t->text,
      t->kind == BRIM_TROUBLE_LOSS_NOT_FINITE
          ? BRIM_N_("%" PRId64 " samples gave a loss that is not finite by step %" PRId64 ": %s")
          : BRIM_N_("skipped %" PRId64 " steps by step %" PRId64
                    ", because their gradients were not finite: %s"),
      t->count, at->step, advice);
}

static void tell_exploded(const brim_learn *w, const brim_work_moment *at, double value,
                          double times, brim_work_trouble *t) {
  char advice[768] = "";
  advice_on(t->kind, w, at->lr, advice, sizeof advice);
  brim_words_add(
      t->text, sizeof t->text,
      t->kind == BRIM_TROUBLE_LOSS_EXPLODED
          ? BRIM_N_("loss %.4g by step %" PRId64 ", %.3g times its running median: %s")
          : BRIM_N_("gradient norm %.4g by step %" PRId64 ", %.3g times its running median: %s"),
      value, at->step, times, advice);
  t->fields[0].key = "value";
  t->fields[0].value = value;
  t->fields[1].key = "times_median";
  t->fields[1].value = times;
  t->field_count = 2;
}

static size_t take(void *work, const brim_work_moment *at,
                   brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  brim_learn *w = (brim_learn *)work;
  const brim_work_metrics *m = at->metrics;
  size_t n = 0;
  if (at->evaluated) return 0;
  w->watch.scaled = m->searching;
  if (m->bad > 0) {
    look_for_odd(w);
    tell_not_finite(w, at,
                    brim_work_trouble_begin(&out[n++], BRIM_TROUBLE_LOSS_NOT_FINITE, m->bad));
  }
  if (m->skipped > w->watch.skipped) {
    brim_work_trouble *t = brim_work_trouble_begin(&out[n++], BRIM_TROUBLE_GRADIENT_NOT_FINITE,
                                                   m->skipped - w->watch.skipped);
    if (!m->searching) look_for_odd(w);
    t->silent = m->searching;  // fp16 finds its loss scale by such steps
    w->watch.skipped = m->skipped;
    tell_not_finite(w, at, t);
  }
  double loss = m->samples > 0 ? m->values[BRIM_NET_LOSS] : (double)NAN;
  double times = times_median(&w->watch.loss, loss);
  if (times > LOSS_TIMES && loss > w->watch.loss.first) {
    tell_exploded(w, at, loss, times,
                  brim_work_trouble_begin(&out[n++], BRIM_TROUBLE_LOSS_EXPLODED, 1));
  }
  double norm = m->values[BRIM_NET_GRAD_NORM_MAX];
  times = times_median(&w->watch.norm, norm);
  if (times > NORM_TIMES && norm > w->watch.norm.first) {
    tell_exploded(w, at, norm, times,
                  brim_work_trouble_begin(&out[n++], BRIM_TROUBLE_GRADIENT_EXPLODED, 1));
  }
  return n;
}

//---------------------------------- in a checkpoint ----------------------------------

// brim.watch is a list of numbers: skipped steps, how often each trouble occurred, then for losses and for
// norms the number of readings, the first one and the window.
enum { NUMBERS = 1 + BRIM_NET_TROUBLES + 2 * (2 + BRIM_WATCH_WINDOW) };

static size_t pack_window(const brim_watch_window *w, double *out) {
  out[0] = (double)w->count;
  out[1] = w->first;
  memcpy(out + 2, w->values, window_length(w->count) * sizeof *out);
  return 2 + window_length(w->count);
}

static brim_status put(void *work, const int64_t *times, json_t *metadata) {
  const brim_learn *w = (const brim_learn *)work;
  double numbers[NUMBERS];
  size_t n = 0;
  numbers[n++] = (double)w->watch.skipped;
  for (int i = 0; i < BRIM_NET_TROUBLES; i++) numbers[n++] = times ? (double)times[i] : 0;
  n += pack_window(&w->watch.loss, numbers + n);
  n += pack_window(&w->watch.norm, numbers + n);
  return brim_json_put_numbers(metadata, "brim.watch", numbers, n);
}

static bool is_count(double x) { return x >= 0 && x <= 9007199254740992.0 && x == floor(x); }

// Reads a window from n numbers and returns how many it took; 0 if they are no window.
static size_t unpack_window(const double *from, size_t n, brim_watch_window *w) {
  if (n < 2 || !is_count(from[0])) return 0;
  size_t values = window_length((int64_t)from[0]);
  if (n < 2 + values) return 0;
  w->count = (int64_t)from[0];
  w->first = from[1];
  memcpy(w->values, from + 2, values * sizeof *from);
  return 2 + values;
}

static void get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_learn *w = (brim_learn *)work;
  double numbers[NUMBERS];
  size_t n = brim_work_get_numbers(metadata, "brim.watch", numbers, NUMBERS);
  size_t at = 1 + BRIM_NET_TROUBLES;
  brim_watch_window loss = {0}, norm = {0};
  w->watch.skipped = skipped;
  for (size_t i = 0; i < at && i < n; i++) {
    if (!is_count(numbers[i])) return;
  }
  size_t of_loss = n > at ? unpack_window(numbers + at, n - at, &loss) : 0;
  if (!of_loss || unpack_window(numbers + at + of_loss, n - at - of_loss, &norm) == 0) return;
  w->watch.skipped = (int64_t)numbers[0];
  for (int i = 0; times && i < BRIM_NET_TROUBLES; i++) times[i] = (int64_t)numbers[1 + i];
  w->watch.loss = loss;
  w->watch.norm = norm;
}

const brim_work_diagnosis brim_learn_diagnosis = {.rows = troubles,
                                                  .count = BRIM_NET_TROUBLES,
                                                  .take = take,
                                                  .advice = advice,
                                                  .lost = lost,
                                                  .put = put,
                                                  .get = get};
