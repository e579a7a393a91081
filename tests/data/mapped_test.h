// Shared by the tests of mapped sets: files whose rows begin at any place, and the stream of a loader as a list, with
// batches on the host or on a device.
#ifndef BRIM_TESTS_DATA_MAPPED_TEST_H_
#define BRIM_TESTS_DATA_MAPPED_TEST_H_

#include "hdf5_test.h"

#include "data/loader/data_loader_int.h"
#include "loader_test.h"

enum { COUNT = 101, BATCHES = 40, BATCH = 8 };

//---------------------------------- files ----------------------------------

typedef struct shape {
  hid_t type;
  int rank;
  hsize_t dim[3];
  hsize_t pad;  // bytes of another dataset in front
  hsize_t user_block;
  bool floats;  // targets of two floats, else labels
} shape;

static inline void make_file(const char *path, const shape *s) {
  hid_t file = create(path, s->user_block, false);
  if (s->pad) {
    set pad = {.name = "a_pad", .type = H5T_STD_U8LE, .rank = 1, .dim = {s->pad}};
    put_set(file, &pad, NULL);
  }
  set x = {.name = "x", .type = s->type, .rank = s->rank + 1, .dim = {COUNT}};
  for (int d = 0; d < s->rank; d++) x.dim[d + 1] = s->dim[d];
  put_set(file, &x, NULL);
  if (s->floats) {
    set y = floats("y", COUNT, 2);
    put_set(file, &y, NULL);
  } else {
    put_labels(file, "y", COUNT, 7);
  }
  H5Fclose(file);
}

static inline brim_source *open_file(const char *path) {
  const brim_component hdf5 = {.name = "hdf5"};
  brim_source *s = NULL;
  assert_ok(brim_source_open(NULL, &hdf5, path, "train", 3, &s));
  return s;
}

#define F32(...) H5T_IEEE_F32LE, __VA_ARGS__
#define U8(...) H5T_STD_U8LE, __VA_ARGS__

static inline size_t shapes_of(const shape **out) {
  static shape rows[8];
  const shape all[] = {
      {F32(1, {1}), 0, 0, false},               // 4 bytes
      {F32(2, {3, 1}), 3, 512, true},           // 12, at an odd place
      {F32(2, {5160, 2}), 0, 0, true},          // 41280
      {F32(2, {5160, 2}), 1, 1024, false},      // the same, where no float should begin
      {U8(1, {7}), 0, 512, false},              // 7
      {U8(3, {SIDE, SIDE, 3}), 0, 0, false},    // 108
      {U8(3, {SIDE, SIDE, 3}), 5, 512, false},  // the same, askew
      {U8(1, {4099}), 2, 0, true},
  };
  memcpy(rows, all, sizeof all);
  *out = rows;
  return sizeof all / sizeof *all;
}

static inline brim_loader_options options_of(const brim_transforms *t) {
  brim_loader_options o = image_options();
  o.transforms = t;
  o.batch = BATCH;
  return o;
}

//---------------------------------- the stream ----------------------------------

// A loader's batches. Those of a loader on a device are copied once the device has computed them.
typedef struct heard {
  uint8_t *inputs[BATCHES], *targets[BATCHES];
  uint64_t index[BATCHES][BATCH];
  int64_t rows[BATCHES], epoch[BATCHES], first[BATCHES];
  bool last[BATCHES];
  size_t input_bytes, target_bytes;
} heard;

static inline void listen(brim_device *device, brim_loader *l, size_t each, size_t target,
                          heard *h) {
  memset(h, 0, sizeof *h);
  h->input_bytes = BATCH * each;
  h->target_bytes = BATCH * target;
  for (int64_t k = 0; k < BATCHES; k++) {
    const brim_loaded *b;
    if (k % 13 == 7) assert_ok(brim_loader_seek(l, k, k % 11));
    assert_ok(brim_loader_next(l, &b));
    assert_int_equal(b->on_device, device != NULL);
    h->inputs[k] = calloc(1, h->input_bytes);
    h->targets[k] = calloc(1, h->target_bytes + 1);
    assert_true(h->inputs[k] && h->targets[k]);
    if (device) {
      assert_ok(brim_device_copy(device, h->inputs[k], b->input, h->input_bytes, BRIM_COPY_D2H));
      if (b->target) {
        assert_ok(
            brim_device_copy(device, h->targets[k], b->target, h->target_bytes, BRIM_COPY_D2H));
      }
    } else {
      memcpy(h->inputs[k], b->input, h->input_bytes);
      if (b->target) memcpy(h->targets[k], b->target, h->target_bytes);
    }
    memcpy(h->index[k], b->index, sizeof h->index[k]);
    h->rows[k] = b->rows;
    h->epoch[k] = b->epoch;
    h->first[k] = b->first;
    h->last[k] = b->last;
    brim_loader_release(l, b);
  }
  if (device) assert_ok(brim_device_sync(device));
}

static inline void forget(heard *h) {
  for (int k = 0; k < BATCHES; k++) {
    free(h->inputs[k]);
    free(h->targets[k]);
  }
}

// `step`: largest allowed difference of bytes of inputs, for transforms on a GPU.
static inline void same_stream(const heard *a, const heard *b, int step) {
  for (int k = 0; k < BATCHES; k++) {
    assert_int_equal(a->rows[k], b->rows[k]);
    assert_int_equal(a->epoch[k], b->epoch[k]);
    assert_int_equal(a->first[k], b->first[k]);
    assert_int_equal(a->last[k], b->last[k]);
    assert_memory_equal(a->index[k], b->index[k], sizeof a->index[k]);
    assert_memory_equal(a->targets[k], b->targets[k], a->target_bytes);
    if (step == 0) assert_memory_equal(a->inputs[k], b->inputs[k], a->input_bytes);
    for (size_t i = 0; step && i < a->input_bytes; i++) {
      int d = (int)a->inputs[k][i] - (int)b->inputs[k][i];
      assert_true(d >= -step && d <= step);
    }
  }
}

#endif  // BRIM_TESTS_DATA_MAPPED_TEST_H_
