// Which GPUs this machine has, by NVML. A GPU in MIG mode runs nothing itself: its slices are listed.
#include <string.h>

#include "monitor/monitor_int.h"

enum { MAX_GPUS = 256, MAX_SLICES = 64 };

typedef struct listing {
  brim_gpu_monitor *monitor;
  brim_gpu_listed *items;
  size_t count, room;
} listing;

static brim_status add(listing *l, void *device, bool slice) {
  brim_gpu_listed item = {.slice = slice};
  const brim_nvml_api *api = &l->monitor->api;
  if (api->uuid(device, item.uuid, sizeof item.uuid - 1) != BRIM_NVML_SUCCESS) return BRIM_OK;
  if (!item.uuid[0]) return BRIM_OK;
  if (!api->name || api->name(device, item.name, sizeof item.name - 1) != BRIM_NVML_SUCCESS) {
    item.name[0] = '\0';
  }
  if (l->count == l->room) {
    size_t room = l->room ? l->room * 2 : 8;
    brim_gpu_listed *items = (brim_gpu_listed *)brim_realloc(l->items, room * sizeof *items);
    if (!items) return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
    l->items = items;
    l->room = room;
  }
  l->items[l->count++] = item;
  return BRIM_OK;
}

static bool in_mig_mode(const brim_nvml_api *api, void *device) {
  unsigned now = 0, pending = 0;
  return api->mig_mode && api->mig_count && api->mig_by_index &&
         api->mig_mode(device, &now, &pending) == BRIM_NVML_SUCCESS && now == 1;
}

static brim_status add_slices(listing *l, void *device) {
  const brim_nvml_api *api = &l->monitor->api;
  unsigned most = 0;
  if (api->mig_count(device, &most) != BRIM_NVML_SUCCESS) return BRIM_OK;
  for (unsigned i = 0; i < most && i < MAX_SLICES; i++) {
    void *slice = NULL;
    // places without a slice are answered with NOT_FOUND
    if (api->mig_by_index(device, i, &slice) != BRIM_NVML_SUCCESS) continue;
    BRIM_TRY(add(l, slice, true));
  }
  return BRIM_OK;
}

static brim_status add_all(listing *l, unsigned count) {
  const brim_nvml_api *api = &l->monitor->api;
  for (unsigned i = 0; i < count && i < MAX_GPUS; i++) {
    void *device = NULL;
    if (api->by_index(i, &device) != BRIM_NVML_SUCCESS) continue;
    if (in_mig_mode(api, device)) {
      BRIM_TRY(add_slices(l, device));
    } else {
      BRIM_TRY(add(l, device, false));
    }
  }
  return BRIM_OK;
}

brim_status brim_gpu_list(brim_gpu_monitor *monitor, brim_gpu_listed **out, size_t *count) {
  *out = NULL;
  *count = 0;
  const brim_nvml_api *api = &monitor->api;
  unsigned n = 0;
  int code = BRIM_NVML_NOT_SUPPORTED;
  if (api->device_count && api->by_index && api->uuid) code = api->device_count(&n);
  if (code != BRIM_NVML_SUCCESS) {
    return brim_fail(BRIM_EUNSUPPORTED, "NVML: %s: %s (%d)", "nvmlDeviceGetCount",
                     brim_gpu_error_text(monitor, code), code);
  }
  listing l = {.monitor = monitor};
  brim_status status = add_all(&l, n);
  if (status) {
    brim_free(l.items);
    return status;
  }
  *out = l.items;
  *count = l.count;
  return BRIM_OK;
}
