// Checkpoints of a network that is stepped over a data set: where it stands, the training sums of the
// epoch, and the way back to exactly there. The file itself is the engine's (engine_checkpoint.c).
#include "workload/workload_stepper_save.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "workload/workload_int.h"

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

brim_status brim_stepper_give(brim_stepper *t, bool weights_only) {
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

brim_status brim_stepper_save(brim_stepper *t, const brim_checkpoint_facts *f, const char *path,
                              const json_t *extra, bool weights_only) {
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

brim_status brim_stepper_hold(brim_stepper *t, const brim_checkpoint_facts *f, const json_t *extra,
                              bool weights_only, brim_work_held *out) {
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

brim_status brim_stepper_load(brim_stepper *t, const brim_checkpoint_facts *f, const char *path,
                              json_t **extra) {
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

brim_status brim_stepper_use(brim_stepper *t, const char *path, bool averaged) {
  t->recalibrated = t->step;  // the file has what belongs to its weights
  return brim_net_load_weights(t->net, path, averaged ? BRIM_TRAINED_EMA : NULL);
}
