// The makers' figures of some GPUs: to compare cards, and to say how many threads a card runs at once.
#include <math.h>
#include <string.h>

#include "record/record.h"

// The first match counts, so laptop cards come before desktop cards of the same name.
static const brim_gpu_facts cards[] = {
    {"H200", "H200", 16896, 132, 2048, 141, 141, 4800, 4800, 67, 494, "1,024-4,096", 1830},
    {"H100", "H100", 16896, 132, 2048, 80, 80, 3350, 3350, 67, 494, "1,024-4,096", 1830},
    {"A100", "A100", 6912, 108, 2048, 40, 80, 1555, 2039, 19.5, 156, "1,024-4,096", 1410},
    {"RTX 4090", "4090", 16384, 128, 1536, 24, 24, 1008, 1008, 82.6, 82.6, "512-2,048", 2520},
    {"RTX 3090", "3090", 10496, 82, 1536, 24, 24, 936, 936, 35.6, 35.6, "512-2,048", 1695},
    {"RTX 3060 Laptop", "3060 Laptop", 3840, 30, 1536, 6, 6, 336, 336, 10.9, (double)NAN, "128-256",
     1425},
    {"RTX 3060", "3060", 3584, 28, 1536, 12, 12, 360, 360, 12.7, 12.7, "256-512", 1777},
};

const brim_gpu_facts *brim_gpu_facts_find(const char *device) {
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    if (strstr(device, cards[i].match)) return &cards[i];
  }
  return NULL;
}

//---------------------------------- memory ----------------------------------

// Memory in MiB, as nvidia-smi reports it.
static const struct {
  const char *name;
  double mib;
} memories[] = {
    {"gtx1080ti-11gb", 11264}, {"rtx2060-6gb", 6144},       {"rtx2080ti-11gb", 11264},
    {"rtx3050-8gb", 8192},     {"rtx3060laptop-6gb", 6144}, {"rtx3060-12gb", 12288},
    {"rtx3070-8gb", 8192},     {"rtx3080-10gb", 10240},     {"rtx3090-24gb", 24576},
    {"rtx4060-8gb", 8188},     {"rtx4060ti-16gb", 16380},   {"rtx4070-12gb", 12282},
    {"rtx4080-16gb", 16376},   {"rtx4090-24gb", 24564},     {"rtx5070-12gb", 12227},
    {"rtx5080-16gb", 16303},   {"rtx5090-32gb", 32607},     {"rtxa4000-16gb", 16376},
    {"rtxa6000-48gb", 49140},  {"t4-16gb", 15360},          {"l4-24gb", 23034},
    {"l40s-48gb", 46068},      {"a10-24gb", 23028},         {"v100-16gb", 16384},
    {"v100-32gb", 32768},      {"a100-40gb", 40960},        {"a100-80gb", 81920},
    {"h100-80gb", 81559},      {"h200-141gb", 143771},      {"b200-180gb", 183359},
};
enum { MEMORIES = sizeof memories / sizeof *memories };

// Keeps letters and digits only, in lower case.
static void plain_name(const char *name, char out[48]) {
  size_t n = 0;
  for (; *name && n < 47; name++) {
    char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out[n++] = c;
  }
  out[n] = '\0';
}

bool brim_gpu_memory_find(const char *name, const char **known_as, double *bytes) {
  char wanted[48], plain[48];
  plain_name(name, wanted);
  for (size_t i = 0; i < MEMORIES; i++) {
    plain_name(memories[i].name, plain);
    if (strcmp(plain, wanted) != 0) continue;
    *known_as = memories[i].name;
    *bytes = memories[i].mib * 1048576;
    return true;
  }
  return false;
}

void brim_gpu_memory_names(brim_str *out) {
  for (size_t i = 0; i < MEMORIES; i++) {
    brim_str_printf(out, "%s%s", i ? ", " : "", memories[i].name);
  }
}
