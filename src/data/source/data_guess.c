// Guesses the source for a path when the config names none, or the named one does not open: files by
// their signature, folders by the names in them. Whether the files are sound is found on opening. Data
// of other programs (CSV, Parquet) are recognised only to say how to convert them.
#include <string.h>
#include <strings.h>

#include "data/data_int.h"
#include "data/hdf5/data_hdf5.h"
#include "data/image/data_image.h"

//---------------------------------- files of other programs ----------------------------------

typedef struct foreign_kind {
  const char *ending;
  const char *magic;  // NULL = any content
  const char *name;
  const char *load;  // Python that makes x and y; %s is the file's name
} foreign_kind;

#define SPLIT_LAST_COLUMN "x, y = a[:, :-1], a[:, -1]"

static const foreign_kind foreign_kinds[] = {
    {".csv", NULL, "CSV",
     "a = numpy.genfromtxt('%s', delimiter=',', skip_header=1); " SPLIT_LAST_COLUMN},
    {".tsv", NULL, "TSV",
     "a = numpy.genfromtxt('%s', delimiter='\\t', skip_header=1); " SPLIT_LAST_COLUMN},
    {".parquet", "PAR1", "Parquet",
     "import pandas; a = pandas.read_parquet('%s').values; " SPLIT_LAST_COLUMN},
};

static const foreign_kind *foreign_kind_of_name(const char *name) {
  size_t n = strlen(name);
  for (size_t i = 0; i < sizeof foreign_kinds / sizeof *foreign_kinds; i++) {
    size_t k = strlen(foreign_kinds[i].ending);
    if (n > k && strcasecmp(name + n - k, foreign_kinds[i].ending) == 0) return &foreign_kinds[i];
  }
  return NULL;
}

static const foreign_kind *foreign_kind_of(const char *path) {
  const foreign_kind *kind = foreign_kind_of_name(brim_fs_basename(path));
  brim_data_file file;
  char got[8] = "";
  if (!kind || !kind->magic) return kind;
  size_t n = strlen(kind->magic);
  if (brim_data_file_open(path, &file)) {
    brim_status_clear();
    return NULL;
  }
  bool same =
      file.size >= n && !brim_data_file_read(&file, 0, got, n) && memcmp(got, kind->magic, n) == 0;
  brim_data_file_close(&file);
  brim_status_clear();
  return same ? kind : NULL;
}

static brim_status refuse(const char *path, const char *file, const foreign_kind *kind) {
  brim_str load;
  brim_str_init(&load);
  const char *gap = strstr(kind->load, "%s");
  brim_str_append_n(&load, kind->load, (size_t)(gap - kind->load));
  brim_str_append(&load, file);
  brim_str_append(&load, gap + 2);
  brim_status status = brim_str_status(&load);
  if (!status) {
    status = brim_fail(BRIM_EINVAL,
                       "%s: brim does not read %s files; convert it to HDF5 with Python: import "
                       "h5py, numpy; %s; f = h5py.File('data.h5', 'w'); f['x'] = x; f['y'] = y",
                       path, kind->name, load.data);
  }
  brim_str_deinit(&load);
  return status;
}

bool brim_source_is_foreign(const char *path) {
  return !brim_fs_is_dir(path) && foreign_kind_of(path) != NULL;
}

// Fails if the path is, or is a folder with, a file that brim_source_is_foreign.
static brim_status refuse_foreign(const char *path) {
  if (!brim_fs_is_dir(path)) {
    const foreign_kind *kind = foreign_kind_of(path);
    return kind ? refuse(path, path, kind) : BRIM_OK;
  }
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && !status; i++) {
    if (!foreign_kind_of_name(names[i])) continue;
    char *file = brim_fs_join(path, names[i]);
    if (!file) {
      status = brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
    } else if (foreign_kind_of(file)) {
      status = refuse(path, file, foreign_kind_of(file));
    }
    brim_free(file);
  }
  brim_fs_list_free(names, count);
  return status;
}

//---------------------------------- guessing ----------------------------------

enum {
  FOLDER_DEPTH = 3,     // train/cat/0001.jpg
  FOLDER_NAMES = 1000,  // names looked at per folder: enough to find one image
};

static const char looked_for[] = BRIM_N_(
    "HDF5 (a file, or train.h5 and val.h5), IDX (plain or gz), NumPy (.npy, .npz), CIFAR-10, "
    "CIFAR-100, STL-10 (binary), folders of images (JPEG, PNG, BMP, WebP)");

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
  BRIM_TRY(brim_data_gz_open(file, &gz));
  brim_status status = brim_data_gz_read(gz, magic, sizeof magic);
  brim_data_gz_close(gz);
  if (status == BRIM_ENOMEM) return status;
  *out = !status && is_idx_magic(magic);
  return BRIM_OK;
}

// Zip archives count only if they are named .npz: other programs write zip files too.
static brim_status is_numpy(const brim_data_file *file, bool *out) {
  uint8_t magic[8] = {0};
  BRIM_TRY(brim_data_file_read(file, 0, magic, file->size < 8 ? file->size : 8));
  *out = brim_npy_is(magic, sizeof magic) ||
         (brim_npz_is(magic, sizeof magic) && brim_str_ends(file->path, ".npz"));
  return BRIM_OK;
}

static brim_status guess_file(const char *path, brim_component *out) {
  brim_data_file file;
  bool hdf5 = false, idx = false, numpy = false;
  BRIM_TRY(brim_data_file_open(path, &file));
  brim_status status = is_hdf5(&file, &hdf5);
  if (!status && !hdf5) status = is_idx(&file, &idx);
  if (!status && !hdf5 && !idx) status = is_numpy(&file, &numpy);
  brim_data_file_close(&file);
  if (status) return status;
  if (!hdf5 && !idx && !numpy) {
    BRIM_TRY(refuse_foreign(path));
    return brim_fail(
        BRIM_EINVAL,
        "%s: not an HDF5, IDX or NumPy file; for CIFAR, STL-10 and images give the folder, or "
        "name the format: dataset=NAME (train, bench), --dataset NAME (init, data)",
        path);
  }
  set(out, hdf5 ? "hdf5" : idx ? "idx" : "numpy");
  return BRIM_OK;
}

//---------------------------------- folders ----------------------------------

// Names that only one source has, and the folders that archives unpack to.
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

// Finds an image in the folder or below it.
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
      if (status != BRIM_ENOMEM) status = BRIM_OK;  // skip a folder that cannot be read
    }
    brim_free(inner);
  }
  brim_fs_list_free(names, count);
  return status;
}

// Finds an HDF5 file in the folder itself; opening checks whether there are too many.
static brim_status find_hdf5(const char *path, bool *found) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  for (size_t i = 0; i < count && !*found; i++) *found = brim_hdf5_is_name(names[i]);
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

static brim_status find_numpy(const char *path, bool *found) {
  char **names;
  size_t count;
  BRIM_TRY(brim_fs_list(path, &names, &count));
  for (size_t i = 0; i < count && !*found; i++) {
    *found =
        names[i][0] != '.' && (brim_str_ends(names[i], ".npy") || brim_str_ends(names[i], ".npz"));
  }
  brim_fs_list_free(names, count);
  return BRIM_OK;
}

brim_status brim_source_guess(const char *path, brim_component *out) {
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL,
                     "no data: name a source (dataset=NAME) or a path (data.path) to %s",
                     brim_tr(looked_for));
  }
  if (!brim_fs_exists(path)) {
    return brim_fail(BRIM_ENOENT, "%s: no such file or folder; looked for %s", path,
                     brim_tr(looked_for));
  }
  if (!brim_fs_is_dir(path)) return guess_file(path, out);
  const char *source;
  bool image = false, hdf5 = false, numpy = false;
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
    BRIM_TRY(find_numpy(path, &numpy));
    if (numpy) source = "numpy";
  }
  if (!source) {
    BRIM_TRY(refuse_foreign(path));
    return brim_fail(BRIM_EINVAL,
                     "%s: no known data found; looked for %s. Convert other images to PNG, or name "
                     "the format: dataset=NAME (train, bench), --dataset NAME (init, data)",
                     path, brim_tr(looked_for));
  }
  set(out, source);
  return BRIM_OK;
}

//---------------------------------- the config named another source ----------------------------------

static const struct {
  const char *source, *file, *files;
} source_words[] = {
    {"hdf5", BRIM_N_("an HDF5 file"), BRIM_N_("HDF5 files")},
    {"idx", BRIM_N_("an IDX file"), BRIM_N_("IDX files")},
    {"numpy", BRIM_N_("a NumPy file"), BRIM_N_("NumPy files")},
    {"cifar10", BRIM_N_("a file of CIFAR-10"), BRIM_N_("files of CIFAR-10")},
    {"cifar100", BRIM_N_("a file of CIFAR-100"), BRIM_N_("files of CIFAR-100")},
    {"stl10", BRIM_N_("a file of STL-10"), BRIM_N_("files of STL-10")},
    {"folder", BRIM_N_("an image"), BRIM_N_("images")},
};

static bool is_source(const char *named, const char *source) {
  return strcmp(strcmp(named, "mnist") == 0 ? "idx" : named, source) == 0;
}

static size_t source_word_index(const char *source) {
  size_t i = 0;
  const size_t last = sizeof source_words / sizeof *source_words - 1;
  while (i < last && strcmp(source_words[i].source, source) != 0) i++;
  return i;
}

// The source that a file belongs to. Recognises by name also files that are only part of a source (a
// CIFAR or STL-10 file, an image). NULL = unknown.
static brim_status source_of_file(const char *path, const char **source) {
  const char *name = brim_fs_basename(path);
  brim_component guess;
  *source = NULL;
  brim_status status = guess_file(path, &guess);
  if (status == BRIM_ENOMEM) return status;
  if (!status) *source = guess.name;
  for (size_t i = 0; i < sizeof known_files / sizeof *known_files && !*source; i++) {
    if (strcmp(known_files[i].file, name) != 0 || !brim_str_ends(name, ".bin")) continue;
    *source = known_files[i].source;
  }
  if (!*source && brim_image_is_name(name)) *source = "folder";
  return BRIM_OK;
}

// True if the folder holds anything that the source `named` reads; then its error is about
// something else.
static brim_status is_plausible(const char *path, const char *named, bool *out) {
  *out = false;
  if (strcmp(named, "folder") == 0) return find_image(path, FOLDER_DEPTH, out);
  if (strcmp(named, "hdf5") == 0) BRIM_TRY(find_hdf5(path, out));
  if (strcmp(named, "numpy") == 0) BRIM_TRY(find_numpy(path, out));
  for (size_t i = 0; i < sizeof known_files / sizeof *known_files && !*out; i++) {
    if (!is_source(named, known_files[i].source)) continue;
    char *file = brim_fs_join(path, known_files[i].file);
    if (!file) return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
    *out = brim_fs_exists(file);
    brim_free(file);
  }
  return BRIM_OK;
}

static brim_status other_file(const char *path, const char *named, bool *reported) {
  const char *source;
  BRIM_TRY(source_of_file(path, &source));
  *reported = source && !is_source(named, source);
  if (!*reported) return BRIM_OK;
  bool alone =
      strcmp(source, "hdf5") == 0 || strcmp(source, "idx") == 0 || strcmp(source, "numpy") == 0;
  const char *what = brim_tr(source_words[source_word_index(source)].file);
  if (alone) {
    return brim_fail(BRIM_EINVAL,
                     "%s is %s, but dataset is %s; write dataset=%s, or omit dataset to detect it",
                     path, what, named, source);
  }
  return brim_fail(BRIM_EINVAL,
                   "%s is %s, but dataset is %s; write dataset=%s, and set data.path to its folder",
                   path, what, named, source);
}

static brim_status other_folder(const char *path, const char *named, const char *detail,
                                brim_status failed, bool *reported) {
  brim_component guess;
  bool plausible;
  BRIM_TRY(is_plausible(path, named, &plausible));
  if (plausible) return BRIM_OK;
  brim_status status = brim_source_guess(path, &guess);
  if (status == BRIM_ENOMEM) return status;
  *reported = !status && !is_source(named, guess.name);
  if (!*reported) return BRIM_OK;
  return brim_fail(failed, "%s; the folder holds %s: write dataset=%s, or omit dataset", detail,
                   brim_tr(source_words[source_word_index(guess.name)].files), guess.name);
}

brim_status brim_source_guess_other(const char *path, const char *named, brim_status failed) {
  char detail[1024];
  bool reported = false;
  if (strcmp(named, "synthetic") == 0 || failed == BRIM_ENOMEM || !path || !brim_fs_exists(path)) {
    return failed;
  }
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_status status = brim_fs_is_dir(path) ? other_folder(path, named, detail, failed, &reported)
                                            : other_file(path, named, &reported);
  if (status == BRIM_ENOMEM || reported) return status;
  brim_status_set_detail(detail);
  return failed;
}
