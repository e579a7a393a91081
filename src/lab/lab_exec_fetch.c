// The checkpoint of an experiment that another machine trained, before it is resumed here.
#include <inttypes.h>

#include "lab/http/lab_http_client.h"
#include "lab/lab_exec_int.h"
#include "lab/lab_files.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"

enum { CONNECT_MS = 3000, AGAIN_MS = 500 };

typedef struct fetch {
  brim_http_client *client;
  const char *folder, *exp;
  bool (*keep)(void *ctx);
  void *ctx;
  brim_lab_file_row rows[BRIM_LAB_FILE_KINDS];
  bool broken;  // by this machine's disk
} fetch;

static const brim_lab_file_row *row_of(const fetch *f, const brim_lab_file_kind *kind) {
  return &f->rows[kind - brim_lab_file_kinds];
}

static brim_status ask_rows(brim_lab_link *link, fetch *f) {
  for (;;) {
    brim_status status = brim_lab_file_rows(link, f->exp, f->rows);
    if (status != BRIM_EIO) return status;
    brim_status_clear();
    if (!f->keep(f->ctx)) return BRIM_EINTERRUPTED;
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

static brim_status fetch_one(fetch *f, const brim_lab_file_kind *kind) {
  char *path = brim_fs_join(f->folder, kind->local);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  brim_lab_getting g = {.client = f->client,
                        .exp = f->exp,
                        .kind = kind,
                        .row = row_of(f, kind),
                        .path = path,
                        .keep = f->keep,
                        .ctx = f->ctx};
  brim_status status = g.row->there ? brim_lab_get_file(&g) : BRIM_OK;
  f->broken = g.broken;
  brim_free(path);
  return status;
}

// The checkpoint comes last: one that is here has all that belongs to it.
static brim_status fetch_all(brim_lab_link *link, fetch *f) {
  static const char *const names[] = {"record", "best", "checkpoint"};
  brim_exec_checkpoint here = {.step = -1, .sent = -1};
  brim_exec_checkpoint_look(&here, f->folder);
  BRIM_TRY(ask_rows(link, f));
  const brim_lab_file_row *last = row_of(f, brim_lab_file_find("checkpoint"));
  if (!last->there || last->step <= here.step) return BRIM_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    BRIM_TRY(fetch_one(f, brim_lab_file_find(names[i])));
  }
  brim_log_info("lab", "the checkpoint of step %" PRId64 " comes from the server", last->step);
  return BRIM_OK;
}

brim_status brim_exec_fetch(brim_lab_link *link, const char *folder, const char *exp,
                            bool (*keep)(void *ctx), void *ctx) {
  const char *url = brim_lab_link_server(link);
  fetch f = {.folder = folder, .exp = exp, .keep = keep, .ctx = ctx};
  if (!url) return BRIM_OK;
  brim_status status = brim_lab_http_open(url, CONNECT_MS, &f.client);
  if (!status) status = fetch_all(link, &f);
  brim_http_client_close(f.client);
  if (!status || status == BRIM_EINTERRUPTED || f.broken) return status;
  brim_log_warn("lab", "the checkpoint on the server is not used: %s", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}
