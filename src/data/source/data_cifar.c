// The sources `cifar10` and `cifar100`: binary files of records (data_int.h describes the layout). Images
// stay in the files: a read takes one record by pread, without a lock, and turns planes into pixels.
// data.cache keeps images in memory. Labels are read and checked when the source is opened, and kept in
// planned memory, so a later read fails only if the file does. Arguments: path=P (instead of data.path),
// limit=N (only the first N samples), split (as in brim_source_open; val is the test set).
#include <inttypes.h>
#include <string.h>

#include "data/data_int.h"

enum { MAX_FILES = 5, PIECE = 128 };  // PIECE: records read at once

const brim_cifar_format brim_cifar10_format = {
    .name = "cifar10",
    .folder = "cifar-10-batches-bin",
    .train = (const char *const[]){"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                   "data_batch_4.bin", "data_batch_5.bin", NULL},
    .test = (const char *const[]){"test_batch.bin", NULL},
    .label_bytes = 1,
    .label_below = {10},
    .records = {50000, 10000},
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .std = {0.2470f, 0.2435f, 0.2616f},
};

const brim_cifar_format brim_cifar100_format = {
    .name = "cifar100",
    .folder = "cifar-100-binary",
    .train = (const char *const[]){"train.bin", NULL},
    .test = (const char *const[]){"test.bin", NULL},
    .label_bytes = 2,
    .label_below = {20, 100},
    .records = {50000, 10000},
    .mean = {0.5071f, 0.4865f, 0.4409f},
    .std = {0.2673f, 0.2564f, 0.2762f},
};

//---------------------------------- records ----------------------------------

size_t brim_cifar_record_bytes(const brim_cifar_format *format) {
  return format->label_bytes + BRIM_CIFAR_PIXELS;
}

brim_status brim_cifar_count(const brim_cifar_format *format, const char *path, size_t size,
                             uint64_t *count) {
  size_t record = brim_cifar_record_bytes(format);
  if (size == 0 || size % record != 0) {
    return brim_fail(BRIM_EPARSE,
                     "%s: %zu bytes; a %s file is whole records of %zu bytes, the last one begins "
                     "at offset %zu and has %zu; copy or download it again",
                     path, size, format->name, record, size / record * record, size % record);
  }
  *count = size / record;
  return BRIM_OK;
}

brim_status brim_cifar_check(const brim_cifar_format *format, const uint8_t *records, size_t count,
                             const char *path, uint64_t offset, uint8_t *labels) {
  size_t record = brim_cifar_record_bytes(format);
  for (size_t i = 0; i < count; i++, records += record) {
    for (size_t k = 0; k < format->label_bytes; k++) {
      if (records[k] < format->label_below[k]) continue;
      uint64_t at = offset + i * record;
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %" PRIu64 ": label %d of record %" PRIu64
                       " is not in [0, %d); is it a %s file?",
                       path, at + k, records[k], at / record, format->label_below[k], format->name);
    }
    labels[i] = records[format->label_bytes - 1];
  }
  return BRIM_OK;
}

void brim_cifar_interleave(const uint8_t *planes, uint8_t *pixels) {
  const uint8_t *r = planes, *g = r + BRIM_CIFAR_PLANE, *b = g + BRIM_CIFAR_PLANE;
  for (size_t i = 0; i < BRIM_CIFAR_PLANE; i++) {
    pixels[3 * i] = r[i];
    pixels[3 * i + 1] = g[i];
    pixels[3 * i + 2] = b[i];
  }
}

//---------------------------------- files ----------------------------------

typedef struct cifar_file {
  char *path;
  brim_data_file file;
  uint64_t first, count;  // its samples are [first, first + count)
} cifar_file;

typedef struct cifar_state {
  const brim_cifar_format *format;
  cifar_file files[MAX_FILES];
  size_t file_count;
  uint8_t *labels;
  uint64_t records;  // in the files; info.count may be less
  brim_source_info info;
} cifar_state;

static brim_status fail_memory(const cifar_state *s) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", s->format->name);
}

// Finds the folder that holds the file `first`: the path itself, or the archive's folder in it. *out
// NULL: neither holds it.
static brim_status find_folder(const cifar_state *s, const char *path, const char *first,
                               char **out) {
  char *inner = brim_fs_join(path, s->format->folder);
  char *outer = brim_strdup(path);
  *out = NULL;
  brim_status status = inner && outer ? BRIM_OK : fail_memory(s);
  char *const folders[] = {outer, inner};
  for (size_t i = 0; !status && !*out && i < 2; i++) {
    char *file = brim_fs_join(folders[i], first);
    if (!file) {
      status = fail_memory(s);
    } else if (brim_fs_exists(file)) {
      *out = folders[i];
    }
    brim_free(file);
  }
  if (*out != inner) brim_free(inner);
  if (*out != outer) brim_free(outer);
  return status;
}

// Fails because the split's first file is missing: with BRIM_EPARSE if another file of the split exists,
// else with BRIM_ENOENT.
static brim_status fail_missing(const cifar_state *s, const char *path, const char *const *names) {
  const char *folder = NULL, *first = names[0];
  for (const char *const *name = names + 1; *name && !folder; name++) {
    char *found = NULL;
    BRIM_TRY(find_folder(s, path, *name, &found));
    if (found) folder = *name;
    brim_free(found);
  }
  if (folder) {
    return brim_fail(BRIM_EPARSE, "%s: %s exists, but %s is missing; %s needs both", path, folder,
                     first, s->format->name);
  }
  return brim_fail(BRIM_ENOENT, "%s: neither %s nor %s/%s exists", path, first, s->format->folder,
                   first);
}

static brim_status open_files(cifar_state *s, const char *path, bool train) {
  const char *const *names = train ? s->format->train : s->format->test;
  char *folder = NULL;
  if (brim_fs_exists(path) && !brim_fs_is_dir(path)) {
    return brim_fail(BRIM_EINVAL, "%s: %s needs the folder of %s, not a file", path,
                     s->format->name, names[0]);
  }
  if (!brim_fs_exists(path)) {
    return brim_fail(BRIM_ENOENT, "%s: no such folder; %s needs the folder of %s", path,
                     s->format->name, names[0]);
  }
  BRIM_TRY(find_folder(s, path, names[0], &folder));
  if (!folder) return fail_missing(s, path, names);
  const char *first = names[0];
  brim_status status = BRIM_OK;
  for (; *names && !status; names++) {
    cifar_file *f = &s->files[s->file_count++];
    f->path = brim_fs_join(folder, *names);
    status = f->path ? brim_data_file_open(f->path, &f->file) : fail_memory(s);
    if (!status) status = brim_cifar_count(s->format, f->path, f->file.size, &f->count);
    if (status == BRIM_ENOENT) {
      status = brim_fail(BRIM_EPARSE, "%s: %s exists, but %s is missing; %s needs both", folder,
                         first, *names, s->format->name);
    }
    if (status) break;
    f->first = s->records;
    s->records += f->count;
  }
  if (!status && s->records != s->format->records[train ? 0 : 1]) {
    brim_log_warn("data", "%s: %" PRIu64 " records for %s; %s has %" PRIu64, folder, s->records,
                  train ? "training" : "testing", s->format->name,
                  s->format->records[train ? 0 : 1]);
  }
  brim_free(folder);
  return status;
}

// Reads every label once, in pieces.
static brim_status read_labels(cifar_state *s) {
  size_t record = brim_cifar_record_bytes(s->format);
  s->labels = brim_alloc_tagged(s->records, BRIM_MEM_PLANNED);
  uint8_t *piece = brim_alloc(PIECE * record);
  brim_status status = s->labels && piece ? BRIM_OK : fail_memory(s);
  for (size_t i = 0; i < s->file_count && !status; i++) {
    const cifar_file *f = &s->files[i];
    for (uint64_t at = 0; at < f->count && !status; at += PIECE) {
      size_t n = f->count - at < PIECE ? (size_t)(f->count - at) : PIECE;
      status = brim_data_file_read(&f->file, at * record, piece, n * record);
      if (status) break;
      status =
          brim_cifar_check(s->format, piece, n, f->path, at * record, s->labels + f->first + at);
    }
  }
  brim_free(piece);
  return status;
}

//---------------------------------- the tables ----------------------------------

static void cifar_close(void *state) {
  cifar_state *s = state;
  if (!s) return;
  for (size_t i = 0; i < s->file_count; i++) {
    brim_data_file_close(&s->files[i].file);
    brim_free(s->files[i].path);
  }
  brim_free(s->labels);
  brim_free(s);
}

static brim_status open_set(cifar_state *s, const brim_source_how *how, const json_t *args) {
  static const char *const splits[] = {"train", "val", "test", NULL};
  const brim_cifar_format *format = s->format;
  const char *path = how->path;
  int64_t limit = 0;
  BRIM_TRY(brim_data_args_split(format->name, how->split, splits));
  BRIM_TRY(brim_data_args_string(args, format->name, "path", &path));
  BRIM_TRY(brim_data_args_int(args, format->name, "limit", 1, INT64_MAX, &limit));
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL, "%s needs data.path: the folder of %s and its companions",
                     format->name, format->train[0]);
  }
  BRIM_TRY(open_files(s, path, strcmp(how->split, "train") == 0));
  BRIM_TRY(read_labels(s));
  brim_source_info *info = &s->info;
  info->count = limit && (uint64_t)limit < s->records ? (uint64_t)limit : s->records;
  info->type = BRIM_SAMPLE_U8;
  info->rank = 3;
  info->dim[0] = info->dim[1] = BRIM_CIFAR_SIDE;
  info->dim[2] = info->channels = 3;
  info->classes = format->label_below[format->label_bytes - 1];
  memcpy(info->mean, format->mean, sizeof format->mean);
  memcpy(info->std, format->std, sizeof format->std);
  return BRIM_OK;
}

static brim_status cifar_open(const brim_cifar_format *format, const brim_source_how *how,
                              void **state) {
  static const char *const known[] = {"path", "split", "limit", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse(format->name, how->args_json, known, &args));
  cifar_state *s = brim_calloc(1, sizeof *s);
  if (s) s->format = format;
  brim_status status =
      s ? open_set(s, how, args) : brim_fail(BRIM_ENOMEM, "%s: out of memory", format->name);
  json_decref(args);
  if (status) {
    cifar_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static brim_status cifar10_open(const brim_source_how *how, void **state) {
  return cifar_open(&brim_cifar10_format, how, state);
}

static brim_status cifar100_open(const brim_source_how *how, void **state) {
  return cifar_open(&brim_cifar100_format, how, state);
}

static void cifar_info(void *state, brim_source_info *out) { *out = ((cifar_state *)state)->info; }

static brim_status cifar_read(void *state, uint64_t index, void *input, void *target) {
  const cifar_state *s = state;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " samples", s->format->name, s->info.count);
  }
  const cifar_file *f = s->files;
  while (index >= f->first + f->count) f++;
  uint8_t planes[BRIM_CIFAR_PIXELS];
  size_t at = (size_t)(index - f->first) * brim_cifar_record_bytes(s->format);
  BRIM_TRY(brim_data_file_read(&f->file, at + s->format->label_bytes, planes, sizeof planes));
  brim_cifar_interleave(planes, input);
  int32_t label = s->labels[index];
  memcpy(target, &label, sizeof label);
  return BRIM_OK;
}

static void cifar_describe(void *state, uint64_t index, char *text, size_t size) {
  const cifar_state *s = state;
  const cifar_file *f = s->files;
  while (f + 1 < s->files + s->file_count && index >= f->first + f->count) f++;
  snprintf(text, size, "%s[%" PRIu64 "]", brim_fs_basename(f->path), index - f->first);
}

_Static_assert((int)MAX_FILES <= (int)BRIM_SOURCE_FILES, "all of them fit");
static size_t cifar_files(void *state, const char *paths[BRIM_SOURCE_FILES]) {
  const cifar_state *s = state;
  for (size_t i = 0; i < s->file_count; i++) paths[i] = s->files[i].path;
  return s->file_count;
}

static int64_t cifar_label(const void *state, uint64_t index) {
  return ((const cifar_state *)state)->labels[index];
}

static uint64_t cifar_host_bytes(void *state) { return ((cifar_state *)state)->records; }

#define TABLE(format)                                                                   \
  {                                                                                     \
    .abi = BRIM_SOURCE_ABI, .name = #format, .open = format##_open, .info = cifar_info, \
    .read = cifar_read, .close = cifar_close, .describe = cifar_describe                \
  }

const brim_source_table brim_source_cifar10 = TABLE(cifar10);
const brim_source_table brim_source_cifar100 = TABLE(cifar100);

#define BUILTIN(format)                                                                   \
  {                                                                                       \
    .table = &brim_source_##format, .host_bytes = cifar_host_bytes, .label = cifar_label, \
    .no_val = true, .files = cifar_files                                                  \
  }
const brim_source_builtin brim_builtin_cifar10 = BUILTIN(cifar10);
const brim_source_builtin brim_builtin_cifar100 = BUILTIN(cifar100);
