// What the supervised workload reads from the config, and the plan of a setting.
#include <string.h>

#include "workload/supervised/supervised_int.h"
#include "workload/workload_cache.h"

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

int64_t brim_supervised_whole(const brim_supervised *w) {
  return w->loader.drop_last ? w->batching.batch : 0;
}

void brim_supervised_apply(const brim_supervised *w, const brim_setting *setting,
                           brim_applied *out) {
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

brim_status brim_supervised_prepare(brim_supervised *w, const brim_setting *setting,
                                    brim_applied *out) {
  brim_device *device = w->data.context.device;
  brim_cache_request r;
  brim_supervised_apply(w, setting, out);
  BRIM_TRY(brim_learn_check_precision(device, &out->spec));
  BRIM_TRY(request(w, setting, out, &r));
  out->spec.memory_limit = brim_work_left_to_net(&w->data, &r);
  return brim_pairs_choose(&w->pairs, device, &w->batching, &out->spec);
}

static brim_status plan_net(brim_supervised *w, const brim_setting *setting, brim_plan *out) {
  brim_applied a;
  BRIM_TRY(brim_supervised_prepare(w, setting, &a));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->data.context.device, &a.spec, out);
}

static brim_status choose_cache(const brim_supervised *w, const brim_setting *setting,
                                const brim_plan *plan, brim_work_caching *out) {
  brim_applied a;
  brim_cache_request r;
  brim_supervised_apply(w, setting, &a);
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
  brim_supervised_apply(w, setting, &a);
  return brim_work_plan_sets(d, &d->planned, &a.train, &a.eval, out);
}

// Workspaces depend on the number of threads; what is configured now keeps its own.
brim_status brim_supervised_plan(brim_supervised *w, const brim_setting *setting, brim_plan *out) {
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

brim_status brim_supervised_setup(brim_supervised *w, const brim_work_context *context,
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
