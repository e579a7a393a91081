// Checkpoints of mappo, for programs that read them. One safetensors file with
//   actor.layers.N.weight, .bias, critic.layers.N.weight, .bias      f32, named as PyTorch names them
//                                                                    inputs padded with zeros to a multiple of 8
//   actor.optimizer.*, critic.optimizer.*                            the optimisers' state
//   value_norm.sums (3) f64, value_norm.scale (3) f32                brim_ppo_norm
//   rollout.states, rollout.carried                                  u8: brim_collect_layout.saved
// and in __metadata__, in addition to the keys of every checkpoint: brim.env and brim.policy (JSON objects: the
// environment's name and arguments; sizes of a rollout and of the networks), brim.updates, brim.episodes and
// brim.clock. model.safetensors has only the networks and value_norm.
#ifndef BRIM_MAPPO_H_
#define BRIM_MAPPO_H_

#define BRIM_MAPPO_PREFIX_ACTOR "actor."
#define BRIM_MAPPO_PREFIX_CRITIC "critic."

#endif  // BRIM_MAPPO_H_
