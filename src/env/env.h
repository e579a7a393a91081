// The environment contract. An environment is one host/device header and one row. The header has the
// dynamics (rl_rollout_each.h lists what it defines); the row, here, has what the rest of brim needs to know:
// name, sizes, arguments, figures of an episode and entry points. Rollouts, the ARS update and
// evaluation work on rows and name no environment.
// A plug-in brings one as the extension "env/NAME" (a brim_env_row); config: env=plugin:NAME(...).
// Callers: rollouts, the workload `ars`, `brim render` by way of it.
#ifndef BRIM_ENV_ENV_H_
#define BRIM_ENV_ENV_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_metric.h"
#include "base/base_scene.h"
#include "base/base_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ENV_ABI 4
#define BRIM_ENV_EXTENSION "env/"  // and the name

enum {
  BRIM_ENV_VALUES = 64,            // bytes of an environment's values, at most
  BRIM_ENV_MAX_FIGURES = 6,        // of an episode
  BRIM_ENV_MAX_FRAME = 1024,       // floats of a frame
  BRIM_ENV_MAX_NUMBERS = 1 << 16,  // of an observation, or of an action
  BRIM_ENV_MAX_CHOICES = 64        // discrete actions: a mask has a bit for each
};

typedef enum brim_env_kind {
  BRIM_ENV_CONTINUOUS,  // `act` numbers from -1 to 1 for each agent
  BRIM_ENV_DISCRETE     // one of `act` actions for each agent, among those its mask allows
} brim_env_kind;

// How an episode ended. Terminated: by what the environment defines, such as a fall; the value of the
// state behind it is 0. Truncated: by the limit of steps; the state behind it has a value, which a
// critic estimates. Diverged: a state that is not finite or out of all bounds.
typedef enum brim_env_end {
  BRIM_ENV_RUNNING = -1,
  BRIM_ENV_TRUNCATED,
  BRIM_ENV_TERMINATED,
  BRIM_ENV_DIVERGED
} brim_env_end;

// Numbers of one environment. They are values, which arguments may change; the header's constants are
// the capacities.
typedef struct brim_env_sizes {
  int32_t kind;     // brim_env_kind
  int32_t agents;   // that act at once, all by the same policy
  int32_t obs;      // numbers an agent observes
  int32_t act;      // numbers (continuous) or choices (discrete) of an agent's action
  int32_t global;   // numbers of the state a critic sees; 0 = the observations are all there is
  int32_t frame;    // numbers of a frame for replay; 0 = no replay
  int32_t figures;  // numbers of an episode besides return, length and end
  int32_t lanes;    // threads of a GPU that share an environment
  int32_t rewards;  // numbers of reward of a step: 1 (the team's) or `agents`; 0 reads as 1
} brim_env_sizes;

// Settings of an environment, the same for every instance of it: a copy (memcpy) of the environment's
// own struct.
typedef union brim_env_values {
  double align;
  unsigned char bytes[BRIM_ENV_VALUES];
} brim_env_values;

typedef enum brim_env_arg_type {
  BRIM_ENV_ARG_INT,    // int32_t
  BRIM_ENV_ARG_FLOAT,  // float
  BRIM_ENV_ARG_CHOICE  // int32_t, the number of a word in `choices`
} brim_env_arg_type;

// An argument of env: NAME(arg=value): what a config may say, and where it goes in the environment's
// struct. `brim config explain`, checks and completion take it from here. A checkpoint has all of them
// under these names, in this order.
typedef struct brim_env_arg {
  const char *name;
  brim_env_arg_type type;
  size_t offset;
  const char *choices;       // "stand|walk"
  int32_t task;              // 1: decides what is rewarded and which defaults the others have
  const char *alias;         // another name a config may use for it; NULL = none
  const char *default_text;  // as a config writes it; NULL = what `defaults` says
  double min, max;           // of a number; both 0: no bounds
  const char *meaning;       // a message of the catalogue; NULL = not described
} brim_env_arg;

// Episodes that were terminated, as rows of metrics: how many, and their share.
typedef struct brim_env_ended {
  const char *key;            // of the share: "falls"
  const char *label;          // a message of the catalogue: "falls"
  const char *rate_label;     // likewise, of the share in a table: "fall rate"
  const char *count, *rate;   // their names in `brim eval`: "falls", "fall_rate"
  brim_metric_better better;  // lower: what diverged counts among them
} brim_env_ended;

// One episode of an evaluation.
typedef struct brim_rollout_episode {
  float reward;     // sum of its rewards
  int32_t length;   // steps
  int32_t outcome;  // brim_env_end
} brim_rollout_episode;

struct brim_rollout_work;
struct brim_collect_each;
typedef void (*brim_env_run_fn)(const struct brim_rollout_work *work);

// `values` are the bytes of a brim_env_values.
typedef struct brim_env_row {
  uint32_t abi;  // BRIM_ENV_ABI
  const char *name;
  const char *meaning;  // a message of the catalogue, for help; NULL = not described
  const brim_env_arg *args;
  size_t arg_count;
  brim_env_ended ended;
  // Figures of an evaluation's episodes, rows of metrics like those of a workload; at most
  // BRIM_ENV_MAX_FIGURES. One without stages is shown in the table of `brim eval` alone.
  const brim_metric *figures;
  size_t figure_count;
  // 1: in a rollout an environment runs one episode where the config does not say (ars.restart). For
  // environments that reward every step alike: with new episodes all returns would be equal.
  int32_t once;
  // Names of the environment's own baselines, the header's `rule` 1, 2, ...; NULL behind the last. NULL:
  // it has none. The name "random" is rule 0 of every environment with discrete actions.
  const char *const *rules;

  brim_env_sizes (*sizes)(const void *values);
  // All values but those of args with `task`, which are there already. `stage` counts the stages of
  // a curriculum from 0 (ars.phase).
  void (*defaults)(int32_t stage, void *values);
  // What is wrong with values, as a message of the catalogue; NULL = nothing.
  const char *(*problem)(const void *values);
  // The same of what only a config has to keep to, or with numbers, as a failure; the message begins with
  // `where`, the place in the config. A config is checked by this first. NULL = nothing more.
  brim_status (*check)(const void *values, const char *where);
  // Steps after which an episode is cut off where the config does not say.
  int32_t (*length)(int32_t stage, const void *values);
  // The highest return an episode of so many steps can have; infinity where there is no such bound.
  double (*best)(const void *values, int32_t length);
  // Seconds of a step; 0 = the environment has no time of its own.
  double (*seconds)(const void *values);
  // Floating-point operations of a step, the fewest.
  double (*flops)(const void *values);
  // "quadruped stand, euler".
  void (*describe)(const void *values, char *out, size_t size);
  // Adds an episode to the sums of `figures`: a figure is the first, divided by the second; unknown
  // where that is 0. `raw` has sizes.figures
  // numbers, as the header's `figures` wrote them; `steps` is the limit of its length. NULL = none.
  void (*count)(const void *values, int32_t steps, const brim_rollout_episode *episode,
                const float *raw, double (*sums)[2]);
  // What an evaluation has to say besides its rows, given the values of `figures`. NULL = nothing.
  void (*notes)(const double *figures, int64_t episodes, brim_str *out);
  // What a frame's numbers are and how a page shows them (base/base_scene.h), into a struct of zeros;
  // its parts have sizes.frame numbers. NULL = `brim render` cannot show it.
  void (*scene)(const void *values, brim_scene *out);
  // Lines about these values below a replay, at most 4; returns how many. NULL = none.
  size_t (*facts)(const void *values, brim_scene_line *out);
  // The loop over some environments that is best for this CPU.
  brim_env_run_fn (*run)(void);
  // The loops that collect rollouts on this CPU (rl_collect_each.h). NULL = there are none: its actions
  // are not discrete.
  const struct brim_collect_each *(*collect)(void);
  // Whether a state from a checkpoint is one that a step can take: what serves as an index is within its
  // bounds, and maps agree with each other. NULL = any bytes are a state.
  bool (*valid)(const void *values, const void *state);
} brim_env_row;

// The row of a name brim has itself; NULL = none.
const brim_env_row *brim_env_find(const char *name);
// Rows brim has itself, in order; NULL past the last.
const brim_env_row *brim_env_at(size_t index);
// Whether a plug-in's row can be used as it is. BRIM_EABI names the environment (`name`) and what is wrong.
brim_status brim_env_check_row(const brim_env_row *row, const char *name);

// Numbers of reward of a step.
static inline int32_t brim_env_rewards(const brim_env_sizes *sizes) {
  return sizes->rewards ? sizes->rewards : 1;
}
// How many baselines a row has besides "random".
int32_t brim_env_rule_count(const brim_env_row *row);
// The number of a baseline by its name, "random" = 0; -1 = the row has none of that name.
int32_t brim_env_rule_find(const brim_env_row *row, const char *name);

// Which of "stand|walk" a word is, from 0; -1 = none. And the other way round, into `out`.
int32_t brim_env_choice(const char *choices, const char *word);
const char *brim_env_choice_name(const char *choices, int32_t index, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENV_ENV_H_
