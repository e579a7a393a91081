// Atomic writes: a file is synced before the rename, and its folder after it. And live processes, recognised by
// kill()'s errno. The linker wraps the calls.
#include <signal.h>

#include "base/base.h"
#include "sync_calls.h"

static int kill_errno = -1;  // -1: call the real kill()
int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number) {
  if (kill_errno < 0) return __real_kill(pid, number);
  errno = kill_errno;
  return kill_errno ? -1 : 0;
}

// Asserts that the calls since sync_begin are exactly these ("srd"), and that the rename is to `name`.
static void expect_calls(const char *order, const char *name, const char *folder) {
  char got[SYNC_CALLS + 1];
  for (size_t i = 0; i < sync_count; i++) got[i] = sync_calls[i].what;
  got[sync_count] = '\0';
  assert_string_equal(got, order);
  for (size_t i = 0; i < sync_count; i++) {
    if (order[i] == 'r') assert_true(sync_ends(sync_calls[i].path, name));
    if (order[i] == 'd') assert_true(sync_ends(sync_calls[i].path, folder));
    if (order[i] == 's') assert_non_null(strstr(sync_calls[i].path, ".tmp."));
  }
}

static void test_write_and_copy(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("folder"));
  sync_begin();
  assert_ok(brim_fs_write("folder/a", "one", 3));
  expect_calls("srd", "folder/a", "/folder");
  sync_begin();
  assert_ok(brim_fs_write("folder/a", "two", 3));  // and over an existing file
  expect_calls("srd", "folder/a", "/folder");
  sync_begin();
  assert_ok(brim_fs_copy("folder/a", "folder/b"));
  expect_calls("srd", "folder/b", "/folder");
  (void)remove("folder/c");
  sync_begin();
  assert_ok(brim_fs_link("folder/a", "folder/c"));  // the bytes are already on the disk
  expect_calls("rd", "folder/c", "/folder");
}

static void test_failed_sync(void **state) {
  (void)state;
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_mkdirs("failing"));
  assert_ok(brim_fs_write("failing/a", "old", 3));
  sync_errno = EIO;
  assert_status(brim_fs_write("failing/a", "new", 3), BRIM_EIO);
  assert_ok(brim_fs_read("failing/a", 0, &text, &size));
  assert_string_equal(text, "old");
  brim_free(text);
  char **names = NULL;
  assert_ok(brim_fs_list("failing", &names, &size));
  assert_int_equal(size, 1);  // no temporary is left
  brim_fs_list_free(names, size);
  sync_errno = EINVAL;  // a file system without sync is no failure
  assert_ok(brim_fs_write("failing/a", "new", 3));
}

// Only brim's own names count as temporaries; all other files belong to the user.
static void test_temporary_names(void **state) {
  (void)state;
  static const char *const none[] = {"x.tmp.1234.",   "x.tmp.1234", "x.tmp..0",
                                     "x.tmp.1234.0x", "x.tmp.0.0",  "x.tmp.-1.0",
                                     ".tmp.12.0",     "x.tmp.12.a", "x.tmp.12345678901.0",
                                     "x.temp.12.0",   "tmp"};
  size_t target = 0;
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    if (brim_fs_temp_writer(none[i], &target)) fail_msg("%s is taken for a temporary", none[i]);
  }
  assert_int_equal(brim_fs_temp_writer("x.tmp.1234.0", &target), 1234);
  assert_int_equal(target, 1);
  assert_int_equal(brim_fs_temp_writer("a.tmp.1.0.tmp.56.7", &target), 56);
  assert_int_equal(target, 9);
}

static void test_alive(void **state) {
  (void)state;
  kill_errno = 0;
  assert_false(brim_fs_writer_gone(1234));
  kill_errno = EPERM;  // another user's process, which is alive
  assert_false(brim_fs_writer_gone(1234));
  kill_errno = ESRCH;
  assert_true(brim_fs_writer_gone(1234));
  kill_errno = EINVAL;
  assert_false(brim_fs_writer_gone(1234));
  assert_ok(brim_fs_mkdirs("stale"));
  assert_ok(brim_fs_write("stale/x.tmp.1234.0", "x", 1));
  kill_errno = EPERM;
  brim_fs_remove_stale("stale");
  assert_true(brim_fs_exists("stale/x.tmp.1234.0"));
  kill_errno = ESRCH;
  brim_fs_remove_stale("stale");
  assert_false(brim_fs_exists("stale/x.tmp.1234.0"));
  kill_errno = -1;
  assert_false(brim_fs_writer_gone(getpid()));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_write_and_copy),
      cmocka_unit_test(test_failed_sync),
      cmocka_unit_test(test_temporary_names),
      cmocka_unit_test(test_alive),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
