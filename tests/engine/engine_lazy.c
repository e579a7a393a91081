// The late device: streams are lists of items, run in order when an event or the host asks.
#include "engine_lazy.h"

#include "test.h"

typedef enum item_kind {
  ITEM_OP,
  ITEM_COPY,
  ITEM_FILL,
  ITEM_RECORD,
  ITEM_WAIT,
  ITEM_CALL,
  ITEM_GRAPH
} item_kind;

struct lazy;
typedef struct lazy_list lazy_list;
typedef struct lazy_event lazy_event;

typedef struct lazy_item {
  item_kind kind;
  brim_op_call call;
  void *dst;
  const void *src;
  void *own;  // a copy's source, where the driver would have taken the bytes at once
  int byte;
  size_t bytes;
  lazy_event *event;
  uint64_t number;  // number of the event's last recording
  lazy_list *graph;
  void (*fn)(void *ctx);
  void *ctx;
} lazy_item;

struct lazy_list {
  lazy_item *items;
  size_t count, capacity, done;
  bool busy;
};

// An event remembers its last recording; recordings are numbered.
struct lazy_event {
  lazy_list *stream;
  uint64_t recorded, reached;
  const lazy_list *recording;  // the graph recording that this event belongs to; NULL = none
};

typedef struct lazy {
  const brim_backend *ref;
  void *ref_impl;
  brim_op_row rows[BRIM_OP_COUNT];
  brim_op_family family;
  const brim_op_family *families[1];
  brim_backend table;
  brim_device device;
  lazy_list streams[3];  // main, copy, and a third one
  lazy_list *recording;
  bool beside;    // the third stream is part of the recording
  bool unjoined;  // and has work that the main stream has not waited for
  int refuse_capture;
  int fail_op;
  lazy_counters counters;
} lazy;

//---------------------------------- lists ----------------------------------

static lazy_item *add(lazy_list *list, item_kind kind) {
  if (list->count == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : 64;
    list->items = realloc(list->items, list->capacity * sizeof *list->items);
    assert_non_null(list->items);
  }
  lazy_item *item = &list->items[list->count++];
  memset(item, 0, sizeof *item);
  item->kind = kind;
  return item;
}

static void run_list(lazy *d, lazy_list *list);

static void run_event(lazy *d, lazy_event *event, uint64_t number);

static void run_item(lazy *d, lazy_item *item) {
  switch (item->kind) {
    case ITEM_OP:
      assert_ok(brim_backend_row(d->ref, item->call.op)->run(d->ref_impl, NULL, &item->call));
      break;
    case ITEM_COPY:
      memcpy(item->dst, item->own ? item->own : item->src, item->bytes);
      free(item->own);
      break;
    case ITEM_FILL:
      memset(item->dst, item->byte, item->bytes);
      break;
    case ITEM_RECORD:
      item->event->reached = item->number;
      break;
    case ITEM_WAIT:
      run_event(d, item->event, item->number);
      break;
    case ITEM_CALL:
      item->fn(item->ctx);
      break;
    case ITEM_GRAPH:
      for (size_t i = 0; i < item->graph->count; i++) run_item(d, &item->graph->items[i]);
      break;
  }
}

static void run_next(lazy *d, lazy_list *list) {
  lazy_item item = list->items[list->done];  // running an item may wait, but never append
  list->done++;
  d->counters.waiting--;
  run_item(d, &item);
}

static void run_list(lazy *d, lazy_list *list) {
  assert_false(list->busy);  // streams that wait for each other would hang
  list->busy = true;
  while (list->done < list->count) run_next(d, list);
  list->busy = false;
  list->count = list->done = 0;
}

// Runs no further than the event's recording.
static void run_event(lazy *d, lazy_event *event, uint64_t number) {
  if (event->reached >= number) return;
  lazy_list *list = event->stream;
  assert_false(list->busy);
  list->busy = true;
  while (event->reached < number) {
    assert_true(list->done < list->count);
    run_next(d, list);
  }
  list->busy = false;
  if (list->done == list->count) list->count = list->done = 0;
}

//---------------------------------- the table ----------------------------------

static brim_status row_validate(void *impl, const brim_op_call *call) {
  lazy *d = impl;
  return brim_backend_row(d->ref, call->op)->validate(d->ref_impl, call);
}
static brim_status row_prepare(void *impl, brim_op_call *call) {
  lazy *d = impl;
  const brim_op_row *row = brim_backend_row(d->ref, call->op);
  return row->prepare ? row->prepare(d->ref_impl, call) : BRIM_OK;
}
static void row_release(void *impl, brim_op_call *call) {
  lazy *d = impl;
  const brim_op_row *row = brim_backend_row(d->ref, call->op);
  if (row->release) row->release(d->ref_impl, call);
}

static lazy_list *target(lazy *d, void *stream) {
  assert_true(stream == &d->streams[0] || stream == &d->streams[1] || stream == &d->streams[2]);
  if (stream == &d->streams[0] && d->recording) return d->recording;
  if (stream == &d->streams[2] && d->recording) {
    assert_true(d->beside);  // recorded and live work mixed on one stream
    d->unjoined = true;
    return d->recording;  // a recording runs in one of the orders that its events allow
  }
  d->counters.waiting++;
  return stream;
}

static brim_status row_run(void *impl, void *stream, const brim_op_call *call) {
  lazy *d = impl;
  if (d->recording && d->refuse_capture == 2 && d->recording->count == 3) {
    return brim_fail(BRIM_EDEVICE, "lazy: this op cannot be recorded");
  }
  // the op at the end of a step, after those of the weights
  if (d->recording && d->refuse_capture == 6 && call->op == BRIM_OP_STEP_END) {
    return brim_fail(BRIM_EOOM, "lazy: no memory for the recording");
  }
  if (!d->recording && d->fail_op > 0 && --d->fail_op == 0) {
    return brim_fail(BRIM_EOOM, "lazy: no memory for this op");
  }
  if (!d->recording) d->counters.ops++;
  add(target(d, stream), ITEM_OP)->call = *call;
  return BRIM_OK;
}

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  lazy *d = impl;
  return d->ref->buffer_alloc(d->ref_impl, kind, bytes, ptr);
}
static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  lazy *d = impl;
  d->ref->buffer_free(d->ref_impl, kind, ptr);
}

// Copies within the device can be recorded. Small copies to the device take their bytes at once on the main stream, as a driver does with
// pageable memory; the copy stream reads the source as late as everything else, as from pinned.
static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  lazy *d = impl;
  bool main = stream == &d->streams[0];
  if (main && d->recording && direction != BRIM_COPY_D2D)
    return brim_fail(BRIM_EDEVICE, "lazy: a copy in a recording");
  lazy_item *item = add(target(d, stream), ITEM_COPY);
  item->dst = dst;
  item->src = src;
  item->bytes = bytes;
  if (main && direction == BRIM_COPY_H2D) {
    item->own = malloc(bytes);
    assert_non_null(item->own);
    memcpy(item->own, src, bytes);
  }
  return BRIM_OK;
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  lazy_item *item = add(target(impl, stream), ITEM_FILL);
  item->dst = dst;
  item->byte = byte;
  item->bytes = bytes;
  return BRIM_OK;
}

static brim_status stream_sync(void *impl, void *stream) {
  lazy *d = impl;
  if (d->recording) return brim_fail(BRIM_EDEVICE, "lazy: waiting in a recording");
  run_list(d, stream);
  return BRIM_OK;
}

static brim_status event_create(void *impl, void **event) {
  ((lazy *)impl)->counters.events++;
  *event = calloc(1, sizeof(lazy_event));
  return *event ? BRIM_OK : brim_fail(BRIM_ENOMEM, "lazy: no memory");
}
static void event_destroy(void *impl, void *event) {
  ((lazy *)impl)->counters.events--;
  free(event);
}
// A recorded event orders streams and nothing else. The third stream joins the recording when it waits for a recorded
// event, and the main stream has to wait for that stream's last work.
static brim_status record_recorded(lazy *d, const void *stream, lazy_event *e) {
  bool third = stream == &d->streams[2];
  if (stream == &d->streams[1] || (third && !d->beside)) {
    return brim_fail(BRIM_EDEVICE, "lazy: an event in a recording");
  }
  e->recording = d->recording;
  e->stream = third ? &d->streams[2] : &d->streams[0];
  return BRIM_OK;
}

static brim_status wait_recorded(lazy *d, const void *stream, const lazy_event *e) {
  if (e->recording != d->recording) {
    return brim_fail(BRIM_EDEVICE, "lazy: waiting for work outside the recording");
  }
  if (stream == &d->streams[2]) d->beside = true;
  if (stream == &d->streams[0] && e->stream == &d->streams[2]) d->unjoined = false;
  return BRIM_OK;
}

static brim_status host_call(void *impl, void *stream, void (*fn)(void *ctx), void *ctx) {
  lazy_item *item = add(target(impl, stream), ITEM_CALL);
  item->fn = fn;
  item->ctx = ctx;
  return BRIM_OK;
}

static brim_status stream_create(void *impl, void **stream) {
  *stream = &((lazy *)impl)->streams[2];
  return BRIM_OK;
}

static void stream_destroy(void *impl, void *stream) {
  (void)impl;
  (void)stream;
}

static brim_status event_record(void *impl, void *stream, void *event) {
  lazy *d = impl;
  lazy_event *e = event;
  if (d->recording) return record_recorded(d, stream, e);
  e->recording = NULL;
  lazy_item *item = add(target(d, stream), ITEM_RECORD);
  e->stream = stream;
  item->event = e;
  item->number = ++e->recorded;
  return BRIM_OK;
}
static brim_status event_sync(void *impl, void *event) {
  lazy_event *e = event;
  run_event(impl, e, e->recorded);
  return BRIM_OK;
}
static brim_status event_wait(void *impl, void *stream, void *event) {
  lazy *d = impl;
  lazy_event *e = event;
  if (d->recording) return wait_recorded(d, stream, e);
  lazy_item *item = add(target(d, stream), ITEM_WAIT);
  item->event = e;
  item->number = e->recorded;
  return BRIM_OK;
}

static brim_status capture_begin(void *impl, void *stream) {
  lazy *d = impl;
  if (d->refuse_capture == 1) return brim_fail(BRIM_EDEVICE, "lazy: no recording today");
  if (d->refuse_capture == 5) {
    d->counters.refused++;
    return brim_fail(BRIM_EOOM, "lazy: no memory for the recording");
  }
  assert_null(d->recording);
  assert_ptr_equal(stream, &d->streams[0]);
  d->recording = calloc(1, sizeof *d->recording);
  assert_non_null(d->recording);
  return BRIM_OK;
}

static void graph_destroy(void *impl, void *graph) {
  ((lazy *)impl)->counters.graphs--;
  free(((lazy_list *)graph)->items);
  free(graph);
}

static brim_status capture_end(void *impl, void *stream, void **graph) {
  lazy *d = impl;
  (void)stream;
  assert_non_null(d->recording);
  lazy_list *list = d->recording;
  bool unjoined = d->unjoined;
  d->recording = NULL;
  d->beside = d->unjoined = false;
  d->counters.graphs++;
  if (unjoined) {
    d->counters.refused++;
    graph_destroy(d, list);
    return brim_fail(BRIM_EDEVICE, "lazy: the recording leaves work behind on another stream");
  }
  if (d->refuse_capture >= 2 && (d->refuse_capture != 7 || d->counters.captures == 1)) {
    d->counters.refused++;
    graph_destroy(d, list);
    if (d->refuse_capture == 4) return brim_fail(BRIM_EOOM, "lazy: no memory for the recording");
    return brim_fail(BRIM_EDEVICE, "lazy: the recording is not valid");
  }
  d->counters.captures++;
  *graph = list;
  return BRIM_OK;
}

static brim_status graph_launch(void *impl, void *stream, void *graph) {
  lazy *d = impl;
  d->counters.launches++;
  add(target(d, stream), ITEM_GRAPH)->graph = graph;
  return BRIM_OK;
}

//---------------------------------- opening ----------------------------------

brim_device *lazy_open(int refuse_capture) {
  lazy *d = calloc(1, sizeof *d);
  assert_non_null(d);
  d->ref = brim_backend_ref();
  d->refuse_capture = refuse_capture;
  const brim_device_options options = {0};
  assert_ok(d->ref->device_info(0, &d->device.info));
  assert_ok(d->ref->device_open(0, &options, &d->ref_impl));
  d->family.rows = d->rows;
  d->families[0] = &d->family;
  for (int op = 0; op < BRIM_OP_COUNT; op++) {
    if (!brim_backend_row(d->ref, (brim_op)op)) continue;
    d->rows[d->family.count++] =
        (brim_op_row){(brim_op)op, row_validate, row_prepare, row_run, row_release};
  }
  d->table = (brim_backend){.abi = BRIM_BACKEND_ABI,
                            .name = "lazy",
                            .buffer_alloc = buffer_alloc,
                            .buffer_free = buffer_free,
                            .stream_create = stream_create,
                            .stream_destroy = stream_destroy,
                            .stream_sync = stream_sync,
                            .event_create = event_create,
                            .event_destroy = event_destroy,
                            .event_record = event_record,
                            .event_sync = event_sync,
                            .event_wait = event_wait,
                            .capture_begin = capture_begin,
                            .capture_end = capture_end,
                            .graph_launch = graph_launch,
                            .graph_destroy = graph_destroy,
                            .copy = copy,
                            .fill = fill,
                            .host_call = host_call,
                            .ops = d->families,
                            .op_families = 1};
  d->device.backend = &d->table;
  d->device.impl = d;
  d->device.stream = &d->streams[0];
  d->device.copy_stream = &d->streams[1];
  d->device.info.host_memory = false;
  return &d->device;
}

void lazy_close(brim_device *device) {
  lazy *d = device->impl;
  assert_int_equal(d->counters.graphs, 0);
  assert_int_equal(d->counters.events, 0);
  for (int i = 0; i < 3; i++) {
    run_list(d, &d->streams[i]);
    free(d->streams[i].items);
  }
  d->ref->device_close(d->ref_impl);
  free(d);
}

void lazy_fail_op(brim_device *device, int n) { ((lazy *)device->impl)->fail_op = n; }

void lazy_without_streams(brim_device *device) {
  ((lazy *)device->impl)->table.stream_create = NULL;
}

void lazy_allow_capture(brim_device *device) { ((lazy *)device->impl)->refuse_capture = 0; }

const lazy_counters *lazy_count(const brim_device *device) {
  return &((const lazy *)device->impl)->counters;
}
