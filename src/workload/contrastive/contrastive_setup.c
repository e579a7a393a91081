// What the contrastive workload reads from the config, and the plan of a setting.
#include <string.h>

#include "workload/contrastive/contrastive_int.h"
#include "workload/workload_cache.h"

//---------------------------------- data ----------------------------------

// Features are evaluated by their labels.
static bool is_labelled(const brim_work_data *d) { return d->train.source->info.classes > 0; }

static brim_status take_train(brim_contrastive *w) {
  brim_work_data *d = &w->data;
  double share = is_labelled(d) ? brim_work_val_fraction(d->config) : 0;
  if (!is_labelled(d) && brim_config_float(d->config, "data.val_fraction") > 0) {
    brim_log_warn(
        "workload",
        "data.val_fraction has no effect: evaluation needs labels, and the training set has none");
  }
  w->spec.views = brim_work_views(d->config);
  BRIM_TRY(brim_work_data_take_train(d, share));
  if (d->train.transforms) w->spec.views = brim_transforms_views(d->train.transforms);
  if (w->spec.views == 2) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "workload contrastive compares two views of each sample, but transform makes "
                   "%d; write transform: views | random_resized_crop(size=96) | ...",
                   (int)w->spec.views);
}

// What is learned from without labels is evaluated with some: the evaluation split is another one than
// training's, whatever that is.
static brim_status open_data(brim_contrastive *w) {
  brim_work_data *d = &w->data;
  bool missing = false;
  BRIM_TRY(brim_work_data_open_train(d));
  BRIM_TRY(take_train(w));
  BRIM_TRY(
      brim_work_choose_loss(d->config, d->train.source, w->spec.views, &w->usual, &w->spec.loss));
  BRIM_TRY(brim_work_data_open_eval(d, true, &missing));
  if (missing && is_labelled(d)) {
    brim_work_warn_no_eval();
  } else if (missing) {
    brim_log_warn("workload",
                  "no evaluation: contrastive training evaluates features with labels, and the "
                  "data has none; set dataset.val or dataset.test to a labelled set");
    brim_status_clear();
  }
  return brim_contrastive_open_bank(w);
}

// The keys of `contrastive`, once the sets are open.
static brim_status read_keys(brim_contrastive *w) {
  const brim_config *config = w->data.config;
  if (brim_config_int(config, "contrastive.views") != 2) {
    return brim_fail(BRIM_EINVAL,
                     "contrastive.views is %lld, but NT-Xent compares 2; remove the key",
                     (long long)brim_config_int(config, "contrastive.views"));
  }
  w->probe_epochs = brim_config_int(config, "contrastive.probe_epochs");
  if (!w->data.eval.source) return BRIM_OK;
  w->neighbours.bank = brim_contrastive_bank_count(w);
  w->neighbours.classes = w->bank.classes;
  w->neighbours.k = (int32_t)brim_config_int(config, "contrastive.knn_k");
  w->neighbours.temperature = brim_config_float(config, "contrastive.knn_temperature");
  return BRIM_OK;
}

// A projection is as wide as its model says, and is compared to other projections.
static void set_input(brim_contrastive *w) {
  brim_learn_set_input(brim_work_set_info(&w->data.train), &w->spec);
  brim_work_set_eval_size(&w->data, &w->spec);
  w->spec.classes = 0;
  w->spec.target_dim = 1;
}

// Allowed, and seldom meant.
static void warn_of_projection(const brim_contrastive *w) {
  const char *name = w->spec.model->name;
  if (strcmp(name, "simclr") == 0) return;
  bool convolutions = brim_str_starts(name, "resnet") || brim_str_starts(name, "wideresnet");
  brim_log_warn("workload",
                "model %s has no projection head, which makes its features worse; use model: "
                "simclr(backbone=%s)",
                name, convolutions ? name : "resnet18");
}

//---------------------------------- settings ----------------------------------

void brim_contrastive_apply(const brim_contrastive *w, const brim_setting *setting,
                            brim_applied *out) {
  const brim_learn_base base = {.spec = &w->spec,
                                .loader = &w->loader,
                                .batching = &w->batching,
                                .data = &w->data,
                                .most_eval = w->neighbours.bank};
  brim_learn_apply(&base, setting, out);
  out->spec.neighbours = w->neighbours;
  // whole steps, whatever they are made of: all their samples are each other's negatives
  out->train.multiple = out->spec.batch * out->spec.accumulation;
}

static brim_status request(const brim_contrastive *w, const brim_setting *setting,
                           const brim_applied *a, brim_cache_request *out) {
  *out = (brim_cache_request){.asked = (brim_cache)setting->value[BRIM_LEARN_CACHE],
                              .limit = w->spec.memory_limit};
  BRIM_TRY(brim_work_request(&w->data, &a->train, &a->eval, out));
  if (!brim_work_counts_loaders(&w->data, out->limit)) return BRIM_OK;
  const brim_work_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
  brim_plan bank;
  memset(&bank, 0, sizeof bank);
  BRIM_TRY(brim_contrastive_plan_bank(w, &none, a, &bank));
  out->loaders += bank.bytes[BRIM_PLACE_HOST] + bank.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

brim_status brim_contrastive_prepare(brim_contrastive *w, const brim_setting *setting,
                                     brim_applied *out) {
  brim_device *device = w->data.context.device;
  brim_cache_request r;
  brim_contrastive_apply(w, setting, out);
  BRIM_TRY(brim_learn_check_precision(device, &out->spec));
  BRIM_TRY(request(w, setting, out, &r));
  out->spec.memory_limit = brim_work_left_to_net(&w->data, &r);
  return brim_pairs_choose(&w->pairs, device, &w->batching, &out->spec);
}

static brim_status plan_net(brim_contrastive *w, const brim_setting *setting, brim_plan *out) {
  brim_applied a;
  BRIM_TRY(brim_contrastive_prepare(w, setting, &a));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->data.context.device, &a.spec, out);
}

static brim_status choose_cache(const brim_contrastive *w, const brim_setting *setting,
                                const brim_plan *plan, brim_work_caching *out) {
  brim_applied a;
  brim_cache_request r;
  brim_contrastive_apply(w, setting, &a);
  BRIM_TRY(request(w, setting, &a, &r));
  r.plan = plan;
  return brim_work_choose_cache(&w->data, &r, out);
}

static brim_status plan(brim_contrastive *w, const brim_setting *setting, brim_plan *out) {
  brim_work_data *d = &w->data;
  brim_applied a;
  d->has_planned = false;
  BRIM_TRY(plan_net(w, setting, out));
  BRIM_TRY(choose_cache(w, setting, out, &d->planned));
  d->planned_for = *setting;
  d->has_planned = true;
  brim_contrastive_apply(w, setting, &a);
  BRIM_TRY(brim_work_plan_sets(d, &d->planned, &a.train, &a.eval, out));
  return brim_contrastive_plan_bank(w, &d->planned, &a, out);
}

// Workspaces depend on the number of threads; what is configured now keeps its own.
brim_status brim_contrastive_plan(brim_contrastive *w, const brim_setting *setting,
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
  brim_contrastive *w = (brim_contrastive *)work;
  brim_plan plan;
  memset(&plan, 0, sizeof plan);
  if (planned) BRIM_TRY(plan_net(w, setting, &plan));
  return choose_cache(w, setting, &plan, out);
}

//---------------------------------- all of it ----------------------------------

brim_status brim_contrastive_setup(brim_contrastive *w, const brim_work_context *context,
                                   const brim_config *config) {
  w->stepped.cache_of = cache_of;
  BRIM_TRY(brim_work_data_init(&w->data, context, config));
  brim_learn_set_spec(config, &w->spec);
  brim_pairs_read(config, &w->pairs);
  BRIM_TRY(open_data(w));
  BRIM_TRY(read_keys(w));
  set_input(w);
  warn_of_projection(w);
  brim_learn_warn_short_tokens(&w->spec, brim_work_set_info(&w->data.train));
  BRIM_TRY(brim_learn_set_optimizer(config, &w->optimizer));
  w->spec.optimizer = &w->optimizer.component;
  BRIM_TRY(brim_learn_set_knobs(config, context->device, &brim_stepped_matters, w->knobs));
  w->batching = brim_learn_batching(w->knobs);
  brim_learn_set_loader(config, w->spec.seed, &w->loader);
  w->loader.drop_last = true;
  BRIM_TRY(brim_work_data_measure(&w->data));
  w->stepper.metric_set = &brim_contrastive_set;
  brim_stepper_init(&w->stepper, &w->data, &w->spec, w->optimizer.lr);
  brim_learn_describe(&w->spec, &w->data.train.source->info, w->description);
  return BRIM_OK;
}
