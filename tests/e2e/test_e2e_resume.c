// --resume-from: inside its own folder it continues; into a folder with another run it is refused and changes nothing.
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

// After the folders were renamed, class 1 is not the class the network was trained on.
static void test_other_classes(void **state) {
  (void)state;
  static const char *const make[] = {
      "data", "make",      "set", "--format",       "png", "--shape", "8,8,3", "--samples",
      "20",   "--classes", "2",   "--test-samples", "4",   NULL};
  static const char *const said =
      "was trained with other classes or another class order: "
      "class 0 was '0' and is '1' now";
  char *text = NULL;
  assert_int_equal(system("rm -rf set run"), 0);
  assert_int_equal(e2e_run(make, NULL, NULL), 0);
  for (int i = 0; i < 3; i++) {
    const char *args[] = {"train",
                          "--data-path",
                          "set",
                          "model=mlp(depth=1, hidden=8)",
                          "--device",
                          "ref",
                          "--output-dir",
                          "run",
                          "--max-steps",
                          i == 0   ? "2"
                          : i == 1 ? "4"
                                   : "6",
                          i ? "--resume" : NULL,
                          NULL};
    // the second time as it was, the third time under other names, in another order
    if (i == 2) assert_int_equal(system("for s in train test; do mv set/$s/0 set/$s/2; done"), 0);
    assert_int_equal(e2e_run(args, NULL, &text), 0);
    assert_int_equal(strstr(text, said) != NULL, i == 2);
    brim_free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_from),
                                     cmocka_unit_test(test_other_classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
