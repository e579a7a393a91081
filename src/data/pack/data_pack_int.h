// Inside the writers: the state they share and the table each format fills in.
#ifndef BRIM_DATA_PACK_INT_H_
#define BRIM_DATA_PACK_INT_H_

#include <sys/stat.h>

#include "data/data_int.h"
#include "data/pack/data_pack.h"

struct brim_pack {
  const struct brim_pack_writer *writer;
  brim_pack_options options;
  char *path;
  char *temp;   // file or folder
  int hold;     // keeps others from taking it for one that was left; -1 = none
  void *state;  // the writer's
  // The split being written.
  char split[16];
  brim_source_info info;
  size_t input_bytes, target_bytes;
  uint64_t written;
  bool open;  // between begin and end
  bool sealed;
};

// begin, put and end see split, info, sizes and written (before the block) filled in. close is
// called once, with `good` false on the way out of a failure.
typedef struct brim_pack_writer {
  brim_status (*open)(brim_pack *pack);
  brim_status (*begin)(brim_pack *pack);
  brim_status (*put)(brim_pack *pack, const void *inputs, const void *targets, uint64_t count);
  brim_status (*end)(brim_pack *pack);
  brim_status (*close)(brim_pack *pack, bool good);
  uint64_t (*granule)(const brim_pack *pack);  // NULL = 1
} brim_pack_writer;

extern const brim_pack_writer brim_pack_writer_hdf5;    // data_pack_hdf5.c
extern const brim_pack_writer brim_pack_writer_files;   // data_pack_files.c: IDX, CIFAR, STL-10
extern const brim_pack_writer brim_pack_writer_images;  // data_pack_files.c: PNG, JPEG

brim_status brim_pack_no_memory(const brim_pack *pack);

//---------------------------------- what was left ----------------------------------

// Temporaries of this target, of processes that are gone; what cannot be removed stays.
void brim_data_remove_stale(const char *path, bool folder);

//---------------------------------- the target ----------------------------------

// The mark in every folder set written by brim.
#define BRIM_PACK_MARK ".brim-dataset"

// Everything below a folder and the folder itself, children first; links are not followed.
typedef brim_status (*brim_pack_visit_fn)(void *ctx, const char *path, const struct stat *st);
// The temporary takes a name that nothing has yet: an errno, EEXIST where something does by now.
int brim_data_take_new(const char *temp, const char *path, bool folder);

#endif  // BRIM_DATA_PACK_INT_H_
