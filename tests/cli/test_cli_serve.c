// `brim serve` and `brim worker` from the command line, with the built program: a grid is submitted to a server and run
// by two workers, and one of them is killed; tokens and addresses are checked.
#include "chaos/chaos_int.h"
#include "serve_test.h"

static void submit(const pool *p, const char *grid) {
  shell_result r = submit_grid(p, grid);
  has(r.err, "4 experiments new");
  has_not(r.err, "nothing is left to run");
  shell_free(&r);
}

// Submits again: existing experiments are not reported as new.
static void submit_again(const pool *p, const char *grid, const char *line) {
  shell_result r = submit_grid(p, grid);
  has(r.err, "0 experiments new, 4 already");
  has(r.err, line);
  has_not(r.err, "the server's workers run them");
  has_not(r.err, "rerun-failed");
  shell_free(&r);
}

static void test_two_workers(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  submit(&p, "small.yaml");
  submit_again(&p, "small.yaml", "they wait: the server has no worker now");
  assert_int_equal(count_state(&p, "queued"), 4);
  brim_child *one = work(&p, "w1"), *two = work(&p, "w2");
  wait_until(&p, "done", 4);
  shell_result r = shell("brim sweep status %s", p.url);
  assert_int_equal(r.code, 0);
  has(r.out, "4 of 4 done");
  has_not(r.out, "no sweep is running");
  shell_free(&r);
  submit_again(&p, "small.yaml", "nothing is left to run: 4 done, 0 failed");
  r = shell("brim report %s", p.url);
  assert_int_not_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  // both wait for more
  bool ended = true;
  assert_ok(brim_child_poll(one, &ended));
  assert_false(ended);
  end(one);
  end(two);
  assert_int_equal(folders_in("w1/exp") + folders_in("w2/exp"), 4);  // each experiment ran once
  assert_int_equal(end(p.server), 0);
}

static void test_a_killed_worker(void **state) {
  (void)state;
  write_grid("slow.yaml", "slow", 100);
  pool p = serve("3");
  submit(&p, "slow.yaml");
  brim_child *one = work(&p, "w1");
  wait_until(&p, "running", 1);
  kill_whole(one);
  assert_true(count_state(&p, "done") < 4);
  brim_child *two = work(&p, "w2");
  wait_until(&p, "done", 4);
  end(two);
  assert_true(folders_in("w1/exp") >= 1);
  assert_true(folders_in("w2/exp") >= 1);
  assert_int_equal(end(p.server), 0);
}

// A killed server has lost nothing when it is back.
static void test_a_killed_server(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("3");
  submit(&p, "small.yaml");
  brim_child_close(p.server);  // SIGKILL
  p = serve("3");
  assert_int_equal(count_state(&p, "queued"), 4);
  brim_child *one = work(&p, "w1");
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(end(p.server), 0);
}

// Trainings on the server's own machine outlive it: the next server takes their results, and none runs twice.
static void test_a_killed_server_with_a_worker(void **state) {
  (void)state;
  write_grid("slow.yaml", "slow", 100);
  const char *words[] = {"serve", "--port",       "0",    "--json", "--store",
                         "pool",  "--output-dir", "pool", NULL};
  pool p = serve_with(words);
  submit(&p, "slow.yaml");
  wait_until(&p, "running", 1);
  brim_child_close(p.server);  // SIGKILL
  words[2] = strrchr(p.url, ':') + 1;
  pool again = serve_with(words);
  wait_until(&again, "done", 4);
  shell_result r = shell("brim sweep status %s --json", again.url);
  assert_int_equal(r.code, 0);
  has(r.out, "\"attempt\":1,");
  has_not(r.out, "\"attempt\":2,");
  shell_free(&r);
  expect(0, "600", "stat -c %a pool/local.token");
  assert_int_equal(end(again.server), 0);
}

// The reply to a claim is lost: the experiment still runs, long before its lease ends.
static void test_a_claim_without_a_reply(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 2);
  pool p = serve("600");
  submit(&p, "small.yaml");
  brim_chaos_proxy *proxy = NULL;
  const brim_chaos_proxy_options how = {.port = atoi(strrchr(p.url, ':') + 1),
                                        .seed = 1,
                                        .percent = 100,
                                        .only = BRIM_CHAOS_CUT_REPLY,
                                        .match = "\"claim\"",
                                        .most = 1};
  assert_ok(brim_chaos_proxy_open(&how, &proxy));
  pool through = p;
  snprintf(through.url, sizeof through.url, "http://127.0.0.1:%d", brim_chaos_proxy_port(proxy));
  brim_child *one = work(&through, "w1");
  wait_until(&p, "done", 4);
  shell_result r = shell("brim sweep export %s", p.url);
  has(r.out, "\"outcome\":\"stopped\"");
  has_not(r.out, "\"outcome\":\"expired\"");
  shell_free(&r);
  end(one);
  brim_chaos_proxy_close(proxy);
  assert_int_equal(end(p.server), 0);
}

// An executor hangs for ever: its worker ends it when the server has given the attempt up, and runs others.
static void test_a_stopped_executor(void **state) {
  (void)state;
  write_grid("slow.yaml", "slow", 100);
  pool p = serve("1");
  submit(&p, "slow.yaml");
  brim_child *one = work(&p, "w1");
  wait_until(&p, "running", 1);
  expect(0, NULL,
         "for i in 1 2 3 4 5 6 7 8 9; do pid=$(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p' "
         "w1/exp/*/executor.json); test -n \"$pid\" && kill -STOP $pid && exit 0; sleep 0.2; "
         "done; exit 1");
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(end(p.server), 0);
}

// A worker that starts before its server waits for the server.
static void test_a_worker_comes_first(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 2);
  pool p = serve("60");
  submit(&p, "small.yaml");
  assert_int_equal(end(p.server), 0);
  brim_child *one = work(&p, "w1");
  bool ended = false;
  for (int i = 0; i < TRIES && !brim_fs_exists("w1"); i++) usleep(PAUSE_US);
  assert_ok(brim_child_wait(one, 1000, &ended));
  assert_false(ended);
  pool again =
      serve_with((const char *const[]){"serve", "--server-only", "--port", strrchr(p.url, ':') + 1,
                                       "--json", "--store", "pool", NULL});
  wait_until(&again, "done", 4);
  end(one);
  assert_int_equal(end(again.server), 0);
  // and ends when it is asked to
  one = work(&p, "w2");
  for (int i = 0; i < TRIES && !brim_fs_exists("w2"); i++) usleep(PAUSE_US);
  assert_int_equal(end(one), 130);
}

// The worker on the server's own machine trusts a certificate that no authority signed and that has another name.
static void test_own_worker_over_tls(void **state) {
  (void)state;
  if (!make_certificate("2")) BRIM_SKIP("openssl makes no certificate");
  write_grid("small.yaml", "small", 3);
  pool p = serve_with((const char *const[]){"serve", "--port", "0", "--json", "--store", "pool",
                                            "--output-dir", "pool", "--cert", "cert.pem", "--key",
                                            "key.pem", NULL});
  shell_result r = shell("brim sweep small.yaml --store %s", p.url);
  assert_int_not_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  setenv("BRIM_PIN", p.pin, 1);
  submit(&p, "small.yaml");
  wait_until(&p, "done", 4);
  unsetenv("BRIM_PIN");
  assert_int_equal(folders_in("pool/exp"), 4);
  assert_int_equal(end(p.server), 0);
}

static void test_tokens(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  expect(0, NULL, "brim serve token add lab --role worker --store pool > token-worker");
  expect(0, "brim_", "cat token-worker");
  expect(0, NULL, "brim serve token add me --role submit --store pool > token-submit");
  says(2, "brim serve token add me --role submit --store pool");
  expect(0, "worker", "brim serve token list --store pool");
  expect(2, "--role", "brim serve token add you --role king --store pool");
  expect(2, "a-z", "brim serve token add 'Y/u' --store pool");
  says(2, "brim serve token add local --store pool");
  says(2, "brim serve --webhook server --port 0 --store pool");
  pool p = serve("60");
  shell_result r = shell(
      "export URL=%s; ! brim sweep small.yaml --store $URL 2>&1; ! BRIM_TOKEN=brim_wrong brim "
      "sweep "
      "small.yaml --store $URL 2>&1",
      p.url);
  assert_int_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  r = shell("BRIM_TOKEN=$(cat token-worker) brim sweep small.yaml --store %s", p.url);
  assert_int_not_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  r = shell("BRIM_TOKEN=$(cat token-submit) brim sweep small.yaml --store %s", p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  // the server that has the store makes the change, so it knows it at once
  expect(0, "600", "stat -c %a pool/serve.json");
  expect(0, NULL, "brim serve token rotate me --store pool > token-new");
  expect(0, "submit", "brim serve token list --store pool");
  r = shell(
      "export URL=%s; ! BRIM_TOKEN=$(cat token-submit) brim sweep status $URL 2>&1 && "
      "BRIM_TOKEN=$(cat token-new) brim sweep status $URL",
      p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  expect(0, NULL, "brim serve token end me --store pool");
  says(2, "brim serve token end me --store pool");
  // other users could have chosen its contents
  expect(0, NULL, "chmod 644 pool/serve.json");
  says(2, "brim serve token list --store pool");
  assert_int_equal(end(p.server), 0);
  assert_false(brim_fs_exists("pool/serve.json"));
}

static void test_addresses(void **state) {
  (void)state;
  expect(2, "--cert", "brim serve --address 0.0.0.0 --store pool");
  expect(2, "--port", "brim serve --port 70000 --store pool");
  expect(2, "--lease", "brim serve --lease 0 --store pool");
  says(2, "brim serve --store http://127.0.0.1:8000");
  assert_false(has_file("http:"));
  expect(2, "--url", "brim worker");
  says(2, "brim worker --url pool");
  expect(2, "--jobs", "brim worker --url http://127.0.0.1:1 --jobs 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_two_workers, fresh),
      cmocka_unit_test_setup(test_a_killed_worker, fresh),
      cmocka_unit_test_setup(test_a_killed_server, fresh),
      cmocka_unit_test_setup(test_a_killed_server_with_a_worker, fresh),
      cmocka_unit_test_setup(test_a_worker_comes_first, fresh),
      cmocka_unit_test_setup(test_a_claim_without_a_reply, fresh),
      cmocka_unit_test_setup(test_a_stopped_executor, fresh),
      cmocka_unit_test_setup(test_own_worker_over_tls, fresh),
      cmocka_unit_test_setup(test_tokens, fresh),
      cmocka_unit_test_setup(test_addresses, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
