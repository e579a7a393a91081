// Config keys of multi-agent PPO, and the models it brings.
#include "workload/mappo/mappo_int.h"

static const brim_config_row keys[] = {
    BRIM_KEY_INT_AUTO("mappo.num_envs", 1, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                      "environments that step side by side; auto = 1024 on a GPU, 32 on a CPU, or "
                      "num_workers x episodes_per_worker"),
    BRIM_KEY_INT(
        "mappo.rollout_steps", NULL, 1, 1e6, BRIM_KEY_NAMES("rollout_steps"), BRIM_CONFIG_SAVED_OWN,
        "steps of each environment per iteration (default: 128, or set by episodes_per_batch)"),
    BRIM_KEY_INT(
        "mappo.episodes_per_batch", NULL, 1, 1e6, BRIM_KEY_NAMES("episodes_per_batch"),
        BRIM_CONFIG_SAVED_OWN,
        "episodes per iteration instead of rollout_steps: rollout_steps = episodes x length / "
        "num_envs, rounded up"),
    BRIM_KEY_INT("mappo.episodes_per_worker", "0", 0, 1e6, BRIM_KEY_NAMES("episodes_per_worker"),
                 BRIM_CONFIG_SAVED_OWN,
                 "environments per CPU thread: num_envs = num_workers x this (0 = use num_envs)"),
    BRIM_KEY_CHOICE(
        "mappo.collect_on", "auto", BRIM_KEY_NAMES("collect_on"),
        BRIM_KEY_NAMES("auto", "cpu", "gpu"), 0,
        "where environments run; cpu with a GPU copies observations and actions every step"),
    BRIM_KEY_CHOICE("mappo.fused", "auto", BRIM_KEY_NO_NAMES, BRIM_KEY_NAMES("auto", "on", "off"),
                    0,
                    "kernels that keep small networks on a GPU's chip; auto = in bf16, where the "
                    "GPU and the networks allow it"),
    BRIM_KEY_INT("mappo.update_epochs", "5", 1, 65535, BRIM_KEY_NAMES("update_epochs"),
                 BRIM_CONFIG_SAVED_OWN, "number of passes over the collected samples"),
    BRIM_KEY_INT("mappo.minibatches", NULL, 1, 1e6,
                 BRIM_KEY_NAMES("minibatches", "num_minibatches"), BRIM_CONFIG_SAVED_OWN,
                 "minibatches per pass (default: 4, or set by data.batch_size in agent samples)"),
    BRIM_KEY_FLOAT("mappo.gamma", "0.99", 0, 1, BRIM_KEY_NAMES("gamma"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST, "discount of later rewards"),
    BRIM_KEY_FLOAT("mappo.gae_lambda", "0.95", 0, 1, BRIM_KEY_NAMES("gae_lambda"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "lambda of the advantage estimate (GAE)"),
    BRIM_KEY_FLOAT("mappo.clip", "0.2", 0, 10, BRIM_KEY_NAMES("clip_range"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "clipping range of the policy ratio"),
    BRIM_KEY_FLOAT(
        "mappo.value_clip", "0.2", 0, 1e3, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
        "clipping range of the value, in standard deviations of returns with value_norm (0 = "
        "off)"),
    BRIM_KEY_FLOAT("mappo.value_coef", "0.5", 0, 1e3, BRIM_KEY_NAMES("value_coef"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST, "weight of the value loss"),
    BRIM_KEY_FLOAT("mappo.entropy_coef", "0.01", 0, 10, BRIM_KEY_NAMES("entropy_coef"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST, "weight of the entropy"),
    BRIM_KEY_FLOAT("mappo.huber", "0", 0, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                   "error above which the value loss grows linearly (0 = squared error)"),
    BRIM_KEY_BOOL("mappo.value_norm", "true", BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                  "normalize returns by their running mean and deviation"),
    BRIM_KEY_BOOL("mappo.normalize_advantages", "true", BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                  "normalize the advantages of an iteration to mean 0 and deviation 1"),
    BRIM_KEY_INT("mappo.iterations", "200", 1, 1e9, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "number of iterations: one rollout and its updates"),
    BRIM_KEY_INT("mappo.eval_interval", "10", 1, 1e9, BRIM_KEY_NO_NAMES, 0,
                 "iterations per epoch; brim evaluates the policy after each epoch"),
    BRIM_KEY_INT("mappo.eval_episodes", "100", 0, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "held-out episodes of an evaluation; 0 = none"),
    BRIM_KEY_CHOICE("mappo.eval_actions", "sample", BRIM_KEY_NO_NAMES,
                    BRIM_KEY_NAMES("sample", "best"), BRIM_CONFIG_SAVED_OWN,
                    "actions in evaluations: drawn from the policy, or the most probable"),
    BRIM_KEY_INT("mappo.num_uavs", NULL, 1, 32, BRIM_KEY_NAMES("num_uavs"), 0,
                 "num_uavs of env: uav"),
    BRIM_KEY_INT("mappo.num_obstacles", NULL, 0, 4096, BRIM_KEY_NAMES("num_obstacles"), 0,
                 "num_obstacles of env: uav"),
    BRIM_KEY_INT("mappo.grid_size", NULL, 2, 64, BRIM_KEY_NAMES("grid_size"), 0,
                 "size of env: uav"),
    BRIM_KEY_INT("mappo.max_steps", NULL, 1, 32768, BRIM_KEY_NAMES("max_steps"), 0,
                 "episode_steps of env: uav"),
};

static const brim_config_link links[] = {
    {"env", "num_uavs", "mappo.num_uavs", false},
    {"env", "num_obstacles", "mappo.num_obstacles", false},
    {"env", "size", "mappo.grid_size", false},
    {"env", "episode_steps", "mappo.max_steps", false},
};

static const brim_config_arg actor_critic_args[] = {
    BRIM_ARG_INT("depth", "2", 0, 64, "hidden layers"),
    BRIM_ARG_INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    BRIM_ARG_CHOICE("activation", "tanh", "relu|gelu|tanh", "activation after each hidden layer"),
    BRIM_ARG_BOOL("shared", "false", "policy and value share one trunk"),
};

static const brim_config_component_row components[] = {
    BRIM_COMPONENT("model", "actor_critic", actor_critic_args, "policy and value heads"),
};

// Minibatches have that many samples where it is written (brim_mappo_make_knobs).
static const char *const given[] = {"data.batch_size", NULL};

static const char *const yields[] = {"mappo.rollout_steps",
                                     "mappo.episodes_per_batch",
                                     "mappo.minibatches",
                                     "data.batch_size",
                                     "mappo.num_envs",
                                     "mappo.episodes_per_worker",
                                     NULL};

const brim_config_section brim_mappo_section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .links = links,
    .link_count = sizeof links / sizeof *links,
    .components = components,
    .component_count = sizeof components / sizeof *components,
    .given = given,
    .yields = yields,
};
