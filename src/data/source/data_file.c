// Files and gzip read in pieces. Every error names the file and the offset in it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "data/data_int.h"

//---------------------------------- files ----------------------------------

static brim_status fail_errno(const char *path, int err) {
  return brim_fail(brim_errno_status(err), "%s: %s", path, brim_errno_text(err));
}

brim_status brim_data_file_open(const char *path, brim_data_file *out) {
  *out = (brim_data_file){0};
  // Without O_NONBLOCK a FIFO in the place of a file would wait for a writer for ever.
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail_errno(path, errno);
  brim_status status = BRIM_OK;
  struct stat st;
  if (fstat(fd, &st)) {
    status = fail_errno(path, errno);
  } else if (!S_ISREG(st.st_mode)) {
    status = brim_fail(BRIM_EINVAL, "%s: not a regular file", path);
  } else if (st.st_size == 0) {
    status = brim_fail(BRIM_EPARSE, "%s: offset 0: the file is empty", path);
  }
  if (status) {
    close(fd);
    return status;
  }
  *out = (brim_data_file){.path = path, .fd = fd, .size = (size_t)st.st_size};
  return BRIM_OK;
}

void brim_data_file_close(brim_data_file *file) {
  if (file->path) close(file->fd);
  *file = (brim_data_file){0};
}

brim_status brim_data_file_read(const brim_data_file *file, size_t offset, void *out, size_t n) {
  size_t got = 0;
  while (got < n) {
    ssize_t more = pread(file->fd, (uint8_t *)out + got, n - got, (off_t)(offset + got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      return brim_fail(BRIM_EIO, "%s: offset %zu: %s", file->path, offset + got,
                       brim_errno_text(errno));
    }
    if (more == 0) {
      return brim_fail(BRIM_EIO, "%s: offset %zu: the file became shorter while it was in use",
                       file->path, offset + got);
    }
    got += (size_t)more;
  }
  return BRIM_OK;
}

//---------------------------------- gzip ----------------------------------

enum {
  GZ_PIECE = 1 << 30,  // zlib counts in unsigned int
  GZ_BUFFER = 1 << 16,
};

struct brim_data_gz {
  z_stream z;
  const brim_data_file *file;
  size_t in_at, in_held;  // the buffer has in_held bytes of the file from in_at on
  size_t in_pos;
  bool ended;  // at the end of a member
  uint8_t buffer[GZ_BUFFER];
};

static void *gz_alloc(void *ctx, unsigned items, unsigned size) {
  (void)ctx;
  return brim_calloc(items, size);
}

static void gz_free(void *ctx, void *ptr) {
  (void)ctx;
  brim_free(ptr);
}

bool brim_data_is_gz(const void *data, size_t size) {
  return size >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
}

uint64_t brim_data_gz_limit(size_t size) { return (uint64_t)size * 1032 + 1024; }

brim_status brim_data_gz_open(const brim_data_file *file, brim_data_gz **out) {
  brim_data_gz *gz = brim_calloc(1, sizeof *gz);
  if (!gz) return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  gz->file = file;
  gz->z.zalloc = gz_alloc;
  gz->z.zfree = gz_free;
  if (inflateInit2(&gz->z, 16 + MAX_WBITS) != Z_OK) {  // 16: gzip's wrapping, nothing else
    brim_free(gz);
    return brim_fail(BRIM_ENOMEM, "%s: out of memory", file->path);
  }
  *out = gz;
  return BRIM_OK;
}

void brim_data_gz_close(brim_data_gz *gz) {
  if (!gz) return;
  inflateEnd(&gz->z);
  brim_free(gz);
}

// The next piece of a file, once the one that is here is used up.
static brim_status gz_refill(brim_data_gz *gz) {
  size_t left = gz->file->size - gz->in_pos;
  if (!left || gz->in_pos < gz->in_at + gz->in_held) return BRIM_OK;
  gz->in_at = gz->in_pos;
  gz->in_held = left < GZ_BUFFER ? left : GZ_BUFFER;
  return brim_data_file_read(gz->file, gz->in_at, gz->buffer, gz->in_held);
}

// Inflate once; *produced counts bytes written to out.
static brim_status gz_step(brim_data_gz *gz, void *out, size_t n, size_t *produced) {
  BRIM_TRY(gz_refill(gz));
  size_t left = gz->in_at + gz->in_held - gz->in_pos;
  unsigned avail_in = left < GZ_PIECE ? (unsigned)left : GZ_PIECE;
  unsigned avail_out = n < GZ_PIECE ? (unsigned)n : GZ_PIECE;
  gz->z.next_in = (Bytef *)(uintptr_t)(gz->buffer + (gz->in_pos - gz->in_at));
  gz->z.avail_in = avail_in;
  gz->z.next_out = out;
  gz->z.avail_out = avail_out;
  int rc = inflate(&gz->z, Z_NO_FLUSH);
  gz->in_pos += avail_in - gz->z.avail_in;
  *produced = avail_out - gz->z.avail_out;
  switch (rc) {
    case Z_OK:
      return BRIM_OK;
    case Z_STREAM_END:
      gz->ended = true;
      return BRIM_OK;
    case Z_BUF_ERROR:
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: the gzip file ends too early; it is cut off",
                       gz->file->path, gz->in_pos);
    case Z_MEM_ERROR:
      return brim_fail(BRIM_ENOMEM, "%s: out of memory", gz->file->path);
    default:
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: damaged gzip data (%s)", gz->file->path,
                       gz->in_pos, gz->z.msg ? gz->z.msg : "unknown");
  }
}

brim_status brim_data_gz_read(brim_data_gz *gz, void *out, size_t n) {
  size_t got = 0;
  while (got < n) {
    if (gz->ended) {
      // gzip files may be several members one after the other.
      if (gz->in_pos == gz->file->size) {
        return brim_fail(BRIM_EPARSE, "%s: offset %zu: the gzip data ends %zu bytes too early",
                         gz->file->path, gz->in_pos, n - got);
      }
      inflateReset(&gz->z);
      gz->ended = false;
    }
    size_t produced;
    BRIM_TRY(gz_step(gz, (uint8_t *)out + got, n - got, &produced));
    got += produced;
  }
  return BRIM_OK;
}

brim_status brim_data_gz_finish(brim_data_gz *gz) {
  while (!gz->ended) {
    uint8_t more;
    size_t produced;
    BRIM_TRY(gz_step(gz, &more, 1, &produced));
    if (produced) {
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: holds more data than its header says",
                       gz->file->path, gz->in_pos);
    }
  }
  if (gz->in_pos != gz->file->size) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: %zu bytes follow the gzip data", gz->file->path,
                     gz->in_pos, gz->file->size - gz->in_pos);
  }
  return BRIM_OK;
}
