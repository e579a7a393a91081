// says and said (cli_test.h) fail if a command prints other words than the kept ones, and tools/words renews these.
// With an argument this program is a test that keeps its words in the folder of BRIM_WORDS.
#include <unistd.h>

#include "cli_test.h"

static void test_speaks(void **state) {
  (void)state;
  says(2,
       "cat spoken; echo \"took 2 min 05 s, 1.2 M samples/s, 7 full-length runs/s at 1 m/s, in "
       "$PWD\" >&2; exit 2");
  says(0, "cat spoken");
  says(0, "cat spoken");  // the second place
  for (int i = 0; i < 3; i++) {
    write_file("spoken-in-turn", i == 1 ? "a\n" : "b\n");
    if (i || !getenv("SAMPLED")) says(0, "cat spoken-in-turn");
  }
  says_lines(0, "key:", "cat spoken");
  shell_result r = shell("cat spoken");
  said_lines(&r, "key:");
  shell_free(&r);
  says_rows(0, "row ",
            "echo 'row 3 of 0.25, -1.5e-07, 12.5 %, 1.5 KiB, 7 B in 12 ms at "
            "http://127.0.0.1:8123, x1.5 2.'");
}

static int speak(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_speaks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#define SPEAK "BRIM_WORDS=\"$PWD/tests/cli/words\" \"$TEST\" speak"

static const char first[] =
    "[test_speaks] cat spoken; echo \"took 2 min 05 s, 1.2 M samples/s, 7 full-length runs/s at 1 "
    "m/s, in $PWD\" >&2; exit 2\n"
    "exit 2\n"
    "> one line\n"
    "> key: two\n"
    "! took TIME, # samples/s, # full-length runs/s at 1 m/s, in HERE\n";

static int prepare(void **state) {
  (void)state;
  char self[4096] = {0};
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  assert_int_equal(setenv("TEST", self, 1), 0);
  unsetenv("BRIM_WORDS_RECORD");
  expect(0, NULL, "rm -rf tests recorded && mkdir -p tests/cli/words recorded");
  write_file("spoken", "one line\nkey: two\n");
  write_file("tests/cli/test_cli_words.c", "test_skipped() { test_speaks() { says(");
  write_file("tests/cli/words/test_cli_words.txt",
             "[test_gone] true\nexit 0\n"
             "[test_speaks] false\nexit 1\n"
             "[test_skipped] true\nexit 0\n> skipped\n");
  return 0;
}

#define MERGE "'" BRIM_SOURCE_DIR "/tools/words' --merge recorded . "

static void record(void) {
  expect(0, NULL, "rm -f recorded/* && BRIM_WORDS_RECORD=\"$PWD/recorded\" \"$TEST\" speak");
}

static void test_kept(void **state) {
  (void)state;
  expect(1, "nothing is kept yet", SPEAK);
  record();
  // blocks that a failed test did not reach stay
  expect(0, NULL, MERGE "test_cli_words");
  expect(0, "[test_speaks] false", "cat tests/cli/words/test_cli_words.txt");
}

static void test_renewed(void **state) {
  (void)state;
  record();
  expect(0, NULL, MERGE);
  shell_result r = shell("cat tests/cli/words/test_cli_words.txt");
  has(r.out, first);
  has(r.out, "[test_speaks] cat spoken (2)\nexit 0\n> one line\n> key: two\n");
  has(r.out, "[test_speaks] cat spoken | key:\nexit 0\n> key: two\n");
  has(r.out, "[test_speaks] cat spoken | key: (2)\nexit 0\n> key: two\n");
  has(r.out,
      " # row \nexit 0\n> row 3 of #, -#, #, #, # in TIME at http://127.0.0.1:PORT, x1.5 2.\n");
  has(r.out,
      "[test_speaks] cat spoken-in-turn\nexit 0\n> b\n"
      "[test_speaks] cat spoken-in-turn\nexit 0\n> a\n[test_speaks] cat spoken | key:\n");
  has_not(r.out, "test_gone");
  has_not(r.out, "[test_speaks] false");
  assert_ptr_equal(strstr(r.out, "[test_skipped] true\nexit 0\n> skipped\n[test_speaks]"), r.out);
  shell_free(&r);
  expect(0, NULL, SPEAK);
  expect(0, NULL, "SAMPLED=1 " SPEAK);

  write_file("spoken", "one line more\nkey: two\n");
  expect(1, "- > one line\n+ > one line more\nIf these words are right: make words", SPEAK);
  write_file("spoken", "one line\nkey: three\n");
  expect(1, "- > key: two\n+ > key: three\n", SPEAK);
  write_file("spoken", "one line\nkey two\n");
  expect(1, NULL, SPEAK);
  write_file("spoken", "one line\nkey: two\n");
  expect(0, NULL, SPEAK);
  // one line too few, and one too many
  expect(0, NULL, "sed -i '/^> one line/d' tests/cli/words/test_cli_words.txt");
  expect(1, "\n+ > one line\n", SPEAK);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "speak") == 0) return speak();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_kept, prepare),
      cmocka_unit_test_setup(test_renewed, prepare),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
