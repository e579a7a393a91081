// Stepping a network over a data set: building, stepping, metrics, passes, checkpoints.

#include "workload/workload_stepper.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_cache.h"
#include "workload/workload_int.h"
#include "workload/workload_loss.h"
#include "workload/workload_stepped.h"
#include "workload/workload_stepper_save.h"

static int64_t brim_stepper_per_epoch(const brim_stepper *t);

//-------------------------------------------- steps --------------------------------------------

static void find_rank(brim_stepper *t) {
  t->rank = brim_device_rank(t->device);
  t->ranks = brim_device_ranks(t->device);
}

void brim_stepper_init(brim_stepper *t, const brim_work_data *data, const brim_net_spec *spec,
                       double lr) {
  t->device = data->context.device;
  t->comm = data->context.comm;
  find_rank(t);
  t->watch.config = data->config;
  t->watch.data = &data->train;
  t->views = spec->views;
  t->counts = spec->classes > 0 || brim_work_is_multi_label(spec->loss);
  t->lr = lr;
  t->weights = brim_learn_weights(data->config);
  t->recalibrate_batches = brim_config_int(data->config, "training.ema_batches");
}

//---------------------------------- building ----------------------------------

void brim_stepper_drop(brim_stepper *t) {
  brim_loader_destroy(t->train_loader);
  brim_loader_destroy(t->eval_loader);
  brim_net_destroy(t->net);
  brim_free(t->given);
  t->given = NULL;
  t->train_loader = t->eval_loader = NULL;
  t->net = NULL;
}

static brim_status start_from_weights(brim_stepper *t, int rank) {
  brim_net_reinit reinit;
  BRIM_TRY(brim_net_start(t->net, t->weights, &reinit));
  if (t->reported_reinit || rank > 0 || t->rank > 0) return BRIM_OK;
  if (reinit.inside[0] && !reinit.is) {
    brim_log_info("workload", "%s: brim loads the weights of its %.*s", t->weights,
                  (int)strlen(reinit.inside) - 1, reinit.inside);
  }
  t->reported_reinit = reinit.is || reinit.inside[0];
  if (!reinit.is) return BRIM_OK;
  if (reinit.had == 0) {
    brim_log_warn("workload",
                  "%s: brim loads the weights of its %.*s; the last layer, %s, is not among them "
                  "and is initialized from the seed",
                  t->weights, (int)strlen(reinit.inside) - 1, reinit.inside, reinit.layer);
    return BRIM_OK;
  }
  brim_log_warn("workload",
                "%s: its last layer, %s, has %" PRId64 " outputs, this run needs %" PRId64
                ": brim initializes that layer from the seed and loads the others",
                t->weights, reinit.layer, reinit.had, reinit.outputs);
  return BRIM_OK;
}

static brim_status make_loaders(brim_stepper *t, const brim_work_data *data, brim_applied *a) {
  a->train.resident = data->train.resident;
  a->eval.resident = data->eval.resident;
  BRIM_TRY(brim_loader_create(t->device, data->train.source, &a->train, &t->train_loader));
  if (!data->eval.source) return BRIM_OK;
  return brim_loader_create(t->device, data->eval.source, &a->eval, &t->eval_loader);
}

// Every rank has the same part of a batch.
static brim_status check_shares(const brim_stepper *t, const brim_applied *a) {
  if (a->spec.batch * t->ranks == a->batch) return BRIM_OK;
  int64_t less = a->batch / t->ranks * t->ranks, more = less + t->ranks;
  if (less == 0) {
    return brim_fail(BRIM_EINVAL,
                     "batch_size is %" PRId64 ", but there are %d ranks; use %" PRId64 " or more",
                     a->batch, t->ranks, more);
  }
  return brim_fail(BRIM_EINVAL,
                   "batch_size is %" PRId64 ", which %d ranks cannot share equally; use %" PRId64
                   " or %" PRId64,
                   a->batch, t->ranks, less, more);
}

static brim_status check_epoch(const brim_stepper *t, const brim_work_data *data) {
  if (t->epoch_samples > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   t->views > 1
                       ? "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                         ", and two views need whole batches; use a smaller batch_size"
                       : "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                         ", and data.drop_last is true; use a smaller batch_size or "
                         "drop_last: false",
                   data->train.source->info.count, t->batch);
}

brim_status brim_stepper_build(brim_stepper *t, const brim_work_data *data, brim_applied *a) {
  const brim_net_spec *spec = &a->spec;
  t->rebuilt = t->built;
  find_rank(t);
  BRIM_TRY(check_shares(t, a));
  BRIM_TRY(brim_net_create(t->device, spec, &t->net));
  if (t->weights) BRIM_TRY(start_from_weights(t, a->train.rank));
  BRIM_TRY(make_loaders(t, data, a));
  t->batch = spec->batch * t->ranks;
  t->eval_batch = spec->eval_batch;
  t->accumulation = spec->accumulation;
  t->exact = spec->full_batch_negatives;
  t->precision = spec->precision;
  t->mapped_rows = data->caching.train == BRIM_CACHE_MAPPED && !data->train.transforms;
  t->step = t->epoch = t->position = 0;
  t->recalibrated = -1;
  memset(&t->recalibrate_reading, 0, sizeof t->recalibrate_reading);
  memset(&t->carried, 0, sizeof t->carried);
  t->left_out = t->left_out_reads = 0;
  t->first_left_out[0] = '\0';
  t->epoch_samples = brim_loader_samples(t->train_loader);
  if (a->train.drop_last) t->epoch_samples = brim_loader_batches(t->train_loader) * a->train.batch;
  t->epoch_samples *= t->ranks;  // each has as many
  BRIM_TRY(check_epoch(t, data));
  BRIM_TRY(brim_learn_schedule(data->config, t->lr, brim_stepper_per_epoch(t), &t->schedule));
  t->built = true;
  return BRIM_OK;
}

// Steps of an epoch, and what else `info` has of a setting.
static int64_t brim_stepper_per_epoch(const brim_stepper *t) {
  int64_t per_step = t->batch * t->accumulation;
  return per_step ? (t->epoch_samples + per_step - 1) / per_step : 0;
}

void brim_stepper_info(const brim_stepper *t, const brim_work_data *data, uint64_t limit,
                       brim_work_info *out) {
  uint64_t count = data->train.source->info.count;
  out->unit = "samples";
  out->set_samples = (int64_t)(limit && limit < count ? limit : count);
  out->samples_per_epoch = t->epoch_samples ? t->epoch_samples : out->set_samples;
  out->steps_per_epoch = brim_stepper_per_epoch(t);
  out->batch = t->batch;
  out->accumulation = t->accumulation;
  out->eval_samples = data->eval.source ? (int64_t)data->eval.source->info.count : 0;
  out->eval_batch = data->eval.source ? t->eval_batch : 0;
  out->learning_rate = t->lr;
  out->cache = brim_cache_name(data->caching.train);
  out->takes_work = data->train.source->info.costly || data->train.transforms;
  out->locked_bytes = brim_work_locked_bytes(data);
  out->not_mapped = data->caching.why[0] ? data->caching.why : NULL;
}

//---------------------------------- stepping ----------------------------------

static brim_batch batch_of(const brim_stepper *t, const brim_loaded *loaded) {
  brim_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.input = loaded->input;
  batch.target = loaded->target;
  batch.on_device = loaded->on_device;
  batch.rows = loaded->rows * t->views;
  return batch;
}

static brim_status next_batch(brim_stepper *t, const brim_spans *spans,
                              const brim_loaded **loaded) {
  brim_span_begin(spans, BRIM_PHASE_IO, "next batch");
  brim_status status = brim_loader_next(t->train_loader, loaded);
  brim_span_end(spans, BRIM_PHASE_IO, "next batch");
  if (status || !(*loaded)->on_device || !spans || !spans->exact) return status;
  // its transforms run on the device, or its rows come on their own: waited for here, they do not
  // count as computing
  bool rows = t->mapped_rows;
  brim_phase phase = rows ? BRIM_PHASE_H2D : BRIM_PHASE_TRANSFORM;
  const char *name = rows ? "mapped rows" : "augment";
  brim_span_begin(spans, phase, name);
  status = brim_device_sync(t->device);
  brim_span_end(spans, phase, name);
  if (status) brim_loader_release(t->train_loader, *loaded);
  return status;
}

static brim_status make_step(brim_stepper *t, const brim_spans *spans, brim_step_info *out) {
  int64_t remaining = t->epoch_samples - t->position;
  int64_t step_rows = t->batch * t->accumulation;
  if (step_rows > remaining) step_rows = remaining;
  // by the place in the data, not by the count of steps: the same until a run is resumed with
  // another batch size, and then still over the whole of training
  int64_t place = t->epoch * brim_stepper_per_epoch(t) + t->position / (t->batch * t->accumulation);
  double lr = brim_schedule_lr(&t->schedule, place + 1);
  memset(out, 0, sizeof *out);
  int64_t rows = 0;
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(t, spans, &loaded));
    brim_net_micro micro;
    memset(&micro, 0, sizeof micro);
    micro.batch = batch_of(t, loaded);
    micro.batch.row_offset = (rows + t->rank * loaded->rows) * t->views;
    micro.step = t->step + 1;
    micro.step_rows = step_rows * t->views;
    micro.first = rows == 0;
    rows += loaded->rows * t->ranks;
    brim_status status = rows < step_rows ? brim_net_train(t->net, &micro, spans)
                                          : brim_net_step(t->net, &micro, lr, spans);
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(t->train_loader, loaded);
    if (status) return status;
  }
  t->step++;
  t->position += rows;
  out->samples = rows;
  out->epoch = t->epoch;
  out->step = t->step;
  out->lr = lr;
  if (t->position >= t->epoch_samples) {
    out->epoch_end = true;
    t->epoch++;
    t->position = 0;
  }
  return BRIM_OK;
}

// Of a step that failed half-way nothing remains: for want of memory it will be made again, for want of
// data what was learned until then is kept. A device that failed has nothing to be asked for.
static brim_status brim_stepper_step(brim_stepper *t, const brim_spans *spans,
                                     brim_step_info *out) {
  brim_status status = make_step(t, spans, out);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  BRIM_TRY(brim_net_undo(t->net));
  brim_status_set_detail(why);
  return status;
}

//---------------------------------- half a step ----------------------------------

static void move_on(brim_stepper *t, int64_t rows, brim_step_info *out) {
  t->position += rows;
  out->samples = rows;
  out->epoch = t->epoch;
  out->step = t->step;
  if (t->position < t->epoch_samples) return;
  out->epoch_end = true;
  t->epoch++;
  t->position = 0;
}

static int64_t rows_of_step(const brim_stepper *t) {
  int64_t remaining = t->epoch_samples - t->position, rows = t->batch * t->accumulation;
  return rows < remaining ? rows : remaining;
}

// brim_work_loading_table's
static brim_status brim_stepper_load_only(brim_stepper *t, brim_step_info *out) {
  int64_t step_rows = rows_of_step(t), rows = 0;
  memset(out, 0, sizeof *out);
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(t, NULL, &loaded));
    rows += loaded->rows * t->ranks;
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(t->train_loader, loaded);
  }
  move_on(t, rows, out);
  return BRIM_OK;
}

// Every micro-batch of every step is this one batch. Where the device has memory of its own nothing
// is uploaded: a batch without data leaves the two slots as they are.
static brim_status compute_on(brim_stepper *t, const brim_loaded *loaded, int steps,
                              brim_step_info *out) {
  bool host = t->device->info.host_memory;
  brim_net_micro micro;
  memset(&micro, 0, sizeof micro);
  micro.batch = batch_of(t, loaded);
  micro.step_rows = micro.batch.rows * t->accumulation * t->ranks;
  for (int i = 0; i < steps; i++) {
    for (int64_t k = 0; k < t->accumulation; k++) {
      bool last = k + 1 == t->accumulation;
      micro.batch.input = host ? loaded->input : NULL;
      micro.batch.row_offset = (k * t->ranks + t->rank) * micro.batch.rows;
      micro.step = t->step + 1;
      micro.first = k == 0;
      BRIM_TRY(last ? brim_net_step(t->net, &micro, t->lr, NULL)
                    : brim_net_train(t->net, &micro, NULL));
    }
    t->step++;
    out->samples += loaded->rows * t->accumulation * t->ranks;
  }
  out->step = t->step;
  return BRIM_OK;
}

static brim_status brim_stepper_compute_only(brim_stepper *t, int steps, int64_t *ns,
                                             brim_step_info *out) {
  const brim_loaded *loaded = NULL;
  brim_step_info moved;
  memset(out, 0, sizeof *out);
  BRIM_TRY(next_batch(t, NULL, &loaded));
  // The last batch of an epoch may be short, and costs what a full one does. The next one is full,
  // unless none is.
  if (loaded->rows * t->ranks < t->batch) {
    int64_t part = loaded->rows * t->ranks;
    brim_loader_release(t->train_loader, loaded);
    move_on(t, part, &moved);
    BRIM_TRY(next_batch(t, NULL, &loaded));
  }
  int64_t rows = loaded->rows * t->ranks;
  brim_status status = brim_device_sync(t->device);
  brim_time start = brim_clock_now();
  if (!status) status = compute_on(t, loaded, steps, out);
  // the device may still read it where it lies
  brim_status waited = brim_device_sync(t->device);
  *ns = brim_time_since_ns(start, brim_clock_now());
  brim_loader_release(t->train_loader, loaded);
  move_on(t, rows, &moved);
  return status ? status : waited;
}

//---------------------------------- metrics ----------------------------------

static void add_metrics(brim_net_metrics *sum, const brim_net_metrics *part) {
  sum->loss_sum += part->loss_sum;
  sum->correct += part->correct;
  sum->rows += part->rows;
  sum->bad_rows += part->bad_rows;
  sum->grad_norm = part->grad_norm;
  sum->grad_norm_max = fmax(sum->grad_norm_max, part->grad_norm_max);  // 0 = none yet
  sum->loss_scale = part->loss_scale;
  sum->skipped_steps = part->skipped_steps;
}

void brim_stepper_means(const brim_stepper *t, const brim_net_metrics *sum, bool evaluated,
                        brim_work_metrics *out) {
  bool any = sum->rows > 0, half = t->precision == BRIM_PRECISION_FP16;
  double of = evaluated || sum->bad_rows == 0 ? sum->rows - sum->bad_rows : 0;
  memset(out, 0, sizeof *out);
  out->set = t->metric_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  double *v = out->values;
  v[BRIM_NET_LOSS] = of > 0 ? sum->loss_sum / of : (double)NAN;
  v[BRIM_NET_ACCURACY] = any && t->counts ? sum->correct / sum->rows : (double)NAN;
  v[BRIM_NET_GRAD_NORM] = sum->grad_norm;
  v[BRIM_NET_GRAD_NORM_MAX] = sum->grad_norm_max > 0 ? sum->grad_norm_max : (double)NAN;
  v[BRIM_NET_LOSS_SCALE] = half ? sum->loss_scale : (double)NAN;
  out->samples = (int64_t)sum->rows;
  out->bad = (int64_t)sum->bad_rows;
  out->skipped = (int64_t)sum->skipped_steps;
  out->searching = half && sum->loss_scale > 1;
  if (!any) return;
  double rows = (double)out->samples, accuracy = v[BRIM_NET_ACCURACY];
  out->sums[BRIM_NET_SUM_LOSS] = v[BRIM_NET_LOSS] * rows;
  out->sums[BRIM_NET_SUM_CORRECT] = isnan(accuracy) ? 0 : accuracy * rows;
  out->sums[BRIM_NET_SUM_ROWS] = rows;
}

// brim_workload_table.figures
static void brim_stepper_figures(const brim_stepper *t, const double *sums, double *values) {
  double rows = sums[BRIM_NET_SUM_ROWS];
  bool counted = rows > 0 && t->counts;
  values[BRIM_NET_LOSS] = rows > 0 ? sums[BRIM_NET_SUM_LOSS] / rows : (double)NAN;
  values[BRIM_NET_ACCURACY] = counted ? sums[BRIM_NET_SUM_CORRECT] / rows : (double)NAN;
}

// Training's sums of all ranks in place of this one's.
static brim_status brim_stepper_collect(const brim_stepper *t, brim_net_metrics *sums) {
  if (!t->comm || brim_net_shares_loss(t->net)) return BRIM_OK;
  double all[] = {sums->loss_sum, sums->correct, sums->rows, sums->bad_rows};
  BRIM_TRY(brim_comm_all_reduce(t->comm, all, 4, BRIM_F64));
  sums->loss_sum = all[0];
  sums->correct = all[1];
  sums->rows = all[2];
  sums->bad_rows = all[3];
  return BRIM_OK;
}

// The samples that each rank left out, one rank after the other: a sample may be one rank's in this epoch
// and another's in the next, and counts once.
static brim_status gather_left_out(brim_stepper *t, const brim_loader_stats *mine,
                                   const uint8_t *bits, size_t bytes) {
  const size_t text = sizeof t->first_left_out;
  uint8_t *all = brim_calloc(2, bytes + text);
  if (!all) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  uint8_t *one = all + bytes + text;  // its bits, then what was wrong with the first
  brim_status status = BRIM_OK;
  t->first_left_out[0] = '\0';
  for (int rank = 0; rank < t->ranks && !status; rank++) {
    if (rank == t->rank) {
      memcpy(one, bits, bytes);
      memcpy(one + bytes, mine->first_broken, text);
    }
    status = brim_comm_broadcast(t->comm, one, bytes + text, rank);
    for (size_t i = 0; i < bytes; i++) all[i] |= one[i];
    if (!t->first_left_out[0]) memcpy(t->first_left_out, one + bytes, text);
  }
  t->left_out = 0;
  for (size_t i = 0; i < bytes; i++) t->left_out += __builtin_popcount(all[i]);
  brim_free(all);
  return status;
}

static brim_status collect_left_out(brim_stepper *t) {
  size_t bytes = 0;
  const uint8_t *bits = brim_loader_left_out(t->train_loader, &bytes);
  brim_loader_stats mine;
  if (!t->comm || !bits) return BRIM_OK;
  brim_loader_get_stats(t->train_loader, &mine);
  int64_t reads = (int64_t)(mine.broken_reads - t->recalibrate_reading.broken_reads);
  BRIM_TRY(brim_comm_all_reduce(t->comm, &reads, 1, BRIM_I64));
  if (reads == t->left_out_reads) return BRIM_OK;
  t->left_out_reads = reads;
  return gather_left_out(t, &mine, bits, bytes);
}

// Training's sums since the last reset.
static brim_status brim_stepper_metrics(brim_stepper *t, bool reset, brim_work_metrics *out) {
  brim_net_metrics now, all;
  BRIM_TRY(brim_net_read_metrics(t->net, true, &now));
  add_metrics(&t->carried, &now);
  all = t->carried;
  BRIM_TRY(brim_stepper_collect(t, &all));
  BRIM_TRY(collect_left_out(t));
  brim_stepper_means(t, &all, false, out);
  if (reset) memset(&t->carried, 0, sizeof t->carried);
  return BRIM_OK;
}

//---------------------------------- passes ----------------------------------

brim_status brim_stepper_check_stop(const brim_stepper *t) {
  return t->stop && *t->stop ? brim_fail(BRIM_EINTERRUPTED, "interrupted") : BRIM_OK;
}

brim_status brim_stepper_each(const brim_stepper *t, brim_loader *loader, brim_batch_fn fn,
                              void *ctx) {
  int64_t samples = brim_loader_samples(loader), first = 0;
  BRIM_TRY(brim_loader_seek(loader, 0, 0));
  while (first < samples) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_stepper_check_stop(t));
    BRIM_TRY(brim_loader_next(loader, &loaded));
    brim_batch batch = {.input = loaded->input,
                        .target = loaded->target,
                        .on_device = loaded->on_device,
                        .rows = loaded->rows};
    brim_status status = fn(ctx, &batch, first);
    first += loaded->rows;
    brim_loader_release(loader, loaded);
    if (status) return status;
  }
  return brim_loader_seek(loader, 0, 0);  // what is read ahead now is of use the next time
}

// From the batches that training has next: they are read ahead already, and drawn as it draws them. At
// most an epoch of them.
static brim_status recalibrate_from(brim_stepper *t, bool stops, bool *begun) {
  int64_t all = (t->epoch_samples + t->batch - 1) / t->batch;
  int64_t count = t->recalibrate_batches < all ? t->recalibrate_batches : all;
  for (int64_t i = 0; i < count; i++) {
    const brim_loaded *loaded = NULL;
    if (stops) BRIM_TRY(brim_stepper_check_stop(t));
    BRIM_TRY(brim_loader_next(t->train_loader, &loaded));
    brim_batch batch = batch_of(t, loaded);
    *begun = true;
    brim_status status = brim_net_recalibrate(t->net, &batch, t->step + 1, i);
    brim_loader_release(t->train_loader, loaded);
    if (status) return status;
  }
  return BRIM_OK;
}

// What was read for it is not training's.
static void leave_out_reading(brim_stepper *t, const brim_loader_stats *before) {
  brim_loader_stats *out = &t->recalibrate_reading, now;
  brim_loader_get_stats(t->train_loader, &now);
  out->samples += now.samples - before->samples;
  out->read_ns += now.read_ns - before->read_ns;
  out->broken_reads += now.broken_reads - before->broken_reads;
  for (size_t i = 0; i < now.stage_count; i++) {
    out->stage_ns[i] += now.stage_ns[i] - before->stage_ns[i];
  }
}

// The averaged weights get batch norm statistics of their own, once a step, before they are evaluated
// or left as the model. Nothing where there is no average, or none of a network with batch norm.
// `stops`: BRIM_EINTERRUPTED as above.
static brim_status brim_stepper_recalibrate(brim_stepper *t, bool stops) {
  if (t->recalibrate_batches == 0 || !brim_net_recalibrates(t->net) || t->recalibrated == t->step)
    return BRIM_OK;
  bool begun = false;
  brim_loader_stats before;
  brim_loader_get_stats(t->train_loader, &before);
  brim_status status = recalibrate_from(t, stops, &begun);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status back = brim_loader_seek(t->train_loader, t->epoch, t->position / t->ranks);
  leave_out_reading(t, &before);
  if (status) {
    if (begun && status != BRIM_EDEVICE) BRIM_TRY(brim_net_undo_recalibration(t->net));
    brim_status_set_detail(why);
    return status;
  }
  BRIM_TRY(back);
  t->recalibrated = t->step;
  return BRIM_OK;
}

brim_status brim_stepper_evaluate(brim_stepper *t, brim_stepper_pass pass, void *ctx,
                                  brim_net_metrics *sums) {
  if (!t->eval_loader) {
    return brim_fail(BRIM_ESTATE,
                     "no data set for evaluation; set dataset.val (with labels for contrastive "
                     "training), or data.val_fraction=0.1 to hold out a tenth of a labelled set");
  }
  BRIM_TRY(brim_stepper_recalibrate(t, true));
  // training sums continue after the evaluation as if it had not happened
  brim_net_metrics now;
  BRIM_TRY(brim_net_read_metrics(t->net, true, &now));
  add_metrics(&t->carried, &now);
  brim_status status = pass(ctx);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  // also after a failure: half an evaluation's sums count for nothing
  brim_status read = brim_net_read_metrics(t->net, true, sums);
  if (status) {
    brim_status_set_detail(why);
    return status;
  }
  return read;
}

_Static_assert(BRIM_WORK_MAX_STAGES == BRIM_LOADER_MAX_STAGES, "stages of a pipeline");

static void brim_stepper_stats(const brim_stepper *t, const brim_work_data *data,
                               brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (!t->train_loader) return;
  brim_loader_stats train, eval;
  brim_loader_get_stats(t->train_loader, &train);
  memset(&eval, 0, sizeof eval);
  if (t->eval_loader) brim_loader_get_stats(t->eval_loader, &eval);
  out->cache = brim_cache_name(data->caching.train);
  out->locked_bytes = brim_work_locked_bytes(data);
  const brim_loader_stats *less = &t->recalibrate_reading;
  out->samples = (int64_t)(train.samples - less->samples);
  out->read_ns = train.read_ns - less->read_ns;
  out->stage_count = train.stage_count;
  for (size_t i = 0; i < train.stage_count; i++) {
    out->stage[i] = train.stage[i];
    out->stage_ns[i] = train.stage_ns[i] - less->stage_ns[i];
  }
  const int64_t reads = (int64_t)(train.broken_reads - less->broken_reads);
  const int64_t broken = t->comm ? t->left_out : (int64_t)train.broken;
  const char *first = t->comm ? t->first_left_out : train.first_broken;
  out->broken = broken + (int64_t)eval.broken;
  out->broken_reads = (t->comm ? t->left_out_reads : reads) + (int64_t)eval.broken_reads;
  if (!broken) first = eval.first_broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", first);
}

//---------------------------------- trials ----------------------------------

static brim_status brim_stepper_snapshot(brim_stepper *t) {
  // the net's snapshot reads its metrics: their exact sums are taken before and put back
  BRIM_TRY(brim_net_get_sums(t->net, &t->saved_sums));
  BRIM_TRY(brim_net_snapshot(t->net));
  BRIM_TRY(brim_net_set_sums(t->net, &t->saved_sums));
  t->saved_carried = t->carried;
  t->saved_step = t->step;
  t->saved_epoch = t->epoch;
  t->saved_position = t->position;
  return BRIM_OK;
}

static brim_status brim_stepper_restore(brim_stepper *t) {
  BRIM_TRY(brim_net_restore(t->net));
  BRIM_TRY(brim_net_set_sums(t->net, &t->saved_sums));
  BRIM_TRY(brim_loader_seek(t->train_loader, t->saved_epoch, t->saved_position / t->ranks));
  t->step = t->saved_step;
  t->epoch = t->saved_epoch;
  t->position = t->saved_position;
  t->carried = t->saved_carried;
  return BRIM_OK;
}

//----------------------------------------- checkpoints -----------------------------------------
// Checkpoints of a network that is stepped over a data set: where it stands, the training sums of the
// epoch, and the way back to exactly there. The file itself is the engine's (engine_checkpoint.c).

enum { SUM_COUNT = 4 + 2 * BRIM_METRIC_COUNT };

// The training sums of the epoch so far, so that a resumed epoch reports what an uninterrupted one
// does: carried (4), then host and device sums of the net.
static brim_status own_sums(brim_stepper *t, brim_net_sums *sums, double values[SUM_COUNT]) {
  BRIM_TRY(brim_net_get_sums(t->net, sums));
  const double carried[] = {t->carried.loss_sum, t->carried.correct, t->carried.rows,
                            t->carried.bad_rows};
  memcpy(values, carried, sizeof carried);
  memcpy(values + 4, sums->host, sizeof sums->host);
  memcpy(values + 4 + BRIM_METRIC_COUNT, sums->device, sizeof sums->device);
  return BRIM_OK;
}

// A loss of all ranks' samples has its sums on each of them.
static bool sums_apart(const brim_stepper *t) {
  return t->ranks > 1 && !brim_net_shares_loss(t->net);
}

static brim_status put_sums(brim_stepper *t, json_t *meta) {
  brim_net_sums sums;
  double values[SUM_COUNT];
  BRIM_TRY(own_sums(t, &sums, values));
  bool all = sums_apart(t) && t->given && t->given_step == t->step;
  brim_status status =
      all ? brim_json_put_numbers(meta, "brim.sums", t->given, (size_t)t->ranks * SUM_COUNT)
          : brim_json_put_numbers(meta, "brim.sums", values, SUM_COUNT);
  if (!status) status = brim_work_put_i64(meta, "brim.skipped_steps", (int64_t)sums.skipped_steps);
  double norm = fmax(t->carried.grad_norm_max, sums.grad_norm_max);  // 0 and NaN = none
  if (status || !(norm > 0)) return status;
  char number[32];
  brim_format_f64(norm, number);
  return brim_json_put(meta, "brim.grad_norm_max", json_string(number));
}

// What transforms the training samples; NULL = nothing. Their arithmetic differs in the last bit, and
// data.cache auto may choose otherwise when other programs hold memory.
static const char *transforms_where(const brim_work_data *d) {
  if (!d->train.transforms) return NULL;
  return d->train.resident ? "by the device" : "by workers";
}

// A network's output k is the class that was number k when it was trained: other folders, or the same
// ones in another order, are other classes.
static brim_status warn_of_classes(const brim_checkpoint_facts *f, const json_t *meta,
                                   const char *path) {
  const char *const *names = f->data->class_names;
  const char *text = json_string_value(json_object_get(meta, "brim.network"));
  if (!text || !names) return BRIM_OK;
  json_t *network = NULL;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &network));
  const json_t *saved = json_object_get(network, "class_names");
  for (size_t i = 0; i < json_array_size(saved) && (int64_t)i < f->spec->classes; i++) {
    const char *was = json_string_value(json_array_get(saved, i));
    if (!was || strcmp(was, names[i]) == 0) continue;
    brim_log_warn("workload",
                  "%s was trained with other classes or another class order: class %d was '%.*s' "
                  "and is '%.*s' now",
                  path, (int)i, 200, was, 200, names[i]);
    break;
  }
  json_decref(network);
  return BRIM_OK;
}

static brim_status fill_metadata(brim_stepper *t, const brim_checkpoint_facts *f, bool weights_only,
                                 json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string(f->workload)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", t->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", t->epoch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.position", t->position));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", (int64_t)f->spec->seed));
  BRIM_TRY(brim_work_put_i64(meta, "brim.batch", t->batch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.accumulation", t->accumulation));
  if (t->ranks > 1) BRIM_TRY(brim_work_put_i64(meta, "brim.ranks", t->ranks));
  int64_t samples = (int64_t)f->data->train.source->info.count;
  BRIM_TRY(brim_work_put_i64(meta, "brim.samples", samples));
  BRIM_TRY(brim_trained_put_network(f->spec, f->task, f->outputs, f->data->class_names, meta));
  BRIM_TRY(put_sums(t, meta));
  BRIM_TRY(brim_work_put_i64(meta, "brim.threads", t->device->info.threads));
  if (f->accumulates) {
    BRIM_TRY(brim_json_put(meta, "brim.accumulates", json_string(f->accumulates)));
  }
  if (t->recalibrated >= 0 && !weights_only)
    BRIM_TRY(brim_work_put_i64(meta, "brim.settled", t->recalibrated));
  const char *where = transforms_where(f->data);
  if (where) BRIM_TRY(brim_json_put(meta, "brim.transforms", json_string(where)));
  return brim_work_put_device(t->device, !weights_only, meta);
}

// All that goes along in the file; *out NULL on failure.
static brim_status make_metadata(brim_stepper *t, const brim_checkpoint_facts *f,
                                 const json_t *extra, bool weights_only, json_t **out) {
  brim_json_setup();
  json_t *meta = json_object();
  *out = NULL;
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  brim_status status = fill_metadata(t, f, weights_only, meta);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  }
  if (status) {
    json_decref(meta);
    return status;
  }
  *out = meta;
  return BRIM_OK;
}

// A model that no evaluation came before; without statistics of its own it keeps averaged ones. Ranks
// recalibrate together: one that fails must not continue alone.
static brim_status recalibrate_model(brim_stepper *t) {
  brim_status status = brim_stepper_recalibrate(t, false);
  if (status == BRIM_OK || status == BRIM_EDEVICE || t->ranks > 1) return status;
  brim_log_warn("workload",
                "cannot recalibrate the batch-norm statistics of the averaged weights, so brim "
                "uses averaged ones: %s",
                brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

// The members of the workload's tables.
// On all ranks, before the first one saves or holds this step.
static brim_status brim_stepper_give(brim_stepper *t, bool weights_only) {
  brim_net_sums sums;
  double values[SUM_COUNT];
  if (weights_only) BRIM_TRY(recalibrate_model(t));
  if (!sums_apart(t)) return BRIM_OK;
  BRIM_TRY(own_sums(t, &sums, values));
  if (!t->given) t->given = brim_calloc((size_t)t->ranks * SUM_COUNT, sizeof *t->given);
  if (!t->given) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  t->given_step = t->step;
  return brim_comm_all_gather(t->comm, values, t->given, sizeof values);
}

static brim_status brim_stepper_save(brim_stepper *t, const brim_checkpoint_facts *f,
                                     const char *path, const json_t *extra, bool weights_only) {
  json_t *meta;
  if (weights_only) BRIM_TRY(recalibrate_model(t));
  BRIM_TRY(make_metadata(t, f, extra, weights_only, &meta));
  brim_status status = brim_net_save(t->net, path, meta, weights_only);
  json_decref(meta);
  return status;
}

static brim_status held_write(void *held, const char *path) {
  return brim_net_held_write((brim_net_held *)held, path);
}

static void held_free(void *held) { brim_net_held_free((brim_net_held *)held); }

static brim_status brim_stepper_hold(brim_stepper *t, const brim_checkpoint_facts *f,
                                     const json_t *extra, bool weights_only, brim_work_held *out) {
  json_t *meta;
  brim_net_held *held = NULL;
  BRIM_TRY(make_metadata(t, f, extra, weights_only, &meta));
  brim_status status = brim_net_hold(t->net, meta, weights_only, &held);
  json_decref(meta);
  *out = (brim_work_held){.state = held, .write = held_write, .free = held_free};
  return status;
}

static brim_status get_i64(const json_t *meta, const char *path, const char *key, int64_t *out) {
  const char *text = json_string_value(json_object_get(meta, key));
  if (!text || !brim_parse_i64(text, out) || *out < 0 || *out >= (int64_t)1 << 53) {
    return brim_fail(BRIM_EPARSE,
                     "%s: __metadata__ has no valid '%s'; is it a checkpoint of brim train?", path,
                     key);
  }
  return BRIM_OK;
}

// This rank's own; of a checkpoint of another number of ranks the first has all.
static bool get_rank_sums(const brim_stepper *t, const json_t *meta, double values[SUM_COUNT]) {
  size_t most = (size_t)BRIM_RANKS_MAX * SUM_COUNT;
  double *all = brim_calloc(most, sizeof *all);
  size_t count = all ? brim_json_get_numbers(meta, "brim.sums", all, most) : 0;
  size_t ranks = count / SUM_COUNT;
  bool there = count > 0 && count % SUM_COUNT == 0;
  for (size_t r = 0; there && r < ranks; r++) {
    bool own = ranks == (size_t)t->ranks ? r == (size_t)t->rank : t->rank == 0;
    if (brim_net_shares_loss(t->net)) own = ranks == 1 || t->rank == 0;
    for (size_t i = 0; own && i < SUM_COUNT; i++) values[i] += all[r * SUM_COUNT + i];
  }
  brim_free(all);
  return there;
}

// A checkpoint without sums (or with others) starts them again: only a report depends on them.
static brim_status load_sums(brim_stepper *t, const json_t *meta) {
  brim_net_sums sums;
  memset(&sums, 0, sizeof sums);
  memset(&t->carried, 0, sizeof t->carried);
  sums.grad_norm_max = (double)NAN;
  double values[SUM_COUNT] = {0};
  if (get_rank_sums(t, meta, values)) {
    t->carried.loss_sum = values[0];
    t->carried.correct = values[1];
    t->carried.rows = values[2];
    t->carried.bad_rows = values[3];
    memcpy(sums.host, values + 4, sizeof sums.host);
    memcpy(sums.device, values + 4 + BRIM_METRIC_COUNT, sizeof sums.device);
  }
  int64_t skipped = 0;
  const char *count = json_string_value(json_object_get(meta, "brim.skipped_steps"));
  if (count && brim_parse_i64(count, &skipped) && skipped > 0)
    sums.skipped_steps = (uint64_t)skipped;
  const char *norm = json_string_value(json_object_get(meta, "brim.grad_norm_max"));
  if (norm && (!brim_parse_f64(norm, &sums.grad_norm_max) || !(sums.grad_norm_max > 0))) {
    sums.grad_norm_max = (double)NAN;
  }
  return brim_net_set_sums(t->net, &sums);
}

// Bits are the same only on the same backend, library, thread count and setting: say so when not. A
// caller that builds again with other micro-batches logs that itself.
static void warn_if_different(const brim_stepper *t, const brim_work_data *data, const json_t *meta,
                              const char *path) {
  char threads[16], batch[32], samples[32], ranks[16];
  const char *saved_ranks = json_string_value(json_object_get(meta, "brim.ranks"));
  snprintf(ranks, sizeof ranks, "%d", t->ranks);
  if (t->rank > 0) return;  // the first says it
  if (strcmp(saved_ranks ? saved_ranks : "1", ranks) != 0) {
    brim_log_warn("workload",
                  "%s was written with %s ranks, this run has %s: the run continues, but is no "
                  "longer bit-identical",
                  path, saved_ranks ? saved_ranks : "1", ranks);
  }
  snprintf(samples, sizeof samples, "%" PRIu64, data->train.source->info.count);
  snprintf(threads, sizeof threads, "%d", (int)t->device->info.threads);
  snprintf(batch, sizeof batch, "%" PRId64, t->batch);
  const brim_device *device = t->device;
  const char *where = transforms_where(data);
  const char *const rows[][2] = {{"brim.transforms", where ? where : ""},
                                 {"brim.backend", device->backend->name},
                                 {"brim.library", device->info.library},
                                 {"brim.device", device->info.name},
                                 {"brim.threads", threads},
                                 {"brim.batch", batch},
                                 {"brim.samples", samples}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *saved = json_string_value(json_object_get(meta, rows[i][0]));
    if (t->rebuilt && rows[i][1] == batch) continue;
    if (saved && rows[i][1][0] && strcmp(saved, rows[i][1]) != 0) {
      brim_log_warn("workload",
                    "%s was written with %s %s, this run uses %s: the run continues, but is no "
                    "longer bit-identical",
                    path, rows[i][0] + 5, saved, rows[i][1]);
    }
  }
}

typedef struct checkpoint_place {
  int64_t step, epoch, position;
  bool moved;  // on to the next epoch
} checkpoint_place;

// Where the checkpoint stands, checked before anything is changed.
static brim_status read_place(const brim_stepper *t, const brim_checkpoint_facts *f,
                              const char *path, checkpoint_place *out) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  const json_t *meta = brim_safetensors_metadata(file);
  brim_status status = get_i64(meta, path, "brim.step", &out->step);
  if (!status) status = get_i64(meta, path, "brim.epoch", &out->epoch);
  if (!status) status = get_i64(meta, path, "brim.position", &out->position);
  brim_safetensors_close(file);
  if (status) return status;
  // what the epoch has without drop_last: a batch of another size drops another rest
  int64_t samples = (int64_t)f->data->train.source->info.count;
  int64_t limit = (int64_t)f->loader->limit;
  if (limit && limit < samples) samples = limit;
  if (out->position >= samples) {
    return brim_fail(BRIM_EINVAL,
                     "%s is at sample %" PRId64 " of an epoch, but this data set has %" PRId64
                     "; was it trained on other data?",
                     path, out->position, samples);
  }
  // with drop_last only whole batches are left: of another size, the first may start a little later
  if (f->loader->drop_last && out->position % t->batch != 0) {
    out->position += t->batch - out->position % t->batch;
  }
  // ranks stand at the same place, each in its own part
  if (out->position % t->ranks != 0) out->position += t->ranks - out->position % t->ranks;
  if (out->position >= t->epoch_samples) {
    out->position = 0;
    out->epoch++;
    out->moved = true;
  }
  return BRIM_OK;
}

static brim_status brim_stepper_load(brim_stepper *t, const brim_checkpoint_facts *f,
                                     const char *path, json_t **extra) {
  json_t *meta = NULL;
  checkpoint_place at = {0};
  BRIM_TRY(read_place(t, f, path, &at));
  BRIM_TRY(brim_net_load(t->net, path, false, &meta));
  brim_status status = BRIM_OK;
  if (at.moved) {
    // the rest of its epoch is too short for a batch: the sums of that epoch end with it
    if (json_object_del(meta, "brim.sums")) brim_log_debug("workload", "%s has no sums", path);
    status = brim_work_put_i64(meta, "brim.epoch", at.epoch);
    if (!status) status = brim_json_put(meta, "brim.new_epoch", json_string("true"));
  }
  const char *recalibrated = json_string_value(json_object_get(meta, "brim.settled"));
  if (!recalibrated || !brim_parse_i64(recalibrated, &t->recalibrated)) t->recalibrated = -1;
  if (!status) status = load_sums(t, meta);
  if (!status) status = brim_loader_seek(t->train_loader, at.epoch, at.position / t->ranks);
  if (!status) {
    t->step = at.step;
    t->epoch = at.epoch;
    t->position = at.position;
    warn_if_different(t, f->data, meta, path);
    status = warn_of_classes(f, meta, path);
  }
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

static brim_status brim_stepper_use(brim_stepper *t, const char *path, bool averaged) {
  t->recalibrated = t->step;  // the file has what belongs to its weights
  return brim_net_load_weights(t->net, path, averaged ? BRIM_TRAINED_EMA : NULL);
}

//--------------------------------------------- rows ---------------------------------------------
// Rows of the tables of workloads that step a network over a data set: what their stepper does.

static brim_stepper *stepper_of(const void *work) { return ((const brim_stepped *)work)->stepper; }

static brim_checkpoint_facts facts_of(const void *work) {
  return ((const brim_stepped *)work)->facts(work);
}

//---------------------------------- stepping ----------------------------------

brim_status brim_stepped_step(void *work, const brim_spans *spans, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_STEP, 0));
  return brim_stepper_step(stepper_of(work), spans, out);
}

void brim_stepped_stops(void *work, const volatile sig_atomic_t *stop) {
  stepper_of(work)->stop = stop;
}

brim_status brim_stepped_metrics(void *work, bool reset, brim_work_metrics *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_METRICS, reset));
  return brim_stepper_metrics(stepper_of(work), reset, out);
}

void brim_stepped_figures(void *work, const double *sums, double *values) {
  brim_stepper_figures(stepper_of(work), sums, values);
}

brim_status brim_stepped_snapshot(void *work) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_SNAPSHOT, 0));
  return brim_stepper_snapshot(stepper_of(work));
}

brim_status brim_stepped_restore(void *work) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_RESTORE, 0));
  return brim_stepper_restore(stepper_of(work));
}

//---------------------------------- loading ----------------------------------

static brim_status load_only(void *work, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_LOAD_ONLY, 0));
  return brim_stepper_load_only(stepper_of(work), out);
}

static brim_status compute_only(void *work, int steps, int64_t *ns, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_COMPUTE_ONLY, steps));
  return brim_stepper_compute_only(stepper_of(work), steps, ns, out);
}

static void loader_stats(void *work, brim_work_loading *out) {
  brim_stepper_stats(stepper_of(work), ((const brim_stepped *)work)->data, out);
}

const brim_work_loading_table brim_stepped_loading = {
    .load_only = load_only, .compute_only = compute_only, .stats = loader_stats};

static void share(void *work, int rank, int world) {
  const brim_stepped *s = (const brim_stepped *)work;
  s->loader->rank = rank;
  s->loader->world = world;
  s->data->has_planned = false;  // less memory may be another place for the data
}

static void drop(void *work) {
  brim_stepper_drop(stepper_of(work));
  brim_work_drop_residents(((const brim_stepped *)work)->data);
}

static brim_status give(void *work, bool weights_only) {
  return brim_stepper_give(stepper_of(work), weights_only);
}

const brim_work_ranks_table brim_stepped_ranks = {.share = share,
                                                  .drop = drop,
                                                  .give = give,
                                                  .lead = brim_stepped_lead,
                                                  .follow = brim_stepped_follow};

//---------------------------------- checkpoints ----------------------------------

brim_status brim_stepped_save(void *work, const char *path, const json_t *extra,
                              bool weights_only) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_save(stepper_of(work), &facts, path, extra, weights_only);
}

static brim_status hold(void *work, const json_t *extra, bool weights_only, brim_work_held *out) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_hold(stepper_of(work), &facts, extra, weights_only, out);
}

const brim_work_background_table brim_stepped_background = {.hold = hold};

brim_status brim_stepped_load(void *work, const char *path, json_t **extra) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_load(stepper_of(work), &facts, path, extra);
}

brim_status brim_stepped_use(void *work, const char *path, bool averaged) {
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
  return brim_net_watch_lost(&stepper_of(work)->watch, epoch, lr);
}

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  return brim_net_watch_put(&stepper_of(work)->watch, times, metadata);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_net_watch_get(&stepper_of(work)->watch, metadata, skipped, times);
}

const brim_work_diagnosis brim_stepped_diagnosis = {.rows = brim_net_troubles,
                                                    .count = BRIM_NET_TROUBLES,
                                                    .take = watch_take,
                                                    .advice = watch_advice,
                                                    .lost = watch_lost,
                                                    .put = watch_put,
                                                    .get = watch_get};

//---------------------------------- knobs ----------------------------------

static bool loader_matters(void *work, const brim_setting *setting) {
  const brim_stepped *s = (const brim_stepped *)work;
  return brim_learn_loader_matters(s->data->context.device, setting, s->cache_of, work);
}

static bool pin_matters(void *work, const brim_setting *setting) {
  const brim_stepped *s = (const brim_stepped *)work;
  return !s->data->context.device->info.host_memory && loader_matters(work, setting);
}

static bool prefetch_matters(void *work, const brim_setting *setting) {
  return setting->value[BRIM_LEARN_WORKERS] > 0 && loader_matters(work, setting);
}

const brim_learn_matters brim_stepped_matters = {
    .workers = loader_matters, .pin = pin_matters, .prefetch = prefetch_matters};
