// Fuzz: any bytes as the input of a client. The first byte chooses: the functions that read paths, queries, addresses
// and bodies; a request made of lines; or raw bytes of a connection. A server in this process answers without asking
// for a token, so every row of its table can be reached. It must stay usable, its replies must be well-formed, and none
// of them may be a failure of the server itself.
#include <arpa/inet.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/http/lab_http_client.h"
#include "lab/http/lab_http_url.h"
#include "lab/pool/lab_pool_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Memory that the server's threads hold between two inputs looks like a leak, and each check for leaks takes a second.
// The server's own tests check for leaks.
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

static brim_store *store;
static brim_lab_pool *pool;
static char folder[64];

static void must(bool fine) {
  if (!fine) abort();
}

static int drop(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info;
  (void)kind;
  (void)at;
  return remove(path);
}

static void close_all(void) {
  brim_lab_pool_close(pool);
  brim_store_close(store);
  nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
}

// Three experiments, the first one claimed by worker "w": the corpus names them.
static void open_all(void) {
  bool memory = access("/dev/shm", W_OK) == 0;
  static char files[80];
  snprintf(folder, sizeof folder, "%s/brim-http-%ld", memory ? "/dev/shm" : "/tmp", (long)getpid());
  snprintf(files, sizeof files, "%s/files", folder);
  must(!brim_store_open(folder, NULL, &store));
  atexit(close_all);
  const brim_store_point points[] = {
      {.id = "00000000000000000000000000000001", .config = "{\"a\": 1}", .tries = 1},
      {.id = "00000000000000000000000000000002", .config = "a: 2", .idx = 1},
      {.id = "10000000000000000000000000000000", .config = "", .idx = 2},
  };
  brim_store_submitted submitted;
  brim_store_claimed claimed = {0};
  must(!brim_store_submit(store, &(brim_store_grid){.id = "g"}, points, 3, &submitted));
  must(!brim_store_claim(
      store,
      &(brim_store_request){.worker = "w", .claim_id = "c", .exp = points[0].id, .free_bytes = -1},
      &claimed));
  brim_store_exp_free(claimed.exp);
  const brim_lab_pool_options options = {
      .store = store, .version = "fuzz", .files = files, .idle_ms = 2000, .request_ms = 2000};
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) {
    fprintf(stderr, "skipped: %s\n", brim_status_detail());
    _exit(77);
  }
  must(!status);
}

//---------------------------------- functions ----------------------------------

static void try_path(const char *text) {
  static const char *const methods[] = {"GET", "POST", "DELETE"};
  char decoded[BRIM_HTTP_PATH_MAX], copy[BRIM_HTTP_PATH_MAX], *parts[BRIM_HTTP_PARTS];
  if (brim_http_path_decode(text, decoded, sizeof decoded)) return;
  must(decoded[0] == '/' && !strstr(decoded, "/../") && !strstr(decoded, "//"));
  memcpy(copy, decoded, sizeof copy);
  int count = brim_http_path_split(copy, parts);
  must(count <= BRIM_HTTP_PARTS);
  for (int i = 0; i < count; i++) {
    must(parts[i][0] && strcmp(parts[i], "..") != 0 && strcmp(parts[i], ".") != 0);
    must(!strpbrk(parts[i], "/\\%\r\n"));
  }
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    json_t *request = json_object();
    bool known;
    const brim_pool_route *r = brim_pool_route_find(methods[i], decoded, request, &known);
    must(!r || known);
    json_decref(request);
  }
}

// A value that was escaped decodes to the same value.
static void try_value(const char *text) {
  char decoded[BRIM_HTTP_PATH_MAX], again[BRIM_HTTP_PATH_MAX];
  brim_str escaped;
  if (brim_http_value_decode(text, decoded, sizeof decoded)) return;
  brim_str_init(&escaped);
  brim_http_escape(&escaped, decoded);
  must(!brim_http_value_decode(escaped.data, again, sizeof again));
  must(strcmp(decoded, again) == 0);
  brim_str_deinit(&escaped);
}

static void try_address(const char *text) {
  brim_http_client *client = NULL;
  const brim_http_client_options how = {.url = text};
  if (!brim_http_client_open(&how, &client)) must(!strpbrk(text, "\r\n @"));
  brim_http_client_close(client);
  brim_pool_auth auth;
  const brim_lab_pool_options options = {0};
  brim_pool_auth_init(&auth, &options);
  for (int i = 0; i < 30; i++) must((brim_pool_auth_bad(&auth, text, 1000) > 0) == (i >= 20));
  brim_pool_auth_deinit(&auth);
}

//---------------------------------- connections ----------------------------------

static int dial(void) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)brim_lab_pool_port(pool)),
                          .sin_addr = {htonl(INADDR_LOOPBACK)}};
  struct linger now = {.l_onoff = 1};  // the port is free at once
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  must(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  return fd;
}

// Checks the head of the first reply: a status that is no failure of the server, then names and values.
static void check_head(const char *head) {
  if (!*head) return;
  must(strncmp(head, "HTTP/1.", 7) == 0);
  int status = atoi(head + 9);
  must(status >= 100 && status < 506 && status != 500);
  const char *p = strstr(head, "\r\n"), *end = strstr(head, "\r\n\r\n");
  if (!p || !end) return;
  for (p += 2; p < end; p = strstr(p, "\r\n") + 2) {
    size_t n = strcspn(p, "\r\n:");
    must(n > 0 && p[n] == ':');
    for (const char *c = p; c < strstr(p, "\r\n"); c++) must((unsigned char)*c >= 0x20);
  }
}

static void send_bytes(const char *text, size_t size) {
  static char reply[1 << 16];
  size_t n = 0;
  if (memmem(text, size, "events", 6)) return;  // the reply has no end
  int fd = dial();
  while (size > 0) {
    ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
    if (sent <= 0) break;
    text += sent;
    size -= (size_t)sent;
  }
  shutdown(fd, SHUT_WR);
  for (ssize_t got; n + 1 < sizeof reply; n += (size_t)got) {
    got = recv(fd, reply + n, sizeof reply - 1 - n, 0);
    if (got <= 0) break;
  }
  reply[n] = '\0';
  close(fd);
  if (strlen(reply) == n) check_head(reply);
}

// "POST /v1/want\nX: y\n\n{}": a request line, headers, and a body; its length is inserted.
static void send_lines(const char *text) {
  const char *gap = strstr(text, "\n\n"), *body = gap ? gap + 2 : NULL;
  size_t head = gap ? (size_t)(gap - text) : strlen(text);
  brim_str out;
  brim_str_init(&out);
  size_t line = strcspn(text, "\n");
  if (line > head) line = head;
  brim_str_printf(&out, "%.*s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", (int)line,
                  text);
  for (size_t at = line + 1; at < head; at += line + 1) {
    line = strcspn(text + at, "\n");
    brim_str_printf(&out, "%.*s\r\n", (int)line, text + at);
  }
  if (body) brim_str_printf(&out, "Content-Length: %zu\r\n", strlen(body));
  brim_str_printf(&out, "\r\n%s", body ? body : "");
  send_bytes(out.data, out.len);
  brim_str_deinit(&out);
}

static brim_status take_id(void *ctx, const brim_store_token *token) {
  snprintf((char *)ctx, 65, "%s", token->id);
  return BRIM_OK;
}

// A request may have created a token; without one, every request is allowed again.
static void tend(void) {
  for (;;) {
    char id[65] = "";
    pthread_mutex_lock(&pool->lock);
    must(!brim_store_tokens(store, take_id, id));
    if (id[0]) must(!brim_store_token_end(store, id));
    pthread_mutex_unlock(&pool->lock);
    if (!id[0]) break;
  }
  must(!brim_lab_pool_tend(pool));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static unsigned count;
  if (!pool) open_all();
  if (size == 0) return 0;
  char *text = brim_strndup((const char *)data + 1, size - 1);
  must(text != NULL);
  switch (data[0] % 4) {
    case 0:
      try_path(text);
      try_value(text);
      try_address(text);
      break;
    case 1:
    case 2:
      send_lines(text);
      break;
    default:
      send_bytes((const char *)data + 1, size - 1);
  }
  brim_free(text);
  brim_status_clear();
  if (count++ % 64 == 0) tend();
  return 0;
}
