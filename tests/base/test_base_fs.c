// Files: reading whole files, atomic writes that leave no temporary, folders, locks, paths.
#include "base/base_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "test.h"

static char dir[] = "fs-XXXXXX";

static int setup(void **state) {
  (void)state;
  return mkdtemp(dir) ? chdir(dir) : -1;
}

static int teardown(void **state) {
  (void)state;
  return chdir("..") == 0 && brim_fs_remove(dir) == BRIM_OK ? 0 : -1;
}

static size_t files_here(void) {
  char **names;
  size_t count;
  assert_ok(brim_fs_list(".", &names, &count));
  brim_fs_list_free(names, count);
  return count;
}

static void content_is(const char *path, const char *expected) {
  char *text;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  assert_string_equal(text, expected);
  assert_int_equal(size, strlen(expected));
  brim_free(text);
}

static void reading(void **state) {
  (void)state;
  char *text = (char *)1;
  size_t size;
  assert_status(brim_fs_read("none", 0, &text, &size), BRIM_ENOENT);
  assert_null(text);
  assert_non_null(strstr(brim_status_detail(), "none"));
  assert_status(brim_fs_read(".", 0, &text, &size), BRIM_EINVAL);
  assert_ok(brim_fs_write("a", "12345", 5));
  assert_ok(brim_fs_read("a", 5, &text, &size));
  assert_int_equal(size, 5);
  brim_free(text);
  assert_status(brim_fs_read("a", 4, &text, &size), BRIM_ELIMIT);
  // its size reads as 0, so only the limit ends it
  assert_ok(brim_fs_read("/proc/self/status", 0, &text, &size));
  assert_non_null(strstr(text, "Pid:"));
  brim_free(text);
  assert_status(brim_fs_read("/proc/self/status", 10, &text, &size), BRIM_ELIMIT);
  assert_ok(brim_fs_write("empty", "", 0));
  content_is("empty", "");
  assert_ok(brim_fs_remove("empty"));
  assert_ok(brim_fs_remove("a"));
}

static void atomic_write(void **state) {
  (void)state;
  brim_fs_writer *w;
  assert_ok(brim_fs_write("t", "old", 3));
  assert_ok(brim_fs_writer_open("t", &w));
  assert_ok(brim_fs_writer_write(w, "new ", 4));
  assert_ok(brim_fs_writer_write(w, "", 0));
  assert_ok(brim_fs_writer_write(w, "text", 4));
  content_is("t", "old");  // unchanged until commit
  assert_int_equal(files_here(), 2);
  assert_ok(brim_fs_writer_commit(w));
  content_is("t", "new text");
  assert_int_equal(files_here(), 1);
  assert_ok(brim_fs_remove("t"));
}

static void abort_leaves_nothing(void **state) {
  (void)state;
  brim_fs_writer *w;
  assert_ok(brim_fs_write("t", "old", 3));
  assert_ok(brim_fs_writer_open("t", &w));
  char block[50000] = {0};
  assert_ok(brim_fs_writer_write(w, block, sizeof block));
  brim_fs_writer_abort(w);
  brim_fs_writer_abort(NULL);
  content_is("t", "old");
  assert_int_equal(files_here(), 1);
  assert_ok(brim_fs_remove("t"));
}

static void large_and_small_pieces(void **state) {
  (void)state;
  brim_fs_writer *w;
  char expected[100000];
  for (size_t i = 0; i < sizeof expected; i++) expected[i] = (char)('a' + i % 23);
  assert_ok(brim_fs_writer_open("t", &w));
  size_t at = 0;
  for (size_t step = 1; at < sizeof expected; step = step * 2 + 3) {
    size_t n = step < sizeof expected - at ? step : sizeof expected - at;
    assert_ok(brim_fs_writer_write(w, expected + at, n));
    at += n;
  }
  assert_ok(brim_fs_writer_commit(w));
  char *text;
  size_t size;
  assert_ok(brim_fs_read("t", 0, &text, &size));
  assert_int_equal(size, sizeof expected);
  assert_memory_equal(text, expected, size);
  brim_free(text);
  assert_ok(brim_fs_remove("t"));
}

static void permissions_are_kept(void **state) {
  (void)state;
  struct stat st;
  assert_ok(brim_fs_write("t", "1", 1));
  assert_int_equal(chmod("t", 0600), 0);
  assert_ok(brim_fs_write("t", "2", 1));
  assert_int_equal(stat("t", &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_ok(brim_fs_remove("t"));
}

// A planted link is replaced, and the permissions of its target do not open the new file to others.
static void permissions_behind_a_link(void **state) {
  (void)state;
  struct stat st, plain;
  assert_ok(brim_fs_write("plain", "1", 1));
  assert_int_equal(stat("plain", &plain), 0);
  assert_ok(brim_fs_write("open", "theirs", 6));
  assert_int_equal(chmod("open", 06777), 0);
  assert_int_equal(symlink("open", "t"), 0);
  assert_ok(brim_fs_write("t", "2", 1));
  assert_int_equal(lstat("t", &st), 0);
  assert_int_equal(st.st_mode, plain.st_mode);
  content_is("open", "theirs");
  // and a private target keeps its own permissions
  assert_int_equal(chmod("open", 0600), 0);
  assert_ok(brim_fs_remove("t"));
  assert_int_equal(symlink("open", "t"), 0);
  assert_ok(brim_fs_write("t", "3", 1));
  assert_int_equal(lstat("t", &st), 0);
  assert_int_equal(st.st_mode, S_IFREG | 0600);
  assert_ok(brim_fs_remove("t"));
  assert_ok(brim_fs_remove("open"));
  assert_ok(brim_fs_remove("plain"));
}

static void second_names(void **state) {
  (void)state;
  assert_ok(brim_fs_write("a", "first", 5));
  assert_ok(brim_fs_write("b", "old", 3));
  assert_ok(brim_fs_link("a", "b"));
  assert_true(brim_fs_same("a", "b"));
  assert_ok(brim_fs_link("a", "b"));  // linking again changes nothing
  content_is("b", "first");
  assert_int_equal(files_here(), 2);
  // a later write to one name leaves the other unchanged
  assert_ok(brim_fs_write("a", "second", 6));
  content_is("b", "first");
  assert_false(brim_fs_same("a", "b"));
  assert_ok(brim_fs_link("b", "c"));
  content_is("c", "first");
  // both names have the file's permissions
  assert_int_equal(chmod("a", 0600), 0);
  assert_status(brim_fs_link("b", "a"), BRIM_EUNSUPPORTED);
  content_is("a", "second");
  assert_status(brim_fs_link("none", "a"), BRIM_ENOENT);
  assert_status(brim_fs_link("a", "."), BRIM_EUNSUPPORTED);
  assert_status(brim_fs_link("a", "none/t"), BRIM_EUNSUPPORTED);
  brim_alloc_fail_nth(1, 0);
  assert_status(brim_fs_link("a", "d"), BRIM_ENOMEM);
  brim_alloc_fail_nth(0, 0);
  assert_int_equal(files_here(), 3);
  assert_ok(brim_fs_remove("a"));
  assert_ok(brim_fs_remove("b"));
  assert_ok(brim_fs_remove("c"));
}

static void copies(void **state) {
  (void)state;
  enum { SIZE = 600001 };  // more than two of its buffers
  char *text = malloc(SIZE), *read;
  size_t size;
  assert_non_null(text);
  for (size_t i = 0; i < SIZE; i++) text[i] = (char)('a' + i % 23);
  assert_ok(brim_fs_write("a", text, SIZE));
  assert_ok(brim_fs_link("a", "b"));
  assert_ok(brim_fs_copy("a", "b"));  // the copy makes two files of them
  assert_false(brim_fs_same("a", "b"));
  assert_ok(brim_fs_read("b", 0, &read, &size));
  assert_int_equal(size, SIZE);
  assert_memory_equal(read, text, SIZE);
  brim_free(read);
  assert_status(brim_fs_copy("none", "b"), BRIM_ENOENT);
  assert_status(brim_fs_copy("a", "none/t"), BRIM_ENOENT);
  assert_status(brim_fs_copy(".", "b"), BRIM_EINVAL);
  for (uint64_t n = 1; n <= 3; n++) {
    brim_alloc_fail_nth(n, 0);
    assert_status(brim_fs_copy("a", "b"), BRIM_ENOMEM);
    brim_alloc_fail_nth(0, 0);
  }
  assert_int_equal(files_here(), 2);
  assert_ok(brim_fs_remove("a"));
  assert_ok(brim_fs_remove("b"));
  free(text);
}

static void two_writers_of_one_target(void **state) {
  (void)state;
  brim_fs_writer *a, *b;
  assert_ok(brim_fs_writer_open("t", &a));
  assert_ok(brim_fs_writer_open("t", &b));
  assert_ok(brim_fs_writer_write(a, "a", 1));
  assert_ok(brim_fs_writer_write(b, "b", 1));
  assert_ok(brim_fs_writer_commit(a));
  content_is("t", "a");
  assert_ok(brim_fs_writer_commit(b));
  content_is("t", "b");
  assert_int_equal(files_here(), 1);
  assert_ok(brim_fs_remove("t"));
}

static void refused_targets(void **state) {
  (void)state;
  assert_status(brim_fs_write("none/t", "x", 1), BRIM_ENOENT);
  assert_status(brim_fs_write(".", "x", 1), BRIM_EINVAL);
  // a regular file in place of the device: a mistake would replace it
  assert_int_equal(mkfifo("fifo", 0600), 0);
  assert_status(brim_fs_write("fifo", "x", 1), BRIM_EINVAL);
  assert_int_equal(files_here(), 1);
  struct stat st;
  assert_int_equal(stat("fifo", &st), 0);
  assert_true(S_ISFIFO(st.st_mode));
  assert_ok(brim_fs_remove("fifo"));
}

// Checks a target before the work: one status for every reason, and nothing is left or changed.
static void target_before_the_work(void **state) {
  (void)state;
  assert_ok(brim_fs_check_target("new"));
  assert_int_equal(files_here(), 0);
  assert_ok(brim_fs_write("t", "old", 3));
  assert_ok(brim_fs_check_target("t"));
  content_is("t", "old");
  assert_int_equal(mkfifo("fifo", 0600), 0);
  static const char *const bad[] = {"none/t", "t/below", ".", "fifo", "/proc/none", ""};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    assert_status(brim_fs_check_target(bad[i]), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), bad[i]));
  }
  assert_int_equal(files_here(), 2);
  assert_ok(brim_fs_remove("t"));
  assert_ok(brim_fs_remove("fifo"));
  assert_int_equal(brim_fs_refused(BRIM_EIO), BRIM_EINVAL);
  assert_int_equal(brim_fs_refused(BRIM_ENOENT), BRIM_EINVAL);
  assert_int_equal(brim_fs_refused(BRIM_ENOMEM), BRIM_ENOMEM);
  assert_int_equal(brim_fs_refused(BRIM_EEXIST), BRIM_EEXIST);
  assert_int_equal(brim_fs_refused(BRIM_OK), BRIM_OK);
  assert_int_equal(brim_fs_open_status(EACCES), BRIM_EINVAL);
  assert_int_equal(brim_fs_open_status(ELOOP), BRIM_EINVAL);
  assert_int_equal(brim_fs_open_status(ENOENT), BRIM_ENOENT);
  assert_int_equal(brim_fs_open_status(EIO), BRIM_EIO);
}

// Root may write anywhere, so a child without those rights tries.
static void unwritable_folder(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("locked"));
  assert_ok(brim_fs_write("locked/t", "old", 3));
  assert_int_equal(chmod("locked", 0555), 0);
  assert_int_equal(chmod(".", 0755), 0);  // mkdtemp closes the folder to other users
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    brim_status status = brim_fs_write("locked/t", "new", 3);
    if (status != BRIM_EIO || !strstr(brim_status_detail(), "locked/t")) _exit(1);
    // a new folder: the message has mkdir's reason, not that the folder is missing
    status = brim_fs_mkdirs("locked/new/deep");
    if (status != BRIM_EIO || !strstr(brim_status_detail(), "locked/new: Permission")) _exit(3);
    _exit(brim_fs_mkdirs("locked") == BRIM_OK ? 0 : 4);
  }
  int code;
  assert_int_equal(waitpid(pid, &code, 0), pid);
  assert_int_equal(chmod("locked", 0755), 0);
  assert_true(WIFEXITED(code));
  assert_int_equal(WEXITSTATUS(code), 0);
  content_is("locked/t", "old");
  char **names;
  size_t count;
  assert_ok(brim_fs_list("locked", &names, &count));
  assert_int_equal(count, 1);
  brim_fs_list_free(names, count);
  assert_ok(brim_fs_remove("locked/t"));
  assert_ok(brim_fs_remove("locked"));
}

// The target becomes a folder between open and commit: the rename fails, and the temporary is removed.
static void failed_commit_cleans_up(void **state) {
  (void)state;
  brim_fs_writer *w;
  assert_ok(brim_fs_writer_open("t", &w));
  assert_ok(brim_fs_writer_write(w, "x", 1));
  assert_ok(brim_fs_mkdirs("t"));
  assert_true(brim_fs_writer_commit(w) != BRIM_OK);
  assert_true(brim_fs_is_dir("t"));
  assert_int_equal(files_here(), 1);
  assert_ok(brim_fs_remove("t"));
}

static void appending(void **state) {
  (void)state;
  assert_ok(brim_fs_append_line("log", "one"));
  assert_ok(brim_fs_append_line("log", ""));
  assert_ok(brim_fs_append_line("log", "two"));
  content_is("log", "one\n\ntwo\n");
  assert_ok(brim_fs_remove("log"));
  assert_status(brim_fs_append_line("none/log", "x"), BRIM_ENOENT);
  if (brim_fs_exists("/dev/full")) assert_status(brim_fs_append_line("/dev/full", "x"), BRIM_EIO);
}

static void folders(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("a/b//c/"));
  assert_ok(brim_fs_mkdirs("a/b/c"));
  assert_true(brim_fs_is_dir("a/b/c"));
  assert_false(brim_fs_is_dir("a/x"));
  assert_ok(brim_fs_write("a/z", "12", 2));
  assert_ok(brim_fs_write("a/A", "", 0));
  uint64_t size;
  assert_ok(brim_fs_size("a/z", &size));
  assert_int_equal(size, 2);
  assert_status(brim_fs_size("a/none", &size), BRIM_ENOENT);
  assert_status(brim_fs_mkdirs("a/z/q"), BRIM_EEXIST);
  assert_non_null(strstr(brim_status_detail(), "a/z is a file, not a folder"));
  assert_status(brim_fs_mkdirs(""), BRIM_EINVAL);
  char **names;
  size_t count;
  assert_ok(brim_fs_list("a", &names, &count));
  assert_int_equal(count, 3);
  assert_string_equal(names[0], "A");
  assert_string_equal(names[1], "b");
  assert_string_equal(names[2], "z");
  brim_fs_list_free(names, count);
  assert_status(brim_fs_list("none", &names, &count), BRIM_ENOENT);
  assert_ok(brim_fs_remove("a/z"));
  assert_ok(brim_fs_remove("a/A"));
  assert_ok(brim_fs_remove("a/b/c"));
  assert_ok(brim_fs_remove("a/b"));
  assert_ok(brim_fs_remove("a"));
  assert_status(brim_fs_remove("a"), BRIM_ENOENT);
}

// The status that another process gets, and whether the detail contains `says`.
static void lock_elsewhere(const char *path, brim_status expected, const char *says) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    brim_fs_lockfile *lock = NULL;
    brim_status status = brim_fs_lock(path, &lock);
    if (status != expected) _exit(1);
    if (status && (lock || !strstr(brim_status_detail(), says))) _exit(2);
    // a holder that dies leaves the file, and the kernel releases the lock
    _exit(0);
  }
  int code;
  assert_int_equal(waitpid(pid, &code, 0), pid);
  assert_true(WIFEXITED(code));
  assert_int_equal(WEXITSTATUS(code), 0);
}

static void locks(void **state) {
  (void)state;
  char held[64], pid_text[32];
  snprintf(held, sizeof held, "t.lock is held by process %ld", (long)getpid());
  snprintf(pid_text, sizeof pid_text, "%ld brim\n", (long)getpid());
  brim_fs_lockfile *lock, *second;
  assert_ok(brim_fs_lock("t.lock", &lock));
  content_is("t.lock", pid_text);
  lock_elsewhere("t.lock", BRIM_EEXIST, held);
  assert_status(brim_fs_lock("t.lock", &second), BRIM_EEXIST);  // nor can one process lock it twice
  assert_null(second);
  brim_fs_unlock(lock);
  assert_int_equal(files_here(), 0);
  // the child locks and dies: its file stays with its PID, and can be locked
  lock_elsewhere("t.lock", BRIM_OK, "");
  assert_int_equal(files_here(), 1);
  assert_ok(brim_fs_lock("t.lock", &lock));
  content_is("t.lock", pid_text);
  // another process replaces the file, so unlock must not remove it
  assert_ok(brim_fs_remove("t.lock"));
  assert_ok(brim_fs_lock("t.lock", &second));
  brim_fs_unlock(lock);
  assert_int_equal(files_here(), 1);
  brim_fs_unlock(second);
  brim_fs_unlock(NULL);
  assert_int_equal(files_here(), 0);
  assert_status(brim_fs_lock("none/t.lock", &lock), BRIM_ENOENT);
  assert_null(lock);
  assert_true(brim_fs_lock(".", &lock) != BRIM_OK);
}

static void joined(const char *a, const char *b, const char *expected) {
  char *path = brim_fs_join(a, b);
  assert_string_equal(path, expected);
  brim_free(path);
}

static void dirname_is(const char *path, const char *expected) {
  char *text = brim_fs_dirname(path);
  assert_string_equal(text, expected);
  brim_free(text);
}

static void paths(void **state) {
  (void)state;
  joined("a", "b", "a/b");
  joined("a/", "b", "a/b");
  joined("a", "/b", "/b");
  joined("", "b", "b");
  joined(NULL, "b", "b");
  dirname_is("a/b/c", "a/b");
  dirname_is("a", ".");
  dirname_is("/a", "/");
  dirname_is("a//b", "a");
  assert_string_equal(brim_fs_basename("a/b.c"), "b.c");
  assert_string_equal(brim_fs_basename("b.c"), "b.c");
  char *program = NULL;
  assert_ok(brim_fs_exe(&program));
  assert_string_equal(brim_fs_basename(program), "base_tests");
  assert_true(brim_fs_exists(program));
  brim_free(program);
  char *exe = brim_fs_exe_dir();
  assert_non_null(exe);
  char *self = brim_fs_join(exe, "base_tests");
  assert_true(brim_fs_exists(self));
  brim_free(self);
  brim_free(exe);
}

static void out_of_memory(void **state) {
  (void)state;
  assert_ok(brim_fs_write("t", "old", 3));
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  brim_status status = BRIM_ENOMEM;
  int tries = 0;
  for (uint64_t n = 1; status == BRIM_ENOMEM; n++, tries++) {
    char **names = NULL, *text = NULL;
    size_t count = 0, size;
    brim_alloc_fail_nth(n, 0);
    status = brim_fs_read("/proc/self/status", 0, &text, &size);
    if (!status) status = brim_fs_list(".", &names, &count);
    if (!status) status = brim_fs_mkdirs(".");
    brim_fs_lockfile *lock = NULL;
    if (!status) status = brim_fs_lock("lock", &lock);
    brim_fs_unlock(lock);
    if (!status) status = brim_fs_write("t", "new", 3);
    brim_alloc_fail_nth(0, 0);
    brim_free(text);
    brim_fs_list_free(names, count);
    brim_alloc_get_stats(&after);
    assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
    assert_int_equal(files_here(), 1);
    content_is("t", status ? "old" : "new");
  }
  assert_ok(status);
  assert_true(tries > 5);
  assert_ok(brim_fs_remove("t"));
}

// Opening a FIFO would wait for a writer, and reading a device would never end.
static void irregular_files(void **state) {
  (void)state;
  char *text = NULL;
  size_t size;
  assert_int_equal(mkfifo("fifo", 0600), 0);
  assert_status(brim_fs_read("fifo", 0, &text, &size), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "fifo is not a regular file"));
  assert_status(brim_fs_copy("fifo", "copy"), BRIM_EINVAL);
  assert_false(brim_fs_exists("copy"));
  assert_status(brim_fs_read("/dev/zero", 100, &text, &size), BRIM_EINVAL);
  assert_true(brim_fs_append_line("fifo", "x") != BRIM_OK);  // no process reads it
  assert_null(text);
  assert_ok(brim_fs_remove("fifo"));
  // files in /proc are regular files of unknown size
  assert_ok(brim_fs_read("/proc/self/status", 0, &text, &size));
  assert_true(size > 100);
  brim_free(text);
}

// A limit on the size of files ends a write in the middle of a line; that part of a line is removed again.
static void torn_line(void **state) {
  (void)state;
  struct rlimit before, small;
  char line[101];
  memset(line, 'x', 100);
  line[100] = '\0';
  assert_ok(brim_fs_append_line("torn", line));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 150;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  brim_status status = brim_fs_append_line("torn", line);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  assert_status(status, BRIM_EIO);
  uint64_t size = 0;
  assert_ok(brim_fs_size("torn", &size));
  assert_int_equal(size, 101);
  assert_ok(brim_fs_append_line("torn", "y"));
  assert_ok(brim_fs_size("torn", &size));
  assert_int_equal(size, 103);
  assert_ok(brim_fs_remove("torn"));
}

// A file that is named like a lock and belongs to another program is neither written nor removed.
static void foreign_lock(void **state) {
  (void)state;
  static const char *const foreign[] = {"precious\n", "12 monkeys\n", "1234 brim", "12\n34\n"};
  static const char *const ours[] = {"", "1234\n", "1234 brim\n"};
  brim_fs_lockfile *lock = NULL;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    assert_false(brim_fs_is_lock(foreign[i], strlen(foreign[i])));
    assert_ok(brim_fs_write("lock", foreign[i], strlen(foreign[i])));
    assert_status(brim_fs_lock("lock", &lock), BRIM_EINVAL);
    assert_null(lock);
    content_is("lock", foreign[i]);
  }
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
    assert_true(brim_fs_is_lock(ours[i], strlen(ours[i])));
    assert_ok(brim_fs_write("lock", ours[i], strlen(ours[i])));
    assert_ok(brim_fs_lock("lock", &lock));
    brim_fs_unlock(lock);
    assert_false(brim_fs_exists("lock"));
  }
}

static void same_names(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("names"));
  assert_ok(brim_fs_write("names/a", "x", 1));
  assert_ok(brim_fs_write("names/b", "x", 1));
  assert_true(brim_fs_same("names/a", "names/../names/a"));
  assert_true(brim_fs_same("names", "./names/"));
  assert_false(brim_fs_same("names/a", "names/b"));
  assert_false(brim_fs_same("names/a", "names/nothing"));
  assert_false(brim_fs_same(NULL, "names/a"));
  assert_ok(brim_fs_remove("names/a"));
  assert_ok(brim_fs_remove("names/b"));
  assert_ok(brim_fs_remove("names"));
}

static void folder_lock(void **state) {
  (void)state;
  brim_fs_lockfile *first = NULL, *second = NULL;
  assert_ok(brim_fs_mkdirs("locked"));
  assert_ok(brim_fs_lock_folder("locked", &first));
  assert_non_null(first);
  assert_status(brim_fs_lock_folder("locked", &second), BRIM_EEXIST);
  assert_non_null(strstr(brim_status_detail(), "another run is writing to this folder"));
  assert_null(second);
  brim_fs_unlock(first);
  assert_ok(brim_fs_lock_folder("locked", &second));
  brim_fs_unlock(second);
  assert_ok(brim_fs_remove("locked"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_names),
      cmocka_unit_test(folder_lock),
      cmocka_unit_test(reading),
      cmocka_unit_test(atomic_write),
      cmocka_unit_test(abort_leaves_nothing),
      cmocka_unit_test(large_and_small_pieces),
      cmocka_unit_test(permissions_are_kept),
      cmocka_unit_test(permissions_behind_a_link),
      cmocka_unit_test(second_names),
      cmocka_unit_test(copies),
      cmocka_unit_test(two_writers_of_one_target),
      cmocka_unit_test(refused_targets),
      cmocka_unit_test(target_before_the_work),
      cmocka_unit_test(unwritable_folder),
      cmocka_unit_test(failed_commit_cleans_up),
      cmocka_unit_test(appending),
      cmocka_unit_test(folders),
      cmocka_unit_test(locks),
      cmocka_unit_test(paths),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(irregular_files),
      cmocka_unit_test(torn_line),
      cmocka_unit_test(foreign_lock),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
