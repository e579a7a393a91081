// The message catalogue: one sorted table set by main, searched by the English text.
#include "base/base_msg.h"

#include <stdlib.h>
#include <string.h>

// Written once by main before threads start, read only afterwards.
static const brim_msg_pair *catalogue;
static int catalogue_count;

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
  return hit && hit->translated ? hit->translated : english;
}
