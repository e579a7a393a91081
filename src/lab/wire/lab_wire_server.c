// The socket of a sweep (lab_wire_server.h): its path, connections to it, and the server over epoll.

#include "lab/wire/lab_wire_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_status.h"
#include "base/base_xxh64.h"

//-------------------------------------------- socket --------------------------------------------
// Paths, the listening socket and the connection.

enum { PATH = sizeof(((struct sockaddr_un *)0)->sun_path) };

enum { BACKLOG = 128, SWEEP_FILE_MAX = 64 << 10, RETRY_MS = 20 };

static int new_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool set_address(const char *path, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  size_t n = strlen(path);
  if (n == 0 || n >= sizeof out->sun_path) return false;
  memcpy(out->sun_path, path, n + 1);
  return true;
}

// Listens at a path. Returns 0 or an errno.
static int listen_at(const char *path, int *out) {
  struct sockaddr_un address;
  if (!set_address(path, &address)) return ENAMETOOLONG;
  int fd = new_socket();
  if (fd < 0) return errno;
  // Set the mode before the socket has a name, so that other users can never connect.
  int err = fchmod(fd, 0600) != 0 ? errno : 0;
  struct stat st;
  if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) unlink(path);
  if (!err && bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) err = errno;
  if (!err && listen(fd, BACKLOG) != 0) err = errno;
  if (err) {
    close(fd);
    return err;
  }
  *out = fd;
  return 0;
}

// True if only this user can enter the folder. The folder may be below /tmp, where every user can
// write.
static bool is_private(const char *folder) {
  struct stat st;
  return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
         (st.st_mode & 077) == 0;
}

static bool short_path(const char *folder, char out[PATH]) {
  brim_xxh64 sum;
  brim_xxh64_init(&sum);
  brim_xxh64_update(&sum, folder, strlen(folder));
  unsigned long long hash = brim_xxh64_value(&sum);
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  int n = 0;
  if (runtime && *runtime == '/' && is_private(runtime)) {
    n = snprintf(out, PATH, "%s/brim-%016llx.sock", runtime, hash);
    if (n > 0 && n < PATH) return true;
  }
  char shared[64];
  snprintf(shared, sizeof shared, "/tmp/brim-%u", (unsigned)geteuid());
  if (mkdir(shared, 0700) != 0 && errno != EEXIST) return false;
  if (!is_private(shared)) return false;
  snprintf(out, PATH, "%s/%016llx.sock", shared, hash);
  return true;
}

// Listens in the folder, or at the short path if the folder's is too long. `folder` is absolute,
// because other processes read the path from sweep.json. The path must be UTF-8 for the same reason.
static int listen_for(const char *folder, int *fd, char path[PATH]) {
  int n = snprintf(path, PATH, "%s/" BRIM_LAB_SOCKET_FILE, folder);
  bool fits = n > 0 && n < PATH && brim_utf8_valid(path, (size_t)n);
  int err = fits ? listen_at(path, fd) : ENAMETOOLONG;
  return err && short_path(folder, path) ? listen_at(path, fd) : err;
}

// Makes a listening socket of mode 0600 that does not block and closes on exec. The caller holds the
// folder's lock, so a socket that exists already is stale.
static brim_status socket_listen(const char *folder, int *fd, char path[PATH]) {
  char *real = realpath(folder, NULL);
  int err = real ? listen_for(real, fd, path) : errno;
  free(real);
  if (!err) return BRIM_OK;
  return brim_fail(brim_errno_status(err), "cannot make the sweep's socket in %s: %s", folder,
                   brim_errno_text(err));
}

static brim_status put_info(json_t *o, const char *path, const char *version) {
  char started[32];
  brim_clock_iso8601(brim_clock_wall_s(), started);
  BRIM_TRY(brim_json_put(o, "pid", json_integer(getpid())));
  BRIM_TRY(brim_json_put(o, "socket", json_string(path)));
  BRIM_TRY(brim_json_put(o, "started", json_string(started)));
  return brim_json_put(o, "version", json_string(version));
}

// Writes sweep.json.
static brim_status socket_announce(const char *folder, const char *path, const char *version) {
  brim_json_setup();
  json_t *o = json_object();
  char *text = NULL, *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  brim_status status = file ? put_info(o, path, version) : brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) status = brim_json_dump(o, 2, &text);
  if (!status) status = brim_fs_write(file, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(file);
  return status;
}

brim_status brim_lab_socket_read(const char *folder, brim_lab_sweep_info *out) {
  *out = (brim_lab_sweep_info){0};
  char *text = NULL, *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  if (!file) return brim_fail(BRIM_ENOMEM, "out of memory for a socket");
  size_t size = 0;
  json_t *o = NULL;
  brim_status status = brim_fs_read(file, SWEEP_FILE_MAX, &text, &size);
  if (!status) status = brim_json_parse(text, size, file, &o);
  brim_free(text);
  brim_free(file);
  const char *path = json_string_value(json_object_get(o, "socket"));
  bool good = path && *path && strlen(path) < sizeof out->socket;
  if (good) {
    snprintf(out->socket, sizeof out->socket, "%s", path);
    out->pid = json_integer_value(json_object_get(o, "pid"));
  }
  json_decref(o);
  if (good || status == BRIM_ENOMEM) return status;
  return brim_fail(BRIM_ENOENT, "no sweep runs in %s", folder);
}

// BRIM_EINVAL: FOLDER/sweep.json exists and was not written by a sweep.
static brim_status socket_check(const char *folder) {
  brim_lab_sweep_info info;
  brim_status status = brim_lab_socket_read(folder, &info);
  if (status != BRIM_ENOENT) return status;
  char *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  bool there = file && brim_fs_exists(file);
  status = !file ? brim_fail(BRIM_ENOMEM, "out of memory for a socket")
           : there
               ? brim_fail(BRIM_EINVAL,
                           "%s was not written by brim sweep, which needs the name; move the file "
                           "away, or choose another folder with --output-dir",
                           file)
               : BRIM_OK;
  brim_free(file);
  if (!status) brim_status_clear();
  return status;
}

static brim_status fail_refused(const brim_lab_sweep_info *info, int err) {
  if (err == ECONNREFUSED || err == ENOENT) {
    return brim_fail(BRIM_ENOENT, "no sweep listens at %s", info->socket);
  }
  return brim_fail(BRIM_EIO, "cannot reach the sweep of process %lld: %s", (long long)info->pid,
                   brim_errno_text(err));
}

brim_status brim_lab_socket_connect(const brim_lab_sweep_info *info, int64_t timeout_ms, int *out) {
  struct sockaddr_un address;
  if (!set_address(info->socket, &address)) return fail_refused(info, ENOENT);
  int fd = new_socket();
  if (fd < 0) return fail_refused(info, errno);
  brim_time start = brim_clock_now();
  int err = 0;
  for (;;) {
    err = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    // EAGAIN: the queue of connections is full. poll cannot wait for room in it, so try again after a
    // pause.
    int64_t waited_ms = brim_time_since_ns(start, brim_clock_now()) / 1000000;
    if ((err != EAGAIN && err != EINTR) || waited_ms >= timeout_ms) break;
    brim_clock_sleep_ns((int64_t)RETRY_MS * 1000000);
  }
  if (!err || err == EISCONN) {
    *out = fd;
    return BRIM_OK;
  }
  close(fd);
  return fail_refused(info, err);
}

//-------------------------------------------- server --------------------------------------------
// Connections over epoll. The caller's loop polls one descriptor.

enum {
  CONNECTIONS = 500,
  STALL_MS = 30000,
  EVENTS = 64,             // connections served per call
  ACCEPTS = 64,            // connections accepted per call
  CHUNK = 64 << 10,        // bytes read at once
  REQUESTS = 16,           // requests answered per connection and call
  OUT_ENOUGH = 256 << 10,  // bytes waiting for the client at which no more are made
  KEEP = 64 << 10,         // a larger buffer is freed when it is empty
  ACCEPT_PAUSE_MS = 200,   // pause in accepting after descriptors ran out
};

typedef struct conn {
  struct conn *next, **link;
  int fd;
  uint32_t watched;       // events that epoll watches
  brim_str in;            // from in_at: bytes not yet carried out
  size_t in_at, in_seen;  // no newline before in_seen
  brim_str out;           // from out_at: bytes not yet sent
  size_t out_at;
  brim_lab_answer *answer;
  brim_time moved;  // when bytes last went out, or none were waiting
  bool eof;         // the client sends nothing more
  bool closing;     // ends when `out` is sent
  bool busy;        // there is work to do that epoll does not report
} conn;

struct brim_lab_server {
  brim_lab_ops ops;
  char *folder;
  char path[PATH];
  brim_fs_lockfile *lock;
  int listener, epoll;
  bool announced;
  int most, count;
  int64_t stall_ms;
  size_t request_max;
  uint32_t uid;
  brim_time accept_at;  // when to accept again; 0 = at once
  conn *conns;
};

// --- one connection

static void end_conn(brim_lab_server *server, conn *c) {
  *c->link = c->next;
  if (c->next) c->next->link = c->link;
  // Remove it explicitly: after close() alone, epoll still watches it while a forked child holds a
  // copy.
  epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, NULL);
  close(c->fd);
  brim_lab_answer_free(c->answer);
  brim_str_deinit(&c->in);
  brim_str_deinit(&c->out);
  brim_free(c);
  server->count--;
}

static size_t unsent_bytes(const conn *c) { return c->out.len - c->out_at; }

static void forget_used(brim_str *s, size_t *at) {
  if (*at < s->len) return;
  *at = 0;
  if (s->cap <= KEEP) {
    brim_str_clear(s);
    return;
  }
  brim_str_deinit(s);
  brim_str_init(s);
}

// Makes more of the reply. False: the connection has to end, since a reply without its last line is
// useless.
static bool make_answer(conn *c) {
  bool done = false;
  if (brim_lab_answer_more(c->answer, OUT_ENOUGH, &c->out, &done)) return false;
  if (!done) return true;
  brim_lab_answer_free(c->answer);
  c->answer = NULL;
  return true;
}

static bool begin_answer(brim_lab_server *server, conn *c, size_t size) {
  brim_status status = brim_lab_ops_begin(&server->ops, c->in.data + c->in_at, size, &c->answer);
  c->in_at += size + 1;
  return !status && make_answer(c);
}

// Sends the failure as the last line of a connection that the server refuses.
static bool refuse(conn *c, brim_status why) {
  c->closing = true;
  c->in_at = c->in.len;
  return brim_lab_ops_error(why, &c->out) == BRIM_OK;
}

// Finds the end of the next request, or NULL. Bytes before in_seen were searched already.
static const char *request_end(conn *c) {
  if (c->in_seen < c->in_at) c->in_seen = c->in_at;
  const char *end = memchr(c->in.data + c->in_seen, '\n', c->in.len - c->in_seen);
  c->in_seen = end ? (size_t)(end - c->in.data) : c->in.len;
  return end;
}

// Carries out received requests as long as the client reads the replies. False: the connection has to
// end.
static bool serve_requests(brim_lab_server *server, conn *c) {
  c->busy = false;
  for (int n = 0; !c->closing; n++) {
    if (unsent_bytes(c) >= OUT_ENOUGH) return true;  // continues when these bytes have been sent
    if (c->answer) {
      if (!make_answer(c)) return false;
      continue;
    }
    const char *end = request_end(c);
    size_t size = c->in_seen - c->in_at;
    if (size > server->request_max) {
      return refuse(
          c, brim_fail(BRIM_ELIMIT, "the request is longer than %zu bytes", server->request_max));
    }
    if (!end) break;
    if (n >= REQUESTS) {
      c->busy = true;
      return true;
    }
    if (!begin_answer(server, c, size)) return false;
  }
  forget_used(&c->in, &c->in_at);
  if (c->in.len == 0) c->in_seen = 0;
  return true;
}

// Removes requests that were carried out, once they fill half of the buffer: a long request is then
// moved only once.
static void compact(conn *c) {
  if (c->in_at < c->in.len / 2 || c->in_at == 0) return;
  memmove(c->in.data, c->in.data + c->in_at, c->in.len - c->in_at);
  c->in.len -= c->in_at;
  c->in.data[c->in.len] = '\0';
  c->in_seen = c->in_seen > c->in_at ? c->in_seen - c->in_at : 0;
  c->in_at = 0;
}

// Reads from the client. False: the connection has to end.
static bool receive(conn *c) {
  char chunk[CHUNK];
  ssize_t n = recv(c->fd, chunk, sizeof chunk, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) {
    c->eof = true;
    return true;
  }
  compact(c);
  brim_str_append_n(&c->in, chunk, (size_t)n);
  return !brim_str_status(&c->in);
}

static bool transmit(conn *c) {
  while (unsent_bytes(c)) {
    ssize_t n = send(c->fd, c->out.data + c->out_at, unsent_bytes(c), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    c->out_at += (size_t)n;
    c->moved = brim_clock_now();
  }
  c->moved = brim_clock_now();
  forget_used(&c->out, &c->out_at);
  return true;
}

// Sets the events to wait for. Stops reading requests of a client that does not read its replies.
static bool watch(const brim_lab_server *server, conn *c) {
  bool full = unsent_bytes(c) >= OUT_ENOUGH || c->answer || c->busy;
  uint32_t events =
      (unsent_bytes(c) ? EPOLLOUT : 0U) | (!full && !c->eof && !c->closing ? EPOLLIN : 0U);
  if (events == c->watched) return true;
  struct epoll_event event = {.events = events, .data.ptr = c};
  c->watched = events;
  return epoll_ctl(server->epoll, EPOLL_CTL_MOD, c->fd, &event) == 0;
}

static void serve_conn(brim_lab_server *server, conn *c, uint32_t events) {
  bool alive = true;
  if (!unsent_bytes(c)) c->moved = brim_clock_now();
  if ((events & EPOLLIN) && !c->eof) alive = receive(c);
  // The client is gone: carry out its last requests although no reply can be sent.
  if ((events & (EPOLLHUP | EPOLLERR)) && !(events & EPOLLIN)) c->eof = true;
  alive = alive && serve_requests(server, c) && transmit(c);
  // Sending made room for the rest of a long reply, or for the next request.
  if (alive && !unsent_bytes(c) && !c->closing) c->busy = c->answer || request_end(c);
  if (alive && !c->busy && !c->answer && !unsent_bytes(c) && (c->eof || c->closing)) alive = false;
  if (alive && (events & (EPOLLHUP | EPOLLERR)) && unsent_bytes(c)) alive = false;
  if (!alive || !watch(server, c)) end_conn(server, c);
}

// --- new connections

static void add_conn(brim_lab_server *server, int fd) {
  conn *c = brim_calloc(1, sizeof *c);
  if (!c) {
    close(fd);
    return;
  }
  brim_str_init(&c->in);
  brim_str_init(&c->out);
  c->fd = fd;
  c->moved = brim_clock_now();
  c->watched = EPOLLIN;
  c->next = server->conns;
  c->link = &server->conns;
  if (c->next) c->next->link = &c->next;
  server->conns = c;
  server->count++;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  bool added = epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
  bool wanted = server->count <= server->most;
  if (added && !wanted) {
    brim_status why = brim_fail(BRIM_EIO, "the sweep serves %d connections already", server->most);
    if (refuse(c, why)) transmit(c);
  }
  if (!added || !wanted) end_conn(server, c);
}

static bool is_ours(const brim_lab_server *server, int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == server->uid || peer.uid == 0;
}

static bool watch_listener(brim_lab_server *server, bool on) {
  struct epoll_event event = {.events = on ? EPOLLIN : 0U, .data.ptr = NULL};
  return epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listener, &event) == 0;
}

static void accept_new(brim_lab_server *server) {
  for (int n = 0; n < ACCEPTS; n++) {
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0 && errno != EAGAIN) {
      // Descriptors or memory ran out. Pause instead of spinning; clients wait in the kernel's queue.
      watch_listener(server, false);
      server->accept_at.ns = brim_clock_now().ns + (int64_t)ACCEPT_PAUSE_MS * 1000000;
    }
    if (fd < 0) return;
    if (is_ours(server, fd)) {
      add_conn(server, fd);
    } else {
      close(fd);
    }
  }
}

// --- the server

static brim_status fail_errno(int err) {
  return brim_fail(brim_errno_status(err), "cannot serve the sweep's socket: %s",
                   brim_errno_text(err));
}

static brim_status listen_there(brim_lab_server *server) {
  char *lock = brim_fs_join(server->folder, "sweep.lock");
  if (!lock) return brim_fail(BRIM_ENOMEM, "out of memory for a socket");
  brim_status status = brim_fs_lock(lock, &server->lock);
  brim_free(lock);
  if (status == BRIM_EEXIST) {
    return brim_fail_context(status, "another process runs a sweep in %s", server->folder);
  }
  if (status == BRIM_EUNSUPPORTED) status = BRIM_OK;  // a file system without locks
  BRIM_TRY(status);
  BRIM_TRY(socket_listen(server->folder, &server->listener, server->path));
  server->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (server->epoll < 0) return fail_errno(errno);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &event) != 0) {
    return fail_errno(errno);
  }
  BRIM_TRY(socket_check(server->folder));
  server->announced = true;
  const char *version = server->ops.version;
  return socket_announce(server->folder, server->path, version ? version : "");
}

brim_status brim_lab_server_open(const brim_lab_server_options *o, brim_lab_server **out) {
  *out = NULL;
  brim_lab_server *server = brim_calloc(1, sizeof *server);
  if (!server) return brim_fail(BRIM_ENOMEM, "out of memory for a socket");
  server->listener = server->epoll = -1;
  server->ops = o->ops;
  server->most = o->connections > 0 ? o->connections : CONNECTIONS;
  server->stall_ms = o->stall_ms > 0 ? o->stall_ms : STALL_MS;
  server->request_max = o->request_max ? o->request_max : BRIM_LAB_REQUEST_MAX;
  server->uid = o->uid ? *o->uid : geteuid();
  server->folder = brim_strdup(o->folder);
  brim_status status =
      server->folder ? listen_there(server) : brim_fail(BRIM_ENOMEM, "out of memory for a socket");
  if (status) {
    brim_lab_server_close(server);
    return status;
  }
  *out = server;
  return BRIM_OK;
}

// Removes sweep.json and the socket if they are still this process's. If the folder was removed, another
// sweep may run in a new one, or another program may have written sweep.json.
static void remove_files(const brim_lab_server *server) {
  brim_lab_sweep_info info;
  char detail[1024];  // keeps the detail of the failure that ends the sweep
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  bool read = server->announced && !brim_lab_socket_read(server->folder, &info);
  brim_status_set_detail(detail);
  if (read && info.pid != getpid()) return;
  char *file = read ? brim_fs_join(server->folder, BRIM_LAB_SWEEP_FILE) : NULL;
  if (file) unlink(file);
  brim_free(file);
  if (server->listener >= 0) unlink(server->path);
}

void brim_lab_server_close(brim_lab_server *server) {
  if (!server) return;
  while (server->conns) end_conn(server, server->conns);
  remove_files(server);
  if (server->listener >= 0) close(server->listener);
  if (server->epoll >= 0) close(server->epoll);
  brim_fs_unlock(server->lock);
  brim_free(server->folder);
  brim_free(server);
}

const char *brim_lab_server_socket(const brim_lab_server *server) { return server->path; }
int brim_lab_server_fd(const brim_lab_server *server) { return server->epoll; }
int brim_lab_server_connections(const brim_lab_server *server) { return server->count; }

int brim_lab_server_wait_ms(const brim_lab_server *server) {
  int64_t least = INT64_MAX, now = brim_clock_now().ns;
  if (server->accept_at.ns) least = server->accept_at.ns - now;
  for (const conn *c = server->conns; c; c = c->next) {
    if (c->busy) return 0;
    if (!unsent_bytes(c)) continue;
    int64_t left = c->moved.ns + server->stall_ms * 1000000 - now;
    least = left < least ? left : least;
  }
  if (least == INT64_MAX) return -1;
  return least <= 0 ? 0 : (int)(least / 1000000) + 1;
}

// Serves connections that epoll does not report: connections with work left, and clients that do not
// read.
static void serve_rest(brim_lab_server *server) {
  int64_t now = brim_clock_now().ns;
  for (conn *c = server->conns, *next; c; c = next) {
    next = c->next;
    if (c->busy) {
      serve_conn(server, c, 0);
    } else if (unsent_bytes(c) && now - c->moved.ns > server->stall_ms * 1000000) {
      end_conn(server, c);
    }
  }
}

brim_status brim_lab_server_serve(brim_lab_server *server) {
  if (server->accept_at.ns && brim_clock_now().ns >= server->accept_at.ns) {
    server->accept_at.ns = 0;
    if (!watch_listener(server, true)) return fail_errno(errno);
  }
  serve_rest(server);
  struct epoll_event events[EVENTS];
  int n = epoll_wait(server->epoll, events, EVENTS, 0);
  if (n < 0) return errno == EINTR ? BRIM_OK : fail_errno(errno);
  for (int i = 0; i < n; i++) {
    if (events[i].data.ptr) {
      serve_conn(server, events[i].data.ptr, events[i].events);
    } else {
      accept_new(server);
    }
  }
  return BRIM_OK;
}
