// Inside the ONNX writer: protobuf, and the graph under construction (engine_onnx_proto.c writes
// bytes, engine_onnx_graph.c holds the graph, engine_onnx_layers.c turns layers into nodes,
// engine_onnx.c is the file).
#ifndef BRIM_ENGINE_ONNX_INT_H_
#define BRIM_ENGINE_ONNX_INT_H_

#include "engine/engine_int.h"
#include "engine/engine_onnx.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- protobuf ----------------------------------

// Fields of a message, appended to a string that may hold any byte.
void brim_proto_int(brim_str *out, int field, int64_t value);
void brim_proto_float(brim_str *out, int field, float value);
void brim_proto_bytes(brim_str *out, int field, const void *data, size_t size);
void brim_proto_text(brim_str *out, int field, const char *text);
// The message in `inner` as a field, and `inner` is empty again.
void brim_proto_message(brim_str *out, int field, brim_str *inner);
// Tag and length of a field of `size` bytes that the caller writes itself.
void brim_proto_head(brim_str *out, int field, uint64_t size);
// A ValueInfoProto: name, type and shape; dim 0 = "N".
void brim_proto_value(brim_str *out, int field, const char *name, int type, int rank,
                      const int64_t *dim);

// Types of elements (TensorProto.DataType).
enum { BRIM_ONNX_FLOAT = 1, BRIM_ONNX_UINT8 = 2, BRIM_ONNX_INT64 = 7 };

//---------------------------------- the graph ----------------------------------

// A weight of the file, or a constant made here.
typedef struct brim_onnx_tensor {
  const char *name;
  int type;
  int rank;
  int64_t dim[BRIM_MAX_RANK];
  const void *data;
  size_t bytes;
} brim_onnx_tensor;

typedef struct brim_onnx {
  const brim_net_spec *spec;
  const brim_onnx_options *options;
  const brim_safetensors *weights;
  brim_graph *g;
  brim_arena *arena;
  brim_status status;  // of the first call that failed
  brim_str nodes;      // GraphProto's field 1, one after the other
  int node_count;
  const char **value;         // name of each of the graph's tensors once it is there
  brim_onnx_tensor *tensors;  // initialisers
  size_t tensor_count, tensor_capacity;
  int32_t *param_at, *buffer_at;  // initialiser of each parameter and buffer; -1 = not used yet
  int constants;
  bool ema;
  bool plain;  // an average was asked for, and an entry has none
} brim_onnx;

// One attribute of a node: ints where count > 0, else a float where `real`, else an int.
typedef struct brim_onnx_attr {
  const char *name;
  int count;
  int64_t ints[BRIM_MAX_RANK];
  bool real;
  float number;
} brim_onnx_attr;

// A node whose one output gets a name of its own, which is returned; NULL once something failed.
// `in` is NULL-terminated, `attrs` ends with a row without a name (NULL = none).
const char *brim_onnx_node(brim_onnx *x, const char *op, const char *const *in,
                           const brim_onnx_attr *attrs, const char *hint);
// Constants; the values are copied.
const char *brim_onnx_ints(brim_onnx *x, int count, const int64_t *values);  // int64 (count)
const char *brim_onnx_scalar(brim_onnx *x, int64_t value);                   // int64 ()
const char *brim_onnx_floats(brim_onnx *x, int rank, const int64_t *dim, const float *values);
// Weights by the graph's numbers.
const char *brim_onnx_param(brim_onnx *x, int32_t param);
const char *brim_onnx_buffer(brim_onnx *x, int32_t buffer);
void brim_onnx_fail(brim_onnx *x, brim_status status);
void brim_onnx_no_memory(brim_onnx *x);

// engine_onnx_layers.c: all layers in their order.
void brim_onnx_layers(brim_onnx *x);
// The value of one more output: a tensor of the graph under this name.
void brim_onnx_output(brim_onnx *x, int32_t tensor, const char *name);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_ONNX_INT_H_
