// Runs of version 0.1 continue. tests/data/v0.1 has their folders, each stopped after 7 steps by that version, on the
// device ref. This version resumes them from their own config.yaml to the end.
#include <unistd.h>

#include "cli_test.h"

#define OLDER BRIM_SOURCE_DIR "/tests/data/v0.1/"

// Copies the folder of an old run, which is `ended` steps long in all.
static void resume(const char *name, int ended, const char *figure) {
  shell_result r = shell("rm -rf %s && mkdir %s && cp '" OLDER "%s'/* %s/ && chmod u+w %s/*", name,
                         name, name, name, name);
  if (r.code) fail_msg("%s: %s", name, r.err);
  shell_free(&r);
  r = shell("brim train %s/config.yaml --device ref --resume --output-dir %s --json", name, name);
  if (r.code) fail_msg("%s: exit %d: %s", name, r.code, r.err);
  // no setting differs from the checkpoint's
  assert_null(strstr(r.err, "this run continues with"));
  char step[64];
  snprintf(step, sizeof step, "\"steps\":%d,", ended);
  assert_non_null(strstr(r.out, step));
  assert_non_null(strstr(r.out, figure));
  shell_free(&r);
  // and its model can be evaluated
  r = shell("brim eval %s/model.safetensors --device ref", name);
  if (r.code) fail_msg("%s: exit %d: %s", name, r.code, r.err);
  shell_free(&r);
}

static void test_supervised(void **state) {
  (void)state;
  resume("supervised", 16, "\"val_accuracy\"");
}

static void test_contrastive(void **state) {
  (void)state;
  resume("contrastive", 16, "\"knn\"");
}

static void test_ars(void **state) {
  (void)state;
  resume("ars", 12, "\"return\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_supervised),
      cmocka_unit_test(test_contrastive),
      cmocka_unit_test(test_ars),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
