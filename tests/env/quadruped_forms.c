// The forms of the quadruped in their own file: including all of them in one translation unit also shows that the
// template undefines its macros.
#include "quadruped_forms.h"

#include <math.h>

#include "quadruped_four.h"
#include "test.h"

#include "env/quadruped/quadruped_f32.h"
#include "env/quadruped/quadruped_f64.h"
#include "env/quadruped/quadruped_simd.h"

static void step_f64(const setting *set, int n, sample *s) {
  brim_quad_f64_world w = brim_quad_f64_world_make(set->timestep, set->margin, set->rk4);
  for (int i = 0; i < n; i++) {
    brim_quad_f64_state state;
    brim_quad_f64_info info;
    double ctrl[4][2];
    brim_quad_f64_load(&state, 0, s[i].qpos, s[i].qvel);
    brim_quad_f64_load_ctrl(ctrl, 0, s[i].act);
    brim_quad_f64_step(&w, &state, ctrl, &info);
    brim_quad_f64_store(&state, 0, s[i].qpos, s[i].qvel);
    for (int k = 0; k < 4; k++) s[i].touch[k] = info.touch[k];
    s[i].newton = info.newton;
    s[i].open = info.open != 0;
  }
}

typedef struct sample32 {
  float qpos[15], qvel[14], act[8];
} sample32;

static sample32 to_float(const sample *s) {
  sample32 f;
  for (int i = 0; i < 15; i++) f.qpos[i] = (float)s->qpos[i];
  for (int i = 0; i < 14; i++) f.qvel[i] = (float)s->qvel[i];
  for (int i = 0; i < 8; i++) f.act[i] = (float)s->act[i];
  return f;
}

static void from_float(const sample32 *f, sample *s) {
  for (int i = 0; i < 15; i++) s->qpos[i] = (double)f->qpos[i];
  for (int i = 0; i < 14; i++) s->qvel[i] = (double)f->qvel[i];
}

static void step_f32(const setting *set, int n, sample *s) {
  brim_quadruped env = {
      .rk4 = set->rk4, .timestep = (float)set->timestep, .margin = (float)set->margin};
  for (int i = 0; i < n; i++) {
    brim_quad_f32_state state;
    brim_quad_f32_info info;
    float ctrl[4][2];
    sample32 f = to_float(&s[i]);
    brim_quad_f32_load(&state, 0, f.qpos, f.qvel);
    brim_quad_f32_load_ctrl(ctrl, 0, f.act);
    brim_quad_f32_substep(&env, &state, ctrl, &info);
    brim_quad_f32_store(&state, 0, f.qpos, f.qvel);
    from_float(&f, &s[i]);
    for (int k = 0; k < 4; k++) s[i].touch[k] = info.touch[k];
    s[i].newton = info.newton;
    s[i].open = info.open != 0;
  }
}

static void step_simd(const setting *set, int n, sample *s) {
  brim_quadruped env = {
      .rk4 = set->rk4, .timestep = (float)set->timestep, .margin = (float)set->margin};
  for (int i = 0; i < n; i += QUAD_LANES) {
    brim_quad_simd_state state;
    brim_quad_simd_info info;
    brim_vf ctrl[4][2];
    for (int l = 0; l < QUAD_LANES; l++) {
      sample32 f = to_float(&s[i + l < n ? i + l : n - 1]);
      brim_quad_simd_load(&state, l, f.qpos, f.qvel);
      brim_quad_simd_load_ctrl(ctrl, l, f.act);
    }
    brim_quad_simd_substep(&env, &state, ctrl, &info);
    for (int l = 0; l < QUAD_LANES && i + l < n; l++) {
      sample32 f;
      brim_quad_simd_store(&state, l, f.qpos, f.qvel);
      from_float(&f, &s[i + l]);
      for (int k = 0; k < 4; k++) s[i + l].touch[k] = info.touch[k][l];
      s[i + l].newton = info.newton;
      s[i + l].open = info.open[l] != 0;
    }
  }
}

static void step_four(const setting *set, int n, sample *s) {
  brim_quadruped env = {
      .rk4 = set->rk4, .timestep = (float)set->timestep, .margin = (float)set->margin};
  for (int i = 0; i < n; i++) {
    brim_quad_four_state state;
    brim_quad_four_info info;
    brim_vf ctrl[1][2];
    sample32 f = to_float(&s[i]), out = f;
    for (int l = 0; l < 4; l++) {
      brim_quad_four_load(&state, l, f.qpos, f.qvel);
      brim_quad_four_load_ctrl(ctrl, l, f.act);
    }
    brim_quad_four_substep(&env, &state, ctrl, &info);
    for (int l = 0; l < 4; l++) brim_quad_four_store(&state, l, out.qpos, out.qvel);
    // all four lanes have the same torso, bit for bit
    sample32 one = out;
    brim_quad_four_store(&state, 0, one.qpos, one.qvel);
    assert_memory_equal(&one, &out, sizeof(one));
    from_float(&out, &s[i]);
    for (int k = 0; k < 4; k++) s[i].touch[k] = info.touch[0][k] & (k ? 63 : 127);
    s[i].newton = info.newton;
    s[i].open = info.open[0] != 0;
  }
}

const form forms[FORM_COUNT] = {[FORM_F64] = {"f64", step_f64},
                                [FORM_F32] = {"f32", step_f32},
                                [FORM_SIMD] = {"simd", step_simd},
                                [FORM_FOUR] = {"four lanes", step_four}};

// Distances of a leg's contact points from the floor; *torso gets the torso's.
static void distances(const sample *from, int leg, double dist[4], double *torso) {
  brim_quad_f64_state s;
  brim_quad_f64_base b;
  brim_quad_f64_leg g;
  brim_quad_f64_load(&s, 0, from->qpos, from->qvel);
  brim_quad_f64_base_of(&s, &b);
  brim_quad_f64_leg_directions(&s, leg, &g);
  brim_quad_f64_distances(&b, &g, leg, dist);
  *torso = b.z - QUAD_TORSO_RADIUS;
}

double lowest(const sample *s) {
  double dist[4], low;
  distances(s, 0, dist, &low);
  for (int k = 0; k < 4; k++) {
    double torso;
    distances(s, k, dist, &torso);
    for (int j = 0; j < 4; j++) low = fmin(low, dist[j]);
  }
  return low;
}

// The largest |distance - margin| of those contact points of a leg whose bits are set in `bits`.
static double farthest(const sample *from, int leg, int bits, double margin) {
  const int spot[6] = {0, 1, 1, 2, 2, 3};
  double dist[4], torso, far = 0;
  distances(from, leg, dist, &torso);
  for (int j = 0; j < 6; j++) {
    if (bits >> j & 1) far = fmax(far, fabs(dist[spot[j]] - margin));
  }
  if (bits & QUAD_TOUCH_TORSO) far = fmax(far, fabs(torso - margin));
  return far;
}

void errors_add(errors *e, const sample *got, const sample *want, const sample *from,
                double margin) {
  double worst = 0;
  for (int i = 0; i < 14; i++) {
    double d = fabs(got->qvel[i] - want->qvel[i]);
    if (!(d <= worst)) worst = d;  // NaN too
    double scaled = d / fmax(1, fabs(want->qvel[i]));
    if (!(scaled <= e->qvel_scaled)) e->qvel_scaled = scaled;
  }
  e->qvel[e->n++] = worst;
  for (int i = 0; i < 15; i++) {
    double scaled = fabs(got->qpos[i] - want->qpos[i]) / fmax(1, fabs(want->qpos[i]));
    if (!(scaled <= e->qpos_scaled)) e->qpos_scaled = scaled;
  }
  if (got->newton > e->newton) e->newton = got->newton;
  e->open += got->open;
  for (int k = 0; k < 4; k++) {
    int other = got->touch[k] ^ want->touch[k];
    if (other && farthest(from, k, other, margin) >= 1e-6) e->flips++;
  }
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return isnan(x) ? 1 : isnan(y) ? -1 : x < y ? -1 : x > y;
}

double errors_at(errors *e, double part) {
  qsort(e->qvel, (size_t)e->n, sizeof(*e->qvel), by_size);
  int i = (int)(part * e->n);
  return e->qvel[i < e->n ? i : e->n - 1];
}

void errors_check(errors *e, const char *name, int is_f64) {
  double p99 = errors_at(e, 0.99), max = errors_at(e, 1);
  print_message(
      "  %-10s qvel max %.2g p99 %.2g median %.2g, scaled %.2g; qpos scaled %.2g; "
      "at most %d solves, %d open\n",
      name, max, p99, errors_at(e, 0.5), e->qvel_scaled, e->qpos_scaled, e->newton, e->open);
  assert_int_equal(e->flips, 0);
  if (is_f64) {
    assert_true(max <= 1e-10);
    assert_true(e->qpos_scaled <= 1e-11);
    assert_int_equal(e->open, 0);
    return;
  }
  assert_true(p99 <= 2e-5);
  assert_true(e->qvel_scaled <= 5e-4);
  assert_true(e->qpos_scaled <= 1e-6);
}
