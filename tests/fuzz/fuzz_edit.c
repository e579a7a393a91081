// Fuzz: any text as a config file in which keys are set. A file that is not refused must load, have the new values, and
// have nothing left to change. The first byte chooses the keys.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "workload/workload.h"

// The list of workloads adds their keys and components before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fine) {
  if (!fine) abort();
}

static const brim_config_edit choices[] = {
    {"data.batch_size", "8"},     {"training.precision", "bf16"},
    {"training.use_amp", "true"}, {"training.learning_rate", "0.25"},
    {"data.path", "'a: b'"},      {"benchmark.batch_sizes", "[1, 2]"},
    {"model.depth", "3"},         {"seed", "7"},
};
enum { CHOICES = sizeof choices / sizeof choices[0] };

static void put(int fd, const char *text, size_t size) {
  must(ftruncate(fd, 0) == 0);
  must(pwrite(fd, text, size, 0) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  int fd = memfd_create("config", MFD_CLOEXEC);
  if (fd < 0) return 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  put(fd, (const char *)data + 1, size - 1);
  brim_config_edit edits[2] = {choices[data[0] % CHOICES], choices[data[0] / CHOICES % CHOICES]};
  size_t count = strcmp(edits[0].key, edits[1].key) ? 2 : 1;
  brim_config_edit_result result, again;
  if (!brim_config_edit_preview(path, edits, count, &result)) {
    put(fd, result.after, result.after_size);
    must(!brim_config_edit_preview(path, edits, count, &again));
    must(!again.changed);
    brim_config_edit_result_deinit(&again);
    brim_config_edit_result_deinit(&result);
  } else {
    must(brim_status_detail()[0] != 0);
  }
  close(fd);
  return 0;
}
