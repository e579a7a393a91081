// Traces as JSON files of the Chrome trace format.

#include "profile/profile_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/base.h"

typedef struct brim_text_file brim_text_file;

static void brim_text_file_abort(brim_text_file *file);

//--------------------------------------------- file ---------------------------------------------
// Writes text to a file, through zlib if the name ends in ".gz".

enum { GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8, PIECE = 1 << 16, MOST = 1 << 30 };

struct brim_text_file {
  brim_fs_writer *writer;
  bool compressed;
  z_stream z;
  unsigned char piece[PIECE];
};

static void *zlib_alloc(void *opaque, unsigned count, unsigned size) {
  (void)opaque;
  return brim_calloc(count, size);
}

static void zlib_free(void *opaque, void *block) {
  (void)opaque;
  brim_free(block);
}

static brim_status brim_text_file_open(const char *path, brim_text_file **out) {
  *out = NULL;
  brim_text_file *file = brim_calloc(1, sizeof *file);
  if (!file) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  file->z.zalloc = zlib_alloc;
  file->z.zfree = zlib_free;
  brim_status status = brim_fs_writer_open(path, &file->writer);
  if (!status && brim_str_ends(path, ".gz")) {
    file->compressed = deflateInit2(&file->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
                                    GZIP_MEMORY, Z_DEFAULT_STRATEGY) == Z_OK;
    if (!file->compressed) {
      status = brim_fail(BRIM_ENOMEM, "out of memory while compressing %s", path);
    }
  }
  if (status) {
    brim_text_file_abort(file);
    return status;
  }
  *out = file;
  return BRIM_OK;
}

// Compresses the stream's input. With Z_FINISH continues until all output is written.
static brim_status squeeze(brim_text_file *file, int flush) {
  int result = Z_OK;
  do {
    file->z.next_out = file->piece;
    file->z.avail_out = PIECE;
    result = deflate(&file->z, flush);
    if (result == Z_STREAM_ERROR) return brim_fail(BRIM_EIO, "zlib cannot compress a trace");
    BRIM_TRY(brim_fs_writer_write(file->writer, file->piece, PIECE - file->z.avail_out));
  } while (file->z.avail_out == 0);
  return BRIM_OK;
}

static brim_status compress_all(brim_text_file *file, const char *data, size_t size) {
  while (size > 0) {
    size_t n = size < MOST ? size : MOST;  // zlib counts in unsigned int
    file->z.next_in = (unsigned char *)(uintptr_t)data;
    file->z.avail_in = (unsigned)n;
    BRIM_TRY(squeeze(file, Z_NO_FLUSH));
    data += n;
    size -= n;
  }
  return BRIM_OK;
}

// Writes and empties a text. BRIM_ENOMEM if the text ran out of memory.
static brim_status brim_text_file_put(brim_text_file *file, brim_str *text) {
  BRIM_TRY(brim_str_status(text));
  brim_status status = file->compressed ? compress_all(file, text->data, text->len)
                                        : brim_fs_writer_write(file->writer, text->data, text->len);
  brim_str_clear(text);
  return status;
}

// Writes the rest and puts the file in place. Closes it whatever the result.
static brim_status brim_text_file_commit(brim_text_file *file) {
  file->z.avail_in = 0;
  brim_status status = file->compressed ? squeeze(file, Z_FINISH) : BRIM_OK;
  if (!status) {
    brim_fs_writer *writer = file->writer;
    file->writer = NULL;
    status = brim_fs_writer_commit(writer);
  }
  brim_text_file_abort(file);
  return status;
}

// Closes the file and removes it; NULL is fine.
static void brim_text_file_abort(brim_text_file *file) {
  if (!file) return;
  brim_fs_writer_abort(file->writer);
  if (file->compressed) deflateEnd(&file->z);
  brim_free(file);
}

//-------------------------------------------- events --------------------------------------------
// Writes the events of a trace as JSON, by start. Slices of one track must nest, so each event gets the first track
// into which it nests. The names of the tracks come at the end.

enum { DEPTH = 32, CHROME_PIECE = 1 << 16, LANES = 64 };

typedef struct track {
  int32_t device, thread, lane;
  int64_t ends[DEPTH];  // ends of the open slices
  int depth;
} track;

// The beginning of a flow on the host. Its end is the first GPU work with the same correlation.
typedef struct origin {
  uint32_t correlation;
  int32_t tid;
  int64_t start_ns;
} origin;

typedef struct writer {
  const brim_trace *trace;
  const brim_trace_event **order;
  brim_text_file *file;
  brim_str text;
  track *tracks;
  size_t track_count, track_capacity;
  origin *origins;  // by correlation
  size_t origin_count;
  bool comma;
} writer;

//---------------------------------- texts ----------------------------------

// Writes a text as a JSON string. Control characters become spaces, and bytes that are no UTF-8 become '?'.
static void put_text(brim_str *out, const char *text) {
  const bool valid = brim_utf8_valid(text, strlen(text));
  brim_str_append_char(out, '"');
  for (; *text; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      brim_str_append_char(out, '\\');
      brim_str_append_char(out, *text);
    } else if (c < 0x20 || c == 0x7f) {
      brim_str_append_char(out, ' ');
    } else {
      brim_str_append_char(out, c >= 0x80 && !valid ? '?' : *text);
    }
  }
  brim_str_append_char(out, '"');
}

static void put_text_field(brim_str *out, const char *key, const char *value) {
  if (!value || !value[0]) return;
  brim_str_printf(out, ",\"%s\":", key);
  put_text(out, value);
}

static void put_us(brim_str *out, const char *key, int64_t ns) {
  brim_str_printf(out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void begin(writer *w, const char *ph, const char *name) {
  brim_str_append(&w->text, w->comma ? ",\n" : "\n");
  brim_str_printf(&w->text, "{\"ph\":\"%s\",\"name\":", ph);
  put_text(&w->text, name);
  w->comma = true;
}

// Writes the pending text when it is long enough.
static brim_status drain(writer *w, bool all) {
  if (!all && w->text.len < CHROME_PIECE) return brim_str_status(&w->text);
  return brim_text_file_put(w->file, &w->text);
}

//---------------------------------- tracks ----------------------------------

static bool nests(track *t, int64_t start, int64_t end) {
  while (t->depth > 0 && t->ends[t->depth - 1] <= start) t->depth--;
  return t->depth < DEPTH && (t->depth == 0 || end <= t->ends[t->depth - 1]);
}

static track *find_track(writer *w, int32_t device, int32_t thread, int32_t lane) {
  for (size_t i = 0; i < w->track_count; i++) {
    track *t = &w->tracks[i];
    if (t->device == device && t->thread == thread && t->lane == lane) return t;
  }
  if (w->track_count == w->track_capacity) {
    const size_t capacity = w->track_capacity ? w->track_capacity * 2 : 16;
    track *grown = brim_realloc(w->tracks, capacity * sizeof *grown);
    if (!grown) return NULL;
    w->tracks = grown;
    w->track_capacity = capacity;
  }
  track *t = &w->tracks[w->track_count++];
  *t = (track){.device = device, .thread = thread, .lane = lane};
  return t;
}

static int32_t pid_of(const track *t) { return t->device < 0 ? BRIM_CHROME_HOST : t->device; }
static int32_t tid_of(const track *t) { return t->thread + t->lane * BRIM_CHROME_LANE; }

// The first track of the event's thread or stream into which it nests.
static brim_status find_place(writer *w, const brim_trace_event *e, track **out) {
  for (int32_t lane = 0; lane < LANES; lane++) {
    track *t = find_track(w, e->device, e->stream < 0 ? 0 : e->stream, lane);
    if (!t) return brim_fail(BRIM_ENOMEM, "out of memory while writing a trace");
    if (!nests(t, e->start_ns, e->end_ns)) continue;
    t->ends[t->depth++] = e->end_ns;
    *out = t;
    return BRIM_OK;
  }
  *out = NULL;  // more overlapping work than any device runs: leave the event out
  return BRIM_OK;
}

//---------------------------------- slices ----------------------------------

static bool on_gpu(const brim_trace_event *e) {
  return e->device >= 0 && (e->kind == BRIM_TRACE_KERNEL || e->kind == BRIM_TRACE_COPY ||
                            e->kind == BRIM_TRACE_MEMSET);
}

// "cudaGraphLaunch" is a call of the runtime, "cuLaunchKernel" one of the driver.
static const char *category_of(const brim_trace_event *e) {
  switch (e->kind) {
    case BRIM_TRACE_KERNEL:
      return on_gpu(e) ? "kernel" : "cpu_op";
    case BRIM_TRACE_COPY:
      return on_gpu(e) ? "gpu_memcpy" : "cpu_op";
    case BRIM_TRACE_MEMSET:
      return on_gpu(e) ? "gpu_memset" : "cpu_op";
    case BRIM_TRACE_SYNC:
      return "cuda_sync";
    case BRIM_TRACE_PHASE:
    case BRIM_TRACE_STEP:
      return "user_annotation";
    default:
      break;
  }
  const char *name = e->name ? e->name : "";
  if (brim_str_starts(name, "cuda") && name[4] >= 'A' && name[4] <= 'Z') return "cuda_runtime";
  if (brim_str_starts(name, "cu") && name[2] >= 'A' && name[2] <= 'Z') return "cuda_driver";
  return "cpu_op";
}

// Gives copies and memsets the names that trace viewers know.
static void name_of(const brim_trace_event *e, char *out, size_t size) {
  static const char *const ways[] = {"Memcpy Unknown", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD"};
  const char *host = e->pageable ? "Pageable" : "Pinned";
  if (e->kind == BRIM_TRACE_STEP) {
    snprintf(out, size, "ProfilerStep#%d", e->step);
  } else if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_H2D) {
    snprintf(out, size, "%s (%s -> Device)", ways[e->copy], host);
  } else if (e->kind == BRIM_TRACE_COPY && e->copy == BRIM_TRACE_COPY_D2H) {
    snprintf(out, size, "%s (Device -> %s)", ways[e->copy], host);
  } else if (e->kind == BRIM_TRACE_COPY) {
    snprintf(out, size, "%s", ways[e->copy]);
  } else if (e->kind == BRIM_TRACE_MEMSET) {
    snprintf(out, size, "Memset (Device)");
  } else {
    snprintf(out, size, "%s", e->name && e->name[0] ? e->name : brim_trace_kind_key(e->kind));
  }
}

static void put_gpu_args(brim_str *out, const brim_trace_event *e) {
  const double us = (double)(e->end_ns - e->start_ns) / 1000;
  brim_str_printf(out, ",\"device\":%d,\"stream\":%d", e->device, e->stream < 0 ? 0 : e->stream);
  if (e->kind == BRIM_TRACE_KERNEL && e->grid[0]) {
    brim_str_printf(out, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", e->grid[0], e->grid[1],
                    e->grid[2], e->block[0], e->block[1], e->block[2]);
  }
  if (e->kind == BRIM_TRACE_KERNEL) return;
  brim_str_printf(out, ",\"bytes\":%" PRIu64, e->bytes);
  if (us > 0) {
    brim_str_printf(out, ",\"memory bandwidth (GB/s)\":%.3f", (double)e->bytes / us / 1000);
  }
}

static void put_args(brim_str *out, const brim_trace_event *e) {
  brim_str_printf(out, ",\"args\":{\"correlation\":%u", e->correlation);
  if (on_gpu(e)) put_gpu_args(out, e);
  if (e->step >= 0) brim_str_printf(out, ",\"step\":%d", e->step);
  put_text_field(out, "op", e->op);
  put_text_field(out, "layer", e->layer);
  if ((unsigned)e->phase < BRIM_PHASE_COUNT) put_text_field(out, "phase", brim_phase_key(e->phase));
  brim_str_append(out, "}}");
}

static void put_point(writer *w, const char *ph, const origin *o, const track *t, int64_t at_ns) {
  begin(w, ph, "ac2g");
  brim_str_printf(&w->text, ",\"cat\":\"ac2g\",\"id\":%u,\"pid\":%d,\"tid\":%d", o->correlation,
                  t ? pid_of(t) : BRIM_CHROME_HOST, t ? tid_of(t) : o->tid);
  put_us(&w->text, "ts", at_ns);
  brim_str_append(&w->text, strcmp(ph, "f") == 0 ? ",\"bp\":\"e\"}" : "}");
}

//---------------------------------- flows ----------------------------------

static int by_correlation(const void *a, const void *b) {
  const origin *x = a, *y = b;
  return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static origin *find_origin(writer *w, uint32_t correlation) {
  const origin key = {.correlation = correlation};
  if (!correlation || !w->origin_count) return NULL;
  return bsearch(&key, w->origins, w->origin_count, sizeof key, by_correlation);
}

// The last host event to begin with a correlation wins: a call inside an op begins after the op.
static brim_status collect_origins(writer *w) {
  const brim_trace *trace = w->trace;
  w->origins = brim_calloc(trace->count + 1, sizeof *w->origins);
  if (!w->origins) return brim_fail(BRIM_ENOMEM, "out of memory while writing a trace");
  for (size_t i = 0; i < trace->count; i++) {
    const brim_trace_event *e = &trace->events[i];
    if (e->device >= 0 || !e->correlation || e->kind == BRIM_TRACE_SYNC) continue;
    w->origins[w->origin_count++] = (origin){e->correlation, -1, e->start_ns};
  }
  qsort(w->origins, w->origin_count, sizeof *w->origins, by_correlation);
  size_t kept = 0;
  for (size_t i = 0; i < w->origin_count; i++) {
    origin *last = kept ? &w->origins[kept - 1] : NULL;
    if (last && last->correlation == w->origins[i].correlation) {
      if (w->origins[i].start_ns > last->start_ns) last->start_ns = w->origins[i].start_ns;
    } else {
      w->origins[kept++] = w->origins[i];
    }
  }
  w->origin_count = kept;
  return BRIM_OK;
}

static void put_flow(writer *w, const brim_trace_event *e, const track *t) {
  origin *o = find_origin(w, e->correlation);
  if (!o) return;
  if (e->device < 0) {
    if (e->start_ns == o->start_ns) o->tid = tid_of(t);
    return;
  }
  // the clocks disagree and the work seems to begin before its launch: draw no flow
  if (o->tid < 0) return;
  put_point(w, "s", o, NULL, o->start_ns);
  put_point(w, "f", o, t, e->start_ns);
  o->tid = -1;  // drawn: a recorded graph gets one flow, to its first kernel
}

static brim_status put_slice(writer *w, const brim_trace_event *e) {
  char name[512];
  track *t = NULL;
  if (e->end_ns < e->start_ns || e->start_ns < 0) return BRIM_OK;  // a record without its times
  BRIM_TRY(find_place(w, e, &t));
  if (!t) return BRIM_OK;
  name_of(e, name, sizeof name);
  begin(w, "X", name);
  brim_str_printf(&w->text, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d", category_of(e), pid_of(t),
                  tid_of(t));
  put_us(&w->text, "ts", e->start_ns);
  put_us(&w->text, "dur", e->end_ns - e->start_ns);
  put_args(&w->text, e);
  put_flow(w, e, t);
  return drain(w, false);
}

//---------------------------------- counters ----------------------------------

static bool is_point(const brim_trace_event *e, const brim_profile_point *p) {
  return e->kind == BRIM_TRACE_HOST_OP && e->op && strcmp(e->op, p->op) == 0;
}

// Writes the bytes in use while ops run, if the ops of a step match the points of the memory plan exactly.
static brim_status put_counters(writer *w, const brim_profile_memory *memory) {
  if (!memory || memory->point_count == 0) return BRIM_OK;
  size_t at = 0;
  for (size_t i = 0; i < w->trace->count; i++) {
    const brim_trace_event *e = w->order[i];
    if (e->kind == BRIM_TRACE_STEP) at = 0;
    if (e->kind != BRIM_TRACE_HOST_OP || !e->op || at >= memory->point_count) continue;
    if (!is_point(e, &memory->points[at])) return BRIM_OK;
    begin(w, "C", "activations and workspace");
    brim_str_printf(&w->text, ",\"pid\":%d", BRIM_CHROME_HOST);
    put_us(&w->text, "ts", e->start_ns);
    brim_str_printf(&w->text, ",\"args\":{\"bytes\":%.0f}}", memory->points[at].bytes);
    at++;
    BRIM_TRY(drain(w, false));
  }
  return BRIM_OK;
}

//---------------------------------- names ----------------------------------

static void put_metadata(writer *w, const char *name, int32_t pid, int32_t tid) {
  begin(w, "M", name);
  brim_str_printf(&w->text, ",\"pid\":%d,\"tid\":%d,\"args\":{", pid, tid);
}

static void put_process(writer *w, int32_t device) {
  const int32_t pid = device < 0 ? BRIM_CHROME_HOST : device;
  char name[192];
  snprintf(name, sizeof name, device < 0 ? "brim" : "GPU %d", device);
  put_metadata(w, "process_name", pid, 0);
  brim_str_append(&w->text, "\"name\":");
  put_text(&w->text, name);
  brim_str_append(&w->text, "}}");
  put_metadata(w, "process_labels", pid, 0);
  brim_str_append(&w->text, "\"labels\":");
  put_text(&w->text, device < 0 ? "host" : w->trace->device);
  brim_str_append(&w->text, "}}");
  put_metadata(w, "process_sort_index", pid, 0);
  brim_str_printf(&w->text, "\"sort_index\":%d}}", device < 0 ? 0 : device + 1);
}

static void put_track(writer *w, const track *t) {
  char name[96];
  if (t->device >= 0) {
    snprintf(name, sizeof name, "stream %d%s", t->thread, t->lane ? " (at the same time)" : "");
  } else if (t->thread == 0) {
    snprintf(name, sizeof name, "steps%s", t->lane ? " (at the same time)" : "");
  } else {
    snprintf(name, sizeof name, "loader worker %d%s", t->thread,
             t->lane ? " (at the same time)" : "");
  }
  put_metadata(w, "thread_name", pid_of(t), tid_of(t));
  brim_str_append(&w->text, "\"name\":");
  put_text(&w->text, name);
  brim_str_append(&w->text, "}}");
  put_metadata(w, "thread_sort_index", pid_of(t), tid_of(t));
  brim_str_printf(&w->text, "\"sort_index\":%d}}", t->thread * LANES + t->lane);
}

static brim_status put_names(writer *w) {
  for (size_t i = 0; i < w->track_count; i++) {
    bool first = true;
    for (size_t k = 0; k < i; k++) first = first && w->tracks[k].device != w->tracks[i].device;
    if (first) put_process(w, w->tracks[i].device);
    put_track(w, &w->tracks[i]);
    BRIM_TRY(drain(w, false));
  }
  return BRIM_OK;
}

//---------------------------------- the file ----------------------------------

// Sorts by start, outer events first.
static int by_start(const void *a, const void *b) {
  const brim_trace_event *x = *(const brim_trace_event *const *)a;
  const brim_trace_event *y = *(const brim_trace_event *const *)b;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
  if (x->kind != y->kind) return x->kind > y->kind ? -1 : 1;
  return (x > y) - (x < y);
}

static brim_status sort_events(writer *w) {
  const size_t count = w->trace->count;
  w->order = brim_calloc(count + 1, sizeof(const brim_trace_event *));
  if (!w->order) return brim_fail(BRIM_ENOMEM, "out of memory while writing a trace");
  for (size_t i = 0; i < count; i++) w->order[i] = &w->trace->events[i];
  qsort(w->order, count, sizeof(const brim_trace_event *), by_start);
  return BRIM_OK;
}

static void put_head(writer *w) {
  const brim_trace *trace = w->trace;
  int32_t last = -1;
  for (size_t i = 0; i < trace->count; i++) {
    if (trace->events[i].device > last) last = trace->events[i].device;
  }
  brim_str_append(&w->text, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\"");
  if (trace->begin_unix_s > 0) {
    brim_str_printf(&w->text, ",\"baseTimeNanoseconds\":%" PRId64,
                    (int64_t)(trace->begin_unix_s * 1e9));
  }
  brim_str_append(&w->text, ",\"distributedInfo\":{\"rank\":0},\"deviceProperties\":[");
  for (int32_t i = 0; i <= last; i++) {
    brim_str_printf(&w->text, "%s{\"id\":%d,\"name\":", i ? "," : "", i);
    put_text(&w->text, trace->device);
    brim_str_append_char(&w->text, '}');
  }
  brim_str_append(&w->text, "],\"traceEvents\":[");
}

static brim_status put_all(writer *w, const brim_profile_memory *memory) {
  BRIM_TRY(sort_events(w));
  BRIM_TRY(collect_origins(w));
  put_head(w);
  for (size_t i = 0; i < w->trace->count; i++) BRIM_TRY(put_slice(w, w->order[i]));
  BRIM_TRY(put_counters(w, memory));
  BRIM_TRY(put_names(w));
  brim_str_append(&w->text, "\n]}\n");
  return drain(w, true);
}

brim_status brim_chrome_write(const brim_trace *trace, const brim_profile_memory *memory,
                              const char *path) {
  writer w = {.trace = trace};
  BRIM_TRY(brim_text_file_open(path, &w.file));
  brim_str_init(&w.text);
  brim_status status = put_all(&w, memory);
  if (!status) {
    status = brim_text_file_commit(w.file);
  } else {
    brim_text_file_abort(w.file);
  }
  brim_str_deinit(&w.text);
  brim_free(w.tracks);
  brim_free(w.origins);
  brim_free((void *)w.order);
  return status;
}
