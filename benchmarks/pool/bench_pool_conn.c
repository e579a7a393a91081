// Connections, samples and /proc for the load generator.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_pool.h"

void bench_fail(const char *what) {
  fprintf(stderr, "bench_pool: %s\n", what);
  exit(1);
}

void bench_conn_open(bench_conn *c, int port, int rcvbuf) {
  const struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  int one = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (c->fd < 0) bench_fail("no socket is left (ulimit -n)");
  if (rcvbuf) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
  if (connect(c->fd, (const struct sockaddr *)&to, sizeof to)) bench_fail("cannot connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  brim_str_init(&c->out);
  brim_str_init(&c->in);
}

void bench_conn_close(bench_conn *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
  brim_str_deinit(&c->out);
  brim_str_deinit(&c->in);
}

void bench_conn_put(bench_conn *c, const char *path, const char *token, const char *body) {
  brim_str_clear(&c->out);
  brim_str_clear(&c->in);
  c->sent = 0;
  brim_str_printf(&c->out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", body ? "POST" : "GET", path);
  if (token) brim_str_printf(&c->out, "Authorization: Bearer %s\r\n", token);
  if (body) brim_str_printf(&c->out, "Content-Length: %zu\r\n", strlen(body));
  brim_str_append(&c->out, "\r\n");
  if (body) brim_str_append(&c->out, body);
}

bool bench_conn_send(bench_conn *c) {
  while (c->sent < c->out.len) {
    ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) bench_fail("the server closed a connection");
    c->sent += (size_t)n;
  }
  return true;
}

// Content-Length of the request or reply whose headers begin at `head`. -1: it has none.
static long content_length(const char *head) {
  for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
    if (strncasecmp(line + 2, "Content-Length:", 15) == 0) return strtol(line + 17, NULL, 10);
  }
  return -1;
}

static bool is_whole(const brim_str *in, const char *body) {
  size_t size = in->len - (size_t)(body - in->data);
  long length = content_length(in->data);
  if (length >= 0) return size >= (size_t)length;
  // in chunks; the text of a reply has no line that is "0" alone
  return (size == 5 && memcmp(body, "0\r\n\r\n", 5) == 0) ||
         (size >= 7 && memcmp(in->data + in->len - 7, "\r\n0\r\n\r\n", 7) == 0);
}

int bench_conn_receive(bench_conn *c, const char **body) {
  char block[65536];
  for (;;) {
    ssize_t n = recv(c->fd, block, sizeof block, 0);
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return -1;
    brim_str_append_n(&c->in, block, (size_t)n);
    if ((size_t)n < sizeof block) break;
  }
  const char *end = c->in.len ? strstr(c->in.data, "\r\n\r\n") : NULL;
  if (!end || !is_whole(&c->in, end + 4)) return 0;
  if (body) *body = end + 4;
  return (int)strtol(c->in.data + 9, NULL, 10);
}

const char *bench_conn_ask(bench_conn *c, const char *path, const char *token, const char *body) {
  const char *reply = NULL;
  int status = 0;
  bench_conn_put(c, path, token, body);
  while (!bench_conn_send(c)) {
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    poll(&p, 1, -1);
  }
  while (status == 0) {
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    poll(&p, 1, -1);
    status = bench_conn_receive(c, &reply);
  }
  if (status == 200) return reply;
  fprintf(stderr, "%s: %s\n", path, c->in.data);
  bench_fail("a request failed");
}

void bench_times_add(bench_times *t, int64_t ns) {
  if (t->count == t->capacity) {
    t->capacity = t->capacity ? t->capacity * 2 : 1024;
    t->us = realloc(t->us, t->capacity * sizeof *t->us);
    if (!t->us) bench_fail("out of memory");
  }
  int64_t us = ns / 1000;
  t->us[t->count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

double bench_times_at(bench_times *t, size_t from, double share) {
  size_t n = t->count - from;
  if (t->count <= from) return 0;
  qsort(t->us + from, n, sizeof *t->us, compare);
  size_t at = (size_t)((double)n * share);
  return (double)t->us[from + (at < n ? at : n - 1)] * 1e-3;
}

static double read_field(const char *path, const char *name) {
  char line[512];
  double value = 0;
  FILE *f = fopen(path, "r");
  if (!f) return 0;
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, name, strlen(name)) == 0) value = strtod(line + strlen(name), NULL);
  }
  fclose(f);
  return value;
}

bench_process bench_process_read(long pid) {
  bench_process p = {0};
  char path[64], line[1024];
  if (pid <= 0) return p;
  snprintf(path, sizeof path, "/proc/%ld/status", pid);
  p.rss_mb = read_field(path, "VmRSS:") / 1024;
  p.peak_mb = read_field(path, "VmHWM:") / 1024;
  snprintf(path, sizeof path, "/proc/%ld/io", pid);
  p.written_mb = read_field(path, "write_bytes:") / 1e6;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *f = fopen(path, "r");
  if (!f) return p;
  const char *at = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
  fclose(f);
  for (int i = 0; at && i < 12; i++) at = strchr(at + 1, ' ');  // utime and stime
  if (!at) return p;
  char *end;
  double ticks = strtod(at, &end);
  ticks += strtod(end, NULL);
  p.cpu_s = ticks / (double)sysconf(_SC_CLK_TCK);
  return p;
}
