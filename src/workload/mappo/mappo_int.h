// The state of the workload mappo, which its two files share: mappo.c reads the config, plans, builds, makes
// iterations, evaluates, saves and replays; mappo_rows.c has the keys, findings, troubles and views.
// E environments, A agents, T steps of a rollout, R rewards of a step; order [t][env][agent] everywhere.
#ifndef BRIM_MAPPO_INT_H_
#define BRIM_MAPPO_INT_H_

#include "rl/rl_collect.h"
#include "rl/rl_fused.h"
#include "rl/rl_ppo.h"
#include "workload/mappo/mappo.h"
#include "workload/workload_env.h"
#include "workload/workload_int.h"

// Knobs, in table order. The config decides whether the second is rollout_steps or episodes_per_batch and
// the third minibatches or batch_size.
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

// Streams of random numbers: of episodes that evaluations while training use (and the best policy is chosen
// by), and of episodes that nothing was chosen by.
enum { BRIM_MAPPO_STREAM_EVAL = 1, BRIM_MAPPO_STREAM_HELD_OUT = 2 };

// The sizes of a setting.
typedef struct brim_mappo_sizes {
  int32_t envs, steps;  // E, T
  int32_t minibatches;  // of an epoch
  int32_t batch;        // environment steps of a minibatch
  int32_t updates;      // optimiser steps of an iteration
  int32_t threads;      // of a CPU, that compute; 0 = the device's own
  int32_t workers;      // threads that step environments on the CPU
  bool on_host;         // environments run on the CPU, networks on a GPU
  brim_precision precision;
} brim_mappo_sizes;

// Byte offsets into the block of device memory that an iteration needs besides networks and rollout.
typedef struct brim_mappo_places {
  size_t mask;           // uint64_t[max(E, batch)][A]
  size_t values;         // (slots * E, R) in the critic's type
  size_t adv, ret, old;  // float[T][E][R]
  size_t rows;           // int32_t[batch]
  size_t scratch;        // of brim_ppo_table
  size_t backup;         // what the rollout carries, and the statistics, before the iteration
  size_t report;         // brim_mappo_report
  size_t bytes;
} brim_mappo_places;

// The results of an iteration for the host, and the statistics of returns.
typedef struct brim_mappo_report {
  double metrics[BRIM_PPO_METRIC_COUNT];
  brim_ppo_moments moments;
  brim_ppo_norm norm;
  int64_t bad;  // rows whose outputs gave no action
} brim_mappo_report;

// Chunks of rows that the critic evaluates at once.
typedef struct brim_mappo_chunks {
  int64_t rows;  // of all
  int64_t each;  // the critic's evaluation batch
} brim_mappo_chunks;

// Memory of fused kernels besides what the general path has.
enum {
  BRIM_MAPPO_SEEN,  // and the network: what it read in the rollout
  BRIM_MAPPO_ALLOWED = BRIM_MAPPO_SEEN + BRIM_MAPPO_NETS,
  BRIM_MAPPO_Z,  // and the network, as the two after it: brim_fused_part
  BRIM_MAPPO_H = BRIM_MAPPO_Z + BRIM_MAPPO_NETS,
  BRIM_MAPPO_G = BRIM_MAPPO_H + BRIM_MAPPO_NETS,
  BRIM_MAPPO_SCRATCH = BRIM_MAPPO_G + BRIM_MAPPO_NETS,
  BRIM_MAPPO_WORKSPACE,  // of the products, which follow each other
  BRIM_MAPPO_SPACES
};
typedef struct brim_mappo_space {
  size_t bytes;   // 0 = not needed
  bool shared;    // in the memory of the group
  size_t offset;  // there, or in the block of its own
} brim_mappo_space;

// Products of a network whose first layer is the caller's (BRIM_FUSED_REST): the first layer, the gradients
// of the second and of the first.
enum { BRIM_MAPPO_FORWARD, BRIM_MAPPO_SECOND, BRIM_MAPPO_FIRST, BRIM_MAPPO_PRODUCTS };

typedef struct brim_mappo_reason {
  char text[208];  // translated; a line of the start has room for it and what is before it
} brim_mappo_reason;

// The parts of a setting that fused kernels take.
typedef struct brim_mappo_fusing {
  bool update;                          // minibatches from inputs to gradients
  bool rollout;                         // and rollouts, with the critic's values of their states
  brim_mappo_reason why;                // why not both; empty: both are, or the config says off
  brim_fused_way way[BRIM_MAPPO_NETS];  // of an update
  brim_fused_net net[BRIM_MAPPO_NETS];  // with addresses once it is built
  brim_mappo_space spaces[BRIM_MAPPO_SPACES];
  size_t bytes;  // of the block of its own
  // built
  char *memory, *shared;  // the block of its own; the group's
  brim_op_call products[BRIM_MAPPO_NETS][BRIM_MAPPO_PRODUCTS];
  int prepared[BRIM_MAPPO_NETS];  // of them
} brim_mappo_fusing;

// Numbers that a setting needs, before anything is allocated.
typedef struct brim_mappo_needs {
  brim_collect_shape shape;
  brim_collect_layout layout, eval;
  brim_ppo_shape learn;
  brim_mappo_places places;
  brim_mappo_chunks chunks;
  brim_net_spec spec[BRIM_MAPPO_NETS];
  size_t host_input, host_output, host_mask;  // bytes, where environments run on the host
  brim_mappo_fusing fusing;
} brim_mappo_needs;

enum { BRIM_MAPPO_MODEL_ARGS = 12 };
typedef struct brim_mappo_model {
  brim_component component;
  brim_argument args[BRIM_MAPPO_MODEL_ARGS];
} brim_mappo_model;

// Numbers of the config.
typedef struct brim_mappo_how {
  int32_t epochs;
  float gamma, lambda, clip, value_clip, value_coef, entropy, huber;
  bool value_norm, normalize;
  bool best;  // evaluation takes the most probable action
  int64_t iterations, interval;
  int64_t episodes;  // of an evaluation; 0 = none
  uint64_t seed;
} brim_mappo_how;

// Rows of what it measures.
enum {
  BRIM_MAPPO_RETURN,
  BRIM_MAPPO_SPREAD,
  BRIM_MAPPO_ENDED,
  BRIM_MAPPO_ENDED_RATE,
  BRIM_MAPPO_DIVERGED,
  BRIM_MAPPO_LENGTH,
  BRIM_MAPPO_EPISODES,
  BRIM_MAPPO_ERROR,  // of the return; in no file
  BRIM_MAPPO_POLICY_LOSS,
  BRIM_MAPPO_VALUE_LOSS,
  BRIM_MAPPO_ENTROPY,
  BRIM_MAPPO_KL,
  BRIM_MAPPO_CLIPPED,
  BRIM_MAPPO_EXPLAINED,
  BRIM_MAPPO_ACTOR_NORM,
  BRIM_MAPPO_CRITIC_NORM,
  BRIM_MAPPO_COLLECTED,  // agent steps in a second
  BRIM_MAPPO_TRAINED,    // agent samples in a second
  BRIM_MAPPO_STEPPED,    // environment steps in a second
  BRIM_MAPPO_ROWS        // the environment's figures follow, then those of its rules
};
enum { BRIM_MAPPO_MAX_RULES = 2 };

// Sums of training, as brim_work_metrics.sums.
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
  brim_metric_set set;  // the first member: of `rows`
  brim_metric rows[BRIM_METRIC_MAX];
  char names[BRIM_MAPPO_NAMES][BRIM_METRIC_NAME];  // of rows, those that are no constants
  size_t name_count;
  const brim_env_row *env;
  size_t figures;                        // rows of the environment
  size_t rules;                          // of its rules that are reported
  size_t rule_at[BRIM_MAPPO_MAX_RULES];  // their first row: the return, then the figures
  char beside[64];                       // baseline_label of brim_mappo_rows_beside_rule
} brim_mappo_rows;

// Signs of a training that goes wrong (mappo_rows.c).
enum { BRIM_MAPPO_WINDOW = 16 };
typedef struct brim_mappo_watch {
  int64_t skipped;                       // updates when last asked
  double value_loss[BRIM_MAPPO_WINDOW];  // of the last readings, a ring
  int64_t value_count;                   // taken in all
  double first_value_loss;
  int64_t low;                          // evaluations in a row below random actions
  bool reported_low, reported_entropy;  // reported, until it is over
  char advice[512];                     // about the last trouble; "" = there was none
} brim_mappo_watch;

// Events and records that time an iteration by the device's clock.
enum { BRIM_MAPPO_MARK_ROLLOUT, BRIM_MAPPO_MARK_UPDATE, BRIM_MAPPO_MARK_END, BRIM_MAPPO_MARKS };
enum { BRIM_MAPPO_PIECE_ENV, BRIM_MAPPO_PIECE_OUTPUTS, BRIM_MAPPO_PIECE_DRAW, BRIM_MAPPO_PIECES };
typedef struct brim_mappo_probe {
  brim_event *marks[BRIM_MAPPO_MARKS];  // of an iteration
  brim_record *records[BRIM_MAPPO_PIECES];
} brim_mappo_probe;
typedef struct brim_mappo_pieces {
  int64_t ns[BRIM_MAPPO_PIECES];  // of all steps of a rollout
} brim_mappo_pieces;

typedef struct brim_mappo_position {
  int64_t step;                   // iterations made
  int64_t updates;                // optimiser steps made
  int64_t episodes;               // finished since the run began
  int64_t skipped;                // updates without effect
  int64_t idle;                   // iterations all of whose updates were without
  double sums[BRIM_MAPPO_SUMS];   // since the figures were last read
  double norms[BRIM_MAPPO_NETS];  // gradient norms of the last update
} brim_mappo_position;

typedef struct brim_mappo {
  brim_work_context context;
  const brim_config *config;  // borrowed; outlives the workload
  brim_env_sizes z;
  int32_t rewards;           // R
  brim_collect_shape shape;  // of the present setting, or of the config's
  brim_collect_shape eval;   // of an evaluation
  brim_mappo_how how;
  brim_mappo_model models[BRIM_MAPPO_NETS];
  brim_work_optimizer optimizer;
  brim_schedule schedule;
  double clip_norm;
  brim_knob knobs[BRIM_MAPPO_KNOBS];
  bool by_episodes, by_samples;  // the knobs are episodes_per_batch and batch_size
  brim_mappo_rows rows;
  const char *weights;  // to start from; NULL = from the start
  const volatile sig_atomic_t *stop;
  bool held_out;         // evaluated in other episodes than a training's evaluations
  bool general_rollout;  // memory was short: rollouts keep what the general path keeps
  char description[192];

  // tables of the device, and of the CPU for environments beside a GPU
  const brim_collect_table *collect;
  const brim_ppo_table *ppo;
  const brim_fused_table *fused;  // NULL = the device has none
  const brim_fused_rollout_table *fused_rollout;
  brim_rollout_where where, host;

  // of the present setting
  brim_mappo_sizes sizes;
  brim_collect_layout layout, eval_layout;
  brim_mappo_places places;
  brim_mappo_chunks chunks;
  brim_ppo_shape learn;
  brim_mappo_fusing fusing;
  brim_group *group;
  brim_record *whole;     // of the device's environments, and the first part of what follows
  brim_record *rollout;   // of the environments alone, for steps that are measured
  brim_record **records;  // parts of what follows it
  size_t record_count;
  brim_record *act, *eval_record;     // the actor alone; a step of an evaluation
  brim_mappo_probe probe;             // empty until a step is measured phase by phase
  brim_group_state *states;           // (updates, networks)
  char *block, *eval_block, *memory;  // the device's
  brim_mappo_report *report;          // the host's
  brim_collect_tally *tally;          // the host's
  brim_net_external external[BRIM_MAPPO_NETS];
  brim_tensor inputs[BRIM_MAPPO_NETS][2];  // of training, of evaluation
  brim_tensor outputs[BRIM_MAPPO_NETS];    // of evaluation
  // environments on the CPU beside a GPU
  char *host_block;
  void *host_input, *host_output;
  uint64_t *host_mask;

  brim_mappo_position now, kept;  // kept: by snapshot
  struct brim_mappo_copy *copy;   // likewise
  brim_mappo_watch watch;
  bool has_baseline;
  brim_collect_tally baseline[1 + BRIM_MAPPO_MAX_RULES];  // random, then the environment's rules
} brim_mappo;

// The throughput in the units it is reported in.
enum {
  BRIM_MAPPO_RATE_COLLECTED,
  BRIM_MAPPO_RATE_TRAINED,
  BRIM_MAPPO_RATE_STEPPED,
  BRIM_MAPPO_RATE_EPISODES,
  BRIM_MAPPO_RATES
};

typedef struct brim_mappo_iteration {
  brim_mappo *w;
  const brim_spans *spans;  // NULL: nothing is measured inside
  int64_t part;             // of the records of the updates
} brim_mappo_iteration;

// Makes the knobs; chooses the number of environments if the config leaves it open.
brim_status brim_mappo_choose(brim_mappo *w);
// The sizes of a setting; BRIM_EINVAL if its values contradict each other.
brim_status brim_mappo_apply(const brim_mappo *w, const brim_setting *setting,
                             brim_mappo_sizes *out);
brim_net *brim_mappo_net(const brim_mappo *w, int index);
// Enqueue a rollout and its tally; the critic's values of its states.
brim_status brim_mappo_collect(const brim_mappo_iteration *r);
brim_status brim_mappo_value_states(brim_mappo *w);
// Times pieces of a rollout. Changes the rollout's first steps and what it carries; the caller restores them.
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
// Environment steps of a minibatch: of the divisors of `rows`, the nearest to `steps` by factor.
int64_t brim_mappo_batch(int64_t rows, double steps);

#endif  // BRIM_MAPPO_INT_H_
