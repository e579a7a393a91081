// The supervised workload: one optimiser step on labelled data. Stepping, evaluating, saving; what
// is read from the config is in workload_supervised_setup.c.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_int.h"

enum { SUM_COUNT = 4 + 2 * BRIM_METRIC_COUNT };

//---------------------------------- building ----------------------------------

static void drop_setting(brim_supervised *w) {
  brim_loader_destroy(w->train_loader);
  brim_loader_destroy(w->eval_loader);
  brim_net_destroy(w->net);
  w->train_loader = w->eval_loader = NULL;
  w->net = NULL;
}

static void supervised_close(void *work) {
  brim_supervised *w = (brim_supervised *)work;
  if (!w) return;
  drop_setting(w);
  brim_transforms_destroy(w->train_transforms);
  brim_transforms_destroy(w->eval_transforms);
  brim_source_close(w->train_source);
  brim_source_close(w->eval_source);
  brim_free(w);
}

static brim_status supervised_open(const brim_work_context *context, const brim_config *config,
                                   void **work) {
  brim_supervised *w = (brim_supervised *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = brim_supervised_setup(w);
  if (status) {
    supervised_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

static size_t supervised_knobs(void *work, const brim_knob **out) {
  brim_supervised *w = (brim_supervised *)work;
  *out = w->knobs;
  return BRIM_SUPERVISED_KNOBS;
}

static brim_status plan_loaders(const brim_supervised *w, const brim_loader_options *train,
                                const brim_loader_options *eval, brim_plan *out) {
  BRIM_TRY(brim_loader_plan(w->train_source, train, out));
  if (w->eval_source) BRIM_TRY(brim_loader_plan(w->eval_source, eval, out));
  return BRIM_OK;
}

// Where device and host are one memory the limit is for both: the network gets what the loaders
// leave of it.
static brim_status leave_to_net(const brim_supervised *w, const brim_loader_options *train,
                                const brim_loader_options *eval, brim_net_spec *spec) {
  if (spec->memory_limit == 0 || !w->context.device->info.host_memory) return BRIM_OK;
  brim_plan loaders;
  memset(&loaders, 0, sizeof loaders);
  BRIM_TRY(plan_loaders(w, train, eval, &loaders));
  uint64_t taken = loaders.bytes[BRIM_PLACE_HOST] + loaders.bytes[BRIM_PLACE_DEVICE];
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

static brim_status supervised_plan(void *work, const brim_setting *setting, brim_plan *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_spec spec;
  brim_loader_options train, eval;
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  BRIM_TRY(check_precision(w, &spec));
  BRIM_TRY(leave_to_net(w, &train, &eval, &spec));
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_net_plan(w->context.device, &spec, out));
  return plan_loaders(w, &train, &eval, out);
}

static void supervised_resuming(void *work) { ((brim_supervised *)work)->weights = NULL; }

static brim_status supervised_configure(void *work, const brim_setting *setting) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_spec spec;
  brim_loader_options train, eval;
  drop_setting(w);
  brim_supervised_apply(w, setting, &spec, &train, &eval);
  BRIM_TRY(check_precision(w, &spec));
  BRIM_TRY(leave_to_net(w, &train, &eval, &spec));
  brim_status status = brim_net_create(w->context.device, &spec, &w->net);
  if (status) goto fail;
  if (w->weights) status = brim_net_load(w->net, w->weights, true, NULL);
  if (status) goto fail;
  status = brim_loader_create(w->context.device, w->train_source, &train, &w->train_loader);
  if (status) goto fail;
  if (w->eval_source) {
    status = brim_loader_create(w->context.device, w->eval_source, &eval, &w->eval_loader);
    if (status) goto fail;
  }
  w->batch = spec.batch;
  w->accumulation = spec.accumulation;
  w->precision = spec.precision;
  w->step = w->epoch = w->position = 0;
  memset(&w->carried, 0, sizeof w->carried);
  w->epoch_samples = brim_loader_samples(w->train_loader);
  if (train.drop_last) w->epoch_samples = brim_loader_batches(w->train_loader) * train.batch;
  if (w->epoch_samples == 0) {
    status = brim_fail(BRIM_EINVAL,
                       "the data set has %" PRIu64 " samples, fewer than one batch of %" PRId64
                       ", and data.drop_last is true; use a smaller batch_size or drop_last: false",
                       w->train_source->info.count, train.batch);
    goto fail;
  }
  status = brim_supervised_schedule(w);
  if (status) goto fail;
  return BRIM_OK;
fail:
  drop_setting(w);
  return status;
}

static int64_t steps_per_epoch(const brim_supervised *w) {
  int64_t per_step = w->batch * w->accumulation;
  return per_step ? (w->epoch_samples + per_step - 1) / per_step : 0;
}

static void supervised_info(void *work, brim_work_info *out) {
  brim_supervised *w = (brim_supervised *)work;
  memset(out, 0, sizeof *out);
  out->unit = "samples";
  out->samples_per_epoch =
      w->epoch_samples ? w->epoch_samples : (int64_t)w->train_source->info.count;
  out->steps_per_epoch = steps_per_epoch(w);
  out->eval_samples = w->eval_source ? (int64_t)w->eval_source->info.count : 0;
  out->classes = w->train_source->info.classes;
  out->description = w->description;
}

//---------------------------------- stepping ----------------------------------

static brim_status supervised_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_supervised *w = (brim_supervised *)work;
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
    brim_span_begin(spans, BRIM_PHASE_IO, "next batch");
    brim_status status = brim_loader_next(w->train_loader, &loaded);
    brim_span_end(spans, BRIM_PHASE_IO, "next batch");
    if (status) return status;
    brim_net_micro micro;
    memset(&micro, 0, sizeof micro);
    micro.batch.input = loaded->input;
    micro.batch.target = loaded->target;
    micro.batch.rows = loaded->rows;
    micro.batch.row_offset = rows;
    micro.step = w->step + 1;
    micro.step_rows = step_rows;
    micro.first = rows == 0;
    rows += loaded->rows;
    status = rows < step_rows ? brim_net_train(w->net, &micro, spans)
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

static void add_metrics(brim_net_metrics *sum, const brim_net_metrics *part) {
  sum->loss_sum += part->loss_sum;
  sum->correct += part->correct;
  sum->rows += part->rows;
  sum->bad_rows += part->bad_rows;
  sum->grad_norm = part->grad_norm;
  sum->loss_scale = part->loss_scale;
  sum->skipped_steps = part->skipped_steps;
}

static void mean_metrics(const brim_supervised *w, const brim_net_metrics *sum,
                         brim_work_metrics *out) {
  bool any = sum->rows > 0;
  // losses that are not finite are not in the sum: a mean of the others would look healthy
  out->loss = any && sum->bad_rows == 0 ? sum->loss_sum / sum->rows : (double)NAN;
  out->accuracy = any && w->train_source->info.classes > 0 ? sum->correct / sum->rows : (double)NAN;
  out->grad_norm = sum->grad_norm;
  out->samples = (int64_t)sum->rows;
  out->bad = (int64_t)sum->bad_rows;
  out->skipped = (int64_t)sum->skipped_steps;
  out->loss_scale = w->precision == BRIM_PRECISION_FP16 ? sum->loss_scale : (double)NAN;
}

static brim_status supervised_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_supervised *w = (brim_supervised *)work;
  brim_net_metrics now;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  mean_metrics(w, &w->carried, out);
  if (reset) memset(&w->carried, 0, sizeof w->carried);
  return BRIM_OK;
}

static brim_status evaluate_all(brim_supervised *w) {
  int64_t left = brim_loader_samples(w->eval_loader), unread = 0;
  BRIM_TRY(brim_loader_seek(w->eval_loader, 0, 0));
  while (left > 0) {
    const brim_loaded *loaded = NULL;
    BRIM_TRY(brim_loader_next(w->eval_loader, &loaded));
    brim_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.input = loaded->input;
    batch.target = loaded->target;
    batch.rows = loaded->rows;
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
  return BRIM_OK;
}

static brim_status supervised_evaluate(void *work, brim_work_metrics *out) {
  brim_supervised *w = (brim_supervised *)work;
  if (!w->eval_loader) return brim_fail(BRIM_ESTATE, "there is no data set to evaluate on");
  // training sums go on after the evaluation as if it had not happened
  brim_net_metrics now, sums;
  BRIM_TRY(brim_net_read_metrics(w->net, true, &now));
  add_metrics(&w->carried, &now);
  BRIM_TRY(evaluate_all(w));
  BRIM_TRY(brim_net_read_metrics(w->net, true, &sums));
  mean_metrics(w, &sums, out);
  return BRIM_OK;
}

//---------------------------------- saving ----------------------------------

static brim_status put_i64(json_t *meta, const char *key, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return brim_json_put(meta, key, json_string(text));
}

// The training sums of the epoch so far, so that a resumed epoch reports what an uninterrupted one
// does: carried (4), then host and device sums of the net.
static brim_status put_sums(brim_supervised *w, json_t *meta) {
  brim_net_sums sums;
  BRIM_TRY(brim_net_get_sums(w->net, &sums));
  double values[SUM_COUNT] = {w->carried.loss_sum, w->carried.correct, w->carried.rows,
                              w->carried.bad_rows};
  memcpy(values + 4, sums.host, sizeof sums.host);
  memcpy(values + 4 + BRIM_METRIC_COUNT, sums.device, sizeof sums.device);
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < SUM_COUNT; i++) {
    char number[32];
    brim_format_f64(values[i], number);
    brim_str_printf(&text, "%s%s", i ? " " : "", number);
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(meta, "brim.sums", json_string(text.data));
  brim_str_deinit(&text);
  if (!status) status = put_i64(meta, "brim.skipped_steps", (int64_t)sums.skipped_steps);
  return status;
}

static brim_status fill_metadata(brim_supervised *w, bool weights_only, json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string("supervised")));
  BRIM_TRY(put_i64(meta, "brim.step", w->step));
  BRIM_TRY(put_i64(meta, "brim.epoch", w->epoch));
  BRIM_TRY(put_i64(meta, "brim.position", w->position));
  BRIM_TRY(put_i64(meta, "brim.seed", (int64_t)w->spec.seed));
  BRIM_TRY(put_i64(meta, "brim.batch", w->batch));
  BRIM_TRY(put_i64(meta, "brim.accumulation", w->accumulation));
  BRIM_TRY(put_sums(w, meta));
  BRIM_TRY(put_i64(meta, "brim.threads", w->context.device->info.threads));
  return brim_work_put_device(w->context.device, !weights_only, meta);
}

static brim_status supervised_save(void *work, const char *path, const json_t *extra,
                                   bool weights_only) {
  brim_supervised *w = (brim_supervised *)work;
  brim_json_setup();
  json_t *meta = json_object();
  if (!meta) return brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  brim_status status = fill_metadata(w, weights_only, meta);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!status) status = brim_net_save(w->net, path, meta, weights_only);
  json_decref(meta);
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

// A checkpoint without sums (or with others) starts them anew: only a report depends on them.
static brim_status load_sums(brim_supervised *w, const json_t *meta) {
  brim_net_sums sums;
  memset(&sums, 0, sizeof sums);
  memset(&w->carried, 0, sizeof w->carried);
  double values[SUM_COUNT] = {0};
  const char *text = json_string_value(json_object_get(meta, "brim.sums"));
  int n = 0;
  while (text && *text && n < SUM_COUNT) {
    char number[32];
    size_t length = strcspn(text, " ");
    if (length >= sizeof number) break;
    memcpy(number, text, length);
    number[length] = 0;
    if (!brim_parse_f64(number, &values[n])) break;
    n++;
    text += length + (text[length] == ' ');
  }
  if (n == SUM_COUNT) {
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
  return brim_net_set_sums(w->net, &sums);
}

// Bits are the same only on the same backend, library, thread count and setting: say so when not.
static void warn_if_different(const brim_supervised *w, const json_t *meta, const char *path) {
  char threads[16], batch[32];
  snprintf(threads, sizeof threads, "%d", (int)w->context.device->info.threads);
  snprintf(batch, sizeof batch, "%" PRId64, w->batch);
  const brim_device *device = w->context.device;
  const char *const rows[][2] = {{"brim.backend", device->backend->name},
                                 {"brim.library", device->info.library},
                                 {"brim.device", device->info.name},
                                 {"brim.threads", threads},
                                 {"brim.batch", batch}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *saved = json_string_value(json_object_get(meta, rows[i][0]));
    if (saved && strcmp(saved, rows[i][1]) != 0) {
      brim_log_warn("workload",
                    "%s was written with %s %s, this run has %s: it goes on, but not bit for bit",
                    path, rows[i][0] + 5, saved, rows[i][1]);
    }
  }
}

typedef struct checkpoint_place {
  int64_t step, epoch, position;
  bool moved;  // on to the next epoch
} checkpoint_place;

// Where the checkpoint stands, checked before anything is changed.
static brim_status read_place(const brim_supervised *w, const char *path, checkpoint_place *out) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  const json_t *meta = brim_safetensors_metadata(file);
  brim_status status = get_i64(meta, path, "brim.step", &out->step);
  if (!status) status = get_i64(meta, path, "brim.epoch", &out->epoch);
  if (!status) status = get_i64(meta, path, "brim.position", &out->position);
  brim_safetensors_close(file);
  if (status) return status;
  // what the epoch has without drop_last: a batch of another size drops another rest
  int64_t samples = (int64_t)w->train_source->info.count;
  if (w->loader.limit && (int64_t)w->loader.limit < samples) samples = (int64_t)w->loader.limit;
  if (out->position >= samples) {
    return brim_fail(BRIM_EINVAL,
                     "%s stands at sample %" PRId64 " of an epoch, but this data set has %" PRId64
                     "; was it trained on other data?",
                     path, out->position, samples);
  }
  // with drop_last only whole batches are left: of another size, the first may start a little later
  if (w->loader.drop_last && out->position % w->batch != 0) {
    out->position += w->batch - out->position % w->batch;
  }
  if (out->position >= w->epoch_samples) {
    out->position = 0;
    out->epoch++;
    out->moved = true;
  }
  return BRIM_OK;
}

static brim_status supervised_load(void *work, const char *path, json_t **extra) {
  brim_supervised *w = (brim_supervised *)work;
  json_t *meta = NULL;
  checkpoint_place at = {0};
  BRIM_TRY(read_place(w, path, &at));
  BRIM_TRY(brim_net_load(w->net, path, false, &meta));
  brim_status status = BRIM_OK;
  if (at.moved) {
    // the rest of its epoch is too short for a batch: the sums of that epoch end with it
    if (json_object_del(meta, "brim.sums")) brim_log_debug("workload", "%s has no sums", path);
    status = put_i64(meta, "brim.epoch", at.epoch);
    if (!status) status = brim_json_put(meta, "brim.new_epoch", json_string("true"));
  }
  if (!status) status = load_sums(w, meta);
  if (!status) status = brim_loader_seek(w->train_loader, at.epoch, at.position);
  if (!status) {
    w->step = at.step;
    w->epoch = at.epoch;
    w->position = at.position;
    warn_if_different(w, meta, path);
  }
  if (!status && extra) {
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

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

const brim_workload_table brim_workload_supervised = {
    .name = "supervised",
    .open = supervised_open,
    .close = supervised_close,
    .knobs = supervised_knobs,
    .plan = supervised_plan,
    .configure = supervised_configure,
    .resuming = supervised_resuming,
    .info = supervised_info,
    .step = supervised_step,
    .metrics = supervised_metrics,
    .evaluate = supervised_evaluate,
    .save = supervised_save,
    .load = supervised_load,
    .snapshot = supervised_snapshot,
    .restore = supervised_restore,
};
