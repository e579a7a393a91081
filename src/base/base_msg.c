// The message catalogue, and Korean particles.

#include "base/base_msg.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

//------------------------------------------ catalogue ------------------------------------------

// Written once by main before threads start, read only afterwards.
static const brim_msg_pair *catalogue;
static int catalogue_count;

// Added translations; also written by main before threads start.
enum { MAX_ADDED = 16 };
static struct {
  const brim_msg_pair *pairs;
  size_t count;
} added[MAX_ADDED];
static size_t added_count;

bool brim_msg_add(const brim_msg_pair *pairs, size_t count) {
  if (added_count == MAX_ADDED) return false;
  added[added_count].pairs = pairs;
  added[added_count++].count = count;
  return true;
}

static const char *find_added(const char *english) {
  for (size_t i = 0; i < added_count; i++) {
    for (size_t k = 0; k < added[i].count; k++) {
      const brim_msg_pair *pair = &added[i].pairs[k];
      if (strcmp(pair->english, english) == 0) return pair->translated;
    }
  }
  return english;
}

void brim_msg_set_catalogue(const brim_msg_pair *pairs, int count) {
  catalogue = pairs;
  catalogue_count = pairs ? count : 0;
}

static int compare_pair(const void *key, const void *pair) {
  return strcmp(key, ((const brim_msg_pair *)pair)->english);
}

const char *brim_tr(const char *english) {
  if (!catalogue || !english) return english;
  const brim_msg_pair *hit =
      bsearch(english, catalogue, (size_t)catalogue_count, sizeof *catalogue, compare_pair);
  return hit && hit->translated ? hit->translated : find_added(english);
}

//---------------------------------- particles ----------------------------------
// The form of a Korean particle depends on the sound before it. A catalogue cannot know the sound of a filled-in name or
// number, so it writes both forms, 이(가), and the right one is chosen here.

// How a word ends when read aloud. RIEUL: the consonant ㄹ, after which the particle is 로, as after a vowel.
typedef enum ending { UNKNOWN, VOWEL, CONSONANT, RIEUL } ending;

typedef struct particle {
  const char *both, *after_consonant, *after_vowel;
} particle;

static const particle particles[] = {
    {"이(가)", "이", "가"}, {"을(를)", "을", "를"}, {"은(는)", "은", "는"},
    {"과(와)", "과", "와"}, {"와(과)", "과", "와"}, {"(으)로", "으로", "로"},
};

static ending digit_ending(char c) {
  switch (c) {
    case '1':
    case '7':
    case '8':
      return RIEUL;
    case '0':
    case '3':
    case '6':
      return CONSONANT;
    default:
      return VOWEL;
  }
}

static ending hangul_ending(unsigned code) {
  if (code < 0xAC00 || code > 0xD7A3) return UNKNOWN;
  unsigned last = (code - 0xAC00) % 28;
  return last == 0 ? VOWEL : last == 8 ? RIEUL : CONSONANT;
}

// The ending of a word that is spelled out: GPU, lr, png.
static ending letter_ending(char c) {
  return strchr("lr", c) ? RIEUL : strchr("mn", c) ? CONSONANT : VOWEL;
}

// Words whose last letter does not tell their sound.
static const struct {
  const char *word;
  ending ending;
} words[] = {
    {"float", VOWEL},     {"set", CONSONANT},      {"dataset", CONSONANT}, {"format", CONSONANT},
    {"net", CONSONANT},   {"resnet", CONSONANT},   {"dropout", CONSONANT}, {"output", CONSONANT},
    {"input", CONSONANT}, {"step", CONSONANT},     {"sweep", CONSONANT},   {"crop", CONSONANT},
    {"flip", CONSONANT},  {"warmup", CONSONANT},   {"top", CONSONANT},     {"block", CONSONANT},
    {"task", VOWEL},      {"disk", VOWEL},         {"mask", VOWEL},        {"rank", VOWEL},
    {"batch", VOWEL},     {"type", CONSONANT},     {"shape", VOWEL},       {"pipe", VOWEL},
    {"topic", CONSONANT}, {"synthetic", CONSONANT}};

// The ending of an English word by its usual spelling in Korean; unknown if that varies and the word is not listed.
static ending word_ending(const char *word, size_t n) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strlen(words[i].word) == n && strncasecmp(words[i].word, word, n) == 0) {
      return words[i].ending;
    }
  }
  char last = (char)tolower((unsigned char)word[n - 1]);
  char before = n > 1 ? (char)tolower((unsigned char)word[n - 2]) : ' ';
  bool vowels = false, capitals = true;
  for (size_t i = 0; i < n; i++) {
    if (strchr("aeiouyAEIOUY", word[i])) vowels = true;
    if (!isupper((unsigned char)word[i])) capitals = false;
  }
  if (!vowels || capitals) return letter_ending(last);
  switch (last) {
    case 'l':
      return RIEUL;
    case 'm':
    case 'n':
      return CONSONANT;
    case 'e':
      return before == 'l'                    ? RIEUL
             : before == 'm' || before == 'n' ? CONSONANT
             : strchr("pkb", before)          ? UNKNOWN
                                              : VOWEL;
    case 'g':
      return before == 'n' ? CONSONANT : VOWEL;
    case 't':
      return strchr("scrnfl", before) ? VOWEL : UNKNOWN;
    case 'b':
    case 'c':
    case 'k':
    case 'p':
      return UNKNOWN;
    default:
      return VOWEL;
  }
}

// The end of the word before `end`. Skips closing quotes and a trailing part in parentheses.
static const char *word_end(const char *text, const char *end) {
  while (end > text && strchr("'\"`", end[-1])) end--;
  if (end == text || end[-1] != ')') return end;
  int depth = 0;
  for (const char *p = end; p > text; p--) {
    if (p[-1] == ')') depth++;
    if (p[-1] == '(' && --depth == 0) return p - 1 > text ? p - 1 : end;
  }
  return end;
}

static ending ending_of(const char *text, const char *end) {
  end = word_end(text, end);
  while (end > text && (end[-1] == ' ' || strchr("'\"`", end[-1]))) end--;
  if (end == text) return UNKNOWN;
  unsigned char last = (unsigned char)end[-1];
  if (isdigit(last)) return digit_ending(end[-1]);
  if (last == '%') return VOWEL;
  if (last >= 0x80) {
    if (end - text < 3 || (unsigned char)end[-3] >> 4 != 0xE) return UNKNOWN;
    return hangul_ending(((unsigned)end[-3] & 0xFu) << 12 | ((unsigned)end[-2] & 0x3Fu) << 6 |
                         ((unsigned)end[-1] & 0x3Fu));
  }
  if (!isalpha(last)) return UNKNOWN;
  const char *word = end;
  while (word > text && isalpha((unsigned char)word[-1])) word--;
  // units after numbers (64 MiB, 3.2 ms, 5 GB/s) all end in a vowel: 바이트, 초
  const char *number = word;
  while (number > text && strchr(" /", number[-1])) number--;
  static const char *const units[] = {"B",  "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB",
                                      "TB", "s",   "ms",  "us",  "ns",  "W",  "Hz", "MHz"};
  if (number > text && isdigit((unsigned char)number[-1])) {
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
      if (strlen(units[i]) == (size_t)(end - word) &&
          strncmp(units[i], word, strlen(units[i])) == 0)
        return VOWEL;
    }
  }
  return word_ending(word, (size_t)(end - word));
}

static const particle *particle_at(const char *p) {
  for (size_t i = 0; i < sizeof particles / sizeof particles[0]; i++) {
    if (strncmp(p, particles[i].both, strlen(particles[i].both)) == 0) return &particles[i];
  }
  return NULL;
}

bool brim_msg_has_particle(const char *text) {
  for (const char *p = strchr(text, '('); p; p = strchr(p + 1, '(')) {
    if (particle_at(p) || (p - text >= 3 && particle_at(p - 3))) return true;
  }
  return false;
}

size_t brim_msg_particles(char *text, size_t from) {
  char *out = text + from;
  for (const char *in = out; *in;) {
    // a particle starts with 0xEA to 0xEC (Hangul) or '('
    const particle *found = *in == '(' || (unsigned char)*in >= 0xEA ? particle_at(in) : NULL;
    ending how = found ? ending_of(text, out) : UNKNOWN;
    if (how == UNKNOWN) {
      // copy an unresolved double form whole, since the 가 in it is no particle
      size_t n = found ? strlen(found->both) : 1;
      memmove(out, in, n);
      out += n;
      in += n;
      continue;
    }
    bool vowel = how == VOWEL || (how == RIEUL && found->both[0] == '(');
    const char *chosen = vowel ? found->after_vowel : found->after_consonant;
    in += strlen(found->both);
    memcpy(out, chosen, strlen(chosen));
    out += strlen(chosen);
  }
  *out = '\0';
  return (size_t)(out - text);
}

size_t brim_msg_format(char *out, size_t size, const char *fmt, ...) {
  if (size == 0) return 0;
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(out, size, fmt, args);
  va_end(args);
  if (n < 0) out[0] = '\0';
  size_t length = n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
  return brim_msg_has_particle(fmt) ? brim_msg_particles(out, 0) : length;
}
