// Loaders over a resident set, on the ref device with a test's table that runs the worker's transforms over it: the
// stream equals that of a loader with workers, byte for byte.
#include "data/loader/data_loader_int.h"
#include "loader_test.h"

enum { COUNT = 101 };

//---------------------------------- a table for the host ----------------------------------

static const brim_transforms *table_transforms;  // the pipeline behind its program; NULL = gathers
static uint8_t *table_scratch;
static int table_runs;
static brim_status table_status;

static brim_status table_supports(const brim_augment_program *program) {
  if (program->views > 2) return brim_fail(BRIM_EUNSUPPORTED, "views: two are the most");
  return BRIM_OK;
}

static size_t table_scratch_bytes(const brim_augment_program *program, int64_t capacity) {
  return (size_t)program->views * (size_t)capacity;
}

static brim_status table_run(void *stream, const brim_augment_program *p,
                             const brim_augment_batch *b, void *scratch) {
  assert_null(stream);
  table_runs++;
  if (table_status) return brim_fail(table_status, "the device is gone");
  // Checks that all of the scratch is writable.
  memset(scratch, 0xa5, table_scratch_bytes(p, b->capacity));
  assert_int_equal((uintptr_t)scratch % 64, 0);
  uint8_t *out = b->out;
  memset(out, 0, (size_t)p->views * (size_t)b->capacity * p->out_bytes);
  if (b->out_targets) memset(b->out_targets, 0, (size_t)b->capacity * b->target_bytes);
  for (int64_t r = 0; r < b->rows; r++) {
    const uint8_t *in = (const uint8_t *)b->inputs + b->index[r] * p->sample_bytes;
    for (uint32_t v = 0; v < (uint32_t)p->views; v++) {
      uint8_t *to = out + ((size_t)v * (size_t)b->capacity + (size_t)r) * p->out_bytes;
      if (table_transforms) {
        const brim_transforms_view of = {b->epoch, b->index[r], v, SIDE, SIDE};
        brim_transforms_apply(table_transforms, &of, in, to, table_scratch, NULL);
      } else {
        memcpy(to, in, p->out_bytes);
      }
    }
    if (b->targets) {
      memcpy((uint8_t *)b->out_targets + (size_t)r * b->target_bytes,
             (const uint8_t *)b->targets + b->index[r] * b->target_bytes, b->target_bytes);
    }
  }
  return BRIM_OK;
}

static const brim_augment_table table = {.abi = BRIM_AUGMENT_ABI,
                                         .supports = table_supports,
                                         .scratch_bytes = table_scratch_bytes,
                                         .run = table_run};

static void use_transforms(const brim_transforms *t) {
  table_transforms = t;
  table_runs = 0;
  brim_free(table_scratch);
  table_scratch = t ? brim_alloc(brim_transforms_scratch_bytes(t) + 1) : NULL;
}

typedef struct bench {
  brim_registry *registry;
  brim_device *device;
} bench;

static int open_device(void **state) {
  static bench b;
  assert_ok(brim_registry_create(&b.registry));
  assert_ok(brim_device_open(b.registry, "ref", NULL, &b.device));
  *state = &b;
  return 0;
}

static int close_device(void **state) {
  bench *b = *state;
  use_transforms(NULL);
  brim_device_close(b->device);
  brim_registry_destroy(b->registry);
  return 0;
}

//---------------------------------- the stream ----------------------------------

static void test_same_as_workers(void **state) {
  const bench *bn = *state;
  for (int views = 0; views <= 2; views++) {  // 0: no transforms at all
    for (int threads = 1; threads <= 4; threads += 3) {
      image_state ts = {.slow = true};
      brim_source s = image_source(&ts, COUNT, false);
      brim_transforms *t = views ? make_transforms(&s, views) : NULL;
      brim_resident *set;
      brim_loader *host, *device;
      brim_loader_options o = image_options();
      o.transforms = t;
      o.num_workers = 2;
      use_transforms(t);
      assert_int_equal(brim_resident_bytes_with(&table, &s, t),
                       (COUNT * IMAGE + 255) / 256 * 256 + (COUNT * 4 + 255) / 256 * 256);
      assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, threads, &set));
      assert_int_equal(image_reads(&ts), COUNT);  // each sample once
      assert_ok(brim_loader_create(NULL, &s, &o, &host));
      o.resident = set;
      assert_ok(brim_loader_create(bn->device, &s, &o, &device));
      assert_int_equal(brim_loader_samples(host), brim_loader_samples(device));
      size_t each = (size_t)(views ? views : 1) * 8 * IMAGE;
      unsigned before = image_reads(&ts);
      for (int64_t k = 0; k < 40; k++) {
        const brim_loaded *a, *b;
        if (k % 13 == 7) {
          assert_ok(brim_loader_seek(host, k, k));
          assert_ok(brim_loader_seek(device, k, k));
        }
        assert_ok(brim_loader_next(host, &a));
        assert_ok(brim_loader_next(device, &b));
        assert_true(b->on_device && !a->on_device);
        assert_int_equal(a->rows, b->rows);
        assert_int_equal(a->epoch, b->epoch);
        assert_int_equal(a->first, b->first);
        assert_int_equal(a->last, b->last);
        assert_memory_equal(a->index, b->index, 8 * sizeof *a->index);
        assert_memory_equal(a->input, b->input, each);
        assert_memory_equal(a->target, b->target, 8 * 4);
        brim_loader_release(host, a);
        brim_loader_release(device, b);
      }
      assert_int_equal(table_runs, 40);
      assert_true(image_reads(&ts) > before);  // the other loader read again
      brim_loader_stats stats;
      brim_loader_get_stats(device, &stats);
      assert_int_equal(stats.batches, 40);
      assert_int_equal(stats.read_ns, 0);
      brim_loader_destroy(device);
      brim_loader_destroy(host);
      brim_resident_destroy(set);
      brim_transforms_destroy(t);
    }
  }
}

// Two batches may be held, and keep their numbers while later ones arrive.
static void test_held(void **state) {
  const bench *bn = *state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false);
  brim_loader_options o = image_options();
  brim_loader *l;
  const brim_loaded *held, *other, *more;
  use_transforms(NULL);
  assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, 2, &o.resident));
  assert_ok(brim_loader_create(bn->device, &s, &o, &l));
  assert_ok(brim_loader_next(l, &held));
  for (int k = 0; k < 30; k++) {
    assert_ok(brim_loader_next(l, &other));
    if (k == 3) {
      assert_status(brim_loader_next(l, &more), BRIM_ESTATE);
      assert_detail("release");
    }
    for (uint64_t r = 0; r < 8; r++) {
      assert_int_equal(held->index[r], loader_order(&o, COUNT, 0, r));
      assert_int_equal(((const int32_t *)held->target)[r], held->index[r]);
      if (r < (uint64_t)other->rows) {
        assert_int_equal(other->index[r],
                         loader_order(&o, COUNT, other->epoch, (uint64_t)other->first + r));
      }
    }
    brim_loader_release(l, other);
  }
  brim_loader_release(l, held);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
}

// Only the first `limit` samples; a request for more is refused.
static void test_limit(void **state) {
  const bench *bn = *state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false);
  brim_loader_options o = image_options();
  brim_loader *l;
  row rows[8];
  use_transforms(NULL);
  assert_ok(brim_resident_create_with(&table, bn->device, &s, 10, 3, &o.resident));
  assert_int_equal(image_reads(&ts), 10);
  assert_status(brim_loader_create(bn->device, &s, &o, &l), BRIM_EINVAL);
  assert_detail("101 samples requested, but the device holds 10");
  o.limit = 10;
  assert_ok(brim_loader_create(bn->device, &s, &o, &l));
  uint64_t sum = 0;
  for (int k = 0; k < 2; k++) {
    for (int64_t n = take_rows(l, &o, IMAGE, 1, rows); n > 0; n--) sum += rows[n - 1].index;
  }
  assert_int_equal(sum, 45);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
}

//---------------------------------- what goes wrong ----------------------------------

static void test_refused(void **state) {
  const bench *bn = *state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false), varying = image_source(&ts, COUNT, true);
  brim_resident *set;
  // The public functions: ref has no table and needs none.
  assert_int_equal(brim_resident_bytes(bn->registry, bn->device, &s, NULL), 0);
  assert_detail("host memory");
  assert_status(brim_resident_create(bn->registry, bn->device, &s, 0, 1, &set), BRIM_EUNSUPPORTED);
  brim_device gpu = *bn->device;
  gpu.info.host_memory = false;
  assert_int_equal(brim_resident_bytes(bn->registry, &gpu, &s, NULL), 0);
  assert_detail("data.augment");
  assert_int_equal(brim_resident_bytes_with(&table, &varying, NULL), 0);
  assert_detail("different sizes");
  assert_status(brim_resident_create_with(&table, bn->device, &varying, 0, 1, &set),
                BRIM_EUNSUPPORTED);
  brim_transforms *t = make_transforms(&s, 3);
  assert_int_equal(brim_resident_bytes_with(&table, &s, t), 0);
  assert_detail("views: two are the most");
  brim_transforms_destroy(t);
}

// The message names the first unreadable sample, even if a thread meets another one first; and only if it is among the
// requested ones.
static void test_broken(void **state) {
  const bench *bn = *state;
  use_transforms(NULL);
  for (int threads = 1; threads <= 4; threads++) {
    image_state ts = {.broken_every = 20, .broken_rest = 7, .slow = true};
    brim_source s = image_source(&ts, COUNT, false);
    brim_loader_options o = image_options();
    brim_loader *l;
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, threads, &o.resident));
    assert_status(brim_loader_create(bn->device, &s, &o, &l), BRIM_EPARSE);
    assert_detail("sample 7: image 7 is broken");
    o.limit = 7;
    o.batch = 4;
    assert_ok(brim_loader_create(bn->device, &s, &o, &l));
    brim_loader_destroy(l);
    brim_resident_destroy(o.resident);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
  }
  image_state none = {.broken_every = 1};
  brim_source s = image_source(&none, COUNT, false);
  brim_resident *set;
  assert_status(brim_resident_create_with(&table, bn->device, &s, 0, 2, &set), BRIM_EPARSE);
  assert_detail("none of the 101 samples can be read; ");
}

// Broken samples are replaced, counted and reported as by workers.
static void test_skipped_as_workers_do(void **state) {
  const bench *bn = *state;
  for (int rank = 0; rank < 2; rank++) {
    image_state ts = {.broken_every = 5, .broken_rest = 3};
    brim_source s = image_source(&ts, COUNT, false);
    brim_transforms *t = make_transforms(&s, 2);
    brim_loader *host, *device;
    brim_loader_options o = image_options();
    o.transforms = t;
    o.num_workers = 2;
    o.skip_broken = true;
    o.rank = rank;
    o.world = 2;
    use_transforms(t);
    brim_resident *set;
    assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, 3, &set));
    assert_ok(brim_loader_create(NULL, &s, &o, &host));
    o.resident = set;
    assert_ok(brim_loader_create(bn->device, &s, &o, &device));
    for (int64_t k = 0; k < 30; k++) {
      const brim_loaded *a, *b;
      assert_ok(brim_loader_next(host, &a));
      assert_ok(brim_loader_next(device, &b));
      assert_memory_equal(a->index, b->index, 8 * sizeof *a->index);
      assert_memory_equal(a->input, b->input, (size_t)2 * 8 * IMAGE);
      assert_memory_equal(a->target, b->target, 8 * 4);
      brim_loader_release(host, a);
      brim_loader_release(device, b);
    }
    brim_loader_stats of_host, of_device;
    brim_loader_get_stats(host, &of_host);
    brim_loader_get_stats(device, &of_device);
    assert_true(of_host.broken > 0);
    assert_int_equal(of_host.broken, of_device.broken);
    assert_int_equal(of_host.broken_reads, of_device.broken_reads);
    assert_string_equal(of_host.first_broken, of_device.first_broken);
    brim_loader_destroy(device);
    brim_loader_destroy(host);
    brim_resident_destroy(set);
    brim_transforms_destroy(t);
  }
}

// A failing launch loses nothing of the stream.
static void test_run_fails(void **state) {
  const bench *bn = *state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false);
  brim_loader_options o = image_options();
  brim_loader *l;
  const brim_loaded *b;
  use_transforms(NULL);
  assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, 1, &o.resident));
  assert_ok(brim_loader_create(bn->device, &s, &o, &l));
  table_status = BRIM_EIO;
  for (int k = 0; k < 20; k++) {
    assert_status(brim_loader_next(l, &b), BRIM_EIO);
    assert_detail("the device is gone");
  }
  table_status = BRIM_OK;
  assert_ok(brim_loader_next(l, &b));
  assert_int_equal(b->first, 0);
  brim_loader_release(l, b);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
}

// Each allocation fails in turn: none leaks, and the stream is right once none fails.
static void test_allocation_failures(void **state) {
  const bench *bn = *state;
  image_state ts = {.broken_every = 5, .broken_rest = 3};
  brim_source s = image_source(&ts, COUNT, false);
  use_transforms(NULL);
  uint64_t n = 1;
  for (;; n++) {
    brim_alloc_stats before, after;
    brim_loader_options o = image_options();
    o.skip_broken = true;
    brim_loader *l = NULL;
    const brim_loaded *b;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_resident_create_with(&table, bn->device, &s, 0, 2, &o.resident);
    if (!status) status = brim_loader_create(bn->device, &s, &o, &l);
    if (!status) status = brim_loader_next(l, &b);
    brim_alloc_fail_nth(0, 0);
    bool failed = brim_alloc_failures() != failures;
    assert_true(!status || brim_status_detail()[0]);
    brim_loader_destroy(l);
    brim_resident_destroy(o.resident);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
    if (!failed) {
      assert_ok(status);
      break;
    }
    assert_true(status == BRIM_ENOMEM || status == BRIM_EOOM);
  }
  assert_true(n > 8);
}

// The plan has the batch on the device and the lists on the host, and equals the allocated memory.
static void test_plan(void **state) {
  const bench *bn = *state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false);
  brim_transforms *t = make_transforms(&s, 2);
  brim_loader_options o = image_options();
  brim_loader *l;
  brim_plan plan = {0};
  brim_alloc_stats before, after;
  o.transforms = t;
  assert_ok(brim_resident_create_with(&table, bn->device, &s, 0, 1, &o.resident));
  assert_ok(brim_loader_plan(&s, &o, &plan));
  assert_int_equal(plan.row_count, 2);
  assert_string_equal(plan.rows[0].name, "loader ring");
  assert_string_equal(plan.rows[1].name, "augmented batch");
  assert_int_equal(plan.rows[1].place, BRIM_PLACE_DEVICE);
  assert_true(plan.bytes[BRIM_PLACE_DEVICE] >= 2 * 2 * 8 * IMAGE + 2 * 8 * 4 + 8 * 8 + 2 * 8);
  brim_alloc_get_stats(&before);
  assert_ok(brim_loader_create(bn->device, &s, &o, &l));
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   plan.bytes[BRIM_PLACE_HOST] + plan.bytes[BRIM_PLACE_DEVICE]);
  brim_loader_destroy(l);
  brim_resident_destroy(o.resident);
  brim_transforms_destroy(t);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_as_workers),
      cmocka_unit_test(test_held),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_broken),
      cmocka_unit_test(test_skipped_as_workers_do),
      cmocka_unit_test(test_run_fails),
      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
