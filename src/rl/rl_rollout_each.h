// The CPU's loop over the environments of a part, a template over the header of an environment (env_step.h).
// An environment's file includes its header, defines BRIM_ENV(x) and includes this; it gets brim_NAME_run for
// its row. Without BRIM_ENV this is empty.
#ifdef BRIM_ENV
#include <string.h>

#include "rl/rl_rollout_step.h"

static void BRIM_ENV(record)(brim_rollout_frames *trace, const BRIM_ENV(values) * values,
                             const BRIM_ENV(state) * s) {
  const int32_t size = BRIM_ENV(sizes)(values).frame;
  float *frame = brim_rollout_frame(trace, size);
  if (frame && size) BRIM_ENV(frame)(values, s, frame);
}

static void BRIM_ENV(note)(const brim_rollout_work *w, const brim_env_track *t,
                           const BRIM_ENV(values) * values, const BRIM_ENV(state) * s, int32_t e) {
  const int32_t figures = BRIM_ENV(sizes)(values).figures;
  w->episodes[e] =
      (brim_rollout_episode){.reward = (float)t->reward, .length = t->step, .outcome = t->outcome};
  if (figures) BRIM_ENV(figures)(values, s, w->figures + (int64_t)e * figures);
  if (w->trace && e == 0 && t->outcome != BRIM_ENV_DIVERGED) {
    BRIM_ENV(record)(w->trace, values, s);
  }
}

// Runs environment e to its end. Statistics of observations go to `stats`, unless NULL.
static void BRIM_ENV(run_one)(const brim_rollout_work *w, const BRIM_ENV(scene) * c, int32_t e,
                              double *stats, brim_env_track *t) {
  BRIM_ENV(state) s;
  brim_env_ids ids = w->ids;
  ids.env += (uint32_t)e;
  *t = brim_env_track_of(ids);
  BRIM_ENV(reset)(c->values, t, &s);
  brim_rollout_frames *trace = e == 0 ? w->trace : NULL;
  for (int32_t step = 0; step < w->steps; step++) {
    if (trace) BRIM_ENV(record)(trace, c->values, &s);
    const double before = t->reward;
    const brim_env_outcome o = BRIM_ENV(advance)(c, t, &s, stats, 1);
    const int over = brim_env_after(t, o, c->length);
    if (trace && trace->now) *trace->now = (float)(t->reward - before);
    if (!over) continue;
    if (w->episodes) BRIM_ENV(note)(w, t, c->values, &s, e);
    if (w->episodes || w->once) return;
    t->episode++;
    t->step = 0;
    BRIM_ENV(reset)(c->values, t, &s);
  }
}

static void BRIM_ENV(run)(const brim_rollout_work *w) {
  BRIM_ENV(values) values;
  memcpy(&values, w->env, sizeof values);
  const BRIM_ENV(scene) scene = {&values, w->policy, w->normal, w->hidden, w->steps};
  const int32_t obs = BRIM_ENV(sizes)(&values).obs;
  if (w->found) memset(w->found, 0, brim_rollout_found_bytes(obs));
  for (int32_t e = 0; e < w->envs; e++) {
    double stats[2 * BRIM_ENV(OBS)] = {0};
    brim_env_track t;
    BRIM_ENV(run_one)(w, &scene, e, w->found && w->filter ? stats : NULL, &t);
    brim_rollout_found *f = w->found;
    if (!f) continue;
    f->reward += t.reward;
    f->reward_sq += t.reward * t.reward;
    f->steps += t.steps;
    f->terminated += t.terminated;
    f->truncated += t.truncated;
    f->diverged += t.diverged;
    for (int32_t j = 0; j < 2 * obs; j++) brim_rollout_found_stats(f)[j] += stats[j];
  }
}

#endif  // BRIM_ENV
