// A network on several ranks equals the network on one: the same rows in several parts give the same weights and
// running statistics, for every model and every form of a step. In double, so that rounding is no excuse. Ranks are
// processes.
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_lazy.h"
#include "engine_models_test.h"

enum { BATCH = 12, MOST = 4 };
static const int64_t patience_ns = 120 * (int64_t)1000000000;

typedef enum form { STEP, TRAIN_THEN_UPDATE, MEASURED, FORM_COUNT } form;

typedef struct job {
  test_spec *t;  // its batch is that of all ranks
  brim_net_hooks hooks;
  form form;
  int64_t steps;
  int64_t last_rows;  // on all ranks, of the last step's last micro-batch
  bool pairs;         // two views of each sample are two rows
  bool cpu;           // the cpu plug-in, in f32
  bool lazy;  // a device with memory and streams of its own, which are as late as they may be
} job;

// The result of a rank: parameters, then running statistics.
typedef struct left {
  size_t count;
  double values[1];
} left;
enum { LEFT_BYTES = 8 << 20 };

static size_t sample_bytes(const brim_net_spec *s) {
  size_t values = 1;
  for (int i = 0; i < s->input_rank; i++) values *= (size_t)s->input_dim[i];
  return values * brim_dtype_size(s->input_dtype);
}

// This rank's rows of a batch of two views, in which first views come before second ones.
static void cut_pairs(const brim_net_spec *whole, const test_batch *b, int rank, int64_t samples,
                      unsigned char *out) {
  size_t bytes = sample_bytes(whole);
  const unsigned char *all = b->input;
  for (int view = 0; view < 2; view++) {
    size_t from = ((size_t)view * (size_t)whole->batch + (size_t)(rank * samples)) * bytes;
    memcpy(out + (size_t)(view * samples) * bytes, all + from, (size_t)samples * bytes);
  }
}

static void ignore(void *ctx, brim_phase phase, const char *name) {
  (void)ctx;
  (void)phase;
  (void)name;
}

static brim_status one_micro(brim_net *net, const job *j, brim_net_micro *micro, bool last) {
  const brim_spans exact = {.exact = true, .begin = ignore, .end = ignore};
  const brim_spans *spans = j->form == MEASURED ? &exact : NULL;
  if (!last || j->form == TRAIN_THEN_UPDATE) BRIM_TRY(brim_net_train(net, micro, spans));
  if (!last) return BRIM_OK;
  if (j->form == TRAIN_THEN_UPDATE) return brim_net_update(net, micro->step, 0.1, spans);
  return brim_net_step(net, micro, 0.1, spans);
}

static brim_status train(brim_net *net, const job *j, int rank, int ranks) {
  const brim_net_spec *s = &j->t->spec;
  int64_t views = j->pairs ? 2 : 1, own = s->batch / ranks, parts = s->accumulation;
  brim_net_spec wide = *s;  // all rows of a step, for test_batch_make
  wide.batch = s->batch * views;
  unsigned char *cut = calloc((size_t)(own * views), sample_bytes(s));
  brim_status status = BRIM_OK;
  for (int64_t step = 1; !status && step <= j->steps; step++) {
    for (int64_t k = 0; !status && k < parts; k++) {
      bool last = k + 1 == parts;
      int64_t rows = step == j->steps && last ? j->last_rows / ranks : own;
      int64_t all = (parts - 1) * s->batch + (step == j->steps ? j->last_rows : s->batch);
      test_batch b;
      test_batch_make(&wide, wide.batch, (uint64_t)(step * 16 + k), &b);
      brim_net_micro micro = {.step = step, .step_rows = all * views, .first = k == 0};
      // a short batch is cut into a part for each rank, at the beginning of its block
      micro.batch = test_batch_at(&wide, &b, rank * rows, rows);
      micro.batch.row_offset = (k * s->batch + rank * rows) * views;
      if (j->pairs) {
        cut_pairs(s, &b, rank, own, cut);
        micro.batch =
            (brim_batch){.input = cut, .rows = own * views, .row_offset = micro.batch.row_offset};
      }
      status = one_micro(net, j, &micro, last);
      test_batch_free(&b);
    }
  }
  free(cut);
  return status;
}

static void take(const brim_net *net, left *out) {
  static const int blocks[] = {BRIM_BLOCK_PARAMS, BRIM_BLOCK_BUFFERS};
  out->count = 0;
  for (int i = 0; i < 2; i++) {
    unsigned char *data = test_block(net, blocks[i]);
    size_t n = net->blocks[blocks[i]].bytes / brim_dtype_size(net->master);
    for (size_t k = 0; k < n && out->count < LEFT_BYTES / sizeof(double) - 1; k++) {
      out->values[out->count++] =
          net->master == BRIM_F64 ? ((double *)data)[k] : (double)((float *)data)[k];
    }
    free(data);
  }
}

// Steps are recorded and launched on ranks as on one.
static brim_status check_recorded(const brim_net *net) {
  const lazy_counters *c = lazy_count(net->device);
  if (net->exec.capture.on && c->captures > 0 && c->launches > 0 && c->refused == 0) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "%d recordings, %d launches, %d refused", c->captures,
                   c->launches, c->refused);
}

static brim_status run(const job *j, brim_comm *comm, left *out) {
  int rank = brim_comm_rank(comm), ranks = brim_comm_size(comm);
  brim_device *device = j->lazy ? lazy_open(0) : j->cpu ? test_device_cpu() : test_device_ref();
  brim_net *net = NULL;
  brim_net_spec own = j->t->spec;
  own.batch /= ranks;
  brim_status status = comm ? brim_device_set_ranks(device, comm, true, NULL) : BRIM_OK;
  if (!status) status = brim_net_create_hooked(device, &own, &j->hooks, &net);
  if (!status) status = train(net, j, rank, ranks);
  if (!status) take(net, out);
  if (!status && j->lazy) status = check_recorded(net);
  brim_net_destroy(net);
  if (j->lazy) {
    brim_device_leave_ranks(device);
    lazy_close(device);
  } else {
    test_device_close(device);
  }
  return status;
}

static int rank_main(const job *j, const char *name, int rank, int ranks, left *out) {
  brim_comm *comm = NULL;
  brim_status status = brim_comm_open_shm(name, rank, ranks, patience_ns, &comm);
  if (!status) status = run(j, comm, out);
  if (status) fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, brim_status_detail());
  brim_comm_destroy(comm);
  return status != BRIM_OK;
}

static left *leave(void) {
  left *out = mmap(NULL, LEFT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(out != MAP_FAILED);
  return out;
}

static void forget(left *l) { munmap(l, LEFT_BYTES); }

// Runs every rank in a process, and collects their results.
static void run_ranks(const job *j, int ranks, left **out) {
  static int used;
  char name[64];
  pid_t pids[MOST];
  snprintf(name, sizeof name, "/brim-test-engine-%d-%d", (int)getpid(), used++);
  for (int r = 0; r < ranks; r++) out[r] = leave();
  fflush(NULL);
  for (int r = 0; r < ranks; r++) {
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] == 0) _exit(rank_main(j, name, r, ranks, out[r]));
  }
  int failed = 0;
  for (int r = 0; r < ranks; r++) {
    int code = -1;
    assert_int_equal(waitpid(pids[r], &code, 0), pids[r]);
    failed += code != 0;
  }
  assert_int_equal(failed, 0);
}

static left *run_alone(const job *j) {
  left *out = leave();
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    brim_status status = run(j, NULL, out);
    if (status) fprintf(stderr, "one rank: %s\n", brim_status_detail());
    _exit(status != BRIM_OK);
  }
  int code = -1;
  assert_int_equal(waitpid(pid, &code, 0), pid);
  assert_int_equal(code, 0);
  return out;
}

static double distance(const left *a, const left *b) {
  double apart = 0, size = 0;
  assert_true(a->count > 0);
  assert_int_equal(a->count, b->count);
  for (size_t i = 0; i < a->count; i++) {
    apart += (a->values[i] - b->values[i]) * (a->values[i] - b->values[i]);
    size += a->values[i] * a->values[i];
  }
  return sqrt(apart / size);
}

static void same(const left *a, const left *b) {
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->values, b->values, a->count * sizeof *a->values);
}

// Runs one rank, then several. The results of several have the same bits, and differ from the one by at most `bound`.
static void compare(const job *j, const int *counts, int count, double bound) {
  left *one = run_alone(j);
  for (int c = 0; c < count; c++) {
    left *of[MOST];
    run_ranks(j, counts[c], of);
    double apart = distance(one, of[0]);
    print_message("%d ranks: %.2g from one\n", counts[c], apart);
    if (!(apart <= bound)) fail_msg("%d ranks are %g from one", counts[c], apart);
    for (int r = 1; r < counts[c]; r++) same(of[0], of[r]);
    for (int r = 0; r < counts[c]; r++) forget(of[r]);
  }
  forget(one);
}

static void model_job(const test_model *c, test_spec *t, job *j) {
  test_model_spec(c, t);
  t->spec.batch = BATCH;
  t->spec.optimizer = &t->optimizer.c;
  *j = (job){.t = t, .hooks = {.f64 = true}, .steps = 3, .last_rows = BATCH};
}

static void test_all_models(void **state) {
  (void)state;
  static const int counts[] = {2, 3, 4};
  for (int i = 0; i < TEST_MODELS; i++) {
    test_spec t;
    job j;
    model_job(&test_models[i], &t, &j);
    print_message("%s\n", test_models[i].name);
    compare(&j, counts, 3, 1e-8);
  }
}

// Complete trainings from random weights, where rounding errors grow with every step.
static void test_many_steps(void **state) {
  (void)state;
  static const int counts[] = {2, 4};
  test_spec t;
  job j;
  model_job(&test_models[0], &t, &j);
  j.steps = test_is_full() ? 100 : 30;
  compare(&j, counts, 2, 1e-5);
}

// A step of several micro-batches, with a short one at the end, in all forms of a step.
static void test_forms(void **state) {
  (void)state;
  static const int counts[] = {2, 4};
  for (int f = 0; f < FORM_COUNT; f++) {
    for (int accumulation = 1; accumulation <= 3; accumulation += 2) {
      test_spec t;
      job j;
      model_job(&test_models[0], &t, &j);
      t.spec.accumulation = accumulation;
      j.form = (form)f;
      j.last_rows = BATCH - 4;
      // batch norm covers a micro-batch: the same rows are together on one rank and on several
      compare(&j, counts, 2, 1e-10);
    }
  }
}

// A device with streams: exchanges are part of the recording, in full steps and in measured ones.
static void test_recorded(void **state) {
  (void)state;
  static const int counts[] = {2, 3};
  for (int f = 0; f < FORM_COUNT; f++) {
    test_spec t;
    job j;
    model_job(&test_models[0], &t, &j);
    t.spec.accumulation = f == STEP ? 2 : 1;
    j.form = (form)f;
    j.lazy = true;
    j.steps = 8;
    compare(&j, counts, 2, 1e-10);
  }
}

// The size of the buckets in which gradients are exchanged changes no bit.
static void test_buckets(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 100, 4096};
  test_spec t;
  job j;
  left *usual[2];
  model_job(&test_models[0], &t, &j);
  run_ranks(&j, 2, usual);
  for (int i = 0; i < 3; i++) {
    left *of[2];
    j.hooks.bucket_bytes = sizes[i];
    run_ranks(&j, 2, of);
    same(usual[0], of[0]);
    for (int r = 0; r < 2; r++) forget(of[r]);
  }
  for (int r = 0; r < 2; r++) forget(usual[r]);
}

// The comparison can fail: statistics of each rank's own rows give other weights, the same on every rank, and running
// statistics that differ between ranks.
static void test_local_norm(void **state) {
  (void)state;
  test_spec t;
  job j;
  left *of[2];
  model_job(&test_models[0], &t, &j);
  left *one = run_alone(&j);
  t.spec.local_norm = true;
  run_ranks(&j, 2, of);
  assert_true(distance(one, of[0]) > 1e-4);
  assert_true(distance(of[0], of[1]) > 1e-6);
  for (int r = 0; r < 2; r++) forget(of[r]);
  forget(one);
}

// Every sample of all ranks is a negative of every other.
static void test_pairs(void **state) {
  (void)state;
  static const int counts[] = {2, 3, 4};
  test_spec t;
  test_component backbone;
  job j;
  const test_model c = {
      .name = "simclr", .model = "simclr", .dim = {6, 6, 3}, .rank = 3, .outputs = 5, .mse = true};
  model_job(&c, &t, &j);
  test_component_init(&t.model, "simclr");
  test_component_init(&backbone, "resnet18");
  test_component_int(&backbone, "width", 2);
  t.model.args[0] = (brim_argument){
      .name = "backbone", .value = {.kind = BRIM_VALUE_COMPONENT, .component = &backbone.c}};
  t.model.c.arg_count = 1;
  test_component_int(&t.model, "hidden", 16);
  test_component_int(&t.model, "dim", 12);
  test_component_init(&t.loss, "ntxent");
  t.spec.model = &t.model.c;
  t.spec.loss = &t.loss.c;
  t.spec.views = 2;
  j.pairs = true;
  compare(&j, counts, 3, 1e-10);
}

// The cpu plug-in gives the same result with several ranks as alone, up to f32's rounding.
static void test_cpu(void **state) {
  (void)state;
  static const int counts[] = {2};
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  test_device_close(device);
  test_spec t;
  job j;
  model_job(&test_models[0], &t, &j);
  j.hooks.f64 = false;
  j.cpu = true;
  compare(&j, counts, 1, 1e-4);
}

// Features that do not work with ranks are refused before anything runs.
static void test_refused(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  brim_net *net = NULL;
  test_model_spec(&test_models[0], &t);
  t.spec.optimizer = &t.optimizer.c;
  assert_ok(brim_device_set_ranks(device, NULL, true, NULL));
  assert_int_equal(brim_device_ranks(device), 1);
  assert_ok(brim_net_create(device, &t.spec, &net));  // one rank alone exchanges with itself
  brim_net_destroy(net);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_models), cmocka_unit_test(test_many_steps),
      cmocka_unit_test(test_forms),      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_buckets),    cmocka_unit_test(test_local_norm),
      cmocka_unit_test(test_pairs),      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
