// The experiments of a place as records (record/record_lab.h). A place is a store that no process has
// open, a store that a sweep runs on, or a file that `brim sweep export` wrote.
#ifndef BRIM_LAB_WIRE_RECORDS_H_
#define BRIM_LAB_WIRE_RECORDS_H_

#include <stdbool.h>

#include "brim/status.h"
#include "record/record_lab.h"

// Kinds of places that the command line can name.
typedef enum brim_lab_kind {
  BRIM_LAB_KIND_NONE,    // neither of the two below
  BRIM_LAB_KIND_STORE,   // a folder with a store, or a URL
  BRIM_LAB_KIND_EXPORT,  // a file of lines
  BRIM_LAB_KIND_COUNT
} brim_lab_kind;
brim_lab_kind brim_lab_kind_of(const char *place);

// Settings about where an experiment runs and which files it keeps, for brim_lab_options.ignored.
const char *const *brim_lab_ignored_keys(void);

// Reads all experiments of a place, and its grids if it is a store. *torn (may be NULL): the last line
// of a file was incomplete.
brim_status brim_lab_records_read(const char *place, brim_lab_reader *reader, bool *torn);

#endif  // BRIM_LAB_WIRE_RECORDS_H_
