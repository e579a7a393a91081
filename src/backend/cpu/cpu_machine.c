// What this CPU is: model, the vector features that matter here, usable CPUs, memory. Reads /proc
// and the auxiliary vector; changes nothing.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "backend/cpu/cpu_int.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#endif

// Arm cores say only a number; the names are Arm's (implementer 0x41).
static const struct {
  unsigned part;
  const char *name;
} arm_parts[] = {
    {0xd03, "Cortex-A53"},  {0xd05, "Cortex-A55"},  {0xd07, "Cortex-A57"},  {0xd08, "Cortex-A72"},
    {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse-N1"}, {0xd40, "Neoverse-V1"}, {0xd41, "Cortex-A78"},
    {0xd44, "Cortex-X1"},   {0xd49, "Neoverse-N2"}, {0xd4f, "Neoverse-V2"}, {0xd83, "Neoverse-V3"},
    {0xd8e, "Neoverse-N3"},
};

// Value of the first "key : value" line of a text.
static bool find_value(const char *text, const char *key, char *out, size_t size) {
  size_t length = strlen(key);
  for (const char *line = text; line && *line;) {
    const char *end = strchr(line, '\n');
    if (strncmp(line, key, length) == 0 && strchr("\t :", line[length])) {
      const char *value = strchr(line, ':');
      if (value && (!end || value < end)) {
        value += 1 + strspn(value + 1, " \t");
        size_t n = end && end > value ? (size_t)(end - value) : strlen(value);
        if (n >= size) n = size - 1;
        memcpy(out, value, n);
        out[n] = '\0';
        return true;
      }
    }
    line = end ? end + 1 : NULL;
  }
  return false;
}

// The start of a small file as text; "" when it cannot be read.
static void read_text(const char *path, char *out, size_t size) {
  out[0] = '\0';
  FILE *f = fopen(path, "re");
  if (!f) return;
  size_t n = fread(out, 1, size - 1, f);
  out[n] = '\0';
  fclose(f);
}

static void read_model(char *model, size_t size) {
  char text[8192], part[32], implementer[32];
  read_text("/proc/cpuinfo", text, sizeof text);
  if (find_value(text, "model name", model, size)) return;
  snprintf(model, size, "CPU");
  if (!find_value(text, "CPU part", part, sizeof part)) return;
  unsigned long number = strtoul(part, NULL, 0);
  snprintf(model, size, "Arm core 0x%lx", number);
  bool arm = find_value(text, "CPU implementer", implementer, sizeof implementer) &&
             strtoul(implementer, NULL, 0) == 0x41;
  for (size_t i = 0; arm && i < sizeof arm_parts / sizeof *arm_parts; i++) {
    if (arm_parts[i].part == number) snprintf(model, size, "%s", arm_parts[i].name);
  }
}

static void add_feature(brim_cpu_machine *machine, const char *name) {
  size_t n = strlen(machine->features);
  snprintf(machine->features + n, sizeof machine->features - n, "%s%s", n ? " " : "", name);
}

static void read_features(brim_cpu_machine *machine) {
#if defined(__aarch64__)
  machine->neon = true;
  add_feature(machine, "neon");
#ifdef HWCAP2_BF16
  machine->neon_bf16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
  if (machine->neon_bf16) add_feature(machine, "bf16");
#elif defined(__x86_64__)
  // The kernel's list, not cpuid: it leaves out what the system does not let us use.
  static const char *const wanted[] = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"};
  char text[8192], flags[8192];
  read_text("/proc/cpuinfo", text, sizeof text);
  if (!find_value(text, "flags", flags, sizeof flags)) return;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    char word[32];
    snprintf(word, sizeof word, " %s ", wanted[i]);
    size_t n = strlen(flags);
    if (n + 1 < sizeof flags && flags[n - 1] != ' ') memcpy(flags + n, " ", 2);
    if (strstr(flags, word)) add_feature(machine, wanted[i]);
  }
#endif
}

static int usable_cpus(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

void brim_cpu_machine_read(brim_cpu_machine *machine) {
  *machine = (brim_cpu_machine){.threads = usable_cpus()};
  read_model(machine->model, sizeof machine->model);
  read_features(machine);
}

void brim_cpu_memory_read(uint64_t *free_bytes, uint64_t *total_bytes) {
  char text[4096], value[64];
  read_text("/proc/meminfo", text, sizeof text);
  *total_bytes = *free_bytes = 0;
  if (find_value(text, "MemTotal", value, sizeof value)) {
    *total_bytes = strtoull(value, NULL, 10) * 1024;
  }
  if (find_value(text, "MemAvailable", value, sizeof value)) {
    *free_bytes = strtoull(value, NULL, 10) * 1024;
  }
}
