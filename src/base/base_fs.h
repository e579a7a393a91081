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

// Reads a whole file into a NUL-terminated block; free it with brim_free. Returns BRIM_ELIMIT if the file has
// more than max_bytes bytes; max_bytes 0 = no limit.
brim_status brim_fs_read(const char *path, size_t max_bytes, char **out, size_t *out_size);
// Opens a regular file for reading. *out: a descriptor to close. Refuses a folder, FIFO, socket or device (BRIM_EINVAL)
// without waiting for it.
brim_status brim_fs_open_regular(const char *path, int *out, uint64_t *size);

// Atomic write: temporary beside the target, fsync, rename, fsync of the folder.
typedef struct brim_fs_writer brim_fs_writer;
struct brim_xxh64;
brim_status brim_fs_writer_open(const char *path, brim_fs_writer **out);
brim_status brim_fs_writer_write(brim_fs_writer *w, const void *data, size_t size);
brim_status brim_fs_writer_commit(brim_fs_writer *w);  // closes w whatever the result
void brim_fs_writer_abort(brim_fs_writer *w);          // removes the temporary; NULL is fine
// From now on also hashes everything that is written, into *sum. NULL stops the hashing.
void brim_fs_writer_sum(brim_fs_writer *w, struct brim_xxh64 *sum);
// Replaces bytes that were written already, such as a field that is known only at the end.
brim_status brim_fs_writer_patch(brim_fs_writer *w, size_t offset, const void *data, size_t size);
brim_status brim_fs_write(const char *path, const void *data, size_t size);
// Checks that `path` can be written, by trying, before work whose result would be lost. BRIM_EINVAL (or BRIM_ENOMEM) if
// not.
brim_status brim_fs_check_target(const char *path);
// Turns the status of a failed step before writing (creating the folder, taking its lock) into what
// brim_fs_check_target would return: BRIM_EIO and BRIM_ENOENT become BRIM_EINVAL, others stay. Does not
// change the detail.
brim_status brim_fs_refused(brim_status status);
// Returns the status for the errno of a failed open for reading. A path that can never be read (no
// permission, a folder, a loop of symbolic links, too long a name, a socket) is a wrong argument:
// BRIM_EINVAL.
brim_status brim_fs_open_status(int err);
// Makes `to` a hard link to `from`, atomically; for files that are replaced, never changed. BRIM_EUNSUPPORTED if the file
// system has no hard links, or `to` exists with other permissions: write a copy then.
brim_status brim_fs_link(const char *from, const char *to);
// Copies `from` to `to`, atomically. `to` may be a hard link to `from`, and is separate afterwards.
brim_status brim_fs_copy(const char *from, const char *to);
// Appends one line and a newline with one write (O_APPEND). Creates the file.
brim_status brim_fs_append_line(const char *path, const char *line);

bool brim_fs_exists(const char *path);
bool brim_fs_is_dir(const char *path);
// True if both names lead to the same file or folder; false if either is missing.
bool brim_fs_same(const char *a, const char *b);
brim_status brim_fs_size(const char *path, uint64_t *out);
brim_status brim_fs_mkdirs(const char *path);
brim_status brim_fs_remove(const char *path);

// Takes an advisory exclusive lock on a lock file, between processes and within one; never waits. BRIM_EEXIST "PATH is held
// by process N" if it is taken. The file holds the PID and is removed by unlock. A file left by a dead process is no
// obstacle, since the kernel has released its lock. BRIM_EUNSUPPORTED if the file system has no locks.
typedef struct brim_fs_lockfile brim_fs_lockfile;
brim_status brim_fs_lock(const char *path, brim_fs_lockfile **out);
void brim_fs_unlock(brim_fs_lockfile *lock);  // NULL is fine
// True if a file with this content may be such a lock: "1234 brim", "1234" by version 0.1, or empty if the holder was killed
// before it wrote. Anything else belongs to another program.
bool brim_fs_is_lock(const char *text, size_t size);
// Locks a folder that one run at a time may write to, by FOLDER/lock. BRIM_OK with *out NULL if the file system has no locks.
brim_status brim_fs_lock_folder(const char *folder, brim_fs_lockfile **out);

// Remove temporary files (TARGET.tmp.PID.N) that dead processes left. brim_fs_remove_stale_of removes those of
// one target. brim_fs_remove_stale removes those of all targets in a folder; use it only for folders that hold
// nothing but brim's files. Hold the folder's lock. Errors are ignored.
#define BRIM_FS_TEMP_MARK ".tmp."
void brim_fs_remove_stale_of(const char *path);
void brim_fs_remove_stale(const char *folder);
// Parses the name of a temporary file: returns the writer's PID and, in *target, the length of the
// target's name. 0 = not such a name.
int64_t brim_fs_temp_writer(const char *name, size_t *target);
// True if no process has this PID.
bool brim_fs_writer_gone(int64_t pid);

// Names in a folder, sorted by strcmp, without . and ..; free with brim_fs_list_free.
brim_status brim_fs_list(const char *path, char ***names, size_t *count);
void brim_fs_list_free(char **names, size_t count);
// dir + "/" + name (name alone when absolute or dir is NULL/""); brim_free. NULL = out of memory.
char *brim_fs_join(const char *dir, const char *name);
char *brim_fs_dirname(const char *path);         // "." if there is none; brim_free
const char *brim_fs_basename(const char *path);  // points into path
// The running binary (brim_free).
brim_status brim_fs_exe(char **out);
// The folder of the running binary (brim_free), where plug-ins and configs are searched.
char *brim_fs_exe_dir(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_FS_H_
