// The quadruped against mechanics itself: the conserved quantities of a free body, and how fast an integrator's errors
// vanish with the timestep. Energy and momentum are computed here from the links' geometry alone, not from the step's
// own matrices.
#include <math.h>

#include "env/quadruped/quadruped_f64.h"
#include "test.h"

typedef struct vec {
  double x, y, z;
} vec;

static vec add(vec a, vec b) { return (vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static vec times(double s, vec a) { return (vec){s * a.x, s * a.y, s * a.z}; }
static double dot(vec a, vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static vec cross(vec a, vec b) {
  return (vec){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// Rotates v by a unit quaternion.
static vec rotate(const double q[4], vec v) {
  vec u = {q[1], q[2], q[3]}, t = times(2, cross(u, v));
  return add(v, add(times(q[0], t), cross(u, t)));
}

typedef struct tally {
  double mass, energy;
  vec momentum, spin, moment;  // spin: about the origin; moment: mass times centre
} tally;

// A link's mass and inertia, I = across 1 + (along - across) axis axis'.
typedef struct body {
  double mass, along, across;
} body;
static const body torso_body = {QUAD_TORSO_MASS, QUAD_TORSO_INERTIA, QUAD_TORSO_INERTIA};
static const body hip_body = {QUAD_HIP_MASS, QUAD_HIP_ALONG, QUAD_HIP_ACROSS};
static const body ankle_body = {QUAD_ANKLE_MASS, QUAD_ANKLE_ALONG, QUAD_ANKLE_ACROSS};

// The state of a link, in the world's frame.
static void add_link(tally *t, const body *b, vec axis, vec at, vec v, vec w, double gravity) {
  double mass = b->mass;
  vec h = add(times(b->across, w), times((b->along - b->across) * dot(axis, w), axis));
  t->mass += mass;
  t->energy += 0.5 * (mass * dot(v, v) + dot(w, h)) + mass * gravity * at.z;
  t->momentum = add(t->momentum, times(mass, v));
  t->spin = add(t->spin, add(h, times(mass, cross(at, v))));
  t->moment = add(t->moment, times(mass, at));
}

static tally count(const brim_quad_f64_state *s, double gravity) {
  static const double sx[4] = {1, -1, -1, 1}, sy[4] = {1, 1, -1, -1}, bend[4] = {-1, 1, -1, 1};
  tally t = {0};
  const double *q = s->quat, len = QUAD_LINK, half = QUAD_LINK / 2;
  vec at = {s->pos[0], s->pos[1], s->pos[2]}, v = {s->vel[0], s->vel[1], s->vel[2]};
  vec w = rotate(q, (vec){s->omega[0], s->omega[1], s->omega[2]});
  add_link(&t, &torso_body, (vec){0, 0, 1}, at, v, w, gravity);
  for (int k = 0; k < 4; k++) {
    double c = cos(s->q[k][0]), d = sin(s->q[k][0]), r = sqrt(0.5);
    vec mount = {r * sx[k], r * sy[k], 0};
    vec along = {c * mount.x - d * mount.y, d * mount.x + c * mount.y, 0};
    vec axis = {r * bend[k], r, 0};
    axis = (vec){c * axis.x - d * axis.y, d * axis.x + c * axis.y, 0};
    // Rodrigues' formula: the ankle link, turned about an axis perpendicular to it
    double e = cos(s->q[k][1]), f = sin(s->q[k][1]);
    vec down = add(times(e, along), times(f, cross(axis, along)));
    mount = rotate(q, mount), along = rotate(q, along);
    axis = rotate(q, axis), down = rotate(q, down);
    vec up = rotate(q, (vec){0, 0, 1});
    add_link(&t, &hip_body, mount, add(at, times(half, mount)),
             add(v, cross(w, times(half, mount))), w, gravity);
    vec hip = add(at, times(len, mount)), vh = add(v, cross(w, times(len, mount)));
    vec w1 = add(w, times(s->qd[k][0], up));
    add_link(&t, &hip_body, along, add(hip, times(half, along)),
             add(vh, cross(w1, times(half, along))), w1, gravity);
    vec knee = add(hip, times(len, along)), vk = add(vh, cross(w1, times(len, along)));
    vec w2 = add(w1, times(s->qd[k][1], axis));
    add_link(&t, &ankle_body, down, add(knee, times(len, down)),
             add(vk, cross(w2, times(len, down))), w2, gravity);
    for (int j = 0; j < 2; j++) t.energy += 0.5 * QUAD_ARMATURE * s->qd[k][j] * s->qd[k][j];
  }
  return t;
}

// High above the floor, joints within their limits, every part moving.
static brim_quad_f64_state thrown(void) {
  static const double sign[4] = {1, -1, -1, 1};
  brim_quad_f64_state s = {.pos = {0.3, -0.2, 50},
                           .quat = {0.8, 0.36, -0.48, 0},
                           .vel = {1, -2, 0.5},
                           .omega = {2, -1.5, 3}};
  for (int k = 0; k < 4; k++) {
    s.q[k][0] = 0.1 * (k - 1.5);
    s.q[k][1] = sign[k] * (0.8 + 0.05 * k);
    s.qd[k][0] = 0.3 * (k - 1);
    s.qd[k][1] = 0.4 - 0.2 * k;
  }
  return s;
}

typedef struct drift {
  double energy, momentum, spin;  // largest drift of each
} drift;

static double length(vec a) { return sqrt(dot(a, a)); }

// Spin about the centre of mass.
static vec own_spin(const tally *t) {
  return add(t->spin, times(-1 / t->mass, cross(t->moment, t->momentum)));
}

static drift fly(double timestep, int rk4, double gravity, double seconds) {
  brim_quad_f64_state s = thrown();
  brim_quad_f64_world w = brim_quad_f64_world_make(timestep, 0.01, rk4);
  w.damping = 0;
  w.gravity = gravity;
  double ctrl[4][2] = {{0}};
  tally first = count(&s, gravity);
  int steps = (int)lround(seconds / timestep);
  for (int i = 0; i < steps; i++) brim_quad_f64_step(&w, &s, ctrl, NULL);
  tally last = count(&s, gravity);
  vec fell = {0, 0, first.mass * gravity * seconds};
  drift d = {fabs(last.energy - first.energy),
             length(add(add(last.momentum, fell), times(-1, first.momentum))),
             length(add(own_spin(&last), times(-1, own_spin(&first))))};
  return d;
}

static void masses_add_up(void **state) {
  (void)state;
  brim_quad_f64_state s = thrown();
  tally t = count(&s, 0);
  assert_true(fabs(t.mass - QUAD_MASS) < 1e-15);
  assert_true(fabs(t.mass - 0.9108800827073915) < 1e-15);
}

// Undamped, in flight: energy, momentum and spin are kept. Their errors fall by a factor between low and high when the
// timestep is halved.
static void check_order(int rk4, double timestep, double gravity, double low, double high) {
  drift a = fly(timestep, rk4, gravity, 0.2), b = fly(timestep / 2, rk4, gravity, 0.2);
  print_message("  energy %.3g -> %.3g, momentum %.3g -> %.3g, spin %.3g -> %.3g\n", a.energy,
                b.energy, a.momentum, b.momentum, a.spin, b.spin);
  assert_true(a.energy > low * b.energy && a.energy < high * b.energy);
  assert_true(a.momentum > low * b.momentum && a.momentum < high * b.momentum);
  assert_true(a.spin > low * b.spin && a.spin < high * b.spin);
  assert_true(b.energy < 0.02 && b.momentum < 0.005 && b.spin < 0.005);
}

static void euler_first_order(void **state) {
  (void)state;
  check_order(0, 0.001, 0, 1.8, 2.2);
  check_order(0, 0.001, QUAD_GRAVITY, 1.8, 2.2);
}

// MuJoCo's RK4 turns the torso by the mean angular velocity of the stages, which is exact only to second order if the
// axis moves.
static void rk4_second_order_turning(void **state) {
  (void)state;
  check_order(1, 0.02, 0, 3.5, 4.5);
  check_order(1, 0.02, QUAD_GRAVITY, 3.5, 4.5);
}

// The order is four without rotation: all ankles swing alike, and the torso goes up and down.
static double swing(double timestep) {
  static const double sign[4] = {1, -1, -1, 1};
  brim_quad_f64_state s = {.pos = {0, 0, 50}, .quat = {1, 0, 0, 0}};
  brim_quad_f64_world w = brim_quad_f64_world_make(timestep, 0.01, 1);
  double ctrl[4][2] = {{0}};
  w.damping = 0;
  for (int k = 0; k < 4; k++) {
    s.q[k][1] = 0.6 * sign[k];
    s.qd[k][1] = 5 * sign[k];
  }
  double first = count(&s, QUAD_GRAVITY).energy;
  int steps = (int)lround(0.1 / timestep);
  for (int i = 0; i < steps; i++) brim_quad_f64_step(&w, &s, ctrl, NULL);
  assert_true(fabs(s.omega[0]) + fabs(s.omega[1]) + fabs(s.omega[2]) < 1e-12);
  return fabs(count(&s, QUAD_GRAVITY).energy - first);
}

static void rk4_fourth_order(void **state) {
  (void)state;
  double a = swing(0.05), b = swing(0.025);
  print_message("  energy %.3g -> %.3g\n", a, b);
  assert_true(a < 1e-4 && a > 11 * b && a < 24 * b);
}

// The energy lost by damping is the integral of damping * speed^2.
static void damping_takes_energy(void **state) {
  (void)state;
  const double h = 0.0005;
  brim_quad_f64_state s = thrown();
  brim_quad_f64_world w = brim_quad_f64_world_make(h, 0.01, 1);
  double ctrl[4][2] = {{0}}, taken = 0, before = 0;
  tally first = count(&s, QUAD_GRAVITY);
  double energy = first.energy;
  for (int i = 0; i <= 400; i++) {
    double power = 0;
    for (int k = 0; k < 4; k++) {
      for (int j = 0; j < 2; j++) power += QUAD_DAMPING * s.qd[k][j] * s.qd[k][j];
    }
    if (i > 0) taken += h * (power + before) / 2;
    before = power;
    double now = count(&s, QUAD_GRAVITY).energy;
    assert_true(now <= energy + 1e-12);
    energy = now;
    if (i < 400) brim_quad_f64_step(&w, &s, ctrl, NULL);
  }
  assert_true(taken > 0.01);
  assert_true(fabs(first.energy - energy - taken) < 1e-5 * taken);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masses_add_up),
      cmocka_unit_test(euler_first_order),
      cmocka_unit_test(rk4_second_order_turning),
      cmocka_unit_test(rk4_fourth_order),
      cmocka_unit_test(damping_takes_energy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
