// The graph: tensors, layers (what a model asks for) and nodes (op calls in the order they run).
// A model adds layers; fusing works on layers; lowering turns each into nodes by its row, forward
// in order and backward in reverse. It knows nothing of addresses: that is engine_plan.
// A builder call that fails leaves its status in the graph and returns -1, as do all later ones, so
// a model is written without checks and its result is checked once.
#ifndef BRIM_ENGINE_GRAPH_H_
#define BRIM_ENGINE_GRAPH_H_

#include "backend/backend.h"

typedef enum brim_tensor_kind {
  BRIM_TENSOR_INPUT,  // a batch as it comes
  BRIM_TENSOR_TARGET,
  BRIM_TENSOR_PARAM,       // master copy, in the flat parameter block
  BRIM_TENSOR_PARAM_COPY,  // 16-bit copy of it
  BRIM_TENSOR_PARAM_GRAD,
  BRIM_TENSOR_BUFFER,  // what a model keeps besides parameters: running statistics
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
  BRIM_INIT_UNIFORM,  // [-bound, bound)
  BRIM_INIT_NORMAL,   // standard deviation `bound`
  // `bound` times an orthogonal matrix (the first axis by the others): rows or columns, whichever
  // are fewer, are orthonormal. PyTorch's orthogonal_: the Q of a normal matrix, R's diagonal > 0.
  BRIM_INIT_ORTHOGONAL
} brim_init;

// A parameter and its place in the flat blocks (elements, the same in every block). Weights of
// convolutions have PyTorch's shape (M,C,R,S) outside and lie as (M,R,S,C), with channels of
// padding, inside; padding is zero and stays so, since its gradient is.
typedef struct brim_param {
  const char *name;       // owned by the list's arena
  brim_tensor desc;       // as it lies in memory: f32 (f64 in tests), no data
  brim_tensor outside;    // as PyTorch and checkpoints see it
  int64_t offset, count;  // elements of desc
  int64_t outside_count;
  bool conv;  // desc is (M,R,S,C'), outside (M,C,R,S)
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
// One parameter's values between the two layouts; f32. `inside` holds count values, `outside`
// outside_count.
void brim_param_import(const brim_param *p, const float *outside, float *inside);
void brim_param_export(const brim_param *p, const float *inside, float *outside);
// True if both layouts are the same bytes.
bool brim_param_same_layout(const brim_param *p);
// Some rows (of the first axis) of one that does need it, from where they begin on.
void brim_param_export_rows(const brim_param *p, size_t rows, const float *inside, float *outside);

//---------------------------------- graph ----------------------------------

typedef struct brim_gtensor {
  const char *name;  // the layer or parameter it belongs to, for messages
  brim_tensor_kind kind;
  brim_tensor desc;  // data NULL
  int32_t param;     // PARAM*: index, else -1
  int32_t layer;     // that made it, -1 = none
  int32_t users;     // layers that read it
  int32_t grad;      // tensor that holds its gradient, -1 = none yet
  int32_t grad2;     // one more part of it that is not added yet, -1 = none
  bool needs_grad;
  bool grad_before_act;  // `grad` already went back through the activation of its layer
  bool keep;             // its value is needed after the last node
} brim_gtensor;

typedef struct brim_gnode {
  brim_op op;  // BRIM_OP_COUNT: no call, the caller's work (brim_graph_external_loss)
  brim_op_attr attr;
  int32_t in_count, out_count;
  int32_t in[BRIM_OP_MAX_IN], out[BRIM_OP_MAX_OUT];  // tensors; -1 = left out
  bool backward;
  const char *layer;  // whose work it is, for measuring; NULL = of none
  int32_t groups;     // > 1: runs so many times, on as many parts of its rows
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
  int32_t saved[BRIM_LAYER_MAX_SAVED];   // tensors forward leaves for backward
  int32_t buffer[BRIM_LAYER_MAX_BUFFERS];
  int32_t segment;  // the part of the model it belongs to, from 1; 0 = none
  bool fused;       // became part of another layer
} brim_layer;

typedef struct brim_graph {
  brim_status status;    // of the first builder call that failed
  brim_arena *arena;     // names
  brim_params *params;   // borrowed
  brim_params *buffers;  // borrowed; NULL = this model may have none
  brim_device *device;   // asked what it supports; borrowed, may be NULL (then nothing is fused)
  brim_dtype dtype;      // T: type of the activations
  bool training;
  bool passing;         // training's forward without a way back: running statistics stay
  int32_t norm_groups;  // batch norm of so many groups of rows apart; 0 or 1 = of all
  int32_t norm_ranks;   // batch norm of the rows of so many ranks together; 0 = of this one's
  bool tf32;            // products of f32 may round to tf32
  int64_t channel_pad;  // channels of images are padded to a multiple of this; 0 or 1 = not
  int32_t segments;     // opened so far
  bool in_segment;      // layers now belong to the last one
  int32_t recompute;    // segments 1..recompute are computed again on the way back
  brim_gtensor *tensors;
  int32_t tensor_count, tensor_capacity;
  brim_layer *layers;
  int32_t layer_count, layer_capacity;
  brim_gnode *nodes;
  int32_t node_count, node_capacity;
  const char *layer;           // whose nodes are being appended; NULL = of none
  int32_t (*param_tensor)[3];  // per parameter: its PARAM, PARAM_COPY and PARAM_GRAD tensor
  bool *grad_written;          // per parameter: a node writes its gradient already
  size_t param_capacity;
  int32_t *buffer_tensor;  // per buffer
  size_t buffer_capacity;
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
  // (optional; default: forward) The output once more on the way back; `saved` is still there.
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
// A node as a call without addresses.
void brim_graph_call(const brim_graph *g, const brim_gnode *node, brim_op_call *call);

// Layers. The last dimension of x is its width; names are those of the PyTorch module ("layers.0").
//
// The batch as a tensor of this shape: rows, then the values of a sample. If the last dimension is
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
// The loss node, and with `training` the backward nodes. op is XENT, MSE, BCE or, without a target (-1),
// NTXENT.
brim_status brim_graph_loss(brim_graph *g, brim_op op, const brim_op_attr *attr, int32_t output,
                            int32_t target);
// Instead of a loss: the gradient of the output is given like a target.
brim_status brim_graph_given_grad(brim_graph *g, int32_t output);
// Instead of a loss: between forward and backward the caller reads the output and writes its
// gradient. The node of that has no call; it tells the planner that both are alive then.
brim_status brim_graph_external_loss(brim_graph *g, int32_t output);
static inline bool brim_gnode_is_call(const brim_gnode *node) { return node->op != BRIM_OP_COUNT; }
brim_status brim_graph_backward(brim_graph *g);
// A part of a node with groups: the call's tensors of rows, and statistics, moved to that group.
void brim_graph_group_call(const brim_graph *g, const brim_gnode *node, int32_t group,
                           const brim_op_call *whole, brim_op_call *call);

#endif  // BRIM_ENGINE_GRAPH_H_
