// Packed HDF5 files. Writing: the library lays contiguous datasets out, brim fills them by plain
// writes at their offset; chunks are packed by all threads (shuffle, deflate) and handed over ready.
// Either way the library, which has one lock, handles only metadata, and brim sees a full disk as the
// error of a write. Listing: every dataset with its shape, type and storage, and names of classes, for
// `brim data info`. Samples are read by data_hdf5.c.
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/hdf5/data_hdf5.h"
#include "data/pack/data_pack.h"
#include "data/pack/data_pack_int.h"

//---------------------------------- writing ----------------------------------

enum { CHUNK_BYTES = 256 << 10 };  // default chunk size with deflate

typedef struct hdf5_writer {
  brim_hdf5_out out;
  hid_t file, group, x, y;      // < 0 = not open
  uint64_t x_offset, y_offset;  // of contiguous data; HADDR_UNDEF = chunked or none
  uint64_t chunk;               // samples; 0 = contiguous
  // Room for chunks, one of each per thread of the pool.
  uint8_t *packed, *shuffled;
  size_t packed_bytes;  // room for one
} hdf5_writer;

//---------------------------------- errors ----------------------------------

static brim_status check_written(const brim_pack *pack) {
  const hdf5_writer *w = pack->state;
  if (!w->out.err) return BRIM_OK;
  brim_status status = w->out.err == ENOMEM ? BRIM_ENOMEM : BRIM_EIO;
  return brim_fail(status, "cannot write %s: %s", pack->path, brim_errno_text(w->out.err));
}

// Fails with the library's innermost message.
static brim_status fail_hdf5(const brim_pack *pack) {
  char text[256];
  BRIM_TRY(check_written(pack));
  return brim_fail(BRIM_EIO, "cannot write %s: libhdf5: %s", pack->path,
                   brim_hdf5_reason(text, sizeof text));
}

#define TRY_HDF5(expr)                      \
  do {                                      \
    if ((expr) < 0) return fail_hdf5(pack); \
  } while (0)

//---------------------------------- open ----------------------------------

static brim_status open_locked(brim_pack *pack) {
  hdf5_writer *w = brim_calloc(1, sizeof *w);
  if (!w) return brim_pack_no_memory(pack);
  pack->state = w;
  w->out.driver = w->file = w->group = w->x = w->y = -1;
  w->out.fd = open(pack->temp, O_RDWR | O_CLOEXEC);
  if (w->out.fd < 0) {
    return brim_fail(brim_errno_status(errno), "cannot write %s: %s", pack->path,
                     brim_errno_text(errno));
  }
  w->file = brim_hdf5_out_create(&w->out, pack->temp);
  return w->file >= 0 ? BRIM_OK : fail_hdf5(pack);
}

typedef brim_status (*locked_fn)(brim_pack *pack);

// Runs fn under the library's lock, which also guards its error message.
static brim_status with_lock(brim_pack *pack, locked_fn fn) {
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  brim_status status = fn(pack);
  brim_hdf5_leave(&scope);
  return status;
}

static brim_status hdf5_open(brim_pack *pack) { return with_lock(pack, open_locked); }

//---------------------------------- attributes ----------------------------------

static brim_status put_attribute(brim_pack *pack, hid_t at, const char *name, hid_t type,
                                 hsize_t count, const void *values) {
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  bool good = attribute >= 0 && H5Awrite(attribute, type, values) >= 0;
  brim_status status = good ? BRIM_OK : fail_hdf5(pack);
  if (attribute >= 0) H5Aclose(attribute);
  if (space >= 0) H5Sclose(space);
  return status;
}

// Writes fixed-size strings, which every reader understands. `bytes` is the room of one string.
static brim_status put_strings(brim_pack *pack, hid_t at, const char *name, const char *text,
                               size_t bytes, hsize_t count) {
  hid_t type = H5Tcopy(H5T_C_S1);
  bool good = type >= 0 && H5Tset_size(type, bytes) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
  brim_status status = good ? put_attribute(pack, at, name, type, count, text) : fail_hdf5(pack);
  if (type >= 0) H5Tclose(type);
  return status;
}

// Attributes must fit an object header of 64 KiB, so thousands of classes go without names.
static brim_status put_class_names(brim_pack *pack, hid_t at) {
  size_t count = pack->options.class_count, longest = 1;
  if (!pack->options.class_names || (int64_t)count != pack->info.classes) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(pack->options.class_names[i]) + 1;
    if (n > longest) longest = n;
  }
  if (count * longest > 60000) return BRIM_OK;
  char *text = brim_calloc(count, longest);
  if (!text) return brim_pack_no_memory(pack);
  for (size_t i = 0; i < count; i++) {
    snprintf(text + i * longest, longest, "%s", pack->options.class_names[i]);
  }
  brim_status status = put_strings(pack, at, "class_names", text, longest, count);
  brim_free(text);
  return status;
}

static brim_status describe_inputs(brim_pack *pack, hid_t at) {
  const brim_source_info *info = &pack->info;
  const char *layout = info->rank == 3 ? "NHWC" : info->rank == 2 ? "NHW" : "N...";
  if (info->type != BRIM_SAMPLE_U8) layout = "N...";
  BRIM_TRY(put_strings(pack, at, "layout", layout, strlen(layout) + 1, 0));
  if (info->channels < 1) return BRIM_OK;
  hsize_t n = (hsize_t)info->channels;
  BRIM_TRY(put_attribute(pack, at, "mean", H5T_NATIVE_FLOAT, n, info->mean));
  return put_attribute(pack, at, "std", H5T_NATIVE_FLOAT, n, info->std);
}

static brim_status describe_targets(brim_pack *pack, hid_t at) {
  if (pack->info.classes < 1) return BRIM_OK;
  BRIM_TRY(put_attribute(pack, at, "classes", H5T_NATIVE_INT64, 0, &pack->info.classes));
  return put_class_names(pack, at);
}

static brim_status put_attributes(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  BRIM_TRY(describe_inputs(pack, w->group));
  BRIM_TRY(describe_targets(pack, w->group));
  BRIM_TRY(describe_inputs(pack, w->x));
  return w->y >= 0 ? describe_targets(pack, w->y) : BRIM_OK;
}

//---------------------------------- datasets ----------------------------------

static brim_status set_layout(brim_pack *pack, hid_t plist, int rank, const hsize_t *dims,
                              uint64_t chunk) {
  if (!chunk) {
    TRY_HDF5(H5Pset_layout(plist, H5D_CONTIGUOUS));
    TRY_HDF5(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY));  // the offset is known at once
    TRY_HDF5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER));
    return BRIM_OK;
  }
  hsize_t sizes[BRIM_SOURCE_MAX_RANK + 1];
  memcpy(sizes, dims, (size_t)rank * sizeof *sizes);
  sizes[0] = chunk;
  TRY_HDF5(H5Pset_chunk(plist, rank, sizes));
  TRY_HDF5(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER));
  if (pack->options.shuffle) TRY_HDF5(H5Pset_shuffle(plist));
  if (pack->options.deflate) TRY_HDF5(H5Pset_deflate(plist, (unsigned)pack->options.deflate));
  return BRIM_OK;
}

static brim_status make_dataset(brim_pack *pack, const char *name, hid_t type, int rank,
                                const hsize_t *dims, uint64_t chunk, hid_t *out) {
  hdf5_writer *w = pack->state;
  hid_t space = H5Screate_simple(rank, dims, NULL),
        plist = brim_hdf5_out_create_plist(H5P_DATASET_CREATE);
  brim_status status =
      space >= 0 && plist >= 0 ? set_layout(pack, plist, rank, dims, chunk) : fail_hdf5(pack);
  if (!status) {
    *out = H5Dcreate2(w->group, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (*out < 0) status = fail_hdf5(pack);
  }
  if (plist >= 0) H5Pclose(plist);
  if (space >= 0) H5Sclose(space);
  return status;
}

static brim_status offset_of(brim_pack *pack, hid_t dataset, uint64_t *out) {
  haddr_t at = H5Dget_offset(dataset);
  if (at == HADDR_UNDEF) return fail_hdf5(pack);
  *out = at;
  return BRIM_OK;
}

// Samples in a chunk: as requested, at most all samples, and within the library's limit of 4 GiB.
static brim_status choose_chunk(const brim_pack *pack, uint64_t *out) {
  uint64_t chunk = (uint64_t)pack->options.chunk;
  if (!chunk && (pack->options.deflate || pack->options.shuffle)) {
    chunk = CHUNK_BYTES / pack->input_bytes;
    if (!chunk) chunk = 1;
  }
  if (chunk > pack->info.count) chunk = pack->info.count;
  if (chunk > UINT32_MAX / pack->input_bytes) {
    return brim_fail(BRIM_EINVAL,
                     "a chunk of %llu samples exceeds HDF5's limit of 4 GiB; use fewer samples",
                     (unsigned long long)chunk);
  }
  *out = chunk;
  return BRIM_OK;
}

static brim_status make_room(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  if (!w->chunk) return BRIM_OK;
  size_t threads = (size_t)brim_pool_threads(pack->options.pool);
  size_t raw = (size_t)w->chunk * pack->input_bytes;
  w->packed_bytes = compressBound((uLong)raw);
  w->packed = brim_alloc_tagged(threads * w->packed_bytes, BRIM_MEM_PLANNED);
  w->shuffled = brim_alloc_tagged(threads * raw, BRIM_MEM_PLANNED);
  return w->packed && w->shuffled ? BRIM_OK : brim_pack_no_memory(pack);
}

static brim_status open_group(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  if (strcmp(pack->split, "all") == 0) {
    w->group = H5Gopen2(w->file, "/", H5P_DEFAULT);
  } else {
    hid_t plist = brim_hdf5_out_create_plist(H5P_GROUP_CREATE);
    if (plist >= 0) w->group = H5Gcreate2(w->file, pack->split, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (plist >= 0) H5Pclose(plist);
  }
  return w->group >= 0 ? BRIM_OK : fail_hdf5(pack);
}

static brim_status begin_locked(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  const brim_source_info *info = &pack->info;
  hsize_t dims[BRIM_SOURCE_MAX_RANK + 1] = {info->count};
  for (int i = 0; i < info->rank; i++) dims[i + 1] = (hsize_t)info->dim[i];
  BRIM_TRY(choose_chunk(pack, &w->chunk));
  BRIM_TRY(make_room(pack));
  BRIM_TRY(open_group(pack));
  hid_t type = info->type == BRIM_SAMPLE_U8 ? H5T_STD_U8LE : H5T_IEEE_F32LE;
  BRIM_TRY(make_dataset(pack, "x", type, info->rank + 1, dims, w->chunk, &w->x));
  w->x_offset = w->y_offset = HADDR_UNDEF;
  if (!w->chunk) BRIM_TRY(offset_of(pack, w->x, &w->x_offset));
  if (pack->target_bytes) {
    dims[1] = (hsize_t)info->target_dim;
    type = info->classes > 0 ? H5T_STD_I32LE : H5T_IEEE_F32LE;
    BRIM_TRY(make_dataset(pack, "y", type, info->classes > 0 ? 1 : 2, dims, 0, &w->y));
    BRIM_TRY(offset_of(pack, w->y, &w->y_offset));
  }
  return put_attributes(pack);
}

static brim_status hdf5_begin(brim_pack *pack) { return with_lock(pack, begin_locked); }

//---------------------------------- samples ----------------------------------

static brim_status write_data(brim_pack *pack, const void *data, size_t size, uint64_t offset) {
  brim_hdf5_out_write(&((hdf5_writer *)pack->state)->out, data, size, offset);
  return check_written(pack);
}

// HDF5's shuffle: the first bytes of all elements, then the second ones, ...
static void shuffle(const uint8_t *in, size_t element, size_t bytes, uint8_t *out) {
  size_t n = bytes / element;
  for (size_t b = 0; b < element; b++) {
    for (size_t i = 0; i < n; i++) out[b * n + i] = in[i * element + b];
  }
}

// Packs the chunks of one block, in rounds of one chunk a thread.
typedef struct chunk_job {
  const brim_pack *pack;
  const uint8_t *inputs;
  uint64_t first;  // number of the chunk that begins at inputs[0]
  uint64_t count;  // samples in inputs
  int64_t base;    // first chunk of this round
  // For each slot of the round: the packed chunk, its bytes, and whether deflate failed.
  const uint8_t **data;
  size_t *size;
  bool *failed;
} chunk_job;

// The last chunk is as large as the others, padded with zeros.
static void pack_chunk(chunk_job *job, int64_t chunk, int64_t slot) {
  const brim_pack *pack = job->pack;
  const hdf5_writer *w = pack->state;
  size_t raw = (size_t)w->chunk * pack->input_bytes;
  size_t element = pack->info.type == BRIM_SAMPLE_U8 ? 1 : sizeof(float);
  uint64_t done = (uint64_t)chunk * w->chunk;
  uint64_t here = job->count - done < w->chunk ? job->count - done : w->chunk;
  const uint8_t *in = job->inputs + done * pack->input_bytes;
  uint8_t *work = w->shuffled + (size_t)slot * raw,
          *packed = w->packed + (size_t)slot * w->packed_bytes;
  // Pad in `packed`, then copy or shuffle to `work`: shuffle cannot work in place.
  if (here < w->chunk) {
    size_t bytes = (size_t)here * pack->input_bytes;
    memcpy(packed, in, bytes);
    memset(packed + bytes, 0, raw - bytes);
    in = packed;
  }
  if ((pack->options.shuffle && element > 1) || in == packed) {
    shuffle(in, pack->options.shuffle ? element : 1, raw, work);
    in = work;
  }
  job->data[slot] = in;
  job->size[slot] = raw;
  job->failed[slot] = false;
  if (!pack->options.deflate) return;
  uLongf size = (uLongf)w->packed_bytes;
  job->failed[slot] = compress2(packed, &size, in, (uLong)raw, pack->options.deflate) != Z_OK;
  job->data[slot] = packed;
  job->size[slot] = size;
}

static void pack_range(void *ctx, int64_t begin, int64_t end, int thread) {
  chunk_job *job = ctx;
  (void)thread;
  for (int64_t i = begin; i < end; i++) pack_chunk(job, job->base + i, i);
}

static brim_status write_chunk(brim_pack *pack, uint64_t chunk, const void *data, size_t size) {
  hdf5_writer *w = pack->state;
  hsize_t at[BRIM_SOURCE_MAX_RANK + 1] = {chunk * w->chunk};
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  bool good = H5Dwrite_chunk(w->x, H5P_DEFAULT, 0, at, size, data) >= 0;
  brim_status status = good ? check_written(pack) : fail_hdf5(pack);
  brim_hdf5_leave(&scope);
  return status;
}

static brim_status put_chunks(brim_pack *pack, const void *inputs, uint64_t count) {
  hdf5_writer *w = pack->state;
  int64_t threads = brim_pool_threads(pack->options.pool);
  int64_t chunks = (int64_t)((count + w->chunk - 1) / w->chunk);
  const uint8_t **data = brim_calloc((size_t)threads, sizeof *data);
  size_t *size = brim_calloc((size_t)threads, sizeof *size);
  bool *failed = brim_calloc((size_t)threads, sizeof *failed);
  chunk_job job = {.pack = pack,
                   .inputs = inputs,
                   .first = pack->written / w->chunk,
                   .count = count,
                   .data = data,
                   .size = size,
                   .failed = failed};
  brim_status status = data && size && failed ? BRIM_OK : brim_pack_no_memory(pack);
  for (; job.base < chunks && !status; job.base += threads) {
    int64_t n = chunks - job.base < threads ? chunks - job.base : threads;
    brim_pool_run(pack->options.pool, n, pack_range, &job);
    for (int64_t i = 0; i < n && !status; i++) {
      if (failed[i]) status = brim_pack_no_memory(pack);  // deflate fails only for lack of memory
      if (!status)
        status = write_chunk(pack, job.first + (uint64_t)(job.base + i), data[i], size[i]);
    }
  }
  brim_free(data);
  brim_free(size);
  brim_free(failed);
  return status;
}

static brim_status hdf5_put(brim_pack *pack, const void *inputs, const void *targets,
                            uint64_t count) {
  hdf5_writer *w = pack->state;
  if (w->chunk) {
    BRIM_TRY(put_chunks(pack, inputs, count));
  } else {
    BRIM_TRY(write_data(pack, inputs, (size_t)count * pack->input_bytes,
                        w->x_offset + pack->written * pack->input_bytes));
  }
  if (!pack->target_bytes) return BRIM_OK;
  return write_data(pack, targets, (size_t)count * pack->target_bytes,
                    w->y_offset + pack->written * pack->target_bytes);
}

static uint64_t hdf5_granule(const brim_pack *pack) {
  const hdf5_writer *w = pack->state;
  return w->chunk ? w->chunk : 1;
}

//---------------------------------- the end ----------------------------------

static brim_status end_locked(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  bool good = true;
  if (w->x >= 0) good = H5Dclose(w->x) >= 0 && good;
  if (w->y >= 0) good = H5Dclose(w->y) >= 0 && good;
  if (w->group >= 0) good = H5Gclose(w->group) >= 0 && good;
  w->x = w->y = w->group = -1;
  brim_free(w->packed);
  brim_free(w->shuffled);
  w->packed = w->shuffled = NULL;
  return good ? BRIM_OK : fail_hdf5(pack);
}

static brim_status hdf5_end(brim_pack *pack) { return with_lock(pack, end_locked); }

static brim_status close_locked(brim_pack *pack) {
  hdf5_writer *w = pack->state;
  brim_status status = end_locked(pack);
  if (w->file >= 0 && H5Fclose(w->file) < 0 && !status) status = fail_hdf5(pack);
  if (!status) status = check_written(pack);
  brim_hdf5_out_close(&w->out);
  return status;
}

static brim_status hdf5_close(brim_pack *pack, bool good) {
  hdf5_writer *w = pack->state;
  if (!w) return BRIM_OK;
  if (!good && !w->out.err) w->out.err = ECANCELED;  // nothing more need be written
  brim_status status = with_lock(pack, close_locked);
  if (w->out.fd >= 0) close(w->out.fd);
  brim_free(w);
  pack->state = NULL;
  return status;
}

const brim_pack_writer brim_pack_writer_hdf5 = {
    .open = hdf5_open,
    .begin = hdf5_begin,
    .put = hdf5_put,
    .end = hdf5_end,
    .close = hdf5_close,
    .granule = hdf5_granule,
};

//---------------------------------- what a file holds ----------------------------------

enum { MAX_ENTRIES = 1000 };

static void type_text(hid_t type, char *out, size_t size) {
  H5T_class_t class = H5Tget_class(type);
  unsigned bits = 8 * (unsigned)H5Tget_size(type);
  const char *order = bits > 8 && H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : "";
  if (class == H5T_INTEGER) {
    snprintf(out, size, "%sint%u%s", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits, order);
  } else if (class == H5T_FLOAT) {
    snprintf(out, size, "float%u%s", bits, order);
  } else {
    snprintf(out, size, "%s",
             class == H5T_STRING     ? "string"
             : class == H5T_COMPOUND ? "compound"
             : class == H5T_ENUM     ? "enum"
                                     : "other");
  }
}

static void add_filters(hid_t plist, char *out, size_t size) {
  for (int i = 0; i < H5Pget_nfilters(plist); i++) {
    unsigned flags, values[8] = {0};
    size_t count = 8;
    char name[32] = "";
    H5Z_filter_t id =
        H5Pget_filter2(plist, (unsigned)i, &flags, &count, values, sizeof name, name, NULL);
    size_t used = strlen(out);
    if (id == H5Z_FILTER_DEFLATE) {
      snprintf(out + used, size - used, ", deflate %u", values[0]);
    } else {
      snprintf(out + used, size - used, ", %s",
               id == H5Z_FILTER_SHUFFLE ? "shuffle"
               : name[0]                ? name
                                        : "another filter");
    }
  }
}

static void storage_text(hid_t plist, char *out, size_t size) {
  hsize_t dims[H5S_MAX_RANK];
  int rank;
  switch (H5Pget_layout(plist)) {
    case H5D_CONTIGUOUS:
      snprintf(out, size, H5Pget_external_count(plist) > 0 ? "external files" : "contiguous");
      return;
    case H5D_COMPACT:
      snprintf(out, size, "compact");
      return;
    case H5D_CHUNKED:
      snprintf(out, size, "chunked (");
      rank = H5Pget_chunk(plist, H5S_MAX_RANK, dims);
      for (int i = 0; i < rank; i++) {
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
      }
      strncat(out, ")", size - strlen(out) - 1);
      add_filters(plist, out, size);
      return;
    default:
      snprintf(out, size, "virtual");
  }
}

static void fill_entry(hid_t dataset, brim_pack_dataset *out) {
  hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  hid_t plist = H5Dget_create_plist(dataset);
  hsize_t dims[H5S_MAX_RANK];
  out->rank = H5Sget_simple_extent_dims(space, dims, NULL);
  if (out->rank < 0) out->rank = 0;
  if (out->rank > 8) out->rank = 8;
  for (int i = 0; i < out->rank; i++) out->dim[i] = (int64_t)dims[i];
  type_text(type, out->type, sizeof out->type);
  storage_text(plist, out->storage, sizeof out->storage);
  out->bytes = H5Dget_storage_size(dataset);
  if (plist >= 0) H5Pclose(plist);
  if (type >= 0) H5Tclose(type);
  if (space >= 0) H5Sclose(space);
}

// Lists a dataset as a source does: behind links too, each name once. If it cannot be opened, the
// reason takes the place of its storage.
static void list_one(const brim_hdf5_file *f, const brim_hdf5_entry *e, brim_pack_dataset *out) {
  char why[BRIM_HDF5_REASON] = "";
  hid_t dataset = e->outside ? brim_hdf5_library_dataset(&f->map, f->file, e->path, f->outside, why)
                             : H5Dopen2(f->file, e->path, f->access);
  if (dataset < 0 && !e->outside) brim_hdf5_reason(why, sizeof why);
  if (dataset >= 0 && e->outside && brim_hdf5_sources_wait(f->path, dataset, why, sizeof why)) {
    // A source file of this virtual dataset would block: do not ask for the shape.
    H5Dclose(dataset);
    dataset = -1;
  }
  snprintf(out->name, sizeof out->name, "/%s", e->path);
  if (dataset < 0) {
    snprintf(out->type, sizeof out->type, "%s", e->link ? "link" : "damaged");
    snprintf(out->storage, sizeof out->storage, "%s", e->trouble ? e->trouble : why);
    return;
  }
  fill_entry(dataset, out);
  H5Dclose(dataset);
}

static brim_status list_locked(const brim_hdf5_file *f, brim_pack_dataset **out, size_t *count) {
  size_t n = f->entry_count < MAX_ENTRIES ? f->entry_count : MAX_ENTRIES;
  brim_pack_dataset *list = brim_calloc(n + 1, sizeof *list);
  if (!list) return brim_fail(BRIM_ENOMEM, "%s: out of memory", f->path);
  for (size_t i = 0; i < n; i++) list_one(f, &f->entries[i], &list[i]);
  *out = list;
  *count = n;
  return BRIM_OK;
}

static brim_status list_file(const char *path, bool outside, brim_pack_dataset **out,
                             size_t *count) {
  brim_hdf5_file f;
  brim_hdf5_scope scope;
  BRIM_TRY(brim_hdf5_file_open(path, NULL, 0, outside, &f));
  brim_hdf5_enter(&scope);
  brim_status status = list_locked(&f, out, count);
  brim_hdf5_leave(&scope);
  brim_hdf5_file_close(&f);
  return status;
}

// Runs in the helper program: lists the file once and throws the result away, so that a damaged file
// crashes the helper and not brim.
void brim_pack_job_list(const brim_hdf5_job *job) {
  brim_pack_dataset *sets = NULL;
  size_t count = 0;
  (void)list_file(job->at, brim_hdf5_job_int(job, "outside") != 0, &sets, &count);
}

// Lists the file in the helper program first; fails if the helper did.
static brim_status probe_list(const char *path, bool outside) {
  brim_hdf5_request r;
  brim_hdf5_request_init(&r, "list");
  brim_hdf5_request_int(&r, "outside", outside);
  brim_status status = brim_hdf5_probe(path, &r);
  brim_hdf5_request_deinit(&r);
  return status;
}

brim_status brim_pack_list(const char *path, bool outside, brim_pack_dataset **out, size_t *count) {
  *out = NULL;
  *count = 0;
  BRIM_TRY(probe_list(path, outside));
  return list_file(path, outside, out, count);
}

//---------------------------------- names of classes ----------------------------------

// Reads the strings of an attribute or a dataset, of fixed or any length; NULL in *names if it is
// something else.
static brim_status read_names(brim_arena *arena, hid_t object, hid_t type, size_t count,
                              const char *const **names) {
  bool dataset = H5Iget_type(object) == H5I_DATASET;
  bool variable = H5Tis_variable_str(type) > 0;
  size_t size = variable ? sizeof(char *) : H5Tget_size(type);
  if (size == 0 || size > 4096) return BRIM_OK;
  const char **list = brim_arena_calloc(arena, count + 1, sizeof *list);
  char *data = brim_calloc(count, size);
  brim_status status = list && data ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory");
  bool good = !status && (dataset ? H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data)
                                  : H5Aread(object, type, data)) >= 0;
  for (size_t i = 0; i < count && good && !status; i++) {
    const char *text = data + i * size;
    if (variable) memcpy(&text, data + i * size, sizeof text);
    list[i] = variable ? brim_arena_strdup(arena, text ? text : "")
                       : brim_arena_strndup(arena, text, strnlen(text, size));
    if (!list[i]) status = brim_fail(BRIM_ENOMEM, "out of memory");
  }
  if (good && variable) {
    hid_t space = dataset ? H5Dget_space(object) : H5Aget_space(object);
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    H5Sclose(space);
  }
  brim_free(data);
  if (good && !status) *names = list;
  return status;
}

static brim_status read_attribute(brim_arena *arena, const brim_hdf5_file *f, const char *object,
                                  int64_t classes, const char *const **names) {
  if (H5Aexists_by_name(f->file, object, "class_names", f->access) <= 0) return BRIM_OK;
  hid_t attribute = H5Aopen_by_name(f->file, object, "class_names", H5P_DEFAULT, f->access);
  hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
  hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
  brim_status status = BRIM_OK;
  bool text = type >= 0 && H5Tget_class(type) == H5T_STRING;
  hssize_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
  if (text && count == classes) {
    status = read_names(arena, attribute, type, (size_t)classes, names);
  }
  if (!status && !*names) {
    brim_log_warn(
        "data",
        "%s: brim ignores the attribute class_names of %s: expected %lld names, found %lld %s",
        f->path, object, (long long)classes, (long long)count,
        text ? brim_tr("of them") : brim_tr("values that are no text"));
  }
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
  return status;
}

// Reads the names from a dataset such as list_classes of the cat/non-cat files.
static brim_status read_list(brim_arena *arena, const brim_hdf5_file *f, const char *name,
                             int64_t classes, const char *const **names) {
  H5L_info_t link;
  char other[16];
  if (H5Lexists(f->file, name, H5P_DEFAULT) <= 0) return BRIM_OK;
  if (H5Lget_info(f->file, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) {
    return BRIM_OK;
  }
  hid_t dataset = H5Oopen(f->file, name, H5P_DEFAULT);
  if (dataset < 0) return BRIM_OK;
  if (H5Iget_type(dataset) != H5I_DATASET) {
    H5Oclose(dataset);
    return BRIM_OK;
  }
  hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  brim_status status = BRIM_OK;
  if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
      !brim_hdf5_outside(f, dataset, other, sizeof other) &&
      H5Sget_simple_extent_npoints(space) == classes) {
    status = read_names(arena, dataset, type, (size_t)classes, names);
  }
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  H5Oclose(dataset);
  return status;
}

static brim_status names_locked(brim_arena *arena, const brim_hdf5_file *f, const char *split,
                                int64_t classes, const char *const **names) {
  char y[64];
  snprintf(y, sizeof y, "%s/y", split);
  const char *const places[] = {split, y, "/", "y"};
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < sizeof places / sizeof places[0] && !status && !*names; i++) {
    // A path through a missing group is an error of the library, not an absent attribute.
    if (i < 2 && H5Lexists(f->file, split, f->access) <= 0) continue;
    status = read_attribute(arena, f, places[i], classes, names);
  }
  for (const char *const *name = brim_hdf5_class_lists; *name && !status && !*names; name++) {
    status = read_list(arena, f, *name, classes, names);
  }
  return status;
}

typedef struct names_job {
  brim_arena *arena;
  const char *split;
  int64_t classes;
  bool outside;
} names_job;

// A file that cannot be opened has no names; reading its samples reports why.
static brim_status names_of(const names_job *job, const char *path, const char *const **names) {
  brim_hdf5_file f;
  brim_hdf5_scope scope;
  *names = NULL;
  brim_status status = brim_hdf5_file_open(path, NULL, 0, job->outside, &f);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  brim_hdf5_enter(&scope);
  status = names_locked(job->arena, &f, job->split, job->classes, names);
  brim_hdf5_leave(&scope);
  brim_hdf5_file_close(&f);
  return status;
}

// Runs in the helper program, like brim_pack_job_list.
void brim_pack_job_names(const brim_hdf5_job *job) {
  brim_arena *arena = NULL;
  const char *const *names;
  if (brim_arena_create(0, &arena)) return;
  const names_job own = {.arena = arena,
                         .split = brim_hdf5_job_text(job, "split"),
                         .classes = brim_hdf5_job_int(job, "classes"),
                         .outside = brim_hdf5_job_int(job, "outside") != 0};
  if (own.split) (void)names_of(&own, job->at, &names);
}

// Reads the names in the helper program first; fails if the helper did.
static brim_status probe_names(const names_job *job, const char *path) {
  brim_hdf5_request r;
  brim_hdf5_request_init(&r, "names");
  brim_hdf5_request_text(&r, "split", job->split);
  brim_hdf5_request_int(&r, "classes", job->classes);
  brim_hdf5_request_int(&r, "outside", job->outside);
  brim_status status = brim_hdf5_probe(path, &r);
  brim_hdf5_request_deinit(&r);
  return status;
}

brim_status brim_pack_class_names(brim_arena *arena, const char *path, const char *split,
                                  int64_t classes, bool outside, const char *const **names) {
  names_job job = {.arena = arena, .split = split, .classes = classes, .outside = outside};
  *names = NULL;
  BRIM_TRY(probe_names(&job, path));
  return names_of(&job, path, names);
}
