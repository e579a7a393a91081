// Contacts with the floor and joint limits of the quadruped, a template (quadruped_state.h). A row is one
// constraint. Its residual is J (a + damp_b v) + k, with k = stiff_k * imp * distance; a contact subtracts gravity
// from k, because accelerations exclude gravity until the end. A contact is a pyramid of four rows n +- y, n +- z
// (friction 1). Only sums over the rows that push are needed; they form a 3x3 matrix in the base frame.
#ifdef Q_LEGS

// A leg has six points: point p is an end of link p / 2 (aux, hip, ankle), at spot (p + 1) / 2 (centre, hip, knee,
// foot).
#define QUAD_POINTS 6
// Bits of a leg's rows: four for each point, then these two for the limits.
#define QUAD_ROW_LIMIT1 (1 << 24)
#define QUAD_ROW_LIMIT2 (1 << 25)

// The position of a point of a leg, before its depth is known.
typedef struct {
  q_real c[3], axis[3];    // centre of the capsule's end; the link's direction
  q_real hip[2], knee[2];  // positions of the joints, both in the plane z = 0
  q_real dist;             // distance of the surface from the floor
} Q(place);

typedef struct {
  q_real p[3], y[3], z[3];  // point where it pushes, and the tangents; the normal is the base's n
  q_real d, k;              // weight of a row; constant k of the normal's residual
} Q(point);

// The linear system: base 6x6, packed by rows (i (i + 1) / 2 + j), and its right-hand side.
typedef struct {
  q_real h[21], r[6];
} Q(system);

// A leg's part of the system: columns against the base, its own 2x2, right-hand side.
typedef struct {
  q_real g1[6], g2[6], k11, k12, k22, r1, r2;
} Q(block);

// Computes spot 0 to 3 of leg i and the direction of link 0 to 2. One function body serves all six points, with
// numbers in place of branches: six bodies would need more code and registers than a few products with 0 or 1.
Q_FN void Q(place_of)(const Q(base) * b, const Q(leg) * g, int i, int spot, int link,
                      Q(place) * at) {
  const q_real len = Q_C(QUAD_LINK), *n = b->n;
  q_real ca = g->ca, sa = g->sa, cb = g->cb, sb = g->sb, ck = Q_LEG_COS(i), sk = Q_LEG_SIN(i);
  (void)i;  // unused if each lane holds one leg
  at->hip[0] = len * ck;
  at->hip[1] = len * sk;
  at->knee[0] = Q_FMA(len, ca, at->hip[0]);
  at->knee[1] = Q_FMA(len, sa, at->hip[1]);
  q_real dx = cb * ca, dy = cb * sa;
  const q_real to_hip = Q_C(spot > 0 ? QUAD_LINK : 0), to_knee = Q_C(spot > 1 ? QUAD_LINK : 0);
  const q_real to_foot = Q_C(spot > 2 ? 2 * QUAD_LINK : 0);
  at->c[0] = Q_FMA(to_foot, dx, Q_FMA(to_knee, ca, to_hip * ck));
  at->c[1] = Q_FMA(to_foot, dy, Q_FMA(to_knee, sa, to_hip * sk));
  at->c[2] = -to_foot * sb;
  at->axis[0] = link == 0 ? ck : link == 1 ? ca : dx;
  at->axis[1] = link == 0 ? sk : link == 1 ? sa : dy;
  at->axis[2] = link == 2 ? -sb : Q_C(0.0);
  q_real up = Q_FMA(n[0], at->c[0], Q_FMA(n[1], at->c[1], n[2] * at->c[2]));
  at->dist = (b->z - Q_C(QUAD_RADIUS)) + up;
}

// Computes the distances of the four spots of a leg from the floor.
Q_FN void Q(distances)(const Q(base) * b, const Q(leg) * g, int i, q_real dist[4]) {
  Q(place) at;
  for (int k = 0; k < 4; k++) {
    Q(place_of)(b, g, i, k, 0, &at);
    dist[k] = at.dist;
  }
}

// Impedance of a constraint violated by `depth` >= 0.
Q_FN q_real Q(impedance)(q_real depth) {
  const q_real one = Q_C(1.0), two = Q_C(2.0);
  q_real x = Q_MIN(depth * Q_C(1 / QUAD_SOLIMP_WIDTH), one);
  q_real far = one - x;
  q_real y = Q_SELECT(x <= Q_C(0.5), two * x * x, Q_FNMA(two * far, far, one));
  return Q_FMA(Q_C(QUAD_SOLIMP_MAX - QUAD_SOLIMP_MIN), y, Q_C(QUAD_SOLIMP_MIN));
}

// Computes the weight d and the constant k of a row. `weight`: the constraint's inverse weight, times 4 for a row
// of a pyramid.
Q_FN void Q(soften)(const Q(world) * w, q_real gap, q_real weight, q_real *d, q_real *k) {
  q_real imp = Q(impedance)(Q_ABS(gap));
  *d = imp * Q_RCP((Q_C(1.0) - imp) * weight);
  *k = Q_C(w->stiff_k) * imp * gap;
}

// Makes a contact point. The tangent y is the capsule's axis without its part along n. An upright axis has no such
// part; then y is the world's x.
Q_FN void Q(point_of)(const Q(world) * w, const Q(base) * b, const q_real *c, const q_real *axis,
                      q_real dist, q_real radius, q_real weight, Q(point) * pt) {
  const q_real *n = b->n;
  q_real along = Q_FMA(axis[0], n[0], Q_FMA(axis[1], n[1], axis[2] * n[2]));
  q_real deep = Q_FMA(dist, Q_C(0.5), radius);
  q_real t[3];
  for (int i = 0; i < 3; i++) {
    pt->p[i] = Q_FNMA(n[i], deep, c[i]);
    t[i] = Q_FNMA(n[i], along, axis[i]);
  }
  q_real t2 = Q_FMA(t[0], t[0], Q_FMA(t[1], t[1], t[2] * t[2]));
  q_mask flat = t2 > Q_C(1e-28);
  q_real len = Q_RSQRT(Q_SELECT(flat, t2, Q_C(1.0)));
  for (int i = 0; i < 3; i++) t[i] = t[i] * len;
  // Repeat it: little is left of a steep axis, and its rounding must not tilt y out of the floor.
  along = Q_FMA(t[0], n[0], Q_FMA(t[1], n[1], t[2] * n[2]));
  for (int i = 0; i < 3; i++) pt->y[i] = Q_FNMA(n[i], along, t[i]);
  if (Q_ANY(t2 <= Q_C(1e-28))) {
    q_real ex[3], ey[3];
    Q(level_recompute)(b, ex, ey);
    for (int i = 0; i < 3; i++) pt->y[i] = Q_SELECT(flat, pt->y[i], ex[i]);
  }
  const q_real *y = pt->y;
  pt->z[0] = Q_FMA(n[1], y[2], -n[2] * y[1]);
  pt->z[1] = Q_FMA(n[2], y[0], -n[0] * y[2]);
  pt->z[2] = Q_FMA(n[0], y[1], -n[1] * y[0]);
  Q(soften)(w, dist - Q_C(w->margin), weight, &pt->d, &pt->k);
  pt->k = pt->k - Q_C(w->gravity);
}

Q_FN void Q(cross)(const q_real a[3], const q_real b[3], q_real out[3]) {
  out[0] = Q_FMA(a[1], b[2], -a[2] * b[1]);
  out[1] = Q_FMA(a[2], b[0], -a[0] * b[2]);
  out[2] = Q_FMA(a[0], b[1], -a[1] * b[0]);
}

Q_FN void Q(sym_times)(const q_real w[6], const q_real t[3], q_real out[3]) {
  out[0] = Q_FMA(w[0], t[0], Q_FMA(w[1], t[1], w[3] * t[2]));
  out[1] = Q_FMA(w[1], t[0], Q_FMA(w[2], t[1], w[4] * t[2]));
  out[2] = Q_FMA(w[3], t[0], Q_FMA(w[4], t[1], w[5] * t[2]));
}

// Computes the point's motion per joint: t1 for the hip, t2 for the ankle.
Q_FN void Q(point_arms)(const Q(place) * at, const Q(leg) * g, const Q(point) * pt, q_real t1[3],
                        q_real t2[3]) {
  t1[0] = at->hip[1] - pt->p[1];
  t1[1] = pt->p[0] - at->hip[0];
  t1[2] = Q_C(0.0);
  q_real x = pt->p[0] - at->knee[0], y = pt->p[1] - at->knee[1], z = pt->p[2];
  t2[0] = g->ca * z;
  t2[1] = g->sa * z;
  t2[2] = -Q_FMA(g->sa, y, g->ca * x);
}

// Computes the motion e of a point of link 0 (base), 1 (hip) or 2 (ankle) when the base moves by x and the joints
// by xl.
Q_FN void Q(point_moves)(const Q(point) * pt, const q_real x[6], const q_real xl[2],
                         const q_real t1[3], const q_real t2[3], int link, q_real e[3]) {
  Q(cross)(x + 3, pt->p, e);
  for (int c = 0; c < 3; c++) {
    e[c] = e[c] + x[c];
    if (link > 0) e[c] = Q_FMA(t1[c], xl[0], e[c]);
    if (link > 1) e[c] = Q_FMA(t2[c], xl[1], e[c]);
  }
}

// Returns the rows of the four that push, as bits from `bit` on. e: the point's acceleration plus damp_b times its
// velocity.
Q_FN q_bits Q(point_rows)(const Q(base) * b, const Q(point) * pt, const q_real e[3], int bit) {
  q_real en = Q_FMA(b->n[0], e[0], Q_FMA(b->n[1], e[1], Q_FMA(b->n[2], e[2], pt->k)));
  q_real ey = Q_FMA(pt->y[0], e[0], Q_FMA(pt->y[1], e[1], pt->y[2] * e[2]));
  q_real ez = Q_FMA(pt->z[0], e[0], Q_FMA(pt->z[1], e[1], pt->z[2] * e[2]));
  const q_real zero = Q_C(0.0);
  return Q_BIT(en + ey < zero, bit) | Q_BIT(en - ey < zero, bit * 2) |
         Q_BIT(en + ez < zero, bit * 4) | Q_BIT(en - ez < zero, bit * 8);
}

// Computes the matrix w (packed xx, yx, yy, zx, zy, zz) of the rows that push, and their force f. v: the point's
// velocity times damp_b.
Q_FN void Q(point_weight)(const Q(base) * b, const Q(point) * pt, q_bits rows, int bit,
                          const q_real v[3], q_real w[6], q_real f[3]) {
  const q_real zero = Q_C(0.0), *n = b->n, *y = pt->y;
  q_real a1 = Q_SELECT(Q_HAS(rows, bit), pt->d, zero);
  q_real a2 = Q_SELECT(Q_HAS(rows, bit * 2), pt->d, zero);
  q_real a3 = Q_SELECT(Q_HAS(rows, bit * 4), pt->d, zero);
  q_real a4 = Q_SELECT(Q_HAS(rows, bit * 8), pt->d, zero);
  q_real wy = a1 + a2, wz = a3 + a4, wp = a1 - a2, wq = a3 - a4, excess = wy - wz;
  q_real g[3], m[3], my[3];
  for (int i = 0; i < 3; i++) {
    g[i] = Q_FMA(wp, y[i], wq * pt->z[i]);
    m[i] = Q_FMA(wy, n[i], g[i]);
    my[i] = excess * y[i];
    f[i] = -pt->k * Q_FMA(wz, n[i], m[i]);
  }
  // y y' + z z' = 1 - n n' lets wz stand on the diagonal
  w[0] = Q_FMA(n[0], m[0], Q_FMA(g[0], n[0], Q_FMA(my[0], y[0], wz)));
  w[1] = Q_FMA(n[1], m[0], Q_FMA(g[1], n[0], my[1] * y[0]));
  w[2] = Q_FMA(n[1], m[1], Q_FMA(g[1], n[1], Q_FMA(my[1], y[1], wz)));
  w[3] = Q_FMA(n[2], m[0], Q_FMA(g[2], n[0], my[2] * y[0]));
  w[4] = Q_FMA(n[2], m[1], Q_FMA(g[2], n[1], my[2] * y[1]));
  w[5] = Q_FMA(n[2], m[2], Q_FMA(g[2], n[2], Q_FMA(my[2], y[2], wz)));
  q_real damping[3];
  Q(sym_times)(w, v, damping);
  for (int i = 0; i < 3; i++) f[i] = f[i] - damping[i];
}

// Adds J' W J and J' f for the six numbers of the base.
Q_FN void Q(point_base)(const q_real p[3], const q_real w[6], const q_real f[3], Q(system) * sys) {
  const q_real col[3][3] = {{w[0], w[1], w[3]}, {w[1], w[2], w[4]}, {w[3], w[4], w[5]}};
  q_real pw[3][3], al[3][3], pf[3];  // pw[j]: p x column j; al: its transpose, by rows
  for (int j = 0; j < 3; j++) Q(cross)(p, col[j], pw[j]);
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 3; j++) al[i][j] = pw[j][i];
  }
  q_real *h = sys->h;
  for (int i = 0; i < 6; i++) h[i] = h[i] + w[i];
  for (int j = 0; j < 3; j++) {
    h[6 + j] = h[6 + j] + al[0][j];
    h[10 + j] = h[10 + j] + al[1][j];
    h[15 + j] = h[15 + j] + al[2][j];
  }
  h[9] = Q_FMA(p[1], al[0][2], Q_FNMA(p[2], al[0][1], h[9]));
  h[13] = Q_FMA(p[1], al[1][2], Q_FNMA(p[2], al[1][1], h[13]));
  h[14] = Q_FMA(p[2], al[1][0], Q_FNMA(p[0], al[1][2], h[14]));
  h[18] = Q_FMA(p[1], al[2][2], Q_FNMA(p[2], al[2][1], h[18]));
  h[19] = Q_FMA(p[2], al[2][0], Q_FNMA(p[0], al[2][2], h[19]));
  h[20] = Q_FMA(p[0], al[2][1], Q_FNMA(p[1], al[2][0], h[20]));
  Q(cross)(p, f, pf);
  for (int i = 0; i < 3; i++) {
    sys->r[i] = sys->r[i] + f[i];
    sys->r[3 + i] = sys->r[3 + i] + pf[i];
  }
}

Q_FN q_real Q(dot)(const q_real a[3], const q_real b[3], q_real c) {
  return Q_FMA(a[0], b[0], Q_FMA(a[1], b[1], Q_FMA(a[2], b[2], c)));
}

// Adds J' W J and J' f for the joints of the leg. `ankle`: the point is on the ankle link.
Q_FN void Q(point_leg)(const q_real p[3], const q_real w[6], const q_real f[3], const q_real t1[3],
                       const q_real t2[3], int ankle, Q(block) * k) {
  q_real q[3], pq[3];
  Q(sym_times)(w, t1, q);
  Q(cross)(p, q, pq);
  for (int i = 0; i < 3; i++) {
    k->g1[i] = k->g1[i] + q[i];
    k->g1[3 + i] = k->g1[3 + i] + pq[i];
  }
  k->k11 = Q(dot)(t1, q, k->k11);
  k->r1 = Q(dot)(t1, f, k->r1);
  if (!ankle) return;
  k->k12 = Q(dot)(t2, q, k->k12);
  Q(sym_times)(w, t2, q);
  Q(cross)(p, q, pq);
  for (int i = 0; i < 3; i++) {
    k->g2[i] = k->g2[i] + q[i];
    k->g2[3 + i] = k->g2[3 + i] + pq[i];
  }
  k->k22 = Q(dot)(t2, q, k->k22);
  k->r2 = Q(dot)(t2, f, k->r2);
}

#endif  // Q_LEGS
