// Episodes of a policy out of its checkpoint, recorded on the CPU. All episodes that may be asked for run side by
// side once, as in an evaluation; a recording reads its own out of the states that the rollout kept.
#include <stdio.h>
#include <string.h>

#include "workload/mappo/mappo_int.h"
#include "workload/workload_replay.h"

// Actors, as add_actors has them: the policy, the environment's rules, and random actions as the last.
enum { TRAINED };
static size_t rules_of(const brim_mappo *w) {
  const size_t most = BRIM_WORK_MAX_ACTORS - 2, rules = (size_t)brim_env_rule_count(w->shape.row);
  return rules < most ? rules : most;
}

// Environments of a rollout at least, so that looking through many episodes is one; and those that the actor
// sees at once.
enum { MANY = 128, AT_ONCE = 16 };

typedef struct replay {
  brim_device *device;
  brim_mappo *work;
  char *path;
  int64_t iteration;
  int actor;  // whose episodes lie in the block; -1 = none
} replay;

static void close_replay(void *state) {
  replay *r = (replay *)state;
  if (!r) return;
  brim_mappo_close(r->work);
  brim_device_close(r->device);
  brim_free(r->path);
  brim_free(r);
}

static brim_status open_device(const brim_registry *registry, brim_device **out) {
  const brim_device_options options = {0};
  if (brim_device_open(registry, "cpu", &options, out) == BRIM_OK) return BRIM_OK;
  brim_status_clear();
  return brim_device_open(registry, "ref", &options, out);
}

// Networks of the checkpoint, and memory for `envs` whole episodes.
static brim_status build(replay *r, int32_t envs) {
  brim_mappo *w = r->work;
  brim_mappo_drop(w);
  r->actor = -1;
  w->sizes = (brim_mappo_sizes){.envs = AT_ONCE,
                                .steps = 1,
                                .minibatches = 1,
                                .batch = AT_ONCE,
                                .updates = 1,
                                .precision = (brim_precision)w->knobs[BRIM_MAPPO_PRECISION].value,
                                .workers = w->where.threads > 0 ? w->where.threads : 1};
  w->eval.num_envs = envs;
  w->eval.steps = w->eval.episode_length;
  w->eval.stream = BRIM_MAPPO_STREAM_HELD_OUT;
  BRIM_TRY(brim_mappo_build(w));
  return brim_mappo_start_from(w, r->path);
}

static brim_status read_it(const brim_work_replay_from *from, void *state) {
  replay *r = (replay *)state;
  brim_work_replay_info info;
  json_t *meta = NULL;
  void *work = NULL;
  r->path = brim_strdup(from->path);
  if (!r->path) return brim_fail(BRIM_ENOMEM, "out of memory for a replay");
  BRIM_TRY(open_device(from->registry, &r->device));
  const brim_work_context context = {
      .registry = from->registry, .device = r->device, .evaluates = true};
  BRIM_TRY(brim_mappo_open(&context, from->config, &work));
  r->work = (brim_mappo *)work;
  brim_mappo_rows_beside_rule(&r->work->rows);
  BRIM_TRY(brim_work_replay_env(r->work->shape.row, r->work->shape.env.bytes, &info));
  BRIM_TRY(brim_work_metadata(from->path, &meta));
  const char *step = json_string_value(json_object_get(meta, "brim.step"));
  if (!step || !brim_parse_i64(step, &r->iteration)) r->iteration = 0;
  json_decref(meta);
  return build(r, MANY);
}

static brim_status open_replay(const brim_registry *registry, const brim_config *config,
                               const char *path, void **out) {
  const brim_work_replay_from from = {registry, config, path};
  return brim_work_replay_open(&from, sizeof(replay), read_it, close_replay, out);
}

static void add_actors(const brim_mappo *w, brim_work_replay_info *out) {
  brim_work_replay_actor(out, "trained", brim_tr("Policy"));
  for (size_t i = 0; i < rules_of(w); i++) {
    const char *name = w->shape.row->rules[i];
    char label[64];
    snprintf(label, sizeof label, brim_tr("%.40s rule"), name);
    if (label[0] >= 'a' && label[0] <= 'z') label[0] = (char)(label[0] - 'a' + 'A');
    brim_work_replay_actor(out, name, label);
  }
  brim_work_replay_actor(out, "random", brim_tr("Random actions"));
}

// What brim_mappo_eval_step takes: rule 0 is random, those of the environment follow.
static int32_t rule_of(const brim_mappo *w, size_t actor) {
  if (actor == TRAINED) return BRIM_MAPPO_POLICY;
  return actor <= rules_of(w) ? (int32_t)actor : 0;
}

static void info_of(void *state, brim_work_replay_info *out) {
  const replay *r = (const replay *)state;
  const brim_mappo *w = r->work;
  const brim_component *c = &w->models[BRIM_MAPPO_ACTOR].component;
  (void)brim_work_replay_env(w->shape.row, w->shape.env.bytes, out);  // as when it was opened
  out->steps = w->shape.episode_length;
  out->seed = w->how.seed;
  out->metrics = &w->rows.set;
  out->step = BRIM_N_("iteration");
  snprintf(out->trained, sizeof out->trained,
           r->iteration == 1 ? brim_tr("%lld iteration") : brim_tr("%lld iterations"),
           (long long)r->iteration);
  brim_scene_line *policy = brim_work_replay_fact(out, BRIM_N_("Policy"));
  snprintf(policy->text, sizeof policy->text, brim_tr("%d observations, %lld x %lld, %d actions"),
           w->z.obs, (long long)brim_component_int(c, "depth", 0),
           (long long)brim_component_int(c, "hidden", 0), w->z.act);
  brim_scene_line *trained = brim_work_replay_fact(out, BRIM_N_("Trained"));
  snprintf(trained->text, sizeof trained->text, "%s", out->trained);
  add_actors(w, out);
}

static brim_status put_fields(void *state, json_t *event) {
  const replay *r = (const replay *)state;
  BRIM_TRY(brim_work_replay_task(r->work->shape.row, r->work->shape.env.bytes, event));
  return brim_json_put(event, "iteration", json_integer(r->iteration));
}

// The episodes of an actor, unless they lie there already.
static brim_status run_all(replay *r, size_t actor, int32_t episode) {
  brim_mappo *w = r->work;
  int32_t envs = w->eval.num_envs;
  while (envs <= episode) envs *= 2;
  if (envs != w->eval.num_envs) BRIM_TRY(build(r, envs));
  if (r->actor == (int)actor) return BRIM_OK;
  r->actor = -1;
  BRIM_TRY(w->collect->reset(&w->where, &w->eval, w->eval_block));
  BRIM_TRY(w->collect->begin(&w->where, &w->eval, w->eval_block));
  for (int32_t t = 0; t < w->eval.steps; t++) {
    BRIM_TRY(brim_mappo_eval_step(w, t, rule_of(w, actor)));
  }
  r->actor = (int)actor;
  return BRIM_OK;
}

static brim_scene_end end_of(int8_t end) {
  if (end == BRIM_ENV_TERMINATED) return BRIM_SCENE_ENDED;
  return end == BRIM_ENV_DIVERGED ? BRIM_SCENE_DIVERGED : BRIM_SCENE_LASTED;
}

// The mean over agents, as returns are.
static float reward_of(const brim_mappo *w, int64_t row) {
  const float *reward =
      (const float *)(const void *)(w->eval_block + w->eval_layout.reward) + row * w->rewards;
  double sum = 0;
  for (int32_t i = 0; i < w->rewards; i++) sum += (double)reward[i];
  return (float)(sum / w->rewards);
}

// The state behind the step at `row`: where the episode was truncated, the one that was kept for its value.
static int64_t row_behind(const brim_mappo *w, int64_t row) {
  const int64_t envs = w->eval.num_envs;
  const int32_t *final = (const int32_t *)(const void *)(w->eval_block + w->eval_layout.final);
  if (final[row] < 0) return row + envs;
  return ((int64_t)w->eval.steps + 1 + final[row]) * envs + row % envs;
}

static brim_status record_one(void *state, size_t actor, int32_t episode, int64_t steps,
                              brim_work_recording *out) {
  replay *r = (replay *)state;
  BRIM_TRY(run_all(r, actor, episode));
  const brim_mappo *w = r->work;
  const int64_t envs = w->eval.num_envs;
  const int8_t *ends = (const int8_t *)(const void *)(w->eval_block + w->eval_layout.end);
  const size_t width = (size_t)w->z.frame;
  const int64_t most = steps < w->eval.steps ? steps : w->eval.steps;
  out->states = 0;
  out->end = BRIM_SCENE_LASTED;
  int64_t row = episode;
  for (int64_t t = 0; t <= most && out->states < out->capacity; t++) {
    brim_collect_frame(&w->eval, w->eval_block, row, out->frames + (size_t)out->states * width);
    const int64_t at = t * envs + episode;
    const bool last = t == most || (t > 0 && ends[at - envs] != BRIM_ENV_RUNNING);
    out->reward[out->states++] = last ? 0 : reward_of(w, at);
    if (last) break;
    out->end = end_of(ends[at]);
    row = row_behind(w, at);
  }
  return BRIM_OK;
}

const brim_work_replay_table brim_mappo_replay = {
    .score = "return",
    .open = open_replay,
    .close = close_replay,
    .info = info_of,
    .fields = put_fields,
    .record = record_one,
};
