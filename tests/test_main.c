// The program of a folder's tests: its name, or the link it was started through, selects the main that runs. A test
// that starts itself by /proc/self/exe has lost that name, so the environment keeps it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRIM_TEST_MAIN(test, function) int function(int argc, char **argv);
#include BRIM_TEST_LIST
#undef BRIM_TEST_MAIN

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} tests[] = {
#define BRIM_TEST_MAIN(test, function) {#test, function},
#include BRIM_TEST_LIST
#undef BRIM_TEST_MAIN
};

#define NAME "BRIM_TEST_NAME"

static void run(const char *name, int argc, char **argv) {
  for (size_t i = 0; name && i < sizeof tests / sizeof *tests; i++) {
    if (strcmp(tests[i].name, name) == 0) {
      setenv(NAME, name, 1);
      exit(tests[i].run(argc, argv));
    }
  }
}

int main(int argc, char **argv) {
  const char *slash = strrchr(argv[0], '/');
  run(slash ? slash + 1 : argv[0], argc, argv);
  run(getenv(NAME), argc, argv);
  fprintf(stderr, "usage: call it by one of its tests' names:\n");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    fprintf(stderr, "  %s\n", tests[i].name);
  return 2;
}
