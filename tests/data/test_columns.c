// Tables with one row per sample: the same rows as CSV, JSON lines and HDF5; names that need escaping, unknown values,
// failures that leave no files.
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/pack/data_columns.h"
#include "data/pack/data_pack.h"
#include "data_test.h"

static const char *const names[] = {"cat", "a \"dog\", red"};
static const uint64_t indices[] = {0, 1, 2};
static const int32_t labels[] = {1, 0, -1};
static const char *const texts[] = {"a.png", "b,\"c\".png", ""};
static const float reals[] = {0.25f, 1e-7f, NAN};
static const float wide[] = {1, 2, 0.1f, -3.5f, NAN, INFINITY};

static const brim_column columns[] = {
    {.name = "index", .kind = BRIM_COLUMN_INDEX},
    {.name = "file", .kind = BRIM_COLUMN_TEXT, .text_bytes = 12},
    {.name = "label", .kind = BRIM_COLUMN_LABEL, .labels = names, .label_count = 2},
    {.name = "probability", .kind = BRIM_COLUMN_REAL},
    {.name = "p", .kind = BRIM_COLUMN_REAL, .width = 2, .parts = names, .prefix = "p_"},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

// Writes all three rows, in two pieces.
static void write_table(const char *path) {
  brim_columns_format format;
  brim_columns *c;
  assert_true(brim_columns_format_of(path, &format));
  assert_ok(brim_columns_create(path, true, format, columns, COLUMNS, 3, &c));
  const void *first[] = {indices, texts, labels, reals, wide};
  assert_ok(brim_columns_put(c, first, 2));
  const void *second[] = {indices + 2, texts + 2, labels + 2, reals + 2, wide + 4};
  assert_ok(brim_columns_put(c, second, 1));
  assert_ok(brim_columns_commit(c));
}

static void expect_text(const char *path, const char *want) {
  char *have = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &have, &size));
  assert_string_equal(have, want);
  brim_free(have);
}

static const char csv[] =
    "index,file,label,probability,p_cat,\"p_a \"\"dog\"\", red\"\n"
    "0,a.png,1,0.25,1,2\n"
    "1,\"b,\"\"c\"\".png\",0,1e-07,0.1,-3.5\n"
    "2,,,,,inf\n";

static void test_csv(void **state) {
  (void)state;
  write_table("t.csv");
  expect_text("t.csv", csv);
}

static const char jsonl[] =
    "{\"index\": 0, \"file\": \"a.png\", \"label\": 1, \"probability\": 0.25, "
    "\"p\": [1, 2]}\n"
    "{\"index\": 1, \"file\": \"b,\\\"c\\\".png\", \"label\": 0, \"probability\": 1e-07, "
    "\"p\": [0.1, -3.5]}\n"
    "{\"index\": 2, \"file\": null, \"label\": null, \"probability\": null, "
    "\"p\": [null, null]}\n";

static void test_jsonl(void **state) {
  (void)state;
  write_table("t.jsonl");
  expect_text("t.jsonl", jsonl);
}

// Reads the table with the source that training uses for HDF5.
static void test_hdf5(void **state) {
  (void)state;
  write_table("t.h5");
  brim_pack_dataset *sets;
  size_t count;
  assert_ok(brim_pack_list("t.h5", false, &sets, &count));
  assert_int_equal(count, COLUMNS);
  for (size_t i = 0; i < count; i++) assert_int_equal(sets[i].dim[0], 3);
  brim_free(sets);
  const brim_value input = {.kind = BRIM_VALUE_STRING, .string = "p"};
  const brim_value target = {.kind = BRIM_VALUE_STRING, .string = "probability"};
  const brim_argument args[] = {{.name = "inputs", .value = input},
                                {.name = "targets", .value = target}};
  const brim_component component = {.name = "hdf5", .args = args, .arg_count = 2};
  brim_source *source;
  assert_ok(brim_source_open(NULL, &component, "t.h5", "train", 0, &source));
  float row[2], real;
  assert_ok(brim_source_read(source, 1, 1, row, &real, NULL, NULL));
  assert_true(row[0] == wide[2] && row[1] == wide[3] && real == reals[1]);
  assert_ok(brim_source_read(source, 2, 1, row, &real, NULL, NULL));
  assert_true(isnan(row[0]) && isinf(row[1]) && isnan(real));
  brim_source_close(source);
}

static void test_equal_bytes(void **state) {
  (void)state;
  write_table("a.h5");
  write_table("b.h5");
  char *a, *b;
  size_t na, nb;
  assert_ok(brim_fs_read("a.h5", 0, &a, &na));
  assert_ok(brim_fs_read("b.h5", 0, &b, &nb));
  assert_int_equal(na, nb);
  assert_memory_equal(a, b, na);
  brim_free(a);
  brim_free(b);
}

static size_t entries(void) {
  char **list;
  size_t count;
  assert_ok(brim_fs_list(".", &list, &count));
  brim_fs_list_free(list, count);
  return count;
}

static void test_failures(void **state) {
  (void)state;
  brim_columns *c;
  brim_columns_format format;
  assert_false(brim_columns_format_of("t.txt", &format));
  static const char *const paths[] = {"x.h5", "x.csv", "x.jsonl"};
  const void *data[] = {indices, texts, labels, reals, wide};
  size_t before = entries();
  for (size_t i = 0; i < 3; i++) {
    char path[64];
    assert_true(brim_columns_format_of(paths[i], &format));
    snprintf(path, sizeof path, "no/such/%s", paths[i]);
    assert_status(brim_columns_create(path, true, format, columns, COLUMNS, 3, &c), BRIM_ENOENT);
    // too many rows, too few, or none: no file
    assert_ok(brim_columns_create(paths[i], false, format, columns, COLUMNS, 2, &c));
    assert_status(brim_columns_put(c, data, 3), BRIM_ESTATE);
    assert_ok(brim_columns_put(c, data, 1));
    assert_status(brim_columns_commit(c), BRIM_ESTATE);
    assert_ok(brim_columns_create(paths[i], false, format, columns, COLUMNS, 2, &c));
    brim_columns_abort(c);
    assert_false(brim_fs_exists(paths[i]));
  }
  assert_int_equal(entries(), before);
}

// Out of memory: there is no table, not even half of one.
static void test_no_memory(void **state) {
  (void)state;
  static const char *const paths[] = {"m.csv", "m.jsonl"}, *const want[] = {csv, jsonl};
  const void *data[] = {indices, texts, labels, reals, wide};
  for (size_t i = 0; i < 2; i++) {
    bool failed = true;
    brim_columns_format format;
    assert_true(brim_columns_format_of(paths[i], &format));
    (void)unlink(paths[i]);
    for (uint64_t n = 1; failed; n++) {
      brim_columns *c = NULL;
      uint64_t failures = brim_alloc_failures();
      brim_alloc_fail_nth(n, 0);
      brim_status status = brim_columns_create(paths[i], false, format, columns, COLUMNS, 3, &c);
      if (!status) status = brim_columns_put(c, data, 3);
      if (status) {
        brim_columns_abort(c);
      } else {
        status = brim_columns_commit(c);
      }
      brim_alloc_fail_nth(0, 0);
      failed = brim_alloc_failures() > failures;
      // syncing the folder behind a finished file is best effort
      if (status) assert_int_equal(status, BRIM_ENOMEM);
      assert_true(brim_fs_exists(paths[i]) == !status);
      if (!status) expect_text(paths[i], want[i]);
      (void)unlink(paths[i]);
    }
  }
}

// Two different names that are not UTF-8 stay different.
static void test_odd_names(void **state) {
  (void)state;
  static const char *const odd[] = {"latin\xe9.jpg", "latin\xe8.jpg", "caf\xc3\xa9\t.jpg"};
  static const brim_column one = {.name = "file", .kind = BRIM_COLUMN_TEXT, .text_bytes = 16};
  const void *data[] = {odd};
  brim_columns *c;
  assert_ok(brim_columns_create("odd.jsonl", true, BRIM_COLUMNS_JSONL, &one, 1, 3, &c));
  assert_ok(brim_columns_put(c, data, 3));
  assert_ok(brim_columns_commit(c));
  expect_text("odd.jsonl",
              "{\"file\": \"latin\\\\xe9.jpg\"}\n{\"file\": \"latin\\\\xe8.jpg\"}\n"
              "{\"file\": \"caf\xc3\xa9\\u0009.jpg\"}\n");
}

// An existing table stays unless it is to be replaced, even if it appears while rows are written.
static void test_existing(void **state) {
  (void)state;
  static const char *const paths[] = {"e.h5", "e.csv", "e.jsonl"};
  const void *data[] = {indices, texts, labels, reals, wide};
  for (size_t i = 0; i < 3; i++) {
    brim_columns *c;
    brim_columns_format format;
    struct stat st;
    assert_true(brim_columns_format_of(paths[i], &format));
    size_t before = entries();
    (void)unlink(paths[i]);
    assert_ok(brim_columns_create(paths[i], false, format, columns, COLUMNS, 3, &c));
    assert_ok(brim_columns_put(c, data, 3));
    assert_ok(brim_fs_write(paths[i], "mine", 4));
    assert_status(brim_columns_commit(c), BRIM_EEXIST);
    assert_detail("--force");
    expect_text(paths[i], "mine");
    assert_status(brim_columns_create(paths[i], false, format, columns, COLUMNS, 3, &c),
                  BRIM_EEXIST);
    expect_text(paths[i], "mine");
    assert_int_equal(chmod(paths[i], 0640), 0);
    assert_ok(brim_columns_create(paths[i], true, format, columns, COLUMNS, 3, &c));
    assert_ok(brim_columns_put(c, data, 3));
    expect_text(paths[i], "mine");  // until the new one is complete
    assert_ok(brim_columns_commit(c));
    assert_int_equal(stat(paths[i], &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_true(st.st_size > 4);
    (void)unlink(paths[i]);
    assert_true(entries() <= before);
  }
}

// A writer killed in the middle leaves nothing, or the next writer removes it.
static void test_killed(void **state) {
  (void)state;
  static const char *const paths[] = {"k.h5", "k.csv"};
  const void *data[] = {indices, texts, labels, reals, wide};
  for (size_t i = 0; i < 2; i++) {
    brim_columns_format format;
    brim_columns *c;
    assert_true(brim_columns_format_of(paths[i], &format));
    (void)unlink(paths[i]);
    size_t before = entries();
    pid_t pid = fork();
    if (pid == 0) {
      if (brim_columns_create(paths[i], false, format, columns, COLUMNS, 3, &c)) _exit(1);
      if (brim_columns_put(c, data, 3)) _exit(1);
      _exit(0);
    }
    int code = 0;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    assert_false(brim_fs_exists(paths[i]));
    // as on a file system without nameless files
    char left[64];
    snprintf(left, sizeof left, "%s.tmp.%ld.0", paths[i], (long)pid);
    assert_ok(brim_fs_write(left, "half", 4));
    assert_ok(brim_columns_create(paths[i], false, format, columns, COLUMNS, 3, &c));
    brim_columns_abort(c);
    assert_int_equal(entries(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_csv),       cmocka_unit_test(test_jsonl),
      cmocka_unit_test(test_hdf5),      cmocka_unit_test(test_equal_bytes),
      cmocka_unit_test(test_failures),  cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_odd_names), cmocka_unit_test(test_existing),
      cmocka_unit_test(test_killed),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
