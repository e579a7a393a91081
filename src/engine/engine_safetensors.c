// Safetensors files: u64 little-endian header length, that many bytes of JSON (an object, spaces at
// the end allowed), then the data. Reading checks everything before it hands anything out: names,
// types, shapes, and that the entries cover the data without overlap or hole. Messages name the file
// and the byte or the entry. Writing pads the header with spaces to 8 bytes and keeps the entries'
// order; the file appears whole or not at all, and equal entries and metadata give equal bytes.
#include "engine/engine_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The checksum in the header of a file: SUM_KIND, then SUM_DIGITS hexadecimal digits.
#define SUM_KIND "xxh64:"
enum { SUM_DIGITS = 16 };

//---------------------------------- reading ----------------------------------

enum { HEADER_MAX = 16 << 20, LENGTH_BYTES = 8 };  // 16 MiB: over 50,000 entries

struct brim_safetensors {
  char *name;
  const unsigned char *bytes;  // the whole file
  size_t size, header_size;    // bytes of the file; bytes of the header without its length field
  void *owned;                 // NULL when parsed from the caller's memory
  json_t *header;              // owns the names
  json_t *metadata;            // borrowed from header, or from `empty`
  json_t *empty;
  brim_safetensors_entry *entries;         // in the order of the data
  const brim_safetensors_entry **by_name;  // sorted by name
  size_t count;
};

static const struct {
  const char *name;
  brim_dtype dtype;
} dtypes[] = {{"F32", BRIM_F32}, {"BF16", BRIM_BF16}, {"F16", BRIM_F16}, {"F64", BRIM_F64},
              {"U8", BRIM_U8},   {"I32", BRIM_I32},   {"I64", BRIM_I64}};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

// "F32"; NULL for types the format lacks.
static const char *dtype_name(brim_dtype dtype) {
  for (int i = 0; i < DTYPE_COUNT; i++) {
    if (dtypes[i].dtype == dtype) return dtypes[i].name;
  }
  return NULL;
}

//---------------------------------- entries ----------------------------------

static brim_status read_dtype(const char *file, const char *name, const json_t *value,
                              brim_dtype *out) {
  const char *text = json_string_value(value);
  if (!text) return brim_fail(BRIM_EPARSE, "%s: entry '%s': dtype is not a string", file, name);
  for (int i = 0; i < DTYPE_COUNT; i++) {
    if (strcmp(text, dtypes[i].name) == 0) {
      *out = dtypes[i].dtype;
      return BRIM_OK;
    }
  }
  return brim_fail(BRIM_EPARSE, "%s: entry '%s': dtype '%.32s' is not one brim reads", file, name,
                   text);
}

// Reads the shape and derives the size in bytes.
static brim_status read_shape(const char *file, const char *name, const json_t *value,
                              brim_safetensors_entry *e) {
  if (!json_is_array(value)) {
    return brim_fail(BRIM_EPARSE, "%s: entry '%s': shape is not a list", file, name);
  }
  size_t rank = json_array_size(value);
  if (rank > BRIM_MAX_RANK) {
    return brim_fail(BRIM_EPARSE, "%s: entry '%s': rank %zu, expected at most %d", file, name, rank,
                     BRIM_MAX_RANK);
  }
  e->rank = (int32_t)rank;
  int64_t bytes = (int64_t)brim_dtype_size(e->dtype);
  for (size_t i = 0; i < rank; i++) {
    const json_t *d = json_array_get(value, i);
    if (!json_is_integer(d) || json_integer_value(d) < 0) {
      return brim_fail(BRIM_EPARSE, "%s: entry '%s': dimension %zu is not a size", file, name, i);
    }
    e->dim[i] = json_integer_value(d);
    if (__builtin_mul_overflow(bytes, e->dim[i], &bytes)) {
      return brim_fail(BRIM_EPARSE,
                       "%s: entry '%s': its shape needs more bytes than 64 bits can count", file,
                       name);
    }
  }
  e->bytes = (size_t)bytes;
  return BRIM_OK;
}

// Reads data_offsets [begin, end) within `size` bytes of data; begin is kept in e->data as an
// address.
static brim_status read_offsets(const char *file, const char *name, const json_t *value,
                                const unsigned char *data, size_t size, brim_safetensors_entry *e) {
  const json_t *from = json_array_get(value, 0), *to = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(from) || !json_is_integer(to)) {
    return brim_fail(BRIM_EPARSE, "%s: entry '%s': data_offsets are not two integers", file, name);
  }
  json_int_t begin = json_integer_value(from), end = json_integer_value(to);
  if (begin < 0 || end < begin || (uint64_t)end > size) {
    return brim_fail(
        BRIM_EPARSE,
        "%s: entry '%s': data_offsets %lld to %lld are not within the %zu bytes of data", file,
        name, (long long)begin, (long long)end, size);
  }
  if ((size_t)(end - begin) != e->bytes) {
    return brim_fail(BRIM_EPARSE, "%s: entry '%s': %lld bytes of data, but its shape needs %zu",
                     file, name, (long long)(end - begin), e->bytes);
  }
  e->data = data + begin;
  return BRIM_OK;
}

static brim_status read_entry(const char *file, const char *name, json_t *value,
                              const unsigned char *data, size_t size, brim_safetensors_entry *e) {
  e->name = name;
  if (!json_is_object(value)) {
    return brim_fail(BRIM_EPARSE, "%s: entry '%s' is not an object", file, name);
  }
  static const char *const known[] = {"dtype", "shape", "data_offsets"};
  const char *key;
  json_t *ignored;
  json_object_foreach(value, key, ignored) {
    bool found = false;
    for (int i = 0; i < 3; i++) found = found || strcmp(key, known[i]) == 0;
    if (!found) {
      return brim_fail(BRIM_EPARSE, "%s: entry '%s': unknown key '%.64s'", file, name, key);
    }
  }
  for (int i = 0; i < 3; i++) {
    if (!json_object_get(value, known[i])) {
      return brim_fail(BRIM_EPARSE, "%s: entry '%s': %s is missing", file, name, known[i]);
    }
  }
  BRIM_TRY(read_dtype(file, name, json_object_get(value, "dtype"), &e->dtype));
  BRIM_TRY(read_shape(file, name, json_object_get(value, "shape"), e));
  return read_offsets(file, name, json_object_get(value, "data_offsets"), data, size, e);
}

static brim_status read_metadata(const char *file, json_t *value) {
  if (!json_is_object(value)) {
    return brim_fail(BRIM_EPARSE, "%s: entry '__metadata__' is not an object", file);
  }
  const char *key;
  json_t *text;
  json_object_foreach(value, key, text) {
    if (!json_is_string(text)) {
      return brim_fail(BRIM_EPARSE, "%s: entry '__metadata__': '%.64s' is not a string", file, key);
    }
  }
  return BRIM_OK;
}

//---------------------------------- layout ----------------------------------

static int by_place(const void *a, const void *b) {
  const brim_safetensors_entry *x = a, *y = b;
  uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
  if (p != q) return p < q ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
  const brim_safetensors_entry *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static brim_status check_cover(brim_safetensors *f, const unsigned char *data, size_t size,
                               size_t start) {
  if (f->count) qsort(f->entries, f->count, sizeof *f->entries, by_place);
  size_t end = 0;
  for (size_t i = 0; i < f->count; i++) {
    const brim_safetensors_entry *e = &f->entries[i];
    size_t begin = (size_t)((const unsigned char *)e->data - data);
    if (begin < end) {
      return brim_fail(BRIM_EPARSE, "%s: entry '%s' overlaps '%s' at byte %zu", f->name, e->name,
                       f->entries[i - 1].name, start + begin);
    }
    if (begin > end) {
      return brim_fail(BRIM_EPARSE, "%s: byte %zu: %zu bytes before entry '%s' belong to no entry",
                       f->name, start + end, begin - end, e->name);
    }
    end = begin + e->bytes;
  }
  if (end != size) {
    return brim_fail(BRIM_EPARSE, "%s: byte %zu: %zu bytes at the end belong to no entry", f->name,
                     start + end, size - end);
  }
  return BRIM_OK;
}

static brim_status read_entries(brim_safetensors *f, const unsigned char *data, size_t size,
                                size_t start) {
  size_t most = json_object_size(f->header);
  f->entries = brim_calloc(most, sizeof *f->entries);
  f->by_name = brim_calloc(most, sizeof *f->by_name);
  if (!f->entries || !f->by_name) {
    return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", f->name);
  }
  const char *key;
  json_t *value;
  json_object_foreach(f->header, key, value) {
    if (strcmp(key, "__metadata__") == 0) {
      BRIM_TRY(read_metadata(f->name, value));
      f->metadata = value;
      continue;
    }
    BRIM_TRY(read_entry(f->name, key, value, data, size, &f->entries[f->count]));
    f->count++;
  }
  BRIM_TRY(check_cover(f, data, size, start));
  for (size_t i = 0; i < f->count; i++) f->by_name[i] = &f->entries[i];
  if (f->count) qsort(f->by_name, f->count, sizeof *f->by_name, by_name);
  return BRIM_OK;
}

// torch.save writes a zip; older versions wrote a pickle.
static bool is_torch(const unsigned char *bytes) {
  return memcmp(bytes, "PK\x03\x04", 4) == 0 ||
         (bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5);
}

static brim_status read_header(brim_safetensors *f, const unsigned char *bytes, size_t size) {
  if (size < LENGTH_BYTES) {
    return brim_fail(BRIM_EPARSE, "%s: byte %zu: the file ends within the header's length", f->name,
                     size);
  }
  uint64_t length = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
  if (length > HEADER_MAX && is_torch(bytes)) {
    return brim_fail(BRIM_EPARSE,
                     "%s: a torch.save file, not safetensors; convert it in Python: "
                     "net.load_state_dict(torch.load(...)), then "
                     "safetensors.torch.save_file(net.state_dict(), 'new.safetensors')",
                     f->name);
  }
  if (length > HEADER_MAX) {
    // do not print the length: in a file of another kind it is content, which must not get into messages
    return brim_fail(BRIM_EPARSE, "%s: byte 0: a header of more than %d bytes", f->name,
                     HEADER_MAX);
  }
  if (length > size - LENGTH_BYTES) {
    return brim_fail(BRIM_EPARSE,
                     "%s: byte 0: a header of %" PRIu64 " bytes, but the file has only %zu left",
                     f->name, length, size - LENGTH_BYTES);
  }
  const char *text = (const char *)bytes + LENGTH_BYTES;
  if (length < 2 || text[0] != '{') {
    return brim_fail(BRIM_EPARSE, "%s: byte %d: the header does not begin with '{'", f->name,
                     LENGTH_BYTES);
  }
  brim_status status = brim_json_parse(text, (size_t)length, f->name, &f->header);
  if (status == BRIM_EPARSE) {
    return brim_fail_context(status, "in the header, which begins at byte %d", LENGTH_BYTES);
  }
  if (status) return status;
  f->bytes = bytes;
  f->size = size;
  f->header_size = (size_t)length;
  size_t start = LENGTH_BYTES + (size_t)length;
  return read_entries(f, bytes + start, size - start, start);
}

//---------------------------------- opening ----------------------------------

static brim_status parse(const void *data, size_t size, const char *name, brim_safetensors **out) {
  *out = NULL;
  brim_json_setup();
  brim_safetensors *f = brim_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
  brim_status status = BRIM_OK;
  f->name = brim_strdup(name);
  f->empty = json_object();
  if (!f->name || !f->empty) {
    status = brim_fail(BRIM_ENOMEM, "out of memory while reading %s", name);
  } else {
    f->metadata = f->empty;
    status = read_header(f, data, size);
  }
  if (status) {
    brim_safetensors_close(f);
    return status;
  }
  *out = f;
  return BRIM_OK;
}

// Reads exactly `size` bytes from the start of a file.
static brim_status read_bytes(const char *path, int fd, unsigned char *out, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pread(fd, out + done, size - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_EIO, "%s: byte %zu: %s", path, done, brim_errno_text(errno));
    if (n == 0) {
      return brim_fail(BRIM_EIO,
                       "%s: byte %zu: the file became shorter while brim read it; is another "
                       "program writing it?",
                       path, done);
    }
    done += (size_t)n;
  }
  return BRIM_OK;
}

// Reads a whole file; the caller calls brim_free. An empty file gives NULL and 0. The file is not mapped: if
// another program truncated it, a lost page would raise a signal in the middle of a load. O_NONBLOCK keeps open
// from waiting for a FIFO, which is refused.
static brim_status read_file(const char *path, void **data, size_t *size) {
  *data = NULL;
  *size = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    return brim_fail(BRIM_ENOENT,
                     "%s: no such checkpoint; brim train writes best.safetensors, last.safetensors "
                     "and model.safetensors to its output folder",
                     path);
  }
  if (fd < 0) return brim_fail(brim_fs_open_status(errno), "%s: %s", path, brim_errno_text(errno));
  brim_status status = BRIM_OK;
  struct stat st;
  if (fstat(fd, &st) != 0) {
    status = brim_fail(BRIM_EIO, "%s: %s", path, brim_errno_text(errno));
  } else if (!S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s: not a regular file", path);
  } else if (st.st_size > 0) {
    *size = (size_t)st.st_size;
    *data = brim_alloc(*size);
    status = *data ? read_bytes(path, fd, *data, *size)
                   : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
  }
  close(fd);
  if (status) {
    brim_free(*data);
    *data = NULL;
  }
  return status;
}

// Adds to the message about a damaged file that it may not be a checkpoint; files of torch.save have their own message.
static brim_status fail_file(brim_status status) {
  bool damaged = status == BRIM_EPARSE || status == BRIM_ELIMIT;
  if (!damaged || strstr(brim_status_detail(), "torch.save")) return status;
  char why[512];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  return brim_fail(
      BRIM_EPARSE,
      "%s; the file is damaged or not a checkpoint; checkpoints of brim train end in .safetensors",
      why);
}

brim_status brim_safetensors_open(const char *path, brim_safetensors **out) {
  *out = NULL;
  void *data;
  size_t size;
  BRIM_TRY(read_file(path, &data, &size));
  brim_status status = parse(data, size, path, out);
  if (status) {
    status = fail_file(status);
    brim_free(data);
    return status;
  }
  (*out)->owned = data;
  return BRIM_OK;
}

void brim_safetensors_close(brim_safetensors *file) {
  if (!file) return;
  json_decref(file->header);
  json_decref(file->empty);
  brim_free(file->owned);
  brim_free(file->by_name);
  brim_free(file->entries);
  brim_free(file->name);
  brim_free(file);
}

size_t brim_safetensors_count(const brim_safetensors *file) { return file->count; }

const brim_safetensors_entry *brim_safetensors_at(const brim_safetensors *file, size_t index) {
  return index < file->count ? &file->entries[index] : NULL;
}

const brim_safetensors_entry *brim_safetensors_find(const brim_safetensors *file,
                                                    const char *name) {
  const brim_safetensors_entry key = {.name = name}, *wanted = &key;
  if (!file->count) return NULL;
  const brim_safetensors_entry *const *hit =
      bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, by_name);
  return hit ? *hit : NULL;
}

const json_t *brim_safetensors_metadata(const brim_safetensors *file) { return file->metadata; }

static brim_status check_finite(const char *path, const brim_safetensors_entry *e) {
  for (size_t i = 0; e->dtype == BRIM_F32 && i < e->bytes / sizeof(float); i++) {
    float value;
    memcpy(&value, (const char *)e->data + i * sizeof value, sizeof value);
    if (isfinite(value)) continue;
    return brim_fail(
        BRIM_EINVAL,
        "%s: entry '%s' holds %s at element %zu: its run diverged; use an earlier checkpoint", path,
        e->name, isnan(value) ? "NaN" : "an infinity", i);
  }
  return BRIM_OK;
}

brim_status brim_safetensors_finite(const brim_safetensors *file,
                                    const brim_safetensors_entry *entry) {
  if (entry) return check_finite(file->name, entry);
  for (size_t i = 0; i < file->count; i++) {
    BRIM_TRY(check_finite(file->name, &file->entries[i]));
  }
  return BRIM_OK;
}

static const char *sum_digits(const char *header, size_t size) {
  // a quote within a string follows a backslash, so this matches only the key
  static const char sum_text[] = SUM_KIND;
  static const char key[] = "\"" BRIM_SAFETENSORS_SUM "\":\"";
  size_t before = sizeof key - 1 + sizeof sum_text - 1, whole = before + SUM_DIGITS;
  for (const char *at = header; size - (size_t)(at - header) > whole; at++) {
    at = memchr(at, '"', size - (size_t)(at - header) - whole);
    if (!at) return NULL;
    if (memcmp(at, key, sizeof key - 1) != 0) continue;
    bool ours = memcmp(at + sizeof key - 1, sum_text, sizeof sum_text - 1) == 0;
    return ours && at[whole] == '"' ? at + before : NULL;
  }
  return NULL;
}

// Writes the digits of a checksum.
static void sum_format(const brim_xxh64 *sum, char out[SUM_DIGITS + 1]) {
  snprintf(out, SUM_DIGITS + 1, "%016" PRIx64, brim_xxh64_value(sum));
}

brim_status brim_safetensors_verify(const brim_safetensors *file) {
  const json_t *said = json_object_get(file->metadata, BRIM_SAFETENSORS_SUM);
  if (!said) return BRIM_OK;
  const char *digits = sum_digits((const char *)file->bytes + LENGTH_BYTES, file->header_size);
  char now[SUM_DIGITS + 1] = "";
  if (digits) {
    static const char zeros[SUM_DIGITS + 1] = "0000000000000000";
    size_t at = (size_t)(digits - (const char *)file->bytes), behind = at + SUM_DIGITS;
    brim_xxh64 sum;
    brim_xxh64_init(&sum);
    brim_xxh64_update(&sum, file->bytes, at);
    brim_xxh64_update(&sum, zeros, SUM_DIGITS);
    brim_xxh64_update(&sum, file->bytes + behind, file->size - behind);
    sum_format(&sum, now);
    if (memcmp(now, digits, SUM_DIGITS) == 0) return BRIM_OK;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: the file is damaged: brim.checksum is %.32s, its bytes give %s; use "
                   "another checkpoint; a program that edits the file must remove brim.checksum",
                   file->name, json_string_value(said), now[0] ? now : "-");
}

//---------------------------------- writing ----------------------------------

static brim_status entry_json(const brim_safetensors_entry *e, size_t offset, json_t **out) {
  json_t *object = json_object(), *shape = json_array(), *offsets = json_array();
  brim_status status = BRIM_OK;
  if (!object || !shape || !offsets) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the header of a checkpoint");
  }
  for (int i = 0; !status && i < e->rank; i++) {
    status = brim_json_push(shape, json_integer(e->dim[i]));
  }
  if (!status) status = brim_json_push(offsets, json_integer((json_int_t)offset));
  if (!status) status = brim_json_push(offsets, json_integer((json_int_t)(offset + e->bytes)));
  if (!status) {
    status = brim_json_put(object, "dtype", json_string(dtype_name(e->dtype)));
  }
  // `put` frees the lists, whatever the result
  if (!status) {
    status = brim_json_put(object, "shape", shape);
    shape = NULL;
  }
  if (!status) {
    status = brim_json_put(object, "data_offsets", offsets);
    offsets = NULL;
  }
  json_decref(shape);
  json_decref(offsets);
  if (status) {
    json_decref(object);
    object = NULL;
  }
  *out = object;
  return status;
}

static brim_status check_entry(const brim_safetensors_entry *e, const json_t *header) {
  if (!dtype_name(e->dtype)) {
    return brim_fail(BRIM_EINVAL, "entry '%s' has a type that safetensors does not support",
                     e->name);
  }
  int64_t bytes = (int64_t)brim_dtype_size(e->dtype);
  for (int i = 0; i < e->rank; i++) {
    if (e->dim[i] < 0 || __builtin_mul_overflow(bytes, e->dim[i], &bytes)) {
      return brim_fail(BRIM_EINVAL, "entry '%s' has an invalid shape", e->name);
    }
  }
  if ((size_t)bytes != e->bytes) {
    return brim_fail(BRIM_EINVAL, "entry '%s' has %zu bytes, but its shape needs %zu", e->name,
                     e->bytes, (size_t)bytes);
  }
  if (json_object_get(header, e->name) || strcmp(e->name, "__metadata__") == 0) {
    return brim_fail(BRIM_EINVAL, "entry '%s' appears twice", e->name);
  }
  return BRIM_OK;
}

brim_status brim_safetensors_copy_metadata(const json_t *from, json_t **out) {
  *out = NULL;
  if (from && !json_is_object(from)) {
    return brim_fail(BRIM_EINVAL, "the metadata of a checkpoint is not an object");
  }
  json_t *copy = json_object();
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for the metadata of a checkpoint");
  const char *key;
  json_t *text;
  brim_status status = BRIM_OK;
  // jansson's loop takes no const object; nothing in it is changed
  json_object_foreach((json_t *)(uintptr_t)from, key, text) {
    if (!json_is_string(text)) {
      status = brim_fail(BRIM_EINVAL, "metadata '%s' of a checkpoint is not a string", key);
    } else {
      status =
          brim_json_put(copy, key, json_stringn(json_string_value(text), json_string_length(text)));
    }
    if (status) break;
  }
  if (status) {
    json_decref(copy);
    return status;
  }
  *out = copy;
  return BRIM_OK;
}

//---------------------------------- the checksum ----------------------------------

// The header precedes the data, but the checksum is known last: 16 zeros hold its place.
static const char no_digits[] = "0000000000000000";

static brim_status put_place(json_t *metadata) {
  if (!json_object_get(metadata, BRIM_SAFETENSORS_SUM)) return BRIM_OK;
  char text[sizeof SUM_KIND + sizeof no_digits];
  snprintf(text, sizeof text, "%s%s", SUM_KIND, no_digits);
  return brim_json_put(metadata, BRIM_SAFETENSORS_SUM, json_string(text));
}

//---------------------------------- the file ----------------------------------

static brim_status fill_header(json_t *header, const brim_safetensors_entry *entries, size_t count,
                               const json_t *metadata) {
  json_t *copy;
  BRIM_TRY(brim_safetensors_copy_metadata(metadata, &copy));
  brim_status status = put_place(copy);
  if (!status && json_object_size(copy) > 0) {
    status = brim_json_put(header, "__metadata__", json_incref(copy));
  }
  json_decref(copy);
  BRIM_TRY(status);
  size_t offset = 0;
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(check_entry(&entries[i], header));
    json_t *value;
    BRIM_TRY(entry_json(&entries[i], offset, &value));
    BRIM_TRY(brim_json_put(header, entries[i].name, value));
    offset += entries[i].bytes;
  }
  return BRIM_OK;
}

static brim_status header_text(const brim_safetensors_entry *entries, size_t count,
                               const json_t *metadata, brim_str *out) {
  brim_json_setup();
  json_t *header = json_object();
  if (!header) return brim_fail(BRIM_ENOMEM, "out of memory for the header of a checkpoint");
  char *text = NULL;
  brim_status status = fill_header(header, entries, count, metadata);
  if (!status) status = brim_json_dump(header, 0, &text);
  json_decref(header);
  if (status) return status;
  brim_str_append(out, text);
  brim_str_repeat(out, ' ', (8 - out->len % 8) % 8);
  brim_free(text);
  return brim_str_status(out);
}

static brim_status put_data(void *ctx, size_t i, brim_fs_writer *w) {
  const brim_safetensors_entry *e = (const brim_safetensors_entry *)ctx + i;
  return brim_fs_writer_write(w, e->data, e->bytes);
}

static brim_status write_file(brim_fs_writer *w, const brim_str *header, size_t count,
                              brim_safetensors_put put, void *ctx) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header->len >> (8 * i));
  const char *digits = sum_digits(header->data, header->len);
  brim_xxh64 sum;
  brim_xxh64_init(&sum);
  if (digits) brim_fs_writer_sum(w, &sum);
  BRIM_TRY(brim_fs_writer_write(w, length, sizeof length));
  BRIM_TRY(brim_fs_writer_write(w, header->data, header->len));
  for (size_t i = 0; i < count; i++) BRIM_TRY(put(ctx, i, w));
  if (!digits) return BRIM_OK;
  char value[SUM_DIGITS + 1];
  sum_format(&sum, value);
  brim_fs_writer_sum(w, NULL);
  return brim_fs_writer_patch(w, sizeof length + (size_t)(digits - header->data), value,
                              SUM_DIGITS);
}

brim_status brim_safetensors_write(const char *path, const brim_safetensors_entry *entries,
                                   size_t count, const json_t *metadata) {
  return brim_safetensors_write_with(path, entries, count, metadata, put_data,
                                     (void *)(uintptr_t)entries);
}

brim_status brim_safetensors_write_with(const char *path, const brim_safetensors_entry *entries,
                                        size_t count, const json_t *metadata,
                                        brim_safetensors_put put, void *ctx) {
  brim_str header;
  brim_str_init(&header);
  brim_fs_writer *w = NULL;
  brim_status status = header_text(entries, count, metadata, &header);
  if (!status) status = brim_fs_writer_open(path, &w);
  if (!status) {
    status = write_file(w, &header, count, put, ctx);
    if (status) {
      brim_fs_writer_abort(w);
    } else {
      status = brim_fs_writer_commit(w);
    }
  }
  brim_str_deinit(&header);
  return status;
}
