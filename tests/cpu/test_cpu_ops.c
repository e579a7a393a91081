// The cpu plug-in's ops against ref, at sizes that pass through all of its block loops (the case list is small). And
// its promise that the number of threads does not change a bit. Convolutions are sampled; with BRIM_TEST_FULL all of
// them run.
#include "cpu/cpu_closed.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/backend.h"

typedef struct fixture {
  brim_registry *registry;
  brim_device *ref, *cpu[3];  // 1, 2 and 3 threads
  brim_device *capped;        // 2 threads, little workspace
} fixture;

static brim_device *open_device(brim_registry *registry, const char *name, int threads,
                                uint64_t cap) {
  brim_device_options options = {.threads = threads, .workspace_cap = cap};
  brim_device *device = NULL;
  assert_ok(brim_device_open(registry, name, &options, &device));
  return device;
}

static int setup(void **state) {
  static fixture f;
  assert_ok(brim_registry_create(&f.registry));
  assert_ok(brim_registry_load(f.registry, BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so"));
  f.ref = open_device(f.registry, "ref", 1, 0);
  for (int i = 0; i < 3; i++) f.cpu[i] = open_device(f.registry, "cpu", i + 1, 0);
  f.capped = open_device(f.registry, "cpu", 2, 256 * 1024);
  *state = &f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  for (int i = 0; i < 3; i++) brim_device_close(f->cpu[i]);
  brim_device_close(f->capped);
  brim_device_close(f->ref);
  brim_registry_destroy(f->registry);
  return 0;
}

//---------------------------------- tensors ----------------------------------

static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static double value(const brim_tensor *t, int64_t i) {
  switch (t->dtype) {
    case BRIM_F32:
      return (double)((const float *)t->data)[i];
    case BRIM_BF16:
      return (double)from_bf16(((const uint16_t *)t->data)[i]);
    case BRIM_F64:
      return ((const double *)t->data)[i];
    default:
      return (double)((const uint8_t *)t->data)[i];
  }
}

static void set_value(const brim_tensor *t, int64_t i, float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  if (t->dtype == BRIM_F32) ((float *)t->data)[i] = x;
  if (t->dtype == BRIM_BF16) ((uint16_t *)t->data)[i] = (uint16_t)(u >> 16);
}

// Values that bf16 holds exactly.
static brim_tensor make(brim_dtype type, int rank, const int64_t *dim) {
  static uint32_t seed = 7;
  brim_tensor t = brim_tensor_make(NULL, type, rank, dim);
  t.data = calloc(brim_tensor_bytes(&t) + 64, 1);
  assert_non_null(t.data);
  for (int64_t i = 0; i < brim_tensor_count(&t); i++) {
    seed = seed * 1664525u + 1013904223u;
    set_value(&t, i, (float)((int)(seed >> 24) - 128) / 64.0f);
  }
  return t;
}

#define DIM(...) \
  (const int64_t[]) { __VA_ARGS__ }
static brim_tensor vector(int64_t n) { return make(BRIM_F32, 1, DIM(n)); }
static brim_tensor image(brim_dtype type, int64_t n, int64_t h, int64_t w, int64_t c) {
  return make(type, 4, DIM(n, h, w, c));
}

static brim_tensor state_of(double rows) {
  brim_tensor t = make(BRIM_F64, 1, DIM(BRIM_STATE_COUNT));
  double *s = t.data;
  s[BRIM_STATE_ROWS] = s[BRIM_STATE_SAMPLES] = rows;
  s[BRIM_STATE_GRAD_SCALE] = 0.125;
  s[BRIM_STATE_LOSS_SCALE] = 2;
  s[BRIM_STATE_STEP] = 3;
  s[BRIM_STATE_UPDATES] = 2;
  return t;
}

static void free_call(brim_op_call *call) {
  for (int i = 0; i < call->in_count; i++) free(call->in[i].data);
  for (int i = 0; i < call->out_count; i++) free(call->out[i].data);
}

// Saves the outputs, so that a call can run on several devices.
typedef struct saved {
  void *out[BRIM_OP_MAX_OUT];
} saved;

static saved save(const brim_op_call *call) {
  saved s = {{0}};
  for (int i = 0; i < call->out_count; i++) {
    size_t bytes = brim_tensor_bytes(&call->out[i]);
    s.out[i] = malloc(bytes);
    assert_non_null(s.out[i]);
    memcpy(s.out[i], call->out[i].data, bytes);
  }
  return s;
}

static void restore(brim_op_call *call, const saved *s) {
  for (int i = 0; i < call->out_count; i++) {
    memcpy(call->out[i].data, s->out[i], brim_tensor_bytes(&call->out[i]));
  }
}

static void drop(saved *s) {
  for (int i = 0; i < BRIM_OP_MAX_OUT; i++) free(s->out[i]);
}

static void run(brim_device *device, brim_op_call *call) {
  assert_ok(brim_op_prepare(device, call));
  size_t bytes = (call->workspace_bytes + 63) / 64 * 64;
  call->workspace = bytes ? aligned_alloc(64, bytes) : NULL;
  if (bytes) memset(call->workspace, 0xff, bytes);
  assert_ok(brim_op_run(device, call));
  brim_op_release(device, call);
  free(call->workspace);
}

//---------------------------------- checks ----------------------------------

static void compare(const brim_op_call *call, const saved *want, const char *what) {
  for (int i = 0; i < call->out_count; i++) {
    const brim_tensor *got = &call->out[i];
    brim_tensor expected = *got;
    expected.data = want->out[i];
    double difference = 0, size = 0;
    for (int64_t j = 0; j < brim_tensor_count(got); j++) {
      double e = value(&expected, j), d = value(got, j) - e;
      difference += d * d;
      size += e * e;
    }
    double error = sqrt(difference / (size > 0 ? size : 1));
    double limit = got->dtype == BRIM_BF16 ? 6e-3 : 1e-5;
    if (call->in[0].dtype == BRIM_BF16 && got->dtype == BRIM_F32) limit = 1e-4;
    if (!(error <= limit)) {
      fail_msg("%s %s, output %d, %s: relative error %g", brim_op_name(call->op),
               brim_dtype_name(call->in[0].dtype), i, what, error);
    }
  }
}

// True for products that oneDNN computes: their bits depend on the number of threads.
static bool is_product(brim_op op) { return op <= BRIM_OP_CONV_BWD_WEIGHT; }

static void same_bits(const brim_op_call *call, const saved *want, const char *what) {
  for (int i = 0; i < call->out_count; i++) {
    if (memcmp(call->out[i].data, want->out[i], brim_tensor_bytes(&call->out[i])) == 0) continue;
    fail_msg("%s %s, output %d: other bits with %s", brim_op_name(call->op),
             brim_dtype_name(call->in[0].dtype), i, what);
  }
}

static void check(fixture *f, brim_op_call *call) {
  bool onednn = strstr(f->cpu[0]->info.library, "oneDNN") != NULL;
  saved before = save(call);
  run(f->ref, call);
  saved want = save(call);
  restore(call, &before);
  run(f->cpu[1], call);
  compare(call, &want, "2 threads");
  saved two = save(call);
  restore(call, &before);
  run(f->capped, call);
  compare(call, &want, "a small workspace");
  if (!onednn || !is_product(call->op)) {
    same_bits(call, &two, "a small workspace");
    restore(call, &before);
    run(f->cpu[0], call);
    same_bits(call, &two, "1 thread");
    restore(call, &before);
    run(f->cpu[2], call);
    same_bits(call, &two, "3 threads");
  }
  drop(&before);
  drop(&want);
  drop(&two);
  free_call(call);
}

static const brim_dtype types[] = {BRIM_F32, BRIM_BF16};

//---------------------------------- tests ----------------------------------

// n, h, w, c, m, r, s, stride, pad: more pixels than a block of depth (1024) and of rows, more
// channels than a panel, filters of more than one block of depth.
static const int64_t convs[][9] = {
    {5, 17, 15, 20, 28, 3, 3, 1, 1},
    {5, 17, 15, 20, 28, 3, 3, 2, 1},
    {2, 33, 34, 5, 13, 1, 1, 2, 0},
    {3, 20, 20, 70, 26, 3, 3, 1, 1},
    {9, 12, 12, 3, 9, 5, 3, 2, 2},
    {2, 6, 6, 600, 40, 1, 1, 2, 0},
    {2, 5, 5, 600, 130, 2, 2, 1, 0},
    {4, 18, 18, 33, 40, 1, 1, 1, 0},
    {2, 40, 30, 4, 64, 7, 7, 2, 3},
    // Channels in 32s, as the AMX kernels need them: blocks of images that are not full, borders, strides, taps outside
    // of the image, more than one panel and group of channels on both sides.
    {40, 5, 6, 32, 64, 3, 3, 1, 1},
    {32, 7, 7, 64, 32, 3, 3, 2, 1},
    {64, 4, 4, 64, 96, 3, 3, 1, 1},
    {24, 6, 5, 32, 32, 1, 1, 2, 0},
    {57, 3, 3, 96, 32, 1, 1, 1, 0},
    {31, 9, 8, 32, 32, 5, 3, 3, 2},
    {27, 2, 1, 32, 64, 3, 3, 1, 1},
    {1, 12, 11, 32, 64, 4, 4, 2, 1},
    {24, 1, 1, 64, 64, 3, 3, 2, 1},
    {24, 3, 3, 64, 128, 3, 3, 1, 1},
    {24, 70, 2, 32, 32, 3, 3, 1, 1},
    {24, 64, 8, 32, 32, 3, 3, 1, 1},  // bands of few rows, single ones if the workspace is small
    {24, 9, 9, 32, 32, 8, 8, 1, 0},
};

static brim_op_call conv_call(brim_op op, brim_dtype type, const int64_t *s) {
  int64_t p = (s[1] + 2 * s[8] - s[5]) / s[7] + 1, q = (s[2] + 2 * s[8] - s[6]) / s[7] + 1;
  brim_tensor x = image(type, s[0], s[1], s[2], s[3]), y = image(type, s[0], p, q, s[4]);
  brim_dtype w_type = op == BRIM_OP_CONV_BWD_WEIGHT ? BRIM_F32 : type;
  brim_tensor w = make(w_type, 4, DIM(s[4], s[5], s[6], s[3]));
  brim_op_call call = {.op = op, .in_count = 2, .out_count = 1};
  call.attr.stride = (int32_t)s[7];
  call.attr.pad = (int32_t)s[8];
  call.in[0] = op == BRIM_OP_CONV ? x : y;
  call.in[1] = op == BRIM_OP_CONV_BWD_WEIGHT ? x : w;
  call.out[0] = op == BRIM_OP_CONV ? y : (op == BRIM_OP_CONV_BWD_DATA ? x : w);
  return call;
}

// Different samples for each provider: providers with the same code complete each other.
static uint64_t provider_salt(void) {
  const char *provider = getenv("BRIM_CPU_GEMM");
  return provider ? (uint64_t)(unsigned char)provider[0] << 32 : 0;
}

static void test_conv(void **state) {
  for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
    for (brim_op op = BRIM_OP_CONV; op <= BRIM_OP_CONV_BWD_WEIGHT; op++) {
      for (int t = 0; t < 2; t++) {
        const uint64_t at = provider_salt() + i * 8 + (uint64_t)(op - BRIM_OP_CONV) * 2;
        if (!test_is_sampled(at + (uint64_t)t, 4)) continue;
        brim_op_call call = conv_call(op, types[t], convs[i]);
        call.attr.accumulate = i % 2 == 1 && op == BRIM_OP_CONV_BWD_WEIGHT;
        check(*state, &call);
      }
    }
  }
}

static void test_conv_allocation_failures(void **state) {
  fixture *f = *state;
  for (int i = 0; i < 6; i++) {
    brim_op op = (brim_op)(BRIM_OP_CONV + i / 2);
    brim_op_call call = conv_call(op, types[i % 2], convs[i % 2 ? 9 : 1]);
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    brim_status status = BRIM_ENOMEM;
    int failed = 0;
    for (uint64_t n = 1; n < 20 && status != BRIM_OK; n++) {
      brim_alloc_fail_nth(n, 0);
      status = brim_op_prepare(f->cpu[1], &call);
      brim_alloc_fail_nth(0, 0);
      if (status != BRIM_OK) assert_int_equal(status, BRIM_ENOMEM);
      failed += status != BRIM_OK;
    }
    assert_ok(status);
    assert_true(failed >= 2);
    brim_op_release(f->cpu[1], &call);
    brim_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks[BRIM_MEM_OVERHEAD], after.live_blocks[BRIM_MEM_OVERHEAD]);
    free_call(&call);
  }
}

// Rows beyond the narrow loops' blocks and strips, columns that are no full groups. Then columns in 32s, as the AMX
// kernels need them: more and fewer rows than blocks of 32, several panels.
static void test_linear_narrow(void **state) {
  static const int64_t shapes[][3] = {{7001, 16, 48}, {1000, 5, 17}, {6200, 64, 16},
                                      {800, 1, 1},    {45, 96, 32},  {150, 32, 96},
                                      {10, 64, 96},   {1000, 32, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    for (int t = 0; t < 2; t++) {
      brim_dtype type = types[t];
      brim_op_call y = {.op = BRIM_OP_LINEAR, .in_count = 3, .out_count = 1};
      y.attr.act = i % 2 ? BRIM_ACT_NONE : BRIM_ACT_GELU;
      y.in[0] = make(type, 3, DIM(s[0] / 5, 5, s[1]));
      y.in[1] = make(type, 2, DIM(s[2], s[1]));
      y.in[2] = make(type, 1, DIM(s[2]));
      y.out[0] = make(type, 3, DIM(s[0] / 5, 5, s[2]));
      check(*state, &y);
      brim_op_call dx = {.op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 3, .out_count = 1};
      dx.attr.act = i % 2 ? BRIM_ACT_RELU : BRIM_ACT_GELU;
      dx.in[0] = make(type, 2, DIM(s[0], s[2]));
      dx.in[1] = make(type, 2, DIM(s[2], s[1]));
      dx.in[2] = make(type, 2, DIM(s[0], s[1]));
      dx.out[0] = make(type, 2, DIM(s[0], s[1]));
      check(*state, &dx);
      brim_op_call dw = {.op = BRIM_OP_LINEAR_BWD_WEIGHT, .in_count = 2, .out_count = 2};
      dw.attr.accumulate = i % 2;
      dw.in[0] = make(type, 2, DIM(s[0], s[2]));
      dw.in[1] = make(type, 2, DIM(s[0], s[1]));
      dw.out[0] = make(BRIM_F32, 2, DIM(s[2], s[1]));
      dw.out[1] = vector(s[2]);
      check(*state, &dw);
    }
  }
}

// All ops but convolutions run also when prepared for planning: brim measures the machine's products so.
static void test_linear_planned(void **state) {
  for (int t = 0; t < 2; t++) {
    brim_op_call y = {.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1, .planning = true};
    y.in[0] = make(types[t], 2, DIM(256, 192));
    y.in[1] = make(types[t], 2, DIM(320, 192));
    y.out[0] = make(types[t], 2, DIM(256, 320));
    check(*state, &y);
    brim_op_call dw = y;
    dw.op = BRIM_OP_LINEAR_BWD_WEIGHT;
    dw.in[0] = make(types[t], 2, DIM(256, 320));
    dw.in[1] = make(types[t], 2, DIM(256, 192));
    dw.out[0] = make(BRIM_F32, 2, DIM(320, 192));
    check(*state, &dw);
  }
}

// oneDNN has bf16 instructions here, so narrow layers keep their rows in bf16: widening them was slower than fp32. The
// loops that widen take the same workspace for both types.
static void test_narrow_bf16(void **state) {
  const fixture *f = *state;
  const char *name = f->cpu[0]->info.name, *library = f->cpu[0]->info.library;
  size_t bytes[2];
  if (!strstr(name, "avx512_bf16") || !strstr(library, "oneDNN")) {
    BRIM_SKIP("oneDNN has no bf16 instructions here");
  }
  for (int t = 0; t < 2; t++) {
    brim_op_call call = {.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1, .planning = true};
    call.in[0] = brim_tensor_make(NULL, types[t], 2, DIM(5000, 16));
    call.in[1] = brim_tensor_make(NULL, types[t], 2, DIM(16, 16));
    call.out[0] = brim_tensor_make(NULL, types[t], 2, DIM(5000, 16));
    assert_ok(brim_op_prepare(f->cpu[0], &call));
    bytes[t] = call.workspace_bytes;
    brim_op_release(f->cpu[0], &call);
  }
  assert_int_not_equal(bytes[0], bytes[1]);
}

// A small bf16 layer takes brim's AMX kernels and not oneDNN, whose calls cost more than the products: bf16 was slower
// than fp32. The kernels' workspace holds the packed weights and 32 packed rows.
static void test_linear_tiles(void **state) {
  const fixture *f = *state;
  if (!strstr(f->cpu[0]->info.library, "brim amx")) BRIM_SKIP("no AMX here");
  brim_op_call call = {.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1, .planning = true};
  call.in[0] = brim_tensor_make(NULL, BRIM_BF16, 2, DIM(32, 64));
  call.in[1] = brim_tensor_make(NULL, BRIM_BF16, 2, DIM(96, 64));
  call.out[0] = brim_tensor_make(NULL, BRIM_BF16, 2, DIM(32, 96));
  assert_ok(brim_op_prepare(f->cpu[0], &call));
  assert_int_equal(call.workspace_bytes, 2 * 64 * (96 + 32));
  brim_op_release(f->cpu[0], &call);
}

static brim_op_call batchnorm(brim_dtype type, const int64_t *s, brim_act act) {
  brim_op_call call = {.op = BRIM_OP_BATCHNORM, .in_count = 5, .out_count = 5};
  call.attr.act = act;
  call.attr.eps = 1e-5f;
  call.attr.momentum = 0.1f;
  call.in[0] = image(type, s[0], s[1], s[2], s[3]);
  call.in[1] = vector(s[3]);
  call.in[2] = vector(s[3]);
  call.in[3] = state_of((double)(s[0] - 1));
  call.in[4] = image(type, s[0], s[1], s[2], s[3]);
  call.out[0] = image(type, s[0], s[1], s[2], s[3]);
  for (int k = 1; k < 5; k++) call.out[k] = vector(s[3]);
  return call;
}

static brim_op_call batchnorm_bwd(brim_dtype type, const int64_t *s, bool with_y) {
  brim_op_call call = {.op = BRIM_OP_BATCHNORM_BWD, .in_count = 9, .out_count = 4};
  call.attr.act = BRIM_ACT_RELU;
  call.in[0] = image(type, s[0], s[1], s[2], s[3]);
  call.in[1] = image(type, s[0], s[1], s[2], s[3]);
  for (int i = 2; i < 6; i++) call.in[i] = vector(s[3]);
  call.in[6] = state_of((double)(s[0] - 1));
  if (with_y) call.in[7] = image(type, s[0], s[1], s[2], s[3]);
  call.in[8] = image(type, s[0], s[1], s[2], s[3]);
  call.out[0] = image(type, s[0], s[1], s[2], s[3]);
  call.out[1] = vector(s[3]);
  call.out[2] = vector(s[3]);
  call.out[3] = image(type, s[0], s[1], s[2], s[3]);
  return call;
}

// Few channels (repeated over a span), some that do not divide it, and more than a block.
static const int64_t images[][4] = {
    {9, 33, 31, 6}, {5, 21, 22, 64}, {4, 16, 16, 300}, {3, 9, 9, 700}};

static void test_batchnorm(void **state) {
  for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
    const int64_t *s = images[i];
    for (int t = 0; t < 2; t++) {
      brim_op_call call = batchnorm(types[t], s, i % 2 ? BRIM_ACT_NONE : BRIM_ACT_RELU);
      check(*state, &call);
      call = batchnorm_bwd(types[t], s, i % 2 == 0);
      check(*state, &call);
    }
  }
}

// A mean far from zero: a variance from squared values would lose all digits.
static void test_batchnorm_offset(void **state) {
  fixture *f = *state;
  brim_op_call call = {.op = BRIM_OP_BATCHNORM_BWD};
  brim_tensor x = image(BRIM_F32, 8, 20, 20, 16);
  for (int64_t i = 0; i < brim_tensor_count(&x); i++) ((float *)x.data)[i] += 1000.0f;
  call = (brim_op_call){.op = BRIM_OP_BATCHNORM, .in_count = 4, .out_count = 3};
  call.attr.eps = 1e-5f;
  call.in[0] = x;
  call.in[1] = vector(16);
  call.in[2] = vector(16);
  call.in[3] = state_of(8);
  call.out[0] = image(BRIM_F32, 8, 20, 20, 16);
  call.out[1] = vector(16);
  call.out[2] = vector(16);
  run(f->ref, &call);
  saved want = save(&call);
  run(f->cpu[1], &call);
  const float *got = call.out[2].data, *rstd = want.out[2];
  for (int i = 0; i < 16; i++) assert_true(fabsf(got[i] - rstd[i]) <= 1e-5f * rstd[i]);
  drop(&want);
  free_call(&call);
}

// dx written over dy, or over x.
static void test_batchnorm_in_place(void **state) {
  fixture *f = *state;
  for (int t = 0; t < 2; t++) {
    for (int in = 0; in < 2; in++) {
      brim_op_call call = batchnorm_bwd(types[t], images[1], true);
      run(f->cpu[1], &call);
      saved want = save(&call);
      void *dx = call.out[0].data;
      call.out[0].data = call.in[in].data;
      run(f->cpu[1], &call);
      same_bits(&call, &want, "dx in place");
      drop(&want);
      call.out[0].data = dx;
      free_call(&call);
    }
  }
}

static void test_attention(void **state) {
  static const int64_t shapes[][4] = {{3, 172, 16, 1}, {2, 61, 60, 3}, {5, 25, 32, 1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    for (int t = 0; t < 2; t++) {
      brim_op_call y = {.op = BRIM_OP_ATTENTION, .in_count = 1, .out_count = 2};
      y.attr.heads = (int32_t)s[3];
      y.in[0] = make(types[t], 3, DIM(s[0], s[1], 3 * s[2]));
      y.out[0] = make(types[t], 3, DIM(s[0], s[1], s[2]));
      y.out[1] = make(BRIM_F32, 3, DIM(s[0], s[3], s[1]));
      brim_op_call d = {.op = BRIM_OP_ATTENTION_BWD, .in_count = 4, .out_count = 1};
      d.attr.heads = y.attr.heads;
      d.in[0] = make(types[t], 3, DIM(s[0], s[1], s[2]));
      d.in[1] = make(types[t], 3, DIM(s[0], s[1], 3 * s[2]));
      d.in[2] = make(types[t], 3, DIM(s[0], s[1], s[2]));
      d.in[3] = make(BRIM_F32, 3, DIM(s[0], s[3], s[1]));
      d.out[0] = make(types[t], 3, DIM(s[0], s[1], 3 * s[2]));
      // Sets y and lse to the forward result for qkv.
      memcpy(d.in[1].data, y.in[0].data, brim_tensor_bytes(&y.in[0]));
      run(((fixture *)*state)->ref, &y);
      memcpy(d.in[2].data, y.out[0].data, brim_tensor_bytes(&y.out[0]));
      memcpy(d.in[3].data, y.out[1].data, brim_tensor_bytes(&y.out[1]));
      check(*state, &y);
      check(*state, &d);
    }
  }
}

static void test_pools(void **state) {
  for (int t = 0; t < 2; t++) {
    brim_op_call call = {.op = BRIM_OP_MAXPOOL, .in_count = 1, .out_count = 2};
    call.attr.window = 3, call.attr.stride = 2, call.attr.pad = 1;
    call.in[0] = image(types[t], 4, 33, 31, 20);
    call.out[0] = image(types[t], 4, 17, 16, 20);
    call.out[1] = image(BRIM_U8, 4, 17, 16, 20);
    brim_op_call back = {.op = BRIM_OP_MAXPOOL_BWD, .in_count = 2, .out_count = 1};
    back.attr = call.attr;
    back.in[0] = image(types[t], 4, 17, 16, 20);
    back.in[1] = image(BRIM_U8, 4, 17, 16, 20);
    back.out[0] = image(types[t], 4, 33, 31, 20);
    run(((fixture *)*state)->ref, &call);
    memcpy(back.in[1].data, call.out[1].data, brim_tensor_bytes(&call.out[1]));
    check(*state, &call);
    check(*state, &back);
    brim_op_call mean = {.op = BRIM_OP_MEAN, .in_count = 1, .out_count = 1};
    mean.in[0] = image(types[t], 5, 33, 31, 20);
    mean.out[0] = make(types[t], 2, DIM(5, 20));
    check(*state, &mean);
    brim_op_call spread = {.op = BRIM_OP_MEAN_BWD, .in_count = 1, .out_count = 1};
    spread.in[0] = make(types[t], 2, DIM(5, 600));
    spread.out[0] = image(types[t], 5, 7, 5, 600);
    check(*state, &spread);
  }
}

static void test_rows(void **state) {
  for (int t = 0; t < 2; t++) {
    brim_op_call pos = {.op = BRIM_OP_POS_BWD, .in_count = 1, .out_count = 1};
    pos.attr.accumulate = t == 1;
    pos.in[0] = make(types[t], 3, DIM(150, 43, 16));
    pos.out[0] = make(BRIM_F32, 2, DIM(43, 16));
    check(*state, &pos);
    brim_op_call loss = {.op = BRIM_OP_NTXENT, .in_count = 2, .out_count = 2};
    loss.attr.temperature = 0.5f;
    loss.in[0] = make(types[t], 2, DIM(138, 37));
    loss.in[1] = state_of(60);
    loss.out[0] = vector(BRIM_METRIC_COUNT);
    loss.out[1] = make(types[t], 2, DIM(138, 37));
    check(*state, &loss);
    brim_op_call drop_out = {.op = BRIM_OP_DROPOUT, .in_count = 2, .out_count = 1};
    drop_out.attr.p = 0.3f;
    drop_out.in[0] = make(types[t], 3, DIM(41, 51, 23));
    drop_out.in[1] = state_of(41);
    ((double *)drop_out.in[1].data)[BRIM_STATE_ROW_OFFSET] = 3;
    drop_out.out[0] = make(types[t], 3, DIM(41, 51, 23));
    check(*state, &drop_out);
  }
}

//---------------------------------- threads that do not run ----------------------------------

static int gate[2];  // once the write end is closed, the held threads run again
static sem_t held;

static void hold(int signal) {
  (void)signal;
  const int error = errno;
  char byte;
  sem_post(&held);
  while (read(gate[0], &byte, 1) < 0 && errno == EINTR) {
  }
  errno = error;
}

// The workers of the team, found by their name, up to `most`: a thread gets its name soon after its start.
static int find_workers(pid_t *ids, int most) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *e; count < most && (e = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE *f = fopen(path, "r");
    if (!f) continue;
    if (fgets(name, sizeof name, f) && strcmp(name, "brim-team\n") == 0) {
      ids[count++] = (pid_t)atoi(e->d_name);
    }
    fclose(f);
  }
  closedir(tasks);
  return count;
}

// Stops all workers of the team, as a busy machine may.
static void hold_team(int count) {
  pid_t *ids = calloc((size_t)count, sizeof *ids);
  assert_non_null(ids);
  while (find_workers(ids, count) < count) sched_yield();
  for (int i = 0; i < count; i++) {
    assert_int_equal(syscall(SYS_tgkill, getpid(), ids[i], SIGPROF), 0);
  }
  for (int i = 0; i < count; i++) {
    while (sem_wait(&held) && errno == EINTR) {
    }
  }
  free(ids);
}

// A thread that does not run costs nothing: the caller does its share, because no kernel of brim waits for all threads
// at once. A kernel that waits would never end here. oneDNN's kernels are not brim's.
static void test_partners_that_do_not_run(void **state) {
  fixture *f = *state;
  const bool onednn = strstr(f->cpu[0]->info.library, "oneDNN") != NULL;
  struct sigaction act = {.sa_handler = hold, .sa_flags = SA_RESTART};
  assert_int_equal(pipe(gate), 0);
  assert_int_equal(sem_init(&held, 0, 0), 0);
  assert_int_equal(sigaction(SIGPROF, &act, NULL), 0);
  hold_team(f->cpu[0]->info.threads > 3 ? f->cpu[0]->info.threads - 1 : 2);
  for (int t = 0; t < 2; t++) {
    for (int op = BRIM_OP_CONV; op <= (int)BRIM_OP_CONV_BWD_WEIGHT && !onednn; op++) {
      // more than 2,000,000 products: the limit below which one thread computes alone
      static const int64_t shapes[][9] = {{4, 18, 18, 33, 40, 3, 3, 1, 1},
                                          {40, 4, 4, 64, 64, 3, 3, 1, 1}};
      for (int i = 0; i < 2; i++) {
        brim_op_call call = conv_call((brim_op)op, types[t], shapes[i]);
        check(f, &call);
      }
    }
    for (int64_t cols = 16; cols <= 200; cols += 184) {  // the narrow loops and a packed product
      if (onednn && (t == 1 || cols > 16)) continue;
      brim_op_call dw = {.op = BRIM_OP_LINEAR_BWD_WEIGHT, .in_count = 2, .out_count = 2};
      dw.in[0] = make(types[t], 2, DIM(5000, 40));
      dw.in[1] = make(types[t], 2, DIM(5000, cols));
      dw.out[0] = make(BRIM_F32, 2, DIM(40, cols));
      dw.out[1] = vector(40);
      check(f, &dw);
    }
    brim_op_call norm = {.op = BRIM_OP_LAYERNORM_BWD, .in_count = 5, .out_count = 3};
    norm.in[0] = make(types[t], 2, DIM(3000, 40));
    norm.in[1] = make(types[t], 2, DIM(3000, 40));
    for (int i = 2; i < 5; i++) norm.in[i] = vector(i == 2 ? 40 : 3000);
    norm.out[0] = make(types[t], 2, DIM(3000, 40));
    for (int i = 1; i < 3; i++) norm.out[i] = vector(40);
    check(f, &norm);
    for (int i = 1; i < 4; i += 2) {  // few channels and many
      for (int with_y = 0; with_y < 2; with_y++) {
        brim_op_call back = batchnorm_bwd(types[t], images[i], with_y);
        check(f, &back);
      }
      brim_op_call forward = batchnorm(types[t], images[i], BRIM_ACT_RELU);
      check(f, &forward);
    }
  }
  test_rows(state);
  close(gate[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_conv),
      cmocka_unit_test(test_conv_allocation_failures),
      cmocka_unit_test(test_linear_narrow),
      cmocka_unit_test(test_linear_planned),
      cmocka_unit_test(test_linear_tiles),
      cmocka_unit_test(test_narrow_bf16),
      cmocka_unit_test(test_batchnorm),
      cmocka_unit_test(test_batchnorm_offset),
      cmocka_unit_test(test_batchnorm_in_place),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_pools),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_partners_that_do_not_run),  // last: it leaves a handler
  };
  brim_registry *registry = NULL;
  brim_device *device = NULL;
  if (brim_registry_create(&registry) != BRIM_OK) return 1;
  if (brim_registry_load(registry, BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so") != BRIM_OK ||
      brim_device_open(registry, "cpu", NULL, &device) != BRIM_OK) {
    return cpu_closed();
  }
  brim_device_close(device);
  brim_registry_destroy(registry);
  return cmocka_run_group_tests(tests, setup, teardown);
}
