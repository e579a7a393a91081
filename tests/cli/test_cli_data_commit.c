// make and convert give their output its name. The tests run in this process and watch system calls or fail them. Data
// are on the disk before the name is; one of two writers wins; a name that is replaced always exists; reading back
// finds wrong bytes.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/base_fs.h"
#include "cli/cli.h"
#include "test.h"

//---------------------------------- the system calls ----------------------------------

enum { MAX_SYNCED = 4096 };

static struct {
  struct {
    dev_t dev;
    ino_t ino;
    bool named;  // true if the target had its name already
  } synced[MAX_SYNCED];
  size_t count;
  dev_t all;  // a file system that was synced completely before the target had its name
  bool all_fails;
  bool named;          // a rename to the target has happened
  const char *target;  // NULL: nothing is watched
  bool lacking;        // renames with flags, and links, fail
  bool must_stay;      // the target has to exist before and after every rename
  bool was_gone;
  const char *rival;       // takes the target's place just before the first rename to it
  bool exit_after;         // killed right after the first rename to it
  const char *damage;      // flips a byte in writes to files with this in their path
  _Atomic size_t damaged;  // threads write images
} watch;

static void begin(const char *target) {
  memset(&watch, 0, sizeof watch);
  watch.target = target;
}

int fsync(int fd) {
  struct stat st;
  if (watch.target && watch.count < MAX_SYNCED && fstat(fd, &st) == 0) {
    watch.synced[watch.count].dev = st.st_dev;
    watch.synced[watch.count].ino = st.st_ino;
    watch.synced[watch.count++].named = watch.named;
  }
  return (int)syscall(SYS_fsync, fd);
}

int syncfs(int fd) {
  struct stat st;
  if (watch.target && watch.all_fails) {
    errno = EIO;
    return -1;
  }
  if (watch.target && !watch.named && fstat(fd, &st) == 0) watch.all = st.st_dev;
  return (int)syscall(SYS_syncfs, fd);
}

static bool is_target(const char *path) { return watch.target && strcmp(path, watch.target) == 0; }

static void look(void) {
  struct stat st;
  if (watch.must_stay && lstat(watch.target, &st) != 0) watch.was_gone = true;
}

// The rival takes the target's place, or swaps places with an existing target.
static void before(const char *from, const char *to) {
  struct stat st;
  look();
  if ((!is_target(to) && !is_target(from)) || !watch.rival) return;
  const char *rival = watch.rival;
  unsigned flags = lstat(watch.target, &st) == 0 ? RENAME_EXCHANGE : 0;
  watch.rival = NULL;
  assert_int_equal(syscall(SYS_renameat2, AT_FDCWD, rival, AT_FDCWD, watch.target, flags), 0);
}

static int after(const char *from, const char *to, long result) {
  look();
  if (result == 0 && (is_target(to) || is_target(from))) {
    watch.named = true;
    if (watch.exit_after) _exit(0);
  }
  return (int)result;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
  before(from, to);
  if (watch.target && watch.lacking && flags) {
    errno = EINVAL;
    return -1;
  }
  return after(from, to, syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}

int rename(const char *from, const char *to) {
  before(from, to);
  return after(from, to, syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int link(const char *from, const char *to) {
  before(from, to);
  if (watch.target && watch.lacking) {
    errno = EPERM;
    return -1;
  }
  return after(from, to, syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

// Flips one byte in the middle of a write to a matching file.
static void *damaged_copy(int fd, const void *data, size_t size) {
  char name[64], path[4096];
  if (!watch.damage || watch.damaged || size < 64) return NULL;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(name, path, sizeof path - 1);
  if (n < 0) return NULL;
  path[n] = '\0';
  if (!strstr(path, watch.damage)) return NULL;
  uint8_t *copy = malloc(size);
  if (!copy) return NULL;
  memcpy(copy, data, size);
  copy[size / 2] ^= 0x10;
  watch.damaged++;
  return copy;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  void *copy = damaged_copy(fd, data, size);
  ssize_t n = syscall(SYS_pwrite64, fd, copy ? copy : data, size, offset);
  free(copy);
  return n;
}

ssize_t write(int fd, const void *data, size_t size) {
  void *copy = damaged_copy(fd, data, size);
  ssize_t n = syscall(SYS_write, fd, copy ? copy : data, size);
  free(copy);
  return n;
}

//---------------------------------- the program ----------------------------------

static char said[8192];

// Runs a command line in this process, split at blanks; its output goes to `said`.
static int run(const char *line) {
  char text[512];
  const char *argv[32] = {"brim"};
  int argc = 1;
  snprintf(text, sizeof text, "%s", line);
  for (char *rest = NULL, *word = strtok_r(text, " ", &rest); word && argc < 32;
       word = strtok_r(NULL, " ", &rest)) {
    argv[argc++] = word;
  }
  fflush(stdout);
  fflush(stderr);
  int out = dup(1), err = dup(2);
  int file = open("said.txt", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  assert_true(out >= 0 && err >= 0 && file >= 0);
  dup2(file, 1);
  dup2(file, 2);
  int code = brim_cli_main(argc, argv);
  fflush(stdout);
  fflush(stderr);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  ssize_t n = pread(file, said, sizeof said - 1, 0);
  said[n > 0 ? n : 0] = '\0';
  close(file);
  return code;
}

static void clear(void) {
  assert_int_equal(system("chmod -R u+rwX . && rm -rf ./set* ./rival* ./in*"), 0);
}

static int count_temporaries(void) {
  char **names;
  size_t count;
  int n = 0;
  assert_ok(brim_fs_list(".", &names, &count));
  for (size_t i = 0; i < count; i++) n += strstr(names[i], ".tmp.") != NULL;
  brim_fs_list_free(names, count);
  return n;
}

static const char *const formats[] = {
    "set.h5 --shape 8,8,3",
    "set --format png --shape 8,8,3",
    "set --format idx --shape 8,8",
    "set --format stl10",
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const char *target_of(size_t format) { return format ? "set" : "set.h5"; }

static int make(size_t format, const char *more) {
  char line[256];
  snprintf(line, sizeof line, "data make %s --samples 6 --test-samples 2 --classes 2 %s",
           formats[format], more);
  return run(line);
}

//---------------------------------- on the disk ----------------------------------

static bool was_synced(const char *path, bool named) {
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  if (!named && watch.all && watch.all == st.st_dev) return true;
  for (size_t i = 0; i < watch.count; i++) {
    if (watch.synced[i].dev == st.st_dev && watch.synced[i].ino == st.st_ino &&
        watch.synced[i].named == named)
      return true;
  }
  return false;
}

// Asserts that everything below a path was synced before it got its name.
static int assert_synced(const char *path) {
  if (!was_synced(path, false)) fail_msg("%s was not synced before it had its name", path);
  if (!brim_fs_is_dir(path)) return 1;
  char **names;
  size_t count;
  int files = 0;
  assert_ok(brim_fs_list(path, &names, &count));
  for (size_t i = 0; i < count; i++) {
    char *inner = brim_fs_join(path, names[i]);
    assert_non_null(inner);
    files += assert_synced(inner);
    brim_free(inner);
  }
  brim_fs_list_free(names, count);
  return files;
}

static void test_synced(void **state) {
  (void)state;
  static const int files[FORMATS] = {1, 9, 5, 6};  // with the mark
  for (size_t f = 0; f < FORMATS; f++) {
    for (int force = 0; force < 2; force++) {  // also for a folder that is replaced
      if (!force) clear();
      begin(target_of(f));
      assert_int_equal(make(f, force ? "--force" : ""), 0);
      assert_int_equal(assert_synced(target_of(f)), files[f]);
      if (!was_synced(".", true)) fail_msg("%s: its name was not synced", formats[f]);
    }
  }
  begin(NULL);
  clear();
}

// Many files are synced together, or one by one if that fails.
static void test_many_synced(void **state) {
  (void)state;
  for (int fails = 0; fails < 2; fails++) {
    clear();
    begin("set");
    watch.all_fails = fails;
    assert_int_equal(run("data make set --format png --shape 8,8,3 --samples 90 --test-samples 0"),
                     0);
    assert_int_equal(assert_synced("set"), 91);
    assert_true(was_synced(".", true));
  }
  begin(NULL);
  clear();
}

//---------------------------------- one name ----------------------------------

// Another process takes the name between the last look and the rename.
static void test_two_writers(void **state) {
  (void)state;
  for (size_t f = 0; f < FORMATS; f++) {
    for (int lacking = 0; lacking < 2; lacking++) {
      clear();
      begin(NULL);
      assert_int_equal(system(f ? "mkdir rival && echo mine > rival/keep" : "echo mine > rival"),
                       0);
      begin(target_of(f));
      watch.rival = "rival";
      watch.lacking = lacking;
      int code = make(f, "");
      bool tried = !watch.rival;
      begin(NULL);
      if (!tried) fail_msg("%s: the target was never renamed to", formats[f]);
      assert_int_equal(code, 2);
      assert_non_null(strstr(said, "appeared in the meantime"));
      assert_int_equal(system(f ? "grep -qx mine set/keep" : "grep -qx mine set.h5"), 0);
      assert_int_equal(count_temporaries(), 0);
    }
  }
  clear();
}

// Without renames that have flags, and without links.
static void test_plain_renames(void **state) {
  (void)state;
  for (size_t f = 0; f < FORMATS; f++) {
    char line[64];
    clear();
    begin(target_of(f));
    watch.lacking = true;
    assert_int_equal(make(f, ""), 0);
    assert_int_equal(make(f, "--force"), 0);
    begin(NULL);
    snprintf(line, sizeof line, "data verify %s", target_of(f));
    assert_int_equal(run(line), 0);
    assert_int_equal(count_temporaries(), 0);
  }
  clear();
}

// Some file systems cannot swap two names, such as NFS and FAT.
static void need_exchange(void) {
  begin(NULL);
  clear();
  assert_int_equal(system("mkdir rival rival.two"), 0);
  long swapped = syscall(SYS_renameat2, AT_FDCWD, "rival", AT_FDCWD, "rival.two", RENAME_EXCHANGE);
  if (swapped != 0) {
    print_message("skipped: this file system has no RENAME_EXCHANGE\n");
    skip();
  }
}

// A kill at any rename of --force leaves a target.
static void test_never_gone(void **state) {
  (void)state;
  need_exchange();
  for (size_t f = 0; f < FORMATS; f++) {
    clear();
    begin(NULL);
    assert_int_equal(make(f, ""), 0);
    begin(target_of(f));
    watch.must_stay = true;
    assert_int_equal(make(f, "--force"), 0);
    bool gone = watch.was_gone;
    begin(NULL);
    if (gone) fail_msg("%s: the target was gone for a moment", formats[f]);
    // right after the rename the old set has the temporary's name; the next writer removes it
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
      begin(target_of(f));
      watch.exit_after = true;
      (void)make(f, "--force");
      _exit(1);
    }
    int code = 0;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    char line[64];
    snprintf(line, sizeof line, "data verify %s", target_of(f));
    assert_int_equal(run(line), 0);
    assert_int_equal(make(f, "--force"), 0);
    assert_int_equal(count_temporaries(), 0);
  }
  clear();
}

// Another program replaces the set just before brim does. Its folder is not brim's, so brim puts it back.
static void test_foreign_stays(void **state) {
  (void)state;
  need_exchange();
  for (int lacking = 0; lacking < 2; lacking++) {
    clear();
    begin(NULL);
    assert_int_equal(make(1, ""), 0);
    assert_int_equal(system("mkdir rival && echo mine > rival/keep"), 0);
    begin("set");
    watch.lacking = lacking;
    watch.rival = "rival";
    int code = make(1, "--force");
    bool came = !watch.rival;
    begin(NULL);
    assert_true(came);
    assert_int_equal(code, 2);
    assert_int_equal(system("grep -qx mine set/keep && test -e rival/.brim-dataset"), 0);
    assert_int_equal(count_temporaries(), 0);
  }
  clear();
}

//---------------------------------- reading back ----------------------------------

static void test_read_back(void **state) {
  (void)state;
  static const struct {
    const char *line, *file;
  } cases[] = {
      {"data make set.h5 --shape 16,16,3 --samples 20", "set.h5.tmp."},
      {"data make set.h5 --shape 16 --dtype f32 --samples 20 --targets 2", "set.h5.tmp."},
      {"data make set.h5 --shape 16,16,3 --samples 20 --chunk 4 --deflate 3", "set.h5.tmp."},
      {"data make set --format idx --samples 20", "train-images-idx3-ubyte"},
      {"data make set --format cifar10 --samples 20", "data_batch_2.bin"},
      {"data make set --format stl10 --samples 10", "train_X.bin"},
      {"data make set --format png --shape 16,16,3 --samples 20", "/00000003.png"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    clear();
    begin("set");
    assert_int_equal(run(cases[i].line), 0);
    clear();
    begin("set");
    watch.damage = cases[i].file;
    int code = run(cases[i].line);
    size_t damaged = watch.damaged;
    begin(NULL);
    if (!damaged) fail_msg("%s: nothing was damaged", cases[i].line);
    if (code == 0) fail_msg("%s: one wrong byte was not found", cases[i].line);
    assert_non_null(strstr(said, "reading back"));
    assert_false(brim_fs_exists("set") || brim_fs_exists("set.h5"));
    assert_int_equal(count_temporaries(), 0);
  }
  // an existing set that was to be replaced keeps all its data
  assert_int_equal(run("data make set.h5 --shape 16,16,3 --samples 20"), 0);
  begin("set.h5");
  watch.damage = "set.h5.tmp.";
  assert_int_not_equal(run("data make set.h5 --shape 16,16,3 --samples 20 --force"), 0);
  begin(NULL);
  assert_int_equal(run("data verify set.h5"), 0);
  clear();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_synced),      cmocka_unit_test(test_many_synced),
      cmocka_unit_test(test_two_writers), cmocka_unit_test(test_plain_renames),
      cmocka_unit_test(test_never_gone),  cmocka_unit_test(test_foreign_stays),
      cmocka_unit_test(test_read_back),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
