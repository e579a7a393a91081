// Batch norm over ranks: the batches of BATCHNORM's and BATCHNORM_BWD's cases are cut into parts, one for each rank.
// The ops on the parts together give the result of the op on the whole batch, on every backend that loads here: a
// sample of the cases, all with BRIM_TEST_FULL. On ref also the gradient, by differences of the forward in parts.
#include "base/base.h"
#include "cases/gradient.h"
#include "test.h"

static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16, BRIM_F64};
static const int64_t cuts[] = {1, 2, 4};
enum { TYPES = sizeof(types) / sizeof(types[0]), CUTS = sizeof(cuts) / sizeof(cuts[0]) };

//---------------------------------- parts ----------------------------------

// Buffers beside those of the whole batch's call.
typedef struct parts {
  brim_device *device;
  int64_t count, channels;
  brim_dtype type;      // type of the statistics
  brim_tensor state;    // (parts, 16): each has its own valid rows
  brim_tensor figures;  // (parts, 3, C), or (parts, 2, C)
  brim_tensor total;
} parts;

static brim_tensor on_device(brim_device *device, brim_dtype type, int rank, const int64_t *dim) {
  brim_tensor t = brim_tensor_make(NULL, type, rank, dim);
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, brim_tensor_bytes(&t), &t.data));
  return t;
}

static void put(brim_device *device, const brim_tensor *t, const double *values) {
  void *raw = brim_alloc(brim_tensor_bytes(t));
  assert_non_null(raw);
  brim_case_encode(t->dtype, values, brim_tensor_count(t), raw);
  assert_ok(brim_device_copy(device, t->data, raw, brim_tensor_bytes(t), BRIM_COPY_H2D));
  assert_ok(brim_device_sync(device));
  brim_free(raw);
}

static void get(brim_device *device, const brim_tensor *t, double *values) {
  void *raw = brim_alloc(brim_tensor_bytes(t));
  assert_non_null(raw);
  assert_ok(brim_device_copy(device, raw, t->data, brim_tensor_bytes(t), BRIM_COPY_D2H));
  assert_ok(brim_device_sync(device));
  brim_case_decode(t->dtype, raw, brim_tensor_count(t), values);
  brim_free(raw);
}

static int64_t first_row(const brim_case *c, const parts *p, int64_t part) {
  return c->n * part / p->count;
}

// A tensor from element `at` on, in another shape.
static brim_tensor view(const brim_tensor *t, int64_t at, int rank, const int64_t *dim) {
  void *data = (char *)t->data + (size_t)at * brim_dtype_size(t->dtype);
  return brim_tensor_make(data, t->dtype, rank, dim);
}

// A part's rows of (N,H,W,C); an absent tensor stays absent.
static brim_tensor rows_of(const brim_case *c, const parts *p, const brim_tensor *t, int64_t part) {
  if (brim_tensor_count(t) == 0) return (brim_tensor){.rank = 0};
  int64_t lo = first_row(c, p, part), hi = first_row(c, p, part + 1);
  int64_t dim[4] = {hi - lo, t->dim[1], t->dim[2], t->dim[3]};
  return view(t, lo * dim[1] * dim[2] * dim[3], 4, dim);
}

static brim_tensor state_of(const parts *p, int64_t part) {
  const int64_t count = BRIM_STATE_COUNT;
  return view(&p->state, part * count, 1, &count);
}

static brim_tensor figures_of(const parts *p, int64_t part) {
  const int64_t *dim = p->figures.dim + 1;
  return view(&p->figures, part * dim[0] * dim[1], 2, dim);
}

static parts open_parts(brim_device *device, const brim_case *c, int64_t count, int64_t rows) {
  parts p = {.device = device, .count = count, .channels = c->k};
  p.type = c->type == BRIM_F64 ? BRIM_F64 : BRIM_F32;
  p.state = on_device(device, BRIM_F64, 2, (const int64_t[]){count, BRIM_STATE_COUNT});
  p.figures = on_device(device, p.type, 3, (const int64_t[]){count, rows, c->k});
  p.total = on_device(device, p.type, 1, (const int64_t[]){1});
  for (int64_t part = 0; part < count; part++) {
    double state[BRIM_STATE_COUNT];
    memcpy(state, c->state, sizeof(state));
    int64_t lo = first_row(c, &p, part), hi = first_row(c, &p, part + 1);
    double valid = c->state[BRIM_STATE_ROWS] - (double)lo, most = (double)(hi - lo);
    state[BRIM_STATE_ROWS] = valid < 0 ? 0 : valid < most ? valid : most;
    brim_tensor t = state_of(&p, part);
    put(device, &t, state);
  }
  return p;
}

static void close_parts(parts *p) {
  brim_device_free(p->device, BRIM_BUFFER_DEVICE, p->state.data);
  brim_device_free(p->device, BRIM_BUFFER_DEVICE, p->figures.data);
  brim_device_free(p->device, BRIM_BUFFER_DEVICE, p->total.data);
}

static void run(brim_device *device, brim_op_call call) {
  assert_ok(brim_op_prepare(device, &call));
  if (call.workspace_bytes) {
    assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, call.workspace_bytes, &call.workspace));
  }
  assert_ok(brim_op_run(device, &call));
  assert_ok(brim_device_sync(device));
  brim_op_release(device, &call);
  brim_device_free(device, BRIM_BUFFER_DEVICE, call.workspace);
}

//---------------------------------- forward and backward ----------------------------------

// Computes the outputs of BATCHNORM with the ops that do it in parts.
static void forward_in_parts(brim_device *device, const brim_case *c, const brim_op_call *whole,
                             int64_t count) {
  parts p = open_parts(device, c, count, 3);
  for (int64_t i = 0; i < count; i++) {
    brim_op_call part = {.op = BRIM_OP_BATCHNORM_PART, .in_count = 2, .out_count = 1};
    part.in[0] = rows_of(c, &p, &whole->in[0], i);
    part.in[1] = state_of(&p, i);
    part.out[0] = figures_of(&p, i);
    run(device, part);
  }
  brim_op_call join = {.op = BRIM_OP_BATCHNORM_JOIN, .in_count = 1, .attr = whole->attr};
  join.out_count = whole->out_count;
  join.attr.act = BRIM_ACT_NONE;
  join.in[0] = p.figures;
  join.out[0] = whole->out[1];
  join.out[1] = whole->out[2];
  join.out[2] = p.total;
  for (int i = 3; i < whole->out_count; i++) join.out[i] = whole->out[i];
  run(device, join);
  double total, valid = c->state[BRIM_STATE_ROWS] * (double)(c->h * c->w);
  get(device, &p.total, &total);
  assert_true(total == valid);
  for (int64_t i = 0; i < count; i++) {
    brim_op_call apply = {.op = BRIM_OP_BATCHNORM_APPLY, .out_count = 1, .attr = whole->attr};
    apply.in_count = 6;
    apply.in[0] = rows_of(c, &p, &whole->in[0], i);
    apply.in[1] = whole->in[1];
    apply.in[2] = whole->in[2];
    apply.in[3] = whole->out[1];
    apply.in[4] = whole->out[2];
    if (whole->in_count > 4) apply.in[5] = rows_of(c, &p, &whole->in[4], i);
    apply.out[0] = rows_of(c, &p, &whole->out[0], i);
    run(device, apply);
  }
  close_parts(&p);
}

// Adds up the parts' figures in order, as ranks do, into those of the first part.
static void add_figures(const parts *p) {
  int64_t each = 2 * p->channels;
  double *all = gradient_numbers(p->count * each);
  get(p->device, &p->figures, all);
  for (int64_t i = each; i < p->count * each; i++) all[i % each] += all[i];
  put(p->device, &p->figures, all);
  brim_free(all);
}

// Computes the outputs of BATCHNORM_BWD with the ops that do it in parts.
static void backward_in_parts(brim_device *device, const brim_case *c, const brim_op_call *whole,
                              int64_t count) {
  parts p = open_parts(device, c, count, 2);
  double valid = c->state[BRIM_STATE_ROWS] * (double)(c->h * c->w);
  put(device, &p.total, &valid);
  brim_op_call call = {.in_count = 9, .attr = whole->attr};
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < count; i++) {
      for (int k = 0; k < 2; k++) call.in[k] = rows_of(c, &p, &whole->in[k], i);
      for (int k = 2; k < 6; k++) call.in[k] = whole->in[k];
      int next = 6;
      if (pass == 1) {
        call.in[next++] = figures_of(&p, 0);
        call.in[next++] = p.total;
      }
      call.in[next++] = state_of(&p, i);
      for (int k = 7; k < 9; k++) call.in[next++] = rows_of(c, &p, &whole->in[k], i);
      call.in_count = next;
      if (pass == 0) {
        call.op = BRIM_OP_BATCHNORM_BWD_SUMS;
        call.out_count = 3;
        call.attr.accumulate = i > 0 || whole->attr.accumulate;
        call.out[0] = figures_of(&p, i);
        call.out[1] = whole->out[1];
        call.out[2] = whole->out[2];
      } else {
        call.op = BRIM_OP_BATCHNORM_BWD_JOINED;
        call.out_count = 2;
        call.out[0] = rows_of(c, &p, &whole->out[0], i);
        call.out[1] = rows_of(c, &p, &whole->out[3], i);
      }
      run(device, call);
    }
    if (pass == 0) add_figures(&p);
  }
  close_parts(&p);
}

//---------------------------------- comparison ----------------------------------

typedef struct fixture {
  brim_registry *registry;
  brim_device *oracle;
} fixture;

static int setup(void **state) {
  static fixture f;
  gradient_setup(NULL);
  assert_ok(brim_registry_create(&f.registry));
  assert_ok(brim_registry_load_folder(f.registry, BRIM_BUILD_DIR "/lib/brim"));
  assert_ok(brim_device_open(f.registry, "ref", NULL, &f.oracle));
  *state = &f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  brim_device_close(f->oracle);
  brim_registry_destroy(f->registry);
  return gradient_teardown(NULL);
}

// Compares the batch in `count` parts on the device with the whole batch in f64 on ref.
static void compare(fixture *f, brim_device *device, const brim_case *c, int64_t count) {
  brim_case oracle = *c;
  brim_case_data data, want, got = {{NULL}, {NULL}};
  brim_case_loaded loaded;
  brim_case_set_oracle(&oracle);
  assert_ok(brim_case_data_create(c, &data));
  assert_ok(brim_case_run(f->oracle, &oracle, &data, &want));
  assert_ok(brim_case_load(device, c, &data, &loaded));
  if (c->op == BRIM_OP_BATCHNORM) {
    forward_in_parts(device, c, &loaded.call, count);
  } else {
    backward_in_parts(device, c, &loaded.call, count);
  }
  for (int i = 0; i < loaded.call.out_count; i++) {
    const brim_tensor *t = &loaded.call.out[i];
    got.out[i] = gradient_numbers(brim_tensor_count(t));
    get(device, t, got.out[i]);
  }
  double error, limit = brim_case_tolerance(c);
  char why[160];
  brim_status status = brim_case_compare(c, &got, &want, &error, why);
  if (status || !(error <= limit)) {
    fail_msg("%s: %s in %d parts: %s: relative norm %.3g, tolerance %.1g", device->backend->name,
             c->name, (int)count, why, error, limit);
  }
  brim_case_unload(&loaded);
  brim_case_data_destroy(&data);
  brim_case_data_destroy(&want);
  brim_case_data_destroy(&got);
}

static bool wanted(const brim_device *device, const brim_case *c, int64_t count) {
  brim_op_call call;
  brim_case_call(c, &call);
  bool large = brim_tensor_count(&call.in[0]) > 40000;
  bool ref = strcmp(device->backend->name, "ref") == 0;
  if (large && (ref || count == 1)) return false;
  return c->n >= count && brim_device_supports((brim_device *)device, &call) == BRIM_OK;
}

static void run_backend(fixture *f, const char *name, brim_op op) {
  brim_device *device = NULL;
  brim_device_options options = {.threads = 2};
  int compared = 0;
  if (brim_device_open(f->registry, name, &options, &device)) BRIM_SKIP(brim_status_detail());
  for (size_t i = 0; i < brim_case_count(); i++) {
    for (int k = 0; k < TYPES * CUTS; k++) {
      brim_case c;
      brim_case_get(i, &c);
      if (c.op != op) continue;
      brim_case_set_type(&c, types[k / CUTS]);
      if (!test_is_sampled(i * TYPES * CUTS + (size_t)k, 6)) continue;
      if (!wanted(device, &c, cuts[k % CUTS])) continue;
      compare(f, device, &c, cuts[k % CUTS]);
      compared++;
    }
  }
  printf("  %s: %d batches in parts\n", name, compared);
  assert_true(compared > (test_is_full() ? 200 : 0));
  brim_device_close(device);
}

static void test_forward_ref(void **state) { run_backend(*state, "ref", BRIM_OP_BATCHNORM); }
static void test_forward_cpu(void **state) { run_backend(*state, "cpu", BRIM_OP_BATCHNORM); }
static void test_forward_cuda(void **state) { run_backend(*state, "cuda", BRIM_OP_BATCHNORM); }
static void test_backward_ref(void **state) { run_backend(*state, "ref", BRIM_OP_BATCHNORM_BWD); }
static void test_backward_cpu(void **state) { run_backend(*state, "cpu", BRIM_OP_BATCHNORM_BWD); }
static void test_backward_cuda(void **state) { run_backend(*state, "cuda", BRIM_OP_BATCHNORM_BWD); }

//---------------------------------- differences ----------------------------------

static brim_device *differences;  // ref

static double value_in_parts(const gradient_scalar *s) {
  forward_in_parts(differences, &s->c, &s->call, 2);
  double sum = 0;
  int64_t count = brim_tensor_count(&s->call.out[0]);
  for (int64_t i = 0; i < count; i++) sum += s->r[i] * ((const double *)s->call.out[0].data)[i];
  return sum;
}

static void check_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0], *g = &s->call.in[1];
  int64_t count = brim_tensor_count(x), c = s->c.k;
  bool with_z = s->c.with & BRIM_WITH_Z;
  // Padding rows have no gradient, so the scalar must not include them.
  for (int64_t i = (int64_t)s->c.state[BRIM_STATE_ROWS] * (count / s->c.n); i < count; i++) {
    s->r[i] = 0;
  }
  s->value = value_in_parts;
  s->value(s);
  double *y = gradient_copy(&s->call.out[0]), *mean = gradient_copy(&s->call.out[1]);
  double *rstd = gradient_copy(&s->call.out[2]), *dx = gradient_numbers(count);
  double *dz = gradient_numbers(count), *dg = gradient_numbers(c), *db = gradient_numbers(c);
  brim_op_call back = {.op = BRIM_OP_BATCHNORM_BWD, .in_count = 9, .out_count = 4};
  back.attr = s->c.attr;
  back.in[0] = gradient_like(x, s->r);
  back.in[1] = *x;
  back.in[2] = *g;
  back.in[3] = s->call.in[2];
  back.in[4] = gradient_like(g, mean);
  back.in[5] = gradient_like(g, rstd);
  back.in[7] = gradient_like(x, y);
  back.out[0] = gradient_like(x, dx);
  back.out[1] = gradient_like(g, dg);
  back.out[2] = gradient_like(g, db);
  back.out[3] = gradient_like(x, dz);
  backward_in_parts(differences, &s->c, &back, 2);
  gradient_check(s, "x", x->data, dx, count, checked);
  gradient_check(s, "g", g->data, dg, c, checked);
  gradient_check(s, "b", s->call.in[2].data, db, c, checked);
  if (with_z) gradient_check(s, "z", s->call.in[4].data, dz, count, checked);
  double *all[] = {y, mean, rstd, dx, dz, dg, db};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) brim_free(all[i]);
}

static void test_differences(void **state) {
  fixture *f = *state;
  int checked = 0;
  differences = f->oracle;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, BRIM_OP_BATCHNORM, &s, &data)) continue;
    if (s.c.n >= 2) check_gradient(&s, &checked);
    gradient_close(&s, &data);
  }
  assert_true(checked > 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forward_ref),  cmocka_unit_test(test_forward_cpu),
      cmocka_unit_test(test_forward_cuda), cmocka_unit_test(test_backward_ref),
      cmocka_unit_test(test_backward_cpu), cmocka_unit_test(test_backward_cuda),
      cmocka_unit_test(test_differences),
  };
  test_filter();
  return cmocka_run_group_tests(tests, setup, teardown);
}
