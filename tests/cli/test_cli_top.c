// `brim top` as a person uses it: recordings of 0, 1 and 8 GPUs in a real terminal (tmux) of 80x24 and 200x60, keys,
// resizing; lines, JSON, CSV and files; a training that appears while it runs.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/top/cli_top.h"
#include "cli_test.h"
#include "record/record_top.h"
#include "record/top_view.h"

enum { PATIENCE_MS = 60000 };

//---------------------------------- recordings ----------------------------------

// Writes a recording of a machine, one view a second.
static void write_recording(const char *path, int gpus, int views) {
  brim_str text;
  brim_str_init(&text);
  for (int i = 0; i < views; i++) {
    brim_top_view view;
    json_t *json = NULL;
    char *line = NULL;
    top_view_make(&view, gpus);
    view.when_s += i;
    for (size_t g = 0; g < view.gpu_count; g++) view.gpus[g].power_w -= i;
    brim_top_view_derive(&view, NULL);
    assert_ok(brim_top_view_to_json(&view, &json));
    assert_ok(brim_json_dump(json, 0, &line));
    json_decref(json);
    brim_str_printf(&text, "%s\n", line);
    brim_free(line);
    brim_top_view_deinit(&view);
  }
  write_file(path, text.data);
  brim_str_deinit(&text);
}

static void test_lines_of_a_recording(void **state) {
  (void)state;
  write_recording("two.jsonl", 2, 3);
  shell_result r = shell("brim top --replay two.jsonl");
  assert_int_equal(r.code, 0);
  size_t lines = 0;
  for (const char *p = r.out; *p; p++) lines += *p == '\n';
  assert_int_equal(lines, 9);
  has(r.out, "GPU 0  utilisation 97 %  SM 71 %  tensor 52 %");
  has(r.out, "GPU 1");
  has(r.out, "train cifar10-resnet18  PID 23000  cuda:0  training");
  has_not(r.out, "\033");
  shell_free(&r);
  r = shell("brim top --replay two.jsonl --once");
  assert_int_equal(r.code, 0);
  has(r.out, "610/700 W");  // the last view
  has(r.out, "alice");
  has(r.out, "train cifar10-resnet18");
  shell_free(&r);
  r = shell("brim top --replay two.jsonl --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 3);
  shell_free(&r);
}

static void test_a_load_that_is_missing(void **state) {
  (void)state;
  write_recording("load.jsonl", 0, 1);
  expect(0, NULL,
         "sed 's/\"load_5\": *[0-9.]*/\"load_5\":null/' load.jsonl > null.jsonl && "
         "grep -q '\"load_5\":null' null.jsonl");
  shell_result r = shell("brim top --replay null.jsonl --once");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  CPU use  ");
  has_not(r.out, "nan");
  shell_free(&r);
}

// Recording a replay gives the same file.
static void test_record_and_csv(void **state) {
  (void)state;
  write_recording("eight.jsonl", 8, 2);
  expect(0, NULL,
         "rm -f copy.jsonl all.csv; brim top --replay eight.jsonl --record copy.jsonl "
         "--csv all.csv --quiet && cmp eight.jsonl copy.jsonl");
  shell_result r = shell("wc -l < all.csv; head -1 all.csv");
  assert_int_equal(r.code, 0);
  assert_int_equal(atoi(r.out), 17);
  has(r.out, "when_s,interval_s,index,uuid,name");
  shell_free(&r);
  // Appending writes no second header.
  expect(0, NULL, "brim top --replay eight.jsonl --csv all.csv --quiet");
  r = shell("wc -l < all.csv; grep -c when_s all.csv");
  assert_int_equal(atoi(r.out), 33);
  has(r.out, "\n1\n");
  shell_free(&r);
  r = shell("brim top --replay eight.jsonl --csv - | wc -l");
  assert_int_equal(atoi(r.out), 17);
  shell_free(&r);
}

// brim top overwrites neither its input nor a file that it did not write, and makes no new one.
static void test_other_files(void **state) {
  (void)state;
  write_recording("own.jsonl", 1, 1);
  write_file("config.yaml", "model: mlp\n");
  write_file("other.csv", "when_s,interval_s,age\n1,2,3\n");
  write_file("records.jsonl", "{\"schema\": \"brim.result/1\"}\n");
  expect(0, NULL, "cp own.jsonl before.jsonl");
  says(2, "brim top --replay own.jsonl --csv ./own.jsonl");
  says(2, "brim top --once --record new.jsonl --csv ./new.jsonl");
  says(2,
       "rm -f later link; mkdir -p links; ln -sf later link; ln -sf ../link links/link; "
       "brim top --once --record link --csv later");
  says(2, "brim top --once --record later --csv links/link");
  says(2, "brim top --once --record link --csv links/link");
  expect(0, NULL, "test ! -e later");
  says(2, "brim top --once --record config.yaml");
  says(2, "brim top --once --record records.jsonl");
  says(2, "brim top --once --record new.jsonl --csv config.yaml");
  says(2, "brim top --once --csv other.csv");
  says(2, "brim top --once --csv own.jsonl");
  expect(0, NULL,
         "cmp own.jsonl before.jsonl && test ! -e new.jsonl && "
         "test \"$(cat config.yaml)\" = 'model: mlp' && test $(wc -l < other.csv) = 2");
}

// A full disk cut the last line off: appending to the file loses no reading.
static void test_continue_after_a_full_disk(void **state) {
  (void)state;
  write_recording("whole.jsonl", 1, 2);
  expect(0, NULL,
         "rm -f full.csv; head -c 5000 whole.jsonl > full.jsonl && test $(wc -l < full.jsonl) = 1");
  expect(0, NULL, "brim top --replay whole.jsonl --record full.jsonl --csv full.csv --quiet");
  expect(0, NULL, "test $(wc -l < full.jsonl) = 4");
  shell_result r = shell("brim top --replay full.jsonl --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 3);
  said_lines(&r, "brim: warning: ");
  shell_free(&r);
  // cut within the schema
  expect(0, NULL, "printf '{\"sch' > full.jsonl");
  expect(0, NULL, "brim top --replay whole.jsonl --record full.jsonl --quiet");
  r = shell("brim top --replay full.jsonl --json");
  assert_int_equal(json_lines(r.out), 2);
  shell_free(&r);
  expect(0, NULL, "head -c -9 full.csv > cut.csv && printf x >> cut.csv");
  expect(0, NULL, "brim top --replay whole.jsonl --csv cut.csv --quiet");
  r = shell("wc -l < cut.csv");
  assert_int_equal(atoi(r.out), 5);
  shell_free(&r);
}

// A slow reader loses nothing, even if the output is larger than a pipe.
static void test_into_a_pipe(void **state) {
  (void)state;
  write_recording("many.jsonl", 1, 60);
  shell_result r = shell(
      "test $(wc -c < many.jsonl) -gt 70000 || exit 9; "
      "{ brim top --replay many.jsonl --record /dev/fd/3 3>&1 >/dev/null; echo $? > code; } | "
      "{ sleep 1; cat > read.jsonl; }; cmp many.jsonl read.jsonl && exit $(cat code)");
  if (r.code) fail_msg("exit %d: %s %s", r.code, r.out, r.err);
  shell_free(&r);
}

// A closed stdout leaves its descriptor to the next file that is opened. Printed text must not go into that file.
static void test_closed_output(void **state) {
  (void)state;
  write_recording("few.jsonl", 1, 2);
  says(1, "rm -f alone.jsonl; brim top --replay few.jsonl --record alone.jsonl >&-");
  expect(0, NULL, "head -c 9 alone.jsonl | grep -q '^{.schema'; brim top --replay alone.jsonl");
  expect(1, NULL,
         "rm -f alone.jsonl; brim top --replay few.jsonl --record alone.jsonl <&- >&- 2>&-");
  shell_result r = shell("brim top --replay alone.jsonl --json");
  assert_true(json_lines(r.out) > 0);
  assert_string_equal(r.err, "");
  shell_free(&r);
  says(1, "brim doctor --quick >&-");
}

static void test_this_machine(void **state) {
  (void)state;
  shell_result r = shell("brim top --once --json --interval 0.5");
  json_t *json = NULL;
  brim_top_view view;
  assert_int_equal(r.code, 0);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "top", &json));
  brim_top_view_init(&view);
  assert_ok(brim_top_view_from_json(json, &view));
  assert_true(view.host.memory_total > 0);
  assert_true(view.host.cores > 0);
  brim_top_view_deinit(&view);
  json_decref(json);
  shell_free(&r);
}

static void test_mistakes(void **state) {
  (void)state;
  expect(2, "0.5 to 3600", "brim top --interval 0.1");
  says(2, "brim top gpus");
  expect(2, "nowhere.jsonl", "brim top --replay nowhere.jsonl");
  expect(2, "brim.top/1", "echo '{}' > none.jsonl; brim top --replay none.jsonl");
  says(2, ": > empty.jsonl; brim top --replay empty.jsonl");
  expect(2, "noise.jsonl",
         "printf 'x\\0\\377\\n' > noise.jsonl; brim top --replay noise.jsonl --once");
  expect(2, "folder.d", "mkdir -p folder.d; brim top --replay folder.d");
  expect(2, "missing/file", "brim top --once --record missing/file");
  says(2, "brim top --replay two.jsonl --record two.jsonl");
  expect(2, "standard output", "brim top --json --csv -");
  expect(2, "--record", "brim top --record -");
  if (access("/dev/full", W_OK) == 0) {
    expect(1, "/dev/full", "brim top --replay two.jsonl --record /dev/full");
    expect(1, "/dev/full", "brim top --replay two.jsonl --csv /dev/full");
  }
  // brim top ends when its reader is gone.
  write_recording("long.jsonl", 1, 500);
  expect(0, NULL, "brim top --replay long.jsonl | head -1 | grep -q 'GPU 0'");
}

// An H200 has 989 TFLOP/s of bf16 at 1830 MHz by its maker, 494 of tf32. Its highest clock is 1980 MHz: both shares on
// the screen refer to the peak at that clock.
static void test_share_of_the_peak(void **state) {
  (void)state;
  brim_machine_ceilings c;
  brim_top_gpu gpu;
  brim_machine_ceilings_init(&c);
  brim_top_gpu_init(&gpu);
  snprintf(gpu.name, sizeof gpu.name, "NVIDIA H200");
  gpu.clock_max_mhz = 1830;
  assert_true(isnan(brim_cli_top_share(&gpu, &c)));
  c.gemm_tf32_flops = 247e12;
  assert_float_equal(brim_cli_top_share(&gpu, &c), 50, 0.1);
  c.gemm_bf16_flops = 741e12;
  assert_float_equal(brim_cli_top_share(&gpu, &c), 75, 0.1);
  gpu.clock_max_mhz = 1980;
  assert_float_equal(brim_cli_top_share(&gpu, &c), 69.3, 0.1);
  gpu.clock_max_mhz = NAN;
  assert_true(isnan(brim_cli_top_share(&gpu, &c)));
  gpu.clock_max_mhz = 1980;
  snprintf(gpu.name, sizeof gpu.name, "a card of tomorrow");
  assert_true(isnan(brim_cli_top_share(&gpu, &c)));
}

//---------------------------------- in tmux ----------------------------------

static bool has_tmux(void) {
  shell_result r = shell("command -v tmux && tmux -V");
  bool there = r.code == 0;
  shell_free(&r);
  return there;
}

// A socket name of its own keeps the tests away from a user's tmux server, even if the folder is gone.
#define TMUX "TMUX= tmux -u -L brim-test-top -f /dev/null "

// The folder of the running server's socket. tmux leaves it behind.
static char tmux_folder[sizeof "/tmp/brim-top-XXXXXX"];

static void tmux_end(void) {
  if (!*tmux_folder) return;
  shell_result r = shell(TMUX "kill-server; rm -rf %s", tmux_folder);
  shell_free(&r);
  *tmux_folder = 0;
}

static int end_all(void **state) {
  (void)state;
  tmux_end();  // a failed test may have left one
  return 0;
}

// Each start has its own socket: a server that is ending still takes connections for a moment, and tmux cuts off a
// client that comes then ("server exited unexpectedly"). The retry is for a server that does not start; tests assert on
// brim's output afterwards.
static void tmux_start(int columns, int rows, const char *environment, const char *words) {
  enum { ATTEMPTS = 5, PAUSE_MS = 200 };
  for (int attempt = 1;; attempt++) {
    tmux_end();  // an earlier test may have failed
    snprintf(tmux_folder, sizeof tmux_folder, "/tmp/brim-top-XXXXXX");
    assert_non_null(mkdtemp(tmux_folder));
    setenv("TMUX_TMPDIR", tmux_folder, 1);
    shell_result r =
        shell(TMUX
              "new-session -d -x %d -y %d 'env TERM=screen LC_ALL=C.UTF-8 TZ=UTC %s %s top %s; "
              "echo ended $?; exec sleep 600'",
              columns, rows, environment, BRIM_BINARY, words);
    if (r.code && attempt == ATTEMPTS) fail_msg("tmux: %s", r.err);
    bool started = r.code == 0;
    shell_free(&r);
    if (started) return;
    usleep(PAUSE_MS * 1000);
  }
}

// Waits for a screen with this text; free it with brim_free.
static char *tmux_wait(const char *text) {
  for (int waited = 0;; waited += 100) {
    shell_result r = shell(TMUX "capture-pane -p");
    if (r.code == 0 && strstr(r.out, text)) {
      char *screen = r.out;
      r.out = NULL;
      shell_free(&r);
      return screen;
    }
    if (waited > PATIENCE_MS) fail_msg("no '%s' on the screen:\n%s\n%s", text, r.out, r.err);
    shell_free(&r);
    usleep(100000);
  }
}

static void tmux_expect(const char *text) { brim_free(tmux_wait(text)); }

static void tmux_type(const char *keys) {
  shell_result r = shell(TMUX "send-keys %s", keys);
  assert_int_equal(r.code, 0);
  shell_free(&r);
}

static void test_screens(void **state) {
  (void)state;
  static const struct {
    int gpus, columns, rows;
    const char *shows[3];
  } cases[] = {
      {0, 80, 24, {"no NVIDIA GPU is visible", "AMD EPYC 9654", "q quit"}},
      {0, 200, 60, {"no NVIDIA GPU is visible", "AMD EPYC 9654", "q quit"}},
      {1, 80, 24, {"utilisation   97 %", "GEMM reached 72 %", "train cifar10-resnet18"}},
      {1, 200, 60, {"utilisation   97 %", "power cap 38 %", "brim train config.yaml"}},
      {8, 80, 24, {"GPU  util %", "Xid 94: contained ECC error", "q quit"}},
      {8, 200, 60, {"GPU 7  NVIDIA H200", "Xid 94", "docker:3f2a"}},
  };
  if (!has_tmux()) BRIM_SKIP("no tmux here");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_recording("screen.jsonl", cases[i].gpus, 2);
    tmux_start(cases[i].columns, cases[i].rows, "", "--replay screen.jsonl");
    tmux_expect("replay of screen.jsonl");
    for (int n = 0; n < 3; n++) tmux_expect(cases[i].shows[n]);
    tmux_type("q");
    tmux_expect("ended 0");
    tmux_end();
  }
}

static void test_keys(void **state) {
  (void)state;
  if (!has_tmux()) BRIM_SKIP("no tmux here");
  write_recording("keys.jsonl", 8, 3);
  tmux_start(80, 24, "", "--replay keys.jsonl --interval 0.5");
  tmux_expect("end of the recording");
  tmux_type("s");
  tmux_expect("by SM");
  tmux_type("/");
  tmux_expect("Filter: _");
  tmux_type("bob Enter");
  tmux_expect("processes 1-4 of 4");
  tmux_type("Escape");
  tmux_expect("of 8");
  tmux_type("'?'");
  tmux_expect("tensor pipes in use");
  tmux_type("Escape");
  tmux_expect("by SM");
  tmux_type("g");
  tmux_expect("GPU 0  NVIDIA H200");
  tmux_type("Right");
  tmux_expect("GPU 1  NVIDIA H200");
  tmux_type("q");
  tmux_expect("by SM");
  tmux_type("p");
  tmux_expect("paused");
  tmux_type("-");
  tmux_expect("every 1 s");
  tmux_type("q");
  tmux_expect("ended 0");
  tmux_end();
}

static void test_resizing(void **state) {
  (void)state;
  if (!has_tmux()) BRIM_SKIP("no tmux here");
  write_recording("resize.jsonl", 8, 2);
  tmux_start(80, 24, "", "--replay resize.jsonl");
  tmux_expect("GPU  util %");
  shell_result r = shell(TMUX "resize-window -x 200 -y 60");
  if (r.code) BRIM_SKIP("this tmux cannot resize a window");
  shell_free(&r);
  tmux_expect("GPU 7  NVIDIA H200");
  r = shell(TMUX "resize-window -x 40 -y 10");
  shell_free(&r);
  tmux_expect("GPU  util %");
  tmux_type("C-c");
  tmux_expect("ended 0");
  tmux_end();
}

// No colour, in Korean, and live on this machine.
static void test_languages_and_colour(void **state) {
  (void)state;
  if (!has_tmux()) BRIM_SKIP("no tmux here");
  write_recording("korean.jsonl", 1, 2);
  tmux_start(80, 24, "NO_COLOR=1 LC_ALL=ko_KR.UTF-8", "--replay korean.jsonl");
  char *screen = tmux_wait("사용률");
  has(screen, "달성");
  has(screen, "전력 상한");
  has(screen, "q 종료");
  brim_free(screen);
  shell_result r = shell(TMUX "capture-pane -p -e");
  has_not(r.out, "\033[3");
  shell_free(&r);
  tmux_type("q");
  tmux_expect("ended 0");
  tmux_end();
  tmux_start(80, 24, "", "--interval 0.5");
  tmux_expect("q quit");
  tmux_type("q");
  tmux_expect("ended 0");
  tmux_end();
}

// A driver that does not answer: keys and Ctrl-C work, and the screen shows what brim top waits for.
static void test_a_driver_that_does_not_answer(void **state) {
  (void)state;
  static const char library[] = "LD_LIBRARY_PATH=" SLOW_NVML;
  static const char *const ways[] = {"init", "read"};
  char environment[1024];
  for (int i = 0; i < 2; i++) {
    shell_result r = shell("env %s FAKE_NVML=%s sh -c 'set -m; " BRIM_BINARY
                           " top --csv - >/dev/null 2>&1 & sleep 1; kill -INT $!; wait $!'",
                           library, ways[i]);
    assert_true(r.code == 0 || r.code == 130);  // 130: it was not ready yet
    shell_free(&r);
  }
  if (!has_tmux()) BRIM_SKIP("no tmux here");
  for (int i = 0; i < 4; i++) {
    snprintf(environment, sizeof environment, "%s FAKE_NVML=%s", library, ways[i % 2]);
    tmux_start(80, 24, environment, "--interval 0.5");
    tmux_expect(i % 2 ? "the driver answers slowly" : "the driver has not answered");
    if (i % 2) tmux_expect("A slow GPU");
    tmux_type("'?'");
    tmux_expect("tensor pipes in use");
    tmux_type(i < 2 ? "C-c" : "q q");
    tmux_expect("ended 0");
    tmux_end();
  }
}

//---------------------------------- a training ----------------------------------

// The job of this name in `top`'s JSON, or NULL; json_decref(*root).
static json_t *find_job(const char *name, json_t **root) {
  shell_result r = shell("XDG_RUNTIME_DIR=$PWD/jobs brim top --once --json --interval 0.5");
  size_t i;
  json_t *job;
  assert_int_equal(r.code, 0);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "top", root));
  shell_free(&r);
  json_array_foreach(json_object_get(*root, "jobs"), i, job) {
    if (strcmp(json_string_value(json_object_get(job, "name")), name) == 0) return job;
  }
  return NULL;
}

// The job's process is listed, on a GPU or not.
static void has_process(json_t *root, json_int_t pid) {
  size_t i;
  json_t *process;
  json_array_foreach(json_object_get(root, "processes"), i, process) {
    if (json_integer_value(json_object_get(process, "pid")) != pid) continue;
    has(json_string_value(json_object_get(process, "command")), "train");
    assert_true(json_is_number(json_object_get(process, "rss")));
    return;
  }
  fail_msg("no process %lld", (long long)pid);
}

static void wait_job(const char *name, bool there) {
  for (int waited = 0; waited < PATIENCE_MS; waited += 500) {
    json_t *root = NULL, *job = find_job(name, &root);
    bool trains = job && json_integer_value(json_object_get(job, "step")) > 0 &&
                  json_number_value(json_object_get(job, "samples_per_s")) > 0 &&
                  strcmp(json_string_value(json_object_get(job, "phase")), "unknown") != 0;
    if (trains) {
      assert_string_equal(json_string_value(json_object_get(job, "command")), "train");
      assert_string_equal(json_string_value(json_object_get(job, "device")), "ref");
      has_process(root, json_integer_value(json_object_get(job, "pid")));
    }
    bool done = there ? trains : job == NULL;
    json_decref(root);
    if (done) return;
  }
  fail_msg("the job %s is %s", name, there ? "not shown" : "still shown");
}

static const char train_line[] =
    "mkdir -p jobs none; rm -rf job-run; XDG_RUNTIME_DIR=$PWD/jobs BRIM_PLUGIN_PATH=$PWD/none "
    "exec " BRIM_BINARY
    " train --threads 1 --output-dir job-run --num-workers 0 --batch-size 8 "
    "'model=mlp(depth=1, hidden=8)' 'dataset=synthetic(samples=64, val_samples=8)' epochs=1000000 "
    "name=%s > /dev/null 2>&1";

static pid_t start_training(const char *name) {
  char line[1024];
  snprintf(line, sizeof line, train_line, name);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(99);
  }
  return child;
}

static void test_a_training_is_shown(void **state) {
  (void)state;
  int status = 0;
  pid_t child = start_training("published-run");
  wait_job("published-run", true);
  shell_result r = shell("XDG_RUNTIME_DIR=$PWD/jobs brim top --once --interval 0.5");
  has(r.out, "train published-run");
  shell_free(&r);
  kill(child, SIGINT);
  assert_int_equal(waitpid(child, &status, 0), child);
  wait_job("published-run", false);
  // A killed job disappears too.
  child = start_training("killed-run");
  wait_job("killed-run", true);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
  wait_job("killed-run", false);
}

// A folder that cannot be written does not disturb a training.
static void test_a_training_without_a_folder(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf lone-run; XDG_RUNTIME_DIR=/dev/null brim train --device ref --threads 1 "
         "--output-dir lone-run --num-workers 0 --batch-size 8 'model=mlp(depth=1, hidden=8)' "
         "'dataset=synthetic(samples=64, val_samples=8)' epochs=1");
  assert_true(has_file("lone-run/model.safetensors"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines_of_a_recording),
      cmocka_unit_test(test_a_load_that_is_missing),
      cmocka_unit_test(test_record_and_csv),
      cmocka_unit_test(test_other_files),
      cmocka_unit_test(test_continue_after_a_full_disk),
      cmocka_unit_test(test_into_a_pipe),
      cmocka_unit_test(test_closed_output),
      cmocka_unit_test(test_this_machine),
      cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_share_of_the_peak),
      cmocka_unit_test(test_screens),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_resizing),
      cmocka_unit_test(test_languages_and_colour),
      cmocka_unit_test(test_a_driver_that_does_not_answer),
      cmocka_unit_test(test_a_training_is_shown),
      cmocka_unit_test(test_a_training_without_a_folder),
  };
  return cmocka_run_group_tests(tests, NULL, end_all);
}
