// The calls of a training step timed one by one, beside what the machine can do at most. Calls run
// in their order, so each finds the inputs it would have in a step; repeats of one call are
// recorded and launched together where the device can, so that launching is not what is measured.
// Repeats find small tensors in the caches: times of small calls are a lower bound.
#include <stdio.h>
#include <string.h>

#include "bench_model.h"

enum { MAX_SAMPLES = 50, MAX_INSIDE = 200 };

//---------------------------------- timing ----------------------------------

typedef struct timer {
  brim_device *device;
  brim_event *start, *end;
} timer;

static brim_status timer_init(timer *t, brim_device *device) {
  *t = (timer){.device = device};
  BRIM_TRY(brim_event_create(device, &t->start));
  return brim_event_create(device, &t->end);
}

static void timer_deinit(timer *t) {
  if (t->start) brim_event_destroy(t->device, t->start);
  if (t->end) brim_event_destroy(t->device, t->end);
}

// What is repeated: a call, or without one a copy of `bytes` from src to dst.
typedef struct work {
  const brim_op_call *call;
  void *dst, *src;
  size_t bytes;
} work;

static brim_status enqueue(brim_device *device, const work *w, int64_t times) {
  for (int64_t i = 0; i < times; i++) {
    BRIM_TRY(w->call ? brim_op_run(device, w->call)
                     : brim_device_copy(device, w->dst, w->src, w->bytes, BRIM_COPY_D2D));
  }
  return BRIM_OK;
}

// Seconds of one launch of the recorded piece or, without one, of `inside` repeats.
static brim_status sample(timer *t, const work *w, brim_graph_exec *recorded, int64_t inside,
                          double *seconds) {
  int64_t ns = 0;
  BRIM_TRY(brim_event_record(t->device, t->start));
  BRIM_TRY(recorded ? brim_graph_launch(t->device, recorded) : enqueue(t->device, w, inside));
  BRIM_TRY(brim_event_record(t->device, t->end));
  BRIM_TRY(brim_event_elapsed(t->device, t->start, t->end, &ns));
  *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
  return BRIM_OK;
}

// NULL where the device cannot record, or this work cannot be recorded.
static brim_graph_exec *record(brim_device *device, const work *w, int64_t times) {
  if (!brim_device_has_graphs(device) || brim_capture_begin(device)) return NULL;
  brim_graph_exec *recorded = NULL;
  brim_status status = enqueue(device, w, times);
  brim_status ended = brim_capture_end(device, &recorded);
  if (!status && !ended) return recorded;
  if (recorded) brim_graph_exec_destroy(device, recorded);
  return NULL;
}

static int64_t clamp(double value, int64_t low, int64_t high) {
  return value < (double)low ? low : value > (double)high ? high : (int64_t)value;
}

// Median seconds of one repeat, from about `ms` of device time.
static brim_status time_work(timer *t, const work *w, double ms, double *median) {
  double once = 0, times[MAX_SAMPLES];
  BRIM_TRY(sample(t, w, NULL, 1, &once));
  BRIM_TRY(sample(t, w, NULL, 1, &once));
  int64_t inside = clamp(ms * 1e-3 / 5 / once, 1, MAX_INSIDE);
  brim_graph_exec *recorded = inside > 1 ? record(t->device, w, inside) : NULL;
  brim_status status = recorded ? sample(t, w, recorded, inside, &once) : BRIM_OK;
  int64_t samples = clamp(ms * 1e-3 / once, 3, MAX_SAMPLES);
  for (int64_t i = 0; !status && i < samples; i++) {
    status = sample(t, w, recorded, inside, &times[i]);
    times[i] /= (double)inside;
  }
  if (recorded) brim_graph_exec_destroy(t->device, recorded);
  return status ? status : brim_stats_median(times, (size_t)samples, median);
}

//---------------------------------- ceilings ----------------------------------

// Three device tensors; the first two hold random values.
typedef struct three {
  void *data[3];
} three;

static void free_three(brim_device *device, three *x) {
  for (int i = 0; i < 3; i++) {
    if (x->data[i]) brim_device_free(device, BRIM_BUFFER_DEVICE, x->data[i]);
  }
}

static brim_status fill_random(brim_device *device, brim_dtype type, unsigned char *to,
                               size_t bytes) {
  size_t piece = 8u << 20;
  if (piece > bytes) piece = bytes;
  void *host = brim_alloc(piece);
  if (!host) return brim_fail(BRIM_ENOMEM, "out of memory for random values");
  bench_random_values(type, host, piece / brim_dtype_size(type));
  brim_status status = BRIM_OK;
  for (size_t done = 0; !status && done < bytes; done += piece) {
    size_t n = bytes - done < piece ? bytes - done : piece;
    status = brim_device_copy(device, to + done, host, n, BRIM_COPY_H2D);
    if (!status) status = brim_device_sync(device);
  }
  brim_free(host);
  return status;
}

static brim_status make_three(brim_device *device, brim_dtype type, size_t bytes, three *x) {
  memset(x, 0, sizeof *x);
  for (int i = 0; i < 3; i++) {
    BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &x->data[i]));
    if (i < 2) BRIM_TRY(fill_random(device, type, x->data[i], bytes));
  }
  return BRIM_OK;
}

// A call with two inputs and one output of the same shape (n, n).
static brim_status time_call(timer *t, brim_op_call *call, const three *x, double *seconds) {
  brim_device *device = t->device;
  BRIM_TRY(brim_op_prepare(device, call));
  brim_status status = BRIM_OK;
  if (call->workspace_bytes) {
    status = brim_device_alloc(device, BRIM_BUFFER_DEVICE, call->workspace_bytes, &call->workspace);
  }
  call->in[0].data = x->data[0];
  call->in[1].data = x->data[1];
  call->out[0].data = x->data[2];
  work w = {.call = call};
  if (!status) status = time_work(t, &w, 200, seconds);
  if (call->workspace) brim_device_free(device, BRIM_BUFFER_DEVICE, call->workspace);
  brim_op_release(device, call);
  return status;
}

static brim_op_call square_call(brim_op op, brim_dtype type, int64_t n) {
  const int64_t dim[] = {n, n};
  brim_op_call call = {.op = op, .in_count = 2, .out_count = 1};
  call.in[0] = call.in[1] = call.out[0] = brim_tensor_make(NULL, type, 2, dim);
  return call;
}

static brim_status measure_linear(timer *t, brim_dtype type, bool tf32, bench_ceilings *out) {
  int64_t n = out->linear_size;
  three x;
  brim_status status = make_three(t->device, type, (size_t)(n * n) * brim_dtype_size(type), &x);
  brim_op_call call = square_call(BRIM_OP_LINEAR, type, n);
  call.attr.tf32 = tf32;
  double seconds = 1;
  if (!status) status = time_call(t, &call, &x, &seconds);
  free_three(t->device, &x);
  out->flops_per_s = 2.0 * (double)n * (double)n * (double)n / seconds;
  return status;
}

// The better of a plain copy and an addition: on CPUs a copy may be one thread's.
static brim_status measure_copy(timer *t, bench_ceilings *out) {
  int64_t n = t->device->info.host_memory ? 8192 : 16384;  // 256 MiB, 1 GiB
  size_t bytes = (size_t)(n * n) * sizeof(float);
  three x;
  brim_status status = make_three(t->device, BRIM_F32, bytes, &x);
  double copy = 1, add = 1;
  work w = {.dst = x.data[2], .src = x.data[0], .bytes = bytes};
  if (!status) status = time_work(t, &w, 200, &copy);
  brim_op_call call = square_call(BRIM_OP_ADD, BRIM_F32, n);
  if (!status) status = time_call(t, &call, &x, &add);
  free_three(t->device, &x);
  double copied = 2 * (double)bytes / copy, added = 3 * (double)bytes / add;
  out->copy_bytes_per_s = copied > added ? copied : added;
  return status;
}

brim_status bench_ceilings_measure(brim_device *device, brim_dtype type, bool tf32,
                                   bench_ceilings *out) {
  bool gpu = device->info.kind == BRIM_DEVICE_GPU;
  bool slow = strcmp(device->backend->name, "ref") == 0;
  *out = (bench_ceilings){.linear_size = gpu ? 8192 : slow ? 256 : 1024};
  timer t;
  brim_status status = timer_init(&t, device);
  if (!status) status = measure_copy(&t, out);
  if (!status) status = measure_linear(&t, type, tf32, out);
  timer_deinit(&t);
  return status;
}

//---------------------------------- one call ----------------------------------

typedef struct row {
  const char *phase;
  brim_op op;
  char shape[160];
  double flops, bytes, seconds, ideal;  // ideal: at the higher of the two ceilings
} row;

static void shape_append(char *out, size_t size, const brim_tensor *t, const char *before) {
  size_t n = strlen(out);
  for (int i = 0; i < t->rank && n < size; i++) {
    n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "x" : before, (long long)t->dim[i]);
  }
}

// Matrices and images only: vectors of a channel each say nothing that these do not.
static void shape_text(const brim_op_call *call, char *out, size_t size) {
  const brim_tensor *main_input = &call->in[call->op == BRIM_OP_OPTIMIZER ? 2 : 0];
  snprintf(out, size, "%s", brim_dtype_name(main_input->dtype));
  int shown = 0;
  for (int i = 0; i < call->in_count; i++) {
    if (call->in[i].rank > 1 || call->in_count == 1) {
      shape_append(out, size, &call->in[i], shown++ ? "," : " ");
    }
  }
  const char *before = " -> ";
  for (int i = 0; i < call->out_count; i++) {
    if (call->out[i].rank <= 1 && call->op != BRIM_OP_OPTIMIZER) continue;
    if (brim_tensor_count(&call->out[i]) == 0) continue;
    shape_append(out, size, &call->out[i], before);
    before = ",";
  }
}

// The input that a call writes over, or NULL.
static const brim_tensor *overwritten(const brim_op_call *call) {
  for (int i = 0; i < call->in_count; i++) {
    for (int o = 0; o < call->out_count; o++) {
      if (call->in[i].data && call->in[i].data == call->out[o].data) return &call->in[i];
    }
  }
  return NULL;
}

// A call that works in place is put back and run once more, so that those after it find what they
// would in a step.
static brim_status time_in_place(timer *t, const work *w, double ms, double *seconds) {
  const brim_tensor *x = overwritten(w->call);
  if (!x) return time_work(t, w, ms, seconds);
  size_t bytes = brim_tensor_bytes(x);
  void *kept = NULL;
  BRIM_TRY(brim_device_alloc(t->device, BRIM_BUFFER_DEVICE, bytes, &kept));
  brim_status status = brim_device_copy(t->device, kept, x->data, bytes, BRIM_COPY_D2D);
  if (!status) status = time_work(t, w, ms, seconds);
  if (!status) status = brim_device_copy(t->device, x->data, kept, bytes, BRIM_COPY_D2D);
  if (!status) status = enqueue(t->device, w, 1);
  if (!status) status = brim_device_sync(t->device);
  brim_device_free(t->device, BRIM_BUFFER_DEVICE, kept);
  return status;
}

static brim_status time_row(timer *t, const brim_op_call *call, const char *phase,
                            const bench_ceilings *c, double ms, row *out) {
  *out = (row){.phase = phase, .op = call->op};
  shape_text(call, out->shape, sizeof out->shape);
  brim_op_cost(call, &out->flops, &out->bytes);
  work w = {.call = call};
  BRIM_TRY(time_in_place(t, &w, ms, &out->seconds));
  double compute = out->flops / c->flops_per_s, move = out->bytes / c->copy_bytes_per_s;
  out->ideal = compute > move ? compute : move;
  return BRIM_OK;
}

//---------------------------------- output ----------------------------------

static brim_status fill_json(const row *r, int64_t calls, json_t *line) {
  BRIM_TRY(brim_json_put(line, "benchmark", json_string(calls ? "model_op_sum" : "model_op")));
  if (!calls) BRIM_TRY(brim_json_put(line, "phase", json_string(r->phase)));
  BRIM_TRY(brim_json_put(line, "op", json_string(brim_op_name(r->op))));
  if (!calls) BRIM_TRY(brim_json_put(line, "shape", json_string(r->shape)));
  if (calls) BRIM_TRY(brim_json_put(line, "calls", json_integer(calls)));
  BRIM_TRY(brim_json_put(line, "flops", brim_json_number(r->flops)));
  BRIM_TRY(brim_json_put(line, "bytes", brim_json_number(r->bytes)));
  BRIM_TRY(brim_json_put(line, "us", brim_json_number(r->seconds * 1e6)));
  BRIM_TRY(brim_json_put(line, "gflops", brim_json_number(r->flops / r->seconds * 1e-9)));
  BRIM_TRY(brim_json_put(line, "gbytes_per_s", brim_json_number(r->bytes / r->seconds * 1e-9)));
  return brim_json_put(line, "share", brim_json_number(r->ideal / r->seconds));
}

static brim_status print_json_row(const row *r, int64_t calls) {
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = fill_json(r, calls, line);
  if (!status) return bench_print_json(line);
  json_decref(line);
  return status;
}

static brim_status fill_ceilings(const bench_ceilings *c, double total, double ideal,
                                 json_t *line) {
  BRIM_TRY(brim_json_put(line, "benchmark", json_string("model_ceilings")));
  BRIM_TRY(brim_json_put(line, "linear_size", json_integer(c->linear_size)));
  BRIM_TRY(brim_json_put(line, "linear_gflops", brim_json_number(c->flops_per_s * 1e-9)));
  BRIM_TRY(brim_json_put(line, "copy_gbytes_per_s", brim_json_number(c->copy_bytes_per_s * 1e-9)));
  BRIM_TRY(brim_json_put(line, "us", brim_json_number(total * 1e6)));
  return brim_json_put(line, "share", brim_json_number(ideal / total));
}

static brim_status print_json_ceilings(const bench_ceilings *c, double total, double ideal) {
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory for the result");
  brim_status status = fill_ceilings(c, total, ideal, line);
  if (!status) return bench_print_json(line);
  json_decref(line);
  return status;
}

static void print_row(const row *r, const char *first, double total) {
  printf("%-9s %-18s %10.1f us %5.1f %% %9.0f GFLOP/s %7.0f GB/s %5.1f %%  %s\n", first,
         brim_op_name(r->op), r->seconds * 1e6, r->seconds / total * 100,
         r->flops / r->seconds * 1e-9, r->bytes / r->seconds * 1e-9, r->ideal / r->seconds * 100,
         r->shape);
}

static int compare_sums(const row *a, const row *b) {
  return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

typedef struct op_sum {
  row row;
  int64_t calls;
} op_sum;

static size_t sum_kinds(const row *rows, size_t count, op_sum sums[BRIM_OP_COUNT]) {
  memset(sums, 0, BRIM_OP_COUNT * sizeof *sums);
  for (size_t i = 0; i < count; i++) {
    op_sum *s = &sums[rows[i].op];
    s->row.op = rows[i].op;
    s->calls++;
    s->row.flops += rows[i].flops;
    s->row.bytes += rows[i].bytes;
    s->row.seconds += rows[i].seconds;
    s->row.ideal += rows[i].ideal;
  }
  size_t n = 0;
  for (int i = 0; i < BRIM_OP_COUNT; i++) {
    if (!sums[i].calls) continue;
    op_sum next = sums[i];
    size_t at = n++;
    for (; at > 0 && compare_sums(&next.row, &sums[at - 1].row) < 0; at--) sums[at] = sums[at - 1];
    sums[at] = next;
  }
  return n;
}

static brim_status print_all(const row *rows, size_t count, const bench_ceilings *c, bool json) {
  op_sum sums[BRIM_OP_COUNT];
  size_t kinds = sum_kinds(rows, count, sums);
  double total = 0, ideal = 0;
  for (size_t i = 0; i < count; i++) total += rows[i].seconds, ideal += rows[i].ideal;
  for (size_t i = 0; i < count; i++) {
    if (json) {
      BRIM_TRY(print_json_row(&rows[i], 0));
    } else {
      print_row(&rows[i], rows[i].phase, total);
    }
  }
  if (!json) {
    printf("\nceilings: linear %lld^3 %.1f TFLOP/s, copy %.1f GB/s\n", (long long)c->linear_size,
           c->flops_per_s * 1e-12, c->copy_bytes_per_s * 1e-9);
  }
  for (size_t i = 0; i < kinds; i++) {
    char calls[32];
    snprintf(calls, sizeof calls, "%lld x", (long long)sums[i].calls);
    if (json) {
      BRIM_TRY(print_json_row(&sums[i].row, sums[i].calls));
    } else {
      print_row(&sums[i].row, calls, total);
    }
  }
  if (json) return print_json_ceilings(c, total, ideal);
  printf("%-9s %-18s %10.1f us; at the ceilings %.1f us, %.1f %%\n", "all", "", total * 1e6,
         ideal * 1e6, ideal / total * 100);
  return BRIM_OK;
}

brim_status bench_model_ops(brim_net *net, const bench_ceilings *ceilings, double ms, bool json) {
  const brim_program *p = &net->train;
  const brim_op_call *update[] = {&net->norm_call, &net->optimizer_call, &net->step_end_call};
  size_t count = (size_t)p->prepared + 3, n = 0;
  row *rows = brim_calloc(count, sizeof *rows);
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory for the rows of the table");
  timer t;
  brim_status status = timer_init(&t, net->device);
  for (int32_t i = 0; !status && i < p->prepared; i++) {
    const char *phase = i < p->forward_count ? "forward" : "backward";
    status = time_row(&t, &p->calls[i], phase, ceilings, ms, &rows[n++]);
  }
  for (int i = 0; !status && i < 3; i++) {
    status = time_row(&t, update[i], "update", ceilings, ms, &rows[n++]);
  }
  timer_deinit(&t);
  if (!status) status = print_all(rows, n, ceilings, json);
  brim_free(rows);
  return status;
}
