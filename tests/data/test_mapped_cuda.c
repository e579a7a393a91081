// A GPU reads rows from a page-locked file. A loader with workers, one over a set copied to the GPU and one over a
// mapped set give the same batches, byte for byte (within 1/255 where workers and GPU both transform), for every size
// of a row and every place in the file.
#include "base/base.h"
#include "config/config.h"
#include "mapped_test.h"

typedef struct gpu {
  brim_registry *registry;
  brim_device *device;
} gpu;

static bool gpu_open(gpu *g) {
  assert_ok(brim_registry_create(&g->registry));
  assert_ok(brim_registry_load_folder(g->registry, BRIM_BUILD_DIR "/lib/brim"));
  if (!brim_device_open(g->registry, "cuda", NULL, &g->device)) return true;
  brim_registry_destroy(g->registry);
  return false;
}

static void gpu_close(gpu *g) {
  brim_device_close(g->device);
  brim_registry_destroy(g->registry);
}

// Compares workers, a copied set and a mapped one; `step` as in same_stream, for the workers.
static void check_three(gpu *g, brim_source *s, brim_loader_options o, int step) {
  brim_loader *host, *copied, *mapped;
  brim_resident *sets[2];
  static heard a, b, c;
  size_t each = o.transforms ? (size_t)brim_transforms_views(o.transforms) *
                                   brim_transforms_output_bytes(o.transforms)
                             : s->input_bytes;
  assert_ok(brim_mapped_probe(g->registry, g->device, s));
  assert_true(brim_mapped_bytes(g->registry, g->device, s, o.transforms) > 0);
  assert_ok(brim_resident_create(g->registry, g->device, s, o.limit, 2, &sets[0]));
  assert_ok(brim_mapped_create(g->registry, g->device, s, o.limit, 2, &sets[1]));
  assert_true(brim_resident_locked_bytes(sets[1]) > 0);
  o.num_workers = 2;
  assert_ok(brim_loader_create(NULL, s, &o, &host));
  o.resident = sets[0];
  assert_ok(brim_loader_create(g->device, s, &o, &copied));
  o.resident = sets[1];
  assert_ok(brim_loader_create(g->device, s, &o, &mapped));
  listen(NULL, host, each, s->target_bytes, &a);
  listen(g->device, copied, each, s->target_bytes, &b);
  listen(g->device, mapped, each, s->target_bytes, &c);
  same_stream(&b, &c, 0);
  same_stream(&a, &c, step);
  forget(&a);
  forget(&b);
  forget(&c);
  brim_loader_destroy(mapped);
  brim_loader_destroy(copied);
  brim_loader_destroy(host);
  brim_resident_destroy(sets[1]);
  brim_resident_destroy(sets[0]);
}

static void test_cuda_same(void **state) {
  (void)state;
  const shape *shapes;
  size_t count = shapes_of(&shapes);
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (size_t k = 0; k < count; k++) {
    make_file("cuda.h5", &shapes[k]);
    brim_source *s = open_file("cuda.h5");
    check_three(&g, s, options_of(NULL), 0);
    assert_ok(brim_source_take(s, 0.2, 0.9, 9));
    brim_loader_options o = options_of(NULL);
    o.limit = 50;
    check_three(&g, s, o, 0);
    brim_source_close(s);
  }
  gpu_close(&g);
}

static void test_cuda_transforms(void **state) {
  (void)state;
  static const char *const texts[] = {
      "random_crop(size=6, padding=2) | random_flip",
      "random_resized_crop(size=5) | color_jitter(brightness=0.4, contrast=0.4) | views",
      "views",
      "gaussian_blur(kernel=3, p=1.0)",
  };
  const shape *shapes;
  shapes_of(&shapes);
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (int k = 5; k <= 6; k++) {
    make_file("cuda.h5", &shapes[k]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
      brim_arena *arena;
      brim_pipeline pipeline;
      brim_transforms *t;
      brim_source *s = open_file("cuda.h5");
      assert_ok(brim_arena_create(0, &arena));
      assert_ok(brim_config_parse_expression(arena, texts[i], "test", &pipeline));
      assert_ok(brim_transforms_create(&pipeline, s, 41, true, &t));
      check_three(&g, s, options_of(t), 1);
      brim_transforms_destroy(t);
      brim_arena_destroy(arena);
      brim_source_close(s);
    }
  }
  gpu_close(&g);
}

// Large batches of large rows as fast as the caller can request them, with only copies in between.
static void test_cuda_many(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  for (int k = 2; k <= 3; k++) {
    make_file("cuda.h5", &shapes[k]);
    brim_source *s = open_file("cuda.h5");
    brim_loader_options o = options_of(NULL);
    o.batch = 96;
    o.drop_last = true;
    brim_loader *l;
    assert_ok(brim_mapped_create(g.registry, g.device, s, 0, 2, &o.resident));
    assert_ok(brim_loader_create(g.device, s, &o, &l));
    size_t size = 96 * s->input_bytes;
    void *kept;
    assert_ok(brim_device_alloc(g.device, BRIM_BUFFER_DEVICE, 20 * size, &kept));
    for (int64_t i = 0; i < 20; i++) {
      const brim_loaded *b;
      assert_ok(brim_loader_next(l, &b));
      assert_int_equal(b->epoch, i);
      assert_ok(brim_device_copy(g.device, (uint8_t *)kept + (size_t)i * size, b->input, size,
                                 BRIM_COPY_D2D));
      brim_loader_release(l, b);
    }
    uint8_t *got = malloc(20 * size), *want = malloc(s->input_bytes);
    float target[8];
    assert_true(got && want);
    assert_ok(brim_device_copy(g.device, got, kept, 20 * size, BRIM_COPY_D2H));
    assert_ok(brim_device_sync(g.device));
    for (int64_t i = 0; i < 20; i++) {
      for (uint64_t r = 0; r < 96; r++) {
        uint64_t index = loader_order(&o, COUNT, i, r);
        assert_ok(brim_source_read(s, index, 1, want, target, NULL, NULL));
        assert_memory_equal(got + (size_t)i * size + r * s->input_bytes, want, s->input_bytes);
      }
    }
    free(got);
    free(want);
    brim_device_free(g.device, BRIM_BUFFER_DEVICE, kept);
    brim_loader_destroy(l);
    brim_resident_destroy(o.resident);
    brim_source_close(s);
  }
  gpu_close(&g);
}

// A file is cut short while its pages are locked: the GPU still has them. Runs last, because a fault here would spoil
// the device.
static void test_cuda_cut(void **state) {
  (void)state;
  const shape *shapes;
  shapes_of(&shapes);
  gpu g;
  if (!gpu_open(&g)) BRIM_SKIP(brim_status_detail());
  make_file("cuda.h5", &shapes[2]);
  brim_source *s = open_file("cuda.h5");
  brim_loader_options o = options_of(NULL);
  brim_loader *l;
  const brim_loaded *b;
  uint8_t *want = malloc(BATCH * s->input_bytes), *got = malloc(BATCH * s->input_bytes);
  float target[8];
  assert_true(want && got);
  for (uint64_t r = 0; r < BATCH; r++) {
    uint64_t index = loader_order(&o, COUNT, 0, r);
    assert_ok(brim_source_read(s, index, 1, want + r * s->input_bytes, target, NULL, NULL));
  }
  assert_ok(brim_mapped_create(g.registry, g.device, s, 0, 2, &o.resident));
  assert_ok(brim_loader_create(g.device, s, &o, &l));
  assert_int_equal(truncate("cuda.h5", 4096), 0);
  assert_ok(brim_loader_next(l, &b));
  assert_ok(brim_device_copy(g.device, got, b->input, BATCH * s->input_bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g.device));
  assert_memory_equal(got, want, BATCH * s->input_bytes);
  brim_loader_release(l, b);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
  // Pages that are gone cannot be locked: an error, not a crash.
  assert_status(brim_mapped_create(g.registry, g.device, s, 0, 2, &o.resident), BRIM_EUNSUPPORTED);
  free(want);
  free(got);
  brim_source_close(s);
  gpu_close(&g);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cuda_same),
      cmocka_unit_test(test_cuda_transforms),
      cmocka_unit_test(test_cuda_many),
      cmocka_unit_test(test_cuda_cut),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
