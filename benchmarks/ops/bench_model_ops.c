// The calls of a training step timed one by one (src/measure/measure_machine.c), beside the machine's limits. Calls run
// in order, so each finds the inputs it would have in a step. Repeats find small tensors in the caches: times of small
// calls are a lower bound.
#include <stdio.h>
#include <string.h>

#include "bench_model.h"

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

// Prints only matrices and images: vectors with one value per channel add nothing to these.
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

// The input that a call overwrites, or NULL.
static const brim_tensor *overwritten(const brim_op_call *call) {
  for (int i = 0; i < call->in_count; i++) {
    for (int o = 0; o < call->out_count; o++) {
      if (call->in[i].data && call->in[i].data == call->out[o].data) return &call->in[i];
    }
  }
  return NULL;
}

// A call that works in place: its input is restored and the call run once more, so that later calls find the same data
// as in a step.
static brim_status time_in_place(brim_device_timer *t, const brim_device_work *w, double ms,
                                 double *seconds) {
  const brim_tensor *x = overwritten(w->call);
  if (!x) return brim_device_timer_measure(t, w, ms, 1, seconds);
  size_t bytes = brim_tensor_bytes(x);
  void *kept = NULL;
  BRIM_TRY(brim_device_alloc(t->device, BRIM_BUFFER_DEVICE, bytes, &kept));
  brim_status status = brim_device_copy(t->device, kept, x->data, bytes, BRIM_COPY_D2D);
  if (!status) status = brim_device_timer_measure(t, w, ms, 1, seconds);
  if (!status) status = brim_device_copy(t->device, x->data, kept, bytes, BRIM_COPY_D2D);
  if (!status) status = brim_device_work_enqueue(t->device, w, 1);
  if (!status) status = brim_device_sync(t->device);
  brim_device_free(t->device, BRIM_BUFFER_DEVICE, kept);
  return status;
}

static brim_status time_row(brim_device_timer *t, const brim_op_call *call, const char *phase,
                            const bench_ceilings *c, double ms, row *out) {
  *out = (row){.phase = phase, .op = call->op};
  shape_text(call, out->shape, sizeof out->shape);
  brim_op_cost(call, &out->flops, &out->bytes);
  const brim_device_work w = {.call = call};
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
    printf("\nceilings: linear %.1f TFLOP/s, copy %.1f GB/s\n", c->flops_per_s * 1e-12,
           c->copy_bytes_per_s * 1e-9);
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
  brim_device_timer t;
  brim_status status = brim_device_timer_init(&t, net->device, NULL);
  for (int32_t i = 0; !status && i < p->prepared; i++) {
    if (!brim_gnode_is_call(&p->graph.nodes[i])) continue;  // an external loss
    const char *phase = i < p->forward_count ? "forward" : "backward";
    status = time_row(&t, &p->calls[i], phase, ceilings, ms, &rows[n++]);
  }
  for (int i = 0; !status && i < 3; i++) {
    status = time_row(&t, update[i], "update", ceilings, ms, &rows[n++]);
  }
  brim_device_timer_deinit(&t);
  if (!status) status = print_all(rows, n, ceilings, json);
  brim_free(rows);
  return status;
}
