// The message catalogue. The English text is the key, gettext style, so that the compiler can check
// formats at the call. tools/messages lists every literal given to brim_tr, brim_fail,
// brim_fail_at, brim_fail_context and the brim_log_* functions into src/base/base_messages.txt; a
// test holds that list against the sources, so a translation can be checked for completeness.
#ifndef BRIM_BASE_MSG_H_
#define BRIM_BASE_MSG_H_

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

// Marks a literal that stands in a table and is translated where it is printed. Does nothing
// itself.
#define BRIM_N_(text) text

// Choose a catalogue: pairs sorted by strcmp of english; NULL means English. Call once, from main.
void brim_msg_set_catalogue(const brim_msg_pair *pairs, int count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MSG_H_
