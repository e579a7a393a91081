// Moving stores between places and kinds: every row arrives, the old place points to the new one, and an interrupted
// move can be repeated.
#include "lab_test.h"

#include <math.h>

#include "lab/store/lab_store_int.h"

static lab_place from, to;

static int setup(void **state) {
  (void)state;
  lab_clock_ms = 1000000000000;
  lab_new_place(&from);
  lab_new_place(&to);
  return 0;
}

// Places of the kinds that a test needs; at least one has the program's own kind.
static void to_sqlite(lab_place *p, int n) {
  snprintf(p->place, sizeof p->place, "stores/moved%d", n);
  snprintf(p->schema, sizeof p->schema, "brim");
}

static void fill(brim_store *store) {
  static const char nasty[] = "it's \xEC\x8B\xA4\xED\x97\x98 ?1 $1 @INT\n\"x\"";
  assert_ok(brim_store_worker_seen(store, &(brim_store_worker){.id = "w", .host = nasty}));
  lab_submit(store, "g", 1, 120);
  lab_submit(store, "h", 100, 30);
  brim_store_ref done = lab_run(store, 1);
  brim_store_metric rows[200];
  for (int i = 0; i < 200; i++) {
    rows[i] = (brim_store_metric){i % 2 ? "a" : nasty, i,
                                  i == 7   ? (double)NAN
                                  : i == 9 ? (double)INFINITY
                                           : i / 3.0};
  }
  assert_ok(brim_store_metrics(store, &done, 1, rows, 200));
  assert_ok(brim_store_log(store, &done, "stdout", INT64_C(99999999999)));
  lab_finish(store, &done, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE);
  brim_store_ref failed = lab_run(store, 2);
  brim_store_result r = {BRIM_ATTEMPT_ERROR, BRIM_FAILURE_NAN, -9, nasty, nasty, NULL};
  assert_ok(brim_store_finish(store, &failed, &r, NULL));
  lab_run(store, 3);
}

// Every table as text, except for the times of leases, which start again.
static void dump(brim_store *store, brim_str *out) {
  for (int t = 0; t < BRIM_STORE_TABLES; t++) {
    const brim_store_table *table = &brim_store_tables[t];
    brim_str sql;
    brim_str_init(&sql);
    for (int c = 0; c < table->count; c++) {
      brim_str_printf(&sql, "%s%s", c ? "," : "SELECT ", table->columns[c].name);
    }
    brim_str_printf(&sql, " FROM %s", table->name);
    // Sorts by bytes, because databases order texts differently.
    char key[128], *part = key;
    snprintf(key, sizeof key, "%s", table->key);
    for (int i = 0; part; i++) {
      char *comma = strchr(part, ',');
      if (comma) *comma = '\0';
      const char *name = part + strspn(part, " ");
      bool text = true;
      for (int c = 0; c < table->count; c++) {
        if (strcmp(table->columns[c].name, name) == 0)
          text = table->columns[c].kind == BRIM_DB_TEXT;
      }
      brim_str_printf(&sql, "%s%s%s", i ? "," : " ORDER BY ", name, text ? " @BYTES" : "");
      part = comma ? comma + 1 : NULL;
    }
    brim_db_rows rows;
    bool there = false;
    assert_ok(brim_db_query(store->db, sql.data, BRIM_DB_NO_ARGS, &rows));
    while (brim_db_next(&rows, &there) == BRIM_OK && there) {
      brim_str_printf(out, "%s:", table->name);
      bool moved = t == 6 && strcmp(brim_db_get_text(&rows, 3), "moved") == 0;
      for (int c = 0; c < table->count && !moved; c++) {
        if (strcmp(table->columns[c].name, "lease_until") == 0) continue;
        if (brim_db_is_null(&rows, c)) {
          brim_str_append(out, "|null");
        } else if (table->columns[c].kind == BRIM_DB_REAL) {
          brim_str_printf(out, "|%a", brim_db_get_real(&rows, c));
        } else {
          brim_str_printf(out, "|%s", brim_db_get_text(&rows, c));
        }
      }
      brim_str_append_char(out, '\n');
      if (moved) out->data[out->len -= strlen(table->name) + 2] = '\0';
    }
    brim_db_done(&rows);
    brim_str_deinit(&sql);
  }
  assert_ok(brim_str_status(out));
}

static void move_and_compare(void) {
  brim_store *a = lab_open(&from), *b = lab_open(&to);
  fill(a);
  brim_str before, after;
  brim_str_init(&before);
  brim_str_init(&after);
  dump(a, &before);
  assert_true(before.len > 10000);
  // A move is refused while an attempt runs.
  assert_status(brim_store_move(a, b), BRIM_ESTATE);
  lab_clock_ms += LAB_LEASE_MS;
  assert_ok(brim_store_move(a, b));
  dump(b, &after);
  assert_string_equal(before.data, after.data);
  lab_check(b);

  // The running attempt continues in the store's new place.
  assert_int_equal(lab_state(b, 3), BRIM_EXP_RUNNING);
  brim_store_ref ref = {.attempt = 1, .fence = 1};
  lab_id(3, ref.exp);
  assert_int_equal(lab_finish(b, &ref, BRIM_ATTEMPT_OK, BRIM_FAILURE_NONE), BRIM_EXP_DONE);
  lab_submit(b, "new", 500, 3);
  lab_run(b, 500);
  lab_check(b);

  // The old place accepts no work and names the new one, whether it is open or not.
  brim_store_claimed c;
  brim_store_request r = {.worker = "w2", .claim_id = "x", .free_gpus = 8, .free_bytes = -1};
  assert_status(brim_store_claim(a, &r, &c), BRIM_ESTATE);
  brim_store_close(a);
  brim_store_options o = lab_options(&from);
  assert_status(brim_store_open(from.place, &o, &a), BRIM_ESTATE);
  assert_non_null(strstr(brim_status_detail(), "was moved to"));
  brim_str_deinit(&after);
  brim_str_deinit(&before);
  brim_store_close(b);
}

static void test_move_within_a_kind(void **state) {
  (void)state;
  move_and_compare();
}

static void test_move_from_sqlite(void **state) {
  (void)state;
  to_sqlite(&from, 1);
  move_and_compare();
}

static void test_move_to_sqlite(void **state) {
  (void)state;
  to_sqlite(&to, 2);
  move_and_compare();
}

static void test_move_refuses_a_used_place(void **state) {
  (void)state;
  brim_store *a = lab_open(&from), *b = lab_open(&to);
  lab_submit(a, "g", 1, 3);
  lab_submit(b, "h", 10, 1);
  assert_status(brim_store_move(a, b), BRIM_EEXIST);
  assert_status(brim_store_move(a, a), BRIM_EINVAL);
  brim_store_counts counts;
  assert_ok(brim_store_count(b, NULL, &counts));
  assert_int_equal(counts.total, 1);
  lab_run(a, 1);  // it is still the right store
  brim_store_close(a);
  brim_store_close(b);
}

// The copy is complete, but the process died before it marked the old store.
static void test_interrupted_move_is_repeated(void **state) {
  (void)state;
  brim_store *a = lab_open(&from), *b = lab_open(&to);
  lab_submit(a, "g", 1, 3);
  assert_ok(brim_store_move(a, b));
  assert_ok(brim_db_exec(a->db, "DELETE FROM meta WHERE key='moved_to'", BRIM_DB_NO_ARGS, NULL));
  assert_ok(brim_store_move(a, b));
  brim_store_counts counts;
  assert_ok(brim_store_count(b, NULL, &counts));
  assert_int_equal(counts.total, 3);
  brim_store_close(a);
  brim_store_options o = lab_options(&from);
  assert_status(brim_store_open(from.place, &o, &a), BRIM_ESTATE);
  brim_store_close(b);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  if (lab_is_postgres() && system("rm -rf stores") != 0) return 1;
  const struct CMUnitTest of_both[] = {
      TEST(test_move_within_a_kind),
      TEST(test_move_refuses_a_used_place),
      TEST(test_interrupted_move_is_repeated),
  };
  const struct CMUnitTest between[] = {
      TEST(test_move_from_sqlite),
      TEST(test_move_to_sqlite),
  };
  int result = cmocka_run_group_tests(of_both, NULL, NULL);
  if (result || !lab_is_postgres()) return result;
  return cmocka_run_group_tests(between, NULL, NULL);
}
