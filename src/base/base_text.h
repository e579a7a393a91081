// Text from outside (names of files, classes and keys, metadata) on its way to a terminal or to a
// spreadsheet. The functions that write output call these; what produces the text does not.
#ifndef BRIM_BASE_TEXT_H_
#define BRIM_BASE_TEXT_H_

#include "base/base_str.h"

#ifdef __cplusplus
extern "C" {
#endif

// Would a terminal show these n bytes as they are? Line breaks and tabs pass; other control
// characters (C0, DEL, C1), bidirectional and line controls (U+200E, U+200F, U+202A to U+202E,
// U+2066 to U+2069, U+061C, U+2028, U+2029) and bytes that are no UTF-8 do not.
bool brim_text_is_plain(const char *text, size_t n);

// Appends n bytes with everything that is not plain as a visible escape: \x1b for a byte below 0x80
// or one that is no UTF-8, \u202e for a character. Those of a character are valid inside JSON.
// `keep` names control sequences that pass as they are (brim's own colours), ended by NULL; may be
// NULL.
void brim_text_append_plain(brim_str *out, const char *text, size_t n, const char *const *keep);
// The same into a buffer, cut at a whole character when it does not fit.
void brim_text_plain(const char *text, char *out, size_t size);

// One cell of a CSV file. Quoted where RFC 4180 asks for it. A spreadsheet runs a cell that begins
// with = + - @, a tab or a line break as a formula: such text gets a ' in front; numbers stay.
void brim_text_append_csv(brim_str *out, const char *text);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_TEXT_H_
