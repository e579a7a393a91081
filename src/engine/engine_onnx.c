// The ONNX file: weights out of a checkpoint, the graph's nodes, and the bytes around them.
#include "engine/engine_onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base_fs.h"
#include "engine/engine_onnx_int.h"

// Protobuf's own limit for one message.
static const uint64_t max_bytes = (uint64_t)INT32_MAX;

//---------------------------------- the file ----------------------------------

// TensorProto {dims 1, data_type 2, name 8, raw_data 9}, without the data.
static void tensor_head(const brim_onnx_tensor *t, brim_str *out) {
  for (int i = 0; i < t->rank; i++) brim_proto_int(out, 1, t->dim[i]);
  brim_proto_int(out, 2, t->type);
  brim_proto_text(out, 8, t->name);
  brim_proto_head(out, 9, t->bytes);
}

static void put_input(const brim_onnx *x, brim_str *graph, brim_onnx_info *info) {
  const brim_net_spec *s = x->spec;
  const int64_t *sample = brim_eval_dim(s);
  int64_t dim[5] = {x->options->batch};
  for (int i = 0; i < s->input_rank; i++) dim[i + 1] = sample[i];
  if (s->input_rank == 3 && !x->options->nhwc) {
    dim[1] = sample[2];
    dim[2] = sample[0];
    dim[3] = sample[1];
  }
  bool bytes = x->options->normalize && s->input_dtype == BRIM_U8;
  brim_proto_value(graph, 11, "input", bytes ? BRIM_ONNX_UINT8 : BRIM_ONNX_FLOAT, s->input_rank + 1,
                   dim);
  info->input_dtype = bytes ? BRIM_U8 : BRIM_F32;
  info->input_rank = s->input_rank;
  memcpy(info->input_dim, dim + 1, sizeof info->input_dim);
}

// What stands around the graph. ModelProto {ir_version 1, producer_name 2, producer_version 3,
// opset_import 8, metadata_props 14}
static void put_model(const brim_onnx *x, brim_str *out) {
  int opset = x->options->opset;
  brim_str inner;
  brim_str_init(&inner);
  brim_proto_int(out, 1, opset < 15 ? 7 : opset < 19 ? 8 : opset < 21 ? 9 : 10);
  brim_proto_text(out, 2, "brim");
  brim_proto_text(out, 3, BRIM_VERSION);
  brim_proto_text(&inner, 1, "");  // OperatorSetIdProto {domain 1, version 2}
  brim_proto_int(&inner, 2, opset);
  brim_proto_message(out, 8, &inner);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)x->options->metadata, key, value) {
    if (!json_is_string(value)) continue;
    brim_proto_text(&inner, 1, key);
    brim_proto_text(&inner, 2, json_string_value(value));
    brim_proto_message(out, 14, &inner);
  }
  brim_str_deinit(&inner);
}

// GraphProto {node 1, name 2, initializer 5, input 11, output 12}: the weights go from the mapped
// checkpoint to the file, so only lengths are counted beforehand.
static brim_status write_weights(const brim_onnx *x, brim_fs_writer *w) {
  brim_str head, tensor;
  brim_str_init(&head);
  brim_str_init(&tensor);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < x->tensor_count && !status; i++) {
    const brim_onnx_tensor *t = &x->tensors[i];
    brim_str_clear(&tensor);
    brim_str_clear(&head);
    tensor_head(t, &tensor);
    brim_proto_head(&head, 5, tensor.len + t->bytes);
    brim_str_append_n(&head, tensor.data, tensor.len);
    status = brim_str_status(&tensor);
    if (!status) status = brim_str_status(&head);
    if (!status) status = brim_fs_writer_write(w, head.data, head.len);
    if (!status) status = brim_fs_writer_write(w, t->data, t->bytes);
  }
  brim_str_deinit(&head);
  brim_str_deinit(&tensor);
  return status;
}

static brim_status weights_bytes(const brim_onnx *x, uint64_t *out) {
  uint64_t bytes = 0;
  brim_str head, tensor;
  brim_str_init(&head);
  brim_str_init(&tensor);
  for (size_t i = 0; i < x->tensor_count; i++) {
    brim_str_clear(&tensor);
    brim_str_clear(&head);
    tensor_head(&x->tensors[i], &tensor);
    brim_proto_head(&head, 5, tensor.len + x->tensors[i].bytes);
    bytes += head.len + tensor.len + x->tensors[i].bytes;
  }
  brim_status status = brim_str_status(&tensor);
  if (!status) status = brim_str_status(&head);
  brim_str_deinit(&head);
  brim_str_deinit(&tensor);
  *out = bytes;
  return status;
}

static brim_status write_file(const brim_onnx *x, const char *path, const brim_str *graph,
                              brim_onnx_info *info) {
  brim_fs_writer *w = NULL;
  brim_str head;
  uint64_t graph_bytes;
  BRIM_TRY(weights_bytes(x, &graph_bytes));
  graph_bytes += graph->len;
  brim_str_init(&head);
  put_model(x, &head);
  brim_proto_head(&head, 7, graph_bytes);  // ModelProto {graph 7}
  info->bytes = head.len + graph_bytes;
  brim_status status = brim_str_status(&head);
  if (!status && info->bytes > max_bytes) {
    status = brim_fail(BRIM_ELIMIT,
                       "%s: the model needs %" PRIu64 " bytes, but an ONNX file holds at most 2 GB",
                       path, info->bytes);
  }
  if (!status) status = brim_fs_writer_open(path, &w);
  if (!status) status = brim_fs_writer_write(w, head.data, head.len);
  if (!status) status = brim_fs_writer_write(w, graph->data, graph->len);
  if (!status) status = write_weights(x, w);
  brim_str_deinit(&head);
  if (status) {
    brim_fs_writer_abort(w);
    return status;
  }
  return brim_fs_writer_commit(w);
}

//---------------------------------- building ----------------------------------

// What the encoder of simclr outputs: what its projector's first layer reads. -1 = another model.
static int32_t features_of(const brim_onnx *x) {
  if (strcmp(x->spec->model->name, "simclr") != 0) return -1;
  for (int32_t i = 0; i < x->g->layer_count; i++) {
    if (strcmp(x->g->layers[i].name, "projector.0") == 0) return x->g->layers[i].in[0];
  }
  return -1;
}

static void put_output(brim_onnx *x, int32_t tensor, const char *name, brim_str *graph,
                       brim_onnx_info *info) {
  const brim_tensor *t = &x->g->tensors[tensor].desc;
  int64_t dim[] = {x->options->batch, t->dim[t->rank - 1]};
  brim_onnx_output(x, tensor, name);
  brim_proto_value(graph, 12, name, BRIM_ONNX_FLOAT, 2, dim);
  info->output[info->output_count] = name;
  info->width[info->output_count++] = dim[1];
}

static brim_status export_graph(brim_onnx *x, int32_t output, const char *path,
                                brim_onnx_info *info) {
  brim_str graph;
  brim_str_init(&graph);
  brim_proto_text(&graph, 2, x->options->name ? x->options->name : x->spec->model->name);
  put_input(x, &graph, info);
  brim_onnx_layers(x);
  int32_t features = features_of(x);
  if (features >= 0) put_output(x, features, "features", &graph, info);
  bool logits = x->spec->classes > 0 || x->options->logits;
  const char *name = features >= 0 ? "projection" : logits ? "logits" : "output";
  put_output(x, output, name, &graph, info);
  brim_status status = x->status;
  brim_str_append_n(&graph, x->nodes.data, x->nodes.len);
  if (!status) status = brim_str_status(&x->nodes);
  if (!status) status = brim_str_status(&graph);
  if (!status) status = write_file(x, path, &graph, info);
  brim_str_deinit(&graph);
  info->nodes = x->node_count;
  info->ema = x->ema;
  if (x->ema && x->plain) brim_engine_warn_statistics(x->spec->model->name);
  for (size_t i = 0; i < x->tensor_count; i++) {
    if (brim_str_starts(x->tensors[i].name, "constant_")) continue;
    info->weights++;
    if (strstr(x->tensors[i].name, "running_")) continue;  // statistics are not trained
    info->parameters += (int64_t)(x->tensors[i].bytes / sizeof(float));
  }
  return status;
}

static brim_status fill(brim_onnx *x, int32_t output, const char *path, brim_onnx_info *info) {
  const brim_graph *g = x->g;
  BRIM_TRY(brim_arena_create(0, &x->arena));
  x->value = brim_arena_calloc(x->arena, (size_t)g->tensor_count, sizeof *x->value);
  x->param_at = brim_arena_calloc(x->arena, g->params->count + 1, sizeof *x->param_at);
  x->buffer_at = brim_arena_calloc(x->arena, g->buffers->count + 1, sizeof *x->buffer_at);
  if (!x->value || !x->param_at || !x->buffer_at) {
    brim_onnx_no_memory(x);
    return x->status;
  }
  for (size_t i = 0; i < g->params->count; i++) x->param_at[i] = -1;
  for (size_t i = 0; i < g->buffers->count; i++) x->buffer_at[i] = -1;
  return export_graph(x, output, path, info);
}

static brim_status check(const brim_net_spec *s, const brim_onnx_options *o) {
  if (o->opset < BRIM_ONNX_OPSET_MIN || o->opset > BRIM_ONNX_OPSET_MAX) {
    return brim_fail(BRIM_EINVAL, "opset %d: brim writes %d to %d", o->opset, BRIM_ONNX_OPSET_MIN,
                     BRIM_ONNX_OPSET_MAX);
  }
  if (!s->model || s->input_rank < 1 || s->input_rank > 4 || o->batch < 0) {
    return brim_fail(BRIM_EINVAL, "an ONNX graph needs a model and the shape of its samples");
  }
  return BRIM_OK;
}

brim_status brim_onnx_export(const brim_net_spec *spec, const brim_safetensors *weights,
                             const brim_onnx_options *options, const char *path,
                             brim_onnx_info *out) {
  memset(out, 0, sizeof *out);
  BRIM_TRY(check(spec, options));
  brim_params params, buffers;
  brim_graph g;
  memset(&g, 0, sizeof g);
  memset(&buffers, 0, sizeof buffers);
  brim_sample sample = brim_sample_of(spec, 1, false);
  int64_t outputs = spec->classes > 0 ? spec->classes : spec->target_dim;
  int32_t output = -1;
  brim_onnx x = {.spec = spec, .options = options, .weights = weights, .g = &g};
  brim_str_init(&x.nodes);
  brim_status status = brim_params_init(&params, BRIM_F32, BRIM_F32);
  if (!status) status = brim_params_init(&buffers, BRIM_F32, BRIM_F32);
  // no device: nothing is fused, so that layers stand as the model asked for them
  if (!status) status = brim_graph_init(&g, &params, NULL, BRIM_F32, false);
  g.buffers = &buffers;
  if (!status) status = brim_model_build(&g, spec->model, &sample, outputs, &output);
  if (!status) status = fill(&x, output, path, out);
  brim_str_deinit(&x.nodes);
  brim_free(x.tensors);
  brim_arena_destroy(x.arena);
  brim_graph_deinit(&g);
  brim_params_deinit(&buffers);
  brim_params_deinit(&params);
  return status;
}
