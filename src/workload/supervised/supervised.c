// The supervised workload: one optimiser step on labelled data, or on two views of each sample.
// Building, stepping, evaluating; supervised_setup.c and workload_data.c read the config,
// supervised_save.c is for checkpoints.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_int.h"

//---------------------------------- building ----------------------------------

static void drop_setting(brim_supervised *w) {
  brim_loader_destroy(w->train_loader);
  brim_loader_destroy(w->eval_loader);
  brim_loader_destroy(w->contrastive.bank_loader);
  brim_net_destroy(w->net);
  w->train_loader = w->eval_loader = w->contrastive.bank_loader = NULL;
  w->net = NULL;
}

static void drop_residents(brim_supervised *w) {
  brim_resident_destroy(w->train_resident);
  brim_resident_destroy(w->eval_resident);
  w->train_resident = w->eval_resident = NULL;
}

static void supervised_close(void *work) {
  brim_supervised *w = (brim_supervised *)work;
  if (!w) return;
  drop_setting(w);
  drop_residents(w);
  brim_transforms_destroy(w->train_transforms);
  brim_transforms_destroy(w->eval_transforms);
  brim_contrastive_close(w);
  brim_source_close(w->train_source);
  brim_source_close(w->eval_source);
  brim_arena_destroy(w->arena);
  brim_free(w);
}

static brim_status open_as(const brim_work_context *context, const brim_config *config,
                           bool contrastive, void **work) {
  brim_supervised *w = (brim_supervised *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  w->watch.config = config;
  w->contrastive.on = contrastive;
  brim_status status = brim_supervised_setup(w);
  if (status) {
    supervised_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

static brim_status supervised_open(const brim_work_context *context, const brim_config *config,
                                   void **work) {
  return open_as(context, config, false, work);
}

static brim_status contrastive_open(const brim_work_context *context, const brim_config *config,
                                    void **work) {
  return open_as(context, config, true, work);
}

static size_t supervised_knobs(void *work, const brim_knob **out) {
  brim_supervised *w = (brim_supervised *)work;
  *out = w->knobs;
  return BRIM_SUPERVISED_KNOBS;
}

// What the network may take of a limit: where device and host are one memory the limit is for both,
// and a data set that shall lie on the device is there before it.
static brim_status leave_to_net(const brim_supervised *w, const brim_setting *setting,
                                const brim_loader_options *train, const brim_loader_options *eval,
                                brim_net_spec *spec) {
  if (spec->memory_limit == 0) return BRIM_OK;
  uint64_t taken = brim_supervised_asked_bytes(w, setting);
  if (w->context.device->info.host_memory) {
    const brim_supervised_caching none = {.train = BRIM_CACHE_NONE, .eval = BRIM_CACHE_NONE};
    brim_plan loaders;
    memset(&loaders, 0, sizeof loaders);
    BRIM_TRY(brim_supervised_plan_data(w, &none, train, eval, &loaders));
    taken += loaders.bytes[BRIM_PLACE_HOST] + loaders.bytes[BRIM_PLACE_DEVICE];
  }
  // 0 would be no limit
  spec->memory_limit = spec->memory_limit > taken ? spec->memory_limit - taken : 1;
  return BRIM_OK;
}

// Of what the maths lacks the device's own words name types; people gave a precision.
static brim_status check_precision(const brim_supervised *w, const brim_net_spec *spec) {
  if (spec->precision != BRIM_PRECISION_FP16) return BRIM_OK;
  if (brim_supervised_device_has(w->context.device, BRIM_F16)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "precision fp16 is not supported on %s; use bf16 or fp32",
                   w->context.device->backend->name);
}

brim_status brim_supervised_plan_net(brim_supervised *w, const brim_setting *setting,
                                     brim_plan *out) {
  brim_net_spec spec;
  brim_loader_options train, eval;
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  BRIM_TRY(check_precision(w, &spec));
  BRIM_TRY(leave_to_net(w, setting, &train, &eval, &spec));
  BRIM_TRY(brim_contrastive_choose(w, &spec));
  memset(out, 0, sizeof *out);
  return brim_net_plan(w->context.device, &spec, out);
}

static brim_status supervised_plan(void *work, const brim_setting *setting, brim_plan *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_spec spec;
  brim_loader_options train, eval;
  w->has_planned = false;
  BRIM_TRY(brim_supervised_plan_net(w, setting, out));
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  BRIM_TRY(brim_supervised_choose_cache(w, setting, out, &w->planned_caching));
  w->planned = *setting;
  w->has_planned = true;
  return brim_supervised_plan_data(w, &w->planned_caching, &train, &eval, out);
}

static void supervised_allow_smaller(void *work) { ((brim_supervised *)work)->adapts = true; }

// What is evaluated at once changes no result; what is trained on at once may.
static bool supervised_free_optional(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_spec spec;
  brim_loader_options train, eval;
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  if (w->small_eval || !w->eval_source || spec.eval_batch <= spec.batch) return false;
  w->small_eval = true;
  w->has_planned = false;
  brim_log_warn("workload",
                "out of memory: evaluation uses batches of %" PRId64
                " samples like training, not the %" PRId64 " of data.eval_batch_size",
                spec.batch, spec.eval_batch);
  return true;
}

// Where samples are kept was decided when the setting was planned; nearly everybody does so first.
static brim_status keep_data(brim_supervised *w, const brim_setting *setting) {
  if (!w->has_planned || memcmp(&w->planned, setting, sizeof *setting) != 0) {
    brim_plan plan;
    BRIM_TRY(supervised_plan(w, setting, &plan));
  }
  brim_supervised_caching caching = w->planned_caching;
  return brim_supervised_keep(w, &caching);
}

static brim_status make_loaders(brim_supervised *w, brim_loader_options *train,
                                brim_loader_options *eval) {
  train->resident = w->train_resident;
  eval->resident = w->eval_resident;
  BRIM_TRY(brim_loader_create(w->context.device, w->train_source, train, &w->train_loader));
  if (!w->eval_source) return BRIM_OK;
  BRIM_TRY(brim_loader_create(w->context.device, w->eval_source, eval, &w->eval_loader));
  return brim_contrastive_make_loader(w, train, eval);
}

static void supervised_share(void *work, int rank, int world) {
  brim_supervised *w = (brim_supervised *)work;
  w->loader.rank = rank;
  w->loader.world = world;
  w->has_planned = false;  // less memory may be another place for the data
}

static void supervised_resuming(void *work, const json_t *metadata) {
  ((brim_supervised *)work)->weights = NULL;
  if (metadata) brim_contrastive_take_choice(work, metadata);
}

// Samples that are known to be broken end a run before it begins, unless they are left out.
static brim_status check_readable(const brim_supervised *w) {
  if (w->loader.skip_broken) return BRIM_OK;
  BRIM_TRY(brim_source_check_readable(w->train_source, w->loader.limit));
  if (w->eval_source) BRIM_TRY(brim_source_check_readable(w->eval_source, 0));
  brim_source *bank = w->contrastive.bank_source;
  return bank ? brim_source_check_readable(bank, 0) : BRIM_OK;
}

static brim_status start_from_weights(brim_supervised *w) {
  brim_net_anew anew;
  BRIM_TRY(brim_net_start(w->net, w->weights, &anew));
  if (w->said_anew || w->loader.rank > 0) return BRIM_OK;
  if (anew.inside[0] && !anew.is) {
    brim_log_info("workload", "%s: brim loads the weights of its %.*s", w->weights,
                  (int)strlen(anew.inside) - 1, anew.inside);
  }
  w->said_anew = anew.is || anew.inside[0];
  if (!anew.is) return BRIM_OK;
  if (anew.had == 0) {
    brim_log_warn("workload",
                  "%s: brim loads the weights of its %.*s; the last layer, %s, is not among them "
                  "and is initialized from the seed",
                  w->weights, (int)strlen(anew.inside) - 1, anew.inside, anew.layer);
    return BRIM_OK;
  }
  brim_log_warn("workload",
                "%s: its last layer, %s, has %" PRId64 " outputs, this run needs %" PRId64
                ": brim initializes that layer from the seed and loads the others",
                w->weights, anew.layer, anew.had, anew.outputs);
  return BRIM_OK;
}

static brim_status supervised_configure(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_spec spec;
  brim_loader_options train, eval;
  drop_setting(w);
  w->rebuilt = w->built;
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  BRIM_TRY(check_precision(w, &spec));
  BRIM_TRY(leave_to_net(w, setting, &train, &eval, &spec));
  BRIM_TRY(brim_contrastive_choose(w, &spec));
  brim_contrastive_tell(w, &spec);
  brim_status status = check_readable(w);
  if (!status) status = keep_data(w, setting);
  if (status) goto fail;
  status = brim_net_create(w->context.device, &spec, &w->net);
  if (status) goto fail;
  if (w->weights) status = start_from_weights(w);
  if (status) goto fail;
  status = make_loaders(w, &train, &eval);
  if (status) goto fail;
  w->batch = spec.batch;
  w->eval_batch = spec.eval_batch;
  w->accumulation = spec.accumulation;
  w->exact = spec.exact;
  w->precision = spec.precision;
  w->step = w->epoch = w->position = 0;
  w->settled = -1;
  memset(&w->settle_reading, 0, sizeof w->settle_reading);
  memset(&w->carried, 0, sizeof w->carried);
  w->epoch_samples = brim_loader_samples(w->train_loader);
  if (train.drop_last) w->epoch_samples = brim_loader_batches(w->train_loader) * train.batch;
  if (w->epoch_samples == 0) {
    status = brim_fail(
        BRIM_EINVAL,
        w->views > 1 ? "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                       ", and two views need whole batches; use a smaller batch_size"
                     : "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                       ", and data.drop_last is true; use a smaller batch_size or "
                       "drop_last: false",
        w->train_source->info.count, train.batch);
    goto fail;
  }
  status = brim_supervised_schedule(w);
  if (status) goto fail;
  w->built = true;
  return BRIM_OK;
fail:
  drop_setting(w);
  drop_residents(w);  // a setting that does not stand holds no memory
  return status;
}

static int64_t steps_per_epoch(const brim_supervised *w) {
  int64_t per_step = w->batch * w->accumulation;
  return per_step ? (w->epoch_samples + per_step - 1) / per_step : 0;
}

static uint64_t locked_bytes(const brim_supervised *w) {
  return brim_resident_locked_bytes(w->train_resident) +
         brim_resident_locked_bytes(w->eval_resident);
}

static void supervised_info(void *work, brim_work_info *out) {
  brim_supervised *w = (brim_supervised *)work;
  memset(out, 0, sizeof *out);
  out->unit = "samples";
  uint64_t count = w->train_source->info.count, limit = w->loader.limit;
  out->set_samples = (int64_t)(limit && limit < count ? limit : count);
  out->samples_per_epoch = w->epoch_samples ? w->epoch_samples : out->set_samples;
  out->steps_per_epoch = steps_per_epoch(w);
  out->whole = brim_supervised_whole(w);
  out->batch = w->batch;
  out->accumulation = w->accumulation;
  if (w->views == 2 && w->accumulation > 1) out->accumulates = w->exact ? "exact" : "plain";
  out->eval_samples = w->eval_source ? (int64_t)w->eval_source->info.count : 0;
  out->eval_batch = w->eval_source ? w->eval_batch : 0;
  memcpy(out->eval_size, w->spec.eval_dim, sizeof out->eval_size);
  out->classes = w->spec.classes;
  out->learning_rate = w->base_lr;
  out->adaptive = brim_str_starts(w->optimizer.name, "adam");
  out->cache = brim_supervised_cache_name(w->caching.train);
  out->locked_bytes = locked_bytes(w);
  out->not_mapped = w->caching.why[0] ? w->caching.why : NULL;
  out->description = w->description;
}

//---------------------------------- stepping ----------------------------------

static brim_batch batch_of(const brim_supervised *w, const brim_loaded *loaded) {
  brim_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.input = loaded->input;
  batch.target = loaded->target;
  batch.on_device = loaded->on_device;
  batch.rows = loaded->rows * w->views;
  return batch;
}

static brim_status next_batch(brim_supervised *w, const brim_spans *spans,
                              const brim_loaded **loaded) {
  brim_span_begin(spans, BRIM_PHASE_IO, "next batch");
  brim_status status = brim_loader_next(w->train_loader, loaded);
  brim_span_end(spans, BRIM_PHASE_IO, "next batch");
  if (status || !(*loaded)->on_device || !spans || !spans->exact) return status;
  // its transforms run on the device, or its rows come by themselves: waited for here, they do not
  // count as computing
  bool rows = w->caching.train == BRIM_CACHE_MAPPED && !w->train_transforms;
  brim_phase phase = rows ? BRIM_PHASE_H2D : BRIM_PHASE_TRANSFORM;
  const char *name = rows ? "mapped rows" : "augment";
  brim_span_begin(spans, phase, name);
  status = brim_device_sync(w->context.device);
  brim_span_end(spans, phase, name);
  if (status) brim_loader_release(w->train_loader, *loaded);
  return status;
}

static brim_status make_step(brim_supervised *w, const brim_spans *spans, brim_step_info *out) {
  int64_t remaining = w->epoch_samples - w->position;
  int64_t step_rows = w->batch * w->accumulation;
  if (step_rows > remaining) step_rows = remaining;
  // by the place in the data, not by the count of steps: the same until a run is resumed with
  // another batch size, and then still over the whole of training
  int64_t place = w->epoch * steps_per_epoch(w) + w->position / (w->batch * w->accumulation);
  double lr = brim_schedule_lr(&w->schedule, place + 1);
  memset(out, 0, sizeof *out);
  int64_t rows = 0;
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, spans, &loaded));
    brim_net_micro micro;
    memset(&micro, 0, sizeof micro);
    micro.batch = batch_of(w, loaded);
    micro.batch.row_offset = rows * w->views;
    micro.step = w->step + 1;
    micro.step_rows = step_rows * w->views;
    micro.first = rows == 0;
    rows += loaded->rows;
    brim_status status = rows < step_rows ? brim_net_train(w->net, &micro, spans)
                                          : brim_net_step(w->net, &micro, lr, spans);
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  w->step++;
  w->position += rows;
  out->samples = rows;
  out->epoch = w->epoch;
  out->step = w->step;
  out->lr = lr;
  if (w->position >= w->epoch_samples) {
    out->epoch_end = true;
    w->epoch++;
    w->position = 0;
  }
  return BRIM_OK;
}

// Of a step that failed half-way nothing remains: for want of memory it will be made again, for want of
// data what was learned until then is kept. A device that failed has nothing to be asked for.
static brim_status supervised_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_status status = make_step(w, spans, out);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  BRIM_TRY(brim_net_undo(w->net));
  brim_status_set_detail(why);
  return status;
}

//---------------------------------- half a step ----------------------------------

static void move_on(brim_supervised *w, int64_t rows, brim_step_info *out) {
  w->position += rows;
  out->samples = rows;
  out->epoch = w->epoch;
  out->step = w->step;
  if (w->position < w->epoch_samples) return;
  out->epoch_end = true;
  w->epoch++;
  w->position = 0;
}

static int64_t rows_of_step(const brim_supervised *w) {
  int64_t remaining = w->epoch_samples - w->position, rows = w->batch * w->accumulation;
  return rows < remaining ? rows : remaining;
}

static brim_status supervised_load_only(void *work, brim_step_info *out) {
  brim_supervised *w = (brim_supervised *)work;
  int64_t step_rows = rows_of_step(w), rows = 0;
  memset(out, 0, sizeof *out);
  while (rows < step_rows) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(next_batch(w, NULL, &loaded));
    rows += loaded->rows;
    out->worker_io_ns += loaded->io_ns;
    out->worker_transform_ns += loaded->transform_ns;
    brim_loader_release(w->train_loader, loaded);
  }
  move_on(w, rows, out);
  return BRIM_OK;
}

// Every micro-batch of every step is this one batch. Where the device has memory of its own nothing
// is uploaded: a batch without data leaves the two slots as they are.
static brim_status compute_on(brim_supervised *w, const brim_loaded *loaded, int steps,
                              brim_step_info *out) {
  bool host = w->context.device->info.host_memory;
  brim_net_micro micro;
  memset(&micro, 0, sizeof micro);
  micro.batch = batch_of(w, loaded);
  micro.step_rows = micro.batch.rows * w->accumulation;
  for (int i = 0; i < steps; i++) {
    for (int64_t k = 0; k < w->accumulation; k++) {
      bool last = k + 1 == w->accumulation;
      micro.batch.input = host ? loaded->input : NULL;
      micro.batch.row_offset = k * micro.batch.rows;
      micro.step = w->step + 1;
      micro.first = k == 0;
      BRIM_TRY(last ? brim_net_step(w->net, &micro, w->base_lr, NULL)
                    : brim_net_train(w->net, &micro, NULL));
    }
    w->step++;
    out->samples += loaded->rows * w->accumulation;
  }
  out->step = w->step;
  return BRIM_OK;
}

static brim_status supervised_compute_only(void *work, int steps, int64_t *ns,
                                           brim_step_info *out) {
  brim_supervised *w = (brim_supervised *)work;
  const brim_loaded *loaded = NULL;
  brim_step_info moved;
  memset(out, 0, sizeof *out);
  BRIM_TRY(next_batch(w, NULL, &loaded));
  // The last batch of an epoch may be short, and costs what a full one does. The next one is full,
  // unless none is.
  if (loaded->rows < w->batch) {
    int64_t part = loaded->rows;
    brim_loader_release(w->train_loader, loaded);
    move_on(w, part, &moved);
    BRIM_TRY(next_batch(w, NULL, &loaded));
  }
  int64_t rows = loaded->rows;
  brim_status status = brim_device_sync(w->context.device);
  brim_time start = brim_clock_now();
  if (!status) status = compute_on(w, loaded, steps, out);
  // the device may still read it where it lies
  brim_status waited = brim_device_sync(w->context.device);
  *ns = brim_time_since_ns(start, brim_clock_now());
  brim_loader_release(w->train_loader, loaded);
  move_on(w, rows, &moved);
  return status ? status : waited;
}

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

static void no_figures(const brim_supervised *w, brim_work_metrics *out) {
  memset(out, 0, sizeof *out);
  out->set = w->contrastive.on ? &brim_contrastive_set : &brim_supervised_set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
}

// Losses that are not finite are not in the sum. Of training a mean of the others would look healthy;
// an evaluation is of the others, whose network did not learn from the bad ones.
static void mean_metrics(const brim_supervised *w, const brim_net_metrics *sum, bool evaluated,
                         brim_work_metrics *out) {
  bool any = sum->rows > 0, half = w->precision == BRIM_PRECISION_FP16;
  double of = evaluated || sum->bad_rows == 0 ? sum->rows - sum->bad_rows : 0;
  no_figures(w, out);
  double *v = out->values;
  v[BRIM_NET_LOSS] = of > 0 ? sum->loss_sum / of : (double)NAN;
  v[BRIM_NET_ACCURACY] = any && w->spec.classes > 0 ? sum->correct / sum->rows : (double)NAN;
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

static void supervised_figures(void *work, const double *sums, double *values) {
  const brim_supervised *w = (const brim_supervised *)work;
  double rows = sums[BRIM_NET_SUM_ROWS];
  bool classes = rows > 0 && w->spec.classes > 0;
  values[BRIM_NET_LOSS] = rows > 0 ? sums[BRIM_NET_SUM_LOSS] / rows : (double)NAN;
  values[BRIM_NET_ACCURACY] = classes ? sums[BRIM_NET_SUM_CORRECT] / rows : (double)NAN;
}

static brim_status supervised_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_metrics now;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  mean_metrics(w, &w->carried, false, out);
  if (reset) memset(&w->carried, 0, sizeof w->carried);
  return BRIM_OK;
}

static void supervised_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_supervised *)work)->stop = stop;
}

brim_status brim_supervised_go_on(const brim_supervised *w) {
  return w->stop && *w->stop ? brim_fail(BRIM_EINTERRUPTED, "interrupted") : BRIM_OK;
}

// From the batches that training has next: they are read ahead already, and drawn as it draws them. At
// most an epoch of them.
static brim_status settle_from(brim_supervised *w, bool stops, bool *begun) {
  int64_t all = (w->epoch_samples + w->batch - 1) / w->batch;
  int64_t count = w->settle_batches < all ? w->settle_batches : all;
  for (int64_t i = 0; i < count; i++) {
    const brim_loaded *loaded = NULL;
    if (stops) BRIM_TRY(brim_supervised_go_on(w));
    BRIM_TRY(brim_loader_next(w->train_loader, &loaded));
    brim_batch batch = batch_of(w, loaded);
    *begun = true;
    brim_status status = brim_net_settle(w->net, &batch, w->step + 1, i);
    brim_loader_release(w->train_loader, loaded);
    if (status) return status;
  }
  return BRIM_OK;
}

// What was read for it is not training's.
static void leave_out_reading(brim_supervised *w, const brim_loader_stats *before) {
  brim_loader_stats *out = &w->settle_reading, now;
  brim_loader_get_stats(w->train_loader, &now);
  out->samples += now.samples - before->samples;
  out->read_ns += now.read_ns - before->read_ns;
  out->broken_reads += now.broken_reads - before->broken_reads;
  for (size_t i = 0; i < now.stage_count; i++) {
    out->stage_ns[i] += now.stage_ns[i] - before->stage_ns[i];
  }
}

brim_status brim_supervised_settle(brim_supervised *w, bool stops) {
  if (w->settle_batches == 0 || !brim_net_settles(w->net) || w->settled == w->step) return BRIM_OK;
  bool begun = false;
  brim_loader_stats before;
  brim_loader_get_stats(w->train_loader, &before);
  brim_status status = settle_from(w, stops, &begun);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status back = brim_loader_seek(w->train_loader, w->epoch, w->position);
  leave_out_reading(w, &before);
  if (status) {
    if (begun && status != BRIM_EDEVICE) BRIM_TRY(brim_net_unsettle(w->net));
    brim_status_set_detail(why);
    return status;
  }
  BRIM_TRY(back);
  w->settled = w->step;
  return BRIM_OK;
}

static brim_status evaluate_all(brim_supervised *w) {
  int64_t left = brim_loader_samples(w->eval_loader), unread = 0;
  BRIM_TRY(brim_loader_seek(w->eval_loader, 0, 0));
  while (left > 0) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_supervised_go_on(w));
    BRIM_TRY(brim_loader_next(w->eval_loader, &loaded));
    brim_batch batch = batch_of(w, loaded);
    brim_status status = brim_net_evaluate(w->net, &batch, NULL);
    left -= loaded->rows;
    unread += loaded->rows;
    brim_loader_release(w->eval_loader, loaded);
    if (status) return status;
    if (unread >= 1 << 20) {  // the device counts in f32: exact below 2^24
      brim_net_metrics ignored;
      BRIM_TRY(brim_net_read_metrics(w->net, false, &ignored));
      unread = 0;
    }
  }
  return brim_loader_seek(w->eval_loader, 0, 0);  // what is read ahead now is of use the next time
}

_Static_assert(BRIM_WORK_MAX_STAGES == BRIM_LOADER_MAX_STAGES, "stages of a pipeline");

static void supervised_loader_stats(void *work, brim_work_loading *out) {
  brim_supervised *w = (brim_supervised *)work;
  memset(out, 0, sizeof *out);
  if (!w->train_loader) return;
  brim_loader_stats train, eval;
  brim_loader_get_stats(w->train_loader, &train);
  memset(&eval, 0, sizeof eval);
  if (w->eval_loader) brim_loader_get_stats(w->eval_loader, &eval);
  out->cache = brim_supervised_cache_name(w->caching.train);
  out->locked_bytes = locked_bytes(w);
  const brim_loader_stats *less = &w->settle_reading;
  out->samples = (int64_t)(train.samples - less->samples);
  out->read_ns = train.read_ns - less->read_ns;
  out->stage_count = train.stage_count;
  for (size_t i = 0; i < train.stage_count; i++) {
    out->stage[i] = train.stage[i];
    out->stage_ns[i] = train.stage_ns[i] - less->stage_ns[i];
  }
  out->broken = (int64_t)(train.broken + eval.broken);
  out->broken_reads = (int64_t)(train.broken_reads - less->broken_reads + eval.broken_reads);
  const char *first = train.broken ? train.first_broken : eval.first_broken;
  snprintf(out->first_broken, sizeof out->first_broken, "%s", first);
}

static brim_status supervised_evaluate(void *work, brim_work_metrics *out) {
  brim_supervised *w = (brim_supervised *)work;
  if (!w->eval_loader) {
    return brim_fail(BRIM_ESTATE,
                     "no data set for evaluation; set dataset.val (with labels for contrastive "
                     "training), or data.val_fraction=0.1 to hold out a tenth of a labelled set");
  }
  BRIM_TRY(brim_supervised_settle(w, true));
  // training sums go on after the evaluation as if it had not happened
  brim_net_metrics now, sums;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  brim_status status = w->contrastive.on ? brim_contrastive_judge(w) : evaluate_all(w);
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  // also after a failure: half an evaluation's sums are nobody's
  brim_status read = brim_net_read_metrics(w->net, true, &sums);
  if (status) {
    brim_status_set_detail(why);
    return status;
  }
  BRIM_TRY(read);
  if (w->contrastive.on) {
    brim_contrastive_figures(&sums, out);
    return BRIM_OK;
  }
  mean_metrics(w, &sums, true, out);
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

//---------------------------------- diagnoses ----------------------------------

static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  return brim_net_watch_take(&((brim_supervised *)work)->watch, at, out);
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  brim_net_watch_advice(&((brim_supervised *)work)->watch, counts, lr, out, size);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  return brim_net_watch_lost(((const brim_supervised *)work)->config, epoch, lr);
}

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  return brim_net_watch_put(&((brim_supervised *)work)->watch, times, metadata);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_net_watch_get(&((brim_supervised *)work)->watch, metadata, skipped, times);
}

static const brim_work_diagnosis diagnosis = {.rows = brim_net_troubles,
                                              .count = BRIM_NET_TROUBLES,
                                              .take = watch_take,
                                              .advice = watch_advice,
                                              .lost = watch_lost,
                                              .put = watch_put,
                                              .get = watch_get};

//---------------------------------- trials ----------------------------------

static brim_status supervised_snapshot(void *work) {
  brim_supervised *w = (brim_supervised *)work;
  // the net's snapshot reads its metrics: their exact sums are taken before and put back
  BRIM_TRY(brim_net_get_sums(w->net, &w->saved_sums));
  BRIM_TRY(brim_net_snapshot(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved_sums));
  w->saved_carried = w->carried;
  w->saved_step = w->step;
  w->saved_epoch = w->epoch;
  w->saved_position = w->position;
  return BRIM_OK;
}

static brim_status supervised_restore(void *work) {
  brim_supervised *w = (brim_supervised *)work;
  BRIM_TRY(brim_net_restore(w->net));
  BRIM_TRY(brim_net_set_sums(w->net, &w->saved_sums));
  BRIM_TRY(brim_loader_seek(w->train_loader, w->saved_epoch, w->saved_position));
  w->step = w->saved_step;
  w->epoch = w->saved_epoch;
  w->position = w->saved_position;
  w->carried = w->saved_carried;
  return BRIM_OK;
}

static const brim_work_loading_table loading = {.load_only = supervised_load_only,
                                                .compute_only = supervised_compute_only,
                                                .stats = supervised_loader_stats};
static const brim_work_ranks_table ranks = {.share = supervised_share};
static const brim_work_evaluation_table evaluation = {.evaluate = supervised_evaluate,
                                                      .use = brim_supervised_use};
static const brim_work_features_table features = {.probe = brim_contrastive_probe};
static const brim_work_batches_table batches = {.allow_smaller = supervised_allow_smaller,
                                                .free_optional = supervised_free_optional};
static const brim_work_background_table background = {.hold = brim_supervised_hold};

const brim_workload_table brim_workload_supervised = {
    .name = "supervised",
    .has_targets = true,
    .metric_set = &brim_supervised_set,
    .sums = &brim_net_work_sums,
    .diagnosis = &diagnosis,
    .open = supervised_open,
    .close = supervised_close,
    .knobs = supervised_knobs,
    .sensible = brim_contrastive_sensible,
    .plan = supervised_plan,
    .resuming = supervised_resuming,
    .configure = supervised_configure,
    .info = supervised_info,
    .step = supervised_step,
    .stops = supervised_stops,
    .metrics = supervised_metrics,
    .figures = supervised_figures,
    .save = brim_supervised_save,
    .load = brim_supervised_load,
    .snapshot = supervised_snapshot,
    .restore = supervised_restore,
    .loading = &loading,
    .ranks = &ranks,
    .evaluation = &evaluation,
    .batches = &batches,
    .background = &background,
};

const brim_workload_table brim_workload_contrastive = {
    .name = "contrastive",
    .metric_set = &brim_contrastive_set,
    .sums = &brim_net_work_sums,
    .diagnosis = &diagnosis,
    .open = contrastive_open,
    .close = supervised_close,
    .knobs = supervised_knobs,
    .sensible = brim_contrastive_sensible,
    .plan = supervised_plan,
    .resuming = supervised_resuming,
    .configure = supervised_configure,
    .info = supervised_info,
    .step = supervised_step,
    .stops = supervised_stops,
    .metrics = supervised_metrics,
    .figures = supervised_figures,
    .save = brim_supervised_save,
    .load = brim_supervised_load,
    .snapshot = supervised_snapshot,
    .restore = supervised_restore,
    .loading = &loading,
    .evaluation = &evaluation,
    .features = &features,
    .batches = &batches,
    .background = &background,
};
