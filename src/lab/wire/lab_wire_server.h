// The Unix socket through which executors and other terminals reach a running sweep. Single-threaded
// and never waits: the sweep's loop polls one descriptor and calls brim_lab_server_serve.
//
//   brim_lab_server_open(&options, &server);
//   for (;;) {
//     poll({brim_lab_server_fd(server), POLLIN}, ..., at most brim_lab_server_wait_ms(server));
//     brim_lab_server_serve(server);
//   }
//
// FOLDER/sweep.json names the socket while the server is open: {"pid": 71, "socket": "PATH",
// "started": "2026-11-15T01:02:03Z", "version": "0.1.0"}. The socket is FOLDER/sweep.sock. Where the
// path is too long for one, or the file system has no sockets, it lies in $XDG_RUNTIME_DIR or
// /tmp/brim-UID (mode 0700) under a name made of the folder's.
//
// Only this user and root are answered. A connection may have one unfinished reply: the next request
// waits until the client has read most of it. A client that reads nothing for stall_ms is
// disconnected; so is one whose request is longer than request_max.
#ifndef BRIM_LAB_WIRE_SERVER_H_
#define BRIM_LAB_WIRE_SERVER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "brim/status.h"
#include "lab/wire/lab_wire.h"

#define BRIM_LAB_SWEEP_FILE "sweep.json"
#define BRIM_LAB_SOCKET_FILE "sweep.sock"

// 0 and NULL are the defaults.
typedef struct brim_lab_server_options {
  const char *folder;   // exists
  brim_lab_ops ops;     // copied
  int connections;      // at most this many; one more gets BRIM_EIO and is closed (500)
  int64_t stall_ms;     // 30 s
  size_t request_max;   // BRIM_LAB_REQUEST_MAX
  const uint32_t *uid;  // whom to answer beside root, for tests (this process's effective user)
} brim_lab_server_options;

typedef struct brim_lab_server brim_lab_server;

// BRIM_EEXIST: a server of another process serves this folder, and the detail names the process. What
// a killed server left is replaced.
brim_status brim_lab_server_open(const brim_lab_server_options *options, brim_lab_server **out);
// Removes the socket and sweep.json, and disconnects. NULL is fine.
void brim_lab_server_close(brim_lab_server *server);

const char *brim_lab_server_socket(const brim_lab_server *server);  // path
int brim_lab_server_fd(const brim_lab_server *server);  // readable when there is something to serve
// The longest time until brim_lab_server_serve should be called again; -1: until the descriptor says.
int brim_lab_server_wait_ms(const brim_lab_server *server);
// Accepts, reads, answers and writes what is possible without waiting, a bounded amount per call.
// Trouble with a client ends its connection only. Fails with BRIM_ENOMEM and BRIM_EIO of the
// descriptors themselves; calling again is right.
brim_status brim_lab_server_serve(brim_lab_server *server);
int brim_lab_server_connections(const brim_lab_server *server);

//---------------------------------- the way to it ----------------------------------

// Contents of sweep.json.
typedef struct brim_lab_sweep_info {
  char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
  int64_t pid;
} brim_lab_sweep_info;

// Reads sweep.json. BRIM_ENOENT: there is none, or it does not name a socket.
brim_status brim_lab_socket_read(const char *folder, brim_lab_sweep_info *out);
// Opens a connection that does not block. BRIM_ENOENT: no process listens; BRIM_EIO: it does not accept
// in time, or may not be reached.
brim_status brim_lab_socket_connect(const brim_lab_sweep_info *info, int64_t timeout_ms, int *fd);

#endif  // BRIM_LAB_WIRE_SERVER_H_
