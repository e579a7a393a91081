// The workload supervised: trains on labelled data. learn.c has the parts that it shares with contrastive.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/learn/learn.h"
#include "workload/learn/learn_rows.h"

typedef struct supervised {
  brim_learn learn;        // must be the first member
  bool reported_bad_eval;  // a warning has said that evaluation samples gave no finite loss
} supervised;

static const brim_metric rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(EVAL, LINE_EVAL),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(EVAL, LINE_EVAL),
    GRADIENT_ROWS,
};
static const brim_metric_set metric_set = {.rows = rows, .count = sizeof rows / sizeof *rows};

// Opens the sets. A loss that compares views predicts nothing, so there is no evaluation and no share is held
// out.
static brim_status open_data(brim_learn *w) {
  brim_work_data *d = &w->data;
  bool missing = false;
  BRIM_TRY(brim_work_data_open_train(d));
  w->spec.views = brim_work_views(d->config);
  BRIM_TRY(brim_work_data_take_train(d, w->spec.views > 1 ? 0 : brim_work_val_fraction(d->config)));
  if (d->train.transforms) w->spec.views = brim_transforms_views(d->train.transforms);
  BRIM_TRY(brim_learn_choose_loss(w));
  if (w->spec.views == 1) {
    BRIM_TRY(brim_work_data_open_eval(d, false, &missing));
    if (missing) brim_work_warn_no_eval();
    BRIM_TRY(brim_work_data_check(d));
  }
  brim_learn_set_input(w);
  return BRIM_OK;
}

// With drop_last, the batch of which an epoch has whole ones: the config's, even if smaller micro-batches
// replaced it; else 0.
static int64_t whole_batch(const brim_learn *w) {
  return w->loader.drop_last ? w->batching.batch : 0;
}

static void apply(const brim_learn *w, brim_applied *out) {
  const int64_t whole = whole_batch(w);
  if (!brim_batching_is_smaller(&w->batching, &out->spec)) return;
  if (whole > 0 && whole % out->batch == 0) {
    out->train.multiple = whole / (out->batch / out->spec.batch);
  }
}

static void info(const brim_learn *w, brim_work_info *out) {
  out->whole = out->multiple = whole_batch(w);
}

static const brim_learn_kind kind = {.name = "supervised",
                                     .metric_set = &metric_set,
                                     .open = open_data,
                                     .apply = apply,
                                     .info = info};

static brim_status supervised_open(const brim_work_context *context, const brim_config *config,
                                   void **work) {
  return brim_learn_open(&kind, sizeof(supervised), context, config, work);
}

//---------------------------------- evaluating ----------------------------------

typedef struct pass {
  brim_net *net;
  int64_t unread;  // samples since the device's counts were read
} pass;

static brim_status evaluate_batch(void *ctx, const brim_batch *batch, int64_t first) {
  pass *p = (pass *)ctx;
  (void)first;
  BRIM_TRY(brim_net_evaluate(p->net, batch, NULL));
  p->unread += batch->rows;
  if (p->unread < 1 << 20) return BRIM_OK;  // the device counts in f32: exact below 2^24
  brim_net_metrics ignored;
  p->unread = 0;
  return brim_net_read_metrics(p->net, false, &ignored);
}

static brim_status evaluate_all(brim_learn *w) {
  pass p = {.net = w->net};
  return brim_learn_each(w, w->eval_loader, evaluate_batch, &p);
}

static brim_status evaluate(void *work, brim_work_metrics *out) {
  supervised *s = (supervised *)work;
  brim_net_metrics sums;
  BRIM_TRY(brim_learn_evaluate(&s->learn, evaluate_all, &sums));
  brim_learn_means(&s->learn, &sums, true, out);
  bool finite = isfinite(out->values[BRIM_NET_LOSS]);
  if (out->bad > 0 && finite && !s->reported_bad_eval) {
    brim_log_warn("run",
                  "%" PRId64 " of %" PRId64
                  " evaluation samples gave no finite loss: brim excludes them from the mean and "
                  "counts them as wrong; `brim data verify` finds values that are not finite",
                  out->bad, out->samples);
  }
  s->reported_bad_eval = true;
  return BRIM_OK;
}

// True unless the metric is accuracy and the loss compares numbers.
static bool measures(const brim_config *config, const char *metric_key) {
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  return strcmp(metric_key, "accuracy") != 0 || !loss || strcmp(loss->name, "mse") != 0;
}

static const brim_work_evaluation_table evaluation = {.evaluate = evaluate, .use = brim_learn_use};

const brim_workload_table brim_workload_supervised = {
    .name = "supervised",
    .has_targets = true,
    .config = "default.yaml",
    .metric_set = &metric_set,
    .measures = measures,
    .open = supervised_open,
    .evaluation = &evaluation,
    .model = "mlp",
    .knob_set = &brim_learn_knob_set,
    .sums = &brim_net_work_sums,
    .diagnosis = &brim_learn_diagnosis,
    .close = brim_learn_close,
    .knobs = brim_learn_knobs,
    .sensible = brim_learn_sensible,
    .plan = brim_learn_plan,
    .resuming = brim_learn_resuming,
    .configure = brim_learn_configure,
    .info = brim_learn_info,
    .step = brim_learn_step,
    .stops = brim_learn_stops,
    .metrics = brim_learn_metrics,
    .figures = brim_learn_figures,
    .save = brim_learn_save,
    .load = brim_learn_load,
    .snapshot = brim_learn_snapshot,
    .restore = brim_learn_restore,
    .loading = &brim_learn_loading,
    .ranks = &brim_learn_ranks,
    .batches = &brim_learn_batches,
    .background = &brim_learn_background,
    .findings = &brim_learn_findings,
};
