// The environment contract. An environment is a header for host and device, and a row. The header has the dynamics
// (env_step.h lists what it defines). The row has name, sizes, arguments, figures of an episode, and entry points:
// what the rest of brim needs. Rollouts, updates and evaluations work on rows and name no environment. A plug-in
// brings an environment as the extension "env/NAME" (a brim_env_row); config: env=plugin:NAME(...). Callers:
// src/rl, the workloads ars and mappo.
#ifndef BRIM_ENV_ENV_H_
#define BRIM_ENV_ENV_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_status.h"
#include "record/record_metric.h"
#include "record/record_scene.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ENV_ABI 4
#define BRIM_ENV_EXTENSION "env/"  // followed by the environment's name

enum {
  BRIM_ENV_VALUES = 64,            // most bytes of an environment's values
  BRIM_ENV_MAX_FIGURES = 6,        // most figures of an episode
  BRIM_ENV_MAX_FRAME = 1024,       // most floats of a frame
  BRIM_ENV_MAX_NUMBERS = 1 << 16,  // most numbers of an observation, or of an action
  BRIM_ENV_MAX_CHOICES = 64        // most discrete actions: a mask has a bit for each
};

typedef enum brim_env_kind {
  BRIM_ENV_CONTINUOUS,  // `act` numbers from -1 to 1 for each agent
  BRIM_ENV_DISCRETE     // one of `act` actions for each agent, if its mask allows it
} brim_env_kind;

// Ends of an episode. Terminated: the environment ended it, for example by a fall; the value of its last state is
// 0. Truncated: it reached the limit of steps; a critic estimates the value of its last state. Diverged: a state
// was not finite or out of bounds.
typedef enum brim_env_end {
  BRIM_ENV_RUNNING = -1,
  BRIM_ENV_TRUNCATED,
  BRIM_ENV_TERMINATED,
  BRIM_ENV_DIVERGED
} brim_env_end;

// The sizes of an environment. Arguments may change them; the header's constants are the capacities.
typedef struct brim_env_sizes {
  int32_t kind;     // brim_env_kind
  int32_t agents;   // agents, which act at the same time with one policy
  int32_t obs;      // numbers an agent observes
  int32_t act;      // numbers (continuous) or choices (discrete) of an agent's action
  int32_t global;   // numbers that a critic sees; 0 = it sees the observations of all agents
  int32_t frame;    // numbers of a frame for replay; 0 = no replay
  int32_t figures;  // numbers of an episode besides return, length and end
  int32_t lanes;    // threads of a GPU that share an environment
  int32_t rewards;  // rewards of a step: 1 (the team's) or `agents`; 0 means 1
} brim_env_sizes;

// The settings of an environment, shared by all its instances: the bytes of the environment's own struct.
typedef union brim_env_values {
  double align;
  unsigned char bytes[BRIM_ENV_VALUES];
} brim_env_values;

typedef enum brim_env_arg_type {
  BRIM_ENV_ARG_INT,    // int32_t
  BRIM_ENV_ARG_FLOAT,  // float
  BRIM_ENV_ARG_CHOICE  // int32_t, an index into `choices`
} brim_env_arg_type;

// An argument of env: NAME(arg=value): its type and bounds, and its place in the environment's struct.
// Checks, completion and `brim config explain` read these rows. A checkpoint has all arguments under these
// names, in this order.
typedef struct brim_env_arg {
  const char *name;
  brim_env_arg_type type;
  size_t offset;
  const char *choices;       // "stand|walk"
  int32_t task;              // 1: this argument decides the rewards and the defaults of the others
  const char *alias;         // another name a config may use for it; NULL = none
  const char *default_text;  // default as a config writes it; NULL = set by `defaults`
  double min, max;           // bounds of a number; both 0 = no bounds
  const char *meaning;       // a message of the catalogue; NULL = not described
} brim_env_arg;

// Names for the metric rows of terminated episodes: their number and their share.
typedef struct brim_env_ended {
  const char *key;            // key of the share: "falls"
  const char *label;          // a message of the catalogue: "falls"
  const char *rate_label;     // a message: the share as a column heading: "fall rate"
  const char *count, *rate;   // names of number and share in `brim eval`: "falls", "fall_rate"
  brim_metric_better better;  // if lower is better, diverged episodes count too
} brim_env_ended;

// One episode of an evaluation.
typedef struct brim_rollout_episode {
  float reward;     // sum of the rewards
  int32_t length;   // steps
  int32_t outcome;  // brim_env_end
} brim_rollout_episode;

struct brim_rollout_work;
struct brim_collect_each;
typedef void (*brim_env_run_fn)(const struct brim_rollout_work *work);

// The row of an environment. `values` point to the bytes of a brim_env_values.
typedef struct brim_env_row {
  uint32_t abi;  // BRIM_ENV_ABI
  const char *name;
  const char *meaning;  // a message of the catalogue, for help; NULL = not described
  const brim_env_arg *args;
  size_t arg_count;
  brim_env_ended ended;
  // Figures of an evaluation, metric rows like a workload's, at most BRIM_ENV_MAX_FIGURES. A row without
  // stages appears only in the table of `brim eval`.
  const brim_metric *figures;
  size_t figure_count;
  // 1: ars.restart is off by default, so a rollout has one episode. For environments with the same reward in every
  // step, since with new episodes all returns would be equal.
  int32_t once;
  // Names of the environment's baselines, which are the header's `rule` 1, 2, ..., ended by NULL. NULL = none. Rule
  // 0 of every environment with discrete actions is "random".
  const char *const *rules;

  brim_env_sizes (*sizes)(const void *values);
  // Sets all values but the arguments with `task`, which the caller has set. `stage`: stage of a curriculum, from 0
  // (ars.phase).
  void (*defaults)(int32_t stage, void *values);
  // Names what is wrong with values, as a message of the catalogue; NULL = nothing.
  const char *(*problem)(const void *values);
  // Checks the values of a config before `problem`: rules that hold only for configs, or messages with numbers.
  // Messages begin with `where`, the place in the config. May be NULL.
  brim_status (*check)(const void *values, const char *where);
  // Returns the default limit of steps of an episode.
  int32_t (*length)(int32_t stage, const void *values);
  // Returns the highest return of an episode of `length` steps; infinity if there is no bound.
  double (*best)(const void *values, int32_t length);
  // Returns the seconds of a step; 0 = the environment has no time of its own.
  double (*seconds)(const void *values);
  // Returns the fewest floating-point operations of a step.
  double (*flops)(const void *values);
  // Writes a description: "quadruped stand, euler".
  void (*describe)(const void *values, char *out, size_t size);
  // Adds an episode to the sums of `figures`. A figure is sums[i][0] / sums[i][1], unknown if sums[i][1] is 0.
  // `raw` has sizes.figures numbers, written by the header's `figures`; `steps` is the limit of the length. May be
  // NULL.
  void (*count)(const void *values, int32_t steps, const brim_rollout_episode *episode,
                const float *raw, double (*sums)[2]);
  // Adds notes to an evaluation, from the values of `figures`. May be NULL.
  void (*notes)(const double *figures, int64_t episodes, brim_str *out);
  // Describes the sizes.frame numbers of a frame and how a page shows them (record/record_scene.h), in a struct
  // of zeros. NULL = `brim render` cannot show it.
  void (*scene)(const void *values, brim_scene *out);
  // Writes at most 4 lines about these values for a replay; returns their number. May be NULL.
  size_t (*facts)(const void *values, brim_scene_line *out);
  // Returns the loop over the environments of a part (rl_rollout_each.h) that is best for this CPU.
  brim_env_run_fn (*run)(void);
  // Returns the loops that collect rollouts on this CPU (rl_collect_each.h). NULL = the actions are not discrete.
  const struct brim_collect_each *(*collect)(void);
  // True if a state from a checkpoint can be stepped: indices are in bounds, and maps agree with each other. NULL =
  // any bytes are a valid state.
  bool (*valid)(const void *values, const void *state);
} brim_env_row;

// Finds one of brim's own rows by its name; NULL = none.
const brim_env_row *brim_env_find(const char *name);
// Returns brim's own rows in order; NULL after the last.
const brim_env_row *brim_env_at(size_t index);
// Checks a plug-in's row. BRIM_EABI names the environment (`name`) and what is wrong.
brim_status brim_env_check_row(const brim_env_row *row, const char *name);

// Returns the number of rewards of a step.
static inline int32_t brim_env_rewards(const brim_env_sizes *sizes) {
  return sizes->rewards ? sizes->rewards : 1;
}
// Returns the number of baselines besides "random".
int32_t brim_env_rule_count(const brim_env_row *row);
// Returns the number of a baseline by its name, "random" = 0; -1 = none has the name.
int32_t brim_env_rule_find(const brim_env_row *row, const char *name);

// The index of a word in "stand|walk", from 0 (-1 = none), and the word of an index, written to `out`.
int32_t brim_env_choice(const char *choices, const char *word);
const char *brim_env_choice_name(const char *choices, int32_t index, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENV_ENV_H_
