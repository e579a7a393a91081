// The host sampler with a fake machine in a folder, a fake provider, and this machine.
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "test.h"

static void write_file(const char *path, const char *text) {
  char *dir = brim_fs_dirname(path);
  assert_ok(brim_fs_mkdirs(dir));
  brim_free(dir);
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void test_info(void **state) {
  (void)state;
  write_file("m1/proc/cpuinfo",
             "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\n"
             "model name\t: Intel(R) Xeon(R) Platinum 8480C\n");
  write_file("m1/proc/meminfo", "MemTotal:  1024 kB\nMemFree: 3 kB\nMemAvailable:   512 kB\n");
  write_file("m1/etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n");
  write_file("m1/proc/self/cgroup", "0::/user.slice/job\n");
  write_file("m1/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  write_file("m1/sys/fs/cgroup/user.slice/memory.max", "300000\n");
  write_file("m1/sys/fs/cgroup/memory.max", "400000\n");
  brim_host_info info;
  assert_ok(brim_host_read_info("m1", &info));
  assert_string_equal(info.cpu, "Intel(R) Xeon(R) Platinum 8480C");
  assert_string_equal(info.os, "Debian GNU/Linux 12");
  assert_true(info.memory_total_bytes == 1024 * 1024);
  assert_true(info.memory_available_bytes == 512 * 1024);
  assert_true(info.memory_limit_bytes == 300000);
  assert_true(info.cores >= 1);
}

static void test_info_arm(void **state) {
  (void)state;
  write_file("m2/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  write_file("m2/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  brim_host_info info;
  assert_ok(brim_host_read_info("m2", &info));
  assert_string_equal(info.cpu, "Neoverse-V1");
  assert_true(isnan(info.memory_limit_bytes));
  write_file("m3/proc/cpuinfo", "CPU implementer\t: 0x99\nCPU part\t: 0x001\n");
  write_file("m3/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  assert_ok(brim_host_read_info("m3", &info));
  assert_string_equal(info.cpu, "Arm implementer 0x99 part 0x001");
  assert_true(info.memory_limit_bytes == 1048576);
}

// Without files everything is unknown, not zero.
static void test_unknown(void **state) {
  (void)state;
  brim_host_info info;
  assert_ok(brim_host_read_info("no-such-machine", &info));
  assert_string_equal(info.cpu, "");
  assert_true(isnan(info.memory_total_bytes));
  assert_true(isnan(info.memory_limit_bytes));
  brim_host_provider p = brim_host_provider_system("no-such-machine");
  brim_host_sample s;
  assert_ok(brim_host_read_sample(&p, &s));
  for (int i = 0; i < BRIM_HOST_METRIC_COUNT; i++) {
    if (i == BRIM_HOST_PROCESS_CPU_S) continue;  // read by a system call, not from a file
    assert_true(isnan(s.value[i]));
  }
}

static void test_sample(void **state) {
  (void)state;
  double hz = (double)sysconf(_SC_CLK_TCK);
  write_file("m4/proc/stat", "cpu  100 10 50 700 40 5 5 90 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  write_file("m4/proc/self/status", "Name:\tx\nVmHWM:\t    200 kB\nVmRSS:\t  100 kB\n");
  write_file("m4/proc/meminfo", "MemAvailable: 7 kB\n");
  for (int cpu = 0; cpu < 2; cpu++) {
    char path[128];
    const char *dir = "m4/sys/devices/system/cpu/cpu";
    snprintf(path, sizeof path, "%s%d/cpufreq/scaling_cur_freq", dir, cpu);
    write_file(path, cpu ? "3000000\n" : "2000000\n");
    snprintf(path, sizeof path, "%s%d/cpufreq/cpuinfo_max_freq", dir, cpu);
    write_file(path, "3500000\n");
    snprintf(path, sizeof path, "%s%d/thermal_throttle/core_throttle_count", dir, cpu);
    write_file(path, "4\n");
  }
  brim_host_provider p = brim_host_provider_system("m4");
  brim_host_sample s;
  assert_ok(brim_host_read_sample(&p, &s));
  assert_true(s.value[BRIM_HOST_SYSTEM_TOTAL_S] == 1000 / hz);
  assert_true(s.value[BRIM_HOST_SYSTEM_BUSY_S] == 260 / hz);
  assert_true(s.value[BRIM_HOST_PROCESS_RSS] == 100 * 1024);
  assert_true(s.value[BRIM_HOST_PROCESS_PEAK_RSS] == 200 * 1024);
  assert_true(s.value[BRIM_HOST_MEMORY_AVAILABLE] == 7 * 1024);
  assert_true(s.value[BRIM_HOST_CPU_FREQUENCY] == 2.5e9);
  assert_true(s.value[BRIM_HOST_CPU_MAX_FREQUENCY] == 3.5e9);
  assert_true(s.value[BRIM_HOST_CPU_THROTTLE_COUNT] == 8);
  // values from garbage in the files are unknown too
  write_file("m5/proc/stat", "cpu  a b c\n");
  write_file("m5/proc/self/status", "VmRSS:\tmuch kB\n");
  p = brim_host_provider_system("m5");
  assert_ok(brim_host_read_sample(&p, &s));
  assert_true(isnan(s.value[BRIM_HOST_SYSTEM_TOTAL_S]));
  assert_true(isnan(s.value[BRIM_HOST_PROCESS_RSS]));
}

static brim_status fake_sample(void *ctx, brim_host_sample *out) {
  int n = ++*(int *)ctx;
  out->time_ns = n * 2000000000LL;
  out->value[BRIM_HOST_PROCESS_CPU_S] = n * 3.0;
  out->value[BRIM_HOST_SYSTEM_BUSY_S] = n * 4.0;
  out->value[BRIM_HOST_SYSTEM_TOTAL_S] = n * 16.0;
  return BRIM_OK;
}

static void test_usage(void **state) {
  (void)state;
  int calls = 0;
  brim_host_provider p = {.name = "fake", .ctx = &calls, .sample = fake_sample};
  brim_host_sample a, b;
  assert_ok(brim_host_read_sample(&p, &a));
  assert_ok(brim_host_read_sample(&p, &b));
  brim_host_usage u = brim_host_usage_between(&a, &b);
  assert_true(u.seconds == 2.0);
  assert_true(u.process_cpu_percent == 150.0);
  assert_true(u.system_cpu_percent == 25.0);
  assert_true(u.others_cpu_percent == 6.25);
  b.value[BRIM_HOST_PROCESS_CPU_S] += 2;  // the kernel's ticks lag behind the process's own clock
  assert_true(brim_host_usage_between(&a, &b).others_cpu_percent == 0);
  assert_true(isnan(u.throttle_events));
  // two CPUs of eight: the other programs' share of those two
  b.value[BRIM_HOST_PROCESS_CPU_S] -= 2;
  a.value[BRIM_HOST_ALLOWED_BUSY_S] = a.value[BRIM_HOST_ALLOWED_TOTAL_S] = 0;
  b.value[BRIM_HOST_ALLOWED_BUSY_S] = b.value[BRIM_HOST_ALLOWED_TOTAL_S] = 4;
  assert_true(brim_host_usage_between(&a, &b).others_cpu_percent == 25.0);
  u = brim_host_usage_between(&a, &a);
  assert_true(isnan(u.process_cpu_percent) && isnan(u.system_cpu_percent));
  assert_true(isnan(u.others_cpu_percent));
}

static void test_here(void **state) {
  (void)state;
  brim_host_info info;
  assert_ok(brim_host_get_info(&info));
  assert_true(info.cores >= 1 && info.cores <= info.cores_online);
  assert_true(info.memory_total_bytes > info.memory_available_bytes);
  assert_true(info.kernel[0]);
  brim_host_provider p = brim_host_provider_system("");
  brim_host_sample s;
  assert_ok(brim_host_read_sample(&p, &s));
  assert_true(s.value[BRIM_HOST_PROCESS_RSS] > 4096);
  assert_true(s.value[BRIM_HOST_PROCESS_PEAK_RSS] >= s.value[BRIM_HOST_PROCESS_RSS] / 2);
  assert_true(s.value[BRIM_HOST_SYSTEM_TOTAL_S] > 0);
  // only the CPUs that this process may use; the kernel counts each separately
  assert_true(s.value[BRIM_HOST_ALLOWED_TOTAL_S] > 0);
  assert_true(s.value[BRIM_HOST_ALLOWED_TOTAL_S] <= 1.01 * s.value[BRIM_HOST_SYSTEM_TOTAL_S] + 1);
  assert_true(s.value[BRIM_HOST_PROCESS_CPU_S] >= 0);
}

// brim_host_forget_peak removes memory that was freed before from the peak.
static void test_forget_peak(void **state) {
  (void)state;
  enum { HELD = 64 << 20 };
  brim_host_provider p = brim_host_provider_system("");
  brim_host_sample before, after;
  // mmap, since malloc may keep the memory
  void *block = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(block != MAP_FAILED);
  memset(block, 1, HELD);
  assert_int_equal(munmap(block, HELD), 0);
  assert_ok(brim_host_read_sample(&p, &before));
  brim_host_forget_peak();
  assert_ok(brim_host_read_sample(&p, &after));
  double lost = before.value[BRIM_HOST_PROCESS_PEAK_RSS] - after.value[BRIM_HOST_PROCESS_PEAK_RSS];
  if (lost == 0) BRIM_SKIP("this kernel does not forget");
  assert_true(lost > HELD / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_info),        cmocka_unit_test(test_info_arm),
      cmocka_unit_test(test_sample),      cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_usage),       cmocka_unit_test(test_here),
      cmocka_unit_test(test_forget_peak),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
