// The form of the quadruped that rollouts use on a GPU, one step from every recorded state and from random ones:
// compared with MuJoCo's record and with the fp64 form, which agrees with MuJoCo to 1e-12 (test_quadruped_mujoco).
// Skipped without a GPU.
#include "base/base.h"
#include "cuda_extension.h"
#include "env/quadruped/quadruped_physics.h"
#include "quadruped_states.h"

static void gpu_step(const cuda_extension *g, const setting *set, int n, sample *s) {
  brim_quadruped env = {
      .rk4 = set->rk4, .timestep = (float)set->timestep, .margin = (float)set->margin};
  const brim_physics_table *table = g->table;
  size_t bytes = (size_t)n * sizeof(brim_physics_state);
  brim_physics_state *host = calloc((size_t)n, sizeof(*host));
  void *block = NULL;
  assert_non_null(host);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < 15; k++) host[i].qpos[k] = (float)s[i].qpos[k];
    for (int k = 0; k < 14; k++) host[i].qvel[k] = (float)s[i].qvel[k];
    for (int k = 0; k < 8; k++) host[i].act[k] = (float)s[i].act[k];
  }
  assert_ok(brim_device_alloc(g->device, BRIM_BUFFER_DEVICE, bytes, &block));
  assert_ok(brim_device_copy(g->device, block, host, bytes, BRIM_COPY_H2D));
  assert_ok(table->step(g->device->stream, &env, block, n, 1));
  assert_ok(brim_device_copy(g->device, host, block, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g->device));
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < 15; k++) s[i].qpos[k] = (double)host[i].qpos[k];
    for (int k = 0; k < 14; k++) s[i].qvel[k] = (double)host[i].qvel[k];
    memcpy(s[i].touch, host[i].touch, sizeof(s[i].touch));
    s[i].newton = host[i].newton;
    s[i].open = host[i].open;
  }
  brim_device_free(g->device, BRIM_BUFFER_DEVICE, block);
  free(host);
}

// want: MuJoCo's state after `from`, or NULL: the fp64 form's.
static void hold(const cuda_extension *g, const setting *set, int n, const sample *from,
                 const sample *want) {
  sample *got = calloc((size_t)n, sizeof(*got)), *f64 = calloc((size_t)n, sizeof(*f64));
  errors e = {.qvel = calloc((size_t)n, sizeof(double))};
  assert_non_null(got);
  assert_non_null(f64);
  assert_non_null(e.qvel);
  memcpy(got, from, (size_t)n * sizeof(*got));
  memcpy(f64, from, (size_t)n * sizeof(*f64));
  forms[FORM_F64].step(set, n, f64);
  gpu_step(g, set, n, got);
  for (int i = 0; i < n; i++) {
    sample w = want ? want[i] : f64[i];
    memcpy(w.touch, f64[i].touch, sizeof(w.touch));
    errors_add(&e, &got[i], &w, &from[i], set->margin);
  }
  errors_check(&e, "cuda", 0);
  free(got);
  free(f64);
  free(e.qvel);
}

static void recorded_on_cuda(void **state) {
  const trace *t = *state;
  static sample from[LINES];
  static int contacts[LINES];
  cuda_extension g;
  int n = read_trace(t->name, from, contacts) - 1;
  assert_true(n > 0);
  if (!cuda_extension_open(&g, BRIM_PHYSICS_EXTENSION, BRIM_PHYSICS_ABI)) BRIM_SKIP("no GPU here");
  print_message("%s: %d steps\n", t->name, n);
  setting set = {.timestep = 0.01, .margin = t->margin, .rk4 = t->rk4};
  hold(&g, &set, n, from, from + 1);
  cuda_extension_close(&g);
}

static void random_on_cuda(void **state) {
  (void)state;
  cuda_extension g;
  if (!cuda_extension_open(&g, BRIM_PHYSICS_EXTENSION, BRIM_PHYSICS_ABI)) BRIM_SKIP("no GPU here");
  sample *from = calloc(STATES, sizeof(*from));
  assert_non_null(from);
  uint64_t seed = 7;
  for (int i = 0; i < STATES; i++) draw_state(&seed, i % 4, &from[i]);
  for (int i = 0; i < 4; i++) {
    setting set = {.timestep = 0.01, .margin = i & 1 ? 0.02 : 0.01, .rk4 = i / 2};
    print_message("%s, margin %g: %d states\n", set.rk4 ? "RK4" : "Euler", set.margin, STATES);
    hold(&g, &set, STATES, from, NULL);
  }
  free(from);
  cuda_extension_close(&g);
}

int main(void) {
  enum { TRACES = sizeof(traces) / sizeof(*traces) };
  test_filter();
  struct CMUnitTest tests[TRACES + 1] = {[TRACES] = cmocka_unit_test(random_on_cuda)};
  for (size_t i = 0; i < TRACES; i++) {
    tests[i] = (struct CMUnitTest){.name = traces[i].name,
                                   .test_func = recorded_on_cuda,
                                   .initial_state = (void *)(uintptr_t)&traces[i]};
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
