// Transforms on the worker: the path of each pixel, draws and their frequencies, shapes and messages, and the loader's
// stream of transformed samples, the same for any number of workers and from any position.
#include <math.h>

#include "base/base.h"
#include "data/transform/data_transform.h"
#include "data_test.h"
#include "hd/hd_augment.h"
#include "loader_order.h"

//---------------------------------- a source of images ----------------------------------

enum { H = 6, W = 5, C = 3, COUNT = 53 };

// An image in which no two pixels are alike, and none is black.
static uint8_t pixel(uint64_t index, int64_t y, int64_t x, int64_t c) {
  return (uint8_t)(1 + (index * 3 + (uint64_t)((y * W + x) * C + c) * 2) % 251);
}

static brim_status image_read(void *state, uint64_t index, void *input, void *target) {
  (void)state;
  uint8_t *p = input;
  for (int64_t e = 0; e < H * W * C; e++) p[e] = pixel(index, e / (W * C), e / C % W, e % C);
  *(int32_t *)target = (int32_t)index;
  return BRIM_OK;
}

static const brim_source_table image_table = {
    .abi = BRIM_SOURCE_ABI, .name = "images", .read = image_read};

static brim_source images(void) {
  brim_source s = {.table = &image_table, .input_bytes = H * W * C, .target_bytes = 4};
  s.info = (brim_source_info){.count = COUNT,
                              .type = BRIM_SAMPLE_U8,
                              .rank = 3,
                              .dim = {H, W, C},
                              .classes = COUNT,
                              .channels = 3,
                              .mean = {0.5f, 0.25f, 1.0f},
                              .std = {1, 1, 1}};
  return s;
}

static brim_component component(const char *name, const brim_argument *args, size_t count) {
  brim_component c = {.name = name, .args = args, .arg_count = count};
  return c;
}

static brim_status create(const brim_component *items, size_t count, const brim_source *s,
                          uint64_t seed, brim_transforms **out) {
  brim_pipeline p = {.items = items, .count = count};
  return brim_transforms_create(&p, s, seed, true, out);
}

// Reads and transforms one view of a sample, in blocks of exact size so that a sanitizer sees any overrun. The scratch
// starts with old data.
static uint8_t *transformed(const brim_transforms *t, int64_t epoch, uint64_t index) {
  size_t scratch_bytes = brim_transforms_scratch_bytes(t);
  uint8_t *in = brim_alloc(H * W * C), *out = brim_alloc(brim_transforms_output_bytes(t));
  uint8_t *scratch = scratch_bytes ? brim_alloc(scratch_bytes) : NULL;
  assert_non_null(in);
  assert_non_null(out);
  if (scratch) memset(scratch, (int)(index & 0xff), scratch_bytes);
  int32_t label;
  assert_ok(image_read(NULL, index, in, &label));
  brim_transforms_apply(t, &(brim_transforms_view){epoch, index, 0, H, W}, in, out, scratch, NULL);
  for (int64_t e = 0; e < H * W * C; e++) {
    assert_int_equal(in[e], pixel(index, e / (W * C), e / C % W, e % C));
  }
  brim_free(scratch);
  brim_free(in);
  return out;
}

//---------------------------------- geometry ----------------------------------

static void test_center_crop(void **state) {
  (void)state;
  brim_source s = images();
  brim_value size[] = {{.kind = BRIM_VALUE_INT, .integer = 3},
                       {.kind = BRIM_VALUE_INT, .integer = 2}};
  brim_argument args[] = {
      {.name = "size", .value = {.kind = BRIM_VALUE_LIST, .items = size, .count = 2}}};
  brim_component c = component("center_crop", args, 1);
  brim_transforms *t;
  assert_ok(create(&c, 1, &s, 1, &t));
  assert_int_equal(brim_transforms_info(t)->dim[0], 3);
  assert_int_equal(brim_transforms_info(t)->dim[1], 2);
  assert_int_equal(brim_transforms_info(t)->dim[2], C);
  assert_int_equal(brim_transforms_output_bytes(t), 3 * 2 * C);
  uint8_t *out = transformed(t, 0, 4);
  for (int64_t y = 0; y < 3; y++) {
    for (int64_t x = 0; x < 2; x++) {
      for (int64_t k = 0; k < C; k++) {
        assert_int_equal(out[(y * 2 + x) * C + k], pixel(4, y + 1, x + 1, k));
      }
    }
  }
  brim_free(out);
  brim_transforms_destroy(t);
}

// The same windows, with the border's pixels or the mirrored image outside of the image.
static void test_padding_modes(void **state) {
  (void)state;
  enum { PAD = 2, ROWS = 2 * PAD + 1 };
  brim_source s = images();
  static const char *const modes[] = {"edge", "reflect"};
  for (int m = 0; m < 2; m++) {
    brim_value size[] = {{.kind = BRIM_VALUE_INT, .integer = H},
                         {.kind = BRIM_VALUE_INT, .integer = W}};
    brim_argument args[] = {
        {.name = "size", .value = {.kind = BRIM_VALUE_LIST, .items = size, .count = 2}},
        arg_int("padding", PAD),
        {.name = "padding_mode", .value = {.kind = BRIM_VALUE_STRING, .string = modes[m]}}};
    brim_component c = component("random_crop", args, 3);
    brim_transforms *t;
    assert_ok(create(&c, 1, &s, 9, &t));
    for (uint64_t i = 0; i < 200; i++) {
      uint64_t index = i % COUNT;
      uint8_t *out = transformed(t, (int64_t)(i / COUNT), index);
      brim_augment a = {
          .key = brim_rng_key(9, BRIM_RNG_AUGMENT), .epoch = i / COUNT, .index = index};
      brim_augment_point at = brim_augment_place(&a, 0, 0, ROWS, ROWS);
      for (int64_t e = 0; e < H * W * C; e++) {
        int64_t y = e / (W * C) + at.y - PAD, x = e / C % W + at.x - PAD;
        if (m == 0) {
          y = y < 0 ? 0 : y >= H ? H - 1 : y;
          x = x < 0 ? 0 : x >= W ? W - 1 : x;
        } else {  // d c b | a b c d | c b a
          y = y < 0 ? -y : y >= H ? 2 * H - 2 - y : y;
          x = x < 0 ? -x : x >= W ? 2 * W - 2 - x : x;
        }
        assert_int_equal(out[e], pixel(index, y, x, e % C));
      }
      brim_free(out);
    }
    brim_transforms_destroy(t);
    args[1] = arg_int("padding", H < W ? H : W);
    args[2].value.string = "reflect";
    c = component("random_crop", args, 3);
    assert_status(create(&c, 1, &s, 9, &t), BRIM_EINVAL);
    assert_detail("mirroring");
    args[2].value.string = "wrap";
    c = component("random_crop", args, 3);
    assert_status(create(&c, 1, &s, 9, &t), BRIM_EINVAL);
  }
}

// Every window of the padded image occurs about equally often, and each has exactly the right pixels.
static void test_random_crop(void **state) {
  (void)state;
  enum { PAD = 2, SH = 4, SW = 6, ROWS = H + 2 * PAD - SH + 1, COLS = W + 2 * PAD - SW + 1 };
  enum { DRAWS = 4000 };
  brim_source s = images();
  brim_value size[] = {{.kind = BRIM_VALUE_INT, .integer = SH},
                       {.kind = BRIM_VALUE_INT, .integer = SW}};
  brim_argument args[] = {
      {.name = "size", .value = {.kind = BRIM_VALUE_LIST, .items = size, .count = 2}},
      arg_int("padding", PAD)};
  brim_component c = component("random_crop", args, 2);
  brim_transforms *t;
  assert_ok(create(&c, 1, &s, 9, &t));
  int seen[ROWS][COLS] = {{0}};
  for (int i = 0; i < DRAWS; i++) {
    int64_t epoch = i / COUNT;
    uint64_t index = (uint64_t)(i % COUNT);
    uint8_t *out = transformed(t, epoch, index);
    brim_augment a = {
        .key = brim_rng_key(9, BRIM_RNG_AUGMENT), .epoch = (uint64_t)epoch, .index = index};
    brim_augment_point at = brim_augment_place(&a, 0, 0, ROWS, COLS);
    assert_in_range(at.y, 0, ROWS - 1);
    assert_in_range(at.x, 0, COLS - 1);
    seen[at.y][at.x]++;
    for (int64_t e = 0; e < SH * SW * C; e++) {
      int64_t y = e / (SW * C) + at.y - PAD, x = e / C % SW + at.x - PAD;
      bool inside = y >= 0 && y < H && x >= 0 && x < W;
      assert_int_equal(out[e], inside ? pixel(index, y, x, e % C) : 0);
    }
    brim_free(out);
  }
  for (int y = 0; y < ROWS; y++) {
    for (int x = 0; x < COLS; x++) {
      assert_in_range(seen[y][x], DRAWS / (ROWS * COLS) / 2, DRAWS / (ROWS * COLS) * 2);
    }
  }
  brim_transforms_destroy(t);
}

static void test_flips(void **state) {
  (void)state;
  static const char *const names[] = {"random_flip", "random_vertical_flip"};
  for (int v = 0; v < 2; v++) {
    for (int k = 0; k < 3; k++) {
      brim_source s = images();
      brim_argument args[] = {arg_float("p", 0.5 * k)};
      brim_component c = component(names[v], args, 1);
      brim_transforms *t;
      assert_ok(create(&c, 1, &s, 3, &t));
      assert_int_equal(brim_transforms_scratch_bytes(t), 0);  // written into the batch directly
      assert_string_equal(brim_transforms_name(t, 0), names[v]);
      int flipped = 0;
      for (uint64_t i = 0; i < 400; i++) {
        uint8_t *out = transformed(t, 2, i);
        bool is = out[0] != pixel(i, 0, 0, 0);
        flipped += is;
        for (int64_t e = 0; e < H * W * C; e++) {
          int64_t y = e / (W * C), x = e / C % W;
          if (is && v) y = H - 1 - y;
          if (is && !v) x = W - 1 - x;
          assert_int_equal(out[e], pixel(i, y, x, e % C));
        }
        brim_free(out);
      }
      assert_true(k == 0 ? flipped == 0 : k == 2 ? flipped == 400 : abs(flipped - 200) < 50);
      brim_transforms_destroy(t);
    }
  }
}

// Squares of the mean colour around the drawn centres, cut off at the border; all other pixels are unchanged.
static void test_cutout(void **state) {
  (void)state;
  enum { SIZE = 3, SQUARES = 2 };
  static const uint8_t mean[3] = {128, 64, 255};
  brim_source s = images();
  brim_argument args[] = {arg_int("size", SIZE), arg_int("count", SQUARES), arg_float("p", 0.75)};
  brim_component c = component("cutout", args, 3);
  brim_transforms *t;
  assert_ok(create(&c, 1, &s, 5, &t));
  int happened = 0;
  for (uint64_t i = 0; i < 400; i++) {
    brim_augment a = {.key = brim_rng_key(5, BRIM_RNG_AUGMENT), .epoch = 7, .index = i};
    bool on = brim_rng_uniform(brim_augment_draw(&a, 0, 0).v[0]) < 0.75f;
    happened += on;
    uint8_t *out = transformed(t, 7, i);
    for (int64_t e = 0; e < H * W * C; e++) {
      int64_t y = e / (W * C), x = e / C % W;
      bool cut = false;
      for (uint32_t k = 0; k < SQUARES && on; k++) {
        brim_augment_point p = brim_augment_place(&a, 0, k + 1, H, W);
        cut |= y >= p.y - 1 && y <= p.y + 1 && x >= p.x - 1 && x <= p.x + 1;
      }
      assert_int_equal(out[e], cut ? mean[e % C] : pixel(i, y, x, e % C));
    }
    brim_free(out);
  }
  assert_in_range(happened, 260, 340);
  brim_transforms_destroy(t);
}

// Floats of (H, W) take the same paths; cutout fills with their mean.
static void test_floats(void **state) {
  (void)state;
  brim_source s = {.input_bytes = 4 * 3 * sizeof(float), .target_bytes = 4};
  s.info = (brim_source_info){.count = 1,
                              .type = BRIM_SAMPLE_F32,
                              .rank = 2,
                              .dim = {4, 3},
                              .classes = 2,
                              .channels = 1,
                              .mean = {0.125f},
                              .std = {1}};
  brim_argument flip[] = {arg_float("p", 1)}, crop[] = {arg_int("size", 2)},
                cut[] = {arg_int("size", 1)};
  brim_component items[] = {component("random_flip", flip, 1), component("center_crop", crop, 1),
                            component("cutout", cut, 1)};
  brim_transforms *t;
  assert_ok(create(items, 3, &s, 0, &t));
  assert_int_equal(brim_transforms_output_bytes(t), 4 * sizeof(float));
  float in[12], out[4];
  _Alignas(64) float scratch[64];
  assert_true(brim_transforms_scratch_bytes(t) <= sizeof scratch);
  for (int e = 0; e < 12; e++) in[e] = (float)e;
  brim_transforms_apply(t, &(brim_transforms_view){0, 0, 0, 4, 3}, in, out, scratch, NULL);
  static const float plain[4] = {5, 4, 8, 7};  // rows 1 and 2 mirrored, columns 0 and 1
  int same = 0, cuts = 0;
  for (int e = 0; e < 4; e++) {
    same += out[e] == plain[e];
    cuts += out[e] == 0.125f;
  }
  assert_int_equal(same, 3);
  assert_int_equal(cuts, 1);
  brim_transforms_destroy(t);
}

// Several stages that move pixels, through the scratch to the output: the same result as one after the other.
static void test_chain(void **state) {
  (void)state;
  brim_source s = images();
  brim_argument a5[] = {arg_int("size", 5)}, a4[] = {arg_int("size", 4)},
                a3[] = {arg_int("size", 3)}, p1[] = {arg_float("p", 1)};
  brim_component items[] = {
      component("random_vertical_flip", p1, 1), component("center_crop", a5, 1),
      component("random_flip", p1, 1),          component("center_crop", a4, 1),
      component("center_crop", a3, 1),          component("random_flip", p1, 1)};
  for (size_t n = 1; n <= 6; n++) {
    brim_transforms *t;
    assert_ok(create(items, n, &s, 0, &t));
    assert_int_equal(brim_transforms_count(t), n);
    uint8_t *out = transformed(t, 0, 8);
    int64_t height = brim_transforms_info(t)->dim[0], width = brim_transforms_info(t)->dim[1];
    static const int64_t heights[] = {6, 5, 5, 4, 3, 3};
    assert_int_equal(height, heights[n - 1]);
    for (int64_t e = 0; e < height * width * C; e++) {
      int64_t y = e / (width * C), x = e / C % width;
      int64_t from_y = H - 1 - y;  // the first stage; crops by one keep the upper left part
      int64_t from_x = n < 3 ? x : n < 6 ? W - 1 - x : W - 1 - (width - 1 - x);
      assert_int_equal(out[e], pixel(8, from_y, from_x, e % C));
    }
    brim_free(out);
    brim_transforms_destroy(t);
  }
}

//---------------------------------- draws ----------------------------------

// A draw is a function of seed, epoch, sample and place in the pipeline only.
static void test_draws(void **state) {
  (void)state;
  brim_augment a = {.key = brim_rng_key(1, BRIM_RNG_AUGMENT), .epoch = 3, .index = 17};
  brim_philox4 base = brim_augment_draw(&a, 2, 0);
  for (int k = 0; k < 6; k++) {
    brim_augment b = a;
    uint32_t stage = 2, n = 0;
    if (k == 0) b.key = brim_rng_key(2, BRIM_RNG_AUGMENT);
    if (k == 1) b.epoch++;
    if (k == 2) b.index++;
    if (k == 3) b.view++;
    if (k == 4) stage++;
    if (k == 5) n++;
    brim_philox4 other = brim_augment_draw(&b, stage, n);
    assert_memory_not_equal(&base, &other, sizeof base);
  }
  // Pinned values: the images of a seed must not change between versions.
  assert_int_equal(base.v[0], brim_philox(a.key, (uint64_t)3 << 32 | 2 << 16, 17).v[0]);
}

// Removing a stage without draws does not renumber the others.
static void test_without_random(void **state) {
  (void)state;
  brim_source s = images();
  brim_argument size[] = {arg_int("size", 4)};
  brim_component items[] = {component("random_flip", NULL, 0), component("center_crop", size, 1),
                            component("cutout", NULL, 0)};
  brim_pipeline p = {.items = items, .count = 3};
  brim_transforms *t;
  assert_ok(brim_transforms_create(&p, &s, 1, false, &t));
  assert_int_equal(brim_transforms_count(t), 1);
  assert_int_equal(brim_transforms_info(t)->dim[0], 4);
  brim_transforms_destroy(t);
}

static void test_messages(void **state) {
  (void)state;
  brim_source s = images();
  brim_transforms *t;
  brim_component c = component("solarize", NULL, 0);
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EUNSUPPORTED);
  assert_detail("transform 'solarize' is not supported in this version");
  assert_detail("random_crop, random_resized_crop");
  brim_argument size[] = {arg_int("size", 8)};
  c = (brim_component){
      .name = "random_crop", .args = size, .arg_count = 1, .file = "a.yaml", .line = 3, .col = 12};
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EINVAL);
  assert_detail("a.yaml:3:12: random_crop: a window of 8x8 does not fit into 6x5");
  size[0] = arg_int("size", 0);
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EINVAL);
  assert_detail("size must be");
  c = component("random_crop", NULL, 0);
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EINVAL);
  brim_argument p[] = {arg_float("p", 1.5)};
  c = component("random_flip", p, 1);
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EINVAL);
  assert_detail("p must be");
  s.info.rank = 1;
  c = component("cutout", NULL, 0);
  assert_status(create(&c, 1, &s, 0, &t), BRIM_EINVAL);
  assert_detail("cutout works on images");
}

//---------------------------------- in the loader ----------------------------------

static void standard(brim_component items[3], brim_argument args[4]) {
  args[0] = arg_int("size", 5);
  args[1] = arg_int("padding", 2);
  args[2] = arg_float("p", 0.5);
  args[3] = arg_int("size", 2);
  items[0] = component("random_crop", args, 2);
  items[1] = component("random_flip", args + 2, 1);
  items[2] = component("cutout", args + 3, 1);
}

enum { BATCH = 8, OUT = 5 * 5 * C, STREAM = 3 * COUNT };

// Runs the stream of three epochs from (epoch, position) on, with one number of workers.
static void stream(int workers, int64_t epoch, int64_t position, uint8_t *out) {
  brim_source s = images();
  brim_component items[3];
  brim_argument args[4];
  standard(items, args);
  brim_transforms *t;
  assert_ok(create(items, 3, &s, 21, &t));
  brim_loader_options o = {.batch = BATCH,
                           .num_workers = workers,
                           .prefetch_factor = 2,
                           .shuffle = true,
                           .seed = 21,
                           .world = 1,
                           .transforms = t};
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_plan plan = {0};
  brim_loader *l;
  assert_ok(brim_loader_plan(&s, &o, &plan));
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   plan.bytes[BRIM_PLACE_HOST]);
  assert_int_equal(plan.row_count, 2);
  assert_string_equal(plan.rows[1].name, "transform scratch");
  assert_int_equal(plan.rows[1].bytes, 128 * (workers ? workers : 1));  // 90 bytes, aligned
  assert_ok(brim_loader_seek(l, epoch, position));
  for (int64_t at = epoch * COUNT + position; at < STREAM;) {
    const brim_loaded *b;
    assert_ok(brim_loader_next(l, &b));
    assert_true(b->transform_ns >= 0 && b->io_ns >= 0);
    for (int64_t r = 0; r < b->rows; r++) {
      assert_int_equal(((const int32_t *)b->target)[r], b->index[r]);
    }
    memcpy(out + at * OUT, b->input, (size_t)b->rows * OUT);
    for (int64_t e = b->rows * OUT; e < BATCH * OUT; e++) {
      assert_int_equal(((const uint8_t *)b->input)[e], 0);
    }
    at += b->rows;
    brim_loader_release(l, b);
  }
  brim_loader_destroy(l);
  brim_transforms_destroy(t);
}

static void test_stream(void **state) {
  (void)state;
  static uint8_t expected[(STREAM + BATCH) * OUT], got[(STREAM + BATCH) * OUT];
  stream(0, 0, 0, expected);
  // The loader delivers the transform of the sample at each place of the order.
  brim_source s = images();
  brim_component items[3];
  brim_argument args[4];
  standard(items, args);
  brim_transforms *t;
  assert_ok(create(items, 3, &s, 21, &t));
  brim_loader_options o = {.batch = BATCH, .shuffle = true, .seed = 21, .world = 1};
  for (int64_t i = 0; i < STREAM; i++) {
    uint64_t index = loader_order(&o, COUNT, i / COUNT, (uint64_t)(i % COUNT));
    uint8_t *one = transformed(t, i / COUNT, index);
    assert_memory_equal(expected + i * OUT, one, OUT);
    brim_free(one);
  }
  brim_transforms_destroy(t);
  static const int workers[] = {0, 1, 3};
  for (int w = 0; w < 3; w++) {
    memset(got, 0, sizeof got);
    stream(workers[w], 0, 0, got);
    assert_memory_equal(expected, got, STREAM * OUT);
    // Streams that begin inside an epoch, on a batch boundary and off it.
    for (int64_t position = 5; position < COUNT; position += 11) {
      memset(got, 0, sizeof got);
      stream(workers[w], 1, position, got);
      size_t from = (size_t)(COUNT + position) * OUT;
      assert_memory_equal(expected + from, got + from, STREAM * OUT - from);
    }
  }
}

static brim_status create_all(brim_source *s, brim_transforms **t, brim_loader **l) {
  brim_component items[3];
  brim_argument args[4];
  standard(items, args);
  BRIM_TRY(create(items, 3, s, 21, t));
  brim_loader_options o = {.batch = BATCH,
                           .num_workers = 2,
                           .prefetch_factor = 1,
                           .seed = 21,
                           .world = 1,
                           .transforms = *t};
  return brim_loader_create(NULL, s, &o, l);
}

static void test_allocation_failures(void **state) {
  (void)state;
  brim_source s = images();
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1, failed;
  do {
    brim_transforms *t = NULL;
    brim_loader *l = NULL;
    failed = brim_alloc_failures();
    brim_alloc_fail_nth(n++, 0);
    brim_status status = create_all(&s, &t, &l);
    brim_alloc_fail_nth(0, 0);
    assert_int_equal(status, brim_alloc_failures() == failed ? BRIM_OK : BRIM_ENOMEM);
    brim_loader_destroy(l);
    brim_transforms_destroy(t);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_PLANNED], before.live_blocks[BRIM_MEM_PLANNED]);
    assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
  } while (brim_alloc_failures() != failed);
  assert_true(n > 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_center_crop),    cmocka_unit_test(test_random_crop),
      cmocka_unit_test(test_padding_modes),  cmocka_unit_test(test_flips),
      cmocka_unit_test(test_cutout),         cmocka_unit_test(test_floats),
      cmocka_unit_test(test_chain),          cmocka_unit_test(test_draws),
      cmocka_unit_test(test_without_random), cmocka_unit_test(test_messages),
      cmocka_unit_test(test_stream),         cmocka_unit_test(test_allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
