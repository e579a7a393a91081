// Parts of the load generator: keep-alive connections, samples of latency, and /proc of the server.
#ifndef BRIM_BENCH_POOL_H_
#define BRIM_BENCH_POOL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"

// One connection: a request at a time, then its reply.
typedef struct bench_conn {
  int fd;
  brim_str out, in;
  size_t sent;  // bytes of `out` that are sent
} bench_conn;

// rcvbuf 0 = the system's. Ends the program if there is no server.
void bench_conn_open(bench_conn *c, int port, int rcvbuf);
void bench_conn_close(bench_conn *c);
// Writes a request into `out`; `body` NULL: a GET. `token` NULL: none.
void bench_conn_put(bench_conn *c, const char *path, const char *token, const char *body);
// Sends as much as the socket takes; false if some is left.
bool bench_conn_send(bench_conn *c);
// Reads the available bytes. Returns the HTTP status if `in` has a complete reply (*body: its start), 0 if not, -1 if
// the connection ended.
int bench_conn_receive(bench_conn *c, const char **body);
// Sends a request and waits for its reply. Ends the program if the status is not 200.
const char *bench_conn_ask(bench_conn *c, const char *path, const char *token, const char *body);

// All measured durations, in us.
typedef struct bench_times {
  uint32_t *us;
  size_t count, capacity;
} bench_times;

void bench_times_add(bench_times *t, int64_t ns);
// Sorts the samples from `from` on, and returns one of them: share 0.99, or 1 for the largest. In ms.
double bench_times_at(bench_times *t, size_t from, double share);

// A process's figures from /proc.
typedef struct bench_process {
  double cpu_s, rss_mb, peak_mb, written_mb;
} bench_process;

bench_process bench_process_read(long pid);  // zeros if there is no such process

void bench_fail(const char *what) __attribute__((noreturn));

#endif  // BRIM_BENCH_POOL_H_
