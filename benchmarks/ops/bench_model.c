// Training steps of one model on one device through the engine: samples/s, planned memory and FLOPs as one JSON line;
// with --ops every call of the step beside the machine's ceilings. Not a test: it asserts nothing. Data is random and,
// on devices with their own memory, already there unless --input-from-host.
#include "bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_WINDOWS = 5, MAX_WINDOWS = 100, MAX_AUTO_STEPS = 10000 };

static const brim_option table[] = {
    {.name = "device", .kind = BRIM_OPTION_STRING, .help = "ref, cpu, cuda, cuda:1"},
    {.name = "threads", .kind = BRIM_OPTION_INT, .help = "of CPU devices; 0 = all"},
    {.name = "model", .kind = BRIM_OPTION_STRING, .help = "'resnet18', 'wideresnet(width=2)'"},
    {.name = "input", .kind = BRIM_OPTION_STRING, .help = "one sample: 32x32x3, 5160x2"},
    {.name = "type", .kind = BRIM_OPTION_STRING, .help = "of the input: u8 or f32"},
    {.name = "classes", .kind = BRIM_OPTION_INT, .help = "labels; loss cross_entropy"},
    {.name = "targets", .kind = BRIM_OPTION_INT, .help = "values; loss mse, with 2 views ntxent"},
    {.name = "views", .kind = BRIM_OPTION_INT, .help = "2: contrastive"},
    {.name = "batch", .kind = BRIM_OPTION_INT, .help = "samples of a micro-batch"},
    {.name = "accumulation", .kind = BRIM_OPTION_INT, .help = "micro-batches of a step"},
    {.name = "precision", .kind = BRIM_OPTION_STRING, .help = "fp32, tf32, bf16, fp16"},
    {.name = "optimizer", .kind = BRIM_OPTION_STRING, .help = "'sgd(lr=0.01, momentum=0.9)'"},
    {.name = "steps", .kind = BRIM_OPTION_INT, .help = "of a window; 0 = a quarter of a second"},
    {.name = "windows", .kind = BRIM_OPTION_INT, .help = "5 or more; their median counts"},
    {.name = "warmup", .kind = BRIM_OPTION_INT, .help = "steps before the first window"},
    {.name = "eager", .kind = BRIM_OPTION_FLAG, .help = "op by op: nothing fused or recorded"},
    {.name = "checkpointing", .kind = BRIM_OPTION_FLAG, .help = "recompute all activations"},
    {.name = "cache-folder", .kind = BRIM_OPTION_STRING, .help = "of chosen algorithms"},
    {.name = "measure", .kind = BRIM_OPTION_FLAG, .negatable = true, .help = "algorithms"},
    {.name = "input-from-host", .kind = BRIM_OPTION_FLAG, .help = "upload every batch"},
    {.name = "hold", .kind = BRIM_OPTION_FLAG, .help = "stand still after warm-up: a line in, out"},
    {.name = "ops", .kind = BRIM_OPTION_FLAG, .help = "time every call of a step as well"},
    {.name = "ops-ms", .kind = BRIM_OPTION_FLOAT, .help = "device time for each call"},
    {.name = "json", .kind = BRIM_OPTION_FLAG, .help = "--ops as JSON lines"},
    {.name = "help", .kind = BRIM_OPTION_FLAG, .help = "this text"},
    {.name = NULL},
};
static const brim_option *const tables[] = {table, NULL};

// A bench under construction; everything borrowed points into `arena` or argv.
typedef struct bench {
  const brim_option_parse *parse;
  brim_arena *arena;
  const char *model_text, *optimizer_text;
  brim_net_spec spec;
  brim_component loss;
  double lr;
  brim_device *device;
  brim_net *net;
  bool measured;   // algorithms
  bool from_host;  // each step uploads its batch
  void *input, *target;
  int64_t rows;  // in a micro-batch
  int64_t step;  // made so far
} bench;

//---------------------------------- options ----------------------------------

static brim_status parse_shape(const char *text, brim_net_spec *spec) {
  const char *p = text;
  while (spec->input_rank < 4) {
    char *end;
    long long value = strtoll(p, &end, 10);
    if (end == p || value < 1) break;
    spec->input_dim[spec->input_rank++] = value;
    p = end;
    if (*p != 'x') break;
    p++;
  }
  if (*p || spec->input_rank == 0) {
    return brim_fail(BRIM_EINVAL, "the input is '%s', expected a shape such as 32x32x3", text);
  }
  return BRIM_OK;
}

static brim_status parse_input(bench *b) {
  brim_net_spec *s = &b->spec;
  BRIM_TRY(parse_shape(brim_option_string(b->parse, "input", "32x32x3"), s));
  const char *type = brim_option_string(b->parse, "type", "f32");
  if (strcmp(type, "u8") != 0 && strcmp(type, "f32") != 0) {
    return brim_fail(BRIM_EINVAL, "the type of the input is '%s', expected u8 or f32", type);
  }
  s->input_dtype = strcmp(type, "u8") == 0 ? BRIM_U8 : BRIM_F32;
  s->channels = 1;
  bool bytes = s->input_dtype == BRIM_U8;
  s->scale[0] = bytes ? 1 / 64.0f : 1;
  s->shift[0] = bytes ? -2 : 0;
  return BRIM_OK;
}

static brim_status parse_loss(bench *b) {
  brim_net_spec *s = &b->spec;
  s->classes = brim_option_int(b->parse, "classes", 0);
  s->target_dim = brim_option_int(b->parse, "targets", 0);
  s->views = (int32_t)brim_option_int(b->parse, "views", 1);
  if ((s->classes > 0) == (s->target_dim > 0)) {
    return brim_fail(BRIM_EINVAL, "say either --classes N or --targets N");
  }
  b->loss.name = s->views == 2 ? "ntxent" : s->classes > 0 ? "cross_entropy" : "mse";
  s->loss = &b->loss;
  return BRIM_OK;
}

static brim_status parse_spec(bench *b) {
  brim_net_spec *s = &b->spec;
  b->model_text = brim_option_string(b->parse, "model", "resnet18");
  b->optimizer_text =
      brim_option_string(b->parse, "optimizer", "sgd(lr=0.01, momentum=0.9, weight_decay=0.0005)");
  BRIM_TRY(bench_parse_component(b->arena, b->model_text, "--model", &s->model));
  BRIM_TRY(bench_parse_component(b->arena, b->optimizer_text, "--optimizer", &s->optimizer));
  b->lr = brim_component_float(s->optimizer, "lr", 0.01);
  BRIM_TRY(parse_input(b));
  BRIM_TRY(parse_loss(b));
  s->batch = brim_option_int(b->parse, "batch", 64);
  s->accumulation = brim_option_int(b->parse, "accumulation", 1);
  s->eager = brim_option_flag(b->parse, "eager", false);
  bool all = brim_option_flag(b->parse, "checkpointing", false);
  s->recompute = all ? BRIM_RECOMPUTE_ALL : BRIM_RECOMPUTE_NONE;
  s->seed = 1;
  const char *precision = brim_option_string(b->parse, "precision", "fp32");
  if (!brim_precision_parse(precision, &s->precision)) {
    return brim_fail(BRIM_EINVAL, "precision '%s' is not known", precision);
  }
  return BRIM_OK;
}

static brim_status open_device(bench *b, const brim_registry *registry) {
  brim_device_options how = {.threads = (int)brim_option_int(b->parse, "threads", 0)};
  b->measured = brim_option_flag(b->parse, "measure", true);
  how.measure_algorithms = b->measured;
  const char *folder = brim_option_string(b->parse, "cache-folder", "");
  if ((size_t)snprintf(how.cache_folder, sizeof how.cache_folder, "%s", folder) >=
      sizeof how.cache_folder) {
    return brim_fail(BRIM_EINVAL, "the cache folder's name is too long");
  }
  const char *device = brim_option_string(b->parse, "device", "auto");
  return brim_device_open(registry, device, &how, &b->device);
}

//---------------------------------- data ----------------------------------

// A linear congruence suffices to spread the labels.
static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static brim_status make_batch(bench *b) {
  const brim_net_spec *s = &b->spec;
  size_t values = (size_t)b->rows * b->net->train.input_row_bytes / brim_dtype_size(s->input_dtype);
  BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_HOST,
                             (size_t)b->rows * b->net->train.input_row_bytes, &b->input));
  size_t targets = (size_t)(b->rows * (s->classes > 0 ? 1 : s->target_dim));
  BRIM_TRY(brim_device_alloc(b->device, BRIM_BUFFER_HOST, targets * 4, &b->target));
  brim_random_values(s->input_dtype, b->input, values);
  if (s->classes == 0) {
    brim_random_values(BRIM_F32, b->target, (size_t)(b->rows * s->target_dim));
    return BRIM_OK;
  }
  uint32_t state = 7;
  int32_t *labels = b->target;
  for (int64_t i = 0; i < b->rows; i++) {
    labels[i] = (int32_t)((int64_t)next_random(&state) % s->classes);
  }
  return BRIM_OK;
}

//---------------------------------- steps ----------------------------------

static brim_status one_step(bench *b, bool upload) {
  int64_t n = b->spec.accumulation;
  int64_t step = ++b->step;
  for (int64_t i = 0; i < n; i++) {
    brim_net_micro micro = {.step = step, .step_rows = b->rows * n, .first = i == 0};
    micro.batch = (brim_batch){.rows = b->rows, .row_offset = b->rows * i};
    if (upload) {
      micro.batch.input = b->input;
      micro.batch.target = b->target;
    }
    BRIM_TRY(i + 1 < n ? brim_net_train(b->net, &micro, NULL)
                       : brim_net_step(b->net, &micro, b->lr, NULL));
  }
  return BRIM_OK;
}

static brim_status window(bench *b, int64_t steps, double *seconds) {
  brim_time start = brim_clock_now();
  for (int64_t i = 0; i < steps; i++) BRIM_TRY(one_step(b, b->from_host));
  BRIM_TRY(brim_device_sync(b->device));
  *seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  return BRIM_OK;
}

// Uploads the batch to both staging slots, then makes steps until pieces are recorded.
static brim_status warm_up(bench *b) {
  int64_t steps = brim_option_int(b->parse, "warmup", 8);
  for (int64_t i = 0; i < BRIM_EXEC_SLOTS; i++) BRIM_TRY(one_step(b, true));
  for (int64_t i = BRIM_EXEC_SLOTS; i < steps; i++) BRIM_TRY(one_step(b, b->from_host));
  return brim_device_sync(b->device);
}

static brim_status choose_steps(bench *b, int64_t *steps) {
  *steps = brim_option_int(b->parse, "steps", 0);
  if (*steps > 0) return BRIM_OK;
  double seconds = 0;
  BRIM_TRY(window(b, 2, &seconds));
  double wanted = seconds > 0 ? 0.25 / (seconds / 2) : MAX_AUTO_STEPS;
  *steps = wanted < 1 ? 1 : wanted > MAX_AUTO_STEPS ? MAX_AUTO_STEPS : (int64_t)wanted;
  return BRIM_OK;
}

static brim_status measure(bench *b, int64_t *steps, brim_stats_summary *out) {
  double ms[MAX_WINDOWS];
  int64_t windows = brim_option_int(b->parse, "windows", MIN_WINDOWS);
  if (windows < MIN_WINDOWS) windows = MIN_WINDOWS;
  if (windows > MAX_WINDOWS) windows = MAX_WINDOWS;
  BRIM_TRY(warm_up(b));
  BRIM_TRY(choose_steps(b, steps));
  for (int64_t i = 0; i < windows; i++) {
    double seconds = 0;
    BRIM_TRY(window(b, *steps, &seconds));
    ms[i] = seconds / (double)*steps * 1e3;
  }
  return brim_stats_summarize(ms, (size_t)windows, 1, out);
}

//---------------------------------- result ----------------------------------

static brim_status put_what(const bench *b, json_t *line) {
  const brim_net_spec *s = &b->spec;
  const brim_device_info *info = &b->device->info;
  char shape[64];
  size_t n = 0;
  for (int i = 0; i < s->input_rank; i++) {
    n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", i ? "x" : "",
                          (long long)s->input_dim[i]);
  }
  BRIM_TRY(brim_json_put(line, "benchmark", json_string("model_step")));
  BRIM_TRY(brim_json_put(line, "who", json_string("brim")));
  BRIM_TRY(brim_json_put(line, "backend", json_string(b->device->backend->name)));
  BRIM_TRY(brim_json_put(line, "device", json_string(info->name)));
  BRIM_TRY(brim_json_put(line, "library", json_string(info->library)));
  BRIM_TRY(brim_json_put(line, "threads", json_integer(info->threads)));
  BRIM_TRY(brim_json_put(line, "model", json_string(b->model_text)));
  BRIM_TRY(brim_json_put(line, "optimizer", json_string(b->optimizer_text)));
  BRIM_TRY(brim_json_put(line, "loss", json_string(b->loss.name)));
  BRIM_TRY(brim_json_put(line, "input", json_string(shape)));
  BRIM_TRY(brim_json_put(line, "input_type", json_string(brim_dtype_name(s->input_dtype))));
  BRIM_TRY(brim_json_put(line, "precision", json_string(brim_precision_name(s->precision))));
  BRIM_TRY(brim_json_put(line, "batch", json_integer(s->batch)));
  BRIM_TRY(brim_json_put(line, "accumulation", json_integer(s->accumulation)));
  BRIM_TRY(brim_json_put(line, "views", json_integer(s->views)));
  BRIM_TRY(brim_json_put(line, "eager", json_boolean(s->eager)));
  BRIM_TRY(brim_json_put(line, "checkpointing", json_boolean(s->recompute != BRIM_RECOMPUTE_NONE)));
  BRIM_TRY(brim_json_put(line, "input_from_host", json_boolean(b->from_host)));
  return brim_json_put(line, "recorded", json_boolean(b->net->exec.capture.on));
}

static brim_status put_algorithms(const bench *b, json_t *line) {
  char *text = NULL;
  BRIM_TRY(brim_device_algorithms(b->device, &text));
  int64_t lines = 0;
  for (const char *p = text; *p; p++) lines += *p == '\n';
  brim_free(text);
  BRIM_TRY(brim_json_put(line, "algorithms_measured", json_boolean(b->measured)));
  return brim_json_put(line, "algorithms", json_integer(lines));
}

static brim_status put_plan(const brim_plan *plan, json_t *line) {
  json_t *rows = json_object();
  brim_status status = rows ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the result");
  for (size_t i = 0; !status && i < plan->row_count; i++) {
    status = brim_json_put(rows, plan->rows[i].name, json_integer((json_int_t)plan->rows[i].bytes));
  }
  if (status) {
    json_decref(rows);
    return status;
  }
  BRIM_TRY(brim_json_put(line, "planned_bytes",
                         json_integer((json_int_t)plan->bytes[BRIM_PLACE_DEVICE])));
  BRIM_TRY(brim_json_put(line, "planned", rows));
  BRIM_TRY(brim_json_put(line, "parameters", json_integer((json_int_t)plan->parameter_count)));
  BRIM_TRY(brim_json_put(line, "flops_per_step", brim_json_number(plan->flops_per_step)));
  return brim_json_put(line, "bytes_per_step", brim_json_number(plan->bytes_per_step));
}

// A network that diverged may be faster; the line shows it.
static brim_status put_health(bench *b, json_t *line) {
  brim_net_metrics m;
  BRIM_TRY(brim_net_read_metrics(b->net, true, &m));
  BRIM_TRY(brim_json_put(line, "mean_loss", brim_json_number(m.loss_sum / m.rows)));
  BRIM_TRY(brim_json_put(line, "bad_rows", brim_json_number(m.bad_rows)));
  return brim_json_put(line, "skipped_steps", json_integer((json_int_t)m.skipped_steps));
}

static brim_status fill_result(bench *b, json_t *line, double setup_s, int64_t steps,
                               const brim_stats_summary *s) {
  brim_plan plan = {0};
  brim_net_fill_plan(b->net, &plan);
  BRIM_TRY(put_what(b, line));
  BRIM_TRY(put_algorithms(b, line));
  BRIM_TRY(brim_json_put(line, "setup_s", brim_json_number(setup_s)));
  BRIM_TRY(brim_json_put(line, "windows", json_integer((json_int_t)s->n)));
  BRIM_TRY(brim_json_put(line, "steps_per_window", json_integer(steps)));
  BRIM_TRY(brim_json_put(line, "samples_per_s",
                         brim_json_number(plan.samples_per_step / s->median * 1e3)));
  BRIM_TRY(brim_json_put(line, "ms", brim_json_number(s->median)));
  BRIM_TRY(brim_json_put(line, "ms_min", brim_json_number(s->min)));
  BRIM_TRY(brim_json_put(line, "ms_max", brim_json_number(s->max)));
  BRIM_TRY(brim_json_put(line, "ms_mad", brim_json_number(s->mad)));
  BRIM_TRY(brim_json_put(line, "tflops", brim_json_number(plan.flops_per_step / s->median * 1e-9)));
  BRIM_TRY(put_plan(&plan, line));
  return put_health(b, line);
}

static brim_status report(bench *b, double setup_s, int64_t steps, const brim_stats_summary *s) {
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = fill_result(b, line, setup_s, steps, s);
  if (!status) return bench_print_json(line);
  json_decref(line);
  return status;
}

//---------------------------------- main ----------------------------------

static brim_status run_ops(bench *b) {
  const brim_machine_options how = {0};
  const char *precision = brim_precision_name(b->spec.precision);
  brim_machine_ceilings machine;
  BRIM_TRY(brim_machine_ceilings_get(b->device, &how, &machine));
  bench_ceilings ceilings = {machine.copy_bytes_per_s, brim_machine_flops(&machine, precision)};
  double ms = brim_option_float(b->parse, "ops-ms", 10);
  return bench_model_ops(b->net, &ceilings, ms, brim_option_flag(b->parse, "json", false));
}

// Prints a line when all memory is allocated, then keeps it until a line or the end of stdin. For measurements of
// memory from outside.
static brim_status hold(bench *b) {
  brim_plan plan = {0};
  BRIM_TRY(warm_up(b));
  brim_net_fill_plan(b->net, &plan);
  json_t *line = json_object();
  brim_status status = brim_json_put(line, "event", json_string("ready"));
  if (!status) status = put_plan(&plan, line);
  if (status) {
    json_decref(line);
    return status;
  }
  BRIM_TRY(bench_print_json(line));
  int c;
  do {
    c = getchar();
  } while (c != '\n' && c != EOF);
  return BRIM_OK;
}

static brim_status run(bench *b, const brim_registry *registry) {
  BRIM_TRY(parse_spec(b));
  BRIM_TRY(open_device(b, registry));
  b->from_host =
      b->device->info.host_memory || brim_option_flag(b->parse, "input-from-host", false);
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_net_create(b->device, &b->spec, &b->net));
  double setup_s = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
  b->rows = b->net->batch;
  BRIM_TRY(make_batch(b));
  if (brim_option_flag(b->parse, "hold", false)) return hold(b);
  int64_t steps = 0;
  brim_stats_summary summary;
  BRIM_TRY(measure(b, &steps, &summary));
  BRIM_TRY(report(b, setup_s, steps, &summary));
  return brim_option_flag(b->parse, "ops", false) ? run_ops(b) : BRIM_OK;
}

static brim_status open_and_run(const bench_run *r) {
  bench b = {.parse = r->parse, .arena = r->arena};
  brim_status status = run(&b, r->registry);
  brim_net_destroy(b.net);
  if (b.input) brim_device_free(b.device, BRIM_BUFFER_HOST, b.input);
  if (b.target) brim_device_free(b.device, BRIM_BUFFER_HOST, b.target);
  brim_device_close(b.device);
  return status;
}

int main(int argc, char **argv) {
  static const bench_program program = {
      .name = "bench_model",
      .usage = "--model 'resnet18' --input 32x32x3 --classes 10 ...",
      .tables = tables,
      .run = open_and_run};
  return bench_main(&program, argc, argv);
}
