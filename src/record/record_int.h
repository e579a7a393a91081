// Inside the record room: small helpers shared by the JSON code, the .jsonl files and the public
// reader.
#ifndef BRIM_RECORD_INT_H_
#define BRIM_RECORD_INT_H_

#include "record/record.h"

enum { BRIM_RECORD_MAX_BYTES = 1 << 30 };

// Copy into a field; what is too long is cut at a character.
void brim_record_copy(char *out, size_t size, const char *text);
// As JSON; where it holds a character cut in half, without what JSON refuses.
json_t *brim_record_text(const char *text);
bool brim_record_parse_u64(const char *text, uint64_t *out);
// By its name; a status of a later brim is BRIM_OK (unknown).
brim_status brim_record_status(const char *name);
// One finding, of a result and of a job alike.
brim_status brim_record_put_finding(json_t *item, const brim_finding *finding);
brim_status brim_record_read_finding(const json_t *item, const char *name, int line,
                                     brim_finding *out);
// A text with the sentence that it is made of (base_words.h): in English under `key`, so that every reader
// has it, and with its values under `key`_words. What those two disagree about is read as the text.
brim_status brim_record_put_words(json_t *item, const char *key, const char *words);
void brim_record_read_words(const json_t *item, const char *key, char *text, size_t size);
// An object whose "schema" is brim.result/1, else BRIM_EPARSE.
brim_status brim_record_check_schema(const json_t *root, const char *name, int line);
// Every line of a .jsonl file in turn, blank ones skipped. `value` is borrowed.
typedef brim_status (*brim_record_line_fn)(void *ctx, json_t *value, const char *name, int line);
// `torn`: set where the last line has no end and is no JSON, so was cut off by whatever ended its
// writer; it is skipped then. NULL: that is an error as any other.
brim_status brim_record_each_line(const char *path, brim_record_line_fn fn, void *ctx, bool *torn);

#endif  // BRIM_RECORD_INT_H_
