// The stream of a loader with transforms: the pairs (sample, augmentation) are the same with any number of workers,
// after a seek to any sample, and as a set over ranks; also with broken samples left out. Views, images of different
// sizes, times and counts, memory that does not grow.
#include "data/data_int.h"
#include "loader_test.h"

enum { COUNT = 101, EPOCHS = 2, MOST = 2 * EPOCHS * COUNT };

static const int worker_counts[] = {0, 1, 3, 16};

typedef struct setup {
  bool skip;  // every 9th sample is broken and left out
  bool varies;
  int32_t views;
} setup;

static const setup setups[] = {
    {false, false, 1}, {true, false, 1},  {false, true, 1},
    {true, true, 1},   {false, false, 2}, {true, false, 2},
};
enum { SETUPS = sizeof setups / sizeof *setups };

// Collects rows from (epoch, position) on to the end of the last epoch.
static size_t stream(const setup *u, brim_loader_options o, uint64_t count, int64_t epoch,
                     int64_t position, row *out) {
  image_state state = {.broken_every = u->skip ? 9 : 0, .broken_rest = 4, .slow = true};
  brim_source s = image_source(&state, count, u->varies);
  brim_transforms *t = make_transforms(&s, u->views);
  brim_loader *l;
  o.transforms = t;
  o.skip_broken = u->skip;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_ok(brim_loader_seek(l, epoch, position));
  size_t n = 0;
  int64_t left = (EPOCHS - epoch) * brim_loader_samples(l) - position;
  // Views come in whole batches only, so a start inside an epoch loses the remainder.
  if (u->views > 1) left -= (brim_loader_samples(l) - position) % o.batch;
  while (left > 0) {
    int64_t rows = take_rows(l, &o, IMAGE, u->views, out + n);
    n += (size_t)rows;
    left -= rows;
  }
  assert_int_equal(left, 0);
  brim_loader_destroy(l);
  brim_transforms_destroy(t);
  return n;
}

static void test_same_for_any_workers(void **state) {
  (void)state;
  static row first[MOST], other[MOST];
  for (size_t u = 0; u < SETUPS; u++) {
    brim_loader_options o = image_options();
    size_t n = stream(&setups[u], o, COUNT, 0, 0, first);
    assert_int_equal(n, EPOCHS * (setups[u].views > 1 ? COUNT - COUNT % 8 : COUNT));
    for (size_t w = 1; w < 4; w++) {
      o.num_workers = worker_counts[w];
      assert_int_equal(stream(&setups[u], o, COUNT, 0, 0, other), n);
      assert_memory_equal(first, other, n * sizeof *first);
    }
    // Augmentation draws for each epoch: most samples look different in the other one.
    size_t same = 0;
    for (size_t i = 0; i < n / EPOCHS; i++) {
      for (size_t k = n / EPOCHS; k < n; k++) {
        same += first[i].index == first[k].index && first[i].digest == first[k].digest;
      }
    }
    assert_true(same < n / EPOCHS / 2);
  }
}

static void test_same_after_seek(void **state) {
  (void)state;
  static row first[MOST], other[MOST];
  for (size_t u = 0; u < SETUPS; u++) {
    brim_loader_options o = image_options();
    stream(&setups[u], o, COUNT, 0, 0, first);
    int64_t samples = setups[u].views > 1 ? COUNT - COUNT % 8 : COUNT;
    for (int64_t from = 0; from < samples; from++) {
      o.num_workers = worker_counts[from % 4];
      size_t n = stream(&setups[u], o, COUNT, 0, from, other);
      // The rest is the samples to the end of the epoch (with views: of its last whole batch) and the whole next epoch.
      size_t rest = (size_t)(samples - from);
      if (setups[u].views > 1) rest -= rest % 8;
      assert_int_equal(n, rest + (size_t)samples);
      assert_memory_equal(first + from, other, rest * sizeof *first);
      assert_memory_equal(first + samples, other + rest, (size_t)samples * sizeof *first);
    }
  }
}

static int by_index(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->index != y->index) return x->index < y->index ? -1 : 1;
  return x->digest < y->digest ? -1 : x->digest > y->digest;
}

// 1, 2 and 4 ranks give the same set of pairs. Replacements are each rank's own, so only the good samples are compared.
static void test_same_over_ranks(void **state) {
  (void)state;
  enum { N = 96 };
  static row one[2 * N * EPOCHS], all[2 * N * EPOCHS], part[2 * N * EPOCHS];
  for (size_t u = 0; u < SETUPS; u++) {
    size_t n_one = 0;
    for (int world = 1; world <= 4; world *= 2) {
      size_t n = 0;
      for (int rank = 0; rank < world; rank++) {
        brim_loader_options o = image_options();
        o.rank = rank;
        o.world = world;
        o.num_workers = rank;
        size_t rows = stream(&setups[u], o, N, 0, 0, part);
        assert_int_equal(rows, EPOCHS * N / world);
        for (size_t i = 0; i < rows; i++) {
          // Each sample of an epoch once; a repeated one is a replacement.
          bool twice = false;
          for (size_t k = 0; k < n; k++) twice |= !memcmp(&all[k], &part[i], sizeof part[i]);
          if (!twice) all[n++] = part[i];
        }
      }
      qsort(all, n, sizeof *all, by_index);
      if (world == 1) {
        memcpy(one, all, n * sizeof *all);
        n_one = n;
        size_t broken = setups[u].skip ? (N - 4 + 8) / 9 : 0;
        // The two epochs draw differently, except for a few samples.
        assert_in_range(n, (N - broken) * EPOCHS * 8 / 10, (N - broken) * EPOCHS);
      }
      assert_int_equal(n, n_one);
      for (size_t i = 0; i < n; i++) {
        assert_true(!setups[u].skip || one[i].index % 9 != 4);
      }
      assert_memory_equal(one, all, n * sizeof *all);
    }
  }
}

//---------------------------------- views ----------------------------------

// Views come one after the other, with separate draws for each sample; only whole batches.
static void test_views(void **state) {
  (void)state;
  image_state ts = {0};
  brim_source s = image_source(&ts, 21, false);
  brim_transforms *t = make_transforms(&s, 3);
  brim_loader_options o = image_options();
  o.transforms = t;
  o.num_workers = 2;
  brim_loader *l;
  const brim_loaded *b;
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  assert_int_equal(brim_loader_samples(l), 16);
  assert_int_equal(brim_loader_batches(l), 2);
  size_t each = brim_transforms_output_bytes(t), differ = 0;
  void *scratch = brim_alloc(brim_transforms_scratch_bytes(t) + 1);
  for (int k = 0; k < 4; k++) {
    assert_ok(brim_loader_next(l, &b));
    assert_int_equal(b->rows, 8);
    assert_int_equal(b->epoch, k / 2);
    assert_int_equal(b->last, k % 2);
    for (size_t r = 0; r < 8; r++) {
      uint8_t raw[IMAGE], expected[IMAGE];
      assert_ok(image_read(&ts, b->index[r], raw, NULL));
      const uint8_t *first = (const uint8_t *)b->input + r * each;
      for (uint32_t v = 0; v < 3; v++) {
        const uint8_t *view = (const uint8_t *)b->input + (v * 8 + r) * each;
        const brim_transforms_view of = {b->epoch, b->index[r], v, SIDE, SIDE};
        brim_transforms_apply(t, &of, raw, expected, scratch, NULL);
        assert_memory_equal(view, expected, each);
        differ += memcmp(view, first, each) != 0;
      }
    }
    brim_loader_release(l, b);
  }
  assert_true(differ > 40);  // more than 40 of 64
  brim_free(scratch);
  brim_loader_destroy(l);
  // A set smaller than a batch.
  o.batch = 22;
  assert_status(brim_loader_create(NULL, &s, &o, &l), BRIM_EINVAL);
  assert_detail("whole batches");
  brim_transforms_destroy(t);
}

static void test_varying_needs_transforms(void **state) {
  (void)state;
  image_state ts = {0};
  brim_source s = image_source(&ts, 21, true);
  brim_loader_options o = image_options();
  brim_loader *l;
  assert_status(brim_loader_create(NULL, &s, &o, &l), BRIM_EINVAL);
  assert_detail("random_resized_crop");
}

// A source without targets.
static void test_no_target(void **state) {
  (void)state;
  static const int workers[] = {0, 2};
  for (int w = 0; w < 2; w++) {
    image_state ts = {0};
    brim_source s = image_source(&ts, 21, false);
    s.info.classes = 0;
    s.target_bytes = 0;
    brim_loader_options o = image_options();
    o.num_workers = workers[w];
    brim_loader *l;
    const brim_loaded *b;
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    for (int k = 0; k < 3; k++) {
      assert_ok(brim_loader_next(l, &b));
      assert_null(b->target);
      assert_int_equal(((const uint8_t *)b->input)[0], image_byte(b->index[0], 0));
      brim_loader_release(l, b);
    }
    brim_loader_destroy(l);
  }
}

//---------------------------------- broken samples ----------------------------------

// A broken sample is replaced by the next good one of the order, and counts once an epoch, with any number of workers.
static void test_skip_broken(void **state) {
  (void)state;
  for (size_t w = 0; w < 4; w++) {
    image_state ts = {.broken_every = 4, .broken_rest = 1, .slow = true};
    brim_source s = image_source(&ts, COUNT, false);
    brim_loader_options o = image_options();
    o.num_workers = worker_counts[w];
    o.skip_broken = true;
    brim_loader *l;
    brim_loader_stats stats;
    row rows[8];
    char first[64] = "";
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    uint64_t broken = 0;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      for (uint64_t i = 0; i < COUNT;) {
        int64_t n = take_rows(l, &o, IMAGE, 1, rows);
        for (int64_t r = 0; r < n; r++, i++) {
          uint64_t p = i, own = loader_order(&o, COUNT, epoch, i);
          if (image_broken(&ts, own) && !broken++) {
            snprintf(first, sizeof first, "sample %llu: image %llu is broken",
                     (unsigned long long)own, (unsigned long long)own);
          }
          while (image_broken(&ts, loader_order(&o, COUNT, epoch, p))) p = (p + 1) % COUNT;
          assert_int_equal(rows[r].index, loader_order(&o, COUNT, epoch, p));
        }
      }
      brim_loader_get_stats(l, &stats);
      assert_int_equal(stats.broken, 25);  // distinct samples, however often they are met
      assert_int_equal(stats.broken_reads, broken);
      assert_int_equal(stats.broken_reads, 25 * (epoch + 1));
      assert_string_equal(stats.first_broken, first);
      assert_int_equal(stats.samples, (uint64_t)COUNT * (uint64_t)(epoch + 1));
    }
    brim_loader_destroy(l);
  }
}

static void test_all_broken(void **state) {
  (void)state;
  for (size_t w = 0; w < 4; w++) {
    image_state ts = {.broken_every = 1, .broken_rest = 0};
    brim_source s = image_source(&ts, 21, false);
    brim_loader_options o = image_options();
    o.num_workers = worker_counts[w];
    o.skip_broken = true;
    brim_loader *l;
    const brim_loaded *b;
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    for (int again = 0; again < 2; again++) {
      assert_status(brim_loader_next(l, &b), BRIM_EIO);
      assert_detail("none of the 21 samples can be read");
      assert_detail("is broken");
    }
    brim_loader_destroy(l);
  }
}

//---------------------------------- counts and memory ----------------------------------

static void test_stats(void **state) {
  (void)state;
  static const int workers[] = {0, 3};
  for (int w = 0; w < 2; w++) {
    image_state ts = {.slow = true};
    brim_source s = image_source(&ts, COUNT, false);
    brim_transforms *t = make_transforms(&s, 1);
    brim_loader_options o = image_options();
    o.transforms = t;
    o.num_workers = workers[w];
    brim_loader *l;
    brim_loader_stats stats;
    row rows[8];
    assert_ok(brim_loader_create(NULL, &s, &o, &l));
    brim_loader_get_stats(l, &stats);
    assert_int_equal(stats.batches, 0);
    assert_int_equal(stats.samples, 0);
    assert_int_equal(stats.stage_count, brim_transforms_count(t));
    for (int k = 0; k < 13; k++) take_rows(l, &o, IMAGE, 1, rows);
    brim_loader_get_stats(l, &stats);
    assert_int_equal(stats.batches, 13);
    assert_int_equal(stats.samples, COUNT);
    assert_true(stats.read_ns > 0);
    assert_int_equal(stats.broken, 0);
    assert_string_equal(stats.first_broken, "");
    for (size_t i = 0; i < stats.stage_count; i++) {
      assert_string_equal(stats.stage[i], brim_transforms_name(t, i));
      assert_true(stats.stage_ns[i] > 0);
    }
    brim_loader_destroy(l);
    brim_transforms_destroy(t);
  }
}

// 200 epochs make no more allocations than 2.
static void test_no_growth(void **state) {
  (void)state;
  image_state ts = {.broken_every = 9, .broken_rest = 4};
  brim_source s = image_source(&ts, COUNT, false);
  assert_ok(brim_source_keep(&s));
  brim_transforms *t = make_transforms(&s, 1);
  brim_loader_options o = image_options();
  o.transforms = t;
  o.skip_broken = true;
  o.num_workers = 3;
  brim_loader *l;
  brim_alloc_stats after_2, after_200;
  row rows[8];
  assert_ok(brim_loader_create(NULL, &s, &o, &l));
  for (int k = 0; k < 13 * 200; k++) {
    take_rows(l, &o, IMAGE, 1, rows);
    if (k + 1 == 13 * 2) brim_alloc_get_stats(&after_2);
  }
  brim_alloc_get_stats(&after_200);
  assert_int_equal(after_200.calls, after_2.calls);
  assert_int_equal(after_200.live_bytes[0], after_2.live_bytes[0]);
  assert_int_equal(after_200.live_bytes[1], after_2.live_bytes[1]);
  brim_loader_destroy(l);
  brim_transforms_destroy(t);
  brim_source_cache_free(s.cache);
}

// A ring of large batches is capped, and the plan has the capped size.
static void test_ring_cap(void **state) {
  (void)state;
  image_state ts = {0};
  brim_source s = image_source(&ts, COUNT, false);
  brim_loader_options o = image_options();
  o.num_workers = 16;
  o.prefetch_factor = 4;
  static const struct {
    int64_t megabytes;
    uint64_t slots;
  } cases[] = {{1, 66}, {64, 15}, {300, 4}, {2000, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_plan plan = {0};
    s.input_bytes = (size_t)(cases[i].megabytes << 20) / 8;
    assert_ok(brim_loader_plan(&s, &o, &plan));
    assert_string_equal(plan.rows[0].name, "loader ring");
    uint64_t slot = (uint64_t)(cases[i].megabytes << 20) + 64 + 64;
    assert_int_equal(plan.rows[0].bytes, cases[i].slots * slot);
  }
}

// A loader with transforms and a cache allocates exactly the planned bytes.
static void test_planned_bytes(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++) {
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    brim_value dims[] = {{.kind = BRIM_VALUE_INT, .integer = SIDE},
                         {.kind = BRIM_VALUE_INT, .integer = SIDE},
                         {.kind = BRIM_VALUE_INT, .integer = 3}};
    brim_argument args[] = {
        {.name = "shape", .value = {.kind = BRIM_VALUE_LIST, .items = dims, .count = 3}},
        arg_int("samples", 50)};
    brim_source *s;
    brim_plan plan = {0};
    brim_loader *l;
    assert_ok(open_source("synthetic", args, 2, NULL, "train", &s));
    brim_transforms *t = make_transforms(s, 2);
    assert_ok(brim_source_keep(s));
    brim_loader_options o = image_options();
    o.transforms = t;
    o.num_workers = w;
    assert_ok(brim_loader_plan(s, &o, &plan));
    assert_int_equal(plan.row_count, 3);
    assert_string_equal(plan.rows[1].name, "transform scratch");
    assert_string_equal(plan.rows[2].name, "dataset cache");
    assert_int_equal(plan.rows[2].bytes, 50 * (IMAGE + 4 + 1));
    assert_ok(brim_loader_create(NULL, s, &o, &l));
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                     plan.bytes[BRIM_PLACE_HOST]);
    brim_loader_destroy(l);
    brim_transforms_destroy(t);
    brim_source_close(s);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_PLANNED], before.live_blocks[BRIM_MEM_PLANNED]);
  }
}

int main(void) {
  brim_json_own_memory();
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_for_any_workers),
      cmocka_unit_test(test_same_after_seek),
      cmocka_unit_test(test_same_over_ranks),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_varying_needs_transforms),
      cmocka_unit_test(test_no_target),
      cmocka_unit_test(test_skip_broken),
      cmocka_unit_test(test_all_broken),
      cmocka_unit_test(test_stats),
      cmocka_unit_test(test_no_growth),
      cmocka_unit_test(test_ring_cap),
      cmocka_unit_test(test_planned_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
