// Placement (lab_place.h): GPUs and the processes on them, the number of experiments that share a GPU,
// and the choice of a place for a queued experiment.
#include "lab/place/lab_place.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/place/lab_place_int.h"

//------------------------------------------ packing ---------------------------------------------
// Measures joint throughput in windows and climbs to the best limit (lab_place_int.h).

static const double PAYING_RATIO = 1.05;
// A slow experiment extends a window to at most this many times its length.
enum { WAIT_FACTOR = 4 };

//---------------------------------- windows ----------------------------------

static brim_lab_pack_kind *kind_of(brim_lab_pack_window *w, uint64_t kind) {
  for (size_t i = 0; i < w->kind_count; i++) {
    if (w->kinds[i].kind == kind) return &w->kinds[i];
  }
  if (w->kind_count == BRIM_LAB_PACK_KINDS) return NULL;
  brim_lab_pack_kind *k = &w->kinds[w->kind_count++];
  *k = (brim_lab_pack_kind){.kind = kind};
  return k;
}

static void advance_time(brim_lab_pack *pack, int64_t now_ms) {
  if (now_ms > pack->now_ms) {
    if (pack->phase == BRIM_LAB_PACK_WINDOW) {
      double seconds = (double)(now_ms - pack->now_ms) * 1e-3;
      pack->job_seconds += pack->jobs * seconds;
      pack->step_seconds += pack->stepping * seconds;
    }
    pack->now_ms = now_ms;
  }
}

// Adds the steps since the last report to the window, if both reports lie in it. The start of an
// experiment does not count here: mean_jobs and `stepping` show the cost of starts.
static void count_steps(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step, int64_t now_ms) {
  bool inside = pack->phase == BRIM_LAB_PACK_WINDOW && job->stepped && step >= job->step &&
                job->time_ms >= pack->trial.start_ms && now_ms > job->time_ms;
  brim_lab_pack_kind *k = inside ? kind_of(&pack->trial, job->kind) : NULL;
  if (!k) return;
  k->steps += (double)(step - job->step);
  k->seconds += (double)(now_ms - job->time_ms) * 1e-3;
}

// Mean ratio of each kind's rate to its rate in the earlier window, weighted by time. NaN: no kind ran
// in both windows.
static double rate_share(const brim_lab_pack_window *before, const brim_lab_pack_window *after) {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < after->kind_count; i++) {
    const brim_lab_pack_kind *a = &after->kinds[i], *b = NULL;
    for (size_t k = 0; k < before->kind_count; k++) {
      if (before->kinds[k].kind == a->kind) b = &before->kinds[k];
    }
    if (!b || b->seconds <= 0 || b->steps <= 0 || a->seconds <= 0) continue;
    sum += a->steps / a->seconds / (b->steps / b->seconds) * a->seconds;
    weight += a->seconds;
  }
  return weight > 0 ? sum / weight : (double)NAN;
}

static bool has_steps(const brim_lab_pack_window *w) {
  for (size_t i = 0; i < w->kind_count; i++) {
    if (w->kinds[i].steps > 0 && w->kinds[i].seconds > 0) return true;
  }
  return false;
}

//---------------------------------- the climb ----------------------------------

static void begin_warmup(brim_lab_pack *pack) {
  pack->phase = BRIM_LAB_PACK_WARM;
  pack->warm_since_ms = pack->now_ms;
  pack->peak = pack->jobs;
}

static void note_measured_kinds(brim_lab_pack *pack, const brim_lab_pack_window *w) {
  for (size_t i = 0; i < w->kind_count; i++) {
    bool known = false;
    for (size_t k = 0; k < pack->measured_kind_count; k++) {
      known |= pack->measured_kinds[k] == w->kinds[i].kind;
    }
    if (!known && pack->measured_kind_count < BRIM_LAB_PACK_KINDS) {
      pack->measured_kinds[pack->measured_kind_count++] = w->kinds[i].kind;
    }
  }
}

static void hold_limit(brim_lab_pack *pack) {
  pack->limit = pack->kept > 0 ? pack->kept : 1;
  pack->phase = BRIM_LAB_PACK_HOLD;
}

// Sets the next limit to try, or ends the climb.
static void climb(brim_lab_pack *pack) {
  if (pack->kept + pack->increment > pack->max_limit) {
    pack->increment = pack->max_limit - pack->kept;
  }
  if (pack->increment < 1) {
    hold_limit(pack);
    return;
  }
  pack->limit = pack->kept + pack->increment;
  begin_warmup(pack);
}

static void keep_limit(brim_lab_pack *pack, int reached, double gain) {
  pack->kept = reached;
  pack->base = pack->trial;
  pack->base.valid = true;
  pack->gain = pack->window_gain = gain;
}

static void evaluate(brim_lab_pack *pack) {
  brim_lab_pack_window *w = &pack->trial;
  note_measured_kinds(pack, w);
  if (!pack->base.valid) {
    int reached = (int)(w->mean_jobs + 0.5);
    double gain = reached <= 1 ? 1 : (double)NAN;
    keep_limit(pack, reached < 1 ? 1 : reached, gain);
    climb(pack);
    return;
  }
  double share = rate_share(&pack->base, w);
  double ratio = share * w->stepping / pack->base.stepping;
  if (isnan(ratio)) {  // the kinds differ from those of the base: measure again at the old limit
    pack->base.valid = false;
    pack->limit = pack->kept;
    if (++pack->restarts >= BRIM_LAB_PACK_RETRIES) {
      hold_limit(pack);
    } else {
      begin_warmup(pack);
    }
    return;
  }
  bool pays = ratio > PAYING_RATIO;
  if (pays) {
    int reached = (int)(w->mean_jobs + 0.5);
    keep_limit(pack, reached < pack->limit ? reached : pack->limit, pack->window_gain * ratio);
    pack->increment = pack->bracketed ? pack->increment / 2 : pack->increment * 2;
  } else {
    pack->bracketed = true;
    pack->increment /= 2;
  }
  climb(pack);
  if (!pays && pack->jobs > pack->limit) pack->shed = pack->jobs - pack->limit;
}

//---------------------------------- events ----------------------------------

void brim_lab_pack_init(brim_lab_pack *pack, int most, bool fixed, int64_t warmup_ms,
                        int64_t window_ms) {
  memset(pack, 0, sizeof *pack);
  pack->max_limit = most < 1 ? 1 : most;
  pack->warmup_ms = warmup_ms;
  pack->window_ms = window_ms;
  pack->limit = fixed ? pack->max_limit : 1;
  pack->kept = fixed ? pack->max_limit : 0;
  pack->increment = 1;
  pack->phase = fixed || pack->max_limit == 1 ? BRIM_LAB_PACK_HOLD : BRIM_LAB_PACK_WARM;
  pack->restarts = fixed ? BRIM_LAB_PACK_RETRIES : 0;
  pack->gain = pack->window_gain = (double)NAN;
}

// Starts the climb again if no window has measured the kind, from half of the present limit.
static void note_kind(brim_lab_pack *pack, uint64_t kind) {
  if (pack->phase != BRIM_LAB_PACK_HOLD || pack->restarts >= BRIM_LAB_PACK_RETRIES) return;
  if (pack->max_limit == 1) return;
  for (size_t i = 0; i < pack->measured_kind_count; i++) {
    if (pack->measured_kinds[i] == kind) return;
  }
  pack->restarts++;
  pack->limit = pack->limit > 1 ? pack->limit / 2 : 1;
  pack->kept = 0;
  pack->increment = pack->limit;
  pack->bracketed = false;
  pack->base.valid = false;
  begin_warmup(pack);
}

void brim_lab_pack_joined(brim_lab_pack *pack, brim_lab_pack_job *job, uint64_t kind,
                          int64_t now_ms) {
  advance_time(pack, now_ms);
  *job = (brim_lab_pack_job){.kind = kind, .time_ms = now_ms, .step = -1};
  note_kind(pack, kind);
  pack->jobs++;
  // An additional experiment changes caches, clocks and the rates of the others, so the warm-up starts
  // again. An experiment that replaces an ended one changes nothing.
  if (pack->phase == BRIM_LAB_PACK_WARM && pack->jobs > pack->peak) {
    pack->peak = pack->jobs;
    pack->warm_since_ms = now_ms;
  }
}

void brim_lab_pack_stepped(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t step,
                           int64_t now_ms) {
  advance_time(pack, now_ms);
  if (step == job->step) return;  // the same report was read again
  count_steps(pack, job, step, now_ms);
  if (!job->stepped && job->step >= 0 && step > job->step) {
    job->stepped = true;
    pack->stepping++;
  }
  job->step = step;
  job->time_ms = now_ms;
}

void brim_lab_pack_left(brim_lab_pack *pack, brim_lab_pack_job *job, int64_t now_ms) {
  advance_time(pack, now_ms);
  pack->jobs--;
  if (job->stepped) pack->stepping--;
  if (pack->shed > 0) pack->shed--;
}

static void begin_window(brim_lab_pack *pack) {
  pack->phase = BRIM_LAB_PACK_WINDOW;
  pack->job_seconds = pack->step_seconds = 0;
  pack->trial = (brim_lab_pack_window){.start_ms = pack->now_ms};
}

static void end_window(brim_lab_pack *pack) {
  double seconds = (double)(pack->now_ms - pack->trial.start_ms) * 1e-3;
  brim_lab_pack_window *w = &pack->trial;
  w->mean_jobs = seconds > 0 ? pack->job_seconds / seconds : 0;
  w->stepping = seconds > 0 ? pack->step_seconds / seconds : 0;
  // If too few experiments ran, the window shows nothing.
  double least = pack->base.valid ? pack->base.mean_jobs + 0.5 : 0.5;
  if (!has_steps(w) || w->mean_jobs < least) {
    begin_warmup(pack);
    return;
  }
  evaluate(pack);
}

// True if the counted steps cover at least half of the time in which experiments made steps, or if the
// window has lasted WAIT_FACTOR times its length.
static bool window_is_seen(const brim_lab_pack *pack) {
  double seen = 0, length = (double)(pack->now_ms - pack->trial.start_ms) * 1e-3;
  for (size_t i = 0; i < pack->trial.kind_count; i++) seen += pack->trial.kinds[i].seconds;
  return (seen > 0 && seen >= 0.5 * pack->step_seconds) ||
         length * 1e3 >= (double)pack->window_ms * WAIT_FACTOR;
}

// True if the allowed number of experiments has run for the warm-up time and most of them make steps.
static bool is_warm(brim_lab_pack *pack, bool more) {
  if (pack->jobs > pack->limit) {  // wait until the surplus has ended
    pack->peak = pack->limit;
    pack->warm_since_ms = pack->now_ms;
    return false;
  }
  int least = pack->base.valid ? pack->kept + 1 : 1;
  if (pack->peak < least || (more && pack->peak < pack->limit)) return false;
  int64_t since = pack->now_ms - pack->warm_since_ms;
  bool step = pack->stepping > 0 && 4 * pack->stepping >= 3 * pack->jobs;
  return since >= pack->warmup_ms && (step || since >= WAIT_FACTOR * pack->window_ms);
}

void brim_lab_pack_tick(brim_lab_pack *pack, int64_t now_ms, bool more) {
  advance_time(pack, now_ms);
  if (pack->jobs <= pack->limit) pack->shed = 0;
  if (pack->phase == BRIM_LAB_PACK_WARM && is_warm(pack, more)) {
    begin_window(pack);
  } else if (pack->phase == BRIM_LAB_PACK_WINDOW &&
             now_ms - pack->trial.start_ms >= pack->window_ms && window_is_seen(pack)) {
    end_window(pack);
  }
}

void brim_lab_pack_stop(brim_lab_pack *pack) {
  pack->max_limit = pack->limit = pack->kept = 1;
  pack->phase = BRIM_LAB_PACK_HOLD;
  pack->shed = 0;
  pack->gain = (double)NAN;
}

//---------------------------------------- the lock of a GPU ----------------------------------------
// The lock file lies in a folder that every user may write to, so other users may have put anything
// there. brim does not follow a link, never creates the file over another one, and never writes to a
// file that has foreign content, has a second name, or is no regular file.

#define MARK "brim-gpu "

static brim_status lock_path(const char *folder, const char *uuid, char *out, size_t size) {
  int n = snprintf(out, size, "%s/brim-gpu-", folder);
  size_t at = n > 0 ? (size_t)n : size;
  for (const char *c = uuid; *c && at + 6 < size; c++) {
    out[at++] = (char)(isalnum((unsigned char)*c) || *c == '-' ? *c : '_');
  }
  if (at + 6 >= size)
    return brim_fail(BRIM_EINVAL, "the name of the folder %s is too long", folder);
  memcpy(out + at, ".lock", 6);
  return BRIM_OK;
}

// Opens the lock file, and creates it only if it does not exist: in a sticky folder the kernel refuses
// O_CREAT on another user's file (fs.protected_regular).
static brim_status open_lock(const char *path, int *out) {
  for (int tries = 0; tries < 100; tries++) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
      fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
      if (fd >= 0) (void)fchmod(fd, 0666);  // all users may open it, whatever the umask
      if (fd < 0 && errno == EEXIST) continue;
    }
    if (fd < 0) {
      return brim_fail(brim_errno_status(errno), "cannot lock %s: %s", path,
                       brim_errno_text(errno));
    }
    *out = fd;
    return BRIM_OK;
  }
  return brim_fail(BRIM_EIO, "cannot lock %s: another process keeps replacing the file", path);
}

static size_t read_content(int fd, char *text, size_t size) {
  ssize_t n = pread(fd, text, size - 1, 0);
  size_t got = n > 0 ? (size_t)n : 0;
  text[got] = '\0';
  return got;
}

static void read_user(int64_t uid, char *out, size_t size) {
  struct passwd entry, *found = NULL;
  char text[2048];
  if (getpwuid_r((uid_t)uid, &entry, text, sizeof text, &found) == 0 && found) {
    snprintf(out, size, "%s", entry.pw_name);
  } else {
    snprintf(out, size, "uid %lld", (long long)uid);
  }
}

static void read_holder(int fd, brim_lab_place_holder *holder) {
  char text[640];
  memset(holder, 0, sizeof *holder);
  read_content(fd, text, sizeof text);
  if (!brim_str_starts(text, MARK)) return;
  char *end = NULL;
  holder->pid = strtoll(text + sizeof MARK - 1, &end, 10);
  if (*end != ' ') return;
  int64_t uid = strtoll(end + 1, &end, 10);
  read_user(uid, holder->user, sizeof holder->user);
  if (*end != ' ') return;
  end[1 + strcspn(end + 1, "\n")] = '\0';
  snprintf(holder->store, sizeof holder->store, "%s", end + 1);
}

// Opens and locks the file of a GPU, if brim wrote that file.
static brim_status lock_gpu_file(const char *folder, const char *uuid, int how, int *out,
                                 brim_lab_place_holder *holder) {
  char path[512], text[16];
  struct stat about, named;
  int fd = -1, rc;
  memset(holder, 0, sizeof *holder);
  BRIM_TRY(lock_path(folder, uuid, path, sizeof path));
  BRIM_TRY(open_lock(path, &fd));
  brim_status status = BRIM_OK;
  bool ours = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 1;
  if (ours && read_content(fd, text, sizeof text) > 0) ours = brim_str_starts(text, MARK);
  if (!ours) {
    status = brim_fail(BRIM_EINVAL,
                       "%s was not written by brim, and brim needs a lock of this name; move the "
                       "file away",
                       path);
    goto fail;
  }
  do {
    rc = flock(fd, how | LOCK_NB);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0 && errno == EWOULDBLOCK) {
    read_holder(fd, holder);
    status = brim_fail(BRIM_EEXIST, "another process holds %s", path);
    goto fail;
  }
  if (rc != 0) {
    status =
        brim_fail(brim_errno_status(errno), "cannot lock %s: %s", path, brim_errno_text(errno));
    goto fail;
  }
  // A program that cleans the folder may have removed the file meanwhile. The next call then makes a
  // new one.
  bool same = fstat(fd, &about) == 0 && lstat(path, &named) == 0 && about.st_dev == named.st_dev &&
              about.st_ino == named.st_ino;
  if (!same) {
    status = brim_fail(BRIM_EIO, "%s was removed", path);
    goto fail;
  }
  *out = fd;
  return BRIM_OK;

fail:
  close(fd);
  return status;
}

brim_status brim_lab_place_lock(const char *folder, const char *uuid, const char *store, int *fd,
                                brim_lab_place_holder *holder) {
  char text[640];
  *fd = -1;
  BRIM_TRY(lock_gpu_file(folder, uuid, LOCK_EX, fd, holder));
  int n =
      snprintf(text, sizeof text, MARK "%ld %ld %.511s\n", (long)getpid(), (long)getuid(), store);
  // Naming the holder is optional: the lock holds without the text.
  if (ftruncate(*fd, 0) == 0 && n > 0) (void)!pwrite(*fd, text, (size_t)n, 0);
  return BRIM_OK;
}

brim_status brim_lab_place_lock_probe(const char *folder, const char *uuid,
                                      brim_lab_place_holder *holder) {
  int fd = -1;
  // A shared lock lets two sweeps probe at the same time.
  BRIM_TRY(lock_gpu_file(folder, uuid, LOCK_SH, &fd, holder));
  close(fd);
  return BRIM_OK;
}

void brim_lab_place_lock_touch(int fd) {
  if (fd >= 0) (void)futimens(fd, NULL);
}

//--------------------------------------------- MPS ---------------------------------------------
// NVIDIA's Multi-Process Service for one GPU: several experiments compute at the same time instead of
// taking turns. The control daemon runs in a private folder, so other users do not see it. The daemon
// lives while any process holds its descriptor: the sweep, and the executors that inherited it. It
// never outlives them, even if they are killed.

typedef enum brim_lab_mps_state {
  BRIM_LAB_MPS_STARTING,
  BRIM_LAB_MPS_READY,
  BRIM_LAB_MPS_FAILED,  // the daemon ended, or did not answer within 10 s
  BRIM_LAB_MPS_STATE_COUNT
} brim_lab_mps_state;

enum { MPS_START_MS = 10000, MPS_FOLDER_BYTES = 96, MPS_LINE_BYTES = 160 };

typedef struct brim_lab_mps {
  brim_child *child;
  int fd;  // writing end of the pipe
  int64_t since_ms;
  brim_lab_mps_state state;
  char folder[MPS_FOLDER_BYTES];
  char line[MPS_LINE_BYTES];
} brim_lab_mps;

// A shell script controls the daemon. It starts the daemon in the foreground, waits until the sweep and
// its executors have closed the pipe, and then tells the daemon to quit, or kills it. $1 is the
// program, $2 the folder, descriptor 3 the pipe. The daemon writes to a file: a pipe to the sweep would
// break when the sweep ends and kill the daemon.
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
  brim_lab_mps *mps = ctx;
  if (line->size > 0) snprintf(mps->line, sizeof mps->line, "%s", line->text);
  brim_utf8_trim(mps->line);
  return BRIM_OK;
}

// Makes a folder with a fresh name, since an earlier daemon may still be ending.
static brim_status make_mps_folder(brim_lab_mps *mps, const char *parent) {
  char path[MPS_FOLDER_BYTES + 16];
  int n = snprintf(mps->folder, sizeof mps->folder, "%s/brim-mps-XXXXXX", parent);
  // The longest socket name in it is /control_privileged, and a socket's path has 107 bytes at most.
  if (n + (int)sizeof "/control_privileged" > 107) {
    mps->folder[0] = '\0';
    return brim_fail(BRIM_EUNSUPPORTED, "the name of the folder %s is too long for a socket",
                     parent);
  }
  BRIM_TRY(brim_fs_mkdirs(parent));
  bool made = mkdtemp(mps->folder) != NULL;  // with mode 0700
  // The name cannot be "log", which is a socket of the daemon.
  snprintf(path, sizeof path, "%s/brim-log", mps->folder);
  if (made && mkdir(path, 0700) == 0) return BRIM_OK;
  return brim_fail(brim_errno_status(errno), "cannot create the folder %s: %s", mps->folder,
                   brim_errno_text(errno));
}

static brim_status start_daemon(brim_lab_mps *mps, const char *program, const char *uuid) {
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

// Looks for the program in PATH, as the shell will.
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

// Closes the descriptor: the daemon ends with the last executor. Does not wait. NULL is fine.
static void mps_stop(brim_lab_mps *mps) {
  if (!mps) return;
  if (mps->fd >= 0) close(mps->fd);
  brim_child_detach(mps->child);
  brim_free(mps);
}

// Starts the daemon in a new folder (0700) inside `parent`. BRIM_EUNSUPPORTED: the program is not
// installed, or the folder's name is too long for a socket.
static brim_status mps_start(const char *program, const char *parent, const char *uuid,
                             int64_t now_ms, brim_lab_mps **out) {
  *out = NULL;
  if (!is_program(program)) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s is not installed", program);
  }
  brim_lab_mps *mps = brim_calloc(1, sizeof *mps);
  if (!mps) return brim_fail(BRIM_ENOMEM, "out of memory for MPS");
  mps->fd = -1;
  mps->since_ms = now_ms;
  brim_status status = make_mps_folder(mps, parent);
  if (!status) status = start_daemon(mps, program, uuid);
  if (status) {
    mps_stop(mps);
    return status;
  }
  *out = mps;
  return BRIM_OK;
}

static brim_lab_mps_state mps_update(brim_lab_mps *mps, int64_t now_ms) {
  char path[MPS_FOLDER_BYTES + 16];
  bool ended = false;
  if (mps->state == BRIM_LAB_MPS_FAILED) return mps->state;
  if (brim_child_poll(mps->child, &ended) || ended) mps->state = BRIM_LAB_MPS_FAILED;
  if (mps->state != BRIM_LAB_MPS_STARTING) return mps->state;
  snprintf(path, sizeof path, "%s/control", mps->folder);
  if (brim_fs_exists(path)) {
    mps->state = BRIM_LAB_MPS_READY;
  } else if (now_ms - mps->since_ms >= MPS_START_MS) {
    mps->state = BRIM_LAB_MPS_FAILED;
  }
  return mps->state;
}

// For the executors' CUDA_MPS_PIPE_DIRECTORY.
static const char *mps_pipe(const brim_lab_mps *mps) { return mps->folder; }
// The last line that the daemon printed; "" = none.
static const char *mps_error(const brim_lab_mps *mps) { return mps->line; }
// The daemon and its server descend from this process.
static int64_t mps_pid(const brim_lab_mps *mps) { return brim_child_pid(mps->child); }
// Executors inherit this descriptor, which keeps the daemon alive.
static int mps_fd(const brim_lab_mps *mps) { return mps->fd; }

//--------------------------------------------- types ---------------------------------------------

enum {
  BRIM_LAB_PLACE_EXP = 40,        // bytes of an id
  BRIM_LAB_PLACE_SEEN = 128,      // processes remembered in each list of a GPU
  BRIM_LAB_PLACE_FAILURES = 3,    // failed experiments in a row that take a GPU out of service
  BRIM_LAB_PLACE_REMEMBERED = 64  // failed experiments remembered, with their GPUs
};

typedef struct brim_lab_place_job {
  char exp[BRIM_LAB_PLACE_EXP];
  int64_t pid;  // process id of the executor; 0 = not started
  bool cpu;
  int threads;
  int cards[BRIM_LAB_PLACE_K];  // indexes of its GPUs
  int card_count;
  double need_bytes;  // NaN = unknown
  double used_bytes;  // measured by the last reading; NaN = unknown
  int64_t number;     // counts experiments in the order of their starts
  brim_lab_pack_job pack;
} brim_lab_place_job;

// One GPU.
typedef struct brim_lab_place_card {
  int index;
  char uuid[BRIM_LAB_PLACE_UUID], name[64];
  bool allowed;  // options.devices names it
  // results of the last reading
  bool read, has_list;
  brim_gpu_memory memory;
  int misses, list_misses;  // failed readings in a row, after a good one
  int foreign;
  double foreign_bytes;  // NaN = some of it is unknown
  double mps_bytes;
  int leftover;  // processes that ended experiments left
  char holder[BRIM_LAB_PLACE_TEXT];
  // the lock
  int lock_fd;  // -1 = this sweep does not hold it
  int64_t touched_ms;
  bool adopted;  // executors of an earlier sweep hold the lock
  bool locked;   // the lock cannot be taken; locked_by is the reason
  char locked_by[BRIM_LAB_PLACE_TEXT];
  // its experiments
  int jobs;
  bool returning;
  int64_t returning_since_ms;
  double base_used, base_foreign, base_free;  // just before the first experiment; NaN = unknown
  // Processes before the first experiment, and processes of our experiments.
  uint32_t earlier_pids[BRIM_LAB_PLACE_SEEN], our_pids[BRIM_LAB_PLACE_SEEN];
  size_t earlier_count, our_count;
  // service
  bool out_of_service;
  char reason[BRIM_LAB_PLACE_TEXT];
  int failures;
  char failed[BRIM_LAB_PLACE_FAILURES][BRIM_LAB_PLACE_EXP];
  // several experiments at once
  bool reserved;
  bool could_join;  // the last choice left a queued experiment that fits beside these
  brim_lab_pack pack;
  bool mps_refused;
  bool mps_seen;     // the last reading listed MPS's server
  bool mps_counted;  // the baseline includes the memory of MPS's server
  brim_lab_mps *mps;
} brim_lab_place_card;

typedef struct brim_lab_place_failed {
  char exp[BRIM_LAB_PLACE_EXP];
  int card;
} brim_lab_place_failed;

struct brim_lab_place {
  brim_lab_place_options options;  // strings are in `texts`
  char *texts[8];
  bool cpu_allowed;
  int cpu_slots, cpu_taken;
  brim_lab_place_card *cards;
  int card_count;
  brim_lab_place_job *jobs;
  size_t job_count, job_room;
  int64_t next_number;
  int64_t tick_ms;  // time of the last reading
  bool ticked;
  brim_lab_place_failed failed[BRIM_LAB_PLACE_REMEMBERED];
  size_t failed_next;
};

// The devices that a text names.
typedef struct brim_lab_place_mask {
  bool cpu;
  uint64_t cards;  // bit i stands for cards[i]
} brim_lab_place_mask;

//------------------------------------------ processes ------------------------------------------
// Finds the experiment that a process belongs to, by the parents of the process in /proc.

enum { MOST_PARENTS = 64 };

// Returns the parent of a process; 0 = unknown or none.
static int64_t parent_of(const char *root, int64_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  if (!brim_machine_read_text(root, path, text, sizeof text)) return 0;
  // "71 (a name with ) and spaces) S 12 ...": the name ends at the last parenthesis.
  const char *end = strrchr(text, ')');
  if (!end || strlen(end) < 5) return 0;
  return strtoll(end + 4, NULL, 10);
}

// True if a process is one of `roots` or descends from one. *which: the index of that root. `root`
// stands in front of /proc.
static bool descends(const char *root, int64_t pid, const int64_t *roots, size_t count,
                     size_t *which) {
  for (int i = 0; i < MOST_PARENTS && pid > 1; i++) {
    for (size_t k = 0; k < count; k++) {
      if (roots[k] != pid) continue;
      *which = k;
      return true;
    }
    pid = parent_of(root, pid);
  }
  return false;
}

//--------------------------------------- names of devices ---------------------------------------
// Lists GPUs in CUDA's order, and parses texts that name devices.

static bool is_number(const char *text, int64_t *out) {
  return isdigit((unsigned char)text[0]) && brim_parse_i64(text, out);
}

// Finds the GPU that an entry of CUDA_VISIBLE_DEVICES names; < 0: no GPU or several.
static int find_listed(const brim_gpu_listed *all, size_t count, const char *entry) {
  int64_t number = 0;
  if (is_number(entry, &number)) return number < (int64_t)count ? (int)number : -1;
  if (!brim_str_starts(entry, "GPU-") && !brim_str_starts(entry, "MIG-")) return -1;
  int found = -1;
  for (size_t i = 0; i < count; i++) {
    if (!brim_str_starts(all[i].uuid, entry)) continue;
    if (found >= 0) return -1;
    found = (int)i;
  }
  return found;
}

static void add_card(brim_lab_place *place, const brim_gpu_listed *gpu) {
  for (int i = 0; i < place->card_count; i++) {
    if (strcmp(place->cards[i].uuid, gpu->uuid) == 0) return;
  }
  if (place->card_count >= BRIM_LAB_PLACE_GPUS) return;
  brim_lab_place_card *card = &place->cards[place->card_count];
  card->index = place->card_count++;
  card->lock_fd = -1;
  snprintf(card->uuid, sizeof card->uuid, "%s", gpu->uuid);
  snprintf(card->name, sizeof card->name, "%.63s", gpu->name);
}

// Reads the list as CUDA does: an entry that names no GPU ends the list.
static void add_visible(brim_lab_place *place, const brim_gpu_listed *all, size_t count) {
  const char *at = place->options.visible;
  while (*at) {
    char entry[80];
    size_t n = strcspn(at, ",");
    int size = snprintf(entry, sizeof entry, "%.*s", (int)(n < sizeof entry ? n : 0), at);
    char *start = entry;
    while (*start == ' ') start++;
    for (char *end = entry + (size > 0 ? size : 0); end > start && end[-1] == ' ';) *--end = '\0';
    int found = find_listed(all, count, start);
    if (found < 0) return;
    add_card(place, &all[found]);
    at += n + (at[n] == ',');
  }
}

// Lists the GPUs of the machine in the order and selection of CUDA_VISIBLE_DEVICES.
static brim_status list_cards(brim_lab_place *place) {
  if (!place->options.monitor) return BRIM_OK;
  brim_gpu_listed *all = NULL;
  size_t count = 0;
  brim_status status = brim_gpu_list(place->options.monitor, &all, &count);
  if (status == BRIM_EUNSUPPORTED) {
    brim_log_warn("lab", "%s", brim_status_detail());
    return BRIM_OK;
  }
  if (status) return status;
  place->cards = brim_calloc(count ? count : 1, sizeof *place->cards);
  if (!place->cards) {
    brim_free(all);
    return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  }
  if (place->options.visible) {
    add_visible(place, all, count);
  } else {
    for (size_t i = 0; i < count; i++) add_card(place, &all[i]);
  }
  brim_free(all);
  return BRIM_OK;
}

static brim_status fail_missing(const brim_lab_place *place, const char *entry) {
  if (place->card_count == 0) {
    return brim_fail(BRIM_EDEVICE,
                     "cannot use device %s: this machine has no NVIDIA GPU; run with --device cpu",
                     entry);
  }
  return brim_fail(BRIM_EDEVICE, "cannot use device %s: this machine has GPUs 0 to %d", entry,
                   place->card_count - 1);
}

static uint64_t every_card(const brim_lab_place *place) {
  return place->card_count < 64 ? ((uint64_t)1 << place->card_count) - 1 : ~(uint64_t)0;
}

static brim_status parse_entry(const brim_lab_place *place, const char *entry,
                               brim_lab_place_mask *out) {
  int64_t number = 0;
  if (strcmp(entry, "cpu") == 0 || strcmp(entry, "ref") == 0) {
    out->cpu = true;
    return BRIM_OK;
  }
  if (strcmp(entry, "auto") == 0) {
    out->cards |= every_card(place);
    out->cpu = out->cpu || place->card_count == 0;
    return BRIM_OK;
  }
  if (strcmp(entry, "cuda") == 0) {
    out->cards |= every_card(place);
    return place->card_count > 0 ? BRIM_OK : fail_missing(place, entry);
  }
  const char *digits = brim_str_starts(entry, "cuda:") ? entry + 5 : entry;
  if (is_number(digits, &number)) {
    if (number >= place->card_count) return fail_missing(place, entry);
    out->cards |= (uint64_t)1 << number;
    return BRIM_OK;
  }
  if (brim_str_starts(entry, "GPU-") || brim_str_starts(entry, "MIG-")) {
    int found = -1;
    for (int i = 0; i < place->card_count; i++) {
      if (!brim_str_starts(place->cards[i].uuid, entry)) continue;
      if (found >= 0) {
        return brim_fail(BRIM_EINVAL, "cannot use device %s: several GPUs begin with it", entry);
      }
      found = i;
    }
    if (found < 0) return fail_missing(place, entry);
    out->cards |= (uint64_t)1 << found;
    return BRIM_OK;
  }
  return brim_fail(
      BRIM_EINVAL,
      "cannot use device %s; give auto, cpu, cuda, cuda:N, N, a UUID, or a list of them", entry);
}

// Parses a list of devices. "auto" is every GPU, or the CPU if there is none.
static brim_status parse_devices(const brim_lab_place *place, const char *text,
                                 brim_lab_place_mask *out) {
  *out = (brim_lab_place_mask){0};
  const char *at = text && *text ? text : "auto";
  while (*at) {
    char entry[80];
    at += strspn(at, " ,[]");
    size_t n = strcspn(at, " ,[]");
    if (n == 0) break;
    snprintf(entry, sizeof entry, "%.*s", (int)(n < sizeof entry ? n : sizeof entry - 1), at);
    BRIM_TRY(parse_entry(place, entry, out));
    at += n;
  }
  if (!out->cpu && !out->cards) return brim_fail(BRIM_EINVAL, "the list of devices is empty");
  return BRIM_OK;
}

//--------------------------------------------- GPUs ---------------------------------------------
// Reads one GPU: finds the owners of its processes, checks that memory was returned and that the GPU
// works.

#define MIB (1024.0 * 1024.0)

enum {
  MOST_ROOTS = BRIM_LAB_PLACE_PACKED + BRIM_LAB_PLACE_GPUS + 2,
  LOST_READINGS = 3,
  TOUCH_MS = 10 * 60 * 1000
};

static brim_lab_place_state card_state(const brim_lab_place *place,
                                       const brim_lab_place_card *card) {
  if (card->out_of_service) return BRIM_LAB_PLACE_OUT;
  if (card->jobs > 0) return BRIM_LAB_PLACE_BUSY;
  if (card->returning) return BRIM_LAB_PLACE_RETURNING;
  if (card->foreign > 0 && !place->options.share) return BRIM_LAB_PLACE_FOREIGN;
  return card->locked ? BRIM_LAB_PLACE_LOCKED : BRIM_LAB_PLACE_FREE;
}

static void card_retire(brim_lab_place_card *card, const char *reason) {
  if (card->out_of_service) return;
  card->out_of_service = true;
  snprintf(card->reason, sizeof card->reason, "%s", reason);
  brim_utf8_trim(card->reason);
  brim_log_warn("lab", "GPU %d (%s) is out of service: %s", card->index, card->uuid, card->reason);
}

//---------------------------------- processes ----------------------------------

typedef struct roots {
  int64_t pid[MOST_ROOTS];
  brim_lab_place_job *job[MOST_ROOTS];  // NULL: MPS or the sweep itself
  size_t count;
  size_t mps;  // index of the first root that is no experiment
} roots;

static void add_root(roots *r, int64_t pid, brim_lab_place_job *job) {
  if (pid <= 0 || r->count == MOST_ROOTS) return;
  r->pid[r->count] = pid;
  r->job[r->count++] = job;
}

static bool job_is_on(const brim_lab_place_job *job, const brim_lab_place_card *card) {
  for (int i = 0; i < job->card_count; i++) {
    if (job->cards[i] == card->index) return true;
  }
  return false;
}

static bool has_pid(const uint32_t *list, size_t count, uint32_t pid) {
  for (size_t i = 0; i < count; i++) {
    if (list[i] == pid) return true;
  }
  return false;
}

static void remember_process(brim_lab_place_card *card, uint32_t pid) {
  if (card->our_count == BRIM_LAB_PLACE_SEEN || has_pid(card->our_pids, card->our_count, pid))
    return;
  card->our_pids[card->our_count++] = pid;
}

// In a container the driver may list even our own processes by ids that are not in our /proc. So a
// process that came after our experiment counts as the experiment's.
static bool is_presumed_ours(const brim_lab_place_card *card, const brim_gpu_process *p) {
  bool using = card->jobs > 0 || card->returning;
  return using && p->elsewhere && !has_pid(card->earlier_pids, card->earlier_count, p->pid);
}

// In such a container the first unknown process counts as MPS's server, since MPS has exactly one.
static bool is_presumed_mps(brim_lab_place_card *card, const brim_gpu_process *p) {
  if (!card->mps || card->mps_seen || !p->elsewhere) return false;
  card->mps_seen = true;
  return true;
}

static void take_process(brim_lab_place *place, brim_lab_place_card *card, const roots *r,
                         const brim_gpu_process *p) {
  size_t which = 0;
  if (descends(place->options.root, p->pid, r->pid, r->count, &which)) {
    if (which >= r->mps) {
      card->mps_seen = true;
      if (!isnan(p->bytes)) card->mps_bytes += p->bytes;
    } else {
      brim_lab_place_job *job = r->job[which];
      remember_process(card, p->pid);
      if (job && !isnan(p->bytes)) {
        job->used_bytes = (isnan(job->used_bytes) ? 0 : job->used_bytes) + p->bytes;
      }
    }
    return;
  }
  if (is_presumed_mps(card, p)) {
    if (!isnan(p->bytes)) card->mps_bytes += p->bytes;
    return;
  }
  if (has_pid(card->our_pids, card->our_count, p->pid) || is_presumed_ours(card, p)) {
    remember_process(card, p->pid);
    card->leftover++;
    return;
  }
  card->foreign_bytes += p->bytes;  // NaN makes the sum unknown
  if (!p->computes) return;         // a process without computation, such as a desktop, may stay
  if (card->foreign++ == 0) brim_gpu_process_text(p, card->holder, sizeof card->holder);
}

// Takes memory that belongs to no listed process for a foreign process, since in a container the driver
// may hide processes. A desktop may have up to 2 GiB, or an eighth of the memory.
static void look_for_hidden(brim_lab_place_card *card, const brim_gpu_process *list, size_t count) {
  double hidden = card->memory.used - card->mps_bytes;
  for (size_t i = 0; i < count; i++) hidden -= list[i].bytes;  // NaN makes `hidden` unknown
  if (card->jobs > 0 || card->returning || card->mps || card->foreign > 0) return;
  if (!(hidden > fmax(2048 * MIB, card->memory.total / 8))) return;
  char size[32];
  brim_format_bytes((uint64_t)hidden, size);
  brim_msg_format(card->holder, sizeof card->holder,
                  brim_tr("a process that the driver does not list (%s)"), size);
  card->foreign = 1;
}

// Assigns each process on a card to our experiments, to MPS, to ended experiments or to others.
static void classify(brim_lab_place *place, brim_lab_place_card *card, const brim_gpu_process *list,
                     size_t count) {
  roots r = {.count = 0};
  for (size_t i = 0; i < place->job_count; i++) {
    if (job_is_on(&place->jobs[i], card)) add_root(&r, place->jobs[i].pid, &place->jobs[i]);
  }
  r.mps = r.count;
  for (int i = 0; i < place->card_count; i++) {
    if (place->cards[i].mps) add_root(&r, mps_pid(place->cards[i].mps), NULL);
  }
  add_root(&r, (int64_t)getpid(), NULL);

  card->foreign = card->leftover = 0;
  card->mps_seen = false;
  card->foreign_bytes = card->mps_bytes = 0;
  for (size_t i = 0; i < r.count; i++) {
    if (r.job[i]) r.job[i]->used_bytes = (double)NAN;
  }
  for (size_t i = 0; i < count; i++) take_process(place, card, &r, &list[i]);
  look_for_hidden(card, list, count);
  // Forget processes that have ended, or that the driver listed for another slice of the GPU.
  if (card->jobs == 0 && !card->returning) {
    card->our_count = card->earlier_count = 0;
    for (size_t i = 0; i < count && i < BRIM_LAB_PLACE_SEEN; i++) {
      card->earlier_pids[card->earlier_count++] = list[i].pid;
    }
  }
}

// Reads NVML and /proc once.
static brim_status card_read(brim_lab_place *place, brim_lab_place_card *card) {
  brim_gpu_memory memory;
  brim_status status = brim_gpu_read_memory(place->options.monitor, card->uuid, &memory);
  if (status == BRIM_ENOMEM) return status;
  // Treat impossible readings as unknown: more free memory than in total, or more used.
  bool wrong = isnan(memory.total) || memory.total <= 0 || memory.free < 0 ||
               memory.free > memory.total || memory.used < 0 || memory.used > memory.total;
  if (wrong) memory = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
  if (status && card->read) {
    if (++card->misses == LOST_READINGS) card_retire(card, brim_status_detail());
  } else if (!status) {
    card->misses = 0;
    card->read = true;
  }
  card->memory = memory;

  brim_gpu_process *list = NULL;
  size_t count = 0;
  status = brim_gpu_read_processes(place->options.monitor, card->uuid, &list, &count);
  if (status == BRIM_ENOMEM) return status;
  // Keep the old list after a failed reading, so that a GPU in use does not look free.
  if (status && card->has_list && ++card->list_misses < LOST_READINGS) return BRIM_OK;
  card->has_list = status == BRIM_OK;
  card->list_misses = 0;
  classify(place, card, list, count);
  brim_free(list);
  return BRIM_OK;
}

//---------------------------------- locks ----------------------------------

static void text_of(char *out, size_t size, const char *fmt, ...) BRIM_PRINTF(3, 4);
static void text_of(char *out, size_t size, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(out, size, fmt, args);
  va_end(args);
  brim_utf8_trim(out);
}

static void note_lock(brim_lab_place *place, brim_lab_place_card *card, brim_status status,
                      const brim_lab_place_holder *holder) {
  card->locked = status != BRIM_OK;
  if (status == BRIM_OK) return;
  if (status != BRIM_EEXIST) {
    text_of(card->locked_by, sizeof card->locked_by, "%s", brim_status_detail());
  } else if (strcmp(holder->store, place->options.store) == 0) {
    text_of(card->locked_by, sizeof card->locked_by, "%s",
            brim_tr("an experiment of this store from before has not ended"));
  } else if (holder->pid > 0) {
    text_of(card->locked_by, sizeof card->locked_by,
            brim_tr("the sweep of %s (pid %lld, %s) uses it"), holder->store,
            (long long)holder->pid, holder->user);
  } else {
    text_of(card->locked_by, sizeof card->locked_by, "%s", brim_tr("another sweep uses it"));
  }
}

static brim_status take_lock(brim_lab_place *place, brim_lab_place_card *card) {
  brim_lab_place_holder holder;
  if (card->lock_fd >= 0) return BRIM_OK;
  brim_status status = brim_lab_place_lock(place->options.lock_dir, card->uuid,
                                           place->options.store, &card->lock_fd, &holder);
  note_lock(place, card, status, &holder);
  return status;
}

// Takes the lock and records the baseline. BRIM_EEXIST: another sweep was faster.
static brim_status card_take(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms) {
  BRIM_TRY(take_lock(place, card));
  card->touched_ms = now_ms;
  card->base_used = card->memory.used;
  card->base_free = card->memory.free;
  card->base_foreign = card->foreign_bytes;
  card->our_count = 0;
  return BRIM_OK;
}

static void release(brim_lab_place_card *card) {
  if (card->lock_fd >= 0) close(card->lock_fd);
  card->lock_fd = -1;
  card->returning = card->adopted = false;
}

//---------------------------------- memory ----------------------------------

static void check_returned(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms) {
  // Executors of an earlier sweep keep the lock until the last of them ends.
  if (card->lock_fd < 0 && take_lock(place, card) != BRIM_OK) {
    if (now_ms - card->returning_since_ms < place->options.return_ms) return;
    release(card);
    return;
  }
  // Bytes above the baseline that other processes do not explain; NaN = unknown.
  double bytes = card->memory.used - card->mps_bytes - card->base_used -
                 (card->foreign_bytes - card->base_foreign);
  // MPS's server starts after the baseline and keeps a context; later baselines include it.
  double share = card->memory.total / 256;
  double tolerance = fmax(128 * MIB, isnan(share) ? 0 : share) +
                     (card->mps && !card->mps_seen && !card->mps_counted ? 2048 * MIB : 0);
  bool returned = card->leftover == 0 && !(bytes > tolerance);
  if (returned) {
    card->mps_counted = card->mps != NULL;
    release(card);
    return;
  }
  if (now_ms - card->returning_since_ms < place->options.return_ms) return;
  char reason[BRIM_LAB_PLACE_TEXT], size[32];
  brim_format_bytes((uint64_t)(bytes > 0 ? bytes : 0), size);
  text_of(reason, sizeof reason, brim_tr("memory not returned: %s in use %lld s after the end"),
          size, (long long)((now_ms - card->returning_since_ms) / 1000));
  release(card);
  card_retire(card, reason);
}

// True if one more experiment with this need fits beside the running ones.
static bool card_fits(const brim_lab_place *place, const brim_lab_place_card *card,
                      double need_bytes) {
  double margin = fmax(512 * MIB, card->memory.total / 50);
  double planned = need_bytes;
  for (size_t i = 0; i < place->job_count; i++) {
    const brim_lab_place_job *job = &place->jobs[i];
    // A plan that is unknown makes the sum NaN. fmax ignores a NaN of used_bytes.
    if (job_is_on(job, card))
      planned += isnan(job->need_bytes) ? job->need_bytes : fmax(job->need_bytes, job->used_bytes);
  }
  // Both comparisons are false for NaN.
  return card->base_free - planned >= margin && card->memory.free - need_bytes >= margin;
}

//---------------------------------- MPS ----------------------------------

// Updates the state of MPS, and stops using it if the daemon failed.
static brim_lab_mps_state card_mps(brim_lab_place_card *card, int64_t now_ms) {
  if (!card->mps) return BRIM_LAB_MPS_FAILED;
  brim_lab_mps_state state = mps_update(card->mps, now_ms);
  if (state != BRIM_LAB_MPS_FAILED) return state;
  const char *line = mps_error(card->mps);
  if (!card->mps_refused) {
    brim_log_warn("lab", "GPU %d: MPS does not run, so experiments take turns: %s", card->index,
                  *line ? line : brim_tr("it gave no reason"));
  }
  card->mps_refused = true;
  if (card->jobs > 0) return state;  // first wait for the experiments that are its clients
  mps_stop(card->mps);
  card->mps = NULL;
  return state;
}

// Acts on the last reading: checks for returned memory, and probes the lock of an idle GPU.
static void card_update(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms) {
  if (now_ms - card->touched_ms >= TOUCH_MS) {
    brim_lab_place_lock_touch(card->lock_fd);
    card->touched_ms = now_ms;
  }
  (void)card_mps(card, now_ms);
  if (card->returning) check_returned(place, card, now_ms);
  if (card->jobs == 0 && !card->returning && card->lock_fd < 0) {
    brim_lab_place_holder holder;
    note_lock(place, card, brim_lab_place_lock_probe(place->options.lock_dir, card->uuid, &holder),
              &holder);
  }
  brim_lab_pack_tick(&card->pack, now_ms, card->could_join && !card->out_of_service);
}

//----------------------------------------- experiments -----------------------------------------
// Experiments with their places, and the failures of each GPU in a row.

static brim_lab_place_job *job_find(const brim_lab_place *place, const char *exp) {
  for (size_t i = 0; i < place->job_count; i++) {
    if (strcmp(place->jobs[i].exp, exp) == 0) return &place->jobs[i];
  }
  return NULL;
}

static brim_status job_add(brim_lab_place *place, const brim_lab_place_want *want,
                           brim_lab_place_job **out) {
  if (!want->exp || strlen(want->exp) >= BRIM_LAB_PLACE_EXP || job_find(place, want->exp)) {
    return brim_fail(BRIM_EINVAL, "experiment %s cannot be placed twice",
                     want->exp ? want->exp : "");
  }
  if (place->job_count == place->job_room) {
    size_t room = place->job_room ? place->job_room * 2 : 16;
    brim_lab_place_job *jobs = brim_realloc(place->jobs, room * sizeof *jobs);
    if (!jobs) return brim_fail(BRIM_ENOMEM, "out of memory for the running experiments");
    place->jobs = jobs;
    place->job_room = room;
  }
  brim_lab_place_job *job = &place->jobs[place->job_count++];
  *job = (brim_lab_place_job){.number = place->next_number++, .used_bytes = (double)NAN};
  job->need_bytes = want->need_bytes > 0 ? want->need_bytes : (double)NAN;
  snprintf(job->exp, sizeof job->exp, "%s", want->exp);
  *out = job;
  return BRIM_OK;
}

// Puts the job on the cards in job->cards.
static void job_join(brim_lab_place *place, brim_lab_place_job *job, uint64_t kind,
                     int64_t now_ms) {
  if (job->cpu) place->cpu_taken++;
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    card->jobs++;
    card->returning = false;
    // Packing measures single GPUs. An experiment on several GPUs shares none of them.
    if (i == 0) brim_lab_pack_joined(&card->pack, &job->pack, kind, now_ms);
  }
}

brim_status brim_lab_place_started(brim_lab_place *place, const char *exp, int64_t pid) {
  brim_lab_place_job *job = job_find(place, exp);
  if (!job) return brim_fail(BRIM_ENOENT, "experiment %s has no place", exp);
  job->pid = pid;
  return BRIM_OK;
}

void brim_lab_place_progress(brim_lab_place *place, int64_t now_ms, const char *exp, int64_t step) {
  brim_lab_place_job *job = job_find(place, exp);
  if (!job || job->card_count == 0) return;
  brim_lab_pack_stepped(&place->cards[job->cards[0]].pack, &job->pack, step, now_ms);
}

//---------------------------------- adopting ----------------------------------

brim_status brim_lab_place_adopt(brim_lab_place *place, int64_t now_ms,
                                 const brim_lab_place_want *want, const char *devices,
                                 int64_t pid) {
  brim_lab_place_job *job = NULL;
  BRIM_TRY(job_add(place, want, &job));
  job->pid = pid;
  job->cpu = strcmp(devices, "cpu") == 0 || !*devices;
  for (const char *at = devices; !job->cpu && *at;) {
    size_t n = strcspn(at, ",");
    int card = 0;
    while (card < place->card_count &&
           (strlen(place->cards[card].uuid) != n || memcmp(place->cards[card].uuid, at, n) != 0)) {
      card++;
    }
    if (card == place->card_count || job->card_count == BRIM_LAB_PLACE_K) {
      place->job_count--;
      return brim_fail(BRIM_ENOENT, "this machine has no GPU %.*s", (int)n, at);
    }
    job->cards[job->card_count++] = card;
    at += n + (at[n] == ',');
  }
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    if (card->jobs > 0) continue;
    // The memory use before these experiments started is unknown.
    card->base_used = card->base_free = card->base_foreign = (double)NAN;
    card->adopted = card->lock_fd < 0;
  }
  job_join(place, job, want->kind, now_ms);
  return BRIM_OK;
}

//---------------------------------- ends ----------------------------------

// True if the GPU may be to blame for a failure of this class.
static bool blames_gpu(brim_failure failure) {
  switch (failure) {
    case BRIM_FAILURE_CRASH:
    case BRIM_FAILURE_HUNG:
    case BRIM_FAILURE_INFRASTRUCTURE:
    case BRIM_FAILURE_OOM_DEVICE:
      return true;
    default:
      return false;
  }
}

static void count_failure(brim_lab_place *place, brim_lab_place_card *card, const char *exp,
                          brim_failure failure) {
  // An experiment that failed on another GPU too blames no GPU: remove it from the counts of all GPUs.
  bool found = false;
  for (size_t i = 0; i < BRIM_LAB_PLACE_REMEMBERED; i++) {
    const brim_lab_place_failed *f = &place->failed[i];
    found |= strcmp(f->exp, exp) == 0 && f->card != card->index;
  }
  brim_lab_place_failed *f = &place->failed[place->failed_next++ % BRIM_LAB_PLACE_REMEMBERED];
  snprintf(f->exp, sizeof f->exp, "%s", exp);
  f->card = card->index;
  for (int i = 0; found && i < place->card_count; i++) {
    brim_lab_place_card *c = &place->cards[i];
    for (int k = 0; k < c->failures && !c->out_of_service;) {
      if (strcmp(c->failed[k], exp) != 0) {
        k++;
        continue;
      }
      c->failures--;
      memmove(c->failed[k], c->failed[k + 1], (size_t)(c->failures - k) * sizeof *c->failed);
    }
  }
  if (found) return;

  for (int i = 0; i < card->failures; i++) {
    if (strcmp(card->failed[i], exp) == 0) return;  // the same experiment failed again
  }
  if (card->failures < BRIM_LAB_PLACE_FAILURES) {
    memcpy(card->failed[card->failures++], exp, strlen(exp) + 1);
  }
  if (card->failures < BRIM_LAB_PLACE_FAILURES) return;
  char reason[BRIM_LAB_PLACE_TEXT];
  snprintf(reason, sizeof reason, brim_tr("%d experiments in a row failed on it, the last by: %s"),
           card->failures, brim_tr(brim_failure_name(failure)));
  card_retire(card, reason);
}

// Blames sharing instead of the GPU if the GPU was shared: under MPS the fault of one experiment ends
// all others too. Turns sharing off then and returns true.
static bool packing_is_suspect(brim_lab_place_card *card) {
  bool suspect = (card->mps && !card->mps_refused) || card->jobs > 1;
  if (!suspect) return false;
  brim_log_warn("lab", "GPU %d: an experiment failed beside others; from here on one at a time",
                card->index);
  card->mps_refused = true;
  brim_lab_pack_stop(&card->pack);
  return true;
}

void brim_lab_place_ended(brim_lab_place *place, int64_t now_ms, const char *exp,
                          brim_lab_place_end end, brim_failure failure) {
  brim_lab_place_job *job = job_find(place, exp);
  if (!job) return;
  bool ran = end != BRIM_LAB_PLACE_UNUSED;
  if (job->cpu) place->cpu_taken--;
  for (int i = 0; i < job->card_count; i++) {
    brim_lab_place_card *card = &place->cards[job->cards[i]];
    if (i == 0) brim_lab_pack_left(&card->pack, &job->pack, now_ms);
    if (end == BRIM_LAB_PLACE_OK) {
      card->failures = 0;
    } else if (end == BRIM_LAB_PLACE_FAILED && blames_gpu(failure) && !packing_is_suspect(card)) {
      count_failure(place, card, job->exp, failure);
    }
    if (--card->jobs > 0) continue;
    if (ran) {  // wait until its memory is returned
      card->returning = true;
      card->returning_since_ms = now_ms;
    } else {
      release(card);
    }
    if (card->mps && card->mps_refused) {
      mps_stop(card->mps);
      card->mps = NULL;
    }
  }
  place->job_count--;
  *job = place->jobs[place->job_count];
}

//-------------------------------------------- choice --------------------------------------------
// Chooses the queued experiment that starts next and its place, and explains why the others wait.

static bool in_mask(const brim_lab_place_mask *mask, const brim_lab_place_card *card) {
  return card->allowed && (mask->cards >> card->index & 1) != 0;
}

static brim_lab_place_mask mask_of(const brim_lab_place *place, const brim_lab_place_want *want) {
  brim_lab_place_mask mask = {place->cpu_allowed, ~(uint64_t)0}, named;
  if (!want->device || !*want->device) return mask;
  if (parse_devices(place, want->device, &named)) {
    brim_status_clear();
    return (brim_lab_place_mask){0};
  }
  named.cpu = named.cpu && place->cpu_allowed;
  return named;
}

static int64_t gpus_of(const brim_lab_place_want *want) { return want->gpus < 1 ? 1 : want->gpus; }

static bool is_free(const brim_lab_place *place, const brim_lab_place_card *card) {
  return card_state(place, card) == BRIM_LAB_PLACE_FREE;
}

// True if the GPU is free or becomes free when its own experiments end.
static bool is_usable(const brim_lab_place *place, const brim_lab_place_card *card) {
  brim_lab_place_state state = card_state(place, card);
  return state == BRIM_LAB_PLACE_FREE || state == BRIM_LAB_PLACE_BUSY ||
         state == BRIM_LAB_PLACE_RETURNING;
}

// A NaN never exceeds, and is never exceeded.
static bool exceeds(double need, double bytes) { return need > 0 && need > bytes; }

//---------------------------------- taking ----------------------------------

static void add_fd(brim_lab_place_slot *slot, int fd) {
  if (fd >= 0 && slot->fd_count < BRIM_LAB_PLACE_FDS) slot->fds[slot->fd_count++] = fd;
}

static void fill_slot(const brim_lab_place *place, const brim_lab_place_job *job,
                      brim_lab_place_slot *slot) {
  // Give each CPU slot, or each GPU that the sweep may use, an equal share of the cores.
  int parts = job->cpu ? place->cpu_slots : 0;
  for (int i = 0; i < place->card_count && !job->cpu; i++) parts += place->cards[i].allowed;
  int threads = place->options.cores / (parts > 0 ? parts : 1);
  if (threads < 1) threads = 1;
  if (!job->cpu) threads *= job->card_count;
  *slot = (brim_lab_place_slot){.cpu = job->cpu, .threads = threads};
  size_t at = 0;
  if (job->cpu) at = (size_t)snprintf(slot->devices, sizeof slot->devices, "cpu");
  for (int i = 0; i < job->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[job->cards[i]];
    at += (size_t)snprintf(slot->devices + at, sizeof slot->devices - at, "%s%s", i ? "," : "",
                           card->uuid);
    add_fd(slot, card->lock_fd);
    if (job->card_count > 1 || !card->mps || card->mps_refused) continue;
    add_fd(slot, mps_fd(card->mps));
    snprintf(slot->mps_pipe, sizeof slot->mps_pipe, "%s", mps_pipe(card->mps));
    slot->mps_percent = card->pack.limit > 1 ? 100 / card->pack.limit : 0;
  }
}

typedef struct chooser {
  brim_lab_place *place;
  int64_t now_ms;
  const brim_lab_place_want *want;
  brim_lab_place_mask mask;
  brim_lab_place_slot *slot;
} chooser;

// Gives the cards, which are locked, to the experiment.
static brim_status occupy(chooser *c, const int *cards, int count) {
  brim_lab_place *place = c->place;
  brim_lab_place_job *job = NULL;
  brim_status status = job_add(place, c->want, &job);
  if (status) {
    for (int i = 0; i < count; i++) {
      brim_lab_place_card *card = &place->cards[cards[i]];
      if (card->jobs == 0) release(card);
    }
    return status;
  }
  job->cpu = count == 0;
  job->card_count = count;
  for (int i = 0; i < count; i++) job->cards[i] = cards[i];
  job_join(place, job, c->want->kind, c->now_ms);
  fill_slot(place, job, c->slot);
  return BRIM_OK;
}

//---------------------------------- MPS ----------------------------------

// Starts MPS before the first experiment, since all experiments of a GPU must be its clients. *wait:
// MPS is not ready yet.
static void prepare_mps(chooser *c, brim_lab_place_card *card, bool *wait) {
  brim_lab_place *place = c->place;
  const brim_lab_place_options *o = &place->options;
  *wait = false;
  if (o->per_gpu == 1 || o->no_mps || card->mps_refused || c->want->gpus > 1) return;
  if (card->pack.max_limit < 2) return;
  if (!card->mps) {
    if (mps_start(o->mps_program, o->run_dir, card->uuid, c->now_ms, &card->mps)) {
      brim_log_warn("lab", "GPU %d: cannot use MPS, so experiments take turns: %s", card->index,
                    brim_status_detail());
      card->mps_refused = true;
      return;
    }
    card->mps_counted = false;
  }
  *wait = card_mps(card, c->now_ms) == BRIM_LAB_MPS_STARTING;
}

//---------------------------------- one GPU ----------------------------------

static brim_status take_one(chooser *c, brim_lab_place_card *card, bool *done) {
  int index = card->index;
  if (card->jobs == 0) {
    bool wait = false;
    prepare_mps(c, card, &wait);
    if (wait) return BRIM_OK;
    brim_status status = card_take(c->place, card, c->now_ms);
    if (status) return status == BRIM_ENOMEM ? status : BRIM_OK;  // `card` keeps the reason
  }
  *done = true;
  return occupy(c, &index, 1);
}

static bool has_wide_job(const brim_lab_place *place, const brim_lab_place_card *card) {
  for (size_t i = 0; i < place->job_count; i++) {
    const brim_lab_place_job *job = &place->jobs[i];
    for (int k = 0; k < job->card_count && job->card_count > 1; k++) {
      if (job->cards[k] == card->index) return true;
    }
  }
  return false;
}

// True if the experiment may run beside those on the GPU: all plans are known, and together they fit.
static bool can_join(const brim_lab_place *place, const brim_lab_place_card *card,
                     const brim_lab_place_want *want) {
  return card_state(place, card) == BRIM_LAB_PLACE_BUSY && !card->reserved && card->lock_fd >= 0 &&
         card->foreign == 0 && card->jobs < card->pack.limit &&
         card->jobs < BRIM_LAB_PLACE_PACKED && want->need_bytes > 0 && !has_wide_job(place, card) &&
         card_fits(place, card, want->need_bytes);
}

static brim_status place_one(chooser *c, bool *done) {
  brim_lab_place *place = c->place;
  for (int i = 0; i < place->card_count && !*done; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(&c->mask, card) || card->reserved || !is_free(place, card)) continue;
    if (exceeds(c->want->need_bytes, card->memory.free)) continue;
    BRIM_TRY(take_one(c, card, done));
  }
  brim_lab_place_card *best = NULL;
  for (int i = 0; i < place->card_count && !*done; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(&c->mask, card) || !can_join(place, card, c->want)) continue;
    if (!best || card->jobs < best->jobs) best = card;
  }
  if (best) return take_one(c, best, done);
  if (*done || !c->mask.cpu || place->cpu_taken >= place->cpu_slots) return BRIM_OK;
  *done = true;
  return occupy(c, NULL, 0);
}

//---------------------------------- several GPUs ----------------------------------

// Lists the usable GPUs by how soon they will be free: free GPUs, then those with the fewest
// experiments.
static int gather(const chooser *c, int *out, int *free_count) {
  const brim_lab_place *place = c->place;
  int count = 0;
  for (int jobs = 0; jobs <= BRIM_LAB_PLACE_PACKED; jobs++) {
    for (int want_free = 1; want_free >= 0; want_free--) {
      for (int i = 0; i < place->card_count; i++) {
        const brim_lab_place_card *card = &place->cards[i];
        if (card->jobs != jobs || !in_mask(&c->mask, card) || card->reserved) continue;
        if (!is_usable(place, card) || exceeds(c->want->need_bytes, card->memory.total)) continue;
        if (is_free(place, card) != want_free) continue;
        out[count++] = i;
      }
      if (jobs == 0 && want_free) *free_count = count;
    }
  }
  return count;
}

static brim_status place_several(chooser *c, bool *done) {
  brim_lab_place *place = c->place;
  int cards[BRIM_LAB_PLACE_GPUS], free_count = 0;
  int count = gather(c, cards, &free_count);
  if (gpus_of(c->want) > BRIM_LAB_PLACE_K) return BRIM_OK;
  const int k = (int)gpus_of(c->want);
  if (count < k) return BRIM_OK;  // not enough GPUs even later: reserve none
  int locked = 0;
  while (free_count >= k && locked < k) {
    brim_status status = card_take(place, &place->cards[cards[locked]], c->now_ms);
    if (status == BRIM_ENOMEM) return status;
    if (status) break;
    locked++;
  }
  if (locked == k) {
    *done = true;
    return occupy(c, cards, k);
  }
  for (int i = 0; i < locked; i++) release(&place->cards[cards[i]]);
  for (int i = 0; i < k; i++) place->cards[cards[i]].reserved = true;
  return BRIM_OK;
}

// Notes for each GPU whether a queued experiment would fit beside the running ones if the limit were
// higher. Packing must not wait for experiments that do not fit.
static void note_more(brim_lab_place *place, const brim_lab_place_want *wants, size_t count) {
  for (int i = 0; i < place->card_count; i++) place->cards[i].could_join = false;
  for (size_t k = 0; k < count; k++) {
    if (wants[k].gpus > 1 || !(wants[k].need_bytes > 0)) continue;
    const brim_lab_place_mask mask = mask_of(place, &wants[k]);
    for (int i = 0; i < place->card_count; i++) {
      brim_lab_place_card *card = &place->cards[i];
      if (card->could_join || card->jobs == 0 || card->reserved || !in_mask(&mask, card)) continue;
      card->could_join = card_fits(place, card, wants[k].need_bytes);
    }
  }
}

brim_status brim_lab_place_choose(brim_lab_place *place, int64_t now_ms,
                                  const brim_lab_place_want *wants, size_t count, size_t *chosen,
                                  brim_lab_place_slot *slot) {
  *chosen = count;
  *slot = (brim_lab_place_slot){0};
  for (int i = 0; i < place->card_count; i++) place->cards[i].reserved = false;
  for (size_t i = 0; i < count; i++) {
    // The experiment's last executor may have reported its end without having ended.
    if (job_find(place, wants[i].exp)) continue;
    chooser c = {place, now_ms, &wants[i], mask_of(place, &wants[i]), slot};
    bool done = false;
    brim_status status = wants[i].gpus > 1 ? place_several(&c, &done) : place_one(&c, &done);
    if (status) return status;
    if (done) {
      *chosen = i;
      return BRIM_OK;
    }
  }
  note_more(place, wants, count);
  return BRIM_OK;
}

//---------------------------------- why ----------------------------------

typedef struct tally {
  int named, usable, free_count, fitting, reserved;
  const brim_lab_place_card *first_unusable;  // the first card that is not usable
  double largest;                             // memory of the largest card
} tally;

static tally count_cards(const brim_lab_place *place, const brim_lab_place_want *want,
                         const brim_lab_place_mask *mask) {
  tally t = {0};
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    if (!in_mask(mask, card)) continue;
    t.named++;
    t.largest = fmax(t.largest, card->memory.total);
    if (!exceeds(want->need_bytes, card->memory.total)) t.fitting++;
    if (is_usable(place, card)) t.usable++;
    if (is_free(place, card)) t.free_count += !card->reserved;
    if (is_free(place, card)) t.reserved += card->reserved;
    if (!is_usable(place, card) && !t.first_unusable) t.first_unusable = card;
  }
  return t;
}

static bool explain_never(const tally *t, const brim_lab_place_want *want,
                          const brim_lab_place_mask *mask, char *out, size_t size) {
  char need[32], most[32];
  int64_t k = gpus_of(want);
  if (mask->cpu && k == 1) return false;
  if (t->named == 0) {
    snprintf(out, size, "%s", brim_tr("no device that it may use is here"));
  } else if (k > t->named || k > BRIM_LAB_PLACE_K) {
    brim_msg_format(out, size, brim_tr("needs %lld GPUs, and the sweep may use %d"), (long long)k,
                    t->named);
  } else if (t->fitting < k) {
    brim_format_bytes((uint64_t)want->need_bytes, need);
    brim_format_bytes((uint64_t)t->largest, most);
    brim_msg_format(out, size, brim_tr("needs %s on each GPU, and the largest has %s"), need, most);
  } else {
    return false;
  }
  return true;
}

bool brim_lab_place_never(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                          size_t size) {
  char text[BRIM_LAB_PLACE_TEXT];
  brim_lab_place_mask mask = mask_of(place, want);
  tally t = count_cards(place, want, &mask);
  bool never = explain_never(&t, want, &mask, text, sizeof text);
  if (never && out) snprintf(out, size, "%s", text);
  return never;
}

void brim_lab_place_why(const brim_lab_place *place, const brim_lab_place_want *want, char *out,
                        size_t size) {
  brim_lab_place_mask mask = mask_of(place, want);
  tally t = count_cards(place, want, &mask);
  int64_t k = gpus_of(want);
  if (explain_never(&t, want, &mask, out, size)) return;
  if (want->exp && job_find(place, want->exp)) {
    snprintf(out, size, "%s", brim_tr("its last process has not ended"));
  } else if (mask.cpu && t.named == 0 && place->cpu_slots == 1) {
    snprintf(out, size, "%s", brim_tr("the CPU runs another experiment"));
  } else if (mask.cpu && t.named == 0) {
    brim_msg_format(out, size, brim_tr("all %d CPU slots are taken"), place->cpu_slots);
  } else if (t.usable < k && t.first_unusable) {
    const brim_lab_place_state state = card_state(place, t.first_unusable);
    brim_msg_format(out, size,
                    state == BRIM_LAB_PLACE_FOREIGN  ? brim_tr("GPU %d is held by %s")
                    : state == BRIM_LAB_PLACE_LOCKED ? brim_tr("GPU %d is not free: %s")
                                                     : brim_tr("GPU %d is out of service: %s"),
                    t.first_unusable->index,
                    state == BRIM_LAB_PLACE_FOREIGN  ? t.first_unusable->holder
                    : state == BRIM_LAB_PLACE_LOCKED ? t.first_unusable->locked_by
                                                     : t.first_unusable->reason);
  } else if (k > 1) {
    brim_msg_format(out, size,
                    t.free_count + t.reserved == 1 ? brim_tr("needs %lld GPUs, %d is free")
                                                   : brim_tr("needs %lld GPUs, %d are free"),
                    (long long)k, t.free_count + t.reserved);
  } else if (t.free_count == 0 && t.reserved > 0) {
    brim_msg_format(out, size, "%s",
                    brim_tr("a free GPU is reserved for an experiment that needs several"));
  } else if (t.free_count > 0 && want->need_bytes > 0) {
    char need[32];
    brim_format_bytes((uint64_t)want->need_bytes, need);
    brim_msg_format(out, size, brim_tr("needs %s, more than the free GPUs have left"), need);
  } else {
    snprintf(out, size, "%s", brim_tr("waits for a free GPU"));
  }
  brim_utf8_trim(out);
}

//-------------------------------------------- place --------------------------------------------
// Opens the place, takes readings, and describes the devices for views.

enum {
  READ_MS = 1000,
  RETURN_READ_MS = 200,  // between readings while memory is being returned
  DEFAULT_RETURN_MS = 60000,
  DEFAULT_WARMUP_MS = 5000,
  DEFAULT_WINDOW_MS = 20000
};

static brim_status copy_text(brim_lab_place *place, size_t i, const char *from,
                             const char *fallback, const char **to) {
  if (!from) from = fallback;
  place->texts[i] = from ? brim_strdup(from) : NULL;
  *to = place->texts[i];
  if (from && !*to) return brim_fail(BRIM_ENOMEM, "out of memory for the devices of a sweep");
  return BRIM_OK;
}

static brim_status open_place(brim_lab_place *place, const brim_lab_place_options *from) {
  brim_lab_place_options *o = &place->options;
  *o = *from;
  BRIM_TRY(copy_text(place, 0, from->store, "", &o->store));
  BRIM_TRY(copy_text(place, 1, from->devices, "auto", &o->devices));
  BRIM_TRY(copy_text(place, 2, from->visible, NULL, &o->visible));
  BRIM_TRY(copy_text(place, 3, from->lock_dir, "/tmp", &o->lock_dir));
  BRIM_TRY(copy_text(place, 4, from->run_dir, "/tmp", &o->run_dir));
  BRIM_TRY(copy_text(place, 5, from->mps_program, "nvidia-cuda-mps-control", &o->mps_program));
  BRIM_TRY(copy_text(place, 6, from->root, "", &o->root));
  if (o->cores < 1) o->cores = 1;
  if (o->jobs < 1) o->jobs = 1;
  if (o->per_gpu == 0) o->per_gpu = 1;
  if (o->return_ms <= 0) o->return_ms = DEFAULT_RETURN_MS;
  if (o->warmup_ms <= 0) o->warmup_ms = DEFAULT_WARMUP_MS;
  if (o->window_ms <= 0) o->window_ms = DEFAULT_WINDOW_MS;

  brim_lab_place_mask mask;
  BRIM_TRY(list_cards(place));
  BRIM_TRY(parse_devices(place, o->devices, &mask));
  place->cpu_allowed = mask.cpu;
  place->cpu_slots = mask.cpu ? o->jobs : 0;
  bool fixed = o->per_gpu != BRIM_LAB_PLACE_AUTO;
  int most = fixed && o->per_gpu < BRIM_LAB_PLACE_PACKED ? o->per_gpu : BRIM_LAB_PLACE_PACKED;
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    card->allowed = (mask.cards >> i & 1) != 0;
    card->memory = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    card->base_used = card->base_free = card->base_foreign = (double)NAN;
    brim_lab_pack_init(&card->pack, most, fixed, o->warmup_ms, o->window_ms);
  }
  return BRIM_OK;
}

brim_status brim_lab_place_open(const brim_lab_place_options *options, brim_lab_place **out) {
  *out = NULL;
  brim_lab_place *place = brim_calloc(1, sizeof *place);
  if (!place) return brim_fail(BRIM_ENOMEM, "out of memory for the devices of a sweep");
  brim_status status = open_place(place, options);
  if (status) {
    brim_lab_place_close(place);
    return status;
  }
  *out = place;
  return BRIM_OK;
}

void brim_lab_place_close(brim_lab_place *place) {
  if (!place) return;
  for (int i = 0; i < place->card_count; i++) {
    if (place->cards[i].lock_fd >= 0) close(place->cards[i].lock_fd);
    mps_stop(place->cards[i].mps);
  }
  for (size_t i = 0; i < sizeof place->texts / sizeof *place->texts; i++)
    brim_free(place->texts[i]);
  brim_free(place->cards);
  brim_free(place->jobs);
  brim_free(place);
}

int64_t brim_lab_place_wait_ms(const brim_lab_place *place, int64_t now_ms) {
  int64_t period = READ_MS;
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    bool starting = card->mps && card->jobs == 0 && !card->mps_refused;
    if (card->returning || starting) period = RETURN_READ_MS;
  }
  if (!place->ticked) return 0;
  int64_t left = place->tick_ms + period - now_ms;
  return left > 0 ? left : 0;
}

brim_status brim_lab_place_tick(brim_lab_place *place, int64_t now_ms) {
  if (brim_lab_place_wait_ms(place, now_ms) > 0) return BRIM_OK;
  place->ticked = true;
  place->tick_ms = now_ms;
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if (!card->allowed && card->jobs == 0) continue;
    BRIM_TRY(card_read(place, card));
    card_update(place, card, now_ms);
  }
  return BRIM_OK;
}

const char *brim_lab_place_excess(brim_lab_place *place, int64_t now_ms) {
  (void)now_ms;
  for (int i = 0; i < place->card_count; i++) {
    const brim_lab_place_card *card = &place->cards[i];
    if (card->pack.shed < 1 || card->jobs <= card->pack.limit) continue;
    const brim_lab_place_job *youngest = NULL;
    for (size_t k = 0; k < place->job_count; k++) {
      const brim_lab_place_job *job = &place->jobs[k];
      if (job->card_count != 1 || job->cards[0] != i) continue;
      if (!youngest || job->number > youngest->number) youngest = job;
    }
    if (youngest) return youngest->exp;
  }
  return NULL;
}

//---------------------------------- seeing ----------------------------------

static const brim_lab_place_card *card_at(const brim_lab_place *place, size_t i) {
  for (int k = 0; k < place->card_count; k++) {
    if (place->cards[k].allowed && i-- == 0) return &place->cards[k];
  }
  return NULL;
}

size_t brim_lab_place_count(const brim_lab_place *place) {
  size_t count = 0;
  while (card_at(place, count)) count++;
  return count;
}

void brim_lab_place_get(const brim_lab_place *place, size_t i, brim_lab_place_gpu *out) {
  const brim_lab_place_card *card = card_at(place, i);
  *out = (brim_lab_place_gpu){
      .total_bytes = (double)NAN, .free_bytes = (double)NAN, .gain = (double)NAN};
  if (!card) return;
  out->index = card->index;
  snprintf(out->uuid, sizeof out->uuid, "%s", card->uuid);
  snprintf(out->name, sizeof out->name, "%s", card->name);
  out->state = card_state(place, card);
  const char *reason = out->state == BRIM_LAB_PLACE_FOREIGN  ? card->holder
                       : out->state == BRIM_LAB_PLACE_LOCKED ? card->locked_by
                       : out->state == BRIM_LAB_PLACE_OUT    ? card->reason
                                                             : "";
  snprintf(out->reason, sizeof out->reason, "%s", reason);
  out->total_bytes = card->memory.total;
  out->free_bytes = card->memory.free;
  out->jobs = card->jobs;
  out->limit = card->pack.limit;
  out->mps = card->mps && !card->mps_refused;
  out->measuring = card->pack.phase != BRIM_LAB_PACK_HOLD;
  out->gain = card->pack.gain;
  out->failures = card->failures;
}

void brim_lab_place_cpu(const brim_lab_place *place, int *slots, int *taken) {
  *slots = place->cpu_slots;
  *taken = place->cpu_taken;
}

brim_status brim_lab_place_restore(brim_lab_place *place, const char *device) {
  brim_lab_place_mask mask;
  BRIM_TRY(parse_devices(place, device, &mask));
  for (int i = 0; i < place->card_count; i++) {
    brim_lab_place_card *card = &place->cards[i];
    if ((mask.cards >> i & 1) == 0 || !card->out_of_service) continue;
    card->out_of_service = false;
    card->failures = card->misses = 0;
    card->reason[0] = '\0';
    brim_log_info("lab", "GPU %d (%s) is in service again", card->index, card->uuid);
  }
  return BRIM_OK;
}
