// ref's loops presented as a GPU: its own memory, no streams. For workloads that check the kind of device.
#ifndef BRIM_TESTS_WORKLOAD_GPU_FACE_H_
#define BRIM_TESTS_WORKLOAD_GPU_FACE_H_

#include "backend/backend.h"
#include "test.h"

static inline brim_device *gpu_face_open(void) {
  static brim_backend table;
  table = *brim_backend_ref();
  table.name = "cuda";
  brim_device *device = (brim_device *)brim_calloc(1, sizeof *device);
  assert_non_null(device);
  device->backend = &table;
  assert_ok(table.device_open(0, NULL, &device->impl));
  device->info = (brim_device_info){.name = "a face", .id = "face", .library = "ref"};
  device->info.kind = BRIM_DEVICE_GPU;
  device->info.threads = 1;
  device->info.total_bytes = device->info.free_bytes = device->free_at_open = 1ULL << 32;
  return device;
}

#endif  // BRIM_TESTS_WORKLOAD_GPU_FACE_H_
