// `brim train` on several ranks of this machine: started by brim, and by mpirun. One rank is killed or stopped, all end
// and name it, and --resume continues to the same bits as an uninterrupted run.
#include "cli_test.h"
#include "mpi_run.h"

#define STEPS "--max-steps 240 "
#define ODD "brim train ranks.yaml dataset='synthetic(samples=67)' --max-steps 1 "

static const char config[] =
    "model: resnet18(width=4)\ndataset: synthetic(samples=64)\ndata: {batch_size: 8}\n"
    "training: {epochs: 1000, learning_rate: 0.01}\noptimizer: sgd\ndevice: cpu\n"
    "checkpoint: {interval: 5}\nlog: {interval: 1000}\n";

// Waits for a checkpoint of $1, then sends signal $2 to rank $3 of the children of $4.
static const char helpers[] =
    "rank_of() { for r in $(cat /proc/$2/task/*/children 2>/dev/null); do\n"
    "  tr '\\0' '\\n' </proc/$r/environ 2>/dev/null | grep -qx \"$3=$1\" && echo $r; done; }\n"
    "strike() { n=0; until [ -e $1/last.safetensors ] || [ $n -gt 1200 ]; do\n"
    "  sleep 0.05; n=$((n + 1)); done\n"
    "  victim=$(rank_of $3 $4 ${5:-BRIM_RANK}); echo \"victim $victim\"; kill -$2 $victim; }\n";

static void fresh(const char *folders) {
  shell_result r = shell("rm -rf %s", folders);
  shell_free(&r);
  write_file("ranks.yaml", config);
  write_file("helpers.sh", helpers);
}

static size_t count_of(const char *text, const char *words) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, words)) != NULL; at++) count++;
  return count;
}

static void expect_same(const char *a, const char *b) {
  shell_result r = shell("cmp %s/model.safetensors %s/model.safetensors", a, b);
  if (r.code != 0) fail_msg("%s and %s differ: %s%s", a, b, r.out, r.err);
  shell_free(&r);
}

// Makes the uninterrupted run, once for all cases.
static int train_whole(void **state) {
  (void)state;
  fresh("whole");
  says_rows(0, "done: ", "brim train ranks.yaml --ranks 2 " STEPS "--output-dir whole");
  return 0;
}

// Rank 0 prints what a single process prints; the other ranks print nothing.
static void test_output(void **state) {
  (void)state;
  fresh("out out2 out3");
  shell_result r =
      shell("brim train ranks.yaml --ranks 3 batch_size=6 --max-steps 9 --output-dir out");
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  assert_string_equal(r.err, "");
  assert_int_equal(count_of(r.out, "done: 9 steps"), 1);
  shell_free(&r);
  r = shell("brim train ranks.yaml --device cpu,cpu --json --max-steps 9 --output-dir out2");
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  json_lines(r.out);
  assert_int_equal(count_of(r.out, "\"event\":\"start\""), 1);
  assert_int_equal(count_of(r.out, "\"event\":\"result\""), 1);
  shell_free(&r);
  // A list of devices means its first device if there is one rank.
  says_rows(0, "done: ",
            "brim train ranks.yaml device=[cpu,cpu] --ranks 1 --max-steps 1 --output-dir out3");
}

static void test_mistakes(void **state) {
  (void)state;
  fresh("bad");
  says(2, "brim train ranks.yaml --ranks 2 --gpus 3 --output-dir bad");
  says(2, "brim train ranks.yaml --device cpu,cpu --gpus 3 --output-dir bad");
  expect(3, "this machine has 0 GPUs; ranks=2",
         "CUDA_VISIBLE_DEVICES= brim train ranks.yaml --device cuda --gpus 2 --output-dir bad");
  // Every rank makes these mistakes; one reports them.
  static const struct {
    int code;
    const char *words, *command;
  } cases[] = {
      {2, "batch_size is 8, which 3 ranks cannot share", "--ranks 3"},
      {3, "this machine has 0 GPUs", "--device 0,1"},
      {2, "no-such-file", "--ranks 2 --weights no-such-file.safetensors"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shell_result r =
        shell("CUDA_VISIBLE_DEVICES= brim train ranks.yaml %s --output-dir bad", cases[i].command);
    if (r.code != cases[i].code) fail_msg("%s: exit %d: %s", cases[i].command, r.code, r.err);
    has(r.err, cases[i].words);
    if (count_of(r.err, "brim: error:") != 1) fail_msg("%s", r.err);
    shell_free(&r);
    assert_false(has_file("bad/last.safetensors"));
  }
  says(2, "brim train ranks.yaml --ranks 2 --output-dir whole");
}

// Makes images of which the `nth` is cut off: in the order of the set, rank (nth - 1) % ranks reads it.
static void make_images(int nth) {
  shell_result r = shell(
      "rm -rf images && brim data make images --format folder --shape 8,8,3 --classes 2 "
      "--samples 32 && f=$(ls images/train/*/* | sed -n %dp) && truncate -s -40 $f",
      nth);
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  write_file("images.yaml",
             "model: mlp(depth=2, hidden=8)\ndataset: folder\ntraining: {epochs: 3}\n"
             "data: {path: images, batch_size: 8, cache: none}\ndevice: cpu\n");
}

// A sample that cannot be read is not an error of the config, whichever rank reads it.
static void test_unreadable(void **state) {
  (void)state;
  for (int nth = 3; nth <= 4; nth++) {
    fresh("cut");
    make_images(nth);
    shell_result r = shell("brim train images.yaml --ranks 2 shuffle=false --output-dir cut");
    if (r.code != 1) fail_msg("image %d: exit %d: %s", nth, r.code, r.err);
    has(r.err, "lists every broken record");
    if (nth == 4) has(r.err, "rank 1 (");
    if (count_of(r.err, "brim: error:") != 1) fail_msg("%s", r.err);
    shell_free(&r);
  }
}

// A skipped sample is counted once, whichever ranks would have read it.
static void test_left_out(void **state) {
  (void)state;
  for (int nth = 3; nth <= 4; nth++) {
    fresh("skip1 skip2");
    make_images(nth);
    says_rows(0, "  warning  ",
              "brim train images.yaml --ranks 2 shuffle=false on_error=skip --output-dir skip1");
  }
  says_rows(0, "  warning  ", "brim train images.yaml --ranks 4 on_error=skip --output-dir skip2");
}

// The banner marks values of each rank.
static void test_banner(void **state) {
  (void)state;
  fresh("part1 part2 part3");
  says_rows(0, "  data  ", ODD "--ranks 2 --output-dir part1");
  shell_result r = shell(ODD "--ranks 2 drop_last=true --output-dir part2");
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "drop_last");
  // each rank's share of the machine's cores
  const char *threads = strstr(r.out, "  threads ");
  assert_non_null(threads);
  assert_true(atoi(threads + strlen("  threads ")) >= 1);
  said_rows(&r, "  memory  ");
  shell_free(&r);
  r = shell(ODD "--output-dir part3");
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  assert_null(strstr(r.out, " per epoch"));
  assert_null(strstr(r.out, " rank"));
  shell_free(&r);
}

// Cases that train to the end of STEPS, beside the complete run; each takes seconds, so a seed selects one of them.
enum {
  END_KILLED,
  END_KILLED_FIRST,
  END_STOPPED,
  END_STOPPED_FIRST,
  END_INTERRUPTED,
  END_MPI_KILLED,
  ENDS
};

static bool to_the_end(int which) {
  return test_is_full() || test_seed() % ENDS == (uint64_t)which;
}

static void resume_to_the_end(int which, const char *folder) {
  char command[256];
  if (!to_the_end(which)) return;
  snprintf(command, sizeof command,
           "brim train ranks.yaml --ranks 2 --resume " STEPS "--output-dir %s", folder);
  expect(0, "done: 240 steps", command);
  expect_same("whole", folder);
}

static void lose(int which, const char *how, const char *rank, const char *words) {
  fresh("lost");
  shell_result r = shell(". ./helpers.sh; " BRIM_BINARY " train ranks.yaml --ranks 2 " STEPS
                         "--output-dir lost & p=$!\n"
                         "strike lost %s %s $p; wait $p",
                         how, rank);
  if (r.code != 1) fail_msg("exit %d: %s", r.code, r.err);
  has(r.err, words);
  if (count_of(r.err, "brim: error:") != 1) fail_msg("%s", r.err);
  // The message has its PID.
  const char *victim = strstr(r.out, "victim ");
  char pid[32];
  assert_non_null(victim);
  snprintf(pid, sizeof pid, "PID %d)", atoi(victim + strlen("victim ")));
  has(r.err, pid);
  shell_free(&r);
  assert_false(has_file("lost/model.safetensors"));
  resume_to_the_end(which, "lost");
}

static void test_killed(void **state) {
  (void)state;
  lose(END_KILLED, "KILL", "1", "rank 1 (host ");
}

static void test_killed_first(void **state) {
  (void)state;
  lose(END_KILLED_FIRST, "KILL", "0", "rank 0 (PID ");
}

static void test_stopped(void **state) {
  (void)state;
  lose(END_STOPPED, "STOP", "1", "gave no sign of life for 5 seconds");
}

static void test_stopped_first(void **state) {
  (void)state;
  lose(END_STOPPED_FIRST, "STOP", "0", "rank 0 (PID ");
}

// A signal to the launcher: all ranks finish the same step, one saves it.
static void test_interrupted(void **state) {
  (void)state;
  fresh("lost");
  shell_result r = shell(
      BRIM_BINARY
      " train ranks.yaml --ranks 2 " STEPS
      "--output-dir lost & p=$!; n=0\n"
      "until [ -e lost/last.safetensors ] || [ $n -gt 1200 ]; do sleep 0.05; n=$((n + 1)); done\n"
      "kill -TERM $p; wait $p");
  if (r.code != 130) fail_msg("exit %d: %s", r.code, r.err);
  assert_int_equal(count_of(r.err, "finishing the step and saving"), 1);
  assert_int_equal(count_of(r.err, "interrupted at step"), 1);
  has_not(r.err, "[rank ");
  shell_free(&r);
  resume_to_the_end(END_INTERRUPTED, "lost");
}

// Ranks with different command lines, as when started by hand or with other files on each machine. Without a check they
// would wait for each other for ever, or train apart.
static void test_disagreeing(void **state) {
  (void)state;
  fresh("apart");
  static const struct {
    const char *change, *words;
  } cases[] = {
      {"lr=0.5", "training.learning_rate differs"},
      {"seed=7", "seed differs"},
      {"optimizer=adamw", "optimizer differs"},
      {"'dataset=synthetic(samples=80)'", "training samples is 64 there and 80 here"},
      {"log.interval=3", "log.interval is 1000 there and 3 here"},
      {"epochs=2", "training.epochs differs"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shell_result r = shell(
        "export BRIM_RANKS=2 BRIM_RANKS_NAME=/brim-test-apart-$$\n"
        "BRIM_RANK=0 timeout -s KILL 120 " BRIM_BINARY
        " train ranks.yaml --max-steps 40 --output-dir apart & p=$!\n"
        "BRIM_RANK=1 timeout -s KILL 120 " BRIM_BINARY
        " train ranks.yaml %s --max-steps 40 --output-dir apart; second=$?\n"
        "wait $p; echo \"codes $? $second\"",
        cases[i].change);
    if (!strstr(r.err, cases[i].words)) fail_msg("%s: %s%s", cases[i].change, r.out, r.err);
    has(r.out, "codes 5 2");  // exit code of a rank that follows another; of a mistake
    shell_free(&r);
    assert_false(has_file("apart/last.safetensors"));
  }
  // Keys that describe a machine may differ between ranks.
  shell_result r = shell(
      "export BRIM_RANKS=2 BRIM_RANKS_NAME=/brim-test-apart-$$\n"
      "BRIM_RANK=0 timeout -s KILL 120 " BRIM_BINARY
      " train ranks.yaml --max-steps 4 --output-dir apart & p=$!\n"
      "BRIM_RANK=1 timeout -s KILL 120 " BRIM_BINARY
      " train ranks.yaml threads=1 data.num_workers=1 --max-steps 4 --output-dir other\n"
      "second=$?; wait $p; echo \"codes $? $second\"");
  has(r.out, "codes 0 0");
  shell_free(&r);
}

//---------------------------------- mpirun ----------------------------------

// Shell words that go before "train ...".
static const char *under_mpirun(void) {
  static char text[512];
  const char *why, *argv[16];
  if (!mpi_is_here(BRIM_BUILD_DIR "/lib/brim/ranks/libbrim_mpi.so", &why)) return NULL;
  size_t n = mpi_arguments("2", argv);
  text[0] = 0;
  for (size_t i = 0; i < n; i++) {
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", argv[i]);
  }
  snprintf(text + strlen(text), sizeof text - strlen(text), "%s", BRIM_BINARY);
  return text;
}

// Ranks of mpirun compute the same bits, and ranks above 0 print nothing.
static void test_mpirun(void **state) {
  (void)state;
  const char *mpirun = under_mpirun();
  if (!mpirun) BRIM_SKIP("MPI is not here");
  fresh("mpi lost");
#define FEW "train ranks.yaml --max-steps 20 --output-dir "
  shell_result r = shell("%s " FEW "mpi", mpirun);
  if (r.code != 0) fail_msg("exit %d: %s", r.code, r.err);
  assert_int_equal(count_of(r.out, "done: 20 steps"), 1);
  assert_int_equal(count_of(r.out, "brim train"), 1);
  has_not(r.err, "brim:");
  shell_free(&r);
  expect(0, "done: 20 steps", "brim " FEW "lost --ranks 2");
  expect_same("lost", "mpi");
#undef FEW
}

static void test_mpirun_killed(void **state) {
  (void)state;
  const char *mpirun = under_mpirun();
  if (!mpirun) BRIM_SKIP("MPI is not here");
  fresh("mpi");
  shell_result r = shell(". ./helpers.sh; %s train ranks.yaml " STEPS
                         "--output-dir mpi & p=$!\n"
                         "strike mpi KILL 1 $p OMPI_COMM_WORLD_RANK; wait $p",
                         mpirun);
  if (r.code == 0) fail_msg("%s", r.err);
  has(r.err, "brim: error: rank 1 (host ");
  assert_int_equal(count_of(r.err, "brim: error:"), 1);
  shell_free(&r);
  // Ranks of another launcher continue the run.
  resume_to_the_end(END_MPI_KILLED, "mpi");
}

int main(void) {
  if (!has_file(BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so")) {
    BRIM_SKIP_ALL("the cpu plug-in was not built");
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_output),        cmocka_unit_test(test_mistakes),
      cmocka_unit_test(test_unreadable),    cmocka_unit_test(test_left_out),
      cmocka_unit_test(test_banner),        cmocka_unit_test(test_killed),
      cmocka_unit_test(test_killed_first),  cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_stopped_first), cmocka_unit_test(test_interrupted),
      cmocka_unit_test(test_disagreeing),   cmocka_unit_test(test_mpirun),
      cmocka_unit_test(test_mpirun_killed),
  };
  return cmocka_run_group_tests(tests, train_whole, NULL);
}
