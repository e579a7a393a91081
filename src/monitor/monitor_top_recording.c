// A recording of the live view: a file of brim.top/1 lines, read one by one.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "monitor/monitor_top.h"

typedef struct recording {
  FILE *file;
  char path[256];  // in messages
  brim_str line;
  long number;
} recording;

// The next line without its end; *whole: it had one. BRIM_EEND after the last.
static brim_status next_line(recording *r, bool *whole) {
  char part[4096];
  *whole = false;
  brim_str_clear(&r->line);
  while (!*whole && fgets(part, sizeof part, r->file)) {
    size_t n = strlen(part);
    *whole = n > 0 && part[n - 1] == '\n';
    brim_str_append_n(&r->line, part, n - *whole);
  }
  if (ferror(r->file)) return brim_fail(BRIM_EIO, "cannot read %s: %s", r->path, strerror(errno));
  BRIM_TRY(brim_str_status(&r->line));
  if (!*whole && r->line.len == 0) return BRIM_EEND;
  r->number++;
  return BRIM_OK;
}

static brim_status recording_read(void *ctx, unsigned want, brim_top_view *out) {
  recording *r = (recording *)ctx;
  bool whole = false;
  (void)want;  // a recording has what it has
  do {
    BRIM_TRY(next_line(r, &whole));
  } while (r->line.len == 0);
  char name[288];
  snprintf(name, sizeof name, "%s:%ld", r->path, r->number);
  json_t *json = NULL;
  brim_status status = brim_json_parse(r->line.data, r->line.len, name, &json);
  if (!status) {
    status = brim_top_view_from_json(json, out);
    if (status == BRIM_EPARSE) {
      char why[256];
      snprintf(why, sizeof why, "%s", brim_status_detail());
      status = brim_fail(BRIM_EPARSE, "%s: %s", name, why);
    }
  }
  json_decref(json);
  // the program that wrote it was stopped in the middle of a line
  if (status == BRIM_EPARSE && !whole) return BRIM_EEND;
  return status;
}

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
  *out = (brim_top_source){
      .name = "recording", .ctx = r, .read = recording_read, .close = recording_close};
  return BRIM_OK;
}
