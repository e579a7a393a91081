// Undoing what HDF5 did to a chunk: deflate, lzf, shuffle, the Fletcher checksum. The packed bytes are
// read straight from the mapped file, under its guard; every size is known beforehand and held
// against what comes out.
#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "data/hdf5/data_hdf5.h"

struct brim_hdf5_decoder {
  z_stream z;
  uint8_t *scratch;  // between deflate and shuffle; NULL where one of them is missing
};

static void *z_alloc(void *ctx, unsigned items, unsigned size) {
  (void)ctx;
  return brim_calloc(items, size);
}

static void z_free(void *ctx, void *ptr) {
  (void)ctx;
  brim_free(ptr);
}

uint64_t brim_hdf5_decoder_bytes(const brim_hdf5_array *a) {
  int moves = 0;
  for (int i = 0; i < a->filter_count; i++) moves += a->filters[i].id != BRIM_HDF5_FLETCHER32;
  return moves > 1 ? a->chunk_bytes + BRIM_HDF5_TAIL : 0;
}

brim_status brim_hdf5_decoder_create(const brim_hdf5_array *a, brim_hdf5_decoder **out) {
  brim_hdf5_decoder *d = brim_calloc(1, sizeof *d);
  uint64_t scratch = brim_hdf5_decoder_bytes(a);
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

void brim_hdf5_decoder_destroy(brim_hdf5_decoder *decoder) {
  if (!decoder) return;
  inflateEnd(&decoder->z);
  brim_free(decoder->scratch);
  brim_free(decoder);
}

//---------------------------------- the filters ----------------------------------

// The bytes j of all elements lie together; back to elements. What is left over stays where it is.
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

// Fletcher's sums over big-endian words of 16 bits; an odd last byte is the upper half of one.
static uint32_t fletcher32(const uint8_t *p, size_t n) {
  uint32_t low = 0, high = 0;
  size_t words = n / 2;
  while (words) {
    size_t some = words < 360 ? words : 360;  // before the sums can overflow
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

static brim_status unpack_lzf(const decode_job *job, const uint8_t *in, size_t n, uint8_t *out,
                              size_t size) {
  size_t got = brim_hdf5_unpack_lzf(in, n, out, size);
  if (got == size) return BRIM_OK;
  return fail_chunk(job, got == SIZE_MAX ? brim_tr("damaged packed data")
                                         : brim_tr("unpacks to fewer bytes than a chunk has"));
}

static bool packs(const brim_hdf5_filter *f) {
  return f->id == BRIM_HDF5_DEFLATE || f->id == BRIM_HDF5_LZF;
}

static brim_status check_fletcher(const decode_job *job, const uint8_t *in, size_t n) {
  uint32_t sum = fletcher32(in, n);
  uint32_t stored = (uint32_t)in[n] | (uint32_t)in[n + 1] << 8 | (uint32_t)in[n + 2] << 16 |
                    (uint32_t)in[n + 3] << 24;
  // Old versions of HDF5 wrote the sum with its bytes in pairs the other way round.
  if (stored == sum || stored == swap_pairs(sum)) return BRIM_OK;
  return fail_chunk(job, brim_tr("its checksum does not match its data"));
}

// What undoing filter i has to give, of the n bytes that are there; 0: that cannot be. While
// deflate is still to be undone sizes are the packed ones, afterwards they are known: a chunk, and
// checksums.
static size_t size_after(const brim_hdf5_array *a, uint32_t mask, int i, size_t n) {
  size_t size = a->chunk_bytes;
  bool packed = false;
  for (int k = 0; k < i; k++) {
    if (mask >> k & 1) continue;
    if (a->filters[k].id == BRIM_HDF5_FLETCHER32) size += 4;
    if (packs(&a->filters[k])) packed = true;
  }
  size_t sum = a->filters[i].id == BRIM_HDF5_FLETCHER32 ? 4 : 0;
  if (packs(&a->filters[i])) return size;
  if (!packed) return n == size + sum ? size : 0;
  if (n <= sum) return 0;
  // What does not pack is larger packed than a chunk; only shuffle writes it to a chunk's room.
  if (a->filters[i].id == BRIM_HDF5_SHUFFLE && n > a->chunk_bytes + BRIM_HDF5_TAIL) return 0;
  return n - sum;
}

static brim_status decode(void *ctx, const uint8_t *data, size_t map_size) {
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
        BRIM_TRY(unpack_lzf(job, in, n, out, size));
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

brim_status brim_hdf5_decode(const brim_hdf5_array *a, uint64_t chunk, brim_hdf5_decoder *decoder,
                             uint8_t *out) {
  decode_job job = {.a = a, .chunk = chunk, .decoder = decoder, .out = out};
  return brim_map_guard(a->map, decode, &job);
}
