// The contrastive workload: one optimiser step on two views of each sample, evaluated by the labels of neighbours.

#include "workload/contrastive/contrastive_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hd/hd_shuffle.h"
#include "workload/workload_cache.h"
#include "workload/workload_findings.h"
#include "workload/workload_net_rows.h"
#include "workload/workload_source.h"

static brim_status open_bank(brim_contrastive *w);
static int64_t bank_count(const brim_contrastive *w);
static brim_status plan_bank(const brim_contrastive *w, const brim_work_caching *caching,
                             const brim_applied *a, brim_plan *plan);

//--------------------------------------------- keys ---------------------------------------------
// Config keys of contrastive learning, and the models it brings.

static const brim_config_row keys[] = {
    BRIM_KEY_CHOICE(
        "contrastive.accumulation", "auto", BRIM_KEY_NO_NAMES,
        BRIM_KEY_NAMES("plain", "exact", "auto"), BRIM_CONFIG_SAVED_OWN,
        "which negatives to use: the micro-batch (plain), the whole effective batch in two "
        "passes (exact), or chosen by cost (auto)"),
    BRIM_KEY_FLOAT("contrastive.temperature", NULL, 1e-6, 100, BRIM_KEY_NAMES("temperature"),
                   BRIM_CONFIG_SAVED_OWN, "temperature of NT-Xent (default: the loss's own)"),
    BRIM_KEY_INT("contrastive.views", "2", 2, 16, BRIM_KEY_NO_NAMES, 0,
                 "augmented copies of a sample"),
    BRIM_KEY_INT("contrastive.projection_dim", "128", 1, 65536, BRIM_KEY_NAMES("projection_dim"), 0,
                 "width of the projection"),
    BRIM_KEY_INT("contrastive.knn_k", "200", 1, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "number of neighbours in the kNN evaluation"),
    BRIM_KEY_FLOAT("contrastive.knn_temperature", "0.1", 1e-6, 100, BRIM_KEY_NO_NAMES,
                   BRIM_CONFIG_SAVED_OWN,
                   "temperature that weights the neighbours in the kNN evaluation"),
    BRIM_KEY_INT("contrastive.probe_epochs", "100", 0, 1e6, BRIM_KEY_NO_NAMES,
                 BRIM_CONFIG_SAVED_OWN, "epochs of the linear probe"),
};

static const brim_config_link links[] = {
    {"loss", "temperature", "contrastive.temperature", false},
    {"model", "dim", "contrastive.projection_dim", false},
};

static const brim_config_arg simclr_args[] = {
    BRIM_ARG_COMPONENT("backbone", "resnet18", "model", "model used as the encoder"),
    BRIM_ARG_INT("hidden", "512", 1, 65536, "width of the projection head"),
    BRIM_ARG_INT("dim", "128", 1, 65536, "width of the projection"),
    BRIM_ARG_INT("depth", "1", 1, 16, "hidden layers of the head"),
    BRIM_ARG_BOOL("batch_norm", "false", "batch norm after each hidden layer of the head"),
};

static const brim_config_component_row components[] = {
    BRIM_COMPONENT("model", "simclr", simclr_args, "encoder with a projection head"),
};

const brim_config_section brim_contrastive_section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .links = links,
    .link_count = sizeof links / sizeof *links,
    .components = components,
    .component_count = sizeof components / sizeof *components,
};

//--------------------------------------------- rows ---------------------------------------------
// What contrastive training measures, as rows: a network's training, and how well features tell classes
// apart.

static const brim_metric contrastive_rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(0, 0),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(0, 0),
    GRADIENT_ROWS,
    // features have no loss of their own: the column is empty
    [BRIM_CONTRASTIVE_EVAL_LOSS] = {.key = "eval_loss",
                                    .label = "",
                                    .stages = EVAL,
                                    .names = {[BRIM_METRIC_EVAL] = {.column = "eval_loss",
                                                                    .tag = "",
                                                                    .event = "val_loss",
                                                                    .figure = ""}}},
    [BRIM_CONTRASTIVE_KNN] = {.key = "knn",
                              .label = BRIM_N_("knn"),
                              .better = BRIM_BETTER_HIGHER,
                              .format = BRIM_METRIC_PERCENT,
                              .stages = EVAL,
                              .lines = LINE_EVAL,
                              .rank = 1,
                              .best = "accuracy",
                              .names = {[BRIM_METRIC_EVAL] = {"knn", "knn", "knn",
                                                              "knn_accuracy"}}},
    [BRIM_CONTRASTIVE_PROBE] = {.key = "probe",
                                .label = BRIM_N_("probe"),
                                .about = BRIM_N_("linear classifier on the features"),
                                .better = BRIM_BETTER_HIGHER,
                                .format = BRIM_METRIC_PERCENT,
                                .stages = PROBE,
                                .names = {[BRIM_METRIC_PROBE] = {"probe", "", "probe",
                                                                 "probe_accuracy"}}},
    [BRIM_CONTRASTIVE_PROBE_LOSS] = {.key = "probe_loss",
                                     .label = "",
                                     .stages = PROBE,
                                     .names = {[BRIM_METRIC_PROBE] = {"loss", "", "", ""}}},
};
const brim_metric_set brim_contrastive_set = {
    contrastive_rows, sizeof contrastive_rows / sizeof *contrastive_rows, NULL, NULL, NULL, NULL};

//------------------------------------------ brim init ------------------------------------------
// What `brim init` writes for images without labels.

static const char in_colour[] =
    " | color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, p=0.8)"
    " | random_grayscale(p=0.2) | gaussian_blur(kernel=9, sigma=(0.1, 2.0), p=0.5)";

// contrastive.c: what `brim init` writes for images without labels.
static void brim_contrastive_begin(const brim_work_images *images, brim_work_beginning *out) {
  char size[48];
  if (images->height == images->width) {
    snprintf(size, sizeof size, "%lld", (long long)images->height);
  } else {
    snprintf(size, sizeof size, "(%lld, %lld)", (long long)images->height,
             (long long)images->width);
  }
  snprintf(out->train, sizeof out->train,
           "views | random_resized_crop(size=%s, scale=(0.2, 1.0)) | random_flip%s", size,
           images->colour ? in_colour : "");
  snprintf(out->model, sizeof out->model, "simclr(backbone=resnet18%s, hidden=512, dim=128)",
           images->gpu ? "" : "(width=16)");
  snprintf(out->loss, sizeof out->loss, "ntxent(temperature=0.5)");
  snprintf(out->optimizer, sizeof out->optimizer, "adamw(lr=1e-3, weight_decay=1e-4)");
  out->epochs = 100;
  out->why = BRIM_N_("no labels: trains two views of each image to be alike (SimCLR)");
}

//--------------------------------------------- help ---------------------------------------------
// The help page of contrastive training.

const brim_work_options brim_contrastive_options = {
    .command = "eval",
    .about =
        BRIM_N_("Contrastive training evaluates features by nearest neighbours (kNN) and a linear "
                "probe, in the training precision unless you give --precision."),
};

static const char *const page[] = {
    BRIM_N_(
        "Contrastive training learns features without labels (SimCLR). The network learns similar "
        "features for two augmented views of one image, and different features for different "
        "images."),
    "  brim train contrastive --data-path stl10_binary\n"
    "  brim train cifar10-simclr --data-path cifar10\n\n",
    BRIM_N_(
        "A config of your own needs these keys; brim init writes one for images without labels:"),
    "  workload: contrastive\n"
    "  model: simclr(backbone=resnet18, hidden=512, dim=128)\n"
    "  transform:\n"
    "    train: views | random_resized_crop(size=96)\n\n",
    BRIM_N_(
        "Labels serve only to evaluate the features: by nearest neighbours (knn) during training, "
        "and by a linear classifier (probe) at the end. brim predict --features writes the "
        "features "
        "for other programs. brim train model=resnet18 --weights MODEL trains the encoder further "
        "with labels.")};
const brim_work_topic brim_contrastive_topic = {BRIM_N_("learning features without labels"), page,
                                                sizeof page / sizeof *page};

//-------------------------------------------- config --------------------------------------------
// What the contrastive workload reads from the config, and the plan of a setting.

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
  return open_bank(w);
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
  w->neighbours.bank = bank_count(w);
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

// A setting laid over the config; and with the rest that the network's plan takes: its limit, and how
// it accumulates.
static void apply(const brim_contrastive *w, const brim_setting *setting, brim_applied *out) {
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
  BRIM_TRY(plan_bank(w, &none, a, &bank));
  out->loaders += bank.bytes[BRIM_PLACE_HOST] + bank.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

static brim_status prepare(brim_contrastive *w, const brim_setting *setting, brim_applied *out) {
  brim_device *device = w->data.context.device;
  brim_cache_request r;
  apply(w, setting, out);
  BRIM_TRY(brim_learn_check_precision(device, &out->spec));
  BRIM_TRY(request(w, setting, out, &r));
  out->spec.memory_limit = brim_work_left_to_net(&w->data, &r);
  return brim_pairs_choose(&w->pairs, device, &w->batching, &out->spec);
}

static brim_status plan_net(brim_contrastive *w, const brim_setting *setting, brim_plan *out) {
  brim_applied a;
  BRIM_TRY(prepare(w, setting, &a));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->data.context.device, &a.spec, out);
}

static brim_status choose_cache(const brim_contrastive *w, const brim_setting *setting,
                                const brim_plan *plan, brim_work_caching *out) {
  brim_applied a;
  brim_cache_request r;
  apply(w, setting, &a);
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
  apply(w, setting, &a);
  BRIM_TRY(brim_work_plan_sets(d, &d->planned, &a.train, &a.eval, out));
  return plan_bank(w, &d->planned, &a, out);
}

// Workspaces depend on the number of threads; what is configured now keeps its own.
static brim_status brim_contrastive_plan(brim_contrastive *w, const brim_setting *setting,
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

// contrastive.c
// Fills in everything that does not depend on a setting.
static brim_status setup(brim_contrastive *w, const brim_work_context *context,
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

//--------------------------------------------- bank ---------------------------------------------
// The bank: labelled samples whose features vote on those of the evaluation set.

static brim_source *bank_source(const brim_contrastive *w) {
  return w->bank.source ? w->bank.source : w->data.train.source;
}

static brim_status nothing_evaluated(brim_contrastive *w, const char *why) {
  brim_log_warn("workload", "no evaluation: %s", why);
  brim_status_clear();
  brim_transforms_destroy(w->data.eval.transforms);
  brim_source_close(w->data.eval.source);
  brim_source_close(w->bank.source);
  w->data.eval.transforms = NULL;
  w->data.eval.source = w->bank.source = NULL;
  return BRIM_OK;
}

// Of a component for all splits its labelled training samples.
static brim_status open_labelled(brim_contrastive *w) {
  const brim_component *train = w->data.component;
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    BRIM_TRY(brim_work_with_argument(w->data.arena, &train, parts[i], NULL));
  }
  bool before = brim_log_hush(true);  // the same files again
  brim_status status = brim_work_open_source(&w->data, train, "train", &w->bank.source);
  brim_log_hush(before);
  return status;
}

static const brim_source_info *info_of(const brim_source *source,
                                       const brim_transforms *transforms) {
  return transforms ? brim_transforms_info(transforms) : &source->info;
}

// What reaches the network to be evaluated is the same shape in both; labels are those of the bank.
static brim_status check_bank(brim_contrastive *w) {
  static const char advice[] =
      "; give transform.val that ends in the shape that transform.train does";
  const brim_work_data *d = &w->data;
  brim_source_info bank_info = *info_of(bank_source(w), w->bank.transforms);
  brim_source_info eval_info = *brim_work_set_info(&d->eval);
  brim_source_info train_info = *brim_work_set_info(&d->train);
  BRIM_TRY(
      brim_source_match(bank_source(w), &bank_info, d->eval.source, &eval_info, false, advice));
  train_info.classes = eval_info.classes;
  train_info.target_dim = eval_info.target_dim;
  BRIM_TRY(brim_source_match(d->train.source, &train_info, d->eval.source, &eval_info,
                             brim_work_any_size(d->config), advice));
  w->bank.classes = bank_info.classes;
  return BRIM_OK;
}

// contrastive.c
// The labelled set whose features vote, and its transforms, once the evaluation set is open; without
// labels in both nothing is evaluated.
static brim_status open_bank(brim_contrastive *w) {
  const brim_work_data *d = &w->data;
  if (!d->eval.source) return BRIM_OK;
  if (d->eval.source->info.classes <= 0) {
    return nothing_evaluated(w,
                             brim_tr("the evaluation set has no labels for evaluating features"));
  }
  if (d->train.source->info.classes <= 0) {
    brim_status status = open_labelled(w);
    if (status == BRIM_ENOENT || (!status && w->bank.source->info.classes <= 0)) {
      return nothing_evaluated(w, brim_tr("no labelled training split for evaluating features"));
    }
    BRIM_TRY(status);
  }
  bool random = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(d->config, &random);
  BRIM_TRY(
      brim_work_make_transforms(pipeline, bank_source(w), d->seed, random, &w->bank.transforms));
  return check_bank(w);
}

static void close_bank(brim_contrastive *w) {
  brim_loader_destroy(w->bank.loader);
  brim_transforms_destroy(w->bank.transforms);
  brim_source_close(w->bank.source);
}

// Samples of it, with data.limit where it is the training set.
static int64_t bank_count(const brim_contrastive *w) {
  int64_t count = (int64_t)bank_source(w)->info.count;
  int64_t limit = brim_config_int(w->data.config, "data.limit");
  return !w->bank.source && limit > 0 && limit < count ? limit : count;
}

//---------------------------------- loading it ----------------------------------

// In order; decoding and transforming are worth the workers that training has.
static brim_loader_options bank_options(const brim_contrastive *w, const brim_applied *a) {
  brim_loader_options o = a->eval;
  o.transforms = w->bank.transforms;
  o.limit = w->bank.source ? 0 : w->loader.limit;
  bool work = bank_source(w)->info.costly || w->bank.transforms;
  o.num_workers = work ? a->train.num_workers : 0;
  o.resident = NULL;
  return o;
}

static bool shares_set(const brim_contrastive *w, brim_cache cache) {
  return !w->bank.source && brim_cache_needs_no_workers(cache);
}

// Where the training set lies on the device, or is read by it, the bank is read from there: only its
// batches are besides.
static brim_status plan_bank(const brim_contrastive *w, const brim_work_caching *caching,
                             const brim_applied *a, brim_plan *plan) {
  if (!w->neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, a);
  brim_source bare = *bank_source(w);
  bare.cache = NULL;
  if (!shares_set(w, caching->train)) return brim_loader_plan(&bare, &o, plan);
  brim_plan part;
  memset(&part, 0, sizeof part);
  const brim_work_context *context = &w->data.context;
  BRIM_TRY(caching->train == BRIM_CACHE_GPU
               ? brim_resident_plan(context->registry, context->device, &bare, &o, &part)
               : brim_mapped_plan(context->registry, context->device, &bare, &o, &part));
  for (size_t i = 0; i < part.row_count; i++) {
    const brim_plan_row *row = &part.rows[i];
    if (strstr(row->name, "dataset") || strstr(row->name, "resident")) continue;
    BRIM_TRY(brim_plan_add(plan, row->place, row->name, row->bytes));
  }
  return BRIM_OK;
}

static brim_status make_loader(brim_contrastive *w, const brim_applied *a) {
  if (!w->neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(w, a);
  if (shares_set(w, w->data.caching.train)) o.resident = w->data.train.resident;
  return brim_loader_create(w->data.context.device, bank_source(w), &o, &w->bank.loader);
}

//----------------------------------------- linear probe -----------------------------------------
// The linear probe: what a linear classifier makes of frozen features. Features of the bank and of the
// evaluation set are computed once, brought to mean 0 and deviation 1, and kept on the host; training
// on them is a small network of its own. A function of the seed like everything else.

// Steps enough for small sets too.
static const int64_t most_batch = 512, least_batch = 16, steps_wanted = 32;
static const double probe_lr = 3e-3;

typedef struct rows {
  brim_device *device;
  brim_net *net;  // that they come from
  int64_t count, width;
  float *values;  // (count, width)
  int32_t *labels;
} rows;

static void rows_free(rows *r) {
  brim_free(r->values);
  brim_free(r->labels);
}

static brim_status add(void *ctx, const brim_batch *batch, int64_t first) {
  rows *r = (rows *)ctx;
  size_t bytes = (size_t)batch->rows * sizeof *r->labels;
  if (batch->on_device) {
    BRIM_TRY(brim_device_copy(r->device, r->labels + first, batch->target, bytes, BRIM_COPY_D2H));
    BRIM_TRY(brim_device_sync(r->device));
  } else {
    memcpy(r->labels + first, batch->target, bytes);
  }
  BRIM_TRY(brim_net_evaluate(r->net, batch, NULL));
  return brim_net_outputs(r->net, r->values + first * r->width, batch->rows);
}

static brim_status collect(const brim_stepper *t, brim_loader *loader, rows *r) {
  memset(r, 0, sizeof *r);
  r->device = t->device;
  r->net = t->net;
  r->count = brim_loader_samples(loader);
  r->width = brim_net_output_width(t->net);
  r->values = brim_calloc((size_t)r->count * (size_t)r->width, sizeof *r->values);
  r->labels = brim_calloc((size_t)r->count, sizeof *r->labels);
  if (!r->values || !r->labels) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the features of %lld samples",
                     (long long)r->count);
  }
  return brim_stepper_each(t, loader, add, r);
}

// Both by the bank's figures. Row by row, as they lie in memory.
static brim_status standardise(rows *bank, rows *eval) {
  int64_t width = bank->width;
  double *mean = brim_calloc((size_t)width * 2, sizeof *mean), *over = mean + width;
  if (!mean) return brim_fail(BRIM_ENOMEM, "out of memory for the linear probe");
  for (int64_t i = 0; i < bank->count; i++) {
    const float *row = bank->values + i * width;
    for (int64_t c = 0; c < width; c++) mean[c] += (double)row[c];
  }
  for (int64_t c = 0; c < width; c++) mean[c] /= (double)bank->count;
  for (int64_t i = 0; i < bank->count; i++) {
    const float *row = bank->values + i * width;
    for (int64_t c = 0; c < width; c++) {
      double away = (double)row[c] - mean[c];
      over[c] += away * away;
    }
  }
  for (int64_t c = 0; c < width; c++) over[c] = 1 / sqrt(over[c] / (double)bank->count + 1e-12);
  rows *both[] = {bank, eval};
  for (int k = 0; k < 2; k++) {
    for (int64_t i = 0; i < both[k]->count; i++) {
      float *row = both[k]->values + i * width;
      for (int64_t c = 0; c < width; c++) row[c] = (float)(((double)row[c] - mean[c]) * over[c]);
    }
  }
  brim_free(mean);
  return BRIM_OK;
}

typedef struct probe {
  brim_net *net;
  int64_t batch;
  float *input;
  int32_t *label;
} probe;

static brim_status probe_open(const brim_contrastive *w, const rows *bank, probe *p) {
  static const brim_component model = {.name = "linear"}, loss = {.name = "cross_entropy"};
  static const brim_component optimizer = {.name = "adam"};
  brim_net_spec spec = {.model = &model,
                        .loss = &loss,
                        .optimizer = &optimizer,
                        .input_dtype = BRIM_F32,
                        .input_rank = 1,
                        .input_dim = {bank->width},
                        .channels = 1,
                        .scale = {1},
                        .classes = w->bank.classes,
                        .accumulation = 1,
                        .seed = w->spec.seed,
                        .eager = w->spec.eager};
  int64_t batch = bank->count / steps_wanted;
  if (batch < least_batch) batch = least_batch;
  spec.batch = p->batch = batch < most_batch ? batch : most_batch;
  p->input = brim_calloc((size_t)(p->batch * bank->width), sizeof *p->input);
  p->label = brim_calloc((size_t)p->batch, sizeof *p->label);
  if (!p->input || !p->label) return brim_fail(BRIM_ENOMEM, "out of memory for the linear probe");
  return brim_net_create(w->data.context.device, &spec, &p->net);
}

static void probe_close(probe *p) {
  brim_net_destroy(p->net);
  brim_free(p->input);
  brim_free(p->label);
}

static brim_batch fill(const probe *p, const rows *r, const brim_shuffle *order, int64_t first) {
  int64_t count = r->count - first < p->batch ? r->count - first : p->batch;
  for (int64_t i = 0; i < count; i++) {
    uint64_t at = (uint64_t)(first + i);
    if (order) at = brim_shuffle_at(order, at);
    memcpy(p->input + i * r->width, r->values + at * (uint64_t)r->width,
           (size_t)r->width * sizeof *p->input);
    p->label[i] = r->labels[at];
  }
  return (brim_batch){.input = p->input, .target = p->label, .rows = count};
}

// Adam down a cosine.
static brim_status fit(const brim_contrastive *w, const probe *p, const rows *bank) {
  int64_t per_epoch = (bank->count + p->batch - 1) / p->batch, step = 0;
  int64_t epochs = w->probe_epochs;
  const double pi = 3.14159265358979323846;
  for (int64_t epoch = 0; epoch < epochs; epoch++) {
    brim_shuffle order = brim_shuffle_make(w->spec.seed, (uint64_t)epoch, (uint64_t)bank->count);
    for (int64_t first = 0; first < bank->count; first += p->batch) {
      double place = (double)step / (double)(per_epoch * epochs);
      brim_net_micro micro = {.batch = fill(p, bank, &order, first), .step = ++step, .first = true};
      micro.step_rows = micro.batch.rows;
      BRIM_TRY(brim_stepper_check_stop(&w->stepper));
      BRIM_TRY(brim_net_step(p->net, &micro, probe_lr * 0.5 * (1 + cos(pi * place)), NULL));
    }
  }
  return BRIM_OK;
}

static brim_status score(const probe *p, const rows *eval, brim_work_metrics *out) {
  brim_net_metrics sums;
  BRIM_TRY(brim_net_read_metrics(p->net, true, &sums));
  for (int64_t first = 0; first < eval->count; first += p->batch) {
    brim_batch batch = fill(p, eval, NULL, first);
    BRIM_TRY(brim_net_evaluate(p->net, &batch, NULL));
  }
  BRIM_TRY(brim_net_read_metrics(p->net, true, &sums));
  memset(out, 0, sizeof *out);
  out->set = &brim_contrastive_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  out->values[BRIM_CONTRASTIVE_PROBE] = sums.correct / sums.rows;
  out->values[BRIM_CONTRASTIVE_PROBE_LOSS] =
      sums.bad_rows > 0 ? (double)NAN : sums.loss_sum / sums.rows;
  out->samples = (int64_t)sums.rows;
  out->bad = (int64_t)sums.bad_rows;
  return BRIM_OK;
}

// contrastive.c
static brim_status brim_contrastive_probe(void *work, brim_work_metrics *out) {
  brim_contrastive *w = (brim_contrastive *)work;
  rows bank = {0}, eval = {0};
  probe p = {0};
  if (!w->bank.loader || w->probe_epochs == 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "no linear probe: %s",
                     w->bank.loader ? "contrastive.probe_epochs is 0" : "there are no labels");
  }
  brim_status status = collect(&w->stepper, w->bank.loader, &bank);
  if (!status) status = collect(&w->stepper, w->stepper.eval_loader, &eval);
  if (!status) status = standardise(&bank, &eval);
  if (!status) status = probe_open(w, &bank, &p);
  if (!status) status = fit(w, &p, &bank);
  if (!status) status = score(&p, &eval, out);
  probe_close(&p);
  rows_free(&bank);
  rows_free(&eval);
  return status;
}

//------------------------------------------- workload -------------------------------------------
// The contrastive workload: one optimiser step on two views of each sample, evaluated by the labels of
// neighbours. Building and evaluating; steps and checkpoints are those of workload_stepper.h, the config
// is read in contrastive.c.

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
  close_bank(w);
  brim_work_data_deinit(&w->data);
  brim_free(w);
}

static brim_status contrastive_open(const brim_work_context *context, const brim_config *config,
                                    void **work) {
  brim_contrastive *w = (brim_contrastive *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->stepped = (brim_stepped){
      .stepper = &w->stepper, .data = &w->data, .loader = &w->loader, .facts = facts_of};
  brim_status status = setup(w, context, config);
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
  apply(w, setting, &a);
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
  return make_loader(w, a);
}

static brim_status configure(void *work, const brim_setting *setting) {
  brim_contrastive *w = (brim_contrastive *)work;
  brim_applied a;
  drop_setting(w);
  BRIM_TRY(
      brim_device_set_threads(w->data.context.device, (int)setting->value[BRIM_LEARN_THREADS]));
  BRIM_TRY(prepare(w, setting, &a));
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
