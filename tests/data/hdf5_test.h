// Shared by the tests of the hdf5 source: files written by libhdf5, and reading them back.
#ifndef BRIM_TESTS_HDF5_TEST_H_
#define BRIM_TESTS_HDF5_TEST_H_

#include <hdf5.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5.h"
#include "data_test.h"

enum { ROWS = 37, COLS = 12, THREADS = 3 };

//---------------------------------- making files ----------------------------------

typedef struct set {
  const char *name;
  hid_t type;
  int rank;
  hsize_t dim[5], chunk[5];  // chunk[0] 0: contiguous
  bool shuffle, deflate, fletcher, fletcher_first, compact;
  bool grows;       // unlimited rows
  hsize_t written;  // written rows, from the start; 0 = all
  double fill;
} set;

static inline hid_t create(const char *path, hsize_t user_block, bool latest) {
  hid_t made = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
  assert_true(H5Pset_userblock(made, user_block) >= 0);
  if (latest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, made, access);
  assert_true(file >= 0);
  H5Pclose(made);
  H5Pclose(access);
  return file;
}

static inline hsize_t elements(const set *s) {
  hsize_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dim[d];
  return n;
}

// Values that every type except i8 and u8 can hold exactly; those two wrap.
static inline double value_at(hsize_t i) { return (double)((i * 7 + i / 13) % 120); }

static inline hid_t properties(const set *s) {
  hid_t p = H5Pcreate(H5P_DATASET_CREATE);
  if (s->chunk[0]) assert_true(H5Pset_chunk(p, s->rank, s->chunk) >= 0);
  if (s->fletcher_first) H5Pset_fletcher32(p);
  if (s->shuffle) H5Pset_shuffle(p);
  if (s->deflate) H5Pset_deflate(p, 1);
  if (s->fletcher) H5Pset_fletcher32(p);
  if (s->compact) H5Pset_layout(p, H5D_COMPACT);
  if (s->fill != 0) H5Pset_fill_value(p, H5T_NATIVE_DOUBLE, &s->fill);
  return p;
}

// values NULL: takes those of value_at.
static inline void put_set(hid_t file, const set *s, const double *values) {
  hsize_t most[5];
  for (int d = 0; d < s->rank; d++) most[d] = d == 0 && s->grows ? H5S_UNLIMITED : s->dim[d];
  hid_t space = H5Screate_simple(s->rank, s->dim, most), made = properties(s);
  hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  hid_t dataset = H5Dcreate2(file, s->name, s->type, space, links, made, H5P_DEFAULT);
  assert_true(dataset >= 0);
  double *all = NULL;
  if (!values) {
    all = malloc((size_t)elements(s) * sizeof *all + 1);
    assert_non_null(all);
    for (hsize_t i = 0; i < elements(s); i++) all[i] = value_at(i);
    values = all;
  }
  hsize_t start[5] = {0}, count[5];
  for (int d = 0; d < s->rank; d++) count[d] = s->dim[d];
  if (s->written) count[0] = s->written;
  if (elements(s)) {
    hid_t memory = H5Screate_simple(s->rank, count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(memory);
  }
  free(all);
  H5Dclose(dataset);
  H5Pclose(links);
  H5Pclose(made);
  H5Sclose(space);
}

static inline set floats(const char *name, hsize_t rows, hsize_t cols) {
  return (set){.name = name, .type = H5T_IEEE_F32LE, .rank = 2, .dim = {rows, cols}};
}

static inline set labels(const char *name, hsize_t rows) {
  return (set){.name = name, .type = H5T_STD_I64LE, .rank = 1, .dim = {rows}};
}

static inline void put_labels(hid_t file, const char *name, hsize_t rows, int classes) {
  double values[256];
  assert_true(rows <= 256);
  for (hsize_t i = 0; i < rows; i++) values[i] = (double)(i % (hsize_t)classes);
  set s = labels(name, rows);
  put_set(file, &s, values);
}

// Text, one per row: of any length if `size` is 0, otherwise padded to `size` bytes as `pad` asks.
static inline void put_names(hid_t file, const char *name, const char *const *values, hsize_t rows,
                             size_t size, H5T_str_t pad) {
  hid_t type = H5Tcopy(H5T_C_S1), links = H5Pcreate(H5P_LINK_CREATE);
  assert_true(H5Tset_size(type, size ? size : H5T_VARIABLE) >= 0);
  H5Tset_strpad(type, pad);
  H5Pset_create_intermediate_group(links, 1);
  hid_t space = H5Screate_simple(1, &rows, NULL);
  hid_t y = H5Dcreate2(file, name, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
  char *packed = calloc(rows, size + 1);
  assert_non_null(packed);
  for (hsize_t i = 0; i < rows && size; i++) {
    size_t n = strlen(values[i]);
    memset(packed + i * size, pad == H5T_STR_SPACEPAD ? ' ' : 0, size);
    memcpy(packed + i * size, values[i], n < size ? n : size);
  }
  const void *data = size ? (const void *)packed : (const void *)values;
  assert_true(H5Dwrite(y, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  free(packed);
  H5Dclose(y);
  H5Sclose(space);
  H5Pclose(links);
  H5Tclose(type);
}

// Writes inputs x (ROWS, COLS) f32 and labels y of 5 classes.
static inline void plain_file(const char *path) {
  hid_t file = create(path, 0, false);
  set x = floats("x", ROWS, COLS);
  put_set(file, &x, NULL);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
}

//---------------------------------- reading ----------------------------------

typedef struct opened {
  void *state;
  brim_source_info info;
  size_t input_bytes;
} opened;

static inline brim_status try_open(const char *path, const char *split, const char *args,
                                   opened *out) {
  brim_source_how how = {.path = path, .split = split, .seed = 1, .args_json = args};
  memset(out, 0, sizeof *out);
  brim_status_clear();
  brim_status status = brim_source_hdf5.open(&how, &out->state);
  if (status) return status;
  brim_source_hdf5.info(out->state, &out->info);
  out->input_bytes = out->info.type == BRIM_SAMPLE_U8 ? 1 : sizeof(float);
  for (int d = 0; d < out->info.rank; d++) out->input_bytes *= (size_t)out->info.dim[d];
  return BRIM_OK;
}

static inline void shut(opened *o) { brim_source_hdf5.close(o->state); }

#define assert_refused(path, split, args, status, part)            \
  do {                                                             \
    opened refused_;                                               \
    assert_status(try_open(path, split, args, &refused_), status); \
    assert_detail(part);                                           \
  } while (0)

typedef struct reader {
  opened *o;
  const float *expected;  // (count, elements of a row)
  int step, bad;
  char detail[256];
} reader;

static inline void *read_rows(void *ctx) {
  reader *r = ctx;
  size_t n = r->o->input_bytes / (r->o->info.type == BRIM_SAMPLE_U8 ? 1 : sizeof(float));
  void *row = malloc(r->o->input_bytes);  // of exact size, so that ASan finds any overrun
  float target[8];
  for (uint64_t k = 0; k < 2 * r->o->info.count; k++) {
    uint64_t i = k * (uint64_t)r->step % r->o->info.count;
    // one thread reads past the caches, with any next row announced
    brim_status status = r->step == 5 ? brim_builtin_hdf5.stream(r->o->state, i, k * 3, row, target)
                                      : brim_source_hdf5.read(r->o->state, i, row, target);
    if (status) {
      r->bad++;
      snprintf(r->detail, sizeof r->detail, "%s", brim_status_detail());
      continue;
    }
    for (size_t e = 0; e < n; e++) {
      float got = r->o->info.type == BRIM_SAMPLE_U8 ? ((uint8_t *)row)[e] : ((float *)row)[e];
      if (memcmp(&got, &r->expected[i * n + e], sizeof got) != 0) r->bad++;
    }
  }
  free(row);
  return NULL;
}

// Reads every row of the source with several threads, and compares with libhdf5's values.
static inline void compare(opened *o, const float *expected) {
  static const int steps[THREADS] = {1, 5, 11};
  pthread_t threads[THREADS];
  reader readers[THREADS];
  for (int t = 0; t < THREADS; t++) {
    readers[t] = (reader){.o = o, .expected = expected, .step = steps[t]};
    assert_int_equal(pthread_create(&threads[t], NULL, read_rows, &readers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t], NULL);
    if (readers[t].bad) fail_msg("%d bad values; %s", readers[t].bad, readers[t].detail);
  }
}

static inline float *whole(const char *path, const char *name) {
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
  size_t n = (size_t)H5Sget_simple_extent_npoints(space);
  float *all = malloc(n * sizeof *all);
  assert_non_null(all);
  assert_true(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) >= 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return all;
}

static inline void compare_file(const char *path, const char *name, const char *args) {
  opened o;
  assert_ok(try_open(path, "train", args, &o));
  float *expected = whole(path, name);
  compare(&o, expected);
  free(expected);
  shut(&o);
}

static inline int hdf5_setup(void **state) {
  (void)state;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return 0;
}

#endif  // BRIM_TESTS_HDF5_TEST_H_
