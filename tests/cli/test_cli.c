// The program except training: help, man page, version, configs, errors, exit codes, JSON, colour.
#include "cli/cli.h"
#include "cli_test.h"

static void test_help(void **state) {
  (void)state;
  expect(0, "Usage: brim COMMAND", "brim");
  expect(0, "Usage: brim COMMAND", "brim --help");
  expect(0, "Usage: brim COMMAND", "brim help");
  says_lines(0, "key.path", "brim train --help");
  says_lines(0, "key.path", "brim help train");
  says_lines(0, "key.path", "brim bench -h");
  expect(0, "130", "brim help exit-codes");
  says(0, "brim help exit-codes");
  expect(0, "BRIM_PLUGIN_PATH", "brim help environment");
  expect(0, "mlp(", "brim help components");
  expect(0, "include", "brim help config");
  says(2, "brim help trian");
  says(2, "brim help exit");
  expect(0, "contrastive.knn_k", "brim help contrastive");
  expect(0, "ars.num_dirs", "brim help ars");
  expect(0, "brim " BRIM_VERSION, "brim --version");
  expect(0, "ref", "brim version");
  expect(0, "\"devices\"", "brim version --json");
  says(2, "brim version now");
}

// Every page of help fits 80 columns, a narrow terminal where words allow, and has no trailing blanks.
static void test_help_fits(void **state) {
  (void)state;
  const char *pages[32] = {""};
  size_t count = 1;
  for (const brim_cli_command *const *c = brim_cli_commands(); *c; c++) pages[count++] = (*c)->name;
  for (size_t i = 0; i < count; i++) {
    shell_result r = shell("brim help %s", pages[i]);
    for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > 80) fail_msg("help %s: %s", pages[i], line);
      if (*line && line[strlen(line) - 1] == ' ')
        fail_msg("help %s: blank at '%s'", pages[i], line);
    }
    shell_free(&r);
  }
  for (size_t i = 0; i < brim_cli_topic_count(); i++) {
    brim_str text;
    brim_str_init(&text);
    const brim_cli_topic topic = brim_cli_topic_at(i);
    brim_cli_topic_write(&topic, 60, &text);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
      if (brim_utf8_width(line) > 60) fail_msg("topic: %s", line);
    }
    brim_str_deinit(&text);
  }
}

// The examples in the topics are valid configs.
static void test_topic_examples(void **state) {
  (void)state;
  static const char *const topics[] = {"config", "components", "contrastive", "ars"};
  for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
    shell_result r = shell("brim help %s | sed -n '/^  model: /,/^$/p' > topic.yaml", topics[i]);
    shell_free(&r);
    expect(0, "topic.yaml: ok", "test -s topic.yaml && brim config check topic.yaml");
  }
}

// docs/brim.1 is what `brim help --man` prints.
static void test_man_page(void **state) {
  (void)state;
  char *page = NULL;
  size_t size;
  shell_result r = shell("brim help --man");
  assert_int_equal(r.code, 0);
  assert_ok(brim_fs_read(BRIM_SOURCE_DIR "/docs/brim.1", 0, &page, &size));
  if (strcmp(page, r.out) != 0) {
    fail_msg("docs/brim.1 is out of date; write it anew with: brim help --man > docs/brim.1");
  }
  assert_non_null(strstr(page, ".SH EXIT STATUS"));
  assert_non_null(strstr(page, "\\-\\-batch\\-sizes"));
  brim_free(page);
  shell_free(&r);
}

static void test_unknown(void **state) {
  (void)state;
  says(2, "brim tran");
  says(2, "brim xyzzy");
  says(2, "brim train --epoch 3");
  expect(2, "brim train --help", "brim train --epoch 3");
  expect(2, "--epochs", "brim train --epochs many");
  says(2, "brim train --epochs");
  says(2, "brim --color sometimes version");
  says(2, "brim config chek x");
  says(2, "brim config");
  says_lines(0, "key.path", "brim --color never --lang en help train");
}

static void test_exit_codes(void **state) {
  (void)state;
  static const struct {
    brim_status status;
    int code;
  } cases[] = {{BRIM_OK, 0},
               {BRIM_EIO, 1},
               {BRIM_EINTERNAL, 1},
               {BRIM_EINVAL, 2},
               {BRIM_EPARSE, 2},
               {BRIM_ENOENT, 2},
               {BRIM_ELIMIT, 2},
               {BRIM_EEXIST, 2},
               {BRIM_EDEVICE, 3},
               {BRIM_EOOM, 4},
               {BRIM_ENOMEM, 4},
               {BRIM_EUNSUPPORTED, 3},
               {BRIM_EINTERRUPTED, 130}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(brim_cli_exit_code(cases[i].status), cases[i].code);
  }
  expect(3, "cuda", "BRIM_PLUGIN_PATH=/nonexistent brim train dataset=synthetic --device cuda");
  expect(2, "absent.so", "brim --plugin ./absent.so version");
  expect(4, "memory", "BRIM_ALLOC_FAIL=1+ brim version");
}

// A parent that ignores SIGCHLD cannot learn how its child ended, so brim must stop ignoring it.
static void test_children_are_waited_for(void **state) {
  (void)state;
  static const char *const words[] = {"brim", "version"};
  struct sigaction before;
  assert_true(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
  assert_int_equal(brim_cli_main(2, words), 0);
  assert_int_equal(sigaction(SIGCHLD, NULL, &before), 0);
  assert_true(before.sa_handler == SIG_DFL);
}

static const char good[] =
    "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=256)\n"
    "data:\n  batch_size: 64\ntraining:\n  epochs: 1\n";

static void test_config(void **state) {
  (void)state;
  write_file("good.yaml", good);
  write_file("grid.yaml", "lr: [0.1, 0.01]\nbatch_size: [32, 64, 128]\n");
  write_file("repeated.yaml", "data:\n  batch_size: 32\n  batch_size: 64\n");
  expect(0, "good.yaml: ok", "brim config check good.yaml");
  says(0, "brim config check grid.yaml good.yaml");
  says(0, "brim config check repeated.yaml");
  expect(0, "\"refused\":false", "brim config check repeated.yaml --json");
  write_file("tail.yaml", "transform: random_flip | ...\n");
  expect(0, "\"refused\":false", "brim config check tail.yaml --json");
  // a config that passes the check trains: `...` adds no errors
  says_rows(
      0, "done: ",
      "rm -rf run_tail && brim train tail.yaml 'dataset=synthetic(shape=(8,8,3), samples=40)' "
      "--max-steps 1 "
      "--device cpu --output-dir run_tail");
  expect(0, "\"refused\":false", "brim config check good.yaml --json");
  // A text is interpreted alike wherever a config is read, and the later value counts.
  write_file("twice.yaml",
             "model: mlp(depth=1, hidden=4)\ndataset: synthetic(samples=64, shape=(4,))\n"
             "data:\n  batch_size: 32\n  batch_size: 16\ntraining:\n  epochs: 1\n");
  says(0, "brim config check twice.yaml");
  says_lines(0, "brim: warning: ",
             "rm -rf twice && brim train twice.yaml --device ref --output-dir twice");
  expect(0, "batch_size: 16", "cat twice/config.yaml");
  says_lines(0, "brim: warning: ", "brim bench twice.yaml --device ref --plan");
  says_lines(
      0, "brim: warning: ", "brim eval twice/model.safetensors --device ref --config twice.yaml");
  expect(0, "batch_size: 64", "brim config show good.yaml");
  expect(0, "batch_size: 8", "brim config show good.yaml batch_size=8");
  expect(0, "good.yaml:4", "brim config show good.yaml --origins");
  expect(0, "\"batch_size\"", "brim config show good.yaml --json");
  expect(0, "data.batch_size", "brim config explain");
  expect(0, "hidden", "brim config explain mlp batch_size a100-80g");
  says(2, "brim config explain batch_sice");
  says(0, "brim config grid grid.yaml");
  says(0, "brim config grid lr='[0.1, 0.01]' batch_size='[32, 64, 128]'");
  says(0, "brim config grid good.yaml");
  says(2, "brim config check");
  says_lines(0, "output_dir", "brim config explain");
  expect(0, "\"used\":false", "brim config explain --json");
  expect(2, "error: --batch-size: ", "brim train good.yaml --batch-size 0");
  says(2, "brim train good.yaml data.batch_size=0");
  says(2, "brim train grid.yaml");
  shell_result r = shell("brim config check good.yaml absent.yaml grid.yaml");
  assert_int_equal(r.code, 2);  // every file is checked
  assert_non_null(strstr(r.out, "good.yaml: ok"));
  assert_non_null(strstr(r.out, "grid.yaml: ok"));
  assert_non_null(strstr(r.err, "absent.yaml"));
  shell_free(&r);
  // in the order of the files, each failure once; warnings do not count as failures
  r = shell("brim config check absent.yaml good.yaml tail.yaml gone.yaml 2>&1");
  assert_int_equal(r.code, 2);
  const char *absent = strstr(r.out, "absent.yaml"), *fine = strstr(r.out, "good.yaml: ok");
  const char *warned = strstr(r.out, "brim: warning: tail.yaml"), *gone = strstr(r.out, "gone");
  assert_true(absent && fine && warned && gone);
  assert_true(absent < fine && fine < warned && warned < gone);
  assert_null(strstr(fine, "absent.yaml"));
  shell_free(&r);
  r = shell("brim config check tail.yaml");
  assert_string_equal(r.out, "tail.yaml: ok\n");
  assert_non_null(strstr(r.err, "brim: warning: "));
  shell_free(&r);
}

static void test_sections_and_near_names(void **state) {
  (void)state;
  shell_result r = shell("brim config explain checkpoint");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "checkpoint.dir"));
  assert_null(strstr(r.out, "data.batch_size"));
  shell_free(&r);
  expect(0, "\"key\":\"checkpoint.dir", "brim config explain checkpoint --json");
  says(2, "brim config explain chekpoint");
  expect(0, "mappo.gamma", "brim config explain");
  expect(0, "mappo.gamma", "brim config explain mappo");
  expect(0, "ars.num_envs", "brim config explain num_envs");
  expect(0, "mappo.num_envs", "brim config explain num_envs");
  expect(0, "mappo.num_envs", "brim config explain num_envs --json");
  says(2, "brim train uav eval_episodes=3");
  says(2, "brim train quadruped-stand eval_episodes=3");
  says(2, "brim train uav training.num_envs=3");
  says(2, "brim train quadruped-stand training.num_envs=3");
  says(2, "brim train uav value_clip=0.3");
  says(2, "brim train uav mappo.epochs=3");
  expect(0, "gamma: 0.5", "brim config show mappo.gamma=0.5");
  // names of configs with a typo: a shipped one and the user's own
  says(2, "brim train mnist-mpl");
  write_file("my-own-test.yaml", "dataset: synthetic\n");
  says(2, "brim train my-own-tset.yaml");
  says(2, "brim train quite-another-name");
}

// Paths in a config are relative to the current folder. A message points out a path that was written relative to the
// config's folder.
static void test_data_path_beside_the_config(void **state) {
  (void)state;
  expect(
      0, NULL,
      "rm -rf elsewhere && mkdir elsewhere && brim data make elsewhere/set --format idx --shape 8 "
      "--samples 32 --test-samples 0");
  write_file("elsewhere/c.yaml", "model: linear\ndata:\n  path: set\n  batch_size: 8\n");
  says(2, "brim train elsewhere/c.yaml --device ref");
  says(2, "brim bench elsewhere/c.yaml --device ref --plan");
  expect(0, NULL, "brim bench elsewhere/c.yaml --device ref --plan --data-path elsewhere/set");
  expect(0, NULL, "cd elsewhere && brim bench c.yaml --device ref --plan");
}

// All mistakes of a file are reported at once: keys, values, components, items of a grid. The exit code is 2, as for
// one.
static void test_check_all_mistakes(void **state) {
  (void)state;
  write_file("many.yaml",
             "modle: mlp\ndataset: synthetic(sampels=512)\ndata:\n  batch_size: many\n"
             "  num_wrokers: 2\ntraining:\n  epochs: -3\n  learning_rate: [0.1, x]\n"
             "optimizer: sgdd\n");
  static const char *const all[] = {
      "many.yaml:1:1: unknown key 'modle'; did you mean 'model'?",
      "many.yaml:2:20: synthetic has no argument 'sampels'; did you mean 'samples'?",
      "many.yaml:4:15: 'data.batch_size' expects int, not 'many'",
      "many.yaml:5:3: unknown key 'data.num_wrokers'; did you mean 'data.num_workers'?",
      "many.yaml:7:11: 'training.epochs' must be between",
      "many.yaml:8:24: 'training.learning_rate' expects float, not 'x'",
      "many.yaml:9:12: unknown optimizer 'sgdd'; did you mean 'sgd'?"};
  shell_result r = shell("brim config check many.yaml"),
               j = shell("brim config check many.yaml --json");
  assert_int_equal(r.code, 2);
  assert_int_equal(j.code, 2);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!strstr(r.err, all[i])) fail_msg("'%s' is not in:\n%s", all[i], r.err);
    if (!strstr(j.out, all[i])) fail_msg("'%s' is not in:\n%s", all[i], j.out);
  }
  size_t lines = 0;
  for (const char *c = r.err; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, sizeof all / sizeof *all);
  shell_free(&r);
  shell_free(&j);
  // a mistake that ends train as before
  says(2, "brim train many.yaml");
}

static void test_named_configs(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf named && mkdir -p named/configs");
  expect(0, "workload: contrastive", "cd named && brim config show contrastive");
  expect(0, "simclr", "cd named && brim config show cifar10-simclr");
  write_file("named/configs/mine.yaml", "seed: 77\n");
  expect(0, "seed: 77", "cd named && brim config show mine");
  write_file("named/mine.yaml", "seed: 78\n");
  expect(0, "seed: 78", "cd named && brim config show mine");
  says(2, "cd named && brim train absent");
  says(2, "cd named && brim train absent");
  expect(2, "share/brim/configs", "cd named && brim train absent");
  // a name selects the config that comes with brim, whatever files are here; a file name selects the file
  write_file("named/configs/stl10_config.yaml", "seed: 79\n");
  expect(0, "workload: contrastive", "cd named && brim config show contrastive");
  says_lines(0, "brim: warning: ", "cd named && brim config show contrastive");
  expect(0, "workload: contrastive", "cd named && brim config show stl10_config");
  expect(0, "seed: 79", "cd named && brim config show stl10_config.yaml");
  expect(0, "seed: 79", "cd named && brim config show configs/stl10_config.yaml");
  write_file("named/quadruped-stand.yaml", "workload: ars\nplugins: [evil.so]\nseed: 80\n");
  write_file("named/ars", "workload: ars\nplugins: [evil.so]\nseed: 81\n");
  expect(0, "seed: 0", "cd named && brim config show ars");
  says_lines(0, "brim: warning: ", "cd named && brim config show ars");
  expect(0, "seed: 80", "cd named && brim config show quadruped-stand.yaml");
}

// Malformed input of every kind: a message with file and line, exit code 2, nothing written.
static void test_bad_input(void **state) {
  (void)state;
  static const struct {
    const char *yaml, *args, *said;
  } cases[] = {
      {"data: [1, 2\n", "", "bad.yaml:"},
      {"data:\n  batch_sice: 3\n", "", "bad.yaml:2:"},
      {"batch_size: -4\n", "", "bad.yaml:1:"},
      {"batch_size: many\n", "", "bad.yaml:1:"},
      {"model: mlp(depth=\n", "", "bad.yaml:1:"},
      {"model: mpl\ndataset: synthetic\n", "", "bad.yaml:1:"},
      {"a: &a [*a]\n", "", "bad.yaml:"},
      {"\x01\xff\n", "", "bad.yaml"},
      {"model: mlp\ndataset: idx\ndata:\n  path: nowhere\n", "", "nowhere"},
      {"model: mlp\ndataset: idx\ndata:\n  path: broken\n", "", "broken"},
      {"model: mlp\ndataset: synthetic\n", "--resume-from broken.safetensors",
       "broken.safetensors"},
      {"model: mlp\ndataset: synthetic\n", "--resume-from nothing", "nothing"},
      {"model: mlp\ndataset: synthetic\n", "--max-steps -1", "--max-steps"},
      {"model: mlp\ndataset: synthetic\n", "no_such_key=3", "no_such_key"},
      {"model: mlp\ndataset: synthetic\n", "other.yaml", "two configs"},
  };
  shell_result gone = shell("rm -rf never");
  shell_free(&gone);
  assert_ok(brim_fs_mkdirs("broken"));
  write_file("broken/train-images-idx3-ubyte", "not idx");
  write_file("broken/train-labels-idx1-ubyte", "not idx");
  write_file("broken.safetensors", "\x08\0\0\0\0\0\0\0{broken}");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_file("bad.yaml", cases[i].yaml);
    shell_result r = shell("brim train bad.yaml --device ref --output-dir never %s", cases[i].args);
    if (r.code != 2 || !strstr(r.err, cases[i].said)) {
      fail_msg("case %zu: exit %d, '%s' not in: %s", i, r.code, cases[i].said, r.err);
    }
    assert_int_equal(strncmp(r.err, "brim: error: ", 13), 0);
    assert_string_equal(r.out, "");
    if (has_file("never")) fail_msg("case %zu wrote something", i);
    shell_free(&r);
  }
}

static void test_json_is_pure(void **state) {
  (void)state;
  static const char *const commands[] = {
      "version --json",
      "--json version",
      "help --json",
      "--json",
      "--help --json",
      "--version --json",
      "train --help --json",
      "config show good.yaml --json",
      "config grid grid.yaml --json",
      "config explain --json",
      "config explain mlp batch_size --json",
      "config check good.yaml absent.yaml --json",
      "train --json --no-such",
      "nonsense --json",
      "train absent.yaml --json",
      "train good.yaml --device ref --json --output-dir json-run",
      ("bench good.yaml --device ref --json --output-dir json-bench --steps 2 --repeats 1 "
       "--batch-sizes 16 32"),
      "bench good.yaml --device ref --json --plan --batch-sizes 16 --num-workers 0",
  };
  write_file("good.yaml", good);
  write_file("grid.yaml", "lr: [0.1, 0.01]\nbatch_size: [32, 64, 128]\n");
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    shell_result r = shell("rm -rf json-run json-bench; brim %s", commands[i]);
    if (json_lines(r.out) == 0) fail_msg("%s: nothing on stdout; %s", commands[i], r.err);
    shell_free(&r);
  }
  shell_result r = shell("brim train absent.yaml --json");
  json_t *event = NULL;
  assert_ok(brim_json_parse(r.out, strlen(r.out), "stdout", &event));
  assert_string_equal(json_string_value(json_object_get(event, "event")), "error");
  assert_int_equal(json_integer_value(json_object_get(event, "exit_code")), 2);
  assert_int_equal(r.code, 2);
  json_decref(event);
  shell_free(&r);
}

static void test_colour(void **state) {
  (void)state;
  shell_result r = shell("brim version");
  assert_null(strchr(r.out, '\033'));  // not a terminal
  shell_free(&r);
  r = shell("brim --color always version");
  assert_non_null(strchr(r.out, '\033'));
  shell_free(&r);
  r = shell("CLICOLOR_FORCE=1 brim version");
  assert_non_null(strchr(r.out, '\033'));
  shell_free(&r);
  r = shell("NO_COLOR=1 CLICOLOR_FORCE=1 brim version");
  assert_null(strchr(r.out, '\033'));
  shell_free(&r);
  r = shell("brim --color always train absent.yaml");
  assert_non_null(strchr(r.err, '\033'));
  shell_free(&r);
}

// A reader that is gone ends the program quietly; a full disk is an error.
static void test_closed_output(void **state) {
  (void)state;
  shell_result r = shell("{ brim config explain; echo \"code $?\" >&2; } | true");
  assert_null(strstr(r.err, "error"));
  said(&r);
  shell_free(&r);
  if (has_file("/dev/full")) says(1, "brim version > /dev/full");
}

int main(void) {
  brim_json_setup();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_help),
      cmocka_unit_test(test_help_fits),
      cmocka_unit_test(test_man_page),
      cmocka_unit_test(test_topic_examples),
      cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_exit_codes),
      cmocka_unit_test(test_config),
      cmocka_unit_test(test_check_all_mistakes),
      cmocka_unit_test(test_sections_and_near_names),
      cmocka_unit_test(test_data_path_beside_the_config),
      cmocka_unit_test(test_named_configs),
      cmocka_unit_test(test_bad_input),
      cmocka_unit_test(test_json_is_pure),
      cmocka_unit_test(test_colour),
      cmocka_unit_test(test_closed_output),
      cmocka_unit_test(test_children_are_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
