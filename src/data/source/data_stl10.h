// Inside data: STL-10's binary files. Images are records without a header: planes R, G, B of 96 x 96,
// each column by column. Labels lie in a file of their own, a byte an image, 1 to 10.
// fold_indices.txt has one line for each of ten folds: numbers of training images, counted from 0.
#ifndef BRIM_DATA_STL10_H_
#define BRIM_DATA_STL10_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_STL10_SIDE = 96,
  BRIM_STL10_PLANE = 9216,
  BRIM_STL10_IMAGE = 3 * BRIM_STL10_PLANE,
  BRIM_STL10_CLASSES = 10,
  BRIM_STL10_FOLDS = 10
};

// An image file of so many bytes is a whole number of images, one at least.
brim_status brim_stl10_count(const char *path, size_t size, uint64_t *count);
// Every label (that of image `first` and on) is in 1 .. 10; they are turned into 0 .. 9.
brim_status brim_stl10_check_labels(uint8_t *labels, size_t count, const char *path,
                                    uint64_t first);
// Line `fold` of the text: at most `images` numbers, each below that; `out` has room for them.
brim_status brim_stl10_read_fold(const char *text, size_t size, const char *path, int64_t fold,
                                 uint64_t images, uint32_t *out, size_t *count);
// Planes (3, 96 columns, 96 rows) to pixels (96, 96, 3).
void brim_stl10_interleave(const uint8_t *planes, uint8_t *pixels);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_STL10_H_
