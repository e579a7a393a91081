// Pins of certificates (lab_http_pin.h). Reads only the parts of the DER that lead to the public key
// and the validity (RFC 5280, 4.1).
#include "lab/http/lab_http_pin.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base_alloc.h"
#include "base/base_sha256.h"
#include "base/base_status.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static brim_status fail_damaged(void) {
  return brim_fail(BRIM_EPARSE, "the certificate is no certificate in PEM form, or it is damaged");
}

//---------------------------------- base64 ----------------------------------

// Decodes the text up to `end` and returns the number of bytes; `out` has room for 3/4 of the text.
static size_t decode(const char *text, const char *end, uint8_t *out) {
  uint32_t bits = 0;
  int have = 0;
  size_t n = 0;
  for (; text < end && *text != '='; text++) {
    const char *at = *text ? strchr(letters, *text) : NULL;
    if (!at) continue;  // line ends
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
  out[43] = '=';  // 32 bytes are 10 groups of 3 and one of 2, which needs one '='
  out[44] = '\0';
}

//---------------------------------- DER ----------------------------------

typedef struct der {
  const uint8_t *at, *end;
} der;

// Reads the next element: its tag, its contents, and in *whole all its bytes. False: the element is cut
// off.
static bool next_element(der *d, uint8_t *tag, der *contents, der *whole) {
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

typedef struct parts {
  der validity, key;  // validity: contents of its element; key: all bytes of its element
} parts;

// Finds validity and key. The first SEQUENCE of a certificate has a version [0] that may be missing, a
// serial number, an algorithm, an issuer, a validity, a subject and the key.
static bool find_parts(der d, parts *out) {
  enum { VALIDITY = 2, KEY = 4 };
  der inner, whole, certificate, body;
  uint8_t tag;
  if (!next_element(&d, &tag, &certificate, &whole) || tag != 0x30) return false;
  if (!next_element(&certificate, &tag, &body, &whole) || tag != 0x30) return false;
  if (!next_element(&body, &tag, &inner, &whole)) return false;
  if (tag == 0xa0 && !next_element(&body, &tag, &inner, &whole)) return false;
  for (int i = 0; i <= KEY; i++) {
    if (!next_element(&body, &tag, &inner, &whole)) return false;
    if (i == VALIDITY) out->validity = inner;
  }
  out->key = whole;
  return tag == 0x30;
}

// Calls `use` with the parts of the first certificate. `use` returns false if they are damaged.
static brim_status read_pem(const char *pem, bool (*use)(const parts *p, void *ctx), void *ctx) {
  static const char first[] = "-----BEGIN CERTIFICATE-----", last[] = "-----END CERTIFICATE-----";
  const char *begin = strstr(pem, first);
  const char *end = begin ? strstr(begin, last) : NULL;
  if (!end) return fail_damaged();
  begin += sizeof first - 1;
  uint8_t *bytes = (uint8_t *)brim_alloc((size_t)(end - begin) + 1);
  if (!bytes) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
  parts p;
  const der all = {bytes, bytes + decode(begin, end, bytes)};
  const bool good = find_parts(all, &p) && use(&p, ctx);
  brim_free(bytes);
  return good ? BRIM_OK : fail_damaged();
}

static bool take_pin(const parts *p, void *ctx) {
  char *out = (char *)ctx, text[45];
  uint8_t hash[32];
  brim_sha256 h;
  brim_sha256_init(&h);
  brim_sha256_update(&h, p->key.at, (size_t)(p->key.end - p->key.at));
  brim_sha256_final(&h, hash);
  encode(hash, text);
  snprintf(out, BRIM_HTTP_PIN, "sha256//%s", text);
  return true;
}

brim_status brim_http_pin(const char *pem, char out[BRIM_HTTP_PIN]) {
  return read_pem(pem, take_pin, out);
}

// Reads a number of two digits.
static bool take_two_digits(der *d, int *out) {
  if (d->end - d->at < 2 || d->at[0] < '0' || d->at[0] > '9' || d->at[1] < '0' || d->at[1] > '9') {
    return false;
  }
  *out = 10 * (d->at[0] - '0') + d->at[1] - '0';
  d->at += 2;
  return true;
}

// Reads the second of two times: UTCTime 491231235959Z until 2049, GeneralizedTime 20500101000000Z
// later.
static bool take_end(const parts *p, void *ctx) {
  der d = p->validity, time, whole;
  uint8_t tag = 0;
  int century = 0, year = 0, rest[5];  // month, day, hour, minute, second
  if (!next_element(&d, &tag, &time, &whole) || !next_element(&d, &tag, &time, &whole))
    return false;
  if (tag != 0x17 && tag != 0x18) return false;
  if (tag == 0x18 && !take_two_digits(&time, &century)) return false;
  if (!take_two_digits(&time, &year)) return false;
  if (tag == 0x17) century = year < 50 ? 20 : 19;
  for (int i = 0; i < 5; i++) {
    if (!take_two_digits(&time, &rest[i])) return false;
  }
  struct tm when = {.tm_year = 100 * century + year - 1900,
                    .tm_mon = rest[0] - 1,
                    .tm_mday = rest[1],
                    .tm_hour = rest[2],
                    .tm_min = rest[3],
                    .tm_sec = rest[4]};
  *(int64_t *)ctx = (int64_t)timegm(&when);
  return true;
}

brim_status brim_http_certificate_end(const char *pem, int64_t *out) {
  *out = 0;
  return read_pem(pem, take_end, out);
}

bool brim_http_pin_is_good(const char *pin) {
  static const char start[] = "sha256//";
  for (;;) {
    if (strncmp(pin, start, sizeof start - 1) != 0) return false;
    pin += sizeof start - 1;
    if (strspn(pin, letters) != 43 || pin[43] != '=') return false;
    pin += 44;
    if (*pin == '\0') return true;
    if (*pin++ != ';') return false;
  }
}
