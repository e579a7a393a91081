// Experiments of a store, and of a file that it was exported to, give the same records.
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/wire/lab_wire_records.h"
#include "lab_served.h"
#include "lab_test.h"

static lab_place place;

static int setup(void **state) {
  (void)state;
  lab_new_place(&place);
  return 0;
}

static bool metric(void *ctx, const char *workload, const char *key, brim_sweep_metric *out) {
  (void)ctx;
  assert_string_equal(workload, "ars");
  if (strcmp(key, "loss") != 0) return false;
  *out = (brim_sweep_metric){.better = BRIM_BETTER_LOWER};
  snprintf(out->key, sizeof out->key, "%s", key);
  return true;
}

static const brim_lab_set *read_place(const char *where, brim_lab_reader **reader) {
  const brim_lab_options options = {.ignored = brim_lab_ignored_keys(), .metric = metric};
  const brim_lab_set *set = NULL;
  bool torn = true;
  assert_ok(brim_lab_reader_create(&options, reader));
  assert_ok(brim_lab_records_read(where, *reader, &torn));
  assert_false(torn);
  assert_ok(brim_lab_reader_finish(*reader, &set));
  return set;
}

// Two learning rates x two seeds; the last one fails.
static void fill(brim_store *store) {
  brim_store_point points[4];
  char ids[4][BRIM_EXP_ID], labels[4][64], configs[4][160];
  for (int i = 0; i < 4; i++) {
    const char *lr = i < 2 ? "0.1" : "0.01";
    snprintf(labels[i], sizeof labels[i], "training.learning_rate=%s seed=%d", lr, i % 2);
    snprintf(configs[i], sizeof configs[i],
             "# group %032d\nworkload: ars\nname: n%d\nseed: %d\ntraining.learning_rate: %s\n",
             i / 2, i, i % 2, lr);
    points[i] = (brim_store_point){.id = lab_id(i + 1, ids[i]),
                                   .idx = i,
                                   .label = labels[i],
                                   .config = configs[i],
                                   .metric_key = "loss",
                                   .gpus = 1,
                                   .tries = 0,
                                   .epochs = 10};
  }
  const brim_store_grid grid = {"g", "rates", "lr: [0.1, 0.01]", "1.2.3"};
  brim_store_submitted out;
  assert_ok(brim_store_submit(store, &grid, points, 4, &out));
  for (int i = 0; i < 4; i++) {
    brim_store_ref ref = lab_run(store, i + 1);
    const brim_store_metric rows[] = {{"loss", 1, 2}, {"loss", 2, 0.5 + i}, {"loss", 3, 1 + i}};
    assert_ok(brim_store_metrics(store, &ref, 1, rows, 3));
    lab_finish(store, &ref, i < 3 ? BRIM_ATTEMPT_OK : BRIM_ATTEMPT_ERROR,
               i < 3 ? BRIM_FAILURE_NONE : BRIM_FAILURE_NAN);
  }
}

static void check(const brim_lab_set *set) {
  assert_int_equal(set->count, 4);
  assert_int_equal(set->key_count, 2);
  assert_string_equal(set->keys[0].name, "training.learning_rate");
  assert_true(set->keys[1].over);
  assert_int_equal(set->group_count, 2);
  const brim_lab_group *g = &set->groups[0];
  assert_int_equal(g->last.n, 2);
  assert_true(fabs(g->last.mean - 1.5) < 1e-12);
  assert_true(fabs(g->best.mean - 1) < 1e-12);
  assert_int_equal(set->groups[1].last.n, 1);
  const brim_lab_exp *e = &set->exps[3];
  assert_string_equal(e->state, "failed");
  assert_string_equal(e->failure, "nan");
  assert_string_equal(e->reason, "why");
  assert_string_equal(e->last_lines, "last");
  assert_int_equal(e->epochs, 10);
  assert_int_equal(e->attempt_count, 1);
  assert_string_equal(e->attempts[0].worker, "w1");
  assert_int_equal(e->curve_count, 1);
  assert_int_equal(e->curves[0].count, 3);
}

static brim_status put_line(void *ctx, const char *line) {
  brim_str_printf(ctx, "%s\n", line);
  return BRIM_OK;
}

static void test_store_and_export(void **state) {
  (void)state;
  brim_str text;
  brim_lab_reader *reader = NULL;
  brim_str_init(&text);
  brim_store *store = lab_open(&place);
  fill(store);
  assert_ok(brim_store_export(store, NULL, put_line, &text));
  brim_store_close(store);
  assert_int_equal(brim_lab_kind_of(place.place), BRIM_LAB_KIND_STORE);
  const brim_lab_set *set = read_place(place.place, &reader);
  check(set);
  assert_int_equal(set->grid_count, 1);
  assert_string_equal(set->grids[0].name, "rates");
  assert_string_equal(set->grids[0].version, "1.2.3");
  assert_int_equal(set->grids[0].points, 4);
  brim_lab_reader_destroy(reader);
  assert_ok(brim_fs_write("export.jsonl", text.data, text.len));
  assert_int_equal(brim_lab_kind_of("export.jsonl"), BRIM_LAB_KIND_EXPORT);
  set = read_place("export.jsonl", &reader);
  check(set);
  assert_int_equal(set->grid_count, 0);
  brim_lab_reader_destroy(reader);
  brim_str_deinit(&text);
}

// A sweep has the store open, so its socket answers.
static void test_while_a_sweep_runs(void **state) {
  (void)state;
  brim_store *store = lab_open(&place);
  lab_served served;
  brim_lab_reader *reader = NULL;
  fill(store);
  brim_store_close(store);
  lab_serve(&place, place.place, NULL, &served);
  const brim_lab_set *set = read_place(place.place, &reader);
  check(set);
  assert_int_equal(set->grid_count, 1);
  brim_lab_reader_destroy(reader);
  lab_serve_end(&served, SIGTERM);
}

static void test_reading_changes_nothing(void **state) {
  (void)state;
  char path[600];
  struct stat before, after;
  brim_store *store = lab_open(&place);
  fill(store);
  brim_store_close(store);
  assert_int_equal(stat(lab_file(&place, "", path), &before), 0);
  brim_lab_reader *reader = NULL;
  read_place(place.place, &reader);
  brim_lab_reader_destroy(reader);
  assert_int_equal(stat(path, &after), 0);
  assert_int_equal(before.st_size, after.st_size);
  assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

static void test_places_without_experiments(void **state) {
  (void)state;
  brim_lab_reader *reader = NULL;
  assert_ok(brim_fs_mkdirs("empty"));
  assert_ok(brim_fs_write("results.jsonl", "{\"schema\": \"brim.result/1\"}\n", 28));
  assert_int_equal(brim_lab_kind_of("empty"), BRIM_LAB_KIND_NONE);
  assert_int_equal(brim_lab_kind_of("results.jsonl"), BRIM_LAB_KIND_NONE);
  assert_int_equal(brim_lab_kind_of("not there"), BRIM_LAB_KIND_NONE);
  assert_int_equal(brim_lab_kind_of("postgres://h/d"), BRIM_LAB_KIND_STORE);
  if (access("pipe", F_OK) != 0) assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_int_equal(brim_lab_kind_of("pipe"), BRIM_LAB_KIND_NONE);  // and does not block on a pipe
  assert_ok(brim_lab_reader_create(NULL, &reader));
  assert_status(brim_lab_records_read("empty", reader, NULL), BRIM_ENOENT);
  brim_lab_reader_destroy(reader);
}

int main(int argc, char **argv) {
  lab_choose(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_store_and_export, setup),
      cmocka_unit_test_setup(test_while_a_sweep_runs, setup),
      cmocka_unit_test_setup(test_reading_changes_nothing, setup),
      cmocka_unit_test(test_places_without_experiments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
