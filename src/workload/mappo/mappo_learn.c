// An iteration: a rollout, the critic's values of all its states, advantages, and update_epochs passes over
// it in minibatches. Where the device records, all of it is one launch (several where it has more than
// BRIM_GROUP_STATES updates); of measured iterations the rollout is one of its own.
#include "workload/mappo/mappo_int.h"

//---------------------------------- advantages ----------------------------------

static brim_mappo_report *report_of(const brim_mappo *w) {
  return (brim_mappo_report *)(void *)(w->memory + w->places.report);
}

static float *floats(const brim_mappo *w, size_t offset) {
  return (float *)(void *)(w->memory + offset);
}

// Part by part, into one matrix.
brim_status brim_mappo_value_states(brim_mappo *w) {
  if (w->fusing.rollout) return brim_mappo_fused_values(w);
  const brim_tensor *out = &w->outputs[BRIM_MAPPO_CRITIC];
  const size_t each = (size_t)out->dim[1] * brim_dtype_size(out->dtype);
  for (int64_t first = 0; first < w->chunks.rows; first += w->chunks.each) {
    const int64_t left = w->chunks.rows - first;
    const brim_collect_view view = {
        .first = first,
        .count = left < w->chunks.each ? left : w->chunks.each,
        .critic = brim_mappo_output(&w->inputs[BRIM_MAPPO_CRITIC][1]),
    };
    BRIM_TRY(w->collect->look(&w->where, &w->shape, w->block, &view));
    BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_CRITIC)));
    BRIM_TRY(brim_device_copy(w->context.device,
                              w->memory + w->places.values + (size_t)first * each, out->data,
                              (size_t)view.count * each, BRIM_COPY_D2D));
  }
  return BRIM_OK;
}

static brim_status take_advantages(brim_mappo *w) {
  const brim_tensor *out = &w->outputs[BRIM_MAPPO_CRITIC];
  const int64_t dim[] = {w->chunks.rows, out->dim[1]};
  brim_mappo_report *report = report_of(w);
  const brim_ppo_advantages work = {
      .values = brim_tensor_make(w->memory + w->places.values, out->dtype, 2, dim),
      .reward = (const float *)(const void *)(w->block + w->layout.reward),
      .end = (const int8_t *)(const void *)(w->block + w->layout.end),
      .final = (const int32_t *)(const void *)(w->block + w->layout.final),
      .gamma = w->how.gamma,
      .lambda = w->how.lambda,
      .beta = 0.99f,
      .norm = w->how.value_norm ? &report->norm : NULL,
      .adv = floats(w, w->places.adv),
      .ret = floats(w, w->places.ret),
      .old = floats(w, w->places.old),
      .moments = &report->moments,
      .scratch = w->memory + w->places.scratch,
  };
  return w->ppo->advantages(&w->where, &w->learn, &work);
}

//---------------------------------- updates ----------------------------------

static brim_ppo_losses losses_of(const brim_mappo *w) {
  brim_mappo_report *report = report_of(w);
  brim_ppo_net nets[BRIM_MAPPO_NETS];
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    nets[i] = (brim_ppo_net){.output = w->external[i].output,
                             .gradient = w->external[i].gradient,
                             .state = (const double *)w->external[i].state.data};
  }
  return (brim_ppo_losses){
      .rows = (const int32_t *)(const void *)(w->memory + w->places.rows),
      .actor = nets[BRIM_MAPPO_ACTOR],
      .critic = nets[BRIM_MAPPO_CRITIC],
      .mask = (const uint64_t *)(const void *)(w->memory + w->places.mask),
      .action = (const int32_t *)(const void *)(w->block + w->layout.action),
      .logp = (const float *)(const void *)(w->block + w->layout.logp),
      .adv = floats(w, w->places.adv),
      .ret = floats(w, w->places.ret),
      .old = floats(w, w->places.old),
      .norm = w->how.value_norm ? &report->norm : NULL,
      .moments = w->how.normalize ? &report->moments : NULL,
      .clip = w->how.clip,
      .value_clip = w->how.value_clip,
      .value_coef = w->how.value_coef,
      .entropy = w->how.entropy,
      .huber = w->how.huber,
      .metrics = report->metrics,
      .scratch = w->memory + w->places.scratch,
  };
}

static brim_status losses(void *ctx) {
  const brim_mappo *w = (const brim_mappo *)ctx;
  const brim_ppo_losses work = losses_of(w);
  return w->ppo->losses(&w->where, &w->learn, &work);
}

static brim_status gradients(void *ctx) {
  const brim_mappo *w = (const brim_mappo *)ctx;
  const brim_ppo_losses work = losses_of(w);
  return brim_mappo_fused_gradients(w, &work);
}

// Minibatch `index` of the iteration: its rows in the order of the epoch, the inputs, one step of both.
static brim_status update(brim_mappo *w, int64_t index, int64_t within) {
  const brim_mappo_sizes *s = &w->sizes;
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(w->block + w->layout.clock);
  int32_t *list = (int32_t *)(void *)(w->memory + w->places.rows);
  const brim_ppo_rows rows = {
      .seed = w->how.seed,
      .clock = &clock->now,
      .epoch = (int32_t)(index / s->minibatches),
      .total = (int64_t)s->envs * s->steps,
      .first = index % s->minibatches * s->batch,
      .count = s->batch,
      .rows = list,
  };
  const brim_collect_view view = {
      .rows = list,
      .count = s->batch,
      .actor = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][0]),
      .critic = brim_mappo_output(&w->inputs[BRIM_MAPPO_CRITIC][0]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  const brim_group_part part = {
      .losses = losses,
      .gradients = w->fusing.update ? gradients : NULL,
      .ctx = w,
  };
  BRIM_TRY(w->ppo->rows(&w->where, &rows));
  // a fused rollout keeps what networks saw, and no states to look at again
  if (!w->fusing.rollout) BRIM_TRY(w->collect->look(&w->where, &w->shape, w->block, &view));
  BRIM_TRY(brim_mappo_settle(w));
  return brim_group_enqueue(w->group, &part, within);
}

static int64_t part_end(const brim_mappo *w, int64_t part) {
  const int64_t end = (part + 1) * BRIM_GROUP_STATES;
  return end < w->sizes.updates ? end : w->sizes.updates;
}

//---------------------------------- iterations ----------------------------------

static brim_status enqueue_rollout(void *ctx) {
  const brim_mappo_run *r = (const brim_mappo_run *)ctx;
  brim_mappo_report *report = report_of(r->w);
  BRIM_TRY(brim_device_fill(r->w->context.device, &report->bad, 0, sizeof report->bad));
  return brim_mappo_collect(r);
}

// Everything of a part of the updates, in order: what a record holds.
static brim_status enqueue_updates(void *ctx) {
  const brim_mappo_run *r = (const brim_mappo_run *)ctx;
  brim_mappo *w = r->w;
  const int64_t first = r->part * BRIM_GROUP_STATES, end = part_end(w, r->part);
  if (r->part == 0) {
    brim_mappo_report *report = report_of(w);
    BRIM_TRY(brim_device_fill(w->context.device, report->metrics, 0, sizeof report->metrics));
    BRIM_TRY(brim_mappo_value_states(w));
    BRIM_TRY(take_advantages(w));
  }
  for (int64_t i = first; i < end; i++) BRIM_TRY(update(w, i, i - first));
  return BRIM_OK;
}

static brim_status enqueue_all(void *ctx) {
  BRIM_TRY(enqueue_rollout(ctx));
  return enqueue_updates(ctx);
}

// Between the host's and the device's memory, or within it: what a rollout carries and the statistics.
static brim_status copy_carried(brim_mappo *w, bool back) {
  brim_device *device = w->context.device;
  char *backup = w->memory + w->places.backup;
  char *norm = w->memory + w->places.report + offsetof(brim_mappo_report, norm);
  for (int i = 0; i < 2; i++) {
    char *at = w->block + w->layout.saved[i].offset;
    const size_t bytes = w->layout.saved[i].bytes;
    BRIM_TRY(
        brim_device_copy(device, back ? at : backup, back ? backup : at, bytes, BRIM_COPY_D2D));
    if (back && w->sizes.on_host) {
      BRIM_TRY(brim_device_copy(device, w->host_block + w->layout.saved[i].offset, backup, bytes,
                                BRIM_COPY_D2H));
    }
    backup += bytes;
  }
  return brim_device_copy(device, back ? norm : backup, back ? backup : norm, sizeof(brim_ppo_norm),
                          BRIM_COPY_D2D);
}

static void fill_states(brim_mappo *w, double lr) {
  const brim_mappo_sizes *s = &w->sizes;
  for (int64_t i = 0; i < s->updates; i++) {
    for (int n = 0; n < BRIM_MAPPO_NETS; n++) {
      const int64_t rows = n == BRIM_MAPPO_ACTOR ? (int64_t)s->batch * w->z.agents : s->batch;
      w->states[i * BRIM_MAPPO_NETS + n] = (brim_group_state){
          .step = w->now.updates + i + 1, .lr = lr, .rows = rows, .step_rows = rows};
    }
  }
}

// Spans are inside where they are reported, and none else: a record has none.
static brim_status roll_out(brim_mappo *w, const brim_spans *spans) {
  const brim_mappo_run run = {.w = w, .spans = spans};
  brim_mappo_run recorded = {.w = w, .spans = w->context.device->info.host_memory ? spans : NULL};
  if (w->sizes.on_host) return brim_mappo_collect_on_host(&run);
  return brim_record_run(w->rollout, enqueue_rollout, &recorded, recorded.spans != NULL);
}

// whole: with the rollout before them.
static brim_status run_updates(brim_mappo *w, bool whole) {
  for (size_t part = 0; part < w->record_count; part++) {
    brim_mappo_run run = {.w = w, .part = (int64_t)part};
    const int64_t first = run.part * BRIM_GROUP_STATES;
    BRIM_TRY(brim_group_put_states(w->group, w->states + first * BRIM_MAPPO_NETS,
                                   part_end(w, run.part) - first));
    BRIM_TRY(whole && part == 0 ? brim_record_run(w->whole, enqueue_all, &run, false)
                                : brim_record_run(w->records[part], enqueue_updates, &run, false));
  }
  return BRIM_OK;
}

static brim_status read_back(brim_mappo *w) {
  brim_device *device = w->context.device;
  const int64_t bad = w->report->bad;
  BRIM_TRY(brim_device_copy(device, w->report, w->memory + w->places.report, sizeof *w->report,
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(device, w->tally, w->block + w->layout.tally, sizeof *w->tally,
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(device));
  if (w->sizes.on_host) w->report->bad = bad;
  return BRIM_OK;
}

// The host waits for a rollout of its own environments, so that the update is a phase apart. A GPU that
// has both to do is waited for once: exact steps tell the two apart by its clock.
static brim_status run_all(brim_mappo *w, const brim_spans *spans) {
  const bool apart = w->sizes.on_host || w->context.device->info.host_memory;
  const bool exact = spans && spans->exact, whole = !apart && !exact;
  const brim_spans *one = apart || exact ? NULL : spans;  // of both together
  const brim_spans *update = apart ? spans : NULL;
  brim_span_begin(one, BRIM_PHASE_COMPUTE, "iteration");
  brim_status status = brim_mappo_mark(w, spans, BRIM_MAPPO_MARK_ROLLOUT);
  if (!status && !whole) status = roll_out(w, spans);
  brim_span_begin(update, BRIM_PHASE_UPDATE, "update");
  if (!status) status = brim_mappo_mark(w, spans, BRIM_MAPPO_MARK_UPDATE);
  if (!status) status = run_updates(w, whole);
  if (!status) status = brim_mappo_mark(w, spans, BRIM_MAPPO_MARK_END);
  if (!status) status = read_back(w);
  brim_span_end(update, BRIM_PHASE_UPDATE, "update");
  brim_span_end(one, BRIM_PHASE_COMPUTE, "iteration");
  return status;
}

brim_status brim_mappo_iterate(brim_mappo *w, const brim_spans *spans) {
  const double lr = brim_schedule_lr(&w->schedule, w->now.step + 1);
  brim_mappo_pieces pieces = {0};
  fill_states(w, lr);
  BRIM_TRY(copy_carried(w, false));
  brim_status status = brim_mappo_probe_run(w, spans, &pieces);
  if (!status && brim_mappo_probes(w, spans) && !w->sizes.on_host) status = copy_carried(w, true);
  if (!status) status = run_all(w, spans);
  if (!status) status = brim_mappo_probe_tell(w, spans, &pieces);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  // the iteration did not happen: an interrupted or failed one can be made again
  if (brim_group_undo(w->group) || copy_carried(w, true) || brim_device_sync(w->context.device)) {
    brim_log_debug("workload", "the state before the iteration could not be restored");
  }
  return status;
}
