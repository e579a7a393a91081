// Several processes that train together ("ranks"): which rank this process is, and the watch that ends all ranks
// when one fails. No process is started here.

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/backend_exchange.h"
#include "run/run_int.h"

#define SECOND_NS ((int64_t)1000000000)

//---------------------------------- which rank ----------------------------------

typedef struct launcher {
  brim_ranks_origin origin;
  // names of environment variables; NULL = the launcher does not set it
  const char *size, *rank, *local_rank, *local_size;
} launcher;

// The first launcher whose size and rank variables are set counts. mpirun inside a Slurm job is Open MPI.
static const launcher launchers[] = {
    {BRIM_RANKS_BRIM, BRIM_RANKS_ENV_SIZE, BRIM_RANKS_ENV_RANK, BRIM_RANKS_ENV_RANK,
     BRIM_RANKS_ENV_SIZE},
    {BRIM_RANKS_MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {BRIM_RANKS_MPI, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {BRIM_RANKS_MPI, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL},
    {BRIM_RANKS_MPI, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL},
};

// A count from the environment; -1 if it is missing or no number.
static int64_t env_number(char *(*get)(const char *name), const char *name) {
  const char *text = name ? get(name) : NULL;
  int64_t value = -1;
  if (!text || !brim_parse_i64(text, &value) || value < 0 || value > INT_MAX) return -1;
  return value;
}

static brim_status read_launcher(char *(*get)(const char *name), const launcher *l,
                                 brim_ranks_place *out) {
  int64_t size = env_number(get, l->size), rank = env_number(get, l->rank);
  if (size < 1 || rank < 0 || rank >= size || size > BRIM_RANKS_MAX) {
    return brim_fail(BRIM_EINVAL, "%s=%s and %s=%s name no rank of 1 to %d", l->rank, get(l->rank),
                     l->size, get(l->size), BRIM_RANKS_MAX);
  }
  if (size == 1) return BRIM_OK;  // one rank, as with mpirun -n 1
  out->origin = l->origin;
  out->rank = (int)rank;
  out->size = (int)size;
  out->local_rank = (int)env_number(get, l->local_rank);
  out->local_size = (int)env_number(get, l->local_size);
  if (l->origin != BRIM_RANKS_BRIM) return BRIM_OK;
  const char *name = get(BRIM_RANKS_ENV_NAME);
  if (!name || name[0] != '/' || strlen(name) >= sizeof out->name) {
    return brim_fail(BRIM_EINVAL, "%s does not name the shared memory of the ranks",
                     BRIM_RANKS_ENV_NAME);
  }
  snprintf(out->name, sizeof out->name, "%s", name);
  return BRIM_OK;
}

brim_status brim_ranks_find(char *(*get)(const char *name), brim_ranks_place *out) {
  *out = (brim_ranks_place){.size = 1, .local_size = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const launcher *l = &launchers[i];
    if (!get(l->size) || !get(l->rank)) continue;
    // Slurm sets these variables in a batch script, too; only srun sets the step.
    if (strncmp(l->rank, "SLURM_", 6) == 0 && !get("SLURM_STEP_ID")) continue;
    return read_launcher(get, l, out);
  }
  return BRIM_OK;
}

//---------------------------------- connections ----------------------------------
// The watch uses an abstract UNIX socket within one machine and TCP between machines. Rank 0 broadcasts a
// random token over the communicator and refuses a connection that does not show it.

#define MAGIC 0x6b6e6172u
#define TRY_NS (3 * (int64_t)1000000000)  // to connect to one of several addresses

void brim_ranks_wire_close(brim_ranks_wire *wire) {
  if (wire->fd >= 0) close(wire->fd);
  wire->fd = -1;
}

void brim_ranks_send(brim_ranks_wire *wire, brim_ranks_message *message) {
  if (wire->fd < 0) return;
  message->magic = MAGIC;
  ssize_t n = send(wire->fd, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == (ssize_t)sizeof *message) return;
  // A full buffer is fine: the watch notices a peer that does not read. After half a message the stream is
  // useless, so close it.
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

// Waits for a whole message.
static bool receive_until(brim_ranks_wire *wire, int64_t until_ns) {
  while (wire->fd >= 0 && !brim_ranks_receive(wire)) {
    int64_t left_ns = until_ns - brim_clock_now().ns;
    if (wire->fd < 0 || left_ns <= 0) return false;
    struct pollfd p = {.fd = wire->fd, .events = POLLIN};
    (void)poll(&p, 1, (int)(left_ns / 1000000 < 100 ? left_ns / 1000000 + 1 : 100));
  }
  return wire->fd >= 0;
}

static brim_status fail_socket(const char *what) {
  return brim_fail(BRIM_EIO, "cannot connect the ranks of this training (%s): %s", what,
                   brim_errno_text(errno));
}

static socklen_t local_name(const brim_ranks_address *address, struct sockaddr_un *out) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  // A leading zero makes the name abstract: there is no file.
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

// A connection to rank 0 that has not finished its greeting.
enum { GUESTS = 64 };
typedef struct guest {
  brim_ranks_wire wire;
  bool greeted;  // the guest showed the token, and rank 0 replied
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

// BRIM_OK: the guest is a rank and has the reply. BRIM_EEND: the greeting is not finished. BRIM_EIO: refuse the guest.
static brim_status guest_status(const brim_ranks_door *d, guest *g) {
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
  // A stranger must not take the place of a rank. A slow rank tries again.
  bool late = !g->greeted && brim_clock_now().ns > g->until_ns;
  return g->wire.fd < 0 || late ? BRIM_EIO : BRIM_EEND;
}

// A rank that gave up and connects again leaves a dead guest behind: only a guest that answers the reply
// counts.
brim_status brim_ranks_accept(brim_ranks_door *d, int64_t until_ns, brim_ranks_wire *out) {
  for (;;) {
    for (int i = 0; i < d->count;) {
      guest *g = &d->guests[i];
      brim_status status = guest_status(d, g);
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
    int64_t left_ns = until_ns - brim_clock_now().ns;
    if (left_ns <= 0) return BRIM_EEND;
    const bool full = d->count == GUESTS;
    struct pollfd polls[GUESTS + 1] = {{.fd = full ? -1 : d->listener, .events = POLLIN}};
    for (int i = 0; i < d->count; i++) {
      polls[i + 1] = (struct pollfd){.fd = d->guests[i].wire.fd, .events = POLLIN};
    }
    int ms = (int)(left_ns / 1000000 < 100 ? left_ns / 1000000 + 1 : 100);
    if (poll(polls, (nfds_t)d->count + 1, ms) <= 0 || !polls[0].revents) continue;
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    d->guests[d->count++] = (guest){.wire = {.fd = fd}, .until_ns = brim_clock_now().ns + TRY_NS};
  }
}

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

// Greets the other end. True if it is rank 0.
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
      // Rank 0 answers one rank at a time, so the last of its addresses may use all the time left.
      if (out->fd >= 0 && greet(address, hello, i + 1 < ways ? soon : until_ns, out)) {
        return BRIM_OK;
      }
    }
    brim_clock_sleep_ns(50 * 1000000);
  } while (brim_clock_now().ns < until_ns);
  return brim_fail(BRIM_EIO, "cannot reach rank 0 on %s (PID %d)", address->host, address->pid);
}

//---------------------------------- watch ----------------------------------
// Every rank has a connection to rank 0 and sends a beat each second. A rank that fails sends its reason. A rank has
// died if its connection ends; a rank without beats counts as silent. Rank 0 then ends all ranks: each abandons its
// communicators, so that none waits for the lost rank.

#define LOOK_MS 200             // the thread looks at the clock this often
#define LAG_NS (2 * SECOND_NS)  // more time between two looks means that this process was suspended
#define ANSWER_NS (2 * SECOND_NS)  // time for rank 0 to answer a failed rank

typedef struct peer {
  brim_ranks_wire wire;
  int64_t heard_ns;
  int32_t pid;
  char host[64];
  bool left;  // sent BRIM_RANKS_BYE
} peer;

typedef struct brim_ranks_watch {
  int rank, size;
  brim_ranks_options options;
  brim_thread *thread;
  int wake;              // eventfd
  struct pollfd *polls;  // (1 + peers)
  pthread_mutex_t lock;
  pthread_cond_t changed;
  // Under the lock:
  brim_comm *comm, *device_comm;  // NULL = none, or closed
  peer *peers;                    // (size) on rank 0: every other rank; (1) on the others: rank 0
  bool closing;
  bool ended;                // all ranks end, because of `cause`
  brim_ranks_message cause;  // END
  int64_t ended_ns;
  bool stuck;  // on_stuck was called
} watch;

static int peer_count(const watch *w) { return w->rank == 0 ? w->size : 1; }

static void cause_text(const watch *w, char *out, size_t size) {
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

// Ends all ranks. Rank 0 tells every rank, also the failed rank, which waits for the message. The lock is held.
static void end_all(watch *w, const brim_ranks_message *cause) {
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

static void end_because_lost(watch *w, int index, brim_ranks_fate fate) {
  const peer *p = &w->peers[index];
  brim_ranks_message cause = {
      .rank = w->rank == 0 ? index : 0, .pid = p->pid, .status = BRIM_ERANK, .fate = (int32_t)fate};
  memcpy(cause.host, p->host, sizeof cause.host);
  end_all(w, &cause);
}

static void handle(watch *w, int index, const brim_ranks_message *m) {
  peer *p = &w->peers[index];
  p->heard_ns = brim_clock_now().ns;
  switch ((brim_ranks_kind)m->kind) {
    case BRIM_RANKS_BYE:
      p->left = true;
      break;
    case BRIM_RANKS_FAIL: {
      // Trust the greeting for the rank, PID and host.
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

static void check_peer(watch *w, int index, int64_t now) {
  peer *p = &w->peers[index];
  if (p->wire.fd < 0) return;
  while (brim_ranks_receive(&p->wire)) handle(w, index, &p->wire.in);
  if (p->left) return;
  if (p->wire.fd < 0) {
    end_because_lost(w, index, BRIM_RANKS_DIED);
  } else if (now - p->heard_ns > w->options.silence_ns) {
    end_because_lost(w, index, BRIM_RANKS_SILENT);
  }
}

// Waits until a peer sends something, at most LOOK_MS. Gives up the lock meanwhile.
static void wait_for_peers(watch *w) {
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
  watch *w = arg;
  int64_t last_ns = brim_clock_now().ns, beat_ns = last_ns;
  pthread_mutex_lock(&w->lock);
  while (!w->closing) {
    wait_for_peers(w);
    const int64_t now = brim_clock_now().ns, lag_ns = now - last_ns;
    const bool beats = now >= beat_ns;
    brim_ranks_message beat = {.kind = BRIM_RANKS_BEAT, .rank = w->rank};
    for (int i = 0; i < peer_count(w); i++) {
      if (lag_ns > LAG_NS) w->peers[i].heard_ns += lag_ns;
      if (beats) brim_ranks_send(&w->peers[i].wire, &beat);
      check_peer(w, i, now);
    }
    if (beats) beat_ns = now + SECOND_NS;
    last_ns = now;
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

static void peer_init(peer *p, const brim_ranks_wire *wire, int32_t pid, const char *host) {
  *p = (peer){.wire = *wire, .heard_ns = brim_clock_now().ns, .pid = pid};
  snprintf(p->host, sizeof p->host, "%s", host);
}

static brim_status accept_ranks(watch *w, brim_ranks_door *door) {
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
    peer_init(&w->peers[r], &wire, wire.in.pid, wire.in.host);
    missing--;
  }
  return BRIM_OK;
}

static brim_status connect_ranks(watch *w, bool over_tcp) {
  brim_ranks_address address;
  int listener = -1;
  brim_status status = BRIM_OK;
  memset(&address, 0, sizeof address);
  if (w->rank == 0) {
    status = brim_ranks_listen(over_tcp, &address, &listener);
    // The other ranks wait for the broadcast; without the communicator they fail at once.
    if (status) brim_comm_abandon(w->comm);
  }
  if (!status) status = brim_comm_broadcast(w->comm, &address, sizeof address, 0);
  if (!status && w->rank == 0) {
    brim_ranks_door *door = brim_ranks_door_open(listener, &address);
    if (!door) status = brim_fail(BRIM_ENOMEM, "no memory for the watch over the ranks");
    if (!status) status = accept_ranks(w, door);
    brim_ranks_door_close(door);
  } else if (!status) {
    brim_ranks_message hello = {.rank = w->rank, .pid = (int32_t)getpid()};
    (void)gethostname(hello.host, sizeof hello.host - 1);
    brim_ranks_wire wire;
    status = brim_ranks_connect(&address, &hello, brim_clock_now().ns + BRIM_RANKS_OPEN_NS, &wire);
    if (!status) peer_init(&w->peers[0], &wire, address.pid, address.host);
  }
  if (listener >= 0) close(listener);
  return status;
}

static void watch_free(watch *w) {
  for (int i = 0; w->peers && i < peer_count(w); i++) brim_ranks_wire_close(&w->peers[i].wire);
  if (w->wake >= 0) close(w->wake);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  brim_free(w->polls);
  brim_free(w->peers);
  brim_free(w);
}

static brim_status watch_create(brim_ranks *ranks, const brim_ranks_options *options, watch **out) {
  watch *w = brim_calloc(1, sizeof *w);
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

// Connects all ranks and starts the thread.
static brim_status watch_open(brim_ranks *ranks, const brim_ranks_options *options, watch **out) {
  *out = NULL;
  watch *w = NULL;
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

// Tells rank 0 why this rank failed. Returns after the answer of rank 0, or after ANSWER_NS.
static void watch_fail(watch *w, brim_status status, const char *detail) {
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

// True if all ranks end; `why` gets the reason. Waits at most `wait_ns` for that. Sets *own if this rank is the reason.
static bool watch_ended(watch *w, int64_t wait_ns, char *why, size_t size, bool *own) {
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

static void watch_close(watch *w) {
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

//---------------------------------- opening and closing ----------------------------------

// The machine that a rank runs on. Each rank sends it to all ranks.
typedef struct rank_machine {
  char host[64];
  cpu_set_t cpus;
} rank_machine;

static brim_status count_neighbours(brim_ranks *ranks) {
  rank_machine *all = brim_calloc((size_t)ranks->size + 1, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  rank_machine *mine = &all[ranks->size];
  (void)gethostname(mine->host, sizeof mine->host - 1);
  CPU_ZERO(&mine->cpus);
  if (sched_getaffinity(0, sizeof mine->cpus, &mine->cpus))
    memset(&mine->cpus, 0xff, sizeof mine->cpus);
  brim_status status = brim_comm_all_gather(ranks->comm, mine, all, sizeof *all);
  ranks->cpu_ranks = 0;
  for (int r = 0; !status && r < ranks->size; r++) {
    cpu_set_t both;
    CPU_AND(&both, &all[r].cpus, &mine->cpus);
    if (strcmp(all[r].host, mine->host) == 0 && CPU_COUNT(&both) > 0) ranks->cpu_ranks++;
  }
  if (ranks->cpu_ranks < 1) ranks->cpu_ranks = 1;
  brim_free(all);
  return status;
}

static brim_status open_comm(const brim_ranks_place *place, brim_ranks *ranks) {
  if (place->origin == BRIM_RANKS_BRIM) {
    ranks->local_rank = place->rank;
    ranks->local_size = place->size;
    snprintf(ranks->name, sizeof ranks->name, "%s", place->name);
    return brim_comm_open_shm(place->name, place->rank, place->size, BRIM_RANKS_OPEN_NS,
                              &ranks->comm);
  }
  BRIM_TRY(brim_comm_open_mpi(&ranks->comm, &ranks->local_rank, &ranks->local_size));
  if (brim_comm_size(ranks->comm) == place->size) return BRIM_OK;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "the launcher started %d ranks, but MPI knows %d: use the mpirun of brim's MPI, or "
      "srun --mpi=pmix",
      place->size, brim_comm_size(ranks->comm));
}

// Opens a second communicator between the same ranks. Every rank calls this.
static brim_status open_twin(brim_ranks *ranks, brim_comm **out) {
  int local_rank, local_size;
  char name[sizeof ranks->name + 8];
  if (ranks->origin == BRIM_RANKS_MPI) return brim_comm_open_mpi(out, &local_rank, &local_size);
  snprintf(name, sizeof name, "%s-twin", ranks->name);
  return brim_comm_open_shm(name, ranks->rank, ranks->size, BRIM_RANKS_OPEN_NS, out);
}

brim_status brim_ranks_open(const brim_ranks_place *place, const brim_ranks_options *options,
                            brim_ranks **out) {
  *out = NULL;
  if (place->origin == BRIM_RANKS_ALONE) return BRIM_OK;
  brim_ranks *ranks = brim_calloc(1, sizeof *ranks);
  if (!ranks) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  ranks->origin = place->origin;
  brim_status status = open_comm(place, ranks);
  if (!status) {
    ranks->rank = brim_comm_rank(ranks->comm);
    ranks->size = brim_comm_size(ranks->comm);
    status = count_neighbours(ranks);
  }
  if (!status) status = watch_open(ranks, options, &ranks->watch);
  if (status) {
    if (ranks->comm) brim_comm_abandon(ranks->comm);
    brim_ranks_close(ranks);
    return status;
  }
  *out = ranks;
  return BRIM_OK;
}

void brim_ranks_close(brim_ranks *ranks) {
  if (!ranks) return;
  // Destroy the communicators before the watch: MPI waits here for the other ranks, which may still fail.
  watch *w = ranks->watch;
  if (w) {
    pthread_mutex_lock(&w->lock);
    w->comm = w->device_comm = NULL;
    pthread_mutex_unlock(&w->lock);
  }
  brim_comm_destroy(ranks->device_comm);
  brim_comm_destroy(ranks->comm);
  watch_close(w);
  brim_free(ranks);
}

//---------------------------------- devices ----------------------------------

// Sets *out if each rank has a GPU of its own, which NCCL needs.
static brim_status has_own_gpu(const brim_ranks *ranks, const brim_device *device, bool *out) {
  char mine[sizeof device->info.id] = "";
  size_t size = sizeof mine;
  char *all = brim_calloc((size_t)ranks->size, size);
  if (!all) return brim_fail(BRIM_ENOMEM, "no memory for the ranks of a training");
  snprintf(mine, size, "%s", device->info.id);
  brim_status status = brim_comm_all_gather(ranks->comm, mine, all, size);
  *out = true;
  for (int a = 0; !status && a < ranks->size; a++) {
    const char *id = all + (size_t)a * size;
    if (!id[0]) *out = false;
    for (int b = 0; b < a; b++) *out = *out && strcmp(id, all + (size_t)b * size) != 0;
  }
  brim_free(all);
  return status;
}

brim_status brim_ranks_attach(brim_ranks *ranks, brim_device *device, char why[256]) {
  why[0] = 0;
  if (!ranks) {
    // developers set the variable to measure the cost of an exchange with one rank
    return getenv("BRIM_EXCHANGE_ALONE") ? brim_device_set_ranks(device, NULL, true, why) : BRIM_OK;
  }
  if (!ranks->device_comm) {
    BRIM_TRY(open_twin(ranks, &ranks->device_comm));
    watch *w = ranks->watch;
    pthread_mutex_lock(&w->lock);
    w->device_comm = ranks->device_comm;
    if (w->ended) brim_comm_abandon(w->device_comm);
    pthread_mutex_unlock(&w->lock);
  }
  if (device->info.host_memory) {
    return brim_device_set_ranks(device, ranks->device_comm, false, why);
  }
  bool own = false;
  BRIM_TRY(has_own_gpu(ranks, device, &own));
  BRIM_TRY(brim_device_set_ranks(device, ranks->device_comm, own, why));
  if (!own) snprintf(why, 256, "%s", brim_tr("ranks share a GPU"));
  return BRIM_OK;
}

//---------------------------------- failures ----------------------------------

// If an exchange fails, mostly another rank has failed: wait this long for that rank's reason.
#define CAUSE_NS SECOND_NS

// True for errors of the user's input. All ranks have the same error then, and each keeps its own message.
static bool is_input(brim_status status) {
  return status == BRIM_EINVAL || status == BRIM_EPARSE || status == BRIM_ENOENT ||
         status == BRIM_EEXIST || status == BRIM_EUNSUPPORTED;
}

brim_status brim_ranks_fail(brim_ranks *ranks, brim_status status) {
  if (!ranks || !status) return status;
  char detail[1024], why[1400];
  bool own = false;
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  bool ended = watch_ended(ranks->watch, status == BRIM_EIO ? CAUSE_NS : 0, why, sizeof why, &own);
  if (!ended) {
    watch_fail(ranks->watch, status, detail);
    ended = watch_ended(ranks->watch, 0, why, sizeof why, &own);
  }
  brim_comm_abandon(ranks->comm);
  brim_comm_abandon(ranks->device_comm);
  if (ended && !own && !is_input(status)) {
    brim_status_set_detail(why);
    return BRIM_ERANK;
  }
  brim_status_set_detail(detail);
  return status;
}

bool brim_ranks_reports(const brim_ranks *ranks) {
  if (!ranks || ranks->rank == 0) return true;
  char why[1400];
  bool own;
  // if rank 0 did not answer, each rank prints its own reason
  if (!watch_ended(ranks->watch, 0, why, sizeof why, &own)) return true;
  // If rank 0 died or is silent, rank 1 prints the reason. brim's own launcher notices a dead rank 0 itself.
  watch *w = ranks->watch;
  pthread_mutex_lock(&w->lock);
  bool lost_first = w->ended && w->cause.rank == 0 && w->cause.fate != BRIM_RANKS_FAILED;
  pthread_mutex_unlock(&w->lock);
  return lost_first && ranks->rank == 1 && ranks->origin == BRIM_RANKS_MPI;
}

//---------------------------------- shares of a machine ----------------------------------

int brim_ranks_threads(const brim_ranks *ranks, int threads) {
  const int each = ranks ? threads / ranks->cpu_ranks : threads;
  return each > 0 ? each : 1;
}

void brim_ranks_device(const brim_ranks *ranks, const char *const *devices, size_t count, int gpus,
                       char *out, size_t size) {
  const int local = ranks ? ranks->local_rank : 0;
  const char *named = count > 0 ? devices[(size_t)local % count] : "auto";
  const bool open = strcmp(named, "cuda") == 0 || strcmp(named, "auto") == 0;
  if (ranks && count <= 1 && open && gpus > 0) {
    snprintf(out, size, "cuda:%d", local % gpus);
  } else {
    snprintf(out, size, "%s", named);
  }
}
