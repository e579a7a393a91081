// Which files of a folder of images no split reads. Looks at names only; called by `info` and `init`.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "data/image/data_folder.h"
#include "data/image/data_image.h"
#include "data/pack/data_pack_int.h"
#include "data/source/data_unused.h"

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "folder: out of memory"); }

typedef struct hunt {
  const char *root;
  const brim_folder_list *lists[BRIM_UNUSED_SOURCES];
  size_t list_count;
  const char **read_dirs;  // sorted
  size_t read_count;
  int hidden;  // folders above whose names begin with a dot: nothing in them is named
  brim_unused *out;
} hunt;

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static brim_status gather_dirs(hunt *h) {
  size_t n = 0;
  for (size_t i = 0; i < h->list_count; i++) n += h->lists[i]->dir_count;
  h->read_dirs = brim_calloc(n + 1, sizeof *h->read_dirs);
  if (!h->read_dirs) return no_memory();
  for (size_t i = 0; i < h->list_count; i++) {
    const brim_folder_list *l = h->lists[i];
    for (size_t d = 0; d < l->dir_count; d++) {
      h->read_dirs[h->read_count++] = l->text + l->dirs[d].name;
    }
  }
  qsort(h->read_dirs, h->read_count, sizeof *h->read_dirs, by_text);
  return BRIM_OK;
}

// `inner` is the path from the root on, "" for the root. Links to folders are not followed: what lies
// behind one is not counted, so that a loop of links ends.
static brim_status hunt_in(hunt *h, const char *inner) {
  char **names;
  size_t count;
  char *folder = inner[0] ? brim_fs_join(h->root, inner) : brim_strdup(h->root);
  if (!folder) return no_memory();
  brim_status status = brim_fs_list(folder, &names, &count);
  if (status) {  // one that may not be read
    brim_free(folder);
    return status == BRIM_ENOMEM ? status : BRIM_OK;
  }
  bool read = bsearch(&inner, h->read_dirs, h->read_count, sizeof *h->read_dirs, by_text) != NULL;
  for (size_t i = 0; i < count && !status; i++) {
    bool hidden = names[i][0] == '.';
    char *path = inner[0] ? brim_fs_join(inner, names[i]) : brim_strdup(names[i]);
    char *full = brim_fs_join(folder, names[i]);
    struct stat st;
    if (!path || !full) {
      status = no_memory();
    } else if (lstat(full, &st) == 0) {
      bool used = read && brim_image_is_name(names[i]);
      if (S_ISDIR(st.st_mode)) {
        h->hidden += hidden;
        status = hunt_in(h, path);
        h->hidden -= hidden;
      } else if ((hidden || !used) &&
                 (S_ISREG(st.st_mode) || (S_ISLNK(st.st_mode) && !brim_fs_is_dir(full)))) {
        if (!hidden && !h->hidden) brim_unused_add(h->out, path);
        // as brim_data_disk_bytes counts: a link by what it leads to
        bool mark = strcmp(names[i], BRIM_PACK_MARK) == 0;
        if (!mark && stat(full, &st) == 0 && S_ISREG(st.st_mode)) {
          h->out->files++;
          h->out->bytes += (uint64_t)st.st_size;
        }
      }
    }
    brim_free(path);
    brim_free(full);
  }
  brim_fs_list_free(names, count);
  brim_free(folder);
  return status;
}

brim_status brim_folder_unused(void *const *states, size_t count, brim_unused *out) {
  hunt h = {.out = out};
  for (size_t i = 0; i < count && i < BRIM_UNUSED_SOURCES; i++) {
    const brim_folder_list *list = brim_source_folder_files(states[i], &h.root);
    if (list->dir_count == 1 && list->count == 1 && !list->classes) return BRIM_OK;  // one image
    h.lists[h.list_count++] = list;
  }
  brim_status status = gather_dirs(&h);
  if (!status) status = hunt_in(&h, "");
  brim_free(h.read_dirs);
  return status;
}
