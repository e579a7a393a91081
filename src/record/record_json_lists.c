// Lists of a result as JSON and back: findings, the time of transforms, and the visits of a sweep. record.h
// specifies them.
#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "record/record_int.h"

static brim_status put_number(json_t *object, const char *key, double number) {
  return isnan(number) ? BRIM_OK : brim_json_put(object, key, brim_json_number(number));
}

static brim_status bad(const char *name, int line, const char *key, const char *want) {
  return brim_fail_at(BRIM_EPARSE, name, line, 0, "%s.%s should be %s", "result", key, want);
}

// Where it is an object of a list, as all are that brim writes.
static brim_status check_item(const json_t *item, const char *name, int line, const char *list) {
  return json_is_object(item) ? BRIM_OK : bad(name, line, list, "a list of objects");
}

static brim_status read_text(const json_t *item, const char *key, const char *name, int line,
                             char *out, size_t size) {
  const json_t *value = json_object_get(item, key);
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_string(value)) return bad(name, line, key, "a string");
  brim_record_copy(out, size, json_string_value(value));
  return BRIM_OK;
}

static brim_status read_number(const json_t *item, const char *key, const char *name, int line,
                               double *out) {
  const json_t *value = json_object_get(item, key);
  *out = (double)NAN;
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_number(value)) return bad(name, line, key, "a number or null");
  *out = json_number_value(value);
  return BRIM_OK;
}

//---------------------------------- findings ----------------------------------

static brim_status put_change(json_t *item, const brim_finding *f) {
  if (!f->key[0]) return BRIM_OK;
  BRIM_TRY(brim_json_put(item, "change", json_object()));
  json_t *change = json_object_get(item, "change");
  BRIM_TRY(brim_json_put(change, "key", brim_record_text(f->key)));
  return brim_json_put(change, "value", brim_record_text(f->value));
}

brim_status brim_record_put_words(json_t *item, const char *key, const char *words) {
  char words_key[32];
  brim_str english;
  brim_str_init(&english);
  brim_words_read_in(NULL, words, &english);
  brim_status status = brim_str_status(&english);
  if (!status) status = brim_json_put(item, key, brim_record_text(english.data));
  brim_str_deinit(&english);
  if (status || !brim_words_are(words)) return status;
  snprintf(words_key, sizeof words_key, "%s_words", key);
  return brim_json_put(item, words_key, brim_record_text(words));
}

void brim_record_read_words(const json_t *item, const char *key, char *text, size_t size) {
  char words_key[32];
  brim_str english;
  snprintf(words_key, sizeof words_key, "%s_words", key);
  const char *words = json_string_value(json_object_get(item, words_key));
  if (!words || strlen(words) >= size) return;
  brim_str_init(&english);
  brim_words_read_in(NULL, words, &english);
  if (strncmp(english.data, text, size - 1) == 0) brim_record_copy(text, size, words);
  brim_str_deinit(&english);
}

brim_status brim_record_put_finding(json_t *item, const brim_finding *f) {
  BRIM_TRY(brim_json_put(item, "code", brim_record_text(f->code)));
  BRIM_TRY(brim_json_put(item, "cost_ms", brim_json_number(f->cost_ms)));
  BRIM_TRY(put_number(item, "predicted_ms", f->predicted_ms));
  BRIM_TRY(brim_record_put_words(item, "text", f->text));
  BRIM_TRY(brim_record_put_words(item, "remedy", f->remedy));
  if (f->note) BRIM_TRY(brim_json_put(item, "note", json_true()));
  BRIM_TRY(put_change(item, f));
  return f->measured ? brim_json_put(item, "measured", json_true()) : BRIM_OK;
}

brim_status brim_record_put_findings(json_t *root, const brim_result *result) {
  BRIM_TRY(brim_json_put(root, "findings", json_array()));
  json_t *list = json_object_get(root, "findings");
  for (size_t i = 0; i < result->finding_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_record_put_finding(item, &result->findings[i]));
  }
  return BRIM_OK;
}

brim_status brim_record_read_finding(const json_t *item, const char *name, int line,
                                     brim_finding *f) {
  const json_t *change = json_object_get(item, "change");
  BRIM_TRY(check_item(item, name, line, "findings"));
  BRIM_TRY(read_text(item, "code", name, line, f->code, sizeof f->code));
  BRIM_TRY(read_number(item, "cost_ms", name, line, &f->cost_ms));
  BRIM_TRY(read_number(item, "predicted_ms", name, line, &f->predicted_ms));
  BRIM_TRY(read_text(item, "text", name, line, f->text, sizeof f->text));
  BRIM_TRY(read_text(item, "remedy", name, line, f->remedy, sizeof f->remedy));
  brim_record_read_words(item, "text", f->text, sizeof f->text);
  brim_record_read_words(item, "remedy", f->remedy, sizeof f->remedy);
  f->note = json_is_true(json_object_get(item, "note"));
  f->measured = json_is_true(json_object_get(item, "measured"));
  BRIM_TRY(read_text(change, "key", name, line, f->key, sizeof f->key));
  return read_text(change, "value", name, line, f->value, sizeof f->value);
}

brim_status brim_record_read_findings(const json_t *root, const char *name, int line,
                                      brim_result *out) {
  json_t *list = json_object_get(root, "findings");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return bad(name, line, "findings", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_FINDINGS) break;  // the dearest stand first
    BRIM_TRY(brim_record_read_finding(item, name, line, &out->findings[index]));
    out->finding_count = index + 1;
  }
  return BRIM_OK;
}

//---------------------------------- transforms ----------------------------------

brim_status brim_record_put_stages(json_t *worker, const brim_result *result) {
  if (result->stage_count == 0) return BRIM_OK;
  BRIM_TRY(brim_json_put(worker, "stages", json_array()));
  json_t *list = json_object_get(worker, "stages");
  for (size_t i = 0; i < result->stage_count; i++) {
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "name", brim_record_text(result->stages[i].name)));
    BRIM_TRY(brim_json_put(item, "ms", brim_json_number(result->stages[i].ms)));
  }
  return BRIM_OK;
}

brim_status brim_record_read_stages(const json_t *root, const char *name, int line,
                                    brim_result *out) {
  json_t *list = json_object_get(json_object_get(root, "worker"), "stages");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return bad(name, line, "worker.stages", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_STAGES) break;
    brim_result_stage *stage = &out->stages[index];
    BRIM_TRY(check_item(item, name, line, "worker.stages"));
    BRIM_TRY(read_text(item, "name", name, line, stage->name, sizeof stage->name));
    BRIM_TRY(read_number(item, "ms", name, line, &stage->ms));
    out->stage_count = index + 1;
  }
  return BRIM_OK;
}

//---------------------------------- visits ----------------------------------

static const struct {
  const char *key;
  size_t offset;
} visit_fields[] = {
#define X(name) {#name, offsetof(brim_result_visit, name)},
    X(samples_per_s) X(log_se) X(samples) X(seconds) X(others_cpu_percent)
#undef X
};
enum { VISIT_FIELDS = sizeof visit_fields / sizeof *visit_fields };

brim_status brim_record_put_visits(json_t *trial, const brim_result *result) {
  if (result->visit_count == 0) return BRIM_OK;
  BRIM_TRY(brim_json_put(trial, "visits", json_array()));
  json_t *list = json_object_get(trial, "visits");
  for (size_t i = 0; i < result->visit_count; i++) {
    const brim_result_visit *visit = &result->visits[i];
    json_t *item = json_object();
    BRIM_TRY(brim_json_push(list, item));
    BRIM_TRY(brim_json_put(item, "at", json_integer(visit->at)));
    for (size_t k = 0; k < VISIT_FIELDS; k++) {
      const char *at = (const char *)visit + visit_fields[k].offset;
      double number = *(const double *)(const void *)at;
      BRIM_TRY(brim_json_put(item, visit_fields[k].key, brim_json_number(number)));
    }
  }
  return BRIM_OK;
}

brim_status brim_record_read_visits(const json_t *root, const char *name, int line,
                                    brim_result *out) {
  json_t *list = json_object_get(json_object_get(root, "trial"), "visits");
  if (!list || json_is_null(list)) return BRIM_OK;
  if (!json_is_array(list)) return bad(name, line, "trial.visits", "a list");
  size_t index;
  json_t *item;
  json_array_foreach(list, index, item) {
    if (index == BRIM_RESULT_MAX_VISITS) break;
    brim_result_visit *visit = &out->visits[index];
    BRIM_TRY(check_item(item, name, line, "trial.visits"));
    const json_t *at = json_object_get(item, "at");
    if (!json_is_integer(at)) return bad(name, line, "trial.visits.at", "a whole number");
    visit->at = json_integer_value(at);
    for (size_t k = 0; k < VISIT_FIELDS; k++) {
      void *member = (char *)visit + visit_fields[k].offset;
      BRIM_TRY(read_number(item, visit_fields[k].key, name, line, (double *)member));
    }
    out->visit_count = index + 1;
  }
  return BRIM_OK;
}
