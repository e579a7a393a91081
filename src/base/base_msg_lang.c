// The languages and built-in catalogues. They are apart from base_msg.c, so that a program that sets no language
// does not link the catalogues.
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/base_msg.h"

// Rows {"english", "translated"}, sorted; tools/messages writes and checks the file.
static const brim_msg_pair korean[] = {
#include "base/base_messages_ko.txt"
};

static const brim_msg_catalogue catalogues[] = {
    {"ko", korean, (int)(sizeof korean / sizeof korean[0])},
};

// Returns the names of the languages, NULL-terminated; the first is the language of the sources.
static const char *const *languages(void) {
  static const char *const names[] = {"en", "ko", NULL};
  return names;
}

const brim_msg_catalogue *brim_msg_catalogue_of(const char *language) {
  for (size_t i = 0; i < sizeof catalogues / sizeof catalogues[0]; i++) {
    if (strcmp(catalogues[i].language, language) == 0) return &catalogues[i];
  }
  return NULL;
}

bool brim_msg_set_language(const char *name) {
  const brim_msg_catalogue *found = brim_msg_catalogue_of(name);
  if (!found && strcmp(name, languages()[0]) != 0) return false;
  brim_msg_set_catalogue(found ? found->pairs : NULL, found ? found->count : 0);
  return true;
}

// True if a locale asks for a language: "ko", "ko_KR", "ko_KR.UTF-8", "ko.utf8@x" ask for Korean; "kok_IN" and
// "ko_KR.eucKR" do not.
static bool asks_for(const char *locale, const char *language) {
  size_t n = strlen(language);
  if (strncasecmp(locale, language, n) != 0 || (locale[n] && !strchr("_.@", locale[n]))) {
    return false;
  }
  const char *codeset = strchr(locale, '.');
  if (!codeset) return true;
  size_t length = strcspn(++codeset, "@");
  return (length == 5 && strncasecmp(codeset, "utf-8", 5) == 0) ||
         (length == 4 && strncasecmp(codeset, "utf8", 4) == 0);
}

const char *brim_msg_language_of(const char *lc_all, const char *lc_messages, const char *lang) {
  const char *const *names = languages();
  const char *locale = lc_all && *lc_all             ? lc_all
                       : lc_messages && *lc_messages ? lc_messages
                                                     : lang;
  for (const char *const *name = names + 1; locale && *name; name++) {
    if (asks_for(locale, *name)) return *name;
  }
  return names[0];
}
