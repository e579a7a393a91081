// Reads rows of a dataset whose layout is known. Sizes are checked once; then rows are copied from the
// mapped file or from unpacked chunks, and converted. Unpacking undoes deflate, lzf, shuffle and the
// Fletcher checksum, straight from the mapped file under its guard, and checks every size. Calls libhdf5
// only for LIBRARY rows, so that wrong layouts can be fuzzed.
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <zlib.h>

#include "base/base_alloc.h"
#include "data/hdf5/data_hdf5.h"

//---------------------------------- unpacking a chunk ----------------------------------

struct brim_hdf5_decoder {
  z_stream z;
  uint8_t *scratch;  // the data between two filters that move them; NULL if at most one does
};

static void *z_alloc(void *ctx, unsigned items, unsigned size) {
  (void)ctx;
  return brim_calloc(items, size);
}

static void z_free(void *ctx, void *ptr) {
  (void)ctx;
  brim_free(ptr);
}

static uint64_t hdf5_decoder_bytes(const brim_hdf5_array *a) {
  int moves = 0;
  for (int i = 0; i < a->filter_count; i++) moves += a->filters[i].id != BRIM_HDF5_FLETCHER32;
  return moves > 1 ? a->chunk_bytes + BRIM_HDF5_TAIL : 0;
}

static brim_status hdf5_decoder_create(const brim_hdf5_array *a, brim_hdf5_decoder **out) {
  brim_hdf5_decoder *d = brim_calloc(1, sizeof *d);
  uint64_t scratch = hdf5_decoder_bytes(a);
  *out = NULL;
  if (d && scratch) d->scratch = brim_alloc_tagged(scratch, BRIM_MEM_PLANNED);
  if (d) {
    d->z.zalloc = z_alloc;
    d->z.zfree = z_free;
  }
  if (!d || (scratch && !d->scratch) || inflateInit(&d->z) != Z_OK) {
    if (d) brim_free(d->scratch);
    brim_free(d);
    return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory for unpacking chunks of %" PRIu64 " bytes",
                     a->map->path, a->name, a->chunk_bytes);
  }
  *out = d;
  return BRIM_OK;
}

static void hdf5_decoder_destroy(brim_hdf5_decoder *decoder) {
  if (!decoder) return;
  inflateEnd(&decoder->z);
  brim_free(decoder->scratch);
  brim_free(decoder);
}

//---------------------------------- the filters ----------------------------------

// Undoes shuffle, which stores byte 0 of all elements, then byte 1 of all, and so on. The last bytes, if
// fewer than an element, are not shuffled.
static void unshuffle(const uint8_t *restrict in, size_t n, size_t element, uint8_t *restrict out) {
  size_t count = n / element;
  const uint8_t *a = in, *b = in + count, *c = in + 2 * count, *d = in + 3 * count;
  switch (element) {
    case 2:
      for (size_t i = 0; i < count; i++) {
        out[2 * i] = a[i];
        out[2 * i + 1] = b[i];
      }
      break;
    case 4:
      for (size_t i = 0; i < count; i++) {
        out[4 * i] = a[i];
        out[4 * i + 1] = b[i];
        out[4 * i + 2] = c[i];
        out[4 * i + 3] = d[i];
      }
      break;
    default:
      for (size_t j = 0; j < element; j++) {
        for (size_t i = 0; i < count; i++) out[i * element + j] = in[j * count + i];
      }
  }
  memcpy(out + count * element, in + count * element, n - count * element);
}

// Fletcher's sums over big-endian 16-bit words; an odd last byte is the upper half of a word.
static uint32_t fletcher32(const uint8_t *p, size_t n) {
  uint32_t low = 0, high = 0;
  size_t words = n / 2;
  while (words) {
    size_t some = words < 360 ? words : 360;  // so few words cannot overflow the sums
    words -= some;
    for (; some; some--, p += 2) {
      low += (uint32_t)p[0] << 8 | p[1];
      high += low;
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  if (n & 1) {
    low += (uint32_t)p[0] << 8;
    high += low;
  }
  for (int fold = 0; fold < 2; fold++) {
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  return high << 16 | low;
}

static uint32_t swap_pairs(uint32_t v) { return (v & 0x00ff00ffu) << 8 | (v >> 8 & 0x00ff00ffu); }

size_t brim_hdf5_unpack_lzf(const uint8_t *in, size_t n, uint8_t *out, size_t size) {
  const uint8_t *end = in + n;
  size_t at = 0;
  while (in < end) {
    size_t control = *in++;
    if (control < 32) {
      size_t plain = control + 1;
      if (plain > (size_t)(end - in) || plain > size - at) return SIZE_MAX;
      memcpy(out + at, in, plain);
      in += plain;
      at += plain;
      continue;
    }
    size_t length = control >> 5;
    if (length == 7) {
      if (in == end) return SIZE_MAX;
      length += *in++;
    }
    length += 2;
    if (in == end) return SIZE_MAX;
    size_t back = ((control & 31) << 8 | *in++) + 1;
    if (back > at || length > size - at) return SIZE_MAX;
    for (size_t i = 0; i < length; i++) out[at + i] = out[at + i - back];
    at += length;
  }
  return at;
}

typedef struct decode_job {
  const brim_hdf5_array *a;
  uint64_t chunk;
  brim_hdf5_decoder *decoder;
  uint8_t *out;
} decode_job;

static brim_status fail_chunk(const decode_job *job, const char *what) {
  const brim_hdf5_chunk *c = &job->a->chunks[job->chunk];
  return brim_fail(BRIM_EPARSE, "%s: %s: chunk %" PRIu64 " (%u bytes at offset %" PRIu64 "): %s",
                   job->a->map->path, job->a->name, job->chunk, c->bytes, c->address, what);
}

static brim_status inflate_chunk(const decode_job *job, const uint8_t *in, size_t n, uint8_t *out,
                                 size_t size) {
  z_stream *z = &job->decoder->z;
  if (inflateReset(z) != Z_OK) return fail_chunk(job, brim_tr("zlib cannot start"));
  z->next_in = (Bytef *)(uintptr_t)in;
  z->avail_in = (unsigned)n;
  z->next_out = out;
  z->avail_out = (unsigned)size;
  switch (inflate(z, Z_FINISH)) {
    case Z_STREAM_END:
      if (z->avail_out) return fail_chunk(job, brim_tr("unpacks to fewer bytes than a chunk has"));
      return BRIM_OK;
    case Z_MEM_ERROR:
      return brim_fail(BRIM_ENOMEM, "%s: out of memory", job->a->map->path);
    case Z_OK:
    case Z_BUF_ERROR:
      return z->avail_out ? fail_chunk(job, brim_tr("its packed data ends too early"))
                          : fail_chunk(job, brim_tr("unpacks to more bytes than a chunk has"));
    default:
      return fail_chunk(job, brim_tr("damaged packed data"));
  }
}

static brim_status unpack_lzf_chunk(const decode_job *job, const uint8_t *in, size_t n,
                                    uint8_t *out, size_t size) {
  size_t got = brim_hdf5_unpack_lzf(in, n, out, size);
  if (got == size) return BRIM_OK;
  return fail_chunk(job, got == SIZE_MAX ? brim_tr("damaged packed data")
                                         : brim_tr("unpacks to fewer bytes than a chunk has"));
}

static bool is_packing(const brim_hdf5_filter *f) {
  return f->id == BRIM_HDF5_DEFLATE || f->id == BRIM_HDF5_LZF;
}

static brim_status check_fletcher(const decode_job *job, const uint8_t *in, size_t n) {
  uint32_t sum = fletcher32(in, n);
  uint32_t stored = (uint32_t)in[n] | (uint32_t)in[n + 1] << 8 | (uint32_t)in[n + 2] << 16 |
                    (uint32_t)in[n + 3] << 24;
  // Old versions of HDF5 wrote the sum with the bytes of each pair swapped.
  if (stored == sum || stored == swap_pairs(sum)) return BRIM_OK;
  return fail_chunk(job, brim_tr("its checksum does not match its data"));
}

// Size of the data after undoing filter i on n bytes; 0 = impossible. Once no packing filter is left to
// undo, the size is known: a chunk and its checksums. Before that it is only limited.
static size_t size_after(const brim_hdf5_array *a, uint32_t mask, int i, size_t n) {
  size_t size = a->chunk_bytes;
  bool packed = false;
  for (int k = 0; k < i; k++) {
    if (mask >> k & 1) continue;
    if (a->filters[k].id == BRIM_HDF5_FLETCHER32) size += 4;
    if (is_packing(&a->filters[k])) packed = true;
  }
  size_t sum = a->filters[i].id == BRIM_HDF5_FLETCHER32 ? 4 : 0;
  if (is_packing(&a->filters[i])) return size;
  if (!packed) return n == size + sum ? size : 0;
  if (n <= sum) return 0;
  // Packed incompressible data are larger than a chunk. Shuffle would write them to a chunk's room.
  if (a->filters[i].id == BRIM_HDF5_SHUFFLE && n > a->chunk_bytes + BRIM_HDF5_TAIL) return 0;
  return n - sum;
}

static brim_status decode_chunk(void *ctx, const uint8_t *data, size_t map_size) {
  const decode_job *job = ctx;
  const brim_hdf5_array *a = job->a;
  const brim_hdf5_chunk *chunk = &a->chunks[job->chunk];
  const uint8_t *in = data + chunk->address;
  size_t n = chunk->bytes;
  int moves = 0;
  (void)map_size;
  for (int i = 0; i < a->filter_count; i++)
    moves += !(chunk->mask >> i & 1) && a->filters[i].id != BRIM_HDF5_FLETCHER32;
  for (int i = a->filter_count - 1; i >= 0; i--) {
    if (chunk->mask >> i & 1) continue;
    const brim_hdf5_filter *f = &a->filters[i];
    size_t size = size_after(a, chunk->mask, i, n);
    if (!size) return fail_chunk(job, brim_tr("its size is not that of a chunk"));
    if (f->id == BRIM_HDF5_FLETCHER32) {
      BRIM_TRY(check_fletcher(job, in, size));
    } else {
      uint8_t *out = --moves ? job->decoder->scratch : job->out;
      if (f->id == BRIM_HDF5_DEFLATE) {
        BRIM_TRY(inflate_chunk(job, in, n, out, size));
      } else if (f->id == BRIM_HDF5_LZF) {
        BRIM_TRY(unpack_lzf_chunk(job, in, n, out, size));
      } else {
        unshuffle(in, n, f->element, out);
      }
      in = out;
    }
    n = size;
  }
  if (n != a->chunk_bytes) return fail_chunk(job, brim_tr("its size is not that of a chunk"));
  if (in != job->out) memcpy(job->out, in, n);
  return BRIM_OK;
}

// Unpacks a chunk. out has room for chunk_bytes + BRIM_HDF5_TAIL; the first chunk_bytes are the chunk.
static brim_status hdf5_decode(const brim_hdf5_array *a, uint64_t chunk, brim_hdf5_decoder *decoder,
                               uint8_t *out) {
  decode_job job = {.a = a, .chunk = chunk, .decoder = decoder, .out = out};
  return brim_map_guard(a->map, decode_chunk, &job);
}

//---------------------------------- the cache ----------------------------------

// Unpacked chunks in memory that is allocated once. Chunk i belongs to stripe i % stripe_count; each
// stripe has its own lock and slots, and evicts chunks by the clock algorithm. Threads unpack without a
// lock; a thread that needs a chunk that is being unpacked waits for it.

enum {
  MAX_STRIPES = 32,
  SLOTS_PER_STRIPE = 8,  // the least number of slots, if there are several stripes
  MIN_SLOTS = 2,
  MAX_DECODERS = 256,
};
static const uint64_t SCRATCH_LIMIT = (uint64_t)256 << 20;  // most scratch bytes of all decoders

#define NO_CHUNK UINT64_MAX

typedef struct cache_slot {
  uint64_t chunk;
  uint32_t pins;
  bool ready;  // `chunk` is unpacked; false: it is being unpacked
  bool used;   // since the clock's hand last passed
} cache_slot;

typedef struct cache_stripe {
  _Alignas(64) pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t slots, hand, waiting;
  uint64_t misses;
} cache_stripe;

struct brim_hdf5_cache {
  const brim_hdf5_array *a;
  uint8_t *data;  // slots x stride
  size_t stride;
  cache_slot *slots;  // slot i belongs to stripe i % stripe_count
  int32_t *slot_of;   // the slot of each chunk; -1: none
  uint32_t slot_count, stripe_count, stripes_ready;
  pthread_mutex_t decoder_lock;
  pthread_cond_t decoder_free;
  brim_hdf5_decoder *decoders[MAX_DECODERS];  // the first decoders_free are free
  uint32_t decoder_count, decoders_free;
  uint64_t bytes;
  cache_stripe stripes[MAX_STRIPES];
};

static void *alloc_planned(brim_hdf5_cache *c, uint64_t count, uint64_t size) {
  uint64_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX) return NULL;
  void *p = brim_alloc_tagged((size_t)bytes, BRIM_MEM_PLANNED);
  if (p) c->bytes += bytes;
  return p;
}

static brim_status create_parts(brim_hdf5_cache *c) {
  const brim_hdf5_array *a = c->a;
  c->data = alloc_planned(c, c->slot_count, c->stride);
  c->slots = alloc_planned(c, c->slot_count, sizeof *c->slots);
  c->slot_of = alloc_planned(c, a->chunk_count, sizeof *c->slot_of);
  if (!c->data || !c->slots || !c->slot_of)
    return brim_fail(BRIM_ENOMEM,
                     "%s: %s: out of memory for %u unpacked chunks of %" PRIu64
                     " bytes; use a smaller chunk_cache= or smaller chunks",
                     a->map->path, a->name, c->slot_count, a->chunk_bytes);
  for (uint32_t i = 0; i < c->slot_count; i++) c->slots[i] = (cache_slot){.chunk = NO_CHUNK};
  for (uint64_t i = 0; i < a->chunk_count; i++) c->slot_of[i] = -1;
  uint64_t scratch = hdf5_decoder_bytes(a);
  uint64_t decoders = (uint64_t)brim_cpu_count();
  if (scratch && decoders > SCRATCH_LIMIT / scratch) decoders = SCRATCH_LIMIT / scratch;
  if (decoders > c->slot_count) decoders = c->slot_count;
  if (decoders > MAX_DECODERS) decoders = MAX_DECODERS;
  if (decoders < 1) decoders = 1;
  for (; c->decoder_count < decoders; c->decoder_count++) {
    BRIM_TRY(hdf5_decoder_create(a, &c->decoders[c->decoder_count]));
    c->bytes += scratch;
  }
  c->decoders_free = c->decoder_count;
  return BRIM_OK;
}

static void hdf5_cache_destroy(brim_hdf5_cache *c) {
  if (!c) return;
  for (uint32_t i = 0; i < c->decoder_count; i++) hdf5_decoder_destroy(c->decoders[i]);
  for (uint32_t i = 0; i < c->stripes_ready; i++) {
    pthread_mutex_destroy(&c->stripes[i].lock);
    pthread_cond_destroy(&c->stripes[i].changed);
  }
  pthread_mutex_destroy(&c->decoder_lock);
  pthread_cond_destroy(&c->decoder_free);
  brim_free(c->data);
  brim_free(c->slots);
  brim_free(c->slot_of);
  brim_free(c);
}

brim_status brim_hdf5_cache_create(const brim_hdf5_array *a, uint64_t budget,
                                   brim_hdf5_cache **out) {
  brim_hdf5_cache *c = brim_calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", a->map->path, a->name);
  c->a = a;
  c->stride = (a->chunk_bytes + BRIM_HDF5_TAIL + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  uint64_t slots = budget / c->stride;
  if (slots < MIN_SLOTS) slots = MIN_SLOTS;
  if (slots > a->chunk_count) slots = a->chunk_count;
  c->slot_count = (uint32_t)slots;  // brim_hdf5_array_shape limits chunk_count to 2^26
  c->stripe_count = c->slot_count / SLOTS_PER_STRIPE;
  if (c->stripe_count > MAX_STRIPES) c->stripe_count = MAX_STRIPES;
  if (c->stripe_count < 1) c->stripe_count = 1;
  pthread_mutex_init(&c->decoder_lock, NULL);
  pthread_cond_init(&c->decoder_free, NULL);
  for (; c->stripes_ready < c->stripe_count; c->stripes_ready++) {
    cache_stripe *s = &c->stripes[c->stripes_ready];
    s->slots = (c->slot_count - c->stripes_ready - 1) / c->stripe_count + 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
  }
  brim_status status = create_parts(c);
  if (status) {
    hdf5_cache_destroy(c);
    return status;
  }
  *out = c;
  return BRIM_OK;
}

static uint64_t hdf5_cache_bytes(const brim_hdf5_cache *cache) { return cache->bytes; }

uint64_t brim_hdf5_cache_misses(brim_hdf5_cache *c) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < c->stripe_count; i++) {
    pthread_mutex_lock(&c->stripes[i].lock);
    n += c->stripes[i].misses;
    pthread_mutex_unlock(&c->stripes[i].lock);
  }
  return n;
}

static brim_hdf5_decoder *take_decoder(brim_hdf5_cache *c) {
  pthread_mutex_lock(&c->decoder_lock);
  while (!c->decoders_free) pthread_cond_wait(&c->decoder_free, &c->decoder_lock);
  brim_hdf5_decoder *d = c->decoders[--c->decoders_free];
  pthread_mutex_unlock(&c->decoder_lock);
  return d;
}

static void give_decoder(brim_hdf5_cache *c, brim_hdf5_decoder *d) {
  pthread_mutex_lock(&c->decoder_lock);
  c->decoders[c->decoders_free++] = d;
  pthread_cond_signal(&c->decoder_free);
  pthread_mutex_unlock(&c->decoder_lock);
}

// Picks a slot of the stripe to reuse, by the clock algorithm; -1 = all slots are in use.
static int32_t victim_locked(brim_hdf5_cache *c, uint32_t which) {
  cache_stripe *s = &c->stripes[which];
  for (uint32_t i = 0; i < 2 * s->slots; i++) {
    uint32_t at = s->hand * c->stripe_count + which;
    cache_slot *slot = &c->slots[at];
    s->hand = s->hand + 1 == s->slots ? 0 : s->hand + 1;
    if (slot->pins || (slot->chunk != NO_CHUNK && !slot->ready)) continue;
    if (slot->used) {
      slot->used = false;
      continue;
    }
    return (int32_t)at;
  }
  return -1;
}

static void wait_locked(cache_stripe *s) {
  s->waiting++;
  pthread_cond_wait(&s->changed, &s->lock);
  s->waiting--;
}

// Unpacks a chunk into slot `at`, without the stripe's lock meanwhile.
static brim_status fill_locked(brim_hdf5_cache *c, cache_stripe *s, uint64_t chunk, int32_t at) {
  cache_slot *slot = &c->slots[at];
  if (slot->chunk != NO_CHUNK) c->slot_of[slot->chunk] = -1;
  *slot = (cache_slot){.chunk = chunk, .pins = 1, .used = true};
  c->slot_of[chunk] = at;
  s->misses++;
  pthread_mutex_unlock(&s->lock);
  brim_hdf5_decoder *decoder = take_decoder(c);
  brim_status status = hdf5_decode(c->a, chunk, decoder, c->data + (size_t)at * c->stride);
  give_decoder(c, decoder);
  pthread_mutex_lock(&s->lock);
  if (status) {
    c->slot_of[chunk] = -1;
    *slot = (cache_slot){.chunk = NO_CHUNK};
  } else {
    slot->ready = true;
  }
  if (s->waiting) pthread_cond_broadcast(&s->changed);
  return status;
}

// Gets a chunk's bytes, valid until hdf5_cache_put of the same chunk and slot (*out).
static brim_status hdf5_cache_get(brim_hdf5_cache *c, uint64_t chunk, uint32_t *out,
                                  const uint8_t **data) {
  uint32_t which = (uint32_t)(chunk % c->stripe_count);
  cache_stripe *s = &c->stripes[which];
  brim_status status = BRIM_OK;
  int32_t at;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    at = c->slot_of[chunk];
    if (at >= 0 && c->slots[at].ready) {
      c->slots[at].pins++;
      c->slots[at].used = true;
      break;
    }
    if (at < 0) at = victim_locked(c, which);
    if (at >= 0 && c->slot_of[chunk] < 0) {
      status = fill_locked(c, s, chunk, at);
      break;
    }
    wait_locked(s);
  }
  pthread_mutex_unlock(&s->lock);
  if (status) return status;
  *out = (uint32_t)at;
  *data = c->data + (size_t)at * c->stride;
  return BRIM_OK;
}

static void hdf5_cache_put(brim_hdf5_cache *c, uint64_t chunk, uint32_t slot) {
  cache_stripe *s = &c->stripes[chunk % c->stripe_count];
  pthread_mutex_lock(&s->lock);
  c->slots[slot].pins--;
  if (s->waiting) pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

//---------------------------------- numbers ----------------------------------

static size_t kind_bytes(brim_hdf5_kind kind) {
  static const uint8_t bytes[BRIM_HDF5_KIND_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8};
  return bytes[kind];
}

const char *brim_hdf5_kind_name(brim_hdf5_kind kind) {
  static const char *const names[BRIM_HDF5_KIND_COUNT] = {"i8",  "u8",  "i16", "u16", "i32", "u32",
                                                          "i64", "u64", "f16", "f32", "f64"};
  return names[kind];
}

static inline uint16_t load16(const uint8_t *p, bool swap) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return swap ? __builtin_bswap16(v) : v;
}

static inline uint32_t load32(const uint8_t *p, bool swap) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return swap ? __builtin_bswap32(v) : v;
}

static inline uint64_t load64(const uint8_t *p, bool swap) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return swap ? __builtin_bswap64(v) : v;
}

static inline float bits_f32(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline double bits_f64(uint64_t bits) {
  double f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

// Converts a half float without branches, so that loops vectorize: a multiplication moves the exponent
// and handles subnormals.
static inline float half_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
  float scaled = bits_f32(rest) * 0x1p112f;
  uint32_t bits;
  memcpy(&bits, &scaled, sizeof bits);
  bits = (h & 0x7c00) == 0x7c00 ? (rest | 0x7f800000u) : bits;  // infinity and NaN
  return bits_f32(bits | sign);
}

// One function for each type and byte order, with a separate loop for step 1, which vectorizes.
#define CONVERT_LOOP(size, expr)          \
  if (step == 1) {                        \
    for (size_t i = 0; i < n; i++) {      \
      const uint8_t *p = in + i * (size); \
      out[i] = (float)(expr);             \
    }                                     \
  } else {                                \
    for (size_t i = 0; i < n; i++) {      \
      const uint8_t *p = in + i * (size); \
      out[i * step] = (float)(expr);      \
    }                                     \
  }
#define CONVERT(name, size, expr)                                                      \
  static void name##_native(const uint8_t *restrict in, size_t n, float *restrict out, \
                            size_t step) {                                             \
    enum { swap = 0 };                                                                 \
    (void)swap;                                                                        \
    CONVERT_LOOP(size, expr)                                                           \
  }                                                                                    \
  static void name##_other(const uint8_t *restrict in, size_t n, float *restrict out,  \
                           size_t step) {                                              \
    enum { swap = 1 };                                                                 \
    (void)swap;                                                                        \
    CONVERT_LOOP(size, expr)                                                           \
  }

CONVERT(i8, 1, (int8_t)*p)
CONVERT(u8, 1, *p)
CONVERT(i16, 2, (int16_t)load16(p, swap))
CONVERT(u16, 2, load16(p, swap))
CONVERT(i32, 4, (int32_t)load32(p, swap))
CONVERT(u32, 4, load32(p, swap))
CONVERT(i64, 8, (int64_t)load64(p, swap))
CONVERT(u64, 8, load64(p, swap))
CONVERT(f16, 2, half_f32(load16(p, swap)))
CONVERT(f32, 4, bits_f32(load32(p, swap)))
CONVERT(f64, 8, bits_f64(load64(p, swap)))

typedef void (*convert_fn)(const uint8_t *restrict in, size_t n, float *restrict out, size_t step);
#define PAIR(name) \
  { name##_native, name##_other }
static const convert_fn convert[BRIM_HDF5_KIND_COUNT][2] = {
    PAIR(i8),  PAIR(u8),  PAIR(i16), PAIR(u16), PAIR(i32), PAIR(u32),
    PAIR(i64), PAIR(u64), PAIR(f16), PAIR(f32), PAIR(f64),
};

void brim_hdf5_convert(brim_hdf5_type type, const uint8_t *in, size_t n, float *out, size_t step) {
  if (step == 1 && type.kind == BRIM_HDF5_F32 && !type.swap) {
    memcpy(out, in, n * sizeof *out);
  } else {
    convert[type.kind][type.swap](in, n, out, step);
  }
}

//---------------------------------- sizes ----------------------------------

static brim_status fail_shape(const brim_hdf5_array *a, const char *what) {
  return brim_fail(BRIM_EPARSE, "%s: %s: %s", a->map->path, a->name, what);
}

brim_status brim_hdf5_array_shape(brim_hdf5_array *a) {
  if (a->rank < 1 || a->rank > BRIM_HDF5_MAX_RANK || (unsigned)a->type.kind >= BRIM_HDF5_KIND_COUNT)
    return fail_shape(a, brim_tr("brim does not support its rank or type"));
  bool chunked = a->where == BRIM_HDF5_CHUNKS || a->where == BRIM_HDF5_PACKED;
  a->element_bytes = kind_bytes(a->type.kind);
  a->row_elements = 1;
  a->chunk_count = 1;
  a->chunk_bytes = a->element_bytes;
  a->whole = true;
  for (int d = 0; d < a->rank; d++) {
    if (a->dim[d] == 0) return fail_shape(a, brim_tr("holds no data: one of its sizes is 0"));
    if (d && __builtin_mul_overflow(a->row_elements, a->dim[d], &a->row_elements))
      return fail_shape(a, brim_tr("its sizes are beyond what a file can hold"));
    if (!chunked) continue;
    if (a->chunk[d] == 0) return fail_shape(a, brim_tr("a chunk of size 0"));
    a->grid[d] = (a->dim[d] - 1) / a->chunk[d] + 1;
    if (d && a->chunk[d] != a->dim[d]) a->whole = false;
    if (__builtin_mul_overflow(a->chunk_bytes, a->chunk[d], &a->chunk_bytes) ||
        a->chunk_bytes > UINT32_MAX ||
        __builtin_mul_overflow(a->chunk_count, a->grid[d], &a->chunk_count))
      return fail_shape(a, brim_tr("its chunks are beyond what a file can hold"));
  }
  if (chunked && a->chunk_count > (uint64_t)1 << 26)
    return brim_fail(BRIM_ELIMIT,
                     "%s: %s: %" PRIu64 " chunks are too many; rewrite the file with larger chunks",
                     a->map->path, a->name, a->chunk_count);
  if (__builtin_mul_overflow(a->row_elements, a->element_bytes, &a->row_bytes) ||
      __builtin_mul_overflow(a->row_bytes, a->dim[0], &a->total_bytes) ||
      a->total_bytes > INT64_MAX)
    return fail_shape(a, brim_tr("its sizes are beyond what a file can hold"));
  return BRIM_OK;
}

static brim_status check_chunk(const brim_hdf5_array *a, uint64_t i) {
  const brim_hdf5_chunk *c = &a->chunks[i];
  if (c->bytes == 0) return BRIM_OK;
  if (c->address > a->map->size || c->bytes > a->map->size - c->address)
    return brim_fail(BRIM_EPARSE,
                     "%s: %s: chunk %" PRIu64 " of %u bytes at offset %" PRIu64
                     " reaches beyond the end of the file, %zu",
                     a->map->path, a->name, i, c->bytes, c->address, a->map->size);
  if (a->where == BRIM_HDF5_CHUNKS && c->bytes != a->chunk_bytes)
    return brim_fail(BRIM_EPARSE, "%s: %s: chunk %" PRIu64 " has %u bytes, expected %" PRIu64,
                     a->map->path, a->name, i, c->bytes, a->chunk_bytes);
  return BRIM_OK;
}

brim_status brim_hdf5_array_check(const brim_hdf5_array *a) {
  if (a->where == BRIM_HDF5_MAPPED &&
      (a->offset > a->map->size || a->total_bytes > a->map->size - a->offset))
    return brim_fail(BRIM_EPARSE,
                     "%s: %s: %" PRIu64 " bytes from offset %" PRIu64
                     " on reach beyond the end of the file, %zu; is it cut off?",
                     a->map->path, a->name, a->total_bytes, a->offset, a->map->size);
  if (a->where != BRIM_HDF5_CHUNKS && a->where != BRIM_HDF5_PACKED) return BRIM_OK;
  int seen[BRIM_HDF5_FILTER_COUNT] = {0};
  for (int i = 0; i < a->filter_count; i++) {
    const brim_hdf5_filter *f = &a->filters[i];
    if ((unsigned)f->id >= BRIM_HDF5_FILTER_COUNT || seen[f->id]++ ||
        (f->id == BRIM_HDF5_SHUFFLE && f->element == 0))
      return fail_shape(a, brim_tr("brim does not support its filters"));
  }
  for (uint64_t i = 0; i < a->chunk_count; i++) BRIM_TRY(check_chunk(a, i));
  return BRIM_OK;
}

uint64_t brim_hdf5_array_unwritten(const brim_hdf5_array *a) {
  uint64_t rows = 0;
  if (a->where == BRIM_HDF5_FILL) return a->dim[0];
  if ((a->where != BRIM_HDF5_CHUNKS && a->where != BRIM_HDF5_PACKED) || !a->grid[0]) return 0;
  uint64_t in_row = a->chunk_count / a->grid[0];
  for (uint64_t i = 0; i < a->grid[0]; i++) {
    bool missing = false;
    for (uint64_t k = 0; k < in_row && !missing; k++) missing = !a->chunks[i * in_row + k].bytes;
    uint64_t left = a->dim[0] - i * a->chunk[0];
    if (missing) rows += left < a->chunk[0] ? left : a->chunk[0];
  }
  return rows;
}

void brim_hdf5_array_pack(brim_hdf5_array *a, uint64_t base) {
  a->base = base;
  a->packed = true;
  uint64_t step = 1;
  for (int d = a->rank - 1; d > 0; d--) {
    a->step[d] = step;
    step *= a->dim[d];
  }
}

void brim_hdf5_array_deinit(brim_hdf5_array *a) {
  hdf5_cache_destroy(a->cache);
  brim_hdf5_reader_destroy(a->reader);
  brim_free(a->name);
  brim_free(a->memory);
  brim_free(a->chunks);
  brim_free(a->row);
  *a = (brim_hdf5_array){.dataset = -1, .memory_type = -1};
}

uint64_t brim_hdf5_array_host_bytes(const brim_hdf5_array *a) {
  uint64_t n = a->cache ? hdf5_cache_bytes(a->cache) : 0;
  if (a->memory) n += brim_alloc_size(a->memory);
  if (a->chunks) n += brim_alloc_size(a->chunks);
  if (a->row) n += brim_alloc_size(a->row);
  if (a->reader) n += brim_hdf5_reader_bytes(a->reader);
  return n;
}

//---------------------------------- rows ----------------------------------

// Converts n elements of src (NULL: the fill value) into the sample, from element `at` on, `step` apart.
static void put_run(const brim_hdf5_array *a, const uint8_t *src, size_t n, void *sample,
                    uint64_t at, size_t step) {
  if (a->bytes) {
    uint8_t *out = (uint8_t *)sample + at;
    if (!src) {
      for (size_t i = 0; i < n; i++) out[i * step] = a->fill[0];
    } else if (step == 1) {
      memcpy(out, src, n);
    } else {
      for (size_t i = 0; i < n; i++) out[i * step] = src[i];
    }
    return;
  }
  float *out = (float *)sample + at;
  if (src) {
    brim_hdf5_convert(a->type, src, n, out, step);
  } else {
    float fill;
    brim_hdf5_convert(a->type, a->fill, 1, &fill, 1);
    for (size_t i = 0; i < n; i++) out[i * step] = fill;
  }
}

// Copies a box of the row into the sample: `count` elements along each dimension from `start` on. The box
// begins a block at `src` with dimensions `size`.
static void put_box(const brim_hdf5_array *a, const uint8_t *src, const uint64_t *size,
                    const uint64_t *start, const uint64_t *count, void *sample) {
  uint64_t i[BRIM_HDF5_MAX_RANK] = {0};
  int last = a->rank - 1;
  for (;;) {
    uint64_t from = 0, to = a->base;
    for (int d = 1; d <= last; d++) {
      from = from * size[d] + i[d];
      to += (start[d] + i[d]) * a->step[d];
    }
    put_run(a, src ? src + from * a->element_bytes : NULL, last ? (size_t)count[last] : 1, sample,
            to, last ? (size_t)a->step[last] : 1);
    int d = last - 1;
    while (d > 0 && ++i[d] == count[d]) i[d--] = 0;
    if (d <= 0) return;
  }
}

// True if the sample holds the row's bytes unconverted and in one piece.
static bool is_plain_copy(const brim_hdf5_array *a) {
  return a->packed && (a->bytes || (a->type.kind == BRIM_HDF5_F32 && !a->type.swap));
}

bool brim_hdf5_array_direct(const brim_hdf5_array *a) {
  return a->where == BRIM_HDF5_MAPPED && a->map->fd >= 0 && a->base == 0 && is_plain_copy(a);
}

// Converts a whole row at src into the sample.
static void put_row(const brim_hdf5_array *a, const uint8_t *src, void *sample, bool stream) {
  static const uint64_t zero[BRIM_HDF5_MAX_RANK] = {0};
  if (stream && src && is_plain_copy(a)) {
    brim_copy_stream((uint8_t *)sample + a->base * a->element_bytes, src, (size_t)a->row_bytes);
  } else if (a->packed) {
    put_run(a, src, (size_t)a->row_elements, sample, a->base, 1);
  } else {
    put_box(a, src, a->dim, zero, a->dim, sample);
  }
}

// Finds part `part` of a row: its box (*start, *count) in the row. Returns the number of its chunk.
static uint64_t chunk_of(const brim_hdf5_array *a, uint64_t index, uint64_t part, uint64_t *start,
                         uint64_t *count) {
  uint64_t chunk = 0, per_row = 1;
  for (int d = a->rank - 1; d > 0; d--) {
    uint64_t at = part % a->grid[d];
    part /= a->grid[d];
    start[d] = at * a->chunk[d];
    count[d] = a->dim[d] - start[d] < a->chunk[d] ? a->dim[d] - start[d] : a->chunk[d];
    chunk += at * per_row;
    per_row *= a->grid[d];
  }
  return chunk + index / a->chunk[0] * per_row;
}

typedef struct row_job {
  const brim_hdf5_array *a;
  uint64_t index, parts;
  void *sample;
  bool stream;
} row_job;

static void put_chunk(const row_job *job, const uint8_t *data, const uint64_t *start,
                      const uint64_t *count) {
  const brim_hdf5_array *a = job->a;
  const uint8_t *src =
      data ? data + job->index % a->chunk[0] * (a->chunk_bytes / a->chunk[0]) : NULL;
  if (a->whole) {
    put_row(a, src, job->sample, job->stream);
  } else {
    put_box(a, src, a->chunk, start, count, job->sample);
  }
}

static brim_status mapped_row(void *ctx, const uint8_t *data, size_t size) {
  const row_job *job = ctx;
  (void)size;
  put_row(job->a, data + job->a->offset + job->index * job->a->row_bytes, job->sample, job->stream);
  return BRIM_OK;
}

static brim_status chunks_row(void *ctx, const uint8_t *data, size_t size) {
  const row_job *job = ctx;
  (void)size;
  uint64_t start[BRIM_HDF5_MAX_RANK], count[BRIM_HDF5_MAX_RANK];
  for (uint64_t part = 0; part < job->parts; part++) {
    const brim_hdf5_chunk *c = &job->a->chunks[chunk_of(job->a, job->index, part, start, count)];
    put_chunk(job, c->bytes ? data + c->address : NULL, start, count);
  }
  return BRIM_OK;
}

static brim_status packed_row(const row_job *job) {
  const brim_hdf5_array *a = job->a;
  uint64_t start[BRIM_HDF5_MAX_RANK], count[BRIM_HDF5_MAX_RANK];
  for (uint64_t part = 0; part < job->parts; part++) {
    uint64_t chunk = chunk_of(a, job->index, part, start, count);
    const uint8_t *data = NULL;
    uint32_t slot = 0;
    if (a->chunks[chunk].bytes) BRIM_TRY(hdf5_cache_get(a->cache, chunk, &slot, &data));
    put_chunk(job, data, start, count);
    if (data) hdf5_cache_put(a->cache, chunk, slot);
  }
  return BRIM_OK;
}

static brim_status library_row(const brim_hdf5_array *a, uint64_t index, void *sample,
                               bool stream) {
  if (a->reader) {
    const uint8_t *row;
    BRIM_TRY(brim_hdf5_reader_get(a->reader, index, &row));
    put_row(a, row, sample, stream);
    brim_hdf5_reader_put(a->reader, index);
    return BRIM_OK;
  }
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);  // this lock also guards a->row, which all threads share
  brim_status status = brim_hdf5_library_row(a, index, a->row);
  if (!status) put_row(a, a->row, sample, stream);
  brim_hdf5_leave(&scope);
  return status;
}

static brim_status read_row(const brim_hdf5_array *a, uint64_t index, void *sample, bool stream) {
  row_job job = {.a = a, .index = index, .parts = 1, .sample = sample, .stream = stream};
  if (index >= a->dim[0])
    return brim_fail(BRIM_EINVAL, "%s: %s: row %" PRIu64 " of %" PRIu64, a->map->path, a->name,
                     index, a->dim[0]);
  for (int d = 1; d < a->rank && !a->whole; d++) job.parts *= a->grid[d];
  switch (a->where) {
    case BRIM_HDF5_FILL:
      put_row(a, NULL, sample, stream);
      return BRIM_OK;
    case BRIM_HDF5_MAPPED:
      return brim_map_guard(a->map, mapped_row, &job);
    case BRIM_HDF5_MEMORY:
      put_row(a, a->memory + index * a->row_bytes, sample, stream);
      return BRIM_OK;
    case BRIM_HDF5_CHUNKS:
      return brim_map_guard(a->map, chunks_row, &job);
    case BRIM_HDF5_PACKED:
      return packed_row(&job);
    case BRIM_HDF5_LIBRARY:
    case BRIM_HDF5_WHERE_COUNT:
      break;
  }
  return library_row(a, index, sample, stream);
}

brim_status brim_hdf5_array_row(const brim_hdf5_array *a, uint64_t index, void *sample) {
  return read_row(a, index, sample, false);
}

brim_status brim_hdf5_array_stream(const brim_hdf5_array *a, uint64_t index, void *sample) {
  return read_row(a, index, sample, true);
}

void brim_hdf5_array_prefetch(const brim_hdf5_array *a, uint64_t index) {
  enum { LINE = 64, LINES = 8 };  // the hardware prefetches the rest
  if (a->where != BRIM_HDF5_MAPPED) return;
  // No guard is needed: prefetching a lost page does nothing.
  const uint8_t *row = a->map->data + a->offset + index * a->row_bytes;
  for (size_t i = 0; i < LINES && i * LINE < a->row_bytes; i++) __builtin_prefetch(row + i * LINE);
}
