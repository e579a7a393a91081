// A data source: random access to raw samples without a global lock. Built-in sources and plug-ins (extension
// "data.source/NAME") fill in the same table.
#ifndef BRIM_SOURCE_H_
#define BRIM_SOURCE_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_SOURCE_ABI 3
#define BRIM_SOURCE_MAX_RANK 4

typedef enum brim_sample_type {
  BRIM_SAMPLE_U8,
  BRIM_SAMPLE_F32,
  BRIM_SAMPLE_TYPE_COUNT
} brim_sample_type;

typedef struct brim_source_info {
  uint64_t count;         // number of samples
  brim_sample_type type;  // type of the input
  int32_t rank;
  // dimensions of one input, without the batch; images: height, width, channels
  int64_t dim[BRIM_SOURCE_MAX_RANK];
  int64_t classes;        // > 0: target is one int32 label in [0, classes)
  int64_t target_dim;     // classes == 0: target is target_dim floats; 0 = no target
  float mean[4], std[4];  // suggested normalisation per channel; U8: of value / 255
  int32_t channels;       // entries used in mean and std; 0 = no suggestion
  // 1 = images of different sizes: dim[0] and dim[1] are the largest height and width, and samples are read by
  // `size` and `decode`, never by `read`.
  int32_t varies;
  // 1 = reading a sample costs much more than copying its bytes (decoding, unpacking), so a cache in RAM pays.
  int32_t costly;
} brim_source_info;

// Request and result of `decode`: an image of info.dim[2] channels, packed (height, width, channels), at 1/scale of its
// size (rounded up). A format that cannot scale cheaply may return a larger image, up to full size.
typedef struct brim_source_image {
  int32_t scale;          // 1, 2, 4 or 8
  void *pixels;           // result
  size_t capacity;        // bytes of room in `pixels`
  int64_t height, width;  // size of the decoded image
} brim_source_image;

typedef struct brim_source_how {
  const char *path;   // data.path, or NULL
  const char *split;  // "train", "val", "test"
  uint64_t seed;
  const char *args_json;  // arguments of the component as a JSON object
} brim_source_how;

typedef struct brim_source_table {
  uint32_t abi;      // BRIM_SOURCE_ABI
  const char *name;  // "idx"
  brim_status (*open)(const brim_source_how *how, void **state);
  void (*info)(void *state, brim_source_info *out);
  // Thread-safe: copy input bytes (packed, row-major) and target of one sample.
  brim_status (*read)(void *state, uint64_t index, void *input, void *target);
  // Optional: address of the packed inputs of all samples if they are in memory, else NULL.
  const void *(*base)(void *state);
  void (*close)(void *state);
  // Set both functions or neither; info.varies requires them. Thread-safe. `size` returns the stored size of an
  // image without decoding it.
  brim_status (*size)(void *state, uint64_t index, int64_t *height, int64_t *width);
  brim_status (*decode)(void *state, uint64_t index, brim_source_image *image, void *target);
  // Optional: the name of a sample for messages ("train/cat/0001.jpg", "images[17]").
  void (*describe)(void *state, uint64_t index, char *text, size_t size);
} brim_source_table;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_SOURCE_H_
