// Linux under Windows: is it WSL2, is the GPU passed in, how much memory does Windows give. Silent
// elsewhere.
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "doctor/doctor_int.h"

#define GIB 1073741824.0

static bool is_version_2(const brim_doctor_exam *e) {
  char release[256] = "";
  brim_doctor_read_word(e, "/proc/sys/kernel/osrelease", release, sizeof release);
  return strstr(release, "WSL2") || strstr(release, "microsoft") ||
         brim_doctor_exists(e, "/dev/dxg");
}

static void check_version(brim_doctor_exam *e) {
  if (!e->wsl) return;
  if (is_version_2(e)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "WSL2");
    return;
  }
  brim_doctor_line *line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "WSL1");
  brim_doctor_fix(line, "%s", brim_tr("in PowerShell: wsl --set-version YOUR_DISTRIBUTION 2"));
}

//---------------------------------- GPU ----------------------------------

static void check_gpu(brim_doctor_exam *e) {
  static const char *const own[] = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                                    "/usr/lib/aarch64-linux-gnu/libcuda.so.1"};
  const char *path = brim_doctor_env(e, "LD_LIBRARY_PATH");
  brim_doctor_line *line;
  if (!e->wsl) return;
  for (int i = 0; i < 2; i++) {
    if (!brim_doctor_exists(e, own[i])) continue;
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD,
                           brim_tr("a Linux driver is installed (%s) and hides that of Windows"),
                           own[i]);
    brim_doctor_fix(line, "sudo apt-get remove --purge 'libnvidia-compute-*' 'nvidia-driver-*'");
    return;
  }
  if (e->gpu_count > 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("the GPU is passed in from Windows"));
    return;
  }
  if (!brim_doctor_exists(e, "/dev/dxg")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU: /dev/dxg is missing, so Windows passes none in"));
    brim_doctor_fix(
        line, "%s",
        brim_tr("install the NVIDIA driver in Windows (not in Linux); then in PowerShell: "
                "wsl --update\nwsl --shutdown"));
  } else if (!brim_doctor_exists(e, "/usr/lib/wsl/lib/libcuda.so.1")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU: /usr/lib/wsl/lib has no libcuda.so.1"));
    brim_doctor_fix(
        line, "%s",
        brim_tr("install or update the NVIDIA driver in Windows; then in PowerShell: wsl "
                "--shutdown"));
  } else if (!path || !strstr(path, "/usr/lib/wsl/lib")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU, though the driver is in /usr/lib/wsl/lib"));
    brim_doctor_fix(line, "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH");
  } else {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, brim_tr("no GPU: %s"), e->no_gpus);
    brim_doctor_fix(line, "%s", brim_tr("in PowerShell: wsl --update, then wsl --shutdown"));
  }
}

//---------------------------------- memory ----------------------------------

// memory= of the [wsl2] section of a user's .wslconfig; false = no file with one is visible.
static bool read_config(const brim_doctor_exam *e, char *out, size_t size) {
  char pattern[BRIM_DOCTOR_PATH], text[4096];
  glob_t found = {0};
  bool known = false;
  snprintf(pattern, sizeof pattern, "%s/mnt/c/Users/*/.wslconfig", e->machine->root);
  if (glob(pattern, 0, NULL, &found) != 0) return false;
  for (size_t i = 0; i < found.gl_pathc && !known; i++) {
    if (!brim_machine_read_text("", found.gl_pathv[i], text, sizeof text)) continue;
    known = brim_machine_find_line(text, "memory", out, size);
  }
  globfree(&found);
  if (known) out[strcspn(out, "\r\n# ")] = '\0';
  return known && out[0];
}

static void check_memory(brim_doctor_exam *e) {
  brim_machine_memory m;
  char total[32], limit[64];
  if (!e->wsl) return;
  brim_machine_read_memory(e->machine->root, &m);
  if (m.total == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/meminfo");
    return;
  }
  brim_doctor_bytes((double)m.total, total);
  if (read_config(e, limit, sizeof limit)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s; .wslconfig says memory=%s"), total, limit);
    return;
  }
  bool drives = brim_doctor_exists(e, "/mnt/c/Users");
  brim_doctor_line *line =
      drives
          ? brim_doctor_say(
                e, BRIM_DOCTOR_WARN,
                brim_tr("%s: no .wslconfig sets a limit, so it is half of Windows' memory"), total)
          : brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                            brim_tr("%s; whether .wslconfig sets a limit cannot be seen: /mnt/c is "
                                    "not mounted"),
                            total);
  // by default WSL2 takes half, so that Windows has about twice as much; leave it 4 GB
  double windows = ceil(2 * (double)m.total / GIB), take = windows - 4;
  if (take * GIB < (double)m.total) take = floor((double)m.total / GIB);
  if (take < 1) take = 1;
  brim_doctor_fix(line,
                  brim_tr("in C:\\Users\\YOUR_NAME\\.wslconfig, if Windows has %.0f GB:\n[wsl2]\n"
                          "memory=%.0fGB\nswap=8GB\nthen in PowerShell: wsl --shutdown"),
                  windows, take);
}

const brim_doctor_row brim_doctor_wsl_rows[] = {
    {"wsl.version", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("Version"),
     BRIM_N_("Only WSL2 has a Linux kernel that can use the GPU."), check_version},
    {"wsl.gpu", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("GPU"),
     BRIM_N_("Linux under Windows uses the driver of Windows, by /dev/dxg and /usr/lib/wsl/lib."),
     check_gpu},
    {"wsl.memory", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("Memory"),
     BRIM_N_(
         "WSL2 gives Linux only a part of the memory. brim plans with that part, and the kernel "
         "kills a process that exceeds it."),
     check_memory},
    {0}};
