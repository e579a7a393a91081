// Reads /proc/cpuinfo and /proc/meminfo. Calls nothing of base and allocates nothing.
#include "backend/backend_host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Arm names its cores by number only: implementer << 12 | part.
static const struct {
  unsigned long id;
  const char *name;
} arm_cores[] = {
    {0x41d07, "Cortex-A57"},    {0x41d08, "Cortex-A72"},  {0x41d0c, "Neoverse-N1"},
    {0x41d40, "Neoverse-V1"},   {0x41d49, "Neoverse-N2"}, {0x41d4f, "Neoverse-V2"},
    {0x41d83, "Neoverse-V3AE"}, {0x41d84, "Neoverse-V3"}, {0x41d8e, "Neoverse-N3"},
    {0x4e004, "NVIDIA Carmel"}, {0xc0ac3, "Ampere-1"},    {0xc0ac4, "Ampere-1a"},
};

// Value after "key\t: "; NULL when the line is about something else.
static char *value_of(char *line, const char *key) {
  size_t n = strlen(key);
  if (strncmp(line, key, n) != 0) return NULL;
  char *colon = strchr(line + n, ':');
  if (!colon) return NULL;
  colon++;
  while (*colon == ' ' || *colon == '\t') colon++;
  colon[strcspn(colon, "\n")] = '\0';
  return colon;
}

static void name_arm(unsigned long implementer, unsigned long part, char *out, size_t size) {
  for (size_t i = 0; i < sizeof(arm_cores) / sizeof(arm_cores[0]); i++) {
    if (arm_cores[i].id == (implementer << 12 | part)) {
      snprintf(out, size, "%s", arm_cores[i].name);
      return;
    }
  }
  snprintf(out, size, "Arm CPU 0x%02lx/0x%03lx", implementer, part);
}

void brim_host_cpu_name(char *out, size_t size) {
  snprintf(out, size, "CPU");
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  char line[256];
  unsigned long implementer = 0, part = 0;
  while (fgets(line, sizeof(line), file)) {
    char *value = value_of(line, "model name");
    if (value && *value) {
      snprintf(out, size, "%s", value);
      break;
    }
    if ((value = value_of(line, "CPU implementer"))) implementer = strtoul(value, NULL, 0);
    if ((value = value_of(line, "CPU part"))) {
      part = strtoul(value, NULL, 0);
      name_arm(implementer, part, out, size);
      break;
    }
  }
  fclose(file);
}

void brim_host_memory(uint64_t *free_bytes, uint64_t *total_bytes) {
  *free_bytes = 0;
  *total_bytes = 0;
  FILE *file = fopen("/proc/meminfo", "re");
  if (!file) return;
  char line[256];
  while (fgets(line, sizeof(line), file)) {
    uint64_t kib = 0;
    if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1) *total_bytes = kib * 1024;
    if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) *free_bytes = kib * 1024;
  }
  fclose(file);
}
