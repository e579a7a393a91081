// Inside the hdf5 source: datasets whose rows are read without libhdf5, the calls of the library, and
// the helper program.
#ifndef BRIM_DATA_HDF5_H_
#define BRIM_DATA_HDF5_H_

#include <stdbool.h>

#include "base/base_child.h"
#include "base/base_map.h"
#include "base/base_thread.h"
#include "data/data_int.h"

enum {
  BRIM_HDF5_MAX_RANK = 8,
  BRIM_HDF5_MAX_FILTERS = 4,
  BRIM_HDF5_MAX_CLASSES = 1 << 24,             // the most outputs of a network
  BRIM_HDF5_TAIL = 4 * BRIM_HDF5_MAX_FILTERS,  // room for checksums behind a chunk being unpacked
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
  bool swap;  // the byte order differs from this machine's
} brim_hdf5_type;

const char *brim_hdf5_kind_name(brim_hdf5_kind kind);  // "f32"
// Converts n packed numbers to floats: out[0], out[step], ...
void brim_hdf5_convert(brim_hdf5_type type, const uint8_t *in, size_t n, float *out, size_t step);

//---------------------------------- a dataset ----------------------------------

typedef enum brim_hdf5_where {
  BRIM_HDF5_FILL,     // never written: every row is the fill value
  BRIM_HDF5_MAPPED,   // rows one after the other from `offset` of the file on
  BRIM_HDF5_MEMORY,   // rows one after the other in `memory`
  BRIM_HDF5_CHUNKS,   // unfiltered chunks in the file
  BRIM_HDF5_PACKED,   // filtered chunks, unpacked into the cache
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
// Unpacks LZF; returns the bytes written, SIZE_MAX if `in` is damaged or makes more than `size`.
// A control byte c below 32 is followed by c + 1 plain bytes. Any other c copies earlier output: the
// length is (c >> 5) + 2, plus the next byte if c >> 5 is 7; the distance back is
// ((c & 31) << 8 | next byte) + 1. A copy may overlap its own output.
size_t brim_hdf5_unpack_lzf(const uint8_t *in, size_t n, uint8_t *out, size_t size);

typedef struct brim_hdf5_filter {
  brim_hdf5_filter_id id;
  uint32_t element;  // shuffle: bytes of an element
} brim_hdf5_filter;

typedef struct brim_hdf5_chunk {
  uint64_t address;  // in the file, including the user block
  uint32_t bytes;    // 0 = never written, reads as the fill value
  uint32_t mask;     // bit i: filter i was skipped for this chunk
} brim_hdf5_chunk;

typedef struct brim_hdf5_cache brim_hdf5_cache;
typedef struct brim_hdf5_reader brim_hdf5_reader;

typedef struct brim_hdf5_array {
  // From the file.
  const brim_map *map;
  char *name;  // "/train/x"; brim_free
  brim_hdf5_type type;
  int rank;
  uint64_t dim[BRIM_HDF5_MAX_RANK];  // dim[0] rows
  brim_hdf5_where where;
  uint64_t offset;
  uint8_t *memory;                                  // planned
  uint64_t chunk[BRIM_HDF5_MAX_RANK];               // shape of a chunk
  brim_hdf5_chunk *chunks;                          // chunk_count of them, row-major; planned
  brim_hdf5_filter filters[BRIM_HDF5_MAX_FILTERS];  // in the order of writing
  int filter_count;
  uint8_t fill[8];   // one element as in the file
  const char *slow;  // LIBRARY: why only the library can read it

  // Derived by brim_hdf5_array_shape.
  size_t element_bytes;
  uint64_t row_elements, row_bytes, total_bytes;
  uint64_t grid[BRIM_HDF5_MAX_RANK];  // chunks along each dimension
  uint64_t chunk_count, chunk_bytes;
  bool whole;  // chunks hold whole rows

  // Element (i1, i2, ...) of a row goes to place base + i1 * step[1] + i2 * step[2] ... of the sample.
  bool bytes;  // the sample is U8, else F32
  uint64_t base, step[BRIM_HDF5_MAX_RANK];
  bool packed;  // the row stays in one piece

  brim_hdf5_cache *cache;  // PACKED
  // The rest is for LIBRARY.
  uint64_t block;                // rows of a chunk
  bool outside;                  // the data lie in other files, which the user allowed
  int64_t dataset, memory_type;  // handles of libhdf5; -1 = none
  brim_hdf5_reader *reader;      // child processes; NULL if the file is bytes in memory
  uint8_t *row;                  // without reader: room for one row; planned
} brim_hdf5_array;

// Derives sizes from type, rank, dim and chunk; refuses impossible ones.
brim_status brim_hdf5_array_shape(brim_hdf5_array *a);
// Checks everything against the file's size: afterwards no row reaches beyond it.
brim_status brim_hdf5_array_check(const brim_hdf5_array *a);
// Counts rows with parts that were never written; the writing program may have been killed.
uint64_t brim_hdf5_array_unwritten(const brim_hdf5_array *a);
// Places the row in one piece at element `base` of the sample.
void brim_hdf5_array_pack(brim_hdf5_array *a, uint64_t base);
// Reads one row into the sample. Thread-safe.
brim_status brim_hdf5_array_row(const brim_hdf5_array *a, uint64_t index, void *sample);
// Like brim_hdf5_array_row, but writes past the caches (brim_copy_stream) where it can. For samples that
// are not read again soon.
brim_status brim_hdf5_array_stream(const brim_hdf5_array *a, uint64_t index, void *sample);
// True if a sample is exactly the bytes of a row in the mapped file.
bool brim_hdf5_array_direct(const brim_hdf5_array *a);
// Prefetches the start of the row to be read next, if its place is known. index < dim[0].
void brim_hdf5_array_prefetch(const brim_hdf5_array *a, uint64_t index);
// Frees what the array owns; handles of libhdf5 are closed by brim_hdf5_file_close_array.
void brim_hdf5_array_deinit(brim_hdf5_array *a);
uint64_t brim_hdf5_array_host_bytes(const brim_hdf5_array *a);

//---------------------------------- filters and the cache ----------------------------------

// A thread's memory for unpacking chunks.
typedef struct brim_hdf5_decoder brim_hdf5_decoder;

// Creates a cache of unpacked chunks: as many as fit in `budget` bytes, at least two. The array must
// outlive the cache and must not move.
brim_status brim_hdf5_cache_create(const brim_hdf5_array *a, uint64_t budget,
                                   brim_hdf5_cache **out);
uint64_t brim_hdf5_cache_misses(brim_hdf5_cache *cache);  // chunks unpacked so far

//---------------------------------- children ----------------------------------

// A reader has libhdf5 read rows in child processes. A row that crashes its child fails with its number,
// and fails at once when requested again. The array must outlive the reader and must not move.
brim_status brim_hdf5_reader_create(const brim_hdf5_array *a, brim_hdf5_reader **out);
void brim_hdf5_reader_destroy(brim_hdf5_reader *reader);
// Starts all children now; otherwise each starts with its first row.
brim_status brim_hdf5_reader_start(brim_hdf5_reader *reader);
uint64_t brim_hdf5_reader_bytes(const brim_hdf5_reader *reader);
// Reads row `index` < dim[0]. *row is valid until brim_hdf5_reader_put of the same index. Thread-safe.
brim_status brim_hdf5_reader_get(brim_hdf5_reader *reader, uint64_t index, const uint8_t **row);
void brim_hdf5_reader_put(brim_hdf5_reader *reader, uint64_t index);

//---------------------------------- libhdf5 ----------------------------------

// libhdf5 is not thread-safe: every call of it in brim lies between brim_hdf5_enter, which takes one
// lock and turns the library's error messages off, and brim_hdf5_leave.
typedef struct brim_hdf5_scope {
  int (*print)(int64_t stack, void *ctx);
  void *ctx;
} brim_hdf5_scope;
void brim_hdf5_enter(brim_hdf5_scope *scope);
void brim_hdf5_leave(const brim_hdf5_scope *scope);
// Between enter and leave: the library's description of the last error.
const char *brim_hdf5_reason(char *text, size_t size);

// Has the helper do what the caller is about to do with libhdf5. Fails with the file's name if the
// helper crashes; otherwise its results are thrown away.
enum { BRIM_HDF5_PROBE_ROOM = 4096 };
struct brim_hdf5_request;
brim_status brim_hdf5_probe(const char *path, struct brim_hdf5_request *request);

typedef struct brim_hdf5_entry {
  char *path;  // without the leading "/"
  bool numeric, integer;
  bool text;  // strings of variable or fixed length, one a row: possible labels
  int rank;
  uint64_t dim[BRIM_HDF5_MAX_RANK];
  char type[24];  // "f32"
  char *members;  // compound: "a f32, b i64"; else NULL
  char *trouble;  // why it cannot be opened (it may be no dataset at all); NULL = it opens
  bool link;      // `trouble` comes from a link; nothing is damaged
  bool outside;   // the data lie in other files, which the user allowed
} brim_hdf5_entry;

typedef struct brim_hdf5_file {
  char *path;
  brim_map map;
  int64_t driver, file, access;  // handles of libhdf5; -1 = none
  bool outside;                  // the user allows data in other files
  struct brim_hdf5_record *record;
  brim_hdf5_entry *entries;  // every dataset and every damaged object, sorted by path
  size_t entry_count;
} brim_hdf5_file;

// Opens the file at path, or `bytes` in its place (fuzzing). `outside`: the user allows data in other
// files, named by external storage, virtual datasets and external links.
brim_status brim_hdf5_file_open(const char *path, const void *bytes, size_t size, bool outside,
                                brim_hdf5_file *out);
void brim_hdf5_file_close(brim_hdf5_file *file);
// Closes the library's handles of the file. Arrays stay usable, except LIBRARY arrays of a file in memory.
void brim_hdf5_file_choose(brim_hdf5_file *file);
// Reads the layout of one dataset. A dataset that only libhdf5 can read is read into memory if it has at
// most `keep` bytes. The file must outlive the array, which must not move.
brim_status brim_hdf5_file_array(brim_hdf5_file *file, const brim_hdf5_entry *entry, uint64_t keep,
                                 brim_hdf5_array *out);
void brim_hdf5_file_close_array(brim_hdf5_array *a);
// A dataset of whole numbers, one a row. Values that cannot be classes are clamped to INT32_MIN and
// BRIM_HDF5_MAX_CLASSES; the first one is kept as it is for messages.
typedef struct brim_hdf5_whole {
  int32_t least, most;  // INT32_MAX and INT32_MIN without rows
  bool wrong;           // some value cannot be a class; the next members describe the first
  bool wide;            // wrong_value is to be read as unsigned
  uint64_t wrong_row;
  int64_t wrong_value;
} brim_hdf5_whole;
// Reads every row to `out`.
brim_status brim_hdf5_file_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry, int32_t *out,
                                  brim_hdf5_whole *whole);
// Fails if `whole` has a value that cannot be a class.
brim_status brim_hdf5_file_check_labels(const brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                        const brim_hdf5_whole *whole);
// Reads text labels, one a row, and adds their names to `classes`. `out` may be NULL.
brim_status brim_hdf5_file_text_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                       brim_data_classes *classes, int32_t *out);
// Reads an attribute of a dataset; false if it does not exist. An attribute of another type gives
// *count 0, or "".
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
// Names of a split in files and paths, NULL-terminated; [0] is the name used in configs.
extern const char *const brim_hdf5_split_names[BRIM_HDF5_SPLIT_COUNT][5];
// Usual names of inputs and of targets, NULL-terminated.
extern const char *const brim_hdf5_input_names[], *const brim_hdf5_target_names[];
// Names of datasets that list the names of the classes, NULL-terminated.
extern const char *const brim_hdf5_class_lists[];
// The split named by a dataset's path ("train/x", "x_train", "train_x"), or BRIM_HDF5_NO_SPLIT, and
// the path without the split's name ("x").
int brim_hdf5_split_of(const char *path, char *plain, size_t room);

//---------------------------------- between the files that call libhdf5 ---------------------------

// The library's header is not included here, so its handles are int64_t.

// Number of h5py's lzf filter at the HDF Group. The first brim_hdf5_enter teaches libhdf5 to undo it.
enum { BRIM_HDF5_LZF_NUMBER = 32000 };

// True if a virtual dataset of the file `path` takes data from a pipe or device, whose open would block;
// `out` gets its name. Call this before asking for the shape: if the dataset may grow, the library opens
// its source files to answer.
bool brim_hdf5_sources_wait(const char *path, int64_t dataset, char *out, size_t room);
// True if the dataset takes data from other files; `out` gets the name of the first.
bool brim_hdf5_outside(const brim_hdf5_file *file, int64_t dataset, char *out, size_t room);
// Opens the dataset through the library's own driver, which can open other files; if bytes stand for
// the file, through `mapped`. The handle keeps its file open. On failure the reason is in
// why[BRIM_HDF5_REASON].
enum { BRIM_HDF5_REASON = 160 };
int64_t brim_hdf5_library_dataset(const brim_map *map, int64_t mapped, const char *name,
                                  bool outside, char *why);

// For the helper: opens a dataset that only the library can read (the caller has set map, name, rank,
// dim, row_bytes and outside), and reads one row.
brim_status brim_hdf5_library_open(brim_hdf5_array *a);
brim_status brim_hdf5_library_row(const brim_hdf5_array *a, uint64_t index, uint8_t *row);

//---------------------------------- writing with libhdf5 ----------------------------------

// libhdf5 writes through a driver of brim's own, which keeps errno when the system refuses a write.
typedef struct brim_hdf5_out {
  int fd;   // readable too: the library reads back what it wrote
  int err;  // errno of the first write that failed
  int64_t driver;
} brim_hdf5_out;

// Call under the library's lock: creates the file that out->fd has open; `path` is its name. Returns the
// library's handle; < 0 on failure (the reason is in out->err, or in the library).
int64_t brim_hdf5_out_create(brim_hdf5_out *out, const char *path);
// Call after H5Fclose, under the lock.
void brim_hdf5_out_close(brim_hdf5_out *out);
// Needs no lock: writes until done or until the system refuses.
void brim_hdf5_out_write(brim_hdf5_out *out, const void *data, size_t size, uint64_t offset);
// Call under the lock: a property list for objects without time stamps, so that equal data give equal
// files.
int64_t brim_hdf5_out_create_plist(int64_t plist_class);

//---------------------------------- the helper program ----------------------------------

// libhdf5 crashes on some damaged files. So a helper process, lib/brim/brim-hdf5, first does what this
// process is about to do with a file. It is started by exec: a fork of a process with threads and a CUDA
// context could do nothing safely. The request is arguments "name=value"; the results come back in
// shared memory.

enum { BRIM_HDF5_MAX_WORDS = 24 };

typedef struct brim_hdf5_request {
  const char *argv[BRIM_HDF5_MAX_WORDS + 1];  // brim_free each
  size_t count;
  bool no_memory;
} brim_hdf5_request;

void brim_hdf5_request_init(brim_hdf5_request *r, const char *job);
void brim_hdf5_request_deinit(brim_hdf5_request *r);
void brim_hdf5_request_text(brim_hdf5_request *r, const char *name,
                            const char *value);  // NULL: none
void brim_hdf5_request_int(brim_hdf5_request *r, const char *name, int64_t value);

// Creates and maps shared memory; *fd is its descriptor.
brim_status brim_hdf5_share(size_t size, int *fd, void **out);

// A helper that uses no processor time for this many times its time limit is stuck.
enum { BRIM_HDF5_IDLE_LIMITS = 10 };

// Memory shared with a probing helper.
typedef struct brim_hdf5_probe_room {
  char at[BRIM_HDF5_PROBE_ROOM];  // the file the helper works on
  char version[32];               // version of the helper; "" until it runs
  bool done;                      // the helper finished
} brim_hdf5_probe_room;

// Room for an error text at the end of the memory shared with a helper that reads rows.
enum { BRIM_HDF5_ROW_TEXT = 4096 };

typedef struct brim_hdf5_job {
  int argc;
  char **argv;
  void *shared;  // descriptor 3
  size_t shared_size;
  char *at;  // probe: where the job notes the file it works on, BRIM_HDF5_PROBE_ROOM bytes
} brim_hdf5_job;

typedef struct brim_hdf5_job_row {
  const char *name;
  bool serves;  // true: runs until its socket closes; false: probes once
  void (*run)(const brim_hdf5_job *job);
} brim_hdf5_job_row;

// The helper's main; the rows end with a NULL name.
int brim_hdf5_helper_main(int argc, char **argv, const brim_hdf5_job_row *rows);
// An argument of the request; NULL or 0 if absent.
const char *brim_hdf5_job_text(const brim_hdf5_job *job, const char *name);
int64_t brim_hdf5_job_int(const brim_hdf5_job *job, const char *name);

// The jobs: each does with libhdf5 what its caller is about to do.
void brim_hdf5_job_set(const brim_hdf5_job *job);    // opens the datasets of a source
void brim_hdf5_job_rows(const brim_hdf5_job *job);   // reads rows until the socket closes
void brim_pack_job_list(const brim_hdf5_job *job);   // lists the datasets of a file
void brim_pack_job_names(const brim_hdf5_job *job);  // reads the names of classes

#endif  // BRIM_DATA_HDF5_H_
