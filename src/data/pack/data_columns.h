// A table with one row a sample, written in order: HDF5 (a dataset a column), CSV or JSON lines. It
// takes its name when it is whole. Callers: `brim predict`.
//
// Unknown is NaN for numbers, -1 for labels and "" for text; in CSV an empty field, in JSON null.
// HDF5: contiguous datasets in the root, int64, int32 and float32 little-endian, (rows) or (rows,
// width); text as fixed-size strings. The attribute `names` of a wide dataset and `class_names` of
// `label` are the names of its parts where they are known.
#ifndef BRIM_DATA_COLUMNS_H_
#define BRIM_DATA_COLUMNS_H_

#include "base/base.h"

typedef enum brim_columns_format {
  BRIM_COLUMNS_HDF5,
  BRIM_COLUMNS_CSV,
  BRIM_COLUMNS_JSONL,
  BRIM_COLUMNS_FORMAT_COUNT
} brim_columns_format;

// By the ending: .h5, .hdf5, .csv, .jsonl; false for any other.
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
  int64_t width;             // values a row; REAL only. 0 = one, which is no list
  const char *const *parts;  // names of the values; NULL = their numbers. Borrowed till the end
  const char *prefix;        // in front of them in CSV: "p_" makes p_cat; NULL = the column's name_
  size_t text_bytes;         // TEXT: room for the longest, its end included
  const char *const *labels;  // LABEL: names of all labels, for HDF5's class_names; NULL = none
  size_t label_count;
} brim_column;

typedef struct brim_columns brim_columns;

// The columns' texts are borrowed until commit or abort. Exactly `rows` rows must follow. The path
// "-" is the standard output, for CSV and JSON lines; rows go there as they come. BRIM_EEXIST if
// the file exists and `replace` is false.
brim_status brim_columns_create(const char *path, bool replace, brim_columns_format format,
                                const brim_column *columns, size_t count, uint64_t rows,
                                brim_columns **out);
// The next rows: data[c] is column c's array of rows (times width) values.
brim_status brim_columns_put(brim_columns *c, const void *const *data, uint64_t rows);
brim_status brim_columns_commit(brim_columns *c);  // frees it, whatever the result
void brim_columns_abort(brim_columns *c);          // nothing is left; NULL is fine

#endif  // BRIM_DATA_COLUMNS_H_
