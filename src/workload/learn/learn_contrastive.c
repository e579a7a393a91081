// The workload contrastive: trains on two views of each sample, and evaluates features by the labels of their
// neighbours. learn.c has the parts that it shares with supervised.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hd/hd_shuffle.h"
#include "record/record_plan.h"
#include "workload/learn/learn.h"
#include "workload/learn/learn_rows.h"

// Rows of metrics that follow those of a network's training: the evaluation of features.
enum { EVAL_LOSS = BRIM_NET_ROWS, KNN, PROBE_ACCURACY, PROBE_LOSS };

typedef struct contrastive {
  brim_learn learn;  // must be the first member; spec.neighbours.bank 0 = nothing is evaluated
  // The bank: labelled samples whose features vote on those of the evaluation set.
  struct {
    brim_source
        *source;  // a labelled set, if the training set has no labels; NULL = use the training set
    brim_transforms *transforms;
    brim_loader *loader;  // the present setting's
    int64_t classes;
  } bank;
  int64_t probe_epochs;
} contrastive;

//--------------------------------------------- keys ---------------------------------------------

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

static const brim_config_section section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .links = links,
    .link_count = sizeof links / sizeof *links,
    .components = components,
    .component_count = sizeof components / sizeof *components,
};

//--------------------------------------------- rows ---------------------------------------------

static const brim_metric contrastive_rows[] = {
    [BRIM_NET_LOSS] = LOSS_ROW(0, 0),
    [BRIM_NET_ACCURACY] = ACCURACY_ROW(0, 0),
    GRADIENT_ROWS,
    // features have no loss: the column is empty
    [EVAL_LOSS] = {.key = "eval_loss",
                   .label = "",
                   .stages = EVAL,
                   .names = {[BRIM_METRIC_EVAL] = {.column = "eval_loss",
                                                   .tag = "",
                                                   .event = "val_loss",
                                                   .figure = ""}}},
    [KNN] = {.key = "knn",
             .label = BRIM_N_("knn"),
             .better = BRIM_BETTER_HIGHER,
             .format = BRIM_METRIC_PERCENT,
             .stages = EVAL,
             .lines = LINE_EVAL,
             .rank = 1,
             .best = "accuracy",
             .names = {[BRIM_METRIC_EVAL] = {"knn", "knn", "knn", "knn_accuracy"}}},
    [PROBE_ACCURACY] = {.key = "probe",
                        .label = BRIM_N_("probe"),
                        .about = BRIM_N_("linear classifier on the features"),
                        .better = BRIM_BETTER_HIGHER,
                        .format = BRIM_METRIC_PERCENT,
                        .stages = PROBE,
                        .names = {[BRIM_METRIC_PROBE] = {"probe", "", "probe", "probe_accuracy"}}},
    [PROBE_LOSS] = {.key = "probe_loss",
                    .label = "",
                    .stages = PROBE,
                    .names = {[BRIM_METRIC_PROBE] = {"loss", "", "", ""}}},
};
static const brim_metric_set metric_set = {
    .rows = contrastive_rows, .count = sizeof contrastive_rows / sizeof *contrastive_rows};

//------------------------------------------ brim init ------------------------------------------

static const char in_colour[] =
    " | color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, p=0.8)"
    " | random_grayscale(p=0.2) | gaussian_blur(kernel=9, sigma=(0.1, 2.0), p=0.5)";

static void begin(const brim_work_images *images, brim_work_beginning *out) {
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

static const brim_work_options options = {
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
static const brim_work_topic topic = {BRIM_N_("learning features without labels"), page,
                                      sizeof page / sizeof *page};

//--------------------------------------------- bank ---------------------------------------------
// The bank: labelled samples whose features vote on those of the evaluation set.

static brim_source *bank_source(const contrastive *s) {
  return s->bank.source ? s->bank.source : s->learn.data.train.source;
}

static brim_status nothing_evaluated(contrastive *s, const char *why) {
  brim_log_warn("workload", "no evaluation: %s", why);
  brim_status_clear();
  brim_transforms_destroy(s->learn.data.eval.transforms);
  brim_source_close(s->learn.data.eval.source);
  brim_source_close(s->bank.source);
  s->learn.data.eval.transforms = NULL;
  s->learn.data.eval.source = s->bank.source = NULL;
  return BRIM_OK;
}

// Opens the labelled train split of a component that serves all sets, as the bank.
static brim_status open_labelled(contrastive *s) {
  const brim_component *train = s->learn.data.component;
  static const char *const parts[] = {"part", "indices", "fold", "split"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    BRIM_TRY(brim_work_with_argument(s->learn.data.arena, &train, parts[i], NULL));
  }
  bool before = brim_log_hush(true);  // opening the training set has logged about these files
  brim_status status = brim_work_open_source(&s->learn.data, train, "train", &s->bank.source);
  brim_log_hush(before);
  return status;
}

static const brim_source_info *info_of(const brim_source *source,
                                       const brim_transforms *transforms) {
  return transforms ? brim_transforms_info(transforms) : &source->info;
}

// Checks that bank and evaluation set have the same sample shape and the same labels.
static brim_status check_bank(contrastive *s) {
  static const char advice[] =
      "; give transform.val that ends in the shape that transform.train does";
  const brim_work_data *d = &s->learn.data;
  brim_source_info bank_info = *info_of(bank_source(s), s->bank.transforms);
  brim_source_info eval_info = *brim_work_set_info(&d->eval);
  brim_source_info train_info = *brim_work_set_info(&d->train);
  BRIM_TRY(
      brim_source_match(bank_source(s), &bank_info, d->eval.source, &eval_info, false, advice));
  train_info.classes = eval_info.classes;
  train_info.target_dim = eval_info.target_dim;
  BRIM_TRY(brim_source_match(d->train.source, &train_info, d->eval.source, &eval_info,
                             brim_work_any_size(d->config), advice));
  s->bank.classes = bank_info.classes;
  return BRIM_OK;
}

// Opens the bank and its transforms after the evaluation set. Without labels in both nothing is evaluated.
static brim_status open_bank(contrastive *s) {
  const brim_work_data *d = &s->learn.data;
  if (!d->eval.source) return BRIM_OK;
  if (d->eval.source->info.classes <= 0) {
    return nothing_evaluated(s,
                             brim_tr("the evaluation set has no labels for evaluating features"));
  }
  if (d->train.source->info.classes <= 0) {
    brim_status status = open_labelled(s);
    if (status == BRIM_ENOENT || (!status && s->bank.source->info.classes <= 0)) {
      return nothing_evaluated(s, brim_tr("no labelled training split for evaluating features"));
    }
    BRIM_TRY(status);
  }
  bool random = false;
  const brim_pipeline *pipeline = brim_work_eval_pipeline(d->config, &random);
  BRIM_TRY(
      brim_work_make_transforms(pipeline, bank_source(s), d->seed, random, &s->bank.transforms));
  return check_bank(s);
}

static void close_bank(brim_learn *w) {
  contrastive *s = (contrastive *)w;
  brim_loader_destroy(s->bank.loader);
  brim_transforms_destroy(s->bank.transforms);
  brim_source_close(s->bank.source);
}

// Number of samples in the bank; data.limit applies if the bank is the training set.
static int64_t bank_count(const contrastive *s) {
  int64_t count = (int64_t)bank_source(s)->info.count;
  int64_t limit = brim_config_int(s->learn.data.config, "data.limit");
  return !s->bank.source && limit > 0 && limit < count ? limit : count;
}

//---------------------------------- loading it ----------------------------------

// Options of the bank's loader: it reads in order; decoding and transforming use as many workers as training.
static brim_loader_options bank_options(const contrastive *s, const brim_applied *a) {
  brim_loader_options o = a->eval;
  o.transforms = s->bank.transforms;
  o.limit = s->bank.source ? 0 : s->learn.loader.limit;
  bool work = bank_source(s)->info.costly || s->bank.transforms;
  o.num_workers = work ? a->train.num_workers : 0;
  o.resident = NULL;
  return o;
}

static bool shares_set(const contrastive *s, brim_cache cache) {
  return !s->bank.source && brim_cache_needs_no_workers(cache);
}

// Plans the bank's memory. If the device keeps or reads the training set and the bank is that set, only the
// bank's batches need memory.
static brim_status plan_bank(const brim_learn *w, const brim_work_caching *caching,
                             const brim_applied *a, brim_plan *plan) {
  const contrastive *s = (const contrastive *)w;
  if (!s->learn.spec.neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(s, a);
  brim_source bare = *bank_source(s);
  bare.cache = NULL;
  if (!shares_set(s, caching->train)) return brim_loader_plan(&bare, &o, plan);
  brim_plan part;
  memset(&part, 0, sizeof part);
  const brim_work_context *context = &s->learn.data.context;
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

static brim_status check_bank_readable(const brim_learn *w) {
  const contrastive *s = (const contrastive *)w;
  return s->bank.source ? brim_source_check_readable(s->bank.source, 0) : BRIM_OK;
}

static brim_status make_loader(brim_learn *w, const brim_applied *a) {
  contrastive *s = (contrastive *)w;
  if (!s->learn.spec.neighbours.bank) return BRIM_OK;
  brim_loader_options o = bank_options(s, a);
  if (shares_set(s, s->learn.data.caching.train)) o.resident = s->learn.data.train.resident;
  return brim_loader_create(s->learn.data.context.device, bank_source(s), &o, &s->bank.loader);
}

static void drop_loader(brim_learn *w) {
  contrastive *s = (contrastive *)w;
  brim_loader_destroy(s->bank.loader);
  s->bank.loader = NULL;
}

//---------------------------------------------- sets ----------------------------------------------

static bool is_labelled(const brim_work_data *d) { return d->train.source->info.classes > 0; }

static brim_status take_train(brim_learn *w) {
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

// Opens the sets. Features are learned without labels and evaluated with labels, so evaluation may use another
// split than the one that the component names for training.
static brim_status open_sets(contrastive *s) {
  brim_learn *w = &s->learn;
  brim_work_data *d = &w->data;
  bool missing = false;
  BRIM_TRY(brim_work_data_open_train(d));
  BRIM_TRY(take_train(w));
  BRIM_TRY(brim_learn_choose_loss(w));
  BRIM_TRY(brim_work_data_open_eval(d, true, &missing));
  if (missing && is_labelled(d)) {
    brim_work_warn_no_eval();
  } else if (missing) {
    brim_log_warn("workload",
                  "no evaluation: contrastive training evaluates features with labels, and the "
                  "data has none; set dataset.val or dataset.test to a labelled set");
    brim_status_clear();
  }
  return open_bank(s);
}

// Reads the keys of `contrastive` after the sets are open.
static brim_status read_keys(contrastive *s) {
  brim_learn *w = &s->learn;
  const brim_config *config = w->data.config;
  if (brim_config_int(config, "contrastive.views") != 2) {
    return brim_fail(BRIM_EINVAL,
                     "contrastive.views is %lld, but NT-Xent compares 2; remove the key",
                     (long long)brim_config_int(config, "contrastive.views"));
  }
  s->probe_epochs = brim_config_int(config, "contrastive.probe_epochs");
  if (!w->data.eval.source) return BRIM_OK;
  w->spec.neighbours =
      (brim_neighbours){.bank = bank_count(s),
                        .classes = s->bank.classes,
                        .k = (int32_t)brim_config_int(config, "contrastive.knn_k"),
                        .temperature = brim_config_float(config, "contrastive.knn_temperature")};
  return BRIM_OK;
}

// Warns of a model without a projection head: it is allowed but usually a mistake.
static void warn_of_projection(const brim_learn *w) {
  const char *name = w->spec.model->name;
  if (strcmp(name, "simclr") == 0) return;
  bool convolutions = brim_str_starts(name, "resnet") || brim_str_starts(name, "wideresnet");
  brim_log_warn("workload",
                "model %s has no projection head, which makes its features worse; use model: "
                "simclr(backbone=%s)",
                name, convolutions ? name : "resnet18");
}

static brim_status open_all(brim_learn *w) {
  contrastive *s = (contrastive *)w;
  BRIM_TRY(open_sets(s));
  BRIM_TRY(read_keys(s));
  brim_learn_set_input(w);
  warn_of_projection(w);
  return BRIM_OK;
}

//----------------------------------------- linear probe -----------------------------------------
// The linear probe: the accuracy of a linear classifier on frozen features. The features of bank and
// evaluation set are computed once, standardized, and kept on the host. A small network of its own trains on
// them. The same seed gives the same result.

// Small sets get small batches, so that an epoch has enough steps.
static const int64_t most_batch = 512, least_batch = 16, steps_wanted = 32;
static const double probe_lr = 3e-3;

typedef struct rows {
  brim_device *device;
  brim_net *net;  // computes the features
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

static brim_status collect(const brim_learn *w, brim_loader *loader, rows *r) {
  memset(r, 0, sizeof *r);
  r->device = w->device;
  r->net = w->net;
  r->count = brim_loader_samples(loader);
  r->width = brim_net_output_width(w->net);
  r->values = brim_calloc((size_t)r->count * (size_t)r->width, sizeof *r->values);
  r->labels = brim_calloc((size_t)r->count, sizeof *r->labels);
  if (!r->values || !r->labels) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the features of %lld samples",
                     (long long)r->count);
  }
  return brim_learn_each(w, loader, add, r);
}

// Standardizes both sets by the bank's mean and deviation.
static brim_status standardize(rows *bank, rows *eval) {
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

static brim_status probe_open(const contrastive *s, const rows *bank, probe *p) {
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
                        .classes = s->bank.classes,
                        .accumulation = 1,
                        .seed = s->learn.spec.seed,
                        .eager = s->learn.spec.eager};
  int64_t batch = bank->count / steps_wanted;
  if (batch < least_batch) batch = least_batch;
  spec.batch = p->batch = batch < most_batch ? batch : most_batch;
  p->input = brim_calloc((size_t)(p->batch * bank->width), sizeof *p->input);
  p->label = brim_calloc((size_t)p->batch, sizeof *p->label);
  if (!p->input || !p->label) return brim_fail(BRIM_ENOMEM, "out of memory for the linear probe");
  return brim_net_create(s->learn.device, &spec, &p->net);
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

// Adam with a cosine schedule.
static brim_status fit(const contrastive *s, const probe *p, const rows *bank) {
  int64_t per_epoch = (bank->count + p->batch - 1) / p->batch, step = 0;
  int64_t epochs = s->probe_epochs;
  const double pi = 3.14159265358979323846;
  for (int64_t epoch = 0; epoch < epochs; epoch++) {
    brim_shuffle order =
        brim_shuffle_make(s->learn.spec.seed, (uint64_t)epoch, (uint64_t)bank->count);
    for (int64_t first = 0; first < bank->count; first += p->batch) {
      double place = (double)step / (double)(per_epoch * epochs);
      brim_net_micro micro = {.batch = fill(p, bank, &order, first), .step = ++step, .first = true};
      micro.step_rows = micro.batch.rows;
      BRIM_TRY(brim_learn_check_stop(&s->learn));
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
  brim_work_metrics_clear(&metric_set, out);
  out->values[PROBE_ACCURACY] = sums.correct / sums.rows;
  out->values[PROBE_LOSS] = sums.bad_rows > 0 ? (double)NAN : sums.loss_sum / sums.rows;
  out->samples = (int64_t)sums.rows;
  out->bad = (int64_t)sums.bad_rows;
  return BRIM_OK;
}

static brim_status probe_features(void *work, brim_work_metrics *out) {
  contrastive *s = (contrastive *)work;
  rows bank = {0}, eval = {0};
  probe p = {0};
  if (!s->bank.loader || s->probe_epochs == 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "no linear probe: %s",
                     s->bank.loader ? "contrastive.probe_epochs is 0" : "there are no labels");
  }
  brim_status status = collect(&s->learn, s->bank.loader, &bank);
  if (!status) status = collect(&s->learn, s->learn.eval_loader, &eval);
  if (!status) status = standardize(&bank, &eval);
  if (!status) status = probe_open(s, &bank, &p);
  if (!status) status = fit(s, &p, &bank);
  if (!status) status = score(&p, &eval, out);
  brim_net_destroy(p.net);
  brim_free(p.input);
  brim_free(p.label);
  rows_free(&bank);
  rows_free(&eval);
  return status;
}

//---------------------------------- evaluating ----------------------------------

static brim_status add_to_bank(void *net, const brim_batch *batch, int64_t first) {
  return brim_net_bank((brim_net *)net, batch, first);
}

static brim_status ask_neighbours(void *net, const brim_batch *batch, int64_t first) {
  (void)first;
  return brim_net_evaluate_features((brim_net *)net, batch);
}

static brim_status evaluate_features(brim_learn *w) {
  BRIM_TRY(brim_learn_each(w, ((const contrastive *)w)->bank.loader, add_to_bank, w->net));
  return brim_learn_each(w, w->eval_loader, ask_neighbours, w->net);
}

// Evaluates features by their neighbours. Samples whose features are not finite count as bad, so that the
// accuracy is unknown and not 0 % if all are.
static brim_status evaluate(void *work, brim_work_metrics *out) {
  brim_net_metrics sums;
  BRIM_TRY(brim_learn_evaluate((brim_learn *)work, evaluate_features, &sums));
  brim_work_metrics_clear(&metric_set, out);
  out->values[KNN] = sums.rows > 0 ? sums.correct / sums.rows : (double)NAN;
  out->samples = (int64_t)sums.rows;
  out->bad = (int64_t)sums.bad_rows;
  return BRIM_OK;
}

//---------------------------------- the table ----------------------------------

// An epoch has whole steps only, because all samples of a step are each other's negatives.
static void apply(const brim_learn *w, brim_applied *out) {
  (void)w;
  out->train.multiple = out->spec.batch * out->spec.accumulation;
}

static void info(const brim_learn *w, brim_work_info *out) {
  out->multiple = w->batching.batch * w->batching.accumulation;
}

static const brim_learn_kind kind = {.name = "contrastive",
                                     .metric_set = &metric_set,
                                     .open = open_all,
                                     .apply = apply,
                                     .info = info,
                                     .plan = plan_bank,
                                     .check_readable = check_bank_readable,
                                     .build = make_loader,
                                     .drop = drop_loader,
                                     .close = close_bank};

static brim_status contrastive_open(const brim_work_context *context, const brim_config *config,
                                    void **work) {
  return brim_learn_open(&kind, sizeof(contrastive), context, config, work);
}

static const brim_work_evaluation_table evaluation = {.evaluate = evaluate, .use = brim_learn_use};
static const brim_work_features_table features = {.event = "probe", .probe = probe_features};

const brim_workload_table brim_workload_contrastive = {
    .name = "contrastive",
    .begin = begin,
    .config = "stl10_config.yaml",
    .options = &options,
    .option_count = 1,
    .topic = &topic,
    .section = &section,
    .metric_set = &metric_set,
    .open = contrastive_open,
    .evaluation = &evaluation,
    .features = &features,
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
