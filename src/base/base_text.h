// Makes untrusted text (names of files, classes and keys, metadata) harmless for terminals and spreadsheets. Call
// these functions where output is written.
#ifndef BRIM_BASE_TEXT_H_
#define BRIM_BASE_TEXT_H_

#include "base/base_str.h"

// True if these n bytes are plain: line breaks, tabs and all other characters that a terminal shows. Control
// characters (C0, DEL, C1), bidirectional and line controls (U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069,
// U+061C, U+2028, U+2029) and invalid UTF-8 are not plain.
bool brim_text_is_plain(const char *text, size_t n);

// Appends n bytes, with visible escapes for all that is not plain: \x1b for a byte below 0x80 or invalid UTF-8,
// \u202e for a character, which is also valid in JSON. `keep` (NULL-terminated, or NULL) lists control sequences
// that pass, such as brim's own colours.
void brim_text_append_plain(brim_str *out, const char *text, size_t n, const char *const *keep);
// Like brim_text_append_plain, into a buffer; cut at a character boundary if it does not fit.
void brim_text_plain(const char *text, char *out, size_t size);

// Appends one cell of a CSV file, quoted as RFC 4180 requires. A spreadsheet runs a cell that begins with = + - @,
// a tab or a line break as a formula, so such text gets a ' in front; numbers do not.
void brim_text_append_csv(brim_str *out, const char *text);

#endif  // BRIM_BASE_TEXT_H_
