// A small ars run, which tests of its workload share.
#ifndef BRIM_TESTS_ARS_FIXTURE_H_
#define BRIM_TESTS_ARS_FIXTURE_H_

#include "env/quadruped/quadruped.h"
#include "same_file.h"
#include "workload/ars/ars_int.h"
#include "workload/fixture.h"

static inline brim_quadruped robot_of(const brim_rollout_shape *s) {
  return brim_quadruped_of(s->env.bytes);
}

static const char yaml[] =
    "workload: ars\n"
    "env: quadruped(task=stand, push_speed=2, push_every=5)\n"
    "ars: {num_envs: 8, num_dirs: 4, dir_chunk: 4, top_dirs: 2, iterations: 5, eval_interval: 2,\n"
    "      eval_episodes: 6, episode_length: 20}\n"
    "seed: 3\n";

static inline void open_with(fixture *f, const char *one, const char *two) {
  const char *const overrides[] = {one, two};
  assert_ok(fixture_open(f, "ref", yaml, overrides, one ? two ? 2 : 1 : 0));
  assert_ok(fixture_configure(f));
}

static inline void steps(fixture *f, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    assert_ok(f->work->table->step(f->work->state, NULL, &info));
  }
}

// The sums from which the figures are computed.
static inline brim_ars_returns episodes_of(brim_work_metrics metrics) {
  return brim_returns_unpack(metrics.sums);
}

static inline void save(fixture *f, const char *path) {
  assert_ok(f->work->table->save(f->work->state, path, NULL, false));
}

static inline void refuses(fixture *f, const char *path, const char *words) {
  save(f, "untouched");
  assert_true(f->work->table->load(f->work->state, path, NULL) != BRIM_OK);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s", brim_status_detail());
  save(f, "still");
  assert_same_file("untouched", "still");
}

#endif  // BRIM_TESTS_ARS_FIXTURE_H_
