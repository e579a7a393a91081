// Multi-agent PPO in kernels that keep networks, activations and environments on the chip: one launch for a
// whole rollout, and for each network one launch for a minibatch, from inputs to gradients. They take
// networks of two hidden layers with bf16 or f32 activations; `way` and `can` say which. Others take the
// general path (rl_collect.h, rl_ppo.h and the engine's calls), with which tests compare the kernels.
// Only CUDA has them: the extensions BRIM_FUSED_EXTENSION and BRIM_FUSED_ROLLOUT_EXTENSION with an
// environment's name. Callers: the workload `mappo`.
//
// Order, memory and clocks are those of rl_ppo.h: [step][env][agent] everywhere, all pointers are device
// memory of the caller's, calls enqueue on where->stream and can be recorded. `way`, `can` and `scratch` get
// no pointer that would tell the device, so they ask about the one that is current in the thread.
//
// Bits. Sums have an order that depends on the sizes and the device alone: the same call gives the same bits.
// A rollout's numbers do not depend on how environments are divided among blocks.
#ifndef BRIM_RL_FUSED_H_
#define BRIM_RL_FUSED_H_

#include "rl/rl_collect.h"
#include "rl/rl_ppo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_FUSED_ABI 1
#define BRIM_FUSED_EXTENSION "mappo.fused"
#define BRIM_FUSED_ROLLOUT_EXTENSION "mappo.rollout/"  // and the environment's name

enum {
  BRIM_FUSED_LAYERS = 3,
  BRIM_FUSED_MAX_INPUTS = 64,   // of a network that is fused whole, padding included
  BRIM_FUSED_MAX_WHOLE = 128,   // numbers of its hidden layers
  BRIM_FUSED_MAX_HIDDEN = 256,  // of a network whose first layer is the caller's
  BRIM_FUSED_MAX_OUTPUTS = 16,  // an actor's are at most 8: a byte has a bit for each
  BRIM_FUSED_MAX_ACT = 8
};

// y = W2 act(W1 act(W0 x + b0) + b1) + b2.
typedef struct brim_fused_net {
  int32_t dtype;            // brim_dtype of inputs, weights and biases: BRIM_BF16, BRIM_F32
  int32_t act;              // brim_act of both hidden layers: BRIM_ACT_TANH, BRIM_ACT_RELU
  int32_t inputs;           // numbers of a row of inputs, padding included: a multiple of 8
  int32_t hidden, outputs;  // outputs: columns of W2, padding included
  const void *weight[BRIM_FUSED_LAYERS];  // (columns, inputs of the layer), 16-byte aligned
  const void *bias[BRIM_FUSED_LAYERS];
  float *weight_grad[BRIM_FUSED_LAYERS];  // the same shapes; not read by a rollout or by `values`
  float *bias_grad[BRIM_FUSED_LAYERS];
} brim_fused_net;

// How much of a network the kernels take.
typedef enum brim_fused_way {
  BRIM_FUSED_NOT,
  BRIM_FUSED_WHOLE,  // inputs to gradients of all layers
  // The caller multiplies inputs by W0 before and takes the gradients of W0 and W1 after: large products
  // that a library makes at full speed.
  BRIM_FUSED_REST
} brim_fused_way;

//---------------------------------- updates ----------------------------------

// One network of an update.
typedef struct brim_fused_part {
  brim_fused_net net;
  // WHOLE: rows of inputs. listed 1: every row of the rollout (actor: (steps, envs, agents),
  // critic: (steps + ..., envs)), from which losses.rows selects the minibatch. listed 0: the
  // minibatch's rows in its order.
  const void *input;
  int32_t listed;
  // REST: (batch rows, hidden) of dtype each.
  void *z;  // in: W0 x + b0; out: the gradient of the loss by it
  void *h;  // out: act(z), which the second layer read
  void *g;  // out: the gradient of the loss by the second layer's output before its activation
} brim_fused_part;

typedef struct brim_fused_update {
  brim_ppo_losses losses;  // outputs and gradients of its networks, and scratch, are not used
  const uint8_t *allowed;  // (steps, envs, agents) where losses.mask is NULL; NULL = all
  brim_fused_part actor, critic;
  void *scratch;
} brim_fused_update;

typedef struct brim_fused_table {
  uint32_t abi;  // BRIM_FUSED_ABI
  // How much of a network of these sizes can be fused. Ignores pointers. Both networks of an update
  // have one type.
  brim_fused_way (*way)(const brim_fused_net *net);
  // Bytes that `update` needs, aligned to 256.
  brim_status (*scratch)(const brim_ppo_shape *shape, const brim_fused_net *actor,
                         const brim_fused_net *critic, size_t *bytes);
  // Computes the losses of a minibatch, and writes the gradients to weight_grad and bias_grad of both
  // networks. WHOLE: all of them. REST: those of W2 and of all biases, and h, g and z, from which
  // the caller makes the others. Adds to the metrics as brim_ppo_table.losses does.
  brim_status (*update)(const brim_rollout_where *where, const brim_ppo_shape *shape,
                        const brim_fused_update *work);
  // Computes outputs (rows, net->outputs) in the network's dtype. Only for networks that are fused
  // WHOLE.
  brim_status (*values)(const brim_rollout_where *where, const brim_fused_net *net,
                        const void *input, int64_t rows, void *outputs);
} brim_fused_table;

// The one in the CUDA plug-in, BRIM_FUSED_EXTENSION. Its host is set before anything in it is called.
extern const brim_fused_table brim_fused_cuda;
void brim_fused_cuda_set_host(const brim_host_api *host);

//---------------------------------- rollouts ----------------------------------

typedef struct brim_fused_rollout {
  brim_fused_net actor;
  uint64_t seed;  // of the actions drawn, as brim_ppo_sample.seed; stream 0
  // What networks read, in the actor's dtype and with zeros in the padding: (steps, envs, agents,
  // actor.inputs) and (slots, envs, critic_inputs). Rows of final states that were not
  // reached stay unwritten.
  void *actor_seen, *critic_seen;
  int32_t critic_inputs;
  uint8_t *allowed;  // (steps, envs, agents): a bit for each action; NULL = not wanted
  int64_t *bad;      // as brim_ppo_sample.bad
  int32_t blocks;    // most thread blocks of the launch; 0 = as many as the device runs at once
} brim_fused_rollout;

typedef struct brim_fused_rollout_table {
  uint32_t abi;  // BRIM_FUSED_ABI
  // 1: `run` takes such environments and such an actor. Ignores pointers.
  int32_t (*can)(const brim_collect_shape *shape, const brim_fused_net *actor);
  // Runs a rollout: brim_collect_table.begin and then, for each t: look, the actor, sample, step.
  // Leaves the block as those calls do, except that states 1 to T - 1 and final states are not
  // written.
  brim_status (*run)(const brim_rollout_where *where, const brim_collect_shape *shape, void *block,
                     const brim_fused_rollout *work);
} brim_fused_rollout_table;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RL_FUSED_H_
