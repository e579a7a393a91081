// The quadruped's linear systems and the Newton iteration over active sets, a template (quadruped_state.h). A
// contact or a limit involves the base and one leg. So mass matrix plus constraints is a 6x6 block of the base, and
// for each leg a 2x2 block and its columns. Legs are eliminated, then the base is solved, then the legs.
#ifdef Q_LEGS

// Keeps a loop over points from being unrolled: see Q(place_of).
#ifdef __CUDACC__
#define Q_ROLLED _Pragma("unroll 1")
#else
#define Q_ROLLED
#endif

Q_FN void Q(block_of)(const Q(mass) * g, q_real damp, Q(block) * k) {
  for (int i = 0; i < 6; i++) k->g1[i] = g->f1[i];
  for (int i = 0; i < 6; i++) k->g2[i] = g->f2[i];
  k->k11 = g->m11 + damp;
  k->k12 = Q_C(0.0);
  k->k22 = Q_C(QUAD_M22) + damp;
}

// x += m x', for the lower half of a symmetric matrix
Q_FN void Q(rank_one)(q_real h[21], const q_real a[6], const q_real b[6]) {
  q_real *row = h;
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < 6; i++) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int j = 0; j <= i; j++) row[j] = Q_FNMA(a[i], b[j], row[j]);
    row += i + 1;
  }
}

// Eliminates the leg from the system. The block then holds what Q(block_back) needs: 1 / k11, 1 / k22 after
// elimination, and the ratio k12 / k11. `coupled`: k12 may differ from 0.
Q_FN void Q(block_condense)(Q(block) * k, int coupled, Q(system) * sys) {
  q_real i1 = Q_RCP(k->k11), y[6];
  if (coupled) {
    q_real ratio = k->k12 * i1;
    k->k22 = Q_FNMA(ratio, k->k12, k->k22);
    for (int i = 0; i < 6; i++) k->g2[i] = Q_FNMA(ratio, k->g1[i], k->g2[i]);
    k->r2 = Q_FNMA(ratio, k->r1, k->r2);
    k->k12 = ratio;
  }
  q_real i2 = Q_RCP(k->k22);
  for (int i = 0; i < 6; i++) {
    y[i] = k->g1[i] * i1;
    sys->r[i] = Q_FNMA(y[i], k->r1, sys->r[i]);
  }
  Q(rank_one)(sys->h, y, k->g1);
  for (int i = 0; i < 6; i++) {
    y[i] = k->g2[i] * i2;
    sys->r[i] = Q_FNMA(y[i], k->r2, sys->r[i]);
  }
  Q(rank_one)(sys->h, y, k->g2);
  k->k11 = i1;
  k->k22 = i2;
}

Q_FN void Q(block_back)(const Q(block) * k, int coupled, const q_real x[6], q_real out[2]) {
  q_real r1 = k->r1, r2 = k->r2;
  for (int i = 0; i < 6; i++) {
    r1 = Q_FNMA(k->g1[i], x[i], r1);
    r2 = Q_FNMA(k->g2[i], x[i], r2);
  }
  out[1] = r2 * k->k22;
  out[0] = r1 * k->k11;
  if (coupled) out[0] = Q_FNMA(k->k12, out[1], out[0]);
}

// Adds the leg's composite inertia, except its mass.
Q_FN void Q(system_leg)(const Q(mass) * g, Q(system) * sys) {
  q_real *h = sys->h;
  h[7] = h[7] - g->mc[2];
  h[8] = h[8] + g->mc[1];
  h[10] = h[10] + g->mc[2];
  h[12] = h[12] - g->mc[0];
  h[15] = h[15] - g->mc[1];
  h[16] = h[16] + g->mc[0];
  h[9] = h[9] + g->inertia[0];
  h[13] = h[13] + g->inertia[1];
  h[14] = h[14] + g->inertia[2];
  h[18] = h[18] + g->inertia[3];
  h[19] = h[19] + g->inertia[4];
  h[20] = h[20] + g->inertia[5];
}

Q_FN void Q(system_zero)(Q(system) * sys) {
  for (int i = 0; i < 21; i++) sys->h[i] = Q_C(0.0);
  for (int i = 0; i < 6; i++) sys->r[i] = Q_C(0.0);
}

// Sums the legs over all lanes, then adds the torso's own inertia.
Q_FN void Q(system_sum)(Q(system) * sys) {
  q_real *h = sys->h;
  for (int i = 0; i < 21; i++) h[i] = Q_SUM(h[i]);
  for (int i = 0; i < 6; i++) sys->r[i] = Q_SUM(sys->r[i]);
  const q_real mass = Q_C(QUAD_MASS), flat = Q_C(QUAD_BASE_FLAT);
  h[0] = h[0] + mass;
  h[2] = h[2] + mass;
  h[5] = h[5] + mass;
  h[9] = h[9] + flat;
  h[14] = h[14] + flat;
  h[20] = h[20] + Q_C(QUAD_BASE_SPIN);
}

// Steps of L D L' for column j: Q_REDUCE subtracts it from the rest, Q_KEEP stores it divided by the pivot.
#define Q_AT(i, j) h[(i) * ((i) + 1) / 2 + (j)]
#define Q_REDUCE(i, k, j) Q_AT(i, k) = Q_FNMA(l##i, Q_AT(k, j), Q_AT(i, k))
#define Q_KEEP(i, j) Q_AT(i, j) = l##i, r[i] = Q_FNMA(l##i, r[j], r[i])

// Solves for the base in place: r becomes the solution.
Q_FN void Q(system_solve)(Q(system) * sys) {
  q_real *h = sys->h, *r = sys->r, l1, l2, l3, l4, l5;
  q_real d0 = Q_RCP(Q_AT(0, 0));
  l1 = Q_AT(1, 0) * d0, l2 = Q_AT(2, 0) * d0, l3 = Q_AT(3, 0) * d0;
  l4 = Q_AT(4, 0) * d0, l5 = Q_AT(5, 0) * d0;
  Q_REDUCE(1, 1, 0), Q_REDUCE(2, 1, 0), Q_REDUCE(2, 2, 0), Q_REDUCE(3, 1, 0), Q_REDUCE(3, 2, 0);
  Q_REDUCE(3, 3, 0), Q_REDUCE(4, 1, 0), Q_REDUCE(4, 2, 0), Q_REDUCE(4, 3, 0), Q_REDUCE(4, 4, 0);
  Q_REDUCE(5, 1, 0), Q_REDUCE(5, 2, 0), Q_REDUCE(5, 3, 0), Q_REDUCE(5, 4, 0), Q_REDUCE(5, 5, 0);
  Q_KEEP(1, 0), Q_KEEP(2, 0), Q_KEEP(3, 0), Q_KEEP(4, 0), Q_KEEP(5, 0);
  q_real d1 = Q_RCP(Q_AT(1, 1));
  l2 = Q_AT(2, 1) * d1, l3 = Q_AT(3, 1) * d1, l4 = Q_AT(4, 1) * d1, l5 = Q_AT(5, 1) * d1;
  Q_REDUCE(2, 2, 1), Q_REDUCE(3, 2, 1), Q_REDUCE(3, 3, 1), Q_REDUCE(4, 2, 1), Q_REDUCE(4, 3, 1);
  Q_REDUCE(4, 4, 1), Q_REDUCE(5, 2, 1), Q_REDUCE(5, 3, 1), Q_REDUCE(5, 4, 1), Q_REDUCE(5, 5, 1);
  Q_KEEP(2, 1), Q_KEEP(3, 1), Q_KEEP(4, 1), Q_KEEP(5, 1);
  q_real d2 = Q_RCP(Q_AT(2, 2));
  l3 = Q_AT(3, 2) * d2, l4 = Q_AT(4, 2) * d2, l5 = Q_AT(5, 2) * d2;
  Q_REDUCE(3, 3, 2), Q_REDUCE(4, 3, 2), Q_REDUCE(4, 4, 2), Q_REDUCE(5, 3, 2), Q_REDUCE(5, 4, 2);
  Q_REDUCE(5, 5, 2);
  Q_KEEP(3, 2), Q_KEEP(4, 2), Q_KEEP(5, 2);
  q_real d3 = Q_RCP(Q_AT(3, 3));
  l4 = Q_AT(4, 3) * d3, l5 = Q_AT(5, 3) * d3;
  Q_REDUCE(4, 4, 3), Q_REDUCE(5, 4, 3), Q_REDUCE(5, 5, 3);
  Q_KEEP(4, 3), Q_KEEP(5, 3);
  q_real d4 = Q_RCP(Q_AT(4, 4));
  l5 = Q_AT(5, 4) * d4;
  Q_REDUCE(5, 5, 4);
  Q_KEEP(5, 4);
  r[5] = r[5] * Q_RCP(Q_AT(5, 5));
  r[4] = Q_FNMA(Q_AT(5, 4), r[5], r[4] * d4);
  r[3] = Q_FNMA(Q_AT(4, 3), r[4], Q_FNMA(Q_AT(5, 3), r[5], r[3] * d3));
  r[2] = Q_FNMA(Q_AT(3, 2), r[3], Q_FNMA(Q_AT(4, 2), r[4], Q_FNMA(Q_AT(5, 2), r[5], r[2] * d2)));
  r[1] = Q_FNMA(Q_AT(3, 1), r[3], Q_FNMA(Q_AT(4, 1), r[4], Q_FNMA(Q_AT(5, 1), r[5], r[1] * d1)));
  r[1] = Q_FNMA(Q_AT(2, 1), r[2], r[1]);
  r[0] = Q_FNMA(Q_AT(3, 0), r[3], Q_FNMA(Q_AT(4, 0), r[4], Q_FNMA(Q_AT(5, 0), r[5], r[0] * d0)));
  r[0] = Q_FNMA(Q_AT(1, 0), r[1], Q_FNMA(Q_AT(2, 0), r[2], r[0]));
}

#undef Q_AT
#undef Q_REDUCE
#undef Q_KEEP

// Returns the gap to the nearer limit of a joint; *side is 1 for the lower limit, -1 for the upper.
Q_FN q_real Q(limit_gap)(q_real q, double low, double high, q_real *side) {
  q_real a = q - Q_C(low), b = Q_C(high) - q;
  *side = Q_SELECT(a < b, Q_C(1.0), Q_C(-1.0));
  return Q_MIN(a, b);
}

Q_FN void Q(limit_add)(const Q(world) * w, q_real gap, q_real side, double weight, q_mask on,
                       q_real qd, q_real *k, q_real *r) {
  q_real d, c;
  Q(soften)(w, gap, Q_C(weight), &d, &c);
  d = Q_SELECT(on, d, Q_C(0.0));
  *k = *k + d;
  *r = Q_FNMA(d, Q_FMA(Q_C(w->damp_b), qd, side * c), *r);
}

Q_FN q_bits Q(limit_row)(const Q(world) * w, q_real gap, q_real side, double weight, q_real x,
                         int bit) {
  q_real d, c;
  Q(soften)(w, gap, Q_C(weight), &d, &c);
  return Q_BIT((gap < Q_C(0.0)) & (Q_FMA(side, x, c) < Q_C(0.0)), bit);
}

Q_FN q_real Q(link_weight)(int link) {
  return Q_C(4 * (link == 0 ? QUAD_WEIGHT_AUX : link == 1 ? QUAD_WEIGHT_HIP : QUAD_WEIGHT_ANKLE));
}

// Adds the rows of a leg that push to its block and to the system.
Q_FN void Q(leg_push)(const Q(world) * w, const Q(state) * s, const Q(base) * b, const Q(leg) * g,
                      int i, q_bits rows, Q(block) * k, Q(system) * sys) {
  q_real side;
  if (Q_ANY(Q_HAS(rows, QUAD_ROW_LIMIT1))) {
    q_real gap = Q(limit_gap)(s->q[i][0], -QUAD_HIP_LIMIT, QUAD_HIP_LIMIT, &side);
    q_mask on = Q_HAS(rows, QUAD_ROW_LIMIT1);
    Q(limit_add)(w, gap, side, QUAD_WEIGHT_HIP_JOINT, on, s->qd[i][0], &k->k11, &k->r1);
  }
  if (Q_ANY(Q_HAS(rows, QUAD_ROW_LIMIT2))) {
    q_real q2 = s->q[i][1] * Q_LEG_SIGN(i);
    q_real gap = Q(limit_gap)(q2, QUAD_ANKLE_LOW, QUAD_ANKLE_HIGH, &side);
    q_real qd2 = s->qd[i][1] * Q_LEG_SIGN(i);
    q_mask on = Q_HAS(rows, QUAD_ROW_LIMIT2);
    Q(limit_add)(w, gap, side, QUAD_WEIGHT_ANKLE_JOINT, on, qd2, &k->k22, &k->r2);
  }
  if (!Q_ANY(Q_HAS(rows, QUAD_ROW_LIMIT1 - 1))) return;
  Q_ROLLED
  for (int j = 0; j < QUAD_POINTS; j++) {
    if (!Q_ANY(Q_HAS(rows, 15 << 4 * j))) continue;
    int link = j / 2;
    Q(place) at;
    Q(point) pt;
    q_real m[6], f[3], t1[3], t2[3], v[3];
    q_real vl[2] = {s->qd[i][0], s->qd[i][1] * Q_LEG_SIGN(i)};
    Q(place_of)(b, g, i, (j + 1) / 2, link, &at);
    Q(point_of)(w, b, at.c, at.axis, at.dist, Q_C(QUAD_RADIUS), Q(link_weight)(link), &pt);
    Q(point_arms)(&at, g, &pt, t1, t2);
    Q(point_moves)(&pt, b->v, vl, t1, t2, link, v);
    for (int c = 0; c < 3; c++) v[c] = Q_C(w->damp_b) * v[c];
    Q(point_weight)(b, &pt, rows, 1 << 4 * j, v, m, f);
    Q(point_base)(pt.p, m, f, sys);
    if (link > 0) Q(point_leg)(pt.p, m, f, t1, t2, link == 2, k);
  }
}

// Returns the rows that push at x (base) and xl (joints), which are accelerations plus damp_b times velocities.
// Only rows in `all` count.
Q_FN q_bits Q(leg_rows)(const Q(world) * w, const Q(state) * s, const Q(base) * b, const Q(leg) * g,
                        int i, q_bits all, const q_real x[6], const q_real xl[2]) {
  q_real side;
  q_bits rows = all & 0;
  if (Q_ANY(Q_HAS(all, QUAD_ROW_LIMIT1))) {
    q_real gap = Q(limit_gap)(s->q[i][0], -QUAD_HIP_LIMIT, QUAD_HIP_LIMIT, &side);
    rows |= Q(limit_row)(w, gap, side, QUAD_WEIGHT_HIP_JOINT, xl[0], QUAD_ROW_LIMIT1);
  }
  if (Q_ANY(Q_HAS(all, QUAD_ROW_LIMIT2))) {
    q_real q2 = s->q[i][1] * Q_LEG_SIGN(i);
    q_real gap = Q(limit_gap)(q2, QUAD_ANKLE_LOW, QUAD_ANKLE_HIGH, &side);
    rows |= Q(limit_row)(w, gap, side, QUAD_WEIGHT_ANKLE_JOINT, xl[1], QUAD_ROW_LIMIT2);
  }
  if (!Q_ANY(Q_HAS(all, QUAD_ROW_LIMIT1 - 1))) return rows;
  Q_ROLLED
  for (int j = 0; j < QUAD_POINTS; j++) {
    if (!Q_ANY(Q_HAS(all, 15 << 4 * j))) continue;
    int link = j / 2;
    Q(place) at;
    Q(point) pt;
    q_real e[3], t1[3], t2[3];
    Q(place_of)(b, g, i, (j + 1) / 2, link, &at);
    Q(point_of)(w, b, at.c, at.axis, at.dist, Q_C(QUAD_RADIUS), Q(link_weight)(link), &pt);
    Q(point_arms)(&at, g, &pt, t1, t2);
    Q(point_moves)(&pt, x, xl, t1, t2, link, e);
    rows |= Q(point_rows)(b, &pt, e, 1 << 4 * j);
  }
  return rows & all;
}

Q_FN void Q(torso_point)(const Q(world) * w, const Q(base) * b, Q(point) * pt) {
  const q_real zero = Q_C(0.0), centre[3] = {zero, zero, zero};
  q_real dist = b->z - Q_C(QUAD_TORSO_RADIUS), ex[3], ey[3];
  Q(level_recompute)(b, ex, ey);
  Q(point_of)(w, b, centre, ey, dist, Q_C(QUAD_TORSO_RADIUS), Q_C(4 * QUAD_WEIGHT_TORSO), pt);
}

// Returns the rows that could push in this state: exceeded limits, and the points that touch. *touch: these points.
Q_FN q_bits Q(leg_all)(const Q(world) * w, const Q(state) * s, const Q(base) * b, const Q(leg) * g,
                       int i, q_bits *touch) {
  q_real side, dist[4], margin = Q_C(w->margin);
  Q(distances)(b, g, i, dist);
  q_real gap = Q(limit_gap)(s->q[i][0], -QUAD_HIP_LIMIT, QUAD_HIP_LIMIT, &side);
  q_bits all = Q_BIT(gap < Q_C(0.0), QUAD_ROW_LIMIT1);
  gap = Q(limit_gap)(s->q[i][1] * Q_LEG_SIGN(i), QUAD_ANKLE_LOW, QUAD_ANKLE_HIGH, &side);
  all |= Q_BIT(gap < Q_C(0.0), QUAD_ROW_LIMIT2);
  all |= Q_BIT(dist[0] < margin, 15) | Q_BIT(dist[1] < margin, 15 << 4 | 15 << 8);
  all |= Q_BIT(dist[2] < margin, 15 << 12 | 15 << 16) | Q_BIT(dist[3] < margin, 15 << 20);
  *touch = Q_BIT(dist[0] < margin, QUAD_TOUCH_AUX_CENTRE) |
           Q_BIT(dist[1] < margin, QUAD_TOUCH_AUX_HIP | QUAD_TOUCH_HIP_HIP) |
           Q_BIT(dist[2] < margin, QUAD_TOUCH_HIP_KNEE | QUAD_TOUCH_ANKLE_KNEE) |
           Q_BIT(dist[3] < margin, QUAD_TOUCH_FOOT);
  return all;
}

#endif  // Q_LEGS
