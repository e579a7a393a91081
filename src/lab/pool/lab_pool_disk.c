// The disk of the server: bytes of files of experiments (lab_pool_disk.h), free space, and retention.

#include "lab/pool/lab_pool_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_log.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"

//-------------------------------------------- files --------------------------------------------
// A file becomes whole in this order: fsync, rename, fsync of the folder; then the caller notes it in the
// store; then older files are removed. After a crash in between, an empty piece finds what is there.

enum { SLOTS = 64, BLOCK = 256 << 10, NAME = 128, LONGEST_LOG = 256 << 20 };

#define GONE ".gone"  // behind the name of a folder that is removed

// Serializes the pieces of a file, and keeps the hash of the bytes so far, so that the last piece need not
// read the file again. Files that share a slot wait for each other.
typedef struct slot {
  pthread_mutex_t mutex;
  char exp[BRIM_EXP_ID];
  const brim_lab_file_kind *kind;
  char sha256[65];
  brim_sha256 sum;
  int64_t hashed;
} slot;

struct brim_pool_disk {
  int root;
  slot slots[SLOTS];
};

static brim_status fail_errno(const char *what, int err) {
  return brim_fail(BRIM_EIO, "cannot write %s on the server: %s", what, brim_errno_text(err));
}

static bool is_full(int err) { return err == ENOSPC || err == EDQUOT || err == EFBIG; }

brim_status brim_pool_disk_open(const char *folder, brim_pool_disk **out) {
  *out = NULL;
  char *path = brim_fs_join(folder, "files");
  brim_pool_disk *d = (brim_pool_disk *)brim_calloc(1, sizeof *d);
  brim_status status =
      path && d ? brim_fs_mkdirs(path) : brim_fail(BRIM_ENOMEM, "out of memory for the server");
  if (!status) {
    d->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->root < 0) {
      status = brim_fail(BRIM_EINVAL, "cannot open %s: %s", path, brim_errno_text(errno));
    }
  }
  brim_free(path);
  if (status) {
    brim_free(d);
    return status;
  }
  for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&d->slots[i].mutex, NULL);
  *out = d;
  return BRIM_OK;
}

void brim_pool_disk_close(brim_pool_disk *d) {
  if (!d) return;
  for (int i = 0; i < SLOTS; i++) pthread_mutex_destroy(&d->slots[i].mutex);
  close(d->root);
  brim_free(d);
}

//---------------------------------- names ----------------------------------

static void whole_name(const brim_pool_piece *p, char out[NAME]) {
  if (p->kind->log) {
    snprintf(out, NAME, "%s.%lld", p->kind->name, (long long)p->attempt);
  } else {
    snprintf(out, NAME, "%s.%.64s", p->kind->name, p->sha256);
  }
}

static brim_status open_folder(const brim_pool_disk *d, const char *exp, bool make, int *out) {
  const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  *out = openat(d->root, exp, how);
  if (*out < 0 && errno == ENOENT && make) {
    if (mkdirat(d->root, exp, 0777) != 0 && errno != EEXIST) return fail_errno(exp, errno);
    if (fsync(d->root) != 0) return fail_errno(exp, errno);
    *out = openat(d->root, exp, how);
  }
  if (*out >= 0) return BRIM_OK;
  if (errno == ENOENT) return brim_fail(BRIM_ENOENT, "this server has no such file");
  return fail_errno(exp, errno);
}

// BRIM_ENOENT: not there. Anything but a regular file is in the way.
static brim_status open_regular(int folder, const char *name, int how, int *fd, int64_t *size) {
  struct stat st;
  *fd = openat(folder, name, how | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (*fd < 0 && errno == ENOENT) return brim_fail(BRIM_ENOENT, "this server has no such file");
  if (*fd < 0) return fail_errno(name, errno);
  if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
    *size = (int64_t)st.st_size;
    return BRIM_OK;
  }
  close(*fd);
  *fd = -1;
  return fail_errno(name, EINVAL);
}

static bool is_whole(int folder, const char *name, int64_t size) {
  struct stat st;
  return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
         (int64_t)st.st_size == size;
}

// Removes a file and counts it in *freed (may be NULL). Bytes that another name links to are not counted.
static void remove_one(int folder, const char *name, brim_pool_freed *freed) {
  struct stat st;
  bool known = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (unlinkat(folder, name, 0) != 0 || !freed) return;
  freed->files++;
  if (known && st.st_nlink == 1) freed->bytes += (int64_t)st.st_size;
}

// Removes files whose names begin with `prefix` and end with `suffix`, except `but`.
static void remove_but(int folder, const char *prefix, const char *suffix, const char *but,
                       brim_pool_freed *freed) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
  if (!dir && copy >= 0) close(copy);
  size_t n = strlen(prefix);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    size_t length = strlen(e->d_name), tail = strlen(suffix);
    bool fits = strncmp(e->d_name, prefix, n) == 0 && length >= tail &&
                strcmp(e->d_name + length - tail, suffix) == 0;
    if (fits && strcmp(e->d_name, but) != 0 && strcmp(e->d_name, ".") != 0 &&
        strcmp(e->d_name, "..") != 0) {
      remove_one(folder, e->d_name, freed);
    }
  }
  if (dir) closedir(dir);
}

//---------------------------------- bytes ----------------------------------

static brim_status read_at(int fd, char *data, size_t size, int64_t from) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pread(fd, data + done, size - done, (off_t)(from + (int64_t)done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno("a file", n < 0 ? errno : EIO);
    done += (size_t)n;
  }
  return BRIM_OK;
}

// *same: the bytes of the piece that the copy already has are equal.
static brim_status is_same(int fd, const brim_pool_piece *p, int64_t have, bool *same) {
  int64_t until =
      p->offset + (int64_t)p->data_size < have ? p->offset + (int64_t)p->data_size : have;
  char *block = until > p->offset ? (char *)brim_alloc(BLOCK) : NULL;
  *same = true;
  if (until <= p->offset) return BRIM_OK;
  if (!block) return brim_fail(BRIM_ENOMEM, "out of memory for a file");
  brim_status status = BRIM_OK;
  for (int64_t at = p->offset; !status && *same && at < until;) {
    size_t n = until - at < BLOCK ? (size_t)(until - at) : BLOCK;
    status = read_at(fd, block, n, at);
    if (!status) *same = memcmp(block, (const char *)p->data + (at - p->offset), n) == 0;
    at += (int64_t)n;
  }
  brim_free(block);
  return status;
}

// Appends bytes. *full: the disk is full and the copy is as it was.
static brim_status append(int fd, const char *data, size_t size, int64_t have, bool *full) {
  *full = false;
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, data + done, size - done, (off_t)(have + (int64_t)done));
    if (n > 0) done += (size_t)n;
    if (n >= 0 || errno == EINTR) continue;
    int err = errno;
    if (ftruncate(fd, (off_t)have) != 0) return fail_errno("a file", errno);
    *full = is_full(err);
    return *full ? BRIM_OK : fail_errno("a file", err);
  }
  return BRIM_OK;
}

// Keeps BRIM_POOL_RESERVE free for the store, which may lie on the same disk. The disk counts as full only
// if the piece itself has no room: the size of the whole file is the client's claim.
static brim_status check_room(int fd, int64_t piece, int64_t rest, brim_pool_refusal *out) {
  struct statvfs st;
  if (fstatvfs(fd, &st) != 0) return BRIM_OK;
  double room = (double)st.f_bavail * (double)st.f_frsize - BRIM_POOL_RESERVE;
  if ((double)rest > (double)st.f_blocks * (double)st.f_frsize) {
    return brim_fail(BRIM_ELIMIT, "the file is larger than the disk of the server");
  }
  if ((double)rest > room) *out = (double)piece > room ? BRIM_POOL_FULL : BRIM_POOL_LARGE;
  return BRIM_OK;
}

// Compares and appends a piece. *added: bytes at its end that were new.
static brim_status take_piece(int fd, const brim_pool_piece *p, brim_pool_kept *out,
                              size_t *added) {
  bool same = false, full = false;
  *added = 0;
  if (p->offset > out->size) {
    out->refusal = BRIM_POOL_ELSEWHERE;
    return BRIM_OK;
  }
  BRIM_TRY(is_same(fd, p, out->size, &same));
  if (!same) {
    out->refusal = BRIM_POOL_ELSEWHERE;
    return BRIM_OK;
  }
  int64_t known = out->size - p->offset;
  if (known >= (int64_t)p->data_size) return BRIM_OK;  // a repeated one
  size_t fresh = p->data_size - (size_t)known;
  int64_t rest = p->kind->log ? (int64_t)fresh : p->size - out->size;
  BRIM_TRY(check_room(fd, (int64_t)fresh, rest, &out->refusal));
  if (out->refusal) return BRIM_OK;
  BRIM_TRY(append(fd, (const char *)p->data + known, fresh, out->size, &full));
  if (full) {
    out->refusal = BRIM_POOL_FULL;
    return BRIM_OK;
  }
  out->size += (int64_t)fresh;
  *added = fresh;
  return BRIM_OK;
}

//---------------------------------- hashes ----------------------------------

static slot *slot_of(brim_pool_disk *d, const brim_pool_piece *p) {
  unsigned hash = 5381;
  for (const char *c = p->exp; *c; c++) hash = hash * 33 + (unsigned char)*c;
  for (const char *c = p->kind->name; *c; c++) hash = hash * 33 + (unsigned char)*c;
  return &d->slots[hash % SLOTS];
}

static bool is_slot_of(const slot *s, const brim_pool_piece *p) {
  return s->kind == p->kind && strcmp(s->exp, p->exp) == 0 && strcmp(s->sha256, p->sha256) == 0;
}

static void begin_sum(slot *s, const brim_pool_piece *p) {
  snprintf(s->exp, sizeof s->exp, "%s", p->exp);
  snprintf(s->sha256, sizeof s->sha256, "%s", p->sha256);
  s->kind = p->kind;
  s->hashed = 0;
  brim_sha256_init(&s->sum);
}

// Hashes the rest of the file. *fits: the hash is the one that the client named.
static brim_status end_sum(slot *s, int fd, const brim_pool_piece *p, bool *fits) {
  uint8_t digest[BRIM_SHA256_BYTES];
  char hex[BRIM_SHA256_HEX], *block = (char *)brim_alloc(BLOCK);
  brim_status status = block ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a file");
  if (!is_slot_of(s, p)) begin_sum(s, p);
  while (!status && s->hashed < p->size) {
    size_t n = p->size - s->hashed < BLOCK ? (size_t)(p->size - s->hashed) : BLOCK;
    status = read_at(fd, block, n, s->hashed);
    if (!status) brim_sha256_update(&s->sum, block, n);
    s->hashed += (int64_t)n;
  }
  brim_free(block);
  if (!status) {
    brim_sha256_final(&s->sum, digest);
    brim_sha256_format(digest, hex);
    *fits = strcmp(hex, p->sha256) == 0;
  }
  s->kind = NULL;  // the sum is finished
  return status;
}

//---------------------------------- whole files ----------------------------------

// Links to a file of another kind with the same hash: the best checkpoint is often the last one.
static bool link_other(int folder, const brim_pool_piece *p, const char *name) {
  for (const brim_lab_file_kind *k = brim_lab_file_kinds; k->name; k++) {
    char other[NAME];
    if (k->log || k == p->kind) continue;
    snprintf(other, sizeof other, "%s.%.64s", k->name, p->sha256);
    if (is_whole(folder, other, p->size) && linkat(folder, other, folder, name, 0) == 0 &&
        fsync(folder) == 0) {
      return true;
    }
  }
  return false;
}

static brim_status complete(slot *s, int folder, int fd, const brim_pool_piece *p,
                            brim_pool_kept *out) {
  char name[NAME], part[NAME + 8];
  bool fits = false;
  whole_name(p, name);
  snprintf(part, sizeof part, "%s.part", name);
  BRIM_TRY(end_sum(s, fd, p, &fits));
  if (!fits) {  // the client begins again
    if (ftruncate(fd, 0) != 0) return fail_errno(name, errno);
    out->size = 0;
    out->refusal = BRIM_POOL_ELSEWHERE;
    return BRIM_OK;
  }
  if (fsync(fd) != 0) {
    // the kernel drops pages that it could not write, and the next fsync would succeed without them
    int err = errno;
    if (ftruncate(fd, 0) != 0) return fail_errno(name, errno);
    out->size = 0;
    out->refusal = is_full(err) ? BRIM_POOL_FULL : BRIM_POOL_TAKEN;
    return out->refusal ? BRIM_OK : fail_errno(name, err);
  }
  if (renameat(folder, part, folder, name) != 0) return fail_errno(name, errno);
  if (fsync(folder) != 0) return fail_errno(name, errno);
  out->complete = true;
  return BRIM_OK;
}

static brim_status put_part(slot *s, int folder, int fd, const brim_pool_piece *p,
                            brim_pool_kept *out) {
  char prefix[NAME], part[NAME + 8];
  size_t added = 0;
  if (out->size > p->size) {
    if (ftruncate(fd, 0) != 0) return fail_errno(p->kind->name, errno);
    out->size = 0;
  }
  if (out->size == 0) {
    whole_name(p, prefix);
    snprintf(part, sizeof part, "%s.part", prefix);
    snprintf(prefix, sizeof prefix, "%s.", p->kind->name);
    remove_but(folder, prefix, ".part", part, NULL);  // parts of replaced files
    begin_sum(s, p);
  }
  BRIM_TRY(take_piece(fd, p, out, &added));
  if (is_slot_of(s, p) && s->hashed == out->size - (int64_t)added) {
    brim_sha256_update(&s->sum, (const char *)p->data + p->data_size - added, added);
    s->hashed += (int64_t)added;
  }
  if (out->refusal || out->size < p->size) return BRIM_OK;
  return complete(s, folder, fd, p, out);
}

static brim_status put_whole(slot *s, int folder, const brim_pool_piece *p, brim_pool_kept *out) {
  char name[NAME], part[NAME + 8];
  int fd = -1;
  whole_name(p, name);
  if (is_whole(folder, name, p->size) || link_other(folder, p, name)) {
    out->size = p->size;
    out->complete = true;
    return fsync(folder) == 0 ? BRIM_OK : fail_errno(name, errno);
  }
  snprintf(part, sizeof part, "%s.part", name);
  BRIM_TRY(open_regular(folder, part, O_RDWR | O_CREAT, &fd, &out->size));
  brim_status status = put_part(s, folder, fd, p, out);
  close(fd);
  return status;
}

static brim_status put_log(int folder, const brim_pool_piece *p, brim_pool_kept *out) {
  char name[NAME];
  int fd = -1;
  size_t added = 0;
  if (p->offset > LONGEST_LOG - (int64_t)p->data_size) {
    return brim_fail(BRIM_ELIMIT, "a log has at most %d MiB on the server", LONGEST_LOG >> 20);
  }
  whole_name(p, name);
  BRIM_TRY(open_regular(folder, name, O_RDWR | O_CREAT, &fd, &out->size));
  brim_status status = take_piece(fd, p, out, &added);
  close(fd);
  return status;
}

brim_status brim_pool_disk_put(brim_pool_disk *d, const brim_pool_piece *p, brim_pool_kept *out) {
  int folder = -1;
  *out = (brim_pool_kept){0};
  BRIM_TRY(open_folder(d, p->exp, true, &folder));
  slot *s = slot_of(d, p);
  pthread_mutex_lock(&s->mutex);
  brim_status status = p->kind->log ? put_log(folder, p, out) : put_whole(s, folder, p, out);
  pthread_mutex_unlock(&s->mutex);
  close(folder);
  return status;
}

void brim_pool_disk_prune(brim_pool_disk *d, const char *exp, const brim_lab_file_kind *kind,
                          const char *sha256, brim_pool_freed *freed) {
  const brim_pool_piece p = {.exp = exp, .kind = kind, .sha256 = sha256};
  char prefix[NAME], name[NAME];
  int folder = -1;
  if (open_folder(d, exp, false, &folder)) {
    brim_status_clear();
    return;
  }
  whole_name(&p, name);
  snprintf(prefix, sizeof prefix, "%s.", kind->name);
  slot *s = slot_of(d, &p);
  pthread_mutex_lock(&s->mutex);
  remove_but(folder, prefix, "", name, freed);
  pthread_mutex_unlock(&s->mutex);
  close(folder);
}

brim_status brim_pool_disk_read(brim_pool_disk *d, const brim_pool_piece *which, int *fd,
                                int64_t *size) {
  char name[NAME];
  int folder = -1;
  BRIM_TRY(open_folder(d, which->exp, false, &folder));
  whole_name(which, name);
  brim_status status = open_regular(folder, name, O_RDONLY, fd, size);
  close(folder);
  return status;
}

//---------------------------------- removing ----------------------------------

static bool is_id(const char *name, const char *suffix) {
  return strspn(name, "0123456789abcdef") == BRIM_EXP_ID - 1 &&
         strcmp(name + BRIM_EXP_ID - 1, suffix) == 0;
}

// Removes all files of an experiment in two steps: a rename takes them out of the way at once, and
// disk_remove_away removes the bytes, which may take long. *freed counts them.
static void disk_put_away(brim_pool_disk *d, const char *exp) {
  char gone[NAME];
  snprintf(gone, sizeof gone, "%.32s" GONE, exp);
  (void)renameat(d->root, exp, d->root, gone);
}

static void disk_remove_away(brim_pool_disk *d, const char *exp, brim_pool_freed *freed) {
  char gone[NAME];
  int folder = -1;
  snprintf(gone, sizeof gone, "%.32s" GONE, exp);
  if (!open_folder(d, gone, false, &folder)) {
    remove_but(folder, "", "", "", freed);
    close(folder);
    (void)unlinkat(d->root, gone, AT_REMOVEDIR);
  }
  brim_status_clear();
}

static brim_status add_id(const char *name, char (**ids)[BRIM_EXP_ID], size_t *count) {
  if ((*count & (*count - 1)) == 0) {  // at 0 and the powers of 2
    void *grown = brim_realloc(*ids, (*count ? 2 * *count : 1) * sizeof **ids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
    *ids = grown;
  }
  snprintf((*ids)[(*count)++], BRIM_EXP_ID, "%.32s", name);
  return BRIM_OK;
}

// Experiments that have a folder, also one that is put away; brim_free.
static brim_status disk_list(brim_pool_disk *d, char (**out)[BRIM_EXP_ID], size_t *count) {
  char(*ids)[BRIM_EXP_ID] = NULL;
  *out = NULL;
  *count = 0;
  int copy = openat(d->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
  if (!dir) {
    int err = errno;
    if (copy >= 0) close(copy);
    return brim_fail(BRIM_EIO, "cannot list the files of the server: %s", brim_errno_text(err));
  }
  brim_status status = BRIM_OK;
  for (struct dirent *e; !status && (e = readdir(dir));) {
    if (is_id(e->d_name, "") || is_id(e->d_name, GONE)) status = add_id(e->d_name, &ids, count);
  }
  closedir(dir);
  if (status) {
    brim_free(ids);
    *count = 0;
    return status;
  }
  *out = ids;
  return BRIM_OK;
}

//--------------------------------------------- room ---------------------------------------------
// Free space is measured when the pool is tended, and a refused write is noted. The log and pages report
// once that the disk is full, and once that it has room again.

// A worker retries within this time. If no write is refused meanwhile, the disk has room again.
enum { REFUSED_MS = 120000 };

void brim_pool_space_init(brim_pool_space *r) {
  *r = (brim_pool_space){.free_bytes = -1, .total_bytes = -1};
  pthread_mutex_init(&r->mutex, NULL);
}

void brim_pool_space_deinit(brim_pool_space *r) { pthread_mutex_destroy(&r->mutex); }

bool brim_pool_space_is_disk(const char *text) {
  return strstr(text, "disk is full") || strstr(text, "disk of the server is full");
}

static bool measure(const brim_lab_pool *pool, const char *folder, int64_t *room, int64_t *total) {
  struct statvfs st;
  if (pool->options.room) return pool->options.room(folder, room, total);
  if (statvfs(folder, &st) != 0) return false;
  *room = (int64_t)((double)st.f_bavail * (double)st.f_frsize);
  *total = (int64_t)((double)st.f_blocks * (double)st.f_frsize);
  return true;
}

// Measures the disk of the files and that of a SQLite store, and gives the one with less room.
static void measure_all(const brim_lab_pool *pool, int64_t *room, int64_t *total) {
  const brim_store *store = pool->options.store;
  const bool local = strcmp(brim_store_kind(store), "sqlite") == 0;
  const char *folders[] = {pool->options.files, local ? brim_store_place(store) : NULL};
  *room = *total = -1;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    int64_t here, size;
    if (!folders[i] || !measure(pool, folders[i], &here, &size)) continue;
    if (*room >= 0 && here >= *room) continue;
    *room = here;
    *total = size;
  }
}

brim_status brim_pool_space_put(brim_pool_space *r, json_t *out) {
  json_t *disk = json_object();
  pthread_mutex_lock(&r->mutex);
  const bool full = r->full;
  const int64_t room = r->free_bytes, total = r->total_bytes;
  pthread_mutex_unlock(&r->mutex);
  BRIM_TRY(brim_json_put(out, "disk", disk));
  BRIM_TRY(brim_json_put(disk, "full", json_boolean(full)));
  BRIM_TRY(brim_json_put(disk, "free", room < 0 ? json_null() : json_integer(room)));
  return brim_json_put(disk, "total", total < 0 ? json_null() : json_integer(total));
}

static void tell(brim_lab_pool *pool, bool full, int64_t room) {
  const long long mib = (long long)(room < 0 ? 0 : room >> 20);
  if (full) {
    brim_log_warn("serve",
                  "the disk of the server is full (%lld MiB free); workers keep their files and "
                  "results, and try again",
                  mib);
  } else {
    // a warning, like the message that it ends
    brim_log_warn("serve", "the disk of the server has room again (%lld MiB free)", mib);
  }
  json_t *value = json_object();
  if (!value || brim_pool_space_put(&pool->space, value)) {
    brim_status_clear();
  } else {
    brim_pool_feed_server(&pool->feed, value);
  }
  json_decref(value);
}

void brim_pool_space_update(brim_lab_pool *pool, bool refused) {
  brim_pool_space *r = &pool->space;
  int64_t room, total;
  measure_all(pool, &room, &total);
  pthread_mutex_lock(&r->mutex);
  r->free_bytes = room;
  r->total_bytes = total;
  if (refused) {
    r->refused++;
    r->refused_ms = r->now_ms;
  }
  const bool before = r->full, held = r->refused > 0 && r->now_ms - r->refused_ms < REFUSED_MS;
  r->full = held || (room >= 0 && room < BRIM_POOL_RESERVE);
  const bool full = r->full;
  pthread_mutex_unlock(&r->mutex);
  if (full != before) tell(pool, full, room);
}

//------------------------------------------ retention ------------------------------------------
// Removes files of experiments that ended. A round begins once an hour and does some folders per call. The
// store forgets the files of an experiment first, then their bytes are removed; the next round finds what a
// crash leaves in between.

enum { MINUTE_MS = 60000, HOUR_MS = 3600000, DAY_MS = 86400000, SOME = 200, SLICE_MS = 200 };

void brim_pool_retention_deinit(brim_pool_retention *keep) {
  brim_free(keep->ids);
  *keep = (brim_pool_retention){0};
}

// Checkpoints stay an hour after the end, in which late files may come.
static brim_store_expiry expiry_at(const brim_lab_pool_options *o, int64_t now_ms) {
  return (brim_store_expiry){.before = o->keep_days > 0 ? now_ms - o->keep_days * DAY_MS : 0,
                             .done_before = o->drop_checkpoints ? now_ms - HOUR_MS : 0};
}

static brim_status remove_old(brim_lab_pool *pool, const char *exp, const brim_store_expiry *when) {
  brim_store_expired what = BRIM_STORE_EXPIRED_NONE;
  brim_pool_freed *freed = &pool->retention.freed;
  disk_remove_away(pool->disk, exp, freed);  // left by an interrupted round
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_expire_files(pool->options.store, exp, when, &what);
  // Under the lock: as soon as it is free, the experiment may be queued again and get new files.
  if (!status && what == BRIM_STORE_EXPIRED_ALL) disk_put_away(pool->disk, exp);
  pthread_mutex_unlock(&pool->lock);
  BRIM_TRY(status);
  if (what == BRIM_STORE_EXPIRED_ALL) disk_remove_away(pool->disk, exp, freed);
  if (what == BRIM_STORE_EXPIRED_CHECKPOINT) {
    brim_pool_disk_prune(pool->disk, exp, brim_lab_file_find("checkpoint"), "", freed);
  }
  return BRIM_OK;
}

static void begin_round(brim_lab_pool *pool, int64_t now_ms) {
  brim_pool_retention *k = &pool->retention;
  bool first = k->next_ms == 0;
  brim_pool_retention_deinit(k);
  k->next_ms = now_ms + (first ? MINUTE_MS : HOUR_MS);
  if (first || !disk_list(pool->disk, &k->ids, &k->count)) return;
  brim_log_warn("serve", "%s", brim_status_detail());
  brim_status_clear();
}

brim_status brim_pool_retention_tend(brim_lab_pool *pool, int64_t now_ms) {
  const brim_lab_pool_options *o = &pool->options;
  brim_pool_retention *k = &pool->retention;
  if (!pool->disk || (o->keep_days <= 0 && !o->drop_checkpoints)) return BRIM_OK;
  if (k->at == k->count && now_ms >= k->next_ms) begin_round(pool, now_ms);
  if (k->at == k->count) return BRIM_OK;
  const brim_store_expiry when = expiry_at(o, now_ms);
  brim_time begin = brim_clock_now();
  for (int n = 0; n < SOME && k->at < k->count; n++) {
    BRIM_TRY(remove_old(pool, k->ids[k->at++], &when));
    if (brim_time_since_ns(begin, brim_clock_now()) > SLICE_MS * 1000000LL) break;
  }
  if (k->at == k->count && k->freed.files > 0) {
    brim_log_info("serve", "removed %lld old files of experiments, %lld bytes",
                  (long long)k->freed.files, (long long)k->freed.bytes);
  }
  return BRIM_OK;
}
