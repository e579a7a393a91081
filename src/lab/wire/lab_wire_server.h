// The Unix socket through which executors and other terminals reach a running sweep. Everything runs in
// the sweep's thread and nothing waits: the sweep's loop polls one descriptor and calls
// brim_lab_server_serve.
//
//   brim_lab_server_open(&options, &server);
//   for (;;) {
//     poll({brim_lab_server_fd(server), POLLIN}, ..., at most brim_lab_server_wait_ms(server));
//     brim_lab_server_serve(server);
//   }
//
// FOLDER/sweep.json names the socket while the server is open: {"pid": 71, "socket": "PATH",
// "started": "2026-11-15T01:02:03Z", "version": "0.1.0"}. The socket is FOLDER/sweep.sock. If that path
// is too long for a socket, or the file system has no sockets, the socket is in $XDG_RUNTIME_DIR or
// /tmp/brim-UID (mode 0700), under a name made from the folder's path.
//
// The server answers only this user and root. A connection has at most one unfinished reply: its next
// request waits until the client has read most of that reply. The server disconnects a client that
// reads nothing for stall_ms, or whose request is longer than request_max.
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

// 0 and NULL select the defaults, which stand in parentheses.
typedef struct brim_lab_server_options {
  const char *folder;   // an existing folder
  brim_lab_ops ops;     // copied
  int connections;      // at most this many; a further one gets BRIM_EIO and is closed (500)
  int64_t stall_ms;     // limit for a client that reads nothing (30 s)
  size_t request_max;   // bytes of a request (BRIM_LAB_REQUEST_MAX)
  const uint32_t *uid;  // for tests: the user to answer beside root (this process's effective user)
} brim_lab_server_options;

typedef struct brim_lab_server brim_lab_server;

// Replaces the files of a server that was killed. BRIM_EEXIST: another process serves this folder; the
// detail names the process.
brim_status brim_lab_server_open(const brim_lab_server_options *options, brim_lab_server **out);
// Removes the socket and sweep.json, and disconnects. NULL is fine.
void brim_lab_server_close(brim_lab_server *server);

const char *brim_lab_server_socket(const brim_lab_server *server);  // path of the socket
int brim_lab_server_fd(const brim_lab_server *server);              // readable when serve has work
// Time until brim_lab_server_serve has to be called even if the descriptor is not readable; -1: no
// limit.
int brim_lab_server_wait_ms(const brim_lab_server *server);
// Accepts, reads, answers and writes as much as possible without waiting; each call does a bounded
// amount. An error of one client ends only that connection. BRIM_ENOMEM, BRIM_EIO: the server's own
// descriptors failed; call again later.
brim_status brim_lab_server_serve(brim_lab_server *server);
int brim_lab_server_connections(const brim_lab_server *server);

//---------------------------------- connecting ----------------------------------

// Contents of sweep.json.
typedef struct brim_lab_sweep_info {
  char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
  int64_t pid;
} brim_lab_sweep_info;

// Reads sweep.json. BRIM_ENOENT: there is none, or it does not name a socket.
brim_status brim_lab_socket_read(const char *folder, brim_lab_sweep_info *out);
// Opens a connection that does not block. BRIM_ENOENT: no process listens. BRIM_EIO: the process did
// not accept in time, or this user may not connect.
brim_status brim_lab_socket_connect(const brim_lab_sweep_info *info, int64_t timeout_ms, int *fd);

#endif  // BRIM_LAB_WIRE_SERVER_H_
