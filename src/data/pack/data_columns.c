// Tables with one row a sample, as CSV, JSON lines or HDF5. For HDF5 the library lays out the datasets;
// then rows are written at their offsets. The file has no name until it is complete (O_TMPFILE), so that
// a killed process leaves nothing behind. A file system without nameless files gets a named temporary,
// which the next write of the same table removes. "-" is the standard output: rows go there as they
// come.
#include "data/pack/data_columns.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_fs.h"
#include "base/base_text.h"
#include "data/hdf5/data_hdf5.h"
#include "data/pack/data_pack_int.h"

enum { MOST_COLUMNS = 16 };

struct brim_columns {
  char *path;
  brim_columns_format format;
  brim_column column[MOST_COLUMNS];
  size_t count;
  uint64_t rows, written;
  bool replace, to_stdout;
  int fd;      // -1 = none
  char *temp;  // name of the temporary; NULL = the file has no name yet
  brim_str line;
  struct brim_columns_hdf5 *hdf5;
};

static int64_t width_of(const brim_column *c) { return c->width > 0 ? c->width : 1; }

//---------------------------------- the file ----------------------------------

enum { TEMP_TRIES = 1000, FD_NAME = 32 };

static brim_status fail_errno(const brim_columns *c, int err) {
  brim_status status = err == ENOMEM ? BRIM_ENOMEM : brim_errno_status(err);
  return brim_fail(status, "cannot write %s: %s", c->path, brim_errno_text(err));
}

static brim_status fail_exists(const brim_columns *c) {
  return brim_fail(BRIM_EEXIST, "%s already exists; --force replaces it", c->path);
}

// Makes the temporary TARGET.tmp.PID.N and returns its name in *temp (brim_free). `from` NULL: creates a
// file, open in *fd. Else gives the file `from` this second name. Returns an errno.
static int make_temp(const brim_columns *c, const char *from, char **temp, int *fd) {
  size_t size = strlen(c->path) + 48;
  char *name = brim_alloc(size);
  int err = name ? EEXIST : ENOMEM;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    snprintf(name, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", c->path, (long)getpid(), n);
    int made = from ? linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW)
                    : (*fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    err = made < 0 ? errno : 0;
  }
  if (err) {
    brim_free(name);
  } else {
    *temp = name;
  }
  return err;
}

// Opens a file without a name; -1 if the file system has none, or without /proc, by which it is named.
static int open_nameless(const char *folder) {
  char name[FD_NAME];
  int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  if (access(name, F_OK) == 0) return fd;
  close(fd);
  return -1;
}

static brim_status target_open(brim_columns *c) {
  struct stat st;
  if (c->to_stdout) {
    c->fd = STDOUT_FILENO;
    return BRIM_OK;
  }
  bool there = stat(c->path, &st) == 0;
  if (there && S_ISDIR(st.st_mode))
    return brim_fail(BRIM_EINVAL, "%s is a folder; name a file in it", c->path);
  if (there && !S_ISREG(st.st_mode))
    return brim_fail(BRIM_EINVAL, "cannot write %s: it exists and is not a regular file", c->path);
  if (there && !c->replace) return fail_exists(c);
  char *folder = brim_fs_dirname(c->path);
  if (!folder) return fail_errno(c, ENOMEM);
  brim_data_remove_stale(c->path, false);
  c->fd = open_nameless(folder);
  brim_free(folder);
  if (c->fd < 0) {
    int err = make_temp(c, NULL, &c->temp, &c->fd);
    if (err) return fail_errno(c, err);
    (void)flock(c->fd, LOCK_SH | LOCK_NB);  // keeps other processes from removing it as stale
  }
  if (there) (void)!fchmod(c->fd, st.st_mode & 07777);  // keep the permissions; best effort
  return BRIM_OK;
}

static brim_status write_all(const brim_columns *c, const char *data, size_t size) {
  while (size) {
    ssize_t n = write(c->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(c, n < 0 ? errno : ENOSPC);
    data += n;
    size -= (size_t)n;
  }
  return BRIM_OK;
}

static brim_status target_write(brim_columns *c, const char *data, size_t size) {
  if (!c->to_stdout || !isatty(c->fd)) return write_all(c, data, size);
  brim_str plain;  // a name may contain control characters of the terminal
  brim_str_init(&plain);
  brim_text_append_plain(&plain, data, size, NULL);
  brim_status status = brim_str_status(&plain);
  if (!status) status = write_all(c, plain.data, plain.len);
  brim_str_deinit(&plain);
  return status;
}

// Gives the complete file its name. Returns an errno.
static int name_file(brim_columns *c) {
  char name[FD_NAME];
  snprintf(name, sizeof name, "/proc/self/fd/%d", c->fd);
  if (!c->temp) {
    if (linkat(AT_FDCWD, name, AT_FDCWD, c->path, AT_SYMLINK_FOLLOW) == 0) return 0;
    if (errno != EEXIST || !c->replace) return errno;
    int err = make_temp(c, name, &c->temp, NULL);  // only a rename can replace a file
    if (err) return err;
  }
  int err = c->replace ? (rename(c->temp, c->path) == 0 ? 0 : errno)
                       : brim_data_take_new(c->temp, c->path, false);
  if (err) return err;
  brim_free(c->temp);
  c->temp = NULL;
  return 0;
}

static brim_status target_commit(brim_columns *c) {
  if (c->to_stdout) return BRIM_OK;
  if (fsync(c->fd) != 0 && errno != EINVAL && errno != ENOTSUP) return fail_errno(c, errno);
  int err = name_file(c);
  if (err == EEXIST) return fail_exists(c);
  if (err) return fail_errno(c, err);
  char *folder = brim_fs_dirname(c->path);
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    (void)fsync(fd);  // not every file system syncs folders
    close(fd);
  }
  brim_free(folder);
  return BRIM_OK;
}

static void target_close(brim_columns *c) {
  if (c->fd >= 0 && !c->to_stdout) close(c->fd);
  if (c->temp) (void)unlink(c->temp);
  brim_free(c->temp);
  c->temp = NULL;
  c->fd = -1;
}

//---------------------------------- HDF5 ----------------------------------

typedef struct brim_columns_hdf5 {
  brim_hdf5_out out;
  hid_t file;
  uint64_t offset[MOST_COLUMNS];
  char *texts;  // room for a block of strings
  size_t texts_bytes;
} brim_columns_hdf5;

static brim_status fail_hdf5(const brim_columns *c) {
  char text[256];
  if (c->hdf5->out.err) return fail_errno(c, c->hdf5->out.err);
  return brim_fail(BRIM_EIO, "cannot write %s: libhdf5: %s", c->path,
                   brim_hdf5_reason(text, sizeof text));
}

//---------------------------------- the layout ----------------------------------

// Bytes of one value.
static size_t value_bytes(const brim_column *column) {
  switch (column->kind) {
    case BRIM_COLUMN_INDEX:
      return sizeof(uint64_t);
    case BRIM_COLUMN_LABEL:
    case BRIM_COLUMN_REAL:
      return 4;
    case BRIM_COLUMN_TEXT:
    case BRIM_COLUMN_KIND_COUNT:
      break;
  }
  return column->text_bytes ? column->text_bytes : 1;
}

static hid_t string_type(size_t bytes) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, bytes) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
    H5Tclose(type);
    return -1;
  }
  return type;
}

static hid_t type_of(const brim_column *column) {
  if (column->kind == BRIM_COLUMN_TEXT) return string_type(value_bytes(column));
  return H5Tcopy(column->kind == BRIM_COLUMN_INDEX   ? H5T_STD_I64LE
                 : column->kind == BRIM_COLUMN_LABEL ? H5T_STD_I32LE
                                                     : H5T_IEEE_F32LE);
}

// Writes names as an attribute. An attribute must fit in an object header of 64 KiB, so long lists of
// names are left out.
static brim_status put_names(const brim_columns *c, hid_t dataset, const char *attribute,
                             const char *const *names, size_t count) {
  size_t longest = 1;
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(names[i]) + 1;
    if (n > longest) longest = n;
  }
  if (count == 0 || count * longest > 60000) return BRIM_OK;
  char *text = brim_calloc(count, longest);
  if (!text) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
  for (size_t i = 0; i < count; i++) snprintf(text + i * longest, longest, "%s", names[i]);
  hsize_t dim = count;
  hid_t type = string_type(longest), space = H5Screate_simple(1, &dim, NULL), at = -1;
  if (type >= 0 && space >= 0) {
    at = H5Acreate2(dataset, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
  }
  brim_status status = at >= 0 && H5Awrite(at, type, text) >= 0 ? BRIM_OK : fail_hdf5(c);
  if (at >= 0) H5Aclose(at);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  brim_free(text);
  return status;
}

static hid_t make_dataset(const brim_columns *c, const brim_column *column) {
  hsize_t dims[2] = {c->rows, (hsize_t)width_of(column)};
  hid_t space = H5Screate_simple(column->width > 0 ? 2 : 1, dims, NULL);
  hid_t plist = brim_hdf5_out_create_plist(H5P_DATASET_CREATE), dataset = -1;
  hid_t type = type_of(column);
  bool good = space >= 0 && plist >= 0 && type >= 0;
  good = good && H5Pset_layout(plist, H5D_CONTIGUOUS) >= 0;
  good = good &&
         H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) >= 0;  // create_datasets needs the offset
  good = good && H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER) >= 0;
  if (good) {
    dataset = H5Dcreate2(c->hdf5->file, column->name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  }
  if (type >= 0) H5Tclose(type);
  if (plist >= 0) H5Pclose(plist);
  if (space >= 0) H5Sclose(space);
  return dataset;
}

static brim_status create_datasets(brim_columns *c) {
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    hid_t dataset = make_dataset(c, column);
    if (dataset < 0) return fail_hdf5(c);
    haddr_t at = H5Dget_offset(dataset);
    brim_status status = at == HADDR_UNDEF ? fail_hdf5(c) : BRIM_OK;
    c->hdf5->offset[i] = at;
    if (!status && column->parts) {
      status = put_names(c, dataset, "names", column->parts, (size_t)column->width);
    }
    if (!status && column->labels) {
      status = put_names(c, dataset, "class_names", column->labels, column->label_count);
    }
    H5Dclose(dataset);
    if (status) return status;
  }
  return BRIM_OK;
}

//---------------------------------- the file ----------------------------------

static brim_status hdf5_open(brim_columns *c) {
  brim_columns_hdf5 *h = brim_calloc(1, sizeof *h);
  if (!h) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
  c->hdf5 = h;
  h->file = h->out.driver = -1;
  h->out.fd = c->fd;
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  h->file = brim_hdf5_out_create(&h->out, c->path);
  brim_status status = h->file >= 0 ? create_datasets(c) : fail_hdf5(c);
  brim_hdf5_leave(&scope);
  return status;
}

static brim_status pad_texts(brim_columns *c, size_t bytes, const char *const *texts,
                             uint64_t rows) {
  brim_columns_hdf5 *h = c->hdf5;
  size_t need = bytes * (size_t)rows;
  if (need > h->texts_bytes) {
    char *grown = brim_realloc(h->texts, need);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
    h->texts = grown;
    h->texts_bytes = need;
  }
  memset(h->texts, 0, need);
  for (uint64_t i = 0; i < rows; i++) {
    snprintf(h->texts + i * bytes, bytes, "%s", texts[i]);
  }
  return BRIM_OK;
}

static brim_status hdf5_put(brim_columns *c, const void *const *data, uint64_t rows) {
  brim_columns_hdf5 *h = c->hdf5;
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    size_t row = value_bytes(column) * (size_t)width_of(column);
    const void *from = data[i];
    if (column->kind == BRIM_COLUMN_TEXT) {
      BRIM_TRY(pad_texts(c, row, (const char *const *)data[i], rows));
      from = h->texts;
    }
    brim_hdf5_out_write(&h->out, from, row * (size_t)rows, h->offset[i] + row * c->written);
    if (h->out.err) return fail_errno(c, h->out.err);
  }
  return BRIM_OK;
}

static brim_status hdf5_close(brim_columns *c, bool good) {
  brim_columns_hdf5 *h = c->hdf5;
  brim_status status = BRIM_OK;
  if (!good && !h->out.err) h->out.err = ECANCELED;  // keeps the driver from writing more
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  if (h->file >= 0 && H5Fclose(h->file) < 0) status = fail_hdf5(c);
  brim_hdf5_out_close(&h->out);
  brim_hdf5_leave(&scope);
  if (!status && h->out.err && good) status = fail_errno(c, h->out.err);
  brim_free(h->texts);
  brim_free(h);
  c->hdf5 = NULL;
  return status;
}

//---------------------------------- text formats ----------------------------------

enum { LINE_BYTES = 1 << 16 };  // text is written in pieces of at least this size

bool brim_columns_format_of(const char *path, brim_columns_format *out) {
  static const struct {
    const char *end;
    brim_columns_format format;
  } ends[] = {{".h5", BRIM_COLUMNS_HDF5},     {".hdf5", BRIM_COLUMNS_HDF5},
              {".hdf", BRIM_COLUMNS_HDF5},    {".csv", BRIM_COLUMNS_CSV},
              {".jsonl", BRIM_COLUMNS_JSONL}, {".ndjson", BRIM_COLUMNS_JSONL}};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (!brim_str_ends(path, ends[i].end)) continue;
    *out = ends[i].format;
    return true;
  }
  return false;
}

//---------------------------------- values ----------------------------------

// The shortest text that reads back as the same float.
static void put_real(brim_str *out, float value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  brim_str_append(out, text);
}

// JSON is UTF-8: invalid bytes are written as the text \xNN, so that two names stay different.
static void put_json_text(brim_str *out, const char *text) {
  brim_str_append_char(out, '"');
  for (const char *p = text; *p;) {
    unsigned char lead = (unsigned char)*p;
    size_t n = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (strnlen(p, n) < n || !brim_utf8_valid(p, n)) {
      brim_str_printf(out, "\\\\x%02x", lead);
      p++;
      continue;
    }
    if (lead == '"' || lead == '\\') brim_str_append_char(out, '\\');
    if (lead < 0x20) {
      brim_str_printf(out, "\\u%04x", (unsigned)lead);
    } else {
      brim_str_append_n(out, p, n);
    }
    p += n;
  }
  brim_str_append_char(out, '"');
}

// Writes one value; `null` is the text for unknown.
static void put_value(brim_str *out, const brim_column *c, const void *data, uint64_t at,
                      bool json) {
  const char *null = json ? "null" : "";
  switch (c->kind) {
    case BRIM_COLUMN_INDEX:
      brim_str_printf(out, "%" PRIu64, ((const uint64_t *)data)[at]);
      return;
    case BRIM_COLUMN_LABEL: {
      int32_t label = ((const int32_t *)data)[at];
      if (label < 0) {
        brim_str_append(out, null);
      } else {
        brim_str_printf(out, "%" PRId32, label);
      }
      return;
    }
    case BRIM_COLUMN_REAL: {
      float value = ((const float *)data)[at];
      if (isfinite(value)) {
        put_real(out, value);
      } else {
        brim_str_append(out, isnan(value) || json ? null : value > 0 ? "inf" : "-inf");
      }
      return;
    }
    case BRIM_COLUMN_TEXT: {
      const char *text = ((const char *const *)data)[at];
      if (json && text[0]) {
        put_json_text(out, text);
      } else if (text[0]) {
        brim_text_append_csv(out, text);
      } else {
        brim_str_append(out, null);
      }
      return;
    }
    case BRIM_COLUMN_KIND_COUNT:
      return;
  }
}

static void put_csv(brim_columns *c, const void *const *data, uint64_t row) {
  for (size_t i = 0; i < c->count; i++) {
    int64_t width = width_of(&c->column[i]);
    for (int64_t k = 0; k < width; k++) {
      if (i || k) brim_str_append_char(&c->line, ',');
      put_value(&c->line, &c->column[i], data[i], row * (uint64_t)width + (uint64_t)k, false);
    }
  }
  brim_str_append_char(&c->line, '\n');
}

static void put_jsonl(brim_columns *c, const void *const *data, uint64_t row) {
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    int64_t width = width_of(column);
    brim_str_printf(&c->line, "%s\"%s\": %s", i ? ", " : "{", column->name,
                    column->width > 0 ? "[" : "");
    for (int64_t k = 0; k < width; k++) {
      if (k) brim_str_append(&c->line, ", ");
      put_value(&c->line, column, data[i], row * (uint64_t)width + (uint64_t)k, true);
    }
    if (column->width > 0) brim_str_append_char(&c->line, ']');
  }
  brim_str_append(&c->line, "}\n");
}

static void csv_head(brim_columns *c) {
  brim_str name;
  brim_str_init(&name);
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    for (int64_t k = 0; k < width_of(column); k++) {
      brim_str_clear(&name);
      if (column->width == 0) {
        brim_str_append(&name, column->name);
      } else {
        brim_str_append(&name, column->prefix ? column->prefix : column->name);
        if (!column->prefix) brim_str_append_char(&name, '_');
        if (column->parts) {
          brim_str_append(&name, column->parts[k]);
        } else {
          brim_str_printf(&name, "%" PRId64, k);
        }
      }
      if (i || k) brim_str_append_char(&c->line, ',');
      brim_text_append_csv(&c->line, name.data);
    }
  }
  brim_str_append_char(&c->line, '\n');
  if (brim_str_status(&name)) c->line.status = brim_str_status(&name);
  brim_str_deinit(&name);
}

static brim_status flush(brim_columns *c) {
  BRIM_TRY(brim_str_status(&c->line));
  BRIM_TRY(target_write(c, c->line.data, c->line.len));
  brim_str_clear(&c->line);
  return BRIM_OK;
}

//---------------------------------- the table ----------------------------------

static void deinit(brim_columns *c) {
  brim_str_deinit(&c->line);
  brim_free(c->path);
  brim_free(c);
}

static brim_status open_target(brim_columns *c) {
  BRIM_TRY(target_open(c));
  if (c->format == BRIM_COLUMNS_HDF5) return hdf5_open(c);
  if (c->format == BRIM_COLUMNS_CSV) csv_head(c);
  return BRIM_OK;
}

brim_status brim_columns_create(const char *path, bool replace, brim_columns_format format,
                                const brim_column *columns, size_t count, uint64_t rows,
                                brim_columns **out) {
  *out = NULL;
  bool to_stdout = strcmp(path, "-") == 0;
  if (count == 0 || count > MOST_COLUMNS) {
    return brim_fail(BRIM_EINVAL, "a table has 1 to %d columns, not %zu", MOST_COLUMNS, count);
  }
  if (to_stdout && format == BRIM_COLUMNS_HDF5) {
    return brim_fail(BRIM_EINVAL, "HDF5 cannot be written to the standard output");
  }
  brim_columns *c = brim_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  brim_str_init(&c->line);
  c->path = brim_strdup(to_stdout ? brim_tr("the standard output") : path);
  c->replace = replace;
  c->to_stdout = to_stdout;
  c->fd = -1;
  c->format = format;
  c->count = count;
  c->rows = rows;
  memcpy(c->column, columns, count * sizeof *columns);
  brim_status status =
      c->path ? open_target(c) : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (status) {
    brim_columns_abort(c);
    return status;
  }
  *out = c;
  return BRIM_OK;
}

brim_status brim_columns_put(brim_columns *c, const void *const *data, uint64_t rows) {
  if (rows > c->rows - c->written) {
    return brim_fail(BRIM_ESTATE, "%s: more rows than the %" PRIu64 " it was begun with", c->path,
                     c->rows);
  }
  if (c->format == BRIM_COLUMNS_HDF5) {
    BRIM_TRY(hdf5_put(c, data, rows));
  } else {
    for (uint64_t i = 0; i < rows; i++) {
      if (c->format == BRIM_COLUMNS_CSV) {
        put_csv(c, data, i);
      } else {
        put_jsonl(c, data, i);
      }
      if (c->line.len >= LINE_BYTES) BRIM_TRY(flush(c));
    }
  }
  c->written += rows;
  return BRIM_OK;
}

brim_status brim_columns_commit(brim_columns *c) {
  brim_status status = BRIM_OK;
  if (c->written != c->rows) {
    status = brim_fail(BRIM_ESTATE, "%s: %" PRIu64 " of %" PRIu64 " rows were written", c->path,
                       c->written, c->rows);
  }
  if (!status && c->format != BRIM_COLUMNS_HDF5) status = flush(c);
  if (!status && c->hdf5) status = hdf5_close(c, true);
  if (!status) status = target_commit(c);
  brim_columns_abort(c);  // frees it; a named file stays
  return status;
}

void brim_columns_abort(brim_columns *c) {
  if (!c) return;
  if (c->hdf5) hdf5_close(c, false);
  target_close(c);
  deinit(c);
}
