// Episodes of a policy out of its checkpoint, recorded one by one on the CPU: the same bits as those of
// the CPU's evaluation.
#include <stdio.h>

#include "workload/ars/ars_int.h"
#include "workload/workload_replay.h"

typedef struct replay {
  brim_rollout_shape shape;
  brim_ars_policy policy;
  brim_ars_rows rows;
} replay;

enum { TRAINED, ZERO };  // actors, as info_of has them

static void close_replay(void *state) {
  replay *r = (replay *)state;
  if (r) brim_ars_policy_deinit(&r->policy);
  brim_free(r);
}

static brim_status read_it(const brim_work_replay_from *from, void *state) {
  replay *r = (replay *)state;
  brim_work_replay_info info;
  BRIM_TRY(brim_ars_shape(from->config, from->registry, &r->shape));
  BRIM_TRY(brim_work_replay_env(r->shape.row, r->shape.env.bytes, &info));
  brim_ars_rows_init(&r->rows, r->shape.row);
  return brim_ars_policy_read(from->path, &r->shape, &r->policy);
}

static brim_status open_replay(const brim_registry *registry, const brim_config *config,
                               const char *path, void **out) {
  const brim_work_replay_from from = {registry, config, path};
  return brim_work_replay_open(&from, sizeof(replay), read_it, close_replay, out);
}

static void info_of(void *state, brim_work_replay_info *out) {
  const replay *r = (const replay *)state;
  const brim_env_sizes sizes = r->shape.row->sizes(r->shape.env.bytes);
  (void)brim_work_replay_env(r->shape.row, r->shape.env.bytes, out);  // as when it was opened
  out->steps = r->shape.episode_length;
  out->seed = r->shape.seed;
  out->metrics = &r->rows.set;
  out->step = BRIM_N_("iteration");
  snprintf(out->trained, sizeof out->trained,
           r->policy.iteration == 1 ? brim_tr("%lld iteration") : brim_tr("%lld iterations"),
           (long long)r->policy.iteration);
  brim_scene_line *policy = brim_work_replay_fact(out, BRIM_N_("Policy"));
  if (r->shape.hidden > 0) {
    snprintf(policy->text, sizeof policy->text, brim_tr("one hidden layer: %d-%d-%d"), sizes.obs,
             r->shape.hidden, sizes.act);
  } else {
    snprintf(policy->text, sizeof policy->text, brim_tr("linear, %d x %d"), sizes.act, sizes.obs);
  }
  brim_scene_line *trained = brim_work_replay_fact(out, BRIM_N_("Trained"));
  snprintf(trained->text, sizeof trained->text, "%s", out->trained);
  brim_work_replay_actor(out, "trained", brim_tr("Policy"));
  brim_work_replay_actor(out, "zero", brim_tr("Zero policy"));
}

static brim_status put_fields(void *state, json_t *event) {
  const replay *r = (const replay *)state;
  BRIM_TRY(brim_work_replay_task(r->shape.row, r->shape.env.bytes, event));
  return brim_json_put(event, "iteration", json_integer(r->policy.iteration));
}

static brim_scene_end end_of(int32_t outcome) {
  if (outcome == BRIM_ENV_TERMINATED) return BRIM_SCENE_ENDED;
  return outcome == BRIM_ENV_DIVERGED ? BRIM_SCENE_DIVERGED : BRIM_SCENE_LASTED;
}

static brim_status record_one(void *state, size_t actor, int32_t episode, int64_t steps,
                              brim_work_recording *out) {
  const replay *r = (const replay *)state;
  brim_rollout_shape shape = r->shape;
  const brim_rollout_eval eval = {
      .episodes = episode + 1, .zero = actor == ZERO, .stream = BRIM_ARS_STREAM_HELD_OUT};
  brim_rollout_record record = {
      .capacity = out->capacity, .frames = out->frames, .reward = out->reward};
  shape.episode_length = (int32_t)steps;
  BRIM_TRY(brim_rollout_trace(&shape, r->policy.theta, r->policy.normal, &eval, episode, &record));
  out->states = record.states;
  out->end = end_of(record.outcome);
  return BRIM_OK;
}

const brim_work_replay_table brim_ars_replay = {
    .score = "return",
    .open = open_replay,
    .close = close_replay,
    .info = info_of,
    .fields = put_fields,
    .record = record_one,
};
