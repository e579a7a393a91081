// From a spec to a network without memory: graphs, places, prepared calls, and the plan's rows.
// Planning and creating share this, so what is planned is what is allocated.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"

//---------------------------------- precision ----------------------------------

static const struct {
  const char *name;
  brim_dtype dtype;
} precisions[BRIM_PRECISION_COUNT] = {
    [BRIM_PRECISION_FP32] = {"fp32", BRIM_F32},
    [BRIM_PRECISION_TF32] = {"tf32", BRIM_F32},
    [BRIM_PRECISION_BF16] = {"bf16", BRIM_BF16},
    [BRIM_PRECISION_FP16] = {"fp16", BRIM_F16},
};

const char *brim_precision_name(brim_precision precision) {
  return (unsigned)precision < BRIM_PRECISION_COUNT ? precisions[precision].name : "?";
}

bool brim_precision_parse(const char *text, brim_precision *out) {
  for (int i = 0; i < BRIM_PRECISION_COUNT; i++) {
    if (strcmp(text, precisions[i].name) == 0) {
      *out = (brim_precision)i;
      return true;
    }
  }
  return false;
}

// tf32 would silently be fp32, and fp16 without loss scaling would silently lose gradients.
static brim_status check_precision(const brim_device *device, brim_precision precision) {
  const char *backend = device->backend->name;
  switch (precision) {
    case BRIM_PRECISION_FP32:
    case BRIM_PRECISION_BF16:
      return BRIM_OK;
    case BRIM_PRECISION_TF32:
      return brim_fail(BRIM_EUNSUPPORTED, "precision tf32 is not supported on %s; use fp32",
                       backend);
    case BRIM_PRECISION_FP16:
      return brim_fail(BRIM_EUNSUPPORTED, "precision fp16 is not supported on %s; use bf16",
                       backend);
    case BRIM_PRECISION_COUNT:
      break;
  }
  return brim_fail(BRIM_EINVAL, "precision %d is not known", (int)precision);
}

//---------------------------------- spec ----------------------------------

static brim_status check_sizes(const brim_net_spec *s) {
  const int64_t max_rows = 1 << 28, max_outputs = 1 << 24;
  if (s->batch < 1 || s->batch > max_rows) {
    return brim_fail(BRIM_EINVAL, "the batch size is %" PRId64 ", expected 1 to %" PRId64, s->batch,
                     max_rows);
  }
  if (s->eval_batch < 0 || s->eval_batch > max_rows) {
    return brim_fail(BRIM_EINVAL,
                     "the evaluation batch size is %" PRId64 ", expected 0 to %" PRId64,
                     s->eval_batch, max_rows);
  }
  if (s->accumulation < 1 || s->accumulation > max_rows) {
    return brim_fail(BRIM_EINVAL, "accumulation is %" PRId64 ", expected 1 to %" PRId64,
                     s->accumulation, max_rows);
  }
  int64_t outputs = s->classes > 0 ? s->classes : s->target_dim;
  if (s->classes < 0 || outputs < 1 || outputs > max_outputs) {
    return brim_fail(BRIM_EINVAL, "the network has %" PRId64 " outputs, expected 1 to %" PRId64,
                     outputs, max_outputs);
  }
  return BRIM_OK;
}

static brim_status check_spec(const brim_net_spec *s, int64_t *features) {
  if (!s->model || !s->loss || !s->optimizer) {
    return brim_fail(BRIM_EINVAL, "a network needs a model, a loss and an optimizer");
  }
  BRIM_TRY(check_sizes(s));
  if (s->input_dtype != BRIM_U8 && s->input_dtype != BRIM_F32) {
    return brim_fail(BRIM_EINVAL, "inputs are %s, expected u8 or f32",
                     brim_dtype_name(s->input_dtype));
  }
  if (s->input_rank < 1 || s->input_rank > 4) {
    return brim_fail(BRIM_EINVAL, "samples have rank %d, expected 1 to 4", (int)s->input_rank);
  }
  *features = 1;
  for (int i = 0; i < s->input_rank; i++) {
    if (s->input_dim[i] < 1 || __builtin_mul_overflow(*features, s->input_dim[i], features) ||
        *features > (1 << 30)) {
      return brim_fail(BRIM_EINVAL,
                       "dimension %d of a sample is %" PRId64 ", which is not possible", i,
                       s->input_dim[i]);
    }
  }
  if (s->channels < 1 || s->channels > 4 || *features % s->channels != 0) {
    return brim_fail(BRIM_EINVAL, "%d channels do not divide samples of %" PRId64 " values",
                     (int)s->channels, *features);
  }
  if (!(s->clip_norm >= 0)) {
    return brim_fail(BRIM_EINVAL, "the clipping norm is %g, expected 0 or more", s->clip_norm);
  }
  if (s->seed >= UINT64_C(1) << 53) {
    return brim_fail(BRIM_EINVAL, "the seed is %" PRIu64 ", expected less than 2^53", s->seed);
  }
  return BRIM_OK;
}

//---------------------------------- programs ----------------------------------

// Model, loss and (for training) backward of one batch size.
static brim_status build_graph(brim_net *net, const brim_net_spec *spec, int64_t rows,
                               bool training, brim_program *p) {
  brim_graph *g = &p->graph;
  brim_device *fusing = net->hooks.no_fusion ? NULL : net->device;
  BRIM_TRY(brim_graph_init(g, &net->params, fusing, net->compute, training));
  brim_op loss;
  brim_op_attr loss_attr, input = {.channels = spec->channels};
  BRIM_TRY(brim_loss_attr(spec->loss, net->classes, &loss, &loss_attr));
  memcpy(input.scale, spec->scale, sizeof input.scale);
  memcpy(input.shift, spec->shift, sizeof input.shift);
  int64_t features = (int64_t)(net->input_row_bytes / brim_dtype_size(spec->input_dtype));
  int64_t raw_dim[] = {rows, features}, target_dim[] = {rows, net->outputs_per_row};
  brim_tensor raw = brim_tensor_make(NULL, spec->input_dtype, 2, raw_dim);
  int32_t x = brim_graph_input(g, &raw, &input);
  if (net->hooks.model) {
    p->output = net->hooks.model(net->hooks.model_ctx, g, x, net->outputs_per_row);
  } else {
    BRIM_TRY(brim_model_build(g, spec->model, x, net->outputs_per_row, &p->output));
  }
  int32_t target =
      brim_graph_tensor(g, "target", BRIM_TENSOR_TARGET, net->classes ? BRIM_I32 : BRIM_F32,
                        net->classes ? 1 : 2, target_dim);
  if (!training && !g->status) g->tensors[p->output].keep = true;
  BRIM_TRY(brim_graph_fuse(g));
  BRIM_TRY(brim_graph_forward(g));
  BRIM_TRY(brim_graph_loss(g, loss, &loss_attr, p->output, target));
  p->forward_count = g->node_count;
  if (training) BRIM_TRY(brim_graph_backward(g));
  return brim_arena_plan_make(g, !net->hooks.no_reuse, &p->places);
}

static bool writes_param_grad(const brim_graph *g, const brim_gnode *node) {
  for (int i = 0; i < node->out_count; i++) {
    if (node->out[i] >= 0 && g->tensors[node->out[i]].kind == BRIM_TENSOR_PARAM_GRAD) return true;
  }
  return false;
}

static brim_status prepare(brim_net *net, brim_op_call *call) {
  brim_status status = brim_op_prepare(net->device, call);
  if (status) {
    return brim_fail_context(status, "%s in %s", brim_op_name(call->op),
                             brim_precision_name(net->precision));
  }
  size_t bytes = (call->workspace_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  if (bytes > net->blocks[BRIM_BLOCK_WORKSPACE].bytes) {
    net->blocks[BRIM_BLOCK_WORKSPACE].bytes = bytes;
  }
  return BRIM_OK;
}

static brim_status prepare_program(brim_net *net, brim_program *p) {
  const brim_graph *g = &p->graph;
  size_t n = (size_t)g->node_count;
  bool adding = g->training && net->accumulation > 1;
  p->calls = brim_calloc(n, sizeof *p->calls);
  if (adding) p->adding = brim_calloc(n, sizeof *p->adding);
  if (adding) p->adding_node = brim_calloc(n, sizeof *p->adding_node);
  if (!p->calls || (adding && (!p->adding || !p->adding_node))) {
    return brim_fail(BRIM_ENOMEM, "out of memory while preparing the calls");
  }
  for (int32_t i = 0; i < g->node_count; i++) {
    brim_graph_call(g, &g->nodes[i], &p->calls[i]);
    BRIM_TRY(prepare(net, &p->calls[i]));
    p->prepared++;
    // A node that adds anyway (a shared parameter) does so in both passes.
    if (!adding || g->nodes[i].attr.accumulate || !writes_param_grad(g, &g->nodes[i])) continue;
    brim_op_call *call = &p->adding[p->adding_count];
    p->adding_node[p->adding_count++] = i;
    brim_graph_call(g, &g->nodes[i], call);
    call->attr.accumulate = true;
    BRIM_TRY(prepare(net, call));
    p->adding_prepared++;
  }
  return BRIM_OK;
}

//---------------------------------- optimiser ----------------------------------

static brim_status prepare_optimizer(brim_net *net, const brim_op_attr *attr) {
  const int64_t total = net->params.total, none = 0, two = 2, states = BRIM_STATE_COUNT;
  brim_tensor flat = brim_tensor_make(NULL, net->master, 1, &total);
  brim_tensor empty = brim_tensor_make(NULL, net->master, 1, &none);
  brim_tensor norm = brim_tensor_make(NULL, net->master, 1, &two);
  brim_tensor copy = brim_tensor_make(NULL, net->compute, 1, &total);
  bool copied = net->compute != net->master;
  net->norm_call =
      (brim_op_call){.op = BRIM_OP_GRAD_NORM, .in_count = 1, .out_count = 1, .in = {flat}};
  net->norm_call.out[0] = norm;
  BRIM_TRY(prepare(net, &net->norm_call));
  net->optimizer_prepared++;
  brim_op_call *c = &net->optimizer_call;
  *c = (brim_op_call){.op = BRIM_OP_OPTIMIZER, .in_count = 3, .attr = *attr};
  c->in[0] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  c->in[1] = norm;
  c->in[2] = flat;
  c->out_count = copied ? 4 : 3;
  c->out[0] = flat;
  c->out[1] = net->slots > 0 ? flat : empty;
  c->out[2] = net->slots > 1 ? flat : empty;
  if (copied) c->out[3] = copy;
  BRIM_TRY(prepare(net, c));
  net->optimizer_prepared++;
  if (!copied) return BRIM_OK;
  net->cast_call = (brim_op_call){.op = BRIM_OP_CAST, .in_count = 1, .out_count = 1, .in = {flat}};
  net->cast_call.out[0] = copy;
  BRIM_TRY(prepare(net, &net->cast_call));
  net->optimizer_prepared++;
  return BRIM_OK;
}

//---------------------------------- blocks ----------------------------------

static size_t round_up(size_t bytes) { return (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN; }

static void size_blocks(brim_net *net) {
  brim_block *b = net->blocks;
  size_t flat = brim_net_flat_bytes(net);
  size_t total = (size_t)net->params.total;
  b[BRIM_BLOCK_PARAMS].bytes = flat;
  b[BRIM_BLOCK_COPY].bytes =
      net->compute != net->master ? round_up(total * brim_dtype_size(net->compute)) : 0;
  b[BRIM_BLOCK_GRADS].bytes = flat;
  b[BRIM_BLOCK_OPTIMIZER].bytes = flat * (size_t)net->slots;
  size_t train = net->train.places.bytes, eval = net->eval.places.bytes;
  b[BRIM_BLOCK_ARENA].bytes = train > eval ? train : eval;
  size_t rows = (size_t)(net->batch > net->eval_batch ? net->batch : net->eval_batch);
  if (!net->device->info.host_memory) {
    b[BRIM_BLOCK_INPUT].bytes =
        round_up(rows * net->input_row_bytes) + round_up(rows * net->target_row_bytes);
  }
  b[BRIM_BLOCK_STATE].bytes =
      256 + round_up((size_t)BRIM_NORM_RING * 2 * brim_dtype_size(net->master));
}

static brim_status make_info(brim_net *net) {
  net->info = brim_calloc(net->params.count, sizeof *net->info);
  if (!net->info) return brim_fail(BRIM_ENOMEM, "out of memory for the parameter table");
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    net->info[i] = (brim_net_param){.name = p->name, .rank = p->desc.rank, .count = p->count};
    memcpy(net->info[i].dim, p->desc.dim, sizeof net->info[i].dim);
  }
  return BRIM_OK;
}

brim_status brim_net_build(brim_device *device, const brim_net_spec *spec,
                           const brim_net_hooks *hooks, brim_net **out) {
  *out = NULL;
  int64_t features = 0;
  brim_op_attr optimizer;
  BRIM_TRY(check_spec(spec, &features));
  BRIM_TRY(check_precision(device, spec->precision));
  BRIM_TRY(brim_optimizer_attr(spec->optimizer, &optimizer));
  brim_net *net = brim_calloc(1, sizeof *net);
  if (!net) return brim_fail(BRIM_ENOMEM, "out of memory for the network");
  *out = net;
  net->device = device;
  if (hooks) net->hooks = *hooks;
  net->precision = spec->precision;
  net->compute = net->hooks.f64 ? BRIM_F64 : precisions[spec->precision].dtype;
  net->master = net->hooks.f64 ? BRIM_F64 : BRIM_F32;
  net->batch = spec->batch;
  net->eval_batch = spec->eval_batch > 0 ? spec->eval_batch : spec->batch;
  net->accumulation = spec->accumulation;
  net->classes = spec->classes > 0;
  net->outputs_per_row = net->classes ? spec->classes : spec->target_dim;
  net->clip_norm = spec->clip_norm;
  net->seed = spec->seed;
  net->input_row_bytes = (size_t)features * brim_dtype_size(spec->input_dtype);
  net->target_row_bytes =
      net->classes ? sizeof(int32_t) : (size_t)net->outputs_per_row * sizeof(float);
  net->slots = brim_optimizer_slots(&optimizer);
  BRIM_TRY(brim_params_init(&net->params, net->master, net->compute));
  BRIM_TRY(build_graph(net, spec, net->batch, true, &net->train));
  BRIM_TRY(build_graph(net, spec, net->eval_batch, false, &net->eval));
  BRIM_TRY(make_info(net));
  BRIM_TRY(prepare_program(net, &net->train));
  BRIM_TRY(prepare_program(net, &net->eval));
  BRIM_TRY(prepare_optimizer(net, &optimizer));
  size_blocks(net);
  return BRIM_OK;
}

//---------------------------------- plan ----------------------------------

static const char *const row_names[BRIM_BLOCK_COUNT] = {
    [BRIM_BLOCK_PARAMS] = BRIM_N_("parameters"),
    [BRIM_BLOCK_COPY] = BRIM_N_("16-bit copy"),
    [BRIM_BLOCK_GRADS] = BRIM_N_("gradients"),
    [BRIM_BLOCK_OPTIMIZER] = BRIM_N_("optimizer state"),
    [BRIM_BLOCK_ARENA] = BRIM_N_("activations"),
    [BRIM_BLOCK_WORKSPACE] = BRIM_N_("workspace"),
    [BRIM_BLOCK_INPUT] = BRIM_N_("inputs"),
    [BRIM_BLOCK_STATE] = BRIM_N_("state and metrics"),
};

static void add_cost(const brim_op_call *call, double times, brim_plan *plan) {
  double flops = 0, bytes = 0;
  brim_op_cost(call, &flops, &bytes);
  plan->flops_per_step += flops * times;
  plan->bytes_per_step += bytes * times;
}

void brim_net_fill_plan(const brim_net *net, brim_plan *plan) {
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    uint64_t bytes = net->blocks[i].bytes;
    if (bytes == 0 || plan->row_count == BRIM_PLAN_MAX_ROWS) continue;
    plan->rows[plan->row_count++] =
        (brim_plan_row){.name = row_names[i], .place = BRIM_PLACE_DEVICE, .bytes = bytes};
    plan->bytes[BRIM_PLACE_DEVICE] += bytes;
  }
  const brim_program *p = &net->train;
  double passes = (double)net->accumulation;
  for (int32_t i = 0; i < p->prepared; i++) add_cost(&p->calls[i], passes, plan);
  for (int32_t i = 0; i < p->adding_prepared; i++) {
    add_cost(&p->adding[i], passes - 1, plan);
    add_cost(&p->calls[p->adding_node[i]], 1 - passes, plan);
  }
  add_cost(&net->norm_call, 1, plan);
  add_cost(&net->optimizer_call, 1, plan);
  plan->samples_per_step = (double)net->batch * passes;
  for (size_t i = 0; i < net->params.count; i++) {
    plan->parameter_count += (uint64_t)net->params.items[i].count;
  }
}

brim_status brim_net_plan(brim_device *device, const brim_net_spec *spec, brim_plan *plan) {
  brim_net *net;
  brim_status status = brim_net_build(device, spec, NULL, &net);
  if (!status) brim_net_fill_plan(net, plan);
  brim_net_destroy(net);
  return status;
}
