// `brim sweep` from the command line, with the built program: a grid runs to its end, continues after Ctrl-C and after
// a kill, is watched and controlled from another process, and stops if nothing can work.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_test.h"

#include "lab/store/lab_store.h"

#include "base/base_child.h"
#include "same_file.h"

static void write_grid(const char *path, const char *axes) {
  char text[2048];
  snprintf(text, sizeof text, "name: small\n" CLI_SMALL_TRAINING "%s", axes);
  write_file(path, text);
}

static const char six[] =
    "lr: [0.1, 0.01, 0.001]\n"
    "batch_size: [16, 32]\n"
    "epochs: 3\n";

// Long enough to be observed while it runs.
static const char slow[] =
    "lr: [0.1, 0.01]\n"
    "seed: [0, 1]\n"
    "batch_size: 8\n"
    "epochs: 60\n";

static void fresh(void) {
  shell_result r = shell("rm -rf runs undisturbed *.yaml");
  shell_free(&r);
}

static int64_t count_state(const char *state) {
  shell_result r = shell("brim sweep status --json");
  json_t *view = NULL;
  if (r.code) fail_msg("status: exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  json_t *n = json_object_get(json_object_get(view, "counts"), state);
  int64_t count = json_integer_value(n);
  json_decref(view);
  shell_free(&r);
  return count;
}

//---------------------------------- a sweep in the background ----------------------------------

typedef struct background {
  brim_child *child;
} background;

static background start(const char *const *words) {
  const char *argv[16] = {BRIM_BINARY, "sweep"};
  size_t n = 2;
  for (; *words; words++) argv[n++] = *words;
  argv[n] = NULL;
  background b = {0};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_NULL,
                                  .die_with_parent = true};
  assert_ok(brim_child_start(&how, &b.child));
  return b;
}

static int end(background *b) {
  bool ended = false;
  assert_ok(brim_child_wait(b->child, 170000, &ended));
  if (!ended) fail_msg("the sweep did not end");
  int code = brim_child_get_result(b->child)->exit_code;
  brim_child_close(b->child);
  return code;
}

static void wait_until(const char *state, int64_t at_least) {
  for (int i = 0; i < 1500; i++) {
    if (has_file("runs/small/lab.sqlite") && count_state(state) >= at_least) return;
    usleep(100 * 1000);
  }
  fail_msg("%s experiments: fewer than %lld for too long", state, (long long)at_least);
}

// Waits until this sweep answers. Data of an earlier sweep in the store do not count.
static void wait_for_answer(const background *b) {
  for (int i = 0; i < 1500; i++) {
    char pid[64];
    snprintf(pid, sizeof pid, "\"pid\":%ld,", (long)brim_child_pid(b->child));
    shell_result r = shell("brim sweep status --json");
    bool answers = r.code == 0 && strstr(r.out, pid);
    shell_free(&r);
    bool ended = false;
    assert_ok(brim_child_poll(b->child, &ended));
    if (answers || ended) return;
    usleep(100 * 1000);
  }
  fail_msg("the sweep does not answer");
}

// The trained weights of every experiment equal those of an undisturbed run.
static void same_as_undisturbed(int expected) {
  int compared = 0;
  char **names = NULL;
  size_t count = 0;
  assert_ok(brim_fs_list("undisturbed/exp", &names, &count));
  for (size_t i = 0; i < count; i++) {
    char a[512], b[512];
    snprintf(a, sizeof a, "undisturbed/exp/%s/model.safetensors", names[i]);
    snprintf(b, sizeof b, "runs/small/exp/%s/model.safetensors", names[i]);
    assert_same_file(a, b);
    compared++;
  }
  brim_fs_list_free(names, count);
  assert_int_equal(compared, expected);
}

//---------------------------------- to the end ----------------------------------

static void test_a_grid_runs_to_its_end(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml", six);
  shell_result r = shell("brim sweep grid.yaml --jobs 2 --color always");
  if (r.code) fail_msg("exit %d\n%s\n%s", r.code, r.out, r.err);
  has(r.err, "6 experiments new, 0 already in the store runs/small");
  // notes have the colour of results, not spelt-out colour codes
  has(r.err, "\033[");
  assert_null(strstr(r.err, "\\x1b"));
  shell_free(&r);
  assert_int_equal(count_state("done"), 6);
  // each has files of its own
  r = shell("ls runs/small/exp/*/log.jsonl runs/small/exp/*/model.safetensors | wc -l");
  assert_int_equal(atoi(r.out), 12);
  shell_free(&r);
  // the status has the best value of each, also without a running sweep
  r = shell("brim sweep status --json | grep -o '\"best\":0[.]' | wc -l");
  assert_int_equal(atoi(r.out), 6);
  shell_free(&r);
  // the same grid again: nothing left to do
  r = shell("brim sweep grid.yaml");
  assert_int_equal(r.code, 0);
  has(r.err, "0 experiments new, 6 already");
  shell_free(&r);
  // one more learning rate: two more experiments
  write_grid("grid.yaml",
             "lr: [0.1, 0.01, 0.001, 0.3]\n"
             "batch_size: [16, 32]\n"
             "epochs: 3\n");
  r = shell("brim sweep grid.yaml");
  assert_int_equal(r.code, 0);
  has(r.err, "2 experiments new, 6 already");
  shell_free(&r);
  assert_int_equal(count_state("done"), 8);
}

static void test_events_and_exports(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml", six);
  shell_result r = shell("brim sweep grid.yaml --json");
  assert_int_equal(r.code, 0);
  assert_true(json_lines(r.out) > 8);
  has(r.out, "\"event\":\"submitted\"");
  has(r.out, "\"event\":\"experiment\"");
  has(r.out, "\"state\":\"done\"");
  has(r.out, "\"event\":\"end\"");
  shell_free(&r);
  r = shell("brim sweep export runs/small");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 6);
  has(r.out, "eval_accuracy");
  shell_free(&r);
  r = shell("brim sweep export runs/small --format csv --output all.csv && cat all.csv");
  assert_int_equal(r.code, 0);
  has(r.out, "id,lr,batch_size,state,failure,attempts,epoch,step,metric,value,best,");
  has(r.out, ",0.001,32,done,,1,3,");
  shell_free(&r);
  // a key that cannot be changed is named once
  r = shell("brim sweep retry $(sed -n '2s/,.*//p' all.csv) --store runs/small");
  assert_true(r.code != 0);
  said(&r);
  assert_null(strstr(strstr(r.err, "experiment ") + 1, "experiment "));
  shell_free(&r);
}

// Labels, tags and messages come from other users: their codes have no effect in a terminal's table, nor as a
// spreadsheet's formulas.
static void test_exports_are_plain(void **state) {
  (void)state;
  brim_store *store;
  brim_store_submitted submitted;
  fresh();
  assert_ok(brim_store_open("runs/evil", NULL, &store));
  const brim_store_point point = {.id = "0123456789abcdef0123456789abcdef",
                                  .label = "lr=\x1b]0;x\x07 =1=2",
                                  .config = "lr: \"\x1b[2J\"\n",
                                  .tags = "=cmd|' /C calc'!A0,\xe2\x80\xae"};
  assert_ok(brim_store_submit(store, &(brim_store_grid){.id = "g"}, &point, 1, &submitted));
  brim_store_close(store);
  shell_result r = shell("brim sweep export runs/evil --format csv");
  assert_int_equal(r.code, 0);
  assert_null(strpbrk(r.out, "\x1b\x07"));
  assert_null(strstr(r.out, "\xe2\x80\xae"));
  has(r.out, "\\x1b]0;x\\x07");
  has(r.out, ",\"'=cmd|");
  shell_free(&r);
  r = shell("BRIM_STORE=runs/evil brim sweep status && BRIM_STORE=runs/none brim sweep status");
  has(r.out, "runs/evil");
  has(r.err, "runs/none");
  assert_int_equal(r.code, 2);
  shell_free(&r);
}

// A second submission adds seeds: the experiments of the first one are seed 0 of the same points.
static void test_seeds_added_later(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml", "lr: [0.1, 0.01]\nbatch_size: 16\nepochs: 2\n");
  expect(0, "2 experiments new", "brim sweep grid.yaml --jobs 2");
  shell_result r = shell("brim sweep grid.yaml seeds=3 --jobs 2");
  assert_int_equal(r.code, 0);
  has(r.err, "4 experiments new, 2 already");
  has(r.out, "3 seeds");
  has_not(r.out, "2 seeds");
  shell_free(&r);
  r = shell("brim sweep export --format csv");
  has(r.out, "id,lr,seed,state");
  has(r.out, ",0.1,0,done,");
  has(r.out, ",0.01,2,done,");
  has_not(r.out, ",,done");
  shell_free(&r);
  expect(0, "nothing is left to run", "brim sweep grid.yaml seeds=3");
  // a short list has room for all of them
  r = shell("brim sweep status");
  assert_int_equal(r.code, 0);
  has(r.out, "lr=0.1 seed=2");
  has_not(r.out, " more;");
  shell_free(&r);
}

static void test_a_gpu_that_is_not_there(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml", six);
  expect(3, "--device cpu", "CUDA_VISIBLE_DEVICES= brim sweep grid.yaml device='[0, 1, 2, 3]'");
}

//---------------------------------- interrupted ----------------------------------

static void run_undisturbed(void) {
  expect(0, NULL, "brim sweep slow.yaml --store undisturbed --jobs 2");
}

static void test_ctrl_c_stops_and_the_same_command_continues(void **state) {
  (void)state;
  fresh();
  write_grid("slow.yaml", slow);
  run_undisturbed();
  background b = start((const char *[]){"slow.yaml", "--jobs", "2", NULL});
  wait_until("running", 1);
  assert_ok(brim_child_signal(b.child, SIGINT));
  assert_int_equal(end(&b), 130);
  assert_int_equal(count_state("running") + count_state("leased"), 0);
  assert_true(count_state("queued") > 0);
  assert_int_equal(count_state("failed"), 0);
  // queued experiments keep the submitted config, even if the file changes
  write_grid("slow.yaml", "lr: [5, 6, 7]\nepochs: 1\n");
  expect(0, NULL, "brim sweep --store runs/small --jobs 2");
  assert_int_equal(count_state("done"), 4);
  same_as_undisturbed(4);
}

static void test_a_killed_sweep_loses_nothing(void **state) {
  (void)state;
  fresh();
  write_grid("slow.yaml", slow);
  run_undisturbed();
  for (int i = 0; i < 3; i++) {
    background b = start((const char *[]){"slow.yaml", "--jobs", "2", NULL});
    if (has_file("runs/small/lab.sqlite")) wait_for_answer(&b);
    wait_until("running", i < 2 ? 1 : 0);
    usleep((useconds_t)(150 + 200 * i) * 1000);
    (void)brim_child_signal(b.child, SIGKILL);  // unless the training has ended
    (void)end(&b);
  }
  expect(0, NULL, "brim sweep slow.yaml --jobs 2");
  assert_int_equal(count_state("done"), 4);
  same_as_undisturbed(4);
}

// The sweep is killed while a training waits for its data. The training ends, and the machine fails before the executor
// can report. The next sweep takes the result with all findings.
static void test_a_result_that_no_sweep_took(void **state) {
  (void)state;
  fresh();
  write_file("bound.yaml",
             "name: small\nbackend: ref\ndevice: cpu\nthreads: 1\n"
             "dataset: synthetic(shape=(3,64,64), classes=3, samples=256)\n"
             "model: mlp(depth=1, hidden=1)\n"
             "data: {num_workers: 0}\nbatch_size: 16\nlr: [0.01]\nepochs: 100\n"
             "checkpoint: {interval: 5}\n");
  background b = start((const char *[]){"bound.yaml", "--lease", "600", NULL});
  expect(0, NULL,
         "for i in $(seq 1700); do ls runs/small/exp/*/last.safetensors 2>&1 | grep -q '^runs' && "
         "exit; "
         "sleep 0.1; done; exit 1");
  assert_ok(brim_child_signal(b.child, SIGKILL));
  (void)end(&b);
  expect(0, NULL,
         "for i in $(seq 1700); do ls runs/small/exp/*/*.spool 2>&1 | grep -q '^runs' && break; "
         "sleep 0.1; done; "
         "kill -9 $(sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/' runs/small/exp/*/executor.json)");
  expect(0, NULL, "cat runs/small/exp/*/attempt-1.spool | grep -q '\"op\": *\"findings\"'");
  expect(0, NULL, "brim sweep bound.yaml");
  assert_int_equal(count_state("done"), 1);
  expect(1, NULL, "ls runs/small/exp/*/*.bad runs/small/exp/*/*.spool 2>/dev/null | grep -q .");
  expect(1, NULL, "ls runs/small/exp/*/executor.json 2>/dev/null | grep -q .");
  expect(1, NULL, "ls runs/small/exp/*/attempt-2.log 2>/dev/null | grep -q .");
}

// Counts executors and trainings whose command line names this folder.
static int count_processes(const char *folder) {
  shell_result r = shell(
      "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | "
      "grep -c '^folder=%s/exp/\\|^%s/exp/[0-9a-f]*/experiment.yaml'",
      folder, folder);
  int n = atoi(r.out);
  shell_free(&r);
  return n;
}

// Executors of a killed sweep train on for one lease, save, and end. Unsent reports wait in their spool files.
static void test_no_process_outlives_a_killed_sweep(void **state) {
  char here[2048], folder[2100];
  (void)state;
  fresh();
  assert_non_null(getcwd(here, sizeof here));
  snprintf(folder, sizeof folder, "%s/runs/small", here);
  const char *const words[] = {"slow.yaml", "--jobs",       "2",    "--lease",
                               "1",         "--output-dir", folder, NULL};
  write_grid("slow.yaml",
             "lr: [0.1, 0.01]\n"
             "batch_size: 8\n"
             "epochs: 100000\n");
  background b = start(words);
  wait_until("running", 2);
  assert_true(count_processes(folder) > 0);
  assert_ok(brim_child_signal(b.child, SIGKILL));
  (void)end(&b);
  for (int i = 0; i < 600 && count_processes(folder) > 0; i++) usleep(100 * 1000);
  assert_int_equal(count_processes(folder), 0);
  // the next sweep takes these over, and is stopped as well
  b = start(words);
  wait_for_answer(&b);
  wait_until("running", 2);
  assert_ok(brim_child_signal(b.child, SIGTERM));
  assert_int_equal(end(&b), 130);
  assert_int_equal(count_processes(folder), 0);
  assert_int_equal(count_state("queued"), 2);
  assert_int_equal(count_state("failed"), 0);
  expect(1, NULL, "ls runs/small/exp/*/*.spool 2>/dev/null | grep -q .");
}

//---------------------------------- other terminals ----------------------------------

static void first_id(char out[13], const char *state) {
  shell_result r = shell("brim sweep export --state %s", state);
  const char *at = strstr(r.out, "\"id\": \"");
  if (!at) at = strstr(r.out, "\"id\":\"");
  if (!at) fail_msg("no %s experiment in\n%s%s", state, r.out, r.err);
  at = strchr(at + 4, ':');
  at = strchr(at, '"') + 1;
  snprintf(out, 13, "%.12s", at);
  shell_free(&r);
}

static void test_control_while_nothing_runs(void **state) {
  char id[13];
  (void)state;
  fresh();
  write_grid("slow.yaml", slow);
  background b = start((const char *[]){"slow.yaml", NULL});
  wait_until("running", 1);
  assert_ok(brim_child_signal(b.child, SIGINT));
  assert_int_equal(end(&b), 130);
  int64_t queued = count_state("queued");
  first_id(id, "queued");
  char command[256];
  snprintf(command, sizeof command, "brim sweep cancel %s", id);
  says(0, command);
  says(0, "brim sweep pause --all");
  assert_int_equal(count_state("paused"), queued - 1);
  assert_int_equal(count_state("cancelled"), 1);
  snprintf(command, sizeof command, "brim sweep retry %s", id);
  says(0, command);
  says(0, "brim sweep resume --all");
  assert_int_equal(count_state("queued"), queued);
  snprintf(command, sizeof command, "brim sweep priority %s 7", id);
  expect(0, NULL, command);
  expect(2, "--help", "brim sweep priority x");
  // a command for several experiments changes those it can, in any order
  snprintf(command, sizeof command, "brim sweep cancel %s", id);
  expect(0, NULL, command);
  char ids[2][13];
  shell_result r = shell(
      "brim sweep export --state queued | sed 's/.*\"id\": *\"\\([0-9a-f]\\{12\\}\\).*/\\1/'");
  assert_int_equal(sscanf(r.out, "%12s\n%12s", ids[0], ids[1]), 2);
  shell_free(&r);
  r = shell("brim sweep pause %s %s %s --json", ids[0], id, ids[1]);
  assert_int_not_equal(r.code, 0);
  has(r.out, "\"count\":2");
  has(r.out, "\"failed\":1");
  has(r.out, id);
  shell_free(&r);
  assert_int_equal(count_state("paused"), 2);
  // and names an unknown or ambiguous one
  static const char *const verbs[] = {"resume", "pause", "cancel", "retry"};
  static const char *const after[] = {"queued", "paused", "cancelled", "queued"};
  for (size_t i = 0; i < 4; i++) {
    const int64_t before = count_state(after[i]);
    r = shell("brim sweep %s ffffffffffff %s '' %s --json", verbs[i], ids[0], ids[1]);
    assert_int_not_equal(r.code, 0);
    has(r.out, "\"count\":2");
    has(r.out, "\"failed\":2");
    has(r.err, "ffffffffffff");
    shell_free(&r);
    assert_int_equal(count_state(after[i]), before + 2);
  }
  expect(2, NULL, "brim sweep cancel");
  expect(2, NULL, "brim sweep cancel ffffffffffff");
}

// The reasons come from the running sweep: which device an experiment has, and why others wait.
static void status_explains(void) {
  bool explains = false;
  for (int i = 0; i < 50 && !explains; i++) {  // for a moment none may run
    shell_result r = shell("brim sweep status --json");
    explains =
        strstr(r.out, "\"devices\":\"cpu\"") && strstr(r.out, "the CPU runs another experiment");
    shell_free(&r);
    if (!explains) usleep(20 * 1000);
  }
  assert_true(explains);
}

static void test_control_while_it_runs(void **state) {
  char id[13], command[256];
  (void)state;
  fresh();
  // the first experiment runs until it is cancelled
  write_grid("slow.yaml", "epochs: [1000000, 60, 61, 62]\nbatch_size: 8\n");
  background b = start((const char *[]){"slow.yaml", NULL});
  wait_until("running", 1);
  status_explains();
  first_id(id, "running");
  snprintf(command, sizeof command, "brim sweep log %s", id);
  expect(0, NULL, command);
  snprintf(command, sizeof command, "brim sweep cancel %s", id);
  says(0, command);
  wait_until("cancelled", 1);
  // another grid for the same store: the running sweep takes it
  write_grid("more.yaml", "lr: [0.5]\nbatch_size: 32\nepochs: 2\n");
  says(0, "brim sweep more.yaml --store runs/small");
  expect(0, NULL, "brim sweep stop runs/small");
  assert_int_equal(end(&b), 130);
  says(1, "brim sweep stop runs/small");
  expect(0, NULL, "brim sweep --store runs/small --jobs 2");
  assert_int_equal(count_state("done"), 4);
  assert_int_equal(count_state("cancelled"), 1);
}

//---------------------------------- failures ----------------------------------

static void test_a_grid_that_cannot_work_stops(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml",
             "dataset: folder\n"
             "data: {path: nowhere}\n"
             "lr: [1, 2, 3, 4, 5, 6, 7, 8]\n");
  shell_result r = shell("brim sweep grid.yaml");
  assert_int_equal(r.code, 1);
  has(r.err, "the first 3 experiments all failed the same way");
  shell_free(&r);
  assert_int_equal(count_state("failed"), 3);
  assert_int_equal(count_state("queued"), 5);
  r = shell("brim sweep grid.yaml --keep-going");
  assert_int_equal(r.code, 1);
  said_lines(&r, "brim: error: ");
  shell_free(&r);
  says(0, "brim sweep rerun-failed runs/small");
  assert_int_equal(count_state("queued"), 8);
}

// A training that was stopped from outside makes no progress: the watchdog ends it.
static void test_a_hung_training_is_ended(void **state) {
  (void)state;
  fresh();
  write_grid("grid.yaml", "epochs: 100000\nretries: 0\n");
  shell_result r = shell(
      "brim sweep grid.yaml --stall 1 & sweep=$!\n"
      "child=0\n"
      "until [ \"$child\" -gt 0 ] && grep -q epoch runs/small/exp/*/log.jsonl 2>/dev/null; do\n"
      "  sleep 0.1; kill -0 $sweep || exit 9\n"
      "  child=$(sed -n 's/.*\"child\":\\([0-9]*\\),.*/\\1/p' runs/small/exp/*/executor.json "
      "2>/dev/null); child=${child:-0}\n"
      "done\n"
      "kill -STOP $child; wait $sweep");
  if (r.code != 1) fail_msg("exit %d: %s%s", r.code, r.out, r.err);
  has(r.err, "(hung)");
  has(r.err, "made no progress for");
  shell_free(&r);
  assert_int_equal(count_state("failed"), 1);
}

static void test_mistakes_on_the_command_line(void **state) {
  (void)state;
  fresh();
  expect(2, "name a grid", "brim sweep");
  write_grid("control.yaml", six);
  says(2, "brim sweep control.yaml name=\"$(printf 'a\\tb')\"");
  says(2, "brim train control.yaml lr=1 batch_size=8 \"name=a$(printf '\\001')\"");
  assert_false(has_file("runs"));
  says(2, "brim sweep status");
  says(2, "brim sweep status --store nowhere");
  expect(2, "--jobs", "brim sweep x.yaml --jobs 0");
  expect(2, "--lease", "brim sweep x.yaml --lease 0");
  expect(2, "--stall", "brim sweep x.yaml --stall 0.5");
  expect(2, NULL, "brim sweep nothing.yaml");
  says(2, "brim sweep move a");
  says(2, "brim sweep move nowhere b");
  assert_false(brim_fs_exists("nowhere"));  // reading commands create no store
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_grid_runs_to_its_end),
      cmocka_unit_test(test_events_and_exports),
      cmocka_unit_test(test_exports_are_plain),
      cmocka_unit_test(test_seeds_added_later),
      cmocka_unit_test(test_a_gpu_that_is_not_there),
      cmocka_unit_test(test_ctrl_c_stops_and_the_same_command_continues),
      cmocka_unit_test(test_a_killed_sweep_loses_nothing),
      cmocka_unit_test(test_a_result_that_no_sweep_took),
      cmocka_unit_test(test_no_process_outlives_a_killed_sweep),
      cmocka_unit_test(test_control_while_nothing_runs),
      cmocka_unit_test(test_control_while_it_runs),
      cmocka_unit_test(test_a_grid_that_cannot_work_stops),
      cmocka_unit_test(test_a_hung_training_is_ended),
      cmocka_unit_test(test_mistakes_on_the_command_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
