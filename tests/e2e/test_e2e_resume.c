// --resume-from: inside its own folder it goes on; into a folder that holds another run it is
// refused and changes nothing.
#include "e2e/e2e.h"

static int train(const char *folder, const char *from, const char *steps) {
  const char *args[] = {"train",
                        "dataset=synthetic(shape=(4, 4), samples=200)",
                        "model=mlp(depth=1, hidden=8)",
                        "--device",
                        "ref",
                        "--quiet",
                        "--output-dir",
                        folder,
                        "--max-steps",
                        steps,
                        from ? "--resume-from" : NULL,
                        from,
                        NULL};
  return e2e_run(args, NULL, NULL);
}

static void test_resume_from(void **state) {
  (void)state;
  assert_int_equal(system("rm -rf one two three"), 0);
  assert_int_equal(train("one", NULL, "2"), 0);
  assert_int_equal(train("two", NULL, "3"), 0);
  assert_int_equal(system("cp two/last.safetensors two-before.safetensors"), 0);
  assert_int_equal(train("two", "one/last.safetensors", "5"), 2);
  assert_same_file("two/last.safetensors", "two-before.safetensors");
  assert_int_equal(train("two", "two/last.safetensors", "5"), 0);
  assert_int_equal(train("three", "one/last.safetensors", "5"), 0);
  assert_true(brim_fs_exists("three/last.safetensors"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_from)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
