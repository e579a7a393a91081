// Evaluation: held-out episodes of the policy, and in the same episodes what random actions and the
// environment's own rules come to. Every environment runs one episode; all step side by side.
#include <string.h>

#include "workload/mappo/mappo_int.h"

enum { POLICY = BRIM_MAPPO_POLICY, RANDOM = 0 };
// Steps between looks at how many episodes are over.
enum { PATIENCE = 16 };

typedef struct episodes {
  brim_mappo *w;
  int32_t rule;  // POLICY, or a rule of brim_collect_table.choose
} episodes;

// Actions of some environments by the actor: as many as it takes at once.
static brim_status act(brim_mappo *w, int32_t t, int64_t first, int64_t count) {
  const int64_t row = (int64_t)t * w->eval.num_envs + first;
  const brim_collect_view view = {
      .first = row,
      .count = count,
      .actor = brim_mappo_output(&w->inputs[BRIM_MAPPO_ACTOR][1]),
      .mask = (uint64_t *)(void *)(w->memory + w->places.mask),
  };
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(w->eval_block + w->eval_layout.clock);
  brim_mappo_report *report = (brim_mappo_report *)(void *)(w->memory + w->places.report);
  const brim_ppo_sample sample = {
      .outputs = w->outputs[BRIM_MAPPO_ACTOR],
      .rows = count * w->z.agents,
      .first = first * w->z.agents,
      .mask = view.mask,
      .clock = &clock->now,
      .t = t,
      .seed = w->how.seed,
      .stream = w->eval.stream,
      .best = w->how.best,
      .action = (int32_t *)(void *)(w->eval_block + w->eval_layout.action) + row * w->z.agents,
      .bad = &report->bad,
  };
  const brim_ppo_shape shape = {.steps = w->eval.steps,
                                .envs = w->eval.num_envs,
                                .agents = w->z.agents,
                                .act = w->z.act,
                                .rewards = w->rewards,
                                .finals = w->eval_layout.finals};
  BRIM_TRY(w->collect->look(&w->where, &w->eval, w->eval_block, &view));
  BRIM_TRY(brim_net_enqueue_outputs(brim_mappo_net(w, BRIM_MAPPO_ACTOR)));
  return w->ppo->sample(&w->where, &shape, &sample);
}

brim_status brim_mappo_eval_step(brim_mappo *w, int32_t t, int32_t rule) {
  const int64_t all = w->eval.num_envs, each = w->sizes.envs;
  if (rule != POLICY) {
    BRIM_TRY(w->collect->choose(&w->where, &w->eval, w->eval_block, t, rule));
  }
  for (int64_t first = 0; rule == POLICY && first < all; first += each) {
    BRIM_TRY(act(w, t, first, all - first < each ? all - first : each));
  }
  return w->collect->step(&w->where, &w->eval, w->eval_block, t);
}

// One step of all episodes; recorded for the policy.
static brim_status step(void *ctx) {
  const episodes *e = (const episodes *)ctx;
  BRIM_TRY(e->w->collect->begin(&e->w->where, &e->w->eval, e->w->eval_block));
  return brim_mappo_eval_step(e->w, 0, e->rule);
}

static brim_status read_tally(brim_mappo *w, brim_collect_tally *out) {
  BRIM_TRY(w->collect->tally(&w->where, &w->eval, w->eval_block, 0));
  BRIM_TRY(brim_device_copy(w->context.device, w->tally, w->eval_block + w->eval_layout.tally,
                            sizeof *w->tally, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(w->context.device));
  *out = *w->tally;
  return BRIM_OK;
}

static brim_status run_episodes(brim_mappo *w, int32_t rule, brim_collect_tally *out) {
  episodes e = {.w = w, .rule = rule};
  w->eval.stream = w->held_out ? BRIM_MAPPO_STREAM_HELD_OUT : BRIM_MAPPO_STREAM_EVAL;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  for (int32_t i = 1; i <= w->eval.episode_length; i++) {
    if (w->stop && *w->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted in an evaluation");
    BRIM_TRY(rule == POLICY ? brim_record_run(w->eval_record, step, &e, false) : step(&e));
    if (i % PATIENCE != 0 && i < w->eval.episode_length) continue;
    BRIM_TRY(read_tally(w, out));
    if (out->episodes == w->eval.num_envs) break;
  }
  return BRIM_OK;
}

brim_status brim_mappo_baseline(void *work) {
  brim_mappo *w = (brim_mappo *)work;
  if (w->how.episodes == 0 || w->has_baseline) return BRIM_OK;
  for (size_t rule = 0; rule <= w->rows.rules; rule++) {
    BRIM_TRY(run_episodes(w, (int32_t)rule, &w->baseline[rule]));
  }
  w->has_baseline = true;
  return BRIM_OK;
}

brim_status brim_mappo_evaluate(void *work, brim_work_metrics *out) {
  brim_mappo *w = (brim_mappo *)work;
  brim_collect_tally tally;
  if (w->how.episodes == 0) {
    return brim_fail(BRIM_ESTATE,
                     "nothing to evaluate: mappo.eval_episodes is 0; set it to the number of "
                     "held-out episodes, such as 100");
  }
  memset(out, 0, sizeof *out);
  out->set = &w->rows.set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
  BRIM_TRY(brim_mappo_baseline(w));
  BRIM_TRY(run_episodes(w, POLICY, &tally));
  brim_mappo_pack(&tally, out->sums);
  brim_mappo_values(&w->rows, &tally, out->values);
  brim_mappo_rule_values(w, out->values);
  brim_mappo_values(&w->rows, &w->baseline[RANDOM], out->baseline);
  out->samples = tally.episodes;
  out->bad = tally.diverged;
  return BRIM_OK;
}
