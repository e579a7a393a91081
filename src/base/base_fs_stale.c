// Temporaries that a killed process left in a folder: TARGET.tmp.PID.N, as base_fs_writer.c names
// them. Only those of processes that are gone are removed, and nothing else.
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"

static const char mark[] = BRIM_FS_TEMP_MARK;

// Digits from *at on as a number; -1 when there are none or too many.
static int64_t take_number(const char **at) {
  int64_t value = 0;
  int digits = 0;
  for (; isdigit((unsigned char)**at) && digits < 10; ++*at, digits++) {
    value = value * 10 + (**at - '0');
  }
  return digits ? value : -1;
}

int64_t brim_fs_temp_writer(const char *name, size_t *target) {
  const char *at = NULL;
  for (const char *p = strstr(name, mark); p; p = strstr(p + 1, mark)) at = p;
  if (!at || at == name) return 0;
  *target = (size_t)(at - name);
  at += sizeof mark - 1;
  int64_t pid = take_number(&at);
  if (pid <= 0 || pid > INT32_MAX || *at++ != '.') return 0;
  return take_number(&at) >= 0 && !*at ? pid : 0;
}

bool brim_fs_writer_gone(int64_t pid) { return kill((pid_t)pid, 0) != 0 && errno == ESRCH; }

// Of one target of the folder, or of all (NULL).
static void remove_in(const char *folder, const char *only) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(folder, &names, &count)) {
    brim_status_clear();  // tidying up is not what was asked for
    return;
  }
  for (size_t i = 0; i < count; i++) {
    size_t target;
    int64_t pid = brim_fs_temp_writer(names[i], &target);
    if (!pid || !brim_fs_writer_gone(pid)) continue;
    if (only && (strlen(only) != target || strncmp(names[i], only, target) != 0)) continue;
    char *path = brim_fs_join(folder, names[i]);
    struct stat st;
    if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
      if (brim_fs_remove(path)) {
        brim_status_clear();
      } else {
        brim_log_info("fs", "removed %s, which a terminated process left", path);
      }
    }
    brim_free(path);
  }
  brim_fs_list_free(names, count);
}

void brim_fs_remove_stale(const char *folder) { remove_in(folder, NULL); }

void brim_fs_remove_stale_of(const char *path) {
  char *folder = brim_fs_dirname(path);
  if (folder) remove_in(folder, brim_fs_basename(path));
  brim_free(folder);
}
