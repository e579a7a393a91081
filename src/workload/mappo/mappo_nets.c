// Memory of an iteration: actor and critic as one group, the rollout, and what lies between them. Planned
// and built from the same numbers.
#include <math.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"

//---------------------------------- sizes ----------------------------------

typedef brim_mappo_needs needs;

static bool is_half(brim_precision p) {
  return p == BRIM_PRECISION_BF16 || p == BRIM_PRECISION_FP16;
}

static brim_dtype activations(brim_precision p) {
  return p == BRIM_PRECISION_BF16 ? BRIM_BF16 : p == BRIM_PRECISION_FP16 ? BRIM_F16 : BRIM_F32;
}

// The critic sees every state once, in parts whose input stays small.
static brim_mappo_chunks chunks_of(const brim_mappo *w, const brim_collect_layout *layout,
                                   int32_t envs) {
  const int64_t room = w->context.device->info.host_memory ? 16 << 20 : 512 << 20;
  brim_mappo_chunks c = {.rows = (int64_t)layout->slots * envs};
  int64_t most = room / ((int64_t)layout->critic * 4);
  if (most < 256) most = 256;
  const int64_t parts = (c.rows + most - 1) / most;
  c.each = (c.rows + parts - 1) / parts;
  return c;
}

// Rows of inputs end at a multiple of 8 numbers, behind which `look` writes zeros: matrix products of a GPU
// need rows that are aligned.
static int64_t padded(int64_t numbers) { return (numbers + 7) & ~(int64_t)7; }

static void make_spec(const brim_mappo *w, const brim_mappo_sizes *s, int net, const needs *n,
                      brim_net_spec *out) {
  const bool critic = net == BRIM_MAPPO_CRITIC;
  const int64_t agents = critic ? 1 : w->z.agents;
  memset(out, 0, sizeof *out);
  out->name = critic ? "critic" : "actor";
  out->model = &w->models[net].component;
  out->optimizer = &w->optimizer.component;
  out->external_loss = true;
  out->input_in_place = true;
  out->enqueued_steps = s->updates < BRIM_GROUP_STATES ? s->updates : BRIM_GROUP_STATES;
  out->input_dtype = is_half(s->precision) ? activations(s->precision) : BRIM_F32;
  out->input_rank = 1;
  out->input_dim[0] = padded(critic ? n->layout.critic : w->z.obs);
  out->channels = 1;
  out->scale[0] = 1.0f;
  out->target_dim = critic ? w->rewards : w->z.act;
  out->batch = (int64_t)s->batch * agents;
  out->eval_batch = critic ? n->chunks.each : (int64_t)s->envs * agents;
  out->accumulation = 1;
  out->precision = s->precision;
  out->clip_norm = w->clip_norm;
  out->eager = !brim_config_bool(w->config, "training.compile");
  // seeds of networks are exact as doubles
  out->seed = (w->how.seed + (critic ? 0x9E3779B97F4A7u : 0)) & (((uint64_t)1 << 53) - 1);
}

static size_t place(size_t *end, size_t bytes) {
  const size_t at = *end;
  *end += (bytes + 255) & ~(size_t)255;
  return at;
}

static void make_places(const brim_mappo *w, const brim_mappo_sizes *s, size_t scratch, needs *n) {
  brim_mappo_places *p = &n->places;
  const size_t steps = (size_t)s->envs * (size_t)s->steps, rewards = (size_t)w->rewards;
  const size_t looked = (size_t)(s->envs > s->batch ? s->envs : s->batch);
  size_t end = 0;
  p->mask = place(&end, looked * (size_t)w->z.agents * sizeof(uint64_t));
  p->values = place(&end, (size_t)n->chunks.rows * rewards * sizeof(float));
  p->adv = place(&end, steps * rewards * sizeof(float));
  p->ret = place(&end, steps * rewards * sizeof(float));
  p->old = place(&end, steps * rewards * sizeof(float));
  p->rows = place(&end, (size_t)s->batch * sizeof(int32_t));
  p->scratch = place(&end, scratch);
  p->backup =
      place(&end, n->layout.saved[0].bytes + n->layout.saved[1].bytes + sizeof(brim_ppo_norm));
  p->report = place(&end, sizeof(brim_mappo_report));
  p->bytes = end;
}

static brim_status make_needs(const brim_mappo *w, const brim_mappo_sizes *s, needs *n) {
  size_t scratch = 0;
  memset(n, 0, sizeof *n);
  n->shape = w->shape;
  n->shape.num_envs = s->envs;
  n->shape.steps = s->steps;
  BRIM_TRY(w->collect->layout(&n->shape, &n->layout));
  BRIM_TRY(w->collect->layout(&w->eval, &n->eval));
  n->chunks = chunks_of(w, &n->layout, s->envs);
  n->learn = (brim_ppo_shape){.steps = s->steps,
                              .envs = s->envs,
                              .agents = w->z.agents,
                              .act = w->z.act,
                              .rewards = w->rewards,
                              .finals = n->layout.finals,
                              .batch = s->batch};
  BRIM_TRY(w->ppo->scratch(&n->learn, &scratch));
  make_places(w, s, scratch, n);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) make_spec(w, s, i, n, &n->spec[i]);
  BRIM_TRY(brim_mappo_fused_choose(w, s, n));
  if (!s->on_host) return BRIM_OK;
  const size_t rows = (size_t)s->envs * (size_t)w->z.agents;
  const size_t each = brim_dtype_size(activations(s->precision));
  n->host_input = rows * (size_t)n->spec[0].input_dim[0] * brim_dtype_size(n->spec[0].input_dtype);
  n->host_output = rows * (size_t)w->z.act * each;
  n->host_mask = rows * sizeof(uint64_t);
  return BRIM_OK;
}

//---------------------------------- plan ----------------------------------

static void add_row(brim_plan *plan, const char *name, brim_place where, uint64_t bytes) {
  if (bytes == 0 || plan->row_count == BRIM_PLAN_MAX_ROWS) return;
  plan->rows[plan->row_count++] = (brim_plan_row){name, where, bytes};
  plan->bytes[where] += bytes;
}

static size_t bytes_of_row(const brim_plan *plan, const char *name) {
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, name) == 0) return (size_t)plan->rows[i].bytes;
  }
  return 0;
}

static size_t report_bytes(void) { return sizeof(brim_mappo_report) + sizeof(brim_collect_tally); }

// Forward is a third of forward and backward. `flops` are those of one update of both networks.
static double iteration_flops(const brim_mappo *w, const brim_mappo_sizes *s, double flops) {
  const double steps = (double)s->envs * s->steps;
  return flops * s->updates + flops / 3 * s->minibatches +
         steps * w->shape.row->flops(w->shape.env.bytes);
}

static brim_status plan(const brim_mappo *w, const brim_setting *setting, brim_plan *out) {
  brim_mappo_sizes s;
  needs n;
  memset(out, 0, sizeof *out);
  BRIM_TRY(brim_mappo_apply(w, setting, &s));
  BRIM_TRY(make_needs(w, &s, &n));
  BRIM_TRY(brim_work_check_precision(w->context.device, &n.spec[0]));
  BRIM_TRY(brim_group_plan(w->context.device, n.spec, BRIM_MAPPO_NETS, out));
  brim_mappo_fused_place(&n.fusing, bytes_of_row(out, BRIM_PLAN_ACTIVATIONS));
  add_row(out, "rollouts", BRIM_PLACE_DEVICE, n.layout.bytes);
  add_row(out, "returns", BRIM_PLACE_DEVICE, n.places.bytes);
  add_row(out, BRIM_N_("fused kernels"), BRIM_PLACE_DEVICE, n.fusing.bytes);
  add_row(out, "evaluation", BRIM_PLACE_DEVICE, n.eval.bytes);
  add_row(out, "returns", BRIM_PLACE_HOST, report_bytes());
  if (s.on_host) {
    add_row(out, "rollouts", BRIM_PLACE_HOST,
            n.layout.bytes + n.host_input + n.host_output + n.host_mask);
  }
  out->flops_per_step = iteration_flops(w, &s, out->flops_per_step);
  out->bytes_per_step = (double)NAN;
  out->samples_per_step = (double)s.envs * s.steps * w->z.agents;
  return BRIM_OK;
}

// Workspaces depend on the number of threads; what is configured now keeps its own.
brim_status brim_mappo_plan(void *work, const brim_setting *setting, brim_plan *out) {
  const brim_mappo *w = (const brim_mappo *)work;
  brim_device *device = w->context.device;
  const int before = device->info.threads;
  BRIM_TRY(brim_device_set_threads(device, (int)setting->value[BRIM_MAPPO_THREADS]));
  const brim_status status = plan(w, setting, out);
  return brim_device_set_threads(device, before) ? BRIM_EDEVICE : status;
}

//---------------------------------- building ----------------------------------

brim_net *brim_mappo_net(const brim_mappo *w, int index) {
  return brim_group_net(w->group, (int32_t)index);
}

static void drop_probe(brim_mappo *w) {
  brim_mappo_probe *p = &w->probe;
  for (int i = 0; i < BRIM_MAPPO_PIECES; i++) brim_record_destroy(p->records[i]);
  for (int i = 0; i < BRIM_MAPPO_MARKS; i++) brim_event_destroy(w->context.device, p->marks[i]);
  *p = (brim_mappo_probe){0};
}

void brim_mappo_drop(brim_mappo *w) {
  brim_device *device = w->context.device;
  for (size_t i = 0; i < w->record_count; i++) brim_record_destroy(w->records[i]);
  brim_free(w->records);
  drop_probe(w);
  brim_mappo_fused_drop(w);
  brim_record_destroy(w->whole);
  brim_record_destroy(w->rollout);
  brim_record_destroy(w->act);
  brim_record_destroy(w->eval_record);
  brim_group_destroy(w->group);
  brim_free(w->states);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->block);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->eval_block);
  brim_device_free(device, BRIM_BUFFER_DEVICE, w->memory);
  brim_device_free(device, BRIM_BUFFER_HOST, w->report);
  brim_device_free(device, BRIM_BUFFER_HOST, w->tally);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_block);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_input);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_output);
  brim_device_free(device, BRIM_BUFFER_HOST, w->host_mask);
  if (w->host.pool != w->where.pool) brim_pool_destroy(w->host.pool);
  memset(&w->host, 0, sizeof w->host);
  w->records = NULL;
  w->record_count = 0;
  w->whole = w->rollout = w->act = w->eval_record = NULL;
  w->group = NULL;
  w->states = NULL;
  w->block = w->eval_block = w->memory = w->host_block = NULL;
  w->report = NULL;
  w->tally = NULL;
  w->host_input = w->host_output = NULL;
  w->host_mask = NULL;
}

static brim_status make_buffer(brim_mappo *w, brim_buffer_kind kind, size_t bytes, void **out) {
  *out = NULL;
  return bytes > 0 ? brim_device_alloc(w->context.device, kind, bytes, out) : BRIM_OK;
}

static brim_status make_buffers(brim_mappo *w, const needs *n) {
  void *at[5];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->layout.bytes, &at[0]));
  w->block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->eval.bytes, &at[0]));
  w->eval_block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_DEVICE, n->places.bytes, &at[0]));
  w->memory = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, sizeof *w->report, &at[0]));
  w->report = (brim_mappo_report *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, sizeof *w->tally, &at[0]));
  w->tally = (brim_collect_tally *)at[0];
  memset(w->report, 0, sizeof *w->report);
  if (!w->sizes.on_host) return BRIM_OK;
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->layout.bytes, &at[0]));
  w->host_block = (char *)at[0];
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_input, &w->host_input));
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_output, &w->host_output));
  BRIM_TRY(make_buffer(w, BRIM_BUFFER_HOST, n->host_mask, &at[0]));
  w->host_mask = (uint64_t *)at[0];
  return BRIM_OK;
}

// Threads that step environments: the config's workers, and on the CPU the device's own where they are as
// many.
static brim_status make_pool(brim_mappo *w) {
  if (w->where.pool) BRIM_TRY(brim_work_env_threads(w->context.device, &w->where));
  w->host = w->where;
  w->host.stream = NULL;
  if (w->where.pool && w->sizes.workers == w->where.threads) return BRIM_OK;
  w->host.threads = w->sizes.workers;
  w->host.pool = NULL;
  return brim_pool_create(w->sizes.workers, &w->host.pool);
}

// As many as it takes for BRIM_GROUP_STATES optimiser steps in each.
static brim_status make_records(brim_mappo *w) {
  brim_device *device = w->context.device;
  const size_t parts = ((size_t)w->sizes.updates + BRIM_GROUP_STATES - 1) / BRIM_GROUP_STATES;
  w->records = (brim_record **)brim_calloc(parts, sizeof *w->records);
  w->states = (brim_group_state *)brim_calloc((size_t)w->sizes.updates * BRIM_MAPPO_NETS,
                                              sizeof *w->states);
  if (!w->records || !w->states) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the states of %d updates", w->sizes.updates);
  }
  for (size_t i = 0; i < parts; i++) {
    BRIM_TRY(brim_record_create(device, w->group, &w->records[i]));
    w->record_count = i + 1;
  }
  BRIM_TRY(brim_record_create(device, w->group, &w->whole));
  BRIM_TRY(brim_record_create(device, w->group, &w->rollout));
  BRIM_TRY(brim_record_create(device, w->group, &w->act));
  return brim_record_create(device, w->group, &w->eval_record);
}

static brim_status find_tensors(brim_mappo *w) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net *net = brim_mappo_net(w, i);
    BRIM_TRY(brim_net_external_loss(net, &w->external[i]));
    BRIM_TRY(brim_net_input(net, false, &w->inputs[i][0]));
    BRIM_TRY(brim_net_input(net, true, &w->inputs[i][1]));
    BRIM_TRY(brim_net_output_tensor(net, &w->outputs[i]));
  }
  return BRIM_OK;
}

brim_status brim_mappo_build(brim_mappo *w) {
  brim_device *device = w->context.device;
  needs n;
  BRIM_TRY(brim_device_set_threads(device, w->sizes.threads));
  BRIM_TRY(make_needs(w, &w->sizes, &n));
  w->shape = n.shape;
  w->layout = n.layout;
  w->eval_layout = n.eval;
  w->places = n.places;
  w->chunks = n.chunks;
  w->learn = n.learn;
  w->fusing = n.fusing;
  BRIM_TRY(make_pool(w));
  BRIM_TRY(brim_group_create(device, n.spec, BRIM_MAPPO_NETS, &w->group));
  BRIM_TRY(make_buffers(w, &n));
  BRIM_TRY(make_records(w));
  BRIM_TRY(find_tensors(w));
  BRIM_TRY(brim_mappo_fused_build(w));
  BRIM_TRY(brim_device_fill(device, w->memory, 0, w->places.bytes));
  if (w->sizes.on_host) {
    BRIM_TRY(brim_collect_cpu()->reset(&w->host, &w->shape, w->host_block));
    BRIM_TRY(brim_device_copy(device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
  } else {
    BRIM_TRY(w->collect->reset(&w->where, &w->shape, w->block));
  }
  return brim_device_sync(device);
}
