// The catalogue: translations are found, missing ones fall back, failures and logs use it.
#include "base/base_msg.h"

#include "base/base_status.h"
#include "test.h"

static const brim_msg_pair korean[] = {
    {"cannot open %s: %s", "%s: 열 수 없음: %s"},
    {"kept", NULL},
    {"warning", "경고"},
};

static void falls_back_to_english(void **state) {
  (void)state;
  assert_string_equal(brim_tr("warning"), "warning");
  brim_msg_set_catalogue(korean, 3);
  assert_string_equal(brim_tr("warning"), "경고");
  assert_string_equal(brim_tr("unknown text"), "unknown text");
  assert_string_equal(brim_tr("kept"), "kept");
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(brim_tr("warning"), "warning");
}

static void failures_are_translated(void **state) {
  (void)state;
  brim_msg_set_catalogue(korean, 3);
  brim_fail(BRIM_EIO, "cannot open %s: %s", "a", "b");
  brim_msg_set_catalogue(NULL, 0);
  assert_string_equal(brim_status_detail(), "a: 열 수 없음: b");
}

static void marker_is_the_text(void **state) {
  (void)state;
  static const char *const table[] = {
      BRIM_N_("one "
              "two")};
  assert_string_equal(table[0], "one two");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(falls_back_to_english),
      cmocka_unit_test(failures_are_translated),
      cmocka_unit_test(marker_is_the_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
