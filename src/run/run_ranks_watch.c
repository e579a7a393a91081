// The watch over the ranks of a training: every rank has a connection to rank 0 and sends a sign of life
// each second. A rank that fails sends its reason; one whose connection ends has died; one that is silent
// has failed. Rank 0 then ends all: each rank's exchange is abandoned, so that nothing waits for the lost one.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "run/run_ranks_int.h"

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
