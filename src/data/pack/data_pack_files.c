// Writing IDX, CIFAR and STL-10 files: bytes in the order that data_idx_source.c, data_cifar.c and
// data_stl10.c read. Two files are open at a time: samples and, where they are apart, labels.
#include <stdio.h>
#include <string.h>

#include "data/pack/data_pack_int.h"
#include "data/source/data_stl10.h"

enum { TRAIN_FILES = 5, RECORD_MAX = BRIM_STL10_IMAGE };

typedef struct files_writer {
  brim_fs_writer *samples, *labels;
  uint64_t file;  // CIFAR-10: the one being written
  uint64_t left;  // samples until the next one
  uint8_t record[RECORD_MAX];
} files_writer;

static brim_status files_open(brim_pack *pack) {
  pack->state = brim_calloc(1, sizeof(files_writer));
  return pack->state ? BRIM_OK : brim_pack_no_memory(pack);
}

static brim_status open_one(brim_pack *pack, const char *name, brim_fs_writer **out) {
  char *path = brim_fs_join(pack->temp, name);
  if (!path) return brim_pack_no_memory(pack);
  brim_status status = brim_fs_writer_open(path, out);
  brim_free(path);
  return status;
}

static brim_status close_one(brim_fs_writer **writer) {
  brim_fs_writer *w = *writer;
  *writer = NULL;
  return w ? brim_fs_writer_commit(w) : BRIM_OK;
}

static brim_status put_be32(brim_fs_writer *w, uint32_t v) {
  uint8_t bytes[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
  return brim_fs_writer_write(w, bytes, sizeof bytes);
}

//---------------------------------- IDX ----------------------------------

// Labels are bytes where they fit, else 32-bit; numbers are floats.
static uint32_t label_type(const brim_pack *pack) {
  return pack->info.classes == 0 ? 0x0d : pack->info.classes <= 256 ? 0x08 : 0x0c;
}

static brim_status begin_idx(brim_pack *pack) {
  files_writer *w = pack->state;
  const brim_source_info *info = &pack->info;
  bool train = strcmp(pack->split, "train") == 0;
  uint32_t count = (uint32_t)info->count, rank = (uint32_t)info->rank + 1;
  BRIM_TRY(
      open_one(pack, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", &w->samples));
  BRIM_TRY(
      open_one(pack, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", &w->labels));
  BRIM_TRY(put_be32(w->samples, (info->type == BRIM_SAMPLE_U8 ? 0x0800u : 0x0d00u) | rank));
  BRIM_TRY(put_be32(w->samples, count));
  for (int i = 0; i < info->rank; i++) BRIM_TRY(put_be32(w->samples, (uint32_t)info->dim[i]));
  BRIM_TRY(put_be32(w->labels, label_type(pack) << 8 | (info->classes == 0 ? 2u : 1u)));
  BRIM_TRY(put_be32(w->labels, count));
  return info->classes == 0 ? put_be32(w->labels, (uint32_t)info->target_dim) : BRIM_OK;
}

static brim_status put_words(brim_fs_writer *out, const void *data, size_t bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t v;
    memcpy(&v, p + i, sizeof v);
    BRIM_TRY(put_be32(out, v));
  }
  return BRIM_OK;
}

static brim_status put_idx(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                           uint64_t count) {
  files_writer *w = pack->state;
  size_t bytes = (size_t)count * pack->input_bytes;
  BRIM_TRY(pack->info.type == BRIM_SAMPLE_U8 ? brim_fs_writer_write(w->samples, inputs, bytes)
                                             : put_words(w->samples, inputs, bytes));
  if (label_type(pack) != 0x08)
    return put_words(w->labels, targets, (size_t)count * pack->target_bytes);
  for (uint64_t i = 0; i < count; i++) {
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    uint8_t byte = (uint8_t)label;
    BRIM_TRY(brim_fs_writer_write(w->labels, &byte, 1));
  }
  return BRIM_OK;
}

//---------------------------------- CIFAR ----------------------------------

// Five files for CIFAR-10's training set, as even as the number allows.
static brim_status next_cifar(brim_pack *pack) {
  files_writer *w = pack->state;
  const brim_cifar_format *f =
      pack->options.format == BRIM_PACK_CIFAR10 ? &brim_cifar10_format : &brim_cifar100_format;
  bool train = strcmp(pack->split, "train") == 0;
  uint64_t files = train && f == &brim_cifar10_format ? TRAIN_FILES : 1;
  uint64_t count = pack->info.count;
  BRIM_TRY(close_one(&w->samples));
  BRIM_TRY(open_one(pack, train ? f->train[w->file] : f->test[0], &w->samples));
  w->left = count / files + (w->file < count % files);
  w->file++;
  return BRIM_OK;
}

// CIFAR-100's coarse label is made up: five fine ones to each.
static brim_status put_cifar(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                             uint64_t count) {
  files_writer *w = pack->state;
  size_t head = pack->options.format == BRIM_PACK_CIFAR10 ? 1 : 2;
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t *in = inputs + i * pack->input_bytes;
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    w->record[0] = (uint8_t)(label / 5);
    w->record[head - 1] = (uint8_t)label;
    for (size_t p = 0; p < BRIM_CIFAR_PLANE; p++) {
      for (size_t c = 0; c < 3; c++) w->record[head + c * BRIM_CIFAR_PLANE + p] = in[3 * p + c];
    }
    if (w->left == 0) BRIM_TRY(next_cifar(pack));
    BRIM_TRY(brim_fs_writer_write(w->samples, w->record, head + BRIM_CIFAR_PIXELS));
    w->left--;
  }
  return BRIM_OK;
}

//---------------------------------- STL-10 ----------------------------------

static brim_status begin_stl10(brim_pack *pack) {
  files_writer *w = pack->state;
  char name[32];
  snprintf(name, sizeof name, "%s_X.bin", pack->split);
  BRIM_TRY(open_one(pack, name, &w->samples));
  if (strcmp(pack->split, "unlabeled") == 0) return BRIM_OK;
  snprintf(name, sizeof name, "%s_y.bin", pack->split);
  return open_one(pack, name, &w->labels);
}

// Planes R, G, B, each column by column; labels from 1.
static brim_status put_stl10(brim_pack *pack, const uint8_t *inputs, const uint8_t *targets,
                             uint64_t count) {
  files_writer *w = pack->state;
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t *in = inputs + i * pack->input_bytes;
    uint8_t *out = w->record;
    for (size_t c = 0; c < 3; c++) {
      for (size_t x = 0; x < BRIM_STL10_SIDE; x++) {
        for (size_t y = 0; y < BRIM_STL10_SIDE; y++) *out++ = in[(y * BRIM_STL10_SIDE + x) * 3 + c];
      }
    }
    BRIM_TRY(brim_fs_writer_write(w->samples, w->record, BRIM_STL10_IMAGE));
    if (!w->labels) continue;
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    uint8_t byte = (uint8_t)(label + 1);
    BRIM_TRY(brim_fs_writer_write(w->labels, &byte, 1));
  }
  return BRIM_OK;
}

//---------------------------------- the table ----------------------------------

static brim_status files_begin(brim_pack *pack) {
  files_writer *w = pack->state;
  w->file = w->left = 0;
  switch (pack->options.format) {
    case BRIM_PACK_IDX:
      return begin_idx(pack);
    case BRIM_PACK_STL10:
      return begin_stl10(pack);
    default:
      return BRIM_OK;  // CIFAR's files open when a record goes there
  }
}

static brim_status check_labels(const brim_pack *pack, const uint8_t *targets, uint64_t count) {
  for (uint64_t i = 0; pack->info.classes > 0 && i < count; i++) {
    int32_t label;
    memcpy(&label, targets + i * sizeof label, sizeof label);
    if (label >= 0 && label < pack->info.classes) continue;
    return brim_fail(BRIM_EPARSE, "label %d of sample %llu is not in [0, %lld)", (int)label,
                     (unsigned long long)(pack->written + i), (long long)pack->info.classes);
  }
  return BRIM_OK;
}

static brim_status files_put(brim_pack *pack, const void *inputs, const void *targets,
                             uint64_t count) {
  BRIM_TRY(check_labels(pack, targets, count));
  switch (pack->options.format) {
    case BRIM_PACK_IDX:
      return put_idx(pack, inputs, targets, count);
    case BRIM_PACK_STL10:
      return put_stl10(pack, inputs, targets, count);
    default:
      return put_cifar(pack, inputs, targets, count);
  }
}

static brim_status files_end(brim_pack *pack) {
  files_writer *w = pack->state;
  BRIM_TRY(close_one(&w->samples));
  return close_one(&w->labels);
}

static brim_status files_close(brim_pack *pack, bool good) {
  files_writer *w = pack->state;
  (void)good;
  if (!w) return BRIM_OK;
  brim_fs_writer_abort(w->samples);  // of a split that did not end
  brim_fs_writer_abort(w->labels);
  brim_free(w);
  pack->state = NULL;
  return BRIM_OK;
}

const brim_pack_writer brim_pack_writer_files = {
    .open = files_open,
    .begin = files_begin,
    .put = files_put,
    .end = files_end,
    .close = files_close,
};
