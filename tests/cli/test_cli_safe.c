// Input from outside does no harm: names with terminal codes, configs that name code, folders of other users, inputs
// that are no files, a quota of CPU time. And --color also holds for errors.
#include <sys/stat.h>
#include <unistd.h>

#include "cli_test.h"

#include "cli/cli.h"

#define RED "\x1b[31m"
#define SMALL                                                                          \
  "dataset: synthetic(shape=[1, 8, 8], samples=64, classes=4)\nmodel: mlp(hidden=8)\n" \
  "training:\n  epochs: 1\ndata:\n  batch_size: 16\n"

static void fresh_folder(const char *name) {
  shell_result r = shell("rm -rf '%s' && mkdir -p '%s'", name, name);
  assert_int_equal(r.code, 0);
  shell_free(&r);
}

//---------------------------------- passwords ----------------------------------

// No message contains the password of a store's URL, whatever is wrong. Nor does the command line that other users see
// while the command runs.
static void test_passwords_of_stores(void **state) {
  (void)state;
  static const char *const urls[] = {"postgres://u:SESAM@127.0.0.1:1/db",
                                     "postgresql://u@127.0.0.1:1/db?password=SESAM",
                                     "postgresql://127.0.0.1:1/db?sslpassword=SESAM&user=u",
                                     "postgres://u:SESAM@127.0.0.1:port/db",
                                     "postgres://u:SESAM@[::1/db",
                                     "postgres://u:SESAM%zz@h/db",
                                     "postgres://u:@127.0.0.1:1/db?password=&password=SESAM"};
  static const char *const commands[] = {"serve --store '%s'", "serve token list --store '%s'",
                                         "sweep status '%s'",  "sweep export '%s'",
                                         "sweep '%s'",         "report '%s'",
                                         "compare '%s'",       "top '%s'",
                                         "nothing '%s'",       "train --store '%s'",
                                         "train '%s'",         "train store='%s' model=nothing"};
  char command[512];
  for (size_t u = 0; u < sizeof urls / sizeof *urls; u++) {
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
      snprintf(command, sizeof command, commands[c], urls[u]);
      shell_result r = shell("brim %s; brim --json %s", command, command);
      assert_int_not_equal(r.err[0], '\0');
      if (strstr(r.out, "SESAM") || strstr(r.err, "SESAM")) {
        fail_msg("%s\n%s%s", command, r.out, r.err);
      }
      shell_free(&r);
    }
  }
  char word[] = "postgres://u:SESAM@h/db?password=OPEN&x=1", plain[] = "sweep", option[64];
  snprintf(option, sizeof option, "--store=%s", "postgresql://v:ME@h");
  char *argv[] = {plain, word, option, NULL};
  const char *const *words = brim_cli_hide_passwords(3, argv);
  assert_string_equal(argv[0], "sweep");
  assert_string_equal(argv[1], "postgres://u:*****@h/db?password=****&x=1");
  assert_string_equal(argv[2], "--store=postgresql://v:**@h");
  assert_string_equal(words[0], "sweep");
  assert_string_equal(words[1], "postgres://u:SESAM@h/db?password=OPEN&x=1");
  assert_string_equal(words[2], "--store=postgresql://v:ME@h");
  assert_null(words[3]);
}

//---------------------------------- terminals ----------------------------------

static void assert_harmless(const char *text) {
  assert_null(strchr(text, '\x1b'));
  assert_null(strchr(text, '\r'));
  assert_null(strchr(text, '\x07'));
  assert_null(strstr(text, "\xe2\x80\xae"));
  assert_null(strstr(text, "\xc2\x9b"));
}

// Asserts that the command's output has the name as `shown`, and no terminal codes; in both languages.
static void expect_harmless(const char *shown, const char *command) {
  static const char *const languages[] = {"en", "ko"};
  for (int i = 0; i < 2; i++) {
    shell_result r = shell("export LC_ALL=%s_XX.UTF-8; %s", languages[i], command);
    assert_harmless(r.out);
    assert_harmless(r.err);
    if (!strstr(r.out, shown) && !strstr(r.err, shown)) {
      fail_msg("%s\nno '%s' in\n%s\n%s", command, shown, r.out, r.err);
    }
    shell_free(&r);
  }
}

static void test_names_in_errors(void **state) {
  (void)state;
  // a missing config, one with a bad key, an unknown option
  expect_harmless("no\\x1b[2Jthing", "brim train \"$(printf 'no\\033[2Jthing')\"");
  expect_harmless("\\u202ethere", "brim train \"$(printf 'over\\342\\200\\256there')\"");
  expect_harmless("bad\\u009b1m", "brim train dataset=synthetic \"$(printf 'bad\\302\\2331m')=1\"");
  expect_harmless("evil\\x1b]0;x\\x07",
                  "printf '\"evil\\\\e]0;x\\\\a\": 1\\n' > bad.yaml; "
                  "brim config check bad.yaml");
  expect_harmless("--no\\x1bsuch", "brim train \"$(printf -- '--no\\033such')\"");
  expect_harmless("x\\x1b[31m", "brim \"$(printf 'x\\033[31m')\"");
  // bytes that are not UTF-8 are shown as \xNN
  expect_harmless("a\\xffb", "brim train \"$(printf 'a\\377b.yaml')\"");
  // with colour, brim's own codes are the only ones
  shell_result r = shell("brim --color=always train \"$(printf 'x\\033[2Jy')\"");
  assert_non_null(strstr(r.err, RED));
  assert_non_null(strstr(r.err, "x\\x1b[2Jy"));
  assert_null(strstr(r.err, "\x1b[2J"));
  shell_free(&r);
  // without colour there are no codes at all
  r = shell("brim --color=always train \"$(printf 'x\\033[31my')\"");
  assert_non_null(strstr(r.err, "x\\x1b[31my"));
  shell_free(&r);
}

static void test_names_in_data(void **state) {
  (void)state;
  fresh_folder("images");
  // class folders and a broken image with such names
  expect(
      0, NULL,
      "for c in \"$(printf 'a\\033[31mb')\" \"$(printf 'b\\302\\2332J')\"; do "
      "mkdir -p \"images/$c\"; printf 'not a jpeg' > \"images/$c/$(printf 'x\\033c.jpg')\"; done");
  expect_harmless("x\\x1bc.jpg", "brim data verify images");
  shell_result r =
      shell("brim --color=always data verify images; brim --color=always data info images");
  assert_null(strstr(r.out,
                     "\x1b"
                     "c"));
  assert_null(strstr(r.err,
                     "\x1b"
                     "c"));
  assert_null(strstr(r.out, "\xc2\x9b"));
  shell_free(&r);
  // JSON output stays valid, with the name unchanged
  r = shell("brim --json data verify images");
  assert_harmless(r.out);
  assert_true(json_lines(r.out) > 0);
  shell_free(&r);
}

// Text inside a checkpoint.
static void test_names_in_checkpoints(void **state) {
  (void)state;
  static const char header[] =
      "{\"__metadata__\":{\"brim.workload\":\"\\u001b[2Jx\\u009b\\u202e\",\"brim.step\":\"1\"},"
      "\"\\u001b[31mw\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  uint64_t length = sizeof header - 1;
  char bytes[512];
  for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
  memcpy(bytes + 8, header, sizeof header - 1);
  memset(bytes + 8 + length, 0, 4);
  assert_ok(brim_fs_write("evil.safetensors", bytes, 8 + length + 4));
  expect_harmless("\\x1b[31mw", "brim eval evil.safetensors");
  char *dtype = strstr(bytes + 8, "F99");
  memcpy(dtype, "F32", 3);
  assert_ok(brim_fs_write("evil.safetensors", bytes, 8 + length + 4));
  shell_result r = shell(
      "brim eval evil.safetensors; brim predict --force evil.safetensors -o x.csv; "
      "brim export --force evil.safetensors -o x.onnx");
  assert_true(*r.err);
  assert_harmless(r.err);
  assert_harmless(r.out);
  shell_free(&r);
}

//---------------------------------- spreadsheets ----------------------------------

static void test_cells(void **state) {
  (void)state;
  fresh_folder("table");
  // classes and files whose names a spreadsheet would run as formulas
  expect(0, NULL,
         "cd table && brim data make img --format png --samples 12 --test-samples 4 --shape 8,8,3 "
         "--classes 2 -q && for s in train test; do mv img/$s/0 'img/'$s'/=1+1'; "
         "mv img/$s/1 'img/'$s'/@x,y'; done && brim train 'model=mlp(hidden=4)' --data-path img "
         "--epochs 1 --batch-size 4 --device ref --output-dir run -q");
  expect(0, NULL,
         "cd table && mkdir photos && for f in img/test/*/*; do cp \"$f\" \"photos/=$(basename "
         "\"$f\")\"; break; done && cp photos/* photos/-2.png && "
         "brim predict --force run/model.safetensors --data-path photos --device ref -o p.csv && "
         "brim eval run/model.safetensors --data-path img --device ref -o e.csv");
  expect(0, NULL, "cd table && ! grep -E '(^|,)\"?[=@]' p.csv && ! grep -E '(^|,)\"?[=@]' e.csv");
  expect(0, "'=1+1", "cat table/e.csv");
  expect(0, "\"'@x,y\"", "cat table/e.csv");
  expect(0, "'=", "cat table/p.csv");
  expect(0, "'-2.png", "cat table/p.csv");
}

//---------------------------------- colour ----------------------------------

static void expect_colour(bool colour, const char *command) {
  shell_result r = shell("%s", command);
  assert_int_equal(r.code, 2);
  if ((strstr(r.err, RED) != NULL) != colour) fail_msg("%s\n%s", command, r.err);
  shell_free(&r);
}

static void test_colour_of_errors(void **state) {
  (void)state;
  // errors found while parsing, before parsing, and while running
  static const char *const failing[] = {"train --no-such-option", "train --epochs x",
                                        "no-such-command", "train absent.yaml", "--lang xx train"};
  for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
    char command[256];
    const char *const always[] = {"brim --color=always %s", "brim %s --color always",
                                  "brim --colour=always %s", "CLICOLOR_FORCE=1 brim %s",
                                  "brim --color=never --color=always %s"};
    const char *const never[] = {"brim --color=never %s", "CLICOLOR_FORCE=1 brim %s --color never",
                                 "brim %s", "brim --color=always --color=never %s"};
    for (size_t k = 0; k < sizeof always / sizeof *always; k++) {
      snprintf(command, sizeof command, always[k], failing[i]);
      expect_colour(true, command);
    }
    for (size_t k = 0; k < sizeof never / sizeof *never; k++) {
      snprintf(command, sizeof command, never[k], failing[i]);
      expect_colour(false, command);
    }
  }
}

//---------------------------------- plug-ins ----------------------------------

// The example's plug-in would add the dataset `spiral`. A .so that does not open would be an error as well, but a
// different one.
static void test_plugins_need_consent(void **state) {
  (void)state;
  fresh_folder("code");
  write_file("code/evil.yaml", SMALL "plugins: [./evil.so]\n");
  write_file("code/evil.so", "no library");
  static const char *const commands[] = {"train", "bench --plan"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[256];
    snprintf(command, sizeof command, "cd code && brim %s evil.yaml", commands[i]);
    says(2, command);
    expect(2, "--allow-plugins", command);
    expect(2, "--plugin ./evil.so", command);
    // with consent the file is opened, and fails for its own reason
    snprintf(command, sizeof command,
             "cd code && brim %s evil.yaml --allow-plugins 2>&1 | grep -v "
             "'names the plug-in' | grep evil.so",
             commands[i]);
    expect(0, "evil.so", command);
    snprintf(command, sizeof command,
             "cd code && brim %s evil.yaml --plugin evil.so 2>&1 | grep -c 'names the plug-in'",
             commands[i]);
    expect(1, "0", command);
    snprintf(command, sizeof command,
             "cd code && brim %s evil.yaml plugins=[./evil.so] 2>&1 | grep -c 'names the plug-in'",
             commands[i]);
    expect(1, "0", command);
  }
  // a file's name does not count as consent
  static const char *const names[] = {"override.yaml", "override", "override plugins.yaml",
                                      "override plugins=[x].yaml"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char command[256];
    snprintf(command, sizeof command, "cd code && cp evil.yaml '%s' && brim train './%s' 2>&1",
             names[i], names[i]);
    says(2, command);
    snprintf(command, sizeof command, "cd code && brim train --config '%s' 2>&1", names[i]);
    says(2, command);
  }
  assert_false(has_file("code/runs"));
}

// A checkpoint's folder has the config of its run, which may name plug-ins: none of them is loaded.
static void test_plugins_beside_checkpoints(void **state) {
  (void)state;
  fresh_folder("kept");
  write_file("kept/small.yaml", SMALL);
  expect(0, NULL, "cd kept && brim train small.yaml --device ref --output-dir run -q");
  expect(0, NULL,
         "cd kept && printf 'plugins: [./evil.so]\\n' >> run/config.yaml && "
         "echo no > evil.so");
  shell_result r = shell(
      "cd kept && brim eval run/model.safetensors --device ref; "
      "brim predict --force run/model.safetensors --device ref -o p.csv");
  assert_null(strstr(r.err, "evil"));
  shell_free(&r);
}

//---------------------------------- folders and files ----------------------------------

static void test_output_dir(void **state) {
  (void)state;
  fresh_folder("project");
  write_file("project/config.yaml", SMALL);
  write_file("project/log.csv", "a,b\n");
  write_file("project/lock", "keep out\n");
  write_file("project/log.1.csv", "c,d\n");
  says(2, "brim train project/config.yaml --device ref --output-dir project");
  expect(0, NULL,
         "cd project && [ \"$(cat log.csv)\" = a,b ] && [ \"$(cat log.1.csv)\" = c,d ] && "
         "[ \"$(cat lock)\" = 'keep out' ] && head -1 config.yaml | grep -q dataset && "
         "[ $(ls | wc -l) = 4 ]");
  // resuming in a run's own folder works
  expect(0, NULL, "brim train project/config.yaml --device ref --output-dir project/run -q");
  expect(0, NULL,
         "brim train project/config.yaml --device ref --output-dir project/run -q --resume");
}

static void test_irregular_inputs(void **state) {
  (void)state;
  fresh_folder("pipes");
  assert_int_equal(mkfifo("pipes/fifo", 0600), 0);
  assert_int_equal(mkfifo("pipes/fifo.yaml", 0600), 0);
  assert_int_equal(mkfifo("pipes/fifo.safetensors", 0600), 0);
  assert_int_equal(mkfifo("pipes/fifo.h5", 0600), 0);
  says(2, "brim compare pipes/fifo pipes/fifo");
  says(2, "brim compare /dev/zero pipes/fifo");
  says(2, "brim train pipes/fifo.yaml");
  says(2, "brim config check pipes/fifo.yaml");
  says(2, "brim eval pipes/fifo.safetensors");
  says(2, "brim train dataset=synthetic --resume-from pipes/fifo.safetensors");
  says(2, "brim data info pipes/fifo.h5");
  says(2, "brim bench --resume --output-dir pipes pipes/fifo.yaml");
}

//---------------------------------- quotas ----------------------------------

static void test_quota(void **state) {
  (void)state;
  fresh_folder("half");
  expect(0, NULL,
         "mkdir -p half/proc/self half/sys/fs/cgroup && echo 0::/ > half/proc/self/cgroup "
         "&& echo '50000 100000' > half/sys/fs/cgroup/cpu.max");
  write_file("half/small.yaml", SMALL);
  shell_result r = shell(
      "BRIM_MACHINE_ROOT=$PWD/half brim train half/small.yaml --device cpu --output-dir half/run");
  if (r.code == 3) {
    shell_free(&r);
    BRIM_SKIP("the cpu plug-in is not here");
  }
  assert_int_equal(r.code, 0);
  if (!strstr(r.err, "quota 0.5") && !strstr(r.out, "quota 0.5")) {
    fail_msg("no quota in\n%s\n%s", r.out, r.err);
  }
  shell_free(&r);
  r = shell("BRIM_MACHINE_ROOT=$PWD/half brim --json version");
  json_t *value = NULL;
  assert_ok(brim_json_parse(r.out, strlen(r.out), "stdout", &value));
  json_decref(value);
  assert_non_null(strstr(r.out, "quota 0.5"));
  shell_free(&r);
}

// One Ctrl-C ends a run while its data helper sleeps, as on a drive that is gone.
static void test_sleeping_helper(void **state) {
  (void)state;
  write_file("sleeper", "#!/bin/sh\ntouch asleep\nexec sleep 40\n");
  expect(0, NULL,
         "chmod 755 sleeper && rm -f asleep && brim data make slept.h5 --samples 20 --force -q");
  // the helper keeps sleeping: its own end would give another exit code
  says(130, "BRIM_HDF5_HELPER=./sleeper \"" BRIM_BINARY
            "\" train model=mlp --data-path slept.h5 --device ref --output-dir slept & pid=$!; "
            "while [ ! -e asleep ]; do sleep 0.05; done; kill -INT $pid; wait $pid");
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sleeping_helper),
      cmocka_unit_test(test_passwords_of_stores),
      cmocka_unit_test(test_names_in_errors),
      cmocka_unit_test(test_names_in_data),
      cmocka_unit_test(test_names_in_checkpoints),
      cmocka_unit_test(test_cells),
      cmocka_unit_test(test_colour_of_errors),
      cmocka_unit_test(test_plugins_need_consent),
      cmocka_unit_test(test_plugins_beside_checkpoints),
      cmocka_unit_test(test_output_dir),
      cmocka_unit_test(test_irregular_inputs),
      cmocka_unit_test(test_quota),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
