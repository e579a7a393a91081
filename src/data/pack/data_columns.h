// Writes a table with one row a sample, in order: HDF5 (a dataset a column), CSV or JSON lines. The file
// gets its name when it is complete. Callers: `brim predict`.
//
// The caller passes an unknown value as NaN, as label -1 or as text "". CSV gets an empty field, JSON null.
// HDF5: contiguous datasets in the root, int64, int32 and float32 little-endian, (rows) or (rows,
// width); text as fixed-size strings. A dataset gets the attribute `names` (of the values of a row) and
// `class_names` (of the labels) if the column has such names.
#ifndef BRIM_DATA_COLUMNS_H_
#define BRIM_DATA_COLUMNS_H_

#include "base/base.h"

typedef enum brim_columns_format {
  BRIM_COLUMNS_HDF5,
  BRIM_COLUMNS_CSV,
  BRIM_COLUMNS_JSONL,
  BRIM_COLUMNS_FORMAT_COUNT
} brim_columns_format;

// The format by the name's ending: .h5, .hdf5, .hdf, .csv, .jsonl, .ndjson; false for any other.
bool brim_columns_format_of(const char *path, brim_columns_format *out);

typedef enum brim_column_kind {
  BRIM_COLUMN_INDEX,  // uint64_t
  BRIM_COLUMN_LABEL,  // int32_t; -1 = unknown
  BRIM_COLUMN_REAL,   // float
  BRIM_COLUMN_TEXT,   // const char *
  BRIM_COLUMN_KIND_COUNT
} brim_column_kind;

typedef struct brim_column {
  const char *name;
  brim_column_kind kind;
  int64_t width;             // values a row, as a list (REAL only); 0 = a single value
  const char *const *parts;  // names of the values of a row; NULL = their numbers
  const char *prefix;  // of a part's name in CSV: "p_" makes p_cat; NULL = the column's name and _
  size_t text_bytes;   // TEXT: bytes of the longest text and its NUL
  const char *const *labels;  // LABEL: names of all labels, for HDF5's class_names; NULL = none
  size_t label_count;
} brim_column;

typedef struct brim_columns brim_columns;

// The texts of the columns must live until commit or abort. Exactly `rows` rows must follow. The path
// "-" is the standard output, for CSV and JSON lines; rows go there as they come. BRIM_EEXIST if
// the file exists and `replace` is false.
brim_status brim_columns_create(const char *path, bool replace, brim_columns_format format,
                                const brim_column *columns, size_t count, uint64_t rows,
                                brim_columns **out);
// Writes the next rows: data[c] is the array of rows (times width) values of column c.
brim_status brim_columns_put(brim_columns *c, const void *const *data, uint64_t rows);
brim_status brim_columns_commit(brim_columns *c);  // names the file; frees `c` even on failure
void brim_columns_abort(brim_columns *c);          // leaves no file; NULL is fine

#endif  // BRIM_DATA_COLUMNS_H_
