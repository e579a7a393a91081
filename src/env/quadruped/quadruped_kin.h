// Kinematics, mass matrix and bias forces of the quadruped, a template (quadruped_state.h). The
// base frame is the torso's turned by 45 degrees about z, so that the legs point along +x, +y, -x,
// -y. A leg is looked at in a frame of its own: x along the hip link, z the torso's, origin at the
// hip. There the leg lies in the plane y = 0 and hip and ankle do not couple, so that little is
// left to compute; then it is turned and moved into the base frame. Vectors of six: linear, then
// angular.
#ifdef Q_LEGS

#define Q_FNMA(a, b, c) Q_FMA(-(a), b, c)

typedef struct {
  q_real n[3], v[6];   // the floor's normal; velocities, all in the base frame
  q_real z;            // height of the torso
  const q_real *quat;  // normalised; the world's x and y come from it when needed
} Q(base);

// A leg in the base frame, about the torso's centre.
typedef struct {
  q_real c1, s1;          // of the hip's angle
  q_real ca, sa, cb, sb;  // directions: hip link (ca, sa, 0), ankle link (cb ca, cb sa, -sb)
  q_real r[6], r1, r2;    // right-hand side: forces less bias
} Q(leg);

// The part of the mass matrix that belongs to a leg.
typedef struct {
  q_real inertia[6];    // xx, yx, yy, zx, zy, zz
  q_real mc[3];         // first moment of mass
  q_real f1[6], f2[6];  // columns: hip and ankle against the base
  q_real m11;           // diagonal entry of the hip; the ankle's is QUAD_M22
} Q(mass);

#define QUAD_M22 (QUAD_ANKLE_ACROSS + QUAD_ANKLE_MASS * QUAD_LINK * QUAD_LINK + QUAD_ARMATURE)

// A leg's own frame: composite inertia about the hip, coupling columns, motion of the base.
typedef struct {
  q_real ixx, iyy, izz, ixz, mx, mz;  // about the hip; first moment of mass (mx, 0, mz)
  q_real gy, gx, gz;                  // ankle's column: angular y, linear x and z
  q_real c2x, c2z;                    // centre of the ankle link
  q_real hx, hy;                      // torso's centre to the hip
  q_real w[3];                        // angular velocity of the base
  q_real force[3], torque[3];         // wrench at the hip
  q_real t1, t2;                      // on the joints
} Q(leg_frame);

// The world's x and y in the base frame, whose own x and y are the sum and the
// difference of the torso's.
Q_FN void Q(level_axes)(const q_real u[4], q_real ex[3], q_real ey[3]) {
  const q_real one = Q_C(1.0), two = Q_C(2.0), half = Q_C(QUAD_HALF_SQRT2);
  q_real a = u[0], x = u[1], y = u[2], z = u[3];
  q_real xx = Q_FNMA(two, Q_FMA(y, y, z * z), one), xy = two * Q_FNMA(a, z, x * y);
  q_real yx = two * Q_FMA(a, z, x * y), yy = Q_FNMA(two, Q_FMA(x, x, z * z), one);
  ex[0] = half * (xx + xy);
  ex[1] = half * (xy - xx);
  ex[2] = two * Q_FMA(a, y, x * z);
  ey[0] = half * (yx + yy);
  ey[1] = half * (yy - yx);
  ey[2] = two * Q_FNMA(a, x, y * z);
}

// Computes them a second time from the quaternion, so that no register keeps them in between.
Q_FN void Q(level_recompute)(const Q(base) * b, q_real ex[3], q_real ey[3]) {
  q_real u[4];
  for (int i = 0; i < 4; i++) {
    u[i] = b->quat[i];
    Q_FRESH(u[i]);
  }
  Q(level_axes)(u, ex, ey);
}

// The quaternion is normalised in place, as MuJoCo does at the start of a step.
Q_FN void Q(base_of)(Q(state) * s, Q(base) * b) {
  q_real *u = s->quat, ex[3], ey[3];
  q_real len = Q_RSQRT(Q_FMA(u[0], u[0], Q_FMA(u[1], u[1], Q_FMA(u[2], u[2], u[3] * u[3]))));
  for (int i = 0; i < 4; i++) u[i] = u[i] * len;
  const q_real one = Q_C(1.0), two = Q_C(2.0), half = Q_C(QUAD_HALF_SQRT2);
  q_real zx = two * Q_FNMA(u[0], u[2], u[1] * u[3]), zy = two * Q_FMA(u[0], u[1], u[2] * u[3]);
  b->quat = u;
  b->n[0] = half * (zx + zy);
  b->n[1] = half * (zy - zx);
  b->n[2] = Q_FNMA(two, Q_FMA(u[1], u[1], u[2] * u[2]), one);
  Q(level_axes)(u, ex, ey);
  for (int i = 0; i < 3; i++) {
    b->v[i] = Q_FMA(ex[i], s->vel[0], Q_FMA(ey[i], s->vel[1], b->n[i] * s->vel[2]));
  }
  b->v[3] = half * (s->omega[0] + s->omega[1]);
  b->v[4] = half * (s->omega[1] - s->omega[0]);
  b->v[5] = s->omega[2];
  b->z = s->pos[2];
}

Q_FN void Q(frame_inertia)(Q(leg_frame) * o, q_real cb, q_real sb) {
  const q_real m2 = Q_C(QUAD_ANKLE_MASS), len = Q_C(QUAD_LINK);
  const q_real slim = Q_C(QUAD_ANKLE_ALONG - QUAD_ANKLE_ACROSS);
  // A hip link about its end has the inertia of an aux link about the torso's centre.
  const double hip = QUAD_AUX_FAR;
  o->c2x = Q_FMA(len, cb, len);
  o->c2z = -len * sb;
  q_real mx = m2 * o->c2x;
  o->mz = m2 * o->c2z;
  q_real scb = slim * cb;
  o->ixx = Q_FMA(scb, cb, Q_FMA(o->mz, o->c2z, Q_C(QUAD_HIP_ALONG + QUAD_ANKLE_ACROSS)));
  o->izz = Q_FMA(slim * sb, sb, Q_FMA(mx, o->c2x, Q_C(hip + QUAD_ANKLE_ACROSS)));
  o->iyy = Q_FMA(mx, o->c2x, Q_FMA(o->mz, o->c2z, Q_C(hip + QUAD_ANKLE_ACROSS)));
  o->ixz = -Q_FMA(scb, sb, mx * o->c2z);
  o->gy = Q_FMA(len, mx, Q_C(QUAD_ANKLE_ACROSS));
  o->gx = o->mz;
  o->gz = -m2 * len * cb;
  o->mx = mx + Q_C(QUAD_HIP_MASS * QUAD_LINK / 2);
}

// Bias forces by recursive Newton-Euler, with no acceleration of the joints and of the torso's centre:
// writes the wrench at the hip and the joints' torques, with the sign of a force. Gravity is left
// out: it accelerates everything alike and is added at the end.
Q_FN void Q(frame_bias)(Q(leg_frame) * o, q_real cb, q_real sb, q_real qd1, q_real qd2) {
  const q_real m1 = Q_C(QUAD_HIP_MASS), m2 = Q_C(QUAD_ANKLE_MASS);
  const q_real len = Q_C(QUAD_LINK), half = Q_C(QUAD_LINK / 2);
  const q_real slim1 = Q_C(QUAD_HIP_ALONG - QUAD_HIP_ACROSS);
  const q_real slim2 = Q_C(QUAD_ANKLE_ALONG - QUAD_ANKLE_ACROSS);
  const q_real across2 = Q_C(QUAD_ANKLE_ACROSS);
  q_real x = o->w[0], y = o->w[1], z0 = o->w[2], z = z0 + qd1;
  // hip: w (w.h) - h |w|^2
  q_real wh = Q_FMA(x, o->hx, y * o->hy), x2 = x * x, y2 = y * y;
  q_real w2 = Q_FMA(z0, z0, x2 + y2);
  q_real ahx = Q_FNMA(o->hx, w2, wh * x), ahy = Q_FNMA(o->hy, w2, wh * y), ahz = wh * z0;
  // hip link: its angular acceleration is (qd1 y, -qd1 x, 0)
  q_real ax = qd1 * y, ay = -qd1 * x, ex = -Q_FMA(z, z, y2), ey = x * y, ez = Q_FMA(x, z, -ay);
  q_real f1x = m1 * Q_FMA(half, ex, ahx), f1y = m1 * Q_FMA(half, ey, ahy);
  q_real f1z = m1 * Q_FMA(half, ez, ahz);
  q_real n1x = Q_C(QUAD_HIP_ALONG) * ax;
  q_real n1y = Q_FMA(Q_C(QUAD_HIP_ACROSS), ay, slim1 * (x * z));
  q_real n1z = -slim1 * ey;
  // ankle link
  q_real akx = Q_FMA(len, ex, ahx), aky = Q_FMA(len, ey, ahy), akz = Q_FMA(len, ez, ahz);
  q_real bx = Q_FNMA(qd2, z, ax), bz = qd2 * x, yy = y + qd2;  // acceleration (bx, ay, bz)
  q_real wd = Q_FNMA(z, sb, x * cb), v2 = Q_FMA(z, z, Q_FMA(yy, yy, x2));
  q_real dx = Q_FNMA(ay, sb, Q_FMA(wd, x, -v2 * cb));
  q_real dy = Q_FMA(bz, cb, Q_FMA(bx, sb, wd * yy));
  q_real dz = Q_FNMA(ay, cb, Q_FMA(wd, z, v2 * sb));
  q_real f2x = m2 * Q_FMA(len, dx, akx), f2y = m2 * Q_FMA(len, dy, aky);
  q_real f2z = m2 * Q_FMA(len, dz, akz);
  q_real ad = slim2 * Q_FNMA(bz, sb, bx * cb), sd = slim2 * wd;
  // w x d with d = (cb, 0, -sb): (-yy sb, z cb + x sb, -yy cb)
  q_real n2x = Q_FMA(across2, bx, Q_FNMA(sd * yy, sb, ad * cb));
  q_real n2y = Q_FMA(across2, ay, sd * Q_FMA(z, cb, x * sb));
  q_real n2z = Q_FNMA(sd * yy, cb, Q_FNMA(ad, sb, across2 * bz));
  o->force[0] = -(f1x + f2x);
  o->force[1] = -(f1y + f2y);
  o->force[2] = -(f1z + f2z);
  q_real tx = Q_FNMA(o->c2z, f2y, n1x + n2x);
  q_real ty = Q_FNMA(half, f1z, Q_FMA(o->c2z, f2x, Q_FNMA(o->c2x, f2z, n1y + n2y)));
  q_real tz = Q_FMA(half, f1y, Q_FMA(o->c2x, f2y, n1z + n2z));
  o->torque[0] = -tx;
  o->torque[1] = -ty;
  o->torque[2] = -tz;
  o->t1 = -tz;
  o->t2 = Q_FMA(len, Q_FMA(sb, f2x, cb * f2z), -n2y);
}

// The leg's mass from its own frame: turned by the hip's direction, and moved from the hip
// (hx, hy, 0) to the torso's centre.
Q_FN void Q(mass_from_frame)(const Q(leg_frame) * o, q_real ca, q_real sa, q_real hx, q_real hy,
                             Q(mass) * g) {
  q_real mrx = ca * o->mx, mry = sa * o->mx;
  const q_real mass = Q_C(QUAD_LEG_MASS), half = Q_C(QUAD_LEG_MASS / 2);
  g->mc[0] = Q_FMA(mass, hx, mrx);
  g->mc[1] = Q_FMA(mass, hy, mry);
  g->mc[2] = o->mz;
  q_real gx = Q_FMA(half, hx, mrx), gy = Q_FMA(half, hy, mry);
  q_real xx = hx * gx, yy = hy * gy, far = Q_C(2.0) * (xx + yy), d = o->ixx - o->iyy, cad = ca * d;
  g->inertia[0] = Q_FMA(cad, ca, o->iyy) + Q_FNMA(Q_C(2.0), xx, far);
  g->inertia[1] = Q_FMA(cad, sa, -Q_FMA(hx, gy, hy * gx));
  g->inertia[2] = Q_FMA(sa * d, sa, o->iyy) + Q_FNMA(Q_C(2.0), yy, far);
  g->inertia[3] = Q_FNMA(hx, o->mz, ca * o->ixz);
  g->inertia[4] = Q_FNMA(hy, o->mz, sa * o->ixz);
  g->inertia[5] = o->izz + far;
  g->f1[0] = -mry;
  g->f1[1] = mrx;
  g->f1[2] = Q_C(0.0);
  g->f1[3] = ca * o->ixz;
  g->f1[4] = sa * o->ixz;
  g->f1[5] = Q_FMA(hx, mrx, Q_FMA(hy, mry, o->izz));
  g->f2[0] = ca * o->gx;
  g->f2[1] = sa * o->gx;
  g->f2[2] = o->gz;
  g->f2[3] = Q_FMA(hy, o->gz, -sa * o->gy);
  g->f2[4] = Q_FNMA(hx, o->gz, ca * o->gy);
  g->f2[5] = Q_FNMA(hy, g->f2[0], hx * g->f2[1]);
  g->m11 = o->izz + Q_C(QUAD_ARMATURE);
}

Q_FN void Q(force_from_frame)(const Q(leg_frame) * o, q_real hx, q_real hy, Q(leg) * g) {
  const q_real *f = o->force, *t = o->torque, ca = g->ca, sa = g->sa;
  g->r[0] = Q_FNMA(sa, f[1], ca * f[0]);
  g->r[1] = Q_FMA(sa, f[0], ca * f[1]);
  g->r[2] = f[2];
  g->r[3] = Q_FMA(hy, f[2], Q_FNMA(sa, t[1], ca * t[0]));
  g->r[4] = Q_FNMA(hx, f[2], Q_FMA(sa, t[0], ca * t[1]));
  g->r[5] = Q_FMA(hx, g->r[1], Q_FNMA(hy, g->r[0], t[2]));
  g->r1 = o->t1;
  g->r2 = o->t2;
}

// The mass of leg i, from its directions alone.
Q_FN void Q(mass_recompute)(const Q(leg) * g, int i, Q(mass) * m) {
  const q_real len = Q_C(QUAD_LINK);
  q_real ca = g->ca, sa = g->sa, cb = g->cb, sb = g->sb;
  (void)i;  // unused where each lane holds one leg
  Q_FRESH(ca);
  Q_FRESH(sa);
  Q_FRESH(cb);
  Q_FRESH(sb);
  Q(leg_frame) o;
  Q(frame_inertia)(&o, cb, sb);
  Q(mass_from_frame)(&o, ca, sa, len * Q_LEG_COS(i), len * Q_LEG_SIN(i), m);
}

// Sines and cosines of the joints. An ankle's angle, speed and torque are taken times Q_LEG_SIGN,
// so that all ankles bend the same way.
Q_FN void Q(leg_directions)(const Q(state) * s, int i, Q(leg) * g) {
  q_real ck = Q_LEG_COS(i), sk = Q_LEG_SIN(i);
  Q_SINCOS(s->q[i][0], &g->s1, &g->c1);
  Q_SINCOS(s->q[i][1] * Q_LEG_SIGN(i), &g->sb, &g->cb);
  g->ca = Q_FNMA(sk, g->s1, ck * g->c1);
  g->sa = Q_FMA(sk, g->c1, ck * g->s1);
}

// Fills the forces r, r1 and r2 of leg i; Q(leg_directions) comes before.
Q_FN void Q(leg_of)(const Q(state) * s, const Q(base) * b, int i, const q_real ctrl[2],
                    q_real damping, Q(leg) * g) {
  Q(leg_frame) o;
  q_real sign = Q_LEG_SIGN(i);
  q_real qd1 = s->qd[i][0], qd2 = sign * s->qd[i][1];
  const q_real len = Q_C(QUAD_LINK);
  o.hx = len * g->c1;
  o.hy = -len * g->s1;
  Q(frame_inertia)(&o, g->cb, g->sb);
  o.w[0] = Q_FMA(g->ca, b->v[3], g->sa * b->v[4]);
  o.w[1] = Q_FNMA(g->sa, b->v[3], g->ca * b->v[4]);
  o.w[2] = b->v[5];
  Q(frame_bias)(&o, g->cb, g->sb, qd1, qd2);
  q_real u1 = Q_MIN(Q_MAX(ctrl[0], Q_C(-1.0)), Q_C(1.0));
  q_real u2 = Q_MIN(Q_MAX(ctrl[1], Q_C(-1.0)), Q_C(1.0)) * sign;
  o.t1 = Q_FNMA(damping, qd1, Q_FMA(Q_C(QUAD_GEAR), u1, o.t1));
  o.t2 = Q_FNMA(damping, qd2, Q_FMA(Q_C(QUAD_GEAR), u2, o.t2));
  Q(force_from_frame)(&o, len * Q_LEG_COS(i), len * Q_LEG_SIN(i), g);
}

#endif  // Q_LEGS
