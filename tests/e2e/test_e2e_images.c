// A convnet on augmented images, killed with SIGKILL between checkpoints and resumed: all files equal those of the
// uninterrupted run byte for byte, with running statistics and fp16's loss scale. Multi-layer perceptrons are in
// test_e2e_kill.c.
#include "e2e/e2e.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct variant {
  const char *backend, *precision;
  const char *batch;  // "data.batch_size=8"
  int steps;          // steps in both epochs
  bool skips;         // the loss scale starts too high: some steps are skipped
} variant;

// Two samples per batch: their gradients are large enough to overflow fp16 at the first loss scale. They are also the
// degenerate case of batch norm: in the last stage, which is 1x1, two values always become -1 and 1, the exact gradient
// is zero, and in 16 bits only rounding error remains. Whether such a run stays finite depends on the order of every
// sum, and so on the CPU. Eight samples train alike on all CPUs.
#define BATCH_OF_2 "data.batch_size=2", 160
#define BATCH_OF_8 "data.batch_size=8", 40

static const char *const settings[] = {
    "train",
    "dataset=synthetic(shape=(12, 12, 3), classes=10, samples=160, val_samples=30)",
    "transform.train=random_crop(size=8) | random_flip | cutout(size=2)",
    "transform.val=center_crop(size=8)",
    "model=resnet18(width=4)",
    "optimizer=sgd(lr=0.02, momentum=0.9, nesterov=true, weight_decay=5e-4)",
    "scheduler=cosine",
    "data.num_workers=2",
    "training.epochs=2",
    "checkpoint.interval=6",
    "--quiet",
};
enum { SETTINGS = sizeof settings / sizeof *settings, KILLS = 3 };

static void arguments(const char **args, const variant *v, const char *folder, bool resume) {
  int n = 0;
  for (; n < SETTINGS; n++) args[n] = settings[n];
  args[n++] = v->batch;
  args[n++] = "--precision";
  args[n++] = v->precision;
  args[n++] = "--device";
  args[n++] = v->backend;
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

// A number from the last checkpoint's metadata, "brim.step" and others; -1 if there is none yet.
static long long last_number(const char *folder, const char *key) {
  char path[128], text[64], *data = NULL;
  size_t size = 0;
  snprintf(path, sizeof path, "%s/last.safetensors", folder);
  if (brim_fs_read(path, 0, &data, &size)) {
    brim_status_clear();
    return -1;
  }
  // The header is JSON behind its length in eight bytes; the copy ends in a zero.
  int n = snprintf(text, sizeof text, "\"%s\":\"", key);
  const char *found = size > 8 ? strstr(data + 8, text) : NULL;
  long long value = found ? strtoll(found + n, NULL, 10) : -1;
  brim_free(data);
  return value;
}

// Starts the run and kills it a moment after a checkpoint of `step` or later exists, so that steps are lost. False if
// the run ended first.
static bool start_and_kill(const variant *v, const char *folder, int kill_number, long long step) {
  const char *args[E2E_MAX_ARGS] = {BRIM_BINARY};
  arguments(args + 1, v, folder, kill_number > 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    execv(BRIM_BINARY, (char *const *)args);
    _exit(127);
  }
  int status = 0;
  while (last_number(folder, "brim.step") < step) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      assert_true(WIFEXITED(status));
      assert_int_equal(WEXITSTATUS(status), 0);
      return false;
    }
    usleep(500);
  }
  usleep((useconds_t)(3000 * kill_number));
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFSIGNALED(status)) assert_int_equal(WEXITSTATUS(status), 0);
  return WIFSIGNALED(status);
}

static void run_whole(const variant *v, const char *folder) {
  const char *args[E2E_MAX_ARGS];
  char *output = NULL;
  arguments(args, v, folder, false);
  int code = e2e_run(args, NULL, &output);
  if (code == 3) {
    brim_free(output);
    BRIM_SKIP("this backend is not on this machine, or has no such precision");
  }
  if (code) fail_msg("brim train: exit %d: %s", code, output);
  brim_free(output);
  assert_int_equal(last_number(folder, "brim.step"), v->steps);
}

static void kill_and_compare(const variant *v) {
  static const char *const files[] = {"last.safetensors", "best.safetensors", "model.safetensors"};
  const char *args[E2E_MAX_ARGS];
  char whole[64], cut[64], a[128], b[128];
  snprintf(whole, sizeof whole, "images-whole-%s-%s", v->backend, v->precision);
  snprintf(cut, sizeof cut, "images-cut-%s-%s", v->backend, v->precision);
  remove_folder(whole);
  remove_folder(cut);
  run_whole(v, whole);
  if (v->skips) assert_true(last_number(whole, "brim.skipped_steps") > 0);
  int kills = 0;
  for (int i = 0; i < KILLS; i++) {
    // never in the last part of the last epoch: the run might end first
    if (!start_and_kill(v, cut, i, 6 + (long long)i * v->steps / 4)) break;
    kills++;
  }
  assert_true(kills > 0);
  arguments(args, v, cut, true);
  assert_int_equal(e2e_run(args, NULL, NULL), 0);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(a, sizeof a, "%s/%s", whole, files[i]);
    snprintf(b, sizeof b, "%s/%s", cut, files[i]);
    assert_same_file(a, b);
  }
}

static void test_fp16_on_ref(void **state) {
  (void)state;
  kill_and_compare(&(variant){"ref", "fp16", BATCH_OF_2, true});
}

static void test_fp32_on_cpu(void **state) {
  (void)state;
  kill_and_compare(&(variant){"cpu", "fp32", BATCH_OF_8, false});
}

static void test_bf16_on_cpu(void **state) {
  (void)state;
  kill_and_compare(&(variant){"cpu", "bf16", BATCH_OF_8, false});
}

static void test_bf16_on_cuda(void **state) {
  (void)state;
  kill_and_compare(&(variant){"cuda", "bf16", BATCH_OF_8, false});
}

static void test_fp16_on_cuda(void **state) {
  (void)state;
  kill_and_compare(&(variant){"cuda", "fp16", BATCH_OF_8, false});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp16_on_ref),  cmocka_unit_test(test_fp32_on_cpu),
      cmocka_unit_test(test_bf16_on_cpu),  cmocka_unit_test(test_bf16_on_cuda),
      cmocka_unit_test(test_fp16_on_cuda),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
