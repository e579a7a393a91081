// Inside data: transforms as rows of a table. A row reads its arguments once (prepare) and is then a
// pure function of the sample's bytes and the draws for it (apply), called by any worker.
#ifndef BRIM_DATA_TRANSFORM_H_
#define BRIM_DATA_TRANSFORM_H_

#include "data/data.h"
#include "hd/hd_augment.h"

#ifdef __cplusplus
extern "C" {
#endif

// An image (height, width, channels), packed; what a stage takes and what it makes.
typedef struct brim_transform_shape {
  int64_t height, width;
  size_t pixel_bytes;  // channels of the sample's type
} brim_transform_shape;

// What lies outside an image.
typedef enum brim_transform_pad {
  BRIM_TRANSFORM_PAD_CONSTANT,  // black
  BRIM_TRANSFORM_PAD_EDGE,      // the nearest pixel of the image
  BRIM_TRANSFORM_PAD_REFLECT    // the image mirrored at its border, which is not repeated
} brim_transform_pad;

#define BRIM_TRANSFORM_MAX_FILL 16  // bytes: 4 channels of 4

typedef struct brim_transform_row brim_transform_row;

// One step of a pipeline, prepared.
typedef struct brim_transform_stage {
  const brim_transform_row *row;
  uint32_t number;  // place in the pipeline as written, for the draws
  brim_transform_shape in, out;
  // The pixel that is zero after the source's normalisation, to the nearest value; it repeats.
  uint8_t fill[BRIM_TRANSFORM_MAX_FILL];
  size_t fill_bytes;
  // Arguments; which ones is the row's own business.
  int64_t padding, size, count;
  brim_transform_pad pad;
  float p;
} brim_transform_stage;

struct brim_transform_row {
  const char *name;
  bool random;    // draws: left out where a sample shall always look the same
  bool in_place;  // apply gets out == in, and out has in's shape
  // `in`, `fill` and `number` are set; checks the arguments, sets what apply reads and `out`.
  brim_status (*prepare)(const brim_component *c, brim_transform_stage *stage);
  void (*apply)(const brim_transform_stage *stage, const brim_augment *draw, const uint8_t *in,
                uint8_t *out);
};

// Crops, flips, cutout. NULL-terminated by name.
extern const brim_transform_row brim_transform_geometry[];

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_TRANSFORM_H_
