// Typed reads of component arguments.
#include "record/record_component.h"

#include "test.h"

static void reads(void **state) {
  (void)state;
  const brim_argument args[] = {
      {"n", {.kind = BRIM_VALUE_INT, .integer = 7, .number = 7}},
      {"x", {.kind = BRIM_VALUE_FLOAT, .number = 0.5}},
      {"on", {.kind = BRIM_VALUE_BOOL, .boolean = true}},
      {"name", {.kind = BRIM_VALUE_STRING, .string = "abc"}},
  };
  const brim_component c = {.name = "thing", .args = args, .arg_count = 4};
  assert_int_equal(brim_component_int(&c, "n", 1), 7);
  assert_int_equal(brim_component_int(&c, "missing", 1), 1);
  assert_int_equal(brim_component_int(&c, "x", 1), 1);  // a float is not an int
  assert_true(brim_component_float(&c, "x", 2) == 0.5);
  assert_true(brim_component_float(&c, "n", 2) == 7.0);  // but an int is a float
  assert_true(brim_component_float(&c, "name", 2) == 2.0);
  assert_true(brim_component_bool(&c, "on", false));
  assert_true(brim_component_bool(&c, "n", true));
  assert_string_equal(brim_component_string(&c, "name", "z"), "abc");
  assert_string_equal(brim_component_string(&c, "n", "z"), "z");
  assert_null(brim_component_string(&c, "missing", NULL));
  assert_ptr_equal(brim_component_arg(&c, "x"), &args[1].value);
  assert_null(brim_component_arg(&c, "y"));
  assert_null(brim_component_arg(NULL, "y"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
