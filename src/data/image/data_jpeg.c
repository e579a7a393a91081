// JPEG by libjpeg-turbo's plain C interface. One decompressor for each call: keeping one would keep
// the tables of the image before, which a damaged file without its own would then be read with (and
// making one costs a tenth of decoding 32 x 32 pixels). The library's own memory comes from malloc;
// it has no door for another allocator.
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
// after jpeglib.h: the library's version decides which codes there are
#include <jerror.h>

#include "base/base_status.h"
#include "data/image/data_image.h"

// A progressive file of many scans costs time for no bytes; real ones have about ten.
enum { MAX_SCANS = 256, ROWS_AT_ONCE = 16 };
// Coefficients of a progressive image of BRIM_IMAGE_MAX_PIXELS and three channels fit.
#define MAX_MEMORY (2000L << 20)

bool brim_jpeg_is(const uint8_t *bytes, size_t size) {
  return size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

//---------------------------------- the header ----------------------------------

static unsigned be16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static bool is_frame(unsigned marker) {  // SOF0 .. SOF15; DHT, JPG and DAC lie among them
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// Every block of 8 x 8 takes a bit at the least, unless it is coded arithmetically (SOF9 on).
static brim_status read_frame(const uint8_t *segment, unsigned marker, const char *name,
                              brim_image_head *out, uint64_t *least_bytes) {
  uint64_t height = be16(segment + 3), width = be16(segment + 5);
  BRIM_TRY(brim_image_check_size(name, height, width));
  out->height = (int64_t)height;
  out->width = (int64_t)width;
  out->channels = segment[7] == 1 ? 1 : 3;
  *least_bytes = marker < 0xc8 ? (height / 8) * (width / 8) / 8 : 0;
  return BRIM_OK;
}

brim_status brim_jpeg_find_frame(const uint8_t *bytes, size_t size, size_t *at, const char *name,
                                 brim_image_head *out, uint64_t *least_bytes) {
  for (;;) {
    // Marker (with fill bytes before it), then a length that counts itself.
    if (*at >= size || size - *at < 4) return BRIM_EEND;
    const uint8_t *p = bytes + *at;
    if (p[0] != 0xff) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: no marker where one must be", name);
    }
    unsigned marker = p[1];
    if (marker == 0xff) {
      ++*at;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {  // they stand alone
      *at += 2;
      continue;
    }
    if (marker == 0x00 || marker == 0xd8 || marker == 0xd9 || marker == 0xda) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: marker %02x before the size", name,
                       marker);
    }
    unsigned length = be16(p + 2);
    if (length < 2) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: segment %02x of %u bytes", name,
                       marker, length);
    }
    if (is_frame(marker)) {
      if (length < 8) {
        return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: segment %02x of %u bytes", name,
                         marker, length);
      }
      if (size - *at < 10) return BRIM_EEND;
      return read_frame(p + 2, marker, name, out, least_bytes);
    }
    *at += 2 + length;
  }
}

//---------------------------------- errors ----------------------------------

typedef struct jpeg_job {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  jmp_buf jump;
  brim_status status;
  const uint8_t *bytes;
  size_t size;
  const char *name;
  const brim_image_want *want;
  brim_image_pixels *out;
} jpeg_job;

static brim_status status_of(int code) {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return BRIM_ENOMEM;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
#if JPEG_LIB_VERSION < 70
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_NOT_COMPILED:
      return BRIM_EUNSUPPORTED;
    case JERR_NO_BACKING_STORE:
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return BRIM_ELIMIT;
    default:
      return BRIM_EPARSE;
  }
}

static _Noreturn void leave(j_common_ptr common) {
  jpeg_job *job = common->client_data;
  char text[JMSG_LENGTH_MAX];
  common->err->format_message(common, text);
  size_t left = job->jpeg.src ? job->jpeg.src->bytes_in_buffer : job->size;
  // At the end of the bytes the library continues with a marker of its own.
  size_t offset = left <= job->size ? job->size - left : job->size;
  int code = common->err->msg_code;
  if (code == JWRN_JPEG_EOF) offset = job->size;
  job->status = code == JWRN_EXTRANEOUS_DATA
                    ? brim_fail(BRIM_EPARSE, "%s: offset %zu: %s; strict=false accepts it",
                                job->name, offset, text)
                    : brim_fail(status_of(code), "%s: offset %zu: %s", job->name, offset, text);
  longjmp(job->jump, 1);
}

// What the library calls a warning is damage it papers over with gray, except for these.
static void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;  // traces
  const jpeg_job *job = common->client_data;
  int code = common->err->msg_code;
  if (code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
  if (code == JWRN_EXTRANEOUS_DATA && job->want->lenient) return;
  leave(common);
}

static void on_output(j_common_ptr common) { (void)common; }

static void on_progress(j_common_ptr common) {
  jpeg_job *job = common->client_data;
  if (job->jpeg.input_scan_number <= MAX_SCANS) return;
  job->status = brim_fail(BRIM_ELIMIT, "%s: more than %d scans", job->name, MAX_SCANS);
  longjmp(job->jump, 1);
}

//---------------------------------- pixels ----------------------------------

static brim_status choose_colors(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  switch (j->jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
      j->out_color_space = job->want->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
      return BRIM_OK;
    case JCS_CMYK:
    case JCS_YCCK:
      j->out_color_space = JCS_CMYK;
      return BRIM_OK;
    default:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "%s: a JPEG of %d components; 1 (gray), 3 (YCbCr, RGB) and 4 (CMYK, YCCK) "
                       "can be read",
                       job->name, j->num_components);
  }
}

// Adobe's programs store ink upside down, and they are the ones that write a marker.
static void convert_cmyk(const jpeg_job *job, const uint8_t *in, uint8_t *out) {
  unsigned flip = job->jpeg.saw_Adobe_marker ? 0 : 255;
  for (int64_t x = 0; x < job->out->width; x++, in += 4) {
    unsigned k = in[3] ^ flip, rgb[3];
    for (int c = 0; c < 3; c++) rgb[c] = ((in[c] ^ flip) * k + 127) / 255;
    if (job->want->channels == 3) {
      for (int c = 0; c < 3; c++) *out++ = (uint8_t)rgb[c];
    } else {
      *out++ = (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16);
    }
  }
}

static void read_rows(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  size_t row_bytes = (size_t)job->out->width * (size_t)job->want->channels;
  JSAMPARRAY ink = NULL;
  if (j->out_color_space == JCS_CMYK) {
    ink = j->mem->alloc_sarray((j_common_ptr)j, JPOOL_IMAGE, j->output_width * 4, 1);
  }
  while (j->output_scanline < j->output_height) {
    uint8_t *at = job->out->data + j->output_scanline * row_bytes;
    if (ink) {
      if (jpeg_read_scanlines(j, ink, 1)) convert_cmyk(job, ink[0], at);
      continue;
    }
    JSAMPROW rows[ROWS_AT_ONCE];
    JDIMENSION n = j->output_height - j->output_scanline;
    if (n > ROWS_AT_ONCE) n = ROWS_AT_ONCE;
    for (JDIMENSION i = 0; i < n; i++) rows[i] = at + i * row_bytes;
    jpeg_read_scanlines(j, rows, n);
  }
}

static brim_status decode(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  jpeg_mem_src(j, job->bytes, (unsigned long)job->size);
  jpeg_read_header(j, TRUE);
  BRIM_TRY(brim_image_check_size(job->name, j->image_height, j->image_width));
  BRIM_TRY(choose_colors(job));
  j->scale_num = 1;
  j->scale_denom = (unsigned)job->want->scale;
  jpeg_calc_output_dimensions(j);
  job->out->height = j->output_height;
  job->out->width = j->output_width;
  BRIM_TRY(brim_image_check_room(job->name, job->want, job->out));
  jpeg_start_decompress(j);
  read_rows(job);
  jpeg_finish_decompress(j);  // up to the end marker, without which something was cut off
  return BRIM_OK;
}

// Apart from its caller so that nothing but *job lives across the jump.
static brim_status decode_guarded(jpeg_job *job) {
  if (setjmp(job->jump)) return job->status;
  jpeg_create_decompress(&job->jpeg);
  job->jpeg.mem->max_memory_to_use = MAX_MEMORY;
  memset(&job->progress, 0, sizeof job->progress);
  job->progress.progress_monitor = on_progress;
  job->jpeg.progress = &job->progress;
  return decode(job);
}

brim_status brim_jpeg_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out) {
  jpeg_job job;  // large; only what matters is cleared
  job.status = BRIM_OK;
  job.bytes = bytes;
  job.size = size;
  job.name = name;
  job.want = want;
  job.out = out;
  job.jpeg.err = jpeg_std_error(&job.errors);
  job.errors.error_exit = leave;
  job.errors.emit_message = on_message;
  job.errors.output_message = on_output;
  job.jpeg.client_data = &job;
  job.jpeg.src = NULL;
  job.jpeg.mem = NULL;  // so that destroying is right if creating fails
  brim_status status = decode_guarded(&job);
  jpeg_destroy_decompress(&job.jpeg);
  return status;
}
