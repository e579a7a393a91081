// Child processes: start, poll, signal, and read their output by lines.
//
// One thread at a time may use a child. A loop over several children:
//   while (running > 0) {
//     brim_child_wait_any(children, count, 1000);
//     for (size_t i = 0; i < count; i++) brim_child_poll(children[i], &ended);  // calls on_line
//   }
//
// A loop that also polls other descriptors gets the child's descriptors from brim_child_fds().
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
  BRIM_CHILD_OUT,  // the child's stdout
  BRIM_CHILD_ERR,  // the child's stderr
  BRIM_CHILD_STREAM_COUNT
} brim_child_stream;

typedef enum brim_child_use {
  BRIM_CHILD_NULL,     // /dev/null
  BRIM_CHILD_PIPE,     // a pipe to this process
  BRIM_CHILD_INHERIT,  // the stream of this process
  BRIM_CHILD_MERGE,    // only for stderr: into stdout, in the order written
  BRIM_CHILD_USE_COUNT
} brim_child_use;

typedef struct brim_child_line {
  brim_child_stream stream;
  const char *text;  // without newline, NUL-terminated; may contain NUL bytes
  size_t size;
  bool more;  // part of a long line; the next part follows
  bool cut;   // the last line, which has no newline
} brim_child_line;

enum { BRIM_CHILD_PASS = 20 };

typedef struct brim_child_options {
  const char *const
      *argv;  // NULL-terminated; argv[0] without a slash is searched in the child's PATH
  const char *const *env;  // NULL-terminated "NAME=value"; NULL = this process's environment
  // Changes to that environment: "NAME=value" sets, "NAME" removes. NULL-terminated, or NULL.
  const char *const *env_change;
  const char *cwd;  // NULL = inherit; a relative argv[0] with a slash starts there
  brim_child_use in, out, err;
  const int *pass_fds;  // further descriptors for the child, as 3, 4, ...; all others are closed
  size_t pass_count;    // at most BRIM_CHILD_PASS
  // The kernel kills the child when this process ends in any way; the child's own children survive. If false, the
  // child outlives this process.
  bool die_with_parent;
  bool split_returns;  // '\r' ends a line too: progress bars
  size_t max_line;     // a longer line comes in pieces; 0 = 64 KiB
  // brim_child_poll and brim_child_wait call these. A failure ends that call with this status, and the rest of the
  // block is lost. If on_data is set, it gets the bytes unchanged, and on_line is not called.
  brim_status (*on_line)(void *ctx, const brim_child_line *line);
  brim_status (*on_data)(void *ctx, brim_child_stream stream, const char *data, size_t size);
  void *ctx;
} brim_child_options;

typedef struct brim_child_result {
  int exit_code;  // -1 = a signal ended it
  int signal;     // 0 = it exited
  // exit_code and signal are unknown: this process ignores SIGCHLD, so the kernel kept no exit code.
  bool lost;
  int64_t elapsed_ns;
  // CPU time, and memory of the largest process, among the child and the processes that it waited for
  int64_t user_ns, system_ns;
  int64_t peak_bytes;  // -1 = unknown
  // False: peak_bytes is only the largest sample by brim_child_sample(). Linux starts counting at the size of the
  // process that starts the child, so the true peak of a smaller child is unknown.
  bool peak_exact;
} brim_child_result;

// Starts a child that leads its own process group, with no blocked, caught or ignored signals, and no descriptors
// but its streams and pass_fds. Safe with any number of threads. If the program cannot run, the error names it.
// BRIM_ELIMIT: the system has no process or descriptor left, and the program was not tried.
brim_status brim_child_start(const brim_child_options *options, brim_child **out);
// Kills a running child (SIGKILL to the group) and frees everything. NULL is fine.
void brim_child_close(brim_child *child);
// Frees everything and leaves the process running; init reaps it after this process has ended. NULL is fine.
void brim_child_detach(brim_child *child);

pid_t brim_child_pid(const brim_child *child);

// Passes on the output so far, and sends a SIGKILL that is due. Never waits. *ended: the process has ended and
// on_line got all of its output, except that of processes it left running. BRIM_ECHILD: the process ended, but its
// exit code is lost.
brim_status brim_child_poll(brim_child *child, bool *ended);
// Polls until the child has ended, or for timeout_ms (-1 = no limit, 0 = brim_child_poll).
brim_status brim_child_wait(brim_child *child, int64_t timeout_ms, bool *ended);
// Waits until a child has something for brim_child_poll, or for timeout_ms (-1 = no limit). Skips NULL entries and
// ended children; returns at once if no other child is left.
void brim_child_wait_any(brim_child *const *children, size_t count, int64_t timeout_ms);

// Returns descriptors to poll, at most BRIM_CHILD_FDS. Poll no longer than *limit_ms (-1 = no limit): a SIGKILL may
// be due, or the kernel may have no descriptor for the end of a process.
enum { BRIM_CHILD_FDS = 3 };
size_t brim_child_fds(const brim_child *child, struct pollfd fds[BRIM_CHILD_FDS], int *limit_ms);

// Sends a signal to the child, or to its group. BRIM_ESTATE once a poll or wait has seen the child's end.
brim_status brim_child_signal(brim_child *child, int number);
brim_status brim_child_signal_group(brim_child *child, int number);
// Sends SIGTERM to the group now, and SIGKILL grace_ms later (by brim_child_poll or brim_child_wait). Processes of
// the group that outlive the child get the SIGKILL too.
brim_status brim_child_stop(brim_child *child, int64_t grace_ms);

// Writes to the child's stdin (BRIM_CHILD_PIPE) as much as the pipe takes now; *written may be 0. BRIM_EEND: the
// child has closed its stdin.
brim_status brim_child_write(brim_child *child, const void *data, size_t size, size_t *written);
int brim_child_input_fd(const brim_child *child);  // descriptor to poll for POLLOUT; -1 = none
void brim_child_close_input(brim_child *child);

// Samples the peak memory of the running child, in bytes; -1 = unknown. See peak_exact.
int64_t brim_child_sample(brim_child *child);
// Valid after brim_child_poll or brim_child_wait set *ended.
const brim_child_result *brim_child_get_result(const brim_child *child);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CHILD_H_
