// Files of an attempt: which process runs its folder, reports that the store has not acknowledged, files that the server
// has not got, and the checkpoint that another machine wrote.

#include "lab/lab_exec_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_thread.h"
#include "lab/http/lab_http_client.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_files.h"
#include "lab/wire/lab_wire_link.h"

//-------------------------------------------- owner --------------------------------------------
// Which process runs an experiment's folder. A process is its number and the moment it began, since
// numbers come again; both hold for one boot of the machine.

enum { KILL_WAIT_MS = 10000, LOOK_MS = 10, BOOT_BYTES = 64 };
static const char file_name[] = "executor.json";

typedef struct owner {
  brim_lab_exec_owner who;
  int64_t born, child_born;  // in ticks since the boot
} owner;

// Field 22 of /proc/PID/stat; -1 where the process has ended, also as a zombie. The name in field 2 may
// contain anything.
static int64_t born_of(int64_t pid) {
  char path[64], *text = NULL, state = 0;
  int64_t born = -1;
  snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
  if (pid <= 0 || brim_fs_read(path, 1 << 16, &text, NULL)) {
    brim_status_clear();
    return -1;
  }
  const char *at = strrchr(text, ')');
  if (at && sscanf(at + 1, " %c", &state) == 1 && state != 'Z' && state != 'X') {
    int field = 2;
    for (at++; *at && field < 22; at++) field += *at == ' ';
    born = field == 22 ? (int64_t)strtoll(at, NULL, 10) : -1;
  }
  brim_free(text);
  return born;
}

static void read_boot(char out[BOOT_BYTES]) {
  char *text = NULL;
  out[0] = '\0';
  if (brim_fs_read("/proc/sys/kernel/random/boot_id", 1 << 12, &text, NULL) == BRIM_OK) {
    snprintf(out, BOOT_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
  }
  brim_free(text);
  brim_status_clear();
}

static char *owner_path(const char *folder) { return brim_fs_join(folder, file_name); }

static int64_t integer(const json_t *value, const char *key) {
  return (int64_t)json_integer_value(json_object_get(value, key));
}

// False: there is no such file, or it is of another boot.
static bool read_owner(const char *folder, owner *out) {
  char *path = owner_path(folder), *text = NULL, boot[BOOT_BYTES];
  size_t size = 0;
  json_t *value = NULL;
  bool good = path && brim_fs_exists(path) &&
              brim_fs_read(path, 1 << 16, &text, &size) == BRIM_OK &&
              brim_json_parse(text, size, path, &value) == BRIM_OK;
  memset(out, 0, sizeof *out);
  if (good) {
    read_boot(boot);
    const char *of = json_string_value(json_object_get(value, "boot"));
    out->who = (brim_lab_exec_owner){integer(value, "pid"), integer(value, "child"),
                                     integer(value, "attempt"), integer(value, "fence")};
    out->born = integer(value, "born");
    out->child_born = integer(value, "child_born");
    good = of && strcmp(of, boot) == 0 && out->who.pid > 0;
  }
  json_decref(value);
  brim_free(text);
  brim_free(path);
  brim_status_clear();
  return good;
}

// Never process 1, whatever the file says: to kill its group is to kill every process.
static bool lives(int64_t pid, int64_t born) { return pid > 1 && born_of(pid) == born; }

bool brim_lab_exec_find(const char *folder, brim_lab_exec_owner *out) {
  owner o;
  bool there = read_owner(folder, &o) && lives(o.who.pid, o.born);
  if (there && !lives(o.who.child, o.child_born)) o.who.child = 0;
  if (out) *out = there ? o.who : (brim_lab_exec_owner){0};
  return there;
}

// Removes executor.json of processes of this machine that have ended.
static void brim_exec_owner_clear(const char *folder) {
  owner o;
  char *path = owner_path(folder);
  if (path && read_owner(folder, &o) && !lives(o.who.pid, o.born) &&
      !lives(o.who.child, o.child_born)) {
    (void)brim_fs_remove(path);
  }
  brim_free(path);
  brim_status_clear();
}

// The executor is stopped first: it neither reports what happens to its child, nor is the child's number
// free for another process as long as it is not waited for.
brim_status brim_lab_exec_kill(const char *folder) {
  owner o;
  if (!read_owner(folder, &o)) return BRIM_OK;
  bool mine = o.who.pid == (int64_t)getpid();
  if (!mine && lives(o.who.pid, o.born)) (void)kill((pid_t)o.who.pid, SIGSTOP);
  if (lives(o.who.child, o.child_born)) (void)kill((pid_t)-o.who.child, SIGKILL);
  if (!mine && lives(o.who.pid, o.born)) (void)kill((pid_t)o.who.pid, SIGKILL);
  for (int64_t ms = 0; ms < KILL_WAIT_MS; ms += LOOK_MS) {
    bool left = !mine && lives(o.who.pid, o.born);
    if (!left && !lives(o.who.child, o.child_born)) {
      brim_exec_owner_clear(folder);
      return BRIM_OK;
    }
    brim_clock_sleep_ns((int64_t)LOOK_MS * 1000000);
  }
  return brim_fail(BRIM_EIO, "process %" PRId64 " in %s does not end", o.who.pid, folder);
}

//---------------------------------- this process ----------------------------------

static brim_status put_owner(json_t *o, const brim_store_ref *ref, pid_t child) {
  char boot[BOOT_BYTES];
  read_boot(boot);
  BRIM_TRY(brim_json_put(o, "pid", json_integer(getpid())));
  BRIM_TRY(brim_json_put(o, "born", json_integer(born_of(getpid()))));
  BRIM_TRY(brim_json_put(o, "boot", json_string(boot)));
  BRIM_TRY(brim_json_put(o, "attempt", json_integer(ref->attempt)));
  BRIM_TRY(brim_json_put(o, "fence", json_integer(ref->fence)));
  BRIM_TRY(brim_json_put(o, "child", json_integer(child)));
  return brim_json_put(o, "child_born", json_integer(child ? born_of(child) : 0));
}

brim_status brim_exec_owner_write(const char *folder, const brim_store_ref *ref, pid_t child) {
  brim_json_setup();
  json_t *o = json_object();
  char *text = NULL, *path = owner_path(folder);
  brim_status status = o && path ? put_owner(o, ref, child)
                                 : brim_fail(BRIM_ENOMEM, "out of memory for %s", file_name);
  if (!status) status = brim_json_dump(o, 0, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

brim_status brim_exec_owner_take(const char *folder, const brim_store_ref *ref) {
  brim_lab_exec_owner other;
  if (brim_lab_exec_find(folder, &other) && other.pid != (int64_t)getpid()) {
    if (other.fence >= ref->fence) {
      return brim_fail(BRIM_ESTATE, "attempt %" PRId64 " runs in %s", other.attempt, folder);
    }
    brim_log_warn("lab", "attempt %" PRId64 " is replaced: ending process %" PRId64, other.attempt,
                  other.pid);
  }
  // also a child that outlived its executor
  BRIM_TRY(brim_lab_exec_kill(folder));
  return brim_exec_owner_write(folder, ref, 0);
}

void brim_exec_owner_leave(const char *folder) {
  owner o;
  char *path = owner_path(folder);
  if (path && read_owner(folder, &o) && o.who.pid == (int64_t)getpid()) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

//------------------------------------------- reports -------------------------------------------
// Writes of an attempt that the store has not acknowledged: one request a line, in a file that appears
// whole and goes when all of it is sent.

enum { LARGEST_SPOOL = 1 << 30 };
static const char suffix[] = ".spool";

brim_status brim_exec_spool_add(brim_str *lines, const brim_lab_request *request) {
  json_t *value = NULL;
  char *text = NULL;
  BRIM_TRY(brim_lab_request_encode(request, &value));
  brim_status status = brim_json_dump(value, 0, &text);
  json_decref(value);
  BRIM_TRY(status);
  brim_str_append(lines, text);
  brim_str_append_char(lines, '\n');
  brim_free(text);
  return brim_str_status(lines);
}

static char *spool_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, suffix);
  return brim_fs_join(folder, name);
}

brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines) {
  BRIM_TRY(brim_str_status(lines));
  char *path = spool_path(folder, attempt);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_status status = brim_fs_write(path, lines->data, lines->len);
  brim_free(path);
  return status;
}

void brim_exec_spool_remove(const char *folder, int64_t attempt) {
  char *path = spool_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

// Lines that no store takes stay in NAME.bad, for a person to look at.
static brim_status keep_refused(const char *path, const brim_str *lines) {
  if (lines->len == 0) return brim_str_status(lines);
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_status status = brim_str_status(&to);
  if (!status) status = brim_fs_write(to.data, lines->data, lines->len);
  if (!status) brim_log_warn("lab", "%s holds reports that the store does not take", to.data);
  brim_str_deinit(&to);
  return status;
}

brim_status brim_exec_spool_keep(const char *folder, int64_t attempt, const brim_str *refused) {
  char *path = spool_path(folder, attempt);
  brim_status status =
      path ? keep_refused(path, refused) : brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_free(path);
  return status;
}

//---------------------------------- sending ----------------------------------

// Whether calling again later can help; everything else is the store's answer. A request that is too long
// or cannot be read stays so.
bool brim_exec_is_passing(const brim_lab_link *link, brim_status status) {
  if (status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) return true;
  return status && status != BRIM_ELIMIT && status != BRIM_EPARSE && !brim_lab_link_answered(link);
}

static brim_status send_report(brim_lab_link *link, const json_t *line, brim_exec_sent *sent) {
  brim_lab_request request;
  brim_lab_reply reply = {0};
  brim_status status = brim_lab_request_decode(line, &request);
  if (status == BRIM_ENOMEM) return status;
  if (!brim_lab_op_is_report(request.op)) {
    return brim_fail(BRIM_EPARSE, "a line is no report of an executor");
  }
  if (status) return BRIM_EPARSE;
  status = brim_lab_call(link, &request, &reply);
  if (!status) sent->taken++;
  if (!status && request.op == BRIM_LAB_OP_FINISH) {
    sent->state = reply.state;
    sent->finished = true;
  }
  brim_lab_request_deinit(&request);
  return status;
}

// A line that is no report, or that the store refuses, loses nothing of what stands before and behind it.
brim_status brim_exec_spool_send(brim_lab_link *link, const brim_str *lines, brim_exec_sent *sent) {
  while (sent->at < lines->len) {
    const char *line = lines->data + sent->at;
    const char *end = memchr(line, '\n', lines->len - sent->at);
    size_t n = end ? (size_t)(end - line) : lines->len - sent->at;
    json_t *request = NULL;
    brim_status status = brim_json_parse(line, n, "spool", &request);
    bool torn = status == BRIM_EPARSE;
    if (!status) status = send_report(link, request, sent);
    json_decref(request);
    if (!torn && brim_exec_is_passing(link, status)) return BRIM_EIO;
    if (status == BRIM_ESTATE || status == BRIM_ENOENT) return BRIM_ESTATE;
    if (status) {
      brim_log_warn("lab", "the store refused a report: %s", brim_status_detail());
      brim_str_append_n(&sent->refused, line, n);
      brim_str_append_char(&sent->refused, '\n');
      BRIM_TRY(brim_str_status(&sent->refused));
    }
    sent->at += n + (end != NULL);
  }
  return BRIM_OK;
}

void brim_exec_sent_init(brim_exec_sent *sent) {
  *sent = (brim_exec_sent){0};
  brim_str_init(&sent->refused);
}

void brim_exec_sent_deinit(brim_exec_sent *sent) { brim_str_deinit(&sent->refused); }

//---------------------------------- what executors left ----------------------------------

// One that cannot be read at all stays, under another name.
static void set_aside(const char *path) {
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_log_warn("lab", "%s cannot be read and is kept as %s.bad: %s", path, path,
                brim_status_detail());
  if (brim_str_status(&to) || rename(path, to.data) != 0) brim_status_clear();
  brim_str_deinit(&to);
}

// The executor may send and remove its spool meanwhile: a file that is gone was sent.
static brim_status gone_is_fine(brim_status status, const char *path) {
  if (!status || brim_fs_exists(path)) return status;
  brim_status_clear();
  return BRIM_OK;
}

static brim_status replay_file(const char *path, brim_lab_link *link, brim_lab_replayed *out) {
  char *text = NULL;
  size_t size = 0;
  brim_status status = brim_fs_read(path, LARGEST_SPOOL, &text, &size);
  if (status == BRIM_ENOMEM || status == BRIM_EIO || status == BRIM_ENOENT) {
    return gone_is_fine(status, path);
  }
  if (status) {
    set_aside(path);
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_str lines = {.data = text, .len = size, .cap = size + 1};
  brim_exec_sent sent;
  brim_exec_sent_init(&sent);
  status = brim_exec_spool_send(link, &lines, &sent);
  bool stale = status == BRIM_ESTATE;
  if (!status || stale) status = keep_refused(path, &sent.refused);
  if (!status) {
    out->files += !stale && sent.taken > 0;
    out->stale += stale;
    out->finished += sent.finished;
    brim_status_clear();
    status = gone_is_fine(brim_fs_remove(path), path);
  }
  brim_exec_sent_deinit(&sent);
  brim_free(text);
  return status;
}

brim_status brim_lab_spool_replay_folder(const char *folder, brim_lab_link *link,
                                         brim_lab_replayed *out) {
  char **names = NULL;
  size_t count = 0;
  brim_status status = BRIM_OK;
  if (!brim_fs_is_dir(folder)) return BRIM_OK;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; !status && i < count; i++) {
    if (!brim_str_starts(names[i], "attempt-") || !brim_str_ends(names[i], suffix)) continue;
    char *path = brim_fs_join(folder, names[i]);
    status = path ? replay_file(path, link, out)
                  : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", folder);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  if (!status) brim_exec_owner_clear(folder);
  return status;
}

brim_status brim_lab_spool_replay(const char *place, brim_lab_link *link, brim_lab_replayed *out) {
  char **names = NULL, *all = brim_fs_join(place, "exp");
  size_t count = 0;
  brim_lab_replayed sum = {0};
  brim_status status = BRIM_OK;
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
  if (brim_fs_is_dir(all)) status = brim_fs_list(all, &names, &count);
  for (size_t i = 0; !status && i < count; i++) {
    char *folder = brim_fs_join(all, names[i]);
    status = folder ? brim_lab_spool_replay_folder(folder, link, &sum)
                    : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
    brim_free(folder);
  }
  brim_fs_list_free(names, count);
  brim_free(all);
  if (out) *out = sum;
  return status;
}

//------------------------------------- foreign checkpoints -------------------------------------
// The checkpoint of an experiment that another machine trained, before it is resumed here.

enum { CONNECT_MS = 3000, AGAIN_MS = 500 };

typedef struct fetch {
  brim_http_client *client;
  const char *folder, *exp;
  bool (*keep)(void *ctx);
  void *ctx;
  brim_lab_file_row rows[BRIM_LAB_FILE_KINDS];
  bool broken;  // by this machine's disk
} fetch;

static const brim_lab_file_row *row_of(const fetch *f, const brim_lab_file_kind *kind) {
  return &f->rows[kind - brim_lab_file_kinds];
}

static brim_status ask_rows(brim_lab_link *link, fetch *f) {
  for (;;) {
    brim_status status = brim_lab_file_rows(link, f->exp, f->rows);
    if (status != BRIM_EIO) return status;
    brim_status_clear();
    if (!f->keep(f->ctx)) return BRIM_EINTERRUPTED;
    brim_clock_sleep_ns((int64_t)AGAIN_MS * 1000000);
  }
}

static brim_status fetch_one(fetch *f, const brim_lab_file_kind *kind) {
  char *path = brim_fs_join(f->folder, kind->local);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  brim_lab_getting g = {.client = f->client,
                        .exp = f->exp,
                        .kind = kind,
                        .row = row_of(f, kind),
                        .path = path,
                        .keep = f->keep,
                        .ctx = f->ctx};
  brim_status status = g.row->there ? brim_lab_get_file(&g) : BRIM_OK;
  f->broken = g.broken;
  brim_free(path);
  return status;
}

// The checkpoint comes last: one that is here has all that belongs to it.
static brim_status fetch_all(brim_lab_link *link, fetch *f) {
  static const char *const names[] = {"record", "best", "checkpoint"};
  brim_exec_checkpoint here = {.step = -1, .sent = -1};
  brim_exec_checkpoint_look(&here, f->folder);
  BRIM_TRY(ask_rows(link, f));
  const brim_lab_file_row *last = row_of(f, brim_lab_file_find("checkpoint"));
  if (!last->there || last->step <= here.step) return BRIM_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    BRIM_TRY(fetch_one(f, brim_lab_file_find(names[i])));
  }
  brim_log_info("lab", "the checkpoint of step %" PRId64 " comes from the server", last->step);
  return BRIM_OK;
}

brim_status brim_exec_fetch(brim_lab_link *link, const char *folder, const char *exp,
                            bool (*keep)(void *ctx), void *ctx) {
  const char *url = brim_lab_link_server(link);
  fetch f = {.folder = folder, .exp = exp, .keep = keep, .ctx = ctx};
  if (!url) return BRIM_OK;
  brim_status status = brim_lab_http_open(url, CONNECT_MS, &f.client);
  if (!status) status = fetch_all(link, &f);
  brim_http_client_close(f.client);
  if (!status || status == BRIM_EINTERRUPTED || f.broken) return status;
  brim_log_warn("lab", "the checkpoint on the server is not used: %s", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------------- files not sent ----------------------------------------
// The files that an attempt still has to send: attempt-N.files, {"ref": {"exp": ..., "attempt": N,
// "fence": N}}. It exists from the start of the attempt until the server has every file.

static const char owed_suffix[] = ".files";

static char *owed_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, owed_suffix);
  return brim_fs_join(folder, name);
}

brim_status brim_exec_owed_write(const char *folder, const brim_store_ref *ref) {
  char *path = owed_path(folder, ref->attempt), *text = NULL;
  json_t *value = json_object();
  brim_status status = path ? brim_json_put(value, "ref", brim_lab_wire_ref(ref))
                            : brim_fail(BRIM_ENOMEM, "out of memory for a report");
  if (!status) status = brim_json_dump(value, 0, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(value);
  brim_free(text);
  brim_free(path);
  return status;
}

void brim_exec_owed_remove(const char *folder, int64_t attempt) {
  char *path = owed_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

static bool read_owed(const char *folder, const char *name, brim_store_ref *out) {
  char *path = brim_fs_join(folder, name), *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  bool good = path && !brim_fs_read(path, 1 << 16, &text, &size) &&
              !brim_json_parse(text, size, path, &value) && !brim_lab_wire_ref_of(value, out);
  json_decref(value);
  brim_free(text);
  brim_free(path);
  brim_status_clear();
  return good;
}

bool brim_exec_owed_find(const char *folder, brim_store_ref *out) {
  char **names = NULL;
  size_t count = 0;
  bool found = false;
  if (!brim_fs_is_dir(folder) || brim_fs_list(folder, &names, &count)) {
    brim_status_clear();
    return false;
  }
  for (size_t i = 0; !found && i < count; i++) {
    found = brim_str_starts(names[i], "attempt-") && brim_str_ends(names[i], owed_suffix) &&
            read_owed(folder, names[i], out);
  }
  brim_fs_list_free(names, count);
  return found;
}

//------------------------------------------- sending -------------------------------------------
// Sends the files of an attempt to the server, in a thread with a connection of its own, so that neither the
// training nor the beats wait for it. Checkpoints are opened when they are found: the training may replace
// them meanwhile. One that waits is replaced by a newer one; one that has begun is sent to its end.

enum {
  FILES_CONNECT_MS = 3000,
  FILES_LOOK_MS = 1000,  // the log is looked at this often
  FIRST_PAUSE_MS = 200,
  LAST_PAUSE_MS = 10000,
  RECORD_MOST = 16 << 20,  // a longer record is sent at the end only
};
static const int64_t MS = 1000000;

// In the order in which they are sent: a checkpoint counts when the best one and the record that belong to
// it are there.
enum { RECORD, BEST, LAST, SET };
static const char *const set_names[SET] = {"record", "best", "checkpoint"};

typedef struct set {
  int fds[SET];  // -1 = none
  int64_t step;
} set;

struct brim_exec_files {
  brim_store_ref ref;
  const char *folder;  // borrowed
  brim_http_client *client;
  brim_thread *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // Under the mutex.
  set found, waiting;  // found: not offered yet
  bool ending;         // what is left is sent, and then it is done
  bool done;           // all of it, but for what the server does not take
  bool stale;
  int64_t step;        // of the last checkpoint that the server has; -1 = none
  int64_t trouble_ns;  // since when nothing arrives; 0 = no trouble
  bool stop;           // also read without it
  // The thread's own.
  brim_lab_sending log;
  struct stat sent[SET];
  int64_t pause_ms;
};

static int open_named(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name);
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
  struct stat st;
  brim_free(path);
  if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static void clear_set(set *s) {
  for (int i = 0; i < SET; i++) {
    if (s->fds[i] >= 0) close(s->fds[i]);
    s->fds[i] = -1;
  }
  s->step = -1;
}

static bool has_set(const set *s) { return s->fds[LAST] >= 0; }

//---------------------------------- sending ----------------------------------

static bool is_passing(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
}

static bool stops(brim_exec_files *f) {
  pthread_mutex_lock(&f->mutex);
  bool stop = f->stop || f->stale;
  pthread_mutex_unlock(&f->mutex);
  return stop;
}

// Waits after a failure that may pass. False: to try again is no use.
static bool take_status(brim_exec_files *f, brim_status status, const char *name) {
  pthread_mutex_lock(&f->mutex);
  if (!status) f->trouble_ns = f->pause_ms = 0;
  if (status == BRIM_ESTATE) f->stale = true;
  if (is_passing(status)) {
    if (!f->trouble_ns) {
      f->trouble_ns = brim_clock_now().ns;
      brim_log_warn("lab", "%s waits: %s", name, brim_status_detail());
    }
    f->pause_ms = f->pause_ms ? 2 * f->pause_ms : FIRST_PAUSE_MS;
    if (f->pause_ms > LAST_PAUSE_MS) f->pause_ms = LAST_PAUSE_MS;
    int64_t until = brim_clock_now().ns + f->pause_ms * MS;
    while (!f->stop && brim_cond_wait(&f->wake, &f->mutex, until)) continue;
  } else if (status && status != BRIM_ESTATE) {
    brim_log_warn("lab", "the server does not take %s: %s", name, brim_status_detail());
  }
  bool go_on = !f->stop && !f->stale && (!status || is_passing(status));
  pthread_mutex_unlock(&f->mutex);
  brim_status_clear();
  return go_on;
}

// What was written since. One try; false: another may send the rest.
static bool send_log(brim_exec_files *f) {
  struct stat st;
  bool done = false;
  char name[64];
  if (f->log.fd < 0) {
    snprintf(name, sizeof name, "attempt-%" PRId64 ".log", f->ref.attempt);
    f->log.fd = open_named(f->folder, name);
    if (f->log.fd < 0 || brim_lab_sending_begin(&f->log, NULL)) return true;
  }
  if (f->log.again < 0 || fstat(f->log.fd, &st) != 0) return true;
  f->log.size = (int64_t)st.st_size;
  while (!done && f->log.have < f->log.size) {
    brim_status status = brim_lab_sending_next(f->client, &f->log, &done);
    bool passing = is_passing(status);
    bool go_on = take_status(f, status, f->log.kind->shown);
    if (status && !passing) f->log.again = -1;  // never again
    if (!go_on || passing) return !passing;
  }
  return true;
}

// The whole file, however long it takes. True: the server has it.
static bool send_file(brim_exec_files *f, const char *kind, int fd, int64_t step) {
  brim_lab_sending s = {.ref = f->ref, .kind = brim_lab_file_find(kind), .fd = fd, .step = step};
  brim_status status = brim_lab_sending_begin(&s, &f->stop);
  bool done = false;
  int64_t logged = brim_clock_now().ns;
  if (status) {
    (void)take_status(f, status, kind);
    return false;
  }
  while (!done) {
    status = brim_lab_sending_next(f->client, &s, &done);
    if (!take_status(f, status, s.kind->shown)) return false;
    if (brim_clock_now().ns - logged < FILES_LOOK_MS * MS) continue;
    logged = brim_clock_now().ns;
    if (!status) (void)send_log(f);  // people may be reading it
  }
  return true;
}

static bool is_sent(const brim_exec_files *f, int which, int fd) {
  struct stat st;
  const struct stat *old = &f->sent[which];
  return fstat(fd, &st) == 0 && st.st_ino == old->st_ino && st.st_size == old->st_size &&
         st.st_mtim.tv_sec == old->st_mtim.tv_sec && st.st_mtim.tv_nsec == old->st_mtim.tv_nsec;
}

static void send_set(brim_exec_files *f, set *s) {
  bool good = true;
  for (int i = 0; good && i < SET; i++) {
    struct stat st = {0};
    if (s->fds[i] < 0 || is_sent(f, i, s->fds[i]) || fstat(s->fds[i], &st) != 0) continue;
    if (i == RECORD && st.st_size > RECORD_MOST) continue;
    good = send_file(f, set_names[i], s->fds[i], i == LAST ? s->step : -1);
    if (good) f->sent[i] = st;
  }
  pthread_mutex_lock(&f->mutex);
  if (good && has_set(s)) f->step = s->step;
  pthread_mutex_unlock(&f->mutex);
  clear_set(s);
}

// What there is only at the end.
static void send_rest(brim_exec_files *f) {
  static const char *const names[] = {"weights", "record", "config"};
  for (size_t i = 0; !stops(f) && i < sizeof names / sizeof *names; i++) {
    int fd = open_named(f->folder, brim_lab_file_find(names[i])->local);
    if (fd < 0) continue;
    (void)send_file(f, names[i], fd, -1);
    close(fd);
  }
  while (!stops(f) && !send_log(f)) continue;
}

static void sending(void *arg) {
  brim_exec_files *f = (brim_exec_files *)arg;
  for (bool over = false; !over;) {
    set next = {{-1, -1, -1}, -1};
    pthread_mutex_lock(&f->mutex);
    int64_t until = brim_clock_now().ns + FILES_LOOK_MS * MS;
    while (!f->stop && !f->ending && !has_set(&f->waiting) &&
           brim_cond_wait(&f->wake, &f->mutex, until)) {
      continue;
    }
    bool ending = f->ending;
    if (has_set(&f->waiting)) {
      next = f->waiting;
      f->waiting = (set){{-1, -1, -1}, -1};
    }
    over = f->stop || f->stale;
    pthread_mutex_unlock(&f->mutex);
    if (!over) (void)send_log(f);
    if (!over && has_set(&next)) send_set(f, &next);
    clear_set(&next);
    if (!ending || over) continue;
    send_rest(f);
    over = true;
    pthread_mutex_lock(&f->mutex);
    f->done = !f->stop;
    pthread_mutex_unlock(&f->mutex);
  }
}

//---------------------------------- the executor's side ----------------------------------

brim_status brim_exec_files_open(const brim_lab_link *link, const char *folder,
                                 const brim_store_ref *ref, brim_exec_files **out) {
  const char *url = brim_lab_link_server(link);
  *out = NULL;
  if (!url) return BRIM_OK;
  brim_exec_files *f = brim_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  f->ref = *ref;
  f->folder = folder;
  f->found = f->waiting = (set){{-1, -1, -1}, -1};
  f->step = -1;
  f->log = (brim_lab_sending){
      .ref = *ref, .kind = brim_lab_file_find("log"), .fd = -1, .step = -1, .have = -1};
  pthread_mutex_init(&f->mutex, NULL);
  if (brim_cond_init(&f->wake)) {
    pthread_mutex_destroy(&f->mutex);
    brim_free(f);
    return brim_fail(BRIM_EIO, "cannot start a thread for the files of an experiment");
  }
  brim_status status = brim_lab_http_open(url, FILES_CONNECT_MS, &f->client);
  if (!status) status = brim_thread_start(sending, f, "brim-files", &f->thread);
  if (!status) {
    *out = f;
    return BRIM_OK;
  }
  brim_exec_files_close(f);
  return status;
}

void brim_exec_files_look(brim_exec_files *f) {
  set s = {{-1, -1, -1}, -1};
  s.fds[LAST] = open_named(f->folder, brim_lab_file_find(set_names[LAST])->local);
  s.fds[BEST] = open_named(f->folder, brim_lab_file_find(set_names[BEST])->local);
  s.fds[RECORD] = open_named(f->folder, brim_lab_file_find(set_names[RECORD])->local);
  if (s.fds[LAST] >= 0) s.step = brim_exec_checkpoint_step(s.fds[LAST]);
  clear_set(&f->found);
  f->found = s;
}

void brim_exec_files_offer(brim_exec_files *f) {
  if (!has_set(&f->found)) return;
  pthread_mutex_lock(&f->mutex);
  clear_set(&f->waiting);
  f->waiting = f->found;
  f->found = (set){{-1, -1, -1}, -1};
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

int64_t brim_exec_files_step(brim_exec_files *f) {
  pthread_mutex_lock(&f->mutex);
  int64_t step = f->step;
  pthread_mutex_unlock(&f->mutex);
  return step;
}

void brim_exec_files_finish(brim_exec_files *f) {
  brim_exec_files_offer(f);
  pthread_mutex_lock(&f->mutex);
  f->ending = true;
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

brim_exec_files_state brim_exec_files_ask(brim_exec_files *f, int64_t patience_ms) {
  pthread_mutex_lock(&f->mutex);
  int64_t now = brim_clock_now().ns;
  bool tired = f->trouble_ns && now - f->trouble_ns > patience_ms * MS;
  brim_exec_files_state state = f->stale  ? BRIM_EXEC_FILES_STALE
                                : f->done ? BRIM_EXEC_FILES_DONE
                                : tired   ? BRIM_EXEC_FILES_LATER
                                          : BRIM_EXEC_FILES_BUSY;
  pthread_mutex_unlock(&f->mutex);
  return state;
}

void brim_exec_files_close(brim_exec_files *f) {
  if (!f) return;
  pthread_mutex_lock(&f->mutex);
  __atomic_store_n(&f->stop, true, __ATOMIC_RELAXED);
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
  brim_thread_join(f->thread);
  clear_set(&f->found);
  clear_set(&f->waiting);
  if (f->log.fd >= 0) close(f->log.fd);
  brim_http_client_close(f->client);
  pthread_cond_destroy(&f->wake);
  pthread_mutex_destroy(&f->mutex);
  brim_free(f);
}
