// Any bytes as a CIFAR-10 or CIFAR-100 file: an error, or records with labels in range and pixels in the right place.
#include <stdlib.h>
#include <string.h>

#include "data/data_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pixels(const uint8_t *planes) {
  uint8_t *pixels = malloc(BRIM_CIFAR_PIXELS);  // of exact size, so that ASan finds any overrun
  if (!pixels) return;
  brim_cifar_interleave(planes, pixels);
  for (size_t i = 0; i < BRIM_CIFAR_PIXELS; i++) {
    if (pixels[i] != planes[i % 3 * BRIM_CIFAR_PLANE + i / 3]) abort();
  }
  free(pixels);
}

static void one_format(const brim_cifar_format *format, const uint8_t *data, size_t size) {
  uint64_t count = 0;
  size_t record = brim_cifar_record_bytes(format);
  if (brim_cifar_count(format, "fuzz", size, &count)) {
    if (!brim_status_detail()[0] || (size && size % record == 0)) abort();
    return;
  }
  if (count * record != size) abort();
  uint8_t *labels = malloc(count);
  if (!labels) return;
  if (!brim_cifar_check(format, data, count, "fuzz", 0, labels)) {
    for (uint64_t i = 0; i < count; i++) {
      if (labels[i] >= format->label_below[format->label_bytes - 1]) abort();
      check_pixels(data + i * record + format->label_bytes);
    }
  } else if (!brim_status_detail()[0]) {
    abort();
  }
  free(labels);
}

// Most inputs are not a whole number of records, so the same bytes are also tried cut to one.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const brim_cifar_format *const formats[] = {&brim_cifar10_format, &brim_cifar100_format};
  for (size_t i = 0; i < 2; i++) {
    size_t record = brim_cifar_record_bytes(formats[i]);
    one_format(formats[i], data, size);
    if (size > record && size % record) one_format(formats[i], data, size / record * record);
  }
  return 0;
}
