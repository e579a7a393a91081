// Killed with SIGKILL in the middle of an epoch and resumed, as often as needed: the final checkpoint equals the
// uninterrupted one byte for byte.
#include "e2e/e2e.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const settings[] = {
    "train",
    "dataset=synthetic(shape=(16, 16), classes=10, samples=4000)",
    "model=mlp(depth=2, hidden=96, dropout=0.1)",
    "optimizer=adamw(lr=3e-3)",
    "scheduler=cosine",
    "data.batch_size=50",
    "data.num_workers=2",
    "training.epochs=3",
    "checkpoint.interval=7",
    "--quiet",
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void arguments(const char **args, const char *backend, const char *folder, bool resume) {
  int n = 0;
  for (; n < SETTINGS; n++) args[n] = settings[n];
  args[n++] = "--device";
  args[n++] = backend;
  args[n++] = "--threads";
  args[n++] = "2";
  args[n++] = "--output-dir";
  args[n++] = folder;
  if (resume) args[n++] = "--resume";
  args[n] = NULL;
}

static void remove_folder(const char *folder) {
  char command[256];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
}

// Starts brim, and kills it when last.safetensors has changed `wait` times or after a while. Returns true if it was
// killed, false if it had already finished.
static bool start_and_kill(const char *backend, const char *folder, bool resume, int delay_ms) {
  const char *args[E2E_MAX_ARGS] = {BRIM_BINARY};
  arguments(args + 1, backend, folder, resume);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    execv(BRIM_BINARY, (char *const *)args);
    _exit(127);
  }
  usleep((useconds_t)delay_ms * 1000);
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) == pid) {
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
  }
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) {
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return true;
  }
  assert_int_equal(WEXITSTATUS(status), 0);
  return false;
}

static void kill_and_compare(const char *backend) {
  const char *args[E2E_MAX_ARGS];
  char whole[64], cut[64], a[128], b[128];
  snprintf(whole, sizeof whole, "whole-%s", backend);
  snprintf(cut, sizeof cut, "cut-%s", backend);
  remove_folder(whole);
  remove_folder(cut);
  arguments(args, backend, whole, false);
  char *output = NULL;
  brim_time start = brim_clock_now();
  int code = e2e_run(args, NULL, &output);
  int64_t ms = brim_time_since_ns(start, brim_clock_now()) / 1000000;
  if (code == 3) {
    brim_free(output);
    BRIM_SKIP("this backend is not on this machine");
  }
  if (code) fail_msg("brim train: exit %d: %s", code, output);
  brim_free(output);
  // kill at points spread over the run's length; resume each time from the files there
  int kills = 0;
  bool resume = false;
  for (int i = 0; i < 12; i++) {
    int delay = (int)(ms / 8 + ms * (i % 5) / 10);
    bool killed = start_and_kill(backend, cut, resume, delay);
    snprintf(a, sizeof a, "%s/last.safetensors", cut);
    resume = brim_fs_exists(a);
    if (!killed) break;
    kills++;
  }
  assert_true(kills > 0);
  arguments(args, backend, cut, resume);
  assert_int_equal(e2e_run(args, NULL, NULL), 0);
  static const char *const files[] = {"last.safetensors", "best.safetensors", "model.safetensors"};
  for (size_t i = 0; i < 3; i++) {
    snprintf(a, sizeof a, "%s/%s", whole, files[i]);
    snprintf(b, sizeof b, "%s/%s", cut, files[i]);
    assert_same_file(a, b);
  }
}

static void test_killed_and_resumed_on_ref(void **state) {
  (void)state;
  kill_and_compare("ref");
}

static void test_killed_and_resumed_on_cpu(void **state) {
  (void)state;
  kill_and_compare("cpu");
}

static void test_killed_and_resumed_on_cuda(void **state) {
  (void)state;
  kill_and_compare("cuda");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_killed_and_resumed_on_ref),
      cmocka_unit_test(test_killed_and_resumed_on_cpu),
      cmocka_unit_test(test_killed_and_resumed_on_cuda),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
