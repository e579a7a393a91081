// From CUPTI's records to sums: what is kept of a record, and the union of intervals. Pure functions;
// the session is cupti_session.c.
#include <stdlib.h>
#include <string.h>

#include "profile/cupti/cupti_int.h"

//---------------------------------- one record ----------------------------------

static bool work_of_copy(uint8_t copy_kind, brim_cupti_work *out) {
  switch (copy_kind) {
    case BRIM_CUPTI_COPY_HTOH:
      return false;
    case BRIM_CUPTI_COPY_HTOD:
    case BRIM_CUPTI_COPY_HTOA:
      *out = BRIM_CUPTI_WORK_H2D;
      return true;
    case BRIM_CUPTI_COPY_DTOH:
    case BRIM_CUPTI_COPY_ATOH:
      *out = BRIM_CUPTI_WORK_D2H;
      return true;
    case BRIM_CUPTI_COPY_DTOD:
    case BRIM_CUPTI_COPY_ATOA:
    case BRIM_CUPTI_COPY_ATOD:
    case BRIM_CUPTI_COPY_DTOA:
    case BRIM_CUPTI_COPY_PTOP:
      *out = BRIM_CUPTI_WORK_D2D;
      return true;
    default:
      *out = BRIM_CUPTI_WORK_COPY;
      return true;
  }
}

static brim_cupti_take timed(uint64_t start, uint64_t end, brim_cupti_record *out) {
  if ((start == 0 && end == 0) || end < start) return BRIM_CUPTI_LOST;
  out->start = start;
  out->end = end;
  return BRIM_CUPTI_TAKEN;
}

// The library's structs are longer than ours and of another name: copied, not cast.
brim_cupti_take brim_cupti_read(const void *record, brim_cupti_record *out) {
  int32_t kind;
  memcpy(&kind, record, sizeof kind);
  *out = (brim_cupti_record){0};
  switch (kind) {
    case BRIM_CUPTI_KIND_KERNEL:
    case BRIM_CUPTI_KIND_CONCURRENT_KERNEL:
    case BRIM_CUPTI_KIND_MEMSET: {
      brim_cupti_kernel k;
      memcpy(&k, record, sizeof k);
      bool memset_record = kind == BRIM_CUPTI_KIND_MEMSET;
      out->work = memset_record ? BRIM_CUPTI_WORK_MEMSET : BRIM_CUPTI_WORK_KERNEL;
      return timed(k.start, k.end, out);
    }
    case BRIM_CUPTI_KIND_MEMCPY:
    case BRIM_CUPTI_KIND_MEMCPY2: {
      brim_cupti_copy c;
      memcpy(&c, record, sizeof c);
      if (!work_of_copy(c.copy_kind, &out->work)) return BRIM_CUPTI_OTHER;
      out->bytes = c.bytes;
      uint8_t host_side = out->work == BRIM_CUPTI_WORK_D2H ? c.dst_kind : c.src_kind;
      out->pageable = host_side == BRIM_CUPTI_MEMORY_PAGEABLE;
      return timed(c.start, c.end, out);
    }
    default:
      return BRIM_CUPTI_OTHER;
  }
}

//---------------------------------- all of them ----------------------------------

static double ms(uint64_t ns) { return (double)ns / 1e6; }

// Drops what is outside and cuts what is half inside; how many are left.
static size_t clip(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    brim_cupti_record r = records[i];
    if (r.end < begin || r.start > end) continue;
    if (r.start < begin) r.start = begin;
    if (r.end > end) r.end = end;
    records[kept++] = r;
  }
  return kept;
}

static int by_start(const void *a, const void *b) {
  const brim_cupti_record *x = (const brim_cupti_record *)a, *y = (const brim_cupti_record *)b;
  return x->start < y->start ? -1 : x->start > y->start;
}

// Time covered so far, of intervals that come by their start.
typedef struct cover {
  uint64_t sum, until;
} cover;

static void cover_add(cover *c, uint64_t start, uint64_t end) {
  if (start < c->until) start = c->until;
  if (end <= start) return;
  c->sum += end - start;
  c->until = end;
}

void brim_cupti_sum(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end,
                    brim_gpu_trace_sum *out) {
  if (end < begin) end = begin;  // the clock was set back
  count = clip(records, count, begin, end);
  if (count > 1) qsort(records, count, sizeof *records, by_start);
  *out = (brim_gpu_trace_sum){.wall_ms = ms(end - begin)};
  cover busy = {0}, kernels = {0};
  uint64_t ns[BRIM_CUPTI_WORK_COUNT] = {0}, bytes[BRIM_CUPTI_WORK_COUNT] = {0};
  for (size_t i = 0; i < count; i++) {
    const brim_cupti_record *r = &records[i];
    cover_add(&busy, r->start, r->end);
    ns[r->work] += r->end - r->start;
    bytes[r->work] += r->bytes;
    if (r->work == BRIM_CUPTI_WORK_KERNEL) {
      cover_add(&kernels, r->start, r->end);
      out->kernels++;
    } else if (r->work != BRIM_CUPTI_WORK_MEMSET) {
      out->copies++;
    }
    bool host_copy = r->work == BRIM_CUPTI_WORK_H2D || r->work == BRIM_CUPTI_WORK_D2H;
    if (host_copy && r->pageable) out->pageable_bytes += r->bytes;
  }
  out->busy_ms = ms(busy.sum);
  out->kernel_ms = ms(kernels.sum);
  out->h2d_ms = ms(ns[BRIM_CUPTI_WORK_H2D]);
  out->d2h_ms = ms(ns[BRIM_CUPTI_WORK_D2H]);
  out->d2d_ms = ms(ns[BRIM_CUPTI_WORK_D2D]);
  out->memset_ms = ms(ns[BRIM_CUPTI_WORK_MEMSET]);
  out->h2d_bytes = bytes[BRIM_CUPTI_WORK_H2D];
  out->d2h_bytes = bytes[BRIM_CUPTI_WORK_D2H];
}
