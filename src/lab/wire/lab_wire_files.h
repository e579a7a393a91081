// Files of experiments on a server: their names, sending and fetching.
//
// A client sends a file in pieces to POST /v1/attempts/EXP/N/files/NAME?fence=&offset=[&size=&sha256=&step=]. The
// server appends a piece that begins where its copy ends, and compares a piece that it already has. Any
// other offset is status 409 with the copy's "size", from which the client continues; an empty piece asks
// for that size. Each piece of a file carries the size and hash of the whole file. Readers see the file
// when all of it has come and the hash matches. A log has no size or hash, and readers see it as it grows.
// A stale attempt is 409 without a "size", a full disk 507.
#ifndef BRIM_LAB_WIRE_FILES_H_
#define BRIM_LAB_WIRE_FILES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "lab/store/lab_store.h"

enum { BRIM_LAB_PIECE_MAX = 8 << 20 };

typedef struct brim_lab_file_kind {
  const char *name;   // on the server
  const char *local;  // in the experiment's folder; NULL = attempt-N.log, or not written by brim
  const char *shown;  // in messages and downloads
  bool log;           // grows; each attempt has its own
} brim_lab_file_kind;

extern const brim_lab_file_kind brim_lab_file_kinds[];           // up to a row without a name
const brim_lab_file_kind *brim_lab_file_find(const char *name);  // NULL: there is none

// --- sending. A client serves one thread at a time.

struct brim_http_client;

// A file that is being sent.
typedef struct brim_lab_sending {
  brim_store_ref ref;
  const brim_lab_file_kind *kind;
  int fd;
  int64_t size, step;  // size of a log: its bytes now; step -1 = none
  char sha256[65];
  size_t piece;          // bytes of the next piece, adapted to the time of the last ones
  int64_t server_bytes;  // bytes that the server has; -1 = not asked yet
  int restarts;          // times that the server began the file again; -1 = a log is given up
} brim_lab_sending;

// Reads the size and hash. *stop (read atomically; may be NULL) ends it with BRIM_EINTERRUPTED.
brim_status brim_lab_sending_begin(brim_lab_sending *s, const bool *stop);
// Sends the next piece. *done: the server has the whole file. BRIM_ESTATE: the attempt is stale. BRIM_EIO:
// no answer, or no room: call again later. Other failures: the server refuses the file.
brim_status brim_lab_sending_next(struct brim_http_client *client, brim_lab_sending *s, bool *done);

// --- fetching

// Gives the bytes of a file from an offset on, as they come. attempt 0: the last one.
typedef struct brim_lab_range_fetch {
  const char *exp, *name;
  int64_t attempt, from;
  brim_status (*take)(void *ctx, const char *data, size_t size);
  void *ctx;
} brim_lab_range_fetch;
// BRIM_ENOENT: the server has no such file. BRIM_EIO: the transfer did not begin, or was cut off.
brim_status brim_lab_fetch(struct brim_http_client *client, const brim_lab_range_fetch *f);

// --- whole files

// The files of an experiment on a server, in the order of brim_lab_file_kinds.
enum { BRIM_LAB_FILE_KINDS = 8 };
typedef struct brim_lab_file_row {
  bool there;
  char sha256[65];
  int64_t size, step;
} brim_lab_file_row;
struct brim_lab_link;
brim_status brim_lab_file_rows(struct brim_lab_link *link, const char *exp,
                               brim_lab_file_row rows[BRIM_LAB_FILE_KINDS]);

typedef struct brim_lab_download {
  struct brim_http_client *client;
  const char *exp;
  const brim_lab_file_kind *kind;
  const brim_lab_file_row *row;
  const char *path;         // written when the whole file has come and the hash matches
  bool (*keep)(void *ctx);  // called for each piece; false ends it with BRIM_EINTERRUPTED
  void *ctx;
  bool disk_failed;  // out: the failure is of this machine's disk, not of the server
} brim_lab_download;
// Fetches the file. Continues after lost connections until `keep` returns false.
brim_status brim_lab_get_file(brim_lab_download *g);

#endif  // BRIM_LAB_WIRE_FILES_H_
