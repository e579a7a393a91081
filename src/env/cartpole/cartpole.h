// CartPole-v1 of Gymnasium: a pole on a cart that is pushed to the left or to the right. Barto, Sutton and
// Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems", 1983; constants,
// Euler's integration and bounds are Gymnasium's. Steps are computed in double precision, observations are single
// precision. Every machine rounds the operations used here alike (no libm within the bounds), so CPU and CUDA give
// the same bits.
#ifndef BRIM_CARTPOLE_H_
#define BRIM_CARTPOLE_H_

#include "env/env_step.h"

#ifdef __cplusplus
extern "C" {
#endif
// The row of env: cartpole(...).
extern const brim_env_row brim_cartpole_row;
#ifdef __cplusplus
}
#endif

#define BRIM_CARTPOLE_GRAVITY 9.8  // m/s^2
#define BRIM_CARTPOLE_CART 1.0     // kg, mass of the cart
#define BRIM_CARTPOLE_POLE 0.1     // kg, mass of the pole
#define BRIM_CARTPOLE_HALF 0.5     // m, half the pole's length
#define BRIM_CARTPOLE_FORCE 10.0   // N
#define BRIM_CARTPOLE_STEP 0.02    // s
#define BRIM_CARTPOLE_FAR 2.4      // m from the middle; beyond it an episode is terminated
// rad from upright; beyond it an episode is terminated
#define BRIM_CARTPOLE_TILT (12.0 * 2.0 * 3.141592653589793 / 360.0)
#define BRIM_CARTPOLE_LENGTH 500  // steps after which an episode is truncated

enum {
  brim_cartpole_OBS = 4,  // x, its speed, the pole's angle, its angular speed
  brim_cartpole_ACT = 2,  // push to the left, to the right
  brim_cartpole_AGENTS = 1,
  brim_cartpole_FRAME = 2,  // x, angle
  brim_cartpole_FIGURES = 0
};

typedef struct brim_cartpole_values {
  float reset;  // the numbers of an episode's first state are uniform in [-reset, reset)
} brim_cartpole_values;

typedef struct brim_cartpole_state {
  double x, speed;     // m, m/s
  double angle, turn;  // rad from upright, rad/s
} brim_cartpole_state;

typedef int32_t brim_cartpole_action;

BRIM_HD brim_env_sizes brim_cartpole_sizes(const brim_cartpole_values *v) {
  (void)v;
  brim_env_sizes z;
  z.kind = BRIM_ENV_DISCRETE;
  z.agents = brim_cartpole_AGENTS;
  z.obs = brim_cartpole_OBS;
  z.act = brim_cartpole_ACT;
  z.global = 0;
  z.frame = brim_cartpole_FRAME;
  z.figures = brim_cartpole_FIGURES;
  z.lanes = 1;
  z.rewards = 1;
  return z;
}

// Uniform in [-1, 1), with 53 bits.
BRIM_HD double brim_cartpole_signed(uint32_t high, uint32_t low) {
  const uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
  return (double)bits * (1.0 / 4503599627370496.0) - 1.0;
}

BRIM_HD void brim_cartpole_reset(const brim_cartpole_values *v, const brim_env_track *t,
                                 brim_cartpole_state *s) {
  const brim_philox4 a = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 0);
  const brim_philox4 b = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 1);
  const double range = (double)v->reset;
  s->x = range * brim_cartpole_signed(a.v[0], a.v[1]);
  s->speed = range * brim_cartpole_signed(a.v[2], a.v[3]);
  s->angle = range * brim_cartpole_signed(b.v[0], b.v[1]);
  s->turn = range * brim_cartpole_signed(b.v[2], b.v[3]);
}

BRIM_HD int32_t brim_cartpole_stored(const brim_cartpole_values *v) {
  (void)v;
  return (int32_t)sizeof(brim_cartpole_state);
}

BRIM_HD float brim_cartpole_sees(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                 int32_t agent, int32_t index) {
  (void)v;
  (void)agent;
  const double low = index == 0 ? s->x : s->speed, high = index == 2 ? s->angle : s->turn;
  return (float)(index < 2 ? low : high);
}

BRIM_HD int32_t brim_cartpole_flags(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                    int32_t agent, uint32_t *out) {
  (void)v;
  (void)s;
  (void)agent;
  (void)out;
  return 0;
}

BRIM_HD void brim_cartpole_observe(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                   int32_t agent, float *out) {
  for (int32_t i = 0; i < brim_cartpole_OBS; i++) out[i] = brim_cartpole_sees(v, s, agent, i);
}

BRIM_HD uint64_t brim_cartpole_mask(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                    int32_t agent) {
  (void)v;
  (void)s;
  (void)agent;
  return 3;
}

// Sine and cosine by Taylor's series, accurate to a rounding or two up to an eighth of a turn. Beyond that, which
// no episode reaches, it calls the library.
BRIM_HD void brim_cartpole_sincos(double a, double *sine, double *cosine) {
  if (!(a >= -0.7853981633974483 && a <= 0.7853981633974483)) {
    *sine = sin(a);
    *cosine = cos(a);
    return;
  }
  const double z = a * a;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  *sine = a + a * (z * s);
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  *cosine = 1.0 + z * c;
}

// Dynamics: one Euler step with a push to the left (0) or to the right (1). The equations are those of
// Gymnasium's CartPole: moment is its polemass_length, push its temp, turning its thetaacc, moving its xacc.
BRIM_HD void brim_cartpole_move(brim_cartpole_state *s, int32_t right) {
  const double total = BRIM_CARTPOLE_CART + BRIM_CARTPOLE_POLE;
  const double moment = BRIM_CARTPOLE_POLE * BRIM_CARTPOLE_HALF;
  const double force = right ? BRIM_CARTPOLE_FORCE : -BRIM_CARTPOLE_FORCE;
  double sine, cosine;
  brim_cartpole_sincos(s->angle, &sine, &cosine);
  const double push = (force + moment * (s->turn * s->turn) * sine) / total;
  const double turning =
      (BRIM_CARTPOLE_GRAVITY * sine - cosine * push) /
      (BRIM_CARTPOLE_HALF * (4.0 / 3.0 - BRIM_CARTPOLE_POLE * (cosine * cosine) / total));
  const double moving = push - moment * turning * cosine / total;
  s->x += BRIM_CARTPOLE_STEP * s->speed;
  s->speed += BRIM_CARTPOLE_STEP * moving;
  s->angle += BRIM_CARTPOLE_STEP * s->turn;
  s->turn += BRIM_CARTPOLE_STEP * turning;
}

BRIM_HD brim_env_outcome brim_cartpole_step(const brim_cartpole_values *v, const brim_env_track *t,
                                            brim_cartpole_state *s,
                                            const brim_cartpole_action *action) {
  (void)v;
  (void)t;
  brim_cartpole_move(s, action[0]);
  brim_env_outcome o;
  o.reward = 1.0f;  // the last step of an episode has it too
  const int within = s->x >= -BRIM_CARTPOLE_FAR && s->x <= BRIM_CARTPOLE_FAR &&
                     s->angle >= -BRIM_CARTPOLE_TILT && s->angle <= BRIM_CARTPOLE_TILT;
  o.end = within ? BRIM_ENV_RUNNING : BRIM_ENV_TERMINATED;
  return o;
}

BRIM_HD float brim_cartpole_share(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                  int32_t agent) {
  (void)v;
  (void)s;
  (void)agent;
  return 1.0f;
}

// The cart-pole has no baselines of its own.
BRIM_HD int32_t brim_cartpole_rule(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                   int32_t agent, int32_t rule, uint32_t bits) {
  (void)v;
  (void)s;
  (void)agent;
  (void)rule;
  (void)bits;
  return 0;
}

BRIM_HD float brim_cartpole_global_sees(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                        int32_t index) {
  return brim_cartpole_sees(v, s, 0, index);
}

BRIM_HD void brim_cartpole_global(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                  float *out) {
  brim_cartpole_observe(v, s, 0, out);
}

BRIM_HD void brim_cartpole_frame(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                 float *out) {
  (void)v;
  out[0] = (float)s->x;
  out[1] = (float)s->angle;
}

BRIM_HD void brim_cartpole_figures(const brim_cartpole_values *v, const brim_cartpole_state *s,
                                   float *out) {
  (void)v;
  (void)s;
  (void)out;
}

// The cart-pole has no figures.
BRIM_HD void brim_cartpole_count(const brim_cartpole_values *v, int32_t steps,
                                 const brim_rollout_episode *episode, const float *raw,
                                 double (*sums)[2]) {
  (void)v;
  (void)steps;
  (void)episode;
  (void)raw;
  (void)sums;
}

#endif  // BRIM_CARTPOLE_H_
