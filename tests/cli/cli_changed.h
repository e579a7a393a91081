// Makes a checkpoint with one value changed, for tests of refusals.
#ifndef BRIM_TESTS_CLI_CHANGED_H_
#define BRIM_TESTS_CLI_CHANGED_H_

#include <stddef.h>

// Writes `from` with element `at` of an f32 tensor set to `to` (which may be `from`), without a checksum, like another
// program. Fails the test if there is no such element.
void write_changed(const char *from, const char *to, const char *tensor, size_t at, float value);

#endif  // BRIM_TESTS_CLI_CHANGED_H_
