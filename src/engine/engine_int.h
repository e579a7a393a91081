// Inside the engine: the network's parts, and the switches tests use to look at them.
#ifndef BRIM_ENGINE_INT_H_
#define BRIM_ENGINE_INT_H_

#include "backend/backend_exchange.h"
#include "engine/engine.h"
#include "engine/engine_exec.h"
#include "engine/engine_graph.h"
#include "engine/engine_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- components ----------------------------------

// 'unknown <what> <name>', with the nearest of `known` (NULL-terminated) if there is one.
brim_status brim_engine_fail_unknown(const brim_component *c, const char *what, const char *name,
                                     const char *const *known);
// BRIM_EINVAL when the component has an argument that is not in `known`.
brim_status brim_engine_check_args(const brim_component *c, const char *const *known);

// What a model is fed with.
typedef struct brim_sample {
  int64_t rows, features;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[4];
  int64_t made_for[2];  // the first two in training, by which a model chooses its stem
  brim_op_attr attr;    // INPUT: channels, scale, shift
  bool backbone;        // the model ends before its projection or last layer
} brim_sample;

static inline const int64_t *brim_eval_dim(const brim_net_spec *spec) {
  return spec->eval_dim[0] > 0 ? spec->eval_dim : spec->input_dim;
}
// What a model of so many rows is built on (engine_build.c).
brim_sample brim_sample_of(const brim_net_spec *spec, int64_t rows, bool training);

brim_status brim_model_build(brim_graph *g, const brim_component *model, const brim_sample *sample,
                             int64_t outputs, int32_t *out);
brim_status brim_optimizer_attr(const brim_component *c, brim_op_attr *attr);
int brim_optimizer_slots(const brim_op_attr *attr);  // 0: none, 1: m, 2: m and v
// A number in [0, high), else a message that names the argument.
brim_status brim_engine_read_number(const brim_component *c, const char *name, double fallback,
                                    double high, float *out);

// engine_losses.c: the spec's loss, checked against its data; without a row where it is the
// caller's.
typedef struct brim_loss {
  const brim_loss_row *row;
  brim_op_attr attr;
} brim_loss;
brim_status brim_loss_find(const brim_net_spec *spec, brim_loss *out);
// What it compares a batch's outputs with; -1 = nothing.
int32_t brim_loss_target_tensor(brim_graph *g, const brim_loss_row *row, int64_t rows,
                                int64_t width);

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
  BRIM_BLOCK_EMBEDDINGS,       // full_batch_negatives: what they output, and its gradient
  BRIM_BLOCK_AVERAGE,          // of the parameters
  BRIM_BLOCK_AVERAGE_BUFFERS,  // of the running statistics: the average is a network of its own
  BRIM_BLOCK_AVERAGE_COPY,     // in 16 bits, as evaluation reads it
  BRIM_BLOCK_COUNT
} brim_block_id;

typedef struct brim_block {
  size_t bytes;
  unsigned char *data;
} brim_block;

// A graph with its places and prepared calls. Calls that write gradients of parameters exist twice
// under accumulation: `calls` overwrites, `adding` adds.
typedef struct brim_program {
  brim_graph graph;
  brim_arena_plan places;
  brim_op_call *calls;   // one per node
  int32_t prepared;      // calls that have to be released
  brim_op_call *adding;  // those of the nodes in adding_node
  int32_t *adding_node;  // ascending
  int32_t adding_count, adding_prepared;
  int32_t forward_count;  // nodes before the first backward one
  int32_t output;         // tensor
  int64_t rows, views;    // rows of a batch, padding included, and how many of them a sample has
  int64_t width;          // of a row of the output
  size_t input_row_bytes;
  size_t target_row_bytes;  // what it is fed with besides the input; 0 = nothing
} brim_program;

// What the loss of a whole step needs (engine_negatives.c).
typedef struct brim_negatives {
  bool on;
  brim_program embed;  // forward without keeping anything
  brim_op_call loss;   // over the embeddings of the step
  bool prepared;       // `loss` has to be released
  size_t width_bytes;  // of one row of embeddings
  int64_t done;        // micro-batches of this step embedded so far
} brim_negatives;

// Evaluating features by their neighbours (engine_knn.c). All of it lies in the arena behind what the
// evaluation program needs: while that runs, training's activations are gone.
typedef struct brim_knn {
  bool on;
  brim_neighbours how;
  int64_t width, chunk;  // of a feature; rows whose similarities are there at once
  int64_t filled;        // rows of the bank
  brim_op_call unit, similar, vote;
  int prepared;                                         // of the three
  size_t bank, labels, query, similarities, workspace;  // places in the arena
  size_t end;
} brim_knn;

// One of several ranks (engine_ranks.c).
typedef struct brim_bucket {
  int32_t after;  // the node of training that writes its last value
  int64_t begin;  // elements of the flat block
  brim_op_call call;
} brim_bucket;
typedef struct brim_net_ranks {
  bool on;     // gradients are exchanged, be it with oneself
  bool norm;   // batch norm is that of all ranks
  bool pairs;  // and so is the loss
  int size;
  brim_bucket *buckets;  // in the order of their nodes
  int32_t count, prepared;
  brim_op_call wait;
} brim_net_ranks;

// How tests bend a network; all zero is the normal one.
typedef struct brim_net_hooks {
  bool f64;       // everything in double (ref only)
  bool no_reuse;  // every tensor of the arena has its own place
  bool no_fusion;
  int32_t recompute;  // this many segments are recomputed, whatever the spec says
  int32_t
      norm_groups;  // batch norm normalises so many groups of rows apart (one step is one batch)
  bool given_grad;  // no loss: the gradient of the output is fed as the target
  int64_t channel_pad;  // instead of the device's
  size_t bucket_bytes;  // of gradients that are exchanged at once; 0 = the usual
  int32_t (*model)(void *ctx, brim_graph *g, int32_t x, int64_t outputs);  // instead of the spec's
  void *model_ctx;
  bool poison;          // the arena starts as NaNs: what is read before it is written shows
  bool canary;          // a marked block behind the arena ...
  size_t canary_early;  // ... this many bytes before its planned end
  const char *machine;  // a folder in front of /proc and /sys, where free memory is asked for
} brim_net_hooks;

// Norms of the last updates wait here until a caller reads them: nothing synchronises in a step.
#define BRIM_NORM_RING 512

struct brim_net {
  brim_device *device;
  brim_net_hooks hooks;
  bool planning;  // built for its sizes only
  const char *name;
  // What it was made from (components are not kept).
  brim_precision precision;
  brim_dtype master, compute;
  int64_t batch, eval_batch;  // rows: samples times views
  int64_t accumulation, outputs_per_row, views;
  double clip_norm;
  uint64_t seed;
  bool classes;
  bool external_loss;
  bool in_place;           // its inputs
  int64_t enqueued_steps;  // rows of its table of states
  uint32_t loss_metrics;
  brim_params params;
  brim_params buffers;  // running statistics
  brim_net_param *info;
  int32_t segments, recomputed;  // of the model, and those whose activations are not kept
  brim_program train, eval;
  brim_negatives negatives;
  brim_knn knn;
  brim_net_ranks ranks;
  brim_op_call norm_call, optimizer_call, step_end_call, cast_call, average_cast_call;
  int optimizer_prepared;        // of the five above
  bool averages;                 // ema_decay was given
  brim_op_call statistics_call;  // moves the average of the running statistics
  bool statistics_prepared;      // there are some, and it has to be released
  bool average_stale;            // its copy is not of the average as it stands
  int slots;
  brim_block blocks[BRIM_BLOCK_COUNT];  // with data and without bytes: another network's
  struct brim_net *peer;  // the next of those that share its arena, in a ring; or NULL
  brim_exec exec;
  // State.
  double state[BRIM_STATE_COUNT];
  double sums[BRIM_METRIC_COUNT];  // read from the device so far
  double grad_norm, grad_norm_max;
  uint64_t skipped_steps;
  int64_t ring_count;  // norms waiting on the device
  bool outputs_valid;
  int64_t output_rows;
  int64_t batches;  // micro-batches trained on: num_batches_tracked of every batch norm
  void *snapshot;
  uint64_t snapshot_skipped;
  int64_t snapshot_batches;
  double snapshot_kept[BRIM_EXEC_KEPT];
  // Page-locked room for copies of blocks, which a held checkpoint left for the next one.
  void *reusable[BRIM_BLOCK_COUNT];
};

brim_status brim_net_create_hooked(brim_device *device, const brim_net_spec *spec,
                                   const brim_net_hooks *hooks, brim_net **out);
// engine_net.c: memory for what was built, and first values.
brim_status brim_net_open(brim_net *net, bool eager);
// Is the canary as it was written?
bool brim_net_canary_intact(const brim_net *net);

brim_dtype brim_precision_dtype(brim_precision precision);

// engine_build.c: everything but memory; *net is complete enough for destroy whatever the result.
// planning: only sizes are needed, so nothing may be timed.
brim_status brim_net_build(brim_device *device, const brim_net_spec *spec,
                           const brim_net_hooks *hooks, bool planning, brim_net **out);
void brim_net_size_blocks(brim_net *net);
size_t brim_net_device_bytes(const brim_net *net);  // of all blocks
// The training program again, with so many segments that are recomputed.
brim_status brim_net_rebuild(brim_net *net, const brim_net_spec *spec, int32_t recompute);
void brim_net_fill_plan(const brim_net *net, brim_plan *plan);
// The same, added to the rows from `first` on that have the same name.
void brim_net_add_plan(const brim_net *net, size_t first, brim_plan *plan);

// engine_program.c: the calls of a graph, and, knowing what they need while they run, the place of
// every tensor.
brim_status brim_program_prepare(brim_net *net, brim_program *p);
// Places again, for programs that go forward one after the other and then back in the same order.
brim_status brim_programs_place(brim_program *const *programs, int32_t count, bool reuse);
void brim_program_release(brim_net *net, brim_program *p);
// A call of its own, outside the programs.
brim_status brim_net_prepare_call(brim_net *net, brim_op_call *call);
// Addresses; averaged: of the averaged weights and their statistics.
void brim_program_bind(brim_net *net, brim_program *p, bool averaged);
// Training's forward calls alone. Recorded pieces are not touched; inputs have to be pointed at
// again.
void brim_net_bind_forward(brim_net *net, bool averaged);

// engine_places.c: bytes of a slot for inputs and for targets.
size_t brim_net_input_bytes(const brim_net *net);
size_t brim_net_target_bytes(const brim_net *net);

// engine_negatives.c
// The loss over all embeddings of a step; the embedding program is built already.
brim_status brim_negatives_prepare(brim_net *net, const brim_net_spec *spec);
size_t brim_negatives_replay_bytes(const brim_net *net);
size_t brim_negatives_embedding_bytes(const brim_net *net);
void brim_negatives_bind(brim_net *net);
void brim_negatives_release(brim_net *net);
// One micro-batch; the last of its step computes all of them, with `update` the optimiser's part
// too.
brim_status brim_negatives_run(brim_net *net, const brim_net_micro *micro, bool update,
                               const brim_spans *spans);

// engine_ranks.c
brim_status brim_ranks_init(brim_net *net, const brim_net_spec *spec);
brim_status brim_ranks_prepare(brim_net *net);  // once the training program is as it will run
void brim_ranks_bind(brim_net *net);
void brim_ranks_release(brim_net *net);
size_t brim_ranks_host_bytes(const brim_net *net);
brim_status brim_ranks_pair_loss(brim_net *net, const brim_loss *loss, brim_program *p);

// engine_knn.c
brim_status brim_knn_prepare(brim_net *net, const brim_net_spec *spec);
void brim_knn_release(brim_net *net);

// engine_exec.c, for engine_negatives.c, engine_knn.c and engine_recalibrate.c: a batch to where
// the program reads it, and pieces run on it.
brim_status brim_exec_check(const brim_net *net, const brim_program *p, const brim_batch *b);
// The numbers of a batch in the state, which put_state brings to the device; step_rows 0 = no
// gradients.
void brim_exec_set_rows(brim_net *net, int64_t rows, int64_t views, int64_t row_offset,
                        int64_t step_rows);
brim_status brim_exec_put_state(brim_net *net);
// BRIM_EOOM after which the step would be made again, although weights have moved: another status.
brim_status brim_exec_fail_moved(brim_status status);
brim_status brim_exec_feed(brim_net *net, brim_program *p, const brim_batch *b,
                           const brim_spans *spans, int *slot);
brim_status brim_exec_run(brim_net *net, brim_exec_kind kind, int slot, const brim_spans *spans);
// A forward pass that waits for its gradient waits no longer; its slot is given back.
brim_status brim_exec_drop_forward(brim_net *net);
brim_status brim_exec_give_slot_back(brim_net *net, int slot, brim_status status);
static inline int brim_exec_slots(const brim_net *net) {
  return net->in_place ? 1 : BRIM_EXEC_SLOTS;
}
// The slot's places, on devices with memory of their own and of networks with inputs in place.
void brim_exec_slot(const brim_net *net, int slot, unsigned char **input, unsigned char **target);

// engine_step.c: what the first micro-batch of a step is about to change is kept for brim_net_undo.
brim_status brim_net_begin_step(brim_net *net, brim_exec_kind kind, int slot,
                                const brim_spans *spans);
brim_status brim_net_check_micro(const brim_net *net, const brim_net_micro *micro);

// engine_metrics.c: room for the norm of this step among those that wait on the device.
brim_status brim_net_reserve_norm(brim_net *net, int64_t step);
// The same for `count` steps from this one on.
brim_status brim_net_reserve_norms(brim_net *net, int64_t step, int64_t count);

// engine_group_record.c, for engine_record.c: what the networks hold ends, and the steps that were
// put are about to be made; were made.
brim_status brim_group_begin_record(brim_group *group);
void brim_group_end_record(brim_group *group);
bool brim_group_moved(const brim_group *group);  // weights, since begin_record, op by op
bool brim_group_eager(const brim_group *group);  // nothing may be recorded
// The steps are enqueued from the first on; how many have been; work that makes so many fits those
// that were put.
void brim_group_rewind(brim_group *group);
int64_t brim_group_enqueued(const brim_group *group);
brim_status brim_group_check_steps(const brim_group *group, int64_t made);

// engine_params.c
brim_status brim_net_init_params(brim_net *net);

// engine_copies.c
brim_status brim_net_refresh_copy(brim_net *net);  // 16-bit copy from the master, if there is one
// The average again from weights and running statistics, or from these alone; its copy from itself.
// Nothing where there is none.
brim_status brim_net_start_average(brim_net *net);
brim_status brim_net_start_statistics(brim_net *net);
brim_status brim_net_refresh_average(brim_net *net);
// A file (or model) whose averaged weights have no running statistics of their own.
void brim_engine_warn_statistics(const char *of);

// Floats of the largest parameter or buffer as it lies on the device.
size_t brim_net_largest(const brim_net *net);
// Bytes of a flat f32 block, and where m (0) and v (1) begin in the optimiser's block.
size_t brim_net_flat_bytes(const brim_net *net);
unsigned char *brim_net_slot(const brim_net *net, int slot);

// Addresses within the state block.
void *brim_net_state_ptr(const brim_net *net);
void *brim_net_metrics_ptr(const brim_net *net);
void *brim_net_norm_ptr(const brim_net *net);
void *brim_net_ring_ptr(const brim_net *net);
unsigned char *brim_net_table_ptr(const brim_net *net);  // rows of BRIM_STATE_HOST doubles
// Metrics and running statistics as they were before the step (brim_net_undo).
void *brim_net_metrics_before_ptr(const brim_net *net);
unsigned char *brim_net_buffers_before_ptr(const brim_net *net);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_INT_H_
