// The cores of a team's workers: not the caller's, each with its own share, or the whole mask if there are too few
// cores.
#include "base/base_machine.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.h"

static cpu_set_t cores(int first, int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = first; i < first + count; i++) CPU_SET((size_t)i, &set);
  return set;
}

static void shares_are_apart(void **state) {
  (void)state;
  for (int total = 2; total <= 9; total++) {
    const cpu_set_t mask = cores(3, total);
    for (int count = 1; count < total; count++) {
      cpu_set_t all;
      CPU_ZERO(&all);
      for (int i = 0; i < count; i++) {
        cpu_set_t share, both;
        brim_cores_share(&mask, 4, i, count, &share);
        assert_true(CPU_COUNT(&share) >= 1);
        assert_false(CPU_ISSET(4, &share));
        CPU_AND(&both, &all, &share);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&all, &all, &share);
      }
      assert_int_equal(CPU_COUNT(&all), total - 1);  // every core is used
    }
  }
}

static void too_many_workers_run_anywhere(void **state) {
  (void)state;
  const cpu_set_t mask = cores(0, 2);
  for (int i = 0; i < 2; i++) {
    cpu_set_t share;
    brim_cores_share(&mask, 0, i, 2, &share);
    assert_true(CPU_EQUAL(&share, &mask));
  }
}

typedef struct sleeper {
  pthread_t handle;
  pid_t id;
  sem_t begun, end;
} sleeper;

static void *sleep_on(void *arg) {
  sleeper *s = arg;
  s->id = (pid_t)syscall(SYS_gettid);
  sem_post(&s->begun);
  while (sem_wait(&s->end)) {
  }
  return NULL;
}

static cpu_set_t mask_of(pid_t thread) {
  cpu_set_t mask;
  assert_int_equal(sched_getaffinity(thread, sizeof mask, &mask), 0);
  return mask;
}

static void worker_keeps_off(void **state) {
  (void)state;
  const cpu_set_t before = mask_of(0);
  if (CPU_COUNT(&before) < 2) BRIM_SKIP("one core");
  brim_cores place;
  brim_cores_init(&place);
  if (place.off) BRIM_SKIP("the environment places threads");
  sleeper s = {0};
  sem_init(&s.begun, 0, 0);
  sem_init(&s.end, 0, 0);
  const pid_t none = 0;
  // a worker that has not begun: the caller must not be placed instead
  brim_cores_place(&place, &none, 1);
  cpu_set_t now = mask_of(0);
  assert_true(CPU_EQUAL(&now, &before));
  assert_int_equal(pthread_create(&s.handle, NULL, sleep_on, &s), 0);
  while (sem_wait(&s.begun)) {
  }
  // the caller runs on each core in turn; the worker runs on another
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET((size_t)cpu, &before)) continue;
    cpu_set_t both = before;
    brim_cores_place(&place, &s.id, 1);
    now = mask_of(s.id);
    assert_true(CPU_COUNT(&now) >= 1);
    assert_true(CPU_COUNT(&now) < CPU_COUNT(&both));
    assert_false(place.cpu >= 0 && CPU_ISSET((size_t)place.cpu, &now));
    // a caller pinned to one core has no other to give, so the worker gets the whole mask
    const cpu_set_t one = cores(cpu, 1);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 1000; i++) brim_cores_place(&place, &s.id, 1);
    now = mask_of(s.id);
    assert_true(CPU_EQUAL(&now, &one));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < 1000; i++) brim_cores_place(&place, &s.id, 1);
  }
  now = mask_of(0);
  assert_true(CPU_EQUAL(&now, &before));  // the caller is never pinned
  sem_post(&s.end);
  pthread_join(s.handle, NULL);
}

static void user_places_threads(void **state) {
  (void)state;
  brim_cores place;
  setenv("OMP_PROC_BIND", "true", 1);
  brim_cores_init(&place);
  unsetenv("OMP_PROC_BIND");
  assert_true(place.off);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_are_apart),
      cmocka_unit_test(too_many_workers_run_anywhere),
      cmocka_unit_test(worker_keeps_off),
      cmocka_unit_test(user_places_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
