// Real trainings under real executors: executors and trainings are killed and stopped at random moments,
// and the experiment ends with the checkpoint, the metrics and the epochs of the undisturbed run.
#include "test.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/exec/lab_exec.h"
#include "lab/wire/lab_wire_link.h"
#include "lab/wire/lab_wire_server.h"
#include "process_run.h"
#include "same_file.h"

#define BRIM_BINARY BRIM_BUILD_DIR "/bin/brim"

enum { LEASE_MS = 700, LIMIT_S = 240, EPOCHS = 4, MOST_DISTURBANCES = 10 };

// Large enough that a fast device takes seconds; %d: width. A build with sanitizers computes many times slower, so a
// quarter of the width takes it as long.
static const char config_text[] =
    "name: killed\n"
    "dataset: synthetic(shape=(16, 16), classes=10, samples=4000)\n"
    "model: mlp(depth=2, hidden=%d, dropout=0.1)\n"
    "optimizer: adamw(lr=3e-3)\n"
    "scheduler: cosine\n"
    "data: {batch_size: 50, num_workers: 2}\n"
    "training: {epochs: 4}\n"
    "checkpoint: {interval: 10}\n"
    "log: {interval: 5}\n";

void __lsan_disable(void) __attribute__((weak));  // there in a build with sanitizers

static char config[1024];

static const char *const ids[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                  "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"};

// A small sweep: the store, its socket, one executor at a time.
typedef struct queue {
  char place[64];
  const char *device;
  brim_store *store;
  brim_lab_ops ops;
  brim_lab_server *server;
  brim_lab_link *link;  // the test's own, to the store
  uint64_t random;
} queue;

static uint64_t draw(queue *q, uint64_t below) {
  q->random = q->random * 6364136223846793005u + 1442695040888963407u;
  return (q->random >> 33) % below;
}

static void open_store(queue *q) {
  const brim_store_options o = {
      .lease_ms = LEASE_MS, .grace_ms = -1, .backoff_ms = 1, .infra_tries = 1000};
  assert_ok(brim_store_open(q->place, &o, &q->store));
  q->ops = (brim_lab_ops){.store = q->store};
  const brim_lab_server_options s = {.folder = q->place, .ops = q->ops};
  assert_ok(brim_lab_server_open(&s, &q->server));
  assert_ok(brim_lab_link_local(&q->ops, &q->link));
}

static void close_store(queue *q) {
  brim_lab_link_close(q->link);
  brim_lab_server_close(q->server);
  brim_store_close(q->store);
}

static void open_queue(queue *q, const char *device) {
  memset(q, 0, sizeof *q);
  q->device = device;
  q->random = 20261117;
  snprintf(q->place, sizeof q->place, "queue on %s", device);
  const char *const clean[] = {"rm", "-rf", q->place, NULL};
  process_result r = process_run(clean, NULL, 60000);
  brim_free(r.output);
  open_store(q);
  const brim_store_grid grid = {.id = "g", .name = "g", .text = "", .version = "test"};
  brim_store_point points[2];
  memset(points, 0, sizeof points);
  for (int i = 0; i < 2; i++) {
    points[i] = (brim_store_point){.id = ids[i],
                                   .idx = i,
                                   .label = ids[i],
                                   .config = config,
                                   .metric_key = "eval_loss",
                                   .epochs = EPOCHS,
                                   .tries = 2};
  }
  brim_store_submitted submitted;
  assert_ok(brim_store_submit(q->store, &grid, points, 2, &submitted));
}

static void folder_of(const queue *q, int which, char out[128]) {
  snprintf(out, 128, "%s/exp/%.12s", q->place, ids[which]);
}

static void serve(queue *q, int64_t ms) {
  int64_t until = brim_clock_now().ns + ms * 1000000;
  do {
    struct pollfd p = {.fd = brim_lab_server_fd(q->server), .events = POLLIN};
    poll(&p, 1, 5);
    assert_ok(brim_lab_server_serve(q->server));
  } while (brim_clock_now().ns < until);
}

static brim_exp_state state_of(queue *q, int which) {
  brim_store_exp *exp = NULL;
  assert_ok(brim_store_get(q->store, ids[which], &exp));
  brim_exp_state state = exp->state;
  brim_store_exp_free(exp);
  return state;
}

// Claims the experiment, waiting for leases to end, and starts its executor.
static pid_t start(queue *q, int which) {
  static int claims;
  brim_store_claimed claimed = {0};
  char claim[32], folder[128], words[8][192];
  snprintf(claim, sizeof claim, "c%d", claims++);
  const brim_store_request want = {
      .worker = "test", .claim_id = claim, .exp = ids[which], .free_bytes = -1};
  for (int64_t waited = 0; !claimed.exp; waited += 20) {
    assert_true(waited < LIMIT_S * 1000);
    assert_ok(brim_store_reap(q->store, NULL));
    if (state_of(q, which) == BRIM_EXP_QUEUED) {
      assert_ok(brim_store_claim(q->store, &want, &claimed));
    }
    if (!claimed.exp) serve(q, 20);
  }
  folder_of(q, which, folder);
  snprintf(words[0], sizeof words[0], "place=%s", q->place);
  snprintf(words[1], sizeof words[1], "folder=%s", folder);
  snprintf(words[2], sizeof words[2], "exp=%s", ids[which]);
  snprintf(words[3], sizeof words[3], "attempt=%lld", (long long)claimed.ref.attempt);
  snprintf(words[4], sizeof words[4], "fence=%lld", (long long)claimed.ref.fence);
  snprintf(words[5], sizeof words[5], "device=%s", q->device);
  const char *const argv[] = {BRIM_BINARY,  "sweep",           "execute", words[0], words[1],
                              words[2],     words[3],          words[4],  words[5], "threads=2",
                              "beat_ms=50", "linger_ms=60000", "--quiet", NULL};
  brim_store_exp_free(claimed.exp);
  fflush(stdout);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
  }
  return pid;
}

static bool running(pid_t pid) {
  siginfo_t info = {0};
  assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
  return info.si_pid == 0;
}

static bool ended(pid_t pid) {
  int status = 0;
  pid_t got = waitpid(pid, &status, WNOHANG);
  assert_true(got >= 0);
  if (got == 0) return false;
  if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
  return true;
}

static void finish(queue *q, pid_t pid) {
  for (int64_t waited = 0; !ended(pid); waited += 20) {
    assert_true(waited < LIMIT_S * 1000);
    serve(q, 20);
  }
}

// The sweep replays the spool like this after an executor has ended.
static void replay(queue *q, int which) {
  char folder[128];
  brim_lab_replayed done = {0};
  folder_of(q, which, folder);
  assert_ok(brim_lab_spool_replay_folder(folder, q->link, &done));
}

//---------------------------------- disturbances ----------------------------------

enum { KILL_EXECUTOR, KILL_TRAINING, ASK_EXECUTOR, KILL_SWEEP, STOP_EXECUTOR, KINDS };

static void kill_training(const queue *q, int which) {
  char folder[128];
  brim_lab_exec_owner owner;
  folder_of(q, which, folder);
  if (brim_lab_exec_find(folder, &owner) && owner.child > 0) kill((pid_t)owner.child, SIGKILL);
}

// A number that changes with every written checkpoint; 0 = none yet.
static uint64_t checkpoint_of(const queue *q, int which) {
  char path[192], folder[128];
  struct stat st;
  folder_of(q, which, folder);
  snprintf(path, sizeof path, "%s/last.safetensors", folder);
  if (stat(path, &st) != 0) return 0;
  return (uint64_t)st.st_ino * 1000003u + (uint64_t)st.st_mtim.tv_nsec + 1;
}

// Waits for a random moment of an attempt: soon after its start, or some checkpoints later.
static void wait_moment(queue *q, int which, pid_t pid) {
  uint64_t writes = draw(q, 4), last = checkpoint_of(q, which);
  for (int64_t waited = 0; writes > 0 && waited < LIMIT_S * 1000 && running(pid); waited++) {
    serve(q, 1);
    uint64_t now = checkpoint_of(q, which);
    writes -= now != last;
    last = now;
  }
  serve(q, (int64_t)draw(q, 60));
}

// Disturbs one attempt; true if it was still running then. *stopped: an executor that waits for a signal, and for the
// next attempt to end it.
static bool disturb(queue *q, int which, int kind, pid_t *stopped) {
  pid_t pid = start(q, which);
  *stopped = 0;
  wait_moment(q, which, pid);
  bool hit = running(pid);
  if (kind == KILL_TRAINING) {
    kill_training(q, which);
  } else if (kind == ASK_EXECUTOR) {
    kill(pid, SIGTERM);
  } else if (kind == STOP_EXECUTOR && hit) {
    kill(pid, SIGSTOP);
    *stopped = pid;
    return true;
  } else if (kind == KILL_SWEEP) {
    // no sweep answers for a while, then another one does, and the executor is killed
    close_store(q);
    brim_clock_sleep_ns(200000000);
    open_store(q);
    serve(q, 100);
    kill(pid, SIGKILL);
  } else {
    kill(pid, SIGKILL);
  }
  finish(q, pid);
  replay(q, which);
  return hit;
}

//---------------------------------- comparing ----------------------------------

typedef struct row {
  char key[64];
  int64_t step;
  double value;
} row;
typedef struct rows {
  row *list;
  size_t count;
} rows;

static brim_status keep_row(void *ctx, const brim_store_metric *m, int64_t attempt) {
  rows *r = ctx;
  (void)attempt;
  if (strcmp(m->key, "samples_per_s") == 0) return BRIM_OK;  // depends on the machine
  r->list = realloc(r->list, (r->count + 1) * sizeof *r->list);
  assert_non_null(r->list);
  row *to = &r->list[r->count++];
  memset(to, 0, sizeof *to);
  snprintf(to->key, sizeof to->key, "%s", m->key);
  to->step = m->step;
  to->value = m->value;
  return BRIM_OK;
}

static void same_metrics(queue *q) {
  rows a = {0}, b = {0};
  assert_ok(brim_store_read_metrics(q->store, ids[0], NULL, keep_row, &a));
  assert_ok(brim_store_read_metrics(q->store, ids[1], NULL, keep_row, &b));
  assert_true(a.count > 200);
  assert_int_equal(a.count, b.count);
  for (size_t i = 0; i < a.count; i++) {
    if (strcmp(a.list[i].key, b.list[i].key) != 0 || a.list[i].step != b.list[i].step ||
        memcmp(&a.list[i].value, &b.list[i].value, sizeof(double)) != 0) {
      fail_msg("%s at step %lld: %.17g, undisturbed %s at %lld: %.17g", b.list[i].key,
               (long long)b.list[i].step, b.list[i].value, a.list[i].key, (long long)a.list[i].step,
               a.list[i].value);
    }
  }
  free(a.list);
  free(b.list);
}

static void same_files(const char *a, const char *b) {
  static const char *const names[] = {"last.safetensors", "best.safetensors", "model.safetensors"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *x = brim_fs_join(a, names[i]), *y = brim_fs_join(b, names[i]);
    assert_same_file(x, y);
    brim_free(x);
    brim_free(y);
  }
}

typedef struct attempts {
  int64_t all, ok;
} attempts;

static brim_status count_attempt(void *ctx, const brim_store_attempt *a) {
  attempts *n = ctx;
  n->all++;
  n->ok += a->outcome == BRIM_ATTEMPT_OK;
  assert_int_not_equal(a->outcome, BRIM_ATTEMPT_OPEN);
  return BRIM_OK;
}

static void check_done(queue *q, int which, int64_t least) {
  brim_store_exp *exp = NULL;
  attempts n = {0};
  char folder[128];
  assert_ok(brim_store_get(q->store, ids[which], &exp));
  if (exp->state != BRIM_EXP_DONE) fail_msg("%s: %s", exp->failure, exp->reason);
  assert_int_equal(exp->epoch, EPOCHS);
  assert_int_equal(exp->epochs, EPOCHS);
  assert_int_equal(exp->step, exp->steps);
  assert_int_equal(exp->ckpt_step, exp->steps);
  brim_store_exp_free(exp);
  assert_ok(brim_store_attempts(q->store, ids[which], count_attempt, &n));
  assert_int_equal(n.ok, 1);
  assert_true(n.all >= least);
  folder_of(q, which, folder);
  assert_false(brim_lab_exec_find(folder, NULL));
}

// Asserts that no process has the folder on its command line: neither a training nor an executor is left.
static void no_orphans(const queue *q) {
  DIR *proc = opendir("/proc");
  assert_non_null(proc);
  for (struct dirent *e; (e = readdir(proc));) {
    char path[300], line[4096];
    if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid()) continue;
    snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
    FILE *file = fopen(path, "rbe");
    if (!file) continue;
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    for (size_t i = 0; i < n; i++) line[i] = line[i] ? line[i] : ' ';
    char cwd[1024] = "", own[1024] = "";
    snprintf(path, sizeof path, "/proc/%s/cwd", e->d_name);
    if (readlink(path, cwd, sizeof cwd - 1) < 0 || !getcwd(own, sizeof own)) continue;
    if (strcmp(cwd, own) == 0 && strstr(line, q->place)) fail_msg("left behind: %s", line);
  }
  closedir(proc);
}

//---------------------------------- the test ----------------------------------

// At least `least` disturbances have to hit a running training.
static void kill_and_compare(const char *device, int width, int least) {
  queue q;
  char whole[128], cut[128], plain[64];
  snprintf(plain, sizeof plain, "plain on %s", device);
  snprintf(config, sizeof config, config_text, __lsan_disable ? width / 4 : width);
  assert_ok(brim_fs_write("experiment.yaml", config, strlen(config)));
  const char *const clean[] = {"rm", "-rf", plain, NULL};
  process_result r = process_run(clean, NULL, 60000);
  brim_free(r.output);
  const char *const train[] = {BRIM_BINARY,    "train", "experiment.yaml", "--device", device,
                               "--output-dir", plain,   "--threads",       "2",        NULL};
  r = process_run(train, NULL, LIMIT_S * 1000);
  if (r.exit_code == 3) {
    brim_free(r.output);
    BRIM_SKIP("this backend is not on this machine");
  }
  if (r.exit_code) fail_msg("brim train: exit %d: %s", r.exit_code, r.output);
  brim_free(r.output);

  open_queue(&q, device);
  folder_of(&q, 0, whole);
  folder_of(&q, 1, cut);
  finish(&q, start(&q, 0));
  check_done(&q, 0, 1);
  same_files(plain, whole);

  int made = 0;
  for (int i = 0; i < MOST_DISTURBANCES && state_of(&q, 1) != BRIM_EXP_DONE; i++) {
    pid_t stopped;
    made += disturb(&q, 1, i % KINDS, &stopped);
    if (!stopped) continue;
    // its lease expires; the next attempt ends it and its training, stopped or not
    pid_t next = start(&q, 1);
    if (draw(&q, 2)) kill(stopped, SIGCONT);
    finish(&q, stopped);
    wait_moment(&q, 1, next);
    made += running(next);
    kill(next, SIGKILL);
    finish(&q, next);
    replay(&q, 1);
  }
  print_message("%s: %d disturbances\n", device, made);
  assert_true(made >= least);
  while (state_of(&q, 1) != BRIM_EXP_DONE) {
    assert_int_not_equal(state_of(&q, 1), BRIM_EXP_FAILED);
    finish(&q, start(&q, 1));
    replay(&q, 1);
  }
  check_done(&q, 1, least + 1);
  same_files(whole, cut);
  same_metrics(&q);
  no_orphans(&q);
  close_store(&q);
}

// The seed selects one of the two.
static bool is_refs_turn(void) { return test_is_sampled(0, 2); }

static void test_killed_and_resumed_on_ref(void **state) {
  (void)state;
  if (!is_refs_turn()) return;
  kill_and_compare("ref", 128, 3);
}

static void test_killed_and_resumed_on_cpu(void **state) {
  (void)state;
  if (is_refs_turn() && !test_is_full()) return;
  kill_and_compare("cpu", 384, 3);
}

static void test_killed_and_resumed_on_cuda(void **state) {
  (void)state;
  kill_and_compare("cuda", 2048, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_killed_and_resumed_on_ref),
      cmocka_unit_test(test_killed_and_resumed_on_cpu),
      cmocka_unit_test(test_killed_and_resumed_on_cuda),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
