// Libraries at run time, on libm that every glibc system has.
#include "base/base_dl.h"

#include "base/base_alloc.h"
#include "test.h"

static void opens_and_finds(void **state) {
  (void)state;
  const char *names[] = {"libbrim-none.so.9", "libm.so.6", NULL};
  void *cosine = NULL, *missing = &cosine;
  const brim_dl_symbol symbols[] = {{"cos", &cosine, true}, {"brim_no_such", &missing, false}};
  brim_dl *dl;
  assert_ok(brim_dl_open(names, symbols, 2, false, &dl));
  assert_string_equal(brim_dl_path(dl), "libm.so.6");
  assert_null(missing);
  double (*fn)(double);
  memcpy(&fn, &cosine, sizeof fn);
  assert_true(fn(0.0) == 1.0);
  assert_non_null(brim_dl_find(dl, "sin"));
  assert_null(brim_dl_find(dl, "brim_no_such"));
  brim_dl_close(dl);
  brim_dl_close(NULL);
}

static void missing_required(void **state) {
  (void)state;
  const char *names[] = {"libbrim-none.so.9", "libm.so.6", NULL};
  void *cosine = NULL, *missing = NULL;
  const brim_dl_symbol symbols[] = {{"cos", &cosine, true}, {"brim_no_such", &missing, true}};
  brim_dl *dl;
  assert_status(brim_dl_open(names, symbols, 2, true, &dl), BRIM_ENOENT);
  assert_null(dl);
  assert_null(cosine);  // all symbols or none
  assert_non_null(strstr(brim_status_detail(), "libbrim-none.so.9"));
  assert_non_null(strstr(brim_status_detail(), "libm.so.6 has no symbol brim_no_such"));
}

static void missing_library(void **state) {
  (void)state;
  const char *names[] = {"libbrim-a.so", "libbrim-b.so", NULL};
  brim_dl *dl;
  assert_status(brim_dl_open(names, NULL, 0, false, &dl), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "libbrim-a.so"));
  assert_non_null(strstr(brim_status_detail(), "libbrim-b.so"));
}

static void out_of_memory(void **state) {
  (void)state;
  const char *names[] = {"libm.so.6", NULL};
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_dl *dl;
  for (uint64_t n = 1; n <= 2; n++) {
    brim_alloc_fail_nth(n, 0);
    assert_status(brim_dl_open(names, NULL, 0, false, &dl), BRIM_ENOMEM);
  }
  brim_alloc_fail_nth(0, 0);
  brim_alloc_get_stats(&after);
  assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opens_and_finds),
      cmocka_unit_test(missing_required),
      cmocka_unit_test(missing_library),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
