// Collecting rollouts for on-policy learning: many environments step side by side, with actions that a network or a
// rule chose. A rollout keeps states, not observations. A state has no pointers and the same bits on host and
// device; `look` writes the observations of a step, or of any list of rows, for a network. The CPU's table (threads
// over environments) runs every environment whose row has `collect`. On CUDA each environment has a table, the
// extension "mappo.collect/NAME". The caller owns the memory; `layout` gives its size and the offsets in it.
// Letters: E environments, A agents, T steps of a rollout, R rewards of a step, F final states. Arrays are in the
// order [t][env][agent]. Row r = t * E + env. Call `reset` once. Then an iteration is: begin, and for each t: look
// at rows t * E.., choose actions, step(t). Caller: the workload `mappo`.
#ifndef BRIM_RL_COLLECT_H_
#define BRIM_RL_COLLECT_H_

#include "backend/backend.h"
#include "rl/rl_rollout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_COLLECT_ABI 1
#define BRIM_COLLECT_EXTENSION "mappo.collect/"  // followed by the environment's name

enum { BRIM_COLLECT_TRAINING = 0 };  // the stream of training

typedef struct brim_collect_shape {
  const brim_env_row *row;  // the environment: discrete actions
  brim_env_values env;      // its values
  int32_t num_envs;         // E, the number of environments
  int32_t steps;            // T, of a rollout
  int32_t episode_length;   // steps after which an episode is truncated
  // 1 = evaluation: every environment runs one episode and then stops; further steps have reward 0 and do not
  // count.
  int32_t once;
  uint64_t seed;
  uint64_t
      stream;  // BRIM_COLLECT_TRAINING, or a stream of evaluation with random numbers of its own
} brim_collect_shape;

// Steps that each environment has made since the run began. Random numbers of step t use now + t.
typedef struct brim_collect_clock {
  uint64_t now;   // steps before this rollout
  uint64_t next;  // steps after this rollout
} brim_collect_clock;

// Sums over finished episodes.
typedef struct brim_collect_tally {
  int64_t episodes, terminated, truncated, diverged;
  double reward, reward_sq, length;         // sums of return, squared return and steps
  double figures[BRIM_ENV_MAX_FIGURES][2];  // sums that brim_env_row.count adds
} brim_collect_tally;

typedef struct brim_collect_span {
  size_t offset, bytes;
} brim_collect_span;

// Counts, and byte offsets into the caller's block of device memory, multiples of 256.
typedef struct brim_collect_layout {
  size_t bytes;     // size of the block
  int32_t envs;     // E
  int32_t steps;    // T
  int32_t agents;   // A
  int32_t obs;      // numbers that an actor observes
  int32_t act;      // choices of an action
  int32_t critic;   // numbers that a critic observes: sizes.global, or A * obs if that is 0
  int32_t rewards;  // R
  // F = ceil(T / episode_length), the most truncations of an environment in a rollout
  int32_t finals;
  int32_t slots;       // T + 1 + F: the block has slots * E rows
  size_t state_bytes;  // bytes from one state to the next
  // [slots][E]: states 0 to T (state T follows the last step), then final states of truncated episodes. The slot of
  // an unused final state holds a first state.
  size_t states;
  size_t tracks;  // brim_collect_track[E]: progress of each environment
  size_t clock;   // brim_collect_clock
  size_t reward;  // float[T][E][R]
  size_t end;     // int8_t[T][E]: brim_env_end of the step
  // int32_t[T][E]: -1, or for a truncated episode k: row (T + 1 + k) * E + env has its final state
  size_t final;
  size_t action;    // int32_t[T][E][A]: written by the caller or by `choose`
  size_t logp;      // float[T][E][A]: log probabilities, written by the caller
  size_t episodes;  // brim_rollout_episode[E]: the last episode; outcome RUNNING = none has ended
  size_t figures;   // float[E][sizes.figures], directly after the episodes
  size_t tally;     // brim_collect_tally, written by `tally`
  size_t sums;      // brim_collect_tally[E]: the sums of each environment
  size_t scratch;   // scratch memory of `tally`
  // The two ranges that a checkpoint keeps between rollouts (before `begin`): state T, and the sums, tracks and
  // clock of the run. A block with another T can load them.
  brim_collect_span saved[2];
} brim_collect_layout;

// A matrix to write, a row of it per row of the view (actor: per agent; row i is agent i % A of row i / A).
typedef struct brim_collect_output {
  void *data;     // NULL = not wanted; aligned to 16 bytes
  int32_t dtype;  // BRIM_F32, BRIM_BF16, BRIM_F16
  int32_t pitch;  // numbers from one row to the next; those after the width are 0
} brim_collect_output;

typedef struct brim_collect_view {
  // The view has rows first to first + count - 1, or `rows`, a list in device memory. For a row that does not exist
  // the output is zeros and the mask is 1.
  int64_t first;
  const int32_t *rows;
  int64_t count;
  brim_collect_output actor;   // (count * A, obs)
  brim_collect_output critic;  // (count, layout.critic)
  uint64_t *mask;              // (count, A): a bit for each allowed action; NULL = not wanted
} brim_collect_view;

// On CUDA all calls enqueue and can be recorded: they do not wait, allocate or read numbers that change on the
// host. On the CPU they return when the work is done.
typedef struct brim_collect_table {
  uint32_t abi;  // BRIM_COLLECT_ABI
  // BRIM_EINVAL for a bad shape; BRIM_EUNSUPPORTED if the environment has continuous actions.
  brim_status (*layout)(const brim_collect_shape *shape, brim_collect_layout *out);
  // Writes first states into state T; sets clock and sums to 0. `begin` comes next.
  brim_status (*reset)(const brim_rollout_where *where, const brim_collect_shape *shape,
                       void *block);
  // State 0 = state T; clock.now = clock.next, clock.next += T.
  brim_status (*begin)(const brim_rollout_where *where, const brim_collect_shape *shape,
                       void *block);
  brim_status (*look)(const brim_rollout_where *where, const brim_collect_shape *shape, void *block,
                      const brim_collect_view *view);
  // Chooses action[t] by a rule: 0 = random among allowed actions; 1, 2, ... = the environment's baselines.
  brim_status (*choose)(const brim_rollout_where *where, const brim_collect_shape *shape,
                        void *block, int32_t t, int32_t rule);
  // Reads state t and action[t]; writes reward, end and final of t, and state t + 1. After the end of an episode
  // state t + 1 is the first state of the next episode. An invalid action ends the episode as diverged.
  brim_status (*step)(const brim_rollout_where *where, const brim_collect_shape *shape, void *block,
                      int32_t t);
  // Adds up the sums of all environments, always in the same order. With `clear` it then sets them to 0.
  brim_status (*tally)(const brim_rollout_where *where, const brim_collect_shape *shape,
                       void *block, int32_t clear);
} brim_collect_table;

// The table of the CPU.
const brim_collect_table *brim_collect_cpu(void);
// Checks both ranges of layout.saved from a checkpoint, in host memory, aligned or not. BRIM_EPARSE names the first
// environment that cannot continue.
brim_status brim_collect_check_saved(const brim_collect_shape *shape, const void *states,
                                     const void *carried);
// Writes the frame (sizes.frame numbers) of a row of a block in host memory, for a replay.
void brim_collect_frame(const brim_collect_shape *shape, const void *block, int64_t row,
                        float *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RL_COLLECT_H_
