// Which process runs an experiment's folder. A process is its number and the moment it began, since
// numbers come again; both hold for one boot of the machine.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_exec_int.h"

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

void brim_exec_owner_clear(const char *folder) {
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
