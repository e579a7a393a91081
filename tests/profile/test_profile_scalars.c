// Scalars of traced steps: their values, and that a second trace replaces the first. With a folder as argument it
// writes event files there and prints their contents, for read_events.py.
#include <math.h>

#include "base/base.h"
#include "profile/profile_trace.h"
#include "profile_events.h"

static const char expected[] =
    "profile/step_ms 1 1.9\n"
    "profile/phase_ms/io 1 0.3\n"
    "profile/phase_ms/forward 1 1.2\n"
    "profile/gpu_busy_ms 1 0.569001\n"
    "profile/kernels 1 2\n"
    "profile/h2d_ms 1 0.06\n"
    "profile/d2h_ms 1 0.01\n"
    "profile/step_ms 2 1.9\n"
    "profile/phase_ms/io 2 0.3\n"
    "profile/phase_ms/forward 2 1.2\n"
    "profile/gpu_busy_ms 2 0.569001\n"
    "profile/kernels 2 2\n"
    "profile/h2d_ms 2 0.06\n"
    "profile/d2h_ms 2 0.01\n";

static size_t files_in(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; i < count; i++) assert_true(brim_str_starts(names[i], "events.out.tfevents."));
  brim_fs_list_free(names, count);
  return count;
}

// Scalars that a training, or another profile, has written into the folder stay.
static void test_added(void **state) {
  (void)state;
  brim_trace trace;
  char *text = NULL;
  assert_int_equal(system("rm -rf scalars"), 0);  // left by an earlier round
  make_events(&trace);
  assert_ok(brim_scalars_write(&trace, "scalars/inner"));
  assert_int_equal(files_in("scalars/inner"), 1);
  const char *name = "scalars/inner/events.out.tfevents.1600000001.other.brim";
  assert_ok(brim_fs_write(name, "keep", 4));
  assert_ok(brim_scalars_write(&trace, "scalars/inner"));
  assert_int_equal(files_in("scalars/inner"), 3);
  assert_ok(brim_fs_read(name, 0, &text, NULL));
  assert_string_equal(text, "keep");
  brim_free(text);
  brim_trace_deinit(&trace);
}

static void test_without_steps(void **state) {
  (void)state;
  brim_trace trace;
  brim_trace_init(&trace);
  assert_ok(brim_scalars_write(&trace, "scalars/none"));
  assert_int_equal(files_in("scalars/none"), 0);
  assert_ok(brim_fs_write("scalars/file", "x", 1));
  assert_true(brim_scalars_write(&trace, "scalars/file/below") != BRIM_OK);
  brim_trace_deinit(&trace);
}

int main(int argc, char **argv) {
  if (argc == 2) {
    brim_trace trace;
    make_events(&trace);
    brim_status status = brim_scalars_write(&trace, argv[1]);
    brim_trace_deinit(&trace);
    fputs(expected, stdout);
    return status ? 1 : 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_added),
      cmocka_unit_test(test_without_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
