// Setting keys in a config file where they stand: comments, order, quoting, indentation and line
// ends stay as they are. A comment behind a changed value goes where it names the old value ("64 fits
// 8 GB" behind 64). Called by `brim bench --apply`.
#ifndef BRIM_CONFIG_EDIT_H_
#define BRIM_CONFIG_EDIT_H_

#include "config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

// One key and what it shall be. The edited file resolves to what the file as it was resolves to with
// the override key=value; where that cannot be had by touching this key alone the edit is refused.
typedef struct brim_config_edit {
  const char *key;    // canonical name, alias, or a path into a component ("model.depth")
  const char *value;  // as in an override: YAML, on one line
} brim_config_edit;

// What an edit did; texts are owned.
typedef struct brim_config_edit_result {
  char *before, *after;
  size_t before_size, after_size;
  bool changed;
} brim_config_edit_result;

// The file `path`, edited in memory; nothing is written. A key is edited where this file gives it,
// under whatever spelling; a key that it does not give (or gets from an include, a preset or a merge
// key) is added to its section, or in a new section at the end. BRIM_EINVAL with file and line for a
// place that cannot be edited without changing something else.
brim_status brim_config_edit_preview(const char *path, const brim_config_edit *edits, size_t count,
                                     brim_config_edit_result *out);
// The same, and the file is replaced, whole or not at all: permissions stay, a symbolic link is
// followed. A file that says it all already is not touched. `out` may be NULL.
brim_status brim_config_edit_file(const char *path, const brim_config_edit *edits, size_t count,
                                  brim_config_edit_result *out);
// Could that replace the file? For callers that edit later; BRIM_EINVAL when not. Nothing is
// written.
brim_status brim_config_edit_check(const char *path);
void brim_config_edit_result_deinit(brim_config_edit_result *result);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_CONFIG_EDIT_H_
