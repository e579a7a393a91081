// Random calls, legal and not, against the reference model: equal replies, and equal contents after each of them. With
// "http" the calls go through a server of the store. BRIM_TEST_SEED repeats a run.
#include "lab_model_run.h"

#include <time.h>

static uint64_t rng;

static uint64_t random_bits(void) {  // splitmix64
  uint64_t z = (rng += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }

static void run(uint64_t seed, int steps) {
  printf("seed %llu, %d steps\n", (unsigned long long)seed, steps);
  fflush(stdout);
  rng = seed;
  lab_place place;
  lab_new_place(&place);
  model_begin(&place);
  for (int i = 0; i < steps && !model_full(); i++) {
    model_step();
    model_compare();
    if (i % 50 == 49) model_compare_all();
  }
  model_compare_all();
  model_end();
}

// A fixed seed, and one that each run chooses.
static void test_random_calls(void **state) {
  (void)state;
  const char *given = getenv("BRIM_TEST_SEED");
  int steps = test_is_full() ? 3000 : 1500;
  if (given) {
    run(strtoull(given, NULL, 10), steps);
    return;
  }
  run(25, steps);
  run((uint64_t)time(NULL), steps);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  model_below = below;
  model_over_http = argc > 2 && strcmp(argv[2], "http") == 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
