// A trace: its events and the texts they share.
#include "profile/profile_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *brim_trace_kind_key(brim_trace_kind kind) {
  static const char *const keys[BRIM_TRACE_KIND_COUNT] = {"kernel", "copy",      "memset", "sync",
                                                          "op",     "transform", "phase",  "step"};
  return keys[kind];
}

void brim_trace_init(brim_trace *trace) {
  memset(trace, 0, sizeof *trace);
  trace->begin_unix_s = NAN;
}

void brim_trace_deinit(brim_trace *trace) {
  brim_free(trace->events);
  brim_free(trace->text_table);
  brim_arena_destroy(trace->texts);
  brim_trace_init(trace);
}

//---------------------------------- texts ----------------------------------

static size_t hash(const char *text) {
  uint64_t h = 1469598103934665603u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return (size_t)(h ^ (h >> 32));
}

// The slot of a text, or the free slot for it; the table is never full.
static size_t slot_of(const char *const *text_table, size_t capacity, const char *text) {
  size_t at = hash(text) & (capacity - 1);
  while (text_table[at] && strcmp(text_table[at], text) != 0) at = (at + 1) & (capacity - 1);
  return at;
}

static bool grow(brim_trace *t) {
  if (!t->texts && brim_arena_create(0, &t->texts) != BRIM_OK) {
    brim_status_clear();
    return false;
  }
  if (2 * (t->text_count + 1) <= t->text_capacity) return true;
  size_t capacity = t->text_capacity ? 2 * t->text_capacity : 256;
  const char **text_table = (const char **)brim_calloc(capacity, sizeof *text_table);
  if (!text_table) return false;
  for (size_t i = 0; i < t->text_capacity; i++) {
    if (t->text_table[i]) {
      text_table[slot_of(text_table, capacity, t->text_table[i])] = t->text_table[i];
    }
  }
  brim_free(t->text_table);
  t->text_table = text_table;
  t->text_capacity = capacity;
  return true;
}

const char *brim_trace_text(brim_trace *trace, const char *text) {
  if (!text || !grow(trace)) return NULL;
  size_t at = slot_of(trace->text_table, trace->text_capacity, text);
  if (trace->text_table[at]) return trace->text_table[at];
  char *kept = brim_arena_strdup(trace->texts, text);
  if (!kept) return NULL;
  trace->text_table[at] = kept;
  trace->text_count++;
  return kept;
}

//---------------------------------- events ----------------------------------

brim_trace_event *brim_trace_add(brim_trace *trace, brim_trace_kind kind, const char *name) {
  const char *kept = brim_trace_text(trace, name);
  if (!kept) return NULL;
  if (trace->count == trace->capacity) {
    size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
    brim_trace_event *grown =
        (brim_trace_event *)brim_realloc(trace->events, capacity * sizeof *grown);
    if (!grown) return NULL;
    trace->events = grown;
    trace->capacity = capacity;
  }
  brim_trace_event *event = &trace->events[trace->count++];
  *event = (brim_trace_event){.kind = kind,
                              .name = kept,
                              .device = -1,
                              .phase = BRIM_PHASE_COUNT,
                              .step = -1,
                              .flops = NAN};
  return event;
}

static int by_start(const void *a, const void *b) {
  const brim_trace_event *x = (const brim_trace_event *)a, *y = (const brim_trace_event *)b;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

void brim_trace_sort(brim_trace *trace) {
  if (trace->count > 1) qsort(trace->events, trace->count, sizeof *trace->events, by_start);
}
