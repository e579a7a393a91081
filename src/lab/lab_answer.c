// The lines of a reply.
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/lab_ops_int.h"

static json_t *id_of(const brim_lab_answer *a) {
  const json_t *id = json_object_get(a->request, "id");
  return json_is_integer(id) ? json_integer(json_integer_value(id)) : json_null();
}

brim_status brim_lab_answer_line(const brim_lab_answer *a, bool ok, json_t **out) {
  json_t *line = json_object();
  brim_status status = brim_json_put(line, "id", id_of(a));
  if (!status) status = brim_json_put(line, "ok", json_boolean(ok));
  *out = line;
  if (!status) return BRIM_OK;
  json_decref(line);
  *out = NULL;
  return status;
}

brim_status brim_lab_answer_put(brim_lab_answer *a, const json_t *line) {
  char *text = NULL;
  BRIM_TRY(brim_json_dump(line, 0, &text));
  size_t size = strlen(text), have = a->ready.len - a->ready_at;
  if (size > BRIM_LAB_LINE_MAX || have + size > BRIM_LAB_READY_MAX) {
    brim_free(text);
    return brim_fail(BRIM_ELIMIT, "the reply is longer than %d MiB; ask for fewer rows",
                     BRIM_LAB_READY_MAX >> 20);
  }
  brim_str_append_n(&a->ready, text, size);
  brim_str_append_char(&a->ready, '\n');
  brim_free(text);
  return brim_str_status(&a->ready);
}

brim_status brim_lab_answer_flush(brim_lab_answer *a) {
  if (!a->line) return BRIM_OK;
  brim_status status = brim_lab_answer_put(a, a->line);
  json_decref(a->line);
  a->line = a->rows = NULL;
  a->rows_size = 0;
  return status;
}

brim_status brim_lab_answer_begin_rows(brim_lab_answer *a, const char *key) {
  BRIM_TRY(brim_lab_answer_line(a, true, &a->line));
  BRIM_TRY(brim_json_put(a->line, "more", json_true()));
  json_t *rows = json_array();
  BRIM_TRY(brim_json_put(a->line, key, rows));
  a->rows = rows;
  a->rows_key = key;
  return BRIM_OK;
}

brim_status brim_lab_answer_row(brim_lab_answer *a, const char *key, json_t *row, size_t size) {
  brim_status status = BRIM_OK;
  if (!a->line) status = brim_lab_answer_begin_rows(a, key);
  if (status) {
    json_decref(row);
    return status;
  }
  BRIM_TRY(brim_json_push(a->rows, row));
  a->rows_size += size;
  return a->rows_size >= BRIM_LAB_PIECE && !a->whole_line ? brim_lab_answer_flush(a) : BRIM_OK;
}

brim_status brim_lab_answer_text(brim_lab_answer *a, const char *key, const char *text) {
  json_t *line = NULL;
  char *head = NULL;
  BRIM_TRY(brim_lab_answer_line(a, true, &line));
  brim_status status = brim_json_put(line, "more", json_true());
  if (!status) status = brim_json_dump(line, 0, &head);
  json_decref(line);
  if (status) return status;
  if (strlen(text) + strlen(head) + strlen(key) + 8 > BRIM_LAB_LINE_MAX) {
    brim_free(head);
    return brim_fail(BRIM_ELIMIT, "the reply is longer than %d MiB; ask for fewer rows",
                     BRIM_LAB_LINE_MAX >> 20);
  }
  head[strlen(head) - 1] = '\0';  // its }
  brim_str_printf(&a->ready, "%s,\"%s\":", head, key);
  brim_str_append(&a->ready, text);
  brim_str_append(&a->ready, "}\n");
  brim_free(head);
  return brim_str_status(&a->ready);
}

brim_status brim_lab_answer_find(brim_lab_answer *a) {
  const char *exp = "";
  BRIM_TRY(brim_lab_wire_string(a->request, "exp", true, &exp));
  if (strlen(exp) != BRIM_EXP_ID - 1) return brim_store_find(a->store, exp, a->exp);
  memcpy(a->exp, exp, BRIM_EXP_ID);
  return BRIM_OK;
}
