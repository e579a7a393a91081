// The same mistake is answered the same way by every command: exit code 2, one line of cause, nothing
// written. And what a user meets at the edges: read-only places, folders instead of checkpoints, a build
// without plug-ins.
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

typedef struct mistake {
  const char *said, *command;  // the command line behind "brim "
} mistake;

static void expect_all(const mistake *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    shell_result r = shell("brim %s", rows[i].command);
    const char *error = strstr(r.err, "brim: error: ");
    if (r.code != 2 || !error || !strstr(error, rows[i].said)) {
      fail_msg("brim %s: exit code %d, '%s' not in: %s", rows[i].command, r.code, rows[i].said,
               r.err);
    }
    assert_string_equal(r.out, "");
    shell_free(&r);
  }
  assert_false(has_file("out") || has_file("out.csv"));
}

#define EXPECT_ALL(rows) expect_all(rows, sizeof(rows) / sizeof *(rows))

static void test_missing(void **state) {
  (void)state;
  static const mistake rows[] = {
      {"no such config file", "train none.yaml"},
      {"no such config file", "bench none.yaml"},
      {"No such file", "config check none.yaml"},
      {"no such checkpoint", "eval none.safetensors"},
      {"no such checkpoint", "predict none.safetensors --output out.csv"},
      {"no such checkpoint", "export none.safetensors --output out"},
      {"no such checkpoint", "render none.safetensors --out out"},
      {"no such checkpoint", "train set.yaml --resume-from none output_dir=out"},
      {"no such checkpoint", "train set.yaml --weights none output_dir=out"},
      {"No such file", "compare none.jsonl none.jsonl"},
      {"no such file", "data info none"},
      {"no such file", "data verify none"},
      {"no such file", "data convert none out"},
      {"no such file", "init none --output out"},
      {"no such file", "train set.yaml dataset=hdf5 --data-path none.h5 output_dir=out"},
      {"no such file", "bench set.yaml dataset=hdf5 --data-path none.h5 output_dir=out"},
      {"none.so", "train set.yaml --plugin ./none.so output_dir=out"},
      {"none.so", "eval net/last.safetensors --plugin ./none.so"},
  };
  EXPECT_ALL(rows);
}

static void test_folders(void **state) {
  (void)state;
  static const char none[] = "hollow is a folder without a checkpoint: brim looked for ";
  const mistake rows[] = {
      {"hollow is a folder", "train hollow"},
      {"hollow is a folder", "bench hollow"},
      {none, "eval hollow"},
      {none, "predict hollow --output out.csv"},
      {none, "export hollow --output out"},
      {none, "render hollow --out out"},
      {none, "train set.yaml --resume-from hollow output_dir=out"},
      {none, "train set.yaml training.resume=hollow output_dir=out"},
      {"name the checkpoint in it, such as net/last.safetensors",
       "train set.yaml --resume-from net output_dir=out"},
      {"name the checkpoint in it, such as net/", "eval net"},
      {"no results.jsonl", "compare hollow hollow"},
      {"no known data found", "data info hollow"},
      {"no known data found", "init hollow --output out"},
  };
  EXPECT_ALL(rows);
}

static void test_malformed(void **state) {
  (void)state;
  static const mistake rows[] = {
      {"torn.yaml:2:1", "train torn.yaml"},
      {"torn.yaml:2:1", "bench torn.yaml"},
      {"torn.yaml:2:1", "config check torn.yaml"},
      {"torn.safetensors", "eval torn.safetensors"},
      {"torn.safetensors", "predict torn.safetensors --output out.csv"},
      {"torn.safetensors", "export torn.safetensors --output out"},
      {"torn.safetensors", "render torn.safetensors --out out"},
      {"torn.safetensors", "train set.yaml --resume-from torn.safetensors output_dir=out"},
      {"torn.safetensors", "train set.yaml --weights torn.safetensors output_dir=out"},
      {"torn.jsonl:1", "compare torn.jsonl torn.jsonl"},
      {"torn.h5", "data info torn.h5"},
      {"torn.h5", "data convert torn.h5 out"},
      {"torn.h5", "train set.yaml dataset=hdf5 --data-path torn.h5 output_dir=out"},
      {"torn.h5", "bench set.yaml dataset=hdf5 --data-path torn.h5 output_dir=out"},
  };
  EXPECT_ALL(rows);
  // the one command whose answer this is
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
    const mistake row = {"unknown option --nope", command};
    expect_all(&row, 1);
  }
  static const mistake rows[] = {
      {"unknown key 'nope'", "train set.yaml nope=1 output_dir=out"},
      {"unknown key 'nope'", "bench set.yaml nope=1"},
      {"unknown key 'nope'", "eval net/last.safetensors nope=1"},
      {"unknown key 'nope'", "predict net/last.safetensors nope=1 --output out.csv"},
      {"unknown key 'nope'", "export net/last.safetensors nope=1 --output out"},
      {"unknown key 'nope'", "render pole/last.safetensors nope=1 --out out"},
      {"--device: 'device' must be", "train set.yaml --device nope output_dir=out"},
      {"--device: 'device' must be", "bench set.yaml --device nope"},
      {"--device: 'device' must be", "eval net/last.safetensors --device nope"},
      {"--threads: 'threads' must be",
       "predict net/last.safetensors --threads -3 --output out.csv"},
      {"name a checkpoint", "eval"},
      {"name a checkpoint", "predict"},
      {"name a checkpoint", "export"},
      {"name a checkpoint", "render"},
      {"two files", "compare"},
      {"takes one path", "data verify"},
  };
  EXPECT_ALL(rows);
}

// What was trained does not suit what is asked of it: known before the first sample.
static void test_other_checkpoints(void **state) {
  (void)state;
  static const mistake rows[] = {
      {"its environment is cartpole", "eval pole/last.safetensors env=quadruped"},
      {"its environment is cartpole", "render pole/last.safetensors env=quadruped --out out"},
      {"its environment is cartpole",
       "train ars env=quadruped --resume-from pole/last.safetensors output_dir=out"},
      {"layers.", "eval net/last.safetensors 'model=mlp(depth=2, hidden=8)'"},
      {"layers.", "predict net/last.safetensors 'model=mlp(depth=2, hidden=8)' --output out.csv"},
      {"layers.", "export net/last.safetensors 'model=mlp(depth=2, hidden=8)' --output out"},
      {"layers.",
       "train set.yaml 'model=mlp(depth=2, hidden=8)' --resume-from "
       "net/last.safetensors output_dir=out --device ref"},
      {"layers.",
       "train set.yaml 'model=mlp(depth=2, hidden=8)' --weights net/last.safetensors "
       "output_dir=out --device ref"},
      {"cannot be exported", "export pole/last.safetensors --output out"},
      {"takes no samples", "predict pole/last.safetensors --output out.csv"},
      {"shows only policies", "render net/last.safetensors --out out"},
  };
  EXPECT_ALL(rows);
}

static void test_places(void **state) {
  (void)state;
  static const mistake rows[] = {
      {"already holds a run", "train set.yaml output_dir=net"},
      {"already exists", "export net/last.safetensors --output plain"},
      {"is a folder; name a file", "export net/last.safetensors --output hollow"},
      {"is a folder; name a file", "render pole/last.safetensors --out hollow"},
      {"is a file, not a folder", "train set.yaml output_dir=plain/a --device ref"},
      {"is a file, not a folder", "bench set.yaml output_dir=plain/a --device ref"},
      {"Not a directory", "export net/last.safetensors --output plain/a"},
      {"Not a directory", "predict net/last.safetensors --output plain/a.csv"},
      {"Not a directory", "eval net/last.safetensors --output plain/a.json"},
      {"Not a directory", "render pole/last.safetensors --out plain/a"},
  };
  EXPECT_ALL(rows);
}

// Files that are there and may not be read: as those that are not there.
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

// A page on the standard output is a page and nothing else.
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
    expect(1, "cannot write to standard output",
           "brim render pole/last.safetensors --out - --episode 0 > /dev/full");
  }
}

// Without plug-ins brim computes with slow loops, and says so; where they were asked for, it does not.
static void test_without_plugins(void **state) {
  (void)state;
  expect(0, "  backend    ref (slow), because libbrim_cpu.so was not found in hollow",
         "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow");
  expect(0, "  백엔드     ref(느림): hollow에 libbrim_cpu.so 파일이 없습니다",
         "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow2 --lang ko");
  expect(0, "ref (slow), because libbrim_cpu.so was not found in hollow",
         "BRIM_PLUGIN_PATH=hollow brim bench set.yaml --plan --batch-sizes 8 output_dir=slow3");
  expect(0, "  backend    ref (slow), because BRIM_PLUGIN_PATH is empty",
         "BRIM_PLUGIN_PATH= brim eval net/last.safetensors");
  expect(0, "\"backend\":\"ref (slow), because libbrim_cpu.so was not found in hollow\"",
         "BRIM_PLUGIN_PATH=hollow brim train set.yaml --max-steps 1 output_dir=slow4 --json");
  write_file("hollow/libbrim_cpu.so", "junk");
  expect(0, "  backend    ref (slow), because the plug-in libbrim_cpu.so cannot be used: ",
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
