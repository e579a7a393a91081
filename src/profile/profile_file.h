// A text file written in pieces, whole or not at all; compressed (gzip) where its name ends in ".gz".
// Callers: profile_chrome.c.
#ifndef BRIM_PROFILE_FILE_H_
#define BRIM_PROFILE_FILE_H_

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_text_file brim_text_file;

brim_status brim_text_file_open(const char *path, brim_text_file **out);
// Writes what the text has and empties it. A text that ran out of memory is BRIM_ENOMEM.
brim_status brim_text_file_put(brim_text_file *file, brim_str *text);
brim_status brim_text_file_commit(brim_text_file *file);  // closes it whatever the result
void brim_text_file_abort(brim_text_file *file);          // leaves no file; NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PROFILE_FILE_H_
