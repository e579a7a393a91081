// Files of experiments on a server: one worker begins an experiment and another one ends it, with the same bits as an
// undisturbed training, over kills of worker and server. Its files can be fetched.
#include "same_file.h"
#include "serve_test.h"

static const char grid[] =
    "name: slow\n"
    "epochs: 600\n"
    "backend: ref\n"
    "device: cpu\n"
    "threads: 1\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=480)\n"
    "model: mlp(depth=1, hidden=16)\n"
    "data: {num_workers: 0}\n"
    "lr: [0.1]\n"
    "seed: [3]\n"
    "batch_size: 8\n";

static pool serve_files(const char *port) {
  return serve_with((const char *const[]){"serve", "--server-only", "--port", port, "--json",
                                          "--store", "pool", "--output-dir", "pool", "--lease", "3",
                                          NULL});
}

// The only complete file of a kind on the server: its name; "" = none.
static void whole_of(const char *exp, const char *kind, char out[256]) {
  char folder[96], **names = NULL;
  size_t count = 0;
  out[0] = '\0';
  snprintf(folder, sizeof folder, "pool/files/%s", exp);
  if (brim_fs_list(folder, &names, &count)) {
    brim_status_clear();
    return;
  }
  for (size_t i = 0; i < count; i++) {
    if (!brim_str_starts(names[i], kind) || brim_str_ends(names[i], ".part")) continue;
    snprintf(out, 256, "%s/%.128s", folder, names[i]);
  }
  brim_fs_list_free(names, count);
}

// Waits until the server has another file than `old`.
static void wait_for_checkpoint(const char *exp, const char *old, char out[256]) {
  for (int i = 0; i < TRIES; i++) {
    whole_of(exp, "checkpoint.", out);
    if (out[0] && strcmp(out, old) != 0) return;
    usleep(PAUSE_US / 5);
  }
  fail_msg("no checkpoint comes to the server");
}

static void submit_one(const pool *p, char exp[33]) {
  write_file("slow.yaml", grid);
  shell_result r = shell("brim sweep slow.yaml --store %s && brim sweep export %s", p->url, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  const char *id = strstr(r.out, "\"id\":\"");
  assert_non_null(id);
  snprintf(exp, 33, "%.32s", id + strlen("\"id\":\""));
  shell_free(&r);
}

static void same_as_plain(const char *exp) {
  static const char *const names[] = {"last", "best", "model"};
  shell_result r = shell(
      "brim train w2/exp/%.12s/experiment.yaml --output-dir plain --device cpu log.jsonl=true",
      exp);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  for (size_t i = 0; i < 3; i++) {
    char mine[160], plain[64];
    snprintf(mine, sizeof mine, "w2/exp/%.12s/%s.safetensors", exp, names[i]);
    snprintf(plain, sizeof plain, "plain/%s.safetensors", names[i]);
    assert_same_file(mine, plain);
  }
  // one row for each epoch, including those of the first worker
  r = shell("grep -c '\"event\":\"epoch\"' plain/log.jsonl w2/exp/%.12s/log.jsonl", exp);
  has(r.out, "plain/log.jsonl:600\n");
  has(r.out, "/log.jsonl:600\n");
  const char *second = strchr(r.out, '\n');
  assert_non_null(second);
  has(second, ":600\n");
  shell_free(&r);
}

typedef struct resumed {
  int64_t attempts, from_step;  // from_step is the last one's
} resumed;

static resumed last_attempt(const pool *p) {
  resumed out = {0};
  json_t *line = NULL;
  shell_result r = shell("brim sweep export %s", p->url);
  assert_int_equal(r.code, 0);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "export", &line));
  const json_t *attempts = json_object_get(line, "attempts");
  out.attempts = (int64_t)json_array_size(attempts);
  out.from_step = json_integer_value(
      json_object_get(json_array_get(attempts, (size_t)out.attempts - 1), "from_step"));
  json_decref(line);
  shell_free(&r);
  return out;
}

static void check_fetched(const pool *p, const char *exp) {
  shell_result r = shell("brim sweep get %.12s --store %s -o got.safetensors", exp, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_same_file("got.safetensors", "plain/model.safetensors");
  shell_free(&r);
  r = shell("brim sweep get %.12s best --store %s --json", exp, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  has(r.out, "best.safetensors");
  char path[64];
  snprintf(path, sizeof path, "%.12s-best.safetensors", exp);
  assert_same_file(path, "plain/best.safetensors");
  shell_free(&r);
  r = shell(
      "brim sweep log %.12s --store %s > log.out && cmp log.out w2/exp/%.12s/attempt-2.log && "
      "brim sweep log %.12s --attempt 1 --lines 2 --store %s | wc -l",
      exp, p->url, exp, exp, p->url);
  if (r.code) fail_msg("exit %d: %s %s", r.code, r.out, r.err);
  has(r.out, "2");
  shell_free(&r);
  r = shell("brim sweep get %.12s passwd --store %s", exp, p->url);
  assert_int_equal(r.code, 2);
  has(r.err, "weights, best");
  shell_free(&r);
}

static void test_another_machine_ends_it(void **state) {
  (void)state;
  char exp[33], first[256], second[256];
  pool p = serve_files("0");
  submit_one(&p, exp);
  brim_child *one = work(&p, "w1");
  wait_for_checkpoint(exp, "", first);
  // a killed server that comes back gets the next files
  char port[16];
  snprintf(port, sizeof port, "%s", strrchr(p.url, ':') + 1);
  brim_child_close(p.server);  // SIGKILL
  p = serve_files(port);
  wait_for_checkpoint(exp, first, second);
  kill_whole(one);
  assert_int_equal(count_state(&p, "done"), 0);
  brim_child *two = work(&p, "w2");
  wait_until(&p, "done", 1);
  end(two);
  const resumed r = last_attempt(&p);
  assert_int_equal(r.attempts, 2);
  assert_true(r.from_step > 0);
  same_as_plain(exp);
  check_fetched(&p, exp);
  // older files are gone
  whole_of(exp, "checkpoint.", first);
  assert_same_file(first, "plain/last.safetensors");
  assert_int_equal(end(p.server), 0);
}

// The same commands with a folder.
static void test_from_a_folder(void **state) {
  (void)state;
  write_file("slow.yaml", grid);
  shell_result r = shell(
      "sed 's/epochs: 600/epochs: 2/' slow.yaml > short.yaml && brim sweep short.yaml --store "
      "runs/x "
      "--output-dir runs/x --device cpu && cd runs && brim sweep get $(ls x/exp) --store x -o m && "
      "cmp m x/exp/*/model.safetensors && ! brim sweep get $(ls x/exp) --store x --output-dir y");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  has(r.err, "wrote m");
  said_lines(&r, "brim: error: ");
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_another_machine_ends_it, fresh),
                                     cmocka_unit_test(test_from_a_folder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
