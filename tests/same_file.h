// Asserts that two files hold the same bytes, for checks that a resumed run equals an uninterrupted one.
#ifndef BRIM_TESTS_SAME_FILE_H_
#define BRIM_TESTS_SAME_FILE_H_

#include "base/base.h"
#include "test.h"

static inline void assert_same_file(const char *a, const char *b) {
  char *da = NULL, *db = NULL;
  size_t na = 0, nb = 0;
  assert_ok(brim_fs_read(a, 0, &da, &na));
  assert_ok(brim_fs_read(b, 0, &db, &nb));
  assert_int_equal(na, nb);
  assert_memory_equal(da, db, na);
  brim_free(da);
  brim_free(db);
}

#endif  // BRIM_TESTS_SAME_FILE_H_
