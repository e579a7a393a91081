#include "store_test.h"

lab_place place;
brim_store *store;

int setup(void **state) {
  (void)state;
  store = lab_fresh(&place);
  return 0;
}

int teardown(void **state) {
  (void)state;
  if (store) lab_check(store);
  brim_store_close(store);
  store = NULL;
  return 0;
}

brim_store_exp *stored(int n) {
  char id[BRIM_EXP_ID];
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, lab_id(n, id), &exp));
  return exp;
}
