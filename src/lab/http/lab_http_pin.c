// See lab_http_pin.h. Reads no more of DER than the way to the public key (RFC 5280, 4.1).
#include "lab/http/lab_http_pin.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_sha256.h"
#include "base/base_status.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static brim_status damaged(void) {
  return brim_fail(BRIM_EPARSE, "the certificate is no certificate in PEM form, or it is damaged");
}

//---------------------------------- base64 ----------------------------------

// The bytes between the two lines; `out` has room for 3/4 of the text.
static size_t decode(const char *text, const char *end, uint8_t *out) {
  uint32_t bits = 0;
  int have = 0;
  size_t n = 0;
  for (; text < end && *text != '='; text++) {
    const char *at = *text ? strchr(letters, *text) : NULL;
    if (!at) continue;  // ends of lines
    bits = bits << 6 | (uint32_t)(at - letters);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out[n++] = (uint8_t)(bits >> have);
  }
  return n;
}

static void encode(const uint8_t hash[32], char out[45]) {
  for (int i = 0; i < 11; i++) {
    uint32_t bits = 0;
    for (int k = 0; k < 3; k++) bits = bits << 8 | (3 * i + k < 32 ? hash[3 * i + k] : 0u);
    for (int k = 0; k < 4; k++) out[4 * i + k] = letters[bits >> (18 - 6 * k) & 63];
  }
  out[43] = '=';  // 32 bytes lack one of 33
  out[44] = '\0';
}

//---------------------------------- DER ----------------------------------

typedef struct der {
  const uint8_t *at, *end;
} der;

// The next element: its tag, its contents, and in *whole all of its bytes. False: it does not fit.
static bool next(der *d, uint8_t *tag, der *contents, der *whole) {
  const uint8_t *p = d->at;
  size_t length = 0;
  if (d->end - p < 2) return false;
  *tag = *p++;
  uint8_t first = *p++;
  if (first < 0x80) {
    length = first;
  } else {
    int n = first & 0x7f;
    if (n < 1 || n > 4 || d->end - p < n) return false;
    while (n-- > 0) length = length << 8 | *p++;
  }
  if ((size_t)(d->end - p) < length) return false;
  *contents = (der){p, p + length};
  *whole = (der){d->at, p + length};
  d->at = p + length;
  return true;
}

// Certificate: the first SEQUENCE has a version [0] that may be missing, a serial number, an algorithm, an
// issuer, a validity and a subject; then comes the key.
static bool find_key(der d, der *key) {
  der inner, whole, certificate, body;
  uint8_t tag;
  if (!next(&d, &tag, &certificate, &whole) || tag != 0x30) return false;
  if (!next(&certificate, &tag, &body, &whole) || tag != 0x30) return false;
  if (!next(&body, &tag, &inner, &whole)) return false;
  if (tag == 0xa0 && !next(&body, &tag, &inner, &whole)) return false;
  for (int i = 0; i < 5; i++) {
    if (!next(&body, &tag, &inner, &whole)) return false;
  }
  *key = whole;
  return tag == 0x30;
}

brim_status brim_http_pin(const char *pem, char out[BRIM_HTTP_PIN]) {
  static const char first[] = "-----BEGIN CERTIFICATE-----", last[] = "-----END CERTIFICATE-----";
  const char *begin = strstr(pem, first);
  const char *end = begin ? strstr(begin, last) : NULL;
  if (!end) return damaged();
  begin += sizeof first - 1;
  uint8_t *bytes = (uint8_t *)brim_alloc((size_t)(end - begin) + 1), hash[32];
  if (!bytes) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
  der key, all = {bytes, bytes + decode(begin, end, bytes)};
  bool found = find_key(all, &key);
  if (found) {
    char text[45];
    brim_sha256 h;
    brim_sha256_init(&h);
    brim_sha256_update(&h, key.at, (size_t)(key.end - key.at));
    brim_sha256_final(&h, hash);
    encode(hash, text);
    snprintf(out, BRIM_HTTP_PIN, "sha256//%s", text);
  }
  brim_free(bytes);
  return found ? BRIM_OK : damaged();
}
