// The experiments of a place as records (record/record_lab.h): of a store that no process has open, of
// one that a sweep runs on, or of a file that `brim sweep export` wrote.
#ifndef BRIM_LAB_WIRE_RECORDS_H_
#define BRIM_LAB_WIRE_RECORDS_H_

#include <stdbool.h>

#include "brim/status.h"
#include "record/record_lab.h"

// What a word of the command line names.
typedef enum brim_lab_kind {
  BRIM_LAB_KIND_NONE,    // no experiments
  BRIM_LAB_KIND_STORE,   // a folder with a store, or a URL
  BRIM_LAB_KIND_EXPORT,  // a file of lines
  BRIM_LAB_KIND_COUNT
} brim_lab_kind;
brim_lab_kind brim_lab_kind_of(const char *place);

// Settings that say where an experiment runs and what it leaves, for brim_lab_options.ignored.
const char *const *brim_lab_ignored_keys(void);

// All experiments of a place, and its grids where it is a store. *torn (may be NULL): the last line of
// a file was cut off.
brim_status brim_lab_records_read(const char *place, brim_lab_reader *reader, bool *torn);

#endif  // BRIM_LAB_WIRE_RECORDS_H_
