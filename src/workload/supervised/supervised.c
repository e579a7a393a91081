// The supervised workload: one optimiser step on labelled data. Building and evaluating; steps and
// checkpoints are those of workload_stepper.h, the config is read in supervised_setup.c.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/supervised/supervised_int.h"
#include "workload/workload_cache.h"
#include "workload/workload_findings.h"
#include "workload/workload_stepper_save.h"

static brim_stepper *stepper_of(void *work) { return &((brim_supervised *)work)->stepper; }

//---------------------------------- building ----------------------------------

static void supervised_close(void *work) {
  brim_supervised *w = (brim_supervised *)work;
  if (!w) return;
  brim_stepper_drop(&w->stepper);
  brim_work_data_deinit(&w->data);
  brim_free(w);
}

static brim_status supervised_open(const brim_work_context *context, const brim_config *config,
                                   void **work) {
  brim_supervised *w = (brim_supervised *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  brim_status status = brim_supervised_setup(w, context, config);
  if (status) {
    supervised_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

static size_t supervised_knobs(void *work, const brim_knob **out) {
  *out = ((brim_supervised *)work)->knobs;
  return BRIM_LEARN_KNOBS;
}

static bool supervised_sensible(void *work, const brim_setting *setting) {
  const brim_supervised *w = (const brim_supervised *)work;
  return w->spec.views != 2 || brim_pairs_sensible(&w->pairs, setting->value[BRIM_LEARN_BATCH],
                                                   setting->value[BRIM_LEARN_ACCUMULATION]);
}

static brim_status supervised_plan(void *work, const brim_setting *setting, brim_plan *out) {
  return brim_supervised_plan((brim_supervised *)work, setting, out);
}

static void supervised_allow_smaller(void *work) {
  ((brim_supervised *)work)->batching.allow_smaller = true;
}

static bool supervised_free_optional(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_applied a;
  brim_supervised_apply(w, setting, &a);
  if (!brim_batching_free_optional(&w->batching, &w->data, &a)) return false;
  w->data.has_planned = false;
  return true;
}

static void supervised_share(void *work, int rank, int world) {
  brim_supervised *w = (brim_supervised *)work;
  w->loader.rank = rank;
  w->loader.world = world;
  w->data.has_planned = false;  // less memory may be another place for the data
}

static void supervised_resuming(void *work, const json_t *metadata) {
  brim_supervised *w = (brim_supervised *)work;
  w->stepper.weights = NULL;
  if (metadata) brim_pairs_take_choice(&w->pairs, metadata);
}

// Where samples are kept was decided when the setting was planned; nearly every caller does so first.
static brim_status keep_data(brim_supervised *w, const brim_setting *setting) {
  brim_work_data *d = &w->data;
  if (!d->has_planned || memcmp(&d->planned_for, setting, sizeof *setting) != 0) {
    brim_plan plan;
    BRIM_TRY(brim_supervised_plan(w, setting, &plan));
  }
  return brim_work_keep(d, w->loader.limit);
}

static brim_status build(brim_supervised *w, const brim_setting *setting, brim_applied *a) {
  if (!w->loader.skip_broken) {
    BRIM_TRY(brim_work_data_check_readable(&w->data, w->loader.limit));
  }
  BRIM_TRY(keep_data(w, setting));
  return brim_stepper_build(&w->stepper, &w->data, a);
}

static brim_status supervised_configure(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_applied a;
  brim_stepper_drop(&w->stepper);
  BRIM_TRY(brim_supervised_prepare(w, setting, &a));
  brim_pairs_report(&w->pairs, &w->batching, &a.spec);
  brim_status status = build(w, setting, &a);
  if (!status) return BRIM_OK;
  brim_stepper_drop(&w->stepper);
  brim_work_drop_residents(&w->data);  // a setting that does not stand holds no memory
  return status;
}

static void supervised_info(void *work, brim_work_info *out) {
  const brim_supervised *w = (const brim_supervised *)work;
  const brim_stepper *t = &w->stepper;
  memset(out, 0, sizeof *out);
  brim_stepper_info(t, &w->data, w->loader.limit, out);
  out->whole = brim_supervised_whole(w);
  if (t->views == 2 && t->accumulation > 1) out->accumulates = t->exact ? "exact" : "plain";
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
}

//---------------------------------- stepping ----------------------------------

static brim_status supervised_step(void *work, const brim_spans *spans, brim_step_info *out) {
  return brim_stepper_step(stepper_of(work), spans, out);
}

static brim_status supervised_load_only(void *work, brim_step_info *out) {
  return brim_stepper_load_only(stepper_of(work), out);
}

static brim_status supervised_compute_only(void *work, int steps, int64_t *ns,
                                           brim_step_info *out) {
  return brim_stepper_compute_only(stepper_of(work), steps, ns, out);
}

static void supervised_loader_stats(void *work, brim_work_loading *out) {
  const brim_supervised *w = (const brim_supervised *)work;
  brim_stepper_stats(&w->stepper, &w->data, out);
}

static void supervised_stops(void *work, const volatile sig_atomic_t *stop) {
  stepper_of(work)->stop = stop;
}

static brim_status supervised_metrics(void *work, bool reset, brim_work_metrics *out) {
  return brim_stepper_metrics(stepper_of(work), reset, out);
}

static void supervised_figures(void *work, const double *sums, double *values) {
  brim_stepper_figures(stepper_of(work), sums, values);
}

static brim_status supervised_snapshot(void *work) {
  return brim_stepper_snapshot(stepper_of(work));
}

static brim_status supervised_restore(void *work) { return brim_stepper_restore(stepper_of(work)); }

//---------------------------------- evaluating ----------------------------------

typedef struct pass {
  const brim_stepper *stepper;
  int64_t unread;  // samples since the device's counts were read
} pass;

static brim_status evaluate_batch(void *ctx, const brim_batch *batch, int64_t first) {
  pass *p = (pass *)ctx;
  (void)first;
  BRIM_TRY(brim_net_evaluate(p->stepper->net, batch, NULL));
  p->unread += batch->rows;
  if (p->unread < 1 << 20) return BRIM_OK;  // the device counts in f32: exact below 2^24
  brim_net_metrics ignored;
  p->unread = 0;
  return brim_net_read_metrics(p->stepper->net, false, &ignored);
}

static brim_status evaluate_all(void *ctx) {
  pass p = {.stepper = (const brim_stepper *)ctx};
  return brim_stepper_each(p.stepper, p.stepper->eval_loader, evaluate_batch, &p);
}

static brim_status supervised_evaluate(void *work, brim_work_metrics *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_stepper *t = &w->stepper;
  brim_net_metrics sums;
  BRIM_TRY(brim_stepper_evaluate(t, evaluate_all, t, &sums));
  brim_stepper_means(t, &sums, true, out);
  bool finite = isfinite(out->values[BRIM_NET_LOSS]);
  if (out->bad > 0 && finite && !w->said_bad_eval) {
    brim_log_warn("run",
                  "%" PRId64 " of %" PRId64
                  " evaluation samples gave no finite loss: brim excludes them from the mean and "
                  "counts them as wrong; `brim data verify` finds values that are not finite",
                  out->bad, out->samples);
  }
  w->said_bad_eval = true;
  return BRIM_OK;
}

//---------------------------------- checkpoints ----------------------------------

// A loss that compares views trains an embedding.
static brim_checkpoint_facts facts_of(const brim_supervised *w) {
  bool classes = w->spec.classes > 0, pairs = w->spec.views > 1;
  const brim_stepper *t = &w->stepper;
  brim_checkpoint_facts f = {.workload = "supervised",
                             .spec = &w->spec,
                             .loader = &w->loader,
                             .data = &w->data,
                             .task = classes ? BRIM_TASK_CLASSES
                                     : pairs ? BRIM_TASK_EMBEDDING
                                             : BRIM_TASK_VALUES,
                             .outputs = classes ? w->spec.classes
                                        : pairs ? brim_pairs_width(t->net)
                                                : w->spec.target_dim};
  if (w->spec.views == 2) f.accumulates = brim_pairs_choice(&w->pairs, t->accumulation, t->exact);
  return f;
}

static brim_status supervised_save(void *work, const char *path, const json_t *extra,
                                   bool weights_only) {
  const brim_checkpoint_facts facts = facts_of((const brim_supervised *)work);
  return brim_stepper_save(stepper_of(work), &facts, path, extra, weights_only);
}

static brim_status supervised_hold(void *work, const json_t *extra, bool weights_only,
                                   brim_work_held *out) {
  const brim_checkpoint_facts facts = facts_of((const brim_supervised *)work);
  return brim_stepper_hold(stepper_of(work), &facts, extra, weights_only, out);
}

static brim_status supervised_load(void *work, const char *path, json_t **extra) {
  const brim_checkpoint_facts facts = facts_of((const brim_supervised *)work);
  return brim_stepper_load(stepper_of(work), &facts, path, extra);
}

static brim_status supervised_use(void *work, const char *path, bool averaged) {
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

static const brim_work_loading_table loading = {.load_only = supervised_load_only,
                                                .compute_only = supervised_compute_only,
                                                .stats = supervised_loader_stats};
static const brim_work_ranks_table ranks = {.share = supervised_share};
static const brim_work_evaluation_table evaluation = {.evaluate = supervised_evaluate,
                                                      .use = supervised_use};
static const brim_work_batches_table batches = {.allow_smaller = supervised_allow_smaller,
                                                .free_optional = supervised_free_optional};
static const brim_work_background_table background = {.hold = supervised_hold};

const brim_workload_table brim_workload_supervised = {
    .name = "supervised",
    .has_targets = true,
    .model = "mlp",
    .config = "default.yaml",
    .knob_set = &brim_learn_knob_set,
    .metric_set = &brim_supervised_set,
    .sums = &brim_net_work_sums,
    .diagnosis = &diagnosis,
    .open = supervised_open,
    .close = supervised_close,
    .knobs = supervised_knobs,
    .sensible = supervised_sensible,
    .plan = supervised_plan,
    .resuming = supervised_resuming,
    .configure = supervised_configure,
    .info = supervised_info,
    .step = supervised_step,
    .stops = supervised_stops,
    .metrics = supervised_metrics,
    .figures = supervised_figures,
    .save = supervised_save,
    .load = supervised_load,
    .snapshot = supervised_snapshot,
    .restore = supervised_restore,
    .loading = &loading,
    .ranks = &ranks,
    .evaluation = &evaluation,
    .batches = &batches,
    .background = &background,
    .findings = &brim_learn_findings,
};
