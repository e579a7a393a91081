// Promises of the cpu plug-in alone: products against plain loops at awkward shapes, the same bits on every run,
// accumulation, refusal of fp16, the thread count, a fork, failing allocations.
#include "cpu/cpu_closed.h"
#include "stuck_threads.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"

typedef struct fixture {
  brim_registry *registry;
  brim_device *device;
} fixture;

static const char *PLUGIN = BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so";

static brim_device *open_device(brim_registry *registry, int threads) {
  brim_device_options options = {.threads = threads};
  brim_device *device = NULL;
  assert_ok(brim_device_open(registry, "cpu", &options, &device));
  return device;
}

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  if (!f) return -1;
  assert_ok(brim_registry_create(&f->registry));
  assert_ok(brim_registry_load(f->registry, PLUGIN));
  f->device = open_device(f->registry, 2);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  brim_device_close(f->device);
  brim_registry_destroy(f->registry);
  free(f);
  return 0;
}

//---------------------------------- helpers ----------------------------------

static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static double value(const brim_tensor *t, int64_t i) {
  return t->dtype == BRIM_F32 ? (double)((const float *)t->data)[i]
                              : (double)from_bf16(((const uint16_t *)t->data)[i]);
}

// Values that bf16 holds exactly, different at every place.
static brim_tensor make(brim_dtype type, int rank, int64_t rows, int64_t cols) {
  static uint32_t seed = 1;
  brim_tensor t = brim_tensor_make(NULL, type, rank, (const int64_t[]){rows, cols});
  t.data = calloc(brim_tensor_bytes(&t) + 1, 1);
  assert_non_null(t.data);
  for (int64_t i = 0; i < brim_tensor_count(&t); i++) {
    seed = seed * 1664525u + 1013904223u;
    float x = (float)((int)(seed >> 24) - 128) / 64.0f;
    if (type == BRIM_F32) ((float *)t.data)[i] = x;
    if (type == BRIM_BF16) {
      uint32_t u;
      memcpy(&u, &x, sizeof u);
      ((uint16_t *)t.data)[i] = (uint16_t)(u >> 16);
    }
  }
  return t;
}

static brim_op_call make_call(brim_op op, brim_dtype type, int64_t n, int64_t k, int64_t m) {
  brim_op_call call = {.op = op, .in_count = 2, .out_count = 1};
  if (op == BRIM_OP_LINEAR) {
    call.in_count = 3;
    call.in[0] = make(type, 2, n, k);
    call.in[1] = make(type, 2, m, k);
    call.in[2] = make(type, 1, m, 0);
    call.out[0] = make(type, 2, n, m);
  } else if (op == BRIM_OP_LINEAR_BWD_DATA) {
    call.in[0] = make(type, 2, n, m);
    call.in[1] = make(type, 2, m, k);
    call.out[0] = make(type, 2, n, k);
  } else {
    call.out_count = 2;
    call.in[0] = make(type, 2, n, m);
    call.in[1] = make(type, 2, n, k);
    call.out[0] = make(BRIM_F32, 2, m, k);
    call.out[1] = make(BRIM_F32, 1, m, 0);
  }
  return call;
}

static void free_call(brim_op_call *call) {
  for (int i = 0; i < call->in_count; i++) free(call->in[i].data);
  for (int i = 0; i < call->out_count; i++) free(call->out[i].data);
}

// Prepares the call, runs it with exactly the requested workspace, and releases it.
static void run(brim_device *device, brim_op_call *call) {
  assert_ok(brim_op_prepare(device, call));
  size_t bytes = (call->workspace_bytes + 63) / 64 * 64;
  call->workspace = bytes ? aligned_alloc(64, bytes) : NULL;
  assert_ok(brim_op_run(device, call));
  brim_op_release(device, call);
  free(call->workspace);
}

// Element (i, j) of the product in double, by the op's definition.
static double expected(const brim_op_call *c, int64_t i, int64_t j) {
  double sum = 0;
  if (c->op == BRIM_OP_LINEAR) {
    int64_t k = c->in[0].dim[1];
    for (int64_t p = 0; p < k; p++)
      sum += value(&c->in[0], i * k + p) * value(&c->in[1], j * k + p);
    return sum + value(&c->in[2], j);
  }
  int64_t m = c->in[0].dim[1], k = c->in[1].dim[1];
  if (c->op == BRIM_OP_LINEAR_BWD_DATA) {
    for (int64_t p = 0; p < m; p++)
      sum += value(&c->in[0], i * m + p) * value(&c->in[1], p * k + j);
    return sum;
  }
  for (int64_t p = 0; p < c->in[0].dim[0]; p++) {
    sum += value(&c->in[0], p * m + i) * value(&c->in[1], p * k + j);
  }
  return sum;
}

//---------------------------------- tests ----------------------------------

static void check_product(brim_device *device, brim_op op, brim_dtype type, const int64_t *s) {
  brim_op_call call = make_call(op, type, s[0], s[1], s[2]);
  run(device, &call);
  const brim_tensor *out = &call.out[0];
  // Allowed error: half a unit of the type for the result, and the sum's own in f32.
  double step = out->dtype == BRIM_BF16 ? 1.0 / 256 : 1e-5;
  for (int64_t i = 0; i < out->dim[0]; i++) {
    for (int64_t j = 0; j < out->dim[1]; j++) {
      double want = expected(&call, i, j), got = value(out, i * out->dim[1] + j);
      if (!(fabs(got - want) <= step * (fabs(want) + 1))) {
        fail_msg("%s %s %dx%dx%d at (%d, %d): %g, expected %g", brim_op_name(op),
                 brim_dtype_name(type), (int)s[0], (int)s[1], (int)s[2], (int)i, (int)j, got, want);
      }
    }
  }
  free_call(&call);
}

// One below, equal to and one above the tiles (8 x 12, 4 x 16), their k-groups, and the k-blocks.
static void test_products(void **state) {
  fixture *f = *state;
  static const int64_t shapes[][3] = {{1, 1, 1},    {1, 3, 2},     {7, 5, 11},    {8, 4, 12},
                                      {9, 9, 13},   {16, 17, 24},  {17, 31, 37},  {3, 513, 5},
                                      {5, 1027, 3}, {2, 2051, 13}, {101, 64, 29}, {1030, 3, 17},
                                      {5, 7, 1543}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (brim_op op = BRIM_OP_LINEAR; op <= BRIM_OP_LINEAR_BWD_WEIGHT; op++) {
      check_product(f->device, op, BRIM_F32, shapes[i]);
      check_product(f->device, op, BRIM_BF16, shapes[i]);
    }
  }
}

static void test_same_bits(void **state) {
  fixture *f = *state;
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16};
  for (int t = 0; t < 2; t++) {
    for (brim_op op = BRIM_OP_LINEAR; op <= BRIM_OP_LINEAR_BWD_WEIGHT; op++) {
      brim_op_call call = make_call(op, types[t], 130, 257, 97);
      size_t bytes = brim_tensor_bytes(&call.out[0]);
      run(f->device, &call);
      void *first = malloc(bytes);
      assert_non_null(first);
      memcpy(first, call.out[0].data, bytes);
      for (int again = 0; again < 5; again++) {
        memset(call.out[0].data, 0xff, bytes);
        run(f->device, &call);
        assert_memory_equal(first, call.out[0].data, bytes);
      }
      free(first);
      free_call(&call);
    }
  }
}

static void test_accumulate(void **state) {
  fixture *f = *state;
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16};
  for (int t = 0; t < 2; t++) {
    brim_op_call call = make_call(BRIM_OP_LINEAR_BWD_WEIGHT, types[t], 33, 29, 19);
    run(f->device, &call);
    double dw = value(&call.out[0], 40), db = value(&call.out[1], 7);
    double sum = 0;
    for (int64_t i = 0; i < 33; i++) sum += value(&call.in[0], i * 19 + 7);
    assert_true(fabs(db - sum) <= 1e-4);
    call.attr.accumulate = true;
    run(f->device, &call);
    run(f->device, &call);
    assert_true(fabs(value(&call.out[0], 40) - 3 * dw) <= 1e-4 * (fabs(dw) + 1));
    assert_true(fabs(value(&call.out[1], 7) - 3 * db) <= 1e-4 * (fabs(db) + 1));
    free_call(&call);
  }
}

static void test_fp16_refused(void **state) {
  fixture *f = *state;
  brim_op_call call = {.op = BRIM_OP_ACT, .in_count = 1, .out_count = 1};
  call.attr.act = BRIM_ACT_RELU;
  call.in[0] = call.out[0] = brim_tensor_make(NULL, BRIM_F16, 2, (const int64_t[]){4, 4});
  assert_status(brim_device_supports(f->device, &call), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "bf16"));
  assert_status(brim_op_prepare(f->device, &call), BRIM_EUNSUPPORTED);
}

static int thread_count(void) {
  DIR *dir = opendir("/proc/self/task");
  assert_non_null(dir);
  int n = 0;
  for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
  closedir(dir);
  return n;
}

// Returns the threads that a device of this size starts. Counts in a new process, because the teams of other tests stay
// alive in this one.
static int threads_added(int threads) {
  brim_registry *registry = NULL;
  if (brim_registry_create(&registry) || brim_registry_load(registry, PLUGIN)) return 100;
  int before = thread_count();
  brim_device *device = open_device(registry, threads);
  brim_op_call call = make_call(BRIM_OP_LINEAR, BRIM_F32, 256, 256, 256);
  run(device, &call);
  int added = thread_count() - before;
  free_call(&call);
  brim_device_close(device);
  brim_registry_destroy(registry);
  return added;
}

static void test_thread_count(void **state) {
  (void)state;
  for (int threads = 1; threads <= 3; threads++) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(threads_added(threads));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), threads - 1);
  }
}

static brim_op_call make_sum(void) {
  brim_op_call call = {.op = BRIM_OP_ADD, .in_count = 2, .out_count = 1};
  call.in[0] = make(BRIM_F32, 2, 512, 512);
  call.in[1] = make(BRIM_F32, 2, 512, 512);
  call.out[0] = make(BRIM_F32, 2, 512, 512);
  return call;
}

// A team does not wait for a thread that does not run. The thread that takes over its part computes the same bits.
// Products of our own kernels have barriers, which do wait.
static void test_stuck_thread(void **state) {
  fixture *f = *state;
  const bool onednn = strcmp(getenv("BRIM_CPU_GEMM"), "onednn") == 0;
  const brim_op ops[] = {BRIM_OP_LINEAR, BRIM_OP_LINEAR_BWD_DATA, BRIM_OP_LINEAR_BWD_WEIGHT};
  for (int i = 0; i < (onednn ? 4 : 1); i++) {
    brim_op_call call = i == 0 ? make_sum() : make_call(ops[i - 1], BRIM_F32, 256, 256, 256);
    if (call.op == BRIM_OP_LINEAR_BWD_WEIGHT) call.out_count = 1;  // sums of columns have a barrier
    const size_t bytes = brim_tensor_bytes(&call.out[0]);
    void *free_result = malloc(bytes);
    assert_non_null(free_result);
    run(f->device, &call);
    memcpy(free_result, call.out[0].data, bytes);
    memset(call.out[0].data, 0, bytes);
    assert_true(stuck_hold("brim-team") >= 1);
    run(f->device, &call);
    stuck_let_go();
    assert_memory_equal(call.out[0].data, free_result, bytes);
    free(free_result);
    if (call.op == BRIM_OP_LINEAR_BWD_WEIGHT) call.out_count = 2;
    free_call(&call);
  }
}

// Ops that are prepared after a change use the new number of threads.
static void test_set_threads(void **state) {
  fixture *f = *state;
  brim_device *device = open_device(f->registry, 2);
  const int before = thread_count();
  assert_int_equal(device->info.threads, 2);
  for (int threads = 1; threads <= 4; threads++) {
    assert_ok(brim_device_set_threads(device, threads));
    assert_int_equal(device->info.threads, threads);
    check_product(device, BRIM_OP_LINEAR, BRIM_F32, (const int64_t[]){256, 200, 160});
    check_product(device, BRIM_OP_LINEAR_BWD_WEIGHT, BRIM_F32, (const int64_t[]){256, 200, 160});
  }
  assert_true(thread_count() >= before);
  assert_ok(brim_device_set_threads(device, 0));  // 0 restores the default number
  assert_int_equal(device->info.threads, 4);
  brim_device_close(device);
}

static void test_fork_refused(void **state) {
  fixture *f = *state;
  brim_op_call call = make_call(BRIM_OP_LINEAR, BRIM_F32, 8, 8, 8);
  assert_ok(brim_op_prepare(f->device, &call));
  call.workspace = aligned_alloc(64, (call.workspace_bytes + 64) / 64 * 64);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(brim_op_run(f->device, &call) == BRIM_ESTATE ? 0 : 1);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  brim_op_release(f->device, &call);
  free(call.workspace);
  free_call(&call);
}

static void test_allocation_failures(void **state) {
  fixture *f = *state;
  brim_op_call call = make_call(BRIM_OP_LINEAR_BWD_WEIGHT, BRIM_F32, 9, 10, 11);
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_status status = BRIM_ENOMEM;
  int failed = 0;
  for (uint64_t n = 1; n < 20 && status != BRIM_OK; n++) {
    brim_alloc_fail_nth(n, 0);
    status = brim_op_prepare(f->device, &call);
    brim_alloc_fail_nth(0, 0);
    if (status != BRIM_OK) assert_int_equal(status, BRIM_ENOMEM);
    failed += status != BRIM_OK;
  }
  assert_ok(status);
  assert_true(failed >= 2);
  brim_op_release(f->device, &call);
  brim_alloc_get_stats(&after);
  assert_int_equal(before.live_blocks[BRIM_MEM_OVERHEAD], after.live_blocks[BRIM_MEM_OVERHEAD]);
  free_call(&call);
}

static void test_workspace_cap(void **state) {
  fixture *f = *state;
  if (strstr(f->device->info.library, "oneDNN")) BRIM_SKIP("oneDNN chooses its own scratchpad");
  brim_device_options options = {.threads = 2, .workspace_cap = 256 * 1024};
  brim_device *small = NULL;
  assert_ok(brim_device_open(f->registry, "cpu", &options, &small));
  brim_op_call call = make_call(BRIM_OP_LINEAR, BRIM_BF16, 300, 700, 400);
  assert_ok(brim_op_prepare(small, &call));
  assert_true(call.workspace_bytes <= options.workspace_cap);
  brim_op_release(small, &call);
  // A small workspace gives the same bits as a large one: blocks over rows and columns do not affect the sums.
  run(f->device, &call);
  size_t bytes = brim_tensor_bytes(&call.out[0]);
  void *first = malloc(bytes);
  assert_non_null(first);
  memcpy(first, call.out[0].data, bytes);
  run(small, &call);
  assert_memory_equal(first, call.out[0].data, bytes);
  free(first);
  free_call(&call);
  brim_device_close(small);
}

static void test_info(void **state) {
  fixture *f = *state;
  assert_int_equal(f->device->info.kind, BRIM_DEVICE_CPU);
  assert_true(f->device->info.host_memory);
  assert_true(f->device->info.total_bytes >= f->device->info.free_bytes);
  assert_true(f->device->info.free_bytes > 0);
  assert_true(strlen(f->device->info.name) > 0);
  const char *wanted = getenv("BRIM_CPU_GEMM");
  assert_non_null(wanted);
  assert_non_null(strstr(f->device->info.library, strcmp(wanted, "onednn") ? "brim" : "oneDNN"));
}

int main(void) {
  // Must run before this process has any team.
  const struct CMUnitTest forked[] = {cmocka_unit_test(test_thread_count)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_info),         cmocka_unit_test(test_products),
      cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_accumulate),
      cmocka_unit_test(test_fp16_refused), cmocka_unit_test(test_workspace_cap),
      cmocka_unit_test(test_fork_refused), cmocka_unit_test(test_stuck_thread),
      cmocka_unit_test(test_set_threads),  cmocka_unit_test(test_allocation_failures),
  };
  brim_registry *registry = NULL;
  brim_device *device = NULL;
  if (brim_registry_create(&registry) != BRIM_OK) return 1;
  if (brim_registry_load(registry, PLUGIN) != BRIM_OK ||
      brim_device_open(registry, "cpu", NULL, &device) != BRIM_OK) {
    return cpu_closed();
  }
  brim_device_close(device);
  brim_registry_destroy(registry);
  int failed = cmocka_run_group_tests(forked, NULL, NULL);
  return failed ? failed : cmocka_run_group_tests(tests, setup, teardown);
}
