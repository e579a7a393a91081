// Records of a sweep with given rates, so that its recommendation does not depend on the machine.
#ifndef BRIM_TESTS_CLI_FAKE_RATES_H_
#define BRIM_TESTS_CLI_FAKE_RATES_H_

#include <stddef.h>

// Gives the records of a sweep these rates, each steady and measured three times on a quiet machine.
void fake_rates(const char *path, size_t count, const double *rates);

#endif  // BRIM_TESTS_CLI_FAKE_RATES_H_
