// Text into a file, through zlib where the name asks for it.
#include "profile/profile_file.h"

#include <string.h>
#include <zlib.h>

enum { GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8, PIECE = 1 << 16, MOST = 1 << 30 };

struct brim_text_file {
  brim_fs_writer *writer;
  bool compressed;
  z_stream z;
  unsigned char piece[PIECE];
};

static void *zlib_alloc(void *opaque, unsigned count, unsigned size) {
  (void)opaque;
  return brim_calloc(count, size);
}

static void zlib_free(void *opaque, void *block) {
  (void)opaque;
  brim_free(block);
}

brim_status brim_text_file_open(const char *path, brim_text_file **out) {
  *out = NULL;
  brim_text_file *file = brim_calloc(1, sizeof *file);
  if (!file) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  file->z.zalloc = zlib_alloc;
  file->z.zfree = zlib_free;
  brim_status status = brim_fs_writer_open(path, &file->writer);
  if (!status && brim_str_ends(path, ".gz")) {
    file->compressed = deflateInit2(&file->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
                                    GZIP_MEMORY, Z_DEFAULT_STRATEGY) == Z_OK;
    if (!file->compressed) {
      status = brim_fail(BRIM_ENOMEM, "out of memory while compressing %s", path);
    }
  }
  if (status) {
    brim_text_file_abort(file);
    return status;
  }
  *out = file;
  return BRIM_OK;
}

// Compresses what the stream has been given; at the end, until nothing is left.
static brim_status squeeze(brim_text_file *file, int flush) {
  int result = Z_OK;
  do {
    file->z.next_out = file->piece;
    file->z.avail_out = PIECE;
    result = deflate(&file->z, flush);
    if (result == Z_STREAM_ERROR) return brim_fail(BRIM_EIO, "zlib cannot compress a trace");
    BRIM_TRY(brim_fs_writer_write(file->writer, file->piece, PIECE - file->z.avail_out));
  } while (file->z.avail_out == 0);
  return BRIM_OK;
}

static brim_status compress_all(brim_text_file *file, const char *data, size_t size) {
  while (size > 0) {
    size_t n = size < MOST ? size : MOST;  // zlib counts in unsigned int
    file->z.next_in = (unsigned char *)(uintptr_t)data;
    file->z.avail_in = (unsigned)n;
    BRIM_TRY(squeeze(file, Z_NO_FLUSH));
    data += n;
    size -= n;
  }
  return BRIM_OK;
}

brim_status brim_text_file_put(brim_text_file *file, brim_str *text) {
  BRIM_TRY(brim_str_status(text));
  brim_status status = file->compressed ? compress_all(file, text->data, text->len)
                                        : brim_fs_writer_write(file->writer, text->data, text->len);
  brim_str_clear(text);
  return status;
}

brim_status brim_text_file_commit(brim_text_file *file) {
  file->z.avail_in = 0;
  brim_status status = file->compressed ? squeeze(file, Z_FINISH) : BRIM_OK;
  if (!status) {
    brim_fs_writer *writer = file->writer;
    file->writer = NULL;
    status = brim_fs_writer_commit(writer);
  }
  brim_text_file_abort(file);
  return status;
}

void brim_text_file_abort(brim_text_file *file) {
  if (!file) return;
  brim_fs_writer_abort(file->writer);
  if (file->compressed) deflateEnd(&file->z);
  brim_free(file);
}
