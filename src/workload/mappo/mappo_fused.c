// Fused kernels of an iteration (rl/rl_fused.h): which parts of a setting they take, the memory they need,
// and the calls that replace the general path's. mappo_setup.c plans and builds with it; mappo_learn.c calls
// it as w->fusing says.
#include <string.h>

#include "workload/mappo/mappo_int.h"

enum { WEIGHTS = 2 * BRIM_FUSED_LAYERS };  // of a network: weight and bias of each layer

//---------------------------------- what can be fused ----------------------------------

static bool read_act(const brim_component *model, int32_t *out) {
  const char *act = brim_component_string(model, "activation", "relu");
  *out = strcmp(act, "tanh") == 0 ? BRIM_ACT_TANH : BRIM_ACT_RELU;
  return *out == BRIM_ACT_TANH || strcmp(act, "relu") == 0;
}

// A network as the kernels take it; false: its layers are others.
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

// Checks the device and how it computes.
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

// Observations may take a quarter of the device's memory, or of the config's limit; fused updates alone need
// no more than the general path. Memory in use does not count: the choice must not depend on other programs.
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

// Without addresses until the setting is built.
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

// The tables ask the device that this thread works with, before any memory says which is meant. A process may
// have several, and its threads begin with the first: a call of the backend's names ours.
static brim_status enter_device(const brim_mappo *w) {
  uint64_t free_bytes, total_bytes;
  return brim_device_memory(w->context.device, &free_bytes, &total_bytes);
}

brim_status brim_mappo_fused_choose(const brim_mappo *w, const brim_mappo_sizes *s,
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

// Memory that only an update needs shares the group's memory, which is free then: in a fused update the group's
// networks run neither forward nor back, and outputs of evaluations have been read.
void brim_mappo_fused_place(brim_mappo_fusing *f, size_t shared) {
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

brim_status brim_mappo_fused_build(brim_mappo *w) {
  brim_device *device = w->context.device;
  brim_mappo_fusing *f = &w->fusing;
  void *memory = NULL;
  size_t shared = 0;
  if (!f->update) return BRIM_OK;
  f->shared = (char *)brim_group_memory(w->group, &shared);
  brim_mappo_fused_place(f, shared);
  if (f->bytes > 0) {
    BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, f->bytes, &memory));
    f->memory = (char *)memory;
    // rows of final states that were never reached are read too, and their values are not used
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

void brim_mappo_fused_drop(brim_mappo *w) {
  release_products(w->context.device, &w->fusing);
  brim_device_free(w->context.device, BRIM_BUFFER_DEVICE, w->fusing.memory);
  memset(&w->fusing, 0, sizeof w->fusing);
}

const char *brim_mappo_fused_text(const brim_mappo *w) {
  return w->fusing.rollout  ? BRIM_N_("rollout and update")
         : w->fusing.update ? BRIM_N_("update")
                            : BRIM_N_("no");
}

bool brim_mappo_fused_line(const brim_mappo *w, brim_work_line *out) {
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

brim_status brim_mappo_fused_collect(brim_mappo *w) {
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

brim_status brim_mappo_fused_values(brim_mappo *w) {
  const brim_mappo_fusing *f = &w->fusing;
  BRIM_TRY(w->fused->values(&w->where, &f->net[BRIM_MAPPO_CRITIC],
                            space(f, BRIM_MAPPO_SEEN + BRIM_MAPPO_CRITIC), w->chunks.rows,
                            w->memory + w->places.values));
  return brim_mappo_settle(w);
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

// Names the layer for a device that is measured, as the engine does for its own ops.
static brim_status multiply(const brim_mappo *w, int net, int product) {
  brim_device *device = w->context.device;
  brim_op_watch *watch = device->watch;
  if (watch) {
    watch->net = brim_group_net(w->group, net);
    watch->layer = product == BRIM_MAPPO_SECOND ? "layers.1" : "layers.0";
    watch->phase = product == BRIM_MAPPO_FORWARD ? BRIM_PHASE_FORWARD : BRIM_PHASE_BACKWARD;
  }
  return brim_op_run(device, &w->fusing.products[net][product]);
}

brim_status brim_mappo_fused_gradients(const brim_mappo *w, const brim_ppo_losses *losses) {
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
    if (f->way[i] == BRIM_FUSED_REST) BRIM_TRY(multiply(w, i, BRIM_MAPPO_FORWARD));
  }
  BRIM_TRY(w->fused->update(&w->where, &w->learn, &update));
  BRIM_TRY(brim_mappo_settle(w));
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    if (f->way[i] != BRIM_FUSED_REST) continue;
    BRIM_TRY(multiply(w, i, BRIM_MAPPO_SECOND));
    BRIM_TRY(multiply(w, i, BRIM_MAPPO_FIRST));
  }
  return BRIM_OK;
}
