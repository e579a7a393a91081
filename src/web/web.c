// Finds an embedded file by its name.
#include "web/web.h"

#include <string.h>

#include "web/web_int.h"

const brim_web_asset *brim_web_find(const char *name) {
  for (size_t i = 0; i < brim_web_asset_count; i++) {
    if (strcmp(brim_web_assets[i].name, name) == 0) return &brim_web_assets[i];
  }
  return NULL;
}
