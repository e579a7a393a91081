// Temporaries that a killed process left beside a target, TARGET.tmp.PID.N: removed by the next one
// that writes this target. A living process holds its own by a lock, which also tells one of another
// machine or container. Of a folder only what we write ourselves goes, entry by entry.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/pack/data_pack_int.h"

int brim_pack_hold(const char *temp) {
  int fd = open(temp, O_RDONLY | O_CLOEXEC);
  // shared, as libhdf5 locks a file that it reads
  if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// No process holds it; where the file system has no locks that cannot be known.
static bool is_free(const char *path, bool folder) {
  int fd = open(path, (folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return locked;
}

typedef struct stale_set {
  size_t root;  // length of its path
  int64_t pid;
  dev_t dev;
  bool remove;
} stale_set;

// What a pack makes, or the temporary of one of its files.
static bool is_made(const stale_set *s, const char *inner, bool folder) {
  char name[4096];
  size_t n = strlen(inner), target;
  const char *base = brim_fs_basename(inner);
  if (!folder && brim_fs_temp_writer(base, &target) == s->pid) n = (size_t)(base - inner) + target;
  if (n >= sizeof name) return false;
  memcpy(name, inner, n);
  name[n] = '\0';
  for (int f = BRIM_PACK_IDX; f < BRIM_PACK_FORMAT_COUNT; f++) {
    if (brim_pack_is_ours((brim_pack_format)f, name, folder)) return true;
  }
  return false;
}

static brim_status visit(void *ctx, const char *path, const struct stat *st) {
  const stale_set *s = ctx;
  bool folder = S_ISDIR(st->st_mode), root = strlen(path) == s->root;
  if ((!folder && !S_ISREG(st->st_mode)) || st->st_dev != s->dev ||
      (!root && !is_made(s, path + s->root + 1, folder))) {
    return brim_fail(BRIM_EEXIST, "%s is not brim's", path);
  }
  if (!s->remove || (folder ? rmdir(path) : unlink(path)) == 0) return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s stays", path);
}

static void remove_set(const char *path, int64_t pid, const struct stat *st) {
  stale_set s = {.root = strlen(path), .pid = pid, .dev = st->st_dev};
  brim_status status = brim_pack_walk(path, 0, visit, &s);
  s.remove = true;
  if (!status) status = brim_pack_walk(path, 0, visit, &s);
  if (status) {
    brim_log_info("data", "cannot remove %s, which a terminated process left: %s", path,
                  brim_status_detail());
    brim_status_clear();  // tidying up is not what was asked for
  } else {
    brim_log_info("data", "removed %s, which a terminated process left", path);
  }
}

void brim_data_remove_stale(const char *target_path, bool folder) {
  const char *base = brim_fs_basename(target_path);
  char *dir = brim_fs_dirname(target_path), **names = NULL;
  size_t count = 0;
  if (!dir || brim_fs_list(dir, &names, &count)) brim_status_clear();
  for (size_t i = 0; i < count; i++) {
    size_t target;
    struct stat st;
    int64_t pid = brim_fs_temp_writer(names[i], &target);
    if (!pid || target != strlen(base) || strncmp(names[i], base, target) != 0) continue;
    // in a container every process may have the same number
    if (pid != getpid() && !brim_fs_writer_gone(pid)) continue;
    char *path = brim_fs_join(dir, names[i]);
    if (path && lstat(path, &st) == 0 && (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)) &&
        is_free(path, folder)) {
      remove_set(path, pid, &st);
    }
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  brim_free(dir);
}
