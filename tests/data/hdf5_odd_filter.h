// A filter of libhdf5 that plays the library's faults: the first number of a chunk selects the fault. The helper of the
// tests has it too.
#ifndef BRIM_TESTS_HDF5_ODD_FILTER_H_
#define BRIM_TESTS_HDF5_ODD_FILTER_H_

#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

enum { ODD_FILTER = 311 };
enum { ODD_GOOD = 100, ODD_CRASH = 1, ODD_SPIN, ODD_FAIL, ODD_HANG };

static inline size_t odd_filter(unsigned flags, size_t n, const unsigned values[], size_t used,
                                size_t *size, void **data) {
  (void)n, (void)values, (void)size;
  volatile const uint8_t *first = *data;
  if (!(flags & H5Z_FLAG_REVERSE)) return used;
  if (*first == ODD_CRASH) (void)raise(SIGSEGV);
  while (*first == ODD_SPIN) {
  }
  // like a drive that is gone
  while (*first == ODD_HANG && access("hangs", F_OK) == 0) (void)pause();
  return *first == ODD_FAIL ? 0 : used;
}

static inline bool odd_filter_register(void) {
  static const H5Z_class2_t row = {
      H5Z_CLASS_T_VERS, ODD_FILTER, 1, 1, "odd", NULL, NULL, odd_filter,
  };
  return H5Zregister(&row) >= 0;
}

#endif  // BRIM_TESTS_HDF5_ODD_FILTER_H_
