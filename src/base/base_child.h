// Child processes that run beside the caller: start, poll, signal, read their output by lines.
//
// One thread uses a child at a time; several children in one loop:
//
//   while (running > 0) {
//     brim_child_wait_any(children, count, 1000);
//     for (size_t i = 0; i < count; i++) brim_child_poll(children[i], &ended);  // calls on_line
//   }
//
// A loop that polls other descriptors too takes those of the child from brim_child_fds().
#ifndef BRIM_BASE_CHILD_H_
#define BRIM_BASE_CHILD_H_

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_child brim_child;

typedef enum brim_child_stream {
  BRIM_CHILD_OUT,  // its stdout
  BRIM_CHILD_ERR,  // its stderr
  BRIM_CHILD_STREAM_COUNT
} brim_child_stream;

typedef enum brim_child_use {
  BRIM_CHILD_NULL,     // /dev/null
  BRIM_CHILD_PIPE,     // a pipe to this process
  BRIM_CHILD_INHERIT,  // this process's own
  BRIM_CHILD_MERGE,    // stderr only: where stdout goes, in the order written
  BRIM_CHILD_USE_COUNT
} brim_child_use;

typedef struct brim_child_line {
  brim_child_stream stream;
  const char *text;  // without its end, NUL-terminated; may contain NUL bytes
  size_t size;
  bool more;  // the line was too long: the next piece of it follows
  bool cut;   // the last line, which has no newline
} brim_child_line;

enum { BRIM_CHILD_PASS = 20 };

typedef struct brim_child_options {
  const char *const
      *argv;  // NULL-terminated; argv[0] without a slash is searched in the child's PATH
  const char *const *env;  // NULL-terminated "NAME=value"; NULL = this process's environment
  // On top of that: "NAME=value" sets, "NAME" removes. NULL-terminated, or NULL.
  const char *const *env_change;
  const char *cwd;  // NULL = inherit; a relative argv[0] with a slash starts there
  brim_child_use in, out, err;
  const int *pass_fds;  // the child has these descriptors too, as 3, 4, ...; all others close
  size_t pass_count;    // at most BRIM_CHILD_PASS
  // The system kills the child when this process ends, however it ends (Linux). Its own children
  // live on. Without it the child outlives this process.
  bool die_with_parent;
  bool split_returns;  // '\r' ends a line too: progress bars
  size_t max_line;     // bytes of a line before it comes in pieces; 0 = 64 KiB
  // From inside brim_child_poll and brim_child_wait. A failure ends that call and is its status;
  // the rest of the block read is lost. With on_data set, bytes come as they are, not by lines.
  brim_status (*on_line)(void *ctx, const brim_child_line *line);
  brim_status (*on_data)(void *ctx, brim_child_stream stream, const char *data, size_t size);
  void *ctx;
} brim_child_options;

typedef struct brim_child_result {
  int exit_code;  // -1 when a signal ended it
  int signal;     // 0 when it exited
  // How it ended is not known: this process ignores SIGCHLD, and the system kept no exit code. Both
  // above say nothing then.
  bool lost;
  int64_t elapsed_ns;
  // Processor time, and memory of the largest process: of the child and of those it waited for.
  int64_t user_ns, system_ns;
  int64_t peak_bytes;  // -1 = unknown
  // Linux counts from the size of the process that starts the child. A child that stays below that
  // has only the peak that brim_child_sample() saw: at least peak_bytes.
  bool peak_exact;
} brim_child_result;

// The child leads a process group of its own, starts without blocked, caught or ignored signals and
// has no descriptor but its streams and pass_fds. Safe with any number of threads. A program that
// cannot be run is an error that names it; then there is no child. BRIM_ELIMIT: the program was not
// tried, the system has no process or descriptor left.
brim_status brim_child_start(const brim_child_options *options, brim_child **out);
// Ends it when it still runs (SIGKILL to the group) and frees everything. NULL is fine.
void brim_child_close(brim_child *child);
// Frees everything and leaves the process running; the system reaps it when this process has ended.
// NULL is fine.
void brim_child_detach(brim_child *child);

pid_t brim_child_pid(const brim_child *child);

// Without waiting: hands over the output that is there, sends a SIGKILL that is due. *ended: the
// process has ended and on_line has had all of its output. Output of processes it left running is
// not waited for.
brim_status brim_child_poll(brim_child *child, bool *ended);
// BRIM_ECHILD: it has ended, but how is lost (brim_child_result).
// The same until it has ended, or for timeout_ms (-1 = no limit, 0 = brim_child_poll).
brim_status brim_child_wait(brim_child *child, int64_t timeout_ms, bool *ended);
// Until one of them has something for brim_child_poll, or for timeout_ms (-1 = no limit). NULL
// entries and ended children are skipped; with none left it returns at once.
void brim_child_wait_any(brim_child *const *children, size_t count, int64_t timeout_ms);

// What to poll for; the count is at most BRIM_CHILD_FDS. *limit_ms: poll no longer than this (-1 =
// no limit), as a SIGKILL may be due or the system cannot report an end by a descriptor.
enum { BRIM_CHILD_FDS = 3 };
size_t brim_child_fds(const brim_child *child, struct pollfd fds[BRIM_CHILD_FDS], int *limit_ms);

// To the child, or to its whole group. BRIM_ESTATE after its end was seen.
brim_status brim_child_signal(brim_child *child, int number);
brim_status brim_child_signal_group(brim_child *child, int number);
// SIGTERM to the group now, SIGKILL grace_ms later (from brim_child_poll or brim_child_wait), and to
// what is left of the group when the child has ended.
brim_status brim_child_stop(brim_child *child, int64_t grace_ms);

// To its stdin (BRIM_CHILD_PIPE), as much as the pipe takes now; *written may be 0. BRIM_EEND: it
// reads no more.
brim_status brim_child_write(brim_child *child, const void *data, size_t size, size_t *written);
int brim_child_input_fd(const brim_child *child);  // to poll for POLLOUT; -1 = none
void brim_child_close_input(brim_child *child);

// Peak memory of the running child so far, in bytes; -1 = unknown. See peak_exact.
int64_t brim_child_sample(brim_child *child);
// Valid once brim_child_poll or brim_child_wait gave *ended.
const brim_child_result *brim_child_get_result(const brim_child *child);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CHILD_H_
