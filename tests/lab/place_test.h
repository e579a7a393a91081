// Shared by the tests of placement: a place over the machine of fake_gpus.h, and a clock that the test moves.
#ifndef BRIM_TESTS_LAB_PLACE_TEST_H_
#define BRIM_TESTS_LAB_PLACE_TEST_H_

#include "fake_gpus.h"
#include "lab/place/lab_place.h"

static struct {
  brim_gpu_monitor *monitor;
  brim_lab_place *place;
  int64_t now;
  brim_lab_place_slot slot;  // slot of the last experiment that got one
} pt;

// Opens a place with options `o`; unset ones are the fake machine's.
static inline brim_status pt_try_open(brim_lab_place_options o) {
  if (fake.count > 0 && !pt.monitor) pt.monitor = fake_monitor();
  o.monitor = pt.monitor;
  o.root = FAKE_ROOT;
  if (!o.lock_dir) o.lock_dir = "locks";
  if (!o.store) o.store = "runs/a";
  if (!o.cores) o.cores = 16;
  // otherwise the machine's own daemon would start
  if (!o.mps_program) o.mps_program = "/not/installed";
  pt.now = 1000;
  return brim_lab_place_open(&o, &pt.place);
}

static inline void pt_open(brim_lab_place_options o) {
  assert_ok(pt_try_open(o));
  assert_ok(brim_lab_place_tick(pt.place, pt.now));
}

static inline void pt_close(void) {
  brim_lab_place_close(pt.place);
  brim_gpu_monitor_close(pt.monitor);
  memset(&pt, 0, sizeof pt);
}

static inline void pt_pass(int64_t ms) {
  pt.now += ms;
  assert_ok(brim_lab_place_tick(pt.place, pt.now));
}

// Index of the experiment in the queue that gets a place; -1 = none.
static inline int pt_choose(const brim_lab_place_want *wants, size_t count) {
  size_t chosen = 0;
  assert_ok(brim_lab_place_choose(pt.place, pt.now, wants, count, &chosen, &pt.slot));
  return chosen < count ? (int)chosen : -1;
}

static inline bool pt_start(const char *exp, int pid) {
  if (pt_choose(&(brim_lab_place_want){.exp = exp}, 1) < 0) return false;
  assert_ok(brim_lab_place_started(pt.place, exp, pid));
  return true;
}

static inline void pt_end(const char *exp, brim_lab_place_end end, brim_failure failure) {
  brim_lab_place_ended(pt.place, pt.now, exp, end, failure);
}

static inline brim_lab_place_gpu pt_gpu(size_t i) {
  brim_lab_place_gpu gpu;
  brim_lab_place_get(pt.place, i, &gpu);
  return gpu;
}

#define W(...) ((brim_lab_place_want){__VA_ARGS__})
#define pt_assert_state(i, expected) assert_int_equal(pt_gpu(i).state, BRIM_LAB_PLACE_##expected)
#define pt_assert_why(want, expected)                         \
  do {                                                        \
    char why_[BRIM_LAB_PLACE_TEXT];                           \
    brim_lab_place_why(pt.place, &(want), why_, sizeof why_); \
    assert_string_equal(why_, expected);                      \
  } while (0)

#endif  // BRIM_TESTS_LAB_PLACE_TEST_H_
