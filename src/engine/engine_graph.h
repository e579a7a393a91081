// The graph: tensors, layers (what a model asks for) and nodes (op calls in the order they run).
// A model adds layers; fusing works on layers; lowering turns each into nodes by its row, forward
// in order and backward in reverse. It knows nothing of addresses: that is engine_plan.
// A builder call that fails leaves its status in the graph and returns -1, as do all later ones, so
// a model is written without checks and its result is checked once.
#ifndef BRIM_ENGINE_GRAPH_H_
#define BRIM_ENGINE_GRAPH_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_tensor_kind {
  BRIM_TENSOR_INPUT,  // a batch as it comes
  BRIM_TENSOR_TARGET,
  BRIM_TENSOR_PARAM,       // master copy, in the flat parameter block
  BRIM_TENSOR_PARAM_COPY,  // 16-bit copy of it
  BRIM_TENSOR_PARAM_GRAD,
  BRIM_TENSOR_STATE,
  BRIM_TENSOR_METRICS,
  BRIM_TENSOR_ACTIVATION,  // this and what follows live in the arena
  BRIM_TENSOR_GRADIENT,
  BRIM_TENSOR_STATISTIC,
  BRIM_TENSOR_KIND_COUNT
} brim_tensor_kind;

static inline bool brim_tensor_in_arena(brim_tensor_kind kind) {
  return kind >= BRIM_TENSOR_ACTIVATION;
}

//---------------------------------- parameters ----------------------------------

typedef enum brim_init {
  BRIM_INIT_ZEROS,
  BRIM_INIT_ONES,
  BRIM_INIT_UNIFORM  // [-bound, bound)
} brim_init;

// A parameter and its place in the flat blocks (elements, the same in every block).
typedef struct brim_param {
  const char *name;  // owned by the list's arena
  brim_tensor desc;  // f32 (f64 in tests), no data
  int64_t offset, count;
  brim_init init;
  double bound;
} brim_param;

// Shared by the training and the evaluation graph; the order of first use is the order in memory.
typedef struct brim_params {
  brim_param *items;
  size_t count, capacity;
  int64_t total;      // elements of a flat block, padding included
  int64_t align;      // elements; every parameter starts on a 64-byte line in every block
  brim_dtype dtype;   // of the master copy
  brim_arena *arena;  // names
} brim_params;

brim_status brim_params_init(brim_params *params, brim_dtype master, brim_dtype compute);
void brim_params_deinit(brim_params *params);

//---------------------------------- graph ----------------------------------

typedef struct brim_gtensor {
  const char *name;  // of the layer or parameter it belongs to; for messages
  brim_tensor_kind kind;
  brim_tensor desc;  // data NULL
  int32_t param;     // PARAM*: index, else -1
  int32_t layer;     // that made it, -1 = none
  int32_t users;     // layers that read it
  int32_t grad;      // tensor that holds its gradient, -1 = none yet
  bool needs_grad;
  bool grad_before_act;  // `grad` already went back through the activation of its layer
  bool keep;             // its value is wanted after the last node
} brim_gtensor;

typedef struct brim_gnode {
  brim_op op;
  brim_op_attr attr;
  int32_t in_count, out_count;
  int32_t in[BRIM_OP_MAX_IN], out[BRIM_OP_MAX_OUT];  // tensors; -1 = left out
  bool backward;
} brim_gnode;

struct brim_layer_row;
#define BRIM_LAYER_MAX_IN 2
#define BRIM_LAYER_MAX_PARAMS 2
#define BRIM_LAYER_MAX_SAVED 2

typedef struct brim_layer {
  const struct brim_layer_row *row;
  const char *name;
  brim_op_attr attr;
  int32_t in[BRIM_LAYER_MAX_IN];  // tensors; -1 = none
  int32_t out;
  int32_t param[BRIM_LAYER_MAX_PARAMS];  // parameters; -1 = none
  int32_t saved[BRIM_LAYER_MAX_SAVED];   // tensors forward leaves for backward
  bool fused;                            // became part of another layer
} brim_layer;

typedef struct brim_graph {
  brim_status status;   // of the first builder call that failed
  brim_arena *arena;    // names
  brim_params *params;  // borrowed
  brim_device *device;  // asked what it supports; borrowed, may be NULL (then nothing is fused)
  brim_dtype dtype;     // T: type of the activations
  bool training;
  brim_gtensor *tensors;
  int32_t tensor_count, tensor_capacity;
  brim_layer *layers;
  int32_t layer_count, layer_capacity;
  brim_gnode *nodes;
  int32_t node_count, node_capacity;
  int32_t (*param_tensor)[3];  // per parameter: its PARAM, PARAM_COPY and PARAM_GRAD tensor
  bool *grad_written;          // per parameter: a node writes its gradient already
  size_t param_capacity;
  int32_t input, target, state, metrics;  // -1 = none
  uint32_t dropouts;                      // layers of that kind so far: their numbers
} brim_graph;

// One kind of layer. forward and backward append nodes; failures stick in the graph.
typedef struct brim_layer_row {
  const char *name;
  void (*forward)(brim_graph *g, brim_layer *layer);
  void (*backward)(brim_graph *g, brim_layer *layer);  // only when its output has a gradient
  // (optional) Take `next`, the only reader of this layer's output, into this layer.
  bool (*fuse)(brim_graph *g, brim_layer *layer, brim_layer *next);
} brim_layer_row;

brim_status brim_graph_init(brim_graph *g, brim_params *params, brim_device *device,
                            brim_dtype dtype, bool training);
void brim_graph_deinit(brim_graph *g);

// Building blocks of layers.
int32_t brim_graph_tensor(brim_graph *g, const char *name, brim_tensor_kind kind, brim_dtype dtype,
                          int rank, const int64_t *dim);
int32_t brim_graph_like(brim_graph *g, int32_t tensor, brim_tensor_kind kind);
void brim_graph_node(brim_graph *g, brim_op op, const brim_op_attr *attr, const int32_t *in,
                     int in_count, const int32_t *out, int out_count);
brim_layer *brim_graph_layer(brim_graph *g, const brim_layer_row *row, const char *name,
                             const int32_t *in, int in_count);  // NULL: see status
// A parameter by name: made on first use, found (and checked) later. Index, or -1.
int32_t brim_graph_param(brim_graph *g, const char *name, int rank, const int64_t *dim,
                         brim_init init, double bound);
int32_t brim_graph_param_tensor(brim_graph *g, int32_t param, brim_tensor_kind kind);
// What ops of type T read: the 16-bit copy where there is one, else the master.
int32_t brim_graph_param_value(brim_graph *g, int32_t param);
// Say that a node is about to write these gradients; true = it has to add to what is there.
bool brim_graph_param_written(brim_graph *g, const int32_t *param, int count);
// One more contribution to a tensor's gradient; the second is joined by ADD.
void brim_graph_add_grad(brim_graph *g, int32_t tensor, int32_t grad);
// A node as a call without addresses.
void brim_graph_call(const brim_graph *g, const brim_gnode *node, brim_op_call *call);
void brim_graph_fail(brim_graph *g, brim_status status);  // keeps the first

// Layers. x is (N, C); names are those of the PyTorch module ("layers.0").
int32_t brim_graph_input(brim_graph *g, const brim_tensor *raw, const brim_op_attr *attr);
int32_t brim_graph_linear(brim_graph *g, int32_t x, int64_t outputs, bool bias, const char *name);
int32_t brim_graph_act(brim_graph *g, int32_t x, brim_act act);
int32_t brim_graph_layernorm(brim_graph *g, int32_t x, float eps, const char *name);
int32_t brim_graph_dropout(brim_graph *g, int32_t x, float p);  // x itself when not training
int32_t brim_graph_add(brim_graph *g, int32_t a, int32_t b);

// Fuse what the device can do in one call, then lower: forward nodes in order.
brim_status brim_graph_fuse(brim_graph *g);
brim_status brim_graph_forward(brim_graph *g);
// The loss node, and with `training` the backward nodes. op is XENT or MSE.
brim_status brim_graph_loss(brim_graph *g, brim_op op, const brim_op_attr *attr, int32_t output,
                            int32_t target);
brim_status brim_graph_backward(brim_graph *g);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_GRAPH_H_
