// The CPU's loop over the steps of environments. It steps as many environments at once as a vector has
// lanes; they do not influence each other. A template like quadruped_task.h, for the form with four legs.
#if defined(Q_LEGS) && Q_LEGS == 4
#include "env/quadruped/quadruped_task.h"

enum { Q(WIDTH) = sizeof(q_real) / sizeof(q_scalar) };

typedef struct Q(batch) {
  Q(task) scene;
  Q(state) state;
  brim_quadruped_track track[Q(WIDTH)];
  // If w->filter: sums and sums of squares of seen.apart, for each observation and lane.
  double sum[BRIM_QUADRUPED_OBS][Q(WIDTH)], square[BRIM_QUADRUPED_OBS][Q(WIDTH)];
  // With `once`: the lane's only episode is over. It steps on, but nothing of it counts.
  int idle[Q(WIDTH)];
  int count;  // lanes with an environment of their own; the others repeat the last one
  // Lanes below `count` whose first episode has not ended; stays `count` in a rollout without `once`. At 0 the
  // loop stops.
  int running;
} Q(batch);

Q_FN void Q(add_observations)(Q(batch) * b, const Q(seen) * seen) {
  for (int j = 0; j < BRIM_QUADRUPED_OBS; j++) {
    for (int l = 0; l < Q(WIDTH); l++) {
      // Idle lanes may hold anything; a zero leaves the sums as they are.
      double d = b->idle[l] ? 0.0 : (double)Q_GET(seen->apart[j], l);
      b->sum[j][l] += d;
      b->square[j][l] += d * d;
    }
  }
}

// Appends the state of lane 0, and the push before its step, to the trace.
Q_FN void Q(record)(brim_rollout_frames *t, const Q(state) * s, brim_env_pair push) {
  float *frame = brim_rollout_frame(t, BRIM_QUADRUPED_FRAME), qvel[14];
  if (!frame) return;
  Q(store)(s, 0, frame, qvel);
  frame[BRIM_QUADRUPED_QPOS] = push.a;
  frame[BRIM_QUADRUPED_QPOS + 1] = push.b;
  frame[BRIM_QUADRUPED_QPOS + 2] = 0.0f;
}

Q_FN void Q(end)(const brim_rollout_work *w, Q(batch) * b, int first, int lane) {
  brim_quadruped_track *t = &b->track[lane];
  if (w->episodes && lane < b->count && t->episode == 0) {
    brim_rollout_episode *e = &w->episodes[first + lane];
    e->reward = (float)t->reward;
    e->length = t->step;
    e->outcome = t->outcome;
    w->figures[first + lane] =
        t->outcome == BRIM_ENV_DIVERGED ? NAN : Q_GET(b->state.pos[0], lane) - t->start_x;
    b->running--;
    if (w->trace && lane == 0 && t->outcome != BRIM_ENV_DIVERGED) {
      brim_env_pair none = {0.0f, 0.0f};
      Q(record)(w->trace, &b->state, none);
    }
  }
  if (w->once) {
    b->idle[lane] = 1;
    b->running -= lane < b->count;
  }
  t->episode++;
  Q(begin)(&b->scene, &b->state, t, lane);
}

Q_FN void Q(advance)(const brim_rollout_work *w, Q(batch) * b, int first) {
  for (int l = 0; l < Q(WIDTH); l++) {
    brim_env_pair push = Q(push)(&b->scene, &b->state, &b->track[l], l);
    if (w->trace && l == 0) Q(record)(w->trace, &b->state, push);
  }
  Q(seen) seen;
  q_real ctrl[4][2];
  Q(observe)(&b->scene, &b->state, &seen);
  if (w->filter) Q(add_observations)(b, &seen);
  Q(act)(&b->scene, &seen, ctrl);
  q_real from = b->state.pos[0];
  for (int k = 0; k < b->scene.env->frame_skip; k++) {
    Q(step)(&b->scene.world, &b->state, ctrl, NULL);
  }
  Q(outcome) o = Q(measure)(&b->scene, &b->state, ctrl, from);
  for (int l = 0; l < Q(WIDTH); l++) {
    if (b->idle[l]) continue;
    float reward = Q_GET(o.reward, l);
    int diverged = Q_GET(o.diverged, l) > 0.0f;
    if (w->trace && l == 0 && w->trace->now && !diverged) *w->trace->now = reward;
    if (brim_quadruped_after(&b->track[l], reward, Q_GET(o.fell, l) > 0.0f, diverged, w->steps)) {
      Q(end)(w, b, first, l);
    }
  }
}

Q_FN void Q(add_up)(const Q(batch) * b, int filter, brim_rollout_found *found) {
  double *stats = brim_rollout_found_stats(found);
  for (int l = 0; l < b->count; l++) {
    const brim_quadruped_track *t = &b->track[l];
    found->reward += t->reward;
    found->reward_sq += t->reward * t->reward;
    found->steps += t->steps;
    found->terminated += t->terminated;
    found->truncated += t->truncated;
    found->diverged += t->diverged;
    for (int j = 0; filter && j < BRIM_QUADRUPED_OBS; j++) {
      stats[j] += b->sum[j][l];
      stats[BRIM_QUADRUPED_OBS + j] += b->square[j][l];
    }
  }
}

Q_FN void Q(run)(const brim_rollout_work *w) {
  const brim_quadruped env = brim_quadruped_of(w->env);
  if (w->found) memset(w->found, 0, brim_rollout_found_bytes(BRIM_QUADRUPED_OBS));
  for (int first = 0; first < w->envs; first += Q(WIDTH)) {
    Q(batch)
    b = {.scene = {.env = &env,
                   .world = Q(world_make)(env.timestep, env.margin, env.rk4),
                   .hidden = w->hidden,
                   .policy = w->policy,
                   .normal = w->normal}};
    b.count = w->envs - first < Q(WIDTH) ? w->envs - first : Q(WIDTH);
    b.running = b.count;
    for (int l = 0; l < Q(WIDTH); l++) {
      brim_env_ids ids = w->ids;
      ids.env += (uint32_t)(first + (l < b.count ? l : b.count - 1));
      b.track[l] = brim_quadruped_track_of(ids);
      Q(begin)(&b.scene, &b.state, &b.track[l], l);
    }
    for (int step = 0; step < w->steps && b.running > 0; step++) Q(advance)(w, &b, first);
    if (w->found) Q(add_up)(&b, w->filter, w->found);
  }
}

#endif
