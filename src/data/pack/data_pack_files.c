// Writing plain files. IDX, CIFAR and STL-10: bytes in the order that their sources read; two files
// are open at a time, samples and, where they are apart, labels. Folders of images,
// SPLIT/CLASS/NUMBER.png or .jpg: every thread encodes and writes its share of a block. NUMBER is the
// sample's, so that names sort in the set's order. The files are synced together before the folder
// takes its name (data_pack.c).
#include <stdio.h>

#include <errno.h>
#include <fcntl.h>
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/pack/data_pack_int.h"

//---------------------------------- IDX, CIFAR, STL-10 ----------------------------------

enum { TRAIN_FILES = 5, RECORD_MAX = BRIM_STL10_IMAGE };

typedef struct files_writer {
  brim_fs_writer *samples, *labels;
  uint64_t file;  // CIFAR-10: number of the next file
  uint64_t left;  // samples until it begins
  uint8_t record[RECORD_MAX];
} files_writer;

static brim_status files_open(brim_pack *pack) {
  pack->state = brim_calloc(1, sizeof(files_writer));
  return pack->state ? BRIM_OK : brim_pack_no_memory(pack);
}

static brim_status open_one(brim_pack *pack, const char *name, brim_fs_writer **out) {
  char *path = brim_fs_join(pack->temp, name);
  if (!path) return brim_pack_no_memory(pack);
  brim_status status = brim_fs_writer_open(path, out);
  brim_free(path);
  return status;
}

static brim_status close_one(brim_fs_writer **writer) {
  brim_fs_writer *w = *writer;
  *writer = NULL;
  return w ? brim_fs_writer_commit(w) : BRIM_OK;
}

static brim_status put_be32(brim_fs_writer *w, uint32_t v) {
  uint8_t bytes[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
  return brim_fs_writer_write(w, bytes, sizeof bytes);
}

//---------------------------------- IDX ----------------------------------

// Labels are bytes if they fit, else 32-bit; numbers are floats.
static uint32_t label_type(const brim_pack *pack) {
  return pack->info.classes == 0 ? 0x0d : pack->info.classes <= 256 ? 0x08 : 0x0c;
}

static brim_status begin_idx(brim_pack *pack) {
  files_writer *w = pack->state;
  const brim_source_info *info = &pack->info;
  bool train = strcmp(pack->split, "train") == 0;
  uint32_t count = (uint32_t)info->count, rank = (uint32_t)info->rank + 1;
  BRIM_TRY(
      open_one(pack, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", &w->samples));
  BRIM_TRY(
      open_one(pack, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", &w->labels));
  BRIM_TRY(put_be32(w->samples, (info->type == BRIM_SAMPLE_U8 ? 0x0800u : 0x0d00u) | rank));
  BRIM_TRY(put_be32(w->samples, count));
  for (int i = 0; i < info->rank; i++) BRIM_TRY(put_be32(w->samples, (uint32_t)info->dim[i]));
  BRIM_TRY(put_be32(w->labels, label_type(pack) << 8 | (info->classes == 0 ? 2u : 1u)));
  BRIM_TRY(put_be32(w->labels, count));
  return info->classes == 0 ? put_be32(w->labels, (uint32_t)info->target_dim) : BRIM_OK;
}

static brim_status put_words(brim_fs_writer *out, const void *data, size_t bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t v;
    memcpy(&v, p + i, sizeof v);
    BRIM_TRY(put_be32(out, v));
  }
  return BRIM_OK;
}

static brim_status put_idx(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                           uint64_t count) {
  files_writer *w = pack->state;
  size_t bytes = (size_t)count * pack->input_bytes;
  BRIM_TRY(pack->info.type == BRIM_SAMPLE_U8 ? brim_fs_writer_write(w->samples, inputs, bytes)
                                             : put_words(w->samples, inputs, bytes));
  if (label_type(pack) != 0x08)
    return put_words(w->labels, targets, (size_t)count * pack->target_bytes);
  for (uint64_t i = 0; i < count; i++) {
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    uint8_t byte = (uint8_t)label;
    BRIM_TRY(brim_fs_writer_write(w->labels, &byte, 1));
  }
  return BRIM_OK;
}

//---------------------------------- CIFAR ----------------------------------

// CIFAR-10's training set is five files, as even as the number allows.
static brim_status next_cifar(brim_pack *pack) {
  files_writer *w = pack->state;
  const brim_cifar_format *f =
      pack->options.format == BRIM_PACK_CIFAR10 ? &brim_cifar10_format : &brim_cifar100_format;
  bool train = strcmp(pack->split, "train") == 0;
  uint64_t files = train && f == &brim_cifar10_format ? TRAIN_FILES : 1;
  uint64_t count = pack->info.count;
  BRIM_TRY(close_one(&w->samples));
  BRIM_TRY(open_one(pack, train ? f->train[w->file] : f->test[0], &w->samples));
  w->left = count / files + (w->file < count % files);
  w->file++;
  return BRIM_OK;
}

// CIFAR-100's coarse label is invented: five fine labels each.
static brim_status put_cifar(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                             uint64_t count) {
  files_writer *w = pack->state;
  size_t head = pack->options.format == BRIM_PACK_CIFAR10 ? 1 : 2;
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t *in = inputs + i * pack->input_bytes;
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    w->record[0] = (uint8_t)(label / 5);
    w->record[head - 1] = (uint8_t)label;
    for (size_t p = 0; p < BRIM_CIFAR_PLANE; p++) {
      for (size_t c = 0; c < 3; c++) w->record[head + c * BRIM_CIFAR_PLANE + p] = in[3 * p + c];
    }
    if (w->left == 0) BRIM_TRY(next_cifar(pack));
    BRIM_TRY(brim_fs_writer_write(w->samples, w->record, head + BRIM_CIFAR_PIXELS));
    w->left--;
  }
  return BRIM_OK;
}

//---------------------------------- STL-10 ----------------------------------

static brim_status begin_stl10(brim_pack *pack) {
  files_writer *w = pack->state;
  char name[32];
  snprintf(name, sizeof name, "%s_X.bin", pack->split);
  BRIM_TRY(open_one(pack, name, &w->samples));
  if (strcmp(pack->split, "unlabeled") == 0) return BRIM_OK;
  snprintf(name, sizeof name, "%s_y.bin", pack->split);
  return open_one(pack, name, &w->labels);
}

// Writes planes R, G, B, each column by column; labels start at 1.
static brim_status put_stl10(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                             uint64_t count) {
  files_writer *w = pack->state;
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t *in = inputs + i * pack->input_bytes;
    uint8_t *out = w->record;
    for (size_t c = 0; c < 3; c++) {
      for (size_t x = 0; x < BRIM_STL10_SIDE; x++) {
        for (size_t y = 0; y < BRIM_STL10_SIDE; y++) *out++ = in[(y * BRIM_STL10_SIDE + x) * 3 + c];
      }
    }
    BRIM_TRY(brim_fs_writer_write(w->samples, w->record, BRIM_STL10_IMAGE));
    if (!w->labels) continue;
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    uint8_t byte = (uint8_t)(label + 1);
    BRIM_TRY(brim_fs_writer_write(w->labels, &byte, 1));
  }
  return BRIM_OK;
}

//---------------------------------- the table ----------------------------------

static brim_status files_begin(brim_pack *pack) {
  files_writer *w = pack->state;
  w->file = w->left = 0;
  switch (pack->options.format) {
    case BRIM_PACK_IDX:
      return begin_idx(pack);
    case BRIM_PACK_STL10:
      return begin_stl10(pack);
    default:
      return BRIM_OK;  // CIFAR's files open when a record goes there
  }
}

static brim_status check_labels(const brim_pack *pack, const uint8_t *targets, uint64_t count) {
  for (uint64_t i = 0; pack->info.classes > 0 && i < count; i++) {
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    if (label >= 0 && label < pack->info.classes) continue;
    return brim_fail(BRIM_EPARSE, "label %d of sample %llu is not in [0, %lld)", (int)label,
                     (unsigned long long)(pack->written + i), (long long)pack->info.classes);
  }
  return BRIM_OK;
}

static brim_status files_put(brim_pack *pack, const void *inputs, const void *targets,
                             uint64_t count) {
  BRIM_TRY(check_labels(pack, targets, count));
  switch (pack->options.format) {
    case BRIM_PACK_IDX:
      return put_idx(pack, inputs, targets, count);
    case BRIM_PACK_STL10:
      return put_stl10(pack, inputs, targets, count);
    default:
      return put_cifar(pack, inputs, targets, count);
  }
}

static brim_status files_end(brim_pack *pack) {
  files_writer *w = pack->state;
  BRIM_TRY(close_one(&w->samples));
  return close_one(&w->labels);
}

static brim_status files_close(brim_pack *pack, bool good) {
  files_writer *w = pack->state;
  (void)good;
  if (!w) return BRIM_OK;
  brim_fs_writer_abort(w->samples);  // a split that did not end
  brim_fs_writer_abort(w->labels);
  brim_free(w);
  pack->state = NULL;
  return BRIM_OK;
}

const brim_pack_writer brim_pack_writer_files = {
    .open = files_open,
    .begin = files_begin,
    .put = files_put,
    .end = files_end,
    .close = files_close,
};

//---------------------------------- folders of images ----------------------------------

typedef struct images_writer {
  char **folder;  // folder of each class in this split
  int64_t count;
} images_writer;

static brim_status images_open(brim_pack *pack) {
  pack->state = brim_calloc(1, sizeof(images_writer));
  return pack->state ? BRIM_OK : brim_pack_no_memory(pack);
}

static void forget_folders(images_writer *w) {
  for (int64_t i = 0; w->folder && i < w->count; i++) brim_free(w->folder[i]);
  brim_free(w->folder);
  w->folder = NULL;
  w->count = 0;
}

// A valid folder name for a class; numeric labels get leading zeros, so that they sort by value.
static brim_status class_name(const brim_pack *pack, int64_t label, char *out, size_t size) {
  if (pack->options.class_names && (int64_t)pack->options.class_count == pack->info.classes) {
    const char *name = pack->options.class_names[label];
    snprintf(out, size, "%s", name);
    if (!name[0] || name[0] == '.' || strchr(name, '/') || strlen(name) >= size) {
      return brim_fail(BRIM_EINVAL, "class %lld cannot be a folder: its name is '%.200s'",
                       (long long)label, name);
    }
    return BRIM_OK;
  }
  char digits[24], largest[24];
  int n = snprintf(digits, sizeof digits, "%lld", (long long)label);
  int widest = snprintf(largest, sizeof largest, "%lld", (long long)pack->info.classes - 1);
  snprintf(out, size, "%.*s%s", widest - n, "00000000000000000000", digits);
  return BRIM_OK;
}

static brim_status images_begin(brim_pack *pack) {
  images_writer *w = pack->state;
  w->folder = brim_calloc((size_t)pack->info.classes, sizeof *w->folder);
  if (!w->folder) return brim_pack_no_memory(pack);
  w->count = pack->info.classes;
  for (int64_t i = 0; i < w->count; i++) {
    char name[256];
    BRIM_TRY(class_name(pack, i, name, sizeof name));
    brim_str path;
    brim_str_init(&path);
    brim_str_printf(&path, "%s/%s/%s", pack->temp, pack->split, name);
    w->folder[i] = brim_str_take(&path);
    brim_str_deinit(&path);
    if (!w->folder[i]) return brim_pack_no_memory(pack);
    BRIM_TRY(brim_fs_mkdirs(w->folder[i]));
  }
  return BRIM_OK;
}

//---------------------------------- one image ----------------------------------

static brim_status write_file(const brim_pack *pack, const char *path, const void *data,
                              size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), err = errno;
  const uint8_t *p = data;
  bool good = fd >= 0;
  while (good && size) {
    ssize_t n = write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    good = n > 0;
    err = n < 0 ? errno : ENOSPC;
    if (!good) break;
    p += n;
    size -= (size_t)n;
  }
  if (fd >= 0 && close(fd) != 0 && good) {
    good = false;
    err = errno;
  }
  if (good) return BRIM_OK;
  return brim_fail(brim_errno_status(err), "cannot write %s: %s", pack->path, brim_errno_text(err));
}

static brim_status write_png(const brim_pack *pack, const uint8_t *pixels, const char *path) {
  const brim_source_info *info = &pack->info;
  png_image image;
  memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.height = (png_uint_32)info->dim[0];
  image.width = (png_uint_32)info->dim[1];
  image.format = info->rank == 3 && info->dim[2] == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  uint8_t *out = brim_alloc(size);
  if (!out) return brim_pack_no_memory(pack);
  brim_status status = BRIM_OK;
  if (!png_image_write_to_memory(&image, out, &size, 0, pixels, 0, NULL)) {
    status = brim_fail(BRIM_EINTERNAL, "cannot make a PNG for %s: %s", pack->path, image.message);
  }
  png_image_free(&image);
  if (!status) status = write_file(pack, path, out, size);
  brim_free(out);
  return status;
}

typedef struct jpeg_failure {
  struct jpeg_error_mgr manager;
  jmp_buf back;
  char text[JMSG_LENGTH_MAX];
} jpeg_failure;

static void jpeg_failed(j_common_ptr jpeg) {
  jpeg_failure *failure = (jpeg_failure *)(void *)jpeg->err;
  jpeg->err->format_message(jpeg, failure->text);
  longjmp(failure->back, 1);
}

static void jpeg_silent(j_common_ptr jpeg) { (void)jpeg; }

// *out is allocated by the library with malloc.
static bool encode_jpg(const brim_pack *pack, const uint8_t *pixels, jpeg_failure *failure,
                       unsigned char **out, unsigned long *size) {
  const brim_source_info *info = &pack->info;
  struct jpeg_compress_struct jpeg;
  memset(&jpeg, 0, sizeof jpeg);
  jpeg.err = jpeg_std_error(&failure->manager);
  failure->manager.error_exit = jpeg_failed;
  failure->manager.output_message = jpeg_silent;
  if (setjmp(failure->back)) {
    jpeg_destroy_compress(&jpeg);
    return false;
  }
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, out, size);
  bool colour = info->rank == 3 && info->dim[2] == 3;
  jpeg.image_height = (JDIMENSION)info->dim[0];
  jpeg.image_width = (JDIMENSION)info->dim[1];
  jpeg.input_components = colour ? 3 : 1;
  jpeg.in_color_space = colour ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, pack->options.quality ? pack->options.quality : 95, TRUE);
  // Chroma at full resolution: images of data sets are small.
  jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&jpeg, TRUE);
  size_t stride = (size_t)info->dim[1] * (colour ? 3 : 1);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + jpeg.next_scanline * stride);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return true;
}

static brim_status write_jpg(const brim_pack *pack, const uint8_t *pixels, const char *path) {
  jpeg_failure failure;
  unsigned char *out = NULL;
  unsigned long size = 0;
  memset(&failure, 0, sizeof failure);
  brim_status status =
      encode_jpg(pack, pixels, &failure, &out, &size)
          ? write_file(pack, path, out, size)
          : brim_fail(BRIM_EINTERNAL, "cannot make a JPEG for %s: %s", pack->path, failure.text);
  free(out);
  return status;
}

//---------------------------------- a block ----------------------------------

typedef struct images_job {
  brim_pack *pack;
  const uint8_t *inputs;
  const int32_t *labels;
  // The first failure of each thread.
  struct {
    brim_status status;
    char detail[512];
  } * failed;
} images_job;

static brim_status write_one(images_job *job, int64_t i) {
  const brim_pack *pack = job->pack;
  const images_writer *w = pack->state;
  int32_t label = job->labels[i];
  uint64_t number = pack->written + (uint64_t)i;
  bool png = pack->options.format == BRIM_PACK_PNG;
  if (label < 0 || label >= w->count) {
    return brim_fail(BRIM_EPARSE, "label %d of sample %llu is not in [0, %lld)", (int)label,
                     (unsigned long long)number, (long long)w->count);
  }
  char path[4096];
  int n = snprintf(path, sizeof path, "%s/%08llu.%s", w->folder[label], (unsigned long long)number,
                   png ? "png" : "jpg");
  if (n < 0 || (size_t)n >= sizeof path) {
    return brim_fail(BRIM_ELIMIT, "%s: the path is too long", w->folder[label]);
  }
  const uint8_t *pixels = job->inputs + (size_t)i * pack->input_bytes;
  return png ? write_png(pack, pixels, path) : write_jpg(pack, pixels, path);
}

static void write_range(void *ctx, int64_t begin, int64_t end, int thread) {
  images_job *job = ctx;
  for (int64_t i = begin; i < end; i++) {
    brim_status status = write_one(job, i);
    if (!status) continue;
    job->failed[thread].status = status;
    snprintf(job->failed[thread].detail, sizeof job->failed[thread].detail, "%s",
             brim_status_detail());
    return;
  }
}

static brim_status images_put(brim_pack *pack, const void *inputs, const void *targets,
                              uint64_t count) {
  int threads = brim_pool_threads(pack->options.pool);
  images_job job = {.pack = pack, .inputs = inputs, .labels = targets};
  job.failed = brim_calloc((size_t)threads, sizeof *job.failed);
  if (!job.failed) return brim_pack_no_memory(pack);
  brim_pool_run(pack->options.pool, (int64_t)count, write_range, &job);
  brim_status status = BRIM_OK;
  for (int i = 0; i < threads && !status; i++) {
    status = job.failed[i].status;
    if (status) brim_status_set_detail(job.failed[i].detail);
  }
  brim_free(job.failed);
  return status;
}

static brim_status images_end(brim_pack *pack) {
  forget_folders(pack->state);
  return BRIM_OK;
}

static brim_status images_close(brim_pack *pack, bool good) {
  (void)good;
  if (!pack->state) return BRIM_OK;
  forget_folders(pack->state);
  brim_free(pack->state);
  pack->state = NULL;
  return BRIM_OK;
}

const brim_pack_writer brim_pack_writer_images = {
    .open = images_open,
    .begin = images_begin,
    .put = images_put,
    .end = images_end,
    .close = images_close,
};
