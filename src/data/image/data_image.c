// Which format some bytes are, their size, and limits common to all formats.
#include "data/image/data_image.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_status.h"

enum { HEAD_PIECE = 4096 };  // bytes of a file read at once; enough for most headers

bool brim_image_is_name(const char *name) {
  static const char *const ends[] = {".jpg", ".jpeg", ".png", ".bmp"};
  const char *dot = strrchr(name, '.');
  if (dot && brim_webp_present && strcasecmp(dot, ".webp") == 0) return true;
  for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++) {
    if (strcasecmp(dot, ends[i]) == 0) return true;
  }
  return false;
}

const char *brim_image_ends(void) {
  return brim_webp_present ? ".jpg, .jpeg, .png, .bmp, .webp" : ".jpg, .jpeg, .png, .bmp";
}

static brim_status fail_unknown(const uint8_t *bytes, size_t size, const char *name) {
  if (!size) return brim_fail(BRIM_EPARSE, "%s: offset 0: the file is empty", name);
  uint8_t first[4] = {0};
  memcpy(first, bytes, size < sizeof first ? size : sizeof first);
  return brim_fail(BRIM_EPARSE,
                   "%s: offset 0: not an image of a kind that brim reads (%s); it begins with %02x "
                   "%02x %02x %02x",
                   name, brim_image_ends(), first[0], first[1], first[2], first[3]);
}

static brim_status check_least(const char *name, const brim_image_head *head, uint64_t least,
                               uint64_t size) {
  if (size >= least) return BRIM_OK;
  return brim_fail(BRIM_EPARSE,
                   "%s: the header announces %" PRId64 " x %" PRId64 " pixels, at least %" PRIu64
                   " bytes; the file has %" PRIu64,
                   name, head->height, head->width, least, size);
}

static brim_status fail_no_frame(const char *name, uint64_t size) {
  return brim_fail(BRIM_EPARSE, "%s: offset %" PRIu64 ": the file ends before its image size", name,
                   size);
}

// As many bytes as are there, up to n.
static brim_status read_some(int fd, const char *name, uint64_t offset, uint8_t *out, size_t n,
                             size_t *got) {
  *got = 0;
  while (*got < n) {
    ssize_t more = pread(fd, out + *got, n - *got, (off_t)(offset + *got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      return brim_fail(brim_errno_status(errno), "%s: offset %" PRIu64 ": %s", name, offset + *got,
                       brim_errno_text(errno));
    }
    if (!more) break;
    *got += (size_t)more;
  }
  return BRIM_OK;
}

brim_status brim_image_probe_file(int fd, const char *name, brim_image_head *out) {
  uint8_t piece[HEAD_PIECE];
  size_t held;
  uint64_t offset = 0, least = 0, size;
  BRIM_TRY(read_some(fd, name, 0, piece, sizeof piece, &held));
  size = held;
  if (held == sizeof piece) {
    struct stat st;
    if (fstat(fd, &st)) {
      return brim_fail(brim_errno_status(errno), "%s: %s", name, brim_errno_text(errno));
    }
    if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_EINVAL, "%s: not a regular file", name);
    size = (uint64_t)st.st_size;
  }
  if (brim_png_is(piece, held)) {
    BRIM_TRY(brim_png_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (brim_bmp_is(piece, held)) {
    BRIM_TRY(brim_bmp_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (brim_webp_is(piece, held)) {
    BRIM_TRY(brim_webp_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (!brim_jpeg_is(piece, held)) return fail_unknown(piece, held, name);
  size_t at = 2;
  for (;;) {
    brim_status status = brim_jpeg_find_frame(piece, held, &at, name, out, &least);
    if (!status) return check_least(name, out, least, size);
    if (status != BRIM_EEND) return status;
    if (!at && held < sizeof piece) return fail_no_frame(name, size);  // cut off inside the frame
    offset += at;  // beyond what was held by large segments, which are not read
    at = 0;
    BRIM_TRY(read_some(fd, name, offset, piece, sizeof piece, &held));
    if (held < 4) return fail_no_frame(name, size);
  }
}

brim_status brim_image_decode(const void *bytes, size_t size, const char *name,
                              const brim_image_want *want, brim_image_pixels *out) {
  if ((want->channels != 1 && want->channels != 3) ||
      (want->scale != 1 && want->scale != 2 && want->scale != 4 && want->scale != 8)) {
    return brim_fail(BRIM_EINVAL, "%s: %d channels at 1/%d cannot be decoded", name, want->channels,
                     want->scale);
  }
  if (brim_jpeg_is(bytes, size)) return brim_jpeg_decode(bytes, size, name, want, out);
  if (brim_png_is(bytes, size)) return brim_png_decode(bytes, size, name, want, out);
  if (brim_bmp_is(bytes, size)) return brim_bmp_decode(bytes, size, name, want, out);
  if (brim_webp_is(bytes, size)) return brim_webp_decode(bytes, size, name, want, out);
  return fail_unknown(bytes, size, name);
}
