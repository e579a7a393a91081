// Requests about files of experiments. Bytes are written and read without the store's lock; it is taken to
// check the attempt and to note a whole file.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"

enum { LOG_BYTES = 64 << 10, LOG_MOST = 1 << 20 };

// A request about a file, as its path and query say.
typedef struct file_request {
  brim_lab_pool *pool;
  json_t *path;  // its parts by their names
  brim_store_ref ref;
  brim_pool_piece piece;
  int64_t step;
  char sha256[65];
} file_request;

static brim_status query_int(const brim_http_request *http, const char *name, int64_t *out) {
  const char *text = brim_http_query(http, name);
  if (!text || brim_parse_i64(text, out)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is a whole number", name);
}

static const char *part(const file_request *a, const char *name) {
  const char *text = json_string_value(json_object_get(a->path, name));
  return text ? text : "";
}

static brim_status find_kind(file_request *a, const char *name) {
  a->piece.kind = brim_lab_file_find(name);
  if (a->piece.kind) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "a server keeps no file of this name");
}

// Reads the parts of the path. The caller frees a->path.
static brim_status begin(brim_lab_pool *pool, const brim_http_request *http, file_request *a) {
  bool known;
  *a = (file_request){.pool = pool, .step = -1, .piece = {.exp = a->ref.exp, .sha256 = a->sha256}};
  if (!pool->disk) return brim_fail(BRIM_EUNSUPPORTED, "this server keeps no files");
  a->path = json_object();
  if (!a->path) return brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (brim_pool_route_find(http->method, http->path, a->path, &known)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
}

//---------------------------------- taking ----------------------------------

static bool is_sha256(const char *text) {
  return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static brim_status read_piece(const brim_http_request *http, file_request *a) {
  const char *sha = brim_http_query(http, "sha256");
  BRIM_TRY(find_kind(a, part(a, "name")));
  snprintf(a->ref.exp, sizeof a->ref.exp, "%s", part(a, "exp"));
  if (strlen(part(a, "exp")) != BRIM_EXP_ID - 1) {
    return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
  }
  a->ref.attempt = json_integer_value(json_object_get(a->path, "attempt"));
  a->ref.fence = -1;
  a->piece.size = -1;
  BRIM_TRY(query_int(http, "fence", &a->ref.fence));
  BRIM_TRY(query_int(http, "offset", &a->piece.offset));
  BRIM_TRY(query_int(http, "size", &a->piece.size));
  BRIM_TRY(query_int(http, "step", &a->step));
  a->piece.attempt = a->ref.attempt;
  a->piece.data = http->body;
  a->piece.data_size = http->body_size;
  if (a->piece.offset < 0 || a->ref.fence < 0) {
    return brim_fail(BRIM_EINVAL, "a piece of a file needs its fence and its offset");
  }
  if (a->piece.kind->log) return BRIM_OK;
  if (!sha || !is_sha256(sha) || a->piece.size < 0 ||
      a->piece.offset > a->piece.size - (int64_t)http->body_size) {
    return brim_fail(BRIM_EINVAL, "a file needs its size and its sha256, and pieces within them");
  }
  snprintf(a->sha256, sizeof a->sha256, "%s", sha);
  return BRIM_OK;
}

static brim_status check_attempt(file_request *a, const brim_http_request *http,
                                 const brim_pool_caller *caller) {
  bool known;
  json_t *request = json_object(), *ref = brim_lab_wire_ref(&a->ref);
  brim_status status = brim_json_put(request, "ref", ref);
  pthread_mutex_lock(&a->pool->lock);
  if (!status) {
    status = brim_pool_check_own(
        a->pool, brim_pool_route_find(http->method, http->path, NULL, &known), caller, request);
  }
  if (!status) status = brim_store_check_last(a->pool->options.store, &a->ref);
  pthread_mutex_unlock(&a->pool->lock);
  json_decref(request);
  return status;
}

typedef struct looking {
  const char *name;
  char sha256[65];
  int64_t size, attempt;
  bool found;
} looking;

static brim_status look(void *ctx, const brim_store_file *f) {
  looking *l = (looking *)ctx;
  if (strcmp(f->name, l->name) != 0) return BRIM_OK;
  snprintf(l->sha256, sizeof l->sha256, "%s", f->sha256);
  l->size = f->size;
  l->attempt = f->attempt;
  l->found = true;
  return BRIM_OK;
}

// Notes a whole file in the store and removes the file that it replaces.
static brim_status note_whole(file_request *a) {
  const brim_store_file file = {
      .name = a->piece.kind->name, .sha256 = a->sha256, .size = a->piece.size, .step = a->step};
  looking l = {.name = file.name};
  pthread_mutex_lock(&a->pool->lock);
  brim_status status = brim_store_put_file(a->pool->options.store, &a->ref, &file);
  if (!status) status = brim_store_files(a->pool->options.store, a->ref.exp, look, &l);
  pthread_mutex_unlock(&a->pool->lock);
  if (!status && l.found) {
    brim_pool_disk_prune(a->pool->disk, a->ref.exp, a->piece.kind, l.sha256, NULL);
  }
  return status;
}

static void reply_kept(const brim_pool_kept *kept, brim_http_reply *reply) {
  static const char *const texts[] = {
      NULL, "the piece does not begin where the file ends, or differs from it",
      "the disk of the server is full", "the server has no room for all of this file now"};
  json_t *line = json_object();
  brim_status status = brim_json_put(line, "ok", json_boolean(kept->refusal == BRIM_POOL_TAKEN));
  if (!status && kept->refusal) {
    status = brim_json_put(line, "message", json_string(texts[kept->refusal]));
  }
  if (!status) status = brim_json_put(line, "size", json_integer(kept->size));
  if (!status) status = brim_json_put(line, "complete", json_boolean(kept->complete));
  reply->status = kept->refusal == BRIM_POOL_TAKEN       ? 200
                  : kept->refusal == BRIM_POOL_ELSEWHERE ? 409
                                                         : 507;
  brim_pool_reply_line(reply, line, status);
}

void brim_pool_file_put(brim_lab_pool *pool, const brim_pool_caller *caller,
                        const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  brim_pool_kept kept = {0};
  brim_status status = begin(pool, http, &a);
  if (!status) status = read_piece(http, &a);
  if (!status) status = check_attempt(&a, http, caller);
  if (!status) status = brim_pool_disk_put(pool->disk, &a.piece, &kept);
  if (!status && kept.complete) status = note_whole(&a);
  json_decref(a.path);
  if (status) {
    brim_pool_reply_failure(reply, status);
  } else {
    reply_kept(&kept, reply);
  }
}

//---------------------------------- reading ----------------------------------

// Without a named attempt: the one that was claimed last.
static brim_status last_attempt(file_request *a) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(a->pool->reading.store, a->ref.exp, &exp));
  a->piece.attempt = exp->attempt;
  brim_store_exp_free(exp);
  return BRIM_OK;
}

// Under the store's lock.
static brim_status find_file(file_request *a, const brim_http_request *http) {
  looking l = {.name = a->piece.kind->name};
  BRIM_TRY(brim_store_find(a->pool->reading.store, part(a, "exp"), a->ref.exp));
  BRIM_TRY(query_int(http, "attempt", &a->piece.attempt));
  if (a->piece.kind->log) return a->piece.attempt > 0 ? BRIM_OK : last_attempt(a);
  BRIM_TRY(brim_store_files(a->pool->reading.store, a->ref.exp, look, &l));
  if (!l.found || (a->piece.attempt > 0 && a->piece.attempt != l.attempt)) {
    return brim_fail(BRIM_ENOENT, "the server has no %s of this experiment", l.name);
  }
  memcpy(a->sha256, l.sha256, sizeof a->sha256);
  a->piece.size = l.size;
  return BRIM_OK;
}

static brim_status open_file(file_request *a, const brim_http_request *http, int *fd,
                             int64_t *size) {
  pthread_mutex_lock(&a->pool->reading.lock);
  brim_status status = find_file(a, http);
  pthread_mutex_unlock(&a->pool->reading.lock);
  if (!status) status = brim_pool_disk_read(a->pool->disk, &a->piece, fd, size);
  return status;
}

void brim_pool_file_get(brim_lab_pool *pool, const brim_pool_caller *caller,
                        const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  int fd = -1;
  int64_t size = 0, from = 0;
  char text[192];
  (void)caller;
  brim_status status = begin(pool, http, &a);
  if (!status) status = find_kind(&a, part(&a, "name"));
  if (!status) status = query_int(http, "from", &from);
  if (!status) status = open_file(&a, http, &fd, &size);
  if (!status && (from < 0 || from > size)) {
    close(fd);
    status = brim_fail(BRIM_EINVAL, "the file has %lld bytes", (long long)size);
  }
  json_decref(a.path);
  if (status) {
    brim_pool_reply_failure(reply, status);
    return;
  }
  snprintf(text, sizeof text, "attachment; filename=\"%.12s-%s\"", a.ref.exp, a.piece.kind->shown);
  brim_http_reply_header(reply, "Content-Disposition", text);
  reply->type = "application/octet-stream";
  reply->has_fd = true;
  reply->fd = fd;
  reply->fd_from = (uint64_t)from;
  reply->fd_size = (uint64_t)(size - from);
}

//---------------------------------- logs as text ----------------------------------

// Bytes of the UTF-8 character at `text`; 0: there is none, or the piece ends inside it (*cut).
static size_t character(const unsigned char *text, size_t size, bool *cut) {
  size_t n = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
  *cut = false;
  if (text[0] == 0 || (text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4) return 0;
  for (size_t i = 1; i < n; i++) {
    if (i == size) {
      *cut = true;
      return 0;
    }
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return brim_utf8_valid((const char *)text, n) ? n : 0;
}

// Appends text; bytes that are not UTF-8 become U+FFFD. *used: bytes up to a character that is cut off.
static void put_text(const char *bytes, size_t size, brim_str *out, size_t *used) {
  const unsigned char *text = (const unsigned char *)bytes;
  size_t at = 0;
  while (at < size) {
    bool cut;
    size_t n = character(text + at, size - at, &cut);
    if (cut && at > 0) break;
    brim_str_append_n(out, n ? bytes + at : "\xef\xbf\xbd", n ? n : 3);
    at += n ? n : 1;
  }
  *used = at;
}

static brim_status put_log(const file_request *a, int64_t from, int64_t size, const char *bytes,
                           size_t count, json_t *line) {
  brim_str text;
  size_t used = 0;
  brim_str_init(&text);
  put_text(bytes, count, &text, &used);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(line, "attempt", json_integer(a->piece.attempt));
  if (!status) status = brim_json_put(line, "stream", json_string(a->piece.kind->name));
  if (!status) status = brim_json_put(line, "from", json_integer(from));
  if (!status) status = brim_json_put(line, "next", json_integer(from + (int64_t)used));
  if (!status) status = brim_json_put(line, "size", json_integer(size));
  if (!status) status = brim_json_put(line, "text", json_stringn(text.data, text.len));
  brim_str_deinit(&text);
  return status;
}

// Opens a log. Workers send stdout and stderr as one log, so a page that asks for stdout gets that.
static brim_status open_log(file_request *a, const brim_http_request *http, int *fd,
                            int64_t *size) {
  const char *stream = brim_http_query(http, "stream");
  BRIM_TRY(find_kind(a, stream ? stream : "log"));
  if (!a->piece.kind->log) return brim_fail(BRIM_EINVAL, "stream is log, stdout or stderr");
  brim_status status = open_file(a, http, fd, size);
  if (status == BRIM_ENOENT && a->ref.exp[0] && strcmp(a->piece.kind->name, "stdout") == 0) {
    a->piece.kind = brim_lab_file_find("log");
    status = brim_pool_disk_read(a->pool->disk, &a->piece, fd, size);
  }
  if (status != BRIM_ENOENT || !a->ref.exp[0]) return status;
  brim_status_clear();  // nothing of it has come
  *fd = -1;
  *size = 0;
  return BRIM_OK;
}

static brim_status read_log(int fd, int64_t size, int64_t *from, int64_t limit, brim_str *out) {
  if (*from < 0) *from = size + *from > 0 ? size + *from : 0;
  if (*from > size) *from = size;
  int64_t count = size - *from < limit ? size - *from : limit;
  char *bytes = count > 0 ? (char *)brim_alloc((size_t)count) : NULL;
  if (count > 0 && !bytes) return brim_fail(BRIM_ENOMEM, "out of memory for a log");
  ssize_t n = count > 0 ? pread(fd, bytes, (size_t)count, (off_t)*from) : 0;
  if (n > 0) brim_str_append_n(out, bytes, (size_t)n);
  brim_free(bytes);
  return brim_str_status(out);
}

void brim_pool_file_log(brim_lab_pool *pool, const brim_pool_caller *caller,
                        const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  int fd = -1;
  int64_t size = 0, from = 0, limit = LOG_BYTES;
  json_t *line = NULL;
  brim_str bytes;
  (void)caller;
  brim_str_init(&bytes);
  brim_status status = begin(pool, http, &a);
  if (!status) status = query_int(http, "from", &from);
  if (!status) status = query_int(http, "limit", &limit);
  if (!status && (limit < 1 || limit > LOG_MOST)) {
    status = brim_fail(BRIM_EINVAL, "limit is 1 to %d bytes", LOG_MOST);
  }
  if (!status) status = open_log(&a, http, &fd, &size);
  if (!status) status = read_log(fd, size, &from, limit, &bytes);
  if (fd >= 0) close(fd);
  if (!status) {
    line = json_object();
    status = line ? put_log(&a, from, size, bytes.data, bytes.len, line)
                  : brim_fail(BRIM_ENOMEM, "out of memory for a log");
  }
  brim_str_deinit(&bytes);
  json_decref(a.path);
  brim_pool_reply_line(reply, line, status);
}
