// A GPU made of ref's loops and numbers: it counts its allocations, refuses above a limit, loads modules at the first
// copy, and shares its memory with other processes; and an NVML that reports it. One per test program.
#ifndef BRIM_TESTS_MEASURE_FAKE_GPU_H_
#define BRIM_TESTS_MEASURE_FAKE_GPU_H_

#include <unistd.h>

#include "monitor/monitor.h"
#include "monitor/monitor_nvml_abi.h"
#include "test.h"
#include "workload/workload.h"

#define MIB (1ULL << 20)
#define FAKE_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"

static struct {
  uint64_t total, others;
  uint64_t context, modules;  // overhead now: since opening, and since the first copy
  uint64_t modules_at_copy;   // `modules` after the first copy
  uint64_t allocated;         // device buffers
  uint64_t others_at_alloc;   // `others` after the next allocation; 0 = unchanged
  bool lists_nothing, half;   // NVML lists no processes; f16 is refused
} gpu;

static inline uint64_t gpu_own(void) { return gpu.context + gpu.modules + gpu.allocated; }
static inline uint64_t gpu_free(void) {
  uint64_t used = gpu.others + gpu_own();
  return used < gpu.total ? gpu.total - used : 0;
}

//---------------------------------- the backend ----------------------------------

static inline brim_status fake_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  if (kind == BRIM_BUFFER_DEVICE) {
    if (gpu.others_at_alloc) gpu.others = gpu.others_at_alloc;
    gpu.others_at_alloc = 0;
    if (bytes > gpu_free()) return brim_fail(BRIM_EOOM, "fakeMalloc: out of memory");
  }
  BRIM_TRY(brim_backend_ref()->buffer_alloc(impl, kind, bytes, ptr));
  if (kind == BRIM_BUFFER_DEVICE) gpu.allocated += bytes;
  return BRIM_OK;
}

static inline void fake_free(void *impl, brim_buffer_kind kind, void *ptr) {
  if (kind == BRIM_BUFFER_DEVICE) gpu.allocated -= brim_alloc_size(ptr);
  brim_backend_ref()->buffer_free(impl, kind, ptr);
}

static inline brim_status fake_device_memory(void *impl, uint64_t *free_bytes,
                                             uint64_t *total_bytes) {
  (void)impl;
  *free_bytes = gpu_free();
  *total_bytes = gpu.total;
  return BRIM_OK;
}

static inline brim_status fake_copy(void *impl, void *stream, void *dst, const void *src,
                                    size_t bytes, brim_copy direction) {
  gpu.modules = gpu.modules_at_copy;
  return brim_backend_ref()->copy(impl, stream, dst, src, bytes, direction);
}

static inline brim_status fake_validate(void *impl, const brim_op_call *call) {
  for (int i = 0; i < call->in_count; i++) {
    if (call->in[i].dtype == BRIM_F16 && gpu.half) {
      return brim_fail(BRIM_EUNSUPPORTED, "fake: no f16");
    }
  }
  return brim_backend_row(brim_backend_ref(), call->op)->validate(impl, call);
}

// The device in the state that brim_device_open leaves.
static inline brim_device *fake_device_open(void) {
  static brim_op_row rows[BRIM_OP_COUNT];
  static brim_op_family family;
  static const brim_op_family *const families[] = {&family};
  static brim_backend table;
  const brim_backend *ref = brim_backend_ref();
  table = *ref;
  table.name = "cuda";
  table.buffer_alloc = fake_alloc;
  table.buffer_free = fake_free;
  table.device_memory = fake_device_memory;
  table.copy = fake_copy;
  family = (brim_op_family){.rows = rows};
  for (int op = 0; op < BRIM_OP_COUNT; op++) {
    const brim_op_row *row = brim_backend_row(ref, (brim_op)op);
    if (!row) continue;
    rows[family.count] = *row;
    rows[family.count++].validate = fake_validate;
  }
  table.ops = families;
  table.op_families = 1;
  brim_device *device = (brim_device *)brim_calloc(1, sizeof *device);
  assert_non_null(device);
  device->backend = &table;
  assert_ok(ref->device_open(0, NULL, &device->impl));
  device->info = (brim_device_info){.name = "Fake 1", .id = FAKE_UUID, .library = "fake 1.0"};
  device->info.kind = BRIM_DEVICE_GPU;
  device->info.total_bytes = device->info.free_bytes = gpu.total;
  device->free_at_open = gpu.total;
  gpu.context = 3 * MIB;
  return device;
}

//---------------------------------- NVML ----------------------------------

static inline int nvml_nothing(void) { return 0; }
static inline int nvml_uuid(const char *uuid, void **device) {
  *device = &gpu;
  return strcmp(uuid, FAKE_UUID) == 0 ? 0 : BRIM_NVML_NOT_FOUND;
}
static inline int nvml_driver(char *text, unsigned size) {
  snprintf(text, size, "1.2.3");
  return 0;
}
static inline int nvml_memory(void *device, brim_nvml_memory_v2 *out) {
  (void)device;
  out->total = gpu.total;
  out->reserved = 0;
  out->free = gpu_free();
  out->used = gpu.total - out->free;
  return 0;
}
static inline int nvml_compute(void *device, unsigned *count, brim_nvml_process *out) {
  (void)device;
  unsigned room = *count;
  *count = 0;
  if (gpu.lists_nothing) return 0;
  assert_true(room >= 2);
  if (gpu.others) out[(*count)++] = (brim_nvml_process){.pid = 4711, .used_bytes = gpu.others};
  if (gpu_own()) {
    out[(*count)++] = (brim_nvml_process){.pid = (unsigned)getpid(), .used_bytes = gpu_own()};
  }
  return 0;
}

static inline brim_gpu_monitor *fake_monitor_open(void) {
  static const brim_nvml_api api = {.init = nvml_nothing,
                                    .shutdown = nvml_nothing,
                                    .by_uuid = nvml_uuid,
                                    .driver_version = nvml_driver,
                                    .memory_v2 = nvml_memory,
                                    .compute = nvml_compute};
  static const char arguments[] = "/opt/bin/python\0train.py\0";
  brim_gpu_monitor *monitor = NULL;
  assert_ok(brim_fs_mkdirs("root/proc/4711"));
  assert_ok(brim_fs_write("root/proc/4711/comm", "python\n", 7));
  assert_ok(brim_fs_write("root/proc/4711/cmdline", arguments, sizeof arguments - 1));
  assert_ok(brim_gpu_monitor_open_api(&api, "root", &monitor));
  return monitor;
}

#endif  // BRIM_TESTS_MEASURE_FAKE_GPU_H_
