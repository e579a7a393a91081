// Threads, the pool's fixed split, and the ring queue under contention. Also run under
// ThreadSanitizer.
#include "base/base_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base_alloc.h"
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
        assert_true(now == owner || now == owner + 1);  // contiguous, in order, exactly one
        owner = now;
      }
      for (int64_t i = count; i < 1000; i++) assert_int_equal(atomic_load(&s.owner[i]), 0);
    }
    brim_pool_destroy(pool);
  }
  brim_pool_destroy(NULL);
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

static void ring_is_first_in_first_out(void **state) {
  (void)state;
  brim_ring *ring;
  int items[6];
  void *item;
  assert_status(brim_ring_create(0, &ring), BRIM_EINVAL);
  brim_alloc_fail_nth(1, 0);
  assert_status(brim_ring_create(4, &ring), BRIM_ENOMEM);
  assert_ok(brim_ring_create(3, &ring));
  assert_status(brim_ring_try_pop(ring, &item), BRIM_ENOENT);
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3; i++) assert_ok(brim_ring_push(ring, &items[i]));
    assert_int_equal(brim_ring_count(ring), 3);
    assert_ok(brim_ring_try_pop(ring, &item));
    assert_ptr_equal(item, &items[0]);
    assert_ok(brim_ring_push(ring, &items[3]));
    for (int i = 1; i < 4; i++) {
      assert_ok(brim_ring_pop(ring, &item));
      assert_ptr_equal(item, &items[i]);
    }
  }
  assert_ok(brim_ring_push(ring, &items[5]));
  brim_ring_close(ring);
  assert_status(brim_ring_push(ring, &items[0]), BRIM_EEND);
  assert_ok(brim_ring_pop(ring, &item));  // what is left comes out first
  assert_ptr_equal(item, &items[5]);
  assert_status(brim_ring_pop(ring, &item), BRIM_EEND);
  assert_null(item);
  assert_status(brim_ring_try_pop(ring, &item), BRIM_EEND);
  brim_ring_destroy(ring);
  brim_ring_destroy(NULL);
}

enum { PRODUCERS = 3, CONSUMERS = 3, ITEMS = 2000 };

typedef struct traffic {
  brim_ring *ring;
  atomic_int pushed, popped, refused;
  atomic_long sum_in, sum_out;
} traffic;

static void produce(void *ctx) {
  traffic *t = ctx;
  for (intptr_t i = 1; i <= ITEMS; i++) {
    brim_status status = brim_ring_push(t->ring, (void *)i);
    if (status == BRIM_EEND) {
      atomic_fetch_add(&t->refused, 1);
      return;
    }
    atomic_fetch_add(&t->pushed, 1);
    atomic_fetch_add(&t->sum_in, (long)i);
  }
}

static void consume(void *ctx) {
  traffic *t = ctx;
  void *item;
  while (brim_ring_pop(t->ring, &item) == BRIM_OK) {
    atomic_fetch_add(&t->popped, 1);
    atomic_fetch_add(&t->sum_out, (long)(intptr_t)item);
  }
}

// Many threads; close either when all is pushed or in the middle. Nothing is lost or doubled.
static void contention(int close_after) {
  traffic t = {0};
  brim_thread *producers[PRODUCERS], *consumers[CONSUMERS];
  assert_ok(brim_ring_create(4, &t.ring));
  for (int i = 0; i < CONSUMERS; i++) {
    assert_ok(brim_thread_start(consume, &t, "consumer", &consumers[i]));
  }
  for (int i = 0; i < PRODUCERS; i++) {
    assert_ok(brim_thread_start(produce, &t, "producer", &producers[i]));
  }
  if (close_after) {
    while (atomic_load(&t.popped) < close_after) sched_yield();
    brim_ring_close(t.ring);
  }
  for (int i = 0; i < PRODUCERS; i++) brim_thread_join(producers[i]);
  if (!close_after) brim_ring_close(t.ring);
  for (int i = 0; i < CONSUMERS; i++) brim_thread_join(consumers[i]);
  assert_int_equal(atomic_load(&t.pushed), atomic_load(&t.popped));
  assert_int_equal(atomic_load(&t.sum_in), atomic_load(&t.sum_out));
  if (!close_after) {
    assert_int_equal(atomic_load(&t.pushed), PRODUCERS * ITEMS);
    assert_int_equal(atomic_load(&t.refused), 0);
  }
  brim_ring_destroy(t.ring);
}

static void ring_under_contention(void **state) {
  (void)state;
  contention(0);
}

static void ring_closed_under_contention(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) contention(50);
}

static void block_push(void *ctx) {
  traffic *t = ctx;
  atomic_store(&t->pushed, 1);
  if (brim_ring_push(t->ring, t) == BRIM_EEND) atomic_store(&t->refused, 1);
}

static void close_wakes_a_full_push(void **state) {
  (void)state;
  traffic t = {0};
  brim_thread *thread;
  assert_ok(brim_ring_create(1, &t.ring));
  assert_ok(brim_ring_push(t.ring, &t));
  assert_ok(brim_thread_start(block_push, &t, "push", &thread));
  while (!atomic_load(&t.pushed)) sched_yield();
  brim_ring_close(t.ring);
  brim_thread_join(thread);
  assert_int_equal(atomic_load(&t.refused), 1);
  assert_int_equal(brim_ring_count(t.ring), 1);
  brim_ring_destroy(t.ring);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain_thread),
      cmocka_unit_test(split_is_deterministic),
      cmocka_unit_test(every_index_once),
      cmocka_unit_test(pool_refusals),
      cmocka_unit_test(ring_is_first_in_first_out),
      cmocka_unit_test(ring_under_contention),
      cmocka_unit_test(ring_closed_under_contention),
      cmocka_unit_test(close_wakes_a_full_push),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
