// Files of experiments on the server: their bytes on the disk, its free space, the removal of old
// files, and the requests about them. There is one folder for each experiment below FOLDER/files:
//
//   checkpoint.SHA256        a whole file of this name and hash
//   checkpoint.SHA256.part   the bytes of such a file that have arrived
//   log.N                    a log of attempt N
//
// A folder EXP.gone is about to be removed; an interrupted removal continues in the next round.
//
// File names consist of the kinds of lab_wire_files.h, hashes and numbers. The store's rows tell which
// whole file is valid. Several threads may call any function.

#include "lab/pool/lab_pool_int.h"

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
#include "lab/wire/lab_wire.h"

//-------------------------------------------- files --------------------------------------------
// A file becomes whole in this order: fsync, rename, fsync of the folder; then the caller notes it in
// the store; then older files are removed. If a crash interrupts this, the client's next empty piece
// finds the state.

typedef struct brim_pool_piece {
  const char *exp;  // 32 hex digits
  const brim_lab_file_kind *kind;
  int64_t attempt, offset;
  int64_t size;        // size of the whole file; not used for a log
  const char *sha256;  // 64 hex digits; not used for a log
  const void *data;
  size_t data_size;
} brim_pool_piece;

typedef enum brim_pool_refusal {
  BRIM_POOL_TAKEN,
  BRIM_POOL_ELSEWHERE,  // the piece does not begin where the copy ends, or differs from it
  BRIM_POOL_FULL,       // the disk is full
  BRIM_POOL_LARGE,      // the disk has room for the piece, but not for the whole file
} brim_pool_refusal;

typedef struct brim_pool_kept {
  brim_pool_refusal refusal;
  int64_t size;   // bytes that the server has now
  bool complete;  // the file is whole and synced, under its hash
} brim_pool_kept;

enum { RESERVE = 64 << 20 };  // bytes of the disk that files leave free
enum { SLOTS = 64, BLOCK = 256 << 10, NAME = 128, LONGEST_LOG = 256 << 20 };

#define GONE_SUFFIX ".gone"  // suffix of a folder that is about to be removed

// Lets one piece of a file in at a time. Keeps the hash of the bytes so far, so that the last piece
// need not read the file again. Files that share a slot wait for each other.
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

static brim_status disk_open(const char *folder, brim_pool_disk **out) {
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

static void disk_close(brim_pool_disk *d) {
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

// Opens a regular file; any other kind fails. BRIM_ENOENT: the file is missing.
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

// Removes a file and counts it in *freed (may be NULL). Does not count bytes that have another name
// too.
static void remove_one(int folder, const char *name, brim_pool_freed *freed) {
  struct stat st;
  bool known = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (unlinkat(folder, name, 0) != 0 || !freed) return;
  freed->files++;
  if (known && st.st_nlink == 1) freed->bytes += (int64_t)st.st_size;
}

// Removes files whose names begin with `prefix` and end with `suffix`, except `but`.
static void remove_others(int folder, const char *prefix, const char *suffix, const char *but,
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

// *same: the piece equals the copy in all bytes that both have.
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

// Appends bytes. *full: the disk is full, and nothing was appended.
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

// Keeps RESERVE bytes free for the store, which may be on the same disk. Reports a full disk only if
// the piece itself has no room, since the client may claim any size for the whole file.
static brim_status check_room(int fd, int64_t piece, int64_t rest, brim_pool_refusal *out) {
  struct statvfs st;
  if (fstatvfs(fd, &st) != 0) return BRIM_OK;
  double room = (double)st.f_bavail * (double)st.f_frsize - RESERVE;
  if ((double)rest > (double)st.f_blocks * (double)st.f_frsize) {
    return brim_fail(BRIM_ELIMIT, "the file is larger than the disk of the server");
  }
  if ((double)rest > room) *out = (double)piece > room ? BRIM_POOL_FULL : BRIM_POOL_LARGE;
  return BRIM_OK;
}

// Compares a piece with the copy and appends the new bytes at its end. *added: the number of new bytes.
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
  if (known >= (int64_t)p->data_size) return BRIM_OK;  // the piece is a repetition
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

// Hashes the rest of the file. *fits: the hash equals the one that the client named.
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
  s->kind = NULL;  // the sum cannot be continued
  return status;
}

//---------------------------------- whole files ----------------------------------

// Links to a file of another kind with the same hash, since the best checkpoint is often the last one.
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
  if (!fits) {  // drop all bytes: the client sends them again
    if (ftruncate(fd, 0) != 0) return fail_errno(name, errno);
    out->size = 0;
    out->refusal = BRIM_POOL_ELSEWHERE;
    return BRIM_OK;
  }
  if (fsync(fd) != 0) {
    // Drop all bytes: the kernel drops pages that it could not write, and the next fsync would succeed
    // without them.
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
    remove_others(folder, prefix, ".part", part, NULL);  // removes the parts of replaced files
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

static brim_status disk_put(brim_pool_disk *d, const brim_pool_piece *p, brim_pool_kept *out) {
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

// Removes whole and partial files of the kind, except the file with this hash. Counts them in *freed
// (may be NULL).
static void disk_prune(brim_pool_disk *d, const char *exp, const brim_lab_file_kind *kind,
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
  remove_others(folder, prefix, "", name, freed);
  pthread_mutex_unlock(&s->mutex);
  close(folder);
}

// Opens a whole file by its hash, or a log by its attempt. BRIM_ENOENT: the file is missing.
static brim_status disk_read(brim_pool_disk *d, const brim_pool_piece *which, int *fd,
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

// Begins to remove all files of an experiment: a rename moves them away at once. disk_remove_away then
// removes the bytes, which may take long, and counts them in *freed.
static void disk_put_away(brim_pool_disk *d, const char *exp) {
  char gone[NAME];
  snprintf(gone, sizeof gone, "%.32s" GONE_SUFFIX, exp);
  (void)renameat(d->root, exp, d->root, gone);
}

static void disk_remove_away(brim_pool_disk *d, const char *exp, brim_pool_freed *freed) {
  char gone[NAME];
  int folder = -1;
  snprintf(gone, sizeof gone, "%.32s" GONE_SUFFIX, exp);
  if (!open_folder(d, gone, false, &folder)) {
    remove_others(folder, "", "", "", freed);
    close(folder);
    (void)unlinkat(d->root, gone, AT_REMOVEDIR);
  }
  brim_status_clear();
}

static brim_status add_id(const char *name, char (**ids)[BRIM_EXP_ID], size_t *count) {
  if ((*count & (*count - 1)) == 0) {  // grow at 0 and at the powers of 2
    void *grown = brim_realloc(*ids, (*count ? 2 * *count : 1) * sizeof **ids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
    *ids = grown;
  }
  snprintf((*ids)[(*count)++], BRIM_EXP_ID, "%.32s", name);
  return BRIM_OK;
}

// Lists the experiments that have a folder, including folders that are moved away. Free with brim_free.
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
    if (is_id(e->d_name, "") || is_id(e->d_name, GONE_SUFFIX))
      status = add_id(e->d_name, &ids, count);
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
// Each tend measures the free space, and a refused write counts as a full disk for a while. The log and
// pages report once when the disk becomes full, and once when it has room again.

// A worker tries again within this time. If no write is refused in it, the disk has room again.
enum { REFUSED_MS = 120000 };

// True if a message of the store says that the disk is full.
static bool is_full_disk(const char *text) {
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

// Measures the disk of the files and that of a SQLite store, and returns the space of the fuller one.
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

static void report_space(brim_lab_pool *pool, bool full, int64_t room) {
  const long long mib = (long long)(room < 0 ? 0 : room >> 20);
  if (full) {
    brim_log_warn("serve",
                  "the disk of the server is full (%lld MiB free); workers keep their files and "
                  "results, and try again",
                  mib);
  } else {
    // A warning, like the message of the full disk that it takes back.
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

// Measures the disk, and reports if it became full or has room again. refused: a write failed for lack
// of room.
static void update_space(brim_lab_pool *pool, bool refused) {
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
  r->full = held || (room >= 0 && room < RESERVE);
  const bool full = r->full;
  pthread_mutex_unlock(&r->mutex);
  if (full != before) report_space(pool, full, room);
}

void brim_pool_space_measure(brim_lab_pool *pool) {
  pthread_mutex_lock(&pool->space.mutex);
  pool->space.now_ms = pool->tend_ms;
  pthread_mutex_unlock(&pool->space.mutex);
  update_space(pool, false);
}

bool brim_pool_space_refused(brim_lab_pool *pool, const char *text) {
  const bool full = is_full_disk(text);
  if (full) update_space(pool, true);
  return full;
}

//------------------------------------------ retention ------------------------------------------
// Removes files of ended experiments. A round begins once an hour and handles some folders per call.
// The store forgets the files of an experiment first, then their bytes are removed; after a crash in
// between, the next round removes the bytes.

enum { MINUTE_MS = 60000, HOUR_MS = 3600000, DAY_MS = 86400000, SOME = 200, SLICE_MS = 200 };

static void retention_deinit(brim_pool_retention *keep) {
  brim_free(keep->ids);
  *keep = (brim_pool_retention){0};
}

// A checkpoint stays for an hour after the end, since late files may arrive.
static brim_store_expiry expiry_at(const brim_lab_pool_options *o, int64_t now_ms) {
  return (brim_store_expiry){.before = o->keep_days > 0 ? now_ms - o->keep_days * DAY_MS : 0,
                             .done_before = o->drop_checkpoints ? now_ms - HOUR_MS : 0};
}

static brim_status remove_old(brim_lab_pool *pool, const char *exp, const brim_store_expiry *when) {
  brim_store_expired what = BRIM_STORE_EXPIRED_NONE;
  brim_pool_freed *freed = &pool->retention.freed;
  disk_remove_away(pool->disk, exp, freed);  // an interrupted round may have left it
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_expire_files(pool->options.store, exp, when, &what);
  // Move the files away under the lock: afterwards the experiment may be queued again and get new
  // files.
  if (!status && what == BRIM_STORE_EXPIRED_ALL) disk_put_away(pool->disk, exp);
  pthread_mutex_unlock(&pool->lock);
  BRIM_TRY(status);
  if (what == BRIM_STORE_EXPIRED_ALL) disk_remove_away(pool->disk, exp, freed);
  if (what == BRIM_STORE_EXPIRED_CHECKPOINT) {
    disk_prune(pool->disk, exp, brim_lab_file_find("checkpoint"), "", freed);
  }
  return BRIM_OK;
}

static void begin_round(brim_lab_pool *pool, int64_t now_ms) {
  brim_pool_retention *k = &pool->retention;
  bool first = k->next_ms == 0;
  retention_deinit(k);
  k->next_ms = now_ms + (first ? MINUTE_MS : HOUR_MS);
  if (first || !disk_list(pool->disk, &k->ids, &k->count)) return;
  brim_log_warn("serve", "%s", brim_status_detail());
  brim_status_clear();
}

// Handles some folders of a round, for a limited time.
static brim_status retention_tend(brim_lab_pool *pool) {
  const int64_t now_ms = pool->tend_ms;  // by the store's clock
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

//------------------------------------------ requests --------------------------------------------
// Requests about files of experiments. Bytes are written and read without the store's lock, which is
// taken only to check the attempt and to note a whole file.

enum { LOG_BYTES = 64 << 10, LOG_MOST = 1 << 20 };

// A request about a file, as given by its path and query.
typedef struct file_request {
  brim_lab_pool *pool;
  json_t *path;  // fields of the path by their names
  brim_store_ref ref;
  brim_pool_piece piece;
  int64_t step;
  char sha256[65];
} file_request;

static brim_status query_int(const brim_http_request *http, const char *name, int64_t *out) {
  const char *text = brim_http_query(http, name);
  if (!text || brim_parse_i64(text, out)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s is a whole number", name);
}

static const char *path_part(const file_request *a, const char *name) {
  const char *text = json_string_value(json_object_get(a->path, name));
  return text ? text : "";
}

static brim_status find_kind(file_request *a, const char *name) {
  a->piece.kind = brim_lab_file_find(name);
  if (a->piece.kind) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "a server keeps no file of this name");
}

// Reads the fields of the path. The caller frees a->path.
static brim_status begin(brim_lab_pool *pool, const brim_http_request *http, file_request *a) {
  bool known;
  *a = (file_request){.pool = pool, .step = -1, .piece = {.exp = a->ref.exp, .sha256 = a->sha256}};
  if (!pool->disk) return brim_fail(BRIM_EUNSUPPORTED, "this server keeps no files");
  a->path = json_object();
  if (!a->path) return brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (brim_pool_route_find(http->method, http->path, a->path, &known)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
}

//---------------------------------- taking ----------------------------------

static brim_status read_piece(const brim_http_request *http, file_request *a) {
  const char *sha = brim_http_query(http, "sha256");
  BRIM_TRY(find_kind(a, path_part(a, "name")));
  snprintf(a->ref.exp, sizeof a->ref.exp, "%s", path_part(a, "exp"));
  if (strlen(path_part(a, "exp")) != BRIM_EXP_ID - 1) {
    return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
  }
  a->ref.attempt = json_integer_value(json_object_get(a->path, "attempt"));
  a->ref.fence = -1;
  a->piece.size = -1;
  BRIM_TRY(query_int(http, "fence", &a->ref.fence));
  BRIM_TRY(query_int(http, "offset", &a->piece.offset));
  BRIM_TRY(query_int(http, "size", &a->piece.size));
  BRIM_TRY(query_int(http, "step", &a->step));
  a->piece.attempt = a->ref.attempt;
  a->piece.data = http->body;
  a->piece.data_size = http->body_size;
  if (a->piece.offset < 0 || a->ref.fence < 0) {
    return brim_fail(BRIM_EINVAL, "a piece of a file needs its fence and its offset");
  }
  if (a->piece.kind->log) return BRIM_OK;
  if (!brim_store_is_sha256(sha) || a->piece.size < 0 ||
      a->piece.offset > a->piece.size - (int64_t)http->body_size) {
    return brim_fail(BRIM_EINVAL, "a file needs its size and its sha256, and pieces within them");
  }
  snprintf(a->sha256, sizeof a->sha256, "%s", sha);
  return BRIM_OK;
}

static brim_status check_attempt(file_request *a, const brim_http_request *http,
                                 const brim_pool_caller *caller) {
  bool known;
  json_t *request = json_object(), *ref = brim_lab_wire_ref(&a->ref);
  brim_status status = brim_json_put(request, "ref", ref);
  pthread_mutex_lock(&a->pool->lock);
  if (!status) {
    status = brim_pool_check_own(
        a->pool, brim_pool_route_find(http->method, http->path, NULL, &known), caller, request);
  }
  if (!status) status = brim_store_check_last(a->pool->options.store, &a->ref);
  pthread_mutex_unlock(&a->pool->lock);
  json_decref(request);
  return status;
}

typedef struct looking {
  const char *name;
  char sha256[65];
  int64_t size, attempt;
  bool found;
} looking;

static brim_status take_row(void *ctx, const brim_store_file *f) {
  looking *l = (looking *)ctx;
  if (strcmp(f->name, l->name) != 0) return BRIM_OK;
  snprintf(l->sha256, sizeof l->sha256, "%s", f->sha256);
  l->size = f->size;
  l->attempt = f->attempt;
  l->found = true;
  return BRIM_OK;
}

// Notes a whole file in the store and removes the file that it replaces.
static brim_status note_whole(file_request *a) {
  const brim_store_file file = {
      .name = a->piece.kind->name, .sha256 = a->sha256, .size = a->piece.size, .step = a->step};
  looking l = {.name = file.name};
  pthread_mutex_lock(&a->pool->lock);
  brim_status status = brim_store_put_file(a->pool->options.store, &a->ref, &file);
  if (!status) status = brim_store_files(a->pool->options.store, a->ref.exp, take_row, &l);
  pthread_mutex_unlock(&a->pool->lock);
  if (!status && l.found) {
    disk_prune(a->pool->disk, a->ref.exp, a->piece.kind, l.sha256, NULL);
  }
  return status;
}

static void reply_kept(const brim_pool_kept *kept, brim_http_reply *reply) {
  static const char *const texts[] = {
      NULL, "the piece does not begin where the file ends, or differs from it",
      "the disk of the server is full", "the server has no room for all of this file now"};
  json_t *line = json_object();
  brim_status status = brim_json_put(line, "ok", json_boolean(kept->refusal == BRIM_POOL_TAKEN));
  if (!status && kept->refusal) {
    status = brim_json_put(line, "message", json_string(texts[kept->refusal]));
  }
  if (!status) status = brim_json_put(line, "size", json_integer(kept->size));
  if (!status) status = brim_json_put(line, "complete", json_boolean(kept->complete));
  reply->status = kept->refusal == BRIM_POOL_TAKEN       ? 200
                  : kept->refusal == BRIM_POOL_ELSEWHERE ? 409
                                                         : 507;
  brim_pool_reply_line(reply, line, status);
}

static void serve_file_put(brim_lab_pool *pool, const brim_pool_caller *caller,
                           const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  brim_pool_kept kept = {0};
  brim_status status = begin(pool, http, &a);
  if (!status) status = read_piece(http, &a);
  if (!status) status = check_attempt(&a, http, caller);
  if (!status) status = disk_put(pool->disk, &a.piece, &kept);
  if (!status && kept.complete) status = note_whole(&a);
  json_decref(a.path);
  if (status) {
    brim_pool_reply_failure(reply, status);
  } else {
    reply_kept(&kept, reply);
  }
}

//---------------------------------- reading ----------------------------------

// Chooses the attempt that was claimed last, for a request that names none.
static brim_status last_attempt(file_request *a) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(a->pool->reading.store, a->ref.exp, &exp));
  a->piece.attempt = exp->attempt;
  brim_store_exp_free(exp);
  return BRIM_OK;
}

// Finds the file that a request names. The caller holds the lock of the reading handle.
static brim_status find_file(file_request *a, const brim_http_request *http) {
  looking l = {.name = a->piece.kind->name};
  BRIM_TRY(brim_store_find(a->pool->reading.store, path_part(a, "exp"), a->ref.exp));
  BRIM_TRY(query_int(http, "attempt", &a->piece.attempt));
  if (a->piece.kind->log) return a->piece.attempt > 0 ? BRIM_OK : last_attempt(a);
  BRIM_TRY(brim_store_files(a->pool->reading.store, a->ref.exp, take_row, &l));
  if (!l.found || (a->piece.attempt > 0 && a->piece.attempt != l.attempt)) {
    return brim_fail(BRIM_ENOENT, "the server has no %s of this experiment", l.name);
  }
  memcpy(a->sha256, l.sha256, sizeof a->sha256);
  a->piece.size = l.size;
  return BRIM_OK;
}

static brim_status open_file(file_request *a, const brim_http_request *http, int *fd,
                             int64_t *size) {
  pthread_mutex_lock(&a->pool->reading.lock);
  brim_status status = find_file(a, http);
  pthread_mutex_unlock(&a->pool->reading.lock);
  if (!status) status = disk_read(a->pool->disk, &a->piece, fd, size);
  return status;
}

static void serve_file_get(brim_lab_pool *pool, const brim_pool_caller *caller,
                           const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  int fd = -1;
  int64_t size = 0, from = 0;
  char text[192];
  (void)caller;
  brim_status status = begin(pool, http, &a);
  if (!status) status = find_kind(&a, path_part(&a, "name"));
  if (!status) status = query_int(http, "from", &from);
  if (!status) status = open_file(&a, http, &fd, &size);
  if (!status && (from < 0 || from > size)) {
    close(fd);
    status = brim_fail(BRIM_EINVAL, "the file has %lld bytes", (long long)size);
  }
  json_decref(a.path);
  if (status) {
    brim_pool_reply_failure(reply, status);
    return;
  }
  snprintf(text, sizeof text, "attachment; filename=\"%.12s-%s\"", a.ref.exp, a.piece.kind->shown);
  brim_http_reply_header(reply, "Content-Disposition", text);
  reply->type = "application/octet-stream";
  reply->has_fd = true;
  reply->fd = fd;
  reply->fd_from = (uint64_t)from;
  reply->fd_size = (uint64_t)(size - from);
}

//---------------------------------- logs as text ----------------------------------

// Returns the length of the UTF-8 character at `text`; 0: it is no character, or the text ends inside
// it (*cut).
static size_t character(const unsigned char *text, size_t size, bool *cut) {
  size_t n = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
  *cut = false;
  if (text[0] == 0 || (text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4) return 0;
  for (size_t i = 1; i < n; i++) {
    if (i == size) {
      *cut = true;
      return 0;
    }
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return brim_utf8_valid((const char *)text, n) ? n : 0;
}

// Appends text; each byte that is not UTF-8 becomes U+FFFD. *used: bytes before a character that is cut
// off.
static void put_text(const char *bytes, size_t size, brim_str *out, size_t *used) {
  const unsigned char *text = (const unsigned char *)bytes;
  size_t at = 0;
  while (at < size) {
    bool cut;
    size_t n = character(text + at, size - at, &cut);
    if (cut && at > 0) break;
    brim_str_append_n(out, n ? bytes + at : "\xef\xbf\xbd", n ? n : 3);
    at += n ? n : 1;
  }
  *used = at;
}

static brim_status put_log_text(const file_request *a, int64_t from, int64_t size,
                                const char *bytes, size_t count, json_t *line) {
  brim_str text;
  size_t used = 0;
  brim_str_init(&text);
  put_text(bytes, count, &text, &used);
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(line, "attempt", json_integer(a->piece.attempt));
  if (!status) status = brim_json_put(line, "stream", json_string(a->piece.kind->name));
  if (!status) status = brim_json_put(line, "from", json_integer(from));
  if (!status) status = brim_json_put(line, "next", json_integer(from + (int64_t)used));
  if (!status) status = brim_json_put(line, "size", json_integer(size));
  if (!status) status = brim_json_put(line, "text", json_stringn(text.data, text.len));
  brim_str_deinit(&text);
  return status;
}

// Opens a log. Workers send stdout and stderr as one log, which also answers a page that asks for
// stdout.
static brim_status open_log(file_request *a, const brim_http_request *http, int *fd,
                            int64_t *size) {
  const char *stream = brim_http_query(http, "stream");
  BRIM_TRY(find_kind(a, stream ? stream : "log"));
  if (!a->piece.kind->log) return brim_fail(BRIM_EINVAL, "stream is log, stdout or stderr");
  brim_status status = open_file(a, http, fd, size);
  if (status == BRIM_ENOENT && a->ref.exp[0] && strcmp(a->piece.kind->name, "stdout") == 0) {
    a->piece.kind = brim_lab_file_find("log");
    status = disk_read(a->pool->disk, &a->piece, fd, size);
  }
  if (status != BRIM_ENOENT || !a->ref.exp[0]) return status;
  brim_status_clear();  // the log has no bytes yet
  *fd = -1;
  *size = 0;
  return BRIM_OK;
}

static brim_status read_log(int fd, int64_t size, int64_t *from, int64_t limit, brim_str *out) {
  if (*from < 0) *from = size + *from > 0 ? size + *from : 0;
  if (*from > size) *from = size;
  int64_t count = size - *from < limit ? size - *from : limit;
  char *bytes = count > 0 ? (char *)brim_alloc((size_t)count) : NULL;
  if (count > 0 && !bytes) return brim_fail(BRIM_ENOMEM, "out of memory for a log");
  ssize_t n = count > 0 ? pread(fd, bytes, (size_t)count, (off_t)*from) : 0;
  if (n > 0) brim_str_append_n(out, bytes, (size_t)n);
  brim_free(bytes);
  return brim_str_status(out);
}

static void serve_log(brim_lab_pool *pool, const brim_pool_caller *caller,
                      const brim_http_request *http, brim_http_reply *reply) {
  file_request a;
  int fd = -1;
  int64_t size = 0, from = 0, limit = LOG_BYTES;
  json_t *line = NULL;
  brim_str bytes;
  (void)caller;
  brim_str_init(&bytes);
  brim_status status = begin(pool, http, &a);
  if (!status) status = query_int(http, "from", &from);
  if (!status) status = query_int(http, "limit", &limit);
  if (!status && (limit < 1 || limit > LOG_MOST)) {
    status = brim_fail(BRIM_EINVAL, "limit is 1 to %d bytes", LOG_MOST);
  }
  if (!status) status = open_log(&a, http, &fd, &size);
  if (!status) status = read_log(fd, size, &from, limit, &bytes);
  if (fd >= 0) close(fd);
  if (!status) {
    line = json_object();
    status = line ? put_log_text(&a, from, size, bytes.data, bytes.len, line)
                  : brim_fail(BRIM_ENOMEM, "out of memory for a log");
  }
  brim_str_deinit(&bytes);
  json_decref(a.path);
  brim_pool_reply_line(reply, line, status);
}

const brim_pool_route brim_pool_file_routes[] = {
    BRIM_POOL_OWN("GET", "v1/exps/:exp/files/:name", READ, serve_file_get, 0),
    BRIM_POOL_OWN("GET", "v1/exps/:exp/log", READ, serve_log, 0),
    BRIM_POOL_OWN("POST", "v1/attempts/:exp/:attempt/files/:name", WORKER, serve_file_put,
                  BRIM_LAB_PIECE_MAX),
    {0},
};

//---------------------------------- the part ----------------------------------

static brim_status open_files(brim_lab_pool *pool) {
  const char *folder = pool->options.files;
  pool->space = (brim_pool_space){.free_bytes = -1, .total_bytes = -1};
  pthread_mutex_init(&pool->space.mutex, NULL);
  brim_status status = folder ? disk_open(folder, &pool->disk) : BRIM_OK;
  if (status) pthread_mutex_destroy(&pool->space.mutex);
  return status;
}

static void close_files(brim_lab_pool *pool) {
  retention_deinit(&pool->retention);
  disk_close(pool->disk);
  pthread_mutex_destroy(&pool->space.mutex);
}

const brim_pool_part brim_pool_files_part = {
    .open = open_files, .tend = retention_tend, .close = close_files};
