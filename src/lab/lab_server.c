// Connections of a sweep's socket over epoll: one descriptor for the caller's loop.
#include "lab/lab_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "lab/lab_socket.h"

enum {
  CONNECTIONS = 500,
  STALL_MS = 30000,
  EVENTS = 64,             // connections served per call
  ACCEPTS = 64,            // new ones per call
  CHUNK = 64 << 10,        // bytes read at once
  REQUESTS = 16,           // answered per connection and call
  OUT_ENOUGH = 256 << 10,  // bytes that wait for the client before no more are made
  KEEP = 64 << 10,         // of a buffer that is empty
  ACCEPT_PAUSE_MS = 200,   // after descriptors ran out
};

typedef struct conn {
  struct conn *next, **link;
  int fd;
  uint32_t watched;       // epoll's events
  brim_str in;            // from in_at: not yet carried out
  size_t in_at, in_seen;  // in_seen: no newline before it
  brim_str out;           // from out_at: not yet sent
  size_t out_at;
  brim_lab_answer *answer;
  brim_time moved;  // when bytes last went out, or there were none
  bool eof;         // nothing more comes
  bool closing;     // ends when out is sent
  bool busy;        // more to do without a word from epoll
} conn;

struct brim_lab_server {
  brim_lab_ops ops;
  char *folder;
  char path[BRIM_LAB_PATH];
  brim_fs_lockfile *lock;
  int listener, epoll;
  bool announced;
  int most, count;
  int64_t stall_ms;
  size_t request_max;
  uint32_t uid;
  brim_time accept_at;  // not before; 0 = at once
  conn *conns;
};

// --- one connection

static void end_conn(brim_lab_server *server, conn *c) {
  *c->link = c->next;
  if (c->next) c->next->link = c->link;
  // close() alone leaves it in epoll while a child between fork and exec holds a copy.
  epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, NULL);
  close(c->fd);
  brim_lab_answer_free(c->answer);
  brim_str_deinit(&c->in);
  brim_str_deinit(&c->out);
  brim_free(c);
  server->count--;
}

static size_t waiting(const conn *c) { return c->out.len - c->out_at; }

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

// A client has no use for a line without its end, nor for a reply without its last line.
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

// A last line with the failure that is set, for a client that is not served.
static bool refuse(conn *c, brim_status why) {
  c->closing = true;
  c->in_at = c->in.len;
  return brim_lab_ops_error(why, &c->out) == BRIM_OK;
}

// Where a newline may be: before that there is none.
static const char *request_end(conn *c) {
  if (c->in_seen < c->in_at) c->in_seen = c->in_at;
  const char *end = memchr(c->in.data + c->in_seen, '\n', c->in.len - c->in_seen);
  c->in_seen = end ? (size_t)(end - c->in.data) : c->in.len;
  return end;
}

// Carries out what has come, as far as the client reads the replies. false: the connection ends.
static bool work(brim_lab_server *server, conn *c) {
  c->busy = false;
  for (int n = 0; !c->closing; n++) {
    if (waiting(c) >= OUT_ENOUGH) return true;  // continued when it has been sent
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

// Makes room at the front of what was carried out. A long request is moved once.
static void compact(conn *c) {
  if (c->in_at < c->in.len / 2 || c->in_at == 0) return;
  memmove(c->in.data, c->in.data + c->in_at, c->in.len - c->in_at);
  c->in.len -= c->in_at;
  c->in.data[c->in.len] = '\0';
  c->in_seen = c->in_seen > c->in_at ? c->in_seen - c->in_at : 0;
  c->in_at = 0;
}

// false: the connection ends.
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
  while (waiting(c)) {
    ssize_t n = send(c->fd, c->out.data + c->out_at, waiting(c), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    c->out_at += (size_t)n;
    c->moved = brim_clock_now();
  }
  c->moved = brim_clock_now();
  forget_used(&c->out, &c->out_at);
  return true;
}

// What to be woken for. A client that does not read is not read from either.
static bool watch(const brim_lab_server *server, conn *c) {
  bool full = waiting(c) >= OUT_ENOUGH || c->answer || c->busy;
  uint32_t events = (waiting(c) ? EPOLLOUT : 0U) | (!full && !c->eof && !c->closing ? EPOLLIN : 0U);
  if (events == c->watched) return true;
  struct epoll_event event = {.events = events, .data.ptr = c};
  c->watched = events;
  return epoll_ctl(server->epoll, EPOLL_CTL_MOD, c->fd, &event) == 0;
}

static void serve_conn(brim_lab_server *server, conn *c, uint32_t events) {
  bool alive = true;
  if (!waiting(c)) c->moved = brim_clock_now();
  if ((events & EPOLLIN) && !c->eof) alive = receive(c);
  // The client is gone for good: what it asked for last is carried out, and cannot be answered.
  if ((events & (EPOLLHUP | EPOLLERR)) && !(events & EPOLLIN)) c->eof = true;
  alive = alive && work(server, c) && transmit(c);
  // Sending made room: the rest of a long reply, or the next request.
  if (alive && !waiting(c) && !c->closing) c->busy = c->answer || request_end(c);
  if (alive && !c->busy && !c->answer && !waiting(c) && (c->eof || c->closing)) alive = false;
  if (alive && (events & (EPOLLHUP | EPOLLERR)) && waiting(c)) alive = false;
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
      // Descriptors or memory ran out: the client waits in the queue, this loop must not spin.
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
  BRIM_TRY(brim_lab_socket_listen(server->folder, &server->listener, server->path));
  server->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (server->epoll < 0) return fail_errno(errno);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &event) != 0) {
    return fail_errno(errno);
  }
  BRIM_TRY(brim_lab_socket_check(server->folder));
  server->announced = true;
  const char *version = server->ops.version;
  return brim_lab_socket_announce(server->folder, server->path, version ? version : "");
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

// Where the folder was removed, another sweep may run in a new one, and sweep.json may be any program's by
// now: those stay.
static void remove_files(const brim_lab_server *server) {
  brim_lab_sweep_info info;
  char detail[1024];  // of the failure that ends the sweep
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
    if (!waiting(c)) continue;
    int64_t left = c->moved.ns + server->stall_ms * 1000000 - now;
    least = left < least ? left : least;
  }
  if (least == INT64_MAX) return -1;
  return least <= 0 ? 0 : (int)(least / 1000000) + 1;
}

// Connections that epoll has no word about: work left over, and clients that do not read.
static void serve_rest(brim_lab_server *server) {
  int64_t now = brim_clock_now().ns;
  for (conn *c = server->conns, *next; c; c = next) {
    next = c->next;
    if (c->busy) {
      serve_conn(server, c, 0);
    } else if (waiting(c) && now - c->moved.ns > server->stall_ms * 1000000) {
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
