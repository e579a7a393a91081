// Options and help of multi-agent PPO.
#include <string.h>

#include "workload/mappo/mappo_int.h"

static const brim_option train[] = {
    {.name = "rollout-steps",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("mappo: steps of each environment per iteration"),
     .key = "mappo.rollout_steps"},
    {.name = "minibatches",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("mappo: minibatches per epoch of an update"),
     .key = "mappo.minibatches"},
    {0},
};

static const brim_option bench[] = {
    {.name = "rollout-steps",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("mappo: rollout lengths to try"),
     .key = "benchmark.rollout_steps_options"},
    {.name = "minibatches",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("mappo: numbers of minibatches to try"),
     .key = "benchmark.minibatches_options"},
    {0},
};

const brim_work_options brim_mappo_options[BRIM_MAPPO_OPTIONS] = {
    {.command = "train", .rows = train},
    {.command = "bench", .rows = bench},
};

static const char *const page[] = {
    BRIM_N_(
        "brim trains several agents that act at once (multi-agent PPO). All agents share one "
        "policy, the actor, which sees what one agent sees. A critic sees the whole environment "
        "while training. Each iteration collects a rollout and updates both networks several times "
        "on it. It needs no data."),
    "  brim train uav\n"
    "  brim eval runs/uav/best.safetensors\n"
    "  brim train mappo env=cartpole\n"
    "  brim train uav mappo.num_envs=4096\n"
    "  brim bench uav-before\n"
    "  brim bench uav-after\n\n",
    BRIM_N_(
        "The first command teaches ten UAVs to cover a grid with obstacles. eval compares the "
        "policy with random actions and with the environment's own rule in held-out episodes. The "
        "third balances a pole on a cart. On a GPU the environments run there too. "
        "mappo.collect_on=cpu runs them on the CPU instead. uav-before and uav-after are a slow "
        "configuration and a faster one; bench shows the time of environment, action and update."),
    BRIM_N_("A config of your own needs these keys:"),
    "  workload: mappo\n"
    "  env: uav(size=32, num_uavs=10)\n"
    "  model: actor_critic(depth=2, hidden=256)\n\n"};
const brim_work_topic brim_mappo_topic = {BRIM_N_("several agents that learn to work together"),
                                          page, sizeof page / sizeof *page};
