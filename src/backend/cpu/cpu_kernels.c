// Which of our kernels a machine gets.
#include "backend/cpu/cpu_int.h"

const brim_cpu_kernel *brim_cpu_kernel_for(const brim_cpu_machine *machine, brim_dtype type) {
  if (type == BRIM_BF16) {
    bool neon = machine->neon_bf16 && brim_cpu_kernel_neon_bf16.pack;
    return neon ? &brim_cpu_kernel_neon_bf16 : &brim_cpu_kernel_portable_bf16;
  }
  bool neon = machine->neon && brim_cpu_kernel_neon_f32.pack;
  return neon ? &brim_cpu_kernel_neon_f32 : &brim_cpu_kernel_portable_f32;
}

// The kernels that machines without better ones get, on every machine, so that tests reach them.
brim_cpu_machine brim_cpu_machine_plain(const brim_cpu_machine *machine) {
  brim_cpu_machine plain = *machine;
  plain.neon = plain.neon_bf16 = plain.amx = false;
  return plain;
}
