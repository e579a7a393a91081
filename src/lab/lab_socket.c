// Paths, the listening socket and the connection.
#include "lab/lab_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_status.h"
#include "base/base_xxh64.h"
#include "lab/lab_server.h"

enum { BACKLOG = 128, SWEEP_FILE_MAX = 64 << 10, RETRY_MS = 20 };

static int new_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool set_address(const char *path, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  size_t n = strlen(path);
  if (n == 0 || n >= sizeof out->sun_path) return false;
  memcpy(out->sun_path, path, n + 1);
  return true;
}

// 0, or an errno.
static int listen_at(const char *path, int *out) {
  struct sockaddr_un address;
  if (!set_address(path, &address)) return ENAMETOOLONG;
  int fd = new_socket();
  if (fd < 0) return errno;
  // The mode is the socket's before it has a name: no moment in which others may connect.
  int err = fchmod(fd, 0600) != 0 ? errno : 0;
  struct stat st;
  if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) unlink(path);
  if (!err && bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) err = errno;
  if (!err && listen(fd, BACKLOG) != 0) err = errno;
  if (err) {
    close(fd);
    return err;
  }
  *out = fd;
  return 0;
}

// A folder that only this user can enter: /tmp is everyone's.
static bool is_private(const char *folder) {
  struct stat st;
  return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
         (st.st_mode & 077) == 0;
}

static bool short_path(const char *folder, char out[BRIM_LAB_PATH]) {
  brim_xxh64 sum;
  brim_xxh64_init(&sum);
  brim_xxh64_update(&sum, folder, strlen(folder));
  unsigned long long hash = brim_xxh64_value(&sum);
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  int n = 0;
  if (runtime && *runtime == '/' && is_private(runtime)) {
    n = snprintf(out, BRIM_LAB_PATH, "%s/brim-%016llx.sock", runtime, hash);
    if (n > 0 && n < BRIM_LAB_PATH) return true;
  }
  char shared[64];
  snprintf(shared, sizeof shared, "/tmp/brim-%u", (unsigned)geteuid());
  if (mkdir(shared, 0700) != 0 && errno != EEXIST) return false;
  if (!is_private(shared)) return false;
  snprintf(out, BRIM_LAB_PATH, "%s/%016llx.sock", shared, hash);
  return true;
}

// The path stands in sweep.json, for processes in other folders: absolute, and UTF-8.
static int listen_for(const char *folder, int *fd, char path[BRIM_LAB_PATH]) {
  int n = snprintf(path, BRIM_LAB_PATH, "%s/" BRIM_LAB_SOCKET_FILE, folder);
  bool fits = n > 0 && n < BRIM_LAB_PATH && brim_utf8_valid(path, (size_t)n);
  int err = fits ? listen_at(path, fd) : ENAMETOOLONG;
  return err && short_path(folder, path) ? listen_at(path, fd) : err;
}

brim_status brim_lab_socket_listen(const char *folder, int *fd, char path[BRIM_LAB_PATH]) {
  char *real = realpath(folder, NULL);
  int err = real ? listen_for(real, fd, path) : errno;
  free(real);
  if (!err) return BRIM_OK;
  return brim_fail(brim_errno_status(err), "cannot make the sweep's socket in %s: %s", folder,
                   brim_errno_text(err));
}

static brim_status put_info(json_t *o, const char *path, const char *version) {
  char started[32];
  brim_clock_iso8601(brim_clock_wall_s(), started);
  BRIM_TRY(brim_json_put(o, "pid", json_integer(getpid())));
  BRIM_TRY(brim_json_put(o, "socket", json_string(path)));
  BRIM_TRY(brim_json_put(o, "started", json_string(started)));
  return brim_json_put(o, "version", json_string(version));
}

brim_status brim_lab_socket_announce(const char *folder, const char *path, const char *version) {
  brim_json_setup();
  json_t *o = json_object();
  char *text = NULL, *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  brim_status status = file ? put_info(o, path, version) : brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) status = brim_json_dump(o, 2, &text);
  if (!status) status = brim_fs_write(file, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(file);
  return status;
}

brim_status brim_lab_socket_read(const char *folder, brim_lab_sweep_info *out) {
  *out = (brim_lab_sweep_info){0};
  char *text = NULL, *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  if (!file) return brim_fail(BRIM_ENOMEM, "out of memory for a socket");
  size_t size = 0;
  json_t *o = NULL;
  brim_status status = brim_fs_read(file, SWEEP_FILE_MAX, &text, &size);
  if (!status) status = brim_json_parse(text, size, file, &o);
  brim_free(text);
  brim_free(file);
  const char *path = json_string_value(json_object_get(o, "socket"));
  bool good = path && *path && strlen(path) < sizeof out->socket;
  if (good) {
    snprintf(out->socket, sizeof out->socket, "%s", path);
    out->pid = json_integer_value(json_object_get(o, "pid"));
  }
  json_decref(o);
  if (good || status == BRIM_ENOMEM) return status;
  return brim_fail(BRIM_ENOENT, "no sweep runs in %s", folder);
}

brim_status brim_lab_socket_check(const char *folder) {
  brim_lab_sweep_info info;
  brim_status status = brim_lab_socket_read(folder, &info);
  if (status != BRIM_ENOENT) return status;
  char *file = brim_fs_join(folder, BRIM_LAB_SWEEP_FILE);
  bool there = file && brim_fs_exists(file);
  status = !file ? brim_fail(BRIM_ENOMEM, "out of memory for a socket")
           : there
               ? brim_fail(BRIM_EINVAL,
                           "%s was not written by brim sweep, which needs the name; move the file "
                           "away, or choose another folder with --output-dir",
                           file)
               : BRIM_OK;
  brim_free(file);
  if (!status) brim_status_clear();
  return status;
}

static brim_status refused(const brim_lab_sweep_info *info, int err) {
  if (err == ECONNREFUSED || err == ENOENT) {
    return brim_fail(BRIM_ENOENT, "no sweep listens at %s", info->socket);
  }
  return brim_fail(BRIM_EIO, "cannot reach the sweep of process %lld: %s", (long long)info->pid,
                   brim_errno_text(err));
}

brim_status brim_lab_socket_connect(const brim_lab_sweep_info *info, int64_t timeout_ms, int *out) {
  struct sockaddr_un address;
  if (!set_address(info->socket, &address)) return refused(info, ENOENT);
  int fd = new_socket();
  if (fd < 0) return refused(info, errno);
  brim_time start = brim_clock_now();
  int err = 0;
  for (;;) {
    err = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    // EAGAIN: the queue of connections is full. Nothing says when it is not: ask again.
    int64_t waited_ms = brim_time_since_ns(start, brim_clock_now()) / 1000000;
    if ((err != EAGAIN && err != EINTR) || waited_ms >= timeout_ms) break;
    brim_clock_sleep_ns((int64_t)RETRY_MS * 1000000);
  }
  if (!err || err == EISCONN) {
    *out = fd;
    return BRIM_OK;
  }
  close(fd);
  return refused(info, err);
}
