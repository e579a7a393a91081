// Files of experiments on a server: uploads in pieces, refusals, reading, and removal.
#include "lab_test.h"
#include "sync_calls.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base_sha256.h"
#include "lab/http/lab_http_client.h"
#include "lab/pool/lab_pool.h"
#include "lab/wire/lab_wire_files.h"

static lab_place place;
static brim_store *store;
static brim_lab_pool *pool;
static brim_http_client *client;
static brim_http_answer answer;
static json_t *reply;
static char root[64], id[BRIM_EXP_ID];
static int64_t keep_days;
static bool drop_checkpoints;
static int64_t room_bytes;  // of the disk, as the server sees them

static bool measure(const char *folder, int64_t *free_bytes, int64_t *total_bytes) {
  assert_non_null(folder);
  *free_bytes = room_bytes;
  *total_bytes = 1000LL << 20;
  return true;
}

static void open_pool(void) {
  char url[64];
  const brim_lab_pool_options options = {.store = store,
                                         .version = "9.9",
                                         .files = root,
                                         .room = measure,
                                         .keep_days = keep_days,
                                         .drop_checkpoints = drop_checkpoints};
  brim_status status = brim_lab_pool_open(&options, &pool);
  if (status == BRIM_EUNSUPPORTED) BRIM_SKIP_ALL(brim_status_detail());
  assert_ok(status);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  const brim_http_client_options how = {.url = url, .insecure = true};
  assert_ok(brim_http_client_open(&how, &client));
}

static void close_pool(void) {
  brim_http_client_close(client);
  brim_lab_pool_close(pool);
}

static int setup(void **state) {
  static int count;
  (void)state;
  keep_days = 0;
  room_bytes = 500 << 20;
  drop_checkpoints = false;
  store = lab_fresh(&place);
  if (count == 0 && system("rm -rf files-of") != 0) fail_msg("cannot remove old files");
  snprintf(root, sizeof root, "files-of/%d", ++count);
  open_pool();
  brim_http_answer_init(&answer);
  lab_submit(store, "g1", 1, 2);
  lab_id(1, id);
  (void)lab_run(store, 1);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  json_decref(reply);
  reply = NULL;
  close_pool();
  brim_http_answer_deinit(&answer);
  lab_check(store);
  brim_store_close(store);
  return 0;
}

//---------------------------------- calls ----------------------------------

static int call(const char *method, const char *path, const void *body, size_t size) {
  const brim_http_call how = {.method = method,
                              .path = path,
                              .body = body,
                              .body_size = size,
                              .type = "application/octet-stream"};
  assert_ok(brim_http_client_call(client, &how, &answer));
  json_decref(reply);
  reply = NULL;
  (void)brim_json_parse(answer.body.data, answer.body.len, "reply", &reply);
  brim_status_clear();
  return answer.status;
}

typedef struct file {
  const char *name, *text;
  int64_t attempt, fence, step;
} file;

// Sends bytes `from` to `until` of the file.
static int put(const file *f, size_t from, size_t until) {
  char path[400], sha[65];
  size_t size = strlen(f->text);
  brim_sha256_hex(f->text, size, sha);
  snprintf(path, sizeof path,
           "/v1/attempts/%s/%lld/files/%s?fence=%lld&offset=%zu&size=%zu&sha256=%s&step=%lld", id,
           (long long)f->attempt, f->name, (long long)f->fence, from, size, sha,
           (long long)f->step);
  return call("POST", path, until > from ? f->text + from : "", until - from);
}

static int put_log(const char *text, size_t offset) {
  char path[200];
  snprintf(path, sizeof path, "/v1/attempts/%s/1/files/log?fence=1&offset=%zu", id, offset);
  return call("POST", path, text, strlen(text));
}

static int get(const char *rest) {
  char path[200];
  snprintf(path, sizeof path, "/v1/exps/%s/%s", id, rest);
  return call("GET", path, NULL, 0);
}

static int64_t size_of(void) {
  json_t *size = json_object_get(reply, "size");
  return json_is_integer(size) ? json_integer_value(size) : -1;
}

static bool is_complete(void) { return json_is_true(json_object_get(reply, "complete")); }

static bool on_disk(const file *f, const char *suffix) {
  char path[256], sha[65];
  brim_sha256_hex(f->text, strlen(f->text), sha);
  snprintf(path, sizeof path, "%s/files/%s/%s.%s%s", root, id, f->name, sha, suffix);
  return brim_fs_exists(path);
}

//---------------------------------- tests ----------------------------------

static const file first = {"checkpoint", "the state at step 10", 1, 1, 10};
static const file second = {"checkpoint", "and the state at step 20", 1, 1, 20};

static void test_pieces(void **state) {
  (void)state;
  size_t all = strlen(first.text);
  assert_int_equal(put(&first, 0, 0), 200);  // asks how many bytes the server has
  assert_int_equal(size_of(), 0);
  assert_int_equal(put(&first, 0, 5), 200);
  assert_int_equal(size_of(), 5);
  assert_int_equal(put(&first, 0, 5), 200);  // sent again, because the reply was lost
  assert_int_equal(size_of(), 5);
  assert_int_equal(put(&first, 7, 9), 409);  // a hole
  assert_int_equal(size_of(), 5);
  assert_int_equal(get("files/checkpoint"), 404);  // the file is not complete
  assert_int_equal(put(&first, 3, 8), 200);        // the server has half of this piece
  assert_int_equal(size_of(), 8);
  assert_false(is_complete());
  close_pool();  // a server that starts again continues at the same byte
  open_pool();
  assert_int_equal(put(&first, 0, 0), 200);
  assert_int_equal(size_of(), 8);
  assert_int_equal(put(&first, 8, all), 200);
  assert_true(is_complete());
  assert_true(on_disk(&first, ""));
  assert_false(on_disk(&first, ".part"));
  assert_int_equal(put(&first, 8, all), 200);  // sent again, because the reply was lost
  assert_true(is_complete());
  assert_int_equal(get("files/checkpoint"), 200);
  assert_string_equal(answer.body.data, first.text);
  assert_int_equal(get("files/checkpoint?from=4"), 200);
  assert_string_equal(answer.body.data, first.text + 4);
  assert_int_equal(get("files/checkpoint?from=900"), 400);
  assert_int_equal(get("files/checkpoint?attempt=2"), 404);
  assert_int_equal(get("files"), 200);
  assert_non_null(strstr(answer.body.data, "\"step\":10"));
}

static void test_wrong_bytes(void **state) {
  (void)state;
  char path[400], sha[65];
  brim_sha256_hex("abcdef", 6, sha);
  snprintf(path, sizeof path, "/v1/attempts/%s/1/files/weights?fence=1&offset=0&size=6&sha256=%s",
           id, sha);
  assert_int_equal(call("POST", path, "abx", 3), 200);
  assert_int_equal(call("POST", path, "abc", 3), 409);  // other bytes than before
  assert_int_equal(size_of(), 3);
  snprintf(path, sizeof path, "/v1/attempts/%s/1/files/weights?fence=1&offset=3&size=6&sha256=%s",
           id, sha);
  assert_int_equal(call("POST", path, "def", 3), 409);  // the complete file has another hash
  assert_int_equal(size_of(), 0);
  assert_int_equal(get("files/weights"), 404);
  snprintf(path, sizeof path, "/v1/attempts/%s/1/files/weights?fence=1&offset=0&size=6&sha256=%s",
           id, sha);
  assert_int_equal(call("POST", path, "abcdef", 6), 200);
  assert_true(is_complete());
}

// After a failed fsync it is unknown which bytes are on the disk: the file is sent again from its beginning.
static void test_a_disk_that_fails(void **state) {
  (void)state;
  size_t all = strlen(first.text);
  sync_errno = EIO;
  assert_true(put(&first, 0, all) >= 500);
  assert_int_equal(sync_errno, 0);
  assert_false(on_disk(&first, ""));
  assert_int_equal(put(&first, 0, 0), 200);
  assert_false(is_complete());
  assert_int_equal(size_of(), 0);
  assert_int_equal(get("files/checkpoint"), 404);
  assert_int_equal(put(&first, 0, all), 200);
  assert_true(is_complete());
}

static void test_refused(void **state) {
  (void)state;
  char path[400];
  file f = first;
  f.fence = 2;
  assert_int_equal(put(&f, 0, 5), 409);
  assert_int_equal(size_of(), -1);  // a stale fence: nothing to continue
  f = first;
  f.attempt = 9;
  assert_int_not_equal(put(&f, 0, 5), 200);
  static const char *const names[] = {"passwd", "..%2f..%2fx", "checkpoint.part", "Log", "."};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    f = first;
    f.name = names[i];
    int got = put(&f, 0, 5);
    if (got != 404 && got != 400) fail_msg("%s: %d", names[i], got);
  }
  static const char *const queries[] = {"",
                                        "fence=1",
                                        "fence=1&offset=0&size=5",
                                        "fence=1&offset=0&size=5&sha256=../../x",
                                        "fence=1&offset=-1&size=5&sha256=0",
                                        "fence=1&offset=many"};
  for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
    snprintf(path, sizeof path, "/v1/attempts/%s/1/files/best?%s", id, queries[i]);
    assert_int_equal(call("POST", path, "12345", 5), 400);
  }
  snprintf(path, sizeof path, "/v1/attempts/%s/1/files/best?fence=1&offset=0", "../../../../etc");
  assert_int_not_equal(call("POST", path, "12345", 5), 200);
  // larger than any disk: refused, but the disk is not reported as full
  static const char *const sizes[] = {"9000000000000000000", "1099511627776000"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    snprintf(path, sizeof path,
             "/v1/attempts/%s/1/files/best?fence=1&offset=0&size=%s&sha256="
             "0000000000000000000000000000000000000000000000000000000000000000",
             id, sizes[i]);
    assert_int_equal(call("POST", path, "12345", 5), 413);
    assert_int_equal(call("GET", "/healthz", NULL, 0), 200);
    assert_string_equal(answer.body.data, "{\"ok\":true}\n");
  }
  // neither does a file that has no room at the moment
  struct statvfs st;
  assert_int_equal(statvfs(".", &st), 0);
  long long room = (long long)((double)st.f_bavail * (double)st.f_frsize);
  if ((double)room + (1 << 20) < (double)st.f_blocks * (double)st.f_frsize) {
    snprintf(path, sizeof path,
             "/v1/attempts/%s/1/files/best?fence=1&offset=0&size=%lld&sha256="
             "0000000000000000000000000000000000000000000000000000000000000000",
             id, room);
    assert_int_equal(call("POST", path, "12345", 5), 507);
    assert_int_equal(call("GET", "/healthz", NULL, 0), 200);
    assert_string_equal(answer.body.data, "{\"ok\":true}\n");
  }
  assert_int_equal(put(&first, 0, 5), 200);
  assert_int_equal(put_log("12345", INT64_MAX - 2), 413);
}

// The path of an experiment's folder cannot leave the server's folder.
static void test_links(void **state) {
  (void)state;
  char path[256], outside[96];
  snprintf(outside, sizeof outside, "%s/outside", root);
  snprintf(path, sizeof path, "%s/files/%s", root, id);
  assert_ok(brim_fs_mkdirs(outside));
  char *here = realpath(outside, NULL);
  assert_non_null(here);
  assert_int_equal(symlink(here, path), 0);
  assert_int_not_equal(put(&first, 0, 5), 200);
  assert_int_not_equal(put_log("x", 0), 200);
  assert_int_equal(rmdir(outside), 0);  // succeeds only if it is empty
  free(here);
}

static void test_replaced(void **state) {
  (void)state;
  assert_int_equal(put(&first, 0, strlen(first.text)), 200);
  assert_int_equal(put(&second, 0, 7), 200);
  assert_true(on_disk(&first, ""));  // stays until the next one is complete
  assert_int_equal(get("files/checkpoint"), 200);
  assert_string_equal(answer.body.data, first.text);
  assert_int_equal(put(&second, 7, strlen(second.text)), 200);
  assert_false(on_disk(&first, ""));
  assert_int_equal(get("files/checkpoint"), 200);
  assert_string_equal(answer.body.data, second.text);
  // a late repetition of the first file does not replace the second
  assert_int_equal(put(&first, 0, strlen(first.text)), 200);
  assert_int_equal(get("files/checkpoint"), 200);
  assert_string_equal(answer.body.data, second.text);
  assert_true(on_disk(&second, ""));
  // the same bytes under another name need not be sent
  file best = second;
  best.name = "best";
  assert_int_equal(put(&best, 0, 0), 200);
  assert_true(is_complete());
  assert_int_equal(get("files/best"), 200);
  assert_string_equal(answer.body.data, second.text);
  // a half-sent file is removed when another one begins
  file third = {"checkpoint", "the state at step 30", 1, 1, 30}, fourth = third;
  fourth.text = "what is it at step 40";
  assert_int_equal(put(&third, 0, 3), 200);
  assert_true(on_disk(&third, ".part"));
  assert_int_equal(put(&fourth, 0, 3), 200);
  assert_false(on_disk(&third, ".part"));
  assert_true(on_disk(&second, ""));
}

// The last attempt may send its remaining files, also after its end; an earlier one may not.
static void test_late(void **state) {
  (void)state;
  const brim_store_ref ref = {.exp = "", .attempt = 1, .fence = 1};
  brim_store_ref one = ref;
  memcpy(one.exp, id, sizeof one.exp);
  assert_int_equal(put(&first, 0, 5), 200);
  lab_finish(store, &one, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
  assert_int_equal(put(&first, 5, strlen(first.text)), 200);
  assert_true(is_complete());
  lab_clock_ms += 1000000;
  (void)lab_run(store, 1);
  assert_int_equal(put(&second, 0, 5), 409);
  assert_int_equal(size_of(), -1);
  file again = second;
  again.attempt = again.fence = 2;
  assert_int_equal(put(&again, 0, strlen(second.text)), 200);
  assert_int_equal(get("files/checkpoint"), 200);
  assert_string_equal(answer.body.data, second.text);
}

static const char *text_of(const char *key) {
  const char *text = json_string_value(json_object_get(reply, key));
  return text ? text : "";
}

static void test_logs(void **state) {
  (void)state;
  assert_int_equal(get("log"), 200);  // no line has arrived
  assert_int_equal(size_of(), 0);
  assert_string_equal(text_of("text"), "");
  assert_int_equal(put_log("one\ntwo\n", 0), 200);
  assert_int_equal(size_of(), 8);
  assert_int_equal(put_log("two\n\xff\xfe\xea\xb0\x80\n", 4), 200);
  assert_int_equal(put_log("x", 100), 409);
  assert_int_equal(size_of(), 14);
  assert_int_equal(put_log("y", 13), 409);
  assert_int_equal(get("log?stream=log&attempt=1"), 200);
  assert_string_equal(text_of("text"), "one\ntwo\n\xef\xbf\xbd\xef\xbf\xbd\xea\xb0\x80\n");
  assert_int_equal(json_integer_value(json_object_get(reply, "next")), 14);
  assert_int_equal(get("log?stream=stdout&from=-1"), 200);
  assert_string_equal(text_of("text"), "\n");
  // a character that the limit would split comes with the next piece
  assert_int_equal(get("log?from=4&limit=8"), 200);
  assert_string_equal(text_of("text"), "two\n\xef\xbf\xbd\xef\xbf\xbd");
  assert_int_equal(json_integer_value(json_object_get(reply, "next")), 10);
  assert_int_equal(get("log?from=10"), 200);
  assert_string_equal(text_of("text"), "\xea\xb0\x80\n");
  assert_int_equal(get("log?from=500"), 200);
  assert_string_equal(text_of("text"), "");
  assert_int_equal(get("log?attempt=7"), 200);
  assert_int_equal(size_of(), 0);
  assert_int_equal(get("log?stream=weights"), 400);
  assert_int_equal(get("log?limit=0"), 400);
  assert_int_equal(get("log?limit=99999999999"), 400);
  assert_int_equal(get("files/log"), 200);
  assert_int_equal(answer.body.len, 14);
  assert_int_equal(call("GET", "/v1/exps/00000000000000000000000000000000/log", NULL, 0), 404);
}

// Pieces that need several blocks, and a log that contains a zero byte.
static void test_large(void **state) {
  (void)state;
  enum { BYTES = 3000000, STEP = 700001 };
  char *text = malloc(BYTES + 1);
  assert_non_null(text);
  for (int i = 0; i < BYTES; i++) text[i] = (char)('a' + (i * 7 + i / 1000) % 26);
  text[BYTES] = '\0';
  const file f = {"best", text, 1, 1, 5};
  for (size_t at = 0; at < BYTES; at += STEP) {
    size_t until = at + STEP < BYTES ? at + STEP : BYTES;
    assert_int_equal(put(&f, at, until), 200);
    if (at == 2 * STEP) {  // the hash so far is lost with the process
      close_pool();
      open_pool();
    }
    assert_int_equal(put(&f, at, until), 200);
  }
  assert_true(is_complete());
  assert_int_equal(get("files/best"), 200);
  assert_int_equal(answer.body.len, BYTES);
  assert_memory_equal(answer.body.data, text, BYTES);
  free(text);
}

static void use_token(const char *id_of, const char *role) {
  char token[BRIM_TOKEN], sha[65], url[64];
  assert_ok(brim_token_make(token));
  brim_token_hash(token, sha);
  const brim_store_token row = {.id = id_of, .role = role, .sha256 = sha};
  assert_ok(brim_store_token_add(store, &row));
  assert_ok(brim_lab_pool_tend(pool));
  brim_http_client_close(client);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  const brim_http_client_options how = {.url = url, .token = token, .insecure = true};
  assert_ok(brim_http_client_open(&how, &client));
}

// A worker writes only to its own attempts; everyone with a token reads.
static void test_roles(void **state) {
  (void)state;
  assert_int_equal(put(&first, 0, strlen(first.text)), 200);
  use_token("other", "worker");
  assert_int_equal(put(&second, 0, 5), 400);
  assert_int_equal(get("files/checkpoint"), 200);
  use_token("me", "submit");
  assert_int_equal(put(&second, 0, 5), 403);
  use_token("you", "read");
  assert_int_equal(put(&second, 0, 5), 403);
  assert_int_equal(get("log"), 200);
  use_token("root", "admin");
  assert_int_equal(put(&second, 0, 5), 200);
}

static void test_without_files(void **state) {
  (void)state;
  close_pool();
  char url[64];
  const brim_lab_pool_options options = {.store = store, .version = "9.9"};
  assert_ok(brim_lab_pool_open(&options, &pool));
  snprintf(url, sizeof url, "http://127.0.0.1:%d", brim_lab_pool_port(pool));
  const brim_http_client_options how = {.url = url, .insecure = true};
  assert_ok(brim_http_client_open(&how, &client));
  assert_int_equal(put(&first, 0, 5), 501);
  assert_int_equal(get("files/best"), 501);
  assert_int_equal(get("log"), 501);
}

//---------------------------------- what goes ----------------------------------

enum { MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR, FOLDERS = 8 };

static void open_again(int64_t days, bool drop) {
  close_pool();
  keep_days = days;
  drop_checkpoints = drop;
  open_pool();
  assert_ok(brim_lab_pool_tend(pool));
}

// A slow store ends a call's round early, and the next call continues it: after at least one folder.
static void tend_after(int64_t ms) {
  lab_clock_ms += ms;
  for (int i = 0; i < FOLDERS; i++) assert_ok(brim_lab_pool_tend(pool));
}

static void send_checkpoint(int n) {
  lab_id(n, id);
  assert_int_equal(put(&first, 0, strlen(first.text)), 200);
  assert_true(is_complete());
  assert_int_equal(put_log("text", 0), 200);
}

static void expect_checkpoint(int n, bool there) {
  char path[256];
  lab_id(n, id);
  snprintf(path, sizeof path, "%s/files/%s", root, id);
  if (brim_fs_exists(path) != there) fail_msg("%d: the folder", n);
  if (get("files/checkpoint") != (there ? 200 : 404)) fail_msg("%d: the checkpoint", n);
  if (on_disk(&first, "") != there) fail_msg("%d: the bytes", n);
  assert_int_equal(get("log"), 200);
  assert_string_equal(text_of("text"), there ? "text" : "");
}

static brim_status count_removal(void *ctx, const brim_store_event *e) {
  if (strcmp(e->kind, "files removed") == 0) ++*(int *)ctx;
  return BRIM_OK;
}

static int removals(void) {
  int count = 0;
  assert_ok(brim_store_events(store, 0, 0, count_removal, &count));
  return count;
}

static brim_status count_metric(void *ctx, const brim_store_metric *row, int64_t attempt) {
  (void)row;
  (void)attempt;
  ++*(int *)ctx;
  return BRIM_OK;
}

// One experiment in each state: 1 done, 2 failed, 3 cancelled, 4 paused, 5 queued, 6 running.
static void make_states(void) {
  static const struct {
    brim_exp_want want;
    brim_attempt_outcome outcome;
    brim_failure failure;
    brim_exp_state became;
  } rows[] = {
      {BRIM_WANT_RUN, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE, BRIM_EXP_DONE},
      {BRIM_WANT_RUN, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN, BRIM_EXP_FAILED},
      {BRIM_WANT_CANCEL, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE, BRIM_EXP_CANCELLED},
      {BRIM_WANT_PAUSE, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE, BRIM_EXP_PAUSED},
      {BRIM_WANT_RUN, BRIM_ATTEMPT_STOPPED, BRIM_FAILURE_NONE, BRIM_EXP_QUEUED},
      {BRIM_WANT_RUN, BRIM_ATTEMPT_OPEN, BRIM_FAILURE_NONE, BRIM_EXP_RUNNING},
  };
  lab_submit(store, "g2", 3, 4);
  for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
    brim_store_ref ref = {.attempt = 1, .fence = 1};
    const brim_store_metric row = {"loss", 1, 0.5};
    if (i > 0) (void)lab_run(store, i + 1);
    send_checkpoint(i + 1);
    memcpy(ref.exp, id, sizeof ref.exp);
    assert_ok(brim_store_metrics(store, &ref, 1, &row, 1));
    if (rows[i].want != BRIM_WANT_RUN) assert_ok(brim_store_want(store, id, rows[i].want));
    if (rows[i].outcome != BRIM_ATTEMPT_OPEN) {
      (void)lab_finish(store, &ref, rows[i].outcome, rows[i].failure);
    }
    assert_int_equal(lab_state(store, i + 1), rows[i].became);
  }
}

// Experiments that ended lose their files after some days, others never. Metrics stay.
static void test_keep_days(void **state) {
  (void)state;
  int metrics = 0;
  make_states();
  open_again(0, false);  // by default everything stays
  tend_after(MINUTE);
  tend_after(1000LL * DAY);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, true);
  lab_clock_ms -= 1000LL * DAY;
  open_again(2, false);
  tend_after(MINUTE);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, true);
  tend_after(DAY);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, true);
  tend_after(DAY);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, n > 3);
  tend_after(100LL * DAY);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, n > 3);
  assert_int_equal(removals(), 3);
  lab_id(1, id);
  assert_ok(brim_store_read_metrics(store, id, "loss", count_metric, &metrics));
  assert_int_equal(metrics, 1);
}

// A failed experiment that is queued again in time keeps its files. Rounds come once an hour, the first after a minute.
static void test_keep_retried(void **state) {
  (void)state;
  make_states();
  tend_after(3LL * DAY);
  lab_id(2, id);
  assert_ok(brim_store_retry(store, id));
  open_again(2, false);
  tend_after(MINUTE - 1);
  expect_checkpoint(1, true);
  tend_after(1);
  expect_checkpoint(1, false);
  expect_checkpoint(2, true);
  (void)lab_run(store, 2);
  const brim_store_ref ref = {.exp = "", .attempt = 2, .fence = 2};
  brim_store_ref two = ref;
  memcpy(two.exp, id, sizeof two.exp);
  lab_finish(store, &two, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
  tend_after(2LL * DAY + 1);
  lab_id(2, id);
  assert_int_equal(get("files/checkpoint"), 404);
}

// The next round removes bytes without a row and a folder whose removal was interrupted. A folder without an experiment
// in the store stays.
static void test_keep_interrupted(void **state) {
  (void)state;
  char path[264], gone[256], other[256];
  make_states();
  lab_id(6, id);
  snprintf(gone, sizeof gone, "%s/files/%s.gone", root, id);
  assert_ok(brim_fs_mkdirs(gone));
  snprintf(path, sizeof path, "%s/x", gone);
  assert_ok(brim_fs_write(path, "x", 1));
  snprintf(other, sizeof other, "%s/files/%s", root, "00000000000000000000000000000000");
  assert_ok(brim_fs_mkdirs(other));
  const brim_store_expiry when = {.before = lab_clock_ms + 1};
  brim_store_expired what;
  lab_id(1, id);
  // the server was killed right after this
  assert_ok(brim_store_expire_files(store, id, &when, &what));
  assert_int_equal(what, BRIM_STORE_EXPIRED_ALL);
  assert_true(on_disk(&first, ""));
  open_again(2, false);
  tend_after(3LL * DAY);
  expect_checkpoint(1, false);
  expect_checkpoint(6, true);
  assert_false(brim_fs_exists(gone));
  assert_true(brim_fs_exists(other));
}

// The last checkpoint is removed when the experiment is done and its weights have arrived.
static void test_keep_best(void **state) {
  (void)state;
  const file weights = {"weights", "the weights", 1, 1, -1};
  file best = first;
  best.name = "best";
  make_states();
  open_again(0, true);
  tend_after(MINUTE);
  tend_after(2 * HOUR);
  for (int n = 1; n <= 6; n++) expect_checkpoint(n, true);  // no weights have arrived
  for (int n = 1; n <= 6; n++) {
    lab_id(n, id);
    assert_int_equal(put(&weights, 0, strlen(weights.text)), 200);
    assert_int_equal(put(&best, 0, 0), 200);  // the same bytes
    assert_true(is_complete());
  }
  tend_after(HOUR);
  for (int n = 2; n <= 6; n++) expect_checkpoint(n, true);
  lab_id(1, id);
  assert_false(on_disk(&first, ""));
  assert_int_equal(get("files/checkpoint"), 404);
  assert_int_equal(get("files/weights"), 200);
  assert_int_equal(get("files/best"), 200);
  assert_string_equal(answer.body.data, first.text);
  assert_int_equal(get("log"), 200);
  assert_string_equal(text_of("text"), "text");
  assert_int_equal(removals(), 1);
}

//---------------------------------- a full disk ----------------------------------

static void assert_disk(bool full, int64_t mib) {
  char line[64];
  assert_int_equal(call("GET", "/v1/whoami", NULL, 0), 200);
  const json_t *disk = json_object_get(reply, "disk");
  assert_int_equal(json_is_true(json_object_get(disk, "full")), full);
  assert_int_equal(json_integer_value(json_object_get(disk, "free")), mib << 20);
  assert_int_equal(json_integer_value(json_object_get(disk, "total")), 1000LL << 20);
  assert_int_equal(call("GET", "/healthz", NULL, 0), 200);
  assert_string_equal(answer.body.data,
                      full ? "{\"ok\":true,\"disk\":\"full\"}\n" : "{\"ok\":true}\n");
  assert_int_equal(call("GET", "/metrics", NULL, 0), 200);
  snprintf(line, sizeof line, "\nbrim_disk_full %d\n", full);
  assert_non_null(strstr(answer.body.data, line));
  snprintf(line, sizeof line, "\nbrim_disk_free_bytes %lld\n", (long long)(mib << 20));
  assert_non_null(strstr(answer.body.data, line));
}

static void test_a_full_disk_is_known(void **state) {
  (void)state;
  assert_int_equal(call("GET", "/metrics", NULL, 0), 200);  // no round has measured the files yet
  assert_non_null(strstr(answer.body.data, "\nbrim_disk_full 0\n"));
  assert_null(strstr(answer.body.data, "brim_disk_free_bytes"));
  assert_ok(brim_lab_pool_tend(pool));
  assert_disk(false, 500);
  room_bytes = 63 << 20;  // files are refused from 64 MiB on
  assert_ok(brim_lab_pool_tend(pool));
  assert_disk(true, 63);
  room_bytes = 65 << 20;
  assert_ok(brim_lab_pool_tend(pool));
  assert_disk(false, 65);
}

// A refused file also marks the disk as full, for as long as its worker may wait before it tries again.
static void test_a_refused_file_is_known(void **state) {
  (void)state;
  char path[400];
  struct rlimit limit, least;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_ok(brim_lab_pool_tend(pool));
  snprintf(path, sizeof path,
           "/v1/attempts/%s/1/files/best?fence=1&offset=0&size=5&sha256="
           "0000000000000000000000000000000000000000000000000000000000000000",
           id);
  least = limit;
  least.rlim_cur = 3;  // the disk has room for 3 bytes of the file
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &least), 0);
  int status = call("POST", path, "12345", 5);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  assert_int_equal(status, 507);
  assert_disk(true, 500);
  assert_non_null(strstr(answer.body.data, "\nbrim_disk_refused_total 1\n"));
  lab_clock_ms += 119000;
  assert_ok(brim_lab_pool_tend(pool));
  assert_disk(true, 500);
  lab_clock_ms += 2000;
  assert_ok(brim_lab_pool_tend(pool));
  assert_disk(false, 500);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
      cmocka_unit_test_setup_teardown(test_wrong_bytes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_disk_that_fails, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_links, setup, teardown),
      cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
      cmocka_unit_test_setup_teardown(test_late, setup, teardown),
      cmocka_unit_test_setup_teardown(test_logs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_large, setup, teardown),
      cmocka_unit_test_setup_teardown(test_roles, setup, teardown),
      cmocka_unit_test_setup_teardown(test_without_files, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep_days, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep_retried, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep_interrupted, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep_best, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_full_disk_is_known, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_refused_file_is_known, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
