// Files of an earlier run of a command are kept beside the new ones: results.jsonl as results-1.jsonl.
#include "cli/job/cli_aside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cli/cli.h"

static bool is_regular(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// The ending with its dot; of trace.json.gz both.
static const char *ending_of(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.'), *end = name + strlen(name);
  if (!dot) return end;
  if (strcmp(dot, ".gz") != 0) return dot;
  for (const char *p = dot; p > name; p--) {
    if (p[-1] == '.') return p - 1;
  }
  return dot;
}

// "runs/bench/results.jsonl", 1 -> "runs/bench/results-1.jsonl"
static brim_status aside_name(const char *path, int number, brim_str *out) {
  const char *ending = ending_of(path);
  brim_str_append_n(out, path, (size_t)(ending - path));
  brim_str_printf(out, "-%d%s", number, ending);
  return brim_str_status(out);
}

static bool is_taken(const char *name, const char *const *outputs, size_t output_count) {
  bool taken = brim_fs_exists(name);
  for (size_t i = 0; i < output_count && !taken; i++) {
    taken = outputs[i] && brim_cli_same_target(name, outputs[i]);
  }
  return taken;
}

// The first number that none of the files has a namesake for, so that one run keeps one number.
static brim_status free_number(const char *const *paths, size_t count, const char *const *outputs,
                               size_t output_count, int *out) {
  for (int number = 1;; number++) {
    bool taken = false;
    for (size_t i = 0; i < count; i++) {
      brim_str name;
      brim_str_init(&name);
      brim_status status = paths[i] ? aside_name(paths[i], number, &name) : BRIM_OK;
      if (!status && paths[i]) taken = taken || is_taken(name.data, outputs, output_count);
      brim_str_deinit(&name);
      if (status) return status;
    }
    *out = number;
    if (!taken) return BRIM_OK;
  }
}

static brim_status copy_file(const char *from, const char *to) {
  char *data = NULL;
  size_t size = 0;
  BRIM_TRY(brim_fs_read(from, 0, &data, &size));
  brim_status status = brim_fs_write(to, data, size);
  brim_free(data);
  return status;
}

// The config of this very command (bench runs/bench/best.yaml) is needed until the end: it is copied.
static brim_status put_one_aside(const char *path, int number, const char *input, char **kept) {
  brim_str name;
  brim_str_init(&name);
  brim_status status = aside_name(path, number, &name);
  bool copied = input && brim_fs_same(path, input);
  if (!status && copied) status = copy_file(path, name.data);
  if (!status && !copied && rename(path, name.data) != 0) {
    status = brim_fail(BRIM_EINVAL, "cannot keep the earlier %s as %s: %s", path, name.data,
                       brim_errno_text(errno));
  }
  if (!status && !*kept) {
    *kept = brim_strdup(name.data);
    if (!*kept) status = brim_fail(BRIM_ENOMEM, "out of memory for the name of %s", path);
  }
  brim_str_deinit(&name);
  return status;
}

brim_status brim_cli_put_aside(const char *const *paths, size_t count, const char *const *outputs,
                               size_t output_count, const char *input, char **kept) {
  int number;
  *kept = NULL;
  brim_status status = free_number(paths, count, outputs, output_count, &number);
  for (size_t i = 0; i < count && !status; i++) {
    if (paths[i] && is_regular(paths[i])) status = put_one_aside(paths[i], number, input, kept);
  }
  if (status) {
    brim_free(*kept);
    *kept = NULL;
  }
  return status;
}
