// The records of a store as JSON and back, for both ends of "brim.lab/1" (lab_ops.h). Fields that are
// 0, "" or NaN are left out and read back so. Not for files: export has its own form.
#ifndef BRIM_LAB_WIRE_H_
#define BRIM_LAB_WIRE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_json.h"
#include "brim/status.h"
#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether two versions of brim work together: they have the same first two numbers ("1.4.0", "1.4.2").
bool brim_lab_wire_fits(const char *version, const char *other);

// A text; each byte that is not part of a UTF-8 character becomes '?'. NULL = "".
json_t *brim_lab_wire_text(const char *text);
// Finite numbers keep every bit; the others are "nan", "inf", "-inf".
json_t *brim_lab_wire_real(double value);
bool brim_lab_wire_real_of(const json_t *value, double *out);

const char *brim_lab_want_name(brim_exp_want want);  // "run", "pause", "cancel"

// A field that must be there, or may be missing: *out stays then. BRIM_EINVAL: of another type.
brim_status brim_lab_wire_int(const json_t *o, const char *key, bool needed, int64_t *out);
// The lease of a reply: 0 to a year, so that times made of it stay times.
brim_status brim_lab_wire_lease(const json_t *reply, int64_t *out);
brim_status brim_lab_wire_string(const json_t *o, const char *key, bool needed, const char **out);
brim_status brim_lab_wire_bool(const json_t *o, const char *key, bool *out);

json_t *brim_lab_wire_ref(const brim_store_ref *ref);
brim_status brim_lab_wire_ref_of(const json_t *request, brim_store_ref *out);

// Which record. The struct's strings point into the JSON value, or to "".
typedef enum brim_lab_record {
  BRIM_LAB_EXP,       // brim_store_exp
  BRIM_LAB_ATTEMPT,   // brim_store_attempt
  BRIM_LAB_EVENT,     // brim_store_event
  BRIM_LAB_GRID,      // brim_store_grid
  BRIM_LAB_GRID_ROW,  // brim_store_grid_row
  BRIM_LAB_WORKER,    // brim_store_worker
  BRIM_LAB_POINT,     // brim_store_point
  BRIM_LAB_RESULT,    // brim_store_result
  BRIM_LAB_PROGRESS,  // brim_store_progress
  BRIM_LAB_FILTER,    // brim_store_filter, but for its states and order
  BRIM_LAB_RECORD_COUNT
} brim_lab_record;

// Adds the record's fields to an object.
brim_status brim_lab_wire_put(json_t *o, brim_lab_record kind, const void *record);
// Sets the fields that are there; the caller has cleared the others. A field of another type is
// BRIM_EINVAL.
brim_status brim_lab_wire_get(const json_t *o, brim_lab_record kind, void *record);

brim_status brim_lab_wire_put_filter(json_t *o, const brim_store_filter *filter);
brim_status brim_lab_wire_get_filter(const json_t *o, brim_store_filter *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_WIRE_H_
