// The lock of a GPU: between processes and sweeps, in a folder where other users can put anything, and for as long as
// an executor lives.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "lab/place/lab_place_int.h"
#include "place_test.h"

#define UUID "GPU-000000a0-0000-4000-8000-000000000000"
#define FILE_OF "locks/brim-gpu-" UUID ".lock"

static brim_lab_place_holder holder;

static int setup(void **state) {
  (void)state;
  memset(&pt, 0, sizeof pt);
  fake_reset(1);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  pt_close();
  return 0;
}

static void test_one_holder(void **state) {
  (void)state;
  int a = -1, b = -1;
  assert_ok(brim_lab_place_lock("locks", UUID, "/data/runs/my sweep", &a, &holder));
  assert_status(brim_lab_place_lock("locks", UUID, "other", &b, &holder), BRIM_EEXIST);
  assert_int_equal(b, -1);
  assert_int_equal(holder.pid, getpid());
  assert_string_equal(holder.store, "/data/runs/my sweep");
  assert_true(strlen(holder.user) > 0);
  assert_status(brim_lab_place_lock_probe("locks", UUID, &holder), BRIM_EEXIST);
  close(a);
  assert_ok(brim_lab_place_lock_probe("locks", UUID, &holder));
  assert_ok(brim_lab_place_lock("locks", UUID, "x", &b, &holder));
  // the file has only the new text: nothing of the longer text before is left
  assert_status(brim_lab_place_lock("locks", UUID, "y", &a, &holder), BRIM_EEXIST);
  assert_string_equal(holder.store, "x");
  close(b);
  assert_true(brim_fs_exists(FILE_OF));  // removing it would let two processes hold "the" lock
}

static void test_all_users_may_use_it(void **state) {
  (void)state;
  struct stat about;
  int fd = -1;
  mode_t before = umask(077);
  brim_status status = brim_lab_place_lock("locks", UUID, "x", &fd, &holder);
  umask(before);
  assert_ok(status);
  assert_int_equal(fstat(fd, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0666);
  close(fd);
}

static void test_a_child_keeps_it(void **state) {
  (void)state;
  int fd = -1, again = -1, ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_ok(brim_lab_place_lock("locks", UUID, "x", &fd, &holder));
  const char *argv[] = {"sh", "-c", "read x", NULL};
  brim_child *child = NULL;
  bool ended = false;
  assert_ok(brim_child_start(
      &(brim_child_options){.argv = argv, .in = BRIM_CHILD_PIPE, .pass_fds = &fd, .pass_count = 1},
      &child));
  close(fd);
  assert_status(brim_lab_place_lock("locks", UUID, "y", &again, &holder), BRIM_EEXIST);
  brim_child_close_input(child);
  assert_ok(brim_child_wait(child, -1, &ended));
  assert_true(ended);
  assert_ok(brim_lab_place_lock("locks", UUID, "y", &again, &holder));
  close(again);
  close(ends[0]);
  close(ends[1]);
  brim_child_close(child);
}

static void assert_refused_and_same(const char *path, const char *text) {
  int fd = -1;
  char *now = NULL;
  assert_status(brim_lab_place_lock("locks", UUID, "x", &fd, &holder), BRIM_EINVAL);
  assert_int_equal(fd, -1);
  assert_ok(brim_fs_read(path, 0, &now, NULL));
  assert_string_equal(now, text);
  brim_free(now);
}

// Anything another user may put there: brim neither writes to it nor waits for it.
static void test_planted_files(void **state) {
  (void)state;
  int fd = -1;
  assert_ok(brim_fs_write("victim", "precious", 8));
  assert_int_equal(symlink("../victim", FILE_OF), 0);
  assert_true(brim_lab_place_lock("locks", UUID, "x", &fd, &holder) != BRIM_OK);
  char *now = NULL;
  assert_ok(brim_fs_read("victim", 0, &now, NULL));
  assert_string_equal(now, "precious");
  brim_free(now);
  // a hard link to another file, even with valid contents
  assert_ok(brim_fs_write("victim", "brim-gpu 1 1 x\n", 15));
  assert_int_equal(unlink(FILE_OF), 0);
  assert_int_equal(link("victim", FILE_OF), 0);
  assert_refused_and_same("victim", "brim-gpu 1 1 x\n");
  assert_int_equal(unlink(FILE_OF), 0);
  assert_ok(brim_fs_write(FILE_OF, "letter to mum", 13));
  assert_refused_and_same(FILE_OF, "letter to mum");
  assert_int_equal(unlink(FILE_OF), 0);
  assert_int_equal(mkfifo(FILE_OF, 0666), 0);
  assert_true(brim_lab_place_lock("locks", UUID, "x", &fd, &holder) != BRIM_OK);
  assert_int_equal(unlink(FILE_OF), 0);
  assert_int_equal(mkdir(FILE_OF, 0777), 0);
  assert_true(brim_lab_place_lock("locks", UUID, "x", &fd, &holder) != BRIM_OK);
  assert_int_equal(rmdir(FILE_OF), 0);
  assert_true(brim_lab_place_lock("no such folder", UUID, "x", &fd, &holder) != BRIM_OK);
  assert_int_equal(fd, -1);
  unlink("victim");
}

static void test_odd_contents(void **state) {
  (void)state;
  static const char *const texts[] = {"brim-gpu ",
                                      "brim-gpu x",
                                      "brim-gpu 12",
                                      "brim-gpu 12 ",
                                      "brim-gpu 99999999999999999999999 7 s",
                                      "brim-gpu 12 4294967000 "};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int fd = -1, held = -1;
    assert_ok(brim_lab_place_lock("locks", UUID, "x", &held, &holder));
    assert_int_equal(ftruncate(held, 0), 0);
    assert_int_equal(pwrite(held, texts[i], strlen(texts[i]), 0), (ssize_t)strlen(texts[i]));
    assert_status(brim_lab_place_lock("locks", UUID, "y", &fd, &holder), BRIM_EEXIST);
    assert_string_equal(holder.store, strstr(texts[i], " s") ? "s" : "");
    close(held);
  }
}

static void test_removed_in_between(void **state) {
  (void)state;
  int a = -1, b = -1;
  assert_ok(brim_lab_place_lock("locks", UUID, "x", &a, &holder));
  brim_lab_place_lock_touch(a);
  brim_lab_place_lock_touch(-1);
  assert_int_equal(unlink(FILE_OF), 0);
  assert_ok(brim_lab_place_lock("locks", UUID, "y", &b, &holder));
  close(a);
  close(b);
}

//---------------------------------- two sweeps ----------------------------------

static void test_another_sweep(void **state) {
  (void)state;
  brim_lab_place *other = NULL;
  size_t chosen = 0;
  brim_lab_place_slot slot;
  pt_open((brim_lab_place_options){.store = "runs/a"});
  brim_lab_place_options o = {
      .store = "runs/b", .monitor = pt.monitor, .lock_dir = "locks", .root = FAKE_ROOT};
  assert_ok(brim_lab_place_open(&o, &other));
  assert_ok(brim_lab_place_tick(other, 1000));
  assert_ok(brim_lab_place_choose(other, 1000, &W(.exp = "theirs"), 1, &chosen, &slot));
  assert_int_equal(chosen, 0);
  // before our next reading: the lock alone decides
  assert_int_equal(pt_choose(&W(.exp = "ours"), 1), -1);
  pt_assert_state(0, LOCKED);
  char expected[256], why[256];
  brim_lab_place_why(pt.place, &W(.exp = "ours"), why, sizeof why);
  snprintf(expected, sizeof expected, "GPU 0 is not free: the sweep of runs/b (pid %ld, ",
           (long)getpid());
  assert_true(brim_str_starts(why, expected));
  pt_pass(1000);
  pt_assert_state(0, LOCKED);
  // unlocked, it is ours at the next reading
  brim_lab_place_ended(other, 2000, "theirs", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  assert_ok(brim_lab_place_tick(other, 2300));
  pt_pass(1000);
  pt_assert_state(0, FREE);
  assert_int_equal(pt_choose(&W(.exp = "ours"), 1), 0);
  brim_lab_place_close(other);
}

// Several GPUs at once: all of the locks or none.
static void test_all_locks_or_none(void **state) {
  (void)state;
  fake_reset(3);
  int fd = -1;
  pt_open((brim_lab_place_options){0});
  assert_ok(brim_lab_place_lock("locks", fake.gpu[2].uuid, "b", &fd, &holder));
  assert_int_equal(pt_choose(&W(.exp = "a", .gpus = 3), 1), -1);
  pt_assert_state(0, FREE);
  assert_ok(brim_lab_place_lock_probe("locks", fake.gpu[0].uuid, &holder));
  assert_ok(brim_lab_place_lock_probe("locks", fake.gpu[1].uuid, &holder));
  close(fd);
  pt_pass(1000);
  assert_int_equal(pt_choose(&W(.exp = "a", .gpus = 3), 1), 0);
  assert_status(brim_lab_place_lock_probe("locks", fake.gpu[1].uuid, &holder), BRIM_EEXIST);
  // never started: given back at once
  pt_end("a", BRIM_LAB_PLACE_UNUSED, BRIM_FAILURE_NONE);
  assert_ok(brim_lab_place_lock_probe("locks", fake.gpu[1].uuid, &holder));
  pt_assert_state(1, FREE);
}

// The sweep is killed, its executor keeps the lock, and the sweep starts again.
static void test_adopted_after_a_restart(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  assert_int_equal(pt_choose(&W(.exp = "a"), 1), 0);
  int executor = dup(pt.slot.fds[0]);  // shares the lock like an inherited descriptor
  char devices[BRIM_LAB_PLACE_DEVICES];
  memcpy(devices, pt.slot.devices, sizeof devices);
  pt_close();
  // the new sweep does not know the executor yet
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, LOCKED);
  pt_assert_why(W(.exp = "b"),
                "GPU 0 is not free: an experiment of this store from before has not ended");
  assert_ok(brim_lab_place_adopt(pt.place, pt.now, &W(.exp = "a"), devices, 1001));
  pt_assert_state(0, BUSY);
  assert_status(brim_lab_place_adopt(pt.place, pt.now, &W(.exp = "a"), devices, 1001), BRIM_EINVAL);
  assert_status(brim_lab_place_adopt(pt.place, pt.now, &W(.exp = "z"), "GPU-gone", 5), BRIM_ENOENT);
  assert_int_equal(pt_choose(&W(.exp = "b"), 1), -1);
  // the executor ends: the sweep takes the lock over, then looks at the memory
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
  close(executor);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  assert_int_equal(pt_choose(&W(.exp = "b"), 1), 0);
}

static void test_adopted_on_the_cpu(void **state) {
  (void)state;
  fake_reset(0);
  int slots = 0, taken = 0;
  pt_open((brim_lab_place_options){.jobs = 1});
  assert_ok(brim_lab_place_adopt(pt.place, pt.now, &W(.exp = "a"), "cpu", 1001));
  brim_lab_place_cpu(pt.place, &slots, &taken);
  assert_int_equal(taken, 1);
  assert_int_equal(pt_choose(&W(.exp = "b"), 1), -1);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  assert_int_equal(pt_choose(&W(.exp = "b"), 1), 0);
}

// If the lock cannot be created at all, the GPU is not used, and its state shows the reason.
static void test_no_folder_for_locks(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.lock_dir = "no/such"});
  assert_int_equal(pt_choose(&W(.exp = "a"), 1), -1);
  pt_assert_state(0, LOCKED);
  assert_non_null(strstr(pt_gpu(0).reason, "no/such/brim-gpu-"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      T(test_one_holder),         T(test_all_users_may_use_it), T(test_a_child_keeps_it),
      T(test_planted_files),      T(test_odd_contents),         T(test_removed_in_between),
      T(test_another_sweep),      T(test_all_locks_or_none),    T(test_adopted_after_a_restart),
      T(test_adopted_on_the_cpu), T(test_no_folder_for_locks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
