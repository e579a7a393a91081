// Knob rows by name and by role.
#include "record/record_knob.h"
#include "test.h"

static const brim_knob_row rows[] = {{.name = "width", .heading = "Width"},
                                     {.name = "rows", .role = BRIM_ROLE_BATCH},
                                     {.name = "threads", .role = BRIM_ROLE_WORKERS}};
static const brim_knob_set set = {.rows = rows, .count = 3};

static void test_find(void **state) {
  (void)state;
  assert_ptr_equal(brim_knob_find(&set, "rows"), &rows[1]);
  assert_null(brim_knob_find(&set, "row"));
  assert_null(brim_knob_find(NULL, "rows"));
  assert_ptr_equal(brim_knob_find_as(&set, BRIM_ROLE_WORKERS), &rows[2]);
  assert_null(brim_knob_find_as(&set, BRIM_ROLE_PRECISION));
  assert_null(brim_knob_find_as(&set, BRIM_ROLE_NONE));  // many knobs have no role
  assert_null(brim_knob_find_as(NULL, BRIM_ROLE_BATCH));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_find)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
