// Inside the hdf5 source: what a dataset looks like once its layout is known, and reading rows of
// it without libhdf5. Only the files that include data_hdf5_lib.h call the library.
#ifndef BRIM_DATA_HDF5_H_
#define BRIM_DATA_HDF5_H_

#include <stdbool.h>

#include "base/base_map.h"
#include "data/data_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_HDF5_MAX_RANK = 8,
  BRIM_HDF5_MAX_FILTERS = 4,
  BRIM_HDF5_MAX_CLASSES = 1 << 24,             // as many as a network has outputs
  BRIM_HDF5_TAIL = 4 * BRIM_HDF5_MAX_FILTERS,  // checksums behind a chunk that is being unpacked
};

//---------------------------------- numbers ----------------------------------

typedef enum brim_hdf5_kind {
  BRIM_HDF5_I8,
  BRIM_HDF5_U8,
  BRIM_HDF5_I16,
  BRIM_HDF5_U16,
  BRIM_HDF5_I32,
  BRIM_HDF5_U32,
  BRIM_HDF5_I64,
  BRIM_HDF5_U64,
  BRIM_HDF5_F16,
  BRIM_HDF5_F32,
  BRIM_HDF5_F64,
  BRIM_HDF5_KIND_COUNT
} brim_hdf5_kind;

typedef struct brim_hdf5_type {
  brim_hdf5_kind kind;
  bool swap;  // the other byte order than this machine's
} brim_hdf5_type;

const char *brim_hdf5_kind_name(brim_hdf5_kind kind);  // "f32"
// n packed numbers as floats, out[0], out[step], ...
void brim_hdf5_convert(brim_hdf5_type type, const uint8_t *in, size_t n, float *out, size_t step);

//---------------------------------- a dataset ----------------------------------

typedef enum brim_hdf5_where {
  BRIM_HDF5_FILL,     // nothing was ever written: every row is the fill value
  BRIM_HDF5_MAPPED,   // rows one after the other from `offset` of the file on
  BRIM_HDF5_MEMORY,   // the same in `memory`
  BRIM_HDF5_CHUNKS,   // chunks as they are, in the file
  BRIM_HDF5_PACKED,   // chunks behind filters, unpacked into the cache
  BRIM_HDF5_LIBRARY,  // only libhdf5 can read it: one row at a time, in a child process
  BRIM_HDF5_WHERE_COUNT
} brim_hdf5_where;

typedef enum brim_hdf5_filter_id {
  BRIM_HDF5_DEFLATE,
  BRIM_HDF5_SHUFFLE,
  BRIM_HDF5_FLETCHER32,
  BRIM_HDF5_LZF,  // h5py's
  BRIM_HDF5_FILTER_COUNT
} brim_hdf5_filter_id;
// Unpacks LZF, in pieces: a control byte below 32 and one more than it plain bytes; or a copy of 2 more
// than its upper 3 bits (7: and the next byte) bytes from 1 more than its lower 5 bits and the next byte
// before the end of what there is, which the copy may run into. The bytes that came out; SIZE_MAX:
// `in` is damaged, or makes more than `size`.
size_t brim_hdf5_unpack_lzf(const uint8_t *in, size_t n, uint8_t *out, size_t size);

typedef struct brim_hdf5_filter {
  brim_hdf5_filter_id id;
  uint32_t element;  // shuffle: bytes of one
} brim_hdf5_filter;

typedef struct brim_hdf5_chunk {
  uint64_t address;  // in the file, the user block counted
  uint32_t bytes;    // 0: never written, reads as the fill value
  uint32_t mask;     // bit i: filter i was left out for this one
} brim_hdf5_chunk;

typedef struct brim_hdf5_cache brim_hdf5_cache;
typedef struct brim_hdf5_reader brim_hdf5_reader;

typedef struct brim_hdf5_array {
  // What the file says.
  const brim_map *map;
  char *name;  // "/train/x"; brim_free
  brim_hdf5_type type;
  int rank;
  uint64_t dim[BRIM_HDF5_MAX_RANK];  // dim[0] rows
  brim_hdf5_where where;
  uint64_t offset;
  uint8_t *memory;                                  // planned
  uint64_t chunk[BRIM_HDF5_MAX_RANK];               // sizes of one
  brim_hdf5_chunk *chunks;                          // chunk_count of them, row-major; planned
  brim_hdf5_filter filters[BRIM_HDF5_MAX_FILTERS];  // in the order of writing
  int filter_count;
  uint8_t fill[8];   // one element as in the file
  const char *slow;  // LIBRARY: why

  // What follows from it (brim_hdf5_array_shape).
  size_t element_bytes;
  uint64_t row_elements, row_bytes, total_bytes;
  uint64_t grid[BRIM_HDF5_MAX_RANK];  // chunks along each dimension
  uint64_t chunk_count, chunk_bytes;
  bool whole;  // a chunk holds whole rows

  // Where a row goes in the sample: element (i1, i2, ...) to base + sum of i * step.
  bool bytes;  // samples of U8, else of F32
  uint64_t base, step[BRIM_HDF5_MAX_RANK];
  bool packed;  // the steps are those of a packed row

  brim_hdf5_cache *cache;  // PACKED
  // LIBRARY: rows that lie together, handles of libhdf5 (-1 = none), and the readers: children or,
  // where bytes stand for a file, this process with room for one row.
  uint64_t block;
  bool outside;  // its data lie in other files, which the user allowed
  int64_t dataset, memory_type;
  brim_hdf5_reader *reader;
  uint8_t *row;  // planned
} brim_hdf5_array;

// The sizes that follow from type, rank, dim and chunk; refuses what cannot be.
brim_status brim_hdf5_array_shape(brim_hdf5_array *a);
// Everything against the size of the file: afterwards no row reaches beyond it.
brim_status brim_hdf5_array_check(const brim_hdf5_array *a);
// Rows of which a part was never written: the program that wrote the file may have been ended.
uint64_t brim_hdf5_array_unwritten(const brim_hdf5_array *a);
// Steps of a packed row at `base`.
void brim_hdf5_array_pack(brim_hdf5_array *a, uint64_t base);
// One row into the sample. Thread-safe.
brim_status brim_hdf5_array_row(const brim_hdf5_array *a, uint64_t index, void *sample);
// The same past the caches, for a sample that is not read again soon (brim_copy_stream).
brim_status brim_hdf5_array_stream(const brim_hdf5_array *a, uint64_t index, void *sample);
// Whether a sample is a row's very bytes, all of it and nothing else, out of the mapped file.
bool brim_hdf5_array_direct(const brim_hdf5_array *a);
// Ask for the start of a row that comes next, where its place is known; index < dim[0].
void brim_hdf5_array_prefetch(const brim_hdf5_array *a, uint64_t index);
// Frees what the array owns; handles of libhdf5 are closed by brim_hdf5_file_close_array.
void brim_hdf5_array_deinit(brim_hdf5_array *a);
uint64_t brim_hdf5_array_host_bytes(const brim_hdf5_array *a);

//---------------------------------- filters and the cache ----------------------------------

// What one thread needs to unpack a chunk.
typedef struct brim_hdf5_decoder brim_hdf5_decoder;
brim_status brim_hdf5_decoder_create(const brim_hdf5_array *a, brim_hdf5_decoder **out);
void brim_hdf5_decoder_destroy(brim_hdf5_decoder *decoder);
uint64_t brim_hdf5_decoder_bytes(const brim_hdf5_array *a);  // planned
// out has room for chunk_bytes + BRIM_HDF5_TAIL; chunk_bytes are good afterwards.
brim_status brim_hdf5_decode(const brim_hdf5_array *a, uint64_t chunk, brim_hdf5_decoder *decoder,
                             uint8_t *out);

// Unpacked chunks, as many as `budget` bytes hold (two at least): nothing is allocated later. The
// array must outlive it and stay where it is.
brim_status brim_hdf5_cache_create(const brim_hdf5_array *a, uint64_t budget,
                                   brim_hdf5_cache **out);
void brim_hdf5_cache_destroy(brim_hdf5_cache *cache);
uint64_t brim_hdf5_cache_bytes(const brim_hdf5_cache *cache);
uint64_t brim_hdf5_cache_misses(brim_hdf5_cache *cache);  // chunks unpacked so far
// The chunk's bytes, which stay until `put` with the same two numbers.
brim_status brim_hdf5_cache_get(brim_hdf5_cache *cache, uint64_t chunk, uint32_t *slot,
                                const uint8_t **data);
void brim_hdf5_cache_put(brim_hdf5_cache *cache, uint64_t chunk, uint32_t slot);

//---------------------------------- children ----------------------------------

// Rows that libhdf5 reads in child processes. A row that a child does not survive fails and is named,
// at once when it is asked for again. The array must outlive it and stay where it is.
brim_status brim_hdf5_reader_create(const brim_hdf5_array *a, brim_hdf5_reader **out);
void brim_hdf5_reader_destroy(brim_hdf5_reader *reader);
// All children now; else each starts with its first row.
brim_status brim_hdf5_reader_start(brim_hdf5_reader *reader);
uint64_t brim_hdf5_reader_bytes(const brim_hdf5_reader *reader);
// Row `index` < dim[0], which stays until `put`. Thread-safe.
brim_status brim_hdf5_reader_get(brim_hdf5_reader *reader, uint64_t index, const uint8_t **row);
void brim_hdf5_reader_put(brim_hdf5_reader *reader, uint64_t index);

//---------------------------------- libhdf5 ----------------------------------

// libhdf5 is one at a time: every call of it, anywhere in brim, stands between these. The library's
// own printing of errors is off in between, and at the end of a process that was here once.
typedef struct brim_hdf5_scope {
  int (*print)(int64_t stack, void *ctx);
  void *ctx;
} brim_hdf5_scope;
void brim_hdf5_enter(brim_hdf5_scope *scope);
void brim_hdf5_leave(const brim_hdf5_scope *scope);
// Between the two: what the library says went wrong.
const char *brim_hdf5_reason(char *text, size_t size);

// The helper (data_hdf5_helper.h) does with libhdf5 what the caller is about to do here. Fails, naming
// the file, when that ends the helper; what came out does not matter.
enum { BRIM_HDF5_PROBE_ROOM = 4096 };
struct brim_hdf5_request;
brim_status brim_hdf5_probe(const char *path, struct brim_hdf5_request *request);

typedef struct brim_hdf5_entry {
  char *path;  // without the leading "/"
  bool numeric, integer;
  bool text;  // of any or of fixed length, one a row: it can be labels
  int rank;
  uint64_t dim[BRIM_HDF5_MAX_RANK];
  char type[24];  // "f32"
  char *members;  // of a compound: "a f32, b i64"; NULL = it is none
  char *trouble;  // why it cannot be opened, and may be no dataset at all; NULL = it can
  bool link;      // the trouble is that of a link; nothing is damaged
  bool outside;   // its data lie in other files, which the user allowed
} brim_hdf5_entry;

typedef struct brim_hdf5_file {
  char *path;
  brim_map map;
  int64_t driver, file, access;  // handles of libhdf5; -1 = none
  bool outside;                  // data in other files may be read
  struct brim_hdf5_record *record;
  brim_hdf5_entry *entries;  // every dataset, and what is damaged, sorted by path
  size_t entry_count;
} brim_hdf5_file;

// `bytes` NULL: the file at path; otherwise those bytes stand for it (fuzzing). `outside`: the user
// allows data in other files, which external storage, virtual datasets and external links name.
brim_status brim_hdf5_file_open(const char *path, const void *bytes, size_t size, bool outside,
                                brim_hdf5_file *out);
void brim_hdf5_file_close(brim_hdf5_file *file);
// The library's handles are not needed any more, unless an array is LIBRARY.
void brim_hdf5_file_choose(brim_hdf5_file *file);
// The layout of one dataset. Those only libhdf5 can read come into memory up to `keep` bytes. The
// file must outlive the array, which stays where it is.
brim_status brim_hdf5_file_array(brim_hdf5_file *file, const brim_hdf5_entry *entry, uint64_t keep,
                                 brim_hdf5_array *out);
void brim_hdf5_file_close_array(brim_hdf5_array *a);
// A dataset of whole numbers, one a row. Values that no class can have are cut to the range of
// int32_t, above to BRIM_HDF5_MAX_CLASSES; the first is kept as it is for messages.
typedef struct brim_hdf5_whole {
  int32_t least, most;  // INT32_MAX and INT32_MIN without rows
  bool wrong, wide;     // some value is no class; it has no sign
  uint64_t wrong_row;
  int64_t wrong_value;
} brim_hdf5_whole;
// Reads every row to `out`.
brim_status brim_hdf5_file_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry, int32_t *out,
                                  brim_hdf5_whole *whole);
// Refuses values that no class can have.
brim_status brim_hdf5_file_check_labels(const brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                        const brim_hdf5_whole *whole);
// Text, one a row, as classes (data_int.h): labels to `out`, which may be NULL for the names alone.
brim_status brim_hdf5_file_text_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                       brim_data_classes *classes, int32_t *out);
// As brim_hdf5_file_labels, of floats that are whole numbers, or of one-hot rows of `classes`; every value is looked
// at. In data_hdf5_labels.c.
brim_status brim_hdf5_file_class_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                        int64_t classes, int32_t *out);
// Several columns, every value of which is 0 or 1, and both occur.
brim_status brim_hdf5_binary_targets(brim_hdf5_file *file, const brim_hdf5_entry *entry, bool *out);
// Floats that are all small whole numbers, and one-hot rows, are taken as what they are, numbers to
// predict; mostly they were meant as labels, so a warning says how to have that.
brim_status brim_hdf5_warn_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry);
// Attributes of a dataset: whether there is one, and what it says; *count 0 or "" where that is none
// of what was asked for.
bool brim_hdf5_file_floats(brim_hdf5_file *file, const brim_hdf5_entry *entry, const char *name,
                           float *out, size_t room, size_t *count);
bool brim_hdf5_file_text(brim_hdf5_file *file, const brim_hdf5_entry *entry, const char *name,
                         char *out, size_t room);

//---------------------------------- names ----------------------------------

enum { BRIM_HDF5_MAX_ARRAYS = 16 };

typedef struct brim_hdf5_choice {
  const brim_hdf5_entry *inputs[BRIM_HDF5_MAX_ARRAYS], *targets[BRIM_HDF5_MAX_ARRAYS];
  size_t input_count, target_count;
} brim_hdf5_choice;

enum brim_hdf5_split {
  BRIM_HDF5_TRAIN,
  BRIM_HDF5_VAL,
  BRIM_HDF5_TEST,
  BRIM_HDF5_UNLABELED,
  BRIM_HDF5_SPLIT_COUNT,
  BRIM_HDF5_NO_SPLIT = -1
};
bool brim_hdf5_is_name(const char *name);  // "train.h5", "data.hdf5"
// FOLDER/train.h5 for a split, or NULL in *out; brim_free.
brim_status brim_hdf5_split_file(const char *folder, const char *split, char **out);
// The file itself, or that of a folder. *whole: it was chosen by the split, so all of it is meant.
brim_status brim_hdf5_find_file(const char *path, const char *split, char **out, bool *whole);
// Names of a split in files and paths, NULL-terminated; [0] is the one a config uses.
extern const char *const brim_hdf5_split_names[BRIM_HDF5_SPLIT_COUNT][5];
// Usual names of inputs and of targets, NULL-terminated.
extern const char *const brim_hdf5_input_names[], *const brim_hdf5_target_names[];
// Names of datasets that list the names of the classes, NULL-terminated.
extern const char *const brim_hdf5_class_lists[];
// The split a dataset belongs to by its path ("train/x", "x_train", "train_x") and the path without
// that mark ("x"). BRIM_HDF5_NO_SPLIT: none.
int brim_hdf5_split_of(const char *path, char *plain, size_t room);

// Which datasets of the file are meant. `inputs` and `targets` are names or lists of names, NULL =
// to be found; whole: a file without splits stands for whatever split is asked for.
brim_status brim_hdf5_find(const brim_hdf5_file *file, const char *split, bool whole,
                           const json_t *inputs, const json_t *targets, brim_hdf5_choice *out);

// Of an open source: its file, and the datasets of it that it reads.
const brim_hdf5_file *brim_source_hdf5_file(void *state, const brim_hdf5_choice **choice);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_H_
