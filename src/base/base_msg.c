// The message catalogue: one sorted table set by main, searched by the English text.
#include "base/base_msg.h"

#include <stdlib.h>
#include <string.h>

// Written once by main before threads start, read only afterwards.
static const brim_msg_pair *catalogue;
static int catalogue_count;

// Likewise: messages of what was added to the program, in the language that is not the sources'.
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
