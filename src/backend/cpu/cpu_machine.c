// What this CPU is: model, the vector features that matter here, usable CPUs. Changes nothing, but
// that it asks for the AMX tiles, which the kernel gives only to processes that ask.
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "backend/cpu/cpu_int.h"
#include "base/base_cpu.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#endif

static void add_feature(brim_cpu_machine *machine, const char *name) {
  size_t n = strlen(machine->features);
  snprintf(machine->features + n, sizeof machine->features - n, "%s%s", n ? " " : "", name);
}

static void read_features(brim_cpu_machine *machine) {
  const unsigned masked = brim_cpu_masked();
#if defined(__aarch64__)
  machine->neon = !(masked & BRIM_CPU_MASK_NEON);
  if (machine->neon) add_feature(machine, "neon");
#ifdef HWCAP2_BF16
  machine->neon_bf16 = !(masked & BRIM_CPU_MASK_BF16) && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
  if (machine->neon_bf16) add_feature(machine, "bf16");
#elif defined(__x86_64__)
  static const struct {
    const char *flag;
    unsigned bit;
  } wanted[] = {{"avx2", BRIM_CPU_MASK_AVX2},
                {"avx512f", BRIM_CPU_MASK_AVX512},
                {"avx512_bf16", BRIM_CPU_MASK_BF16},
                {"amx_bf16", BRIM_CPU_MASK_AMX}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (!(masked & wanted[i].bit) && brim_machine_cpu_flag("", wanted[i].flag)) {
      add_feature(machine, wanted[i].flag);
    }
  }
#else
  (void)masked;
#endif
}

void brim_cpu_machine_read(brim_cpu_machine *machine) {
  *machine = (brim_cpu_machine){.threads = brim_cpu_threads(brim_cpu_root())};
  brim_machine_cpu_name("", machine->model, sizeof machine->model);
  if (!machine->model[0]) snprintf(machine->model, sizeof machine->model, "CPU");
  read_features(machine);
  machine->amx = !(brim_cpu_masked() & BRIM_CPU_MASK_AMX) && brim_cpu_amx_permitted();
}
