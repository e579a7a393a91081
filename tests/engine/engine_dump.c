// One training step of a network, written to a file. Given a model, weights and a batch as safetensors files, it writes
// the outputs of evaluation, the outputs and the loss of the training forward and every gradient to another file, and
// the checkpoint after the step. Not a test on its own: benchmarks/compare/agree.py compares its files with PyTorch's.
//   batch.safetensors: x (N, sample) F32; y (N) I32 or I64 labels, or (N, targets) F32; none: ntxent
//   out.safetensors: outputs.eval, outputs.train, loss (1), correct (1), grad.<parameter>, and for
//     the k-th ReLU of the training forward mask.<k>, U8: 1 where its output is above 0; for the
//     k-th maximum over windows place.<k>, U8: which of its window it took
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "engine/engine_int.h"

static const brim_option table[] = {
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "ref, cpu, cuda"},
    {.name = "threads", .kind = BRIM_OPTION_INT, .help = "of CPU devices; 0 = all"},
    {.name = "model", .kind = BRIM_OPTION_STRING, .help = "'resnet18(stem=cifar)'"},
    {.name = "classes", .kind = BRIM_OPTION_INT, .help = "outputs; labels lie below"},
    {.name = "precision", .kind = BRIM_OPTION_STRING, .help = "fp32, tf32, bf16, fp16"},
    {.name = "weights", .kind = BRIM_OPTION_STRING, .help = "safetensors file to start from"},
    {.name = "batch", .kind = BRIM_OPTION_STRING, .help = "safetensors file with x and y"},
    {.name = "out", .kind = BRIM_OPTION_STRING, .help = "safetensors file to write"},
    {.name = "checkpoint", .kind = BRIM_OPTION_STRING, .help = "weights after the step's forward"},
    {.name = "eager", .kind = BRIM_OPTION_FLAG, .help = "op by op: nothing fused or recorded"},
    {.name = "recompute", .kind = BRIM_OPTION_FLAG, .help = "recompute all activations"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

typedef struct dump {
  const brim_option_parse *parse;
  brim_arena *arena;
  brim_device *device;
  brim_safetensors *batch_file;
  brim_net_spec spec;
  brim_component loss, optimizer;
  brim_batch batch;
  void *input, *target;
  // The tensors to write.
  brim_safetensors_entry *entries;
  size_t count, capacity;
} dump;

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a step"); }

//---------------------------------- reading ----------------------------------

static brim_status read_input(dump *d) {
  const brim_safetensors_entry *x = brim_safetensors_find(d->batch_file, "x");
  if (!x || x->dtype != BRIM_F32 || x->rank < 2 || x->rank > 5) {
    return brim_fail(BRIM_EINVAL, "the batch has no entry x of type F32 and rank 2 to 5");
  }
  brim_net_spec *s = &d->spec;
  s->batch = x->dim[0];
  s->input_dtype = BRIM_F32;
  s->input_rank = x->rank - 1;
  for (int i = 1; i < x->rank; i++) s->input_dim[i - 1] = x->dim[i];
  s->channels = 1;
  s->scale[0] = 1;
  d->input = brim_alloc(x->bytes);
  if (!d->input) return no_memory();
  memcpy(d->input, x->data, x->bytes);
  return BRIM_OK;
}

static brim_status read_labels(dump *d, const brim_safetensors_entry *y) {
  if (y->rank != 1 || (y->dtype != BRIM_I32 && y->dtype != BRIM_I64)) {
    return brim_fail(BRIM_EINVAL, "labels are an entry y of rank 1 and type I32 or I64");
  }
  int32_t *labels = brim_calloc((size_t)y->dim[0], sizeof *labels);
  d->target = labels;
  if (!labels) return no_memory();
  for (int64_t i = 0; i < y->dim[0]; i++) {
    int64_t wide;
    if (y->dtype == BRIM_I32) {
      memcpy(&labels[i], (const char *)y->data + i * 4, 4);
    } else {
      memcpy(&wide, (const char *)y->data + i * 8, 8);
      labels[i] = (int32_t)wide;
    }
  }
  return BRIM_OK;
}

// The target: labels with --classes, two views without y, otherwise values.
static brim_status read_target(dump *d) {
  brim_net_spec *s = &d->spec;
  const brim_safetensors_entry *y = brim_safetensors_find(d->batch_file, "y");
  s->classes = y ? brim_option_int(d->parse, "classes", 0) : 0;
  s->views = 1;
  if (y && y->dim[0] != s->batch) {
    return brim_fail(BRIM_EINVAL, "x and y have different numbers of rows");
  }
  if (s->classes > 0) {
    d->loss.name = "cross_entropy";
    return read_labels(d, y);
  }
  if (!y) {
    d->loss.name = "ntxent";
    s->views = 2;
    s->batch /= 2;
    s->target_dim = brim_option_int(d->parse, "classes", 128);
    return BRIM_OK;
  }
  if (y->rank != 2 || y->dtype != BRIM_F32) {
    return brim_fail(BRIM_EINVAL, "values are an entry y of rank 2 and type F32");
  }
  d->loss.name = "mse";
  s->target_dim = y->dim[1];
  d->target = brim_alloc(y->bytes);
  if (!d->target) return no_memory();
  memcpy(d->target, y->data, y->bytes);
  return BRIM_OK;
}

static brim_status read_spec(dump *d) {
  brim_net_spec *s = &d->spec;
  const char *text = brim_option_string(d->parse, "model", "resnet18");
  brim_pipeline models;
  BRIM_TRY(brim_config_parse_expression(d->arena, text, "--model", &models));
  if (models.count != 1) return brim_fail(BRIM_EINVAL, "--model is '%s', expected one", text);
  s->model = &models.items[0];
  BRIM_TRY(brim_safetensors_open(brim_option_string(d->parse, "batch", "batch.safetensors"),
                                 &d->batch_file));
  BRIM_TRY(read_input(d));
  BRIM_TRY(read_target(d));
  d->optimizer.name = "sgd";
  s->optimizer = &d->optimizer;
  s->loss = &d->loss;
  s->accumulation = 1;
  s->eager = brim_option_flag(d->parse, "eager", false);
  s->recompute =
      brim_option_flag(d->parse, "recompute", false) ? BRIM_RECOMPUTE_ALL : BRIM_RECOMPUTE_NONE;
  const char *precision = brim_option_string(d->parse, "precision", "fp32");
  if (!brim_precision_parse(precision, &s->precision)) {
    return brim_fail(BRIM_EINVAL, "precision '%s' is not known", precision);
  }
  d->batch = (brim_batch){.input = d->input, .target = d->target, .rows = s->batch * s->views};
  return BRIM_OK;
}

//---------------------------------- results ----------------------------------

// Room for one more entry; NULL if there is none.
static void *add_entry(dump *d, const char *name, brim_dtype dtype, int32_t rank,
                       const int64_t *dim) {
  if (!name || d->count == d->capacity) return NULL;
  brim_safetensors_entry *e = &d->entries[d->count];
  *e = (brim_safetensors_entry){.name = name, .dtype = dtype, .rank = rank};
  size_t values = 1;
  for (int i = 0; i < rank; i++) {
    e->dim[i] = dim[i];
    values *= (size_t)dim[i];
  }
  e->bytes = values * brim_dtype_size(dtype);
  void *data = brim_alloc(e->bytes);
  if (!data) return NULL;
  e->data = data;
  d->count++;
  return data;
}

static float *add_outputs(dump *d, const brim_net *net, const char *name) {
  int64_t dim[] = {d->batch.rows, net->outputs_per_row};
  return add_entry(d, name, BRIM_F32, 2, dim);
}

static brim_status train(dump *d, brim_net *net) {
  brim_net_micro micro = {.batch = d->batch, .step = 1, .step_rows = d->batch.rows, .first = true};
  return brim_net_train(net, &micro, NULL);
}

static brim_status add_gradients(dump *d, brim_net *net) {
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    char *name = brim_arena_printf(d->arena, "grad.%s", p->name);
    float *out = add_entry(d, name, BRIM_F32, p->rank, p->dim);
    if (!out) return no_memory();
    BRIM_TRY(brim_net_grad_read(net, i, out));
  }
  return BRIM_OK;
}

// Evaluation comes first: the training forward moves the running statistics.
static brim_status run_step(dump *d, brim_net *net) {
  const int64_t one = 1;
  brim_net_metrics m;
  float *outputs = add_outputs(d, net, "outputs.eval");
  float *loss = add_entry(d, "loss", BRIM_F32, 1, &one);
  float *correct = add_entry(d, "correct", BRIM_F32, 1, &one);
  if (!outputs || !loss || !correct) return no_memory();
  BRIM_TRY(brim_net_evaluate(net, &d->batch, NULL));
  BRIM_TRY(brim_net_outputs(net, outputs, d->batch.rows));
  BRIM_TRY(brim_net_read_metrics(net, true, &m));
  BRIM_TRY(train(d, net));
  BRIM_TRY(brim_net_read_metrics(net, true, &m));
  // Losses of two views are counted per sample.
  *loss = (float)(m.loss_sum / m.rows);
  *correct = (float)m.correct;
  BRIM_TRY(add_gradients(d, net));
  const char *path = brim_option_string(d->parse, "checkpoint", NULL);
  return path ? brim_net_save(net, path, NULL, true) : BRIM_OK;
}

// Reads a tensor of the forward pass after the step.
static brim_status read_tensor(const dump *d, const brim_net *net, int32_t tensor, void *out) {
  BRIM_TRY(brim_device_copy(
      d->device, out, net->blocks[BRIM_BLOCK_ARENA].data + net->train.places.offset[tensor],
      brim_tensor_bytes(&net->train.graph.tensors[tensor].desc), BRIM_COPY_D2H));
  return brim_device_sync(d->device);
}

static brim_status add_mask(dump *d, const brim_net *net, int32_t tensor, int number) {
  const brim_tensor *t = &net->train.graph.tensors[tensor].desc;
  if (t->dtype != BRIM_F32) return brim_fail(BRIM_EUNSUPPORTED, "masks need fp32");
  const char *name = brim_arena_printf(d->arena, "mask.%d", number);
  unsigned char *mask = add_entry(d, name, BRIM_U8, t->rank, t->dim);
  float *values = mask ? brim_alloc(brim_tensor_bytes(t)) : NULL;
  if (!values) return no_memory();
  brim_status status = read_tensor(d, net, tensor, values);
  int64_t count = status ? 0 : brim_tensor_count(t);
  for (int64_t i = 0; i < count; i++) mask[i] = values[i] > 0;
  brim_free(values);
  return status;
}

static brim_status add_places(dump *d, const brim_net *net, int32_t tensor, int number) {
  const brim_tensor *t = &net->train.graph.tensors[tensor].desc;
  const char *name = brim_arena_printf(d->arena, "place.%d", number);
  void *places = add_entry(d, name, t->dtype, t->rank, t->dim);
  return places ? read_tensor(d, net, tensor, places) : no_memory();
}

// Rounding may decide whether a gradient passes a ReLU, or which input of a maximum gets it. A comparison of gradients
// needs these choices.
static brim_status add_decisions(dump *d, const brim_net *net) {
  int masks = 0, places = 0;
  for (int32_t i = 0; i < net->train.forward_count; i++) {
    const brim_gnode *node = &net->train.graph.nodes[i];
    if (node->attr.act == BRIM_ACT_RELU) BRIM_TRY(add_mask(d, net, node->out[0], masks++));
    if (node->op == BRIM_OP_MAXPOOL) BRIM_TRY(add_places(d, net, node->out[1], places++));
  }
  return BRIM_OK;
}

// The arena reuses the memory of the outputs, so they come from a second network whose tensors do not share memory.
static brim_status read_train_outputs(dump *d, brim_net *net) {
  const brim_program *p = &net->train;
  float *out = add_outputs(d, net, "outputs.train");
  if (!out) return no_memory();
  BRIM_TRY(train(d, net));
  BRIM_TRY(read_tensor(d, net, p->output, out));
  return add_decisions(d, net);
}

static brim_status with_net(dump *d, const brim_net_hooks *hooks,
                            brim_status (*what)(dump *, brim_net *)) {
  brim_net *net = NULL;
  brim_status status = brim_net_create_hooked(d->device, &d->spec, hooks, &net);
  const char *weights = brim_option_string(d->parse, "weights", NULL);
  if (!status && weights) status = brim_net_load(net, weights, true, NULL);
  if (!status && !d->entries) {
    d->capacity = brim_net_param_count(net) + 4 + (size_t)net->train.forward_count;
    d->entries = brim_calloc(d->capacity, sizeof *d->entries);
    if (!d->entries) status = no_memory();
  }
  if (!status) status = what(d, net);
  brim_net_destroy(net);
  return status;
}

//---------------------------------- main ----------------------------------

static brim_status run(dump *d, const brim_registry *registry) {
  BRIM_TRY(read_spec(d));
  brim_device_options how = {.threads = (int)brim_option_int(d->parse, "threads", 0)};
  BRIM_TRY(
      brim_device_open(registry, brim_option_string(d->parse, "device", "auto"), &how, &d->device));
  BRIM_TRY(with_net(d, NULL, run_step));
  brim_net_hooks apart = {.no_reuse = true};
  if (d->spec.precision < BRIM_PRECISION_BF16) BRIM_TRY(with_net(d, &apart, read_train_outputs));
  return brim_safetensors_write(brim_option_string(d->parse, "out", "out.safetensors"), d->entries,
                                d->count, NULL);
}

static void deinit(dump *d) {
  for (size_t i = 0; i < d->count; i++) brim_free((void *)(uintptr_t)d->entries[i].data);
  brim_free(d->entries);
  brim_free(d->input);
  brim_free(d->target);
  brim_safetensors_close(d->batch_file);
  brim_device_close(d->device);
  brim_arena_destroy(d->arena);
}

int main(int argc, char **argv) {
  brim_json_setup();  // must come before jansson's first allocation
  brim_option_parse parse;
  if (brim_option_parse_args(tables, argc - 1, (const char *const *)(argv + 1), &parse)) {
    fprintf(stderr, "engine_dump: %s\n", brim_status_detail());
    return 2;
  }
  dump d = {.parse = &parse};
  brim_registry *registry = NULL;
  brim_status status = brim_arena_create(0, &d.arena);
  if (!status) status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load_default(registry);
  if (!status) status = run(&d, registry);
  if (status) fprintf(stderr, "engine_dump: %s\n", brim_status_detail());
  deinit(&d);
  brim_registry_destroy(registry);
  brim_option_parse_deinit(&parse);
  return status ? 1 : 0;
}
