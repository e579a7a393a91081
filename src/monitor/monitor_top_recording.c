// A recording of the live view: a file of brim.top/1 lines, read one by one.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor_top.h"

// A longer line is no reading: what follows its beginning is not kept.
enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 64 << 20 };

typedef struct recording {
  FILE *file;
  char path[256];  // in messages
  brim_str line;
  long number, skipped;
  size_t at, end;  // of `block`
  char block[BLOCK_BYTES];
} recording;

static brim_status fill_block(recording *r) {
  if (r->at < r->end) return BRIM_OK;
  r->at = 0;
  r->end = fread(r->block, 1, sizeof r->block, r->file);
  if (ferror(r->file)) return brim_fail(BRIM_EIO, "cannot read %s: %s", r->path, strerror(errno));
  return BRIM_OK;
}

// The next line without its end. BRIM_EEND after the last.
static brim_status next_line(recording *r) {
  bool whole = false;
  brim_str_clear(&r->line);
  for (;;) {
    BRIM_TRY(fill_block(r));
    if (r->at == r->end) break;
    const char *from = r->block + r->at;
    const char *end = (const char *)memchr(from, '\n', r->end - r->at);
    size_t n = end ? (size_t)(end - from) : r->end - r->at;
    if (r->line.len < LINE_BYTES) brim_str_append_n(&r->line, from, n);
    r->at += n + (end != NULL);
    whole = end != NULL;
    if (whole) break;
  }
  BRIM_TRY(brim_str_status(&r->line));
  if (!whole && r->line.len == 0) return BRIM_EEND;
  r->number++;
  return BRIM_OK;
}

// The next line that is JSON. Others were cut off: the disk was full, or the program was stopped.
static brim_status next_json(recording *r, json_t **out) {
  for (;;) {
    BRIM_TRY(next_line(r));
    if (r->line.len == 0) continue;
    brim_status status = brim_json_parse(r->line.data, r->line.len, r->path, out);
    if (status != BRIM_EPARSE) return status;
    brim_status_clear();
    r->skipped++;
  }
}

static brim_status recording_read(void *ctx, unsigned want, brim_top_view *out) {
  recording *r = (recording *)ctx;
  (void)want;  // a recording has what it has
  json_t *json = NULL;
  BRIM_TRY(next_json(r, &json));
  brim_status status = brim_top_view_from_json(json, out);
  if (status == BRIM_EPARSE) {
    char why[256];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    status = brim_fail(BRIM_EPARSE, "%s:%ld: %s", r->path, r->number, why);
  }
  json_decref(json);
  return status;
}

static long recording_skipped(void *ctx) { return ((const recording *)ctx)->skipped; }

static void recording_close(void *ctx) {
  recording *r = (recording *)ctx;
  fclose(r->file);
  brim_str_deinit(&r->line);
  brim_free(r);
}

brim_status brim_top_open_recording(const char *path, brim_top_source *out) {
  memset(out, 0, sizeof *out);
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  recording *r = (recording *)brim_calloc(1, sizeof *r);
  FILE *file = r ? fdopen(fd, "r") : NULL;
  if (!file) {
    close(fd);
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  r->file = file;
  snprintf(r->path, sizeof r->path, "%s", path);
  brim_str_init(&r->line);
  *out = (brim_top_source){.name = "recording",
                           .ctx = r,
                           .read = recording_read,
                           .skipped = recording_skipped,
                           .close = recording_close};
  return BRIM_OK;
}
