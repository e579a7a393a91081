// Inside the chaos test: its state, the processes it watches, and the proxy that stands for the
// network.
// Tests include it too.
#ifndef BRIM_CHAOS_INT_H_
#define BRIM_CHAOS_INT_H_

#include <sys/types.h>

#include "base/base.h"
#include "base/base_child.h"
#include "chaos/chaos.h"

enum {
  BRIM_CHAOS_ID = 13,       // 12 digits of an id, and the NUL
  BRIM_CHAOS_PROCS = 512,   // most processes that the test can see
  BRIM_CHAOS_STOPPED = 32,  // most processes that are stopped at the same time
  BRIM_CHAOS_SEEDS = 8      // different trainings; others differ in a setting without effect
};

typedef struct brim_chaos_proc {
  pid_t pid, parent;
  bool trains;    // a training; else an executor
  int worker;     // number of its worker; 0 = of a sweep
  int64_t fence;  // fence of an executor
  char exp[BRIM_CHAOS_ID];
} brim_chaos_proc;

// Lists the executors and trainings that run below a folder, in FOLDER/exp and in
// FOLDER/worker-N/exp, and returns their number. Leaves out a child that has not started its
// program yet and still shows its parent's command line.
size_t brim_chaos_processes(const char *folder, brim_chaos_proc *out, size_t most);

typedef struct brim_chaos brim_chaos;

struct brim_chaos {
  const brim_chaos_options *options;
  brim_chaos_report *report;
  char *folder, *store, *reference;
  char tail[1024];  // last line of the sweep's stderr
  brim_child *sweep;
  bool killed;         // this test killed the sweep
  int64_t start_ms;    // when the next sweep may start
  int64_t full_until;  // the disk is full for the sweep until this time; 0 = it is not full
  int64_t full_ms;     // when the disk was full last
  struct {
    pid_t pid;
    int64_t until;
  } stopped[BRIM_CHAOS_STOPPED];
  size_t stopped_count;
  // Number of disturbances of each experiment in the round.
  struct {
    char exp[BRIM_CHAOS_ID];
    int count;
  } hits[BRIM_CHAOS_PROCS];
  size_t hits_count;  // experiments counted so far; only the newest are kept
  uint64_t random;
};
// FOLDER/worker-N
void brim_chaos_worker_folder(const brim_chaos *chaos, int worker, char *out, size_t size);
// Compares the store, and the files of its experiments in `folder`, with those of the undisturbed run.
brim_status brim_chaos_check(brim_chaos *chaos);

// Returns the next number of a generator (splitmix64).
static inline uint64_t brim_chaos_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

//---------------------------------- the network (chaos_proxy.c) ----------------------------------
// A proxy on this machine between HTTP clients and a server. It spoils some of the requests. It finds
// the ends of messages and reads nothing else in them. It takes one request at a time per connection
// and has a thread for each connection. Bodies need a Content-Length or chunks. Streams without an end
// (server-sent events) cannot pass.

typedef struct brim_chaos_proxy brim_chaos_proxy;

typedef struct brim_chaos_proxy_options {
  int port;           // port of the server, at 127.0.0.1
  uint64_t seed;      // seed of the random choices
  int percent;        // share of the requests that are spoiled
  int64_t late_ms;    // longest delay
  int only;           // the only fault to use; < 0: all faults, at random
  const char *match;  // spoil only requests that contain this; NULL = any
  int64_t most;       // limit on faults; 0 = no limit
} brim_chaos_proxy_options;

brim_status brim_chaos_proxy_open(const brim_chaos_proxy_options *options, brim_chaos_proxy **out);
int brim_chaos_proxy_port(const brim_chaos_proxy *proxy);
// Spoils nothing from now on.
void brim_chaos_proxy_calm(brim_chaos_proxy *proxy);
// Reads the counts so far.
void brim_chaos_proxy_counts(brim_chaos_proxy *proxy, int64_t *requests,
                             int64_t faults[BRIM_CHAOS_FAULT_COUNT]);
void brim_chaos_proxy_close(brim_chaos_proxy *proxy);  // cuts off all connections; NULL is fine

// True if `data` begins with a whole HTTP/1.1 message of *size bytes.
bool brim_chaos_message_whole(const char *data, size_t length, size_t *size);

#endif  // BRIM_CHAOS_INT_H_
