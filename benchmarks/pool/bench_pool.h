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
  size_t sent;  // of `out`
} bench_conn;

// rcvbuf 0 = the system's. Ends the program where there is no server.
void bench_conn_open(bench_conn *c, int port, int rcvbuf);
void bench_conn_close(bench_conn *c);
// Puts a request into `out`; `body` NULL: a GET. `token` NULL: none.
void bench_conn_put(bench_conn *c, const char *path, const char *token, const char *body);
// Sends what it can. false: some is left.
bool bench_conn_send(bench_conn *c);
// Reads what is there. The HTTP status when a whole reply is in `in` (*body: where it begins), 0 when it is
// not, -1 when the connection ended.
int bench_conn_receive(bench_conn *c, const char **body);
// A request, and its reply; waits. Ends the program when the status is not 200.
const char *bench_conn_ask(bench_conn *c, const char *path, const char *token, const char *body);

// Durations in us, all of them.
typedef struct bench_times {
  uint32_t *us;
  size_t count, capacity;
} bench_times;

void bench_times_add(bench_times *t, int64_t ns);
// Sorts samples from `from` on, and gives one of them: share 0.99, or 1 for the greatest. In ms.
double bench_times_at(bench_times *t, size_t from, double share);

// A process as the system sees it.
typedef struct bench_process {
  double cpu_s, rss_mb, peak_mb, written_mb;
} bench_process;

bench_process bench_process_read(long pid);  // zeros where there is none

void bench_fail(const char *what) __attribute__((noreturn));

#endif  // BRIM_BENCH_POOL_H_
