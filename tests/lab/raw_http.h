// Requests byte by byte, for tests that send what no client would send. Replies are read until the server closes, or to
// the end of the head if the body is a stream.
#ifndef BRIM_TESTS_LAB_RAW_HTTP_H_
#define BRIM_TESTS_LAB_RAW_HTTP_H_

#include "test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/base_str.h"

typedef struct raw_reply {
  int status;  // of the first reply; 0: none
  int count;   // number of replies
  char text[16384];
} raw_reply;

static inline int raw_dial(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct timeval most = {.tv_sec = 30};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  return fd;
}

// A server that refused the head may close while the body is being sent.
static inline bool raw_send(int fd, const char *data, size_t size) {
  while (size > 0) {
    ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= (size_t)n;
  }
  return true;
}

static inline void raw_read(int fd, raw_reply *r) {
  size_t n = 0;
  for (ssize_t got; n + 1 < sizeof r->text; n += (size_t)got) {
    got = recv(fd, r->text + n, sizeof r->text - 1 - n, 0);
    if (got <= 0) break;
    r->text[n + (size_t)got] = '\0';
    if (strstr(r->text, "Transfer-Encoding: chunked") && strstr(r->text, "\r\n\r\n")) {
      n += (size_t)got;
      break;
    }
  }
  r->text[n] = '\0';
  r->status = strncmp(r->text, "HTTP/1.", 7) == 0 ? atoi(r->text + 9) : 0;
  r->count = 0;
  for (const char *p = r->text; (p = strstr(p, "HTTP/1.1 ")) != NULL; p++) r->count++;
}

static inline int raw_bytes(int port, const char *data, size_t size, raw_reply *r) {
  int fd = raw_dial(port);
  (void)raw_send(fd, data, size);
  raw_read(fd, r);
  close(fd);
  return r->status;
}

// `headers`: lines with their "\r\n"; NULL: none. A body adds its Content-Length.
static inline int raw_ask(int port, const char *method, const char *path, const char *headers,
                          const char *body, raw_reply *r) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s %s HTTP/1.1\r\nConnection: close\r\n", method, path);
  if (!headers || !strstr(headers, "Host:")) brim_str_append(&text, "Host: localhost\r\n");
  if (headers) brim_str_append(&text, headers);
  if (body) brim_str_printf(&text, "Content-Length: %zu\r\n", strlen(body));
  brim_str_printf(&text, "\r\n%s", body ? body : "");
  int status = raw_bytes(port, text.data, text.len, r);
  brim_str_deinit(&text);
  return status;
}

#endif  // BRIM_TESTS_LAB_RAW_HTTP_H_
