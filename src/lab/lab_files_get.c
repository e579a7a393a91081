// Whole files from a server, checked by their hash.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_log.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "lab/lab_files.h"
#include "lab/lab_link.h"
#include "lab/lab_wire.h"

enum { AGAIN_MS = 500 };

static brim_status take_row(brim_lab_file_row *rows, const json_t *item) {
  const char *name = "", *sha256 = "";
  BRIM_TRY(brim_lab_wire_string(item, "name", true, &name));
  BRIM_TRY(brim_lab_wire_string(item, "sha256", true, &sha256));
  const brim_lab_file_kind *kind = brim_lab_file_find(name);
  if (!kind) return BRIM_OK;  // of a newer server
  brim_lab_file_row *r = &rows[kind - brim_lab_file_kinds];
  snprintf(r->sha256, sizeof r->sha256, "%s", sha256);
  r->step = -1;
  BRIM_TRY(brim_lab_wire_int(item, "size", true, &r->size));
  BRIM_TRY(brim_lab_wire_int(item, "step", false, &r->step));
  r->there = true;
  return BRIM_OK;
}

static brim_status on_rows(void *ctx, const json_t *line) {
  size_t i;
  json_t *item;
  json_array_foreach(json_object_get(line, "files"), i, item) BRIM_TRY(take_row(ctx, item));
  return BRIM_OK;
}

brim_status brim_lab_file_rows(brim_lab_link *link, const char *exp,
                               brim_lab_file_row rows[BRIM_LAB_FILE_KINDS]) {
  json_t *request = json_pack("{s:s,s:s}", "op", "files", "exp", exp);
  memset(rows, 0, BRIM_LAB_FILE_KINDS * sizeof *rows);
  if (!request) return brim_fail(BRIM_ENOMEM, "out of memory for a request");
  brim_status status = brim_lab_stream(link, request, on_rows, rows);
  json_decref(request);
  return status;
}

//---------------------------------- one file ----------------------------------

typedef struct getting {
  brim_lab_getting *g;
  brim_fs_writer *writer;
  brim_sha256 sum;
  int64_t got;
} getting;

static brim_status take_bytes(void *ctx, const char *data, size_t size) {
  getting *t = ctx;
  if (!t->g->keep(t->g->ctx)) return BRIM_EINTERRUPTED;
  if ((int64_t)size > t->g->row->size - t->got) {
    return brim_fail(BRIM_EPARSE, "the server's file is longer than it says");
  }
  brim_sha256_update(&t->sum, data, size);
  t->got += (int64_t)size;
  brim_status status = brim_fs_writer_write(t->writer, data, size);
  t->g->broken = t->g->broken || status;
  return status;
}

static brim_status wait_again(const brim_lab_getting *g) {
  brim_log_warn("lab", "%s waits: %s", g->kind->shown, brim_status_detail());
  brim_status_clear();
  brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  return g->keep(g->ctx) ? BRIM_OK : BRIM_EINTERRUPTED;
}

static brim_status take_all(getting *t) {
  const brim_lab_getting *g = t->g;
  uint8_t digest[BRIM_SHA256_BYTES];
  char hex[BRIM_SHA256_HEX];
  brim_sha256_init(&t->sum);
  while (t->got < g->row->size) {
    const brim_lab_fetching how = {
        .exp = g->exp, .name = g->kind->name, .from = t->got, .take = take_bytes, .ctx = t};
    int64_t before = t->got;
    brim_status status = brim_lab_fetch(g->client, &how);
    if (!status && t->got == before) {
      return brim_fail(BRIM_EPARSE, "the server's file is shorter than it says");
    }
    if (status == BRIM_EIO && !g->broken) status = wait_again(g);
    BRIM_TRY(status);
  }
  brim_sha256_final(&t->sum, digest);
  brim_sha256_format(digest, hex);
  if (strcmp(hex, g->row->sha256) == 0) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "the server's file has another hash than it says");
}

brim_status brim_lab_get_file(brim_lab_getting *g) {
  getting t = {.g = g};
  brim_status status = brim_fs_writer_open(g->path, &t.writer);
  g->broken = status != BRIM_OK;
  BRIM_TRY(status);
  status = take_all(&t);
  if (status) {
    brim_fs_writer_abort(t.writer);
    return status;
  }
  status = brim_fs_writer_commit(t.writer);
  g->broken = status != BRIM_OK;
  return status;
}
