// Parts of a sweep: readings of its GPUs for its view, over a scripted machine and a clock that the test moves; texts
// that are cut.
#include <math.h>

#include "lab/sweep/lab_sweep_int.h"
#include "lab/wire/lab_wire_link.h"
#include "place_test.h"

static brim_lab_sweep *sweep;
static brim_lab_runner runners[3];
static brim_lab_runner *list[3] = {&runners[0], &runners[1], &runners[2]};

static int setup(void **state) {
  (void)state;
  fake_reset(2);
  fake.now_ns = 1;
  fake.gpu[0].percent = 97;
  fake.gpu[0].milliwatts = 412000;
  fake.gpu[0].celsius = 61;
  pt_open((brim_lab_place_options){.devices = "auto"});
  sweep = brim_calloc(1, sizeof *sweep);
  assert_non_null(sweep);
  sweep->placing = pt.place;
  sweep->options.monitor = pt.monitor;
  memset(runners, 0, sizeof runners);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_lab_gpus_close(sweep);
  brim_free(sweep);
  pt_close();
  return 0;
}

static void pass(int64_t ms) {
  fake.now_ns += ms * 1000000;
  brim_lab_gpus_read(sweep, 1 + fake.now_ns / 1000000);
}

static brim_sweep_gpu fill(size_t i) {
  brim_sweep_gpu out;
  brim_sweep_gpu_init(&out);
  snprintf(out.id, sizeof out.id, "%s", fake.gpu[i].uuid);
  snprintf(out.name, sizeof out.name, "GPU %zu", i);
  brim_lab_gpus_fill(sweep, &out);
  return out;
}

static void look(void) { sweep->looked_ms = 1 + fake.now_ns / 1000000; }

static void test_readings(void **state) {
  (void)state;
  assert_true(isnan(fill(0).gpu_percent));
  pass(0);
  assert_true(isnan(fill(0).gpu_percent));  // an interval of no length
  look();
  pass(1000);
  const brim_sweep_gpu first = fill(0);
  assert_true(first.gpu_percent == 97);
  assert_true(fabs(first.power_w - 412) < 1e-9);
  assert_true(first.temperature_c == 61);
  assert_true(fill(1).gpu_percent == 0);
  assert_true(isnan(first.steps_per_s));
}

// Every second while someone watches a view, otherwise every ten.
static void test_how_often(void **state) {
  (void)state;
  pass(0);
  look();
  pass(1000);
  fake.gpu[0].percent = 10;
  pass(900);
  assert_true(fill(0).gpu_percent == 97);
  pass(100);
  assert_true(fill(0).gpu_percent < 97);
  pass(6000);  // the first reading after the last request for a view
  fake.gpu[0].percent = 50;
  pass(3900);
  assert_true(fill(0).gpu_percent == 10);
  pass(6200);
  assert_true(fill(0).gpu_percent > 10);
}

static void test_a_gpu_that_does_not_tell(void **state) {
  (void)state;
  fake.gpu[0].usage_code = BRIM_NVML_NOT_SUPPORTED;
  pass(0);
  look();
  pass(1000);
  assert_true(isnan(fill(0).gpu_percent) && isnan(fill(0).power_w) && isnan(fill(0).temperature_c));
  assert_true(fill(1).gpu_percent == 0);  // the other GPU has a reading
  fake.gpu[1].usage_code = BRIM_NVML_GPU_IS_LOST;
  pass(1000);
  assert_true(isnan(fill(1).gpu_percent));
}

static void test_without_a_monitor(void **state) {
  (void)state;
  sweep->options.monitor = NULL;
  pass(0);
  look();
  pass(1000);
  assert_true(isnan(fill(0).gpu_percent));
}

// The sum over the experiments on a GPU; one on two GPUs counts for both.
static void test_steps(void **state) {
  (void)state;
  char both[160];
  snprintf(both, sizeof both, "%s,%s", fake.gpu[0].uuid, fake.gpu[1].uuid);
  sweep->runners = list;
  sweep->count = 3;
  runners[0] = (brim_lab_runner){.devices = fake.gpu[0].uuid, .steps_per_s = 100};
  runners[1] = (brim_lab_runner){.devices = both, .steps_per_s = 20};
  runners[2] = (brim_lab_runner){.devices = (char *)(uintptr_t) "cpu", .steps_per_s = 3};
  assert_true(fill(0).steps_per_s == 120);
  assert_true(fill(1).steps_per_s == 20);
  brim_sweep_gpu cpu;
  brim_sweep_gpu_init(&cpu);
  snprintf(cpu.name, sizeof cpu.name, "cpu");
  brim_lab_gpus_fill(sweep, &cpu);
  assert_true(cpu.steps_per_s == 3);
  runners[0].steps_per_s = 0;  // it has not made a step yet
  runners[1].steps_per_s = 0;
  assert_true(isnan(fill(0).steps_per_s));
}

static void test_texts_are_cut_behind_a_word(void **state) {
  (void)state;
  char out[24];
  brim_lab_shorten("short enough for that", out, sizeof out);
  assert_string_equal(out, "short enough for that");
  brim_lab_shorten("the data set cannot be read at all", out, sizeof out);
  assert_string_equal(out, "the data set cannot ...");
  brim_lab_shorten("/a/path/without/any/word/at/all", out, sizeof out);
  assert_string_equal(out, "/a/path/without/any ...");
  brim_lab_shorten("데이터를읽을수없습니다", out, sizeof out);
  assert_string_equal(out, "데이터를읽을 ...");
  brim_lab_shorten("", out, sizeof out);
  assert_string_equal(out, "");
}

// Two folders of a machine give two different worker names, however long the host's name is; so do two tokens.
static void test_names_of_workers(void **state) {
  (void)state;
  static const char host[] = "ip-172-31-200-114.eu-central-1.compute.internal";
  static const char token[] = "a-token-with-a-name-of-32-letter";
  static const char *const ids[] = {"", "lab", token};
  char a[BRIM_LAB_WORKER_NAME], b[BRIM_LAB_WORKER_NAME];
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    brim_lab_worker_name(ids[i], host, "/runs/one", a);
    brim_lab_worker_name(ids[i], host, "/runs/two", b);
    assert_string_not_equal(a, b);
    assert_int_equal(strncmp(a, ids[i], strlen(ids[i])), 0);
  }
  brim_lab_worker_name("lab", "box", "/runs/one", a);
  brim_lab_worker_name("lab", "box", "/runs/one", b);
  assert_string_equal(a, b);
  assert_int_equal(strncmp(a, "lab.box-", 8), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_readings),
      TEST(test_how_often),
      TEST(test_a_gpu_that_does_not_tell),
      TEST(test_without_a_monitor),
      TEST(test_steps),
      cmocka_unit_test(test_texts_are_cut_behind_a_word),
      cmocka_unit_test(test_names_of_workers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
