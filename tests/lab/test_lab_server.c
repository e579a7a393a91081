// The server against bad clients: torn, garbled, duplicated and endless requests, clients that never read or never end,
// hundreds at once. And a server that is killed before it replies.
#include "lab_served.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/wire/lab_wire_link.h"
#include "lab/wire/lab_wire_server.h"

enum { PATIENCE_MS = 60000 };  // time until a test counts a reply as missing

static lab_place place;
static lab_served served;
static brim_store *store;
static brim_lab_server *server;

static int setup(void **state) {
  (void)state;
  store = lab_fresh(&place);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_lab_server_close(server);
  server = NULL;
  brim_store_close(store);
  store = NULL;
  if (served.pid) lab_serve_end(&served, SIGKILL);
  return 0;
}

static void start(brim_lab_server_options options) {
  options.folder = place.place;
  options.ops.store = store;
  assert_ok(brim_lab_server_open(&options, &server));
}

// One turn of the server's loop.
static void turn(int wait_ms) {
  struct pollfd p = {.fd = brim_lab_server_fd(server), .events = POLLIN};
  int limit = brim_lab_server_wait_ms(server);
  poll(&p, 1, limit >= 0 && limit < wait_ms ? limit : wait_ms);
  assert_ok(brim_lab_server_serve(server));
}

// A client in this process that does not block.
static int client(void) {
  brim_lab_sweep_info info;
  int fd = -1;
  assert_ok(brim_lab_socket_read(place.place, &info));
  assert_ok(brim_lab_socket_connect(&info, PATIENCE_MS, &fd));
  return fd;
}

static void say(int fd, const char *text) {
  size_t size = strlen(text), at = 0;
  while (at < size) {
    ssize_t n = send(fd, text + at, size - at, MSG_NOSIGNAL);
    if (n > 0) at += (size_t)n;
    if (n < 0) assert_int_equal(errno, EAGAIN);
    if (n < 0) turn(1);
  }
}

// Serves until the client has one more line; false if the connection ended.
static bool hear(int fd, char *out, size_t size) {
  size_t n = 0;
  brim_time began = brim_clock_now();
  while (n + 1 < size) {
    ssize_t got = recv(fd, out + n, 1, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return false;
    if (got == 1 && out[n] == '\n') {
      out[n] = '\0';
      return true;
    }
    if (got == 1) {
      n++;
      continue;
    }
    assert_int_equal(errno, EAGAIN);
    turn(10);
    if (brim_time_since_ns(began, brim_clock_now()) > (int64_t)PATIENCE_MS * 1000000) {
      fail_msg("no reply");
    }
  }
  fail_msg("a line is too long for the test");
  return false;
}

static void expect(int fd, const char *part) {
  char line[4096];
  if (!hear(fd, line, sizeof line)) fail_msg("the connection ended before %s", part);
  if (!strstr(line, part)) fail_msg("%s: expected %s", line, part);
}

static void expect_end(int fd) {
  char line[4096];
  if (hear(fd, line, sizeof line)) fail_msg("a line where the connection should end: %s", line);
}

static void test_requests_in_pieces(void **state) {
  (void)state;
  start((brim_lab_server_options){0});
  int fd = client();
  const char *request = "{\"id\": 3, \"op\": \"hello\"}\n";
  for (const char *c = request; *c; c++) {
    say(fd, (char[]){*c, 0});
    turn(0);
  }
  expect(fd, "\"id\":3,\"ok\":true,\"protocol\":\"brim.lab/1\"");
  // Many requests at once are answered in their order.
  enum { MANY = 500 };
  brim_str all;
  brim_str_init(&all);
  for (int i = 0; i < MANY; i++) brim_str_printf(&all, "{\"id\":%d,\"op\":\"counts\"}\n", i);
  say(fd, all.data);
  brim_str_deinit(&all);
  for (int i = 0; i < MANY; i++) {
    char part[32];
    snprintf(part, sizeof part, "{\"id\":%d,", i);
    expect(fd, part);
  }
  // The newline of the last request never comes, so the request is not run.
  say(fd, "{\"id\":9,\"op\":\"counts\"}");
  shutdown(fd, SHUT_WR);
  expect_end(fd);
  close(fd);
  assert_int_equal(brim_lab_server_connections(server), 0);
}

static void test_half_closed_clients_get_their_replies(void **state) {
  (void)state;
  start((brim_lab_server_options){0});
  lab_submit(store, "g", 1, 300);
  int fd = client();
  say(fd, "{\"id\":1,\"op\":\"list\",\"texts\":true}\n{\"id\":2,\"op\":\"counts\"}\n");
  shutdown(fd, SHUT_WR);
  char line[128 << 10];
  int lines = 0;
  while (hear(fd, line, sizeof line)) {
    lines++;
    if (strstr(line, "\"id\":2")) break;
    assert_non_null(strstr(line, "\"ok\":true"));
  }
  assert_non_null(strstr(line, "\"total\":300"));
  assert_true(lines >= 3);
  expect_end(fd);
  close(fd);
}

static void test_garbage(void **state) {
  (void)state;
  start((brim_lab_server_options){0});
  int fd = client();
  unsigned seed = 7;
  int rounds = test_is_full() ? 2000 : 200;
  for (int i = 0; i < rounds; i++) {
    char bytes[200];
    size_t n = 1 + (size_t)rand_r(&seed) % (sizeof bytes - 2);
    for (size_t k = 0; k < n; k++) {
      int c = rand_r(&seed) % 255 + 1;
      bytes[k] = (char)(c == '\n' ? ' ' : c);
    }
    bytes[n] = '\n';
    bytes[n + 1 < sizeof bytes ? n + 1 : n] = '\0';
    say(fd, bytes);
    expect(fd, "{\"id\":null,\"ok\":false,\"status\":\"BRIM_E");
  }
  static const char *const wrong[] = {
      "\n",
      "null\n",
      "[1,2]\n",
      "\"op\"\n",
      "{}\n",
      "{\"op\": 7}\n",
      "{\"op\": \"\"}\n",
      "{\"op\": \"drop table\"}\n",
      "{\"op\": \"hello\\u0000x\"}\n",
      "{\"op\": \"beat\"}\n",
      "{\"op\": \"beat\", \"ref\": 1}\n",
      "{\"op\": \"beat\", \"ref\": {\"exp\": \"x\", \"attempt\": 1, \"fence\": 1}}\n",
      "{\"op\": \"list\", \"limit\": -1}\n",
      "{\"op\": \"list\", \"states\": [\"asleep\"]}\n",
      "{\"op\": \"list\", \"order\": \"fastest\"}\n",
      "{\"op\": \"submit\"}\n",
      "{\"op\": \"submit\", \"grid\": {\"id\": \"g\"}, \"points\": [7]}\n",
      "{\"op\": \"want\", \"exp\": \"00\", \"want\": \"sleep\"}\n",
      "{\"op\": \"events\", \"seq\": 1.5}\n",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    say(fd, wrong[i]);
    expect(fd, "\"ok\":false");
  }
  say(fd, "{\"op\":\"counts\"}\n");
  expect(fd, "{\"id\":null,\"ok\":true,\"total\":0");
  close(fd);
}

static void test_deep_and_long_requests(void **state) {
  (void)state;
  start((brim_lab_server_options){.request_max = 100000});
  int fd = client(), other = client();
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text, "{\"op\":");
  brim_str_repeat(&text, '[', 50000);
  brim_str_append(&text, "\n");
  say(fd, text.data);
  expect(fd, "\"ok\":false");
  brim_str_clear(&text);
  brim_str_repeat(&text, 'x', 100001);
  for (int i = 0; i < 3; i++) say(other, "{\"id\":1,\"op\":\"hello\"}\n");
  for (int i = 0; i < 3; i++) expect(other, "\"ok\":true");
  say(fd, text.data);  // without a newline the request may never end
  expect(fd, "BRIM_ELIMIT");
  expect_end(fd);
  say(other, "{\"id\":1,\"op\":\"hello\"}\n");
  expect(other, "\"ok\":true");
  brim_str_deinit(&text);
  close(fd);
  close(other);
}

// The same request twice, and a request of an attempt that was replaced.
static void test_duplicated_and_delayed(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_run(store, 1);
  start((brim_lab_server_options){0});
  int fd = client();
  char text[512];
  snprintf(text, sizeof text,
           "{\"id\":1,\"op\":\"metrics\",\"ref\":{\"exp\":\"%s\",\"attempt\":%lld,\"fence\":%lld},"
           "\"seq\":1,\"rows\":[[\"loss\",1,0.5]]}\n",
           ref.exp, (long long)ref.attempt, (long long)ref.fence);
  for (int i = 0; i < 3; i++) {
    say(fd, text);
    expect(fd, "{\"id\":1,\"ok\":true}");
  }
  lab_clock_ms += 2 * LAB_LEASE_MS;
  int64_t expired = 0;
  assert_ok(brim_store_reap(store, &expired));
  assert_int_equal(expired, 1);
  lab_clock_ms += LAB_BACKOFF_MS;
  lab_run(store, 1);
  say(fd, text);
  expect(fd, "\"status\":\"BRIM_ESTATE\"");
  close(fd);
  lab_check(store);
}

static void test_hundreds_of_connections(void **state) {
  (void)state;
  enum { MANY = 200 };
  struct rlimit files;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 2 * MANY + 100) BRIM_SKIP("fewer than 500 descriptors are allowed");
  start((brim_lab_server_options){.connections = MANY});
  int fds[MANY];
  for (int i = 0; i < MANY; i++) {
    fds[i] = client();
    turn(0);
  }
  for (int i = 0; i < MANY; i++) say(fds[i], "{\"id\":1,\"op\":\"hello\"}\n");
  for (int i = 0; i < MANY; i++) expect(fds[i], "\"ok\":true");
  assert_int_equal(brim_lab_server_connections(server), MANY);
  int one_more = client();
  expect(one_more, "BRIM_EIO");
  expect_end(one_more);
  close(one_more);
  for (int i = 0; i < MANY; i += 2) close(fds[i]);
  while (brim_lab_server_connections(server) > MANY / 2) turn(10);
  for (int i = 1; i < MANY; i += 2) say(fds[i], "{\"id\":2,\"op\":\"hello\"}\n");
  for (int i = 1; i < MANY; i += 2) {
    expect(fds[i], "\"id\":2,\"ok\":true");
    close(fds[i]);
  }
}

// A client that asks for much and reads nothing costs a bounded amount of memory, delays no other client, and is
// disconnected.
static void test_a_client_that_never_reads(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2000);
  start((brim_lab_server_options){.stall_ms = 200});
  brim_alloc_stats before, now;
  brim_alloc_get_stats(&before);
  int silent = client(), other = client();
  for (int i = 0; i < 50; i++) say(silent, "{\"id\":1,\"op\":\"export\"}\n");
  for (int i = 0; i < 20; i++) {
    say(other, "{\"id\":2,\"op\":\"counts\"}\n");
    expect(other, "\"total\":2000");
    brim_alloc_get_stats(&now);
    assert_true(now.live_bytes[BRIM_MEM_OVERHEAD] - before.live_bytes[BRIM_MEM_OVERHEAD] < 4 << 20);
  }
  while (brim_lab_server_connections(server) > 1) turn(50);
  say(other, "{\"id\":3,\"op\":\"counts\"}\n");
  expect(other, "\"total\":2000");
  close(silent);
  close(other);
}

// A slow reader gets a long reply completely.
static void test_a_slow_reader(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 3000);
  start((brim_lab_server_options){0});
  int fd = client();
  say(fd, "{\"id\":1,\"op\":\"export\"}\n");
  for (int i = 0; i < 50; i++) turn(1);
  static char line[64 << 10];
  int lines = 0;
  while (hear(fd, line, sizeof line) && strstr(line, "\"more\":true")) lines++;
  assert_int_equal(lines, 3000);
  assert_string_equal(line, "{\"id\":1,\"ok\":true}");
  close(fd);
}

static int changes;
static brim_lab_op changed_op;
static char changed_exp[BRIM_EXP_ID];

static void note_change(void *ctx, brim_lab_op op, const char *exp) {
  (void)ctx;
  changes++;
  changed_op = op;
  snprintf(changed_exp, sizeof changed_exp, "%s", exp);
}

static brim_status answer(void *ctx, const brim_lab_request *request, brim_lab_reply *reply,
                          bool *taken) {
  (void)ctx;
  if (request->op == BRIM_LAB_OP_RESTORE) return brim_fail(BRIM_ESTATE, "it stops already");
  *taken = request->op == BRIM_LAB_OP_STATUS;
  if (!*taken) return BRIM_OK;
  reply->more = json_object();
  return brim_json_put(reply->more, "stopping", json_true());
}

static void test_hooks(void **state) {
  (void)state;
  lab_submit(store, "g", 1, 2);
  start((brim_lab_server_options){.ops = {.changed = note_change, .answer = answer}});
  int fd = client();
  changes = 0;
  say(fd, "{\"id\":1,\"op\":\"status\"}\n{\"id\":2,\"op\":\"restore\"}\n");
  expect(fd, "{\"id\":1,\"ok\":true,\"stopping\":true}");
  expect(fd, "{\"id\":2,\"ok\":false,\"status\":\"BRIM_ESTATE\",\"message\":\"it stops already\"}");
  say(fd, "{\"id\":3,\"op\":\"stop\"}\n");
  expect(fd, "BRIM_EUNSUPPORTED");
  say(fd, "{\"id\":4,\"op\":\"counts\"}\n");
  expect(fd, "\"ok\":true");
  say(fd, "{\"id\":5,\"op\":\"retry\",\"exp\":\"f\"}\n");
  expect(fd, "BRIM_ENOENT");
  assert_int_equal(changes, 0);
  say(fd,
      "{\"id\":6,\"op\":\"want\",\"exp\":\"00000000000000000000000000000001\",\"want\":\"pause\"}"
      "\n");
  expect(fd, "\"ok\":true");
  assert_int_equal(changes, 1);
  assert_int_equal(changed_op, BRIM_LAB_OP_WANT);
  assert_string_equal(changed_exp, "00000000000000000000000000000001");
  say(fd,
      "{\"id\":7,\"op\":\"want_each\",\"want\":\"cancel\",\"exps\":["
      "\"00000000000000000000000000000001\",\"00000000000000000000000000000002\"]}\n");
  expect(fd, "\"count\":2");
  assert_int_equal(changes, 3);
  assert_int_equal(changed_op, BRIM_LAB_OP_WANT);
  assert_string_equal(changed_exp, "00000000000000000000000000000002");
  close(fd);
}

// --- the socket's file

static void test_files_of_a_server(void **state) {
  (void)state;
  start((brim_lab_server_options){.ops.version = "1.2.3"});
  struct stat st;
  assert_int_equal(lstat(brim_lab_server_socket(server), &st), 0);
  assert_true(S_ISSOCK(st.st_mode));
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(*brim_lab_server_socket(server), '/');
  char file[600], socket_file[600];
  snprintf(file, sizeof file, "%s/" BRIM_LAB_SWEEP_FILE, place.place);
  snprintf(socket_file, sizeof socket_file, "%s", brim_lab_server_socket(server));
  char *text = NULL;
  assert_ok(brim_fs_read(file, 0, &text, &(size_t){0}));
  assert_non_null(strstr(text, "\"version\": \"1.2.3\""));
  brim_free(text);
  brim_lab_server *second = NULL;
  const brim_lab_server_options options = {.folder = place.place};
  assert_status(brim_lab_server_open(&options, &second), BRIM_EEXIST);
  assert_null(second);
  assert_true(brim_fs_exists(file));  // the refused second server removed nothing
  assert_true(brim_lab_sweep_runs(place.place, NULL));
  brim_lab_server_close(server);
  server = NULL;
  assert_false(brim_fs_exists(file));
  assert_false(brim_fs_exists(socket_file));
}

// A socket file of a killed server is replaced; a file of another program is not.
static void test_what_lies_in_the_way(void **state) {
  (void)state;
  brim_store_close(store);
  store = NULL;
  lab_serve(&place, place.place, NULL, &served);
  lab_serve_end(&served, SIGKILL);
  char file[600];
  snprintf(file, sizeof file, "%s/" BRIM_LAB_SOCKET_FILE, place.place);
  assert_true(brim_fs_exists(file));
  store = lab_open(&place);
  start((brim_lab_server_options){0});
  assert_true(brim_lab_sweep_runs(place.place, NULL));
  brim_lab_server_close(server);
  server = NULL;
  assert_ok(brim_fs_write(file, "mine", 4));
  start((brim_lab_server_options){0});
  assert_true(brim_lab_sweep_runs(place.place, NULL));
  assert_null(strstr(brim_lab_server_socket(server), BRIM_LAB_SOCKET_FILE));
  char *text = NULL;
  assert_ok(brim_fs_read(file, 0, &text, &(size_t){0}));
  assert_string_equal(text, "mine");
  brim_free(text);
}

static void test_long_folders(void **state) {
  (void)state;
  char folder[700], runtime[600];
  int n = snprintf(folder, sizeof folder, "%s/", place.place);
  memset(folder + n, 'n', 120);
  folder[n + 120] = '\0';
  assert_ok(brim_fs_mkdirs(folder));
  for (int i = 0; i < 3; i++) {
    // A folder for sockets that other users may enter is not used.
    snprintf(runtime, sizeof runtime, "/tmp/brim-test-%ld-%d", (long)getpid(), i);
    assert_int_equal(mkdir(runtime, 0700), 0);
    assert_int_equal(chmod(runtime, i == 1 ? 0755 : 0700), 0);
    setenv("XDG_RUNTIME_DIR", i == 2 ? "relative" : runtime, 1);
    brim_lab_server_options options = {.folder = folder, .ops.store = store};
    assert_ok(brim_lab_server_open(&options, &server));
    const char *path = brim_lab_server_socket(server);
    assert_true(strlen(path) < 108);
    assert_int_equal(brim_str_starts(path, runtime), i == 0);
    char parent[600];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    struct stat st;
    assert_int_equal(lstat(parent, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(brim_lab_sweep_runs(folder, NULL));
    brim_lab_server_close(server);
    server = NULL;
    assert_int_equal(rmdir(runtime), 0);
  }
  unsetenv("XDG_RUNTIME_DIR");
}

static void test_other_users_are_not_answered(void **state) {
  (void)state;
  if (geteuid() != 0) {
    const uint32_t other = geteuid() + 1;
    start((brim_lab_server_options){.uid = &other});
    int fd = client();
    say(fd, "{\"id\":1,\"op\":\"hello\"}\n");
    expect_end(fd);
    close(fd);
    return;
  }
  // Root is always answered. So another user tries, and the socket's mode is opened so that only the server's check
  // counts.
  char folder[64], path[sizeof(((brim_lab_sweep_info *)0)->socket)];
  snprintf(folder, sizeof folder, "/tmp/brim-test-%ld", (long)getpid());
  assert_int_equal(mkdir(folder, 0755), 0);
  brim_lab_server_options options = {.folder = folder, .ops.store = store};
  assert_ok(brim_lab_server_open(&options, &server));
  snprintf(path, sizeof path, "%s", brim_lab_server_socket(server));
  assert_int_equal(chmod(path, 0666), 0);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    brim_lab_sweep_info info = {.pid = 1};
    snprintf(info.socket, sizeof info.socket, "%s", path);
    int fd = -1;
    if (setuid(65534) != 0 || brim_lab_socket_connect(&info, PATIENCE_MS, &fd)) _exit(2);
    fcntl(fd, F_SETFL, 0);
    if (send(fd, "{\"op\":\"hello\"}\n", 15, MSG_NOSIGNAL) < 0) _exit(0);
    char byte;
    _exit(recv(fd, &byte, 1, 0) == 1 ? 1 : 0);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) turn(20);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) != 2) assert_int_equal(WEXITSTATUS(status), 0);
  brim_lab_server_close(server);
  server = NULL;
  assert_int_equal(rmdir(folder), 0);
  if (WEXITSTATUS(status) == 2) BRIM_SKIP("this machine lets root become no other user");
}

// Running out of descriptors stops new connections for a while, but not the server.
static void test_descriptors_run_out(void **state) {
  (void)state;
  start((brim_lab_server_options){0});
  int fd = client();
  say(fd, "{\"id\":1,\"op\":\"hello\"}\n");
  expect(fd, "\"ok\":true");
  int waiting = client();
  struct rlimit files, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
  none = files;
  none.rlim_cur = (rlim_t)waiting + 1;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 5; i++) turn(1);
  say(fd, "{\"id\":2,\"op\":\"hello\"}\n");
  expect(fd, "\"id\":2,\"ok\":true");
  assert_int_equal(brim_lab_server_connections(server), 1);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
  say(waiting, "{\"id\":3,\"op\":\"hello\"}\n");
  expect(waiting, "\"id\":3,\"ok\":true");
  close(fd);
  close(waiting);
}

// A child between fork and exec holds a copy of every connection. A connection that ends meanwhile must not stay: epoll
// reports it no more.
static void test_ended_while_a_child_holds_it(void **state) {
  (void)state;
  start((brim_lab_server_options){0});
  int fd = client();
  say(fd, "{\"id\":1,\"op\":\"hello\"}\n");
  expect(fd, "\"ok\":true");
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(fd);
    alarm(2 * PATIENCE_MS / 1000);  // ends the process if the test hangs
    for (;;) pause();
  }
  assert_true(child > 0);
  close(fd);
  for (int i = 0; brim_lab_server_connections(server) && i < PATIENCE_MS / 10; i++) turn(10);
  struct pollfd p = {.fd = brim_lab_server_fd(server), .events = POLLIN};
  int ready = poll(&p, 1, 0);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(brim_lab_server_connections(server), 0);
  assert_int_equal(ready, 0);
}

// --- a server that is killed between a change and its reply

static void die_after(void *ctx, brim_lab_op op, const char *exp) {
  (void)exp;
  if (op == *(const brim_lab_op *)ctx) raise(SIGKILL);
}

static void test_killed_before_the_reply(void **state) {
  (void)state;
  static brim_lab_op die_at[] = {BRIM_LAB_OP_START, BRIM_LAB_OP_METRICS, BRIM_LAB_OP_CHECKPOINT,
                                 BRIM_LAB_OP_FINISH};
  lab_submit(store, "g", 1, 1);
  brim_store_ref ref = lab_claim(store, 1);
  brim_store_close(store);
  store = NULL;
  brim_lab_link *link = NULL;
  for (size_t i = 0; i < 4; i++) {
    const brim_lab_server_options options = {.ops = {.changed = die_after, .ctx = &die_at[i]}};
    const brim_lab_link_options patient = {.sweep_only = true, .timeout_ms = PATIENCE_MS};
    const brim_store_metric row = {"loss", 1, 0.25};
    const brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
    brim_status status = BRIM_OK;
    for (int again = 0; again < 2; again++) {
      lab_serve(&place, place.place, again ? NULL : &options, &served);
      if (!link) assert_ok(brim_lab_link_open(place.place, &patient, &link));
      if (i == 0) status = brim_lab_start(link, &ref, 5, -1);
      if (i == 1) status = brim_lab_metrics(link, &ref, 1, &row, 1);
      if (i == 2) status = brim_lab_checkpoint(link, &ref, 1);
      if (i == 3) status = brim_lab_finish(link, &ref, &ok, NULL);
      assert_status(status, again ? BRIM_OK : BRIM_EIO);
      if (!again) {
        assert_int_equal(waitpid(served.pid, &(int){0}, 0), served.pid);
        served.pid = 0;
      } else {
        lab_serve_end(&served, SIGTERM);
      }
    }
    // The link notices at its next call that the new server is gone too.
    brim_store_beat_reply reply;
    assert_status(brim_lab_beat(link, &ref, NULL, &reply), BRIM_EIO);
  }
  brim_lab_link_close(link);
  store = lab_open(&place);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_DONE);
  lab_check(store);
}

// --- servers that are not brim's

typedef struct liar {
  const char *text;  // sent as the reply
  bool silent;       // sends nothing and stays connected
} liar;

// Accepts one connection, reads one request, sends its text.
static pid_t lie(const char *folder, const liar *l) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char file[700], text[700];
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_ok(brim_fs_mkdirs(folder));
  assert_non_null(realpath(folder, file));
  int length = snprintf(text, sizeof text, "%s/" BRIM_LAB_SOCKET_FILE, file);
  assert_true(length < (int)sizeof address.sun_path);
  memcpy(address.sun_path, text, (size_t)length + 1);
  unlink(address.sun_path);
  assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(fd, 8), 0);
  snprintf(file, sizeof file, "%s/" BRIM_LAB_SWEEP_FILE, folder);
  snprintf(text, sizeof text, "{\"pid\": 1, \"socket\": \"%s\"}", address.sun_path);
  assert_ok(brim_fs_write(file, text, strlen(text)));
  fflush(stdout);
  pid_t pid = fork();
  if (pid != 0) {
    close(fd);
    return pid;
  }
  int conn = accept(fd, NULL, NULL);
  char byte = 0;
  while (byte != '\n' && recv(conn, &byte, 1, 0) == 1) {
  }
  size_t n = strlen(l->text);
  if (send(conn, l->text, n, MSG_NOSIGNAL) != (ssize_t)n) _exit(1);
  while (l->silent && recv(conn, &byte, 1, 0) > 0) {
  }
  _exit(0);
}

static void test_other_servers(void **state) {
  (void)state;
  static const liar liars[] = {
      {"", false},
      {"", true},
      {"{\"id\":1,\"ok\":true", true},
      {"{\"id\":1,\"ok\":true", false},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", false},
      {"{\"id\":77,\"ok\":true,\"total\":1,\"states\":{}}\n", true},
      {"{\"id\":\"1\",\"ok\":true}\n", true},
      {"[]\n", true},
      {"{\"id\":1,\"ok\":true,\"more\":true}\n", false},
      {"{\"id\":null,\"ok\":false,\"status\":\"BRIM_EIO\",\"message\":\"busy\"}\n", false},
  };
  for (size_t i = 0; i < sizeof liars / sizeof *liars; i++) {
    pid_t pid = lie(place.place, &liars[i]);
    brim_lab_link *link = NULL;
    const brim_lab_link_options options = {.sweep_only = true,
                                           .timeout_ms = liars[i].silent ? 300 : PATIENCE_MS};
    assert_ok(brim_lab_link_open(place.place, &options, &link));
    brim_store_counts counts;
    brim_status status = brim_lab_count(link, NULL, &counts);
    if (status != BRIM_EIO) fail_msg("reply %zu: %d, %s", i, status, brim_status_detail());
    assert_false(brim_lab_link_to_sweep(link));
    brim_lab_link_close(link);
    assert_int_equal(waitpid(pid, &(int){0}, 0), pid);
  }
  // Complete replies that lack a member, or fail with a status this version does not know.
  static const liar odd[] = {
      {"{\"id\":1,\"ok\":true}\n", false},
      {"{\"id\":1,\"ok\":false,\"status\":\"BRIM_ENEW\"}\n", false},
      {"{\"id\":1,\"ok\":false}\n", false},
  };
  static const brim_status statuses[] = {BRIM_EABI, BRIM_EINTERNAL, BRIM_EINTERNAL};
  for (size_t i = 0; i < 3; i++) {
    pid_t pid = lie(place.place, &odd[i]);
    brim_lab_link *link = NULL;
    const brim_lab_link_options options = {.sweep_only = true, .timeout_ms = PATIENCE_MS};
    assert_ok(brim_lab_link_open(place.place, &options, &link));
    brim_store_counts counts;
    assert_status(brim_lab_count(link, NULL, &counts), statuses[i]);
    brim_lab_link_close(link);
    assert_int_equal(waitpid(pid, &(int){0}, 0), pid);
  }
}

// A stopped sweep (SIGSTOP) accepts connections and does not answer: the call ends by its time limit.
static void test_a_stopped_sweep(void **state) {
  (void)state;
  brim_store_close(store);
  store = NULL;
  lab_serve(&place, place.place, NULL, &served);
  const brim_lab_link_options options = {.sweep_only = true, .timeout_ms = 300};
  brim_lab_link *link = NULL;
  assert_ok(brim_lab_link_open(place.place, &options, &link));
  brim_store_counts counts;
  assert_int_equal(kill(served.pid, SIGSTOP), 0);
  assert_status(brim_lab_count(link, NULL, &counts), BRIM_EIO);
  assert_true(brim_lab_sweep_runs(place.place, NULL));
  assert_int_equal(kill(served.pid, SIGCONT), 0);
  brim_lab_link_close(link);
  const brim_lab_link_options patient = {.sweep_only = true, .timeout_ms = PATIENCE_MS};
  assert_ok(brim_lab_link_open(place.place, &patient, &link));
  assert_ok(brim_lab_count(link, NULL, &counts));
  brim_lab_link_close(link);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  test_filter();
  const struct CMUnitTest tests[] = {
      TEST(test_requests_in_pieces),
      TEST(test_half_closed_clients_get_their_replies),
      TEST(test_garbage),
      TEST(test_deep_and_long_requests),
      TEST(test_duplicated_and_delayed),
      TEST(test_hundreds_of_connections),
      TEST(test_a_client_that_never_reads),
      TEST(test_a_slow_reader),
      TEST(test_hooks),
      TEST(test_files_of_a_server),
      TEST(test_what_lies_in_the_way),
      TEST(test_long_folders),
      TEST(test_other_users_are_not_answered),
      TEST(test_descriptors_run_out),
      TEST(test_ended_while_a_child_holds_it),
      TEST(test_killed_before_the_reply),
      TEST(test_other_servers),
      TEST(test_a_stopped_sweep),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
