// The network of the chaos test: a proxy that spoils requests (chaos_int.h).

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base_thread.h"
#include "chaos/chaos_int.h"

enum {
  SLICE_MS = 100,      // between two checks whether the proxy has to end
  IDLE_MS = 600000,    // wait for the next request of a client
  ANSWER_MS = 120000,  // wait for a reply: a stopped server answers only after it continues
  CONNECTIONS = 512,   // most connections at once
  CHUNK = 16 << 10,
  MESSAGE_MAX = 64 << 20
};

struct brim_chaos_proxy {
  brim_chaos_proxy_options options;
  int fd, port;
  brim_thread *thread;
  atomic_bool ends, calm;
  atomic_int connections;
  _Atomic int64_t requests, faults[BRIM_CHAOS_FAULT_COUNT], spoiled, threads;
};

typedef struct connection {
  brim_chaos_proxy *proxy;
  int client, server;  // -1 = not connected
  uint64_t random;
  brim_str request, reply;
  atomic_bool *begun;  // set when the thread runs; the listener waits for it
} connection;

//---------------------------------- messages ----------------------------------

// Finds the value of a header in the first `head` bytes; NULL: the header is missing.
static const char *header_value(const char *data, size_t head, const char *name) {
  size_t n = strlen(name);
  const char *line = data, *end = data + head;
  while ((line = memchr(line, '\n', (size_t)(end - line))) && ++line < end) {
    if ((size_t)(end - line) <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
    line += n + 1;
    while (line < end && *line == ' ') line++;
    return line;
  }
  return NULL;
}

static bool chunks_whole(const char *data, size_t length, size_t at, size_t *size) {
  for (;;) {
    const char *end = memmem(data + at, length - at, "\r\n", 2);
    if (!end) return false;
    unsigned long long n = strtoull(data + at, NULL, 16);
    if (n > MESSAGE_MAX) return false;
    at = (size_t)(end - data) + 2 + (size_t)n + 2;
    if (at > length) return false;
    if (n == 0) {
      *size = at;
      return true;
    }
  }
}

bool brim_chaos_message_whole(const char *data, size_t length, size_t *size) {
  const char *end = memmem(data, length, "\r\n\r\n", 4);
  if (!end) return false;
  size_t head = (size_t)(end - data) + 4;
  const char *coding = header_value(data, head, "Transfer-Encoding");
  if (coding && strncasecmp(coding, "chunked", 7) == 0) {
    return chunks_whole(data, length, head, size);
  }
  const char *body = header_value(data, head, "Content-Length");
  *size = head + (body ? (size_t)strtoull(body, NULL, 10) : 0);
  return *size <= length;
}

//---------------------------------- sockets ----------------------------------

static bool wait_ready(const connection *c, int fd, int64_t limit_ms) {
  for (int64_t waited = 0; waited < limit_ms && !c->proxy->ends; waited += SLICE_MS) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, SLICE_MS) > 0) return true;
  }
  return false;
}

static bool receive(const connection *c, int fd, int64_t limit_ms, brim_str *out) {
  char chunk[CHUNK];
  size_t size = 0;
  brim_str_clear(out);
  while (out->len == 0 || !brim_chaos_message_whole(out->data, out->len, &size)) {
    if (out->len > MESSAGE_MAX || !wait_ready(c, fd, limit_ms)) return false;
    ssize_t n = recv(fd, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    brim_str_append_n(out, chunk, (size_t)n);
    if (brim_str_status(out)) return false;
  }
  return true;
}

static bool send_all(int fd, const char *data, size_t size) {
  while (size > 0) {
    ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data += n;
    size -= (size_t)n;
  }
  return true;
}

static struct sockaddr_in local_address(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// Limits the time of a send to a client that no longer reads.
static void set_socket_options(int fd) {
  const struct timeval limit = {.tv_sec = 5};
  const int one = 1;
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static bool connect_server(connection *c) {
  if (c->server >= 0) return true;
  struct sockaddr_in to = local_address(c->proxy->options.port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  set_socket_options(fd);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
    close(fd);
    return false;
  }
  c->server = fd;
  return true;
}

// Hangs up with a reset for half of the clients, and with a normal end for the others.
static void hang_up(connection *c) {
  const struct linger reset = {.l_onoff = 1};
  if (c->client < 0) return;
  if (brim_chaos_random(&c->random) & 1) {
    (void)setsockopt(c->client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  close(c->client);
  c->client = -1;
}

//---------------------------------- one request ----------------------------------

static void wait_late(connection *c) {
  int64_t most = c->proxy->options.late_ms,
          ms = (int64_t)(brim_chaos_random(&c->random) % (uint64_t)(most + 1));
  for (; ms > 0 && !c->proxy->ends; ms -= SLICE_MS) {
    brim_clock_sleep_ns((ms < SLICE_MS ? ms : SLICE_MS) * 1000000);
  }
}

// Chooses the fault of this request; BRIM_CHAOS_FAULT_COUNT: none.
static brim_chaos_fault choose_fault(connection *c) {
  const brim_chaos_proxy_options *o = &c->proxy->options;
  uint64_t at = brim_chaos_random(&c->random);
  if (c->proxy->calm || (int)(at % 100) >= o->percent) return BRIM_CHAOS_FAULT_COUNT;
  brim_chaos_fault fault = o->only >= 0 ? (brim_chaos_fault)o->only
                                        : (brim_chaos_fault)(at / 100 % BRIM_CHAOS_FAULT_COUNT);
  if (o->match && !strstr(c->request.data, o->match)) return BRIM_CHAOS_FAULT_COUNT;
  if (o->most > 0 && c->proxy->spoiled >= o->most) return BRIM_CHAOS_FAULT_COUNT;
  c->proxy->spoiled++;
  c->proxy->faults[fault]++;
  return fault;
}

static bool ask_server(connection *c) {
  bool good = connect_server(c) && send_all(c->server, c->request.data, c->request.len) &&
              receive(c, c->server, ANSWER_MS, &c->reply);
  if (good || c->server < 0) return good;
  close(c->server);
  c->server = -1;
  return false;
}

// Sends the request once more and keeps one of the two replies at random.
static bool ask_again(connection *c) {
  brim_str first = c->reply;
  brim_str_init(&c->reply);
  bool good = ask_server(c);
  if (!good || (brim_chaos_random(&c->random) & 1)) {
    brim_str second = c->reply;
    c->reply = first;
    first = second;
  }
  brim_str_deinit(&first);
  return true;
}

// Passes one request on and its reply back. False: the client's connection has to end.
static bool relay(connection *c) {
  brim_chaos_fault fault = choose_fault(c);
  c->proxy->requests++;
  if (fault == BRIM_CHAOS_DROP_REQUEST) return false;
  // The client may give up during the delay; the server carries out the request nevertheless.
  if (fault == BRIM_CHAOS_LATE_REQUEST) wait_late(c);
  if (!ask_server(c)) return false;
  if (fault == BRIM_CHAOS_TWICE && !ask_again(c)) return false;
  if (fault == BRIM_CHAOS_DROP_REPLY) return false;
  if (fault == BRIM_CHAOS_LATE_REPLY) wait_late(c);
  if (fault == BRIM_CHAOS_CUT_REPLY) {
    size_t part = brim_chaos_random(&c->random) % c->reply.len;
    (void)send_all(c->client, c->reply.data, part);
    return false;
  }
  return send_all(c->client, c->reply.data, c->reply.len);
}

static void serve_client(void *ctx) {
  connection *c = ctx;
  brim_chaos_proxy *proxy = c->proxy;
  *c->begun = true;
  while (receive(c, c->client, IDLE_MS, &c->request) && relay(c)) {
  }
  hang_up(c);
  if (c->server >= 0) close(c->server);
  brim_str_deinit(&c->request);
  brim_str_deinit(&c->reply);
  brim_free(c);
  proxy->connections--;
}

//---------------------------------- the proxy ----------------------------------

static void take_client(brim_chaos_proxy *proxy, int fd) {
  brim_thread *thread = NULL;
  atomic_bool begun = false;
  connection *c = brim_calloc(1, sizeof *c);
  if (!c || proxy->connections >= CONNECTIONS) {
    close(fd);
    brim_free(c);
    return;
  }
  *c = (connection){.proxy = proxy, .client = fd, .server = -1, .begun = &begun};
  c->random = proxy->options.seed + (uint64_t)proxy->threads++ * 0x2545f4914f6cdd1du;
  brim_str_init(&c->request);
  brim_str_init(&c->reply);
  set_socket_options(fd);
  proxy->connections++;
  if (brim_thread_start(serve_client, c, "chaos-proxy", &thread)) {
    brim_status_clear();
    proxy->connections--;
    close(fd);
    brim_free(c);
    return;
  }
  while (!begun) brim_clock_sleep_ns(100000);
  brim_thread_detach(thread);
}

static void listen_on(void *ctx) {
  brim_chaos_proxy *proxy = ctx;
  while (!proxy->ends) {
    struct pollfd p = {.fd = proxy->fd, .events = POLLIN};
    if (poll(&p, 1, SLICE_MS) <= 0) continue;
    int fd = accept4(proxy->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) take_client(proxy, fd);
  }
}

static brim_status open_listener(brim_chaos_proxy *proxy) {
  struct sockaddr_in at = local_address(0);
  socklen_t size = sizeof at;
  proxy->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (proxy->fd < 0 || bind(proxy->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
      listen(proxy->fd, 256) != 0 || getsockname(proxy->fd, (struct sockaddr *)&at, &size) != 0) {
    return brim_fail(BRIM_EIO, "cannot open a port for the chaos test: %s", brim_errno_text(errno));
  }
  proxy->port = ntohs(at.sin_port);
  return brim_thread_start(listen_on, proxy, "chaos-proxy", &proxy->thread);
}

brim_status brim_chaos_proxy_open(const brim_chaos_proxy_options *options, brim_chaos_proxy **out) {
  *out = NULL;
  brim_chaos_proxy *proxy = brim_calloc(1, sizeof *proxy);
  if (!proxy) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
  proxy->options = *options;
  proxy->fd = -1;
  brim_status status = open_listener(proxy);
  if (status) {
    brim_chaos_proxy_close(proxy);
    return status;
  }
  *out = proxy;
  return BRIM_OK;
}

int brim_chaos_proxy_port(const brim_chaos_proxy *proxy) { return proxy->port; }

void brim_chaos_proxy_calm(brim_chaos_proxy *proxy) { proxy->calm = true; }

void brim_chaos_proxy_counts(brim_chaos_proxy *proxy, int64_t *requests,
                             int64_t faults[BRIM_CHAOS_FAULT_COUNT]) {
  *requests = proxy->requests;
  for (int i = 0; i < BRIM_CHAOS_FAULT_COUNT; i++) faults[i] = proxy->faults[i];
}

void brim_chaos_proxy_close(brim_chaos_proxy *proxy) {
  if (!proxy) return;
  proxy->ends = true;
  brim_thread_join(proxy->thread);
  while (proxy->connections > 0) brim_clock_sleep_ns(5000000);
  if (proxy->fd >= 0) close(proxy->fd);
  brim_free(proxy);
}
