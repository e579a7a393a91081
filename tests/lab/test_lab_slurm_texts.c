// The texts that brim exchanges with Slurm: rows of squeue and sacct, numbers, times, scripts, arrays. Broken ones are
// refused.
#include <string.h>

#include "test.h"

#include "base/base.h"
#include "lab/slurm/lab_slurm.h"

typedef struct rows_seen {
  size_t count;
  brim_slurm_row last;
} rows_seen;

static void on_row(void *ctx, const brim_slurm_row *row) {
  rows_seen *seen = ctx;
  seen->count++;
  seen->last = *row;
}

static void test_rows(void **state) {
  (void)state;
  rows_seen seen = {0};
  assert_int_equal(brim_slurm_rows("12|3|RUNNING|n1|name|a|b\n\n", false, on_row, &seen), 0);
  assert_int_equal(seen.count, 1);
  assert_int_equal(seen.last.index, 3);
  assert_string_equal(seen.last.reason, "a|b");
  seen = (rows_seen){0};
  // not an array; truncated; not a number; no state; too few fields
  assert_int_equal(
      brim_slurm_rows("12|N/A|RUNNING|n1|name|\n12|3|RUNNING|n1|na", false, on_row, &seen), 1);
  assert_int_equal(brim_slurm_rows("x|3|RUNNING|n|n|\n1|-3|RUNNING|n|n|\n1|3|GOING|n|n|\n1|3\n",
                                   false, on_row, &seen),
                   4);
  assert_int_equal(seen.count, 0);
  assert_int_equal(
      brim_slurm_rows("9_4|name|CANCELLED by 1000|0:15|n[1-2]\n9_[5-7]|name|PENDING|0:0|\n", true,
                      on_row, &seen),
      0);
  assert_int_equal(seen.count, 1);
  assert_int_equal(seen.last.state, BRIM_SLURM_CANCELLED);
  assert_string_equal(seen.last.word, "CANCELLED");
  assert_int_equal(brim_slurm_state_of("OUT_OF_MEMORY"), BRIM_SLURM_NO_MEMORY);
  assert_int_equal(brim_slurm_state_of("OUT"), BRIM_SLURM_UNKNOWN);
}

static void test_values(void **state) {
  (void)state;
  char job[BRIM_SLURM_JOB], node[BRIM_SLURM_NODE];
  assert_true(brim_slurm_job_of("4711;cluster\n", job));
  assert_string_equal(job, "4711");
  assert_true(brim_slurm_job_of("12\n", job));
  assert_false(brim_slurm_job_of("Submitted batch job 12\n", job));
  assert_false(brim_slurm_job_of("12a\n", job));
  assert_false(brim_slurm_job_of("", job));
  assert_false(brim_slurm_job_of("123456789012345678901234567890\n", job));
  assert_int_equal(brim_slurm_config_value("A = 1\n MaxArraySize   = 1001\n", "MaxArraySize"),
                   1001);
  assert_int_equal(brim_slurm_config_value("XMaxArraySize = 7\n", "MaxArraySize"), 0);
  assert_int_equal(brim_slurm_nodes_of("2|a[1-2]\n1|b\n", node), 3);
  assert_int_equal(brim_slurm_nodes_of("1|b\n", node), 1);
  assert_string_equal(node, "b");
  assert_int_equal(brim_slurm_nodes_of("garbage\n", node), 0);
  assert_int_equal(brim_slurm_nodes_of("9223372036854775807|a\n9223372036854775807|b\n", node), 0);
  assert_true(brim_slurm_has_mpi("MPI plugin types are...\n\tpmix\n\tnone\n", "pmix"));
  assert_false(brim_slurm_has_mpi("pmix_v4\n", "pmix"));
  assert_int_equal(brim_slurm_seconds("90"), 5400);
  assert_int_equal(brim_slurm_seconds("1:30"), 90);
  assert_int_equal(brim_slurm_seconds("1:00:01"), 3601);
  assert_int_equal(brim_slurm_seconds("2-12"), 216000);
  assert_int_equal(brim_slurm_seconds("1-00:00:30"), 86430);
  assert_int_equal(brim_slurm_seconds("UNLIMITED"), -1);
  assert_int_equal(brim_slurm_seconds("1:2:3:4"), -1);
  assert_int_equal(brim_slurm_seconds("5x"), -1);
  assert_int_equal(brim_slurm_seconds(NULL), -1);
}

static void test_quotes_and_short_limits(void **state) {
  (void)state;
  static const char *const words[] = {"/bin/a b", "it's", "$(reboot)", NULL};
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_slurm_script(words, &text));
  assert_non_null(strstr(text.data, "exec '/bin/a b' 'it'\\''s' '$(reboot)'\n"));
  brim_str_deinit(&text);
  brim_slurm_exp exp = {.id = ""};
  const brim_slurm_array array = {.name = "n", .exps = &exp, .count = 1, .gpus = 3, .nodes = 1};
  const brim_slurm_ask ask = {.time = "4"};
  brim_slurm_words w = {0};
  brim_slurm_words_sbatch(&array, &ask, "/runs/50%", false, &w);
  brim_str_init(&text);
  for (size_t i = 0; i < w.count; i++) brim_str_printf(&text, "%s ", w.list[i]);
  assert_non_null(strstr(text.data, "--array=0-0 "));
  assert_non_null(strstr(text.data, "--signal=B:USR2@60 "));  // a quarter of four minutes
  assert_non_null(strstr(text.data, "--output=/runs/50%%/slurm/n_%a.log "));
  assert_non_null(strstr(text.data, "--nodes=1 --ntasks=3 --gres=gpu:3 "));
  assert_non_null(strstr(text.data, " /runs/50%/slurm/n.sh "));
  brim_str_deinit(&text);
  brim_slurm_words_deinit(&w);
}

static void test_broken_files(void **state) {
  (void)state;
  brim_slurm_array array;
  static const char *const texts[] = {
      "",
      "{",
      "[]",
      "{\"name\":\"brim-a\",\"job\":\"\",\"exps\":[]}",
      ("{\"name\":\"brim-b\",\"job\":\"\",\"exps\":[[\"00000000000000000000000000000001\",0,false]]"
       "}"),
      "{\"name\":\"brim-a\",\"job\":\"\",\"exps\":[[\"../../etc\",0]]}"};
  assert_int_equal(system("rm -rf broken && mkdir -p broken/slurm"), 0);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    assert_ok(brim_fs_write("broken/slurm/brim-a.json", texts[i], strlen(texts[i])));
    assert_status(brim_slurm_array_read("broken", "brim-a", &array), BRIM_EPARSE);
  }
  // scancel --name takes a list of names, and ends every job with one of them
  static const char *const names[] = {"train", "brim-a,train", "brim-a b", "brim-a*", "a-brim-"};
  char path[64], text[160];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    static const char rest[] =
        "\"job\":\"\",\"exps\":[[\"00000000000000000000000000000001\",0,false]]";
    snprintf(path, sizeof path, "broken/slurm/%s.json", names[i]);
    snprintf(text, sizeof text, "{\"name\":\"%s\",%s}", names[i], rest);
    assert_ok(brim_fs_write(path, text, strlen(text)));
    assert_status(brim_slurm_array_read("broken", names[i], &array), BRIM_EPARSE);
    snprintf(text, sizeof text, "{\"name\":\"brim-a\",%s}", rest);
    assert_ok(brim_fs_write("broken/slurm/brim-a.json", text, strlen(text)));
    assert_ok(brim_slurm_array_read("broken", "brim-a", &array));
    brim_slurm_array_deinit(&array);
  }
  brim_status_clear();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_quotes_and_short_limits),
      cmocka_unit_test(test_broken_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
