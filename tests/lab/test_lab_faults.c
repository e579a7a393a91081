// A failure halfway changes nothing: memory that runs out, a full disk, a killed process, damaged files.
#include "lab_test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static lab_place place;

static int setup(void **state) {
  (void)state;
  lab_clock_ms = 1000000000000;
  lab_new_place(&place);
  return 0;
}

static brim_status open_with(const brim_store_options *options, brim_store **out) {
  return brim_store_open(place.place, options, out);
}

static brim_status short_life(int n) {
  brim_store *store = NULL;
  brim_store_options o = lab_options(&place);
  BRIM_TRY(open_with(&o, &store));
  char id[BRIM_EXP_ID], claim_id[16];
  snprintf(claim_id, sizeof claim_id, "c%d", n);
  brim_store_point p = {.id = lab_id(n, id), .config = "a", .label = "\xff", .metric_key = "m"};
  brim_store_submitted out;
  brim_store_claimed c = {0};
  brim_status status = brim_store_submit(store, &(brim_store_grid){.id = "g"}, &p, 1, &out);
  if (!status) {
    status = brim_store_claim(
        store,
        &(brim_store_request){.worker = "w", .claim_id = claim_id, .exp = id, .free_bytes = -1},
        &c);
  }
  brim_store_metric m = {"m", 1, 2};
  if (!status) status = brim_store_metrics(store, &c.ref, 1, &m, 1);
  brim_store_result r = {.outcome = BRIM_ATTEMPT_OK};
  if (!status) status = brim_store_finish(store, &c.ref, &r, NULL);
  brim_store_exp_free(c.exp);
  brim_store_close(store);
  return status;
}

// Each allocation fails once; the store stays consistent after the failed call.
static void test_memory_runs_out(void **state) {
  (void)state;
  int failed = 0, last = 0;
  for (uint64_t n = 1;; n += lab_is_postgres() ? 7 : 1) {
    uint64_t before = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = short_life((int)n);
    bool injected = brim_alloc_failures() > before;
    brim_alloc_fail_nth(0, 0);
    if (injected && status) failed++;
    if (status && (!injected || status != BRIM_ENOMEM)) {
      fail_msg("allocation %d: %d, %s", (int)n, status, brim_status_detail());
    }
    last = (int)n;
    if (!injected) break;
  }
  assert_true(failed > 5);
  brim_store *store = lab_open(&place);
  assert_int_equal(lab_state(store, last), BRIM_EXP_DONE);
  lab_check(store);
  brim_store_close(store);
}

static void fill_disk(void) {
  signal(SIGXFSZ, SIG_IGN);
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 20);
  struct rlimit limit, all;
  getrlimit(RLIMIT_FSIZE, &all);
  limit = all;
  limit.rlim_cur = 256 * 1024;
  setrlimit(RLIMIT_FSIZE, &limit);
  static char config[8192];
  memset(config, 'x', sizeof config - 1);
  int refused = 0, n = 100;
  for (; n < 400 && refused < 3; n++) {
    char id[BRIM_EXP_ID];
    brim_store_point p = {.id = lab_id(n, id), .config = config};
    brim_store_submitted out;
    brim_status status = brim_store_submit(store, &(brim_store_grid){.id = "g"}, &p, 1, &out);
    if (status && status != BRIM_EIO) _exit(2);
    refused += status == BRIM_EIO;
  }
  if (refused < 3) _exit(3);
  setrlimit(RLIMIT_FSIZE, &all);
  // There is space again: the same store continues.
  brim_store_ref ref = lab_run(store, 1);
  lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  lab_submit(store, "g", n, 5);
  lab_check(store);
  brim_store_close(store);
  _exit(0);
}

static void test_disk_runs_full(void **state) {
  (void)state;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) fill_disk();
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  brim_store *store = lab_open(&place);
  lab_check(store);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_DONE);
  brim_store_close(store);
}

// A killed process leaves its log beside the file: a reader sees the committed changes.
static void test_reading_after_a_kill(void **state) {
  (void)state;
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    brim_store *store = lab_open(&place);
    lab_submit(store, "g", 1, 4);
    if (write(ready[1], "x", 1) != 1) _exit(2);
    for (;;) pause();
  }
  char byte;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  char log[600];
  assert_true(brim_fs_exists(lab_file(&place, "-wal", log)));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &(int){0}, 0), child);
  close(ready[0]);
  close(ready[1]);
  assert_int_equal(lab_count(place.place, NULL), 4);
  brim_store *store = lab_open(&place);
  lab_check(store);
  brim_store_close(store);
}

static brim_status read_exp(void *ctx, const brim_store_exp *exp) {
  *(size_t *)ctx += strlen(exp->config) + strlen(brim_exp_state_name(exp->state));
  return BRIM_OK;
}

static brim_status read_event(void *ctx, const brim_store_event *event) {
  *(size_t *)ctx += strlen(event->text);
  return BRIM_OK;
}

// Every call on a damaged file returns, with a status.
static void use_damaged(const char *folder) {
  brim_store *store = NULL;
  brim_store_options o = lab_options(&place);
  if (brim_store_open(folder, &o, &store)) return;
  size_t bytes = 0;
  brim_store_claimed c;
  brim_store_beat_reply reply;
  brim_store_request r = {.worker = "w", .claim_id = "x", .free_gpus = 9, .free_bytes = -1};
  (void)brim_store_list(store, &(brim_store_filter){.texts = true}, read_exp, &bytes);
  (void)brim_store_events(store, 0, 0, read_event, &bytes);
  (void)brim_store_reap(store, NULL);
  lab_clock_ms += LAB_LEASE_MS;
  if (brim_store_claim(store, &r, &c) == BRIM_OK && c.exp) {
    brim_store_result ok = {.outcome = BRIM_ATTEMPT_OK};
    (void)brim_store_beat(store, &c.ref, NULL, &reply);
    (void)brim_store_finish(store, &c.ref, &ok, NULL);
    brim_store_exp_free(c.exp);
  }
  brim_store_close(store);
}

static void test_damaged_files(void **state) {
  (void)state;
  char from[600], folder[600], file[700];
  snprintf(from, sizeof from, "%s/tests/lab/stores/v1.sqlite", BRIM_SOURCE_DIR);
  snprintf(folder, sizeof folder, "%s-damaged", place.place);
  snprintf(file, sizeof file, "%s/" BRIM_STORE_FILE, folder);
  assert_ok(brim_fs_mkdirs(folder));
  char *whole = NULL;
  size_t size;
  assert_ok(brim_fs_read(from, 0, &whole, &size));
  unsigned seed = 25;
  int rounds = test_is_full() ? 400 : 60;
  for (int i = 0; i < rounds; i++) {
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, whole, size);
    for (int k = 0; k < 1 + i % 40; k++) {
      bytes[(size_t)rand_r(&seed) % size] = (char)rand_r(&seed);
    }
    size_t length = i % 5 == 4 ? (size_t)rand_r(&seed) % size : size;
    assert_ok(brim_fs_write(file, bytes, length));
    free(bytes);
    use_damaged(folder);
    for (int k = 0; k < 2; k++) {
      char log[800];
      snprintf(log, sizeof log, "%s-%s", file, k ? "wal" : "shm");
      if (brim_fs_exists(log)) assert_ok(brim_fs_remove(log));
    }
  }
  brim_free(whole);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest of_both[] = {TEST(test_memory_runs_out)};
  const struct CMUnitTest of_sqlite[] = {
      TEST(test_disk_runs_full),
      TEST(test_reading_after_a_kill),
      TEST(test_damaged_files),
  };
  int result = cmocka_run_group_tests(of_both, NULL, NULL);
  if (result || lab_is_postgres()) return result;
  return cmocka_run_group_tests(of_sqlite, NULL, NULL);
}
