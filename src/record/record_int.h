// Inside the record room: small helpers shared by the JSON code, the .jsonl files and the public
// reader.
#ifndef BRIM_RECORD_INT_H_
#define BRIM_RECORD_INT_H_

#include "record/record.h"

enum { BRIM_RECORD_MAX_BYTES = 1 << 30 };

// Copies a text into a field and cuts it between two characters if it is too long.
void brim_record_copy(char *out, size_t size, const char *text);
// Makes a JSON text. In a text that is not valid UTF-8 all bytes that are not ASCII become '?'.
json_t *brim_record_text(const char *text);
bool brim_record_parse_u64(const char *text, uint64_t *out);
// Finds a status by its name. A status that this brim does not know becomes BRIM_OK (unknown).
brim_status brim_record_status(const char *name);
// Write and read one finding of a result or of a job.
brim_status brim_record_put_finding(json_t *item, const brim_finding *finding);
brim_status brim_record_read_finding(const json_t *item, const char *name, int line,
                                     brim_finding *out);
// A text made of words (base_words.h) is stored twice: in English under `key`, so that every reader has it, and as
// words with values under `key`_words. If the two disagree, the English text counts.
brim_status brim_record_put_words(json_t *item, const char *key, const char *words);
void brim_record_read_words(const json_t *item, const char *key, char *text, size_t size);
// Checks that root is an object with "schema" brim.result/1, else BRIM_EPARSE.
brim_status brim_record_check_schema(const json_t *root, const char *name, int line);
// Called for each line of a .jsonl file that is not blank. `value` is borrowed.
typedef brim_status (*brim_record_line_fn)(void *ctx, json_t *value, const char *name, int line);
// A last line without a newline that is no JSON was cut off when its writer ended: it is skipped and *torn is set.
// With `torn` NULL it is an error like any other.
brim_status brim_record_each_line(const char *path, brim_record_line_fn fn, void *ctx, bool *torn);

#endif  // BRIM_RECORD_INT_H_
