// Writing packed HDF5 through libhdf5. Contiguous datasets are laid out by the library and filled by
// plain writes at their offset; chunks are packed by all threads (shuffle, deflate) and handed to it
// ready. Either way the library, which has one lock, only moves metadata, and a full disk is an
// error of one write. Not for reading: data_hdf5.c.
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/hdf5/data_hdf5_out.h"
#include "data/pack/data_pack_int.h"

enum { CHUNK_BYTES = 256 << 10 };  // of a chunk that deflate asks for and no option sets

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

// What the library says at the innermost place.
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

// Every call of the library stands under its lock, what it says went wrong included.
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

// Fixed-size strings: the plainest form, which every reader knows. `bytes` is one string's room.
static brim_status put_strings(brim_pack *pack, hid_t at, const char *name, const char *text,
                               size_t bytes, hsize_t count) {
  hid_t type = H5Tcopy(H5T_C_S1);
  bool good = type >= 0 && H5Tset_size(type, bytes) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
  brim_status status = good ? put_attribute(pack, at, name, type, count, text) : fail_hdf5(pack);
  if (type >= 0) H5Tclose(type);
  return status;
}

// Attributes live in an object header of at most 64 KiB; thousands of classes go without names.
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
        plist = brim_hdf5_out_timeless(H5P_DATASET_CREATE);
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

// Samples in a chunk: as asked for, at most all; of the library's limit of 4 GiB at any rate.
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
    hid_t plist = brim_hdf5_out_timeless(H5P_GROUP_CREATE);
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

// Chunks of one block, a thread's share of which are packed at a time.
typedef struct chunk_job {
  const brim_pack *pack;
  const uint8_t *inputs;
  uint64_t first, count;  // chunk of inputs[0]; samples there
  int64_t base;           // first chunk of this round
  const uint8_t **data;   // what became of each
  size_t *size;
  bool *failed;
} chunk_job;

// A chunk at the end of the data is as large as the others, filled up with zeros.
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
  if (here < w->chunk) {  // in `packed` first: shuffle needs both
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
      if (failed[i]) status = brim_pack_no_memory(pack);  // deflate fails of nothing else
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
