// Paths and queries: accepted ones, and every known way around the rules.
#include "test.h"

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/http/lab_http_pin.h"
#include "lab/http/lab_http_url.h"

static void test_paths(void **state) {
  (void)state;
  const struct {
    const char *raw, *decoded;  // NULL = refused
  } rows[] = {{"/", "/"},
              {"/v1/exps", "/v1/exps"},
              {"/v1/exps/3f%20a", "/v1/exps/3f a"},
              {"/%EB%B8%8C", "/\xEB\xB8\x8C"},
              {"/a..b/...", "/a..b/..."},
              {"", NULL},
              {"v1", NULL},
              {"*", NULL},
              {"//", NULL},
              {"/v1//exps", NULL},
              {"/v1/", NULL},
              {"/..", NULL},
              {"/v1/../etc/passwd", NULL},
              {"/v1/%2e%2e/etc", NULL},
              {"/v1/%2E./etc", NULL},
              {"/v1/%252e%252e/etc", NULL},
              {"/v1/..%2fetc", NULL},
              {"/v1/%2e%2e%2fetc", NULL},
              {"/v1/..%5cetc", NULL},
              {"/v1/a%00.txt", NULL},
              {"/v1/a%0d%0aSet-Cookie:%20x", NULL},
              {"/v1/a%7f", NULL},
              {"/v1/%", NULL},
              {"/v1/%2", NULL},
              {"/v1/%zz", NULL},
              {"/v1/%ff%fe", NULL},
              {"/v1/%c0%ae%c0%ae/etc", NULL},
              {"/v1/.", NULL},
              {"/./v1", NULL}};
  char out[64];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_status status = brim_http_path_decode(rows[i].raw, out, sizeof out);
    if (status != (rows[i].decoded ? BRIM_OK : BRIM_EINVAL))
      fail_msg("%s: %d", rows[i].raw, status);
    if (rows[i].decoded) assert_string_equal(out, rows[i].decoded);
  }
  char tiny[4];
  assert_ok(brim_http_path_decode("/ab", tiny, sizeof tiny));
  assert_status(brim_http_path_decode("/abc", tiny, sizeof tiny), BRIM_EINVAL);
}

static void test_parts(void **state) {
  (void)state;
  char *parts[BRIM_HTTP_PARTS];
  char path[] = "/v1/exps/abc", root[] = "/", many[] = "/1/2/3/4/5/6/7/8/9";
  assert_int_equal(brim_http_path_split(path, parts), 3);
  assert_string_equal(parts[0], "v1");
  assert_string_equal(parts[2], "abc");
  assert_int_equal(brim_http_path_split(root, parts), 0);
  assert_int_equal(brim_http_path_split(many, parts), -1);
}

static void test_values(void **state) {
  (void)state;
  char out[32];
  brim_str text;
  assert_ok(brim_http_value_decode("a%20b%2Fc%25", out, sizeof out));
  assert_string_equal(out, "a b/c%");
  assert_status(brim_http_value_decode("a%00b", out, sizeof out), BRIM_EINVAL);
  assert_status(brim_http_value_decode("a%1bb", out, sizeof out), BRIM_EINVAL);
  assert_status(brim_http_value_decode("%e", out, sizeof out), BRIM_EINVAL);
  brim_str_init(&text);
  brim_http_escape(&text, "a b/\xEB\xB8\x8C?&~");
  assert_string_equal(text.data, "a%20b%2F%EB%B8%8C%3F%26~");
  brim_str_deinit(&text);
}

// The pin is what `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256
// -binary | openssl enc -base64` prints.
static const char certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBjTCCATOgAwIBAgIUCCswKNSNwIQ/HtJfs83zGIW7OG0wCgYIKoZIzj0EAwIw\n"
    "DjEMMAoGA1UEAwwDc3J2MB4XDTI2MTExNzE5MjExNVoXDTI3MTExNzE5MjExNVow\n"
    "DjEMMAoGA1UEAwwDc3J2MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnJNVX8gL\n"
    "MjzCbAs4TSEBl9xb0r4I9EDzop1CDYt0bSuXURtFi9IUoNJ+l+7+4vvSbB//fA+t\n"
    "ldvtdGmdccuN+KNvMG0wHQYDVR0OBBYEFJrHfJg469bDGLUavyF3codVX5+4MB8G\n"
    "A1UdIwQYMBaAFJrHfJg469bDGLUavyF3codVX5+4MA8GA1UdEwEB/wQFMAMBAf8w\n"
    "GgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMAoGCCqGSM49BAMCA0gAMEUCIQDK\n"
    "t+ioQbpw7ty/GjSgf/LxVzPnvHxsoyCGuizNTSjklgIgPfseTWbFqnyU0FkQmj4P\n"
    "gXfknWY1Z/S8MKOHXO8VhXI=\n"
    "-----END CERTIFICATE-----\n";

static void test_pins(void **state) {
  (void)state;
  char pin[BRIM_HTTP_PIN], cut[sizeof certificate + 32];
  assert_ok(brim_http_pin(certificate, pin));
  assert_string_equal(pin, "sha256//jrLsRjEvlFH7VFyA3tXIrRY2L1nFIZF17drc9oGJi30=");
  assert_status(brim_http_pin("", pin), BRIM_EPARSE);
  assert_status(brim_http_pin("-----BEGIN CERTIFICATE-----\n", pin), BRIM_EPARSE);
  // truncated at any byte: the lengths inside no longer fit
  const char *first = strchr(certificate, '\n') + 1, *last = strstr(certificate, "-----END");
  for (const char *end = first; end < last - 2; end++) {
    snprintf(cut, sizeof cut, "%.*s\n%s", (int)(end - certificate), certificate, last);
    assert_status(brim_http_pin(cut, pin), BRIM_EPARSE);
  }
}

static void test_end_of_certificate(void **state) {
  (void)state;
  int64_t end = 0;
  assert_ok(brim_http_certificate_end(certificate, &end));
  assert_int_equal(end, 1826479275);  // 2027-11-17T19:21:15Z, as openssl x509 -enddate prints it
  assert_status(brim_http_certificate_end("", &end), BRIM_EPARSE);
}

static void test_good_pins(void **state) {
  (void)state;
#define PIN "sha256//jrLsRjEvlFH7VFyA3tXIrRY2L1nFIZF17drc9oGJi30="
  static const char *const bad[] = {"",
                                    "abc",
                                    "sha256//",
                                    "sha256//abc",
                                    PIN ";",
                                    PIN "x",
                                    "sha256//jrLsRjEvlFH7VFyA3tXIrRY2L1nFIZF17drc9oGJi3.=",
                                    "jrLsRjEvlFH7VFyA3tXIrRY2L1nFIZF17drc9oGJi30="};
  assert_true(brim_http_pin_is_good(PIN));
  assert_true(brim_http_pin_is_good(PIN ";" PIN));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (brim_http_pin_is_good(bad[i])) fail_msg("'%s' is taken for a pin", bad[i]);
  }
#undef PIN
}

static void test_this_machine(void **state) {
  (void)state;
  static const char *const here[] = {
      "localhost", "LOCALHOST:8000", "127.0.0.1",  "127.255.0.3:80/v1",
      "::1",       "[::1]",          "[::1]:8000", "127.0.0.1/"};
  static const char *const elsewhere[] = {"127.evil.example",
                                          "127.0.0.1.evil.example",
                                          "localhost.evil",
                                          "127.1",
                                          "127.0.0.1@evil",
                                          "",
                                          "0.0.0.0",
                                          "::",
                                          "[::1",
                                          "[::1]x",
                                          "[::2]",
                                          "128.0.0.1",
                                          "localhost x"};
  for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
    if (!brim_http_is_loopback(here[i])) fail_msg("%s", here[i]);
  }
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
    if (brim_http_is_loopback(elsewhere[i])) fail_msg("%s", elsewhere[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_this_machine), cmocka_unit_test(test_paths),
      cmocka_unit_test(test_parts),        cmocka_unit_test(test_values),
      cmocka_unit_test(test_pins),         cmocka_unit_test(test_end_of_certificate),
      cmocka_unit_test(test_good_pins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
