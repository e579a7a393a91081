// The outputs of a trained network for every sample of a set, batch by batch.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/workload_loss.h"
#include "workload/workload_trained.h"

typedef struct running {
  const brim_trained *t;
  const brim_trained_data *data;
  const brim_trained_how *how;
  brim_net *net;
  brim_loader *loader;
  int64_t batch, width;
  float *outputs;   // (batch, width)
  int32_t *label;   // (batch); what the network's loss reads
  float *target;    // (batch, width), for values: zeros where there are none
  uint64_t *index;  // (batch)
  int32_t *kept_label;
  float *kept_target;
  int64_t left;
  uint64_t next;  // samples before this one were handed out
  int64_t rows;
} running;

static brim_status create_net(running *r, brim_device *device, const brim_config *config) {
  static const brim_component sgd = {.name = "sgd"};  // keeps no state: nothing is trained
  brim_net_spec spec;
  BRIM_TRY(brim_trained_spec(r->t, config, &spec));
  const brim_component *loss = brim_config_component(config, "loss", NULL);
  bool classes = r->t->task == BRIM_TASK_CLASSES;
  // a projection is compared with nothing here: any loss over numbers will do
  brim_usual usual;
  bool labels = r->t->task == BRIM_TASK_LABELS;
  brim_usual_loss(config, classes ? "cross_entropy" : labels ? "bce" : "mse", &usual);
  spec.loss = !loss || r->t->task == BRIM_TASK_EMBEDDING ? &usual.loss : loss;
  spec.optimizer = &sgd;
  spec.batch = 1;  // the training half is never run, and should take no room
  spec.eval_batch = r->batch;
  spec.accumulation = 1;
  spec.precision = r->how->precision;
  // a network that is evaluated by neighbours outputs its features; they are asked of none here
  if (r->how->features) {
    spec.neighbours = (brim_neighbours){.bank = 1, .classes = 1, .k = 1, .temperature = 1};
  }
  BRIM_TRY(brim_net_create(device, &spec, &r->net));
  r->width = brim_net_output_width(r->net);
  return brim_net_load_weights(r->net, r->t->path,
                               r->how->ema && r->t->has_ema ? BRIM_TRAINED_EMA : NULL);
}

static brim_status create_loader(running *r, brim_device *device) {
  brim_loader_options options = {.batch = r->batch,
                                 .num_workers = r->how->num_workers,
                                 .prefetch_factor = 2,
                                 .world = 1,
                                 .once = true,
                                 .skip_broken = r->how->skip_broken,
                                 .transforms = r->data->transforms};
  return brim_loader_create(device, r->data->source, &options, &r->loader);
}

static brim_status make_room(running *r) {
  size_t rows = (size_t)r->batch, width = (size_t)r->t->outputs;
  r->outputs = brim_calloc(rows * (size_t)r->width, sizeof *r->outputs);
  r->label = brim_calloc(rows, sizeof *r->label);
  r->kept_label = brim_calloc(rows, sizeof *r->kept_label);
  r->index = brim_calloc(rows, sizeof *r->index);
  if (r->t->task != BRIM_TASK_CLASSES) {
    r->target = brim_calloc(rows * width, sizeof *r->target);
    r->kept_target = brim_calloc(rows * width, sizeof *r->kept_target);
  }
  bool good = r->outputs && r->label && r->kept_label && r->index;
  if (r->t->task != BRIM_TASK_CLASSES) good = good && r->target && r->kept_target;
  return good ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the outputs");
}

// What the network's loss compares with: the targets, or something harmless where there are none.
static void set_targets(running *r, const brim_loaded *loaded) {
  size_t width = (size_t)r->t->outputs;
  if (!r->data->labelled || !loaded->target) return;
  if (r->t->task != BRIM_TASK_CLASSES) {
    memcpy(r->target, loaded->target, (size_t)loaded->rows * width * sizeof *r->target);
    return;
  }
  const int32_t *from = (const int32_t *)loaded->target;
  for (int64_t i = 0; i < loaded->rows; i++) {
    r->label[i] = r->data->label_map ? r->data->label_map[from[i]] : from[i];
  }
}

// Under skip_broken the place of a sample that cannot be read is taken by another, whose turn comes
// or came: every sample is handed out once.
static int64_t keep_new(running *r, const brim_loaded *loaded) {
  size_t width = (size_t)r->t->outputs, own = (size_t)r->width;
  int64_t kept = 0;
  for (int64_t i = 0; i < loaded->rows; i++) {
    if (loaded->index[i] < r->next) continue;
    r->next = loaded->index[i] + 1;
    r->index[kept] = loaded->index[i];
    r->kept_label[kept] = r->label[i];
    if (kept != i) {
      memcpy(r->outputs + (size_t)kept * own, r->outputs + (size_t)i * own,
             own * sizeof *r->outputs);
    }
    if (r->target) {
      memcpy(r->kept_target + (size_t)kept * width, r->target + (size_t)i * width,
             width * sizeof *r->target);
    }
    kept++;
  }
  return kept;
}

// A label of a class that the network does not know counts for no loss.
static void hide_unknown(int32_t *label, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    if (label[i] < 0) label[i] = 0;
  }
}

static brim_status one_batch(running *r, brim_trained_fn fn, void *ctx) {
  const brim_loaded *loaded = NULL;
  BRIM_TRY(brim_loader_next(r->loader, &loaded));
  set_targets(r, loaded);
  int32_t *fed = r->label;
  int64_t rows = loaded->rows;
  memcpy(r->kept_label, r->label, (size_t)rows * sizeof *r->label);
  hide_unknown(fed, rows);
  brim_batch batch = {.input = loaded->input, .rows = rows};
  bool labels = r->how->features || r->t->task == BRIM_TASK_CLASSES;
  batch.target = labels ? (const void *)fed : r->target;
  brim_status status = brim_net_evaluate(r->net, &batch, NULL);
  if (!status) status = brim_net_outputs(r->net, r->outputs, rows);
  memcpy(r->label, r->kept_label, (size_t)rows * sizeof *r->label);
  int64_t kept = status ? 0 : keep_new(r, loaded);
  r->left -= rows;
  brim_loader_release(r->loader, loaded);
  if (status || kept == 0) return status;
  bool classes = r->t->task == BRIM_TASK_CLASSES, labelled = r->data->labelled;
  brim_trained_rows out = {
      .rows = kept, .width = r->width, .index = r->index, .outputs = r->outputs};
  if (labelled && classes) out.label = r->kept_label;
  if (labelled && !classes) out.target = r->kept_target;
  r->rows += kept;
  return fn(ctx, &out);
}

static brim_status run_all(running *r, const volatile sig_atomic_t *stop, brim_trained_fn fn,
                           void *ctx, brim_trained_result *out) {
  double loss = 0, rows = 0, bad = 0;
  r->left = brim_loader_samples(r->loader);
  BRIM_TRY(brim_loader_seek(r->loader, 0, 0));
  int64_t unread = 0;
  brim_net_metrics sums;
  while (r->left > 0) {
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    int64_t before = r->left;
    BRIM_TRY(one_batch(r, fn, ctx));
    unread += before - r->left;
    if (r->left > 0 && unread < 1 << 20) continue;  // the device counts in f32: exact below 2^24
    BRIM_TRY(brim_net_read_metrics(r->net, true, &sums));
    loss += sums.loss_sum;
    rows += sums.rows;
    bad += sums.bad_rows;
    unread = 0;
  }
  brim_loader_stats stats;
  brim_loader_get_stats(r->loader, &stats);
  out->rows = r->rows;
  out->broken = (int64_t)stats.broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", stats.first_broken);
  // samples that took the place of broken ones are in the sum twice, and unknown classes as others
  bool known = r->data->labelled && !r->how->features && rows > 0 && bad == 0 && stats.broken == 0;
  for (int64_t i = 0; r->data->label_map && i < r->data->source->info.classes; i++) {
    known = known && r->data->label_map[i] >= 0;
  }
  if (known) out->loss = loss / rows;
  return BRIM_OK;
}

brim_status brim_trained_run(const brim_trained *t, const brim_trained_data *data,
                             const brim_trained_how *how, brim_trained_fn fn, void *ctx,
                             brim_trained_result *out) {
  running r = {.t = t, .data = data, .how = how, .batch = how->batch};
  memset(out, 0, sizeof *out);
  out->loss = (double)NAN;
  uint64_t count = data->source->info.count;
  if (r.batch > 1 && (uint64_t)r.batch > count) r.batch = (int64_t)count;
  brim_status status = create_net(&r, how->device, how->config);
  if (!status) status = create_loader(&r, how->device);
  if (!status) status = make_room(&r);
  out->began = !status;
  if (!status) status = run_all(&r, how->stop, fn, ctx, out);
  brim_loader_destroy(r.loader);
  brim_net_destroy(r.net);
  brim_free(r.outputs);
  brim_free(r.label);
  brim_free(r.kept_label);
  brim_free(r.target);
  brim_free(r.kept_target);
  brim_free(r.index);
  return status;
}
