// Inside data: the list of image files that the source `folder` reads, in one planned block.
#ifndef BRIM_DATA_FOLDER_H_
#define BRIM_DATA_FOLDER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_folder_dir {  // a folder with files in it
  uint64_t first;                 // its first file
  uint32_t name;                  // in text: path from the root, "" for the root itself
  int32_t label;                  // -1 = none
} brim_folder_dir;

typedef struct brim_folder_size {
  uint16_t height, width;  // 0 = not known: the file is broken
} brim_folder_size;

// Files by class, folder and name, each in the order of their bytes.
typedef struct brim_folder_list {
  void *block;  // all of the below (planned)
  size_t bytes;
  brim_folder_dir *dirs;
  brim_folder_size *sizes;  // one a file; zero at first
  uint32_t *names;          // one a file: in text, without the folder
  char *text;
  size_t dir_count;
  uint64_t count;
  int64_t classes;  // 0: the files lie in the bases themselves and have no class
} brim_folder_list;

// Every image below the bases (paths from the root; "" is the root), whose folders are the classes,
// numbered by name in the order of bytes over all bases together. Names that begin with a dot are
// skipped. A folder without images is a class in a split, and none in the root. limit 0 = all.
// numbered_by (NULL = none): the folders of this base number the classes instead (those of the training
// set, for the one base of another split); a class with images that it does not have is BRIM_EPARSE.
brim_status brim_folder_list_make(int root_fd, const char *root, const char *const *bases,
                                  size_t base_count, const char *numbered_by, uint64_t limit,
                                  brim_folder_list *out);
// Whether a folder of the root, or one below it, has an image: whether it is a class there.
brim_status brim_folder_has_images(const char *root, const char *name, bool *out);
// The folders of ROOT that hold a split. In data_folder_splits.c.
enum { BRIM_FOLDER_SPLITS = 9, BRIM_FOLDER_SPLIT_ROOM = 12 };
typedef struct brim_folder_splits {
  size_t count;
  struct {
    const char *split;                    // train, val, test or unlabeled
    char folder[BRIM_FOLDER_SPLIT_ROOM];  // as it is spelled
  } found[BRIM_FOLDER_SPLITS];
} brim_folder_splits;
// In the order train, val, test, unlabeled. None where ROOT/train is a class: it holds images itself
// and none below, beside folders of images that are no splits.
brim_status brim_folder_find_splits(const char *root, brim_folder_splits *out);
// The first folder of a split; for val, else one of test. NULL = there is none.
const char *brim_folder_split_of(const brim_folder_splits *splits, const char *split);
// Folders that were visited. In data_folder_seen.c.
typedef struct brim_folder_seen {
  struct {
    uint64_t dev, ino;
  } * slots;
  size_t count, room;
} brim_folder_seen;
brim_status brim_folder_seen_add(brim_folder_seen *seen, uint64_t dev, uint64_t ino, bool *was);
void brim_folder_seen_clear(brim_folder_seen *seen);
void brim_folder_seen_deinit(brim_folder_seen *seen);
// One file of the root, without a class.
brim_status brim_folder_list_one(const char *name, brim_folder_list *out);
// Of an open source: its files, and the path of its root.
const brim_folder_list *brim_source_folder_files(void *state, const char **root);
void brim_folder_list_free(brim_folder_list *list);
const brim_folder_dir *brim_folder_list_dir(const brim_folder_list *list, uint64_t index);
// Path of a file from the root; the length it would have, as snprintf.
size_t brim_folder_list_path(const brim_folder_list *list, uint64_t index, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_FOLDER_H_
