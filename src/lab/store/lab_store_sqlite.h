// SQLite behind the table of lab_store_db.h. One process has the file open for writing at a time:
// lab_store_open.c holds a lock beside it.
#ifndef BRIM_LAB_STORE_SQLITE_H_
#define BRIM_LAB_STORE_SQLITE_H_

#include "lab/store/lab_store_db.h"

#ifdef __cplusplus
extern "C" {
#endif

// The file is made when it is not there, unless `readonly`. BRIM_EPARSE for a file that is not a
// database, BRIM_EINVAL for another program's.
brim_status brim_db_sqlite_open(const char *path, bool readonly, brim_db **out);
// Another connection to the file of `first`, for reading, with the same clock.
brim_status brim_db_sqlite_open_beside(brim_db *first, const char *path, brim_db **out);
// The log is moved into the file when it has this many pages.
brim_status brim_db_sqlite_set_log(brim_db *db, int pages);
brim_status brim_db_sqlite_move_log(brim_db *db, int64_t *pages);
// Milliseconds that the clock must never fall behind: those of the last process that wrote.
void brim_db_sqlite_set_clock(brim_db *db, int64_t at_least);
// Whether no process holds this lock (brim_fs_lock), without taking it. BRIM_EEXIST: one does.
brim_status brim_db_sqlite_check_free(const char *lock);
// Whether the path leads to another file by now, or to none.
bool brim_db_sqlite_has_moved(brim_db *db);
// A copy of the whole file, whole or not at all.
brim_status brim_db_sqlite_backup(brim_db *db, const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_STORE_SQLITE_H_
