// Speed of collecting rollouts: a step of all environments, a random choice of actions and the writing of observations,
// each timed alone. On a GPU the calls of a rollout are recorded and launched at once, so launches are not measured.
// Not a test: it asserts nothing.
//   bench_collect [--device cpu|cuda] [--env NAME] [--set ARG=VALUE]... [--envs N] [--steps T]
//                 [--dtype f32|bf16|f16] [--threads N] [--repeats N] [--json]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/base.h"
#include "rl/rl_collect.h"

enum { MAX_REPEATS = 101, MAX_SETS = 16 };

// look: an actor's inputs of a step, and masks, as in a rollout; values: a critic's inputs of a step; list: both for a
// minibatch.
typedef enum phase { BEGIN, CHOOSE, STEP, LOOK, VALUES, LOOK_LIST, TALLY, PHASES } phase;
static const char *const phase_names[PHASES] = {"begin",  "choose", "step", "look",
                                                "values", "list",   "tally"};

typedef struct options {
  const char *device, *env, *sets[MAX_SETS];
  int32_t set_count, envs, steps, dtype, threads, repeats;
  bool json;
} options;

typedef struct bench {
  const options *o;
  const brim_collect_table *table;
  brim_registry *registry;
  brim_device *device;  // NULL: the CPU
  brim_rollout_where where;
  brim_collect_shape shape;
  brim_collect_layout at;
  brim_collect_view view;
  void *block;
  int32_t *rows;  // a random quarter of the rollout's rows
} bench;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

// Writes ARG=VALUE into the environment's values.
static brim_status set_arg(bench *b, const char *text) {
  const brim_env_row *row = b->shape.row;
  const char *equal = strchr(text, '=');
  for (size_t i = 0; equal && i < row->arg_count; i++) {
    const brim_env_arg *a = &row->args[i];
    const size_t length = (size_t)(equal - text);
    if (strlen(a->name) != length || strncmp(a->name, text, length) != 0) continue;
    int32_t whole = (int32_t)strtol(equal + 1, NULL, 10);
    const float real = strtof(equal + 1, NULL);
    if (a->type == BRIM_ENV_ARG_CHOICE) whole = brim_env_choice(a->choices, equal + 1);
    if (whole < 0 && a->type == BRIM_ENV_ARG_CHOICE) break;
    const void *value = a->type == BRIM_ENV_ARG_FLOAT ? (const void *)&real : (const void *)&whole;
    memcpy(b->shape.env.bytes + a->offset, value, 4);
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL, "bench_collect: '%s' is no argument of %s", text, row->name);
}

// Sets the arguments that decide defaults, then the defaults, then all arguments.
static brim_status read_env(bench *b) {
  const options *o = b->o;
  b->shape.row = brim_env_find(o->env);
  if (!b->shape.row) {
    return brim_fail(BRIM_EINVAL, "bench_collect: no environment '%s'", o->env);
  }
  for (int i = 0; i < 2; i++) {
    for (int32_t k = 0; k < o->set_count; k++) BRIM_TRY(set_arg(b, o->sets[k]));
    if (i == 0) b->shape.row->defaults(0, b->shape.env.bytes);
  }
  b->shape.num_envs = o->envs;
  b->shape.steps = o->steps;
  b->shape.episode_length = b->shape.row->length(0, b->shape.env.bytes);
  b->shape.seed = 1;
  return BRIM_OK;
}

static brim_status allocate(bench *b, size_t bytes, void *out) {
  void *memory = NULL;
  if (b->device) {
    BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_DEVICE, bytes, &memory));
  } else {
    memory = brim_alloc(bytes);
    if (!memory) return brim_fail(BRIM_ENOMEM, "no memory for a block of %zu bytes", bytes);
  }
  memcpy(out, &memory, sizeof memory);
  return BRIM_OK;
}

static brim_status bench_open(bench *b) {
  b->where.threads = b->o->threads > 0 ? b->o->threads : brim_cpu_count();
  BRIM_TRY(read_env(b));
  if (strcmp(b->o->device, "cpu") == 0) {
    b->table = brim_collect_cpu();
    return brim_pool_create(b->where.threads, &b->where.pool);
  }
  char name[64];
  snprintf(name, sizeof name, BRIM_COLLECT_EXTENSION "%s", b->o->env);
  BRIM_TRY(brim_registry_create(&b->registry));
  BRIM_TRY(brim_registry_load_default(b->registry));
  BRIM_TRY(brim_device_open(b->registry, b->o->device, NULL, &b->device));
  b->table = brim_registry_extension(b->registry, name);
  if (!b->table || b->table->abi != BRIM_COLLECT_ABI) {
    return brim_fail(BRIM_EUNSUPPORTED, "device %s has no extension %s", b->o->device, name);
  }
  b->where.stream = b->device->stream;
  return BRIM_OK;
}

// The block, outputs for a quarter of the rollout, and its rows in random order.
static brim_status prepare(bench *b) {
  BRIM_TRY(b->table->layout(&b->shape, &b->at));
  BRIM_TRY(allocate(b, b->at.bytes, &b->block));
  const int64_t all = (int64_t)b->at.steps * b->at.envs, quarter = (all + 3) / 4;
  const int64_t rows = quarter > b->at.envs ? quarter : b->at.envs;
  const size_t size = brim_dtype_size((brim_dtype)b->o->dtype);
  brim_collect_view *v = &b->view;
  v->actor.dtype = v->critic.dtype = b->o->dtype;
  v->actor.pitch = (b->at.obs + 7) / 8 * 8;
  v->critic.pitch = (b->at.critic + 7) / 8 * 8;
  const int64_t agents = rows * b->at.agents;
  BRIM_TRY(allocate(b, (size_t)(agents * v->actor.pitch) * size, &v->actor.data));
  BRIM_TRY(allocate(b, (size_t)(rows * v->critic.pitch) * size, &v->critic.data));
  BRIM_TRY(allocate(b, (size_t)agents * sizeof(uint64_t), &v->mask));
  BRIM_TRY(allocate(b, (size_t)quarter * sizeof(int32_t), &b->rows));
  int32_t *list = brim_alloc((size_t)quarter * sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "no memory for a list of rows");
  for (int64_t i = 0; i < quarter; i++)
    list[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)all);
  brim_status status = BRIM_OK;
  if (b->device) {
    const size_t bytes = (size_t)quarter * sizeof *list;
    status = brim_device_copy(b->device, b->rows, list, bytes, BRIM_COPY_H2D);
    if (!status) status = brim_device_sync(b->device);
  } else {
    memcpy(b->rows, list, (size_t)quarter * sizeof *list);
  }
  brim_free(list);
  BRIM_TRY(status);
  return b->table->reset(&b->where, &b->shape, b->block);
}

static brim_status call(bench *b, phase p, int32_t t) {
  brim_collect_view v = b->view;
  switch (p) {
    case BEGIN:
      return b->table->begin(&b->where, &b->shape, b->block);
    case CHOOSE:
      return b->table->choose(&b->where, &b->shape, b->block, t, 0);
    case STEP:
      return b->table->step(&b->where, &b->shape, b->block, t);
    case TALLY:
      return b->table->tally(&b->where, &b->shape, b->block, 0);
    case LOOK:
    case VALUES:
      v.first = (int64_t)t * b->at.envs;
      v.count = b->at.envs;
      if (p == LOOK) v.critic.data = NULL;
      if (p == VALUES) v.actor.data = NULL, v.mask = NULL;
      break;
    default:
      v.rows = b->rows;
      v.count = ((int64_t)b->at.steps * b->at.envs + 3) / 4;
  }
  return b->table->look(&b->where, &b->shape, b->block, &v);
}

// Calls of a phase in one rollout.
static int32_t calls(const bench *b, phase p) {
  return p == BEGIN || p == TALLY ? 1 : p == LOOK_LIST ? 4 : b->at.steps;
}

static brim_status run_phase(bench *b, phase p) {
  for (int32_t t = 0; t < calls(b, p); t++) BRIM_TRY(call(b, p, t));
  return BRIM_OK;
}

// Seconds of one call of a phase, from the median rollout.
static brim_status measure(bench *b, phase p, double *seconds) {
  double times[MAX_REPEATS];
  brim_graph_exec *graph = NULL;
  if (b->device && brim_device_has_graphs(b->device)) {
    BRIM_TRY(brim_capture_begin(b->device));
    const brim_status recorded = run_phase(b, p);
    const brim_status ended = brim_capture_end(b->device, &graph);
    if (recorded || ended) return recorded ? recorded : ended;
  }
  brim_status status = BRIM_OK;
  for (int i = -2; i < b->o->repeats && !status; i++) {
    const brim_time from = brim_clock_now();
    status = graph ? brim_graph_launch(b->device, graph) : run_phase(b, p);
    if (!status && b->device) status = brim_device_sync(b->device);
    const double took = (double)brim_time_since_ns(from, brim_clock_now()) * 1e-9;
    if (i >= 0) times[i] = took / calls(b, p);
  }
  if (graph) brim_graph_exec_destroy(b->device, graph);
  if (!status) *seconds = median(times, b->o->repeats);
  return status;
}

static void report(const bench *b, const double *seconds) {
  char what[128];
  b->shape.row->describe(b->shape.env.bytes, what, sizeof what);
  const double step = seconds[CHOOSE] + seconds[STEP] + seconds[LOOK];
  const double agents = (double)b->at.envs * b->at.agents;
  if (b->o->json) {
    printf("{\"device\": \"%s\", \"env\": \"%s\", \"envs\": %d, \"agents\": %d, \"steps\": %d",
           b->o->device, what, b->at.envs, b->at.agents, b->at.steps);
    printf(", \"dtype\": \"%s\", \"state_bytes\": %zu, \"bytes\": %zu",
           brim_dtype_name((brim_dtype)b->o->dtype), b->at.state_bytes, b->at.bytes);
    for (int p = 0; p < PHASES; p++) printf(", \"%s_s\": %.6g", phase_names[p], seconds[p]);
    printf(", \"agent_steps_per_s\": %.6g}\n", agents / step);
    return;
  }
  printf("%s, %d environments on %s, T = %d, %s\n", what, b->at.envs, b->o->device, b->at.steps,
         brim_dtype_name((brim_dtype)b->o->dtype));
  printf("%zu bytes a state, block of %.1f MB\n", b->at.state_bytes, (double)b->at.bytes * 1e-6);
  for (int p = 0; p < PHASES; p++) printf("  %-7s %10.2f us\n", phase_names[p], seconds[p] * 1e6);
  printf("  choose, step and look: %.1f M agent-steps/s\n", agents / step * 1e-6);
}

static brim_status measure_all(bench *b) {
  double seconds[PHASES] = {0};
  BRIM_TRY(prepare(b));
  BRIM_TRY(run_phase(b, BEGIN));
  for (int p = 0; p < PHASES; p++) BRIM_TRY(measure(b, (phase)p, &seconds[p]));
  report(b, seconds);
  return BRIM_OK;
}

static void bench_close(bench *b) {
  void *memory[] = {b->block, b->view.actor.data, b->view.critic.data, b->view.mask, b->rows};
  for (int i = 0; i < 5; i++) {
    if (!memory[i]) continue;
    if (b->device) {
      brim_device_free(b->device, BRIM_BUFFER_DEVICE, memory[i]);
    } else {
      brim_free(memory[i]);
    }
  }
  if (b->where.pool) brim_pool_destroy(b->where.pool);
  if (b->device) brim_device_close(b->device);
  if (b->registry) brim_registry_destroy(b->registry);
}

static bool number(const char *text, int32_t *out) {
  char *end;
  long v = strtol(text, &end, 10);
  *out = (int32_t)v;
  return *text && !*end && v >= 1 && v <= 1 << 24;
}

static int usage(void) {
  fprintf(
      stderr,
      "bench_collect [--device cpu|cuda] [--env NAME] [--set ARG=VALUE]... [--envs N]\n"
      "              [--steps T] [--dtype f32|bf16|f16] [--threads N] [--repeats N] [--json]\n");
  return 2;
}

static bool option(options *o, const char *a, const char *v) {
  struct {
    const char *name;
    int32_t *to;
  } numbers[] = {{"--envs", &o->envs},
                 {"--steps", &o->steps},
                 {"--threads", &o->threads},
                 {"--repeats", &o->repeats}};
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
    if (strcmp(a, numbers[k].name) == 0) return number(v, numbers[k].to);
  }
  if (!*v) return false;
  if (strcmp(a, "--device") == 0) {
    o->device = v;
  } else if (strcmp(a, "--env") == 0) {
    o->env = v;
  } else if (strcmp(a, "--set") == 0 && o->set_count < MAX_SETS) {
    o->sets[o->set_count++] = v;
  } else if (strcmp(a, "--dtype") == 0) {
    o->dtype = brim_env_choice("f32|bf16|f16", v);
    static const int32_t types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
    if (o->dtype < 0) return false;
    o->dtype = types[o->dtype];
  } else {
    return false;
  }
  return true;
}

int main(int argc, char **argv) {
  options o = {.device = "cpu",
               .env = "cartpole",
               .envs = 1024,
               .steps = 64,
               .repeats = 9,
               .dtype = BRIM_F32};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      o.json = true;
      continue;
    }
    if (!option(&o, argv[i], i + 1 < argc ? argv[i + 1] : "")) return usage();
    i++;
  }
  if (o.repeats > MAX_REPEATS) return usage();
  bench b = {.o = &o};
  brim_status status = bench_open(&b);
  if (!status) status = measure_all(&b);
  if (status) fprintf(stderr, "bench_collect: %s\n", brim_status_detail());
  bench_close(&b);
  return status ? 1 : 0;
}
