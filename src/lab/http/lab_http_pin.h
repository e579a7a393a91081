// The pin of a certificate: what a client compares the server's public key with, in place of checking the
// signature of the certificate.
#ifndef BRIM_LAB_HTTP_PIN_H_
#define BRIM_LAB_HTTP_PIN_H_

#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_HTTP_PIN = 53 };  // "sha256//", 44 letters and a NUL

// Whether a text can be one, or several with ';' between them.
bool brim_http_pin_is_good(const char *pin);
// Of the first certificate of a PEM text. BRIM_EPARSE: it has none, or the certificate is damaged.
brim_status brim_http_pin(const char *pem, char out[BRIM_HTTP_PIN]);
// When the same certificate ends: seconds since 1970.
brim_status brim_http_certificate_end(const char *pem, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_HTTP_PIN_H_
