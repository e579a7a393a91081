// Inside the record room: small helpers shared by the JSON code, the .jsonl files and the public
// reader.
#ifndef BRIM_RECORD_INT_H_
#define BRIM_RECORD_INT_H_

#include "record/record.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_RECORD_MAX_BYTES = 1 << 30 };

// Copy into a field; what is too long is cut at a character.
void brim_record_copy(char *out, size_t size, const char *text);
bool brim_record_parse_u64(const char *text, uint64_t *out);
// An object whose "schema" is brim.result/1, else BRIM_EPARSE.
brim_status brim_record_check_schema(const json_t *root, const char *name, int line);
// Every line of a .jsonl file in turn, blank ones passed over. `value` is borrowed.
typedef brim_status (*brim_record_line_fn)(void *ctx, json_t *value, const char *name, int line);
brim_status brim_record_each_line(const char *path, brim_record_line_fn fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_INT_H_
