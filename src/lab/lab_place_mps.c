// A shell keeps the daemon: it starts it in the foreground, waits for the end of a pipe that the
// sweep and its executors hold, and then makes the daemon quit.
#include "lab/lab_place_mps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

enum { START_MS = 10000, FOLDER_BYTES = 96, LINE_BYTES = 160 };

struct brim_lab_mps {
  brim_child *child;
  int fd;  // of the pipe's writing end
  int64_t since_ms;
  brim_lab_mps_state state;
  char folder[FOLDER_BYTES];
  char line[LINE_BYTES];
};

// $1 the program, $2 the folder; descriptor 3 is the pipe. The daemon that does not quit is killed.
// Its output goes to a file: what the sweep reads ends with the sweep, and a write there would kill it.
static const char KEEPER[] =
    "exec 2>/dev/null\n"
    "\"$1\" -f 3<&- >\"$2/brim-log/daemon.txt\" 2>&1 & d=$!\n"
    "( cat <&3 >/dev/null; exec 3<&-\n"
    "  echo quit | \"$1\" >/dev/null & q=$!\n"
    "  for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 $d || break; sleep 0.5; done\n"
    "  kill -9 $d $q ) >/dev/null & w=$!\n"
    "exec 3<&-\n"
    "trap : TERM INT HUP\n"
    "while kill -0 $d; do wait $d; done\n"
    "kill $w\n"
    "m=$(tail -n 1 \"$2/brim-log/daemon.txt\")\n"
    "rm -rf \"$2\"\n"
    "echo \"$m\"\n";

static brim_status keep_line(void *ctx, const brim_child_line *line) {
  brim_lab_mps *mps = (brim_lab_mps *)ctx;
  if (line->size > 0) snprintf(mps->line, sizeof mps->line, "%s", line->text);
  brim_utf8_trim(mps->line);
  return BRIM_OK;
}

// A name that no other has: the one before may still be ending.
static brim_status make_folder(brim_lab_mps *mps, const char *parent) {
  char path[FOLDER_BYTES + 16];
  int n = snprintf(mps->folder, sizeof mps->folder, "%s/brim-mps-XXXXXX", parent);
  // the longest socket in it is /control_privileged, and a socket's name has 107 bytes at most
  if (n + (int)sizeof "/control_privileged" > 107) {
    mps->folder[0] = '\0';
    return brim_fail(BRIM_EUNSUPPORTED, "the name of the folder %s is too long for a socket",
                     parent);
  }
  BRIM_TRY(brim_fs_mkdirs(parent));
  bool made = mkdtemp(mps->folder) != NULL;  // 0700
  // not "log": the daemon has a socket of that name
  snprintf(path, sizeof path, "%s/brim-log", mps->folder);
  if (made && mkdir(path, 0700) == 0) return BRIM_OK;
  return brim_fail(brim_errno_status(errno), "cannot create the folder %s: %s", mps->folder,
                   brim_errno_text(errno));
}

static brim_status start_child(brim_lab_mps *mps, const char *program, const char *uuid) {
  char pipe_dir[160], log_dir[160], visible[160];
  snprintf(pipe_dir, sizeof pipe_dir, "CUDA_MPS_PIPE_DIRECTORY=%s", mps->folder);
  snprintf(log_dir, sizeof log_dir, "CUDA_MPS_LOG_DIRECTORY=%s/brim-log", mps->folder);
  snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", uuid);
  const char *env[] = {pipe_dir, log_dir, visible, "CUDA_DEVICE_ORDER=PCI_BUS_ID", NULL};
  const char *argv[] = {"sh", "-c", KEEPER, "brim-mps", program, mps->folder, NULL};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return brim_fail(BRIM_ELIMIT, "cannot create a pipe: %s", brim_errno_text(errno));
  }
  mps->fd = ends[1];
  brim_child_options options = {.argv = argv,
                                .env_change = env,
                                .out = BRIM_CHILD_PIPE,
                                .err = BRIM_CHILD_MERGE,
                                .pass_fds = ends,
                                .pass_count = 1,
                                .on_line = keep_line,
                                .ctx = mps};
  brim_status status = brim_child_start(&options, &mps->child);
  close(ends[0]);
  return status;
}

// By the PATH, as the shell will look.
static bool is_program(const char *program) {
  if (strchr(program, '/')) return access(program, X_OK) == 0;
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t n = strcspn(path, ":");
    char name[1024];
    int size = snprintf(name, sizeof name, "%.*s/%s", (int)n, path, program);
    if (size > 0 && size < (int)sizeof name && access(name, X_OK) == 0) return true;
    path += n + (path[n] == ':');
  }
  return false;
}

brim_status brim_lab_mps_start(const char *program, const char *parent, const char *uuid,
                               int64_t now_ms, brim_lab_mps **out) {
  *out = NULL;
  if (!is_program(program)) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s is not installed", program);
  }
  brim_lab_mps *mps = (brim_lab_mps *)brim_calloc(1, sizeof *mps);
  if (!mps) return brim_fail(BRIM_ENOMEM, "out of memory for MPS");
  mps->fd = -1;
  mps->since_ms = now_ms;
  brim_status status = make_folder(mps, parent);
  if (!status) status = start_child(mps, program, uuid);
  if (status) {
    brim_lab_mps_stop(mps);
    return status;
  }
  *out = mps;
  return BRIM_OK;
}

brim_lab_mps_state brim_lab_mps_update(brim_lab_mps *mps, int64_t now_ms) {
  char path[FOLDER_BYTES + 16];
  bool ended = false;
  if (mps->state == BRIM_LAB_MPS_FAILED) return mps->state;
  if (brim_child_poll(mps->child, &ended) || ended) mps->state = BRIM_LAB_MPS_FAILED;
  if (mps->state != BRIM_LAB_MPS_STARTING) return mps->state;
  snprintf(path, sizeof path, "%s/control", mps->folder);
  if (brim_fs_exists(path)) {
    mps->state = BRIM_LAB_MPS_READY;
  } else if (now_ms - mps->since_ms >= START_MS) {
    mps->state = BRIM_LAB_MPS_FAILED;
  }
  return mps->state;
}

const char *brim_lab_mps_pipe(const brim_lab_mps *mps) { return mps->folder; }
const char *brim_lab_mps_error(const brim_lab_mps *mps) { return mps->line; }
int64_t brim_lab_mps_pid(const brim_lab_mps *mps) { return brim_child_pid(mps->child); }
int brim_lab_mps_fd(const brim_lab_mps *mps) { return mps->fd; }

void brim_lab_mps_stop(brim_lab_mps *mps) {
  if (!mps) return;
  if (mps->fd >= 0) close(mps->fd);
  brim_child_detach(mps->child);
  brim_free(mps);
}
