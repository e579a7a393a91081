// The cuda backend's part in work with several ranks: calls of the host in a stream's order, and NCCL. One rank,
// outside of a graph and inside; skipped with the reason if there is no GPU or no NCCL.
#include "backend/backend.h"
#include "backend/backend_half.h"
#include "base/base.h"
#include "test.h"

typedef struct fixture {
  brim_registry *registry;
  brim_device *device;  // NULL: none here
  char why[512];
} fixture;

static int setup(void **state) {
  static fixture f;
  assert_ok(brim_registry_create(&f.registry));
  assert_ok(brim_registry_load_folder(f.registry, BRIM_BUILD_DIR "/lib/brim"));
  if (brim_device_open(f.registry, "cuda", &(brim_device_options){0}, &f.device)) {
    snprintf(f.why, sizeof f.why, "%s", brim_status_detail());
  }
  *state = &f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  brim_device_close(f->device);
  brim_registry_destroy(f->registry);
  return 0;
}

static void *alloc(brim_device *d, brim_buffer_kind kind, size_t bytes) {
  void *p = NULL;
  assert_ok(brim_device_alloc(d, kind, bytes, &p));
  return p;
}

static void upload(brim_device *d, void *to, const void *from, size_t bytes) {
  assert_ok(brim_device_copy(d, to, from, bytes, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(d));
}

static void download(brim_device *d, void *to, const void *from, size_t bytes) {
  assert_ok(brim_device_copy(d, to, from, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(d));
}

//---------------------------------- the host in a stream ----------------------------------

enum { VALUES = 1000 };

typedef struct staged {
  float *host;   // pinned
  void *device;  // VALUES floats
  int calls;
} staged;

static void double_values(void *ctx) {
  staged *s = ctx;
  for (int i = 0; i < VALUES; i++) s->host[i] *= 2;
  s->calls++;
}

// The same steps as an exchange on a device without NCCL: copy to the host, compute there, copy back.
static void enqueue(brim_device *d, staged *s) {
  size_t bytes = VALUES * sizeof(float);
  assert_ok(brim_device_copy(d, s->host, s->device, bytes, BRIM_COPY_D2H));
  assert_ok(d->backend->host_call(d->impl, d->stream, double_values, s));
  assert_ok(brim_device_copy(d, s->device, s->host, bytes, BRIM_COPY_H2D));
}

static void assert_values(brim_device *d, const staged *s, float factor) {
  float got[VALUES];
  download(d, got, s->device, sizeof got);
  for (int i = 0; i < VALUES; i++) assert_true(got[i] == factor * (float)i);
}

static void test_host_call(void **state) {
  fixture *f = *state;
  brim_device *d = f->device;
  if (!d) BRIM_SKIP(f->why);
  assert_non_null(d->backend->host_call);
  float values[VALUES];
  for (int i = 0; i < VALUES; i++) values[i] = (float)i;
  staged s = {.host = alloc(d, BRIM_BUFFER_HOST, sizeof values),
              .device = alloc(d, BRIM_BUFFER_DEVICE, sizeof values)};
  upload(d, s.device, values, sizeof values);
  enqueue(d, &s);
  assert_ok(brim_device_sync(d));
  assert_int_equal(s.calls, 1);
  assert_values(d, &s, 2);
  brim_graph_exec *graph = NULL;
  assert_ok(brim_capture_begin(d));
  enqueue(d, &s);
  assert_ok(brim_capture_end(d, &graph));
  assert_int_equal(s.calls, 1);  // recorded, not run
  for (int i = 0; i < 3; i++) assert_ok(brim_graph_launch(d, graph));
  assert_ok(brim_device_sync(d));
  assert_int_equal(s.calls, 4);
  assert_values(d, &s, 16);
  brim_graph_exec_destroy(d, graph);
  brim_device_free(d, BRIM_BUFFER_HOST, s.host);
  brim_device_free(d, BRIM_BUFFER_DEVICE, s.device);
}

//---------------------------------- nccl ----------------------------------

// A communicator of one rank; NULL with the reason in the detail if there is no NCCL.
static void *open_one(brim_device *d) {
  const brim_comm_table *nccl = d->backend->comm;
  char id[BRIM_COMM_ID_BYTES];
  void *comm = NULL;
  assert_non_null(nccl);
  assert_string_equal(nccl->name, "nccl");
  brim_status status = nccl->unique_id(id);
  if (status == BRIM_EUNSUPPORTED) {
    assert_non_null(strstr(brim_status_detail(), "NCCL"));
    return NULL;
  }
  assert_ok(status);
  assert_ok(nccl->open(d->impl, id, 0, 1, &comm));
  return comm;
}

// Values 1, 2, 3, ... of a type.
static void fill(brim_dtype type, void *data) {
  for (int i = 0; i < VALUES; i++) {
    int v = i % 200 + 1;  // exact in every type
    switch (type) {
      case BRIM_F32:
        ((float *)data)[i] = (float)v;
        break;
      case BRIM_F64:
        ((double *)data)[i] = v;
        break;
      case BRIM_BF16:
        ((uint16_t *)data)[i] = brim_f32_to_bf16((float)v);
        break;
      case BRIM_F16:
        ((uint16_t *)data)[i] = brim_f32_to_f16((float)v);
        break;
      case BRIM_I32:
        ((int32_t *)data)[i] = v;
        break;
      default:
        ((int64_t *)data)[i] = v;
        break;
    }
  }
}

static void test_nccl_types(void **state) {
  fixture *f = *state;
  brim_device *d = f->device;
  if (!d) BRIM_SKIP(f->why);
  void *comm = open_one(d);
  if (!comm) BRIM_SKIP(brim_status_detail());
  static const brim_dtype types[] = {BRIM_F32, BRIM_F64, BRIM_BF16, BRIM_F16, BRIM_I32, BRIM_I64};
  const brim_comm_table *nccl = d->backend->comm;
  double before[VALUES], after[VALUES];
  void *data = alloc(d, BRIM_BUFFER_DEVICE, sizeof before);
  void *all = alloc(d, BRIM_BUFFER_DEVICE, sizeof before);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    size_t bytes = VALUES * brim_dtype_size(types[i]);
    fill(types[i], before);
    upload(d, data, before, bytes);
    assert_ok(brim_device_fill(d, all, 0xA5, sizeof before));
    assert_ok(nccl->all_reduce(comm, d->stream, data, VALUES, types[i]));
    assert_ok(nccl->all_gather(comm, d->stream, data, all, bytes));
    download(d, after, data, bytes);
    assert_memory_equal(after, before, bytes);
    download(d, after, all, bytes);
    assert_memory_equal(after, before, bytes);
  }
  assert_status(nccl->all_reduce(comm, d->stream, data, VALUES, BRIM_U8), BRIM_EUNSUPPORTED);
  nccl->close(comm);
  brim_device_free(d, BRIM_BUFFER_DEVICE, data);
  brim_device_free(d, BRIM_BUFFER_DEVICE, all);
}

static void test_nccl_in_a_graph(void **state) {
  fixture *f = *state;
  brim_device *d = f->device;
  if (!d) BRIM_SKIP(f->why);
  void *comm = open_one(d);
  if (!comm) BRIM_SKIP(brim_status_detail());
  const brim_comm_table *nccl = d->backend->comm;
  float values[VALUES], got[VALUES];
  void *from = alloc(d, BRIM_BUFFER_DEVICE, sizeof values);
  void *data = alloc(d, BRIM_BUFFER_DEVICE, sizeof values);
  void *all = alloc(d, BRIM_BUFFER_DEVICE, sizeof values);
  brim_graph_exec *graph = NULL;
  assert_ok(brim_device_fill(d, all, 0, sizeof values));
  assert_ok(brim_capture_begin(d));
  assert_ok(brim_device_copy(d, data, from, sizeof values, BRIM_COPY_D2D));
  assert_ok(nccl->all_reduce(comm, d->stream, data, VALUES, BRIM_F32));
  assert_ok(nccl->all_gather(comm, d->stream, data, all, sizeof values));
  assert_ok(brim_capture_end(d, &graph));
  download(d, got, all, sizeof got);
  assert_true(got[0] == 0);  // recorded, not run
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < VALUES; i++) values[i] = (float)(round * i + 1);
    upload(d, from, values, sizeof values);
    assert_ok(brim_graph_launch(d, graph));
    download(d, got, all, sizeof got);
    assert_memory_equal(got, values, sizeof values);
  }
  brim_graph_exec_destroy(d, graph);
  nccl->close(comm);
  brim_device_free(d, BRIM_BUFFER_DEVICE, from);
  brim_device_free(d, BRIM_BUFFER_DEVICE, data);
  brim_device_free(d, BRIM_BUFFER_DEVICE, all);
}

static void test_nccl_abandoned(void **state) {
  fixture *f = *state;
  brim_device *d = f->device;
  if (!d) BRIM_SKIP(f->why);
  void *comm = open_one(d);
  if (!comm) BRIM_SKIP(brim_status_detail());
  const brim_comm_table *nccl = d->backend->comm;
  void *data = alloc(d, BRIM_BUFFER_DEVICE, VALUES * sizeof(float));
  assert_ok(brim_device_fill(d, data, 0, VALUES * sizeof(float)));
  assert_ok(nccl->all_reduce(comm, d->stream, data, VALUES, BRIM_F32));
  assert_ok(brim_device_sync(d));
  nccl->abandon(comm);
  nccl->abandon(comm);  // abandoning once must be enough
  assert_status(nccl->all_reduce(comm, d->stream, data, VALUES, BRIM_F32), BRIM_EIO);
  assert_status(nccl->all_gather(comm, d->stream, data, data, 4), BRIM_EIO);
  nccl->close(comm);
  void *again = open_one(d);  // the device still works
  assert_ok(nccl->all_reduce(again, d->stream, data, VALUES, BRIM_F32));
  assert_ok(brim_device_sync(d));
  nccl->close(again);
  brim_device_free(d, BRIM_BUFFER_DEVICE, data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host_call),
      cmocka_unit_test(test_nccl_types),
      cmocka_unit_test(test_nccl_in_a_graph),
      cmocka_unit_test(test_nccl_abandoned),
  };
  test_filter();
  return cmocka_run_group_tests(tests, setup, teardown);
}
