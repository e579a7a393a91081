// Shared by the files of the engine: the planner, running pieces of work, components, the parts of a
// network, and switches for tests.
#ifndef BRIM_ENGINE_INT_H_
#define BRIM_ENGINE_INT_H_

#include "backend/backend_exchange.h"
#include "base/base_fs.h"
#include "base/base_xxh64.h"
#include "engine/engine.h"
#include "engine/engine_graph.h"

//---------------------------------- the planner (engine_plan.c) ----------------------------------

// The planner decides when each tensor is alive and where in the arena it lies: a pure function of the
// graph.
#define BRIM_PLAN_NO_PLACE SIZE_MAX

static inline size_t brim_align_up(size_t bytes) {
  return (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
}

typedef struct brim_arena_plan {
  size_t *offset;     // per tensor of the graph; BRIM_PLAN_NO_PLACE for those outside the arena
  size_t *workspace;  // per node: offset of its workspace; BRIM_PLAN_NO_PLACE for none
  size_t bytes;       // smallest size of the arena that holds everything, rounded up to 64
} brim_arena_plan;

typedef struct brim_plan_part {
  const brim_graph *graph;
  // Scratch bytes of each node (NULL = none). Scratch lies in the arena like a tensor that only this
  // node uses, so the large scratch of early layers' backward is free: most activations are gone by
  // then.
  const size_t *workspace;
  int32_t forward_count;  // number of nodes before the backward pass
  brim_arena_plan *out;   // out->bytes is the whole arena
} brim_plan_part;
// Places one graph, or several in one arena: all run forward one after the other, then all backward in
// the same order. Without reuse every tensor gets a place of its own, for tests.
brim_status brim_arena_plan_together(const brim_plan_part *parts, int32_t count, bool reuse);
void brim_arena_plan_free(brim_arena_plan *plan);

// Finds the nodes between which each tensor of a graph is alive: `first` (-1 = not in the arena) to
// `last` (node_count = kept to the end).
brim_status brim_arena_plan_lives(const brim_graph *g, int32_t forward_count, int32_t *first,
                                  int32_t *last);

//---------------------------------- running pieces of work (engine_exec.c) ------------------------

typedef struct brim_capture_piece {
  brim_graph_exec *graph;  // NULL: not recorded yet
  bool warm;               // the piece has run once, op by op
  // After a recording failed for lack of memory: launches between two tries, and until the next try.
  uint32_t pause, left;
} brim_capture_piece;

// Controls recording. All zero: pieces run op by op.
typedef struct brim_capture {
  bool on;        // record pieces; cleared when recording fails for a reason other than memory
  bool reported;  // a warning about the lack of memory was given
} brim_capture;

// Enqueues the piece on the device's main stream. One run may call it twice: after a failed recording the
// piece is enqueued again, op by op.
typedef brim_status (*brim_capture_work)(void *ctx);

void brim_capture_drop(brim_device *device, brim_capture_piece *piece);

// Slots of BRIM_BLOCK_INPUT, one in each half of the block. A slot holds the input of the largest batch,
// rounded up to BRIM_ALIGN, then its target. A network with input_in_place has one slot.
#define BRIM_EXEC_SLOTS 2

// The pieces of work. Each is enqueued, and recorded, as a whole.
typedef enum brim_exec_kind {
  BRIM_EXEC_TRAIN_FIRST,    // forward and backward, overwriting gradients
  BRIM_EXEC_TRAIN_ADD,      // forward and backward, adding to gradients
  BRIM_EXEC_STEP_ONLY,      // TRAIN_FIRST and UPDATE
  BRIM_EXEC_STEP_ADD_LAST,  // TRAIN_ADD and UPDATE
  BRIM_EXEC_FORWARD,        // parts of TRAIN_FIRST and TRAIN_ADD, for measured steps
  BRIM_EXEC_BACKWARD_FIRST,
  BRIM_EXEC_BACKWARD_ADD,
  BRIM_EXEC_BACKWARD_STEP,  // BACKWARD_FIRST and UPDATE, after a loss outside the engine
  BRIM_EXEC_BACKWARD_ADD_STEP,
  BRIM_EXEC_UPDATE,  // norm, optimizer, end of the step
  // With ranks: the gradient exchange begins within the backward pass.
  BRIM_EXEC_BACKWARD_LAST,
  BRIM_EXEC_BACKWARD_ADD_LAST,
  BRIM_EXEC_UPDATE_JOINED,
  BRIM_EXEC_EVAL,
  BRIM_EXEC_EMBED,  // full_batch_negatives: forward, keeping no activations
  BRIM_EXEC_LOSS,   // full_batch_negatives: the loss over all embeddings of the step
  BRIM_EXEC_KIND_COUNT
} brim_exec_kind;

// The state of running a network. All zero: the network is built but not yet allocated.
typedef struct brim_exec {
  brim_capture capture;
  uint64_t
      next;  // batches fed so far: batch k goes to slot k % 2, or to slot 0 if it is the only one
  // Unused on devices that read host memory:
  brim_event *filled[BRIM_EXEC_SLOTS];  // the copy into the slot has ended
  brim_event *done[BRIM_EXEC_SLOTS];    // the work that reads the slot has ended
  bool used[BRIM_EXEC_SLOTS];           // the slot was copied into
  brim_capture_piece pieces[BRIM_EXEC_KIND_COUNT][BRIM_EXEC_SLOTS];
  int64_t ring_first;  // step of the oldest of net->ring_count norms waiting on the device
  // An open forward pass: its activations and slot wait for the caller's gradient.
  struct {
    bool open, first;
    int slot;
    int64_t step;
  } forward;
  bool begun;             // a step has begun that brim_net_undo can undo
  int64_t begun_batches;  // net->batches before that step
} brim_exec;

// The device's part of the state: state[BRIM_STATE_HOST] and on. Both wait for the device.
#define BRIM_EXEC_KEPT (BRIM_STATE_COUNT - BRIM_STATE_HOST)
brim_status brim_exec_get_kept(brim_net *net, double kept[BRIM_EXEC_KEPT]);
brim_status brim_exec_set_kept(brim_net *net, const double kept[BRIM_EXEC_KEPT]);

//---------------------------------- components ----------------------------------

// Fails with "unknown <what> <name>" and the nearest of `known` (NULL-terminated), if any is near.
brim_status brim_engine_fail_unknown(const brim_component *c, const char *what, const char *name,
                                     const char *const *known);
// BRIM_EINVAL if the component has an argument that is not in `known`.
brim_status brim_engine_check_args(const brim_component *c, const char *const *known);

// The input of a model.
typedef struct brim_sample {
  int64_t rows, features;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[4];
  int64_t made_for[2];  // height and width in training; a model chooses its stem by them
  brim_op_attr attr;    // INPUT: channels, scale, shift
  bool backbone;        // stop before the projection or the last layer
} brim_sample;

static inline const int64_t *brim_eval_dim(const brim_net_spec *spec) {
  return spec->eval_dim[0] > 0 ? spec->eval_dim : spec->input_dim;
}
// The input of a model for a batch of `rows` rows.
brim_sample brim_sample_of(const brim_net_spec *spec, int64_t rows, bool training);

// The models, one row each; the last row has no name.
struct brim_model;
typedef struct brim_model_row {
  const char *name;
  const char *args[10];  // NULL-terminated
  int32_t (*build)(const struct brim_model *m);
} brim_model_row;
extern const brim_model_row brim_models[];

brim_status brim_model_build(brim_graph *g, const brim_component *model, const brim_sample *sample,
                             int64_t outputs, int32_t *out);
brim_status brim_optimizer_attr(const brim_component *c, brim_op_attr *attr);

// The spec's loss, checked against its data. row NULL: the caller computes the loss.
typedef struct brim_loss {
  const brim_loss_row *row;
  brim_op_attr attr;
} brim_loss;
brim_status brim_loss_find(const brim_net_spec *spec, brim_loss *out);

//---------------------------------- networks ----------------------------------

// Device memory, one buffer per row of the plan.
typedef enum brim_block_id {
  BRIM_BLOCK_PARAMS,
  BRIM_BLOCK_COPY,
  BRIM_BLOCK_GRADS,
  BRIM_BLOCK_BUFFERS,
  BRIM_BLOCK_OPTIMIZER,
  BRIM_BLOCK_ARENA,
  BRIM_BLOCK_WORKSPACE,
  BRIM_BLOCK_INPUT,
  BRIM_BLOCK_STATE,
  BRIM_BLOCK_REPLAY,           // full_batch_negatives: inputs of all micro-batches of a step
  BRIM_BLOCK_EMBEDDINGS,       // full_batch_negatives: embeddings of a step, and their gradient
  BRIM_BLOCK_AVERAGE,          // averaged parameters
  BRIM_BLOCK_AVERAGE_BUFFERS,  // running statistics of the averaged network
  BRIM_BLOCK_AVERAGE_COPY,     // 16-bit copy of the average, for evaluation
  BRIM_BLOCK_COUNT
} brim_block_id;

typedef struct brim_block {
  size_t bytes;
  unsigned char *data;
} brim_block;

// A graph with its places and prepared calls. With accumulation the calls that write gradients of
// parameters exist twice: those in `calls` overwrite, those in `adding` add.
typedef struct brim_program {
  brim_graph graph;
  brim_arena_plan places;
  brim_op_call *calls;   // one per node
  int32_t prepared;      // number of calls to release
  brim_op_call *adding;  // calls of the nodes in adding_node
  int32_t *adding_node;  // ascending
  int32_t adding_count, adding_prepared;
  int32_t forward_count;  // number of nodes before the backward pass
  int32_t output;         // tensor
  int64_t rows, views;    // rows of a batch, padding included; rows of a sample
  int64_t width;          // values in a row of the output
  size_t input_row_bytes;
  size_t target_row_bytes;  // 0 = no target
} brim_program;

// State of full_batch_negatives.
typedef struct brim_negatives {
  bool on;
  brim_program embed;  // forward, keeping no activations
  brim_op_call loss;   // the loss over all embeddings of the step
  bool prepared;       // `loss` must be released
  size_t width_bytes;  // bytes of a row of embeddings
  int64_t done;        // micro-batches of this step embedded so far
} brim_negatives;

// kNN evaluation of features. Its memory lies in the arena behind the evaluation program's tensors,
// where training has its activations: evaluation overwrites those anyway.
typedef struct brim_knn {
  bool on;
  brim_neighbours how;
  int64_t width, chunk;  // values of a feature; rows compared at once
  int64_t filled;        // rows in the bank
  brim_op_call unit, similar, vote;
  int prepared;  // how many of these calls to release, in order
  size_t bank, labels, query, similarities, workspace;  // offsets in the arena
  size_t end;
} brim_knn;

// A bucket: gradients that ranks exchange in one call.
typedef struct brim_bucket {
  int32_t after;  // the training node that completes the bucket's gradients
  int64_t begin;  // first element in the flat block
  brim_op_call call;
} brim_bucket;
// A network's part in a training on several ranks.
typedef struct brim_net_ranks {
  bool on;     // gradients are exchanged, even if this is the only rank
  bool norm;   // batch norm uses the rows of all ranks
  bool pairs;  // the loss compares the samples of all ranks
  int size;
  brim_bucket *buckets;  // in the order of their nodes
  int32_t count, prepared;
  brim_op_call wait;
} brim_net_ranks;

// Switches for tests; all zero is a normal network.
typedef struct brim_net_hooks {
  bool f64;       // everything in double (ref only)
  bool no_reuse;  // every tensor of the arena has its own place
  bool no_fusion;
  int32_t recompute;    // segments to recompute, whatever the spec says
  int32_t norm_groups;  // groups of rows in a batch for batch norm; a batch is a whole step
  bool given_grad;      // no loss: the gradient of the output is fed as the target
  int64_t channel_pad;  // replaces the device's padding of channels
  size_t bucket_bytes;  // gradient bytes exchanged at once; 0 = the default
  int32_t (*model)(void *ctx, brim_graph *g, int32_t x,
                   int64_t outputs);  // replaces the spec's model
  void *model_ctx;
  bool poison;          // fill the arena with NaNs, so that reads before writes show
  bool canary;          // put a marked block behind the arena ...
  size_t canary_early;  // ... this many bytes before its planned end
  const char *machine;  // root of the /proc and /sys to read free memory from
} brim_net_hooks;

// Gradient norms wait on the device in a ring of this size until they are read, so that a step need not
// wait for the device.
#define BRIM_NORM_RING 512

struct brim_net {
  brim_device *device;
  brim_net_hooks hooks;
  bool planning;  // true: built only to know sizes
  const char *name;
  // From the spec (components are not kept).
  brim_precision precision;
  brim_dtype master, compute;
  int64_t batch, eval_batch;  // rows: samples times views
  int64_t accumulation, outputs_per_row, views;
  double clip_norm;
  uint64_t seed;
  bool classes;
  bool external_loss;
  bool in_place;           // spec.input_in_place: the caller's kernels write the inputs
  int64_t enqueued_steps;  // rows of the table of states
  uint32_t loss_metrics;
  brim_params params;
  brim_params buffers;  // running statistics
  brim_net_param *info;
  int32_t segments, recomputed;  // segments of the model; those recomputed in backward
  brim_program train, eval;
  brim_negatives negatives;
  brim_knn knn;
  brim_net_ranks ranks;
  brim_op_call norm_call, optimizer_call, step_end_call, cast_call, average_cast_call;
  int optimizer_prepared;               // how many of the five calls above to release, in order
  bool averages;                        // ema_decay was given
  brim_op_call statistics_call;         // updates the average of the running statistics
  bool statistics_prepared;             // statistics_call exists and must be released
  bool average_stale;                   // the 16-bit copy is older than the average
  int slots;                            // state of the optimizer: 0 = none, 1 = m, 2 = m and v
  brim_block blocks[BRIM_BLOCK_COUNT];  // a block with data but no bytes is another network's
  struct brim_net *peer;                // ring of the networks that share the arena; NULL = none
  brim_exec exec;
  // State.
  double state[BRIM_STATE_COUNT];
  double sums[BRIM_METRIC_COUNT];  // sums of metrics read from the device since the last reset
  double grad_norm, grad_norm_max;
  uint64_t skipped_steps;
  int64_t ring_count;  // norms waiting in the ring
  bool outputs_valid;
  int64_t output_rows;
  int64_t batches;  // micro-batches trained on: num_batches_tracked of every batch norm
  void *snapshot;
  uint64_t snapshot_skipped;
  int64_t snapshot_batches;
  double snapshot_kept[BRIM_EXEC_KEPT];
  // Page-locked copies of blocks that a held checkpoint left for the next one to reuse.
  void *reusable[BRIM_BLOCK_COUNT];
};

brim_status brim_net_create_hooked(brim_device *device, const brim_net_spec *spec,
                                   const brim_net_hooks *hooks, brim_net **out);
bool brim_net_canary_intact(const brim_net *net);

brim_dtype brim_precision_dtype(brim_precision precision);

// Builds everything but memory; brim_net_destroy accepts *out even after a failure. planning: only sizes
// are needed, so no algorithm is timed.
brim_status brim_net_build(brim_device *device, const brim_net_spec *spec,
                           const brim_net_hooks *hooks, bool planning, brim_net **out);
void brim_net_fill_plan(const brim_net *net, brim_plan *plan);

// Binds training's forward calls to the weights or to their average. Recorded pieces are not changed. The
// caller must set the calls' input addresses again.
void brim_net_bind_forward(brim_net *net, bool averaged);

// Bytes of an input slot.
size_t brim_net_input_bytes(const brim_net *net);

// feed brings a batch to the memory that the program reads; run runs a piece on it.
brim_status brim_exec_feed(brim_net *net, brim_program *p, const brim_batch *b,
                           const brim_spans *spans, int *slot);
brim_status brim_exec_run(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans);
static inline int brim_exec_slots(const brim_net *net) {
  return net->in_place ? 1 : BRIM_EXEC_SLOTS;
}
// The addresses of a slot's input and target. Only for devices that do not read host memory, and for
// networks with input_in_place.
void brim_exec_slot(const brim_net *net, int slot, unsigned char **input, unsigned char **target);

brim_status brim_net_init_params(brim_net *net);

// Refreshes the 16-bit copy of the average if it is out of date.
brim_status brim_net_refresh_average(brim_net *net);
// Warns that the averaged weights of `of` have no running statistics of their own.
void brim_engine_warn_statistics(const char *of);

// Bytes of a flat block of the master's type.
static inline size_t brim_net_flat_bytes(const brim_net *net) {
  return (size_t)net->params.total * brim_dtype_size(net->master);
}
// The address of m (slot 0) or v (slot 1) in the optimizer's block; NULL = no such slot.
static inline unsigned char *brim_net_slot(const brim_net *net, int slot) {
  if (slot >= net->slots) return NULL;
  return net->blocks[BRIM_BLOCK_OPTIMIZER].data + (size_t)slot * brim_net_flat_bytes(net);
}

// The state block: the state, the metrics, the norm, the ring of norms, the table of states (rows of
// BRIM_STATE_HOST doubles), then metrics and running statistics from before the step (brim_net_undo).
_Static_assert(BRIM_STATE_COUNT * sizeof(double) <= 128 && BRIM_METRIC_COUNT * sizeof(double) <= 64,
               "the places below");
static inline void *brim_net_state_ptr(const brim_net *net) {
  return net->blocks[BRIM_BLOCK_STATE].data;
}
static inline void *brim_net_metrics_ptr(const brim_net *net) {
  return net->blocks[BRIM_BLOCK_STATE].data + 128;
}
static inline void *brim_net_norm_ptr(const brim_net *net) {
  return net->blocks[BRIM_BLOCK_STATE].data + 192;
}
static inline void *brim_net_ring_ptr(const brim_net *net) {
  return net->blocks[BRIM_BLOCK_STATE].data + 256;
}
static inline unsigned char *brim_net_table_ptr(const brim_net *net) {
  size_t ring = (size_t)BRIM_NORM_RING * 4 * brim_dtype_size(net->master);
  return net->blocks[BRIM_BLOCK_STATE].data + 256 + brim_align_up(ring);
}
static inline unsigned char *brim_net_buffers_before_ptr(const brim_net *net) {
  size_t bytes = brim_align_up(net->blocks[BRIM_BLOCK_BUFFERS].bytes);
  return net->blocks[BRIM_BLOCK_STATE].data + net->blocks[BRIM_BLOCK_STATE].bytes - bytes;
}
static inline void *brim_net_metrics_before_ptr(const brim_net *net) {
  return brim_net_buffers_before_ptr(net) - 256;
}

//---------------------------------- groups ----------------------------------

enum { BRIM_GROUP_ADDING = 1, BRIM_GROUP_UPDATING = 2, BRIM_GROUP_KINDS = 4 };

// The caller's losses within a step. A recording is valid only for the pointers it was made with.
typedef struct brim_group_losses {
  brim_status (*call)(void *ctx);
  void *ctx;
} brim_group_losses;

struct brim_group {
  brim_device *device;
  brim_net *nets[BRIM_GROUP_MAX];
  int32_t count;
  bool eager;  // at least one spec is eager
  brim_capture capture;
  brim_capture_piece pieces[BRIM_GROUP_KINDS][BRIM_EXEC_SLOTS];
  brim_group_losses recorded[BRIM_GROUP_KINDS]
                            [BRIM_EXEC_SLOTS];  // the losses in each recorded piece
  // The table of states for recorded work (brim_group_put_states).
  struct {
    double *rows;      // host copy of one network's table; NULL = the networks have no table
    int64_t capacity;  // rows of a network's table
    int64_t count;     // rows that were put and whose steps have not run yet
    int64_t enqueued;  // rows that the current work has enqueued so far
    int64_t first[BRIM_GROUP_MAX],
        updates[BRIM_GROUP_MAX];  // per network: first step put, and steps
    bool moved;                   // this run has changed weights
  } table;
};

//---------------------------------- safetensors ----------------------------------

// Copies an object of strings; NULL gives an empty one. jansson's own copy drops members when memory
// runs out.
brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out);
// brim_safetensors_write for values that are produced while writing: `put` writes the bytes of
// entries[i], once for each i in order; entry.data is ignored.
typedef brim_status (*brim_safetensors_put)(void *ctx, size_t i, brim_fs_writer *w);
brim_status brim_safetensors_write_with(const char *path, const brim_safetensors_entry *entries,
                                        size_t count, const json_t *metadata,
                                        brim_safetensors_put put, void *ctx);

#endif  // BRIM_ENGINE_INT_H_
