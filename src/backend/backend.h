// Backends and their devices: streams, events, buffers, ops. A backend is a const table and an op is a
// row in it; a backend without the row does not support the op. The brim_device_* wrappers apply the
// defaults of optional members, so callers never look into the tables. Callers: engine, data, env,
// workload. Implementations: ref (linked in), cpu and cuda (plug-ins).
#ifndef BRIM_BACKEND_H_
#define BRIM_BACKEND_H_

#include "base/base.h"
#include "brim/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_BACKEND_ABI 8

//---------------------------------- tensors ----------------------------------

// X(id, name, bytes)
#define BRIM_DTYPE_MAP(X) \
  X(F32, "f32", 4)        \
  X(BF16, "bf16", 2)      \
  X(F16, "f16", 2)        \
  X(F64, "f64", 8)        \
  X(U8, "u8", 1)          \
  X(I32, "i32", 4)        \
  X(I64, "i64", 8)

typedef enum brim_dtype {
#define X(id, name, bytes) BRIM_##id,
  BRIM_DTYPE_MAP(X)
#undef X
      BRIM_DTYPE_COUNT
} brim_dtype;

size_t brim_dtype_size(brim_dtype dtype);
const char *brim_dtype_name(brim_dtype dtype);

#define BRIM_MAX_RANK 6

// Always contiguous, row-major (images NHWC). data is a device address, NULL while planning.
typedef struct brim_tensor {
  void *data;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
} brim_tensor;

// Number of elements; 0 for rank 0, which marks a tensor that is left out.
int64_t brim_tensor_count(const brim_tensor *t);
size_t brim_tensor_bytes(const brim_tensor *t);
brim_tensor brim_tensor_make(void *data, brim_dtype dtype, int rank, const int64_t *dim);

//---------------------------------- ops ----------------------------------

// One line per op: inputs -> outputs. N rows (batch), K inputs, M outputs, C channels.
// (..,K) is any rank of 2 or more: all but the last dimension count as rows.
// "acc" ops add to their output when attr.accumulate, else overwrite it.
// T = activation type (f32, bf16, f16; f64 on ref). Statistics, losses, gradients of parameters and
// optimiser state are f32 (f64 when T is f64).
//
// LINEAR            x(..,K):T w(M,K):T [b(M):T] -> y(..,M):T      y = act(x w' + b), attr.act
// LINEAR_BWD_DATA   dy(..,M):T w(M,K):T [s(..,K):T] -> dx(..,K):T dx = dy w, times act'(s) if attr.act
// LINEAR_BWD_WEIGHT dy(..,M):T x(..,K):T -> dw(M,K) [db(M)]       acc
// CONV              x(N,H,W,C):T w(M,R,S,C):T -> y(N,P,Q,M):T
//                     cross-correlation, attr.stride and attr.pad on both axes;
//                     P = (H + 2 pad - R) / stride + 1, Q likewise
// CONV_BWD_DATA     dy(N,P,Q,M):T w(M,R,S,C):T -> dx(N,H,W,C):T
// CONV_BWD_WEIGHT   dy(N,P,Q,M):T x(N,H,W,C):T -> dw(M,R,S,C)     acc
// BATCHNORM         x(N,H,W,C):T g(C) b(C) state [z:T] -> y:T mean(C) rstd(C) [rmean(C) rvar(C)]
//                     over the valid rows; y = act(norm(x) * g + b + z), attr.act none or relu;
//                     rmean and rvar (unbiased) move by attr.momentum towards this batch. A channel
//                     keeps its rmean and rvar if the batch's are not finite. Without a valid row mean
//                     is 0, rstd is 1 / sqrt(eps), and rmean and rvar stay
// BATCHNORM_APPLY   x:T g(C) b(C) mean(C) s(C) [z:T] -> y:T       BATCHNORM with given statistics;
//                     s is a variance if attr.variance (evaluation), else rstd (recomputation, which
//                     gives the bits of BATCHNORM)
// BATCHNORM_BWD     dy:T x:T g b mean rstd state [y:T] [dy2:T] -> dx:T dg(C) db(C) [dz:T]
//                     acc for dg, db. The gradient is dy + dy2. With attr.act relu it passes where
//                     y > 0, or without y where norm(x) * g + b > 0. dz is the passed gradient. Rows of
//                     padding get dx = dz = 0. dx may be written over dy or x; if over x, dz may be
//                     written over dy.
// Batch norm over the rows of several ranks: parts of all ranks are joined, then BATCHNORM_APPLY makes y
// from mean and rstd. With one rank the results equal those of BATCHNORM up to rounding.
// BATCHNORM_PART    x:T state -> part(3,C)                        over the valid rows, per channel: the
//                     number of values, their mean, the sum of squared deviations from it; all 0
//                     without a valid row
// BATCHNORM_JOIN    parts(K,3,C) -> mean(C) rstd(C) total(1) [rmean(C) rvar(C)]
//                     joined in the order of parts; total = the number of values of a channel (taken
//                     from channel 0). Parts without a value are skipped; else as BATCHNORM
// BATCHNORM_BWD_SUMS    dy:T x:T g b mean rstd state [y:T] [dy2:T] -> sums(2,C) dg(C) db(C)
//                     acc for dg, db. sums, over the valid rows: the passed gradient, and the passed
//                     gradient times norm(x). db gets the first sum, dg the second
// BATCHNORM_BWD_JOINED  dy:T x:T g b mean rstd sums(2,C) total(1) state [y:T] [dy2:T] -> dx:T [dz:T]
//                     sums are over all ranks. dx = g rstd (passed - sums[0] / total - norm(x) sums[1] /
//                     total). dx and dz may be written over the same inputs as in BATCHNORM_BWD
// MAXPOOL           x(N,H,W,C):T -> y(N,P,Q,C):T place(N,P,Q,C):u8   attr.window, stride, pad;
//                     place = r * window + s of the first maximum (a NaN wins), as in PyTorch
// MAXPOOL_BWD       dy(N,P,Q,C):T place:u8 -> dx(N,H,W,C):T
// MEAN              x(N,..,C):T -> y(N,C):T                       over all dimensions between N and C
// MEAN_BWD          dy(N,C):T -> dx(N,..,C):T
// POS               x(N,L,C):T p(L,C):T -> y(N,L,C):T             y = x + p; y may be x
// POS_BWD           dy(N,L,C):T -> dp(L,C)                        acc
// ATTENTION         qkv(N,L,3C):T -> y(N,L,C):T lse(N,A,L)        A = attr.heads of D = C / A; q, k
//                     and v are thirds of a row, heads lie side by side in each;
//                     softmax(q k' / sqrt(D)) v; lse = log of the sum of exp of the scaled scores
// ATTENTION_BWD     dy(N,L,C):T qkv:T y:T lse -> dqkv:T
// CONCAT            a(N,A):T b(N,B):T -> y(N,A+B):T
// CONCAT_BWD        dy(N,A+B):T -> da(N,A):T db(N,B):T
// ACT               x:T -> y:T                                    attr.act
// ACT_BWD           dy:T s:T -> dx:T      dx = dy act'; s = y for relu and tanh, x for gelu
// LAYERNORM         x(..,C):T g(C) b(C) -> y:T mean(rows) rstd(rows)  attr.eps; g, b f32
// LAYERNORM_BWD     dy:T x:T g mean rstd -> dx:T dg(C) db(C)      acc for dg, db
// DROPOUT           x(N,..):T state -> y:T   its backward is the same op on dy; attr.p, attr.layer, see below
// ADD               a:T b:T -> y:T           y may be a or b
// CAST              x -> y                   any float type to any other
// INPUT             x(N,F):u8|f32 -> y(N,..):T   y = x * scale[c] + shift[c], c = f % channels.
//                     y holds F values a row, or F / channels * C when its last dimension C is
//                     larger than attr.channels: channels past attr.channels are 0
// XENT              logits(N,C):T labels(N):i32 state -> metrics [dlogits(N,C):T]
//                     softmax cross-entropy with attr.label_smoothing, mean over state.rows
// MSE               pred(N,C):T target(N,C):f32 state -> metrics [dpred(N,C):T]
//                     squared error, mean over rows and columns
// BCE               logits(N,C):T target(N,C):f32 state -> metrics [dlogits(N,C):T]
//                     binary cross-entropy of the sigmoid, mean over rows and columns. A row adds to
//                     CORRECT the share of its columns for which logit > 0 and target > 0.5 are both
//                     true or both false
// NTXENT            z(N,D):T state -> metrics [dz(N,D):T]
//                     rows i and i + N / 2 are two views of a sample: softmax cross-entropy of the
//                     cosine similarities over attr.temperature with all other rows; the label is the
//                     other view. Rows i and i + N / 2 with i >= state.samples are padding and in
//                     no row's softmax. A sample's loss is the mean of its two rows' losses; the sample
//                     counts as correct when row i's arg max is its other view
// UNIT              x(N,D):T -> y(N,D)       rows divided by their length; a row of zeros stays 0
// KNN               s(N,M) labels(M):i32 truth(N):i32 state -> metrics [guess(N):i32]
//                     s: similarities of N rows with M labelled ones. The attr.neighbours largest of a
//                     row vote for their labels with exp(s / attr.temperature); the first of equals
//                     wins, a NaN is no neighbour. The guess is the class below attr.classes with the
//                     largest vote (the first of equals); -1 for padding and for rows without
//                     neighbours. Weights are rounded to multiples of 2^-40 of the largest and summed
//                     as integers, so the order does not matter. Rows without neighbours, or whose truth is no class,
//                     count as BAD; LOSS stays
// GRAD_NORM         grads(P) -> norm(2)      [sum of squares, count of non-finite values]; the
//                     sum leaves non-finite values out
// OPTIMIZER         state norm(2) grads(P) -> params(P) m(P) v(P) [copy(P):bf16|f16] [average(P)]
//                     unscale, clip, update, cast. An unused m or v has 0 elements. Nothing is written
//                     when norm counts a non-finite value. The gradients (and the norm) are those of a
//                     loss times state.loss_scale.
//                     Adam corrects its bias by state.updates + 1: a skipped step does not count.
//                     average moves towards the new parameters by attr.average_rate (1 - decay), or by
//                     9 / (state.updates + 10) while that is larger, so that it follows the first steps
// AVERAGE           state norm(2) values(P) -> average(P)   after OPTIMIZER, before STEP_END: averages
//                     values that another op of the step moved (running statistics), as OPTIMIZER does
// STEP_END          norm(2) -> state ring(K,4)   after OPTIMIZER: row (state.step - 1) % K of the
//                     ring gets [sum of squares without the loss scale, count of non-finite values,
//                     loss scale, 0]. A step without non-finite values adds one to state.updates.
//                     With attr.dynamic_scale a step with non-finite values halves the loss scale (not
//                     below 1) and zeroes good_steps; any other step adds one to good_steps. When
//                     good_steps reaches attr.growth_interval, the scale doubles (not above 2^24) and
//                     good_steps is zeroed
//
// Exchanges between the K ranks of one training (backend_exchange.h). The device runs these ops itself;
// backends have no rows for them.
// ALL_REDUCE        x -> y                   the sum over all ranks, the same bits on each; y may be x. With
//                     attr.later y is complete, and x may be written, only after EXCHANGE_WAIT
// EXCHANGE_WAIT     x(P) -> y(P)             y is x; waits for all ops with attr.later
// ALL_GATHER        x -> y(K,..)             x of all ranks in their order
// GATHER_PAIRS      z(N,D):T -> y(K N,D):T   first halves of all ranks in their order, then second halves
// OWN_PAIRS         y(K N,D):T -> z(N,D):T   the rows of GATHER_PAIRS that belong to this rank
//
// `state` is BRIM_STATE_COUNT doubles in device memory. The host writes the first BRIM_STATE_HOST before a
// step; the others belong to the device (BRIM_STATE_*).
// `metrics` is BRIM_METRIC_COUNT values (f32; f64 when T is f64), which losses add to.
// Rows >= state[ROWS] of a batch are padding: losses ignore them and their gradient is 0.
// Rows whose loss is not finite, or whose label is outside [0, C), count in ROWS and BAD, not in LOSS
// or CORRECT. A label outside [0, C) gives a gradient row of 0.
// Gradients of losses are multiplied by state[GRAD_SCALE] * state[LOSS_SCALE].
// backend_ops.c has a row for each op: tensors, attributes, cost, which outputs may be written over inputs.
#define BRIM_OP_MAP(X)                            \
  X(LINEAR, "linear")                             \
  X(LINEAR_BWD_DATA, "linear_bwd_data")           \
  X(LINEAR_BWD_WEIGHT, "linear_bwd_weight")       \
  X(CONV, "conv")                                 \
  X(CONV_BWD_DATA, "conv_bwd_data")               \
  X(CONV_BWD_WEIGHT, "conv_bwd_weight")           \
  X(BATCHNORM, "batchnorm")                       \
  X(BATCHNORM_APPLY, "batchnorm_apply")           \
  X(BATCHNORM_BWD, "batchnorm_bwd")               \
  X(BATCHNORM_PART, "batchnorm_part")             \
  X(BATCHNORM_JOIN, "batchnorm_join")             \
  X(BATCHNORM_BWD_SUMS, "batchnorm_bwd_sums")     \
  X(BATCHNORM_BWD_JOINED, "batchnorm_bwd_joined") \
  X(MAXPOOL, "maxpool")                           \
  X(MAXPOOL_BWD, "maxpool_bwd")                   \
  X(MEAN, "mean")                                 \
  X(MEAN_BWD, "mean_bwd")                         \
  X(POS, "pos")                                   \
  X(POS_BWD, "pos_bwd")                           \
  X(ATTENTION, "attention")                       \
  X(ATTENTION_BWD, "attention_bwd")               \
  X(CONCAT, "concat")                             \
  X(CONCAT_BWD, "concat_bwd")                     \
  X(ACT, "act")                                   \
  X(ACT_BWD, "act_bwd")                           \
  X(LAYERNORM, "layernorm")                       \
  X(LAYERNORM_BWD, "layernorm_bwd")               \
  X(DROPOUT, "dropout")                           \
  X(ADD, "add")                                   \
  X(CAST, "cast")                                 \
  X(INPUT, "input")                               \
  X(XENT, "xent")                                 \
  X(MSE, "mse")                                   \
  X(BCE, "bce")                                   \
  X(NTXENT, "ntxent")                             \
  X(UNIT, "unit")                                 \
  X(KNN, "knn")                                   \
  X(GRAD_NORM, "grad_norm")                       \
  X(OPTIMIZER, "optimizer")                       \
  X(AVERAGE, "average")                           \
  X(STEP_END, "step_end")
#define BRIM_OP_EXCHANGE_MAP(X)     \
  X(ALL_REDUCE, "all_reduce")       \
  X(EXCHANGE_WAIT, "exchange_wait") \
  X(ALL_GATHER, "all_gather")       \
  X(GATHER_PAIRS, "gather_pairs")   \
  X(OWN_PAIRS, "own_pairs")

typedef enum brim_op {
#define X(id, name) BRIM_OP_##id,
  BRIM_OP_MAP(X) BRIM_OP_EXCHANGE_MAP(X)
#undef X
      BRIM_OP_COUNT,
  BRIM_OP_BACKEND_COUNT = BRIM_OP_ALL_REDUCE  // backends have rows for the ops before
} brim_op;

const char *brim_op_name(brim_op op);

typedef enum brim_act {
  BRIM_ACT_NONE,
  BRIM_ACT_RELU,
  BRIM_ACT_GELU,  // exact (erf), as PyTorch's default
  BRIM_ACT_TANH,
  BRIM_ACT_COUNT
} brim_act;

typedef enum brim_optimizer_kind {
  BRIM_OPTIMIZER_SGD,    // m: momentum buffer, PyTorch's rule (buf = mu * buf + g; first step buf =
                         // g)
  BRIM_OPTIMIZER_ADAM,   // L2 added to the gradient
  BRIM_OPTIMIZER_ADAMW,  // decoupled decay
  BRIM_OPTIMIZER_KIND_COUNT
} brim_optimizer_kind;

// Indices into the state tensor (f64).
enum {
  BRIM_STATE_STEP,  // optimiser step being made, from 1
  BRIM_STATE_LR,
  BRIM_STATE_ROWS,        // valid rows of this micro-batch
  BRIM_STATE_GRAD_SCALE,  // 1 / valid rows of the whole step
  BRIM_STATE_CLIP,        // maximal gradient norm; 0 = off
  BRIM_STATE_SEED,        // exact below 2^53
  BRIM_STATE_ROW_OFFSET,  // row of the effective batch at which this micro-batch starts
  BRIM_STATE_SAMPLES,     // valid samples: ROWS, or ROWS / 2 if a sample has two rows (views)
  BRIM_STATE_HOST = 8,    // the host writes the values before this one, the device the others
  BRIM_STATE_LOSS_SCALE = BRIM_STATE_HOST,  // 1 unless the precision is fp16; a power of two
  BRIM_STATE_GOOD_STEPS,                    // good steps since the scale last changed
  BRIM_STATE_UPDATES,                       // steps made so far, without the skipped ones
  BRIM_STATE_COUNT = 16
};

// Indices into the metrics tensor: sums since it was last cleared.
enum {
  BRIM_METRIC_LOSS,     // sum of per-row losses
  BRIM_METRIC_CORRECT,  // rows whose arg max is the label (first of equals)
  BRIM_METRIC_ROWS,
  BRIM_METRIC_BAD,  // rows with a non-finite loss or a bad label (KNN: or no neighbours)
  BRIM_METRIC_COUNT = 8
};

// Dropout: element e = (row_offset + row) * C + col (C values a row) of layer l at step s is dropped when
// uniform(philox(rng_key(seed, BRIM_RNG_DROPOUT), s << 16 | l, e / 4).v[e % 4]) < p. Kept elements are
// divided by 1 - p. The row offset makes k micro-batches equal one large batch.

typedef struct brim_op_attr {
  brim_act act;
  bool accumulate;
  float eps;
  float p;         // dropout
  uint32_t layer;  // dropout
  float label_smoothing;
  float temperature;            // NTXENT, KNN
  int32_t neighbours, classes;  // KNN
  int32_t stride, pad, window;  // CONV*, MAXPOOL*; window of MAXPOOL is square
  int32_t heads;                // ATTENTION*
  bool variance;                // BATCHNORM_APPLY
  bool tf32;                    // LINEAR*, CONV* with T = f32: products may round to tf32
  bool dynamic_scale;           // STEP_END
  int32_t growth_interval;      // STEP_END
  int32_t channels;             // INPUT: 1..4
  float scale[4], shift[4];
  brim_optimizer_kind optimizer;
  bool nesterov;
  float momentum, beta1, beta2, weight_decay;  // eps stands above
  float average_rate;                          // OPTIMIZER with an average, AVERAGE
  bool later;                                  // ALL_REDUCE
} brim_op_attr;

#define BRIM_WORKSPACE_ALIGN 256  // cuBLASLt asks for this alignment
#define BRIM_OP_MAX_IN 11
#define BRIM_OP_MAX_OUT 5

typedef struct brim_op_call {
  brim_op op;
  int32_t in_count, out_count;  // optional trailing tensors are left out, or have rank 0
  brim_tensor in[BRIM_OP_MAX_IN];
  brim_tensor out[BRIM_OP_MAX_OUT];
  brim_op_attr attr;
  // Set before prepare: prepare only finds sizes and times nothing. A planned call can still be run, by the
  // library's first choice, except for CONV*.
  bool planning;
  void *state;             // set by prepare; owned by the backend
  size_t workspace_bytes;  // set by prepare, a function of shapes and options alone; 0 = none
  void *workspace;         // device memory, aligned to BRIM_WORKSPACE_ALIGN, shared between ops
} brim_op_call;

// FLOPs and least memory traffic in bytes of a call (a multiply-add is 2 FLOPs); 0 for an unknown op.
void brim_op_cost(const brim_op_call *call, double *flops, double *bytes);
// Checks the shape and type rules common to all backends. brim_device_supports and brim_op_prepare call it
// before a backend's validate, so plug-ins do not check them.
brim_status brim_op_check(const brim_op_call *call);

// True if output `out` of a call with out_count outputs may be written over input `in`.
bool brim_op_in_place(brim_op op, int out_count, int out, int in);

typedef struct brim_op_row {
  brim_op op;
  // (required) Returns BRIM_EUNSUPPORTED with a detail when this backend cannot run the call.
  brim_status (*validate)(void *impl, const brim_op_call *call);
  // (optional; default: nothing to prepare, no workspace) Called when tensors have no data yet.
  brim_status (*prepare)(void *impl, brim_op_call *call);
  // (required)
  brim_status (*run)(void *impl, void *stream, const brim_op_call *call);
  // (optional) frees call->state.
  void (*release)(void *impl, brim_op_call *call);
} brim_op_row;

// The op rows of one file of a backend.
typedef struct brim_op_family {
  const brim_op_row *rows;
  size_t count;
} brim_op_family;

//---------------------------------- devices ----------------------------------

typedef enum brim_device_kind { BRIM_DEVICE_CPU, BRIM_DEVICE_GPU } brim_device_kind;

typedef struct brim_device_info {
  char name[128];     // "NVIDIA H200", "Neoverse-V1, 2 threads"
  char id[64];        // UUID; "" for CPUs
  char library[128];  // "oneDNN 2.6.3 (avx512_core_amx)"
  brim_device_kind kind;
  bool host_memory;  // device addresses may be read and written by the host
  uint64_t total_bytes, free_bytes;
  int32_t threads;
  int32_t compute_major, compute_minor;
  int32_t sm_count;
  // Bits 1 << brim_dtype of the 16-bit types that the hardware multiplies faster than f32. A supported type
  // without its bit is emulated.
  uint32_t fast_types;
} brim_device_info;

typedef struct brim_device_options {
  int threads;             // CPU backends; 0 = all cores
  uint64_t workspace_cap;  // bytes per op; 0 = backend's default
  bool nondeterministic;   // algorithms whose bits differ from run to run may be chosen
  // Times the algorithms of an op if it has several and keeps the fastest; the choice is remembered
  // in cache_folder ("" = only in this process). false: takes the library's first proposal.
  bool measure_algorithms;
  char cache_folder[512];
} brim_device_options;

typedef enum brim_buffer_kind {
  BRIM_BUFFER_DEVICE,
  BRIM_BUFFER_HOST,  // pinned where the backend can
  BRIM_BUFFER_KIND_COUNT
} brim_buffer_kind;

typedef enum brim_copy { BRIM_COPY_H2D, BRIM_COPY_D2H, BRIM_COPY_D2D, BRIM_COPY_COUNT } brim_copy;

// A communicator of devices: ranks exchange device memory, in a stream's order. Calls can be recorded.
#define BRIM_COMM_ID_BYTES 128
typedef struct brim_comm_table {
  const char *name;  // "nccl"
  // Rank 0 makes the id and sends it to all ranks.
  brim_status (*unique_id)(char id[BRIM_COMM_ID_BYTES]);
  // Waits for all ranks. BRIM_EUNSUPPORTED with a reason where the library is missing.
  brim_status (*open)(void *impl, const char id[BRIM_COMM_ID_BYTES], int rank, int size,
                      void **comm);
  void (*close)(void *comm);    // call it after destroying the graphs that hold calls of comm
  void (*abandon)(void *comm);  // callable from any thread: work that waits for other ranks ends
  // Sums over all ranks, in place.
  brim_status (*all_reduce)(void *comm, void *stream, void *data, int64_t count, brim_dtype dtype);
  // Copies `mine` of rank r to all + r * bytes on every rank.
  brim_status (*all_gather)(void *comm, void *stream, const void *mine, void *all, size_t bytes);
} brim_comm_table;

typedef struct brim_backend {
  uint32_t abi;                                                   // BRIM_BACKEND_ABI
  const char *name;                                               // "ref"
  brim_status (*device_count)(int *count);                        // (required)
  brim_status (*device_info)(int index, brim_device_info *info);  // (required)
  brim_status (*device_open)(int index, const brim_device_options *options, void **impl);
  void (*device_close)(void *impl);
  // (optional; default: free_bytes of device_info) reads the free and total memory of an open device
  brim_status (*device_memory)(void *impl, uint64_t *free_bytes, uint64_t *total_bytes);
  brim_status (*buffer_alloc)(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr);
  void (*buffer_free)(void *impl, brim_buffer_kind kind, void *ptr);
  // (optional, all or none; default: no streams, everything is synchronous)
  brim_status (*stream_create)(void *impl, void **stream);
  void (*stream_destroy)(void *impl, void *stream);
  brim_status (*stream_sync)(void *impl, void *stream);
  // (optional, all or none; default: host clock at record) events for timing and ordering
  brim_status (*event_create)(void *impl, void **event);
  void (*event_destroy)(void *impl, void *event);
  brim_status (*event_record)(void *impl, void *stream, void *event);
  brim_status (*event_elapsed)(void *impl, void *start, void *end, int64_t *ns);
  brim_status (*event_sync)(void *impl, void *event);                // the host waits
  brim_status (*event_wait)(void *impl, void *stream, void *event);  // the stream waits
  // (optional, all or none; default: no graphs) Work enqueued on the stream between begin and end is
  // recorded, not run. Launching the graph runs it.
  brim_status (*capture_begin)(void *impl, void *stream);
  brim_status (*capture_end)(void *impl, void *stream, void **graph);  // *graph NULL on failure
  brim_status (*graph_launch)(void *impl, void *stream, void *graph);
  void (*graph_destroy)(void *impl, void *graph);
  // (optional, both or none; default: nothing is chosen) get returns the algorithms chosen so far, one
  // "key value" line each, sorted; put takes such lines over. Lines that do not parse are an error, lines
  // for other shapes are fine. The text is freed with host_api's free.
  brim_status (*algorithms_get)(void *impl, char **text);
  brim_status (*algorithms_put)(void *impl, const char *text);
  brim_status (*copy)(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                      brim_copy direction);                                          // (required)
  brim_status (*fill)(void *impl, void *stream, void *dst, int byte, size_t bytes);  // (required)
  const brim_op_family *const *ops;  // every op at most once
  size_t op_families;
  // (optional) The host calls fn when the stream has come this far; the stream waits until fn returns. Can
  // be recorded. fn must not use the device.
  brim_status (*host_call)(void *impl, void *stream, void (*fn)(void *ctx), void *ctx);
  const brim_comm_table *comm;  // (optional) NULL = ranks exchange through the host
  // (optional; default: fixed at opening) Sets the number of threads for ops prepared from now on. Ops that
  // were prepared before must not run any more.
  brim_status (*set_threads)(void *impl, int threads);
} brim_backend;

// The row of an op, NULL if the backend does not have it.
static inline const brim_op_row *brim_backend_row(const brim_backend *backend, brim_op op) {
  for (size_t f = 0; f < backend->op_families; f++) {
    const brim_op_family *family = backend->ops[f];
    for (size_t i = 0; i < family->count; i++) {
      if (family->rows[i].op == op) return &family->rows[i];
    }
  }
  return NULL;
}

// The reference that other backends are tested against; always linked in.
const brim_backend *brim_backend_ref(void);

//---------------------------------- registry ----------------------------------

// The loaded plug-ins and their backends, plus ref. One per program; read-only once loaded.
typedef struct brim_registry brim_registry;

brim_status brim_registry_create(brim_registry **out);  // already contains ref
void brim_registry_destroy(brim_registry *registry);
// Load one plug-in. BRIM_EABI when it was built for another brim, BRIM_ENOENT when it does not open.
brim_status brim_registry_load(brim_registry *registry, const char *path);
// Load every libbrim_*.so of a folder. A plug-in that declines is no error; its reason is kept. A missing
// folder is fine.
brim_status brim_registry_load_folder(brim_registry *registry, const char *folder);
// Load from the standard places: $BRIM_PLUGIN_PATH (colon-separated) or, without it, <exe>/../lib/brim.
brim_status brim_registry_load_default(brim_registry *registry);
const char *brim_registry_folders(const brim_registry *registry);  // "" = not loaded yet
size_t brim_registry_plugin_count(const brim_registry *registry);
// Name, version and path of a plug-in. *why is its reason for declining, NULL if it loaded.
void brim_registry_plugin(const brim_registry *registry, size_t index, const char **name,
                          const char **version, const char **path, const char **why);
const brim_backend *brim_registry_backend(const brim_registry *registry, const char *name);
// Finds an extension table by its full name; NULL when absent.
const void *brim_registry_extension(const brim_registry *registry, const char *name);

//---------------------------------- device objects ----------------------------------

// Measures a device: its functions are called for every op enqueued there. The engine fills in the layer
// and pass an op belongs to.
typedef struct brim_op_watch {
  void *ctx;
  bool op_by_op;  // enqueue op by op instead of recording work or launching a recording
  // Called around an op, also while it is recorded (device->recording). A bad status stops the enqueuing.
  brim_status (*before)(void *ctx, const brim_op_call *call);
  brim_status (*after)(void *ctx, const brim_op_call *call);
  // Set before each op by callers that know them.
  const struct brim_net *net;  // NULL = the op belongs to no net
  const char *layer;           // layer of the model; NULL = none
  brim_phase phase;            // BRIM_PHASE_COUNT = unknown
} brim_op_watch;

typedef struct brim_device {
  const brim_backend *backend;
  int index;  // among the backend's devices
  void *impl;
  void *stream;       // the device's main stream; NULL for synchronous backends
  void *copy_stream;  // for batches on their way to the device; NULL for synchronous backends
  brim_device_info info;
  uint64_t free_at_open;  // device memory that was free before the device was opened
  bool recording;         // between capture begin and end: work that is enqueued does not run now
  struct brim_exchange *exchange;  // state of exchanges with other ranks; NULL = no rank
  brim_op_watch *watch;            // borrowed; NULL = nothing is measured
} brim_device;

// spec: "auto" (cuda, then cpu, then ref: the first with a device), "ref", "cpu", "cuda", "cuda:1".
// When the named backend is missing, the detail says why and what to do.
brim_status brim_device_open(const brim_registry *registry, const char *spec,
                             const brim_device_options *options, brim_device **out);
// Writes why "auto" opens ref, in the user's language. Returns false if another backend has a device.
bool brim_device_why_ref(const brim_registry *registry, char *out, size_t size);
// The spec that opens this device: "cpu", "cuda:0".
void brim_device_spec_text(const brim_device *device, char *out, size_t size);
void brim_device_close(brim_device *device);
// Sets the number of computing threads; call it before ops are prepared. Does nothing for 0, or if the
// backend computes with a fixed number of threads.
brim_status brim_device_set_threads(brim_device *device, int threads);
brim_status brim_device_memory(brim_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
brim_status brim_device_alloc(brim_device *device, brim_buffer_kind kind, size_t bytes, void **ptr);
void brim_device_free(brim_device *device, brim_buffer_kind kind, void *ptr);
brim_status brim_device_copy(brim_device *device, void *dst, const void *src, size_t bytes,
                             brim_copy direction);
// Copies to the device on its copy stream, beside the work of the main stream.
brim_status brim_device_upload(brim_device *device, void *dst, const void *src, size_t bytes);
brim_status brim_device_fill(brim_device *device, void *dst, int byte, size_t bytes);
brim_status brim_device_sync(brim_device *device);
// BRIM_OK, or BRIM_EUNSUPPORTED with the reason in the detail.
brim_status brim_device_supports(brim_device *device, const brim_op_call *call);
brim_status brim_op_prepare(brim_device *device, brim_op_call *call);  // validate + prepare
brim_status brim_op_run(brim_device *device, const brim_op_call *call);
void brim_op_release(brim_device *device, brim_op_call *call);
// A recorded piece of the main stream. brim_device_has_graphs is false if the backend cannot record.
typedef struct brim_graph_exec brim_graph_exec;
bool brim_device_has_graphs(const brim_device *device);
brim_status brim_capture_begin(brim_device *device);
brim_status brim_capture_end(brim_device *device, brim_graph_exec **out);
brim_status brim_graph_launch(brim_device *device, brim_graph_exec *exec);
void brim_graph_exec_destroy(brim_device *device, brim_graph_exec *exec);
// Gets the chosen algorithms as text ("" if there are none; free with brim_free), and takes such text over.
brim_status brim_device_algorithms(brim_device *device, char **text);
brim_status brim_device_set_algorithms(brim_device *device, const char *text);
// Events measure time on the device's stream, or by the host clock on synchronous backends.
typedef struct brim_event brim_event;
brim_status brim_event_create(brim_device *device, brim_event **out);
void brim_event_destroy(brim_device *device, brim_event *event);
brim_status brim_event_record(brim_device *device, brim_event *event);
// Records on the copy stream.
brim_status brim_event_record_copy(brim_device *device, brim_event *event);
brim_status brim_event_sync(brim_device *device, brim_event *event);       // the host waits
brim_status brim_event_wait(brim_device *device, brim_event *event);       // the main stream waits
brim_status brim_event_wait_copy(brim_device *device, brim_event *event);  // the copy stream waits
brim_status brim_event_elapsed(brim_device *device, brim_event *start, brim_event *end,
                               int64_t *ns);  // waits for end

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_H_
