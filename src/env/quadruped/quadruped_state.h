// Types and packing of the quadruped, a template: a form (quadruped_f64.h, _f32.h, _simd.h, _lanes.cuh) defines
// the macros and includes quadruped_step.h, which includes this file. Without a form it is empty.
//   Q(name)      the form's name for `name`
//   Q_FN         how a function is declared
//   q_scalar     float or double
//   q_real       a q_scalar, or a vector across environments
//   q_mask       a truth value per element
//   q_bits       31 bits per element
//   Q_LEGS       legs held here: 4, or 1 where each lane holds one
//   Q_LEG(i)     number of leg i of this lane among the four legs
//   Q_LEG_COS(i), Q_LEG_SIN(i), Q_LEG_SIGN(i)  the leg's direction, and the sign of its ankle's bend
//   Q_SET(x, lane, value), Q_GET(x, lane)      one element of a vector; a scalar has only one
//   Q_C(c)       a constant
//   Q_FMA, Q_RCP, Q_RSQRT, Q_SINCOS, Q_ABS, Q_MIN, Q_MAX
//   Q_SELECT(mask, a, b), Q_BIT(mask, bit), Q_HAS(bits, bit)
//   Q_ANY(mask)  true if any element that runs together (of the vector, or the warp) is true
//   Q_SUM(x), Q_UNION(bits)  over the lanes of an environment; x itself if a lane holds all legs
//   Q_FRESH(x)   hides x from the compiler, so that values made from x are computed again
#ifdef Q_LEGS

// The state. Names are MuJoCo's; vel is in the world's frame, omega in the torso's own frame.
typedef struct {
  q_real pos[3], quat[4], vel[3], omega[3];
  q_real q[Q_LEGS][2], qd[Q_LEGS][2];  // hip, ankle of each leg
} Q(state);

// Contacts and solves of a substep, in its first evaluation (RK4). For tests, and for configs that ask for them.
typedef struct {
  q_bits touch[Q_LEGS];  // QUAD_TOUCH_*: points nearer to the floor than the margin
  q_bits rows[Q_LEGS];   // constraint rows that push, in the solver's own order
  q_mask open;           // the active set was still changing at QUAD_NEWTON_CAP
  int newton;            // solves, the largest number over the elements
} Q(info);

// An environment's settings in the form that the step uses.
typedef struct {
  q_scalar h;       // timestep
  q_scalar margin;  // margin of contacts
  q_scalar damp_b;  // reference acceleration: -damp_b * velocity - stiff_k * imp * distance
  q_scalar stiff_k;
  q_scalar gravity;
  q_scalar damping;  // damping of joints
  int rk4;
} Q(world);

// Reads MuJoCo's order, 7 + 8 positions and 6 + 8 velocities (torso first), into element `lane`.
Q_FN void Q(load)(Q(state) * s, int lane, const q_scalar *qpos, const q_scalar *qvel) {
  (void)lane;
  for (int i = 0; i < 3; i++) {
    Q_SET(s->pos[i], lane, qpos[i]);
    Q_SET(s->vel[i], lane, qvel[i]);
    Q_SET(s->omega[i], lane, qvel[3 + i]);
  }
  for (int i = 0; i < 4; i++) Q_SET(s->quat[i], lane, qpos[3 + i]);
  for (int i = 0; i < Q_LEGS; i++) {
    for (int j = 0; j < 2; j++) {
      Q_SET(s->q[i][j], lane, qpos[7 + 2 * Q_LEG(i) + j]);
      Q_SET(s->qd[i][j], lane, qvel[6 + 2 * Q_LEG(i) + j]);
    }
  }
}

// Writes element `lane` in MuJoCo's order. If a lane holds one leg, it writes that leg's numbers and the torso's.
Q_FN void Q(store)(const Q(state) * s, int lane, q_scalar *qpos, q_scalar *qvel) {
  (void)lane;
  for (int i = 0; i < 3; i++) {
    qpos[i] = Q_GET(s->pos[i], lane);
    qvel[i] = Q_GET(s->vel[i], lane);
    qvel[3 + i] = Q_GET(s->omega[i], lane);
  }
  for (int i = 0; i < 4; i++) qpos[3 + i] = Q_GET(s->quat[i], lane);
  for (int i = 0; i < Q_LEGS; i++) {
    for (int j = 0; j < 2; j++) {
      qpos[7 + 2 * Q_LEG(i) + j] = Q_GET(s->q[i][j], lane);
      qvel[6 + 2 * Q_LEG(i) + j] = Q_GET(s->qd[i][j], lane);
    }
  }
}

// Converts actions from the actuators' order (hip 4, ankle 4, hip 1, ankle 1, ...) to hip and ankle per leg.
Q_FN void Q(load_ctrl)(q_real ctrl[Q_LEGS][2], int lane, const q_scalar *act) {
  (void)lane;
  for (int i = 0; i < Q_LEGS; i++) {
    Q_SET(ctrl[i][0], lane, act[2 * ((Q_LEG(i) + 1) & 3)]);
    Q_SET(ctrl[i][1], lane, act[2 * ((Q_LEG(i) + 1) & 3) + 1]);
  }
}

Q_FN Q(world) Q(world_make)(q_scalar timestep, q_scalar margin, int rk4) {
  Q(world) w;
  q_scalar tc =
      2 * timestep > (q_scalar)QUAD_SOLREF_TIME ? 2 * timestep : (q_scalar)QUAD_SOLREF_TIME;
  q_scalar time = (q_scalar)QUAD_SOLIMP_MAX * tc;
  w.h = timestep;
  w.margin = margin;
  w.damp_b = 2 / time;
  w.stiff_k = 1 / (time * time);
  w.gravity = (q_scalar)QUAD_GRAVITY;
  w.damping = (q_scalar)QUAD_DAMPING;
  w.rk4 = rk4;
  return w;
}

// Makes one physics step. ctrl: hip and ankle of each leg, not changed, clamped to [-1, 1]. info may be NULL. If
// lanes share an environment, or a warp runs together, all its lanes must call this together.
Q_FN void Q(substep)(const brim_quadruped *env, Q(state) * s, q_real ctrl[Q_LEGS][2],
                     Q(info) * info);
// Makes the same step with settings that Q(world_make) computed once, before a loop.
Q_FN void Q(step)(const Q(world) * world, Q(state) * s, q_real ctrl[Q_LEGS][2], Q(info) * info);

#endif  // Q_LEGS
