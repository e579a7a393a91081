// The state of the workload mappo, which its two files share: mappo.c reads the config, plans, builds, makes
// iterations, evaluates, saves and replays; mappo_rows.c has the keys, findings, troubles and views.
// Shapes: E environments, A agents, T steps of a rollout, R rewards of a step, always in the order
// [t][env][agent].
#ifndef BRIM_MAPPO_INT_H_
#define BRIM_MAPPO_INT_H_

#include "rl/rl_collect.h"
#include "rl/rl_fused.h"
#include "rl/rl_ppo.h"
#include "workload/mappo/mappo.h"
#include "workload/workload_env.h"
#include "workload/workload_int.h"

// Knobs, in table order. The config decides whether STEPS is rollout_steps or episodes_per_batch, and whether
// BATCH is minibatches or batch_size.
enum {
  BRIM_MAPPO_ENVS,
  BRIM_MAPPO_STEPS,
  BRIM_MAPPO_BATCH,
  BRIM_MAPPO_PRECISION,
  BRIM_MAPPO_COLLECT,
  BRIM_MAPPO_WORKERS,
  BRIM_MAPPO_THREADS,
  BRIM_MAPPO_KNOBS
};
enum { BRIM_MAPPO_ON_CPU, BRIM_MAPPO_ON_GPU };  // values of collect_on
enum { BRIM_MAPPO_ACTOR, BRIM_MAPPO_CRITIC, BRIM_MAPPO_NETS };

// Streams of random numbers. Evaluations while training choose the best policy, so later evaluations use
// other episodes.
enum { BRIM_MAPPO_STREAM_EVAL = 1, BRIM_MAPPO_STREAM_HELD_OUT = 2 };

// The sizes of a setting.
typedef struct brim_mappo_sizes {
  int32_t envs, steps;  // E, T
  int32_t minibatches;  // minibatches of an epoch
  int32_t batch;        // environment steps of a minibatch
  int32_t updates;      // optimiser steps of an iteration
  int32_t threads;      // computing threads of a CPU device; 0 = the device's own number
  int32_t workers;      // threads that step environments on the CPU
  bool on_host;         // environments run on the CPU, networks on a GPU
  brim_precision precision;
} brim_mappo_sizes;

// Byte offsets into brim_mappo.memory: the device memory of an iteration besides networks and rollout.
typedef struct brim_mappo_places {
  size_t mask;           // uint64_t[max(E, batch)][A]
  size_t values;         // (slots * E, R) in the critic's type
  size_t adv, ret, old;  // float[T][E][R]
  size_t rows;           // int32_t[batch]
  size_t scratch;        // scratch for brim_ppo_table
  size_t backup;  // the state that a rollout carries, and brim_ppo_norm, from before the iteration
  size_t report;  // brim_mappo_report
  size_t bytes;
} brim_mappo_places;

// The results of an iteration for the host, and the statistics of returns.
typedef struct brim_mappo_report {
  double metrics[BRIM_PPO_METRIC_COUNT];
  brim_ppo_moments moments;
  brim_ppo_norm norm;
  int64_t bad;  // rows whose outputs were not finite, so that no action could be drawn
} brim_mappo_report;

// Chunks of rows that the critic evaluates at once.
typedef struct brim_mappo_chunks {
  int64_t rows;  // rows of all chunks
  int64_t each;  // rows of a chunk: the critic's evaluation batch
} brim_mappo_chunks;

// Memory of fused kernels in addition to the general path's. SEEN, Z, H and G have one space per network:
// add the index of the network.
enum {
  BRIM_MAPPO_SEEN,  // inputs that the network read in the rollout
  BRIM_MAPPO_ALLOWED = BRIM_MAPPO_SEEN + BRIM_MAPPO_NETS,
  BRIM_MAPPO_Z,  // Z, H and G: members of brim_fused_part
  BRIM_MAPPO_H = BRIM_MAPPO_Z + BRIM_MAPPO_NETS,
  BRIM_MAPPO_G = BRIM_MAPPO_H + BRIM_MAPPO_NETS,
  BRIM_MAPPO_SCRATCH = BRIM_MAPPO_G + BRIM_MAPPO_NETS,
  BRIM_MAPPO_WORKSPACE,  // workspace shared by the products, which run one after the other
  BRIM_MAPPO_SPACES
};
typedef struct brim_mappo_space {
  size_t bytes;   // 0 = not needed
  bool shared;    // true: in the group's memory; false: in brim_mappo_fusing.memory
  size_t offset;  // offset in that memory
} brim_mappo_space;

// Matrix products that the caller of the kernels computes itself (BRIM_FUSED_REST): the output of the first
// layer, and the gradients of the second and the first layer.
enum { BRIM_MAPPO_FORWARD, BRIM_MAPPO_SECOND, BRIM_MAPPO_FIRST, BRIM_MAPPO_PRODUCTS };

typedef struct brim_mappo_reason {
  char text[208];  // translated; short enough for a brim_work_line with other text before it
} brim_mappo_reason;

// The parts of a setting that fused kernels take.
typedef struct brim_mappo_fusing {
  bool update;            // updates are fused: minibatches from inputs to gradients
  bool rollout;           // rollouts are fused, with the critic's values of their states
  brim_mappo_reason why;  // why not both are fused; empty: both are, or the config says off
  brim_fused_way way[BRIM_MAPPO_NETS];  // how an update computes each network
  brim_fused_net net[BRIM_MAPPO_NETS];  // has addresses once the setting is built
  brim_mappo_space spaces[BRIM_MAPPO_SPACES];
  size_t bytes;  // bytes of `memory`
  // Set when the setting is built:
  char *memory, *shared;  // memory of the kernels alone; memory of the group
  brim_op_call products[BRIM_MAPPO_NETS][BRIM_MAPPO_PRODUCTS];
  int prepared[BRIM_MAPPO_NETS];  // how many of the products to release
} brim_mappo_fusing;

// The shapes and sizes of a setting, known before anything is allocated.
typedef struct brim_mappo_needs {
  brim_collect_shape shape;
  brim_collect_layout layout, eval;
  brim_ppo_shape learn;
  brim_mappo_places places;
  brim_mappo_chunks chunks;
  brim_net_spec spec[BRIM_MAPPO_NETS];
  size_t host_input, host_output, host_mask;  // bytes, for environments on the host
  brim_mappo_fusing fusing;
} brim_mappo_needs;

enum { BRIM_MAPPO_MODEL_ARGS = 12 };
typedef struct brim_mappo_model {
  brim_component component;
  brim_argument args[BRIM_MAPPO_MODEL_ARGS];
} brim_mappo_model;

// Numbers that the config sets.
typedef struct brim_mappo_how {
  int32_t epochs;
  float gamma, lambda, clip, value_clip, value_coef, entropy, huber;
  bool value_norm, normalize;
  bool best;  // evaluation takes the most probable action
  int64_t iterations, interval;
  int64_t episodes;  // episodes of an evaluation; 0 = no evaluations
  uint64_t seed;
} brim_mappo_how;

// Rows of metrics.
enum {
  BRIM_MAPPO_RETURN,
  BRIM_MAPPO_SPREAD,
  BRIM_MAPPO_ENDED,
  BRIM_MAPPO_ENDED_RATE,
  BRIM_MAPPO_DIVERGED,
  BRIM_MAPPO_LENGTH,
  BRIM_MAPPO_EPISODES,
  BRIM_MAPPO_ERROR,  // standard error of the return; not written to files
  BRIM_MAPPO_POLICY_LOSS,
  BRIM_MAPPO_VALUE_LOSS,
  BRIM_MAPPO_ENTROPY,
  BRIM_MAPPO_KL,
  BRIM_MAPPO_CLIPPED,
  BRIM_MAPPO_EXPLAINED,
  BRIM_MAPPO_ACTOR_NORM,
  BRIM_MAPPO_CRITIC_NORM,
  BRIM_MAPPO_COLLECTED,  // agent steps per second
  BRIM_MAPPO_TRAINED,    // agent samples per second
  BRIM_MAPPO_STEPPED,    // environment steps per second
  BRIM_MAPPO_ROWS        // the environment's figures follow, then those of its rules
};
enum { BRIM_MAPPO_MAX_RULES = 2 };

// Sums of training: indices into brim_work_metrics.sums.
enum {
  BRIM_MAPPO_SUM_ROWS,
  BRIM_MAPPO_SUM_POLICY_LOSS,
  BRIM_MAPPO_SUM_ENTROPY,
  BRIM_MAPPO_SUM_KL,
  BRIM_MAPPO_SUM_CLIPPED,
  BRIM_MAPPO_SUM_VALUES,
  BRIM_MAPPO_SUM_VALUE_LOSS,
  BRIM_MAPPO_SUM_BAD,
  BRIM_MAPPO_SUM_EXPLAINED,
  BRIM_MAPPO_SUM_EXPLAINED_COUNT,
  BRIM_MAPPO_SUM_STEPS,  // environment steps
  BRIM_MAPPO_SUM_EPISODES,
  BRIM_MAPPO_SUM_TERMINATED,
  BRIM_MAPPO_SUM_TRUNCATED,
  BRIM_MAPPO_SUM_DIVERGED,
  BRIM_MAPPO_SUM_REWARD,
  BRIM_MAPPO_SUM_REWARD_SQ,
  BRIM_MAPPO_SUM_LENGTH,
  BRIM_MAPPO_SUM_FIGURES,
  BRIM_MAPPO_SUMS = BRIM_MAPPO_SUM_FIGURES + 2 * BRIM_ENV_MAX_FIGURES
};

enum { BRIM_MAPPO_NAMES = 16 + 4 * BRIM_ENV_MAX_FIGURES };
typedef struct brim_mappo_rows {
  brim_metric_set set;  // must be the first member; its rows are `rows`
  brim_metric rows[BRIM_METRIC_MAX];
  char names[BRIM_MAPPO_NAMES]
            [BRIM_METRIC_NAME];  // storage for names of rows that are not literals
  size_t name_count;
  const brim_env_row *env;
  size_t figures;                        // number of the environment's own rows
  size_t rules;                          // number of the environment's rules that are reported
  size_t rule_at[BRIM_MAPPO_MAX_RULES];  // first row of each rule: its return, then its figures
  char beside[64];                       // baseline_label of mappo_rows_beside_rule
} brim_mappo_rows;

// State of the watch for training that goes wrong (mappo_rows.c).
enum { BRIM_MAPPO_WINDOW = 16 };
typedef struct brim_mappo_watch {
  int64_t skipped;                       // skipped updates at the last reading
  double value_loss[BRIM_MAPPO_WINDOW];  // ring of the last value losses
  int64_t value_count;                   // number of all value losses so far
  double first_value_loss;
  int64_t low;                          // evaluations in a row below random actions
  bool reported_low, reported_entropy;  // the trouble was reported and is not over
  char advice[512];                     // advice about the last trouble; "" = there was none
} brim_mappo_watch;

// Events and records that time an iteration by the device's clock.
enum { BRIM_MAPPO_MARK_ROLLOUT, BRIM_MAPPO_MARK_UPDATE, BRIM_MAPPO_MARK_END, BRIM_MAPPO_MARKS };
enum { BRIM_MAPPO_PIECE_ENV, BRIM_MAPPO_PIECE_OUTPUTS, BRIM_MAPPO_PIECE_DRAW, BRIM_MAPPO_PIECES };
typedef struct brim_mappo_probe {
  brim_event *marks[BRIM_MAPPO_MARKS];
  brim_record *records[BRIM_MAPPO_PIECES];
} brim_mappo_probe;
typedef struct brim_mappo_pieces {
  int64_t ns[BRIM_MAPPO_PIECES];  // time of the piece over all steps of a rollout
} brim_mappo_pieces;

typedef struct brim_mappo_position {
  int64_t step;                   // iterations made
  int64_t updates;                // optimiser steps made
  int64_t episodes;               // episodes finished since the run began
  int64_t skipped;                // updates without effect
  int64_t idle;                   // iterations in which no update had an effect
  double sums[BRIM_MAPPO_SUMS];   // sums since the metrics were last read
  double norms[BRIM_MAPPO_NETS];  // gradient norms of the last update
} brim_mappo_position;

typedef struct brim_mappo {
  brim_work_context context;
  const brim_config *config;  // borrowed; outlives the workload
  brim_env_sizes z;
  int32_t rewards;  // R
  brim_collect_shape
      shape;  // shape of the present setting's rollout; before the first, of the config's
  brim_collect_shape eval;  // shape of an evaluation
  brim_mappo_how how;
  brim_mappo_model models[BRIM_MAPPO_NETS];
  brim_work_optimizer optimizer;
  brim_schedule schedule;
  double clip_norm;
  brim_knob knobs[BRIM_MAPPO_KNOBS];
  bool by_episodes, by_samples;  // the knobs are episodes_per_batch and batch_size
  brim_mappo_rows rows;
  const char *weights;  // file of first weights; NULL = start from the seed
  const volatile sig_atomic_t *stop;
  bool held_out;         // evaluate in BRIM_MAPPO_STREAM_HELD_OUT
  bool general_rollout;  // memory was short: rollouts are not fused
  char description[192];

  // Tables of the device. For environments on the CPU beside a GPU, `collect` is the CPU's.
  const brim_collect_table *collect;
  const brim_ppo_table *ppo;
  const brim_fused_table *fused;  // NULL = the device has none
  const brim_fused_rollout_table *fused_rollout;
  brim_rollout_where where, host;

  // The present setting:
  brim_mappo_sizes sizes;
  brim_collect_layout layout, eval_layout;
  brim_mappo_places places;
  brim_mappo_chunks chunks;
  brim_ppo_shape learn;
  brim_mappo_fusing fusing;
  brim_group *group;
  brim_record *whole;     // rollout on the device and the first part of the updates
  brim_record *rollout;   // rollout on the device alone, for measured steps
  brim_record **records;  // parts of the updates
  size_t record_count;
  brim_record *act, *eval_record;     // the actor's outputs; a step of an evaluation
  brim_mappo_probe probe;             // empty until a step is measured phase by phase
  brim_group_state *states;           // (updates, networks)
  char *block, *eval_block, *memory;  // device memory
  brim_mappo_report *report;          // host copy
  brim_collect_tally *tally;          // host copy
  brim_net_external external[BRIM_MAPPO_NETS];
  brim_tensor inputs[BRIM_MAPPO_NETS][2];  // of training, of evaluation
  brim_tensor outputs[BRIM_MAPPO_NETS];    // of evaluation
  // Host memory for environments on the CPU beside a GPU:
  char *host_block;
  void *host_input, *host_output;
  uint64_t *host_mask;

  brim_mappo_position now, kept;  // the present position; the snapshot's
  struct brim_mappo_copy *copy;   // the snapshot's state of the rollout
  brim_mappo_watch watch;
  bool has_baseline;
  brim_collect_tally baseline[1 + BRIM_MAPPO_MAX_RULES];  // random, then the environment's rules
} brim_mappo;

// Units in which the throughput is reported.
enum {
  BRIM_MAPPO_RATE_COLLECTED,
  BRIM_MAPPO_RATE_TRAINED,
  BRIM_MAPPO_RATE_STEPPED,
  BRIM_MAPPO_RATE_EPISODES,
  BRIM_MAPPO_RATES
};

typedef struct brim_mappo_iteration {
  brim_mappo *w;
  const brim_spans *spans;  // NULL: the parts of the iteration are not measured
  int64_t part;             // index into brim_mappo.records
} brim_mappo_iteration;

// Makes the knobs; chooses the number of environments if the config leaves it open.
brim_status brim_mappo_choose(brim_mappo *w);
// The sizes of a setting; BRIM_EINVAL if its values contradict each other.
brim_status brim_mappo_apply(const brim_mappo *w, const brim_setting *setting,
                             brim_mappo_sizes *out);
brim_net *brim_mappo_net(const brim_mappo *w, int index);
// collect enqueues a rollout and its tally; value_states enqueues the critic's values of its states.
brim_status brim_mappo_collect(const brim_mappo_iteration *r);
brim_status brim_mappo_value_states(brim_mappo *w);
// Times pieces of a rollout. Overwrites the first steps of the rollout and the state that it carries; the
// caller restores both.
brim_status brim_mappo_probe_run(brim_mappo *w, const brim_spans *spans, brim_mappo_pieces *out);
const char *brim_mappo_fused_text(const brim_mappo *w);  // "rollout and update", "update", "no"

//---------------------------------- mappo_rows.c ----------------------------------

enum { BRIM_MAPPO_OPTIONS = 3 };
extern const brim_work_options brim_mappo_options[BRIM_MAPPO_OPTIONS];
extern const brim_config_section brim_mappo_section;
extern const brim_work_topic brim_mappo_topic;
extern const brim_work_findings_table brim_mappo_findings;
extern const brim_work_views_table brim_mappo_views;
extern const brim_work_diagnosis brim_mappo_diagnosis;
// Environment steps of a minibatch: the divisor of `rows` with the smallest ratio to `steps`.
int64_t brim_mappo_batch(int64_t rows, double steps);

#endif  // BRIM_MAPPO_INT_H_
