// libhdf5, second half: how a dataset lies in the file, its labels and attributes. Rows that only the
// library can read are data_hdf5_library.c's.
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/hdf5/data_hdf5_lib.h"

enum {
  LABEL_PIECE = 1 << 16,
  REASON = BRIM_HDF5_REASON,
  TEXT_PIECE = 1 << 12,  // rows of text read at once
  TEXT_ROOM = 2 << 20,   // bytes for them: TEXT_PIECE names of BRIM_DATA_CLASS_BYTES fit
  BLOCK = 64,            // rows for one child, where no chunk says how many lie together
};

static brim_status fail_reason(const brim_hdf5_file *f, const char *name, const char *why) {
  return brim_fail(BRIM_EPARSE, "%s: /%s: %s", f->path, name, why);
}

// Right behind the call that failed: the next one, a close too, makes the library forget.
static brim_status fail_library(const brim_hdf5_file *f, const char *name) {
  char text[160];
  return fail_reason(f, name, brim_hdf5_reason(text, sizeof text));
}

//---------------------------------- chunks ----------------------------------

// The place of the chunk at `at`. The library's own question walks the whole index for every answer
// (1.10, 16,000 chunks: 0.2 to 1.6 ms each); to read a chunk it finds it at once. So it is made to
// read, and the driver notes where that would have been.
static brim_status find_chunk(brim_hdf5_file *f, const char *name, hid_t dataset, const hsize_t *at,
                              uint8_t **buffer, brim_hdf5_chunk *out) {
  hsize_t size = 0;
  uint32_t mask = 0;
  *out = (brim_hdf5_chunk){0};
  // Not there, as it seems: find_chunks counts what was.
  if (H5Dget_chunk_storage_size(dataset, at, &size) < 0 || size == 0) return BRIM_OK;
  if (size > UINT32_MAX || size > f->map.size)
    return brim_fail(BRIM_EPARSE, "%s: /%s: a chunk of %llu bytes in a file of %zu", f->path, name,
                     (unsigned long long)size, f->map.size);
  // The library would write here if some version of it read by another way.
  if (!*buffer || brim_alloc_size(*buffer) < size) {
    brim_free(*buffer);
    *buffer = brim_alloc((size_t)size);
    if (!*buffer) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  }
  f->record->buffer = *buffer;
  f->record->hit = false;
  herr_t read = H5Dread_chunk(dataset, H5P_DEFAULT, at, &mask, *buffer);
  f->record->buffer = NULL;
  uint64_t address = f->record->address;
  if (read < 0) return BRIM_OK;
  if (!f->record->hit || f->record->size != size) {
    haddr_t slow = HADDR_UNDEF;
    hsize_t user_block = 0;
    hid_t created = H5Fget_create_plist(f->file);
    if (H5Dget_chunk_info_by_coord(dataset, at, &mask, &slow, &size) < 0 || created < 0 ||
        H5Pget_userblock(created, &user_block) < 0 || slow == HADDR_UNDEF) {
      brim_status status = fail_library(f, name);
      if (created >= 0) (void)H5Pclose(created);
      return status;
    }
    (void)H5Pclose(created);
    // Before 1.14 the address does not count the user block.
    address = slow + (H5_VERSION_GE(1, 14, 0) ? 0 : user_block);
  }
  *out = (brim_hdf5_chunk){.address = address, .bytes = (uint32_t)size, .mask = mask};
  return BRIM_OK;
}

static brim_status find_chunks(brim_hdf5_file *f, const char *name, hid_t dataset,
                               bool whole_edges_only, brim_hdf5_array *a) {
  hsize_t at[BRIM_HDF5_MAX_RANK];
  uint8_t *buffer = NULL;
  brim_status status = BRIM_OK;
  a->chunks = brim_alloc_tagged(a->chunk_count * sizeof *a->chunks, BRIM_MEM_PLANNED);
  if (!a->chunks)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for the table of %" PRIu64 " chunks",
                     f->path, name, a->chunk_count);
  for (uint64_t i = 0; i < a->chunk_count && !status; i++) {
    uint64_t rest = i;
    bool edge = false;
    for (int d = a->rank - 1; d >= 0; d--) {
      at[d] = rest % a->grid[d] * a->chunk[d];
      rest /= a->grid[d];
      edge = edge || at[d] + a->chunk[d] > a->dim[d];
    }
    status = find_chunk(f, name, dataset, at, &buffer, &a->chunks[i]);
    if (edge && whole_edges_only) a->chunks[i].mask = UINT32_MAX;
  }
  brim_free(buffer);
  if (status) return status;
  // Of a chunk that was never written the library says nothing but that it cannot be read.
  hsize_t stored = 0, found = 0;
  hid_t space = H5Dget_space(dataset);
  herr_t counted = space >= 0 ? H5Dget_num_chunks(dataset, space, &stored) : -1;
  if (counted < 0) status = fail_library(f, name);
  if (space >= 0) (void)H5Sclose(space);
  for (uint64_t i = 0; i < a->chunk_count; i++) found += a->chunks[i].bytes != 0;
  if (status) return status;
  if (found == stored) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "%s: /%s: found only %llu of its %llu chunks; is the file damaged?",
                   f->path, name, (unsigned long long)found, (unsigned long long)stored);
}

// Filters into the array's list; false: not ours to undo, and `slow` says which.
static bool read_filters(hid_t created, int count, brim_hdf5_array *a, H5Z_filter_t *missing) {
  int seen[BRIM_HDF5_FILTER_COUNT] = {0};
  bool ours = count <= BRIM_HDF5_MAX_FILTERS;
  for (int i = 0; i < count; i++) {
    unsigned flags, values[8] = {0};
    size_t n = 8;
    H5Z_filter_t id = H5Pget_filter2(created, (unsigned)i, &flags, &n, values, 0, NULL, NULL);
    if (id < 0) return false;
    if (H5Zfilter_avail(id) <= 0) *missing = id;
    brim_hdf5_filter filter = {.id = BRIM_HDF5_FILTER_COUNT};
    if (id == H5Z_FILTER_DEFLATE) filter.id = BRIM_HDF5_DEFLATE;
    if (id == H5Z_FILTER_SHUFFLE) filter.id = BRIM_HDF5_SHUFFLE;
    if (id == BRIM_HDF5_LZF_NUMBER) filter.id = BRIM_HDF5_LZF;
    if (id == H5Z_FILTER_FLETCHER32) filter.id = BRIM_HDF5_FLETCHER32;
    // The library keeps the element's size with the filter; 0 where a file lies.
    if (filter.id == BRIM_HDF5_SHUFFLE) filter.element = n ? values[0] : 0;
    // Bytes that are packed already are not shuffled; it may be larger than a chunk's room.
    if (filter.id == BRIM_HDF5_FILTER_COUNT || seen[filter.id]++ ||
        (filter.id == BRIM_HDF5_SHUFFLE &&
         (!filter.element || seen[BRIM_HDF5_DEFLATE] || seen[BRIM_HDF5_LZF])))
      ours = false;
    if (ours) a->filters[i] = filter;
  }
  a->filter_count = ours ? count : 0;
  return ours;
}

// What people call the filters they meet most, as registered with the HDF Group.
static const char *filter_name(H5Z_filter_t id) {
  static const struct {
    H5Z_filter_t id;
    const char *name;
  } known[] = {{4, " (szip)"},           {32001, " (blosc)"}, {32004, " (lz4)"},
               {32008, " (bitshuffle)"}, {32013, " (zfp)"},   {32015, " (zstd)"},
               {32026, " (blosc2)"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].id == id) return known[i].name;
  }
  return "";
}

static brim_status read_chunked(brim_hdf5_file *f, const char *name, hid_t dataset, hid_t created,
                                brim_hdf5_array *a) {
  hsize_t chunk[H5S_MAX_RANK];
  H5Z_filter_t missing = -1;
  unsigned options = 0;
  int count = H5Pget_nfilters(created);
  if (count < 0 || H5Pget_chunk(created, a->rank, chunk) != a->rank) return fail_library(f, name);
  bool ours = read_filters(created, count, a, &missing);
  if (missing >= 0)
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: /%s: written with HDF5 filter %d%s, which this libhdf5 does not have; "
                     "write it again with gzip or without a filter",
                     f->path, name, (int)missing, filter_name(missing));
  if (!ours) {
    a->where = BRIM_HDF5_LIBRARY;
    a->block = chunk[0] ? chunk[0] : 1;
    a->slow = brim_tr("its filters are not deflate, lzf, shuffle or fletcher32");
    return brim_hdf5_array_shape(a);
  }
  a->where = count ? BRIM_HDF5_PACKED : BRIM_HDF5_CHUNKS;
  for (int d = 0; d < a->rank; d++) a->chunk[d] = chunk[d];
  BRIM_TRY(brim_hdf5_array_shape(a));
  (void)H5Pget_chunk_opts(created, &options);
  return find_chunks(f, name, dataset, (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0, a);
}

//---------------------------------- layouts ----------------------------------

static brim_status read_layout(brim_hdf5_file *f, const char *name, hid_t dataset, hid_t created,
                               brim_hdf5_array *a) {
  H5D_space_status_t space = H5D_SPACE_STATUS_ERROR;
  H5D_layout_t layout = H5Pget_layout(created);
  haddr_t offset;
  a->where = BRIM_HDF5_LIBRARY;
  a->block = BLOCK;
  if (a->outside) a->slow = brim_tr("its data lie in other files");
  if (a->slow) return brim_hdf5_array_shape(a);  // or its type
  if (H5Dget_space_status(dataset, &space) < 0) return fail_library(f, name);
  switch (layout) {
    case H5D_CONTIGUOUS:
      offset = H5Dget_offset(dataset);
      if (offset != HADDR_UNDEF) {
        a->where = BRIM_HDF5_MAPPED;
        a->offset = offset;
      } else if (space == H5D_SPACE_STATUS_NOT_ALLOCATED) {
        a->where = BRIM_HDF5_FILL;
      } else {
        a->slow = brim_tr("its place in the file is not known");
      }
      break;
    case H5D_CHUNKED:
      if (space != H5D_SPACE_STATUS_NOT_ALLOCATED)
        return read_chunked(f, name, dataset, created, a);
      a->where = BRIM_HDF5_FILL;
      break;
    case H5D_COMPACT:
      a->slow = brim_tr("it is stored in its own header");
      break;
    case H5D_VIRTUAL:
      a->slow = brim_tr("it is put together from other datasets");
      break;
    case H5D_LAYOUT_ERROR:
    case H5D_NLAYOUTS:
      return fail_library(f, name);
  }
  return brim_hdf5_array_shape(a);
}

static void read_fill(hid_t created, hid_t type, brim_hdf5_array *a) {
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  uint8_t fill[8] = {0};
  if (H5Pfill_value_defined(created, &defined) < 0 || defined == H5D_FILL_VALUE_UNDEFINED) return;
  if (H5Tget_size(type) <= sizeof fill && H5Pget_fill_value(created, type, fill) >= 0)
    memcpy(a->fill, fill, sizeof fill);
}

// All of it now; LIBRARY still where that fails, and some rows may be good.
static brim_status read_whole(const brim_hdf5_file *f, const char *name, brim_hdf5_array *a,
                              char *why) {
  a->memory = brim_alloc_tagged(a->total_bytes, BRIM_MEM_PLANNED);
  if (!a->memory)
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " bytes", f->path, name,
                     a->total_bytes);
  if (H5Dread(a->dataset, a->memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->memory) >= 0) {
    a->where = BRIM_HDF5_MEMORY;
    return BRIM_OK;
  }
  brim_hdf5_reason(why, REASON);
  brim_free(a->memory);
  a->memory = NULL;
  return BRIM_OK;
}

// A dataset only the library reads: all of it now, or what is needed to read rows later.
static brim_status read_library(const brim_hdf5_file *f, const char *name, uint64_t keep,
                                brim_hdf5_array *a) {
  char why[REASON];
  bool whole = a->total_bytes <= keep, bytes = f->map.fd < 0;
  if (whole || bytes) {
    a->dataset = brim_hdf5_library_dataset(&f->map, f->file, name, a->outside, why);
    if (a->dataset < 0) return fail_reason(f, name, why);
  }
  if (whole) {
    BRIM_TRY(read_whole(f, name, a, why));
    if (a->where == BRIM_HDF5_MEMORY) return BRIM_OK;
    if (bytes) return brim_fail(BRIM_EIO, "%s: cannot read /%s: %s", f->path, name, why);
    brim_log_warn("data", "%s: cannot read /%s as a whole, so brim reads it row by row: %s",
                  f->path, name, why);
  } else {
    brim_log_warn(
        "data",
        "%s: libhdf5 reads /%s slowly, row by row: %s; rewrite it as contiguous or gzip for speed",
        f->path, name, a->slow);
  }
  if (!bytes) {
    // Its file is closed, so that a child opens it again.
    if (a->dataset >= 0) (void)H5Dclose(a->dataset);
    a->dataset = -1;
    return brim_hdf5_reader_create(a, &a->reader);
  }
  a->row = brim_alloc_tagged(a->row_bytes, BRIM_MEM_PLANNED);
  if (a->row) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " bytes", f->path, name,
                   a->row_bytes);
}

// A dataset of the list, opened. One with data in other files is read by the library's own driver,
// and only where the user allowed that.
static brim_status open_entry(const brim_hdf5_file *f, const brim_hdf5_entry *e, hid_t *out) {
  char why[REASON], other[512];
  hid_t dataset = e->outside ? brim_hdf5_library_dataset(&f->map, f->file, e->path, f->outside, why)
                             : H5Dopen2(f->file, e->path, f->access);
  if (dataset < 0) return e->outside ? fail_reason(f, e->path, why) : fail_library(f, e->path);
  brim_status status = BRIM_OK;
  if (!e->outside && brim_hdf5_outside(f, dataset, other, sizeof other))  // the file has changed
    status = brim_fail(BRIM_EINVAL, "%s: /%s: its data lie in another file, %s", f->path, e->path,
                       other);
  // A virtual dataset of its own file may lack a source, too.
  if (!status) status = brim_hdf5_outside_check(f->path, e->path, dataset);
  if (status) (void)H5Dclose(dataset);
  *out = status ? -1 : dataset;
  return status;
}

static brim_status array_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, uint64_t keep,
                                brim_hdf5_array *a) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  hid_t created = H5Dget_create_plist(dataset);
  hid_t type = created >= 0 ? H5Dget_type(dataset) : -1;
  brim_status status = BRIM_OK;
  if (created < 0 || type < 0) {
    status = fail_library(f, e->path);
  } else {
    brim_hdf5_number number = brim_hdf5_number_of(type);
    a->type = number.type;
    if (!number.plain) {
      a->slow = brim_tr("brim does not support its number type");
      a->type = (brim_hdf5_type){.kind = BRIM_HDF5_F32};
    } else {
      read_fill(created, type, a);
    }
    a->memory_type = brim_hdf5_memory_type(type);
    status = a->memory_type < 0 ? fail_library(f, e->path)
                                : read_layout(f, e->path, dataset, created, a);
    if (!status) status = brim_hdf5_array_check(a);
    if (!status && a->where == BRIM_HDF5_LIBRARY) status = read_library(f, e->path, keep, a);
  }
  if (type >= 0) (void)H5Tclose(type);
  if (created >= 0) (void)H5Pclose(created);
  (void)H5Dclose(dataset);
  return status;
}

static void close_handles_locked(brim_hdf5_array *a) {
  if (a->dataset >= 0) (void)H5Dclose(a->dataset);
  if (a->memory_type >= 0) (void)H5Tclose(a->memory_type);
  a->dataset = a->memory_type = -1;
}

brim_status brim_hdf5_file_array(brim_hdf5_file *f, const brim_hdf5_entry *e, uint64_t keep,
                                 brim_hdf5_array *a) {
  brim_hdf5_scope scope;
  *a = (brim_hdf5_array){
      .map = &f->map, .rank = e->rank, .outside = e->outside, .dataset = -1, .memory_type = -1};
  for (int d = 0; d < e->rank && d < BRIM_HDF5_MAX_RANK; d++) a->dim[d] = e->dim[d];
  size_t n = strlen(e->path) + 2;
  a->name = brim_alloc(n);
  if (!a->name) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  snprintf(a->name, n, "/%s", e->path);
  brim_hdf5_enter(&scope);
  brim_status status = array_locked(f, e, keep, a);
  if (status || a->where != BRIM_HDF5_LIBRARY) close_handles_locked(a);
  brim_hdf5_leave(&scope);
  if (status) brim_hdf5_array_deinit(a);
  return status;
}

void brim_hdf5_file_close_array(brim_hdf5_array *a) {
  if (a->dataset >= 0 || a->memory_type >= 0) {
    brim_hdf5_scope scope;
    brim_hdf5_enter(&scope);
    close_handles_locked(a);
    brim_hdf5_leave(&scope);
  }
  brim_hdf5_array_deinit(a);
}

//---------------------------------- labels and attributes ----------------------------------

// Labels of rows [first, first + n). `wide`: what is below 0 here is a large number without a sign.
typedef struct label_piece {
  const int64_t *values;
  uint64_t first, n;
  bool wide;
} label_piece;

static void take_labels(label_piece p, int32_t *out, brim_hdf5_whole *whole) {
  for (uint64_t i = 0; i < p.n; i++) {
    int64_t value = p.values[i];
    bool above = value >= BRIM_HDF5_MAX_CLASSES || (p.wide && value < 0);
    if ((above || value < 0) && !whole->wrong) {
      whole->wrong = true;
      whole->wrong_row = p.first + i;
      whole->wrong_value = value;
      whole->wide = p.wide;
    }
    int32_t near = above ? BRIM_HDF5_MAX_CLASSES : value < INT32_MIN ? INT32_MIN : (int32_t)value;
    if (near < whole->least) whole->least = near;
    if (near > whole->most) whole->most = near;
    out[p.first + i] = near;
  }
}

static brim_status labels_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, int64_t *piece,
                                 int32_t *out, brim_hdf5_whole *whole) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  // An enum, such as h5py's bool, is read as itself: its numbers are small.
  hid_t type = H5Dget_type(dataset);
  bool narrow = type >= 0 && H5Tget_class(type) == H5T_ENUM;
  brim_hdf5_number number = {0};
  if (type >= 0) number = brim_hdf5_number_of(type);
  bool wide = !narrow && number.plain && number.type.kind == BRIM_HDF5_U64;
  hid_t as = narrow ? type : wide ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
  size_t bytes = narrow ? H5Tget_size(type) : sizeof *piece;
  brim_status status = BRIM_OK;
  char why[REASON];
  if (type < 0) status = fail_library(f, e->path);
  if (narrow && !number.plain)
    status = fail_reason(f, e->path, brim_tr("brim does not support its number type"));
  for (uint64_t at = 0; at < e->dim[0] && !status; at += LABEL_PIECE) {
    uint64_t n = e->dim[0] - at < LABEL_PIECE ? e->dim[0] - at : LABEL_PIECE;
    const brim_hdf5_rows rows = {dataset, as, e->rank, e->dim, at, n, H5P_DEFAULT};
    if (!brim_hdf5_library_rows(&rows, piece, why)) {
      status = fail_reason(f, e->path, why);
      break;
    }
    for (uint64_t i = n; narrow && i-- > 0;) {  // widened in place, from the end
      float value;
      brim_hdf5_convert(number.type, (const uint8_t *)piece + i * bytes, 1, &value, 1);
      // Beyond what a label can be, where a float may not fit the integer.
      piece[i] = fabsf(value) < (float)INT32_MAX ? (int64_t)value : INT64_MAX;
    }
    take_labels((label_piece){piece, at, n, wide}, out, whole);
  }
  if (type >= 0) (void)H5Tclose(type);
  (void)H5Dclose(dataset);
  return status;
}

brim_status brim_hdf5_file_labels(brim_hdf5_file *f, const brim_hdf5_entry *e, int32_t *out,
                                  brim_hdf5_whole *whole) {
  brim_hdf5_scope scope;
  *whole = (brim_hdf5_whole){.least = INT32_MAX, .most = INT32_MIN};
  // A piece has room for one number of each row.
  if (!e->integer || e->rank < 1 || e->rank > 2 || (e->rank == 2 && e->dim[1] != 1))
    return brim_fail(BRIM_EINVAL, "%s: /%s: labels must be one whole number per row", f->path,
                     e->path);
  int64_t *piece = brim_alloc(LABEL_PIECE * sizeof *piece);
  if (!piece) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  brim_hdf5_enter(&scope);
  brim_status status = labels_locked(f, e, piece, out, whole);
  brim_hdf5_leave(&scope);
  brim_free(piece);
  return status;
}

brim_status brim_hdf5_file_check_labels(const brim_hdf5_file *f, const brim_hdf5_entry *e,
                                        const brim_hdf5_whole *whole) {
  if (!whole->wrong) return BRIM_OK;
  if (whole->wrong_value < 0 && !whole->wide)
    return brim_fail(BRIM_EPARSE,
                     "%s: /%s[%" PRIu64 "] is %" PRId64
                     "; labels start at 0; to train on them as regression targets set "
                     "dataset: hdf5(classes=0)",
                     f->path, e->path, whole->wrong_row, whole->wrong_value);
  return brim_fail(BRIM_EPARSE,
                   "%s: /%s[%" PRIu64 "] is %" PRIu64
                   ", expected a class from 0 to %d; to train on them as regression targets set "
                   "dataset: hdf5(classes=0)",
                   f->path, e->path, whole->wrong_row, (uint64_t)whole->wrong_value,
                   (int)BRIM_HDF5_MAX_CLASSES - 1);
}

// Room for the text of any length in one piece of rows: what the library takes is never freed singly, and
// a file whose rows are megabytes each cannot take more.
typedef struct text_room {
  uint8_t *bytes;
  size_t used;
  bool full;
} text_room;

static void *take_text(size_t size, void *ctx) {
  text_room *room = ctx;
  if (size > TEXT_ROOM - room->used) {
    room->full = true;
    return NULL;
  }
  void *out = room->bytes + room->used;
  room->used += (size + 7) / 8 * 8;
  if (room->used > TEXT_ROOM) room->used = TEXT_ROOM;
  return out;
}

static void keep_text(void *text, void *ctx) { (void)text, (void)ctx; }

// What one piece of rows is read with.
typedef struct text_job {
  brim_hdf5_rows rows;
  size_t size;  // of a row in memory: its bytes, or a pointer to them
  bool any_length, spaces;
  uint8_t *piece;
  text_room room;
  const char *what;
} text_job;

static brim_status text_piece(const brim_hdf5_file *f, const brim_hdf5_entry *e, text_job *job,
                              brim_data_classes *classes, int32_t *out) {
  char why[REASON];
  job->room.used = 0;
  memset(job->piece, 0, job->rows.count * job->size);
  if (!brim_hdf5_library_rows(&job->rows, job->piece, why)) {
    return job->room.full ? brim_data_classes_fail_long(job->what) : fail_reason(f, e->path, why);
  }
  for (uint64_t i = 0; i < job->rows.count; i++) {
    const char *text = (const char *)job->piece + i * job->size;
    size_t n = job->size;
    int32_t label;
    if (job->any_length) {
      memcpy(&text, job->piece + i * job->size, sizeof text);
      if (!text) text = "";
      n = strlen(text);
    }
    while (job->spaces && n > 0 && text[n - 1] == ' ') n--;
    BRIM_TRY(brim_data_classes_label(classes, job->what, job->rows.first + i, text, n, &label));
    if (out) out[job->rows.first + i] = label;
  }
  return BRIM_OK;
}

static brim_status text_locked(brim_hdf5_file *f, const brim_hdf5_entry *e, text_job *job,
                               brim_data_classes *classes, int32_t *out) {
  hid_t dataset;
  BRIM_TRY(open_entry(f, e, &dataset));
  hid_t type = H5Dget_type(dataset), transfer = H5Pcreate(H5P_DATASET_XFER);
  brim_status status = BRIM_OK;
  bool text = type >= 0 && H5Tget_class(type) == H5T_STRING;
  if (!text || transfer < 0 ||
      H5Pset_vlen_mem_manager(transfer, take_text, &job->room, keep_text, NULL) < 0) {
    status = fail_library(f, e->path);
  } else {
    job->any_length = H5Tis_variable_str(type) > 0;
    job->spaces = H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    job->size = job->any_length ? sizeof(char *) : H5Tget_size(type);
    job->rows = (brim_hdf5_rows){
        .dataset = dataset, .type = type, .rank = e->rank, .dim = e->dim, .transfer = transfer};
    if (!job->size || job->size > TEXT_ROOM) status = brim_data_classes_fail_long(job->what);
  }
  uint64_t most = status ? 0 : TEXT_ROOM / job->size;
  if (most > TEXT_PIECE) most = TEXT_PIECE;
  for (uint64_t at = 0; at < e->dim[0] && !status; at += most) {
    job->rows.first = at;
    job->rows.count = e->dim[0] - at < most ? e->dim[0] - at : most;
    status = text_piece(f, e, job, classes, out);
  }
  if (transfer >= 0) (void)H5Pclose(transfer);
  if (type >= 0) (void)H5Tclose(type);
  (void)H5Dclose(dataset);
  return status;
}

brim_status brim_hdf5_file_text_labels(brim_hdf5_file *f, const brim_hdf5_entry *e,
                                       brim_data_classes *classes, int32_t *out) {
  brim_hdf5_scope scope;
  brim_str what;
  brim_str_init(&what);
  brim_str_printf(&what, "%s: /%s", f->path, e->path);
  text_job job = {.piece = brim_alloc(2 * TEXT_ROOM), .what = what.data};
  brim_status status = BRIM_OK;
  if (!job.piece || brim_str_status(&what)) {
    status = brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  } else {
    job.room.bytes = job.piece + TEXT_ROOM;
    brim_hdf5_enter(&scope);
    status = text_locked(f, e, &job, classes, out);
    brim_hdf5_leave(&scope);
  }
  brim_free(job.piece);
  brim_str_deinit(&what);
  return status;
}

static hid_t open_attribute(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name) {
  if (H5Aexists_by_name(f->file, e->path, name, f->access) <= 0) return -1;
  return H5Aopen_by_name(f->file, e->path, name, H5P_DEFAULT, f->access);
}

bool brim_hdf5_file_floats(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name,
                           float *out, size_t room, size_t *count) {
  brim_hdf5_scope scope;
  *count = 0;
  brim_hdf5_enter(&scope);
  hid_t attribute = open_attribute(f, e, name);
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
  if (n > 0 && (size_t)n <= room && H5Aread(attribute, H5T_NATIVE_FLOAT, out) >= 0)
    *count = (size_t)n;
  if (space >= 0) (void)H5Sclose(space);
  if (attribute >= 0) (void)H5Aclose(attribute);
  brim_hdf5_leave(&scope);
  return attribute >= 0;
}

static void read_text(hid_t attribute, hid_t type, char *out, size_t room) {
  size_t size = H5Tget_size(type);
  if (H5Tis_variable_str(type) > 0) {
    char *text = NULL;
    if (H5Aread(attribute, type, &text) >= 0 && text) snprintf(out, room, "%s", text);
    if (text) (void)H5free_memory(text);
  } else if (size > 0 && size < room) {
    if (H5Aread(attribute, type, out) < 0) size = 0;
    out[size] = 0;
  }
}

bool brim_hdf5_file_text(brim_hdf5_file *f, const brim_hdf5_entry *e, const char *name, char *out,
                         size_t room) {
  brim_hdf5_scope scope;
  out[0] = 0;
  brim_hdf5_enter(&scope);
  hid_t attribute = open_attribute(f, e, name);
  hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  if (type >= 0 && H5Tget_class(type) == H5T_STRING && space >= 0 &&
      H5Sget_simple_extent_npoints(space) == 1)
    read_text(attribute, type, out, room);
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  if (attribute >= 0) (void)H5Aclose(attribute);
  brim_hdf5_leave(&scope);
  return attribute >= 0;
}
