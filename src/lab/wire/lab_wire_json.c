// Values as JSON and back, for both ends of "brim.lab/1". Tables of fields make both directions: one
// per record, one for requests and one for replies.

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "lab/wire/lab_wire_int.h"

//------------------------------------------- values --------------------------------------------

// Length of "1.4" in "1.4.2".
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

static brim_status fail_field(const char *key) {
  return brim_fail(BRIM_EINVAL, "the request's field '%s' is missing or of another type", key);
}

brim_status brim_lab_wire_int(const json_t *o, const char *key, bool needed, int64_t *out) {
  const json_t *value = json_object_get(o, key);
  if (!value && !needed) return BRIM_OK;
  if (!json_is_integer(value)) return fail_field(key);
  *out = json_integer_value(value);
  return BRIM_OK;
}

brim_status brim_lab_wire_string(const json_t *o, const char *key, bool needed, const char **out) {
  const json_t *value = json_object_get(o, key);
  if (!value && !needed) return BRIM_OK;
  if (!json_is_string(value)) return fail_field(key);
  if (strlen(json_string_value(value)) != json_string_length(value)) return fail_field(key);
  *out = json_string_value(value);
  return BRIM_OK;
}

static brim_status get_bool(const json_t *o, const char *key, bool needed, bool *out) {
  const json_t *value = json_object_get(o, key);
  if (!value && !needed) return BRIM_OK;
  if (!json_is_boolean(value)) return fail_field(key);
  *out = json_is_true(value);
  return BRIM_OK;
}

brim_status brim_lab_wire_bool(const json_t *o, const char *key, bool *out) {
  return get_bool(o, key, false, out);
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
  if (!json_is_object(ref)) return fail_field("ref");
  BRIM_TRY(brim_lab_wire_string(ref, "exp", true, &exp));
  BRIM_TRY(brim_store_check_id(exp));
  snprintf(out->exp, sizeof out->exp, "%s", exp);
  BRIM_TRY(brim_lab_wire_int(ref, "attempt", true, &out->attempt));
  return brim_lab_wire_int(ref, "fence", true, &out->fence);
}

//------------------------------------------- tables --------------------------------------------

typedef enum field_kind {
  FIELD_TEXT,     // const char *; "" is left out, and a missing one is ""
  FIELD_NULLED,   // const char *; "" is left out, and a missing one is NULL
  FIELD_GIVEN,    // const char *; NULL is left out, and a missing one is NULL
  FIELD_ID,       // const char *: the id of an experiment, or ""
  FIELD_ID_HERE,  // char[BRIM_EXP_ID]: the id of an experiment
  FIELD_INT,      // int64_t; 0 is left out
  FIELD_STEP,     // int64_t; -1 is left out
  FIELD_LEASE,    // int64_t: 0 to a year, so that sums of times and leases cannot overflow
  FIELD_REAL,     // double; NaN is left out
  FIELD_BOOL,     // bool; false is left out
  FIELD_TRUE,     // bool; true is left out
  FIELD_STATE,    // FIELD_STATE to FIELD_ORDER: enums, by the names of their values
  FIELD_WANT,     //
  FIELD_OUTCOME,  //
  FIELD_FAILURE,  //
  FIELD_ORDER,    //
  FIELD_ASKED,    // brim_exp_want; an unknown one becomes BRIM_WANT_COUNT, which the store refuses
  FIELD_STATES,   // unsigned: a list of states by their names
  FIELD_COUNTS,   // int64_t[BRIM_EXP_STATE_COUNT]: an object by state
  FIELD_JSON,     // const char *: the text of an object; NULL is left out
  FIELD_REF,      // brim_store_ref
  FIELD_FIELDS,   // a record whose fields stand beside the other fields
  FIELD_RECORD,   // a record in an object of its own
  FIELD_POINTS,   // FIELD_POINTS to FIELD_TEXTS: lists of a request
  FIELD_METRICS,  //
  FIELD_IDS,      //
  FIELD_TEXTS,    //
  FIELD_FOUND,    // brim_store_exp *; NULL is left out
  FIELD_CLAIMED,  // brim_store_claimed: exp, attempt, fence, lease_ms; nothing without an experiment
  FIELD_MORE,     // json_t *: every other field of the object
} field_kind;

typedef struct field {
  const char *key;
  field_kind kind;
  size_t offset;
  bool needed;             // fields of records: is always written and must be there
  const char *name;        // its name in the row of an operation, if not the key
  brim_lab_record record;  // for FIELD_FIELDS and FIELD_RECORD
} field;

#define FIELD(type, kind, member) \
  { #member, FIELD_##kind, offsetof(type, member), false, NULL, 0 }
#define FIELD_AS(type, kind, key, member) \
  { key, FIELD_##kind, offsetof(type, member), false, NULL, 0 }
#define NEEDED(type, kind, key, member) \
  { key, FIELD_##kind, offsetof(type, member), true, NULL, 0 }
#define END \
  { NULL, FIELD_TEXT, 0, false, NULL, 0 }

// clang-format off
#define F(kind, member) FIELD(brim_store_exp, kind, member)
static const field exp_fields[] = {
    F(ID, id),          F(TEXT, grid),      F(TEXT, label),      F(TEXT, config),
    F(TEXT, tags),      F(TEXT, worker),    F(TEXT, metric_key), F(TEXT, failure),
    F(TEXT, reason),    F(TEXT, last_lines), F(STATE, state),    F(WANT, want),
    F(INT, idx),        F(INT, priority),   F(INT, gpus),        F(INT, need_bytes),
    F(INT, fence),      F(INT, attempt),    F(INT, tries),       F(INT, tries_left),
    F(INT, infra_left), F(INT, not_before), F(INT, lease_until), F(STEP, step),
    F(STEP, steps),     F(STEP, epoch),     F(STEP, epochs),     F(STEP, ckpt_step),
    F(REAL, metric),    F(INT, created),    F(INT, started),     F(INT, ended),
    F(INT, ran_ms),     F(INT, since),      F(TEXT, findings),   F(TEXT, owed),
    END};
#undef F
#define F(kind, member) FIELD(brim_store_attempt, kind, member)
static const field attempt_fields[] = {
    F(ID, exp),       F(TEXT, claim_id), F(TEXT, worker),   F(TEXT, host),
    F(TEXT, devices), F(TEXT, failure),  F(TEXT, message),  F(INT, n),
    F(INT, fence),    F(INT, pid),       F(STEP, from_step), F(INT, exit_code),
    F(INT, claimed),  F(INT, started),   F(INT, ended),     F(OUTCOME, outcome),
    END};
#undef F
#define F(kind, member) FIELD(brim_store_event, kind, member)
static const field event_fields[] = {
    F(INT, seq), F(INT, t), F(ID, exp), F(TEXT, kind), F(TEXT, text), F(TEXT, who), END};
#undef F
#define F(kind, member) FIELD(brim_store_grid, kind, member)
static const field grid_fields[] = {
    F(TEXT, id), F(TEXT, name), F(TEXT, text), F(TEXT, version), END};
#undef F
static const field grid_row_fields[] = {
    FIELD_AS(brim_store_grid_row, TEXT, "id", grid.id),
    FIELD_AS(brim_store_grid_row, TEXT, "name", grid.name),
    FIELD_AS(brim_store_grid_row, TEXT, "text", grid.text),
    FIELD_AS(brim_store_grid_row, TEXT, "version", grid.version),
    FIELD(brim_store_grid_row, INT, created),
    FIELD(brim_store_grid_row, INT, points),
    END};
#define F(kind, member) FIELD(brim_store_worker, kind, member)
static const field worker_fields[] = {
    F(TEXT, id), F(TEXT, host), F(TEXT, gpus), F(TEXT, version), F(INT, last_seen), F(BOOL, drain), END};
static const field seen_fields[] = {
    NEEDED(brim_store_worker, GIVEN, "worker", id),
    F(GIVEN, host), F(GIVEN, gpus), F(GIVEN, version), F(JSON, status), F(BOOL, left), END};
#undef F
#define F(kind, member) FIELD(brim_store_point, kind, member)
static const field point_fields[] = {
    F(NULLED, id),     F(INT, idx),           F(NULLED, label), F(NULLED, config),
    F(NULLED, tags),   F(NULLED, metric_key), F(INT, priority), F(INT, gpus),
    F(INT, need_bytes), F(INT, tries),        F(INT, steps),    F(INT, epochs),
    END};
#undef F
#define F(kind, member) FIELD(brim_store_result, kind, member)
static const field result_fields[] = {
    F(OUTCOME, outcome), F(FAILURE, failure),  F(INT, exit_code),
    F(TEXT, message),    F(TEXT, last_lines), F(TEXT, owed), END};
#undef F
#define F(kind, member) FIELD(brim_store_progress, kind, member)
static const field progress_fields[] = {
    F(STEP, step), F(STEP, steps), F(STEP, epoch), F(STEP, epochs), END};
#undef F
#define F(kind, member) FIELD(brim_store_request, kind, member)
static const field claim_fields[] = {
    NEEDED(brim_store_request, GIVEN, "worker", worker),
    NEEDED(brim_store_request, GIVEN, "claim_id", claim_id),
    F(GIVEN, host), F(GIVEN, devices), F(GIVEN, exp), F(GIVEN, grid),
    F(INT, free_gpus), F(STEP, free_bytes), END};
#undef F
#define F(kind, member) FIELD(brim_store_filter, kind, member)
static const field filter_fields[] = {
    F(NULLED, grid), F(NULLED, tag), F(NULLED, failure), F(INT, limit), F(INT, offset),
    F(BOOL, texts), F(ORDER, order), F(STATES, states), END};
#undef F
#define F(kind, member) NEEDED(brim_store_file, kind, #member, member)
static const field file_fields[] = {
    F(TEXT, name), F(TEXT, sha256), F(INT, size), F(INT, attempt), F(STEP, step), F(INT, t), END};
#undef F

// Fields of requests.
#define F(kind, member) FIELD(brim_lab_request, kind, member)
#define AS(kind, key, member) FIELD_AS(brim_lab_request, kind, key, member)
#define NAMED(name, kind, key, member, record) \
  { key, FIELD_##kind, offsetof(brim_lab_request, member), false, name, record }
static const field request_fields[] = {
    F(REF, ref), F(TEXT, exp), F(GIVEN, grid), F(GIVEN, key), F(TEXT, stream), F(TEXT, findings),
    F(TEXT, worker), F(GIVEN, device), F(INT, pid), F(INT, seq), F(INT, size), F(INT, step),
    F(INT, attempt), F(INT, priority), F(INT, limit), F(STEP, from_step), F(ASKED, want),
    F(BOOL, texts), F(TRUE, drain), F(BOOL, waits), AS(INT, "first", range.first),
    AS(INT, "last", range.last), AS(INT, "points", range.points), AS(METRICS, "rows", metrics),
    F(IDS, exps),
    NAMED("exps...", TEXTS, "exps", any_exps, 0),
    NAMED("points{}", POINTS, "points", points, 0),
    NAMED("grid{}", RECORD, "grid", submit, BRIM_LAB_GRID),
    NAMED("+progress", FIELDS, "", progress, BRIM_LAB_PROGRESS),
    NAMED("+result", FIELDS, "", result, BRIM_LAB_RESULT),
    NAMED("+claim", FIELDS, "", claim, BRIM_LAB_CLAIM),
    NAMED("+seen", FIELDS, "", seen, BRIM_LAB_SEEN),
    NAMED("+filter", FIELDS, "", filter, BRIM_LAB_FILTER),
    END};
#undef F
#undef AS
#undef NAMED

// Fields of replies.
#define F(kind, member) FIELD(brim_lab_reply, kind, member)
#define AS(kind, key, member) FIELD_AS(brim_lab_reply, kind, key, member)
#define NAMED(name, kind, key, member) \
  { key, FIELD_##kind, offsetof(brim_lab_reply, member), false, name, 0 }
static const field reply_fields[] = {
    F(ID_HERE, exp), F(STATE, state), F(INT, count), F(INT, size), F(INT, now), F(INT, pid),
    F(TEXT, protocol), F(TEXT, version), F(TEXT, kind), F(TEXT, place), F(TEXT, name),
    AS(LEASE, "lease_ms", beat.lease_ms), AS(WANT, "want", beat.want),
    AS(INT, "total", counts.total), AS(COUNTS, "states", counts.states),
    AS(INT, "added", submitted.added), AS(INT, "existing", submitted.existing),
    F(CLAIMED, claimed),
    NAMED("exp{}", FOUND, "exp", found),
    NAMED("*", MORE, "", more),
    END};
#undef F
#undef AS
#undef NAMED
// clang-format on

static const field *const tables[BRIM_LAB_RECORD_COUNT] = {
    [BRIM_LAB_EXP] = exp_fields,           [BRIM_LAB_ATTEMPT] = attempt_fields,
    [BRIM_LAB_EVENT] = event_fields,       [BRIM_LAB_GRID] = grid_fields,
    [BRIM_LAB_GRID_ROW] = grid_row_fields, [BRIM_LAB_WORKER] = worker_fields,
    [BRIM_LAB_SEEN] = seen_fields,         [BRIM_LAB_POINT] = point_fields,
    [BRIM_LAB_RESULT] = result_fields,     [BRIM_LAB_PROGRESS] = progress_fields,
    [BRIM_LAB_CLAIM] = claim_fields,       [BRIM_LAB_FILTER] = filter_fields,
    [BRIM_LAB_FILE] = file_fields,
};

const char *const brim_lab_rows_keys[BRIM_LAB_ROWS_COUNT] = {
#define X(id, key) key,
    BRIM_LAB_ROWS_MAP(X)
#undef X
};

//-------------------------------------------- enums --------------------------------------------

static const char *const want_names[BRIM_WANT_COUNT] = {"run", "pause", "cancel"};

static const char *const order_names[BRIM_STORE_ORDER_COUNT] = {
    [BRIM_STORE_BY_INDEX] = "index",
    [BRIM_STORE_BY_QUEUE] = "queue",
    [BRIM_STORE_BY_METRIC_LOWEST] = "metric_lowest",
    [BRIM_STORE_BY_METRIC_HIGHEST] = "metric_highest",
    [BRIM_STORE_BY_ENDED] = "ended",
};

// Returns the name of an enum value; NULL: the enum has no such value.
static const char *enum_name(field_kind kind, int value) {
  switch (kind) {
    case FIELD_STATE:
      return (unsigned)value < BRIM_EXP_STATE_COUNT ? brim_exp_state_name((brim_exp_state)value)
                                                    : NULL;
    case FIELD_WANT:
    case FIELD_ASKED:
      return (unsigned)value < BRIM_WANT_COUNT ? want_names[value] : NULL;
    case FIELD_OUTCOME:
      return (unsigned)value < BRIM_ATTEMPT_COUNT
                 ? brim_attempt_outcome_name((brim_attempt_outcome)value)
                 : NULL;
    case FIELD_FAILURE:
      return (unsigned)value < BRIM_FAILURE_COUNT ? brim_failure_name((brim_failure)value) : NULL;
    case FIELD_ORDER:
      return (unsigned)value < BRIM_STORE_ORDER_COUNT ? order_names[value] : NULL;
    default:
      return NULL;
  }
}

// Enum fields are read and written as int.
static_assert(sizeof(brim_exp_state) == sizeof(int) && sizeof(brim_exp_want) == sizeof(int) &&
                  sizeof(brim_attempt_outcome) == sizeof(int) &&
                  sizeof(brim_failure) == sizeof(int) && sizeof(brim_store_order) == sizeof(int),
              "enums have the size of an int");

static int enum_get(const void *at) {
  int value;
  memcpy(&value, at, sizeof value);
  return value;
}

// For an unknown name of FIELD_ASKED, *out becomes the number after the last value.
static bool enum_of(field_kind kind, const char *name, int *out) {
  int i = 0;
  while (enum_name(kind, i) && strcmp(enum_name(kind, i), name) != 0) i++;
  *out = i;
  return enum_name(kind, i) || kind == FIELD_ASKED;
}

//------------------------------------------- writing -------------------------------------------

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a request"); }

static json_t *record_json(brim_lab_record kind, const void *record) {
  json_t *o = json_object();
  if (o && !brim_lab_wire_put(o, kind, record)) return o;
  json_decref(o);
  return NULL;
}

static json_t *list_json(field_kind kind, const brim_lab_request *in) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : BRIM_ENOMEM;
  if (kind == FIELD_POINTS) {
    for (size_t i = 0; !status && i < in->points.count; i++) {
      status = brim_json_push(list, record_json(BRIM_LAB_POINT, &in->points.rows[i]));
    }
  } else if (kind == FIELD_METRICS) {
    for (size_t i = 0; !status && i < in->metrics.count; i++) {
      const brim_store_metric *m = &in->metrics.rows[i];
      json_t *row = json_array();
      status = brim_json_push(list, row);
      if (!status) status = brim_json_push(row, brim_lab_wire_text(m->key));
      if (!status) status = brim_json_push(row, json_integer(m->step));
      if (!status) status = brim_json_push(row, brim_lab_wire_real(m->value));
    }
  } else if (kind == FIELD_IDS) {
    for (size_t i = 0; !status && i < in->exps.count; i++) {
      status = brim_json_push(list, brim_lab_wire_text(in->exps.ids[i]));
    }
  } else {
    for (size_t i = 0; !status && i < in->any_exps.count; i++) {
      status = brim_json_push(list, brim_lab_wire_text(in->any_exps.texts[i]));
    }
  }
  if (!status) return list;
  json_decref(list);
  return NULL;
}

static json_t *states_json(unsigned states) {
  json_t *list = json_array();
  brim_status status = list ? BRIM_OK : BRIM_ENOMEM;
  for (int i = 0; !status && i < BRIM_EXP_STATE_COUNT; i++) {
    if (!(states >> i & 1)) continue;
    status = brim_json_push(list, json_string(brim_exp_state_name((brim_exp_state)i)));
  }
  if (!status) return list;
  json_decref(list);
  return NULL;
}

static json_t *counts_json(const int64_t *states) {
  json_t *o = json_object();
  brim_status status = o ? BRIM_OK : BRIM_ENOMEM;
  for (int i = 0; !status && i < BRIM_EXP_STATE_COUNT; i++) {
    const char *name = brim_exp_state_name((brim_exp_state)i);
    status = brim_json_put(o, name, json_integer(states[i]));
  }
  if (!status) return o;
  json_decref(o);
  return NULL;
}

static brim_status put_claimed(json_t *o, const brim_store_claimed *c) {
  if (!c->exp) return BRIM_OK;
  BRIM_TRY(brim_json_put(o, "exp", record_json(BRIM_LAB_EXP, c->exp)));
  BRIM_TRY(brim_json_put(o, "attempt", json_integer(c->ref.attempt)));
  BRIM_TRY(brim_json_put(o, "fence", json_integer(c->ref.fence)));
  return brim_json_put(o, "lease_ms", json_integer(c->lease_ms));
}

// Writes a field of `values`, the struct that the table describes. A field that is not `needed` is left
// out if its absence means the same.
static brim_status put_field(json_t *o, const field *f, const void *values, bool needed) {
  const void *at = (const char *)values + f->offset;
  switch (f->kind) {
    case FIELD_TEXT:
    case FIELD_NULLED:
    case FIELD_ID: {
      const char *text = *(const char *const *)at;
      if (!needed && (!text || !*text)) return BRIM_OK;
      return brim_json_put(o, f->key, brim_lab_wire_text(text));
    }
    case FIELD_GIVEN:
    case FIELD_JSON: {
      const char *text = *(const char *const *)at;
      return text ? brim_json_put(o, f->key, brim_lab_wire_text(text)) : BRIM_OK;
    }
    case FIELD_ID_HERE:
      return brim_json_put(o, f->key, json_string(at));
    case FIELD_INT:
    case FIELD_STEP:
    case FIELD_LEASE: {
      int64_t number = *(const int64_t *)at;
      if (!needed && number == (f->kind == FIELD_STEP ? -1 : 0)) return BRIM_OK;
      return brim_json_put(o, f->key, json_integer(number));
    }
    case FIELD_REAL: {
      double number = *(const double *)at;
      return isnan(number) ? BRIM_OK : brim_json_put(o, f->key, brim_lab_wire_real(number));
    }
    case FIELD_BOOL:
    case FIELD_TRUE: {
      bool value = *(const bool *)at;
      if (!needed && value == (f->kind == FIELD_TRUE)) return BRIM_OK;
      return brim_json_put(o, f->key, json_boolean(value));
    }
    case FIELD_ORDER: {
      const char *name = enum_name(f->kind, enum_get(at));
      if (!name) {
        return brim_fail(BRIM_EINVAL, "a list needs a known order and no negative limits");
      }
      return enum_get(at) ? brim_json_put(o, f->key, json_string(name)) : BRIM_OK;
    }
    case FIELD_STATES: {
      unsigned states = *(const unsigned *)at;
      return states ? brim_json_put(o, f->key, states_json(states)) : BRIM_OK;
    }
    case FIELD_COUNTS:
      return brim_json_put(o, f->key, counts_json(at));
    case FIELD_REF:
      return brim_json_put(o, f->key, brim_lab_wire_ref(at));
    case FIELD_FIELDS:
      return brim_lab_wire_put(o, f->record, at);
    case FIELD_RECORD:
      return brim_json_put(o, f->key, record_json(f->record, at));
    case FIELD_POINTS:
    case FIELD_METRICS:
    case FIELD_IDS:
    case FIELD_TEXTS:
      return brim_json_put(o, f->key, list_json(f->kind, values));
    case FIELD_FOUND: {
      const brim_store_exp *exp = *(brim_store_exp *const *)at;
      return exp ? brim_json_put(o, f->key, record_json(BRIM_LAB_EXP, exp)) : BRIM_OK;
    }
    case FIELD_CLAIMED:
      return put_claimed(o, at);
    case FIELD_MORE: {
      json_t *more = *(json_t *const *)at;
      return !more || json_object_update(o, more) == 0 ? BRIM_OK : no_memory();
    }
    default: {
      const char *name = enum_name(f->kind, enum_get(at));
      return brim_json_put(o, f->key, json_string(name ? name : ""));
    }
  }
}

brim_status brim_lab_wire_put(json_t *o, brim_lab_record kind, const void *record) {
  for (const field *f = tables[kind]; f->key; f++) BRIM_TRY(put_field(o, f, record, f->needed));
  return BRIM_OK;
}

//------------------------------------------- reading -------------------------------------------

static brim_status get_enum(const json_t *o, const field *f, bool needed, void *at) {
  const char *name = NULL;
  int value = 0;
  BRIM_TRY(brim_lab_wire_string(o, f->key, needed, &name));
  if (!name) return BRIM_OK;
  if (!enum_of(f->kind, name, &value)) return fail_field(f->key);
  memcpy(at, &value, sizeof value);
  return BRIM_OK;
}

static brim_status get_lease(const json_t *o, const char *key, int64_t *out) {
  static const int64_t most_ms = 366LL * 24 * 3600 * 1000;
  BRIM_TRY(brim_lab_wire_int(o, key, true, out));
  return *out >= 0 && *out <= most_ms ? BRIM_OK : fail_field(key);
}

static brim_status get_states(const json_t *o, const char *key, unsigned *out) {
  const json_t *list = json_object_get(o, key);
  if (!list) return BRIM_OK;
  if (!json_is_array(list)) return fail_field(key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    int state = 0;
    if (!name || !enum_of(FIELD_STATE, name, &state)) return fail_field(key);
    *out |= 1U << state;
  }
  return BRIM_OK;
}

static brim_status get_counts(const json_t *states, int64_t *out) {
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    BRIM_TRY(brim_lab_wire_int(states, brim_exp_state_name((brim_exp_state)i), false, &out[i]));
  }
  return BRIM_OK;
}

// Reads the text of an object, or a string as it is.
static brim_status get_json(const json_t *o, const char *key, brim_lab_request *in,
                            const char **out) {
  const json_t *value = json_object_get(o, key);
  char *text = NULL;
  if (!json_is_object(value)) return brim_lab_wire_string(o, key, false, out);
  BRIM_TRY(brim_json_dump(value, 0, &text));
  *out = in->owned[1] = text;
  return BRIM_OK;
}

// Writing a batch occupies the store, so its rows are limited. Executors send about 1000 rows at once.
enum { MOST_ROWS = 20000, MOST_CURVES = 500 };

static brim_status get_metrics(const json_t *list, brim_lab_request *in) {
  size_t count = json_array_size(list);
  if (!json_is_array(list)) return brim_fail(BRIM_EINVAL, "a batch of metrics needs its rows");
  if (count > MOST_ROWS) {
    return brim_fail(BRIM_ELIMIT, "a batch of metrics has at most %d rows", MOST_ROWS);
  }
  brim_store_metric *rows = in->owned[0] = brim_calloc(count + 1, sizeof *rows);
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  in->metrics.rows = rows;
  in->metrics.count = count;
  for (size_t i = 0; i < count; i++) {
    const json_t *row = json_array_get(list, i);
    const json_t *key = json_array_get(row, 0), *step = json_array_get(row, 1);
    if (!json_is_string(key) || !json_is_integer(step) ||
        strlen(json_string_value(key)) != json_string_length(key) ||
        !brim_lab_wire_real_of(json_array_get(row, 2), &rows[i].value)) {
      return brim_fail(BRIM_EINVAL, "a row of metrics is [key, step, value]");
    }
    rows[i].key = json_string_value(key);
    rows[i].step = json_integer_value(step);
  }
  return BRIM_OK;
}

static brim_status get_points(const json_t *list, brim_lab_request *in) {
  size_t count = json_array_size(list);
  if (!json_is_array(list)) return brim_fail(BRIM_EINVAL, "a grid needs its points");
  brim_store_point *points = in->owned[0] = brim_calloc(count + 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  in->points.rows = points;
  in->points.count = count;
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_lab_wire_get(json_array_get(list, i), BRIM_LAB_POINT, &points[i]));
  }
  return BRIM_OK;
}

static brim_status get_ids(const json_t *list, brim_lab_request *in) {
  size_t count = json_array_size(list);
  if (!json_is_array(list) || count > BRIM_STORE_EACH) {
    return brim_fail(BRIM_EINVAL, "at most %d experiments can be changed at once", BRIM_STORE_EACH);
  }
  char(*ids)[BRIM_EXP_ID] = in->owned[0] = brim_calloc(count + 1, sizeof *ids);
  if (!ids) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  in->exps.ids = (const char(*)[BRIM_EXP_ID])ids;
  in->exps.count = count;
  for (size_t i = 0; i < count; i++) {
    const char *id = json_string_value(json_array_get(list, i));
    if (!id || strlen(id) != BRIM_EXP_ID - 1) {
      return brim_fail(BRIM_EINVAL, "'%s' is not the id of an experiment (32 hex digits)",
                       id ? id : "");
    }
    memcpy(ids[i], id, BRIM_EXP_ID);
  }
  return BRIM_OK;
}

static brim_status get_texts(const json_t *list, brim_lab_request *in) {
  size_t count = json_array_size(list);
  if (!json_is_array(list) || count > MOST_CURVES) {
    return brim_fail(BRIM_EINVAL, "exps is a list of at most %d ids of experiments", MOST_CURVES);
  }
  const char **texts = in->owned[0] = brim_calloc(count + 1, sizeof *texts);
  if (!texts) return brim_fail(BRIM_ENOMEM, "out of memory for a reply");
  in->any_exps.texts = texts;
  in->any_exps.count = count;
  for (size_t i = 0; i < count; i++) {
    const char *text = json_string_value(json_array_get(list, i));
    texts[i] = text ? text : "";
  }
  return BRIM_OK;
}

// Copies the record of an experiment.
static brim_status get_exp(const json_t *row, brim_store_exp **out) {
  brim_store_exp exp;
  memset(&exp, 0, sizeof exp);
  BRIM_TRY(brim_lab_wire_get(row, BRIM_LAB_EXP, &exp));
  return brim_store_exp_copy(&exp, out);
}

static brim_status get_claimed(const json_t *o, brim_store_claimed *out) {
  const json_t *row = json_object_get(o, "exp");
  if (!row) return BRIM_OK;
  BRIM_TRY(brim_lab_wire_int(o, "attempt", true, &out->ref.attempt));
  BRIM_TRY(brim_lab_wire_int(o, "fence", true, &out->ref.fence));
  BRIM_TRY(get_lease(o, "lease_ms", &out->lease_ms));
  BRIM_TRY(brim_store_check_id(json_string_value(json_object_get(row, "id"))));
  BRIM_TRY(get_exp(row, &out->exp));
  memcpy(out->ref.exp, out->exp->id, BRIM_EXP_ID);
  return BRIM_OK;
}

static brim_status get_field(const json_t *o, const field *f, void *values, bool needed) {
  void *at = (char *)values + f->offset;
  const json_t *value = json_object_get(o, f->key);
  switch (f->kind) {
    case FIELD_TEXT:
      *(const char **)at = "";
      return brim_lab_wire_string(o, f->key, needed, at);
    case FIELD_NULLED:
    case FIELD_GIVEN:
      return brim_lab_wire_string(o, f->key, needed, at);
    case FIELD_ID: {
      const char **id = at;
      *id = "";
      BRIM_TRY(brim_lab_wire_string(o, f->key, needed, id));
      return **id ? brim_store_check_id(*id) : BRIM_OK;
    }
    case FIELD_ID_HERE:
      BRIM_TRY(brim_store_check_id(json_string_value(value)));
      memcpy(at, json_string_value(value), BRIM_EXP_ID);
      return BRIM_OK;
    case FIELD_STEP:
      *(int64_t *)at = -1;
      return brim_lab_wire_int(o, f->key, needed, at);
    case FIELD_INT:
      return brim_lab_wire_int(o, f->key, needed, at);
    case FIELD_LEASE:
      return get_lease(o, f->key, at);
    case FIELD_REAL:
      *(double *)at = (double)NAN;
      return !value || brim_lab_wire_real_of(value, at) ? BRIM_OK : fail_field(f->key);
    case FIELD_TRUE:
      *(bool *)at = true;
      return get_bool(o, f->key, needed, at);
    case FIELD_BOOL:
      return get_bool(o, f->key, needed, at);
    case FIELD_STATES:
      return get_states(o, f->key, at);
    case FIELD_COUNTS:
      return get_counts(value, at);
    case FIELD_JSON:
      // brim_lab_request_decode turns the object into text and keeps its memory.
      return json_is_object(value) ? BRIM_OK : brim_lab_wire_string(o, f->key, false, at);
    case FIELD_REF:
      return brim_lab_wire_ref_of(o, at);
    case FIELD_FIELDS:
      return brim_lab_wire_get(o, f->record, at);
    case FIELD_RECORD:
      return brim_lab_wire_get(value, f->record, at);
    case FIELD_POINTS:
      return get_points(value, values);
    case FIELD_METRICS:
      return get_metrics(value, values);
    case FIELD_IDS:
      return get_ids(value, values);
    case FIELD_TEXTS:
      return get_texts(value, values);
    case FIELD_FOUND:
      return get_exp(value, at);
    case FIELD_CLAIMED:
      return get_claimed(o, at);
    case FIELD_MORE:
      *(json_t **)at = json_copy((json_t *)(uintptr_t)o);
      return *(json_t **)at ? BRIM_OK : no_memory();
    default:
      return get_enum(o, f, needed, at);
  }
}

brim_status brim_lab_wire_get(const json_t *o, brim_lab_record kind, void *record) {
  if (!json_is_object(o))
    return brim_fail(BRIM_EINVAL, "the request has a value that is no object");
  for (const field *f = tables[kind]; f->key; f++) BRIM_TRY(get_field(o, f, record, f->needed));
  return BRIM_OK;
}

//------------------------------------- rows of operations --------------------------------------

// Iterates over the field names in a row of an operation: "ref pid [from_step]".
typedef struct naming {
  const char *at;
  const field *table;
  bool optional;
  const field *field;  // the field of the name read last
} naming;

static bool next_field(naming *n) {
  if (*n->at == ']') n->optional = false;
  n->at += strspn(n->at, " ]");
  if (!*n->at) return false;
  if (*n->at == '[') n->optional = true;
  n->at += *n->at == '[';
  size_t length = strcspn(n->at, " ]");
  for (n->field = n->table; n->field->key; n->field++) {
    const char *name = n->field->name ? n->field->name : n->field->key;
    if (strlen(name) == length && strncmp(name, n->at, length) == 0) break;
  }
  n->at += length;
  assert(n->field->key);  // fails if the row names a field that no table has
  return true;
}

brim_status brim_lab_request_encode(const brim_lab_request *in, json_t **out) {
  naming n = {.at = brim_lab_op_rows[in->op].request, .table = request_fields};
  brim_json_setup();
  *out = json_object();
  brim_status status = brim_json_put(*out, "op", json_string(brim_lab_op_name(in->op)));
  while (!status && next_field(&n)) {
    status = put_field(*out, n.field, in, !n.optional);
  }
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

brim_status brim_lab_request_decode(const json_t *value, brim_lab_request *out) {
  const char *name = NULL;
  *out = (brim_lab_request){.op = BRIM_LAB_OP_COUNT, .from_step = -1, .drain = true};
  if (!json_is_object(value)) return brim_fail(BRIM_EINVAL, "a request is a JSON object");
  BRIM_TRY(brim_lab_wire_string(value, "op", true, &name));
  out->op = brim_lab_op_of(name);
  if (out->op == BRIM_LAB_OP_COUNT) {
    return brim_fail(BRIM_EUNSUPPORTED, "'%s' is no request that this sweep answers", name);
  }
  if (out->op == BRIM_LAB_OP_CURVE) out->range.points = 1000;
  if (out->op == BRIM_LAB_OP_CURVES) out->range.points = 500;
  brim_status status = BRIM_OK;
  naming n = {.at = brim_lab_op_rows[out->op].request, .table = request_fields};
  while (!status && next_field(&n)) {
    status = get_field(value, n.field, out, !n.optional);
  }
  if (!status && out->op == BRIM_LAB_OP_SEEN) {
    status = get_json(value, "status", out, &out->seen.status);
  }
  if (status) brim_lab_request_deinit(out);
  return status;
}

void brim_lab_request_deinit(brim_lab_request *request) {
  brim_free(request->owned[0]);
  brim_free(request->owned[1]);
  request->owned[0] = request->owned[1] = NULL;
}

brim_status brim_lab_reply_encode(brim_lab_op op, const brim_lab_reply *reply, json_t *out) {
  naming n = {.at = brim_lab_op_rows[op].reply, .table = reply_fields};
  while (next_field(&n)) BRIM_TRY(put_field(out, n.field, reply, true));
  return BRIM_OK;
}

brim_status brim_lab_reply_decode(brim_lab_op op, const json_t *line, brim_lab_reply *out) {
  naming n = {.at = brim_lab_op_rows[op].reply, .table = reply_fields};
  while (next_field(&n)) BRIM_TRY(get_field(line, n.field, out, true));
  return BRIM_OK;
}

// Returns the letter of brim_lab_op_field for a kind of field.
static char query_letter(field_kind kind) {
  switch (kind) {
    case FIELD_TEXT:
    case FIELD_NULLED:
    case FIELD_GIVEN:
    case FIELD_ORDER:
      return 's';
    case FIELD_INT:
    case FIELD_STEP:
      return 'i';
    case FIELD_BOOL:
    case FIELD_TRUE:
      return 'b';
    case FIELD_STATES:
      return 'l';
    default:
      return 0;
  }
}

char brim_lab_op_field(brim_lab_op op, size_t at, const char **key) {
  naming n = {.at = brim_lab_op_rows[op].request, .table = request_fields};
  while (next_field(&n)) {
    const field *f = n.field->kind == FIELD_FIELDS ? tables[n.field->record] : n.field;
    size_t count = 1;
    if (f != n.field) {
      for (count = 0; f[count].key; count++) {
      }
    }
    if (at < count) {
      *key = f[at].key;
      return query_letter(f[at].kind);
    }
    at -= count;
  }
  *key = NULL;
  return 0;
}
