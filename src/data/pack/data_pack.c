// Writing data sets: what all formats share. Checks, the temporary, counting of samples. Its way to
// the target's name is data_pack_target.c, the formats themselves are data_pack_hdf5.c, _files.c and
// _images.c.
#include "data/pack/data_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/image/data_image.h"
#include "data/pack/data_pack_int.h"
#include "data/source/data_stl10.h"

enum { TEMP_TRIES = 1000, MAX_DEPTH = 32 };

static const struct {
  bool folder;
  const brim_pack_writer *writer;
} formats[BRIM_PACK_FORMAT_COUNT] = {
    [BRIM_PACK_HDF5] = {false, &brim_pack_writer_hdf5},
    [BRIM_PACK_IDX] = {true, &brim_pack_writer_files},
    [BRIM_PACK_CIFAR10] = {true, &brim_pack_writer_files},
    [BRIM_PACK_CIFAR100] = {true, &brim_pack_writer_files},
    [BRIM_PACK_STL10] = {true, &brim_pack_writer_files},
    [BRIM_PACK_PNG] = {true, &brim_pack_writer_images},
    [BRIM_PACK_JPG] = {true, &brim_pack_writer_images},
};

//---------------------------------- checks ----------------------------------

static void shape_text(const brim_source_info *info, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < info->rank; i++) {
    int n = snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)info->dim[i]);
    if (n < 0 || (size_t)n >= size - used) return;
    used += (size_t)n;
  }
}

// Formats of one fixed shape of bytes and at most so many classes.
static brim_status check_fixed(const char *name, const brim_source_info *info, int64_t side,
                               int64_t classes, bool unlabeled) {
  char shape[96];
  shape_text(info, shape, sizeof shape);
  if (info->type != BRIM_SAMPLE_U8 || info->rank != 3 || info->dim[0] != side ||
      info->dim[1] != side || info->dim[2] != 3) {
    return brim_fail(BRIM_EINVAL,
                     "%s files hold bytes of shape (%lld, %lld, 3); these samples are %s of (%s)",
                     name, (long long)side, (long long)side,
                     info->type == BRIM_SAMPLE_U8 ? "bytes" : "floats", shape);
  }
  if (!unlabeled && (info->classes < 1 || info->classes > classes)) {
    return brim_fail(BRIM_EINVAL,
                     "%s files hold labels of at most %lld classes, but the data has %lld; write "
                     "hdf5, idx or a folder",
                     name, (long long)classes, (long long)info->classes);
  }
  return BRIM_OK;
}

static brim_status check_images(const brim_source_info *info) {
  int64_t channels = info->rank == 3 ? info->dim[2] : info->rank == 2 ? 1 : 0;
  if (info->type != BRIM_SAMPLE_U8 || (channels != 1 && channels != 3)) {
    return brim_fail(BRIM_EINVAL,
                     "images are made of bytes of shape (height, width), (height, width, 1) or "
                     "(height, width, 3); these samples are something else");
  }
  if (info->classes < 1) {
    return brim_fail(BRIM_EINVAL,
                     "a folder of images has one folder per class; these samples have "
                     "no classes");
  }
  return BRIM_OK;
}

static brim_status check_idx(const brim_source_info *info) {
  if (info->rank > 3) {
    return brim_fail(BRIM_EINVAL, "IDX files hold samples of up to 3 dimensions; these have %d",
                     info->rank);
  }
  if (info->count > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "IDX files hold up to %d samples; these are %llu", INT32_MAX,
                     (unsigned long long)info->count);
  }
  if (info->classes == 0 && info->target_dim == 0) {
    return brim_fail(BRIM_EINVAL, "IDX files come with labels; these samples have none");
  }
  return BRIM_OK;
}

brim_status brim_pack_check(brim_pack_format format, const char *split,
                            const brim_source_info *info) {
  bool unlabeled = strcmp(split, "unlabeled") == 0, test = strcmp(split, "test") == 0;
  bool all = strcmp(split, "all") == 0;
  if (format != BRIM_PACK_HDF5 && (unlabeled || all) && !(format == BRIM_PACK_STL10 && unlabeled)) {
    return brim_fail(BRIM_EINVAL, "%s has no split '%s'; convert it to hdf5, or use another split",
                     brim_pack_format_name(format), split);
  }
  bool fixed = format == BRIM_PACK_IDX || format == BRIM_PACK_CIFAR10 ||
               format == BRIM_PACK_CIFAR100 || format == BRIM_PACK_STL10;
  if (fixed && strcmp(split, "val") == 0) {
    return brim_fail(BRIM_EINVAL,
                     "%s has the splits train and test only; convert to hdf5 or to a folder, which "
                     "have val too",
                     brim_pack_format_name(format));
  }
  switch (format) {
    case BRIM_PACK_IDX:
      return check_idx(info);
    case BRIM_PACK_CIFAR10:
      if (!test && info->count < 5) {
        return brim_fail(BRIM_EINVAL, "CIFAR-10's training set is five files: 5 samples at least");
      }
      return check_fixed("CIFAR-10", info, BRIM_CIFAR_SIDE, 10, false);
    case BRIM_PACK_CIFAR100:
      return check_fixed("CIFAR-100", info, BRIM_CIFAR_SIDE, 100, false);
    case BRIM_PACK_STL10:
      return check_fixed("STL-10", info, BRIM_STL10_SIDE, 10, unlabeled);
    case BRIM_PACK_PNG:
    case BRIM_PACK_JPG:
      return check_images(info);
    default:
      return BRIM_OK;
  }
}

//---------------------------------- the temporary ----------------------------------

static brim_status make_temp(brim_pack *pack, size_t size) {
  int err = EEXIST;
  for (int n = 0; n < TEMP_TRIES && err == EEXIST; n++) {
    snprintf(pack->temp, size, "%s" BRIM_FS_TEMP_MARK "%ld.%d", pack->path, (long)getpid(), n);
    if (formats[pack->options.format].folder) {
      if (mkdir(pack->temp, 0777) == 0) return BRIM_OK;
      err = errno;
      continue;
    }
    int fd = open(pack->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      close(fd);
      return BRIM_OK;
    }
    err = errno;
  }
  return brim_fail(err == ENOENT ? BRIM_ENOENT : brim_errno_status(err), "cannot write %s: %s",
                   pack->path, brim_errno_text(err));
}

static void pack_free(brim_pack *pack) {
  if (pack->hold >= 0) close(pack->hold);
  brim_free(pack->temp);
  brim_free(pack->path);
  brim_free(pack);
}

brim_status brim_pack_create(const char *path, const brim_pack_options *options, brim_pack **out) {
  *out = NULL;
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;  // the temporary stands beside it, not in it
  brim_pack *pack = brim_calloc(1, sizeof *pack);
  if (!pack) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  pack->hold = -1;
  pack->options = *options;
  pack->writer = formats[options->format].writer;
  pack->path = brim_strndup(path, n);
  pack->temp = brim_alloc(n + 48);
  brim_status status = pack->path && pack->temp
                           ? brim_pack_target_check(pack, formats[options->format].folder)
                           : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (!status) brim_data_remove_stale(pack->path, formats[options->format].folder);
  if (!status) status = make_temp(pack, n + 48);
  if (status) {
    pack_free(pack);
    return status;
  }
  pack->hold = brim_pack_hold(pack->temp);
  status = pack->writer->open(pack);
  if (status) {
    brim_pack_abort(pack);
    return status;
  }
  *out = pack;
  return BRIM_OK;
}

//---------------------------------- samples ----------------------------------

brim_status brim_pack_begin(brim_pack *pack, const char *split, const brim_source_info *info) {
  if (pack->open || pack->sealed) {
    return brim_fail(BRIM_ESTATE, "%s: a split is begun before the last one ended", pack->path);
  }
  BRIM_TRY(brim_pack_check(pack->options.format, split, info));
  pack->info = *info;
  pack->written = 0;
  snprintf(pack->split, sizeof pack->split, "%s", split);
  pack->input_bytes = info->type == BRIM_SAMPLE_U8 ? 1 : sizeof(float);
  for (int i = 0; i < info->rank; i++) pack->input_bytes *= (size_t)info->dim[i];
  pack->target_bytes =
      info->classes > 0 ? sizeof(int32_t) : (size_t)info->target_dim * sizeof(float);
  BRIM_TRY(pack->writer->begin(pack));
  pack->open = true;
  return BRIM_OK;
}

uint64_t brim_pack_granule(const brim_pack *pack) {
  return pack->writer->granule ? pack->writer->granule(pack) : 1;
}

brim_status brim_pack_put(brim_pack *pack, const void *inputs, const void *targets,
                          uint64_t count) {
  if (!pack->open || count > pack->info.count - pack->written) {
    return brim_fail(BRIM_ESTATE, "%s: more samples than split %s was begun with", pack->path,
                     pack->split);
  }
  bool last = pack->written + count == pack->info.count;
  if (!last && count % brim_pack_granule(pack) != 0) {
    return brim_fail(BRIM_EINVAL, "%s: a block of %llu samples does not end with a chunk",
                     pack->path, (unsigned long long)count);
  }
  BRIM_TRY(pack->writer->put(pack, inputs, targets, count));
  pack->written += count;
  return BRIM_OK;
}

brim_status brim_pack_end(brim_pack *pack) {
  if (!pack->open || pack->written != pack->info.count) {
    return brim_fail(BRIM_ESTATE, "%s: split %s ended after %llu of %llu samples", pack->path,
                     pack->split, (unsigned long long)pack->written,
                     (unsigned long long)pack->info.count);
  }
  pack->open = false;
  return pack->writer->end(pack);
}

uint64_t brim_pack_bytes(const brim_pack *pack) {
  uint64_t bytes, files;
  if (brim_data_disk_bytes(pack->temp, &bytes, &files)) brim_status_clear();
  return bytes;
}

//---------------------------------- the end ----------------------------------

brim_status brim_pack_seal(brim_pack *pack, const char **temporary) {
  if (pack->open || pack->sealed) {
    return brim_fail(BRIM_ESTATE, "%s: sealed before its last split ended", pack->path);
  }
  pack->sealed = true;  // close is called once
  BRIM_TRY(pack->writer->close(pack, true));
  if (formats[pack->options.format].folder) BRIM_TRY(brim_pack_target_mark(pack));
  *temporary = pack->temp;
  return BRIM_OK;
}

static brim_status remove_one(void *ctx, const char *path, const struct stat *st) {
  (void)ctx;
  if ((S_ISDIR(st->st_mode) ? rmdir(path) : unlink(path)) == 0) return BRIM_OK;
  return brim_fail(brim_errno_status(errno), "cannot remove %s: %s", path, brim_errno_text(errno));
}

// A temporary that cannot be removed stays; there is nothing better to do about it, and the failure
// that led here is the one to tell.
static void remove_temp(brim_pack *pack) {
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_status removed = brim_pack_walk(pack->temp, 0, remove_one, NULL);
  (void)removed;
  brim_status_set_detail(detail);
}

static brim_status sync_path(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return brim_fail(BRIM_EIO, "cannot read %s: %s", path, brim_errno_text(errno));
  int failed = fsync(fd), err = errno;
  close(fd);
  if (failed && err != EINVAL && err != ENOTSUP) {
    return brim_fail(BRIM_EIO, "cannot write %s: %s", path, brim_errno_text(err));
  }
  return BRIM_OK;
}

static brim_status sync_one(void *ctx, const char *path, const struct stat *st) {
  (void)ctx, (void)st;
  return sync_path(path);
}

// Every file and every folder of the set, before it has its name. One fsync waits for the disk (2.5 ms
// each on a virtual one, ext4), so that thousands of images go by one call for the file system.
static brim_status sync_set(const brim_pack *pack) {
  enum { FEW = 64 };
  uint64_t bytes, files;
  BRIM_TRY(brim_data_disk_bytes(pack->temp, &bytes, &files));
  int fd = files > FEW ? open(pack->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  bool synced = fd >= 0 && syncfs(fd) == 0;
  if (fd >= 0) close(fd);
  return synced ? BRIM_OK : brim_pack_walk(pack->temp, 0, sync_one, NULL);
}

brim_status brim_pack_commit(brim_pack *pack) {
  bool folder = formats[pack->options.format].folder;
  brim_status status =
      !pack->sealed ? brim_fail(BRIM_ESTATE, "%s: committed before it was sealed", pack->path)
      : folder      ? sync_set(pack)
                    : sync_path(pack->temp);
  if (!status) status = brim_pack_target_take(pack, folder);
  if (!status) {
    char *parent = brim_fs_dirname(pack->path);
    if (parent && sync_path(parent)) brim_status_clear();  // not every file system can
    brim_free(parent);
    pack_free(pack);
    return BRIM_OK;
  }
  brim_pack_abort(pack);
  return status;
}

void brim_pack_abort(brim_pack *pack) {
  if (!pack) return;
  if (!pack->sealed) {
    char detail[1024];
    snprintf(detail, sizeof detail, "%s", brim_status_detail());
    brim_status closed = pack->writer->close(pack, false);
    (void)closed;
    brim_status_set_detail(detail);
  }
  remove_temp(pack);
  pack_free(pack);
}
