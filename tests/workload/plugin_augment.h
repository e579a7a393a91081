// The plug-in of the workload's tests reports the pages it locked, and can be told to refuse.
#ifndef BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_
#define BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_

#include <stddef.h>

#define TEST_LOCKS_EXTENSION "test.locks"
enum { TEST_LOCKS = 8 };

typedef struct test_locks {
  size_t refuse_above;  // so many bytes at once and more; 0 = nothing
  int live;
  size_t bytes, made, fetches;
  const void *memory[TEST_LOCKS];
  size_t size[TEST_LOCKS];
} test_locks;

#endif  // BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_
