// Tables with one row a sample: the text formats, and what all of them share.
#include "data/pack/data_columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_text.h"
#include "data/pack/data_columns_int.h"

enum { LINE_BYTES = 1 << 16 };  // gathered before they are written

bool brim_columns_format_of(const char *path, brim_columns_format *out) {
  static const struct {
    const char *end;
    brim_columns_format format;
  } ends[] = {{".h5", BRIM_COLUMNS_HDF5},     {".hdf5", BRIM_COLUMNS_HDF5},
              {".hdf", BRIM_COLUMNS_HDF5},    {".csv", BRIM_COLUMNS_CSV},
              {".jsonl", BRIM_COLUMNS_JSONL}, {".ndjson", BRIM_COLUMNS_JSONL}};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (!brim_str_ends(path, ends[i].end)) continue;
    *out = ends[i].format;
    return true;
  }
  return false;
}

//---------------------------------- values ----------------------------------

// The shortest text that reads back as the same float.
static void put_real(brim_str *out, float value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  brim_str_append(out, text);
}

// JSON is UTF-8: bytes of a name that are none become \xNN, so that two names stay two.
static void put_json_text(brim_str *out, const char *text) {
  brim_str_append_char(out, '"');
  for (const char *p = text; *p;) {
    unsigned char lead = (unsigned char)*p;
    size_t n = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (strnlen(p, n) < n || !brim_utf8_valid(p, n)) {
      brim_str_printf(out, "\\\\x%02x", lead);
      p++;
      continue;
    }
    if (lead == '"' || lead == '\\') brim_str_append_char(out, '\\');
    if (lead < 0x20) {
      brim_str_printf(out, "\\u%04x", (unsigned)lead);
    } else {
      brim_str_append_n(out, p, n);
    }
    p += n;
  }
  brim_str_append_char(out, '"');
}

// One value; `null` is what stands for unknown.
static void put_value(brim_str *out, const brim_column *c, const void *data, uint64_t at,
                      bool json) {
  const char *null = json ? "null" : "";
  switch (c->kind) {
    case BRIM_COLUMN_INDEX:
      brim_str_printf(out, "%" PRIu64, ((const uint64_t *)data)[at]);
      return;
    case BRIM_COLUMN_LABEL: {
      int32_t label = ((const int32_t *)data)[at];
      if (label < 0) {
        brim_str_append(out, null);
      } else {
        brim_str_printf(out, "%" PRId32, label);
      }
      return;
    }
    case BRIM_COLUMN_REAL: {
      float value = ((const float *)data)[at];
      if (isfinite(value)) {
        put_real(out, value);
      } else {
        brim_str_append(out, isnan(value) || json ? null : value > 0 ? "inf" : "-inf");
      }
      return;
    }
    case BRIM_COLUMN_TEXT: {
      const char *text = ((const char *const *)data)[at];
      if (json && text[0]) {
        put_json_text(out, text);
      } else if (text[0]) {
        brim_text_append_csv(out, text);
      } else {
        brim_str_append(out, null);
      }
      return;
    }
    case BRIM_COLUMN_KIND_COUNT:
      return;
  }
}

static void put_csv(brim_columns *c, const void *const *data, uint64_t row) {
  for (size_t i = 0; i < c->count; i++) {
    int64_t width = brim_column_width(&c->column[i]);
    for (int64_t k = 0; k < width; k++) {
      if (i || k) brim_str_append_char(&c->line, ',');
      put_value(&c->line, &c->column[i], data[i], row * (uint64_t)width + (uint64_t)k, false);
    }
  }
  brim_str_append_char(&c->line, '\n');
}

static void put_jsonl(brim_columns *c, const void *const *data, uint64_t row) {
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    int64_t width = brim_column_width(column);
    brim_str_printf(&c->line, "%s\"%s\": %s", i ? ", " : "{", column->name,
                    column->width > 0 ? "[" : "");
    for (int64_t k = 0; k < width; k++) {
      if (k) brim_str_append(&c->line, ", ");
      put_value(&c->line, column, data[i], row * (uint64_t)width + (uint64_t)k, true);
    }
    if (column->width > 0) brim_str_append_char(&c->line, ']');
  }
  brim_str_append(&c->line, "}\n");
}

static void csv_head(brim_columns *c) {
  brim_str name;
  brim_str_init(&name);
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    for (int64_t k = 0; k < brim_column_width(column); k++) {
      brim_str_clear(&name);
      if (column->width == 0) {
        brim_str_append(&name, column->name);
      } else {
        brim_str_append(&name, column->prefix ? column->prefix : column->name);
        if (!column->prefix) brim_str_append_char(&name, '_');
        if (column->parts) {
          brim_str_append(&name, column->parts[k]);
        } else {
          brim_str_printf(&name, "%" PRId64, k);
        }
      }
      if (i || k) brim_str_append_char(&c->line, ',');
      brim_text_append_csv(&c->line, name.data);
    }
  }
  brim_str_append_char(&c->line, '\n');
  if (brim_str_status(&name)) c->line.status = brim_str_status(&name);
  brim_str_deinit(&name);
}

static brim_status flush(brim_columns *c) {
  BRIM_TRY(brim_str_status(&c->line));
  BRIM_TRY(brim_columns_target_write(c, c->line.data, c->line.len));
  brim_str_clear(&c->line);
  return BRIM_OK;
}

//---------------------------------- the table ----------------------------------

static void deinit(brim_columns *c) {
  brim_str_deinit(&c->line);
  brim_free(c->path);
  brim_free(c);
}

static brim_status open_target(brim_columns *c) {
  BRIM_TRY(brim_columns_target_open(c));
  if (c->format == BRIM_COLUMNS_HDF5) return brim_columns_hdf5_open(c);
  if (c->format == BRIM_COLUMNS_CSV) csv_head(c);
  return BRIM_OK;
}

brim_status brim_columns_create(const char *path, bool replace, brim_columns_format format,
                                const brim_column *columns, size_t count, uint64_t rows,
                                brim_columns **out) {
  *out = NULL;
  bool to_stdout = strcmp(path, "-") == 0;
  if (count == 0 || count > BRIM_COLUMNS_MAX) {
    return brim_fail(BRIM_EINVAL, "a table has 1 to %d columns, not %zu", BRIM_COLUMNS_MAX, count);
  }
  if (to_stdout && format == BRIM_COLUMNS_HDF5) {
    return brim_fail(BRIM_EINVAL, "HDF5 cannot be written to the standard output");
  }
  brim_columns *c = brim_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  brim_str_init(&c->line);
  c->path = brim_strdup(to_stdout ? brim_tr("the standard output") : path);
  c->replace = replace;
  c->to_stdout = to_stdout;
  c->fd = -1;
  c->format = format;
  c->count = count;
  c->rows = rows;
  memcpy(c->column, columns, count * sizeof *columns);
  brim_status status =
      c->path ? open_target(c) : brim_fail(BRIM_ENOMEM, "out of memory while writing %s", path);
  if (status) {
    brim_columns_abort(c);
    return status;
  }
  *out = c;
  return BRIM_OK;
}

brim_status brim_columns_put(brim_columns *c, const void *const *data, uint64_t rows) {
  if (rows > c->rows - c->written) {
    return brim_fail(BRIM_ESTATE, "%s: more rows than the %" PRIu64 " it was begun with", c->path,
                     c->rows);
  }
  if (c->format == BRIM_COLUMNS_HDF5) {
    BRIM_TRY(brim_columns_hdf5_put(c, data, rows));
  } else {
    for (uint64_t i = 0; i < rows; i++) {
      if (c->format == BRIM_COLUMNS_CSV) {
        put_csv(c, data, i);
      } else {
        put_jsonl(c, data, i);
      }
      if (c->line.len >= LINE_BYTES) BRIM_TRY(flush(c));
    }
  }
  c->written += rows;
  return BRIM_OK;
}

brim_status brim_columns_commit(brim_columns *c) {
  brim_status status = BRIM_OK;
  if (c->written != c->rows) {
    status = brim_fail(BRIM_ESTATE, "%s: %" PRIu64 " of %" PRIu64 " rows were written", c->path,
                       c->written, c->rows);
  }
  if (!status && c->format != BRIM_COLUMNS_HDF5) status = flush(c);
  if (!status && c->hdf5) status = brim_columns_hdf5_close(c, true);
  if (!status) status = brim_columns_target_take(c);
  brim_columns_abort(c);  // what is left of it
  return status;
}

void brim_columns_abort(brim_columns *c) {
  if (!c) return;
  if (c->hdf5) brim_columns_hdf5_close(c, false);
  brim_columns_target_close(c);
  deinit(c);
}
