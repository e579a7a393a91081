// `brim report` and `brim compare` of a database; its password stays out of page and output.
#include <stdlib.h>

#include "cli_test.h"
#include "lab_stores.h"

static const lab_result rates[] = {{"0.1", 0, 0.80}, {"0.1", 1, 0.82}, {"0.01", 0, 0.90}};

static void test_database(void **state) {
  (void)state;
  const char *url = getenv("BRIM_TEST_POSTGRES");
  char *page = NULL;
  size_t size = 0;
  if (system("rm -rf folder report.html") != 0) fail_msg("cannot remove files of an earlier run");
  lab_store_make(url, rates, 3);
  lab_store_make("folder", rates, 3);
  shell_result r = shell("brim report '%s%cpassword=geheim'", url, strchr(url, '?') ? '&' : '?');
  assert_int_equal(r.code, 0);
  said_rows(&r, "report.html");
  has_not(r.out, "geheim");
  shell_free(&r);
  assert_ok(brim_fs_read("report.html", 1 << 24, &page, &size));
  has(page, "learning_rate <b>0.01</b>");
  has_not(page, "geheim");
  brim_free(page);
  r = shell("brim compare '%s' folder --json", url);
  assert_int_equal(r.code, 0);
  has(r.out, "\"only_a\":0");
  has(r.out, "\"difference\":0,");
  shell_free(&r);
}

int main(void) {
  if (!getenv("BRIM_TEST_POSTGRES")) BRIM_SKIP_ALL("no PostgreSQL server is given");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_database)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
