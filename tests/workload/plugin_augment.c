// A plug-in for the tests of workload: "data.augment" for a device whose memory the host can access. It only gathers;
// pipelines with stages are refused. Pages are not really locked: the extension "test.locks" has the list of locked
// ones, and decides which locks are refused.
#include <string.h>

#include "brim/plugin.h"
#include "data/transform/data_augment.h"
#include "workload/plugin_augment.h"

static const brim_host_api *host_api;

static brim_status gather_supports(const brim_augment_program *program) {
  if (program->stage_count == 0) return BRIM_OK;
  return host_api->fail(BRIM_EUNSUPPORTED, "this device transforms nothing");
}

static size_t gather_scratch(const brim_augment_program *program, int64_t capacity) {
  (void)program;
  (void)capacity;
  return 64;
}

static brim_status gather_run(void *stream, const brim_augment_program *program,
                              const brim_augment_batch *batch, void *scratch) {
  size_t input = program->sample_bytes, target = batch->target_bytes;
  (void)stream;
  memset(scratch, 0, 64);
  memset(batch->out, 0, (size_t)batch->capacity * input);
  if (batch->out_targets) memset(batch->out_targets, 0, (size_t)batch->capacity * target);
  for (int64_t i = 0; i < batch->rows; i++) {
    size_t from = (size_t)batch->index[i], to = (size_t)i;
    memcpy((char *)batch->out + to * input, (const char *)batch->inputs + from * input, input);
    if (!batch->out_targets) continue;
    memcpy((char *)batch->out_targets + to * target, (const char *)batch->targets + from * target,
           target);
  }
  return BRIM_OK;
}

static test_locks locks;

static brim_status gather_lock(const void *memory, size_t bytes, const void *near,
                               const void **address) {
  (void)near;
  if (locks.refuse_above && bytes >= locks.refuse_above) {
    return host_api->fail(BRIM_EUNSUPPORTED, "these pages stay as they are");
  }
  locks.live++;
  locks.bytes += bytes;
  locks.made++;
  locks.memory[locks.made % TEST_LOCKS] = memory;
  locks.size[locks.made % TEST_LOCKS] = bytes;
  *address = memory;
  return BRIM_OK;
}

static void gather_unlock(const void *memory) {
  for (size_t i = 0; i < TEST_LOCKS; i++) {
    if (locks.memory[i] != memory) continue;
    locks.memory[i] = NULL;
    locks.live--;
    locks.bytes -= locks.size[i];
    return;
  }
  locks.live = -1000;  // never locked: makes every later test fail
}

static brim_status gather_fetch(void *stream, const brim_augment_fetch *f) {
  (void)stream;
  locks.fetches++;
  memset(f->to, 0, (size_t)f->capacity * f->bytes);
  if (f->out_targets) memset(f->out_targets, 0, (size_t)f->capacity * f->target_bytes);
  for (int64_t i = 0; i < f->rows; i++) {
    size_t to = (size_t)i;
    memcpy((char *)f->to + to * f->bytes, (const char *)f->from + f->place[i] * f->stride,
           f->bytes);
    if (!f->targets) continue;
    memcpy((char *)f->out_targets + to * f->target_bytes,
           (const char *)f->targets + f->index[i] * f->target_bytes, f->target_bytes);
  }
  return BRIM_OK;
}

static const brim_augment_table gather = {.abi = BRIM_AUGMENT_ABI,
                                          .supports = gather_supports,
                                          .scratch_bytes = gather_scratch,
                                          .run = gather_run,
                                          .lock = gather_lock,
                                          .unlock = gather_unlock,
                                          .fetch = gather_fetch};

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host, const brim_plugin **out) {
  static const brim_extension extensions[] = {{BRIM_AUGMENT_EXTENSION, &gather},
                                              {TEST_LOCKS_EXTENSION, &locks}};
  static const brim_plugin plugin = {.abi = BRIM_PLUGIN_ABI,
                                     .name = "test-augment",
                                     .version = "1",
                                     .extensions = extensions,
                                     .extension_count = 2};
  if (abi != BRIM_PLUGIN_ABI) return BRIM_EABI;
  host_api = host;
  *out = &plugin;
  return BRIM_OK;
}
