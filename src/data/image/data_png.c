// PNG by libpng, out of memory, row by row into the caller's buffer. Checksums that do not agree and
// data that ends early are errors; chunks that do not change pixels are skipped (but their
// checksums are not).
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "data/image/data_image.h"

enum { SIGNATURE = 8, HEAD_BYTES = 33 };  // signature, then the header chunk: 8 + 13 + 4

bool brim_png_is(const uint8_t *bytes, size_t size) {
  static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return size >= SIGNATURE && memcmp(bytes, signature, SIGNATURE) == 0;
}

//---------------------------------- the header ----------------------------------

static uint32_t be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

brim_status brim_png_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes) {
  static const uint8_t samples[7] = {1, 0, 3, 1, 2, 0, 4};  // by colour type; 0 = no such type
  if (size < HEAD_BYTES) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends before its image size", name,
                     size);
  }
  if (be32(bytes + 8) != 13 || memcmp(bytes + 12, "IHDR", 4) != 0) {
    return brim_fail(BRIM_EPARSE, "%s: offset 8: damaged PNG header", name);
  }
  unsigned depth = bytes[24], color = bytes[25];
  BRIM_TRY(brim_image_check_size(name, be32(bytes + 20), be32(bytes + 16)));
  if (color > 6 || !samples[color] || depth > 16) {
    return brim_fail(BRIM_EPARSE, "%s: offset 24: damaged PNG header: colour type %u, %u bits",
                     name, color, depth);
  }
  out->width = be32(bytes + 16);
  out->height = be32(bytes + 20);
  out->channels = color & 2 ? 3 : 1;
  // Deflate cannot pack more than 1032 to 1.
  uint64_t row = ((uint64_t)out->width * depth * samples[color] + 7) / 8 + 1;
  *least_bytes = row * (uint64_t)out->height / 1032;
  return BRIM_OK;
}

//---------------------------------- the library's doors ----------------------------------

typedef struct png_job {
  png_structp png;
  png_infop info;
  const uint8_t *bytes;
  size_t size, at;
  const char *name;
  const brim_image_want *want;
  brim_image_pixels *out;
  brim_status status;
} png_job;

static void on_error(png_structp png, png_const_charp text) {
  png_job *job = png_get_error_ptr(png);
  brim_status status = strstr(text, "emory") ? BRIM_ENOMEM : BRIM_EPARSE;
  job->status = brim_fail(status, "%s: offset %zu: %s", job->name, job->at, brim_tr(text));
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
  (void)png;
  (void)text;
}

static void on_read(png_structp png, png_bytep out, size_t n) {
  png_job *job = png_get_io_ptr(png);
  if (n > job->size - job->at) {
    job->at = job->size;
    png_error(png, BRIM_N_("the file ends too early; it is cut off"));
  }
  memcpy(out, job->bytes + job->at, n);
  job->at += n;
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t size) {
  (void)png;
  return brim_alloc(size);
}

static void on_free(png_structp png, png_voidp block) {
  (void)png;
  brim_free(block);
}

//---------------------------------- pixels ----------------------------------

// Everything to 8 bits of gray or RGB.
static void set_transforms(png_job *job) {
  png_structp png = job->png;
  int color = png_get_color_type(png, job->info);
  int depth = png_get_bit_depth(png, job->info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (depth == 16) png_set_scale_16(png);
  png_set_strip_alpha(png);
  bool colored = (color & PNG_COLOR_MASK_COLOR) != 0;
  if (job->want->channels == 3 && !colored) png_set_gray_to_rgb(png);
  // JPEG's luma, so that both formats mean the same by gray.
  if (job->want->channels == 1 && colored) png_set_rgb_to_gray_fixed(png, 1, 29900, 58700);
}

static brim_status decode(png_job *job) {
  png_structp png = job->png;
  png_set_read_fn(png, job, on_read);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, job->want->lenient);
  png_set_user_limits(png, BRIM_IMAGE_MAX_SIDE, BRIM_IMAGE_MAX_SIDE);
  // Profiles, texts and the like are not even parsed; this leaves what pixels need.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
  png_read_info(png, job->info);
  job->out->width = png_get_image_width(png, job->info);
  job->out->height = png_get_image_height(png, job->info);
  BRIM_TRY(brim_image_check_size(job->name, (uint64_t)job->out->height, (uint64_t)job->out->width));
  BRIM_TRY(brim_image_check_room(job->name, job->want, job->out));
  set_transforms(job);
  int passes = png_set_interlace_handling(png);
  png_read_update_info(png, job->info);
  size_t row_bytes = (size_t)job->out->width * (size_t)job->want->channels;
  if (png_get_rowbytes(png, job->info) != row_bytes) {
    return brim_fail(BRIM_EINTERNAL, "%s: libpng gives rows of %zu bytes, not %zu", job->name,
                     png_get_rowbytes(png, job->info), row_bytes);
  }
  for (int pass = 0; pass < passes; pass++) {
    for (int64_t y = 0; y < job->out->height; y++) {
      png_read_row(png, job->out->data + (size_t)y * row_bytes, NULL);
    }
  }
  png_read_end(png, NULL);  // the last checksums
  return BRIM_OK;
}

// Apart from its caller so that nothing but *job lives across the jump.
static brim_status decode_guarded(png_job *job) {
  if (setjmp(png_jmpbuf(job->png))) return job->status;
  return decode(job);
}

brim_status brim_png_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out) {
  png_job job = {.bytes = bytes, .size = size, .name = name, .want = want, .out = out};
  job.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, on_warning, NULL,
                                     on_alloc, on_free);
  if (job.png) job.info = png_create_info_struct(job.png);
  brim_status status =
      job.info ? decode_guarded(&job) : brim_fail(BRIM_ENOMEM, "%s: out of memory", name);
  png_destroy_read_struct(&job.png, &job.info, NULL);
  return status;
}
