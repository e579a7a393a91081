// A block of memory for rollouts, on the CPU or on a GPU, and the tests' helpers for it.
#ifndef BRIM_TESTS_ENV_ROLLOUT_TEST_H_
#define BRIM_TESTS_ENV_ROLLOUT_TEST_H_

#include <math.h>

#include "cuda_extension.h"
#include "test.h"

#include "backend/backend.h"
#include "base/base.h"
#include "env/quadruped/quadruped.h"
#include "rl/rl_rollout.h"
#include "rl/rl_rollout_plan.h"

enum { FILTER = 1 + 2 * BRIM_QUADRUPED_OBS };  // doubles of layout.filter

static inline void robot_defaults(brim_rollout_shape *s, int32_t task) {
  brim_quadruped robot = {.task = task};
  brim_quadruped_row.defaults(0, &robot);
  memcpy(s->env.bytes, &robot, sizeof robot);
}

#define robot_set(shape, member, value)                            \
  do {                                                             \
    brim_quadruped robot_ = brim_quadruped_of((shape)->env.bytes); \
    robot_.member = value;                                         \
    memcpy((shape)->env.bytes, &robot_, sizeof robot_);            \
  } while (0)

static inline void assert_near_at(double got, double want, double within, const char *what,
                                  int line) {
  if (fabs(got - want) <= within) return;
  fail_msg("line %d: %s is %.9g, %.9g wanted within %.3g", line, what, got, want, within);
}
#define assert_near(got, want, within) \
  assert_near_at((double)(got), (double)(want), within, #got, __LINE__)

typedef struct ground {
  const brim_rollout_table *table;
  brim_registry *registry;  // NULL on the CPU
  brim_device *device;
  brim_rollout_where where;
  brim_rollout_shape shape;
  brim_rollout_layout at;
  void *block;
} ground;

static inline void ground_open_cpu(ground *g, int threads) {
  *g = (ground){.table = brim_rollout_cpu(), .where.threads = threads};
  assert_int_equal(g->table->abi, BRIM_ROLLOUT_ABI);
}

static inline bool ground_open_cuda(ground *g, const char *name) {
  cuda_extension e;
  *g = (ground){0};
  if (!cuda_extension_open(&e, name, BRIM_ROLLOUT_ABI)) return false;
  *g = (ground){.table = e.table, .registry = e.registry, .device = e.device};
  g->where.stream = g->device->stream;
  return true;
}

static inline void ground_clear(ground *g) {
  if (g->device) {
    brim_device_free(g->device, BRIM_BUFFER_DEVICE, g->block);
  } else {
    brim_free(g->block);
  }
  g->block = NULL;
}

static inline void ground_close(ground *g) {
  ground_clear(g);
  if (!g->device) return;
  brim_device_close(g->device);
  brim_registry_destroy(g->registry);
}

// A fresh block for a shape, filled with NaN before init.
static inline void ground_prepare(ground *g, const brim_rollout_shape *shape) {
  if (g->block) ground_clear(g);
  g->shape = *shape;
  assert_ok(g->table->layout(shape, &g->at));
  if (g->device) {
    assert_ok(brim_device_alloc(g->device, BRIM_BUFFER_DEVICE, g->at.bytes, &g->block));
    assert_ok(brim_device_fill(g->device, g->block, 0xFF, g->at.bytes));
  } else {
    g->block = brim_alloc(g->at.bytes);
    assert_non_null(g->block);
    memset(g->block, 0xFF, g->at.bytes);
  }
  assert_ok(g->table->init(&g->where, shape, g->block));
}

static inline void ground_get(ground *g, size_t from, void *to, size_t bytes) {
  if (!g->device) {
    memcpy(to, (char *)g->block + from, bytes);
    return;
  }
  assert_ok(brim_device_copy(g->device, to, (char *)g->block + from, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g->device));
}

static inline void ground_put(ground *g, size_t to, const void *from, size_t bytes) {
  if (!g->device) {
    memcpy((char *)g->block + to, from, bytes);
    return;
  }
  assert_ok(brim_device_copy(g->device, (char *)g->block + to, from, bytes, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(g->device));
}

// Runs all chunks of an iteration.
static inline void ground_run(ground *g, int64_t iteration, float noise, float shift) {
  for (int32_t d = 0; d < g->shape.num_dirs; d += g->shape.dir_chunk) {
    int32_t left = g->shape.num_dirs - d;
    brim_rollout_job job = {.iteration = iteration,
                            .first_dir = d,
                            .dirs = left < g->shape.dir_chunk ? left : g->shape.dir_chunk,
                            .noise_std = noise,
                            .shift = shift};
    assert_ok(g->table->run(&g->where, &g->shape, g->block, &job));
  }
}

static inline void ground_update(ground *g, int64_t iteration, int32_t top, float step_size) {
  assert_ok(g->table->update(&g->where, &g->shape, g->block, iteration, top, step_size));
}

// Evaluates, and returns the means of the episodes.
static inline void ground_episodes(ground *g, int32_t episodes, int32_t zero, uint64_t stream,
                                   brim_rollout_episode *list) {
  brim_rollout_eval j = {.episodes = episodes, .zero = zero, .stream = stream};
  assert_ok(g->table->evaluate(&g->where, &g->shape, g->block, &j));
  ground_get(g, g->at.episodes, list, (size_t)episodes * sizeof *list);
}

typedef struct outcome {
  int falls, truncated, diverged;
  double reward, distance, length;  // means
} outcome;

static inline outcome ground_evaluate(ground *g, int32_t episodes, int32_t zero, uint64_t stream,
                                      brim_rollout_episode *list) {
  brim_rollout_episode *e = list ? list : malloc((size_t)episodes * sizeof *e);
  assert_non_null(e);
  ground_episodes(g, episodes, zero, stream, e);
  float *far = malloc((size_t)episodes * sizeof *far);
  assert_non_null(far);
  ground_get(g, g->at.figures, far, (size_t)episodes * sizeof *far);
  outcome o = {0};
  for (int32_t i = 0; i < episodes; i++) {
    o.falls += e[i].outcome == 1;
    o.truncated += e[i].outcome == 0;
    o.diverged += e[i].outcome == 2;
    o.reward += (double)e[i].reward / episodes;
    o.distance += (double)far[i] / episodes;
    o.length += (double)e[i].length / episodes;
  }
  free(far);
  if (!list) free(e);
  return o;
}

// The CPU, and CUDA if there is a GPU: a group's setup and teardown.
typedef struct places {
  ground at[2];
  int count;
} places;

static inline int open_places_of(void **state, const char *name) {
  static places p;
  p.count = 1;
  ground_open_cpu(&p.at[0], 2);
  p.count += ground_open_cuda(&p.at[1], name);
  printf("places: cpu%s\n", p.count > 1 ? ", cuda" : " (no GPU here)");
  *state = &p;
  return 0;
}

static inline int open_places(void **state) {
  return open_places_of(state, BRIM_ROLLOUT_EXTENSION "quadruped");
}

static inline int close_places(void **state) {
  places *p = *state;
  for (int i = 0; i < p->count; i++) ground_close(&p->at[i]);
  return 0;
}

#define EACH_PLACE(g)                                             \
  for (int place = 0; place < ((places *)*state)->count; place++) \
    for (ground *g = &((places *)*state)->at[place]; g; g = NULL)

static inline brim_rollout_shape small_shape(void) {
  brim_rollout_shape s = {.row = &brim_quadruped_row,
                          .num_envs = 20,
                          .num_dirs = 6,
                          .dir_chunk = 6,
                          .episode_length = 40,
                          .filter = 1,
                          .eval_episodes = 1000,
                          .seed = 7};
  robot_defaults(&s, BRIM_QUADRUPED_STAND);
  return s;
}

#endif  // BRIM_TESTS_ENV_ROLLOUT_TEST_H_
