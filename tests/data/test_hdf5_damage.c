// Damaged HDF5 files: whichever byte is wrong in the part that libhdf5 parses, a source opens or is refused with a
// message. Nothing crashes, nothing is printed, not even when the process ends. An object that cannot be opened is
// named, not left out.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "data/hdf5/data_hdf5.h"
#include "data/pack/data_pack.h"
#include "hdf5_test.h"

// Each opening starts a process, so a run tries one in ten flips of a file.
enum { HEAD = 4096, FLIPS = 400, FLIPS_SAMPLED = 10 };

// Two groups of x and y, some of it in chunks: every kind of structure that brim writes.
// `text`: y holds names, of variable and of fixed length.
static void small_file(const char *path, bool latest, bool text) {
  hid_t file = create(path, 0, latest);
  set x = floats("train/x", ROWS, COLS), u = floats("test/x", ROWS, COLS);
  u.chunk[0] = 8;
  u.chunk[1] = COLS;
  u.deflate = true;
  put_set(file, &x, NULL);
  put_set(file, &u, NULL);
  const char *names[ROWS];
  for (int i = 0; i < ROWS; i++) names[i] = i % 3 ? "cat" : "dog";
  if (text) {
    put_names(file, "train/y", names, ROWS, 0, H5T_STR_NULLTERM);
    put_names(file, "test/y", names, ROWS, 4, H5T_STR_NULLTERM);
  } else {
    put_labels(file, "train/y", ROWS, 5);
    put_labels(file, "test/y", ROWS, 5);
  }
  H5Fclose(file);
}

// Opens a split and reads a little of it, or lists the file; every failure has a message.
static void try_split(const char *path, const char *split) {
  float input[4096];
  float target[64];
  brim_source *s = NULL;
  brim_status_clear();
  brim_status status = open_source("hdf5", NULL, 0, path, split, &s);
  if (status && !brim_status_detail()[0]) abort();
  if (status) return;
  if (s->input_bytes <= sizeof input && s->target_bytes <= sizeof target) {
    (void)brim_source_read(s, 0, 1, input, target, NULL, NULL);
    (void)brim_source_read(s, s->info.count - 1, 1, input, target, NULL, NULL);
  }
  brim_source_close(s);
}

// One of the three, chosen at random; all with BRIM_TEST_FULL.
static void try_file(const char *path, uint64_t index) {
  const uint64_t which = test_draw(index, 3);
  brim_pack_dataset *sets = NULL;
  size_t count = 0;
  if (which == 0 || test_is_full()) try_split(path, "train");
  if (which == 1 || test_is_full()) try_split(path, "test");
  if (which != 2 && !test_is_full()) return;
  if (!brim_pack_list(path, false, &sets, &count)) brim_free(sets);
}

void __lsan_disable(void) __attribute__((weak));  // there in a build with sanitizers

static void flip_all(const char *path, uint64_t seed) {
  char *data = NULL;
  size_t size = 0;
  brim_alloc_stats before_all, after_all;
  assert_ok(brim_fs_read(path, 0, &data, &size));
  size_t head = size < HEAD ? size : HEAD;
  write_bytes("flipped.h5", data, size);
  int fd = open("flipped.h5", O_RDWR);
  if (fd < 0) abort();
  brim_alloc_get_stats(&before_all);
  const uint64_t first = (seed + 1) << 32;
  for (int i = 0; i < FLIPS; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    size_t at = (size_t)(seed >> 33) % head;
    uint8_t bit = (uint8_t)(1u << (seed >> 29 & 7)), value = (uint8_t)(seed >> 21);
    if (!test_is_sampled(first + 2 * (uint64_t)i, FLIPS_SAMPLED)) continue;
    char before = data[at];
    data[at] = (char)(i % 2 ? (uint8_t)before ^ bit : value);
    if (pwrite(fd, &data[at], 1, (off_t)at) != 1) abort();
    try_file("flipped.h5", first + 2 * (uint64_t)i + 1);
    data[at] = before;
    if (pwrite(fd, &data[at], 1, (off_t)at) != 1) abort();
    // handles that are left open
    if (H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) != 0) abort();
  }
  brim_alloc_get_stats(&after_all);
  if (after_all.live_blocks[0] != before_all.live_blocks[0] ||
      after_all.live_blocks[1] != before_all.live_blocks[1]) {
    abort();
  }
  close(fd);
  brim_free(data);
}

// Reads in a child process, because the damaged file may crash the reader.
static void test_flipped_bytes(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    small_file("small.h5", kind == 1, kind == 2);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      int fd = open("damage-stderr.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666);
      if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(99);
      flip_all("small.h5", 7 + (uint64_t)kind);
      exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("the process ended with wait status %x", (unsigned)status);
    char *text = NULL;
    size_t size = 0;
    assert_ok(brim_fs_read("damage-stderr.txt", 0, &text, &size));
    if (size) fail_msg("stderr: %.1000s", text);
    brim_free(text);
  }
}

//---------------------------------- one object ----------------------------------

static haddr_t address_of(const char *path, const char *name) {
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info;
  assert_true(H5Oget_info_by_name3(file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0);
  haddr_t at = 0;
  memcpy(&at, &info.token, sizeof at);  // of the native files: the address, little-endian
#else
  H5O_info_t info;
  assert_true(H5Oget_info_by_name2(file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0);
  haddr_t at = info.addr;
#endif
  H5Fclose(file);
  return at;
}

static void put_byte(const char *path, haddr_t at, uint8_t value) {
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, &value, 1, (off_t)at), 1);
  close(fd);
}

// Address of the data of a message of this kind, in an object header of version 1. Its messages begin after 16 bytes:
// kind (2 bytes), size (2), flags (1), unused (3), data.
static haddr_t message_at(const char *path, haddr_t header, unsigned kind) {
  char *data = NULL;
  size_t size = 0;
  assert_ok(brim_fs_read(path, 0, &data, &size));
  haddr_t at = header + 16;
  for (; at + 8 < size;
       at += 8 + ((unsigned)(uint8_t)data[at + 2] | (unsigned)(uint8_t)data[at + 3] << 8)) {
    if (((unsigned)(uint8_t)data[at] | (unsigned)(uint8_t)data[at + 1] << 8) == kind) break;
  }
  assert_true(at + 8 < size);
  brim_free(data);
  return at + 8;
}

static void fails_at(const char *split, const char *args_name, const char *part) {
  brim_argument args[] = {arg_string("inputs", "x"),
                          arg_string("targets", args_name ? args_name : "")};
  brim_source *s = NULL;
  brim_status status = open_source("hdf5", args, args_name ? 2 : 0, "small.h5", split, &s);
  if (part) {
    assert_status(status, BRIM_EPARSE);
    assert_detail("small.h5: ");
    assert_detail(part);
  } else {
    assert_ok(status);
    brim_source_close(s);
  }
}

// A dataset that cannot be opened is named by the command that needs it, and listed; it never just disappears.
static void test_damaged_object(void **state) {
  (void)state;
  brim_pack_dataset *sets = NULL;
  size_t count = 0;
  small_file("small.h5", false, false);
  put_byte("small.h5", message_at("small.h5", address_of("small.h5", "train/y"), 1), 77);
  fails_at("train", NULL, "cannot open /train/y: ");
  fails_at("train", "y", "cannot open /train/y: ");
  fails_at("train", "none", NULL);  // listed as left out
  fails_at("test", NULL, NULL);
  assert_ok(brim_pack_list("small.h5", false, &sets, &count));
  assert_int_equal(count, 4);
  assert_string_equal(sets[3].name, "/train/y");
  assert_string_equal(sets[3].type, "damaged");
  assert_true(sets[3].storage[0] != 0);
  brim_free(sets);
  // the whole header of a dataset or of a group: the list marks it as damaged, or breaks off
  static const char *const names[] = {"train/y", "test"};
  for (int i = 0; i < 2; i++) {
    small_file("small.h5", false, false);
    put_byte("small.h5", address_of("small.h5", names[i]), 77);
    brim_source *s = NULL;
    assert_status(open_source("hdf5", NULL, 0, "small.h5", "train", &s), BRIM_EPARSE);
    assert_detail(names[i]);
    brim_status status = brim_pack_list("small.h5", false, &sets, &count);
    bool told = false;
    for (size_t k = 0; !status && k < count; k++)
      told = told || (strcmp(sets[k].name + 1, names[i]) == 0 && !strcmp(sets[k].type, "damaged"));
    if (!status) brim_free(sets);
    if (status) assert_detail("cannot list its datasets: /");
    assert_true(status == BRIM_EPARSE || told);
  }
}

//---------------------------------- what libhdf5 does not survive ----------------------------------

static brim_status probe_end(const char *path, int by) {
  brim_hdf5_request r;
  brim_hdf5_request_init(&r, "end");
  brim_hdf5_request_int(&r, "by", by);
  brim_status status = brim_hdf5_probe(path, &r);
  brim_hdf5_request_deinit(&r);
  return status;
}

// A crash of the helper is an error that names the file; an interrupt is not an error.
static void test_probe(void **state) {
  (void)state;
  static const struct {
    int number;
    const char *said;
  } rows[] = {{0, NULL},       {SIGINT, NULL},          {SIGTERM, NULL},
              {SIGALRM, NULL}, {SIGSEGV, "signal 11"},  {SIGABRT, "signal 6"},
              {SIGFPE, NULL},  {-23, "library crashed"}};
  setenv("BRIM_HDF5_HELPER", BRIM_BUILD_DIR "/tests/hdf5_helper_test", 1);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int number = rows[i].number;
    bool bad = rows[i].said || number == SIGFPE;
    brim_status_clear();
    assert_status(probe_end("a.h5", number), bad ? BRIM_EPARSE : BRIM_OK);
    if (bad) assert_detail("a.h5: the HDF5 library crashed");
    if (rows[i].said) assert_detail(rows[i].said);
  }
  assert_status(probe_end("b.h5", SIGSEGV), BRIM_EPARSE);
  assert_detail("other.h5: the HDF5 library crashed");
  // A program that ignores SIGCHLD learns only that the helper did not finish, not how it ended.
  signal(SIGCHLD, SIG_IGN);
  brim_status good = probe_end("a.h5", 0), bad = probe_end("a.h5", SIGSEGV);
  signal(SIGCHLD, SIG_DFL);
  assert_ok(good);
  assert_status(bad, BRIM_EPARSE);
  assert_detail("a.h5: the process that reads it with the HDF5 library ended early");
  assert_null(strstr(brim_status_detail(), "signal 0"));
  unsetenv("BRIM_HDF5_HELPER");
  brim_hdf5_scope scope;  // the lock is free again
  brim_hdf5_enter(&scope);
  brim_hdf5_leave(&scope);
}

static void expect_unusable(const char *helper) {
  static const char *const splits[] = {"train", "test", "val"};
  brim_pack_dataset *sets = NULL;
  size_t count = 0;
  setenv("BRIM_HDF5_HELPER", helper, 1);
  for (int i = 0; i < 3; i++) {
    brim_source *s = NULL;
    brim_status_clear();
    assert_status(open_source("hdf5", NULL, 0, "small.h5", splits[i], &s), BRIM_EUNSUPPORTED);
    assert_null(s);
    assert_detail(helper);
  }
  assert_status(brim_pack_list("small.h5", false, &sets, &count), BRIM_EUNSUPPORTED);
  assert_detail(helper);
  unsetenv("BRIM_HDF5_HELPER");
}

// A helper that cannot be executed is an error: brim neither reads without it nor reports a missing split.
static void test_unusable_helper(void **state) {
  (void)state;
  const char elf[] = "\177ELF";  // the rest of the file is missing
  small_file("small.h5", false, false);
  expect_unusable("/no/such/program");
  expect_unusable("./small.h5/helper");  // a path below a file
  write_bytes("helper", "text\n", 5);
  assert_int_equal(chmod("helper", 0644), 0);  // root needs an x as well
  expect_unusable("./helper");
  assert_int_equal(chmod("helper", 0755), 0);
  expect_unusable("./helper");
  write_bytes("helper", elf, sizeof elf - 1);
  expect_unusable("./helper");
  assert_int_equal(remove("helper"), 0);
  expect_unusable(".");  // a folder
}

// If no descriptor is left for the helper, the file is read without it and without a message.
static void test_no_room_for_helper(void **state) {
  (void)state;
  enum { MOST = 64 };
  struct rlimit before;
  int skipped = 0, told = 0;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  int lowest = fcntl(0, F_DUPFD, 0);
  assert_true(lowest >= 0 && close(lowest) == 0);
  setenv("BRIM_HDF5_HELPER", BRIM_BUILD_DIR "/tests/hdf5_helper_test", 1);
  for (int more = 0; more < MOST; more++) {
    struct rlimit tight = {.rlim_cur = (rlim_t)(lowest + more), .rlim_max = before.rlim_max};
    brim_status_clear();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    brim_status status = probe_end("a.h5", -23);  // the answer of a helper that runs
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (status) {  // the helper ran, though perhaps without a descriptor for its libraries
      assert_true(status == BRIM_EPARSE || status == BRIM_EIO);
      told++;
      continue;
    }
    assert_string_equal(brim_status_detail(), "");
    assert_int_equal(told, 0);
    skipped++;
  }
  unsetenv("BRIM_HDF5_HELPER");
  assert_true(skipped > 0 && told > 0);
}

// A helper that fails to start or has another version does not make the file a damaged one.
static void test_wrong_helper(void **state) {
  (void)state;
  brim_source *s = NULL;
  small_file("small.h5", false, false);
  setenv("BRIM_HDF5_HELPER", "/bin/false", 1);
  assert_status(open_source("hdf5", NULL, 0, "small.h5", "train", &s), BRIM_EIO);
  assert_detail("small.h5: the program brim-hdf5 does not run");
  setenv("BRIM_HDF5_HELPER", BRIM_BUILD_DIR "/tests/hdf5_helper_test", 1);
  setenv("BRIM_TEST_HELPER_VERSION", "0.0.1", 1);
  assert_status(open_source("hdf5", NULL, 0, "small.h5", "train", &s), BRIM_EABI);
  assert_detail("0.0.1");
  unsetenv("BRIM_TEST_HELPER_VERSION");
  unsetenv("BRIM_HDF5_HELPER");
  assert_ok(open_source("hdf5", NULL, 0, "small.h5", "train", &s));
  brim_source_close(s);
}

// x is a view of another file's dataset, or behind a filter that only the library undoes.
static void odd_file(const char *path, bool virtual) {
  const hsize_t dim[2] = {ROWS, COLS}, chunk[2] = {8, COLS};
  plain_file("part.h5");
  hid_t file = create(path, 0, false), space = H5Screate_simple(2, dim, NULL);
  hid_t made = H5Pcreate(H5P_DATASET_CREATE);
  if (virtual) {
    assert_true(H5Pset_virtual(made, space, "part.h5", "x", space) >= 0);
  } else {
    assert_true(H5Pset_chunk(made, 2, chunk) >= 0);
    assert_true(H5Pset_scaleoffset(made, H5Z_SO_INT, 0) >= 0);
  }
  hid_t x = H5Dcreate2(file, "x", virtual ? H5T_IEEE_F32LE : H5T_STD_I32LE, space, H5P_DEFAULT,
                       made, H5P_DEFAULT);
  assert_true(x >= 0);
  int32_t values[ROWS * COLS];
  for (hsize_t i = 0; i < (hsize_t)ROWS * COLS; i++) values[i] = (int32_t)value_at(i);
  if (!virtual)
    assert_true(H5Dwrite(x, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(x);
  H5Pclose(made);
  H5Sclose(space);
  put_labels(file, "y", ROWS, 5);
  H5Fclose(file);
}

// libhdf5 1.10 crashes on some of these, in H5Oopen and in H5Dread; on one it never ends.
static void test_crashes(void **state) {
  (void)state;
  enum { HEADER = 320 };
  (void)setenv("BRIM_HDF5_LIMIT_S", "1", 1);
  for (int virtual = 0; virtual < 2; virtual ++) {
    odd_file("odd.h5", virtual);
    const char *args = virtual ? "{\"allow_external\": true}" : NULL;
    compare_file("odd.h5", "x", args);
    haddr_t at = address_of("odd.h5", "x");
    char *data = NULL;
    size_t size = 0;
    int crashes = 0;
    assert_ok(brim_fs_read("odd.h5", 0, &data, &size));
    for (size_t i = 0; i < HEADER; i++) {
      if (!test_is_sampled(i * 2 + (virtual ? 1 : 0), 12)) continue;
      opened o;
      brim_pack_dataset *sets = NULL;
      size_t count = 0;
      put_byte("odd.h5", at + i, 0xff);
      if (try_open("odd.h5", "train", args, &o)) {
        assert_detail("odd.h5");
        crashes += strstr(brim_status_detail(), "crashed") != NULL;
      } else {
        shut(&o);
      }
      // the list reads the same headers, in one more fork
      if (i % 4 == 0 && !brim_pack_list("odd.h5", virtual != 0, &sets, &count)) brim_free(sets);
      put_byte("odd.h5", at + i, (uint8_t)data[at + i]);
    }
    brim_free(data);
    print_message("%s: libhdf5 crashed on %d\n", virtual ? "virtual" : "filter", crashes);
  }
  (void)unsetenv("BRIM_HDF5_LIMIT_S");
}

// The library's reason, which its next call forgets.
static void test_damaged_labels(void **state) {
  (void)state;
  hid_t file = create("labels.h5", 0, false);
  set x = floats("x", ROWS, COLS), y = labels("y", ROWS);
  y.chunk[0] = ROWS;
  y.deflate = true;
  put_set(file, &x, NULL);
  put_set(file, &y, NULL);
  hid_t dataset = H5Dopen2(file, "y", H5P_DEFAULT);
  const hsize_t first[1] = {0};
  haddr_t at = 0;
  hsize_t size = 0;
  unsigned mask = 0;
  assert_true(H5Dget_chunk_info_by_coord(dataset, first, &mask, &at, &size) >= 0);
  H5Dclose(dataset);
  H5Fclose(file);
  put_byte("labels.h5", at, 0xff);
  assert_refused("labels.h5", "train", NULL, BRIM_EPARSE, "labels.h5: /y: inflate() failed");
}

int main(void) {
  brim_data_leave_hdf5_open();  // as the program does
  // libhdf5 itself leaks memory on damaged files. The tests above count ours.
  if (__lsan_disable) __lsan_disable();
  brim_json_own_memory();
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flipped_bytes),   cmocka_unit_test(test_damaged_object),
      cmocka_unit_test(test_probe),           cmocka_unit_test(test_wrong_helper),
      cmocka_unit_test(test_unusable_helper), cmocka_unit_test(test_no_room_for_helper),
      cmocka_unit_test(test_crashes),         cmocka_unit_test(test_damaged_labels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
