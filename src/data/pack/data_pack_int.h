// Inside the writers: the state they share, and the table of functions of each format.
#ifndef BRIM_DATA_PACK_INT_H_
#define BRIM_DATA_PACK_INT_H_

#include <sys/stat.h>

#include "data/data_int.h"
#include "data/pack/data_pack.h"

struct brim_pack {
  const struct brim_pack_writer *writer;
  brim_pack_options options;
  char *path;
  char *temp;   // path of the temporary, a file or folder
  int hold;     // descriptor with a lock, so that no process removes `temp` as stale; -1 = none
  void *state;  // of the writer
  // The split being written.
  char split[16];
  brim_source_info info;
  size_t input_bytes, target_bytes;
  uint64_t written;
  bool open;    // between begin and end
  bool sealed;  // close was called
};

// During begin, put and end the members split, info, input_bytes and target_bytes are set, and `written`
// counts the samples before this call. close is called once; `good` is false after a failure.
typedef struct brim_pack_writer {
  brim_status (*open)(brim_pack *pack);
  brim_status (*begin)(brim_pack *pack);
  brim_status (*put)(brim_pack *pack, const void *inputs, const void *targets, uint64_t count);
  brim_status (*end)(brim_pack *pack);
  brim_status (*close)(brim_pack *pack, bool good);
  uint64_t (*granule)(const brim_pack *pack);  // brim_pack_granule; NULL = 1
} brim_pack_writer;

extern const brim_pack_writer brim_pack_writer_hdf5;    // data_pack_hdf5.c
extern const brim_pack_writer brim_pack_writer_files;   // data_pack_files.c: IDX, CIFAR, STL-10
extern const brim_pack_writer brim_pack_writer_images;  // data_pack_files.c: PNG, JPEG

brim_status brim_pack_no_memory(const brim_pack *pack);

//---------------------------------- stale temporaries ----------------------------------

// Removes temporaries of this target that ended processes left behind. Failures are only logged.
void brim_data_remove_stale(const char *path, bool folder);

//---------------------------------- the target ----------------------------------

// Name of the file that marks a folder as a data set written by brim.
#define BRIM_PACK_MARK ".brim-dataset"

// Called for everything below a folder and for the folder itself, children first. Links are not followed.
typedef brim_status (*brim_pack_visit_fn)(void *ctx, const char *path, const struct stat *st);
// Renames a temporary to a name that must be free. Returns an errno; EEXIST if the name is taken.
int brim_data_take_new(const char *temp, const char *path, bool folder);

#endif  // BRIM_DATA_PACK_INT_H_
