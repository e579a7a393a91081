// The pin of a certificate: a hash of the server's public key. A client that has the pin compares the key
// instead of checking the certificate's signature.
#ifndef BRIM_LAB_HTTP_PIN_H_
#define BRIM_LAB_HTTP_PIN_H_

#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

enum { BRIM_HTTP_PIN = 53 };  // "sha256//", 44 letters and a NUL

// True if the text has the form of one pin, or of several separated by ';'.
bool brim_http_pin_is_good(const char *pin);
// Computes the pin of the first certificate in a PEM text. BRIM_EPARSE: no certificate, or a damaged
// one.
brim_status brim_http_pin(const char *pem, char out[BRIM_HTTP_PIN]);
// Reads when the first certificate expires: seconds since 1970.
brim_status brim_http_certificate_end(const char *pem, int64_t *out);

#endif  // BRIM_LAB_HTTP_PIN_H_
