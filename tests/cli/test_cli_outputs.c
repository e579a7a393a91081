// One rule for every command that writes: it checks its output path before it starts. If the output cannot be created,
// the exit code is 2 and nothing is left behind.
#include <sys/stat.h>
#include <unistd.h>

#include "cli_test.h"

#define CONFIG "model='mlp(depth=1, hidden=8)' --data-path d.h5 --device ref "

// $W is a folder that cannot be written.
static const char *const commands[] = {
    "brim train " CONFIG "--batch-size 8 --max-steps 2 --output-dir $W/run",
    "brim bench " CONFIG "--steps 2 --batch-sizes 8 --output-dir $W/run",
    "brim bench " CONFIG "--steps 2 --batch-sizes 8 --output $W/x.jsonl",
    "brim bench " CONFIG "--steps 2 --batch-sizes 8 --report $W/x.html",
    "brim init d.h5 --device ref --output $W/x.yaml",
    "brim predict --force run/last.safetensors --output $W/x.csv",
    "brim predict --force run/last.safetensors --output $W/x.jsonl",
    "brim predict --force run/last.safetensors --output $W/x.h5",
    "brim eval run/last.safetensors --output $W/x.json",
    "brim eval run/last.safetensors --output $W/x.csv",
    "brim export --force run/last.safetensors --output $W/x.onnx",
    "brim data make $W/x.h5 --samples 8 --shape 4",
    "brim data make $W/x --format idx --samples 8",
    "brim data convert d.h5 $W/x.h5",
    "brim data convert d.h5 $W/x --format idx",
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int setup(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf d.h5 run runs blocked locked && echo file > blocked && mkdir locked && "
         "chmod 555 locked && brim data make d.h5 --samples 32 --test-samples 16 --shape 6 "
         "--dtype f32 --classes 3 -q && brim train " CONFIG
         "--batch-size 8 --max-steps 2 --output-dir run -q");
  return 0;
}

// Runs one command in `of`, different ones for each folder.
static void refused_at(const char *place, size_t from, uint64_t of) {
  for (size_t i = from; i < COMMANDS; i++) {
    if (!test_is_sampled(i * 2 + strlen(place) % 2, of)) continue;
    shell_result r = shell("W='%s'; %s", place, commands[i]);
    if (r.code != 2) fail_msg("%s, W=%s: exit %d: %s", commands[i], place, r.code, r.err);
    if (!strstr(r.err, place)) fail_msg("%s, W=%s: not named: %s", commands[i], place, r.err);
    assert_string_equal(r.out, "");
    shell_free(&r);
  }
}

static void test_a_file_in_the_way(void **state) {
  (void)state;
  refused_at("blocked", 0, 1);
  expect(0, NULL, "test \"$(cat blocked)\" = file");
}

// train and bench create their folders.
static void test_no_such_folder(void **state) {
  (void)state;
  refused_at("none/such", 4, 1);
  assert_false(has_file("none"));
}

// These two refuse even root, with ENOENT and with EPERM.
static void test_pseudo_file_systems(void **state) {
  (void)state;
  if (!has_file("/proc/self") || !has_file("/sys/kernel")) BRIM_SKIP("no /proc or /sys here");
  refused_at("/proc/none", 0, 3);
  refused_at("/sys", 0, 3);
}

static void test_no_permission(void **state) {
  (void)state;
  if (access("locked", W_OK) == 0) BRIM_SKIP("this user may write anywhere");
  refused_at("locked", 0, 1);
}

static void test_apply_to_a_file_that_nobody_may_write(void **state) {
  (void)state;
  write_file("fixed.yaml", "model: mlp(depth=1, hidden=8)\ndata:\n  path: d.h5\n");
  assert_int_equal(chmod("fixed.yaml", 0444), 0);
  if (access("fixed.yaml", W_OK) == 0) BRIM_SKIP("this user may write anywhere");
  expect(2, "cannot edit", "brim bench fixed.yaml --device ref --steps 2 --batch-sizes 8 --apply");
}

// One rule for existing files: --force replaces them. A command that people repeat renews its own earlier files.
static void test_files_that_are_there(void **state) {
  static const struct {
    const char *command, *file;
    bool renews;
  } writes[] = {
      {"brim export run/last.safetensors -o", "x.onnx", false},
      {"brim predict run/last.safetensors -o", "x.csv", false},
      {"brim init d.h5 --device ref -o", "x.yaml", false},
      {"brim eval run/last.safetensors -o", "x.json", false},
      {"brim sweep get --store runs/one $(ls runs/one/exp) -o", "x.safetensors", false},
      {"brim sweep export --store runs/one -o", "x.jsonl", true},
      {"brim sweep export --store runs/one --format csv -o", "y.csv", true},
      {"brim report runs/one -o", "x.html", true},
      {"brim profile " CONFIG "batch_size=8 --steps 2 --html", "y.html", true},
      {"brim profile " CONFIG "batch_size=8 --steps 2 --trace", "x.trace.json", true},
      {"brim bench " CONFIG
       "--steps 2 --batch-sizes 8 --repeats 1 --no-ceilings --no-price --report",
       "z.html", true},
  };
  (void)state;
  write_file("one.yaml",
             "name: one\ndataset: synthetic(shape=(6,), classes=3, samples=32)\n"
             "model: mlp(depth=1, hidden=8)\nbackend: ref\ndevice: cpu\nepochs: 1\nlr: [0.1]\n");
  expect(0, NULL, "rm -rf runs && brim sweep one.yaml -q");
  for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
    const char *command = writes[i].command, *file = writes[i].file;
    write_file(file, "mine");
    shell_result r = shell("%s %s", command, file);
    if (r.code != 2) fail_msg("%s: exit %d: %s", command, r.code, r.err);
    has(r.err, file);
    has(r.err, "--force");
    shell_free(&r);
    r = shell("grep -qx mine %s", file);
    if (r.code) fail_msg("%s replaced the file", command);
    shell_free(&r);
    r = shell("%s %s --force", command, file);
    if (r.code) fail_msg("%s --force: exit %d: %s", command, r.code, r.err);
    shell_free(&r);
    r = shell("grep -qx mine %s", file);
    assert_int_not_equal(r.code, 0);
    shell_free(&r);
    r = shell("%s %s", command, file);
    if (r.code != (writes[i].renews ? 0 : 2))
      fail_msg("%s again: exit %d: %s", command, r.code, r.err);
    shell_free(&r);
  }
  // a sweep needs its name, even with files there
  expect(0, NULL, "mkdir -p runs/two && echo '{\"mine\": 1}' > runs/two/sweep.json");
  expect(2, "sweep.json", "brim sweep one.yaml --output-dir runs/two");
  expect(0, NULL, "grep -q mine runs/two/sweep.json");
}

// Files that a command reads, or writes for other reasons, are refused as output.
static void test_no_input_is_an_output(void **state) {
  (void)state;
  write_file("own.yaml", "model: mlp(depth=1, hidden=8)\ndata:\n  path: d.h5\n");
  static const char *const refused[][2] = {
      {"own.yaml", "bench own.yaml --report own.yaml"},
      {"own.yaml", "bench own.yaml --output ./own.yaml"},
      {"d.h5", "bench own.yaml --report d.h5"},
      {"d.h5", "bench own.yaml --output $PWD/d.h5"},
      {"d.h5", "profile own.yaml --html d.h5"},
      {"last.safetensors",
       "bench own.yaml training.weights=run/last.safetensors --report "
       "run/last.safetensors"},
      {"idx/train-labels-idx1-ubyte",
       "bench own.yaml --data-path idx --report "
       "idx/train-labels-idx1-ubyte"},
  };
  expect(0, NULL, "rm -rf idx && brim data convert d.h5 idx --format idx -q");
  expect(0, NULL, "rm -rf kept && mkdir kept && cp -r own.yaml d.h5 idx run kept");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char text[64], command[256];
    snprintf(text, sizeof text, "%s is read by this command", refused[i][0]);
    snprintf(command, sizeof command, "brim %s --device ref", refused[i][1]);
    says(2, command);
  }
  says(2, "brim bench own.yaml --device ref --output ./x.html --report x.html");
  says(2, "brim bench own.yaml --device ref --report runs/bench/best.yaml");
  says(2, "brim bench own.yaml --device ref --report runs/bench/results.jsonl");
  says(2,
       "cp own.yaml other.yaml && brim bench own.yaml --device ref --apply other.yaml --report "
       "other.yaml");
  expect(0, NULL,
         "cmp kept/own.yaml own.yaml && cmp kept/d.h5 d.h5 && diff -r kept/idx idx && "
         "diff -r kept/run run && rm -rf kept");
}

// Temporaries of the command's own targets, left by a killed process, are removed; other files stay.
static void test_left_temporaries(void **state) {
  (void)state;
  expect(0, NULL,
         "mkdir -p runs/bench && cd runs/bench && for f in x.tmp.999999999.2 "
         "results.jsonl.tmp.999999999.0 report.html.tmp.999999999.1 my-best.yaml.tmp.999999999.0; "
         "do echo mine > $f; done");
  expect(0, NULL,
         "brim bench " CONFIG
         "--steps 2 --repeats 1 --batch-sizes 8 --no-ceilings "
         "--no-price -q");
  expect(0, NULL,
         "cd runs/bench && test -e x.tmp.999999999.2 && "
         "test -e my-best.yaml.tmp.999999999.0 && "
         "! test -e results.jsonl.tmp.999999999.0 && "
         "! test -e report.html.tmp.999999999.1");
}

static void test_the_rule_is_told(void **state) {
  (void)state;
  says(0, "COLUMNS=400 brim help exit-codes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_file_in_the_way, setup),
      cmocka_unit_test_setup(test_no_such_folder, setup),
      cmocka_unit_test_setup(test_pseudo_file_systems, setup),
      cmocka_unit_test_setup(test_no_permission, setup),
      cmocka_unit_test_setup(test_apply_to_a_file_that_nobody_may_write, setup),
      cmocka_unit_test_setup(test_files_that_are_there, setup),
      cmocka_unit_test_setup(test_no_input_is_an_output, setup),
      cmocka_unit_test_setup(test_left_temporaries, setup),
      cmocka_unit_test(test_the_rule_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
