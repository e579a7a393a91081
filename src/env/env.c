// The environments brim has itself, and the words of their arguments.
#include "env/env.h"

#include <string.h>

#include "env/cartpole/cartpole.h"
#include "env/quadruped/quadruped.h"

static const brim_env_row *const rows[] = {&brim_quadruped_row, &brim_cartpole_row};

const brim_env_row *brim_env_at(size_t index) {
  return index < sizeof rows / sizeof *rows ? rows[index] : NULL;
}

const brim_env_row *brim_env_find(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i]->name, name) == 0) return rows[i];
  }
  return NULL;
}

int32_t brim_env_choice(const char *choices, const char *word) {
  const size_t length = strlen(word);
  int32_t index = 0;
  for (const char *at = choices; at; index++) {
    const char *end = strchr(at, '|');
    size_t has = end ? (size_t)(end - at) : strlen(at);
    if (has == length && memcmp(at, word, length) == 0) return index;
    at = end ? end + 1 : NULL;
  }
  return -1;
}

const char *brim_env_choice_name(const char *choices, int32_t index, char *out, size_t size) {
  const char *at = choices;
  for (; at && index > 0; index--) {
    at = strchr(at, '|');
    if (at) at++;
  }
  size_t has = at ? strcspn(at, "|") : 0;
  if (has >= size) has = size - 1;
  if (has) memcpy(out, at, has);
  out[has] = 0;
  return out;
}
