// Mapped files: exact copies, errors with file and offset, and a process that survives truncation of a file.
#include "base/base_map.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "test.h"

#define assert_detail(part)                                                   \
  do {                                                                        \
    if (!strstr(brim_status_detail(), part)) {                                \
      fail_msg("'%s' is not in the detail '%s'", part, brim_status_detail()); \
    }                                                                         \
  } while (0)

enum { PAGES = 64, THREADS = 4 };

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static uint8_t byte_at(size_t i) { return (uint8_t)(i * 31 + (i >> 12)); }

static void make_file(const char *path, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  for (size_t i = 0; i < size; i++) assert_int_equal(fputc(byte_at(i), f), byte_at(i));
  assert_int_equal(fclose(f), 0);
}

static void test_copies(void **state) {
  (void)state;
  const size_t size = 3 * page_bytes() + 17;
  make_file("map_copies", size);
  brim_map map;
  assert_ok(brim_map_open("map_copies", &map));
  assert_int_equal(map.size, size);
  uint8_t buffer[64];
  for (size_t at = 0; at + sizeof buffer <= size; at += 61) {
    assert_ok(brim_map_copy(&map, at, buffer, sizeof buffer));
    for (size_t i = 0; i < sizeof buffer; i++) assert_int_equal(buffer[i], byte_at(at + i));
  }
  brim_map_advise(&map, 5, size, BRIM_MAP_USE_RANDOM);
  brim_map_advise(&map, page_bytes() + 1, 7, BRIM_MAP_USE_SOON);
  brim_map_advise(&map, size + 1, 7, BRIM_MAP_USE_NORMAL);
  assert_ok(brim_map_copy(&map, size, buffer, 0));
  assert_status(brim_map_copy(&map, size - 3, buffer, 4), BRIM_EPARSE);
  assert_detail("map_copies");
  assert_status(brim_map_copy(&map, UINT64_MAX, buffer, 4), BRIM_EPARSE);
  brim_map_close(&map);
  brim_map_close(&map);
}

static void test_refused(void **state) {
  (void)state;
  brim_map map;
  assert_status(brim_map_open("no_such_map", &map), BRIM_ENOENT);
  assert_detail("no_such_map");
  assert_status(brim_map_open(".", &map), BRIM_EINVAL);
  assert_detail("not a regular file");
  make_file("map_empty", 0);
  assert_status(brim_map_open("map_empty", &map), BRIM_EPARSE);
  assert_detail("map_empty: offset 0");
  brim_map_close(&map);
}

static void test_memory(void **state) {
  (void)state;
  const char text[] = "in memory";
  char out[4] = {0};
  brim_map map;
  brim_map_memory(text, sizeof text, "name", &map);
  assert_ok(brim_map_copy(&map, 3, out, 3));
  assert_string_equal(out, "mem");
  assert_status(brim_map_copy(&map, 8, out, 3), BRIM_EPARSE);
  brim_map_close(&map);
}

static void test_cut_short(void **state) {
  (void)state;
  const size_t page = page_bytes();
  make_file("map_cut", 8 * page);
  brim_map map;
  assert_ok(brim_map_open("map_cut", &map));
  uint8_t *buffer = malloc(3 * page);
  assert_non_null(buffer);
  assert_ok(brim_map_copy(&map, 4 * page, buffer, 3 * page));
  assert_int_equal(truncate("map_cut", (off_t)(5 * page)), 0);
  char where[64];
  snprintf(where, sizeof where, "map_cut: offset %zu", 5 * page);
  for (int i = 0; i < 3; i++) {  // repeatedly, because no signal may stay blocked
    assert_status(brim_map_copy(&map, 4 * page, buffer, 3 * page), BRIM_EIO);
    assert_detail(where);
    assert_ok(brim_map_copy(&map, 3 * page, buffer, 2 * page));
    assert_int_equal(buffer[7], byte_at(3 * page + 7));
  }
  // after the file grows again, it can be read again
  assert_int_equal(truncate("map_cut", (off_t)(8 * page)), 0);
  assert_ok(brim_map_copy(&map, 4 * page, buffer, 3 * page));
  assert_int_equal(buffer[2 * page], 0);
  free(buffer);
  brim_map_close(&map);
}

typedef struct readers {
  brim_map map;
  atomic_int go_on;
  atomic_int good, lost, wrong;
} readers;

static void *read_pages(void *ctx) {
  readers *r = ctx;
  const size_t page = page_bytes();
  uint8_t *buffer = malloc(page);
  size_t at = 0;
  while (buffer && atomic_load(&r->go_on)) {
    brim_status status = brim_map_copy(&r->map, at * page, buffer, page);
    if (status == BRIM_OK) {
      atomic_fetch_add(&r->good, 1);
      if (buffer[9] != byte_at(at * page + 9) && buffer[9] != 0) atomic_fetch_add(&r->wrong, 1);
    } else {
      atomic_fetch_add(status == BRIM_EIO && strstr(brim_status_detail(), "map_threads: offset")
                           ? &r->lost
                           : &r->wrong,
                       1);
    }
    at = (at * 5 + 3) % PAGES;
  }
  free(buffer);
  return NULL;
}

static void test_cut_under_threads(void **state) {
  (void)state;
  readers r = {.go_on = 1};
  pthread_t threads[THREADS];
  make_file("map_threads", PAGES * page_bytes());
  assert_ok(brim_map_open("map_threads", &r.map));
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, read_pages, &r), 0);
  for (int round = 0; round < 20; round++) {
    int lost = atomic_load(&r.lost), good = atomic_load(&r.good);
    assert_int_equal(truncate("map_threads", (off_t)(page_bytes() * PAGES / 2)), 0);
    while (atomic_load(&r.lost) < lost + 8) usleep(100);
    assert_int_equal(truncate("map_threads", (off_t)(page_bytes() * PAGES)), 0);
    while (atomic_load(&r.good) < good + 8) usleep(100);
  }
  atomic_store(&r.go_on, 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&r.wrong), 0);
  brim_map_close(&r.map);
}

static volatile sig_atomic_t seen;

static void other_handler(int number) {
  (void)number;
  seen = 1;
  _exit(42);
}

// A SIGBUS outside of the guard goes to the earlier handler. It may end the process, so a child causes it.
static int child_exit(bool handler) {
  pid_t child = fork();
  if (child == 0) {
    brim_map map;
    signal(SIGBUS, handler ? other_handler : SIG_DFL);
    if (brim_map_open("map_chain", &map)) _exit(1);
    uint8_t b;
    if (brim_map_copy(&map, page_bytes(), &b, 1)) _exit(2);
    if (truncate("map_chain", 1)) _exit(3);
    if (brim_map_copy(&map, page_bytes(), &b, 1) != BRIM_EIO) _exit(4);
    volatile const uint8_t *data = map.data;
    _exit(data[page_bytes()] ? 5 : 6);  // read without the guard
  }
  int status = 0;
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void test_others_faults(void **state) {
  (void)state;
  make_file("map_chain", 2 * page_bytes());
  int status = child_exit(true);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 42);
  make_file("map_chain", 2 * page_bytes());
  status = child_exit(false);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGBUS);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_cut_short),
      cmocka_unit_test(test_cut_under_threads),
      cmocka_unit_test(test_others_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
