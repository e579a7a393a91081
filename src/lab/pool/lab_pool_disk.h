// Files of experiments on the server's disk: one folder for each experiment below FOLDER/files.
//
//   checkpoint.SHA256        a whole file of this name and hash
//   checkpoint.SHA256.part   what has come of one
//   log.N                    a log of attempt N
//
// A folder EXP.gone is being removed; an interrupted removal continues later.
//
// File names consist of the kinds of lab_wire_files.h, hashes and numbers. The store's rows say which whole
// file counts. Calls may come from several threads.
#ifndef BRIM_LAB_POOL_DISK_H_
#define BRIM_LAB_POOL_DISK_H_

#include "lab/wire/lab_wire_files.h"

typedef struct brim_pool_disk brim_pool_disk;

enum { BRIM_POOL_RESERVE = 64 << 20 };  // bytes of the disk that files leave free

brim_status brim_pool_disk_open(const char *folder, brim_pool_disk **out);
void brim_pool_disk_close(brim_pool_disk *disk);  // NULL is fine

typedef struct brim_pool_piece {
  const char *exp;  // 32 hex digits
  const brim_lab_file_kind *kind;
  int64_t attempt, offset;
  int64_t size;        // of the whole file; not of a log
  const char *sha256;  // 64 hex digits, likewise
  const void *data;
  size_t data_size;
} brim_pool_piece;

typedef enum brim_pool_refusal {
  BRIM_POOL_TAKEN,
  BRIM_POOL_ELSEWHERE,  // the piece does not begin where the copy ends, or differs from it
  BRIM_POOL_FULL,       // the disk
  BRIM_POOL_LARGE,      // the disk has room, but not for all of it
} brim_pool_refusal;

typedef struct brim_pool_kept {
  brim_pool_refusal refusal;
  int64_t size;   // of the copy now
  bool complete;  // the file is whole and synced, under its hash
} brim_pool_kept;

brim_status brim_pool_disk_put(brim_pool_disk *disk, const brim_pool_piece *piece,
                               brim_pool_kept *out);
typedef struct brim_pool_freed {
  int64_t files, bytes;
} brim_pool_freed;

// Removes whole and partial files of the kind, except the one with this hash, and counts them in *freed (may
// be NULL).
void brim_pool_disk_prune(brim_pool_disk *disk, const char *exp, const brim_lab_file_kind *kind,
                          const char *sha256, brim_pool_freed *freed);
// A whole file by its hash, or a log by its attempt, for reading. BRIM_ENOENT: it is not there.
brim_status brim_pool_disk_read(brim_pool_disk *disk, const brim_pool_piece *which, int *fd,
                                int64_t *size);

#endif  // BRIM_LAB_POOL_DISK_H_
