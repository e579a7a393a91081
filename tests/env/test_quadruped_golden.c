// One step from every state of recorded traces of MuJoCo 2.2.2 and 3.9.0, in every form.
#include "env/quadruped/quadruped_model.h"
#include "quadruped_states.h"

static int bits_of(int x) {
  int n = 0;
  for (; x; x &= x - 1) n++;
  return n;
}

static void from_every_state(void **state) {
  const trace *t = *state;
  static sample from[LINES], want[LINES], got[LINES];
  static double worst[LINES];
  static int contacts[LINES];
  int n = read_trace(t->name, from, contacts) - 1;
  assert_true(n >= 400);
  print_message("%s: %d steps\n", t->name, n);
  setting set = {.timestep = 0.01, .margin = t->margin, .rk4 = t->rk4};
  for (int i = 0; i < n; i++) want[i] = from[i + 1];
  memcpy(got, from, sizeof(from));
  forms[FORM_F64].step(&set, n, got);
  for (int i = 0; i < n; i++) {
    int points = 0;
    for (int k = 0; k < 4; k++) points += bits_of(want[i].touch[k] = got[i].touch[k]);
    if (!t->rk4) assert_int_equal(points, contacts[i]);  // RK4 reports those of its last evaluation
  }
  for (int f = 0; f < FORM_COUNT; f++) {
    errors e = {.qvel = worst};
    memcpy(got, from, sizeof(from));
    forms[f].step(&set, n, got);
    for (int i = 0; i < n; i++) errors_add(&e, &got[i], &want[i], &from[i], t->margin);
    errors_check(&e, forms[f].name, f == FORM_F64);
  }
}

int main(void) {
  test_filter();
  struct CMUnitTest tests[sizeof(traces) / sizeof(*traces)];
  for (size_t i = 0; i < sizeof(traces) / sizeof(*traces); i++) {
    tests[i] = (struct CMUnitTest){.name = traces[i].name,
                                   .test_func = from_every_state,
                                   .initial_state = (void *)(uintptr_t)&traces[i]};
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
