// Where a store is, as text: URLs of PostgreSQL, and the passwords in them, which no message shows.
#include <string.h>

#include "base/base_str.h"
#include "lab/store/lab_store.h"

// The next password behind `from` in the URL that begins at `url` and ends at `end`.
static bool next_secret(const char *url, const char *end, const char *from, const char **at,
                        size_t *size) {
  const char *host = strstr(url, "://") + 3, *sign = NULL;
  size_t authority = strcspn(host, "/?#");
  for (const char *p = host; p < end && p < host + authority; p++) {
    if (*p == '@') sign = p;
  }
  const char *colon = sign ? memchr(host, ':', (size_t)(sign - host)) : NULL;
  if (colon && colon + 1 > from) {
    *at = colon + 1;
    *size = (size_t)(sign - colon - 1);
    return true;
  }
  const char *secret = sign && sign > from ? sign : from > host ? from : host;
  secret = strstr(secret, "password=");
  if (!secret || secret >= end) return false;
  *at = secret + strlen("password=");
  *size = strcspn(*at, "&");
  if (*at + *size > end) *size = (size_t)(end - *at);
  return true;
}

bool brim_store_find_password(const char *text, const char *from, const char **at, size_t *size) {
  static const char *const schemes[] = {"postgres://", "postgresql://"};
  for (const char *p = text; (p = strstr(p, "postgres")) != NULL; p++) {
    bool url = false;
    for (size_t i = 0; i < 2; i++) url = url || strncmp(p, schemes[i], strlen(schemes[i])) == 0;
    if (!url) continue;
    const char *end = p + strcspn(p, " \t\r\n\"'");
    if (end > from && next_secret(p, end, from, at, size)) return true;
  }
  return false;
}

bool brim_store_star_passwords(char *text) {
  const char *secret;
  size_t size;
  bool found = false;
  for (const char *from = text; brim_store_find_password(text, from, &secret, &size);
       from = secret + size) {
    memset(text + (secret - text), '*', size);
    found = true;
  }
  return found;
}

// postgres://user:secret@host becomes postgres://user@host, and password=secret password=...
void brim_store_put_shown(brim_str *out, const char *text) {
  const char *from = text, *secret;
  size_t size;
  while (brim_store_find_password(text, from, &secret, &size)) {
    bool user = secret[-1] == ':';
    brim_str_append_n(out, from, (size_t)(secret - from) - user);
    if (!user) brim_str_append(out, "...");
    from = secret + size;
  }
  brim_str_append(out, from);
}

char *brim_store_place_shown(const char *place) {
  brim_str out;
  brim_str_init(&out);
  brim_store_put_shown(&out, place);
  return brim_str_take(&out);
}
