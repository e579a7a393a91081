// The source `folder`: ROOT/CLASS/*.jpg, *.png, ... (brim_image_is_name; any case, also in folders below the class).
// Classes are the folders' names in the order of their bytes, numbered from 0; so are the files in
// each. The folders of ROOT/train number the classes of val and test too; one that only they have is
// refused. A folder without images keeps its number (with a warning). Images right in ROOT, and none
// in folders, are samples without a target. Links are followed, names that begin
// with a dot are not seen.
// Splits: ROOT/train (training), ROOT/val (valid, validation, dev; else test), ROOT/test (testing),
// ROOT/unlabeled, in any case, and all of the first three together for `all`. A ROOT without such folders is `train` and `all`, and so is one
// whose `train` holds images itself beside other folders of images: that is a class of this name.
// When it is opened every header is read: images of one size are read at that size, else info.varies.
// A file that cannot be read is an error of that sample, not of the source.
// A path that is one image (photo.jpg) is a set of one sample without a target, whatever the split.
// Arguments: path=P (over data.path), split, limit=N (the first N files), color=rgb|gray, strict
// (false lets JPEG files pass that have stray bytes in them and PNG files with more data than pixels).
#include "data/image/data_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/image/data_image.h"

enum {
  SMALL_FILE = 16384,  // read onto the stack; larger ones into a block of their own
  MAX_BASES = BRIM_FOLDER_SPLITS,
  PROBE_THREADS = 16,  // at most; more than cores, since a cold disk is waited for
  PROBE_FEW = 256,     // not worth threads
};

typedef struct folder_state {
  char *root;
  size_t root_length;
  int root_fd;
  brim_folder_list list;
  brim_image_want want;
  brim_source_info info;
  bool val_is_test;
} folder_state;

//---------------------------------- one file ----------------------------------

// Its path for messages, the part from the root on, and its bytes.
typedef struct folder_file {
  char path[PATH_MAX];
  const char *inner;
  uint8_t small[SMALL_FILE];
  uint8_t *large;  // NULL: all of it is in small
  size_t size;
} folder_file;

static const uint8_t *file_bytes(const folder_file *f) { return f->large ? f->large : f->small; }

static brim_status fail_errno(const folder_file *f, int err) {
  return brim_fail(brim_errno_status(err), "%s: %s", f->path, brim_errno_text(err));
}

static brim_status name_file(const folder_state *s, uint64_t index, folder_file *f) {
  if (index >= s->list.count) {
    return brim_fail(BRIM_EINVAL, "%s: holds %" PRIu64 " images", s->root, s->list.count);
  }
  memcpy(f->path, s->root, s->root_length);
  f->path[s->root_length] = '/';
  f->inner = f->path + s->root_length + 1;
  size_t room = sizeof f->path - s->root_length - 1;
  if (brim_folder_list_path(&s->list, index, f->path + s->root_length + 1, room) >= room) {
    return brim_fail(BRIM_ELIMIT, "%s...: the path is longer than %zu bytes", f->path,
                     sizeof f->path);
  }
  return BRIM_OK;
}

static brim_status open_file(const folder_state *s, const folder_file *f, int *fd) {
  // Without O_NONBLOCK a FIFO in the place of a file would wait for a writer for ever.
  *fd = openat(s->root_fd, f->inner, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return *fd < 0 ? fail_errno(f, errno) : BRIM_OK;
}

static brim_status read_up_to(const folder_file *f, int fd, uint8_t *out, size_t n, size_t *got) {
  while (*got < n) {
    ssize_t more = read(fd, out + *got, n - *got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return fail_errno(f, errno);
    if (!more) break;
    *got += (size_t)more;
  }
  return BRIM_OK;
}

// What does not fit the stack: now its size matters.
static brim_status read_large(folder_file *f, int fd) {
  struct stat st;
  if (fstat(fd, &st)) return fail_errno(f, errno);
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_EINVAL, "%s: not a regular file", f->path);
  if ((uint64_t)st.st_size > BRIM_IMAGE_MAX_BYTES) {
    return brim_fail(BRIM_ELIMIT, "%s: %" PRIu64 " bytes, expected at most %zu", f->path,
                     (uint64_t)st.st_size, BRIM_IMAGE_MAX_BYTES);
  }
  size_t size = (size_t)st.st_size > f->size ? (size_t)st.st_size : f->size;
  f->large = brim_alloc(size);
  if (!f->large) return brim_fail(BRIM_ENOMEM, "%s: out of memory for %zu bytes", f->path, size);
  memcpy(f->large, f->small, f->size);
  return read_up_to(f, fd, f->large, size, &f->size);
}

static brim_status read_file(const folder_state *s, folder_file *f) {
  int fd;
  f->size = 0;
  BRIM_TRY(open_file(s, f, &fd));
  brim_status status = read_up_to(f, fd, f->small, sizeof f->small, &f->size);
  if (!status && f->size == sizeof f->small) status = read_large(f, fd);
  close(fd);
  return status;
}

// `exact`: of the size all had when the folder was opened.
static brim_status decode_file(const folder_state *s, uint64_t index, const brim_image_want *want,
                               bool exact, brim_image_pixels *out, void *target) {
  folder_file f;
  f.large = NULL;
  BRIM_TRY(name_file(s, index, &f));
  brim_status status = read_file(s, &f);
  if (!status) status = brim_image_decode(file_bytes(&f), f.size, f.path, want, out);
  if (!status && exact && (out->height != s->info.dim[0] || out->width != s->info.dim[1])) {
    status = brim_fail(BRIM_EPARSE,
                       "%s: %" PRId64 " x %" PRId64 " pixels; all were %" PRId64 " x %" PRId64
                       " when the folder was opened",
                       f.path, out->height, out->width, s->info.dim[0], s->info.dim[1]);
  }
  brim_free(f.large);
  if (!status && s->list.classes) {
    int32_t label = brim_folder_list_dir(&s->list, index)->label;
    memcpy(target, &label, sizeof label);
  }
  return status;
}

static brim_status probe_file(const folder_state *s, uint64_t index, brim_image_head *head) {
  folder_file f;
  int fd;
  BRIM_TRY(name_file(s, index, &f));
  BRIM_TRY(open_file(s, &f, &fd));
  brim_status status = brim_image_probe_file(fd, f.path, head);
  close(fd);
  return status;
}

//---------------------------------- all headers ----------------------------------

static void probe_range(void *ctx, int64_t begin, int64_t end, int thread) {
  folder_state *s = ctx;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    brim_image_head head;
    if (probe_file(s, (uint64_t)i, &head)) continue;  // stays 0
    s->list.sizes[i] =
        (brim_folder_size){.height = (uint16_t)head.height, .width = (uint16_t)head.width};
  }
}

static brim_status probe_all(folder_state *s) {
  int64_t count = (int64_t)s->list.count;
  int threads = 2 * brim_cpu_count();
  if (threads > PROBE_THREADS) threads = PROBE_THREADS;
  if (count < PROBE_FEW) {
    probe_range(s, 0, count, 0);
  } else {
    brim_pool *pool;
    BRIM_TRY(brim_pool_create(threads, &pool));
    brim_pool_run(pool, count, probe_range, s);
    brim_pool_destroy(pool);
  }
  uint64_t broken = 0, first = 0;
  brim_folder_size one = {0};
  for (uint64_t i = 0; i < s->list.count; i++) {
    brim_folder_size size = s->list.sizes[i];
    if (!size.height) {
      if (!broken++) first = i;
      continue;
    }
    if (!one.height) one = size;
    if (size.height != one.height || size.width != one.width) s->info.varies = 1;
    if (size.height > s->info.dim[0]) s->info.dim[0] = size.height;
    if (size.width > s->info.dim[1]) s->info.dim[1] = size.width;
  }
  if (!broken) return BRIM_OK;
  brim_image_head head;
  brim_status status = probe_file(s, first, &head);  // once more, for what is wrong with it
  if (!status) brim_fail(BRIM_EIO, "the file changed while brim read it");
  if (broken == s->list.count) {
    return brim_fail_context(status ? status : BRIM_EIO,
                             "%s: none of the %" PRIu64 " images can be read; the first", s->root,
                             broken);
  }
  brim_log_warn("data", "%s: cannot read %" PRIu64 " of %" PRIu64 " images; the first: %s", s->root,
                broken, s->list.count, brim_status_detail());
  return BRIM_OK;
}

//---------------------------------- splits ----------------------------------

static bool is_split_name(const char *split) {
  static const char *const names[] = {"train", "val", "test", "unlabeled", "all", NULL};
  for (const char *const *n = names; *n; n++) {
    if (strcmp(*n, split) == 0) return true;
  }
  return false;
}

static brim_status find_bases(const folder_state *s, const char *split,
                              const brim_folder_splits *splits, const char *bases[MAX_BASES],
                              size_t *count) {
  const char *other = NULL, *folder = NULL;
  if (!is_split_name(split)) {
    return brim_fail(BRIM_EINVAL,
                     "folder: no split '%s'; choose train, val, test, unlabeled or all", split);
  }
  bool all = strcmp(split, "all") == 0;
  const char *own = brim_folder_split_of(splits, split);
  *count = 0;
  if (own) bases[(*count)++] = own;
  for (size_t i = 0; i < splits->count; i++) {
    if (strcmp(splits->found[i].split, "unlabeled") == 0) continue;
    if (all) bases[(*count)++] = splits->found[i].folder;
    if (!other) folder = splits->found[i].folder;
    if (!other) other = splits->found[i].split;
  }
  if (*count) return BRIM_OK;
  if (other) {
    return brim_fail(BRIM_ENOENT,
                     "%s: found a folder '%s' but no '%s'; add one, or use a part of '%s' with "
                     "folder(split=%s, part=(0.9, 1)) or data.val_fraction=0.1",
                     s->root, folder, split, other, other);
  }
  if (all || strcmp(split, "train") == 0) {
    bases[(*count)++] = "";
    return BRIM_OK;
  }
  return brim_fail(BRIM_ENOENT,
                   "%s: no folder '%s', so all images are 'train'; use a part of them with "
                   "folder(split=train, part=(0.9, 1)) or data.val_fraction=0.1",
                   s->root, split);
}

//---------------------------------- the table ----------------------------------

static void folder_close(void *state) {
  folder_state *s = state;
  if (!s) return;
  if (s->root_fd >= 0) close(s->root_fd);
  brim_folder_list_free(&s->list);
  brim_free(s->root);
  brim_free(s);
}

static brim_status open_root(folder_state *s, const char *path) {
  if (!path || !path[0]) {
    return brim_fail(BRIM_EINVAL,
                     "folder needs data.path: the folder that holds the class folders");
  }
  if (brim_fs_exists(path) && !brim_fs_is_dir(path)) {
    return brim_fail(BRIM_EINVAL,
                     "%s: not a folder; folder needs the folder that holds the class folders",
                     path);
  }
  s->root = brim_strdup(path);
  if (!s->root) return brim_fail(BRIM_ENOMEM, "folder: out of memory");
  s->root_length = strlen(path);
  while (s->root_length > 1 && s->root[s->root_length - 1] == '/') s->root_length--;
  s->root[s->root_length] = 0;
  if (s->root_length + 2 >= PATH_MAX) return brim_fail(BRIM_ELIMIT, "%s: too long a path", path);
  s->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (s->root_fd < 0) {
    return brim_fail(brim_errno_status(errno), "%s: %s", path, brim_errno_text(errno));
  }
  return BRIM_OK;
}

bool brim_source_is_image(const char *path) {
  return path && path[0] && brim_image_is_name(path) && brim_fs_exists(path) &&
         !brim_fs_is_dir(path);
}

static brim_status open_one(folder_state *s, const char *path) {
  char *folder = brim_fs_dirname(path);
  if (!folder) return brim_fail(BRIM_ENOMEM, "folder: out of memory");
  brim_status status = open_root(s, folder);
  brim_free(folder);
  if (!status) status = brim_folder_list_one(brim_fs_basename(path), &s->list);
  if (status) return status;
  s->info.count = 1;
  return probe_all(s);
}

static brim_status read_color(folder_state *s, const json_t *args) {
  const char *color = "rgb";
  BRIM_TRY(brim_data_args_string(args, "folder", "color", &color));
  if (strcmp(color, "rgb") != 0 && strcmp(color, "gray") != 0) {
    return brim_fail(BRIM_EINVAL, "folder: color is rgb or gray, not '%s'", color);
  }
  const json_t *strict = json_object_get(args, "strict");
  if (strict && !json_is_boolean(strict)) {
    return brim_fail(BRIM_EINVAL, "folder: strict is true or false");
  }
  s->want = (brim_image_want){
      .channels = strcmp(color, "rgb") == 0 ? 3 : 1, .scale = 1, .lenient = json_is_false(strict)};
  brim_source_info *info = &s->info;
  info->type = BRIM_SAMPLE_U8;
  info->rank = 3;
  info->dim[2] = s->want.channels;
  info->costly = 1;
  if (s->want.channels == 3) {  // ImageNet's
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    info->channels = 3;
    memcpy(info->mean, mean, sizeof mean);
    memcpy(info->std, std, sizeof std);
  }
  return BRIM_OK;
}

static brim_status open_set(folder_state *s, const brim_source_how *how, const json_t *args) {
  const char *path = how->path, *bases[MAX_BASES];
  brim_folder_splits splits;
  size_t base_count;
  int64_t limit = 0;
  BRIM_TRY(brim_data_args_string(args, "folder", "path", &path));
  BRIM_TRY(brim_data_args_int(args, "folder", "limit", 1, INT64_MAX, &limit));
  BRIM_TRY(read_color(s, args));
  if (brim_source_is_image(path)) return open_one(s, path);
  BRIM_TRY(open_root(s, path));
  const char *split = how->split ? how->split : "train";
  BRIM_TRY(brim_folder_find_splits(s->root, &splits));
  BRIM_TRY(find_bases(s, split, &splits, bases, &base_count));
  bool evaluates = strcmp(split, "val") == 0 || strcmp(split, "test") == 0;
  s->val_is_test = true;
  for (size_t i = 0; i < splits.count; i++) {
    s->val_is_test = s->val_is_test && strcmp(splits.found[i].split, "val") != 0;
  }
  const char *numbered_by = evaluates ? brim_folder_split_of(&splits, "train") : NULL;
  BRIM_TRY(brim_folder_list_make(s->root_fd, s->root, bases, base_count, numbered_by,
                                 (uint64_t)limit, &s->list));
  if (!s->list.count) {
    // a folder of the split's name is there, so that it is not the split that is missing
    return brim_fail(bases[0][0] ? BRIM_EPARSE : BRIM_ENOENT,
                     "%s%s%s: no images (%s), neither in class folders nor directly", s->root,
                     bases[0][0] ? "/" : "", bases[0], brim_image_ends());
  }
  s->info.count = s->list.count;
  s->info.classes = s->list.classes;
  return probe_all(s);
}

static brim_status folder_open(const brim_source_how *how, void **state) {
  static const char *const known[] = {"path", "split", "limit", "color", "strict", NULL};
  json_t *args;
  BRIM_TRY(brim_data_args_parse("folder", how->args_json, known, &args));
  folder_state *s = brim_calloc(1, sizeof *s);
  if (s) s->root_fd = -1;
  brim_status status = s ? open_set(s, how, args) : brim_fail(BRIM_ENOMEM, "folder: out of memory");
  json_decref(args);
  if (status) {
    folder_close(s);
    return status;
  }
  *state = s;
  return BRIM_OK;
}

static void folder_info(void *state, brim_source_info *out) {
  *out = ((folder_state *)state)->info;
}

static brim_status folder_read(void *state, uint64_t index, void *input, void *target) {
  const folder_state *s = state;
  if (s->info.varies) {
    return brim_fail(BRIM_ESTATE,
                     "%s: images of several sizes; the first transform must bring them to one size",
                     s->root);
  }
  brim_image_pixels out = {
      .data = input,
      .capacity = (size_t)s->info.dim[0] * (size_t)s->info.dim[1] * (size_t)s->info.dim[2]};
  return decode_file(s, index, &s->want, true, &out, target);
}

static brim_status folder_size(void *state, uint64_t index, int64_t *height, int64_t *width) {
  const folder_state *s = state;
  brim_image_head head;
  if (index < s->list.count && s->list.sizes[index].height) {
    *height = s->list.sizes[index].height;
    *width = s->list.sizes[index].width;
    return BRIM_OK;
  }
  BRIM_TRY(probe_file(s, index, &head));  // to say what is wrong with it
  *height = head.height;
  *width = head.width;
  return BRIM_OK;
}

static brim_status folder_decode(void *state, uint64_t index, brim_source_image *image,
                                 void *target) {
  const folder_state *s = state;
  brim_image_want want = s->want;
  brim_image_pixels out = {.data = image->pixels, .capacity = image->capacity};
  want.scale = image->scale;
  BRIM_TRY(decode_file(s, index, &want, false, &out, target));
  image->height = out.height;
  image->width = out.width;
  return BRIM_OK;
}

static void folder_describe(void *state, uint64_t index, char *text, size_t size) {
  const folder_state *s = state;
  if (!size) return;
  text[0] = 0;
  if (index < s->list.count) brim_folder_list_path(&s->list, index, text, size);
}

bool brim_source_folder_val_is_test(void *state) { return ((folder_state *)state)->val_is_test; }

uint64_t brim_source_folder_host_bytes(void *state) { return ((folder_state *)state)->list.bytes; }

int64_t brim_source_folder_label(void *state, uint64_t index) {
  return brim_folder_list_dir(&((const folder_state *)state)->list, index)->label;
}

const brim_folder_list *brim_source_folder_files(void *state, const char **root) {
  const folder_state *s = state;
  *root = s->root;
  return &s->list;
}

const brim_source_table brim_source_folder = {
    .abi = BRIM_SOURCE_ABI,
    .name = "folder",
    .open = folder_open,
    .info = folder_info,
    .read = folder_read,
    .close = folder_close,
    .size = folder_size,
    .decode = folder_decode,
    .describe = folder_describe,
};
