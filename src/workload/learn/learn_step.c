// Stepping a network over a data set: steps, metrics, passes over the evaluation data, snapshots,
// checkpoints, and the ranks that follow the first one.
#include "workload/learn/learn.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/learn/learn_trained.h"

int64_t brim_learn_per_epoch(const brim_learn *w) {
  int64_t per_step = w->batch * w->accumulation;
  return per_step ? (w->epoch_samples + per_step - 1) / per_step : 0;
}

//---------------------------------- calls of all ranks ----------------------------------

typedef struct call {
  int32_t kind;
  int32_t number;  // steps, or `reset`
  brim_setting setting;
} call;

brim_status brim_learn_tell(const brim_learn *w, brim_learn_call kind, int number,
                            const brim_setting *setting) {
  call c = {.kind = (int32_t)kind, .number = number};
  if (!w->leads) return BRIM_OK;
  if (setting) c.setting = *setting;
  return brim_comm_broadcast(w->comm, &c, sizeof c, 0);
}

brim_status brim_learn_agree(const brim_learn *w, brim_status status) {
  int64_t failed = status != BRIM_OK;
  if (!w->leads && !w->follows) return status;
  BRIM_TRY(brim_comm_all_reduce(w->comm, &failed, 1, BRIM_I64));
  if (status || failed == 0) return status;
  return brim_fail(BRIM_EOOM, "%lld of %d ranks cannot build this setting", (long long)failed,
                   w->ranks);
}

//---------------------------------- stepping ----------------------------------

static brim_batch batch_of(const brim_learn *w, const brim_loaded *loaded) {
  brim_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.input = loaded->input;
  batch.target = loaded->target;
  batch.on_device = loaded->on_device;
  batch.rows = loaded->rows * w->spec.views;
  return batch;
}

static brim_status next_batch(brim_learn *w, const brim_spans *spans, const brim_loaded **loaded) {
  brim_span_begin(spans, BRIM_PHASE_IO, "next batch");
  brim_status status = brim_loader_next(w->train_loader, loaded);
  brim_span_end(spans, BRIM_PHASE_IO, "next batch");
  if (status || !(*loaded)->on_device || !spans || !spans->exact) return status;
  // Wait for the device's transforms, or for the rows it reads itself: they do not count as computing.
  bool rows = w->mapped_rows;
  brim_phase phase = rows ? BRIM_PHASE_H2D : BRIM_PHASE_TRANSFORM;
  const char *name = rows ? "mapped rows" : "augment";
  brim_span_begin(spans, phase, name);
  status = brim_device_sync(w->device);
  brim_span_end(spans, phase, name);
  if (status) brim_loader_release(w->train_loader, *loaded);
  return status;
}

static void move_on(brim_learn *w, int64_t rows, brim_step_info *out) {
  w->position += rows;
  out->samples = rows;
  out->epoch = w->epoch;
  out->step = w->step;
  if (w->position < w->epoch_samples) return;
  out->epoch_end = true;
  w->epoch++;
  w->position = 0;
}

static int64_t rows_of_step(const brim_learn *w) {
  int64_t remaining = w->epoch_samples - w->position, rows = w->batch * w->accumulation;
  return rows < remaining ? rows : remaining;
}

static brim_status make_step(brim_learn *w, const brim_spans *spans, brim_step_info *out) {
  const int64_t step_rows = rows_of_step(w);
  // The schedule follows the place in the data, not the count of steps: a run that resumes with another batch
  // size still has the whole schedule.
  int64_t place = w->epoch * brim_learn_per_epoch(w) + w->position / (w->batch * w->accumulation);
  double lr = brim_schedule_lr(&w->schedule, place + 1);
  memset(out, 0, sizeof *out);
  int64_t rows = 0;
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, spans, &loaded));
    brim_net_micro micro;
    memset(&micro, 0, sizeof micro);
    micro.batch = batch_of(w, loaded);
    micro.batch.row_offset = (rows + w->rank * loaded->rows) * w->spec.views;
    micro.step = w->step + 1;
    micro.step_rows = step_rows * w->spec.views;
    micro.first = rows == 0;
    rows += loaded->rows * w->ranks;
    brim_status status = rows < step_rows ? brim_net_train(w->net, &micro, spans)
                                          : brim_net_step(w->net, &micro, lr, spans);
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  w->step++;
  out->lr = lr;
  move_on(w, rows, out);
  return BRIM_OK;
}

// A step that fails half-way is undone: brim repeats it with less memory, or keeps what it learned before the
// data failed. A failed device cannot undo anything.
brim_status brim_learn_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_STEP, 0, NULL));
  brim_status status = make_step(w, spans, out);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  BRIM_TRY(brim_net_undo(w->net));
  brim_status_set_detail(why);
  return status;
}

void brim_learn_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_learn *)work)->stop = stop;
}

//---------------------------------- half a step ----------------------------------

static brim_status load_only(void *work, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_LOAD_ONLY, 0, NULL));
  int64_t step_rows = rows_of_step(w), rows = 0;
  memset(out, 0, sizeof *out);
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, NULL, &loaded));
    rows += loaded->rows * w->ranks;
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
  }
  move_on(w, rows, out);
  return BRIM_OK;
}

// Every micro-batch of every step is this one batch. A device with memory of its own keeps it: a batch
// without data uploads nothing and leaves both slots as they are.
static brim_status compute_on(brim_learn *w, const brim_loaded *loaded, int steps,
                              brim_step_info *out) {
  bool host = w->device->info.host_memory;
  brim_net_micro micro;
  memset(&micro, 0, sizeof micro);
  micro.batch = batch_of(w, loaded);
  micro.step_rows = micro.batch.rows * w->accumulation * w->ranks;
  for (int i = 0; i < steps; i++) {
    for (int64_t k = 0; k < w->accumulation; k++) {
      bool last = k + 1 == w->accumulation;
      micro.batch.input = host ? loaded->input : NULL;
      micro.batch.row_offset = (k * w->ranks + w->rank) * micro.batch.rows;
      micro.step = w->step + 1;
      micro.first = k == 0;
      BRIM_TRY(last ? brim_net_step(w->net, &micro, w->optimizer.lr, NULL)
                    : brim_net_train(w->net, &micro, NULL));
    }
    w->step++;
    out->samples += loaded->rows * w->accumulation * w->ranks;
  }
  out->step = w->step;
  return BRIM_OK;
}

static brim_status compute_only(void *work, int steps, int64_t *ns, brim_step_info *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_COMPUTE_ONLY, steps, NULL));
  const brim_loaded *loaded = NULL;
  brim_step_info moved;
  memset(out, 0, sizeof *out);
  BRIM_TRY(next_batch(w, NULL, &loaded));
  // The last batch of an epoch may be short but costs as much as a full one: take the next.
  if (loaded->rows * w->ranks < w->batch) {
    int64_t part = loaded->rows * w->ranks;
    brim_loader_release(w->train_loader, loaded);
    move_on(w, part, &moved);
    BRIM_TRY(next_batch(w, NULL, &loaded));
  }
  int64_t rows = loaded->rows * w->ranks;
  brim_status status = brim_device_sync(w->device);
  brim_time start = brim_clock_now();
  if (!status) status = compute_on(w, loaded, steps, out);
  // the device may still be reading the batch
  brim_status waited = brim_device_sync(w->device);
  *ns = brim_time_since_ns(start, brim_clock_now());
  brim_loader_release(w->train_loader, loaded);
  move_on(w, rows, &moved);
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

void brim_learn_means(const brim_learn *w, const brim_net_metrics *sum, bool evaluated,
                      brim_work_metrics *out) {
  bool any = sum->rows > 0, half = w->precision == BRIM_PRECISION_FP16;
  double of = evaluated || sum->bad_rows == 0 ? sum->rows - sum->bad_rows : 0;
  brim_work_metrics_clear(w->kind->metric_set, out);
  double *v = out->values;
  v[BRIM_NET_LOSS] = of > 0 ? sum->loss_sum / of : (double)NAN;
  v[BRIM_NET_ACCURACY] = any && w->counts ? sum->correct / sum->rows : (double)NAN;
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

void brim_learn_figures(void *work, const double *sums, double *values) {
  const brim_learn *w = (const brim_learn *)work;
  double rows = sums[BRIM_NET_SUM_ROWS];
  bool counted = rows > 0 && w->counts;
  values[BRIM_NET_LOSS] = rows > 0 ? sums[BRIM_NET_SUM_LOSS] / rows : (double)NAN;
  values[BRIM_NET_ACCURACY] = counted ? sums[BRIM_NET_SUM_CORRECT] / rows : (double)NAN;
}

// Replaces this rank's sums by those of all ranks.
static brim_status collect_sums(const brim_learn *w, brim_net_metrics *sums) {
  if (!w->comm || brim_net_shares_loss(w->net)) return BRIM_OK;
  double all[] = {sums->loss_sum, sums->correct, sums->rows, sums->bad_rows};
  BRIM_TRY(brim_comm_all_reduce(w->comm, all, 4, BRIM_F64));
  sums->loss_sum = all[0];
  sums->correct = all[1];
  sums->rows = all[2];
  sums->bad_rows = all[3];
  return BRIM_OK;
}

// Counts the samples that any rank left out. A sample counts once, although it may belong to one rank in this
// epoch and to another in the next.
static brim_status gather_left_out(brim_learn *w, const brim_loader_stats *mine,
                                   const uint8_t *bits, size_t bytes) {
  const size_t text = sizeof w->first_left_out;
  uint8_t *all = brim_calloc(2, bytes + text);
  if (!all) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  uint8_t *one = all + bytes + text;  // its bits, then what was wrong with the first
  brim_status status = BRIM_OK;
  w->first_left_out[0] = '\0';
  for (int rank = 0; rank < w->ranks && !status; rank++) {
    if (rank == w->rank) {
      memcpy(one, bits, bytes);
      memcpy(one + bytes, mine->first_broken, text);
    }
    status = brim_comm_broadcast(w->comm, one, bytes + text, rank);
    for (size_t i = 0; i < bytes; i++) all[i] |= one[i];
    if (!w->first_left_out[0]) memcpy(w->first_left_out, one + bytes, text);
  }
  w->left_out = 0;
  for (size_t i = 0; i < bytes; i++) w->left_out += __builtin_popcount(all[i]);
  brim_free(all);
  return status;
}

static brim_status collect_left_out(brim_learn *w) {
  size_t bytes = 0;
  const uint8_t *bits = brim_loader_left_out(w->train_loader, &bytes);
  brim_loader_stats mine;
  if (!w->comm || !bits) return BRIM_OK;
  brim_loader_get_stats(w->train_loader, &mine);
  int64_t reads = (int64_t)(mine.broken_reads - w->recalibrate_reading.broken_reads);
  BRIM_TRY(brim_comm_all_reduce(w->comm, &reads, 1, BRIM_I64));
  if (reads == w->left_out_reads) return BRIM_OK;
  w->left_out_reads = reads;
  return gather_left_out(w, &mine, bits, bytes);
}

// Training's sums since the last reset.
brim_status brim_learn_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_METRICS, reset, NULL));
  brim_net_metrics now, all;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  all = w->carried;
  BRIM_TRY(collect_sums(w, &all));
  BRIM_TRY(collect_left_out(w));
  brim_learn_means(w, &all, false, out);
  if (reset) memset(&w->carried, 0, sizeof w->carried);
  return BRIM_OK;
}

//---------------------------------- passes ----------------------------------

brim_status brim_learn_check_stop(const brim_learn *w) {
  return w->stop && *w->stop ? brim_fail(BRIM_EINTERRUPTED, "interrupted") : BRIM_OK;
}

brim_status brim_learn_each(const brim_learn *w, brim_loader *loader, brim_batch_fn fn, void *ctx) {
  int64_t samples = brim_loader_samples(loader), first = 0;
  BRIM_TRY(brim_loader_seek(loader, 0, 0));
  while (first < samples) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_learn_check_stop(w));
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

// Takes the statistics from the batches that training has next, at most an epoch of them: they are read ahead
// already.
static brim_status recalibrate_from(brim_learn *w, bool stops, bool *begun) {
  int64_t all = (w->epoch_samples + w->batch - 1) / w->batch;
  int64_t count = w->recalibrate_batches < all ? w->recalibrate_batches : all;
  for (int64_t i = 0; i < count; i++) {
    const brim_loaded *loaded = NULL;
    if (stops) BRIM_TRY(brim_learn_check_stop(w));
    BRIM_TRY(brim_loader_next(w->train_loader, &loaded));
    brim_batch batch = batch_of(w, loaded);
    *begun = true;
    brim_status status = brim_net_recalibrate(w->net, &batch, w->step + 1, i);
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  return BRIM_OK;
}

// Keeps reading for recalibration out of training's loading statistics.
static void leave_out_reading(brim_learn *w, const brim_loader_stats *before) {
  brim_loader_stats *out = &w->recalibrate_reading, now;
  brim_loader_get_stats(w->train_loader, &now);
  out->samples += now.samples - before->samples;
  out->read_ns += now.read_ns - before->read_ns;
  out->broken_reads += now.broken_reads - before->broken_reads;
  for (size_t i = 0; i < now.stage_count; i++) {
    out->stage_ns[i] += now.stage_ns[i] - before->stage_ns[i];
  }
}

// Called before the averaged weights are evaluated or saved as the model. Does nothing without an average or
// without batch norm.
static brim_status recalibrate(brim_learn *w, bool stops) {
  if (w->recalibrate_batches == 0 || !brim_net_recalibrates(w->net) || w->recalibrated == w->step)
    return BRIM_OK;
  bool begun = false;
  brim_loader_stats before;
  brim_loader_get_stats(w->train_loader, &before);
  brim_status status = recalibrate_from(w, stops, &begun);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status back = brim_loader_seek(w->train_loader, w->epoch, w->position / w->ranks);
  leave_out_reading(w, &before);
  if (status) {
    if (begun && status != BRIM_EDEVICE) BRIM_TRY(brim_net_undo_recalibration(w->net));
    brim_status_set_detail(why);
    return status;
  }
  BRIM_TRY(back);
  w->recalibrated = w->step;
  return BRIM_OK;
}

brim_status brim_learn_evaluate(brim_learn *w, brim_status (*pass)(brim_learn *w),
                                brim_net_metrics *sums) {
  if (!w->eval_loader) {
    return brim_fail(BRIM_ESTATE,
                     "no data set for evaluation; set dataset.val (with labels for contrastive "
                     "training), or data.val_fraction=0.1 to hold out a tenth of a labelled set");
  }
  BRIM_TRY(recalibrate(w, true));
  brim_net_metrics now;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  brim_status status = pass(w);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  // after a failure too: drop the sums of half an evaluation
  brim_status read = brim_net_read_metrics(w->net, true, sums);
  if (status) {
    brim_status_set_detail(why);
    return status;
  }
  return read;
}

_Static_assert(BRIM_WORK_MAX_STAGES == BRIM_LOADER_MAX_STAGES, "stages of a pipeline");

static void loading_stats(void *work, brim_work_loading *out) {
  const brim_learn *w = (const brim_learn *)work;
  memset(out, 0, sizeof *out);
  if (!w->train_loader) return;
  brim_loader_stats train, eval;
  brim_loader_get_stats(w->train_loader, &train);
  memset(&eval, 0, sizeof eval);
  if (w->eval_loader) brim_loader_get_stats(w->eval_loader, &eval);
  out->cache = brim_cache_name(w->data.caching.train);
  out->locked_bytes = brim_work_locked_bytes(&w->data);
  const brim_loader_stats *less = &w->recalibrate_reading;
  out->samples = (int64_t)(train.samples - less->samples);
  out->read_ns = train.read_ns - less->read_ns;
  out->stage_count = train.stage_count;
  for (size_t i = 0; i < train.stage_count; i++) {
    out->stage[i] = train.stage[i];
    out->stage_ns[i] = train.stage_ns[i] - less->stage_ns[i];
  }
  const int64_t reads = (int64_t)(train.broken_reads - less->broken_reads);
  const int64_t broken = w->comm ? w->left_out : (int64_t)train.broken;
  const char *first = w->comm ? w->first_left_out : train.first_broken;
  out->broken = broken + (int64_t)eval.broken;
  out->broken_reads = (w->comm ? w->left_out_reads : reads) + (int64_t)eval.broken_reads;
  if (!broken) first = eval.first_broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", first);
}

const brim_work_loading_table brim_learn_loading = {
    .load_only = load_only, .compute_only = compute_only, .stats = loading_stats};

//---------------------------------- trials ----------------------------------

brim_status brim_learn_snapshot(void *work) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_SNAPSHOT, 0, NULL));
  // brim_net_snapshot reads the metrics: save their exact sums and put them back
  BRIM_TRY(brim_net_get_sums(w->net, &w->saved.sums));
  BRIM_TRY(brim_net_snapshot(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved.sums));
  w->saved.carried = w->carried;
  w->saved.step = w->step;
  w->saved.epoch = w->epoch;
  w->saved.position = w->position;
  return BRIM_OK;
}

brim_status brim_learn_restore(void *work) {
  brim_learn *w = (brim_learn *)work;
  BRIM_TRY(brim_learn_tell(w, BRIM_CALL_RESTORE, 0, NULL));
  BRIM_TRY(brim_net_restore(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved.sums));
  BRIM_TRY(brim_loader_seek(w->train_loader, w->saved.epoch, w->saved.position / w->ranks));
  w->step = w->saved.step;
  w->epoch = w->saved.epoch;
  w->position = w->saved.position;
  w->carried = w->saved.carried;
  return BRIM_OK;
}

//---------------------------------- checkpoints ----------------------------------
// A checkpoint has the place in the data and the training sums of the epoch: a resumed run continues from
// exactly there. The file itself is the engine's (engine_checkpoint.c).

enum { SUM_COUNT = 4 + 2 * BRIM_METRIC_COUNT };

// The training sums of the epoch so far: carried (4), then host and device sums of the net. With them a
// resumed epoch reports what an uninterrupted one does.
static brim_status own_sums(brim_learn *w, brim_net_sums *sums, double values[SUM_COUNT]) {
  BRIM_TRY(brim_net_get_sums(w->net, sums));
  const double carried[] = {w->carried.loss_sum, w->carried.correct, w->carried.rows,
                            w->carried.bad_rows};
  memcpy(values, carried, sizeof carried);
  memcpy(values + 4, sums->host, sizeof sums->host);
  memcpy(values + 4 + BRIM_METRIC_COUNT, sums->device, sizeof sums->device);
  return BRIM_OK;
}

// True if each rank has sums of its own. A loss over all ranks' samples has the same sums on each.
static bool sums_apart(const brim_learn *w) {
  return w->ranks > 1 && !brim_net_shares_loss(w->net);
}

static brim_status put_sums(brim_learn *w, json_t *meta) {
  brim_net_sums sums;
  double values[SUM_COUNT];
  BRIM_TRY(own_sums(w, &sums, values));
  bool all = sums_apart(w) && w->given && w->given_step == w->step;
  brim_status status =
      all ? brim_json_put_numbers(meta, "brim.sums", w->given, (size_t)w->ranks * SUM_COUNT)
          : brim_json_put_numbers(meta, "brim.sums", values, SUM_COUNT);
  if (!status) status = brim_work_put_i64(meta, "brim.skipped_steps", (int64_t)sums.skipped_steps);
  double norm = fmax(w->carried.grad_norm_max, sums.grad_norm_max);  // 0 and NaN = none
  if (status || !(norm > 0)) return status;
  char number[32];
  brim_format_f64(norm, number);
  return brim_json_put(meta, "brim.grad_norm_max", json_string(number));
}

// Where training samples are transformed, "by the device" or "by workers"; NULL without transforms. The two
// differ in the last bit, and data.cache auto may choose otherwise when other programs take memory.
static const char *transforms_where(const brim_learn *w) {
  if (!w->data.train.transforms) return NULL;
  return w->data.train.resident ? "by the device" : "by workers";
}

// Output k of a network means the class that was number k in its training. Warns if the folders, or their
// order, are others now.
static brim_status warn_of_classes(const brim_learn *w, const json_t *meta, const char *path) {
  const char *const *names = w->data.class_names;
  const char *text = json_string_value(json_object_get(meta, "brim.network"));
  if (!text || !names) return BRIM_OK;
  json_t *network = NULL;
  BRIM_TRY(brim_json_parse(text, strlen(text), path, &network));
  const json_t *saved = json_object_get(network, "class_names");
  for (size_t i = 0; i < json_array_size(saved) && (int64_t)i < w->spec.classes; i++) {
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

// The width of a projection is that of the head's last layer: a network of pairs outputs its features when it
// is evaluated.
static int64_t projection_width(const brim_net *net) {
  int64_t width = brim_net_output_width(net);
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    if (brim_str_starts(p->name, "projector.") && p->rank == 2) width = p->dim[0];
  }
  return width;
}

static brim_status put_network(const brim_learn *w, json_t *meta) {
  const brim_net_spec *spec = &w->spec;
  brim_task task = BRIM_TASK_VALUES;
  int64_t outputs = spec->target_dim;
  if (spec->classes > 0) {
    task = BRIM_TASK_CLASSES;
    outputs = spec->classes;
  } else if (spec->views > 1) {
    task = BRIM_TASK_EMBEDDING;
    outputs = projection_width(w->net);
  } else if (brim_work_is_multi_label(spec->loss)) {
    task = BRIM_TASK_LABELS;
  }
  return brim_trained_put_network(spec, task, outputs, w->data.class_names, meta);
}

// The choice of `auto`, for a checkpoint: "exact", "plain"; NULL = none.
static const char *choice_of(const brim_pairs *c, int64_t accumulation, bool exact) {
  if (c->accumulation != BRIM_ACCUMULATION_AUTO) return NULL;
  if (accumulation > 1) return exact ? "exact" : "plain";
  return c->chosen == BRIM_CHOSEN_EXACT ? "exact" : c->chosen == BRIM_CHOSEN_PLAIN ? "plain" : NULL;
}

static brim_status fill_metadata(brim_learn *w, bool weights_only, json_t *meta) {
  const char *where = transforms_where(w), *negatives = NULL;
  if (w->spec.views == 2) negatives = choice_of(&w->pairs, w->accumulation, w->exact);
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string(w->kind->name)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", w->epoch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.position", w->position));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", (int64_t)w->spec.seed));
  BRIM_TRY(brim_work_put_i64(meta, "brim.batch", w->batch));
  BRIM_TRY(brim_work_put_i64(meta, "brim.accumulation", w->accumulation));
  if (w->ranks > 1) BRIM_TRY(brim_work_put_i64(meta, "brim.ranks", w->ranks));
  int64_t samples = (int64_t)w->data.train.source->info.count;
  BRIM_TRY(brim_work_put_i64(meta, "brim.samples", samples));
  BRIM_TRY(put_network(w, meta));
  BRIM_TRY(put_sums(w, meta));
  BRIM_TRY(brim_work_put_i64(meta, "brim.threads", w->device->info.threads));
  if (negatives) BRIM_TRY(brim_json_put(meta, "brim.accumulates", json_string(negatives)));
  if (w->recalibrated >= 0 && !weights_only)
    BRIM_TRY(brim_work_put_i64(meta, "brim.settled", w->recalibrated));
  if (where) BRIM_TRY(brim_json_put(meta, "brim.transforms", json_string(where)));
  return brim_work_put_device(w->device, !weights_only, meta);
}

// Makes the metadata of a checkpoint; *out is NULL on failure.
static brim_status make_metadata(brim_learn *w, const json_t *extra, bool weights_only,
                                 json_t **out) {
  brim_json_setup();
  json_t *meta = json_object();
  *out = NULL;
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  brim_status status = fill_metadata(w, weights_only, meta);
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

// A model that was never evaluated has no statistics of its own yet. If recalibrating fails it keeps averaged
// ones; with several ranks the run fails, since ranks recalibrate together.
static brim_status recalibrate_model(brim_learn *w) {
  brim_status status = recalibrate(w, false);
  if (status == BRIM_OK || status == BRIM_EDEVICE || w->ranks > 1) return status;
  brim_log_warn("workload",
                "cannot recalibrate the batch-norm statistics of the averaged weights, so brim "
                "uses averaged ones: %s",
                brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

static brim_status give(void *work, bool weights_only) {
  brim_learn *w = (brim_learn *)work;
  brim_net_sums sums;
  double values[SUM_COUNT];
  if (weights_only) BRIM_TRY(recalibrate_model(w));
  if (!sums_apart(w)) return BRIM_OK;
  BRIM_TRY(own_sums(w, &sums, values));
  if (!w->given) w->given = brim_calloc((size_t)w->ranks * SUM_COUNT, sizeof *w->given);
  if (!w->given) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  w->given_step = w->step;
  return brim_comm_all_gather(w->comm, values, w->given, sizeof values);
}

brim_status brim_learn_save(void *work, const char *path, const json_t *extra, bool weights_only) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta;
  if (weights_only) BRIM_TRY(recalibrate_model(w));
  BRIM_TRY(make_metadata(w, extra, weights_only, &meta));
  brim_status status = brim_net_save(w->net, path, meta, weights_only);
  json_decref(meta);
  return status;
}

static brim_status held_write(void *held, const char *path) {
  return brim_net_held_write((brim_net_held *)held, path);
}

static void held_free(void *held) { brim_net_held_free((brim_net_held *)held); }

static brim_status hold(void *work, const json_t *extra, bool weights_only, brim_work_held *out) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta;
  brim_net_held *held = NULL;
  BRIM_TRY(make_metadata(w, extra, weights_only, &meta));
  brim_status status = brim_net_hold(w->net, meta, weights_only, &held);
  json_decref(meta);
  *out = (brim_work_held){.state = held, .write = held_write, .free = held_free};
  return status;
}

const brim_work_background_table brim_learn_background = {.hold = hold};

//---------------------------------- loading ----------------------------------

// Reads this rank's sums. From a checkpoint of another number of ranks the first rank takes all.
static bool get_rank_sums(const brim_learn *w, const json_t *meta, double values[SUM_COUNT]) {
  size_t most = (size_t)BRIM_RANKS_MAX * SUM_COUNT;
  double *all = brim_calloc(most, sizeof *all);
  size_t count = all ? brim_json_get_numbers(meta, "brim.sums", all, most) : 0;
  size_t ranks = count / SUM_COUNT;
  bool there = count > 0 && count % SUM_COUNT == 0;
  for (size_t r = 0; there && r < ranks; r++) {
    bool own = ranks == (size_t)w->ranks ? r == (size_t)w->rank : w->rank == 0;
    if (brim_net_shares_loss(w->net)) own = ranks == 1 || w->rank == 0;
    for (size_t i = 0; own && i < SUM_COUNT; i++) values[i] += all[r * SUM_COUNT + i];
  }
  brim_free(all);
  return there;
}

// Without valid sums in the checkpoint they start at 0: only a report depends on them.
static brim_status load_sums(brim_learn *w, const json_t *meta) {
  brim_net_sums sums;
  memset(&sums, 0, sizeof sums);
  memset(&w->carried, 0, sizeof w->carried);
  sums.grad_norm_max = (double)NAN;
  double values[SUM_COUNT] = {0};
  if (get_rank_sums(w, meta, values)) {
    w->carried.loss_sum = values[0];
    w->carried.correct = values[1];
    w->carried.rows = values[2];
    w->carried.bad_rows = values[3];
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
  return brim_net_set_sums(w->net, &sums);
}

// Warns if the continued run cannot be bit-identical: another backend, library, thread count or setting. A
// caller that rebuilds with other micro-batches logs that itself.
static void warn_if_different(const brim_learn *w, const json_t *meta, const char *path) {
  char threads[16], batch[32], samples[32], ranks[16];
  const char *saved_ranks = json_string_value(json_object_get(meta, "brim.ranks"));
  snprintf(ranks, sizeof ranks, "%d", w->ranks);
  if (w->rank > 0) return;  // the first says it
  if (strcmp(saved_ranks ? saved_ranks : "1", ranks) != 0) {
    brim_log_warn("workload",
                  "%s was written with %s ranks, this run has %s: the run continues, but is no "
                  "longer bit-identical",
                  path, saved_ranks ? saved_ranks : "1", ranks);
  }
  snprintf(samples, sizeof samples, "%" PRIu64, w->data.train.source->info.count);
  snprintf(threads, sizeof threads, "%d", (int)w->device->info.threads);
  snprintf(batch, sizeof batch, "%" PRId64, w->batch);
  const brim_device *device = w->device;
  const char *where = transforms_where(w);
  const char *const rows[][2] = {{"brim.transforms", where ? where : ""},
                                 {"brim.backend", device->backend->name},
                                 {"brim.library", device->info.library},
                                 {"brim.device", device->info.name},
                                 {"brim.threads", threads},
                                 {"brim.batch", batch},
                                 {"brim.samples", samples}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (w->rebuilt && rows[i][1] == batch) continue;
    if (rows[i][1][0]) brim_work_warn_if_other(meta, path, rows[i][0], rows[i][1]);
  }
}

typedef struct checkpoint_place {
  int64_t step, epoch, position;
  bool moved;  // on to the next epoch
} checkpoint_place;

// Reads and checks the place of a checkpoint before anything changes.
static brim_status read_place(const brim_learn *w, const char *path, checkpoint_place *out) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  const json_t *meta = brim_safetensors_metadata(file);
  brim_status status = brim_work_get_count(meta, path, "brim.step", &out->step);
  if (!status) status = brim_work_get_count(meta, path, "brim.epoch", &out->epoch);
  if (!status) status = brim_work_get_count(meta, path, "brim.position", &out->position);
  brim_safetensors_close(file);
  if (status) return status;
  // compare with the whole epoch: another batch size drops another rest
  int64_t samples = (int64_t)w->data.train.source->info.count;
  int64_t limit = (int64_t)w->loader.limit;
  if (limit && limit < samples) samples = limit;
  if (out->position >= samples) {
    return brim_fail(BRIM_EINVAL,
                     "%s is at sample %" PRId64 " of an epoch, but this data set has %" PRId64
                     "; was it trained on other data?",
                     path, out->position, samples);
  }
  // drop_last leaves whole batches only: with another batch size the first one may start a little later
  if (w->loader.drop_last && out->position % w->batch != 0) {
    out->position += w->batch - out->position % w->batch;
  }
  // all ranks are at the same place, each in its own part
  if (out->position % w->ranks != 0) out->position += w->ranks - out->position % w->ranks;
  if (out->position >= w->epoch_samples) {
    out->position = 0;
    out->epoch++;
    out->moved = true;
  }
  return BRIM_OK;
}

brim_status brim_learn_load(void *work, const char *path, json_t **extra) {
  brim_learn *w = (brim_learn *)work;
  json_t *meta = NULL;
  checkpoint_place at = {0};
  BRIM_TRY(read_place(w, path, &at));
  BRIM_TRY(brim_net_load(w->net, path, false, &meta));
  brim_status status = BRIM_OK;
  if (at.moved) {
    // The rest of the epoch is too short for a batch, so its sums end here.
    if (json_object_del(meta, "brim.sums")) brim_log_debug("workload", "%s has no sums", path);
    status = brim_work_put_i64(meta, "brim.epoch", at.epoch);
    if (!status) status = brim_json_put(meta, "brim.new_epoch", json_string("true"));
  }
  const char *recalibrated = json_string_value(json_object_get(meta, "brim.settled"));
  if (!recalibrated || !brim_parse_i64(recalibrated, &w->recalibrated)) w->recalibrated = -1;
  if (!status) status = load_sums(w, meta);
  if (!status) status = brim_loader_seek(w->train_loader, at.epoch, at.position / w->ranks);
  if (!status) {
    w->step = at.step;
    w->epoch = at.epoch;
    w->position = at.position;
    warn_if_different(w, meta, path);
    status = warn_of_classes(w, meta, path);
  }
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

brim_status brim_learn_use(void *work, const char *path, bool averaged) {
  brim_learn *w = (brim_learn *)work;
  w->recalibrated = w->step;  // the file has what belongs to its weights
  return brim_net_load_weights(w->net, path, averaged ? BRIM_TRAINED_EMA : NULL);
}

//---------------------------------- ranks ----------------------------------
// Commands that measure have no run loop on ranks 1..n. The first rank decides by the clock what to run,
// broadcasts each call, and the others repeat it.

static void lead(void *work, bool on) {
  brim_learn *w = (brim_learn *)work;
  if (!w->comm || w->rank > 0) return;
  if (!on && w->leads && brim_learn_tell(w, BRIM_CALL_END, 0, NULL)) {
    brim_status_clear();  // the rank that failed reports why
  }
  w->leads = on;
}

static brim_status repeat(const brim_workload_table *table, void *work, const call *c) {
  brim_step_info info;
  brim_work_metrics metrics;
  int64_t ns;
  switch ((brim_learn_call)c->kind) {
    case BRIM_CALL_STEP:
      return table->step(work, NULL, &info);
    case BRIM_CALL_METRICS:
      return table->metrics(work, c->number != 0, &metrics);
    case BRIM_CALL_SNAPSHOT:
      return table->snapshot(work);
    case BRIM_CALL_RESTORE:
      return table->restore(work);
    case BRIM_CALL_LOAD_ONLY:
      return table->loading->load_only(work, &info);
    case BRIM_CALL_COMPUTE_ONLY:
      return table->loading->compute_only(work, c->number, &ns, &info);
    case BRIM_CALL_CONFIGURE:
      // it failed on the first rank too, which reports it and continues
      if (table->configure(work, &c->setting)) brim_status_clear();
      return BRIM_OK;
    case BRIM_CALL_END:
      break;
  }
  return brim_fail(BRIM_EINTERNAL, "the first rank asked for call %d", (int)c->kind);
}

static brim_status follow(void *work, const brim_workload_table *table) {
  brim_learn *w = (brim_learn *)work;
  brim_status status = BRIM_OK;
  w->follows = true;
  while (!status) {
    call c = {0};
    status = brim_comm_broadcast(w->comm, &c, sizeof c, 0);
    if (status || c.kind == BRIM_CALL_END) break;
    status = repeat(table, work, &c);
  }
  w->follows = false;
  return status;
}

// With less memory for each rank the data may be kept elsewhere: plan again.
static void share(void *work, int rank, int world) {
  brim_learn *w = (brim_learn *)work;
  w->loader.rank = rank;
  w->loader.world = world;
  w->data.has_planned = false;
}

static void drop(void *work) { brim_learn_drop_all((brim_learn *)work); }

const brim_work_ranks_table brim_learn_ranks = {
    .share = share, .drop = drop, .give = give, .lead = lead, .follow = follow};
