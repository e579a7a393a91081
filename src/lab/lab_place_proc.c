// Whose process one is, by its parents in /proc.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/lab_place_int.h"

enum { MOST_PARENTS = 64 };

// 0 = unknown, or none.
static int64_t parent_of(const char *root, int64_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  if (!brim_machine_read_text(root, path, text, sizeof text)) return 0;
  // "71 (a name with ) and spaces) S 12 ...": the name is up to the last bracket
  const char *end = strrchr(text, ')');
  if (!end || strlen(end) < 5) return 0;
  return strtoll(end + 4, NULL, 10);
}

bool brim_lab_place_descends(const char *root, int64_t pid, const int64_t *roots, size_t count,
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
