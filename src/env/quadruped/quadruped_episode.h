// Episodes of the quadruped, one environment at a time in plain floats: starts, pushes, ends. docs/quadruped.md
// explains the terms. quadruped_task.h has the arithmetic of steps, for vectors of environments or a leg per lane.
#ifndef BRIM_QUADRUPED_EPISODE_H_
#define BRIM_QUADRUPED_EPISODE_H_

#include "env/quadruped/quadruped.h"
#include "rl/rl_rollout_plan.h"

// Rewards; docs/quadruped.md has them as formulas.
#define BRIM_STAND_HEIGHT 0.55f
#define BRIM_STAND_HIGH_COST 4.0f      // per m^2 of distance from that height
#define BRIM_STAND_TILT_COST 1.0f      // times 1 - cosine of the tilt
#define BRIM_STAND_SPEED_COST 0.02f    // per (m/s)^2
#define BRIM_STAND_TURN_COST 0.005f    // per (rad/s)^2
#define BRIM_STAND_CONTROL_COST 0.05f  // times the sum of squares of actions
#define BRIM_WALK_CONTROL_COST 0.1f
#define BRIM_FALL_COST 50.0f   // paid once, when an episode is terminated
#define BRIM_HEALTHY_LOW 0.2f  // lowest height of the torso's centre, metres
#define BRIM_HEALTHY_HIGH 1.0f
#define BRIM_STAND_UPRIGHT 0.3f  // least cosine between the torso's axis and up

// Row lengths of the quadruped's packed policies (rl_rollout_plan.h), as constants.
enum {
  BRIM_QUADRUPED_LINEAR_ROW = 36,
  BRIM_QUADRUPED_HIDDEN_BIAS = BRIM_QUADRUPED_OBS,
  BRIM_QUADRUPED_HIDDEN_OUT = 32,
  BRIM_QUADRUPED_HIDDEN_ROW = 40
};

BRIM_HD brim_rollout_net brim_quadruped_net(int32_t hidden) {
  brim_rollout_net n;
  n.obs = BRIM_QUADRUPED_OBS;
  n.act = BRIM_QUADRUPED_ACT;
  n.hidden = hidden;
  return n;
}

// The progress of an environment in its rollout.
typedef struct brim_quadruped_track {
  brim_env_ids ids;
  int32_t step;       // step of the episode
  int32_t episode;    // number of the episode in the rollout
  int32_t push;       // pushes of the episode so far
  int32_t next_push;  // step before which the next push comes; -1 = never
  int32_t steps, terminated, truncated, diverged;
  int32_t outcome;  // end of an evaluation's episode: brim_env_end
  float start_x;
  double reward;  // sum over all steps
} brim_quadruped_track;

typedef struct brim_quadruped_base {
  float pos[3], quat[4], vel[3], omega[3];
} brim_quadruped_base;

// Draws a start: draws 0 and 1 give the torso's place, 2 and 3 its velocity, 4 + leg the joints of a leg.
BRIM_HD void brim_quadruped_start(const brim_quadruped *e, const brim_quadruped_track *t,
                                  brim_quadruped_base *out) {
  const float far = e->reset_pos, fast = e->reset_vel;
  brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 0);
  out->pos[0] = far * brim_env_signed(r.v[0]);
  out->pos[1] = far * brim_env_signed(r.v[1]);
  // only upwards, since the feet already stand on the floor
  out->pos[2] = BRIM_STAND_HEIGHT + far * brim_rng_uniform(r.v[2]);
  out->quat[0] = 1.0f + far * brim_env_signed(r.v[3]);
  r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 1);
  for (int i = 0; i < 3; i++) out->quat[1 + i] = far * brim_env_signed(r.v[i]);
  float square = 0.0f;
  for (int i = 0; i < 4; i++) square += out->quat[i] * out->quat[i];
  float scale = 1.0f / sqrtf(square > 1e-12f ? square : 1.0f);
  for (int i = 0; i < 4; i++) out->quat[i] *= scale;
  r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 2);
  brim_env_pair a = brim_env_normal(r.v[0], r.v[1]), b = brim_env_normal(r.v[2], r.v[3]);
  r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 3);
  brim_env_pair c = brim_env_normal(r.v[0], r.v[1]);
  out->vel[0] = fast * a.a;
  out->vel[1] = fast * a.b;
  out->vel[2] = fast * b.a;
  out->omega[0] = fast * b.b;
  out->omega[1] = fast * c.a;
  out->omega[2] = fast * c.b;
}

BRIM_HD void brim_quadruped_start_leg(const brim_quadruped *e, const brim_quadruped_track *t,
                                      int leg, float q[2], float qd[2]) {
  brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 4 + leg);
  q[0] = e->reset_pos * brim_env_signed(r.v[0]);
  q[1] = (leg == 0 || leg == 3 ? 1.0f : -1.0f) + e->reset_pos * brim_env_signed(r.v[1]);
  brim_env_pair v = brim_env_normal(r.v[2], r.v[3]);
  qd[0] = e->reset_vel * v.a;
  qd[1] = e->reset_vel * v.b;
}

// Returns the step of push n: 1 to 2 * push_every - 1 steps after the last push or the start, all equally likely.
BRIM_HD int32_t brim_quadruped_push_in(const brim_quadruped *e, const brim_quadruped_track *t) {
  if (!(e->push_speed > 0.0f)) return -1;
  brim_philox4 r = brim_env_draw(t->ids.event_key, &t->ids, t->episode, t->push);
  return t->step + 1 + (int32_t)brim_rng_below(r.v[0], r.v[3], 2 * (uint64_t)e->push_every - 1);
}

// Adds a push to the torso's velocity along x and y, and draws the time of the next one.
BRIM_HD brim_env_pair brim_quadruped_push(const brim_quadruped *e, brim_quadruped_track *t) {
  brim_philox4 r = brim_env_draw(t->ids.event_key, &t->ids, t->episode, t->push);
  brim_env_pair v = brim_env_turn(r.v[2]);
  float speed = e->push_speed * brim_rng_uniform(r.v[1]);
  v.a *= speed;
  v.b *= speed;
  t->push++;
  t->next_push = brim_quadruped_push_in(e, t);
  return v;
}

BRIM_HD void brim_quadruped_begin(const brim_quadruped *e, brim_quadruped_track *t) {
  t->step = 0;
  t->push = 0;
  t->next_push = brim_quadruped_push_in(e, t);
}

// Counts a step. Returns true if the episode is over.
BRIM_HD int brim_quadruped_after(brim_quadruped_track *t, float reward, int fell, int diverged,
                                 int32_t length) {
  t->steps++;
  t->step++;
  // a diverged state costs as much as a fall and earns nothing
  t->reward += diverged ? -(double)BRIM_FALL_COST : (double)reward;
  if (diverged) {
    t->diverged++;
    t->outcome = BRIM_ENV_DIVERGED;
  } else if (fell) {
    t->terminated++;
    t->outcome = BRIM_ENV_TERMINATED;
  } else if (t->step >= length) {
    t->truncated++;
    t->outcome = BRIM_ENV_TRUNCATED;
  } else {
    return 0;
  }
  return 1;
}

BRIM_HD brim_quadruped_track brim_quadruped_track_of(brim_env_ids ids) {
  brim_quadruped_track t;
  t.ids = ids;
  t.step = t.episode = t.push = 0;
  t.next_push = -1;
  t.steps = t.terminated = t.truncated = t.diverged = 0;
  t.outcome = BRIM_ENV_RUNNING;
  t.start_x = 0.0f;
  t.reward = 0.0;
  return t;
}

#endif  // BRIM_QUADRUPED_EPISODE_H_
