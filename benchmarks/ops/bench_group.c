// An actor and a critic as multi-agent training uses them: the actor's forward pass over all agents of a step, the
// critic's over a rollout, and updates of both over minibatches, each recorded and launched as one. Every line has its
// time beside that of the least bytes and FLOPs at the machine's ceilings. Inputs are on the device and losses cost
// nothing: only the networks' share is measured. Not a test: it asserts nothing.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_model.h"

enum { ACTOR, CRITIC, NETS, WINDOWS = 5, MOST_UPDATES = 64 };

static const brim_option table[] = {
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "ref, cpu, cuda, cuda:1"},
    {.name = "model", .kind = BRIM_OPTION_STRING, .help = "of both networks"},
    {.name = "precision", .kind = BRIM_OPTION_STRING, .help = "fp32, tf32, bf16, fp16"},
    {.name = "inputs", .kind = BRIM_OPTION_INT, .help = "of the actor"},
    {.name = "outputs", .kind = BRIM_OPTION_INT, .help = "of the actor"},
    {.name = "critic-inputs", .kind = BRIM_OPTION_INT, .help = "of the critic"},
    {.name = "critic-outputs", .kind = BRIM_OPTION_INT, .help = "of the critic"},
    {.name = "batch", .kind = BRIM_OPTION_INT, .help = "rows of the actor's minibatch"},
    {.name = "critic-batch", .kind = BRIM_OPTION_INT, .help = "rows of the critic's minibatch"},
    {.name = "eval-batch", .kind = BRIM_OPTION_INT, .help = "rows of a step of the rollout"},
    {.name = "critic-eval", .kind = BRIM_OPTION_INT, .help = "rows of the critic's evaluation"},
    {.name = "updates", .kind = BRIM_OPTION_INT, .help = "in one launch, at most 64"},
    {.name = "repeats", .kind = BRIM_OPTION_INT, .help = "launches of a window"},
    {.name = "ops", .kind = BRIM_OPTION_FLAG, .help = "time every call of an update as well"},
    {.name = "json", .kind = BRIM_OPTION_FLAG, .help = "--ops as JSON lines"},
    {.name = "help", .kind = BRIM_OPTION_FLAG, .help = "this text"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

typedef struct bench {
  const brim_option_parse *parse;
  brim_arena *arena;
  brim_net_spec spec[NETS];
  brim_device *device;
  brim_group *group;
  brim_net *net[NETS];
  brim_net_external external[NETS];
  bench_ceilings ceilings;
  int64_t updates, step;
} bench;

//---------------------------------- networks ----------------------------------

static brim_status parse_specs(bench *b) {
  const char *model =
      brim_option_string(b->parse, "model", "mlp(depth=2, hidden=128, activation=tanh)");
  const char *name = brim_option_string(b->parse, "precision", "bf16");
  brim_net_spec s = {.external_loss = true,
                     .input_in_place = true,
                     .input_rank = 1,
                     .channels = 1,
                     .scale = {1},
                     .accumulation = 1,
                     .clip_norm = 0.5,
                     .seed = 1};
  if (!brim_precision_parse(name, &s.precision)) {
    return brim_fail(BRIM_EINVAL, "precision '%s' is not known", name);
  }
  BRIM_TRY(bench_parse_component(b->arena, model, "--model", &s.model));
  BRIM_TRY(bench_parse_component(b->arena, "adam(lr=0.0003)", "the optimizer", &s.optimizer));
  s.input_dtype = brim_precision_dtype(s.precision);
  b->updates = brim_option_int(b->parse, "updates", 4);
  if (b->updates < 1 || b->updates > MOST_UPDATES) {
    return brim_fail(BRIM_EINVAL, "--updates is 1 to %d", MOST_UPDATES);
  }
  s.enqueued_steps = b->updates;
  for (int i = 0; i < NETS; i++) b->spec[i] = s;
  b->spec[ACTOR].input_dim[0] = brim_option_int(b->parse, "inputs", 32);
  b->spec[ACTOR].target_dim = brim_option_int(b->parse, "outputs", 5);
  b->spec[ACTOR].batch = brim_option_int(b->parse, "batch", 2621440);
  b->spec[ACTOR].eval_batch = brim_option_int(b->parse, "eval-batch", 163840);
  b->spec[CRITIC].input_dim[0] = brim_option_int(b->parse, "critic-inputs", 48);
  b->spec[CRITIC].target_dim = brim_option_int(b->parse, "critic-outputs", 1);
  b->spec[CRITIC].batch = brim_option_int(b->parse, "critic-batch", 262144);
  b->spec[CRITIC].eval_batch = brim_option_int(b->parse, "critic-eval", 1081344);
  return BRIM_OK;
}

// Uploaded once; the data stay on the device.
static brim_status fill_input(bench *b, const brim_tensor *t) {
  size_t bytes = brim_tensor_bytes(t);
  void *values = brim_alloc(bytes);
  if (!values) return brim_fail(BRIM_ENOMEM, "out of memory for random values");
  brim_random_values(t->dtype, values, (size_t)brim_tensor_count(t));
  brim_status status = brim_device_copy(b->device, t->data, values, bytes, BRIM_COPY_H2D);
  if (!status) status = brim_device_sync(b->device);
  brim_free(values);
  return status;
}

static brim_status open_group(bench *b) {
  BRIM_TRY(brim_group_create(b->device, b->spec, NETS, &b->group));
  for (int i = 0; i < NETS; i++) {
    brim_tensor input;
    b->net[i] = brim_group_net(b->group, i);
    BRIM_TRY(brim_net_external_loss(b->net[i], &b->external[i]));
    bool evaluation = b->spec[i].eval_batch > b->spec[i].batch;  // the larger of the two
    BRIM_TRY(brim_net_input(b->net[i], evaluation, &input));
    BRIM_TRY(fill_input(b, &input));
  }
  return BRIM_OK;
}

//---------------------------------- work ----------------------------------

static brim_status collect(void *ctx) { return brim_net_enqueue_outputs(((bench *)ctx)->net[0]); }

static brim_status evaluate(void *ctx) { return brim_net_enqueue_outputs(((bench *)ctx)->net[1]); }

// Zeros: a kernel that writes the gradient without reading anything.
static brim_status no_losses(void *ctx) {
  bench *b = ctx;
  for (int i = 0; i < NETS; i++) {
    const brim_tensor *g = &b->external[i].gradient;
    BRIM_TRY(brim_device_fill(b->device, g->data, 0, brim_tensor_bytes(g)));
  }
  return BRIM_OK;
}

static brim_status update(void *ctx) {
  bench *b = ctx;
  brim_group_part part = {.losses = no_losses, .ctx = b};
  for (int64_t k = 0; k < b->updates; k++) BRIM_TRY(brim_group_enqueue(b->group, &part, k));
  return BRIM_OK;
}

static brim_status put_states(bench *b) {
  brim_group_state states[MOST_UPDATES * NETS];
  for (int64_t k = 0; k < b->updates * NETS; k++) {
    int64_t rows = b->spec[k % NETS].batch;
    states[k] = (brim_group_state){
        .step = b->step + k / NETS + 1, .lr = 3e-4, .rows = rows, .step_rows = rows};
  }
  b->step += b->updates;
  return brim_group_put_states(b->group, states, b->updates);
}

//---------------------------------- times ----------------------------------

static double ideal(const bench *b, const brim_op_call *calls, const brim_gnode *nodes, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++) {
    double flops = 0, bytes = 0;
    if (nodes && !brim_gnode_is_call(&nodes[i])) continue;
    brim_op_cost(&calls[i], &flops, &bytes);
    double compute = flops / b->ceilings.flops_per_s, move = bytes / b->ceilings.copy_bytes_per_s;
    sum += compute > move ? compute : move;
  }
  return sum;
}

static double ideal_program(const bench *b, const brim_program *p) {
  return ideal(b, p->calls, p->graph.nodes, p->prepared);
}

static double ideal_update(const bench *b) {
  double sum = 0;
  for (int i = 0; i < NETS; i++) {
    const brim_net *net = b->net[i];
    sum += ideal_program(b, &net->train) + ideal(b, &net->norm_call, NULL, 1) +
           ideal(b, &net->optimizer_call, NULL, 1);
  }
  return sum;
}

// Seconds of one piece of work, which a launch does `parts` times.
static brim_status measure(bench *b, brim_status (*work)(void *), bool steps, int64_t parts,
                           double *seconds) {
  brim_record *record = NULL;
  double all[WINDOWS];
  int64_t repeats = brim_option_int(b->parse, "repeats", 20);
  brim_status status = brim_record_create(b->device, b->group, &record);
  for (int w = -1; !status && w < WINDOWS; w++) {
    brim_time start = brim_clock_now();
    for (int64_t i = 0; !status && i < (w < 0 ? 3 : repeats); i++) {
      if (steps) status = put_states(b);
      if (!status) status = brim_record_run(record, work, b, false);
    }
    if (!status) status = brim_device_sync(b->device);
    double took = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
    if (w >= 0) all[w] = took / (double)(repeats * parts);
  }
  brim_record_destroy(record);
  if (status) return status;
  brim_stats_summary s;
  BRIM_TRY(brim_stats_summarize(all, WINDOWS, 1, &s));
  *seconds = s.median;
  return BRIM_OK;
}

static brim_status print_line(const bench *b, const char *what, int64_t rows, double seconds,
                              double best) {
  json_t *line = json_object();
  brim_status status = brim_json_put(line, "benchmark", json_string("group"));
  if (!status) status = brim_json_put(line, "device", json_string(b->device->info.name));
  if (!status) status = brim_json_put(line, "work", json_string(what));
  if (!status) status = brim_json_put(line, "rows", json_integer(rows));
  if (!status) status = brim_json_put(line, "us", brim_json_number(seconds * 1e6));
  if (!status) status = brim_json_put(line, "ceiling_us", brim_json_number(best * 1e6));
  if (!status) status = brim_json_put(line, "share", brim_json_number(best / seconds));
  if (!status) return bench_print_json(line);
  json_decref(line);
  return status;
}

static brim_status run_all(bench *b) {
  double seconds = 0;
  BRIM_TRY(measure(b, collect, false, 1, &seconds));
  BRIM_TRY(print_line(b, "actor forward", b->spec[ACTOR].eval_batch, seconds,
                      ideal_program(b, &b->net[ACTOR]->eval)));
  BRIM_TRY(measure(b, evaluate, false, 1, &seconds));
  BRIM_TRY(print_line(b, "critic forward", b->spec[CRITIC].eval_batch, seconds,
                      ideal_program(b, &b->net[CRITIC]->eval)));
  BRIM_TRY(measure(b, update, true, b->updates, &seconds));
  BRIM_TRY(print_line(b, "update of both", b->spec[ACTOR].batch, seconds, ideal_update(b)));
  bool json = brim_option_flag(b->parse, "json", false);
  for (int i = 0; brim_option_flag(b->parse, "ops", false) && i < NETS; i++) {
    if (!json) printf("\n%s\n", i == ACTOR ? "actor" : "critic");
    BRIM_TRY(bench_model_ops(b->net[i], &b->ceilings, 10, json));
  }
  return BRIM_OK;
}

static brim_status run(bench *b, const brim_registry *registry) {
  const brim_machine_options machine = {0};
  brim_device_options how = {.measure_algorithms = true};
  brim_machine_ceilings c;
  BRIM_TRY(parse_specs(b));
  const char *device = brim_option_string(b->parse, "device", "auto");
  BRIM_TRY(brim_device_open(registry, device, &how, &b->device));
  BRIM_TRY(brim_machine_ceilings_get(b->device, &machine, &c));
  const char *precision = brim_precision_name(b->spec[0].precision);
  b->ceilings = (bench_ceilings){c.copy_bytes_per_s, brim_machine_flops(&c, precision)};
  BRIM_TRY(open_group(b));
  return run_all(b);
}

static brim_status open_and_run(const bench_run *r) {
  bench b = {.parse = r->parse, .arena = r->arena};
  brim_status status = run(&b, r->registry);
  brim_group_destroy(b.group);
  brim_device_close(b.device);
  return status;
}

int main(int argc, char **argv) {
  static const bench_program program = {.name = "bench_group",
                                        .usage = "[--device cuda] [--ops] ...",
                                        .tables = tables,
                                        .run = open_and_run};
  return bench_main(&program, argc, argv);
}
