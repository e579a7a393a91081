// Every check of the host, of variables, of WSL2 and of data, on a good machine and on a bad one.
#include "doctor/doctor_int.h"
#include "doctor/doctor_machine.h"

static void test_good(void **state) {
  (void)state;
  fake_good();
  fake_examine();
  static const char *const keys[] = {
      "host.system",    "host.memory",         "host.oom_kills",     "host.swap",
      "host.shm",       "host.open_files",     "host.processes",     "host.cores",
      "host.cpu_quota", "host.cpu_throttling", "host.locked_memory", "host.load",
      "host.governor",  "env.variable",        "data.filesystem",    "data.space"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_line(keys[i], NULL, BRIM_DOCTOR_GOOD, NULL);
  }
  assert_line("host.system", NULL, BRIM_DOCTOR_GOOD, "Debian GNU/Linux 12 (bookworm), Linux 6.1.0");
  assert_line("host.memory", NULL, BRIM_DOCTOR_GOOD, "57.2 GiB free of 64.0 GiB");
  assert_line("host.cores", NULL, BRIM_DOCTOR_GOOD, "16");
  assert_null(fake_line("wsl.version", NULL));
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_BAD], 0);
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_WARN], 0);
}

static void test_memory(void **state) {
  (void)state;
  fake_good();
  fake_file("/sys/fs/cgroup/box/memory.max", "4294967296\n");
  fake_file("/sys/fs/cgroup/box/memory.current", "4194304000\n");
  fake_file("/sys/fs/cgroup/box/memory.events", "oom 3\noom_kill 2\n");
  fake_file("/proc/meminfo",
            "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\nSwapTotal: 8388608 kB\nSwapFree: "
            "1048576 kB\n");
  fake.shm = (brim_doctor_space){64 * 1024.0 * 1024, 64 * 1024.0 * 1024};
  fake_examine();
  assert_line("host.memory", NULL, BRIM_DOCTOR_WARN, "of 4.0 GiB, the limit of the container");
  assert_line("host.oom_kills", NULL, BRIM_DOCTOR_WARN, "2");
  assert_line("host.swap", NULL, BRIM_DOCTOR_WARN, "7.0 GiB in use of 8.0 GiB");
  assert_line("host.shm", NULL, BRIM_DOCTOR_WARN, "64.0 MiB");
  assert_non_null(strstr(fake_line("host.shm", NULL)->fix, "--shm-size"));
}

static void test_limits(void **state) {
  (void)state;
  fake_good();
  fake_file("/sys/class/infiniband/mlx5_0/ports", "");
  fake_file("/proc/self/limits",
            "Max processes             1024                 1024                 processes\n"
            "Max open files            1024                 1048576              files\n"
            "Max locked memory         65536                unlimited            bytes\n");
  fake_examine();
  assert_line("host.open_files", NULL, BRIM_DOCTOR_WARN, "1,024 (at most ");
  assert_string_equal(fake_line("host.open_files", NULL)->fix, "ulimit -n 65536");
  assert_line("host.processes", NULL, BRIM_DOCTOR_WARN, "1,024");
  assert_non_null(strstr(fake_line("host.processes", NULL)->fix, "limits.conf"));
  assert_line("host.locked_memory", NULL, BRIM_DOCTOR_WARN, "64.0 KiB");
  fake_file("/proc/self/limits",
            "Max processes             1                    1                    processes\n"
            "Max open files            5                    5                    files\n");
  fake_examine();
  assert_line("host.open_files", NULL, BRIM_DOCTOR_BAD, "5 (at most 5)");
  assert_line("host.processes", NULL, BRIM_DOCTOR_BAD, "1 (at most 1)");
}

static void test_quota(void **state) {
  (void)state;
  fake_good();
  fake_file("/sys/fs/cgroup/box/cpu.max", "200000 100000\n");
  fake_file("/sys/fs/cgroup/box/cpu.stat",
            "usage_usec 1\nnr_periods 1000\nnr_throttled 450\nthrottled_usec 60000000\n");
  fake_examine();
  assert_line("host.cpu_quota", NULL, BRIM_DOCTOR_WARN, "2 cores, though 16 are visible");
  assert_line("host.cpu_throttling", NULL, BRIM_DOCTOR_BAD, "45 %");
  fake_file("/sys/fs/cgroup/box/cpu.stat",
            "nr_periods 1000\nnr_throttled 50\nthrottled_usec 60000000\n");
  fake_examine();
  assert_line("host.cpu_throttling", NULL, BRIM_DOCTOR_WARN, "5 %");
}

// A sandbox shows the top control group, but not this process's group.
static void test_hidden_group(void **state) {
  (void)state;
  fake_good();
  fake_file("/proc/self/cgroup", "0::/hidden\n");
  fake_examine();
  assert_line("host.cpu_quota", NULL, BRIM_DOCTOR_UNKNOWN, "a quota may exist");
  assert_line("host.cpu_throttling", NULL, BRIM_DOCTOR_UNKNOWN, "cpu.stat");
}

// Version 1: quota and counts are in the cpu controller's group.
static void test_quota_of_version_1(void **state) {
  (void)state;
  fake_good();
  fake_file("/proc/self/cgroup", "4:cpu,cpuacct:/\n");
  fake_gone("/sys/fs/cgroup/cgroup.controllers");
  fake_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  fake_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  fake_file("/sys/fs/cgroup/cpu/cpu.stat",
            "nr_periods 100\nnr_throttled 90\nthrottled_time 9000000000\n");
  fake_examine();
  assert_line("host.cpu_quota", NULL, BRIM_DOCTOR_WARN, "1.5 cores");
  assert_line("host.cpu_throttling", NULL, BRIM_DOCTOR_BAD, "9 s");
  fake_file("/proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/\n");
  fake_file("/sys/fs/cgroup/memory/box/memory.oom_control", "under_oom 0\noom_kill 7\n");
  fake_examine();
  assert_line("host.oom_kills", NULL, BRIM_DOCTOR_WARN, "7");
}

static void test_processors(void **state) {
  (void)state;
  fake_good();
  fake_file("/proc/self/status", "Cpus_allowed_list:\t3,5\n");
  fake_file("/proc/loadavg", "40.00 1.00 1.00 2/100 42\n");
  fake_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  fake_file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
  fake_examine();
  assert_line("host.cores", NULL, BRIM_DOCTOR_WARN, "2 of 16");
  assert_line("host.load", NULL, BRIM_DOCTOR_WARN, "40 runnable on 16 cores");
  assert_line("host.governor", NULL, BRIM_DOCTOR_WARN, "powersave on 1 of 2 cores");
  // this driver gives the setting another meaning
  fake_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
  fake_examine();
  assert_line("host.governor", NULL, BRIM_DOCTOR_GOOD, "powersave");
  fake_file("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
  fake_examine();
  assert_line("host.governor", NULL, BRIM_DOCTOR_WARN, "powersave");
}

//---------------------------------- variables ----------------------------------

static void assert_variable(const char *name, const char *value, brim_doctor_state expected) {
  memset(fake.names, 0, sizeof fake.names);
  fake_set(name, value);
  fake_examine();
  assert_line("env.variable", name, expected, value);
}

static void test_variables(void **state) {
  (void)state;
  static const struct {
    const char *name, *bad, *good;
    brim_doctor_state state;
  } rows[] = {
      {"CUDA_LAUNCH_BLOCKING", "1", "0", BRIM_DOCTOR_BAD},
      {"CUDA_VISIBLE_DEVICES", "-1", "0", BRIM_DOCTOR_BAD},
      {"CUDA_VISIBLE_DEVICES", "0,3", "GPU-0", BRIM_DOCTOR_BAD},
      {"CUDA_MODULE_LOADING", "EAGER", "LAZY", BRIM_DOCTOR_WARN},
      {"CUDA_CACHE_DISABLE", "1", "0", BRIM_DOCTOR_WARN},
      {"CUDA_INJECTION64_PATH", "/lib.so", "", BRIM_DOCTOR_WARN},
      {"NVIDIA_TF32_OVERRIDE", "0", "1", BRIM_DOCTOR_WARN},
      {"XLA_PYTHON_CLIENT_MEM_FRACTION", "0.98", ".75", BRIM_DOCTOR_WARN},
      {"XLA_PYTHON_CLIENT_MEM_FRACTION", "much", "0.5", BRIM_DOCTOR_BAD},
      {"XLA_PYTHON_CLIENT_PREALLOCATE", "false", "true", BRIM_DOCTOR_WARN},
      {"XLA_FLAGS", "--xla_dump_to=/x", "--xla_gpu_enable_latency_hiding_scheduler=true",
       BRIM_DOCTOR_WARN},
      {"JAX_ENABLE_X64", "True", "0", BRIM_DOCTOR_WARN},
      {"JAX_DISABLE_JIT", "1", "false", BRIM_DOCTOR_BAD},
      {"JAX_DEBUG_NANS", "1", "0", BRIM_DOCTOR_WARN},
      {"JAX_PLATFORMS", "cpu", "cuda", BRIM_DOCTOR_WARN},
      {"TORCH_CUDNN_V8_API_ENABLED", "0", "1", BRIM_DOCTOR_WARN},
      {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "0", BRIM_DOCTOR_BAD},
      {"TORCHDYNAMO_DISABLE", "1", "0", BRIM_DOCTOR_WARN},
      {"TORCH_DISTRIBUTED_DEBUG", "DETAIL", "OFF", BRIM_DOCTOR_WARN},
      {"NCCL_DEBUG", "INFO", "WARN", BRIM_DOCTOR_WARN},
      {"NCCL_P2P_DISABLE", "1", "0", BRIM_DOCTOR_WARN},
      {"NCCL_IB_DISABLE", "1", "0", BRIM_DOCTOR_WARN},
      {"OMP_NUM_THREADS", "64", "8", BRIM_DOCTOR_WARN},
      {"OMP_NUM_THREADS", "1", "16", BRIM_DOCTOR_WARN},
      {"OMP_NUM_THREADS", "none", "4,2", BRIM_DOCTOR_BAD},
      {"MKL_NUM_THREADS", "32", "16", BRIM_DOCTOR_WARN},
      {"LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs", "/usr/local/cuda/lib64", BRIM_DOCTOR_BAD},
  };
  fake_good();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_variable(rows[i].name, rows[i].bad, rows[i].state);
    assert_variable(rows[i].name, rows[i].good, BRIM_DOCTOR_GOOD);
  }
}

//---------------------------------- WSL2 ----------------------------------

static void fake_wsl(void) {
  fake_bare();
  fake_host();
  fake_file("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  fake_file("/proc/meminfo",
            "MemTotal: 12582912 kB\nMemAvailable: 11000000 kB\nSwapTotal: 0 "
            "kB\nSwapFree: 0 kB\n");
}

static void test_wsl(void **state) {
  (void)state;
  fake_wsl();
  fake_file("/mnt/c/Users/me/.wslconfig", "[wsl2]\r\nmemory=20GB\r\n");
  fake_file("/dev/dxg", "");
  fake.gpu_count = 1;
  fake.gpus[0] = GOOD_GPU;
  fake_examine();
  assert_line("wsl.version", NULL, BRIM_DOCTOR_GOOD, "WSL2");
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_GOOD, NULL);
  assert_line("wsl.memory", NULL, BRIM_DOCTOR_GOOD, "memory=20GB");
  assert_null(fake_line("gpu.persistence", NULL));  // Windows controls it
}

static void test_wsl_without_gpu(void **state) {
  (void)state;
  fake_wsl();
  fake_file("/mnt/c/Users/me/desktop.ini", "x");
  fake_examine();
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_BAD, "/dev/dxg");
  assert_line("software.driver", NULL, BRIM_DOCTOR_BAD, NULL);
  // half of 24 GB: the values that guide 004 pastes
  assert_line("wsl.memory", NULL, BRIM_DOCTOR_WARN, "12.0 GiB");
  assert_non_null(strstr(fake_line("wsl.memory", NULL)->fix, "[wsl2]\nmemory=20GB\nswap=8GB\n"));
  fake_file("/dev/dxg", "");
  fake_examine();
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_BAD, "libcuda.so.1");
  fake_file("/usr/lib/wsl/lib/libcuda.so.1", "elf");
  fake_examine();
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_BAD, "/usr/lib/wsl/lib");
  assert_non_null(strstr(fake_line("wsl.gpu", NULL)->fix, "export LD_LIBRARY_PATH"));
  fake_set("LD_LIBRARY_PATH", "/usr/lib/wsl/lib");
  fake_examine();
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_BAD, "no library");
  fake_file("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "elf");
  fake_examine();
  assert_line("wsl.gpu", NULL, BRIM_DOCTOR_BAD, "hides");
}

static void test_wsl_of_version_1(void **state) {
  (void)state;
  fake_wsl();
  fake_file("/proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft\n");
  fake_examine();
  assert_line("wsl.version", NULL, BRIM_DOCTOR_BAD, "WSL1");
  assert_line("wsl.memory", NULL, BRIM_DOCTOR_UNKNOWN, "/mnt/c is not mounted");
}

//---------------------------------- data ----------------------------------

static void mount_as(const char *type) {
  char text[2048], *here = realpath(".", NULL);
  assert_non_null(here);
  snprintf(text, sizeof text,
           "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:1 / %s rw - %s server rw\n", here, type);
  free(here);
  fake_file("/proc/self/mountinfo", text);
}

static void test_file_systems(void **state) {
  (void)state;
  static const char *const slow[] = {"nfs4",   "cifs",     "9p",   "fuse.sshfs",
                                     "lustre", "virtiofs", "drvfs"};
  static const char *const fast[] = {"ext4", "xfs", "tmpfs", "overlay", "btrfs", "zfs"};
  fake_good();
  for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
    mount_as(slow[i]);
    fake_examine();
    assert_line("data.filesystem", NULL, BRIM_DOCTOR_WARN, slow[i]);
    assert_non_null(strstr(fake_line("data.filesystem", NULL)->fix, "brim data convert SRC "));
  }
  // the command contains the given data
  assert_ok(brim_fs_mkdirs("some data"));
  fake_data = "some data";
  mount_as("nfs4");
  fake_examine();
  assert_non_null(
      strstr(fake_line("data.filesystem", NULL)->fix, "brim data convert 'some data' "));
  fake_data = NULL;
  for (size_t i = 0; i < sizeof fast / sizeof *fast; i++) {
    mount_as(fast[i]);
    fake_examine();
    assert_line("data.filesystem", NULL, BRIM_DOCTOR_GOOD, fast[i]);
  }
}

static void test_data(void **state) {
  (void)state;
  fake_good();
  fake.disk = (brim_doctor_space){100.0 * (double)GIB_U, 0.5 * (double)GIB_U};
  fake_data = "no/such/folder";
  fake_examine();
  assert_line("data.filesystem", NULL, BRIM_DOCTOR_BAD, "no/such/folder");
  assert_line("data.speed", NULL, BRIM_DOCTOR_UNKNOWN, NULL);
  assert_line("data.space", NULL, BRIM_DOCTOR_BAD, "512.0 MiB free");
  assert_ok(brim_fs_mkdirs("doctor-data"));
  unlink("doctor-data/b");  // left by an earlier run
  assert_ok(brim_fs_write("doctor-data/a", "abc", 3));
  fake_data = "doctor-data";
  fake.disk.free = 5.0 * (double)GIB_U;
  fake_examine();
  assert_line("data.speed", NULL, BRIM_DOCTOR_UNKNOWN, "too little");
  assert_line("data.space", NULL, BRIM_DOCTOR_WARN, NULL);
  // the kind (disk or cache) and the amount depend on the machine
  size_t size = 8 << 20;
  char *block = brim_calloc(1, size);
  assert_non_null(block);
  assert_ok(brim_fs_write("doctor-data/b", block, size));
  brim_free(block);
  fake_examine();
  const brim_doctor_line *line = fake_line("data.speed", NULL);
  assert_non_null(line);
  assert_true(strstr(line->value, " MB/s ") || strstr(line->value, "too little"));
  fake_data = NULL;
}

// The rate is the median of the passes; hidden files are not read.
static void test_speed(void **state) {
  (void)state;
  fake_good();
  assert_ok(brim_fs_mkdirs("doctor-speed"));
  assert_ok(brim_fs_write("doctor-speed/a", "abc", 3));
  assert_ok(brim_fs_write("doctor-speed/.hidden", "abc", 3));
  fake_data = "doctor-speed";
  fake_examine();
  assert_line("data.speed", NULL, BRIM_DOCTOR_UNKNOWN, "1 files with");
  fake_reading = (brim_doctor_reading){.rates = {1e8, 4e8, 5e8, 6e8, 9e9},
                                       .passes = 5,
                                       .files = 3,
                                       .bytes = 64 * 1048576.0,
                                       .stored = 1};
  fake_examine();
  assert_line("data.speed", NULL, BRIM_DOCTOR_GOOD,
              "500 MB/s (median of 5 passes, 100 to 9,000) over 64.0 MiB, in order");
  fake_reading.rates[2] = 1.5e8;
  fake_examine();
  assert_line("data.speed", NULL, BRIM_DOCTOR_WARN, "150 MB/s");
  fake_reading.stored = 0.1;
  fake_examine();
  assert_line("data.speed", NULL, BRIM_DOCTOR_UNKNOWN, "page cache");
  memset(&fake_reading, 0, sizeof fake_reading);
  fake_data = NULL;
}

// The output folder does not exist yet, so the disk is that of its nearest existing parent.
static void test_output(void **state) {
  (void)state;
  char there[64];
  static const struct {
    const char *path, *there;
  } rows[] = {{"no-such-run/of/mine", "."},
              {"doctor-speed/mine", "doctor-speed"},
              {"doctor-speed", "doctor-speed"},
              {"/no-such-folder/x", "/"},
              {"", "."},
              {"/", "/"}};
  assert_ok(brim_fs_mkdirs("doctor-speed"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_doctor_there(rows[i].path, there, sizeof there);
    assert_string_equal(there, rows[i].there);
  }
}

// Almost nothing is readable: lines are unknown with a reason, or left out.
static void test_bare_container(void **state) {
  (void)state;
  static const char *const keys[] = {
      "host.system",    "host.memory",        "host.oom_kills",      "host.swap",
      "host.shm",       "host.open_files",    "host.cores",          "host.processes",
      "host.cpu_quota", "host.locked_memory", "host.cpu_throttling", "host.load",
      "host.governor",  "gpu.found",          "software.driver",     "data.filesystem",
      "data.space",     "data.speed"};
  fake_bare();
  fake_examine();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_line(keys[i], NULL, BRIM_DOCTOR_UNKNOWN, NULL);
    assert_true(fake_line(keys[i], NULL)->value[0] != '\0');
  }
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_BAD], 0);
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_WARN], 0);
}

static void test_all_seen(void **state) {
  (void)state;
  static const char *const facts[] = {"host.system", NULL};
  assert_both_seen("host.", facts);
  assert_both_seen("wsl.", NULL);
  assert_both_seen("env.", NULL);
  assert_both_seen("data.", NULL);
}

static int finish(void **state) {
  (void)state;
  brim_doctor_report_deinit(&fake_report);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_quota),
      cmocka_unit_test(test_hidden_group),
      cmocka_unit_test(test_quota_of_version_1),
      cmocka_unit_test(test_processors),
      cmocka_unit_test(test_variables),
      cmocka_unit_test(test_wsl),
      cmocka_unit_test(test_wsl_without_gpu),
      cmocka_unit_test(test_wsl_of_version_1),
      cmocka_unit_test(test_file_systems),
      cmocka_unit_test(test_data),
      cmocka_unit_test(test_speed),
      cmocka_unit_test(test_output),
      cmocka_unit_test(test_bare_container),
      cmocka_unit_test(test_all_seen),
  };
  return cmocka_run_group_tests(tests, NULL, finish);
}
