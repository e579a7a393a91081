// JSON through jansson, with our allocator and our errors. Values are json_t*: everyone may use
// jansson's own calls; these add what it lacks.
#ifndef BRIM_BASE_JSON_H_
#define BRIM_BASE_JSON_H_

#include <jansson.h>
#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Seed jansson's hashing (fixed seed: key order is insertion order anyway). Idempotent; every
// brim_json_* calls it.
void brim_json_setup(void);
// Route jansson through brim_alloc, so that its memory is counted and can be made to fail. It holds
// for the whole process: the brim program does it first of all, libbrim never does, since its host
// may use jansson too.
void brim_json_own_memory(void);
// How much memory a document may take, whatever its text: each value counts 1, a list 4 and an object 8,
// which is at least a fiftieth of their bytes beside texts. "{},{},..." would take 140 times its size.
enum {
  BRIM_JSON_VALUES = 1000000,    // of brim_json_parse: 30,000 experiments, a million numbers
  BRIM_JSON_VALUES_SMALL = 5000  // for short requests
};
// `name` stands in messages in front of line:column. BRIM_ELIMIT: it has more than BRIM_JSON_VALUES.
brim_status brim_json_parse(const char *text, size_t size, const char *name, json_t **out);
// The same with at most *left values, of which those of the document are subtracted.
brim_status brim_json_parse_within(const char *text, size_t size, const char *name, size_t *left,
                                   json_t **out);
// Compact (indent 0) or indented; key order kept; brim_free.
brim_status brim_json_dump(const json_t *value, int indent, char **out);
// Builders that report out-of-memory as a status and always consume `value` (NULL value = ENOMEM).
brim_status brim_json_put(json_t *object, const char *key, json_t *value);
brim_status brim_json_push(json_t *array, json_t *value);
json_t *brim_json_number(double value);  // null for NaN and infinities, integer when integral
// Numbers as one string, "1 0.5 nan", for metadata whose values are strings: each reads back the same.
brim_status brim_json_put_numbers(json_t *object, const char *key, const double *values,
                                  size_t count);
// How many there are; 0 when there are more than `most`, or something else.
size_t brim_json_get_numbers(const json_t *object, const char *key, double *out, size_t most);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_JSON_H_
