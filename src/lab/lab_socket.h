// Where the socket of a sweep lies, and sweep.json, which says so. For the server and the link.
#ifndef BRIM_LAB_SOCKET_H_
#define BRIM_LAB_SOCKET_H_

#include <stdint.h>
#include <sys/un.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_LAB_PATH = sizeof(((struct sockaddr_un *)0)->sun_path) };

typedef struct brim_lab_sweep_info {
  char socket[BRIM_LAB_PATH];
  int64_t pid;
} brim_lab_sweep_info;

// A listening socket of mode 0600 that does not block and closes on exec, and its path. The caller
// holds the folder's lock: a socket that is there already is stale.
brim_status brim_lab_socket_listen(const char *folder, int *fd, char path[BRIM_LAB_PATH]);
brim_status brim_lab_socket_announce(const char *folder, const char *path, const char *version);
// What sweep.json says. BRIM_ENOENT: there is none, or it is of something else.
brim_status brim_lab_socket_read(const char *folder, brim_lab_sweep_info *out);
// A connection that does not block. BRIM_ENOENT: no process listens there; BRIM_EIO: it does not
// accept in time, or may not be reached.
brim_status brim_lab_socket_connect(const brim_lab_sweep_info *info, int64_t timeout_ms, int *fd);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_SOCKET_H_
