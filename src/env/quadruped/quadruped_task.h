// Steps of the environment around the physics: observation, policy, reward, ends. A template over the forms of
// quadruped_step.h, which is included first (a vector of environments with all legs, or one leg of an environment
// per lane). It has no include guard: it is included once for each form, and is empty without a form.
#ifdef Q_LEGS

// Access to the numbers of a leg by its lane, and sums over legs.
#if Q_LEGS == 1
#define QT_OF_LEG(x, leg) __shfl_sync(0xffffffffu, (x)[0], leg, 4)
#define QT_SUM(x) Q_SUM((x)[0])
#define QT_SPLAT(x) (x)
// Loads four weights at once: the lanes of one leg read the same address.
#define QT_FOUR(name, from)                        \
  const float4 name##_4 = *(const float4 *)(from); \
  const float name[4] = {name##_4.x, name##_4.y, name##_4.z, name##_4.w}
#else
#define QT_OF_LEG(x, leg) ((x)[leg])
#define QT_SUM(x) (((x)[0] + (x)[1]) + ((x)[2] + (x)[3]))
#define QT_SPLAT(x) ((q_real){0} + (x))
#define QT_FOUR(name, from) const float *name = (from)
#endif

// The values that all environments of a part share.
typedef struct Q(task) {
  const brim_quadruped *env;
  Q(world) world;
  int32_t hidden;
  const float *policy;  // packed; NULL = all actions are 0
  const float *normal;
} Q(task);

typedef struct Q(seen) {
  q_real apart[BRIM_QUADRUPED_OBS];  // observation minus the mean that policies use
} Q(seen);

// Observes qpos, then qvel, minus the mean.
Q_FN void Q(observe)(const Q(task) * c, const Q(state) * s, Q(seen) * out) {
  q_real hip[Q_LEGS], ankle[Q_LEGS], hip_v[Q_LEGS], ankle_v[Q_LEGS];
  for (int i = 0; i < Q_LEGS; i++) {
    hip[i] = s->q[i][0];
    ankle[i] = s->q[i][1];
    hip_v[i] = s->qd[i][0];
    ankle_v[i] = s->qd[i][1];
  }
  q_real *o = out->apart;
  for (int i = 0; i < 3; i++) {
    o[i] = s->pos[i];
    o[15 + i] = s->vel[i];
    o[18 + i] = s->omega[i];
  }
  if (c->env->task == BRIM_QUADRUPED_WALK) o[0] = o[1] = QT_SPLAT(0.0f);
  for (int i = 0; i < 4; i++) {
    o[3 + i] = s->quat[i];
    o[7 + 2 * i] = QT_OF_LEG(hip, i);
    o[8 + 2 * i] = QT_OF_LEG(ankle, i);
    o[21 + 2 * i] = QT_OF_LEG(hip_v, i);
    o[22 + 2 * i] = QT_OF_LEG(ankle_v, i);
  }
  for (int j = 0; j < BRIM_QUADRUPED_OBS; j++) o[j] = o[j] - c->normal[j];
}

Q_FN q_real Q(clamp)(q_real x) {
  // Compare instead of taking minima, so that NaN stays NaN.
  x = Q_SELECT(x < -1.0f, QT_SPLAT(-1.0f), x);
  return Q_SELECT(x > 1.0f, QT_SPLAT(1.0f), x);
}

// Hyperbolic tangent, accurate to 3e-7: Eigen's rational function.
Q_FN q_real Q(tanh)(q_real x) {
  x = Q_SELECT(x < -7.9f, QT_SPLAT(-7.9f), x);
  x = Q_SELECT(x > 7.9f, QT_SPLAT(7.9f), x);
  q_real z = x * x;
  q_real p = z * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = z * p + -8.60467152213735e-11f;
  p = z * p + 5.12229709037114e-08f;
  p = z * p + 1.48572235717979e-05f;
  p = z * p + 6.37261928875436e-04f;
  p = z * p + 4.89352455891786e-03f;
  q_real q = z * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = z * q + 2.26843463243900e-03f;
  q = z * q + 4.89352518554385e-03f;
  return x * p / q;
}

// Returns `sum` plus the weights of a row times all observations x.
Q_FN q_real Q(weigh)(const float *row, const q_real *x, q_real sum) {
  for (int j = 0; j < BRIM_QUADRUPED_OBS - 1; j += 4) {
    QT_FOUR(w, row + j);
    for (int k = 0; k < 4; k++) sum = Q_FMA(x[j + k], QT_SPLAT(w[k]), sum);
  }
  return Q_FMA(x[BRIM_QUADRUPED_OBS - 1], QT_SPLAT(row[BRIM_QUADRUPED_OBS - 1]), sum);
}

Q_FN void Q(act_linear)(const Q(task) * c, const q_real *x, q_real ctrl[Q_LEGS][2]) {
  for (int i = 0; i < Q_LEGS; i++) {
    // actuators begin with those of the last leg
    int action = 2 * ((Q_LEG(i) + 1) & 3);
    for (int k = 0; k < 2; k++) {
      q_real y = Q(weigh)(c->policy + (action + k) * BRIM_QUADRUPED_LINEAR_ROW, x, QT_SPLAT(0.0f));
      ctrl[i][k] = Q(clamp)(y * c->env->action_scale);
    }
  }
}

Q_FN void Q(act_hidden)(const Q(task) * c, const q_real *x, q_real ctrl[Q_LEGS][2]) {
  // A quarter of the units for each leg; the sums are added in the order that lanes use.
  q_real part[Q_LEGS][BRIM_QUADRUPED_ACT];
  for (int i = 0; i < Q_LEGS; i++) {
    for (int a = 0; a < BRIM_QUADRUPED_ACT; a++) part[i][a] = QT_SPLAT(0.0f);
    for (int u = Q_LEG(i); u < c->hidden; u += 4) {
      const float *row = c->policy + u * BRIM_QUADRUPED_HIDDEN_ROW;
      q_real unit = Q(weigh)(row, x, QT_SPLAT(row[BRIM_QUADRUPED_HIDDEN_BIAS]));
      unit = Q_SELECT(unit < 0.0f, QT_SPLAT(0.0f), unit);
      for (int a = 0; a < BRIM_QUADRUPED_ACT; a += 4) {
        QT_FOUR(w, row + BRIM_QUADRUPED_HIDDEN_OUT + a);
        for (int k = 0; k < 4; k++) part[i][a + k] = Q_FMA(unit, QT_SPLAT(w[k]), part[i][a + k]);
      }
    }
  }
  const float *bias = c->policy + c->hidden * BRIM_QUADRUPED_HIDDEN_ROW;
  q_real y[BRIM_QUADRUPED_ACT];
  for (int a = 0; a < BRIM_QUADRUPED_ACT; a++) {
    q_real quarter[Q_LEGS];
    for (int i = 0; i < Q_LEGS; i++) quarter[i] = part[i][a];
    y[a] = QT_SUM(quarter) + bias[a];
  }
  for (int i = 0; i < Q_LEGS; i++) {
    for (int k = 0; k < 2; k++) {
#if Q_LEGS == 1
      q_real output = y[k];
      for (int a = 1; a < 4; a++) output = ((Q_LEG(i) + 1) & 3) == a ? y[2 * a + k] : output;
#else
      q_real output = y[2 * ((i + 1) & 3) + k];
#endif
      ctrl[i][k] = Q(clamp)(Q(tanh)(output) * c->env->action_scale);
    }
  }
}

Q_FN void Q(act)(const Q(task) * c, const Q(seen) * seen, q_real ctrl[Q_LEGS][2]) {
  if (!c->policy) {
    for (int i = 0; i < Q_LEGS; i++) ctrl[i][0] = ctrl[i][1] = QT_SPLAT(0.0f);
    return;
  }
  q_real x[BRIM_QUADRUPED_OBS];
  for (int j = 0; j < BRIM_QUADRUPED_OBS; j++) {
    x[j] = seen->apart[j] * c->normal[BRIM_QUADRUPED_OBS + j];
  }
  if (c->hidden) {
    Q(act_hidden)(c, x, ctrl);
  } else {
    Q(act_linear)(c, x, ctrl);
  }
}

typedef struct Q(outcome) {
  q_real reward;
  q_real fell, diverged;  // above 0 means true
} Q(outcome);

// Computes reward and end after a step; `from` is x before the step.
Q_FN Q(outcome)
    Q(measure)(const Q(task) * c, const Q(state) * s, q_real ctrl[Q_LEGS][2], q_real from) {
  // Square of the distance from zero, in units of PLACE: velocities have a smaller limit, so they weigh more.
  const float speed_weight = (float)(QUAD_DIVERGED_PLACE / QUAD_DIVERGED_SPEED *
                                     (QUAD_DIVERGED_PLACE / QUAD_DIVERGED_SPEED));
  q_real control[Q_LEGS], moving[Q_LEGS], all[Q_LEGS];
  for (int i = 0; i < Q_LEGS; i++) {
    control[i] = ctrl[i][0] * ctrl[i][0] + ctrl[i][1] * ctrl[i][1];
    moving[i] = s->qd[i][0] * s->qd[i][0] + s->qd[i][1] * s->qd[i][1];
    all[i] =
        control[i] + moving[i] * speed_weight + s->q[i][0] * s->q[i][0] + s->q[i][1] * s->q[i][1];
  }
  q_real effort = QT_SUM(control), size = QT_SUM(all);
  q_real slow = s->vel[0] * s->vel[0] + s->vel[1] * s->vel[1] + s->vel[2] * s->vel[2];
  q_real turn = s->omega[0] * s->omega[0] + s->omega[1] * s->omega[1] + s->omega[2] * s->omega[2];
  for (int i = 0; i < 3; i++) size = size + s->pos[i] * s->pos[i];
  for (int i = 0; i < 4; i++) size = size + s->quat[i] * s->quat[i];
  size = size + (slow + turn) * speed_weight;
  q_real up = 1.0f - 2.0f * (s->quat[1] * s->quat[1] + s->quat[2] * s->quat[2]);
  q_real z = s->pos[2], one = QT_SPLAT(1.0f), none = QT_SPLAT(0.0f);
  Q(outcome) out;
  out.fell = Q_SELECT(z < BRIM_HEALTHY_LOW, one, Q_SELECT(z > BRIM_HEALTHY_HIGH, one, none));
  if (c->env->task == BRIM_QUADRUPED_STAND) {
    out.fell = Q_SELECT(up < BRIM_STAND_UPRIGHT, one, out.fell);
    q_real high = z - BRIM_STAND_HEIGHT;
    out.reward = 1.0f - BRIM_STAND_HIGH_COST * (high * high) - BRIM_STAND_TILT_COST * (1.0f - up) -
                 BRIM_STAND_SPEED_COST * slow - BRIM_STAND_TURN_COST * turn -
                 BRIM_STAND_CONTROL_COST * effort;
  } else {
    float per_second = 1.0f / ((float)c->env->frame_skip * c->env->timestep);
    out.reward = (s->pos[0] - from) * per_second + 1.0f - BRIM_WALK_CONTROL_COST * effort;
  }
  out.reward = out.reward - out.fell * BRIM_FALL_COST;
  out.diverged = Q_SELECT(size < (float)(QUAD_DIVERGED_PLACE * QUAD_DIVERGED_PLACE), none, one);
  return out;
}

// Begins a new episode of an environment (element `lane` of a vector form).
Q_FN void Q(begin)(const Q(task) * c, Q(state) * s, brim_quadruped_track *t, int lane) {
  brim_quadruped_base b;
  brim_quadruped_begin(c->env, t);
  brim_quadruped_start(c->env, t, &b);
  (void)lane;
  for (int i = 0; i < 3; i++) {
    Q_SET(s->pos[i], lane, b.pos[i]);
    Q_SET(s->vel[i], lane, b.vel[i]);
    Q_SET(s->omega[i], lane, b.omega[i]);
  }
  for (int i = 0; i < 4; i++) Q_SET(s->quat[i], lane, b.quat[i]);
  for (int i = 0; i < Q_LEGS; i++) {
    float q[2], qd[2];
    brim_quadruped_start_leg(c->env, t, Q_LEG(i), q, qd);
    for (int k = 0; k < 2; k++) {
      Q_SET(s->q[i][k], lane, q[k]);
      Q_SET(s->qd[i][k], lane, qd[k]);
    }
  }
  t->start_x = b.pos[0];
}

// Applies the push that is due before this step, if there is one, and returns it.
Q_FN brim_env_pair Q(push)(const Q(task) * c, Q(state) * s, brim_quadruped_track *t, int lane) {
  brim_env_pair v = {0.0f, 0.0f};
  if (t->step != t->next_push) return v;
  v = brim_quadruped_push(c->env, t);
  (void)lane;
  Q_SET(s->vel[0], lane, Q_GET(s->vel[0], lane) + v.a);
  Q_SET(s->vel[1], lane, Q_GET(s->vel[1], lane) + v.b);
  return v;
}

#undef QT_OF_LEG
#undef QT_SUM
#undef QT_SPLAT
#undef QT_FOUR
#endif  // Q_LEGS
