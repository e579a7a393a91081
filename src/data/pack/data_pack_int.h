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
extern const brim_pack_writer brim_pack_writer_images;  // data_pack_images.c: PNG, JPEG

brim_status brim_pack_no_memory(const brim_pack *pack);

//---------------------------------- what was left (data_pack_stale.c) -----------------------------

// Temporaries of this target, of processes that are gone; what cannot be removed stays.
void brim_data_remove_stale(const char *path, bool folder);

//---------------------------------- the target (data_pack_target.c) -------------------------------

// The mark in every folder set written by brim.
#define BRIM_PACK_MARK ".brim-dataset"

// Everything below a folder and the folder itself, children first; links are not followed.
typedef brim_status (*brim_pack_visit_fn)(void *ctx, const char *path, const struct stat *st);
// The temporary takes a name that nothing has yet: an errno, EEXIST where something does by now.
int brim_data_take_new(const char *temp, const char *path, bool folder);

//---------------------------------- libhdf5 writing (data_pack_hdf5.c) ----------------------------

// libhdf5 writes through a driver of brim's own, which keeps errno when the system refuses a write.
typedef struct brim_hdf5_out {
  int fd;   // readable too: the library reads back what it wrote
  int err;  // errno of the first write that failed
  int64_t driver;
} brim_hdf5_out;

// Under the library's lock: creates the file at `path`, with out->fd its descriptor. Returns its
// handle; < 0 on failure (reason in out->err, or in the library).
int64_t brim_hdf5_out_create(brim_hdf5_out *out, const char *path);
// After H5Fclose, under the lock.
void brim_hdf5_out_close(brim_hdf5_out *out);
// Without the lock: writes until done or until the system refuses.
void brim_hdf5_out_write(brim_hdf5_out *out, const void *data, size_t size, uint64_t offset);
// Under the lock: a property list whose objects carry no time stamp, so that equal data give equal
// bytes.
int64_t brim_hdf5_out_timeless(int64_t plist_class);

#endif  // BRIM_DATA_PACK_INT_H_
