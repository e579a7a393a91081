// The device's transforms against the worker's: the same program, seed, epoch and samples give the same images within
// one step of 1/255 (bytes) or rounding (floats), on every path of the kernel: planes in shared memory or in scratch,
// one buffer or two, few taps or many. Gathers are exact.
#include <math.h>

#include "base/base.h"
#include "config/config.h"
#include "cuda_extension.h"
#include "data_test.h"

enum { COUNT = 23, TARGET = 12 };

//---------------------------------- device ----------------------------------

typedef struct gpu {
  cuda_extension e;
  brim_device *device;
  const brim_augment_table *table;
} gpu;

static bool gpu_open(gpu *g) {
  if (!cuda_extension_open(&g->e, BRIM_AUGMENT_EXTENSION, BRIM_AUGMENT_ABI)) return false;
  g->device = g->e.device;
  g->table = g->e.table;
  return true;
}

static void gpu_close(gpu *g) { cuda_extension_close(&g->e); }

static void *to_device(gpu *g, const void *data, size_t size) {
  void *p;
  assert_ok(brim_device_alloc(g->device, BRIM_BUFFER_DEVICE, size, &p));
  assert_ok(brim_device_copy(g->device, p, data, size, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(g->device));
  return p;
}

static void device_free(gpu *g, void *p) { brim_device_free(g->device, BRIM_BUFFER_DEVICE, p); }

// One batch: the kernel's results, on the host, and the targets. `shift` bytes in front of the samples, the targets and
// the results give them any alignment; all bytes are 0xAA before.
typedef struct made {
  uint8_t *out, *targets;
} made;

static void made_free(made *m) {
  free(m->out);
  free(m->targets);
}

// Samples on the host, and the numbers that the batch takes.
typedef struct picked {
  const uint8_t *inputs, *targets;
  const uint64_t *index;
  int64_t rows, capacity;
} picked;

static void make(gpu *g, const brim_augment_program *p, const picked *b, size_t shift, made *m) {
  int64_t capacity = b->capacity;
  size_t in_bytes = COUNT * p->sample_bytes, out_bytes = p->out_bytes * (size_t)p->views;
  out_bytes *= (size_t)capacity;
  size_t target_bytes = (size_t)capacity * TARGET;
  uint8_t *host = malloc(in_bytes + COUNT * TARGET + out_bytes + target_bytes + 64);
  assert_non_null(host);
  memset(host, 0xAA, shift);
  memcpy(host + shift, b->inputs, in_bytes);
  uint8_t *set = to_device(g, host, in_bytes + shift);
  memcpy(host + shift, b->targets, COUNT * TARGET);
  uint8_t *labels = to_device(g, host, COUNT * TARGET + shift);
  memset(host, 0xAA, out_bytes + target_bytes + 64);
  // 16 bytes behind each result, which no write may change.
  uint8_t *out = to_device(g, host, out_bytes + shift + 16);
  uint8_t *out_targets = to_device(g, host, target_bytes + shift + 16);
  uint64_t *numbers = to_device(g, b->index, (size_t)b->rows * sizeof *b->index);
  size_t scratch_bytes = g->table->scratch_bytes(p, capacity);
  void *scratch = NULL;
  if (scratch_bytes) {
    assert_ok(brim_device_alloc(g->device, BRIM_BUFFER_DEVICE, scratch_bytes, &scratch));
    assert_ok(brim_device_fill(g->device, scratch, 0xFF, scratch_bytes));  // NaN
  }
  brim_augment_batch batch = {.inputs = set + shift,
                              .targets = labels + shift,
                              .index = numbers,
                              .rows = b->rows,
                              .capacity = capacity,
                              .epoch = 3,
                              .target_bytes = TARGET,
                              .out = out + shift,
                              .out_targets = out_targets + shift};
  assert_ok(g->table->supports(p));
  assert_ok(g->table->run(g->device->stream, p, &batch, scratch));
  assert_ok(brim_device_copy(g->device, host, out, out_bytes + shift + 16, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g->device));
  for (size_t i = 0; i < 16; i++) {
    if (i < shift) assert_int_equal(host[i], 0xAA);
    assert_int_equal(host[out_bytes + shift + i], 0xAA);
  }
  m->out = malloc(out_bytes);
  m->targets = malloc(target_bytes);
  assert_true(m->out && m->targets);
  memcpy(m->out, host + shift, out_bytes);
  assert_ok(
      brim_device_copy(g->device, host, out_targets, target_bytes + shift + 16, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g->device));
  for (size_t i = 0; i < 16; i++) assert_int_equal(host[target_bytes + shift + i], 0xAA);
  memcpy(m->targets, host + shift, target_bytes);
  device_free(g, set);
  device_free(g, labels);
  device_free(g, out);
  device_free(g, out_targets);
  device_free(g, numbers);
  device_free(g, scratch);
  free(host);
}

//---------------------------------- samples ----------------------------------

typedef struct shape {
  int height, width, channels;
  bool floats;
} shape;

static brim_source source_of(const shape *s) {
  size_t values = (size_t)s->height * (size_t)s->width * (size_t)s->channels;
  brim_source source = {.input_bytes = values * (s->floats ? 4 : 1), .target_bytes = TARGET};
  source.info = (brim_source_info){.count = COUNT,
                                   .type = s->floats ? BRIM_SAMPLE_F32 : BRIM_SAMPLE_U8,
                                   .rank = 3,
                                   .dim = {s->height, s->width, s->channels},
                                   .target_dim = TARGET / 4,
                                   .channels = s->channels,
                                   .mean = {0.5f, 0.4f, 0.3f, 0.2f},
                                   .std = {1, 1, 1, 1}};
  return source;
}

static uint32_t hash(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// Noise over slow waves: edges for the filters, and colours of every kind.
static uint8_t *samples_of(const shape *s) {
  size_t values = (size_t)s->height * (size_t)s->width * (size_t)s->channels;
  uint8_t *size = malloc(COUNT * values * (s->floats ? 4 : 1));
  assert_non_null(size);
  for (size_t i = 0; i < COUNT * values; i++) {
    double wave = sin((double)(i % 977) * 0.02 + (double)(i % (size_t)s->channels));
    double v = 0.5 + 0.3 * wave + 0.4 * ((double)(hash((uint32_t)i) & 0xffff) / 65536.0 - 0.5);
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    if (s->floats) {
      ((float *)(void *)size)[i] = (float)v;
    } else {
      size[i] = (uint8_t)(255.0 * v);
    }
  }
  return size;
}

static void fill_targets(uint8_t targets[COUNT * TARGET]) {
  for (uint32_t i = 0; i < COUNT * TARGET; i++) targets[i] = (uint8_t)hash(i + 77);
}

//---------------------------------- comparing ----------------------------------

static void same_image(const uint8_t *got, const uint8_t *want, size_t size, bool floats,
                       const char *what, size_t row) {
  if (!floats) {
    for (size_t i = 0; i < size; i++) {
      int d = (int)got[i] - (int)want[i];
      if (d < -1 || d > 1) {
        fail_msg("%s: value %zu of row %zu is %d, the worker's is %d", what, i, row, got[i],
                 want[i]);
      }
    }
    return;
  }
  for (size_t i = 0; i < size / 4; i++) {
    float a, b;
    memcpy(&a, got + 4 * i, 4);
    memcpy(&b, want + 4 * i, 4);
    float scale = fabsf(b) > 1.0f ? fabsf(b) : 1.0f;
    if (!(fabsf(a - b) <= 1e-5f * scale)) {
      fail_msg("%s: value %zu of row %zu is %.9g, the worker's is %.9g", what, i, row, (double)a,
               (double)b);
    }
  }
}

static void check_made(const brim_transforms *t, const made *m, const picked *b, const char *what) {
  int64_t rows = b->rows, capacity = b->capacity;
  const brim_augment_program *p = brim_transforms_program(t);
  size_t scratch_bytes = brim_transforms_scratch_bytes(t);
  void *scratch = scratch_bytes ? brim_alloc(scratch_bytes) : NULL;
  uint8_t *want = malloc(p->out_bytes), *zero = calloc(1, p->out_bytes);
  assert_true(want && zero);
  for (int64_t i = 0; i < capacity * p->views; i++) {
    int64_t row = i % capacity;
    const uint8_t *got = m->out + (size_t)i * p->out_bytes;
    if (row >= rows) {
      assert_memory_equal(got, zero, p->out_bytes);
      continue;
    }
    const brim_transforms_view of = {3, b->index[row], (uint32_t)(i / capacity), p->in_height,
                                     p->in_width};
    brim_transforms_apply(t, &of, b->inputs + of.index * p->sample_bytes, want, scratch, NULL);
    same_image(got, want, p->out_bytes, p->out_float != 0, what, (size_t)i);
  }
  for (int64_t row = 0; row < capacity; row++) {
    const uint8_t *got = m->targets + row * TARGET;
    const uint8_t *expected = row < rows ? b->targets + b->index[row] * TARGET : zero;
    if (row < rows || p->out_bytes >= TARGET) assert_memory_equal(got, expected, TARGET);
  }
  brim_free(scratch);
  free(want);
  free(zero);
}

static void check_pipeline(gpu *g, const char *text, const shape *s, int64_t rows, int64_t capacity,
                           size_t shift) {
  brim_arena *arena;
  brim_pipeline pipeline;
  assert_ok(brim_arena_create(0, &arena));
  assert_ok(brim_config_parse_expression(arena, text, "test", &pipeline));
  brim_source source = source_of(s);
  brim_transforms *t;
  assert_ok(brim_transforms_create(&pipeline, &source, 41, true, &t));
  const brim_augment_program *p = brim_transforms_program(t);
  assert_non_null(p);
  char what[512];
  snprintf(what, sizeof what, "%s of %dx%dx%d %s", text, s->height, s->width, s->channels,
           s->floats ? "floats" : "bytes");
  uint8_t *inputs = samples_of(s), targets[COUNT * TARGET];
  fill_targets(targets);
  uint64_t *index = malloc((size_t)rows * sizeof *index);
  assert_non_null(index);
  for (int64_t i = 0; i < rows; i++) index[i] = hash((uint32_t)(i + rows)) % COUNT;
  made m, again;
  const picked batch = {inputs, targets, index, rows, capacity};
  make(g, p, &batch, shift, &m);
  check_made(t, &m, &batch, what);
  make(g, p, &batch, shift, &again);
  assert_memory_equal(m.out, again.out, p->out_bytes * (size_t)(p->views * capacity));
  made_free(&m);
  made_free(&again);
  free(index);
  free(inputs);
  brim_transforms_destroy(t);
  brim_arena_destroy(arena);
}

//---------------------------------- tests ----------------------------------

#define RRC(size) "random_resized_crop(size=" size ", scale=(0.08, 1.0), ratio=(0.75, 1.3333))"
#define JITTER "color_jitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p=0.8)"
#define BLUR(kernel, p) "gaussian_blur(kernel=" kernel ", sigma=(0.1, 2.0), p=" p ")"
#define SIMCLR(size, kernel) \
  RRC(size) " | random_flip | " JITTER " | random_grayscale(p=0.3) | " BLUR(kernel, "0.5")

static const char *const small_pipelines[] = {
    "random_crop(size=32, padding=4) | random_flip | cutout(size=8)",
    "random_crop(size=(24, 40), padding=6, padding_mode=reflect) | random_vertical_flip",
    "random_crop(size=30, padding=9, padding_mode=edge) | random_flip(p=1.0)",
    "center_crop(size=20) | pad(padding=3) | random_flip",
    "resize(size=(17, 45))",
    "resize(size=(7, 5)) | random_flip",
    "resize(size=48, interpolation=nearest) | random_crop(size=32)",
    "pad(padding=5, value=200) | random_flip | pad(padding=3, value=20)",
    "pad(padding=5, value=200) | resize(size=24) | pad(padding=3, value=20)",
    "pad(padding=9, value=200) | resize(size=64) | random_crop(size=70, padding=9)",
    "pad(padding=5) | resize(size=20) | random_crop(size=20, padding=4)",
    "random_crop(size=32, padding=8) | " RRC("24"),
    RRC("(21, 37)") " | pad(padding=2)",
    "resize(size=40) | resize(size=24) | resize(size=33)",
    JITTER,
    "color_jitter(brightness=0.0, contrast=0.9, saturation=0.0, hue=0.0)",
    "color_jitter(brightness=0.3, contrast=0.0, saturation=0.7, hue=0.5)",
    "grayscale",
    BLUR("3", "1.0"),
    BLUR("9", "1.0") " | random_crop(size=32, padding=4)",
    BLUR("31", "1.0"),
    "gaussian_blur(kernel=255, sigma=(20.0, 30.0), p=1.0)",
    "cutout(size=5, count=7, p=0.7) | random_flip | random_vertical_flip",
    JITTER " | random_flip | random_crop(size=28, padding=2) | " BLUR("5", "0.7"),
    SIMCLR("32", "3") " | views",
    SIMCLR("33", "5") " | cutout(size=9) | views(views=3)",
    "cast(dtype=float32)",
    "random_crop(size=32, padding=4) | cast(dtype=float32)",
};

static void test_small(void **state) {
  (void)state;
  static const shape shapes[] = {
      {32, 32, 3, false}, {32, 32, 1, false}, {33, 31, 3, true}, {40, 36, 1, true}};
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (size_t i = 0; i < sizeof small_pipelines / sizeof *small_pipelines; i++) {
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      // Every second batch is short, and begins at an odd address (floats cannot).
      bool odd = (i + k) % 2 != 0;
      check_pipeline(&g, small_pipelines[i], &shapes[k], odd ? 9 : 16, 16,
                     odd && !shapes[k].floats ? (strstr(small_pipelines[i], "cast") ? 4 : 3) : 0);
    }
  }
  gpu_close(&g);
}

static void test_channels(void **state) {
  (void)state;
  static const shape shapes[] = {{20, 22, 2, false}, {19, 27, 4, true}, {8, 2000, 1, true}};
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    check_pipeline(&g, RRC("(12, 18)") " | random_flip | " BLUR("7", "0.6"), &shapes[k], 5, 8, 0);
    check_pipeline(&g, "random_crop(size=8, padding=3) | cutout(size=3)", &shapes[k], 8, 8, 0);
  }
  gpu_close(&g);
}

// 96 x 96, the size in training; and sizes whose planes do not fit into shared memory.
static void test_large(void **state) {
  (void)state;
  static const struct {
    const char *text;
    shape s;
  } rows[] = {
      {SIMCLR("96", "9") " | views", {96, 96, 3, false}},
      {RRC("96") " | random_flip", {96, 96, 3, true}},
      {SIMCLR("128", "13"), {150, 140, 3, false}},
      {SIMCLR("224", "23"), {300, 200, 3, false}},
      {"resize(size=224) | random_crop(size=200) | " JITTER, {300, 200, 3, false}},
      {BLUR("9", "1.0") " | random_crop(size=224, padding=8) | " JITTER, {224, 224, 3, false}},
      {JITTER " | random_flip | resize(size=(31, 500))", {300, 200, 3, true}},
  };
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    check_pipeline(&g, rows[i].text, &rows[i].s, i % 2 ? 4 : 5, 5, 0);
  }
  gpu_close(&g);
}

// More samples than blocks that work at once, on the path through scratch.
static void test_many_large(void **state) {
  (void)state;
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  const shape s = {150, 150, 3, false};
  check_pipeline(&g, "random_flip | color_jitter(brightness=0.5, contrast=0.5, saturation=0.5)", &s,
                 290, 300, 0);
  gpu_close(&g);
}

static void test_gather(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 3, 4, 12, 16, 100, 784, 3072, 4099, 41280};
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  uint8_t targets[COUNT * TARGET];
  fill_targets(targets);
  for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
    size_t size = sizes[k / 2], shift = k % 2 ? 1 : 0;
    brim_augment_program p = {.views = k % 3 == 2 ? 2 : 1, .sample_bytes = size, .out_bytes = size};
    uint8_t *inputs = malloc(COUNT * size), *zero = calloc(1, size);
    assert_true(inputs && zero);
    for (size_t i = 0; i < COUNT * size; i++) inputs[i] = (uint8_t)hash((uint32_t)(i + k));
    uint64_t index[37];
    for (uint32_t i = 0; i < 37; i++) index[i] = hash(i + 5) % COUNT;
    int64_t rows = k % 4 == 1 ? 30 : 37;
    assert_int_equal(g.table->scratch_bytes(&p, 37), 0);
    made m;
    const picked batch = {inputs, targets, index, rows, 37};
    make(&g, &p, &batch, shift, &m);
    for (int64_t i = 0; i < 37 * p.views; i++) {
      int64_t row = i % 37;
      const uint8_t *want = row < rows ? inputs + index[row] * size : zero;
      assert_memory_equal(m.out + (size_t)i * size, want, size);
    }
    for (int64_t row = 0; row < rows; row++) {
      assert_memory_equal(m.targets + row * TARGET, targets + index[row] * TARGET, TARGET);
    }
    made_free(&m);
    free(inputs);
    free(zero);
  }
  gpu_close(&g);
}

static void test_refused(void **state) {
  (void)state;
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  brim_augment_program p = {.in_height = 32,
                            .in_width = 32,
                            .out_height = 32,
                            .out_width = 32,
                            .channels = 5,
                            .views = 1,
                            .stage_count = 1};
  p.stages[0].op = BRIM_IMAGE_FLIP;
  assert_status(g.table->supports(&p), BRIM_EUNSUPPORTED);
  assert_detail("5 channels");
  p.channels = 3;
  assert_ok(g.table->supports(&p));
  p.stages[0].op = BRIM_IMAGE_OP_COUNT;
  assert_status(g.table->supports(&p), BRIM_EUNSUPPORTED);
  assert_detail("stage 0");
  p.stages[0].op = BRIM_IMAGE_BLUR;
  p.stages[0].taps = 257;
  assert_status(g.table->supports(&p), BRIM_EUNSUPPORTED);
  assert_detail("gaussian_blur");
  p.stages[0].taps = 9;
  p.in_width = 5000;
  assert_status(g.table->supports(&p), BRIM_EUNSUPPORTED);
  assert_detail("gaussian_blur");
  p.in_width = 32;
  p.in_float = 1;
  assert_status(g.table->supports(&p), BRIM_EUNSUPPORTED);
  gpu_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small),  cmocka_unit_test(test_channels),
      cmocka_unit_test(test_large),  cmocka_unit_test(test_many_large),
      cmocka_unit_test(test_gather), cmocka_unit_test(test_refused),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
