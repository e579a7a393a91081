// The engine between folders: networks that are planned, created, stepped, saved.
// A model and a batch shape make a graph; the planner gives every tensor its place in one arena;
// nothing is allocated in a step. The engine knows nothing of data sources, configs or files of settings.
// Called by: workload.
#ifndef BRIM_ENGINE_H_
#define BRIM_ENGINE_H_

#include "backend/backend.h"
#include "brim/plan.h"
#include "record/record_component.h"

typedef enum brim_precision {
  BRIM_PRECISION_FP32,
  BRIM_PRECISION_TF32,
  BRIM_PRECISION_BF16,
  BRIM_PRECISION_FP16,
  BRIM_PRECISION_COUNT
} brim_precision;

const char *brim_precision_name(brim_precision precision);  // "fp32"
bool brim_precision_parse(const char *text, brim_precision *out);

// Activation recomputation: chosen segments of a model (its residual blocks) compute their activations
// again in the backward pass instead of keeping them. NONE: no segment. AUTO: the fewest that bring the
// network within memory_limit. ALL: every segment.
typedef enum brim_recompute {
  BRIM_RECOMPUTE_NONE,
  BRIM_RECOMPUTE_AUTO,
  BRIM_RECOMPUTE_ALL
} brim_recompute;

// kNN evaluation: a feature gets its class from the labels of the nearest rows of a bank. A feature is
// the tensor before the projection or the last layer, for one view.
typedef struct brim_neighbours {
  int64_t bank;     // rows of the bank; 0 = no kNN, evaluation computes the loss
  int64_t classes;  // labels are 0 to classes - 1
  int32_t k;
  double temperature;  // a neighbour's weight is exp(similarity / temperature)
} brim_neighbours;

// The target of a loss: the values it compares a network's outputs (rows, width) with.
typedef enum brim_loss_target {
  BRIM_LOSS_NONE,    // no target: output rows are compared with each other
  BRIM_LOSS_LABELS,  // (rows) i32
  BRIM_LOSS_VALUES   // (rows, width) f32
} brim_loss_target;

// A loss by its component's name. A new one is a new row: in engine_optim.c, or in a spec.
typedef struct brim_loss_row {
  const char *name;
  brim_op op;  // output, target unless NONE, state -> metrics, gradient of the output
  brim_loss_target target;
  int32_t views;        // rows of a sample: 1 or 2
  bool any_width;       // true: the model sets the width of the outputs; false: the data does
  uint32_t metrics;     // 1 << BRIM_METRIC_* of the sums it adds to
  const char *args[4];  // names of its arguments, NULL-terminated
  // (optional; default: no arguments) Writes the arguments into `attr`, which the caller has zeroed.
  brim_status (*read)(const brim_component *c, brim_op_attr *attr);
} brim_loss_row;

// The description a network is made from. Pointers are borrowed for the call only.
typedef struct brim_net_spec {
  // Name in a profile of several networks ("actor"), a string literal; NULL = the only network.
  const char *name;
  const brim_component *model;  // mlp(...), resmlp(...), ...
  const brim_component *loss;   // cross_entropy(...), mse; NULL with external_loss
  // Losses searched before the engine's own, ended by a row without a name; NULL = none.
  const brim_loss_row *losses;
  bool external_loss;               // the caller computes the loss, see brim_net_forward
  const brim_component *optimizer;  // sgd(...), adam(...), adamw(...)
  // U8, F32, or the type of the activations (BF16, F16). 16-bit inputs are not converted: they need scale 1
  // and shift 0.
  brim_dtype input_dtype;
  int32_t input_rank;
  int64_t input_dim[4];  // one sample, without the batch
  // Shape of a sample in evaluation, for convolutional networks: height and width may differ from
  // input_dim. eval_dim[0] 0 = as in training.
  int64_t eval_dim[4];
  int32_t channels;  // y = x * scale[c] + shift[c]
  float scale[4], shift[4];
  int64_t classes;       // > 0: int32 labels
  int64_t target_dim;    // classes == 0: float targets
  int32_t views;         // rows of a sample: 2 for ntxent (all first views, then all second views),
                         // else 0 or 1
  int64_t batch;         // samples of a micro-batch
  int64_t eval_batch;    // samples of an evaluation batch; 0 = batch
  int64_t accumulation;  // micro-batches per optimiser step, >= 1
  brim_precision precision;
  double clip_norm;  // 0 = off
  // > 0: keep an average of the weights, avg += max(1 - decay, 9 / (n + 10)) * (w - avg) after the nth
  // update (from 0), and an average of the running statistics by the same rule. Evaluation and saved
  // weights use the average, and loading weights prefers it; training uses the weights themselves.
  double ema_decay;
  uint64_t seed;
  bool eager;  // run op by op: nothing is fused or recorded
  brim_recompute recompute;
  uint64_t memory_limit;  // device bytes for RECOMPUTE_AUTO; 0 = nothing is recomputed
  // ntxent over several micro-batches: every sample of the step is a negative of every other sample, not
  // only of those in its micro-batch. brim embeds each micro-batch without keeping activations and
  // computes the loss over all embeddings. It then repeats the forward pass of each micro-batch and runs
  // the backward pass from that micro-batch's rows of the gradient.
  bool full_batch_negatives;
  brim_neighbours neighbours;
  // The caller writes batches directly into the network's input memory, see brim_net_input. Requires
  // external_loss.
  bool input_in_place;
  int64_t enqueued_steps;  // capacity of brim_group_put_states in rows; 0 = it is not used
  // If the device is one of several ranks (brim_device_set_ranks), a batch is this rank's part of the
  // whole, step_rows counts the rows of all ranks, and gradients are summed over ranks. Batch norm uses
  // the statistics of all ranks' rows, or with local_norm only of this rank's. ntxent compares the
  // samples of all ranks.
  bool local_norm;
} brim_net_spec;

typedef struct brim_net brim_net;

// Adds the network's rows to a plan, which the caller has zeroed. Asks the device for workspace sizes;
// allocates nothing on it.
brim_status brim_net_plan(brim_device *device, const brim_net_spec *spec, brim_plan *plan);
brim_status brim_net_create(brim_device *device, const brim_net_spec *spec, brim_net **out);
void brim_net_destroy(brim_net *net);
const char *brim_net_name(const brim_net *net);  // from the spec

// The use of the arena during each node of training, for a profile. The network owns the names.
typedef struct brim_net_point {
  const char *op, *layer;  // layer NULL = none
  brim_phase phase;
  size_t bytes;  // arena bytes in use while the node runs: the sum over live `places`
} brim_net_point;
typedef struct brim_net_place {
  const char *name;  // the layer that writes the tensor, or the parameter it belongs to
  const char *kind;  // "activation", "gradient", "statistic", "workspace"
  size_t bytes, offset;
  int32_t first, last;  // the points between which the place is in use
} brim_net_place;
typedef struct brim_net_memory {
  brim_net_point *points;
  brim_net_place *places;
  size_t point_count, place_count;
  size_t arena_bytes;
} brim_net_memory;
brim_status brim_net_memory_of(const brim_net *net, brim_net_memory *out);
void brim_net_memory_free(brim_net_memory *memory);

// A batch in host memory: input (rows, sample) of spec.input_dtype, target int32 (rows) or float
// (rows, target_dim). The block always has room for spec.batch rows; those past `rows` are padding.
// A call with a batch in host memory has read the batch when it returns. With two views all rows of the
// first view precede those of the second, `rows` counts both, and a batch is always full; ntxent has no
// target.
typedef struct brim_batch {
  // NULL: reuse the device's copy of the batch before the previous one; with spec.input_in_place, read the
  // memory of brim_net_input.
  const void *input;
  const void *target;
  bool on_device;  // input and target are device memory, written on the device's main stream. The
                   // call only enqueues a copy: write them again in the order of that stream.
  int64_t rows;    // valid rows, >= 1
  int64_t row_offset;  // index of the first row in the effective batch
} brim_batch;

// Forward, loss and backward of one micro-batch. `first` overwrites the gradients; later micro-batches
// of the step add to them. step_rows is the number of valid rows of the whole step; step counts from 1.
// With spec.full_batch_negatives micro-batches are only kept until step_rows is complete; the last call
// of the step then computes the gradients of all.
typedef struct brim_net_micro {
  brim_batch batch;
  int64_t step;
  int64_t step_rows;
  bool first;
} brim_net_micro;
brim_status brim_net_train(brim_net *net, const brim_net_micro *micro, const brim_spans *spans);
// Clips the gradients, updates the weights and refreshes their 16-bit copy. If a gradient is not finite,
// skips the update and counts a skipped step.
brim_status brim_net_update(brim_net *net, int64_t step, double lr, const brim_spans *spans);
// Runs the last (or only) micro-batch of a step and the update, in one launch where the device can.
brim_status brim_net_step(brim_net *net, const brim_net_micro *micro, double lr,
                          const brim_spans *spans);
brim_status brim_net_evaluate(brim_net *net, const brim_batch *batch, const brim_spans *spans);
// With spec.neighbours evaluation takes labels as targets. First pass all rows of the bank, in order
// and without gaps from `at` = 0; then evaluate any batches, which add to the metrics `correct`, `rows`
// and `bad_rows`. A training step overwrites the bank.
brim_status brim_net_bank(brim_net *net, const brim_batch *batch, int64_t at);
brim_status brim_net_evaluate_features(brim_net *net, const brim_batch *batch);
// True if every rank computes the loss over all ranks' samples; its sums of metrics then are the same
// on each rank.
bool brim_net_shares_loss(const brim_net *net);
// 1 << BRIM_METRIC_* of the sums that the loss adds to; 0 with an external loss.
uint32_t brim_net_loss_metrics(const brim_net *net);
int64_t brim_net_output_width(const brim_net *net);  // values in a row of brim_net_outputs
// With spec.input_in_place: the memory from which training or evaluation reads its batch, (batch or
// eval_batch, sample) of spec.input_dtype. Its address never changes. Training and evaluation share it:
// write it in the main stream's order, before each call that reads it.
brim_status brim_net_input(brim_net *net, bool evaluation, brim_tensor *out);
// Copies the outputs of the last brim_net_evaluate to the host as f32: (rows, classes or target_dim), or
// features with spec.neighbours.
brim_status brim_net_outputs(brim_net *net, float *out, int64_t rows);
// The outputs on the device, (eval_batch, width) in the type of the activations. Read them in the main
// stream's order, before the next call of this network or of another network in its group. With
// spec.input_in_place the address is known before the first evaluation and never changes.
brim_status brim_net_output_tensor(brim_net *net, brim_tensor *out);

// With spec.external_loss a micro-batch has three parts in the main stream's order: forward, the
// caller's work on these tensors, backward. The tensors are device memory whose addresses never change.
// Evaluation then has no targets and no loss; it only computes outputs.
typedef struct brim_net_external {
  brim_tensor
      output;  // (batch, width), written by forward; rows past the batch's `rows` are padding
  // Shape and type of `output`. The caller writes every row, 0 for padding: the derivative of the sum
  // of the rows' losses, times state.GRAD_SCALE, times state.LOSS_SCALE.
  brim_tensor gradient;
  brim_tensor state;  // BRIM_STATE_*, read only
  brim_tensor
      metrics;  // BRIM_METRIC_*; the caller may add to them, brim_net_read_metrics reads them
} brim_net_external;
brim_status brim_net_external_loss(const brim_net *net, brim_net_external *out);
// A parameter, for a caller that computes the gradients itself (brim_group_part.gradients): its value in
// the type of the activations, and the place of its gradient, f32. Both are device memory whose
// addresses never change.
typedef struct brim_net_weight {
  const char *name;   // owned by the network
  brim_tensor value;  // the 16-bit copy where there is one, else the parameter itself
  brim_tensor gradient;
} brim_net_weight;
// Writes the first `most` parameters, in their order; *count is the number of all. BRIM_EUNSUPPORTED if the
// memory layout of a parameter differs from its shape (weights of convolutions).
brim_status brim_net_weights(const brim_net *net, brim_net_weight *out, size_t most, size_t *count);
// The batch must stay in place until the backward call returns. A forward pass need not be followed by a
// backward pass; any other computation of the network ends the forward pass.
brim_status brim_net_forward(brim_net *net, const brim_net_micro *micro, const brim_spans *spans);
brim_status brim_net_backward(brim_net *net, const brim_spans *spans);
// Runs the backward pass of the last micro-batch of a step, and the update.
brim_status brim_net_backward_step(brim_net *net, double lr, const brim_spans *spans);

// Recalibration: computes the running statistics of the averaged weights by running training batches
// forward through them, since averaged statistics fit no network exactly. After batch `index` (from 0)
// the statistics are the mean over all batches so far; dropout is drawn for `step`. After a failure or a
// stop, `undo_recalibration` restores the statistics from before batch 0. Call both between steps; the
// weights and their own statistics do not change. `recalibrates` is true if the network has batch norm
// and keeps an average.
bool brim_net_recalibrates(const brim_net *net);
brim_status brim_net_recalibrate(brim_net *net, const brim_batch *batch, int64_t step,
                                 int64_t index);
brim_status brim_net_undo_recalibration(brim_net *net);

// Undoes a step that failed before its update, so that it can be repeated: restores the running statistics
// and the sums of metrics from before its first micro-batch. Does nothing if no step was begun.
brim_status brim_net_undo(brim_net *net);

// Sums since the last reset; reading waits for the device.
typedef struct brim_net_metrics {
  double loss_sum;
  double correct;
  double rows;
  double bad_rows;
  double grad_norm;        // of the last update, before clipping; NaN if there was none
  double grad_norm_max;    // of the updates since the last reset; NaN if there were none
  double loss_scale;       // after the last update; 1 unless the precision is fp16
  uint64_t skipped_steps;  // since creation
} brim_net_metrics;
brim_status brim_net_read_metrics(brim_net *net, bool reset, brim_net_metrics *out);

// The same sums bit for bit, for checkpoints. brim_net_read_metrics adds the device's part to the host's,
// which changes how later sums round; get_sums changes nothing, and set_sums continues bit for bit.
typedef struct brim_net_sums {
  double host[BRIM_METRIC_COUNT], device[BRIM_METRIC_COUNT];
  double grad_norm_max;  // NaN = none
  uint64_t skipped_steps;
} brim_net_sums;
brim_status brim_net_get_sums(brim_net *net, brim_net_sums *out);
brim_status brim_net_set_sums(brim_net *net, const brim_net_sums *sums);

// Parameters by PyTorch's names ("layers.0.weight"), f32, shape as in PyTorch.
typedef struct brim_net_param {
  const char *name;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
  int64_t count;
} brim_net_param;
size_t brim_net_param_count(const brim_net *net);
const brim_net_param *brim_net_param_at(const brim_net *net, size_t index);
brim_status brim_net_param_read(brim_net *net, size_t index, float *out);
// Writes the parameter, and its average if there is one.
brim_status brim_net_param_write(brim_net *net, size_t index, const float *values);
brim_status brim_net_grad_read(brim_net *net, size_t index, float *out);

// Checkpoints: one safetensors file. Model tensors by their names, optimiser state as
// "optimizer.m.<name>" / "optimizer.v.<name>", averages of model tensors as "ema.<name>",
// `metadata` (a JSON object of strings) in __metadata__. weights_only leaves the optimiser out, and
// writes the average, if there is one, under the names of the model tensors. The file appears whole or
// not at all, has BRIM_SAFETENSORS_SUM and no timestamps: equal states give equal bytes.
brim_status brim_net_save(brim_net *net, const char *path, const json_t *metadata,
                          bool weights_only);
// A copy in host memory of the content that brim_net_save would write now: one thread may write it while
// the network trains on. Free it before the network. BRIM_ENOMEM if the copy would take more than half
// of the free memory.
typedef struct brim_net_held brim_net_held;
brim_status brim_net_hold(brim_net *net, const json_t *metadata, bool weights_only,
                          brim_net_held **out);
brim_status brim_net_held_write(brim_net_held *held, const char *path);
void brim_net_held_free(brim_net_held *held);  // NULL is fine
// Loads a checkpoint. BRIM_EPARSE if the checksum does not match, as in brim_net_load_weights. Names,
// shapes and types must match exactly; *metadata (may be NULL) is a new reference. With weights_only the
// optimiser state is neither required nor changed, and an average in the file is loaded as the weights.
// If the file has no average, the network's average starts from the weights; if the network keeps none,
// the file's average is ignored. An average without running statistics (from an earlier version) takes
// those of the weights, with a warning.
brim_status brim_net_load(brim_net *net, const char *path, bool weights_only, json_t **metadata);
// Loads a run's first weights into a network that was just created. Works like brim_net_load with
// weights_only, with two exceptions. If the file's last layer has another number of outputs, the
// network's last layer keeps its initial values, and *reinit says so. The network may also be a part of
// the file's network: the encoder of a contrastive run (which has no last layer), or a module that
// PyTorch wrapped; other entries of such a file are ignored.
typedef struct brim_net_reinit {
  bool is;
  char layer[128];       // "fc"
  int64_t had, outputs;  // outputs of the file's last layer (0 = it has none) and of the network's
  char inside[128];      // prefix of the network's names in the file: "backbone."; "" = none
} brim_net_reinit;
brim_status brim_net_start(brim_net *net, const char *path, brim_net_reinit *reinit);

// For use without training: loads weights and running statistics, each from the entry
// "<prefix><name>" if it exists (averaged weights), else from "<name>"; ignores all other entries. prefix
// may be NULL. BRIM_EPARSE if the checksum does not match. A file that does not fit changes nothing.
brim_status brim_net_load_weights(brim_net *net, const char *path, const char *prefix);

// Snapshot and restore parameters and optimiser state in memory, for trials. The network owns the
// snapshot.
brim_status brim_net_snapshot(brim_net *net);
brim_status brim_net_restore(brim_net *net);

//---------------------------------- groups ----------------------------------

// Networks of one device that make a step together, such as an actor and a critic: all run forward, the
// caller computes their losses, all run backward, all are updated. They share one arena and one
// workspace, planned for that order, and the step is one launch where the device can.
#define BRIM_GROUP_MAX 8
typedef struct brim_group brim_group;

// Plans all networks: rows of the same name are added up; samples are those of the first network.
// BRIM_EUNSUPPORTED for specs with full_batch_negatives. With BRIM_RECOMPUTE_AUTO the smallest
// memory_limit is the limit of all networks together.
brim_status brim_group_plan(brim_device *device, const brim_net_spec *specs, int32_t count,
                            brim_plan *plan);
brim_status brim_group_create(brim_device *device, const brim_net_spec *specs, int32_t count,
                              brim_group **out);
void brim_group_destroy(brim_group *group);  // NULL is fine
// A network of the group; all calls of a network work on it. brim_group_destroy destroys it. The networks
// share the arena: the outputs, forward pass or kNN bank of one are lost when another computes.
brim_net *brim_group_net(brim_group *group, int32_t index);

typedef struct brim_group_step {
  const brim_net_micro *micro;  // one for each network; `first` is the same in all
  const double *lr;             // one for each network; NULL = gradients only
  // (optional) Enqueues on the device's main stream the work that reads the outputs and writes the
  // gradients of the networks with external_loss. The work is recorded with the step, so `losses` must
  // not wait, must not allocate and must use the same memory every time. One step may call it twice.
  brim_status (*losses)(void *ctx);
  void *ctx;
} brim_group_step;
brim_status brim_group_run(brim_group *group, const brim_group_step *step, const brim_spans *spans);
brim_status brim_group_undo(brim_group *group);  // calls brim_net_undo for all networks

//---------------------------------- recorded work ----------------------------------

// A record launches the work of several calls at once, such as a whole iteration: everything that
// `enqueue` puts on the main stream, by its own kernels and by the calls below. The first run goes op by
// op, the second is recorded, later runs launch the recording. On devices without graphs every run goes
// op by op.
typedef struct brim_record brim_record;
// `group` has the networks that the work uses; NULL = none.
brim_status brim_record_create(brim_device *device, brim_group *group, brim_record **out);
void brim_record_destroy(brim_record *record);  // NULL is fine; destroy it before the group
// `enqueue` must not wait or allocate, and must use the same memory and do the same every time; one run
// may call it twice. op_by_op: this run is not recorded or launched, so that `enqueue` can measure its
// parts. After success the steps of brim_group_put_states count as made. After a failure brim_group_undo
// restores sums and running statistics; if weights have already changed, the status is not BRIM_EOOM.
brim_status brim_record_run(brim_record *record, brim_status (*enqueue)(void *ctx), void *ctx,
                            bool op_by_op);

// The numbers of one micro-batch of one network: one row of brim_group_put_states. Rows of the same step
// are adjacent, and the update after the last of them uses its lr.
typedef struct brim_group_state {
  int64_t step;  // from 1; the next row has the same or the next step
  double lr;
  int64_t rows;        // valid rows of the batch
  int64_t row_offset;  // index of the first row in the effective batch
  int64_t step_rows;   // valid rows of the whole step
} brim_group_state;
// Sets states[index * networks + network] for the next run of a record, which enqueues each index once
// and in order. The number of indices is at most spec.enqueued_steps and BRIM_GROUP_STATES.
#define BRIM_GROUP_STATES 512
brim_status brim_group_put_states(brim_group *group, const brim_group_state *states, int64_t count);

typedef struct brim_group_part {
  bool adding;                       // add to the gradients of earlier micro-batches of the step
  bool gradients_only;               // no update: another micro-batch of the step follows
  brim_status (*losses)(void *ctx);  // as in brim_group_step
  // (optional) Replaces forward, losses and backward: enqueues the work that writes the gradients of all
  // networks, under the rules of `losses`. The device's states have the row's numbers already. Not with
  // `adding`.
  brim_status (*gradients)(void *ctx);
  void *ctx;
} brim_group_part;
// Within `enqueue`: runs forward, losses, backward and update of the micro-batches in the networks' input
// memory, with the numbers of row `index`.
brim_status brim_group_enqueue(brim_group *group, const brim_group_part *part, int64_t index);
// The memory of the activations, as scratch for `gradients`: it is free while no network of the group
// computes. Writing it destroys results that networks left there, such as the outputs of an evaluation.
// Its size is BRIM_PLAN_ACTIVATIONS in the plan.
void *brim_group_memory(const brim_group *group, size_t *bytes);
// Within `enqueue`: evaluates all rows of the network's input memory.
brim_status brim_net_enqueue_outputs(brim_net *net);

//---------------------------------- safetensors ----------------------------------

// A parsed file; the header is checked completely (sizes, overlaps, holes, dtypes, JSON).
typedef struct brim_safetensors brim_safetensors;
typedef struct brim_safetensors_entry {
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
  const void *data;  // points into the file's bytes
  size_t bytes;
} brim_safetensors_entry;
brim_status brim_safetensors_open(const char *path, brim_safetensors **out);
void brim_safetensors_close(brim_safetensors *file);
size_t brim_safetensors_count(const brim_safetensors *file);
const brim_safetensors_entry *brim_safetensors_at(const brim_safetensors *file, size_t index);
const brim_safetensors_entry *brim_safetensors_find(const brim_safetensors *file, const char *name);
const json_t *brim_safetensors_metadata(const brim_safetensors *file);  // object, may be empty
// Compares the file's bytes with its checksum (BRIM_SAFETENSORS_SUM): BRIM_EPARSE if they differ. A file
// without a checksum passes. Reads the whole file.
brim_status brim_safetensors_verify(const brim_safetensors *file);
// Fails if an f32 value of the entry is NaN or infinite: training cannot continue from such values, and
// metrics computed from them can look like numbers. NULL = check every entry.
brim_status brim_safetensors_finite(const brim_safetensors *file,
                                    const brim_safetensors_entry *entry);
// Writes entries, in the given order, atomically. If the metadata has this key, its value becomes the
// checksum: "xxh64:" and 16 digits, the XXH64 of the whole file with 16 zeros in place of the digits.
#define BRIM_SAFETENSORS_SUM "brim.checksum"
brim_status brim_safetensors_write(const char *path, const brim_safetensors_entry *entries,
                                   size_t count, const json_t *metadata);

//---------------------------------- several networks in a file ----------------------------------

// A copy in host memory of the entries that brim_net_save would write, with `prefix` in front of each
// name ("actor.layers.0.weight", "actor.optimizer.m.layers.0.weight"). brim_safetensors_write can write
// them together with other entries.
typedef struct brim_net_entries brim_net_entries;
brim_status brim_net_entries_copy(brim_net *net, const char *prefix, bool weights_only,
                                  brim_net_entries **out);
// Returns NULL past the last entry.
const brim_safetensors_entry *brim_net_entries_at(const brim_net_entries *copy, size_t index);
void brim_net_entries_free(brim_net_entries *copy);  // NULL is fine

typedef struct brim_net_part {
  const char *path;  // for messages
  const brim_safetensors *file;
  const char *prefix;
  bool weights_only;  // the optimizer's state is neither required nor touched
} brim_net_part;
// Like brim_net_load, from the entries with the prefix; other entries are ignored. `check` changes
// nothing, so that several networks can be checked before any is loaded.
brim_status brim_net_entries_check(const brim_net *net, const brim_net_part *part);
brim_status brim_net_entries_take(brim_net *net, const brim_net_part *part);

//---------------------------------- schedules ----------------------------------

typedef struct brim_schedule {
  int kind;
  double base_lr, min_lr, gamma;
  int64_t every, warmup_steps, total_steps;
} brim_schedule;
// scheduler: constant, step(every=, gamma=), cosine(min_lr=); NULL = constant. `every` counts
// steps.
brim_status brim_schedule_init(brim_schedule *schedule, const brim_component *scheduler,
                               double base_lr, int64_t warmup_steps, int64_t total_steps);
double brim_schedule_lr(const brim_schedule *schedule, int64_t step);  // step from 1

#endif  // BRIM_ENGINE_H_
