// Copies that leave the caches alone, where that pays. x86 reads every line it is about to write,
// unless it is written whole by non-temporal stores; and its prefetching stops at a page's end, so
// the start of the next page is asked for in advance. Elsewhere it is memcpy: on a Neoverse V1,
// which sees on its own that lines are written whole, stnp was no faster.
#include "base/base_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

enum { LINE = 64, PAGE = 4096, AHEAD = 4 };  // AHEAD: lines of the next page

// `to` is at the start of a line.
static inline void copy_line(unsigned char *to, const unsigned char *from) {
  __m128i *out = (__m128i *)(void *)to;
  const __m128i *in = (const __m128i *)(const void *)from;
  __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

void brim_copy_stream(void *to, const void *from, size_t n) {
  unsigned char *out = to;
  const unsigned char *in = from;
  if (n < PAGE) {
    memcpy(out, in, n);
    return;
  }
  size_t head = (size_t)(-(uintptr_t)out % LINE);
  memcpy(out, in, head);
  out += head;
  in += head;
  n -= head;
  while (n >= LINE) {
    size_t part = n < PAGE ? n / LINE * LINE : PAGE;
    if (n >= PAGE + AHEAD * LINE) {
      for (size_t i = 0; i < AHEAD; i++) __builtin_prefetch(in + PAGE + i * LINE);
    }
    for (size_t i = 0; i < part; i += LINE) copy_line(out + i, in + i);
    out += part;
    in += part;
    n -= part;
  }
  memcpy(out, in, n);
  _mm_sfence();  // these stores pass others: a lock given up later would not cover them
}

#else

void brim_copy_stream(void *to, const void *from, size_t n) { memcpy(to, from, n); }

#endif
