// A rollout: observations of all environments, actions drawn from the actor's outputs, one step, T times.
// On the device nothing waits for the host. Environments on the CPU beside a GPU send observations up and
// get outputs back every step; the rollout goes up once, at its end.
#include <inttypes.h>

#include "workload/mappo/mappo_int.h"

void brim_mappo_begin(const brim_mappo_run *r, brim_phase phase, const char *name) {
  brim_span_begin(r->spans, phase, name);
}

brim_status brim_mappo_end(const brim_mappo_run *r, brim_phase phase, const char *name,
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

brim_status brim_mappo_look(brim_mappo *w, int32_t t) {
  const brim_collect_view view = {
      .first = (int64_t)t * w->sizes.envs,
      .count = w->sizes.envs,
      .actor = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  return w->collect->look(&w->where, &w->shape, w->block, &view);
}

brim_status brim_mappo_draw(brim_mappo *w, int32_t t) {
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  brim_ppo_sample sample = sample_of(w, w->block, t);
  sample.outputs = w->outputs[BRIM_MAPPO_ACTOR];
  sample.mask = (const uint64_t *)(const void *)(w->memory + w->places.mask);
  sample.bad = &report->bad;
  return w->ppo->sample(&w->where, &w->learn, &sample);
}

static brim_status act(brim_mappo *w, int32_t t) {
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return brim_mappo_draw(w, t);
}

static brim_status collect_step(const brim_mappo_run *r, int32_t t) {
  brim_mappo *w = r->w;
  const brim_rollout_where *where = w->context.device->info.host_memory ? &w->host : &w->where;
  brim_mappo_begin(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(brim_mappo_end(r, BRIM_PHASE_ENV, "env", brim_mappo_look(w, t)));
  brim_mappo_begin(r, BRIM_PHASE_ACT, "act");
  BRIM_TRY(brim_mappo_end(r, BRIM_PHASE_ACT, "act", act(w, t)));
  brim_mappo_begin(r, BRIM_PHASE_ENV, "env");
  return brim_mappo_end(r, BRIM_PHASE_ENV, "env", w->collect->step(where, &w->shape, w->block, t));
}

static brim_status collect_steps(const brim_mappo_run *r) {
  brim_mappo *w = r->w;
  const bool host = w->context.device->info.host_memory;
  brim_mappo_begin(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(
      brim_mappo_end(r, BRIM_PHASE_ENV, "env", w->collect->begin(&w->where, &w->shape, w->block)));
  for (int32_t t = 0; t < w->sizes.steps; t++) {
    if (host) BRIM_TRY(check_stop(w));
    BRIM_TRY(collect_step(r, t));
  }
  return BRIM_OK;
}

// A fused rollout is one kernel of a GPU, which has no spans inside: mappo_probe.c divides it.
brim_status brim_mappo_collect(const brim_mappo_run *r) {
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
static brim_phase reported(const brim_mappo_run *r, brim_phase phase) {
  return r->spans && r->spans->exact ? phase : BRIM_PHASE_COMPUTE;
}

static size_t tensor_bytes(const brim_tensor *t) {
  return (size_t)(t->dim[0] * t->dim[1]) * brim_dtype_size(t->dtype);
}

static brim_status enqueue_outputs(void *ctx) {
  return brim_net_enqueue_outputs(brim_mappo_net((brim_mappo *)ctx, BRIM_MAPPO_ACTOR));
}

// Observations up, the actor, outputs down.
static brim_status ask_gpu(const brim_mappo_run *r) {
  brim_mappo *w = r->w;
  brim_device *device = w->context.device;
  const brim_tensor *in = &w->inputs[BRIM_MAPPO_ACTOR][1], *out = &w->outputs[BRIM_MAPPO_ACTOR];
  const brim_phase transfer = reported(r, BRIM_PHASE_H2D), acting = reported(r, BRIM_PHASE_ACT);
  brim_mappo_begin(r, transfer, "transfer");
  BRIM_TRY(brim_mappo_end(
      r, transfer, "transfer",
      brim_device_copy(device, in->data, w->host_input, tensor_bytes(in), BRIM_COPY_H2D)));
  brim_mappo_begin(r, acting, "act");
  BRIM_TRY(brim_mappo_end(r, acting, "act", brim_record_run(w->act, enqueue_outputs, w, false)));
  brim_mappo_begin(r, transfer, "transfer");
  brim_status status =
      brim_device_copy(device, w->host_output, out->data, tensor_bytes(out), BRIM_COPY_D2H);
  if (!status) status = brim_device_sync(device);
  return brim_mappo_end(r, transfer, "transfer", status);
}

static brim_status act_on_host(brim_mappo *w, int32_t t) {
  brim_ppo_sample sample = sample_of(w, w->host_block, t);
  sample.outputs = w->outputs[BRIM_MAPPO_ACTOR];
  sample.outputs.data = w->host_output;
  sample.mask = w->host_mask;
  sample.bad = &w->report->bad;
  return brim_ppo_cpu()->sample(&w->host, &w->learn, &sample);
}

static brim_status step_on_host(const brim_mappo_run *r, int32_t t) {
  brim_mappo *w = r->w;
  const brim_collect_table *cpu = brim_collect_cpu();
  brim_mappo_begin(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(brim_mappo_end(r, BRIM_PHASE_ENV, "env", look_on_host(w, t)));
  BRIM_TRY(ask_gpu(r));
  // drawing the actions is part of choosing them, wherever it happens
  const brim_phase acting = reported(r, BRIM_PHASE_ACT);
  brim_mappo_begin(r, acting, "act");
  BRIM_TRY(brim_mappo_end(r, acting, "act", act_on_host(w, t)));
  brim_mappo_begin(r, BRIM_PHASE_ENV, "env");
  return brim_mappo_end(r, BRIM_PHASE_ENV, "env", cpu->step(&w->host, &w->shape, w->host_block, t));
}

brim_status brim_mappo_collect_on_host(const brim_mappo_run *r) {
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
  brim_mappo_begin(r, transfer, "transfer");
  return brim_mappo_end(
      r, transfer, "transfer",
      brim_device_copy(w->context.device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
}
