// A small plug-in for the tests of the registry: a backend with the single op ADD, a data source and a table of
// counters. Macros make it wrong in one way each (CMakeLists.txt). Links nothing of brim.
#include "backend/plugin_toy.h"

#include <string.h>

#include "backend/backend.h"
#include "brim/source.h"

#ifndef TOY_ABI
#define TOY_ABI BRIM_PLUGIN_ABI
#endif
#ifndef TOY_BACKEND_ABI
#define TOY_BACKEND_ABI BRIM_BACKEND_ABI
#endif

static const brim_host_api *host;
static toy_counters counters;

//---------------------------------- a source ----------------------------------

static brim_status source_open(const brim_source_how *how, void **state) {
  if (how->path) return host->fail(BRIM_EINVAL, "dummy source: takes no path");
  *state = &counters;
  return BRIM_OK;
}

static void source_info(void *state, brim_source_info *out) {
  (void)state;
  *out =
      (brim_source_info){.count = 4, .type = BRIM_SAMPLE_U8, .rank = 1, .dim = {2}, .classes = 3};
}

static brim_status source_read(void *state, uint64_t index, void *input, void *target) {
  (void)state;
  memset(input, (int)index, 2);
  *(int32_t *)target = (int32_t)(index % 3);
  return BRIM_OK;
}

static void source_close(void *state) { (void)state; }

static const brim_source_table source = {.abi = BRIM_SOURCE_ABI,
                                         .name = "dummy",
                                         .open = source_open,
                                         .info = source_info,
                                         .read = source_read,
                                         .close = source_close};

//---------------------------------- a backend ----------------------------------

static brim_status device_count(int *count) {
#ifdef TOY_NO_DEVICE
  *count = 0;
#else
  *count = 2;
#endif
  return BRIM_OK;
}

static brim_status device_info(int index, brim_device_info *info) {
  *info = (brim_device_info){.name = "toy", .host_memory = true, .threads = 8};
  info->free_bytes = 1000 + (uint64_t)index;
  info->total_bytes = 2000;
  return BRIM_OK;
}

static brim_status device_open(int index, const brim_device_options *options, void **impl) {
  (void)index;
  if (options->workspace_cap == 13) return host->fail(BRIM_EDEVICE, "the toy is broken");
  counters.devices_open++;
  *impl = &counters;
  return BRIM_OK;
}

static void device_close(void *impl) { ((toy_counters *)impl)->devices_open--; }

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  *ptr = host->alloc(bytes, kind == BRIM_BUFFER_DEVICE);
  if (!*ptr) return host->fail(BRIM_EOOM, "toy: no memory");
  ((toy_counters *)impl)->buffers++;
  return BRIM_OK;
}

static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  (void)kind;
  ((toy_counters *)impl)->buffers--;
  host->free(ptr);
}

#if defined(TOY_STREAMS) || defined(TOY_HALF_STREAM)
static brim_status stream_create(void *impl, void **stream) {
  ((toy_counters *)impl)->streams++;
  *stream = &counters;
  return BRIM_OK;
}
#endif

#ifdef TOY_STREAMS
static void stream_destroy(void *impl, void *stream) {
  (void)stream;
  ((toy_counters *)impl)->streams--;
}

static brim_status stream_sync(void *impl, void *stream) {
  if (stream != &counters) return host->fail(BRIM_EDEVICE, "toy: not my stream");
  ((toy_counters *)impl)->syncs++;
  return BRIM_OK;
}

static brim_status event_create(void *impl, void **event) {
  ((toy_counters *)impl)->events++;
  *event = host->alloc(sizeof(int64_t), 0);
  return *event ? BRIM_OK : host->fail(BRIM_ENOMEM, "toy: no memory");
}

static void event_destroy(void *impl, void *event) {
  ((toy_counters *)impl)->events--;
  host->free(event);
}

// Its clock advances by 1000 ns per record.
static brim_status event_record(void *impl, void *stream, void *event) {
  (void)impl;
  (void)stream;
  static int64_t now;
  now += 1000;
  *(int64_t *)event = now;
  return BRIM_OK;
}

static brim_status event_elapsed(void *impl, void *start, void *end, int64_t *ns) {
  (void)impl;
  *ns = *(int64_t *)end - *(int64_t *)start;
  return BRIM_OK;
}

static brim_status event_sync(void *impl, void *event) {
  (void)event;
  ((toy_counters *)impl)->event_syncs++;
  return BRIM_OK;
}

static brim_status event_wait(void *impl, void *stream, void *event) {
  (void)event;
  if (stream != &counters) return host->fail(BRIM_EDEVICE, "toy: not my stream");
  ((toy_counters *)impl)->waits++;
  return BRIM_OK;
}

static brim_status capture_begin(void *impl, void *stream) {
  (void)impl;
  (void)stream;
  return BRIM_OK;
}

static brim_status capture_end(void *impl, void *stream, void **graph) {
  (void)stream;
  ((toy_counters *)impl)->graphs++;
  *graph = &counters;
  return BRIM_OK;
}

static brim_status graph_launch(void *impl, void *stream, void *graph) {
  (void)stream;
  if (graph != &counters) return host->fail(BRIM_EDEVICE, "toy: not my graph");
  ((toy_counters *)impl)->launches++;
  return BRIM_OK;
}

static void graph_destroy(void *impl, void *graph) {
  (void)graph;
  ((toy_counters *)impl)->graphs--;
}

static brim_status algorithms_get(void *impl, char **text) {
  (void)impl;
  static const char lines[] = "add fast\n";
  *text = host->alloc(sizeof(lines), 0);
  if (!*text) return host->fail(BRIM_ENOMEM, "toy: no memory");
  memcpy(*text, lines, sizeof(lines));
  return BRIM_OK;
}

static brim_status algorithms_put(void *impl, const char *text) {
  (void)impl;
  if (strncmp(text, "add ", 4) == 0) return BRIM_OK;
  return host->fail(BRIM_EPARSE, "toy: not an algorithm of mine");
}
#endif

#ifdef TOY_HALF_GRAPH
static brim_status capture_begin(void *impl, void *stream) {
  (void)impl;
  (void)stream;
  return BRIM_OK;
}
#endif

static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  (void)impl;
  (void)stream;
  (void)direction;
  memcpy(dst, src, bytes);
  return BRIM_OK;
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  (void)impl;
  (void)stream;
  memset(dst, byte, bytes);
  return BRIM_OK;
}

static brim_status add_validate(void *impl, const brim_op_call *call) {
  (void)impl;
  if (call->in[0].dtype == BRIM_F32) return BRIM_OK;
  return host->fail(BRIM_EUNSUPPORTED, "toy: add only in f32");
}

static brim_status add_prepare(void *impl, brim_op_call *call) {
  ((toy_counters *)impl)->prepared++;
  call->state = &counters;
  call->workspace_bytes = 64;
  return BRIM_OK;
}

static brim_status add_run(void *impl, void *stream, const brim_op_call *call) {
  (void)impl;
  (void)stream;
  const float *a = call->in[0].data, *b = call->in[1].data;
  float *y = call->out[0].data;
  for (int64_t i = 0; i < call->in[0].dim[0]; i++) y[i] = a[i] + b[i];
  return BRIM_OK;
}

static void add_release(void *impl, brim_op_call *call) {
  (void)call;
  ((toy_counters *)impl)->prepared--;
}

static const brim_op_row rows[] = {{.op = BRIM_OP_ADD,
                                    .validate = add_validate,
                                    .prepare = add_prepare,
#ifndef TOY_NO_RUN
                                    .run = add_run,
#endif
                                    .release = add_release}};
static const brim_op_family family = {rows, 1};
static const brim_op_family *const families[] = {&family};

#ifdef TOY_HALF_COMM
static const brim_comm_table comm = {.name = TOY_NAME};
#endif

static const brim_backend backend = {.abi = TOY_BACKEND_ABI,
                                     .name = TOY_NAME,
                                     .device_count = device_count,
                                     .device_info = device_info,
                                     .device_open = device_open,
                                     .device_close = device_close,
                                     .buffer_alloc = buffer_alloc,
                                     .buffer_free = buffer_free,
#ifdef TOY_HALF_STREAM
                                     .stream_create = stream_create,
#endif
#ifdef TOY_STREAMS
                                     .stream_create = stream_create,
                                     .stream_destroy = stream_destroy,
                                     .stream_sync = stream_sync,
                                     .event_create = event_create,
                                     .event_destroy = event_destroy,
                                     .event_record = event_record,
                                     .event_elapsed = event_elapsed,
                                     .event_sync = event_sync,
                                     .event_wait = event_wait,
                                     .capture_begin = capture_begin,
                                     .capture_end = capture_end,
                                     .graph_launch = graph_launch,
                                     .graph_destroy = graph_destroy,
                                     .algorithms_get = algorithms_get,
                                     .algorithms_put = algorithms_put,
#endif
#ifdef TOY_HALF_GRAPH
                                     .capture_begin = capture_begin,
#endif
#ifndef TOY_NO_COPY
                                     .copy = copy,
#endif
#ifdef TOY_HALF_COMM
                                     .comm = &comm,
#endif
                                     .fill = fill,
                                     .ops = families,
                                     .op_families = 1};

static const brim_extension extensions[] = {{"data.source/" TOY_NAME, &source},
                                            {TOY_NAME ".counters", &counters}};

static const brim_plugin plugin = {.abi = TOY_ABI,
                                   .name = TOY_NAME,
                                   .version = "1.2.3",
                                   .backend = &backend,
                                   .extensions = extensions,
                                   .extension_count = 2};

#ifdef TOY_NO_SYMBOL
#define brim_plugin_query brim_other_name
BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *api,
                                       const brim_plugin **out);
#endif

brim_status brim_plugin_query(uint32_t abi, const brim_host_api *api, const brim_plugin **out) {
  host = api;
  (void)copy;
  (void)add_run;
  *out = &plugin;
#if defined(TOY_REFUSES_ABI)
  if (abi != 4711) return host->fail(BRIM_EABI, "made for brim's interface 4711, this one has 1");
#elif defined(TOY_DECLINES)
  return host->fail(BRIM_EUNSUPPORTED, "libtoy.so.1 not found");
#elif defined(TOY_MUTE)
  return BRIM_EDEVICE;
#elif defined(TOY_NO_TABLE)
  *out = NULL;
#endif
  if (abi != BRIM_PLUGIN_ABI || api->abi != abi || api->size < sizeof(*api)) return BRIM_EABI;
  host->log(3, TOY_NAME, "hello");
  return BRIM_OK;
}
