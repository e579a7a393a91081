// The devices of the PPO tests: the CPU, and CUDA if there is a GPU. Tests pass host memory and get results
// back.
#ifndef BRIM_TESTS_ENV_PPO_TEST_H_
#define BRIM_TESTS_ENV_PPO_TEST_H_

#include <math.h>

#include "cuda_extension.h"
#include "test.h"

#include "backend/backend.h"
#include "backend/backend_half.h"
#include "base/base.h"
#include "rl/rl_ppo.h"
#include "rl/rl_ppo_row.h"

enum { PPO_GIVEN = 128 };

typedef struct ppo_place {
  const brim_ppo_table *table;
  brim_registry *registry;  // NULL on the CPU
  brim_device *device;
  brim_rollout_where where;
  void *given[PPO_GIVEN];
  int count;
} ppo_place;

typedef struct ppo_places {
  ppo_place at[3];
  int count;
} ppo_places;

// Memory on the device, a copy of `from`; NULL = all bits set, so that unwritten values are NaN.
static inline void *ppo_give(ppo_place *p, const void *from, size_t bytes) {
  assert_true(p->count < PPO_GIVEN);
  void *to;
  if (p->device) {
    assert_ok(brim_device_alloc(p->device, BRIM_BUFFER_DEVICE, bytes + 1, &to));
    if (from) {
      assert_ok(brim_device_copy(p->device, to, from, bytes, BRIM_COPY_H2D));
    } else {
      assert_ok(brim_device_fill(p->device, to, 0xFF, bytes));
    }
    assert_ok(brim_device_sync(p->device));
  } else {
    to = brim_alloc(bytes + 1);
    assert_non_null(to);
    if (from)
      memcpy(to, from, bytes);
    else
      memset(to, 0xFF, bytes);
  }
  p->given[p->count++] = to;
  return to;
}

static inline void ppo_take(ppo_place *p, void *to, const void *from, size_t bytes) {
  if (!p->device) {
    memcpy(to, from, bytes);
    return;
  }
  assert_ok(brim_device_copy(p->device, to, from, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(p->device));
}

// Frees all memory from ppo_give.
static inline void ppo_clear(ppo_place *p) {
  while (p->count) {
    void *last = p->given[--p->count];
    if (p->device)
      brim_device_free(p->device, BRIM_BUFFER_DEVICE, last);
    else
      brim_free(last);
  }
}

static inline void *ppo_scratch(ppo_place *p, const brim_ppo_shape *shape) {
  size_t bytes;
  assert_ok(p->table->scratch(shape, &bytes));
  return ppo_give(p, NULL, bytes);
}

static inline bool ppo_open_cuda(ppo_place *p) {
  cuda_extension e;
  *p = (ppo_place){0};
  if (!cuda_extension_open(&e, BRIM_PPO_EXTENSION, BRIM_PPO_ABI)) return false;
  *p = (ppo_place){.table = e.table, .registry = e.registry, .device = e.device};
  p->where.stream = e.device->stream;
  return true;
}

// The places: one thread, three threads, and CUDA.
static inline int ppo_open_places(void **state) {
  static ppo_places places;
  for (int i = 0; i < 2; i++) {
    places.at[i] = (ppo_place){.table = brim_ppo_cpu(), .where.threads = i ? 3 : 1};
    assert_int_equal(places.at[i].table->abi, BRIM_PPO_ABI);
  }
  places.count = 2;
  places.count += ppo_open_cuda(&places.at[2]);
  printf("places: cpu%s\n", places.count > 2 ? ", cuda" : " (no GPU here)");
  *state = &places;
  return 0;
}

static inline int ppo_close_places(void **state) {
  ppo_places *places = *state;
  for (int i = 0; i < places->count; i++) {
    ppo_place *p = &places->at[i];
    ppo_clear(p);
    if (!p->device) continue;
    brim_device_close(p->device);
    brim_registry_destroy(p->registry);
  }
  return 0;
}

#define EACH_PPO_PLACE(p)                                             \
  for (int place = 0; place < ((ppo_places *)*state)->count; place++) \
    for (ppo_place *p = &((ppo_places *)*state)->at[place]; p; p = NULL)

static inline void assert_close_at(double got, double want, double within, const char *what,
                                   int line) {
  if (fabs(got - want) <= within) return;
  fail_msg("line %d: %s is %.9g, %.9g wanted within %.3g", line, what, got, want, within);
}
#define assert_close(got, want, within) \
  assert_close_at((double)(got), (double)(want), within, #got, __LINE__)

// Random numbers for cases: in [0, 1), and nearly normal.
static inline double ppo_uniform(uint64_t n) {
  return (double)brim_rng_uniform(brim_philox(brim_rng_key(5, BRIM_RNG_TEST), 0, n).v[0]);
}

static inline double ppo_normal(uint64_t n) {
  double sum = -6;
  for (uint64_t i = 0; i < 12; i++) sum += ppo_uniform(12 * n + i + (1ull << 40));
  return sum;
}

// A float rounded to a type of activations, and a matrix of them.
static inline float ppo_rounded(brim_dtype type, float x) {
  if (type == BRIM_BF16) return brim_bf16_to_f32(brim_f32_to_bf16(x));
  return type == BRIM_F16 ? brim_f16_to_f32(brim_f32_to_f16(x)) : x;
}

static inline brim_tensor ppo_give_tensor(ppo_place *p, brim_dtype type, int64_t rows,
                                          int64_t width, const float *from) {
  const size_t count = (size_t)(rows * width), each = type == BRIM_F32 ? 4 : 2;
  const int64_t dim[2] = {rows, width};
  if (!from) return brim_tensor_make(ppo_give(p, NULL, count * each), type, 2, dim);
  char *packed = malloc(count * each + 1);
  assert_non_null(packed);
  for (size_t i = 0; i < count; i++) {
    const uint16_t half = type == BRIM_BF16 ? brim_f32_to_bf16(from[i]) : brim_f32_to_f16(from[i]);
    if (type == BRIM_F32)
      memcpy(packed + 4 * i, &from[i], 4);
    else
      memcpy(packed + 2 * i, &half, 2);
  }
  void *data = ppo_give(p, packed, count * each);
  free(packed);
  return brim_tensor_make(data, type, 2, dim);
}

static inline void ppo_take_tensor(ppo_place *p, const brim_tensor *t, float *to) {
  const size_t count = (size_t)(t->dim[0] * t->dim[1]), each = t->dtype == BRIM_F32 ? 4 : 2;
  char *packed = malloc(count * each + 1);
  assert_non_null(packed);
  ppo_take(p, packed, t->data, count * each);
  for (size_t i = 0; i < count; i++) {
    uint16_t half = 0;
    if (t->dtype == BRIM_F32)
      memcpy(&to[i], packed + 4 * i, 4);
    else
      memcpy(&half, packed + 2 * i, 2);
    if (t->dtype == BRIM_BF16) to[i] = brim_bf16_to_f32(half);
    if (t->dtype == BRIM_F16) to[i] = brim_f16_to_f32(half);
  }
  free(packed);
}

#endif  // BRIM_TESTS_ENV_PPO_TEST_H_
