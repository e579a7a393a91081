// The client on libcurl (lab_http_client.h), which is loaded when a client is opened.

#include "lab/http/lab_http_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base_alloc.h"
#include "base/base_dl.h"
#include "base/base_status.h"
#include "lab/http/lab_http_pin.h"

#define CURL_MAP(X) \
  X(easy_init)      \
  X(easy_cleanup)   \
  X(easy_reset)     \
  X(easy_setopt)    \
  X(easy_getinfo)   \
  X(easy_perform)   \
  X(easy_strerror)  \
  X(slist_append)   \
  X(slist_free_all)

typedef struct curl_api {
#define X(name) __typeof__(&curl_##name) name;
  CURL_MAP(X)
#undef X
} curl_api;

enum { CONNECT_MS = 10000, TIMEOUT_MS = 60000, REPLY_MAX = 64 << 20, QUIET_S = 60 };

struct brim_http_client {
  curl_api api;
  brim_dl *dl;
  CURL *curl;
  char *url, *token, *ca, *pin;  // url without a slash at its end
  int64_t connect_ms, timeout_ms;
  size_t reply_max;
  char error[CURL_ERROR_SIZE];
};

// The destination of a reply: `answer`, or `fn` for each piece.
typedef struct sink {
  brim_http_answer *answer;
  brim_http_piece_fn fn;
  void *ctx;
  brim_http_client *client;  // asked for the reply's status; set with `fn` only
  int *code;                 // status of the reply, set before the first call of `fn`
  size_t most;               // longest body of a reply, in bytes
  bool headers_complete;     // the headers are complete
  brim_status status;        // reason why brim ended the transfer
} sink;

void brim_http_answer_init(brim_http_answer *answer) {
  *answer = (brim_http_answer){0};
  brim_str_init(&answer->body);
}

void brim_http_answer_deinit(brim_http_answer *answer) { brim_str_deinit(&answer->body); }

//---------------------------------- opening ----------------------------------

static bool good_url(const char *url, bool *plain) {
  *plain = strncasecmp(url, "http://", 7) == 0;
  bool tls = strncasecmp(url, "https://", 8) == 0;
  const char *host = url + (tls ? 8 : 7);
  return (*plain || tls) && *host && *host != '/' && !strpbrk(host, "@?# \t\r\n\\");
}

static brim_status check(const brim_http_client_options *o) {
  bool plain;
  if (!o->url || !good_url(o->url, &plain)) {
    return brim_fail(BRIM_EINVAL, "%s is no address of a server; it looks like https://server:8000",
                     o->url ? o->url : "");
  }
  if (plain && !o->insecure) {
    return brim_fail(
        BRIM_EINVAL,
        "%s is not encrypted; use https://, or --insecure where every computer between "
        "here and the server may read along",
        o->url);
  }
  if (o->pin && !brim_http_pin_is_good(o->pin)) {
    return brim_fail(BRIM_EINVAL,
                     "'%.80s' is no pin: it is sha256// and 44 characters, as brim serve prints it",
                     o->pin);
  }
  if (o->token && strpbrk(o->token, "\r\n")) {
    return brim_fail(BRIM_EINVAL, "the token has a line break in it");
  }
  return BRIM_OK;
}

static brim_status copy(const char *text, char **out) {
  if (!text) return BRIM_OK;
  *out = brim_strdup(text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a connection");
}

// Loads libcurl. BRIM_EUNSUPPORTED: it is not installed; the detail says how to install it.
static brim_status load(curl_api *out, brim_dl **dl) {
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
  const brim_dl_symbol symbols[] = {
#define X(name) {"curl_" #name, (void **)(void *)&out->name, true},
      CURL_MAP(X)
#undef X
  };
  if (!brim_dl_open(names, symbols, sizeof symbols / sizeof *symbols, true, dl)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "a server is reached through libcurl (Debian: apt-get install libcurl4): %s",
                   brim_status_detail());
}

static brim_status open_client(const brim_http_client_options *o, brim_http_client *c) {
  BRIM_TRY(copy(o->url, &c->url));
  BRIM_TRY(copy(o->token, &c->token));
  BRIM_TRY(copy(o->ca, &c->ca));
  BRIM_TRY(copy(o->pin, &c->pin));
  for (size_t n = strlen(c->url); n > 0 && c->url[n - 1] == '/'; n--) c->url[n - 1] = '\0';
  c->connect_ms = o->connect_ms > 0 ? o->connect_ms : CONNECT_MS;
  c->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TIMEOUT_MS;
  c->reply_max = o->reply_max > 0 ? o->reply_max : REPLY_MAX;
  BRIM_TRY(load(&c->api, &c->dl));
  c->curl = c->api.easy_init();
  return c->curl ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a connection");
}

brim_status brim_http_client_open(const brim_http_client_options *options, brim_http_client **out) {
  *out = NULL;
  BRIM_TRY(check(options));
  brim_http_client *c = (brim_http_client *)brim_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory for a connection");
  brim_status status = open_client(options, c);
  if (status) {
    brim_http_client_close(c);
    return status;
  }
  *out = c;
  return BRIM_OK;
}

void brim_http_client_close(brim_http_client *c) {
  if (!c) return;
  if (c->curl) c->api.easy_cleanup(c->curl);
  brim_dl_close(c->dl);
  if (c->token) explicit_bzero(c->token, strlen(c->token));
  brim_free(c->url);
  brim_free(c->token);
  brim_free(c->ca);
  brim_free(c->pin);
  brim_free(c);
}

//---------------------------------- a call ----------------------------------

static size_t take_body(char *data, size_t one, size_t count, void *ctx) {
  sink *s = (sink *)ctx;
  size_t size = one * count;
  if (s->fn) {
    long code = 0;
    s->client->api.easy_getinfo(s->client->curl, CURLINFO_RESPONSE_CODE, &code);
    *s->code = (int)code;
    s->status = s->fn(s->ctx, data, size);
  } else if (s->answer->body.len + size > s->most) {
    s->status = brim_fail(BRIM_ELIMIT, "the reply of the server is longer than %zu bytes", s->most);
  } else {
    brim_str_append_n(&s->answer->body, data, size);
    s->status = brim_str_status(&s->answer->body);
  }
  return s->status ? 0 : size;
}

static void keep_header(const char *name, const char *data, size_t size, char *out, size_t room) {
  size_t n = strlen(name);
  if (size <= n || strncasecmp(data, name, n) != 0) return;
  while (n < size && data[n] == ' ') n++;
  size_t length = size - n < room - 1 ? size - n : room - 1;
  memcpy(out, data + n, length);
  out[length] = '\0';
  out[strcspn(out, "\r\n")] = '\0';
}

static size_t take_header(char *data, size_t one, size_t count, void *ctx) {
  sink *s = (sink *)ctx;
  size_t size = one * count;
  // An empty line ends the headers.
  s->headers_complete = size > 0 && (data[0] == '\r' || data[0] == '\n');
  if (!s->answer) return size;
  keep_header("Upload-Offset:", data, size, s->answer->offset, sizeof s->answer->offset);
  keep_header("Set-Cookie:", data, size, s->answer->cookie, sizeof s->answer->cookie);
  return size;
}

// Sets the options that all calls share.
static void set_common(brim_http_client *c, sink *s) {
  const curl_api *api = &c->api;
  api->easy_reset(c->curl);  // keeps the connection
  c->error[0] = '\0';
  api->easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
  api->easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->error);
  api->easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
  api->easy_setopt(c->curl, CURLOPT_FOLLOWLOCATION, 0L);
  api->easy_setopt(c->curl, CURLOPT_PROXY, "");  // ignore proxies that the environment names
  api->easy_setopt(c->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  api->easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_ms);
  api->easy_setopt(c->curl, CURLOPT_TCP_KEEPALIVE, 1L);
  api->easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_body);
  api->easy_setopt(c->curl, CURLOPT_WRITEDATA, s);
  api->easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, take_header);
  api->easy_setopt(c->curl, CURLOPT_HEADERDATA, s);
  if (c->ca) api->easy_setopt(c->curl, CURLOPT_CAINFO, c->ca);
  if (!c->pin) return;
  // The pin names the key, so the certificate's signature does not matter.
  api->easy_setopt(c->curl, CURLOPT_PINNEDPUBLICKEY, c->pin);
  api->easy_setopt(c->curl, CURLOPT_SSL_VERIFYPEER, 0L);
  api->easy_setopt(c->curl, CURLOPT_SSL_VERIFYHOST, 0L);
}

static bool add_header(const brim_http_client *c, struct curl_slist **list, const char *text) {
  struct curl_slist *longer = c->api.slist_append(*list, text);
  if (longer) *list = longer;
  return longer != NULL;
}

static struct curl_slist *make_headers(const brim_http_client *c, const brim_http_call *call) {
  struct curl_slist *list = NULL;
  brim_str line;
  brim_str_init(&line);
  bool good = add_header(c, &list, "Expect:");  // no round trip before the body
  if (c->token) {
    brim_str_printf(&line, "Authorization: Bearer %s", c->token);
    good = good && !brim_str_status(&line) && add_header(c, &list, line.data);
    explicit_bzero(line.data, line.len);
    brim_str_clear(&line);
  }
  if (call->body) {
    brim_str_printf(&line, "Content-Type: %s", call->type ? call->type : "application/json");
    good = good && !brim_str_status(&line) && add_header(c, &list, line.data);
  }
  for (const char *const *h = call->headers; good && h && *h; h++) good = add_header(c, &list, *h);
  brim_str_deinit(&line);
  if (good) return list;
  c->api.slist_free_all(list);
  return NULL;
}

// True if the TLS library reports that the server answered with plain text. OpenSSL and GnuTLS word it
// differently.
static bool is_plain_text(const char *why) {
  return strstr(why, "wrong version number") || strstr(why, "packet length") ||
         strstr(why, "unexpected TLS packet") || strstr(why, "unknown protocol");
}

static brim_status fail_call(const brim_http_client *c, CURLcode code) {
  const char *why = c->error[0] ? c->error : c->api.easy_strerror(code);
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      if (c->ca) {
        return brim_fail(BRIM_EINVAL, "the certificate of %s is not accepted: %s", c->url, why);
      }
      return brim_fail(BRIM_EINVAL,
                       "the certificate of %s is not accepted: %s; trust it with --pin or --ca "
                       "(BRIM_PIN, BRIM_CA)",
                       c->url, why);
    case CURLE_SSL_CACERT_BADFILE:
      return brim_fail(BRIM_EINVAL, "the certificate of %s is not accepted: %s", c->url, why);
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
      return brim_fail(BRIM_EINVAL,
                       "the certificate of %s has another key than the pin; brim serve prints the "
                       "pin when it starts",
                       c->url);
    case CURLE_SSL_CONNECT_ERROR:
      if (!is_plain_text(why)) {  // a server without TLS may also end up here
        return brim_fail(BRIM_EIO,
                         "%s does not answer by TLS: %s; without TLS its address begins with "
                         "http://",
                         c->url, why);
      }
      return brim_fail(BRIM_EIO, "%s does not use TLS; its address begins with http://", c->url);
    case CURLE_GOT_NOTHING:
      if (strncasecmp(c->url, "http://", 7) != 0) {
        return brim_fail(BRIM_EIO, "%s does not answer: %s", c->url, why);
      }
      return brim_fail(BRIM_EIO,
                       "%s ends connections without a reply; if it uses TLS, its address begins "
                       "with https://",
                       c->url);
    case CURLE_OUT_OF_MEMORY:
      return brim_fail(BRIM_ENOMEM, "out of memory for a request");
    default:
      return brim_fail(BRIM_EIO, "%s does not answer: %s", c->url, why);
  }
}

static brim_status perform(brim_http_client *c, const brim_http_call *call, sink *s, int *status) {
  const curl_api *api = &c->api;
  struct curl_slist *headers = make_headers(c, call);
  char *url = NULL;
  brim_str full;
  brim_str_init(&full);
  brim_str_printf(&full, "%s%s", c->url, call->path);
  url = brim_str_take(&full);
  CURLcode code = CURLE_OUT_OF_MEMORY;
  if (headers && url) {
    api->easy_setopt(c->curl, CURLOPT_URL, url);
    api->easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
    if (call->body) {
      api->easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_size);
      api->easy_setopt(c->curl, CURLOPT_POSTFIELDS, (const char *)call->body);
    }
    api->easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, call->method);
    code = api->easy_perform(c->curl);
  }
  long got = 0;
  if (code == CURLE_OK) api->easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &got);
  *status = (int)got;
  brim_free(url);
  api->slist_free_all(headers);
  if (s->status) return s->status;
  if (code) return fail_call(c, code);
  // libcurl accepts headers that were cut off as a reply without a body.
  return s->headers_complete ? BRIM_OK : brim_fail(BRIM_EIO, "the reply of %s was cut off", c->url);
}

brim_status brim_http_client_call(brim_http_client *c, const brim_http_call *call,
                                  brim_http_answer *out) {
  sink s = {.answer = out, .most = c->reply_max};
  brim_str_clear(&out->body);
  out->offset[0] = out->cookie[0] = '\0';
  set_common(c, &s);
  long most = (long)(call->timeout_ms > 0 ? call->timeout_ms : c->timeout_ms);
  c->api.easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, most);
  return perform(c, call, &s, &out->status);
}

brim_status brim_http_client_stream(brim_http_client *c, const char *path, int *status,
                                    brim_http_piece_fn fn, void *ctx) {
  sink s = {.fn = fn, .ctx = ctx, .client = c, .code = status};
  const brim_http_call call = {.method = "GET", .path = path};
  set_common(c, &s);
  // The server sends bytes even without news, so a silent connection is lost.
  c->api.easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  c->api.easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, (long)QUIET_S);
  return perform(c, &call, &s, status);
}
