// Files of `brim top`: a JSON line per reading (--record), or CSV rows (--csv). They are appended to
// with one write per reading, so that a kill never tears a line. A full disk does: what continues such a
// file begins a line of its own. A file that brim top did not write is left alone.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_stop.h"
#include "cli/top/cli_top.h"
#include "ui/ui_top.h"

static brim_status cannot_write(const brim_cli_top_file *file, brim_status status, int error) {
  return brim_fail(status, "cannot write %s: %s", file->path, brim_errno_text(error));
}

//---------------------------------- earlier content ----------------------------------

// The beginning of a file as JSON, without the spaces that other programs put between.
static bool is_recording(const char *text, size_t size) {
  static const char head[] = "{\"schema\":\"" BRIM_TOP_SCHEMA "\"";
  size_t at = 0;
  for (size_t i = 0; i < size && head[at]; i++) {
    if (text[i] == ' ') continue;
    if (text[i] != head[at++]) return false;
  }
  return true;  // or it was cut off within these
}

static brim_status is_table(const char *text, size_t size, bool *out) {
  brim_str header;
  brim_str_init(&header);
  brim_status status = brim_ui_top_csv_header(&header);
  *out = !status && size >= header.len && memcmp(text, header.data, header.len) == 0;
  brim_str_deinit(&header);
  return status;
}

static brim_status check_content(brim_cli *cli, const brim_cli_top_file *file, const char *text,
                                 size_t size) {
  bool known = true;
  if (file->csv) {
    BRIM_TRY(is_table(text, size, &known));
  } else {
    known = is_recording(text, size);
  }
  if (known) return BRIM_OK;
  return brim_cli_usage(
      cli,
      file->csv ? BRIM_N_("%s is no CSV file with the columns of brim top; name another file")
                : BRIM_N_("%s is no recording of brim top; name another file"),
      file->path);
}

brim_status brim_cli_top_file_check(brim_cli *cli, brim_cli_top_file *file) {
  char text[16 << 10], last = '\n';
  struct stat info;
  if (!file->path || strcmp(file->path, "-") == 0) return BRIM_OK;
  if (stat(file->path, &info) || !S_ISREG(info.st_mode) || info.st_size == 0) return BRIM_OK;
  int fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return brim_fail(BRIM_EINVAL, "cannot read %s: %s", file->path, brim_errno_text(errno));
  }
  ssize_t n = pread(fd, text, sizeof text, 0);
  ssize_t m = pread(fd, &last, 1, info.st_size - 1);
  int error = errno;
  close(fd);
  if (n < 0 || m < 0) {
    return brim_fail(BRIM_EINVAL, "cannot read %s: %s", file->path, brim_errno_text(error));
  }
  file->torn = last != '\n';
  return check_content(cli, file, text, (size_t)n);
}

//---------------------------------- writing ----------------------------------

brim_status brim_cli_top_file_open(brim_cli_top_file *file) {
  struct stat info;
  file->fd = -1;
  if (!file->path || strcmp(file->path, "-") == 0) return BRIM_OK;
  file->fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file->fd < 0) return cannot_write(file, BRIM_EINVAL, errno);
  // A file that has rows has its header.
  file->started = fstat(file->fd, &info) == 0 && info.st_size > 0;
  return BRIM_OK;
}

// A pipe that is full is waited for; once the user has long asked to stop, no more.
static bool wait_for_room(const brim_cli_top_file *file, brim_stop_wait *wait) {
  struct pollfd room = {.fd = file->fd, .events = POLLOUT};
  (void)poll(&room, 1, BRIM_STOP_LOOK_MS);
  return !brim_stop_overdue(wait);
}

static brim_status write_all(const brim_cli_top_file *file, const char *data, size_t size) {
  brim_stop_wait wait = {0};
  while (size > 0) {
    ssize_t n = write(file->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (wait_for_room(file, &wait)) continue;
      return cannot_write(file, BRIM_EIO, EAGAIN);
    }
    if (n <= 0) return cannot_write(file, BRIM_EIO, n < 0 ? errno : ENOSPC);
    data += n;
    size -= (size_t)n;
  }
  return BRIM_OK;
}

static brim_status make_text(brim_cli_top_file *file, const brim_top_view *view, brim_str *out) {
  if (file->csv) {
    if (!file->started) BRIM_TRY(brim_ui_top_csv_header(out));
    return brim_ui_top_csv_rows(view, out);
  }
  json_t *json = NULL;
  char *text = NULL;
  BRIM_TRY(brim_top_view_to_json(view, &json));
  brim_status status = brim_json_dump(json, 0, &text);
  json_decref(json);
  BRIM_TRY(status);
  brim_str_append(out, text);
  brim_str_append_char(out, '\n');
  brim_free(text);
  return brim_str_status(out);
}

brim_status brim_cli_top_file_add(brim_cli *cli, brim_cli_top_file *file,
                                  const brim_top_view *view) {
  brim_str text;
  if (!file->path) return BRIM_OK;
  brim_str_init(&text);
  if (file->torn) brim_str_append_char(&text, '\n');
  file->torn = false;
  brim_status status = make_text(file, view, &text);
  if (!status && file->fd >= 0) {
    status = write_all(file, text.data, text.len);
  } else if (!status) {
    brim_cli_print(cli, &text);
  }
  file->started = true;
  brim_str_deinit(&text);
  return status;
}

brim_status brim_cli_top_file_close(brim_cli_top_file *file) {
  int fd = file->fd;
  file->fd = -1;
  if (fd < 0) return BRIM_OK;
  return close(fd) ? cannot_write(file, BRIM_EIO, errno) : BRIM_OK;
}
