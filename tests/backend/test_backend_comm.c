// Ranks of one machine over shared memory: as processes, like a training, and as threads, which ThreadSanitizer can
// check. And the ways an exchange ends that cannot succeed.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/comm_checks.h"
#include "test.h"

#define LONG_NS (120 * (int64_t)1000000000)
#define RANKS 5

static void new_name(char out[64]) {
  static int used;
  snprintf(out, 64, "/brim-test-%d-%d", (int)getpid(), used++);
}

static bool name_is_free(const char *name) {
  int file = shm_open(name, O_RDWR, 0);
  if (file >= 0) close(file);
  return file < 0;
}

static int run_rank(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) {
    fprintf(stderr, "rank %d: %s\n", rank, brim_status_detail());
    return 1;
  }
  int failed = brim_comm_rank(comm) != rank || brim_comm_size(comm) != size ||
               strcmp(brim_comm_name(comm), "shm") != 0 || !name_is_free(name);
  if (!failed) failed = comm_checks(comm);
  brim_comm_destroy(comm);
  return failed;
}

static void test_processes(void **state) {
  (void)state;
  for (int size = 1; size <= RANKS; size++) {
    char name[64];
    new_name(name);
    pid_t pids[RANKS];
    for (int r = 0; r < size; r++) {
      fflush(NULL);
      pids[r] = fork();
      assert_true(pids[r] >= 0);
      if (pids[r] == 0) _exit(run_rank(name, r, size));
    }
    for (int r = 0; r < size; r++) {
      int code = -1;
      assert_int_equal(waitpid(pids[r], &code, 0), pids[r]);
      assert_int_equal(code, 0);
    }
  }
}

//---------------------------------- threads ----------------------------------

typedef struct rank_thread {
  const char *name;
  int rank, size;
  int (*run)(const char *name, int rank, int size);
  int failed;
  pthread_t thread;
} rank_thread;

static void *rank_main(void *arg) {
  rank_thread *t = arg;
  t->failed = t->run(t->name, t->rank, t->size);
  return NULL;
}

static void run_threads(int size, int (*run)(const char *name, int rank, int size)) {
  char name[64];
  new_name(name);
  rank_thread threads[RANKS] = {0};
  for (int r = 0; r < size; r++) {
    threads[r] = (rank_thread){.name = name, .rank = r, .size = size, .run = run};
    assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]), 0);
  }
  for (int r = 0; r < size; r++) pthread_join(threads[r].thread, NULL);
  for (int r = 0; r < size; r++) assert_int_equal(threads[r].failed, 0);
  assert_true(name_is_free(name));
}

static void test_threads(void **state) {
  (void)state;
  for (int size = 1; size <= RANKS; size++) run_threads(size, run_rank);
}

// Rank 0 abandons while the others wait for it: in a call, and for posted requests.
static int run_abandoned(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) return 1;
  float values[100] = {0};
  if (rank == 0) {
    brim_clock_sleep_ns(30 * 1000000);
    brim_comm_abandon(comm);
    COMM_CHECK(brim_comm_all_reduce(comm, values, 100, BRIM_F32) == BRIM_EIO);
  } else if (rank == 1) {
    COMM_CHECK(brim_comm_all_reduce(comm, values, 100, BRIM_F32) == BRIM_EIO);
  } else {
    COMM_CHECK(!brim_comm_post_all_reduce(comm, values, 100, BRIM_F32));
    COMM_CHECK(brim_comm_wait(comm) == BRIM_EIO);
  }
  COMM_CHECK(strstr(brim_status_detail(), "rank 0 "));
  // Every later call fails with the same reason.
  brim_status_clear();
  COMM_CHECK(brim_comm_wait(comm) == BRIM_EIO);
  COMM_CHECK(strstr(brim_status_detail(), "rank 0 "));
  COMM_CHECK(brim_comm_post_all_reduce(comm, values, 1, BRIM_F32) == BRIM_EIO);
  COMM_CHECK(brim_comm_all_gather(comm, values, values, 4) == BRIM_EIO);
  COMM_CHECK(brim_comm_broadcast(comm, values, 4, 1) == BRIM_EIO);
  brim_comm_destroy(comm);
  return 0;
}

static void test_abandon(void **state) {
  (void)state;
  run_threads(3, run_abandoned);
}

// A rank that abandons also wakes its own call on another thread, without a call of the other rank.
static atomic_int woken;

static void abandon_later(void *arg) {
  brim_clock_sleep_ns(30 * 1000000);
  brim_comm_abandon(arg);
}

static int run_woken(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) return 1;
  if (rank == 1) {
    float values[100] = {0};
    brim_thread *thread = NULL;
    COMM_CHECK(!brim_thread_start(abandon_later, comm, "abandon", &thread));
    COMM_CHECK(brim_comm_all_reduce(comm, values, 100, BRIM_F32) == BRIM_EIO);
    COMM_CHECK(strstr(brim_status_detail(), "rank 1 "));
    brim_thread_join(thread);
    atomic_store(&woken, 1);
  } else {
    while (!atomic_load(&woken)) brim_clock_sleep_ns(1000000);
  }
  brim_comm_destroy(comm);
  return 0;
}

static void test_abandon_own(void **state) {
  (void)state;
  atomic_store(&woken, 0);
  run_threads(2, run_woken);
}

// A rank that closes ends the waits of others; exchanges that all ranks reached are complete.
static int run_closed(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) return 1;
  double values[3] = {1, 2, 3};
  COMM_CHECK(!brim_comm_all_reduce(comm, values, 3, BRIM_F64));
  COMM_CHECK(values[2] == 3.0 * size);
  if (rank != 2) {
    // no data, so no exchange
    COMM_CHECK(brim_comm_all_gather(comm, values, values, 0) == BRIM_OK);
    double all[RANKS];
    COMM_CHECK(brim_comm_all_gather(comm, values, all, sizeof *values) == BRIM_EIO);
    COMM_CHECK(strstr(brim_status_detail(), "rank "));
  }
  brim_comm_destroy(comm);
  return 0;
}

static void test_close(void **state) {
  (void)state;
  run_threads(3, run_closed);
}

// A rank is destroyed while its posted requests cannot complete.
static int run_posted_left(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) return 1;
  float values[8] = {0};
  if (rank == 0) {
    for (int i = 0; i < 8; i++) {
      COMM_CHECK(!brim_comm_post_all_reduce(comm, values + i, 1, BRIM_F32));
    }
    atomic_store(&woken, 1);
  } else {
    while (!atomic_load(&woken)) brim_clock_sleep_ns(1000000);
  }
  brim_comm_destroy(comm);
  return 0;
}

static void test_destroy_posted(void **state) {
  (void)state;
  atomic_store(&woken, 0);
  run_threads(2, run_posted_left);
}

static int run_different(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (brim_comm_open_shm(name, rank, size, LONG_NS, &comm)) return 1;
  float values[4] = {0};
  // One rank may have left before the other looks.
  brim_status status = brim_comm_all_reduce(comm, values, rank == 0 ? 4 : 3, BRIM_F32);
  COMM_CHECK(status == BRIM_EINTERNAL || status == BRIM_EIO);
  if (status == BRIM_EINTERNAL) atomic_store(&woken, 1);
  brim_comm_destroy(comm);
  return 0;
}

static void test_different_calls(void **state) {
  (void)state;
  atomic_store(&woken, 0);
  run_threads(2, run_different);
  assert_int_equal(atomic_load(&woken), 1);
}

//---------------------------------- opening ----------------------------------

static void test_missing_rank(void **state) {
  (void)state;
  char name[64];
  new_name(name);
  brim_comm *comm = NULL;
  assert_status(brim_comm_open_shm(name, 1, 4, 20 * 1000000, &comm), BRIM_EIO);
  assert_null(comm);
  assert_non_null(strstr(brim_status_detail(), "0, 2, 3"));
  assert_true(name_is_free(name));
}

static void test_bad_segments(void **state) {
  (void)state;
  char name[64];
  new_name(name);
  brim_comm *comm = NULL;
  assert_status(brim_comm_open_shm(name, 2, 2, LONG_NS, &comm), BRIM_EINVAL);
  assert_status(brim_comm_open_shm(name, -1, 2, LONG_NS, &comm), BRIM_EINVAL);
  assert_status(brim_comm_open_shm(name, 0, 0, LONG_NS, &comm), BRIM_EINVAL);
  assert_status(brim_comm_open_shm("no-slash", 0, 1, LONG_NS, &comm), BRIM_EINVAL);
  assert_status(brim_comm_open_shm("/no/such/folder", 0, 1, LONG_NS, &comm), BRIM_EINVAL);
  assert_true(name_is_free(name));
  // A segment whose creator ended before it was ready.
  int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  assert_true(file >= 0);
  assert_status(brim_comm_open_shm(name, 0, 1, 5 * 1000000, &comm), BRIM_EIO);
  assert_non_null(strstr(brim_status_detail(), name));
  assert_int_equal(ftruncate(file, 4096), 0);
  assert_status(brim_comm_open_shm(name, 0, 1, 5 * 1000000, &comm), BRIM_EIO);
  close(file);
  shm_unlink(name);
}

// While ranks 0 and 1 of 3 wait, a rank of another size and a second rank 1 are refused.
static int run_intruders(const char *name, int rank, int size) {
  brim_comm *comm = NULL;
  if (rank == 2) {
    while (name_is_free(name)) brim_clock_sleep_ns(1000000);
    COMM_CHECK(brim_comm_open_shm(name, 3, 4, LONG_NS, &comm) == BRIM_EINVAL);
    COMM_CHECK(strstr(brim_status_detail(), "for 3 ranks, not 4"));
    // Two ranks 1 arrive in any order: one of them is refused; then this process may be rank 2.
    while (atomic_load(&woken) == 0) brim_clock_sleep_ns(1000000);
  }
  const int as = rank == 3 ? 1 : rank;
  brim_status status = brim_comm_open_shm(name, as, size - 1, LONG_NS, &comm);
  if (as == 1 && status) {
    COMM_CHECK(status == BRIM_EEXIST && strstr(brim_status_detail(), "rank 1 "));
    atomic_fetch_add(&woken, 1);
    return 0;
  }
  COMM_CHECK(!status);
  brim_comm_destroy(comm);
  return 0;
}

static void test_intruders(void **state) {
  (void)state;
  atomic_store(&woken, 0);
  run_threads(4, run_intruders);
  assert_int_equal(atomic_load(&woken), 1);
}

static void test_no_memory(void **state) {
  (void)state;
  for (uint64_t n = 1;; n++) {
    char name[64];
    new_name(name);
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    brim_comm *comm = NULL;
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_comm_open_shm(name, 0, 1, LONG_NS, &comm);
    brim_alloc_fail_nth(0, 0);
    brim_comm_destroy(comm);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
    assert_true(name_is_free(name));
    if (!status) {
      assert_true(n > 2);
      break;
    }
    assert_int_equal(status, BRIM_ENOMEM);
  }
}

// Without a communicator the number of ranks is one.
static void test_null(void **state) {
  (void)state;
  float value = 3.0f, copy = 0.0f;
  assert_int_equal(brim_comm_rank(NULL), 0);
  assert_int_equal(brim_comm_size(NULL), 1);
  assert_ok(brim_comm_all_reduce(NULL, &value, 1, BRIM_F32));
  assert_ok(brim_comm_post_all_reduce(NULL, &value, 1, BRIM_F32));
  assert_ok(brim_comm_wait(NULL));
  assert_ok(brim_comm_broadcast(NULL, &value, sizeof value, 0));
  assert_status(brim_comm_broadcast(NULL, &value, sizeof value, 1), BRIM_EINVAL);
  assert_ok(brim_comm_all_gather(NULL, &value, &copy, sizeof value));
  assert_true(copy == 3.0f && value == 3.0f);
  brim_comm_stats stats = {.calls = 7};
  brim_comm_read_stats(NULL, &stats);
  assert_int_equal(stats.calls, 0);
  brim_comm_abandon(NULL);
  brim_comm_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processes),  // before there are threads
      cmocka_unit_test(test_threads),        cmocka_unit_test(test_abandon),
      cmocka_unit_test(test_abandon_own),    cmocka_unit_test(test_close),
      cmocka_unit_test(test_destroy_posted), cmocka_unit_test(test_different_calls),
      cmocka_unit_test(test_missing_rank),   cmocka_unit_test(test_bad_segments),
      cmocka_unit_test(test_intruders),      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_null),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
