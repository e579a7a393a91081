// Parts of a source, index files, samples kept in memory, and the kind that brim guesses for a path.
#include <pthread.h>

#include "data/data_int.h"
#include "loader_test.h"

//---------------------------------- shares ----------------------------------

// A list of two numbers as an argument; `pair` outlives it.
static brim_argument arg_pair(const char *name, double from, double to, brim_value pair[2]) {
  pair[0] = arg_float("", from).value;
  pair[1] = arg_float("", to).value;
  brim_argument a = {.name = name,
                     .value = {.kind = BRIM_VALUE_LIST, .tuple = true, .items = pair, .count = 2}};
  return a;
}

static brim_status open_part(double from, double to, uint64_t seed, brim_source **out) {
  brim_value pair[2], shape = {.kind = BRIM_VALUE_INT, .integer = 8, .number = 8};
  brim_argument args[] = {arg_int("samples", 1000),
                          arg_pair("part", from, to, pair),
                          {.name = "shape", .value = shape},
                          arg_int("seed", 3)};
  brim_component c = {.name = "synthetic", .args = args, .arg_count = 4};
  return brim_source_open(NULL, &c, NULL, "train", seed, out);
}

// The numbers that a part's samples have in the table.
static void numbers(const brim_source *s, uint8_t *seen) {
  for (uint64_t i = 0; i < s->info.count; i++) {
    char text[64];
    unsigned long long n;
    brim_source_describe(s, i, text, sizeof text);
    assert_int_equal(sscanf(text, "sample %llu", &n), 1);
    assert_true(n < 1000);
    seen[n]++;
  }
}

static void test_shares(void **state) {
  (void)state;
  static const double cuts[] = {0, 0.0005, 0.3333, 0.8, 0.9, 1};
  uint8_t seen[1000] = {0};
  uint64_t total = 0;
  for (int i = 0; i < 5; i++) {
    brim_source *s;
    if (i == 0) {
      assert_ok(open_part(cuts[0], cuts[1], 7, &s));  // 0.5 rounds to one sample
      assert_int_equal(s->info.count, 1);
    } else {
      assert_ok(open_part(cuts[i], cuts[i + 1], 7, &s));
    }
    assert_int_equal(s->host_bytes, 0);
    total += s->info.count;
    numbers(s, seen);
    brim_source_close(s);
  }
  assert_int_equal(total, 1000);
  for (int i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
  // A part is spread over the whole set: the same for the same seed, different for another.
  uint8_t a[1000] = {0}, b[1000] = {0}, c[1000] = {0};
  brim_source *s;
  assert_ok(open_part(0, 0.5, 7, &s));
  numbers(s, a);
  brim_source_close(s);
  assert_ok(open_part(0, 0.5, 7, &s));
  numbers(s, b);
  brim_source_close(s);
  assert_ok(open_part(0, 0.5, 8, &s));
  numbers(s, c);
  brim_source_close(s);
  assert_memory_equal(a, b, sizeof a);
  int low = 0, both = 0;
  for (int i = 0; i < 1000; i++) low += i < 500 && a[i], both += a[i] && c[i];
  assert_in_range(low, 200, 300);
  assert_in_range(both, 200, 300);
}

// Reading a sample through a part gives the table's row for its number.
static void test_share_reads(void **state) {
  (void)state;
  brim_source *s;
  assert_ok(open_part(0.25, 0.5, 7, &s));
  assert_int_equal(s->info.count, 250);
  assert_ok(brim_source_take(s, 0, 0.1, 9));  // a part of the part
  assert_int_equal(s->info.count, 25);
  for (uint64_t i = 0; i < 25; i++) {
    uint8_t got[8], expected[8];
    int32_t label, expected_label;
    int64_t height, width;
    uint64_t n = brim_source_part_at(s->part, i);
    assert_ok(brim_source_read(s, i, 1, got, &label, &height, &width));
    assert_ok(s->table->read(s->state, n, expected, &expected_label));
    assert_memory_equal(got, expected, 8);
    assert_int_equal(label, expected_label);
    assert_int_equal(height, 8);
    assert_int_equal(width, 1);
  }
  uint8_t got[8];
  int32_t label;
  assert_status(brim_source_read(s, 25, 1, got, &label, NULL, NULL), BRIM_EINVAL);
  assert_detail("the source has 25");
  brim_source_close(s);
}

static void test_bad_shares(void **state) {
  (void)state;
  static const double bad[][2] = {{0.5, 0.5}, {0.6, 0.5}, {-0.1, 1}, {0, 1.01}, {0, 0.0001}};
  brim_source *s;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_status(open_part(bad[i][0], bad[i][1], 7, &s), BRIM_EINVAL);
    assert_detail("part (");
  }
  brim_argument args[] = {arg_float("part", 0.5)};
  assert_status(open_source("synthetic", args, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("part=(0, 0.8)");
}

//---------------------------------- a limit ----------------------------------

// 200 samples with these labels.
static brim_source *labelled(uint8_t (*label_of)(uint32_t i)) {
  bytes images, classes = {.size = 0};
  brim_source *source = NULL;
  make_images(200, 2, 2, &images);
  put_be32(&classes, 0x801);
  put_be32(&classes, 200);
  for (uint32_t i = 0; i < 200; i++) {
    uint8_t label = label_of(i);
    put(&classes, &label, 1);
  }
  assert_ok(brim_fs_mkdirs("sorted"));
  write_bytes("sorted/train-images-idx3-ubyte", images.data, images.size);
  write_bytes("sorted/train-labels-idx1-ubyte", classes.data, classes.size);
  brim_component c = {.name = "idx"};
  assert_ok(brim_source_open(NULL, &c, "sorted", "train", 0, &source));
  return source;
}

// Labels 0 to 9 in blocks of 20: the first samples are all of one class.
static uint8_t in_blocks(uint32_t i) { return (uint8_t)(i / 20); }
static brim_source *sorted_digits(void) { return labelled(in_blocks); }

// One sample each of 1 to 9 at the end, 0 else.
static uint8_t rare_at_the_end(uint32_t i) { return i < 191 ? 0 : (uint8_t)(i - 190); }

// A class whose share is less than one sample still gets one, taken from the largest classes.
static void test_limit_keeps_rare_classes(void **state) {
  (void)state;
  static const uint64_t limits[] = {10, 12, 30};
  for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
    brim_source *source = labelled(rare_at_the_end);
    uint64_t seen[10] = {0};
    assert_ok(brim_source_limit(source, limits[k], 1));
    assert_int_equal(source->info.count, limits[k]);
    for (uint64_t i = 0; i < limits[k]; i++) {
      uint8_t image[4];
      int32_t label = -1;
      assert_ok(brim_source_read(source, i, 1, image, &label, NULL, NULL));
      seen[label]++;
    }
    assert_int_equal(seen[0], limits[k] - 9);
    for (int c = 1; c < 10; c++) assert_int_equal(seen[c], 1);
    brim_source_close(source);
  }
}

static void test_limit_spreads_over_classes(void **state) {
  (void)state;
  static const uint64_t limits[] = {10, 25, 50, 199, 200, 1000};
  for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
    brim_source *source = sorted_digits();
    uint64_t count = limits[k] < 200 ? limits[k] : 200, seen[10] = {0};
    assert_ok(brim_source_limit(source, limits[k], 1));
    assert_int_equal(source->info.count, count);
    for (uint64_t i = 0; i < count; i++) {
      uint8_t image[4];
      int32_t label = -1;
      assert_ok(brim_source_read(source, i, 1, image, &label, NULL, NULL));
      seen[label]++;
    }
    for (int c = 0; c < 10; c++) {
      assert_in_range(seen[c], count / 10, (count + 9) / 10);
    }
    brim_source_close(source);
  }
  brim_source *source = sorted_digits();  // fewer samples than classes: no class twice
  assert_ok(brim_source_limit(source, 3, 1));
  int32_t before = -1;
  for (uint64_t i = 0; i < 3; i++) {
    uint8_t image[4];
    int32_t label = -1;
    assert_ok(brim_source_read(source, i, 1, image, &label, NULL, NULL));
    assert_true(label > before);
    before = label;
  }
  brim_source_close(source);
}

// The definition of the limit, written plainly: one sample at a time, each given to or taken from the first of the best
// classes.
static void share_one_by_one(const uint64_t *have, int classes, uint64_t count, uint64_t limit,
                             uint64_t *want) {
  double lost[16];
  uint64_t given = 0, present = 0;
  for (int c = 0; c < classes; c++) present += have[c] > 0;
  for (int c = 0; c < classes; c++) {
    double share = (double)have[c] * ((double)limit / (double)count);
    want[c] = (uint64_t)share < have[c] ? (uint64_t)share : have[c];
    lost[c] = share - (double)want[c];
    if (want[c] == 0 && have[c] > 0 && present <= limit) want[c] = 1;
    given += want[c];
  }
  for (; given > limit; given--) {
    int most = 0;
    for (int c = 1; c < classes; c++) most = want[c] > want[most] ? c : most;
    want[most]--;
  }
  for (; given < limit; given++) {
    int next = -1;
    for (int c = 0; c < classes; c++) {
      if (want[c] < have[c] && (next < 0 || lost[c] > lost[next])) next = c;
    }
    if (next < 0) return;
    want[next]++;
    lost[next] -= 1;
  }
}

// A source with labels only, because the limit reads nothing else.
static int64_t label_at(const void *state, uint64_t index) {
  return ((const int32_t *)state)[index];
}

static void limit_of(int32_t *labels, uint64_t count, int64_t classes, uint64_t limit,
                     uint64_t *got) {
  const brim_source_builtin rows = {.label = label_at};
  brim_source source = {.state = labels, .builtin = &rows};
  source.info.count = count;
  source.info.classes = classes;
  assert_ok(brim_source_limit(&source, limit, 1));
  assert_int_equal(source.info.count, limit);
  memset(got, 0, (size_t)classes * sizeof *got);
  for (uint64_t i = 0; i < limit; i++) got[labels[brim_source_part_at(source.part, i)]]++;
  brim_source_part_free(source.part);
}

static void test_limit_is_the_rule(void **state) {
  (void)state;
  uint32_t random = 1;
  for (int round = 0; round < 3000; round++) {
    int32_t labels[120];
    uint64_t have[16] = {0}, want[16], got[16];
    int classes = 1 + round % 16;
    uint64_t count = 2 + (uint64_t)(round * 7 % 119);
    for (uint64_t i = 0; i < count; i++) {
      random = random * 1664525u + 1013904223u;
      uint32_t draw = random >> 16;  // half of the rounds are lopsided
      labels[i] = (int32_t)(round & 1 ? draw % (1 + (draw >> 8) % (uint32_t)classes)
                                      : draw % (uint32_t)classes);
      have[labels[i]]++;
    }
    uint64_t limit = 1 + (random >> 8) % (count - 1);
    share_one_by_one(have, classes, count, limit, want);
    limit_of(labels, count, classes, limit, got);
    assert_memory_equal(got, want, (size_t)classes * sizeof *got);
  }
}

// Large sets of faces or products have this many classes. An algorithm that compares each sample with every class would
// take minutes.
static void test_limit_of_many_classes(void **state) {
  (void)state;
  enum { CLASSES = 200000, COUNT = 3 * CLASSES };
  int32_t *labels = brim_alloc(COUNT * sizeof *labels);
  uint64_t *got = brim_alloc(CLASSES * sizeof *got);
  assert_non_null(labels);
  assert_non_null(got);
  for (int i = 0; i < COUNT; i++) labels[i] = i % CLASSES;
  limit_of(labels, COUNT, CLASSES, 300000, got);  // 1.5 each: the first half gets the rest
  for (int c = 0; c < CLASSES; c++) assert_int_equal(got[c], c < CLASSES / 2 ? 2 : 1);
  limit_of(labels, COUNT, CLASSES, 100000, got);
  for (int c = 0; c < CLASSES; c++) assert_int_equal(got[c], c < CLASSES / 2);
  // the largest class gives one to each of the others
  for (int i = 0; i < COUNT; i++) labels[i] = i < CLASSES ? i : 7;
  limit_of(labels, COUNT, CLASSES, 300000, got);
  for (int c = 0; c < CLASSES; c++) assert_int_equal(got[c], c == 7 ? 100001 : 1);
  brim_free(labels);
  brim_free(got);
}

// A limit without labels is spread over the set: each sample once, the same for the same seed.
static void test_limit_without_labels(void **state) {
  (void)state;
  brim_argument args[] = {arg_int("samples", 1000), arg_int("targets", 1), arg_int("classes", 0)};
  brim_component c = {.name = "synthetic", .args = args, .arg_count = 3};
  uint8_t seen[2][1000] = {{0}};
  for (int k = 0; k < 2; k++) {
    brim_source *source = NULL;
    assert_ok(brim_source_open(NULL, &c, NULL, "train", 5, &source));
    assert_ok(brim_source_limit(source, 100, 5));
    assert_int_equal(source->info.count, 100);
    numbers(source, seen[k]);
    brim_source_close(source);
  }
  assert_memory_equal(seen[0], seen[1], 1000);
  int first = 0, all = 0;
  for (int i = 0; i < 1000; i++) {
    assert_true(seen[0][i] <= 1);
    all += seen[0][i];
    first += i < 500 ? seen[0][i] : 0;
  }
  assert_int_equal(all, 100);
  assert_in_range(first, 30, 70);
}

//---------------------------------- index files ----------------------------------

static brim_status open_indices(const char *text, brim_source **out) {
  write_bytes("list.txt", text, strlen(text));
  brim_argument args[] = {arg_int("samples", 100), arg_string("indices", "list.txt")};
  return open_source("synthetic", args, 2, NULL, "train", out);
}

static void test_index_file(void **state) {
  (void)state;
  static const uint64_t expected[] = {17, 3, 99, 0, 42};
  brim_source *s;
  assert_ok(open_indices("# chosen\n17\n  3   # the third\r\n\n99\n\t0\n42", &s));
  assert_int_equal(s->info.count, 5);
  assert_int_equal(s->host_bytes, 5 * 4);
  for (uint64_t i = 0; i < 5; i++) {
    char text[64], number[64];
    assert_int_equal(brim_source_part_at(s->part, i), expected[i]);
    brim_source_describe(s, i, text, sizeof text);
    snprintf(number, sizeof number, "sample %llu", (unsigned long long)expected[i]);
    assert_string_equal(text, number);
  }
  brim_source_close(s);
}

static void test_bad_index_files(void **state) {
  (void)state;
  static const struct {
    const char *text, *detail;
  } bad[] = {
      {"1\n2\n100\n", "list.txt:3: no sample 100; the source has 0 to 99"},
      {"1\n\n1\n", "list.txt:3: sample 1 appears twice in the file"},
      {"1\n2 3\n", "list.txt:2: expected one whole number per line"},
      {"1\n-2\n", "list.txt:2: expected one whole number per line"},
      {"1.5\n", "list.txt:1: expected one whole number per line"},
      {"99999999999999999999999\n", "list.txt:1: the number is too large"},
      {"# nothing\n\n", "list.txt: holds no number"},
      {"", "list.txt"},
  };
  brim_source *s;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_status(open_indices(bad[i].text, &s), BRIM_EPARSE);
    assert_detail(bad[i].detail);
  }
  write_bytes("list.txt", "1\n\0002\n", 5);
  brim_argument args[] = {arg_string("indices", "list.txt")};
  assert_status(open_source("synthetic", args, 1, NULL, "train", &s), BRIM_EPARSE);
  assert_detail("zero byte at offset 2");
  args[0] = arg_string("indices", "absent.txt");
  assert_status(open_source("synthetic", args, 1, NULL, "train", &s), BRIM_ENOENT);
  assert_detail("absent.txt");
  args[0] = arg_int("indices", 3);
  assert_status(open_source("synthetic", args, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("name of a file");
}

static void test_allocation_failures(void **state) {
  (void)state;
  write_bytes("list.txt", "5\n1\n7\n2\n", 8);
  brim_value pair[2];
  brim_argument args[] = {arg_int("samples", 100), arg_string("indices", "list.txt"),
                          arg_pair("part", 0.5, 1, pair)};
  for (uint64_t n = 1;; n++) {
    brim_alloc_stats before, after;
    brim_source *s = NULL;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = open_source("synthetic", args, 3, NULL, "train", &s);
    if (!status) status = brim_source_keep(s);
    brim_alloc_fail_nth(0, 0);
    bool failed = brim_alloc_failures() != failures;
    if (!failed) assert_int_equal(s->info.count, 2);
    brim_source_close(s);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
    assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
    if (!failed) {
      assert_ok(status);
      assert_true(n > 10);
      break;
    }
    assert_status(status, BRIM_ENOMEM);
  }
}

//---------------------------------- failures, sizes ----------------------------------

static void test_failures_name_the_sample(void **state) {
  (void)state;
  image_state ts = {.broken_every = 2, .broken_rest = 1};
  brim_source s = image_source(&ts, 10, false);
  uint8_t image[IMAGE];
  int32_t label;
  assert_status(brim_source_read(&s, 3, 1, image, &label, NULL, NULL), BRIM_EPARSE);
  assert_string_equal(brim_status_detail(), "sample 3: image 3 is broken");
  // read through a part, the sample's number in the table decides
  assert_ok(brim_source_take(&s, 0, 1, 1));
  for (uint64_t i = 0; i < 10; i++) {
    uint64_t n = brim_source_part_at(s.part, i);
    brim_status status = brim_source_read(&s, i, 1, image, &label, NULL, NULL);
    assert_int_equal(status, n % 2 ? BRIM_EPARSE : BRIM_OK);
    if (!status) assert_int_equal(label, n);
  }
  brim_source_part_free(s.part);
}

static void test_varying(void **state) {
  (void)state;
  image_state ts = {0};
  brim_source s = image_source(&ts, 10, true);
  uint8_t image[IMAGE * 2];
  int32_t label;
  for (uint64_t i = 0; i < 10; i++) {
    int64_t height, width, h, w;
    assert_ok(brim_source_size(&s, i, &height, &width));
    assert_int_equal(height, SIDE + (int64_t)(i % 3));
    assert_ok(brim_source_read(&s, i, 2, image, &label, &h, &w));
    assert_int_equal(h, height);
    assert_int_equal(w, width);
    assert_int_equal(label, i);
  }
  assert_status(brim_source_keep(&s), BRIM_EUNSUPPORTED);
  s.info.dim[0] = SIDE + 1;  // smaller than the largest images of the set
  assert_status(brim_source_read(&s, 2, 1, image, &label, NULL, NULL), BRIM_EINVAL);
  assert_detail("sample 2: an image of 8 x 6");
}

//---------------------------------- the cache ----------------------------------

typedef struct reader {
  brim_source *source;
  uint64_t start;
  bool good;
} reader;

static void *read_cached(void *ctx) {
  reader *r = ctx;
  uint64_t count = r->source->info.count;
  r->good = true;
  for (uint64_t k = 0; k < 3 * count; k++) {
    uint8_t image[IMAGE];
    int32_t label;
    uint64_t i = (r->start + k) % count;
    r->good = r->good && !brim_source_read(r->source, i, 1, image, &label, NULL, NULL) &&
              label == (int32_t)i && image[5] == image_byte(i, 5) &&
              image[IMAGE - 1] == image_byte(i, IMAGE - 1);
  }
  return NULL;
}

static void test_cache(void **state) {
  (void)state;
  image_state ts = {0};
  brim_source s = image_source(&ts, 200, false);
  brim_alloc_stats before, after;
  assert_int_equal(brim_source_cache_bytes(&s), 200 * (IMAGE + 4 + 1));
  brim_alloc_get_stats(&before);
  assert_ok(brim_source_keep(&s));
  assert_ok(brim_source_keep(&s));  // a second call changes nothing
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   brim_source_cache_bytes(&s));
  // One reader: every sample is read once.
  reader one = {.source = &s};
  read_cached(&one);
  assert_true(one.good);
  assert_int_equal(image_reads(&ts), 200);
  assert_status(brim_source_take(&s, 0, 0.5, 1), BRIM_ESTATE);
  brim_source_cache_free(s.cache);
  s.cache = NULL;
  // Four readers of the same samples: correct values, and each reader reads a sample at most once.
  ts.reads = 0;
  assert_ok(brim_source_keep(&s));
  pthread_t threads[4];
  reader readers[4];
  for (uint64_t i = 0; i < 4; i++) {
    readers[i] = (reader){.source = &s, .start = i / 2 * 50};
    assert_int_equal(pthread_create(&threads[i], NULL, read_cached, &readers[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 4; i++) assert_true(readers[i].good);
  assert_in_range(image_reads(&ts), 200, 800);
  brim_source_cache_free(s.cache);
}

// A sample that cannot be read is not kept.
static void test_cache_broken(void **state) {
  (void)state;
  image_state ts = {.broken_every = 5, .broken_rest = 2};
  brim_source s = image_source(&ts, 10, false);
  uint8_t image[IMAGE];
  int32_t label;
  assert_ok(brim_source_keep(&s));
  for (int again = 0; again < 2; again++) {
    assert_status(brim_source_read(&s, 7, 1, image, &label, NULL, NULL), BRIM_EPARSE);
    assert_detail("sample 7");
  }
  brim_source_cache_free(s.cache);
}

//---------------------------------- guessing ----------------------------------

static void touch(const char *path) { write_bytes(path, "x", 1); }

static void test_guess(void **state) {
  (void)state;
  static const uint8_t hdf5[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  static uint8_t user_block[2048 + 8];
  memcpy(user_block + 2048, hdf5, 8);
  bytes b, packed;
  make_images(2, 3, 3, &b);
  gzip(&b, &packed);
  write_bytes("a.data", hdf5, 8);
  write_bytes("b.data", user_block, sizeof user_block);
  write_bytes("c.data", b.data, b.size);
  write_bytes("d.data", packed.data, packed.size);
  assert_ok(brim_fs_mkdirs("mnist"));
  touch("mnist/t10k-images-idx3-ubyte.gz");
  assert_ok(brim_fs_mkdirs("c10/cifar-10-batches-bin"));
  assert_ok(brim_fs_mkdirs("c10b"));
  touch("c10b/data_batch_1.bin");
  assert_ok(brim_fs_mkdirs("c100"));
  touch("c100/train.bin");
  assert_ok(brim_fs_mkdirs("stl/stl10_binary"));
  assert_ok(brim_fs_mkdirs("pets/train/cat"));
  touch("pets/train/cat/1.JPEG");
  assert_ok(brim_fs_mkdirs("flat/dog"));
  touch("flat/dog/1.png");
  assert_ok(brim_fs_mkdirs("splits"));
  touch("splits/val.h5");
  touch("splits/preview.png");
  assert_ok(brim_fs_mkdirs("single"));
  touch("single/all.hdf5");
  assert_ok(brim_fs_mkdirs("nothing/inside"));
  touch("nothing/readme.txt");
  static const struct {
    const char *path, *name;
  } good[] = {{"a.data", "hdf5"}, {"b.data", "hdf5"}, {"c.data", "idx"},   {"d.data", "idx"},
              {"mnist", "idx"},   {"c10", "cifar10"}, {"c10b", "cifar10"}, {"c100", "cifar100"},
              {"stl", "stl10"},   {"pets", "folder"}, {"flat", "folder"},  {"splits", "hdf5"},
              {"single", "hdf5"}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    brim_component c;
    assert_ok(brim_source_guess(good[i].path, &c));
    assert_string_equal(c.name, good[i].name);
    assert_int_equal(c.arg_count, 0);
  }
  static const struct {
    const char *path;
    brim_status status;
    const char *detail;
  } bad[] = {{"absent", BRIM_ENOENT, "absent: no such file or folder; looked for HDF5 (a file"},
             {"nothing", BRIM_EINVAL, "nothing: no known data found; looked for HDF5"},
             {"nothing/readme.txt", BRIM_EINVAL, "not an HDF5, IDX or NumPy file"},
             {NULL, BRIM_EINVAL, "dataset"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brim_component c;
    assert_status(brim_source_guess(bad[i].path, &c), bad[i].status);
    assert_detail(bad[i].detail);
  }
}

// A source that meets data of another kind names that kind, and how to select it.
static void test_guess_other(void **state) {
  (void)state;
  static const uint8_t hdf5[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  bytes b;
  make_images(2, 3, 3, &b);
  write_bytes("h.data", hdf5, 8);
  write_bytes("i.data", b.data, b.size);
  touch("test.txt");
  assert_ok(brim_fs_mkdirs("kinds/train/cat"));
  assert_ok(brim_fs_mkdirs("kinds/hollow"));
  assert_ok(brim_fs_mkdirs("records"));
  touch("kinds/train/cat/1.png");
  touch("records/test_batch.bin");
  static const struct {
    const char *said, *path, *detail;
  } other[] = {
      {"idx", "h.data", "h.data is an HDF5 file, but dataset is idx; write dataset=hdf5, or"},
      {"mnist", "h.data", "h.data is an HDF5 file, but dataset is mnist; write dataset=hdf5, or"},
      {"folder", "h.data", "h.data is an HDF5 file, but dataset is folder"},
      {"stl10", "h.data", "h.data is an HDF5 file, but dataset is stl10"},
      {"hdf5", "i.data", "i.data is an IDX file, but dataset is hdf5; write dataset=idx, or"},
      {"idx", "records/test_batch.bin",
       "is a file of CIFAR-10, but dataset is idx; write dataset=cifar10, and set data.path"},
      {"hdf5", "kinds/train/cat/1.png", "is an image, but dataset is hdf5; write dataset=folder"},
      {"idx", "kinds", "the folder holds images: write dataset=folder, or omit dataset"},
      {"cifar100", "kinds", "; the folder holds images: write dataset=folder, or omit dataset"},
      {"hdf5", "kinds", "no single HDF5 file found; the folder holds images: write dataset=folder"},
      {"folder", "records", "; the folder holds files of CIFAR-10: write dataset=cifar10, or"},
  };
  for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
    brim_component c = {.name = other[i].said};
    brim_source *source = NULL;
    assert_true(brim_source_open(NULL, &c, other[i].path, "train", 0, &source) != BRIM_OK);
    assert_detail(other[i].detail);
  }
  // data of its own kind, or of an unknown one, are left to the source's own message
  static const struct {
    const char *said, *path;
  } same[] = {{"cifar10", "records"},  {"folder", "kinds"}, {"idx", "test.txt"},
              {"idx", "kinds/hollow"}, {"hdf5", "h.data"},  {"mnist", "i.data"}};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    brim_component c = {.name = same[i].said};
    brim_source *source = NULL;
    assert_true(brim_source_open(NULL, &c, same[i].path, "test", 0, &source) != BRIM_OK);
    assert_null(strstr(brim_status_detail(), "but dataset is"));
    assert_null(strstr(brim_status_detail(), "the folder holds"));
  }
}

int main(void) {
  brim_json_own_memory();
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shares),
      cmocka_unit_test(test_share_reads),
      cmocka_unit_test(test_bad_shares),
      cmocka_unit_test(test_limit_spreads_over_classes),
      cmocka_unit_test(test_limit_keeps_rare_classes),
      cmocka_unit_test(test_limit_is_the_rule),
      cmocka_unit_test(test_limit_of_many_classes),
      cmocka_unit_test(test_limit_without_labels),
      cmocka_unit_test(test_index_file),
      cmocka_unit_test(test_bad_index_files),
      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_failures_name_the_sample),
      cmocka_unit_test(test_varying),
      cmocka_unit_test(test_cache),
      cmocka_unit_test(test_cache_broken),
      cmocka_unit_test(test_guess),
      cmocka_unit_test(test_guess_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
