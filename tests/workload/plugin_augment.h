// The plug-in of the workload's tests reports the pages it locked, and refuses locks on request.
#ifndef BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_
#define BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_

#include <stddef.h>

#define TEST_LOCKS_EXTENSION "test.locks"
enum { TEST_LOCKS = 8 };

typedef struct test_locks {
  size_t refuse_above;  // refuses locks of more bytes than this in total; 0 = refuses none
  int live;
  size_t bytes, made, fetches;
  const void *memory[TEST_LOCKS];
  size_t size[TEST_LOCKS];
} test_locks;

#endif  // BRIM_TESTS_WORKLOAD_PLUGIN_AUGMENT_H_
