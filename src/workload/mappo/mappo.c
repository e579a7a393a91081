// Multi-agent PPO: one step is one iteration, which makes a rollout of all environments and then updates actor
// and critic on it. An epoch is mappo.eval_interval iterations, a run mappo.iterations. Keys, findings,
// troubles and views are in mappo_rows.c.

#include "workload/mappo/mappo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"
#include "workload/workload_rows.h"

// If ops are measured one by one, waits for the device: otherwise the time of work that is no op would be added
// to the next op.
static brim_status wait_if_measured(const brim_mappo *w) {
  const brim_device *device = w->context.device;
  const bool apart = device->watch && device->watch->op_by_op && !device->recording;
  return apart ? brim_device_sync(w->context.device) : BRIM_OK;
}

//---------------------------------------- fused kernels ----------------------------------------
// Fused kernels of an iteration (rl/rl_fused.h): decides which parts of a setting they compute, places their
// memory, and makes the calls that replace the general path.

enum { WEIGHTS = 2 * BRIM_FUSED_LAYERS };  // parameters of a network: weight and bias of each layer

//---------------------------------- what can be fused ----------------------------------

static bool read_act(const brim_component *model, int32_t *out) {
  const char *act = brim_component_string(model, "activation", "relu");
  *out = strcmp(act, "tanh") == 0 ? BRIM_ACT_TANH : BRIM_ACT_RELU;
  return *out == BRIM_ACT_TANH || strcmp(act, "relu") == 0;
}

// Describes a network for the kernels; false if they cannot compute its layers.
static bool read_net(const brim_component *model, const brim_net_spec *spec, brim_fused_net *out,
                     brim_mappo_reason *why) {
  const long long depth = (long long)brim_component_int(model, "depth", 4);
  *out = (brim_fused_net){.dtype = (int32_t)spec->input_dtype,
                          .inputs = (int32_t)spec->input_dim[0],
                          .hidden = (int32_t)brim_component_int(model, "hidden", 512),
                          .outputs = (int32_t)spec->target_dim};
  if (depth != BRIM_FUSED_LAYERS - 1) {
    snprintf(why->text, sizeof why->text, brim_tr("fused kernels need depth=%d, and depth is %lld"),
             BRIM_FUSED_LAYERS - 1, depth);
  } else if (strcmp(brim_component_string(model, "norm", "none"), "none") != 0) {
    snprintf(why->text, sizeof why->text, "%s", brim_tr("fused kernels need norm=none"));
  } else if (!read_act(model, &out->act)) {
    snprintf(why->text, sizeof why->text,
             brim_tr("fused kernels need activation=tanh or relu, and activation is %s"),
             brim_component_string(model, "activation", "relu"));
  }
  return !why->text[0];
}

// True if device and precision suit the kernels; if not, `why` says why.
static bool takes_setting(const brim_mappo *w, const brim_mappo_sizes *s, brim_mappo_reason *why) {
  const brim_device *device = w->context.device;
  const bool precise = s->precision == BRIM_PRECISION_FP32 || s->precision == BRIM_PRECISION_BF16;
  if (!w->fused) {
    snprintf(why->text, sizeof why->text, brim_tr("backend %s has no fused kernels for mappo"),
             device->backend->name);
  } else if (device->exchange) {
    snprintf(why->text, sizeof why->text, "%s",
             brim_tr("fused kernels do not work with several ranks"));
  } else if (!precise) {
    snprintf(why->text, sizeof why->text,
             brim_tr("fused kernels need precision fp32 or bf16, and precision is %s"),
             brim_precision_name(s->precision));
  } else if (!brim_config_bool(w->config, "training.compile")) {
    snprintf(why->text, sizeof why->text, "%s",
             brim_tr("training.compile is false, so everything runs op by op"));
  } else if (w->z.act > BRIM_FUSED_MAX_ACT) {
    snprintf(why->text, sizeof why->text,
             brim_tr("fused kernels take at most %d actions, and the environment has %d"),
             BRIM_FUSED_MAX_ACT, w->z.act);
  }
  return !why->text[0];
}

static bool takes_nets(const brim_mappo *w, brim_precision precision, brim_mappo_needs *n,
                       brim_mappo_reason *why) {
  brim_mappo_fusing *f = &n->fusing;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_fused_net *net = &f->net[i];
    if (!read_net(&w->models[i].component, &n->spec[i], &f->net[i], why)) return false;
    f->way[i] = w->fused->way(net);
    if (f->way[i] != BRIM_FUSED_NOT) continue;
    snprintf(why->text, sizeof why->text,
             brim_tr("fused kernels do not take the network '%s' of %d inputs (padded), hidden=%d "
                     "and %d outputs in %s on this device"),
             n->spec[i].name, net->inputs, net->hidden, net->outputs,
             brim_precision_name(precision));
    return false;
  }
  return true;
}

//---------------------------------- memory ----------------------------------

// Rows of a network in a minibatch.
static int64_t rows_of(const brim_ppo_shape *learn, int net) {
  return net == BRIM_MAPPO_ACTOR ? learn->batch * learn->agents : learn->batch;
}

static size_t seen_bytes(const brim_mappo_needs *n, int net) {
  const brim_collect_layout *at = &n->layout;
  const size_t envs = (size_t)at->envs;
  const size_t rows = net == BRIM_MAPPO_ACTOR ? (size_t)at->steps * envs * (size_t)at->agents
                                              : (size_t)at->slots * envs;
  const brim_fused_net *of = &n->fusing.net[net];
  return rows * (size_t)of->inputs * brim_dtype_size((brim_dtype)of->dtype);
}

// Refuses a fused rollout whose kept inputs take more than a quarter of the device's memory, or of the config's
// limit. Memory in use does not count: the choice must not depend on other programs.
static void limit_seen(const brim_mappo *w, size_t bytes, brim_mappo_reason *why) {
  const uint64_t limit = (uint64_t)brim_config_int(w->config, "gpu.memory_limit");
  if (bytes > w->context.device->info.total_bytes / 4) {
    snprintf(why->text, sizeof why->text, "%s",
             brim_tr("observations would take more than a quarter of the GPU's memory"));
  } else if (limit > 0 && bytes > limit / 4) {
    snprintf(why->text, sizeof why->text, "%s",
             brim_tr("observations would take more than a quarter of gpu.memory_limit"));
  }
}

static bool takes_rollout(const brim_mappo *w, const brim_mappo_sizes *s, brim_mappo_needs *n,
                          brim_mappo_reason *why) {
  brim_mappo_fusing *f = &n->fusing;
  size_t bytes = 0;
  int large = 0;
  while (large < BRIM_MAPPO_NETS && f->way[large] == BRIM_FUSED_WHOLE) large++;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    bytes += f->spaces[BRIM_MAPPO_SEEN + i].bytes = seen_bytes(n, i);
  }
  bytes += f->spaces[BRIM_MAPPO_ALLOWED].bytes =
      (size_t)s->envs * (size_t)s->steps * (size_t)w->z.agents;
  if (s->on_host) {
    snprintf(why->text, sizeof why->text, "%s", brim_tr("environments run on the CPU"));
  } else if (!w->fused_rollout) {
    snprintf(why->text, sizeof why->text, brim_tr("environment %s has no fused kernel"),
             w->shape.row->name);
  } else if (large < BRIM_MAPPO_NETS) {
    snprintf(why->text, sizeof why->text, brim_tr("the network '%s' is too large"),
             n->spec[large].name);
  } else if (!w->fused_rollout->can(&n->shape, &f->net[BRIM_MAPPO_ACTOR])) {
    snprintf(
        why->text, sizeof why->text,
        brim_tr("the rollout kernel does not take this environment or actor in %s on this device"),
        brim_precision_name(s->precision));
  } else if (w->general_rollout) {
    snprintf(why->text, sizeof why->text, "%s", brim_tr("memory was short"));
  } else {
    limit_seen(w, bytes, why);
  }
  const bool takes = !why->text[0];
  for (int i = BRIM_MAPPO_SEEN; !takes && i <= BRIM_MAPPO_ALLOWED; i++) f->spaces[i].bytes = 0;
  return takes;
}

static brim_tensor matrix(const void *data, int32_t dtype, int64_t rows, int64_t columns) {
  const int64_t dim[] = {rows, columns};
  // calls only read their inputs; the tensor type has no const form
  return brim_tensor_make((void *)(uintptr_t)data, (brim_dtype)dtype, columns > 0 ? 2 : 1, dim);
}

static void *space(const brim_mappo_fusing *f, int index) {
  const brim_mappo_space *at = &f->spaces[index];
  char *block = at->shared ? f->shared : f->memory;
  return block && at->bytes > 0 ? block + at->offset : NULL;
}

// Makes the products of a network. `input` is NULL until the setting is built.
static void make_products(brim_mappo_fusing *f, int net, int64_t rows, const void *input) {
  const brim_fused_net *of = &f->net[net];
  const int32_t type = of->dtype, hidden = of->hidden, inputs = of->inputs;
  const brim_tensor x = matrix(input, type, rows, inputs);
  const brim_tensor z = matrix(space(f, BRIM_MAPPO_Z + net), type, rows, hidden);
  brim_op_call *call = f->products[net];
  call[BRIM_MAPPO_FORWARD] = (brim_op_call){
      .op = BRIM_OP_LINEAR,
      .in_count = 3,
      .out_count = 1,
      .in = {x, matrix(of->weight[0], type, hidden, inputs), matrix(of->bias[0], type, hidden, 0)},
      .out = {z}};
  call[BRIM_MAPPO_SECOND] =
      (brim_op_call){.op = BRIM_OP_LINEAR_BWD_WEIGHT,
                     .in_count = 2,
                     .out_count = 1,
                     .in = {matrix(space(f, BRIM_MAPPO_G + net), type, rows, hidden),
                            matrix(space(f, BRIM_MAPPO_H + net), type, rows, hidden)},
                     .out = {matrix(of->weight_grad[1], BRIM_F32, hidden, hidden)}};
  call[BRIM_MAPPO_FIRST] =
      (brim_op_call){.op = BRIM_OP_LINEAR_BWD_WEIGHT,
                     .in_count = 2,
                     .out_count = 1,
                     .in = {z, x},
                     .out = {matrix(of->weight_grad[0], BRIM_F32, hidden, inputs)}};
}

static void release_products(brim_device *device, brim_mappo_fusing *f) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    while (f->prepared[i] > 0) brim_op_release(device, &f->products[i][--f->prepared[i]]);
  }
}

static brim_status prepare_products(brim_device *device, brim_mappo_fusing *f, int net,
                                    bool planning) {
  size_t *room = &f->spaces[BRIM_MAPPO_WORKSPACE].bytes;
  for (int i = 0; i < BRIM_MAPPO_PRODUCTS; i++) {
    brim_op_call *call = &f->products[net][i];
    call->planning = planning;
    BRIM_TRY(brim_op_prepare(device, call));
    f->prepared[net]++;
    if (planning && call->workspace_bytes > *room) *room = call->workspace_bytes;
    if (!planning) call->workspace = space(f, BRIM_MAPPO_WORKSPACE);
  }
  return BRIM_OK;
}

static brim_status size_update(const brim_mappo *w, brim_mappo_needs *n) {
  brim_mappo_fusing *f = &n->fusing;
  BRIM_TRY(w->fused->scratch(&n->learn, &f->net[BRIM_MAPPO_ACTOR], &f->net[BRIM_MAPPO_CRITIC],
                             &f->spaces[BRIM_MAPPO_SCRATCH].bytes));
  brim_status status = BRIM_OK;
  for (int i = 0; !status && i < BRIM_MAPPO_NETS; i++) {
    if (f->way[i] != BRIM_FUSED_REST) continue;
    const int64_t rows = rows_of(&n->learn, i);
    const size_t bytes =
        (size_t)rows * (size_t)f->net[i].hidden * brim_dtype_size((brim_dtype)f->net[i].dtype);
    f->spaces[BRIM_MAPPO_Z + i].bytes = bytes;
    f->spaces[BRIM_MAPPO_H + i].bytes = bytes;
    f->spaces[BRIM_MAPPO_G + i].bytes = bytes;
    make_products(f, i, rows, NULL);
    status = prepare_products(w->context.device, f, i, true);
  }
  release_products(w->context.device, f);
  return status;
}

// Makes the workload's device the current one of this thread: threads begin with the first device of the
// process, and the tables of fused kernels ask the current device. Any call of the backend selects its device.
static brim_status enter_device(const brim_mappo *w) {
  uint64_t free_bytes, total_bytes;
  return brim_device_memory(w->context.device, &free_bytes, &total_bytes);
}

// Decides which parts of a setting are fused and the memory for them; writes n->fusing and reads the rest of n.
// BRIM_EUNSUPPORTED if the config asks for more than is possible.
static brim_status mappo_fused_choose(const brim_mappo *w, const brim_mappo_sizes *s,
                                      brim_mappo_needs *n) {
  const char *wish = brim_config_string(w->config, "mappo.fused");
  brim_mappo_fusing *f = &n->fusing;
  brim_mappo_reason *why = &f->why;
  memset(f, 0, sizeof *f);
  if (w->context.evaluates || (wish && strcmp(wish, "off") == 0)) return BRIM_OK;
  const bool asked = wish && strcmp(wish, "on") == 0;
  if (w->fused) BRIM_TRY(enter_device(w));
  f->update = takes_setting(w, s, why) && takes_nets(w, s->precision, n, why);
  // in fp32 the library's products are faster (docs/performance/mappo.md)
  if (!asked && f->update && s->precision != BRIM_PRECISION_BF16) {
    memset(f, 0, sizeof *f);
    snprintf(why->text, sizeof why->text,
             brim_tr("precision is %s, and auto uses them in bf16 alone"),
             brim_precision_name(s->precision));
  }
  if (!f->update) {
    if (!asked) return BRIM_OK;
    return brim_fail(BRIM_EUNSUPPORTED, "mappo.fused is on, but %s; use auto or off", why->text);
  }
  f->rollout = takes_rollout(w, s, n, why);
  return size_update(w, n);
}

// Places all spaces. Spaces that only an update needs go into the first `shared` bytes of the group's memory,
// as many as fit: it is free then, because in a fused update the group's networks run neither forward nor
// backward, and outputs of evaluations have been read. All others go into f->memory.
static void mappo_fused_place(brim_mappo_fusing *f, size_t shared) {
  const size_t align = BRIM_WORKSPACE_ALIGN;
  size_t used = 0;
  f->bytes = 0;
  for (int i = 0; i < BRIM_MAPPO_SPACES; i++) {
    brim_mappo_space *at = &f->spaces[i];
    const size_t bytes = (at->bytes + align - 1) / align * align;
    at->shared = i > BRIM_MAPPO_ALLOWED && used + bytes <= shared;
    size_t *end = at->shared ? &used : &f->bytes;
    at->offset = *end;
    *end += bytes;
  }
}

//---------------------------------- building ----------------------------------

static bool has_shape(const brim_tensor *t, brim_dtype dtype, int64_t rows, int64_t columns) {
  const bool same = t->dtype == dtype && t->dim[0] == rows;
  return same && (columns > 0 ? t->rank == 2 && t->dim[1] == columns : t->rank == 1);
}

static brim_status find_weights(const brim_mappo *w, int index, brim_fused_net *net) {
  brim_net_weight found[WEIGHTS];
  size_t count = 0;
  BRIM_TRY(brim_net_weights(brim_group_net(w->group, index), found, WEIGHTS, &count));
  const int64_t width[] = {net->inputs, net->hidden, net->hidden, net->outputs};
  bool fits = count == WEIGHTS;
  for (int i = 0; fits && i < BRIM_FUSED_LAYERS; i++) {
    const brim_net_weight *weight = &found[2 * i], *bias = &found[2 * i + 1];
    fits = has_shape(&weight->value, (brim_dtype)net->dtype, width[i + 1], width[i]) &&
           has_shape(&bias->value, (brim_dtype)net->dtype, width[i + 1], 0) &&
           has_shape(&weight->gradient, BRIM_F32, width[i + 1], width[i]);
    net->weight[i] = weight->value.data;
    net->bias[i] = bias->value.data;
    net->weight_grad[i] = (float *)weight->gradient.data;
    net->bias_grad[i] = (float *)bias->gradient.data;
  }
  if (fits) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "the layers of a network are not those that fused kernels take");
}

// Allocates memory and prepares calls for the choice in w->fusing.
static brim_status mappo_fused_build(brim_mappo *w) {
  brim_device *device = w->context.device;
  brim_mappo_fusing *f = &w->fusing;
  void *memory = NULL;
  size_t shared = 0;
  if (!f->update) return BRIM_OK;
  f->shared = (char *)brim_group_memory(w->group, &shared);
  mappo_fused_place(f, shared);
  if (f->bytes > 0) {
    BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, f->bytes, &memory));
    f->memory = (char *)memory;
    // the kernels also read rows of final states that no episode reached; their values are not used
    BRIM_TRY(brim_device_fill(device, f->memory, 0, f->bytes));
  }
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    BRIM_TRY(find_weights(w, i, &f->net[i]));
    if (f->way[i] != BRIM_FUSED_REST) continue;
    make_products(f, i, rows_of(&w->learn, i), w->inputs[i][0].data);
    BRIM_TRY(prepare_products(device, f, i, false));
  }
  return BRIM_OK;
}

static void mappo_fused_drop(brim_mappo *w) {
  release_products(w->context.device, &w->fusing);
  brim_device_free(w->context.device, BRIM_BUFFER_DEVICE, w->fusing.memory);
  memset(&w->fusing, 0, sizeof w->fusing);
}

const char *brim_mappo_fused_text(const brim_mappo *w) {
  return w->fusing.rollout  ? BRIM_N_("rollout and update")
         : w->fusing.update ? BRIM_N_("update")
                            : BRIM_N_("no");
}

// Writes the line for the start of a run; false = there is nothing to report.
static bool mappo_fused_line(const brim_mappo *w, brim_work_line *out) {
  const brim_mappo_fusing *f = &w->fusing;
  // a device without such kernels has nothing to explain
  if (!f->update && (!w->fused || !f->why.text[0])) return false;
  out->label = BRIM_N_("fused");
  if (f->rollout) {
    snprintf(out->text, sizeof out->text, "%s", brim_tr("rollout and update"));
  } else {
    const char *form = f->update ? brim_tr("update; not the rollout: %s") : brim_tr("no: %s");
    snprintf(out->text, sizeof out->text, form, f->why.text);
  }
  return true;
}

//---------------------------------- work ----------------------------------

// Enqueues a rollout without its tally.
static brim_status mappo_fused_collect(brim_mappo *w) {
  const brim_mappo_fusing *f = &w->fusing;
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  const brim_fused_rollout work = {
      .actor = f->net[BRIM_MAPPO_ACTOR],
      .seed = w->how.seed,
      .actor_seen = space(f, BRIM_MAPPO_SEEN + BRIM_MAPPO_ACTOR),
      .critic_seen = space(f, BRIM_MAPPO_SEEN + BRIM_MAPPO_CRITIC),
      .critic_inputs = f->net[BRIM_MAPPO_CRITIC].inputs,
      .allowed = (uint8_t *)space(f, BRIM_MAPPO_ALLOWED),
      .bad = &report->bad,
  };
  return w->fused_rollout->run(&w->where, &w->shape, w->block, &work);
}

// Enqueues the critic's values of the rollout's states.
static brim_status mappo_fused_values(brim_mappo *w) {
  const brim_mappo_fusing *f = &w->fusing;
  BRIM_TRY(w->fused->values(&w->where, &f->net[BRIM_MAPPO_CRITIC],
                            space(f, BRIM_MAPPO_SEEN + BRIM_MAPPO_CRITIC), w->chunks.rows,
                            w->memory + w->places.values));
  return wait_if_measured(w);
}

static brim_fused_part part_of(const brim_mappo *w, int net) {
  const brim_mappo_fusing *f = &w->fusing;
  return (brim_fused_part){
      .net = f->net[net],
      .input = f->rollout ? space(f, BRIM_MAPPO_SEEN + net) : w->inputs[net][0].data,
      .listed = f->rollout,
      .z = space(f, BRIM_MAPPO_Z + net),
      .h = space(f, BRIM_MAPPO_H + net),
      .g = space(f, BRIM_MAPPO_G + net),
  };
}

// Runs a product. On a measured device, first names its layer, as the engine does for its own ops.
static brim_status run_product(const brim_mappo *w, int net, int product) {
  brim_device *device = w->context.device;
  brim_op_watch *watch = device->watch;
  if (watch) {
    watch->net = brim_group_net(w->group, net);
    watch->layer = product == BRIM_MAPPO_SECOND ? "layers.1" : "layers.0";
    watch->phase = product == BRIM_MAPPO_FORWARD ? BRIM_PHASE_FORWARD : BRIM_PHASE_BACKWARD;
  }
  return brim_op_run(device, &w->fusing.products[net][product]);
}

// Enqueues the gradients of a minibatch.
static brim_status mappo_fused_gradients(const brim_mappo *w, const brim_ppo_losses *losses) {
  const brim_mappo_fusing *f = &w->fusing;
  brim_fused_update update = {
      .losses = *losses,
      .actor = part_of(w, BRIM_MAPPO_ACTOR),
      .critic = part_of(w, BRIM_MAPPO_CRITIC),
      .scratch = space(f, BRIM_MAPPO_SCRATCH),
  };
  if (f->rollout) {
    update.losses.mask = NULL;
    update.allowed = (const uint8_t *)space(f, BRIM_MAPPO_ALLOWED);
  }
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    if (f->way[i] == BRIM_FUSED_REST) BRIM_TRY(run_product(w, i, BRIM_MAPPO_FORWARD));
  }
  BRIM_TRY(w->fused->update(&w->where, &w->learn, &update));
  BRIM_TRY(wait_if_measured(w));
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    if (f->way[i] != BRIM_FUSED_REST) continue;
    BRIM_TRY(run_product(w, i, BRIM_MAPPO_SECOND));
    BRIM_TRY(run_product(w, i, BRIM_MAPPO_FIRST));
  }
  return BRIM_OK;
}

//------------------------------------------- metrics -------------------------------------------
// Metrics: returns and figures of episodes, also for random actions and for the environment's rules, the losses,
// and the rates of an iteration.

//---------------------------------- values ----------------------------------

static double ratio(double sum, double count) { return count > 0 ? sum / count : (double)NAN; }

static double spread(const brim_collect_tally *t) {
  const double n = (double)t->episodes;
  if (t->episodes < 2) return (double)NAN;
  return sqrt(fmax(t->reward_sq - t->reward * (t->reward / n), 0) / (n - 1));
}

// Terminated episodes, plus diverged ones in environments where termination is bad.
static double ended_episodes(const brim_mappo_rows *rows, const brim_collect_tally *t) {
  const bool bad = rows->env->ended.better == BRIM_BETTER_LOWER;
  return (double)(t->terminated + (bad ? t->diverged : 0));
}

// Values of an evaluation.
static void mappo_values(const brim_mappo_rows *rows, const brim_collect_tally *t,
                         double values[BRIM_METRIC_MAX]) {
  const double n = (double)t->episodes;
  const bool any = t->episodes > 0;
  values[BRIM_MAPPO_RETURN] = ratio(t->reward, n);
  values[BRIM_MAPPO_SPREAD] = spread(t);
  values[BRIM_MAPPO_ERROR] = spread(t) / sqrt(n);  // NaN for fewer than two episodes
  values[BRIM_MAPPO_ENDED] = any ? ended_episodes(rows, t) : (double)NAN;
  values[BRIM_MAPPO_ENDED_RATE] = ratio(ended_episodes(rows, t), n);
  values[BRIM_MAPPO_DIVERGED] = any ? (double)t->diverged : (double)NAN;
  values[BRIM_MAPPO_LENGTH] = ratio(t->length, n);
  values[BRIM_MAPPO_EPISODES] = any ? n : (double)NAN;
  for (size_t f = 0; f < rows->figures; f++) {
    values[BRIM_MAPPO_ROWS + f] = ratio(t->figures[f][0], t->figures[f][1]);
  }
}

// Values of the environment's rules.
static void mappo_rule_values(const brim_mappo *w, double values[BRIM_METRIC_MAX]) {
  const brim_mappo_rows *r = &w->rows;
  for (size_t rule = 0; rule < r->rules; rule++) {
    double own[BRIM_METRIC_MAX];
    brim_metric_unknown(own);
    mappo_values(r, &w->baseline[1 + rule], own);
    values[r->rule_at[rule]] = own[BRIM_MAPPO_RETURN];
    for (size_t f = 0; f < r->figures; f++) {
      values[r->rule_at[rule] + 1 + f] = own[BRIM_MAPPO_ROWS + f];
    }
  }
}

static void mappo_pack(const brim_collect_tally *t, double sums[BRIM_MAPPO_SUMS]) {
  sums[BRIM_MAPPO_SUM_EPISODES] = (double)t->episodes;
  sums[BRIM_MAPPO_SUM_TERMINATED] = (double)t->terminated;
  sums[BRIM_MAPPO_SUM_TRUNCATED] = (double)t->truncated;
  sums[BRIM_MAPPO_SUM_DIVERGED] = (double)t->diverged;
  sums[BRIM_MAPPO_SUM_REWARD] = t->reward;
  sums[BRIM_MAPPO_SUM_REWARD_SQ] = t->reward_sq;
  sums[BRIM_MAPPO_SUM_LENGTH] = t->length;
  memcpy(sums + BRIM_MAPPO_SUM_FIGURES, t->figures, sizeof t->figures);
}

static brim_collect_tally unpack(const double *sums) {
  brim_collect_tally t = {.episodes = (int64_t)sums[BRIM_MAPPO_SUM_EPISODES],
                          .terminated = (int64_t)sums[BRIM_MAPPO_SUM_TERMINATED],
                          .truncated = (int64_t)sums[BRIM_MAPPO_SUM_TRUNCATED],
                          .diverged = (int64_t)sums[BRIM_MAPPO_SUM_DIVERGED],
                          .reward = sums[BRIM_MAPPO_SUM_REWARD],
                          .reward_sq = sums[BRIM_MAPPO_SUM_REWARD_SQ],
                          .length = sums[BRIM_MAPPO_SUM_LENGTH]};
  memcpy(t.figures, sums + BRIM_MAPPO_SUM_FIGURES, sizeof t.figures);
  return t;
}

// Values of training's sums.
static void mappo_figures(void *work, const double *sums, double values[BRIM_METRIC_MAX]) {
  const brim_mappo *w = (const brim_mappo *)work;
  const brim_collect_tally t = unpack(sums);
  const double rows = sums[BRIM_MAPPO_SUM_ROWS];
  mappo_values(&w->rows, &t, values);
  values[BRIM_MAPPO_POLICY_LOSS] = ratio(sums[BRIM_MAPPO_SUM_POLICY_LOSS], rows);
  values[BRIM_MAPPO_ENTROPY] = ratio(sums[BRIM_MAPPO_SUM_ENTROPY], rows);
  values[BRIM_MAPPO_KL] = ratio(sums[BRIM_MAPPO_SUM_KL], rows);
  values[BRIM_MAPPO_CLIPPED] = ratio(sums[BRIM_MAPPO_SUM_CLIPPED], rows);
  values[BRIM_MAPPO_VALUE_LOSS] =
      ratio(sums[BRIM_MAPPO_SUM_VALUE_LOSS], sums[BRIM_MAPPO_SUM_VALUES]);
  values[BRIM_MAPPO_EXPLAINED] =
      ratio(sums[BRIM_MAPPO_SUM_EXPLAINED], sums[BRIM_MAPPO_SUM_EXPLAINED_COUNT]);
}

_Static_assert((int)BRIM_MAPPO_SUMS <= (int)BRIM_WORK_MAX_SUMS, "the sums fit");

static const brim_work_sums sum_rows = {
    .names = {"rows",       "policy_loss",     "entropy",    "kl",
              "clipped",    "values",          "value_loss", "bad",
              "explained",  "explained_count", "steps",      "episodes",
              "terminated", "truncated",       "diverged",   "reward",
              "reward_sq",  "length",          "figure_0",   "figure_0_count",
              "figure_1",   "figure_1_count",  "figure_2",   "figure_2_count",
              "figure_3",   "figure_3_count",  "figure_4",   "figure_4_count",
              "figure_5",   "figure_5_count"},
    .count = BRIM_MAPPO_SUMS,
    .packed = "mappo"};

//---------------------------------- rows ----------------------------------

// Names of a row of training only.
#define LEARNED(key_, label_, lines_, flags_)                                            \
  {                                                                                      \
    .key = key_, .label = label_, .digits = 3, .flags = flags_, .stages = STEPS | TRAIN, \
    .lines = lines_, .join = BRIM_METRIC_COMMA,                                          \
  }
// The throughput in another unit.
#define RATE(key_, unit_, lines_)                                            \
  {                                                                          \
    .key = key_, .label = "", .unit = unit_, .format = BRIM_METRIC_LARGE,    \
    .flags = BRIM_METRIC_OPTIONAL, .stages = STEPS | TRAIN, .lines = lines_, \
    .join = BRIM_METRIC_COMMA,                                               \
  }

static const brim_metric metric_rows[BRIM_MAPPO_ROWS] = {
    [BRIM_MAPPO_RETURN] = {.key = "return",
                           .label = BRIM_N_("return"),
                           .train_label = BRIM_N_("training return"),
                           .better = BRIM_BETTER_HIGHER,
                           .stages = ALL,
                           .lines = LINE_STEPS | LINE_TRAIN | LINE_EVAL | LINE_PROGRESS |
                                    LINE_SUMMARY | LINE_TABLE,
                           .beside = LINE_EVAL | LINE_PROGRESS,
                           .rank = 1},
    [BRIM_MAPPO_SPREAD] = {.key = "spread",
                           .label = BRIM_N_("spread"),
                           .digits = 3,
                           .join = BRIM_METRIC_SPREAD,
                           .stages = ALL,
                           .lines = LINE_EVAL | LINE_SUMMARY | LINE_TABLE},
    [BRIM_MAPPO_ENDED] = {.key = "fell",
                          .label = BRIM_N_("falls"),
                          .format = BRIM_METRIC_WHOLE,
                          .flags = BRIM_METRIC_NO_CSV,
                          .stages = EVAL | BASELINE,
                          .lines = LINE_TABLE},
    [BRIM_MAPPO_ENDED_RATE] = {.key = "falls",
                               .label = BRIM_N_("falls"),
                               .table_label = BRIM_N_("fall rate"),
                               .better = BRIM_BETTER_LOWER,
                               .format = BRIM_METRIC_PERCENT,
                               .digits = 1,
                               .join = BRIM_METRIC_COMMA,
                               .stages = ALL,
                               .lines = LINE_EVAL | LINE_SUMMARY | LINE_TABLE,
                               .beside = LINE_EVAL},
    [BRIM_MAPPO_DIVERGED] = {.key = "diverged",
                             .label = BRIM_N_("diverged"),
                             .format = BRIM_METRIC_WHOLE,
                             .join = BRIM_METRIC_COMMA,
                             .flags = BRIM_METRIC_POSITIVE | BRIM_METRIC_NO_CSV,
                             .stages = ALL,
                             .lines = LINE_STEPS | LINE_EVAL | LINE_SUMMARY},
    [BRIM_MAPPO_LENGTH] = {.key = "length",
                           .label = BRIM_N_("mean length"),
                           .stages = ALL,
                           .lines = LINE_TABLE},
    [BRIM_MAPPO_EPISODES] = {.key = "episodes",
                             .label = BRIM_N_("episodes"),
                             .format = BRIM_METRIC_WHOLE,
                             .stages = ALL},
    [BRIM_MAPPO_ERROR] = {.key = "return_error", .label = ""},
    [BRIM_MAPPO_POLICY_LOSS] = LEARNED("policy_loss", BRIM_N_("policy loss"), LINE_STEPS, 0),
    [BRIM_MAPPO_VALUE_LOSS] = LEARNED("value_loss", BRIM_N_("value loss"), LINE_STEPS, 0),
    [BRIM_MAPPO_ENTROPY] =
        LEARNED("policy_entropy", BRIM_N_("entropy"), LINE_STEPS | LINE_TRAIN, 0),
    [BRIM_MAPPO_KL] = LEARNED("approx_kl", BRIM_N_("KL"), LINE_STEPS | LINE_TRAIN, 0),
    [BRIM_MAPPO_CLIPPED] = {.key = "clipped_share",
                            .label = BRIM_N_("clipped"),
                            .format = BRIM_METRIC_PERCENT,
                            .digits = 1,
                            .join = BRIM_METRIC_COMMA,
                            .stages = STEPS | TRAIN,
                            .lines = LINE_STEPS},
    [BRIM_MAPPO_EXPLAINED] =
        LEARNED("explained_variance", BRIM_N_("explained variance"), LINE_STEPS, 0),
    [BRIM_MAPPO_ACTOR_NORM] = LEARNED("actor_grad_norm", "", 0, BRIM_METRIC_NO_CSV),
    [BRIM_MAPPO_CRITIC_NORM] = LEARNED("critic_grad_norm", "", 0, BRIM_METRIC_NO_CSV),
    [BRIM_MAPPO_COLLECTED] = RATE("collected_per_s", BRIM_N_("agent-steps/s collected"), 0),
    [BRIM_MAPPO_TRAINED] = RATE("trained_per_s", BRIM_N_("agent-samples/s trained"), LINE_STEPS),
    [BRIM_MAPPO_STEPPED] = RATE("env_steps_per_s", BRIM_N_("environment steps/s"), LINE_STEPS),
};

static const brim_metric_set usual_metrics = {.rows = metric_rows,
                                              .count = BRIM_MAPPO_ROWS,
                                              .baseline_label = BRIM_N_("random"),
                                              .baseline_short = BRIM_N_("of random actions"),
                                              .subject = BRIM_N_("this policy"),
                                              .summary = BRIM_N_(" in %lld held-out episodes")};

//---------------------------------- the environment's ----------------------------------

_Static_assert((int)BRIM_MAPPO_ROWS + (int)BRIM_ENV_MAX_FIGURES +
                       (int)BRIM_MAPPO_MAX_RULES * (1 + (int)BRIM_ENV_MAX_FIGURES) <=
                   (int)BRIM_METRIC_MAX,
               "the environment's figures and those of its rules fit behind the workload's rows");

static const char *name_of(brim_mappo_rows *r, const char *before, const char *key) {
  return brim_work_env_name(r->names[r->name_count++], before, key);
}

// Names the two rows of terminated episodes, as the environment calls them.
static void name_ended_rows(brim_mappo_rows *r, const brim_env_ended *e) {
  brim_metric *count = &r->rows[BRIM_MAPPO_ENDED], *rate = &r->rows[BRIM_MAPPO_ENDED_RATE];
  brim_work_env_label_ended(e, count, rate);
  rate->key = e->key;
  count->key = strcmp(e->count, e->key) == 0 ? name_of(r, "count_", e->count) : e->count;
}

static void add_figure(brim_mappo_rows *r, const brim_metric *from) {
  brim_metric *row = &r->rows[r->set.count++];
  *row = *from;
  memset(row->names, 0, sizeof row->names);
  row->stages = ALL;
  row->lines |= LINE_STEPS | LINE_EVAL | LINE_TABLE;
  row->join = BRIM_METRIC_COMMA;
  row->beside |= LINE_EVAL;
}

// Adds rows for a rule of the environment in the same episodes, for log.jsonl and `brim eval --json`.
static void add_rule(brim_mappo_rows *r, const char *rule) {
  char before[BRIM_METRIC_NAME];
  snprintf(before, sizeof before, "%s_", rule);
  r->rule_at[r->rules++] = r->set.count;
  for (size_t i = 0; i <= r->figures; i++) {
    const brim_metric *of = i == 0 ? &metric_rows[BRIM_MAPPO_RETURN] : &r->env->figures[i - 1];
    brim_metric *row = &r->rows[r->set.count++];
    *row = (brim_metric){.key = name_of(r, before, of->key),
                         .label = of->label,
                         .format = of->format,
                         .digits = of->digits,
                         .unit = of->unit,
                         .stages = EVAL,
                         .flags = BRIM_METRIC_OPTIONAL | BRIM_METRIC_NO_CSV};
    row->names[BRIM_METRIC_EVAL] = (brim_metric_names){NULL, "", "", NULL};
  }
}

static void mappo_rows_init(brim_mappo_rows *r, const brim_env_row *env) {
  memset(r, 0, sizeof *r);
  memcpy(r->rows, metric_rows, sizeof metric_rows);
  r->set = usual_metrics;
  r->set.rows = r->rows;
  r->env = env;
  r->figures = env->figure_count;
  name_ended_rows(r, &env->ended);
  for (size_t f = 0; f < env->figure_count; f++) add_figure(r, &env->figures[f]);
  for (size_t i = 0; env->rules && env->rules[i] && i < BRIM_MAPPO_MAX_RULES; i++) {
    add_rule(r, env->rules[i]);
  }
}

// For reading a run's log: makes the environment's first rule the baseline, which is harder to beat than
// random actions.
static void mappo_rows_beside_rule(brim_mappo_rows *r) {
  if (r->rules == 0) return;
  snprintf(r->beside, sizeof r->beside, brim_tr("%.40s rule"), r->env->rules[0]);
  r->set.baseline_label = r->beside;
  for (size_t i = 0; i <= r->figures; i++) {
    brim_metric *row = &r->rows[i == 0 ? BRIM_MAPPO_RETURN : BRIM_MAPPO_ROWS + i - 1];
    row->names[BRIM_METRIC_BASELINE].column = name_of(r, "eval_", r->rows[r->rule_at[0] + i].key);
  }
}

static const brim_metric_set *mappo_metric_set(void *work) {
  return &((brim_mappo *)work)->rows.set;
}

//---------------------------------- lines ----------------------------------

// "return 12.3, coverage 41.2 %" of a tally.
static void figures_text(const brim_mappo_rows *r, const brim_collect_tally *t, char *out,
                         size_t size) {
  double values[BRIM_METRIC_MAX];
  char number[32];
  brim_metric_unknown(values);
  mappo_values(r, t, values);
  brim_metric_format_value(&r->rows[BRIM_MAPPO_RETURN], values[BRIM_MAPPO_RETURN], number);
  int n = snprintf(out, size, "%s %s", brim_tr("return"), number);
  for (size_t f = 0; f < r->figures && n > 0 && (size_t)n < size; f++) {
    const brim_metric *row = &r->rows[BRIM_MAPPO_ROWS + f];
    if (isnan(values[BRIM_MAPPO_ROWS + f])) continue;  // a figure of another task
    brim_metric_format_value(row, values[BRIM_MAPPO_ROWS + f], number);
    n += snprintf(out + n, size - (size_t)n, ", %s %s", brim_tr(row->label), number);
  }
}

static void baseline_line(const brim_mappo *w, size_t rule, brim_work_line *out) {
  const char *name = rule == 0 ? brim_tr("random") : w->rows.env->rules[rule - 1];
  char text[200];
  figures_text(&w->rows, &w->baseline[rule], text, sizeof text);
  out->label = BRIM_N_("baseline");
  snprintf(out->text, sizeof out->text, "%s: %s", name, text);
}

static size_t mappo_start_lines(void *work, brim_work_line *out, size_t most) {
  const brim_mappo *w = (const brim_mappo *)work;
  const brim_mappo_sizes *s = &w->sizes;
  char count[32], batch[32];
  size_t n = 0;
  if (most < 4 + BRIM_MAPPO_MAX_RULES) return 0;
  brim_format_count((double)s->envs * s->steps * w->z.agents, count);
  brim_format_count((double)s->batch * w->z.agents, batch);
  out[n].label = BRIM_N_("iteration");
  snprintf(
      out[n].text, sizeof out[n].text,
      brim_tr("environments %d x steps %d x agents %d = %s agent-steps; epochs %d x minibatches %d "
              "of %s agent samples"),
      s->envs, s->steps, w->z.agents, count, w->how.epochs, s->minibatches, batch);
  n++;
  if (mappo_fused_line(w, &out[n])) n++;
  const long long interval = (long long)brim_config_int(w->config, "checkpoint.interval");
  if (interval > 0) {
    out[n].label = BRIM_N_("checkpoint");
    snprintf(out[n].text, sizeof out[n].text, brim_tr("every %lld episodes, and after each epoch"),
             interval);
    n++;
  }
  if (!w->has_baseline) return n;
  for (size_t rule = 0; rule <= w->rows.rules; rule++) baseline_line(w, rule, &out[n++]);
  return n;
}

// Appends the environment's notes, and the results of its rules in the same episodes.
static void mappo_eval_notes(const brim_work_metrics *metrics, brim_str *out) {
  const brim_mappo_rows *r = (const brim_mappo_rows *)(const void *)metrics->set;
  const double *v = metrics->values;
  char number[32];
  if (r->env->notes) r->env->notes(v + BRIM_MAPPO_ROWS, (int64_t)v[BRIM_MAPPO_EPISODES], out);
  for (size_t rule = 0; rule < r->rules; rule++) {
    brim_str_printf(out, "\n%s: ", r->env->rules[rule]);
    for (size_t i = 0; i <= r->figures; i++) {
      const size_t at = r->rule_at[rule] + i;
      if (isnan(v[at])) continue;
      brim_metric_format_value(&r->rows[at], v[at], number);
      brim_str_printf(out, "%s%s %s", i ? ", " : "", brim_tr(r->rows[at].label), number);
    }
    brim_str_append_char(out, '\n');
  }
}

//-------------------------------------------- knobs --------------------------------------------
// The knobs of multi-agent PPO: their words, the values a sweep tries, and their values in a config.

//---------------------------------- words ----------------------------------

static const brim_knob_check envs_check = {
    .recommended = BRIM_N_("environments: %s"),
    .none = BRIM_N_("environments: several numbers were tried, none is recommended"),
    .one = BRIM_N_("environments: only one number was tried; --num-envs 256 1024 4096"),
    .ended = BRIM_N_("environments: the sweep ended with one number alone measured")};

static const brim_knob_row words[] = {
    {.name = "num_envs",
     .label = BRIM_N_("Environments"),
     .heading = BRIM_N_("Envs"),
     .narrow = BRIM_N_("Envs"),
     .always = true,
     .check = &envs_check},
    {.name = "rollout_steps",
     .label = BRIM_N_("Rollout steps"),
     .heading = BRIM_N_("Steps"),
     .narrow = BRIM_N_("Steps"),
     .always = true},
    {.name = "episodes_per_batch",
     .label = BRIM_N_("Episodes per batch"),
     .heading = BRIM_N_("Episodes"),
     .narrow = BRIM_N_("Eps"),
     .always = true},
    {.name = "minibatches",
     .label = BRIM_N_("Minibatches"),
     .heading = BRIM_N_("Minib"),
     .narrow = BRIM_N_("Mb")},
    {.name = "batch_size",
     .label = BRIM_N_("Batch size"),
     .heading = BRIM_N_("Batch"),
     .narrow = BRIM_N_("Batch")},
    {.name = "precision",
     .label = BRIM_N_("Precision"),
     .heading = BRIM_N_("Precision"),
     .narrow = BRIM_N_("Prec"),
     .role = BRIM_ROLE_PRECISION,
     .always = true,
     .overhead = true},
    {.name = "collect_on",
     .label = BRIM_N_("Environments run on"),
     .heading = BRIM_N_("Collect on"),
     .narrow = BRIM_N_("Coll"),
     .always = true,
     .overhead = true},
    {.name = "num_workers",
     .label = BRIM_N_("Workers"),
     .heading = BRIM_N_("Workers"),
     .narrow = BRIM_N_("Work")},
    BRIM_THREADS_KNOB_ROW,
};
static const brim_knob_set knob_set = {
    .rows = words, .count = sizeof words / sizeof *words, .iterates = true};

//---------------------------------- axes ----------------------------------

static const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", NULL};
static const char *const collect_choices[] = {"cpu", "gpu", NULL};

// Numbers of environments to try. If the config sets the episodes of an iteration, not more environments than
// an iteration has steps.
static size_t envs_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t gpu[] = {256, 1024, 4096, 16384}, cpu[] = {8, 32, 128};
  const brim_mappo *w = (const brim_mappo *)work;
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t count = sweep->gpu ? 4 : 3;
  const int64_t steps = w->knobs[BRIM_MAPPO_STEPS].value * w->shape.episode_length;
  while (w->by_episodes && count > 0 && from[count - 1] > steps) count--;
  return brim_knob_with_own(w->knobs[BRIM_MAPPO_ENVS].value, from, count, INT64_MAX, values);
}

// Minibatches to try: the config's own and one larger size, to show its gain, since minibatches change learning
// as much as speed. On a CPU, where trials are slow, only the config's own.
static size_t batch_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t counts[] = {4}, samples[] = {4096};
  const brim_mappo *w = (const brim_mappo *)work;
  const int64_t own = w->knobs[BRIM_MAPPO_BATCH].value;
  if (!sweep->gpu) return 0;
  return brim_knob_with_own(own, w->by_samples ? samples : counts, 1, INT64_MAX, values);
}

static size_t collect_axis(void *work, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_mappo *w = (const brim_mappo *)work;
  values[0] = w->knobs[BRIM_MAPPO_COLLECT].value;
  values[1] = 1 - values[0];
  return sweep->gpu ? 2 : 0;
}

static bool on_cpu_matters(void *work, const brim_setting *setting) {
  const brim_mappo *w = (const brim_mappo *)work;
  return w->context.device->info.kind != BRIM_DEVICE_GPU ||
         setting->value[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_CPU;
}

static bool collect_matters(void *work, const brim_setting *setting) {
  (void)setting;
  return ((const brim_mappo *)work)->context.device->info.kind == BRIM_DEVICE_GPU;
}

static const brim_knob envs_knob = {.name = "num_envs",
                                    .key = "mappo.num_envs",
                                    .kind = BRIM_KNOB_INT,
                                    .min = 1,
                                    .max = 1 << 20,
                                    .changes_learning = true,
                                    .multiplies = true,
                                    .list = "benchmark.num_envs_options",
                                    .option = "--num-envs",
                                    .axis = envs_axis};
static const brim_knob steps_knob = {.name = "rollout_steps",
                                     .key = "mappo.rollout_steps",
                                     .kind = BRIM_KNOB_INT,
                                     .min = 1,
                                     .max = 1 << 20,
                                     .changes_learning = true,
                                     .multiplies = true,
                                     .list = "benchmark.rollout_steps_options",
                                     .option = "--rollout-steps"};
static const brim_knob episodes_knob = {.name = "episodes_per_batch",
                                        .key = "mappo.episodes_per_batch",
                                        .kind = BRIM_KNOB_INT,
                                        .min = 1,
                                        .max = 1 << 20,
                                        .changes_learning = true,
                                        .multiplies = true};
static const brim_knob minibatches_knob = {.name = "minibatches",
                                           .key = "mappo.minibatches",
                                           .kind = BRIM_KNOB_INT,
                                           .min = 1,
                                           .max = 1 << 20,
                                           .changes_learning = true,
                                           .list = "benchmark.minibatches_options",
                                           .option = "--minibatches",
                                           .axis = batch_axis,
                                           .order = 1};
static const brim_knob samples_knob = {.name = "batch_size",
                                       .key = "data.batch_size",
                                       .kind = BRIM_KNOB_INT,
                                       .min = 1,
                                       .max = 1 << 28,
                                       .changes_learning = true,
                                       .list = "benchmark.batch_sizes",
                                       .option = "--batch-sizes",
                                       .axis = batch_axis,
                                       .order = 1};
static const brim_knob precision_knob = {.name = "precision",
                                         .key = "training.precision",
                                         .kind = BRIM_KNOB_CHOICE,
                                         .max = BRIM_PRECISION_COUNT - 1,
                                         .choices = precision_choices,
                                         .list = "benchmark.precisions"};
static const brim_knob collect_knob = {.name = "collect_on",
                                       .key = "mappo.collect_on",
                                       .kind = BRIM_KNOB_CHOICE,
                                       .max = BRIM_MAPPO_ON_GPU,
                                       .choices = collect_choices,
                                       .matters = collect_matters,
                                       .axis = collect_axis,
                                       .order = 2};
// The value -1 means: on a CPU as many workers as computing threads, beside a GPU all cores.
static const brim_knob workers_knob = {.name = "num_workers",
                                       .key = "data.num_workers",
                                       .kind = BRIM_KNOB_INT,
                                       .min = -1,
                                       .max = 1024,
                                       .matters = on_cpu_matters,
                                       .list = "benchmark.num_workers_options"};

// True if a file or the command line has the key, even with its default value.
static bool is_given(const brim_config *config, const char *key) {
  return brim_config_is_set(config, key) &&
         brim_config_layer_of(config, key) > BRIM_CONFIG_FROM_PRESET;
}

static int64_t number_of(const brim_config *config, const char *key, int64_t usual) {
  int64_t value;
  if (brim_config_get_int(config, key, &value) == BRIM_OK) return value;
  brim_status_clear();
  return usual;
}

// The number of environments if the config leaves it open. 1,024 with the 10 agents of uav fill an H200 and
// still learn in seconds; 32 learn the same in minutes on two CPU cores. It is capped at the episodes of an
// iteration, so that every environment finishes one.
enum { USUAL_ENVS_GPU = 1024, USUAL_ENVS_CPU = 32 };

static int64_t usual_envs(const brim_config *config, bool on_gpu) {
  const int64_t usual = on_gpu ? USUAL_ENVS_GPU : USUAL_ENVS_CPU;
  if (brim_config_is_set(config, "mappo.rollout_steps")) return usual;
  const int64_t episodes = number_of(config, "mappo.episodes_per_batch", usual);
  return episodes < usual ? episodes : usual;
}

// Threads that step environments. `asked`: data.num_workers (-1 = on a CPU as many as compute, beside a GPU all
// cores). `threads`: computing threads (0 = the device's own number).
static int32_t worker_count(const brim_mappo *w, int64_t asked, int64_t threads) {
  const brim_device *device = w->context.device;
  if (asked >= 0) return asked > 0 ? (int32_t)asked : 1;
  if (!device->info.host_memory) return brim_cpu_count();
  if (threads > 0 && device->backend->set_threads) return (int32_t)threads;
  return device->info.threads > 0 ? device->info.threads : brim_cpu_count();
}

// The number of environments: mappo.num_envs, else num_workers x episodes_per_worker if that is set, else the
// usual number.
static int64_t envs_of(const brim_mappo *w, bool on_gpu) {
  const brim_config *config = w->config;
  const int64_t each = brim_config_int(config, "mappo.episodes_per_worker");
  const int64_t asked =
      is_given(config, "data.num_workers") ? brim_config_int(config, "data.num_workers") : -1;
  const int64_t workers = worker_count(w, asked, 0);
  const int64_t envs = number_of(config, "mappo.num_envs", usual_envs(config, on_gpu));
  if (each <= 0) return envs;
  if (!brim_config_is_set(config, "mappo.num_envs")) return each * workers;
  if (envs != each * workers) {
    brim_log_warn("workload",
                  "mappo.num_envs is %" PRId64 ", so num_workers %" PRId64
                  " x episodes_per_worker %" PRId64 " has no effect on the number of environments",
                  envs, workers, each);
  }
  return envs;
}

static brim_status collect_of(const brim_mappo *w, int64_t *out) {
  const char *text = brim_config_string(w->config, "mappo.collect_on");
  const bool gpu = w->context.device->info.kind == BRIM_DEVICE_GPU;
  *out = gpu && !(text && strcmp(text, "cpu") == 0) ? BRIM_MAPPO_ON_GPU : BRIM_MAPPO_ON_CPU;
  if (gpu || w->context.evaluates || !text || strcmp(text, "gpu") != 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "mappo.collect_on is gpu, but the device is %s; use device=cuda or "
                   "mappo.collect_on=cpu",
                   w->context.device->backend->name);
}

// Knobs with the values of the config, in table order.
static brim_status make_knobs(brim_mappo *w) {
  const brim_config *c = w->config;
  brim_precision precision = BRIM_PRECISION_FP32;
  int64_t collect = 0;
  BRIM_TRY(collect_of(w, &collect));
  BRIM_TRY(brim_work_precision(c, w->context.device, &precision));
  w->by_episodes = brim_config_is_set(c, "mappo.episodes_per_batch") &&
                   !brim_config_is_set(c, "mappo.rollout_steps");
  w->by_samples = is_given(c, "data.batch_size") && !is_given(c, "mappo.minibatches");
  w->knobs[BRIM_MAPPO_ENVS] = envs_knob;
  w->knobs[BRIM_MAPPO_ENVS].multiplies =
      !w->by_episodes;  // with a fixed number of episodes, more environments make fewer steps each
  w->knobs[BRIM_MAPPO_STEPS] = w->by_episodes ? episodes_knob : steps_knob;
  w->knobs[BRIM_MAPPO_BATCH] = w->by_samples ? samples_knob : minibatches_knob;
  w->knobs[BRIM_MAPPO_PRECISION] = precision_knob;
  w->knobs[BRIM_MAPPO_COLLECT] = collect_knob;
  w->knobs[BRIM_MAPPO_WORKERS] = workers_knob;
  w->knobs[BRIM_MAPPO_THREADS] = brim_work_threads_knob(c, w->context.device);
  const int64_t values[BRIM_MAPPO_THREADS] = {envs_of(w, collect == BRIM_MAPPO_ON_GPU),
                                              number_of(c, w->knobs[BRIM_MAPPO_STEPS].key, 128),
                                              number_of(c, w->knobs[BRIM_MAPPO_BATCH].key, 4),
                                              precision,
                                              collect,
                                              brim_config_int(c, "data.num_workers")};
  for (int i = 0; i < BRIM_MAPPO_THREADS; i++) w->knobs[i].value = values[i];
  return BRIM_OK;
}

// Gives a resumed run the number of environments that the first run chose, on any device, unless the config
// names a number. (Lack of memory may have reduced it: brim.adapted.) A rollout that was not fused for lack of
// memory is not fused again, so that results keep their bits.
static void mappo_keep_choices(brim_mappo *w, const json_t *metadata) {
  const char *text = json_string_value(json_object_get(metadata, "brim.policy"));
  json_t *policy = NULL;
  if (!text) return;
  if (brim_json_parse(text, strlen(text), "brim.policy", &policy)) {
    brim_status_clear();
    return;
  }
  const json_t *chosen = json_object_get(policy, "chosen_envs");
  const json_int_t envs = json_integer_value(chosen ? chosen : json_object_get(policy, "num_envs"));
  const bool open = !brim_config_is_set(w->config, "mappo.num_envs");
  if (open && envs >= envs_knob.min && envs <= envs_knob.max) {
    w->knobs[BRIM_MAPPO_ENVS].value = envs;
  }
  w->general_rollout = json_is_true(json_object_get(policy, "general_rollout"));
  json_decref(policy);
}

//-------------------------------------------- config --------------------------------------------

enum { MOST_ROWS = 1 << 30, MOST_UPDATES = 1 << 20 };

//---------------------------------- settings ----------------------------------

// The nearest divisors of n: the largest that is at most x, and the smallest that is at least x. x is first
// brought into 1 .. n.
static void nearest_divisors(int64_t n, int64_t x, int64_t *below, int64_t *above) {
  *below = x > n ? n : x < 1 ? 1 : x;
  while (n % *below != 0) --*below;
  *above = x > n ? n : x < 1 ? 1 : x;
  while (n % *above != 0) ++*above;
}

static brim_status refuse_minibatches(const brim_mappo_sizes *s, int64_t count, int64_t rows) {
  int64_t below, above;
  nearest_divisors(rows, count, &below, &above);
  if (count > rows) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.minibatches is %" PRId64 ", more than the %" PRId64
                     " environment steps of a rollout (%d environments x %d steps)",
                     count, rows, s->envs, s->steps);
  }
  return brim_fail(BRIM_EINVAL,
                   "mappo.minibatches is %" PRId64 ", which does not divide the %" PRId64
                   " environment steps of a rollout (%d environments x %d steps); use %" PRId64
                   " or %" PRId64,
                   count, rows, s->envs, s->steps, below, above);
}

int64_t brim_mappo_batch(int64_t rows, double steps) {
  int64_t below, above;
  nearest_divisors(rows, (int64_t)steps, &below, &above);
  const double down = steps / (double)below, up = (double)above / steps;
  return down <= up || up < 1 ? below : above;
}

// Sets the minibatch from data.batch_size, which counts agent samples. All minibatches have the same number of
// whole environment steps: the divisor of the rollout with the smallest ratio to the wanted number.
static brim_status batch_of_samples(const brim_mappo *w, int64_t samples, int64_t rows,
                                    brim_mappo_sizes *s) {
  int64_t wanted = samples / w->z.agents, below, above;
  if (wanted < 1) {
    return brim_fail(BRIM_EINVAL,
                     "data.batch_size is %" PRId64
                     ", less than the %d agents of an environment "
                     "step; use %d or more",
                     samples, w->z.agents, w->z.agents);
  }
  nearest_divisors(rows, wanted, &below, &above);
  const double exact = (double)samples / w->z.agents;
  const double down = exact / (double)below, up = (double)above / exact;
  s->batch = (int32_t)brim_mappo_batch(rows, exact);
  if (fmin(down, up) > 2 && below < rows) {
    return brim_fail(BRIM_EINVAL,
                     "data.batch_size is %" PRId64
                     ", but a rollout of %d environments x %d steps divides only into minibatches "
                     "of %" PRId64 " or %" PRId64
                     " agent samples; choose another mappo.rollout_steps",
                     samples, s->envs, s->steps, below * w->z.agents, above * w->z.agents);
  }
  s->minibatches = (int32_t)(rows / s->batch);
  return BRIM_OK;
}

static brim_status take_batch(const brim_mappo *w, int64_t value, brim_mappo_sizes *s) {
  const int64_t rows = (int64_t)s->envs * s->steps;
  if (rows * w->z.agents > MOST_ROWS) {
    return brim_fail(
        BRIM_EINVAL,
        "a rollout of %d environments x %d steps x %d agents has more than %d samples; "
        "lower mappo.num_envs or mappo.rollout_steps",
        s->envs, s->steps, w->z.agents, MOST_ROWS);
  }
  if (w->by_samples) {
    BRIM_TRY(batch_of_samples(w, value, rows, s));
  } else {
    if (value > rows || rows % value != 0) return refuse_minibatches(s, value, rows);
    s->minibatches = (int32_t)value;
    s->batch = (int32_t)(rows / value);
  }
  const int64_t updates = (int64_t)s->minibatches * w->how.epochs;
  if (updates > MOST_UPDATES) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.update_epochs %d x minibatches %d make %" PRId64
                     " updates of an iteration, more than %d; lower one of them",
                     w->how.epochs, s->minibatches, updates, MOST_UPDATES);
  }
  s->updates = (int32_t)updates;
  return BRIM_OK;
}

brim_status brim_mappo_apply(const brim_mappo *w, const brim_setting *setting,
                             brim_mappo_sizes *out) {
  const int64_t *v = setting->value;
  const bool gpu = w->context.device->info.kind == BRIM_DEVICE_GPU;
  memset(out, 0, sizeof *out);
  out->envs = (int32_t)v[BRIM_MAPPO_ENVS];
  int64_t steps = v[BRIM_MAPPO_STEPS];
  if (w->by_episodes) steps = (steps * w->shape.episode_length + out->envs - 1) / out->envs;
  if (steps > 1 << 24) {
    return brim_fail(BRIM_EINVAL, "a rollout of %" PRId64 " steps is too long; the most is %d",
                     steps, 1 << 24);
  }
  out->steps = (int32_t)steps;
  out->precision = (brim_precision)v[BRIM_MAPPO_PRECISION];
  out->on_host = gpu && v[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_CPU;
  out->threads = (int32_t)v[BRIM_MAPPO_THREADS];
  out->workers = worker_count(w, v[BRIM_MAPPO_WORKERS], v[BRIM_MAPPO_THREADS]);
  return take_batch(w, v[BRIM_MAPPO_BATCH], out);
}

// Adjusts the number of environments that brim chose, so that the minibatches divide a rollout, if possible.
static void fit_envs(brim_mappo *w) {
  int64_t *envs = &w->knobs[BRIM_MAPPO_ENVS].value;
  const int64_t minibatches = w->knobs[BRIM_MAPPO_BATCH].value;
  brim_setting setting = {{0}};
  brim_mappo_sizes sizes;
  for (int i = 0; i < BRIM_MAPPO_KNOBS; i++) setting.value[i] = w->knobs[i].value;
  if (w->by_samples || *envs < minibatches || !brim_mappo_apply(w, &setting, &sizes)) return;
  brim_status_clear();
  *envs -= *envs % minibatches;
}

brim_status brim_mappo_choose(brim_mappo *w) {
  BRIM_TRY(make_knobs(w));
  const bool given = brim_config_is_set(w->config, "mappo.num_envs") ||
                     brim_config_int(w->config, "mappo.episodes_per_worker") > 0;
  if (!given) fit_envs(w);
  return BRIM_OK;
}

static int64_t mappo_epochs(const brim_mappo *w) {
  return (w->how.iterations + w->how.interval - 1) / w->how.interval;
}

static int64_t mappo_epoch_of(const brim_mappo *w, int64_t step) {
  return step == w->how.iterations ? mappo_epochs(w) : step / w->how.interval;
}

//---------------------------------- environment and networks ----------------------------------

static brim_status read_env(brim_mappo *w) {
  const brim_work_env_usual usual = {.workload = "mappo", .env = "uav"};
  brim_work_env env;
  BRIM_TRY(brim_work_env_read(w->config, w->context.registry, &usual, &env));
  w->z = env.row->sizes(env.values.bytes);
  if (w->z.kind != BRIM_ENV_DISCRETE) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "env is %s, whose actions are continuous, but mappo needs discrete actions; "
                     "use workload=ars",
                     env.row->name);
  }
  if (!env.row->collect) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "env is %s, which has no collector, so mappo cannot use it; build its "
                     "plug-in with brim_env_row.collect",
                     env.row->name);
  }
  w->rewards = brim_env_rewards(&w->z);
  w->shape = (brim_collect_shape){.row = env.row,
                                  .env = env.values,
                                  .episode_length = env.row->length(0, env.values.bytes),
                                  .seed = (uint64_t)brim_config_int(w->config, "seed")};
  // check the sizes first: settings are divided by them, and those of a plug-in may be wrong
  brim_collect_shape one = w->shape;
  brim_collect_layout at;
  one.num_envs = one.steps = 1;
  return brim_collect_cpu()->layout(&one, &at);
}

static void add_arg(brim_mappo_model *m, const char *name, brim_value value) {
  m->args[m->component.arg_count].name = name;
  m->args[m->component.arg_count++].value = value;
}

static brim_value int_value(int64_t x) {
  return (brim_value){.kind = BRIM_VALUE_INT, .integer = x, .number = (double)x};
}

static brim_value word_value(const char *x) {
  return (brim_value){.kind = BRIM_VALUE_STRING, .string = x};
}

static brim_value float_value(double x) {
  return (brim_value){.kind = BRIM_VALUE_FLOAT, .number = x};
}

// actor_critic has orthogonal weights. The policy's last layer starts small, so that all actions are about
// equally likely at first.
static void make_pair(const brim_component *c, bool critic, brim_mappo_model *m) {
  add_arg(m, "depth", int_value(brim_component_int(c, "depth", 2)));
  add_arg(m, "hidden", int_value(brim_component_int(c, "hidden", 256)));
  add_arg(m, "activation", word_value(brim_component_string(c, "activation", "tanh")));
  add_arg(m, "init", word_value("orthogonal"));
  add_arg(m, "gain", float_value(sqrt(2)));
  add_arg(m, "last_gain", float_value(critic ? 1 : 0.01));
}

// Makes one network from an mlp.
static void make_model(const brim_component *model, bool critic, brim_mappo_model *m) {
  static const brim_component usual = {.name = "actor_critic"};
  const brim_component *c = model ? model : &usual;
  m->component = (brim_component){
      .name = "mlp", .args = m->args, .file = c->file, .line = c->line, .col = c->col};
  if (strcmp(c->name, "actor_critic") == 0) {
    make_pair(c, critic, m);
    return;
  }
  for (size_t i = 0; i < c->arg_count && i < BRIM_MAPPO_MODEL_ARGS; i++) {
    add_arg(m, c->args[i].name, c->args[i].value);
  }
}

static brim_status read_models(brim_mappo *w) {
  const brim_component *model = brim_config_component(w->config, "model", NULL);
  const char *name = model ? model->name : "actor_critic";
  char at[160];
  if (strcmp(name, "actor_critic") != 0 && strcmp(name, "mlp") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%smodel is %s, but mappo needs actor_critic(depth=2, hidden=256) or "
                     "mlp(depth=2, hidden=256), which it builds for the actor and for the critic",
                     brim_work_place(model, at), name);
  }
  if (model && brim_component_bool(model, "shared", false)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%sactor and critic of mappo have different inputs and cannot share layers; "
                     "omit shared",
                     brim_work_place(model, at));
  }
  if (model && brim_component_float(model, "dropout", 0) > 0) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%sdropout would make the policy that is trained another than the one that "
                     "acted; omit dropout",
                     brim_work_place(model, at));
  }
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    make_model(model, i == BRIM_MAPPO_CRITIC, &w->models[i]);
  }
  return BRIM_OK;
}

//---------------------------------- learning ----------------------------------

static brim_status read_how(brim_mappo *w) {
  const brim_config *c = w->config;
  brim_mappo_how *h = &w->how;
  const char *actions = brim_config_string(c, "mappo.eval_actions");
  *h = (brim_mappo_how){.epochs = (int32_t)brim_config_int(c, "mappo.update_epochs"),
                        .gamma = (float)brim_config_float(c, "mappo.gamma"),
                        .lambda = (float)brim_config_float(c, "mappo.gae_lambda"),
                        .clip = (float)brim_config_float(c, "mappo.clip"),
                        .value_clip = (float)brim_config_float(c, "mappo.value_clip"),
                        .value_coef = (float)brim_config_float(c, "mappo.value_coef"),
                        .entropy = (float)brim_config_float(c, "mappo.entropy_coef"),
                        .huber = (float)brim_config_float(c, "mappo.huber"),
                        .value_norm = brim_config_bool(c, "mappo.value_norm"),
                        .normalize = brim_config_bool(c, "mappo.normalize_advantages"),
                        .best = actions && strcmp(actions, "best") == 0,
                        .iterations = brim_config_int(c, "mappo.iterations"),
                        .interval = brim_config_int(c, "mappo.eval_interval"),
                        .episodes = brim_config_int(c, "mappo.eval_episodes"),
                        .seed = (uint64_t)brim_config_int(c, "seed")};
  if (h->interval > h->iterations) h->interval = h->iterations;
  if (!(h->clip > 0) && !w->context.evaluates) {
    return brim_fail(BRIM_EINVAL,
                     "mappo.clip is 0, so no update could change the policy; 0.2 is a usual value");
  }
  w->clip_norm = brim_config_float(c, "training.clip_norm");
  w->weights = brim_work_weights(c);
  BRIM_TRY(brim_work_read_optimizer(c, &w->optimizer));
  const brim_component *scheduler = brim_config_component(c, "scheduler", NULL);
  const brim_work_warmup warmup = brim_work_warmup_of(c, h->interval);
  return brim_schedule_init(&w->schedule, scheduler, w->optimizer.lr, warmup.steps, h->iterations);
}

// Warns of keys of other workloads, and names the key of mappo that replaces them.
static void warn_of_others(const brim_config *config) {
  static const char *const keys[][2] = {{"training.epochs", "mappo.iterations"},
                                        {"training.ema_decay", NULL},
                                        {"training.gradient_accumulation_steps", NULL},
                                        {"data.path", NULL},
                                        {"data.cache", NULL},
                                        {"loss", NULL}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!brim_config_is_asked(config, keys[i][0])) continue;
    const char *origin = brim_config_origin(config, keys[i][0]);
    if (keys[i][1]) {
      brim_log_warn("workload", "%s (%s) has no effect on workload mappo; use %s", keys[i][0],
                    origin, keys[i][1]);
    } else {
      brim_log_warn("workload", "%s (%s) has no effect on workload mappo", keys[i][0], origin);
    }
  }
}

static void warn_of_both(const brim_config *config) {
  static const char *const keys[][2] = {{"mappo.rollout_steps", "mappo.episodes_per_batch"},
                                        {"mappo.minibatches", "data.batch_size"}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *other = keys[i][1];
    if (!brim_config_is_set(config, keys[i][0]) || !brim_config_is_asked(config, other)) continue;
    brim_log_warn("workload", "%s (%s) has no effect, because %s is set", other,
                  brim_config_origin(config, other), keys[i][0]);
  }
}

//---------------------------------- tables ----------------------------------

// Finds the tables of fused kernels, which not every device has.
static brim_status find_fused_tables(brim_mappo *w) {
  const brim_registry *registry = w->context.registry;
  char name[128];
  snprintf(name, sizeof name, BRIM_FUSED_ROLLOUT_EXTENSION "%s", w->shape.row->name);
  w->fused = (const brim_fused_table *)brim_registry_extension(registry, BRIM_FUSED_EXTENSION);
  w->fused_rollout = (const brim_fused_rollout_table *)brim_registry_extension(registry, name);
  const bool old = (w->fused && w->fused->abi != BRIM_FUSED_ABI) ||
                   (w->fused_rollout && w->fused_rollout->abi != BRIM_FUSED_ABI);
  if (!old) return BRIM_OK;
  return brim_fail(BRIM_EABI,
                   "backend %s has another version of the tables of mappo; build both together",
                   w->context.device->backend->name);
}

static brim_status find_gpu_tables(brim_mappo *w) {
  const brim_registry *registry = w->context.registry;
  const char *backend = w->context.device->backend->name;
  char name[128];
  snprintf(name, sizeof name, BRIM_COLLECT_EXTENSION "%s", w->shape.row->name);
  w->collect = (const brim_collect_table *)brim_registry_extension(registry, name);
  w->ppo = (const brim_ppo_table *)brim_registry_extension(registry, BRIM_PPO_EXTENSION);
  if (!w->collect || !w->ppo) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "backend %s cannot run environments for mappo (%s); use device=cpu", backend,
                     w->collect ? BRIM_PPO_EXTENSION : name);
  }
  if (w->collect->abi == BRIM_COLLECT_ABI && w->ppo->abi == BRIM_PPO_ABI) {
    return find_fused_tables(w);
  }
  return brim_fail(BRIM_EABI,
                   "backend %s has another version of the tables of mappo; build both together",
                   backend);
}

// Finds the device's tables, or this program's if the device is the host.
static brim_status find_tables(brim_mappo *w) {
  brim_device *device = w->context.device;
  w->where.stream = device->stream;
  w->where.threads = device->info.threads;
  if (device->info.kind == BRIM_DEVICE_GPU) return find_gpu_tables(w);
  w->collect = brim_collect_cpu();
  w->ppo = brim_ppo_cpu();
  return brim_work_env_threads(device, &w->where);
}

static void describe(brim_mappo *w) {
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  char env[64];
  w->shape.row->describe(w->shape.env.bytes, env, sizeof env);
  const long long depth = (long long)brim_component_int(c, "depth", 0);
  const long long hidden = (long long)brim_component_int(c, "hidden", 0);
  snprintf(w->description, sizeof w->description,
           "actor %d-%lldx%lld-%d, critic %d-%lldx%lld-%d, %s, episodes of %d", w->z.obs, hidden,
           depth, w->z.act, w->layout.critic, hidden, depth, w->rewards, env,
           w->shape.episode_length);
}

static brim_status mappo_setup(brim_mappo *w) {
  BRIM_TRY(read_env(w));
  BRIM_TRY(read_models(w));
  BRIM_TRY(read_how(w));
  BRIM_TRY(brim_mappo_choose(w));
  warn_of_others(w->config);
  warn_of_both(w->config);
  BRIM_TRY(find_tables(w));
  w->eval = w->shape;
  w->eval.num_envs = w->how.episodes > 0 ? (int32_t)w->how.episodes : 1;
  w->eval.steps = w->eval.once = 1;
  w->eval.stream = BRIM_MAPPO_STREAM_EVAL;
  mappo_rows_init(&w->rows, w->shape.row);
  brim_setting setting = {{0}};
  for (int i = 0; i < BRIM_MAPPO_KNOBS; i++) setting.value[i] = w->knobs[i].value;
  BRIM_TRY(brim_mappo_apply(w, &setting, &w->sizes));
  w->shape.num_envs = w->sizes.envs;
  w->shape.steps = w->sizes.steps;
  BRIM_TRY(w->collect->layout(&w->shape, &w->layout));
  describe(w);
  return BRIM_OK;
}

//------------------------------------------- memory -------------------------------------------
// The memory of an iteration: actor and critic as one group, the rollout, and the block `memory` (see
// brim_mappo_places). Plan and build use the same numbers.

typedef brim_mappo_needs needs;

static bool is_half(brim_precision p) {
  return p == BRIM_PRECISION_BF16 || p == BRIM_PRECISION_FP16;
}

static brim_dtype activations(brim_precision p) {
  return p == BRIM_PRECISION_BF16 ? BRIM_BF16 : p == BRIM_PRECISION_FP16 ? BRIM_F16 : BRIM_F32;
}

// Splits the states of a rollout into chunks, so that the critic's input stays small.
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

// Rounds the length of an input row up to 8 numbers, since matrix products of a GPU need aligned rows. `look`
// fills the padding with zeros.
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
  BRIM_TRY(mappo_fused_choose(w, s, n));
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

// FLOPs of an iteration. `flops`: one update of both networks, of which the forward pass is a third.
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
  mappo_fused_place(&n.fusing, bytes_of_row(out, BRIM_PLAN_ACTIVATIONS));
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

// Workspaces depend on the number of threads; the present setting keeps its own.
static brim_status mappo_plan(void *work, const brim_setting *setting, brim_plan *out) {
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

static void mappo_drop(brim_mappo *w) {
  brim_device *device = w->context.device;
  for (size_t i = 0; i < w->record_count; i++) brim_record_destroy(w->records[i]);
  brim_free(w->records);
  drop_probe(w);
  mappo_fused_drop(w);
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

// Makes the threads that step environments: the config's workers, or the device's own threads on a CPU with
// as many.
static brim_status make_pool(brim_mappo *w) {
  if (w->where.pool) BRIM_TRY(brim_work_env_threads(w->context.device, &w->where));
  w->host = w->where;
  w->host.stream = NULL;
  if (w->where.pool && w->sizes.workers == w->where.threads) return BRIM_OK;
  w->host.threads = w->sizes.workers;
  w->host.pool = NULL;
  return brim_pool_create(w->sizes.workers, &w->host.pool);
}

// Makes the records of the updates, with at most BRIM_GROUP_STATES optimizer steps in each.
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

// Builds everything that depends on a setting, for w->sizes.
static brim_status mappo_build(brim_mappo *w) {
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
  BRIM_TRY(mappo_fused_build(w));
  BRIM_TRY(brim_device_fill(device, w->memory, 0, w->places.bytes));
  if (w->sizes.on_host) {
    BRIM_TRY(brim_collect_cpu()->reset(&w->host, &w->shape, w->host_block));
    BRIM_TRY(brim_device_copy(device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
  } else {
    BRIM_TRY(w->collect->reset(&w->where, &w->shape, w->block));
  }
  return brim_device_sync(device);
}

//------------------------------------------- rollout -------------------------------------------
// A rollout repeats T times: observe all environments, draw actions from the actor's outputs, step. On the
// device nothing waits for the host. With environments on the CPU beside a GPU, every step uploads observations
// and downloads outputs, and the whole rollout is uploaded once at its end.

static void begin_span(const brim_mappo_iteration *r, brim_phase phase, const char *name) {
  brim_span_begin(r->spans, phase, name);
}

static brim_status end_span(const brim_mappo_iteration *r, brim_phase phase, const char *name,
                            brim_status status) {
  if (!status && r->spans && r->spans->exact) status = brim_device_sync(r->w->context.device);
  brim_span_end(r->spans, phase, name);
  return status;
}

// Describes a network's input matrix for `look`.
static brim_collect_output mappo_output(const brim_tensor *input) {
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

// Enqueues the choice of actions of step t: observations and masks into the actor's input, the actor, actions
// drawn from its outputs.
static brim_status look(brim_mappo *w, int32_t t) {
  const brim_collect_view view = {
      .first = (int64_t)t * w->sizes.envs,
      .count = w->sizes.envs,
      .actor = mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
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

static brim_status act_on_device(brim_mappo *w, int32_t t) {
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return draw(w, t);
}

static brim_status collect_step(const brim_mappo_iteration *r, int32_t t) {
  brim_mappo *w = r->w;
  const brim_rollout_where *where = w->context.device->info.host_memory ? &w->host : &w->where;
  begin_span(r, BRIM_PHASE_ENV, "env");
  BRIM_TRY(end_span(r, BRIM_PHASE_ENV, "env", look(w, t)));
  begin_span(r, BRIM_PHASE_ACT, "act");
  BRIM_TRY(end_span(r, BRIM_PHASE_ACT, "act", act_on_device(w, t)));
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

// A fused rollout is one kernel of a GPU, which has no spans inside: probe_tell divides its time.
brim_status brim_mappo_collect(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  BRIM_TRY(w->fusing.rollout ? mappo_fused_collect(w) : collect_steps(r));
  BRIM_TRY(w->collect->tally(&w->where, &w->shape, w->block, 1));
  return wait_if_measured(w);
}

//---------------------------------- on the host ----------------------------------

static brim_status look_on_host(brim_mappo *w, int32_t t) {
  brim_collect_output input = mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]);
  input.data = w->host_input;
  const brim_collect_view view = {.first = (int64_t)t * w->sizes.envs,
                                  .count = w->sizes.envs,
                                  .actor = input,
                                  .mask = w->host_mask};
  return brim_collect_cpu()->look(&w->host, &w->shape, w->host_block, &view);
}

// The phase to report for a part. Only exact steps wait after each part and can time it; otherwise the device
// runs ahead, and waiting for it counts as computing.
static brim_phase phase_to_report(const brim_mappo_iteration *r, brim_phase phase) {
  return r->spans && r->spans->exact ? phase : BRIM_PHASE_COMPUTE;
}

static size_t tensor_bytes(const brim_tensor *t) {
  return (size_t)(t->dim[0] * t->dim[1]) * brim_dtype_size(t->dtype);
}

static brim_status enqueue_outputs(void *ctx) {
  return brim_net_enqueue_outputs(brim_mappo_net((brim_mappo *)ctx, BRIM_MAPPO_ACTOR));
}

// Uploads observations, runs the actor, downloads its outputs.
static brim_status ask_gpu(const brim_mappo_iteration *r) {
  brim_mappo *w = r->w;
  brim_device *device = w->context.device;
  const brim_tensor *in = &w->inputs[BRIM_MAPPO_ACTOR][1], *out = &w->outputs[BRIM_MAPPO_ACTOR];
  const brim_phase transfer = phase_to_report(r, BRIM_PHASE_H2D),
                   acting = phase_to_report(r, BRIM_PHASE_ACT);
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
  const brim_phase acting = phase_to_report(r, BRIM_PHASE_ACT);
  begin_span(r, acting, "act");
  BRIM_TRY(end_span(r, acting, "act", act_on_host(w, t)));
  begin_span(r, BRIM_PHASE_ENV, "env");
  return end_span(r, BRIM_PHASE_ENV, "env", cpu->step(&w->host, &w->shape, w->host_block, t));
}

// Makes a rollout with environments on the CPU and the actor on the GPU, then uploads it.
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
  const brim_phase transfer = phase_to_report(r, BRIM_PHASE_H2D);
  begin_span(r, transfer, "transfer");
  return end_span(
      r, transfer, "transfer",
      brim_device_copy(w->context.device, w->block, w->host_block, w->layout.bytes, BRIM_COPY_H2D));
}

//------------------------------------- what its pieces take -------------------------------------
// The probe: times the pieces of a rollout on a GPU by its own clock. It records a few steps of each piece,
// launches them and scales the time to the rollout. A rollout on the GPU is one launch, in which environment and
// actor cannot be told apart; for a rollout on the CPU the probe measures the time that the GPU would take.
// Only steps that are measured phase by phase use it.

enum { PROBE_STEPS = 32, WARM_RUNS = 3 };  // the first runs go op by op and record

// True for steps on a GPU that are measured phase by phase.
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
  // launch twice and time the second: the GPU does not wait for the host before it
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
  // `begin` makes the states valid even before the first rollout
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

// Reports the GPU's times for a rollout on the CPU: the GPU computes only the actor's outputs and the update.
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

// Reports the times of an iteration on the GPU, which is busy all the time. The probe's pieces divide the time
// of the rollout between environment and actor.
static void tell_device(const brim_spans *spans, const brim_mappo_pieces *pieces,
                        int64_t rollout_ns, int64_t update_ns) {
  const double env = (double)pieces->ns[BRIM_MAPPO_PIECE_ENV];
  const double act_on_device =
      (double)(pieces->ns[BRIM_MAPPO_PIECE_OUTPUTS] + pieces->ns[BRIM_MAPPO_PIECE_DRAW]);
  const int64_t env_ns =
      env + act_on_device > 0 ? (int64_t)((double)rollout_ns * env / (env + act_on_device)) : 0;
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

//------------------------------------------ iteration ------------------------------------------
// An iteration: a rollout, the critic's values of all its states, advantages, and update_epochs passes over the
// rollout in minibatches. A device that records runs it as one launch (several launches for more than
// BRIM_GROUP_STATES updates); in measured iterations the rollout is a launch of its own.

//---------------------------------- advantages ----------------------------------

static brim_mappo_report *report_of(const brim_mappo *w) {
  return (brim_mappo_report *)(void *)(w->memory + w->places.report);
}

static float *floats(const brim_mappo *w, size_t offset) {
  return (float *)(void *)(w->memory + offset);
}

// Enqueues the critic's values of all states, chunk by chunk, into one matrix.
brim_status brim_mappo_value_states(brim_mappo *w) {
  if (w->fusing.rollout) return mappo_fused_values(w);
  const brim_tensor *out = &w->outputs[BRIM_MAPPO_CRITIC];
  const size_t each = (size_t)out->dim[1] * brim_dtype_size(out->dtype);
  for (int64_t first = 0; first < w->chunks.rows; first += w->chunks.each) {
    const int64_t left = w->chunks.rows - first;
    const brim_collect_view view = {
        .first = first,
        .count = left < w->chunks.each ? left : w->chunks.each,
        .critic = mappo_output(&w->inputs[BRIM_MAPPO_CRITIC][1]),
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
  return mappo_fused_gradients(w, &work);
}

// Enqueues update `index` of the iteration: the minibatch's rows in the epoch's random order, the inputs, and
// one optimizer step of both networks. `within`: index of the update in its record.
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
      .actor = mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][0]),
      .critic = mappo_output(&w->inputs[BRIM_MAPPO_CRITIC][0]),
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
  BRIM_TRY(wait_if_measured(w));
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

// Enqueues one part of the updates; part 0 first enqueues values and advantages. This is the content of a record.
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

// Copies the state that a rollout carries, and the statistics of returns, to the backup; with `back`, from it.
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

// Makes a rollout. A recorded rollout has no spans inside.
static brim_status roll_out(brim_mappo *w, const brim_spans *spans) {
  const brim_mappo_iteration run = {.w = w, .spans = spans};
  brim_mappo_iteration recorded = {.w = w,
                                   .spans = w->context.device->info.host_memory ? spans : NULL};
  if (w->sizes.on_host) return collect_on_host(&run);
  return brim_record_run(w->rollout, enqueue_rollout, &recorded, recorded.spans != NULL);
}

// Runs all updates. `whole`: the first launch includes the rollout.
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

// Runs rollout and updates with their spans. If the host steps the environments, it has waited for the rollout,
// so that the update is a phase of its own. If a GPU does both, the host waits once at the end; exact steps
// separate the two by the GPU's clock.
static brim_status run_all(brim_mappo *w, const brim_spans *spans) {
  const bool apart = w->sizes.on_host || w->context.device->info.host_memory;
  const bool exact = spans && spans->exact, whole = !apart && !exact;
  const brim_spans *one = apart || exact ? NULL : spans;  // one span for rollout and updates
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

// Makes one iteration: rollout, advantages, all updates. Leaves sums and position alone.
static brim_status mappo_iterate(brim_mappo *w, const brim_spans *spans) {
  const double lr = brim_schedule_lr(&w->schedule, w->now.step + 1);
  brim_mappo_pieces pieces = {0};
  fill_states(w, lr);
  BRIM_TRY(copy_carried(w, false));
  brim_status status = brim_mappo_probe_run(w, spans, &pieces);
  if (!status && probes(w, spans) && !w->sizes.on_host) status = copy_carried(w, true);
  if (!status) status = run_all(w, spans);
  if (!status) status = probe_tell(w, spans, &pieces);
  if (status == BRIM_OK || status == BRIM_EDEVICE) return status;
  // restore the state from before the iteration, so that it can be repeated
  if (brim_group_undo(w->group) || copy_carried(w, true) || brim_device_sync(w->context.device)) {
    brim_log_debug("workload", "the state before the iteration could not be restored");
  }
  return status;
}

static void mappo_close(void *work);
static brim_status mappo_open(const brim_work_context *context, const brim_config *config,
                              void **work);

//----------------------------------------- checkpoints -----------------------------------------
// Checkpoints of mappo (format: mappo.h). They hold the networks, their optimisers, the state of every
// environment and the statistics of returns, so that a resumed run continues from exactly there.

static const char *const prefixes[BRIM_MAPPO_NETS] = {BRIM_MAPPO_PREFIX_ACTOR,
                                                      BRIM_MAPPO_PREFIX_CRITIC};
static const char *const span_names[2] = {"rollout.states", "rollout.carried"};
static const char norm_sums[] = "value_norm.sums", norm_scale[] = "value_norm.scale";

// The state that a rollout carries from one iteration to the next, on the host.
struct brim_mappo_copy {
  brim_ppo_norm norm;
  uint64_t clock;
  size_t bytes[2];
  unsigned char *spans[2];
};
typedef struct brim_mappo_copy copy;

//---------------------------------- the device ----------------------------------

static void copy_free(copy *c) {
  if (!c) return;
  for (int i = 0; i < 2; i++) brim_free(c->spans[i]);
  brim_free(c);
}

static void mappo_copy_free(brim_mappo *w) {
  copy_free(w->copy);
  w->copy = NULL;
}

static size_t norm_offset(const brim_mappo *w) {
  return w->places.report + offsetof(brim_mappo_report, norm);
}

static brim_status fetch(brim_mappo *w, copy **out) {
  brim_device *device = w->context.device;
  brim_collect_clock clock;
  copy *c = (copy *)brim_calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the environments");
  brim_status status =
      brim_device_copy(device, &c->norm, w->memory + norm_offset(w), sizeof c->norm, BRIM_COPY_D2H);
  if (!status) {
    status =
        brim_device_copy(device, &clock, w->block + w->layout.clock, sizeof clock, BRIM_COPY_D2H);
  }
  for (int i = 0; !status && i < 2; i++) {
    c->bytes[i] = w->layout.saved[i].bytes;
    c->spans[i] = (unsigned char *)brim_alloc(c->bytes[i] + 1);
    if (!c->spans[i]) {
      status = brim_fail(BRIM_ENOMEM, "out of memory for a copy of the environments");
      break;
    }
    status = brim_device_copy(device, c->spans[i], w->block + w->layout.saved[i].offset,
                              c->bytes[i], BRIM_COPY_D2H);
  }
  if (!status) status = brim_device_sync(device);
  if (status) {
    copy_free(c);
    return status;
  }
  c->clock = clock.next;
  *out = c;
  return BRIM_OK;
}

static brim_status put_spans(brim_mappo *w, const copy *c) {
  brim_device *device = w->context.device;
  for (int i = 0; i < 2; i++) {
    const size_t at = w->layout.saved[i].offset;
    if (w->host_block) memcpy(w->host_block + at, c->spans[i], c->bytes[i]);
    BRIM_TRY(brim_device_copy(device, w->block + at, c->spans[i], c->bytes[i], BRIM_COPY_H2D));
  }
  return brim_device_sync(device);
}

// For a run with other environments than the file's: sets the clock, so that new episodes begin with random
// numbers that were not used yet.
static brim_status put_clock(brim_mappo *w, uint64_t clock) {
  brim_device *device = w->context.device;
  const brim_collect_clock now = {.now = clock, .next = clock};
  if (w->host_block) memcpy(w->host_block + w->layout.clock, &now, sizeof now);
  BRIM_TRY(brim_device_copy(device, w->block + w->layout.clock, &now, sizeof now, BRIM_COPY_H2D));
  return brim_device_sync(device);
}

static brim_status put_norm(brim_mappo *w, const brim_ppo_norm *norm) {
  brim_device *device = w->context.device;
  BRIM_TRY(brim_device_copy(device, w->memory + norm_offset(w), norm, sizeof *norm, BRIM_COPY_H2D));
  return brim_device_sync(device);
}

//---------------------------------- metadata ----------------------------------

static brim_status put_policy(const brim_mappo *w, json_t *meta) {
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  json_t *o =
      json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:I, s:i, s:i}", "observations", w->z.obs,
                "state", w->layout.critic, "actions", w->z.act, "agents", w->z.agents, "rewards",
                w->rewards, "depth", (json_int_t)brim_component_int(c, "depth", 0), "hidden",
                (json_int_t)brim_component_int(c, "hidden", 0), "num_envs", w->sizes.envs,
                "chosen_envs", (json_int_t)w->knobs[BRIM_MAPPO_ENVS].value, "rollout_steps",
                w->sizes.steps, "minibatches", w->sizes.minibatches);
  bool whole =
      o && (!w->general_rollout || !json_object_set_new(o, "general_rollout", json_true()));
  if (whole) {
    whole = !json_object_set_new(o, "episode_length", json_integer(w->shape.episode_length));
  }
  if (!whole) {
    json_decref(o);
    o = NULL;
  }
  return brim_work_env_put(w->shape.row, w->shape.env.bytes, o, meta);
}

static brim_status fill_metadata(brim_mappo *w, const copy *c, bool weights_only, json_t *meta) {
  BRIM_TRY(brim_json_put(meta, "brim.format", json_string("brim.checkpoint/1")));
  BRIM_TRY(brim_json_put(meta, "brim.workload", json_string("mappo")));
  BRIM_TRY(brim_work_put_i64(meta, "brim.step", w->now.step));
  BRIM_TRY(brim_work_put_i64(meta, "brim.epoch", mappo_epoch_of(w, w->now.step)));
  BRIM_TRY(brim_work_put_i64(meta, "brim.seed", (int64_t)w->how.seed));
  BRIM_TRY(brim_work_put_i64(meta, "brim.updates", w->now.updates));
  BRIM_TRY(brim_work_put_i64(meta, "brim.episodes", w->now.episodes));
  BRIM_TRY(brim_work_put_i64(meta, "brim.clock", (int64_t)c->clock));
  BRIM_TRY(put_policy(w, meta));
  if (!weights_only) {
    BRIM_TRY(brim_json_put_numbers(meta, "brim.sums", w->now.sums, BRIM_MAPPO_SUMS));
    BRIM_TRY(brim_work_put_i64(meta, "brim.skipped_steps", w->now.idle));
    BRIM_TRY(brim_work_put_i64(meta, "brim.skipped_updates", w->now.skipped));
  }
  BRIM_TRY(brim_work_put_i64(meta, "brim.threads", w->context.device->info.threads));
  BRIM_TRY(brim_json_put(meta, BRIM_SAFETENSORS_SUM, json_string("")));
  return brim_work_put_device(w->context.device, !weights_only, meta);
}

//---------------------------------- writing ----------------------------------

enum { MAX_ENTRIES = 512 };

static void add_entry(brim_safetensors_entry *all, size_t *n, brim_safetensors_entry one) {
  if (*n < MAX_ENTRIES) all[(*n)++] = one;
}

// Widest types first, so that every value is aligned in the file.
static brim_status write_entries(const char *path, brim_net_entries *const nets[BRIM_MAPPO_NETS],
                                 const copy *c, bool weights_only, const json_t *meta) {
  const double sums[3] = {c->norm.mean_sum, c->norm.square_sum, c->norm.weight};
  const float scale[3] = {c->norm.mean, c->norm.std, c->norm.inverse};
  brim_safetensors_entry *all = (brim_safetensors_entry *)brim_calloc(MAX_ENTRIES, sizeof *all);
  size_t n = 0;
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory for the entries of a checkpoint");
  add_entry(all, &n, (brim_safetensors_entry){norm_sums, BRIM_F64, 1, {3}, sums, sizeof sums});
  for (int wide = 1; wide >= 0; wide--) {
    for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
      const brim_safetensors_entry *e;
      for (size_t k = 0; (e = brim_net_entries_at(nets[i], k)); k++) {
        if ((brim_dtype_size(e->dtype) > 4) == (wide == 1)) add_entry(all, &n, *e);
      }
    }
  }
  add_entry(all, &n, (brim_safetensors_entry){norm_scale, BRIM_F32, 1, {3}, scale, sizeof scale});
  for (int i = 0; !weights_only && i < 2; i++) {
    add_entry(all, &n,
              (brim_safetensors_entry){
                  span_names[i], BRIM_U8, 1, {(int64_t)c->bytes[i]}, c->spans[i], c->bytes[i]});
  }
  brim_status status = n < MAX_ENTRIES
                           ? brim_safetensors_write(path, all, n, meta)
                           : brim_fail(BRIM_ELIMIT, "%s: too many layers for a checkpoint", path);
  brim_free(all);
  return status;
}

static brim_status write_file(brim_mappo *w, const copy *c, const char *path, bool weights_only,
                              const json_t *meta) {
  brim_net_entries *nets[BRIM_MAPPO_NETS] = {NULL};
  brim_status status = BRIM_OK;
  for (int i = 0; !status && i < BRIM_MAPPO_NETS; i++) {
    status = brim_net_entries_copy(brim_mappo_net(w, i), prefixes[i], weights_only, &nets[i]);
  }
  if (!status) status = write_entries(path, nets, c, weights_only, meta);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) brim_net_entries_free(nets[i]);
  return status;
}

static brim_status mappo_save(void *work, const char *path, const json_t *extra,
                              bool weights_only) {
  brim_mappo *w = (brim_mappo *)work;
  copy *c = NULL;
  brim_json_setup();
  BRIM_TRY(fetch(w, &c));
  json_t *meta = json_object();
  brim_status status = meta ? fill_metadata(w, c, weights_only, meta)
                            : brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  if (!status && extra && json_object_update(meta, (json_t *)extra)) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while saving %s", path);
  }
  if (!status) status = write_file(w, c, path, weights_only, meta);
  json_decref(meta);
  copy_free(c);
  return status;
}

//---------------------------------- reading ----------------------------------

static const char *text_of(const json_t *meta, const char *key) {
  return json_string_value(json_object_get(meta, key));
}

// Checks that the file is of this workload, and of an environment with this run's observations and actions.
static brim_status check_owner(const brim_mappo *w, const char *path, const json_t *meta,
                               bool task) {
  const char *workload = text_of(meta, "brim.workload");
  if (workload && strcmp(workload, "mappo") != 0) {
    return brim_fail(BRIM_EINVAL, "%s is a checkpoint of workload %s, not of mappo", path,
                     workload);
  }
  return brim_work_env_check(w->shape.row, w->shape.env.bytes, path, text_of(meta, "brim.env"),
                             task);
}

static brim_status read_norm(const char *path, const brim_safetensors *file, brim_ppo_norm *out) {
  const brim_safetensors_entry *sums = brim_safetensors_find(file, norm_sums);
  const brim_safetensors_entry *scale = brim_safetensors_find(file, norm_scale);
  double s[3];
  float v[3];
  memset(out, 0, sizeof *out);
  if (!sums && !scale)
    return BRIM_OK;  // another program wrote the networks: start without statistics
  bool good = sums && scale && sums->bytes == sizeof s && scale->bytes == sizeof v;
  if (good) {
    memcpy(s, sums->data, sizeof s);
    memcpy(v, scale->data, sizeof v);
    for (int i = 0; i < 3; i++) good = good && isfinite(s[i]) && isfinite((double)v[i]);
    good = good && s[1] >= 0 && s[2] >= 0 && s[2] <= 1 && v[1] >= 0.0f && v[2] >= 0.0f;
  }
  if (!good) {
    return brim_fail(BRIM_EPARSE, "%s: invalid statistics in value_norm.*: the file is damaged",
                     path);
  }
  *out = (brim_ppo_norm){.mean_sum = s[0],
                         .square_sum = s[1],
                         .weight = s[2],
                         .mean = v[0],
                         .std = v[1],
                         .inverse = v[2]};
  return BRIM_OK;
}

static brim_status check_nets(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              bool weights_only) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_net_part part = {path, file, prefixes[i], weights_only};
    BRIM_TRY(brim_net_entries_check(brim_mappo_net(w, i), &part));
  }
  return BRIM_OK;
}

static brim_status take_nets(brim_mappo *w, const char *path, const brim_safetensors *file,
                             bool weights_only) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_net_part part = {path, file, prefixes[i], weights_only};
    BRIM_TRY(brim_net_entries_take(brim_mappo_net(w, i), &part));
  }
  return BRIM_OK;
}

// Loads networks and statistics of a file; the position in training does not change.
static brim_status mappo_start_from(brim_mappo *w, const char *path) {
  brim_safetensors *file = NULL;
  brim_ppo_norm norm;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = check_owner(w, path, brim_safetensors_metadata(file), false);
  if (!status) status = check_nets(w, path, file, true);
  if (!status) status = read_norm(path, file, &norm);
  if (!status) status = take_nets(w, path, file, true);
  if (!status) status = put_norm(w, &norm);
  brim_safetensors_close(file);
  return status;
}

static brim_status mappo_use(void *work, const char *path, bool averaged) {
  brim_mappo *w = (brim_mappo *)work;
  (void)averaged;  // mappo keeps no averaged weights
  w->held_out = true;
  w->has_baseline = false;
  return mappo_start_from(w, path);
}

//---------------------------------- resuming ----------------------------------

// The position of training in a file, checked before anything changes.
typedef struct saved_place {
  brim_mappo_position at;
  brim_ppo_norm norm;
  int64_t clock;
  copy spans;       // points into the file's bytes
  bool same;        // the file's environments can continue in this run
  bool configured;  // the file's environments have this run's settings
} saved_place;

static brim_status read_spans(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              saved_place *out) {
  out->configured = brim_work_env_same(w->shape.row, w->shape.env.bytes,
                                       text_of(brim_safetensors_metadata(file), "brim.env"));
  out->same = out->configured;
  for (int i = 0; i < 2; i++) {
    const brim_safetensors_entry *e = brim_safetensors_find(file, span_names[i]);
    if (!e) {
      return brim_fail(BRIM_EPARSE,
                       "%s holds only networks, so brim cannot resume from it; start from it with "
                       "--weights, or resume from last.safetensors",
                       path);
    }
    out->spans.bytes[i] = e->bytes;
    out->spans.spans[i] = (unsigned char *)(uintptr_t)e->data;
    out->same = out->same && e->bytes == w->layout.saved[i].bytes;
  }
  if (!out->same) return BRIM_OK;
  const brim_status status =
      brim_collect_check_saved(&w->shape, out->spans.spans[0], out->spans.spans[1]);
  return status ? brim_fail_context(status, "%s", path) : BRIM_OK;
}

static void read_sums(const json_t *meta, brim_mappo_position *at) {
  if (brim_work_get_numbers(meta, "brim.sums", at->sums, BRIM_MAPPO_SUMS) != BRIM_MAPPO_SUMS) {
    memset(at->sums, 0, sizeof at->sums);  // start at 0: only reports depend on the sums
  }
}

static brim_status read_place(const brim_mappo *w, const char *path, const brim_safetensors *file,
                              saved_place *out) {
  const json_t *meta = brim_safetensors_metadata(file);
  memset(out, 0, sizeof *out);
  BRIM_TRY(check_owner(w, path, meta, true));
  BRIM_TRY(read_spans(w, path, file, out));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.step", &out->at.step));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.updates", &out->at.updates));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.episodes", &out->at.episodes));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.clock", &out->clock));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.skipped_steps", &out->at.idle));
  BRIM_TRY(brim_work_get_count(meta, path, "brim.skipped_updates", &out->at.skipped));
  read_sums(meta, &out->at);
  BRIM_TRY(read_norm(path, file, &out->norm));
  return check_nets(w, path, file, false);
}

static brim_status take_place(brim_mappo *w, const char *path, const saved_place *p) {
  BRIM_TRY(put_norm(w, &p->norm));
  if (p->same) {
    BRIM_TRY(put_spans(w, &p->spans));
  } else {
    if (p->configured) {
      brim_log_warn("workload",
                    "%s has another number of environments: the run continues with new episodes "
                    "and is no longer bit-identical",
                    path);
    } else {
      brim_log_warn("workload",
                    "%s has environments with other settings: the run continues with new episodes "
                    "and is no longer bit-identical",
                    path);
    }
    BRIM_TRY(put_clock(w, (uint64_t)p->clock));
  }
  w->now = p->at;
  return BRIM_OK;
}

// Warns if the continued run cannot be bit-identical.
static void warn_if_different(const brim_mappo *w, const json_t *meta, const char *path) {
  const brim_device *device = w->context.device;
  char threads[16];
  snprintf(threads, sizeof threads, "%d", (int)device->info.threads);
  brim_work_warn_if_other(meta, path, "brim.backend", device->backend->name);
  brim_work_warn_if_other(meta, path, "brim.library", device->info.library);
  brim_work_warn_if_other(meta, path, "brim.threads", threads);
  brim_work_warn_if_other(meta, path, "brim.device", device->info.name);
}

// Continues the networks' counter of skipped steps from the file's.
static brim_status set_skipped(brim_mappo *w, int64_t skipped) {
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net_sums sums;
    BRIM_TRY(brim_net_get_sums(brim_mappo_net(w, i), &sums));
    sums.skipped_steps = i == BRIM_MAPPO_ACTOR ? (uint64_t)skipped : 0;
    BRIM_TRY(brim_net_set_sums(brim_mappo_net(w, i), &sums));
  }
  return BRIM_OK;
}

static brim_status mappo_load(void *work, const char *path, json_t **extra) {
  brim_mappo *w = (brim_mappo *)work;
  brim_safetensors *file = NULL;
  saved_place p;
  json_t *meta = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = read_place(w, path, file, &p);
  if (!status) {
    meta = json_deep_copy(brim_safetensors_metadata(file));
    if (!meta) status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  }
  if (!status) status = take_nets(w, path, file, false);
  if (!status) status = take_place(w, path, &p);
  if (!status) status = set_skipped(w, p.at.skipped);
  if (!status) {
    warn_if_different(w, meta, path);
    // the run's mappo.eval_interval may differ from the file's, and so does the epoch then
    status = brim_work_put_i64(meta, "brim.epoch", mappo_epoch_of(w, w->now.step));
  }
  brim_safetensors_close(file);
  if (!status && extra) {
    (void)json_object_del(meta, BRIM_SAFETENSORS_SUM);
    *extra = meta;
  } else {
    json_decref(meta);
  }
  return status;
}

static bool mappo_owns(const brim_safetensors *file) {
  return brim_safetensors_find(file, BRIM_MAPPO_PREFIX_ACTOR "layers.0.weight") &&
         brim_safetensors_find(file, BRIM_MAPPO_PREFIX_CRITIC "layers.0.weight");
}

//---------------------------------- settings ----------------------------------

static bool unset(const json_t *value) { return !value || json_is_null(value); }

// Fills in num_envs, rollout_steps and minibatches, which may follow from other keys, with the values that
// checkpoint and run have, so that they can be compared.
static void mappo_resolve(void *work, const json_t *metadata, json_t *was, json_t *now) {
  const brim_mappo *w = (const brim_mappo *)work;
  static const char *const names[] = {"num_envs", "rollout_steps", "minibatches"};
  const int32_t values[] = {w->sizes.envs, w->sizes.steps, w->sizes.minibatches};
  const char *text = text_of(metadata, "brim.policy");
  json_t *policy = NULL;
  if (!text || brim_json_parse(text, strlen(text), "brim.policy", &policy)) {
    brim_status_clear();
    return;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char key[64];
    snprintf(key, sizeof key, "mappo.%s", names[i]);
    json_t *saved = json_object_get(policy, names[i]), *own = json_integer(values[i]);
    if (!unset(saved)) (void)json_object_set(was, key, saved);
    if (own) (void)json_object_set(now, key, own);
    json_decref(own);
  }
  json_decref(policy);
}

//---------------------------------- in memory ----------------------------------

static brim_status mappo_snapshot(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  mappo_copy_free(w);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_snapshot(brim_mappo_net(w, i)));
  BRIM_TRY(fetch(w, &w->copy));
  w->kept = w->now;
  return BRIM_OK;
}

static brim_status mappo_restore(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w->copy) return brim_fail(BRIM_ESTATE, "there is no snapshot to restore");
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) BRIM_TRY(brim_net_restore(brim_mappo_net(w, i)));
  BRIM_TRY(put_norm(w, &w->copy->norm));
  BRIM_TRY(put_spans(w, w->copy));
  w->now = w->kept;
  return BRIM_OK;
}

//------------------------------------------ evaluation ------------------------------------------
// Evaluation: runs held-out episodes with the policy, and the same episodes with random actions and with the
// environment's own rules. Every environment runs one episode; all step side by side.

enum {
  POLICY = -1,
  RANDOM = 0
};  // rules of brim_collect_table.choose begin with RANDOM; POLICY is no rule
// Steps between two checks whether all episodes are over.
enum { PATIENCE = 16 };

typedef struct episodes {
  brim_mappo *w;
  int32_t rule;  // POLICY, or a rule of brim_collect_table.choose
} episodes;

// The actor chooses the actions of `count` environments, at most its evaluation batch.
static brim_status act_in_eval(brim_mappo *w, int32_t t, int64_t first, int64_t count) {
  const int64_t row = (int64_t)t * w->eval.num_envs + first;
  const brim_collect_view view = {
      .first = row,
      .count = count,
      .actor = mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(w->eval_block + w->eval_layout.clock);
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  const brim_ppo_sample sample = {
      .outputs = w->outputs[BRIM_MAPPO_ACTOR],
      .rows = count * w->z.agents,
      .first = first * w->z.agents,
      .mask = view.mask,
      .clock = &clock->now,
      .t = t,
      .seed = w->how.seed,
      .stream = w->eval.stream,
      .best = w->how.best,
      .action = (int32_t *)(void *)(w->eval_block + w->eval_layout.action) + row * w->z.agents,
      .bad = &report->bad,
  };
  const brim_ppo_shape shape = {.steps = w->eval.steps,
                                .envs = w->eval.num_envs,
                                .agents = w->z.agents,
                                .act = w->z.act,
                                .rewards = w->rewards,
                                .finals = w->eval_layout.finals};
  BRIM_TRY(w->collect->look(&w->where, &w->eval, w->eval_block, &view));
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return w->ppo->sample(&w->where, &shape, &sample);
}

// Makes step t of all held-out episodes, after `begin`, with actions of the policy or of a rule.
static brim_status eval_step(brim_mappo *w, int32_t t, int32_t rule) {
  const int64_t all = w->eval.num_envs, each = w->sizes.envs;
  if (rule != POLICY) {
    BRIM_TRY(w->collect->choose(&w->where, &w->eval, w->eval_block, t, rule));
  }
  for (int64_t first = 0; rule == POLICY && first < all; first += each) {
    BRIM_TRY(act_in_eval(w, t, first, all - first < each ? all - first : each));
  }
  return w->collect->step(&w->where, &w->eval, w->eval_block, t);
}

// Makes one step of all episodes. The step of the policy is recorded.
static brim_status step(void *ctx) {
  const episodes *e = (const episodes *)ctx;
  BRIM_TRY(e->w->collect->begin(&e->w->where, &e->w->eval, e->w->eval_block));
  return eval_step(e->w, 0, e->rule);
}

static brim_status read_tally(brim_mappo *w, brim_collect_tally *out) {
  BRIM_TRY(w->collect->tally(&w->where, &w->eval, w->eval_block, 0));
  BRIM_TRY(brim_device_copy(w->context.device, w->tally, w->eval_block + w->eval_layout.tally,
                            sizeof *w->tally, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(w->context.device));
  *out = *w->tally;
  return BRIM_OK;
}

static brim_status run_episodes(brim_mappo *w, int32_t rule, brim_collect_tally *out) {
  episodes e = {.w = w, .rule = rule};
  w->eval.stream = w->held_out ? BRIM_MAPPO_STREAM_HELD_OUT : BRIM_MAPPO_STREAM_EVAL;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  for (int32_t i = 1; i <= w->eval.episode_length; i++) {
    if (w->stop && *w->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted in an evaluation");
    BRIM_TRY(rule == POLICY ? brim_record_run(w->eval_record, step, &e, false) : step(&e));
    if (i % PATIENCE != 0 && i < w->eval.episode_length) continue;
    BRIM_TRY(read_tally(w, out));
    if (out->episodes == w->eval.num_envs) break;
  }
  return BRIM_OK;
}

static brim_status mappo_baseline(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (w->how.episodes == 0 || w->has_baseline) return BRIM_OK;
  for (size_t rule = 0; rule <= w->rows.rules; rule++) {
    BRIM_TRY(run_episodes(w, (int32_t)rule, &w->baseline[rule]));
  }
  w->has_baseline = true;
  return BRIM_OK;
}

static brim_status mappo_evaluate(void *work, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  brim_collect_tally tally;
  if (w->how.episodes == 0) {
    return brim_fail(BRIM_ESTATE,
                     "nothing to evaluate: mappo.eval_episodes is 0; set it to the number of "
                     "held-out episodes, such as 100");
  }
  brim_work_metrics_clear(&w->rows.set, out);
  BRIM_TRY(mappo_baseline(w));
  BRIM_TRY(run_episodes(w, POLICY, &tally));
  mappo_pack(&tally, out->sums);
  mappo_values(&w->rows, &tally, out->values);
  mappo_rule_values(w, out->values);
  mappo_values(&w->rows, &w->baseline[RANDOM], out->baseline);
  out->samples = tally.episodes;
  out->bad = tally.diverged;
  return BRIM_OK;
}

//------------------------------------------- replays -------------------------------------------
// Replays: episodes of a checkpoint's policy, recorded on the CPU. All episodes run side by side once, as in an
// evaluation, and keep all states; a recording copies the states of one episode.

// Actors, in the order of add_actors: the policy, the environment's rules, and random actions last.
enum { TRAINED };
static size_t rules_of(const brim_mappo *w) {
  const size_t most = BRIM_WORK_MAX_ACTORS - 2, rules = (size_t)brim_env_rule_count(w->shape.row);
  return rules < most ? rules : most;
}

// MANY: fewest environments of a rollout, so that one rollout serves many episodes. AT_ONCE: environments in a
// batch of the actor.
enum { MANY = 128, AT_ONCE = 16 };

typedef struct replay {
  brim_device *device;
  brim_mappo *work;
  char *path;
  int64_t iteration;
  int actor;  // the actor of the episodes in eval_block; -1 = no episodes yet
} replay;

static void close_replay(void *state) {
  replay *r = (replay *)state;
  if (!r) return;
  mappo_close(r->work);
  brim_device_close(r->device);
  brim_free(r->path);
  brim_free(r);
}

static brim_status open_device(const brim_registry *registry, brim_device **out) {
  const brim_device_options options = {0};
  if (brim_device_open(registry, "cpu", &options, out) == BRIM_OK) return BRIM_OK;
  brim_status_clear();
  return brim_device_open(registry, "ref", &options, out);
}

// Builds the networks, loads the checkpoint, and allocates memory for `envs` whole episodes.
static brim_status build(replay *r, int32_t envs) {
  brim_mappo *w = r->work;
  mappo_drop(w);
  r->actor = -1;
  w->sizes = (brim_mappo_sizes){.envs = AT_ONCE,
                                .steps = 1,
                                .minibatches = 1,
                                .batch = AT_ONCE,
                                .updates = 1,
                                .precision = (brim_precision)w->knobs[BRIM_MAPPO_PRECISION].value,
                                .workers = w->where.threads > 0 ? w->where.threads : 1};
  w->eval.num_envs = envs;
  w->eval.steps = w->eval.episode_length;
  w->eval.stream = BRIM_MAPPO_STREAM_HELD_OUT;
  BRIM_TRY(mappo_build(w));
  return mappo_start_from(w, r->path);
}

static brim_status read_it(const brim_work_replay_from *from, void *state) {
  replay *r = (replay *)state;
  brim_work_replay_info info;
  json_t *meta = NULL;
  void *work = NULL;
  r->path = brim_strdup(from->path);
  if (!r->path) return brim_fail(BRIM_ENOMEM, "out of memory for a replay");
  BRIM_TRY(open_device(from->registry, &r->device));
  const brim_work_context context = {
      .registry = from->registry, .device = r->device, .evaluates = true};
  BRIM_TRY(mappo_open(&context, from->config, &work));
  r->work = (brim_mappo *)work;
  mappo_rows_beside_rule(&r->work->rows);
  BRIM_TRY(brim_work_replay_env(r->work->shape.row, r->work->shape.env.bytes, &info));
  BRIM_TRY(brim_work_metadata(from->path, &meta));
  const char *step = json_string_value(json_object_get(meta, "brim.step"));
  if (!step || !brim_parse_i64(step, &r->iteration)) r->iteration = 0;
  json_decref(meta);
  return build(r, MANY);
}

static brim_status open_replay(const brim_registry *registry, const brim_config *config,
                               const char *path, void **out) {
  const brim_work_replay_from from = {registry, config, path};
  return brim_work_replay_open(&from, sizeof(replay), read_it, close_replay, out);
}

static void add_actors(const brim_mappo *w, brim_work_replay_info *out) {
  brim_work_replay_actor(out, "trained", brim_tr("Policy"));
  for (size_t i = 0; i < rules_of(w); i++) {
    const char *name = w->shape.row->rules[i];
    char label[64];
    snprintf(label, sizeof label, brim_tr("%.40s rule"), name);
    if (label[0] >= 'a' && label[0] <= 'z') label[0] = (char)(label[0] - 'a' + 'A');
    brim_work_replay_actor(out, name, label);
  }
  brim_work_replay_actor(out, "random", brim_tr("Random actions"));
}

// The rule of an actor for eval_step: rule 0 is random actions, the environment's rules follow.
static int32_t rule_of(const brim_mappo *w, size_t actor) {
  if (actor == TRAINED) return POLICY;
  return actor <= rules_of(w) ? (int32_t)actor : 0;
}

static void info_of(void *state, brim_work_replay_info *out) {
  const replay *r = (const replay *)state;
  const brim_mappo *w = r->work;
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  (void)brim_work_replay_env(w->shape.row, w->shape.env.bytes,
                             out);  // succeeded when the replay opened
  out->steps = w->shape.episode_length;
  out->seed = w->how.seed;
  out->metrics = &w->rows.set;
  brim_scene_line *policy = brim_work_replay_fact(out, BRIM_N_("Policy"));
  snprintf(policy->text, sizeof policy->text, brim_tr("%d observations, %lld x %lld, %d actions"),
           w->z.obs, (long long)brim_component_int(c, "depth", 0),
           (long long)brim_component_int(c, "hidden", 0), w->z.act);
  brim_work_replay_trained(out, r->iteration);
  add_actors(w, out);
}

static brim_status put_fields(void *state, json_t *event) {
  const replay *r = (const replay *)state;
  BRIM_TRY(brim_work_replay_task(r->work->shape.row, r->work->shape.env.bytes, event));
  return brim_json_put(event, "iteration", json_integer(r->iteration));
}

// Runs the episodes of an actor, with at least `episode` + 1 environments, unless eval_block has them.
static brim_status replay_all(replay *r, size_t actor, int32_t episode) {
  brim_mappo *w = r->work;
  int32_t envs = w->eval.num_envs;
  while (envs <= episode) envs *= 2;
  if (envs != w->eval.num_envs) BRIM_TRY(build(r, envs));
  if (r->actor == (int)actor) return BRIM_OK;
  r->actor = -1;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  BRIM_TRY(w->collect->begin(&w->where, &w->eval, w->eval_block));
  for (int32_t t = 0; t < w->eval.steps; t++) {
    BRIM_TRY(eval_step(w, t, rule_of(w, actor)));
  }
  r->actor = (int)actor;
  return BRIM_OK;
}

// The reward of a step: the mean over agents, as in returns.
static float reward_of(const brim_mappo *w, int64_t row) {
  const float *reward =
      (const float *)(const void *)(w->eval_block + w->eval_layout.reward) + row * w->rewards;
  double sum = 0;
  for (int32_t i = 0; i < w->rewards; i++) sum += (double)reward[i];
  return (float)(sum / w->rewards);
}

// The row of the state after the step at `row`. At a truncated end this is the final state, which is kept
// separately for its value.
static int64_t row_behind(const brim_mappo *w, int64_t row) {
  const int64_t envs = w->eval.num_envs;
  const int32_t *final = (const int32_t *)(const void *)(w->eval_block + w->eval_layout.final);
  if (final[row] < 0) return row + envs;
  return ((int64_t)w->eval.steps + 1 + final[row]) * envs + row % envs;
}

static brim_status record_one(void *state, size_t actor, int32_t episode, int64_t steps,
                              brim_work_recording *out) {
  replay *r = (replay *)state;
  BRIM_TRY(replay_all(r, actor, episode));
  const brim_mappo *w = r->work;
  const int64_t envs = w->eval.num_envs;
  const int8_t *ends = (const int8_t *)(const void *)(w->eval_block + w->eval_layout.end);
  const size_t width = (size_t)w->z.frame;
  const int64_t most = steps < w->eval.steps ? steps : w->eval.steps;
  out->states = 0;
  out->end = BRIM_SCENE_LASTED;
  int64_t row = episode;
  for (int64_t t = 0; t <= most && out->states < out->capacity; t++) {
    brim_collect_frame(&w->eval, w->eval_block, row, out->frames + (size_t)out->states * width);
    const int64_t at = t * envs + episode;
    const bool last = t == most || (t > 0 && ends[at - envs] != BRIM_ENV_RUNNING);
    out->reward[out->states++] = last ? 0 : reward_of(w, at);
    if (last) break;
    out->end = brim_work_replay_end(ends[at]);
    row = row_behind(w, at);
  }
  return BRIM_OK;
}

static const brim_work_replay_table replay_table = {
    .score = "return",
    .open = open_replay,
    .close = close_replay,
    .info = info_of,
    .fields = put_fields,
    .record = record_one,
};

// NULL is fine
static void mappo_close(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (!w) return;
  mappo_drop(w);
  mappo_copy_free(w);
  brim_pool_destroy(w->where.pool);
  brim_free(w);
}

static brim_status mappo_open(const brim_work_context *context, const brim_config *config,
                              void **work) {
  brim_mappo *w = (brim_mappo *)brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  w->context = *context;
  w->config = config;
  brim_status status = mappo_setup(w);
  if (status) {
    mappo_close(w);
    return status;
  }
  *work = w;
  return BRIM_OK;
}

//------------------------------------------- workload -------------------------------------------

//---------------------------------- building ----------------------------------

static size_t mappo_knobs(void *work, const brim_knob **out) {
  *out = ((brim_mappo *)work)->knobs;
  return BRIM_MAPPO_KNOBS;
}

static bool mappo_sensible(void *work, const brim_setting *setting) {
  brim_mappo_sizes sizes;
  const bool fine = brim_mappo_apply((const brim_mappo *)work, setting, &sizes) == BRIM_OK;
  if (!fine) brim_status_clear();
  return fine;
}

static void mappo_resuming(void *work, const json_t *metadata) {
  brim_mappo *w = (brim_mappo *)work;
  w->weights = NULL;
  if (metadata) mappo_keep_choices(w, metadata);
}

static brim_status mappo_configure(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  mappo_drop(w);
  mappo_copy_free(w);
  BRIM_TRY(brim_mappo_apply(w, setting, &w->sizes));
  memset(&w->now, 0, sizeof w->now);
  brim_status status = mappo_build(w);
  if (!status && w->weights) status = mappo_start_from(w, w->weights);
  if (status) mappo_drop(w);
  return status;
}

// Halves the environments until the minibatches divide a rollout again; false if that never happens.
static bool mappo_shrink(void *work, brim_setting *setting) {
  int64_t *envs = &setting->value[BRIM_MAPPO_ENVS];
  while (*envs > 1) {
    *envs /= 2;
    if (mappo_sensible(work, setting)) return true;
  }
  return false;
}

// Gives up the fused rollout, which keeps the networks' inputs. Rollouts get slower but have as many steps.
static bool mappo_free_optional(void *work, const brim_setting *setting) {
  brim_mappo *w = (brim_mappo *)work;
  brim_plan with, without;
  char bytes[32];
  if (w->general_rollout || mappo_plan(work, setting, &with)) {
    brim_status_clear();
    return false;
  }
  w->general_rollout = true;
  const bool less = mappo_plan(work, setting, &without) == BRIM_OK &&
                    without.bytes[BRIM_PLACE_DEVICE] < with.bytes[BRIM_PLACE_DEVICE];
  if (!less) {
    w->general_rollout = false;
    brim_status_clear();
    return false;
  }
  brim_format_bytes(with.bytes[BRIM_PLACE_DEVICE] - without.bytes[BRIM_PLACE_DEVICE], bytes);
  brim_log_warn("workload", "out of memory: brim stops fusing rollouts, which saves %s", bytes);
  return true;
}

// Iterations without effect in a row that are not yet reported.
enum { FEW_ITERATIONS = 5 };

static int64_t samples_of(const brim_mappo *w) {
  return (int64_t)w->sizes.envs * w->sizes.steps * w->z.agents;
}

// Sets the rates. The samples of a step are agent steps; the rate of episodes assumes full length.
static void set_rates(const brim_mappo *w, brim_work_info *out) {
  const double agents = w->z.agents, length = w->shape.episode_length;
  out->rates[BRIM_MAPPO_RATE_COLLECTED] =
      (brim_work_rate){BRIM_N_("agent-steps/s collected"), 1, 1 + BRIM_MAPPO_COLLECTED};
  out->rates[BRIM_MAPPO_RATE_TRAINED] =
      (brim_work_rate){BRIM_N_("agent-samples/s trained"), w->how.epochs, 1 + BRIM_MAPPO_TRAINED};
  out->rates[BRIM_MAPPO_RATE_STEPPED] =
      (brim_work_rate){BRIM_N_("environment steps/s"), 1 / agents, 1 + BRIM_MAPPO_STEPPED};
  out->rates[BRIM_MAPPO_RATE_EPISODES] =
      (brim_work_rate){BRIM_N_("full-length episodes/s"), 1 / (agents * length), 0};
  out->rate_count = BRIM_MAPPO_RATES;
}

static void mappo_info(void *work, brim_work_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  out->unit = BRIM_N_("agent steps");
  out->interval_unit = BRIM_N_("episodes");
  set_rates(w, out);
  out->samples_per_epoch = samples_of(w) * w->how.interval;
  out->set_samples = out->samples_per_epoch;
  out->steps_per_epoch = w->how.interval;
  out->epochs = mappo_epochs(w);
  out->steps = w->how.iterations;
  out->eval_samples = w->how.episodes;
  out->eval_batch = w->how.episodes;
  out->learning_rate = w->optimizer.lr;
  out->adaptive = brim_str_starts(w->optimizer.component.name, "adam");
  out->description = w->description;
  out->fused = brim_mappo_fused_text(w);
  out->watches_gpu = true;
  out->reads_often = true;
  out->idle_limit = FEW_ITERATIONS;
  out->has_baseline = w->has_baseline;
  out->baseline_samples = w->baseline[0].episodes;
  brim_metric_unknown(out->baseline);
  brim_metric_unknown(out->training_baseline);
  if (!w->has_baseline) return;
  mappo_values(&w->rows, &w->baseline[0], out->baseline);
  mappo_values(&w->rows, &w->baseline[0], out->training_baseline);
}

//---------------------------------- stepping ----------------------------------

static void add_losses(brim_mappo *w) {
  static const int from[][2] = {{BRIM_MAPPO_SUM_ROWS, BRIM_PPO_ROWS},
                                {BRIM_MAPPO_SUM_POLICY_LOSS, BRIM_PPO_POLICY_LOSS},
                                {BRIM_MAPPO_SUM_ENTROPY, BRIM_PPO_ENTROPY},
                                {BRIM_MAPPO_SUM_KL, BRIM_PPO_KL},
                                {BRIM_MAPPO_SUM_CLIPPED, BRIM_PPO_CLIPPED},
                                {BRIM_MAPPO_SUM_VALUES, BRIM_PPO_VALUES},
                                {BRIM_MAPPO_SUM_VALUE_LOSS, BRIM_PPO_VALUE_LOSS}};
  const brim_mappo_report *r = w->report;
  double *sums = w->now.sums;
  for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
    sums[from[i][0]] += r->metrics[from[i][1]];
  }
  sums[BRIM_MAPPO_SUM_BAD] +=
      r->metrics[BRIM_PPO_BAD] + r->metrics[BRIM_PPO_BAD_VALUES] + (double)r->bad;
  sums[BRIM_MAPPO_SUM_STEPS] += (double)w->sizes.envs * w->sizes.steps;
  if (!isfinite(r->moments.explained)) return;
  sums[BRIM_MAPPO_SUM_EXPLAINED] += r->moments.explained;
  sums[BRIM_MAPPO_SUM_EXPLAINED_COUNT] += 1;
}

static void add_episodes(brim_mappo *w) {
  double packed[BRIM_MAPPO_SUMS] = {0};
  mappo_pack(w->tally, packed);
  for (int i = BRIM_MAPPO_SUM_EPISODES; i < BRIM_MAPPO_SUMS; i++) w->now.sums[i] += packed[i];
  w->now.episodes += w->tally->episodes;
}

// Reads the gradient norms of the last update and the number of updates without effect.
static brim_status read_nets(brim_mappo *w) {
  int64_t skipped = 0;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    brim_net_metrics m;
    BRIM_TRY(brim_net_read_metrics(brim_mappo_net(w, i), true, &m));
    w->now.norms[i] = m.grad_norm;
    skipped += (int64_t)m.skipped_steps;
  }
  // the actor and the critic of an update each count
  const int64_t all = (int64_t)BRIM_MAPPO_NETS * w->sizes.updates;
  if (skipped - w->now.skipped >= all) w->now.idle++;
  w->now.skipped = skipped;
  return BRIM_OK;
}

static void mappo_stops(void *work, const volatile sig_atomic_t *stop) {
  ((brim_mappo *)work)->stop = stop;
}

static brim_status mappo_step(void *work, const brim_spans *spans, brim_step_info *out) {
  brim_mappo *w = (brim_mappo *)work;
  memset(out, 0, sizeof *out);
  BRIM_TRY(mappo_iterate(w, spans));
  BRIM_TRY(read_nets(w));
  add_losses(w);
  out->counted_before = w->now.episodes;
  add_episodes(w);
  out->counted = w->now.episodes;
  out->samples = samples_of(w);
  out->epoch = mappo_epoch_of(w, w->now.step);
  w->now.step++;
  w->now.updates += w->sizes.updates;
  out->step = w->now.step;
  out->lr = brim_schedule_lr(&w->schedule, w->now.step);
  out->epoch_end = w->now.step % w->how.interval == 0 || w->now.step == w->how.iterations;
  return BRIM_OK;
}

//---------------------------------- figures ----------------------------------

static bool searching(const brim_mappo *w) {
  return w->sizes.precision == BRIM_PRECISION_FP16 && w->now.step < FEW_ITERATIONS;
}

static brim_status mappo_metrics(void *work, bool reset, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  brim_work_metrics_clear(&w->rows.set, out);
  memcpy(out->sums, w->now.sums, sizeof w->now.sums);
  mappo_figures(w, w->now.sums, out->values);
  out->values[BRIM_MAPPO_ACTOR_NORM] = w->now.norms[BRIM_MAPPO_ACTOR];
  out->values[BRIM_MAPPO_CRITIC_NORM] = w->now.norms[BRIM_MAPPO_CRITIC];
  out->samples = (int64_t)w->now.sums[BRIM_MAPPO_SUM_STEPS] * w->z.agents;
  out->bad = (int64_t)w->now.sums[BRIM_MAPPO_SUM_BAD];
  out->skipped = w->now.idle;
  out->searching = searching(w);
  if (!reset) return BRIM_OK;
  memset(w->now.sums, 0, sizeof w->now.sums);
  return BRIM_OK;
}

static const brim_work_evaluation_table evaluation = {.evaluate = mappo_evaluate, .use = mappo_use};
static const brim_work_policy_table policy = {.baseline = mappo_baseline, .networks = true};
static const brim_work_shrink_table shrinking = {.shrink = mappo_shrink,
                                                 .free_optional = mappo_free_optional};
static const brim_work_settings_table settings = {.resolve = mappo_resolve};
static const brim_work_text_table text = {.start_lines = mappo_start_lines,
                                          .eval_notes = mappo_eval_notes};

static const brim_work_shipped shipped[] = {{"uav", "uav.yaml"},
                                            {"cartpole", "cartpole-mappo.yaml"}};

const brim_workload_table brim_workload_mappo = {
    .name = "mappo",
    .model = "actor_critic",
    .makes = BRIM_N_("a mappo policy"),
    .options = brim_mappo_options,
    .option_count = BRIM_MAPPO_OPTIONS,
    .topic = &brim_mappo_topic,
    .section = &brim_mappo_section,
    .length_key = "mappo.iterations",
    .without_eval = "mappo.eval_episodes=0",
    .config = "uav.yaml",
    .shipped = shipped,
    .shipped_count = sizeof shipped / sizeof *shipped,
    .knob_set = &knob_set,
    .metric_set = &usual_metrics,
    .metric_set_of = mappo_metric_set,
    .sums = &sum_rows,
    .diagnosis = &brim_mappo_diagnosis,
    .open = mappo_open,
    .close = mappo_close,
    .knobs = mappo_knobs,
    .sensible = mappo_sensible,
    .plan = mappo_plan,
    .resuming = mappo_resuming,
    .configure = mappo_configure,
    .info = mappo_info,
    .step = mappo_step,
    .stops = mappo_stops,
    .metrics = mappo_metrics,
    .figures = mappo_figures,
    .save = mappo_save,
    .load = mappo_load,
    .owns = mappo_owns,
    .snapshot = mappo_snapshot,
    .restore = mappo_restore,
    .settings = &settings,
    .text = &text,
    .evaluation = &evaluation,
    .policy = &policy,
    .findings = &brim_mappo_findings,
    .views = &brim_mappo_views,
    .replay = &replay_table,
    .shrinking = &shrinking,
};
