// Inside data: the built-in sources, what their files share (arguments, classes, files, gzip), and the
// formats that have tests of their own.
#ifndef BRIM_DATA_INT_H_
#define BRIM_DATA_INT_H_

#include "data/data.h"

//---------------------------------- built-in sources ----------------------------------

// What no split of a data set reads: counts, and the first names.
enum {
  BRIM_UNUSED_SOURCES = 8,  // most splits that are compared
  BRIM_UNUSED_NAMED = 12    // names listed
};
typedef struct brim_unused {
  brim_str *names;  // "a.txt, b/c.csv"
  size_t count;
  uint64_t files, bytes;  // bytes of files only
} brim_unused;
void brim_unused_add(brim_unused *unused, const char *name);

// What a built-in source offers beyond the table of plug-ins. Every member but `table` is optional.
typedef struct brim_source_builtin {
  const brim_source_table *table;
  uint64_t (*host_bytes)(void *state);  // memory to plan for
  // brim_source_stream with the table's sample numbers; `next` is always valid.
  brim_status (*stream)(void *state, uint64_t index, uint64_t next, void *input, void *target);
  // brim_source_rows_of, and brim_source_target with the table's sample numbers. A source has both
  // members or none.
  bool (*rows)(void *state, brim_source_rows *out);
  brim_status (*target)(void *state, uint64_t index, void *target);
  void (*describe_target)(void *state, uint64_t index, int64_t value, char *text, size_t size);
  // The class of a sample without reading it; NULL if that is not cheap.
  int64_t (*label)(const void *state, uint64_t index);
  bool (*binary_targets)(void *state);
  // True if val reads the test split because this set has no val split.
  bool (*val_is_test)(void *state);
  bool no_val;  // the format has no val split: val always reads the test split
  // Returns the number of files that the source reads, and their paths. Absent if they may be many.
  size_t (*files)(void *state, const char *paths[BRIM_SOURCE_FILES]);
  // Names of the classes of text labels, info.classes of them; NULL if the labels are not text.
  const char *const *(*class_names)(void *state);
  // Adds to `out` what none of these sources, splits of one data set, reads.
  brim_status (*unused)(void *const *states, size_t count, brim_unused *out);
} brim_source_builtin;

extern const brim_source_table brim_source_idx, brim_source_cifar10, brim_source_cifar100,
    brim_source_synthetic, brim_source_hdf5, brim_source_numpy, brim_source_stl10,
    brim_source_folder;
extern const brim_source_builtin brim_builtin_idx, brim_builtin_cifar10, brim_builtin_cifar100,
    brim_builtin_synthetic, brim_builtin_hdf5, brim_builtin_numpy, brim_builtin_stl10,
    brim_builtin_folder;

//---------------------------------- arguments ----------------------------------

// Writes the arguments of a component as JSON text, the form every source gets them in. brim_free *out.
brim_status brim_data_args_dump(const brim_component *component, char **out);

// Parses that text and refuses names that are not in `known` (NULL-terminated). `source` is for messages.
brim_status brim_data_args_parse(const char *source, const char *json, const char *const *known,
                                 json_t **out);
// Typed reads; an absent argument leaves *value as it is.
brim_status brim_data_args_int(const json_t *args, const char *source, const char *name,
                               int64_t min, int64_t max, int64_t *value);
brim_status brim_data_args_real(const json_t *args, const char *source, const char *name,
                                double min, double max, double *value);
brim_status brim_data_args_string(const json_t *args, const char *source, const char *name,
                                  const char **value);  // lives as long as args
// A whole number or a list of 1 to BRIM_SOURCE_MAX_RANK of them, each >= 1.
brim_status brim_data_args_shape(const json_t *args, const char *source, const char *name,
                                 int64_t dim[BRIM_SOURCE_MAX_RANK], int32_t *rank);
// Refuses a split that is not in `known` (NULL-terminated); the message lists the known splits.
brim_status brim_data_args_split(const char *source, const char *split, const char *const *known);

//---------------------------------- classes ----------------------------------

// Warns if more than half of the classes never occur although there are enough samples: usually one
// label is far too large. label(ctx, i) is the label of sample i, 0 to classes - 1.
void brim_data_warn_absent(const char *path, int64_t (*label)(const void *ctx, uint64_t i),
                           const void *ctx, uint64_t rows, int64_t classes);

// Decides whether whole numbers from `least` to `most` are values to predict (a year, a price) and
// not class numbers: some are below -1; or they do not start at 0 or 1 and take more than 20
// different values; or most lie far above the number of different values. BRIM_ENOMEM is possible.
typedef struct brim_data_whole {
  int64_t (*value)(const void *ctx, uint64_t i);
  const void *ctx;
  uint64_t rows;
  int64_t least, most;
} brim_data_whole;
brim_status brim_data_are_values(const char *path, const brim_data_whole *whole, bool *out);

//---------------------------------- text labels ----------------------------------

// Names of classes, sorted by their bytes. numbers[i] is the class number of names[i]: while a training
// set is read the order of appearance, after brim_data_classes_fix i. Then no name can be added.
enum { BRIM_DATA_CLASS_BYTES = 255 };  // length of a name
typedef struct brim_data_classes {
  brim_arena *arena;
  const char **names;
  int32_t *numbers;
  size_t count, room;
  uint64_t rows;  // of the column
  uint64_t most;  // names allowed
  bool fixed;
  bool given;  // `most` is what the user says
} brim_data_classes;
// Prepares for a column of `rows` rows. given > 0 is the number of classes; otherwise more different
// names than half the rows (at least 10) or 65536 are refused: they are no classes.
void brim_data_classes_init(brim_data_classes *c, uint64_t rows, int64_t given);
void brim_data_classes_deinit(brim_data_classes *c);  // zeros are fine
// Looks up, or adds, the class named by n bytes of text (cut at a NUL) and returns its number. `what`
// names the column in messages.
brim_status brim_data_classes_label(brim_data_classes *c, const char *what, uint64_t row,
                                    const char *text, size_t n, int32_t *out);
brim_status brim_data_classes_fail_long(const char *what);
// Call after the last row: numbers the classes in the order of their names, and renumbers `labels`
// (c->rows of them, or NULL).
brim_status brim_data_classes_fix(brim_data_classes *c, const char *what, int64_t given,
                                  int32_t *labels);

// The class names by which an open source numbered its text labels; NULL if its labels are not text.
static inline const char *const *brim_source_text_classes(const brim_source *source) {
  const brim_source_builtin *own = source->builtin;
  return own && own->class_names ? own->class_names(source->state) : NULL;
}

//---------------------------------- normalisation ----------------------------------

// Where brim_data_measure reads the samples of a set. It sets info->mean and info->std per channel from
// integer sums, which are exact on every machine. Sets of other samples than bytes stay as they are.
typedef struct brim_data_measured {
  brim_status (*read)(const void *ctx, size_t offset, void *out, size_t n);
  const void *ctx;
  const char *path;
  size_t bytes;  // of all samples
  bool planes;   // stored channels first
} brim_data_measured;
brim_status brim_data_measure(brim_source_info *info, const brim_data_measured *measured);

//---------------------------------- files ----------------------------------

// A regular file that any thread reads at any offset. It is not mapped: if another process truncates
// the file, a read fails, but touching a mapping would kill the process.
typedef struct brim_data_file {
  const char *path;  // the caller's, for messages; NULL when nothing is open
  int fd;
  size_t size;  // when it was opened
} brim_data_file;
brim_status brim_data_file_open(const char *path, brim_data_file *out);
void brim_data_file_close(brim_data_file *file);  // an empty one is fine
// Reads exactly n bytes, or fails with the file and the offset where its data end.
brim_status brim_data_file_read(const brim_data_file *file, size_t offset, void *out, size_t n);

// Unpacks gzip from a file in pieces. The file must outlive the brim_data_gz.
typedef struct brim_data_gz brim_data_gz;
bool brim_data_is_gz(const void *data, size_t size);
brim_status brim_data_gz_open(const brim_data_file *file, brim_data_gz **out);
void brim_data_gz_close(brim_data_gz *gz);
// Reads exactly n unpacked bytes, or fails with the offset in the compressed file.
brim_status brim_data_gz_read(brim_data_gz *gz, void *out, size_t n);
// Fails unless everything was read; checks the checksum.
brim_status brim_data_gz_finish(brim_data_gz *gz);
// The most bytes that `size` bytes of gzip can unpack to (deflate's own limit).
uint64_t brim_data_gz_limit(size_t size);

//---------------------------------- IDX files ----------------------------------

// One IDX array. Its body is packed, row-major and big-endian, as in the file.
typedef struct brim_idx_array {
  brim_idx header;
  const uint8_t *body;  // NULL while the body stays in the file
  size_t body_bytes;
  void *memory;         // the allocation that holds the body; planned
  brim_data_file file;  // open while the body stays in the file
} brim_idx_array;
// Opens an array: gzip is unpacked into memory, a plain body stays in the file. The path must
// outlive the array.
brim_status brim_idx_array_open(const char *path, brim_idx_array *out);
// Reads the body into memory if it is still in the file.
brim_status brim_idx_array_keep(brim_idx_array *array);
// Frees the memory and closes the file.
void brim_idx_array_unload(brim_idx_array *array);

//---------------------------------- NumPy files ----------------------------------

enum { BRIM_NPY_MAX_RANK = 8, BRIM_NPY_HEAD = 4096 };

// One array in C order; numbers are little-endian.
typedef struct brim_npy {
  char kind;  // of an element: u, i, f, b (a byte, 0 or 1), S (bytes) or U (4-byte code points)
  bool big;   // kind U: the code points are big-endian
  int rank;
  size_t element_bytes;
  uint64_t dim[BRIM_NPY_MAX_RANK];
  size_t header_bytes;
  uint64_t body_bytes;
} brim_npy;
// Parses the header from the first `have` bytes (BRIM_NPY_HEAD or all) of a file of `size` bytes.
brim_status brim_npy_parse(const void *data, size_t have, uint64_t size, const char *name,
                           brim_npy *out);

// An array in a .npy file or in a member of a .npz file. A compressed member is unpacked into memory;
// any other stays in its file.
typedef struct brim_npy_array {
  brim_npy header;
  uint8_t *memory;  // planned; NULL while the body stays in the file
  uint64_t memory_bytes;
  uint64_t at;  // offset of the body in memory or in the file
  brim_data_file file;
} brim_npy_array;
typedef struct brim_npz_member {
  char *name;  // without .npy
  int method;
  uint32_t crc;
  uint64_t packed, unpacked;  // bytes
  uint64_t at;                // offset of its local header
} brim_npz_member;
bool brim_npy_is(const void *data, size_t size);
bool brim_npz_is(const void *data, size_t size);  // any zip archive
// Lists the arrays of an archive; free the list with brim_npz_free.
brim_status brim_npz_list(const char *path, brim_npz_member **out, size_t *count);
void brim_npz_free(brim_npz_member *members, size_t count);
// Opens an array; member NULL = the path is a .npy file. The path must outlive the array.
brim_status brim_npy_array_open(const char *path, const brim_npz_member *member,
                                brim_npy_array *out);
brim_status brim_npy_array_keep(brim_npy_array *array);
brim_status brim_npy_array_read(const brim_npy_array *array, size_t offset, void *out, size_t n);
void brim_npy_array_unload(brim_npy_array *array);

//---------------------------------- CIFAR files ----------------------------------

// A CIFAR file is records without a header: label bytes (CIFAR-100: coarse, fine), then the planes
// R, G, B of 32 x 32, row by row.
enum { BRIM_CIFAR_SIDE = 32, BRIM_CIFAR_PLANE = 1024, BRIM_CIFAR_PIXELS = 3 * BRIM_CIFAR_PLANE };

typedef struct brim_cifar_format {
  const char *name;          // "cifar10"
  const char *folder;        // folder that the archive unpacks to
  const char *const *train;  // names of files, NULL-terminated
  const char *const *test;
  size_t label_bytes;      // label bytes of a record; the last is the label
  uint8_t label_below[2];  // limit of each label byte
  uint64_t records[2];     // of the original set: train, test
  float mean[3], std[3];
} brim_cifar_format;
extern const brim_cifar_format brim_cifar10_format, brim_cifar100_format;
size_t brim_cifar_record_bytes(const brim_cifar_format *format);
// Checks the labels of `count` records, read from `offset` of the file `path`, and copies them to
// `labels`.
brim_status brim_cifar_check(const brim_cifar_format *format, const uint8_t *records, size_t count,
                             const char *path, uint64_t offset, uint8_t *labels);
// Checks that a file of `size` bytes is a whole number of records, at least one.
brim_status brim_cifar_count(const brim_cifar_format *format, const char *path, size_t size,
                             uint64_t *count);
// Turns planes (3, 32, 32) into pixels (32, 32, 3).
void brim_cifar_interleave(const uint8_t *planes, uint8_t *pixels);

//---------------------------------- STL-10 files ----------------------------------

// An image file is records without a header: planes R, G, B of 96 x 96, each column by column. Labels
// lie in a file of their own, one byte an image, 1 to 10. fold_indices.txt has a line for each of ten
// folds: numbers of training images, counted from 0.
enum {
  BRIM_STL10_SIDE = 96,
  BRIM_STL10_PLANE = 9216,
  BRIM_STL10_IMAGE = 3 * BRIM_STL10_PLANE,
  BRIM_STL10_CLASSES = 10,
  BRIM_STL10_FOLDS = 10
};

// Checks that a file of `size` bytes is a whole number of images, at least one.
brim_status brim_stl10_count(const char *path, size_t size, uint64_t *count);
// Checks that the labels of the images from `first` on are 1 to 10, and turns them into 0 to 9.
brim_status brim_stl10_check_labels(uint8_t *labels, size_t count, const char *path,
                                    uint64_t first);
// Reads line `fold` of the text: at most `images` numbers, each below `images`, into `out`.
brim_status brim_stl10_read_fold(const char *text, size_t size, const char *path, int64_t fold,
                                 uint64_t images, uint32_t *out, size_t *count);
// Turns planes (3, 96 columns, 96 rows) into pixels (96, 96, 3).
void brim_stl10_interleave(const uint8_t *planes, uint8_t *pixels);

//---------------------------------- parts, caches, guesses ----------------------------------

// A part maps the caller's sample numbers to the table's. A cache is indexed by the caller's numbers.
typedef struct brim_source_part brim_source_part;
typedef struct brim_source_cache brim_source_cache;

// Maps a sample number of the caller to the table's. part NULL = all samples in their own order.
uint64_t brim_source_part_at(const brim_source_part *part, uint64_t index);
void brim_source_part_free(brim_source_part *part);     // NULL is fine
void brim_source_cache_free(brim_source_cache *cache);  // NULL is fine

// The built-in source `said` failed to open the path. If something of another kind lies there, the
// detail says so, with the component to use. Returns the status to continue with.
brim_status brim_source_guess_other(const char *path, const char *said, brim_status failed);

#endif  // BRIM_DATA_INT_H_
