// The checks of the chaos test find every violation: each is made once, in an otherwise correct store.
#include "lab_test.h"

#include <math.h>
#include <sqlite3.h>

#include "chaos/chaos_int.h"

static brim_chaos_report report;
static brim_chaos_options options;
static brim_chaos chaos;
static brim_store *disturbed, *reference;
static char said[4096];

static void say(void *ctx, const char *text) {
  (void)ctx;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

static brim_status on_said(void *ctx, const brim_child_line *line) {
  say(ctx, line->text);
  return BRIM_OK;
}

static void put_file(const char *folder, int n, const char *name, const char *text) {
  char id[BRIM_EXP_ID], path[600];
  snprintf(path, sizeof path, "%s/exp/%.12s", folder, lab_id(n, id));
  assert_ok(brim_fs_mkdirs(path));
  snprintf(path, sizeof path, "%s/exp/%.12s/%s", folder, id, name);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void submit(brim_store *store, int n, const char *label) {
  char id[BRIM_EXP_ID];
  const brim_store_point p = {.id = lab_id(n, id), .label = label, .config = "{}", .tries = 5};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, &p, 1, &out));
}

static void put_metrics(brim_store *store, const brim_store_ref *ref, double at_two) {
  const brim_store_metric rows[] = {{"loss", 1, 0.5},
                                    {"loss", 2, at_two},
                                    {"loss", 3, (double)NAN},
                                    {"epoch_s", 1, (double)ref->attempt}};
  assert_ok(brim_store_metrics(store, ref, 1, rows, 4));
}

static void put_models(const char *folder, int n) {
  put_file(folder, n, "model.safetensors", "weights");
  put_file(folder, n, "last.safetensors", "all");
}

static void end(brim_store *store, const brim_store_ref *ref) {
  lab_finish(store, ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
}

// Makes a reference with one training, and a store with the same training after one failed attempt, not ended yet.
static brim_store_ref begin(void) {
  static int count;
  static char folder[64], undisturbed[80];
  lab_clock_ms = 1000000000000;
  snprintf(folder, sizeof folder, "chaos/%d", ++count);
  snprintf(undisturbed, sizeof undisturbed, "%s/reference", folder);
  memset(&report, 0, sizeof report);
  said[0] = '\0';
  options = (brim_chaos_options){.say = say};
  chaos = (brim_chaos){.options = &options,
                       .report = &report,
                       .folder = folder,
                       .store = folder,
                       .reference = undisturbed};
  lab_place a = {.schema = "brim"}, b = {.schema = "brim"};
  snprintf(a.place, sizeof a.place, "%s", folder);
  snprintf(b.place, sizeof b.place, "%s", undisturbed);
  disturbed = lab_open(&a);
  reference = lab_open(&b);
  submit(reference, 1, "seed=3 p=1");
  submit(disturbed, 2, "p=2 seed=3");
  brim_store_ref ref = lab_run(reference, 1);
  put_metrics(reference, &ref, 0.25);
  end(reference, &ref);
  put_models(undisturbed, 1);
  ref = lab_run(disturbed, 2);
  lab_finish(disturbed, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_CRASH);
  lab_clock_ms += 100 * LAB_BACKOFF_MS;
  put_models(folder, 2);
  return lab_run(disturbed, 2);
}

static void check(const char *violation) {
  brim_store_close(disturbed);
  brim_store_close(reference);
  assert_ok(brim_chaos_check(&chaos));
  if (!violation) {
    if (report.violations) fail_msg("%s", said);
    assert_int_equal(report.experiments, 1);
    assert_int_equal(report.attempts, 2);
    return;
  }
  if (!strstr(said, violation)) fail_msg("expected '%s' in: %s", violation, said);
  assert_true(report.violations > 0);
}

static void test_nothing_is_wrong(void **state) {
  (void)state;
  brim_store_ref ref = begin();
  put_metrics(disturbed, &ref, 0.25);
  end(disturbed, &ref);
  check(NULL);
}

static void test_states(void **state) {
  (void)state;
  brim_store_ref ref = begin();
  put_metrics(disturbed, &ref, 0.25);
  check("is running, not done");
  assert_int_equal(report.violations, 1);
  ref = begin();
  put_metrics(disturbed, &ref, 0.25);
  lab_finish(disturbed, &ref, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN);
  check("is failed, not done");
  assert_int_equal(report.violations, 1);
}

// Changes one row of the store directly.
static void change(const char *sql) {
  char file[600];
  sqlite3 *db;
  brim_store_close(disturbed);
  disturbed = NULL;
  snprintf(file, sizeof file, "%s/" BRIM_STORE_FILE, chaos.folder);
  assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_changes(db), 1);
  sqlite3_close(db);
}

// Records that no store writes: the check has to find each of them.
static void test_attempts(void **state) {
  (void)state;
  static const struct {
    const char *sql, *violation;
  } rows[] = {
      {"UPDATE attempt SET claimed=claimed-200000000 WHERE n=2", "overlap in time"},
      {"UPDATE attempt SET ended=claimed-1 WHERE n=2", "overlap in time"},
      {"UPDATE attempt SET fence=1 WHERE n=2", "not in order"},
      {"UPDATE attempt SET n=3 WHERE n=2", "not in order"},
      {"UPDATE attempt SET outcome=1 WHERE n=1", "has 2 results in 2 attempts"},
      {"UPDATE attempt SET outcome=2 WHERE n=2", "has 0 results in 2 attempts"},
      {"UPDATE attempt SET outcome=0 WHERE n=1", "has no end"},
      {"DELETE FROM attempt WHERE n=1", "results in 1 attempts"},
      {"UPDATE metric SET attempt=1 WHERE key='loss' AND step=2", "1 metric rows of a stale"},
      {"UPDATE metric SET attempt=3 WHERE key='loss' AND step=1", "1 metric rows of a stale"},
      {"INSERT INTO event(seq,t,exp,kind,text,who) SELECT 1000,0,id,'started','','' FROM exp",
       "changed after its result"},
      {"UPDATE event SET kind='started' WHERE kind='retry'", "claimed while an attempt had it"},
      {"DELETE FROM event WHERE seq=(SELECT MAX(seq) FROM event WHERE kind='claimed')",
       "was claimed 1 times for 2 attempts"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_store_ref ref = begin();
    put_metrics(disturbed, &ref, 0.25);
    end(disturbed, &ref);
    change(rows[i].sql);
    check(rows[i].violation);
  }
}

// The check reads the files of the worker that has the result, if there are several workers. The end of a worker's name
// is the hash of its folder.
static void test_workers(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    brim_store_ref ref = begin();
    char folder[600], hex[BRIM_SHA256_HEX], sql[200];
    options.workers = 2;
    put_metrics(disturbed, &ref, 0.25);
    end(disturbed, &ref);
    for (int worker = 1; worker <= 2; worker++) {
      brim_chaos_worker_folder(&chaos, worker, folder, sizeof folder);
      put_models(folder, 2);
      if (worker == 1 + i) put_file(folder, 2, "last.safetensors", "other");
    }
    brim_sha256_hex(folder, strlen(folder), hex);
    snprintf(sql, sizeof sql, "UPDATE attempt SET worker='host-%.12s' WHERE n=2", hex);
    change(sql);
    check(i == 0 ? NULL : "differs from the undisturbed one");
  }
}

static void test_metrics(void **state) {
  (void)state;
  brim_store_ref ref = begin();
  put_metrics(disturbed, &ref, nextafter(0.25, 1));
  end(disturbed, &ref);
  check("loss at step 2 is");
  ref = begin();
  end(disturbed, &ref);
  check("has 0 metric rows, undisturbed 3");
  ref = begin();
  put_metrics(disturbed, &ref, 0.25);
  const brim_store_metric more = {"loss", 4, 1};
  assert_ok(brim_store_metrics(disturbed, &ref, 2, &more, 1));
  end(disturbed, &ref);
  check("has 4 metric rows, undisturbed 3");
}

static void test_models(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors", "last.safetensors"};
  for (int i = 0; i < 2; i++) {
    brim_store_ref ref = begin();
    put_metrics(disturbed, &ref, 0.25);
    end(disturbed, &ref);
    put_file(chaos.folder, 2, names[i], "other");
    check("differs from the undisturbed one");
    ref = begin();
    put_metrics(disturbed, &ref, 0.25);
    end(disturbed, &ref);
    char path[600], id[BRIM_EXP_ID];
    lab_id(2, id);
    snprintf(path, sizeof path, "%s/exp/%.12s/%s", chaos.folder, id, names[i]);
    assert_ok(brim_fs_remove(path));
    check("has no ");
  }
}

// A process and its forked child before exec count as one executor.
static void test_a_child_before_its_program(void **state) {
  (void)state;
  static const char *const argv[] = {
      "bash",    "-c",      "( echo begun; read -r line; : ); echo ended",
      "x",       "execute", "/chaos/f/exp/012345678901",
      "fence=3", NULL};
  brim_chaos_proc all[4];
  brim_child *child = NULL;
  bool ended = false;
  said[0] = '\0';
  const brim_child_options how = {
      .argv = argv, .in = BRIM_CHILD_PIPE, .out = BRIM_CHILD_PIPE, .on_line = on_said};
  assert_ok(brim_child_start(&how, &child));
  while (!said[0] && !ended) assert_ok(brim_child_wait(child, 100, &ended));
  assert_string_equal(said, "begun\n");
  assert_int_equal(brim_chaos_processes("/chaos/f", all, 4), 1);
  assert_int_equal(all[0].pid, brim_child_pid(child));
  assert_int_equal(all[0].fence, 3);
  assert_string_equal(all[0].exp, "012345678901");
  assert_false(all[0].trains);
  brim_child_close(child);
}

int main(void) {
  test_filter();
  if (system("rm -rf chaos") != 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_is_wrong),
      cmocka_unit_test(test_states),
      cmocka_unit_test(test_attempts),
      cmocka_unit_test(test_metrics),
      cmocka_unit_test(test_models),
      cmocka_unit_test(test_workers),
      cmocka_unit_test(test_a_child_before_its_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
