// Files of experiments on a server: their names, and the way there and back.
//
// A file is sent in pieces to POST /v1/attempts/EXP/N/files/NAME?fence=&offset=[&size=&sha256=&step=]. A
// piece that begins where the server's copy ends is appended, one that the copy has already is compared
// with it. Any other offset is 409 with the copy's "size", from which the sender continues. An empty
// piece asks for it. A file has its size and hash with each piece, and is there for readers when all of it
// has come and fits; a log has neither, and is there as it grows. A stale attempt is 409 without a
// "size", a full disk 507.
#ifndef BRIM_LAB_WIRE_FILES_H_
#define BRIM_LAB_WIRE_FILES_H_

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

// --- the way there (lab_files.c). A client serves one thread at a time.

struct brim_http_client;

// One that is sent.
typedef struct brim_lab_sending {
  brim_store_ref ref;
  const brim_lab_file_kind *kind;
  int fd;
  int64_t size, step;  // of a log: bytes that are there now; step -1 = none
  char sha256[65];
  size_t piece;  // bytes of the next one, by how long the last ones took
  int64_t have;  // on the server; -1 = not asked yet
  int again;     // times the server had to begin again
} brim_lab_sending;

// Its size and hash; `stop` (read atomically; may be NULL) ends it with BRIM_EINTERRUPTED.
brim_status brim_lab_sending_begin(brim_lab_sending *s, const bool *stop);
// The next piece. *done: the server has all of it. BRIM_ESTATE: the attempt is stale. BRIM_EIO: no answer,
// or no room for it: call again later. Other failures: the server does not want it.
brim_status brim_lab_sending_next(struct brim_http_client *client, brim_lab_sending *s, bool *done);

// --- and back

// Bytes of a file from an offset on, as they come. attempt 0: the last.
typedef struct brim_lab_fetching {
  const char *exp, *name;
  int64_t attempt, from;
  brim_status (*take)(void *ctx, const char *data, size_t size);
  void *ctx;
} brim_lab_fetching;
// BRIM_ENOENT: the server has none. BRIM_EIO: it ended before its end, or did not begin.
brim_status brim_lab_fetch(struct brim_http_client *client, const brim_lab_fetching *f);

// --- whole files (lab_files.c)

// What a server has of an experiment, by the order of brim_lab_file_kinds.
enum { BRIM_LAB_FILE_KINDS = 8 };
typedef struct brim_lab_file_row {
  bool there;
  char sha256[65];
  int64_t size, step;
} brim_lab_file_row;
struct brim_lab_link;
brim_status brim_lab_file_rows(struct brim_lab_link *link, const char *exp,
                               brim_lab_file_row rows[BRIM_LAB_FILE_KINDS]);

typedef struct brim_lab_getting {
  struct brim_http_client *client;
  const char *exp;
  const brim_lab_file_kind *kind;
  const brim_lab_file_row *row;
  const char *path;         // appears when all of it is there and has the hash
  bool (*keep)(void *ctx);  // is called all along; false ends it with BRIM_EINTERRUPTED
  void *ctx;
  bool broken;  // out: this machine's disk failed, not the server
} brim_lab_getting;
// Continues where a connection ends, as long as `keep` says so.
brim_status brim_lab_get_file(brim_lab_getting *g);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_WIRE_FILES_H_
