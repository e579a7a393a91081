// Fuzz: any bytes as lines through a sweep's socket. Each gets a reply: lines of JSON with its id, all but the last
// with "more". The store stays usable after any request.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/wire/lab_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static brim_store *store;
static char folder[64];

static void must(bool fine) {
  if (!fine) abort();
}

static void remove_store(void) {
  char path[128];
  brim_store_close(store);
  static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    snprintf(path, sizeof path, "%s/" BRIM_STORE_FILE "%s", folder, ends[i]);
    unlink(path);
  }
  rmdir(folder);
}

// Three experiments, the first one claimed: the corpus names them.
static void make_store(void) {
  bool memory = access("/dev/shm", W_OK) == 0;
  snprintf(folder, sizeof folder, "%s/brim-fuzz-%ld", memory ? "/dev/shm" : "/tmp", (long)getpid());
  must(!brim_store_open(folder, NULL, &store));
  atexit(remove_store);
  const brim_store_point points[] = {
      {.id = "00000000000000000000000000000001", .config = "{\"a\": 1}", .tries = 1},
      {.id = "00000000000000000000000000000002", .config = "a: 2", .idx = 1},
      {.id = "10000000000000000000000000000000", .config = "", .idx = 2},
  };
  brim_store_submitted submitted;
  must(!brim_store_submit(store, &(brim_store_grid){.id = "g"}, points, 3, &submitted));
  const brim_store_request request = {
      .worker = "w", .claim_id = "c", .exp = points[0].id, .free_bytes = -1};
  brim_store_claimed claimed = {0};
  must(!brim_store_claim(store, &request, &claimed));
  brim_store_exp_free(claimed.exp);
}

static void check_line(const char *text, size_t size, bool last) {
  json_t *line = NULL;
  must(!brim_json_parse(text, size, "reply", &line));
  must(json_is_object(line) && json_object_get(line, "id"));
  must(json_is_true(json_object_get(line, "more")) == !last);
  const json_t *ok = json_object_get(line, "ok");
  must(json_is_boolean(ok));
  if (!json_is_true(ok)) {
    must(last);
    const char *status = json_string_value(json_object_get(line, "status"));
    must(status && strncmp(status, "BRIM_E", 6) == 0);
    must(strcmp(status, "BRIM_EINTERNAL") != 0);
  }
  json_decref(line);
}

static void ask(const char *request, size_t size) {
  const brim_lab_ops ops = {.store = store};
  brim_lab_answer *answer = NULL;
  brim_str out;
  bool done = false;
  brim_str_init(&out);
  must(!brim_lab_ops_begin(&ops, request, size, &answer));
  while (!done) must(!brim_lab_answer_more(answer, 1000, &out, &done));
  brim_lab_answer_free(answer);
  must(out.len > 0);
  for (size_t at = 0; at < out.len;) {
    const char *end = memchr(out.data + at, '\n', out.len - at);
    must(end != NULL);
    size_t length = (size_t)(end - out.data) - at;
    check_line(out.data + at, length, at + length + 1 == out.len);
    at += length + 1;
  }
  brim_str_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!store) make_store();
  const char *text = (const char *)data;
  for (size_t at = 0; at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - text) - at : size - at;
    ask(text + at, length);
    at += length + 1;
  }
  return 0;
}
