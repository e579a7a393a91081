// Any bytes as STL-10's files: as labels, as a text of folds, and as the size of an image file.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_labels(const uint8_t *data, size_t size) {
  uint8_t *labels = malloc(size ? size : 1);  // of exact size, so that ASan finds any overrun
  if (!labels) return;
  memcpy(labels, data, size);
  brim_status status = brim_stl10_check_labels(labels, size, "fuzz", 0);
  bool good = true;
  for (size_t i = 0; i < size; i++) good &= data[i] >= 1 && data[i] <= BRIM_STL10_CLASSES;
  if (good != (status == BRIM_OK) || (status && !brim_status_detail()[0])) abort();
  for (size_t i = 0; i < size && good; i++) {
    if (labels[i] != data[i] - 1) abort();
  }
  free(labels);
}

static void as_folds(const uint8_t *data, size_t size) {
  uint64_t images = 1 + (uint64_t)data[0] * 20;
  uint32_t *numbers = malloc(images * sizeof *numbers);
  if (!numbers) return;
  for (int64_t fold = 0; fold < BRIM_STL10_FOLDS; fold++) {
    size_t count = 0;
    if (brim_stl10_read_fold((const char *)data + 1, size - 1, "fuzz", fold, images, numbers,
                             &count)) {
      if (!brim_status_detail()[0]) abort();
      continue;
    }
    if (!count || count > images) abort();
    for (size_t i = 0; i < count; i++) {
      if (numbers[i] >= images) abort();
    }
  }
  free(numbers);
}

static void as_size(const uint8_t *data, size_t size) {
  uint64_t bytes = 0, count = 0;
  memcpy(&bytes, data, size < sizeof bytes ? size : sizeof bytes);
  bool whole = bytes > 0 && bytes % BRIM_STL10_IMAGE == 0;
  if ((brim_stl10_count("fuzz", (size_t)bytes, &count) == BRIM_OK) != whole) abort();
  if (whole && count * BRIM_STL10_IMAGE != bytes) abort();
}

static void as_image(const uint8_t *data, size_t size) {
  uint8_t *planes = calloc(1, BRIM_STL10_IMAGE), *pixels = malloc(BRIM_STL10_IMAGE);
  if (planes && pixels) {
    memcpy(planes, data, size < BRIM_STL10_IMAGE ? size : BRIM_STL10_IMAGE);
    brim_stl10_interleave(planes, pixels);
    for (int i = 0; i < BRIM_STL10_IMAGE; i++) {
      int y = i / 288, x = i / 3 % 96, c = i % 3;
      if (pixels[i] != planes[c * BRIM_STL10_PLANE + x * BRIM_STL10_SIDE + y]) abort();
    }
  }
  free(planes);
  free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  as_labels(data, size);
  as_folds(data, size);
  as_size(data, size);
  if (data[0] % 16 == 0) as_image(data, size);
  return 0;
}
