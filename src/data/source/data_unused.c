// What of a path is read and what by no split, so that a wrong guess is seen.
#include "data/source/data_unused.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data_int.h"
#include "data/hdf5/data_hdf5.h"

//---------------------------------- HDF5 ----------------------------------

static bool chosen(const brim_source *source, const brim_hdf5_entry *e) {
  const brim_hdf5_choice *choice;
  const brim_hdf5_file *file = brim_source_hdf5_file(source->state, &choice);
  (void)file;
  for (size_t i = 0; i < choice->input_count; i++) {
    if (strcmp(choice->inputs[i]->path, e->path) == 0) return true;
  }
  for (size_t i = 0; i < choice->target_count; i++) {
    if (strcmp(choice->targets[i]->path, e->path) == 0) return true;
  }
  if (e->numeric || e->rank != 1 || e->dim[0] != (uint64_t)source->info.classes) return false;
  for (const char *const *name = brim_hdf5_class_lists; *name; name++) {
    if (strcmp(e->path, *name) == 0) return true;
  }
  return false;
}

static const char *file_of(const brim_source *source) {
  const brim_hdf5_choice *choice;
  return brim_source_hdf5_file(source->state, &choice)->path;
}

static void add_entry(const brim_hdf5_entry *e, brim_unused *out) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "/%s (", e->path);
  for (int d = 0; d < e->rank && d < BRIM_HDF5_MAX_RANK; d++) {
    brim_str_printf(&text, "%s%" PRIu64, d ? " x " : "", e->dim[d]);
  }
  brim_str_printf(&text, "%s%s)", e->rank > 0 ? " " : "", e->type);
  brim_unused_add(out, text.data);
  brim_str_deinit(&text);
}

static void hdf5_unused(brim_source *const *sources, size_t count, brim_unused *out) {
  for (size_t i = 0; i < count; i++) {
    const brim_hdf5_choice *choice;
    const brim_hdf5_file *file = brim_source_hdf5_file(sources[i]->state, &choice);
    bool seen = false;
    for (size_t k = 0; k < i; k++) seen = seen || strcmp(file_of(sources[k]), file->path) == 0;
    for (size_t e = 0; e < file->entry_count && !seen; e++) {
      bool used = false;
      for (size_t k = 0; k < count && !used; k++) {
        used =
            strcmp(file_of(sources[k]), file->path) == 0 && chosen(sources[k], &file->entries[e]);
      }
      if (!used) add_entry(&file->entries[e], out);
    }
  }
}

brim_status brim_source_unused(brim_source *const *sources, size_t source_count, brim_str *out,
                               brim_source_left *left) {
  brim_unused unused = {.names = out};
  void *states[BRIM_UNUSED_SOURCES];
  *left = (brim_source_left){0};
  if (source_count == 0 || source_count > BRIM_UNUSED_SOURCES) return BRIM_OK;
  for (size_t i = 0; i < source_count; i++) {
    if (sources[i]->table != sources[0]->table) return BRIM_OK;
    states[i] = sources[i]->state;
  }
  if (sources[0]->table == &brim_source_hdf5) hdf5_unused(sources, source_count, &unused);
  if (sources[0]->table == &brim_source_folder) {
    BRIM_TRY(brim_folder_unused(states, source_count, &unused));
  }
  *left = (brim_source_left){unused.count, unused.files, unused.bytes};
  if (unused.count > BRIM_UNUSED_NAMED) {
    brim_str_printf(out, brim_tr(" and %zu more"), unused.count - BRIM_UNUSED_NAMED);
  }
  return brim_str_status(out);
}

bool brim_source_files(brim_source *const *sources, size_t source_count, uint64_t *files,
                       uint64_t *bytes) {
  const char *paths[BRIM_UNUSED_SOURCES * BRIM_SOURCE_FILES];
  size_t count = 0;
  *files = *bytes = 0;
  if (source_count == 0 || source_count > BRIM_UNUSED_SOURCES) return false;
  for (size_t i = 0; i < source_count; i++) {
    if (!sources[i]->files) return false;
    count += sources[i]->files(sources[i]->state, paths + count);
  }
  for (size_t i = 0; i < count; i++) {
    bool again = false;  // val is the test set of some
    for (size_t k = 0; k < i && !again; k++) again = strcmp(paths[i], paths[k]) == 0;
    struct stat st;
    if (again || stat(paths[i], &st) != 0) continue;
    *files += 1;
    *bytes += (uint64_t)st.st_size;
  }
  return true;
}
