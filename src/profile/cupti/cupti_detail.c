// CUPTI's records as events of a trace, and kernels' names for people.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/cupti/cupti_int.h"

//---------------------------------- records ----------------------------------

static brim_trace_event *add(brim_trace *to, brim_trace_kind kind, const char *name, uint64_t start,
                             uint64_t end) {
  brim_trace_event *e = brim_trace_add(to, kind, name);
  if (!e) return NULL;
  e->start_ns = (int64_t)start;
  e->end_ns = (int64_t)end;
  return e;
}

static bool untimed(uint64_t start, uint64_t end) {
  return (start == 0 && end == 0) || end < start;
}

static brim_cupti_take take_kernel(const void *record, brim_trace *to) {
  brim_cupti_kernel_detail k;
  memcpy(&k, record, sizeof k);
  if (untimed(k.start, k.end)) return BRIM_CUPTI_LOST;
  brim_trace_event *e = add(to, BRIM_TRACE_KERNEL, k.name ? k.name : "?", k.start, k.end);
  if (!e) return BRIM_CUPTI_LOST;
  e->device = (int32_t)k.device;
  e->stream = (int32_t)k.stream;
  e->correlation = k.correlation;
  for (int i = 0; i < 3; i++) {
    e->grid[i] = (uint32_t)k.grid[i];
    e->block[i] = (uint32_t)k.block[i];
  }
  return BRIM_CUPTI_TAKEN;
}

static const struct {
  const char *name;
  brim_trace_copy copy;
} copies[BRIM_CUPTI_WORK_COUNT] = {
    [BRIM_CUPTI_WORK_H2D] = {"Memcpy HtoD", BRIM_TRACE_COPY_H2D},
    [BRIM_CUPTI_WORK_D2H] = {"Memcpy DtoH", BRIM_TRACE_COPY_D2H},
    [BRIM_CUPTI_WORK_D2D] = {"Memcpy DtoD", BRIM_TRACE_COPY_D2D},
    [BRIM_CUPTI_WORK_COPY] = {"Memcpy", BRIM_TRACE_COPY_NONE},
    [BRIM_CUPTI_WORK_MEMSET] = {"Memset", BRIM_TRACE_COPY_NONE},
};

static brim_cupti_take take_copy(const void *record, const brim_cupti_record *kept,
                                 brim_trace *to) {
  brim_cupti_copy_detail c;
  memcpy(&c, record, sizeof c);
  bool fill = kept->work == BRIM_CUPTI_WORK_MEMSET;
  brim_trace_event *e = add(to, fill ? BRIM_TRACE_MEMSET : BRIM_TRACE_COPY, copies[kept->work].name,
                            kept->start, kept->end);
  if (!e) return BRIM_CUPTI_LOST;
  e->device = (int32_t)c.device;
  e->stream = (int32_t)c.stream;
  // of copies between two GPUs it lies elsewhere
  e->correlation = c.copy.kind == BRIM_CUPTI_KIND_MEMCPY2 ? 0 : c.correlation;
  e->bytes = c.copy.bytes;
  e->copy = copies[kept->work].copy;
  e->pageable = kept->pageable;
  return BRIM_CUPTI_TAKEN;
}

static brim_cupti_take take_sync(const void *record, brim_trace *to) {
  brim_cupti_sync s;
  memcpy(&s, record, sizeof s);
  if (s.type == BRIM_CUPTI_SYNC_STREAM_WAIT_EVENT || untimed(s.start, s.end)) {
    return BRIM_CUPTI_OTHER;
  }
  brim_trace_event *e = add(to, BRIM_TRACE_SYNC, "sync", s.start, s.end);
  if (!e) return BRIM_CUPTI_LOST;
  e->correlation = s.correlation;
  return BRIM_CUPTI_TAKEN;
}

brim_cupti_take brim_cupti_detail(const void *record, brim_trace *to) {
  int32_t kind;
  brim_cupti_record kept;
  memcpy(&kind, record, sizeof kind);
  switch (kind) {
    case BRIM_CUPTI_KIND_KERNEL:
    case BRIM_CUPTI_KIND_CONCURRENT_KERNEL:
      return take_kernel(record, to);
    case BRIM_CUPTI_KIND_SYNCHRONIZATION:
      return take_sync(record, to);
    default: {
      brim_cupti_take taken = brim_cupti_read(record, &kept);
      return taken == BRIM_CUPTI_TAKEN ? take_copy(record, &kept, to) : BRIM_CUPTI_OTHER;
    }
  }
}

//---------------------------------- names ----------------------------------

// Where the list of what it takes begins: the "(" that the last ")" closes, outside of <...>.
static size_t arguments_at(const char *text, size_t n) {
  int depth = 0;
  if (n == 0 || text[n - 1] != ')') return n;
  for (size_t i = n; i-- > 0;) {
    if (text[i] == ')') depth++;
    if (text[i] == '(' && --depth == 0) return i > 0 ? i : n;
  }
  return n;
}

void brim_kernel_name(const char *plain, char *out, size_t size) {
  if (strncmp(plain, "void ", 5) == 0) plain += 5;
  size_t n = arguments_at(plain, strlen(plain));
  if (n >= size) n = size - 1;
  memcpy(out, plain, n);
  out[n] = '\0';
}

brim_demangle_fn brim_demangler(brim_dl **dl) {
  static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1", NULL};
  void *address = NULL;
  const brim_dl_symbol symbols[] = {{"__cxa_demangle", &address, true}};
  if (!*dl && brim_dl_open(names, symbols, 1, true, dl) != BRIM_OK) {
    brim_status_clear();
    return NULL;
  }
  address = brim_dl_find(*dl, "__cxa_demangle");
  brim_demangle_fn fn = NULL;
  memcpy(&fn, &address, sizeof fn);
  return fn;
}

const char *brim_cupti_plain_name(brim_demangle_fn demangle, const char *name, brim_trace *texts) {
  char text[256];
  int status = -1;
  char *plain =
      demangle && strncmp(name, "_Z", 2) == 0 ? demangle(name, NULL, NULL, &status) : NULL;
  brim_kernel_name(plain && status == 0 ? plain : name, text, sizeof text);
  free(plain);  // malloc's, by the rules of that library
  return brim_trace_text(texts, text);
}
