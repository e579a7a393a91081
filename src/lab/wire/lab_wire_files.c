// The client's side of transferring experiment files to and from a server (lab_wire_files.h).

#include "lab/wire/lab_wire_files.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_log.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "lab/http/lab_http_client.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_link.h"

const brim_lab_file_kind brim_lab_file_kinds[] = {
    {"log", NULL, "attempt.log", true},
    {"stdout", NULL, "stdout.log", true},
    {"stderr", NULL, "stderr.log", true},
    {"checkpoint", "last.safetensors", "last.safetensors", false},
    {"best", "best.safetensors", "best.safetensors", false},
    {"weights", "model.safetensors", "model.safetensors", false},
    {"record", "log.jsonl", "log.jsonl", false},
    {"config", "config.yaml", "config.yaml", false},
    {NULL, NULL, NULL, false},
};
static_assert(sizeof brim_lab_file_kinds / sizeof *brim_lab_file_kinds == BRIM_LAB_FILE_KINDS + 1,
              "one row for each kind");

const brim_lab_file_kind *brim_lab_file_find(const char *name) {
  for (const brim_lab_file_kind *k = brim_lab_file_kinds; k->name; k++) {
    if (strcmp(k->name, name) == 0) return k;
  }
  return NULL;
}

//----------------------------------------- whole files -----------------------------------------

enum { AGAIN_MS = 500 };

static brim_status on_file(void *ctx, const brim_store_file *file) {
  brim_lab_file_row *rows = ctx;
  const brim_lab_file_kind *kind = brim_lab_file_find(file->name);
  if (!kind) return BRIM_OK;  // a newer server has kinds that this brim does not know
  brim_lab_file_row *r = &rows[kind - brim_lab_file_kinds];
  snprintf(r->sha256, sizeof r->sha256, "%s", file->sha256);
  r->size = file->size;
  r->step = file->step;
  r->there = true;
  return BRIM_OK;
}

brim_status brim_lab_file_rows(brim_lab_link *link, const char *exp,
                               brim_lab_file_row rows[BRIM_LAB_FILE_KINDS]) {
  memset(rows, 0, BRIM_LAB_FILE_KINDS * sizeof *rows);
  return brim_lab_files(link, exp, on_file, rows);
}

//---------------------------------- one file ----------------------------------

typedef struct getting {
  brim_lab_download *g;
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
  t->g->disk_failed = t->g->disk_failed || status;
  return status;
}

static brim_status wait_again(const brim_lab_download *g) {
  brim_log_warn("lab", "%s waits: %s", g->kind->shown, brim_status_detail());
  brim_status_clear();
  brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  return g->keep(g->ctx) ? BRIM_OK : BRIM_EINTERRUPTED;
}

static brim_status take_all(getting *t) {
  const brim_lab_download *g = t->g;
  uint8_t digest[BRIM_SHA256_BYTES];
  char hex[BRIM_SHA256_HEX];
  brim_sha256_init(&t->sum);
  while (t->got < g->row->size) {
    const brim_lab_range_fetch how = {
        .exp = g->exp, .name = g->kind->name, .from = t->got, .take = take_bytes, .ctx = t};
    int64_t before = t->got;
    brim_status status = brim_lab_fetch(g->client, &how);
    if (!status && t->got == before) {
      return brim_fail(BRIM_EPARSE, "the server's file is shorter than it says");
    }
    if (status == BRIM_EIO && !g->disk_failed) status = wait_again(g);
    BRIM_TRY(status);
  }
  brim_sha256_final(&t->sum, digest);
  brim_sha256_format(digest, hex);
  if (strcmp(hex, g->row->sha256) == 0) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "the server's file has another hash than it says");
}

brim_status brim_lab_get_file(brim_lab_download *g) {
  getting t = {.g = g};
  brim_status status = brim_fs_writer_open(g->path, &t.writer);
  g->disk_failed = status != BRIM_OK;
  BRIM_TRY(status);
  status = take_all(&t);
  if (status) {
    brim_fs_writer_abort(t.writer);
    return status;
  }
  status = brim_fs_writer_commit(t.writer);
  g->disk_failed = status != BRIM_OK;
  return status;
}

//-------------------------------------------- pieces --------------------------------------------

enum {
  LEAST_PIECE = 64 << 10,
  FIRST_PIECE = 256 << 10,
  QUICK_MS = 500,    // double the next piece if a piece took less
  SLOW_MS = 3000,    // halve the next piece if a piece took more
  SEND_MS = 30000,   // the server's own limit for a request
  HASH_MS = 600000,  // for the last piece, since the server may read the whole file again
  MOST_AGAIN = 3,
  BLOCK = 256 << 10,
  TEXT = 1024
};

//---------------------------------- sending ----------------------------------

static ssize_t read_at(int fd, char *data, size_t size, int64_t from) {
  size_t done = 0;
  while (done < size) {
    ssize_t n = pread(fd, data + done, size - done, (off_t)(from + (int64_t)done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  return (ssize_t)done;
}

static brim_status hash(brim_lab_sending *s, const bool *stop) {
  uint8_t digest[BRIM_SHA256_BYTES];
  brim_sha256 sum;
  char *block = (char *)brim_alloc(BLOCK);
  brim_status status = block ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a file");
  brim_sha256_init(&sum);
  for (int64_t at = 0; !status && at < s->size;) {
    size_t n = s->size - at < BLOCK ? (size_t)(s->size - at) : BLOCK;
    if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED)) {
      status = BRIM_EINTERRUPTED;
    } else if (read_at(s->fd, block, n, at) != (ssize_t)n) {
      status =
          brim_fail(BRIM_EPARSE, "the file %s became shorter while it was read", s->kind->shown);
    } else {
      brim_sha256_update(&sum, block, n);
    }
    at += (int64_t)n;
  }
  brim_free(block);
  BRIM_TRY(status);
  brim_sha256_final(&sum, digest);
  brim_sha256_format(digest, s->sha256);
  return BRIM_OK;
}

brim_status brim_lab_sending_begin(brim_lab_sending *s, const bool *stop) {
  struct stat st;
  if (fstat(s->fd, &st) != 0) {
    return brim_fail(BRIM_EPARSE, "%s: %s", s->kind->shown, brim_errno_text(errno));
  }
  s->size = (int64_t)st.st_size;
  s->piece = FIRST_PIECE;
  s->server_bytes = -1;
  s->restarts = 0;
  return s->kind->log ? BRIM_OK : hash(s, stop);
}

static void put_path(const brim_lab_sending *s, int64_t offset, brim_str *out) {
  brim_str_printf(out, "/v1/attempts/%s/%lld/files/%s?fence=%lld&offset=%lld", s->ref.exp,
                  (long long)s->ref.attempt, s->kind->name, (long long)s->ref.fence,
                  (long long)offset);
  if (s->kind->log) return;
  brim_str_printf(out, "&size=%lld&sha256=%s&step=%lld", (long long)s->size, s->sha256,
                  (long long)s->step);
}

// Reads the reply to a piece.
static brim_status take_answer(brim_lab_sending *s, int64_t offset, const brim_http_answer *a,
                               bool *done) {
  json_t *line = NULL;
  if (brim_json_parse(a->body.data, a->body.len, "reply", &line)) brim_status_clear();
  const char *text = json_string_value(json_object_get(line, "message"));
  const json_t *size = json_object_get(line, "size");
  brim_status status = BRIM_OK;
  if ((a->status == 200 || a->status == 409) && json_is_integer(size)) {
    s->server_bytes = (int64_t)json_integer_value(size);
    *done =
        s->kind->log ? s->server_bytes >= s->size : json_is_true(json_object_get(line, "complete"));
    if (a->status == 409 && s->server_bytes <= offset && ++s->restarts > MOST_AGAIN) {
      status = brim_fail(BRIM_EPARSE, "the server's copy of %s does not become the same",
                         s->kind->shown);
    }
  } else if (a->status == 409) {
    status = brim_fail(BRIM_ESTATE, "%s", text ? text : "");
  } else if ((a->status >= 500 && a->status != 501) || a->status == 401 || a->status == 403 ||
             !json_object_get(line, "ok")) {
    // The status may come from an ended token or from a proxy in front of the server: try again later.
    status =
        brim_fail(BRIM_EIO, "the server answers with status %d: %s", a->status, text ? text : "");
  } else {
    status = brim_fail(BRIM_EUNSUPPORTED, "the server answers with status %d: %s", a->status,
                       text ? text : "");
  }
  json_decref(line);
  return status;
}

static void choose_piece(brim_lab_sending *s, brim_status status, int64_t took_ms) {
  if (status == BRIM_EIO || took_ms > SLOW_MS) {
    s->piece = s->piece / 2 > LEAST_PIECE ? s->piece / 2 : LEAST_PIECE;
  } else if (took_ms < QUICK_MS && s->piece * 2 <= BRIM_LAB_PIECE_MAX) {
    s->piece *= 2;
  }
}

brim_status brim_lab_sending_next(struct brim_http_client *client, brim_lab_sending *s,
                                  bool *done) {
  // The first call sends an empty piece: the reply tells how much the server has.
  int64_t offset = s->server_bytes < 0 ? 0 : s->server_bytes,
          left = s->server_bytes < 0 ? 0 : s->size - s->server_bytes;
  size_t n = left <= 0 ? 0 : left < (int64_t)s->piece ? (size_t)left : s->piece;
  char *data = (char *)brim_alloc(n + 1);
  brim_str path;
  brim_str_init(&path);
  put_path(s, offset, &path);
  *done = false;
  brim_status status =
      data ? brim_str_status(&path) : brim_fail(BRIM_ENOMEM, "out of memory for a file");
  if (!status && read_at(s->fd, data, n, offset) != (ssize_t)n) {
    status = brim_fail(BRIM_EPARSE, "the file %s became shorter while it was read", s->kind->shown);
  }
  if (!status) {
    brim_http_answer answer;
    const brim_http_call call = {.method = "POST",
                                 .path = path.data,
                                 .body = data,
                                 .body_size = n,
                                 .type = "application/octet-stream",
                                 .timeout_ms = left > 0 && (int64_t)n == left ? HASH_MS : SEND_MS};
    int64_t start = brim_clock_ms();
    brim_http_answer_init(&answer);
    status = brim_http_client_call(client, &call, &answer);
    if (status == BRIM_EINVAL) status = BRIM_EIO;  // a refused certificate may be replaced
    if (!status) status = take_answer(s, offset, &answer, done);
    choose_piece(s, status, brim_clock_ms() - start);
    brim_http_answer_deinit(&answer);
  }
  brim_str_deinit(&path);
  brim_free(data);
  return status;
}

//---------------------------------- fetching ----------------------------------

typedef struct fetching {
  const brim_lab_range_fetch *f;
  int code;
  char text[TEXT];  // text of a refusal
  size_t length;
} fetching;

static brim_status on_piece(void *ctx, const char *data, size_t size) {
  fetching *g = (fetching *)ctx;
  if (g->code == 200) return g->f->take(g->f->ctx, data, size);
  size_t n = size < TEXT - 1 - g->length ? size : TEXT - 1 - g->length;
  memcpy(g->text + g->length, data, n);
  g->length += n;
  return BRIM_OK;
}

static brim_status fail_refused(const fetching *g) {
  json_t *line = NULL;
  char text[256] = "";
  if (!brim_json_parse(g->text, g->length, "reply", &line)) {
    const char *message = json_string_value(json_object_get(line, "message"));
    if (!message) message = json_string_value(json_object_get(line, "error"));
    snprintf(text, sizeof text, "%s", message ? message : "");
  }
  json_decref(line);
  brim_status status = g->code == 404 ? BRIM_ENOENT : g->code >= 500 ? BRIM_EIO : BRIM_EINVAL;
  if (g->code == 501) status = BRIM_EUNSUPPORTED;
  if (text[0]) {
    brim_status_set_detail(text);
    return status;
  }
  return brim_fail(status, "the server answers with status %d: %s", g->code, text);
}

brim_status brim_lab_fetch(struct brim_http_client *client, const brim_lab_range_fetch *f) {
  fetching g = {.f = f};
  brim_str path;
  brim_str_init(&path);
  brim_str_printf(&path, "/v1/exps/%s/files/%s?from=%lld", f->exp, f->name, (long long)f->from);
  if (f->attempt > 0) brim_str_printf(&path, "&attempt=%lld", (long long)f->attempt);
  brim_status status = brim_str_status(&path);
  if (!status) status = brim_http_client_stream(client, path.data, &g.code, on_piece, &g);
  brim_str_deinit(&path);
  if (!status && g.code != 200) status = fail_refused(&g);
  return status;
}
