// An NVML whose driver stops answering: at the start (FAKE_NVML=init), or from the third reading of a GPU on. `brim
// top` loads it in place of NVIDIA's.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static void wait_forever(void) {
  for (;;) pause();
}

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
API int nvmlDeviceGetCount_v2(unsigned *count);
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
API int nvmlDeviceGetName(void *device, char *name, unsigned size);
API int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates);

int nvmlInit_v2(void) {
  const char *how = getenv("FAKE_NVML");
  if (how && strcmp(how, "init") == 0) wait_forever();
  return 0;
}

int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  (void)uuid;
  *device = NULL;
  return 6;  // NVML's "not found"
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 1;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  static int gpu;
  (void)index;
  *device = &gpu;
  return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  static const char text[] = "A slow GPU";
  (void)device;
  if (size < sizeof text) return 7;  // NVML's "insufficient size"
  memcpy(name, text, sizeof text);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
  static int calls;
  (void)device;
  if (++calls > 2) wait_forever();
  rates[0] = 37;
  rates[1] = 0;
  return 0;
}
