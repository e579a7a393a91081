// The failure detail: per thread, translated, bounded, and safe when its own text is an argument.
#include "base/base_status.h"

#include <errno.h>
#include <pthread.h>

#include "test.h"

static void names_and_texts(void **state) {
  (void)state;
  assert_string_equal(brim_status_name(BRIM_OK), "BRIM_OK");
  assert_string_equal(brim_status_name(BRIM_EABI), "BRIM_EABI");
  assert_string_equal(brim_status_text(BRIM_EEND), "end of data");
  assert_string_equal(brim_status_name((brim_status)-99), "BRIM_?");
}

static void detail_is_set_and_cleared(void **state) {
  (void)state;
  assert_int_equal(brim_fail(BRIM_EINVAL, "bad %s %d", "thing", 7), BRIM_EINVAL);
  assert_string_equal(brim_status_detail(), "bad thing 7");
  brim_status_clear();
  assert_string_equal(brim_status_detail(), "");
  brim_status_set_detail("100% literal");
  assert_string_equal(brim_status_detail(), "100% literal");
  brim_status_set_detail(NULL);
  assert_string_equal(brim_status_detail(), "");
}

static void places(void **state) {
  (void)state;
  brim_fail_at(BRIM_EPARSE, "a.yaml", 3, 4, "odd %c", 'x');
  assert_string_equal(brim_status_detail(), "a.yaml:3:4: odd x");
  brim_fail_at(BRIM_EPARSE, "a.yaml", 3, 0, "odd");
  assert_string_equal(brim_status_detail(), "a.yaml:3: odd");
  brim_fail_at(BRIM_EPARSE, "a.yaml", 0, 9, "odd");
  assert_string_equal(brim_status_detail(), "a.yaml: odd");
  brim_fail_at(BRIM_EPARSE, NULL, 0, 0, "odd");
  assert_string_equal(brim_status_detail(), "odd");
}

static void context_goes_in_front(void **state) {
  (void)state;
  brim_fail(BRIM_EIO, "disk full");
  assert_int_equal(brim_fail_context(BRIM_EIO, "saving step %d", 5), BRIM_EIO);
  assert_string_equal(brim_status_detail(), "saving step 5: disk full");
  brim_status_clear();
  brim_fail_context(BRIM_EIO, "alone");
  assert_string_equal(brim_status_detail(), "alone");
}

static void own_detail_as_argument(void **state) {
  (void)state;
  brim_fail(BRIM_EIO, "inner");
  brim_fail(BRIM_EINVAL, "outer (%s)", brim_status_detail());
  assert_string_equal(brim_status_detail(), "outer (inner)");
  brim_status_set_detail(brim_status_detail() + 6);
  assert_string_equal(brim_status_detail(), "(inner)");
}

static void long_text_is_cut_between_characters(void **state) {
  (void)state;
  char text[9000];
  for (size_t i = 0; i + 3 < sizeof text; i += 3) memcpy(text + i, "\xED\x95\x9C", 3);
  text[8997] = '\0';
  brim_fail(BRIM_EINVAL, "%s", text);
  size_t n = strlen(brim_status_detail());
  assert_true(n > 1000 && n < sizeof text);
  assert_int_equal(n % 3, 0);
  for (int i = 0; i < 50; i++) brim_fail_context(BRIM_EINVAL, "context %d", i);
  assert_int_equal(strncmp(brim_status_detail(), "context 49: context 48: ", 24), 0);
}

static void *other_thread(void *arg) {
  (void)arg;
  if (brim_status_detail()[0] != '\0') return "not empty at start";
  brim_fail(BRIM_EINVAL, "theirs");
  return strcmp(brim_status_detail(), "theirs") == 0 ? NULL : (void *)"not set";
}

static void threads_do_not_share(void **state) {
  (void)state;
  brim_fail(BRIM_EINVAL, "mine");
  pthread_t thread;
  void *complaint;
  assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
  pthread_join(thread, &complaint);
  assert_null(complaint);
  assert_string_equal(brim_status_detail(), "mine");
}

static brim_status try_it(brim_status status, int *reached) {
  BRIM_TRY(status);
  *reached = 1;
  return BRIM_OK;
}

static void try_returns_early(void **state) {
  (void)state;
  int reached = 0;
  assert_int_equal(try_it(BRIM_EEND, &reached), BRIM_EEND);
  assert_int_equal(reached, 0);
  assert_int_equal(try_it(BRIM_OK, &reached), BRIM_OK);
  assert_int_equal(reached, 1);
}

static void errno_values(void **state) {
  (void)state;
  assert_int_equal(brim_errno_status(0), BRIM_OK);
  assert_int_equal(brim_errno_status(ENOENT), BRIM_ENOENT);
  assert_int_equal(brim_errno_status(EACCES), BRIM_EIO);
  assert_string_equal(brim_errno_text(ENOENT), "No such file or directory");
  assert_string_equal(brim_errno_text(123456), "unknown error");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_texts),
      cmocka_unit_test(detail_is_set_and_cleared),
      cmocka_unit_test(places),
      cmocka_unit_test(context_goes_in_front),
      cmocka_unit_test(own_detail_as_argument),
      cmocka_unit_test(long_text_is_cut_between_characters),
      cmocka_unit_test(threads_do_not_share),
      cmocka_unit_test(try_returns_early),
      cmocka_unit_test(errno_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
