// The message catalogue. The English text is the key, gettext style, so that the compiler can check
// formats at the call. tools/messages collects every literal given to brim_tr, brim_fail,
// brim_fail_at, brim_fail_context and the brim_log_* functions; a test compares them with the
// translations.
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

// Translate a message into the current language; the argument itself when there is no translation.
const char *brim_tr(const char *english) __attribute__((format_arg(1)));

// Where a translation writes both forms of a Korean particle behind a conversion, 이(가), the filled
// text keeps the one that is read: 64가, 'mlp'가, data.val_fraction이. In place, never longer; from:
// where the part that was just filled in starts. The new length. A word whose sound is not known
// keeps both. brim_fail, the logger, brim_str_printf and brim_msg_format do it themselves.
size_t brim_msg_particles(char *text, size_t from);
// snprintf of a translated message (brim_tr) that may have such particles. The length of what is in
// `out`, which ends there if the message is longer.
size_t brim_msg_format(char *out, size_t size, const char *fmt, ...) BRIM_PRINTF(3, 4);
// Whether a format has such a particle.
bool brim_msg_has_particle(const char *text);

// Marks a literal that stands in a table and is translated where it is printed. Does nothing
// itself.
#define BRIM_N_(text) text

// The language of the messages by its name ("en", "ko"); false: there is no catalogue of it, and
// nothing changes. Call once, from main. In base_msg_lang.c, which brings the catalogues with it.
bool brim_msg_set_language(const char *name);
// Which of them the environment asks for: the first of the three that is set and not empty decides,
// by POSIX's order. A locale in another encoding than UTF-8 gets the sources' language, because the
// catalogues are UTF-8.
const char *brim_msg_language_of(const char *lc_all, const char *lc_messages, const char *lang);

// A catalogue as it is built in: sorted by strcmp of english.
typedef struct brim_msg_catalogue {
  const char *language;
  const brim_msg_pair *pairs;
  int count;
} brim_msg_catalogue;
// NULL for the language of the sources and for what is not there.
const brim_msg_catalogue *brim_msg_catalogue_of(const char *language);

// Korean for messages of a part that the catalogue does not know, such as a registered workload; they
// need no order. Call from main, before threads start; false when there are too many.
bool brim_msg_add(const brim_msg_pair *pairs, size_t count);

// Choose a catalogue: pairs sorted by strcmp of english; NULL means English. Call once, from main.
void brim_msg_set_catalogue(const brim_msg_pair *pairs, int count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MSG_H_
