// A block of memory for collected rollouts, on the CPU or on a GPU, and the tests' helpers for it.
#ifndef BRIM_TESTS_ENV_COLLECT_TEST_H_
#define BRIM_TESTS_ENV_COLLECT_TEST_H_

#include "test.h"

#include "backend/backend.h"
#include "base/base.h"
#include "rl/rl_collect_plan.h"

#define COLLECT_PLUGIN BRIM_BUILD_DIR "/tests/plugins/libbrim_test_env.so"

// The environments of brim and of the tests' plug-in, and a GPU if there is one.
static struct {
  brim_registry *registry;
  brim_device *device;  // NULL = no GPU
} world;

static inline int open_world(void **state) {
  (void)state;
  assert_ok(brim_registry_create(&world.registry));
  assert_ok(brim_registry_load_folder(world.registry, BRIM_BUILD_DIR "/lib/brim"));
  assert_ok(brim_registry_load(world.registry, COLLECT_PLUGIN));
  if (brim_device_open(world.registry, "cuda", NULL, &world.device)) world.device = NULL;
  printf("places: cpu%s\n", world.device ? ", cuda" : " (no GPU here)");
  return 0;
}

static inline int close_world(void **state) {
  (void)state;
  if (world.device) brim_device_close(world.device);
  brim_registry_destroy(world.registry);
  return 0;
}

static inline const brim_env_row *row_of(const char *name) {
  char full[64];
  const brim_env_row *row = brim_env_find(name);
  if (row) return row;
  snprintf(full, sizeof full, BRIM_ENV_EXTENSION "%s", name);
  row = brim_registry_extension(world.registry, full);
  assert_non_null(row);
  return row;
}

// A device that collects rollouts, and a block on it.
typedef struct camp {
  const brim_collect_table *table;
  brim_device *device;  // NULL = the CPU
  brim_rollout_where where;
  brim_collect_shape shape;
  brim_collect_layout at;
  char *block;
} camp;

static inline camp camp_cpu(int threads) {
  return (camp){.table = brim_collect_cpu(), .where.threads = threads};
}

// The devices that collect an environment: one or two.
static inline int camps_of(const char *name, camp out[2]) {
  out[0] = camp_cpu(2);
  if (!world.device) return 1;
  char full[64];
  snprintf(full, sizeof full, BRIM_COLLECT_EXTENSION "%s", name);
  out[1] = (camp){.table = brim_registry_extension(world.registry, full),
                  .device = world.device,
                  .where.stream = world.device->stream};
  assert_non_null(out[1].table);
  assert_int_equal(out[1].table->abi, BRIM_COLLECT_ABI);
  return 2;
}

static inline void *camp_alloc(camp *g, size_t bytes) {
  void *out = NULL;
  if (g->device) {
    assert_ok(brim_device_alloc(g->device, BRIM_BUFFER_DEVICE, bytes, &out));
    assert_ok(brim_device_fill(g->device, out, 0xFF, bytes));
  } else {
    out = brim_alloc(bytes);
    assert_non_null(out);
    memset(out, 0xFF, bytes);
  }
  return out;
}

static inline void camp_free(camp *g, void *block) {
  if (g->device) {
    brim_device_free(g->device, BRIM_BUFFER_DEVICE, block);
  } else {
    brim_free(block);
  }
}

static inline void camp_get(camp *g, const void *from, void *to, size_t bytes) {
  if (!g->device) {
    memcpy(to, from, bytes);
    return;
  }
  assert_ok(brim_device_copy(g->device, to, from, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(g->device));
}

static inline void camp_put(camp *g, void *to, const void *from, size_t bytes) {
  if (!g->device) {
    memcpy(to, from, bytes);
    return;
  }
  assert_ok(brim_device_copy(g->device, to, from, bytes, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(g->device));
}

static inline void camp_clear(camp *g) {
  if (g->block) camp_free(g, g->block);
  g->block = NULL;
}

// A fresh block, filled with ones before reset.
static inline void camp_prepare(camp *g, const brim_collect_shape *shape) {
  camp_clear(g);
  g->shape = *shape;
  assert_ok(g->table->layout(shape, &g->at));
  g->block = camp_alloc(g, g->at.bytes);
  assert_ok(g->table->reset(&g->where, shape, g->block));
}

static inline void camp_begin(camp *g) {
  assert_ok(g->table->begin(&g->where, &g->shape, g->block));
}

static inline void camp_step(camp *g, int32_t t) {
  assert_ok(g->table->step(&g->where, &g->shape, g->block, t));
}

static inline void camp_choose(camp *g, int32_t t, int32_t rule) {
  assert_ok(g->table->choose(&g->where, &g->shape, g->block, t, rule));
}

static inline void camp_look(camp *g, const brim_collect_view *view) {
  assert_ok(g->table->look(&g->where, &g->shape, g->block, view));
}

// Makes whole rollouts with a rule.
static inline void camp_run(camp *g, int rollouts, int32_t rule) {
  for (int i = 0; i < rollouts; i++) {
    camp_begin(g);
    for (int32_t t = 0; t < g->shape.steps; t++) {
      camp_choose(g, t, rule);
      camp_step(g, t);
    }
  }
}

static inline brim_collect_tally camp_tally(camp *g, int32_t clear) {
  brim_collect_tally out;
  assert_ok(g->table->tally(&g->where, &g->shape, g->block, clear));
  camp_get(g, g->block + g->at.tally, &out, sizeof out);
  return out;
}

// Copies everything that a rollout defines in a block to host memory (malloc).
static inline char *camp_copy(camp *g) {
  char *out = malloc(g->at.bytes);
  assert_non_null(out);
  camp_get(g, g->block, out, g->at.bytes);
  return out;
}

static inline brim_collect_shape shape_of(const char *name, int32_t envs, int32_t steps) {
  brim_collect_shape s = {.row = row_of(name), .num_envs = envs, .steps = steps, .seed = 11};
  s.row->defaults(0, s.env.bytes);
  s.episode_length = s.row->length(0, s.env.bytes);
  return s;
}

// Sets a member of the environment's struct, which the test knows.
#define set_value(shape, type, member, value)             \
  do {                                                    \
    type values_;                                         \
    memcpy(&values_, (shape)->env.bytes, sizeof values_); \
    values_.member = value;                               \
    memcpy((shape)->env.bytes, &values_, sizeof values_); \
  } while (0)

#endif  // BRIM_TESTS_ENV_COLLECT_TEST_H_
