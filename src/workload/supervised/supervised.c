// The supervised workload: one optimiser step on labelled data.

#include "workload/supervised/supervised_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_cache.h"
#include "workload/workload_findings.h"
#include "workload/workload_net_rows.h"

//--------------------------------------------- rows ---------------------------------------------
// What supervised training measures, as rows.

static const brim_metric supervised_rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(EVAL, LINE_EVAL),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(EVAL, LINE_EVAL),
    GRADIENT_ROWS,
};
const brim_metric_set brim_supervised_set = {
    supervised_rows, sizeof supervised_rows / sizeof *supervised_rows, NULL, NULL, NULL, NULL};

//-------------------------------------------- config --------------------------------------------
// What the supervised workload reads from the config, and the plan of a setting.

//---------------------------------- data ----------------------------------

// A loss that compares views predicts nothing: there is nothing to evaluate, and no share for it.
static brim_status open_data(brim_supervised *w) {
  brim_work_data *d = &w->data;
  bool missing = false;
  BRIM_TRY(brim_work_data_open_train(d));
  w->spec.views = brim_work_views(d->config);
  BRIM_TRY(brim_work_data_take_train(d, w->spec.views > 1 ? 0 : brim_work_val_fraction(d->config)));
  if (d->train.transforms) w->spec.views = brim_transforms_views(d->train.transforms);
  BRIM_TRY(
      brim_work_choose_loss(d->config, d->train.source, w->spec.views, &w->usual, &w->spec.loss));
  if (w->spec.views > 1) return BRIM_OK;
  BRIM_TRY(brim_work_data_open_eval(d, false, &missing));
  if (missing) brim_work_warn_no_eval();
  return brim_work_data_check(d);
}

static void set_input(brim_supervised *w) {
  const brim_source_info *info = brim_work_set_info(&w->data.train);
  bool pairs = w->spec.views > 1;
  brim_learn_set_input(info, &w->spec);
  brim_work_set_eval_size(&w->data, &w->spec);
  // a projection is as wide as its model says, and is compared to other projections
  w->spec.classes = pairs ? 0 : info->classes;
  w->spec.target_dim = pairs ? 1 : info->target_dim;
}

//---------------------------------- settings ----------------------------------

// brim_work_info.whole
static int64_t brim_supervised_whole(const brim_supervised *w) {
  return w->loader.drop_last ? w->batching.batch : 0;
}

// A setting laid over the config; and with the rest that the network's plan takes: its limit, and how
// it accumulates.
static void apply(const brim_supervised *w, const brim_setting *setting, brim_applied *out) {
  const brim_learn_base base = {
      .spec = &w->spec, .loader = &w->loader, .batching = &w->batching, .data = &w->data};
  brim_learn_apply(&base, setting, out);
  // what drop_last leaves out is asked for by the batch size in the config, whatever fits of it
  int64_t whole = brim_supervised_whole(w);
  if (!brim_batching_is_smaller(&w->batching, &out->spec)) return;
  if (whole > 0 && whole % out->batch == 0) {
    out->train.multiple = whole / (out->batch / out->spec.batch);
  }
}

static brim_status request(const brim_supervised *w, const brim_setting *setting,
                           const brim_applied *a, brim_cache_request *out) {
  *out = (brim_cache_request){.asked = (brim_cache)setting->value[BRIM_LEARN_CACHE],
                              .limit = w->spec.memory_limit};
  return brim_work_request(&w->data, &a->train, &a->eval, out);
}

static brim_status prepare(brim_supervised *w, const brim_setting *setting, brim_applied *out) {
  brim_device *device = w->data.context.device;
  brim_cache_request r;
  apply(w, setting, out);
  BRIM_TRY(brim_learn_check_precision(device, &out->spec));
  BRIM_TRY(request(w, setting, out, &r));
  out->spec.memory_limit = brim_work_left_to_net(&w->data, &r);
  return brim_pairs_choose(&w->pairs, device, &w->batching, &out->spec);
}

static brim_status plan_net(brim_supervised *w, const brim_setting *setting, brim_plan *out) {
  brim_applied a;
  BRIM_TRY(prepare(w, setting, &a));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->data.context.device, &a.spec, out);
}

static brim_status choose_cache(const brim_supervised *w, const brim_setting *setting,
                                const brim_plan *plan, brim_work_caching *out) {
  brim_applied a;
  brim_cache_request r;
  apply(w, setting, &a);
  BRIM_TRY(request(w, setting, &a, &r));
  r.plan = plan;
  return brim_work_choose_cache(&w->data, &r, out);
}

static brim_status plan(brim_supervised *w, const brim_setting *setting, brim_plan *out) {
  brim_work_data *d = &w->data;
  brim_applied a;
  d->has_planned = false;
  BRIM_TRY(plan_net(w, setting, out));
  BRIM_TRY(choose_cache(w, setting, out, &d->planned));
  d->planned_for = *setting;
  d->has_planned = true;
  apply(w, setting, &a);
  return brim_work_plan_sets(d, &d->planned, &a.train, &a.eval, out);
}

// Workspaces depend on the number of threads; what is configured now keeps its own.
static brim_status brim_supervised_plan(brim_supervised *w, const brim_setting *setting,
                                        brim_plan *out) {
  brim_device *device = w->data.context.device;
  const int before = device->info.threads;
  BRIM_TRY(brim_device_set_threads(device, (int)setting->value[BRIM_LEARN_THREADS]));
  const brim_status status = plan(w, setting, out);
  return brim_device_set_threads(device, before) ? BRIM_EDEVICE : status;
}

//---------------------------------- knobs ----------------------------------

static brim_status cache_of(void *work, const brim_setting *setting, bool planned,
                            brim_work_caching *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_plan plan;
  memset(&plan, 0, sizeof plan);
  if (planned) BRIM_TRY(plan_net(w, setting, &plan));
  return choose_cache(w, setting, &plan, out);
}

//---------------------------------- all of it ----------------------------------

// Fills in everything that does not depend on a setting.
static brim_status setup(brim_supervised *w, const brim_work_context *context,
                         const brim_config *config) {
  w->stepped.cache_of = cache_of;
  BRIM_TRY(brim_work_data_init(&w->data, context, config));
  brim_learn_set_spec(config, &w->spec);
  brim_pairs_read(config, &w->pairs);
  BRIM_TRY(open_data(w));
  set_input(w);
  brim_learn_warn_short_tokens(&w->spec, brim_work_set_info(&w->data.train));
  BRIM_TRY(brim_learn_set_optimizer(config, &w->optimizer));
  w->spec.optimizer = &w->optimizer.component;
  BRIM_TRY(brim_learn_set_knobs(config, context->device, &brim_stepped_matters, w->knobs));
  w->batching = brim_learn_batching(w->knobs);
  brim_learn_set_loader(config, w->spec.seed, &w->loader);
  if (w->spec.views > 1) w->loader.drop_last = true;
  BRIM_TRY(brim_work_data_measure(&w->data));
  w->stepper.metric_set = &brim_supervised_set;
  brim_stepper_init(&w->stepper, &w->data, &w->spec, w->optimizer.lr);
  brim_learn_describe(&w->spec, &w->data.train.source->info, w->description);
  return BRIM_OK;
}

//------------------------------------------- workload -------------------------------------------

//---------------------------------- checkpoints ----------------------------------

// A loss that compares views trains an embedding.
static brim_checkpoint_facts facts_of(const void *work) {
  const brim_supervised *w = (const brim_supervised *)work;
  bool classes = w->spec.classes > 0, pairs = w->spec.views > 1;
  bool labels = brim_work_is_multi_label(w->spec.loss);
  const brim_stepper *t = &w->stepper;
  brim_checkpoint_facts f = {.workload = "supervised",
                             .spec = &w->spec,
                             .loader = &w->loader,
                             .data = &w->data,
                             .task = classes  ? BRIM_TASK_CLASSES
                                     : pairs  ? BRIM_TASK_EMBEDDING
                                     : labels ? BRIM_TASK_LABELS
                                              : BRIM_TASK_VALUES,
                             .outputs = classes ? w->spec.classes
                                        : pairs ? brim_pairs_width(t->net)
                                                : w->spec.target_dim};
  if (w->spec.views == 2) f.accumulates = brim_pairs_choice(&w->pairs, t->accumulation, t->exact);
  return f;
}

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
  w->stepped = (brim_stepped){
      .stepper = &w->stepper, .data = &w->data, .loader = &w->loader, .facts = facts_of};
  brim_status status = setup(w, context, config);
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
  apply(w, setting, &a);
  if (!brim_batching_free_optional(&w->batching, &w->data, &a)) return false;
  w->data.has_planned = false;
  return true;
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

static brim_status configure(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_applied a;
  brim_stepper_drop(&w->stepper);
  BRIM_TRY(
      brim_device_set_threads(w->data.context.device, (int)setting->value[BRIM_LEARN_THREADS]));
  BRIM_TRY(prepare(w, setting, &a));
  brim_pairs_report(&w->pairs, &w->batching, &a.spec);
  brim_status status = build(w, setting, &a);
  if (!status) return BRIM_OK;
  brim_stepper_drop(&w->stepper);
  brim_work_drop_residents(&w->data);  // a setting that does not stand holds no memory
  return status;
}

static brim_status supervised_configure(void *work, const brim_setting *setting) {
  BRIM_TRY(brim_stepped_tell_configure(work, setting));
  return brim_stepped_agree(work, configure(work, setting));
}

static void supervised_info(void *work, brim_work_info *out) {
  const brim_supervised *w = (const brim_supervised *)work;
  const brim_stepper *t = &w->stepper;
  memset(out, 0, sizeof *out);
  brim_stepper_info(t, &w->data, w->loader.limit, out);
  out->whole = out->multiple = brim_supervised_whole(w);
  if (t->views == 2 && t->accumulation > 1) out->accumulates = t->exact ? "exact" : "plain";
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  if (t->views == 1 && w->spec.loss) {
    out->loss = w->spec.loss->name;
    out->target_dim = w->spec.classes > 0 ? 0 : w->spec.target_dim;
  }
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
}

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
  if (out->bad > 0 && finite && !w->reported_bad_eval) {
    brim_log_warn("run",
                  "%" PRId64 " of %" PRId64
                  " evaluation samples gave no finite loss: brim excludes them from the mean and "
                  "counts them as wrong; `brim data verify` finds values that are not finite",
                  out->bad, out->samples);
  }
  w->reported_bad_eval = true;
  return BRIM_OK;
}

// A loss between numbers says that classes are not what is learned.
static bool supervised_measures(const brim_config *config, const char *metric_key) {
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  return strcmp(metric_key, "accuracy") != 0 || !loss || strcmp(loss->name, "mse") != 0;
}

//---------------------------------- the table ----------------------------------

static const brim_work_evaluation_table evaluation = {.evaluate = supervised_evaluate,
                                                      .use = brim_stepped_use};
static const brim_work_batches_table batches = {.allow_smaller = supervised_allow_smaller,
                                                .free_optional = supervised_free_optional};

const brim_workload_table brim_workload_supervised = {
    .name = "supervised",
    .has_targets = true,
    .model = "mlp",
    .config = "default.yaml",
    .knob_set = &brim_learn_knob_set,
    .metric_set = &brim_supervised_set,
    .measures = supervised_measures,
    .sums = &brim_net_work_sums,
    .diagnosis = &brim_stepped_diagnosis,
    .open = supervised_open,
    .close = supervised_close,
    .knobs = supervised_knobs,
    .sensible = supervised_sensible,
    .plan = supervised_plan,
    .resuming = supervised_resuming,
    .configure = supervised_configure,
    .info = supervised_info,
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
    .batches = &batches,
    .background = &brim_stepped_background,
    .findings = &brim_learn_findings,
};
