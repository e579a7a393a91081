// Load on a server of a pool: workers that beat and send metrics, listeners that read slowly or not at all, and pages
// that ask for lists, counts and curves meanwhile.
//   bench_pool --port N [--pid N] [--seconds 300] [--workers 500] [--beat 15] [--rows 20000] [--batch 100]
//              [--listeners 200] [--asleep 100] [--reads 3] [--token TOKEN] [--seed 1]
// One thread. Requests have due times, whether or not earlier ones are answered, and latency counts from there. Prints
// one JSON object. Use a new server: the program submits its own grid.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/base_clock.h"
#include "base/base_json.h"
#include "base/base_sha256.h"
#include "bench_pool.h"

enum {
  WAITING = 64,
  KEYS = 5,
  EVENTS = 256,
  REPORT_S = 10,
  SLOW_BYTES = 512,
  SLOW_MS = 50,
  LISTENER_BYTES = 4096,
  RETURN_S = 120
};

typedef enum kind { BEAT, METRICS, LIST, COUNTS, CURVE, DRIP, RETURN, KINDS } kind;
static const char *const NAMES[KINDS] = {"beat",  "metrics", "list",  "counts",
                                         "curve", "drip",    "return"};
static const char *const KEY[KEYS] = {"train_loss", "lr", "grad_norm", "samples_per_s",
                                      "val_accuracy"};

static struct {
  int port, workers, listeners, asleep;
  long pid;
  double seconds, beat_s, rows, reads, seed;
  int batch;
  const char *token;
} opt = {.workers = 500,
         .listeners = 200,
         .asleep = 100,
         .seconds = 300,
         .beat_s = 15,
         .rows = 20000,
         .reads = 3,
         .seed = 1,
         .batch = 100};

// A connection with due requests, of a worker or of a page.
typedef struct client {
  bench_conn conn;
  char exp[33];
  int64_t attempt, fence, seq, step;
  struct {
    kind what;
    int64_t due;
  } waiting[WAITING];
  int first, count;
  bool asked;  // the first request is under way
} client;

// A request that recurs every `every`.
typedef struct timer {
  int64_t due, every;
  kind what;
  int client;
} timer;

static client *clients;  // workers, then pages, then listeners
static int client_count, pages, epoll_fd;
static timer *heap;
static int timers;
static bench_times times[KINDS];
static int64_t errors, missed, news_bytes, rows_acked, comebacks;
static int64_t began, late;  // late: the longest delay of a request after it was due

static double random_share(void) {
  static uint64_t x;
  if (!x) x = (uint64_t)opt.seed * 0x9E3779B97F4A7C15u;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return (double)(x >> 11) / 9007199254740992.0;
}

//---------------------------------- times ----------------------------------

static void sift(int at) {
  for (;;) {
    int least = at;
    for (int child = 2 * at + 1; child <= 2 * at + 2; child++) {
      if (child < timers && heap[child].due < heap[least].due) least = child;
    }
    if (least == at) return;
    timer t = heap[at];
    heap[at] = heap[least];
    heap[least] = t;
    at = least;
  }
}

// The first request is due at a random time within the period, so that clients are not in step.
static void add_timer(kind what, int at, double every_s, int64_t start) {
  int64_t every = (int64_t)(every_s * 1e9);
  heap[timers++] = (timer){start + (int64_t)(random_share() * (double)every), every, what, at};
}

//---------------------------------- requests ----------------------------------

static const char *metrics_body(client *c) {
  static brim_str body;
  if (!body.data) brim_str_init(&body);
  brim_str_clear(&body);
  brim_str_printf(&body, "{\"fence\":%lld,\"seq\":%lld,\"rows\":[", (long long)c->fence,
                  (long long)++c->seq);
  for (int i = 0; i < opt.batch; i++) {
    brim_str_printf(&body, "%s[\"%s\",%lld,%.17g]", i ? "," : "", KEY[i % KEYS],
                    (long long)(c->step + i / KEYS), random_share() * 10);
  }
  c->step += (opt.batch + KEYS - 1) / KEYS;
  brim_str_append(&body, "]}");
  return body.data;
}

static void put_request(client *c, kind what) {
  char path[160], body[160];
  if (what == BEAT) {
    snprintf(path, sizeof path, "/v1/attempts/%s/%lld/beat", c->exp, (long long)c->attempt);
    snprintf(body, sizeof body, "{\"fence\":%lld,\"step\":%lld,\"steps\":1000000}",
             (long long)c->fence, (long long)c->step);
    bench_conn_put(&c->conn, path, opt.token, body);
  } else if (what == METRICS) {
    snprintf(path, sizeof path, "/v1/attempts/%s/%lld/metrics", c->exp, (long long)c->attempt);
    bench_conn_put(&c->conn, path, opt.token, metrics_body(c));
  } else if (what == CURVE) {
    const client *of = &clients[(int)(random_share() * opt.workers)];
    snprintf(path, sizeof path, "/v1/exps/%s/curve?key=train_loss&points=500", of->exp);
    bench_conn_put(&c->conn, path, opt.token, NULL);
  } else {
    bench_conn_put(&c->conn, what == LIST ? "/v1/exps?limit=100" : "/v1/counts", opt.token, NULL);
  }
}

static void watch(client *c, uint32_t events, int how) {
  struct epoll_event e = {.events = events, .data.u32 = (uint32_t)(c - clients)};
  epoll_ctl(epoll_fd, how, c->conn.fd, &e);
}

static void send_first(client *c) {
  if (c->asked || c->count == 0) return;
  c->asked = true;
  put_request(c, c->waiting[c->first].what);
  if (!bench_conn_send(&c->conn)) watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

static void add_request(client *c, kind what, int64_t due) {
  if (c->count == WAITING) {
    missed++;
    return;
  }
  int at = (c->first + c->count++) % WAITING;
  c->waiting[at].what = what;
  c->waiting[at].due = due;
  send_first(c);
}

static void take_reply(client *c, int status) {
  kind what = c->waiting[c->first].what;
  if (status != 200 && errors++ < 5) {
    fprintf(stderr, "%s: %.300s\n", NAMES[what], status < 0 ? "connection ended" : c->conn.in.data);
  }
  if (status < 0) bench_fail("the server closed a connection");
  int64_t now = brim_clock_now().ns, took = now - c->waiting[c->first].due;
  bench_times_add(&times[what], took);
  if (took > SLOW_MS * 1000000) {
    fprintf(stderr, "%.2f s  %s took %.0f ms\n", (double)(now - began) * 1e-9, NAMES[what],
            (double)took * 1e-6);
  }
  if (what == METRICS && status == 200) rows_acked += opt.batch;
  c->first = (c->first + 1) % WAITING;
  c->count--;
  c->asked = false;
  send_first(c);
}

static void read_news(client *c, size_t most) {
  char block[65536];
  ssize_t n = read(c->conn.fd, block, most < sizeof block ? most : sizeof block);
  if (n == 0) bench_fail("the server closed a listener");
  if (n > 0) news_bytes += n;
}

// Reading behaviour of a listener: 'n' nothing, 'a' all, 'd' a little each second.
static char reads(int i) {
  int n = i - opt.workers - pages;
  if (n < opt.asleep) return 'n';
  return n % 2 ? 'a' : 'd';
}

static void listen_to(client *c) {
  bench_conn_put(&c->conn, "/v1/events", opt.token, NULL);
  if (!bench_conn_send(&c->conn)) bench_fail("a listener cannot ask");
}

// The server disconnects a listener that reads nothing, and such a listener cannot notice it. So it reconnects now and
// then, which keeps their number up.
static void come_back(client *c) {
  bench_conn_close(&c->conn);
  bench_conn_open(&c->conn, opt.port, LISTENER_BYTES);
  listen_to(c);
  comebacks++;
}

static void handle(client *c, uint32_t events) {
  if (c - clients >= opt.workers + pages) {
    read_news(c, SIZE_MAX);
    return;
  }
  if ((events & EPOLLOUT) && bench_conn_send(&c->conn)) watch(c, EPOLLIN, EPOLL_CTL_MOD);
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || !c->asked) return;
  int status = bench_conn_receive(&c->conn, NULL);
  if (status != 0) take_reply(c, status);
}

//---------------------------------- before ----------------------------------

static char grid_id[65];

// Submits a grid with one experiment for each worker. The server makes the ids.
static void submit(bench_conn *conn) {
  brim_str body;
  brim_str_init(&body);
  brim_str_append(
      &body,
      "{\"name\":\"load\",\"priority\":1000000,\"yaml\":\"dataset: synthetic(samples=64, "
      "classes=4)\\nmodel: mlp(depth=2)\\nseed: [");
  for (int i = 0; i < opt.workers; i++) brim_str_printf(&body, "%s%d", i ? ", " : "", i);
  brim_str_append(&body, "]\\n\"}");
  const char *text = bench_conn_ask(conn, "/v1/grids", opt.token, body.data);
  json_t *reply = NULL;
  if (brim_json_parse(text, strlen(text), "reply", &reply)) bench_fail("no reply to a grid");
  const char *id = json_string_value(json_object_get(reply, "grid"));
  snprintf(grid_id, sizeof grid_id, "%s", id ? id : "");
  json_decref(reply);
  brim_str_deinit(&body);
}

static void claim(client *c, int n) {
  char path[160], body[160], random_id[17];
  snprintf(random_id, sizeof random_id, "%016llx",
           (unsigned long long)(random_share() * 9007199254740992.0));
  snprintf(path, sizeof path, "/v1/workers/load.w%03d/claim", n);
  snprintf(body, sizeof body, "{\"claim_id\":\"load-%ld-%s\",\"grid\":\"%s\",\"free_gpus\":8}",
           (long)getpid(), random_id, grid_id);
  const char *text = bench_conn_ask(&c->conn, path, opt.token, body);
  json_t *reply = NULL;
  if (brim_json_parse(text, strlen(text), "claim", &reply)) bench_fail("no reply to a claim");
  const char *exp = json_string_value(json_object_get(json_object_get(reply, "exp"), "id"));
  if (!exp) bench_fail("nothing to claim: the server is not new");
  snprintf(c->exp, sizeof c->exp, "%s", exp);
  c->attempt = json_integer_value(json_object_get(reply, "attempt"));
  c->fence = json_integer_value(json_object_get(reply, "fence"));
  json_decref(reply);
  snprintf(path, sizeof path, "/v1/attempts/%s/%lld/start", c->exp, (long long)c->attempt);
  snprintf(body, sizeof body, "{\"fence\":%lld,\"pid\":%d}", (long long)c->fence, n + 1);
  bench_conn_ask(&c->conn, path, opt.token, body);
}

static void prepare(void) {
  pages = opt.reads > 0 ? 3 : 0;
  client_count = opt.workers + pages + opt.listeners;
  clients = calloc((size_t)client_count, sizeof *clients);
  heap = calloc((size_t)(2 * client_count + 8), sizeof *heap);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (!clients || !heap || epoll_fd < 0) bench_fail("out of memory");
  for (int i = 0; i < client_count; i++) {
    bool listens = i >= opt.workers + pages;
    bench_conn_open(&clients[i].conn, opt.port, listens ? LISTENER_BYTES : 0);
    if (i == 0) submit(&clients[0].conn);
    if (i < opt.workers) claim(&clients[i], i);
    if (listens) listen_to(&clients[i]);
    if (!listens || reads(i) == 'a') watch(&clients[i], EPOLLIN, EPOLL_CTL_ADD);
  }
}

static void set_timers(int64_t start) {
  double metrics_s = opt.rows > 0 ? opt.workers * opt.batch / opt.rows : 0;
  for (int i = 0; i < opt.workers; i++) {
    add_timer(BEAT, i, opt.beat_s, start);
    if (metrics_s > 0) add_timer(METRICS, i, metrics_s, start);
  }
  for (int i = 0; i < pages; i++) {
    add_timer((kind)(LIST + i), opt.workers + i, 1 / opt.reads, start);
  }
  for (int i = opt.workers + pages; i < client_count; i++) {
    if (reads(i) == 'd') add_timer(DRIP, i, 1, start);
    if (reads(i) == 'n') add_timer(RETURN, i, RETURN_S, start);
  }
  for (int i = timers / 2; i >= 0; i--) sift(i);
}

//---------------------------------- the run ----------------------------------

static void fire(int64_t now) {
  while (timers > 0 && heap[0].due <= now) {
    timer t = heap[0];
    if (now - t.due > late) late = now - t.due;
    heap[0].due += t.every;
    sift(0);
    if (t.what == DRIP) {
      read_news(&clients[t.client], SLOW_BYTES);
    } else if (t.what == RETURN) {
      come_back(&clients[t.client]);
    } else {
      add_request(&clients[t.client], t.what, t.due);
    }
  }
}

static void report(double at_s, size_t from[KINDS]) {
  bench_process p = bench_process_read(opt.pid);
  fprintf(stderr, "%4.0f s  server %6.1f MB, %6.1f s of CPU ", at_s, p.rss_mb, p.cpu_s);
  for (int k = 0; k < DRIP; k++) {
    bench_times *t = &times[k];
    fprintf(stderr, "  %s %zu p50 %.1f p99 %.1f ms", NAMES[k], t->count - from[k],
            bench_times_at(t, from[k], 0.5), bench_times_at(t, from[k], 0.99));
    from[k] = t->count;
  }
  fprintf(stderr, "\n");
}

static void run(int64_t start) {
  struct epoll_event events[EVENTS];
  size_t from[KINDS] = {0};
  int64_t end = start + (int64_t)(opt.seconds * 1e9), next = start + (int64_t)REPORT_S * 1000000000;
  for (;;) {
    int64_t now = brim_clock_now().ns;
    if (now >= end) return;
    fire(now);
    if (now >= next) {
      report((double)(next - start) * 1e-9, from);
      next += (int64_t)REPORT_S * 1000000000;
    }
    int64_t wait = timers ? (heap[0].due - brim_clock_now().ns + 999999) / 1000000 : 100;
    int n = epoll_wait(epoll_fd, events, EVENTS, wait < 0 ? 0 : wait > 100 ? 100 : (int)wait);
    for (int i = 0; i < n; i++) handle(&clients[events[i].data.u32], events[i].events);
  }
}

// Requests without a reply count with the time they have waited so far.
static int64_t count_open(void) {
  int64_t open = 0, now = brim_clock_now().ns;
  for (int i = 0; i < client_count; i++) {
    for (client *c = &clients[i]; c->count > 0; c->count--, open++) {
      bench_times_add(&times[c->waiting[c->first].what], now - c->waiting[c->first].due);
      c->first = (c->first + 1) % WAITING;
    }
  }
  return open;
}

static void print_result(double seconds, const bench_process *before) {
  bench_process p = bench_process_read(opt.pid);
  struct rusage own;
  getrusage(RUSAGE_SELF, &own);
  double own_s = (double)own.ru_utime.tv_sec + (double)own.ru_utime.tv_usec * 1e-6 +
                 (double)own.ru_stime.tv_sec + (double)own.ru_stime.tv_usec * 1e-6;
  int64_t open = count_open();
  printf(
      "{\"workers\":%d,\"beat_s\":%g,\"rows_per_s\":%g,\"batch\":%d,\"listeners\":%d,\"asleep\":%d,"
      "\"seconds\":%.1f,\"rows_acked\":%lld,\"errors\":%lld,\"missed\":%lld,\"open\":%lld,"
      "\"news_bytes\":%lld,\"comebacks\":%lld,",
      opt.workers, opt.beat_s, opt.rows, opt.batch, opt.listeners, opt.asleep, seconds,
      (long long)rows_acked, (long long)errors, (long long)missed, (long long)open,
      (long long)news_bytes, (long long)comebacks);
  for (int k = 0; k < DRIP; k++) {
    bench_times *t = &times[k];
    printf("\"%s\":{\"n\":%zu,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"p999_ms\":%.2f,\"max_ms\":%.2f},",
           NAMES[k], t->count, bench_times_at(t, 0, 0.5), bench_times_at(t, 0, 0.99),
           bench_times_at(t, 0, 0.999), bench_times_at(t, 0, 1));
  }
  printf(
      "\"server\":{\"cpu_s\":%.2f,\"rss_mb\":%.1f,\"peak_mb\":%.1f,\"written_mb\":%.1f},"
      "\"generator_cpu_s\":%.2f,\"generator_late_ms\":%.2f}\n",
      p.cpu_s - before->cpu_s, p.rss_mb, p.peak_mb, p.written_mb - before->written_mb, own_s,
      (double)late * 1e-6);
}

static void read_options(int argc, char **argv) {
  static const struct option rows[] = {
      {"port", 1, NULL, 'p'},    {"pid", 1, NULL, 'P'},       {"seconds", 1, NULL, 's'},
      {"workers", 1, NULL, 'w'}, {"beat", 1, NULL, 'b'},      {"rows", 1, NULL, 'r'},
      {"batch", 1, NULL, 'B'},   {"listeners", 1, NULL, 'l'}, {"reads", 1, NULL, 'q'},
      {"token", 1, NULL, 't'},   {"seed", 1, NULL, 'S'},      {"asleep", 1, NULL, 'a'},
      {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", rows, NULL)) != -1;) {
    double value = optarg ? strtod(optarg, NULL) : 0;
    if (c == 'p') opt.port = (int)value;
    if (c == 'P') opt.pid = (long)value;
    if (c == 's') opt.seconds = value;
    if (c == 'w') opt.workers = (int)value;
    if (c == 'b') opt.beat_s = value;
    if (c == 'r') opt.rows = value;
    if (c == 'B') opt.batch = (int)value;
    if (c == 'l') opt.listeners = (int)value;
    if (c == 'q') opt.reads = value;
    if (c == 't') opt.token = optarg;
    if (c == 'S') opt.seed = value;
    if (c == 'a') opt.asleep = (int)value;
    if (c == '?') exit(2);
  }
  if (opt.port <= 0 || opt.workers < 1 || opt.batch < 1 || opt.beat_s <= 0 || opt.seed < 1) {
    bench_fail("--port, and positive numbers, are needed");
  }
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  brim_json_setup();
  prepare();
  bench_process before = bench_process_read(opt.pid);
  int64_t start = began = brim_clock_now().ns;
  set_timers(start);
  run(start);
  print_result((double)(brim_clock_now().ns - start) * 1e-9, &before);
  for (int i = 0; i < client_count; i++) bench_conn_close(&clients[i].conn);
  for (int k = 0; k < KINDS; k++) free(times[k].us);
  free(clients);
  free(heap);
  return errors || missed ? 1 : 0;
}
