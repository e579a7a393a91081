// The contrastive workload: one optimiser step on two views of each sample, evaluated by the labels of
// neighbours. Building and evaluating; steps and checkpoints are those of workload_stepper.h, the config
// is read in contrastive_setup.c.
#include <math.h>
#include <string.h>

#include "workload/contrastive/contrastive_int.h"
#include "workload/workload_cache.h"
#include "workload/workload_findings.h"
#include "workload/workload_stepper_save.h"

static brim_stepper *stepper_of(void *work) { return &((brim_contrastive *)work)->stepper; }

//---------------------------------- building ----------------------------------

static void drop_setting(brim_contrastive *w) {
  brim_stepper_drop(&w->stepper);
  brim_loader_destroy(w->bank.loader);
  w->bank.loader = NULL;
}

static void contrastive_close(void *work) {
  brim_contrastive *w = (brim_contrastive *)work;
  if (!w) return;
  drop_setting(w);
  brim_contrastive_close_bank(w);
  brim_work_data_deinit(&w->data);
  brim_free(w);
}

static brim_status contrastive_open(const brim_work_context *context, const brim_config *config,
                                    void **work) {
  brim_contrastive *w = (brim_contrastive *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  brim_status status = brim_contrastive_setup(w, context, config);
  if (status) {
    contrastive_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

static size_t contrastive_knobs(void *work, const brim_knob **out) {
  *out = ((brim_contrastive *)work)->knobs;
  return BRIM_LEARN_KNOBS;
}

static bool contrastive_sensible(void *work, const brim_setting *setting) {
  const brim_contrastive *w = (const brim_contrastive *)work;
  return brim_pairs_sensible(&w->pairs, setting->value[BRIM_LEARN_BATCH],
                             setting->value[BRIM_LEARN_ACCUMULATION]);
}

static brim_status contrastive_plan(void *work, const brim_setting *setting, brim_plan *out) {
  return brim_contrastive_plan((brim_contrastive *)work, setting, out);
}

static void contrastive_allow_smaller(void *work) {
  ((brim_contrastive *)work)->batching.allow_smaller = true;
}

static bool contrastive_free_optional(void *work, const brim_setting *setting) {
  brim_contrastive *w = (brim_contrastive *)work;
  brim_applied a;
  brim_contrastive_apply(w, setting, &a);
  if (!brim_batching_free_optional(&w->batching, &w->data, &a)) return false;
  w->data.has_planned = false;
  return true;
}

static void contrastive_resuming(void *work, const json_t *metadata) {
  brim_contrastive *w = (brim_contrastive *)work;
  w->stepper.weights = NULL;
  if (metadata) brim_pairs_take_choice(&w->pairs, metadata);
}

// Where samples are kept was decided when the setting was planned; nearly every caller does so first.
static brim_status keep_data(brim_contrastive *w, const brim_setting *setting) {
  brim_work_data *d = &w->data;
  if (!d->has_planned || memcmp(&d->planned_for, setting, sizeof *setting) != 0) {
    brim_plan plan;
    BRIM_TRY(brim_contrastive_plan(w, setting, &plan));
  }
  return brim_work_keep(d, w->loader.limit);
}

static brim_status build(brim_contrastive *w, const brim_setting *setting, brim_applied *a) {
  if (!w->loader.skip_broken) {
    BRIM_TRY(brim_work_data_check_readable(&w->data, w->loader.limit));
    if (w->bank.source) BRIM_TRY(brim_source_check_readable(w->bank.source, 0));
  }
  BRIM_TRY(keep_data(w, setting));
  BRIM_TRY(brim_stepper_build(&w->stepper, &w->data, a));
  return brim_contrastive_make_loader(w, a);
}

static brim_status contrastive_configure(void *work, const brim_setting *setting) {
  brim_contrastive *w = (brim_contrastive *)work;
  brim_applied a;
  drop_setting(w);
  BRIM_TRY(brim_contrastive_prepare(w, setting, &a));
  brim_pairs_report(&w->pairs, &w->batching, &a.spec);
  brim_status status = build(w, setting, &a);
  if (!status) return BRIM_OK;
  drop_setting(w);
  brim_work_drop_residents(&w->data);  // a setting that does not stand holds no memory
  return status;
}

static void contrastive_info(void *work, brim_work_info *out) {
  const brim_contrastive *w = (const brim_contrastive *)work;
  const brim_stepper *t = &w->stepper;
  memset(out, 0, sizeof *out);
  brim_stepper_info(t, &w->data, w->loader.limit, out);
  if (t->accumulation > 1) out->accumulates = t->exact ? "exact" : "plain";
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
}

//---------------------------------- stepping ----------------------------------

static brim_status contrastive_step(void *work, const brim_spans *spans, brim_step_info *out) {
  return brim_stepper_step(stepper_of(work), spans, out);
}

static brim_status contrastive_load_only(void *work, brim_step_info *out) {
  return brim_stepper_load_only(stepper_of(work), out);
}

static brim_status contrastive_compute_only(void *work, int steps, int64_t *ns,
                                            brim_step_info *out) {
  return brim_stepper_compute_only(stepper_of(work), steps, ns, out);
}

static void contrastive_loader_stats(void *work, brim_work_loading *out) {
  const brim_contrastive *w = (const brim_contrastive *)work;
  brim_stepper_stats(&w->stepper, &w->data, out);
}

static void contrastive_stops(void *work, const volatile sig_atomic_t *stop) {
  stepper_of(work)->stop = stop;
}

static brim_status contrastive_metrics(void *work, bool reset, brim_work_metrics *out) {
  return brim_stepper_metrics(stepper_of(work), reset, out);
}

static void contrastive_figures(void *work, const double *sums, double *values) {
  brim_stepper_figures(stepper_of(work), sums, values);
}

static brim_status contrastive_snapshot(void *work) {
  return brim_stepper_snapshot(stepper_of(work));
}

static brim_status contrastive_restore(void *work) {
  return brim_stepper_restore(stepper_of(work));
}

//---------------------------------- evaluating ----------------------------------

static brim_status add_to_bank(void *net, const brim_batch *batch, int64_t first) {
  return brim_net_bank((brim_net *)net, batch, first);
}

static brim_status ask_neighbours(void *net, const brim_batch *batch, int64_t first) {
  (void)first;
  return brim_net_evaluate_features((brim_net *)net, batch);
}

static brim_status evaluate_features(void *ctx) {
  const brim_contrastive *w = (const brim_contrastive *)ctx;
  const brim_stepper *t = &w->stepper;
  BRIM_TRY(brim_stepper_each(t, w->bank.loader, add_to_bank, t->net));
  return brim_stepper_each(t, t->eval_loader, ask_neighbours, t->net);
}

// Of features that are no numbers every sample is bad, and their neighbours are a finite 0 % right.
static brim_status contrastive_evaluate(void *work, brim_work_metrics *out) {
  brim_stepper *t = stepper_of(work);
  brim_net_metrics sums;
  BRIM_TRY(brim_stepper_evaluate(t, evaluate_features, work, &sums));
  memset(out, 0, sizeof *out);
  out->set = &brim_contrastive_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  out->values[BRIM_CONTRASTIVE_KNN] = sums.rows > 0 ? sums.correct / sums.rows : (double)NAN;
  out->samples = (int64_t)sums.rows;
  out->bad = (int64_t)sums.bad_rows;
  return BRIM_OK;
}

//---------------------------------- checkpoints ----------------------------------

static brim_checkpoint_facts facts_of(const brim_contrastive *w) {
  const brim_stepper *t = &w->stepper;
  return (brim_checkpoint_facts){
      .workload = "contrastive",
      .spec = &w->spec,
      .loader = &w->loader,
      .data = &w->data,
      .task = BRIM_TASK_EMBEDDING,
      .outputs = brim_pairs_width(t->net),
      .accumulates = brim_pairs_choice(&w->pairs, t->accumulation, t->exact)};
}

static brim_status contrastive_save(void *work, const char *path, const json_t *extra,
                                    bool weights_only) {
  const brim_checkpoint_facts facts = facts_of((const brim_contrastive *)work);
  return brim_stepper_save(stepper_of(work), &facts, path, extra, weights_only);
}

static brim_status contrastive_hold(void *work, const json_t *extra, bool weights_only,
                                    brim_work_held *out) {
  const brim_checkpoint_facts facts = facts_of((const brim_contrastive *)work);
  return brim_stepper_hold(stepper_of(work), &facts, extra, weights_only, out);
}

static brim_status contrastive_load(void *work, const char *path, json_t **extra) {
  const brim_checkpoint_facts facts = facts_of((const brim_contrastive *)work);
  return brim_stepper_load(stepper_of(work), &facts, path, extra);
}

static brim_status contrastive_use(void *work, const char *path, bool averaged) {
  return brim_stepper_use(stepper_of(work), path, averaged);
}

//---------------------------------- diagnoses ----------------------------------

static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  return brim_net_watch_take(&stepper_of(work)->watch, at, out);
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  brim_net_watch_advice(&stepper_of(work)->watch, counts, lr, out, size);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  return brim_net_watch_lost(stepper_of(work)->watch.config, epoch, lr);
}

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  return brim_net_watch_put(&stepper_of(work)->watch, times, metadata);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_net_watch_get(&stepper_of(work)->watch, metadata, skipped, times);
}

static const brim_work_diagnosis diagnosis = {.rows = brim_net_troubles,
                                              .count = BRIM_NET_TROUBLES,
                                              .take = watch_take,
                                              .advice = watch_advice,
                                              .lost = watch_lost,
                                              .put = watch_put,
                                              .get = watch_get};

//---------------------------------- the table ----------------------------------

static const brim_work_loading_table loading = {.load_only = contrastive_load_only,
                                                .compute_only = contrastive_compute_only,
                                                .stats = contrastive_loader_stats};
static const brim_work_evaluation_table evaluation = {.evaluate = contrastive_evaluate,
                                                      .use = contrastive_use};
static const brim_work_features_table features = {.event = "probe",
                                                  .probe = brim_contrastive_probe};
static const brim_work_batches_table batches = {.allow_smaller = contrastive_allow_smaller,
                                                .free_optional = contrastive_free_optional};
static const brim_work_background_table background = {.hold = contrastive_hold};

const brim_workload_table brim_workload_contrastive = {
    .name = "contrastive",
    .begin = brim_contrastive_begin,
    .model = "mlp",
    .config = "stl10_config.yaml",
    .options = &brim_contrastive_options,
    .option_count = 1,
    .topic = &brim_contrastive_topic,
    .section = &brim_contrastive_section,
    .knob_set = &brim_learn_knob_set,
    .metric_set = &brim_contrastive_set,
    .sums = &brim_net_work_sums,
    .diagnosis = &diagnosis,
    .open = contrastive_open,
    .close = contrastive_close,
    .knobs = contrastive_knobs,
    .sensible = contrastive_sensible,
    .plan = contrastive_plan,
    .resuming = contrastive_resuming,
    .configure = contrastive_configure,
    .info = contrastive_info,
    .step = contrastive_step,
    .stops = contrastive_stops,
    .metrics = contrastive_metrics,
    .figures = contrastive_figures,
    .save = contrastive_save,
    .load = contrastive_load,
    .snapshot = contrastive_snapshot,
    .restore = contrastive_restore,
    .loading = &loading,
    .evaluation = &evaluation,
    .features = &features,
    .batches = &batches,
    .background = &background,
    .findings = &brim_learn_findings,
};
