// The sweep's loop with scripted executors: this program, started again. Four GPUs of a scripted NVML take four of six
// experiments, two wait; the rule about first failures; an executor that dies.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fake_gpus.h"

#include "config/config.h"
#include "lab/grid/lab_grid.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/sweep/lab_sweep_int.h"
#include "lab/wire/lab_wire_link.h"

//---------------------------------- the executor ----------------------------------

static const char *word_of(int argc, char **argv, const char *key) {
  size_t n = strlen(key);
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], key, n) == 0 && argv[i][n] == '=') return argv[i] + n + 1;
  }
  return "";
}

static volatile sig_atomic_t asked;

static void on_term(int number) {
  (void)number;
  asked = 1;
}

// Tests and executors share the files "run-EXP": one exists while its executor runs, and contains its GPUs.
static int execute(int argc, char **argv) {
  brim_store_ref ref = {0};
  brim_lab_link *link = NULL;
  char path[128], mode[32] = "";
  snprintf(ref.exp, sizeof ref.exp, "%s", word_of(argc, argv, "exp"));
  ref.attempt = atoll(word_of(argc, argv, "attempt"));
  ref.fence = atoll(word_of(argc, argv, "fence"));
  signal(SIGTERM, on_term);
  FILE *f = fopen("mode", "r");
  if (f) {
    if (!fgets(mode, sizeof mode, f)) mode[0] = '\0';
    fclose(f);
  }
  if (strcmp(mode, "die") == 0) {
    fprintf(stderr, "executor: nothing works\n");
    return 9;
  }
  if (brim_lab_link_open(word_of(argc, argv, "place"), &(brim_lab_link_options){.sweep_only = true},
                         &link)) {
    return 1;
  }
  if (brim_lab_start(link, &ref, getpid(), -1)) return 1;
  const char *part = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  snprintf(path, sizeof path, "part-%s", ref.exp);
  if (getenv("CUDA_MPS_PIPE_DIRECTORY") &&
      brim_fs_write(path, part ? part : "", part ? strlen(part) : 0)) {
    return 1;
  }
  snprintf(path, sizeof path, "run-%s", ref.exp);
  const char *gpus = word_of(argc, argv, "gpus");
  if (brim_fs_write(path, gpus, strlen(gpus))) return 1;
  brim_store_result result = {.outcome = BRIM_ATTEMPT_OK};
  pid_t parent = getppid();  // a failed test must not leave a process
  while (strcmp(mode, "wait") == 0 && !asked && !brim_fs_exists("go") && getppid() == parent) {
    usleep(10000);
  }
  if (asked) result.outcome = BRIM_ATTEMPT_STOPPED;
  if (strcmp(mode, "fail") == 0) {
    result = (brim_store_result){.outcome = BRIM_ATTEMPT_ERROR,
                                 .failure = BRIM_FAILURE_DATA,
                                 .message = "no data set at /nowhere"};
  }
  if ((strcmp(mode, "linger") == 0 && ref.attempt == 1) || strcmp(mode, "crash") == 0) {
    result = (brim_store_result){
        .outcome = BRIM_ATTEMPT_ERROR, .failure = BRIM_FAILURE_CRASH, .message = "crashed"};
  }
  unlink(path);
  int code = brim_lab_finish(link, &ref, &result, NULL) ? 1 : 0;
  brim_lab_link_close(link);
  if (strcmp(mode, "linger") == 0 && ref.attempt == 1) usleep(1500 * 1000);
  return code;
}

//---------------------------------- sweeps ----------------------------------

static char program[4096];
static int place_count;

static void set_mode(const char *mode) {
  assert_ok(brim_fs_write("mode", mode, strlen(mode)));
  unlink("go");
}

static void let_go(void) { assert_ok(brim_fs_write("go", "", 0)); }

static brim_lab_sweep *open_sweep(brim_lab_sweep_options o) {
  static char place[64];
  brim_lab_sweep *sweep = NULL;
  if (!o.place) {
    snprintf(place, sizeof place, "sweep-%d", ++place_count);
    o.place = place;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s run-*", place);
    assert_int_equal(system(command), 0);
  }
  o.program = program;
  o.lock_dir = "locks";
  o.cores = 4;
  o.store.backoff_ms = 50;
  assert_ok(brim_lab_sweep_open(&o, &sweep));
  return sweep;
}

// The grid of guide 003: three learning rates and two batch sizes; devices as given.
static size_t submit_guide(brim_lab_sweep *sweep, char devices[64]) {
  static const char text[] =
      "device: [0, 1, 2, 3]\n"
      "lr: [1e-3, 1e-4, 1e-5]\n"
      "batch_size: [64, 128]\n";
  brim_config *config = NULL;
  brim_lab_grid grid = {0};
  brim_store_point points[32];
  brim_store_submitted submitted;
  const brim_config_options how = {.text = text, .text_name = "guide"};
  assert_ok(brim_config_load(&how, &config));
  assert_ok(brim_lab_grid_expand(config, NULL, &grid));
  assert_int_equal(grid.device_count, 4);
  devices[0] = '\0';
  for (size_t i = 0; i < grid.device_count; i++) {
    snprintf(devices + strlen(devices), 64 - strlen(devices), "%s%s", i ? "," : "",
             grid.devices[i]);
  }
  for (size_t i = 0; i < grid.count; i++) {
    points[i] = (brim_store_point){.id = grid.points[i].id,
                                   .idx = grid.points[i].idx,
                                   .label = grid.points[i].label,
                                   .config = grid.points[i].config,
                                   .gpus = grid.points[i].gpus,
                                   .tries = grid.points[i].tries};
  }
  const brim_store_grid row = {.id = grid.id, .name = "guide", .text = text, .version = "test"};
  if (sweep) {
    assert_ok(brim_lab_sweep_submit(sweep, &row, points, grid.count, &submitted));
    assert_int_equal(submitted.added + submitted.existing, grid.count);
  }
  size_t count = grid.count;
  brim_lab_grid_free(&grid);
  brim_config_close(config);
  return count;
}

// A sweep of that grid on the CPU, with executors of this mode.
static brim_lab_sweep *start_guide(const char *mode, brim_lab_sweep_options o) {
  char devices[64];
  set_mode(mode);
  brim_lab_sweep *sweep = open_sweep(o);
  submit_guide(sweep, devices);
  return sweep;
}

static const brim_sweep_view *view_of(brim_lab_sweep *sweep) {
  const brim_sweep_view *view = NULL;
  assert_ok(brim_lab_sweep_view(sweep, true, &view));
  return view;
}

static bool has_said(brim_lab_sweep *sweep, const char *part) {
  const brim_sweep_view *view = view_of(sweep);
  for (size_t i = 0; i < view->message_count; i++) {
    if (strstr(view->messages[i].text, part)) return true;
  }
  return false;
}

// Turns until this many executors are under way, or the sweep has ended.
static bool turn_until_running(brim_lab_sweep *sweep, int64_t running) {
  bool done = false;
  for (int i = 0; i < 6000 && !done; i++) {
    if (view_of(sweep)->counts[BRIM_SWEEP_RUNNING] == running) return false;
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
  }
  if (!done) fail_msg("never %lld experiments at once", (long long)running);
  return done;
}

static void turn_until_done(brim_lab_sweep *sweep) {
  bool done = false;
  for (int i = 0; i < 6000 && !done; i++) {
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
  }
  if (!done) fail_msg("the sweep did not end");
}

static int count_runs(char gpus[][64], int most) {
  DIR *dir = opendir(".");
  int n = 0;
  for (struct dirent *e; (e = readdir(dir));) {
    char *text = NULL;
    if (strncmp(e->d_name, "run-", 4) != 0 || n == most) continue;
    assert_ok(brim_fs_read(e->d_name, 0, &text, NULL));
    snprintf(gpus[n++], 64, "%s", text);
    brim_free(text);
  }
  closedir(dir);
  return n;
}

//---------------------------------- tests ----------------------------------

// ages[0]: now; ages[1]: how long ago the worker was seen.
static brim_status take_age(void *ctx, const brim_store_worker *worker) {
  int64_t *ages = ctx;
  assert_int_equal(ages[1], 0);
  ages[1] = ages[0] - worker->last_seen;
  return BRIM_OK;
}

static void test_six_experiments_on_four_gpus(void **state) {
  char devices[64], gpus[8][64];
  (void)state;
  fake_reset(4);
  brim_gpu_monitor *monitor = fake_monitor();
  set_mode("wait");
  assert_int_equal(submit_guide(NULL, devices), 6);  // not 24: devices are not an axis
  assert_string_equal(devices, "cuda:0,cuda:1,cuda:2,cuda:3");
  brim_lab_sweep *sweep =
      open_sweep((brim_lab_sweep_options){.devices = devices, .monitor = monitor});
  submit_guide(sweep, devices);
  assert_false(turn_until_running(sweep, 4));
  for (int i = 0; i < 20; i++) {
    bool done;
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
    assert_false(done);
  }
  const brim_sweep_view *view = view_of(sweep);
  assert_int_equal(view->counts[BRIM_SWEEP_RUNNING], 4);
  assert_int_equal(view->counts[BRIM_SWEEP_QUEUED], 2);
  assert_int_equal(view->gpu_count, 4);
  assert_int_equal(count_runs(gpus, 8), 4);
  for (int i = 0; i < 4; i++) {  // each on another GPU, by its UUID
    assert_int_equal(strncmp(gpus[i], "GPU-", 4), 0);
    for (int k = 0; k < i; k++) assert_string_not_equal(gpus[i], gpus[k]);
  }
  let_go();
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_ALL);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
  brim_gpu_monitor_close(monitor);
  // a worker that ended properly does not count as connected
  char place[64];
  brim_store *store = NULL;
  int64_t ages[2] = {0};
  snprintf(place, sizeof place, "sweep-%d", place_count);
  assert_ok(brim_store_open(place, NULL, &store));
  assert_ok(brim_store_now(store, &ages[0]));
  assert_ok(brim_store_workers(store, take_age, ages));
  assert_true(ages[1] > BRIM_WORKER_GONE_MS);
  brim_store_close(store);
}

static bool runs_on_a_part(const char *workload) { return strcmp(workload, "parts") == 0; }

static void assert_part(const char *exp, const char *expected) {
  char path[64], *text = NULL;
  snprintf(path, sizeof path, "part-%s", exp);
  assert_ok(brim_fs_read(path, 0, &text, NULL));
  assert_string_equal(text, expected);
  brim_free(text);
}

// Through MPS an experiment gets a part of the GPU, if its results do not depend on that.
static void test_parts_of_a_gpu(void **state) {
  static const char daemon[] =
      "#!/bin/sh\nd=$CUDA_MPS_PIPE_DIRECTORY\n"
      "if [ \"$1\" != -f ]; then : > $d/quit; exit; fi\n"
      ": > $d/control\nwhile [ ! -e $d/quit ]; do sleep 0.05; done\n";
  char ids[2][BRIM_EXP_ID], path[4200], *before = brim_strdup(getenv("PATH"));
  (void)state;
  fake_reset(1);
  assert_ok(brim_fs_mkdirs("bin"));
  assert_ok(brim_fs_write("bin/nvidia-cuda-mps-control", daemon, sizeof daemon - 1));
  assert_int_equal(chmod("bin/nvidia-cuda-mps-control", 0755), 0);
  assert_true(before && realpath("bin", path));
  size_t n = strlen(path);
  snprintf(path + n, sizeof path - n, ":%s", before);
  setenv("PATH", path, 1);
  brim_gpu_monitor *monitor = fake_monitor();
  set_mode("");
  brim_lab_sweep *sweep = open_sweep(
      (brim_lab_sweep_options){.per_gpu = 4, .monitor = monitor, .any_part = runs_on_a_part});
  brim_store_point points[2];
  brim_store_submitted submitted;
  for (int i = 0; i < 2; i++) {
    snprintf(ids[i], sizeof ids[i], "%032x", 0xdef + i);
    points[i] =
        (brim_store_point){.id = ids[i],
                           .idx = i,
                           .label = "x",
                           .config = i ? "lr: 1\nworkload: whole\n" : "lr: 1\nworkload: parts\n",
                           .gpus = 1,
                           .need_bytes = 1LL << 30};
  }
  const brim_store_grid grid = {.id = "parts"};
  assert_ok(brim_lab_sweep_submit(sweep, &grid, points, 2, &submitted));
  turn_until_done(sweep);
  assert_part(ids[0], "25");
  assert_part(ids[1], "");
  brim_lab_sweep_close(sweep);
  brim_gpu_monitor_close(monitor);
  setenv("PATH", before, 1);
  brim_free(before);
}

// Experiments whose memory is planned share a GPU; one without a plan has it alone.
static void test_several_on_one_gpu(void **state) {
  char gpus[8][64];
  (void)state;
  fake_reset(1);
  brim_gpu_monitor *monitor = fake_monitor();
  set_mode("wait");
  brim_lab_sweep *sweep =
      open_sweep((brim_lab_sweep_options){.per_gpu = 3, .no_mps = true, .monitor = monitor});
  char ids[5][BRIM_EXP_ID];
  brim_store_point points[5];
  brim_store_submitted submitted;
  for (int i = 0; i < 5; i++) {
    snprintf(ids[i], sizeof ids[i], "%032x", 0xabc + i);
    points[i] = (brim_store_point){.id = ids[i],
                                   .idx = i,
                                   .label = "x",
                                   .config = "lr: 1",
                                   .gpus = 1,
                                   .need_bytes = i < 4 ? 30LL << 30 : 0};
  }
  const brim_store_grid grid = {.id = "packed"};
  assert_ok(brim_lab_sweep_submit(sweep, &grid, points, 5, &submitted));
  assert_false(turn_until_running(sweep, 2));  // three would not fit into 80 GiB
  for (int i = 0; i < 100; i++) {
    bool done;
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
    assert_true(view_of(sweep)->counts[BRIM_SWEEP_RUNNING] <= 2);
  }
  assert_int_equal(count_runs(gpus, 8), 2);
  assert_string_equal(gpus[0], gpus[1]);
  let_go();
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 5);
  brim_lab_sweep_close(sweep);
  brim_gpu_monitor_close(monitor);
}

static void test_submitting_again_adds_nothing(void **state) {
  char devices[64];
  (void)state;
  brim_lab_sweep *sweep = start_guide("", (brim_lab_sweep_options){.jobs = 3});
  submit_guide(sweep, devices);
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
}

static void test_the_same_failure_stops_the_grid(void **state) {
  char devices[64];
  (void)state;
  brim_lab_sweep *sweep = start_guide("fail", (brim_lab_sweep_options){.jobs = 1});
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_SAME_FAILURE);
  const brim_sweep_view *view = view_of(sweep);
  assert_non_null(strstr(view->notice, "no data set at /nowhere"));
  assert_int_equal(view->counts[BRIM_SWEEP_FAILED], 3);
  assert_int_equal(view->counts[BRIM_SWEEP_QUEUED], 3);
  brim_lab_sweep_close(sweep);
  sweep = open_sweep((brim_lab_sweep_options){.jobs = 1, .keep_going = true});
  submit_guide(sweep, devices);
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_ALL);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_FAILED], 6);
  brim_lab_sweep_close(sweep);
}

static void test_an_executor_that_dies_costs_no_retry(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start_guide("die", (brim_lab_sweep_options){.jobs = 6});
  bool done = false;
  for (int i = 0; i < 3000 && view_of(sweep)->message_count < 12; i++) {
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
    assert_false(done);
  }
  assert_true(has_said(sweep, "exit code 9"));
  const brim_sweep_view *view = view_of(sweep);
  for (size_t i = 0; i < view->row_count; i++) assert_int_equal(view->rows[i].tries_left, 2);
  set_mode("");
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
}

// The retry is due, but the executor of the first attempt has only reported, not ended.
static void test_a_retry_waits_for_the_process(void **state) {
  (void)state;
  brim_lab_sweep *sweep =
      start_guide("linger", (brim_lab_sweep_options){.jobs = 8, .keep_going = true});
  turn_until_done(sweep);
  const brim_sweep_view *view = view_of(sweep);
  assert_int_equal(view->counts[BRIM_SWEEP_DONE], 6);
  for (size_t i = 0; i < view->row_count; i++) assert_int_equal(view->rows[i].attempt, 2);
  brim_lab_sweep_close(sweep);
}

static void test_stopping(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start_guide("wait", (brim_lab_sweep_options){.jobs = 2});
  assert_false(turn_until_running(sweep, 2));
  brim_lab_sweep_stop(sweep);
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_STOPPED);
  const brim_sweep_view *view = view_of(sweep);
  assert_int_equal(view->counts[BRIM_SWEEP_QUEUED], 6);
  assert_int_equal(view->counts[BRIM_SWEEP_RUNNING] + view->counts[BRIM_SWEEP_LEASED], 0);
  brim_lab_sweep_close(sweep);
}

static void test_wishes_reach_an_executor_at_once(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start_guide("wait", (brim_lab_sweep_options){.jobs = 1});
  assert_false(turn_until_running(sweep, 1));
  const brim_sweep_view *view = view_of(sweep);
  for (size_t i = 0; i < view->row_count; i++) {
    if (view->rows[i].state != BRIM_SWEEP_RUNNING) continue;
    char id[BRIM_EXP_ID];
    snprintf(id, sizeof id, "%s", view->rows[i].id);
    assert_ok(brim_lab_want(brim_lab_sweep_link(sweep), id, BRIM_WANT_CANCEL));
    break;
  }
  for (int i = 0; i < 3000 && view_of(sweep)->counts[BRIM_SWEEP_CANCELLED] < 1; i++) {
    bool done;
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
  }
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_CANCELLED], 1);
  let_go();
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 5);
  brim_lab_sweep_close(sweep);
}

static void want_all(brim_lab_sweep *sweep, brim_exp_want want) {
  char ids[8][BRIM_EXP_ID];
  const brim_sweep_view *view = view_of(sweep);
  size_t count = view->row_count;
  for (size_t i = 0; i < count; i++) snprintf(ids[i], sizeof ids[i], "%s", view->rows[i].id);
  for (size_t i = 0; i < count; i++) {
    assert_ok(brim_lab_want(brim_lab_sweep_link(sweep), ids[i], want));
  }
}

// The sweep waits for experiments that the user paused while it ran, not for those that were paused before.
static void test_paused_experiments_are_waited_for(void **state) {
  (void)state;
  brim_lab_sweep *sweep = start_guide("wait", (brim_lab_sweep_options){.jobs = 2});
  assert_false(turn_until_running(sweep, 2));
  want_all(sweep, BRIM_WANT_PAUSE);
  for (int i = 0; i < 3000 && !has_said(sweep, "only paused experiments are left (6)"); i++) {
    bool done;
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
    assert_false(done);
  }
  assert_true(has_said(sweep, "brim sweep resume --all"));
  char place[64];
  snprintf(place, sizeof place, "sweep-%d", place_count);
  brim_lab_sweep_stop(sweep);
  turn_until_done(sweep);
  brim_lab_sweep_close(sweep);
  sweep = open_sweep((brim_lab_sweep_options){.place = place});
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_ALL);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_PAUSED], 6);
  want_all(sweep, BRIM_WANT_RUN);
  let_go();
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
}

static void test_what_fits_nowhere(void **state) {
  char devices[64];
  (void)state;
  fake_reset(2);
  brim_gpu_monitor *monitor = fake_monitor();
  brim_store_submitted submitted;
  set_mode("");
  brim_lab_sweep *sweep =
      open_sweep((brim_lab_sweep_options){.devices = "0,1", .monitor = monitor});
  submit_guide(sweep, devices);
  const brim_store_point large = {.id = "00000000000000000000000000000abc",
                                  .idx = 99,
                                  .label = "large",
                                  .config = "x",
                                  .gpus = 8};
  const brim_store_grid row = {.id = "large", .name = "large", .text = "", .version = "test"};
  assert_ok(brim_lab_sweep_submit(sweep, &row, &large, 1, &submitted));
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_NO_PLACE);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_QUEUED], 1);
  brim_lab_sweep_close(sweep);
  brim_gpu_monitor_close(monitor);
}

// Three experiments in a row crash on the only GPU: a message names the GPU, and the sweep does not wait for ever.
static void test_a_gpu_out_of_service_is_named(void **state) {
  char devices[64];
  (void)state;
  fake_reset(1);
  brim_gpu_monitor *monitor = fake_monitor();
  set_mode("crash");
  brim_lab_sweep *sweep =
      open_sweep((brim_lab_sweep_options){.devices = "0", .monitor = monitor, .keep_going = true});
  submit_guide(sweep, devices);
  turn_until_done(sweep);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_NO_PLACE);
  const brim_sweep_view *view = view_of(sweep);
  bool named = false;
  for (size_t i = 0; i < view->message_count; i++) {
    named = named || strstr(view->messages[i].text, "GPU 0 is out of service: ");
  }
  assert_true(named);
  assert_true(view->counts[BRIM_SWEEP_QUEUED] > 0);
  brim_lab_sweep_close(sweep);
  brim_gpu_monitor_close(monitor);
}

static void test_a_second_sweep_is_refused(void **state) {
  brim_lab_sweep *second = NULL;
  (void)state;
  set_mode("");
  brim_lab_sweep *sweep = open_sweep((brim_lab_sweep_options){.jobs = 1});
  char place[64];
  snprintf(place, sizeof place, "sweep-%d", place_count);
  const brim_lab_sweep_options how = {.place = place, .program = program};
  assert_status(brim_lab_sweep_open(&how, &second), BRIM_EEXIST);
  brim_lab_sweep_close(sweep);
}

// A store on a full disk: the sweep asks again about once a second.
static void test_a_store_in_trouble_costs_no_processor(void **state) {
  char devices[64];
  struct rlimit before, none;
  bool done = false;
  (void)state;
  set_mode("wait");
  brim_lab_sweep *sweep = open_sweep((brim_lab_sweep_options){.jobs = 1});
  submit_guide(sweep, devices);
  assert_false(turn_until_running(sweep, 1));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
  kill((pid_t)sweep->runners[0]->pid, SIGKILL);
  int turns = 0;
  for (brim_time start = brim_clock_now(); brim_time_since_ns(start, brim_clock_now()) < 3000000000;
       turns++) {
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 1000, &done));
  }
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_false(done);
  if (turns > 30) fail_msg("%d turns in 3 s", turns);
  let_go();
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
}

static void test_stopping_without_a_store(void **state) {
  char devices[64];
  struct rlimit before, none;
  bool done = false;
  (void)state;
  set_mode("wait");
  brim_lab_sweep *sweep =
      open_sweep((brim_lab_sweep_options){.jobs = 2, .store = {.lease_ms = 2000}});
  submit_guide(sweep, devices);
  assert_false(turn_until_running(sweep, 2));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
  brim_lab_sweep_stop(sweep);
  for (int i = 0; i < 1000 && !done; i++) {
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 20, &done));
  }
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_true(done);
  assert_int_equal(brim_lab_sweep_end(sweep), BRIM_LAB_END_STOPPED);
  brim_lab_sweep_close(sweep);
  let_go();
  char place[64];
  snprintf(place, sizeof place, "sweep-%d", place_count);
  sweep = open_sweep((brim_lab_sweep_options){.place = place, .jobs = 2});
  turn_until_done(sweep);
  assert_int_equal(view_of(sweep)->counts[BRIM_SWEEP_DONE], 6);
  brim_lab_sweep_close(sweep);
}

// Results in an unnamed file would disappear with the sweep.
static void test_a_removed_store_ends_the_sweep(void **state) {
  char devices[64], path[96], other[128];
  bool done = false;
  (void)state;
  set_mode("wait");
  brim_lab_sweep *sweep = open_sweep((brim_lab_sweep_options){.jobs = 1});
  submit_guide(sweep, devices);
  assert_false(turn_until_running(sweep, 1));
  snprintf(path, sizeof path, "sweep-%d/lab.sqlite", place_count);
  assert_int_equal(unlink(path), 0);
  snprintf(path, sizeof path, "sweep-%d/sweep.json", place_count);
  snprintf(other, sizeof other, "{\"pid\": 1, \"socket\": \"other\"}");
  assert_ok(brim_fs_write(path, other, strlen(other)));
  brim_status status = BRIM_OK;
  for (int i = 0; i < 500 && !status; i++) {
    status = brim_lab_sweep_turn(sweep, NULL, 0, 20, &done);
  }
  assert_status(status, BRIM_ESTATE);
  let_go();
  brim_lab_sweep_close(sweep);
  assert_true(brim_fs_exists(path));  // belongs to the sweep that runs now
}

static void test_which_failures_are_the_same(void **state) {
  brim_lab_same same = {0};
  (void)state;
  assert_false(
      brim_lab_same_add(&same, "a", "runs/x/exp/a", BRIM_FAILURE_DATA, "runs/x/exp/a/log: line 7"));
  assert_false(brim_lab_same_add(&same, "b", "runs/x/exp/b", BRIM_FAILURE_DATA,
                                 "runs/x/exp/b/log: line 12"));
  // an experiment counts once, infrastructure never
  assert_false(brim_lab_same_add(&same, "b", "runs/x/exp/b", BRIM_FAILURE_DATA,
                                 "runs/x/exp/b/log: line 12"));
  assert_false(brim_lab_same_add(&same, "c", "runs/x/exp/c", BRIM_FAILURE_INFRASTRUCTURE, "x"));
  assert_true(
      brim_lab_same_add(&same, "c", "runs/x/exp/c", BRIM_FAILURE_DATA, "runs/x/exp/c/log: line 3"));
  // another message, another class, or an experiment that was done
  same = (brim_lab_same){0};
  brim_lab_same_add(&same, "a", "f", BRIM_FAILURE_DATA, "one");
  brim_lab_same_add(&same, "b", "f", BRIM_FAILURE_DATA, "another");
  brim_lab_same_add(&same, "c", "f", BRIM_FAILURE_DATA, "one");
  assert_false(brim_lab_same_add(&same, "d", "f", BRIM_FAILURE_DATA, "one"));
  same = (brim_lab_same){0};
  brim_lab_same_add(&same, "a", "f", BRIM_FAILURE_CRASH, "one");
  brim_lab_same_add(&same, "b", "f", BRIM_FAILURE_CRASH, "one");
  assert_false(brim_lab_same_add(&same, "c", "f", BRIM_FAILURE_DATA, "one"));
  same = (brim_lab_same){0};
  brim_lab_same_done(&same);
  for (int i = 0; i < 5; i++) {
    char id[2] = {(char)('a' + i), '\0'};
    assert_false(brim_lab_same_add(&same, id, "f", BRIM_FAILURE_DATA, "one"));
  }
}

// While the store is away the loop waits for it: due times of the placement do not wake it.
static void test_waits_while_the_store_is_away(void **state) {
  (void)state;
  brim_lab_sweep *sweep = open_sweep((brim_lab_sweep_options){.jobs = 1});
  int turns = 0;
  bool done = false;
  sweep->trouble_ms = brim_clock_ms() + 300;
  for (; brim_clock_ms() < sweep->trouble_ms && turns < 1000; turns++) {
    assert_ok(brim_lab_sweep_turn(sweep, NULL, 0, 1000, &done));
    assert_false(done);
  }
  if (turns > 30) fail_msg("%d turns", turns);
  brim_lab_sweep_close(sweep);
}

int main(int argc, char **argv) {
  if (argc > 3 && strcmp(argv[3], "execute") == 0) return execute(argc, argv);
  unsetenv("CUDA_VISIBLE_DEVICES");  // this would hide fake GPUs too
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_six_experiments_on_four_gpus),
      cmocka_unit_test(test_several_on_one_gpu),
      cmocka_unit_test(test_parts_of_a_gpu),
      cmocka_unit_test(test_submitting_again_adds_nothing),
      cmocka_unit_test(test_the_same_failure_stops_the_grid),
      cmocka_unit_test(test_an_executor_that_dies_costs_no_retry),
      cmocka_unit_test(test_a_retry_waits_for_the_process),
      cmocka_unit_test(test_stopping),
      cmocka_unit_test(test_wishes_reach_an_executor_at_once),
      cmocka_unit_test(test_paused_experiments_are_waited_for),
      cmocka_unit_test(test_what_fits_nowhere),
      cmocka_unit_test(test_a_gpu_out_of_service_is_named),
      cmocka_unit_test(test_a_second_sweep_is_refused),
      cmocka_unit_test(test_waits_while_the_store_is_away),
      cmocka_unit_test(test_a_store_in_trouble_costs_no_processor),
      cmocka_unit_test(test_stopping_without_a_store),
      cmocka_unit_test(test_a_removed_store_ends_the_sweep),
      cmocka_unit_test(test_which_failures_are_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
