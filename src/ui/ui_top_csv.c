// A machine as CSV: a row per GPU with every number of it and of its host. The columns are the keys of
// the JSON record, so that the two cannot disagree. Processes, events and jobs are in the record alone.
#include <string.h>

#include "base/base_text.h"
#include "ui/ui_top.h"

typedef struct csv_row {
  brim_str *out;
  bool first, names;
} csv_row;

static void put_cell(csv_row *row, const char *text) {
  if (!row->first) brim_str_append_char(row->out, ',');
  row->first = false;
  brim_text_append_csv(row->out, text);
}

// A list as one cell: "power_cap+thermal", "99+10.2".
static void put_names(csv_row *row, const json_t *list) {
  brim_str text;
  brim_str_init(&text);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    char number[32] = "";
    if (json_is_number(item)) brim_format_f64(json_number_value(item), number);
    if (i > 0) brim_str_append_char(&text, '+');
    brim_str_append(&text, json_is_string(item) ? json_string_value(item) : number);
  }
  put_cell(row, text.data);
  if (text.status && !row->out->status) row->out->status = text.status;
  brim_str_deinit(&text);
}

static void put_value(csv_row *row, const json_t *value) {
  char text[32] = "";
  if (json_is_array(value)) {
    put_names(row, value);
    return;
  }
  if (json_is_string(value)) {
    put_cell(row, json_string_value(value));
    return;
  }
  if (json_is_boolean(value)) snprintf(text, sizeof text, "%d", json_is_true(value) ? 1 : 0);
  if (json_is_number(value)) brim_format_f64(json_number_value(value), text);
  put_cell(row, text);
}

// The members of an object, or their names with a prefix.
static void put_members(csv_row *row, json_t *object, const char *prefix) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char name[96];
    if (json_is_object(value)) {
      put_members(row, value, "target_");
    } else if (row->names) {
      snprintf(name, sizeof name, "%s%s", prefix, key);
      put_cell(row, name);
    } else {
      put_value(row, value);
    }
  }
}

static void put_row(json_t *root, json_t *gpu, bool names, brim_str *out) {
  csv_row row = {.out = out, .first = true, .names = names};
  if (names) {
    put_cell(&row, "when_s");
    put_cell(&row, "interval_s");
  } else {
    put_value(&row, json_object_get(root, "when_s"));
    put_value(&row, json_object_get(root, "interval_s"));
  }
  put_members(&row, gpu, "");
  put_members(&row, json_object_get(root, "host"), "host_");
  brim_str_append_char(out, '\n');
}

static brim_status put_rows(const brim_top_view *view, bool names, brim_str *out) {
  json_t *root = NULL;
  BRIM_TRY(brim_top_view_to_json(view, &root));
  json_t *gpus = json_object_get(root, "gpus");
  for (size_t i = 0; i < json_array_size(gpus); i++) {
    put_row(root, json_array_get(gpus, i), names, out);
  }
  json_decref(root);
  return brim_str_status(out);
}

// A machine with one GPU about which nothing is known: the columns, and the row of a host without one.
static brim_status put_unknown_gpu(const brim_top_view *view, bool names, brim_str *out) {
  brim_top_view blank;
  brim_top_view_init(&blank);
  brim_status status = BRIM_OK;
  if (view) {
    blank.when_s = view->when_s;
    blank.interval_s = view->interval_s;
    blank.host = view->host;
  }
  if (!brim_top_view_add_gpu(&blank)) status = brim_fail(BRIM_ENOMEM, "out of memory");
  if (!status) status = put_rows(&blank, names, out);
  brim_top_view_deinit(&blank);
  return status;
}

brim_status brim_ui_top_csv_header(brim_str *out) { return put_unknown_gpu(NULL, true, out); }

brim_status brim_ui_top_csv_rows(const brim_top_view *view, brim_str *out) {
  return view->gpu_count > 0 ? put_rows(view, false, out) : put_unknown_gpu(view, false, out);
}
