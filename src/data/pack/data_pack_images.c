// Writing folders of images, SPLIT/CLASS/NUMBER.png or .jpg: every thread packs and writes its share
// of a block. The number is the sample's, so that names sort in its order within a class. They are
// synced together, before the folder takes its name (data_pack.c).
#include <errno.h>
#include <fcntl.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "data/pack/data_pack_int.h"

typedef struct images_writer {
  char **folder;  // of each class in this split
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

// A name that is a plain folder's; labels as numbers get leading zeros, so that they sort by value.
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

// *out is malloc's, the library's own.
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
  // Colour at full resolution: images of data sets are small.
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
  // The first failure of each thread, by the lowest sample.
  struct {
    brim_status status;
    int64_t index;
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
    job->failed[thread].index = i;
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
