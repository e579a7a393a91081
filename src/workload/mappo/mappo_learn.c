// An iteration of multi-agent PPO: a rollout, the critic's values, advantages, and passes over it in
// minibatches.

#include "workload/mappo/mappo_int.h"

#include <inttypes.h>

static brim_status mark(brim_mappo *w, const brim_spans *spans, int mark);
static brim_status probe_tell(brim_mappo *w, const brim_spans *spans,
                              const brim_mappo_pieces *pieces);
static bool probes(const brim_mappo *w, const brim_spans *spans);

//------------------------------------------- rollout -------------------------------------------
// A rollout: observations of all environments, actions drawn from the actor's outputs, one step, T times.
// On the device nothing waits for the host. Environments on the CPU beside a GPU send observations up and
// get outputs back every step; the rollout goes up once, at its end.

static void begin_span(const brim_mappo_iteration *r, brim_phase phase, const char *name) {
  brim_span_begin(r->spans, phase, name);
}

static brim_status end_span(const brim_mappo_iteration *r, brim_phase phase, const char *name,
                            brim_status status) {
  if (!status && r->spans && r->spans->exact) status = brim_device_sync(r->w->context.device);
  brim_span_end(r->spans, phase, name);
  return status;
}

brim_collect_output brim_mappo_output(const brim_tensor *input) {
  return (brim_collect_output){
      .data = input->data, .dtype = (int32_t)input->dtype, .pitch = (int32_t)input->dim[1]};
}

static brim_status check_stop(const brim_mappo *w) {
  if (!w->stop || !*w->stop) return BRIM_OK;
  return brim_fail(BRIM_EINTERRUPTED, "interrupted in iteration %" PRId64, w->now.step + 1);
}

static brim_ppo_sample sample_of(const brim_mappo *w, char *block, int32_t t) {
  const int64_t rows = (int64_t)w->sizes.envs * w->z.agents;
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(block + w->layout.clock);
  return (brim_ppo_sample){
      .rows = rows,
      .clock = &clock->now,
      .t = t,
      .seed = w->how.seed,
      .action = (int32_t *)(void *)(block + w->layout.action) + rows * t,
      .logp = (float *)(void *)(block + w->layout.logp) + rows * t,
  };
}

//---------------------------------- on the device ----------------------------------

// Observations and masks of step t into the actor's input; actions of step t from its outputs. Enqueued.
static brim_status look(brim_mappo *w, int32_t t) {
  const brim_collect_view view = {
      .first = (int64_t)t * w->sizes.envs,
      .count = w->sizes.envs,
      .actor = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  return w->collect->look(&w->where, &w->shape, w->block, &view);
}

static brim_status draw(brim_mappo *w, int32_t t) {
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  brim_ppo_sample sample = sample_of(w, w->block, t);
  sample.outputs = w->outputs[BRIM_MAPPO_ACTOR];
  sample.mask = (const uint64_t *)(const void *)(w->memory + w->places.mask);
  sample.bad = &report->bad;
  return w->ppo->sample(&w->where, &w->learn, &sample);
}

static brim_status act(brim_mappo *w, int32_t t) {
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return draw(w, t);
}

static brim_status collect_step(const brim_mappo_iteration *r, int32_t t) {
  brim_mappo *w = r->w;
  const brim_rollout_where *where = w->context.device->info.host_memory ? &w->host : &w->where;
  begin_span(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(end_span(r, BRIM_PHASE_ENV, "env", look(w, t)));
  begin_span(r, BRIM_PHASE_ACT, "act");
  BRIM_TRY(end_span(r, BRIM_PHASE_ACT, "act", act(w, t)));
  begin_span(r, BRIM_PHASE_ENV, "env");
  return end_span(r, BRIM_PHASE_ENV, "env", w->collect->step(where, &w->shape, w->block, t));
}

static brim_status collect_steps(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  const bool host = w->context.device->info.host_memory;
  begin_span(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(end_span(r, BRIM_PHASE_ENV, "env", w->collect->begin(&w->where, &w->shape, w->block)));
  for (int32_t t = 0; t < w->sizes.steps; t++) {
    if (host) BRIM_TRY(check_stop(w));
    BRIM_TRY(collect_step(r, t));
  }
  return BRIM_OK;
}

// A fused rollout is one kernel of a GPU, which has no spans inside: mappo_learn.c divides it.
brim_status brim_mappo_collect(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  BRIM_TRY(w->fusing.rollout ? brim_mappo_fused_collect(w) : collect_steps(r));
  BRIM_TRY(w->collect->tally(&w->where, &w->shape, w->block, 1));
  return brim_mappo_settle(w);
}

//---------------------------------- on the host ----------------------------------

static brim_status look_on_host(brim_mappo *w, int32_t t) {
  brim_collect_output input = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]);
  input.data = w->host_input;
  const brim_collect_view view = {.first = (int64_t)t * w->sizes.envs,
                                  .count = w->sizes.envs,
                                  .actor = input,
                                  .mask = w->host_mask};
  return brim_collect_cpu()->look(&w->host, &w->shape, w->host_block, &view);
}

// While the device runs ahead only waiting for it can be timed; measured steps wait after each part.
static brim_phase reported(const brim_mappo_iteration *r, brim_phase phase) {
  return r->spans && r->spans->exact ? phase : BRIM_PHASE_COMPUTE;
}

static size_t tensor_bytes(const brim_tensor *t) {
  return (size_t)(t->dim[0] * t->dim[1]) * brim_dtype_size(t->dtype);
}

static brim_status enqueue_outputs(void *ctx) {
  return brim_net_enqueue_outputs(brim_mappo_net((brim_mappo *)ctx, BRIM_MAPPO_ACTOR));
}

// Observations up, the actor, outputs down.
static brim_status ask_gpu(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  brim_device *device = w->context.device;
  const brim_tensor *in = &w->inputs[BRIM_MAPPO_ACTOR][1], *out = &w->outputs[BRIM_MAPPO_ACTOR];
  const brim_phase transfer = reported(r, BRIM_PHASE_H2D), acting = reported(r, BRIM_PHASE_ACT);
  begin_span(r, transfer, "transfer");
  BRIM_TRY(
      end_span(r, transfer, "transfer",
               brim_device_copy(device, in->data, w->host_input, tensor_bytes(in), BRIM_COPY_H2D)));
  begin_span(r, acting, "act");
  BRIM_TRY(end_span(r, acting, "act", brim_record_run(w->act, enqueue_outputs, w, false)));
  begin_span(r, transfer, "transfer");
  brim_status status =
      brim_device_copy(device, w->host_output, out->data, tensor_bytes(out), BRIM_COPY_D2H);
  if (!status) status = brim_device_sync(device);
  return end_span(r, transfer, "transfer", status);
}

static brim_status act_on_host(brim_mappo *w, int32_t t) {
  brim_ppo_sample sample = sample_of(w, w->host_block, t);
  sample.outputs = w->outputs[BRIM_MAPPO_ACTOR];
  sample.outputs.data = w->host_output;
  sample.mask = w->host_mask;
  sample.bad = &w->report->bad;
  return brim_ppo_cpu()->sample(&w->host, &w->learn, &sample);
}

static brim_status step_on_host(const brim_mappo_iteration *r, int32_t t) {
  brim_mappo *w = r->w;
  const brim_collect_table *cpu = brim_collect_cpu();
  begin_span(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(end_span(r, BRIM_PHASE_ENV, "env", look_on_host(w, t)));
  BRIM_TRY(ask_gpu(r));
  // drawing the actions is part of choosing them, wherever it happens
  const brim_phase acting = reported(r, BRIM_PHASE_ACT);
  begin_span(r, acting, "act");
  BRIM_TRY(end_span(r, acting, "act", act_on_host(w, t)));
  begin_span(r, BRIM_PHASE_ENV, "env");
  return end_span(r, BRIM_PHASE_ENV, "env", cpu->step(&w->host, &w->shape, w->host_block, t));
}

// A rollout of environments on the CPU with the actor on the GPU, and its upload.
static brim_status collect_on_host(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  const brim_collect_table *cpu = brim_collect_cpu();
  w->report->bad = 0;
  BRIM_TRY(cpu->begin(&w->host, &w->shape, w->host_block));
  for (int32_t t = 0; t < w->sizes.steps; t++) {
    BRIM_TRY(check_stop(w));
    BRIM_TRY(step_on_host(r, t));
  }
  BRIM_TRY(cpu->tally(&w->host, &w->shape, w->host_block, 1));
  const brim_phase transfer = reported(r, BRIM_PHASE_H2D);
  begin_span(r, transfer, "transfer");
  return end_span(
      r, transfer, "transfer",
      brim_device_copy(w->context.device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
}

//------------------------------------------ iteration ------------------------------------------
// An iteration: a rollout, the critic's values of all its states, advantages, and update_epochs passes over
// it in minibatches. A device that records makes it one launch (several with more than BRIM_GROUP_STATES updates); in
// measured iterations the rollout is a launch of its own.

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
  // a fused rollout keeps the inputs of the networks instead of states
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
  const brim_mappo_iteration *r = (const brim_mappo_iteration *)ctx;
  brim_mappo_report *report = report_of(r->w);
  BRIM_TRY(brim_device_fill(r->w->context.device, &report->bad, 0, sizeof report->bad));
  return brim_mappo_collect(r);
}

// Enqueues a part of the updates in order: the content of a record.
static brim_status enqueue_updates(void *ctx) {
  const brim_mappo_iteration *r = (const brim_mappo_iteration *)ctx;
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

// Copies the state that a rollout carries, and the statistics, to the backup or `back`.
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

// A measured rollout has spans inside; a recorded one has none.
static brim_status roll_out(brim_mappo *w, const brim_spans *spans) {
  const brim_mappo_iteration run = {.w = w, .spans = spans};
  brim_mappo_iteration recorded = {.w = w,
                                   .spans = w->context.device->info.host_memory ? spans : NULL};
  if (w->sizes.on_host) return collect_on_host(&run);
  return brim_record_run(w->rollout, enqueue_rollout, &recorded, recorded.spans != NULL);
}

// whole: with the rollout before them.
static brim_status run_updates(brim_mappo *w, bool whole) {
  for (size_t part = 0; part < w->record_count; part++) {
    brim_mappo_iteration run = {.w = w, .part = (int64_t)part};
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

// If the host steps environments, it waits for the rollout, so that the update is a phase of its own. A GPU that does both
// is waited for once; exact steps separate the two by its clock.
static brim_status run_all(brim_mappo *w, const brim_spans *spans) {
  const bool apart = w->sizes.on_host || w->context.device->info.host_memory;
  const bool exact = spans && spans->exact, whole = !apart && !exact;
  const brim_spans *one = apart || exact ? NULL : spans;  // of both together
  const brim_spans *update = apart ? spans : NULL;
  brim_span_begin(one, BRIM_PHASE_COMPUTE, "iteration");
  brim_status status = mark(w, spans, BRIM_MAPPO_MARK_ROLLOUT);
  if (!status && !whole) status = roll_out(w, spans);
  brim_span_begin(update, BRIM_PHASE_UPDATE, "update");
  if (!status) status = mark(w, spans, BRIM_MAPPO_MARK_UPDATE);
  if (!status) status = run_updates(w, whole);
  if (!status) status = mark(w, spans, BRIM_MAPPO_MARK_END);
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
  if (!status && probes(w, spans) && !w->sizes.on_host) status = copy_carried(w, true);
  if (!status) status = run_all(w, spans);
  if (!status) status = probe_tell(w, spans, &pieces);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  // the iteration did not happen: an interrupted or failed one can be made again
  if (brim_group_undo(w->group) || copy_carried(w, true) || brim_device_sync(w->context.device)) {
    brim_log_debug("workload", "the state before the iteration could not be restored");
  }
  return status;
}

//------------------------------------- what its pieces take -------------------------------------
// The time of a rollout's pieces on a GPU, by its own clock: a few steps of each, recorded, launched and
// scaled to the rollout. A rollout on the GPU is one launch, in which environment and actor cannot be told
// apart; for a rollout on the CPU this measures what the GPU would take. Only steps that are measured phase
// by phase ask for it.

enum { PROBE_STEPS = 32, WARM_RUNS = 3 };  // the first runs go op by op and record

// mappo_learn.c, for steps on a GPU that are measured phase by phase; others pass through
static bool probes(const brim_mappo *w, const brim_spans *spans) {
  return spans && spans->exact && spans->add && !w->context.device->info.host_memory;
}

//---------------------------------- pieces ----------------------------------

static int32_t probe_steps(const brim_mappo *w) {
  return w->sizes.steps < PROBE_STEPS ? w->sizes.steps : PROBE_STEPS;
}

static brim_status enqueue_env(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) {
    BRIM_TRY(look(w, t));
    BRIM_TRY(w->collect->step(&w->where, &w->shape, w->block, t));
  }
  return BRIM_OK;
}

static brim_status probe_enqueue_outputs(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) {
    BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  }
  return BRIM_OK;
}

static brim_status enqueue_draw(void *ctx) {
  brim_mappo *w = (brim_mappo *)ctx;
  for (int32_t t = 0; t < probe_steps(w); t++) BRIM_TRY(draw(w, t));
  return BRIM_OK;
}

static brim_status prepare(brim_mappo *w) {
  for (int i = 0; i < BRIM_MAPPO_MARKS; i++) {
    if (w->probe.marks[i]) continue;
    BRIM_TRY(brim_event_create(w->context.device, &w->probe.marks[i]));
  }
  return BRIM_OK;
}

static brim_status time_piece(brim_mappo *w, int piece, brim_status (*enqueue)(void *ctx),
                              int64_t *ns) {
  brim_device *device = w->context.device;
  brim_record **record = &w->probe.records[piece];
  brim_event **marks = w->probe.marks;
  const bool first = *record == NULL;
  if (first) BRIM_TRY(brim_record_create(device, w->group, record));
  for (int i = 0; first && i < WARM_RUNS; i++)
    BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_device_sync(device));
  // two launches: of the second the GPU does not wait for the host
  BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_event_record(device, marks[0]));
  BRIM_TRY(brim_record_run(*record, enqueue, w, false));
  BRIM_TRY(brim_event_record(device, marks[1]));
  BRIM_TRY(brim_event_elapsed(device, marks[0], marks[1], ns));
  *ns = (int64_t)((double)*ns * w->sizes.steps / probe_steps(w));
  return BRIM_OK;
}

brim_status brim_mappo_probe_run(brim_mappo *w, const brim_spans *spans, brim_mappo_pieces *out) {
  if (!probes(w, spans)) return BRIM_OK;
  BRIM_TRY(prepare(w));
  // states are those a rollout begins with, also before the first one; actions exist before environments step
  BRIM_TRY(w->collect->begin(&w->where, &w->shape, w->block));
  BRIM_TRY(look(w, 0));
  BRIM_TRY(time_piece(w, BRIM_MAPPO_PIECE_OUTPUTS, probe_enqueue_outputs,
                      &out->ns[BRIM_MAPPO_PIECE_OUTPUTS]));
  BRIM_TRY(time_piece(w, BRIM_MAPPO_PIECE_DRAW, enqueue_draw, &out->ns[BRIM_MAPPO_PIECE_DRAW]));
  return time_piece(w, BRIM_MAPPO_PIECE_ENV, enqueue_env, &out->ns[BRIM_MAPPO_PIECE_ENV]);
}

//---------------------------------- an iteration ----------------------------------

static brim_status mark(brim_mappo *w, const brim_spans *spans, int mark) {
  return probes(w, spans) ? brim_event_record(w->context.device, w->probe.marks[mark]) : BRIM_OK;
}

// A rollout on the CPU: the GPU computes the actor's outputs and the update, nothing else.
static void tell_host(const brim_spans *spans, const brim_mappo_pieces *pieces, int64_t update_ns) {
  const int64_t outputs = pieces->ns[BRIM_MAPPO_PIECE_OUTPUTS];
  brim_span_add(spans, BRIM_PHASE_ENV, BRIM_SPAN_BUSY, 0);
  brim_span_add(spans, BRIM_PHASE_H2D, BRIM_SPAN_BUSY, 0);
  brim_span_add(spans, BRIM_PHASE_ACT, BRIM_SPAN_BUSY, outputs);
  brim_span_add(spans, BRIM_PHASE_UPDATE, BRIM_SPAN_BUSY, update_ns);
  brim_span_add(spans, BRIM_PHASE_ENV, BRIM_SPAN_MOVED, pieces->ns[BRIM_MAPPO_PIECE_ENV]);
  brim_span_add(spans, BRIM_PHASE_H2D, BRIM_SPAN_MOVED, 0);
  brim_span_add(spans, BRIM_PHASE_ACT, BRIM_SPAN_MOVED,
                outputs + pieces->ns[BRIM_MAPPO_PIECE_DRAW]);
}

// All on the GPU: it computes all the time, in the proportions of the pieces while it collects.
static void tell_device(const brim_spans *spans, const brim_mappo_pieces *pieces,
                        int64_t rollout_ns, int64_t update_ns) {
  const double env = (double)pieces->ns[BRIM_MAPPO_PIECE_ENV];
  const double act =
      (double)(pieces->ns[BRIM_MAPPO_PIECE_OUTPUTS] + pieces->ns[BRIM_MAPPO_PIECE_DRAW]);
  const int64_t env_ns = env + act > 0 ? (int64_t)((double)rollout_ns * env / (env + act)) : 0;
  const struct {
    brim_phase phase;
    int64_t ns;
  } parts[] = {{BRIM_PHASE_ENV, env_ns},
               {BRIM_PHASE_ACT, rollout_ns - env_ns},
               {BRIM_PHASE_UPDATE, update_ns}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    brim_span_add(spans, parts[i].phase, BRIM_SPAN_TOOK, parts[i].ns);
    brim_span_add(spans, parts[i].phase, BRIM_SPAN_BUSY, parts[i].ns);
  }
}

// Reports the times of the phases after an iteration, and their times with the environments on the GPU.
static brim_status probe_tell(brim_mappo *w, const brim_spans *spans,
                              const brim_mappo_pieces *pieces) {
  brim_device *device = w->context.device;
  brim_event **marks = w->probe.marks;
  int64_t rollout = 0, update = 0;
  if (!probes(w, spans)) return BRIM_OK;
  BRIM_TRY(brim_event_elapsed(device, marks[BRIM_MAPPO_MARK_ROLLOUT], marks[BRIM_MAPPO_MARK_UPDATE],
                              &rollout));
  BRIM_TRY(brim_event_elapsed(device, marks[BRIM_MAPPO_MARK_UPDATE], marks[BRIM_MAPPO_MARK_END],
                              &update));
  if (w->sizes.on_host) {
    tell_host(spans, pieces, update);
  } else {
    tell_device(spans, pieces, rollout, update);
  }
  return BRIM_OK;
}
