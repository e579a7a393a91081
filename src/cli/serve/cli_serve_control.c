// Files of a server that only its owner may read: the token of its worker, and how commands reach it.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/serve/cli_serve.h"

enum { PRIVATE_MAX = 4096 };

// A new file takes the name: what stood there may be a link, or have an owner or readers of its own.
brim_status brim_cli_write_private(const char *path, const char *text) {
  brim_str temp;
  brim_str_init(&temp);
  brim_str_printf(&temp, "%s" BRIM_FS_TEMP_MARK "%ld.0", path, (long)getpid());
  brim_status status = brim_str_status(&temp);
  if (!status) {
    (void)unlink(temp.data);
    int fd = open(temp.data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t size = strlen(text);
    bool good = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, size) == (ssize_t)size &&
                fsync(fd) == 0 && rename(temp.data, path) == 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && !good) (void)unlink(temp.data);
    if (!good) status = brim_fail(BRIM_EIO, "cannot write %s: %s", path, strerror(error));
  }
  brim_str_deinit(&temp);
  return status;
}

void brim_cli_warn_readable(const char *path) {
  struct stat st;
  if (!path || stat(path, &st) != 0 || (st.st_mode & 077) == 0) return;
  brim_log_warn("serve", "other users can read or write %s; run chmod 600 %s", path, path);
}

// A file that others could write would let them choose the token.
brim_status brim_cli_read_private(const char *path, char **out) {
  struct stat st;
  char text[PRIVATE_MAX];
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  *out = NULL;
  if (fd < 0) {
    return brim_fail(errno == ENOENT ? BRIM_ENOENT : BRIM_EIO, "cannot open %s: %s", path,
                     strerror(errno));
  }
  bool own = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
             (st.st_mode & 077) == 0;
  ssize_t n = own ? read(fd, text, sizeof text - 1) : -1;
  close(fd);
  if (!own) {
    return brim_fail(BRIM_EINVAL,
                     "%s is not trusted: it must be a file of yours that others can neither read "
                     "nor write; remove it",
                     path);
  }
  if (n < 0) return brim_fail(BRIM_EIO, "cannot read %s", path);
  text[n] = '\0';
  *out = brim_strdup(text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", path);
}

static char *path_in(const char *folder) { return brim_fs_join(folder, "serve.json"); }

brim_status brim_cli_control_write(const char *folder, const brim_cli_control *control) {
  char *path = path_in(folder), *text = NULL;
  json_t *o = json_object();
  brim_status s = path ? brim_json_put(o, "url", json_string(control->url))
                       : brim_fail(BRIM_ENOMEM, "out of memory while starting the server");
  if (!s) s = brim_json_put(o, "pin", json_string(control->pin));
  if (!s) s = brim_json_put(o, "token", json_string(control->token));
  if (!s) s = brim_json_dump(o, 0, &text);
  if (!s) s = brim_cli_write_private(path, text);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return s;
}

static void copy(const json_t *o, const char *key, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(o, key));
  snprintf(out, size, "%s", text ? text : "");
}

brim_status brim_cli_control_read(const char *folder, brim_cli_control *out) {
  char *path = path_in(folder), *text = NULL;
  json_t *o = NULL;
  memset(out, 0, sizeof *out);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while reading a file");
  brim_status status = brim_cli_read_private(path, &text);
  if (status == BRIM_ENOENT) {
    status = brim_fail(BRIM_EEXIST, "another program has the store %s open, and it is no server",
                       folder);
  }
  if (!status) status = brim_json_parse(text, strlen(text), path, &o);
  copy(o, "url", out->url, sizeof out->url);
  copy(o, "pin", out->pin, sizeof out->pin);
  copy(o, "token", out->token, sizeof out->token);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

void brim_cli_control_remove(const char *folder) {
  char *path = brim_store_is_url(folder) ? NULL : path_in(folder);
  if (path) (void)unlink(path);
  brim_free(path);
}
