// Connections of the watch: a UNIX socket without a file within one machine, TCP between several. A peer
// shows the token that all ranks got over their communicator; others are sent away.
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "run/run_ranks_int.h"

#define MAGIC 0x6b6e6172u
#define TRY_NS (3 * (int64_t)1000000000)  // for one of several addresses

void brim_ranks_wire_close(brim_ranks_wire *wire) {
  if (wire->fd >= 0) close(wire->fd);
  wire->fd = -1;
}

void brim_ranks_send(brim_ranks_wire *wire, brim_ranks_message *message) {
  if (wire->fd < 0) return;
  message->magic = MAGIC;
  ssize_t n = send(wire->fd, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == (ssize_t)sizeof *message) return;
  // A peer that reads nothing is noticed by its silence; half a message is of no use to it.
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  shutdown(wire->fd, SHUT_WR);
}

bool brim_ranks_receive(brim_ranks_wire *wire) {
  while (wire->fd >= 0) {
    ssize_t n =
        recv(wire->fd, (uint8_t *)&wire->in + wire->got, sizeof wire->in - wire->got, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) break;
    wire->got += (size_t)n;
    if (wire->got < sizeof wire->in) continue;
    wire->got = 0;
    wire->in.host[sizeof wire->in.host - 1] = 0;
    wire->in.text[sizeof wire->in.text - 1] = 0;
    if (wire->in.magic == MAGIC) return true;
    break;
  }
  brim_ranks_wire_close(wire);
  return false;
}

// A whole message, waiting for it.
static bool receive_until(brim_ranks_wire *wire, int64_t until_ns) {
  while (wire->fd >= 0 && !brim_ranks_receive(wire)) {
    int64_t left = until_ns - brim_clock_now().ns;
    if (wire->fd < 0 || left <= 0) return false;
    struct pollfd p = {.fd = wire->fd, .events = POLLIN};
    (void)poll(&p, 1, (int)(left / 1000000 < 100 ? left / 1000000 + 1 : 100));
  }
  return wire->fd >= 0;
}

//---------------------------------- rank 0 ----------------------------------

static brim_status fail_socket(const char *what) {
  return brim_fail(BRIM_EIO, "cannot connect the ranks of this training (%s): %s", what,
                   brim_errno_text(errno));
}

static socklen_t local_name(const brim_ranks_address *address, struct sockaddr_un *out) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  // A zero first: the name is no file.
  size_t n = strnlen(address->local, sizeof out->sun_path - 2);
  memcpy(out->sun_path + 1, address->local, n);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static void add_address(brim_ranks_address *out, const struct sockaddr *at) {
  const int most = (int)(sizeof out->addresses / sizeof out->addresses[0]);
  const void *number = NULL;
  if (at->sa_family == AF_INET) {
    number = &((const struct sockaddr_in *)(const void *)at)->sin_addr;
  } else if (at->sa_family == AF_INET6) {
    const struct sockaddr_in6 *six = (const void *)at;
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return;
    number = &six->sin6_addr;
  }
  if (!number || out->count >= most) return;
  if (inet_ntop(at->sa_family, number, out->addresses[out->count], 46)) out->count++;
}

static void add_addresses(brim_ranks_address *out) {
  struct ifaddrs *list = NULL;
  if (getifaddrs(&list)) return;
  for (int loopback = 0; loopback < 2; loopback++) {
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
      if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
      if (((i->ifa_flags & IFF_LOOPBACK) != 0) == (loopback != 0)) add_address(out, i->ifa_addr);
    }
  }
  freeifaddrs(list);
}

static brim_status listen_tcp(brim_ranks_address *out, int *listener) {
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_ANY)}};
  int off = 0;
  if (fd >= 0) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (fd < 0 || bind(fd, (struct sockaddr *)&six, sizeof six)) {
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail_socket("socket");
    if (bind(fd, (struct sockaddr *)&four, sizeof four)) {
      close(fd);
      return fail_socket("bind");
    }
  }
  struct sockaddr_storage at;
  socklen_t size = sizeof at;
  if (listen(fd, 128) || getsockname(fd, (struct sockaddr *)&at, &size)) {
    close(fd);
    return fail_socket("listen");
  }
  out->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
  add_addresses(out);
  *listener = fd;
  return BRIM_OK;
}

static brim_status listen_local(brim_ranks_address *out, int *listener) {
  snprintf(out->local, sizeof out->local, "brim-ranks-%d-%02x%02x%02x%02x", (int)getpid(),
           out->token[0], out->token[1], out->token[2], out->token[3]);
  struct sockaddr_un name;
  socklen_t size = local_name(out, &name);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_socket("socket");
  if (bind(fd, (struct sockaddr *)&name, size) || listen(fd, 128)) {
    close(fd);
    return fail_socket("listen");
  }
  *listener = fd;
  return BRIM_OK;
}

brim_status brim_ranks_listen(bool over_tcp, brim_ranks_address *out, int *listener) {
  memset(out, 0, sizeof *out);
  *listener = -1;
  if (getrandom(out->token, sizeof out->token, 0) != (ssize_t)sizeof out->token) {
    return fail_socket("getrandom");
  }
  out->pid = (int32_t)getpid();
  (void)gethostname(out->host, sizeof out->host - 1);
  return over_tcp ? listen_tcp(out, listener) : listen_local(out, listener);
}

// Connections that have not shown yet which rank they are of.
enum { GUESTS = 64 };
typedef struct guest {
  brim_ranks_wire wire;
  bool greeted;  // it knows the token, and has its reply
  brim_ranks_message hello;
  int64_t until_ns;
} guest;

struct brim_ranks_door {
  int listener;
  const brim_ranks_address *address;
  int count;
  guest guests[GUESTS];  // (count)
};

brim_ranks_door *brim_ranks_door_open(int listener, const brim_ranks_address *address) {
  brim_ranks_door *d = brim_calloc(1, sizeof *d);
  if (!d) return NULL;
  d->listener = listener;
  d->address = address;
  return d;
}

static void send_away(brim_ranks_door *d, int index) {
  brim_ranks_wire_close(&d->guests[index].wire);
  d->guests[index] = d->guests[--d->count];
}

void brim_ranks_door_close(brim_ranks_door *d) {
  while (d && d->count > 0) send_away(d, 0);
  brim_free(d);
}

static void let_in(brim_ranks_door *d) {
  int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  d->guests[d->count++] = (guest){.wire = {.fd = fd}, .until_ns = brim_clock_now().ns + TRY_NS};
}

// What this guest has said. BRIM_OK: it is a rank that has heard the reply; BRIM_EEND: not yet;
// BRIM_EIO: it is to be sent away.
static brim_status listen_to(const brim_ranks_door *d, guest *g) {
  while (brim_ranks_receive(&g->wire)) {
    const brim_ranks_message *m = &g->wire.in;
    if (g->greeted && m->kind == BRIM_RANKS_BEAT) return BRIM_OK;
    bool known =
        m->kind == BRIM_RANKS_HELLO && memcmp(m->token, d->address->token, sizeof m->token) == 0;
    if (g->greeted || !known) return BRIM_EIO;
    g->greeted = true;
    g->hello = *m;
    brim_ranks_message reply = *m;
    brim_ranks_send(&g->wire, &reply);
  }
  // A stranger must not keep ranks out. A rank that is slow comes again.
  bool late = !g->greeted && brim_clock_now().ns > g->until_ns;
  return g->wire.fd < 0 || late ? BRIM_EIO : BRIM_EEND;
}

// A guest that gave up and comes again is a new one: only what answers the reply is a rank.
brim_status brim_ranks_accept(brim_ranks_door *d, int64_t until_ns, brim_ranks_wire *out) {
  for (;;) {
    for (int i = 0; i < d->count;) {
      guest *g = &d->guests[i];
      brim_status status = listen_to(d, g);
      if (status == BRIM_OK) {
        *out = g->wire;
        out->in = g->hello;
        g->wire.fd = -1;
        send_away(d, i);
        return BRIM_OK;
      }
      if (status == BRIM_EIO) {
        send_away(d, i);
      } else {
        i++;
      }
    }
    int64_t left = until_ns - brim_clock_now().ns;
    if (left <= 0) return BRIM_EEND;
    const bool full = d->count == GUESTS;
    struct pollfd polls[GUESTS + 1] = {{.fd = full ? -1 : d->listener, .events = POLLIN}};
    for (int i = 0; i < d->count; i++) {
      polls[i + 1] = (struct pollfd){.fd = d->guests[i].wire.fd, .events = POLLIN};
    }
    int ms = (int)(left / 1000000 < 100 ? left / 1000000 + 1 : 100);
    if (poll(polls, (nfds_t)d->count + 1, ms) > 0 && polls[0].revents) let_in(d);
  }
}

//---------------------------------- the others ----------------------------------

static int connect_tcp(const char *number, int port) {
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  if (getaddrinfo(number, service, &hints, &found)) return -1;
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval limit = {.tv_sec = TRY_NS / 1000000000};
  if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen)) {
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

static int connect_local(const brim_ranks_address *address) {
  struct sockaddr_un name;
  socklen_t size = local_name(address, &name);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&name, size)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

// Whether rank 0 is at the other end.
static bool greet(const brim_ranks_address *address, brim_ranks_message *hello, int64_t until_ns,
                  brim_ranks_wire *out) {
  hello->kind = BRIM_RANKS_HELLO;
  memcpy(hello->token, address->token, sizeof hello->token);
  brim_ranks_send(out, hello);
  if (receive_until(out, until_ns) && out->in.kind == BRIM_RANKS_HELLO &&
      memcmp(out->in.token, address->token, sizeof address->token) == 0) {
    brim_ranks_message sign = {.kind = BRIM_RANKS_BEAT, .rank = hello->rank};
    brim_ranks_send(out, &sign);
    return true;
  }
  brim_ranks_wire_close(out);
  return false;
}

brim_status brim_ranks_connect(const brim_ranks_address *address, brim_ranks_message *hello,
                               int64_t until_ns, brim_ranks_wire *out) {
  const int ways = address->local[0] ? 1 : address->count;
  do {
    for (int i = 0; i < ways; i++) {
      *out = (brim_ranks_wire){.fd = address->local[0]
                                         ? connect_local(address)
                                         : connect_tcp(address->addresses[i], address->port)};
      int64_t soon = brim_clock_now().ns + TRY_NS;
      // Rank 0 answers one after the other: the last of its addresses may take all the time there is.
      if (out->fd >= 0 && greet(address, hello, i + 1 < ways ? soon : until_ns, out)) {
        return BRIM_OK;
      }
    }
    brim_clock_sleep_ns(50 * 1000000);
  } while (brim_clock_now().ns < until_ns);
  return brim_fail(BRIM_EIO, "cannot reach rank 0 on %s (PID %d)", address->host, address->pid);
}
