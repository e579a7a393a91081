// Words and options of `brim serve` and of commands about a server, with the built program.
#include "serve_test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "cli/serve/cli_serve.h"

static void submit_with(const pool *p, const char *grid, const char *line) {
  shell_result r = submit_grid(p, grid);
  if (line) has(r.err, line);
  shell_free(&r);
}

// `brim serve --client-only --url` is `brim worker --url`.
static void test_client_only(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  says(2, "brim serve --client-only");
  says(2, "brim serve --client-only --url http://x --store pool");
  says(2, "brim serve --client-only --server-only");
  says(2, "brim serve --url http://127.0.0.1:1 --store pool");
  says(2, "brim serve --pin sha256//x --store pool");
  says(2, "brim serve --server-only --device cpu --store pool");
  says(2, "brim serve --jobs 0 --store pool");
  assert_false(brim_fs_exists("pool"));
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  brim_child *one =
      start((const char *const[]){"--quiet", "serve", "--client-only", "--url", p.url, "--device",
                                  "cpu", "--jobs", "2", "--output-dir", "w1", NULL},
            NULL);
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(folders_in("w1/exp"), 4);
  assert_int_equal(end(p.server), 0);
}

// Starts and stops a server; `out` has its output.
static shell_result serve_and_stop(const char *options) {
  // the program itself, because a shell function would run in a shell's process
  shell_result r = shell(
      "rm -f serve.err; '" BRIM_BINARY
      "' serve --server-only --port 0 --store pool %s 2> serve.err & pid=$!; "
      "until grep -qs 'brim serves' serve.err; do sleep 0.1; done; kill -TERM $pid; wait $pid; "
      "cat serve.err",
      options);
  assert_int_equal(r.code, 0);
  return r;
}

// Ctrl-C of a server prints a message about servers.
static void test_stop_text(void **state) {
  (void)state;
  shell_result r = serve_and_stop("");
  said(&r);
  shell_free(&r);
}

// A mistyped store is not created.
static void test_token_of_no_store(void **state) {
  (void)state;
  says(2, "brim serve token list --store typo");
  says(2, "brim serve token rotate me --store typo");
  says(2, "brim serve token end me --store typo");
  assert_false(brim_fs_exists("typo"));
}

// A file with a secret is always created new, so that no other user has it open, owns it, or put a link there.
static void test_private_files(void **state) {
  (void)state;
  struct stat st;
  char text[16] = "";
  write_file("plain", "theirs");
  assert_int_equal(chmod("plain", 0666), 0);
  int theirs = open("plain", O_RDONLY | O_CLOEXEC);
  if (geteuid() == 0) assert_int_equal(chown("plain", 12345, 12345), 0);
  assert_ok(brim_cli_write_private("plain", "secret"));
  assert_int_equal(read(theirs, text, sizeof text - 1), 6);
  assert_string_equal(text, "theirs");
  close(theirs);
  assert_int_equal(stat("plain", &st), 0);
  assert_int_equal(st.st_mode & 07777, 0600);
  assert_int_equal(st.st_uid, geteuid());
  assert_int_equal(unlink("plain"), 0);
  write_file("token.theirs", "theirs");
  assert_int_equal(symlink("token.theirs", "plain"), 0);
  assert_ok(brim_cli_write_private("plain", "secret"));
  expect(0, NULL, "grep -q theirs token.theirs && test ! -L plain && grep -q secret plain");
}

static void test_readable_secrets(void **state) {
  (void)state;
  static const char *const commands[] = {
      "brim worker --url http://127.0.0.1:1 --token-file token.one --output-dir plain 2>&1 |"
      " grep -q 'chmod 600 token.one'",
      "brim serve --server-only --store pool --cert no.pem --key token.one 2>&1 |"
      " grep -q 'chmod 600 token.one'"};
  write_file("plain", "a file where the folder should be");  // both commands end before they begin
  write_file("token.one", "brim_x\n");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    assert_int_equal(chmod("token.one", 0644), 0);
    expect(0, NULL, commands[i]);
    assert_int_equal(chmod("token.one", 0600), 0);
    expect(1, NULL, commands[i]);
  }
}

static void test_drain(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  brim_child *one = work(&p, "w1");
  char name[128] = "";
  for (int i = 0; i < TRIES && !name[0]; i++) {
    json_t *view = status_of(&p, "");
    const json_t *worker = json_array_get(json_object_get(view, "workers"), 0);
    const char *text = json_string_value(json_object_get(worker, "id"));
    if (text) snprintf(name, sizeof name, "%s", text);
    json_decref(view);
    if (!name[0]) usleep(PAUSE_US);
  }
  shell_result r =
      shell("brim sweep drain --store %s '%s' && brim sweep drain %s nobody", p.url, name, p.url);
  assert_int_equal(r.code, 2);
  has(r.out, "finishes its experiments and takes no more");
  has(r.err, "nobody");
  shell_free(&r);
  submit_with(&p, "small.yaml", "they wait: every worker of the server drains");
  r = shell("brim sweep status %s", p.url);
  assert_int_equal(r.code, 0);
  has(r.out, "every worker drains");
  has(r.out, "draining");
  shell_free(&r);
  r = shell("brim sweep undrain %s '%s'", p.url, name);
  assert_int_equal(r.code, 0);
  has(r.out, "takes experiments again");
  shell_free(&r);
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(end(p.server), 0);
}

static size_t count_of(const char *text, const char *part) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
  return n;
}

// Several grids in one store: each row names its grid, and --grid selects one.
static void test_status_of_grids(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  write_grid("large.yaml", "large", 4);
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  shell_result r = shell("brim sweep status %s", p.url);
  said(&r);
  has_not(r.out, "Grid");
  shell_free(&r);
  submit_with(&p, "large.yaml", NULL);
  r = shell("brim sweep status %s", p.url);
  said(&r);
  has(r.out, "Grid");
  assert_int_equal(count_of(r.out, " large "), 4);
  shell_free(&r);
  r = shell("brim sweep status %s --grid small", p.url);
  said(&r);
  shell_free(&r);
  r = shell("brim sweep status %s --grid other", p.url);
  assert_int_equal(r.code, 2);
  said(&r);
  shell_free(&r);
  assert_int_equal(end(p.server), 0);
}

// --limit holds for experiments in every state.
static void test_status_limit(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  json_t *view = status_of(&p, "");
  char ids[2][64];
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(json_object_get(view, "rows"), i);
    snprintf(ids[i], sizeof ids[i], "%s", json_string_value(json_object_get(row, "id")));
  }
  json_decref(view);
  shell_result r = shell("brim sweep cancel %s --store %s && brim sweep pause %s --store %s",
                         ids[0], p.url, ids[1], p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  // a change that is already made is not reported as done
  r = shell(
      "export URL=%s; brim sweep pause %s --store $URL; brim sweep retry %s --store $URL; brim "
      "sweep "
      "retry %s --store $URL; brim sweep cancel %s --store $URL",
      p.url, ids[1], ids[0], ids[0], ids[0]);
  assert_int_equal(r.code, 0);
  assert_string_equal(r.out,
                      "paused already, or being paused: 1\nqueued 1 experiment again\nqueued "
                      "already: 1\ncancelled 1 experiment\n");
  shell_free(&r);
  view = status_of(&p, "--limit 1");
  assert_int_equal(json_array_size(json_object_get(view, "rows")), 1);
  json_decref(view);
  assert_int_equal(end(p.server), 0);
}

static void fails_with(const char *command, const char *line) {
  shell_result r = shell("%s", command);
  assert_int_not_equal(r.code, 0);
  has(r.err, line);
  shell_free(&r);
}

// The wrong scheme, no trust and a mistyped pin: each has its own sentence.
static void test_schemes_and_pins(void **state) {
  (void)state;
  char command[256];
  if (!make_certificate("90")) BRIM_SKIP("openssl makes no certificate");
  pool p =
      serve_with((const char *const[]){"serve", "--server-only", "--port", "0", "--json", "--store",
                                       "pool", "--cert", "cert.pem", "--key", "key.pem", NULL});
  const char *port = strrchr(p.url, ':') + 1;
  snprintf(command, sizeof command, "brim sweep status http://127.0.0.1:%s", port);
  fails_with(command, "if it uses TLS, its address begins with https://");
  snprintf(command, sizeof command, "brim sweep status %s", p.url);
  fails_with(command, "trust it with --pin or --ca");
  snprintf(command, sizeof command, "BRIM_PIN=sha256//abc brim sweep status %s", p.url);
  fails_with(command, "'sha256//abc' is no pin: it is sha256// and 44 characters");
  snprintf(command, sizeof command,
           "BRIM_PIN=sha256//jrLsRjEvlFH7VFyA3tXIrRY2L1nFIZF17drc9oGJi30= brim sweep status %s",
           p.url);
  fails_with(command, "has another key than the pin; brim serve prints the pin");
  assert_int_equal(end(p.server), 0);
  pool plain = serve("60");
  snprintf(command, sizeof command, "brim sweep status https%s", plain.url + strlen("http"));
  fails_with(command, "its address begins with http://");
  assert_int_equal(end(plain.server), 0);
}

static void test_old_certificates(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"-1", "expired on 20"}, {"10", "expires on 20"}, {"90", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!make_certificate(cases[i][0])) BRIM_SKIP("openssl makes no certificate");
    shell_result r = serve_and_stop("--cert cert.pem --key key.pem");
    if (cases[i][1]) {
      has(r.out, cases[i][1]);
    } else {
      has_not(r.out, "expire");
    }
    shell_free(&r);
  }
}

static void wait_for_text(const char *file, const char *part) {
  for (int i = 0; i < TRIES; i++) {
    char *text = NULL;
    if (brim_fs_read(file, 0, &text, NULL)) brim_status_clear();
    bool found = text && strstr(text, part);
    brim_free(text);
    if (found) return;
    usleep(PAUSE_US);
  }
  fail_msg("no '%s' in %s", part, file);
}

static brim_child *follow_log(const pool *p, const char *id) {
  char command[512];
  snprintf(command, sizeof command,
           "exec '" BRIM_BINARY "' sweep log -f %s --store %s > log.out 2> log.err", id, p->url);
  const char *const argv[] = {"sh", "-c", command, NULL};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_INHERIT,
                                  .die_with_parent = true};
  brim_child *log = NULL;
  assert_ok(brim_child_start(&how, &log));
  return log;
}

// A server is killed and started again: a command that follows a log waits for it.
static void test_log_outlives_the_server(void **state) {
  (void)state;
  char id[64], port[16];
  const char *words[] = {"serve",  "--server-only", "--port", "0",
                         "--json", "--store",       "pool",   NULL};
  write_grid("slow.yaml", "slow", 1000000);
  pool p = serve_with(words);
  submit_with(&p, "slow.yaml", NULL);
  brim_child *one = work(&p, "w1");
  wait_until(&p, "running", 1);
  json_t *view = status_of(&p, "--state running");
  const json_t *row = json_array_get(json_object_get(view, "rows"), 0);
  snprintf(id, sizeof id, "%s", json_string_value(json_object_get(row, "id")));
  json_decref(view);
  brim_child *log = follow_log(&p, id);
  wait_for_text("log.out", "\n");
  brim_child_close(p.server);  // SIGKILL
  wait_for_text("log.err", "cannot reach the server; brim waits for it");
  snprintf(port, sizeof port, "%s", strrchr(p.url, ':') + 1);
  words[3] = port;
  p = serve_with(words);
  wait_for_text("log.err", "the server answers again");
  shell_result r = shell("brim sweep cancel --all --store %s", p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  bool ended = false;
  assert_ok(brim_child_wait(log, 120000, &ended));
  assert_true(ended);
  assert_int_equal(brim_child_get_result(log)->exit_code, 0);
  brim_child_close(log);
  end(one);
  assert_int_equal(end(p.server), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_client_only, fresh),
                                     cmocka_unit_test_setup(test_stop_text, fresh),
                                     cmocka_unit_test_setup(test_token_of_no_store, fresh),
                                     cmocka_unit_test_setup(test_private_files, fresh),
                                     cmocka_unit_test_setup(test_readable_secrets, fresh),
                                     cmocka_unit_test_setup(test_drain, fresh),
                                     cmocka_unit_test_setup(test_status_of_grids, fresh),
                                     cmocka_unit_test_setup(test_status_limit, fresh),
                                     cmocka_unit_test_setup(test_schemes_and_pins, fresh),
                                     cmocka_unit_test_setup(test_old_certificates, fresh),
                                     cmocka_unit_test_setup(test_log_outlives_the_server, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
