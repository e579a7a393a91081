// The contrastive workload: one optimiser step on two views of each sample, evaluated by the labels of
// neighbours. Building and evaluating; steps and checkpoints are those of workload_stepper.h, the config
// is read in contrastive_setup.c.
#include <math.h>
#include <string.h>

#include "workload/contrastive/contrastive_int.h"
#include "workload/workload_cache.h"
#include "workload/workload_findings.h"

static brim_stepper *stepper_of(void *work) { return &((brim_contrastive *)work)->stepper; }

//---------------------------------- checkpoints ----------------------------------

static brim_checkpoint_facts facts_of(const void *work) {
  const brim_contrastive *w = (const brim_contrastive *)work;
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
  w->stepped = (brim_stepped){
      .stepper = &w->stepper, .data = &w->data, .loader = &w->loader, .facts = facts_of};
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

static brim_status configure(void *work, const brim_setting *setting) {
  brim_contrastive *w = (brim_contrastive *)work;
  brim_applied a;
  drop_setting(w);
  BRIM_TRY(
      brim_device_set_threads(w->data.context.device, (int)setting->value[BRIM_LEARN_THREADS]));
  BRIM_TRY(brim_contrastive_prepare(w, setting, &a));
  brim_pairs_report(&w->pairs, &w->batching, &a.spec);
  brim_status status = build(w, setting, &a);
  if (!status) return BRIM_OK;
  drop_setting(w);
  brim_work_drop_residents(&w->data);  // a setting that does not stand holds no memory
  return status;
}

static brim_status contrastive_configure(void *work, const brim_setting *setting) {
  BRIM_TRY(brim_stepped_tell_configure(work, setting));
  return brim_stepped_agree(work, configure(work, setting));
}

static void contrastive_info(void *work, brim_work_info *out) {
  const brim_contrastive *w = (const brim_contrastive *)work;
  const brim_stepper *t = &w->stepper;
  memset(out, 0, sizeof *out);
  brim_stepper_info(t, &w->data, w->loader.limit, out);
  out->multiple = w->batching.batch * w->batching.accumulation;
  if (t->accumulation > 1) out->accumulates = t->exact ? "exact" : "plain";
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
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

//---------------------------------- the table ----------------------------------

static const brim_work_evaluation_table evaluation = {.evaluate = contrastive_evaluate,
                                                      .use = brim_stepped_use};
static const brim_work_features_table features = {.event = "probe",
                                                  .probe = brim_contrastive_probe};
static const brim_work_batches_table batches = {.allow_smaller = contrastive_allow_smaller,
                                                .free_optional = contrastive_free_optional};

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
    .diagnosis = &brim_stepped_diagnosis,
    .open = contrastive_open,
    .close = contrastive_close,
    .knobs = contrastive_knobs,
    .sensible = contrastive_sensible,
    .plan = contrastive_plan,
    .resuming = contrastive_resuming,
    .configure = contrastive_configure,
    .info = contrastive_info,
    .step = brim_stepped_step,
    .stops = brim_stepped_stops,
    .metrics = brim_stepped_metrics,
    .figures = brim_stepped_figures,
    .save = brim_stepped_save,
    .load = brim_stepped_load,
    .snapshot = brim_stepped_snapshot,
    .restore = brim_stepped_restore,
    .loading = &brim_stepped_loading,
    .ranks = &brim_stepped_ranks,
    .evaluation = &evaluation,
    .features = &features,
    .batches = &batches,
    .background = &brim_stepped_background,
    .findings = &brim_learn_findings,
};
