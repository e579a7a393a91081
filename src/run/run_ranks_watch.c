// The watch over the ranks of a training, and its connections.

#include "run/run_ranks_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

//----------------------------------------- connections -----------------------------------------
// Connections of the watch: a UNIX socket without a file within one machine, TCP between several. A peer
// shows the token that all ranks got over their communicator; others are sent away.

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

//-------------------------------------------- watch --------------------------------------------
// The watch over the ranks of a training: every rank has a connection to rank 0 and sends a sign of life
// each second. A rank that fails sends its reason; one whose connection ends has died; one that is silent
// has failed. Rank 0 then ends all: each rank's exchange is abandoned, so that nothing waits for the lost one.

#define SECOND_NS ((int64_t)1000000000)
#define LOOK_MS 200  // so often the thread looks at the clock
#define LAG_NS \
  (2 * SECOND_NS)  // longer between two looks: this process was stopped, not the others
#define ANSWER_NS (2 * SECOND_NS)  // for rank 0 to take a reason

typedef struct peer {
  brim_ranks_wire wire;
  int64_t heard_ns;
  int32_t pid;
  char host[64];
  bool left;  // said goodbye
} peer;

struct brim_ranks_watch {
  int rank, size;
  brim_ranks_options options;
  brim_thread *thread;
  int wake;              // eventfd
  struct pollfd *polls;  // (1 + peers)
  pthread_mutex_t lock;
  pthread_cond_t changed;
  // Under the lock:
  brim_comm *comm, *device_comm;  // NULL = closed, or none
  peer *peers;  // of rank 0 (size): all others, by rank; of the others (1): rank 0
  bool closing;
  bool ended;                // all end, because of:
  brim_ranks_message cause;  // END
  int64_t ended_ns;
  bool stuck;  // on_stuck was called
};

static int peer_count(const brim_ranks_watch *w) { return w->rank == 0 ? w->size : 1; }

//---------------------------------- the end of all ----------------------------------

static void cause_text(const brim_ranks_watch *w, char *out, size_t size) {
  const brim_ranks_message *c = &w->cause;
  const int64_t silence_s = w->options.silence_ns / SECOND_NS;
  if (c->fate == BRIM_RANKS_FAILED) {
    brim_msg_format(out, size, brim_tr("rank %d (host %s, PID %d) failed: %s"), c->rank, c->host,
                    c->pid, c->text);
  } else if (c->fate == BRIM_RANKS_DIED) {
    brim_msg_format(out, size,
                    brim_tr("rank %d (host %s, PID %d) ended without a reason: killed, or crashed"),
                    c->rank, c->host, c->pid);
  } else {
    brim_msg_format(out, size,
                    brim_tr("rank %d (host %s, PID %d) gave no sign of life for %d seconds"),
                    c->rank, c->host, c->pid, (int)silence_s);
  }
}

// With the lock held. Rank 0 tells all, the one that failed too: it waits for that.
static void end_all(brim_ranks_watch *w, const brim_ranks_message *cause) {
  if (w->ended) return;
  w->ended = true;
  w->cause = *cause;
  w->cause.kind = BRIM_RANKS_END;
  w->ended_ns = brim_clock_now().ns;
  for (int r = 0; w->rank == 0 && r < w->size; r++) {
    if (r != w->rank) brim_ranks_send(&w->peers[r].wire, &w->cause);
  }
  brim_comm_abandon(w->comm);
  brim_comm_abandon(w->device_comm);
  pthread_cond_broadcast(&w->changed);
}

static void end_for(brim_ranks_watch *w, int index, brim_ranks_fate fate) {
  const peer *p = &w->peers[index];
  brim_ranks_message cause = {
      .rank = w->rank == 0 ? index : 0, .pid = p->pid, .status = BRIM_ERANK, .fate = (int32_t)fate};
  memcpy(cause.host, p->host, sizeof cause.host);
  end_all(w, &cause);
}

//---------------------------------- the thread ----------------------------------

static void take(brim_ranks_watch *w, int index, const brim_ranks_message *m) {
  peer *p = &w->peers[index];
  p->heard_ns = brim_clock_now().ns;
  switch ((brim_ranks_kind)m->kind) {
    case BRIM_RANKS_BYE:
      p->left = true;
      break;
    case BRIM_RANKS_FAIL: {
      // Its number and host are known from its greeting.
      brim_ranks_message cause = *m;
      cause.rank = index;
      cause.pid = p->pid;
      cause.fate = BRIM_RANKS_FAILED;
      memcpy(cause.host, p->host, sizeof cause.host);
      if (w->rank == 0) end_all(w, &cause);
      break;
    }
    case BRIM_RANKS_END:
      if (w->rank != 0) end_all(w, m);
      break;
    case BRIM_RANKS_HELLO:
    case BRIM_RANKS_BEAT:
      break;
  }
}

static void look_at(brim_ranks_watch *w, int index, int64_t now) {
  peer *p = &w->peers[index];
  if (p->wire.fd < 0) return;
  while (brim_ranks_receive(&p->wire)) take(w, index, &p->wire.in);
  if (p->left) return;
  if (p->wire.fd < 0) {
    end_for(w, index, BRIM_RANKS_DIED);
  } else if (now - p->heard_ns > w->options.silence_ns) {
    end_for(w, index, BRIM_RANKS_SILENT);
  }
}

// One look at the others; the time of the next sign of life.
static int64_t look(brim_ranks_watch *w, int64_t now, int64_t beat_ns) {
  const bool beat = now >= beat_ns;
  brim_ranks_message sign = {.kind = BRIM_RANKS_BEAT, .rank = w->rank};
  for (int i = 0; i < peer_count(w); i++) {
    if (beat) brim_ranks_send(&w->peers[i].wire, &sign);
    look_at(w, i, now);
  }
  return beat ? now + SECOND_NS : beat_ns;
}

static void forgive(brim_ranks_watch *w, int64_t lag_ns) {
  for (int i = 0; i < peer_count(w); i++) w->peers[i].heard_ns += lag_ns;
}

static void wait_for_news(brim_ranks_watch *w) {
  nfds_t n = 0;
  w->polls[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
  for (int i = 0; i < peer_count(w); i++) {
    if (w->peers[i].wire.fd >= 0) {
      w->polls[n++] = (struct pollfd){.fd = w->peers[i].wire.fd, .events = POLLIN};
    }
  }
  pthread_mutex_unlock(&w->lock);
  (void)poll(w->polls, n, LOOK_MS);
  pthread_mutex_lock(&w->lock);
}

static void watch_main(void *arg) {
  brim_ranks_watch *w = arg;
  int64_t last_ns = brim_clock_now().ns, beat_ns = last_ns;
  pthread_mutex_lock(&w->lock);
  while (!w->closing) {
    wait_for_news(w);
    int64_t now = brim_clock_now().ns;
    if (now - last_ns > LAG_NS) forgive(w, now - last_ns);
    last_ns = now;
    beat_ns = look(w, now, beat_ns);
    if (!w->ended || w->stuck || now - w->ended_ns < BRIM_RANKS_GRACE_NS) continue;
    w->stuck = true;
    char why[1400];
    cause_text(w, why, sizeof why);
    pthread_mutex_unlock(&w->lock);
    if (w->options.on_stuck) w->options.on_stuck(w->options.ctx, why);
    pthread_mutex_lock(&w->lock);
  }
  pthread_mutex_unlock(&w->lock);
}

//---------------------------------- opening ----------------------------------

static void know(peer *p, const brim_ranks_wire *wire, int32_t pid, const char *host) {
  *p = (peer){.wire = *wire, .heard_ns = brim_clock_now().ns, .pid = pid};
  snprintf(p->host, sizeof p->host, "%s", host);
}

static brim_status accept_each(brim_ranks_watch *w, brim_ranks_door *door) {
  int64_t until_ns = brim_clock_now().ns + BRIM_RANKS_OPEN_NS;
  for (int missing = w->size - 1; missing > 0;) {
    brim_ranks_wire wire;
    brim_status status = brim_ranks_accept(door, until_ns, &wire);
    if (status == BRIM_EEND) {
      return brim_fail(BRIM_EIO, "%d of %d ranks did not reach rank 0 in time", missing, w->size);
    }
    BRIM_TRY(status);
    int r = wire.in.rank;
    if (r < 1 || r >= w->size || w->peers[r].wire.fd >= 0) {
      brim_ranks_wire_close(&wire);
      continue;
    }
    know(&w->peers[r], &wire, wire.in.pid, wire.in.host);
    missing--;
  }
  return BRIM_OK;
}

static brim_status accept_all(brim_ranks_watch *w, int listener,
                              const brim_ranks_address *address) {
  brim_ranks_door *door = brim_ranks_door_open(listener, address);
  if (!door) return brim_fail(BRIM_ENOMEM, "no memory for the watch over the ranks");
  brim_status status = accept_each(w, door);
  brim_ranks_door_close(door);
  return status;
}

static brim_status connect_ranks(brim_ranks_watch *w, bool over_tcp) {
  brim_ranks_address address;
  int listener = -1;
  brim_status status = BRIM_OK;
  memset(&address, 0, sizeof address);
  if (w->rank == 0) {
    status = brim_ranks_listen(over_tcp, &address, &listener);
    // The others wait for the address, also for one that is of no use.
    if (status) brim_comm_abandon(w->comm);
  }
  if (!status) status = brim_comm_broadcast(w->comm, &address, sizeof address, 0);
  if (!status && w->rank == 0) {
    status = accept_all(w, listener, &address);
  } else if (!status) {
    brim_ranks_message hello = {.rank = w->rank, .pid = (int32_t)getpid()};
    (void)gethostname(hello.host, sizeof hello.host - 1);
    brim_ranks_wire wire;
    status = brim_ranks_connect(&address, &hello, brim_clock_now().ns + BRIM_RANKS_OPEN_NS, &wire);
    if (!status) know(&w->peers[0], &wire, address.pid, address.host);
  }
  if (listener >= 0) close(listener);
  return status;
}

static void watch_free(brim_ranks_watch *w) {
  for (int i = 0; w->peers && i < peer_count(w); i++) brim_ranks_wire_close(&w->peers[i].wire);
  if (w->wake >= 0) close(w->wake);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  brim_free(w->polls);
  brim_free(w->peers);
  brim_free(w);
}

static brim_status watch_create(brim_ranks *ranks, const brim_ranks_options *options,
                                brim_ranks_watch **out) {
  brim_ranks_watch *w = brim_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM, "no memory for the watch over the ranks");
  w->rank = ranks->rank;
  w->size = ranks->size;
  w->comm = ranks->comm;
  w->options = *options;
  if (w->options.silence_ns <= 0) w->options.silence_ns = BRIM_RANKS_SILENCE_NS;
  const size_t peers = (size_t)peer_count(w);
  w->peers = brim_calloc(peers, sizeof *w->peers);
  for (size_t i = 0; w->peers && i < peers; i++) w->peers[i].wire.fd = -1;
  w->polls = brim_calloc(peers + 1, sizeof *w->polls);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool good = pthread_mutex_init(&w->lock, NULL) == 0 && brim_cond_init(&w->changed) == 0;
  if (good && w->peers && w->polls && w->wake >= 0) {
    *out = w;
    return BRIM_OK;
  }
  watch_free(w);
  return brim_fail(BRIM_ENOMEM, "no memory for the watch over the ranks");
}

brim_status brim_ranks_watch_open(brim_ranks *ranks, const brim_ranks_options *options,
                                  brim_ranks_watch **out) {
  *out = NULL;
  brim_ranks_watch *w = NULL;
  BRIM_TRY(watch_create(ranks, options, &w));
  brim_status status = connect_ranks(w, options->over_tcp || ranks->local_size < ranks->size);
  if (!status) status = brim_thread_start(watch_main, w, "brim-watch", &w->thread);
  if (status) {
    watch_free(w);
    return status;
  }
  *out = w;
  return BRIM_OK;
}

//---------------------------------- the rank's own end ----------------------------------

void brim_ranks_watch_fail(brim_ranks_watch *w, brim_status status, const char *detail) {
  brim_ranks_message m = {.kind = BRIM_RANKS_FAIL,
                          .rank = w->rank,
                          .pid = (int32_t)getpid(),
                          .status = status,
                          .fate = BRIM_RANKS_FAILED};
  snprintf(m.text, sizeof m.text, "%s", detail[0] ? detail : brim_status_text(status));
  (void)gethostname(m.host, sizeof m.host - 1);
  int64_t until_ns = brim_clock_now().ns + ANSWER_NS;
  pthread_mutex_lock(&w->lock);
  if (w->rank == 0) {
    end_all(w, &m);
  } else if (!w->ended) {
    brim_ranks_send(&w->peers[0].wire, &m);
    while (!w->ended && brim_cond_wait(&w->changed, &w->lock, until_ns)) {
    }
  }
  pthread_mutex_unlock(&w->lock);
}

bool brim_ranks_watch_ended(brim_ranks_watch *w, int64_t wait_ns, char *why, size_t size,
                            bool *own) {
  int64_t until_ns = brim_clock_now().ns + wait_ns;
  pthread_mutex_lock(&w->lock);
  while (wait_ns > 0 && !w->ended && brim_cond_wait(&w->changed, &w->lock, until_ns)) {
  }
  bool ended = w->ended;
  if (ended) cause_text(w, why, size);
  *own = ended && w->cause.rank == w->rank;
  pthread_mutex_unlock(&w->lock);
  return ended;
}

bool brim_ranks_watch_lost_first(brim_ranks_watch *w) {
  pthread_mutex_lock(&w->lock);
  bool lost = w->ended && w->cause.rank == 0 && w->cause.fate != BRIM_RANKS_FAILED;
  pthread_mutex_unlock(&w->lock);
  return lost;
}

void brim_ranks_watch_add(brim_ranks_watch *w, brim_comm *comm) {
  pthread_mutex_lock(&w->lock);
  w->device_comm = comm;
  if (w->ended) brim_comm_abandon(comm);
  pthread_mutex_unlock(&w->lock);
}

void brim_ranks_watch_leave(brim_ranks_watch *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->comm = w->device_comm = NULL;
  pthread_mutex_unlock(&w->lock);
}

void brim_ranks_watch_close(brim_ranks_watch *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->closing = true;
  brim_ranks_message bye = {.kind = BRIM_RANKS_BYE, .rank = w->rank};
  for (int i = 0; i < peer_count(w); i++) brim_ranks_send(&w->peers[i].wire, &bye);
  pthread_mutex_unlock(&w->lock);
  const uint64_t one = 1;
  ssize_t ignored = write(w->wake, &one, sizeof one);
  (void)ignored;
  brim_thread_join(w->thread);
  watch_free(w);
}
