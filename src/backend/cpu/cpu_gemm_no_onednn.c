// Takes the place of cpu_onednn.c in builds without oneDNN.
#include "backend/cpu/cpu_int.h"

static bool not_available(const brim_cpu_machine *machine, char *text, size_t text_size) {
  (void)machine, (void)text, (void)text_size;
  return false;
}

void brim_cpu_onednn_mask(unsigned mask) { (void)mask; }

const brim_cpu_gemm_provider brim_cpu_gemm_onednn = {.name = "onednn", .available = not_available};
