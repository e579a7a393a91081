// k ranks with a part of the batch each give the same training as one rank with the whole batch: ResNet-18 (width 4) on
// 16x16, batch norm over all ranks, fp32, SGD 0.1, 60 steps, for 2 ranks of brim's launcher and 2 or 4 of MPI.
//
// The steps begin at weights that have learned their data. At random weights training is chaotic: a change in the last
// bit of one weight grows by an order of magnitude every few steps, on one rank as on several, so weights after 100
// steps cannot be compared (test_engine_ranks compares those steps in double). Here rounding errors stay small, while
// weights move by hundreds of times the bound, and batch norm over each rank's own rows would miss it by as much.
#include <math.h>

#include "cli_test.h"
#include "engine/engine.h"
#include "mpi_run.h"

static const char config[] =
    "model: resnet18(width=4)\ndataset: synthetic(shape=[16, 16, 3], samples=16)\n"
    "data: {batch_size: 16}\noptimizer: sgd\ntraining: {learning_rate: 0.1, epochs: 100,\n"
    "  eval_interval: 0, precision: fp32}\ndevice: cpu\nthreads: 1\nseed: 1\n"
    "checkpoint: {interval: 1000, keep: 1}\n";

#define STEPS "--weights learned/model.safetensors --max-steps 60 -q --output-dir "

static int learn(void **state) {
  (void)state;
  write_file("equal.yaml", config);
  expect(0, NULL, "rm -rf learned one; brim train equal.yaml -q --output-dir learned");
  expect(0, NULL, "brim train equal.yaml " STEPS "one");
  return 0;
}

// Relative L2 distance between the weights of two models, without running statistics.
static double distance(const char *a, const char *b) {
  char path[256];
  brim_safetensors *x = NULL, *y = NULL;
  double apart = 0, size = 0;
  snprintf(path, sizeof path, "%s/model.safetensors", a);
  assert_ok(brim_safetensors_open(path, &x));
  snprintf(path, sizeof path, "%s/model.safetensors", b);
  assert_ok(brim_safetensors_open(path, &y));
  assert_true(brim_safetensors_count(x) > 60);
  for (size_t i = 0; i < brim_safetensors_count(x); i++) {
    const brim_safetensors_entry *e = brim_safetensors_at(x, i);
    const brim_safetensors_entry *f = brim_safetensors_find(y, e->name);
    if (e->dtype != BRIM_F32 || strstr(e->name, "running_")) continue;
    assert_non_null(f);
    assert_int_equal(e->bytes, f->bytes);
    for (size_t k = 0; k < e->bytes / sizeof(float); k++) {
      float p, q;
      memcpy(&p, (const char *)e->data + k * sizeof p, sizeof p);
      memcpy(&q, (const char *)f->data + k * sizeof q, sizeof q);
      apart += ((double)p - (double)q) * ((double)p - (double)q);
      size += (double)p * (double)p;
    }
  }
  brim_safetensors_close(x);
  brim_safetensors_close(y);
  return sqrt(apart / size);
}

static void expect_equal(const char *folder) {
  double apart = distance("one", folder), moved = distance("learned", folder);
  print_message("%s: %.2g from one rank, %.2g from where they began\n", folder, apart, moved);
  assert_true(apart <= 1e-5);
  assert_true(moved >= 2e-4);
}

static void test_launcher(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf two; brim train equal.yaml --ranks 2 " STEPS "two");
  expect_equal("two");
}

static void test_own_statistics_are_seen(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf local; brim train equal.yaml --ranks 2 sync_batchnorm=false " STEPS "local");
  assert_true(distance("one", "local") > 2e-4);
}

static void run_under_mpi(const char *ranks) {
  const char *argv[16];
  char line[1024] = "";
  size_t n = mpi_arguments(ranks, argv), length = 0;
  for (size_t i = 0; i < n; i++) {
    length += (size_t)snprintf(line + length, sizeof line - length, "%s ", argv[i]);
  }
  shell_result r =
      shell("rm -rf mpi%s; %s %s train equal.yaml " STEPS "mpi%s", ranks, line, BRIM_BINARY, ranks);
  if (r.code != 0) fail_msg("exit %d: %s%s", r.code, r.out, r.err);
  shell_free(&r);
}

static void test_mpi(void **state) {
  (void)state;
  const char *why;
  if (!mpi_is_here(BRIM_BUILD_DIR "/lib/brim/ranks/libbrim_mpi.so", &why)) BRIM_SKIP(why);
  const bool four = test_is_sampled(0, 4);
  if (!four || test_is_full()) {
    run_under_mpi("2");
    expect_equal("mpi2");
  }
  if (four) {
    run_under_mpi("4");
    expect_equal("mpi4");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_launcher),
      cmocka_unit_test(test_own_statistics_are_seen),
      cmocka_unit_test(test_mpi),
  };
  return cmocka_run_group_tests(tests, learn, NULL);
}
