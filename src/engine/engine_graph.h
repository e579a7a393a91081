// The graph: tensors, layers (what a model asks for) and nodes (op calls in the order they run).
// A model adds layers; fusing works on layers; lowering turns each into nodes by its row, forward
// in order and backward in reverse. The graph has no addresses: engine_plan.c assigns them.
// A builder call that fails leaves its status in the graph and returns -1, as do all later ones, so
// a model is written without checks and its result is checked once.
#ifndef BRIM_ENGINE_GRAPH_H_
#define BRIM_ENGINE_GRAPH_H_

#include "backend/backend.h"

typedef enum brim_tensor_kind {
  BRIM_TENSOR_INPUT,  // a batch as it comes
  BRIM_TENSOR_TARGET,
  BRIM_TENSOR_PARAM,       // master copy, in the flat parameter block
  BRIM_TENSOR_PARAM_COPY,  // 16-bit copy of the parameter
  BRIM_TENSOR_PARAM_GRAD,
  BRIM_TENSOR_BUFFER,  // running statistics, which a model keeps besides its parameters
  BRIM_TENSOR_STATE,
  BRIM_TENSOR_METRICS,
  BRIM_TENSOR_ACTIVATION,  // this kind and all kinds below live in the arena
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
  BRIM_INIT_UNIFORM,  // [-bound, bound)
  BRIM_INIT_NORMAL,   // standard deviation `bound`
  // `bound` times an orthogonal matrix (the first axis by the others): rows or columns, whichever
  // are fewer, are orthonormal. PyTorch's orthogonal_: the Q of a normal matrix, R's diagonal > 0.
  BRIM_INIT_ORTHOGONAL
} brim_init;

// A parameter and its place in the flat blocks (elements, the same in every block). Weights of
// convolutions have PyTorch's shape (M,C,R,S) outside. In memory they are (M,R,S,C') with padded
// channels; the padding stays zero because its gradient is zero.
typedef struct brim_param {
  const char *name;       // owned by the list's arena
  brim_tensor desc;       // the layout in memory: f32 (f64 in tests), no data
  brim_tensor outside;    // the layout in PyTorch and in checkpoints
  int64_t offset, count;  // elements of desc
  int64_t outside_count;
  bool conv;  // desc is (M,R,S,C'), outside (M,C,R,S)
  brim_init init;
  double bound;
} brim_param;

// The parameters, or the buffers, of a network: shared by its training and evaluation graph. The order of
// first use is the order in memory.
typedef struct brim_params {
  brim_param *items;
  size_t count, capacity;
  int64_t total;      // elements of a flat block, padding included
  int64_t align;      // elements; every parameter starts on a 64-byte line in every block
  brim_dtype dtype;   // type of the master copy
  brim_arena *arena;  // owns the names
} brim_params;

brim_status brim_params_init(brim_params *params, brim_dtype master, brim_dtype compute);
void brim_params_deinit(brim_params *params);
// Convert the f32 values of a parameter from one layout to the other: `inside` holds `count` values,
// `outside` holds `outside_count`.
void brim_param_import(const brim_param *p, const float *outside, float *inside);
void brim_param_export(const brim_param *p, const float *inside, float *outside);
// True if both layouts are the same bytes, so that no conversion is needed.
bool brim_param_same_layout(const brim_param *p);
// Converts `rows` rows (of the first axis) of a parameter whose layouts differ. The pointers are to the
// first of these rows.
void brim_param_export_rows(const brim_param *p, size_t rows, const float *inside, float *outside);

//---------------------------------- graph ----------------------------------

typedef struct brim_gtensor {
  const char *name;  // layer or parameter that the tensor belongs to, for messages
  brim_tensor_kind kind;
  brim_tensor desc;  // data NULL
  int32_t param;     // index of the parameter for PARAM*, else -1
  int32_t layer;     // layer that made the tensor, -1 = none
  int32_t users;     // number of layers that read the tensor
  int32_t grad;      // tensor that holds the gradient, -1 = none yet
  int32_t grad2;  // tensor with a second part of the gradient, not yet added to `grad`; -1 = none
  bool needs_grad;
  bool grad_before_act;  // `grad` already went back through the activation of its layer
  bool keep;             // the value is needed after the last node
} brim_gtensor;

typedef struct brim_gnode {
  brim_op op;  // BRIM_OP_COUNT: no call, the caller's work (brim_graph_external_loss)
  brim_op_attr attr;
  int32_t in_count, out_count;
  int32_t in[BRIM_OP_MAX_IN], out[BRIM_OP_MAX_OUT];  // tensors; -1 = left out
  bool backward;
  const char *layer;  // layer that the node belongs to, for measuring; NULL = none
  int32_t groups;  // > 1: the rows are split into this many groups, and the node runs once for each
} brim_gnode;

struct brim_layer_row;
#define BRIM_LAYER_MAX_IN 2
#define BRIM_LAYER_MAX_PARAMS 2
#define BRIM_LAYER_MAX_SAVED 3
#define BRIM_LAYER_MAX_BUFFERS 2

typedef struct brim_layer {
  const struct brim_layer_row *row;
  const char *name;
  brim_op_attr attr;
  int32_t in[BRIM_LAYER_MAX_IN];  // tensors; -1 = none
  int32_t out;
  int32_t param[BRIM_LAYER_MAX_PARAMS];  // parameters; -1 = none
  int32_t saved[BRIM_LAYER_MAX_SAVED];   // tensors that forward leaves for backward
  int32_t buffer[BRIM_LAYER_MAX_BUFFERS];
  int32_t segment;  // segment for recomputation that the layer belongs to, from 1; 0 = none
  bool fused;       // true: the layer became part of another layer
} brim_layer;

typedef struct brim_graph {
  brim_status status;    // status of the first builder call that failed
  brim_arena *arena;     // owns the names
  brim_params *params;   // borrowed
  brim_params *buffers;  // borrowed; NULL = a model with buffers fails
  brim_device *device;   // says which ops it supports; borrowed; NULL = nothing is fused
  brim_dtype dtype;      // T: type of the activations
  bool training;
  bool passing;  // training's forward pass only, which leaves running statistics alone
  int32_t
      norm_groups;  // batch norm treats this many groups of rows separately; 0 or 1 = all together
  int32_t norm_ranks;   // batch norm spans the rows of this many ranks; 0 = only this rank's rows
  bool tf32;            // products of f32 may round to tf32
  int64_t channel_pad;  // channels of images are padded to a multiple of this; 0 or 1 = no padding
  int32_t segments;     // segments begun so far
  bool in_segment;      // new layers belong to the last segment
  int32_t recompute;    // segments 1..recompute are computed again in the backward pass
  brim_gtensor *tensors;
  int32_t tensor_count, tensor_capacity;
  brim_layer *layers;
  int32_t layer_count, layer_capacity;
  brim_gnode *nodes;
  int32_t node_count, node_capacity;
  const char *layer;           // layer whose nodes are being appended; NULL = none
  int32_t (*param_tensor)[3];  // per parameter: its PARAM, PARAM_COPY and PARAM_GRAD tensor
  bool *grad_written;          // per parameter: true if a node so far writes its gradient
  size_t param_capacity;
  int32_t *buffer_tensor;  // per buffer: its tensor
  size_t buffer_capacity;
  int32_t input, target, state, metrics;  // -1 = none
  uint32_t dropouts;                      // dropout layers so far; numbers the next one
} brim_graph;

// One kind of layer. forward and backward append nodes; failures stick in the graph.
typedef struct brim_layer_row {
  const char *name;
  void (*forward)(brim_graph *g, brim_layer *layer);
  void (*backward)(brim_graph *g, brim_layer *layer);  // called only if the output has a gradient
  // (optional) Fuses `next`, the only reader of this layer's output, into this layer. Returns true if it did.
  bool (*fuse)(brim_graph *g, brim_layer *layer, brim_layer *next);
  // (optional; default: forward) Appends the nodes that compute the output again for the backward pass;
  // the tensors in `saved` still hold their values.
  void (*recompute)(brim_graph *g, brim_layer *layer);
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
// Makes the op call of a node, without addresses.
void brim_graph_call(const brim_graph *g, const brim_gnode *node, brim_op_call *call);

// Layers. The last dimension of x is its width; names are those of the PyTorch module ("layers.0").
//
// The batch as a tensor with the given shape: rows, then the values of a sample. If the last dimension is
// larger than attr->channels, the rest are padding channels.
int32_t brim_graph_input(brim_graph *g, const brim_tensor *raw, const brim_op_attr *attr, int rank,
                         const int64_t *dim);
int32_t brim_graph_linear(brim_graph *g, int32_t x, int64_t outputs, bool bias, const char *name);
int32_t brim_graph_act(brim_graph *g, int32_t x, brim_act act);
int32_t brim_graph_layernorm(brim_graph *g, int32_t x, float eps, const char *name);
int32_t brim_graph_dropout(brim_graph *g, int32_t x, float p);  // x itself when not training
int32_t brim_graph_add(brim_graph *g, int32_t a, int32_t b);

// Fuses what the device can do in one call, then lowers the layers: forward nodes in order.
brim_status brim_graph_forward(brim_graph *g);
// Appends the loss node, and with `training` the backward nodes. op is XENT, MSE, BCE or, without a target
// (-1), NTXENT.
brim_status brim_graph_loss(brim_graph *g, brim_op op, const brim_op_attr *attr, int32_t output,
                            int32_t target);
// Replaces the loss: the caller passes the gradient of the output in place of a target.
brim_status brim_graph_given_grad(brim_graph *g, int32_t output);
// Replaces the loss: between forward and backward the caller reads the output and writes its gradient. A
// node without a call stands for the caller's work, so that the planner keeps both tensors alive there.
brim_status brim_graph_external_loss(brim_graph *g, int32_t output);
static inline bool brim_gnode_is_call(const brim_gnode *node) { return node->op != BRIM_OP_COUNT; }
brim_status brim_graph_backward(brim_graph *g);
// Copies the call of a node with groups; tensors of rows and of statistics point at the parts of `group`.
void brim_graph_group_call(const brim_graph *g, const brim_gnode *node, int32_t group,
                           const brim_op_call *whole, brim_op_call *call);

#endif  // BRIM_ENGINE_GRAPH_H_
