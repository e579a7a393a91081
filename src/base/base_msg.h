// The message catalogue. The English text is the key, as in gettext, so that the compiler checks formats at the
// call. tools/messages collects every literal given to brim_tr, brim_fail, brim_fail_at, brim_fail_context and
// brim_log_*; a test compares these literals with the translations.
#ifndef BRIM_BASE_MSG_H_
#define BRIM_BASE_MSG_H_

#include <stdbool.h>
#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// One translation; both strings are printf formats taking the same arguments.
typedef struct brim_msg_pair {
  const char *english;
  const char *translated;
} brim_msg_pair;

// Returns the message in the current language; the argument itself if there is no translation.
const char *brim_tr(const char *english) __attribute__((format_arg(1)));

// Chooses Korean particles. In a translation, the particle after a printf conversion stands in both forms:
// "%s이(가)". In the formatted text this function keeps the form that fits the sound before it: 64가, 'mlp'가,
// data.val_fraction이. If that sound is unknown, both forms stay. Works in place from offset `from`, never makes
// the text longer, and returns the new length. Used for failure details, log lines, brim_str_printf and
// brim_msg_format.
size_t brim_msg_particles(char *text, size_t from);
// snprintf for a translated message, with the particles chosen. Returns the length in `out`.
size_t brim_msg_format(char *out, size_t size, const char *fmt, ...) BRIM_PRINTF(3, 4);
// True if the text has a particle in both forms, as in 이(가).
bool brim_msg_has_particle(const char *text);

// Marks a literal in a table for tools/messages. It is translated where it is printed.
#define BRIM_N_(text) text

// Sets the language ("en", "ko"). Returns false and changes nothing if there is no catalogue for it. Call it once,
// from main. base_msg_lang.c has this function and the catalogues.
bool brim_msg_set_language(const char *name);
// Returns the language that the environment asks for: the first variable that is not empty decides, as in POSIX. A
// locale that is not UTF-8 gets English, because the catalogues are UTF-8.
const char *brim_msg_language_of(const char *lc_all, const char *lc_messages, const char *lang);

// A built-in catalogue, sorted by strcmp of english.
typedef struct brim_msg_catalogue {
  const char *language;
  const brim_msg_pair *pairs;
  int count;
} brim_msg_catalogue;
// Returns NULL for English and for languages without a catalogue.
const brim_msg_catalogue *brim_msg_catalogue_of(const char *language);

// Adds translations of messages that are not in the catalogue, such as those of a registered workload, in any
// order. Keeps `pairs`, which must stay valid. Call it from main, before threads start. Returns false if it was
// called too often.
bool brim_msg_add(const brim_msg_pair *pairs, size_t count);

// Sets a catalogue, sorted by strcmp of english; NULL = English. Call it once, from main.
void brim_msg_set_catalogue(const brim_msg_pair *pairs, int count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MSG_H_
