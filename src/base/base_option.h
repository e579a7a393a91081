// Option tables: one row per command-line option gives the parser, --help, the man page and JSON. A row may have
// aliases and may take several values ("--batch-sizes 128 256": all words up to the next option). A value may be
// optional: "--report", "--report=FILE", "--report FILE". `key` names the config key that an option sets; the
// caller makes an override of it.
#ifndef BRIM_BASE_OPTION_H_
#define BRIM_BASE_OPTION_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_option_kind {
  BRIM_OPTION_FLAG,  // no value, or one of `choices`, all of which mean yes; --no-NAME if `negatable`
  BRIM_OPTION_STRING,
  BRIM_OPTION_INT,
  BRIM_OPTION_FLOAT,
  BRIM_OPTION_BYTES,
  BRIM_OPTION_ENUM,  // one of `choices`
  BRIM_OPTION_KIND_COUNT
} brim_option_kind;

typedef struct brim_option {
  const char *name;  // "batch-sizes"; used as --batch-sizes
  char short_name;   // 0 = none
  brim_option_kind kind;
  bool multiple;  // takes one or more values, and may be repeated
  bool negatable;
  // The value may be left out (count 0). The next word is the value if it fits the kind: a number, or a choice. For
  // other kinds any word fits that is neither an option nor "key=value"; "key=value" fits if a file has that name.
  bool optional;
  const char *metavar;         // placeholder of the value: "N"; NULL = made from the kind
  const char *help;            // a catalogue message
  const char *key;             // config key it overrides, or NULL
  const char *default_text;    // for help; NULL = none
  const char *const *aliases;  // NULL-terminated, without dashes; or NULL
  const char *const *choices;  // for ENUM and FLAG; or NULL
  const char *group;           // heading in help; NULL = "Options"
} brim_option;

// One parsed occurrence.
typedef struct brim_option_value {
  const brim_option *option;
  bool flag;                  // FLAG: true, or false for --no-
  const char *const *values;  // into argv (or the part after '=')
  size_t count;
} brim_option_value;

typedef struct brim_option_parse {
  brim_option_value *items;  // in command-line order
  size_t count;
  const char **positional;  // in the order of the command line
  size_t positional_count;
  const char *const *rest;  // words after "--", or NULL
  size_t rest_count;
} brim_option_parse;

// Parses argv[0..argc), without program and command names. `tables` is NULL-terminated; a NULL name ends a table.
// An unknown option is BRIM_EINVAL with 'did you mean'. Values are checked by kind. Strings are borrowed from argv.
brim_status brim_option_parse_args(const brim_option *const *tables, int argc,
                                   const char *const *argv, brim_option_parse *out);
void brim_option_parse_deinit(brim_option_parse *parse);

// Finds the last occurrence of an option by its name; NULL = absent.
const brim_option_value *brim_option_find(const brim_option_parse *parse, const char *name);
bool brim_option_flag(const brim_option_parse *parse, const char *name, bool fallback);
const char *brim_option_string(const brim_option_parse *parse, const char *name,
                               const char *fallback);
int64_t brim_option_int(const brim_option_parse *parse, const char *name, int64_t fallback);
double brim_option_float(const brim_option_parse *parse, const char *name, double fallback);

// The placeholder of the value in help: "FILE", "N...". brim_option_value_text adds brackets if the value is
// optional: "[FILE]".
const char *brim_option_metavar(const brim_option *option);
void brim_option_value_text(const brim_option *option, brim_str *out);
// Appends the help text of tables, wrapped to `width` columns.
void brim_option_help(const brim_option *const *tables, int width, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_OPTION_H_
