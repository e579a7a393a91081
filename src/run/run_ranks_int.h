// Inside the ranks of a training: the watch (run_ranks_watch.c) and what it sends (run_ranks_watch.c).
#ifndef BRIM_RUN_RANKS_INT_H_
#define BRIM_RUN_RANKS_INT_H_

#include "run/run_ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- wire ----------------------------------

typedef enum brim_ranks_kind {
  BRIM_RANKS_HELLO = 1,  // to rank 0, with the token; and its reply, which a BEAT answers
  BRIM_RANKS_BEAT,
  BRIM_RANKS_BYE,   // this rank ends, and not by a failure
  BRIM_RANKS_FAIL,  // to rank 0: the reason of this rank
  BRIM_RANKS_END    // from rank 0: all end, because of `rank`
} brim_ranks_kind;

// How a rank failed.
typedef enum brim_ranks_fate {
  BRIM_RANKS_FAILED,  // it gave a reason
  BRIM_RANKS_DIED,    // its connection ended
  BRIM_RANKS_SILENT
} brim_ranks_fate;

// One message; all have this size. Ranks have the same byte order, as their data do.
typedef struct brim_ranks_message {
  uint32_t magic, kind;
  int32_t rank, pid, status, fate;
  uint8_t token[16];
  char host[64];
  char text[1024];
} brim_ranks_message;

// Where rank 0 listens; broadcast to all.
typedef struct brim_ranks_address {
  uint8_t token[16];
  int32_t pid;
  char host[64];
  char local[64];  // name of a UNIX socket without a file; "" = TCP
  int32_t port;
  int32_t count;
  char addresses[12][46];  // numbers, loopback last
} brim_ranks_address;

// One end of a connection.
typedef struct brim_ranks_wire {
  int fd;  // -1 = closed
  size_t got;
  brim_ranks_message in;
} brim_ranks_wire;

brim_status brim_ranks_listen(bool over_tcp, brim_ranks_address *out, int *listener);
brim_status brim_ranks_connect(const brim_ranks_address *address, brim_ranks_message *hello,
                               int64_t until_ns, brim_ranks_wire *out);
// Where rank 0 receives: several at once, so that strangers and slow ones delay no rank. NULL = out of
// memory. Both arguments outlive it.
typedef struct brim_ranks_door brim_ranks_door;
brim_ranks_door *brim_ranks_door_open(int listener, const brim_ranks_address *address);
void brim_ranks_door_close(brim_ranks_door *door);  // NULL is fine
// The next rank that knows the token and has heard the reply: its greeting is out->in. BRIM_EEND when the
// time is over.
brim_status brim_ranks_accept(brim_ranks_door *door, int64_t until_ns, brim_ranks_wire *out);
// Never waits; a wire that takes no whole message is closed.
void brim_ranks_send(brim_ranks_wire *wire, brim_ranks_message *message);
// What has come, without waiting: true with a whole message in wire->in. False and fd -1: its end.
bool brim_ranks_receive(brim_ranks_wire *wire);
void brim_ranks_wire_close(brim_ranks_wire *wire);

//---------------------------------- watch ----------------------------------

typedef struct brim_ranks_watch brim_ranks_watch;
// Connects all ranks and starts the thread.
brim_status brim_ranks_watch_open(brim_ranks *ranks, const brim_ranks_options *options,
                                  brim_ranks_watch **out);
// Tells rank 0 and returns when it has answered, or does not in time.
void brim_ranks_watch_fail(brim_ranks_watch *watch, brim_status status, const char *detail);
// Why all end, if they do; waits at most so long for it. `own`: this rank is the reason.
bool brim_ranks_watch_ended(brim_ranks_watch *watch, int64_t wait_ns, char *why, size_t size,
                            bool *own);
// Whether rank 0 is the one that died or is silent, so that rank 1 reports it.
bool brim_ranks_watch_lost_first(brim_ranks_watch *watch);
// One more communicator to be abandoned when all end.
void brim_ranks_watch_add(brim_ranks_watch *watch, brim_comm *comm);
// The communicators are about to be closed: the watch leaves them alone from now on. NULL is fine.
void brim_ranks_watch_leave(brim_ranks_watch *watch);
void brim_ranks_watch_close(brim_ranks_watch *watch);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RUN_RANKS_INT_H_
