// Fuzz: any bytes as calls on a store: submit, claim, start, beat, metrics, checkpoint, finish, want, retry, ends of
// leases. After each call the store is compared with the model of tests/lab/lab_model.h.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lab_model_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_STEPS = 120 };

static const uint8_t *bytes;
static size_t left;
static lab_place place;

static int next(int n) {
  unsigned value = 0;
  for (int64_t most = 1; most < n && left > 0; most <<= 8, left--) value = value << 8 | *bytes++;
  return (int)(value % (unsigned)n);
}

static void remove_store(void) {
  static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
  char path[600];
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) unlink(lab_file(&place, ends[i], path));
  rmdir(place.place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!place.place[0]) {
    bool memory = access("/dev/shm", W_OK) == 0;
    snprintf(place.place, sizeof place.place, "%s/brim-lease-%ld", memory ? "/dev/shm" : "/tmp",
             (long)getpid());
    snprintf(place.schema, sizeof place.schema, "brim");
    atexit(remove_store);
  }
  bytes = data;
  left = size;
  model_below = next;
  remove_store();
  model_begin(&place);
  for (int i = 0; i < MOST_STEPS && left > 0 && !model_full(); i++) {
    model_step();
    model_compare();
  }
  model_compare_all();
  model_end();
  return 0;
}
