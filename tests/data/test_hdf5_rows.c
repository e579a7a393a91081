// Rows that only libhdf5 can unpack, and on which it crashes, never ends or fails: each is an error that names file and
// row, and can be left out. Other rows are read as usual. A test filter plays libhdf5's faults.
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "data/hdf5/data_hdf5.h"
#include "hdf5_odd_filter.h"
#include "hdf5_test.h"

enum { ROW = 512, CHUNK = 8, LARGE = 40000, SMALL = 400 };
enum { GOOD = ODD_GOOD, CRASH = ODD_CRASH, SPIN = ODD_SPIN, FAIL = ODD_FAIL, HANG = ODD_HANG };

static void put_chunk(hid_t dataset, hsize_t chunk, int32_t first) {
  int32_t values[CHUNK * ROW];
  hsize_t start[2] = {chunk * CHUNK, 0}, count[2] = {CHUNK, ROW};
  for (int i = 0; i < CHUNK * ROW; i++) values[i] = i;
  values[0] = first;
  hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(2, count, NULL);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_INT32, memory, space, H5P_DEFAULT, values) >= 0);
  H5Sclose(memory);
  H5Sclose(space);
}

typedef struct made {
  hsize_t chunk;
  int32_t first;
} made;

// x of `rows` rows behind the filter; rows that are not given hold 0.
static void odd_rows(const char *path, hsize_t rows, const made *chunks, size_t count) {
  const hsize_t dim[2] = {rows, ROW}, chunk[2] = {CHUNK, ROW};
  hid_t file = create(path, 0, true), space = H5Screate_simple(2, dim, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(how, 2, chunk);
  assert_true(H5Pset_filter(how, ODD_FILTER, 0, 0, NULL) >= 0);
  hid_t x = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
  assert_true(x >= 0);
  for (size_t i = 0; i < count; i++) put_chunk(x, chunks[i].chunk, chunks[i].first);
  H5Dclose(x);
  H5Pclose(how);
  H5Sclose(space);
  H5Fclose(file);
}

static void reads(const opened *o, uint64_t row, float second) {
  float values[ROW] = {0};
  assert_ok(brim_source_hdf5.read(o->state, row, values, NULL));
  assert_true(values[1] == second);
}

static void breaks(const opened *o, uint64_t row, brim_status status, const char *part) {
  float values[ROW];
  char name[32];
  brim_status_clear();
  assert_status(brim_source_hdf5.read(o->state, row, values, NULL), status);
  snprintf(name, sizeof name, ".h5: /x[%d]: ", (int)row);
  assert_detail(name);
  assert_detail(part);
}

static void no_child_is_left(void) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);  // no child process is left
}

// Bad rows far behind the first ones of a dataset too large for memory.
static void test_large(void **state) {
  (void)state;
  static const made chunks[] = {{100, GOOD}, {1000, CRASH}, {2000, SPIN}, {3000, FAIL}};
  opened o;
  odd_rows("large.h5", LARGE, chunks, 4);
  assert_ok(try_open("large.h5", "train", NULL, &o));
  assert_int_equal(o.info.count, LARGE);
  for (int round = 0; round < 2; round++) {
    reads(&o, 801, ROW + 1);
    breaks(&o, 8000, BRIM_EPARSE, round ? "crashed on this row" : "crashed (signal 11)");
    reads(&o, 802, 2 * ROW + 1);
    breaks(&o, 8005, BRIM_EPARSE, round ? "crashed on this row" : "crashed (signal 11)");
    breaks(&o, 16001, BRIM_EPARSE, round ? "crashed on this row" : "did not finish within 1 s");
    breaks(&o, 24003, BRIM_EIO, "filter");
    reads(&o, 24008, 0);
    reads(&o, LARGE - 1, 0);
  }
  shut(&o);
  no_child_is_left();
}

// A program that ignores SIGCHLD learns that a reader ended, not how: the row may be good.
static void test_lost_ends(void **state) {
  (void)state;
  static const made chunks[] = {{100, GOOD}, {1000, CRASH}};
  opened o;
  odd_rows("lost.h5", LARGE, chunks, 2);
  signal(SIGCHLD, SIG_IGN);
  assert_ok(try_open("lost.h5", "train", NULL, &o));
  for (int round = 0; round < 2; round++) {
    reads(&o, 801, ROW + 1);
    breaks(&o, 8000, BRIM_EPARSE, "ended early; the cause is unknown");
    reads(&o, 802, 2 * ROW + 1);
  }
  shut(&o);
  signal(SIGCHLD, SIG_DFL);
}

// Shared memory keeps its size, whatever the helper does to it.
static void test_sealed(void **state) {
  (void)state;
  enum { SIZE = 8192 };
  int fd;
  void *shared;
  assert_ok(brim_hdf5_share(SIZE, &fd, &shared));
  assert_int_equal(ftruncate(fd, 0), -1);
  assert_int_equal(ftruncate(fd, 2 * SIZE), -1);
  memset(shared, 7, SIZE);
  uint8_t last = 0;
  assert_int_equal(pread(fd, &last, 1, SIZE - 1), 1);
  assert_int_equal(last, 7);
  (void)munmap(shared, SIZE);
  (void)close(fd);
}

// A helper that is stuck without computing is given up as well; the row is read as soon as it can be.
static void test_hangs(void **state) {
  (void)state;
  static const made chunks[] = {{100, GOOD}, {1000, HANG}};
  opened o;
  odd_rows("hung.h5", LARGE, chunks, 2);
  FILE *mark = fopen("hangs", "w");
  assert_non_null(mark);
  fclose(mark);
  assert_ok(try_open("hung.h5", "train", NULL, &o));
  reads(&o, 801, ROW + 1);
  // a user who stops the program does not have to wait for it
  static volatile sig_atomic_t stop = 1;
  brim_stop_watch(&stop);
  breaks(&o, 8001, BRIM_EINTERRUPTED, "interrupted while brim-hdf5 read it");
  reads(&o, 803, 3 * ROW + 1);
  brim_stop_watch(NULL);
  breaks(&o, 8001, BRIM_EIO, "made no progress for 10 s");
  reads(&o, 802, 2 * ROW + 1);
  assert_int_equal(unlink("hangs"), 0);
  reads(&o, 8001, ROW + 1);
  shut(&o);
  no_child_is_left();
}

// A set that was read into memory loses only the bad rows.
static void test_small(void **state) {
  (void)state;
  static const int32_t kinds[] = {CRASH, FAIL};
  static const brim_status statuses[] = {BRIM_EPARSE, BRIM_EIO};
  for (int i = 0; i < 2; i++) {
    const made chunks[] = {{3, GOOD}, {5, kinds[i]}};
    opened o;
    odd_rows("small.h5", SMALL, chunks, 2);
    assert_ok(try_open("small.h5", "train", NULL, &o));
    reads(&o, 25, ROW + 1);
    breaks(&o, 40, statuses[i], i ? "filter" : "library crashed");
    reads(&o, 48, 0);
    shut(&o);
  }
  no_child_is_left();
}

// The loader skips and counts such rows, or stops at the first.
static void test_loader(void **state) {
  (void)state;
  static const made chunks[] = {{7, CRASH}, {20, FAIL}, {30, CRASH}};
  odd_rows("skipped.h5", SMALL, chunks, 3);
  for (int skip = 0; skip < 2; skip++) {
    brim_loader_options o = {.batch = 16, .prefetch_factor = 2, .world = 1, .num_workers = 3};
    brim_source *s;
    brim_loader *l;
    const brim_loaded *batch;
    brim_status status = BRIM_OK;
    int64_t rows = 0;
    brim_loader_stats stats;
    o.skip_broken = skip;
    assert_ok(open_source("hdf5", NULL, 0, "skipped.h5", "train", &s));
    assert_ok(brim_loader_create(NULL, s, &o, &l));
    for (int i = 0; i < SMALL / 16 && !status; i++) {
      status = brim_loader_next(l, &batch);
      if (status) break;
      rows += batch->rows;
      brim_loader_release(l, batch);
    }
    if (skip) {
      assert_ok(status);
      assert_int_equal(rows, SMALL);
      brim_loader_get_stats(l, &stats);
      assert_int_equal(stats.broken, 3 * CHUNK);
      assert_non_null(strstr(stats.first_broken, "skipped.h5: /x["));
    } else {
      assert_true(status != BRIM_OK);
      assert_detail("skipped.h5: /x[56]: the HDF5 library crashed");
      assert_detail("data.on_error=skip");
    }
    brim_loader_destroy(l);
    brim_source_close(s);
  }
  no_child_is_left();
}

// A child lives as long as the source, so descriptors that this process closes are really closed.
static void test_nothing_held(void **state) {
  (void)state;
  int ends[2];
  opened o;
  static const made chunks[] = {{1, GOOD}};
  assert_int_equal(pipe(ends), 0);
  odd_rows("held.h5", LARGE, chunks, 1);
  assert_ok(try_open("held.h5", "train", NULL, &o));
  reads(&o, 9, ROW + 1);
  close(ends[1]);
  struct pollfd end = {.fd = ends[0], .events = POLLIN};
  assert_int_equal(poll(&end, 1, 10000), 1);
  assert_true(end.revents & POLLHUP);
  close(ends[0]);
  shut(&o);
  no_child_is_left();
}

// A new file with the same name is not taken for the old one.
static void test_replaced(void **state) {
  (void)state;
  static const made chunks[] = {{1, GOOD}, {100, CRASH}};
  opened o;
  odd_rows("old.h5", LARGE, chunks, 2);
  odd_rows("new.h5", LARGE, chunks, 2);
  assert_ok(try_open("old.h5", "train", NULL, &o));
  assert_int_equal(rename("new.h5", "old.h5"), 0);
  reads(&o, 9, ROW + 1);
  float values[ROW];
  brim_status_clear();
  assert_status(brim_source_hdf5.read(o.state, 800, values, NULL), BRIM_EIO);
  assert_detail("old.h5: the file was removed or replaced");
  shut(&o);
}

int main(void) {
  (void)setenv("BRIM_HDF5_LIMIT_S", "1", 1);
  (void)setenv("BRIM_HDF5_HELPER", BRIM_BUILD_DIR "/tests/hdf5_helper_test", 1);
  if (!odd_filter_register()) return 1;
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_large),     cmocka_unit_test(test_small),
      cmocka_unit_test(test_loader),    cmocka_unit_test(test_nothing_held),
      cmocka_unit_test(test_replaced),  cmocka_unit_test(test_hangs),
      cmocka_unit_test(test_lost_ends), cmocka_unit_test(test_sealed),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
