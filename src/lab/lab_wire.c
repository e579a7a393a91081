// One table of fields per record makes both directions.
#include "lab/lab_wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "base/base_str.h"

typedef enum field_kind {
  FIELD_TEXT,  // const char *
  FIELD_ID,    // likewise: the id of an experiment, or ""
  FIELD_INT,   // int64_t; 0 is left out
  FIELD_STEP,  // int64_t; -1 is left out
  FIELD_REAL,  // double; NaN is left out
  FIELD_BOOL,
  FIELD_STATE,    // the enums, by their names
  FIELD_WANT,     //
  FIELD_OUTCOME,  //
  FIELD_FAILURE,  //
} field_kind;

typedef struct field {
  const char *key;
  field_kind kind;
  size_t offset;
} field;

#define F(type, kind, name) \
  { #name, FIELD_##kind, offsetof(type, name) }
#define END \
  { NULL, FIELD_TEXT, 0 }

#define EXP(kind, name) F(brim_store_exp, kind, name)
static const field exp_fields[] = {EXP(ID, id),
                                   EXP(TEXT, grid),
                                   EXP(TEXT, label),
                                   EXP(TEXT, config),
                                   EXP(TEXT, tags),
                                   EXP(TEXT, worker),
                                   EXP(TEXT, metric_key),
                                   EXP(TEXT, failure),
                                   EXP(TEXT, reason),
                                   EXP(TEXT, last_lines),
                                   EXP(STATE, state),
                                   EXP(WANT, want),
                                   EXP(INT, idx),
                                   EXP(INT, priority),
                                   EXP(INT, gpus),
                                   EXP(INT, need_bytes),
                                   EXP(INT, fence),
                                   EXP(INT, attempt),
                                   EXP(INT, tries),
                                   EXP(INT, tries_left),
                                   EXP(INT, infra_left),
                                   EXP(INT, not_before),
                                   EXP(INT, lease_until),
                                   EXP(STEP, step),
                                   EXP(STEP, steps),
                                   EXP(STEP, epoch),
                                   EXP(STEP, epochs),
                                   EXP(STEP, ckpt_step),
                                   EXP(REAL, metric),
                                   EXP(INT, created),
                                   EXP(INT, started),
                                   EXP(INT, ended),
                                   EXP(INT, ran_ms),
                                   EXP(INT, since),
                                   EXP(TEXT, findings),
                                   EXP(TEXT, owed),
                                   END};

#define ATT(kind, name) F(brim_store_attempt, kind, name)
static const field attempt_fields[] = {ATT(ID, exp),
                                       ATT(TEXT, claim_id),
                                       ATT(TEXT, worker),
                                       ATT(TEXT, host),
                                       ATT(TEXT, devices),
                                       ATT(TEXT, failure),
                                       ATT(TEXT, message),
                                       ATT(INT, n),
                                       ATT(INT, fence),
                                       ATT(INT, pid),
                                       ATT(STEP, from_step),
                                       ATT(INT, exit_code),
                                       ATT(INT, claimed),
                                       ATT(INT, started),
                                       ATT(INT, ended),
                                       ATT(OUTCOME, outcome),
                                       END};

#define EVT(kind, name) F(brim_store_event, kind, name)
static const field event_fields[] = {EVT(INT, seq),   EVT(INT, t),    EVT(ID, exp), EVT(TEXT, kind),
                                     EVT(TEXT, text), EVT(TEXT, who), END};

#define GRD(kind, name) F(brim_store_grid, kind, name)
static const field grid_fields[] = {GRD(TEXT, id), GRD(TEXT, name), GRD(TEXT, text),
                                    GRD(TEXT, version), END};

#define ROW(kind, name) F(brim_store_grid_row, kind, name)
static const field grid_row_fields[] = {
    {"id", FIELD_TEXT, offsetof(brim_store_grid_row, grid.id)},
    {"name", FIELD_TEXT, offsetof(brim_store_grid_row, grid.name)},
    {"text", FIELD_TEXT, offsetof(brim_store_grid_row, grid.text)},
    {"version", FIELD_TEXT, offsetof(brim_store_grid_row, grid.version)},
    ROW(INT, created),
    ROW(INT, points),
    END};

#define WRK(kind, name) F(brim_store_worker, kind, name)
static const field worker_fields[] = {WRK(TEXT, id),
                                      WRK(TEXT, host),
                                      WRK(TEXT, gpus),
                                      WRK(TEXT, version),
                                      WRK(INT, last_seen),
                                      WRK(BOOL, drain),
                                      END};

#define PNT(kind, name) F(brim_store_point, kind, name)
static const field point_fields[] = {PNT(TEXT, id),
                                     PNT(INT, idx),
                                     PNT(TEXT, label),
                                     PNT(TEXT, config),
                                     PNT(TEXT, tags),
                                     PNT(TEXT, metric_key),
                                     PNT(INT, priority),
                                     PNT(INT, gpus),
                                     PNT(INT, need_bytes),
                                     PNT(INT, tries),
                                     PNT(INT, steps),
                                     PNT(INT, epochs),
                                     END};

#define RES(kind, name) F(brim_store_result, kind, name)
static const field result_fields[] = {RES(OUTCOME, outcome),
                                      RES(FAILURE, failure),
                                      RES(INT, exit_code),
                                      RES(TEXT, message),
                                      RES(TEXT, last_lines),
                                      RES(TEXT, owed),
                                      END};

#define PRG(kind, name) F(brim_store_progress, kind, name)
static const field progress_fields[] = {PRG(STEP, step), PRG(STEP, steps), PRG(STEP, epoch),
                                        PRG(STEP, epochs), END};

#define FLT(kind, name) F(brim_store_filter, kind, name)
static const field filter_fields[] = {FLT(TEXT, grid),
                                      FLT(TEXT, tag),
                                      FLT(TEXT, failure),
                                      FLT(INT, limit),
                                      FLT(INT, offset),
                                      FLT(BOOL, texts),
                                      END};

static const field *const tables[BRIM_LAB_RECORD_COUNT] = {
    [BRIM_LAB_EXP] = exp_fields,           [BRIM_LAB_ATTEMPT] = attempt_fields,
    [BRIM_LAB_EVENT] = event_fields,       [BRIM_LAB_GRID] = grid_fields,
    [BRIM_LAB_GRID_ROW] = grid_row_fields, [BRIM_LAB_WORKER] = worker_fields,
    [BRIM_LAB_POINT] = point_fields,       [BRIM_LAB_RESULT] = result_fields,
    [BRIM_LAB_PROGRESS] = progress_fields, [BRIM_LAB_FILTER] = filter_fields,
};

static const char *const want_names[BRIM_WANT_COUNT] = {"run", "pause", "cancel"};

static const char *const order_names[BRIM_STORE_ORDER_COUNT] = {
    [BRIM_STORE_BY_INDEX] = "index",
    [BRIM_STORE_BY_QUEUE] = "queue",
    [BRIM_STORE_BY_METRIC_LOWEST] = "metric_lowest",
    [BRIM_STORE_BY_METRIC_HIGHEST] = "metric_highest",
    [BRIM_STORE_BY_ENDED] = "ended",
};

const char *brim_lab_want_name(brim_exp_want want) {
  return (unsigned)want < BRIM_WANT_COUNT ? want_names[want] : "";
}

// The length of "1.4" in "1.4.2".
static size_t minor_length(const char *version) {
  size_t major = strcspn(version, ".");
  return version[major] ? major + 1 + strcspn(version + major + 1, ".-+") : major;
}

bool brim_lab_wire_fits(const char *version, const char *other) {
  size_t n = minor_length(version);
  return n == minor_length(other) && strncmp(version, other, n) == 0;
}

json_t *brim_lab_wire_text(const char *text) {
  if (!text) text = "";
  size_t n = strlen(text);
  if (brim_utf8_valid(text, n)) return json_stringn(text, n);
  char *clean = brim_strdup(text);
  if (!clean) return NULL;
  for (size_t i = 0; i < n;) {
    size_t length = 1;
    while (length < 4 && i + length < n && ((unsigned char)clean[i + length] & 0xC0) == 0x80) {
      length++;
    }
    while (length > 1 && !brim_utf8_valid(clean + i, length)) length--;
    if (length == 1 && !brim_utf8_valid(clean + i, 1)) clean[i] = '?';
    i += length;
  }
  json_t *value = json_stringn(clean, n);
  brim_free(clean);
  return value;
}

json_t *brim_lab_wire_real(double value) {
  if (isfinite(value)) return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

bool brim_lab_wire_real_of(const json_t *value, double *out) {
  const char *text = json_string_value(value);
  if (text) {
    bool nan = strcmp(text, "nan") == 0, inf = strcmp(text, "inf") == 0;
    if (!nan && !inf && strcmp(text, "-inf") != 0) return false;
    *out = nan ? (double)NAN : inf ? (double)INFINITY : -(double)INFINITY;
    return true;
  }
  if (json_is_null(value)) *out = (double)NAN;
  if (json_is_number(value)) *out = json_number_value(value);
  return json_is_null(value) || json_is_number(value);
}

static brim_status wrong(const char *key) {
  return brim_fail(BRIM_EINVAL, "the request's field '%s' is missing or of another type", key);
}

brim_status brim_lab_wire_int(const json_t *o, const char *key, bool needed, int64_t *out) {
  const json_t *value = json_object_get(o, key);
  if (!value && !needed) return BRIM_OK;
  if (!json_is_integer(value)) return wrong(key);
  *out = json_integer_value(value);
  return BRIM_OK;
}

brim_status brim_lab_wire_lease(const json_t *reply, int64_t *out) {
  static const int64_t most_ms = 366LL * 24 * 3600 * 1000;
  BRIM_TRY(brim_lab_wire_int(reply, "lease_ms", true, out));
  return *out >= 0 && *out <= most_ms ? BRIM_OK : wrong("lease_ms");
}

brim_status brim_lab_wire_string(const json_t *o, const char *key, bool needed, const char **out) {
  const json_t *value = json_object_get(o, key);
  if (!value && !needed) return BRIM_OK;
  if (!json_is_string(value)) return wrong(key);
  if (strlen(json_string_value(value)) != json_string_length(value)) return wrong(key);
  *out = json_string_value(value);
  return BRIM_OK;
}

brim_status brim_lab_wire_bool(const json_t *o, const char *key, bool *out) {
  const json_t *value = json_object_get(o, key);
  if (!value) return BRIM_OK;
  if (!json_is_boolean(value)) return wrong(key);
  *out = json_is_true(value);
  return BRIM_OK;
}

json_t *brim_lab_wire_ref(const brim_store_ref *ref) {
  json_t *o = json_object();
  brim_status status = brim_json_put(o, "exp", brim_lab_wire_text(ref->exp));
  if (!status) status = brim_json_put(o, "attempt", json_integer(ref->attempt));
  if (!status) status = brim_json_put(o, "fence", json_integer(ref->fence));
  if (!status) return o;
  json_decref(o);
  return NULL;
}

brim_status brim_lab_wire_ref_of(const json_t *request, brim_store_ref *out) {
  const json_t *ref = json_object_get(request, "ref");
  const char *exp = "";
  if (!json_is_object(ref)) return wrong("ref");
  BRIM_TRY(brim_lab_wire_string(ref, "exp", true, &exp));
  BRIM_TRY(brim_store_check_id(exp));
  snprintf(out->exp, sizeof out->exp, "%s", exp);
  BRIM_TRY(brim_lab_wire_int(ref, "attempt", true, &out->attempt));
  return brim_lab_wire_int(ref, "fence", true, &out->fence);
}

// The names of the enum that a field has, and their number.
static const char *enum_name(field_kind kind, int value) {
  switch (kind) {
    case FIELD_STATE:
      return (unsigned)value < BRIM_EXP_STATE_COUNT ? brim_exp_state_name((brim_exp_state)value)
                                                    : NULL;
    case FIELD_WANT:
      return (unsigned)value < BRIM_WANT_COUNT ? want_names[value] : NULL;
    case FIELD_OUTCOME:
      return (unsigned)value < BRIM_ATTEMPT_COUNT
                 ? brim_attempt_outcome_name((brim_attempt_outcome)value)
                 : NULL;
    case FIELD_FAILURE:
      return (unsigned)value < BRIM_FAILURE_COUNT ? brim_failure_name((brim_failure)value) : NULL;
    default:
      return NULL;
  }
}

static int enum_get(field_kind kind, const void *at) {
  switch (kind) {
    case FIELD_STATE:
      return (int)*(const brim_exp_state *)at;
    case FIELD_WANT:
      return (int)*(const brim_exp_want *)at;
    case FIELD_OUTCOME:
      return (int)*(const brim_attempt_outcome *)at;
    default:
      return (int)*(const brim_failure *)at;
  }
}

static void enum_set(field_kind kind, void *at, int value) {
  switch (kind) {
    case FIELD_STATE:
      *(brim_exp_state *)at = (brim_exp_state)value;
      break;
    case FIELD_WANT:
      *(brim_exp_want *)at = (brim_exp_want)value;
      break;
    case FIELD_OUTCOME:
      *(brim_attempt_outcome *)at = (brim_attempt_outcome)value;
      break;
    default:
      *(brim_failure *)at = (brim_failure)value;
  }
}

static bool enum_of(field_kind kind, const char *name, int *out) {
  for (int i = 0; enum_name(kind, i); i++) {
    if (strcmp(enum_name(kind, i), name) != 0) continue;
    *out = i;
    return true;
  }
  return false;
}

// Whether the field differs from what its absence means; *value is its JSON then.
static bool field_json(const field *f, const void *at, json_t **value) {
  switch (f->kind) {
    case FIELD_TEXT:
    case FIELD_ID: {
      const char *text = *(const char *const *)at;
      if (!text || !*text) return false;
      *value = brim_lab_wire_text(text);
      return true;
    }
    case FIELD_INT:
    case FIELD_STEP: {
      int64_t number = *(const int64_t *)at;
      if (number == (f->kind == FIELD_STEP ? -1 : 0)) return false;
      *value = json_integer(number);
      return true;
    }
    case FIELD_REAL: {
      double number = *(const double *)at;
      if (isnan(number)) return false;
      *value = brim_lab_wire_real(number);
      return true;
    }
    case FIELD_BOOL:
      if (!*(const bool *)at) return false;
      *value = json_true();
      return true;
    default: {
      const char *name = enum_name(f->kind, enum_get(f->kind, at));
      *value = json_string(name ? name : "");
      return true;
    }
  }
}

brim_status brim_lab_wire_put(json_t *o, brim_lab_record kind, const void *record) {
  for (const field *f = tables[kind]; f->key; f++) {
    json_t *value = NULL;
    if (!field_json(f, (const char *)record + f->offset, &value)) continue;
    BRIM_TRY(brim_json_put(o, f->key, value));
  }
  return BRIM_OK;
}

static brim_status get_enum(const json_t *o, const field *f, void *at) {
  const char *name = NULL;
  int value = 0;
  BRIM_TRY(brim_lab_wire_string(o, f->key, false, &name));
  if (!name) return BRIM_OK;
  if (!enum_of(f->kind, name, &value)) return wrong(f->key);
  enum_set(f->kind, at, value);
  return BRIM_OK;
}

static brim_status get_field(const json_t *o, const field *f, void *at) {
  switch (f->kind) {
    case FIELD_TEXT:
      return brim_lab_wire_string(o, f->key, false, at);
    case FIELD_ID:
      BRIM_TRY(brim_lab_wire_string(o, f->key, false, at));
      return **(const char *const *)at ? brim_store_check_id(*(const char *const *)at) : BRIM_OK;
    case FIELD_INT:
    case FIELD_STEP:
      return brim_lab_wire_int(o, f->key, false, at);
    case FIELD_REAL: {
      const json_t *value = json_object_get(o, f->key);
      return !value || brim_lab_wire_real_of(value, at) ? BRIM_OK : wrong(f->key);
    }
    case FIELD_BOOL:
      return brim_lab_wire_bool(o, f->key, at);
    default:
      return get_enum(o, f, at);
  }
}

// What a missing field means.
static void set_default(const field *f, brim_lab_record kind, void *at) {
  bool input = kind == BRIM_LAB_POINT || kind == BRIM_LAB_FILTER;  // NULL has a meaning there
  if (f->kind == FIELD_ID || (f->kind == FIELD_TEXT && !input)) *(const char **)at = "";
  if (f->kind == FIELD_STEP) *(int64_t *)at = -1;
  if (f->kind == FIELD_REAL) *(double *)at = (double)NAN;
}

brim_status brim_lab_wire_get(const json_t *o, brim_lab_record kind, void *record) {
  if (!json_is_object(o))
    return brim_fail(BRIM_EINVAL, "the request has a value that is no object");
  for (const field *f = tables[kind]; f->key; f++) {
    set_default(f, kind, (char *)record + f->offset);
    BRIM_TRY(get_field(o, f, (char *)record + f->offset));
  }
  return BRIM_OK;
}

brim_status brim_lab_wire_put_filter(json_t *o, const brim_store_filter *filter) {
  static const brim_store_filter all = {0};
  if (!filter) filter = &all;
  if ((unsigned)filter->order >= BRIM_STORE_ORDER_COUNT) {
    return brim_fail(BRIM_EINVAL, "a list needs a known order and no negative limits");
  }
  BRIM_TRY(brim_lab_wire_put(o, BRIM_LAB_FILTER, filter));
  if (filter->order) BRIM_TRY(brim_json_put(o, "order", json_string(order_names[filter->order])));
  if (!filter->states) return BRIM_OK;
  json_t *states = json_array();
  BRIM_TRY(brim_json_put(o, "states", states));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    if (!(filter->states >> i & 1)) continue;
    BRIM_TRY(brim_json_push(states, json_string(brim_exp_state_name((brim_exp_state)i))));
  }
  return BRIM_OK;
}

static brim_status get_states(const json_t *list, unsigned *out) {
  if (!json_is_array(list)) return wrong("states");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    int state = 0;
    if (!name || !enum_of(FIELD_STATE, name, &state)) return wrong("states");
    *out |= 1U << state;
  }
  return BRIM_OK;
}

brim_status brim_lab_wire_get_filter(const json_t *o, brim_store_filter *out) {
  *out = (brim_store_filter){0};
  BRIM_TRY(brim_lab_wire_get(o, BRIM_LAB_FILTER, out));
  const json_t *states = json_object_get(o, "states");
  if (states) BRIM_TRY(get_states(states, &out->states));
  const char *order = order_names[BRIM_STORE_BY_INDEX];
  BRIM_TRY(brim_lab_wire_string(o, "order", false, &order));
  for (int i = 0; i < BRIM_STORE_ORDER_COUNT; i++) {
    if (strcmp(order_names[i], order) != 0) continue;
    out->order = (brim_store_order)i;
    return BRIM_OK;
  }
  return wrong("order");
}
