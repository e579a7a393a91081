// The thread team alone: every rank of every region runs once, barriers hold, regions of changing size and a region
// within a region. Also run under ThreadSanitizer.
#include <stdatomic.h>

#include "backend/cpu/cpu_int.h"
#include "test.h"

void GOMP_barrier(void);  // called inside a region, by every rank

enum { THREADS = 4, ROUNDS = 1000 };

static atomic_int runs[THREADS];
static int part[THREADS], total[THREADS];

static void count(void *arg, int rank, int size) {
  assert_int_equal(size, *(int *)arg);
  atomic_fetch_add(&runs[rank], 1);
}

static void every_rank_once(void **state) {
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    int size = 2 + i % (THREADS - 1);
    for (int rank = 0; rank < THREADS; rank++) atomic_store(&runs[rank], 0);
    brim_cpu_team_run(size, count, &size);
    for (int rank = 0; rank < THREADS; rank++) {
      assert_int_equal(atomic_load(&runs[rank]), rank < size);
    }
  }
}

static void add_up(void *arg, int rank, int size) {
  part[rank] = rank + *(int *)arg;
  GOMP_barrier();
  int sum = 0;
  for (int i = 0; i < size; i++) sum += part[i];
  GOMP_barrier();  // the next round overwrites data that this one reads
  total[rank] = sum;
}

static void barriers_hold(void **state) {
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    const int size = 2 + i % (THREADS - 1);
    brim_cpu_team_run(size, add_up, &i);
    for (int rank = 0; rank < size; rank++) {
      assert_int_equal(total[rank], size * i + size * (size - 1) / 2);
    }
  }
}

static void inner(void *arg, int rank, int size) {
  atomic_fetch_add((atomic_int *)arg, 100 * size + rank);
  GOMP_barrier();  // without a team: returns at once
}

static void outer(void *arg, int rank, int size) {
  (void)rank, (void)size;
  brim_cpu_team_run(THREADS, inner, arg);
}

static void region_within_a_region(void **state) {
  (void)state;
  atomic_int sum = 0;
  brim_cpu_team_run(THREADS, outer, &sum);
  assert_int_equal(atomic_load(&sum), 100 * THREADS);  // each ran it alone
  brim_cpu_team_run(1, inner, &sum);
  assert_int_equal(atomic_load(&sum), 100 * THREADS + 100);
}

int main(void) {
  int started = 0;
  if (brim_cpu_team_start(THREADS, &started) || started != THREADS) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_rank_once),
      cmocka_unit_test(barriers_hold),
      cmocka_unit_test(region_within_a_region),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
