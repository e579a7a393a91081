// NumPy files. The header of a .npy file is checked against the file's size; a .npz file is a zip
// archive of .npy files.
//
//   0  93 "NUMPY" | 6 version 1 to 3, 0 | 8 length u16 (version 1) or u32 | a Python dict in text:
//   {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } | elements
//
// The source `numpy`: an array of inputs and an array of targets, in two .npy files of a folder or in
// one .npz file. Their names tell inputs from targets, and the split, as in HDF5 files. Inputs stay in
// their file and are read sample by sample; inputs of a compressed archive, and all targets, lie in
// planned memory. Labels are checked on opening; text labels are names of classes. Arguments: path=P
// (instead of data.path), split, limit=N, inputs=NAME, targets=NAME or none (names of arrays), classes=N
// (0 = regression), layout=NCHW, NHWC, NCL or NLC.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>

#include "data/data_int.h"
#include "data/hdf5/data_hdf5.h"

//---------------------------------- arrays ----------------------------------

static uint64_t read_le(const uint8_t *p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}

//---------------------------------- headers ----------------------------------

typedef struct reader {
  const char *at, *end, *begin;
  const char *name;  // of the array
  size_t from;       // offset of `begin`
} reader;

static brim_status fail_header(const reader *r) {
  return brim_fail(BRIM_EPARSE, "%s: offset %zu: the header of the NumPy array is damaged", r->name,
                   r->from + (size_t)(r->at - r->begin));
}

static void skip_spaces(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool skip_char(reader *r, char c) {
  skip_spaces(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool skip_word(reader *r, const char *text) {
  size_t n = strlen(text);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
  r->at += n;
  return true;
}

static brim_status read_quoted(reader *r, char out[32]) {
  char quote = r->at < r->end && *r->at == '"' ? '"' : '\'';
  if (!skip_char(r, quote)) return fail_header(r);
  size_t n = 0;
  while (r->at < r->end && *r->at != quote && n < 31) out[n++] = *r->at++;
  out[n] = '\0';
  return skip_char(r, quote) ? BRIM_OK : fail_header(r);
}

static brim_status fail_type(const reader *r, const char *descr) {
  brim_str text;  // the bytes come from the file: show only printable ones
  brim_str_init(&text);
  for (const char *c = descr; *c; c++)
    brim_str_printf(&text, "%c", *c > ' ' && *c < 127 ? *c : '?');
  brim_status status = brim_fail(
      BRIM_EUNSUPPORTED,
      "%s: numbers of type '%s' cannot be read; save them as float32, or labels as int64, in the "
      "usual byte order: numpy.save('x.npy', a.astype('float32'))",
      r->name, text.data ? text.data : "");
  brim_str_deinit(&text);
  return status;
}

enum { TEXT_MOST = 1 << 20 };  // most characters of an element; labels are shorter

static brim_status read_type(reader *r, brim_npy *out) {
  char descr[32];
  skip_spaces(r);
  if (r->at < r->end && *r->at == '[') {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: a structured array, but brim reads plain numbers; save each field as an "
                     "array: numpy.save('x.npy', a['FIELD'])",
                     r->name);
  }
  BRIM_TRY(read_quoted(r, descr));
  const char *p = descr;
  char order = strchr("<>|=", *p) && *p ? *p++ : '|';
  char kind = *p ? *p++ : 0;
  if (kind == 'O') {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%s: an array of Python objects, but brim reads plain numbers; save rows of one "
        "length: numpy.save('x.npy', numpy.stack(list(a)).astype('float32'))",
        r->name);
  }
  if (kind == 'U' || kind == 'S') {
    size_t length = 0;
    for (; *p >= '0' && *p <= '9' && length < TEXT_MOST; p++)
      length = 10 * length + (size_t)(*p - '0');
    if (*p || !length) return fail_type(r, descr);
    out->kind = kind;
    out->big = order == '>';
    out->element_bytes = kind == 'U' ? 4 * length : length;
    return BRIM_OK;
  }
  size_t bytes = p[0] >= '1' && p[0] <= '8' && !p[1] ? (size_t)(p[0] - '0') : 0;
  bool known =
      ((kind == 'u' || kind == 'i') && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) ||
      (kind == 'f' && (bytes == 4 || bytes == 8)) || (kind == 'b' && bytes == 1);
  if (!known || (order == '>' && bytes > 1)) return fail_type(r, descr);
  out->kind = kind;
  out->element_bytes = bytes;
  return BRIM_OK;
}

static brim_status read_shape(reader *r, brim_npy *out) {
  if (!skip_char(r, '(')) return fail_header(r);
  while (!skip_char(r, ')')) {
    uint64_t dim = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
      if (__builtin_mul_overflow(dim, (uint64_t)10, &dim) ||
          __builtin_add_overflow(dim, (uint64_t)(*r->at - '0'), &dim)) {
        return fail_header(r);
      }
    }
    if (r->at == begin) return fail_header(r);
    if (out->rank == BRIM_NPY_MAX_RANK) {
      return brim_fail(BRIM_EUNSUPPORTED, "%s: an array of more than %d axes", r->name,
                       BRIM_NPY_MAX_RANK);
    }
    out->dim[out->rank++] = dim;
    (void)skip_word(r, "L");  // Python 2 writes "28L"
    if (!skip_char(r, ',') && (r->at == r->end || *r->at != ')')) return fail_header(r);
  }
  return BRIM_OK;
}

static brim_status read_dict(reader *r, brim_npy *out, bool *fortran) {
  bool descr = false, order = false, shape = false;
  if (!skip_char(r, '{')) return fail_header(r);
  while (!skip_char(r, '}')) {
    char key[32];
    skip_spaces(r);
    BRIM_TRY(read_quoted(r, key));
    if (!skip_char(r, ':')) return fail_header(r);
    skip_spaces(r);
    if (strcmp(key, "descr") == 0 && !descr) {
      descr = true;
      BRIM_TRY(read_type(r, out));
    } else if (strcmp(key, "fortran_order") == 0 && !order) {
      order = true;
      *fortran = skip_word(r, "True");
      if (!*fortran && !skip_word(r, "False")) return fail_header(r);
    } else if (strcmp(key, "shape") == 0 && !shape) {
      shape = true;
      BRIM_TRY(read_shape(r, out));
    } else {
      return fail_header(r);
    }
    (void)skip_char(r, ',');
  }
  return descr && order && shape ? BRIM_OK : fail_header(r);
}

bool brim_npy_is(const void *data, size_t size) {
  return size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0;
}

brim_status brim_npy_parse(const void *data, size_t have, uint64_t size, const char *name,
                           brim_npy *out) {
  const uint8_t *p = data;
  if (!brim_npy_is(data, have)) {
    return brim_fail(BRIM_EPARSE, "%s: offset 0: not a NumPy array", name);
  }
  bool wide = have > 6 && p[6] > 1;
  size_t from = wide ? 12 : 10;
  if (have < from || p[6] < 1 || p[6] > 3) {
    return brim_fail(BRIM_EPARSE, "%s: offset 6: the header of the NumPy array is damaged", name);
  }
  uint64_t text = read_le(p + 8, wide ? 4 : 2);
  if (from + text > size) {
    return brim_fail(BRIM_EPARSE, "%s: offset %llu: the file ends inside its header of %llu bytes",
                     name, (unsigned long long)size, (unsigned long long)(from + text));
  }
  if (from + text > have) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: a header of %llu bytes; save plain numbers: numpy.save('x.npy', "
                     "a.astype('float32'))",
                     name, (unsigned long long)(from + text));
  }
  brim_npy npy = {.header_bytes = from + (size_t)text};
  const char *begin = (const char *)p + from;
  reader r = {.at = begin, .begin = begin, .end = begin + text, .name = name, .from = from};
  bool fortran = false;
  BRIM_TRY(read_dict(&r, &npy, &fortran));
  if (npy.rank == 0) {
    return brim_fail(BRIM_EPARSE, "%s: a single number; the first axis has to be the samples",
                     name);
  }
  uint64_t bytes = npy.element_bytes;
  int axes = 0;
  for (int i = 0; i < npy.rank; i++) {
    if (npy.dim[i] == 0) return brim_fail(BRIM_EPARSE, "%s: an array without elements", name);
    if (__builtin_mul_overflow(bytes, npy.dim[i], &bytes) || bytes > PTRDIFF_MAX / 2) {
      return brim_fail(BRIM_EPARSE, "%s: the sizes multiply to more than memory can hold", name);
    }
    axes += npy.dim[i] > 1;
  }
  if (fortran && axes > 1) {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%s: an array in Fortran order (columns first), but brim reads sample by sample; "
        "save it in C order: numpy.save('x.npy', numpy.ascontiguousarray(a))",
        name);
  }
  if (size - npy.header_bytes != bytes) {
    return brim_fail(
        BRIM_EPARSE,
        "%s: offset %llu: the header says %llu bytes, the file has %llu; copy it again", name,
        (unsigned long long)size, (unsigned long long)(npy.header_bytes + bytes),
        (unsigned long long)size);
  }
  npy.body_bytes = bytes;
  *out = npy;
  return BRIM_OK;
}

//---------------------------------- archives ----------------------------------

enum {
  ZIP_END = 22,
  ZIP_ENTRY = 46,
  ZIP_LOCAL = 30,
  ZIP_COMMENT = 65535,
  ZIP_LIST_MAX = 4 << 20,  // bytes of the list of members
  ZIP_STORED = 0,
  ZIP_DEFLATED = 8,
  ZIP_PIECE = 1 << 16,
};

bool brim_npz_is(const void *data, size_t size) {
  return size >= 4 && memcmp(data, "PK\3\4", 4) == 0;
}

static brim_status fail_zip(const char *path, uint64_t at) {
  return brim_fail(BRIM_EPARSE,
                   "%s: offset %llu: the zip archive is damaged or cut off; copy it again", path,
                   (unsigned long long)at);
}

// Finds the central directory of the zip archive: its offset and bytes.
static brim_status find_list(const brim_data_file *file, uint64_t *at, uint64_t *bytes) {
  size_t room = ZIP_END + ZIP_COMMENT, n = file->size < room ? file->size : room;
  if (n < ZIP_END) return fail_zip(file->path, file->size);
  uint8_t *tail = brim_alloc(n);
  if (!tail) return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  brim_status status = brim_data_file_read(file, file->size - n, tail, n);
  size_t i = n - ZIP_END + 1;
  bool found = false;
  while (!status && !found && i > 0) {
    i--;
    found = memcmp(tail + i, "PK\5\6", 4) == 0 && read_le(tail + i + 20, 2) == n - i - ZIP_END;
  }
  if (!status && !found) status = fail_zip(file->path, file->size);
  if (!status) {
    *bytes = read_le(tail + i + 12, 4);
    *at = read_le(tail + i + 16, 4);
    // Values of 4 GiB and more are in the zip64 record; a locator before this record points to it.
    if (*at == UINT32_MAX || *bytes == UINT32_MAX) {
      uint8_t end[56];
      uint64_t where = i >= 20 && memcmp(tail + i - 20, "PK\6\7", 4) == 0
                           ? read_le(tail + i - 12, 8)
                           : UINT64_MAX;
      if (file->size < sizeof end || where > file->size - sizeof end) {
        status = fail_zip(file->path, file->size - n + i);
      } else {
        status = brim_data_file_read(file, where, end, sizeof end);
      }
      if (!status && memcmp(end, "PK\6\6", 4) != 0) status = fail_zip(file->path, where);
      if (!status) {
        *bytes = read_le(end + 40, 8);
        *at = read_le(end + 48, 8);
      }
    }
  }
  brim_free(tail);
  if (!status && (*bytes > ZIP_LIST_MAX || *at > file->size || *bytes > file->size - *at)) {
    status = fail_zip(file->path, file->size);
  }
  return status;
}

// Reads values of 4 GiB and more from the extra field, which holds only the members of `m` that need it,
// in this order.
static bool read_zip64_sizes(const uint8_t *extra, size_t n, brim_npz_member *m) {
  uint64_t *fields[] = {&m->unpacked, &m->packed, &m->at};
  bool needed = m->unpacked == UINT32_MAX || m->packed == UINT32_MAX || m->at == UINT32_MAX;
  while (needed && n >= 4) {
    size_t bytes = (size_t)read_le(extra + 2, 2);
    if (bytes > n - 4) return false;
    if (read_le(extra, 2) == 1) {
      const uint8_t *p = extra + 4, *end = p + bytes;
      for (size_t i = 0; i < 3; i++) {
        if (*fields[i] != UINT32_MAX) continue;
        if (end - p < 8) return false;
        *fields[i] = read_le(p, 8);
        p += 8;
      }
      return true;
    }
    extra += 4 + bytes;
    n -= 4 + bytes;
  }
  return !needed;
}

// Reads one entry of the directory; *used: its bytes. out->name stays NULL unless the name ends in .npy.
static brim_status read_entry(const char *path, const uint8_t *p, size_t left, uint64_t at,
                              brim_npz_member *out, size_t *used) {
  *out = (brim_npz_member){0};
  if (left < ZIP_ENTRY || memcmp(p, "PK\1\2", 4) != 0) return fail_zip(path, at);
  size_t name = (size_t)read_le(p + 28, 2), extra = (size_t)read_le(p + 30, 2);
  *used = ZIP_ENTRY + name + extra + (size_t)read_le(p + 32, 2);
  if (*used > left) return fail_zip(path, at);
  const char *text = (const char *)p + ZIP_ENTRY;
  if (name <= 4 || memcmp(text + name - 4, ".npy", 4) != 0) return BRIM_OK;
  brim_npz_member m = {.method = (int)read_le(p + 10, 2),
                       .crc = (uint32_t)read_le(p + 16, 4),
                       .packed = read_le(p + 20, 4),
                       .unpacked = read_le(p + 24, 4),
                       .at = read_le(p + 42, 4)};
  if (!read_zip64_sizes(p + ZIP_ENTRY + name, extra, &m)) return fail_zip(path, at);
  if (!brim_utf8_valid(text, name) || memchr(text, 0, name)) return fail_zip(path, at);
  if ((read_le(p + 8, 2) & 1) || (m.method != ZIP_STORED && m.method != ZIP_DEFLATED)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: %.*s is encrypted or compressed in a way that NumPy does not write; save "
                     "it with numpy.savez",
                     path, (int)name, text);
  }
  m.name = brim_alloc(name - 3);
  if (!m.name) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  memcpy(m.name, text, name - 4);
  m.name[name - 4] = '\0';
  *out = m;
  return BRIM_OK;
}

void brim_npz_free(brim_npz_member *members, size_t count) {
  for (size_t i = 0; i < count; i++) brim_free(members[i].name);
  brim_free(members);
}

brim_status brim_npz_list(const char *path, brim_npz_member **out, size_t *count) {
  brim_data_file file;
  uint64_t at = 0, bytes = 0;
  uint8_t *list = NULL;
  brim_npz_member *members = NULL;
  *out = NULL;
  *count = 0;
  BRIM_TRY(brim_data_file_open(path, &file));
  brim_status status = find_list(&file, &at, &bytes);
  if (!status) {
    list = brim_alloc(bytes + 1);
    members = brim_calloc((size_t)bytes / ZIP_ENTRY + 1, sizeof *members);
    if (!list || !members) status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
  }
  if (!status) status = brim_data_file_read(&file, at, list, bytes);
  for (size_t i = 0, used = 0; !status && i < bytes; i += used) {
    status = read_entry(path, list + i, bytes - i, at + i, &members[*count], &used);
    if (!status && members[*count].name) ++*count;
  }
  brim_data_file_close(&file);
  brim_free(list);
  if (status) {
    brim_npz_free(members, *count);
    *count = 0;
    return status;
  }
  *out = members;
  return BRIM_OK;
}

//---------------------------------- arrays ----------------------------------

static void *z_alloc(void *ctx, unsigned items, unsigned size) {
  (void)ctx;
  return brim_calloc(items, size);
}

static void z_free(void *ctx, void *ptr) {
  (void)ctx;
  brim_free(ptr);
}

// Unpacks a whole member into memory.
static brim_status inflate_all(const brim_data_file *file, uint64_t at, uint64_t packed,
                               uint8_t *out, uint64_t unpacked) {
  uint8_t piece[ZIP_PIECE];
  z_stream z = {.zalloc = z_alloc, .zfree = z_free};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  }
  uint64_t in = 0, got = 0;
  int rc = Z_OK;
  brim_status status = BRIM_OK;
  while (!status && rc == Z_OK) {
    if (z.avail_in == 0) {
      size_t n = packed - in < sizeof piece ? (size_t)(packed - in) : sizeof piece;
      status = n ? brim_data_file_read(file, at + in, piece, n) : fail_zip(file->path, at + in);
      if (status) break;
      in += n;
      z.next_in = piece;
      z.avail_in = (unsigned)n;
    }
    unsigned room = unpacked - got < (1u << 30) ? (unsigned)(unpacked - got) : 1u << 30;
    uint8_t more;  // once `out` is full, a further byte means that the member is too long
    z.next_out = room ? out + got : &more;
    z.avail_out = room ? room : 1;
    rc = inflate(&z, Z_NO_FLUSH);
    if (room) {
      got += room - z.avail_out;
    } else if (z.avail_out == 0) {
      rc = Z_DATA_ERROR;
    }
  }
  inflateEnd(&z);
  if (status) return status;
  if (rc == Z_MEM_ERROR) return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  return rc == Z_STREAM_END && got == unpacked ? BRIM_OK : fail_zip(file->path, at + in);
}

static brim_status unpack(const brim_data_file *file, const brim_npz_member *m, uint64_t at,
                          brim_npy_array *out) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (m->unpacked > brim_data_gz_limit(m->packed)) return fail_zip(file->path, at);
  if (pages > 0 && page > 0 && m->unpacked > (uint64_t)pages * (uint64_t)page) {
    return brim_fail(BRIM_ELIMIT,
                     "%s: %s unpacks to %llu bytes, more than this machine's memory; save it with "
                     "numpy.save: .npy files are read sample by sample",
                     file->path, m->name, (unsigned long long)m->unpacked);
  }
  if (!m->unpacked) return fail_zip(file->path, at);
  out->memory = brim_alloc_tagged((size_t)m->unpacked, BRIM_MEM_PLANNED);
  if (!out->memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: unpacking needs %llu bytes", file->path,
                     (unsigned long long)m->unpacked);
  }
  out->memory_bytes = m->unpacked;
  BRIM_TRY(inflate_all(file, at, m->packed, out->memory, m->unpacked));
  uLong crc = crc32_z(0, out->memory, (z_size_t)m->unpacked);
  return crc == m->crc ? BRIM_OK : fail_zip(file->path, at);
}

static brim_status open_part(const brim_npz_member *m, brim_npy_array *out) {
  const brim_data_file *file = &out->file;
  uint8_t head[BRIM_NPY_HEAD];
  uint64_t at = 0, size = file->size;
  char name[600];
  snprintf(name, sizeof name, "%s%s%s", file->path, m ? ": " : "", m ? m->name : "");
  if (m) {
    if (m->at > file->size || file->size - m->at < ZIP_LOCAL) return fail_zip(file->path, m->at);
    BRIM_TRY(brim_data_file_read(file, m->at, head, ZIP_LOCAL));
    if (!brim_npz_is(head, ZIP_LOCAL)) return fail_zip(file->path, m->at);
    at = m->at + ZIP_LOCAL + read_le(head + 26, 2) + read_le(head + 28, 2);
    if (at > file->size || m->packed > file->size - at) return fail_zip(file->path, at);
    size = m->unpacked;
    if (m->method == ZIP_DEFLATED) {
      BRIM_TRY(unpack(file, m, at, out));
      size_t n = size < sizeof head ? (size_t)size : sizeof head;
      BRIM_TRY(brim_npy_parse(out->memory, n, size, name, &out->header));
      out->at = out->header.header_bytes;
      return BRIM_OK;
    }
    if (m->packed != m->unpacked) return fail_zip(file->path, at);
  }
  size_t n = size < sizeof head ? (size_t)size : sizeof head;
  BRIM_TRY(brim_data_file_read(file, at, head, n));
  BRIM_TRY(brim_npy_parse(head, n, size, name, &out->header));
  out->at = at + out->header.header_bytes;
  return BRIM_OK;
}

brim_status brim_npy_array_open(const char *path, const brim_npz_member *member,
                                brim_npy_array *out) {
  *out = (brim_npy_array){0};
  BRIM_TRY(brim_data_file_open(path, &out->file));
  brim_status status = open_part(member, out);
  if (status) {
    brim_npy_array_unload(out);
  } else if (out->memory) {
    brim_data_file_close(&out->file);
  }
  return status;
}

brim_status brim_npy_array_keep(brim_npy_array *array) {
  if (array->memory) return BRIM_OK;
  size_t bytes = (size_t)array->header.body_bytes;
  uint8_t *memory = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (!memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: loading needs %zu bytes", array->file.path,
                     bytes);
  }
  brim_status status = brim_data_file_read(&array->file, array->at, memory, bytes);
  if (status) {
    brim_free(memory);
    return status;
  }
  brim_data_file_close(&array->file);
  array->memory = memory;
  array->memory_bytes = bytes;
  array->at = 0;
  return BRIM_OK;
}

brim_status brim_npy_array_read(const brim_npy_array *array, size_t offset, void *out, size_t n) {
  if (!array->memory) return brim_data_file_read(&array->file, array->at + offset, out, n);
  memcpy(out, array->memory + array->at + offset, n);
  return BRIM_OK;
}

void brim_npy_array_unload(brim_npy_array *array) {
  brim_data_file_close(&array->file);
  brim_free(array->memory);
  *array = (brim_npy_array){0};
}

//---------------------------------- the source ----------------------------------

enum { MAX_CLASSES = 1000000, NAME_ROOM = 512, PIECE = 1 << 14, LISTED = 12 };
enum { TEXT_PIECE = 1 << 20 };                      // bytes of text labels read at once
enum { SIGNAL_CHANNELS = 16, SIGNAL_STRETCH = 8 };  // as in data_hdf5.c

// The arrays of a path, by name.
typedef struct entries {
  char *path;  // the folder or the archive
  bool archive;
  bool whole;  // all arrays belong to the requested split
  brim_npz_member *item;
  size_t count;
} entries;

typedef struct numpy_state {
  char *input_path, *target_path;  // target_path NULL: no targets
  char *input_name;                // name of the input array
  brim_npy_array inputs, targets;
  int32_t *labels;            // text labels, planned; NULL = labels are in the targets
  brim_data_classes classes;  // names of text labels
  bool planes;                // inputs are stored channels first
  bool binary;                // rows of targets are 0 and 1
  bool val_is_test;
  uint64_t row;    // values of a sample
  uint64_t plane;  // values of a channel of a sample
  uint64_t width;  // values of a row of targets
  uint64_t samples;
  brim_source_info info;
} numpy_state;

static brim_status fail_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
}

//---------------------------------- elements ----------------------------------

// Reads a whole number; numbers above INT64_MAX become INT64_MAX.
static int64_t whole_of(const brim_npy *h, const uint8_t *p) {
  uint64_t v = 0;
  memcpy(&v, p, h->element_bytes);  // little-endian, as every machine brim runs on
  unsigned shift = 64 - 8 * (unsigned)h->element_bytes;
  if (h->kind == 'i') return (int64_t)(v << shift) >> shift;
  return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static double number_of(const brim_npy *h, const uint8_t *p) {
  if (h->kind != 'f') return (double)whole_of(h, p);
  float f;
  double d;
  if (h->element_bytes == 4) {
    memcpy(&f, p, 4);
    return (double)f;
  }
  memcpy(&d, p, 8);
  return d;
}

static const uint8_t *target_at(const numpy_state *s, uint64_t i) {
  return s->targets.memory + s->targets.at + i * s->targets.header.element_bytes;
}

static int64_t label_of(const void *state, uint64_t i) {
  const numpy_state *s = state;
  const brim_npy *h = &s->targets.header;
  if (s->labels) return s->labels[i];
  return h->kind == 'f' ? (int64_t)number_of(h, target_at(s, i)) : whole_of(h, target_at(s, i));
}

//---------------------------------- finding the arrays ----------------------------------

static void free_entries(entries *e) {
  brim_npz_free(e->item, e->count);
  brim_free(e->path);
  *e = (entries){0};
}

static int split_number(const char *split) {
  for (int i = 0; i < BRIM_HDF5_SPLIT_COUNT; i++) {
    if (strcmp(brim_hdf5_split_names[i][0], split) == 0) return i;
  }
  return BRIM_HDF5_NO_SPLIT;
}

static brim_status open_archive(const char *path, entries *out) {
  out->archive = true;
  out->path = brim_strdup(path);
  return out->path ? brim_npz_list(path, &out->item, &out->count) : fail_memory(path);
}

// Finds the archive of a split in a folder: train.npz, say (*whole), or the folder's only archive if its
// name names no split. *out NULL: none.
static brim_status find_archive(const char *folder, char *const *names, size_t count, int split,
                                char **out, bool *whole) {
  size_t archives = 0, only = 0;
  *out = NULL;
  for (size_t i = 0; i < count; i++) {
    char plain[NAME_ROOM], stem[NAME_ROOM];
    if (!brim_str_ends(names[i], ".npz")) continue;
    only = i;
    archives++;
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(names[i]) - 4), names[i]);
    if (*out || brim_hdf5_split_of(stem, plain, sizeof plain) != split) continue;
    *out = brim_fs_join(folder, names[i]);
    if (!*out) return fail_memory(folder);
    *whole = true;
  }
  if (*out || archives != 1) return BRIM_OK;
  char plain[NAME_ROOM], stem[NAME_ROOM];
  snprintf(stem, sizeof stem, "%.*s", (int)(strlen(names[only]) - 4), names[only]);
  if (brim_hdf5_split_of(stem, plain, sizeof plain) != BRIM_HDF5_NO_SPLIT) return BRIM_OK;
  *out = brim_fs_join(folder, names[only]);
  return *out ? BRIM_OK : fail_memory(folder);
}

static brim_status open_folder(const char *folder, int split, entries *out) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  out->path = brim_strdup(folder);
  out->item = brim_calloc(count + 1, sizeof *out->item);
  if (!out->path || !out->item) status = fail_memory(folder);
  for (size_t i = 0; i < count && !status; i++) {
    size_t n = strlen(names[i]);
    if (n <= 4 || names[i][0] == '.' || strcmp(names[i] + n - 4, ".npy") != 0) continue;
    char *name = brim_strdup(names[i]);
    if (!name) {
      status = fail_memory(folder);
    } else {
      name[n - 4] = '\0';
      out->item[out->count++].name = name;
    }
  }
  char *archive = NULL;
  bool whole = false;
  if (!status && !out->count) status = find_archive(folder, names, count, split, &archive, &whole);
  brim_fs_list_free(names, count);
  if (!status && archive) {
    free_entries(out);
    out->whole = whole;
    status = open_archive(archive, out);
  }
  brim_free(archive);
  return status;
}

static bool is_usual_name(const char *plain, bool targets) {
  const char *const *names = targets ? brim_hdf5_target_names : brim_hdf5_input_names;
  if (strcmp(plain, targets ? "arr_1" : "arr_0") == 0) return true;  // numpy.savez(file, x, y)
  for (size_t i = 0; names[i]; i++) {
    if (strcasecmp(names[i], plain) == 0) return true;
  }
  return false;
}

// Finds the array of a split by the name `named` (NULL: by the usual names). Arrays whose name holds no
// split are training data, or belong to the split of the whole file. SIZE_MAX: none.
static size_t find_array(const entries *e, int split, const char *named, bool targets) {
  char wanted[NAME_ROOM] = "", plain[NAME_ROOM];
  if (named) (void)brim_hdf5_split_of(named, wanted, sizeof wanted);
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 1 && split != BRIM_HDF5_TRAIN && !e->whole) break;
    for (size_t i = 0; i < e->count; i++) {
      int here = brim_hdf5_split_of(e->item[i].name, plain, sizeof plain);
      if (here != (pass ? BRIM_HDF5_NO_SPLIT : split)) continue;
      if (named ? strcmp(plain, wanted) == 0 : is_usual_name(plain, targets)) return i;
    }
  }
  return SIZE_MAX;
}

static brim_status fail_find(const entries *e, brim_status status, const char *split, bool targets,
                             const char *named) {
  brim_str list;
  brim_str_init(&list);
  for (size_t i = 0; i < e->count && i < LISTED; i++) {
    brim_str_printf(&list, "%s%s", i ? ", " : "", e->item[i].name);
  }
  if (e->count > LISTED) brim_str_printf(&list, brim_tr(" and %zu more"), e->count - LISTED);
  if (brim_str_status(&list)) {
    status = fail_memory(e->path);
  } else if (named) {
    brim_fail(status, "%s: no array '%s' for %s; it has %s", e->path, named, split, list.data);
  } else if (targets) {
    brim_fail(
        status,
        "%s: the labels (y, labels, targets, ...) for %s are missing; it has %s; name them with "
        "targets=NAME, or set targets=none",
        e->path, split, list.data);
  } else {
    brim_fail(status,
              "%s: no inputs (x, data, images, ...) for %s; it has %s; name them with inputs=NAME",
              e->path, split, e->count ? list.data : brim_tr("no array"));
  }
  brim_str_deinit(&list);
  return status;
}

static brim_status open_entry(const entries *e, size_t i, brim_npy_array *array, char **path) {
  if (e->archive) {
    *path = brim_strdup(e->path);
  } else {
    brim_str name;
    brim_str_init(&name);
    brim_str_printf(&name, "%s.npy", e->item[i].name);
    *path = brim_str_status(&name) ? NULL : brim_fs_join(e->path, name.data);
    brim_str_deinit(&name);
  }
  if (!*path) return fail_memory(e->path);
  return brim_npy_array_open(*path, e->archive ? &e->item[i] : NULL, array);
}

// Lists the arrays of a folder, an archive, or the folder of a .npy file, whose name goes to `only`: it
// names the inputs.
static brim_status open_entries(const char *path, int split, entries *out, char only[NAME_ROOM]) {
  only[0] = '\0';
  if (brim_fs_is_dir(path)) return open_folder(path, split, out);
  brim_data_file file;
  uint8_t magic[8] = {0};
  BRIM_TRY(brim_data_file_open(path, &file));
  brim_status status = brim_data_file_read(&file, 0, magic, file.size < 8 ? file.size : 8);
  brim_data_file_close(&file);
  if (status) return status;
  if (brim_npz_is(magic, sizeof magic)) return open_archive(path, out);
  const char *name = brim_fs_basename(path);
  if (!brim_npy_is(magic, sizeof magic) || !brim_str_ends(name, ".npy")) {
    return brim_fail(BRIM_EPARSE, "%s: offset 0: neither a .npy nor a .npz file of NumPy", path);
  }
  snprintf(only, NAME_ROOM, "%.*s", (int)(strlen(name) - 4), name);
  char *folder = brim_fs_dirname(path);
  if (!folder) return fail_memory(path);
  status = open_folder(folder, split, out);
  brim_free(folder);
  return status;
}

static brim_status find_arrays(const brim_source_how *how, const char *inputs, const char *targets,
                               entries *e, numpy_state *s) {
  char only[NAME_ROOM];
  int split = split_number(how->split);
  BRIM_TRY(open_entries(how->path, split, e, only));
  if (only[0] && !inputs) inputs = only;
  size_t x = find_array(e, split, inputs, false);
  bool none = targets && strcmp(targets, "none") == 0;
  size_t y = none ? SIZE_MAX : find_array(e, split, targets, true);
  if (x == SIZE_MAX && y == SIZE_MAX && split == BRIM_HDF5_VAL) {
    free_entries(e);
    split = BRIM_HDF5_TEST;
    s->val_is_test = true;
    BRIM_TRY(open_entries(how->path, split, e, only));
    x = find_array(e, split, inputs, false);
    y = none ? SIZE_MAX : find_array(e, split, targets, true);
  }
  if (x == SIZE_MAX) {
    bool half = y != SIZE_MAX;  // targets without inputs; else the split does not exist
    return fail_find(e, half ? BRIM_EPARSE : BRIM_ENOENT, how->split, false, inputs);
  }
  if (y == SIZE_MAX && !none) return fail_find(e, BRIM_EPARSE, how->split, true, targets);
  s->input_name = brim_strdup(e->item[x].name);
  if (!s->input_name) return fail_memory(how->path);
  BRIM_TRY(open_entry(e, x, &s->inputs, &s->input_path));
  return none ? BRIM_OK : open_entry(e, y, &s->targets, &s->target_path);
}

//---------------------------------- contents of the arrays ----------------------------------

// True if channels are stored before height and width, or before the steps of a signal. Without
// `layout` the sizes decide, by the same rule as for HDF5.
static bool is_planes(const brim_npy *h, const char *layout) {
  if (h->rank != 3 && h->rank != 4) return false;
  if (layout && strcmp(layout, h->rank == 4 ? "NCHW" : "NCL") == 0) return true;
  if (layout && strcmp(layout, h->rank == 4 ? "NHWC" : "NLC") == 0) return false;
  uint64_t c = h->dim[1];
  if (h->rank == 3) {
    return h->kind == 'f' && c <= SIGNAL_CHANNELS && h->dim[2] >= SIGNAL_STRETCH * c;
  }
  if ((c == 1 || c == 3) && h->dim[2] == h->dim[3] && h->dim[2] > c) return true;
  return (c == 1 || c == 3 || c == 4) && h->dim[2] > 4 && h->dim[3] > 4;
}

static bool is_text(const brim_npy *h) { return h->kind == 'U' || h->kind == 'S'; }

static brim_status describe_inputs(numpy_state *s, const char *layout, const char *split) {
  const brim_npy *h = &s->inputs.header;
  brim_source_info *info = &s->info;
  if (is_text(h)) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: %s is an array of text, but inputs are numbers; name the inputs with "
                     "inputs=NAME",
                     s->input_path, s->input_name);
  }
  s->samples = info->count = h->dim[0];
  s->row = h->body_bytes / h->element_bytes / h->dim[0];
  info->type = h->kind == 'u' && h->element_bytes == 1 ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  if (s->row > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: rows of %" PRIu64 " values are too large", s->input_path,
                     s->row);
  }
  info->rank = 1;
  info->dim[0] = (int64_t)s->row;
  if (h->rank == 1 || h->rank - 1 > BRIM_SOURCE_MAX_RANK) return BRIM_OK;
  s->planes = is_planes(h, layout);
  info->rank = h->rank - 1;
  for (int d = 0; d < info->rank; d++) {
    info->dim[d] = (int64_t)h->dim[!s->planes ? d + 1 : d + 1 < info->rank ? d + 2 : 1];
  }
  s->plane = s->row / h->dim[1];
  if (!s->planes || h->dim[1] == 1 || strcmp(split, "train") != 0) return BRIM_OK;
  if (h->rank == 3) {
    brim_log_warn("data",
                  "%s: brim reads the array as signals of %" PRIu64 " steps and %" PRIu64
                  " channels, stored channels first; to read it as stored set dataset: "
                  "numpy(layout=NLC)",
                  s->input_path, h->dim[2], h->dim[1]);
  } else {
    brim_log_info("data", "%s: %s is stored channels first; brim converts it to channels last",
                  s->input_path, s->input_name);
  }
  return BRIM_OK;
}

// Checks that all targets are class numbers: whole, from 0 to below `bound`.
static brim_status check_labels(const numpy_state *s, int64_t bound) {
  const brim_npy *h = &s->targets.header;
  for (uint64_t i = 0; i < s->samples; i++) {
    double v = number_of(h, target_at(s, i));
    if (v >= 0 && v < (double)bound && v == floor(v)) continue;
    return brim_fail(BRIM_EPARSE,
                     "%s: label %g of sample %" PRIu64 " is not a whole number in [0, %" PRId64
                     "); set the number of classes with numpy(classes=N), or classes=0 for "
                     "regression",
                     s->target_path, v, i, bound);
  }
  return BRIM_OK;
}

//---------------------------------- text labels ----------------------------------

// Turns an element of code points (kind U), padded with zeros, into UTF-8. SIZE_MAX: no Unicode.
static size_t text_of(const brim_npy *h, const uint8_t *p, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < h->element_bytes && n <= BRIM_DATA_CLASS_BYTES; i += 4) {
    const uint8_t *b = p + i;
    uint32_t c = h->big ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]
                        : (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
    if (!c) break;
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return SIZE_MAX;
    if (c < 0x80) {
      out[n++] = (char)c;
      continue;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[4] = {0, 0xc0, 0xe0, 0xf0};
    out[n++] = (char)(lead[more] | c >> 6 * more);
    while (more-- > 0) out[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
  }
  return n;
}

// Reads text labels: adds their names to `classes`, and writes their numbers to `out` unless it is NULL.
static brim_status read_text(const brim_npy_array *a, const char *path, brim_data_classes *classes,
                             int32_t *out) {
  const brim_npy *h = &a->header;
  size_t most = TEXT_PIECE / h->element_bytes;
  if (!most) return brim_data_classes_fail_long(path);
  uint8_t *piece = brim_alloc(TEXT_PIECE);
  if (!piece) return fail_memory(path);
  brim_status status = BRIM_OK;
  for (uint64_t at = 0, n; at < h->dim[0] && !status; at += n) {
    n = h->dim[0] - at < most ? h->dim[0] - at : most;
    status =
        brim_npy_array_read(a, (size_t)at * h->element_bytes, piece, (size_t)n * h->element_bytes);
    for (uint64_t i = 0; i < n && !status; i++) {
      char text[BRIM_DATA_CLASS_BYTES + 8];
      const uint8_t *p = piece + i * h->element_bytes;
      bool bytes = h->kind == 'S';
      size_t size = bytes ? h->element_bytes : text_of(h, p, text);
      int32_t label = 0;
      if (size == SIZE_MAX) {
        status = brim_fail(BRIM_EPARSE, "%s[%" PRIu64 "] is no Unicode text; the file is damaged",
                           path, at + i);
      } else {
        status = brim_data_classes_label(classes, path, at + i, bytes ? (const char *)p : text,
                                         size, &label);
      }
      if (out) out[at + i] = label;
    }
  }
  brim_free(piece);
  return status;
}

// Reads the class names of the training split: they number the classes of every split. Does nothing if
// the training split has no text labels.
static brim_status read_training_names(numpy_state *s, const brim_source_how *how,
                                       const char *targets, int64_t classes) {
  if (strcmp(how->split, "train") == 0) return BRIM_OK;
  char only[NAME_ROOM], *path = NULL;
  entries e = {0};
  brim_npy_array a = {0};
  brim_status status = open_entries(how->path, BRIM_HDF5_TRAIN, &e, only);
  size_t y = status ? SIZE_MAX : find_array(&e, BRIM_HDF5_TRAIN, targets, true);
  if (y != SIZE_MAX) status = open_entry(&e, y, &a, &path);
  if (!status && y != SIZE_MAX && is_text(&a.header) &&
      a.header.dim[0] * a.header.element_bytes == a.header.body_bytes) {
    brim_data_classes_init(&s->classes, a.header.dim[0], classes);
    status = read_text(&a, path, &s->classes, NULL);
    if (!status) status = brim_data_classes_fix(&s->classes, path, classes, NULL);
  }
  brim_npy_array_unload(&a);
  brim_free(path);
  free_entries(&e);
  return status;
}

static brim_status describe_text(numpy_state *s, const brim_source_how *how, const char *targets,
                                 int64_t classes) {
  const char *path = s->target_path;
  if (classes == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s holds text, which cannot be regression targets; leave out classes=0",
                     path);
  }
  if (s->width > 1) {
    return brim_fail(BRIM_EINVAL, "%s: text labels are one per sample, but the rows have %" PRIu64,
                     path, s->width);
  }
  s->labels = brim_alloc_tagged((size_t)s->samples * sizeof *s->labels, BRIM_MEM_PLANNED);
  if (!s->labels) return fail_memory(path);
  BRIM_TRY(read_training_names(s, how, targets, classes));
  bool known = s->classes.fixed;
  if (!known) brim_data_classes_init(&s->classes, s->samples, classes);
  BRIM_TRY(read_text(&s->targets, path, &s->classes, s->labels));
  if (!known) BRIM_TRY(brim_data_classes_fix(&s->classes, path, classes, s->labels));
  brim_npy_array_unload(&s->targets);
  s->info.classes = (int64_t)s->classes.count;
  return BRIM_OK;
}

//---------------------------------- targets ----------------------------------

// Decides the kind of the targets. One whole number a row is a class, unless the numbers look like values
// to predict; other numbers are values to predict. classes=N and classes=0 override this. Rows of
// several values that are all 0 or 1 are binary targets.
static brim_status describe_targets(numpy_state *s, const brim_source_how *how, const char *targets,
                                    int64_t classes) {
  const brim_npy *h = &s->targets.header;
  const char *path = s->target_path;
  bool train = strcmp(how->split, "train") == 0;
  if (h->dim[0] != s->samples) {
    return brim_fail(BRIM_EPARSE, "%s: %" PRIu64 " labels for the %" PRIu64 " samples of %s", path,
                     h->dim[0], s->samples, s->input_path);
  }
  s->width = h->body_bytes / h->element_bytes / h->dim[0];
  if (s->width > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: rows of %" PRIu64 " values are too large", path, s->width);
  }
  if (is_text(h)) return describe_text(s, how, targets, classes);
  // Keep targets in memory, so that they stay as checked: a label out of range would later be used
  // as an index.
  BRIM_TRY(brim_npy_array_keep(&s->targets));
  s->info.target_dim = (int64_t)s->width;
  if (classes == 0) return BRIM_OK;
  if (s->width > 1) {
    if (classes > 0) {
      return brim_fail(BRIM_EINVAL,
                       "%s: classes= needs one label per sample, but the rows have %" PRIu64
                       " values; for one-hot rows save numpy.argmax(y, 1)",
                       path, s->width);
    }
    s->binary = true;
    for (uint64_t i = 0; i < s->samples * s->width && s->binary; i++) {
      double v = number_of(h, target_at(s, i));
      s->binary = v == 0 || v == 1;
    }
    return BRIM_OK;
  }
  if (h->kind == 'f' && classes < 0) {
    bool whole = true;
    for (uint64_t i = 0; i < s->samples && whole; i++) {
      double v = number_of(h, target_at(s, i));
      whole = v >= 0 && v < MAX_CLASSES && v == floor(v);
    }
    if (whole && train) {
      brim_log_warn("data",
                    "%s: brim treats the whole floats as regression targets; if they are class "
                    "numbers, set dataset: numpy(classes=N)",
                    path);
    }
    return BRIM_OK;
  }
  if (classes > 0) {
    BRIM_TRY(check_labels(s, classes));
    s->info.classes = classes;
    s->info.target_dim = 0;
    return BRIM_OK;
  }
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (uint64_t i = 0; i < s->samples; i++) {
    int64_t v = label_of(s, i);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  const brim_data_whole all = {
      .value = label_of, .ctx = s, .rows = s->samples, .least = least, .most = most};
  bool values;
  BRIM_TRY(brim_data_are_values(path, &all, &values));
  if (values) {
    if (train) {
      brim_log_warn("data",
                    "%s: brim treats the whole numbers %lld to %lld as regression targets; if they "
                    "are class numbers, set dataset: numpy(classes=N)",
                    path, (long long)least, (long long)most);
    }
    return BRIM_OK;
  }
  BRIM_TRY(check_labels(s, MAX_CLASSES));
  s->info.classes = most + 1;
  s->info.target_dim = 0;
  if (!train) return BRIM_OK;
  if (least == 1) {
    brim_log_warn(
        "data",
        "%s: the labels start at 1, so class 0 of the %lld classes never occurs; subtract "
        "1 from every label, or set the number of classes with numpy(classes=N)",
        path, (long long)s->info.classes);
  }
  brim_data_warn_absent(path, label_of, s, s->samples, s->info.classes);
  return BRIM_OK;
}

static brim_status read_inputs(const void *ctx, size_t offset, void *out, size_t n) {
  return brim_npy_array_read(ctx, offset, out, n);
}

//---------------------------------- the table ----------------------------------

static void numpy_close(void *state) {
  numpy_state *s = state;
  if (!s) return;
  brim_npy_array_unload(&s->inputs);
  brim_npy_array_unload(&s->targets);
  brim_data_classes_deinit(&s->classes);
  brim_free(s->labels);
  brim_free(s->input_path);
  brim_free(s->input_name);
  brim_free(s->target_path);
  brim_free(s);
}

// Reads an argument that is a name or a list of one name, the form of data.inputs.
static brim_status name_argument(const json_t *args, const char *name, const char **out) {
  const json_t *v = json_object_get(args, name);
  if (json_is_array(v) && json_array_size(v) == 1) v = json_array_get(v, 0);
  if (!v) return BRIM_OK;
  if (!json_is_string(v)) return brim_fail(BRIM_EINVAL, "numpy: %s must name one array", name);
  *out = json_string_value(v);
  return BRIM_OK;
}

static brim_status open_arrays(const brim_source_how *how, const json_t *args, numpy_state *s) {
  static const char *const splits[] = {"train", "val", "test", NULL};
  static const char *const layouts[] = {"NCHW", "NHWC", "NCL", "NLC", NULL};
  brim_source_how here = *how;
  const char *inputs = NULL, *targets = NULL, *layout = NULL;
  int64_t classes = -1, limit = 0;
  BRIM_TRY(brim_data_args_split("numpy", how->split, splits));
  BRIM_TRY(brim_data_args_string(args, "numpy", "path", &here.path));
  BRIM_TRY(brim_data_args_int(args, "numpy", "limit", 1, INT64_MAX, &limit));
  BRIM_TRY(brim_data_args_int(args, "numpy", "classes", 0, MAX_CLASSES, &classes));
  BRIM_TRY(brim_data_args_string(args, "numpy", "layout", &layout));
  BRIM_TRY(name_argument(args, "inputs", &inputs));
  BRIM_TRY(name_argument(args, "targets", &targets));
  bool known = !layout;
  for (size_t i = 0; layout && layouts[i]; i++) known = known || strcmp(layouts[i], layout) == 0;
  if (!known) {
    return brim_fail(BRIM_EINVAL, "numpy: layout is NCHW, NHWC, NCL or NLC, not '%s'", layout);
  }
  if (!here.path || !here.path[0]) {
    return brim_fail(
        BRIM_EINVAL,
        "numpy needs data.path: a folder with x.npy and y.npy, one of these files or a "
        ".npz file");
  }
  if (!brim_fs_exists(here.path)) {
    return brim_fail(
        BRIM_ENOENT,
        "%s: no such file or folder; numpy needs a folder with x.npy and y.npy, one of "
        "these files or a .npz file",
        here.path);
  }
  entries e = {0};
  brim_status status = find_arrays(&here, inputs, targets, &e, s);
  free_entries(&e);
  if (status) return status;
  BRIM_TRY(describe_inputs(s, layout, how->split));
  if (s->target_path) BRIM_TRY(describe_targets(s, &here, targets, classes));
  const brim_data_measured all = {.read = read_inputs,
                                  .ctx = &s->inputs,
                                  .path = s->input_path,
                                  .bytes = (size_t)s->inputs.header.body_bytes,
                                  .planes = s->planes};
  BRIM_TRY(brim_data_measure(&s->info, &all));
  // Apply the limit last: neither the classes nor the normalization may depend on it.
  if (limit && (uint64_t)limit < s->info.count) s->info.count = (uint64_t)limit;
  return BRIM_OK;
}

static brim_status numpy_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path",    "split",   "limit",  "inputs",
                                      "targets", "classes", "layout", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("numpy", how->args_json, known, &args));
  numpy_state *s = brim_calloc(1, sizeof *s);
  brim_status status = s ? open_arrays(how, args, s) : fail_memory("numpy");
  json_decref(args);
  if (status) {
    numpy_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void numpy_info(void *state, brim_source_info *out) { *out = ((numpy_state *)state)->info; }

static brim_status numpy_read(void *state, uint64_t index, void *input, void *target) {
  const numpy_state *s = state;
  const brim_npy *h = &s->inputs.header;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " samples", s->input_path, s->info.count);
  }
  size_t size = h->element_bytes, from = (size_t)(index * s->row) * size;
  bool bytes = s->info.type == BRIM_SAMPLE_U8;
  if (!s->planes && (bytes || (h->kind == 'f' && size == sizeof(float)))) {
    BRIM_TRY(brim_npy_array_read(&s->inputs, from, input, (size_t)s->row * size));
  } else {
    uint8_t piece[PIECE];
    uint64_t channels = s->planes ? s->row / s->plane : 1;
    for (uint64_t at = 0; at < s->row;) {
      uint64_t n = s->row - at < PIECE / size ? s->row - at : PIECE / size;
      BRIM_TRY(brim_npy_array_read(&s->inputs, from + (size_t)at * size, piece, (size_t)n * size));
      for (uint64_t i = 0; i < n; i++, at++) {
        uint64_t to = s->planes ? at % s->plane * channels + at / s->plane : at;
        if (bytes) {
          ((uint8_t *)input)[to] = piece[i];
        } else {
          ((float *)input)[to] = (float)number_of(h, piece + i * size);
        }
      }
    }
  }
  if (s->info.classes) {
    *(int32_t *)target = (int32_t)label_of(s, index);
    return BRIM_OK;
  }
  for (uint64_t i = 0; i < s->width; i++) {
    ((float *)target)[i] = (float)number_of(&s->targets.header, target_at(s, index * s->width + i));
  }
  return BRIM_OK;
}

static void numpy_describe(void *state, uint64_t index, char *text, size_t size) {
  const numpy_state *s = state;
  const char *file = brim_fs_basename(s->input_path);
  bool member = !brim_str_ends(file, ".npy");
  snprintf(text, size, "%s%s%s[%" PRIu64 "]", file, member ? ":" : "", member ? s->input_name : "",
           index);
}

static uint64_t numpy_host_bytes(void *state) {
  const numpy_state *s = state;
  uint64_t labels = s->labels ? s->samples * sizeof *s->labels : 0;
  return s->inputs.memory_bytes + s->targets.memory_bytes + labels;
}

static size_t numpy_files(void *state, const char *paths[BRIM_SOURCE_FILES]) {
  const numpy_state *s = state;
  paths[0] = s->input_path;
  if (s->target_path) paths[1] = s->target_path;
  return s->target_path ? 2 : 1;
}

static const char *const *numpy_class_names(void *state) {
  return ((numpy_state *)state)->classes.names;
}

static bool numpy_binary_targets(void *state) { return ((numpy_state *)state)->binary; }

static bool numpy_val_is_test(void *state) { return ((numpy_state *)state)->val_is_test; }

const brim_source_table brim_source_numpy = {
    .abi = BRIM_SOURCE_ABI,
    .name = "numpy",
    .open = numpy_open,
    .info = numpy_info,
    .read = numpy_read,
    .close = numpy_close,
    .describe = numpy_describe,
};

const brim_source_builtin brim_builtin_numpy = {
    .table = &brim_source_numpy,
    .host_bytes = numpy_host_bytes,
    .label = label_of,
    .binary_targets = numpy_binary_targets,
    .val_is_test = numpy_val_is_test,
    .files = numpy_files,
    .class_names = numpy_class_names,
};
