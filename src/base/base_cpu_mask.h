// BRIM_CPU_MASK hides CPU features from brim, so that one machine runs the code of lesser ones:
// BRIM_CPU_MASK=bf16,amx. base_cpu_mask.c calls nothing else of base, so that the cpu plug-in can
// compile it in. Hidden are brim's own kernels and, by the plug-in, oneDNN's.
#ifndef BRIM_BASE_CPU_MASK_H_
#define BRIM_BASE_CPU_MASK_H_

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// A feature brings those that need it: without avx512 there is no amx.
enum {
  BRIM_CPU_MASK_BF16 = 1,    // Arm BF16, AVX512_BF16 and with it AMX-BF16
  BRIM_CPU_MASK_AMX = 2,     // AMX tiles
  BRIM_CPU_MASK_AVX512 = 4,  // and bf16, amx
  BRIM_CPU_MASK_AVX2 = 8,    // and avx512, bf16, amx
  BRIM_CPU_MASK_NEON = 16,   // brim's NEON kernels, and bf16
};

// Names separated by commas or spaces; NULL and "" hide nothing. false on an unknown name, with
// the others in *mask.
bool brim_cpu_mask_parse(const char *text, unsigned *mask);
// What the environment variable BRIM_CPU_MASK hides. Unknown names hide nothing here: opening the
// cpu device refuses them.
unsigned brim_cpu_mask(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CPU_MASK_H_
