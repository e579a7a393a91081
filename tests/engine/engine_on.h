// One check on each device that is here: rows of a table of tests, ON(check, cuda).
#ifndef BRIM_TESTS_ENGINE_ON_H_
#define BRIM_TESTS_ENGINE_ON_H_

#include "engine_test.h"

typedef struct test_on {
  void (*check)(brim_device *device);
  brim_device *(*open)(void);
} test_on;

static inline void test_on_run(void **state) {
  const test_on *on = *state;
  brim_device *device = on->open();
  if (!device) BRIM_SKIP(brim_status_detail());
  on->check(device);
  test_device_close(device);
}

#define ON(check, device)                                                                      \
  {                                                                                            \
#check " on " #device, test_on_run, NULL, NULL, &(test_on) { check, test_device_##device } \
  }

#endif  // BRIM_TESTS_ENGINE_ON_H_
