// IDX arrays: the header checked against the size, from plain bytes or from gzip, in memory or in a
// file. No meaning is given to an array here: that is data_idx_source.c.
//
//   0  2 bytes 0 | 2 type code | 3 rank | 4 rank big-endian u32 sizes | elements, big-endian
#include <string.h>
#include <unistd.h>

#include "data/data_int.h"

enum { IDX_MAX_RANK = 4, IDX_MAX_HEADER = 4 + 4 * IDX_MAX_RANK };

static size_t type_bytes(int code) {
  switch (code) {
    case 0x08:  // u8
    case 0x09:  // i8
      return 1;
    case 0x0B:  // i16
      return 2;
    case 0x0C:  // i32
    case 0x0D:  // f32
      return 4;
    case 0x0E:  // f64
      return 8;
    default:
      return 0;
  }
}

// The first four bytes: type and rank, and so the length of the header.
static brim_status parse_magic(const uint8_t *p, size_t size, const char *name, brim_idx *out) {
  if (size < 4) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: an IDX file has at least 8 bytes, this has %zu",
                     name, size, size);
  }
  if (p[0] || p[1]) {
    return brim_fail(BRIM_EPARSE, "%s: offset 0: not an IDX file: it does not begin with 00 00",
                     name);
  }
  size_t element = type_bytes(p[2]);
  if (!element) {
    return brim_fail(BRIM_EPARSE, "%s: offset 2: unknown IDX type code 0x%02x", name, p[2]);
  }
  if (p[3] < 1 || p[3] > IDX_MAX_RANK) {
    return brim_fail(BRIM_EPARSE, "%s: offset 3: rank %d, expected 1 to %d", name, p[3],
                     IDX_MAX_RANK);
  }
  *out = (brim_idx){
      .type = p[2], .rank = p[3], .header_bytes = 4 + 4 * (size_t)p[3], .element_bytes = element};
  return BRIM_OK;
}

// The sizes; *body is how many bytes of elements have to follow.
static brim_status parse_dims(const uint8_t *p, size_t size, const char *name, brim_idx *idx,
                              uint64_t *body) {
  if (size < idx->header_bytes) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends inside its header of %zu bytes",
                     name, size, idx->header_bytes);
  }
  uint64_t bytes = idx->element_bytes;
  for (int i = 0; i < idx->rank; i++) {
    const uint8_t *q = p + 4 + 4 * i;
    uint32_t dim = (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
    if (dim == 0) {
      return brim_fail(BRIM_EPARSE, "%s: offset %d: size %d is 0", name, 4 + 4 * i, i);
    }
    if (__builtin_mul_overflow(bytes, (uint64_t)dim, &bytes) || bytes > PTRDIFF_MAX / 2) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %d: the sizes multiply to more than memory can hold", name,
                       4 + 4 * i);
    }
    idx->dim[i] = dim;
  }
  *body = bytes;
  return BRIM_OK;
}

brim_status brim_idx_parse(const void *data, size_t size, const char *name, brim_idx *out) {
  brim_idx idx;
  uint64_t body;
  BRIM_TRY(parse_magic(data, size, name, &idx));
  BRIM_TRY(parse_dims(data, size, name, &idx, &body));
  uint64_t want = idx.header_bytes + body;
  if (size < want) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends early; its header says %llu bytes",
                     name, size, (unsigned long long)want);
  }
  if (size > want) {
    return brim_fail(BRIM_EPARSE, "%s: offset %llu: %llu bytes too many follow the data", name,
                     (unsigned long long)want, (unsigned long long)(size - want));
  }
  *out = idx;
  return BRIM_OK;
}

// How much a gzip file may unpack to: deflate's own bound shows a lying header before anything is
// allocated, the machine's memory an honest but hopeless one.
static brim_status check_unpacked(uint64_t body, size_t packed, const char *name) {
  if (body > brim_data_gz_limit(packed)) {
    return brim_fail(BRIM_EPARSE,
                     "%s: offset 4 (unpacked): the header says %llu bytes, more than %zu bytes of "
                     "gzip can hold",
                     name, (unsigned long long)body, packed);
  }
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0 && body > (uint64_t)pages * (uint64_t)page) {
    return brim_fail(BRIM_ELIMIT,
                     "%s: unpacks to %llu bytes, more than this machine's memory; gunzip it: plain "
                     "files are read sample by sample",
                     name, (unsigned long long)body);
  }
  return BRIM_OK;
}

static brim_status unpack(brim_data_gz *gz, size_t packed, const char *name, brim_idx_array *out) {
  uint8_t header[IDX_MAX_HEADER];
  uint64_t body;
  BRIM_TRY(brim_data_gz_read(gz, header, 4));
  BRIM_TRY(parse_magic(header, 4, name, &out->header));
  BRIM_TRY(brim_data_gz_read(gz, header + 4, out->header.header_bytes - 4));
  BRIM_TRY(parse_dims(header, out->header.header_bytes, name, &out->header, &body));
  BRIM_TRY(check_unpacked(body, packed, name));
  out->memory = brim_alloc_tagged((size_t)body, BRIM_MEM_PLANNED);
  if (!out->memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: unpacking needs %llu bytes", name,
                     (unsigned long long)body);
  }
  out->body = out->memory;
  out->body_bytes = (size_t)body;
  BRIM_TRY(brim_data_gz_read(gz, out->memory, out->body_bytes));
  return brim_data_gz_finish(gz);
}

static brim_status open_gz(const brim_data_file *file, brim_idx_array *out) {
  brim_data_gz *gz;
  BRIM_TRY(brim_data_gz_open(file, &gz));
  brim_status status = unpack(gz, file->size, file->path, out);
  brim_data_gz_close(gz);
  if (status) brim_idx_array_unload(out);
  return status;
}

brim_status brim_idx_array_open(const char *path, brim_idx_array *out) {
  *out = (brim_idx_array){0};
  brim_data_file file;
  BRIM_TRY(brim_data_file_open(path, &file));
  uint8_t header[IDX_MAX_HEADER] = {0};
  size_t n = file.size < sizeof header ? file.size : sizeof header;
  brim_status status = brim_data_file_read(&file, 0, header, n);
  bool gz = !status && brim_data_is_gz(header, n);
  if (gz) {
    status = open_gz(&file, out);
  } else if (!status) {
    // Of the bytes it looks at the header only; the size is the whole file's.
    status = brim_idx_parse(header, file.size, path, &out->header);
  }
  if (gz || status) {
    brim_data_file_close(&file);
    return status;
  }
  out->file = file;
  out->body_bytes = file.size - out->header.header_bytes;
  return BRIM_OK;
}

brim_status brim_idx_array_keep(brim_idx_array *array) {
  if (array->body) return BRIM_OK;
  void *memory = brim_alloc_tagged(array->body_bytes, BRIM_MEM_PLANNED);
  if (!memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: loading needs %zu bytes", array->file.path,
                     array->body_bytes);
  }
  brim_status status =
      brim_data_file_read(&array->file, array->header.header_bytes, memory, array->body_bytes);
  if (status) {
    brim_free(memory);
    return status;
  }
  brim_data_file_close(&array->file);
  array->body = array->memory = memory;
  return BRIM_OK;
}

brim_status brim_idx_array_read(const brim_idx_array *array, size_t offset, void *out, size_t n) {
  if (!array->body) {
    return brim_data_file_read(&array->file, array->header.header_bytes + offset, out, n);
  }
  memcpy(out, array->body + offset, n);
  return BRIM_OK;
}

void brim_idx_array_unload(brim_idx_array *array) {
  brim_data_file_close(&array->file);
  brim_free(array->memory);
  *array = (brim_idx_array){0};
}
