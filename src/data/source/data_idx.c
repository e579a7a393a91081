// IDX files, plain or gzip. The header of an array is checked against the file's size:
//
//   0  2 bytes 0 | 2 type code | 3 rank | 4 rank big-endian u32 sizes | elements, big-endian
//
// The source `idx` (also `mnist`): images and labels in two IDX files. Images of a plain file stay in
// the file and are read sample by sample; a gzip file is unpacked once into planned memory. Class labels
// are always in memory. Sizes, counts and labels are checked on opening, so that a later read fails only
// if the file does: another process truncates it, or the disk breaks. Arguments: path=P (instead of
// data.path), limit=N (only the first N samples), classes=N (labels are below N; by default 10 if the
// files have MNIST's names, else the largest label + 1), labels=FILE (if the labels do not lie beside the
// images under the usual name), split (as in brim_source_open).
#include <string.h>
#include <unistd.h>

#include "data/data_int.h"

//---------------------------------- arrays ----------------------------------

enum { IDX_MAX_RANK = 4, IDX_MAX_HEADER = 4 + 4 * IDX_MAX_RANK };

static size_t type_bytes(int code) {
  switch (code) {
    case 0x08:  // u8
    case 0x09:  // i8
      return 1;
    case 0x0B:  // i16
      return 2;
    case 0x0C:  // i32
    case 0x0D:  // f32
      return 4;
    case 0x0E:  // f64
      return 8;
    default:
      return 0;
  }
}

// Parses the first four bytes: type and rank, which give the length of the header.
static brim_status parse_magic(const uint8_t *p, size_t size, const char *name, brim_idx *out) {
  if (size < 4) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: an IDX file has at least 8 bytes, this has %zu",
                     name, size, size);
  }
  if (p[0] || p[1]) {
    return brim_fail(BRIM_EPARSE, "%s: offset 0: not an IDX file: it does not begin with 00 00",
                     name);
  }
  size_t element = type_bytes(p[2]);
  if (!element) {
    return brim_fail(BRIM_EPARSE, "%s: offset 2: unknown IDX type code 0x%02x", name, p[2]);
  }
  if (p[3] < 1 || p[3] > IDX_MAX_RANK) {
    return brim_fail(BRIM_EPARSE, "%s: offset 3: rank %d, expected 1 to %d", name, p[3],
                     IDX_MAX_RANK);
  }
  *out = (brim_idx){
      .type = p[2], .rank = p[3], .header_bytes = 4 + 4 * (size_t)p[3], .element_bytes = element};
  return BRIM_OK;
}

// Parses the sizes. *body: bytes of the elements that must follow.
static brim_status parse_dims(const uint8_t *p, size_t size, const char *name, brim_idx *idx,
                              uint64_t *body) {
  if (size < idx->header_bytes) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends inside its header of %zu bytes",
                     name, size, idx->header_bytes);
  }
  uint64_t bytes = idx->element_bytes;
  for (int i = 0; i < idx->rank; i++) {
    const uint8_t *q = p + 4 + 4 * i;
    uint32_t dim = (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
    if (dim == 0) {
      return brim_fail(BRIM_EPARSE, "%s: offset %d: size %d is 0", name, 4 + 4 * i, i);
    }
    if (__builtin_mul_overflow(bytes, (uint64_t)dim, &bytes) || bytes > PTRDIFF_MAX / 2) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %d: the sizes multiply to more than memory can hold", name,
                       4 + 4 * i);
    }
    idx->dim[i] = dim;
  }
  *body = bytes;
  return BRIM_OK;
}

brim_status brim_idx_parse(const void *data, size_t size, const char *name, brim_idx *out) {
  brim_idx idx;
  uint64_t body;
  BRIM_TRY(parse_magic(data, size, name, &idx));
  BRIM_TRY(parse_dims(data, size, name, &idx, &body));
  uint64_t want = idx.header_bytes + body;
  if (size < want) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends early; its header says %llu bytes",
                     name, size, (unsigned long long)want);
  }
  if (size > want) {
    return brim_fail(BRIM_EPARSE, "%s: offset %llu: %llu bytes too many follow the data", name,
                     (unsigned long long)want, (unsigned long long)(size - want));
  }
  *out = idx;
  return BRIM_OK;
}

// Limits the size that a gzip file may unpack to, before anything is allocated: by deflate's own bound
// (a wrong header exceeds it) and by the machine's memory.
static brim_status check_unpacked(uint64_t body, size_t packed, const char *name) {
  if (body > brim_data_gz_limit(packed)) {
    return brim_fail(BRIM_EPARSE,
                     "%s: offset 4 (unpacked): the header says %llu bytes, more than %zu bytes of "
                     "gzip can hold",
                     name, (unsigned long long)body, packed);
  }
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0 && body > (uint64_t)pages * (uint64_t)page) {
    return brim_fail(BRIM_ELIMIT,
                     "%s: unpacks to %llu bytes, more than this machine's memory; gunzip it: plain "
                     "files are read sample by sample",
                     name, (unsigned long long)body);
  }
  return BRIM_OK;
}

static brim_status unpack(brim_data_gz *gz, size_t packed, const char *name, brim_idx_array *out) {
  uint8_t header[IDX_MAX_HEADER];
  uint64_t body;
  BRIM_TRY(brim_data_gz_read(gz, header, 4));
  BRIM_TRY(parse_magic(header, 4, name, &out->header));
  BRIM_TRY(brim_data_gz_read(gz, header + 4, out->header.header_bytes - 4));
  BRIM_TRY(parse_dims(header, out->header.header_bytes, name, &out->header, &body));
  BRIM_TRY(check_unpacked(body, packed, name));
  out->memory = brim_alloc_tagged((size_t)body, BRIM_MEM_PLANNED);
  if (!out->memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: unpacking needs %llu bytes", name,
                     (unsigned long long)body);
  }
  out->body = out->memory;
  out->body_bytes = (size_t)body;
  BRIM_TRY(brim_data_gz_read(gz, out->memory, out->body_bytes));
  return brim_data_gz_finish(gz);
}

static brim_status open_gz(const brim_data_file *file, brim_idx_array *out) {
  brim_data_gz *gz;
  BRIM_TRY(brim_data_gz_open(file, &gz));
  brim_status status = unpack(gz, file->size, file->path, out);
  brim_data_gz_close(gz);
  if (status) brim_idx_array_unload(out);
  return status;
}

brim_status brim_idx_array_open(const char *path, brim_idx_array *out) {
  *out = (brim_idx_array){0};
  brim_data_file file;
  BRIM_TRY(brim_data_file_open(path, &file));
  uint8_t header[IDX_MAX_HEADER] = {0};
  size_t n = file.size < sizeof header ? file.size : sizeof header;
  brim_status status = brim_data_file_read(&file, 0, header, n);
  bool gz = !status && brim_data_is_gz(header, n);
  if (gz) {
    status = open_gz(&file, out);
  } else if (!status) {
    // The parser reads only the header; the size is that of the whole file.
    status = brim_idx_parse(header, file.size, path, &out->header);
  }
  if (gz || status) {
    brim_data_file_close(&file);
    return status;
  }
  out->file = file;
  out->body_bytes = file.size - out->header.header_bytes;
  return BRIM_OK;
}

brim_status brim_idx_array_keep(brim_idx_array *array) {
  if (array->body) return BRIM_OK;
  void *memory = brim_alloc_tagged(array->body_bytes, BRIM_MEM_PLANNED);
  if (!memory) {
    return brim_fail(BRIM_ENOMEM, "%s: out of memory: loading needs %zu bytes", array->file.path,
                     array->body_bytes);
  }
  brim_status status =
      brim_data_file_read(&array->file, array->header.header_bytes, memory, array->body_bytes);
  if (status) {
    brim_free(memory);
    return status;
  }
  brim_data_file_close(&array->file);
  array->body = array->memory = memory;
  return BRIM_OK;
}

// Reads n bytes of the body from `offset` on, from memory or from the file.
static brim_status read_body(const brim_idx_array *array, size_t offset, void *out, size_t n) {
  if (!array->body) {
    return brim_data_file_read(&array->file, array->header.header_bytes + offset, out, n);
  }
  memcpy(out, array->body + offset, n);
  return BRIM_OK;
}

void brim_idx_array_unload(brim_idx_array *array) {
  brim_data_file_close(&array->file);
  brim_free(array->memory);
  *array = (brim_idx_array){0};
}

//---------------------------------- the source ----------------------------------

enum { TYPE_U8 = 0x08, TYPE_I32 = 0x0C, TYPE_F32 = 0x0D, MAX_CLASSES = 1000000 };
enum { MNIST_CLASSES = 10 };

typedef struct idx_file {
  char *path;
  brim_idx_array array;
} idx_file;

typedef struct idx_state {
  idx_file images, labels;
  size_t input_bytes;   // of one sample, in the file and in memory
  size_t target_bytes;  // of one sample in the file
  int64_t least_label;  // least class label
  brim_source_info info;
} idx_state;

//---------------------------------- finding the files ----------------------------------

static brim_status fail_memory(const char *path) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", path);
}

// Finds dir/name or dir/name.gz. Appends the names looked for to `tried`. BRIM_ENOENT without a detail if
// neither exists.
static brim_status find_one(const char *dir, const char *name, brim_str *tried, char **out) {
  static const char *const suffix[] = {"", ".gz"};
  for (size_t i = 0; i < 2; i++) {
    brim_str full;
    brim_str_init(&full);
    brim_str_printf(&full, "%s%s", name, suffix[i]);
    brim_status status = brim_str_status(&full);
    char *path = status ? NULL : brim_fs_join(dir, full.data);
    brim_str_printf(tried, "%s%s", tried->len ? ", " : "", full.data);
    brim_str_deinit(&full);
    if (!path) return fail_memory(dir);
    if (brim_fs_exists(path)) {
      *out = path;
      return BRIM_OK;
    }
    brim_free(path);
  }
  return BRIM_ENOENT;
}

// Finds a file by MNIST's names, with a hyphen or a dot before idx.
static brim_status find_in_folder(const char *dir, bool train, const char *what, int rank,
                                  char **out) {
  brim_str tried;
  brim_str_init(&tried);
  brim_status status = BRIM_ENOENT;
  for (int form = 0; form < 2 && status == BRIM_ENOENT; form++) {
    char name[64];
    snprintf(name, sizeof name, "%s-%s%cidx%d-ubyte", train ? "train" : "t10k", what,
             form ? '.' : '-', rank);
    status = find_one(dir, name, &tried, out);
  }
  if (status == BRIM_ENOENT) {
    status = brim_fail(BRIM_ENOENT, "%s: none of these files exists: %s", dir, tried.data);
  }
  brim_str_deinit(&tried);
  return status;
}

// Replaces `from` by `to` in the name, once; false if `from` is not in it.
static bool rename_part(brim_str *name, const char *from, const char *to) {
  const char *at = strstr(name->data, from);
  if (!at) return false;
  brim_str out;
  brim_str_init(&out);
  brim_str_append_n(&out, name->data, (size_t)(at - name->data));
  brim_str_append(&out, to);
  brim_str_append(&out, at + strlen(from));
  if (!out.status) {
    brim_str_clear(name);
    brim_str_append(name, out.data);
  } else {
    name->status = out.status;
  }
  brim_str_deinit(&out);
  return true;
}

// Finds the file of the same folder whose name has all `parts` (from, to) replaced, with or without .gz.
static brim_status find_sibling(const char *path, const char *const (*parts)[2], size_t count,
                                const char *what, char **out) {
  brim_str name, tried;
  brim_str_init(&name);
  brim_str_init(&tried);
  brim_str_append(&name, brim_fs_basename(path));
  if (name.len > 3 && brim_str_ends(name.data, ".gz")) {
    name.len -= 3;
    name.data[name.len] = '\0';
  }
  bool named = true;
  for (size_t i = 0; i < count; i++) {
    bool found = rename_part(&name, parts[i][0], parts[i][1]);
    if (i == 0) named = found;  // the other parts are optional: not every name holds the rank
  }
  char *dir = brim_fs_dirname(path);
  brim_status status = BRIM_ENOENT;
  if (!dir || name.status) {
    status = fail_memory(path);
  } else if (!named) {
    brim_fail(BRIM_ENOENT, "%s: cannot derive the name of its %s file: '%s' is not in its name",
              path, what, parts[0][0]);
  } else if ((status = find_one(dir, name.data, &tried, out)) == BRIM_ENOENT) {
    brim_fail(BRIM_ENOENT, "%s: its %s file is missing; looked for: %s", path, what, tried.data);
  }
  brim_free(dir);
  brim_str_deinit(&tried);
  brim_str_deinit(&name);
  return status;
}

// Finds images and labels in a folder. If one of them is missing, the set is incomplete (BRIM_EPARSE);
// if both are missing, the split does not exist (BRIM_ENOENT).
static brim_status find_pair(const char *path, bool train, bool labels, idx_state *s) {
  brim_status status = find_in_folder(path, train, "images", 3, &s->images.path);
  if (!labels || (status && status != BRIM_ENOENT)) return status;
  if (!status) {
    status = find_in_folder(path, train, "labels", 1, &s->labels.path);
    if (status != BRIM_ENOENT) return status;
    return brim_fail_context(BRIM_EPARSE, "the labels of its images are missing");
  }
  char missing[600];
  snprintf(missing, sizeof missing, "%s", brim_status_detail());
  status = find_in_folder(path, train, "labels", 1, &s->labels.path);
  if (status && status != BRIM_ENOENT) return status;
  brim_status_set_detail(missing);
  return status ? status : brim_fail_context(BRIM_EPARSE, "the images of its labels are missing");
}

// Finds the paths of images and labels. *mnist: they have MNIST's names.
static brim_status find_files(const brim_source_how *how, const char *labels_arg, idx_state *s,
                              bool *mnist) {
  static const char *const other_split[][2] = {{"train-", "t10k-"}};
  static const char *const to_labels[][2] = {{"images", "labels"}, {"idx3", "idx1"}};
  bool train = strcmp(how->split, "train") == 0;
  if (brim_fs_is_dir(how->path)) {
    *mnist = true;
    BRIM_TRY(find_pair(how->path, train, !labels_arg, s));
    if (!labels_arg) return BRIM_OK;
  } else if (!brim_fs_exists(how->path)) {
    return brim_fail(BRIM_ENOENT,
                     "%s: no such file or folder; give a folder with MNIST-named IDX "
                     "files or an IDX file of images",
                     how->path);
  } else if (!train && !brim_str_starts(brim_fs_basename(how->path), "t10k-")) {
    BRIM_TRY(find_sibling(how->path, other_split, 1, how->split, &s->images.path));
  } else {
    s->images.path = brim_strdup(how->path);
    if (!s->images.path) return fail_memory(how->path);
  }
  if (labels_arg) {
    s->labels.path = brim_strdup(labels_arg);
    return s->labels.path ? BRIM_OK : fail_memory(labels_arg);
  }
  const char *name = brim_fs_basename(s->images.path);
  *mnist = brim_str_starts(name, "train-images") || brim_str_starts(name, "t10k-images");
  brim_status status = find_sibling(s->images.path, to_labels, 2, "labels", &s->labels.path);
  return status == BRIM_ENOENT ? BRIM_EPARSE : status;  // images without labels: incomplete
}

//---------------------------------- contents of the files ----------------------------------

static void unload(idx_file *f) {
  brim_idx_array_unload(&f->array);
  brim_free(f->path);
}

static uint32_t read_be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// A whole-number label; such labels are in memory.
static int64_t label_of(const void *state, uint64_t i) {
  const idx_state *s = state;
  const uint8_t *p = s->labels.array.body + i * s->target_bytes;
  return s->labels.array.header.type == TYPE_U8 ? *p : (int32_t)read_be32(p);
}

// Sets type, shape and number of the samples from the header of the images.
static brim_status describe_images(idx_state *s) {
  const brim_idx *h = &s->images.array.header;
  if (h->type != TYPE_U8 && h->type != TYPE_F32) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: offset 2: images of IDX type 0x%02x; unsigned bytes (0x08) and 32-bit "
                     "floats (0x0d) can be read",
                     s->images.path, h->type);
  }
  brim_source_info *info = &s->info;
  info->type = h->type == TYPE_U8 ? BRIM_SAMPLE_U8 : BRIM_SAMPLE_F32;
  info->count = (uint64_t)h->dim[0];
  info->rank = h->rank > 1 ? h->rank - 1 : 1;
  info->dim[0] = 1;
  for (int i = 1; i < h->rank; i++) info->dim[i - 1] = h->dim[i];
  s->input_bytes = s->images.array.body_bytes / (size_t)info->count;
  return BRIM_OK;
}

// Sets classes or targets from the labels: u8 or i32 of rank 1 are classes, f32 are regression targets.
// classes -1 (not given): as many classes as the labels need, at least `least_classes`, or values to
// predict if the numbers look like values. classes 0: values to predict.
static brim_status describe_labels(idx_state *s, int64_t classes, int64_t least_classes) {
  const brim_idx *h = &s->labels.array.header;
  const char *path = s->labels.path;
  if ((uint64_t)h->dim[0] != s->info.count) {
    return brim_fail(BRIM_EPARSE, "%s: offset 4: %lld labels for the %llu images of %s", path,
                     (long long)h->dim[0], (unsigned long long)s->info.count, s->images.path);
  }
  s->target_bytes = s->labels.array.body_bytes / (size_t)s->info.count;
  if (h->type == TYPE_F32) {
    s->info.target_dim = (int64_t)(s->target_bytes / sizeof(float));
    return BRIM_OK;
  }
  if ((h->type != TYPE_U8 && h->type != TYPE_I32) || h->rank != 1) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "%s: offset 2: labels of IDX type 0x%02x and rank %d; 0x08 or 0x0c of rank 1 "
                     "(classes) and 0x0d (numbers) can be read",
                     path, h->type, h->rank);
  }
  // Keep labels in memory, so that they stay as checked: a label out of range would later be used
  // as an index.
  BRIM_TRY(brim_idx_array_keep(&s->labels.array));
  int64_t bound = classes > 0 ? classes : MAX_CLASSES, largest = 0, least = MAX_CLASSES;
  for (uint64_t i = 0; i < s->info.count; i++) {
    int64_t label = label_of(s, i);
    if (label > largest) largest = label;
    if (label < least) least = label;
  }
  const brim_data_whole whole = {
      .value = label_of, .ctx = s, .rows = s->info.count, .least = least, .most = largest};
  bool values = classes == 0;
  if (classes < 0 && least_classes == 1) BRIM_TRY(brim_data_are_values(path, &whole, &values));
  if (values) {
    s->info.target_dim = 1;
    if (classes < 0) {
      brim_log_warn("data",
                    "%s: brim treats the whole numbers %lld to %lld as regression targets; if they "
                    "are class numbers, set dataset: idx(classes=N)",
                    path, (long long)least, (long long)largest);
    }
    return BRIM_OK;
  }
  for (uint64_t i = 0; i < s->info.count; i++) {
    int64_t label = label_of(s, i);
    if (label < 0 || label >= bound) {
      return brim_fail(BRIM_EPARSE,
                       "%s: offset %llu: label %lld of sample %llu is not in [0, %lld); set the "
                       "number of classes with idx(classes=N), or classes=0 for regression",
                       path, (unsigned long long)(h->header_bytes + i * s->target_bytes),
                       (long long)label, (unsigned long long)i, (long long)bound);
    }
  }
  s->least_label = least;
  s->info.classes = largest + 1 > least_classes ? largest + 1 : least_classes;
  if (classes > 0) s->info.classes = classes;
  return BRIM_OK;
}

// Warns of labels 1 to N: they make N + 1 classes, and class 0 has no samples.
static void warn_from_one(const idx_state *s, const char *split) {
  if (!s->info.classes || s->least_label != 1 || strcmp(split, "train") != 0) return;
  brim_log_warn("data",
                "%s: the labels start at 1, so class 0 of the %lld classes never occurs; subtract "
                "1 from every label, or set the number of classes with idx(classes=N)",
                s->labels.path, (long long)s->info.classes);
}

static brim_status read_images(const void *ctx, size_t offset, void *out, size_t n) {
  return read_body(ctx, offset, out, n);
}

//---------------------------------- the table ----------------------------------

static void idx_close(void *state) {
  idx_state *s = state;
  if (!s) return;
  unload(&s->images);
  unload(&s->labels);
  brim_free(s);
}

static brim_status open_files(const brim_source_how *how, const json_t *args, idx_state *s) {
  const char *labels = NULL;
  static const char *const splits[] = {"train", "val", "test", NULL};
  brim_source_how here = *how;
  int64_t classes = -1, limit = 0;
  bool mnist = false;
  BRIM_TRY(brim_data_args_split("idx", how->split, splits));
  BRIM_TRY(brim_data_args_string(args, "idx", "path", &here.path));
  BRIM_TRY(brim_data_args_string(args, "idx", "labels", &labels));
  BRIM_TRY(brim_data_args_int(args, "idx", "classes", 0, MAX_CLASSES, &classes));
  BRIM_TRY(brim_data_args_int(args, "idx", "limit", 1, INT64_MAX, &limit));
  if (!here.path || !here.path[0]) {
    return brim_fail(BRIM_EINVAL,
                     "idx needs data.path: a folder with MNIST-named IDX files or an "
                     "IDX file of images");
  }
  BRIM_TRY(find_files(&here, labels, s, &mnist));
  BRIM_TRY(brim_idx_array_open(s->images.path, &s->images.array));
  BRIM_TRY(brim_idx_array_open(s->labels.path, &s->labels.array));
  BRIM_TRY(describe_images(s));
  BRIM_TRY(describe_labels(s, classes, mnist ? MNIST_CLASSES : 1));
  if (classes < 0) warn_from_one(s, how->split);
  // Files with MNIST's names have ten classes even if some never occur.
  bool named = mnist && s->info.classes == MNIST_CLASSES;
  if (classes < 0 && !named && s->info.classes > 0 && strcmp(how->split, "train") == 0) {
    brim_data_warn_absent(s->labels.path, label_of, s, s->info.count, s->info.classes);
  }
  const brim_data_measured all = {.read = read_images,
                                  .ctx = &s->images.array,
                                  .path = s->images.path,
                                  .bytes = s->images.array.body_bytes};
  BRIM_TRY(brim_data_measure(&s->info, &all));
  // Apply the limit last: neither the classes nor the normalization may depend on it.
  if (limit && (uint64_t)limit < s->info.count) s->info.count = (uint64_t)limit;
  return BRIM_OK;
}

static brim_status idx_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path", "split", "limit", "classes", "labels", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("idx", how->args_json, known, &args));
  idx_state *s = brim_calloc(1, sizeof *s);
  brim_status status = s ? open_files(how, args, s) : fail_memory("idx");
  json_decref(args);
  if (status) {
    idx_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void idx_info(void *state, brim_source_info *out) { *out = ((idx_state *)state)->info; }

// Turns big-endian floats into the machine's own, in place.
static void swap_f32(void *data, size_t bytes) {
  for (uint8_t *p = data, *end = p + bytes; p < end; p += 4) {
    uint32_t v = read_be32(p);
    memcpy(p, &v, 4);
  }
}

static brim_status idx_read(void *state, uint64_t index, void *input, void *target) {
  const idx_state *s = state;
  if (index >= s->info.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %llu samples", s->images.path,
                     (unsigned long long)s->info.count);
  }
  BRIM_TRY(read_body(&s->images.array, index * s->input_bytes, input, s->input_bytes));
  if (s->info.type == BRIM_SAMPLE_F32) swap_f32(input, s->input_bytes);
  if (s->info.classes) {
    int32_t label = (int32_t)label_of(s, index);
    memcpy(target, &label, sizeof label);
    return BRIM_OK;
  }
  if (s->labels.array.header.type != TYPE_F32) {
    float value = (float)label_of(s, index);
    memcpy(target, &value, sizeof value);
    return BRIM_OK;
  }
  BRIM_TRY(read_body(&s->labels.array, index * s->target_bytes, target, s->target_bytes));
  swap_f32(target, s->target_bytes);
  return BRIM_OK;
}

static const void *idx_base(void *state) {
  const idx_state *s = state;
  return s->info.type == BRIM_SAMPLE_U8 ? s->images.array.body : NULL;  // `body` may be NULL
}

static void idx_describe(void *state, uint64_t index, char *text, size_t size) {
  const idx_state *s = state;
  snprintf(text, size, "%s[%llu]", brim_fs_basename(s->images.path), (unsigned long long)index);
}

static uint64_t idx_host_bytes(void *state) {
  const idx_state *s = state;
  return (s->images.array.memory ? s->images.array.body_bytes : 0) +
         (s->labels.array.memory ? s->labels.array.body_bytes : 0);
}

static size_t idx_files(void *state, const char *paths[BRIM_SOURCE_FILES]) {
  const idx_state *s = state;
  paths[0] = s->images.path;
  paths[1] = s->labels.path;
  return 2;
}

const brim_source_table brim_source_idx = {
    .abi = BRIM_SOURCE_ABI,
    .name = "idx",
    .open = idx_open,
    .info = idx_info,
    .read = idx_read,
    .base = idx_base,
    .close = idx_close,
    .describe = idx_describe,
};

const brim_source_builtin brim_builtin_idx = {
    .table = &brim_source_idx,
    .host_bytes = idx_host_bytes,
    .label = label_of,
    .no_val = true,
    .files = idx_files,
};
