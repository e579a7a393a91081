// Which source a path is for, when nobody said: files by their signature, folders by the names of
// what lies in them. Only looks; whether the files are sound is found out on opening.
#include <string.h>

#include "data/data_hdf5.h"
#include "data/data_image.h"

enum {
  FOLDER_DEPTH = 3,     // train/cat/0001.jpg
  FOLDER_NAMES = 1000,  // of a folder are looked at: enough to find one image
};

static const char looked_for[] =
    "an HDF5 file or a folder of train.h5 and val.h5, IDX files (plain or gz), CIFAR-10, CIFAR-100 "
    "or STL-10 binary files, or folders "
    "of JPEG or PNG images";

static void set(brim_component *out, const char *name) {
  memset(out, 0, sizeof *out);
  out->name = name;
}

//---------------------------------- files ----------------------------------

// HDF5 may begin behind a user block of 512, 1024, 2048, ... bytes.
static brim_status is_hdf5(const brim_data_file *file, bool *out) {
  static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  uint8_t got[8];
  *out = false;
  for (size_t at = 0; file->size >= 8 && at <= file->size - 8; at = at ? 2 * at : 512) {
    BRIM_TRY(brim_data_file_read(file, at, got, sizeof got));
    if (memcmp(got, signature, sizeof got) == 0) {
      *out = true;
      return BRIM_OK;
    }
  }
  return BRIM_OK;
}

static bool is_idx_magic(const uint8_t magic[4]) {
  static const uint8_t types[] = {0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e};
  return magic[0] == 0 && magic[1] == 0 && memchr(types, magic[2], sizeof types) && magic[3] >= 1 &&
         magic[3] <= 4;
}

static brim_status is_idx(const brim_data_file *file, bool *out) {
  uint8_t magic[4];
  *out = false;
  if (file->size < sizeof magic) return BRIM_OK;
  BRIM_TRY(brim_data_file_read(file, 0, magic, sizeof magic));
  if (!brim_data_is_gz(magic, sizeof magic)) {
    *out = is_idx_magic(magic);
    return BRIM_OK;
  }
  brim_data_gz *gz;
  BRIM_TRY(brim_data_gz_open_file(file, &gz));
  brim_status status = brim_data_gz_read(gz, magic, sizeof magic);
  brim_data_gz_close(gz);
  if (status == BRIM_ENOMEM) return status;
  *out = !status && is_idx_magic(magic);
  return BRIM_OK;
}

static brim_status guess_file(const char *path, brim_component *out) {
  brim_data_file file;
  bool hdf5 = false, idx = false;
  BRIM_TRY(brim_data_file_open(path, &file));
  brim_status status = is_hdf5(&file, &hdf5);
  if (!status && !hdf5) status = is_idx(&file, &idx);
  brim_data_file_close(&file);
  if (status) return status;
  if (!hdf5 && !idx) {
    return brim_fail(BRIM_EINVAL,
                     "%s: neither an HDF5 nor an IDX file; of CIFAR, STL-10 and images name the "
                     "folder, or say what it is with dataset=NAME",
                     path);
  }
  set(out, hdf5 ? "hdf5" : "idx");
  return BRIM_OK;
}

//---------------------------------- folders ----------------------------------

// Names that only one source has. A folder in which the archive was unpacked counts like its own.
static const struct {
  const char *file, *source;
} known_files[] = {
    {"train-images-idx3-ubyte", "idx"},
    {"train-images-idx3-ubyte.gz", "idx"},
    {"train-images.idx3-ubyte", "idx"},
    {"train-images.idx3-ubyte.gz", "idx"},
    {"t10k-images-idx3-ubyte", "idx"},
    {"t10k-images-idx3-ubyte.gz", "idx"},
    {"t10k-images.idx3-ubyte", "idx"},
    {"t10k-images.idx3-ubyte.gz", "idx"},
    {"data_batch_1.bin", "cifar10"},
    {"test_batch.bin", "cifar10"},
    {"cifar-10-batches-bin", "cifar10"},
    {"cifar-100-binary", "cifar100"},
    {"fine_label_names.txt", "cifar100"},
    {"train.bin", "cifar100"},
    {"test.bin", "cifar100"},
    {"stl10_binary", "stl10"},
    {"train_X.bin", "stl10"},
    {"test_X.bin", "stl10"},
    {"unlabeled_X.bin", "stl10"},
    {"train.h5", "hdf5"},
    {"train.hdf5", "hdf5"},
    {"val.h5", "hdf5"},
    {"val.hdf5", "hdf5"},
    {"test.h5", "hdf5"},
    {"test.hdf5", "hdf5"},
};

static brim_status find_known(const char *path, const char **source) {
  *source = NULL;
  for (size_t i = 0; i < sizeof known_files / sizeof *known_files && !*source; i++) {
    char *file = brim_fs_join(path, known_files[i].file);
    if (!file) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
    if (brim_fs_exists(file)) *source = known_files[i].source;
    brim_free(file);
  }
  return BRIM_OK;
}

// An image in the folder or below it.
static brim_status find_image(const char *path, int depth, bool *found) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  brim_status status = BRIM_OK;
  size_t some = count < FOLDER_NAMES ? count : FOLDER_NAMES;
  for (size_t i = 0; i < some && !*found; i++) *found = brim_image_is_name(names[i]);
  for (size_t i = 0; i < some && !*found && !status && depth > 1; i++) {
    if (names[i][0] == '.') continue;
    char *inner = brim_fs_join(path, names[i]);
    if (!inner) {
      status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
    } else if (brim_fs_is_dir(inner)) {
      status = find_image(inner, depth - 1, found);
      if (status != BRIM_ENOMEM) status = BRIM_OK;  // one that may not be read is no image
    }
    brim_free(inner);
  }
  brim_fs_list_free(names, count);
  return status;
}

// An HDF5 file in the folder itself; whether there are too many of them is found out on opening.
static brim_status find_hdf5(const char *path, bool *found) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  for (size_t i = 0; i < count && !*found; i++) *found = brim_hdf5_is_name(names[i]);
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

brim_status brim_source_guess(const char *path, brim_component *out) {
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL,
                     "no data: name a source (dataset=NAME) or a path (data.path) to %s",
                     looked_for);
  }
  if (!brim_fs_exists(path)) {
    return brim_fail(BRIM_ENOENT, "%s: no such file or folder; looked for %s", path, looked_for);
  }
  if (!brim_fs_is_dir(path)) return guess_file(path, out);
  const char *source;
  bool image = false, hdf5 = false;
  BRIM_TRY(find_known(path, &source));
  if (!source) {
    BRIM_TRY(find_image(path, FOLDER_DEPTH, &image));
    if (image) source = "folder";
  }
  if (!source) {
    BRIM_TRY(find_hdf5(path, &hdf5));
    if (hdf5) source = "hdf5";
  }
  if (!source) {
    return brim_fail(
        BRIM_EINVAL,
        "%s: nothing known lies there; looked for %s. Say what it is with dataset=NAME", path,
        looked_for);
  }
  set(out, source);
  return BRIM_OK;
}
