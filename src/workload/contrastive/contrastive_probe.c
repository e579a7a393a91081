// The linear probe: what a linear classifier makes of frozen features. Features of the bank and of the
// evaluation set are computed once, brought to mean 0 and deviation 1, and kept on the host; training
// on them is a small network of its own. A function of the seed like everything else.
#include <math.h>
#include <string.h>

#include "hd/hd_shuffle.h"
#include "workload/contrastive/contrastive_int.h"

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

brim_status brim_contrastive_probe(void *work, brim_work_metrics *out) {
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
