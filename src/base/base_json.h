// JSON by jansson, with brim's parser and writer. Values are json_t*; jansson's own calls work on them.
#ifndef BRIM_BASE_JSON_H_
#define BRIM_BASE_JSON_H_

#include <jansson.h>
#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Seeds jansson's hashing with a fixed seed. Every brim_json_* function calls it; repeated calls do nothing.
void brim_json_setup(void);
// Makes jansson use brim_alloc, so that its memory is counted and tests can make it fail. Process-wide: only the
// brim program calls it, before anything else. libbrim does not, since the program it is linked to may use jansson
// too.
void brim_json_own_memory(void);
// Limits on the memory of a document: each value counts 1, a list 4 and an object 8. Without a limit "{},{},..."
// would take 140 times its size.
enum {
  BRIM_JSON_VALUES = 1000000,    // for brim_json_parse; enough for 30,000 experiments
  BRIM_JSON_VALUES_SMALL = 5000  // for short requests
};
// `name` stands before line:column in messages. BRIM_ELIMIT above BRIM_JSON_VALUES.
brim_status brim_json_parse(const char *text, size_t size, const char *name, json_t **out);
// Parses with at most *left values, and subtracts the values of the document from *left.
brim_status brim_json_parse_within(const char *text, size_t size, const char *name, size_t *left,
                                   json_t **out);
// Writes text, compact (indent 0) or indented, in the order of the keys; free it with brim_free.
brim_status brim_json_dump(const json_t *value, int indent, char **out);
// Builders that report out of memory as a status and always consume `value` (NULL = BRIM_ENOMEM).
brim_status brim_json_put(json_t *object, const char *key, json_t *value);
brim_status brim_json_push(json_t *array, json_t *value);
json_t *brim_json_number(double value);  // null for NaN and infinities, integer when integral
// Stores numbers as one string, "1 0.5 nan", that reads back to the same bits.
brim_status brim_json_put_numbers(json_t *object, const char *key, const double *values,
                                  size_t count);
// Returns the count of numbers read; 0 if there are more than `most` or the text is invalid.
size_t brim_json_get_numbers(const json_t *object, const char *key, double *out, size_t most);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_JSON_H_
