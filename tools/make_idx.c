// brim-make-idx DIR: writes four IDX files with MNIST's names, 28x28 images of ten classes that can
// be learned: each class has its own blobs, shifted and dimmed per sample, under noise. Every byte
// is a function of the sample's number, so the files are the same on every machine. Used by the
// demo and by tests that need data; brim itself never calls it.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hd/hd_philox.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, BLOBS = 3, TRAIN = 8192, TEST = 2048 };

typedef struct brim_idx_blob {
  int x, y, radius2;  // centre and squared radius in pixels
} brim_idx_blob;

// Blobs of a class: drawn once from the generator, kept off the edge so that a shift stays inside.
static void class_blobs(int label, brim_idx_blob out[BLOBS]) {
  uint64_t key = brim_rng_key(7, BRIM_RNG_SYNTHETIC);
  for (int i = 0; i < BLOBS; i++) {
    brim_philox4 r = brim_philox(key, 1u << 20, (uint64_t)(label * BLOBS + i));
    out[i].x = 6 + (int)(r.v[0] % 16);
    out[i].y = 6 + (int)(r.v[1] % 16);
    out[i].radius2 = 6 + (int)(r.v[2] % 14);
  }
}

// One image (28, 28), its label from the sample's number.
static uint8_t draw(uint64_t sample, uint8_t pixels[PIXELS]) {
  uint64_t key = brim_rng_key(11, BRIM_RNG_SYNTHETIC);
  brim_philox4 r = brim_philox(key, sample, 0);
  uint8_t label = (uint8_t)(r.v[0] % CLASSES);
  int dx = (int)(r.v[1] % 5) - 2, dy = (int)(r.v[2] % 5) - 2;
  int peak = 140 + (int)(r.v[3] % 100);
  brim_idx_blob blobs[BLOBS];
  class_blobs(label, blobs);
  for (int p = 0; p < PIXELS; p++) {
    int value = 0;
    for (int i = 0; i < BLOBS; i++) {
      int x = p % SIDE - blobs[i].x - dx, y = p / SIDE - blobs[i].y - dy;
      int d2 = x * x + y * y;
      // Falls off linearly in the squared distance: integers only, the same everywhere.
      if (d2 < 2 * blobs[i].radius2) value += peak - peak * d2 / (2 * blobs[i].radius2);
    }
    brim_philox4 noise = brim_philox(key, sample, (uint64_t)(p / 4 + 1));
    value += (int)(noise.v[p % 4] % 64);
    pixels[p] = (uint8_t)(value > 255 ? 255 : value);
  }
  return label;
}

static int write_be32(FILE *f, uint32_t v) {
  uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
  return fwrite(b, 1, 4, f) == 4 ? 0 : -1;
}

static FILE *create(const char *dir, const char *name) {
  char path[4096];
  int n = snprintf(path, sizeof path, "%s/%s", dir, name);
  if (n < 0 || (size_t)n >= sizeof path) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  return fopen(path, "wb");
}

// Two files of `count` samples, numbered from `first` so that no sample is in both splits.
static int write_split(const char *dir, const char *split, uint32_t count, uint64_t first) {
  char name[64];
  int result = -1;
  snprintf(name, sizeof name, "%s-images-idx3-ubyte", split);
  FILE *images = create(dir, name);
  if (!images) return -1;
  snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
  FILE *labels = create(dir, name);
  if (!labels) goto close_images;
  if (write_be32(images, 0x803) || write_be32(images, count) || write_be32(images, SIDE) ||
      write_be32(images, SIDE) || write_be32(labels, 0x801) || write_be32(labels, count)) {
    goto close_labels;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint8_t pixels[PIXELS];
    uint8_t label = draw(first + i, pixels);
    if (fwrite(pixels, 1, PIXELS, images) != PIXELS || fputc(label, labels) == EOF) {
      goto close_labels;
    }
  }
  result = 0;
close_labels:
  if (fclose(labels)) result = -1;
close_images:
  if (fclose(images)) result = -1;
  return result;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: brim-make-idx DIR\n");
    return 2;
  }
  if (mkdir(argv[1], 0777) && errno != EEXIST) {
    fprintf(stderr, "brim-make-idx: %s: %s\n", argv[1], strerror(errno));
    return 1;
  }
  if (write_split(argv[1], "train", TRAIN, 0) || write_split(argv[1], "t10k", TEST, TRAIN)) {
    fprintf(stderr, "brim-make-idx: %s: %s\n", argv[1], strerror(errno));
    return 1;
  }
  return 0;
}
