// See lab_link_http.h.
#include "lab/lab_link_http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base_json.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/http/lab_http_client.h"
#include "lab/http/lab_http_url.h"

bool brim_lab_is_server(const char *place) {
  return strncasecmp(place, "http://", 7) == 0 || strncasecmp(place, "https://", 8) == 0;
}

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

// The way to this machine itself needs no TLS.
static bool is_local(const char *url) { return brim_http_is_loopback(strstr(url, "://") + 3); }

// For a whole request: as the environment says, or six times what a connection may take.
static int64_t call_ms(int64_t connect_ms) {
  const char *text = variable(BRIM_LAB_TIMEOUT_ENV);
  double s = text ? strtod(text, NULL) : 0;
  return s >= 0.1 && s <= 3600 ? (int64_t)(s * 1e3) : 6 * connect_ms;
}

brim_status brim_lab_http_open(const char *url, int64_t timeout_ms, struct brim_http_client **out) {
  const char *insecure = variable(BRIM_LAB_INSECURE_ENV);
  const brim_http_client_options how = {
      .url = url,
      .token = variable(BRIM_LAB_TOKEN_ENV),
      .ca = variable(BRIM_LAB_CA_ENV),
      .pin = variable(BRIM_LAB_PIN_ENV),
      .insecure = is_local(url) || (insecure && strcmp(insecure, "1") == 0),
      .connect_ms = timeout_ms,
      .timeout_ms = call_ms(timeout_ms)};
  return brim_http_client_open(&how, out);
}

// A reply that is no line of the protocol: the server's own refusal, or another program's.
static brim_status refused(int status, const brim_str *body) {
  json_t *value = NULL;
  char text[256] = "";
  if (!brim_json_parse(body->data, body->len, "reply", &value)) {
    const char *error = json_string_value(json_object_get(value, "error"));
    snprintf(text, sizeof text, "%s", error ? error : "");
  }
  json_decref(value);
  brim_status_clear();
  switch (status) {
    case 401:
      return brim_fail(BRIM_EINVAL,
                       variable(BRIM_LAB_TOKEN_ENV)
                           ? BRIM_N_("the server does not know the token (%s)")
                           : BRIM_N_("the server asks for a token; set %s"),
                       BRIM_LAB_TOKEN_ENV);
    case 403:
      return brim_fail(BRIM_EINVAL, "the server refuses: %s", text);
    case 413:
      return brim_fail(BRIM_ELIMIT, "the server refuses: %s", text);
    case 404:
      return brim_fail(BRIM_ENOENT,
                       "no brim serve answers at this address; its URL ends with the port");
    default:
      return brim_fail(BRIM_EIO, "the server answers with status %d: %s", status, text);
  }
}

brim_status brim_lab_http_call(struct brim_http_client *client, const brim_str *request,
                               brim_str *out) {
  const brim_http_call call = {
      .method = "POST", .path = "/v1/call", .body = request->data, .body_size = request->len};
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  brim_status status = brim_http_client_call(client, &call, &answer);
  if (!status && !strstr(answer.body.data, "\"ok\":")) {
    status = refused(answer.status, &answer.body);
  }
  if (!status) {
    brim_str_append_n(out, answer.body.data, answer.body.len);
    status = brim_str_status(out);
  }
  brim_http_answer_deinit(&answer);
  return status;
}
