// The loader: the same stream with any number of workers, after any seek and over ranks; padding; planned bytes;
// failing sources; stress; allocation failures.
#include <stdatomic.h>

#include "base/base.h"
#include "data_test.h"
#include "hd/hd_shuffle.h"
#include "loader_order.h"

//---------------------------------- a source to test with ----------------------------------

// Sample i is three bytes of i, and its label is i; sample `fail_at` cannot be read.
typedef struct test_state {
  uint64_t fail_at;
  bool silent;
  bool slow;         // samples finish out of order
  bool interrupted;  // at fail_at the user interrupts, instead of a failure
  atomic_int fail_count;
  atomic_int reads;
} test_state;

static brim_status test_read(void *state, uint64_t index, void *input, void *target) {
  test_state *s = state;
  atomic_fetch_add(&s->reads, 1);
  if (index == s->fail_at) {
    atomic_fetch_add(&s->fail_count, 1);
    if (s->interrupted) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    return s->silent ? BRIM_EIO
                     : brim_fail(BRIM_EIO, "disk on fire at %llu", (unsigned long long)index);
  }
  if (s->slow && index % 7 == 0) brim_clock_sleep_ns(20000 * (int64_t)(index % 11));
  uint8_t *p = input;
  for (int i = 0; i < 3; i++) p[i] = (uint8_t)(index >> (8 * i));
  *(int32_t *)target = (int32_t)index;
  return BRIM_OK;
}

static const brim_source_table test_table = {
    .abi = BRIM_SOURCE_ABI, .name = "test", .read = test_read};

static brim_source test_source(test_state *state, uint64_t count) {
  brim_source s = {.table = &test_table, .state = state, .input_bytes = 3, .target_bytes = 4};
  s.info = (brim_source_info){
      .count = count, .type = BRIM_SAMPLE_U8, .rank = 1, .dim = {3}, .classes = INT32_MAX};
  return s;
}

static brim_loader_options base_options(void) {
  brim_loader_options o = {
      .batch = 8, .prefetch_factor = 2, .shuffle = true, .seed = 11, .rank = 0, .world = 1};
  return o;
}

// Takes a batch, checks each row against its index and the rest for zeros, appends the indices to `out`, and gives the
// batch back. Returns the rows.
static int64_t take(brim_loader *l, int64_t batch, uint64_t *out) {
  const brim_loaded *b;
  assert_ok(brim_loader_next(l, &b));
  assert_in_range(b->rows, 1, batch);
  const uint8_t *input = b->input;
  const int32_t *target = b->target;
  for (int64_t r = 0; r < batch; r++) {
    uint64_t i = r < b->rows ? b->index[r] : 0;
    assert_int_equal(b->index[r], i);
    assert_int_equal(target[r], i);
    for (int k = 0; k < 3; k++) assert_int_equal(input[3 * r + k], (uint8_t)(i >> (8 * k)));
    if (r < b->rows) out[r] = i;
  }
  assert_true(b->io_ns >= 0);
  int64_t rows = b->rows;
  brim_loader_release(l, b);
  return rows;
}

//---------------------------------- order ----------------------------------

enum { COUNT = 101, EPOCHS = 3 };

static void test_order(void **state) {
  (void)state;
  static const int workers[] = {0, 1, 3, 16};
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    for (size_t w = 0; w < 4; w++) {
      test_state ts = {.fail_at = UINT64_MAX, .slow = true};
      brim_source s = test_source(&ts, COUNT);
      brim_loader_options o = base_options();
      o.num_workers = workers[w];
      o.shuffle = shuffle;
      brim_loader *l;
      uint64_t got[8];
      assert_ok(brim_loader_create(NULL, &s, &o, &l));
      assert_int_equal(brim_loader_samples(l), COUNT);
      assert_int_equal(brim_loader_batches(l), 13);
      for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (int64_t first = 0; first < COUNT; first += 8) {
          int64_t rows = take(l, 8, got);
          assert_int_equal(rows, COUNT - first < 8 ? COUNT - first : 8);
          for (int64_t r = 0; r < rows; r++) {
            uint64_t i = (uint64_t)(first + r);
            assert_int_equal(got[r], loader_order(&o, COUNT, epoch, i));
            // The expected order comes from the permutation itself.
            brim_shuffle p = brim_shuffle_make(o.seed, (uint64_t)epoch, COUNT);
            assert_int_equal(got[r], shuffle ? brim_shuffle_at(&p, i) : i);
          }
        }
      }
      brim_loader_destroy(l);
    }
  }
}

static void test_positions(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, 20);
  brim_loader_options o = base_options();
  o.num_workers = 2;
  brim_loader *l;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  static const struct {
    int64_t epoch, first, rows;
    bool last;
  } expected[] = {{0, 0, 8, false}, {0, 8, 8, false}, {0, 16, 4, true}, {1, 0, 8, false}};
  for (size_t i = 0; i < 4; i++) {
    const brim_loaded *b;
    assert_ok(brim_loader_next(l, &b));
    assert_int_equal(b->epoch, expected[i].epoch);
    assert_int_equal(b->first, expected[i].first);
    assert_int_equal(b->rows, expected[i].rows);
    assert_int_equal(b->last, expected[i].last);
    brim_loader_release(l, b);
  }
  brim_loader_destroy(l);
}

// A stream that continues at any sample of an epoch gives exactly the rest of it, then the next epoch.
static void test_seek(void **state) {
  (void)state;
  static const int workers[] = {0, 3};
  for (int w = 0; w < 2; w++) {
    test_state ts = {.fail_at = UINT64_MAX, .slow = true};
    brim_source s = test_source(&ts, COUNT);
    brim_loader_options o = base_options();
    o.num_workers = workers[w];
    brim_loader *l;
    uint64_t got[8];
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    for (int64_t start = 0; start <= COUNT; start++) {
      int64_t epoch = 1 + start % 3, position = start;
      assert_ok(brim_loader_seek(l, epoch, position));
      for (int batch = 0; batch < 3; batch++) {
        if (position == COUNT) epoch++, position = 0;
        int64_t rows = take(l, 8, got);
        for (int64_t r = 0; r < rows; r++) {
          assert_int_equal(got[r], loader_order(&o, COUNT, epoch, (uint64_t)position++));
        }
      }
    }
    assert_status(brim_loader_seek(l, 0, COUNT + 1), BRIM_EINVAL);
    assert_status(brim_loader_seek(l, -1, 0), BRIM_EINVAL);
    assert_status(brim_loader_seek(l, 0, -1), BRIM_EINVAL);
    brim_loader_destroy(l);
  }
}

// A seek to the current position keeps the batches that workers have read ahead.
static void test_seek_where_it_stands(void **state) {
  (void)state;
  enum { SLOTS = 4 };
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, COUNT);
  brim_loader_options o = base_options();
  o.num_workers = 3;
  o.most_slots = SLOTS;
  brim_loader *l;
  uint64_t got[8];
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  for (int64_t batch = 0; batch < 3; batch++) {
    while (ts.reads < (SLOTS + batch) * 8) brim_clock_sleep_ns(100000);  // the ring is full
    assert_ok(brim_loader_seek(l, 0, batch * 8));
    brim_clock_sleep_ns(2000000);
    assert_int_equal(ts.reads, (SLOTS + batch) * 8);
    assert_int_equal(take(l, 8, got), 8);
    assert_int_equal(got[0], loader_order(&o, COUNT, 0, (uint64_t)batch * 8));
  }
  assert_ok(brim_loader_seek(l, 0, 0));  // a seek to another place drops them
  assert_int_equal(take(l, 8, got), 8);
  assert_int_equal(got[0], loader_order(&o, COUNT, 0, 0));
  brim_loader_destroy(l);
}

// A batch that the caller holds stays unchanged over a seek.
static void test_seek_while_held(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, COUNT);
  brim_loader_options o = base_options();
  o.num_workers = 2;
  o.prefetch_factor = 1;
  brim_loader *l;
  const brim_loaded *held;
  uint64_t before[8], got[8];
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_ok(brim_loader_next(l, &held));
  memcpy(before, held->index, sizeof before);
  for (int k = 0; k < 20; k++) {
    assert_ok(brim_loader_seek(l, 5, 16));
    for (int b = 0; b < 5; b++) take(l, 8, got);
  }
  assert_memory_equal(held->index, before, sizeof before);
  for (int r = 0; r < 8; r++) assert_int_equal(((int32_t *)held->target)[r], before[r]);
  brim_loader_release(l, held);
  brim_loader_destroy(l);
}

static void test_drop_last(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, 20);
  brim_loader_options o = base_options();
  o.drop_last = true;
  brim_loader *l;
  const brim_loaded *b;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_int_equal(brim_loader_samples(l), 16);
  assert_int_equal(brim_loader_batches(l), 2);
  for (int i = 0; i < 6; i++) {
    assert_ok(brim_loader_next(l, &b));
    assert_int_equal(b->rows, 8);
    assert_int_equal(b->epoch, i / 2);
    assert_int_equal(b->last, i % 2);
    brim_loader_release(l, b);
  }
  // A start inside a batch drops the samples at the end of the epoch that do not fill a batch.
  assert_ok(brim_loader_seek(l, 0, 4));
  assert_ok(brim_loader_next(l, &b));
  assert_int_equal(b->first, 4);
  assert_true(b->last);
  brim_loader_release(l, b);
  assert_ok(brim_loader_next(l, &b));
  assert_int_equal(b->epoch, 1);
  assert_int_equal(b->first, 0);
  brim_loader_release(l, b);
  brim_loader_destroy(l);
}

// The union over 1, 2 and 4 ranks is the same: every sample once if the count divides, and each batch holds the same
// samples as on one rank with the larger batch.
static void test_ranks(void **state) {
  (void)state;
  enum { N = 96, ALL = 16 };
  static const int worlds[] = {1, 2, 4};
  for (int w = 0; w < 3; w++) {
    int world = worlds[w];
    uint64_t seen[N] = {0}, batch_of[N];
    for (int rank = 0; rank < world; rank++) {
      test_state ts = {.fail_at = UINT64_MAX};
      brim_source s = test_source(&ts, N);
      brim_loader_options o = base_options();
      o.batch = ALL / world;
      o.rank = rank;
      o.world = world;
      o.num_workers = rank;
      brim_loader *l;
      assert_ok(brim_loader_create(NULL, &s, &o, &l));
      assert_int_equal(brim_loader_samples(l), N / world);
      for (uint64_t b = 0; b < N / ALL; b++) {
        uint64_t got[ALL];
        int64_t rows = take(l, o.batch, got);
        assert_int_equal(rows, o.batch);
        for (int64_t r = 0; r < rows; r++) {
          seen[got[r]]++;
          batch_of[got[r]] = b;
        }
      }
      brim_loader_destroy(l);
    }
    brim_shuffle p = brim_shuffle_make(11, 0, N);
    for (uint64_t i = 0; i < N; i++) {
      assert_int_equal(seen[i], 1);
      assert_int_equal(batch_of[brim_shuffle_at(&p, i)], i / ALL);
    }
  }
}

// A count that does not divide: equal and disjoint shares, without the remainder of an epoch.
static void test_ranks_uneven(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, 10);
  int seen[10] = {0}, total = 0;
  for (int rank = 0; rank < 4; rank++) {
    brim_loader_options o = base_options();
    o.rank = rank;
    o.world = 4;
    brim_loader *l;
    uint64_t got[8];
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    assert_int_equal(take(l, 8, got), 2);
    for (int r = 0; r < 2; r++) total += ++seen[got[r]] == 1;
    brim_loader_destroy(l);
  }
  assert_int_equal(total, 8);
}

static void test_limit(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, COUNT);
  brim_loader_options o = base_options();
  o.limit = 10;
  brim_loader *l;
  uint64_t got[8], sum = 0;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_int_equal(brim_loader_samples(l), 10);
  for (int b = 0; b < 2; b++) {
    for (int64_t r = take(l, 8, got); r > 0; r--) sum += got[r - 1];
  }
  assert_int_equal(sum, 45);  // 0..9 once each
  brim_loader_destroy(l);
}

//---------------------------------- the ring ----------------------------------

static void test_ring_full(void **state) {
  (void)state;
  static const int workers[] = {0, 1};
  for (int w = 0; w < 2; w++) {
    test_state ts = {.fail_at = UINT64_MAX};
    brim_source s = test_source(&ts, COUNT);
    brim_loader_options o = base_options();
    o.num_workers = workers[w];
    o.prefetch_factor = 1;
    brim_loader *l;
    const brim_loaded *held[8], *more;
    size_t n = 2 + (size_t)workers[w];
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    for (size_t i = 0; i < n; i++) assert_ok(brim_loader_next(l, &held[i]));
    assert_status(brim_loader_next(l, &more), BRIM_ESTATE);
    assert_detail("release");
    // Batches may be given back in any order.
    brim_loader_release(l, held[n - 1]);
    assert_ok(brim_loader_next(l, &more));
    assert_int_equal(more->first, 8 * (int64_t)n);
    brim_loader_release(l, more);
    for (size_t i = 0; i + 1 < n; i++) brim_loader_release(l, held[i]);
    brim_loader_release(l, held[0]);  // twice is harmless
    brim_loader_release(l, NULL);
    brim_loader_destroy(l);
  }
}

static void test_bad_options(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, 20);
  brim_loader *l;
  brim_plan plan = {0};
  const brim_loader_options good = base_options();
  brim_loader_options bad[9];
  for (int i = 0; i < 9; i++) bad[i] = good;
  bad[0].batch = 0;
  bad[1].num_workers = -1;
  bad[2].num_workers = 1, bad[2].prefetch_factor = 0;
  bad[3].rank = 1;
  bad[4].world = 0;
  bad[5].rank = 0, bad[5].world = 21;
  bad[6].drop_last = true, bad[6].batch = 21;
  bad[7].num_workers = 100000;
  bad[8].batch = INT64_MAX / 4;
  for (int i = 0; i < 9; i++) {
    brim_status expected = i == 8 ? BRIM_ELIMIT : BRIM_EINVAL;
    assert_status(brim_loader_create(NULL, &s, &bad[i], &l), expected);
    assert_status(brim_loader_plan(&s, &bad[i], &plan), expected);
  }
  assert_int_equal(plan.row_count, 0);
}

//---------------------------------- planned bytes ----------------------------------

static uint64_t planned_now(void) {
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  return stats.live_bytes[BRIM_MEM_PLANNED];
}

static void write_dataset(void) {
  bytes b, packed;
  assert_ok(brim_fs_mkdirs("set"));
  make_images(40, 5, 7, &b);
  gzip(&b, &packed);
  write_bytes("set/train-images-idx3-ubyte.gz", packed.data, packed.size);
  make_labels(40, &b);
  write_bytes("set/train-labels-idx1-ubyte", b.data, b.size);
}

static void test_planned_bytes(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device;
  write_dataset();
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_device_open(registry, "ref", NULL, &device));
  static const int64_t batches[] = {1, 7, 64, 1000};
  static const int workers[] = {0, 1, 4};
  for (int pin = 0; pin < 2; pin++) {
    for (int b = 0; b < 4; b++) {
      for (int w = 0; w < 3; w++) {
        brim_loader_options o = base_options();
        o.batch = batches[b];
        o.num_workers = workers[w];
        o.prefetch_factor = 3;
        o.pin_memory = pin;
        o.skip_broken = w == 1;  // needs one bit per sample
        uint64_t before = planned_now();
        brim_source *s;
        brim_loader *l;
        brim_plan plan = {0};
        assert_ok(open_source("idx", NULL, 0, "set", "train", &s));
        assert_int_equal(planned_now() - before, 40 * 35 + 40);  // the images and their classes
        assert_ok(brim_loader_plan(s, &o, &plan));
        assert_ok(brim_loader_create(device, s, &o, &l));
        assert_int_equal(plan.row_count, 2);
        assert_string_equal(plan.rows[0].name, "loader ring");
        assert_string_equal(plan.rows[1].name, "dataset");
        assert_int_equal(plan.rows[0].bytes + plan.rows[1].bytes, plan.bytes[BRIM_PLACE_HOST]);
        assert_int_equal(plan.bytes[BRIM_PLACE_DEVICE], 0);
        assert_int_equal(planned_now() - before, plan.bytes[BRIM_PLACE_HOST]);
        const brim_loaded *batch;
        for (int k = 0; k < 5; k++) {
          assert_ok(brim_loader_next(l, &batch));
          brim_loader_release(l, batch);
        }
        assert_int_equal(planned_now() - before, plan.bytes[BRIM_PLACE_HOST]);
        brim_loader_destroy(l);
        brim_source_close(s);
        assert_int_equal(planned_now(), before);
      }
    }
  }
  brim_device_close(device);
  brim_registry_destroy(registry);
}

// Batches make no allocation at all, of either kind.
static void test_no_growth(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, COUNT);
  brim_loader_options o = base_options();
  o.num_workers = 2;
  brim_loader *l;
  brim_alloc_stats before, after;
  uint64_t got[8];
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  take(l, 8, got);
  brim_alloc_get_stats(&before);
  for (int i = 0; i < 500; i++) take(l, 8, got);
  assert_ok(brim_loader_seek(l, 3, 7));
  take(l, 8, got);
  brim_alloc_get_stats(&after);
  assert_int_equal(after.calls, before.calls);
  brim_loader_destroy(l);
}

// Plan rows of the same name add up, so two loaders share one row.
static void test_plan_adds_up(void **state) {
  (void)state;
  test_state ts = {.fail_at = UINT64_MAX};
  brim_source s = test_source(&ts, COUNT);
  brim_loader_options o = base_options();
  brim_plan plan = {0};
  assert_ok(brim_loader_plan(&s, &o, &plan));
  uint64_t one = plan.bytes[BRIM_PLACE_HOST];
  assert_ok(brim_loader_plan(&s, &o, &plan));
  assert_int_equal(plan.row_count, 1);
  assert_int_equal(plan.rows[0].bytes, 2 * one);
  assert_int_equal(plan.bytes[BRIM_PLACE_HOST], 2 * one);
}

//---------------------------------- failures ----------------------------------

// An evaluation goes through its set once, so its message names no epoch.
static void test_failing_in_an_evaluation(void **state) {
  (void)state;
  brim_loader_options o = base_options();
  o.shuffle = false;
  o.once = true;
  test_state ts = {.fail_at = 3};
  brim_source s = test_source(&ts, COUNT);
  brim_loader *l;
  const brim_loaded *b;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_status(brim_loader_next(l, &b), BRIM_EIO);
  assert_detail("sample 3: disk on fire");
  assert_null(strstr(brim_status_detail(), "epoch"));
  brim_loader_destroy(l);
}

// A stop by the user counts no sample as broken and gives no advice about the data.
static void test_interrupted(void **state) {
  (void)state;
  for (int skip = 0; skip < 2; skip++) {
    brim_loader_options o = base_options();
    o.shuffle = false;
    o.skip_broken = skip;
    test_state ts = {.fail_at = 3, .interrupted = true};
    brim_source s = test_source(&ts, COUNT);
    brim_loader *l;
    const brim_loaded *b;
    brim_loader_stats stats;
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    assert_status(brim_loader_next(l, &b), BRIM_EINTERRUPTED);
    assert_null(strstr(brim_status_detail(), "brim data verify"));
    brim_loader_get_stats(l, &stats);
    assert_int_equal(stats.broken, 0);
    brim_loader_destroy(l);
  }
}

static void test_failing_source(void **state) {
  (void)state;
  static const int workers[] = {0, 1, 3, 16};
  for (int w = 0; w < 4; w++) {
    for (int silent = 0; silent < 2; silent++) {
      brim_loader_options o = base_options();
      o.num_workers = workers[w];
      // Fails at the sample at position 27 of the first epoch, in the fourth batch.
      test_state ts = {.fail_at = loader_order(&o, COUNT, 0, 27), .silent = silent};
      brim_source s = test_source(&ts, COUNT);
      brim_loader *l;
      const brim_loaded *b;
      uint64_t got[8];
      char where[64];
      snprintf(where, sizeof where, "epoch 1: sample %llu: %s", (unsigned long long)ts.fail_at,
               silent ? "input/output error" : "disk on fire");
      assert_ok(brim_loader_create(NULL, &s, &o, &l));
      for (int i = 0; i < 3; i++) take(l, 8, got);
      for (int again = 0; again < 2; again++) {
        brim_status_clear();
        assert_status(brim_loader_next(l, &b), BRIM_EIO);
        assert_detail(where);
        assert_detail("`brim data verify PATH` lists every broken record, data.on_error=skip");
      }
      // A seek past the failing sample continues the stream.
      assert_ok(brim_loader_seek(l, 0, 32));
      assert_int_equal(take(l, 8, got), 8);
      assert_int_equal(got[0], loader_order(&o, COUNT, 0, 32));
      assert_true(atomic_load(&ts.fail_count) >= 1);
      brim_loader_destroy(l);
    }
  }
}

// Tiny batches, many workers, seeks in between, destroyed at any moment.
static void test_stress(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 40; round++) {
    brim_philox4 r = brim_philox(brim_rng_key(round, BRIM_RNG_TEST), 0, 0);
    test_state ts = {.fail_at = round % 5 == 4 ? 30 : UINT64_MAX, .slow = round % 2};
    brim_source s = test_source(&ts, 1 + r.v[0] % 60);
    brim_loader_options o = base_options();
    o.batch = 1 + (int64_t)(r.v[1] % 3);
    o.num_workers = (int)(r.v[2] % 12);
    o.prefetch_factor = 1 + (int)(r.v[3] % 3);
    brim_loader *l;
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    int64_t epoch = 0, position = 0, samples = brim_loader_samples(l);
    for (uint64_t k = 0; k < 60; k++) {
      const brim_loaded *b;
      brim_philox4 q = brim_philox(brim_rng_key(round, BRIM_RNG_TEST), 1, k);
      if (q.v[0] % 9 == 0) {
        epoch = (int64_t)(q.v[1] % 4);
        position = (int64_t)(q.v[2] % (uint64_t)samples);
        assert_ok(brim_loader_seek(l, epoch, position));
      }
      brim_status status = brim_loader_next(l, &b);
      if (status) {
        assert_int_equal(status, BRIM_EIO);
        break;
      }
      assert_int_equal(b->epoch, epoch);
      assert_int_equal(b->first, position);
      position += b->rows;
      if (b->last) epoch++, position = 0;
      brim_loader_release(l, b);
    }
    brim_loader_destroy(l);
  }
}

// One pass through everything that allocates; returns the status of the first failure.
static brim_status use_all(brim_device *device, int workers) {
  brim_loader_options o = base_options();
  o.num_workers = workers;
  o.pin_memory = device != NULL;
  brim_source *s = NULL;
  brim_loader *l = NULL;
  const brim_loaded *b;
  brim_plan plan = {0};
  brim_argument args[] = {arg_int("classes", 10)};
  brim_status status = open_source("idx", args, 1, "set", "train", &s);
  if (!status) status = brim_loader_plan(s, &o, &plan);
  if (!status) status = brim_loader_create(device, s, &o, &l);
  for (int i = 0; i < 6 && !status; i++) {
    status = brim_loader_next(l, &b);
    if (!status) brim_loader_release(l, b);
  }
  brim_loader_destroy(l);
  brim_source_close(s);
  return status;
}

static void test_allocation_failures(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device;
  write_dataset();
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_device_open(registry, "ref", NULL, &device));
  for (int pin = 0; pin < 2; pin++) {
    for (int sticky = 0; sticky < 2; sticky++) {
      uint64_t n = 1;
      for (;; n++) {
        brim_alloc_stats before, after;
        brim_alloc_get_stats(&before);
        uint64_t failures = brim_alloc_failures();
        brim_alloc_fail_nth(n, sticky);
        brim_status status = use_all(pin ? device : NULL, 2);
        brim_alloc_fail_nth(0, 0);
        brim_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
        assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
        if (brim_alloc_failures() == failures) {
          assert_ok(status);
          break;
        }
        // The text of a message may be lost; every other failed allocation must be reported.
        if (status) assert_true(brim_status_detail()[0] != '\0');
        if (status && status != BRIM_ENOMEM) {
          fail_msg("allocation %llu: %s", (unsigned long long)n, brim_status_detail());
        }
      }
      assert_true(n > 15);
    }
  }
  brim_device_close(device);
  brim_registry_destroy(registry);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_positions),
      cmocka_unit_test(test_seek),
      cmocka_unit_test(test_seek_while_held),
      cmocka_unit_test(test_seek_where_it_stands),
      cmocka_unit_test(test_drop_last),
      cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_ranks_uneven),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_ring_full),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_planned_bytes),
      cmocka_unit_test(test_no_growth),
      cmocka_unit_test(test_plan_adds_up),
      cmocka_unit_test(test_failing_in_an_evaluation),
      cmocka_unit_test(test_interrupted),
      cmocka_unit_test(test_failing_source),
      cmocka_unit_test(test_stress),
      cmocka_unit_test(test_allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
