// Tables of multi-agent PPO: keys, help, findings, troubles, views.

#include "workload/mappo/mappo_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_findings.h"
#include "record/record_view.h"

//--------------------------------------------- keys ---------------------------------------------
// Config keys of multi-agent PPO, and the models it brings.

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

// Keys that belong to the identity whenever they are written: data.batch_size then sets the samples of a minibatch.
static const char *const given[] = {"data.batch_size", NULL};

// Pairs of keys that set the same: the first is ignored if a later layer gives the second.
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

//--------------------------------------------- help ---------------------------------------------
// Options and help of multi-agent PPO.

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

static const brim_option eval[] = {{0}};  // --episodes is shared with ars, which declares it

const brim_work_options brim_mappo_options[BRIM_MAPPO_OPTIONS] = {
    {.command = "train", .rows = train},
    {.command = "bench", .rows = bench},
    {.command = "eval",
     .rows = eval,
     .about = BRIM_N_(
         "A policy of workload mappo runs in --episodes held-out episodes too, in the training "
         "precision. The report shows the figures of its environment next to random actions and "
         "the environment's own rule.")},
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

//------------------------------------------- findings -------------------------------------------
// Findings, the most expensive first: environments on the CPU beside a GPU, minibatches too small for the
// GPU, copies at every step, episodes one after the other. The gain is measured if the remedy was measured. Else
// it is computed from the measured phases and, for environments on the GPU, from the probe.

// least_share: smaller shares of an iteration are not reported. Minibatches of fewer than SMALL_BATCH
// samples may not keep a large GPU busy.
static const double least_share = 0.03;
enum { SMALL_BATCH = 8192 };

static bool on_cpu(const brim_result *r) {
  return brim_result_has_gpu(r) && strcmp(brim_result_knob_text(r, "collect_on"), "cpu") == 0;
}

static double env_ms(const brim_result *r) { return brim_result_phase_ms(r, BRIM_PHASE_ENV); }
static double act_ms(const brim_result *r) { return brim_result_phase_ms(r, BRIM_PHASE_ACT); }
static double copy_ms(const brim_result *r) { return brim_result_phase_ms(r, BRIM_PHASE_H2D); }
static double update_ms(const brim_result *r) { return brim_result_phase_ms(r, BRIM_PHASE_UPDATE); }

static bool matters(const brim_result *r, double ms) {
  return ms > least_share * r->total_ms.median;
}

//---------------------------------- sizes ----------------------------------

// Agents of an environment; NaN if the record does not say.
static double agents_of(const brim_result *r) {
  if (r->rate_count <= BRIM_MAPPO_RATE_STEPPED) return (double)NAN;
  return 1 / r->rates[BRIM_MAPPO_RATE_STEPPED].per_sample;
}

static double env_steps(const brim_result *r) { return r->plan.samples_per_step / agents_of(r); }

// Agent samples of a minibatch in an iteration of `steps` environment steps. The config's batch_size is
// rounded to whole environment steps that divide a rollout.
static double batch_at(const brim_result *r, double steps) {
  const double count = brim_result_knob_number(r, "minibatches", 0), agents = agents_of(r);
  const double asked = brim_result_knob_number(r, "batch_size", 0);
  if (count > 0) return steps * agents / count;
  if (!(steps >= 1) || !(asked >= agents)) return asked;
  return (double)brim_mappo_batch((int64_t)(steps + 0.5), asked / agents) * agents;
}

static double batch_of(const brim_result *r) {
  const double count = brim_result_knob_number(r, "minibatches", 0);
  return count > 0 ? r->plan.samples_per_step / count : batch_at(r, env_steps(r));
}

//---------------------------------- environments to the GPU ----------------------------------

// On the GPU a step of one environment takes as long as a step of hundreds. So try MANY_ENVS, if each of them
// would make at least LEAST_STEPS steps in an iteration.
enum { MANY_ENVS = 256, LEAST_STEPS = 4 };

// Predicts the time of the update if an iteration is rounded up to whole steps of `envs` environments. The size
// of the minibatches may change; each small minibatch costs about the same.
static double update_at(const brim_result *r, double envs) {
  const double steps = ceil(env_steps(r) / envs) * envs;
  const double before = batch_of(r), after = batch_at(r, steps);
  const bool by_episodes = brim_result_knob_number(r, "episodes_per_batch", 0) > 0;
  const bool by_samples = brim_result_knob_number(r, "batch_size", 0) > 0;
  if (!by_episodes || !by_samples || !(before < SMALL_BATCH) || !(after > 0)) return update_ms(r);
  return update_ms(r) * before / after;
}

// Predicts the milliseconds of an iteration with `envs` environments on the GPU. Uses the probe's times of
// environment and actor; without a probe, assumes that simulation and copies take no time.
static double moved_ms(const brim_result *r, double envs) {
  const double own = brim_result_knob_number(r, "num_envs", 1);
  const double probed = r->phase_moved_ms[BRIM_PHASE_ENV] + r->phase_moved_ms[BRIM_PHASE_ACT];
  const double there = isnan(probed) ? act_ms(r) : probed;
  const double rest = r->total_ms.median - env_ms(r) - act_ms(r) - copy_ms(r) - update_ms(r);
  return rest + there * own / envs + (envs > own ? update_at(r, envs) : update_ms(r));
}

// The fastest measured setting with the environments on the GPU and all other knobs equal. `more`: with more
// environments than the present setting, else with the same number.
static const brim_result *find_moved(const brim_findings *v, bool more) {
  const double own = brim_result_knob_number(v->r, "num_envs", 1);
  const brim_result *best = NULL;
  for (size_t i = 0; i < v->count; i++) {
    const brim_result *other = &v->results[i];
    const double envs = brim_result_knob_number(other, "num_envs", 0);
    bool same = brim_result_ran(other) && other->knob_count == v->r->knob_count;
    for (size_t k = 0; k < v->r->knob_count && same; k++) {
      const char *name = v->r->knobs[k].name, *value = v->r->knobs[k].value;
      if (strcmp(name, "num_envs") == 0) continue;
      if (strcmp(name, "collect_on") == 0) value = "gpu";
      same = strcmp(brim_result_knob_text(other, name), value) == 0;
    }
    if (!same || (more ? !(envs > own) : envs != own)) continue;
    if (!best || other->samples_per_s > best->samples_per_s) best = other;
  }
  return best;
}

// The gain of moving the environments to the GPU, with `envs` of them.
typedef struct moving {
  double envs;
  double predicted, measured;  // milliseconds gained; NaN = unknown
} moving;

static moving move(const brim_findings *v, bool more) {
  const brim_result *r = v->r, *twin = find_moved(v, more);
  moving m = {.envs = brim_result_knob_number(r, "num_envs", 1), .measured = (double)NAN};
  if (twin) m.measured = brim_finding_gain_ms(r, twin);
  if (more) {
    const bool room = env_steps(r) >= (double)MANY_ENVS * LEAST_STEPS && 2 * m.envs <= MANY_ENVS;
    m.envs = twin ? brim_result_knob_number(twin, "num_envs", 1) : room ? MANY_ENVS : (double)NAN;
  }
  m.predicted = r->total_ms.median - moved_ms(r, m.envs);
  return m;
}

static double price_of(moving m) { return isnan(m.measured) ? m.predicted : m.measured; }

static void put_move(const brim_result *r, moving m, bool more, brim_finding *f) {
  const double total = r->total_ms.median, predicted = total / (total - m.predicted);
  const double measured = total / (total - m.measured);
  if (isnan(m.predicted)) return;
  if (f->remedy[0]) brim_words_add(f->remedy, sizeof f->remedy, "; ");
  if (more && isnan(measured)) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("with num_envs %.0f: predicted %.2f times as fast"), m.envs, predicted);
  } else if (more) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("with num_envs %.0f: predicted %.2f times as fast, measured %.2f"),
                   m.envs, predicted, measured);
  } else if (isnan(measured)) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("collect_on cpu -> gpu: predicted %.2f times as fast"), predicted);
  } else {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("collect_on cpu -> gpu: predicted %.2f times as fast, measured %.2f"),
                   predicted, measured);
  }
}

static void find_env(const brim_findings *v) {
  brim_result *r = v->r;
  const double total = r->total_ms.median;
  if (!on_cpu(r)) return;
  const moving same = move(v, false), many = move(v, true);
  const moving best = price_of(many) > price_of(same) ? many : same;
  if (!matters(r, price_of(best))) return;
  brim_finding *f = brim_finding_add(r, "env_on_cpu", price_of(best));
  if (!f) return;
  f->predicted_ms = best.predicted;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("environments run on the CPU: %.2f ms of %.2f ms (%.0f %%), during which "
                         "the GPU idles; action selection takes %.0f %%, the update %.0f %%"),
                 env_ms(r), total, brim_shown(100 * env_ms(r) / total),
                 brim_shown(100 * (act_ms(r) + copy_ms(r)) / total),
                 brim_shown(100 * update_ms(r) / total));
  put_move(r, same, false, f);
  put_move(r, many, true, f);
  const bool probed = !isnan(r->phase_moved_ms[BRIM_PHASE_ENV]);
  brim_words_add(f->remedy, sizeof f->remedy, ". ");
  brim_words_put(f->remedy, sizeof f->remedy,
                 probed
                     ? BRIM_N_("Predictions add a probe of a few steps on the GPU to the measured "
                               "update.")
                     : BRIM_N_("Predictions take simulation and copies off the measured phases."));
}

//---------------------------------- minibatches ----------------------------------

// The measured setting with larger minibatches; NULL = none was measured.
static const brim_result *larger_batch(const brim_findings *v) {
  const bool counts = brim_result_knob_number(v->r, "minibatches", 0) > 0;
  const brim_result *twin = brim_finding_twin(v, counts ? "minibatches" : "batch_size",
                                              counts ? BRIM_TWIN_ANY : BRIM_TWIN_MORE, NULL);
  return twin && batch_of(twin) > batch_of(v->r) ? twin : NULL;
}

static void find_batch(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *twin = larger_batch(v);
  const double batch = batch_of(r), gain = twin ? brim_finding_gain_ms(r, twin) : (double)NAN;
  if (!brim_result_has_gpu(r) || !(batch < SMALL_BATCH) || !matters(r, update_ms(r))) return;
  if (twin && !matters(r, gain)) return;  // a measurement shows too little gain
  // prediction: updates cost about the same up to SMALL_BATCH samples
  const double predicted = update_ms(r) * (1 - batch / SMALL_BATCH);
  brim_finding *f = brim_finding_add(r, "small_minibatch", twin ? gain : predicted);
  if (!f) return;
  f->predicted_ms = predicted;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("a minibatch has %.0f agent samples, too few to fill the GPU: the update "
                         "takes %.2f ms in short pieces"),
                 batch, update_ms(r));
  if (twin) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("minibatches of %.0f samples: measured, %.2f ms less for the same "
                           "agent-steps"),
                   batch_of(twin), gain);
  } else {
    brim_words_put(f->remedy, sizeof f->remedy,
                   BRIM_N_("a larger batch_size, or fewer minibatches with more num_envs; it "
                           "changes learning: not measured in this sweep"));
  }
}

//---------------------------------- steps ----------------------------------

static void find_copies(const brim_findings *v) {
  brim_result *r = v->r;
  if (!on_cpu(r) || !matters(r, copy_ms(r))) return;
  brim_finding *f = brim_finding_add(r, "step_transfers", copy_ms(r));
  if (!f) return;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("%.2f ms (%.0f %%) are copies: observations go up and actions come back "
                         "at every step"),
                 copy_ms(r), brim_shown(100 * copy_ms(r) / r->total_ms.median));
  brim_words_put(f->remedy, sizeof f->remedy,
                 BRIM_N_("collect_on=gpu needs no copies; more num_envs share one copy"));
}

// Reports environments that run one after the other: environments that step side by side share one action
// selection and its copies. The gain of threads in the simulation is not counted, because a step of one
// environment is too short for them.
static void find_sequence(const brim_findings *v) {
  brim_result *r = v->r;
  const double envs = brim_result_knob_number(r, "num_envs", 0), cores = r->cores;
  const brim_result *twin = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  const double collect = env_ms(r) + act_ms(r) + copy_ms(r);
  const double predicted = (collect - env_ms(r)) * (1 - envs / cores);
  const double gain = twin ? brim_finding_gain_ms(r, twin) : predicted;
  if ((brim_result_has_gpu(r) && !on_cpu(r)) || !(envs < cores) || !matters(r, gain)) return;
  brim_finding *f = brim_finding_add(r, "sequential_episodes", gain);
  if (!f) return;
  f->predicted_ms = predicted;
  brim_words_add(f->text, sizeof f->text,
                 BRIM_N_("num_envs is %.0f on %.0f cores: episodes follow one another, and each "
                         "environment step has an action selection of its own (%.2f ms in all)"),
                 envs, cores, collect);
  if (twin) {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("num_envs %.0f -> %s: measured, %.2f ms less for the same agent-steps"),
                   envs, brim_result_knob_text(twin, "num_envs"), gain);
  } else {
    brim_words_add(f->remedy, sizeof f->remedy,
                   BRIM_N_("num_envs %.0f -> %.0f with as many num_workers: not measured in this "
                           "sweep"),
                   envs, cores);
  }
}

static void find(const brim_findings *v) {
  find_env(v);
  find_batch(v);
  find_copies(v);
  find_sequence(v);
}

const brim_work_findings_table brim_mappo_findings = {find};

//-------------------------------------------- watch --------------------------------------------
// Troubles: outputs and gradients that are not finite, a policy that no longer explores, updates that move it
// too far, a critic that diverges, a policy that stays worse than random actions.

enum { NOT_FINITE, SKIPPED, ENTROPY, FAR, VALUES, LOW, TROUBLES };

static const brim_work_trouble_row troubles[TROUBLES] = {
    [NOT_FINITE] = {.name = "outputs_not_finite",
                    .label = BRIM_N_("warning"),
                    .one = BRIM_N_("%lld sample had no finite loss or action, by step %lld"),
                    .many =
                        BRIM_N_("%lld samples had no finite loss or action, from step %lld on")},
    [SKIPPED] = {.name = "gradient_not_finite",
                 .label = BRIM_N_("skipped"),
                 .one = BRIM_N_("%lld update whose gradients were not finite, by step %lld"),
                 .many =
                     BRIM_N_("%lld updates whose gradients were not finite, from step %lld on")},
    [ENTROPY] = {.name = "entropy_collapsed",
                 .label = BRIM_N_("warning"),
                 .one = BRIM_N_("%lld time the entropy collapsed, by step %lld"),
                 .many = BRIM_N_("%lld times the entropy collapsed, first by step %lld"),
                 .always = true},
    [FAR] = {.name = "policy_moved_far",
             .label = BRIM_N_("warning"),
             .one = BRIM_N_("%lld iteration moved the policy too far, by step %lld"),
             .many = BRIM_N_("%lld iterations moved the policy too far, from step %lld on")},
    [VALUES] = {.name = "value_loss_exploded",
                .label = BRIM_N_("warning"),
                .one = BRIM_N_("%lld time the value loss was many times its median, by step %lld"),
                .many = BRIM_N_(
                    "%lld times the value loss was many times its median, first by step %lld")},
    [LOW] = {.name = "below_random",
             .label = BRIM_N_("warning"),
             .one = BRIM_N_("%lld time the policy stayed below random actions, by step %lld"),
             .many =
                 BRIM_N_("%lld times the policy stayed below random actions, first by step %lld"),
             .always = true},
};

// Limits of the watch. A policy with less than least_entropy of the entropy of equally likely actions hardly
// explores. Updates of PPO normally have a KL divergence of 0.005 to 0.03; most_kl is far outside a trust
// region. A value loss that doubles may come from a new part of the environment; VALUE_TIMES the median, and
// more than the first value loss, means that the critic diverges. FEW: readings that the median needs. LOW_EVALS:
// evaluations in a row whose return is below the baseline's. ERRORS: standard errors by which it must be lower.
static const double least_entropy = 0.02, most_kl = 0.2;
enum { VALUE_TIMES = 10, FEW = 8, LOW_EVALS = 3, ERRORS = 2 };

static void field(brim_work_trouble *t, const char *key, double value) {
  t->fields[t->field_count].key = key;
  t->fields[t->field_count++].value = value;
}

static void advise(brim_mappo *w, brim_work_trouble *t, const char *advice) {
  snprintf(t->advice, sizeof t->advice, "%s", advice);
  snprintf(w->watch.advice, sizeof w->watch.advice, "%s", advice);
}

static void smaller_steps(const brim_mappo *w, double lr, char *out, size_t size) {
  brim_words_add(
      out, size,
      BRIM_N_("try a lower learning rate (now %g), fewer mappo.update_epochs (now %d) or "
              "training.clip_norm=0.5"),
      lr, w->how.epochs);
}

//---------------------------------- checks in training ----------------------------------

static size_t take_numbers(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const brim_work_metrics *m = at->metrics;
  char advice[400] = "";
  size_t n = 0;
  smaller_steps(w, at->lr, advice, sizeof advice);
  if (m->bad > 0) {
    brim_work_trouble *t = brim_work_trouble_begin(&out[n++], NOT_FINITE, m->bad);
    brim_words_add(
        t->text, sizeof t->text,
        BRIM_N_("%" PRId64 " samples had no finite loss or action by step %" PRId64 ": %s"),
        t->count, at->step, advice);
    advise(w, t, advice);
  }
  if (w->now.skipped > w->watch.skipped) {
    brim_work_trouble *t =
        brim_work_trouble_begin(&out[n++], SKIPPED, w->now.skipped - w->watch.skipped);
    t->silent = m->searching;  // fp16 finds its loss scale by such updates
    w->watch.skipped = w->now.skipped;
    brim_words_add(t->text, sizeof t->text,
                   BRIM_N_("skipped %" PRId64 " updates by step %" PRId64
                           ", because their gradients were not finite: %s"),
                   t->count, at->step, advice);
    if (!t->silent) advise(w, t, advice);
  }
  return n;
}

static size_t take_entropy(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double entropy = at->metrics->values[BRIM_MAPPO_ENTROPY];
  const double share = entropy / log((double)w->z.act);
  char advice[400] = "";
  if (!(share < least_entropy)) {
    if (share > 2 * least_entropy) w->watch.reported_entropy = false;
    return 0;
  }
  if (w->watch.reported_entropy) return 0;
  w->watch.reported_entropy = true;
  brim_work_trouble *t = brim_work_trouble_begin(out, ENTROPY, 1);
  brim_words_add(
      advice, sizeof advice,
      BRIM_N_("if the return does not rise any more, try a larger mappo.entropy_coef (now %g) "
              "or a lower learning rate (now %g)"),
      (double)w->how.entropy, at->lr);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("entropy %.3g by step %" PRId64
                         ", %.1f %% of equally likely actions: the policy hardly explores; %s"),
                 entropy, at->step, brim_shown(100 * share), advice);
  advise(w, t, advice);
  field(t, "value", entropy);
  return 1;
}

static size_t take_distance(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double kl = at->metrics->values[BRIM_MAPPO_KL];
  const double clipped = at->metrics->values[BRIM_MAPPO_CLIPPED];
  char advice[400] = "";
  if (!(kl > most_kl)) return 0;
  brim_work_trouble *t = brim_work_trouble_begin(out, FAR, 1);
  smaller_steps(w, at->lr, advice, sizeof advice);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("the updates of an iteration moved the policy far by step %" PRId64
                         ": KL %.3g, %.0f %% of the samples clipped; %s"),
                 at->step, kl, brim_shown(100 * clipped), advice);
  advise(w, t, advice);
  field(t, "value", kl);
  field(t, "clipped", clipped);
  return 1;
}

// The ratio of a value loss to the running median, NaN with too few readings; then adds the loss to the ring.
static double times_median(brim_mappo_watch *v, double value) {
  double median = (double)NAN;
  const size_t n = v->value_count < BRIM_MAPPO_WINDOW ? (size_t)v->value_count : BRIM_MAPPO_WINDOW;
  if (!isfinite(value)) return (double)NAN;
  if (v->value_count == 0) v->first_value_loss = value;
  if (n >= FEW && brim_stats_median(v->value_loss, n, &median)) {
    brim_status_clear();  // out of memory: this reading is not checked
    median = (double)NAN;
  }
  v->value_loss[v->value_count++ % BRIM_MAPPO_WINDOW] = value;
  return median > 0 ? value / median : (double)NAN;
}

static size_t take_values(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double loss = at->metrics->values[BRIM_MAPPO_VALUE_LOSS];
  const double times = times_median(&w->watch, loss);
  char advice[400] = "";
  if (!(times > VALUE_TIMES) || !(loss > w->watch.first_value_loss)) return 0;
  brim_work_trouble *t = brim_work_trouble_begin(out, VALUES, 1);
  brim_words_add(advice, sizeof advice,
                 w->how.value_norm
                     ? BRIM_N_("try a lower learning rate (now %g) or mappo.huber=10")
                     : BRIM_N_("try mappo.value_norm=true, or a lower learning rate (now %g)"),
                 at->lr);
  brim_words_add(t->text, sizeof t->text,
                 BRIM_N_("value loss %.4g by step %" PRId64 ", %.3g times its running median: %s"),
                 loss, at->step, times, advice);
  advise(w, t, advice);
  field(t, "value", loss);
  field(t, "times_median", times);
  return 1;
}

//---------------------------------- checks in evaluations ----------------------------------

static size_t take_evaluation(brim_mappo *w, const brim_work_moment *at, brim_work_trouble *out) {
  const double *now = at->metrics->values, *random = at->metrics->baseline;
  const double error = now[BRIM_MAPPO_ERROR], other = random[BRIM_MAPPO_ERROR];
  const double both = sqrt(error * error + other * other);
  const bool low = random[BRIM_MAPPO_RETURN] - now[BRIM_MAPPO_RETURN] > ERRORS * both;
  char advice[400] = "";
  w->watch.low = low ? w->watch.low + 1 : 0;
  if (!low) w->watch.reported_low = false;
  if (w->watch.low < LOW_EVALS || w->watch.reported_low) return 0;
  w->watch.reported_low = true;
  brim_work_trouble *t = brim_work_trouble_begin(out, LOW, 1);
  brim_words_add(
      advice, sizeof advice,
      BRIM_N_("try a lower learning rate (now %g), more environments (mappo.num_envs is %d) "
              "or a larger mappo.entropy_coef (now %g)"),
      at->lr, w->sizes.envs, (double)w->how.entropy);
  brim_words_add(
      t->text, sizeof t->text,
      BRIM_N_("return %.4g by step %" PRId64 ", below the %.4g of random actions in %" PRId64
              " evaluations in a row: %s"),
      now[BRIM_MAPPO_RETURN], at->step, random[BRIM_MAPPO_RETURN], w->watch.low, advice);
  advise(w, t, advice);
  field(t, "value", now[BRIM_MAPPO_RETURN]);
  field(t, "baseline", random[BRIM_MAPPO_RETURN]);
  return 1;
}

static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  brim_mappo *w = (brim_mappo *)work;
  if (at->evaluated) return take_evaluation(w, at, out);
  if (at->metrics->samples == 0) return 0;
  size_t n = take_numbers(w, at, out);
  n += take_entropy(w, at, out + n);
  n += take_distance(w, at, out + n);
  return n + take_values(w, at, out + n);
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  (void)counts, (void)lr;
  snprintf(out, size, "%s", ((const brim_mappo *)work)->watch.advice);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  const brim_mappo *w = (const brim_mappo *)work;
  return brim_fail(BRIM_ESTATE,
                   "diverged in epoch %" PRId64
                   ": losses or gradients are no longer finite; try a lower learning rate (now "
                   "%g), training.clip_norm=0.5 or fewer mappo.update_epochs (now %d) from an "
                   "earlier checkpoint",
                   epoch, lr, w->how.epochs);
}

//---------------------------------- state in a checkpoint ----------------------------------

enum { FACTS = 6, NUMBERS = TROUBLES + FACTS + BRIM_MAPPO_WINDOW };

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  const brim_mappo_watch *v = &((const brim_mappo *)work)->watch;
  double numbers[NUMBERS];
  size_t n = 0;
  for (int i = 0; i < TROUBLES; i++) numbers[n++] = (double)times[i];
  const double facts[FACTS] = {(double)v->skipped,      (double)v->value_count,
                               v->first_value_loss,     (double)v->low,
                               (double)v->reported_low, (double)v->reported_entropy};
  memcpy(numbers + n, facts, sizeof facts);
  n += FACTS;
  memcpy(numbers + n, v->value_loss, sizeof v->value_loss);
  return brim_json_put_numbers(metadata, "brim.watch_mappo", numbers, NUMBERS);
}

static int64_t whole(double x) { return x >= 0 && x < 9e15 ? (int64_t)x : 0; }

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_mappo_watch *v = &((brim_mappo *)work)->watch;
  double numbers[NUMBERS];
  (void)skipped;
  if (brim_work_get_numbers(metadata, "brim.watch_mappo", numbers, NUMBERS) != NUMBERS) return;
  for (int i = 0; i < TROUBLES; i++) times[i] = whole(numbers[i]);
  const double *facts = numbers + TROUBLES;
  v->skipped = whole(facts[0]);
  v->value_count = whole(facts[1]);
  v->first_value_loss = facts[2];
  v->low = whole(facts[3]);
  v->reported_low = facts[4] > 0;
  v->reported_entropy = facts[5] > 0;
  memcpy(v->value_loss, facts + FACTS, sizeof v->value_loss);
}

const brim_work_diagnosis brim_mappo_diagnosis = {.rows = troubles,
                                                  .count = TROUBLES,
                                                  .take = watch_take,
                                                  .advice = watch_advice,
                                                  .lost = watch_lost,
                                                  .put = watch_put,
                                                  .get = watch_get};

//-------------------------------------------- views --------------------------------------------
// Views of bench: the time of an iteration by phase, and a comparison of three settings: the config's own, the
// same with environments on the GPU, and the fastest. `brim compare` shows two configs in this way.

enum { MOST_SIDES = 3 };

// A measured setting and the heading of its column.
typedef struct side {
  const char *heading;
  const brim_result *r;
  const char *ms;  // the heading of its milliseconds, if there are two settings
} side;

// Prints three significant digits, or all digits of a number from 1000 on.
static void put_three(brim_view *v, double value) {
  brim_view_put(v, value >= 999.5 ? "%.0f" : "%.3g", value);
}

static void put_percent(brim_view *v, double percent) {
  if (isnan(percent)) {
    brim_view_put(v, "-");
  } else {
    brim_view_put(v, "%.0f %%", brim_shown(percent));
  }
}

//---------------------------------- phases ----------------------------------

static const struct {
  brim_phase phase;
  const char *label;
} phase_rows[] = {{BRIM_PHASE_ENV, BRIM_N_("environment simulation")},
                  {BRIM_PHASE_ACT, BRIM_N_("action selection")},
                  {BRIM_PHASE_H2D, BRIM_N_("transfers")},
                  {BRIM_PHASE_UPDATE, BRIM_N_("network update")},
                  {BRIM_PHASE_OTHER, BRIM_N_("other")}};
enum { PHASE_ROWS = sizeof phase_rows / sizeof *phase_rows };

// Share of a phase in the mean iteration. Shares of means, unlike shares of medians, add up to 1.
static double share_of(const brim_result *r, brim_phase phase) {
  const double share = r->phase_ms[phase].mean / r->total_ms.mean;
  return r->phase_used[phase] && isfinite(share) ? share : 0;
}

// Percent of a phase in which the GPU computes.
static double busy_of(const brim_result *r, brim_phase phase) {
  const double percent = 100 * r->phase_busy_ms[phase] / r->phase_ms[phase].mean;
  return percent > 100 ? 100 : percent;
}

static double busy_of_all(const brim_result *r) {
  double sum = 0;
  bool any = false;
  if (!isnan(r->gpu_percent)) return r->gpu_percent;
  for (size_t i = 0; i < PHASE_ROWS; i++) {
    const brim_phase phase = phase_rows[i].phase;
    if (phase == BRIM_PHASE_OTHER || share_of(r, phase) <= 0) continue;
    sum += r->phase_busy_ms[phase];
    any = true;
  }
  const double percent = any ? 100 * sum / r->total_ms.mean : (double)NAN;
  return percent > 100 ? 100 : percent;
}

static void add_phase(brim_view *v, size_t row, const side *sides, size_t count, bool gpu) {
  const brim_phase phase = phase_rows[row].phase;
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, share_of(sides[i].r, phase));
  if (most <= 0 || (phase == BRIM_PHASE_OTHER && most < 0.005)) return;
  brim_view_put(v, "%s", brim_tr(phase_rows[row].label));
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = sides[i].r;
    const double share = share_of(r, phase);
    if (share > 0) {
      put_three(v, share * r->total_ms.median);
    } else {
      brim_view_put(v, "-");
    }
    put_percent(v, share > 0 ? 100 * share : (double)NAN);
    if (gpu) put_percent(v, share > 0 ? busy_of(r, phase) : (double)NAN);
  }
  v->row_count++;
}

static void phases_note(const side *sides, size_t count, brim_view *v) {
  size_t used = 0;
  used += (size_t)snprintf(v->note, sizeof v->note, "%s",
                           brim_tr("GPU busy: the share of a phase in which any kernel runs."));
  for (size_t i = 0; i < count && used < sizeof v->note; i++) {
    const double percent = sides[i].r->sm_percent;
    char text[160];
    if (isnan(percent)) continue;
    if (count == 1) {
      brim_msg_format(text, sizeof text,
                      brim_tr("Over the iteration %.0f %% of its processors (SMs) have work."),
                      percent);
    } else {
      brim_msg_format(text, sizeof text,
                      brim_tr("%s: over the iteration %.0f %% of its processors (SMs) have work."),
                      sides[i].heading, percent);
    }
    used += (size_t)snprintf(v->note + used, sizeof v->note - used, " %s", text);
  }
}

static void phases(const side *sides, size_t count, brim_view *v) {
  bool gpu = false;
  for (size_t i = 0; i < count; i++) gpu = gpu || brim_result_has_gpu(sides[i].r);
  *v = (brim_view){.title = brim_tr("WHERE AN ITERATION'S TIME GOES"),
                   .columns = {{brim_tr("Phase"), true, 0, 8}},
                   .column_count = 1,
                   .marked = -1};
  static const char *const headings[] = {BRIM_N_("ms"), BRIM_N_("Share"), BRIM_N_("GPU busy")};
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < (gpu ? 3u : 2u); k++) {
      brim_view_column *column = &v->columns[v->column_count++];
      *column = (brim_view_column){.heading = brim_tr(headings[k])};
    }
    if (sides[i].ms) v->columns[v->column_count - (gpu ? 3 : 2)].heading = sides[i].ms;
  }
  for (size_t i = 0; i < PHASE_ROWS; i++) add_phase(v, i, sides, count, gpu);
  brim_view_put(v, "%s", brim_tr("iteration"));
  for (size_t i = 0; i < count; i++) {
    put_three(v, sides[i].r->total_ms.median);
    put_percent(v, 100);
    if (gpu) put_percent(v, busy_of_all(sides[i].r));
  }
  v->row_count++;
  if (gpu) phases_note(sides, count, v);
}

//---------------------------------- before and after ----------------------------------

static double rate_of(const brim_result *r, size_t index) {
  return index < r->rate_count ? r->samples_per_s * r->rates[index].per_sample : (double)NAN;
}

static double get_sm(const brim_result *r) { return r->sm_percent; }
static double get_episode(const brim_result *r) { return 1 / rate_of(r, BRIM_MAPPO_RATE_EPISODES); }
static double get_many(const brim_result *r) { return 10000 * get_episode(r); }
static double get_agent_step(const brim_result *r) { return 1e6 / r->samples_per_s; }
static double get_collected(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_COLLECTED); }
static double get_trained(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_TRAINED); }
static double get_stepped(const brim_result *r) { return rate_of(r, BRIM_MAPPO_RATE_STEPPED); }
// GPU memory in use, that of driver and libraries included if it was measured.
static double get_memory(const brim_result *r) {
  return isnan(r->real_bytes) ? brim_result_memory(r) : r->real_bytes;
}

static void percent_text(double value, char out[32]) { snprintf(out, 32, "%.0f %%", value); }
static void bytes_text(double value, char out[32]) { brim_format_bytes((uint64_t)value, out); }
static void micro_text(double value, char out[32]) {
  snprintf(out, 32, value >= 999.5 ? "%.0f us" : "%.3g us", value);
}

static const struct {
  const char *label;
  double (*get)(const brim_result *r);
  void (*text)(double value, char out[32]);
  bool gpu;  // shown for GPUs only
} items[] = {
    {BRIM_N_("GPU busy"), busy_of_all, percent_text, true},
    {BRIM_N_("GPU processors with work"), get_sm, percent_text, true},
    {BRIM_N_("time per episode"), get_episode, brim_format_duration, false},
    {BRIM_N_("time for 10,000 episodes"), get_many, brim_format_duration, false},
    {BRIM_N_("memory"), get_memory, bytes_text, false},
    {BRIM_N_("time per agent-step"), get_agent_step, micro_text, false},
    {BRIM_N_("agent-steps/s collected"), get_collected, brim_format_figure, false},
    {BRIM_N_("agent-samples/s trained"), get_trained, brim_format_figure, false},
    {BRIM_N_("environment steps/s"), get_stepped, brim_format_figure, false},
};

static void add_item(brim_view *v, size_t item, const side *sides, size_t count) {
  double first = (double)NAN, last = (double)NAN;
  bool known = false;
  for (size_t i = 0; i < count; i++) known = known || isfinite(items[item].get(sides[i].r));
  if (!known) return;
  brim_view_put(v, "%s", brim_tr(items[item].label));
  for (size_t i = 0; i < count; i++) {
    char text[32] = "-";
    last = items[item].get(sides[i].r);
    if (i == 0) first = last;
    if (isfinite(last)) items[item].text(last, text);
    brim_view_put(v, "%s", text);
  }
  if (count > 1 && isfinite(last / first)) brim_view_put(v, "x%.2f", brim_shown(last / first));
  v->row_count++;
}

static void story(const side *sides, size_t count, brim_view *v) {
  bool gpu = false;
  *v = (brim_view){.title = count > 1 ? brim_tr("BEFORE AND AFTER") : brim_tr("RATES"),
                   .columns = {{"", true, 0, 8}},
                   .column_count = 1,
                   .marked = -1};
  for (size_t i = 0; i < count; i++) {
    v->columns[v->column_count++] = (brim_view_column){.heading = sides[i].heading};
    gpu = gpu || brim_result_has_gpu(sides[i].r);
  }
  if (count > 1) {
    v->columns[v->column_count++] = (brim_view_column){.heading = brim_tr("Change"), .drop = 1};
  }
  for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
    if (gpu || !items[i].gpu) add_item(v, i, sides, count);
  }
}

//---------------------------------- views of a sweep ----------------------------------

static bool is_own(const brim_result *r, const brim_setting *own) {
  static const char *const places[] = {"cpu", "gpu"};
  static const char *const numbers[][2] = {{"num_envs", "num_envs"},
                                           {"rollout_steps", "episodes_per_batch"},
                                           {"minibatches", "batch_size"}};
  for (int i = 0; i < 3; i++) {
    double value = brim_result_knob_number(r, numbers[i][0], (double)NAN);
    if (isnan(value)) value = brim_result_knob_number(r, numbers[i][1], (double)NAN);
    if (value != (double)own->value[i]) return false;
  }
  const char *place = brim_result_knob_text(r, "collect_on");
  const char *precision = brim_result_knob_text(r, "precision");
  return strcmp(place, places[own->value[BRIM_MAPPO_COLLECT] == BRIM_MAPPO_ON_GPU]) == 0 &&
         strcmp(precision, brim_precision_name((brim_precision)own->value[BRIM_MAPPO_PRECISION])) ==
             0;
}

// True if `r` is the setting `own` with the environments on the GPU.
static bool is_moved(const brim_result *r, const brim_result *own) {
  for (size_t i = 0; i < own->knob_count; i++) {
    const char *name = own->knobs[i].name;
    const bool place = strcmp(name, "collect_on") == 0;
    const char *value = place ? "gpu" : own->knobs[i].value;
    if (strcmp(brim_result_knob_text(r, name), value) != 0) return false;
  }
  return r != own && brim_result_has_gpu(r);
}

static void fastest_note(const brim_result *own, const brim_result *fastest, brim_view *v) {
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < own->knob_count && used < sizeof text; i++) {
    const char *name = own->knobs[i].name, *value = brim_result_knob_text(fastest, name);
    if (strcmp(own->knobs[i].value, value) == 0) continue;
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "", name, value);
  }
  brim_msg_format(v->note, sizeof v->note,
                  brim_tr("Fastest: %s. The numbers of environments and of samples per minibatch "
                          "change learning."),
                  text);
}

static size_t make(const brim_result *results, size_t count, const brim_setting *own, bool whole,
                   brim_view *out) {
  const brim_result *mine = NULL, *moved = NULL, *fastest = NULL;
  (void)whole;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r)) continue;
    if (!mine && own && is_own(r, own)) mine = r;
    if (!fastest || r->samples_per_s > fastest->samples_per_s) fastest = r;
  }
  if (!fastest) return 0;
  if (!mine) mine = fastest;
  for (size_t i = 0; i < count && !moved; i++) {
    if (brim_result_ran(&results[i]) && is_moved(&results[i], mine)) moved = &results[i];
  }
  side sides[MOST_SIDES] = {{brim_tr("Config"), mine, NULL}};
  size_t n = 1;
  if (moved) sides[n++] = (side){"collect_on gpu", moved, NULL};
  if (fastest != mine && fastest != moved) sides[n++] = (side){brim_tr("Fastest"), fastest, NULL};
  phases(sides, 1, &out[0]);
  story(sides, n, &out[1]);
  if (sides[n - 1].r == fastest && fastest != mine && fastest != moved) {
    fastest_note(mine, fastest, &out[1]);
  }
  return 2;
}

//---------------------------------- comparison of two configs ----------------------------------

static const json_t *in_config(const brim_result *r, const char *section, const char *key) {
  return json_object_get(json_object_get(r->config, section), key);
}

// Environments that the config asks for; NaN = it leaves them open.
static double envs_asked(const brim_result *r) {
  const json_t *envs = in_config(r, "mappo", "num_envs");
  const json_t *each = in_config(r, "mappo", "episodes_per_worker");
  const json_t *workers = in_config(r, "data", "num_workers");
  if (json_is_number(envs)) return json_number_value(envs);
  const double product = json_number_value(each) * json_number_value(workers);
  return product > 0 ? product : (double)NAN;
}

// True if the setting of a record has the values that its config names.
static bool is_asked(const brim_result *r) {
  static const char *const numbers[][2] = {{"mappo", "rollout_steps"},
                                           {"mappo", "episodes_per_batch"},
                                           {"mappo", "minibatches"},
                                           {"data", "batch_size"}};
  static const char *const words[][2] = {{"mappo", "collect_on"}, {"training", "precision"}};
  const double envs = envs_asked(r);
  if (!isnan(envs) && brim_result_knob_number(r, "num_envs", envs) != envs) return false;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const json_t *value = in_config(r, numbers[i][0], numbers[i][1]);
    const double number = json_number_value(value);
    if (!json_is_number(value)) continue;
    if (brim_result_knob_number(r, numbers[i][1], number) != number) return false;
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *value = json_string_value(in_config(r, words[i][0], words[i][1]));
    if (!value || strcmp(value, "auto") == 0) continue;
    if (strcmp(brim_result_knob_text(r, words[i][1]), value) != 0) return false;
  }
  return true;
}

static const brim_result *asked(const brim_result *results, size_t count) {
  const brim_result *found = NULL;
  for (size_t i = 0; i < count; i++) {  // keep the last: repeated measurements come later
    if (brim_result_ran(&results[i]) && is_asked(&results[i])) found = &results[i];
  }
  return found;
}

static double episode_steps(const brim_result *r) {
  return rate_of(r, BRIM_MAPPO_RATE_STEPPED) / rate_of(r, BRIM_MAPPO_RATE_EPISODES);
}

static size_t compare(const brim_result *a, size_t a_count, const brim_result *b, size_t b_count,
                      brim_view *out) {
  const side sides[] = {{"A", asked(a, a_count), "A (ms)"}, {"B", asked(b, b_count), "B (ms)"}};
  if (!sides[0].r || !sides[1].r) return 0;
  const double before = episode_steps(sides[0].r), after = episode_steps(sides[1].r);
  phases(sides, 2, &out[0]);
  story(sides, 2, &out[1]);
  if (isfinite(before) && isfinite(after) && fabs(before - after) > 0.5) {
    brim_msg_format(out[1].note, sizeof out[1].note,
                    brim_tr("Episodes have %.0f steps in A and %.0f in B, so compare the time per "
                            "agent-step: shorter episodes flatter the time per episode."),
                    before, after);
  }
  return 2;
}

const brim_work_views_table brim_mappo_views = {.brief = true, .make = make, .compare = compare};
