// The source `stl10`: images stay in their file; a read takes one record by pread and turns it into rows
// of pixels. Labels are read and checked when the source is opened, and kept in planned memory. Splits:
// train, val and test (both the test set), unlabeled (no target). Arguments: path=P (instead of
// data.path; the folder of the files or the folder above it), split, limit=N (the first N samples),
// fold=0..9 (only the training images of this fold, a line of fold_indices.txt).
#include "data/data_int.h"

#include <inttypes.h>
#include <string.h>

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define FOLDER "stl10_binary"
enum { FOLD_BYTES_MAX = 16 << 20 };

typedef struct stl10_split {
  const char *name, *images, *labels;
  uint64_t records;  // of the original set
} stl10_split;

static const stl10_split splits[] = {
    {"train", "train_X.bin", "train_y.bin", 5000},
    {"val", "test_X.bin", "test_y.bin", 8000},
    {"test", "test_X.bin", "test_y.bin", 8000},
    {"unlabeled", "unlabeled_X.bin", NULL, 100000},
};

//---------------------------------- records ----------------------------------

brim_status brim_stl10_count(const char *path, size_t size, uint64_t *count) {
  if (size == 0 || size % BRIM_STL10_IMAGE != 0) {
    return brim_fail(
        BRIM_EPARSE,
        "%s: %zu bytes; an stl10 file is whole images of %d bytes, the last one begins "
        "at offset %zu and has %zu; copy or download it again",
        path, size, BRIM_STL10_IMAGE, size / BRIM_STL10_IMAGE * BRIM_STL10_IMAGE,
        size % BRIM_STL10_IMAGE);
  }
  *count = size / BRIM_STL10_IMAGE;
  return BRIM_OK;
}

brim_status brim_stl10_check_labels(uint8_t *labels, size_t count, const char *path,
                                    uint64_t first) {
  for (size_t i = 0; i < count; i++) {
    if (labels[i] < 1 || labels[i] > BRIM_STL10_CLASSES) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %" PRIu64 ": label %d is not in 1..%d; is it an stl10 file?",
                       path, first + i, labels[i], BRIM_STL10_CLASSES);
    }
    labels[i]--;
  }
  return BRIM_OK;
}

brim_status brim_stl10_read_fold(const char *text, size_t size, const char *path, int64_t fold,
                                 uint64_t images, uint32_t *out, size_t *count) {
  size_t at = 0;
  for (int64_t line = 0; line < fold && at < size; at++) line += text[at] == '\n';
  *count = 0;
  while (at < size && text[at] != '\n') {
    if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
      at++;
      continue;
    }
    size_t start = at;
    uint64_t value = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9' && value < images; at++) {
      value = value * 10 + (uint64_t)(text[at] - '0');
    }
    if (at == start) {
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: not a whole number", path, at);
    }
    if (value >= images) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %zu: names an image beyond the %" PRIu64 " in the file", path,
                       start, images);
    }
    if (*count == images) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %zu: fold %" PRId64 " has more numbers than there are images",
                       path, start, fold);
    }
    out[(*count)++] = (uint32_t)value;
  }
  if (*count) return BRIM_OK;
  return brim_fail(BRIM_EPARSE, "%s: line %" PRId64 ", fold %" PRId64 ", has no numbers", path,
                   fold + 1, fold);
}

//---------------------------------- pixels ----------------------------------

// GCC's vectors, which compile on every machine: to unpack (SSE2), zip (NEON), or plain code.
typedef uint8_t bytes16 __attribute__((vector_size(16)));

#define ZIP_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

// Transposes 16 columns of 16 bytes in four rounds, each of which interleaves the bytes of rows i and
// i + 8. Unrolled, so that all 16 rows stay in registers.
static inline void transpose16(const uint8_t *in, bytes16 out[16]) {
  bytes16 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) memcpy(&a[i], in + i * BRIM_STL10_SIDE, 16);
#pragma GCC unroll 4
  for (int round = 0; round < 4; round++) {
    const bytes16 *from = round % 2 ? b : a;
    bytes16 *to = round == 3 ? out : round % 2 ? a : b;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      to[2 * i] = ZIP_LOW(from[i], from[i + 8]);
      to[2 * i + 1] = ZIP_HIGH(from[i], from[i + 8]);
    }
  }
}

// Writes 16 pixels of a row. more: the byte after them may be written, because it is overwritten later.
static inline void put_pixels(bytes16 r, bytes16 g, bytes16 b, uint8_t *out, bool more) {
#if defined(__ARM_NEON)
  (void)more;
  uint8x16x3_t rgb = {{(uint8x16_t)r, (uint8x16_t)g, (uint8x16_t)b}};
  vst3q_u8(out, rgb);
#else
  uint8_t pixel[64];
  bytes16 zero = {0};
  bytes16 rg[2] = {ZIP_LOW(r, g), ZIP_HIGH(r, g)}, bz[2] = {ZIP_LOW(b, zero), ZIP_HIGH(b, zero)};
  for (int i = 0; i < 2; i++) {
    bytes16 low = __builtin_shufflevector(rg[i], bz[i], 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6,
                                          7, 22, 23);
    bytes16 high = __builtin_shufflevector(rg[i], bz[i], 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28,
                                           29, 14, 15, 30, 31);
    memcpy(pixel + 32 * i, &low, 16);
    memcpy(pixel + 32 * i + 16, &high, 16);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 15; i++) memcpy(out + 3 * i, pixel + 4 * i, 4);
  memcpy(out + 45, pixel + 60, more ? 4 : 3);
#endif
}

void brim_stl10_interleave(const uint8_t *planes, uint8_t *pixels) {
  for (int y = 0; y < BRIM_STL10_SIDE; y += 16) {
    for (int x = 0; x < BRIM_STL10_SIDE; x += 16) {
      bytes16 tile[3][16];
      for (int c = 0; c < 3; c++) {
        transpose16(planes + c * BRIM_STL10_PLANE + x * BRIM_STL10_SIDE + y, tile[c]);
      }
      for (int i = 0; i < 16; i++) {
        put_pixels(tile[0][i], tile[1][i], tile[2][i], pixels + ((y + i) * BRIM_STL10_SIDE + x) * 3,
                   x + 16 < BRIM_STL10_SIDE);
      }
    }
  }
}

//---------------------------------- files ----------------------------------

typedef struct stl10_state {
  const stl10_split *split;
  char *images_path, *labels_path, *folds_path;  // NULL: no such file is read
  brim_data_file images;
  uint64_t records;  // in the file
  void *memory;      // one planned block for `order` and `labels`
  size_t memory_bytes;
  uint32_t *order;  // record of each sample; NULL = as in the file
  uint8_t *labels;  // 0 to 9, of all records; NULL = none
  brim_source_info info;
} stl10_state;

static brim_status fail_memory(void) { return brim_fail(BRIM_ENOMEM, "stl10: out of memory"); }

// Sets *found if the folder holds the labels. Labels without images are an incomplete set, not a missing
// split.
static brim_status find_labels(const stl10_state *s, const char *folder, bool *found) {
  char *file = brim_fs_join(folder, s->split->labels);
  if (!file) return fail_memory();
  *found = *found || brim_fs_exists(file);
  brim_free(file);
  return BRIM_OK;
}

// Finds the folder that holds the images: the path itself, or the archive's folder in it.
static brim_status find_folder(const stl10_state *s, const char *path, char **out) {
  if (brim_fs_exists(path) && !brim_fs_is_dir(path)) {
    return brim_fail(BRIM_EINVAL, "%s: stl10 needs the folder of %s, not a file", path,
                     s->split->images);
  }
  if (!brim_fs_exists(path)) {
    return brim_fail(BRIM_ENOENT, "%s: no such folder; stl10 needs the folder of %s", path,
                     s->split->images);
  }
  char *folders[2] = {brim_strdup(path), brim_fs_join(path, FOLDER)};
  brim_status status = folders[0] && folders[1] ? BRIM_OK : fail_memory();
  *out = NULL;
  bool labels = false;
  for (int i = 0; i < 2; i++) {
    if (!status && !*out && s->split->labels) status = find_labels(s, folders[i], &labels);
    char *file = status || *out ? NULL : brim_fs_join(folders[i], s->split->images);
    if (!file && !status && !*out) status = fail_memory();
    if (file && brim_fs_exists(file)) {
      *out = folders[i];
    } else {
      brim_free(folders[i]);
    }
    brim_free(file);
  }
  if (!status && !*out && labels) {
    status = brim_fail(BRIM_EPARSE, "%s: %s exists, but %s is missing", path, s->split->labels,
                       s->split->images);
  } else if (!status && !*out) {
    status =
        brim_fail(BRIM_ENOENT,
                  s->split->labels ? "%s: neither %s nor %s/%s exists"
                                   : "%s: neither %s nor %s/%s exists; dataset=stl10 trains on "
                                     "the labelled images instead",
                  path, s->split->images, FOLDER, s->split->images);
  }
  return status;
}

static brim_status open_images(stl10_state *s, const char *folder) {
  s->images_path = brim_fs_join(folder, s->split->images);
  if (!s->images_path) return fail_memory();
  BRIM_TRY(brim_data_file_open(s->images_path, &s->images));
  BRIM_TRY(brim_stl10_count(s->images_path, s->images.size, &s->records));
  if (s->records > UINT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "%s: %" PRIu64 " images are too many", s->images_path,
                     s->records);
  }
  if (s->records != s->split->records) {
    brim_log_warn("data", "%s: %" PRIu64 " images; stl10 has %" PRIu64, s->images_path, s->records,
                  s->split->records);
  }
  return BRIM_OK;
}

static brim_status read_labels(stl10_state *s, const char *folder) {
  if (!s->labels) return BRIM_OK;
  char *path = s->labels_path = brim_fs_join(folder, s->split->labels);
  brim_data_file file = {0};
  brim_status status = path ? brim_data_file_open(path, &file) : fail_memory();
  if (status == BRIM_ENOENT) {
    status =
        brim_fail(BRIM_EPARSE, "%s: missing; it holds the labels of %s", path, s->split->images);
  }
  if (!status && file.size != s->records) {
    status =
        brim_fail(BRIM_EPARSE, "%s: %zu bytes; %" PRIu64 " expected, a label for each image of %s",
                  path, file.size, s->records, s->split->images);
  }
  if (!status) status = brim_data_file_read(&file, 0, s->labels, s->records);
  if (!status) status = brim_stl10_check_labels(s->labels, s->records, path, 0);
  brim_data_file_close(&file);
  return status;
}

static brim_status read_order(stl10_state *s, const char *folder, int64_t fold) {
  if (!s->order) return BRIM_OK;
  char *path = s->folds_path = brim_fs_join(folder, "fold_indices.txt"), *text = NULL;
  size_t size = 0, count = 0;
  brim_status status = path ? brim_fs_read(path, FOLD_BYTES_MAX, &text, &size) : fail_memory();
  if (status == BRIM_ENOENT) status = BRIM_EINVAL;  // the split exists, only the folds are missing
  if (!status) {
    status = brim_stl10_read_fold(text, size, path, fold, s->records, s->order, &count);
  }
  s->info.count = count;
  brim_free(text);
  return status;
}

//---------------------------------- the table ----------------------------------

static void stl10_close(void *state) {
  stl10_state *s = state;
  if (!s) return;
  brim_data_file_close(&s->images);
  brim_free(s->images_path);
  brim_free(s->labels_path);
  brim_free(s->folds_path);
  brim_free(s->memory);
  brim_free(s);
}

// Allocates one block: the order comes first, for its alignment.
static brim_status alloc_memory(stl10_state *s, bool order) {
  size_t order_bytes = order ? s->records * sizeof *s->order : 0;
  s->memory_bytes = order_bytes + (s->split->labels ? s->records : 0);
  if (!s->memory_bytes) return BRIM_OK;
  s->memory = brim_alloc_tagged(s->memory_bytes, BRIM_MEM_PLANNED);
  if (!s->memory) return fail_memory();
  if (order) s->order = s->memory;
  if (s->split->labels) s->labels = (uint8_t *)s->memory + order_bytes;
  return BRIM_OK;
}

static void fill_info(brim_source_info *info, const stl10_split *split) {
  static const float mean[3] = {0.4467f, 0.4398f, 0.4066f}, std[3] = {0.2603f, 0.2566f, 0.2713f};
  info->type = BRIM_SAMPLE_U8;
  info->rank = 3;
  info->dim[0] = info->dim[1] = BRIM_STL10_SIDE;
  info->dim[2] = info->channels = 3;
  info->classes = split->labels ? BRIM_STL10_CLASSES : 0;
  memcpy(info->mean, mean, sizeof mean);
  memcpy(info->std, std, sizeof std);
}

static brim_status open_files(stl10_state *s, const char *path, int64_t fold) {
  char *folder = NULL;
  BRIM_TRY(find_folder(s, path, &folder));
  brim_status status = open_images(s, folder);
  s->info.count = s->records;
  if (!status) status = alloc_memory(s, fold >= 0);
  if (!status) status = read_labels(s, folder);
  if (!status) status = read_order(s, folder, fold);
  brim_free(folder);
  return status;
}

static brim_status open_set(stl10_state *s, const brim_source_how *how, const json_t *args) {
  const char *path = how->path, *split = how->split ? how->split : "train";
  int64_t limit = 0, fold = -1;
  BRIM_TRY(brim_data_args_string(args, "stl10", "path", &path));
  BRIM_TRY(brim_data_args_int(args, "stl10", "limit", 1, INT64_MAX, &limit));
  BRIM_TRY(brim_data_args_int(args, "stl10", "fold", 0, BRIM_STL10_FOLDS - 1, &fold));
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    if (strcmp(splits[i].name, split) == 0) s->split = &splits[i];
  }
  if (!s->split) {
    return brim_fail(BRIM_EINVAL,
                     "stl10: no split '%s'; choose train, val (the test set), test or unlabeled",
                     split);
  }
  if (fold >= 0 && s->split != &splits[0]) {
    return brim_fail(BRIM_ENOENT, "stl10: fold applies to the split train, not %s", split);
  }
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL, "stl10 needs data.path: the folder of %s and its companions",
                     s->split->images);
  }
  BRIM_TRY(open_files(s, path, fold));
  if (limit && (uint64_t)limit < s->info.count) s->info.count = (uint64_t)limit;
  fill_info(&s->info, s->split);
  return BRIM_OK;
}

static brim_status stl10_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path", "split", "limit", "fold", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("stl10", how->args_json, known, &args));
  stl10_state *s = brim_calloc(1, sizeof *s);
  brim_status status = s ? open_set(s, how, args) : fail_memory();
  json_decref(args);
  if (status) {
    stl10_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void stl10_info(void *state, brim_source_info *out) { *out = ((stl10_state *)state)->info; }

static uint64_t record_of(const stl10_state *s, uint64_t index) {
  return s->order ? s->order[index] : index;
}

static brim_status stl10_read(void *state, uint64_t index, void *input, void *target) {
  const stl10_state *s = state;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "stl10: holds %" PRIu64 " samples", s->info.count);
  }
  uint64_t record = record_of(s, index);
  uint8_t planes[BRIM_STL10_IMAGE];
  BRIM_TRY(brim_data_file_read(&s->images, record * BRIM_STL10_IMAGE, planes, sizeof planes));
  brim_stl10_interleave(planes, input);
  if (s->labels) {
    int32_t label = s->labels[record];
    memcpy(target, &label, sizeof label);
  }
  return BRIM_OK;
}

static void stl10_describe(void *state, uint64_t index, char *text, size_t size) {
  const stl10_state *s = state;
  if (!size) return;
  text[0] = 0;
  if (index < s->info.count) {
    snprintf(text, size, "%s[%" PRIu64 "]", s->split->images, record_of(s, index));
  }
}

static uint64_t stl10_host_bytes(void *state) { return ((stl10_state *)state)->memory_bytes; }

static size_t stl10_files(void *state, const char *paths[BRIM_SOURCE_FILES]) {
  const stl10_state *s = state;
  size_t n = 0;
  paths[n++] = s->images_path;
  if (s->labels_path) paths[n++] = s->labels_path;
  if (s->folds_path) paths[n++] = s->folds_path;
  return n;
}

static int64_t stl10_label(const void *state, uint64_t index) {
  const stl10_state *s = state;
  return s->labels[record_of(s, index)];
}

const brim_source_table brim_source_stl10 = {
    .abi = BRIM_SOURCE_ABI,
    .name = "stl10",
    .open = stl10_open,
    .info = stl10_info,
    .read = stl10_read,
    .close = stl10_close,
    .describe = stl10_describe,
};

const brim_source_builtin brim_builtin_stl10 = {
    .table = &brim_source_stl10,
    .host_bytes = stl10_host_bytes,
    .label = stl10_label,
    .no_val = true,
    .files = stl10_files,
};
