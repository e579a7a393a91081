// Threads and the pool's fixed split. Also run under ThreadSanitizer.
#include "base/base_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base_alloc.h"
#include "stuck_threads.h"
#include "test.h"

static void note_thread(void *ctx) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  char name[16];
  pthread_getname_np(pthread_self(), name, sizeof name);
  *(int *)ctx = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGSEGV) == 0 &&
                strcmp(name, "a-name-that-is-") == 0;
}

static void plain_thread(void **state) {
  (void)state;
  brim_thread *thread;
  int good = 0;
  assert_ok(brim_thread_start(note_thread, &good, "a-name-that-is-too-long", &thread));
  brim_thread_join(thread);
  assert_int_equal(good, 1);
  brim_thread_join(NULL);
  assert_true(brim_cpu_count() >= 1);
}

typedef struct split {
  int64_t begin[8], end[8];
  atomic_int calls;
  atomic_int owner[1000];
} split;

static void record_range(void *ctx, int64_t begin, int64_t end, int thread) {
  split *s = ctx;
  s->begin[thread] = begin;
  s->end[thread] = end;
  atomic_fetch_add(&s->calls, 1);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&s->owner[i], thread + 1);
}

static void split_is_deterministic(void **state) {
  (void)state;
  brim_pool *pool;
  assert_ok(brim_pool_create(4, &pool));
  assert_int_equal(brim_pool_threads(pool), 4);
  const int64_t begins[4] = {0, 3, 6, 8}, ends[4] = {3, 6, 8, 10};
  for (int round = 0; round < 200; round++) {
    split s = {0};
    brim_pool_run(pool, 10, record_range, &s);
    assert_int_equal(atomic_load(&s.calls), 4);
    for (int i = 0; i < 4; i++) {
      assert_int_equal(s.begin[i], begins[i]);
      assert_int_equal(s.end[i], ends[i]);
    }
  }
  brim_pool_destroy(pool);
}

static void every_index_once(void **state) {
  (void)state;
  for (int threads = 1; threads <= 5; threads++) {
    brim_pool *pool;
    assert_ok(brim_pool_create(threads, &pool));
    for (int64_t count = 0; count <= 1000; count = count * 2 + 1) {
      split s = {0};
      brim_pool_run(pool, count, record_range, &s);
      int owner = 1;
      for (int64_t i = 0; i < count; i++) {
        int now = atomic_load(&s.owner[i]);
        assert_true(now == owner || now == owner + 1);  // contiguous and in order, without gaps
        owner = now;
      }
      for (int64_t i = count; i < 1000; i++) assert_int_equal(atomic_load(&s.owner[i]), 0);
    }
    brim_pool_destroy(pool);
  }
  brim_pool_destroy(NULL);
}

// The caller takes over the range of a worker that does not run.
static void stuck_workers_cost_nothing(void **state) {
  (void)state;
#ifdef BRIM_TSAN
  BRIM_SKIP("TSan delays signals to threads that sleep on a futex");
#endif
  brim_pool *pool;
  assert_ok(brim_pool_create(3, &pool));
  split s = {0};
  brim_pool_run(pool, 9, record_range, &s);
  // wait until the threads have their names, so that none is missed
  while (stuck_each("brim-pool", NULL) < 2) sched_yield();
  assert_int_equal(stuck_hold("brim-pool"), 2);
  for (int round = 0; round < 10; round++) {
    s = (split){0};
    brim_pool_run(pool, 9, record_range, &s);
    assert_int_equal(atomic_load(&s.calls), 3);
    for (int64_t i = 0; i < 9; i++) assert_int_equal(atomic_load(&s.owner[i]), i / 3 + 1);
  }
  stuck_let_go();
  s = (split){0};
  brim_pool_run(pool, 9, record_range, &s);
  assert_int_equal(atomic_load(&s.calls), 3);
  brim_pool_destroy(pool);
}

static void pool_refusals(void **state) {
  (void)state;
  brim_pool *pool;
  assert_status(brim_pool_create(0, &pool), BRIM_EINVAL);
  for (uint64_t n = 1; n <= 3; n++) {
    brim_alloc_fail_nth(n, 0);
    assert_status(brim_pool_create(3, &pool), BRIM_ENOMEM);
    assert_null(pool);
  }
  brim_alloc_fail_nth(0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_thread),     cmocka_unit_test(split_is_deterministic),
      cmocka_unit_test(every_index_once), cmocka_unit_test(stuck_workers_cost_nothing),
      cmocka_unit_test(pool_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
