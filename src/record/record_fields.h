// Inside the record room: structs to JSON and back by tables of fields. A row gives the key, the kind and the place
// in the struct, so start values, writing and reading come from the same row. Every record uses it.
#ifndef BRIM_RECORD_FIELDS_H_
#define BRIM_RECORD_FIELDS_H_

#include "record/record_int.h"

typedef enum brim_field_kind {
  BRIM_FIELD_TEXT,   // const char *: points into the JSON after reading
  BRIM_FIELD_CHARS,  // char []
  // char [] in the form of base_words.h: English under the key, the words under KEY_words
  BRIM_FIELD_WORDS,
  BRIM_FIELD_INT,     // int64_t or int; larger numbers are clamped
  BRIM_FIELD_I32,     // int; larger numbers are refused
  BRIM_FIELD_U64,     // uint64_t; above 2^63-1 as a decimal string
  BRIM_FIELD_NUMBER,  // double, NaN = unknown
  BRIM_FIELD_BOOL,
  BRIM_FIELD_FLAG,  // an enum {unknown, no, yes}: null, false, true
  BRIM_FIELD_NAME,  // an enum; `name` gives the names
} brim_field_kind;

typedef struct brim_field {
  // object that has the key, if a table spans several objects; NULL = the same object
  const char *section;
  const char *key;
  brim_field_kind kind;
  size_t offset, size;
  const char *(*name)(int value);  // BRIM_FIELD_NAME: the name of a value
  int names;                       // BRIM_FIELD_NAME: number of names
  int other;  // BRIM_FIELD_NAME: the value for an unknown name; 0 = keep the start value
  // BRIM_FIELD_NAME: refuse unknown names and say that "a cause of a gap" (this text) was expected
  const char *want;
  int64_t none;  // BRIM_FIELD_INT: the value that means unknown
} brim_field;

typedef struct brim_fields {
  const char *what;  // the record for messages, in the user's language: "view of a sweep"
  const brim_field *rows;
  size_t count;
} brim_fields;

#define BRIM_FIELD_PLACE(type, member) \
  .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define BRIM_FIELD_(type, key_, kind_, member) \
  { .key = key_, .kind = BRIM_FIELD_##kind_, BRIM_FIELD_PLACE(type, member) }
#define BRIM_FIELD_INT_(type, key_, member, none_) \
  { .key = key_, .kind = BRIM_FIELD_INT, BRIM_FIELD_PLACE(type, member), .none = none_ }
#define BRIM_FIELD_NAME_(type, key_, member, name_, count_)                              \
  {                                                                                      \
    .key = key_, .kind = BRIM_FIELD_NAME, BRIM_FIELD_PLACE(type, member), .name = name_, \
    .names = (int)(count_)                                                               \
  }

// Writes one row into an object.
brim_status brim_field_put(const brim_field *field, const void *from, json_t *out);
// Reads one value into the struct. Returns NULL if the kind was right, else what was expected ("a string"). A null
// number becomes NaN; a null text leaves the field unchanged.
const char *brim_field_get(const brim_field *field, const json_t *value, void *to);
// For BRIM_FIELD_WORDS, after the English text was read: takes the words of `object` if they make the same text.
void brim_field_get_words(const brim_field *field, const json_t *object, void *to);

// Sets start values: whole numbers `none`, numbers NaN, texts "", the rest 0.
void brim_fields_init(const brim_fields *fields, void *out);
// Writes all rows into the object. `lean` leaves out values that are unknown, empty, or the first name of an enum.
brim_status brim_fields_put(const brim_fields *fields, const void *from, bool lean, json_t *out);
// Writes `count` structs of `size` bytes as a list under `key`.
brim_status brim_fields_put_list(const brim_fields *fields, const void *items, size_t size,
                                 size_t count, const char *key, json_t *root);
// Reads the rows that the object has. Missing and null rows keep their values. A wrong kind gives BRIM_EPARSE with
// the key.
brim_status brim_fields_get(const brim_fields *fields, const json_t *from, void *out);
// Makes impossible readings unknown: numbers below 0 (temperatures, keys ending in "_c": below -300 C) or above 1e16,
// percentages above 1e6. For records of other programs and hosts.
void brim_fields_bound(const brim_fields *fields, void *out);
double brim_fields_bounded(const char *key, double value);  // NaN if impossible
// Finds the list under `key`; NULL = none. BRIM_EPARSE if the value is not a list.
brim_status brim_fields_list(const char *what, const json_t *root, const char *key,
                             const json_t **out);
brim_status brim_fields_wrong(const char *what, const char *key);
// Hands `value` to *out, or drops it after a failure. `value` NULL = out of memory.
brim_status brim_fields_hand_over(brim_status status, json_t *value, json_t **out);

#endif  // BRIM_RECORD_FIELDS_H_
