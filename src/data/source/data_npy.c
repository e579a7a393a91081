// NumPy arrays: the header of a .npy file checked against the size, and the members of a .npz file
// (a zip archive). No meaning is given to an array here: that is data_numpy.c.
//
//   0  93 "NUMPY" | 6 version 1 to 3, 0 | 8 length u16 (version 1) or u32 | a Python dict in text:
//   {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } | elements
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/data_int.h"

static uint64_t le(const uint8_t *p, int bytes) {
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

static void spaces(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool skip(reader *r, char c) {
  spaces(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool word(reader *r, const char *text) {
  size_t n = strlen(text);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
  r->at += n;
  return true;
}

static brim_status read_quoted(reader *r, char out[32]) {
  char quote = r->at < r->end && *r->at == '"' ? '"' : '\'';
  if (!skip(r, quote)) return fail_header(r);
  size_t n = 0;
  while (r->at < r->end && *r->at != quote && n < 31) out[n++] = *r->at++;
  out[n] = '\0';
  return skip(r, quote) ? BRIM_OK : fail_header(r);
}

static brim_status fail_type(const reader *r, const char *descr) {
  brim_str text;  // the bytes are not ours: only what can be shown
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

enum { TEXT_MOST = 1 << 20 };  // characters of an element; no label has so many

static brim_status read_type(reader *r, brim_npy *out) {
  char descr[32];
  spaces(r);
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
  if (!skip(r, '(')) return fail_header(r);
  while (!skip(r, ')')) {
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
    (void)word(r, "L");  // Python 2
    if (!skip(r, ',') && (r->at == r->end || *r->at != ')')) return fail_header(r);
  }
  return BRIM_OK;
}

static brim_status read_dict(reader *r, brim_npy *out, bool *fortran) {
  bool descr = false, order = false, shape = false;
  if (!skip(r, '{')) return fail_header(r);
  while (!skip(r, '}')) {
    char key[32];
    spaces(r);
    BRIM_TRY(read_quoted(r, key));
    if (!skip(r, ':')) return fail_header(r);
    spaces(r);
    if (strcmp(key, "descr") == 0 && !descr) {
      descr = true;
      BRIM_TRY(read_type(r, out));
    } else if (strcmp(key, "fortran_order") == 0 && !order) {
      order = true;
      *fortran = word(r, "True");
      if (!*fortran && !word(r, "False")) return fail_header(r);
    } else if (strcmp(key, "shape") == 0 && !shape) {
      shape = true;
      BRIM_TRY(read_shape(r, out));
    } else {
      return fail_header(r);
    }
    (void)skip(r, ',');
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
  uint64_t text = le(p + 8, wide ? 4 : 2);
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

// Where the list of members lies.
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
    found = memcmp(tail + i, "PK\5\6", 4) == 0 && le(tail + i + 20, 2) == n - i - ZIP_END;
  }
  if (!status && !found) status = fail_zip(file->path, file->size);
  if (!status) {
    *bytes = le(tail + i + 12, 4);
    *at = le(tail + i + 16, 4);
    // 4 GiB and more: a second record says where.
    if (*at == UINT32_MAX || *bytes == UINT32_MAX) {
      uint8_t end[56];
      uint64_t where =
          i >= 20 && memcmp(tail + i - 20, "PK\6\7", 4) == 0 ? le(tail + i - 12, 8) : UINT64_MAX;
      if (file->size < sizeof end || where > file->size - sizeof end) {
        status = fail_zip(file->path, file->size - n + i);
      } else {
        status = brim_data_file_read(file, where, end, sizeof end);
      }
      if (!status && memcmp(end, "PK\6\6", 4) != 0) status = fail_zip(file->path, where);
      if (!status) {
        *bytes = le(end + 40, 8);
        *at = le(end + 48, 8);
      }
    }
  }
  brim_free(tail);
  if (!status && (*bytes > ZIP_LIST_MAX || *at > file->size || *bytes > file->size - *at)) {
    status = fail_zip(file->path, file->size);
  }
  return status;
}

// Sizes of 4 GiB and more stand in the extra field, those that are needed one after the other.
static bool widen(const uint8_t *extra, size_t n, brim_npz_member *m) {
  uint64_t *fields[] = {&m->unpacked, &m->packed, &m->at};
  bool needed = m->unpacked == UINT32_MAX || m->packed == UINT32_MAX || m->at == UINT32_MAX;
  while (needed && n >= 4) {
    size_t bytes = (size_t)le(extra + 2, 2);
    if (bytes > n - 4) return false;
    if (le(extra, 2) == 1) {
      const uint8_t *p = extra + 4, *end = p + bytes;
      for (size_t i = 0; i < 3; i++) {
        if (*fields[i] != UINT32_MAX) continue;
        if (end - p < 8) return false;
        *fields[i] = le(p, 8);
        p += 8;
      }
      return true;
    }
    extra += 4 + bytes;
    n -= 4 + bytes;
  }
  return !needed;
}

// One entry of the list; *used: its bytes. Names that end in .npy are arrays.
static brim_status read_entry(const char *path, const uint8_t *p, size_t left, uint64_t at,
                              brim_npz_member *out, size_t *used) {
  *out = (brim_npz_member){0};
  if (left < ZIP_ENTRY || memcmp(p, "PK\1\2", 4) != 0) return fail_zip(path, at);
  size_t name = (size_t)le(p + 28, 2), extra = (size_t)le(p + 30, 2);
  *used = ZIP_ENTRY + name + extra + (size_t)le(p + 32, 2);
  if (*used > left) return fail_zip(path, at);
  const char *text = (const char *)p + ZIP_ENTRY;
  if (name <= 4 || memcmp(text + name - 4, ".npy", 4) != 0) return BRIM_OK;
  brim_npz_member m = {.method = (int)le(p + 10, 2),
                       .crc = (uint32_t)le(p + 16, 4),
                       .packed = le(p + 20, 4),
                       .unpacked = le(p + 24, 4),
                       .at = le(p + 42, 4)};
  if (!widen(p + ZIP_ENTRY + name, extra, &m)) return fail_zip(path, at);
  if (!brim_utf8_valid(text, name) || memchr(text, 0, name)) return fail_zip(path, at);
  if ((le(p + 8, 2) & 1) || (m.method != ZIP_STORED && m.method != ZIP_DEFLATED)) {
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

// All of a member into memory that has room for it.
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
    uint8_t more;  // once it is full, one byte more shows that it is too long
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
    at = m->at + ZIP_LOCAL + le(head + 26, 2) + le(head + 28, 2);
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
