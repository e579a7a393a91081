// The live view's host and processes over fake trees of /proc and /sys, and recordings of views.
#include <sys/stat.h>
#include <unistd.h>

#include "fake_top.h"
#include "monitor/monitor_int.h"

static void write_file(const char *root, const char *path, const char *text) {
  char full[256];
  snprintf(full, sizeof full, "%s/%s", root, path);
  char *dir = brim_fs_dirname(full);
  assert_ok(brim_fs_mkdirs(dir));
  brim_free(dir);
  assert_ok(brim_fs_write(full, text, strlen(text)));
}

static void write_link(const char *root, const char *path, const char *to) {
  char full[256];
  snprintf(full, sizeof full, "%s/%s", root, path);
  char *dir = brim_fs_dirname(full);
  assert_ok(brim_fs_mkdirs(dir));
  brim_free(dir);
  unlink(full);
  assert_int_equal(symlink(to, full), 0);
}

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || fabs(a - b) < 1e-6; }

//---------------------------------- host ----------------------------------

static void write_counters(const char *root, const char *cpu, const char *disks,
                           const char *network) {
  write_file(root, "proc/stat", cpu);
  write_file(root, "proc/diskstats", disks);
  write_file(root, "proc/net/dev", network);
}

static void write_facts(const char *root) {
  write_file(root, "proc/meminfo",
             "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 100 kB\nSwapFree: 25 kB\n");
  write_file(root, "proc/loadavg", "0.50 1.25 2.00 3/456 789\n");
  write_file(root, "proc/uptime", "5000.25 100.00\n");
  write_file(root, "proc/self/cgroup", "0::/job.slice/run\n");
  write_file(root, "sys/fs/cgroup/job.slice/run/cpu.max", "max 100000\n");
  write_file(root, "sys/fs/cgroup/job.slice/cpu.max", "150000 100000\n");
  write_file(root, "sys/fs/cgroup/job.slice/cpu.stat",
             "usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 7\n");
  write_file(root, "sys/fs/cgroup/job.slice/memory.max", "500000\n");
  write_file(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2000000\n");
  write_file(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n");
}

static void test_host(void **state) {
  (void)state;
  const char *root = "h1";
  brim_top_host_state s;
  brim_top_host h;
  write_facts(root);
  write_counters(root, "cpu  100 0 100 700 100 0 0 0 9 9\ncpu0 1 1 1 1 1 1 1 1\n",
                 "   8  0 sda 10 0 1000 5 20 0 2000 5 0 0 0\n"
                 "   8  1 sda1 10 0 1000 5 20 0 2000 5 0 0 0\n"
                 " 259  0 nvme0n1 10 0 50 5 20 0 60 5 0 0 0\n"
                 " 259  1 nvme0n1p1 10 0 50 5 20 0 60 5 0 0 0\n"
                 " 253  0 dm-0 10 0 1000 5 20 0 2000 5 0 0 0\n",
                 "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
                 "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
                 "  eth0: 5000 1 0 0 0 0 0 0 7000 1 0 0 0 0 0 0\n"
                 "veth12: 5000 1 0 0 0 0 0 0 7000 1 0 0 0 0 0 0\n");
  brim_top_host_open(&s, root, 100 * FAKE_TOP_S);
  // the first reading has present values; rates need a second one
  brim_top_host_read(&s, 100 * FAKE_TOP_S, &h);
  assert_true(isnan(h.cpu_percent) && isnan(h.disk_read) && isnan(h.quota_throttled_percent));
  assert_true(h.memory_total == 1000 * 1024 && h.memory_used == 600 * 1024);
  assert_true(h.swap_total == 100 * 1024 && h.swap_used == 75 * 1024);
  assert_true(h.load_1 == 0.5 && h.load_15 == 2 && h.tasks_running == 3 && h.tasks == 456);
  assert_true(h.uptime_s == 5000.25 && h.quota_cores == 1.5 && h.memory_limit == 500000);
  assert_true(h.cpu_mhz == 2000 && h.cpu_max_mhz == 3500);
  assert_true(h.cores >= 1);
  // 2 s later: 100 ticks more, 30 of them idle and 10 waiting
  write_counters(root,
                 "cpu  140 0 120 730 110 0 0 0 9 9\ncpu0 21 1 1 21 1 1 1 1\ncpu2 1 1 1 1 1 1 1 1\n"
                 "intr 5 5\n",
                 "   8  0 sda 10 0 1100 5 20 0 2300 5 0 0 0\n"
                 " 259  0 nvme0n1 10 0 150 5 20 0 60 5 0 0 0\n",
                 "  eth0: 6000 1 0 0 0 0 0 0 7500 1 0 0 0 0 0 0\n");
  write_file(root, "sys/fs/cgroup/job.slice/cpu.stat", "nr_periods 120\nnr_throttled 15\n");
  brim_top_host_read(&s, 102 * FAKE_TOP_S, &h);
  assert_true(same(h.cpu_percent, 60) && same(h.iowait_percent, 10));
  // core 0: half of 40 ticks; core 1 is offline; core 2 has just come
  assert_int_equal(h.core_count, 3);
  assert_true(same(h.core_percent[0], 50));
  assert_true(isnan(h.core_percent[1]) && isnan(h.core_percent[2]));
  assert_true(same(h.quota_throttled_percent, 25));
  assert_true(same(h.disk_read, 200 * 512 / 2.0) && same(h.disk_write, 300 * 512 / 2.0));
  assert_true(same(h.network_rx, 500) && same(h.network_tx, 250));
  // counters that start again
  write_counters(root, "cpu  1 0 1 1 1 0 0 0 0 0\n", "   8  0 sda 10 0 5 5 20 0 2300 5 0 0 0\n",
                 "  eth0: 1 1 0 0 0 0 0 0 8500 1 0 0 0 0 0 0\n");
  brim_top_host_read(&s, 103 * FAKE_TOP_S, &h);
  assert_true(isnan(h.cpu_percent) && isnan(h.disk_read) && isnan(h.network_rx));
  assert_true(same(h.network_tx, 1000));
  assert_true(h.quota_throttled_percent == 0);  // no period of the quota has passed
}

// Version 1 of control groups; a container that sees the host's path and only its own root.
static void test_quota_v1(void **state) {
  (void)state;
  brim_top_host_state s;
  brim_top_host h;
  write_file("h2", "proc/self/cgroup",
             "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  write_file("h2", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  write_file("h2", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write_file("h2", "sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 10\nnr_throttled 10\n");
  brim_top_host_open(&s, "h2", 100 * FAKE_TOP_S);
  write_file("h2", "sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 20\nnr_throttled 20\n");
  brim_top_host_read(&s, 101 * FAKE_TOP_S, &h);
  assert_true(h.quota_cores == 0.5 && h.quota_throttled_percent == 100);
  // without a quota
  write_file("h3", "proc/self/cgroup", "0::/\n");
  write_file("h3", "sys/fs/cgroup/cpu.max", "max 100000\n");
  brim_top_host_open(&s, "h3", 100 * FAKE_TOP_S);
  brim_top_host_read(&s, 101 * FAKE_TOP_S, &h);
  assert_true(isnan(h.quota_cores) && isnan(h.quota_throttled_percent));
}

static void test_nothing_there(void **state) {
  (void)state;
  brim_top_host_state s;
  brim_top_host h;
  brim_top_host_open(&s, "no-such-machine", 0);
  brim_top_host_read(&s, FAKE_TOP_S, &h);
  assert_true(isnan(h.cpu_percent) && isnan(h.memory_total) && isnan(h.load_1));
  assert_true(isnan(h.disk_read) && isnan(h.network_rx) && isnan(h.uptime_s));
  assert_int_equal(h.tasks, -1);
  assert_string_equal(h.container, "");
}

static void test_host_container(void **state) {
  (void)state;
  brim_top_host_state s;
  write_file("h4", ".dockerenv", "");
  brim_top_host_open(&s, "h4", 0);
  assert_string_equal(s.slow.container, "docker");
  write_file("h5", "run/.containerenv", "");
  brim_top_host_open(&s, "h5", 0);
  assert_string_equal(s.slow.container, "podman");
  write_file("h6", "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  brim_top_host_open(&s, "h6", 0);
  assert_string_equal(s.slow.container, "wsl2");
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_container_names(void **state) {
  (void)state;
  static const struct {
    const char *cgroup, *expected;
  } rows[] = {
      {"0::/system.slice/docker-" ID ".scope\n", "docker 0123456789ab"},
      {"12:cpu:/docker/" ID "\n11:memory:/docker/" ID "\n", "docker 0123456789ab"},
      {"0::/machine.slice/libpod-" ID ".scope/container\n", "podman 0123456789ab"},
      {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c.slice/"
       "cri-containerd-" ID ".scope\n",
       "kubernetes 0123456789ab"},
      {"9:cpu:/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455556666/" ID "\n",
       "kubernetes 0123456789ab"},
      {"0::/lxc.payload.trainer/user.slice\n", "lxc trainer"},
      {"3:cpu:/lxc/box7\n", "lxc box7"},
      {"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "slurm job 4711"},
      {"0::/user.slice/user-1000.slice/session-2.scope\n", ""},
      {"0::/system.slice/docker.service\n", ""},
      {"0::/\n", ""},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[64];
    brim_top_container(rows[i].cgroup, name, sizeof name);
    assert_string_equal(name, rows[i].expected);
  }
}

//---------------------------------- processes ----------------------------------

static void write_stat(const char *root, unsigned pid, unsigned long long ticks,
                       unsigned long long start, long rss) {
  char path[64], text[256];
  snprintf(path, sizeof path, "proc/%u/stat", pid);
  snprintf(text, sizeof text,
           "%u (a ) (b) S 1 2 3 4 5 6 7 8 9 10 %llu %llu 0 0 20 0 1 0 %llu 99999 %ld 1 1\n", pid,
           ticks / 2, ticks - ticks / 2, start, rss);
  write_file(root, path, text);
}

static void write_process(const char *root, unsigned pid, const char *command, const char *cgroup) {
  char path[64];
  snprintf(path, sizeof path, "proc/%u/cmdline", pid);
  write_file(root, path, command);
  snprintf(path, sizeof path, "proc/%u/cgroup", pid);
  write_file(root, path, cgroup);
}

static const brim_top_process *find(const brim_top_view *view, int64_t pid, int64_t gpu) {
  for (size_t i = 0; i < view->process_count; i++) {
    if (view->processes[i].pid == pid && view->processes[i].gpu == gpu) return &view->processes[i];
  }
  fail_msg("no process %lld", (long long)pid);
  return NULL;
}

static void add_compute(unsigned gpu, unsigned pid, unsigned long long bytes) {
  fake_top_gpu *g = &fake_top.gpu[gpu];
  g->compute[g->compute_count++] = (brim_nvml_process){.pid = pid, .used_bytes = bytes};
}

static void add_use(unsigned gpu, unsigned pid, unsigned long long time_us, unsigned sm) {
  fake_top_gpu *g = &fake_top.gpu[gpu];
  g->use[g->use_count++] = (brim_nvml_process_use_v1){
      .time_us = time_us, .pid = pid, .sm = sm, .memory = 7, .jpeg = 1, .ofa = 2};
}

static void open_at(const char *root, const brim_nvml_api *api, brim_top_source *out) {
  assert_ok(brim_top_open_machine(root, api, out));
}

static void read_after(brim_top_source *source, double seconds, brim_top_view *view) {
  fake_top_pass(seconds);
  assert_ok(source->read(source->ctx, BRIM_TOP_WANT_ALL, view));
}

// The machine's own namespace: process ids of the driver are those of /proc.
static void test_processes(void **state) {
  (void)state;
  const char *root = "p1";
  double hz = (double)sysconf(_SC_CLK_TCK), page = (double)sysconf(_SC_PAGESIZE);
  write_link(root, "proc/self/ns/pid", "pid:[4026531836]");
  write_file(root, "proc/uptime", "5000 1\n");
  write_process(root, 4711, "/usr/bin/python3 train.py", "0::/system.slice/docker-" ID ".scope\n");
  write_stat(root, 4711, 1000, (unsigned long long)(4000 * hz), 25);
  fake_top_reset(2);
  add_compute(0, 4711, 5000);
  add_compute(1, 4711, 6000);
  add_compute(0, 9999, BRIM_NVML_UNKNOWN);  // in another container, with an unknown size
  fake_top.gpu[0].graphics[0] = (brim_nvml_process){.pid = 4711, .used_bytes = 5000};
  fake_top.gpu[0].graphics[1] = (brim_nvml_process){.pid = 8888, .used_bytes = 77};
  fake_top.gpu[0].graphics_count = 2;
  fake_top.gpu[1].mps[fake_top.gpu[1].mps_count++] = (brim_nvml_process){.pid = 7777};
  brim_nvml_api api = fake_top_api();
  brim_top_source top;
  brim_top_view view;
  brim_top_view_init(&view);
  open_at(root, &api, &top);
  add_use(0, 4711, 5, 14);
  add_use(0, 4711, 9, 28);
  write_stat(root, 4711, 1000 + (unsigned long long)(3 * hz), (unsigned long long)(4000 * hz), 30);
  read_after(&top, 2, &view);
  assert_int_equal(view.process_count, 5);
  const brim_top_process *p = find(&view, 4711, 0);
  assert_string_equal(p->type, "C+G");
  assert_string_equal(p->uuid, "GPU-0");
  assert_string_equal(p->command, "python3 train.py");
  assert_string_equal(p->container, "docker 0123456789ab");
  assert_true(p->user[0] != '\0' && p->elsewhere == BRIM_TOP_NO);
  assert_true(p->memory == 5000 && p->sm_percent == 28 && p->memory_busy_percent == 7);
  assert_true(p->jpeg_percent == 1 && p->ofa_percent == 2);
  assert_true(same(p->cpu_percent, 150) && p->rss == 30 * page && same(p->elapsed_s, 1000));
  p = find(&view, 4711, 1);
  assert_true(p->memory == 6000 && isnan(p->sm_percent) && same(p->cpu_percent, 150));
  assert_string_equal(p->type, "C");
  p = find(&view, 9999, 0);
  assert_true(p->elsewhere == BRIM_TOP_YES && isnan(p->memory) && isnan(p->rss));
  assert_true(p->user[0] == '\0' && p->command[0] == '\0');
  assert_string_equal(find(&view, 8888, 0)->type, "G");
  assert_string_equal(find(&view, 7777, 1)->type, "M");
  // its id now belongs to another process, which has not used the GPU
  write_process(root, 4711, "other", "0::/\n");
  write_stat(root, 4711, 5, (unsigned long long)(4900 * hz), 1);
  read_after(&top, 1, &view);
  p = find(&view, 4711, 0);
  assert_true(isnan(p->sm_percent) && isnan(p->cpu_percent));
  assert_string_equal(p->command, "other");
  assert_true(p->container[0] == '\0');
  // the process ends
  fake_top.gpu[0].compute_count = fake_top.gpu[1].compute_count = 0;
  fake_top.gpu[0].graphics_count = fake_top.gpu[1].mps_count = 0;
  read_after(&top, 1, &view);
  assert_int_equal(view.process_count, 0);
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// Without a GPU: the ten processes that use the CPU most.
static void test_busiest(void **state) {
  (void)state;
  const char *root = "p9";
  const double hz = (double)sysconf(_SC_CLK_TCK);
  write_link(root, "proc/self/ns/pid", "pid:[4026532999]");
  write_file(root, "proc/uptime", "5000 1\n");
  for (unsigned pid = 5000100; pid < 5000130; pid++) {
    write_process(root, pid, "busy", "0::/\n");
    write_stat(root, pid, 1000, 10, pid == 5000129 ? 0 : 10);
  }
  fake_top_reset(0);
  brim_nvml_api api = fake_top_api();
  brim_top_source top;
  brim_top_view view;
  brim_top_view_init(&view);
  open_at(root, &api, &top);
  read_after(&top, 1, &view);
  for (unsigned pid = 5000100; pid < 5000130; pid++) {  // the last one is a kernel thread
    const unsigned n = pid - 5000100;
    write_stat(root, pid, 1000 + (unsigned long long)(hz * n / 10), 10, n == 29 ? 0 : 10);
  }
  read_after(&top, 2, &view);
  assert_int_equal(view.process_count, 10);
  for (unsigned pid = 5000119; pid < 5000129; pid++) {
    const brim_top_process *p = find(&view, pid, -1);
    assert_string_equal(p->command, "busy");
    assert_true(p->elsewhere == BRIM_TOP_NO);
    assert_true(fabs(p->cpu_percent - (pid - 5000100) * 5) < 1);
  }
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// A container with its own process ids: a process is matched with the driver's only if it has a GPU open. A process
// that merely has the same id stays unnamed.
static void test_other_namespace(void **state) {
  (void)state;
  const char *root = "p2";
  write_link(root, "proc/self/ns/pid", "pid:[4026532999]");
  for (unsigned pid = 5000030; pid < 5000033; pid++) {
    write_process(root, pid, "innocent", "0::/\n");
    write_stat(root, pid, 10, 10, 10);
  }
  write_link(root, "proc/5000030/fd/0", "/dev/null");
  write_link(root, "proc/5000030/fd/7", "/dev/nvidia0");
  write_link(root, "proc/5000031/fd/0", "/dev/null");
  // 5000032 has no fd folder: its open files are unknown
  fake_top_reset(1);
  for (unsigned pid = 5000030; pid < 5000034; pid++) add_compute(0, pid, 100);
  brim_nvml_api api = fake_top_api();
  brim_top_source top;
  brim_top_view view;
  brim_top_view_init(&view);
  open_at(root, &api, &top);
  read_after(&top, 1, &view);
  assert_int_equal(find(&view, 5000030, 0)->elsewhere, BRIM_TOP_NO);
  assert_string_equal(find(&view, 5000030, 0)->command, "innocent");
  assert_int_equal(find(&view, 5000031, 0)->elsewhere, BRIM_TOP_YES);
  assert_int_equal(find(&view, 5000032, 0)->elsewhere, BRIM_TOP_UNKNOWN);
  assert_int_equal(find(&view, 5000033, 0)->elsewhere, BRIM_TOP_YES);
  for (unsigned pid = 5000031; pid < 5000034; pid++) {
    const brim_top_process *p = find(&view, pid, 0);
    assert_string_equal(p->command, "");
    assert_string_equal(p->user, "");
    assert_true(isnan(p->rss) && isnan(p->cpu_percent) && isnan(p->elapsed_s));
    assert_true(p->memory == 100);
  }
  brim_top_view_deinit(&view);
  brim_top_close(&top);
}

// More processes than the first buffer holds, by the new call and by the old one; invalid rows are left out.
static void test_many_processes(void **state) {
  (void)state;
  for (int old = 0; old < 2; old++) {
    fake_top_reset(1);
    for (unsigned i = 0; i < FAKE_TOP_PROCESSES; i++) add_compute(0, 100 + i, i);
    brim_nvml_api api = fake_top_api();
    if (old) api.processes_use = NULL;
    brim_top_source top;
    brim_top_view view;
    brim_top_view_init(&view);
    open_at("p3", &api, &top);
    for (unsigned i = 0; i < FAKE_TOP_PROCESSES; i++) add_use(0, 100 + i, 50, i);
    fake_top.gpu[0].use[3].sm = 4000000000u;
    read_after(&top, 1, &view);
    assert_int_equal(view.process_count, FAKE_TOP_PROCESSES);
    assert_true(find(&view, 139, 0)->sm_percent == 39);
    assert_true(isnan(find(&view, 103, 0)->sm_percent));
    assert_true(old ? isnan(find(&view, 139, 0)->jpeg_percent)
                    : find(&view, 139, 0)->jpeg_percent == 1);
    brim_top_view_deinit(&view);
    brim_top_close(&top);
  }
}

// Each allocation fails once: an error or the same view, and nothing is left behind.
static void test_no_memory(void **state) {
  (void)state;
  bool failed = true;
  for (uint64_t nth = 1; failed; nth++) {
    fake_top_reset(2);
    for (unsigned i = 0; i < 20; i++) add_compute(0, 100 + i, i);
    brim_nvml_api api = fake_top_api();
    brim_top_source top;
    brim_top_view view;
    brim_top_view_init(&view);
    uint64_t before = brim_alloc_failures();
    brim_alloc_fail_nth(nth, 0);
    brim_status status = brim_top_open_machine("p3", &api, &top);
    for (int i = 0; i < 2 && !status; i++) {
      for (unsigned k = 0; k < 20; k++) add_use(0, 100 + k, 50, k);
      fake_top_pass(1);
      status = top.read(top.ctx, BRIM_TOP_WANT_ALL, &view);
    }
    brim_alloc_fail_nth(0, 0);
    failed = brim_alloc_failures() > before;
    if (!failed) assert_ok(status);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    brim_top_close(&top);
    brim_top_view_deinit(&view);
    assert_int_equal(fake_top_alive(), 0);
    assert_int_equal(fake_top.sets, 0);
    assert_true(nth < 1000);
  }
}

//---------------------------------- this machine ----------------------------------

// This machine, with or without a GPU: the view opens, reads and closes, and the host's values are known.
static void test_here(void **state) {
  (void)state;
  brim_top_source top;
  brim_top_view view;
  brim_top_view_init(&view);
  assert_ok(brim_top_open_machine("", NULL, &top));
  assert_string_equal(top.name, "machine");
  assert_ok(top.read(top.ctx, BRIM_TOP_WANT_ALL, &view));
  assert_true(view.host.memory_total > 0 && view.host.cores >= 1 && view.when_s > 1e9);
  assert_true(view.gpu_count > 0 || view.note_count > 0);
  for (size_t i = 0; i < view.gpu_count; i++) assert_true(view.gpus[i].uuid[0] != '\0');
  brim_top_close(&top);
  brim_top_view_deinit(&view);
  char root[BRIM_GPU_ROOT_BYTES + 8];
  memset(root, 'x', sizeof root - 1);
  root[sizeof root - 1] = '\0';
  assert_status(brim_top_open_machine(root, NULL, &top), BRIM_EINVAL);
}

//---------------------------------- recordings ----------------------------------

static void append_view(brim_str *to, const brim_top_view *view) {
  json_t *json = NULL;
  char *text = NULL;
  assert_ok(brim_top_view_to_json(view, &json));
  assert_ok(brim_json_dump(json, 0, &text));
  brim_str_printf(to, "%s\n", text);
  brim_free(text);
  json_decref(json);
}

static void test_recording(void **state) {
  (void)state;
  fake_top_reset(8);
  brim_nvml_api api = fake_top_api();
  brim_top_source top;
  brim_top_view view;
  brim_str file;
  brim_top_view_init(&view);
  brim_str_init(&file);
  open_at("p1", &api, &top);
  for (int i = 0; i < 3; i++) {
    fake_top.gpu[7].power_mw = 100000u + 1000u * (unsigned)i;
    read_after(&top, 1, &view);
    append_view(&file, &view);
    if (i == 0) brim_str_append(&file, "\n");  // empty lines are skipped
  }
  brim_top_close(&top);
  assert_ok(brim_fs_write("record.jsonl", file.data, file.len));
  assert_ok(brim_top_open_recording("record.jsonl", &top));
  assert_string_equal(top.name, "recording");
  for (int i = 0; i < 3; i++) {
    assert_ok(top.read(top.ctx, 0, &view));
    assert_int_equal(view.gpu_count, 8);
    assert_true(view.gpus[7].power_w == 100 + i);
    assert_true(same(view.when_s, 1001 + i));
  }
  assert_status(top.read(top.ctx, 0, &view), BRIM_EEND);
  assert_status(top.read(top.ctx, 0, &view), BRIM_EEND);
  brim_top_close(&top);
  // the recording stopped in the middle of the last line
  assert_ok(brim_fs_write("cut.jsonl", file.data, file.len - 100));
  assert_ok(brim_top_open_recording("cut.jsonl", &top));
  for (int i = 0; i < 2; i++) assert_ok(top.read(top.ctx, 0, &view));
  assert_status(top.read(top.ctx, 0, &view), BRIM_EEND);
  brim_top_close(&top);
  // the message names the bad line
  brim_str_append(&file, "{\"schema\": \"brim.top/1\", \"when_s\": []}\n");
  assert_ok(brim_fs_write("bad.jsonl", file.data, file.len));
  assert_ok(brim_top_open_recording("bad.jsonl", &top));
  for (int i = 0; i < 3; i++) assert_ok(top.read(top.ctx, 0, &view));
  assert_status(top.read(top.ctx, 0, &view), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "bad.jsonl:5: "));
  brim_top_close(&top);
  assert_true(brim_top_open_recording("no-such-file", &top) != BRIM_OK);
  brim_top_close(&top);
  brim_str_deinit(&file);
  brim_top_view_deinit(&view);
}

// A full disk cuts a line off at any byte, also with NULs after it; later readings are still shown.
static void test_torn_lines(void **state) {
  (void)state;
  brim_top_source top;
  brim_top_view view;
  brim_str file;
  brim_top_view_init(&view);
  brim_str_init(&file);
  for (int i = 0; i < 4; i++) {
    view.when_s = 1000 + i;
    append_view(&file, &view);
    if (i == 0) brim_str_append(&file, "{\"schema\":\"brim.top/1\",\"wh\n");
    if (i == 1) brim_str_append_n(&file, "{\"sch\0\0\377\n{\n", 11);
  }
  brim_str_append(&file, "{\"schema\":");
  assert_ok(brim_fs_write("torn.jsonl", file.data, file.len));
  assert_ok(brim_top_open_recording("torn.jsonl", &top));
  for (int i = 0; i < 4; i++) {
    assert_ok(top.read(top.ctx, 0, &view));
    assert_true(same(view.when_s, 1000 + i));
  }
  assert_int_equal(top.skipped(top.ctx), 3);
  assert_status(top.read(top.ctx, 0, &view), BRIM_EEND);
  assert_int_equal(top.skipped(top.ctx), 4);
  brim_top_close(&top);
  brim_str_deinit(&file);
  brim_top_view_deinit(&view);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host),
      cmocka_unit_test(test_quota_v1),
      cmocka_unit_test(test_nothing_there),
      cmocka_unit_test(test_host_container),
      cmocka_unit_test(test_container_names),
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_busiest),
      cmocka_unit_test(test_other_namespace),
      cmocka_unit_test(test_many_processes),
      cmocka_unit_test(test_here),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_recording),
      cmocka_unit_test(test_torn_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
