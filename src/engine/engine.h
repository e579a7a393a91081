// The engine between folders: networks that are planned, created, stepped, saved.
// A model and a batch shape make a graph; the planner gives every tensor its place in one arena;
// nothing is allocated in a step. It knows nothing of data sources, configs or files of settings.
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

// Segments of a model (its residual blocks) whose activations are computed again on the way back
// instead of being kept: none, as many as it takes to stay within memory_limit, all.
typedef enum brim_recompute {
  BRIM_RECOMPUTE_NONE,
  BRIM_RECOMPUTE_AUTO,
  BRIM_RECOMPUTE_ALL
} brim_recompute;

// kNN evaluation: the labels of the nearest rows of a bank classify features (what comes before the
// projection or the last layer, of one view).
typedef struct brim_neighbours {
  int64_t bank;     // rows of the bank; 0 = evaluation takes the loss
  int64_t classes;  // labels are 0 to classes - 1
  int32_t k;
  double temperature;  // a neighbour's weight is exp(similarity / temperature)
} brim_neighbours;

// The values that a loss compares a network's outputs (rows, width) with.
typedef enum brim_loss_target {
  BRIM_LOSS_NONE,    // nothing: its rows with each other
  BRIM_LOSS_LABELS,  // (rows) i32
  BRIM_LOSS_VALUES   // (rows, width) f32
} brim_loss_target;

// A loss by its component's name. A new one is a new row: in engine_optim.c, or in a spec.
typedef struct brim_loss_row {
  const char *name;
  brim_op op;  // output, target unless NONE, state -> metrics, gradient of the output
  brim_loss_target target;
  int32_t views;        // rows that a sample has: 1 or 2
  bool any_width;       // the outputs are as wide as the model says, not as the data
  uint32_t metrics;     // 1 << BRIM_METRIC_* of the sums it adds to
  const char *args[4];  // names of its arguments, NULL-terminated
  // (optional; default: no arguments) The arguments into `attr`, which is zeroed.
  brim_status (*read)(const brim_component *c, brim_op_attr *attr);
} brim_loss_row;

// The description a network is made from. Pointers are borrowed for the call only.
typedef struct brim_net_spec {
  // Name of the network in a profile of several ("actor"), a literal; NULL = it is the only one.
  const char *name;
  const brim_component *model;  // mlp(...), resmlp(...), ...
  const brim_component *loss;   // cross_entropy(...), mse; NULL with external_loss
  // Rows that are looked at before the engine's own; NULL or up to a row without a name.
  const brim_loss_row *losses;
  bool external_loss;               // the caller takes the loss, see brim_net_forward
  const brim_component *optimizer;  // sgd(...), adam(...), adamw(...)
  // U8, F32, or the type of the activations (BF16, F16), which are read as they are: scale 1 and
  // shift 0.
  brim_dtype input_dtype;
  int32_t input_rank;
  int64_t input_dim[4];  // one sample, without the batch
  // Images of another height and width for evaluation, where the network is one of convolutions and
  // takes them; eval_dim[0] 0 = as in training.
  int64_t eval_dim[4];
  int32_t channels;  // y = x * scale[c] + shift[c]
  float scale[4], shift[4];
  int64_t classes;       // > 0: int32 labels
  int64_t target_dim;    // classes == 0: float targets
  int32_t views;         // rows of a sample that follow each other in halves of a batch: 2 for
                         // ntxent, else 0 or 1
  int64_t batch;         // samples of a micro-batch
  int64_t eval_batch;    // samples of an evaluation batch; 0 = batch
  int64_t accumulation;  // micro-batches per optimiser step, >= 1
  brim_precision precision;
  double clip_norm;  // 0 = off
  // > 0: an average of the weights is kept beside them, avg += max(1 - decay, 9 / (n + 10)) * (w -
  // avg) after the nth update (from 0), and one of the running statistics by the same rule.
  // Evaluation, saved weights and what is loaded as weights are the average's; training continues
  // with the weights themselves.
  double ema_decay;
  uint64_t seed;
  bool eager;  // nothing is fused or captured: op by op
  brim_recompute recompute;
  uint64_t memory_limit;  // device bytes for RECOMPUTE_AUTO; 0 = nothing is recomputed
  // ntxent over several micro-batches: every sample of the step is a negative of every other, not
  // only of those of its micro-batch. brim embeds each micro-batch without keeping activations,
  // takes the loss over all embeddings, and computes each once more to go back from its part of the
  // gradient.
  bool full_batch_negatives;
  brim_neighbours neighbours;
  // The network reads its batches from memory of its own that the caller may write, see
  // brim_net_input. With external_loss only.
  bool input_in_place;
  int64_t enqueued_steps;  // most rows of brim_group_put_states; 0 = the network is not enqueued
  // If the device is one of several ranks (brim_device_set_ranks), batches are this rank's part,
  // step_rows counts the rows of all ranks, and gradients are summed over them. Batch norm uses the
  // statistics of all ranks' rows; with local_norm, of this rank's. ntxent compares the samples of
  // all ranks.
  bool local_norm;
} brim_net_spec;

typedef struct brim_net brim_net;

// Add the network's rows to a plan (caller zeroes it first). Needs the device to ask for workspace
// sizes, but allocates nothing on it.
brim_status brim_net_plan(brim_device *device, const brim_net_spec *spec, brim_plan *plan);
brim_status brim_net_create(brim_device *device, const brim_net_spec *spec, brim_net **out);
void brim_net_destroy(brim_net *net);
const char *brim_net_name(const brim_net *net);  // from the spec

// The arena during each node of training: the planner's answer again, for a profile. Names are the
// network's own.
typedef struct brim_net_point {
  const char *op, *layer;  // layer NULL = none
  brim_phase phase;
  size_t bytes;  // in use while it runs, by what is in `places`
} brim_net_point;
typedef struct brim_net_place {
  const char *name;  // the layer that makes it, or the parameter it belongs to
  const char *kind;  // "activation", "gradient", "statistic", "workspace"
  size_t bytes, offset;
  int32_t first, last;  // points
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
// The call that takes a batch has read it when it returns. With two views all rows of the first
// view precede those of the second, `rows` counts both, and a batch is always full; ntxent has no
// target.
typedef struct brim_batch {
  // NULL: what lies on the device from the last batch but one; with spec.input_in_place, in the
  // memory of brim_net_input.
  const void *input;
  const void *target;
  bool on_device;      // input and target are device memory, written on the device's main stream;
                       // the call only enqueues the copy: they may be written again in stream order
  int64_t rows;        // valid rows, >= 1
  int64_t row_offset;  // in the effective batch
} brim_batch;

// Forward, loss and backward of one micro-batch; gradients overwrite on `first`, else add up.
// step_rows is the number of valid rows of the whole step; step counts from 1. With
// spec.full_batch_negatives a micro-batch is kept, and the one that completes step_rows does the
// work of all: gradients are there after it.
typedef struct brim_net_micro {
  brim_batch batch;
  int64_t step;
  int64_t step_rows;
  bool first;
} brim_net_micro;
brim_status brim_net_train(brim_net *net, const brim_net_micro *micro, const brim_spans *spans);
// Clip, update, cast. Counts a skipped step when a gradient is not finite.
brim_status brim_net_update(brim_net *net, int64_t step, double lr, const brim_spans *spans);
// The last (or only) micro-batch of a step and the update, in one launch where the device can.
brim_status brim_net_step(brim_net *net, const brim_net_micro *micro, double lr,
                          const brim_spans *spans);
brim_status brim_net_evaluate(brim_net *net, const brim_batch *batch, const brim_spans *spans);
// With spec.neighbours evaluation has labels as targets. First pass all rows of the bank, in order
// and without gaps from `at` 0 on; then any batches, which add to the metrics `correct`, `rows` and
// `bad_rows`. A training step takes the bank's memory back.
brim_status brim_net_bank(brim_net *net, const brim_batch *batch, int64_t at);
brim_status brim_net_evaluate_features(brim_net *net, const brim_batch *batch);
// The loss, and so the sums of metrics, is that of all ranks' samples on each of them.
bool brim_net_shares_loss(const brim_net *net);
// 1 << BRIM_METRIC_* of the sums that the loss adds to; 0 where the loss is the caller's.
uint32_t brim_net_loss_metrics(const brim_net *net);
int64_t brim_net_output_width(const brim_net *net);  // values a row of brim_net_outputs
// With spec.input_in_place: the memory from which training or evaluation reads its batch, (batch or
// eval_batch, sample) of spec.input_dtype. It stays in place as long as the network. Both share one
// place: write it in the main stream's order, before each call that reads it.
brim_status brim_net_input(brim_net *net, bool evaluation, brim_tensor *out);
// Outputs (rows, classes or target_dim; features with spec.neighbours) of the last
// brim_net_evaluate, as f32 on the host.
brim_status brim_net_outputs(brim_net *net, float *out, int64_t rows);
// The outputs on the device, (eval_batch, width) in the type of the activations: read them in the
// main stream's order, before the next call of the network or of another in its group. With
// spec.input_in_place the place is known before the first evaluation and never changes.
brim_status brim_net_output_tensor(brim_net *net, brim_tensor *out);

// With spec.external_loss a micro-batch is three steps in the main stream's order: forward, the
// caller's own work on these tensors, backward. They are device memory that stays in place as long
// as the network. Evaluation then has no targets and no loss; it gives outputs.
typedef struct brim_net_external {
  brim_tensor output;  // (batch, width), written by forward; the rows past the batch's are padding
  // Of the same shape and type. Write it whole, 0 for padding: the derivative of the sum of the
  // rows' losses, times state.GRAD_SCALE, times state.LOSS_SCALE.
  brim_tensor gradient;
  brim_tensor state;    // BRIM_STATE_*, to be read
  brim_tensor metrics;  // BRIM_METRIC_*, may be added to: brim_net_read_metrics reads them
} brim_net_external;
brim_status brim_net_external_loss(const brim_net *net, brim_net_external *out);
// A parameter, for a caller that computes the gradients itself (brim_group_part.gradients): where
// products read it, in the type of the activations, and where its gradient goes, f32. Both are
// device memory that stays in place as long as the network.
typedef struct brim_net_weight {
  const char *name;   // the network's own
  brim_tensor value;  // the 16-bit copy where there is one, else the parameter itself
  brim_tensor gradient;
} brim_net_weight;
// All parameters in their order, at most `most`; *count is how many there are. BRIM_EUNSUPPORTED where one does
// not lie in memory as its shape says (weights of convolutions).
brim_status brim_net_weights(const brim_net *net, brim_net_weight *out, size_t most, size_t *count);
// The batch has to stay where it is until `backward` returns. A forward pass without a backward one
// is fine; anything else that the network computes in between ends it.
brim_status brim_net_forward(brim_net *net, const brim_net_micro *micro, const brim_spans *spans);
brim_status brim_net_backward(brim_net *net, const brim_spans *spans);
// Backward for the last micro-batch of a step, and the update.
brim_status brim_net_backward_step(brim_net *net, double lr, const brim_spans *spans);

// The running statistics of the averaged weights, from training batches that go forward through
// them: averages of statistics fit no network. Batch `index`, from 0 on, makes them the mean over
// all batches so far; dropout is drawn for `step`. After a failure or a stop, `undo_recalibration`
// restores what was there before batch 0. Call both between steps; the weights and their own
// statistics stay. `recalibrates` is true for an average of a network with batch norm.
bool brim_net_recalibrates(const brim_net *net);
brim_status brim_net_recalibrate(brim_net *net, const brim_batch *batch, int64_t step,
                                 int64_t index);
brim_status brim_net_undo_recalibration(brim_net *net);

// Undoes a failed step whose last micro-batch has not come through: running statistics and sums
// become what they were before its first, so that the step can be repeated. Weights have not moved
// yet. Does nothing if no step was begun.
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

// The same sums bit for bit, for checkpoints. Reading adds the device's part to the host's and so
// moves a rounding; getting changes nothing, and setting continues bit for bit.
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
// Writes its average too, where there is one.
brim_status brim_net_param_write(brim_net *net, size_t index, const float *values);
brim_status brim_net_grad_read(brim_net *net, size_t index, float *out);

// Checkpoints: one safetensors file. Model tensors by their names, optimiser state as
// "optimizer.m.<name>" / "optimizer.v.<name>", averages of model tensors as "ema.<name>",
// `metadata` (a JSON object of strings) in __metadata__. weights_only leaves the optimiser out, and
// where there is an average it has the model's names. Written whole or not at all, with
// BRIM_SAFETENSORS_SUM; no timestamps, so equal states are equal bytes.
brim_status brim_net_save(brim_net *net, const char *path, const json_t *metadata,
                          bool weights_only);
// The content brim_net_save would write now, held in host memory: any one thread may write it while
// the network trains on. Free it before the network. BRIM_ENOMEM if a copy would take more than
// half of the free memory.
typedef struct brim_net_held brim_net_held;
brim_status brim_net_hold(brim_net *net, const json_t *metadata, bool weights_only,
                          brim_net_held **out);
brim_status brim_net_held_write(brim_net_held *held, const char *path);
void brim_net_held_free(brim_net_held *held);  // NULL is fine
// A file that its checksum says is damaged is BRIM_EPARSE, here and in brim_net_load_weights.
// Names, shapes and types must match exactly; *metadata (may be NULL) is a new reference. With
// weights_only the optimiser state is not required and not touched, and of a file that has an
// average that is taken. A file without one starts the network's average from its weights; one that
// the network does not have is left out. An average without running statistics (an earlier
// version's) takes those of the weights, and a warning says so.
brim_status brim_net_load(brim_net *net, const char *path, bool weights_only, json_t **metadata);
// A run's first weights, for a network that was just created: brim_net_load with weights_only, but
// a last layer that the file has for another number of outputs stays as the seed made it, and
// *reinit says so. The network may also lie inside another one of the file's: the encoder of a
// contrastive run, or a module that PyTorch put something around; what is beside it is left alone
// then, and of an encoder the last layer is not there. Everything else must match.
typedef struct brim_net_reinit {
  bool is;
  char layer[128];       // "fc"
  int64_t had, outputs;  // the file's (0 = there is none) and the network's
  char inside[128];      // what stands in front of the names: "backbone."; "" = nothing
} brim_net_reinit;
brim_status brim_net_start(brim_net *net, const char *path, brim_net_reinit *reinit);

// For use without training: loads weights and running statistics, each from the entry
// "<prefix><name>" if it exists (averaged weights), else from "<name>"; ignores everything else in
// the file. prefix may be NULL. A file that does not fit leaves the network as it was.
brim_status brim_net_load_weights(brim_net *net, const char *path, const char *prefix);

// Snapshot and restore parameters and optimiser state in memory (for trials); the snapshot belongs
// to the net and is counted as overhead.
brim_status brim_net_snapshot(brim_net *net);
brim_status brim_net_restore(brim_net *net);

//---------------------------------- groups ----------------------------------

// Networks of one device that make a step together, such as an actor and a critic: all go forward,
// the caller takes their losses, all go back, all are updated. Their arena and their workspace are
// one each, planned for that order, and the step is one launch where the device can.
#define BRIM_GROUP_MAX 8
typedef struct brim_group brim_group;

// The rows of all networks, added up by name; samples are those of the first network. Specs with
// full_batch_negatives are BRIM_EUNSUPPORTED. With BRIM_RECOMPUTE_AUTO the smallest memory_limit is
// the limit of all networks together.
brim_status brim_group_plan(brim_device *device, const brim_net_spec *specs, int32_t count,
                            brim_plan *plan);
brim_status brim_group_create(brim_device *device, const brim_net_spec *specs, int32_t count,
                              brim_group **out);
void brim_group_destroy(brim_group *group);  // NULL is fine
// Everything a network can do it can do in a group; brim_group_destroy destroys it. What one leaves
// in the arena (outputs, a forward pass, a bank of neighbours) ends when another computes.
brim_net *brim_group_net(brim_group *group, int32_t index);

typedef struct brim_group_step {
  const brim_net_micro *micro;  // one for each network; all or none are the first of their step
  const double *lr;             // one for each network; NULL = gradients only
  // (optional) Enqueues on the device's main stream what reads the outputs and writes the gradients
  // of the networks without a loss of their own. It is recorded with the step, so it must not wait,
  // must not allocate and must use the same memory every time; it may be called once more for one
  // step.
  brim_status (*losses)(void *ctx);
  void *ctx;
} brim_group_step;
brim_status brim_group_run(brim_group *group, const brim_group_step *step, const brim_spans *spans);
brim_status brim_group_undo(brim_group *group);  // brim_net_undo of all

//---------------------------------- recorded work ----------------------------------

// Work of several calls in one launch, such as a whole iteration: what `enqueue` puts on the main
// stream, its own kernels and the calls below. The first run goes op by op, the second is recorded,
// later ones launch what was recorded. On devices without graphs every run goes op by op.
typedef struct brim_record brim_record;
// `group` is the one whose networks the work uses; NULL = none.
brim_status brim_record_create(brim_device *device, brim_group *group, brim_record **out);
void brim_record_destroy(brim_record *record);  // NULL is fine; before the group
// `enqueue` must not wait or allocate, and must use the same memory and do the same every time; it
// may be called once more for one run. op_by_op: this run is not recorded or launched, so that
// `enqueue` can measure its parts. After success the steps of brim_group_put_states count as made;
// after a failure brim_group_undo restores sums and running statistics, and where weights have
// moved already the status is another than BRIM_EOOM.
brim_status brim_record_run(brim_record *record, brim_status (*enqueue)(void *ctx), void *ctx,
                            bool op_by_op);

// The numbers of one micro-batch of one network. Rows of the same step follow each other; the last
// of them is updated with its lr.
typedef struct brim_group_state {
  int64_t step;  // from 1; the next row has the same or the next one
  double lr;
  int64_t rows;        // valid rows of the batch
  int64_t row_offset;  // in the effective batch
  int64_t step_rows;   // valid rows of the whole step
} brim_group_state;
// states[index * networks + network] for the next run of a record, which enqueues each index once
// and in order. At most spec.enqueued_steps, and no more than BRIM_GROUP_STATES, indices.
#define BRIM_GROUP_STATES 512
brim_status brim_group_put_states(brim_group *group, const brim_group_state *states, int64_t count);

typedef struct brim_group_part {
  bool adding;                       // to the gradients of earlier micro-batches of the step
  bool gradients_only;               // a micro-batch of the step follows
  brim_status (*losses)(void *ctx);  // as in brim_group_step
  // (optional) Instead of forward, losses and backward: enqueues what writes the gradients of all networks,
  // as `losses` does. Their states have the row's numbers already. Not with `adding`.
  brim_status (*gradients)(void *ctx);
  void *ctx;
} brim_group_part;
// Within `enqueue`: forward, losses, backward and update of the micro-batches that lie in the
// inputs, with the numbers of row `index`.
brim_status brim_group_enqueue(brim_group *group, const brim_group_part *part, int64_t index);
// Memory that activations lie in, for `gradients`: free while no network of the group computes. What networks
// left there (outputs of an evaluation) is lost.
// Its size is that of BRIM_PLAN_ACTIVATIONS in the plan.
void *brim_group_memory(const brim_group *group, size_t *bytes);
// Within `enqueue`: evaluation of what lies in the input, all rows of it.
brim_status brim_net_enqueue_outputs(brim_net *net);

//---------------------------------- safetensors ----------------------------------

// A parsed file; the header is checked completely (sizes, overlaps, holes, dtypes, JSON).
typedef struct brim_safetensors brim_safetensors;
typedef struct brim_safetensors_entry {
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
  const void *data;  // into the file's bytes
  size_t bytes;
} brim_safetensors_entry;
brim_status brim_safetensors_open(const char *path, brim_safetensors **out);
void brim_safetensors_close(brim_safetensors *file);
size_t brim_safetensors_count(const brim_safetensors *file);
const brim_safetensors_entry *brim_safetensors_at(const brim_safetensors *file, size_t index);
const brim_safetensors_entry *brim_safetensors_find(const brim_safetensors *file, const char *name);
const json_t *brim_safetensors_metadata(const brim_safetensors *file);  // object, may be empty
// Holds the file's bytes against BRIM_SAFETENSORS_SUM: BRIM_EPARSE when they are not those that
// were written. A file without one is fine. Reads all of it.
brim_status brim_safetensors_verify(const brim_safetensors *file);
// No f32 of it is NaN or infinite: nothing can continue from those, and figures made of them look
// like numbers. NULL = every entry.
brim_status brim_safetensors_finite(const brim_safetensors *file,
                                    const brim_safetensors_entry *entry);
// Write entries (in the given order) atomically. Where the metadata has this key, its value becomes
// the checksum: "xxh64:" and 16 digits, XXH64 of the whole file as it is with 16 zeros there.
#define BRIM_SAFETENSORS_SUM "brim.checksum"
brim_status brim_safetensors_write(const char *path, const brim_safetensors_entry *entries,
                                   size_t count, const json_t *metadata);

//---------------------------------- several networks in a file ----------------------------------

// The entries brim_net_save would write, copied to host memory, with `prefix` in front of each name
// ("actor.layers.0.weight", "actor.optimizer.m.layers.0.weight"), to be written by
// brim_safetensors_write beside other entries.
typedef struct brim_net_entries brim_net_entries;
brim_status brim_net_entries_copy(brim_net *net, const char *prefix, bool weights_only,
                                  brim_net_entries **out);
// NULL past the last.
const brim_safetensors_entry *brim_net_entries_at(const brim_net_entries *copy, size_t index);
void brim_net_entries_free(brim_net_entries *copy);  // NULL is fine

typedef struct brim_net_part {
  const char *path;  // for messages
  const brim_safetensors *file;
  const char *prefix;
  bool weights_only;  // the optimizer's state is neither required nor touched
} brim_net_part;
// Loads like brim_net_load, from the entries behind the prefix; other entries are ignored. `check`
// changes nothing, so that several networks can be checked before any is loaded.
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
