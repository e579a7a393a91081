// Central differences on ref; see gradient.h.
#include "cases/gradient.h"

#include <math.h>

#include "base/base.h"
#include "test.h"

// Coordinates tried per tensor; one in four of them if an evaluation is expensive.
enum { SAMPLES = 12 };

static brim_registry *registry;
static brim_device *ref;

int gradient_setup(void **state) {
  (void)state;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_device_open(registry, "ref", NULL, &ref));
  return 0;
}

int gradient_teardown(void **state) {
  (void)state;
  brim_device_close(ref);
  brim_registry_destroy(registry);
  return 0;
}

double *gradient_numbers(int64_t count) {
  double *p = brim_calloc((size_t)count, sizeof(double));
  assert_non_null(p);
  return p;
}

double *gradient_random(int64_t count, uint64_t slot) {
  double *p = gradient_numbers(count);
  for (int64_t i = 0; i < count; i++) p[i] = brim_case_uniform(77, slot, (uint64_t)i);
  return p;
}

double *gradient_copy(const brim_tensor *t) {
  double *p = gradient_numbers(brim_tensor_count(t));
  memcpy(p, t->data, brim_tensor_bytes(t));
  return p;
}

brim_tensor gradient_like(const brim_tensor *t, double *data) {
  brim_tensor other = *t;
  other.data = data;
  return other;
}

brim_tensor gradient_vec(double *data, int64_t n) {
  return brim_tensor_make(data, BRIM_F64, 1, (const int64_t[]){n});
}

brim_tensor gradient_mat(double *data, int64_t n, int64_t m) {
  return brim_tensor_make(data, BRIM_F64, 2, (const int64_t[]){n, m});
}

void gradient_run(brim_op_call *call) {
  assert_ok(brim_op_prepare(ref, call));
  if (call->workspace_bytes) {
    assert_ok(brim_device_alloc(ref, BRIM_BUFFER_DEVICE, call->workspace_bytes, &call->workspace));
  }
  assert_ok(brim_op_run(ref, call));
  brim_op_release(ref, call);
  brim_device_free(ref, BRIM_BUFFER_DEVICE, call->workspace);
  call->workspace = NULL;
}

//---------------------------------- the differences ----------------------------------

double gradient_weighted_output(const gradient_scalar *s) {
  brim_op_call call = s->call;
  gradient_run(&call);
  double sum = 0;
  int64_t count = brim_tensor_count(&call.out[0]);
  for (int64_t i = 0; i < count; i++) sum += s->r[i] * ((const double *)call.out[0].data)[i];
  return sum;
}

double gradient_scaled_loss(const gradient_scalar *s) {
  brim_op_call call = s->call;
  call.out_count = 1;
  memset(call.out[0].data, 0, BRIM_METRIC_COUNT * sizeof(double));
  gradient_run(&call);
  double scale = s->c.state[BRIM_STATE_GRAD_SCALE] * s->c.state[BRIM_STATE_LOSS_SCALE];
  return ((const double *)call.out[0].data)[BRIM_METRIC_LOSS] * scale;
}

void gradient_check(const gradient_scalar *s, const char *what, double *x, const double *gradient,
                    int64_t count, int *checked) {
  static uint64_t index;
  double scale = 0, flops = 0, bytes;
  // other values are chains of ops, of which this test has only the first call
  if (s->value == gradient_weighted_output || s->value == gradient_scaled_loss) {
    brim_op_cost(&s->call, &flops, &bytes);
  }
  const uint64_t of = flops > 1e5 ? 4 : 1;
  for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(gradient[i]));
  for (int k = 0; k < SAMPLES && k < count; k++) {
    ++*checked;  // or another sample takes it
    if (!test_is_sampled(index++, of)) continue;
    int64_t i = count <= SAMPLES ? k : (int64_t)((uint64_t)k * 2654435761u % (uint64_t)count);
    double old = x[i], h = 1e-5;
    x[i] = old + h;
    double above = s->value(s);
    x[i] = old - h;
    double below = s->value(s);
    x[i] = old;
    double numeric = (above - below) / (2 * h);
    if (!(fabs(numeric - gradient[i]) <= 1e-6 * fmax(scale, 1e-3))) {
      fail_msg("%s: d/d%s[%lld] is %.12g, differences give %.12g", s->c.name, what, (long long)i,
               gradient[i], numeric);
    }
  }
}

// Makes the case in f64 with its values; false if it is too large for differences.
bool gradient_open(size_t index, brim_op op, gradient_scalar *s, brim_case_data *data) {
  brim_case_get(index, &s->c);
  brim_case_set_type(&s->c, BRIM_F64);
  brim_case_call(&s->c, &s->call);
  bool large = brim_tensor_count(&s->call.in[0]) > 40000;
  if (s->c.op != op || large || s->c.nonfinite || s->c.ties) return false;
  assert_ok(brim_case_data_create(&s->c, data));
  for (int i = 0; i < s->call.in_count; i++) s->call.in[i].data = data->in[i];
  for (int i = 0; i < s->call.out_count; i++) s->call.out[i].data = data->out[i];
  s->value = gradient_weighted_output;
  s->r = gradient_random(brim_tensor_count(&s->call.out[0]), 50);
  return true;
}

void gradient_close(gradient_scalar *s, brim_case_data *data) {
  brim_case_data_destroy(data);
  brim_free(s->r);
}
