// CIFAR-10 and CIFAR-100 files: pixels and labels in the right place, over several files and both layouts of folders;
// every broken file is an error that names it; no failing allocation leaks.
#include <unistd.h>

#include "data/data_int.h"
#include "data_test.h"

enum { PER_FILE = 7 };

// Byte e of the planes of record i.
static uint8_t value_at(uint64_t i, size_t e) { return (uint8_t)(i * 31 + e * 7 + e / 1024 * 5); }

// Records first .. first + n - 1 of the set; labels are i % classes (coarse ones i % 20).
static void write_records(const char *path, size_t label_bytes, uint64_t first, uint64_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  for (uint64_t i = first; i < first + n; i++) {
    uint8_t record[2 + 3072], *p = record;
    if (label_bytes == 2) *p++ = (uint8_t)(i % 20);
    *p++ = (uint8_t)(i % (label_bytes == 2 ? 100 : 10));
    for (size_t e = 0; e < 3072; e++) p[e] = value_at(i, e);
    assert_int_equal(fwrite(record, 1, label_bytes + 3072, f), label_bytes + 3072);
  }
  assert_int_equal(fclose(f), 0);
}

static void write_cifar10(const char *folder) {
  assert_ok(brim_fs_mkdirs(folder));
  for (uint64_t i = 0; i < 5; i++) {
    char path[256];
    snprintf(path, sizeof path, "%s/data_batch_%d.bin", folder, (int)i + 1);
    write_records(path, 1, i * PER_FILE, PER_FILE);
  }
  char path[256];
  snprintf(path, sizeof path, "%s/test_batch.bin", folder);
  write_records(path, 1, 1000, 4);
}

static void check_sample(brim_source *s, uint64_t index, uint64_t record, int32_t label) {
  uint8_t pixels[3072];
  int32_t got = -1;
  assert_ok(s->table->read(s->state, index, pixels, &got));
  assert_int_equal(got, label);
  for (size_t y = 0; y < 32; y++) {
    for (size_t x = 0; x < 32; x++) {
      for (size_t c = 0; c < 3; c++) {
        assert_int_equal(pixels[(y * 32 + x) * 3 + c], value_at(record, c * 1024 + y * 32 + x));
      }
    }
  }
}

static void test_cifar10(void **state) {
  (void)state;
  static const char *const folders[] = {"plain", "outer/cifar-10-batches-bin"};
  static const char *const paths[] = {"plain", "outer"};
  for (int i = 0; i < 2; i++) {
    write_cifar10(folders[i]);
    brim_source *s, *t;
    assert_ok(open_source("cifar10", NULL, 0, paths[i], "train", &s));
    assert_int_equal(s->info.count, 5 * PER_FILE);
    assert_int_equal(s->info.rank, 3);
    assert_int_equal(s->info.dim[0], 32);
    assert_int_equal(s->info.dim[1], 32);
    assert_int_equal(s->info.dim[2], 3);
    assert_int_equal(s->info.classes, 10);
    assert_int_equal(s->info.channels, 3);
    assert_true(s->info.mean[0] == 0.4914f && s->info.std[2] == 0.2616f);
    assert_int_equal(s->input_bytes, 3072);
    assert_int_equal(s->host_bytes, 5 * PER_FILE);
    for (uint64_t k = 0; k < 5 * PER_FILE; k++) check_sample(s, k, k, (int32_t)(k % 10));
    uint8_t pixels[3072];
    int32_t label;
    assert_status(s->table->read(s->state, 5 * PER_FILE, pixels, &label), BRIM_EINVAL);
    assert_ok(open_source("cifar10", NULL, 0, paths[i], "test", &t));
    assert_int_equal(t->info.count, 4);
    check_sample(t, 3, 1003, 3);
    brim_source_close(t);
    brim_source_close(s);
  }
}

static void test_cifar100(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("hundred/cifar-100-binary"));
  write_records("hundred/cifar-100-binary/train.bin", 2, 0, 120);
  write_records("hundred/cifar-100-binary/test.bin", 2, 90, 3);
  brim_source *s;
  assert_ok(open_source("cifar100", NULL, 0, "hundred", "train", &s));
  assert_int_equal(s->info.classes, 100);
  check_sample(s, 99, 99, 99);
  check_sample(s, 119, 119, 19);
  brim_source_close(s);
  assert_ok(open_source("cifar100", NULL, 0, "hundred", "val", &s));
  check_sample(s, 2, 92, 92);
  brim_source_close(s);
}

static void put_byte(const char *path, long offset, uint8_t value) {
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, offset, SEEK_SET), 0);
  assert_int_equal(fwrite(&value, 1, 1, f), 1);
  assert_int_equal(fclose(f), 0);
}

static void test_broken(void **state) {
  (void)state;
  brim_source *s;
  write_cifar10("bad");
  assert_int_equal(truncate("bad/data_batch_3.bin", PER_FILE * 3073 - 1), 0);
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("bad/data_batch_3.bin: 21510 bytes");
  assert_detail("offset 18438");
  assert_int_equal(truncate("bad/data_batch_3.bin", PER_FILE * 3073 + 1), 0);
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_int_equal(truncate("bad/data_batch_3.bin", 0), 0);
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("data_batch_3.bin");
  assert_ok(brim_fs_remove("bad/data_batch_3.bin"));
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("bad: data_batch_1.bin exists, but data_batch_3.bin is missing");
  assert_int_equal(rename("bad/data_batch_1.bin", "bad/away"), 0);
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("bad: data_batch_2.bin exists, but data_batch_1.bin is missing");
  assert_int_equal(rename("bad/away", "bad/data_batch_1.bin"), 0);
  write_records("bad/data_batch_3.bin", 1, 0, PER_FILE);
  put_byte("bad/data_batch_3.bin", 2 * 3073, 10);
  assert_status(open_source("cifar10", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("bad/data_batch_3.bin: offset 6146: label 10 of record 2 is not in [0, 10)");
  assert_status(open_source("cifar10", NULL, 0, "nowhere", "train", &s), BRIM_ENOENT);
  assert_detail("nowhere: no such folder");
  assert_status(open_source("cifar10", NULL, 0, ".", "train", &s), BRIM_ENOENT);
  assert_detail("neither data_batch_1.bin nor cifar-10-batches-bin/data_batch_1.bin");
  assert_status(open_source("cifar10", NULL, 0, "bad/test_batch.bin", "train", &s), BRIM_EINVAL);
  assert_detail("the folder of data_batch_1.bin");
  assert_status(open_source("cifar10", NULL, 0, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("data.path");
  brim_argument coarse[] = {arg_int("fine", 0)};
  assert_status(open_source("cifar100", coarse, 1, "hundred", "train", &s), BRIM_EINVAL);
  assert_detail("no argument 'fine'");
}

// A coarse label out of range is detected too.
static void test_coarse_label(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("coarse"));
  write_records("coarse/test.bin", 2, 0, 3);
  put_byte("coarse/test.bin", 3074, 20);
  brim_source *s;
  assert_status(open_source("cifar100", NULL, 0, "coarse", "test", &s), BRIM_EPARSE);
  assert_detail("offset 3074: label 20 of record 1 is not in [0, 20)");
}

// A file that is cut short while in use: an error that names it, not a crash.
static void test_cut_short(void **state) {
  (void)state;
  write_cifar10("cut");
  brim_source *s;
  uint8_t pixels[3072];
  int32_t label;
  assert_ok(open_source("cifar10", NULL, 0, "cut", "test", &s));
  assert_int_equal(truncate("cut/test_batch.bin", 3073 + 5), 0);
  assert_ok(s->table->read(s->state, 0, pixels, &label));
  assert_status(s->table->read(s->state, 1, pixels, &label), BRIM_EIO);
  assert_detail("cut/test_batch.bin");
  brim_source_close(s);
}

static void test_allocation_failures(void **state) {
  (void)state;
  write_cifar10("alloc/cifar-10-batches-bin");
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1;
  for (;; n++) {
    brim_source *s = NULL;
    uint64_t failed = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = open_source("cifar10", NULL, 0, "alloc", "train", &s);
    brim_alloc_fail_nth(0, 0);
    if (!status) brim_source_close(s);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_PLANNED], before.live_blocks[BRIM_MEM_PLANNED]);
    assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
    if (brim_alloc_failures() == failed) break;
    if (status) assert_int_equal(status, BRIM_ENOMEM);
  }
  assert_true(n > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cifar10),   cmocka_unit_test(test_cifar100),
      cmocka_unit_test(test_broken),    cmocka_unit_test(test_coarse_label),
      cmocka_unit_test(test_cut_short), cmocka_unit_test(test_allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
