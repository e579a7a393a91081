// A rollout of mappo as in training, recorded and launched as one: T steps of all environments with the actor's actions
// ("collect"), the same with the critic's values of all states ("rollout"), and a whole iteration ("iteration"). Every
// line has the least FLOPs and bytes of its calls, and the time that these take at the machine's ceilings. The calls
// are those of the setting's path: mappo.fused=off measures the general one. Not a test: it asserts nothing about
// speed.
//   bench_mappo CONFIG.yaml [KEY=VALUE ...] --device cuda
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../ops/bench_model.h"
#include "workload/mappo/mappo_int.h"

enum { COLLECT, ROLLOUT, ITERATION, WORKS, MOST_WINDOWS = 101, WARM_UP = 3 };
static const char *const work_names[] = {"collect", "rollout", "iteration", NULL};

static const brim_option table[] = {
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "ref, cpu, cuda, cuda:1"},
    {.name = "threads", .kind = BRIM_OPTION_INT, .help = "of a CPU"},
    {.name = "work",
     .kind = BRIM_OPTION_ENUM,
     .multiple = true,
     .choices = work_names,
     .help = "what is measured (default: all)"},
    {.name = "windows", .kind = BRIM_OPTION_INT, .help = "measured, at most 101 (default: 5)"},
    {.name = "launches", .kind = BRIM_OPTION_INT, .help = "of a window (default: 25)"},
    {.name = "no-ceilings", .kind = BRIM_OPTION_FLAG, .help = "leave the machine's unmeasured"},
    {.name = "json", .kind = BRIM_OPTION_FLAG, .help = "JSON lines"},
    {.name = "help", .kind = BRIM_OPTION_FLAG, .help = "this text"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

// Least FLOPs and bytes, and the sum over calls of the longer of their two times.
typedef struct cost {
  double flops, bytes, seconds;
} cost;

typedef struct bench {
  const brim_option_parse *parse;
  brim_registry *registry;
  brim_config *config;
  brim_device *device;
  brim_work *work;
  brim_mappo *w;
  bench_ceilings ceilings;  // NaN = unknown
} bench;

//---------------------------------- costs ----------------------------------

static void add(const bench *b, cost *c, double times, double flops, double bytes) {
  const double compute = flops / b->ceilings.flops_per_s;
  const double move = bytes / b->ceilings.copy_bytes_per_s;
  c->flops += times * flops;
  c->bytes += times * bytes;
  c->seconds += times * (compute > move ? compute : move);
}

static void add_call(const bench *b, cost *c, double times, const brim_op_call *call) {
  double flops = 0, bytes = 0;
  brim_op_cost(call, &flops, &bytes);
  add(b, c, times, flops, bytes);
}

static void add_program(const bench *b, cost *c, double times, const brim_program *p) {
  for (int32_t i = 0; i < p->prepared; i++) {
    if (brim_gnode_is_call(&p->graph.nodes[i])) add_call(b, c, times, &p->calls[i]);
  }
}

static double row_bytes(const brim_tensor *t) {
  return (double)t->dim[1] * (double)brim_dtype_size(t->dtype);
}

//---------------------------------- fused ----------------------------------

// Number of matrix weights of each layer.
static double weights_of(const brim_fused_net *n, int layer) {
  const double inputs = n->inputs, hidden = n->hidden, outputs = n->outputs;
  return layer == 0 ? inputs * hidden : layer == 1 ? hidden * hidden : hidden * outputs;
}

static double all_weights(const brim_fused_net *n) {
  return weights_of(n, 0) + weights_of(n, 1) + weights_of(n, 2);
}

static double type_bytes(const brim_fused_net *n) {
  return (double)brim_dtype_size((brim_dtype)n->dtype);
}

// One kernel: the actor's weights, first and last states, observations of the networks, and the results of each step.
static void add_fused_collect(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  const brim_fused_net *actor = &w->fusing.net[BRIM_MAPPO_ACTOR];
  const brim_fused_net *critic = &w->fusing.net[BRIM_MAPPO_CRITIC];
  const double envs = w->sizes.envs, rows = envs * w->sizes.steps, all = rows * w->z.agents;
  const double each = type_bytes(actor), f = sizeof(float);
  const double flops =
      rows * w->shape.row->flops(w->shape.env.bytes) + 2 * all * all_weights(actor);
  const double seen = all * (actor->inputs * each + 1) + (rows + envs) * critic->inputs * each;
  const double left = all * (sizeof(int32_t) + f) + rows * (w->rewards * f + 1 + sizeof(int32_t));
  const double states = 2 * envs * (double)w->layout.state_bytes;
  add(b, c, 1, flops, all_weights(actor) * each + states + seen + left);
}

static void add_fused_values(const bench *b, cost *c) {
  const brim_fused_net *n = &b->w->fusing.net[BRIM_MAPPO_CRITIC];
  const double rows = (double)b->w->chunks.rows, each = type_bytes(n);
  add(b, c, 1, 2 * rows * all_weights(n),
      each * (all_weights(n) + rows * (n->inputs + n->outputs)));
}

// A network from inputs to gradients: forward, gradients of weights, and of inputs from the second layer on.
static void fused_net(const bench *b, int net, double rows, cost *c, double *flops, double *bytes) {
  const brim_mappo_fusing *f = &b->w->fusing;
  const brim_fused_net *n = &f->net[net];
  const double each = type_bytes(n);
  if (f->way[net] == BRIM_FUSED_WHOLE) {
    *flops += rows * (6 * all_weights(n) - 2 * weights_of(n, 0));
    *bytes += each * (rows * n->inputs + all_weights(n)) + sizeof(float) * all_weights(n);
    return;
  }
  // z is read and written, h and g are written; the products are separate calls
  *flops += rows * (4 * weights_of(n, 1) + 6 * weights_of(n, 2));
  *bytes += each * (4 * rows * n->hidden + weights_of(n, 1) + weights_of(n, 2)) +
            sizeof(float) * weights_of(n, 2);
  for (int i = 0; i < BRIM_MAPPO_PRODUCTS; i++) {
    add_call(b, c, b->w->sizes.updates, &f->products[net][i]);
  }
}

// Both networks, and the data of each row for its loss.
static void add_fused_update(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  const double batch = w->sizes.batch, all = batch * w->z.agents, f = sizeof(float);
  const double mask = w->fusing.rollout ? 1 : sizeof(uint64_t);
  double flops = 0;
  double bytes =
      all * (mask + sizeof(int32_t) + f) + batch * (w->rewards * 3 * f + sizeof(int32_t));
  fused_net(b, BRIM_MAPPO_ACTOR, all, c, &flops, &bytes);
  fused_net(b, BRIM_MAPPO_CRITIC, batch, c, &flops, &bytes);
  add(b, c, w->sizes.updates, flops, bytes);
}

//---------------------------------- op by op ----------------------------------

// Observations, masks, the actor, actions, the step of all environments.
static void add_collect(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  if (w->fusing.rollout) {
    add_fused_collect(b, c);
    return;
  }
  const double envs = w->sizes.envs, steps = w->sizes.steps, agents = w->z.agents;
  const double state = (double)w->layout.state_bytes, all = envs * agents;
  const double input = row_bytes(&w->inputs[BRIM_MAPPO_ACTOR][1]);
  const double output = row_bytes(&w->outputs[BRIM_MAPPO_ACTOR]);
  add(b, c, steps, 0, envs * state + all * (input + sizeof(uint64_t)));
  add_program(b, c, steps, &brim_mappo_net(w, BRIM_MAPPO_ACTOR)->eval);
  add(b, c, steps, 0, all * (output + sizeof(uint64_t) + sizeof(int32_t) + sizeof(float)));
  add(b, c, steps, envs * w->shape.row->flops(w->shape.env.bytes),
      2 * envs * state + all * sizeof(int32_t) +
          envs * (w->rewards * (double)sizeof(float) + 1 + sizeof(int32_t)));
}

static void add_values(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  if (w->fusing.rollout) {
    add_fused_values(b, c);
    return;
  }
  const double each = (double)w->chunks.each, state = (double)w->layout.state_bytes;
  const double parts = ceil((double)w->chunks.rows / each);
  const double input = row_bytes(&w->inputs[BRIM_MAPPO_CRITIC][1]);
  add(b, c, parts, 0, each * (state + input));
  add_program(b, c, parts, &brim_mappo_net(w, BRIM_MAPPO_CRITIC)->eval);
  add(b, c, parts, 0, 2 * each * row_bytes(&w->outputs[BRIM_MAPPO_CRITIC]));
}

// Forward, the losses, backward.
static void add_passes(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  const double batch = w->sizes.batch, all = batch * w->z.agents, f = sizeof(float);
  double losses = all * (sizeof(uint64_t) + sizeof(int32_t) + f) + batch * w->rewards * 3 * f;
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const double rows = i == BRIM_MAPPO_ACTOR ? all : batch;
    losses += 2 * rows * row_bytes(&w->external[i].output);
    add_program(b, c, w->sizes.updates, &brim_mappo_net(w, i)->train);
  }
  add(b, c, w->sizes.updates, 0, losses);
}

// Advantages and returns; then for each update: its inputs, the gradients of both networks, the optimizer.
static void add_updates(const bench *b, cost *c) {
  const brim_mappo *w = b->w;
  const brim_mappo_sizes *s = &w->sizes;
  const double n = (double)s->envs * s->steps, rewards = w->rewards, f = sizeof(float);
  const double batch = s->batch, all = batch * w->z.agents, state = (double)w->layout.state_bytes;
  const double value = row_bytes(&w->outputs[BRIM_MAPPO_CRITIC]);
  add(b, c, 1, 0, n * (rewards * 4 * f + 1 + sizeof(int32_t)) + (double)w->chunks.rows * value);
  double inputs = batch * (state + sizeof(int32_t)) + all * sizeof(uint64_t);
  for (int i = 0; i < BRIM_MAPPO_NETS; i++) {
    const brim_net *net = brim_mappo_net(w, i);
    inputs += (i == BRIM_MAPPO_ACTOR ? all : batch) * row_bytes(&w->inputs[i][0]);
    add_call(b, c, s->updates, &net->norm_call);
    add_call(b, c, s->updates, &net->optimizer_call);
  }
  if (!w->fusing.rollout) add(b, c, s->updates, 0, inputs);
  if (w->fusing.update) {
    add_fused_update(b, c);
  } else {
    add_passes(b, c);
  }
}

static cost cost_of(const bench *b, int work) {
  cost c = {0};
  add_collect(b, &c);
  if (work != COLLECT) add_values(b, &c);
  if (work == ITERATION) add_updates(b, &c);
  return c;
}

//---------------------------------- work ----------------------------------

static brim_status collect(void *ctx) {
  const brim_mappo_iteration run = {.w = ((bench *)ctx)->w};
  return brim_mappo_collect(&run);
}

static brim_status rollout(void *ctx) {
  BRIM_TRY(collect(ctx));
  return brim_mappo_value_states(((bench *)ctx)->w);
}

static brim_status launch(bench *b, int work, brim_record *record) {
  brim_step_info info;
  if (work == ITERATION) return b->work->table->step(b->w, NULL, &info);
  return brim_record_run(record, work == COLLECT ? collect : rollout, b, false);
}

// Seconds of a launch, for each window.
static brim_status measure(bench *b, int work, int64_t windows, double *seconds) {
  brim_record *record = NULL;
  const int64_t launches = brim_option_int(b->parse, "launches", 25);
  brim_status status = brim_record_create(b->device, b->w->group, &record);
  for (int64_t i = -1; !status && i < windows; i++) {
    const brim_time start = brim_clock_now();
    const int64_t count = i < 0 ? WARM_UP : launches;
    for (int64_t k = 0; !status && k < count; k++) status = launch(b, work, record);
    if (!status) status = brim_device_sync(b->device);
    const double took = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    if (i >= 0) seconds[i] = took / (double)count;
  }
  brim_record_destroy(record);
  return status;
}

// Reads the report of the last launch: rows without an action, and episodes that ended in it.
static brim_status read_back(bench *b, int64_t *bad, int64_t *episodes) {
  brim_mappo *w = b->w;
  const char *report = w->memory + w->places.report;
  BRIM_TRY(brim_device_copy(b->device, w->report, report, sizeof *w->report, BRIM_COPY_D2H));
  BRIM_TRY(brim_device_copy(b->device, w->tally, w->block + w->layout.tally, sizeof *w->tally,
                            BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(b->device));
  *bad = w->report->bad;
  *episodes = w->tally->episodes;
  return BRIM_OK;
}

//---------------------------------- output ----------------------------------

typedef struct figures {
  brim_stats_summary seconds;
  cost cost;
  int64_t bad, episodes;
} figures;

static double agent_steps(const brim_mappo *w) {
  return (double)w->sizes.envs * w->sizes.steps * w->z.agents;
}

static brim_status print_json(const bench *b, int work, const figures *f) {
  const brim_mappo *w = b->w;
  json_t *line = json_object();
  const struct {
    const char *key;
    json_t *value;
  } rows[] = {
      {"benchmark", json_string("mappo")},
      {"work", json_string(work_names[work])},
      {"device", json_string(b->device->info.name)},
      {"library", json_string(b->device->info.library)},
      {"description", json_string(w->description)},
      {"precision", json_string(brim_precision_name(w->sizes.precision))},
      {"envs", json_integer(w->sizes.envs)},
      {"agents", json_integer(w->z.agents)},
      {"steps", json_integer(w->sizes.steps)},
      {"epochs", json_integer(w->how.epochs)},
      {"minibatches", json_integer(w->sizes.minibatches)},
      {"fused", json_string(brim_mappo_fused_text(w))},
      {"seconds", brim_json_number(f->seconds.median)},
      {"lowest_s", brim_json_number(f->seconds.min)},
      {"highest_s", brim_json_number(f->seconds.max)},
      {"windows", json_integer((json_int_t)f->seconds.n)},
      {"agent_steps_per_s", brim_json_number(agent_steps(w) / f->seconds.median)},
      {"flops", brim_json_number(f->cost.flops)},
      {"bytes", brim_json_number(f->cost.bytes)},
      {"ceiling_flops_per_s", brim_json_number(b->ceilings.flops_per_s)},
      {"ceiling_bytes_per_s", brim_json_number(b->ceilings.copy_bytes_per_s)},
      {"flops_s", brim_json_number(f->cost.flops / b->ceilings.flops_per_s)},
      {"bytes_s", brim_json_number(f->cost.bytes / b->ceilings.copy_bytes_per_s)},
      {"ceiling_s", brim_json_number(f->cost.seconds)},
      {"share", brim_json_number(f->cost.seconds / f->seconds.median)},
      {"state_bytes", json_integer((json_int_t)w->layout.state_bytes)},
      {"rollout_bytes", json_integer((json_int_t)w->layout.bytes)},
      {"episodes", json_integer(f->episodes)},
      {"bad_rows", json_integer(f->bad)},
  };
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const brim_status put = brim_json_put(line, rows[i].key, rows[i].value);
    if (!status) status = put;
  }
  if (!status) return bench_print_json(line);
  json_decref(line);
  return status;
}

static void print_text(const bench *b, int work, const figures *f) {
  const double steps = agent_steps(b->w), s = f->seconds.median;
  printf("%-9s  %9.3f ms (%.3f to %.3f)  %8.2f M agent-steps/s  %.3g GFLOP  %.3g GB",
         work_names[work], s * 1e3, f->seconds.min * 1e3, f->seconds.max * 1e3, steps / s * 1e-6,
         f->cost.flops * 1e-9, f->cost.bytes * 1e-9);
  if (isfinite(f->cost.seconds)) {
    printf("  %.3f ms at the ceilings (FLOPs alone %.3f, bytes alone %.3f), %.0f %%",
           f->cost.seconds * 1e3, f->cost.flops / b->ceilings.flops_per_s * 1e3,
           f->cost.bytes / b->ceilings.copy_bytes_per_s * 1e3, f->cost.seconds / s * 100);
  }
  printf("\n");
  if (f->bad) printf("           %lld rows without an action\n", (long long)f->bad);
}

//---------------------------------- the program ----------------------------------

static brim_status open_config(bench *b) {
  const brim_option_parse *p = b->parse;
  if (p->positional_count < 1) {
    return brim_fail(BRIM_EINVAL, "no config: bench_mappo configs/uav.yaml --device cuda");
  }
  const brim_config_options options = {.path = p->positional[0],
                                       .overrides = p->positional + 1,
                                       .override_count = p->positional_count - 1};
  return brim_config_load(&options, &b->config);
}

static brim_status open_work(bench *b) {
  brim_device_options how = {.measure_algorithms = true,
                             .threads = (int)brim_option_int(b->parse, "threads", 0)};
  BRIM_TRY(brim_registry_create(&b->registry));
  BRIM_TRY(brim_registry_load_default(b->registry));
  const char *device = brim_option_string(b->parse, "device", "auto");
  BRIM_TRY(brim_device_open(b->registry, device, &how, &b->device));
  const brim_work_context context = {.registry = b->registry, .device = b->device};
  BRIM_TRY(brim_work_open(&context, b->config, &b->work));
  if (strcmp(b->work->table->name, "mappo") != 0) {
    return brim_fail(BRIM_EINVAL, "the workload is %s, not mappo", b->work->table->name);
  }
  b->w = (brim_mappo *)b->work->state;
  return BRIM_OK;
}

static brim_status configure(bench *b) {
  const brim_machine_options machine = {0};
  brim_machine_ceilings c;
  b->ceilings = (bench_ceilings){(double)NAN, (double)NAN};
  if (!brim_option_flag(b->parse, "no-ceilings", false)) {
    BRIM_TRY(brim_machine_ceilings_get(b->device, &machine, &c));
    const char *precision = brim_precision_name(b->w->sizes.precision);
    b->ceilings = (bench_ceilings){c.copy_bytes_per_s, brim_machine_flops(&c, precision)};
  }
  const brim_setting setting = brim_work_setting(b->work);
  BRIM_TRY(b->work->table->configure(b->w, &setting));
  if (b->w->sizes.on_host) {
    return brim_fail(BRIM_EUNSUPPORTED, "environments run beside the device: nothing is recorded");
  }
  return BRIM_OK;
}

static bool wanted(const bench *b, int work) {
  const brim_option_value *given = brim_option_find(b->parse, "work");
  for (size_t i = 0; given && i < given->count; i++) {
    if (strcmp(given->values[i], work_names[work]) == 0) return true;
  }
  return !given;
}

static brim_status run(bench *b) {
  double seconds[MOST_WINDOWS];
  const int64_t windows = brim_option_int(b->parse, "windows", 5);
  if (windows < 1 || windows > MOST_WINDOWS || brim_option_int(b->parse, "launches", 25) < 1) {
    return brim_fail(BRIM_EINVAL, "--windows is 1 to %d, --launches 1 or more", MOST_WINDOWS);
  }
  BRIM_TRY(open_config(b));
  BRIM_TRY(open_work(b));
  BRIM_TRY(configure(b));
  const bool json = brim_option_flag(b->parse, "json", false);
  if (!json) {
    printf("%s on %s; fused kernels: %s\n", b->w->description, b->device->info.name,
           brim_mappo_fused_text(b->w));
  }
  for (int work = 0; work < WORKS; work++) {
    if (!wanted(b, work)) continue;
    figures f = {.cost = cost_of(b, work)};
    BRIM_TRY(measure(b, work, windows, seconds));
    BRIM_TRY(brim_stats_summarize(seconds, (size_t)windows, 1, &f.seconds));
    BRIM_TRY(read_back(b, &f.bad, &f.episodes));
    if (!json) print_text(b, work, &f);
    if (json) BRIM_TRY(print_json(b, work, &f));
  }
  return BRIM_OK;
}

static void print_help(void) {
  brim_str text;
  brim_str_init(&text);
  brim_option_help(tables, 100, &text);
  printf("usage: bench_mappo CONFIG.yaml [KEY=VALUE ...] [--device cuda] ...\n%s", text.data);
  brim_str_deinit(&text);
}

int main(int argc, char **argv) {
  brim_json_setup();  // must come before jansson's first allocation
  brim_option_parse parse;
  brim_status status =
      brim_option_parse_args(tables, argc - 1, (const char *const *)(argv + 1), &parse);
  if (status) {
    fprintf(stderr, "bench_mappo: %s\n", brim_status_detail());
    return 2;
  }
  bench b = {.parse = &parse};
  if (brim_option_flag(&parse, "help", false)) {
    print_help();
  } else {
    status = run(&b);
  }
  if (status) fprintf(stderr, "bench_mappo: %s\n", brim_status_detail());
  brim_work_close(b.work);
  brim_device_close(b.device);
  brim_registry_destroy(b.registry);
  brim_config_close(b.config);
  brim_option_parse_deinit(&parse);
  return status ? 1 : 0;
}
