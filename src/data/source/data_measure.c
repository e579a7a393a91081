// Mean and deviation of images of bytes, over the files of a set that publishes none.
#include <math.h>

#include "data/data_int.h"

enum { PART = 65536 };  // values summed up in 32 bits: PART * 255^2 fits

typedef struct channel_sums {
  uint64_t sum, squares;
} channel_sums;

// n pixels of `channels` values each, n <= PART; simple enough for the compiler to vectorise.
static void add_part(const uint8_t *p, size_t n, size_t channels, channel_sums *sums) {
  for (size_t c = 0; c < channels; c++) {
    uint32_t part = 0, part2 = 0;
    for (size_t i = 0; i < n; i++) {
      uint32_t v = p[i * channels + c];
      part += v;
      part2 += v * v;
    }
    sums[c].sum += part;
    sums[c].squares += part2;
  }
}

brim_status brim_data_measure(brim_source_info *info, const brim_data_measured *m) {
  if (info->type != BRIM_SAMPLE_U8) return BRIM_OK;  // floats come normalised, or not
  int64_t last = info->rank == 3 ? info->dim[2] : 1;
  size_t channels = last <= 4 ? (size_t)last : 1, pixels = m->bytes / channels;
  // A run is what lies together: all pixels, or one plane of one sample.
  bool planes = m->planes && channels > 1;
  size_t together = planes ? 1 : channels;
  size_t run = planes ? (size_t)(info->dim[0] * info->dim[1]) : pixels;
  uint8_t *buffer = brim_alloc(PART * together);
  if (!buffer) return brim_fail(BRIM_ENOMEM, "%s: out of memory", m->path);
  channel_sums sums[4] = {{0}};
  brim_status status = BRIM_OK;
  size_t runs = m->bytes / (run * together);
  for (size_t r = 0; r < runs && !status; r++) {
    for (size_t begin = 0; begin < run && !status; begin += PART) {
      size_t n = run - begin < PART ? run - begin : PART;
      status = m->read(m->ctx, (r * run + begin) * together, buffer, n * together);
      if (!status) add_part(buffer, n, together, sums + (planes ? r % channels : 0));
    }
  }
  brim_free(buffer);
  if (status) return status;
  for (size_t c = 0; c < channels; c++) {
    double mean = (double)sums[c].sum / (double)pixels;
    double variance = (double)sums[c].squares / (double)pixels - mean * mean;
    info->mean[c] = (float)(mean / 255.0);
    info->std[c] = variance > 1e-9 ? (float)(sqrt(variance) / 255.0) : 1.0f;  // constant images
  }
  info->channels = (int32_t)channels;
  return BRIM_OK;
}
