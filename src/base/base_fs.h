// Files: read whole, write whole or not at all, paths.
#ifndef BRIM_BASE_FS_H_
#define BRIM_BASE_FS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whole file into a NUL-terminated block (brim_free). max_bytes 0 = no limit; above it BRIM_ELIMIT.
brim_status brim_fs_read(const char *path, size_t max_bytes, char **out, size_t *out_size);
// A regular file for reading, and its size; close the descriptor. A folder, a FIFO, a socket or a
// device is refused (BRIM_EINVAL) and never waited for.
brim_status brim_fs_open_regular(const char *path, int *out, uint64_t *size);

// Atomic write: temporary beside the target, fsync, rename, fsync of the folder.
typedef struct brim_fs_writer brim_fs_writer;
struct brim_xxh64;
brim_status brim_fs_writer_open(const char *path, brim_fs_writer **out);
brim_status brim_fs_writer_write(brim_fs_writer *w, const void *data, size_t size);
brim_status brim_fs_writer_commit(brim_fs_writer *w);  // closes w whatever the result
void brim_fs_writer_abort(brim_fs_writer *w);          // removes the temporary; NULL is fine
// What is written from now on goes through *sum as well (NULL: no longer).
void brim_fs_writer_sum(brim_fs_writer *w, struct brim_xxh64 *sum);
// Other bytes where some were written already: a field that is known only at the end.
brim_status brim_fs_writer_patch(brim_fs_writer *w, size_t offset, const void *data, size_t size);
brim_status brim_fs_write(const char *path, const void *data, size_t size);
// Can `path` be written now? Tried and taken back, before work whose result would be lost. Where it
// cannot be, what was asked for is wrong and nothing has begun: BRIM_EINVAL (or BRIM_ENOMEM).
brim_status brim_fs_check_target(const char *path);
// That rule for other tries of the same kind (a folder made, a lock taken): BRIM_EIO and BRIM_ENOENT
// become BRIM_EINVAL, the others stay, and so does the detail.
brim_status brim_fs_refused(brim_status status);
// The status of a file that does not open to be read. One that may not be read is as wrong a name as one
// that is not there: BRIM_EINVAL.
brim_status brim_fs_open_status(int err);
// `to` becomes a second name of the file `from`, just as atomically, without a byte written: for
// files that are only ever replaced. BRIM_EUNSUPPORTED where the file system has no hard links or
// `to` is there with other permissions; write it again then.
brim_status brim_fs_link(const char *from, const char *to);
// A file of its own with the same bytes, atomically; `to` may be a second name of `from`.
brim_status brim_fs_copy(const char *from, const char *to);
// Append one line (with newline added) with O_APPEND in one write; creates the file.
brim_status brim_fs_append_line(const char *path, const char *line);

bool brim_fs_exists(const char *path);
bool brim_fs_is_dir(const char *path);
// Do both names lead to one file or folder? false when either is not there.
bool brim_fs_same(const char *a, const char *b);
brim_status brim_fs_size(const char *path, uint64_t *out);
brim_status brim_fs_mkdirs(const char *path);
brim_status brim_fs_remove(const char *path);

// Advisory exclusive lock on a lock file, between processes and within one; never waits.
// BRIM_EEXIST "PATH is held by process N" when taken. The file holds the process number and is
// removed by unlock; one left by a dead process is no obstacle (the kernel ends the lock with it).
// BRIM_EUNSUPPORTED where the file system has no locks.
typedef struct brim_fs_lockfile brim_fs_lockfile;
brim_status brim_fs_lock(const char *path, brim_fs_lockfile **out);
void brim_fs_unlock(brim_fs_lockfile *lock);  // NULL is fine
// Whether a file with this content may be such a lock: "1234 brim", by version 0.1 "1234", or nothing
// where the holder was killed before it wrote. Anything else is another program's file.
bool brim_fs_is_lock(const char *text, size_t size);
// The lock of a folder that one run at a time may write to: FOLDER/lock. BRIM_OK and *out NULL where
// the file system has no locks.
brim_status brim_fs_lock_folder(const char *folder, brim_fs_lockfile **out);

// Files are written as TARGET.tmp.PID.N first. Removes those whose process is gone: of one target, or all
// of a folder in which every file is brim's. To be called with the folder's lock held. What cannot be
// removed stays.
#define BRIM_FS_TEMP_MARK ".tmp."
void brim_fs_remove_stale_of(const char *path);
void brim_fs_remove_stale(const char *folder);
// The process that a name of this form speaks of, and the length of its target's name; 0 = it is
// another name. And whether that process is gone from this machine.
int64_t brim_fs_temp_writer(const char *name, size_t *target);
bool brim_fs_writer_gone(int64_t pid);

// Names in a folder, sorted by strcmp, without . and ..; free with brim_fs_list_free.
brim_status brim_fs_list(const char *path, char ***names, size_t *count);
void brim_fs_list_free(char **names, size_t count);
// dir + "/" + name (name alone when absolute or dir is NULL/""); brim_free. NULL = out of memory.
char *brim_fs_join(const char *dir, const char *name);
char *brim_fs_dirname(const char *path);         // "." when there is none; brim_free
const char *brim_fs_basename(const char *path);  // into path
// The running binary (brim_free).
brim_status brim_fs_exe(char **out);
// Its folder (brim_free); where plug-ins and configs are looked for.
char *brim_fs_exe_dir(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_FS_H_
