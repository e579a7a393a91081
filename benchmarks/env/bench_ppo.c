// Time of PPO's calls between a rollout and the networks, with the bytes they have to move: actions of a step,
// advantages of a rollout, rows and losses of a minibatch. Not a test: it asserts nothing.
//   bench_ppo [--device cpu|cuda] [--envs N] [--agents N] [--steps N] [--act N] [--rewards N]
//             [--minibatches N] [--type f32|bf16|f16] [--mask] [--threads N] [--repeats N] [--calls N]
// The median of --repeats, each of --calls calls in a row.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/base.h"
#include "hd/hd_philox.h"
#include "rl/rl_ppo.h"

enum { MAX_REPEATS = 101, MAX_GIVEN = 32 };

typedef struct options {
  const char *device, *type;
  int32_t envs, agents, steps, act, rewards, minibatches, threads, repeats, calls;
  bool mask;
} options;

typedef struct bench {
  const options *o;
  const brim_ppo_table *table;
  brim_registry *registry;
  brim_device *device;  // NULL: the CPU
  brim_rollout_where where;
  brim_dtype dtype;
  brim_ppo_shape shape;
  void *given[MAX_GIVEN];
  int count;
  brim_ppo_sample sample;
  brim_ppo_advantages advantages;
  brim_ppo_rows rows;
  brim_ppo_losses losses;
} bench;

static brim_status bench_open(bench *b) {
  b->where.threads = b->o->threads > 0 ? b->o->threads : brim_cpu_count();
  if (strcmp(b->o->device, "cpu") == 0) {
    b->table = brim_ppo_cpu();
    return brim_pool_create(b->where.threads, &b->where.pool);
  }
  BRIM_TRY(brim_registry_create(&b->registry));
  BRIM_TRY(brim_registry_load_default(b->registry));
  BRIM_TRY(brim_device_open(b->registry, b->o->device, NULL, &b->device));
  b->table = brim_registry_extension(b->registry, BRIM_PPO_EXTENSION);
  if (!b->table || b->table->abi != BRIM_PPO_ABI) {
    return brim_fail(BRIM_EUNSUPPORTED, "device %s has no extension " BRIM_PPO_EXTENSION,
                     b->o->device);
  }
  b->where.stream = b->device->stream;
  return BRIM_OK;
}

static void bench_close(bench *b) {
  while (b->count) {
    void *last = b->given[--b->count];
    if (b->device) {
      brim_device_free(b->device, BRIM_BUFFER_DEVICE, last);
    } else {
      brim_free(last);
    }
  }
  if (b->where.pool) brim_pool_destroy(b->where.pool);
  if (b->device) brim_device_close(b->device);
  if (b->registry) brim_registry_destroy(b->registry);
}

// Memory on the device: a copy of `from`, or zeros.
static brim_status give(bench *b, const void *from, size_t bytes, void *out) {
  void *to = NULL;
  if (b->device) {
    BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_DEVICE, bytes, &to));
    BRIM_TRY(from ? brim_device_copy(b->device, to, from, bytes, BRIM_COPY_H2D)
                  : brim_device_fill(b->device, to, 0, bytes));
    BRIM_TRY(brim_device_sync(b->device));
  } else {
    to = brim_alloc(bytes);
    if (!to) return brim_fail(BRIM_ENOMEM, "no memory for %zu bytes", bytes);
    if (from) {
      memcpy(to, from, bytes);
    } else {
      memset(to, 0, bytes);
    }
  }
  b->given[b->count++] = to;
  memcpy(out, &to, sizeof to);
  return BRIM_OK;
}

// Small numbers of the type: random high bytes with moderate exponents.
static brim_status give_numbers(bench *b, brim_dtype type, int64_t rows, int64_t width,
                                brim_tensor *out) {
  const size_t count = (size_t)(rows * width), size = brim_dtype_size(type);
  unsigned char *host = malloc(count * size);
  if (!host) return brim_fail(BRIM_ENOMEM, "no memory for %zu bytes", count * size);
  for (size_t i = 0; i < count; i++) {
    const uint32_t bits = brim_philox(1, 0, i).v[0];
    const float x = (float)(bits >> 8) * (1.0f / 8388608.0f) - 1.0f;
    uint32_t word;
    memcpy(&word, &x, 4);
    const uint16_t half =
        type == BRIM_BF16 ? (uint16_t)(word >> 16) : (uint16_t)((bits >> 16 & 0x8fff) | 0x3000);
    if (size == 4) {
      memcpy(host + 4 * i, &x, 4);
    } else {
      memcpy(host + 2 * i, &half, 2);
    }
  }
  const int64_t dim[2] = {rows, width};
  void *data;
  brim_status status = give(b, host, count * size, &data);
  free(host);
  if (!status) *out = brim_tensor_make(data, type, 2, dim);
  return status;
}

static brim_status give_net(bench *b, int64_t rows, int64_t width, brim_ppo_net *out) {
  double state[BRIM_STATE_COUNT] = {0};
  state[BRIM_STATE_ROWS] = (double)rows;
  state[BRIM_STATE_GRAD_SCALE] = 1.0 / (double)rows;
  state[BRIM_STATE_LOSS_SCALE] = 1;
  BRIM_TRY(give_numbers(b, b->dtype, rows, width, &out->output));
  BRIM_TRY(give_numbers(b, b->dtype, rows, width, &out->gradient));
  return give(b, state, sizeof state, &out->state);
}

static brim_status prepare_rollout(bench *b) {
  const brim_ppo_shape *s = &b->shape;
  const int64_t rows = (int64_t)s->steps * s->envs, numbers = rows * s->rewards;
  brim_ppo_advantages *a = &b->advantages;
  brim_tensor reward;
  int8_t *end = malloc((size_t)rows);
  if (!end) return brim_fail(BRIM_ENOMEM, "no memory for %lld rows", (long long)rows);
  for (int64_t i = 0; i < rows; i++) end[i] = i % 200 ? BRIM_ENV_RUNNING : BRIM_ENV_TERMINATED;
  brim_status status = give(b, end, (size_t)rows, &a->end);
  free(end);
  BRIM_TRY(status);
  BRIM_TRY(give(b, NULL, (size_t)rows * sizeof(int32_t), &a->final));
  BRIM_TRY(give_numbers(b, BRIM_F32, numbers, 1, &reward));
  a->reward = reward.data;
  BRIM_TRY(
      give_numbers(b, b->dtype, rows + (1 + s->finals) * (int64_t)s->envs, s->rewards, &a->values));
  BRIM_TRY(give(b, NULL, (size_t)numbers * sizeof(float), &a->adv));
  BRIM_TRY(give(b, NULL, (size_t)numbers * sizeof(float), &a->ret));
  BRIM_TRY(give(b, NULL, (size_t)numbers * sizeof(float), &a->old));
  BRIM_TRY(give(b, NULL, sizeof *a->norm, &a->norm));
  BRIM_TRY(give(b, NULL, sizeof *a->moments, &a->moments));
  size_t scratch;
  BRIM_TRY(b->table->scratch(s, &scratch));
  BRIM_TRY(give(b, NULL, scratch, &a->scratch));
  a->gamma = 0.99f;
  a->lambda = 0.95f;
  a->beta = 0.99f;
  return BRIM_OK;
}

static brim_status prepare(bench *b) {
  const brim_ppo_shape *s = &b->shape;
  const int64_t each = (int64_t)s->envs * s->agents, total = (int64_t)s->steps * s->envs;
  brim_ppo_sample *d = &b->sample;
  BRIM_TRY(prepare_rollout(b));
  BRIM_TRY(give_numbers(b, b->dtype, each, s->act, &d->outputs));
  BRIM_TRY(give(b, NULL, (size_t)(total * s->agents) * sizeof(int32_t), &d->action));
  BRIM_TRY(give(b, NULL, (size_t)(total * s->agents) * sizeof(float), &d->logp));
  BRIM_TRY(give(b, NULL, sizeof *d->bad, &d->bad));
  BRIM_TRY(give(b, NULL, sizeof *d->clock, &d->clock));
  d->rows = each;
  b->rows = (brim_ppo_rows){.clock = d->clock, .total = total, .count = s->batch};
  BRIM_TRY(give(b, NULL, (size_t)s->batch * sizeof(int32_t), &b->rows.rows));
  b->losses = (brim_ppo_losses){.rows = b->rows.rows,
                                .action = d->action,
                                .logp = d->logp,
                                .adv = b->advantages.adv,
                                .ret = b->advantages.ret,
                                .old = b->advantages.old,
                                .norm = b->advantages.norm,
                                .moments = b->advantages.moments,
                                .clip = 0.2f,
                                .value_clip = 0.2f,
                                .value_coef = 0.5f,
                                .entropy = 0.01f,
                                .scratch = b->advantages.scratch};
  BRIM_TRY(give_net(b, s->batch * s->agents, s->act, &b->losses.actor));
  BRIM_TRY(give_net(b, s->batch, s->rewards, &b->losses.critic));
  BRIM_TRY(give(b, NULL, BRIM_PPO_METRIC_COUNT * sizeof(double), &b->losses.metrics));
  if (!b->o->mask) return BRIM_OK;
  const size_t masks = (size_t)(s->batch * s->agents > each ? s->batch * s->agents : each);
  uint64_t *all = malloc(masks * sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for %zu masks", masks);
  memset(all, 0xFF, masks * sizeof *all);
  brim_status status = give(b, all, masks * sizeof *all, &d->mask);
  free(all);
  b->losses.mask = d->mask;
  return status;
}

//---------------------------------- calls ----------------------------------

static brim_status run_sample(bench *b) {
  return b->table->sample(&b->where, &b->shape, &b->sample);
}
static brim_status run_advantages(bench *b) {
  return b->table->advantages(&b->where, &b->shape, &b->advantages);
}
static brim_status run_rows(bench *b) { return b->table->rows(&b->where, &b->rows); }
static brim_status run_losses(bench *b) {
  return b->table->losses(&b->where, &b->shape, &b->losses);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static brim_status measure(bench *b, const char *name, brim_status (*run)(bench *), double rows,
                           double bytes) {
  double times[MAX_REPEATS];
  for (int i = -1; i < b->o->repeats; i++) {  // the first is not counted
    const brim_time from = brim_clock_now();
    for (int k = 0; k < b->o->calls; k++) BRIM_TRY(run(b));
    if (b->device) BRIM_TRY(brim_device_sync(b->device));
    if (i >= 0) {
      times[i] = (double)brim_time_since_ns(from, brim_clock_now()) * 1e-3 / b->o->calls;
    }
  }
  qsort(times, (size_t)b->o->repeats, sizeof *times, by_value);
  const double us = times[b->o->repeats / 2];
  printf("%-10s %12.0f rows %10.2f us (slowest %.2f)  %8.2f MB  %8.1f GB/s\n", name, rows, us,
         times[b->o->repeats - 1], bytes * 1e-6, bytes / us * 1e-3);
  fflush(stdout);
  return BRIM_OK;
}

static brim_status measure_all(bench *b) {
  const options *o = b->o;
  if (strcmp(o->type, "bf16") == 0) b->dtype = BRIM_BF16;
  if (strcmp(o->type, "f16") == 0) b->dtype = BRIM_F16;
  const int64_t total = (int64_t)o->steps * o->envs;
  b->shape = (brim_ppo_shape){.steps = o->steps,
                              .envs = o->envs,
                              .agents = o->agents,
                              .act = o->act,
                              .rewards = o->rewards,
                              .finals = 1,
                              .batch = total / o->minibatches};
  BRIM_TRY(prepare(b));
  const double size = (double)brim_dtype_size(b->dtype), act = o->act, rewards = o->rewards;
  const double mask = o->mask ? 8 : 0, batch = (double)b->shape.batch, agents = o->agents;
  const double drawn = (double)o->envs * agents, numbers = (double)total * rewards;
  BRIM_TRY(measure(b, "sample", run_sample, drawn, drawn * (act * size + mask + 8)));
  BRIM_TRY(measure(b, "advantages", run_advantages, numbers,
                   numbers * (4 + size + 12 + 8) + (double)total));
  BRIM_TRY(measure(b, "rows", run_rows, batch, batch * 4));
  return measure(
      b, "losses", run_losses, batch * agents,
      batch * agents * (2 * act * size + mask + 8) + batch * (8 + rewards * (12 + 2 * size)));
}

//---------------------------------- options ----------------------------------

static bool number(const char *text, int32_t *out) {
  char *end;
  long v = strtol(text, &end, 10);
  *out = (int32_t)v;
  return *text && !*end && v >= 1 && v <= 1 << 24;
}

static int usage(void) {
  fprintf(stderr,
          "bench_ppo [--device cpu|cuda] [--envs N] [--agents N] [--steps N] [--act N]\n"
          "          [--rewards N] [--minibatches N] [--type f32|bf16|f16] [--mask]\n"
          "          [--threads N] [--repeats N] [--calls N]\n");
  return 2;
}

static bool parse(int argc, char **argv, options *o) {
  const struct {
    const char *name;
    int32_t *to;
  } numbers[] = {
      {"--envs", &o->envs},       {"--agents", &o->agents},   {"--steps", &o->steps},
      {"--act", &o->act},         {"--rewards", &o->rewards}, {"--minibatches", &o->minibatches},
      {"--threads", &o->threads}, {"--repeats", &o->repeats}, {"--calls", &o->calls}};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
    bool known = strcmp(a, "--mask") == 0;
    if (known) {
      o->mask = true;
      continue;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      if (strcmp(a, numbers[k].name) == 0) known = number(v, numbers[k].to);
    }
    if (strcmp(a, "--device") == 0 || strcmp(a, "--type") == 0) {
      *(a[2] == 'd' ? &o->device : &o->type) = v;
      known = *v;
    }
    if (!known) return false;
    i++;
  }
  const bool type =
      strcmp(o->type, "f32") == 0 || strcmp(o->type, "bf16") == 0 || strcmp(o->type, "f16") == 0;
  return type && o->repeats <= MAX_REPEATS && o->minibatches <= (int64_t)o->steps * o->envs;
}

int main(int argc, char **argv) {
  options o = {.device = "cpu",
               .type = "f32",
               .envs = 16384,
               .agents = 10,
               .steps = 64,
               .act = 5,
               .rewards = 1,
               .minibatches = 4,
               .repeats = 5,
               .calls = 10};
  if (!parse(argc, argv, &o)) return usage();
  bench b = {.o = &o};
  brim_status status = bench_open(&b);
  if (!status) status = measure_all(&b);
  if (status) fprintf(stderr, "bench_ppo: %s\n", brim_status_detail());
  bench_close(&b);
  return status ? 1 : 0;
}
