// Paths, queries and hosts of URLs (lab_http_url.h).

#include "lab/http/lab_http_url.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base_status.h"

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static bool unescape(const char *raw, char *out, size_t size) {
  size_t n = 0;
  for (const char *p = raw; *p; p++) {
    char c = *p;
    if (c == '%') {
      int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
      if (low < 0) return false;
      c = (char)(high * 16 + low);
      if (c == '\0') return false;
      p += 2;
    }
    if (n + 1 >= size) return false;
    out[n++] = c;
  }
  out[n] = '\0';
  return brim_utf8_valid(out, n);
}

static bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

static bool good_part(const char *part, size_t n) {
  if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.')) {
    return false;
  }
  for (size_t i = 0; i < n; i++) {
    if (is_control(part[i]) || part[i] == '%' || part[i] == '\\') return false;
  }
  return true;
}

brim_status brim_http_path_decode(const char *raw, char *out, size_t size) {
  bool good = raw[0] == '/' && unescape(raw, out, size);
  if (good && strcmp(out, "/") == 0) return BRIM_OK;
  for (const char *p = out; good && *p == '/';) {
    size_t n = strcspn(p + 1, "/");
    good = good_part(p + 1, n);
    p += 1 + n;
  }
  return good ? BRIM_OK : brim_fail(BRIM_EINVAL, "the path of the request is malformed");
}

int brim_http_path_split(char *path, char *parts[BRIM_HTTP_PARTS]) {
  int n = 0;
  for (char *p = path; *p == '/' && p[1];) {
    if (n == BRIM_HTTP_PARTS) return -1;
    *p++ = '\0';
    parts[n++] = p;
    p += strcspn(p, "/");
  }
  return n;
}

brim_status brim_http_value_decode(const char *raw, char *out, size_t size) {
  bool good = unescape(raw, out, size);
  for (const char *p = out; good && *p; p++) good = !is_control(*p) || *p == '\t' || *p == '\n';
  return good ? BRIM_OK : brim_fail(BRIM_EINVAL, "a value of the request's query is malformed");
}

void brim_http_escape(brim_str *out, const char *text) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  for (; *text; text++) {
    if (strchr(plain, *text)) {
      brim_str_append_char(out, *text);
    } else {
      brim_str_printf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
  }
}

bool brim_http_is_loopback(const char *host) {
  char name[64];
  struct in_addr address;
  if (strcmp(host, "::1") == 0) return true;
  size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
  if (n >= sizeof name || (host[0] == '[' && host[n - 1] != ']')) return false;
  if (host[n] != '\0' && host[n] != ':' && host[n] != '/') return false;
  snprintf(name, sizeof name, "%.*s", (int)n, host);
  if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0) return true;
  return inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}
