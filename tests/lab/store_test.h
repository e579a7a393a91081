// Shared by the tests of one store: a fresh one for each test, checked as a whole after it.
#ifndef BRIM_TESTS_STORE_TEST_H_
#define BRIM_TESTS_STORE_TEST_H_

#include "lab_test.h"

extern lab_place place;
extern brim_store *store;  // a test that closes it sets NULL or opens another one

int setup(void **state);
int teardown(void **state);

// Gets experiment n; free it with brim_store_exp_free.
brim_store_exp *stored(int n);

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif  // BRIM_TESTS_STORE_TEST_H_
