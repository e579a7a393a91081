// Options and help of the policy search.
#include "workload/ars/ars_int.h"

static const char *const phase_choices[] = {"phase1", "phase2", NULL};

static const brim_option train[] = {
    {.name = "num-envs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of environments; ars: per direction"),
     .key = "ars.num_envs"},
    {.name = "num-dirs",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("ars: directions per iteration"),
     .key = "ars.num_dirs"},
    {.name = "dir-chunk",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("ars: directions in memory at a time; fewer use less memory"),
     .key = "ars.dir_chunk"},
    {.name = "iterations",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("iterations to train for"),
     .key = "ars.iterations"},
    {.name = "phase",
     .kind = BRIM_OPTION_ENUM,
     .metavar = "P",
     .help = BRIM_N_("ars: curriculum stage"),
     .key = "ars.phase",
     .choices = phase_choices},
    {0},
};

static const brim_option bench[] = {
    {.name = "num-envs",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("environments to try; ars: per direction"),
     .key = "benchmark.num_envs_options"},
    {.name = "num-dirs",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("ars: numbers of directions to try"),
     .key = "benchmark.num_dirs_options"},
    {.name = "dir-chunk",
     .kind = BRIM_OPTION_INT,
     .multiple = true,
     .help = BRIM_N_("ars: numbers of directions in memory to try"),
     .key = "benchmark.dir_chunk_options"},
    {0},
};

static const brim_option eval[] = {
    {.name = "episodes",
     .kind = BRIM_OPTION_INT,
     .help = BRIM_N_("number of held-out episodes to evaluate a policy in"),
     .key = "ars.eval_episodes"},
    {0},
};

const brim_work_options brim_ars_options[BRIM_ARS_OPTIONS] = {
    {.command = "train",
     .rows = train,
     .examples = BRIM_N_(
         "train a robot to stand\nbrim train ars\nthe same with more environments, for a large "
         "GPU\nbrim train quadruped-stand --num-envs 1024 --num-dirs 64 --dir-chunk 64\n")},
    {.command = "bench", .rows = bench},
    {.command = "eval",
     .rows = eval,
     .about = BRIM_N_(
         "A policy of workload ars runs in --episodes held-out episodes, which did not serve to "
         "select it. The report shows return, falls, lengths and forward speed next to the zero "
         "policy. For the task walk it also counts the episodes with an average speed of 1 m/s or "
         "more and no fall."),
     .examples = BRIM_N_("a policy, in a thousand episodes\n"
                         "brim eval runs/quadruped-stand/best.safetensors --episodes 1000\n"),
     .bounded = "episodes",
     .least = 1,
     .most = 1000000},
};

static const char *const page[] = {
    BRIM_N_(
        "brim searches a policy without gradients (augmented random search). "
        "Each iteration tries random perturbations of the policy, added and subtracted. It then "
        "moves the policy toward those with the higher return. It needs no data."),
    "  brim train cartpole\n"
    "  brim train ars\n"
    "  brim eval runs/quadruped-stand/best.safetensors\n"
    "  brim render runs/quadruped-stand/best.safetensors \\\n"
    "    --out gait.html\n"
    "  brim train ars --phase phase2 --output-dir runs/stand2 \\\n"
    "    --weights runs/quadruped-stand/best.safetensors\n"
    "  brim train quadruped-walk\n"
    "  brim bench ars --benchmark-batch\n\n",
    BRIM_N_(
        "The first command balances a pole on a cart (CartPole-v1), in about a second. The second "
        "trains a four-legged robot to stand while it is pushed. eval compares it with the "
        "zero policy (all actions 0) in held-out episodes, and render writes a page that shows it. "
        "Phase 2 continues from the policy of phase 1, with longer episodes and stronger pushes. "
        "quadruped-walk rewards forward speed. bench finds the fastest number of environments and "
        "directions."),
    BRIM_N_("A config of your own needs these keys:"),
    "  model: linear_policy\n"
    "  workload: ars\n"
    "  env: quadruped(task=stand)\n\n"};
const brim_work_topic brim_ars_topic = {BRIM_N_("a robot that learns to stand or walk"), page,
                                        sizeof page / sizeof *page};
