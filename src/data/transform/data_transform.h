// Inside data: a pipeline of transforms as a worker runs it. Components become stages of a program
// (data_transform.c); stages that only move pixels work on packed pixels of any type, those that mix
// them on planes of floats (data_transform_mix.c). What
// a stage draws and does to a pixel stands in hd/hd_image.h, once for worker and device.
#ifndef BRIM_DATA_TRANSFORM_H_
#define BRIM_DATA_TRANSFORM_H_

#include "data/data.h"
#include "hd/hd_image.h"

struct brim_transforms {
  brim_augment_program program;
  const char *names[BRIM_IMAGE_MAX_STAGES];
  brim_source_info info;                       // of the result
  bool varies;                                 // the source's images have sizes of their own
  int32_t resizes[BRIM_IMAGE_MAX_STAGES + 1];  // stages from i on that may change the size
  // The scratch of a thread, in bytes from its start; a part of 0 bytes is not there.
  size_t packed_at[2], plane_at[2], resample_at, blur_at, scratch_bytes;
};

//---------------------------------- arguments ----------------------------------

// A pipeline while it is read, and the image that the next stage gets.
typedef struct brim_transform_build {
  brim_transforms *t;
  const brim_source_info *source;
  bool random;
  uint32_t number;  // number of the next item; `views` does not count
  int64_t height, width, channels;
  const char *closed_by;  // the component after which no stage may follow; NULL = none
} brim_transform_build;

//---------------------------------- moving pixels ----------------------------------

// An image of packed pixels (height, width). A plane of floats is one with 4 bytes a pixel.
typedef struct brim_transform_packed {
  int32_t height, width;
  size_t pixel_bytes;
  // The value left by constant padding and cutout: byte b of a pixel is fill[b % fill_bytes].
  uint8_t fill[4 * BRIM_IMAGE_MAX_CHANNELS];
  size_t fill_bytes;
} brim_transform_packed;

//---------------------------------- mixing pixels ----------------------------------

// Planes of n floats each, one after the other.
typedef struct brim_transform_planes {
  float *data;
  int32_t height, width, channels;
  float white;  // 255 for bytes, 1 for floats
} brim_transform_planes;

// Packed samples to planes and back; bytes are rounded.
void brim_transform_load(const void *packed, bool bytes, const brim_transform_planes *planes);
void brim_transform_store(const brim_transform_planes *planes, void *packed, bool bytes);
// Bytes to floats of the same value.
void brim_transform_widen(const uint8_t *in, float *out, size_t n);

// Input of a resampling: packed samples of `channels`, rows of `width` pixels.
typedef struct brim_transform_from {
  const void *data;
  bool bytes;
  int32_t width, channels;
} brim_transform_from;
// Bytes of scratch for a stage whose images are up to height x width.
size_t brim_transform_resample_bytes(const brim_image_stage *s, int32_t height, int32_t width,
                                     int32_t channels);
// Resamples the region in `d` to planes of (out_height, out_width), `out_plane` floats apart.
void brim_transform_resample(const brim_image_stage *s, const brim_image_drawn *d,
                             const brim_transform_from *from, float *out, size_t out_plane,
                             void *scratch);

void brim_transform_jitter(const brim_image_drawn *d, const brim_transform_planes *planes);
void brim_transform_gray(const brim_transform_planes *planes);
size_t brim_transform_blur_bytes(const brim_image_stage *s, int32_t width);
// Works in place; `other` is room for one plane.
void brim_transform_blur(const brim_image_stage *s, const brim_image_drawn *d,
                         const brim_transform_planes *planes, float *other, void *scratch);

#endif  // BRIM_DATA_TRANSFORM_H_
