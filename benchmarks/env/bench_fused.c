// Times fused updates and values of mappo (rl/rl_fused.h) alone on a GPU, and gives the least FLOPs and bytes that each
// needs. Inputs are random numbers; no environment runs. Not a test: it asserts nothing.
//   bench_fused [--device cuda] [--envs 16384] [--steps 64] [--agents 10] [--hidden 128] [--json] ...
// An update is a minibatch of both networks and the sums over blocks; values are the critic's of a rollout.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/backend_half.h"
#include "base/base.h"
#include "hd/hd_philox.h"
#include "rl/rl_fused.h"
#include "rl/rl_ppo_row.h"

enum {
  ACTOR,
  CRITIC,
  NETS,
  MOST = 1 << 24,
  MOST_WINDOWS = 101,
  WARM_UP = 3,
  MAX_GIVEN = 64,
  // Count of random numbers before they repeat: a prime, so that rows of inputs differ.
  PERIOD = 1048573
};

static const char *const precision_names[] = {"bf16", "fp32", NULL};
static const char *const way_names[] = {"not fused", "whole", "rest"};

static const brim_option table[] = {
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "cuda, cuda:1 (default: cuda)"},
    {.name = "envs", .kind = BRIM_OPTION_INT, .help = "environments (default: 16384)"},
    {.name = "steps", .kind = BRIM_OPTION_INT, .help = "steps of a rollout (default: 64)"},
    {.name = "agents", .kind = BRIM_OPTION_INT, .help = "agents of an environment (default: 10)"},
    {.name = "minibatches", .kind = BRIM_OPTION_INT, .help = "parts of a rollout (default: 4)"},
    {.name = "rewards", .kind = BRIM_OPTION_INT, .help = "rewards of a step (default: 1)"},
    {.name = "inputs", .kind = BRIM_OPTION_INT, .help = "the actor's, padded (default: 32)"},
    {.name = "critic-inputs", .kind = BRIM_OPTION_INT, .help = "the critic's (default: 40)"},
    {.name = "hidden", .kind = BRIM_OPTION_INT, .help = "width of hidden layers (default: 128)"},
    {.name = "outputs", .kind = BRIM_OPTION_INT, .help = "actions of an agent (default: 5)"},
    {.name = "precision",
     .kind = BRIM_OPTION_ENUM,
     .choices = precision_names,
     .help = "compute precision (default: bf16)"},
    {.name = "windows", .kind = BRIM_OPTION_INT, .help = "measured, at most 101 (default: 5)"},
    {.name = "launches", .kind = BRIM_OPTION_INT, .help = "calls of a window (default: 20)"},
    {.name = "json", .kind = BRIM_OPTION_FLAG, .help = "JSON lines"},
    {.name = "help", .kind = BRIM_OPTION_FLAG, .help = "this text"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

typedef struct options {
  const char *device, *precision;
  int32_t envs, steps, agents, minibatches, rewards, inputs, critic_inputs, hidden, outputs;
  int32_t windows, launches;
  bool json;
} options;

typedef struct bench {
  options o;
  const brim_fused_table *table;
  brim_registry *registry;
  brim_device *device;
  brim_rollout_where where;
  brim_dtype dtype;
  brim_ppo_shape shape;
  brim_fused_way way[NETS];
  brim_fused_update update;
  void *given[MAX_GIVEN];
  int count;
  void *values;  // (steps + 1, envs, rewards); NULL = the critic is not fused whole
} bench;

//---------------------------------- memory ----------------------------------

// Memory on the device, filled with repetitions of `block`, or with zeros.
static brim_status give(bench *b, const void *block, size_t block_bytes, size_t bytes, void *out) {
  void *to = NULL;
  if (b->count == MAX_GIVEN) return brim_fail(BRIM_ESTATE, "more than %d buffers", MAX_GIVEN);
  BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_DEVICE, bytes, &to));
  b->given[b->count++] = to;
  memcpy(out, &to, sizeof to);
  if (!block) BRIM_TRY(brim_device_fill(b->device, to, 0, bytes));
  for (size_t at = 0; block && at < bytes; at += block_bytes) {
    const size_t part = bytes - at < block_bytes ? bytes - at : block_bytes;
    BRIM_TRY(brim_device_copy(b->device, (char *)to + at, block, part, BRIM_COPY_H2D));
  }
  return brim_device_sync(b->device);
}

// Numbers from -size to size.
static brim_status give_numbers(bench *b, brim_dtype type, int64_t count, double size, void *out) {
  const size_t each = brim_dtype_size(type);
  const size_t unique = (size_t)(count < PERIOD ? count : PERIOD);
  char *host = malloc(unique * each);
  if (!host) return brim_fail(BRIM_ENOMEM, "no memory for %zu bytes", unique * each);
  for (size_t i = 0; i < unique; i++) {
    const uint32_t bits = brim_philox(1, (uint64_t)b->count, i).v[0];
    const float x = (float)(size * (bits / 2147483648.0 - 1.0));
    const uint16_t half = brim_f32_to_bf16(x);
    memcpy(host + each * i, type == BRIM_F32 ? (const void *)&x : (const void *)&half, each);
  }
  const brim_status status = give(b, host, unique * each, (size_t)count * each, out);
  free(host);
  return status;
}

// Random actions, and their log probability when all actions are equally probable.
static brim_status give_actions(bench *b, int64_t count, brim_ppo_losses *l) {
  const size_t unique = (size_t)(count < PERIOD ? count : PERIOD);
  const float logp = (float)-log((double)b->shape.act);
  int32_t *action = malloc(unique * sizeof *action);
  float *old = malloc(unique * sizeof *old);
  brim_status status =
      action && old ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for %zu actions", unique);
  for (size_t i = 0; !status && i < unique; i++) {
    action[i] = (int32_t)(brim_philox(2, 0, i).v[0] % (uint32_t)b->shape.act);
    old[i] = logp;
  }
  const size_t bytes = (size_t)count * sizeof *action;
  if (!status) status = give(b, action, unique * sizeof *action, bytes, &l->action);
  if (!status) status = give(b, old, unique * sizeof *old, bytes, &l->logp);
  free(action);
  free(old);
  return status;
}

// The first minibatch of an epoch.
static brim_status give_rows(bench *b, brim_ppo_losses *l) {
  const brim_ppo_shape *s = &b->shape;
  const size_t bytes = (size_t)s->batch * sizeof(int32_t);
  const brim_shuffle order = brim_ppo_order(0, 0, 0, (int64_t)s->steps * s->envs);
  int32_t *rows = malloc(bytes);
  if (!rows) return brim_fail(BRIM_ENOMEM, "no memory for %zu bytes", bytes);
  for (int64_t i = 0; i < s->batch; i++) rows[i] = (int32_t)brim_shuffle_at(&order, (uint64_t)i);
  const brim_status status = give(b, rows, bytes, bytes, &l->rows);
  free(rows);
  return status;
}

//---------------------------------- setting up ----------------------------------

static int64_t part_rows(const bench *b, int net) {
  return b->shape.batch * (net == ACTOR ? b->shape.agents : 1);
}

static brim_fused_part *part_of(bench *b, int net) {
  return net == ACTOR ? &b->update.actor : &b->update.critic;
}

static brim_status give_part(bench *b, int net) {
  brim_fused_part *part = part_of(b, net);
  brim_fused_net *n = &part->net;
  const brim_ppo_shape *s = &b->shape;
  const int64_t width[] = {n->inputs, n->hidden, n->hidden, n->outputs};
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    const int64_t all = width[i] * width[i + 1];
    // a layer's sums have the variance of its inputs
    const double size = sqrt(3.0 / (double)width[i]);
    BRIM_TRY(give_numbers(b, b->dtype, all, size, &n->weight[i]));
    BRIM_TRY(give_numbers(b, b->dtype, width[i + 1], 0.1, &n->bias[i]));
    BRIM_TRY(give(b, NULL, 0, (size_t)all * sizeof(float), &n->weight_grad[i]));
    BRIM_TRY(give(b, NULL, 0, (size_t)width[i + 1] * sizeof(float), &n->bias_grad[i]));
  }
  if (b->way[net] == BRIM_FUSED_WHOLE) {
    const int64_t rows =
        net == ACTOR ? (int64_t)s->steps * s->envs * s->agents : ((int64_t)s->steps + 1) * s->envs;
    part->listed = 1;
    return give_numbers(b, b->dtype, rows * n->inputs, 1, &part->input);
  }
  const int64_t all = part_rows(b, net) * n->hidden;
  const size_t bytes = (size_t)all * brim_dtype_size(b->dtype);
  BRIM_TRY(give_numbers(b, b->dtype, all, 1, &part->z));
  BRIM_TRY(give(b, NULL, 0, bytes, &part->h));
  return give(b, NULL, 0, bytes, &part->g);
}

// An update leaves a gradient in z, and the next launch reads it as z. The scale makes gradients of a row as large as
// those of its own loss, so that every launch works on ordinary numbers.
static brim_status give_state(bench *b, int net, brim_ppo_net *out) {
  double state[BRIM_STATE_COUNT] = {0};
  const double rows = (double)part_rows(b, net);
  state[BRIM_STATE_ROWS] = rows;
  state[BRIM_STATE_GRAD_SCALE] = 1.0 / rows;
  state[BRIM_STATE_LOSS_SCALE] = rows;
  return give(b, state, sizeof state, sizeof state, &out->state);
}

static brim_status give_losses(bench *b) {
  const brim_ppo_shape *s = &b->shape;
  const int64_t total = (int64_t)s->steps * s->envs, numbers = total * s->rewards;
  const brim_ppo_norm norm = {.weight = 1, .std = 1, .inverse = 1};
  const brim_ppo_moments moments = {.scale = 1};
  brim_ppo_losses *l = &b->update.losses;
  *l = (brim_ppo_losses){.clip = 0.2f, .value_clip = 0.2f, .value_coef = 0.5f, .entropy = 0.01f};
  BRIM_TRY(give_rows(b, l));
  BRIM_TRY(give_actions(b, total * s->agents, l));
  BRIM_TRY(give_numbers(b, BRIM_F32, numbers, 1, &l->adv));
  BRIM_TRY(give_numbers(b, BRIM_F32, numbers, 1, &l->ret));
  BRIM_TRY(give_numbers(b, BRIM_F32, numbers, 1, &l->old));
  BRIM_TRY(give(b, &norm, sizeof norm, sizeof norm, &l->norm));
  BRIM_TRY(give(b, &moments, sizeof moments, sizeof moments, &l->moments));
  BRIM_TRY(give(b, NULL, 0, BRIM_PPO_METRIC_COUNT * sizeof(double), &l->metrics));
  BRIM_TRY(give_state(b, ACTOR, &l->actor));
  return give_state(b, CRITIC, &l->critic);
}

// Every action is allowed.
static brim_status give_allowed(bench *b) {
  const size_t bytes = (size_t)b->shape.steps * (size_t)b->shape.envs * (size_t)b->shape.agents;
  void *allowed;
  BRIM_TRY(give(b, NULL, 0, bytes, &allowed));
  b->update.allowed = allowed;
  return brim_device_fill(b->device, allowed, 0xFF, bytes);
}

static brim_status open_device(bench *b) {
  uint64_t free_bytes, total_bytes;
  BRIM_TRY(brim_registry_create(&b->registry));
  BRIM_TRY(brim_registry_load_default(b->registry));
  BRIM_TRY(brim_device_open(b->registry, b->o.device, NULL, &b->device));
  b->table = brim_registry_extension(b->registry, BRIM_FUSED_EXTENSION);
  if (strcmp(b->device->backend->name, "cuda") != 0 || !b->table ||
      b->table->abi != BRIM_FUSED_ABI) {
    return brim_fail(BRIM_EUNSUPPORTED, "device %s has no fused kernels; use an NVIDIA GPU",
                     b->o.device);
  }
  b->where.stream = b->device->stream;
  // `way` asks the device of this thread: a call of the backend sets it to ours
  return brim_device_memory(b->device, &free_bytes, &total_bytes);
}

static brim_status choose_way(bench *b, int net) {
  const options *o = &b->o;
  brim_fused_net *n = &part_of(b, net)->net;
  *n = (brim_fused_net){.dtype = (int32_t)b->dtype,
                        .act = BRIM_ACT_TANH,
                        .inputs = net == ACTOR ? o->inputs : o->critic_inputs,
                        .hidden = o->hidden,
                        .outputs = net == ACTOR ? o->outputs : o->rewards};
  b->way[net] = b->table->way(n);
  if (b->way[net] != BRIM_FUSED_NOT) return BRIM_OK;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "the %s of %d inputs, hidden %d and %d outputs in %s is not fused on this device",
      net == ACTOR ? "actor" : "critic", n->inputs, n->hidden, n->outputs, o->precision);
}

static brim_status prepare(bench *b) {
  const options *o = &b->o;
  const int64_t total = (int64_t)o->steps * o->envs;
  size_t scratch = 0;
  b->dtype = strcmp(o->precision, "fp32") == 0 ? BRIM_F32 : BRIM_BF16;
  b->shape = (brim_ppo_shape){.steps = o->steps,
                              .envs = o->envs,
                              .agents = o->agents,
                              .act = o->outputs,
                              .rewards = o->rewards,
                              .batch = total / o->minibatches};
  BRIM_TRY(choose_way(b, ACTOR));
  BRIM_TRY(choose_way(b, CRITIC));
  BRIM_TRY(b->table->scratch(&b->shape, &b->update.actor.net, &b->update.critic.net, &scratch));
  BRIM_TRY(give(b, NULL, 0, scratch, &b->update.scratch));
  BRIM_TRY(give_losses(b));
  BRIM_TRY(give_allowed(b));
  BRIM_TRY(give_part(b, ACTOR));
  BRIM_TRY(give_part(b, CRITIC));
  if (b->way[CRITIC] != BRIM_FUSED_WHOLE) return BRIM_OK;
  const size_t values = (size_t)((total + o->envs) * o->rewards);
  return give(b, NULL, 0, values * brim_dtype_size(b->dtype), &b->values);
}

//---------------------------------- calls ----------------------------------

static brim_status run_update(bench *b) {
  return b->table->update(&b->where, &b->shape, &b->update);
}
static brim_status run_values(bench *b) {
  const int64_t rows = ((int64_t)b->shape.steps + 1) * b->shape.envs;
  return b->table->values(&b->where, &b->update.critic.net, b->update.critic.input, rows,
                          b->values);
}

// Least FLOPs and bytes. Weights and their gradients are small beside the rows and left out.
typedef struct cost {
  double flops, bytes;
} cost;

// Forward, gradients of weights, and of inputs from the second layer on. REST: without the caller's products; z is read
// and written, h and g are written.
static void add_part(const bench *b, int net, cost *c) {
  const brim_fused_net *n = net == ACTOR ? &b->update.actor.net : &b->update.critic.net;
  const double rows = (double)part_rows(b, net), each = (double)brim_dtype_size(b->dtype);
  const double hidden = n->hidden, second = hidden * hidden, third = hidden * n->outputs;
  if (b->way[net] == BRIM_FUSED_WHOLE) {
    c->flops += rows * (4 * n->inputs * hidden + 6 * second + 6 * third);
    c->bytes += rows * n->inputs * each;
  } else {
    c->flops += rows * (4 * second + 6 * third);
    c->bytes += 4 * rows * hidden * each;
  }
}

static cost update_cost(const bench *b) {
  const double batch = (double)b->shape.batch, all = batch * b->shape.agents, f = sizeof(float);
  cost c = {.bytes = all * (1 + sizeof(int32_t) + f) +
                     batch * (sizeof(int32_t) + 3 * f * b->shape.rewards)};
  add_part(b, ACTOR, &c);
  add_part(b, CRITIC, &c);
  return c;
}

static cost values_cost(const bench *b) {
  const brim_fused_net *n = &b->update.critic.net;
  const double rows = ((double)b->shape.steps + 1) * b->shape.envs;
  const double hidden = n->hidden, each = (double)brim_dtype_size(b->dtype);
  return (cost){.flops = 2 * rows * hidden * (n->inputs + hidden + n->outputs),
                .bytes = rows * each * (n->inputs + n->outputs)};
}

static void report(const bench *b, const char *name, const brim_stats_summary *s, cost c) {
  const options *o = &b->o;
  const char *actor = way_names[b->way[ACTOR]], *critic = way_names[b->way[CRITIC]];
  const double tflops = c.flops / s->median * 1e-12, tbytes = c.bytes / s->median * 1e-12;
  if (o->json) {
    printf("{\"benchmark\": \"fused\", \"work\": \"%s\", \"device\": \"%s\", \"precision\": \"%s\"",
           name, b->device->info.name, o->precision);
    printf(", \"envs\": %d, \"steps\": %d, \"agents\": %d, \"rewards\": %d, \"batch\": %lld",
           o->envs, o->steps, o->agents, o->rewards, (long long)b->shape.batch);
    printf(", \"inputs\": %d, \"critic_inputs\": %d, \"hidden\": %d, \"outputs\": %d", o->inputs,
           o->critic_inputs, o->hidden, o->outputs);
    printf(", \"actor\": \"%s\", \"critic\": \"%s\", \"windows\": %d, \"launches\": %d", actor,
           critic, o->windows, o->launches);
    printf(", \"seconds\": %.6g, \"lowest_s\": %.6g, \"highest_s\": %.6g", s->median, s->min,
           s->max);
    printf(", \"flops\": %.9g, \"bytes\": %.9g, \"tflop_per_s\": %.6g, \"tb_per_s\": %.6g}\n",
           c.flops, c.bytes, tflops, tbytes);
  } else {
    printf("%-6s  %9.4f ms (%.4f to %.4f)  %8.2f GFLOP  %7.4f GB  %7.2f TFLOP/s  %6.3f TB/s", name,
           s->median * 1e3, s->min * 1e3, s->max * 1e3, c.flops * 1e-9, c.bytes * 1e-9, tflops,
           tbytes);
    printf("  actor %s, critic %s\n", actor, critic);
  }
  fflush(stdout);
}

// Time between two events around a window; the first window warms up.
static brim_status measure(bench *b, brim_status (*run)(bench *), brim_stats_summary *out) {
  double seconds[MOST_WINDOWS];
  brim_event *start = NULL, *end = NULL;
  brim_status status = brim_event_create(b->device, &start);
  if (!status) status = brim_event_create(b->device, &end);
  for (int i = -1; !status && i < b->o.windows; i++) {
    const int count = i < 0 ? WARM_UP : b->o.launches;
    int64_t ns = 0;
    status = brim_event_record(b->device, start);
    for (int k = 0; !status && k < count; k++) status = run(b);
    if (!status) status = brim_event_record(b->device, end);
    if (!status) status = brim_event_elapsed(b->device, start, end, &ns);
    if (i >= 0) seconds[i] = (double)ns * 1e-9 / count;
  }
  if (start) brim_event_destroy(b->device, start);
  if (end) brim_event_destroy(b->device, end);
  return status ? status : brim_stats_summarize(seconds, (size_t)b->o.windows, 1, out);
}

// Rows with a NaN loss make the times worthless.
static brim_status check_losses(bench *b) {
  double m[BRIM_PPO_METRIC_COUNT];
  BRIM_TRY(brim_device_copy(b->device, m, b->update.losses.metrics, sizeof m, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(b->device));
  const double bad = m[BRIM_PPO_BAD] + m[BRIM_PPO_BAD_VALUES];
  if (bad == 0 && m[BRIM_PPO_ROWS] > 0) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "%.0f of %.0f losses are no numbers", bad,
                   m[BRIM_PPO_ROWS] + m[BRIM_PPO_VALUES]);
}

static brim_status measure_all(bench *b) {
  const options *o = &b->o;
  brim_stats_summary seconds;
  BRIM_TRY(open_device(b));
  BRIM_TRY(prepare(b));
  if (!o->json) {
    printf("%d environments of %d agents, %d steps, minibatches of %lld rows, %s on %s\n", o->envs,
           o->agents, o->steps, (long long)b->shape.batch, o->precision, b->device->info.name);
    printf("actor %d-%d-%d-%d, critic %d-%d-%d-%d\n", o->inputs, o->hidden, o->hidden, o->outputs,
           o->critic_inputs, o->hidden, o->hidden, o->rewards);
  }
  BRIM_TRY(measure(b, run_update, &seconds));
  BRIM_TRY(check_losses(b));
  report(b, "update", &seconds, update_cost(b));
  if (!b->values) return BRIM_OK;
  BRIM_TRY(measure(b, run_values, &seconds));
  report(b, "values", &seconds, values_cost(b));
  return BRIM_OK;
}

static void bench_close(bench *b) {
  while (b->count) brim_device_free(b->device, BRIM_BUFFER_DEVICE, b->given[--b->count]);
  if (b->device) brim_device_close(b->device);
  if (b->registry) brim_registry_destroy(b->registry);
}

//---------------------------------- options ----------------------------------

static brim_status read_options(const brim_option_parse *p, options *o) {
  if (p->positional_count > 0) {
    return brim_fail(BRIM_EINVAL, "'%s' is no option; --help lists them", p->positional[0]);
  }
  const struct {
    const char *name;
    int32_t usual, most, *to;
  } numbers[] = {{"envs", 16384, MOST, &o->envs},
                 {"steps", 64, MOST, &o->steps},
                 {"agents", 10, MOST, &o->agents},
                 {"minibatches", 4, MOST, &o->minibatches},
                 {"rewards", 1, BRIM_FUSED_MAX_OUTPUTS, &o->rewards},
                 {"inputs", 32, MOST, &o->inputs},
                 {"critic-inputs", 40, MOST, &o->critic_inputs},
                 {"hidden", 128, BRIM_FUSED_MAX_HIDDEN, &o->hidden},
                 {"outputs", 5, BRIM_FUSED_MAX_ACT, &o->outputs},
                 {"windows", 5, MOST_WINDOWS, &o->windows},
                 {"launches", 20, MOST, &o->launches}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const int64_t value = brim_option_int(p, numbers[i].name, numbers[i].usual);
    if (value < 1 || value > numbers[i].most) {
      return brim_fail(BRIM_EINVAL, "--%s is 1 to %d", numbers[i].name, numbers[i].most);
    }
    *numbers[i].to = (int32_t)value;
  }
  if (o->minibatches > (int64_t)o->steps * o->envs) {
    return brim_fail(BRIM_EINVAL, "--minibatches is at most the product of --steps and --envs");
  }
  o->device = brim_option_string(p, "device", "cuda");
  o->precision = brim_option_string(p, "precision", "bf16");
  o->json = brim_option_flag(p, "json", false);
  return BRIM_OK;
}

static void print_help(void) {
  brim_str text;
  brim_str_init(&text);
  brim_option_help(tables, 100, &text);
  printf("usage: bench_fused [--device cuda] [--envs N] [--hidden N] ...\n%s", text.data);
  brim_str_deinit(&text);
}

int main(int argc, char **argv) {
  brim_option_parse parse;
  bench b = {.count = 0};
  brim_status status =
      brim_option_parse_args(tables, argc - 1, (const char *const *)(argv + 1), &parse);
  if (status) {
    fprintf(stderr, "bench_fused: %s\n", brim_status_detail());
    return 2;
  }
  int code = 0;
  if (brim_option_flag(&parse, "help", false)) {
    print_help();
  } else if (read_options(&parse, &b.o)) {
    code = 2;
  } else if (measure_all(&b)) {
    code = 1;
  }
  if (code) fprintf(stderr, "bench_fused: %s\n", brim_status_detail());
  bench_close(&b);
  brim_option_parse_deinit(&parse);
  return code;
}
