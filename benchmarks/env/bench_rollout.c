// Speed of ARS rollouts on the quadruped: environment steps per second (not physics steps), with robots that are
// pushed, fall and restart, from few environments to many, linear and MLP; and a whole iteration, rollouts and update,
// against the rollouts alone. Not a test: it asserts nothing.
//   bench_rollout [--device cpu|cuda] [--envs N] [--dirs N] [--chunk N] [--steps N] [--hidden H]
//                 [--task stand|walk] [--rk4] [--threads N] [--repeats N] [--json]
// Without --envs and --dirs: a list of sizes. --json: one object to a line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/base.h"
#include "env/quadruped/quadruped.h"
#include "rl/rl_rollout.h"

enum { MAX_REPEATS = 101 };

typedef struct options {
  const char *device;
  int32_t envs, dirs, chunk, steps, hidden, task, threads, repeats;
  bool rk4, json;
} options;

typedef struct bench {
  const options *o;
  const brim_rollout_table *table;
  brim_registry *registry;
  brim_device *device;  // NULL: the CPU
  brim_rollout_where where;
} bench;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static brim_status bench_open(bench *b) {
  b->where.threads = b->o->threads > 0 ? b->o->threads : brim_cpu_count();
  if (strcmp(b->o->device, "cpu") == 0) {
    b->table = brim_rollout_cpu();
    return BRIM_OK;
  }
  BRIM_TRY(brim_registry_create(&b->registry));
  BRIM_TRY(brim_registry_load_default(b->registry));
  BRIM_TRY(brim_device_open(b->registry, b->o->device, NULL, &b->device));
  b->table = brim_registry_extension(b->registry, BRIM_ROLLOUT_EXTENSION "quadruped");
  if (!b->table || b->table->abi != BRIM_ROLLOUT_ABI) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "device %s has no extension " BRIM_ROLLOUT_EXTENSION "quadruped",
                     b->o->device);
  }
  b->where.stream = b->device->stream;
  return BRIM_OK;
}

static void bench_close(bench *b) {
  if (b->device) brim_device_close(b->device);
  if (b->registry) brim_registry_destroy(b->registry);
}

// Seconds of an iteration: rollouts, and with `update` the update after them.
static brim_status iterate(bench *b, const brim_rollout_shape *s, void *block, int64_t iteration,
                           bool update, double *seconds) {
  brim_time from = brim_clock_now();
  for (int32_t d = 0; d < s->num_dirs; d += s->dir_chunk) {
    int32_t left = s->num_dirs - d;
    brim_rollout_job job = {.iteration = iteration,
                            .first_dir = d,
                            .dirs = left < s->dir_chunk ? left : s->dir_chunk,
                            .noise_std = 0.025f};
    BRIM_TRY(b->table->run(&b->where, s, block, &job));
  }
  if (update) BRIM_TRY(b->table->update(&b->where, s, block, iteration, s->num_dirs / 2, 0.015f));
  if (b->device) BRIM_TRY(brim_device_sync(b->device));
  *seconds = (double)brim_time_since_ns(from, brim_clock_now()) * 1e-9;
  return BRIM_OK;
}

static void report(const bench *b, const brim_rollout_shape *s, const double *run,
                   const double *whole, size_t bytes) {
  double steps = (double)s->num_envs * s->num_dirs * s->episode_length;
  double fast = steps / run[0], all = steps / whole[0], low = steps / run[1];
  const int32_t rk4 = brim_quadruped_of(s->env.bytes).rk4;
  if (b->o->json) {
    printf(
        "{\"device\": \"%s\", \"envs\": %d, \"dirs\": %d, \"chunk\": %d, \"total\": %lld, "
        "\"hidden\": %d, \"rk4\": %d, \"steps\": %d, \"run_s\": %.6g, \"run_slowest_s\": %.6g, "
        "\"iteration_s\": %.6g, \"steps_per_s\": %.6g, \"iteration_steps_per_s\": %.6g, "
        "\"bytes\": %zu}\n",
        b->o->device, s->num_envs, s->num_dirs, s->dir_chunk, (long long)s->num_envs * s->num_dirs,
        s->hidden, rk4, s->episode_length, run[0], run[1], whole[0], fast, all, bytes);
  } else {
    printf(
        "%6d x %5d = %8lld  %-8s %s  %10.3f M steps/s (slowest %.3f)  with update %10.3f "
        "(%.1f %%)  %.1f MB\n",
        s->num_envs, s->num_dirs, (long long)s->num_envs * s->num_dirs,
        s->hidden ? "mlp" : "linear", rk4 ? "rk4  " : "euler", fast * 1e-6, low * 1e-6, all * 1e-6,
        100 * all / fast, (double)bytes * 1e-6);
  }
  fflush(stdout);
}

static brim_status measure(bench *b, int32_t envs, int32_t dirs, int32_t hidden) {
  const options *o = b->o;
  brim_rollout_shape s = {.row = &brim_quadruped_row,
                          .hidden = hidden,
                          .num_envs = envs,
                          .num_dirs = dirs,
                          .dir_chunk = o->chunk > 0 && o->chunk < dirs ? o->chunk : dirs,
                          .episode_length = o->steps,
                          .filter = 1,
                          .seed = 1};
  brim_quadruped robot = {.task = o->task};
  brim_quadruped_row.defaults(0, &robot);
  robot.rk4 = o->rk4;
  memcpy(s.env.bytes, &robot, sizeof robot);
  brim_rollout_layout at;
  BRIM_TRY(b->table->layout(&s, &at));
  void *block = NULL;
  if (b->device) {
    BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_DEVICE, at.bytes, &block));
  } else {
    block = brim_alloc(at.bytes);
    if (!block) return brim_fail(BRIM_ENOMEM, "no memory for a block of %zu bytes", at.bytes);
  }
  double run[MAX_REPEATS], whole[MAX_REPEATS], seconds;
  brim_status status = b->table->init(&b->where, &s, block);
  // Two iterations first, so that clocks rise and the filter has data.
  for (int i = 0; !status && i < 2; i++) status = iterate(b, &s, block, i, true, &seconds);
  for (int i = 0; !status && i < o->repeats; i++) {
    status = iterate(b, &s, block, 2 + i, false, &run[i]);
    if (!status) status = iterate(b, &s, block, 2 + i, true, &whole[i]);
  }
  if (!status) {
    double middle[2] = {median(run, o->repeats), run[o->repeats - 1]};
    double both = median(whole, o->repeats);
    report(b, &s, middle, &both, at.bytes);
  }
  if (b->device) {
    brim_device_free(b->device, BRIM_BUFFER_DEVICE, block);
  } else {
    brim_free(block);
  }
  return status;
}

static brim_status measure_all(bench *b) {
  static const int32_t cpu[][2] = {{16, 8}, {64, 16}};
  static const int32_t cuda[][2] = {{16, 16},  {64, 16},   {64, 64},    {256, 64},
                                    {512, 64}, {1024, 64}, {1024, 128}, {1024, 256}};
  if (b->o->envs) return measure(b, b->o->envs, b->o->dirs, b->o->hidden < 0 ? 0 : b->o->hidden);
  int rows = b->device ? (int)(sizeof cuda / sizeof *cuda) : (int)(sizeof cpu / sizeof *cpu);
  for (int mlp = 0; mlp < 2; mlp++) {
    if (b->o->hidden >= 0 && mlp != (b->o->hidden > 0)) continue;
    for (int i = 0; i < rows; i++) {
      const int32_t *size = b->device ? cuda[i] : cpu[i];
      int32_t hidden = !mlp ? 0 : b->o->hidden > 0 ? b->o->hidden : 256;
      BRIM_TRY(measure(b, size[0], size[1], hidden));
    }
  }
  return BRIM_OK;
}

static bool number(const char *text, int32_t *out) {
  char *end;
  long v = strtol(text, &end, 10);
  *out = (int32_t)v;
  return *text && !*end && v >= 0 && v <= 1 << 24;
}

static int usage(void) {
  fprintf(stderr,
          "bench_rollout [--device cpu|cuda] [--envs N] [--dirs N] [--chunk N] [--steps N]\n"
          "              [--hidden H] [--task stand|walk] [--rk4] [--threads N] [--repeats N] "
          "[--json]\n");
  return 2;
}

int main(int argc, char **argv) {
  options o = {.device = "cpu", .hidden = -1, .steps = 200, .repeats = 5, .dirs = 64};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
    struct {
      const char *name;
      int32_t *to;
    } numbers[] = {{"--envs", &o.envs},      {"--dirs", &o.dirs},     {"--chunk", &o.chunk},
                   {"--steps", &o.steps},    {"--hidden", &o.hidden}, {"--threads", &o.threads},
                   {"--repeats", &o.repeats}};
    bool known = false;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      if (strcmp(a, numbers[k].name) != 0) continue;
      known = number(v, numbers[k].to);
      i++;
    }
    if (strcmp(a, "--device") == 0 && *v) {
      o.device = v;
      known = true;
      i++;
    } else if (strcmp(a, "--task") == 0 && (strcmp(v, "stand") == 0 || strcmp(v, "walk") == 0)) {
      o.task = strcmp(v, "walk") == 0 ? BRIM_QUADRUPED_WALK : BRIM_QUADRUPED_STAND;
      known = true;
      i++;
    } else if (strcmp(a, "--rk4") == 0) {
      o.rk4 = known = true;
    } else if (strcmp(a, "--json") == 0) {
      o.json = known = true;
    }
    if (!known) return usage();
  }
  if (o.repeats < 1 || o.repeats > MAX_REPEATS) return usage();
  bench b = {.o = &o};
  brim_status status = bench_open(&b);
  if (!status) status = measure_all(&b);
  if (status) fprintf(stderr, "bench_rollout: %s\n", brim_status_detail());
  bench_close(&b);
  return status ? 1 : 0;
}
