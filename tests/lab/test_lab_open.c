// Opening stores: creating, locking, versions and upgrades, files that are no stores, places that cannot have one.
#include "lab_test.h"

#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/store/lab_store_int.h"

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

static void test_contents_stay(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  assert_string_equal(brim_store_kind(store), lab_is_postgres() ? "postgres" : "sqlite");
  lab_submit(store, "g", 1, 2);
  brim_store_ref ref = lab_run(store, 1);
  brim_store_close(store);
  store = lab_open(&place);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_RUNNING);
  assert_int_equal(lab_finish(store, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  lab_check(store);
  brim_store_close(store);
}

static brim_status write_and_fail(brim_store *store, void *ctx) {
  int *calls = ctx;
  ++*calls;
  BRIM_TRY(brim_store_set_meta(store, "left", "behind"));
  brim_store_note(store, lab_clock_ms, "", "noted", "");
  return brim_fail(BRIM_EINVAL, "no");
}

static brim_status fail_event(void *ctx, const brim_store_event *event) {
  (void)ctx;
  fail_msg("an event: %s", event->kind);
  return BRIM_OK;
}

static void test_failed_transactions_write_nothing(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  int calls = 0;
  char *value = NULL;
  assert_status(brim_store_write(store, write_and_fail, &calls), BRIM_EINVAL);
  assert_int_equal(calls, 1);
  assert_string_equal(brim_status_detail(), "no");
  assert_ok(brim_store_get_meta(store, "left", &value));
  assert_string_equal(value, "");
  brim_free(value);
  assert_ok(brim_store_events(store, 0, 0, fail_event, NULL));
  brim_store_close(store);
}

// --- versions

static const char *const NEXT_SQL[] = {
    "ALTER TABLE exp ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",
    "UPDATE exp SET colour='blue' WHERE idx=1", NULL};
static const char *const BROKEN_SQL[] = {
    "ALTER TABLE exp ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'", "DELETE FROM exp",
    "UPDATE nothing SET x=1", NULL};

static void steps_with(const char *const *sql, brim_store_step out[BRIM_STORE_VERSION + 1]) {
  memcpy(out, brim_store_steps, sizeof brim_store_steps);
  out[BRIM_STORE_VERSION].sql = sql;
}

static void test_upgrade_backs_up_first(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 3);
  brim_store_step steps[BRIM_STORE_VERSION + 1];
  steps_with(NEXT_SQL, steps);
  assert_ok(brim_store_migrate(store, steps, BRIM_STORE_VERSION + 1));
  int64_t blue = 0;
  assert_ok(brim_db_get_one(store->db, "SELECT COUNT(*) FROM exp WHERE colour='blue'",
                            BRIM_DB_NO_ARGS, &blue));
  assert_int_equal(blue, 1);
  // A second upgrade changes nothing.
  assert_ok(brim_store_migrate(store, steps, BRIM_STORE_VERSION + 1));
  brim_store_close(store);

  // This brim is now too old for the store, and reports it.
  brim_store_options options = lab_options(&place);
  assert_status(open_with(&options, &store), BRIM_EUNSUPPORTED);
  char version[32];
  snprintf(version, sizeof version, "has version %d", BRIM_STORE_VERSION + 1);
  assert_non_null(strstr(brim_status_detail(), version));
  options.readonly = true;
  assert_status(open_with(&options, &store), BRIM_EUNSUPPORTED);

  // The backup has the old version and all of its data.
  char backup[96], file[600], folder[600], copy[700];
  if (lab_is_postgres()) {
    snprintf(backup, sizeof backup, "%s_v%d_backup", place.schema, BRIM_STORE_VERSION);
    assert_int_equal(lab_count(place.place, backup), 3);
    return;
  }
  snprintf(backup, sizeof backup, ".v%d.backup", BRIM_STORE_VERSION);
  lab_file(&place, backup, file);
  snprintf(folder, sizeof folder, "%s-backup", place.place);
  snprintf(copy, sizeof copy, "%s/" BRIM_STORE_FILE, folder);
  assert_ok(brim_fs_mkdirs(folder));
  assert_ok(brim_fs_copy(file, copy));
  assert_int_equal(lab_count(folder, NULL), 3);
}

static void test_upgrade_is_all_or_nothing(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 3);
  brim_store_step steps[BRIM_STORE_VERSION + 1];
  steps_with(BROKEN_SQL, steps);
  assert_status(brim_store_migrate(store, steps, BRIM_STORE_VERSION + 1), BRIM_EINTERNAL);
  brim_store_close(store);
  store = lab_open(&place);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, NULL, &counts));
  assert_int_equal(counts.total, 3);
  lab_run(store, 1);
  brim_store_close(store);
}

// The list of columns for a copy names exactly the existing columns.
static void test_tables_have_the_listed_columns(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  for (int t = 0; t < BRIM_STORE_TABLES; t++) {
    const brim_store_table *table = &brim_store_tables[t];
    brim_db_rows rows;
    bool there;
    int n = 0;
    char sql[256];
    snprintf(sql, sizeof sql,
             lab_is_postgres() ? "SELECT column_name FROM information_schema.columns WHERE"
                                 " table_schema=current_schema() AND table_name='%s'"
                                 " ORDER BY ordinal_position"
                               : "SELECT name FROM pragma_table_info('%s') ORDER BY cid",
             table->name);
    assert_ok(brim_db_query(store->db, sql, BRIM_DB_NO_ARGS, &rows));
    while (brim_db_next(&rows, &there) == BRIM_OK && there) {
      assert_true(n < table->count);
      assert_string_equal(brim_db_get_text(&rows, 0), table->columns[n++].name);
    }
    assert_int_equal(n, table->count);
    brim_db_done(&rows);
  }
  brim_store_close(store);
}

// --- stored files of every version

static void copy_stored(int version, char folder[600]) {
  char from[600], to[700];
  snprintf(from, sizeof from, "%s/tests/lab/stores/v%d.sqlite", BRIM_SOURCE_DIR, version);
  snprintf(folder, 600, "%s-v%d", place.place, version);
  snprintf(to, sizeof to, "%s/" BRIM_STORE_FILE, folder);
  assert_ok(brim_fs_mkdirs(folder));
  assert_ok(brim_fs_copy(from, to));
}

static void put_schema(const char *file, brim_str *out) {
  sqlite3 *db;
  sqlite3_stmt *s;
  assert_int_equal(sqlite3_open_v2(file, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db,
                                      "SELECT name||' '||COALESCE(sql,'') FROM sqlite_master"
                                      " ORDER BY name",
                                      -1, &s, NULL),
                   SQLITE_OK);
  while (sqlite3_step(s) == SQLITE_ROW) {
    brim_str_printf(out, "%s\n", (const char *)sqlite3_column_text(s, 0));
  }
  sqlite3_finalize(s);
  sqlite3_close(db);
}

// Fills a store with the contents that tests/lab/stores/README.md lists.
static void fill(brim_store *store) {
  brim_store_worker w = {.id = "w1", .host = "h", .gpus = "0,1", .version = "0.1.0"};
  assert_ok(brim_store_worker_seen(store, &w));
  lab_submit(store, "g1", 1, 5);
  lab_submit(store, "g2", 5, 1);
  brim_store_ref done = lab_run(store, 1), failed = lab_run(store, 2), lost = lab_run(store, 3);
  brim_store_metric rows[] = {{"loss", 0, 1.5}, {"loss", 1, 0.75}, {"acc", 1, (double)NAN}};
  assert_ok(brim_store_metrics(store, &done, 1, rows, 3));
  assert_ok(brim_store_log(store, &done, "stdout", 1234));
  assert_ok(brim_store_checkpoint(store, &done, 1));
  lab_finish(store, &done, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  lab_finish(store, &failed, BRIM_ATTEMPT_ERROR, BRIM_FAILURE_OOM_DEVICE);
  char id[BRIM_EXP_ID];
  assert_ok(brim_store_want(store, lab_id(4, id), BRIM_WANT_PAUSE));
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_reap(store, NULL));
  (void)lost;
}

static void check_filled(brim_store *store) {
  static const brim_exp_state states[] = {BRIM_EXP_DONE, BRIM_EXP_FAILED, BRIM_EXP_QUEUED,
                                          BRIM_EXP_PAUSED, BRIM_EXP_QUEUED};
  for (int i = 0; i < 5; i++) assert_int_equal(lab_state(store, i + 1), states[i]);
  char id[BRIM_EXP_ID];
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(store, lab_id(1, id), &exp));
  assert_true(exp->metric == 0.75);
  assert_string_equal(exp->config, "{\"lr\": 0.1}");
  brim_store_exp_free(exp);
  assert_ok(brim_store_get(store, lab_id(2, id), &exp));
  assert_string_equal(exp->failure, "oom_device");
  assert_string_equal(exp->last_lines, "last");
  brim_store_exp_free(exp);
  int64_t size;
  assert_ok(brim_store_log_size(store, lab_id(1, id), 1, "stdout", &size));
  assert_int_equal(size, 1234);
  brim_store_counts counts;
  assert_ok(brim_store_count(store, "g2", &counts));
  assert_int_equal(counts.total, 1);
  lab_check(store);
}

static void test_stored_versions_open(void **state) {
  (void)state;
  char folder[600], file[700];
  brim_str expected, got;
  brim_str_init(&expected);
  brim_str_init(&got);
  brim_store_close(lab_open(&place));
  put_schema(lab_file(&place, "", file), &expected);
  for (int v = 1; v <= BRIM_STORE_VERSION; v++) {
    copy_stored(v, folder);
    lab_place stored = {.schema = "brim"};
    snprintf(stored.place, sizeof stored.place, "%.500s", folder);
    brim_store *store = lab_open(&stored);
    check_filled(store);
    lab_run(store, 3);  // and the upgraded store works
    brim_store_close(store);
    brim_str_clear(&got);
    put_schema(lab_file(&stored, "", file), &got);
    assert_string_equal(got.data, expected.data);
  }
  brim_str_deinit(&got);
  brim_str_deinit(&expected);
}

// --- one process at a time

static void test_second_process_is_told_who_has_it(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_submit(store, "g", 1, 1);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    brim_store *second = NULL;
    brim_store_options o = lab_options(&place);
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)getppid());
    int bad = open_with(&o, &second) != BRIM_EEXIST || !strstr(brim_status_detail(), pid);
    o.readonly = true;
    bad += open_with(&o, &second) != BRIM_EEXIST || !strstr(brim_status_detail(), pid);
    _exit(bad);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  brim_store_close(store);
  store = lab_open(&place);
  assert_int_equal(lab_state(store, 1), BRIM_EXP_QUEUED);
  brim_store_close(store);
}

static void test_reading_only(void **state) {
  (void)state;
  brim_store_options o = lab_options(&place);
  o.readonly = true;
  brim_store *store = NULL;
  assert_status(open_with(&o, &store), BRIM_ENOENT);
  assert_null(store);
  store = lab_open(&place);
  lab_submit(store, "g", 1, 2);
  brim_store_close(store);
  assert_ok(open_with(&o, &store));
  assert_int_equal(lab_state(store, 2), BRIM_EXP_QUEUED);
  assert_status(brim_store_reap(store, NULL), BRIM_ESTATE);
  char id[BRIM_EXP_ID];
  assert_status(brim_store_retry(store, lab_id(1, id)), BRIM_ESTATE);
  brim_store_close(store);
}

// --- places

static int64_t magic;

static int64_t fake_fs(void *ctx, const char *folder) {
  (void)ctx;
  (void)folder;
  return magic;
}

static void test_network_file_systems_are_refused(void **state) {
  (void)state;
  static const int64_t network[] = {0x6969,     0xFF534D42, 0xFE534D42, 0x0BD00BD0,
                                    0x47504653, 0x00C36400, 0x01021997};
  static const int64_t local[] = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630};
  brim_store_options o = lab_options(&place);
  o.fs_type = fake_fs;
  brim_store *store = NULL;
  char file[600];
  for (size_t i = 0; i < sizeof network / sizeof *network; i++) {
    magic = network[i];
    assert_status(open_with(&o, &store), BRIM_EUNSUPPORTED);
    assert_non_null(strstr(brim_status_detail(), "network file system"));
    assert_false(brim_fs_exists(lab_file(&place, "", file)));
  }
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
    magic = local[i];
    assert_ok(open_with(&o, &store));
    brim_store_close(store);
  }
}

static void test_files_that_are_no_store(void **state) {
  (void)state;
  char file[600];
  lab_file(&place, "", file);
  brim_store_options o = lab_options(&place);
  brim_store *store = NULL;
  assert_ok(brim_fs_mkdirs(place.place));
  static const char text[] =
      "this is a text file of some length, not a database at all.......\n"
      "................................................................\n";
  assert_ok(brim_fs_write(file, text, sizeof text - 1));
  assert_status(open_with(&o, &store), BRIM_EPARSE);
  char *after = NULL;
  size_t size;
  assert_ok(brim_fs_read(file, 0, &after, &size));
  assert_int_equal(size, sizeof text - 1);
  assert_memory_equal(after, text, size);
  brim_free(after);

  assert_ok(brim_fs_remove(file));
  sqlite3 *db;
  assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, "CREATE TABLE bookmarks(x)", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
  assert_status(open_with(&o, &store), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "not written by brim"));
  assert_null(store);

  assert_ok(brim_fs_remove(file));
  assert_int_equal(mkfifo(file, 0600), 0);  // opening it would block
  assert_status(open_with(&o, &store), BRIM_EINVAL);
  o.readonly = true;
  assert_status(open_with(&o, &store), BRIM_EINVAL);
  assert_int_equal(unlink(file), 0);
  o = lab_options(&place);
  assert_ok(open_with(&o, &store));
  assert_ok(brim_store_check_file(store));
  assert_int_equal(unlink(file), 0);
  assert_status(brim_store_check_file(store), BRIM_ESTATE);
  brim_store_close(store);
}

static void test_odd_names(void **state) {
  (void)state;
  lab_place odd = place;
  snprintf(odd.place, sizeof odd.place, "%.400s/a b%%20?mode=ro#x 실험", place.place);
  brim_store *store = lab_open(&odd);
  lab_submit(store, "g", 1, 1);
  brim_store_close(store);
  char file[600];
  assert_true(brim_fs_exists(lab_file(&odd, "", file)));
  assert_int_equal(lab_count(odd.place, NULL), 1);
}

static void test_bad_places_and_options(void **state) {
  (void)state;
  brim_store *store = NULL;
  assert_status(brim_store_open("", NULL, &store), BRIM_EINVAL);
  static const char *const schemas[] = {
      "", "Brim", "a b", "1a", "x;drop", "a\"b", "a12345678901234567890123456789012345678901"};
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
    brim_store_options o = {.schema = schemas[i]};
    assert_status(open_with(&o, &store), BRIM_EINVAL);
  }
  // A folder that cannot be created, because a file has its name.
  if (lab_is_postgres()) return;
  assert_ok(brim_fs_mkdirs(place.place));
  char file[600], inside[700];
  lab_file(&place, ".txt", file);
  assert_ok(brim_fs_write(file, "x", 1));
  snprintf(inside, sizeof inside, "%s/store", file);
  assert_status(brim_store_open(inside, NULL, &store), BRIM_EINVAL);
}

static void test_unreachable_server(void **state) {
  (void)state;
  brim_store *store = NULL;
  brim_status status = brim_store_open(
      "postgres://me:secret@/db?host=/nowhere/at/all&password=secret&port=1", NULL, &store);
  assert_null(store);
  // Without libpq the message is different.
  assert_true(status == BRIM_EIO || (status == BRIM_EUNSUPPORTED && !lab_is_postgres()));
  assert_null(strstr(brim_status_detail(), "secret"));
  assert_non_null(strstr(brim_status_detail(), "postgres://me@/db?host=/nowhere/at/all"));
}

// --- the clock

static brim_status ignore_exp(void *ctx, const brim_store_exp *exp) {
  (void)ctx;
  assert_true((unsigned)exp->state < BRIM_EXP_STATE_COUNT);
  return BRIM_OK;
}
static brim_status ignore_attempt(void *ctx, const brim_store_attempt *attempt) {
  (void)ctx;
  (void)attempt;
  return BRIM_OK;
}
static brim_status ignore_outcome(void *ctx, const brim_store_outcome *row) {
  (void)ctx;
  (void)row;
  return BRIM_OK;
}

// Values that brim never writes: every reader fails, and none uses them as an index.
static void test_values_outside_of_their_enum(void **state) {
  static const struct {
    const char *column;
    bool of_exp;  // in the experiment, otherwise in the attempt
  } columns[] = {{"state", true}, {"want", true}, {"outcome", false}};
  static const char *const values[] = {"-1000000", "-1", "99", "4294967296", "9223372036854775807"};
  (void)state;
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      char file[600], sql[128], id[BRIM_EXP_ID];
      brim_store *store = NULL;
      setup(NULL);
      assert_ok(brim_store_open(place.place, NULL, &store));
      lab_submit(store, "g", 1, 1);
      const brim_store_ref ref = lab_run(store, 1);
      brim_store_close(store);
      sqlite3 *db;
      assert_int_equal(sqlite3_open(lab_file(&place, "", file), &db), SQLITE_OK);
      snprintf(sql, sizeof sql, "UPDATE %s SET %s=%s", columns[c].of_exp ? "exp" : "attempt",
               columns[c].column, values[v]);
      assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
      sqlite3_close(db);
      assert_ok(brim_store_open(place.place, NULL, &store));
      const brim_store_result fine = {.outcome = BRIM_ATTEMPT_OK};
      brim_store_exp *exp = NULL;
      lab_id(1, id);
      assert_status(brim_store_finish(store, &ref, &fine, NULL), BRIM_EPARSE);
      if (columns[c].of_exp) {
        assert_status(brim_store_get(store, id, &exp), BRIM_EPARSE);
        assert_status(brim_store_list(store, NULL, ignore_exp, NULL), BRIM_EPARSE);
        assert_status(brim_store_want(store, id, BRIM_WANT_CANCEL), BRIM_EPARSE);
      } else {
        assert_status(brim_store_attempts(store, id, ignore_attempt, NULL), BRIM_EPARSE);
      }
      const brim_store_some some = {.ids = (const char(*)[BRIM_EXP_ID])id, .count = 1};
      assert_status(brim_store_outcomes(store, &some, NULL, BRIM_STORE_LAST, ignore_outcome, NULL),
                    strcmp(columns[c].column, "state") == 0 ? BRIM_EPARSE : BRIM_OK);
      brim_store_close(store);
    }
  }
}

static void test_clock_never_goes_back(void **state) {
  (void)state;
  brim_store *store = NULL;
  int64_t now = 0, later = 0;
  assert_ok(brim_store_open(place.place, NULL, &store));
  assert_ok(brim_store_now(store, &now));
  assert_true(now > INT64_C(1600000000000));
  brim_store_close(store);
  // The file was last written by a machine whose clock is an hour ahead.
  char file[600], sql[128];
  sqlite3 *db;
  assert_int_equal(sqlite3_open(lab_file(&place, "", file), &db), SQLITE_OK);
  snprintf(sql, sizeof sql, "UPDATE meta SET value='%lld' WHERE key='clock'",
           (long long)now + 3600000);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
  assert_ok(brim_store_open(place.place, NULL, &store));
  assert_ok(brim_store_now(store, &later));
  assert_true(later >= now + 3600000);
  lab_submit(store, "g", 1, 1);
  brim_store_close(store);
  assert_ok(brim_store_open(place.place, NULL, &store));
  assert_ok(brim_store_now(store, &now));
  assert_true(now >= later);
  brim_store_close(store);
}

// test_lab_open write FOLDER: writes the stored file of this version.
static int write_stored(const char *folder) {
  lab_place p = {.schema = "brim"};
  snprintf(p.place, sizeof p.place, "%s", folder);
  brim_store *store = lab_open(&p);
  fill(store);
  check_filled(store);
  brim_store_close(store);
  return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "write") == 0) return write_stored(argv[2]);
  lab_choose(argc, argv);
  const struct CMUnitTest of_both[] = {
      TEST(test_contents_stay),
      TEST(test_failed_transactions_write_nothing),
      TEST(test_upgrade_backs_up_first),
      TEST(test_upgrade_is_all_or_nothing),
      TEST(test_tables_have_the_listed_columns),
      TEST(test_reading_only),
      TEST(test_bad_places_and_options),
      TEST(test_unreachable_server),
  };
  const struct CMUnitTest of_sqlite[] = {
      TEST(test_stored_versions_open),
      TEST(test_second_process_is_told_who_has_it),
      TEST(test_network_file_systems_are_refused),
      TEST(test_files_that_are_no_store),
      TEST(test_odd_names),
      TEST(test_clock_never_goes_back),
      TEST(test_values_outside_of_their_enum),
  };
  int result = cmocka_run_group_tests(of_both, NULL, NULL);
  if (result || lab_is_postgres()) return result;
  return cmocka_run_group_tests(of_sqlite, NULL, NULL);
}
