// Shared by the tests of the loader: a source of small images that can break, pipelines made by hand, and the stream of
// a loader as a list.
#ifndef BRIM_TESTS_LOADER_TEST_H_
#define BRIM_TESTS_LOADER_TEST_H_

#include "data_test.h"
#include "hd/hd_philox.h"
#include "loader_order.h"

enum { SIDE = 6, IMAGE = SIDE * SIDE * 3 };

// Images of SIDE x SIDE x 3 (varying ones: SIDE + i % 3 high, SIDE + i % 2 wide) whose bytes are a function of the
// sample; the label is its number. Samples with i % broken_every == broken_rest cannot be read.
typedef struct image_state {
  uint64_t broken_every, broken_rest;
  bool slow;
  unsigned reads;  // read by image_reads; workers add to it
} image_state;

static inline uint8_t image_byte(uint64_t index, size_t e) {
  return (uint8_t)(index * 31 + e * 7 + (index >> 8));
}

static inline bool image_broken(const image_state *s, uint64_t index) {
  return s->broken_every && index % s->broken_every == s->broken_rest;
}

static inline brim_status image_fill(image_state *s, uint64_t index, size_t each, void *input,
                                     void *target) {
  __atomic_fetch_add(&s->reads, 1, __ATOMIC_RELAXED);
  if (image_broken(s, index)) {
    return brim_fail(BRIM_EPARSE, "image %llu is broken", (unsigned long long)index);
  }
  if (s->slow && index % 5 == 0) brim_clock_sleep_ns(10000 * (int64_t)(index % 11));
  for (size_t e = 0; e < each; e++) ((uint8_t *)input)[e] = image_byte(index, e);
  if (target) *(int32_t *)target = (int32_t)index;
  return BRIM_OK;
}

static inline unsigned image_reads(const image_state *s) {
  return __atomic_load_n(&s->reads, __ATOMIC_RELAXED);
}

static inline brim_status image_read(void *state, uint64_t index, void *input, void *target) {
  return image_fill((image_state *)state, index, IMAGE, input, target);
}

static inline brim_status image_size(void *state, uint64_t index, int64_t *height, int64_t *width) {
  (void)state;
  *height = SIDE + (int64_t)(index % 3);
  *width = SIDE + (int64_t)(index % 2);
  return BRIM_OK;
}

static inline brim_status image_decode(void *state, uint64_t index, brim_source_image *image,
                                       void *target) {
  // decoding at full size is always allowed
  image_size(state, index, &image->height, &image->width);
  size_t each = (size_t)(image->height * image->width) * 3;
  assert_true(each <= image->capacity);
  return image_fill((image_state *)state, index, each, image->pixels, target);
}

static inline brim_source image_source(image_state *state, uint64_t count, bool varies) {
  static brim_source_table one_size, sizes;
  brim_source s;
  memset(&s, 0, sizeof s);
  one_size.abi = sizes.abi = BRIM_SOURCE_ABI;
  one_size.read = image_read;
  sizes.size = image_size;
  sizes.decode = image_decode;
  s.table = varies ? &sizes : &one_size;
  s.state = state;
  s.info.count = count;
  s.info.type = BRIM_SAMPLE_U8;
  s.info.rank = 3;
  s.info.dim[0] = SIDE + (varies ? 2 : 0);
  s.info.dim[1] = SIDE + (varies ? 1 : 0);
  s.info.dim[2] = 3;
  s.info.classes = INT32_MAX;
  s.info.varies = varies;
  s.input_bytes = (size_t)(s.info.dim[0] * s.info.dim[1]) * 3;
  s.target_bytes = 4;
  return s;
}

static inline brim_loader_options image_options(void) {
  brim_loader_options o;
  memset(&o, 0, sizeof o);
  o.batch = 8;
  o.prefetch_factor = 2;
  o.shuffle = true;
  o.seed = 11;
  o.world = 1;
  return o;
}

// random_crop(size, padding=2) | random_flip, and views(views=n) when n > 1.
static inline brim_transforms *make_transforms(const brim_source *source, int64_t views) {
  brim_argument crop[2], more[1];
  brim_component items[3];
  brim_pipeline pipeline;
  brim_transforms *t = NULL;
  memset(items, 0, sizeof items);
  memset(&pipeline, 0, sizeof pipeline);
  crop[0] = arg_int("size", SIDE);
  crop[1] = arg_int("padding", 2);
  more[0] = arg_int("views", views);
  items[0].name = "random_crop";
  items[0].args = crop;
  items[0].arg_count = 2;
  items[1].name = "random_flip";
  items[2].name = "views";
  items[2].args = more;
  items[2].arg_count = 1;
  pipeline.items = items;
  pipeline.count = views > 1 ? 3 : 2;
  assert_ok(brim_transforms_create(&pipeline, source, 5, true, &t));
  return t;
}

// One row of the stream: the sample, and a digest of its pixels in all views.
typedef struct row {
  uint64_t index, digest;
} row;

static inline uint64_t digest(uint64_t start, const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) start = (start ^ p[i]) * 0x100000001b3ull;
  return start;
}

// Takes the next batch as rows; every target must be the sample's number. Returns how many.
static inline int64_t take_rows(brim_loader *l, const brim_loader_options *o, size_t each,
                                int32_t views, row *out) {
  const brim_loaded *b;
  assert_ok(brim_loader_next(l, &b));
  for (int64_t r = 0; r < b->rows; r++) {
    out[r].index = b->index[r];
    out[r].digest = 0xcbf29ce484222325ull;
    assert_int_equal(((const int32_t *)b->target)[r], b->index[r]);
    for (int32_t v = 0; v < views; v++) {
      const uint8_t *view = (const uint8_t *)b->input + (size_t)(v * o->batch + r) * each;
      out[r].digest = digest(out[r].digest, view, each);
    }
  }
  int64_t rows = b->rows;
  brim_loader_release(l, b);
  return rows;
}

#endif  // BRIM_TESTS_LOADER_TEST_H_
