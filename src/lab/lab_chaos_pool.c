// The chaos test of a pool (lab_chaos.h): a server, workers with folders of their own, and the proxy
// between them, as child processes and a thread; and what disturbs them.
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lab/lab_chaos_int.h"
#include "lab/lab_chaos_proxy.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"

enum {
  WORKERS = 200,     // at most
  ROUND = 48,        // experiments that are submitted at once
  LEASE_S = 3,       // of the server
  CALL_S = 2,        // for a request
  LATE_MS = 5000,    // requests and replies come this much later at most
  PERCENT = 10,      // of the requests are spoiled
  PORTS = 20000,     // no port of an outgoing connection is among the 10,000 from here on
  COUNT_MS = 500,    // the server is asked for its counts this often
  READY_MS = 60000,  // for the first start of the server
  LEAVE_MS = 60000   // for the last end of all of them
};

// The server or a worker.
typedef struct member {
  brim_child *child;  // NULL: it does not run
  char name[24];      // of its folder and its log
  bool killed;        // by this test
  bool ready;
  int64_t start_ms;  // when it may start again
  int64_t stopped_until;
  char tail[512];  // of its stderr
  FILE *log;
} member;

typedef struct pool {
  brim_chaos *c;
  member server, submit, workers[WORKERS];
  int count, port;
  brim_chaos_proxy *proxy;
  brim_lab_link *link;
  brim_store_counts counts;
  int64_t submitted, first;  // experiments so far, and grids of all seeds
  int64_t submits;           // that failed one after the other
} pool;

//---------------------------------- processes ----------------------------------

static brim_status on_line(void *ctx, const brim_child_line *line) {
  member *m = ctx;
  if (m->log) fprintf(m->log, "%.*s\n", (int)line->size, line->text);
  if (strstr(line->text, "\"event\":\"serving\"")) m->ready = true;
  if (line->stream == BRIM_CHILD_OUT || line->size == 0) return BRIM_OK;
  snprintf(m->tail, sizeof m->tail, "%.*s", (int)(line->size < 500 ? line->size : 500), line->text);
  return BRIM_OK;
}

static brim_status start(pool *p, member *m, const char *const *argv) {
  char path[BRIM_CHAOS_PATH], timeout[32];
  snprintf(timeout, sizeof timeout, BRIM_LAB_TIMEOUT_ENV "=%d", CALL_S);
  const char *const env[] = {timeout, BRIM_LAB_TOKEN_ENV, NULL};
  const brim_child_options how = {.argv = argv,
                                  .env_change = env,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_PIPE,
                                  .err = BRIM_CHILD_PIPE,
                                  .die_with_parent = true,
                                  .on_line = on_line,
                                  .ctx = m};
  snprintf(path, sizeof path, "%.1000s/%s.log", p->c->folder, m->name);
  if (!m->log) m->log = fopen(path, "ae");
  m->tail[0] = '\0';
  m->killed = m->ready = false;
  m->stopped_until = 0;
  p->c->report->starts++;
  return brim_child_start(&how, &m->child);
}

static brim_status start_server(pool *p) {
  char port[16], lease[16], folder[BRIM_CHAOS_PATH];
  snprintf(folder, sizeof folder, "%.1000s/server", p->c->folder);
  snprintf(port, sizeof port, "%d", p->port);
  snprintf(lease, sizeof lease, "%d", LEASE_S);
  const char *const argv[] = {p->c->options->program,
                              "--json",
                              "serve",
                              "--server-only",
                              "--store",
                              p->c->store,
                              "--output-dir",
                              folder,
                              "--port",
                              port,
                              "--lease",
                              lease,
                              "--backoff",
                              "0.2",
                              NULL};
  return start(p, &p->server, argv);
}

static void proxy_url(const pool *p, char out[64]) {
  snprintf(out, 64, "http://127.0.0.1:%d", brim_chaos_proxy_port(p->proxy));
}

static brim_status start_worker(pool *p, int worker) {
  char folder[1200], url[64];
  brim_chaos_worker_folder(p->c, worker, folder, sizeof folder);
  proxy_url(p, url);
  const char *const argv[] = {p->c->options->program, "--quiet", "worker",   "--url", url,
                              "--output-dir",         folder,    "--device", "cpu",   NULL};
  return start(p, &p->workers[worker - 1], argv);
}

static brim_status start_submit(pool *p, const char *grid) {
  char url[64];
  proxy_url(p, url);
  const char *const argv[] = {
      p->c->options->program, "--quiet", "sweep", grid, "--store", url, NULL};
  return start(p, &p->submit, argv);
}

// *ended: it ran, and has ended now.
static brim_status poll_member(pool *p, member *m, bool *ended) {
  *ended = false;
  if (!m->child) return BRIM_OK;
  BRIM_TRY(brim_child_poll(m->child, ended));
  if (!*ended) return BRIM_OK;
  const brim_child_result *r = brim_child_get_result(m->child);
  if (!m->killed && m != &p->submit) {
    if (r->signal || !brim_chaos_disk_failed(m->tail)) {
      brim_chaos_violation(p->c, "%s ended by itself with exit code %d, signal %d: %.300s", m->name,
                           r->exit_code, r->signal, m->tail);
    }
    m->start_ms = brim_clock_ms() + 1000;
  }
  if (m == &p->submit) p->submits = r->exit_code == 0 && !r->signal ? 0 : p->submits + 1;
  brim_child_close(m->child);
  m->child = NULL;
  return BRIM_OK;
}

static brim_status keep_members(pool *p, int64_t now) {
  bool ended;
  BRIM_TRY(poll_member(p, &p->server, &ended));
  if (!p->server.child && now >= p->server.start_ms) BRIM_TRY(start_server(p));
  for (int i = 1; i <= p->count; i++) {
    member *m = &p->workers[i - 1];
    BRIM_TRY(poll_member(p, m, &ended));
    if (!m->child && now >= m->start_ms) BRIM_TRY(start_worker(p, i));
  }
  return BRIM_OK;
}

//---------------------------------- disturbances ----------------------------------

// 0: it does not run.
static pid_t hit(member *m) {
  return m->child && !m->killed && brim_clock_ms() >= m->stopped_until ? brim_child_pid(m->child)
                                                                       : 0;
}

// Most come back soon, some so late that others have taken over their experiments.
static void end_member(pool *p, member *m, pid_t pid, int sig) {
  int64_t most = m != &p->server && brim_chaos_between(p->c, 0, 3) == 0 ? 3000 * LEASE_S : 1500;
  m->killed = true;
  m->start_ms = brim_clock_ms() + brim_chaos_between(p->c, 0, most);
  (void)kill(pid, sig);
}

static void stop_member(pool *p, member *m, pid_t pid, int64_t most_ms) {
  int64_t ms = brim_chaos_between(p->c, 100, most_ms);
  m->stopped_until = brim_clock_ms() + ms;
  brim_chaos_stop(p->c, pid, ms);
}

static void disturb(pool *p) {
  static const int shares[BRIM_CHAOS_ACT_COUNT] = {
      [BRIM_CHAOS_KILL_EXECUTOR] = 24, [BRIM_CHAOS_STOP_EXECUTOR] = 8,
      [BRIM_CHAOS_KILL_TRAINING] = 12, [BRIM_CHAOS_KILL_WORKER] = 26,
      [BRIM_CHAOS_STOP_WORKER] = 10,   [BRIM_CHAOS_END_WORKER] = 6,
      [BRIM_CHAOS_KILL_SERVER] = 7,    [BRIM_CHAOS_STOP_SERVER] = 5,
      [BRIM_CHAOS_END_SERVER] = 2};
  brim_lab_chaos_act act = brim_chaos_choose(p->c, shares);
  member *m = act >= BRIM_CHAOS_KILL_SERVER
                  ? &p->server
                  : &p->workers[brim_chaos_between(p->c, 0, p->count - 1)];
  pid_t pid = act >= BRIM_CHAOS_KILL_WORKER ? hit(m)
                                            : brim_chaos_any(p->c, act == BRIM_CHAOS_KILL_TRAINING);
  if (pid == 0) return;
  p->c->report->acts[act]++;
  if (act == BRIM_CHAOS_STOP_EXECUTOR) {
    brim_chaos_stop(p->c, pid, brim_chaos_between(p->c, 100, 2500 * LEASE_S));
  } else if (act == BRIM_CHAOS_STOP_WORKER) {
    stop_member(p, m, pid, 2500 * LEASE_S);
  } else if (act == BRIM_CHAOS_STOP_SERVER) {
    stop_member(p, m, pid, 1500 * LEASE_S);
  } else if (act == BRIM_CHAOS_END_WORKER || act == BRIM_CHAOS_END_SERVER) {
    end_member(p, m, pid, SIGINT);
  } else if (act == BRIM_CHAOS_KILL_WORKER || act == BRIM_CHAOS_KILL_SERVER) {
    end_member(p, m, pid, SIGKILL);
  } else {
    (void)kill(pid, SIGKILL);
  }
}

// No folder is used twice, and no fence. What is wrong has to be so three times: processes are listed one
// after the other, and one may end meanwhile.
static bool find_twice(const brim_chaos_proc *all, size_t n, char *out, size_t size) {
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < i; k++) {
      const brim_chaos_proc *a = &all[i], *b = &all[k];
      if (a->trains != b->trains || strcmp(a->exp, b->exp) != 0) continue;
      if (a->trains && a->worker == b->worker) {
        snprintf(out, size, "experiment %s is trained twice in the folder of worker %d", a->exp,
                 a->worker);
        return true;
      }
      if (!a->trains && a->fence == b->fence) {
        snprintf(out, size, "experiment %s has two executors with fence %lld", a->exp,
                 (long long)a->fence);
        return true;
      }
    }
  }
  return false;
}

static void watch_processes(pool *p) {
  brim_chaos_proc all[BRIM_CHAOS_PROCS];
  char what[160];
  for (int look = 0; look < 3; look++) {
    if (look > 0) brim_clock_sleep_ns(20000000);
    size_t n = brim_chaos_processes(p->c->folder, all, BRIM_CHAOS_PROCS);
    if (!find_twice(all, n, what, sizeof what)) return;
  }
  brim_chaos_violation(p->c, "%s", what);
}

//---------------------------------- experiments ----------------------------------

// Keeps the queue filled, by clients that have to try again as often as the network fails them.
static brim_status submit_more(pool *p, bool open) {
  const int64_t *n = p->counts.states;
  char path[BRIM_CHAOS_PATH], text[128];
  bool ended;
  int64_t wanted = (p->c->options->experiments + BRIM_CHAOS_SEEDS - 1) / BRIM_CHAOS_SEEDS;
  int64_t copies = ROUND / BRIM_CHAOS_SEEDS;
  BRIM_TRY(poll_member(p, &p->submit, &ended));
  if (p->submit.child) return BRIM_OK;
  if (ended && p->submits == 0) {
    if (wanted && copies > wanted - p->first) copies = wanted - p->first;
    p->first += copies;
    p->submitted += copies * BRIM_CHAOS_SEEDS;
    return BRIM_OK;
  }
  if (p->submits > 100) {
    return brim_fail(BRIM_ECHILD, "no grid can be submitted: %.300s", p->submit.tail);
  }
  bool low = p->counts.total == p->submitted && n[BRIM_EXP_QUEUED] < 2 * p->count;
  if (!p->submits && !(low && (p->first == 0 || (wanted ? p->first < wanted : open)))) {
    return BRIM_OK;
  }
  if (wanted && copies > wanted - p->first) copies = wanted - p->first;
  if (!p->submits) {
    snprintf(text, sizeof text, brim_tr("round %lld: %lld experiments"),
             (long long)++p->c->report->rounds, (long long)(copies * BRIM_CHAOS_SEEDS));
    brim_chaos_say(p->c, text);
  }
  BRIM_TRY(brim_chaos_write_grid(p->c, p->c->report->rounds, p->first, copies, path));
  return start_submit(p, path);
}

// A server that does not answer now does so later.
static void read_counts(pool *p) {
  brim_store_counts counts = {0};
  if (hit(&p->server) == 0) return;
  if (brim_lab_count(p->link, NULL, &counts) == BRIM_OK) p->counts = counts;
  brim_status_clear();
}

static bool all_ended(const pool *p) {
  const int64_t *n = p->counts.states;
  return p->submitted > 0 && !p->submit.child && p->submits == 0 &&
         p->counts.total == p->submitted &&
         n[BRIM_EXP_DONE] + n[BRIM_EXP_FAILED] + n[BRIM_EXP_CANCELLED] == p->counts.total;
}

static brim_status run(pool *p) {
  const brim_lab_chaos_options *o = p->c->options;
  int64_t end_ms = brim_clock_ms() + (int64_t)(o->seconds * 1e3);
  int64_t last_ms = end_ms + BRIM_CHAOS_DRAIN_S * 1000LL, next_act = 0, next_count = 0,
          next_look = 0;
  for (bool calm = false;;) {
    int64_t now = brim_clock_ms();
    if (brim_chaos_is_stopped(p->c)) {
      return brim_fail(BRIM_EINTERRUPTED, "the chaos test was stopped");
    }
    if (!calm && now >= end_ms) brim_chaos_proxy_calm(p->proxy);
    calm = now >= end_ms;
    brim_chaos_continue(p->c, calm);
    BRIM_TRY(keep_members(p, now));
    BRIM_TRY(submit_more(p, !calm));
    if (now >= next_count) {
      read_counts(p);
      next_count = brim_clock_ms() + COUNT_MS;
      bool more = o->experiments ? p->submitted < o->experiments : !calm;
      if (!more && all_ended(p)) return BRIM_OK;
    }
    if (now > last_ms) {
      brim_chaos_violation(p->c, "the experiments did not end within %d s", BRIM_CHAOS_DRAIN_S);
      return BRIM_OK;
    }
    if (!calm && now >= next_act) {
      disturb(p);
      next_act = now + brim_chaos_between(p->c, 20, 300);
    }
    if (now >= next_look) {
      watch_processes(p);
      next_look = now + 200;
    }
    brim_clock_sleep_ns(10000000);
  }
}

//---------------------------------- begin and end ----------------------------------

// A port that no program has now.
static brim_status choose_port(pool *p) {
  for (int tries = 0; tries < 100; tries++) {
    p->port = PORTS + (int)brim_chaos_between(p->c, 0, 9999);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)p->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free_now = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) close(fd);
    if (free_now) return BRIM_OK;
  }
  return brim_fail(BRIM_EIO, "the chaos test finds no free port");
}

static brim_status wait_for_server(pool *p) {
  int64_t until = brim_clock_ms() + READY_MS;
  bool ended = false;
  while (!ended && !p->server.ready && brim_clock_ms() < until) {
    BRIM_TRY(brim_child_wait(p->server.child, 100, &ended));
  }
  if (p->server.ready) return BRIM_OK;
  return brim_fail(BRIM_ECHILD, "the server does not start: %.300s", p->server.tail);
}

static brim_status begin(pool *p) {
  char url[64];
  BRIM_TRY(choose_port(p));
  const brim_chaos_proxy_options how = {.port = p->port,
                                        .seed = p->c->options->seed,
                                        .percent = PERCENT,
                                        .late_ms = LATE_MS,
                                        .only = -1};
  const brim_lab_link_options link = {.timeout_ms = 300};
  BRIM_TRY(brim_chaos_proxy_open(&how, &p->proxy));
  snprintf(url, sizeof url, "http://127.0.0.1:%d", p->port);
  BRIM_TRY(brim_lab_link_open(url, &link, &p->link));
  BRIM_TRY(start_server(p));
  return wait_for_server(p);
}

static void close_member(member *m) {
  brim_child_close(m->child);
  if (m->log) fclose(m->log);
  m->child = NULL;
  m->log = NULL;
}

// Workers leave as after Ctrl-C, then the server.
static void end(pool *p) {
  int64_t until = brim_clock_ms() + LEAVE_MS;
  bool ended = false;
  brim_chaos_continue(p->c, true);
  for (int i = 0; i < p->count; i++) {
    if (p->workers[i].child) (void)brim_child_signal(p->workers[i].child, SIGINT);
  }
  for (int i = 0; i <= p->count; i++) {
    member *m = i < p->count ? &p->workers[i] : &p->server;
    if (m == &p->server && m->child) (void)brim_child_signal(m->child, SIGINT);
    int64_t left = until - brim_clock_ms();
    if (!m->child || brim_child_wait(m->child, left > 0 ? left : 0, &ended)) continue;
    if (!ended) brim_chaos_violation(p->c, "%s does not end after SIGINT", m->name);
  }
  for (int i = 0; i < p->count; i++) close_member(&p->workers[i]);
  close_member(&p->submit);
  close_member(&p->server);
  brim_lab_link_close(p->link);
  if (p->proxy) brim_chaos_proxy_counts(p->proxy, &p->c->report->requests, p->c->report->faults);
  brim_chaos_proxy_close(p->proxy);
  brim_status_clear();
}

brim_status brim_chaos_pool(brim_chaos *c) {
  pool *p = brim_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM, "out of memory in the chaos test");
  p->c = c;
  p->count = (int)(c->options->workers < WORKERS ? c->options->workers : WORKERS);
  snprintf(p->server.name, sizeof p->server.name, "server");
  snprintf(p->submit.name, sizeof p->submit.name, "submit");
  for (int i = 0; i < p->count; i++) {
    snprintf(p->workers[i].name, sizeof p->workers[i].name, "worker-%d", i + 1);
  }
  brim_status status = begin(p);
  if (!status) status = run(p);
  char detail[512];
  snprintf(detail, sizeof detail, "%s", status ? brim_status_detail() : "");
  end(p);
  brim_free(p);
  if (status) brim_status_set_detail(detail);
  return status;
}
