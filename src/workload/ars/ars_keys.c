// Config keys of augmented random search, their values in presets, and the models it brings.
#include "workload/ars/ars_int.h"

static const brim_config_row keys[] = {
    BRIM_KEY_INT("ars.num_envs", "128", 1, 1e9, BRIM_KEY_NAMES("num_envs"), BRIM_CONFIG_SAVED_OWN,
                 "environments per direction, half for plus and half for minus (even)"),
    BRIM_KEY_INT("ars.num_dirs", "16", 1, 1e6, BRIM_KEY_NAMES("num_dirs"), BRIM_CONFIG_SAVED_OWN,
                 "random directions per iteration, each run as a plus and minus pair"),
    BRIM_KEY_INT("ars.dir_chunk", "8", 1, 1e6, BRIM_KEY_NAMES("dir_chunk"), 0,
                 "directions in memory at the same time; fewer use less memory"),
    BRIM_KEY_INT("ars.top_dirs", "0", 0, 1e6, BRIM_KEY_NAMES("top_dirs"), BRIM_CONFIG_SAVED_OWN,
                 "number of best directions in each update (0 = all)"),
    BRIM_KEY_FLOAT("ars.noise_std", "0.03", 0, 1e3, BRIM_KEY_NAMES("noise_std"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "standard deviation of the perturbation"),
    BRIM_KEY_FLOAT("ars.step_size", "0.02", 0, 1e3, BRIM_KEY_NAMES("step_size"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST, "step size of the update"),
    BRIM_KEY_INT("ars.episode_length", NULL, 1, 1e9, BRIM_KEY_NAMES("episode_length"),
                 BRIM_CONFIG_SAVED_OWN,
                 "longest episode, in actions (default: set by env and ars.phase)"),
    BRIM_KEY_INT("ars.iterations", "500", 1, 1e9, BRIM_KEY_NAMES("iterations"),
                 BRIM_CONFIG_SAVED_OWN, "number of policy updates"),
    BRIM_KEY_CHOICE("ars.version", "v2", BRIM_KEY_NO_NAMES, BRIM_KEY_NAMES("v1", "v2"),
                    BRIM_CONFIG_SAVED_OWN, "ARS version; v2 normalizes observations"),
    BRIM_KEY_FLOAT("ars.shift", "0", -1e9, 1e9, BRIM_KEY_NAMES("shift"),
                   BRIM_CONFIG_SAVED_OWN | BRIM_CONFIG_NO_COST,
                   "amount subtracted from the reward of every step; has an effect only with "
                   "ars.restart=false"),
    BRIM_KEY_BOOL(
        "ars.restart", NULL, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
        "start a new episode when one ends early; false = end the rollout of that environment "
        "(default: set by env)"),
    BRIM_KEY_INT("ars.eval_interval", "10", 1, 1e9, BRIM_KEY_NO_NAMES, 0,
                 "iterations per epoch; brim evaluates the policy after each epoch"),
    BRIM_KEY_INT("ars.eval_episodes", "100", 0, 1e6, BRIM_KEY_NO_NAMES, BRIM_CONFIG_SAVED_OWN,
                 "held-out episodes of an evaluation; 0 = none"),
    BRIM_KEY_CHOICE(
        "ars.phase", "phase1", BRIM_KEY_NO_NAMES, BRIM_KEY_NAMES("phase1", "phase2"),
        BRIM_CONFIG_SAVED_OWN,
        "curriculum stage: phase1 = episodes of 200 actions, phase2 = episodes of 400 actions "
        "and stronger pushes"),
};

static const brim_config_arg policy_args[] = {
    BRIM_ARG_INT("depth", "1", 0, 64, "hidden layers"),
    BRIM_ARG_INT("hidden", "256", 1, 65536, "width of each hidden layer"),
    BRIM_ARG_CHOICE("activation", "relu", "relu|gelu|tanh", "activation after each hidden layer"),
};

static const brim_config_component_row components[] = {
    BRIM_COMPONENT_BARE("model", "linear_policy", "actions = weights x observations"),
    BRIM_COMPONENT("model", "mlp_policy", policy_args,
                   "small network that maps observations to actions"),
};

#define OF(preset, envs, dirs, chunk) \
  {preset, "ars.num_envs", envs}, {preset, "ars.num_dirs", dirs}, { preset, "ars.dir_chunk", chunk }
static const brim_config_preset_row presets[] = {
    OF("h200", "1024", "64", "64"),
    OF("a100-80g", "1024", "64", "64"),
    OF("a100-40g", "1024", "64", "64"),
    OF("rtx4090-24g", "512", "64", "32"),
    OF("rtx3090-24g", "512", "64", "32"),
    OF("rtx3060-12g", "512", "32", "32"),
    OF("rtx3060-laptop-6g", "256", "32", "16"),
    OF(BRIM_CONFIG_NO_GPU, "64", "16", "16"),
};

const brim_config_section brim_ars_section = {
    .keys = keys,
    .key_count = sizeof keys / sizeof *keys,
    .components = components,
    .component_count = sizeof components / sizeof *components,
    .presets = presets,
    .preset_count = sizeof presets / sizeof *presets,
};
