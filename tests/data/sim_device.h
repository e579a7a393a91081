// A device with two streams out of step: enqueued work waits in a list, and runs when a caller waits for it, or at once
// if its stream is set to hurry and nothing it waits for is missing. Code that works only because streams happen to be
// in step fails here. Memory is the host's. One per test program.
#ifndef BRIM_TESTS_DATA_SIM_DEVICE_H_
#define BRIM_TESTS_DATA_SIM_DEVICE_H_

#include "backend/backend.h"
#include "test.h"

enum { SIM_MAIN, SIM_COPY, SIM_STREAMS, SIM_OPS = 1 << 14 };
typedef enum sim_hurry {
  SIM_NOBODY,
  SIM_COPY_FIRST,
  SIM_MAIN_FIRST,
  SIM_BOTH,
  SIM_HURRIES
} sim_hurry;

typedef struct sim_op {
  void (*fn)(void *ctx);  // NULL: the item waits
  void *ctx;              // allocated with malloc
  int stream;             // waits until this stream
  size_t at;              // has run this many items
} sim_op;

typedef struct sim_stream {
  sim_op ops[SIM_OPS];
  size_t count, done;
} sim_stream;

typedef struct sim_event {
  int stream;
  size_t at;
} sim_event;

static struct {
  sim_stream streams[SIM_STREAMS];
  sim_hurry hurry;
} sim;

static inline void sim_advance(int stream, size_t at) {
  sim_stream *s = &sim.streams[stream];
  while (s->done < at) {
    sim_op op = s->ops[s->done];
    if (op.fn) {
      op.fn(op.ctx);
      free(op.ctx);
    } else {
      sim_advance(op.stream, op.at);
    }
    s->done++;
  }
}

static inline void sim_hurry_up(int stream) {
  sim_stream *s = &sim.streams[stream];
  while (s->done < s->count) {
    const sim_op *op = &s->ops[s->done];
    if (!op->fn && sim.streams[op->stream].done < op->at) return;
    sim_advance(stream, s->done + 1);
  }
}

static inline void sim_push(void *stream, sim_op op) {
  int number = stream == &sim.streams[SIM_COPY] ? SIM_COPY : SIM_MAIN;
  sim_stream *s = &sim.streams[number];
  assert_true(stream == s && s->count < SIM_OPS);
  s->ops[s->count++] = op;
  for (int k = 0; k < SIM_STREAMS; k++) {
    if (sim.hurry == SIM_BOTH || sim.hurry == (k == SIM_COPY ? SIM_COPY_FIRST : SIM_MAIN_FIRST)) {
      sim_hurry_up(k);
    }
  }
}

// Enqueues a call with a copy of its arguments.
static inline void sim_call(void *stream, void (*fn)(void *ctx), const void *args, size_t size) {
  sim_op op = {.fn = fn, .ctx = malloc(size)};
  assert_non_null(op.ctx);
  memcpy(op.ctx, args, size);
  sim_push(stream, op);
}

//---------------------------------- the backend ----------------------------------

typedef struct sim_bytes {
  void *dst;
  const void *src;
  size_t n;
} sim_bytes;

static inline void sim_do_copy(void *ctx) {
  const sim_bytes *b = ctx;
  memcpy(b->dst, b->src, b->n);
}

static inline brim_status sim_copy(void *impl, void *stream, void *dst, const void *src, size_t n,
                                   brim_copy direction) {
  (void)impl;
  (void)direction;
  const sim_bytes b = {dst, src, n};
  sim_call(stream, sim_do_copy, &b, sizeof b);
  return BRIM_OK;
}

static inline brim_status sim_stream_create(void *impl, void **stream) {
  (void)impl;
  *stream = &sim.streams[0];
  return BRIM_OK;
}

static inline void sim_stream_destroy(void *impl, void *stream) {
  (void)impl;
  (void)stream;
}

static inline brim_status sim_stream_sync(void *impl, void *stream) {
  (void)impl;
  int number = stream == &sim.streams[SIM_COPY] ? SIM_COPY : SIM_MAIN;
  sim_advance(number, sim.streams[number].count);
  return BRIM_OK;
}

static inline brim_status sim_event_create(void *impl, void **event) {
  (void)impl;
  *event = brim_calloc(1, sizeof(sim_event));
  return *event ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for an event");
}

static inline void sim_event_destroy(void *impl, void *event) {
  (void)impl;
  brim_free(event);
}

static inline brim_status sim_event_record(void *impl, void *stream, void *event) {
  (void)impl;
  int number = stream == &sim.streams[SIM_COPY] ? SIM_COPY : SIM_MAIN;
  *(sim_event *)event = (sim_event){number, sim.streams[number].count};
  return BRIM_OK;
}

static inline brim_status sim_event_elapsed(void *impl, void *start, void *end, int64_t *ns) {
  (void)impl;
  (void)start;
  (void)end;
  *ns = 0;
  return BRIM_OK;
}

static inline brim_status sim_event_sync(void *impl, void *event) {
  (void)impl;
  const sim_event *e = event;
  sim_advance(e->stream, e->at);
  return BRIM_OK;
}

static inline brim_status sim_event_wait(void *impl, void *stream, void *event) {
  (void)impl;
  const sim_event *e = event;
  sim_push(stream, (sim_op){.stream = e->stream, .at = e->at});
  return BRIM_OK;
}

static inline brim_device *sim_device_open(sim_hurry hurry) {
  static brim_backend table;
  const brim_backend *ref = brim_backend_ref();
  memset(&sim, 0, sizeof sim);
  sim.hurry = hurry;
  table = *ref;
  table.name = "sim";
  table.copy = sim_copy;
  table.stream_create = sim_stream_create;
  table.stream_destroy = sim_stream_destroy;
  table.stream_sync = sim_stream_sync;
  table.event_create = sim_event_create;
  table.event_destroy = sim_event_destroy;
  table.event_record = sim_event_record;
  table.event_elapsed = sim_event_elapsed;
  table.event_sync = sim_event_sync;
  table.event_wait = sim_event_wait;
  brim_device *device = (brim_device *)brim_calloc(1, sizeof *device);
  assert_non_null(device);
  device->backend = &table;
  assert_ok(ref->device_open(0, NULL, &device->impl));
  device->stream = &sim.streams[SIM_MAIN];
  device->copy_stream = &sim.streams[SIM_COPY];
  return device;
}

static inline void sim_device_close(brim_device *device) {
  for (int k = 0; k < SIM_STREAMS; k++) sim_advance(k, sim.streams[k].count);
  brim_device_close(device);
}

#endif  // BRIM_TESTS_DATA_SIM_DEVICE_H_
