// The files that an attempt still has to send: attempt-N.files, {"ref": {"exp": ..., "attempt": N,
// "fence": N}}. It exists from the start of the attempt until the server has every file.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_exec_int.h"
#include "lab/lab_wire.h"

static const char suffix[] = ".files";

static char *owed_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, suffix);
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
    found = brim_str_starts(names[i], "attempt-") && brim_str_ends(names[i], suffix) &&
            read_owed(folder, names[i], out);
  }
  brim_fs_list_free(names, count);
  return found;
}
