// Names and memory of fake machines, including control groups.
#include <sys/resource.h>

#include "base/base.h"
#include "test.h"

static void put(const char *path, const char *text) {
  char *folder = brim_fs_dirname(path);
  assert_non_null(folder);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void test_cpu_names(void **state) {
  (void)state;
  char name[64];
  put("x86/proc/cpuinfo",
      "processor\t: 0\nmodel name\t: Some(R) CPU\nflags\t\t: fpu avx2 avx512f\n");
  brim_machine_cpu_name("x86", name, sizeof name);
  assert_string_equal(name, "Some(R) CPU");
  assert_true(brim_machine_cpu_flag("x86", "avx2"));
  assert_true(brim_machine_cpu_flag("x86", "avx512f"));
  assert_false(brim_machine_cpu_flag("x86", "avx512"));
  assert_false(brim_machine_cpu_flag("x86", "avx"));
  put("arm/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  brim_machine_cpu_name("arm", name, sizeof name);
  assert_string_equal(name, "Neoverse-V1");
  assert_false(brim_machine_cpu_flag("arm", "avx2"));
  put("odd/proc/cpuinfo", "CPU implementer\t: 0x99\nCPU part\t: 0x123\n");
  brim_machine_cpu_name("odd", name, sizeof name);
  assert_string_equal(name, "Arm implementer 0x99 part 0x123");
  brim_machine_cpu_name("nowhere", name, sizeof name);
  assert_string_equal(name, "");
}

// A process at its limit of open files can still read the memory size.
static void test_memory_without_files(void **state) {
  (void)state;
  uint64_t available = 0, total = 0;
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = (struct rlimit){0, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  brim_machine_free_memory("", &available, &total);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_true(total > 0 && available > 0 && available <= total);
  brim_machine_free_memory("nowhere", &available, &total);
  assert_int_equal(total, 0);
}

static void test_memory_and_groups(void **state) {
  (void)state;
  uint64_t available, total;
  put("plain/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   600 kB\n");
  brim_machine_free_memory("plain", &available, &total);
  assert_int_equal(available, 600 * 1024);
  assert_int_equal(total, 1000 * 1024);
  // a group two levels down: its own limit is "max", its parent's counts, and cache that can be dropped is free
  put("box/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  put("box/proc/self/cgroup", "0::/a/b\n");
  put("box/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("box/sys/fs/cgroup/a/memory.max", "204800\n");
  put("box/sys/fs/cgroup/a/memory.current", "150000\n");
  put("box/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50000\n");
  brim_machine_free_memory("box", &available, &total);
  assert_int_equal(available, 204800 - 100000);
  assert_int_equal(total, 204800);
  brim_machine_free_memory("nowhere", &available, &total);
  assert_int_equal(available, 0);
  assert_int_equal(total, 0);
}

static void test_this_machine(void **state) {
  (void)state;
  char name[128];
  uint64_t available = 0, total = 0;
  brim_machine_cpu_name("", name, sizeof name);
  assert_true(name[0] != 0);
  brim_machine_free_memory("", &available, &total);
  assert_true(available > 0 && available <= total);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cpu_names),
      cmocka_unit_test(test_memory_without_files),
      cmocka_unit_test(test_memory_and_groups),
      cmocka_unit_test(test_this_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
