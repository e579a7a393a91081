// Every check of GPUs, drivers and libraries, on a good machine and on a bad one; ceilings; the report as JSON and as
// text.
#include <pthread.h>

#include "doctor/doctor_int.h"
#include "doctor/doctor_machine.h"
#include "monitor/monitor.h"
#include "ui/top/ui_top.h"

static void test_good(void **state) {
  (void)state;
  static const char *const keys[] = {"gpu.found",
                                     "gpu.memory",
                                     "gpu.shared",
                                     "gpu.mig",
                                     "gpu.mps",
                                     "gpu.compute_mode",
                                     "gpu.persistence",
                                     "gpu.power_limit",
                                     "gpu.pcie_link",
                                     "gpu.numa",
                                     "gpu.clock",
                                     "gpu.temperature",
                                     "gpu.ecc",
                                     "gpu.row_remap",
                                     "software.driver",
                                     "software.cuda",
                                     "software.cuda_match",
                                     "software.cudnn_match"};
  fake_good();
  fake_examine();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_line(keys[i], NULL, BRIM_DOCTOR_GOOD, NULL);
  }
  assert_line("gpu.found", "GPU 0", BRIM_DOCTOR_GOOD, "NVIDIA H200, PCI 0000:3b:00.0");
  assert_line("software.driver", NULL, BRIM_DOCTOR_GOOD, "580.159.04, runs CUDA up to 13.0");
  assert_line("software.cuda", "CUDA runtime", BRIM_DOCTOR_GOOD,
              "13.0.48  /usr/local/cuda/lib64/libcudart.so.13.0.48");
  assert_line("gpu.numa", NULL, BRIM_DOCTOR_GOOD, "node 0; 8 of the 16 cores");
  // a survey without plug-ins
  assert_line("software.plugin", NULL, BRIM_DOCTOR_UNKNOWN, NULL);
}

static void test_memory(void **state) {
  (void)state;
  fake_good();
  fake_file("/proc/4711/comm", "python\n");
  fake_file("/proc/4711/cmdline", "python");
  fake.gpus[0].free = 8 * GIB_U;
  fake.gpus[0].processes[0] = (brim_nvml_process){.pid = 4711, .used_bytes = 130 * GIB_U};
  fake.gpus[0].processes[1] = (brim_nvml_process){.pid = 99, .used_bytes = BRIM_NVML_UNKNOWN};
  fake.gpus[0].process_count = 2;
  fake_examine();
  assert_line("gpu.memory", NULL, BRIM_DOCTOR_BAD,
              "8.0 GiB free of 140.0 GiB; held by pid 4711 python");
  assert_line("gpu.memory", NULL, BRIM_DOCTOR_BAD, "another container's process (pid 99)");
  assert_line("gpu.shared", NULL, BRIM_DOCTOR_WARN, "2 other processes");
  // the clock is held down for an unknown reason
  fake.gpus[0].process_count = 0;
  fake.gpus[0].free = 100 * GIB_U;
  fake_examine();
  assert_line("gpu.memory", NULL, BRIM_DOCTOR_WARN, "lists no process");
}

static void test_modes(void **state) {
  (void)state;
  fake_good();
  fake.gpus[0].persistence = 0;
  fake.gpus[0].compute_mode = 3;
  fake.gpus[0].power_mw = 500000;
  fake_file("/tmp/nvidia-mps/control", "");
  fake_examine();
  assert_line("gpu.persistence", NULL, BRIM_DOCTOR_WARN, "off");
  assert_string_equal(fake_line("gpu.persistence", NULL)->fix, "sudo nvidia-smi -i 0 -pm 1");
  assert_line("gpu.compute_mode", NULL, BRIM_DOCTOR_WARN, "exclusive");
  assert_line("gpu.power_limit", NULL, BRIM_DOCTOR_WARN, "500 W, lowered from 700 W");
  assert_string_equal(fake_line("gpu.power_limit", NULL)->fix, "sudo nvidia-smi -i 0 -pl 700");
  assert_line("gpu.mps", NULL, BRIM_DOCTOR_WARN, "running");
  fake.gpus[0].compute_mode = BRIM_NVML_COMPUTE_PROHIBITED;
  fake_examine();
  assert_line("gpu.compute_mode", NULL, BRIM_DOCTOR_BAD, "prohibited");
}

static void test_link(void **state) {
  (void)state;
  fake_good();
  fake.gpus[0].width = 8;
  fake_examine();
  assert_line("gpu.pcie_link", NULL, BRIM_DOCTOR_WARN, "8 of 16 lanes");
  fake.gpus[0].width = 16;
  fake.gpus[0].generation = 1;
  fake_examine();
  assert_line("gpu.pcie_link", NULL, BRIM_DOCTOR_WARN, "generation 1 of 5");
  // an idle GPU lowers its clock itself
  fake.gpus[0].reasons = BRIM_NVML_REASON_IDLE;
  fake_examine();
  assert_line("gpu.pcie_link", NULL, BRIM_DOCTOR_GOOD, "while the GPU is idle");
}

static void test_numa(void **state) {
  (void)state;
  fake_good();
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "16-31\n");
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  fake_examine();
  assert_line("gpu.numa", NULL, BRIM_DOCTOR_WARN, "node 1; 0 of the 16 cores");
  assert_non_null(strstr(fake_line("gpu.numa", NULL)->fix, "numactl --cpunodebind=1 --membind=1"));
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
  fake_examine();
  assert_line("gpu.numa", NULL, BRIM_DOCTOR_GOOD, "one node");
}

static void test_health(void **state) {
  (void)state;
  fake_good();
  fake.gpus[0].uncorrected = 3;
  fake.gpus[0].remap_pending = 1;
  fake.gpus[0].temperature = 90;
  fake.gpus[0].clock = 1200;
  fake.gpus[0].reasons = BRIM_NVML_REASON_HW_SLOWDOWN | BRIM_NVML_REASON_HW_THERMAL;
  fake_examine();
  assert_line("gpu.ecc", NULL, BRIM_DOCTOR_BAD, "3 uncorrected");
  assert_line("gpu.row_remap", NULL, BRIM_DOCTOR_BAD, "waits for a reset");
  assert_line("gpu.temperature", NULL, BRIM_DOCTOR_WARN, "90 C");
  assert_line("gpu.clock", NULL, BRIM_DOCTOR_BAD, "1200 / 1980 MHz, held down by: heat");
  fake.gpus[0].remap_failed = 1;
  fake.gpus[0].ecc = 0;
  fake.gpus[0].reasons = BRIM_NVML_REASON_APPLICATION_CLOCKS;
  fake_examine();
  assert_line("gpu.ecc", NULL, BRIM_DOCTOR_WARN, "off");
  assert_line("gpu.row_remap", NULL, BRIM_DOCTOR_BAD, "failed");
  assert_line("gpu.clock", NULL, BRIM_DOCTOR_WARN, "application clocks");
  // a GPU at its power limit works normally
  fake.gpus[0].reasons = BRIM_NVML_REASON_SW_POWER_CAP;
  fake_examine();
  assert_line("gpu.clock", NULL, BRIM_DOCTOR_GOOD, "power cap");
}

// If the driver does not answer, values are unknown, not zero.
static void test_silent_driver(void **state) {
  (void)state;
  static const char *const keys[] = {"gpu.memory",      "gpu.shared",      "gpu.compute_mode",
                                     "gpu.persistence", "gpu.power_limit", "gpu.pcie_link",
                                     "gpu.numa",        "gpu.clock",       "gpu.temperature",
                                     "gpu.ecc",         "gpu.row_remap"};
  fake_good();
  fake.silent = true;
  fake.cuda = 0;
  fake_examine();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_line(keys[i], NULL, BRIM_DOCTOR_UNKNOWN, NULL);
  }
  assert_line("software.cuda_match", NULL, BRIM_DOCTOR_UNKNOWN, NULL);
}

static void test_two_gpus(void **state) {
  (void)state;
  fake_good();
  fake.gpu_count = 2;
  fake.gpus[1] = GOOD_GPU;
  fake.gpus[1].uuid = "GPU-1";
  fake.gpus[1].bus = "00000000:5E:00.0";
  fake.gpus[1].persistence = 0;
  fake_gone("/usr/local/cuda/lib64/libnccl.so.2.27");
  fake_examine();
  assert_line("gpu.persistence", "GPU 0", BRIM_DOCTOR_GOOD, NULL);
  assert_line("gpu.persistence", "GPU 1", BRIM_DOCTOR_WARN, NULL);
  assert_string_equal(fake_line("gpu.persistence", "GPU 1")->fix, "sudo nvidia-smi -i 1 -pm 1");
  assert_line("software.cuda", "NCCL", BRIM_DOCTOR_WARN, "not found");
}

static void test_slices(void **state) {
  (void)state;
  fake_good();
  fake.gpus[0].mig = 1;
  fake.gpus[1] = GOOD_GPU;
  fake.gpus[1].uuid = "MIG-1";
  fake.gpus[1].name = "NVIDIA H200 MIG 1g.18gb";
  fake_examine();
  assert_line("gpu.mig", "GPU 0 slice 0", BRIM_DOCTOR_WARN,
              "on: this is a slice, NVIDIA H200 MIG 1g.18gb");
  assert_non_null(strstr(fake_line("gpu.mig", NULL)->fix, "sudo nvidia-smi -i 0 -mig 0"));
}

//---------------------------------- driver and libraries ----------------------------------

static void test_driver(void **state) {
  (void)state;
  fake_good();
  fake_file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\n");
  fake_examine();
  assert_line("software.driver", NULL, BRIM_DOCTOR_BAD,
              "580.159.04, but the kernel module is 570.86.15");
  // the module without its library, as in a container started without --gpus
  fake.gpu_count = 0;
  fake_examine();
  assert_line("software.driver", NULL, BRIM_DOCTOR_BAD, "570.86.15 is loaded");
  assert_line("gpu.found", NULL, BRIM_DOCTOR_UNKNOWN, "no library");
  // a card without a driver
  fake_gone("/proc/driver/nvidia/version");
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n");
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n");
  fake_examine();
  assert_line("software.driver", NULL, BRIM_DOCTOR_BAD, "PCI bus has an NVIDIA GPU");
  // NVIDIA also makes network cards
  fake_file("/sys/bus/pci/devices/0000:3b:00.0/class", "0x020000\n");
  fake_examine();
  assert_line("software.driver", NULL, BRIM_DOCTOR_GOOD, "without a GPU none is needed");
  assert_line("gpu.found", NULL, BRIM_DOCTOR_WARN, "no NVIDIA GPU on the PCI bus");
}

// A driver hangs in its first call: the survey is late, but everything else is shown.
static pthread_mutex_t hang = PTHREAD_MUTEX_INITIALIZER;
static brim_status open_hanging(void *ctx, brim_gpu_monitor **out) {
  pthread_mutex_lock(&hang);
  pthread_mutex_unlock(&hang);
  return fake_open(ctx, out);
}

static void test_slow_driver(void **state) {
  (void)state;
  brim_doctor_survey *survey = NULL;
  fake_good();
  pthread_mutex_lock(&hang);
  assert_ok(brim_doctor_survey_start(open_hanging, NULL, &survey));
  assert_null(brim_doctor_survey_wait(survey, 0.01));
  assert_null(brim_doctor_survey_take(survey));
  fake_examine_with(NULL);
  assert_line("software.driver", NULL, BRIM_DOCTOR_BAD, "it has not answered for 10 s");
  assert_line("gpu.found", NULL, BRIM_DOCTOR_UNKNOWN, "the driver has not answered");
  assert_line("host.memory", NULL, BRIM_DOCTOR_GOOD, NULL);
  pthread_mutex_unlock(&hang);
  const brim_doctor_gpus *gpus = brim_doctor_survey_wait(survey, 3600);
  assert_non_null(gpus);
  // and a driver that is only slow
  brim_doctor_gpus slow = *gpus;
  slow.seconds = 12;
  fake_examine_with(&slow);
  assert_line("software.driver", NULL, BRIM_DOCTOR_WARN, "580.159.04; it took 12 s to answer");
  assert_line("gpu.memory", NULL, BRIM_DOCTOR_GOOD, NULL);
  brim_doctor_survey_free(survey);
}

// First without plug-ins beside this program, then with the build's.
static void test_plugins(void **state) {
  (void)state;
  brim_registry *registry = NULL;
  fake_good();
  assert_ok(brim_registry_create(&registry));
  fake_registry = registry;
  fake_examine();
  assert_line("software.plugin", "cuda", BRIM_DOCTOR_BAD, "not beside this brim");
  assert_line("software.plugin", "cpu", BRIM_DOCTOR_WARN, "not beside this brim");
  fake.gpu_count = 0;
  fake_examine();
  assert_null(fake_line("software.plugin", "cuda"));
  fake_registry = NULL;
  brim_registry_destroy(registry);
}

static void test_libraries(void **state) {
  (void)state;
  fake_good();
  fake_gone("/usr/local/cuda/lib64/libcublasLt.so.13");
  fake_gone("/usr/local/cuda/lib64/libcudnn.so.9.12.0");
  fake_gone("/usr/local/cuda/lib64/libcupti.so.13");
  fake_gone("/usr/local/cuda/lib64/libnccl.so.2.27");
  fake_examine();
  assert_line("software.cuda", "cuBLAS", BRIM_DOCTOR_BAD, "not found");
  assert_line("software.cuda", "cuDNN", BRIM_DOCTOR_WARN, "not found");
  assert_line("software.cuda", "CUPTI", BRIM_DOCTOR_WARN, "not found");
  assert_line("software.cuda", "NCCL", BRIM_DOCTOR_GOOD, "not found");  // one GPU does not need it
  // brim does not search Python's own copy
  fake_file("/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9", "elf");
  fake_set("VIRTUAL_ENV", "/venv");
  fake_examine();
  assert_line("software.cuda", "cuDNN", BRIM_DOCTOR_WARN, "a package of Python's");
  assert_string_equal(fake_line("software.cuda", "cuDNN")->fix,
                      "export LD_LIBRARY_PATH=/venv/lib/python3.12/site-packages/nvidia/cudnn/"
                      "lib:$LD_LIBRARY_PATH");
  fake_set("LD_LIBRARY_PATH", "/venv/lib/python3.12/site-packages/nvidia/cudnn/lib");
  fake_examine();
  assert_line("software.cuda", "cuDNN", BRIM_DOCTOR_GOOD, "site-packages");
}

static void test_versions(void **state) {
  (void)state;
  fake_good();
  fake.cuda = 12040;
  fake_examine();
  assert_line("software.cuda_match", NULL, BRIM_DOCTOR_BAD, "CUDA 13, the driver runs up to 12.4");
  // two installations
  fake_good();
  fake_file("/opt/dnn/libcudnn.so.9.1.0", "elf");
  fake_set("LD_LIBRARY_PATH", "/opt/dnn");
  fake_examine();
  assert_line("software.cudnn_match", NULL, BRIM_DOCTOR_WARN, "9.1.0");
  // and the loader takes some libraries from the other one
  fake_file("/opt/dnn/libcudnn_graph.so.9.5.0", "elf");
  fake_examine();
  assert_line("software.cudnn_match", NULL, BRIM_DOCTOR_BAD, "libcudnn_graph.so.9.5.0");
}

static void test_no_gpu(void **state) {
  (void)state;
  fake_bare();
  fake_host();
  fake_examine();
  assert_line("software.driver", NULL, BRIM_DOCTOR_UNKNOWN, "no library");
  assert_line("gpu.found", NULL, BRIM_DOCTOR_UNKNOWN, "no library");
  assert_line("software.cuda", NULL, BRIM_DOCTOR_GOOD, "none found");
  assert_null(fake_line("gpu.memory", NULL));
  assert_null(fake_line("gpu.mps", NULL));
  assert_int_equal(fake_report.counts[BRIM_DOCTOR_BAD], 0);
}

//---------------------------------- ceilings ----------------------------------

static void test_ceilings(void **state) {
  (void)state;
  const brim_machine_ceilings c = {.gemm_fp32_flops = 50e12,
                                   .gemm_tf32_flops = 400e12,
                                   .gemm_bf16_flops = 710e12,
                                   .gemm_fp16_flops = (double)NAN,
                                   .copy_bytes_per_s = 4.1e12,
                                   .h2d_pinned_bytes_per_s = 55e9,
                                   .h2d_pageable_bytes_per_s = 9e9,
                                   .launches_per_s = 400e3};
  assert_int_equal(setenv("XDG_CACHE_HOME", "/caches", 1), 0);
  brim_device_info gpu = {.kind = BRIM_DEVICE_GPU};
  brim_gpu_setup setup = {.pcie_generation_max = 5, .pcie_width = 16};
  snprintf(gpu.name, sizeof gpu.name, "NVIDIA H200");
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(&c, &gpu, &setup, NULL, &fake_report);
  assert_line("ceiling.gemm_bf16", NULL, BRIM_DOCTOR_GOOD, "710 TFLOP/s");
  assert_line("ceiling.gemm_fp16", NULL, BRIM_DOCTOR_UNKNOWN, NULL);
  assert_line("ceiling.copy", NULL, BRIM_DOCTOR_GOOD, "4,100 GB/s");
  assert_line("ceiling.h2d_pinned", NULL, BRIM_DOCTOR_GOOD, "55.0 GB/s");
  assert_line("ceiling.launch", NULL, BRIM_DOCTOR_GOOD, "2.50 us");
  brim_machine_ceilings slow = c;
  slow.h2d_pinned_bytes_per_s = 12e9;
  slow.launches_per_s = 20e3;
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(&slow, &gpu, &setup, NULL, &fake_report);
  assert_line("ceiling.h2d_pinned", NULL, BRIM_DOCTOR_WARN,
              "12.0 GB/s, 19 % of what the PCIe link");
  assert_line("ceiling.launch", NULL, BRIM_DOCTOR_WARN, "50.0 us");
  assert_non_null(
      strstr(fake_line("ceiling.h2d_pinned", NULL)->fix, "rm /caches/brim/ceilings.json"));
  assert_line("ceiling.device", NULL, BRIM_DOCTOR_GOOD, "NVIDIA H200");
  // measured on a busy machine
  slow.load = 0.42;
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(&slow, &gpu, &setup, NULL, &fake_report);
  assert_line("ceiling.device", NULL, BRIM_DOCTOR_WARN, "NVIDIA H200");
  assert_non_null(strstr(fake_line("ceiling.device", NULL)->why, "42 % of the GPU's time"));
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(NULL, NULL, NULL, "no device", &fake_report);
  assert_line("ceiling.device", NULL, BRIM_DOCTOR_UNKNOWN, "no device");
  assert_false(fake_report.measured);
}

// A CPU has no lines about figures of GPUs.
static void test_ceilings_of_cpu(void **state) {
  (void)state;
  brim_machine_ceilings c = {.gemm_fp32_flops = 70e9,
                             .gemm_bf16_flops = (double)NAN,
                             .gemm_fp16_flops = (double)NAN,
                             .copy_bytes_per_s = 40e9,
                             .launches_per_s = 4e6,
                             .load = 0.5};
  brim_device_info cpu = {.kind = BRIM_DEVICE_CPU};
  snprintf(cpu.name, sizeof cpu.name, "A Processor");
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(&c, &cpu, NULL, NULL, &fake_report);
  assert_line("ceiling.device", NULL, BRIM_DOCTOR_WARN, "A Processor");
  assert_line("ceiling.gemm_bf16", NULL, BRIM_DOCTOR_UNKNOWN, "could not measure");
  assert_null(fake_line("ceiling.gemm_fp16", NULL));  // brim has no fp16 on a CPU
  assert_null(fake_line("ceiling.h2d_pinned", NULL));
  c.load = 0;
  brim_doctor_report_deinit(&fake_report);
  brim_doctor_ceilings(&c, &cpu, NULL, NULL, &fake_report);
  assert_line("ceiling.device", NULL, BRIM_DOCTOR_GOOD, "A Processor");
}

//---------------------------------- the report ----------------------------------

static void test_json(void **state) {
  (void)state;
  json_t *value = NULL;
  fake_good();
  fake.gpus[0].power_mw = 500000;
  fake_examine();
  assert_ok(brim_doctor_report_json(&fake_report, &value));
  assert_string_equal(json_string_value(json_object_get(value, "schema")), "brim.doctor/1");
  assert_true(json_is_null(json_object_get(value, "ceilings")));
  const json_t *checks = json_object_get(value, "checks");
  assert_int_equal(json_array_size(checks), fake_report.count);
  bool seen = false, unknown = false;
  for (size_t i = 0; i < json_array_size(checks); i++) {
    const json_t *c = json_array_get(checks, i);
    const char *key = json_string_value(json_object_get(c, "key"));
    if (strcmp(key, "gpu.power_limit") == 0) {
      seen = true;
      assert_string_equal(json_string_value(json_object_get(c, "state")), "warn");
      assert_string_equal(json_string_value(json_object_get(c, "subject")), "GPU 0");
      assert_string_equal(json_string_value(json_object_get(c, "fix")),
                          "sudo nvidia-smi -i 0 -pl 700");
      assert_true(json_is_null(json_object_get(c, "reason")));
    }
    if (strcmp(key, "data.speed") == 0) {
      unknown = true;
      assert_true(json_is_null(json_object_get(c, "value")));
      assert_true(json_is_string(json_object_get(c, "reason")));
    }
  }
  assert_true(seen && unknown);
  json_decref(value);
}

static void test_text(void **state) {
  (void)state;
  const brim_term plain = {.width = 80};
  brim_str text;
  fake_good();
  fake.gpus[0].power_mw = 500000;
  fake_examine();
  brim_str_init(&text);
  brim_ui_doctor(&plain, &fake_report, BRIM_UI_DOCTOR_ALL, &text);
  assert_ok(brim_str_status(&text));
  assert_non_null(strstr(text.data, "\n  warn     Power limit, GPU 0"));
  assert_non_null(strstr(text.data, "\n  good     GPU 0 "));
  assert_non_null(strstr(text.data, "500 W, lowered from 700 W\n           why"));
  assert_non_null(strstr(text.data, "\n           fix  sudo nvidia-smi -i 0 -pl 700\n"));
  assert_null(strstr(text.data, "\033"));
  // good lines show their reason only on request
  const char *why = "Without it no program can use the GPU.";
  assert_null(strstr(text.data, why));
  brim_str_clear(&text);
  brim_ui_doctor(&plain, &fake_report, BRIM_UI_DOCTOR_WHY, &text);
  assert_non_null(strstr(text.data, why));
  brim_str_clear(&text);
  brim_ui_doctor(&plain, &fake_report, BRIM_UI_DOCTOR_TROUBLE, &text);  // --quiet
  assert_non_null(strstr(text.data, "\n  warn     Power limit, GPU 0"));
  assert_null(strstr(text.data, "  good "));
  brim_str_deinit(&text);
}

static void test_all_seen(void **state) {
  (void)state;
  assert_both_seen("gpu.", NULL);
  assert_both_seen("software.c", NULL);
  assert_both_seen("software.d", NULL);
}

static int finish(void **state) {
  (void)state;
  brim_doctor_report_deinit(&fake_report);
  return 0;
}

// A driver that reports ~0 bytes.
static void test_bytes(void **state) {
  (void)state;
  char text[32], most[32];
  brim_format_bytes(UINT64_MAX, most);
  brim_doctor_bytes((double)UINT64_MAX, text);
  assert_string_equal(text, most);
  brim_doctor_bytes(-1, text);
  assert_string_equal(text, "0 B");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),     cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_memory),   cmocka_unit_test(test_modes),
      cmocka_unit_test(test_link),     cmocka_unit_test(test_numa),
      cmocka_unit_test(test_health),   cmocka_unit_test(test_silent_driver),
      cmocka_unit_test(test_two_gpus), cmocka_unit_test(test_slices),
      cmocka_unit_test(test_driver),   cmocka_unit_test(test_libraries),
      cmocka_unit_test(test_versions), cmocka_unit_test(test_no_gpu),
      cmocka_unit_test(test_ceilings), cmocka_unit_test(test_slow_driver),
      cmocka_unit_test(test_plugins),  cmocka_unit_test(test_ceilings_of_cpu),
      cmocka_unit_test(test_json),     cmocka_unit_test(test_text),
      cmocka_unit_test(test_all_seen),
  };
  return cmocka_run_group_tests(tests, NULL, finish);
}
