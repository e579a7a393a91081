// What a sweep finds about multi-agent PPO, in the order in which it costs most: environments on the CPU beside
// a GPU, minibatches too small for it, copies at every step, episodes one after the other. A price is what a
// measured setting gains, else what follows from the measured phases and, for environments on the GPU, a probe.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "workload/mappo/mappo_int.h"
#include "workload/workload_findings.h"

// Below this share of an iteration nothing is reported. A minibatch of so many samples keeps a
// large GPU busy.
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

// NaN where a record does not say.
static double agents_of(const brim_result *r) {
  if (r->rate_count <= BRIM_MAPPO_RATE_STEPPED) return (double)NAN;
  return 1 / r->rates[BRIM_MAPPO_RATE_STEPPED].per_sample;
}

static double env_steps(const brim_result *r) { return r->plan.samples_per_step / agents_of(r); }

// Agent samples of a minibatch where an iteration has so many environment steps: batch_size is what the
// config asks for, of which whole environment steps that divide a rollout are left.
static double batch_at(const brim_result *r, double rows) {
  const double count = brim_result_knob_number(r, "minibatches", 0), agents = agents_of(r);
  const double asked = brim_result_knob_number(r, "batch_size", 0);
  if (count > 0) return rows * agents / count;
  if (!(rows >= 1) || !(asked >= agents)) return asked;
  return (double)brim_mappo_batch((int64_t)(rows + 0.5), asked / agents) * agents;
}

static double batch_of(const brim_result *r) {
  const double count = brim_result_knob_number(r, "minibatches", 0);
  return count > 0 ? r->plan.samples_per_step / count : batch_at(r, env_steps(r));
}

//---------------------------------- environments to the GPU ----------------------------------

// A step on the GPU takes as long for one environment as for hundreds, which are fewer steps: that many,
// where an iteration has enough environment steps for each of them to make a few.
enum { MANY_ENVS = 256, LEAST_STEPS = 4 };

// The update of as many samples where an iteration has whole steps of `envs` environments. What divides that
// may be larger or smaller minibatches; small ones cost about the same each.
static double update_at(const brim_result *r, double envs) {
  const double rows = ceil(env_steps(r) / envs) * envs;
  const double before = batch_of(r), after = batch_at(r, rows);
  const bool by_episodes = brim_result_knob_number(r, "episodes_per_batch", 0) > 0;
  const bool by_samples = brim_result_knob_number(r, "batch_size", 0) > 0;
  if (!by_episodes || !by_samples || !(before < SMALL_BATCH) || !(after > 0)) return update_ms(r);
  return update_ms(r) * before / after;
}

// Milliseconds of the iteration with `envs` environments on the GPU. A probe of a few steps there knows what
// environment and actor take, and the update stays; without one, simulating and copying go.
static double moved_ms(const brim_result *r, double envs) {
  const double own = brim_result_knob_number(r, "num_envs", 1);
  const double probed = r->phase_moved_ms[BRIM_PHASE_ENV] + r->phase_moved_ms[BRIM_PHASE_ACT];
  const double there = isnan(probed) ? act_ms(r) : probed;
  const double rest = r->total_ms.median - env_ms(r) - act_ms(r) - copy_ms(r) - update_ms(r);
  return rest + there * own / envs + (envs > own ? update_at(r, envs) : update_ms(r));
}

// Measured with the environments on the GPU and the rest alike: as many of them, or more. The fastest.
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

// "collect_on cpu -> gpu: predicted 0.85 times as fast, measured 0.83"
typedef struct moving {
  double envs;
  double predicted, measured;  // milliseconds that it gains; NaN = unknown
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

// Fewer and larger minibatches, as measured.
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
  if (twin && !matters(r, gain)) return;  // measured: it does not help
  // without a measurement: updates cost about the same up to this size
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

// Environments that step side by side share an action selection and its copies. What threads gain in the
// simulation is not counted: a step of one environment is too short for it.
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
