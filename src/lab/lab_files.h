// Files of experiments on a server: their names, and the way there and back.
//
// A file is sent in pieces to POST /v1/attempts/EXP/N/files/NAME?fence=&offset=[&size=&sha256=&step=]. A
// piece that begins where the server's copy ends is appended, one that the copy has already is compared
// with it. Any other offset is 409 with the copy's "size", from which the sender continues. An empty
// piece asks for it. A file has its size and hash with each piece, and is there for readers when all of it
// has come and fits; a log has neither, and is there as it grows. A stale attempt is 409 without a
// "size", a full disk 507.
#ifndef BRIM_LAB_FILES_H_
#define BRIM_LAB_FILES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_LAB_PIECE_MAX = 8 << 20 };

typedef struct brim_lab_file_kind {
  const char *name;   // by which the server knows it
  const char *local;  // in the folder of the experiment; NULL = attempt-N.log, or not brim's
  const char *shown;  // its name for people
  bool log;           // grows, and each attempt has its own
} brim_lab_file_kind;

extern const brim_lab_file_kind brim_lab_file_kinds[];           // up to a row without a name
const brim_lab_file_kind *brim_lab_file_find(const char *name);  // NULL: there is none

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_FILES_H_
