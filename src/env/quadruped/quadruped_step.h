// One physics step of the quadruped, MuJoCo's Ant: soft contacts solved to convergence, and Euler with
// implicit joint damping, or RK4. A template on top of quadruped_state.h (the macros), _kin.h,
// _contact.h and _solve.h; each form (quadruped_f64.h, _f32.h, _simd.h, _lanes.cuh) includes it. It
// agrees with MuJoCo 2.2.2 and 3.9 to rounding.
#ifdef Q_LEGS

#include "env/quadruped/quadruped_state.h"

#include "env/quadruped/quadruped_kin.h"

#include "env/quadruped/quadruped_contact.h"

#include "env/quadruped/quadruped_solve.h"

// Accelerations as MuJoCo has them: linear the world's, angular the torso's.
typedef struct {
  q_real lin[3], ang[3], joint[Q_LEGS][2];
} Q(accel);

// Working memory of one evaluation.
typedef struct {
  Q(base) base;
  Q(leg) leg[Q_LEGS];
#if Q_LEGS > 1
  Q(mass)
  mass[Q_LEGS];  // a lane with one leg is on a GPU, where computing it again is
                 // cheaper than keeping it
#endif
  q_bits all[Q_LEGS], torso;  // rows (contacts, joint limits) that may become active
  q_mask constrained;         // true where any row of the body may become active
  q_real r[2];                // torque of the torso itself about x and y
} Q(work);

Q_FN void Q(work_of)(const Q(world) * w, Q(state) * s, q_real ctrl[Q_LEGS][2], Q(work) * c,
                     Q(info) * info) {
  Q(base) *b = &c->base;
  Q(base_of)(s, b);
  c->torso = Q_BIT(b->z - Q_C(QUAD_TORSO_RADIUS) < Q_C(w->margin), 15);
  q_bits any = c->torso;
  for (int i = 0; i < Q_LEGS; i++) {
    q_bits touch;
    Q(leg_directions)(s, i, &c->leg[i]);
    c->all[i] = Q(leg_all)(w, s, b, &c->leg[i], i, &touch);
    any |= c->all[i];
    if (info) info->touch[i] = touch;
  }
  if (info) {
    q_mask first = Q_LEG_COS(0) > Q_C(0.5);
    info->touch[0] |= Q_BIT(Q_HAS(c->torso, 15) & first, QUAD_TOUCH_TORSO);
  }
  c->constrained = Q_HAS(Q_UNION(any), -1);
  for (int i = 0; i < Q_LEGS; i++) {
    Q(leg_of)(s, b, i, ctrl[i], Q_C(w->damping), &c->leg[i]);
#if Q_LEGS > 1
    Q(mass_recompute)(&c->leg[i], i, &c->mass[i]);
#endif
  }
  const q_real *o = b->v + 3, slim = Q_C(QUAD_BASE_SPIN - QUAD_BASE_FLAT);
  c->r[0] = -slim * (o[1] * o[2]);
  c->r[1] = slim * (o[0] * o[2]);
}

// The mass of a leg: kept, or computed again into `own`.
Q_FN const Q(mass) * Q(mass_of)(const Q(work) * c, int i, Q(mass) * own) {
#if Q_LEGS > 1
  (void)own;
  return &c->mass[i];
#else
  Q(mass_recompute)(&c->leg[i], i, own);
  return own;
#endif
}

// One solve with the rows of `rows` and `torso` pushing.
Q_FN void Q(newton_solve)(const Q(world) * w, const Q(state) * s, const Q(work) * c,
                          const q_bits rows[Q_LEGS], q_bits torso, q_real x[6],
                          q_real xl[Q_LEGS][2]) {
  Q(system) sys;
  Q(block) k[Q_LEGS];
  Q(system_zero)(&sys);
  for (int i = 0; i < Q_LEGS; i++) {
    const Q(leg) *g = &c->leg[i];
    Q(mass) own;
    const Q(mass) *m = Q(mass_of)(c, i, &own);
    Q(block_of)(m, Q_C(0.0), &k[i]);
    k[i].r1 = g->r1;
    k[i].r2 = g->r2;
    for (int j = 0; j < 6; j++) sys.r[j] = sys.r[j] + g->r[j];
    Q(system_leg)(m, &sys);
    Q(leg_push)(w, s, &c->base, g, i, rows[i], &k[i], &sys);
    Q(block_condense)(&k[i], 1, &sys);
  }
  Q(system_sum)(&sys);
  for (int j = 0; j < 2; j++) sys.r[3 + j] = sys.r[3 + j] + c->r[j];
  if (Q_ANY(Q_HAS(torso, 15))) {
    Q(point) pt;
    q_real m[6], f[3], v[3], vb[6];
    Q(torso_point)(w, &c->base, &pt);
    for (int j = 0; j < 6; j++) vb[j] = Q_C(w->damp_b) * c->base.v[j];
    Q(point_moves)(&pt, vb, NULL, NULL, NULL, 0, v);
    Q(point_weight)(&c->base, &pt, torso, 1, v, m, f);
    Q(point_base)(pt.p, m, f, &sys);
  }
  Q(system_solve)(&sys);
  for (int i = 0; i < 6; i++) x[i] = sys.r[i];
  for (int i = 0; i < Q_LEGS; i++) Q(block_back)(&k[i], 1, x, xl[i]);
}

// Computes the active rows at x. *moved is true where they changed.
Q_FN void Q(newton_rows)(const Q(world) * w, const Q(state) * s, const Q(work) * c,
                         const q_real x[6], q_real xl[Q_LEGS][2], q_bits rows[Q_LEGS],
                         q_bits *torso, q_mask *moved) {
  q_bits changed = *torso & 0;
  q_real y[6], yl[2];
  for (int i = 0; i < 6; i++) y[i] = Q_FMA(Q_C(w->damp_b), c->base.v[i], x[i]);
  for (int i = 0; i < Q_LEGS; i++) {
    yl[0] = Q_FMA(Q_C(w->damp_b), s->qd[i][0], xl[i][0]);
    yl[1] = Q_FMA(Q_C(w->damp_b), s->qd[i][1] * Q_LEG_SIGN(i), xl[i][1]);
    q_bits now = Q(leg_rows)(w, s, &c->base, &c->leg[i], i, c->all[i], y, yl);
    changed |= now ^ rows[i];
    rows[i] = now;
  }
  if (Q_ANY(Q_HAS(c->torso, 15))) {
    Q(point) pt;
    q_real e[3];
    Q(torso_point)(w, &c->base, &pt);
    Q(point_moves)(&pt, y, NULL, NULL, NULL, 0, e);
    q_bits now = Q(point_rows)(&c->base, &pt, e, 1) & c->torso;
    changed |= now ^ *torso;
    *torso = now;
  }
  *moved = Q_HAS(Q_UNION(changed), -1);
}

// Newton with full steps over active sets, starting from all candidate rows. x is the acceleration
// without gravity in the base frame, with the ankles' signs as in Q(leg_directions). Further rounds do
// not change the bits of an element whose set is final, so its neighbours in the vector do not matter.
Q_FN void Q(newton)(const Q(world) * w, const Q(state) * s, const Q(work) * c, q_real x[6],
                    q_real xl[Q_LEGS][2], Q(info) * info) {
  q_bits rows[Q_LEGS], torso = c->torso;
  q_mask moved = c->constrained;
  int round = 0;
  for (int i = 0; i < Q_LEGS; i++) rows[i] = c->all[i];
  for (;;) {
    Q(newton_solve)(w, s, c, rows, torso, x, xl);
    round++;
    if (!Q_ANY(c->constrained)) break;
    Q(newton_rows)(w, s, c, x, xl, rows, &torso, &moved);
    if (round == QUAD_NEWTON_CAP || !Q_ANY(moved)) break;
  }
  if (info) {
    info->newton = round;
    info->open = moved;
    for (int i = 0; i < Q_LEGS; i++) info->rows[i] = rows[i];
  }
}

// Euler's implicit damping: (M + h B) a' = M a, that is a' = a - (M + h B)^-1 h B a; where nothing
// could push, a' comes straight from the forces and x, xl are not read.
Q_FN void Q(damped)(const Q(world) * w, const Q(work) * c, q_real x[6], q_real xl[Q_LEGS][2]) {
  const q_real zero = Q_C(0.0), hb = Q_C(w->h * w->damping);
  Q(system) sys;
  Q(block) k[Q_LEGS];
  Q(system_zero)(&sys);
  for (int i = 0; i < Q_LEGS; i++) {
    const Q(leg) *g = &c->leg[i];
    Q(mass) own;
    const Q(mass) *m = Q(mass_of)(c, i, &own);
    Q(block_of)(m, hb, &k[i]);
    k[i].r1 = Q_SELECT(c->constrained, -hb * xl[i][0], g->r1);
    k[i].r2 = Q_SELECT(c->constrained, -hb * xl[i][1], g->r2);
    for (int j = 0; j < 6; j++) sys.r[j] = sys.r[j] + Q_SELECT(c->constrained, zero, g->r[j]);
    Q(system_leg)(m, &sys);
    Q(block_condense)(&k[i], 0, &sys);
  }
  Q(system_sum)(&sys);
  for (int j = 0; j < 2; j++) {
    sys.r[3 + j] = sys.r[3 + j] + Q_SELECT(c->constrained, zero, c->r[j]);
  }
  Q(system_solve)(&sys);
  for (int i = 0; i < Q_LEGS; i++) {
    q_real d[2];
    Q(block_back)(&k[i], 0, sys.r, d);
    for (int j = 0; j < 2; j++) xl[i][j] = Q_SELECT(c->constrained, xl[i][j], zero) + d[j];
  }
  for (int i = 0; i < 6; i++) x[i] = Q_SELECT(c->constrained, x[i], zero) + sys.r[i];
}

// Accelerations in a state. `euler`: with implicit damping.
Q_FN void Q(forward)(const Q(world) * w, Q(state) * s, q_real ctrl[Q_LEGS][2], int euler,
                     Q(accel) * a, Q(info) * info) {
  Q(work) c;
  q_real x[6], xl[Q_LEGS][2];
  Q(work_of)(w, s, ctrl, &c, info);
  if (!euler || Q_ANY(c.constrained)) {
    Q(newton)(w, s, &c, x, xl, info);
  } else {
    for (int i = 0; i < 6; i++) x[i] = Q_C(0.0);
    for (int i = 0; i < Q_LEGS; i++) xl[i][0] = xl[i][1] = Q_C(0.0);
    if (info) {
      info->newton = 0;
      info->open = c.constrained;
      for (int i = 0; i < Q_LEGS; i++) info->rows[i] = c.all[i];
    }
  }
  if (euler) Q(damped)(w, &c, x, xl);
  const Q(base) *b = &c.base;
  const q_real half = Q_C(QUAD_HALF_SQRT2);
  q_real ex[3], ey[3];
  Q(level_recompute)(b, ex, ey);
  a->lin[0] = Q(dot)(ex, x, Q_C(0.0));
  a->lin[1] = Q(dot)(ey, x, Q_C(0.0));
  a->lin[2] = Q(dot)(b->n, x, Q_C(-w->gravity));
  a->ang[0] = half * (x[3] - x[4]);
  a->ang[1] = half * (x[3] + x[4]);
  a->ang[2] = x[5];
  for (int i = 0; i < Q_LEGS; i++) {
    a->joint[i][0] = xl[i][0];
    a->joint[i][1] = xl[i][1] * Q_LEG_SIGN(i);
  }
}

// quat * exp(h omega / 2)
Q_FN void Q(turn)(const q_real quat[4], const q_real omega[3], q_real h, q_real out[4]) {
  q_real half[3], s, k, one = Q_C(1.0);
  for (int i = 0; i < 3; i++) half[i] = omega[i] * (h * Q_C(0.5));
  q_real t2 = Q(dot)(half, half, Q_C(0.0));
  q_mask big = t2 > Q_C(1e-16);
  q_real inv = Q_RSQRT(Q_SELECT(big, t2, one));
  Q_SINCOS(t2 * inv, &s, &k);
  q_real sinc = Q_SELECT(big, s * inv, one);
  k = Q_SELECT(big, k, one);
  q_real a = quat[0], b = quat[1], c = quat[2], d = quat[3];
  q_real x = half[0] * sinc, y = half[1] * sinc, z = half[2] * sinc;
  out[0] = Q_FMA(a, k, -Q_FMA(b, x, Q_FMA(c, y, d * z)));
  out[1] = Q_FMA(b, k, Q_FMA(a, x, Q_FNMA(d, y, c * z)));
  out[2] = Q_FMA(c, k, Q_FMA(a, y, Q_FNMA(b, z, d * x)));
  out[3] = Q_FMA(d, k, Q_FMA(a, z, Q_FNMA(c, x, b * y)));
}

// Positions of `from`, moved by the velocities of `v` for the time h; velocities are left.
Q_FN void Q(move)(const Q(state) * from, const Q(state) * v, q_real h, Q(state) * to) {
  Q(turn)(from->quat, v->omega, h, to->quat);
  for (int i = 0; i < 3; i++) to->pos[i] = Q_FMA(h, v->vel[i], from->pos[i]);
  for (int i = 0; i < Q_LEGS; i++) {
    for (int j = 0; j < 2; j++) to->q[i][j] = Q_FMA(h, v->qd[i][j], from->q[i][j]);
  }
}

// Velocities of `from` and those gained in the time h.
Q_FN void Q(gain)(const Q(state) * from, const Q(accel) * a, q_real h, Q(state) * to) {
  for (int i = 0; i < 3; i++) {
    to->vel[i] = Q_FMA(h, a->lin[i], from->vel[i]);
    to->omega[i] = Q_FMA(h, a->ang[i], from->omega[i]);
  }
  for (int i = 0; i < Q_LEGS; i++) {
    for (int j = 0; j < 2; j++) to->qd[i][j] = Q_FMA(h, a->joint[i][j], from->qd[i][j]);
  }
}

// The classical tableau; positions and orientation always from the start of the step.
Q_FN void Q(step_rk4)(const Q(world) * w, Q(state) * s, q_real ctrl[Q_LEGS][2], Q(info) * info) {
  const q_real h = Q_C(w->h), zero = Q_C(0.0), third = Q_C(1.0 / 3.0);
  Q(accel) a;
  Q(state) at = *s, mean = *s, sum = *s;  // mean: velocities' mean; sum: velocities at the end
  for (int i = 0; i < 3; i++) mean.vel[i] = mean.omega[i] = zero;
  for (int i = 0; i < Q_LEGS; i++) mean.qd[i][0] = mean.qd[i][1] = zero;
  Q_ROLLED
  for (int stage = 0; stage < 4; stage++) {
    Q(forward)(w, &at, ctrl, 0, &a, stage == 0 ? info : NULL);
    for (int i = 0; i < 4 && stage == 0; i++) s->quat[i] = at.quat[i];  // normalised by now
    q_real part = stage == 0 || stage == 3 ? third * Q_C(0.5) : third;
    for (int i = 0; i < 3; i++) {
      mean.vel[i] = Q_FMA(part, at.vel[i], mean.vel[i]);
      mean.omega[i] = Q_FMA(part, at.omega[i], mean.omega[i]);
    }
    for (int i = 0; i < Q_LEGS; i++) {
      for (int j = 0; j < 2; j++) mean.qd[i][j] = Q_FMA(part, at.qd[i][j], mean.qd[i][j]);
    }
    Q(gain)(&sum, &a, h * part, &sum);
    if (stage == 3) break;
    q_real ahead = stage == 2 ? h : h * Q_C(0.5);
    Q(move)(s, &at, ahead, &at);
    Q(gain)(s, &a, ahead, &at);
  }
  Q(move)(s, &mean, h, &sum);
  *s = sum;
}

Q_FN void Q(step)(const Q(world) * w, Q(state) * s, q_real ctrl[Q_LEGS][2], Q(info) * info) {
  if (w->rk4) {
    Q(step_rk4)(w, s, ctrl, info);
    return;
  }
  Q(accel) a;
  Q(forward)(w, s, ctrl, 1, &a, info);
  Q(gain)(s, &a, Q_C(w->h), s);
  Q(move)(s, s, Q_C(w->h), s);
}

Q_FN void Q(substep)(const brim_quadruped *env, Q(state) * s, q_real ctrl[Q_LEGS][2],
                     Q(info) * info) {
  Q(world) w = Q(world_make)((q_scalar)env->timestep, (q_scalar)env->margin, env->rk4);
  Q(step)(&w, s, ctrl, info);
}

#undef Q_FNMA
#undef QUAD_M22
#undef QUAD_POINTS
#undef Q_ROLLED
#undef QUAD_ROW_LIMIT1
#undef QUAD_ROW_LIMIT2

#endif  // Q_LEGS
