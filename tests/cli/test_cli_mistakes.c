// Every command answers the same mistake the same way: exit code 2, one line with the cause, nothing written. And edge
// cases: read-only places, folders instead of checkpoints, a build without plug-ins.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli_test.h"

#define LONG_RUN "--device ref --max-steps 1 --quiet"

static int prepare(void **state) {
  (void)state;
  write_file("set.yaml", "model: mlp(depth=1, hidden=8)\ndataset: synthetic\n");
  write_file("torn.yaml", "model: [\n");
  write_file("torn.safetensors", "\x10junk that is no header");
  write_file("torn.h5", "junk");
  write_file("torn.jsonl", "junk\n");
  write_file("plain", "a file\n");
  expect(0, NULL, "rm -rf net pole out slow* && mkdir -p hollow");
  expect(0, NULL, "brim train set.yaml output_dir=net " LONG_RUN);
  expect(0, NULL,
         "brim train ars env=cartpole ars.num_dirs=2 ars.dir_chunk=2 output_dir=pole " LONG_RUN);
  return 0;
}

// Command lines after "brim ".
static void expect_all(const char *const *commands, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char line[256];
    snprintf(line, sizeof line, "brim %s", commands[i]);
    says(2, line);
  }
  assert_false(has_file("out") || has_file("out.csv"));
}

#define EXPECT_ALL(rows) expect_all(rows, sizeof(rows) / sizeof *(rows))

static void test_missing(void **state) {
  (void)state;
  static const char *const rows[] = {
      "train none.yaml",
      "bench none.yaml",
      "config check none.yaml",
      "eval none.safetensors",
      "predict none.safetensors --output out.csv",
      "export none.safetensors --output out",
      "render none.safetensors --out out",
      "train set.yaml --resume-from none output_dir=out",
      "train set.yaml --weights none output_dir=out",
      "compare none.jsonl none.jsonl",
      "data info none",
      "data verify none",
      "data convert none out",
      "init none --output out",
      "train set.yaml dataset=hdf5 --data-path none.h5 output_dir=out",
      "bench set.yaml dataset=hdf5 --data-path none.h5 output_dir=out",
      "train set.yaml --plugin ./none.so output_dir=out",
      "eval net/last.safetensors --plugin ./none.so",
  };
  EXPECT_ALL(rows);
}

static void test_folders(void **state) {
  (void)state;
  static const char *const rows[] = {
      "train hollow",
      "bench hollow",
      "eval hollow",
      "predict hollow --output out.csv",
      "export hollow --output out",
      "render hollow --out out",
      "train set.yaml --resume-from hollow output_dir=out",
      "train set.yaml training.resume=hollow output_dir=out",
      "train set.yaml --resume-from net output_dir=out",
      "eval net",
      "compare hollow hollow",
      "data info hollow",
      "init hollow --output out",
  };
  EXPECT_ALL(rows);
}

static void test_malformed(void **state) {
  (void)state;
  static const char *const rows[] = {
      "train torn.yaml",
      "bench torn.yaml",
      "config check torn.yaml",
      "eval torn.safetensors",
      "predict torn.safetensors --output out.csv",
      "export torn.safetensors --output out",
      "render torn.safetensors --out out",
      "train set.yaml --resume-from torn.safetensors output_dir=out",
      "train set.yaml --weights torn.safetensors output_dir=out",
      "compare torn.jsonl torn.jsonl",
      "data info torn.h5",
      "data convert torn.h5 out",
      "train set.yaml dataset=hdf5 --data-path torn.h5 output_dir=out",
      "bench set.yaml dataset=hdf5 --data-path torn.h5 output_dir=out",
  };
  EXPECT_ALL(rows);
  // only this command has this answer
  expect(1, "torn.h5", "brim data verify torn.h5");
}

static void test_words(void **state) {
  (void)state;
  static const char *const commands[] = {"train",  "bench",   "eval",      "predict", "export",
                                         "render", "compare", "data",      "config",  "init",
                                         "help",   "version", "completion"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[64];
    snprintf(command, sizeof command, "%s --nope", commands[i]);
    const char *const line = command;
    expect_all(&line, 1);
  }
  static const char *const rows[] = {
      "train set.yaml nope=1 output_dir=out",
      "bench set.yaml nope=1",
      "eval net/last.safetensors nope=1",
      "predict net/last.safetensors nope=1 --output out.csv",
      "export net/last.safetensors nope=1 --output out",
      "render pole/last.safetensors nope=1 --out out",
      "train set.yaml --device nope output_dir=out",
      "bench set.yaml --device nope",
      "eval net/last.safetensors --device nope",
      "predict net/last.safetensors --threads -3 --output out.csv",
      "eval",
      "predict",
      "export",
      "render",
      "compare",
      "data verify",
  };
  EXPECT_ALL(rows);
}

// Checkpoints that do not fit the command are refused before the first sample.
static void test_other_checkpoints(void **state) {
  (void)state;
  static const char *const rows[] = {
      "eval pole/last.safetensors env=quadruped",
      "render pole/last.safetensors env=quadruped --out out",
      "train ars env=quadruped --resume-from pole/last.safetensors output_dir=out",
      "eval net/last.safetensors 'model=mlp(depth=2, hidden=8)'",
      "predict net/last.safetensors 'model=mlp(depth=2, hidden=8)' --output out.csv",
      "export net/last.safetensors 'model=mlp(depth=2, hidden=8)' --output out",
      "train set.yaml 'model=mlp(depth=2, hidden=8)' --resume-from "
      "net/last.safetensors output_dir=out --device ref",
      "train set.yaml 'model=mlp(depth=2, hidden=8)' --weights net/last.safetensors "
      "output_dir=out --device ref",
      "export pole/last.safetensors --output out",
      "predict pole/last.safetensors --output out.csv",
      "render net/last.safetensors --out out",
  };
  EXPECT_ALL(rows);
}

static void test_places(void **state) {
  (void)state;
  static const char *const rows[] = {
      "train set.yaml output_dir=net",
      "export net/last.safetensors --output plain",
      "export net/last.safetensors --output hollow",
      "render pole/last.safetensors --out hollow",
      "train set.yaml output_dir=plain/a --device ref",
      "bench set.yaml output_dir=plain/a --device ref",
      "export net/last.safetensors --output plain/a",
      "predict net/last.safetensors --output plain/a.csv",
      "eval net/last.safetensors --output plain/a.json",
      "render pole/last.safetensors --out plain/a",
  };
  EXPECT_ALL(rows);
}

// Files that exist but may not be read are reported like missing ones.
static void test_unreadable(void **state) {
  (void)state;
  const char *user = "";
  if (geteuid() == 0) {
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    shell_result able = shell("%s cat set.yaml", user);
    bool good = able.code == 0;
    shell_free(&able);
    if (!good) {
      print_message("skipped: root reads every file, and cannot be given up here\n");
      skip();
    }
  }
  expect(0, NULL, "rm -rf shut && mkdir -m 755 shut && chmod 755 .");
  expect(0, NULL, "cp set.yaml net/last.safetensors torn.jsonl shut && chmod 000 shut/*");
  static const char *const commands[] = {
      "train shut/set.yaml",
      "bench shut/set.yaml",
      "config check shut/set.yaml",
      "eval shut/last.safetensors",
      "predict shut/last.safetensors --output out.csv",
      "export shut/last.safetensors --output out",
      "render shut/last.safetensors --out out",
      "train set.yaml --resume-from shut/last.safetensors output_dir=out",
      "train set.yaml --weights shut/last.safetensors output_dir=out --device ref",
      "compare shut/torn.jsonl shut/torn.jsonl",
  };
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    shell_result r = shell("%s \"" BRIM_BINARY "\" %s", user, commands[i]);
    if (r.code != 2 || !strstr(r.err, "Permission denied")) {
      fail_msg("brim %s: exit code %d: %s", commands[i], r.code, r.err);
    }
    shell_free(&r);
  }
  expect(0, NULL, "chmod 644 shut/*");
}

static void test_read_only(void **state) {
  (void)state;
  char hint[256];
  const brim_cli cli = {0};
  snprintf(hint, sizeof hint, "cannot write a: %s", brim_errno_text(EROFS));
  char detail[256];
  memcpy(detail, hint, sizeof detail);
  brim_cli_hint(&cli, BRIM_EINVAL, detail, hint, sizeof hint);
  assert_string_equal(hint, "the file system is read-only; write to another place");
  snprintf(detail, sizeof detail, "cannot write a: %s", brim_errno_text(ENOSPC));
  brim_cli_hint(&cli, BRIM_EIO, detail, hint, sizeof hint);
  assert_string_equal(hint, "free some disk space, or write to another place");
  static const char mounted[] =
      "mkdir -p fixed && unshare -rm sh -c 'mount -t tmpfs none fixed && mount -o remount,ro fixed";
  shell_result able = shell("%s'", mounted);
  bool good = able.code == 0;
  shell_free(&able);
  if (!good) {
    print_message("skipped: no file system can be mounted here\n");
    skip();
  }
  static const char cause[] = "Read-only file system", advice[] = "the file system is read-only";
  static const struct {
    const char *said, *command;
  } rows[] = {
      {"Read-only file system; choose a folder that can be written to with --output-dir",
       "train set.yaml --device ref output_dir=fixed/run"},
      {advice, "bench set.yaml --device ref output_dir=fixed/run"},
      {advice, "export net/last.safetensors --output fixed/a.onnx"},
      {advice, "render pole/last.safetensors --out fixed/a.html"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    shell_result r = shell("%s && \"$0\" %s' \"" BRIM_BINARY "\"", mounted, rows[i].command);
    if (r.code != 2 || !strstr(r.err, cause) || !strstr(r.err, rows[i].said)) {
      fail_msg("brim %s: exit code %d: %s", rows[i].command, r.code, r.err);
    }
    shell_free(&r);
  }
}

// A page on stdout is not mixed with other output.
static void test_render_to_stdout(void **state) {
  (void)state;
  shell_result r = shell("brim render pole/last.safetensors --out - --episode 0");
  assert_int_equal(r.code, 0);
  assert_int_equal(strncmp(r.out, "<!DOCTYPE html>", 15), 0);
  const char *end = strstr(r.out, "</html>");
  assert_non_null(end);
  assert_true(strlen(end) <= 8);
  assert_string_equal(r.err, "");
  shell_free(&r);
  assert_false(has_file("-"));
  if (has_file("/dev/full")) {
    says(1, "brim render pole/last.safetensors --out - --episode 0 > /dev/full");
  }
}

// Without plug-ins brim computes with slow loops, and reports it; if the command asks for a plug-in, it fails.
static void test_without_plugins(void **state) {
  (void)state;
  says_lines(0, "libbrim_cpu.so",
             "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow");
  says_lines(
      0, "libbrim_cpu.so",
      "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow2 --lang ko");
  says_lines(0, "libbrim_cpu.so",
             "BRIM_PLUGIN_PATH=hollow brim bench set.yaml --plan --batch-sizes 8 output_dir=slow3");
  says_rows(0, "  backend  ", "BRIM_PLUGIN_PATH= brim eval net/last.safetensors");
  expect(0, "\"backend\":\"ref (slow), because libbrim_cpu.so was not found in hollow\"",
         "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow4 --json");
  write_file("hollow/libbrim_cpu.so", "junk");
  says_lines(0, "libbrim_cpu.so",
             "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow5");
  expect(0, NULL, "rm hollow/libbrim_cpu.so");
  shell_result r = shell("brim train set.yaml --device ref --max-steps 1 output_dir=slow6");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "slow)"));
  shell_free(&r);
}

static void test_eval_shows_how(void **state) {
  (void)state;
  expect(0, "  precision  fp32\n", "brim eval net/last.safetensors --device ref");
  expect(0, "  precision  bf16\n", "brim eval net/last.safetensors --device ref --precision bf16");
  expect(0, "  device     ref: ", "brim eval net/last.safetensors --device ref");
  expect(0, "\"precision\":\"bf16\"",
         "brim eval net/last.safetensors --device ref --precision bf16 --json");
  expect(0, "  precision  fp32\n",
         "brim predict net/last.safetensors --device ref --output rows.csv --force");
  expect(0, "  device     ref: ", "brim eval pole/last.safetensors --device ref");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_missing),           cmocka_unit_test(test_folders),
      cmocka_unit_test(test_malformed),         cmocka_unit_test(test_words),
      cmocka_unit_test(test_other_checkpoints), cmocka_unit_test(test_places),
      cmocka_unit_test(test_unreadable),        cmocka_unit_test(test_read_only),
      cmocka_unit_test(test_render_to_stdout),  cmocka_unit_test(test_without_plugins),
      cmocka_unit_test(test_eval_shows_how),
  };
  return cmocka_run_group_tests(tests, prepare, NULL);
}
