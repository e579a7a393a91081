// What a sweep finds about multi-agent PPO, in the order in which it costs most: environments on the CPU beside
// a GPU, minibatches too small for it, copies at every step, episodes one after the other. A price is what a
// measured setting gains, else what follows from the measured phases.
#include <math.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"
#include "workload/workload_findings.h"

// Below this share of an iteration nothing is said. A minibatch of so many samples keeps a large GPU busy.
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

// On the GPU the actor still computes every step; simulating and copying go.
static void find_env(const brim_findings *v) {
  brim_result *r = v->r;
  const brim_result *twin = brim_finding_twin(v, "collect_on", BRIM_TWIN_THIS, "gpu");
  const double total = r->total_ms.median;
  const double gain = twin ? brim_finding_gain_ms(r, twin) : env_ms(r) + copy_ms(r);
  if (!on_cpu(r) || !matters(r, gain)) return;
  brim_finding *f = brim_finding_add(r, "env_on_cpu", gain);
  if (!f) return;
  brim_msg_format(f->text, sizeof f->text,
                  brim_tr("environments run on the CPU: %.2f ms of %.2f ms (%.0f %%), during which "
                          "the GPU idles; action selection takes %.0f %%, the update %.0f %%"),
                  env_ms(r), total, 100 * env_ms(r) / total, 100 * (act_ms(r) + copy_ms(r)) / total,
                  100 * update_ms(r) / total);
  if (twin) {
    brim_msg_format(f->remedy, sizeof f->remedy,
                    brim_tr("collect_on cpu -> gpu: measured, %.2f ms less for the same "
                            "agent-steps, %.2f times as fast"),
                    gain, total / (total - gain));
  } else {
    brim_msg_format(f->remedy, sizeof f->remedy,
                    brim_tr("collect_on cpu -> gpu: about %.2f times as fast by the measured "
                            "phases; not measured in this sweep"),
                    total / (total - gain));
  }
}

// Agent samples of a minibatch.
static double batch_of(const brim_result *r) {
  const double count = brim_result_knob_number(r, "minibatches", 0);
  if (count > 0) return r->plan.samples_per_step / count;
  return brim_result_knob_number(r, "batch_size", 0);
}

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
  const double price = twin ? gain : update_ms(r) * (1 - batch / SMALL_BATCH);
  brim_finding *f = brim_finding_add(r, "small_minibatch", price);
  if (!f) return;
  brim_msg_format(f->text, sizeof f->text,
                  brim_tr("a minibatch has %.0f agent samples, too few to fill the GPU: the update "
                          "takes %.2f ms in short pieces"),
                  batch, update_ms(r));
  if (twin) {
    brim_msg_format(f->remedy, sizeof f->remedy,
                    brim_tr("minibatches of %.0f samples: measured, %.2f ms less for the same "
                            "agent-steps"),
                    batch_of(twin), gain);
  } else {
    brim_msg_format(f->remedy, sizeof f->remedy, "%s",
                    brim_tr("a larger batch_size, or fewer minibatches with more num_envs; it "
                            "changes learning: not measured in this sweep"));
  }
}

static void find_copies(const brim_findings *v) {
  brim_result *r = v->r;
  if (!on_cpu(r) || !matters(r, copy_ms(r))) return;
  brim_finding *f = brim_finding_add(r, "step_transfers", copy_ms(r));
  if (!f) return;
  brim_msg_format(f->text, sizeof f->text,
                  brim_tr("%.2f ms (%.0f %%) are copies: observations go up and actions come back "
                          "at every step"),
                  copy_ms(r), 100 * copy_ms(r) / r->total_ms.median);
  snprintf(f->remedy, sizeof f->remedy, "%s",
           brim_tr("collect_on=gpu needs no copies; more num_envs share one copy"));
}

// Environments that could step side by side on as many threads.
static void find_sequence(const brim_findings *v) {
  brim_result *r = v->r;
  const double envs = brim_result_knob_number(r, "num_envs", 0), cores = r->cores;
  const brim_result *twin = brim_finding_twin(v, "num_envs", BRIM_TWIN_MORE, NULL);
  const double collect = env_ms(r) + act_ms(r) + copy_ms(r);
  const double gain = twin ? brim_finding_gain_ms(r, twin) : collect * (1 - envs / cores);
  if ((brim_result_has_gpu(r) && !on_cpu(r)) || !(envs < cores) || !matters(r, gain)) return;
  brim_finding *f = brim_finding_add(r, "sequential_episodes", gain);
  if (!f) return;
  brim_msg_format(f->text, sizeof f->text,
                  brim_tr("%.0f environments on %.0f cores: episodes follow one another, and each "
                          "step has an action selection of its own (%.2f ms in all)"),
                  envs, cores, collect);
  if (twin) {
    brim_msg_format(f->remedy, sizeof f->remedy,
                    brim_tr("num_envs %.0f -> %s: measured, %.2f ms less for the same agent-steps"),
                    envs, brim_result_knob_text(twin, "num_envs"), gain);
  } else {
    brim_msg_format(f->remedy, sizeof f->remedy,
                    brim_tr("num_envs %.0f -> %.0f with as many num_workers: not measured in this "
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
