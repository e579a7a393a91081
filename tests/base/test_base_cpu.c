// CPU quotas of fake control groups: both versions, nested, and none.
#include "base/base_machine.h"

#include "base/base.h"
#include "test.h"

static void put(const char *path, const char *text) {
  char *folder = brim_fs_dirname(path);
  assert_non_null(folder);
  assert_ok(brim_fs_mkdirs(folder));
  brim_free(folder);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static bool near(double a, double b) { return a > b - 1e-9 && a < b + 1e-9; }

static void test_version_2(void **state) {
  (void)state;
  assert_true(near(brim_cpu_quota("nowhere"), 0));
  put("v2/proc/self/cgroup", "0::/a/b\n");
  assert_true(near(brim_cpu_quota("v2"), 0));  // no file, no quota
  put("v2/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  assert_true(near(brim_cpu_quota("v2"), 0));
  put("v2/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  assert_true(near(brim_cpu_quota("v2"), 1.5));
  put("v2/sys/fs/cgroup/a/cpu.max", "25000 50000\n");  // the smallest up the tree
  assert_true(near(brim_cpu_quota("v2"), 0.5));
  put("v2/sys/fs/cgroup/cpu.max", "10000 100000\n");  // the root as a container sees it
  assert_true(near(brim_cpu_quota("v2"), 0.1));
  put("v2/sys/fs/cgroup/cpu.max", "900000 100000\n");
  assert_true(near(brim_cpu_quota("v2"), 0.5));
  put("v2/sys/fs/cgroup/a/b/cpu.max", "junk\n");
  assert_true(near(brim_cpu_quota("v2"), 0.5));
  // the host's path inside a container: only the root exists
  put("inside/proc/self/cgroup", "0::/kubepods/pod7/box\n");
  put("inside/sys/fs/cgroup/cpu.max", "200000 100000\n");
  assert_true(near(brim_cpu_quota("inside"), 2));
}

static void test_version_1(void **state) {
  (void)state;
  put("v1/proc/self/cgroup", "9:memory:/m\n4:cpu,cpuacct:/docker/x\n0::/\n");
  put("v1/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  put("v1/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  assert_true(near(brim_cpu_quota("v1"), 0));
  put("v1/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  assert_true(near(brim_cpu_quota("v1"), 0.5));
  put("v1/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "20000\n");
  put("v1/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
  assert_true(near(brim_cpu_quota("v1"), 0.2));
  // mounted as "cpu"; another controller's name only starts like it
  put("old/proc/self/cgroup", "3:cpuset:/y\n1:cpu:/x\n");
  put("old/sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "1000\n");
  put("old/sys/fs/cgroup/cpu/y/cpu.cfs_period_us", "100000\n");
  put("old/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
  put("old/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  assert_true(near(brim_cpu_quota("old"), 3));
}

static void put_quota(const char *text) {
  put("box/proc/self/cgroup", "0::/\n");
  put("box/sys/fs/cgroup/cpu.max", text);
}

static void test_threads(void **state) {
  (void)state;
  char text[64], want[64];
  int cores = brim_cpu_threads("nowhere");
  assert_true(cores >= 1);
  put_quota("50000 100000\n");
  assert_int_equal(brim_cpu_threads("box"), 1);  // rounded up, never 0
  brim_cpu_describe("box", text, sizeof text);
  snprintf(want, sizeof want, cores == 1 ? "%d core, quota 0.5" : "%d cores, quota 0.5", cores);
  assert_string_equal(text, want);
  put_quota("110000 100000\n");
  assert_int_equal(brim_cpu_threads("box"), cores > 1 ? 2 : 1);
  put_quota("100000000 100000\n");  // more than the machine has is no limit
  assert_int_equal(brim_cpu_threads("box"), cores);
  brim_cpu_describe("box", text, sizeof text);
  assert_null(strstr(text, "quota"));
  // the number that all other code uses
  put_quota("1000 100000\n");
  assert_int_equal(setenv("BRIM_MACHINE_ROOT", "box", 1), 0);
  assert_int_equal(brim_cpu_count(), 1);
  assert_int_equal(unsetenv("BRIM_MACHINE_ROOT"), 0);
}

static void test_what_it_cost(void **state) {
  (void)state;
  brim_cpu_stat s = brim_cpu_read_stat("nowhere");
  assert_true(s.throttled_s != s.throttled_s && s.used_s != s.used_s);
  put("held/proc/self/cgroup", "0::/a/b\n");
  put("held/sys/fs/cgroup/a/b/cpu.stat",
      "usage_usec 9000000\nuser_usec 1\nnr_periods 100\nnr_throttled 5\nthrottled_usec 250000\n");
  s = brim_cpu_read_stat("held");
  assert_true(near(s.throttled_s, 0.25) && near(s.used_s, 9));
  // a group above it was throttled longer
  put("held/sys/fs/cgroup/a/cpu.stat", "usage_usec 12000000\nthrottled_usec 750000\n");
  s = brim_cpu_read_stat("held");
  assert_true(near(s.throttled_s, 0.75) && near(s.used_s, 12));
  put("held/sys/fs/cgroup/a/cpu.stat", "usage_usec 12000000\n");  // this group has no quota
  assert_true(near(brim_cpu_read_stat("held").throttled_s, 0.25));
  // version 1: nanoseconds, and no usage
  put("held1/proc/self/cgroup", "4:cpu,cpuacct:/x\n");
  put("held1/sys/fs/cgroup/cpu,cpuacct/x/cpu.stat",
      "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000\n");
  s = brim_cpu_read_stat("held1");
  assert_true(near(s.throttled_s, 1.5) && s.used_s != s.used_s);
}

int main(void) {
  if (system("rm -rf v1 v2 old inside box held held1") != 0) return 1;  // left by an earlier round
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_version_2),
      cmocka_unit_test(test_version_1),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_what_it_cost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
