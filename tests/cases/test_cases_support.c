// Prints which backend supports which op in which type, asked through the same call as the engine uses. ref must
// support everything; a backend that refuses must give a reason.
#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16, BRIM_F64};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

typedef struct cell {
  int yes, no;
} cell;

static void ask(brim_device *device, cell matrix[BRIM_OP_COUNT][TYPES]) {
  for (size_t i = 0; i < brim_case_count(); i++) {
    for (int k = 0; k < TYPES; k++) {
      brim_case c;
      brim_op_call call;
      brim_case_get(i, &c);
      brim_case_set_type(&c, types[k]);
      brim_case_call(&c, &call);
      brim_status_clear();
      brim_status status = brim_device_supports(device, &call);
      if (status == BRIM_OK) {
        matrix[c.op][k].yes++;
      } else {
        assert_int_equal(status, BRIM_EUNSUPPORTED);
        assert_true(brim_status_detail()[0] != '\0');
        matrix[c.op][k].no++;
      }
    }
  }
}

static void print_matrix(const char *name, cell matrix[BRIM_OP_COUNT][TYPES]) {
  printf("  %-20s", name);
  for (int k = 0; k < TYPES; k++) printf("%8s", brim_dtype_name(types[k]));
  printf("\n");
  for (int op = 0; op < BRIM_OP_COUNT; op++) {
    printf("  %-20s", brim_op_name((brim_op)op));
    for (int k = 0; k < TYPES; k++) {
      const cell *c = &matrix[op][k];
      printf("%8s", c->no == 0 ? "yes" : c->yes == 0 ? "-" : "some");
    }
    printf("\n");
  }
}

static void test_support(void **state) {
  (void)state;
  static const char *const names[] = {"ref", "cpu", "cuda"};
  brim_registry *registry;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load_folder(registry, BRIM_BUILD_DIR "/lib/brim"));
  for (int n = 0; n < 3; n++) {
    cell matrix[BRIM_OP_COUNT][TYPES] = {{{0, 0}}};
    brim_device *device = NULL;
    if (brim_device_open(registry, names[n], NULL, &device)) {
      printf("  %s: not here: %s\n", names[n], brim_status_detail());
      assert_string_not_equal(names[n], "ref");
      continue;
    }
    ask(device, matrix);
    print_matrix(names[n], matrix);
    for (int op = 0; n == 0 && op < BRIM_OP_BACKEND_COUNT; op++) {
      for (int k = 0; k < TYPES; k++) {
        assert_true(matrix[op][k].yes > 0);
        assert_int_equal(matrix[op][k].no, 0);
      }
    }
    brim_device_close(device);
  }
  brim_registry_destroy(registry);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_support)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
